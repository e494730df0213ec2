/* Calls of communicators with a GPU: build a plan, make its connections, launch it. Contract: comm/backend.h.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/cached.h"
#include "call/plan.h"
#include "call/profile.h"
#include "call/wait.h"
#include "comm/links.h"
#include "gpu/device.h"

/* ---- checks of buffers ---- */

enum { PAGES = 256, PAGE_SHIFT = 12 };

/* Pages that were checked. Memory that was freed and allocated again as another kind goes unnoticed: the
 * check helps, but guarantees nothing. */
struct rondo_pages {
    uintptr_t page[PAGES];
};

static const char *kind_text(enum rondo_pointer_kind kind)
{
    static const char *const text[] = { "pageable host memory", "pinned host memory", "GPU memory",
                                        "managed memory" };
    return text[kind];
}

static rondo_status bad_buffer(const struct rondo_ctx *ctx, const char *call, const char *which,
                               const void *pointer, enum rondo_pointer_kind kind, int ordinal)
{
    if (ctx->device == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_%s on rank %d: the %s buffer %p is memory of GPU %d, and the communicator "
                          "\"%s\" is for host memory: set the device in its config, or copy the data first",
                          call, ctx->job.rank, which, pointer, ordinal, ctx->job.name);
    }
    if (kind == RONDO_POINTER_DEVICE) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_%s on rank %d: the %s buffer %p is memory of GPU %d, and the communicator "
                          "\"%s\" is on GPU %d",
                          call, ctx->job.rank, which, pointer, ordinal, ctx->job.name, ctx->device->ordinal);
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT,
                      "rondo_%s on rank %d: the %s buffer %p is %s, and the communicator \"%s\" is on GPU "
                      "%d: pass device, managed or pinned memory, or create the communicator for host memory",
                      call, ctx->job.rank, which, pointer, kind_text(kind), ctx->job.name,
                      ctx->device->ordinal);
}

static rondo_status check_pointer(const struct rondo_ctx *ctx, const char *call, const char *which,
                                  const void *pointer)
{
    uintptr_t page = (uintptr_t)pointer >> PAGE_SHIFT, *seen = &ctx->pages->page[page % PAGES];
    enum rondo_pointer_kind kind;
    int ordinal, fits;
    if (RONDO_LIKELY(*seen == page) && rondo_params()->check_pointers == RONDO_CHECK_POINTERS_AUTO) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_cuda_pointer(pointer, &kind, &ordinal));
    fits = ctx->device == NULL ? kind != RONDO_POINTER_DEVICE
                               : kind != RONDO_POINTER_HOST &&
                                     (kind != RONDO_POINTER_DEVICE || ordinal == ctx->device->ordinal);
    if (!fits) {
        return bad_buffer(ctx, call, which, pointer, kind, ordinal);
    }
    *seen = page;
    return RONDO_SUCCESS;
}

rondo_status rondo_device_check_pointers(struct rondo_ctx *ctx)
{
    int wanted = rondo_params()->check_pointers;
    if (wanted == RONDO_CHECK_POINTERS_NEVER || (ctx->device == NULL && !rondo_cuda_loaded()) ||
        rondo_cuda(NULL) == NULL) {
        return RONDO_SUCCESS;
    }
    ctx->check_pointer = check_pointer;
    return RONDO_NEW(ctx->pages, "the pages of buffers");
}

rondo_status rondo_device_check_stream(struct rondo_ctx *ctx, rondo_stream stream)
{
    return rondo_exec_cuda_check_stream(ctx->running.exec, (CUstream)(void *)stream);
}

/* ---- connections for sends and receives ---- */

/* A plan to launch: a group's, or the prepared runs of a repeated call. */
struct launch {
    struct rondo_ctx *ctx;
    struct rondo_run *runs;
    int nruns;
    CUstream stream;
    const struct rondo_extra_stream *extra;
    uint64_t first_seq, last_seq;
    int open;
    int met;      /* the hosts have met for calls by copy engines */
    int launched; /* completely */
    struct rondo_prof_run *prof;
};

