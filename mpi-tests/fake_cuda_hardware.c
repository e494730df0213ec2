/* The fake CUDA driver: what hardware and driver make calls and kernels wait for, each on request. */
#include "fake_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NAMES = 160, PATIENCE_S = 10 };

/* ---- counting ---- */

static struct {
    const char *name;
    uint64_t calls;
} counted[MOST_NAMES];

void fake_count_call(const char *name)
{
    static int wanted = -1;
    if (__atomic_load_n(&wanted, __ATOMIC_RELAXED) < 0) {
        __atomic_store_n(&wanted, fake_number("FAKE_CUDA_COUNT", 0), __ATOMIC_RELAXED);
    }
    for (int i = 0; wanted && i < MOST_NAMES; i++) {
        const char *none = NULL;
        if (__atomic_compare_exchange_n(&counted[i].name, &none, name, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            strcmp(none, name) == 0) {
            __atomic_add_fetch(&counted[i].calls, 1, __ATOMIC_RELAXED);
            return;
        }
    }
}

uint64_t fake_cuda_calls(const char *name)
{
    uint64_t calls = 0;
    for (int i = 0; i < MOST_NAMES; i++) {
        const char *known = __atomic_load_n(&counted[i].name, __ATOMIC_ACQUIRE);
        if (known != NULL && (name == NULL || strcmp(known, name) == 0)) {
            calls += __atomic_load_n(&counted[i].calls, __ATOMIC_RELAXED);
        }
    }
    return calls;
}

/* ---- waiting for the device in a call ---- */

/* A step of such a wait. Call with the lock held. @return 0: it has lasted too long. */
static int wait_step(int64_t end_ns)
{
    struct timespec end;
    if (fake_now() >= end_ns) return 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 50000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&fake.changed, &fake.lock, &end);
    return 1;
}

static int64_t patience_end(void)
{
    return fake_now() + fake_number("FAKE_CUDA_PATIENCE", PATIENCE_S) * INT64_C(1000000000);
}

static CUresult too_long(const char *name, const char *what)
{
    fprintf(stderr, "fake CUDA: process %d: %s waits for %s, which does not come\n", (int)getpid(), name,
            what);
    return CUDA_ERROR_LAUNCH_TIMEOUT;
}

/* Does any device (ctx: this one) have work? */
static int is_busy(const struct CUctx_st *ctx)
{
    for (int d = 0; d < fake.ndevices; d++) {
        if ((ctx == NULL || ctx == &fake.context[d]) && fake.context[d].pending > 0) return 1;
    }
    return 0;
}

CUresult fake_wait_idle(const char *name, const struct CUctx_st *ctx)
{
    const int64_t end_ns = patience_end();
    while (is_busy(ctx)) {
        if (!wait_step(end_ns)) return too_long(name, "an idle device");
    }
    return CUDA_SUCCESS;
}

CUresult fake_may_wait_idle(const char *name, const struct CUctx_st *ctx)
{
    return fake_number("FAKE_CUDA_IDLE", 0) != 0 ? fake_wait_idle(name, ctx) : CUDA_SUCCESS;
}

/* ---- in-order queues ---- */

void fake_queue_choose(CUstream s)
{
    int n = fake_number("FAKE_CUDA_QUEUES", 0);
    n = n > FAKE_QUEUES ? FAKE_QUEUES : n;
    s->queue = n > 0 ? &s->ctx->queue[s->ctx->next_queue++ % (unsigned)n] : &s->own_queue;
}

CUresult fake_queue_enter(CUstream s, struct fake_op *op)
{
    const int depth = fake_number("FAKE_CUDA_DEPTH", 0);
    const int64_t end_ns = depth > 0 ? patience_end() : 0;
    s->refs++;
    while (depth > 0 && s->queue->pending >= (uint64_t)depth) {
        if (!wait_step(end_ns)) {
            fake_release_stream(s);
            return too_long("a launch", "room in the device's queue");
        }
    }
    op->ticket = ++s->queue->issued;
    s->queue->pending++;
    s->ctx->pending++;
    fake_release_stream(s);
    return CUDA_SUCCESS;
}

int fake_queue_may_start(const struct CUstream_st *s, const struct fake_op *op)
{
    return s->queue->started + 1 == op->ticket;
}

void fake_queue_start(CUstream s)
{
    s->queue->started++;
    pthread_cond_broadcast(&fake.changed);
}

void fake_queue_leave(CUstream s)
{
    s->queue->pending--;
    s->ctx->pending--;
}
