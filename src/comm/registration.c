/* rondo_comm_register: memory that the user keeps for many calls. */
#include "comm/registration.h"

#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/backend.h"

/* The user's handle. */
struct rondo_registration {
    struct rondo_registration *next;
    uint64_t region;
};

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
    if (ctx->check_pointer != NULL) {
        RONDO_TRY(ctx->check_pointer(ctx, "comm_register", "registered", buf));
    }
    ctx->backend->registered(ctx, buf, bytes);
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
