/* Waiting: one thread makes progress until its calls are done. Meanwhile it looks for aborts, dead ranks and
 * calls that differ, and reports who waits for whom. */
#include "call/wait.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/param.h"
#include "call/cached.h"
#include "call/drift.h"
#include "call/plan.h"
#include "call/profile.h"
#include "call/profile_net.h"
#include "call/report.h"
#include "call/stream.h"
#include "comm/backend.h"

/* Progress on a socket is a system call, so fewer of these steps make a spin of the same length. */
enum {
    SPINS = 2000,
    NET_SPINS = 64,
    FIRST_STALL_CHECK = 8,
    OTHER_STALL_CHECKS = 4096,
    AFAR_STALL_CHECKS = 256,
    KIND_CHECKS = 16 /* more than a conn has slots */
};
_Static_assert((int)KIND_CHECKS > (int)RONDO_SLOTS, "compare_message() relies on it");
static const int64_t long_wait_ns = 50000000;
static const int64_t linger_ns = 3000000000; /* moving a slice takes a millisecond at most */

void rondo_message_begin(struct rondo_ctx *ctx, const struct rondo_task *t, int alone)
{
    if ((t->coll == RONDO_COLL_SEND || t->coll == RONDO_COLL_RECV) && t->stream == NULL && t->count > 0 &&
        t->root != ctx->job.rank) {
        ctx->calls.message = (struct rondo_message){ .count = t->count,
                                                     .peer = t->root,
                                                     .is_send = t->coll == RONDO_COLL_SEND,
                                                     .dtype = (uint8_t)t->dtype };
        ctx->calls.message_alone = alone;
        rondo_control_message(ctx->wiring.control, &ctx->calls.message);
    }
}

void rondo_message_end(struct rondo_ctx *ctx)
{
    if (RONDO_UNLIKELY(ctx->calls.message.peer >= 0)) {
        ctx->calls.message.peer = -1;
        rondo_control_message(ctx->wiring.control, NULL);
    }
}

static int mailbox_rank(const struct rondo_ctx *ctx, int peer)
{
    return peer <= -1 && peer != RONDO_NO_PEER ? ctx->wiring.layout.local_ranks[-1 - peer] : peer;
}

/* Get counts of a rank's call; ranks of other nodes are asked and answer soon. @return how many; <= 0:
 * none. */
static int counts_of(struct rondo_ctx *ctx, int rank, uint64_t seq, int first, uint64_t *counts, int n)
{
    int64_t end = rondo_now_ns() + RONDO_ANSWER_NS;
    int got, moved;
    while ((got = rondo_control_counts_of(ctx->wiring.control, rank, seq, first, counts, n)) ==
               RONDO_COUNTS_LATER &&
           rondo_now_ns() < end) {
        (void)rondo_control_progress(ctx->wiring.control, &moved);
        sched_yield();
    }
    return got;
}

/* Find the first rank whose count differs in two ranks' records of a call. @return the rank; -1: unknown. */
static int different_count(struct rondo_ctx *ctx, int peer, uint64_t seq, uint64_t *mine, uint64_t *theirs)
{
    enum { AT_ONCE = 64 };
    uint64_t a[AT_ONCE], b[AT_ONCE];
    for (int first = 0, n; first < ctx->job.nranks; first += n) {
        n = counts_of(ctx, peer, seq, first, b, AT_ONCE);
        if (n <= 0 || counts_of(ctx, ctx->job.rank, seq, first, a, n) < n) {
            return -1;
        }
        for (int i = 0; i < n; i++) {
            if (a[i] != b[i]) {
                *mine = a[i];
                *theirs = b[i];
                return first + i;
            }
        }
    }
    return -1;
}

/* Two ranks make the same call with other counts: say with which. @return 0: it is not known. */
static int counts_differ(struct rondo_ctx *ctx, int peer, const struct rondo_call *mine,
                         const struct rondo_call *theirs, rondo_status *status)
{
    uint64_t a, b;
    char call[128];
    int whose = rondo_call_has_counts((enum rondo_coll)mine->coll) && mine->coll == theirs->coll &&
                        mine->seq == theirs->seq && mine->dtype == theirs->dtype && mine->op == theirs->op
                    ? different_count(ctx, peer, mine->seq, &a, &b)
                    : -1;
    if (whose < 0) {
        return 0;
    }
    rondo_call_text(mine, call, sizeof(call));
    *status = rondo_fail(RONDO_INVALID_USAGE,
                         "calls differ: in %s, counts[%d], of rank %d, is %llu on rank %d on %s and %llu on "
                         "rank %d on %s: all ranks must make the same calls in the same order, with the same "
                         "counts (displacements may differ)",
                         call, whose, whose, (unsigned long long)a, ctx->job.rank, rondo_log_host(),
                         (unsigned long long)b, peer, ctx->wiring.peers[peer].host);
    return 1;
}

