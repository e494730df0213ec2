/* Calls that repeat: what is kept of them, and the fast path of small ones. */
#ifndef RONDO_CALL_CACHED_H
#define RONDO_CALL_CACHED_H

#include "call/task.h"

/** What is called, but for the count; no two calls that could be kept have the same. @return 0: it is none of
 * these. */
static inline uint64_t rondo_call_what(enum rondo_coll coll, unsigned type, unsigned op, int root)
{
    return RONDO_LIKELY((type | op) < 16)
               ? (uint64_t)(uint32_t)root << 32 | op << 16 | type << 8 | ((unsigned)coll + 1)
               : 0;
}

/* The root counts twice: that product's upper bits hardly change with bit 32 and those above it. */
static inline struct rondo_cached *rondo_cached_set(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    return &ctx->calls.cached[((what ^ what >> 20 ^ count << 20) * 0x9e3779b97f4a7c15ull >> 60) %
                              RONDO_CACHED_SETS * RONDO_CACHED_WAYS];
}
/** What is kept of a call; NULL: nothing. */
static inline struct rondo_cached *rondo_cached_find(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    struct rondo_cached *set = rondo_cached_set(ctx, what, count);
    for (int way = 0; way < RONDO_CACHED_WAYS; way++) {
        if (set[way].what == what && set[way].count == count && set[way].state != RONDO_CACHED_NOT) {
            return &set[way];
        }
    }
    return NULL;
}
/** The prepared runs of a repeated call, ready to submit; NULL: this call is not of the kind that is kept. */
rondo_status rondo_plan_cached(struct rondo_ctx *ctx, const struct rondo_task *task,
                               struct rondo_cached **cached);
/**
 * A call with so many elements of `what` (rondo_call_what) from beginning to end, if it was made before and
 * is one that passes over the mailbox: what is small. A call's time is its way to the post, which is why this
 * one looks at nothing that could be known before. @return 1: *status is the call's; 0: nothing was done, it
 * goes the general way (which says what is wrong with it, if anything is).
 */
int rondo_fast_path(rondo_comm *comm, uint64_t what, size_t count, const void *send, void *recv,
                    rondo_status *status);

#endif
