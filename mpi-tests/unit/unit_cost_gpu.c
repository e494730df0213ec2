/* The cost model of GPU machines: times computed by hand, choices, and properties that hold for any
 * numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "coll/oneshot.h"
#include "tuner/cost_impl.h"
#include "tuner/model.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RUNS = 2000 };

/* ---- layouts ---- */

struct spec {
    int sm, host, nodes, ppn;
    int nchannels, ring[2], tree[2]; /* as searched; MB/s inside and through a net */
    int nvlink, one_gpu, ll128;
};

static struct rondo_layout layout_of(const struct spec *s)
{
    struct rondo_layout l;
    memset(&l, 0, sizeof(l));
    l.nranks = s->nodes * s->ppn;
    l.nnodes = s->nodes;
    l.max_local = l.nlocal = s->ppn;
    l.nchannels = 2 * s->nchannels;
    l.protos = RONDO_ALL_PROTOS;
    l.model.gpu = (struct rondo_model_gpu){ .nchannels = l.nchannels, .sm = s->sm, .host = s->host };
    for (int tree = 0; tree < 2; tree++) {
        struct rondo_model_graph *g = tree ? &l.model.gpu.tree : &l.model.gpu.ring;
        g->nchannels = s->nchannels;
        g->bw_intra = tree ? s->tree[0] : s->ring[0];
        g->bw_inter = tree ? s->tree[1] : s->ring[1];
        g->nvlink = g->near = s->nvlink;
        g->ll128 = s->ll128;
        g->one_gpu = tree && s->one_gpu;
    }
    return l;
}

/* Graphs that NCCL finds on these machines. */
static const struct spec h100 = {
    90, RONDO_GPU_HOST_OTHER, 1, 8, 12, { 30000, 30000 }, { 30000, 30000 }, 1, 0, 1
};
static const struct spec h100_2 = {
    90, RONDO_GPU_HOST_OTHER, 2, 8, 8, { 48000, 48000 }, { 48000, 48000 }, 1, 1, 1
};
static const struct spec h100_16 = {
    90, RONDO_GPU_HOST_OTHER, 16, 8, 8, { 48000, 48000 }, { 48000, 48000 }, 1, 1, 1
};
static const struct spec a100 = { 80, RONDO_GPU_HOST_AMD, 1, 8, 12, { 20000, 20000 }, { 20000, 20000 }, 1, 0,
                                  1 };
static const struct spec a100_2 = { 80, RONDO_GPU_HOST_AMD, 2, 8, 8, { 24000, 24000 }, { 30000, 24000 }, 1, 0,
                                    1 };
static const struct spec a100_4 = { 80, RONDO_GPU_HOST_AMD, 4, 8, 8, { 24000, 24000 }, { 30000, 24000 }, 1, 0,
                                    1 };
static const struct spec workstation = {
    89, RONDO_GPU_HOST_AMD, 1, 2, 2, { 12000, 12000 }, { 20000, 20000 }, 0, 0, 0
};

/* ---- by hand ---- */