static rondo_status differs(struct rondo_ctx *ctx, int peer, const struct rondo_call *mine,
                            const struct rondo_call *theirs)
{
    char a[128], b[128];
    rondo_status status;
    if (counts_differ(ctx, peer, mine, theirs, &status)) {
        return status;
    }
    rondo_call_text(mine, a, sizeof(a));
    rondo_call_text(theirs, b, sizeof(b));
    return rondo_fail(RONDO_INVALID_USAGE,
                      "calls differ: rank %d on %s calls %s, rank %d on %s calls %s%s: all ranks must make "
                      "the same calls in the same order",
                      ctx->job.rank, rondo_log_host(), a, peer, ctx->wiring.peers[peer].host, b,
                      mine->word != theirs->word && strcmp(a, b) == 0
                          ? " with other counts, or after an earlier call that differed"
                          : "");
}

/* Find the first recorded call in which the peer differs. */
static int find_recorded(struct rondo_ctx *ctx, int peer, uint64_t seq, struct rondo_call *mine,
                         struct rondo_call *theirs)
{
    for (uint64_t k = seq > RONDO_CALL_RING ? seq - RONDO_CALL_RING + 1 : 1; k <= seq; k++) {
        if (rondo_control_call_of(ctx->wiring.control, ctx->job.rank, k, mine) &&
            rondo_control_call_of(ctx->wiring.control, peer, k, theirs) && mine->word != theirs->word) {
            return 1;
        }
    }
    return 0;
}

static int is_far(const struct rondo_ctx *ctx, int peer)
{
    return ctx->wiring.layout.node_of[peer] != ctx->wiring.layout.node;
}

/* As find_recorded; if nothing is recorded, take this rank's call and the peer's present one. A peer of this
 * node may still be in an earlier call, which is known to agree. @return 0: no difference is known. */
static int find_difference(struct rondo_ctx *ctx, int peer, uint64_t seq, struct rondo_call *mine,
                           struct rondo_call *theirs)
{
    return find_recorded(ctx, peer, seq, mine, theirs) ||
           (rondo_control_call_of(ctx->wiring.control, ctx->job.rank, seq, mine) &&
            rondo_control_call_of(ctx->wiring.control, peer, 0, theirs) &&
            (is_far(ctx, peer) || theirs->seq >= seq) && mine->word != theirs->word);
}

/* Is the peer's differing call recorded? On this node it is as soon as the call is published. */
static int is_recorded(struct rondo_ctx *ctx, int peer, uint64_t seq)
{
    struct rondo_call theirs;
    return rondo_control_call_of(ctx->wiring.control, peer, 0, &theirs) &&
           (is_far(ctx, peer) || theirs.seq >= seq);
}

/* As find_difference, but wait for the record: a rank of another node is asked and answers soon. A rank of
 * this node may have made fewer calls than this one: then an earlier call differs and is recorded. */
static int find_difference_soon(struct rondo_ctx *ctx, int peer, uint64_t seq, struct rondo_call *mine,
                                struct rondo_call *theirs)
{
    int64_t end = rondo_now_ns() + RONDO_ANSWER_NS;
    int moved;
    while (!is_recorded(ctx, peer, seq) &&
           (is_far(ctx, peer) || !find_recorded(ctx, peer, seq, mine, theirs)) && rondo_now_ns() < end) {
        (void)rondo_control_progress(ctx->wiring.control, &moved);
        sched_yield();
    }
    return find_difference(ctx, peer, seq, mine, theirs);
}

/* What the error of a receive says about the sender: in all_to_allv the count is known. */
static void sent_text(struct rondo_ctx *ctx, int peer, const struct rondo_work *work, char *text, size_t size)
{
    struct rondo_call mine;
    uint64_t sent;
    if (work->seq != 0 && rondo_control_call_of(ctx->wiring.control, ctx->job.rank, work->seq, &mine) &&
        mine.coll == RONDO_COLL_ALL_TO_ALLV &&
        counts_of(ctx, peer, work->seq, ctx->job.rank, &sent, 1) == 1 && sent != work->len) {
        snprintf(text, size, "which sends it %llu, in all_to_allv #%llu", (unsigned long long)sent,
                 (unsigned long long)work->seq);
    } else {
        snprintf(text, size, "which sent another count or type, or sent in another order");
    }
}

