/*
 * Ranks of one node swap their data through the node's mailbox. One-shot: every rank publishes once, and each
 * rank that wants a result collects from the others. Two-shot: each rank also publishes the share that it has
 * reduced. Pure functions, shared with CUDA.
 */
#ifndef RONDO_COLL_ONESHOT_H
#define RONDO_COLL_ONESHOT_H

#include "coll/step.h"

/* all_reduce: every rank collects from all and reduces. */
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

/* all_gather: every rank collects all blocks. */
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

/* reduce_scatter: every rank publishes all blocks, then collects and reduces its own. */
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

/* broadcast: the others collect what the root published; the root copies its own input. All publish, so
 * that all are seen to call. */
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

/* reduce: the root collects from all and reduces. */
RONDO_FN uint32_t rondo_oneshot_reduce_nsteps(const struct rondo_seat *seat)
{
    return seat->index == seat->root ? 2 : 1;
}

RONDO_FN struct rondo_step rondo_oneshot_reduce_step(const struct rondo_seat *seat, uint32_t k)
{
    return rondo_oneshot_step(seat, k);
}

/* Two-shot over the mailbox, all_reduce: every rank publishes what the others want of its input, reduces its
 * own share, publishes that, and collects the other shares. With several loops, the executor publishes the
 * result of one together with the input of the next. For few ranks (base/mailbox.h). */
RONDO_FN uint32_t rondo_mail_twoshot_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 4;
}

RONDO_FN struct rondo_step rondo_mail_twoshot_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_oneshot_step(seat, k);
    if (k >= 2) s.act = RONDO_OWN_OUT | (k == 2 ? RONDO_PUBLISH : RONDO_COLLECT | RONDO_COPY);
    s.block = k == 0 ? 0 : seat->index;
    return s;
}

/* On GPUs an all_reduce is LL (kern/cuda/block_direct.h): each rank writes into slots of its peers' memory.
 * Their size follows from that of a staging buffer: all writers' together hold twice as many bytes. */
RONDO_FN size_t rondo_oneshot_slot_bytes(size_t stage_bytes, size_t nranks)
{
    return (16 + (2 * stage_bytes / nranks + 7) / 8 * 16 + RONDO_CTRL_ALIGN - 1) / RONDO_CTRL_ALIGN *
           RONDO_CTRL_ALIGN;
}
/* Bytes of data that such a slot holds: half of each line, after the first one, which has the call word. */
RONDO_FN size_t rondo_oneshot_slot_room(size_t slot_bytes) { return (slot_bytes / 16 - 1) * 8; }

#endif
