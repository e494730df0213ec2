/* A case of unit_sweep: its calls, every rank's buffers with their elements, and what comes out according to
 * the reductions of host memory. */
#ifndef RONDO_UNIT_SWEEP_CASE_H
#define RONDO_UNIT_SWEEP_CASE_H

#include "base/half.h"
#include "prim_world.h"

enum {
    SLOT_BYTES = 512,
    STAGE_BYTES = 256,
    MOST_BLOCKS = 4,
    MOST_CALLS = 3,
    MOST_RANKS = 5,
    MESSAGE_RANKS = 4,
    MOST_COUNT = 700
};

/* ---- a case ---- */

struct call {
    enum rondo_coll coll;
    size_t count; /* of the whole buffer, or of a block */
    int root, in_place, avg, premul, open;
};

struct sweep {
    uint64_t seed;
    const char *name; /* of the kernel */
    char repeat[80];  /* the options that run the case again */
    struct sim_kernel kernel;
    enum rondo_algo algo;
    rondo_dtype dtype;
    int n, fan, nblocks, ncalls;
    struct call call[MOST_CALLS];
    size_t mis[2]; /* elements by which inputs and outputs are off a line */
    uint32_t threads;
    uint64_t step;
    int apart;    /* works lie beside the launch's arguments */
    int shuffled; /* the ring's order */
    int any;      /* elements are any bits */
};

struct buffers {
    struct world_buffer in, out, own; /* own: the input as it was */
};
struct job {
    const struct sweep *s;
    struct world *w;
    struct rondo_ports *ports; /* [rank * nblocks + block] */
    struct rondo_work *works[MOST_RANKS];
    struct rondo_gpu_direct *direct[WORLD_RANKS];
    struct rondo_gpu_cell *cell[WORLD_RANKS];
    uint8_t *stage[WORLD_RANKS], *slots[WORLD_RANKS];
    struct buffers b[MOST_CALLS][MOST_RANKS];
    int32_t rank_at[MOST_RANKS], place_of[MOST_RANKS];
};

static uint64_t below(uint64_t *random, uint64_t n) { return world_random(random) / 7 % n; }
static uint64_t started(uint64_t seed, uint64_t what)
{
    uint64_t random = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (what + 1) * 0xbf58476d1ce4e5b9ull;
    for (int i = 0; i < 4; i++) (void)world_random(&random);
    return random;
}

/* ---- elements ---- */

static const uint8_t is_float[] = {
#define FLOAT_(ctx, name, NAME, value, storage, arith, ...) [RONDO_##NAME] = (arith)0.5 != 0,
    RONDO_DEVICE_DTYPE_TABLE(FLOAT_, )
#undef FLOAT_
};

/* Floats with the value v. */
static void put_float(rondo_dtype dtype, void *to, size_t i, double v)
{
    switch ((int)dtype) {
#define PUT_(ctx, name, NAME, value, storage, arith, to_arith, from_arith, ...) \
    case RONDO_##NAME: {                                                        \
        const storage e = (storage)from_arith((arith)v);                        \
        memcpy((uint8_t *)to + i * sizeof e, &e, sizeof e);                     \
        break;                                                                  \
    }
        RONDO_DEVICE_DTYPE_TABLE(PUT_, )
#undef PUT_
    default: break;
    }
}

/* The largest integer up to which all are exact, or a smaller one. */
static int exact_of(rondo_dtype dtype)
{
    return dtype == RONDO_FLOAT8E5M2   ? 8
           : dtype == RONDO_FLOAT8E4M3 ? 16
           : dtype == RONDO_BFLOAT16   ? 256
                                       : 2048;
}

static int most_value(const struct sweep *s) { return exact_of(s->dtype) / s->n; }

/* Exact for the operation, whatever the order: never 0, and never minus 0. */
static double exact_value(const struct sweep *s, const struct call *c, uint64_t *random)
{
    const double sign = below(random, 2) ? -1 : 1;
    if (s->kernel.reduce == RONDO_REDUCE_PROD && s->kernel.kind == SIM_KERNEL_REDUCE) {
        return sign * (double[]){ 0.5, 1, 2 }[below(random, 3)];
    }
    return sign *
           (double)(1 + below(random, (uint64_t)(most_value(s) / (c->premul && most_value(s) > 1 ? 2 : 1))));
}

