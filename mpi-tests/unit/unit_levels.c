/* Levels of a node: which ones are found and packed, the bytes that each algorithm moves over them, the
 * selection, and 64 ranks on eight NUMA nodes. unit_tree.c tests their trees. RONDO_TEST_SEED repeats a
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layout/double_tree.h"
#include "base/log.h"
#include "tools/explain/explain.h"
#include "fake_ranks.h"
#include "tuner/model.h"
#include "node_job.h"
#include "says.h"
#include "sim.h"
#include "topo/detect/detect.h"
#include "topo/levels.h"

enum { CORES = 64 };

/* Two packages of four NUMA nodes of eight cores that share a cache. The cache adds no level to the NUMA
 * node. */
static const char many_cores[] = "package:2 numa:4 l3:1 core:8 pu:1";

static uint64_t seed;

/* ---- finding levels ---- */

/* Lay out ranks of one node on a synthetic machine. core NULL: all may run anywhere, like threads. */
static void lay(struct job *job, const char *machine, int n, const int *core, const int *node)
{
    int any[MAX_RANKS] = { 0 };
    synthetic(machine);
    job_init(job, n, core != NULL ? core : any, node);
    job_lay(job, 2);
}

static void assert_levels(const char *machine, int n, const int *core, const char *wanted)
{
    char text[128];
    struct job job;
    lay(&job, machine, n, core, NULL);
    assert_string_equal(rondo_levels_text(&job.layout.model.levels, n, text, sizeof(text)), wanted);
    assert_int_equal(job.layout.grouped[0].link != NULL, job.layout.model.levels.n > 0);
    assert_int_equal(job.layout.grouped[1].link != NULL, job.layout.model.levels.n > 0);
    job_release(&job);
}

/* A level is left out if it has one group, groups of one rank, or the same groups as the level above. */
static void only_levels_that_divide_the_ranks_count(void **state)
{
    static const int round_robin[] = { 0, 4, 1, 5, 2, 6, 3, 7 }, apart[] = { 0, 8, 16, 24 },
                     one_cache[] = { 0, 1, 2, 3 };
    (void)state;
    assert_levels(many_cores, CORES, NULL, "2 packages x 4 NUMA nodes x 8 ranks");
    assert_levels("package:2 numa:2 l3:2 core:2 pu:1", 16, NULL,
                  "2 packages x 2 NUMA nodes x 2 shared caches x 2 ranks");
    assert_levels("package:1 numa:1 l3:4 core:4 pu:2(indexes=core)", 16, NULL, "4 shared caches x 4 ranks");
    assert_levels("package:2 numa:1 core:4 pu:1", 8, NULL, "2 packages x 4 ranks");
    assert_levels("package:2 numa:1 core:4 pu:1", 6, NULL, "2 packages, 6 ranks");
    assert_levels("package:2 numa:1 core:4 pu:1", 8, round_robin, "2 packages x 4 ranks");
    assert_levels("package:1 numa:4 core:8 pu:1", 4, apart, "4 ranks");
    assert_levels("package:1 numa:1 l3:4 core:4 pu:1", 4, one_cache, "4 ranks");
}

/* More ranks than cores: they wrap around to the first core. */
static void described_machine_puts_rank_k_on_core_k(void **state)
{
    struct job job;
    (void)state;
    lay(&job, "package:2 numa:1 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)", 16, NULL, NULL);
    assert_int_equal(job.layout.model.levels.n, 1);
    for (int i = 0; i < 16; i++) { /* even cores are in the first package */
        assert_int_equal(job.layout.channel[0].ring.rank_at[i] % 2, i / 8);
    }
    job_release(&job);
}

/* A rank that may run in two groups is in neither, so that level is dropped for all; others remain. */
static void a_rank_in_two_groups_drops_their_level(void **state)
{
    int core[16];
    struct job job;
    (void)state;
    for (int r = 0; r < 16; r++) {
        core[r] = r;
    }
    synthetic("package:1 numa:2 l3:4 core:2 pu:1");
    job_init(&job, 16, core, NULL);
    job.cores[0].bits[0] |= 1 << 2; /* cores 0 and 2: two caches of one NUMA node */
    job_lay(&job, 1);
    assert_int_equal(job.layout.model.levels.n, 1);
    assert_int_equal(job.layout.model.levels.kind[0], RONDO_LEVEL_NUMA);
    job_release(&job);
}

