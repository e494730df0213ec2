/* What this library can do with GPUs. A build without CUDA has gpu/none.c instead of the backend. */
#ifndef RONDO_GPU_GPU_H
#define RONDO_GPU_GPU_H

#include "comm/backend.h"

struct rondo_gpu {
    const struct rondo_backend_ops *backend; /* NULL: built without CUDA */
    /** Set ctx->check_pointer if RONDO_CHECK_POINTERS asks for it. For any context: a communicator of host memory can be
     * given GPU memory by mistake, too. */
    rondo_status (*check_pointers)(struct rondo_ctx *ctx);
    /** Zeroed memory of a GPU (ordinal, or RONDO_DEVICE_CURRENT). */
    rondo_status (*alloc)(void **ptr, size_t bytes, int ordinal);
    /** @return 0: not memory that alloc returned. */
    int (*release)(void *ptr);
};

extern const struct rondo_gpu rondo_gpu;

#endif