/* Copy a message's connection to the device. RONDO_IN_PROGRESS: its other end is not ready. */
static rondo_status wire_message(struct launch *l, struct rondo_run *run)
{
    struct rondo_ctx *ctx = l->ctx;
    uint32_t lane = run->lane - (uint32_t)ctx->wiring.layout.nchannels;
    struct rondo_p2p *p2p = ctx->wiring.p2p[lane / 2];
    int is_send = (int)(lane % 2);
    rondo_status status = RONDO_SUCCESS;
    if (p2p->device_conn[is_send] == NULL) {
        pthread_mutex_lock(&ctx->device->net);
        if (run->ready != NULL && run->ready(run, &status) == 0) {
            status = RONDO_IN_PROGRESS;
        }
        pthread_mutex_unlock(&ctx->device->net);
        RONDO_TRY(status);
        RONDO_TRY(rondo_exec_cuda_wire_peer(ctx->running.exec, &p2p->link[is_send].conn,
                                            &p2p->device_conn[is_send]));
    }
    run->work.conns = p2p->device_conn[is_send];
    return RONDO_SUCCESS;
}

static int is_message(const struct launch *l, const struct rondo_run *run)
{
    return run->lane >= (uint32_t)l->ctx->wiring.layout.nchannels;
}

/* Make all connections that can be made now. @return RONDO_IN_PROGRESS: some are missing. */
static rondo_status connect_some(struct launch *l)
{
    rondo_status all = RONDO_SUCCESS;
    for (int i = 0; i < l->nruns; i++) {
        rondo_status status = is_message(l, &l->runs[i]) && !rondo_run_stays_out(&l->runs[i])
                                  ? wire_message(l, &l->runs[i])
                                  : RONDO_SUCCESS;
        if (status == RONDO_IN_PROGRESS) {
            all = status;
        } else {
            RONDO_TRY(status);
        }
    }
    return all;
}

/* ---- several plans at once ---- */

/* A step of waiting, with the lock held: its checks inspect what the communicator's thread inspects, too. */
static rondo_status wait_locked(struct rondo_ctx *ctx, struct rondo_wait *wait)
{
    rondo_status status;
    pthread_mutex_lock(&ctx->device->lock);
    status = rondo_wait_once(wait);
    pthread_mutex_unlock(&ctx->device->lock);
    return status;
}

static int by_comm(const void *x, const void *y)
{
    const struct rondo_ctx *a = ((const struct launch *)x)->ctx, *b = ((const struct launch *)y)->ctx;
    return a->job.hash != b->job.hash ? (a->job.hash > b->job.hash) - (a->job.hash < b->job.hash)
                                      : (a->job.rank > b->job.rank) - (a->job.rank < b->job.rank);
}

/* Must launch i wait for another communicator's plan before it on the same device? Ranks of one communicator
 * that share it take turns. */
static int must_wait(const struct launch *l, int i)
{
    for (int j = 0; j < i; j++) {
        if (l[j].open && l[j].ctx->device->ordinal == l[i].ctx->device->ordinal &&
            l[j].ctx->job.hash != l[i].ctx->job.hash) {
            return 1;
        }
    }
    return 0;
}

/* Call step for each launch until none is open, and make progress for those that wait. in_order: on a device,
 * one communicator after the other. */
