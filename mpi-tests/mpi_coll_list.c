/* The cases of a round: every pair of a collective with a type, an operation and a kind of size; or every
 * combination. */
#include "mpi_coll.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of count. Those at boundaries are exact; the others vary with the seed. */
enum {
    SIZE_ZERO,
    SIZE_ONE,
    SIZE_RANKS_LESS,
    SIZE_RANKS_MORE,
    SIZE_SMALL,
    SIZE_ODD,
    SIZE_MEDIUM,
    SIZE_LARGE,
    NUM_SIZES
};

/* How many places (enum coll_place) a collective has. */
static int places(const struct coll_run *run, const struct test_coll *coll)
{
    return coll->inplace == TEST_NEVER_INPLACE                            ? COLL_OUT + 1
           : coll->inplace != TEST_AT_START || run->memory == COLL_DEVICE ? COLL_IN + 1
                                                                          : COLL_NUM_PLACES;
}

/* Types and operations of host memory only come last. */
enum { DEVICE_TYPES = RONDO_INT16, DEVICE_OPS = RONDO_AVG + 1 };

static int ntypes(const struct coll_run *run)
{
    return run->memory == COLL_DEVICE ? DEVICE_TYPES : RONDO_NUM_DTYPES;
}

static int has_op(const struct coll_run *run, int type, int op)
{
    return test_has_op((rondo_dtype)type, op) &&
           (run->memory != COLL_DEVICE || op < DEVICE_OPS || op == TEST_OP_PREMUL);
}

/* Make a drawn operation one of the case's type, and a drawn type one of the operation. */
static void fit_op(const struct coll_run *run, struct coll_case *c)
{
    while (!has_op(run, (int)c->type, c->op)) {
        c->op = (c->op + 1) % TEST_OP_NONE;
    }
}
static void fit_type(const struct coll_run *run, struct coll_case *c)
{
    while (!has_op(run, (int)c->type, c->op)) {
        c->type = (rondo_dtype)(((int)c->type + 1) % ntypes(run));
    }
}

/* Calls that only move data know types by their sizes. */
static int is_first_of_size(int type)
{
    for (int other = 0; other < type; other++) {
        if (test_types[other].size == test_types[type].size) {
            return 0;
        }
    }
    return 1;
}

/* Is this type or operation tested in this place? Those that NCCL has are in every one, others in one. */
static int in_turn(const struct coll_run *run, int value, int first_other, int place)
{
    return value < first_other || (run->seed + (uint64_t)value + (uint64_t)place) % 2 == 0;
}

/* @return the case with values that its collective and the run can have. */
static struct coll_case fit(const struct coll_run *run, struct coll_case c)
{
    c.count = coll_fit(run, c.count, test_types[c.type].size);
    if (!c.coll->reduces) {
        c.op = TEST_OP_NONE;
    }
    c.root = c.coll->rooted ? c.root : 0;
    c.inplace = c.inplace < places(run, c.coll) ? c.inplace : places(run, c.coll) - 1;
    return c;
}

static void add(struct coll_list *list, const struct coll_run *run, struct coll_case c)
{
    if (list->count == list->room) {
        list->room = list->room * 2 + 64;
        list->cases = realloc(list->cases, list->room * sizeof(*list->cases));
        if (list->cases == NULL) {
            test_die("no memory for %zu cases", list->room);
        }
    }
    list->cases[list->count++] = fit(run, c);
}

/* More than all buffers of a connection hold: 3 MiB per call, or 1.25 MiB per block. */
static size_t large_count(const struct test_coll *coll, size_t size)
{
    int blocks = strstr(coll->name, "gather") || strstr(coll->name, "scatter") ||
                 strstr(coll->name, "all_to_all");
    return (blocks ? 5u << 18 : 3u << 20) / size + 3;
}