static void is_us(const struct spec *s, enum rondo_coll coll, enum rondo_algo algo, enum rondo_proto proto,
                  size_t bytes, double expected)
{
    struct rondo_layout l = layout_of(s);
    int nchannels = algo == RONDO_ALGO_P2P ? 1 : l.nchannels;
    double us = rondo_cost_us(&l, coll, algo, proto, nchannels, bytes, 0), off = us / expected - 1;
    if (off > 1e-9 || off < -1e-9) {
        fail_msg("%s %s %s of %zu bytes on %d nodes of sm %d: %.6f us, expected %.6f", rondo_coll_name(coll),
                 rondo_algo_name(algo), rondo_proto_name(proto), bytes, s->nodes, s->sm, us, expected);
    }
}
#define IS_US(s, COLL, ALGO, PROTO, bytes, us) \
    is_us(s, RONDO_COLL_##COLL, RONDO_ALGO_##ALGO, RONDO_PROTO_##PROTO, bytes, us)

/* 14 steps. Bandwidths: 12 x 30 = 360 GB/s; 8/14 of it for the buffer of a ring, half for a tree's. */
static void one_h100_node_by_hand(void **state)
{
    (void)state;
    IS_US(&h100, ALL_REDUCE, RING, LL, 8,
          6.6 + 14 * 0.6 + 8 / (141.0 * 8 / 14 * 1e3)); /* LL: 141, less than 360 / 2 */
    IS_US(&h100, ALL_REDUCE, RING, LL, 64 * KIB, 6.6 + 14 * 0.6 + 64 * KIB / (141.0 * 8 / 14 * 1e3));
    IS_US(&h100, ALL_REDUCE, RING, LL128, 64 * MIB, 14 + 14 * 1.9 + 64 * MIB / (360 * 0.92 * 8 / 14 * 1e3));
    IS_US(&h100, ALL_REDUCE, RING, SIMPLE, 64 * MIB, 8.4 + 14 * 3.4 + 64 * MIB / (360.0 * 8 / 14 * 1e3));
    IS_US(&h100, ALL_REDUCE, TREE, LL, 8, 6.8 + 2 * 7 * 0.6 + 8 / (360 * 0.92 / 3.8 * 0.5 * 1e3));
    IS_US(&h100, ALL_REDUCE, TREE, LL, 64 * KIB,
          6.8 + 2 * 7 * 0.6 + 64 * KIB / (360 * 0.92 / 3.8 * 0.6 * 0.5 * 1e3)); /* 2^10 x 64 B: 0.6 */
    IS_US(&h100, ALL_REDUCE, TREE, LL128, 64 * KIB,
          14 + 2 * 7 * 1.25 + 64 * KIB / (360 * 0.92 * 7 / 9 * 0.6 * 0.5 * 1e3));
    IS_US(&h100, ALL_REDUCE, TREE, SIMPLE, 64 * MIB,
          8.4 + 2 * 7 * 4.0 + 64 * MIB / (360 * 0.92 * 0.8 * 0.5 * 1e3));
    IS_US(&h100, ALL_GATHER, RING, SIMPLE, 64 * MIB, 8.4 + 7 * 3.4 + 64 * MIB / (360.0 * 8 / 7 * 1e3));
    IS_US(&h100, REDUCE_SCATTER, RING, LL, 8, 6.6 + 7 * 0.6 + 8 / (141.0 * 8 / 7 * 1e3));
}

/* 30 steps, two of them over nets; a step inside takes at least as long as posting a message: 1 us, 3 us with
 * Simple. All tree traffic of a node goes through one GPU: 0.85. */
static void two_h100_nodes_by_hand(void **state)
{
    (void)state;
    IS_US(&h100_2, ALL_REDUCE, RING, LL, 8, 6.6 + 28 * 1.0 + 2 * 2.7 + 8 / (39.0 * 16 / 30 * 1e3));
    IS_US(&h100_2, ALL_REDUCE, RING, LL128, 64 * MIB,
          14 + 28 * 1.9 + 2 * 4 + 64 * MIB / (8 * 36.7 * 16 / 30 * 1e3));
    IS_US(&h100_2, ALL_REDUCE, RING, SIMPLE, 64 * MIB,
          (8.4 + 28 * 3.4 + 2 * 14) * 1.4 + 64 * MIB / (8 * 48.0 * 16 / 30 * 1e3));
    IS_US(&h100_2, ALL_REDUCE, RING, SIMPLE, 8 * KIB,
          8.4 + 28 * 3.4 + 2 * 14 + 8 * KIB / (8 * 48.0 * 16 / 30 * 1e3)); /* 32 B a channel and rank */
    IS_US(&h100_2, ALL_REDUCE, TREE, LL, 8, 6.8 + 2 * (7 * 0.6 + 5) + 8 / (39.0 * 0.85 * 0.5 * 1e3));
    IS_US(&h100_2, ALL_REDUCE, TREE, SIMPLE, 64 * MIB,
          8.4 + 2 * (7 * 4.0 + 14) + 64 * MIB / (8 * 41.4 * 0.85 * 0.8 * 0.5 * 1e3));
    IS_US(&h100_2, ALL_GATHER, RING, LL128, MIB, 14 + 14 * 1.9 + 4 + MIB / (8 * 36.7 * 16 / 15 * 1e3));
}

static void a100_nodes_by_hand(void **state)
{
    (void)state;
    IS_US(&a100, ALL_REDUCE, RING, LL, 64 * KIB, 6.6 + 14 * 0.6 + 64 * KIB / (87.7 * 8 / 14 * 1e3));
    IS_US(&a100, ALL_REDUCE, RING, SIMPLE, 64 * MIB, 8.4 + 14 * 3.4 + 64 * MIB / (240.0 * 8 / 14 * 1e3));
    IS_US(&a100_2, ALL_REDUCE, RING, LL, 8,
          6.6 + 28 * 2.0 + 2 * 2.7 + 8 / (22.5 * 16 / 30 * 1e3)); /* AMD: posts take 2 us */
    IS_US(&a100_2, ALL_REDUCE, TREE, LL128, 64 * KIB,
          14 + 2 * (7 * 1.25 + 8.5) +
              64 * KIB / (8 * 20 * 0.6 * 0.5 * 1e3)); /* 8 x 23.6 x 120/128 is more than 8 x 20 */
    IS_US(&a100_4, ALL_REDUCE, RING, SIMPLE, 64 * MIB,
          (8.4 + 56 * 6.0 + 6 * 14) * 1.4 + 64 * MIB / (8 * 24.0 * 32 / 62 * 1e3));
    IS_US(&a100_4, ALL_REDUCE, TREE, SIMPLE, 64 * MIB,
          8.4 + 2 * (7 * 4.0 + 2 * 14) + 64 * MIB / (8 * 17.8 * 0.8 * 0.5 * 1e3));
    IS_US(&workstation, ALL_REDUCE, RING, SIMPLE, MIB, 8.4 + 2 * 5.7 + MIB / (24.0 * 1e3));
    IS_US(&workstation, ALL_REDUCE, TREE, LL, MIB, 6.8 + 2 * 1.0 + MIB / (40 * 0.92 / 3.8 * 0.5 * 0.5 * 1e3));
}

/* Nets of two nodes carry less than the model of the GPUs says: the tree of an all_reduce passes each byte
 * once each way. */
static void bandwidth_of_the_nets_bounds_two_nodes(void **state)
{
    struct spec slow = { 86, RONDO_GPU_HOST_OTHER, 2, 4, 5, { 1200, 240 }, { 1200, 240 }, 0, 0, 0 };
    (void)state;
    IS_US(&slow, ALL_REDUCE, TREE, SIMPLE, 512 * MIB,
          8.4 + 2 * (3 * 4.0 + 14) + 512 * MIB / (5 * 0.48 * 0.92 * 0.5 * 1e3));
    IS_US(&slow, ALL_GATHER, RING, LL, 512 * MIB,
          6.6 + 6 * 1.0 + 2.7 + 512 * MIB / (5 * 0.24 * 0.5 * 8 / 7 * 1e3));
    slow.tree[1] = 601;
    IS_US(&slow, ALL_REDUCE, TREE, SIMPLE, 512 * MIB,
          8.4 + 2 * (3 * 4.0 + 14) + 512 * MIB / (5 * 1.2 * 0.92 * 0.5 * 1e3));
}

/* NCCL has no model for these: all hops of a chain count, a tree with a root has half the traffic. */
static void rooted_and_p2p_by_hand(void **state)
{
    (void)state;
    IS_US(&h100, BROADCAST, RING, SIMPLE, 64 * MIB, 8.4 + 7 * 3.4 + 64 * MIB / 360e3);
    IS_US(&h100_2, REDUCE, RING, LL128, MIB, 14 + 14 * 1.9 + 4 + MIB / (8 * 36.7e3));
    IS_US(&h100_16, BROADCAST, TREE, LL, 8, 6.8 + 2 * (7 * 0.6 + 4 * 5) + 8 / (20.4 * 0.85 * 1e3));
    IS_US(&h100, SEND, P2P, SIMPLE, 36 * MIB, 8.4 + 3.4 + 36 * MIB / 360e3);
    IS_US(&h100_2, SEND, P2P, SIMPLE, 48 * MIB,
          8.4 + 14 + 48 * MIB / 48e3); /* one of eight ranks that share the nets */
    IS_US(&h100, ALL_TO_ALL, P2P, SIMPLE, 64 * MIB, 8.4 + 3.4 + 56 * MIB / 360e3);
    IS_US(&h100_2, ALL_TO_ALL, P2P, SIMPLE, 64 * MIB, 8.4 + 3.4 + 14 + 7 * 3 + 32 * MIB / 48e3);
}

/* Up to RONDO_P2P_LL_THRESHOLD, inside a node. */
static void small_messages_go_by_ll(void **state)
{
    struct rondo_layout l = layout_of(&h100), nodes = layout_of(&h100_2);
    struct rondo_choice choice;
    (void)state;
    l.model.gpu.p2p_ll = nodes.model.gpu.p2p_ll = 16 * KIB;
    for (size_t bytes = 16 * KIB; bytes <= 16 * KIB + 1; bytes++) {
        int small = bytes == 16 * KIB;
        assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_SEND, bytes, 0, &choice), RONDO_SUCCESS);
        assert_int_equal(choice.proto, small ? RONDO_PROTO_LL : RONDO_PROTO_SIMPLE);
        assert_int_equal(
            rondo_cost_us(&l, RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_P2P, RONDO_PROTO_LL, 1, 8 * bytes, 0) >= 0,
            small); /* a block for each */
        assert_true(rondo_cost_us(&nodes, RONDO_COLL_SEND, RONDO_ALGO_P2P, RONDO_PROTO_LL, 1, bytes, 0) < 0);
    }
    assert_true(rondo_cost_us(&l, RONDO_COLL_SEND, RONDO_ALGO_P2P, RONDO_PROTO_LL, 1, 0, 0) == 6.6 + 0.6);
}

