/*
 * A context's device: the private state of the GPU backend. Contract of the operations: comm/backend.h.
 *
 * Creation. The device is opened and its kernels are loaded before round "peers". Round "graphs" carries the
 * names of the ranks' device memory and the P2P modes between the GPUs of a node. Phase "p2p_check" checks
 * these modes, and round "p2p_modes" reports broken ones. Connections are copied to the device after "hello".
 *
 * Calls. A plan is built as for host memory and launched at once (kern/cuda/exec_cuda.h). Connections for its
 * sends and receives are made first, which waits for the peers. A thread of the communicator watches its
 * launches without CUDA calls: faults, deaths, RONDO_WARN_AFTER and RONDO_TIMEOUT. It also drives the net if
 * connections have a proxy, with the device's context current. Calls hold the lock while they build plans;
 * the thread takes it to inspect calls, but not to end kernels after an error.
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
    rondo_status chosen; /* the error of a wrong choice; its sentence is in text */
    char text[RONDO_ERROR_TEXT];
    struct rondo_cuda_device gpu;
    struct rondo_cuda_kernels *kernels;
    int sharers;                  /* ranks on this GPU, all processes */
    int sharers_here;             /* of these, ranks of this process */
    struct rondo_gpu_name *names; /* by local rank */
    uint8_t *modes;               /* enum rondo_p2p_mode to each local rank */
    struct rondo_shm_name *relays;
    /* Held while a plan is built, and by the thread while it inspects calls; not while waiting for anything,
     * so not in launches either. */
    pthread_mutex_t lock;
    /* Plans in progress: the launch that ends each, its collectives (first > last: none), what profiler
     * plugins know of it. */
    struct {
        uint64_t serial, first, last;
        struct rondo_prof_run *prof;
    } call[RONDO_DEVICE_CALLS];
    uint64_t ncalls, nended;
    /* the thread (device_watch.c) */
    pthread_t thread;
    int running;         /* the thread was started */
    pthread_mutex_t net; /* protects progress of the net, and connections for sends and receives */
    pthread_mutex_t wake_lock;
    pthread_cond_t wake;
    int stop, idle; /* protected by wake_lock; idle is also read without it */
    struct rondo_cuda_wait *wait;
    int warned;
    int wants; /* connections with a proxy know that a slice is awaited */
    /* what profiler plugins see of connections with a proxy (device_profile.c) */
    int unwatched; /* plugins get nothing of connections any more */
};

/* ---- device.c ---- */

/** Nanoseconds. The end of a communicator waits so long for its kernels, or for RONDO_P2P_CHECK if that is
 * longer, and asks them to leave after half of it. A variable for tests. */
extern int64_t rondo_device_patience;

/* ---- device_call.c ---- */

/** The CUDA driver checks its own streams, when something is launched there. */
rondo_status rondo_device_check_stream(struct rondo_ctx *ctx, rondo_stream stream);
rondo_status rondo_device_run(const struct rondo_task *task);
/** rondo_plan_add with the lock held, so that the thread does not inspect calls meanwhile. */
rondo_status rondo_device_add(struct rondo_plan *plan, const struct rondo_task *task);
/** Launch plans. One with several streams is launched in the first, between events of the others. */
rondo_status rondo_device_launch(struct rondo_plan **plans, int nplans);
rondo_status rondo_device_pair(struct rondo_ctx *ctx, int peer);
rondo_status rondo_device_drain(struct rondo_ctx *ctx);
rondo_status rondo_device_look(struct rondo_ctx *ctx);
/** Record the end of the calls whose launches have ended. Call with the lock held. */
void rondo_device_end_calls(struct rondo_ctx *ctx);
/** All calls count as ended. After the thread has ended. */
void rondo_device_forget_calls(struct rondo_ctx *ctx);
/** Implements rondo_gpu.check_pointers. */
rondo_status rondo_device_check_pointers(struct rondo_ctx *ctx);

/* ---- device_profile.c ---- */

/** These runs are about to be launched, with their connections: profiler plugins get the events of what a
 * proxy carries. */
void rondo_device_profile_plan(struct rondo_ctx *ctx, struct rondo_run *runs, int n, CUstream stream);
/** The launch has failed, or the communicator ends: no more of these events; those that began end with their
 * runs. */
void rondo_device_profile_forget(struct rondo_ctx *ctx);

/* ---- device_memory.c ---- */

rondo_status rondo_device_mem_alloc(void **ptr, size_t bytes, int ordinal);
/** Prepare direct access between ranks, if parameters allow it. */
rondo_status rondo_device_direct_open(struct rondo_ctx *ctx);
/** Bytes of a rank's place in the control plane's mailbox, for the table of the ranks' memory; 0: no direct
 * access. */
size_t rondo_device_table_bytes(const struct rondo_ctx *ctx);
/** Pass the table to the executor, once all ranks see it. */
rondo_status rondo_device_attach(struct rondo_ctx *ctx);
rondo_status rondo_device_join(struct rondo_ctx *ctx, int *silent);
int rondo_device_copies(const struct rondo_task *task);
size_t rondo_device_mailbox_bytes(const struct rondo_ctx *ctx);
void rondo_device_registered(struct rondo_ctx *ctx, void *buf, size_t bytes);

/* ---- device_watch.c ---- */

/** Start the thread; stop it. */
rondo_status rondo_device_watch(struct rondo_ctx *ctx);
void rondo_device_unwatch(struct rondo_ctx *ctx);
/** Are launches in progress, or may graphs run? No CUDA call. */
int rondo_device_busy(struct rondo_ctx *ctx);
/** After a launch: wake the thread if connections have a proxy. */
void rondo_device_wake(struct rondo_ctx *ctx);

#endif