/* The executor received a call word that is not this rank's. */
static rondo_status on_mismatch(void *arg, int peer, const struct rondo_work *work, uint32_t got)
{
    struct rondo_ctx *ctx = arg;
    struct rondo_call mine, theirs;
    rondo_status status;
    peer = mailbox_rank(ctx, peer);
    if (work->seq != 0 && find_difference_soon(ctx, peer, work->seq, &mine, &theirs)) {
        status = differs(ctx, peer, &mine, &theirs);
    } else if (work->coll == RONDO_COLL_RECV) {
        char sent[96];
        sent_text(ctx, peer, work, sent, sizeof(sent));
        status = rondo_fail(RONDO_INVALID_USAGE,
                            "calls differ: rank %d on %s receives %zu %s from rank %d on %s, %s (call word "
                            "%08x, expected %08x)",
                            ctx->job.rank, rondo_log_host(), work->len,
                            rondo_dtype_name((rondo_dtype)work->dtype), peer, ctx->wiring.peers[peer].host,
                            sent, got, work->call_word);
    } else {
        status = rondo_fail(RONDO_INVALID_USAGE,
                            "calls differ: rank %d on %s is in %s #%llu with count %zu, rank %d on %s is in "
                            "another call (call word %08x, "
                            "expected %08x): all ranks must make the same "
                            "calls in the same order",
                            ctx->job.rank, rondo_log_host(), rondo_coll_name((enum rondo_coll)work->coll),
                            (unsigned long long)work->seq, work->block, peer, ctx->wiring.peers[peer].host,
                            got, work->call_word);
    }
    return rondo_ctx_fail(ctx, status, peer);
}

/* Calls `seq` differ, perhaps only because earlier ones did: report the first that differs. */
static rondo_status first_differs(struct rondo_ctx *ctx, int peer, uint64_t seq,
                                  const struct rondo_call *mine, const struct rondo_call *theirs)
{
    struct rondo_call my_first, their_first;
    return find_difference(ctx, peer, seq, &my_first, &their_first)
               ? differs(ctx, peer, &my_first, &their_first)
               : differs(ctx, peer, mine, theirs);
}

/* Compare with neighbours on other nodes, if they have sent a record of this call. They may have ended all
 * calls and left. */