/* In rank order (RONDO_DETERMINISM=strict) a ring has no groups, and its trees are the double trees. */
static void rank_order_has_double_trees(void **state)
{
    struct job job;
    (void)state;
    fake_params("DETERMINISM", "strict", NULL);
    lay(&job, many_cores, CORES, NULL, NULL);
    fake_params(NULL);
    assert_null(job.layout.grouped[0].link);
    assert_int_equal(job.layout.channel[0].tree.depth, rondo_double_tree_depth(CORES));
    job_release(&job);
}

/* Ranks 0 and 1 measure the latency of a cache line. If they are in two packages, the model already
 * counts their distance; if they are neighbours, it does not. */
static void model_already_counts_the_distance_the_probe_measures(void **state)
{
    static const int round_robin[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    struct job job;
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        lay(&job, "package:2 numa:1 core:4 pu:1", 8, apart ? round_robin : NULL, NULL);
        struct rondo_model *m = &job.layout.model;
        double hop = m->hop_us[RONDO_PROTO_SIMPLE];
        assert_true(m->probed_us == (apart ? m->level[0].us : 0));
        rondo_model_handover(m, 500);
        assert_true(apart ? m->hop_us[RONDO_PROTO_SIMPLE] == hop : m->hop_us[RONDO_PROTO_SIMPLE] > 3 * hop);
        job_release(&job);
    }
}

/* ---- levels as bytes from another rank ---- */

/* Six ranks: 0 1 | 2 3 | 4 5, the first two pairs in one package. */
static uint8_t cut6[] = { 0, 0, 2, 0, 1, 0 };
static int16_t order6[] = { 5, 4, 3, 2, 1, 0 };

static void graphs_fill(struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        graphs[id] = (struct rondo_graph){ .id = id, .nchannels = 1, .ndevs = 6, .order = order6 };
        graphs[id].pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING : RONDO_PATTERN_TREE;
        memset(graphs[id].net, 0xff, sizeof(graphs[id].net));
    }
    graphs[RONDO_GRAPH_RING].levels =
        (struct rondo_group_levels){ .n = 2, .kind = { RONDO_LEVEL_PACKAGE, RONDO_LEVEL_CACHE } };
    graphs[RONDO_GRAPH_RING].cut = cut6;
}

static void packed_levels_unpack_unchanged(void **state)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS], again[RONDO_NUM_GRAPHS] = { 0 };
    const struct rondo_group_levels *levels = &again[RONDO_GRAPH_RING].levels;
    uint8_t *bytes, *twice;
    size_t n, m;
    char text[96];
    (void)state;
    graphs_fill(graphs);
    assert_int_equal(rondo_graphs_pack(graphs, 6, 0, NULL, &bytes, &n), RONDO_SUCCESS);
    assert_int_equal(rondo_graphs_unpack(bytes, n, again), RONDO_SUCCESS);
    assert_int_equal(levels->n, 2);
    assert_true(levels->kind[0] == RONDO_LEVEL_PACKAGE && levels->kind[1] == RONDO_LEVEL_CACHE);
    assert_true(levels->groups[0] == 2 && levels->groups[1] == 3 && levels->even == 0);
    assert_memory_equal(again[RONDO_GRAPH_RING].cut, cut6, sizeof(cut6));
    assert_string_equal(rondo_levels_text(levels, 6, text, sizeof(text)),
                        "2 packages, 3 shared caches, 6 ranks");
    assert_string_equal(rondo_levels_edges_text(levels, 6, 0, text, sizeof(text)),
                        "1 between packages, 1 between shared caches, 3 between ranks");
    assert_string_equal(rondo_levels_edges_text(levels, 6, 1, text, sizeof(text)),
                        "2 between packages, 1 between shared caches, 3 between ranks");
    assert_int_equal(rondo_graphs_pack(again, 6, 0, NULL, &twice, &m), RONDO_SUCCESS);
    assert_int_equal(n, m);
    assert_memory_equal(bytes, twice, n);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&again[id]);
    }
    rondo_free(bytes);
    rondo_free(twice);
}

