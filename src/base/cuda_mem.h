/*
 * Device memory that other ranks can open: in this process by its address, in another one by a descriptor
 * (VMM: cuMemCreate, handed over a Unix socket as base/shm_socket.h does; a device's descriptor cannot be
 * opened anew through /proc) or, where the device or the driver has no such memory, by an IPC handle of
 * cuMemAlloc's. Compiled with RONDO_CUDA only.
 *
 * A block has one owner and any number of openers. Within a process it is freed when the last of them closes
 * it. Of another process, VMM memory lives as long as anybody has it mapped, IPC memory only as long as its
 * owner: who owns such a block closes it after its openers (rondo_gpu_mem_mortal).
 *
 * No call here may be made while this thread captures a stream in global mode but between rondo_gpu_relax and
 * rondo_gpu_unrelax.
 */
#ifndef RONDO_BASE_CUDA_MEM_H
#define RONDO_BASE_CUDA_MEM_H

#include "base/cuda.h"

enum rondo_gpu_kind { RONDO_GPU_NONE, RONDO_GPU_VMM, RONDO_GPU_IPC, RONDO_NUM_GPU_KINDS };

enum { RONDO_GPU_PATH = 24 };

/* How a peer finds a block: fixed size, plain data, carried in records; all zero: none. */
struct rondo_gpu_name {
    uint64_t process; /* of the owner */
    uint64_t address, bytes;
    uint32_t kind;   /* enum rondo_gpu_kind */
    uint32_t serial; /* of the owner's blocks */
    union {
        char path[RONDO_GPU_PATH]; /* VMM: address of its socket, "@rondo-..."; "": offered to nobody */
        CUipcMemHandle handle;     /* IPC */
    };
};

struct rondo_gpu_block;

struct rondo_gpu_mem {
    uint8_t *base; /* device address; NULL: not open */
    size_t bytes;
    const struct rondo_cuda_device *device; /* that reaches it; outlives it */
    struct rondo_gpu_block *block;
    struct rondo_gpu_name name;
};

/** @a bytes (rounded up to what the device shares: 2 MiB, as a rule) of the device's memory, 2 MiB aligned,
 * contents unknown. share 0: for this process only. */
rondo_status rondo_gpu_mem_create(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                                  size_t bytes, int share);
/** A peer's block, from @a device: peer access is enabled. Nothing in a name is believed that the driver or
 * this process' list of blocks does not confirm. Errors are not logged (rondo_fail_quiet). */
rondo_status rondo_gpu_mem_open(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                                const struct rondo_gpu_name *name);
/** Does it go with its owner, whoever has it open in other processes? Is it another process's? */
int rondo_gpu_mem_mortal(const struct rondo_gpu_mem *mem);
int rondo_gpu_mem_foreign(const struct rondo_gpu_mem *mem);
/** Nobody is going to open it any more. */
void rondo_gpu_mem_settle(struct rondo_gpu_mem *mem);
/** Safe on a zeroed struct; leaves it zeroed. What still uses it (kernels, copies) is the caller's to wait
 * for. */
void rondo_gpu_mem_close(struct rondo_gpu_mem *mem);
/** A DMA-BUF descriptor of device memory, to be closed by the caller; -1: the driver gives none for this
 * range. begin and bytes: multiples of the page size. */
int rondo_gpu_dmabuf(const struct rondo_cuda_device *device, const void *begin, size_t bytes);

/**
 * For rondo_mem_alloc_device: memory of the device that peers can map (VMM, else cuMemAlloc), by its address
 * alone. @return RONDO_UNHANDLED_CUDA_ERROR with bytes needed and free.
 */
rondo_status rondo_gpu_alloc(const struct rondo_cuda_device *device, size_t bytes, void **pointer);
/** 0: not from rondo_gpu_alloc (or freed already); then nothing is done. */
int rondo_gpu_free(void *pointer);
/** The block that an address inside of rondo_gpu_alloc's memory belongs to, for peers to open from here on;
 * 0: none that could be. */
int rondo_gpu_find(const void *pointer, struct rondo_gpu_name *name);
/** Bytes of all such memory that this process has. */
size_t rondo_gpu_allocated(void);
/** Changes whenever rondo_gpu_alloc's memory comes or goes: what was found, or not, may be asked for again.
 */
uint64_t rondo_gpu_epoch(void);

/** What a thread that captures may not do otherwise, it may between these; they do not nest. */
void rondo_gpu_relax(CUstreamCaptureMode *before);
void rondo_gpu_unrelax(CUstreamCaptureMode before);

#endif
