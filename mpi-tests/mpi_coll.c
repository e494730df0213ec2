/*
 * mpi_coll: every collective with every type, operation, place, alignment and kind of size, checked element by element and with guards.
 * Algorithms and protocols are forced from outside (RONDO_ALGO, RONDO_PROTO: read once a process); the runner calls it once for each.
 */
#include "mpi_coll.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of count; the boundary ones are exact, the others vary with the seed. */
enum { SIZE_ZERO, SIZE_ONE, SIZE_RANKS_LESS, SIZE_RANKS_MORE, SIZE_SMALL, SIZE_ODD, SIZE_MEDIUM, SIZE_LARGE, NUM_SIZES };

struct options {
    uint64_t seed;
    long iters, timeout_s;
    int full;
    const struct test_coll *coll; /* NULL: all, and groups */
    int only_groups, type, op;    /* -1: all */
    const char *one;
    size_t most; /* bytes of a block */
    int memory;
};

struct list {
    struct coll_case *cases;
    size_t count, room;
};

static void add(struct list *list, const struct coll_run *run, struct coll_case c)
{
    c.count = coll_fit(run, c.count, test_types[c.type].size);
    if (!c.coll->reduces) {
        c.op = TEST_OP_NONE;
    }
    c.root = c.coll->rooted ? c.root : 0;
    c.inplace = c.coll->inplace == TEST_NEVER_INPLACE ? 0 : c.inplace;
    if (list->count == list->room) {
        list->room = list->room * 2 + 64;
        list->cases = realloc(list->cases, list->room * sizeof(*list->cases));
        if (list->cases == NULL) {
            test_die("no memory for %zu cases", list->room);
        }
    }
    list->cases[list->count++] = c;
}

/* More than all buffers of a connection hold: 3 MiB in one call, 1.25 MiB in each of a rank's blocks. */
static size_t large_count(const struct test_coll *coll, size_t size)
{
    int blocks = strstr(coll->name, "gather") || strstr(coll->name, "scatter") || strstr(coll->name, "all_to_all");
    return (blocks ? 5u << 18 : 3u << 20) / size + 3;
}

static size_t count_of(int kind, const struct test_coll *coll, rondo_dtype type, uint64_t hash)
{
    size_t n = (size_t)test.nranks, size = test_types[type].size;
    switch (kind) {
    case SIZE_ZERO: return 0;
    case SIZE_ONE: return 1;
    case SIZE_RANKS_LESS: return n - 1;
    case SIZE_RANKS_MORE: return n + 1;
    case SIZE_SMALL: return 2 + hash % 60;
    case SIZE_ODD: return (64 + hash % 4000) | 1;
    case SIZE_MEDIUM: return 65536 / size + hash % 1000;
    default: return large_count(coll, size) + hash % 100;
    }
}

/* Everything that is not fixed by the pair that is to be covered. Large sizes are rare: they have their own pair. */
static struct coll_case random_case(const struct test_coll *coll, uint64_t hash)
{
    int kind = hash % 40 == 0 ? SIZE_LARGE : (int)(hash % 16 == 0 ? SIZE_MEDIUM : (hash >> 8) % SIZE_MEDIUM);
    struct coll_case c = { .coll = coll };
    c.type = (rondo_dtype)((hash >> 16) % RONDO_NUM_DTYPES);
    c.op = (int)((hash >> 24) % TEST_OP_NONE);
    c.root = (int)((hash >> 32) % (uint64_t)test.nranks);
    c.inplace = (int)(hash >> 40) & 1;
    c.align = (int)(hash >> 41) & 3;
    c.stream = (hash >> 43 & 3) == 0;
    c.count = count_of(kind, coll, c.type, hash >> 44);
    return c;
}

static void fix_size(struct coll_case *c, int kind, uint64_t hash) { c->count = count_of(kind, c->coll, c->type, hash >> 44); }