static rondo_status step_all(struct launch *l, int n, int in_order,
                             rondo_status (*step)(struct launch *l, int *moved))
{
    struct rondo_wait wait;
    int open = n, looked = 0;
    for (int i = 0; i < n; i++) {
        l[i].open = 1;
    }
    rondo_wait_begin(&wait, &l[0].ctx->running.policy);
    while (open > 0) {
        int any = 0;
        for (int i = 0; i < n; i++) {
            int moved = 0;
            rondo_status status = l[i].open && !(in_order && must_wait(l, i)) ? step(&l[i], &moved)
                                                                              : RONDO_IN_PROGRESS;
            if (status == RONDO_SUCCESS) {
                l[i].open = 0;
                open--;
            } else if (status != RONDO_IN_PROGRESS) {
                return rondo_ctx_fail(l[i].ctx, status, -1);
            }
            any |= moved || status == RONDO_SUCCESS;
        }
        if (any) {
            rondo_wait_reset(&wait);
        } else if (open > 0) {
            rondo_status status;
            do {
                looked = (looked + 1) % n;
            } while (!l[looked].open || (in_order && must_wait(l, looked)));
            wait.policy = &l[looked].ctx->running.policy;
            status = wait_locked(l[looked].ctx, &wait);
            if (status != RONDO_SUCCESS) {
                return rondo_ctx_fail(l[looked].ctx, status, -1);
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status step_connect(struct launch *l, int *moved)
{
    *moved = 0;
    if (!l->met) {
        rondo_status status;
        pthread_mutex_lock(&l->ctx->device->lock);
        status = rondo_exec_cuda_meet(l->ctx->running.exec, l->runs, l->nruns);
        pthread_mutex_unlock(&l->ctx->device->lock);
        RONDO_TRY(status);
        *moved = l->met = 1;
    }
    return connect_some(l);
}

/* The peer's end may need this rank's hooks to move. */
static rondo_status pair(struct rondo_ctx *ctx, int peer)
{
    const struct rondo_wait_policy *policy = &ctx->running.policy;
    rondo_status all = RONDO_SUCCESS;
    int moved = 0;
    RONDO_TRY(policy->check(policy->arg));
    RONDO_TRY(rondo_progress_run(policy->progress, 0, &moved));
    for (int is_send = 0; is_send < 2; is_send++) {
        struct rondo_p2p *p2p;
        rondo_status status;
        RONDO_TRY(rondo_p2p_get(ctx, peer, is_send, &p2p));
        pthread_mutex_lock(&ctx->device->net);
        status = rondo_link_connect_lazy(&ctx->wiring.net, &p2p->link[is_send]);
        pthread_mutex_unlock(&ctx->device->net);
        if (status == RONDO_IN_PROGRESS) {
            all = status;
        } else {
            RONDO_TRY(status);
        }
    }
    return all;
}

rondo_status rondo_device_pair(struct rondo_ctx *ctx, int peer)
{
    rondo_status status;
    pthread_mutex_lock(&ctx->device->lock);
    status = pair(ctx, peer);
    pthread_mutex_unlock(&ctx->device->lock);
    return status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS ? status : rondo_ctx_fail(ctx, status, -1);
}

/* Without the lock: a launch blocks while the driver's queue is full, perhaps behind a kernel that waits for
 * a peer, and then only the communicator's thread can end that kernel. */
static rondo_status step_launch(struct launch *l, int *moved)
{
    rondo_status status = rondo_exec_cuda_step(l->ctx->running.exec, moved);
    l->launched = status == RONDO_SUCCESS;
    return status;
}

/* ---- launching ---- */

/* The oldest plan counts as ended. */
static void end_oldest(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    struct rondo_prof_run **prof = &d->call[d->nended++ % RONDO_DEVICE_CALLS].prof;
    if (*prof != NULL) {
        rondo_prof_lock(ctx->prof);
        rondo_prof_runs_end(*prof);
        rondo_prof_unlock(ctx->prof);
        *prof = NULL;
    }
}

void rondo_device_end_calls(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    uint64_t ended = d->nended < d->ncalls ? rondo_exec_cuda_ended(ctx->running.exec) : 0;
    while (d->nended < d->ncalls && d->call[d->nended % RONDO_DEVICE_CALLS].serial <= ended) {
        uint64_t seq = d->call[d->nended % RONDO_DEVICE_CALLS].first;
        for (; ctx->wiring.control != NULL && seq <= d->call[d->nended % RONDO_DEVICE_CALLS].last; seq++) {
            rondo_control_call_end_timed(ctx->wiring.control, seq);
        }
        end_oldest(ctx);
    }
}

void rondo_device_forget_calls(struct rondo_ctx *ctx)
{
    while (ctx->device->nended < ctx->device->ncalls) {
        end_oldest(ctx);
    }
}

/* The calls of a plan are in progress until its launches have ended. If too many are, the oldest count as
 * ended. */
static void note_calls(struct launch *l)
{
    struct rondo_device *d = l->ctx->device;
    if (l->first_seq == 0 && l->prof == NULL) {
        return;
    }
    pthread_mutex_lock(&d->lock);
    rondo_device_end_calls(l->ctx);
    if (d->ncalls - d->nended == RONDO_DEVICE_CALLS) {
        end_oldest(l->ctx);
    }
    d->call[d->ncalls % RONDO_DEVICE_CALLS].serial = rondo_exec_cuda_issued(l->ctx->running.exec);
    d->call[d->ncalls % RONDO_DEVICE_CALLS].first = l->first_seq == 0 ? 1 : l->first_seq;
    d->call[d->ncalls % RONDO_DEVICE_CALLS].last = l->first_seq == 0 ? 0 : l->last_seq;
    d->call[d->ncalls % RONDO_DEVICE_CALLS].prof = l->prof;
    d->ncalls++;
    pthread_mutex_unlock(&d->lock);
}

/* Ranks of one thread on one device would wait for one another in a common stream. */
static rondo_status check_streams(const struct launch *l, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i && l[i].ctx->device->sharers_here > 1; j++) {
            if (l[i].stream == l[j].stream && l[i].ctx->job.hash == l[j].ctx->job.hash &&
                l[i].ctx != l[j].ctx && l[i].ctx->device->ordinal == l[j].ctx->device->ordinal) {
                return rondo_fail(RONDO_INVALID_USAGE,
                                  "ranks %d and %d of communicator \"%s\" share GPU %d and use one stream: "
                                  "give each its own",
                                  l[j].ctx->job.rank, l[i].ctx->job.rank, l[i].ctx->job.name,
                                  l[i].ctx->device->ordinal);
            }
        }
    }
    return RONDO_SUCCESS;
}

static CUstream cuda_stream(const struct rondo_extra_stream *extra)
{
    return (CUstream)(void *)extra->stream;
}

static rondo_status begin(const struct launch *l)
{
    rondo_status status = rondo_exec_cuda_begin(l->ctx->running.exec, l->stream, l->runs, l->nruns);
    for (const struct rondo_extra_stream *extra = l->extra; extra != NULL && status == RONDO_SUCCESS;
         extra = extra->next) {
        status = rondo_exec_cuda_behind(l->ctx->running.exec, cuda_stream(extra));
    }
    return status == RONDO_SUCCESS ? status : rondo_ctx_fail(l->ctx, status, -1);
}

/* A plan by itself: begin it and launch all that there is room for. */
static rondo_status start(struct launch *l)
{
    rondo_status status = rondo_exec_cuda_start(l->ctx->running.exec, l->stream, l->runs, l->nruns);
    l->launched = status == RONDO_SUCCESS;
    return status;
}

static rondo_status end(const struct launch *l)
{
    rondo_status status = rondo_exec_cuda_end(l->ctx->running.exec, l->stream);
    for (const struct rondo_extra_stream *extra = l->extra; extra != NULL && status == RONDO_SUCCESS;
         extra = extra->next) {
        status = rondo_exec_cuda_end(l->ctx->running.exec, cuda_stream(extra));
    }
    return status == RONDO_SUCCESS ? status : rondo_ctx_fail(l->ctx, status, -1);
}

/* Launches of a stream run one after the other, and a kernel that waits for its peers holds up all that
 * follow in its stream, and all other communicators if RONDO_LAUNCH_ORDER_IMPLICIT is set. To avoid
 * deadlocks, all ranks launch the communicators of a group in the same order, whatever the order of the
 * calls, each with all its launches: a peer's first launch may wait for a rank's second. */
static rondo_status launch_in_order(struct launch *l, int n)
{
    qsort(l, (size_t)n, sizeof(*l), by_comm);
    RONDO_TRY(check_streams(l, n));
    RONDO_TRY(step_all(l, n, 0, step_connect));
    for (int i = 0; i < n; i++) {
        rondo_device_profile_plan(l[i].ctx, l[i].runs, l[i].nruns, l[i].stream);
    }
    if (n == 1 && l->extra == NULL) {
        rondo_status status = start(l);
        if (status != RONDO_IN_PROGRESS) {
            return status == RONDO_SUCCESS ? status : rondo_ctx_fail(l->ctx, status, -1);
        }
        return step_all(l, n, 1, step_launch);
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(begin(&l[i]));
    }
    return step_all(l, n, 1, step_launch);
}

static void profile_begin(struct launch *l, int n)
{
    for (int i = 0; i < n; i++) {
        if (l[i].ctx->prof != NULL) {
            rondo_profile_launch_begin(l[i].ctx, l[i].runs, l[i].nruns, l[i].stream);
        }
    }
}

static void profile_end(struct launch *l, int n)
{
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < l[i].nruns && l[i].ctx->prof != NULL; r++) {
            if (rondo_run_stays_out(&l[i].runs[r])) {
                rondo_profile_forget(l[i].ctx, &l[i].runs[r], 1);
            }
        }
        if (l[i].ctx->prof != NULL) {
            if (!l[i].launched) {
                rondo_device_profile_forget(l[i].ctx);
            }
            l[i].prof = rondo_profile_launch_end(l[i].ctx, l[i].runs, l[i].nruns, l[i].launched);
        }
    }
}

