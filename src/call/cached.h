/* Calls that repeat: the cache of prepared works, and the fast path of small calls. */
#ifndef RONDO_CALL_CACHED_H
#define RONDO_CALL_CACHED_H

#include "call/task.h"

/** Pack all of a call but its count into one word. Calls that can be cached have different words. @return
 * 0: the call cannot be packed. */
static inline uint64_t rondo_call_what(enum rondo_coll coll, unsigned type, unsigned op, int root)
{
    return RONDO_LIKELY((type | op) < 32)
               ? (uint64_t)(uint32_t)root << 32 | op << 16 | type << 8 | ((unsigned)coll + 1)
               : 0;
}

/* `what` enters twice: bits from 32 on, the root, hardly change the upper bits of the product. */
static inline struct rondo_cached *rondo_cached_set(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    return &ctx->calls.cached[((what ^ what >> 20 ^ count << 20) * 0x9e3779b97f4a7c15ull >> 60) %
                              RONDO_CACHED_SETS * RONDO_CACHED_WAYS];
}

/** Find a call in the cache. @return NULL: it is not there. */
static inline struct rondo_cached *rondo_cached_find(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    struct rondo_cached *set = rondo_cached_set(ctx, what, count);
    for (int way = 0; way < RONDO_CACHED_WAYS; way++) {
        if (set[way].what == what && set[way].count == count && set[way].state != RONDO_CACHED_FREE) {
            return &set[way];
        }
    }
    return NULL;
}

/** Get the prepared runs of a repeated call, ready to submit; adds the call to the cache. *cached NULL:
 * calls of this kind are not cached. */
rondo_status rondo_plan_cached(struct rondo_ctx *ctx, const struct rondo_task *task,
                               struct rondo_cached **cached);
/**
 * Run a small call that was made before and goes over the mailbox, from beginning to end. Latency is the
 * time until the call is published, so this function checks nothing that the cache entry already settles.
 * @param what  rondo_call_what.
 * @return 1: *status is the call's. 0: nothing was done; the caller takes the general path, which reports
 * errors.
 */
int rondo_fast_path(rondo_comm *comm, uint64_t what, size_t count, const void *send, void *recv,
                    rondo_status *status);
/** The same for a call in a stream, which does not wait: it ends at once if all other ranks have published
 * theirs, and goes on in the stream otherwise. stream: not NULL; host memory or GPU. */
int rondo_fast_start(rondo_comm *comm, uint64_t what, size_t count, const void *send, void *recv,
                     rondo_stream stream, rondo_status *status);

#endif
