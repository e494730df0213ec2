/*
 * Groups within groups, for hierarchical algorithms (coll/hierarchical.h). Positions form groups
 * (layout/group_tree.h: levels and cuts), and a buffer is cut into as many pieces as there are positions.
 *
 * Level 0 is all positions together, levels 1 to nlevels are the groups, outermost first, and beyond them
 * each position is alone. In every group each piece has one holder, which combines what the group's positions
 * have for that piece. At level 0, position p holds piece p. A group that contains the holder of the next
 * larger group has the same holder. In any other group it is the member at place p modulo the group's size,
 * counted from its begin. So a piece's holders join each level along one edge fewer than it has groups, and
 * in equal groups all positions hold equally many pieces.
 */
#ifndef RONDO_LAYOUT_NEST_H
#define RONDO_LAYOUT_NEST_H

#include "layout/group_tree.h"

struct rondo_nest {
    int32_t n, nlevels;
    int16_t *rank_at;     /* position -> local rank */
    int16_t *place;       /* local rank -> position */
    int16_t *begin, *end; /* [(level - 1) * n + position]: its group */
};

/**
 * Create the groups from the cuts; nlevels may be 0. Takes 4 + 4 * nlevels bytes per position.
 * @param rank_at  position -> local rank, copied
 */
rondo_status rondo_nest_create(struct rondo_nest **nest, int n, const int32_t *rank_at, const uint8_t *cut,
                               int nlevels);
/** NULL is fine. */
void rondo_nest_destroy(struct rondo_nest *nest);

/** The group of a position: [begin, end). */
static inline int rondo_nest_begin(const struct rondo_nest *nest, int level, int position)
{
    return level == 0 ? 0 : level > nest->nlevels ? position : nest->begin[(level - 1) * nest->n + position];
}
static inline int rondo_nest_end(const struct rondo_nest *nest, int level, int position)
{
    return level == 0              ? nest->n
           : level > nest->nlevels ? position + 1
                                   : nest->end[(level - 1) * nest->n + position];
}

/** The position that holds a piece for the group of `position` at a level. */
static inline int rondo_nest_holder(const struct rondo_nest *nest, int level, int position, int piece)
{
    int holder = piece;
    for (int l = 1; l <= level; l++) {
        int begin = rondo_nest_begin(nest, l, position), size = rondo_nest_end(nest, l, position) - begin;
        if (holder < begin || holder >= begin + size) {
            int from = (piece - begin) % size;
            holder = begin + (from < 0 ? from + size : from);
        }
    }
    return holder;
}

/** The same as a local rank. */
static inline int rondo_nest_rank(const struct rondo_nest *nest, int level, int position, int piece)
{
    return nest->rank_at[rondo_nest_holder(nest, level, position, piece)];
}

#endif
