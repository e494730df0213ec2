/* Ranks of one run of the simulated machine, for the tests of kern/cuda/prim.h and block.h: a block each,
 * connections in plain memory, and elements whose reductions are exact in every type. */
#ifndef RONDO_UNIT_PRIM_WORLD_H
#define RONDO_UNIT_PRIM_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "coll/doubling.h"
#include "coll/step.h"
#include "kern/proto.h"
#include "kern/reduce.h"
#include "sim_kernels.h"

enum { WORLD_RANKS = 8, WORLD_LINKS = 64, WORLD_WIRES = 32, WORLD_GUARD = 64 };

/* An edge: both ends of a connection. */
struct world_link {
    uint8_t *memory;
    struct rondo_conn_tail tail;
    struct rondo_conn_head head;
    struct rondo_conn sender, receiver;
};

/* The connections of some ports, as kernels read them. */
struct world_wires {
    const struct rondo_ports *ports;
    uint32_t wired;
    struct rondo_conn conn[2 * RONDO_NUM_PORTS];
};

struct world_rank {
    struct rondo_ports ports;
    struct rondo_gpu_words words;
    struct rondo_launch launch;
};

struct world {
    int n, nlinks, nwires;
    uint64_t step;
    uint32_t slot_bytes;
    struct world_rank rank[WORLD_RANKS];
    struct world_link link[WORLD_LINKS];
    struct world_wires wires[WORLD_WIRES];
};

static inline uint64_t world_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline void *world_zeroed(size_t bytes)
{
    void *memory = aligned_alloc(128, rondo_round_up(bytes, 128));
    assert_non_null(memory);
    return memset(memory, 0, rondo_round_up(bytes, 128));
}

static inline struct world *world_new(int n, uint64_t step, uint32_t slot_bytes)
{
    struct world *w = world_zeroed(sizeof(*w));
    w->n = n;
    w->step = step;
    w->slot_bytes = slot_bytes;
    for (int i = 0; i < n; i++) {
        w->rank[i].launch.serial = 41 + (uint64_t)i;
        w->rank[i].launch.words = &w->rank[i].words;
        w->rank[i].launch.nblocks = 1;
    }
    return w;
}

static inline void world_free(struct world *w)
{
    for (int i = 0; i < w->nlinks; i++) {
        free(w->link[i].memory);
    }
    free(w);
}

/* Fill slots with garbage under LL's flags of the lap after the wrap: what would be left from 2^32 steps
 * before without cleaning. */
static inline void world_fill_stale(const struct world *w, uint8_t *slots)
{
    for (uint64_t slot = 0; slot < RONDO_SLOTS; slot++) {
        uint64_t *word = (uint64_t *)(void *)(slots + slot * w->slot_bytes);
        for (size_t i = 0; i < w->slot_bytes / 8; i++) {
            word[i] = rondo_ll_flag(slot) | 0xbadbad;
        }
    }
}

static inline struct world_link *world_connect(struct world *w, int from, int to)
{
    struct world_link *l = &w->link[w->nlinks++];
    struct rondo_conn conn = {
        .tail = &l->tail, .head = &l->head, .step = w->step, .seen = w->step, .via = "memory"
    };
    assert_in_range(w->nlinks, 1, WORLD_LINKS);
    l->memory = world_zeroed((size_t)RONDO_NUM_PROTOS * RONDO_SLOTS * w->slot_bytes);
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        conn.slots[p] = l->memory + (size_t)p * RONDO_SLOTS * w->slot_bytes;
        conn.slot_bytes[p] = w->slot_bytes;
    }
    if ((uint32_t)(w->step + 200) < 200) {
        world_fill_stale(w, conn.slots[RONDO_PROTO_LL]);
    }
    l->tail.tail = l->head.head = w->step;
    l->sender = l->receiver = conn;
    l->sender.peer = to;
    l->receiver.peer = from;
    return l;
}

/* Connect two ranks' ports. */
static inline void world_link_ports(struct world *w, int from, int from_port, int to, int to_port)
{
    struct world_link *l = world_connect(w, from, to);
    w->rank[from].ports.send[from_port] = &l->sender;
    w->rank[to].ports.recv[to_port] = &l->receiver;
}

/* Give a work the connections of these ports, to which no more will be added. */
static inline void world_wire(struct world *w, const struct rondo_ports *ports, struct rondo_work *work)
{
    struct world_wires *wires = w->wires;
    while (wires < w->wires + w->nwires && wires->ports != ports) wires++;
    if (wires == w->wires + w->nwires) {
        assert_in_range(++w->nwires, 1, WORLD_WIRES);
        wires->ports = ports;
        wires->wired = rondo_launch_conns(ports, wires->conn);
    }
    work->conns = wires->conn;
    work->wired = wires->wired;
}
/* What kernels have changed in the connections goes back to the links. */
static inline void world_unwire(struct world *w)
{
    for (const struct world_wires *wires = w->wires; wires < w->wires + w->nwires; wires++) {
        const struct rondo_conn *conn = wires->conn;
        for (int i = 0; i < 2 * RONDO_NUM_PORTS; i++) {
            if ((wires->wired >> i & 1) == 0) continue;
            *(i < RONDO_NUM_PORTS ? wires->ports->recv[i]
                                  : wires->ports->send[i - RONDO_NUM_PORTS]) = *conn++;
        }
    }
}

