/* The two complementary trees of a layout's channel on one node. */
#include "coll/algo.h"

void rondo_tree_place(const struct rondo_layout *layout, int which, int i, int *parent, int child[2],
                      int *nchildren)
{
    if (layout->grouped[which].link == NULL) {
        rondo_double_tree(layout->nranks, which, i, parent, child, nchildren);
        return;
    }
    const struct rondo_tree_link *link = &layout->grouped[which].link[i];
    *parent = link->parent;
    *nchildren = (link->child[0] >= 0) + (link->child[1] >= 0);
    child[0] = link->child[0];
    child[1] = link->child[1];
}

void rondo_tree_fill(struct rondo_layout *layout, int channel)
{
    const struct rondo_ring *order = &layout->channel[0].ring;
    struct rondo_tree *tree = &layout->channel[channel].tree;
    int n = layout->nranks, which = channel & 1, parent, child[2], nchildren;
    const struct rondo_group_tree *grouped = &layout->grouped[which];
    rondo_tree_place(layout, which, order->index, &parent, child, &nchildren);
    tree->parent = parent < 0 ? -1 : order->rank_at[parent];
    tree->nchildren = nchildren;
    for (int i = 0; i < RONDO_TREE_FAN; i++) {
        tree->child[i] = i < nchildren ? order->rank_at[child[i]] : -1;
    }
    tree->root = order->rank_at[grouped->link != NULL ? grouped->root : rondo_double_tree_root(n, which)];
    tree->depth = grouped->link != NULL ? grouped->depth : rondo_double_tree_depth(n);
}
