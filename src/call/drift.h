/*
 * Correcting the cost model while a communicator runs (tuner/drift.h), unless RONDO_RECALIBRATE=0: one node,
 * host memory, all_reduce, all_gather and reduce_scatter of 8 KiB and more.
 *
 * Each rank times some calls of a kind: first one of 8; the longer nothing drifts, the fewer, down to one
 * of 64. After RONDO_DRIFT_SAMPLES of them the ranks vote: each shows its samples to the others
 * (rondo_control_vote). At the next call that would be timed, of any kind, each rank merges all votes and
 * judges: the same votes, so all choose anew from the same call on. After that every second call is timed
 * until the next judgement, because the new way may be slower: if it is, the one before is chosen again, by
 * what both took. A kind is corrected RONDO_DRIFT_CORRECTIONS times at most.
 *
 * Why all agree. All ranks count the same calls in the same order, whether they wait for them or not. A
 * rank votes before it begins the voting call. That call ends on no rank before all have begun it, so a
 * rank that has waited for it finds all votes. A rank that does not wait for it (a stream, a group) votes
 * against corrections, and the next judgement ends them on all ranks. Votes have two banks: a rank
 * overwrites vote n with vote n + 2, after voting call n + 1 has begun on all ranks, before which all have
 * judged n. Whatever changes a factor frees the cached calls of its kind, because ranks may have cached
 * different ones.
 *
 * Broadcast and reduce are left out: a rank may end them before others have begun.
 */
#ifndef RONDO_CALL_DRIFT_H
#define RONDO_CALL_DRIFT_H

#include "call/task.h"

/** Get the kind of a call that is entered into the cache, made at its first call. *kind NULL: its calls are
 * not timed. All ranks get the same. */
rondo_status rondo_drift_kind_of(struct rondo_ctx *ctx, const struct rondo_task *task,
                                 struct rondo_drift_kind **kind);
/** Count a call of the kind as made. @return 0: it is not counted yet: rondo_drift_reached does that. */
static inline int rondo_drift_passes(struct rondo_drift_kind *kind)
{
    if (RONDO_UNLIKELY(kind->left == 0)) {
        return 0;
    }
    kind->left--;
    return 1;
}
/**
 * Count a call that is timed, votes or judges. It may free cached calls. waits: this thread runs the call,
 * and nothing else until it is done.
 * @return RONDO_INTERNAL_ERROR: another rank has not voted, though it must have.
 */
rondo_status rondo_drift_reached(struct rondo_ctx *ctx, struct rondo_drift_kind *kind, int waits);
/** @return where the time of the call that begins goes (rondo_drift_measured); NULL: it is not timed. */
static inline uint32_t *rondo_drift_takes(struct rondo_ctx *ctx)
{
    uint32_t *taken = NULL;
    if (RONDO_UNLIKELY(ctx->calls.drift != NULL)) {
        taken = ctx->calls.drift->taken;
        ctx->calls.drift->taken = NULL;
    }
    return taken;
}
/** Compare what a call took with what the model predicts for the way that carried it. @return a sample */
uint32_t rondo_drift_measured(const struct rondo_ctx *ctx, const struct rondo_cached *call, int64_t ns);
/** Free the state; *drift becomes NULL. */
void rondo_drift_free(struct rondo_drift **drift);

#endif
