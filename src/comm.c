/* Shells and contexts: what a communicator is before and after it works. */
#include "comm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "engine.h"

/* Shells of dead communicators wait here, the oldest is used again first, so that a stale handle is recognised for a long time. */
enum { QUARANTINE = 1024 };
static pthread_mutex_t shells_lock = PTHREAD_MUTEX_INITIALIZER;
static rondo_comm *dead_first, *dead_last;
static int ndead, nalive;

static rondo_status shell_new(rondo_comm **shell)
{
    rondo_comm *comm = NULL;
    uint32_t generation = 0;
    pthread_mutex_lock(&shells_lock);
    if (ndead > QUARANTINE) {
        comm = dead_first;
        dead_first = comm->next;
        ndead--;
        generation = comm->generation + 1;
    }
    nalive++;
    pthread_mutex_unlock(&shells_lock);
    if (comm == NULL) {
        rondo_status status = RONDO_NEW(comm, "a communicator's handle");
        if (status != RONDO_SUCCESS) {
            __atomic_sub_fetch(&nalive, 1, __ATOMIC_RELAXED);
            return status;
        }
    }
    memset(comm, 0, sizeof(*comm));
    comm->generation = generation;
    *shell = comm;
    return RONDO_SUCCESS;
}

static void shell_bury(rondo_comm *comm)
{
    pthread_mutex_lock(&shells_lock);
    comm->ctx = NULL;
    comm->next = NULL;
    if (dead_first == NULL) {
        dead_first = comm;
    } else {
        dead_last->next = comm;
    }
    dead_last = comm;
    ndead++;
    nalive--;
    pthread_mutex_unlock(&shells_lock);
}

/* Handles in quarantine are reachable until the library goes. */
__attribute__((destructor)) static void shells_free(void)
{
    while (dead_first != NULL) {
        rondo_comm *next = dead_first->next;
        rondo_free(dead_first);
        dead_first = next;
    }
}

int rondo_engine_ncomms(void)
{
    int n;
    pthread_mutex_lock(&shells_lock);
    n = nalive;
    pthread_mutex_unlock(&shells_lock);
    return n;
}

rondo_status rondo_comm_ctx(const rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    uint32_t magic;
    if (RONDO_UNLIKELY(comm == NULL)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the communicator is NULL: pass one that rondo_comm_create returned", what);
    }
    magic = __atomic_load_n(&comm->magic, __ATOMIC_RELAXED);
    if (RONDO_UNLIKELY(magic != RONDO_COMM_ALIVE)) {
        return magic == RONDO_COMM_DEAD
                   ? rondo_fail(RONDO_INVALID_ARGUMENT, "%s: rank %d of communicator \"%s\" was destroyed or aborted before this call", what, comm->rank, comm->name)
                   : rondo_fail(RONDO_INVALID_ARGUMENT, "%s: %p is not a communicator: was its creation successful?", what, (const void *)comm);
    }
    *ctx = comm->ctx;
    return RONDO_SUCCESS;
}

/* ---- contexts ---- */

