#include "topo/stitch_impl.h"

#include <string.h>
#include "layout/double_tree.h"
#include "base/mem.h"

/* ---- lookups ---- */

static int rank_at(const struct rondo_stitch *s, int position, int dev)
{
    return s->rank_of[s->first[s->node_at[position]] + dev];
}

/* If channels come in mirrored pairs, every other node swaps the two, so that each rail connects to
 * itself. */
static int swapped(const struct rondo_stitch *s, const struct rondo_stitch_shape *shape, int position, int c)
{
    return shape->swaps && (position & 1) != 0 && (c ^ 1) < s->nchannels ? c ^ 1 : c;
}

static int ring_channel(const struct rondo_stitch *s, int position, int channel)
{
    return swapped(s, rondo_shape_at(s, position), position, channel % s->nchannels);
}

static int ring_dev(const struct rondo_stitch *s, int position, int channel, int place)
{
    const struct rondo_stitch_shape *shape = rondo_shape_at(s, position);
    return shape->order[RONDO_GRAPH_RING][ring_channel(s, position, channel) * shape->ndevs + place];
}

static int ring_place(const struct rondo_stitch *s, int position, int channel, int dev)
{
    const struct rondo_stitch_shape *shape = rondo_shape_at(s, position);
    return shape->place[RONDO_GRAPH_RING][ring_channel(s, position, channel) * shape->ndevs + dev];
}

/* On one node of host memory, the two trees are those over channel 0's ring, and channels alternate
 * between them. */
static int flat_trees(const struct rondo_stitch *s) { return s->host_trees && s->sum.nnodes == 1; }

static int tree_which(const struct rondo_stitch *s, int channel)
{
    return (flat_trees(s) ? channel : channel / s->nchannels) & 1;
}

static int tree_rank(const struct rondo_stitch *s, int position, int channel, int place)
{
    const struct rondo_stitch_shape *shape = rondo_shape_at(s, position);
    if (flat_trees(s)) {
        return rank_at(s, 0, shape->order[RONDO_GRAPH_RING][place]);
    }
    return rank_at(s, position,
                   shape->order[RONDO_GRAPH_TREE][channel % s->nchannels * shape->ndevs + place]);
}

static int tree_place(const struct rondo_stitch *s, int position, int channel, int dev)
{
    const struct rondo_stitch_shape *shape = rondo_shape_at(s, position);
    return flat_trees(s) ? shape->place[RONDO_GRAPH_RING][dev]
                         : shape->place[RONDO_GRAPH_TREE][channel % s->nchannels * shape->ndevs + dev];
}

/* ---- the tree inside a node, as places of its order ---- */

static int inner_root(const struct rondo_stitch *s, const struct rondo_stitch_shape *shape, int which)
{
    return flat_trees(s) ? shape->inner[which].root : 0;
}

static void inner_tree(const struct rondo_stitch *s, const struct rondo_stitch_shape *shape, int which,
                       int place, int *parent, int child[2], int *nchildren)
{
    if (!s->host_trees) {
        *parent = place - 1;
        *nchildren = place + 1 < shape->ndevs;
        child[0] = place + 1;
        return;
    }
    const struct rondo_tree_link *link = &shape->inner[flat_trees(s) ? which : 1].link[place];
    *parent = link->parent;
    *nchildren = (link->child[0] >= 0) + (link->child[1] >= 0);
    child[0] = link->child[0];
    child[1] = link->child[1];
}

static int inner_depth(const struct rondo_stitch *s, const struct rondo_stitch_shape *shape, int which)
{
    return s->host_trees ? shape->inner[flat_trees(s) ? which : 1].depth : shape->ndevs - 1;
}

/* Hops inside a node from its root to the device where a child node attaches. */
static int attach_hops(const struct rondo_stitch *s, const struct rondo_stitch_shape *shape, int place)
{
    return place == 0 || !s->host_trees ? place : shape->inner[1].hops;
}

/* The place of the tree's order where a child node attaches. The topmost node has no parent, and its only
 * child attaches as a right child. */
static int attach_place(const struct rondo_stitch *s, int position, int parent, int i)
{
    return rondo_shape_at(s, position)->attach[parent < 0 ? 1 : i];
}

/* Hops from the node at `position` to the farthest rank below it. */
static int depth_below(const struct rondo_stitch *s, int which, int position)
{
    const struct rondo_stitch_shape *shape = rondo_shape_at(s, position);
    int parent, child[2], nchildren, most = inner_depth(s, shape, which);
    rondo_double_tree(s->sum.nnodes, which, position, &parent, child, &nchildren);
    for (int i = 0; i < nchildren; i++) {
        int hops = attach_hops(s, shape, attach_place(s, position, parent, i)) + 1 +
                   depth_below(s, which, child[i]);
        most = hops > most ? hops : most;
    }
    return most;
}