static void nets_of_their_own_latency_count_twice_for_simple(void **state)
{
    struct rondo_layout near = layout_of(&a100_4), far = near;
    (void)state;
    far.model.gpu.ring.latency_inter = far.model.gpu.tree.latency_inter = 2500;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        double more =
            rondo_cost_us(&far, RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING, (enum rondo_proto)p, 16, 8, 0) -
            rondo_cost_us(&near, RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING, (enum rondo_proto)p, 16, 8, 0);
        double each = p == RONDO_PROTO_SIMPLE ? 5 : 2.5;
        assert_true(more > 3 * each - 1e-9 && more < 3 * each + 1e-9);
        more = rondo_cost_us(&far, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, (enum rondo_proto)p, 16, 8, 0) -
               rondo_cost_us(&near, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, (enum rondo_proto)p, 16, 8, 0);
        assert_true(more > 4 * each - 1e-9 && more < 4 * each + 1e-9);
    }
}

/* ---- choices ---- */

static void chosen_is(const struct spec *s, size_t bytes, enum rondo_algo algo, enum rondo_proto proto)
{
    struct rondo_layout l = layout_of(s);
    struct rondo_choice choice;
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, bytes, 4096, &choice), RONDO_SUCCESS);
    if (choice.algo != algo || choice.proto != proto) {
        fail_msg("%zu bytes on %d nodes of sm %d: %s %s, expected %s %s", bytes, s->nodes, s->sm,
                 rondo_algo_name((enum rondo_algo)choice.algo),
                 rondo_proto_name((enum rondo_proto)choice.proto), rondo_algo_name(algo),
                 rondo_proto_name(proto));
    }
}

