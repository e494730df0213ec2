/* The thread of a communicator with a GPU. It makes no CUDA call, except to have the context current where it
 * carries connections, as net plugins want it: kernels report their progress in pinned words. A launch wakes
 * it. While anything moves on connections with a proxy it runs without a pause; otherwise it wakes every
 * LOOK_MS while launches are in progress or a graph may run, and every IDLE_MS if not. With connections to
 * carry it runs near their NICs (RONDO_PROXY_CORES). */
#include <signal.h>
#include <time.h>

#include "base/cores.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/links.h"
#include "gpu/device.h"

enum { LOOK_MS = 20, IDLE_MS = 500, EAGER_ROUNDS = 2000, NAP_US = 50, STALLED_NS = 1000000000 };

/* ---- inspecting ---- */

/* Does anything wait for a slice from a connection with a proxy? Only then is a closed connection an error: a
 * peer that has finished may have left. */
static void want_slices(struct rondo_ctx *ctx, int wanted)
{
    pthread_mutex_lock(&ctx->device->net);
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        ctx->wiring.links[i].conn.wanted = (uint8_t)(wanted && ctx->wiring.links[i].conn.proxied);
    }
    for (int r = 0; ctx->wiring.p2p != NULL && r < ctx->job.nranks; r++) {
        if (ctx->wiring.p2p[r] != NULL) {
            struct rondo_conn *conn = &ctx->wiring.p2p[r]->link[0].conn;
            conn->wanted = (uint8_t)(wanted && conn->proxied);
        }
    }
    ctx->device->wants = wanted;
    pthread_mutex_unlock(&ctx->device->net);
}

/* Find out who waits for whom, and for how long. */
static void look_at_waits(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    const struct rondo_wait_policy *policy = &ctx->running.policy;
    int64_t waited = rondo_exec_cuda_waited(ctx->running.exec, d->wait, rondo_now_ns());
    int stalled = waited >= STALLED_NS;
    if (stalled || d->wants) { /* repeat it: there may be new connections */
        want_slices(ctx, stalled);
    }
    if (waited == 0) {
        d->warned = 0;
        ctx->running.stall_checks = 0;
        return;
    }
    if (policy->check(policy->arg) != RONDO_SUCCESS) { /* calls differ; this has ended the communicator */
        return;
    }
    if (policy->timeout_ns > 0 && waited >= policy->timeout_ns) {
        (void)policy->report(policy->arg, 1, waited);
    } else if (policy->warn_after_ns > 0 && waited >= policy->warn_after_ns && !d->warned) {
        d->warned = 1;
        (void)policy->report(policy->arg, 0, waited);
    }
}

/* Inspect calls now and then. Errors and aborts end kernels without the lock, which a call holds perhaps for
 * as long as the driver blocks it. A call that waits for peers inspects the rest for itself. */
static void look(struct rondo_ctx *ctx)
{
    if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) != RONDO_COMM_READY ||
        rondo_ctx_ready(ctx) != RONDO_SUCCESS || rondo_device_look(ctx) != RONDO_SUCCESS ||
        pthread_mutex_trylock(&ctx->device->lock) != 0) {
        return;
    }
    rondo_device_end_calls(ctx);
    look_at_waits(ctx);
    pthread_mutex_unlock(&ctx->device->lock);
}

/* ---- the thread ---- */

int rondo_device_busy(struct rondo_ctx *ctx)
{
    struct rondo_exec *exec = ctx->running.exec;
    return exec != NULL &&
           (rondo_exec_cuda_ended(exec) < rondo_exec_cuda_issued(exec) || rondo_exec_cuda_graphs(exec) > 0);
}

static int has_proxied(struct rondo_ctx *ctx)
{
    int n;
    pthread_mutex_lock(&ctx->device->net); /* a call may be making another connection */
    n = ctx->wiring.net.proxied;
    pthread_mutex_unlock(&ctx->device->net);
    return n > 0;
}

/* @return whether anything moved. busy: something is still to be sent. A call that waits drives the net, too.
 */
static int progress_net(struct rondo_ctx *ctx, int *busy)
{
    int moved = 0;
    rondo_status status;
    pthread_mutex_lock(&ctx->device->net);
    status = ctx->wiring.net.proxied > 0 ? rondo_net_progress(&ctx->wiring.net, &moved) : RONDO_SUCCESS;
    *busy = ctx->wiring.net.busy;
    pthread_mutex_unlock(&ctx->device->net);
    if (status != RONDO_SUCCESS) {
        rondo_ctx_fail(ctx, status, -1);
    }
    return moved;
}

static void nap(int64_t ns)
{
    struct timespec time = { ns / 1000000000, ns % 1000000000 };
    nanosleep(&time, NULL);
}

