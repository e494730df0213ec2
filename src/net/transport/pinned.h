/*
 * Host memory that a communicator's GPU uses: ranges are registered with the driver (pinned, at an address of
 * the device) when they are first asked for, and let go together, before the memory is unmapped. Without a
 * device, or without RONDO_CUDA, addresses stay what they are.
 */
#ifndef RONDO_NET_TRANSPORT_PINNED_H
#define RONDO_NET_TRANSPORT_PINNED_H

#include "base/status.h"

struct rondo_cuda_device;

/* Zeroed: nothing. */
struct rondo_pinned {
    const struct rondo_cuda_device *device;
    struct rondo_pinned_range {
        uint8_t *begin; /* whole pages */
        size_t bytes;
        uint8_t *address; /* of the device */
    } * at;
    int n, capacity;
};

#ifdef RONDO_CUDA
/** Where the device finds [host, host + bytes): its pages are registered unless they are. All of them or none
 * were, by the same range. */
rondo_status rondo_pinned_map(struct rondo_pinned *pinned, void *host, size_t bytes, uint8_t **address);
/** What uses it has ended. */
void rondo_pinned_release(struct rondo_pinned *pinned);
#else
static inline rondo_status rondo_pinned_map(struct rondo_pinned *pinned, void *host, size_t bytes,
                                            uint8_t **address)
{
    (void)pinned, (void)bytes;
    *address = (uint8_t *)host;
    return RONDO_SUCCESS;
}
static inline void rondo_pinned_release(struct rondo_pinned *pinned) { (void)pinned; }
#endif

#endif