/* Change every byte of the levels to every value: accepted bytes pack to the same bytes again. */
static void damaged_levels_are_refused_or_mean_something_else(void **state)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    int accepted = 0, refused = 0;
    uint8_t *bytes;
    size_t n;
    (void)state;
    graphs_fill(graphs);
    assert_int_equal(rondo_graphs_pack(graphs, 6, 0, NULL, &bytes, &n), RONDO_SUCCESS);
    for (size_t at = n - 9; at < n; at++) { /* levels, two kinds, six cuts */
        uint8_t kept = bytes[at];
        for (int value = 0; value < 256; value++) {
            struct rondo_graph again[RONDO_NUM_GRAPHS] = { 0 };
            uint8_t *twice;
            size_t m;
            bytes[at] = (uint8_t)value;
            if (rondo_graphs_unpack(bytes, n, again) != RONDO_SUCCESS) {
                assert_says("damaged");
                refused++;
                continue;
            }
            accepted++;
            assert_int_equal(rondo_graphs_pack(again, 6, 0, NULL, &twice, &m), RONDO_SUCCESS);
            assert_true(m == n && memcmp(twice, bytes, n) == 0);
            rondo_free(twice);
            for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
                rondo_graph_release(&again[id]);
            }
        }
        bytes[at] = kept;
    }
    assert_true(accepted >= 9 && refused > 40 * accepted);
    rondo_free(bytes);
}

static void packing_refuses_invalid_levels(void **state)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    struct rondo_group_levels *levels = &graphs[RONDO_GRAPH_RING].levels;
    uint8_t *bytes, cut[6];
    size_t n;
    (void)state;
#define REFUSED(change, says)                                                                      \
    do {                                                                                           \
        graphs_fill(graphs);                                                                       \
        memcpy(cut, cut6, sizeof(cut));                                                            \
        graphs[RONDO_GRAPH_RING].cut = cut;                                                        \
        change;                                                                                    \
        assert_int_equal(rondo_graphs_pack(graphs, 6, 0, NULL, &bytes, &n), RONDO_INTERNAL_ERROR); \
        assert_says(says);                                                                         \
    } while (0)
    REFUSED(levels->n = 4, "their number or cuts are invalid");
    REFUSED(graphs[RONDO_GRAPH_RING].cut = NULL, "their number or cuts are invalid");
    REFUSED(cut[0] = 1, "before the first rank");
    REFUSED(cut[1] = 3, "a level that there is not");
    REFUSED(levels->kind[1] = RONDO_LEVEL_PACKAGE, "not in order");
    REFUSED(levels->kind[1] = RONDO_NUM_LEVELS, "of no kind");
    REFUSED(cut[2] = 0, "divides nothing");
    REFUSED(cut[1] = cut[3] = cut[5] = 2, "or all");
#undef REFUSED
}

/* ---- bytes over each level ---- */

enum { LEN = 16 * CORES, RANKS_A_NUMA = 8, RANKS_A_PACKAGE = 32 };

/* @return the elements that an all_reduce of LEN moves between groups of this many neighbouring ranks, in all
 * directions together. */
static uint64_t crossing(struct job *job, enum rondo_algo algo, int nchannels, int group)
{
    struct sim_case c = { .coll = RONDO_COLL_ALL_REDUCE,
                          .algo = algo,
                          .nranks = CORES,
                          .nchannels = nchannels,
                          .len = LEN,
                          .chunk = 64,
                          .slice = 32,
                          .elem_bytes = 8,
                          .mode = SIM_RANDOM,
                          .seed = seed,
                          .layout = &job->layout };
    struct sim_result result;
    uint64_t sum = 0;
    c.moved = sim_zeroed((size_t)CORES * CORES, sizeof(*c.moved));
    sim_run(&c, &result);
    assert_string_equal(result.error, "");
    for (int i = 0; i < CORES * CORES; i++) {
        sum += i / CORES / group != i % CORES / group ? c.moved[i] : 0;
    }
    free(c.moved);
    return sum;
}

/*
 * G groups of m ranks (G m = n). An all_reduce of B bytes moves at least 2 (G - 1) B over their boundaries:
 * for every element, all groups but one must send their part, and all but one must receive the result.
 * Trees of trees reach this minimum, and so does hierarchical two-shot. A ring leaves each group once: G
 * edges of 2 (n - 1) / n B. One-shot brings every buffer to every rank: n (n - m) B. Two-shot brings every
 * part of a share to its rank and the share to every rank: 2 (n - m) B.
 */