static void small_is_ll_middle_is_ll128_large_is_simple(void **state)
{
    (void)state;
    chosen_is(&h100, 8, RONDO_ALGO_RING, RONDO_PROTO_LL);
    chosen_is(&h100, 64 * KIB, RONDO_ALGO_RING, RONDO_PROTO_LL);
    chosen_is(&h100, 8 * MIB, RONDO_ALGO_RING, RONDO_PROTO_LL128);
    chosen_is(&h100, 64 * MIB, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE);
    chosen_is(&a100, 8, RONDO_ALGO_RING, RONDO_PROTO_LL);
    chosen_is(&a100, 4 * MIB, RONDO_ALGO_RING, RONDO_PROTO_LL128);
    chosen_is(&a100, 64 * MIB, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE);
    chosen_is(&workstation, 64 * KIB, RONDO_ALGO_RING, RONDO_PROTO_LL);
    chosen_is(&workstation, 64 * MIB, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE);
}

static void small_on_many_nodes_is_a_tree_and_large_a_ring(void **state)
{
    (void)state;
    chosen_is(&h100_2, 8, RONDO_ALGO_TREE, RONDO_PROTO_LL);
    chosen_is(&h100_16, 8, RONDO_ALGO_TREE, RONDO_PROTO_LL);
    chosen_is(&h100_16, MIB, RONDO_ALGO_TREE, RONDO_PROTO_LL128);
    chosen_is(&h100_16, 128 * MIB, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE);
    chosen_is(&h100_16, (size_t)1 << 32, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE);
    chosen_is(&a100_4, 8, RONDO_ALGO_TREE, RONDO_PROTO_LL);
    chosen_is(&a100_4, MIB, RONDO_ALGO_TREE, RONDO_PROTO_LL128);
    chosen_is(&a100_4, 512 * MIB, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE);
}

/* ---- channels and threads ---- */

static void blocks_are(const struct spec *s, enum rondo_algo algo, enum rondo_proto proto, size_t bytes,
                       int nchannels, int nthreads)
{
    struct rondo_layout l = layout_of(s);
    int c, t;
    rondo_gpu_blocks(&l, algo, proto, bytes, &c, &t);
    assert_int_equal(c, nchannels);
    assert_int_equal(t, nthreads);
}

/* Each thread of a block gets 8 bytes of LL and LL128 (in a ring of LL for each of 8 ranks), 64 of Simple. */
static void few_bytes_get_few_channels_then_few_threads(void **state)
{
    (void)state;
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL, 2 * 512 * 64 - 1, 1, 512);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL, 2 * 512 * 64, 2, 512);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL, 512 * 64 - 1, 1, 256);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL, 8, 1, 96);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL128, 3 * 640 * 8, 3, 640);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL128, 8, 1, 320);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 64 * MIB, 24, 544);
    blocks_are(&h100, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 8, 1, 96);
    blocks_are(&h100, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE, 5 * 512 * 64, 5, 640);
    blocks_are(&h100, RONDO_ALGO_TREE, RONDO_PROTO_LL, 512 * 8, 1, 640);
    struct spec slow = workstation;
    slow.nchannels = 1;
    blocks_are(&slow, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 64 * MIB, 2, 256 + 32); /* 12 GB/s need fewer */
}

static void table_has_the_channels_that_the_bytes_fill(void **state)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    struct rondo_layout l = layout_of(&h100);
    (void)state;
    for (size_t bytes = 8; bytes <= (size_t)1 << 32; bytes = bytes * 3 / 2 + 8) {
        rondo_cost_table(&l, NULL, RONDO_COLL_ALL_REDUCE, bytes, 4096, table);
        for (int a = RONDO_ALGO_RING; a <= RONDO_ALGO_TREE; a++) {
            for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
                int fill, threads;
                double least = -1;
                rondo_gpu_blocks(&l, (enum rondo_algo)a, (enum rondo_proto)p, bytes, &fill, &threads);
                assert_int_equal(table[a][p].nchannels, fill);
                for (int c = 1; c <= l.nchannels; c++) {
                    double us = rondo_gpu_cost_us(&l, RONDO_COLL_ALL_REDUCE, (enum rondo_algo)a,
                                                  (enum rondo_proto)p, c, bytes);
                    least = least < 0 || us < least ? us : least;
                }
                assert_true(table[a][p].us == least);
            }
        }
        assert_true(table[RONDO_ALGO_ONESHOT][RONDO_PROTO_SIMPLE].us < 0);
    }
}