static void fill(const struct sweep *s, const struct call *c, void *to, size_t n, uint64_t *random)
{
    const size_t size = rondo_dtype_size(s->dtype);
    const int exact = is_float[s->dtype] && !s->any && s->kernel.kind == SIM_KERNEL_REDUCE;
    for (size_t i = 0; i < n; i++) {
        if (exact) {
            put_float(s->dtype, to, i, exact_value(s, c, random));
            continue;
        }
        for (size_t k = 0; k < size; k++)
            ((uint8_t *)to)[i * size + k] = (uint8_t)(world_random(random) >> 23);
    }
}

/* Each rank has its own. */
static uint64_t scalar_of(const struct sweep *s, int rank)
{
    uint64_t random = started(s->seed, 500 + (uint64_t)rank), scalar = 0;
    if (is_float[s->dtype] && !s->any) {
        put_float(s->dtype, &scalar, 0, below(&random, 2) && most_value(s) > 1 ? 2 : -1);
    } else {
        scalar = world_random(&random);
    }
    return rondo_dtype_size(s->dtype) == 8 ? scalar : scalar & ((1ull << 8 * rondo_dtype_size(s->dtype)) - 1);
}

static int is_nan(rondo_dtype dtype, const void *p)
{
    double d;
    switch ((int)dtype) {
#define NAN_(ctx, name, NAME, value, storage, arith, to_arith, from_arith, ...) \
    case RONDO_##NAME: {                                                        \
        storage e;                                                              \
        memcpy(&e, p, sizeof e);                                                \
        d = (double)to_arith(e);                                                \
        return d != d;                                                          \
    }
        RONDO_DEVICE_DTYPE_TABLE(NAN_, )
#undef NAN_
    default: return 0;
    }
}

static void assert_equal(const struct sweep *s, const char *what, int rank, const uint8_t *got,
                         const uint8_t *want, size_t n)
{
    const size_t size = rondo_dtype_size(s->dtype);
    for (size_t i = 0; i < n; i++) {
        uint64_t g = 0, w = 0;
        memcpy(&g, got + i * size, size);
        memcpy(&w, want + i * size, size);
        if (g == w || (s->any && is_nan(s->dtype, got + i * size) && is_nan(s->dtype, want + i * size)))
            continue;
        fail_msg("%s: rank %d: element %zu of %zu is 0x%llx, but %s 0x%llx: unit_sweep %s", s->name, rank, i,
                 n, (unsigned long long)g, what, (unsigned long long)w, s->repeat);
    }
}

/* ---- a rank's buffers ---- */

/* Of an input or output; messages are side by side. */
static size_t elements(const struct sweep *s, const struct call *c, int out)
{
    const int all = out ? c->coll == RONDO_COLL_ALL_GATHER || c->coll == RONDO_COLL_SEND
                        : c->coll == RONDO_COLL_REDUCE_SCATTER;
    return c->count * (all ? (size_t)s->n : 1);
}

/* In place, the smaller buffer is the rank's part of the larger. */
static void make_buffers(struct job *j, int k, int rank)
{
    const struct sweep *s = j->s;
    const struct call *c = &s->call[k];
    const size_t size = rondo_dtype_size(s->dtype), in = elements(s, c, 0) * size,
                 out = elements(s, c, 1) * size;
    struct buffers *b = &j->b[k][rank];
    uint64_t random = started(s->seed, (uint64_t)(100 + 10 * k + rank));
    b->in = world_buffer_new(in, s->mis[0] * size);
    b->out = world_buffer_new(out, s->mis[1] * size);
    b->own = world_buffer_new(in, 0);
    fill(s, c, b->own.data, elements(s, c, 0), &random);
    memcpy(b->in.data, b->own.data, in);
    if (c->in_place && out > in) memcpy(b->out.data + (size_t)rank * in, b->own.data, in);
}

