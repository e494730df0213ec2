/* The tuner's choices for machine files, the table that explains them, and how candidates are timed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "machine_scene.h"
#include "tuner/cost_impl.h"
#include "tools/explain/explain.h"
#include "tools/explain/trial.h"
#include "topo/machine.h"

/* ---- choices ---- */

enum { NSIZES = 11 };
static const size_t sizes[NSIZES] = { 8,        1 << 10,  32 << 10,  256 << 10,       1 << 20,        4 << 20,
                                      16 << 20, 64 << 20, 256 << 20, (size_t)1 << 30, (size_t)4 << 30 };

/*
 * Choices for all_reduce: R(ing) or T(ree) with l (LL), h (LL128) or s (Simple); "--": two choices are within
 * 2 %. These are NCCL's choices for the same files without NVLS and CollNet, except for l40s_8 on one node,
 * which NCCL takes for two nodes.
 */
static const struct {
    const char *machine;
    int nodes;
    const char *choice; /* by size: 8, 1K, 32K, 256K, 1M, 4M, 16M, 64M, 256M, 1G, 4G */
} chosen[] = {
    { "dgx_h100", 1, "Rl Rl Rl Rl Rl Rh Rh Rs Rs Rs Rs" },
    { "dgx_h100", 2, "Tl Tl Tl -- Th Th Rh -- Rs Rs Rs" },
    { "dgx_h100", 4, "Tl Tl Tl Th Th Th -- Rh Rs Rs Rs" },
    { "dgx_h100", 16, "Tl Tl Tl Th Th Th Th -- Rh Rs Rs" },
    { "dgx_a100", 1, "Rl Rl Rl Rl Rl Rh Rh Rs Rs Rs Rs" },
    { "dgx_a100", 2, "Tl Tl Tl Th Th Th Rh Rh Rs Rs Rs" },
    { "dgx_a100", 4, "Tl Tl Tl Th Th Th -- Rh Rs Rs Rs" },
    { "dgx_a100", 16, "Tl Tl Tl Th Th Th Th Th Rh -- Rs" },
    { "ws2", 1, "Rl Rl Rl -- Rs Rs Rs Rs Rs Rs Rs" },
    { "l40s_8", 1, "Rl Rl Rl Rl Rs Rs Rs Rs Rs Rs Rs" },
    { "l40s_8", 2, "Tl Tl Rl Rl Rl Rs Rs Rs Rs Rs Rs" },
    { "l40s_8", 16, "Tl Tl Tl Ts Ts Ts Ts Rs Rs Rs Rs" },
    { "l40s_8_nonet", 1, "Rl Rl Rl Rl Rs Rs Rs Rs Rs Rs Rs" },
};

static void size_is_chosen(const struct rondo_layout *layout, const char *machine, int i,
                           const char *expected)
{
    static const char letters[RONDO_NUM_PROTOS] = {
        [RONDO_PROTO_LL] = 'l', [RONDO_PROTO_LL128] = 'h', [RONDO_PROTO_SIMPLE] = 's'
    };
    struct rondo_choice choice;
    assert_int_equal(rondo_cost_choose(layout, NULL, RONDO_COLL_ALL_REDUCE, sizes[i], 4096, &choice),
                     RONDO_SUCCESS);
    char algo = choice.algo == RONDO_ALGO_RING ? 'R' : choice.algo == RONDO_ALGO_TREE ? 'T' : '?';
    if (expected[0] != '-' && (algo != expected[0] || letters[choice.proto] != expected[1])) {
        fail_msg("%s on %d nodes, %zu bytes: %c%c, expected %.2s", machine, layout->nnodes, sizes[i], algo,
                 letters[choice.proto], expected);
    }
}

static void machines_get_the_known_best_choices(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(chosen); m++) {
        struct scene g;
        struct rondo_layout layout;
        assert_int_equal(strlen(chosen[m].choice), 3 * NSIZES - 1);
        scene_search(&g, chosen[m].machine, NULL, chosen[m].nodes);
        assert_int_equal(rondo_explain_layout(&layout, g.topo, g.graphs, g.nodes), RONDO_SUCCESS);
        for (int i = 0; i < NSIZES; i++) {
            size_is_chosen(&layout, chosen[m].machine, i, chosen[m].choice + 3 * i);
        }
        scene_close(&g);
    }
}

/* For large sizes, the model predicts nearly the bandwidth of the graph, which other tests compare with
 * NCCL. */
