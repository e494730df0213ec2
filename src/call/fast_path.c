/* The fast path: repeated small calls over the mailbox, from the user's call to its end, or, in a stream, as
 * far as they come without waiting. Slower cases have functions of their own, so that the processor fetches
 * little code. */
#include "base/fault.h"
#include "base/mem.h"
#include "call/cached.h"
#include "call/drift.h"
#include "call/group.h"
#include "call/overlap.h"
#include "call/plan_impl.h"
#include "call/stream.h"
#include "call/wait.h"

enum { FAST_LOOKS = 200 };

_Static_assert(RONDO_NUM_DTYPES <= 32 && RONDO_NUM_OPS <= 32 && RONDO_NUM_COLLS < 255,
               "what rondo_call_what packs");

/* Is the communicator ready, with no queued plans, no proxied conns and no abort? */
static inline int is_plain(const struct rondo_ctx *ctx)
{
    return __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY &&
           __atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) == 0 && ctx->wiring.net.proxied == 0 &&
           !rondo_control_aborted(ctx->wiring.control);
}

/* The run to publish; NULL: the call has steps, uses direct access this time, or is timed. Call it last: it
 * advances counters. */
static inline struct rondo_run *shot_of(const struct rondo_cached *entry)
{
    if (RONDO_LIKELY(entry->state == RONDO_CACHED_SHOT)) {
        return entry->runs;
    }
    if (entry->state == RONDO_CACHED_COUNTED) {
        return rondo_drift_passes(entry->kind) ? entry->runs : NULL;
    }
    if (entry->state != RONDO_CACHED_FALLBACK || (entry->kind != NULL && entry->kind->left == 0) ||
        !rondo_direct_declines(&entry->runs[0].work)) {
        return NULL;
    }
    if (entry->kind != NULL) {
        (void)rondo_drift_passes(entry->kind);
    }
    entry->runs[0].verdict = RONDO_NOT_DIRECT; /* the fallback reads it if it has to wait in a lane */
    return &entry->runs[1];
}

static void note_call(struct rondo_ctx *ctx, const struct rondo_cached *entry, uint32_t word)
{
    rondo_call_record(ctx, (enum rondo_coll)((entry->what & 0xff) - 1), entry->what >> 8 & 0xff,
                      entry->what >> 16 & 0xff, (int)(entry->what >> 32), entry->count, word);
}

static __attribute__((noinline, cold)) rondo_status failed(struct rondo_ctx *ctx, rondo_status status)
{
    return rondo_ctx_drop(ctx, rondo_ctx_fail(ctx, status, -1));
}

/* Other ranks are late, or have not collected earlier calls yet. */
static __attribute__((noinline)) rondo_status wait_for(struct rondo_ctx *ctx, struct rondo_run *run)
{
    ctx->calls.immediate.open = 1;
    ctx->running.exec_ops->submit(ctx->running.exec, run, 1);
    return rondo_ctx_wait(ctx, &ctx->calls.immediate.open);
}

/* Publish, and look for the others' messages. Record the call after it is published: other ranks read records
 * only when calls differ or wait long, so nobody waits for this one. @return 1: the run has ended; 0: submit
 * it; -1: *status is an error. */
static inline __attribute__((always_inline)) int begin_shot(struct rondo_ctx *ctx,
                                                            const struct rondo_cached *entry,
                                                            struct rondo_run *run, const void *send,
                                                            void *recv, int looks, rondo_status *status)
{
    const struct rondo_mailbox *mailbox = run->work.mailbox;
    uint32_t word = rondo_next_word(ctx, entry->call_hash);
    rondo_run_call(run, entry->needed == 0 ? &ctx->calls.barrier_byte[0] : send,
                   entry->needed == 0 ? &ctx->calls.barrier_byte[1] : recv, word, ctx->calls.seq);
    if (RONDO_UNLIKELY(!ctx->running.exec_ops->publish(ctx->running.exec, run))) {
        note_call(ctx, entry, word);
        rondo_run_again(run);
        return 0;
    }
    /* Recording reads the processor's counter, behind which the first look at another rank's place waits:
     * have its line come meanwhile. (Not in a function of its own, whose call GCC takes for void.) */
    if (RONDO_LIKELY(mailbox != NULL)) {
        __builtin_prefetch(rondo_mailbox_place(mailbox, mailbox->op, mailbox->index == 0));
    }
    note_call(ctx, entry, word);
    return ctx->running.exec_ops->collect(ctx->running.exec, run, looks, status);
}

static inline rondo_status end_shot(struct rondo_ctx *ctx, const struct rondo_run *run)
{
    if (run->only_sends) {
        RONDO_TRY(rondo_plan_compare(ctx, run, 1));
    }
    rondo_control_call_end(ctx->wiring.control, ctx->calls.seq);
    return RONDO_SUCCESS;
}

static inline rondo_status run_shot(struct rondo_ctx *ctx, const struct rondo_cached *entry,
                                    struct rondo_run *run, const void *send, void *recv)
{
    rondo_status status = RONDO_SUCCESS;
    int looks = ctx->running.policy.spins > 0 && ctx->running.oversubscription.waits == 0 ? FAST_LOOKS : 0,
        ended = begin_shot(ctx, entry, run, send, recv, looks, &status);
    if (RONDO_UNLIKELY(ended < 0)) {
        return failed(ctx, status);
    }
    if (RONDO_UNLIKELY(ended == 0)) {
        RONDO_TRY(wait_for(ctx, run));
    }
    return end_shot(ctx, run);
}