/* Are the rings of two channels equal on all nodes? */
static int rings_equal(const struct rondo_stitch *s, const uint8_t *parities, int a, int b)
{
    for (int i = 0; i < s->nshapes; i++) {
        const struct rondo_stitch_shape *shape = &s->shape[i];
        for (int odd = 0; odd < 2; odd++) {
            const int16_t *order = shape->order[RONDO_GRAPH_RING];
            int c = swapped(s, shape, odd, a), d = swapped(s, shape, odd, b);
            if ((parities[i] >> odd & 1) != 0 && memcmp(order + c * shape->ndevs, order + d * shape->ndevs,
                                                        sizeof(*order) * (size_t)shape->ndevs) != 0) {
                return 0;
            }
        }
    }
    return 1;
}

rondo_status rondo_stitch_derive(struct rondo_stitch *s)
{
    uint8_t *parities; /* per shape: which parities of position it occurs at */
    RONDO_TRY(RONDO_NEW_ARRAY(parities, s->nshapes, "the stitched graphs of the job's nodes"));
    for (int position = 0; position < s->sum.nnodes; position++) {
        parities[s->shape_of[s->node_at[position]]] |= (uint8_t)(1 << (position & 1));
    }
    for (int c = 0; c < s->nchannels; c++) {
        int b = 0;
        while (b < c && (s->ring_of[b] != b || !rings_equal(s, parities, b, c))) {
            b++;
        }
        s->ring_of[c] = b;
    }
    rondo_free(parities);
    for (int which = 0; which < 2; which++) {
        s->depth[which] = depth_below(s, which, rondo_double_tree_root(s->sum.nnodes, which));
    }
    return RONDO_SUCCESS;
}

/* ---- one rank's view ---- */

static void ring_view(const struct rondo_stitch *s, int position, int channel, int dev,
                      struct rondo_ring *ring)
{
    int n = s->sum.nnodes, ndevs = rondo_shape_at(s, position)->ndevs,
        place = ring_place(s, position, channel, dev);
    int before = (position + n - 1) % n, after = (position + 1) % n;
    ring->index = s->start[position] + place;
    ring->prev = place > 0
                     ? rank_at(s, position, ring_dev(s, position, channel, place - 1))
                     : rank_at(s, before, ring_dev(s, before, channel, rondo_shape_at(s, before)->ndevs - 1));
    ring->next = place + 1 < ndevs ? rank_at(s, position, ring_dev(s, position, channel, place + 1))
                                   : rank_at(s, after, ring_dev(s, after, channel, 0));
}

/* The parent rank of a node's root; -1: none. */
static int parent_over_nodes(const struct rondo_stitch *s, int position, int channel)
{
    int n = s->sum.nnodes, which = tree_which(s, channel), up, parent, child[2], nchildren;
    rondo_double_tree(n, which, position, &up, child, &nchildren);
    if (up < 0) {
        return -1;
    }
    rondo_double_tree(n, which, up, &parent, child, &nchildren);
    return tree_rank(s, up, channel, attach_place(s, up, parent, child[0] != position));
}

static void children_over_nodes(const struct rondo_stitch *s, int position, int channel, int place,
                                struct rondo_tree *tree)
{
    int parent, child[2], nchildren;
    rondo_double_tree(s->sum.nnodes, tree_which(s, channel), position, &parent, child, &nchildren);
    for (int i = 0; i < nchildren; i++) {
        if (attach_place(s, position, parent, i) == place) {
            tree->child[tree->nchildren++] = tree_rank(s, child[i], channel, 0);
        }
    }
}

static void tree_view(const struct rondo_stitch *s, int position, int channel, int dev,
                      struct rondo_tree *tree)
{
    int which = tree_which(s, channel), place = tree_place(s, position, channel, dev);
    int top = rondo_double_tree_root(s->sum.nnodes, which), parent, child[2], nchildren;
    inner_tree(s, rondo_shape_at(s, position), which, place, &parent, child, &nchildren);
    tree->parent = parent >= 0 ? tree_rank(s, position, channel, parent)
                               : parent_over_nodes(s, position, channel);
    tree->nchildren = 0;
    for (int i = 0; i < nchildren; i++) {
        tree->child[tree->nchildren++] = tree_rank(s, position, channel, child[i]);
    }
    children_over_nodes(s, position, channel, place, tree);
    for (int i = tree->nchildren; i < RONDO_TREE_FAN; i++) {
        tree->child[i] = -1;
    }
    tree->root = tree_rank(s, top, channel, inner_root(s, rondo_shape_at(s, top), which));
    tree->depth = s->depth[which];
}

void rondo_stitch_channel(const struct rondo_stitch *stitch, int rank, int channel,
                          struct rondo_channel_layout *out)
{
    int position = stitch->position[stitch->node_of[rank]], dev = stitch->local_of[rank];
    out->ring.rank_at = out->ring.index_of = NULL;
    ring_view(stitch, position, channel, dev, &out->ring);
    tree_view(stitch, position, channel, dev, &out->tree);
}