rondo_status rondo_config_check(const rondo_config *config, rondo_config *checked)
{
    rondo_config defaults = RONDO_CONFIG_INIT;
    *checked = defaults;
    if (config == NULL) {
        return RONDO_SUCCESS;
    }
    if (config->size < offsetof(rondo_config, blocking) || config->size > 4096 || config->magic != RONDO_CONFIG_MAGIC) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "the config has size %zu and magic 0x%x: start from RONDO_CONFIG_INIT", config->size, config->magic);
    }
    if (config->version / 10000 != RONDO_VERSION_MAJOR) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "the config is of version %u, the library of %d: recompile the program", config->version, RONDO_VERSION_CODE);
    }
    memcpy(checked, config, rondo_min_size(config->size, sizeof(*checked))); /* a program built with an older header has fewer fields */
    checked->size = sizeof(*checked);
    if (checked->blocking != 0 && checked->blocking != 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.blocking is %d: 0 or 1", checked->blocking);
    }
    if (checked->max_channels != RONDO_CONFIG_DEFAULT && (checked->max_channels < 1 || checked->max_channels > RONDO_MAX_CHANNELS)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.max_channels is %d: 1 to %d, or RONDO_CONFIG_DEFAULT", checked->max_channels, RONDO_MAX_CHANNELS);
    }
    if (checked->timeout_ms < RONDO_CONFIG_DEFAULT) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.timeout_ms is %lld: 0 for none, or RONDO_CONFIG_DEFAULT", (long long)checked->timeout_ms);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_ctx_create(int rank, int nranks, const rondo_config *config, struct rondo_ctx **ctx_out)
{
    rondo_status status;
    struct rondo_ctx *ctx;
    rondo_config checked;
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    RONDO_TRY(rondo_config_check(config, &checked));
    RONDO_TRY(RONDO_NEW(ctx, "a communicator"));
    ctx->config = checked;
    snprintf(ctx->name, sizeof(ctx->name), "%s", checked.name != NULL ? checked.name : "");
    ctx->config.name = ctx->name;
    ctx->rank = rank;
    ctx->nranks = nranks;
    ctx->direct.ctx = ctx;
    ctx->exec_ops = rondo_params()->exec == 0 ? &rondo_exec_cpu : &rondo_exec_null;
    pthread_mutex_init(&ctx->queue_lock, NULL);
    RONDO_TRY_GOTO(rondo_allowed_parse(&ctx->allowed, rondo_params()->algo, rondo_params()->proto), fail);
    rondo_ctx_policy(ctx);
    *ctx_out = ctx;
    return RONDO_SUCCESS;
fail:
    rondo_ctx_free(ctx);
    return status;
}

static void free_links(struct rondo_ctx *ctx)
{
    for (int i = 0; i < ctx->nlinks; i++) {
        rondo_link_close(&ctx->net, &ctx->links[i]);
    }
    for (int r = 0; ctx->p2p != NULL && r < ctx->nranks; r++) {
        for (int d = 0; ctx->p2p[r] != NULL && d < 2; d++) {
            if (ctx->p2p[r]->lazy[d]) {
                rondo_link_close(&ctx->net, &ctx->p2p[r]->link[d]);
            }
        }
        rondo_free(ctx->p2p[r]);
    }
    rondo_free(ctx->p2p);
    rondo_free(ctx->links);
    rondo_free(ctx->ports);
}

void rondo_ctx_free(struct rondo_ctx *ctx)
{
    for (int i = 0; i < RONDO_CACHED_CALLS; i++) {
        rondo_free(ctx->cached[i].runs);
    }
    rondo_plan_release(&ctx->direct);
    if (ctx->exec != NULL) {
        ctx->exec_ops->close(ctx->exec);
    }
    free_links(ctx);
    rondo_net_close(&ctx->net);
    if (ctx->control != NULL) {
        rondo_control_close(ctx->control);
    }
    rondo_layout_release(&ctx->layout);
    rondo_free(ctx->arenas);
    rondo_free(ctx->peers);
    pthread_mutex_destroy(&ctx->queue_lock);
    rondo_free(ctx);
}

rondo_status rondo_ctx_keep_error(struct rondo_ctx *ctx, rondo_status status)
{
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        snprintf(ctx->error, sizeof(ctx->error), "%s", rondo_error_text());
    }
    return status;
}

rondo_status rondo_ctx_fail(struct rondo_ctx *ctx, rondo_status status, int whose)
{
    int ready = RONDO_COMM_READY;
    if (__atomic_compare_exchange_n(&ctx->state, &ready, RONDO_COMM_FAILED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        rondo_ctx_keep_error(ctx, status);
        ctx->failure = status;
        if (ctx->control != NULL) {
            rondo_control_abort(ctx->control, status, whose, ctx->error);
        }
    }
    return status;
}

rondo_status rondo_ctx_ready(struct rondo_ctx *ctx)
{
    int state = __atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE);
    if (RONDO_LIKELY(state == RONDO_COMM_READY && (ctx->control == NULL || !rondo_control_aborted(ctx->control)))) {
        return RONDO_SUCCESS;
    }
    switch (state) {
    case RONDO_COMM_INIT:
        return rondo_fail(RONDO_INVALID_USAGE, "rank %d: the communicator \"%s\" is still being created: poll rondo_comm_async_error until it says RONDO_SUCCESS", ctx->rank,
                          ctx->name);
    case RONDO_COMM_FINALIZED:
        return rondo_fail(RONDO_INVALID_USAGE, "rank %d: the communicator \"%s\" was finalized: only destroy is legal", ctx->rank, ctx->name);
    case RONDO_COMM_READY: {
        char text[RONDO_ERROR_TEXT];
        int whose = -1;
        rondo_status status = rondo_control_reason(ctx->control, text, &whose);
        return rondo_ctx_fail(ctx, rondo_fail_quiet(status == RONDO_SUCCESS ? RONDO_REMOTE_ERROR : status, "%s", text), whose);
    }
    default:
        return rondo_fail_quiet(ctx->failure, "%s", ctx->error);
    }
}

