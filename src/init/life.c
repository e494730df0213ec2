/* The life of a communicator as the user sees it: create, finalize, destroy, abort. */
#include "init/life.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "call/group.h"
#include "call/report.h"
#include "call/stream.h"
#include "comm/backend.h"
#include "init/engine.h"

/* ---- the end ---- */

/* Threads leave the communicator at their next look at its state. Wait at most 5 s: one may be stopped in a
 * debugger. */
static int all_left(const int16_t *count)
{
    struct timespec ms = { 0, 1000000 };
    for (int i = 0; i < 5000 && __atomic_load_n(count, __ATOMIC_ACQUIRE) != 0; i++) {
        nanosleep(&ms, NULL);
    }
    return __atomic_load_n(count, __ATOMIC_ACQUIRE) == 0;
}

/* After rondo_shell_claim(): once every thread has passed a fence, a thread that enters sees the dead shell,
 * and one that entered before has counted itself. */
static int wait_until_left(const rondo_comm *comm)
{
    struct timespec ms = { 0, 1000000 };
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0) {
        nanosleep(&ms, NULL); /* no store is known to take longer to be seen */
    }
    return all_left(&comm->busy);
}

/* The caller has claimed the shell. left: the thread that made calls has left it. */
static void comm_end(rondo_comm *comm, struct rondo_ctx *ctx, int left, const char *how)
{
    RONDO_INFO(RONDO_SUBSYS_DESTROY, "communicator \"%s\" %016llx: rank %d of %d %s after %llu collectives",
               ctx->job.name, (unsigned long long)ctx->job.hash, ctx->job.rank, ctx->job.nranks, how,
               (unsigned long long)ctx->calls.seq);
    rondo_open_remove(ctx);
    if (left) {
        int failed = __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED;
        /* Before waiting for visitors: a thread that synchronizes a stream leaves when its plans are done. */
        rondo_ctx_drop_queue(ctx, failed ? ctx->life.failure : RONDO_INVALID_USAGE, 1);
        left = all_left(&comm->visitors);
    }
    __atomic_store_n(&comm->ctx, NULL, __ATOMIC_RELAXED);
    rondo_shell_bury(&rondo_comms, &comm->shell);
    if (!left) {
        RONDO_WARN(
            "rank %d: a thread did not leave the aborted communicator \"%s\" within 5 s: Rondo does not "
            "free its memory",
            ctx->job.rank, ctx->job.name);
        return;
    }
    rondo_init_cancel(ctx);
    rondo_ctx_free(ctx);
}

void rondo_comm_discard(struct rondo_ctx *ctx)
{
    rondo_comm *shell = ctx->shell;
    /* Known to the user: the shell was published in a group. */
    int known = rondo_comm_is_alive(shell) ||
                __atomic_load_n(&shell->shell.magic, __ATOMIC_ACQUIRE) == RONDO_SHELL_DEAD;
    if (known && rondo_shell_claim(shell, "rondo_group_end", &ctx) != RONDO_SUCCESS) {
        rondo_shell_leave(shell); /* the thread that aborted it frees it */
        return;
    }
    __atomic_store_n(&shell->shell.magic, RONDO_SHELL_DEAD, __ATOMIC_RELEASE);
    rondo_shell_leave(shell);
    comm_end(shell, ctx, 1, "discarded");
}

/* ---- creations of a group ---- */

/* Move the creations that were not aborted since to the front and set *n. @return the error of one that
 * was. */
static rondo_status enter_creations(struct rondo_creation *creations, int *n)
{
    rondo_status status = RONDO_SUCCESS;
    int entered = 0;
    for (int i = 0; i < *n; i++) {
        struct rondo_ctx *ctx;
        rondo_status found = rondo_shell_enter(creations[i].shell, "rondo_group_end", &ctx);
        if (found == RONDO_SUCCESS && ctx == creations[i].ctx) {
            creations[entered++] = creations[i];
            continue;
        }
        if (found == RONDO_SUCCESS) { /* the shell has become another communicator's */
            rondo_shell_leave(creations[i].shell);
            found = rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_group_end: a communicator that the group "
                                                       "creates was aborted before the group's end");
        }
        status = found;
    }
    *n = entered;
    return status;
}

static rondo_status run_creations(const struct rondo_creation *creations, int n)
{
    struct rondo_ctx **ctxs;
    rondo_status status;
    RONDO_TRY(RONDO_NEW_ARRAY(ctxs, n, "the creations of a group"));
    for (int i = 0; i < n; i++) {
        ctxs[i] = creations[i].ctx;
    }
    status = rondo_init_run(ctxs, n);
    rondo_free(ctxs);
    return status;
}