/* Peers would wait for ever for launches that fail, so those communicators end. Communicators that are
 * launched stay usable. */
static rondo_status launch_all(struct launch *l, int n)
{
    rondo_status status;
    profile_begin(l, n);
    status = launch_in_order(l, n);
    profile_end(l, n);
    for (int i = 0; i < n;
         i++) { /* after all launches: another plan may be in a stream that is to wait for this one */
        rondo_status ended = l[i].launched ? end(&l[i]) : rondo_ctx_fail(l[i].ctx, status, -1);
        status = status == RONDO_SUCCESS ? ended : status;
    }
    for (int i = 0; i < n; i++) {
        if (l[i].launched) {
            note_calls(&l[i]);
            rondo_device_wake(l[i].ctx);
        }
    }
    return status;
}

/* Add a stream to the plan unless it is there. */
static rondo_status add_stream(struct rondo_plan *plan, rondo_stream stream)
{
    const struct rondo_extra_stream *extra = plan->extra;
    void *memory;
    while (extra != NULL && extra->stream != stream) {
        extra = extra->next;
    }
    if (extra != NULL || stream == plan->stream) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_plan_temp(plan, sizeof(*extra), &memory));
    *(struct rondo_extra_stream *)memory = (struct rondo_extra_stream){ .stream = stream,
                                                                        .next = plan->extra };
    plan->extra = memory;
    return RONDO_SUCCESS;
}

