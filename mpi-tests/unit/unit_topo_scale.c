/* Time and memory of stitching a large job. */
#include "topo_job.h"

#include <time.h>

#include "tools/simulate.h"

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void measure(const struct kind *kind, int nranks, int nlocal, size_t most)
{
    struct rondo_stitch_rank *rank = calloc((size_t)nranks, sizeof(*rank));
    const uint8_t *bytes = kind->bytes;
    struct rondo_stitch_input input = {
        .nranks = nranks, .rank = rank, .ndistinct = 1, .bytes = &bytes, .nbytes = &kind->nbytes
    };
    struct rondo_stitch *stitch;
    struct rondo_channel_layout view;
    assert_non_null(rank);
    for (int r = 0; r < nranks; r++) {
        rank[r] = (struct rondo_stitch_rank){ .graphs = rondo_graphs_hash(bytes, kind->nbytes),
                                              .node = (uint32_t)(r / nlocal),
                                              .local = (uint16_t)(r % nlocal) };
    }
    double start = cpu_ms();
    assert_int_equal(rondo_stitch_create(&stitch, &input), RONDO_SUCCESS);
    double created = cpu_ms();
    const struct rondo_stitch_summary *sum = rondo_stitch_summary(stitch);
    for (int c = 0; c < sum->nchannels; c++) {
        rondo_stitch_channel(stitch, nranks / 3, c, &view);
    }
    printf("%7d ranks on %6d nodes: merge %.2f ms, %d channels of a rank %.3f ms, %.2f MiB\n", nranks,
           sum->nnodes, created - start, sum->nchannels, cpu_ms() - created, (double)sum->bytes / (1 << 20));
    assert_true(sum->bytes < most && sum->bytes < (size_t)nranks * 64 + 65536);
    assert_int_equal(view.tree.depth >= 1, 1);
    rondo_stitch_destroy(stitch);
    free(rank);
}

/* The times are only printed. */
static void memory_of_large_jobs_is_bounded(void **state)
{
    struct kind *kind = calloc(1, sizeof(*kind));
    (void)state;
    assert_non_null(kind);
    for (int nlocal = 8; nlocal >= 1; nlocal -= 7) {
        kind_init(kind, nlocal, 8, 32, RONDO_PATTERN_BALANCED_TREE);
        kind_pack(kind);
        for (int nranks = 1024; nranks <= 131072; nranks *= 2) {
            measure(kind, nranks, nlocal, (size_t)64 << 20);
        }
        rondo_free(kind->bytes);
    }
    free(kind);
}

static void simulation_prints_one_line_per_size(void **state)
{
    static struct rondo_item item = { .kind = RONDO_ITEM_NET,
                                      .net = { .name = "mlx5_2", .port = 1, .rail = 3 } };
    static struct rondo_topo_node node[9];
    static struct rondo_topo_path direct[81]; /* no link leads anywhere */
    static int32_t point[9];
    static struct rondo_topo_rank rank[8];
    const struct rondo_machine machine = { .item = &item, .nitems = 1 };
    const struct rondo_topo topo = { .machine = &machine,
                                     .node = node,
                                     .point = point,
                                     .rank = rank,
                                     .wired = direct,
                                     .npoints = 9,
                                     .ndevs = 8,
                                     .nnets = 1,
                                     .all_gpus = 1,
                                     .min_sm = 90 };
    struct kind *kind = calloc(1, sizeof(*kind));
    struct rondo_graph_net net;
    char *text = NULL;
    size_t size = 0;
    (void)state;
    assert_non_null(kind);
    kind_init(kind, 8, 1, 2, RONDO_PATTERN_TREE);
    assert_int_equal(rondo_graphs_pack_topo(&topo, kind->graph, &kind->bytes, &kind->nbytes), RONDO_SUCCESS);
    rondo_graphs_nets(kind->bytes, &net);
    assert_int_equal(net.rail, 3);
    assert_string_equal(net.name, "mlx5_2:1"); /* the verbs device's name */
    rondo_free(kind->bytes);
    snprintf(item.net.name, sizeof item.net.name, "eth0 \xc3");
    item.net.port = 0;
    assert_int_equal(rondo_graphs_pack_topo(&topo, kind->graph, &kind->bytes, &kind->nbytes), RONDO_SUCCESS);
    rondo_graphs_nets(kind->bytes, &net);
    assert_string_equal(net.name, "eth0??");
    rondo_free(kind->bytes);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) { /* unused nets may have different names on equal nodes */
        memset(kind->graph[id].net, 0xff, sizeof kind->graph[id].net);
    }
    assert_int_equal(rondo_graphs_pack_topo(&topo, kind->graph, &kind->bytes, &kind->nbytes), RONDO_SUCCESS);
    rondo_graphs_nets(kind->bytes, &net);
    assert_string_equal(net.name, "");
    rondo_free(kind->bytes);
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(rondo_job_simulate(&topo, kind->graph, 600, out), RONDO_SUCCESS);
    fclose(out);
    const char *at = text;
    static const char *const rows[] = { "\n     1000      125 ", "\n     2000      250 ",
                                        "\n     4000      500 ", "\n     4800      600 " };
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        at = at == NULL ? NULL : strstr(at, rows[i]);
    }
    assert_non_null(at);
    free(text);
    assert_int_equal(rondo_job_simulate(&topo, kind->graph, 0, stdout), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_job_simulate(&topo, kind->graph, RONDO_STITCH_MAX_RANKS / 8 + 1, stdout),
                     RONDO_INVALID_ARGUMENT);
    assert_says("expected 1 to 2097152");
    free(kind);
}

int main(void)
{
    rondo_log_mask = RONDO_LOG_NONE; /* tests check the sentences */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_large_jobs_is_bounded),
        cmocka_unit_test(simulation_prints_one_line_per_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
