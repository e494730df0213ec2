/* Single properties of the search: cases where NCCL does badly, limits, checks, independence of numbering. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/search_step.h"
#include "topo/xml/xml.h"

struct found {
    struct rondo_machine machine;
    struct rondo_topo *topo;
    struct rondo_graph graph[RONDO_NUM_GRAPHS];
};

static void find(struct found *f, const char *name, const char *devices,
                 const struct rondo_topo_options *options)
{
    const char *srcdir = getenv("srcdir");
    struct rondo_topo_rank *ranks;
    char path[512];
    int n;
    memset(f, 0, sizeof(*f));
    snprintf(path, sizeof(path), "%s/mpi-tests/unit/machines/%s.xml", srcdir != NULL ? srcdir : ".", name);
    assert_int_equal(rondo_machine_read(&f->machine, path), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_ranks(&f->machine, devices, &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_create(&f->topo, &f->machine, ranks, n, options), RONDO_SUCCESS);
    rondo_free(ranks);
    assert_int_equal(rondo_topo_search(f->topo, f->graph), RONDO_SUCCESS);
}

static void found_release(struct found *f)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&f->graph[id]);
    }
    rondo_topo_destroy(f->topo);
    rondo_machine_release(&f->machine);
}

/*
 * NCCL's results in these cases: 1 x 0.1 GB/s (no speed in its table suits Blackwell GPUs on PCIe, or Gen3 x1
 * slots), a tree of 8 x 0.24 GB/s beside a ring of 24 (it ignores C2C), one server without a graph, 12 x 30
 * for a tree where 12 x 40 is possible (search budget), and speeds rounded down to the table's. MB/s: more
 * than `above`.
 */
static void search_beats_nccl_where_nccl_does_badly(void **state)
{
    static const struct {
        const char *machine, *devices;
        int nodes, id, above;
    } cases[] = {
        { "rtxpro6000_8", NULL, 1, RONDO_GRAPH_RING, 15000 },
        { "rtxpro6000_8", NULL, 1, RONDO_GRAPH_TREE, 15000 },
        { "rtxpro6000_8", "2-7", 1, RONDO_GRAPH_RING, 15000 },
        { "rtxpro6000_8", "2-5", 1, RONDO_GRAPH_RING, 15000 },
        { "rtxpro6000_8", "3,4", 1, RONDO_GRAPH_RING, 15000 },
        { "rtxpro6000_8", NULL, 2, RONDO_GRAPH_RING, 15000 },
        { "rtxpro6000_2", NULL, 1, RONDO_GRAPH_RING, 15000 },
        { "rtx5090_2_sys", NULL, 1, RONDO_GRAPH_RING, 15000 },
        { "rtx5090_4_x8", NULL, 1, RONDO_GRAPH_RING, 11900 },
        { "gen3x1_rig", NULL, 1, RONDO_GRAPH_RING, 500 },
        { "gb10_spark", NULL, 2, RONDO_GRAPH_RING, 23900 },
        { "gb10_spark", NULL, 2, RONDO_GRAPH_TREE, 2000 },
        { "l40s_8", NULL, 1, RONDO_GRAPH_RING, 20000 },
        { "dgx_h100", "0-3", 1, RONDO_GRAPH_TREE, 12 * 40000 },
        { "hgx_h200", "0-3", 1, RONDO_GRAPH_TREE, 12 * 40000 },
        { "dgx_a100", "0-2", 1, RONDO_GRAPH_TREE, 12 * 30000 - 1 },
        { "a6000_bridge4", "0,1", 1, RONDO_GRAPH_RING, 40000 },
        { "dgx_h100", NULL, 1, RONDO_GRAPH_RING, 360000 },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
        struct found f;
        options.nnodes = cases[i].nodes;
        find(&f, cases[i].machine, cases[i].devices, &options);
        if (f.graph[cases[i].id].found <= cases[i].above || f.graph[cases[i].id].fallback) {
            fail_msg("%s, %d nodes, %s: %d MB/s, more than %d expected", cases[i].machine, cases[i].nodes,
                     rondo_graph_name(cases[i].id), f.graph[cases[i].id].found, cases[i].above);
        }
        found_release(&f);
    }
}

/* Only the ranks and their places matter, not the rest of the machine: subsets of equal shape give equal
 * channels. */
static void equal_subsets_give_equal_channels(void **state)
{
    static const char *const subsets[] = { "0-3", "4-7", "0,2,4,6", "1,3,5,7" };
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(subsets); i++) {
        struct found f;
        find(&f, "dgx_h100", subsets[i], &options);
        assert_int_equal(f.graph[RONDO_GRAPH_RING].nchannels, 12);
        assert_int_equal(f.graph[RONDO_GRAPH_RING].bw_intra, 30900);
        assert_int_equal(f.graph[RONDO_GRAPH_TREE].bw_intra, 41200);
        found_release(&f);
    }
}

static void channel_limits_hold(void **state)
{
    (void)state;
    for (int most = 1; most <= 16; most *= 2) {
        struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
        struct found f;
        options.max_channels = most;
        find(&f, "dgx_a100", NULL, &options);
        assert_true(f.graph[RONDO_GRAPH_RING].nchannels <= most);
        assert_int_equal(f.graph[RONDO_GRAPH_TREE].nchannels, f.graph[RONDO_GRAPH_RING].nchannels);
        assert_true(f.graph[RONDO_GRAPH_RING].found <= f.graph[RONDO_GRAPH_RING].bound);
        found_release(&f);
        options = (struct rondo_topo_options)RONDO_TOPO_OPTIONS_DEFAULT;
        options.min_channels = most;
        find(&f, "ws2", NULL, &options);
        assert_true(f.graph[RONDO_GRAPH_RING].nchannels >= most);
        found_release(&f);
    }
}

