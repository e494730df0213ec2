/* Nodes, rings and trees over the ranks of a communicator. Ranks of a node stand together in the ring; within it they keep their order. */
#include "base/cores.h"
#include "base/mem.h"
#include "coll/algo.h"
#include "comm.h"

#include <stdlib.h>

struct place {
    const struct rondo_peer *peer;
    int rank, node;
};

static int compare_nodes(const struct rondo_peer *a, const struct rondo_peer *b)
{
    if (a->host_hash != b->host_hash) {
        return a->host_hash < b->host_hash ? -1 : 1;
    }
    if (a->shm_dev != b->shm_dev) {
        return a->shm_dev < b->shm_dev ? -1 : 1;
    }
    return a->pidns < b->pidns ? -1 : a->pidns > b->pidns;
}

static int by_node(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    int order = compare_nodes(a->peer, b->peer);
    return order != 0 ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Nodes are numbered by their lowest rank, so that every rank finds the same numbers. */
static rondo_status number_nodes(struct rondo_layout *layout, const struct rondo_peer *peers)
{
    int n = layout->nranks;
    struct place *place;
    int32_t *leader;
    rondo_status status = RONDO_NEW_ARRAY(place, n, "the list of nodes");
    if (status == RONDO_SUCCESS && (status = RONDO_NEW_ARRAY(leader, n, "the list of nodes")) != RONDO_SUCCESS) {
        rondo_free(place);
    }
    RONDO_TRY(status);
    for (int r = 0; r < n; r++) {
        place[r].peer = &peers[r];
        place[r].rank = r;
    }
    qsort(place, (size_t)n, sizeof(*place), by_node);
    for (int i = 0; i < n; i++) {
        int same = i > 0 && compare_nodes(place[i - 1].peer, place[i].peer) == 0;
        leader[place[i].rank] = same ? leader[place[i - 1].rank] : place[i].rank;
    }
    for (int r = 0; r < n; r++) {
        layout->node_of[r] = leader[r] == r ? layout->nnodes++ : layout->node_of[leader[r]];
    }
    rondo_free(leader);
    rondo_free(place);
    return RONDO_SUCCESS;
}

static rondo_status count_locals(struct rondo_layout *layout)
{
    int32_t *ranks_of;
    RONDO_TRY(RONDO_NEW_ARRAY(ranks_of, layout->nnodes, "the list of nodes"));
    for (int r = 0; r < layout->nranks; r++) {
        layout->local_of[r] = ranks_of[layout->node_of[r]]++;
    }
    layout->node = layout->node_of[layout->rank];
    layout->local_rank = layout->local_of[layout->rank];
    layout->nlocal = ranks_of[layout->node];
    for (int i = 0; i < layout->nnodes; i++) {
        layout->max_local = ranks_of[i] > layout->max_local ? ranks_of[i] : layout->max_local;
    }
    rondo_free(ranks_of);
    RONDO_TRY(RONDO_NEW_ARRAY(layout->local_ranks, layout->nlocal, "the ranks of this node"));
    for (int r = 0; r < layout->nranks; r++) {
        if (layout->node_of[r] == layout->node) {
            layout->local_ranks[layout->local_of[r]] = r;
        }
    }
    return RONDO_SUCCESS;
}

/*
 * The model of host memory: what one hand-over between two cores, and a copy through slots that stay in the cache, cost on the machines at hand. Rough on purpose:
 * it orders the algorithms; it must be the same on all ranks, so it depends on records that all of them have.
 */
static void fill_model(struct rondo_layout *layout, const struct rondo_peer *peers)
{
    struct rondo_model *m = &layout->model;
    double worst = 0;
    struct rondo_cores *cores = calloc((size_t)layout->nnodes, sizeof(*cores));
    int *ranks = calloc((size_t)layout->nnodes, sizeof(*ranks));
    for (int r = 0; cores != NULL && ranks != NULL && r < layout->nranks; r++) {
        rondo_cores_unite(&cores[layout->node_of[r]], &peers[r].cores);
        ranks[layout->node_of[r]]++;
    }
    for (int i = 0; cores != NULL && ranks != NULL && i < layout->nnodes; i++) {
        int n = rondo_cores_count(&cores[i]);
        double load = (double)ranks[i] / (n > 0 ? n : 1);
        worst = load > worst ? load : worst;
    }
    free(cores);
    free(ranks);
    m->ranks_per_core = worst;
    m->base_us = 0.05;
    m->board_us = 0.1;
    m->board_bw = 6;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        m->hop_us[p] = p == RONDO_PROTO_SIMPLE ? 0.45 : p == RONDO_PROTO_LL128 ? 0.35 : 0.3;
        m->net_us[p] = 15;
        m->net_bw[p] = 1.2;
    }
    m->bw[RONDO_PROTO_LL] = 2.2;
    m->bw[RONDO_PROTO_LL128] = 4;
    m->bw[RONDO_PROTO_SIMPLE] = 6;
}

rondo_status rondo_layout_fill(struct rondo_layout *layout, const struct rondo_peer *peers, int rank, int nranks)
{
    layout->rank = rank;
    layout->nranks = nranks;
    RONDO_TRY(RONDO_NEW_ARRAY(layout->node_of, nranks, "the layout"));
    RONDO_TRY(RONDO_NEW_ARRAY(layout->local_of, nranks, "the layout"));
    RONDO_TRY(number_nodes(layout, peers));
    RONDO_TRY(count_locals(layout));
    fill_model(layout, peers);
    return RONDO_SUCCESS;
}

static rondo_status fill_ring(struct rondo_layout *layout, struct rondo_ring *ring)
{
    int n = layout->nranks, at = 0, *first;
    RONDO_TRY(RONDO_NEW_ARRAY(ring->rank_at, n, "a ring"));
    RONDO_TRY(RONDO_NEW_ARRAY(ring->index_of, n, "a ring"));
    RONDO_TRY(RONDO_NEW_ARRAY(first, layout->nnodes + 1, "a ring"));
    for (int r = 0; r < n; r++) {
        first[layout->node_of[r] + 1]++;
    }
    for (int i = 0; i < layout->nnodes; i++) {
        first[i + 1] += first[i];
    }
    for (int r = 0; r < n; r++) {
        at = first[layout->node_of[r]] + layout->local_of[r];
        ring->rank_at[at] = r;
        ring->index_of[r] = at;
    }
    rondo_free(first);
    ring->index = ring->index_of[layout->rank];
    ring->prev = ring->rank_at[(ring->index + n - 1) % n];
    ring->next = ring->rank_at[(ring->index + 1) % n];
    return RONDO_SUCCESS;
}

rondo_status rondo_layout_channels(struct rondo_layout *layout, int nchannels, int least, uint32_t protos)
{
    layout->protos = protos;
    layout->nchannels = nchannels;
    layout->least_channels = least;
    RONDO_TRY(RONDO_NEW_ARRAY(layout->channel, nchannels, "the channels"));
    RONDO_TRY(fill_ring(layout, &layout->channel[0].ring));
    for (int c = 0; c < nchannels; c++) {
        layout->channel[c].ring = layout->channel[0].ring;
        rondo_tree_fill(layout, c);
    }
    return RONDO_SUCCESS;
}

void rondo_layout_release(struct rondo_layout *layout)
{
    if (layout->channel != NULL) {
        rondo_free(layout->channel[0].ring.rank_at);
        rondo_free(layout->channel[0].ring.index_of);
    }
    rondo_free(layout->channel);
    rondo_free(layout->local_ranks);
    rondo_free(layout->local_of);
    rondo_free(layout->node_of);
}