/* Failed creations and splits without a colour set the user's pointer to NULL. */
static rondo_status end_creations(struct rondo_creation *creations, int n, rondo_status status)
{
    char text[RONDO_ERROR_TEXT]; /* of the first error: those of the others' ends say less */
    rondo_status entered;
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    entered = enter_creations(creations, &n);
    if (status == RONDO_SUCCESS) {
        status = entered == RONDO_SUCCESS ? run_creations(creations, n) : entered;
        snprintf(text, sizeof(text), "%s", rondo_error_text());
    }
    for (int i = 0; i < n; i++) {
        struct rondo_ctx *ctx = creations[i].ctx;
        if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) != RONDO_COMM_READY || ctx->job.nranks == 0) {
            *creations[i].place = NULL;
            rondo_comm_discard(ctx);
        } else {
            rondo_shell_leave(ctx->shell);
        }
    }
    return status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(status, "%s", text);
}

/* ---- the public side ---- */

rondo_status rondo_comm_start(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split, rondo_comm **comm)
{
    void *memory = NULL;
    rondo_status status = rondo_shell_create(&rondo_comms, &memory);
    rondo_comm *shell = memory;
    int grouped = 0, moves_alone = bootstrap->moves_alone;
    if (status != RONDO_SUCCESS) {
        bootstrap->ops->close(bootstrap, 0);
        rondo_ctx_free(ctx);
        return status;
    }
    ctx->shell = shell;
    shell->ctx = ctx;
    shell->rank = ctx->job.rank;
    memcpy(shell->name, ctx->job.name, sizeof(shell->name));
    bootstrap->overlaps = rondo_group_depth() > 0 || !ctx->job.config.blocking;
    status = rondo_init_begin(ctx, bootstrap, split);
    if (status == RONDO_SUCCESS && rondo_group_depth() > 0) {
        status = rondo_group_add_creation(ctx, comm, end_creations);
        grouped = status == RONDO_SUCCESS;
    } else if (status == RONDO_SUCCESS) {
        status = ctx->job.config.blocking ? rondo_init_run(&ctx, 1) : rondo_init_step(ctx);
    }
    if ((status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) ||
        ctx->job.nranks == 0) { /* 0: a split without a colour */
        if (ctx->job.nranks == 0 && status == RONDO_SUCCESS) {
            *comm = NULL;
        }
        rondo_comm_discard(ctx);
        return status;
    }
    rondo_report_on_signal();
    rondo_shell_publish(&rondo_comms, &shell->shell);
    *comm = shell;
    if (status == RONDO_IN_PROGRESS && !moves_alone) {
        rondo_open_add(ctx);
    }
    return grouped ? RONDO_SUCCESS : status;
}

int rondo_engine_reduces(const rondo_comm *comm, rondo_dtype type, rondo_op op)
{
    const struct rondo_ctx *ctx = comm->ctx;
    return ctx->backend->reduces(ctx, type, op);
}

int rondo_engine_ncomms(void) { return rondo_shells_in_use(&rondo_comms); }

static rondo_status create(struct rondo_bootstrap *bootstrap, const rondo_config *config, rondo_comm **comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = comm == NULL ? rondo_fail(RONDO_INVALID_ARGUMENT,
                                                    "the pointer for the new communicator is NULL")
                                       : RONDO_SUCCESS;
    if (status == RONDO_SUCCESS) {
        status = rondo_ctx_create(bootstrap->rank, bootstrap->nranks, config, &ctx);
    }
    if (status != RONDO_SUCCESS) {
        bootstrap->ops->close(bootstrap, 0);
    } else {
        status = rondo_comm_start(ctx, bootstrap, NULL, comm);
    }
    rondo_group_note_error(status);
    return status;
}

rondo_status rondo_engine_create(struct rondo_bootstrap *bootstrap, const rondo_config *config,
                                 rondo_comm **comm)
{
    rondo_status status = rondo_inside_begin("rondo_comm_create");
    if (status != RONDO_SUCCESS) {
        bootstrap->ops->close(bootstrap, 0);
        return status;
    }
    status = create(bootstrap, config, comm);
    rondo_inside_end();
    return status;
}

rondo_status rondo_engine_refuse(rondo_status status)
{
    rondo_group_note_error(status);
    return status;
}

/* Members of a child that is being created need this rank, which leaves when that has ended. */
static void leave(struct rondo_ctx *ctx)
{
    if (ctx->wiring.control != NULL && !rondo_ctx_is_held(ctx)) {
        rondo_control_leave(ctx->wiring.control);
    }
}

