/* Contexts: created from a config, freed with all that they own. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/drift.h"
#include "call/plan.h"
#include "call/profile_net.h"
#include "call/wait.h"
#include "comm/layout_fill.h"
#include "comm/links.h"
#include "comm/registration.h"
#include "gpu/gpu.h"
#include "host/host.h"
#include "init/life.h"
#include "net/netdev.h"
#include "prof/prof.h"
#include "tuner/plugin.h"
#include "tuner/tune_file.h"

static rondo_status time_check(const char *field, int64_t ms)
{
    if (ms >= RONDO_CONFIG_DEFAULT) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(
        RONDO_INVALID_ARGUMENT,
        "config.%s is %lld: set it to 0 for no limit, to milliseconds, or to RONDO_CONFIG_DEFAULT", field,
        (long long)ms);
}

static rondo_status config_check(const rondo_config *config, rondo_config *checked)
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
                          "the config has version %u, the library %d: recompile the program", config->version,
                          RONDO_VERSION_CODE);
    }
    /* A program that was built with an older header has fewer fields. */
    memcpy(checked, config, rondo_min_size(config->size, sizeof(*checked)));
    checked->size = sizeof(*checked);
    if (checked->blocking != 0 && checked->blocking != 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.blocking is %d: set it to 0 or 1",
                          checked->blocking);
    }
    if (checked->max_channels != RONDO_CONFIG_DEFAULT &&
        (checked->max_channels < 1 || checked->max_channels > RONDO_MAX_CHANNELS)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "config.max_channels is %d: set it to 1 to %d, or RONDO_CONFIG_DEFAULT",
                          checked->max_channels, RONDO_MAX_CHANNELS);
    }
    if (checked->split_share != 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "config.split_share is %d: it is reserved and must be 0",
                          checked->split_share);
    }
    if (checked->device < RONDO_DEVICE_CURRENT || checked->allow_shared_gpu < RONDO_CONFIG_DEFAULT ||
        checked->allow_shared_gpu > 1) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "config.device is %d and config.allow_shared_gpu %d: set device to a CUDA device from 0 "
            "on, RONDO_DEVICE_CURRENT, or RONDO_CONFIG_DEFAULT for host memory, and "
            "allow_shared_gpu to 0, 1 or RONDO_CONFIG_DEFAULT",
            checked->device, checked->allow_shared_gpu);
    }
    if (checked->mpi_progress < RONDO_CONFIG_DEFAULT || checked->mpi_progress > 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "config.mpi_progress is %d: set it to 0, 1 or RONDO_CONFIG_DEFAULT",
                          checked->mpi_progress);
    }
    RONDO_TRY(time_check("timeout_ms", checked->timeout_ms));
    return time_check("init_timeout_ms", checked->init_timeout_ms);
}

rondo_status rondo_ctx_create(int rank, int nranks, const rondo_config *config, struct rondo_ctx **ctx_out)
{
    rondo_status status;
    struct rondo_ctx *ctx;
    rondo_config checked;
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    RONDO_TRY(config_check(config, &checked));
    RONDO_TRY(RONDO_NEW(ctx, "a communicator"));
    ctx->life.holds = 1;
    ctx->job.config = checked;
    snprintf(ctx->job.name, sizeof(ctx->job.name), "%s", checked.name != NULL ? checked.name : "");
    ctx->job.config.name = ctx->job.name;
    ctx->job.rank = rank;
    ctx->job.thread = pthread_self();
    ctx->calls.message.peer = -1;
    ctx->job.nranks = nranks;
    ctx->job.agreed = 1;
    ctx->calls.immediate.ctx = ctx;
    ctx->backend = checked.device != RONDO_CONFIG_DEFAULT && rondo_gpu.backend != NULL ? rondo_gpu.backend
                                                                                       : &rondo_backend_host;
    pthread_mutex_init(&ctx->queue.lock, NULL);
    RONDO_TRY_GOTO(rondo_tune_allowed(&ctx->running.allowed), fail);
    ctx->running.may_refuse = !rondo_allowed_all(&ctx->running.allowed);
    RONDO_TRY_GOTO(ctx->backend->open(ctx), fail);
    RONDO_TRY_GOTO(rondo_gpu.check_pointers(ctx), fail);
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
    RONDO_TRY(config_check(config, &inherits));
    inherits.device = inherits.device == RONDO_CONFIG_DEFAULT ? parent->job.config.device : inherits.device;
    inherits.allow_shared_gpu = inherits.allow_shared_gpu == RONDO_CONFIG_DEFAULT
                                    ? parent->job.config.allow_shared_gpu
                                    : inherits.allow_shared_gpu;
    inherits.mpi_progress = inherits.mpi_progress == RONDO_CONFIG_DEFAULT ? parent->job.config.mpi_progress
                                                                          : inherits.mpi_progress;
    RONDO_TRY(rondo_ctx_create(rank, nranks, &inherits, ctx));
    rondo_ctx_hold(parent);
    (*ctx)->life.parent = parent;
    return RONDO_SUCCESS;
}