static rondo_status compare_afar(struct rondo_ctx *ctx, uint64_t seq)
{
    struct rondo_call mine, theirs;
    if (!rondo_control_call_of(ctx->wiring.control, ctx->job.rank, seq, &mine) || mine.state != 1) {
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        int r = ctx->wiring.links[i].peer;
        if (ctx->wiring.links[i].conn.proxied && is_far(ctx, r) &&
            rondo_control_call_of(ctx->wiring.control, r, seq, &theirs) && theirs.word != mine.word) {
            return rondo_ctx_fail(ctx, first_differs(ctx, r, seq, &mine, &theirs), r);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status compare_call(struct rondo_ctx *ctx, uint64_t seq)
{
    struct rondo_call mine, theirs;
    if (!rondo_control_call_of(ctx->wiring.control, ctx->job.rank, seq, &mine) || mine.state != 1) {
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < ctx->wiring.layout.nlocal; i++) {
        int r = ctx->wiring.layout.local_ranks[i],
            left = rondo_control_state_of(ctx->wiring.control, r) ==
                   RONDO_RANK_LEFT; /* read before its calls, so that the last ones are seen */
        if (r == ctx->job.rank) {
            continue;
        }
        if (rondo_control_call_of(ctx->wiring.control, r, seq, &theirs)) {
            if (theirs.word != mine.word) {
                return rondo_ctx_fail(ctx, first_differs(ctx, r, seq, &mine, &theirs), r);
            }
        } else if (left && !(rondo_control_call_of(ctx->wiring.control, r, 0, &theirs) &&
                             theirs.seq >= seq)) { /* a root may be many calls ahead */
            char text[128];
            if (rondo_control_aborted(ctx->wiring.control)) {
                return rondo_ctx_ready(ctx); /* it left because of this, which came after the last look */
            }
            rondo_call_text(&mine, text, sizeof(text));
            return rondo_ctx_fail(ctx,
                                  rondo_fail(RONDO_REMOTE_ERROR,
                                             "rank %d on %s waits in %s, but rank %d on %s has destroyed or "
                                             "aborted its communicator before that call",
                                             ctx->job.rank, rondo_log_host(), text, r,
                                             ctx->wiring.peers[r].host),
                                  r);
        }
    }
    return RONDO_SUCCESS;
}

/* In a stall: does a rank of the node, or (afar) a neighbour on another node, make a different call under the
 * same number? This finds differences that no shared conn shows. Covers all open calls of a group. */
static rondo_status compare_calls(struct rondo_ctx *ctx, int afar)
{
    uint64_t seq = ctx->calls.seq > RONDO_CALL_RING ? ctx->calls.seq - RONDO_CALL_RING + 1 : 1;
    for (; seq <= ctx->calls.seq; seq++) {
        RONDO_TRY(afar ? compare_afar(ctx, seq) : compare_call(ctx, seq));
    }
    return RONDO_SUCCESS;
}

/* Any waiting thread may make progress on queued plans and free them: describe their executor under the
 * queue's lock, or not at all. */
static int describe(struct rondo_ctx *ctx, char *what, size_t bytes, struct rondo_blocked *blocked, int most)
{
    int queued = __atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) > 0, n = 0;
    char others[8];
    if (queued && pthread_mutex_trylock(&ctx->queue.lock) != 0) {
        return 0;
    }
    while (n < most && ctx->running.exec_ops->describe(ctx->running.exec, n, n == 0 ? what : others,
                                                       n == 0 ? bytes : sizeof(others), &blocked[n]) > 0) {
        blocked[n].peer = mailbox_rank(ctx, blocked[n].peer);
        n++;
    }
    if (queued) {
        pthread_mutex_unlock(&ctx->queue.lock);
    }
    return n;
}

/* What this rank waits for. @return the rank, or RONDO_NO_PEER. */
static int waits_for(struct rondo_ctx *ctx, char *what, size_t bytes)
{
    struct rondo_blocked blocked;
    return describe(ctx, what, bytes, &blocked, 1) > 0 ? blocked.peer : RONDO_NO_PEER;
}

/* Show rondo-doctor what this rank waits for. */
static void tell_waiting(struct rondo_ctx *ctx)
{
    struct rondo_blocked blocked[RONDO_RECORD_LANES];
    char what[160] = "";
    int n = describe(ctx, what, sizeof(what), blocked, RONDO_RECORD_LANES);
    if (n > 0) {
        rondo_control_waiting(ctx->wiring.control, blocked, n, what);
        __atomic_store_n(&ctx->running.told, 1, __ATOMIC_RELAXED);
    }
}

static void told_enough(struct rondo_ctx *ctx)
{
    __atomic_store_n(&ctx->running.told, 0, __ATOMIC_RELAXED);
    rondo_control_waiting(ctx->wiring.control, NULL, 0, NULL);
}

void rondo_ctx_waited(struct rondo_ctx *ctx)
{
    if (RONDO_UNLIKELY(__atomic_load_n(&ctx->running.told, __ATOMIC_RELAXED))) {
        told_enough(ctx);
    }
}

/* A collective: show the ranks of the node for which rank it waits. */
static void tell_stuck(struct rondo_ctx *ctx)
{
    char what[160];
    int peer;
    struct rondo_call mine;
    if (!rondo_control_call_of(ctx->wiring.control, ctx->job.rank, ctx->calls.seq, &mine) ||
        mine.state != 1) {
        return;
    }
    peer = waits_for(ctx, what, sizeof(what));
    if (peer >= 0) {
        rondo_control_stuck(ctx->wiring.control, ctx->calls.seq, peer);
    }
}

/*
 * A message: does its other end wait for this rank in a collective that this rank has not made? What the
 * other end had sent before is in the conn's slots, and each step of progress takes one. So if the message is
 * still open at the next such look, nothing more comes.
 */
static rondo_status compare_message(struct rondo_ctx *ctx)
{
    const struct rondo_message *mine = &ctx->calls.message;
    uint64_t seq = rondo_control_stuck_of(ctx->wiring.control, mine->peer, ctx->job.rank);
    struct rondo_call theirs;
    char message[96], call[128];
    if (seq <= ctx->calls.seq || !rondo_control_call_of(ctx->wiring.control, mine->peer, 0, &theirs) ||
        theirs.seq != seq || theirs.state != 1) {
        __atomic_store_n(&ctx->running.suspected, 0, __ATOMIC_RELAXED);
        return RONDO_SUCCESS;
    }
    if (__atomic_load_n(&ctx->running.suspected, __ATOMIC_RELAXED) != seq) {
        __atomic_store_n(&ctx->running.suspected, seq, __ATOMIC_RELAXED);
        return RONDO_SUCCESS;
    }
    rondo_message_text(mine, message, sizeof(message));
    rondo_call_text(&theirs, call, sizeof(call));
    return rondo_ctx_fail(
        ctx,
        rondo_fail(RONDO_INVALID_USAGE,
                   "calls differ: rank %d on %s waits in %s, rank %d on %s waits for rank %d in %s: a "
                   "collective does not meet sends and receives: all ranks must make the same calls in the "
                   "same order",
                   ctx->job.rank, rondo_log_host(), message, (int)mine->peer,
                   ctx->wiring.peers[mine->peer].host, ctx->job.rank, call),
        mine->peer);
}

/* After a while: a collective on one rank and a message on another may wait for each other. */
static rondo_status compare_kinds(struct rondo_ctx *ctx, uint32_t checks)
{
    int64_t now = rondo_now_ns();
    if (checks == KIND_CHECKS) {
        __atomic_store_n(&ctx->running.stalled_ns, now, __ATOMIC_RELAXED);
        __atomic_store_n(&ctx->running.suspected, 0, __ATOMIC_RELAXED);
    }
    if (now - __atomic_load_n(&ctx->running.stalled_ns, __ATOMIC_RELAXED) < long_wait_ns) {
        return RONDO_SUCCESS;
    }
    tell_waiting(ctx);
    if (ctx->backend->is_gpu || __atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) > 0) {
        return RONDO_SUCCESS;
    }
    if (ctx->calls.message.peer < 0) {
        tell_stuck(ctx);
        return RONDO_SUCCESS;
    }
    return ctx->calls.message_alone ? compare_message(ctx) : RONDO_SUCCESS;
}

static rondo_status check_abort(struct rondo_ctx *ctx)
{
    if (RONDO_UNLIKELY(__atomic_load_n(&ctx->life.aborted, __ATOMIC_ACQUIRE))) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                "rank %d: the communicator \"%s\" was aborted by this process", ctx->job.rank,
                                ctx->job.name);
    }
    return ctx->wiring.control != NULL && RONDO_UNLIKELY(rondo_control_aborted(ctx->wiring.control))
               ? rondo_ctx_ready(ctx)
               : RONDO_SUCCESS;
}

