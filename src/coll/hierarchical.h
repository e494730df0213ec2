/*
 * Two-shot inside groups and between them: ranks of one node in groups of several levels (layout/nest.h),
 * with direct access. The buffer is cut into one piece a rank. From the innermost level out, each piece's
 * holder in a group reduces what the holders in the groups inside have; the outermost holder has the result
 * and gives it to the holders below, they to theirs, down to every rank. Until then, partial sums lie in
 * the holders' outputs.
 *
 * Groups of any level pass 2 (groups - 1) times the bytes of the buffer among them: the minimum, since all
 * groups but one must send their part of every element and receive the result. Plain two-shot passes m
 * times as much between groups of m ranks.
 *
 * A rank takes a step once the ranks whose buffers it needs have taken the step before. Without groups it
 * is two-shot. Sums are in the order of groups: independent of the size, but not rank order. Pure
 * functions, shared with CUDA, which has no groups.
 */
#ifndef RONDO_COLL_HIERARCHICAL_H
#define RONDO_COLL_HIERARCHICAL_H

#include "coll/twoshot.h"

/* Moves between OPEN and CLOSE: inwards and outwards at every level; the outermost does both at once. */
RONDO_FN uint32_t rondo_hierarchical_moves(int32_t nlevels) { return 2 * (uint32_t)nlevels + 1; }

RONDO_FN uint32_t rondo_hierarchical_all_reduce_nsteps(const struct rondo_seat *seat)
{
    return rondo_hierarchical_moves(seat->nlevels) + 2;
}

RONDO_FN struct rondo_step rondo_hierarchical_all_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    uint32_t levels = (uint32_t)seat->nlevels;
    struct rondo_step s = rondo_step_none();
    if (levels == 0) return rondo_twoshot_all_reduce_step(seat, k);
    if (k == 0 || k > rondo_hierarchical_moves(seat->nlevels)) {
        s.act = (uint16_t)(k == 0 ? RONDO_OPEN : RONDO_CLOSE);
        return s;
    }
    s.level = (uint8_t)(k <= levels + 1 ? levels + 1 - k : k - levels - 1);
    s.act = (uint16_t)(k <= levels ? RONDO_GROUPS | RONDO_PULL | RONDO_REDUCE | RONDO_COPY
                       : k == levels + 1
                           ? RONDO_GROUPS | RONDO_PULL | RONDO_REDUCE | RONDO_FINISH | RONDO_PUSH
                           : RONDO_GROUPS | RONDO_PUSH);
    return s;
}

#endif
