/* Registrations of tensors' memory with a comm of a net device. Memory in a region of the process
 * (base/heap.h: arenas of stores, registered buffers) is registered as a whole and kept; other memory is
 * registered for one use. Of GPUs' memory, whole allocations are registered and kept. */
#ifndef RONDO_TENSOR_REGIONS_H
#define RONDO_TENSOR_REGIONS_H

#include "base/heap.h"
#include "net/netdev.h"
#include "tensor/store.h"

enum {
    RONDO_TENSOR_REGIONS = 64,        /* registrations that a comm keeps */
    RONDO_TENSOR_LOOK_AT_GPUS = 1024, /* looks for memory that is gone: cudaFree tells nobody */
};

struct rondo_tensor_kept {
    uint64_t id; /* of the region, or of a GPU's allocation; 0: free */
    void *base, *region;
    size_t bytes;
    int uses, on_gpu;
    int gone; /* the memory is: the last use ends the registration */
};

struct rondo_tensor_regions { /* zeroed, except for device, comm, apart and memory */
    const struct rondo_net_device *device;
    void *comm;
    int apart;       /* the device registers nothing: it sends and receives any memory */
    uint32_t memory; /* kinds that it registers (rondo_net_properties) */
    int no_gpu;      /* it has refused memory of a GPU */
    uint64_t epoch;  /* of memory, when it was last looked for what is gone */
    int ngpu;        /* registrations of memory of GPUs */
    uint32_t looks;
    struct rondo_tensor_kept kept[RONDO_TENSOR_REGIONS];
};

/** Get a registration of [data, data + bytes), at least 1 byte, of the GPU with this ordinal or of the host
 * (RONDO_TENSOR_NO_GPU). hold: zeroed. Errors of GPUs' memory are not logged. */
rondo_status rondo_tensor_hold(struct rondo_tensor_conn *conn, struct rondo_tensor_regions *regions,
                               void *data, size_t bytes, int gpu, struct rondo_tensor_hold *hold);
/** End a use; safe on a zeroed struct, and leaves it zeroed. */
void rondo_tensor_unhold(struct rondo_tensor_regions *regions, struct rondo_tensor_hold *hold);
/** End registrations of memory that is gone: it stays with the process as long as they do. */
void rondo_tensor_regions_end_gone(struct rondo_tensor_regions *regions);
static inline void rondo_tensor_regions_look(struct rondo_tensor_regions *regions)
{
    if (regions->epoch != rondo_region_epoch() + rondo_tensor_gpu_epoch() ||
        (regions->ngpu > 0 && ++regions->looks % RONDO_TENSOR_LOOK_AT_GPUS == 0)) {
        rondo_tensor_regions_end_gone(regions);
    }
}
/** End what is kept. Uses must have ended. */
void rondo_tensor_regions_close(struct rondo_tensor_regions *regions);

/** Map memory of whole pages for a connection's own buffers, which only a peer's writes to them reach.
 * *bytes: in, the least; out, what munmap needs. */
rondo_status rondo_tensor_pages_map(size_t *bytes, uint8_t **memory);
/** The other end of a connection, for prepare. */
struct rondo_net_peer rondo_tensor_net_peer(const struct rondo_tensor_conn *conn, int channel);

#endif