static rondo_status on_check(void *arg)
{
    struct rondo_ctx *ctx = arg;
    uint32_t checks;
    RONDO_TRY(check_abort(ctx));
    if (ctx->wiring.control == NULL) {
        return RONDO_SUCCESS;
    }
    /* A count that another thread's store loses does not matter. */
    checks = __atomic_load_n(&ctx->running.stall_checks, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&ctx->running.stall_checks, checks, __ATOMIC_RELAXED);
    if (checks == FIRST_STALL_CHECK || checks % OTHER_STALL_CHECKS == 0) {
        RONDO_TRY(compare_calls(ctx, 0));
    }
    if (checks % KIND_CHECKS == 0) {
        RONDO_TRY(compare_kinds(ctx, checks));
    }
    return ctx->wiring.net.proxied > 0 && checks % AFAR_STALL_CHECKS == 0 ? compare_calls(ctx, 1)
                                                                          : RONDO_SUCCESS;
}

/* "waited 30.0 s in all_reduce #17 (...) for data from rank 3 (...); rank 5 on host has not made this call,
 * ..." */
static rondo_status on_report(void *arg, int late, int64_t waited_ns)
{
    struct rondo_ctx *ctx = arg;
    char what[160] = "other ranks", call_text[128] = "sends and receives", culprits[400];
    int peer = waits_for(ctx, what, sizeof(what));
    struct rondo_call call;
    if (ctx->wiring.control != NULL && ctx->calls.seq > 0 &&
        rondo_control_call_of(ctx->wiring.control, ctx->job.rank, ctx->calls.seq, &call) && call.state == 1) {
        rondo_call_text(&call, call_text, sizeof(call_text));
    } else if (ctx->calls.message.peer >= 0) {
        rondo_message_text(&ctx->calls.message, call_text, sizeof(call_text));
    }
    rondo_stragglers_text(ctx, &peer, culprits, sizeof(culprits));
    if (!late) {
        RONDO_WARN("rank %d on %s has waited %.1f s in %s for %s%s", ctx->job.rank, rondo_log_host(),
                   (double)waited_ns * 1e-9, call_text, what, culprits);
        return RONDO_SUCCESS;
    }
    if (culprits[0] == '\0' && ctx->wiring.control != NULL && rondo_control_aborted(ctx->wiring.control)) {
        return rondo_ctx_ready(ctx); /* another rank timed out meanwhile and knows more */
    }
    rondo_report_late(ctx, peer >= 0 && !is_far(ctx, peer), "a deadline has passed");
    return rondo_ctx_fail(
        ctx,
        rondo_fail(RONDO_TIMEOUT, "rank %d on %s waited %.1f s (%s) in %s for %s%s", ctx->job.rank,
                   rondo_log_host(), (double)waited_ns * 1e-9,
                   ctx->job.config.timeout_ms != RONDO_CONFIG_DEFAULT ? "config.timeout_ms" : "RONDO_TIMEOUT",
                   call_text, what, culprits),
        peer >= 0 ? peer : -1);
}

