/*
 * The CUDA driver, opened at run time: one binary runs with and without it. Compiled only where configure
 * found a CUDA toolkit (RONDO_CUDA); it needs the header <cuda.h> and no library. RONDO_CUDA_LIB names
 * a library other than libcuda.so.1, for tests.
 *
 * Functions of the table do not change the thread's current context; use rondo_cuda_enter and
 * rondo_cuda_leave. Contexts are the devices' primary ones, as in the CUDA runtime, so streams and pointers
 * of programs that use the runtime work here.
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
 * The driver's functions, opened and initialised once per process and never closed. NULL if no driver works:
 * *why (may be NULL) gives the reason ("no CUDA driver (libcuda.so.1)", "driver 11.2 is older than 12.0"),
 * which is logged once at INFO. Thread-safe.
 */
const struct rondo_cuda *rondo_cuda(const char **why);

/** Is the driver loaded in this process? Opens nothing. */
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
/** Make the device's context current for this thread until rondo_cuda_leave. Calls nest. */
rondo_status rondo_cuda_enter(const struct rondo_cuda_device *device);
void rondo_cuda_leave(void);
/** The device of this thread's current context, or 0 if it has none, as in the CUDA runtime. */
rondo_status rondo_cuda_current(int *ordinal);

enum rondo_pointer_kind {
    RONDO_POINTER_HOST,
    RONDO_POINTER_PINNED,
    RONDO_POINTER_DEVICE,
    RONDO_POINTER_MANAGED
};
/** Where a pointer lies; *ordinal: its device, or -1 for the host. Memory unknown to the driver is host
 * memory. */
rondo_status rondo_cuda_pointer(const void *pointer, enum rondo_pointer_kind *kind, int *ordinal);

#endif
