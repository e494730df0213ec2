/* A build without CUDA. */
#include "gpu/gpu.h"

static rondo_status check_pointers(struct rondo_ctx *ctx) { return (void)ctx, RONDO_SUCCESS; }

static rondo_status alloc(void **ptr, size_t bytes, int ordinal)
{
    return (void)ptr, (void)bytes, (void)ordinal, rondo_no_gpu();
}

static int release(void *ptr) { return (void)ptr, 0; }

const struct rondo_gpu rondo_gpu = { .check_pointers = check_pointers, .alloc = alloc, .release = release };