static rondo_status progress_control(void *arg, int *moved) { return rondo_control_progress(arg, moved); }

static rondo_status progress_streams(void *arg, int *moved)
{
    (void)arg;
    rondo_streams_progress(moved);
    return RONDO_SUCCESS;
}

/* Do not wait for a dead rank, nor forever for one that was stopped in the middle of a slice. */
static int on_given_up(void *arg, int local, int64_t waited_ns)
{
    struct rondo_ctx *ctx = arg;
    int rank = ctx->wiring.layout.local_ranks[local], moved;
    (void)rondo_control_progress(ctx->wiring.control, &moved);
    if (rondo_control_state_of(ctx->wiring.control, rank) == RONDO_RANK_DEAD) {
        return 1;
    }
    if (waited_ns < linger_ns) {
        return 0;
    }
    ctx->running.lingers = rank;
    return 1;
}

rondo_status rondo_ctx_drop(struct rondo_ctx *ctx, rondo_status status)
{
    char why[RONDO_ERROR_TEXT];
    snprintf(why, sizeof(why), "%s", rondo_error_text());
    ctx->running.lingers = -1;
    rondo_net_revoke(&ctx->wiring.net);
    ctx->running.exec_ops->drop(ctx->running.exec);
    if (RONDO_LIKELY(ctx->running.lingers < 0)) {
        return rondo_fail_quiet(status, "%s", why);
    }
    return rondo_fail(status,
                      "%.300s; rank %d on %s was stopped while it moved data of this call: it may still "
                      "touch this rank's buffers when it "
                      "goes on: keep them until its process has ended",
                      why, ctx->running.lingers, ctx->wiring.peers[ctx->running.lingers].host);
}

void rondo_ctx_policy(struct rondo_ctx *ctx)
{
    const struct rondo_params *params = rondo_params();
    int64_t timeout = ctx->job.config.timeout_ms != RONDO_CONFIG_DEFAULT
                          ? rondo_ms_to_ns(ctx->job.config.timeout_ms)
                          : params->timeout;
    struct rondo_wait_policy *policy = &ctx->running.policy;
    policy->spins = params->spin >= 0                             ? (uint32_t)params->spin
                    : ctx->wiring.layout.model.ranks_per_core > 1 ? 0
                    : ctx->wiring.net.proxied > 0                 ? NET_SPINS
                                                                  : SPINS;
    policy->oversubscription = params->spin >= 0 ? NULL : &ctx->running.oversubscription;
    policy->sleep_after_ns = params->sleep_after;
    policy->timeout_ns = timeout;
    policy->warn_after_ns = params->warn_after;
    policy->progress = &ctx->running.progress;
    policy->check = on_check;
    policy->report = on_report;
    policy->arg = ctx;
    ctx->running.owner.arg = ctx;
    ctx->running.owner.mismatch = on_mismatch;
    ctx->running.owner.given_up = on_given_up;
    ctx->running.owner.conns_begin = rondo_profile_net_begin;
    ctx->running.owner.conns_end = rondo_profile_net_end;
    if (ctx->wiring.control != NULL && ctx->running.progress.nhooks == 0) {
        struct rondo_hook control = { "control", progress_control, ctx->wiring.control, 0 },
                          streams = { "streams", progress_streams, NULL, 0 };
        rondo_progress_add(&ctx->running.progress, control);
        rondo_progress_add(&ctx->running.progress, streams);
    }
}

rondo_status rondo_ctx_progress(struct rondo_ctx *ctx, int *moved)
{
    RONDO_TRY(ctx->running.exec_ops->progress(ctx->running.exec, moved));
    if (RONDO_UNLIKELY(ctx->prof != NULL)) {
        rondo_profile_idle(ctx, !*moved);
    }
    return RONDO_LIKELY(ctx->wiring.net.proxied == 0) ? RONDO_SUCCESS
                                                      : rondo_net_progress(&ctx->wiring.net, moved);
}

static int on_elsewhere(void *arg)
{
    const struct rondo_ctx *ctx = arg;
    return ctx->running.exec_ops->elsewhere(ctx->running.exec);
}