rondo_status rondo_device_add(struct rondo_plan *plan, const struct rondo_task *task)
{
    rondo_status status;
    RONDO_TRY(add_stream(plan, task->stream));
    pthread_mutex_lock(&task->ctx->device->lock);
    status = rondo_plan_add(plan, task);
    pthread_mutex_unlock(&task->ctx->device->lock);
    return status;
}

static rondo_status make_plan(struct rondo_plan *plan, const struct rondo_task *task)
{
    rondo_plan_reset(plan);
    RONDO_TRY(rondo_plan_add(plan, task));
    return rondo_plan_check(plan);
}

rondo_status rondo_device_run(const struct rondo_task *task)
{
    struct rondo_ctx *ctx = task->ctx;
    struct rondo_plan *plan = &ctx->calls.immediate;
    struct rondo_cached *cached = NULL;
    struct launch l = { .ctx = ctx, .stream = (CUstream)(void *)task->stream };
    rondo_status status;
    RONDO_TRY(rondo_device_look(ctx));
    RONDO_TRY(rondo_fault("call", ctx->job.rank, ctx->calls.seq + 1));
    pthread_mutex_lock(&ctx->device->lock);
    status = rondo_plan_cached(ctx, task, &cached);
    if (status == RONDO_SUCCESS && cached == NULL) {
        status = make_plan(plan, task);
    }
    pthread_mutex_unlock(&ctx->device->lock);
    RONDO_TRY(rondo_plan_fails(ctx, status));
    if (cached != NULL) {
        l.runs = cached->runs;
        l.nruns = cached->nruns;
        l.first_seq = l.last_seq = ctx->wiring.control != NULL ? ctx->calls.seq : 0;
    } else {
        l.runs = plan->runs;
        l.nruns = plan->nruns;
        l.first_seq = plan->first_seq;
        l.last_seq = plan->last_seq;
    }
    rondo_profile_watch(task, l.runs, l.nruns);
    return launch_all(&l, 1);
}

