/*
 * What profiler plugins see of connections that a proxy carries for a GPU: a ProxyOp for each connection of a
 * run, and a ProxyStep for each slice (call/profile_net.h). The kernels say nothing.
 *
 * A graph launches its runs again at any time. So a communicator with a captured call has no such events from
 * that call on.
 *
 * Lock order: the device's lock, that of the net, that of the profile.
 */
#include "base/log.h"
#include "call/profile_net.h"
#include "comm/links.h"
#include "gpu/device.h"
#include "kern/profile.h"

/* A message's work names the device's copy of its connection already. */
static const struct rondo_ports *host_ports(const struct rondo_ctx *ctx, const struct rondo_run *run)
{
    uint32_t nchannels = (uint32_t)ctx->wiring.layout.nchannels, lane = run->lane - nchannels;
    return run->lane < nchannels ? run->work.ports : &ctx->wiring.p2p[lane / 2]->ports[lane % 2];
}

static struct rondo_link *link_at(const struct rondo_run *run, const struct rondo_prof_conn *conn)
{
    struct rondo_conn *const *ports = conn->is_send ? run->work.ports->send : run->work.ports->recv;
    return rondo_link_of(ports[rondo_profile_key_port(conn->key)]);
}

static rondo_status plan_run(struct rondo_ctx *ctx, const struct rondo_run *launched)
{
    struct rondo_run copy = *launched, *run = &copy;
    struct rondo_prof_conn conns[RONDO_PROFILE_KEYS];
    struct rondo_prof_run *wanted = run->prof != NULL && rondo_prof_run_wants_conns(run->prof) ? run->prof
                                                                                               : NULL;
    int all, n = 0;
    run->work.ports = host_ports(ctx, run);
    all = rondo_profile_conns(run, conns);
    for (int i = 0; i < all; i++) {
        if (conns[i].nsteps > 0 && link_at(run, &conns[i])->conn.proxied) {
            conns[n++] = conns[i];
        }
    }
    rondo_prof_run_begin(run->prof, conns, wanted != NULL ? n : 0);
    for (int i = 0; i < n; i++) {
        RONDO_TRY(rondo_profile_net_add(ctx, link_at(run, &conns[i]), wanted, &conns[i]));
    }
    return RONDO_SUCCESS;
}

/* Does the host see this run's connections? */
static int has_conns(const struct rondo_run *run)
{
    return !rondo_run_stays_out(run) && run->work.ports != NULL &&
           rondo_algo_medium((enum rondo_algo)run->work.algo) == RONDO_MEDIUM_CONNS;
}

static void give_up(struct rondo_ctx *ctx, const char *why)
{
    RONDO_INFO(RONDO_SUBSYS_PROFILE, "rank %d, communicator \"%s\": no ProxyOp and ProxyStep any more: %s",
               ctx->job.rank, ctx->job.name, why);
    ctx->wiring.net.watch = NULL;
    ctx->device->unwatched = 1;
}

void rondo_device_profile_plan(struct rondo_ctx *ctx, struct rondo_run *runs, int n, CUstream stream)
{
    struct rondo_device *d = ctx->device;
    if (ctx->prof == NULL || d->unwatched || ctx->wiring.net.proxied == 0) {
        return;
    }
    pthread_mutex_lock(&d->net);
    rondo_prof_lock(ctx->prof);
    rondo_profile_net_watch(ctx);
    if (rondo_exec_cuda_captures(ctx->running.exec, stream)) {
        give_up(ctx, "a graph has captured its calls");
    }
    for (int i = 0; i < n && !d->unwatched; i++) {
        if (has_conns(&runs[i]) && plan_run(ctx, &runs[i]) != RONDO_SUCCESS) {
            rondo_error_clear();
            give_up(ctx, "there is no memory for them");
        }
    }
    rondo_prof_unlock(ctx->prof);
    pthread_mutex_unlock(&d->net);
}

void rondo_device_profile_forget(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    if (ctx->prof == NULL) {
        return;
    }
    pthread_mutex_lock(&d->net);
    rondo_prof_lock(ctx->prof);
    d->unwatched = 1;
    rondo_profile_net_forget(ctx);
    rondo_prof_unlock(ctx->prof);
    pthread_mutex_unlock(&d->net);
}
