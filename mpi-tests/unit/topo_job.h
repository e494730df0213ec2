/* Nodes with random graphs and jobs made of them, from a seed. */
#ifndef RONDO_TESTS_TOPO_JOB_H
#define RONDO_TESTS_TOPO_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "topo/stitch.h"

enum { MAX_KINDS = 4, MAX_DEVS = 8, MAX_NETS = 8, MAX_NODES = 70, MAX_RANKS = MAX_NODES * MAX_DEVS };

static uint64_t seed;

static inline int draw(int n) /* 0 .. n - 1 */
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (int)((seed >> 11) % (uint64_t)n);
}

static inline void shuffle16(int16_t *v, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = draw(i + 1);
        int16_t t = v[i];
        v[i] = v[j], v[j] = t;
    }
}

static inline void assert_says(const char *part)
{
    if (strstr(rondo_error_text(), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", rondo_error_text(), part);
    }
}

/* ---- a kind of node ---- */

struct kind {
    int ndevs, nnets;
    struct rondo_graph_net net[MAX_NETS];
    struct rondo_graph graph[RONDO_NUM_GRAPHS];
    int16_t order[RONDO_NUM_GRAPHS][RONDO_TOPO_CHANNELS * MAX_DEVS];
    uint8_t *bytes;
    size_t nbytes;
};

static inline void kind_init(struct kind *k, int ndevs, int nnets, int nchannels, int pattern)
{
    memset(k, 0, sizeof(*k));
    k->ndevs = ndevs;
    k->nnets = nnets;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        k->graph[id] = (struct rondo_graph){ .id = id,
                                             .pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING : pattern,
                                             .nchannels = nchannels,
                                             .bw_intra = 20000,
                                             .bw_inter = 12000,
                                             .type_intra = RONDO_PATH_NVL,
                                             .type_inter = RONDO_PATH_PIX,
                                             .ndevs = ndevs,
                                             .order = k->order[id],
                                             .bound = 100000,
                                             .bound_at = -1 };
        for (int i = 0; i < nchannels * ndevs; i++) {
            k->order[id][i] = (int16_t)(i % ndevs);
        }
        for (int c = 0; c < 2 * RONDO_TOPO_CHANNELS; c++) {
            k->graph[id].net[c] = (int16_t)(nnets > 0 && c < 2 * nchannels ? c / 2 % nnets : -1);
        }
    }
    for (int i = 0; i < nnets; i++) {
        k->net[i].rail = i;
        snprintf(k->net[i].name, sizeof k->net[i].name, "net%d:1", i);
    }
}

static inline void kind_pack(struct kind *k)
{
    assert_int_equal(rondo_graphs_pack(k->graph, k->ndevs, k->nnets, k->net, &k->bytes, &k->nbytes),
                     RONDO_SUCCESS);
}

static inline void kind_draw(struct kind *k)
{
    kind_init(k, 1 + draw(MAX_DEVS), draw(MAX_NETS + 1), 1 + draw(9), 1 + draw(3));
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        struct rondo_graph *g = &k->graph[id];
        g->nchannels = 1 + draw(9);
        g->cross_nic = draw(3);
        g->bw_intra = 1 + draw(50000);
        g->bw_inter = 1 + draw(50000);
        g->type_intra = draw(RONDO_NUM_PATH_TYPES);
        g->type_inter = draw(RONDO_NUM_PATH_TYPES);
        g->min_sm = 70 + 10 * draw(4);
        g->cpus = draw(1 << 10);
        g->family = draw(30) - 1;
        g->cache = draw(4) * draw(1 << 20);
        g->latency_inter = draw(9000);
        g->found = draw(1000);
        for (int c = 0; c < g->nchannels; c++) {
            int16_t *order = g->order + c * k->ndevs;
            memcpy(order, k->order[id], sizeof(*order) * (size_t)k->ndevs);
            if (draw(3) > 0) {
                shuffle16(order, k->ndevs);
            }
        }
        for (int c = 0; c < 2 * RONDO_TOPO_CHANNELS; c++) {
            g->net[c] = (int16_t)(c < 2 * g->nchannels ? draw(k->nnets + 1) - 1 : -1);
        }
    }
    for (int i = 0, any = draw(2); i < k->nnets; i++) {
        for (int kind = 0; any && kind < RONDO_NUM_GDR; kind++) {
            k->net[i].gdr[kind] = (uint64_t)draw(1 << k->ndevs);
        }
        for (int dev = 0; any && k->ndevs > 1 && dev < k->ndevs && i % 2 != 0; dev++) {
            k->net[i].relay[dev] =
                (uint8_t)(dev % 3 == 0
                              ? 1 + (dev + 1 + (int)(k->net[i].gdr[0] % (uint64_t)(k->ndevs - 1))) % k->ndevs
                              : 0);
        }
        int n = draw(4) ? draw(12) : draw(RONDO_NET_NAME);
        for (int at = 0; at <= n; at++) {
            k->net[i].name[at] = (char)(at < n ? '!' + draw('~' - '!' + 1) : '\0');
        }
    }
    kind_pack(k);
}