void rondo_comm_discard(struct rondo_ctx *ctx)
{
    rondo_init_cancel(ctx);
    __atomic_store_n(&ctx->shell->magic, RONDO_COMM_DEAD, __ATOMIC_RELEASE);
    shell_bury(ctx->shell);
    rondo_ctx_free(ctx);
}

/* ---- the public side ---- */

rondo_status rondo_comm_start(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap, const struct rondo_split *split, rondo_comm **comm)
{
    rondo_status status = shell_new(&ctx->shell);
    rondo_comm *shell = ctx->shell;
    int grouped = 0;
    if (status != RONDO_SUCCESS) {
        bootstrap->ops->close(bootstrap, 0);
        rondo_ctx_free(ctx);
        return status;
    }
    shell->ctx = ctx;
    shell->rank = ctx->rank;
    memcpy(shell->name, ctx->name, sizeof(shell->name));
    status = rondo_init_begin(ctx, bootstrap, split);
    if (status == RONDO_SUCCESS && rondo_group_depth() > 0) {
        status = rondo_group_add_init(ctx, comm);
        grouped = status == RONDO_SUCCESS;
    } else if (status == RONDO_SUCCESS) {
        status = ctx->config.blocking ? rondo_init_run(&ctx, 1) : rondo_init_step(ctx);
    }
    if ((status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) || ctx->nranks == 0) { /* 0: a split without a colour */
        if (ctx->nranks == 0 && status == RONDO_SUCCESS) {
            *comm = NULL;
        }
        rondo_comm_discard(ctx);
        return status;
    }
    shell->rank = ctx->rank;
    __atomic_store_n(&shell->magic, RONDO_COMM_ALIVE, __ATOMIC_RELEASE);
    *comm = shell;
    return grouped ? RONDO_SUCCESS : status;
}

rondo_status rondo_engine_create(struct rondo_bootstrap *bootstrap, const rondo_config *config, rondo_comm **comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = comm == NULL ? rondo_fail(RONDO_INVALID_ARGUMENT, "the place for the new communicator is NULL") : RONDO_SUCCESS;
    if (status == RONDO_SUCCESS) {
        status = rondo_ctx_create(bootstrap->rank, bootstrap->nranks, config, &ctx);
    }
    if (status != RONDO_SUCCESS) {
        bootstrap->ops->close(bootstrap, 0);
        return status;
    }
    return rondo_comm_start(ctx, bootstrap, NULL, comm);
}

/* The thread that is inside leaves at its next look; a bound all the same, since it may be stopped in a debugger. */
static int wait_until_left(struct rondo_ctx *ctx)
{
    struct timespec ms = {0, 1000000};
    nanosleep(&ms, NULL); /* whoever has just entered has said so by now */
    for (int i = 0; i < 5000 && __atomic_load_n(&ctx->busy, __ATOMIC_ACQUIRE) != 0; i++) {
        nanosleep(&ms, NULL);
    }
    return __atomic_load_n(&ctx->busy, __ATOMIC_ACQUIRE) == 0;
}