static void each_algorithm_moves_its_minimum_over_each_level(void **state)
{
    static const int sizes[] = { RANKS_A_PACKAGE, RANKS_A_NUMA };
    struct job job;
    (void)state;
    lay(&job, many_cores, CORES, NULL, NULL);
    for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
        int m = sizes[i];
        uint64_t groups = (uint64_t)(CORES / m), least = 2 * (groups - 1) * LEN,
                 others = (uint64_t)(CORES - m);
        assert_int_equal(crossing(&job, RONDO_ALGO_TREE, 1, m), least);
        assert_int_equal(crossing(&job, RONDO_ALGO_TREE, 2, m), least);
        assert_int_equal(crossing(&job, RONDO_ALGO_HIERARCHICAL, 1, m), least);
        assert_int_equal(crossing(&job, RONDO_ALGO_RING, 1, m), groups * 2 * LEN / CORES * (CORES - 1));
        assert_int_equal(crossing(&job, RONDO_ALGO_TWOSHOT, 1, m), 2 * others * LEN);
        assert_int_equal(crossing(&job, RONDO_ALGO_ONESHOT, 1, m), CORES * others * LEN);
    }
    job_release(&job);
}

/* Without levels, a flat tree crosses more often: the numbers above are due to the groups. */
static void a_flat_tree_crosses_levels_more_often(void **state)
{
    struct job job;
    (void)state;
    lay(&job, many_cores, CORES, NULL, NULL);
    for (int which = 0; which < 2; which++) {
        rondo_free(job.layout.grouped[which].link);
        job.layout.grouped[which].link = NULL;
    }
    assert_true(crossing(&job, RONDO_ALGO_TREE, 1, RANKS_A_PACKAGE) > 2 * LEN);
    assert_true(crossing(&job, RONDO_ALGO_TREE, 1, RANKS_A_NUMA) > 2 * 7 * LEN);
    job_release(&job);
}

/* Every collective that has a tree or a ring, from every eighth rank as root. */
static void schedules_over_levels_are_correct(void **state)
{
    struct job job;
    (void)state;
    lay(&job, "package:2 numa:2 l3:2 core:3 pu:1", 24, NULL, NULL);
    assert_int_equal(job.layout.model.levels.n, 3);
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        int rooted = rondo_coll_has_root((enum rondo_coll)s->coll);
        for (int root = 0; rondo_algo_seating(s->algo) == RONDO_SEATING_TREE && root < (rooted ? 24 : 1);
             root += 5) {
            struct sim_case c = { .coll = (enum rondo_coll)s->coll,
                                  .algo = (enum rondo_algo)s->algo,
                                  .nranks = 24,
                                  .root = root,
                                  .nchannels = 2,
                                  .len = 100,
                                  .chunk = 8,
                                  .slice = 4,
                                  .elem_bytes = 8,
                                  .mode = (enum sim_mode)(root % SIM_NUM_MODES),
                                  .seed = seed,
                                  .layout = &job.layout };
            struct sim_result result;
            sim_run(&c, &result);
            assert_string_equal(result.error, "");
        }
    }
    job_release(&job);
}

/* ---- several nodes ---- */

/* Nodes of 16, 16 and 9 ranks: inside each, trees cross its levels the minimum number of times, and no
 * rank has too many neighbours. */
static void trees_inside_nodes_follow_the_levels(void **state)
{
    enum { N = 41 };
    int core[N], node[N];
    struct job job;
    (void)state;
    for (int r = 0; r < N; r++) {
        node[r] = r / 16;
        core[r] = r % 16;
    }
    lay(&job, "package:2 numa:2 l3:2 core:2 pu:1", N, core, node);
    assert_int_equal(job.layout.nnodes, 3);
    assert_int_equal(job.layout.model.levels.n, 3);
    for (int c = 0; c < job.layout.nchannels; c++) {
        static const int sizes[] = { 16, 8, 4, 2 },
                         least[] = { 2, 2 + 3, 2 + 8, 2 + 18 }; /* the last node has 2, 3 and 5 groups */
        int crossed[RONDO_COUNTOF(sizes)] = { 0 }, depth = 0, parent[N];
        for (int r = 0; r < N; r++) {
            sim_layout_view(&job.layout, r);
            const struct rondo_tree *tree = &job.layout.channel[c].tree;
            parent[r] = tree->parent;
            depth = tree->depth;
            assert_in_range(tree->nchildren + (tree->parent >= 0), 1, RONDO_TREE_FAN);
            for (size_t i = 0; tree->parent >= 0 && i < RONDO_COUNTOF(sizes); i++) {
                crossed[i] += node[r] != node[tree->parent] ||
                              core[r] / sizes[i] != core[tree->parent] / sizes[i];
            }
        }
        assert_memory_equal(crossed, least, sizeof(crossed));
        for (int r = 0; r < N; r++) {
            int hops = 0;
            for (int up = r; parent[up] >= 0 && hops <= N; hops++) {
                up = parent[up];
            }
            assert_true(hops <= depth);
        }
    }
    job_release(&job);
}

