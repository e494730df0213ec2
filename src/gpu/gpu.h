/* What this build can do with GPUs. Without CUDA, gpu/none.c replaces the backend. */
#ifndef RONDO_GPU_GPU_H
#define RONDO_GPU_GPU_H

#include "comm/backend.h"

struct rondo_gpu {
    const struct rondo_backend_ops *backend; /* NULL: built without CUDA */
    /** Set ctx->check_pointer if RONDO_CHECK_POINTERS asks for it. For any context: GPU memory may be passed
     * to a communicator of host memory by mistake. */
    rondo_status (*check_pointers)(struct rondo_ctx *ctx);
    /** Allocate zeroed memory of a GPU (ordinal, or RONDO_DEVICE_CURRENT). */
    rondo_status (*alloc)(void **ptr, size_t bytes, int ordinal);
    /** @return 0: alloc did not return this memory. */
    int (*release)(void *ptr);
};

extern const struct rondo_gpu rondo_gpu;

#endif