static rondo_status comm_end(rondo_comm *comm, struct rondo_ctx *ctx, int abort)
{
    uint32_t alive = RONDO_COMM_ALIVE;
    if (!__atomic_compare_exchange_n(&comm->magic, &alive, RONDO_COMM_DEAD, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rank %d of communicator \"%s\" was destroyed or aborted before this call", comm->rank, comm->name);
    }
    RONDO_INFO(RONDO_SUBSYS_DESTROY, "communicator \"%s\" %016llx: rank %d of %d %s after %llu collectives", ctx->name, (unsigned long long)ctx->hash, ctx->rank,
               ctx->nranks, abort ? "aborted" : "destroyed", (unsigned long long)ctx->seq);
    if (abort) {
        if (!wait_until_left(ctx)) {
            RONDO_WARN("rank %d: a thread did not leave the aborted communicator \"%s\" within 5 s: its memory is not freed", ctx->rank, ctx->name);
            ctx->shell = NULL;
            shell_bury(comm);
            return RONDO_SUCCESS;
        }
        rondo_ctx_drop_queue(ctx, RONDO_INVALID_USAGE);
        rondo_init_cancel(ctx);
    }
    shell_bury(comm);
    rondo_ctx_free(ctx);
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_abort(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_abort", &ctx));
    __atomic_store_n(&ctx->aborted, 1, __ATOMIC_RELEASE);
    if (ctx->control != NULL && ctx->init == NULL) {
        char text[RONDO_ERROR_TEXT];
        snprintf(text, sizeof(text), "rank %d on %s aborted the communicator \"%s\"", ctx->rank, rondo_log_host(), ctx->name);
        rondo_control_abort(ctx->control, RONDO_REMOTE_ERROR, ctx->rank, text);
        rondo_control_leave(ctx->control);
    }
    return comm_end(comm, ctx, 1);
}

rondo_status rondo_comm_finalize(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_finalize", &ctx));
    RONDO_TRY(rondo_ctx_ready(ctx));
    status = rondo_ctx_drain(ctx);
    if (status == RONDO_SUCCESS) {
        __atomic_store_n(&ctx->state, RONDO_COMM_FINALIZED, __ATOMIC_RELEASE);
        if (ctx->control != NULL) {
            rondo_control_leave(ctx->control);
        }
    }
    return rondo_ctx_keep_error(ctx, status);
}

rondo_status rondo_comm_destroy(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_destroy", &ctx));
    while (ctx->init != NULL && status == RONDO_SUCCESS) { /* a non-blocking creation has its own deadline */
        status = rondo_init_run(&ctx, 1);
    }
    if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY) {
        status = rondo_ctx_drain(ctx);
    }
    rondo_ctx_drop_queue(ctx, RONDO_INVALID_USAGE);
    if (ctx->control != NULL) {
        rondo_control_leave(ctx->control);
    }
    RONDO_TRY(comm_end(comm, ctx, 0));
    return status;
}

rondo_status rondo_comm_async_error(rondo_comm *comm, rondo_status *error)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_async_error", &ctx));
    if (error == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_async_error: the place for the error is NULL");
    }
    if (ctx->init != NULL) {
        *error = rondo_init_step(ctx);
        rondo_ctx_keep_error(ctx, *error);
    } else if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == RONDO_COMM_FINALIZED) {
        *error = RONDO_SUCCESS;
    } else {
        *error = rondo_ctx_ready(ctx);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_count(const rondo_comm *comm, int *count)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_count", &ctx));
    if (count == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_count: the place for the count is NULL");
    }
    *count = ctx->nranks;
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_rank(const rondo_comm *comm, int *rank)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_rank", &ctx));
    if (rank == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_rank: the place for the rank is NULL");
    }
    *rank = ctx->rank;
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_device(const rondo_comm *comm, int *device)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_ctx(comm, "rondo_comm_device", &ctx));
    if (device == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_device: the place for the device is NULL");
    }
    *device = ctx->peers == NULL ? -1 : ctx->peers[ctx->rank].device;
    return RONDO_SUCCESS;
}

const char *rondo_last_error(const rondo_comm *comm)
{
    if (comm == NULL || __atomic_load_n(&comm->magic, __ATOMIC_RELAXED) != RONDO_COMM_ALIVE) {
        return rondo_error_text();
    }
    return comm->ctx->error;
}
