/* Rings of ranks on host memory follow the machine's caches, NUMA nodes and packages: on synthetic hwloc
 * machines, from files, and on several different nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/param.h"
#include "node_job.h"

/* Count the ring's edges between groups. A ring that follows the machine leaves each group once. */
static int crossings(const struct job *job, int channel, const int *group)
{
    const struct rondo_ring *ring = &job->layout.channel[channel].ring;
    int n = 0;
    for (int i = 0; i < job->n; i++) {
        n += group[ring->rank_at[i]] != group[ring->rank_at[(i + 1) % job->n]];
    }
    return n;
}

static void assert_ring(const struct job *job, int channel)
{
    const struct rondo_ring *ring = &job->layout.channel[channel].ring;
    for (int i = 0; i < job->n; i++) {
        assert_int_equal(ring->index_of[ring->rank_at[i]], i);
    }
    assert_int_equal(ring->rank_at[ring->index], 0);
    assert_int_equal(ring->rank_at[(ring->index + 1) % job->n], ring->next);
    assert_int_equal(ring->rank_at[(ring->index + job->n - 1) % job->n], ring->prev);
}

/*
 * Two packages of two NUMA nodes of two L3 caches of two cores. Like many BIOSes, number cores round robin
 * over the packages: cores 0, 2, .. 14 are in the first one. Rank r is bound to core r, as by a launcher
 * that maps by slot, so in rank order every edge of the ring would cross packages.
 */
static void ring_follows_packages_numa_and_caches(void **state)
{
    int core[16], package[16], numa[16], l3[16];
    struct job job;
    (void)state;
    synthetic("pack:2 numa:2 l3:2 core:2 pu:1(indexes=0,2,4,6,8,10,12,14,1,3,5,7,9,11,13,15)");
    for (int r = 0; r < 16; r++) {
        core[r] = r;
        package[r] = r % 2;
        numa[r] = 2 * (r % 2) + r / 8;
        l3[r] = 4 * (r % 2) + r / 4;
    }
    job_init(&job, 16, core, NULL);
    job_lay(&job, 2);
    assert_ring(&job, 0);
    assert_int_equal(crossings(&job, 0, package), 2);
    assert_int_equal(crossings(&job, 0, numa), 4);
    assert_int_equal(crossings(&job, 0, l3), 8);
    assert_ptr_equal(job.layout.channel[0].ring.rank_at, job.layout.channel[1].ring.rank_at);
    job_release(&job);
}

/* The order in which ranks are bound is unrelated to the machine. */
static void ring_follows_caches_for_any_binding(void **state)
{
    static const int binding[] = { 5, 0, 7, 2, 6, 1, 4, 3 };
    int l3[8];
    struct job job;
    (void)state;
    synthetic("pack:1 numa:1 l3:4 core:2 pu:1");
    for (int r = 0; r < 8; r++) {
        l3[r] = binding[r] / 2;
    }
    job_init(&job, 8, binding, NULL);
    job_lay(&job, 1);
    assert_ring(&job, 0);
    assert_int_equal(crossings(&job, 0, l3), 4);
    job_release(&job);
}

/* Ranks that may run anywhere keep their order. */
static void unbound_ranks_keep_their_order(void **state)
{
    int core[8] = { 0 };
    struct job job;
    (void)state;
    synthetic("pack:2 numa:1 core:4 pu:1");
    job_init(&job, 8, core, NULL);
    for (int r = 0; r < 8; r++) {
        job.cores[r].bits[0] = 0xff;
    }
    job_lay(&job, 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(job.layout.channel[0].ring.rank_at[i], i);
    }
    job_release(&job);
}

/* Communicators of one process: the graphs of the second are those of the first, unless its cores, or the
 * machine, are others. */
static void ranks_with_other_cores_get_other_graphs(void **state)
{
    static const int near[] = { 0, 1, 2, 3 }, far[] = { 0, 4, 1, 5 };
    static const int groups[] = { 0, 0, 1, 1 };
    struct job job[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i % 3 == 0) {
            synthetic(i == 0 ? "pack:1 numa:1 l3:2 core:4 pu:1" : "pack:1 numa:1 l3:4 core:2 pu:1");
        }
        job_init(&job[i], 4, i == 1 ? far : near, NULL);
        job_lay(&job[i], 1);
        assert_ring(&job[i], 0);
    }
    for (int r = 0; r < 4; r++) { /* far: 0 and 2 share a cache */
        assert_int_equal(job[1].layout.channel[0].ring.rank_at[r] % 2, r / 2);
        assert_int_equal(job[2].layout.channel[0].ring.rank_at[r], job[0].layout.channel[0].ring.rank_at[r]);
    }
    assert_int_equal(crossings(&job[3], 0, groups), 2);
    assert_null(job[0].layout.nest);
    assert_non_null(job[3].layout.nest);
    for (int i = 0; i < 4; i++) {
        job_release(&job[i]);
    }
}

/* Ranks assigned round robin to two nodes: the ring keeps each node's ranks together, and sorts them by
 * cache. */
