/*
 * Two-shot: ranks of one node with direct access. Each rank computes its share from all ranks' inputs, in
 * rank order, and writes it where it is wanted: every byte moves once. First all ranks say where their
 * buffers are; at the end no rank leaves before its output is complete and its input is no longer read. A
 * rank that leaves in the middle takes its buffers back (base/mailbox.h). Pure functions, shared with CUDA.
 */
#ifndef RONDO_COLL_TWOSHOT_H
#define RONDO_COLL_TWOSHOT_H

#include "coll/step.h"

/* Payload bytes that it needs in a place of the mailbox. */
enum { RONDO_TWOSHOT_BYTES = 384 };

/* Open, move the rank's own share, close. */
RONDO_FN struct rondo_step rondo_twoshot_share(const struct rondo_seat *seat, uint32_t k, uint32_t move)
{
    struct rondo_step s = rondo_step_none();
    s.act = (uint16_t)(k == 0 ? (uint32_t)RONDO_OPEN : k == 1 ? move : (uint32_t)RONDO_CLOSE);
    s.block = k == 1 ? seat->index : 0;
    return s;
}

RONDO_FN uint32_t rondo_twoshot_all_reduce_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 3;
}

RONDO_FN struct rondo_step rondo_twoshot_all_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_twoshot_share(seat, k, RONDO_PULL | RONDO_REDUCE | RONDO_FINISH | RONDO_PUSH);
}

RONDO_FN uint32_t rondo_twoshot_reduce_scatter_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 3;
}

RONDO_FN struct rondo_step rondo_twoshot_reduce_scatter_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_twoshot_share(seat, k, RONDO_PULL | RONDO_REDUCE | RONDO_FINISH | RONDO_COPY);
}

RONDO_FN uint32_t rondo_twoshot_broadcast_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 3;
}

RONDO_FN struct rondo_step rondo_twoshot_broadcast_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_twoshot_share(seat, k, RONDO_PULL_ROOT | RONDO_PUSH);
}

RONDO_FN uint32_t rondo_twoshot_reduce_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 3;
}

RONDO_FN struct rondo_step rondo_twoshot_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_twoshot_share(seat, k, RONDO_PULL | RONDO_REDUCE | RONDO_FINISH | RONDO_PUSH_ROOT);
}

/* Every rank copies all blocks, its own first, so no two ranks begin with the same one. */
RONDO_FN uint32_t rondo_twoshot_all_gather_nsteps(const struct rondo_seat *seat)
{
    return (uint32_t)seat->nranks + 2;
}

RONDO_FN struct rondo_step rondo_twoshot_all_gather_step(const struct rondo_seat *seat, uint32_t k)
{
    uint32_t n = (uint32_t)seat->nranks;
    struct rondo_step s = rondo_twoshot_share(seat, k == 0 ? 0 : k <= n ? 1 : 2, RONDO_PULL | RONDO_COPY);
    if (k > 0 && k <= n) {
        s.block = (int32_t)(((uint32_t)seat->index + k - 1) % n);
    }
    return s;
}

/* Which buffers of a rank the others access: bit 0 its input, bit 1 its output. */
RONDO_FN uint32_t rondo_twoshot_needs(uint32_t move, int is_root)
{
    uint32_t in = (move & (RONDO_PULL | RONDO_GROUPS)) != 0 || ((move & RONDO_PULL_ROOT) != 0 && is_root);
    uint32_t out = (move & (RONDO_PUSH | RONDO_GROUPS)) != 0 || ((move & RONDO_PUSH_ROOT) != 0 && is_root);
    return in | out << 1;
}

#endif
