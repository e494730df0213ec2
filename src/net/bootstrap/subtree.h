/*
 * A tree over ranks 0 .. n - 1 in which the ranks below a rank follow it without a gap: rank r and all below
 * it are r .. end - 1. So a subtree's records are one piece of the table, and ranks of a node, which mostly
 * have adjacent numbers, are mostly neighbours. A rank has at most RONDO_SUBTREE_ARITY children; the tree is
 * at most log2(n) deep, near log4(n). Nothing is stored: each rank computes the place of any rank in O(log
 * n).
 */
#ifndef RONDO_NET_BOOTSTRAP_SUBTREE_H
#define RONDO_NET_BOOTSTRAP_SUBTREE_H

#include <stdint.h>

enum { RONDO_SUBTREE_ARITY = 4 };

struct rondo_subtree {
    int rank, end; /* the subtree is rank .. end - 1 */
    int parent;    /* -1: none */
    int depth, nchildren;
    int child[RONDO_SUBTREE_ARITY + 1]; /* below child i: child[i] .. child[i + 1] - 1 */
};

static inline void rondo_subtree_divide(struct rondo_subtree *place)
{
    int below = place->end - place->rank - 1;
    place->nchildren = below < RONDO_SUBTREE_ARITY ? below : RONDO_SUBTREE_ARITY;
    for (int i = 0; i <= place->nchildren && below > 0; i++) {
        place->child[i] = place->rank + 1 + (int)((int64_t)below * i / place->nchildren);
    }
}

/** @return the place of a rank among n. */
static inline struct rondo_subtree rondo_subtree_of(int rank, int n)
{
    struct rondo_subtree place = { .rank = 0, .end = n, .parent = -1 };
    rondo_subtree_divide(&place);
    while (place.rank != rank) {
        int i = 0;
        while (place.child[i + 1] <= rank) {
            i++;
        }
        place = (struct rondo_subtree){
            .rank = place.child[i], .end = place.child[i + 1], .parent = place.rank, .depth = place.depth + 1
        };
        rondo_subtree_divide(&place);
    }
    return place;
}

/** Is `rank` below the place's rank? */
static inline int rondo_subtree_has_below(const struct rondo_subtree *place, int rank)
{
    return rank > place->rank && rank < place->end;
}

/** Is `above` an ancestor of `rank`? */
static inline int rondo_subtree_is_above(int above, int rank, int n)
{
    struct rondo_subtree place;
    if (above < 0 || above >= rank) {
        return 0;
    }
    place = rondo_subtree_of(above, n);
    return rondo_subtree_has_below(&place, rank);
}

#endif
