/* Shells, entering and leaving a communicator, and its errors. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "comm/backend.h"

struct rondo_shells rondo_comms = { .bytes = sizeof(rondo_comm),
                                    .what = "a communicator's handle",
                                    .alive_magic = RONDO_COMM_ALIVE };

static rondo_status not_alive(const rondo_comm *comm, const char *what)
{
    if (comm == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the communicator is NULL: pass one that rondo_comm_create returned", what);
    }
    switch (__atomic_load_n(&comm->shell.magic, __ATOMIC_RELAXED)) {
    case RONDO_SHELL_DEAD:
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: rank %d of communicator \"%s\" was destroyed or aborted before this call",
                          what, comm->rank, comm->name);
    case RONDO_SHELL_FORKED:
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "%s: this process is a forked child, and the communicator \"%s\" belongs to its "
            "parent, rank %d: only the parent may use and destroy it; the child may call exec or "
            "create its own",
            what, comm->name, comm->rank);
    default:
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: %p is not a communicator: was its creation successful?", what,
                          (const void *)comm);
    }
}

rondo_status rondo_shell_enter(rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    if (RONDO_UNLIKELY(comm == NULL || !rondo_comm_is_alive(comm))) {
        return not_alive(comm, what);
    }
    __atomic_store_n(&comm->busy, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(
        __ATOMIC_SEQ_CST); /* wait_until_left() (init/life.c) issues the processor fence for all threads */
    if (RONDO_UNLIKELY(!rondo_comm_is_alive(comm))) {
        rondo_shell_leave(comm);
        return not_alive(comm, what);
    }
    *ctx = comm->ctx;
    return RONDO_SUCCESS;
}

void rondo_shell_leave(rondo_comm *comm) { __atomic_store_n(&comm->busy, 0, __ATOMIC_RELEASE); }

rondo_status rondo_comm_enter(rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    rondo_status status;
    RONDO_TRY(rondo_inside_begin(what));
    status = rondo_shell_enter(comm, what, ctx);
    if (RONDO_UNLIKELY(status != RONDO_SUCCESS)) {
        rondo_inside_end();
    }
    return status;
}

void rondo_comm_leave(rondo_comm *comm)
{
    rondo_shell_leave(comm);
    rondo_inside_end();
}

int rondo_comm_visit_alive(const rondo_comm *comm, struct rondo_ctx **ctx)
{
    if (!rondo_comm_is_alive(comm)) {
        return 0;
    }
    __atomic_add_fetch(&((rondo_comm *)(uintptr_t)comm)->visitors, 1, __ATOMIC_SEQ_CST);
    if (!rondo_comm_is_alive(comm)) {
        rondo_comm_unvisit(comm);
        return 0;
    }
    *ctx = comm->ctx;
    return 1;
}

rondo_status rondo_comm_visit(const rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    return comm != NULL && rondo_comm_visit_alive(comm, ctx) ? RONDO_SUCCESS : not_alive(comm, what);
}

void rondo_comm_unvisit(const rondo_comm *comm)
{
    __atomic_sub_fetch(&((rondo_comm *)(uintptr_t)comm)->visitors, 1, __ATOMIC_RELEASE);
}

rondo_status rondo_shell_claim(rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    if (comm == NULL || !rondo_shell_kill(&rondo_comms, &comm->shell)) {
        return not_alive(comm, what);
    }
    *ctx = comm->ctx;
    return RONDO_SUCCESS;
}

/* ---- errors ---- */

rondo_status rondo_ctx_keep_error(struct rondo_ctx *ctx, rondo_status status)
{
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        snprintf(ctx->life.error, sizeof(ctx->life.error), "%s", rondo_error_text());
    }
    return status;
}

