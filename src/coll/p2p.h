/* A message: one sender, one receiver. Pure functions, shared with CUDA. */
#ifndef RONDO_COLL_P2P_H
#define RONDO_COLL_P2P_H

#include "coll/step.h"

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

#endif
