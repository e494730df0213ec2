/* The nodes of a communicator, its channels and the numbers of the cost model. init/node.c provides the
 * rings, and the stitch that trees over several nodes are read from. */
#include "comm/layout_fill.h"

#include <stdlib.h>

#include "base/cores.h"
#include "base/mem.h"
#include "coll/algo.h"
#include "topo/stitch.h"
#include "tuner/model.h"
#include "tuner/tune_file.h"

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

/* Number nodes by their lowest rank, so that all ranks find the same numbers. */
static rondo_status number_nodes(struct rondo_layout *layout, const struct rondo_peer *peers)
{
    int n = layout->nranks;
    struct place *place;
    int32_t *leader;
    rondo_status status = RONDO_NEW_ARRAY(place, n, "the list of nodes");
    if (status == RONDO_SUCCESS &&
        (status = RONDO_NEW_ARRAY(leader, n, "the list of nodes")) != RONDO_SUCCESS) {
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
    layout->min_local = layout->nranks;
    for (int i = 0; i < layout->nnodes; i++) {
        layout->min_local = ranks_of[i] < layout->min_local ? ranks_of[i] : layout->min_local;
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

/* All ranks compute the same value, from records that all have. */
static rondo_status fill_model(struct rondo_layout *layout, const struct rondo_peer *peers)
{
    double worst = 0;
    struct rondo_cores *cores = NULL;
    int *ranks = NULL;
    rondo_status status;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(cores, layout->nnodes, "the nodes' cores"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(ranks, layout->nnodes, "the nodes' cores"), out);
    for (int r = 0; r < layout->nranks; r++) {
        if (peers[r].cores != NULL) {
            rondo_cores_unite(&cores[layout->node_of[r]], peers[r].cores);
        }
        ranks[layout->node_of[r]]++;
    }
    for (int i = 0; i < layout->nnodes; i++) {
        int n = rondo_cores_count(&cores[i]);
        double load = (double)ranks[i] / (n > 0 ? n : 1);
        worst = load > worst ? load : worst;
    }
    rondo_model_host(&layout->model, worst);
out:
    rondo_free(cores);
    rondo_free(ranks);
    return status;
}

rondo_status rondo_layout_fill(struct rondo_layout *layout, const struct rondo_peer *peers, int rank,
                               int nranks)
{
    layout->rank = rank;
    layout->nranks = nranks;
    RONDO_TRY(RONDO_NEW_ARRAY(layout->node_of, nranks, "the layout"));
    RONDO_TRY(RONDO_NEW_ARRAY(layout->local_of, nranks, "the layout"));
    RONDO_TRY(number_nodes(layout, peers));
    RONDO_TRY(count_locals(layout));
    return fill_model(layout, peers);
}

rondo_status rondo_layout_channels(struct rondo_layout *layout, int nchannels, int least, uint32_t protos)
{
    layout->protos = protos;
    layout->rank_order = rondo_tune_is_strict();
    layout->nchannels = nchannels;
    layout->least_channels = least;
    return RONDO_NEW_ARRAY(layout->channel, nchannels, "the channels");
}

rondo_status rondo_layout_ring(struct rondo_layout *layout, int channel, int32_t *rank_at)
{
    struct rondo_ring *ring = &layout->channel[channel].ring;
    int n = layout->nranks;
    ring->rank_at = rank_at;
    RONDO_TRY(RONDO_NEW_ARRAY(ring->index_of, n, "a ring"));
    for (int i = 0; i < n; i++) {
        ring->index_of[rank_at[i]] = i;
    }
    ring->index = ring->index_of[layout->rank];
    ring->prev = rank_at[(ring->index + n - 1) % n];
    ring->next = rank_at[(ring->index + 1) % n];
    return RONDO_SUCCESS;
}

void rondo_layout_trees(struct rondo_layout *layout)
{
    for (int c = 0; c < layout->nchannels; c++) {
        struct rondo_channel_layout view;
        if (layout->stitch == NULL) {
            rondo_tree_fill(layout, c);
        } else {
            rondo_stitch_channel(layout->stitch, layout->rank, c, &view);
            layout->channel[c].tree = view.tree;
        }
    }
}

/* The peer of a rank of this node, whose tree is given; -1: none. */
static int net_of(const struct rondo_layout *layout, int rank, const struct rondo_tree *tree, int channel,
                  int port, int is_send)
{
    int child = port - RONDO_PORT_CHILD, peer;
    if (port == RONDO_PORT_RING) {
        return rondo_stitch_net(layout->stitch, rank, channel, is_send);
    }
    peer = port == RONDO_PORT_PARENT               ? tree->parent
           : child >= 0 && child < tree->nchildren ? tree->child[child]
                                                   : -1;
    return peer < 0 || layout->node_of[peer] == layout->node
               ? -1
               : rondo_stitch_tree_net(layout->stitch, rank, channel);
}

const char *rondo_layout_net(const struct rondo_layout *layout, int channel, int port, int is_send)
{
    return layout->stitch == NULL
               ? NULL
               : rondo_stitch_net_name(
                     layout->stitch, layout->rank,
                     net_of(layout, layout->rank, &layout->channel[channel].tree, channel, port, is_send));
}

/* List the conns of a channel that a rank of this node sends to other nodes through this rank's GPU. @return
 * their number. */
static int relayed_by(const struct rondo_layout *layout, int rank, int channel, struct rondo_relayed *list)
{
    const struct rondo_ring *ring = &layout->channel[channel].ring;
    struct rondo_channel_layout view;
    int n = 0;
    rondo_stitch_channel(layout->stitch, rank, channel, &view);
    for (int port = RONDO_PORT_RING; port < RONDO_PORT_CHILD + view.tree.nchildren; port++) {
        int net = net_of(layout, rank, &view.tree, channel, port, 1);
        int to = port == RONDO_PORT_RING     ? ring->rank_at[(ring->index_of[rank] + 1) % layout->nranks]
                 : port == RONDO_PORT_PARENT ? view.tree.parent
                                             : view.tree.child[port - RONDO_PORT_CHILD];
        if (to >= 0 && layout->node_of[to] != layout->node &&
            rondo_stitch_relay(layout->stitch, rank, net) == layout->local_rank) {
            list[n++] = (struct rondo_relayed){ .from = rank,
                                                .to = to,
                                                .channel = channel,
                                                .net_name = rondo_stitch_net_name(layout->stitch, rank,
                                                                                  net) };
        }
    }
    return n;
}

rondo_status rondo_layout_relayed(const struct rondo_layout *layout, struct rondo_relayed **list_out, int *n)
{
    enum { A_CHANNEL = 2 + RONDO_TREE_FAN };
    struct rondo_relayed *list;
    *list_out = NULL;
    *n = 0;
    if (layout->stitch == NULL || layout->nlocal < 2) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(list, (size_t)A_CHANNEL * (size_t)layout->nlocal * (size_t)layout->nchannels,
                              "conns of other GPUs"));
    for (int i = 0; i < layout->nlocal; i++) {
        for (int c = 0; layout->local_ranks[i] != layout->rank && c < layout->nchannels; c++) {
            *n += relayed_by(layout, layout->local_ranks[i], c, &list[*n]);
        }
    }
    *list_out = list;
    return RONDO_SUCCESS;
}

/* Channels with the same order share its arrays. */
static int first_with_ring(const struct rondo_layout *layout, int channel)
{
    for (int c = 0; c < channel; c++) {
        if (layout->channel[c].ring.rank_at == layout->channel[channel].ring.rank_at) {
            return 0;
        }
    }
    return 1;
}

void rondo_layout_release(struct rondo_layout *layout)
{
    for (int c = layout->channel != NULL ? layout->nchannels - 1 : -1; c >= 0; c--) {
        if (first_with_ring(layout, c)) {
            rondo_free(layout->channel[c].ring.rank_at);
            rondo_free(layout->channel[c].ring.index_of);
        }
    }
    rondo_free(layout->channel);
    rondo_free(layout->nics);
    rondo_free(layout->grouped[0].link);
    rondo_free(layout->grouped[1].link);
    rondo_nest_destroy(layout->nest);
    rondo_stitch_destroy(layout->stitch);
    rondo_free(layout->local_ranks);
    rondo_free(layout->local_of);
    rondo_free(layout->node_of);
}
