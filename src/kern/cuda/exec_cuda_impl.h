/* Private header of the CUDA executor: exec_cuda_kernels.c (per device), exec_cuda.c (per communicator),
 * exec_cuda_launch.c, exec_cuda_graph.c (capture), exec_cuda_direct.c (peers' memory), exec_cuda_copy.c (copy
 * engines). */
#ifndef RONDO_KERN_CUDA_EXEC_CUDA_IMPL_H
#define RONDO_KERN_CUDA_EXEC_CUDA_IMPL_H

#include <pthread.h>

#include "base/cuda_pool.h"
#include "kern/cuda/exec_cuda.h"
#include "kern/cuda/kernels.h"

enum {
    RONDO_CUDA_FLIGHTS = 512, /* launches in progress: the driver's own queue has room for about 1,000 */
    RONDO_CUDA_NOTES = 512,   /* works that can be named when a kernel finds a mismatch */
    RONDO_CUDA_VARIANTS = RONDO_NUM_PROTOS + 1, /* of a kernel: one per protocol, and direct access */
    RONDO_CUDA_KERNELS = 1 + RONDO_CUDA_VARIANTS +
                         RONDO_DEVICE_DTYPES * RONDO_DEVICE_REDUCES * RONDO_CUDA_VARIANTS
};

/* ---- per device ---- */

struct rondo_cuda_kernels {
    struct rondo_cuda_device device;
    CUmodule module;
    CUfunction function[RONDO_CUDA_KERNELS]; /* NULL: the library was built without it */
    uint32_t threads[RONDO_CUDA_KERNELS];
    int blocks;                     /* blocks that run together, whatever their kernel */
    CUlaunchAttribute attribute[2]; /* of every launch */
    unsigned nattributes;
    int refs;
    struct rondo_cuda_kernels *next;
    pthread_mutex_t order; /* of launches that keep one (exec_cuda.h); protects the fields below */
    /* executor of the last launch, among those with one rank here; NULL: it is gone */
    struct rondo_exec *last;
    int shared_blocks;                 /* blocks of executors whose communicator has several ranks here */
    int alone[RONDO_MAX_CHANNELS + 1]; /* how many of the others have that many blocks */
};

/** Index of the kernel that runs a work. */
int rondo_cuda_kernel_of(const struct rondo_work *work);
/** Register an executor with its number of blocks, until it quits. Fails if they might not fit. */
rondo_status rondo_cuda_kernels_join(struct rondo_cuda_kernels *kernels,
                                     const struct rondo_exec_cuda_config *config);
void rondo_cuda_kernels_quit(struct rondo_cuda_kernels *kernels, struct rondo_exec *exec);

/* ---- per communicator ---- */

/* What a launch reads beyond its arguments: composed at `host`, read at `device`. These are one pinned
 * memory, or for captured launches different ones, between which it is copied once. */
struct rondo_cuda_piece {
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes;
};

struct rondo_cuda_note {
    uint64_t serial;
    uint32_t index;
    struct rondo_work work;
};

/* A launch in progress. */
struct rondo_cuda_flight {
    uint32_t nblocks;
    uint32_t copied; /* number of a call by copy engines */
    int copies;      /* 1: by copy engines */
    uint64_t end;    /* end of its works in the ring */
};

/* What one graph owns (exec_cuda_graph.c). The driver reports the graph's end from a thread of its own,
 * possibly after the executor is gone. */
struct rondo_cuda_capture {
    cuuint64_t id;
    struct rondo_cuda_capture *next;
    struct rondo_cuda_piece *block; /* what its launches read; only device and bytes */
    struct rondo_cuda_note *note;
    int nblocks, nnotes;
    int owners;     /* references: the graph's and the executor's; atomic */
    int unreported; /* the driver will not report the graph's end */
};

/* A run to launch, with what decides its order. */
struct rondo_cuda_item {
    int index; /* of the run */
    uint32_t lane;
    uint32_t repeat;   /* earlier messages of its connection in this plan */
    uint32_t distance; /* ranks from sender to receiver */
    uint32_t sender;
};