static void large_all_reduce_gets_the_bandwidth_of_the_ring(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(chosen); m++) {
        struct scene g;
        struct rondo_layout l;
        scene_search(&g, chosen[m].machine, NULL, chosen[m].nodes);
        assert_int_equal(rondo_explain_layout(&l, g.topo, g.graphs, g.nodes), RONDO_SUCCESS);
        const struct rondo_graph *ring = &g.graphs[RONDO_GRAPH_RING];
        double us = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, l.nchannels,
                                  (size_t)64 << 30, 0);
        double bus = (double)((size_t)64 << 30) / us * 2 * (l.nranks - 1) / l.nranks; /* MB/s */
        int mbs = ring->nchannels * (l.nnodes > 2 ? ring->bw_inter : ring->bw_intra);
        assert_true(bus < mbs * 1.0001 && bus > mbs * 0.98);
        scene_close(&g);
    }
}

static void layout_covers_all_nodes(void **state)
{
    struct scene g;
    struct rondo_layout layout;
    (void)state;
    scene_search(&g, "dgx_h100", NULL, 4);
    assert_int_equal(rondo_explain_layout(&layout, g.topo, g.graphs, 4), RONDO_SUCCESS);
    assert_true(layout.nranks == 32 && layout.nnodes == 4 && layout.max_local == 8);
    assert_true(layout.nchannels == layout.model.gpu.nchannels && layout.nchannels >= 16);
    assert_true(layout.model.gpu.sm == 90 && layout.model.gpu.host == RONDO_GPU_HOST_OTHER);
    assert_true(layout.model.gpu.ring.nvlink && layout.model.gpu.ring.ll128 &&
                layout.model.gpu.ring.latency_inter == 0);
    assert_int_equal(rondo_explain_layout(&layout, g.topo, g.graphs, 0), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_explain_layout(&layout, g.topo, g.graphs, 1 << 30), RONDO_INVALID_ARGUMENT);
    scene_close(&g);
    scene_search(&g, "dgx_a100", NULL, 2);
    assert_int_equal(rondo_explain_layout(&layout, g.topo, g.graphs, 2), RONDO_SUCCESS);
    assert_int_equal(layout.model.gpu.host, RONDO_GPU_HOST_AMD);
    scene_close(&g);
}

/* On four nodes a rank has four neighbours in a tree, and a step has room for three. */
static void trees_with_four_neighbours_serve_no_root(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE };
    (void)state;
    for (int nodes = 1; nodes <= 16; nodes++) {
        struct scene g;
        struct rondo_layout l;
        scene_search(&g, "dgx_h100", NULL, nodes);
        assert_int_equal(rondo_explain_layout(&l, g.topo, g.graphs, nodes), RONDO_SUCCESS);
        for (int i = 0; i < 3; i++) {
            for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
                double us = rondo_cost_us(&l, colls[i], RONDO_ALGO_TREE, (enum rondo_proto)proto, 1, 8, 0);
                assert_true((us >= 0) == (i == 0 || nodes < 4));
            }
        }
        scene_close(&g);
    }
}

/* ---- text ---- */

static char text[64 << 10];
static int as_json, every;

static rondo_status explain(const struct scene *g, const char *coll, const char *size)
{
    memset(text, 0, sizeof(text));
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(out);
    struct rondo_explain_request request = {
        .coll = coll, .sizes = size, .nodes = g->nodes, .json = as_json, .every = every
    };
    rondo_status status = rondo_explain(out, g->topo, g->graphs, &request);
    fclose(out);
    return status;
}

static int times(const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}

static int lines_with(const char *part)
{
    int n = 0;
    const char *at = text;
    while (at != NULL && (at = strstr(at, part)) != NULL) {
        n++;
        at = strchr(at + 1, '\n');
    }
    return n;
}