/* Fewer channels carry less, more than the bytes fill cost nothing, v-forms have one. */
static void limits_of_channels_hold(void **state)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    struct rondo_layout l = layout_of(&h100);
    (void)state;
    l.nchannels = 6;
    rondo_cost_table(&l, NULL, RONDO_COLL_ALL_REDUCE, 1 << 30, 0, table);
    assert_int_equal(table[RONDO_ALGO_RING][RONDO_PROTO_SIMPLE].nchannels, 6);
    assert_true(table[RONDO_ALGO_RING][RONDO_PROTO_SIMPLE].us > 3.9 * (1 << 30) / (360.0 * 8 / 14 * 1e3));
    assert_string_equal(
        rondo_cost_limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 6, 1 << 30),
        "number of channels");
    l.least_channels = 4;
    rondo_cost_table(&l, NULL, RONDO_COLL_ALL_REDUCE, 8, 0, table);
    assert_int_equal(table[RONDO_ALGO_TREE][RONDO_PROTO_LL].nchannels, 4);
    assert_true(table[RONDO_ALGO_TREE][RONDO_PROTO_LL].us ==
                rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, RONDO_PROTO_LL, 1, 8, 0));
    rondo_cost_table(&l, NULL, RONDO_COLL_ALL_GATHERV, 1 << 30, 0, table);
    assert_int_equal(table[RONDO_ALGO_RING][RONDO_PROTO_SIMPLE].nchannels, 1);
    assert_true(rondo_cost_us(&l, RONDO_COLL_ALL_GATHERV, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 2, 8, 0) < 0);
}

/* One-shot for few bytes, two-shot for many, if all GPUs of a node can access one another and
 * RONDO_DIRECT_GPU promises that buffers need no staging. */
static void direct_access_needs_gpus_that_can_access_one_another(void **state)
{
    struct rondo_layout l = layout_of(&h100), far = layout_of(&h100_2), pci = layout_of(&workstation);
    struct rondo_choice choice;
    (void)state;
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, 8, 0, &choice), RONDO_SUCCESS);
    assert_true(choice.algo != RONDO_ALGO_ONESHOT && choice.algo != RONDO_ALGO_TWOSHOT);
    l.model.gpu.direct = far.model.gpu.direct = pci.model.gpu.direct = 64 << 10;
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, 8, 0, &choice), RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_ONESHOT);
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, 64 * MIB, 0, &choice), RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_TWOSHOT);
    assert_int_equal(choice.nchannels, l.nchannels);
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_GATHER, 64 * MIB, 0, &choice), RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_TWOSHOT);
    assert_string_equal(
        rondo_cost_limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, MIB),
        "more bytes than a staging place (RONDO_DIRECT_GPU)");
    assert_string_equal(rondo_cost_limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE,
                                         l.nchannels, 64 * MIB),
                        "NVLink bandwidth");
    assert_string_equal(
        rondo_cost_limit(&far, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1, MIB),
        "one node only, all on NVLink or one GPU");
    assert_int_equal(
        rondo_cost_us(&pci, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1, MIB, 0) >= 0,
        pci.nranks == 2);
    pci.nranks = pci.max_local = pci.nlocal = 8;
    double ring_us = rondo_cost_us(&pci, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL, 1, 8, 0);
    assert_true(
        rondo_cost_us(&pci, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1, MIB, 0) < 0);
    pci.model.gpu.ring.near = 1; /* as ranks that share a GPU are */
    assert_true(
        rondo_cost_us(&pci, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1, MIB, 0) > 0);
    assert_true(rondo_cost_us(&pci, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL, 1, 8, 0) ==
                ring_us);
}

/* One-shot: a hop of LL for each window; every byte goes twice to each peer. Eight ranks' slots: 16 KiB. */
static void one_shot_costs_a_hop_a_window(void **state)
{
    struct rondo_layout l = layout_of(&h100);
    double us, links = 360.0 * 1e3;
    (void)state;
    l.model.gpu.direct = 64 << 10;
    us = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, 8, 0);
    assert_true(us > 6.6 + 0.6 && us < 6.6 + 0.6 + 0.01);
    us = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 4, 64 << 10, 0);
    us -= 6.6 + 0.6 + 2 * 7 * (64 << 10) / links;
    assert_true(us > -1e-6 && us < 1e-6);
    us = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 2, 64 << 10, 0);
    us -= 6.6 + 2 * 0.6 + 2 * 7 * (64 << 10) / links;
    assert_true(us > -1e-6 && us < 1e-6);
    assert_int_equal(rondo_oneshot_slot_room(rondo_oneshot_slot_bytes(64 << 10, 8)) >> 10, 16);
}

