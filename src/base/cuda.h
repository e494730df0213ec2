/*
 * The CUDA driver, opened at run time: one binary runs with and without it. Compiled only where configure
 * found a CUDA toolkit (RONDO_CUDA); it needs its header <cuda.h> and no library. RONDO_CUDA_LIB names
 * another library than libcuda.so.1 (tests).
 *
 * Calls of the table leave the thread's current context alone: whoever needs one enters and leaves
 * (rondo_cuda_enter). Contexts are the devices' primary ones, which the CUDA runtime uses too: streams and
 * pointers of programs that use the runtime are good here.
 */
#ifndef RONDO_BASE_CUDA_H
#define RONDO_BASE_CUDA_H

#include <cuda.h>

#include "base/cuda.def"
#include "base/status.h"

#define RONDO_CUDA_FIELD_(ctx, Name) __typeof__(cu##Name) *Name;
struct rondo_cuda {
    RONDO_CUDA_TABLE(RONDO_CUDA_FIELD_, )
    RONDO_CUDA_OPTIONAL_TABLE(RONDO_CUDA_FIELD_, )
};
#undef RONDO_CUDA_FIELD_

/**
 * The driver's table; opened and cuInit'ed once a process, never closed. NULL when there is none that works:
 * *why (may be NULL) says so in a few words ("no CUDA driver (libcuda.so.1)", "driver 11.2 is older
 * than 12.0"), logged at INFO once. Any thread.
 */
const struct rondo_cuda *rondo_cuda(const char **why);

/** Does this process use CUDA already? Looks whether the driver is loaded; opens nothing. */
int rondo_cuda_loaded(void);

/** A sentence for a failed call: "cuMemAlloc of 4194304 bytes on GPU 3 (0000:3b:00.0): out of memory
 * (CUDA_ERROR_OUT_OF_MEMORY)"; @return RONDO_UNHANDLED_CUDA_ERROR. */
rondo_status rondo_cuda_fail(CUresult result, const char *fmt, ...) RONDO_PRINTF(2, 3);
#define RONDO_CUDA_TRY(call, ...)                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (RONDO_UNLIKELY(result_ != CUDA_SUCCESS)) return rondo_cuda_fail(result_, __VA_ARGS__); \
    } while (0)

/* What ranks must know of a device; plain data. */
struct rondo_cuda_device {
    int ordinal; /* in this process (CUDA_VISIBLE_DEVICES counts) */
    CUdevice handle;
    CUcontext context; /* primary; retained by rondo_cuda_open, released by rondo_cuda_close */
    char name[64];
    char bus_id[20]; /* "0000:3b:00.0" */
    uint8_t uuid[16];
    int capability; /* 10 * major + minor */
    int sms;        /* multiprocessors */
    size_t memory;  /* bytes */
    int vmm;        /* 1: shareable memory by file descriptor */
    int dmabuf;     /* 1: DMA-BUF of its memory can be had */
};

/** Describe a device and retain its primary context. */
rondo_status rondo_cuda_open(int ordinal, struct rondo_cuda_device *device);
void rondo_cuda_close(struct rondo_cuda_device *device);
/** Make its context current for this thread until left; they nest. */
rondo_status rondo_cuda_enter(const struct rondo_cuda_device *device);
void rondo_cuda_leave(void);
/** The device of this thread's current context; 0 where there is none, as the CUDA runtime takes it. */
rondo_status rondo_cuda_current(int *ordinal);

enum rondo_pointer_kind {
    RONDO_POINTER_HOST,
    RONDO_POINTER_PINNED,
    RONDO_POINTER_DEVICE,
    RONDO_POINTER_MANAGED
};
/** Where a user's pointer lies; *ordinal: its device, -1 of the host. Memory that the driver does not know is
 * the host's. */
rondo_status rondo_cuda_pointer(const void *pointer, enum rondo_pointer_kind *kind, int *ordinal);

#endif