/* Both ends of every connection have the same step, and everything sent was received. */
static inline void world_assert_even(struct world *w)
{
    world_unwire(w);
    for (int i = 0; i < w->nlinks; i++) {
        assert_true(w->link[i].sender.step == w->link[i].receiver.step);
        assert_true(w->link[i].head.head == w->link[i].receiver.step);
    }
}

/* The machine's behaviour by number: calm, interleaved, delayed, delayed without whole lines. */
static inline struct rondo_sim_rules world_rules(uint64_t seed, enum rondo_proto proto)
{
    const int how = (int)(seed % 4);
    return (struct rondo_sim_rules){
        .seed = how == 0 ? 0 : seed,
        .delayed = how >= 2,
        .whole_lines = how != 3 || proto == RONDO_PROTO_LL128,
        .patience = 20000,
    };
}

/* Run all ranks' launches at once, each with the kernel of its first work. */
static inline struct rondo_sim_result world_run(struct world *w, const struct rondo_sim_rules *rules,
                                                uint32_t threads)
{
    struct sim_kernel_run run[WORLD_RANKS];
    struct rondo_sim_grid grid[WORLD_RANKS];
    struct rondo_sim_result result;
    for (int i = 0; i < w->n; i++) {
        run[i] = (struct sim_kernel_run){ .kernel = sim_kernel_of(&w->rank[i].launch.inline_works[0]),
                                          .launch = &w->rank[i].launch };
        grid[i] = sim_kernel_grid(&run[i], threads);
    }
    rondo_sim_run(rules, grid, w->n, &result);
    return result;
}

/* The same under the rules of a seed; the run must end. */
static inline void world_run_well(struct world *w, uint64_t seed, uint32_t threads)
{
    const struct rondo_sim_rules rules = world_rules(
        seed, (enum rondo_proto)w->rank[0].launch.inline_works[0].proto);
    struct rondo_sim_result result = world_run(w, &rules, threads);
    assert_string_equal(result.why, "");
    assert_int_equal(result.end, RONDO_SIM_ENDED);
    for (int i = 0; i < w->n; i++) {
        assert_int_equal(w->rank[i].words.fault, RONDO_GPU_FINE);
        assert_true(w->rank[i].words.block[0].ended == w->rank[i].launch.serial);
    }
}

/* A grid of one warp that aborts all others after some time, as a host does. */
struct world_killer {
    struct world *w;
    uint64_t breaths;
};
static inline void world_kill_all(void *arg, void *shared)
{
    const struct world_killer *k = arg;
    static const struct rondo_gpu_words never;
    uint32_t spins = 0;
    (void)shared;
    if (rondo_block_tid() != 0) return;
    for (uint64_t i = 0; i < k->breaths; i++) {
        (void)rondo_breath(&never, &spins);
    }
    for (int r = 0; r < k->w->n; r++) {
        rondo_store_relaxed32(&k->w->rank[r].words.abort, 1);
    }
}

/* ---- elements ---- */

/* A type whose arithmetic keeps a half is a float. */
#define WORLD_FLOAT_(ctx, name, NAME, value, storage, arith, ...) [RONDO_##NAME] = (arith)0.5 != 0,
static inline int world_is_float(rondo_dtype dtype)
{
    static const uint8_t floats[] = { RONDO_DEVICE_DTYPE_TABLE(WORLD_FLOAT_, ) };
    return floats[dtype];
}
#undef WORLD_FLOAT_

/* The largest element: sums of up to five of either sign are exact in the type, or wrap. */
static inline int world_most(rondo_dtype dtype)
{
    switch ((int)dtype) {
    case RONDO_FLOAT8E5M2: return 2;
    case RONDO_FLOAT8E4M3: return 5;
    case RONDO_BFLOAT16: return 85;
    case RONDO_FLOAT16: return 680;
    default: return world_is_float(dtype) ? 1 << 21 : INT32_MAX / 8;
    }
}

/* Element i of a rank's buffer: random, not 0; of even ranks it is positive, of odd ones negative, so that no
 * sum of a few of five ranks is beyond three times the largest. */
static inline int world_value(rondo_dtype dtype, uint64_t seed, int call, int rank, size_t i)
{
    uint64_t x = (seed + 3) * 0x9e3779b97f4a7c15ull + (uint64_t)call * 77 + (uint64_t)rank * 1000003 +
                 i * 7919;
    int v;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    v = 1 + (int)(x % (uint64_t)world_most(dtype));
    return rank % 2 == 0 ? v : -v;
}

