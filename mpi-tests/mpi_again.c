/*
 * mpi_again: repeats a few calls on memory that does not allow direct access, in sizes for which direct
 * access and the mailbox are the two best choices. After some refusals the ranks stop asking for direct
 * access for a while; the count that decides this must be equal on all ranks (src/call/fast_path.c,
 * kern/direct.h). Each rank makes each call in its own form: alone (the fast path), in a group, on a stream,
 * or on a stream with other calls queued; so a plan that one rank keeps, another evicts. Sometimes all ranks,
 * or all but one, use buffers from rondo_mem_alloc. A rank that counts differently hangs, or sees a mismatch.
 */
#include <stdlib.h>

#include "mpi_common.h"

enum { MOST = 2000, LEAST = 800, SHAPES = 24, FEW = 4, PHASE = 500, QUEUED = 3 };
enum { BEYOND = 64 }; /* elements after those of a call, which it may not write */
enum coll { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, ALL_TO_ALL, BARRIER, COLLS };
enum form { ALONE, ALONE_TOO, IN_GROUP, ON_STREAM, LATER, NUM_WAYS };

struct shape {
    int coll, root;
    size_t count;
};
static const char *const names[COLLS] = { "all_reduce", "broadcast",  "reduce",
                                          "all_gather", "all_to_all", "barrier" };

struct call {
    struct shape shape;
    int32_t *in, *out;
    int number;
    enum form form;
};

static int32_t value(int number, int rank, size_t i) { return (int32_t)(number + rank * 7 + (int)i); }

static int32_t expected(const struct call *c, size_t i)
{
    int32_t sum = 0;
    if (c->shape.coll == BROADCAST) {
        return value(c->number, c->shape.root, i);
    }
    if (c->shape.coll == ALL_GATHER || c->shape.coll == ALL_TO_ALL) {
        size_t block = c->shape.coll == ALL_TO_ALL ? (size_t)test.rank * c->shape.count : 0;
        return value(c->number, (int)(i / c->shape.count), block + i % c->shape.count);
    }
    for (int r = 0; r < test.nranks; r++) {
        sum += value(c->number, r, i);
    }
    return sum;
}

static size_t received(const struct shape *s)
{
    size_t blocks = s->coll == ALL_GATHER || s->coll == ALL_TO_ALL ? (size_t)test.nranks : 1;
    return s->coll == BARRIER || (s->coll == REDUCE && s->root != test.rank) ? 0 : s->count * blocks;
}

static void fill(const struct call *c)
{
    for (size_t i = 0; i < c->shape.count * (c->shape.coll == ALL_TO_ALL ? (size_t)test.nranks : 1); i++) {
        c->in[i] = value(c->number, test.rank, i);
    }
    for (size_t i = 0; i < received(&c->shape) + BEYOND; i++) {
        c->out[i] = -1;
    }
}

static void check(const struct call *c)
{
    size_t i = 0, n = received(&c->shape);
    while (i < n && c->out[i] == expected(c, i)) {
        i++;
    }
    test_check(i == n, "%s #%d of %zu, root %d, form %d: element %zu is %d, not %d", names[c->shape.coll],
               c->number, c->shape.count, c->shape.root, c->form, i, i < n ? c->out[i] : 0,
               i < n ? expected(c, i) : 0);
    for (i = n; i < n + BEYOND && c->out[i] == -1; i++) {
    }
    test_check(i == n + BEYOND, "%s #%d of %zu, root %d, form %d: element %zu, after the last one, is %d",
               names[c->shape.coll], c->number, c->shape.count, c->shape.root, c->form, i,
               i < n + BEYOND ? c->out[i] : 0);
}

static rondo_status make(const struct call *c, rondo_comm *comm, rondo_stream stream)
{
    const struct shape *s = &c->shape;
    switch (s->coll) {
    case ALL_REDUCE: return rondo_all_reduce(c->in, c->out, s->count, RONDO_INT32, RONDO_SUM, comm, stream);
    case BROADCAST: return rondo_broadcast(c->in, c->out, s->count, RONDO_INT32, s->root, comm, stream);
    case REDUCE: return rondo_reduce(c->in, c->out, s->count, RONDO_INT32, RONDO_SUM, s->root, comm, stream);
    case ALL_GATHER: return rondo_all_gather(c->in, c->out, s->count, RONDO_INT32, comm, stream);
    case ALL_TO_ALL: return rondo_all_to_all(c->in, c->out, s->count, RONDO_INT32, comm, stream);
    default: return rondo_barrier(comm, stream);
    }
}

