/* Shells and contexts: what a communicator is before and after it works. */
#include "comm/comm.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "gpu/device.h"
#include "comm/engine.h"
#include "tuner/tune_file.h"
#include "net/netdev.h"

/* Shells of dead communicators wait here, the oldest is used again first, so that a stale handle is
 * recognised for a long time. */
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

static rondo_status not_alive(const rondo_comm *comm, const char *what)
{
    if (comm == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the communicator is NULL: pass one that rondo_comm_create returned", what);
    }
    return __atomic_load_n(&comm->magic, __ATOMIC_RELAXED) == RONDO_COMM_DEAD
               ? rondo_fail(RONDO_INVALID_ARGUMENT,
                            "%s: rank %d of communicator \"%s\" was destroyed or aborted before this call",
                            what, comm->rank, comm->name)
               : rondo_fail(RONDO_INVALID_ARGUMENT,
                            "%s: %p is not a communicator: was its creation successful?", what,
                            (const void *)comm);
}

rondo_status rondo_comm_enter(rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    if (RONDO_UNLIKELY(comm == NULL || !rondo_comm_is_alive(comm))) {
        return not_alive(comm, what);
    }
    __atomic_store_n(&comm->busy, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(
        __ATOMIC_SEQ_CST); /* the processor's fence is in wait_until_left(), for all threads */
    if (RONDO_UNLIKELY(!rondo_comm_is_alive(comm))) {
        rondo_comm_leave(comm);
        return not_alive(comm, what);
    }
    *ctx = comm->ctx;
    return RONDO_SUCCESS;
}

void rondo_comm_leave(rondo_comm *comm) { __atomic_store_n(&comm->busy, 0, __ATOMIC_RELEASE); }

rondo_status rondo_comm_visit(const rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    if (comm == NULL || !rondo_comm_is_alive(comm)) {
        return not_alive(comm, what);
    }
    __atomic_add_fetch(&((rondo_comm *)(uintptr_t)comm)->visitors, 1, __ATOMIC_SEQ_CST);
    if (!rondo_comm_is_alive(comm)) {
        rondo_comm_unvisit(comm);
        return not_alive(comm, what);
    }
    *ctx = comm->ctx;
    return RONDO_SUCCESS;
}

void rondo_comm_unvisit(const rondo_comm *comm)
{
    __atomic_sub_fetch(&((rondo_comm *)(uintptr_t)comm)->visitors, 1, __ATOMIC_RELEASE);
}

/* From alive to dead, once: whoever succeeds ends the communicator. */
static rondo_status claim(rondo_comm *comm, const char *what, struct rondo_ctx **ctx)
{
    uint32_t alive = RONDO_COMM_ALIVE;
    if (comm == NULL || !__atomic_compare_exchange_n(&comm->magic, &alive, RONDO_COMM_DEAD, 0,
                                                     __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)) {
        return not_alive(comm, what);
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
    if (config->size < offsetof(rondo_config, blocking) || config->size > 4096 ||
        config->magic != RONDO_CONFIG_MAGIC) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "the config has size %zu and magic 0x%x: start from RONDO_CONFIG_INIT",
                          config->size, config->magic);
    }
    if (config->version / 10000 != RONDO_VERSION_MAJOR) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "the config is of version %u, the library of %d: recompile the program",
                          config->version, RONDO_VERSION_CODE);
    }
    memcpy(checked, config,
           rondo_min_size(config->size,
                          sizeof(*checked))); /* a program built with an older header has fewer fields */
    checked->size = sizeof(*checked);
    if (checked->blocking != 0 && checked->blocking != 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.blocking is %d: 0 or 1", checked->blocking);
    }
    if (checked->max_channels != RONDO_CONFIG_DEFAULT &&
        (checked->max_channels < 1 || checked->max_channels > RONDO_MAX_CHANNELS)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "config.max_channels is %d: 1 to %d, or RONDO_CONFIG_DEFAULT",
                          checked->max_channels, RONDO_MAX_CHANNELS);
    }
    if (checked->split_share != 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.split_share is %d: it is reserved, 0",
                          checked->split_share);
    }
    if (checked->device < RONDO_DEVICE_CURRENT || checked->allow_shared_gpu < RONDO_CONFIG_DEFAULT ||
        checked->allow_shared_gpu > 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "config.device is %d and config.allow_shared_gpu %d: a CUDA device from 0 on, "
                          "RONDO_DEVICE_CURRENT, or "
                          "RONDO_CONFIG_DEFAULT for host memory; "
                          "0, 1 or RONDO_CONFIG_DEFAULT",
                          checked->device, checked->allow_shared_gpu);
    }
    if (checked->timeout_ms < RONDO_CONFIG_DEFAULT) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "config.timeout_ms is %lld: 0 for none, or RONDO_CONFIG_DEFAULT",
                          (long long)checked->timeout_ms);
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
    ctx->immediate.ctx = ctx;
    ctx->exec_ops = rondo_params()->exec == 0 ? &rondo_exec_cpu : &rondo_exec_null;
    pthread_mutex_init(&ctx->queue_lock, NULL);
    RONDO_TRY_GOTO(rondo_tune_allowed(&ctx->allowed), fail);
    RONDO_TRY_GOTO(rondo_device_choose(ctx), fail);
    RONDO_TRY_GOTO(rondo_device_check_pages(ctx), fail);
    rondo_ctx_policy(ctx);
    *ctx_out = ctx;
    return RONDO_SUCCESS;