static void ranks_of_a_node_are_contiguous(void **state)
{
    int core[16], node[16], cache[16];
    struct job job;
    (void)state;
    synthetic("pack:1 numa:1 l3:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)");
    for (int r = 0; r < 16; r++) {
        node[r] = r % 2;
        core[r] = r / 2;
        cache[r] = 2 * node[r] + core[r] % 2;
    }
    job_init(&job, 16, core, node);
    job_lay(&job, 2);
    assert_int_equal(job.layout.nnodes, 2);
    assert_ring(&job, 0);
    assert_int_equal(crossings(&job, 0, node), 2);
    assert_int_equal(crossings(&job, 0, cache), 4);
    job_release(&job);
}

/* Nodes with different numbers of ranks have different graphs. */
static void nodes_may_differ(void **state)
{
    static const int node[] = { 0, 0, 0, 1, 1, 2 }, core[] = { 3, 1, 2, 0, 1, 2 };
    struct job job;
    (void)state;
    synthetic("pack:1 numa:1 core:4 pu:1");
    job_init(&job, 6, core, node);
    job_lay(&job, 4);
    assert_int_equal(job.layout.nnodes, 3);
    for (int c = 0; c < 4; c++) {
        assert_ring(&job, c);
        assert_int_equal(crossings(&job, c, node), 3);
    }
    assert_int_equal(job.layout.channel[0].ring.rank_at[0], 1); /* core 1 first */
    job_release(&job);
}

static void in_child(void (*test)(void), int expected)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        test();
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
}

static void graphs_status(void)
{
    static const int core[] = { 0, 1 };
    struct job job;
    uint8_t *bytes;
    size_t n;
    rondo_param_reload();
    job_init(&job, 2, core, NULL);
    if (rondo_layout_fill(&job.layout, job.peers, 0, 2) != RONDO_SUCCESS) {
        _exit(98);
    }
    _exit((int)rondo_node_graphs(&job.layout, job.peers, &bytes, &n, NULL));
}

/* RONDO_TOPO_FILE gives the machine; a missing file and an unknown RONDO_P2P_LEVEL are errors. */
static void topology_parameters_take_effect(void **state)
{
    char path[512];
    const char *srcdir = getenv("srcdir");
    (void)state;
    snprintf(path, sizeof(path), "%s/mpi-tests/unit/machines/cpu_dual.xml", srcdir != NULL ? srcdir : ".");
    setenv("RONDO_TOPO_FILE", path, 1);
    in_child(graphs_status, RONDO_SUCCESS);
    setenv("RONDO_TOPO_FILE", "/there/is/no/such/file.xml", 1);
    in_child(graphs_status, RONDO_INVALID_ARGUMENT);
    setenv("RONDO_TOPO_FILE", path, 1);
    setenv("RONDO_P2P_LEVEL", "NEAR", 1);
    in_child(graphs_status, RONDO_INVALID_USAGE);
    unsetenv("RONDO_P2P_LEVEL");
    unsetenv("RONDO_TOPO_FILE");
}

/* ---- graphs from files ---- */

static char graph_path[64];

static void dump_graphs(void)
{
    static const int core[] = { 2, 0, 1 };
    struct job job;
    setenv("RONDO_GRAPH_DUMP_FILE", graph_path, 1);
    rondo_param_reload();
    job_init(&job, 3, core, NULL);
    job_lay(&job, 1);
    _exit(job.layout.channel[0].ring.rank_at[0] == 1 && job.layout.channel[0].ring.rank_at[1] == 2 ? 0 : 97);
}

/* The ring comes from the file, not from the search. */
static void read_graphs(void)
{
    static const int core[] = { 0, 1, 2 };
    struct job job;
    setenv("RONDO_GRAPH_FILE", graph_path, 1);
    rondo_param_reload();
    job_init(&job, 3, core, NULL);
    job_lay(&job, 1);
    _exit(job.layout.channel[0].ring.rank_at[0] == 1 && job.layout.channel[0].ring.rank_at[1] == 2 ? 0 : 97);
}

static void graphs_are_written_and_read(void **state)
{
    (void)state;
    synthetic("pack:1 numa:1 core:4 pu:1");
    snprintf(graph_path, sizeof(graph_path), "/tmp/rondo-unit-node-%d.xml", (int)getpid());
    in_child(dump_graphs, 0);
    in_child(read_graphs, 0);
    assert_int_equal(unlink(graph_path), 0);
    setenv("RONDO_GRAPH_FILE", graph_path, 1);
    in_child(graphs_status, RONDO_INVALID_ARGUMENT);
    unsetenv("RONDO_GRAPH_FILE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(ring_follows_packages_numa_and_caches, no_synthetic),
        cmocka_unit_test_teardown(ring_follows_caches_for_any_binding, no_synthetic),
        cmocka_unit_test_teardown(unbound_ranks_keep_their_order, no_synthetic),
        cmocka_unit_test_teardown(ranks_of_a_node_are_contiguous, no_synthetic),
        cmocka_unit_test_teardown(nodes_may_differ, no_synthetic),
        cmocka_unit_test_teardown(ranks_with_other_cores_get_other_graphs, no_synthetic),
        cmocka_unit_test(topology_parameters_take_effect),
        cmocka_unit_test_teardown(graphs_are_written_and_read, no_synthetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