/* By default buffers may have to be staged: then every rank reads all of the others' bytes in an
 * all_reduce. */
static void two_shot_reckons_with_staging_by_default(void **state)
{
    struct rondo_layout l = layout_of(&h100);
    struct rondo_choice choice;
    double us, links = 360.0 * 1e3;
    (void)state;
    l.model.gpu.direct = 64 << 10;
    l.model.gpu.staged = 1;
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, 8, 0, &choice), RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_ONESHOT);
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, 64 * MIB, 0, &choice), RONDO_SUCCESS);
    assert_true(choice.algo != RONDO_ALGO_ONESHOT && choice.algo != RONDO_ALGO_TWOSHOT);
    us = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, l.nchannels,
                       64 * MIB, 0);
    assert_true(us > 7.0 * (double)(64 * MIB) / links + 2.0 * 64 * 16 / l.nchannels);
    /* a gather moves no more than with direct access, and the meetings of its windows cost */
    us = rondo_cost_us(&l, RONDO_COLL_ALL_GATHER, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, l.nchannels,
                       64 * MIB, 0);
    l.model.gpu.staged = 0;
    assert_true(us > rondo_cost_us(&l, RONDO_COLL_ALL_GATHER, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE,
                                   l.nchannels, 64 * MIB, 0));
    assert_true(us < 7.0 / 8 * (double)(64 * MIB) / links + 6.6 + 2.0 * 128 / l.nchannels + 4);
}

/* ---- limits ---- */

static void limit_is(const struct spec *s, enum rondo_algo algo, enum rondo_proto proto, size_t bytes,
                     const char *expected)
{
    struct rondo_layout l = layout_of(s);
    assert_string_equal(rondo_cost_limit(&l, RONDO_COLL_ALL_REDUCE, algo, proto, l.nchannels, bytes),
                        expected);
}

static void limit_names_the_link_or_the_latency(void **state)
{
    struct rondo_layout none = layout_of(&workstation);
    (void)state;
    limit_is(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL, 8, "NVLink latency");
    limit_is(&h100, RONDO_ALGO_RING, RONDO_PROTO_LL, 64 * MIB, "LL bandwidth");
    limit_is(&h100, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 64 * MIB, "NVLink bandwidth");
    limit_is(&h100_2, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 64 * MIB, "net bandwidth");
    limit_is(&h100_2, RONDO_ALGO_RING, RONDO_PROTO_LL128, 64 * MIB, "LL128 bandwidth");
    limit_is(&h100_2, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE, 64 * MIB, "tree bandwidth");
    limit_is(&h100_16, RONDO_ALGO_TREE, RONDO_PROTO_LL, 8, "net latency");
    limit_is(&a100_2, RONDO_ALGO_RING, RONDO_PROTO_LL, 8, "posting to nets");
    limit_is(&workstation, RONDO_ALGO_RING, RONDO_PROTO_LL, 8, "base latency");
    limit_is(&workstation, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 8, "PCI latency");
    limit_is(&workstation, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 64 * MIB, "PCI bandwidth");
    assert_non_null(
        strstr(rondo_cost_limit(&none, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL128, 1, 8),
               "LL128 needs NVLink"));
    assert_string_equal(
        rondo_cost_limit(&none, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, 8),
        "GPUs cannot access one another's memory, or RONDO_DIRECT_GPU=0");
    none.model.gpu.ring.bw_intra = 0;
    assert_string_equal(rondo_cost_limit(&none, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL, 1, 8),
                        "its graph has no bandwidth");
    assert_true(rondo_cost_us(&none, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL, 1, 8, 0) < 0);
}

/* ---- from merged graphs ---- */

static struct rondo_stitch_summary summary_of(int min_sm, int max_sm, int type_intra, int type_inter)
{
    struct rondo_stitch_summary s;
    memset(&s, 0, sizeof(s));
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        s.graph[id] = (struct rondo_graph){ .id = id,
                                            .pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING
                                                                              : RONDO_PATTERN_BALANCED_TREE,
                                            .nchannels = 4,
                                            .bw_intra = 20000 + id,
                                            .bw_inter = 12000 + id,
                                            .latency_inter = 700 + id,
                                            .type_intra = type_intra,
                                            .type_inter = type_inter,
                                            .min_sm = min_sm,
                                            .max_sm = max_sm };
    }
    s.nchannels = 8;
    return s;
}

static int ll128(int min_sm, int max_sm, int type_intra, int type_inter)
{
    struct rondo_stitch_summary s = summary_of(min_sm, max_sm, type_intra, type_inter);
    struct rondo_model model = { .base_us = 3 };
    rondo_model_from_graphs(&model, &s);
    assert_int_equal(model.gpu.ring.ll128, model.gpu.tree.ll128);
    assert_true(model.base_us == 3);
    return model.gpu.ring.ll128;
}

