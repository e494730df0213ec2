/*
 * A CUDA driver for machines without GPUs, as one library that RONDO_CUDA_LIB names. It has every call of
 * base/cuda.def and a few that programs need (capture of streams, graphs, blocking copies). Devices are this
 * machine's memory, streams are threads, and kernels are kern/cuda/block.h on the simulated machine
 * (sim/machine_sim.h). A module whose image is PTX has the kernels of that, which ptx/ptx.h runs with the
 * threads of their launch. Processes share memory as with the real driver, by IPC handles and by descriptors.
 *
 *   FAKE_CUDA_DEVICES=4        number of devices; CUDA_VISIBLE_DEVICES chooses among them
 *   FAKE_CUDA_MEMORY=4096      MiB per device and process
 *   FAKE_CUDA_NO_PEER=0-1,2-3  pairs without peer access
 *   FAKE_CUDA_NO_VMM=1         no memory shareable by descriptor
 *   FAKE_CUDA_DMABUF=1         offer DMA-BUF descriptors (of plain memory, which no NIC accepts)
 *   FAKE_CUDA_ALIAS=1          devices see shared memory that is registered at another address
 *   FAKE_CUDA_ORDERED=1        NICs' writes need no flush
 *   FAKE_CUDA_THREADS=64       threads of a block of Rondo's, whatever the launch says; 0: what it says
 *   FAKE_CUDA_SEED=7           threads of a block take turns at random, and their stores become visible late
 *   FAKE_CUDA_PTX=kernels/all-80.ptx  kernels are the PTX of this file (ptx/ptx.h)
 *   FAKE_CUDA_FAIL=cuMemAlloc:3:2,..  the third call of cuMemAlloc returns CUresult 2
 *   FAKE_CUDA_FAIL_RANK=1      only in this MPI rank
 *   FAKE_CUDA_IDLE=1           cuMemAlloc, cuMemFree, cuMemHostAlloc and cuMemFreeHost wait until the device
 *                              is idle (host memory: all devices)
 *   FAKE_CUDA_LAZY=1           kernels are loaded by cuFuncLoad or by their first launch, which then waits
 *                              for an idle device; cuFuncGetAttribute does not load
 *   FAKE_CUDA_QUEUES=8         in-order queues per device. Streams get them in turn, and an operation begins
 *                              when all that came before it in its queue have begun. 0: one for each stream
 *   FAKE_CUDA_DEPTH=1000       operations that fit into a queue; calls wait while it is full. 0: any number
 *   FAKE_CUDA_PATIENCE=10      seconds that calls wait for an idle device or for room, before they fail with
 *                              CUDA_ERROR_LAUNCH_TIMEOUT and a sentence on stderr
 *   FAKE_CUDA_COUNT=1          count calls, for fake_cuda_calls()
 *   FAKE_CUDA_STRICT=1         host code that touches device memory gets SIGSEGV (needs protection keys)
 *   FAKE_CUDA_LEAKS=1          at exit, print objects that were not released, and exit with status 97
 *
 * It refuses what a real driver refuses: calls without a context, stale handles, ranges beyond an allocation,
 * calls that a capture forbids. It does not model speed, nor the order of the legacy default stream with
 * streams of other contexts.
 */
#ifndef RONDO_FAKE_CUDA_H
#define RONDO_FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

enum {
    FAKE_DEVICES = 16,
    FAKE_PAGE = 4096,
    FAKE_GRANULE = 2 << 20,
    FAKE_TAILS = 16,
    FAKE_PARAMETER = 16384,
    FAKE_QUEUES = 32
};

enum fake_kind {
    FAKE_CONTEXT,
    FAKE_MEMORY,
    FAKE_PINNED,
    FAKE_REGISTERED,
    FAKE_OPENED,
    FAKE_HANDLE,
    FAKE_RANGE,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_MODULE,
    FAKE_GRAPH,
    FAKE_EXEC,
    FAKE_OBJECT,
    FAKE_KINDS
};

