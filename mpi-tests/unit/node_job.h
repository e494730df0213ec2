/* Ranks on host memory on synthetic hwloc machines, with nodes laid out as creation does. */
#ifndef RONDO_TESTS_NODE_JOB_H
#define RONDO_TESTS_NODE_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/layout_fill.h"
#include "init/node.h"
#include "topo/stitch.h"

enum { MAX_RANKS = 64 };

struct job {
    struct rondo_peer *peers;
    struct rondo_cores cores[MAX_RANKS]; /* of the peers */
    struct rondo_layout layout;
    int n;
};

/* Ranks on one host, each bound to one core. */
static inline void job_init(struct job *job, int n, const int *core, const int *node)
{
    memset(job, 0, sizeof(*job));
    job->n = n;
    assert_int_equal(RONDO_NEW_ARRAY(job->peers, n, "peers"), RONDO_SUCCESS);
    for (int r = 0; r < n; r++) {
        job->peers[r].rank = r;
        job->peers[r].nranks = n;
        job->peers[r].device = -1;
        job->peers[r].host_hash = node != NULL ? (uint64_t)node[r] + 1 : 1;
        job->peers[r].cores = &job->cores[r];
        job->cores[r].bits[core[r] / 64] |= (uint64_t)1 << (core[r] % 64);
    }
}

static inline void job_release(struct job *job)
{
    rondo_layout_release(&job->layout);
    rondo_free(job->peers);
}

/* Do what creation does, with all nodes' leaders in one process. */
static inline void job_lay(struct job *job, int nchannels)
{
    struct rondo_shape shape[MAX_RANKS];
    uint64_t graphs[MAX_RANKS];
    int nshapes = 0;
    assert_int_equal(rondo_layout_fill(&job->layout, job->peers, 0, job->n), RONDO_SUCCESS);
    for (int node = 0; node < job->layout.nnodes; node++) {
        struct rondo_layout view = { 0 };
        struct rondo_shape *s = &shape[nshapes];
        size_t n;
        int rank = 0, known = 0;
        while (job->layout.node_of[rank] != node) {
            rank++;
        }
        assert_int_equal(rondo_layout_fill(&view, job->peers, rank, job->n), RONDO_SUCCESS);
        assert_int_equal(rondo_node_graphs(&view, job->peers, &s->bytes, &n, NULL), RONDO_SUCCESS);
        s->nbytes = (uint32_t)n;
        s->hash = graphs[node] = rondo_graphs_hash(s->bytes, n);
        for (int i = 0; i < nshapes; i++) {
            known |= shape[i].hash == s->hash;
        }
        if (known) {
            rondo_free(s->bytes);
        } else {
            nshapes++;
        }
        rondo_layout_release(&view);
    }
    assert_int_equal(rondo_layout_channels(&job->layout, nchannels, 1, 1), RONDO_SUCCESS);
    assert_int_equal(rondo_node_rings(&job->layout, job->peers, shape, nshapes, graphs, NULL), RONDO_SUCCESS);
    rondo_layout_trees(&job->layout);
    for (int i = 0; i < nshapes; i++) {
        rondo_free(shape[i].bytes);
    }
}

static inline void synthetic(const char *text)
{
    rondo_node_forget_machine();
    setenv("HWLOC_SYNTHETIC", text, 1);
}

static inline int no_synthetic(void **state)
{
    (void)state;
    unsetenv("HWLOC_SYNTHETIC");
    rondo_node_forget_machine();
    return 0;
}

#endif