/* NVLink, at most through one GPU, inside; up to PCI switches to the nets, PXN since sm 90; equal GPUs, or
 * all since sm 90; sm 70. */
static void ll128_is_where_128_bytes_arrive_as_one(void **state)
{
    (void)state;
    for (int sm = 60; sm <= 100; sm += 10) {
        for (int in = 0; in < RONDO_NUM_PATH_TYPES; in++) {
            for (int net = 0; net < RONDO_NUM_PATH_TYPES; net++) {
                int near = in == RONDO_PATH_LOC || in == RONDO_PATH_NVL || in == RONDO_PATH_NVB;
                int reach = net <= RONDO_PATH_PXB ||
                            (sm >= 90 && (net == RONDO_PATH_P2C || net == RONDO_PATH_PXN));
                assert_int_equal(ll128(sm, sm, in, net), sm >= 70 && near && reach);
            }
        }
    }
    assert_true(ll128(90, 100, RONDO_PATH_NVL, RONDO_PATH_PIX));
    assert_false(ll128(80, 90, RONDO_PATH_NVL, RONDO_PATH_PIX));
    assert_false(ll128(80, 86, RONDO_PATH_NVL, RONDO_PATH_PIX));
}

static void model_takes_what_the_graphs_say(void **state)
{
    struct rondo_stitch_summary s = summary_of(80, 80, RONDO_PATH_NVL, RONDO_PATH_PXB);
    const int intel = RONDO_GRAPH_CPU(RONDO_ARCH_X86, RONDO_VENDOR_INTEL),
              amd = RONDO_GRAPH_CPU(RONDO_ARCH_X86, RONDO_VENDOR_AMD);
    struct rondo_model m;
    (void)state;
    memset(&m, 0xff, sizeof(m));
    rondo_model_from_graphs(&m, &s);
    assert_true(m.gpu.nchannels == 8 && m.gpu.sm == 80 && m.gpu.host == RONDO_GPU_HOST_OTHER);
    assert_true(m.gpu.ring.nchannels == 4 && m.gpu.ring.bw_intra == 20000 && m.gpu.ring.bw_inter == 12000);
    assert_true(m.gpu.tree.bw_intra == 20001 && m.gpu.tree.latency_inter == 701 && m.gpu.tree.nvlink == 1 &&
                m.gpu.tree.one_gpu == 0);
    assert_true(m.gpu.ring.near == 1);
    s.graph[RONDO_GRAPH_TREE].pattern = RONDO_PATTERN_TREE;
    s.graph[RONDO_GRAPH_RING].type_intra = RONDO_PATH_NVB;
    s.graph[RONDO_GRAPH_RING].cpus = 1 << amd;
    s.nchannels = 16; /* few fast channels are doubled again */
    rondo_model_from_graphs(&m, &s);
    assert_true(m.gpu.nchannels == 16 && m.gpu.tree.one_gpu == 1 && m.gpu.ring.nvlink == 0 &&
                m.gpu.ring.near == 0 && m.gpu.host == RONDO_GPU_HOST_AMD);
    s.graph[RONDO_GRAPH_RING].type_intra = RONDO_PATH_LOC;
    s.graph[RONDO_GRAPH_RING].cpus = 1 << amd | 1 << intel;
    s.nchannels = 1; /* a limit of the user: two channels of eight carry a quarter */
    rondo_model_from_graphs(&m, &s);
    assert_true(m.gpu.nchannels == 8 && m.gpu.host == RONDO_GPU_HOST_MIXED && m.gpu.ring.nvlink == 0 &&
                m.gpu.ring.near == 1);
    s.graph[RONDO_GRAPH_RING].cpus = 1 << intel;
    rondo_model_from_graphs(&m, &s);
    assert_int_equal(m.gpu.host, RONDO_GPU_HOST_OTHER);
    s.graph[RONDO_GRAPH_RING].min_sm = 0;
    rondo_model_from_graphs(&m, &s);
    assert_int_equal(m.gpu.nchannels, 0);
}

/* ---- whatever the numbers are ---- */

static uint64_t seed = 0x5eed;

static int draw(int n) /* 0 .. n - 1 */
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (int)((seed >> 11) % (uint64_t)n);
}

static struct spec some_spec(void)
{
    static const int sms[] = { 60, 70, 75, 80, 86, 89, 90, 100, 120 };
    struct spec s = { .sm = sms[draw(9)],
                      .host = draw(RONDO_NUM_GPU_HOSTS),
                      .nodes = draw(2) ? 1 + draw(4) : 1 + draw(2000),
                      .ppn = 1 + draw(8),
                      .nchannels = 1 + draw(32),
                      .nvlink = draw(2),
                      .one_gpu = draw(2),
                      .ll128 = draw(2) };
    for (int i = 0; i < 2; i++) {
        s.ring[i] = 100 + draw(100000);
        s.tree[i] = 100 + draw(100000);
    }
    return s;
}