rondo_status rondo_ctx_with_reason(struct rondo_ctx *ctx, rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    int64_t end = rondo_now_ns() + RONDO_ANSWER_NS;
    int moved;
    if (status != RONDO_REMOTE_ERROR || ctx->wiring.net.proxied == 0 || ctx->wiring.control == NULL ||
        __atomic_load_n(&ctx->life.aborted, __ATOMIC_ACQUIRE)) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    while (!rondo_control_aborted(ctx->wiring.control) && rondo_now_ns() < end) {
        (void)rondo_control_progress(ctx->wiring.control, &moved);
        sched_yield();
    }
    return rondo_control_aborted(ctx->wiring.control) ? rondo_ctx_ready(ctx)
                                                      : rondo_fail_quiet(status, "%s", text);
}

rondo_status rondo_ctx_wait(struct rondo_ctx *ctx, const int *open)
{
    struct rondo_wait wait;
    uint32_t busy = 0;
    rondo_wait_begin(&wait, &ctx->running.policy);
    if (ctx->running.policy.spins == 0 && ctx->running.exec_ops->elsewhere != NULL) {
        wait.elsewhere = on_elsewhere; /* more ranks than cores */
    }
    rondo_ctx_goes_on(ctx);
    for (;;) {
        int moved = 0;
        rondo_status status = rondo_ctx_progress(ctx, &moved);
        if (RONDO_LIKELY(status == RONDO_SUCCESS)) {
            if (RONDO_LIKELY(*open == 0 && !ctx->wiring.net.busy)) {
                rondo_ctx_waited(ctx);
                return RONDO_SUCCESS;
            }
            if (moved) {
                rondo_wait_reset(&wait);
                if (RONDO_LIKELY(++busy % RONDO_BUSY_ROUNDS != 0)) {
                    continue;
                }
                status = check_abort(ctx); /* a rank that copies may move for seconds */
            } else {
                status = rondo_wait_once(&wait);
            }
            if (RONDO_LIKELY(status == RONDO_SUCCESS)) {
                continue;
            }
        }
        status = rondo_ctx_fail(ctx, rondo_ctx_with_reason(ctx, status), -1);
        rondo_report_failed(ctx);
        return rondo_ctx_drop(ctx, status);
    }
}

static rondo_status compare_with(struct rondo_ctx *ctx, int peer, uint64_t seq, int *unknown)
{
    struct rondo_call mine, theirs;
    if (peer == ctx->job.rank || !rondo_control_call_of(ctx->wiring.control, ctx->job.rank, seq, &mine)) {
        return RONDO_SUCCESS;
    }
    if (!rondo_control_call_of(ctx->wiring.control, peer, seq, &theirs)) {
        *unknown = 1;
        return RONDO_SUCCESS;
    }
    return theirs.word == mine.word ? RONDO_SUCCESS
                                    : rondo_ctx_fail(ctx, differs(ctx, peer, &mine, &theirs), peer);
}

/* Look at what others published first: each of their calls writes their records, and a reader delays the next
 * write. */
