/* The CUDA executor, shared by its files: exec_cuda_kernels.c (what is on the device), exec_cuda.c (what a
 * communicator has), exec_cuda_launch.c, exec_cuda_graph.c (capture), exec_cuda_direct.c (peers' memory),
 * exec_cuda_copy.c (copy engines). */
#ifndef RONDO_KERN_CUDA_EXEC_CUDA_IMPL_H
#define RONDO_KERN_CUDA_EXEC_CUDA_IMPL_H

#include <pthread.h>

#include "kern/cuda/exec_cuda.h"
#include "kern/cuda/kernels.h"

enum {
    RONDO_CUDA_FLIGHTS = 1024, /* launches under way; the driver's own queue is about as long */
    RONDO_CUDA_NOTES = 512,    /* works whose call can be named when a kernel finds a difference */
    RONDO_CUDA_VARIANTS = RONDO_NUM_PROTOS + 1, /* of a kernel: the protocols, and direct access */
    RONDO_CUDA_KERNELS = 1 + RONDO_CUDA_VARIANTS + RONDO_NUM_DTYPES * RONDO_NUM_REDUCES * RONDO_CUDA_VARIANTS
};

/* ---- of a device ---- */

struct rondo_cuda_kernels {
    struct rondo_cuda_device device;
    CUmodule module;
    CUfunction function[RONDO_CUDA_KERNELS]; /* NULL: the library was built without it */
    uint32_t threads[RONDO_CUDA_KERNELS];
    int blocks; /* that run together, of any kernel */
    int refs;
    struct rondo_cuda_kernels *next;
    pthread_mutex_t order;   /* of launches on the device, and of: */
    struct rondo_exec *last; /* who launched last, among those alone in their communicator; NULL: nobody who
                                is still there */
    int shared_blocks;       /* of executors that share the device with others of their communicator */
    int alone[RONDO_MAX_CHANNELS + 1]; /* how many of the others have so many blocks */
};

/** Index of the kernel that runs a work. */
int rondo_cuda_kernel_of(const struct rondo_work *work);
/** May an executor of so many blocks be there too? It is, then, until it leaves. */
rondo_status rondo_cuda_kernels_join(struct rondo_cuda_kernels *kernels,
                                     const struct rondo_exec_cuda_config *config);
void rondo_cuda_kernels_quit(struct rondo_cuda_kernels *kernels, struct rondo_exec *exec);

/* ---- of a communicator ---- */

/* Host memory that the device reads. */
struct rondo_cuda_pinned {
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes;
};
rondo_status rondo_cuda_pinned_alloc(const struct rondo_cuda *cuda, struct rondo_cuda_pinned *memory,
                                     size_t bytes, const char *what);
void rondo_cuda_pinned_free(const struct rondo_cuda *cuda, struct rondo_cuda_pinned *memory);

struct rondo_cuda_note {
    uint64_t serial;
    uint32_t index;
    struct rondo_work work;
};

/* A launch under way. */
struct rondo_cuda_flight {
    uint32_t nblocks;
    uint32_t copied; /* of a call by copy engines: its number */
    int copies;      /* 1: it is such a call */
    uint64_t end;    /* of its works in the ring */
};

/* What one graph holds (exec_cuda_graph.c). The driver says when the graph is gone, from a thread of its own
 * and after the executor, maybe. */
struct rondo_cuda_capture {
    cuuint64_t id;
    struct rondo_cuda_capture *next;
    struct rondo_cuda_pinned *block; /* what its launches read */
    struct rondo_cuda_note *note;
    int nblocks, nnotes;
    int owners; /* the graph and the executor; atomic */
    int untold; /* the driver will not say when the graph is gone */
};

/* A run to launch, as far as order is concerned. */
struct rondo_cuda_item {
    int index; /* of the run */
    uint32_t lane;
    uint32_t repeat;   /* messages of its conn before it in this plan */
    uint32_t distance; /* from sender to receiver in ranks */
};

/* Device memory of conns of sends and receives. */
struct rondo_cuda_chunk {
    struct rondo_cuda_chunk *next;
    CUdeviceptr memory;
    int used;
};

struct rondo_exec {
    struct rondo_exec_cuda_config config;
    const struct rondo_cuda *cuda;
    struct rondo_cuda_pinned words_memory, ring, staging;
    struct rondo_gpu_words *words[2];       /* of launches, of captured launches */
    struct rondo_gpu_words *words_there[2]; /* at the device's address */
    CUstream own;                           /* that launches are in for another device's stream */
    CUstream uploads;                       /* never captures, and has no launch to wait for */
    CUevent done;                           /* the last launch's end */
    CUevent captured;                       /* the same inside a capture */
    /* what collectives read */
    CUdeviceptr wiring, line;
    const struct rondo_ports *ports; /* the host's */
    const struct rondo_ports *ports_there;
    const int32_t *rank_at_there[RONDO_MAX_CHANNELS];
    struct rondo_cuda_chunk *chunk;
    struct rondo_cuda_direct *direct; /* NULL: none (exec_cuda_direct.c) */
    struct rondo_cuda_copies *copies; /* NULL: none (exec_cuda_copy.c); atomic */
    CUresult untold;                  /* why the end of a launch is not in `done` */
    int stuck; /* an upload was not waited for to its end: what it comes from and goes to stays */
    struct rondo_cuda_scratch {
        CUdeviceptr memory;
        size_t bytes;
        struct rondo_cuda_scratch *older;
    } * scratch;
    /* launches; under `lock` what the watching thread looks at too */
    pthread_mutex_t lock;
    uint64_t issued, ended, captures; /* serials */
    uint64_t head, tail;              /* of the ring */
    struct rondo_cuda_flight flight[RONDO_CUDA_FLIGHTS];
    struct rondo_cuda_note note[RONDO_CUDA_NOTES];
    uint64_t nnotes;
    struct rondo_cuda_capture *capture;
    int faulted;                  /* told; atomic */
    pthread_mutex_t shared_order; /* in place of the device's order */
    /* the stream that the last launch was in */
    int launched;
    CUstream last_stream;
    cuuint64_t last_capture; /* of the last captured launch; 0: none */
    CUstream last_captured_stream;
    /* other streams that launches come behind */
    CUcontext foreign;
    CUevent foreign_event;
    /* the plan that is being launched */
    struct rondo_run *runs;
    struct rondo_cuda_item *item; /* copies, then collectives, then messages */
    int nruns;
    int nitems, capacity, ncopies, ncolls, at; /* nitems: runs that are to run; at: the next one to launch */
    CUstream stream;                           /* that it is launched in */
    struct rondo_cuda_capture *capturing;
};