static int is_mine(const struct rondo_plan *plan) { return plan != NULL && plan->ctx->device != NULL; }

rondo_status rondo_device_launch(struct rondo_plan **plans, int nplans)
{
    struct launch *l;
    rondo_status status;
    int n = 0;
    for (int p = 0; p < nplans; p++) {
        n += is_mine(plans[p]);
    }
    if (n == 0) {
        return RONDO_SUCCESS;
    }
    status = RONDO_NEW_ARRAY(l, n, "the launches of a group");
    for (int p = 0; p < nplans && status != RONDO_SUCCESS; p++) {
        if (is_mine(plans[p])) {
            rondo_ctx_fail(plans[p]->ctx, status, -1);
        }
    }
    RONDO_TRY(status);
    n = 0;
    for (int p = 0; p < nplans; p++) {
        const struct rondo_plan *plan = plans[p];
        if (is_mine(plan)) {
            l[n++] = (struct launch){ .ctx = plan->ctx,
                                      .runs = plan->runs,
                                      .nruns = plan->nruns,
                                      .stream = (CUstream)(void *)plan->stream,
                                      .extra = plan->extra,
                                      .first_seq = plan->first_seq,
                                      .last_seq = plan->last_seq };
        }
    }
    status = launch_all(l, n);
    for (int p = 0; p < nplans; p++) {
        if (is_mine(plans[p])) {
            rondo_plan_release(plans[p]);
            rondo_free(plans[p]);
            plans[p] = NULL;
        }
    }
    rondo_free(l);
    return status;
}

/* Launches that have ended may have left slices to the proxy, whose thread may be about to stop. @return
 * RONDO_IN_PROGRESS: slices are still being sent. */
static rondo_status net_query(struct rondo_ctx *ctx)
{
    int moved = 0;
    rondo_status status;
    pthread_mutex_lock(&ctx->device->net);
    status = ctx->wiring.net.proxied > 0 ? rondo_net_progress(&ctx->wiring.net, &moved) : RONDO_SUCCESS;
    status = status == RONDO_SUCCESS && ctx->wiring.net.proxied > 0 && ctx->wiring.net.busy
                 ? RONDO_IN_PROGRESS
                 : status;
    pthread_mutex_unlock(&ctx->device->net);
    return status;
}

static rondo_status query(struct rondo_ctx *ctx)
{
    RONDO_TRY(rondo_exec_cuda_query(ctx->running.exec));
    return net_query(ctx);
}

rondo_status rondo_device_drain(struct rondo_ctx *ctx)
{
    struct rondo_wait wait;
    rondo_status status;
    rondo_wait_begin(&wait, &ctx->running.policy);
    while ((status = query(ctx)) == RONDO_IN_PROGRESS) {
        status = rondo_device_look(ctx);
        if (status == RONDO_SUCCESS) {
            status = wait_locked(ctx, &wait);
        }
        if (status != RONDO_SUCCESS) {
            return rondo_ctx_fail(ctx, status, -1);
        }
    }
    if (status != RONDO_SUCCESS) {
        return rondo_ctx_fail(ctx, status, -1);
    }
    RONDO_TRY(rondo_device_look(ctx));
    pthread_mutex_lock(&ctx->device->lock);
    rondo_device_end_calls(ctx);
    pthread_mutex_unlock(&ctx->device->lock);
    return rondo_ctx_ready(ctx);
}

rondo_status rondo_device_look(struct rondo_ctx *ctx)
{
    rondo_status status = ctx->running.exec != NULL ? rondo_exec_cuda_fault(ctx->running.exec)
                                                    : RONDO_SUCCESS;
    return status == RONDO_SUCCESS ? status : rondo_ctx_fail(ctx, status, -1);
}