fail:
    rondo_ctx_free(ctx);
    return status;
}

rondo_status rondo_ctx_create_child(struct rondo_ctx *parent, int rank, int nranks,
                                    const rondo_config *config, struct rondo_ctx **ctx)
{
    rondo_config inherits;
    RONDO_TRY(rondo_config_check(config, &inherits));
    inherits.device = inherits.device == RONDO_CONFIG_DEFAULT ? parent->config.device : inherits.device;
    inherits.allow_shared_gpu = inherits.allow_shared_gpu == RONDO_CONFIG_DEFAULT
                                    ? parent->config.allow_shared_gpu
                                    : inherits.allow_shared_gpu;
    return rondo_ctx_create(rank, nranks, &inherits, ctx);
}

static void free_links(struct rondo_ctx *ctx)
{
    rondo_links_close(ctx);
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
    rondo_plan_release(&ctx->immediate);
    rondo_ctx_deregister(ctx);
    if (ctx->device != NULL) {
        rondo_device_stop(ctx);
    }
    if (ctx->exec != NULL) {
        ctx->exec_ops->close(ctx->exec);
    }
    rondo_direct_close(ctx->open_buffers);
    free_links(ctx);
    rondo_net_close(&ctx->net);
    rondo_device_free(ctx);
    if (ctx->has_netdevs) {
        rondo_netdev_finalize();
    }
    if (ctx->control != NULL) {
        rondo_control_close(ctx->control);
    }
    if (ctx->listening) {
        rondo_control_unlisten();
    }
    rondo_layout_release(&ctx->layout);
    rondo_tune_free(ctx->tune);
    rondo_free(ctx->arenas);
    rondo_free(ctx->peers);
    rondo_free(ctx->shrinks);
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
    if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY &&
        !__atomic_exchange_n(&ctx->failing, 1, __ATOMIC_ACQ_REL)) {
        ctx->failure = status;
        snprintf(ctx->failure_text, sizeof(ctx->failure_text), "%s", rondo_error_text());
        __atomic_store_n(&ctx->state, RONDO_COMM_FAILED, __ATOMIC_RELEASE);
        if (ctx->control != NULL) {
            rondo_control_abort(ctx->control, status, whose, ctx->failure_text);
        }
        if (ctx->device !=
            NULL) { /* peers know by now that what this rank's streams still bring is worth nothing */
            rondo_device_abort(ctx);
        }
    }
    return status;
}

rondo_status rondo_ctx_ready(struct rondo_ctx *ctx)
{
    int state = __atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE);
    if (RONDO_LIKELY(state == RONDO_COMM_READY &&
                     (ctx->control == NULL || !rondo_control_aborted(ctx->control)))) {
        return RONDO_SUCCESS;
    }
    switch (state) {
    case RONDO_COMM_INIT:
        return rondo_fail(RONDO_INVALID_USAGE,
                          "rank %d: the communicator \"%s\" is still being created: poll "
                          "rondo_comm_async_error until it says RONDO_SUCCESS",
                          ctx->rank, ctx->name);
    case RONDO_COMM_FINALIZED:
        return rondo_fail(RONDO_INVALID_USAGE,
                          "rank %d: the communicator \"%s\" was finalized: only destroy is legal", ctx->rank,
                          ctx->name);
    case RONDO_COMM_READY: {
        char text[RONDO_ERROR_TEXT];
        int whose = -1;
        rondo_status status = rondo_control_reason(ctx->control, text, &whose);
        return rondo_ctx_fail(
            ctx, rondo_fail_quiet(status == RONDO_SUCCESS ? RONDO_REMOTE_ERROR : status, "%s", text), whose);
    }
    default: return rondo_fail_quiet(ctx->failure, "%s", ctx->failure_text);
    }
}