static double us_of(const struct rondo_layout *l, const struct rondo_schedule *s, int proto, int nchannels,
                    size_t bytes)
{
    return rondo_cost_us(l, (enum rondo_coll)s->coll, (enum rondo_algo)s->algo, (enum rondo_proto)proto,
                         nchannels, bytes, 0);
}

static int gpus_do(const struct rondo_schedule *s)
{
    struct rondo_layout l = layout_of(&h100);
    return rondo_algo_medium(s->algo) == RONDO_MEDIUM_CONNS &&
           strcmp(rondo_cost_limit(&l, (enum rondo_coll)s->coll, (enum rondo_algo)s->algo, RONDO_PROTO_SIMPLE,
                                   1, 8),
                  "host memory only") != 0;
}

static void more_bytes_never_take_less_time(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        struct spec spec = some_spec();
        struct rondo_layout l = layout_of(&spec);
        const struct rondo_schedule *s = &rondo_schedules[draw(rondo_num_schedules)];
        int proto = draw(RONDO_NUM_PROTOS),
            nchannels = rondo_algo_seating(s->algo) == RONDO_SEATING_PEER ? 1 : 1 + draw(l.nchannels);
        double last = 0;
        for (size_t bytes = 1; bytes <= (size_t)4 << 30; bytes += 1 + bytes / (size_t)(2 + draw(30))) {
            double us = us_of(&l, s, proto, nchannels, bytes);
            int no_ll = rondo_algo_seating(s->algo) == RONDO_SEATING_PEER &&
                        proto == RONDO_PROTO_LL; /* layout_of: p2p_ll is 0 */
            assert_int_equal(us < 0, !gpus_do(s) || (proto == RONDO_PROTO_LL128 && !spec.ll128) || no_ll);
            assert_true(us < 0 || us >= last);
            last = us;
        }
    }
}

/* The same holds for NVLink instead of PCI, trees that leave a node at two GPUs, nets without latency, and
 * more channels. */
static void more_bandwidth_is_never_slower(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        struct spec spec = some_spec(), more = spec;
        const struct rondo_schedule *s = &rondo_schedules[draw(rondo_num_schedules)];
        int proto = draw(RONDO_NUM_PROTOS);
        size_t bytes = (size_t)1 << draw(33);
        for (int i = 0; i < 2; i++) {
            more.ring[i] += draw(2) * draw(50000);
            more.tree[i] += draw(2) * draw(50000);
        }
        more.nvlink |= draw(2);
        more.one_gpu &= draw(2);
        struct rondo_layout l = layout_of(&spec), fast = layout_of(&more);
        int nchannels = rondo_algo_seating(s->algo) == RONDO_SEATING_PEER ? 1 : l.nchannels;
        l.model.gpu.ring.latency_inter = l.model.gpu.tree.latency_inter = draw(5000);
        double us = us_of(&l, s, proto, nchannels, bytes);
        assert_true(us < 0 || us_of(&fast, s, proto, nchannels, bytes) <= us * (1 + 1e-12));
        for (int c = 1; c < nchannels && us >= 0; c++) {
            assert_true(us_of(&l, s, proto, c, bytes) >= us_of(&l, s, proto, c + 1, bytes) * (1 - 1e-12));
        }
    }
}

static void one_rank_costs_the_call(void **state)
{
    struct spec alone = h100;
    alone.ppn = 1;
    struct rondo_layout l = layout_of(&alone);
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        assert_true(!gpus_do(s) || us_of(&l, s, RONDO_PROTO_LL128, 1, MIB) == 14.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_h100_node_by_hand),
        cmocka_unit_test(two_h100_nodes_by_hand),
        cmocka_unit_test(a100_nodes_by_hand),
        cmocka_unit_test(bandwidth_of_the_nets_bounds_two_nodes),
        cmocka_unit_test(rooted_and_p2p_by_hand),
        cmocka_unit_test(small_messages_go_by_ll),
        cmocka_unit_test(nets_of_their_own_latency_count_twice_for_simple),
        cmocka_unit_test(small_is_ll_middle_is_ll128_large_is_simple),
        cmocka_unit_test(small_on_many_nodes_is_a_tree_and_large_a_ring),
        cmocka_unit_test(few_bytes_get_few_channels_then_few_threads),
        cmocka_unit_test(table_has_the_channels_that_the_bytes_fill),
        cmocka_unit_test(limits_of_channels_hold),
        cmocka_unit_test(one_shot_costs_a_hop_a_window),
        cmocka_unit_test(two_shot_reckons_with_staging_by_default),
        cmocka_unit_test(direct_access_needs_gpus_that_can_access_one_another),
        cmocka_unit_test(limit_names_the_link_or_the_latency),
        cmocka_unit_test(ll128_is_where_128_bytes_arrive_as_one),
        cmocka_unit_test(model_takes_what_the_graphs_say),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(more_bandwidth_is_never_slower),
        cmocka_unit_test(one_rank_costs_the_call),
    };
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
