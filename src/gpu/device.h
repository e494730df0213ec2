/*
 * A context's device: what the backend of GPUs keeps, private to this folder. Contract of the operations: comm/backend.h.
 *
 * Creation: the device is opened and its kernels are loaded before round "peers"; round "graphs" carries the names of the
 * ranks' device memory and the P2P modes between the GPUs of a node; phase "gpus" checks these modes, round "ways" tells
 * what is broken; conns are copied to the device after "hello".
 *
 * Calls: a plan is built as for host memory and launched at once (kern/cuda/exec_cuda.h). Connections of sends and
 * receives are made first, which waits for the peers. A thread of the communicator watches what is running, without a CUDA
 * call: faults, deaths, RONDO_WARN_AFTER and RONDO_TIMEOUT; and it moves the conns of a proxy. It takes the lock that
 * calls hold while they make and launch plans.
 */
#ifndef RONDO_GPU_DEVICE_H
#define RONDO_GPU_DEVICE_H

#include "base/cuda_mem.h"
#include "call/task.h"
#include "comm/backend.h"
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

/* ---- device_call.c ---- */

rondo_status rondo_device_run(const struct rondo_task *task);
/** rondo_plan_add, with the lock that keeps the thread from looking at calls meanwhile. */
rondo_status rondo_device_add(struct rondo_plan *plan, const struct rondo_task *task);
/** Plans with several streams are launched in the first one, between events of the others. */
rondo_status rondo_device_launch(struct rondo_plan **plans, int nplans);
rondo_status rondo_device_drain(struct rondo_ctx *ctx);
rondo_status rondo_device_look(struct rondo_ctx *ctx);
/** Note the end of the calls whose launches have ended. With the lock held. */
void rondo_device_end_calls(struct rondo_ctx *ctx);
/** For rondo_gpu.check_pointers. */
rondo_status rondo_device_check_pointers(struct rondo_ctx *ctx);

/* ---- device_memory.c ---- */

rondo_status rondo_device_mem_alloc(void **ptr, size_t bytes, int ordinal);
/** If ranks are to have direct access to one another's memory, prepare it. */
rondo_status rondo_device_direct_open(struct rondo_ctx *ctx);
/** Bytes of a rank's place in the control plane's mailbox: the table of the ranks' memory; 0: no direct access. */
size_t rondo_device_table_bytes(const struct rondo_ctx *ctx);
/** Give the table to the executor, once all ranks see it. */
rondo_status rondo_device_attach(struct rondo_ctx *ctx);
rondo_status rondo_device_join(struct rondo_ctx *ctx, int *silent);
int rondo_device_copies(const struct rondo_task *task);
size_t rondo_device_mailbox_bytes(const struct rondo_ctx *ctx);
void rondo_device_registered(struct rondo_ctx *ctx, void *buf, size_t bytes);

/* ---- device_watch.c ---- */

/** Start and stop the thread. */
rondo_status rondo_device_watch(struct rondo_ctx *ctx);
void rondo_device_unwatch(struct rondo_ctx *ctx);
/** Something was launched: the thread is to look at once if conns are proxied. */
void rondo_device_wake(struct rondo_ctx *ctx);

#endif
