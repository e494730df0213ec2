/* The backend of host memory. A call runs until it is done, or is queued on a host stream. */
#include "host/host.h"

#include "base/mem.h"
#include "base/param.h"
#include "call/plan.h"
#include "call/profile.h"
#include "call/stream.h"
#include "call/wait.h"
#include "kern/direct.h"
#include "kern/exec.h"

/* ---- creation ---- */

static rondo_status choose_exec(struct rondo_ctx *ctx)
{
    ctx->running.exec_ops = rondo_params()->exec == RONDO_EXEC_CPU ? &rondo_exec_cpu : &rondo_exec_null;
    return RONDO_SUCCESS;
}

static rondo_status fill_peer(struct rondo_ctx *ctx, struct rondo_peer *peer)
{
    (void)peer;
    return ctx->job.config.device == RONDO_CONFIG_DEFAULT ? RONDO_SUCCESS : rondo_no_gpu();
}

static int max_channels(const struct rondo_ctx *ctx) { return (void)ctx, RONDO_MAX_CHANNELS; }

static size_t mailbox_capacity(const struct rondo_ctx *ctx)
{
    return ctx->wiring.layout.nnodes == 1 ? rondo_param_mailbox_size(ctx->wiring.layout.nlocal) : 0;
}

static rondo_status open_exec(struct rondo_ctx *ctx)
{
    int nlocal = ctx->wiring.layout.nlocal > 0 ? ctx->wiring.layout.nlocal : 1;
    return ctx->running.exec_ops->open(&ctx->running.exec, ctx->wiring.layout.nchannels + 2 * ctx->job.nranks,
                                       nlocal, &ctx->running.owner);
}

/* Are all ranks threads of this process? */
static int one_process(const struct rondo_ctx *ctx)
{
    for (int r = 0; r < ctx->job.nranks; r++) {
        if (ctx->wiring.peers[r].process_hash != ctx->wiring.peers[ctx->job.rank].process_hash) {
            return 0;
        }
    }
    return 1;
}

static rondo_status open_direct(struct rondo_ctx *ctx)
{
    struct rondo_direct_config config = { .nlocal = ctx->wiring.layout.nlocal,
                                          .index = ctx->wiring.layout.local_rank,
                                          .one_process = one_process(ctx),
                                          .serve = ctx->wiring.net.shm_mode == RONDO_SHM_MODE_SOCKET,
                                          .nest = ctx->wiring.layout.nest };
    int32_t *pids;
    rondo_status status;
    if (ctx->wiring.mailbox == NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(pids, config.nlocal, "the processes of this node"));
    for (int i = 0; i < config.nlocal; i++) {
        pids[i] = ctx->wiring.peers[ctx->wiring.layout.local_ranks[i]].pid;
    }
    config.pids = rondo_params()->cma != RONDO_CMA_NEVER ? pids : NULL;
    status = rondo_direct_open(&ctx->wiring.direct, &config);
    rondo_free(pids);
    return status;
}

static rondo_status attach(struct rondo_ctx *ctx)
{
    ctx->wiring.mailbox = rondo_control_mailbox(ctx->wiring.control);
    return open_direct(ctx);
}

/* ---- calls ---- */

static rondo_status enqueue(const struct rondo_task *t)
{
    struct rondo_plan *plan;
    rondo_status status;
    RONDO_TRY(rondo_stream_new_plan(t->stream, t->ctx, &plan));
    status = rondo_plan_add_stream(plan, t->stream);
    if (status == RONDO_SUCCESS) {
        status = rondo_plan_fails(t->ctx, rondo_plan_add(plan, t));
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_plan_check(plan);
    }
    if (status == RONDO_SUCCESS) {
        rondo_profile_watch(t, plan->runs, plan->nruns);
        return rondo_stream_enqueue(plan);
    }
    rondo_plan_release(plan);
    rondo_free(plan);
    return status;
}

static rondo_status run(const struct rondo_task *t)
{
    return RONDO_LIKELY(t->stream == NULL) ? rondo_task_run(t) : enqueue(t);
}

static rondo_status add(struct rondo_plan *plan, const struct rondo_task *t)
{
    RONDO_TRY(rondo_plan_add_stream(plan, t->stream));
    return rondo_plan_add(plan, t);
}

static int busy(struct rondo_ctx *ctx)
{
    int queued;
    pthread_mutex_lock(&ctx->queue.lock);
    queued = ctx->queue.first != NULL;
    pthread_mutex_unlock(&ctx->queue.lock);
    return queued;
}

static void barrier_bytes(struct rondo_ctx *ctx, const void **send, void **recv)
{
    *send = &ctx->calls.barrier_byte[0];
    *recv = &ctx->calls.barrier_byte[1];
}

static size_t mailbox_bytes(const struct rondo_ctx *ctx)
{
    return ctx->wiring.mailbox != NULL ? ctx->wiring.mailbox->capacity : 0;
}

/* ---- operations that only GPUs need ---- */

static void none(struct rondo_ctx *ctx) { (void)ctx; }
static rondo_status succeed(struct rondo_ctx *ctx) { return (void)ctx, RONDO_SUCCESS; }
static rondo_status check_channels(const struct rondo_ctx *ctx) { return (void)ctx, RONDO_SUCCESS; }
static size_t record_bytes(const struct rondo_ctx *ctx) { return (void)ctx, (size_t)0; }
static void fill_record(struct rondo_ctx *ctx, void *record) { (void)ctx, (void)record; }
static uint8_t *record_modes(void *record) { return (void)record, NULL; }
static rondo_status use_records(struct rondo_ctx *ctx, void *(*record_of)(void *arg, int rank), void *arg)
{
    return (void)ctx, (void)record_of, (void)arg, RONDO_SUCCESS;
}
static rondo_status join(struct rondo_ctx *ctx, int *silent)
{
    return (void)ctx, (void)silent, RONDO_SUCCESS;
}
static int links_reach(const struct rondo_ctx *ctx) { return (void)ctx, 1; }
static rondo_status launch(struct rondo_plan **plans, int nplans)
{
    return (void)plans, (void)nplans, RONDO_SUCCESS;
}
static int copies(const struct rondo_task *t) { return (void)t, 0; }
static int reduces(const struct rondo_ctx *ctx, rondo_dtype type, rondo_op op)
{
    return (void)ctx, rondo_dtype_allows(type, op);
}
static void registered(struct rondo_ctx *ctx, void *buf, size_t bytes) { (void)ctx, (void)buf, (void)bytes; }

const struct rondo_backend_ops rondo_backend_host = {
    .name = "host",
    .open = choose_exec,
    .fill_peer = fill_peer,
    .use_peers = none,
    .max_channels = max_channels,
    .check_channels = check_channels,
    .fill_net = none,
    .mailbox_capacity = mailbox_capacity,
    .record_bytes = record_bytes,
    .fill_record = fill_record,
    .record_modes = record_modes,
    .use_records = use_records,
    .open_exec = open_exec,
    .attach = attach,
    .join = join,
    .start = succeed,
    .links_reach = links_reach,
    .run = run,
    .add = add,
    .launch = launch,
    .drain = rondo_ctx_drain,
    .busy = busy,
    .look = succeed,
    .abort = none,
    .barrier_bytes = barrier_bytes,
    .copies = copies,
    .mailbox_bytes = mailbox_bytes,
    .reduces = reduces,
    .registered = registered,
    .stop = none,
    .close = none,
};