/* In graphs from a file, trees may have another order than rings; levels do not apply to it. */
static void trees_with_their_own_order_have_no_levels(void **state)
{
    enum { NODES = 3, N = 6 * NODES };
    static int16_t other[] = { 0, 2, 4, 1, 3, 5 };
    struct rondo_stitch_rank rank[N];
    (void)state;
    for (int same = 0; same < 2; same++) {
        struct rondo_graph graphs[RONDO_NUM_GRAPHS];
        struct rondo_stitch *stitch;
        uint8_t *bytes;
        size_t n;
        graphs_fill(graphs);
        graphs[RONDO_GRAPH_TREE].order = other;
        graphs[RONDO_GRAPH_RING].order = same ? other : order6;
        assert_int_equal(rondo_graphs_pack(graphs, 6, 0, NULL, &bytes, &n), RONDO_SUCCESS);
        for (int r = 0; r < N; r++) {
            rank[r] = (struct rondo_stitch_rank){ .graphs = rondo_graphs_hash(bytes, n),
                                                  .node = (uint32_t)(r / 6),
                                                  .local = (uint16_t)(r % 6) };
        }
        const uint8_t *const all = bytes;
        struct rondo_stitch_input input = {
            .nranks = N, .rank = rank, .ndistinct = 1, .bytes = &all, .nbytes = &n, .host_trees = 1
        };
        assert_int_equal(rondo_stitch_create(&stitch, &input), RONDO_SUCCESS);
        assert_int_equal(rondo_stitch_summary(stitch)->levels.n, same ? 2 : 0);
        assert_int_equal(rondo_stitch_summary(stitch)->apart,
                         same ? 2 : 0); /* ranks 0 and 1: the first and the second cache */
        assert_int_equal(rondo_stitch_check(stitch), RONDO_SUCCESS);
        assert_null(rondo_stitch_cuts(stitch));
        rondo_stitch_destroy(stitch);
        rondo_free(bytes);
    }
}

/* ---- selection ---- */

struct made_up {
    struct rondo_machine machine;
    struct rondo_topo *topo;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
};

static void made_up_open(struct made_up *m)
{
    struct rondo_topo_rank *ranks;
    int n;
    memset(m, 0, sizeof(*m));
    synthetic(many_cores);
    assert_int_equal(rondo_machine_detect(&m->machine, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_ranks(&m->machine, "n64", &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_create(&m->topo, &m->machine, ranks, n, NULL), RONDO_SUCCESS);
    rondo_free(ranks);
    assert_int_equal(rondo_topo_search(m->topo, m->graphs), RONDO_SUCCESS);
}

static void made_up_close(struct made_up *m)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&m->graphs[id]);
    }
    rondo_topo_destroy(m->topo);
    rondo_machine_release(&m->machine);
}

/* Hierarchical needs one node with two groups of several ranks, and is never used in rank order. More
 * bytes, or more ranks per core, never make it cheaper. */