/* Sleep `ms`, or until woken. @return 1: the thread must stop. */
static int sleep_until_woken(struct rondo_device *d, int ms)
{
    struct timespec end;
    int stop;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ms * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&d->wake_lock);
    if (!d->stop && d->idle) {
        (void)pthread_cond_timedwait(&d->wake, &d->wake_lock, &end);
    }
    __atomic_store_n(&d->idle, 0, __ATOMIC_SEQ_CST);
    stop = d->stop;
    pthread_mutex_unlock(&d->wake_lock);
    return stop;
}

static int wants_to_stop(struct rondo_device *d)
{
    int stop;
    pthread_mutex_lock(&d->wake_lock);
    stop = d->stop;
    pthread_mutex_unlock(&d->wake_lock);
    return stop;
}

/* Carry slices: without a pause while they come, then with naps. @return 1: the thread must stop. */
static int carry(struct rondo_ctx *ctx)
{
    int64_t next_look = 0;
    for (int idle = 0;;) {
        /* before progress, which must see what an ended launch has left to send */
        int under_way = rondo_device_busy(ctx);
        int64_t now;
        int busy;
        idle = progress_net(ctx, &busy) ? 0 : idle + 1;
        if (!under_way && !busy) {
            return 0;
        }
        if (idle % 64 != 0) {
            rondo_cpu_relax();
            continue;
        }
        now = rondo_now_ns();
        if (now >= next_look) {
            next_look = now + LOOK_MS * 1000000LL;
            look(ctx);
            if (wants_to_stop(ctx->device)) {
                return 1;
            }
        }
        if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED) {
            return 0;
        }
        if (idle > EAGER_ROUNDS) {
            nap(NAP_US * 1000);
        }
    }
}

/* Bind the thread near its first connections. */
static void bind_near(struct rondo_ctx *ctx)
{
    struct rondo_cores near;
    pthread_mutex_lock(&ctx->device->net);
    rondo_net_cores(&ctx->wiring.net, &near);
    pthread_mutex_unlock(&ctx->device->net);
    rondo_net_bind(ctx->job.rank, &near, "carries data between nodes");
}

static void *watch(void *arg)
{
    struct rondo_ctx *ctx = arg;
    struct rondo_device *d = ctx->device;
    struct rondo_net_inside inside = { .pushed = 0 };
    int bound = 0;
    rondo_log_set_rank(ctx->job.rank);
    for (;;) {
        int failed = __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED,
            proxied = has_proxied(ctx);
        if (!failed && proxied && !bound) {
            bind_near(ctx);
            rondo_net_enter(&ctx->wiring.net, &inside);
            bound = 1;
        }
        if (!failed && proxied && carry(ctx)) {
            break;
        }
        look(ctx);
        __atomic_store_n(&d->idle, 1,
                         /* before checking whether it may sleep: a launch after this wakes the thread */
                         __ATOMIC_SEQ_CST);
        if (sleep_until_woken(d, rondo_device_busy(ctx) ? (!failed && proxied ? 1 : LOOK_MS) : IDLE_MS)) {
            break;
        }
    }
    rondo_net_leave(&inside);
    return NULL;
}

void rondo_device_wake(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    if (!d->running || ctx->wiring.net.proxied == 0 || !__atomic_load_n(&d->idle, __ATOMIC_SEQ_CST)) {
        return;
    }
    pthread_mutex_lock(&d->wake_lock);
    __atomic_store_n(&d->idle, 0, __ATOMIC_SEQ_CST);
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->wake_lock);
}

rondo_status rondo_device_watch(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    pthread_condattr_t attr;
    rondo_status status;
    RONDO_TRY(RONDO_NEW_ARRAY(d->wait, 2 * ctx->wiring.layout.nchannels + 1, "what the blocks wait for"));
    want_slices(ctx, 0); /* round "hello" is over */
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->wake, &attr);
    pthread_condattr_destroy(&attr);
    status = rondo_thread_start(&d->thread, "rondo-gpu", watch, ctx);
    if (status != RONDO_SUCCESS) {
        pthread_cond_destroy(&d->wake);
        return rondo_fail(status, "rank %d, for GPU %d: %s", ctx->job.rank, d->ordinal, rondo_error_text());
    }
    d->running = 1;
    return RONDO_SUCCESS;
}

void rondo_device_unwatch(struct rondo_ctx *ctx)
{
    struct rondo_device *d = ctx->device;
    if (!d->running) {
        return;
    }
    pthread_mutex_lock(&d->wake_lock);
    d->stop = 1;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->wake_lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->wake);
    d->running = 0;
}
