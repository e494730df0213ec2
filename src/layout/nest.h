/*
 * Groups within groups, for two-shot inside each and between them (coll/hierarchical.h): positions stand in
 * groups (layout/group_tree.h, levels and cuts), and a buffer is cut into as many pieces as there are
 * positions.
 *
 * Level 0 is all positions together, 1 to nlevels are the groups, outermost first, and behind them every
 * position is by itself. Of every group each piece has one holder, where what the group's positions have for
 * it comes together: of all, position p has piece p; a group in which the holder of the next larger one
 * stands has the same; any other one the member whose place in it is p modulo its size from the group's begin
 * on. So the holders of a piece join each level by one way to each group but one, and in equal groups
 * everyone holds equally many.
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
 * For the cuts of positions; levels may be 0. Memory: 4 + 4 * nlevels bytes a position.
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

/** The position that holds a piece for the group of a level in which `position` stands. */
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