/* The table has every algorithm and protocol, fastest first, and marks one. */
static void table_is_complete_sorted_and_marked(void **state)
{
    struct scene g;
    double last = 0;
    (void)state;
    scene_search(&g, "dgx_h100", NULL, 2);
    assert_int_equal(explain(&g, "AllReduce", "64M"), RONDO_SUCCESS);
    assert_non_null(strstr(text, "all_reduce of 64M bytes on 16 ranks, 2 nodes"));
    assert_non_null(strstr(text, "GPUs of sm 90; ring 8 x 48.0/48.0 GB/s NVL/PIX; tree 8 x "));
    assert_int_equal(lines_with("\n>"), 1);
    assert_int_equal(lines_with(" ring      "), 3);
    assert_int_equal(lines_with(" tree      "), 3);
    assert_true(lines_with("host memory only") >= 1);
    const char *line = strchr(strstr(text, "busbw  limit"), '\n') + 1;
    for (; *line != '\0'; line = strchr(line, '\n') + 1) {
        char algo[16], proto[16];
        double us = 0;
        int n = sscanf(line + 1, "%15s %15s %*d %*d %lf", algo, proto, &us);
        assert_true(n == 3 ? us >= last : strcmp(algo, "ring") != 0 && strcmp(algo, "tree") != 0);
        assert_true(line[0] == (last == 0 ? '>' : ' '));
        last = n == 3 ? us : last;
    }
    scene_close(&g);
}

static void range_has_a_line_for_each_size(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "dgx_a100", NULL, 4);
    assert_int_equal(explain(&g, "all_reduce", "8:1G"), RONDO_SUCCESS);
    assert_int_equal(lines_with(" B "), 7);
    assert_int_equal(lines_with(" KiB "), 10);
    assert_int_equal(lines_with(" MiB "), 10);
    assert_int_equal(lines_with(" GiB "), 1);
    assert_int_equal(lines_with(" %\n"), 28); /* how far the next best is */
    assert_int_equal(explain(&g, "all_to_all", "1M:1500k"), RONDO_SUCCESS);
    assert_int_equal(lines_with(" p2p "), 1);
    scene_close(&g);
}

/* Large calls on one node of NVLink, and those of few bytes, which no buffer's kind changes. */
static void registered_buffers_have_a_line_of_their_own(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "dgx_h100", NULL, 1);
    assert_int_equal(explain(&g, "all_reduce", "64M"), RONDO_SUCCESS);
    assert_int_equal(lines_with("with buffers of rondo_mem_alloc_device on all ranks: twoshot simple, "), 1);
    assert_int_equal(explain(&g, "all_reduce", "8"), RONDO_SUCCESS);
    assert_int_equal(lines_with("rondo_mem_alloc_device"), 0);
    assert_int_equal(explain(&g, "broadcast", "64M"), RONDO_SUCCESS);
    assert_int_equal(lines_with("rondo_mem_alloc_device"), 0);
    scene_close(&g);
}

/* GPUs behind PCI have no LL128, and the table says why. */
static void choices_that_cannot_run_say_why(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "ws2", NULL, 1);
    assert_int_equal(explain(&g, "all_reduce", "1M"), RONDO_SUCCESS);
    assert_int_equal(lines_with("LL128 needs NVLink"), 3);
    scene_close(&g);
    scene_search(&g, "cpu_dual", "n4", 1);
    assert_int_equal(explain(&g, "all_reduce", "1M"), RONDO_SUCCESS);
    assert_int_equal(lines_with("more bytes than RONDO_MAILBOX_SIZE"), 1);
    assert_int_equal(lines_with("host memory, "), 1);
    scene_close(&g);
    scene_search(&g, "cpu_dual", "n4", 3);
    assert_int_equal(explain(&g, "barrier", "1"), RONDO_SUCCESS);
    assert_int_equal(lines_with("ranks of one node only"), 2);
    scene_close(&g);
}

/* Nodes without a known net must not look as if they shared a PCI tree. */
static void nodes_without_a_net_use_sockets(void **state)
{
    struct scene g;
    struct rondo_layout layout;
    (void)state;
    scene_search(&g, "l40s_8_nonet", NULL, 2);
    assert_int_equal(explain(&g, "all_reduce", "64M"), RONDO_SUCCESS);
    assert_non_null(strstr(text, "GB/s SYS; no network port found: sockets are assumed"));
    assert_int_equal(lines_with("net bandwidth"), 6);
    assert_int_equal(rondo_explain_layout(&layout, g.topo, g.graphs, 2), RONDO_SUCCESS);
    assert_in_range(layout.model.gpu.ring.bw_inter * layout.model.gpu.ring.nchannels, 1, 2000);
    scene_close(&g);
    scene_search(&g, "l40s_8_nonet", NULL, 1);
    assert_int_equal(explain(&g, "all_reduce", "64M"), RONDO_SUCCESS);
    assert_null(strstr(text, "no network port"));
    scene_close(&g);
}