/* Each pair (collective, type), (collective, operation), (collective, kind of size), in place and not; the rest is drawn. */
static void sample(struct list *list, const struct coll_run *run, const struct test_coll *coll, const struct options *o)
{
    struct coll_case c;
    uint64_t draw = 0;
    for (int inplace = 0; inplace < 2; inplace++) {
        for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
            c = random_case(coll, test_hash(run->seed, (uint64_t)(coll - test_colls), draw++));
            c.type = (rondo_dtype)type;
            c.inplace = inplace;
            add(list, run, c);
        }
        for (int op = 0; op < TEST_OP_NONE && coll->reduces; op++) {
            c = random_case(coll, test_hash(run->seed, (uint64_t)(coll - test_colls), draw++));
            c.op = op;
            c.inplace = inplace;
            add(list, run, c);
        }
        for (int kind = 0; kind < NUM_SIZES; kind++) {
            uint64_t hash = test_hash(run->seed, (uint64_t)(coll - test_colls), draw++);
            c = random_case(coll, hash);
            c.type = o->type >= 0 ? (rondo_dtype)o->type : c.type;
            c.inplace = inplace;
            fix_size(&c, kind, hash);
            add(list, run, c);
        }
    }
}

static void everything(struct list *list, const struct coll_run *run, const struct test_coll *coll)
{
    int places = coll->inplace == TEST_NEVER_INPLACE ? 1 : 2, ops = coll->reduces ? TEST_OP_NONE : 1,
        roots = coll->rooted ? test.nranks : 1;
    uint64_t draw = 0;
    for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
        for (int op = 0; op < ops; op++) {
            for (int kind = 0; kind < NUM_SIZES; kind++) {
                for (int variant = 0; variant < places * roots * 2; variant++) {
                    struct coll_case c = random_case(coll, test_hash(run->seed, (uint64_t)(coll - test_colls), draw++));
                    c.type = (rondo_dtype)type;
                    c.op = op;
                    c.inplace = variant % places;
                    c.root = variant / places % roots;
                    c.align = variant / places / roots ? COLL_ALIGN_SEND | COLL_ALIGN_RECV : 0;
                    fix_size(&c, kind, draw << 44);
                    add(list, run, c);
                }
            }
        }
    }
}

/* So that large and small calls and different collectives follow one another; the same order on all ranks. */
static void shuffle(struct list *list, uint64_t seed)
{
    for (size_t i = list->count; i > 1; i--) {
        size_t j = test_hash(seed, 77, i) % i;
        struct coll_case swap = list->cases[i - 1];
        list->cases[i - 1] = list->cases[j];
        list->cases[j] = swap;
    }
}

static int wanted(const struct coll_case *c, const struct options *o)
{
    return (o->type < 0 || (int)c->type == o->type) && (o->op < 0 || c->op == o->op);
}

static void run_list(struct coll_run *run, const struct list *list, const struct options *o)
{
    for (size_t i = 0; i < list->count; i++) {
        if (wanted(&list->cases[i], o)) {
            if (i % 16 == 0) {
                test_watchdog((int)o->timeout_s);
            }
            coll_case_run(run, &list->cases[i]);
        }
    }
}

static void run_all(struct coll_run *run, const struct options *o)
{
    for (long round = 0; round < o->iters; round++) {
        struct list list = { 0 };
        uint64_t seed = o->seed + (uint64_t)round;
        run->seed = seed;
        for (int i = 0; i < test_num_colls && !o->only_groups; i++) {
            if (o->coll == NULL || o->coll == &test_colls[i]) {
                if (o->full) {
                    everything(&list, run, &test_colls[i]);
                } else {
                    sample(&list, run, &test_colls[i], o);
                }
            }
        }
        shuffle(&list, seed);
        run_list(run, &list, o);
        free(list.cases);
        test_watchdog((int)o->timeout_s);
        if (o->memory != COLL_DEVICE && (o->only_groups || (o->coll == NULL && o->type < 0 && o->op < 0))) {
            coll_group_tests(run, o->full ? 20 : 3);
        }
    }
}