static void free_links(struct rondo_ctx *ctx)
{
    rondo_links_close(ctx);
    for (int r = 0; ctx->wiring.p2p != NULL && r < ctx->job.nranks; r++) {
        for (int d = 0; ctx->wiring.p2p[r] != NULL && d < 2; d++) {
            if (ctx->wiring.p2p[r]->lazy[d]) {
                rondo_link_close(&ctx->wiring.net, &ctx->wiring.p2p[r]->link[d]);
            }
        }
        rondo_free(ctx->wiring.p2p[r]);
    }
    rondo_free(ctx->wiring.p2p);
    rondo_free(ctx->wiring.links);
    rondo_free(ctx->wiring.ports);
    rondo_free(ctx->wiring.wired);
}

/* What the creation of a child needs. */
static void free_rest(struct rondo_ctx *ctx)
{
    if (ctx->wiring.control != NULL) {
        rondo_control_close(ctx->wiring.control);
    }
    if (ctx->wiring.listening) {
        rondo_control_unlisten();
    }
    rondo_layout_release(&ctx->wiring.layout);
    rondo_free(ctx->wiring.peers);
    rondo_intern_release(ctx->wiring.names);
    rondo_free(ctx->job.shrinks);
    pthread_mutex_destroy(&ctx->queue.lock);
    rondo_free(ctx);
}

void rondo_ctx_hold(struct rondo_ctx *ctx) { __atomic_add_fetch(&ctx->life.holds, 1, __ATOMIC_RELAXED); }

void rondo_ctx_let_go(struct rondo_ctx *ctx)
{
    if (__atomic_sub_fetch(&ctx->life.holds, 1, __ATOMIC_ACQ_REL) == 0) {
        free_rest(ctx);
    }
}

int rondo_ctx_is_held(const struct rondo_ctx *ctx)
{
    return __atomic_load_n(&ctx->life.holds, __ATOMIC_ACQUIRE) > 1;
}

void rondo_ctx_leave_parent(struct rondo_ctx *ctx)
{
    struct rondo_ctx *parent = __atomic_exchange_n(&ctx->life.parent, NULL, __ATOMIC_ACQ_REL);
    if (parent != NULL) {
        rondo_ctx_let_go(parent);
    }
}

void rondo_ctx_free(struct rondo_ctx *ctx)
{
    rondo_ctx_leave_parent(ctx);
    if (ctx->end_stores != NULL) {
        ctx->end_stores(ctx);
    }
    for (int i = 0; i < RONDO_CACHED_CALLS; i++) {
        rondo_free(ctx->calls.cached[i].runs);
    }
    rondo_drift_free(&ctx->calls.drift);
    rondo_plan_release(&ctx->calls.immediate);
    rondo_ctx_deregister(ctx);
    ctx->backend->stop(ctx);
    rondo_profile_net_forget(ctx);
    rondo_prof_close(ctx->prof);
    if (ctx->running.exec != NULL) {
        ctx->running.exec_ops->close(ctx->running.exec);
    }
    rondo_direct_close(ctx->wiring.direct);
    free_links(ctx);
    rondo_net_close(&ctx->wiring.net);
    ctx->backend->close(ctx);
    rondo_free(ctx->pages);
    if (ctx->wiring.has_netdevs) {
        rondo_netdev_finalize();
    }
    rondo_tune_free(ctx->running.tune);
    rondo_tuner_plugin_close(ctx->running.tuner);
    rondo_free(ctx->wiring.arenas);
    rondo_ctx_let_go(ctx);
}
