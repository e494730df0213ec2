/*
 * Recursive doubling: in step j each rank swaps what it has with the rank whose number differs in bit j,
 * and both reduce. That takes ceil(log2 n) messages in a row where a tree takes twice as many, but each
 * message is the whole buffer: for small calls over a network.
 *
 * If n is no power of two, each rank beyond the largest power below n first gives its part to the rank
 * without that bit, and gets the result at the end. Operands are in rank order at every step, so all ranks
 * compute the same bits. Positions are ranks. Pure functions, shared with CUDA.
 */
#ifndef RONDO_COLL_DOUBLING_H
#define RONDO_COLL_DOUBLING_H

#include "coll/step.h"

/* Swaps: bits of the largest power of two up to n. */
RONDO_FN uint32_t rondo_doubling_swaps(int32_t n)
{
    uint32_t bits = 0;
    while (n >> (bits + 1) != 0) bits++;
    return bits;
}

/* The peer on port j; -1: none. Port j = swaps joins a rank beyond the power of two and the one that stands
 * in for it. */
RONDO_FN int32_t rondo_doubling_peer(int32_t rank, int32_t n, uint32_t j)
{
    uint32_t swaps = rondo_doubling_swaps(n);
    int32_t power = (int32_t)(1u << swaps);
    if (j == swaps) {
        if (rank >= power) return rank - power;
        return rank + power < n ? rank + power : -1;
    }
    return j < swaps && rank < power ? rank ^ (int32_t)(1u << j) : -1;
}

/* Ports in use: one for each swap, and one for ranks beyond the power of two. */
RONDO_FN uint32_t rondo_doubling_ports(int32_t n) { return rondo_doubling_swaps(n) + ((n & (n - 1)) != 0); }

/* A step of the ranks below the power of two: receive from port `from` (-1: none), reduce, send to port `to`
 * (-1: none). */
RONDO_FN struct rondo_step rondo_doubling_swap(const struct rondo_seat *seat, int32_t from, int32_t to,
                                               int first)
{
    struct rondo_step s = rondo_step_none();
    s.act = to >= 0 ? RONDO_SEND : RONDO_FINISH;
    if (to >= 0) {
        s.nto = 1;
        s.to[0] = (uint8_t)(RONDO_PORT_DIM + to);
    }
    if (from >= 0) {
        uint32_t swaps = rondo_doubling_swaps(seat->nranks);
        s.act |= RONDO_RECV | RONDO_REDUCE | RONDO_COPY;
        s.nfrom = 1;
        s.from[0] = (uint8_t)(RONDO_PORT_DIM + from);
        /* The extra rank's part comes after its partner's; in a swap, the lower rank's comes first. */
        if ((uint32_t)from == swaps || (seat->index >> from & 1) == 0) s.act |= RONDO_OWN_FIRST;
        if (!first) s.act |= RONDO_OWN_OUT;
    }
    return s;
}

RONDO_FN uint32_t rondo_doubling_nsteps(const struct rondo_seat *seat)
{
    uint32_t swaps = rondo_doubling_swaps(seat->nranks);
    if (seat->nranks == 1) return 1;
    if (seat->index >= (int32_t)(1u << swaps)) return 2;
    return swaps + 1 + (rondo_doubling_peer(seat->index, seat->nranks, swaps) >= 0);
}

RONDO_FN struct rondo_step rondo_doubling_step(const struct rondo_seat *seat, uint32_t k)
{
    uint32_t swaps = rondo_doubling_swaps(seat->nranks);
    int extra = rondo_doubling_peer(seat->index, seat->nranks, swaps) >= 0;
    if (seat->nranks == 1) return rondo_step_on(RONDO_FINISH | RONDO_COPY, RONDO_PORT_RING, 0);
    if (seat->index >= (int32_t)(1u << swaps)) { /* give, get */
        return rondo_step_on(k == 0 ? RONDO_SEND : RONDO_RECV | RONDO_COPY,
                             (enum rondo_port)(RONDO_PORT_DIM + swaps), 0);
    }
    if (!extra) return rondo_doubling_swap(seat, (int32_t)k - 1, k < swaps ? (int32_t)k : -1, k == 1);
    if (k <= swaps)
        return rondo_doubling_swap(seat, k == 0 ? (int32_t)swaps : (int32_t)k - 1,
                                   k < swaps ? (int32_t)k : -1, k == 0);
    { /* send the result to the extra rank */
        struct rondo_step s = rondo_step_on(RONDO_SEND, (enum rondo_port)(RONDO_PORT_DIM + swaps), 0);
        s.act |= (uint16_t)RONDO_OWN_OUT;
        return s;
    }
}

#endif