/* ---- exec_cuda.c ---- */

/** Calls of the driver between these: our context is current, and a thread that captures may make them. */
rondo_status rondo_exec_cuda_enter(const struct rondo_exec *exec, CUstreamCaptureMode *before);
void rondo_exec_cuda_leave(CUstreamCaptureMode before);
/** Host memory to the device; waits for the copy, not for kernels. Between enter and leave. */
rondo_status rondo_exec_cuda_upload(struct rondo_exec *exec, CUdeviceptr to, const void *from, size_t bytes);
/** See which launches have ended. With the lock held. */
void rondo_exec_cuda_reap(struct rondo_exec *exec);
/** For messages: "rank 3 on GPU 0 (0000:3b:00.0)". */
const char *rondo_exec_cuda_where(const struct rondo_exec *exec, char text[80]);

/* ---- exec_cuda_direct.c ---- */

/* A rank's buffer, as it tells peers of it. */
struct rondo_cuda_spot {
    uint64_t serial, region, offset;
};
/** See what has changed in the table. Between enter and leave. */
rondo_status rondo_cuda_direct_look(struct rondo_exec *exec);
/** The spot of this rank's memory; buffer: 0 in, 1 out. @return 1: all peers reach it. Between enter and
 * leave. */
int rondo_cuda_direct_spot(struct rondo_exec *exec, int buffer, const void *ptr, size_t bytes,
                           struct rondo_cuda_spot *spot);
/** Where this rank has a peer's; 0: nowhere, or not so many bytes. */
CUdeviceptr rondo_cuda_direct_at(const struct rondo_exec *exec, int peer, const struct rondo_cuda_spot *spot,
                                 size_t bytes);
/** What a rank's place in the table has for exec_cuda_copy.c. */
uint8_t *rondo_cuda_direct_beyond(const struct rondo_exec *exec, int local);

/** Before the runs are launched: which of their buffers peers reach. */
rondo_status rondo_cuda_direct_prepare(struct rondo_exec *exec);
/** What kernels read; NULL: there are no direct calls. */
struct rondo_gpu_direct *rondo_cuda_direct_there(const struct rondo_exec *exec);
/** When all kernels have left. */
void rondo_cuda_direct_close(struct rondo_exec *exec);

/* ---- exec_cuda_copy.c ---- */

size_t rondo_cuda_copy_place_bytes(int nlocal);
rondo_status rondo_cuda_copy_open(struct rondo_exec *exec, int nlocal, int index);
/** The table is there: say whether this rank can, before its verdict; when all verdicts are there: whether
 * all can. Between enter and leave. */
void rondo_cuda_copy_offer(struct rondo_exec *exec);
void rondo_cuda_copy_agree(struct rondo_exec *exec);
/** When everything has ended, before the table goes. */
void rondo_cuda_copy_close(struct rondo_exec *exec);
/** Put a call that the hosts have met for into the plan's stream. 0: there is no room now. */
int rondo_cuda_copy_room(const struct rondo_exec *exec);
rondo_status rondo_cuda_copy_launch(struct rondo_exec *exec, const struct rondo_run *run);
int rondo_cuda_copy_ended(const struct rondo_exec *exec, uint32_t copied);
/** After an abort, again and again: streams that wait for peers go on. Any thread, any time. */
void rondo_cuda_copy_release(struct rondo_exec *exec);
/** The local rank that the stream waits for, and a number that changes with each wait; or that the host or
 * the stream waits for. -1: none. */
int rondo_cuda_copy_waits(struct rondo_exec *exec, uint64_t *left);
int rondo_cuda_copy_silent(const struct rondo_exec *exec);

/* ---- exec_cuda_graph.c ---- */

/** Does a stream capture? Then exec->capturing is what its graph holds, else NULL. */
rondo_status rondo_exec_cuda_capture(struct rondo_exec *exec, CUstream stream);
/** Memory that lives as long as the graph. */
rondo_status rondo_cuda_capture_memory(struct rondo_exec *exec, size_t bytes,
                                       struct rondo_cuda_pinned *memory);
/** With the lock held. */
rondo_status rondo_cuda_capture_note(struct rondo_exec *exec, uint64_t serial, uint32_t index,
                                     const struct rondo_work *work);
/** Graphs that may run. With the lock held. */
int rondo_cuda_captures(const struct rondo_exec *exec);
/** Free what graphs that are gone have left; all: the executor closes. @return graphs that are left. With the
 * lock held. */
int rondo_cuda_capture_reap(struct rondo_exec *exec, int all);

#endif