/* Rails: without crossing, a channel leaves through the net it entered; with mirroring, odd channels mirror
 * even ones. */
static void cross_nic_controls_rails(void **state)
{
    (void)state;
    for (int cross = 0; cross <= 2; cross++) {
        struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
        struct found f;
        const struct rondo_graph *ring;
        options.nnodes = 2;
        options.cross_nic = cross;
        find(&f, "dgx_h100", NULL, &options);
        ring = &f.graph[RONDO_GRAPH_RING];
        assert_int_equal(ring->nchannels % 2, 0);
        for (int c = 0; c < ring->nchannels; c++) {
            if (ring->cross_nic == 0) {
                assert_int_equal(ring->net[2 * c], ring->net[2 * c + 1]);
            } else if (ring->cross_nic == 2 && c % 2 == 1) {
                assert_int_equal(ring->net[2 * c], ring->net[2 * c - 1]);
                assert_int_equal(ring->net[2 * c + 1], ring->net[2 * c - 2]);
            }
        }
        assert_true(cross == 2 || ring->cross_nic == cross || ring->cross_nic == 0);
        found_release(&f);
    }
}

/* The error says what is wrong with a graph. */
static void check_refuses_invalid_graphs(void **state)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct found f;
    struct rondo_graph *ring;
    (void)state;
    options.nnodes = 2;
    find(&f, "dgx_a100", NULL, &options);
    ring = &f.graph[RONDO_GRAPH_RING];
    assert_int_equal(rondo_graph_check(f.topo, ring), RONDO_SUCCESS);
#define REFUSED(change, undo, part)                                                \
    do {                                                                           \
        change;                                                                    \
        assert_int_equal(rondo_graph_check(f.topo, ring), RONDO_INVALID_ARGUMENT); \
        assert_non_null(strstr(rondo_error_text(), part));                         \
        undo;                                                                      \
        assert_int_equal(rondo_graph_check(f.topo, ring), RONDO_SUCCESS);          \
    } while (0)
    int16_t kept = ring->order[3], net = ring->net[0];
    int32_t bw = ring->bw_inter, type = ring->type_inter, n = ring->nchannels;
    REFUSED(ring->order[3] = ring->order[2], ring->order[3] = kept, "twice");
    REFUSED(ring->order[3] = 99, ring->order[3] = kept, "99");
    REFUSED(ring->net[0] = 77, ring->net[0] = net, "net 77");
    REFUSED(ring->bw_inter = 2 * bw, ring->bw_inter = bw, "carries");
    REFUSED(ring->type_inter = RONDO_PATH_PIX, ring->type_inter = type, "claims");
    REFUSED(ring->nchannels = 0, ring->nchannels = n, "channels");
    REFUSED(ring->nchannels = RONDO_TOPO_CHANNELS + 1, ring->nchannels = n, "channels");
#undef REFUSED
    found_release(&f);
}

/* Cuts derived by hand, MB/s. */
static void bounds_equal_the_narrowest_cut(void **state)
{
    static const struct {
        const char *machine, *devices;
        int nodes, ring;
        const char *limit;
    } cases[] = {
        { "dgx_h100", NULL, 1, 18 * 20600, "the links of GPU" },  /* each GPU: 18 NVLinks */
        { "dgx_h100", NULL, 2, 8 * 48000, "the nets" },           /* eight Gen5 x16 slots */
        { "dgx_a100", NULL, 2, 8 * 24000, "the nets" },           /* eight Gen4 x16 slots */
        { "aws_p4d", NULL, 2, 4 * 12000, "the nets" },            /* four NICs in Gen3 x16 slots */
        { "l40s_8", NULL, 1, 22000, "the cut around CPU" },       /* the link between the sockets */
        { "asym_3p1", NULL, 1, 10000, "" },                       /* the same, or all links of GPU 3 */
        { "rtxpro6000_8", NULL, 2, 32000, "the cut around CPU" }, /* the sockets' link, both ways */
        { "dgx1v", NULL, 1, 6 * 20000, "the links of GPU" },      /* six NVLinks */
        { "cpu_dual", NULL, 1, 22000, "the links of HOST" },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
        struct found f;
        char text[160];
        options.nnodes = cases[i].nodes;
        find(&f, cases[i].machine, cases[i].devices, &options);
        assert_int_equal(f.graph[RONDO_GRAPH_RING].bound, cases[i].ring);
        rondo_graph_limit(f.topo, &f.graph[RONDO_GRAPH_RING], text, sizeof(text));
        if (strncmp(text, cases[i].limit, strlen(cases[i].limit)) != 0) {
            fail_msg("%s: limited by %s, %s expected", cases[i].machine, text, cases[i].limit);
        }
        found_release(&f);
    }
}

/* Unconnected devices still get a graph, marked as fallback. */
static void search_lays_channels_without_any_path(void **state)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct found f;
    (void)state;
    options.p2p_disable = options.shm_disable = 1;
    find(&f, "ws2", NULL, &options);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        assert_true(f.graph[id].nchannels >= 1);
        assert_int_equal(f.graph[id].type_intra, RONDO_PATH_NET);
    }
    found_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_beats_nccl_where_nccl_does_badly),
        cmocka_unit_test(equal_subsets_give_equal_channels),
        cmocka_unit_test(channel_limits_hold),
        cmocka_unit_test(cross_nic_controls_rails),
        cmocka_unit_test(check_refuses_invalid_graphs),
        cmocka_unit_test(bounds_equal_the_narrowest_cut),
        cmocka_unit_test(search_lays_channels_without_any_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