/* In which a device begins operations in their order. */
struct fake_queue {
    uint64_t issued, started;
    uint64_t pending; /* operations that have not ended */
};

struct CUctx_st {
    CUdevice device;
    int refs;
    CUresult error; /* sticky: a kernel has failed */
    struct CUstream_st *legacy;
    uint32_t peers;   /* devices with peer access enabled */
    uint64_t pending; /* operations that have not ended, of all streams */
    struct fake_queue queue[FAKE_QUEUES];
    unsigned next_queue; /* for the next stream */
};

/* Memory that the driver knows by address. */
struct fake_memory {
    struct fake_memory *next;
    enum fake_kind kind; /* MEMORY, PINNED, REGISTERED, OPENED; RANGE: mapped in a reserved range */
    uintptr_t base;
    size_t bytes;
    int device; /* visible number; -1: host memory */
    int fd;
    int refs;
    uint64_t nonce;
    uintptr_t alias; /* of registered memory: the same pages, as devices see them; 0: the same address */
};

/* After the bytes of a descriptor's memory: its identity. */
struct fake_trailer {
    uint64_t magic, nonce, bytes;
    int32_t device; /* of the machine, not of this process */
};

struct fake {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int initialized, ndevices;
    int physical[FAKE_DEVICES];
    struct CUctx_st context[FAKE_DEVICES];
    struct fake_memory *memory;
    size_t used[FAKE_DEVICES];
    int live[FAKE_KINDS];
    int pkey; /* 0: not strict */
};
extern struct fake fake;

/* ---- fake_cuda.c ---- */

/* First in every call: count it, and fail it on request. */
CUresult fake_enter(const char *name, int needs_init);
#define FAKE_ENTER(name)                               \
    do {                                               \
        CUresult entered_ = fake_enter(name, 1);       \
        if (entered_ != CUDA_SUCCESS) return entered_; \
    } while (0)
/* The same for a call that needs a current context; stores it in ctx. */
#define FAKE_ENTER_CTX(name, ctx)                         \
    FAKE_ENTER(name);                                     \
    (ctx) = fake_current();                               \
    if ((ctx) == NULL) return CUDA_ERROR_INVALID_CONTEXT; \
    if ((ctx)->error != CUDA_SUCCESS) return (ctx)->error

CUcontext fake_current(void);
int fake_number(const char *name, int otherwise);
/* Can device a access b's memory? Visible numbers. */
int fake_peers(int a, int b);
/* An object was made (1) or released (-1). */
void fake_count(enum fake_kind kind, int change);

/* ---- fake_cuda_hardware.c: call with the lock held, except the first two ---- */

void fake_count_call(const char *name);
/* For tests, by dlsym: how often a call was made (NULL: all calls), if FAKE_CUDA_COUNT is set. */
uint64_t fake_cuda_calls(const char *name);
/* Wait until the device has nothing to do; ctx NULL: all devices. may: only if FAKE_CUDA_IDLE is set. */
CUresult fake_wait_idle(const char *name, const struct CUctx_st *ctx);
CUresult fake_may_wait_idle(const char *name, const struct CUctx_st *ctx);
struct fake_op;
void fake_queue_choose(struct CUstream_st *stream);
/* An operation enters its stream's queue, if need be after waiting for room; begins; ends. */
CUresult fake_queue_enter(struct CUstream_st *stream, struct fake_op *op);
int fake_queue_may_start(const struct CUstream_st *stream, const struct fake_op *op);
void fake_queue_start(struct CUstream_st *stream);
void fake_queue_leave(struct CUstream_st *stream);

/* ---- fake_cuda_mem.c: call with the lock held ---- */

struct fake_memory *fake_find(uintptr_t address);
struct fake_memory *fake_add(enum fake_kind kind, uintptr_t base, size_t bytes, int device);
void fake_forget(struct fake_memory *memory);
/* A descriptor for memory of a device; -1: none. */
int fake_descriptor(size_t bytes, int device, uint64_t *nonce);
int fake_trailer_read(int fd, struct fake_trailer *trailer);
void *fake_map(int fd, size_t bytes, void *at);
/* 0: [p, p + bytes) begins in known memory and ends outside it. */
int fake_range_fits(uintptr_t p, size_t bytes);
/* Give a thread that runs streams access to device memory. */
void fake_open_memory(void);

