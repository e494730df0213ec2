/*
 * Tensors in memory of GPUs. Contents are copied to and from host memory, except where a NIC registers the
 * GPU's memory itself (regions.h). Without CUDA (RONDO_CUDA) every function but the releases and the epoch is
 * an error. The store's lock protects it; copies are made with the lock held.
 */
#ifndef RONDO_TENSOR_GPU_H
#define RONDO_TENSOR_GPU_H

#include "net/netdev.h"

struct rondo_tensor_gpus; /* of a store; NULL until it is used */

enum { RONDO_TENSOR_NO_GPU = -1 }; /* as ordinal: host memory */

/* An allocation of a GPU's memory. */
struct rondo_tensor_gpu_region {
    uint64_t id; /* differs from that of a later allocation at this address */
    void *base;
    size_t bytes;
};

/** Find the GPU of [data, data + bytes), at least 1 byte. @return RONDO_INVALID_ARGUMENT: it is no memory of
 * one GPU. Not logged. */
rondo_status rondo_tensor_gpu_of(const void *data, size_t bytes, int *ordinal);
/** Copy from or to memory of a GPU, and wait for it. */
rondo_status rondo_tensor_gpu_copy(struct rondo_tensor_gpus **gpus, int ordinal, void *to, const void *from,
                                   size_t bytes);
/** The calling thread's current GPU. */
rondo_status rondo_tensor_gpu_current(int *ordinal);
/** Allocate memory of a GPU. */
rondo_status rondo_tensor_gpu_alloc(struct rondo_tensor_gpus **gpus, int ordinal, size_t bytes, void **data);
/** @return 0: it is not from rondo_tensor_gpu_alloc. */
int rondo_tensor_gpu_free(struct rondo_tensor_gpus **gpus, void *data);
/** A number that grows whenever memory of Rondo's on a GPU is allocated or freed. */
uint64_t rondo_tensor_gpu_epoch(void);
/** The allocation that holds all of [data, data + bytes). @return 0: none. */
int rondo_tensor_gpu_region(const void *data, size_t bytes, struct rondo_tensor_gpu_region *region);
/** Register an allocation with a comm of a NIC of these kinds of memory (rondo_net_properties), by DMA-BUF or
 * the peer memory module. Not logged: the caller copies through the host then. */
rondo_status rondo_tensor_gpu_register(struct rondo_tensor_gpus **gpus, int ordinal,
                                       const struct rondo_net_device *device, void *comm, uint32_t memory,
                                       const struct rondo_tensor_gpu_region *region, void **registered);
/** Free what is left of rondo_tensor_gpu_alloc, and the rest. */
void rondo_tensor_gpus_release(struct rondo_tensor_gpus **gpus);

#endif