/* ---- the end ---- */

/* Threads that are inside leave at their next look; a bound all the same, since one may be stopped in a
 * debugger. */
static int all_left(const int16_t *count)
{
    struct timespec ms = { 0, 1000000 };
    for (int i = 0; i < 5000 && __atomic_load_n(count, __ATOMIC_ACQUIRE) != 0; i++) {
        nanosleep(&ms, NULL);
    }
    return __atomic_load_n(count, __ATOMIC_ACQUIRE) == 0;
}

/* After claim(): once every thread has passed a fence, whoever comes in sees the dead shell, and who came in
 * before has said so. */
static int wait_until_left(const rondo_comm *comm)
{
    struct timespec ms = { 0, 1000000 };
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0) {
        nanosleep(&ms, NULL); /* a store that takes longer is not known */
    }
    return all_left(&comm->busy);
}

/* The shell is claimed and the calling thread of the communicator is not inside. */
static void comm_end(rondo_comm *comm, struct rondo_ctx *ctx, int left, const char *how)
{
    RONDO_INFO(RONDO_SUBSYS_DESTROY, "communicator \"%s\" %016llx: rank %d of %d %s after %llu collectives",
               ctx->name, (unsigned long long)ctx->hash, ctx->rank, ctx->nranks, how,
               (unsigned long long)ctx->seq);
    if (left) {
        int failed = __atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED;
        rondo_ctx_drop_queue(ctx, failed ? ctx->failure
                                         : RONDO_INVALID_USAGE); /* before the visitors: who waits for a
                                                                    stream goes when its plans are done */
        left = all_left(&comm->visitors);
    }
    shell_bury(comm);
    if (!left) {
        RONDO_WARN("rank %d: a thread did not leave the aborted communicator \"%s\" within 5 s: its memory "
                   "is not freed",
                   ctx->rank, ctx->name);
        return;
    }
    rondo_init_cancel(ctx);
    rondo_ctx_free(ctx);
}

void rondo_comm_discard(struct rondo_ctx *ctx)
{
    rondo_comm *shell = ctx->shell;
    int known = rondo_comm_is_alive(shell) || __atomic_load_n(&shell->magic, __ATOMIC_ACQUIRE) ==
                                                  RONDO_COMM_DEAD; /* to the user: made in a group */
    if (known && claim(shell, "rondo_group_end", &ctx) != RONDO_SUCCESS) {
        rondo_comm_leave(shell); /* who aborted it frees it */
        return;
    }
    __atomic_store_n(&shell->magic, RONDO_COMM_DEAD, __ATOMIC_RELEASE);
    rondo_comm_leave(shell);
    comm_end(shell, ctx, 1, "given up");
}

/* ---- the public side ---- */

rondo_status rondo_comm_start(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split, rondo_comm **comm)
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
    if ((status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) ||
        ctx->nranks == 0) { /* 0: a split without a colour */
        if (ctx->nranks == 0 && status == RONDO_SUCCESS) {
            *comm = NULL;
        }
        rondo_comm_discard(ctx);
        return status;
    }
    __atomic_store_n(&shell->magic, RONDO_COMM_ALIVE, __ATOMIC_RELEASE);
    *comm = shell;
    return grouped ? RONDO_SUCCESS : status;
}