static void hierarchical_is_for_groups_of_several_ranks(const struct rondo_layout *layout)
{
    struct rondo_layout l = *layout, oversubscribed = l;
    struct rondo_allowed allowed;
    double last = 0;
    oversubscribed.model.ranks_per_core = 4;
    for (size_t bytes = 8; bytes <= 64 << 20; bytes *= 8) {
        double us = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_HIERARCHICAL, RONDO_PROTO_SIMPLE, 1,
                                  bytes, 4096);
        assert_true(us > last &&
                    us < rondo_cost_us(&oversubscribed, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_HIERARCHICAL,
                                       RONDO_PROTO_SIMPLE, 1, bytes, 4096));
        assert_true(us < rondo_cma_cost_us(&l, RONDO_ALGO_HIERARCHICAL, RONDO_COLL_ALL_REDUCE, bytes, 0));
        last = us;
    }
    assert_true(rondo_cma_cost_us(&l, RONDO_ALGO_HIERARCHICAL, RONDO_COLL_ALL_REDUCE, 64 << 20, 0) <
                rondo_cma_cost_us(&l, RONDO_ALGO_TWOSHOT, RONDO_COLL_ALL_REDUCE, 64 << 20, 0));
    l.model.levels.several = 1;
    assert_true(rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_HIERARCHICAL, RONDO_PROTO_SIMPLE, 1, 64,
                              4096) < 0);
    assert_int_equal(rondo_allowed_parse(&allowed, "", ""), RONDO_SUCCESS);
    rondo_allowed_rank_order(&allowed);
    assert_int_equal(allowed.protos[RONDO_COLL_ALL_REDUCE][RONDO_ALGO_HIERARCHICAL], 0);
}

/* With one core per rank, a small all_reduce uses the tree, because reading all ranks' places also reads far
 * ones; and the model rates no flat algorithm above the link between the packages. */
static void selection_counts_traffic_between_groups(void **state)
{
    enum { SMALL = 8, LARGE = 64 << 20, MAILBOX = 4096 };
    struct made_up m;
    struct rondo_layout with, flat;
    struct rondo_choice choice;
    char text[4096] = "";
    (void)state;
    fake_params(NULL);
    made_up_open(&m);
    assert_int_equal(rondo_explain_layout(&with, m.topo, m.graphs, 1), RONDO_SUCCESS);
    flat = with;
    flat.model.levels.n = 0;
    assert_int_equal(rondo_cost_choose(&with, NULL, RONDO_COLL_ALL_REDUCE, SMALL, MAILBOX, &choice),
                     RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_TREE);
    assert_int_equal(rondo_cost_choose(&flat, NULL, RONDO_COLL_ALL_REDUCE, SMALL, MAILBOX, &choice),
                     RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_ONESHOT);
    for (int i = 0; i < rondo_num_schedules; i++) { /* no schedule gets cheaper through groups */
        const struct rondo_schedule *s = &rondo_schedules[i];
        double us = rondo_cost_us(&with, (enum rondo_coll)s->coll, (enum rondo_algo)s->algo,
                                  RONDO_PROTO_SIMPLE, 1, MAILBOX, MAILBOX);
        assert_true(us >= rondo_cost_us(&flat, (enum rondo_coll)s->coll, (enum rondo_algo)s->algo,
                                        RONDO_PROTO_SIMPLE, 1, MAILBOX, MAILBOX));
    }
    double twoshot = rondo_cost_us(&with, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1,
                                   LARGE, MAILBOX);
    double between = 2.0 * RANKS_A_PACKAGE * RANKS_A_PACKAGE / CORES * LARGE /
                     (with.model.level[0].bw * 1e3); /* each way */
    assert_true(twoshot >= between && twoshot < 1.1 * between);
    assert_int_equal(rondo_cost_choose(&with, NULL, RONDO_COLL_ALL_REDUCE, LARGE, MAILBOX, &choice),
                     RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_HIERARCHICAL);
    assert_true(choice.us < twoshot / 2);
    assert_int_equal(rondo_cost_choose(&flat, NULL, RONDO_COLL_ALL_REDUCE, LARGE, MAILBOX, &choice),
                     RONDO_SUCCESS);
    assert_int_equal(choice.algo, RONDO_ALGO_TWOSHOT);
    hierarchical_is_for_groups_of_several_ranks(&with);
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(out);
    struct rondo_explain_request request = { .coll = "all_reduce", .sizes = "64M", .nodes = 1 };
    assert_int_equal(rondo_explain(out, m.topo, m.graphs, &request), RONDO_SUCCESS);
    fclose(out);
    assert_non_null(strstr(text, "2 packages x 4 NUMA nodes x 8 ranks"));
    assert_non_null(strstr(text, "\n> hierarchical simple"));
    made_up_close(&m);
}

/* ---- 64 ranks ---- */

