/* Checks all rings and trees of a stitch, using only its public interface. */
#include "topo/stitch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

struct walk {
    const struct rondo_stitch *stitch;
    int32_t nranks, channel;
    int32_t *order; /* a ring, or the ranks of a tree from the root down */
    uint8_t *seen;
};

static rondo_status broken(const struct walk *w, const char *fmt, ...) RONDO_PRINTF(2, 3);
static rondo_status broken(const struct walk *w, const char *fmt, ...)
{
    char text[192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return rondo_fail(RONDO_INTERNAL_ERROR,
                      "channel %d of %d ranks: %s; please report this, with the machines' topology files",
                      w->channel, w->nranks, text);
}

static rondo_status ring_check(const struct walk *w)
{
    int n = w->nranks;
    memset(w->seen, 0, (size_t)n);
    rondo_stitch_ring(w->stitch, w->channel, w->order);
    for (int i = 0; i < n; i++) {
        struct rondo_channel_layout view;
        int rank = w->order[i];
        if (rank < 0 || rank >= n || w->seen[rank]) {
            return broken(w, "position %d of the ring has rank %d, which appears twice or does not exist", i,
                          rank);
        }
        w->seen[rank] = 1;
        rondo_stitch_channel(w->stitch, rank, w->channel, &view);
        if (view.ring.index != i) {
            return broken(w, "rank %d is at position %d of the ring, but its view says %d", rank, i,
                          view.ring.index);
        }
        if (view.ring.next != w->order[(i + 1) % n] || view.ring.prev != w->order[(i + n - 1) % n]) {
            return broken(
                w, "rank %d at position %d of the ring has neighbours %d and %d, expected %d and %d", rank, i,
                view.ring.prev, view.ring.next, w->order[(i + n - 1) % n], w->order[(i + 1) % n]);
        }
    }
    return RONDO_SUCCESS;
}

/* Append the children of order[at] to the list that ends at *end. */
static rondo_status children_check(const struct walk *w, int at, int *end, int root)
{
    struct rondo_channel_layout view, below;
    int rank = w->order[at];
    rondo_stitch_channel(w->stitch, rank, w->channel, &view);
    if (view.tree.root != root || (view.tree.parent < 0) != (rank == root)) {
        return broken(w, "rank %d has parent %d in a tree with root %d, but its view has root %d", rank,
                      view.tree.parent, root, view.tree.root);
    }
    if (view.tree.nchildren < 0 || view.tree.nchildren > RONDO_TREE_FAN) {
        return broken(w, "rank %d has %d children in the tree, expected at most %d", rank,
                      view.tree.nchildren, RONDO_TREE_FAN);
    }
    for (int i = 0; i < view.tree.nchildren; i++) {
        int child = view.tree.child[i];
        if (child < 0 || child >= w->nranks || w->seen[child]) {
            return broken(w, "rank %d, a child of rank %d, appears in the tree twice or does not exist",
                          child, rank);
        }
        rondo_stitch_channel(w->stitch, child, w->channel, &below);
        if (below.tree.parent != rank) {
            return broken(w, "rank %d is a child of rank %d, but its view has parent %d", child, rank,
                          below.tree.parent);
        }
        w->seen[child] = 1;
        w->order[(*end)++] = child;
    }
    return RONDO_SUCCESS;
}

static rondo_status tree_check(const struct walk *w)
{
    struct rondo_channel_layout view;
    int depth = -1, begin = 0, end = 1;
    rondo_stitch_channel(w->stitch, 0, w->channel, &view);
    int root = view.tree.root;
    if (root < 0 || root >= w->nranks) {
        return broken(w, "the root of the tree is rank %d, which does not exist", root);
    }
    memset(w->seen, 0, (size_t)w->nranks);
    w->seen[root] = 1;
    w->order[0] = root;
    for (int level; begin < end; depth++) {
        for (level = end; begin < level; begin++) {
            RONDO_TRY(children_check(w, begin, &end, root));
        }
    }
    if (end != w->nranks) {
        return broken(w, "the tree from rank %d reaches %d ranks", root, end);
    }
    if (depth != view.tree.depth) {
        return broken(w, "the tree has depth %d, but its view says %d", depth, view.tree.depth);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_stitch_check(const struct rondo_stitch *stitch)
{
    const struct rondo_stitch_summary *sum = rondo_stitch_summary(stitch);
    struct walk w = { .stitch = stitch, .nranks = sum->nranks };
    rondo_status status;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(w.order, sum->nranks, "a walk over the job's rings and trees"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(w.seen, sum->nranks, "a walk over the job's rings and trees"), out);
    for (w.channel = 0; w.channel < sum->nchannels; w.channel++) {
        RONDO_TRY_GOTO(ring_check(&w), out);
        RONDO_TRY_GOTO(tree_check(&w), out);
    }
out:
    rondo_free(w.seen);
    rondo_free(w.order);
    return status;
}
