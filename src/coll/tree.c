/* What the two complementary trees are for a channel of a layout. */
#include "coll/algo.h"

void rondo_tree_fill(struct rondo_layout *layout, int channel)
{
    const struct rondo_ring *order = &layout->channel[0].ring;
    struct rondo_tree *tree = &layout->channel[channel].tree;
    int n = layout->nranks, which = channel & 1, parent, child[2], nchildren;
    rondo_double_tree(n, which, order->index, &parent, child, &nchildren);
    tree->parent = parent < 0 ? -1 : order->rank_at[parent];
    tree->nchildren = nchildren;
    for (int i = 0; i < RONDO_TREE_FAN; i++) {
        tree->child[i] = i < nchildren ? order->rank_at[child[i]] : -1;
    }
    tree->root = order->rank_at[rondo_double_tree_root(n, which)];
    tree->depth = rondo_double_tree_depth(n);
}