static void few_calls(struct fake_rank *r)
{
    static const size_t counts[] = { 1, 700 };
    for (size_t i = 0; i < RONDO_COUNTOF(counts); i++) {
        FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT64, .count = counts[i]);
        FAKE_CALL(r, .coll = FAKE_BROADCAST, .type = RONDO_INT32, .count = counts[i], .root = 37);
        FAKE_CALL(r, .coll = FAKE_REDUCE, .type = RONDO_FLOAT64, .count = counts[i], .root = 11);
    }
}

static void calls_with(const char *algo, const char *log)
{
    synthetic(many_cores);
    fake_params("ALGO", algo, "BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K", "MAILBOX_SIZE",
                "1K", "DEBUG", "INFO", "DEBUG_SUBSYS",
                strstr(algo, "hierarchical") != NULL ? "GRAPH,TUNING" : "GRAPH", "DEBUG_FILE", log, NULL);
    fake_ranks(CORES, few_calls, NULL);
}

static void sixty_four_ranks_on_eight_numa_nodes_are_correct(void **state)
{
    static const char *const algos[] = { "all_reduce:tree;broadcast:tree;reduce:tree",
                                         "all_reduce:ring;broadcast:ring;reduce:ring",
                                         "all_reduce:oneshot,tree;broadcast:tree;reduce:tree",
                                         "all_reduce:twoshot;broadcast:twoshot;reduce:twoshot",
                                         "all_reduce:hierarchical;broadcast:twoshot;reduce:twoshot" };
    static char text[1 << 18];
    char log[64];
    (void)state;
    snprintf(log, sizeof(log), "/tmp/rondo-unit-levels-%d", (int)getpid());
    for (size_t i = 0; i < RONDO_COUNTOF(algos); i++) {
        calls_with(algos[i], log);
    }
    FILE *in = fopen(log, "r");
    assert_non_null(in);
    assert_true(fread(text, 1, sizeof(text) - 1, in) > 0);
    fclose(in);
    unlink(log);
    fake_params(NULL);
    assert_non_null(strstr(text, "levels: 2 packages x 4 NUMA nodes x 8 ranks; edges of a tree: 1 between "
                                 "packages, 6 between NUMA nodes, "
                                 "56 between ranks"));
    assert_non_null(strstr(text, "of a ring: 2 between packages, 6 between NUMA nodes, 56 between ranks"));
    assert_non_null(strstr(text, "all_reduce of 5600 bytes: hierarchical, simple, 1 channel"));
    assert_non_null(strstr(text, "hierarchical over 2 packages x 4 NUMA nodes x 8 ranks; 2 x 5600 bytes over "
                                 "each of: 1 between packages, 6 between NUMA "
                                 "nodes, 56 between ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(only_levels_that_divide_the_ranks_count, no_synthetic),
        cmocka_unit_test_teardown(described_machine_puts_rank_k_on_core_k, no_synthetic),
        cmocka_unit_test_teardown(a_rank_in_two_groups_drops_their_level, no_synthetic),
        cmocka_unit_test_teardown(rank_order_has_double_trees, no_synthetic),
        cmocka_unit_test_teardown(model_already_counts_the_distance_the_probe_measures, no_synthetic),
        cmocka_unit_test(packed_levels_unpack_unchanged),
        cmocka_unit_test(damaged_levels_are_refused_or_mean_something_else),
        cmocka_unit_test(packing_refuses_invalid_levels),
        cmocka_unit_test_teardown(each_algorithm_moves_its_minimum_over_each_level, no_synthetic),
        cmocka_unit_test_teardown(a_flat_tree_crosses_levels_more_often, no_synthetic),
        cmocka_unit_test_teardown(schedules_over_levels_are_correct, no_synthetic),
        cmocka_unit_test_teardown(trees_inside_nodes_follow_the_levels, no_synthetic),
        cmocka_unit_test(trees_with_their_own_order_have_no_levels),
        cmocka_unit_test_teardown(selection_counts_traffic_between_groups, no_synthetic),
        cmocka_unit_test_teardown(sixty_four_ranks_on_eight_numa_nodes_are_correct, no_synthetic),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = text != NULL ? strtoull(text, NULL, 0) : 20261122;
    print_message("seed %llu (RONDO_TEST_SEED)\n", (unsigned long long)seed);
    rondo_log_mask = RONDO_LOG_NONE; /* errors are provoked */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