/* The result of a collective in element i of a rank's output. */
static inline int world_result(rondo_dtype dtype, uint64_t seed, int call, enum rondo_coll coll, int n,
                               int root, size_t count, int rank, size_t i)
{
    int sum = 0;
    if (coll == RONDO_COLL_BROADCAST) return world_value(dtype, seed, call, root, i);
    if (coll == RONDO_COLL_ALL_GATHER) return world_value(dtype, seed, call, (int)(i / count), i % count);
    i += coll == RONDO_COLL_REDUCE_SCATTER ? (size_t)rank * count : 0;
    for (int r = 0; r < n; r++) {
        sum += world_value(dtype, seed, call, r, i);
    }
    return sum;
}

#define WORLD_PUT_(ctx, name, NAME, value, storage, arith, to_arith, from_arith, ...) \
    case RONDO_##NAME: {                                                              \
        const storage e = (storage)from_arith((arith)v);                              \
        memcpy((uint8_t *)to + i * sizeof e, &e, sizeof e);                           \
        break;                                                                        \
    }
/* Store the integer v as element i. */
static inline void world_put(rondo_dtype dtype, void *to, size_t i, int v)
{
    switch ((int)dtype) {
        RONDO_DEVICE_DTYPE_TABLE(WORLD_PUT_, )
    default: break;
    }
}
#undef WORLD_PUT_

/* Random bits; floats whose reductions of a few stay finite. */
static inline void world_fill_bits(rondo_dtype dtype, void *to, size_t n, uint64_t *state)
{
    const size_t size = rondo_dtype_size(dtype);
    uint8_t *out = to;
    for (size_t i = 0; i < n * size; i++) {
        out[i] = (uint8_t)(world_random(state) >> 17);
        if (world_is_float(dtype) && i % size == size - 1) {
            out[i] &= 0xbf; /* little endian: clear the top bit of the exponent */
        }
    }
}
/* A user's buffer `mis` bytes off a line, with guards. */
struct world_buffer {
    uint8_t *memory, *data;
    size_t bytes;
};
static inline struct world_buffer world_buffer_new(size_t bytes, size_t mis)
{
    struct world_buffer b = { .bytes = bytes };
    b.memory = world_zeroed(bytes + mis + 2 * WORLD_GUARD);
    memset(b.memory, 0x5a, bytes + mis + 2 * WORLD_GUARD);
    b.data = b.memory + WORLD_GUARD + mis;
    return b;
}
static inline void world_buffer_free(struct world_buffer *b)
{
    for (uint8_t *p = b->memory; p < b->data; p++) {
        assert_int_equal(*p, 0x5a);
    }
    for (size_t i = 0; i < WORLD_GUARD; i++) {
        assert_int_equal(b->data[b->bytes + i], 0x5a);
    }
    free(b->memory);
}

/* ---- a collective's buffers ---- */

struct world_spec {
    uint64_t seed;
    int call, n, root;
    enum rondo_coll coll;
    rondo_dtype dtype;
    size_t count, mis; /* of the whole buffer, or of a block; elements by which inputs are off a line */
    int in_place, avg;
};

/* The spec of call k of a test's job, whose other fields may differ. */
#define WORLD_SPEC(job, k, to)                                                                               \
    (struct world_spec)                                                                                      \
    {                                                                                                        \
        .seed = (job)->seed, .call = k, .n = (job)->n, .root = (to) % (job)->n, .coll = (job)->call[k].coll, \
        .dtype = (job)->call[k].dtype, .count = (job)->call[k].count, .mis = (job)->mis,                     \
        .in_place = (job)->call[k].in_place, .avg = (job)->call[k].avg                                       \
    }

/* Elements of an input or output. */
static inline size_t world_elements(const struct world_spec *c, int out)
{
    return c->count *
           (c->coll == (out ? RONDO_COLL_ALL_GATHER : RONDO_COLL_REDUCE_SCATTER) ? (size_t)c->n : 1);
}

static inline void world_buffers_new(const struct world_spec *c, int rank, struct world_buffer *in,
                                     struct world_buffer *out)
{
    const size_t size = rondo_dtype_size(c->dtype), n = world_elements(c, 0);
    *in = world_buffer_new(n * size, c->mis * size);
    *out = world_buffer_new(world_elements(c, 1) * size, 0);
    for (size_t i = 0; i < n; i++) {
        world_put(c->dtype, in->data, i, world_value(c->dtype, c->seed, c->call, rank, i));
    }
}

/* Check a rank's result. */
static inline void world_buffers_check(const struct world_spec *c, int rank, const struct world_buffer *in,
                                       const struct world_buffer *out)
{
    const struct world_buffer *got = c->in_place ? in : out;
    struct world_buffer want = world_buffer_new(got->bytes, 0);
    for (size_t i = 0; i < world_elements(c, 1); i++) {
        world_put(c->dtype, want.data, i,
                  world_result(c->dtype, c->seed, c->call, c->coll, c->n, c->root, c->count, rank, i));
    }
    if (c->avg) {
        rondo_divide(want.data, c->count, c->dtype, c->n);
    }
    if (c->coll != RONDO_COLL_REDUCE || rank == c->root) {
        assert_memory_equal(got->data, want.data, want.bytes);
    }
    world_buffer_free(&want);
}

#endif