struct rondo_cuda_stream {
    CUstream handle;
    uint64_t thread; /* whose CU_STREAM_PER_THREAD it is; 0: another stream */
};

struct rondo_exec {
    struct rondo_exec_cuda_config config;
    const struct rondo_cuda *cuda;
    struct rondo_gpu_pinned words_memory, ring, staging;
    struct rondo_gpu_arena arena;           /* device memory of all that follows */
    struct rondo_gpu_words *words[2];       /* of launches; of captured launches */
    struct rondo_gpu_words *words_there[2]; /* their device addresses */
    CUstream own;                           /* for launches on another device's stream */
    CUstream uploads;                       /* never captures and never waits for a launch */
    CUevent done;                           /* end of what has been launched when it was recorded */
    CUevent captured;                       /* the same inside a capture */
    /* what collectives read */
    CUdeviceptr wiring, line;
    const struct rondo_ports *ports;                    /* host addresses */
    struct rondo_conn *conns_there[RONDO_MAX_CHANNELS]; /* of each channel, and a work's `wired` for them */
    uint32_t wired[RONDO_MAX_CHANNELS];
    const int32_t *rank_at_there[RONDO_MAX_CHANNELS];
    struct rondo_cuda_direct *direct; /* exec_cuda_direct.c; NULL: none */
    struct rondo_cuda_copies *copies; /* exec_cuda_copy.c; NULL: none; atomic */
    CUresult unreported;              /* why `done` could not be recorded */
    int stuck;                        /* an upload was not waited for: keep its source and destination */
    int kept;                         /* rondo_exec_cuda_keep */
    CUdeviceptr scratch;              /* for calls in place */
    size_t scratch_bytes;
    /* launches; `lock` protects what the watching thread reads too */
    pthread_mutex_t lock;
    uint64_t issued, ended, captures; /* serials */
    uint64_t head, tail;              /* of the ring */
    struct rondo_cuda_flight flight[RONDO_CUDA_FLIGHTS];
    struct rondo_cuda_note note[RONDO_CUDA_NOTES];
    uint64_t nnotes;
    struct rondo_cuda_capture *capture;
    struct rondo_cuda_piece *spare; /* that graphs have left */
    int nspare, spare_capacity;
    uint8_t *composed; /* what a captured launch will read, on its way to the device */
    size_t composed_bytes;
    int faulted;  /* the error was reported; atomic */
    int in_order; /* its launches and those of other communicators run one after the other */
    int flights;  /* the most launches in progress */
    /* stream of the last launch; `done` marks its end: else the words of that launch's blocks do */
    int launched, marked;
    uint64_t last_serial;
    struct rondo_cuda_stream last;
    CUstream known;          /* a stream of our context; NULL: none */
    cuuint64_t last_capture; /* of the last captured launch; 0: none */
    struct rondo_cuda_stream last_captured;
    /* other streams that launches wait for */
    CUcontext foreign;
    CUevent foreign_event;
    /* the plan in launch */
    struct rondo_run *runs;
    struct rondo_cuda_item *item; /* copies, then collectives, then messages */
    int nruns;
    int nitems, capacity, ncopies, ncolls, at; /* nitems: runs to launch; at: the next one */
    CUstream stream;                           /* that it is launched on */
    int ordered;                               /* outside a capture: behind all that must end before it */
    struct rondo_cuda_capture *capturing;
};

/* ---- exec_cuda.c ---- */

/** Driver calls go between these: they make our context current, and allow the calls while the thread
 * captures. lightly: for calls that a capture allows; *pushed is for leave_lightly. */
rondo_status rondo_exec_cuda_enter(const struct rondo_exec *exec, CUstreamCaptureMode *before);
void rondo_exec_cuda_leave(CUstreamCaptureMode before);
rondo_status rondo_exec_cuda_enter_lightly(const struct rondo_exec *exec, int *pushed);
void rondo_exec_cuda_leave_lightly(int pushed);
/** Copy host memory to the device; waits for the copy, not for kernels. Between enter and leave, or lightly.
 */
