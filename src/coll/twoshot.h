/*
 * Two-shot: ranks of one node whose buffers lie open to one another. Each rank makes its share straight from
 * all ranks' inputs, in rank order, and writes it straight to where it is wanted: every byte moves once.
 * Before it all ranks say where their buffers are; after it nobody leaves before its output is whole and its
 * input is read. A rank that leaves in the middle takes its buffers back (base/mailbox.h). Pure functions,
 * shared with CUDA.
 */
#ifndef RONDO_COLL_TWOSHOT_H
#define RONDO_COLL_TWOSHOT_H

#include "coll/step.h"

/* Payload bytes that a place of the mailbox needs for it. */
enum { RONDO_TWOSHOT_POST = 384 };

/* Open, one move of the rank's own share, close. */
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

/* Everyone takes all blocks, its own first: no two ranks begin at the same one. */
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

/* Which buffers of a rank the others reach for: bit 0 in, bit 1 out. */
RONDO_FN uint32_t rondo_twoshot_needs(uint32_t move, int is_root)
{
    uint32_t in = (move & (RONDO_PULL | RONDO_GROUPS)) != 0 || ((move & RONDO_PULL_ROOT) != 0 && is_root);
    uint32_t out = (move & (RONDO_PUSH | RONDO_GROUPS)) != 0 || ((move & RONDO_PUSH_ROOT) != 0 && is_root);
    return in | out << 1;
}

#endif
