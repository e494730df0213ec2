/*
 * Reductions in the order of positions, whatever the size: every block begins at position 0, each position
 * adds its part after what arrives, the last one finishes, and the result goes on around the ring to the
 * ranks that want it. Where rings are in rank order, this is the order of RONDO_DETERMINISM=strict.
 *
 * A loop has a block for each position (maps SPLIT and BLOCK), and all blocks begin before a rank waits for
 * the first result, so as many are under way as there are hops. The conns of a ring together hold a whole
 * loop (a block has at most RONDO_CHUNK_SLICES slices, coll/chunk.h), so position 0 can always begin the
 * last block. Pure functions, shared with CUDA.
 */
#ifndef RONDO_COLL_ORDERED_H
#define RONDO_COLL_ORDERED_H

#include "coll/step.h"

RONDO_FN uint32_t rondo_ordered_nsteps(const struct rondo_seat *seat)
{
    return seat->nranks > 1 ? 2 * (uint32_t)seat->nranks : 1;
}

/* until: the last position that gets the result; every: those on the way keep it too. */
RONDO_FN struct rondo_step rondo_ordered_step(const struct rondo_seat *seat, uint32_t k, int32_t until,
                                              int every)
{
    int32_t n = seat->nranks, last = n - 1, block = (int32_t)k < n ? (int32_t)k : (int32_t)k - n;
    uint32_t act;
    if (n == 1) return rondo_step_on(RONDO_FINISH | RONDO_COPY, RONDO_PORT_RING, 0);
    if ((int32_t)k >= n) { /* results */
        if (seat->index == last || until == last || seat->index > until) return rondo_step_none();
        act = RONDO_RECV;
        if (every || seat->index == until) act |= RONDO_COPY;
        if (seat->index != until) act |= RONDO_SEND;
    } else if (seat->index == last) {
        act = RONDO_RECV | RONDO_REDUCE | RONDO_FINISH;
        if (every || until == last) act |= RONDO_COPY;
        if (until != last) act |= RONDO_SEND;
    } else {
        act = seat->index == 0 ? RONDO_SEND : RONDO_RECV | RONDO_REDUCE | RONDO_SEND;
    }
    return rondo_step_on(act, RONDO_PORT_RING, block);
}

RONDO_FN uint32_t rondo_ordered_all_reduce_nsteps(const struct rondo_seat *seat)
{
    return rondo_ordered_nsteps(seat);
}

RONDO_FN struct rondo_step rondo_ordered_all_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_ordered_step(seat, k, seat->nranks - 2, 1);
}

RONDO_FN uint32_t rondo_ordered_reduce_nsteps(const struct rondo_seat *seat)
{
    return rondo_ordered_nsteps(seat);
}

RONDO_FN struct rondo_step rondo_ordered_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_ordered_step(seat, k, seat->root, 0);
}

RONDO_FN uint32_t rondo_ordered_reduce_scatter_nsteps(const struct rondo_seat *seat)
{
    return rondo_ordered_nsteps(seat);
}

/* Block b belongs to position b. */
RONDO_FN struct rondo_step rondo_ordered_reduce_scatter_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_ordered_step(seat, k, (int32_t)(k % (uint32_t)seat->nranks), 0);
}

#endif
