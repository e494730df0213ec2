/* A context's device, shared by device.c (creation and end), device_call.c and device_watch.c. With
 * RONDO_CUDA only. */
#ifndef RONDO_GPU_DEVICE_IMPL_H
#define RONDO_GPU_DEVICE_IMPL_H

#include "base/cuda_mem.h"
#include "gpu/device.h"
#include "kern/cuda/exec_cuda.h"

enum { RONDO_DEVICE_CALLS = 64 };

struct rondo_device {
    int ordinal;
    rondo_status chosen; /* what is wrong with the choice; its sentence is in text */
    char text[RONDO_ERROR_TEXT];
    struct rondo_cuda_device gpu;
    struct rondo_cuda_kernels *kernels;
    int sharers;                  /* ranks on this GPU, all processes */
    int sharers_here;             /* in this process */
    struct rondo_gpu_name *names; /* by local rank */
    uint8_t *ways;
    struct rondo_shm_name *relays;
    /* Held while a plan is made and launched, and by the thread while it looks at calls. Not while something
     * is waited for. */
    pthread_mutex_t lock;
    /* Collectives whose end is not noted yet: the launch after which they are done. */
    struct {
        uint64_t serial, first, last;
    } call[RONDO_DEVICE_CALLS];
    uint64_t ncalls, nended;
    /* the thread (device_watch.c) */
    pthread_t thread;
    int running;         /* it was started */
    pthread_mutex_t net; /* its turns of the net, and connections of sends and receives */
    pthread_mutex_t wake_lock;
    pthread_cond_t wake;
    int stop, idle; /* under wake_lock; idle is read without it too */
    struct rondo_cuda_wait *wait;
    int warned;
    int wants; /* proxied conns are told that slices are waited for */
};

/** device_memory.c: if ranks are to reach into one another's memory, what that needs. */
rondo_status rondo_device_direct_open(struct rondo_ctx *ctx);
/** device_call.c, contexts with pages: can the communicator use this pointer? call: of "rondo_.."; which:
 * buffer. */
rondo_status rondo_device_check_pointer(const struct rondo_ctx *ctx, const char *call, const char *which,
                                        const void *pointer);
rondo_status rondo_device_watch(struct rondo_ctx *ctx);
void rondo_device_unwatch(struct rondo_ctx *ctx);
/** Something was launched: the thread is to look at once if conns are proxied. */
void rondo_device_wake(struct rondo_ctx *ctx);
/** Note the end of the calls whose launches have ended. With the lock held. */
void rondo_device_end_calls(struct rondo_ctx *ctx);

#endif