/* Only ports of RDMA NICs have port numbers. */
static void host_memory_shows_the_link_between_nodes(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "cpu_dual", "n4", 3);
    assert_int_equal(explain(&g, "all_reduce", "8"), RONDO_SUCCESS);
    assert_non_null(strstr(text, "ranks per core; between nodes 2 us, 12.5 GB/s each way"));
    for (int i = 0; i < g.machine.nitems; i++) {
        if (g.machine.item[i].kind == RONDO_ITEM_NET) {
            g.machine.item[i].net.port = 0;
        }
    }
    assert_int_equal(explain(&g, "all_reduce", "8"), RONDO_SUCCESS);
    assert_non_null(strstr(text, "ranks per core; between nodes 12 us, 2 GB/s each way"));
    scene_close(&g);
}

static void algo_set(const char *algo)
{
    setenv("RONDO_ALGO", algo, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
}

static void parameters_apply_as_in_a_job(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "dgx_a100", NULL, 1);
    setenv("RONDO_MAX_NCHANNELS", "6", 1);
    algo_set("tree");
    assert_int_equal(explain(&g, "all_reduce", "64M"), RONDO_SUCCESS);
    assert_non_null(strstr(text, "at most 6 channels"));
    assert_int_equal(lines_with("\n> tree"), 1);
    assert_int_equal(lines_with("not allowed by RONDO_ALGO"), 7);
    assert_int_equal(lines_with("number of channels"), 10);
    algo_set("oneshot");
    assert_int_equal(explain(&g, "all_reduce", "64M"), RONDO_INVALID_USAGE);
    assert_string_equal(text, "");
    unsetenv("RONDO_MAX_NCHANNELS");
    algo_set("");
    scene_close(&g);
}

/* The ring has three protocols with two channels each. What cannot run has one row without a time. */
static void every_number_of_channels_has_a_row_in_text_and_json(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "cpu_dual", "n4", 1);
    every = 1;
    assert_int_equal(explain(&g, "all_reduce", "64K"), RONDO_SUCCESS);
    assert_int_equal(lines_with(" ring      "), 6);
    assert_int_equal(lines_with("\n>"), 1);
    as_json = 1;
    assert_int_equal(explain(&g, "all_reduce", "64K:128K"), RONDO_SUCCESS);
    assert_ptr_equal(strstr(text, "{\"schema\":1,\"collective\":\"all_reduce\",\"ranks\":4,\"nodes\":1,"
                                  "\"channels\":2,\"memory\":\"host\","),
                     text);
    assert_true(times("\"bytes\":") == 2 && times("\"algorithm\":\"ring\"") == 12 &&
                times("\"chosen\":true") == 2);
    assert_true(times("{") == times("}") && times("[") == times("]") &&
                times("\"source\":\"measured\"") == 0);
    assert_true(times("\"us\":") == times("\"model_us\":") && times("\"us\":") < times("\"limit\":"));
    as_json = every = 0;
    scene_close(&g);
}

/* The table shows the times of the other choices, but chooses none of them. */
static void strict_chooses_an_algorithm_that_reduces_in_rank_order(void **state)
{
    struct scene g;
    (void)state;
    scene_search(&g, "cpu_dual", "n4", 3);
    setenv("RONDO_DETERMINISM", "strict", 1);
    algo_set("");
    assert_int_equal(explain(&g, "all_reduce", "1M"), RONDO_SUCCESS);
    assert_int_equal(lines_with("\n> ordered"), 1);
    assert_true(lines_with("RONDO_DETERMINISM") >= 6);
    assert_int_equal(explain(&g, "broadcast", "1M"), RONDO_SUCCESS); /* does not reduce */
    assert_int_equal(lines_with("RONDO_DETERMINISM"), 0);
    unsetenv("RONDO_DETERMINISM");
    algo_set("");
    scene_close(&g);
}