/* All ranks compute the same shape. */
static struct shape shape_of(uint64_t phase, uint64_t which)
{
    uint64_t h = test_hash(1, phase, which);
    struct shape s = { .coll = (int)(h % COLLS), .root = (int)(h / 64 % (unsigned)test.nranks) };
    s.count = h / 1024 % 4 == 0 ? 1 + h / 4096 % 64 : LEAST + h / 4096 % (MOST - LEAST);
    s.count = s.coll == ALL_GATHER || s.coll == ALL_TO_ALL ? s.count / (size_t)test.nranks + 1 : s.count;
    return s;
}

static void *open_memory(size_t bytes)
{
    void *memory = NULL;
    TEST_MUST(rondo_mem_alloc(&memory, bytes), NULL);
    return memory;
}

static void synchronize(rondo_stream stream, struct call *queued, int *n, rondo_comm *comm)
{
    TEST_MUST(rondo_stream_synchronize(stream), comm);
    for (int i = 0; i < *n; i++) {
        check(&queued[i]);
    }
    *n = 0;
}

static void make_all(rondo_comm *comm, long ncalls)
{
    size_t bytes = sizeof(int32_t) * MOST * ((size_t)test.nranks + 1);
    int32_t *in[2][QUEUED], *out[2][QUEUED];
    struct call queued[QUEUED];
    int nqueued = 0;
    rondo_stream stream;
    TEST_MUST(rondo_stream_create(&stream), comm);
    for (int k = 0; k < QUEUED; k++) {
        in[0][k] = test_guard_alloc(bytes);
        out[0][k] = test_guard_alloc(bytes);
        in[1][k] = open_memory(bytes);
        out[1][k] = open_memory(bytes);
    }
    for (int i = 0; i < ncalls; i++) {
        uint64_t phase = (uint64_t)i / PHASE, h = test_hash(2, (uint64_t)i, 0),
                 mine = test_hash(3, (uint64_t)i, (uint64_t)test.rank);
        int open = phase % 4 == 3 && h / 16 % 16 == 0,
            but = open && h / 256 % 2 == 0 && (int)(h / 512 % (unsigned)test.nranks) == test.rank;
        struct call c = { .shape = shape_of(phase, h % (phase % 3 == 0 ? SHAPES : FEW)),
                          .number = i,
                          .form = (enum form)(mine % NUM_WAYS) };
        c.form = phase % 5 == 1 && test.rank == 0 ? ALONE : c.form; /* one rank always takes the fast path */
        c.in = in[open && !but][nqueued];
        c.out = out[open][nqueued];
        if (i % 100 == 0) {
            test_watchdog(60);
        }
        fill(&c);
        TEST_MUST(c.form == IN_GROUP ? rondo_group_start() : RONDO_SUCCESS, comm);
        TEST_MUST(make(&c, comm, c.form >= ON_STREAM ? stream : NULL), comm);
        TEST_MUST(c.form == IN_GROUP ? rondo_group_end() : RONDO_SUCCESS, comm);
        if (c.form >= ON_STREAM) {
            queued[nqueued++] = c;
        } else {
            check(&c);
        }
        if (c.form == ON_STREAM || nqueued == QUEUED) {
            synchronize(stream, queued, &nqueued, comm);
        }
    }
    synchronize(stream, queued, &nqueued, comm);
    for (int k = 0; k < QUEUED; k++) {
        test_check(test_guard_intact(in[0][k], bytes) && test_guard_intact(out[0][k], bytes),
                   "buffer %d: something wrote beyond its end", k);
        test_guard_free(in[0][k]);
        test_guard_free(out[0][k]);
        TEST_MUST(rondo_mem_free(in[1][k]), comm);
        TEST_MUST(rondo_mem_free(out[1][k]), comm);
    }
    TEST_MUST(rondo_stream_destroy(stream), comm);
}

int main(int argc, char **argv)
{
    rondo_comm *comm = NULL;
    long ncalls = 6000;
    test_init("mpi_again", MPI_THREAD_SINGLE);
    test.what = "repeated calls";
    if (argc > 2 || (argc == 2 && !test_parse_long(argv[1], 1, 10000000, &ncalls))) {
        test_die("usage: mpi_again [calls, 6000]");
    }
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    make_all(comm, ncalls);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    return test_finish();
}
