/* Inside a stitch: stitch.c makes it, stitch_view.c reads it. */
#ifndef RONDO_TOPO_STITCH_IMPL_H
#define RONDO_TOPO_STITCH_IMPL_H

#include "layout/group_tree.h"
#include "topo/stitch.h"

/* What nodes of equal graphs share. Orders of the merged number of channels: device at a place, and place of
 * a device. */
struct rondo_stitch_shape {
    const uint8_t *bytes; /* the caller's, during create */
    size_t nbytes;
    int32_t used;
    int32_t ndevs, nnets, swaps;
    int32_t attach[2]; /* places in the tree's order where the left and the right child node hang: on GPUs 0
                          or 1 */
    /* Host memory: trees in places of the tree's order: of one node both, of several [1], below which nodes
     * hang. Its levels are those of the ring's first order. */
    struct rondo_group_tree inner[2];
    struct rondo_group_levels levels;
    uint8_t *cut; /* NULL without levels */
    struct rondo_graph_net *nets;
    int16_t *order[RONDO_NUM_GRAPHS], *place[RONDO_NUM_GRAPHS], *net[RONDO_NUM_GRAPHS];
};

struct rondo_stitch {
    struct rondo_stitch_summary sum;
    int32_t nchannels; /* of a node's graphs */
    int32_t host_trees, nshapes;
    int32_t depth[2]; /* of the two trees */
    int32_t ring_of[RONDO_TOPO_CHANNELS];
    /* per rank */
    int32_t *node_of;
    uint16_t *local_of;
    int32_t *rank_of; /* by node, then local rank */
    /* per node, by number */
    int32_t *first; /* in rank_of; nnodes + 1 */
    int32_t *shape_of, *position;
    /* per node, by position */
    int32_t *node_at;
    int32_t *start; /* index in every ring; nnodes + 1 */
    struct rondo_stitch_shape *shape;
};

static inline const struct rondo_stitch_shape *rondo_shape_at(const struct rondo_stitch *s, int position)
{
    return &s->shape[s->shape_of[s->node_at[position]]];
}
/** Fill ring_of and depth, which follow from the rest. */
rondo_status rondo_stitch_derive(struct rondo_stitch *s);

#endif