static void a_tuning_file_is_used_only_for_its_own_shape(void **state)
{
    static char file[] = "/tmp/rondo-explain.XXXXXX";
    struct scene g;
    int fd = mkstemp(file);
    FILE *out = fdopen(fd, "w");
    (void)state;
    scene_search(&g, "cpu_dual", "n4", 1);
    for (int fits = 0; fits <= 1; fits++) {
        rewind(out);
        fprintf(out,
                "rondo-tune 1\nshape machine=%016llx nodes=1 ranks=%d per_node=%d memory=host\nall_reduce "
                "tree ll 1 65536 7.25\n",
                (unsigned long long)rondo_machine_hash(&g.machine), 3 + fits, 3 + fits);
        fflush(out);
        setenv("RONDO_TUNE_FILE", file, 1);
        algo_set("");
        assert_int_equal(explain(&g, "all_reduce", "64K"), RONDO_SUCCESS);
        assert_int_equal(lines_with("is ignored: this is 1 node, 4 ranks"), !fits);
        assert_int_equal(lines_with("measured; model "), fits);
        assert_int_equal(lines_with("\n> tree         ll              1       -         7.25"), fits);
    }
    unsetenv("RONDO_TUNE_FILE");
    algo_set("");
    fclose(out);
    unlink(file);
    scene_close(&g);
}

static void errors_about_names_and_sizes_say_what_is_expected(void **state)
{
    static const char *const bad[] = { "",   "x",  "0",    "-1",      "64Q",
                                       "8:", ":8", "16:8", "8:16:32", "99999999999999999999" };
    struct scene g;
    (void)state;
    scene_search(&g, "ws2", NULL, 1);
    assert_int_equal(explain(&g, "all_redoce", "8"), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "all_redoce"));
    assert_non_null(strstr(rondo_error_text(), "reduce_scatterv, all_to_allv"));
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(explain(&g, "all_reduce", bad[i]), RONDO_INVALID_ARGUMENT);
        assert_non_null(strstr(rondo_error_text(), "64M"));
        assert_string_equal(text, "");
    }
    scene_close(&g);
}

/* ---- measuring ---- */

/* A trial of candidates with one to n channels; the first is the tuner's choice. */
static void trial_of(struct rondo_trial *t, size_t bytes, int n)
{
    struct rondo_explain_row rows[8] = { { .model_us = 1, .allowed = 1, .chosen = 1 } };
    for (int i = 1; i < n; i++) {
        rows[i] = rows[0];
        rows[i].chosen = 0;
    }
    for (int i = 0; i < n; i++) {
        rows[i].choice.nchannels = (uint8_t)(1 + i);
    }
    *t = (struct rondo_trial){ .coll = RONDO_COLL_ALL_REDUCE, .bytes = bytes };
    assert_int_equal(rondo_trial_make(t, rows, n), RONDO_SUCCESS);
    assert_int_equal(t->n, n);
}

/* Add n batches, as long as the candidates' times say. */
static void trial_goes_on(struct rondo_trial *t, int n, const double *us)
{
    for (int i = 0; i < n; i++) {
        rondo_trial_add(t, i, us);
    }
    rondo_trial_sift(t);
}

static void rows_that_cannot_run_are_not_measured(void **state)
{
    struct rondo_explain_row rows[3] = { { .model_us = -1, .allowed = 1 },
                                         { .model_us = 2, .allowed = 0 },
                                         { .model_us = 2, .allowed = 1, .choice = { .us = 3 } } };
    struct rondo_trial t = { .bytes = 8 };
    (void)state;
    assert_int_equal(rondo_trial_make(&t, rows, 3), RONDO_SUCCESS);
    assert_true(t.n == 1 && t.candidate[0].predicted_us == 3 && t.candidate[0].row.model_us == 2);
    rondo_trial_free(&t);
}

static void batches_are_long_enough_for_the_clock(void **state)
{
    static const double us[] = { 10, 0.2, 49, 51, 1e-3 };
    struct rondo_trial t;
    (void)state;
    trial_of(&t, 8, 5);
    for (int i = 0; i < t.n; i++) {
        assert_int_equal(t.candidate[i].calls, 1);
    }
    trial_goes_on(&t, 1, us);
    for (int i = 0; i < 4; i++) {
        double batch = t.candidate[i].calls * us[i];
        assert_true(batch >= 50 && batch < 50 + 50 + us[i]);
    }
    assert_int_equal(t.candidate[3].calls, 1);
    assert_int_equal(t.candidate[4].calls, 500); /* the most */
    rondo_trial_free(&t);
}