static rondo_status compare_published(struct rondo_ctx *ctx, const struct rondo_run *run, int *unknown)
{
    const struct rondo_work *w = &run->work;
    int none, local = rondo_mailbox_differs(run, unknown);
    if (RONDO_LIKELY(local < 0)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(compare_with(ctx, ctx->wiring.layout.local_ranks[local], w->seq, &none));
    return on_mismatch(ctx, -1 - local, w, 0);
}

static int is_by_mailbox(const struct rondo_run *run)
{
    return rondo_algo_medium(run->work.algo) == RONDO_MEDIUM_MAILBOX;
}

static rondo_status compare_run(struct rondo_ctx *ctx, const struct rondo_run *run, int *unknown)
{
    const struct rondo_work *w = &run->work;
    struct rondo_step step = run->schedule->flow[0].step(&w->seat, 0);
    if (is_by_mailbox(run)) {
        return compare_published(ctx, run, unknown);
    }
    for (int k = 0; k < step.nto; k++) {
        RONDO_TRY(compare_with(ctx, w->ports->send[step.to[k]]->peer, w->seq, unknown));
    }
    return RONDO_SUCCESS;
}

/* A one-shot fallback that did not run because direct access worked: there all ranks saw all others, and this
 * run published nothing. */
static int is_unpublished(const struct rondo_run *run)
{
    return is_by_mailbox(run) && run->fallback_of != NULL && run->fallback_of->verdict == RONDO_DIRECT;
}

/*
 * A rank that only sends (the root of a broadcast, a leaf of a reduce) receives no call word, and two such
 * ranks would both succeed. So it compares its call with those of the ranks it sends to; on the mailbox these
 * are all ranks, and the later of two ranks sees the earlier one's call. The fence is for peers whose call
 * was not seen yet: this rank's own call is visible before it looks again. The mailbox is read only once,
 * after the fence: reading a place that is about to be written makes its writer, and then the reader, fetch
 * the line once more (0.2 us).
 */
rondo_status rondo_plan_compare(struct rondo_ctx *ctx, const struct rondo_run *runs, int nruns)
{
    for (int i = 0; i < nruns; i++) {
        const struct rondo_run *run = &runs[i];
        int unknown = 0;
        if (RONDO_LIKELY(!run->only_sends) || run->work.seq == 0 || is_unpublished(run)) {
            continue;
        }
        if (!is_by_mailbox(run)) {
            RONDO_TRY(compare_run(ctx, run, &unknown));
            if (!unknown) {
                continue;
            }
        }
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        RONDO_TRY(compare_run(ctx, run, &unknown));
    }
    return RONDO_SUCCESS;
}

static void calls_end(struct rondo_ctx *ctx, uint64_t first, uint64_t last)
{
    for (; ctx->wiring.control != NULL && first != 0 && first <= last; first++) {
        rondo_control_call_end_timed(ctx->wiring.control, first);
    }
}

/* A repeated call. */
static rondo_status run_cached(struct rondo_ctx *ctx, struct rondo_cached *cached)
{
    struct rondo_plan *plan = &ctx->calls.immediate;
    uint32_t *timed = rondo_drift_takes(ctx);
    int64_t begin = timed != NULL ? rondo_now_ns() : 0;
    plan->open = cached->nruns;
    rondo_submit(ctx, cached->runs, cached->nruns, NULL);
    RONDO_TRY(rondo_ctx_wait(ctx, &plan->open));
    RONDO_TRY(rondo_plan_compare(ctx, cached->runs, cached->nruns));
    if (RONDO_UNLIKELY(timed != NULL)) {
        *timed = rondo_drift_measured(ctx, cached, rondo_now_ns() - begin);
    }
    rondo_control_call_end_timed(ctx->wiring.control, ctx->calls.seq);
    return RONDO_SUCCESS;
}

static rondo_status run_plan(struct rondo_ctx *ctx, const struct rondo_task *task)
{
    struct rondo_plan *plan = &ctx->calls.immediate;
    rondo_plan_reset(plan);
    RONDO_TRY(rondo_plan_fails(ctx, rondo_plan_add(plan, task)));
    RONDO_TRY(rondo_plan_check(plan));
    if (RONDO_UNLIKELY(task->prof != NULL)) {
        rondo_profile_watch(task, plan->runs, plan->nruns);
    }
    plan->open = plan->nruns;
    rondo_submit(ctx, plan->runs, plan->nruns, NULL);
    RONDO_TRY(rondo_ctx_wait(ctx, &plan->open));
    return rondo_plan_compare(ctx, plan->runs, plan->nruns);
}

rondo_status rondo_task_run(const struct rondo_task *task)
{
    struct rondo_ctx *ctx = task->ctx;
    struct rondo_cached *cached = NULL;
    struct rondo_plan *plan = &ctx->calls.immediate;
    rondo_status status;
    if (RONDO_UNLIKELY(__atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) != 0)) {
        RONDO_TRY(rondo_ctx_drain(ctx));
    }
    RONDO_TRY(rondo_fault("call", ctx->job.rank, ctx->calls.seq + 1));
    status = rondo_plan_fails(ctx, rondo_plan_cached(ctx, task, &cached));
    if (RONDO_LIKELY(status == RONDO_SUCCESS && cached != NULL)) {
        if (RONDO_UNLIKELY(task->prof != NULL)) {
            rondo_profile_watch(task, cached->runs, cached->nruns);
        }
        return run_cached(ctx, cached);
    }
    if (status == RONDO_SUCCESS) {
        rondo_message_begin(ctx, task, 1);
        status = run_plan(ctx, task);
        rondo_message_end(ctx);
        if (status == RONDO_SUCCESS) {
            rondo_plan_calls_end(plan);
        }
    }
    return status;
}

void rondo_plan_calls_end(struct rondo_plan *plan)
{
    calls_end(plan->ctx, plan->first_seq, plan->last_seq);
    for (uint64_t m = plan->first_message; m != 0 && m <= plan->last_message; m++) {
        rondo_control_message_end(plan->ctx->wiring.control, m);
    }
}
