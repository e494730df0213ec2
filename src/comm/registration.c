/* Memory that the ranks of a node reach in one another, and registrations. */
#include "comm/registration.h"

#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "gpu/device.h"

/* One of a communicator's; the user's handle. */
struct rondo_registration {
    struct rondo_registration *next;
    uint64_t region;
};

rondo_status rondo_mem_alloc(void **ptr, size_t bytes)
{
    if (ptr == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_alloc: the place for the pointer is NULL");
    }
    if (bytes == 0) {
        *ptr = NULL;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    return rondo_heap_alloc(ptr, bytes);
}

rondo_status rondo_mem_alloc_device(void **ptr, size_t bytes, int device)
{
    if (device == RONDO_CONFIG_DEFAULT || ptr == NULL || bytes == 0) {
        return rondo_mem_alloc(ptr, bytes);
    }
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    return rondo_device_mem_alloc(ptr, bytes, device);
}

rondo_status rondo_mem_free(void *ptr)
{
    return ptr == NULL || rondo_device_mem_free(ptr) ? RONDO_SUCCESS : rondo_heap_free(ptr);
}

static rondo_status add(struct rondo_ctx *ctx, void *buf, size_t bytes, void **handle)
{
    struct rondo_registration *r;
    rondo_status status;
    RONDO_TRY(rondo_ctx_ready(ctx));
    if (buf == NULL || bytes == 0 || handle == NULL || bytes > UINTPTR_MAX - (uintptr_t)buf) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_comm_register on rank %d: %zu bytes at %p, place for the handle at %p: a "
                          "range of at least one byte and a "
                          "place are needed",
                          ctx->job.rank, bytes, buf, (void *)handle);
    }
    RONDO_TRY(rondo_device_register(ctx, buf, bytes));
    RONDO_TRY(RONDO_NEW(r, "a registration"));
    status = rondo_region_add(buf, bytes, &r->region);
    if (status != RONDO_SUCCESS) {
        rondo_free(r);
        return status;
    }
    r->next = ctx->registrations;
    ctx->registrations = r;
    *handle = r;
    return RONDO_SUCCESS;
}

static rondo_status end(struct rondo_ctx *ctx, void *handle)
{
    struct rondo_registration **at = &ctx->registrations, *r;
    while (*at != NULL && *at != handle) {
        at = &(*at)->next;
    }
    r = *at;
    if (r == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_comm_deregister on rank %d: %p is not a handle that rondo_comm_register of "
                          "this communicator gave, or was "
                          "deregistered before",
                          ctx->job.rank, handle);
    }
    *at = r->next;
    rondo_region_remove(r->region);
    rondo_free(r);
    return RONDO_SUCCESS;
}

rondo_status rondo_comm_register(rondo_comm *comm, void *buf, size_t bytes, void **handle)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_comm_register", &ctx));
    status = rondo_ctx_keep_error(ctx, add(ctx, buf, bytes, handle));
    rondo_comm_leave(comm);
    return status;
}

rondo_status rondo_comm_deregister(rondo_comm *comm, void *handle)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_comm_deregister", &ctx));
    status = rondo_ctx_keep_error(ctx, end(ctx, handle));
    rondo_comm_leave(comm);
    return status;
}

void rondo_ctx_deregister(struct rondo_ctx *ctx)
{
    while (ctx->registrations != NULL) {
        struct rondo_registration *r = ctx->registrations;
        ctx->registrations = r->next;
        rondo_region_remove(r->region);
        rondo_free(r);
    }
}