rondo_status rondo_exec_cuda_upload(struct rondo_exec *exec, CUdeviceptr to, const void *from, size_t bytes);
/** Find out which launches have ended. Call with the lock held. */
void rondo_exec_cuda_reap(struct rondo_exec *exec);
/** For messages: "rank 3 on GPU 0 (0000:3b:00.0)". */
const char *rondo_exec_cuda_where(const struct rondo_exec *exec, char text[80]);

/* ---- exec_cuda_direct.c ---- */

/* A rank's buffer, as peers refer to it. */
struct rondo_cuda_spot {
    uint64_t serial, region, offset;
};
/** Process changes of the table. Between enter and leave. */
rondo_status rondo_cuda_direct_look(struct rondo_exec *exec);
/** The spot of this rank's buffer (0 in, 1 out). @return 1: all peers can access it. Between enter and leave.
 */
int rondo_cuda_direct_spot(struct rondo_exec *exec, int buffer, const void *ptr, size_t bytes,
                           struct rondo_cuda_spot *spot);
/** This rank's address of a peer's spot; 0: not mapped, or shorter than `bytes`. */
CUdeviceptr rondo_cuda_direct_at(const struct rondo_exec *exec, int peer, const struct rondo_cuda_spot *spot,
                                 size_t bytes);
/** The part of a rank's table entry that belongs to exec_cuda_copy.c. */
uint8_t *rondo_cuda_direct_beyond(const struct rondo_exec *exec, int local);

/** Before the launches: find out which of the runs' buffers peers can access. */
rondo_status rondo_cuda_direct_prepare(struct rondo_exec *exec);
/** What kernels read, as a device address; NULL: no direct access. */
struct rondo_gpu_direct *rondo_cuda_direct_there(const struct rondo_exec *exec);
/** After all kernels have left. */
void rondo_cuda_direct_close(struct rondo_exec *exec);

/* ---- exec_cuda_copy.c ---- */

size_t rondo_cuda_copy_place_bytes(int nlocal);
rondo_status rondo_cuda_copy_open(struct rondo_exec *exec, int nlocal, int index);
/** Before this rank's verdict: publish whether it can use copy engines. After all verdicts: find out whether
 * all can. Between enter and leave. */
void rondo_cuda_copy_offer(struct rondo_exec *exec);
void rondo_cuda_copy_agree(struct rondo_exec *exec);
/** After everything has ended, before the table goes. */
void rondo_cuda_copy_close(struct rondo_exec *exec);
/** Put a call whose hosts have met into the plan's stream. room returns 0 if it must wait. */
int rondo_cuda_copy_room(const struct rondo_exec *exec);
rondo_status rondo_cuda_copy_launch(struct rondo_exec *exec, const struct rondo_run *run);
int rondo_cuda_copy_ended(const struct rondo_exec *exec, uint32_t copied);
/** After an abort, repeatedly: release streams that wait for peers. Any thread, any time. */
void rondo_cuda_copy_release(struct rondo_exec *exec);
/** waits: the local rank that the stream waits for, or -1; *left changes with each wait. silent: the same, or
 * the rank that the host waits for. */
int rondo_cuda_copy_waits(struct rondo_exec *exec, uint64_t *left);
int rondo_cuda_copy_silent(const struct rondo_exec *exec);

/* ---- exec_cuda_graph.c ---- */

/** If the stream captures, set exec->capturing to what its graph owns, else to NULL. */
rondo_status rondo_exec_cuda_capture(struct rondo_exec *exec, CUstream stream);
/** Take memory that lives as long as the graph. Its `host` is for one launch: upload it then. */
rondo_status rondo_cuda_capture_memory(struct rondo_exec *exec, size_t bytes,
                                       struct rondo_cuda_piece *memory);
/** Call with the lock held. */
rondo_status rondo_cuda_capture_note(struct rondo_exec *exec, uint64_t serial, uint32_t index,
                                     const struct rondo_work *work);
/** Number of graphs that may run. Call with the lock held. */
int rondo_cuda_captures(const struct rondo_exec *exec);
/** Free what ended graphs have left; all: the executor closes. @return graphs that remain. Call with the lock
 * held. */
int rondo_cuda_capture_reap(struct rondo_exec *exec, int all);

#endif
