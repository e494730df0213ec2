/*
 * Memory for the kernels' side of communicators that is taken and put back without waiting for the device.
 * Compiled with RONDO_CUDA only.
 *
 * cuMemHostAlloc, cuMemFreeHost, cuMemAlloc and cuMemFree may wait until the device is idle. In a process
 * with several ranks it may never be: a peer's kernel waits for a kernel that this thread has yet to launch.
 * So pinned blocks are reused, and freed with the last one that is in use on their device; and device memory
 * is taken by VMM (base/cuda_mem.h), which does not wait, in blocks that serve many requests.
 */
#ifndef RONDO_BASE_CUDA_POOL_H
#define RONDO_BASE_CUDA_POOL_H

#include "base/cuda_mem.h"

/* Host memory that a device reads and writes. Plain data; zeroed: none. */
struct rondo_gpu_pinned {
    uint8_t *host;
    CUdeviceptr device; /* the same memory, as the device addresses it */
    size_t bytes;       /* that were asked for */
    CUdevice gpu;
};
/** Take zeroed, pinned, mapped memory, usable by all devices: a block that was put back, or a new one, for
 * which the driver may wait for the device. `what` is for error messages. Thread-safe. */
rondo_status rondo_gpu_pinned_take(struct rondo_gpu_pinned *memory, const struct rondo_cuda_device *device,
                                   size_t bytes, const char *what);
/** Put it back, once no device and no copy uses it. Safe on a zeroed struct, and leaves it zeroed. */
void rondo_gpu_pinned_put(struct rondo_gpu_pinned *memory);

/* Device memory of one owner, which takes pieces one by one and releases all at once. Zeroed: empty. Not
 * thread-safe. */
struct rondo_gpu_arena {
    struct rondo_gpu_arena_block *block; /* the latest first */
};
/** Take a piece, aligned to RONDO_CTRL_ALIGN and not zeroed. The device outlives the arena. */
rondo_status rondo_gpu_arena_take(struct rondo_gpu_arena *arena, const struct rondo_cuda_device *device,
                                  size_t bytes, CUdeviceptr *memory);
/** Release all pieces; no kernel and no copy uses them any more. */
void rondo_gpu_arena_release(struct rondo_gpu_arena *arena);

#endif
