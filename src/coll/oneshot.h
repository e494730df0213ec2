/* Schedules without neighbours to pass through: the mailbox of a node, and one sender with one receiver. Pure
 * functions, shared with CUDA. */
#ifndef RONDO_COLL_ONESHOT_H
#define RONDO_COLL_ONESHOT_H

#include "coll/step.h"

RONDO_FN uint32_t rondo_oneshot_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 2;
}

RONDO_FN struct rondo_step rondo_oneshot_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    (void)seat;
    s.act = k == 0 ? RONDO_PUBLISH : RONDO_COLLECT | RONDO_REDUCE | RONDO_FINISH | RONDO_COPY;
    return s;
}

/* The same where everyone takes all posts as they are. */
RONDO_FN uint32_t rondo_oneshot_gather_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 2;
}

RONDO_FN struct rondo_step rondo_oneshot_gather_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    s.act = k == 0 ? RONDO_PUBLISH : RONDO_COLLECT | RONDO_COPY;
    s.block = seat->index;
    return s;
}

/* Everyone posts all blocks, and reduces its own. */
RONDO_FN uint32_t rondo_oneshot_scatter_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 2;
}

RONDO_FN struct rondo_step rondo_oneshot_scatter_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_oneshot_step(seat, k);
    s.block = seat->index;
    return s;
}

/* One for all: everyone posts, the root what the others take; it takes its own. */
RONDO_FN uint32_t rondo_oneshot_broadcast_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 2;
}

RONDO_FN struct rondo_step rondo_oneshot_broadcast_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    s.act = (uint16_t)(k == 0                      ? RONDO_PUBLISH
                       : seat->index == seat->root ? RONDO_COPY
                                                   : RONDO_COLLECT | RONDO_COPY);
    return s;
}

/* All for one: everyone posts, the root reduces. */
RONDO_FN uint32_t rondo_oneshot_reduce_nsteps(const struct rondo_seat *seat)
{
    return seat->index == seat->root ? 2 : 1;
}

RONDO_FN struct rondo_step rondo_oneshot_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_oneshot_step(seat, k);
}

RONDO_FN uint32_t rondo_p2p_send_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

RONDO_FN struct rondo_step rondo_p2p_send_step(const struct rondo_seat *seat, uint32_t k)
{
    (void)seat, (void)k;
    return rondo_step_on(RONDO_SEND, RONDO_PORT_PEER, 0);
}

RONDO_FN uint32_t rondo_p2p_recv_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

RONDO_FN struct rondo_step rondo_p2p_recv_step(const struct rondo_seat *seat, uint32_t k)
{
    (void)seat, (void)k;
    return rondo_step_on(RONDO_RECV | RONDO_COPY, RONDO_PORT_PEER, 0);
}

/* A flow that an algorithm does not have. */
RONDO_FN uint32_t rondo_none_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 0;
}

RONDO_FN struct rondo_step rondo_none_step(const struct rondo_seat *seat, uint32_t k)
{
    (void)seat, (void)k;
    return rondo_step_none();
}

#endif
