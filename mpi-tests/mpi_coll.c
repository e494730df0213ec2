/*
 * mpi_coll: every collective with every type, operation, place, alignment and kind of size. Each result is
 * checked element by element, and guards detect writes outside the buffers. scripts/run-mpi-tests runs it
 * once per algorithm and protocol, which RONDO_ALGO and RONDO_PROTO force (a process reads them once).
 */
#include "mpi_coll.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct options {
    uint64_t seed;
    long iters, timeout_s;
    struct coll_wish wish; /* without a filter, groups run too */
    int only_groups;
    const char *one;
    size_t most; /* bytes of a rank's block */
    int memory;
};

static void run_list(struct coll_run *run, const struct coll_list *list, long timeout_s)
{
    for (size_t i = 0; i < list->count; i++) {
        if (i % 16 == 0) {
            test_watchdog((int)timeout_s);
        }
        coll_case_run(run, &list->cases[i]);
    }
}

static void run_all(struct coll_run *run, const struct options *o)
{
    const struct coll_wish *wish = &o->wish;
    for (long round = 0; round < o->iters; round++) {
        struct coll_list list = { 0 };
        run->seed = o->seed + (uint64_t)round;
        if (!o->only_groups) {
            coll_list_make(&list, run, wish);
            if (list.count == 0) {
                test_die("no case is chosen");
            }
            run_list(run, &list, o->timeout_s);
        }
        coll_list_free(&list);
        test_watchdog((int)o->timeout_s);
        if (run->memory != COLL_DEVICE &&
            (o->only_groups || (wish->coll == NULL && wish->type < 0 && wish->op < 0))) {
            coll_group_tests(run, wish->full ? 20 : 3);
        }
    }
}

static void usage(void)
{
    printf("usage: mpirun -n RANKS mpi_coll [OPTION]...\n"
           "\n"
           "Run the collectives with every type, operation, place, alignment and kind of size, and check the "
           "results.\n"
           "\n"
           "  --quick          every pair of properties with every collective (default)\n"
           "  --full           every combination\n"
           "  --coll NAME      only this collective, or 'groups'\n"
           "  --type TYPE      only this type\n"
           "  --op OP          only this operation\n"
           "  --most BYTES     limit a rank's block, for slow links (default: no limit)\n"
           "  --memory KIND    buffers: ordinary (default); heap: from rondo_mem_alloc; mixed: different on "
           "each rank;\n"
           "                   device: GPU memory, without groups; device-heap: from rondo_mem_alloc_device\n"
           "  --seed N         seed of the random choices (default: 1)\n"
           "  --iters N        rounds, each with the next seed (default: 1)\n"
           "  --case TEXT      only the case that a failure printed\n"
           "  --timeout S      give up after S seconds without progress (default: 120)\n"
           "  -h, --help       show this help and exit\n"
           "\n"
           "RONDO_ALGO and RONDO_PROTO force the algorithm and the protocol.\n"
           "Exit status: 0 success, 1 failure or wrong usage\n"
           "Collectives:");
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
    case 'q': o->wish.full = 0; return 1;
    case 'f': o->wish.full = 1; return 1;
    case 'c':
        o->only_groups = strcmp(text, "groups") == 0;
        o->wish.coll = test_coll_by_name(text);
        return o->only_groups || o->wish.coll != NULL;
    case 't': return (o->wish.type = test_type_by_name(text)) >= 0;
    case 'o': return (o->wish.op = test_op_by_name(text)) >= 0;
    case 'b': return test_parse_size(text, &o->most) && o->most >= 64;
    case 'm': return (o->memory = coll_memory_by_name(text)) >= 0;
    case '1': o->one = text; return 1;
    default: return 0;
    }
}

/* @return 0: go on; 1: done; 2: wrong usage. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option rows[] = { { "seed", 1, NULL, 's' },    { "iters", 1, NULL, 'i' },
                                          { "quick", 0, NULL, 'q' },   { "full", 0, NULL, 'f' },
                                          { "coll", 1, NULL, 'c' },    { "type", 1, NULL, 't' },
                                          { "op", 1, NULL, 'o' },      { "case", 1, NULL, '1' },
                                          { "timeout", 1, NULL, 'w' }, { "most", 1, NULL, 'b' },
                                          { "memory", 1, NULL, 'm' },  { "help", 0, NULL, 'h' },
                                          { NULL, 0, NULL, 0 } };
    int opt;
    *o = (struct options){
        .seed = 1, .iters = 1, .timeout_s = 120, .wish = { .type = -1, .op = -1 }, .most = SIZE_MAX
    };
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
                fprintf(stderr, "mpi_coll: invalid value: %s; try '--help'\n", optarg);
            }
            return 2;
        }
    }
    return optind < argc ? 2 : 0;
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
        printf("mpi_coll: %d ranks, algorithm %s, protocol %s, seed %llu%s\n", test.nranks,
               coll_forced("RONDO_ALGO"), coll_forced("RONDO_PROTO"), (unsigned long long)o.seed,
               o.wish.full ? ", full" : "");
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
