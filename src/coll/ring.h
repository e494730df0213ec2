/*
 * Schedules around a ring: each position receives from the one before and sends to the one after.
 *
 * A block starts at one position and moves on by one a step: at step k, position i works on the block that
 * is k (all_reduce, reduce_scatter: k + 1) places behind it. Chains are rings that are not closed: they
 * begin or end at the root. A ring of one position copies. Pure functions, shared with CUDA.
 */
#ifndef RONDO_COLL_RING_H
#define RONDO_COLL_RING_H

#include "coll/step.h"

enum {
    RONDO_PASS_SUM = RONDO_RECV | RONDO_REDUCE | RONDO_SEND, /* add this rank's part and pass it on */
    RONDO_END_SUM = RONDO_RECV | RONDO_REDUCE | RONDO_FINISH | RONDO_COPY,
    RONDO_PASS_COPY = RONDO_RECV | RONDO_COPY | RONDO_SEND,
    RONDO_END_COPY = RONDO_RECV | RONDO_COPY
};

/* The position `back` places before `index`; back < 2 * nranks. */
RONDO_FN int32_t rondo_ring_behind(int32_t index, uint32_t back, int32_t nranks)
{
    int32_t position = index - (int32_t)back;
    position = position < 0 ? position + nranks : position;
    return position < 0 ? position + nranks : position;
}

RONDO_FN uint32_t rondo_ring_all_reduce_nsteps(const struct rondo_seat *seat)
{
    return 2 * (uint32_t)seat->nranks - 1;
}

/* Steps 0 .. n-1 reduce, and block b is finished at position b. Steps n .. 2n-2 carry the finished blocks
 * once around. */
RONDO_FN struct rondo_step rondo_ring_all_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    uint32_t n = (uint32_t)seat->nranks, act;
    if (n == 1) return rondo_step_on(RONDO_FINISH | RONDO_COPY, RONDO_PORT_RING, 0);
    if (k == 0) {
        act = RONDO_SEND;
    } else if (k < n - 1) {
        act = RONDO_PASS_SUM;
    } else if (k == n - 1) {
        act = (uint32_t)RONDO_END_SUM | RONDO_SEND;
    } else {
        act = k < 2 * n - 2 ? RONDO_PASS_COPY : RONDO_END_COPY;
    }
    return rondo_step_on(act, RONDO_PORT_RING, rondo_ring_behind(seat->index, k + 1, seat->nranks));
}

RONDO_FN uint32_t rondo_ring_reduce_scatter_nsteps(const struct rondo_seat *seat)
{
    return (uint32_t)seat->nranks;
}

/* Block b begins at position b + 1 and is finished at position b. */
RONDO_FN struct rondo_step rondo_ring_reduce_scatter_step(const struct rondo_seat *seat, uint32_t k)
{
    uint32_t n = (uint32_t)seat->nranks, act;
    if (n == 1) return rondo_step_on(RONDO_FINISH | RONDO_COPY, RONDO_PORT_RING, 0);
    if (k == 0) {
        act = RONDO_SEND;
    } else {
        act = k < n - 1 ? RONDO_PASS_SUM : RONDO_END_SUM;
    }
    return rondo_step_on(act, RONDO_PORT_RING, rondo_ring_behind(seat->index, k + 1, seat->nranks));
}

RONDO_FN uint32_t rondo_ring_all_gather_nsteps(const struct rondo_seat *seat)
{
    return (uint32_t)seat->nranks;
}

/* Block b begins at position b and ends at position b - 1. */
RONDO_FN struct rondo_step rondo_ring_all_gather_step(const struct rondo_seat *seat, uint32_t k)
{
    uint32_t n = (uint32_t)seat->nranks, act;
    if (k == 0) {
        act = n > 1 ? RONDO_COPY | RONDO_SEND : RONDO_COPY;
    } else {
        act = k < n - 1 ? RONDO_PASS_COPY : RONDO_END_COPY;
    }
    return rondo_step_on(act, RONDO_PORT_RING, rondo_ring_behind(seat->index, k, seat->nranks));
}

RONDO_FN uint32_t rondo_chain_broadcast_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

/* From the root onwards, once around to the position before it. */
RONDO_FN struct rondo_step rondo_chain_broadcast_step(const struct rondo_seat *seat, uint32_t k)
{
    int32_t from_root = rondo_ring_behind(seat->index, (uint32_t)seat->root, seat->nranks);
    uint32_t act = from_root == 0 ? RONDO_COPY | RONDO_SEND : RONDO_PASS_COPY;
    (void)k;
    if (from_root == seat->nranks - 1) act &= ~(uint32_t)RONDO_SEND;
    return rondo_step_on(act, RONDO_PORT_RING, 0);
}

RONDO_FN uint32_t rondo_chain_reduce_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

/* From the position after the root onwards, once around to the root. */
RONDO_FN struct rondo_step rondo_chain_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    int32_t from_start = rondo_ring_behind(seat->index, (uint32_t)seat->root + 1, seat->nranks);
    uint32_t act = RONDO_PASS_SUM;
    (void)k;
    if (from_start == 0) act = RONDO_SEND;
    if (seat->index == seat->root) act = seat->nranks > 1 ? RONDO_END_SUM : RONDO_FINISH | RONDO_COPY;
    return rondo_step_on(act, RONDO_PORT_RING, 0);
}

#endif