void rondo_stitch_ring(const struct rondo_stitch *stitch, int channel, int32_t *ranks)
{
    for (int position = 0; position < stitch->sum.nnodes; position++) {
        const struct rondo_stitch_shape *shape = rondo_shape_at(stitch, position);
        const int16_t *order = shape->order[RONDO_GRAPH_RING] +
                               ring_channel(stitch, position, channel) * shape->ndevs;
        for (int i = 0; i < shape->ndevs; i++) {
            *ranks++ = rank_at(stitch, position, order[i]);
        }
    }
}

const uint8_t *rondo_stitch_cuts(const struct rondo_stitch *stitch)
{
    return flat_trees(stitch) ? rondo_shape_at(stitch, 0)->cut : NULL;
}

int rondo_stitch_ring_of(const struct rondo_stitch *stitch, int channel)
{
    return stitch->ring_of[channel % stitch->nchannels];
}

int rondo_stitch_net(const struct rondo_stitch *stitch, int rank, int channel, int send)
{
    int position = stitch->position[stitch->node_of[rank]], end = send != 0;
    const struct rondo_stitch_shape *shape = rondo_shape_at(stitch, position);
    if (stitch->sum.nnodes == 1 ||
        ring_place(stitch, position, channel, stitch->local_of[rank]) != (end ? shape->ndevs - 1 : 0)) {
        return -1;
    }
    return shape->net[RONDO_GRAPH_RING][2 * ring_channel(stitch, position, channel) + end];
}

int rondo_stitch_tree_net(const struct rondo_stitch *stitch, int rank, int channel)
{
    int position = stitch->position[stitch->node_of[rank]],
        place = tree_place(stitch, position, channel, stitch->local_of[rank]);
    struct rondo_tree below = { .nchildren = 0 };
    children_over_nodes(stitch, position, channel, place, &below);
    if (below.nchildren == 0 && (place != 0 || parent_over_nodes(stitch, position, channel) < 0)) {
        return -1;
    }
    return rondo_shape_at(stitch, position)
        ->net[RONDO_GRAPH_TREE][2 * (channel % stitch->nchannels) + (place != 0)];
}

int rondo_stitch_rail(const struct rondo_stitch *stitch, int rank, int net)
{
    const struct rondo_stitch_shape *shape = &stitch->shape[stitch->shape_of[stitch->node_of[rank]]];
    return net < 0 || net >= shape->nnets ? -1 : shape->nets[net].rail;
}

const char *rondo_stitch_net_name(const struct rondo_stitch *stitch, int rank, int net)
{
    const struct rondo_stitch_shape *shape = &stitch->shape[stitch->shape_of[stitch->node_of[rank]]];
    return net < 0 || net >= shape->nnets || shape->nets[net].name[0] == '\0' ? NULL : shape->nets[net].name;
}

int rondo_stitch_nnets(const struct rondo_stitch *stitch, int rank)
{
    return stitch->shape[stitch->shape_of[stitch->node_of[rank]]].nnets;
}

uint32_t rondo_stitch_gdr(const struct rondo_stitch *stitch, int rank, int net)
{
    const struct rondo_stitch_shape *shape = &stitch->shape[stitch->shape_of[stitch->node_of[rank]]];
    uint32_t bits = 0;
    for (int kind = 0; net >= 0 && net < shape->nnets && stitch->local_of[rank] < 64 && kind < RONDO_NUM_GDR;
         kind++) {
        bits |= (uint32_t)(shape->nets[net].gdr[kind] >> stitch->local_of[rank] & 1) << kind;
    }
    return bits;
}

int rondo_stitch_relay(const struct rondo_stitch *stitch, int rank, int net)
{
    const struct rondo_stitch_shape *shape = &stitch->shape[stitch->shape_of[stitch->node_of[rank]]];
    int local = stitch->local_of[rank];
    return net < 0 || net >= shape->nnets || local >= RONDO_NET_DEVS ? -1 : shape->nets[net].relay[local] - 1;
}

int rondo_stitch_toward(const struct rondo_stitch *stitch, int rank, int channel, int to)
{
    struct rondo_channel_layout view;
    if (rank == to) {
        return -1;
    }
    for (int up; to >= 0; to = up) { /* `to` is below rank if rank is among its ancestors */
        rondo_stitch_channel(stitch, to, channel, &view);
        up = view.tree.parent;
        if (up == rank) {
            rondo_stitch_channel(stitch, rank, channel, &view);
            for (int i = 0; i < view.tree.nchildren; i++) {
                if (view.tree.child[i] == to) return 1 + i;
            }
        }
    }
    return 0;
}

const struct rondo_stitch_summary *rondo_stitch_summary(const struct rondo_stitch *stitch)
{
    return &stitch->sum;
}
