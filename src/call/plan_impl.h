/* Shared by plan.c (collectives) and plan_messages.c (sends and receives), which both add works to a plan. */
#ifndef RONDO_CALL_PLAN_IMPL_H
#define RONDO_CALL_PLAN_IMPL_H

#include "call/plan.h"

/* plan.c */
static inline uint64_t rondo_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}
/** Number the next collective and return its word. The word covers the history too: a difference that no
 * conn shows at once is found in the next call that shares a conn. */
static inline uint32_t rondo_next_word(struct rondo_ctx *ctx, uint64_t call_hash)
{
    uint64_t history = ctx->calls.history;
    /* Atomic, as the threads that look for stragglers read it. */
    __atomic_store_n(&ctx->calls.seq, ctx->calls.seq + 1, __ATOMIC_RELAXED);
    ctx->calls.history = rondo_mix(history, call_hash);
    return rondo_call_word(ctx->calls.seq, call_hash ^ history);
}
/** Put the call ctx->calls.seq on record in the control plane, where other ranks compare it with theirs. */
static inline void rondo_call_record(struct rondo_ctx *ctx, enum rondo_coll coll, unsigned dtype, unsigned op,
                                     int root, size_t count, uint32_t word)
{
    struct rondo_call call = { .seq = ctx->calls.seq,
                               .count = count,
                               .word = word,
                               .op = (int32_t)op,
                               .root = root,
                               .coll = (uint8_t)coll,
                               .dtype = (uint8_t)dtype,
                               .state = 1 };
    rondo_control_call_begin(ctx->wiring.control, &call);
}
/** Set the type and operation of a work. */
void rondo_plan_fill_op(struct rondo_work *w, const struct rondo_task *t);
/** Add this rank's own share of a call, or the whole call of a single rank. The schedule of one rank
 * copies (and multiplies). */
rondo_status rondo_plan_add_local(struct rondo_plan *plan, const struct rondo_task *t, const void *in,
                                  void *out, size_t count);

/* plan_messages.c */
/** Add a send or receive. seq: the collective that the message is part of; 0: none. */
rondo_status rondo_plan_add_p2p(struct rondo_plan *plan, const struct rondo_task *t, uint64_t seq);
/** Add one message of a call that is made of sends and receives. */
rondo_status rondo_plan_add_message(struct rondo_plan *plan, const struct rondo_task *t, int is_send,
                                    int peer, const void *send, void *recv, size_t count);
/** Add a gather (every rank -> root) or a scatter (root -> every rank). */
rondo_status rondo_plan_add_rooted(struct rondo_plan *plan, const struct rondo_task *t);
/** Report a message to itself whose send and receive differ. */
rondo_status rondo_plan_self_differs(const struct rondo_ctx *ctx, const struct rondo_task *send,
                                     const struct rondo_task *recv);
/** Check that each message from a rank to itself has its partner in the group. Call it before any call is
 * numbered: an error then changes nothing. */
rondo_status rondo_plan_check_selves(const struct rondo_task *tasks, int n);
/** Check that an algorithm is allowed that can carry the call; likewise. */
rondo_status rondo_plan_check_choice(const struct rondo_task *t);

#endif