rondo_status rondo_ctx_fail(struct rondo_ctx *ctx, rondo_status status, int whose)
{
    if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY &&
        !__atomic_exchange_n(&ctx->life.failing, 1, __ATOMIC_ACQ_REL)) {
        ctx->life.failure = status;
        snprintf(ctx->life.failure_text, sizeof(ctx->life.failure_text), "%s", rondo_error_text());
        __atomic_store_n(&ctx->life.state, RONDO_COMM_FAILED, __ATOMIC_RELEASE);
        if (ctx->wiring.control != NULL) {
            rondo_control_abort(ctx->wiring.control, status, whose, ctx->life.failure_text);
        }
        ctx->backend->abort(ctx); /* last: peers know by now that data still coming from this rank is void */
    }
    return status;
}

rondo_status rondo_ctx_ready(struct rondo_ctx *ctx)
{
    int state = __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE);
    if (RONDO_LIKELY(state == RONDO_COMM_READY &&
                     (ctx->wiring.control == NULL || !rondo_control_aborted(ctx->wiring.control)))) {
        return RONDO_SUCCESS;
    }
    switch (state) {
    case RONDO_COMM_INIT:
        return rondo_fail(RONDO_INVALID_USAGE,
                          "rank %d: the communicator \"%s\" is still being created: poll "
                          "rondo_comm_async_error until it says RONDO_SUCCESS",
                          ctx->job.rank, ctx->job.name);
    case RONDO_COMM_FINALIZED:
        return rondo_fail(RONDO_INVALID_USAGE,
                          "rank %d: the communicator \"%s\" was finalized: only destroy is legal",
                          ctx->job.rank, ctx->job.name);
    case RONDO_COMM_READY: {
        char text[RONDO_ERROR_TEXT];
        int whose = -1;
        rondo_status status = rondo_control_reason(ctx->wiring.control, text, &whose);
        return rondo_ctx_fail(
            ctx, rondo_fail_quiet(status == RONDO_SUCCESS ? RONDO_REMOTE_ERROR : status, "%s", text), whose);
    }
    default: return rondo_fail_quiet(ctx->life.failure, "%s", ctx->life.failure_text);
    }
}

/* ---- queries ---- */

/* A split's number of ranks, and this rank's in it, are known some time after the call. */
static rondo_status agreed(struct rondo_ctx *ctx, const char *what)
{
    if (__atomic_load_n(&ctx->job.agreed, __ATOMIC_ACQUIRE)) {
        return RONDO_SUCCESS;
    }
    return __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED
               ? rondo_ctx_ready(ctx)
               : rondo_fail(RONDO_INVALID_USAGE,
                            "%s: the communicator is still being created by a split, and its ranks are not "
                            "known yet: poll rondo_comm_async_error until it says RONDO_SUCCESS, or end the "
                            "group",
                            what);
}

rondo_status rondo_comm_count(const rondo_comm *comm, int *count)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    if (count == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_count: the place for the count is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_count", &ctx));
    status = agreed(ctx, "rondo_comm_count");
    if (status == RONDO_SUCCESS) {
        *count = ctx->job.nranks;
    }
    rondo_comm_unvisit(comm);
    return status;
}

rondo_status rondo_comm_rank(const rondo_comm *comm, int *rank)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    if (rank == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_rank: the place for the rank is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_rank", &ctx));
    status = agreed(ctx, "rondo_comm_rank");
    if (status == RONDO_SUCCESS) {
        *rank = ctx->job.rank;
    }
    rondo_comm_unvisit(comm);
    return status;
}

rondo_status rondo_comm_device(const rondo_comm *comm, int *device)
{
    struct rondo_ctx *ctx;
    if (device == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_device: the place for the device is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_device", &ctx));
    *device = ctx->backend->is_gpu && ctx->job.config.device >= 0 ? ctx->job.config.device : -1;
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

const char *rondo_last_error(const rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    char *text; /* a copy: another thread may abort the communicator */
    if (comm == NULL || !rondo_comm_is_alive(comm) ||
        rondo_comm_visit(comm, "rondo_last_error", &ctx) != RONDO_SUCCESS) {
        return rondo_error_text();
    }
    text = rondo_thread_texts_get()->comm_error;
    snprintf(text, RONDO_ERROR_TEXT, "%s",
             __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED ? ctx->life.failure_text
                                                                                      : ctx->life.error);
    rondo_comm_unvisit(comm);
    return text;
}
