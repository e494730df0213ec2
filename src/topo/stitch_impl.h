/* Private to the stitch: stitch.c builds it, stitch_view.c reads it. */
#ifndef RONDO_TOPO_STITCH_IMPL_H
#define RONDO_TOPO_STITCH_IMPL_H

#include "layout/group_tree.h"
#include "topo/stitch.h"

/* What nodes with equal graphs share. The orders have the merged number of channels: order is the device
 * at a place, place the place of a device. */
struct rondo_stitch_shape {
    const uint8_t *bytes; /* the caller's, during create only */
    size_t nbytes;
    int32_t used;
    int32_t ndevs, nnets, swaps;
    /* places in the tree's order to which the left and right child nodes attach: at GPU 0 or 1 */
    int32_t attach[2];
    /* For host memory: trees over the places of the tree's order. On one node both are used; on several
     * only [1], with child nodes below it. The levels are those of the ring's first order. */
    struct rondo_group_tree inner[2];
    struct rondo_group_levels levels;
    uint8_t *cut; /* NULL without levels */
    struct rondo_graph_net *nets;
    int16_t *order[RONDO_NUM_GRAPHS], *place[RONDO_NUM_GRAPHS], *net[RONDO_NUM_GRAPHS];
};

struct rondo_stitch {
    struct rondo_stitch_summary sum;
    int32_t nchannels; /* per graph of a node */
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
