/* GPU memory: rondo_mem_alloc_device, and direct access between the ranks of a node. Contract:
 * comm/backend.h. */
#include <sched.h>

#include "base/log.h"
#include "base/param.h"
#include "gpu/device.h"

static const double MIB = 1 << 20;

/* ---- rondo_mem_alloc_device ---- */

/* A driver that fails to wait may still tell when the stream is done. */
static CUresult wait_for(const struct rondo_cuda *cuda, CUstream stream)
{
    int64_t end_ns = rondo_now_ns() + rondo_params()->p2p_check;
    CUresult result = cuda->StreamSynchronize(stream);
    while (result != CUDA_SUCCESS && (result = cuda->StreamQuery(stream)) == CUDA_ERROR_NOT_READY &&
           rondo_now_ns() < end_ns) {
        sched_yield();
    }
    return result;
}

/* Zero memory in a stream of its own, without waiting for the caller's work. *busy: it may still be running.
 * The device's context is current. */
static rondo_status zero_entered(const struct rondo_cuda_device *gpu, void *memory, size_t bytes, int *busy)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUstream stream;
    CUresult result = cuda->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS) {
        result = cuda->MemsetD8Async((CUdeviceptr)(uintptr_t)memory, 0, bytes, stream);
        if (result == CUDA_SUCCESS) {
            result = wait_for(cuda, stream);
            *busy = result != CUDA_SUCCESS;
        }
        (void)cuda->StreamDestroy(stream);
    }
    RONDO_CUDA_TRY(result, "rondo_mem_alloc_device: zeroing %zu bytes of GPU %d (%s)", bytes, gpu->ordinal,
                   gpu->bus_id);
    return RONDO_SUCCESS;
}

static rondo_status zero(const struct rondo_cuda_device *gpu, void *memory, size_t bytes, int *busy)
{
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_cuda_enter(gpu));
    rondo_gpu_relax(&before);
    status = zero_entered(gpu, memory, bytes, busy);
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
    return status;
}

static void log_budget(const struct rondo_cuda_device *gpu, const void *memory, size_t bytes)
{
    size_t available = 0, total = 0;
    if (!rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_ALLOC) || rondo_cuda_enter(gpu) != RONDO_SUCCESS) {
        return;
    }
    (void)rondo_cuda(NULL)->MemGetInfo(&available, &total);
    rondo_cuda_leave();
    RONDO_INFO(RONDO_SUBSYS_ALLOC,
               "rondo_mem_alloc_device: %zu bytes at %p of GPU %d (%s); %.1f MiB of it by this call so far, "
               "%.1f of %.1f free",
               bytes, memory, gpu->ordinal, gpu->bus_id, (double)rondo_gpu_allocated() / MIB,
               (double)available / MIB, (double)total / MIB);
}

rondo_status rondo_device_mem_alloc(void **ptr, size_t bytes, int ordinal)
{
    struct rondo_cuda_device gpu;
    void *memory = NULL;
    int busy = 0;
    rondo_status status;
    if (ordinal == RONDO_DEVICE_CURRENT) {
        RONDO_TRY(rondo_cuda_current(&ordinal));
    }
    RONDO_TRY(rondo_cuda_open(ordinal, &gpu)); /* the memory holds a reference to the context */
    status = rondo_gpu_alloc(&gpu, bytes, &memory);
    if (status == RONDO_SUCCESS) {
        status = zero(&gpu, memory, bytes, &busy);
        if (status == RONDO_SUCCESS) {
            log_budget(&gpu, memory, bytes);
            *ptr = memory;
        } else if (!busy) { /* else leave it to the driver */
            rondo_gpu_free(memory);
        }
    }
    rondo_cuda_close(&gpu);
    return status;
}

/* ---- direct access ---- */

static int wants_direct(const struct rondo_ctx *ctx)
{
    return rondo_param_direct_gpu() > 0 && ctx->wiring.layout.nnodes == 1 && ctx->job.nranks > 1 &&
           ctx->job.nranks <= RONDO_DIRECT_RANKS;
}

size_t rondo_device_table_bytes(const struct rondo_ctx *ctx)
{
    return wants_direct(ctx) ? rondo_exec_cuda_direct_entry_bytes(ctx->wiring.layout.nlocal) : 0;
}

rondo_status rondo_device_direct_open(struct rondo_ctx *ctx)
{
    struct rondo_cuda_direct_config config = { .nlocal = ctx->wiring.layout.nlocal,
                                               .index = ctx->wiring.layout.local_rank,
                                               .reaches_all = 1 };
    size_t least = RONDO_DIRECT_PIECE * (size_t)config.nlocal;
    if (!wants_direct(ctx)) {
        return RONDO_SUCCESS;
    }
    config.copies = rondo_params()->copy_gpu > 0;
    config.stage_bytes = rondo_round_up(rondo_max_size(rondo_param_direct_gpu(), least), RONDO_CTRL_ALIGN);
    for (int i = 0; i < config.nlocal; i++) {
        uint8_t mode = ctx->device->modes[i];
        config.reaches_all &= i == config.index || mode == RONDO_P2P_MODE_WRITE ||
                              mode == RONDO_P2P_MODE_READ;
    }
    return rondo_exec_cuda_direct_open(ctx->running.exec, &config);
}

rondo_status rondo_device_attach(struct rondo_ctx *ctx)
{
    const struct rondo_mailbox *mailbox = wants_direct(ctx) ? rondo_control_mailbox(ctx->wiring.control)
                                                            : NULL;
    if (mailbox != NULL) {
        rondo_exec_cuda_direct_table(ctx->running.exec, mailbox->places, mailbox->stride);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_device_join(struct rondo_ctx *ctx, int *silent)
{
    int local = -1;
    rondo_status status = rondo_exec_cuda_direct_join(ctx->running.exec, &local);
    *silent = status == RONDO_IN_PROGRESS ? ctx->wiring.layout.local_ranks[local] : *silent;
    ctx->wiring.layout.model.gpu.direct = (int32_t)rondo_exec_cuda_direct_stage(ctx->running.exec);
    ctx->wiring.layout.model.gpu.staged = rondo_params()->direct_gpu == RONDO_PARAM_AUTO;
    return status;
}

int rondo_device_copies(const struct rondo_task *t)
{
    static const uint8_t can[RONDO_NUM_COLLS] = { [RONDO_COLL_ALL_GATHER] = 1,
                                                  [RONDO_COLL_ALL_GATHERV] = 1,
                                                  [RONDO_COLL_BROADCAST] = 1,
                                                  [RONDO_COLL_ALL_TO_ALL] = 1 };
    return t->ctx->running.forced == NULL && can[t->coll] && rondo_exec_cuda_copies(t->ctx->running.exec) &&
           rondo_task_bytes(t) >= (size_t)rondo_params()->copy_gpu;
}

size_t rondo_device_mailbox_bytes(const struct rondo_ctx *ctx)
{
    return rondo_exec_cuda_direct_stage(ctx->running.exec);
}

void rondo_device_registered(struct rondo_ctx *ctx, void *buf, size_t bytes)
{
    pthread_mutex_lock(&ctx->device->lock);
    rondo_exec_cuda_direct_announce(ctx->running.exec, buf, bytes);
    pthread_mutex_unlock(&ctx->device->lock);
}