/* ---- fake_cuda_stream.c, fake_cuda_graph.c, fake_cuda_kernel.c ---- */

enum fake_op_kind {
    FAKE_OP_COPY,
    FAKE_OP_SET,
    FAKE_OP_HOST,
    FAKE_OP_RECORD,
    FAKE_OP_KERNEL,
    FAKE_OP_GRAPH,
    FAKE_OP_WORDS,
    FAKE_OP_NOTHING
};

struct fake_wait {
    struct CUstream_st *stream;
    uint64_t seq;
};
struct fake_op {
    struct fake_op *next;
    enum fake_op_kind kind;
    CUcontext ctx;
    uint64_t seq, ticket; /* in its stream, and in its queue */
    struct fake_wait wait[FAKE_TAILS];
    int nwaits;
    void *to;
    const void *from;
    size_t bytes;
    uint8_t value;
    CUhostFn fn;
    void *arg;
    CUevent event;
    CUfunction function;
    void *parameter;          /* a copy of FAKE_PARAMETER bytes, for a kernel or CUstreamBatchMemOpParams */
    uint32_t blocks, threads; /* blocks: also the words of a batch */
    CUgraphExec graph;
};

struct CUstream_st {
    struct CUstream_st *next_stream;
    CUcontext ctx;
    unsigned flags;
    int priority, refs, destroyed, legacy;
    int per_thread; /* CU_STREAM_PER_THREAD of its owner */
    pthread_t owner;
    struct fake_op *first, *last;
    uint64_t issued, done;
    struct fake_queue *queue, own_queue;
    struct fake_wait pending[FAKE_TAILS]; /* events that the next operation waits for */
    int npending;
    struct fake_capture *capture; /* NULL: not capturing */
    int tail[FAKE_TAILS], ntails; /* nodes that the next one depends on */
};

struct CUevent_st {
    struct CUevent_st *next_event;
    unsigned flags;
    struct CUstream_st *stream; /* where it was recorded, with a reference; NULL: never */
    uint64_t seq;
    int64_t ns;
    uint64_t capture; /* capture in which it was recorded; 0: none */
    int tail[FAKE_TAILS], ntails;
};

struct fake_capture {
    struct fake_capture *next;
    uint64_t id;
    CUgraph graph;
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t owner;
    int invalid;
};

struct CUfunc_st {
    struct CUfunc_st *next;
    char name[256];
    struct ptx_program *program; /* of the module's PTX; NULL: Rondo's kernel of this name */
    int loaded;                  /* atomic */
};

/* Fail a call that the current thread may not make while anything captures, and invalidate those captures.
 * Call with the lock held. */
CUresult fake_unsafe(void);
/* The stream of a handle, or NULL. Call with the lock held. */
CUstream fake_stream(CUstream handle, CUcontext ctx);
/* Append an operation, or a node if the stream captures. Takes ownership of op->parameter. Call with the lock
 * held. */
CUresult fake_issue(CUstream stream, const struct fake_op *op);
/* Carry it out, without the lock. @return the error that the context gets. */
CUresult fake_run(const struct fake_op *op);
CUresult fake_run_kernel(const struct fake_op *op);
CUresult fake_run_graph(CUgraphExec exec);
void fake_release_stream(CUstream stream);

/* Call with the lock held. */
CUresult fake_graph_add(CUgraph graph, const struct fake_op *op, int *tail, int *ntails);
int fake_graph_is_joined(const struct CUgraph_st *graph, const int *tail, int ntails);
CUgraph fake_graph_new(void);
void fake_graph_free(CUgraph graph);
/* Its streams stop capturing. */
void fake_capture_leave(const struct fake_capture *capture);
int64_t fake_now(void);

#endif