static size_t count_of(const struct coll_run *run, int kind, const struct test_coll *coll, rondo_dtype type,
                       uint64_t hash)
{
    size_t n = (size_t)run->nranks, size = test_types[type].size;
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

/* Draw what the covered pair does not fix. Large sizes are rare, because a pair covers them. */
static struct coll_case random_case(const struct coll_run *run, const struct test_coll *coll, uint64_t hash)
{
    int kind = hash % 40 == 0 ? SIZE_LARGE : (int)(hash % 16 == 0 ? SIZE_MEDIUM : (hash >> 8) % SIZE_MEDIUM);
    struct coll_case c = { .coll = coll };
    c.type = (rondo_dtype)((hash >> 16) % (uint64_t)ntypes(run));
    c.op = (int)((hash >> 24) % TEST_OP_NONE);
    fit_op(run, &c);
    c.root = (int)((hash >> 32) % (uint64_t)run->nranks);
    c.inplace = (int)(hash >> 40) & 1;
    c.align = (int)(hash >> 41) & 3;
    c.stream = (hash >> 43 & 3) == 0;
    c.count = count_of(run, kind, coll, c.type, hash >> 44);
    return c;
}

struct coll_case coll_case_random(const struct coll_run *run, uint64_t hash)
{
    const struct test_coll *coll = &test_colls[test_hash(hash, 1, 1) % (uint64_t)test_num_colls];
    struct coll_case c = random_case(run, coll, hash);
    c.inplace = (int)(test_hash(hash, 1, 2) % COLL_NUM_PLACES);
    return fit(run, c);
}

static void fix_size(const struct coll_run *run, struct coll_case *c, int kind, uint64_t hash)
{
    c->count = count_of(run, kind, c->coll, c->type, hash >> 44);
}

/* Add each pair (collective, type), (collective, operation), (collective, kind of size), in and out of
 * place; types and operations that NCCL lacks in one of the places. */
static void sample(struct coll_list *list, const struct coll_run *run, const struct test_coll *coll,
                   const struct coll_wish *wish)
{
    struct coll_case c;
    uint64_t draw = 0;
    for (int inplace = 0; inplace < (coll->inplace == TEST_AT_START ? COLL_NUM_PLACES : 2); inplace++) {
        for (int type = 0; type < ntypes(run); type++) {
            c = random_case(run, coll, test_hash(run->seed, (uint64_t)(coll - test_colls), draw++));
            c.type = (rondo_dtype)type;
            c.inplace = inplace;
            fit_op(run, &c);
            if (coll->reduces ? in_turn(run, type, DEVICE_TYPES, inplace) : is_first_of_size(type)) {
                add(list, run, c);
            }
        }
        for (int op = 0; op < TEST_OP_NONE && coll->reduces; op++) {
            c = random_case(run, coll, test_hash(run->seed, (uint64_t)(coll - test_colls), draw++));
            c.op = op;
            c.inplace = inplace;
            if ((run->memory != COLL_DEVICE || op < DEVICE_OPS || op == TEST_OP_PREMUL) &&
                in_turn(run, op, DEVICE_OPS, inplace)) {
                fit_type(run, &c);
                add(list, run, c);
            }
        }
        for (int kind = 0; kind < NUM_SIZES; kind++) {
            uint64_t hash = test_hash(run->seed, (uint64_t)(coll - test_colls), draw++);
            c = random_case(run, coll, hash);
            c.type = wish->type >= 0 ? (rondo_dtype)wish->type : c.type;
            fit_op(run, &c);
            c.inplace = inplace;
            fix_size(run, &c, kind, hash);
            add(list, run, c);
        }
    }
}

static void everything(struct coll_list *list, const struct coll_run *run, const struct test_coll *coll)
{
    int nplaces = places(run, coll), ops = coll->reduces ? TEST_OP_NONE : 1,
        roots = coll->rooted ? run->nranks : 1;
    uint64_t draw = 0;
    for (int type = 0; type < ntypes(run); type++) {
        for (int op = 0; op < ops; op++) {
            if (coll->reduces ? !has_op(run, type, op) : !is_first_of_size(type)) {
                continue;
            }
            for (int kind = 0; kind < NUM_SIZES; kind++) {
                for (int variant = 0; variant < nplaces * roots * 2; variant++) {
                    struct coll_case c = random_case(
                        run, coll, test_hash(run->seed, (uint64_t)(coll - test_colls), draw++));
                    c.type = (rondo_dtype)type;
                    c.op = op;
                    c.inplace = variant % nplaces;
                    c.root = variant / nplaces % roots;
                    c.align = variant / nplaces / roots ? COLL_ALIGN_SEND | COLL_ALIGN_RECV : 0;
                    fix_size(run, &c, kind, draw << 44);
                    add(list, run, c);
                }
            }
        }
    }
}

/* Mix large and small calls and different collectives. All ranks compute the same order. */
static void shuffle(struct coll_list *list, uint64_t seed)
{
    for (size_t i = list->count; i > 1; i--) {
        size_t j = test_hash(seed, 77, i) % i;
        struct coll_case swap = list->cases[i - 1];
        list->cases[i - 1] = list->cases[j];
        list->cases[j] = swap;
    }
}

static int wanted(const struct coll_case *c, const struct coll_wish *wish)
{
    return (wish->type < 0 || (int)c->type == wish->type) && (wish->op < 0 || c->op == wish->op);
}

void coll_list_make(struct coll_list *list, const struct coll_run *run, const struct coll_wish *wish)
{
    size_t kept = 0;
    *list = (struct coll_list){ 0 };
    for (int i = 0; i < test_num_colls; i++) {
        if (wish->coll != NULL && wish->coll != &test_colls[i]) {
            continue;
        }
        if (wish->full) {
            everything(list, run, &test_colls[i]);
        } else {
            sample(list, run, &test_colls[i], wish);
        }
    }
    shuffle(list, run->seed);
    for (size_t i = 0; i < list->count; i++) {
        if (wanted(&list->cases[i], wish)) {
            list->cases[kept++] = list->cases[i];
        }
    }
    list->count = kept;
}

void coll_list_free(struct coll_list *list) { free(list->cases); }

const char *coll_forced(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : "any";
}
