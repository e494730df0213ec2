/*
 * Device memory that other ranks can open: in the same process by its address; in another process by a
 * descriptor (VMM: cuMemCreate, passed over a Unix socket as in base/shm_socket.h, since /proc cannot open
 * such descriptors) or, where device or driver lack VMM, by an IPC handle of cuMemAlloc. Compiled with
 * RONDO_CUDA only.
 *
 * A block has one owner and any number of openers. Within a process, the last of them to close it frees it.
 * Between processes, VMM memory lives while anybody has it mapped, but IPC memory only as long as its owner:
 * the owner of such a block closes it after its openers (rondo_gpu_mem_mortal).
 *
 * While the calling thread captures a stream in global mode, call these functions only between
 * rondo_gpu_relax and rondo_gpu_unrelax, but for rondo_gpu_mem_open and rondo_gpu_find, which do so
 * themselves.
 */
#ifndef RONDO_BASE_CUDA_MEM_H
#define RONDO_BASE_CUDA_MEM_H

#include "base/cuda.h"

enum rondo_gpu_kind { RONDO_GPU_NONE, RONDO_GPU_VMM, RONDO_GPU_IPC, RONDO_NUM_GPU_KINDS };

enum { RONDO_GPU_PATH = 24 };

/* How a peer finds a block. Plain data of fixed size, sent in records; all zero: no block. */
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
    const struct rondo_cuda_device *device; /* that accesses it; outlives it */
    struct rondo_gpu_block *block;
    struct rondo_gpu_name name;
};

/** Allocate @a bytes of device memory, rounded up to the device's granularity (usually 2 MiB), 2 MiB aligned
 * and not zeroed. share 0: for this process only. */
rondo_status rondo_gpu_mem_create(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                                  size_t bytes, int share);
/** Open a peer's block for @a device, enabling peer access. The name is not trusted: the driver or this
 * process's list of blocks must confirm it. Errors are not logged (rondo_fail_quiet). */
rondo_status rondo_gpu_mem_open(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                                const struct rondo_gpu_name *name);
/** Does the memory end with its owner, even while other processes have it open? Does another process own it?
 */
int rondo_gpu_mem_mortal(const struct rondo_gpu_mem *mem);
int rondo_gpu_mem_foreign(const struct rondo_gpu_mem *mem);
/** No peer will open the block any more. */
void rondo_gpu_mem_settle(struct rondo_gpu_mem *mem);
/** Close. Safe on a zeroed struct, and leaves it zeroed. The caller waits first for kernels and copies that
 * use it. */
void rondo_gpu_mem_close(struct rondo_gpu_mem *mem);
/** A DMA-BUF descriptor of device memory, which the caller closes; -1: the driver has none for this range.
 * begin and bytes: multiples of the page size. */
int rondo_gpu_dmabuf(const struct rondo_cuda_device *device, const void *begin, size_t bytes);

/**
 * Allocate device memory that peers can map (VMM, else cuMemAlloc), known by its address alone; for
 * rondo_mem_alloc_device. @return RONDO_UNHANDLED_CUDA_ERROR with bytes needed and free.
 */
rondo_status rondo_gpu_alloc(const struct rondo_cuda_device *device, size_t bytes, void **pointer);
/** @return 0 and do nothing if the pointer is not from rondo_gpu_alloc, or was freed. */
int rondo_gpu_free(void *pointer);
/** Find the block of an address inside rondo_gpu_alloc's memory, and let peers open it from now on. @return
 * 0: none. */
int rondo_gpu_find(const void *pointer, struct rondo_gpu_name *name);
/** Bytes of all memory from rondo_gpu_alloc. */
size_t rondo_gpu_allocated(void);
/** A number that changes whenever such memory is allocated or freed, and so invalidates cached answers. */
uint64_t rondo_gpu_epoch(void);

/** Between these a capturing thread may make calls that capture forbids. They nest. */
void rondo_gpu_relax(CUstreamCaptureMode *before);
void rondo_gpu_unrelax(CUstreamCaptureMode before);

#endif