static const uint8_t *input_of(const struct job *j, int k, int rank)
{
    const struct buffers *b = &j->b[k][rank];
    return j->s->call[k].in_place && b->out.bytes > b->in.bytes ? b->out.data + (size_t)rank * b->in.bytes
                                                                : b->in.data;
}
static uint8_t *output_of(const struct job *j, int k, int rank)
{
    const struct buffers *b = &j->b[k][rank];
    return !j->s->call[k].in_place || b->out.bytes > b->in.bytes ? b->out.data
           : b->in.bytes > b->out.bytes                          ? b->in.data + (size_t)rank * b->out.bytes
                                                                 : b->in.data;
}

/* ---- the reference ---- */

/* The reduction of all ranks' inputs, in element order. */
static void reduce_all(const struct job *j, int k, uint8_t *to)
{
    const struct sweep *s = j->s;
    const struct call *c = &s->call[k];
    const size_t n = elements(s, c, 0), bytes = n * rondo_dtype_size(s->dtype);
    uint8_t *scaled[MOST_RANKS];
    const void *from[MOST_RANKS];
    for (int r = 0; r < s->n; r++) {
        from[r] = scaled[r] = world_zeroed(bytes + 1);
        memcpy(scaled[r], j->b[k][r].own.data, bytes);
        if (c->premul) rondo_premul(scaled[r], scaled[r], n, s->dtype, scalar_of(s, r));
    }
    rondo_reduce_get(s->dtype, s->kernel.reduce)(to, from, s->n, n);
    if (c->avg) rondo_divide(to, n, s->dtype, s->n);
    for (int r = 0; r < s->n; r++) free(scaled[r]);
}

/* What a rank's output is. @return 0: this rank has none. */
static int expect(const struct job *j, int k, int rank, uint8_t *want)
{
    const struct sweep *s = j->s;
    const struct call *c = &s->call[k];
    const size_t size = rondo_dtype_size(s->dtype), block = c->count * size;
    uint8_t *all;
    if (c->coll == RONDO_COLL_REDUCE && rank != c->root) return 0;
    if (c->coll == RONDO_COLL_BROADCAST) {
        memcpy(want, j->b[k][c->root].own.data, block);
        return 1;
    }
    if (c->coll == RONDO_COLL_ALL_GATHER) {
        for (int r = 0; r < s->n; r++) memcpy(want + (size_t)r * block, j->b[k][r].own.data, block);
        return 1;
    }
    all = world_zeroed(elements(s, c, 0) * size + 1);
    reduce_all(j, k, all);
    memcpy(want, all + (c->coll == RONDO_COLL_REDUCE_SCATTER ? (size_t)rank * block : 0), block);
    free(all);
    return 1;
}

static void check_buffers(const struct job *j)
{
    const struct sweep *s = j->s;
    for (int k = 0; k < s->ncalls; k++) {
        for (int r = 0; r < s->n; r++) {
            const struct call *c = &s->call[k];
            const struct buffers *b = &j->b[k][r];
            struct world_buffer want = world_buffer_new(b->out.bytes, 0);
            if (expect(j, k, r, want.data)) {
                assert_equal(s, "the reference is", r, output_of(j, k, r), want.data, elements(s, c, 1));
            }
            if (!c->in_place) {
                assert_equal(s, "the input was", r, b->in.data, b->own.data, elements(s, c, 0));
            }
            world_buffer_free(&want);
        }
    }
}

/* Bits that depend on the order of reduction: as another run had them. */
static void compare_jobs(const struct job *j, const struct job *other)
{
    const struct sweep *s = j->s;
    for (int k = 0; k < s->ncalls; k++) {
        for (int r = 0; r < s->n; r++) {
            if (s->call[k].coll == RONDO_COLL_REDUCE && r != s->call[k].root) continue;
            assert_equal(s, "the kernel in C has", r, output_of(j, k, r), output_of(other, k, r),
                         elements(s, &s->call[k], 1));
        }
    }
}

#endif