/* ---- a job ---- */

struct job {
    int nkinds, nnodes, nranks;
    struct kind kind[MAX_KINDS];
    int kind_of[MAX_NODES];           /* by node number */
    int rank_of[MAX_NODES][MAX_DEVS]; /* node, local -> rank */
    int position_of[MAX_NODES], at[MAX_NODES];
    uint64_t fabric[MAX_NODES];
    struct rondo_stitch_rank rank[MAX_RANKS];
    const uint8_t *bytes[MAX_KINDS];
    size_t nbytes[MAX_KINDS];
    struct rondo_stitch_input input;
};

static inline struct job *job_new(void)
{
    struct job *job = calloc(1, sizeof(*job));
    assert_non_null(job);
    return job;
}

static inline void job_free(struct job *job)
{
    for (int k = 0; k < job->nkinds; k++) {
        rondo_free(job->kind[k].bytes);
    }
    free(job);
}

/* Lay out ranks of nodes of the given kinds, in random order (mix) or in sequence. Nodes are numbered by
 * their lowest ranks. */
static inline void job_lay(struct job *job, const int *kinds, int nnodes, int mix)
{
    int16_t slot[MAX_RANKS];
    int number[MAX_NODES], n = 0;
    for (int i = 0; i < nnodes; i++) {
        for (int d = 0; d < job->kind[kinds[i]].ndevs; d++) {
            slot[n++] = (int16_t)(i * MAX_DEVS + d);
        }
        number[i] = -1;
    }
    if (mix) {
        shuffle16(slot, n);
    }
    job->nranks = n;
    job->nnodes = 0;
    for (int r = 0; r < n; r++) {
        int i = slot[r] / MAX_DEVS, d = slot[r] % MAX_DEVS;
        const struct kind *k = &job->kind[kinds[i]];
        if (number[i] < 0) {
            number[i] = job->nnodes++;
            job->kind_of[number[i]] = kinds[i];
        }
        job->rank_of[number[i]][d] = r;
        job->rank[r] = (struct rondo_stitch_rank){ .graphs = rondo_graphs_hash(k->bytes, k->nbytes),
                                                   .node = (uint32_t)number[i],
                                                   .local = (uint16_t)d };
    }
    for (int k = 0; k < job->nkinds; k++) {
        job->bytes[k] = job->kind[k].bytes;
        job->nbytes[k] = job->kind[k].nbytes;
    }
    for (int i = 0; i < nnodes; i++) {
        job->at[i] = job->position_of[i] = i;
    }
    job->input = (struct rondo_stitch_input){
        .nranks = n, .rank = job->rank, .ndistinct = job->nkinds, .bytes = job->bytes, .nbytes = job->nbytes
    };
}

static inline void job_use_keys(struct job *job)
{
    job->input.fabric = job->fabric;
    for (int i = 0; i < job->nnodes; i++) {
        job->fabric[i] = (uint64_t)(1 + draw(5)) << 40;
    }
    job->fabric[0] = 9, job->fabric[job->nnodes - 1] = 7;
    for (int i = 0; i < job->nnodes; i++) {
        int before = 0;
        for (int j = 0; j < job->nnodes; j++) {
            before += job->fabric[j] < job->fabric[i] || (job->fabric[j] == job->fabric[i] && j < i);
        }
        job->position_of[i] = before;
        job->at[before] = i;
    }
}

static inline void job_draw(struct job *job)
{
    int kinds[MAX_NODES], n = 1 + (draw(3) > 0 ? draw(9) : draw(MAX_NODES));
    job->nkinds = 1 + draw(n < MAX_KINDS ? n : MAX_KINDS);
    for (int k = 0; k < job->nkinds; k++) {
        kind_draw(&job->kind[k]);
    }
    for (int i = 0; i < n; i++) {
        kinds[i] = draw(job->nkinds);
    }
    job_lay(job, kinds, n, draw(4) > 0);
    if (n > 2 && draw(2)) {
        job_use_keys(job);
    }
    job->input.host_trees = draw(3) == 0;
    job->input.max_channels = draw(3) == 0 ? 1 + draw(20) : 0;
}

#endif