static void usage(void)
{
    printf("Usage: mpirun -n RANKS mpi_coll [options]\n"
           "  --seed N       other random choices (1)        --iters N     rounds, each with the next seed (1)\n"
           "  --quick        every pair with a collective (default)   --full   every combination\n"
           "  --coll NAME    one collective, or groups       --type T, --op O   only these\n"
           "  --most BYTES   of a rank's block, where the way is slow (no limit)\n"
           "  --memory KIND  ordinary (default), heap: of rondo_mem_alloc, mixed: other buffers on each rank, device: of GPUs, no groups\n"
           "  --case TEXT    the one case that a failure printed\n"
           "  --timeout S    give up when nothing moves for S seconds (120)\n"
           "Environment: RONDO_ALGO and RONDO_PROTO force algorithm and protocol.\nCollectives:");
    for (int i = 0; i < test_num_colls; i++) {
        printf(" %s", test_colls[i].name);
    }
    printf("\n");
}

static int parse_one(int opt, const char *text, struct options *o)
{
    long seed;
    switch (opt) {
    case 's': return test_parse_long(text, 0, 1L << 62, &seed) && (o->seed = (uint64_t)seed, 1);
    case 'i': return test_parse_long(text, 1, 1000000, &o->iters);
    case 'w': return test_parse_long(text, 1, 1000000, &o->timeout_s);
    case 'q': o->full = 0; return 1;
    case 'f': o->full = 1; return 1;
    case 'c':
        o->only_groups = strcmp(text, "groups") == 0;
        o->coll = test_coll_by_name(text);
        return o->only_groups || o->coll != NULL;
    case 't': return (o->type = test_type_by_name(text)) >= 0;
    case 'o': return (o->op = test_op_by_name(text)) >= 0;
    case 'b': return test_parse_size(text, &o->most) && o->most >= 64;
    case 'm': return (o->memory = coll_memory_by_name(text)) >= 0;
    case '1': o->one = text; return 1;
    default: return 0;
    }
}

/* 0: go on; 1: done; 2: bad option. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option rows[] = { { "seed", 1, NULL, 's' }, { "iters", 1, NULL, 'i' },  { "quick", 0, NULL, 'q' },
                                          { "full", 0, NULL, 'f' }, { "coll", 1, NULL, 'c' },   { "type", 1, NULL, 't' },
                                          { "op", 1, NULL, 'o' },   { "case", 1, NULL, '1' },   { "timeout", 1, NULL, 'w' },
                                          { "most", 1, NULL, 'b' }, { "memory", 1, NULL, 'm' }, { "help", 0, NULL, 'h' },
                                          { NULL, 0, NULL, 0 } };
    int opt;
    *o = (struct options){ .seed = 1, .iters = 1, .timeout_s = 120, .type = -1, .op = -1, .most = SIZE_MAX };
    opterr = test.rank == 0;
    while ((opt = getopt_long(argc, argv, "h", rows, NULL)) != -1) {
        if (opt == 'h') {
            if (test.rank == 0) {
                usage();
            }
            return 1;
        }
        if (!parse_one(opt, optarg, o)) {
            if (test.rank == 0 && opt != '?') {
                fprintf(stderr, "mpi_coll: bad value: %s\n", optarg);
            }
            return 2;
        }
    }
    return optind < argc ? 2 : 0;
}

static const char *forced(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : "any";
}

int main(int argc, char **argv)
{
    struct options o;
    struct coll_run run;
    struct coll_case one;
    int stop;
    test_init("mpi_coll", MPI_THREAD_SINGLE);
    stop = parse(argc, argv, &o);
    if (stop == 0 && o.one != NULL && !coll_case_parse(o.one, test.nranks, &one)) {
        stop = 2;
    }
    if (stop != 0) {
        MPI_Finalize();
        return stop - 1;
    }
    test_watchdog((int)o.timeout_s);
    if (test.rank == 0) {
        printf("mpi_coll: %d ranks, algorithm %s, protocol %s, seed %llu%s\n", test.nranks, forced("RONDO_ALGO"), forced("RONDO_PROTO"),
               (unsigned long long)o.seed, o.full ? ", full" : "");
    }
    coll_run_init(&run, o.seed, o.most, o.memory);
    if (o.one != NULL) {
        coll_case_run(&run, &one);
    } else {
        run_all(&run, &o);
    }
    test.what = "destroying the communicator";
    coll_run_release(&run);
    return test_finish();
}