rondo_status rondo_engine_create(struct rondo_bootstrap *bootstrap, const rondo_config *config,
                                 rondo_comm **comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = comm == NULL ? rondo_fail(RONDO_INVALID_ARGUMENT,
                                                    "the place for the new communicator is NULL")
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

static void tell_abort(struct rondo_ctx *ctx)
{
    char text[RONDO_ERROR_TEXT];
    if (ctx->control != NULL) {
        snprintf(text, sizeof(text), "rank %d on %s aborted the communicator \"%s\"", ctx->rank,
                 rondo_log_host(), ctx->name);
        rondo_control_abort(ctx->control, RONDO_REMOTE_ERROR, ctx->rank, text);
        rondo_control_leave(ctx->control);
    }
}

rondo_status rondo_comm_abort(rondo_comm *comm)
{
    struct rondo_ctx *ctx = NULL;
    int left;
    RONDO_TRY(claim(comm, "rondo_comm_abort", &ctx));
    if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) != RONDO_COMM_INIT) {
        tell_abort(ctx); /* before the thread that waits notices and says it in its own words */
        if (ctx->device != NULL) {
            rondo_device_abort(ctx);
        }
    }
    __atomic_store_n(&ctx->aborted, 1, __ATOMIC_RELEASE);
    left = wait_until_left(comm) && all_left(&comm->visitors);
    if (left) {
        tell_abort(ctx); /* a creation may have ended meanwhile */
    }
    comm_end(comm, ctx, left, "aborted");
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_finalize(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_comm_finalize", &ctx));
    status = rondo_ctx_ready(ctx);
    if (status == RONDO_SUCCESS) {
        status = rondo_ctx_drain(ctx);
    }
    if (status == RONDO_SUCCESS) {
        __atomic_store_n(&ctx->state, RONDO_COMM_FINALIZED, __ATOMIC_RELEASE);
        if (ctx->control != NULL) {
            rondo_control_leave(ctx->control);
        }
    }
    rondo_ctx_keep_error(ctx, status);
    rondo_comm_leave(comm);
    return status;
}

rondo_status rondo_comm_destroy(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = RONDO_SUCCESS, claimed;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_comm_destroy", &ctx));
    if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) ==
        RONDO_COMM_INIT) { /* a non-blocking creation has its own deadline */
        status = rondo_init_run(&ctx, 1);
    }
    if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY) {
        status = rondo_ctx_drain(ctx);
    }
    claimed = claim(comm, "rondo_comm_destroy", &ctx);
    if (claimed != RONDO_SUCCESS) { /* aborted meanwhile */
        rondo_comm_leave(comm);
        return claimed;
    }
    if (ctx->control != NULL) {
        rondo_control_leave(ctx->control);
    }
    rondo_comm_leave(comm);
    comm_end(comm, ctx, 1, "destroyed");
    return status;
}

rondo_status rondo_comm_async_error(rondo_comm *comm, rondo_status *error)
{
    struct rondo_ctx *ctx;
    if (error == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_async_error: the place for the error is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_async_error", &ctx));
    switch (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE)) {
    case RONDO_COMM_INIT: *error = rondo_init_look(ctx); break;
    case RONDO_COMM_FINALIZED: *error = RONDO_SUCCESS; break;
    default:
        *error = ctx->device == NULL                       ? rondo_ctx_ready(ctx)
                 : rondo_device_look(ctx) != RONDO_SUCCESS ? ctx->failure
                                                           : rondo_ctx_ready(ctx);
    }
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_count(const rondo_comm *comm, int *count)
{
    struct rondo_ctx *ctx;
    if (count == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_count: the place for the count is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_count", &ctx));
    *count = ctx->nranks;
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_rank(const rondo_comm *comm, int *rank)
{
    struct rondo_ctx *ctx;
    if (rank == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_rank: the place for the rank is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_rank", &ctx));
    *rank = ctx->rank;
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_device(const rondo_comm *comm, int *device)
{
    struct rondo_ctx *ctx;
    if (device == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_device: the place for the device is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_device", &ctx));
    *device = ctx->peers == NULL ? -1 : ctx->peers[ctx->rank].device;
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

const char *rondo_last_error(const rondo_comm *comm)
{
    static _Thread_local char text[RONDO_ERROR_TEXT]; /* a copy: another thread may abort the communicator */
    struct rondo_ctx *ctx;
    if (comm == NULL || !rondo_comm_is_alive(comm) ||
        rondo_comm_visit(comm, "rondo_last_error", &ctx) != RONDO_SUCCESS) {
        return rondo_error_text();
    }
    snprintf(text, sizeof(text), "%s",
             __atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED ? ctx->failure_text
                                                                                 : ctx->error);
    rondo_comm_unvisit(comm);
    return text;
}