/* The run goes on in its stream. */
static __attribute__((noinline)) rondo_status go_on(struct rondo_ctx *ctx, const struct rondo_run *run,
                                                    rondo_stream stream)
{
    struct rondo_plan *plan;
    struct rondo_run *copy;
    rondo_status status;
    RONDO_TRY(rondo_stream_new_plan(stream, ctx, &plan));
    status = rondo_plan_add_stream(plan, stream);
    if (status == RONDO_SUCCESS) {
        status = rondo_plan_next_run(plan, &copy);
    }
    if (status != RONDO_SUCCESS) {
        rondo_plan_release(plan);
        rondo_free(plan);
        return status;
    }
    *copy = *run;
    copy->open = &plan->open;
    copy->next = NULL;
    copy->fallback_of = NULL; /* it is known that this one runs */
    plan->first_seq = plan->last_seq = ctx->calls.seq;
    plan->issued = 1;
    plan->open = 1;
    ctx->running.exec_ops->submit(ctx->running.exec, copy, 1); /* other threads come with the queue */
    rondo_stream_put(plan);
    return RONDO_SUCCESS;
}

static inline rondo_status start_shot(struct rondo_ctx *ctx, const struct rondo_cached *entry,
                                      struct rondo_run *run, const void *send, void *recv,
                                      rondo_stream stream)
{
    rondo_status status = RONDO_SUCCESS;
    int ended = begin_shot(ctx, entry, run, send, recv, 0, &status);
    if (RONDO_LIKELY(ended > 0)) {
        return end_shot(ctx, run);
    }
    if (ended == 0) {
        status = go_on(ctx, run, stream);
    }
    return RONDO_LIKELY(status == RONDO_SUCCESS) ? status : failed(ctx, status);
}

/* Get the communicator, and the run for this call. @return NULL: not on the fast path. Else the caller
 * leaves the communicator. */
static inline __attribute__((always_inline)) struct rondo_run *enter(rondo_comm *comm, uint64_t what,
                                                                     size_t count, const void *send,
                                                                     const void *recv, rondo_stream stream,
                                                                     struct rondo_ctx **entered,
                                                                     struct rondo_cached **found)
{
    struct rondo_ctx *ctx;
    struct rondo_cached *entry;
    struct rondo_run *run;
    if (RONDO_UNLIKELY(comm == NULL || what == 0 || rondo_inside != 0 || rondo_fault_armed ||
                       !rondo_comm_is_alive(comm))) {
        return NULL;
    }
    rondo_inside = RONDO_INSIDE_CALL; /* inlined rondo_comm_enter */
    __atomic_store_n(&comm->busy, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (RONDO_UNLIKELY(!rondo_comm_is_alive(comm))) {
        rondo_comm_leave(comm);
        return NULL;
    }
    ctx = comm->ctx;
    entry = rondo_cached_find(ctx, what, count);
    if (RONDO_UNLIKELY(
            entry == NULL || !is_plain(ctx) || (entry->needed & 1 && send == NULL) ||
            (entry->needed & 2 && recv == NULL) || rondo_overlaps(&entry->overlap, send, recv) ||
            (stream != NULL && (entry->state < RONDO_CACHED_SHOT || !rondo_stream_is_free(stream))) ||
            (run = shot_of(entry)) == NULL)) {
        rondo_comm_leave(comm);
        return NULL;
    }
    /* An abort that gives up waiting for this thread takes ctx out of comm and does not free it. */
    *entered = ctx;
    *found = entry;
    return run;
}

static inline void leave(rondo_comm *comm, struct rondo_ctx *ctx, rondo_status status)
{
    if (RONDO_UNLIKELY(status != RONDO_SUCCESS)) {
        rondo_ctx_keep_error(ctx, status);
        rondo_group_note_error(status);
    }
    __atomic_store_n(&comm->busy, 0, __ATOMIC_RELEASE);
    rondo_inside = 0;
}

int rondo_fast_path(rondo_comm *comm, uint64_t what, size_t count, const void *send, void *recv,
                    rondo_status *status)
{
    struct rondo_ctx *ctx;
    struct rondo_cached *entry;
    struct rondo_run *run = enter(comm, what, count, send, recv, NULL, &ctx, &entry);
    if (RONDO_UNLIKELY(run == NULL)) {
        return 0;
    }
    *status = run_shot(ctx, entry, run, send, recv);
    leave(comm, ctx, *status);
    return 1;
}

int rondo_fast_start(rondo_comm *comm, uint64_t what, size_t count, const void *send, void *recv,
                     rondo_stream stream, rondo_status *status)
{
    struct rondo_ctx *ctx;
    struct rondo_cached *entry;
    struct rondo_run *run = enter(comm, what, count, send, recv, stream, &ctx, &entry);
    if (run == NULL) {
        return 0;
    }
    *status = start_shot(ctx, entry, run, send, recv, stream);
    leave(comm, ctx, *status);
    return 1;
}