static void tell_abort(struct rondo_ctx *ctx)
{
    char text[RONDO_ERROR_TEXT], why[RONDO_ERROR_TEXT / 2];
    if (ctx->wiring.control != NULL) {
        rondo_control_told_loss(why, sizeof(why)); /* of a rank that this communicator may not have */
        snprintf(text, sizeof(text), "rank %d on %s aborted the communicator \"%s\"%s%s", ctx->job.rank,
                 rondo_log_host(), ctx->job.name, why[0] != '\0' ? ", after it was told of the loss of " : "",
                 why);
        rondo_control_abort(ctx->wiring.control, RONDO_REMOTE_ERROR, ctx->job.rank, text);
    }
    leave(ctx);
}

static rondo_status comm_abort(rondo_comm *comm)
{
    struct rondo_ctx *ctx = NULL;
    int left;
    RONDO_TRY(rondo_shell_claim(comm, "rondo_comm_abort", &ctx));
    if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) != RONDO_COMM_INIT) {
        tell_abort(
            ctx); /* first, so that the other ranks read this sentence and not one of a waiting thread */
        ctx->backend->abort(ctx);
    }
    __atomic_store_n(&ctx->life.aborted, 1, __ATOMIC_RELEASE);
    left = wait_until_left(comm) && all_left(&comm->visitors);
    if (left) {
        tell_abort(ctx); /* a creation may have completed meanwhile */
    }
    comm_end(comm, ctx, left, "aborted");
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_abort(rondo_comm *comm) { RONDO_RUN_INSIDE("rondo_comm_abort", comm_abort(comm)); }

rondo_status rondo_comm_finalize(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_comm_finalize", &ctx));
    status = rondo_ctx_ready(ctx);
    if (status == RONDO_SUCCESS) {
        status = ctx->backend->drain(ctx);
    }
    if (status == RONDO_SUCCESS) {
        __atomic_store_n(&ctx->life.state, RONDO_COMM_FINALIZED, __ATOMIC_RELEASE);
        if (ctx->wiring.control != NULL) {
            rondo_control_leave(ctx->wiring.control);
        }
    }
    rondo_ctx_keep_error(ctx, status);
    rondo_comm_leave(comm);
    return status;
}

static rondo_status comm_destroy(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = RONDO_SUCCESS, claimed;
    RONDO_TRY(rondo_shell_enter(comm, "rondo_comm_destroy", &ctx));
    if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_INIT) {
        /* A non-blocking creation ends in time: it has its own deadline. */
        status = rondo_init_run(&ctx, 1);
    }
    if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY) {
        status = ctx->backend->drain(ctx);
    }
    claimed = rondo_shell_claim(comm, "rondo_comm_destroy", &ctx);
    if (claimed != RONDO_SUCCESS) { /* aborted meanwhile */
        rondo_shell_leave(comm);
        return claimed;
    }
    leave(ctx);
    rondo_shell_leave(comm);
    comm_end(comm, ctx, 1, "destroyed");
    return status;
}

rondo_status rondo_comm_destroy(rondo_comm *comm)
{
    RONDO_RUN_INSIDE("rondo_comm_destroy", comm_destroy(comm));
}

/* What the user has revoked is well again, for a shrink and its end, once its calls have ended. */
static rondo_status ended(const rondo_comm *comm, struct rondo_ctx *ctx)
{
    rondo_status found = ctx->backend->look(ctx), status = rondo_ctx_ready(ctx);
    if (found != RONDO_SUCCESS) {
        return ctx->life.failure;
    }
    if (status == RONDO_SUCCESS || !__atomic_load_n(&ctx->life.revoked, __ATOMIC_ACQUIRE)) {
        return status;
    }
    return __atomic_load_n(&comm->busy, __ATOMIC_ACQUIRE) || ctx->backend->busy(ctx) ? RONDO_IN_PROGRESS
                                                                                     : RONDO_SUCCESS;
}

static rondo_status async_error(rondo_comm *comm, rondo_status *error)
{
    struct rondo_ctx *ctx;
    if (error == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_comm_async_error: the pointer for the error is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_async_error", &ctx));
    switch (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE)) {
    case RONDO_COMM_INIT: *error = rondo_init_look(ctx); break;
    case RONDO_COMM_FINALIZED: *error = RONDO_SUCCESS; break;
    default: *error = ended(comm, ctx);
    }
    rondo_comm_unvisit(comm);
    rondo_open_step_all();
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_async_error(rondo_comm *comm, rondo_status *error)
{
    RONDO_RUN_INSIDE("rondo_comm_async_error", async_error(comm, error));
}