static void slow_candidates_stop_and_close_ones_run_more_often(void **state)
{
    static const double us[] = { 100, 10, 12, 20, 70 };
    struct rondo_trial t;
    (void)state;
    trial_of(&t, 8, 5);
    trial_goes_on(&t, RONDO_TRIAL_FIRST, us);
    for (int batch = 0; batch < 2; batch++) {
        assert_true(rondo_trial_runs(&t, 0, batch)); /* the tuner's choice, though it is slow */
        assert_true(rondo_trial_runs(&t, 1, batch) && rondo_trial_runs(&t, 2, batch));
        assert_int_equal(rondo_trial_runs(&t, 3, batch), batch == 0);
        assert_false(rondo_trial_runs(&t, 4, batch));
    }
    trial_goes_on(&t, 4, us);
    assert_int_equal(t.candidate[1].ntimes, RONDO_TRIAL_FIRST + 4);
    assert_int_equal(t.candidate[3].ntimes, RONDO_TRIAL_FIRST + 2);
    assert_int_equal(t.candidate[4].ntimes, RONDO_TRIAL_FIRST);
    rondo_trial_end(&t);
    for (int i = 0; i < t.n; i++) { /* all have a time, so that none is taken for what it took elsewhere */
        assert_true(t.candidate[i].row.choice.measured);
    }
    assert_true(t.candidate[0].row.choice.us == 10 && t.candidate[3].row.choice.us == 70 &&
                t.candidate[4].row.chosen);
    rondo_trial_free(&t);
}

static void disturbed_batches_do_not_count(void **state)
{
    struct rondo_trial t;
    (void)state;
    trial_of(&t, 8, 1);
    for (int i = 0; i < RONDO_TRIAL_FIRST; i++) {
        rondo_trial_add(&t, i, &(double){ 2 }); /* the first ones: caches and plans are cold */
    }
    for (int i = 0; i < 10; i++) {
        rondo_trial_add(&t, i, &(double){ i % 3 == 0 ? 5 : 50 + i });
    }
    assert_true(rondo_trial_time(&t.candidate[0]) == 5);
    rondo_trial_free(&t);
}

static void sizes_between_are_measured_where_another_is_faster(void **state)
{
    static const double us[][2] = { { 10, 20 }, { 40, 30 }, { 20, 19 } };
    struct rondo_trial small, large;
    (void)state;
    trial_of(&small, 8, 2);
    trial_of(&large, 32, 2);
    trial_goes_on(&small, RONDO_TRIAL_FIRST, us[0]);
    trial_goes_on(&large, RONDO_TRIAL_FIRST, us[1]);
    assert_int_equal(rondo_trial_between(&small, &large), 16);
    large.bytes = 512;
    assert_int_equal(rondo_trial_between(&small, &large), 64);
    large.bytes = 31; /* no size between is twice the one and at most half of the other */
    assert_int_equal(rondo_trial_between(&small, &large), 0);
    rondo_trial_free(&large);
    trial_of(&large, 32, 2);
    trial_goes_on(&large, RONDO_TRIAL_FIRST, us[2]); /* one is nearly as fast as the other */
    assert_int_equal(rondo_trial_between(&small, &large), 0);
    rondo_trial_free(&small);
    rondo_trial_free(&large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_get_the_known_best_choices),
        cmocka_unit_test(large_all_reduce_gets_the_bandwidth_of_the_ring),
        cmocka_unit_test(layout_covers_all_nodes),
        cmocka_unit_test(trees_with_four_neighbours_serve_no_root),
        cmocka_unit_test(table_is_complete_sorted_and_marked),
        cmocka_unit_test(registered_buffers_have_a_line_of_their_own),
        cmocka_unit_test(range_has_a_line_for_each_size),
        cmocka_unit_test(choices_that_cannot_run_say_why),
        cmocka_unit_test(nodes_without_a_net_use_sockets),
        cmocka_unit_test(host_memory_shows_the_link_between_nodes),
        cmocka_unit_test(parameters_apply_as_in_a_job),
        cmocka_unit_test(every_number_of_channels_has_a_row_in_text_and_json),
        cmocka_unit_test(strict_chooses_an_algorithm_that_reduces_in_rank_order),
        cmocka_unit_test(a_tuning_file_is_used_only_for_its_own_shape),
        cmocka_unit_test(errors_about_names_and_sizes_say_what_is_expected),
        cmocka_unit_test(rows_that_cannot_run_are_not_measured),
        cmocka_unit_test(batches_are_long_enough_for_the_clock),
        cmocka_unit_test(slow_candidates_stop_and_close_ones_run_more_often),
        cmocka_unit_test(disturbed_batches_do_not_count),
        cmocka_unit_test(sizes_between_are_measured_where_another_is_faster),
    };
    algo_set("");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
