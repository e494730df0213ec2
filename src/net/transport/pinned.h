/*
 * Host memory that a communicator's GPU uses. Ranges are registered with the driver (pinned and mapped into
 * the device) when they are first needed, and all are unregistered together, before the memory is unmapped.
 * Without a device, or without RONDO_CUDA, addresses stay unchanged.
 */
#ifndef RONDO_NET_TRANSPORT_PINNED_H
#define RONDO_NET_TRANSPORT_PINNED_H

#include "base/status.h"

struct rondo_cuda_device;

/* Zeroed: empty. */
struct rondo_pinned {
    const struct rondo_cuda_device *device;
    struct rondo_pinned_range {
        uint8_t *begin; /* whole pages */
        size_t bytes;
        uint8_t *address; /* in the device's address space */
    } * at;
    int n, capacity;
};

#ifdef RONDO_CUDA
/** Find the device address of [host, host + bytes), and register its pages if they are not. One range
 * registers either all of these pages or none. */
rondo_status rondo_pinned_map(struct rondo_pinned *pinned, void *host, size_t bytes, uint8_t **address);
/** Unregister all. Nothing uses the memory any more. */
void rondo_pinned_release(struct rondo_pinned *pinned);
/** Forget all, registered as it is. */
void rondo_pinned_leave(struct rondo_pinned *pinned);
#else
static inline rondo_status rondo_pinned_map(struct rondo_pinned *pinned, void *host, size_t bytes,
                                            uint8_t **address)
{
    (void)pinned, (void)bytes;
    *address = (uint8_t *)host;
    return RONDO_SUCCESS;
}
static inline void rondo_pinned_release(struct rondo_pinned *pinned) { (void)pinned; }
static inline void rondo_pinned_leave(struct rondo_pinned *pinned) { (void)pinned; }
#endif

#endif
