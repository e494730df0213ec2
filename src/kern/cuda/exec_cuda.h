/*
 * The executor of communicators with a GPU. Calls are not submitted to lanes: they are launched on the user's
 * stream, and the kernels wait for peers themselves. Compiled with RONDO_CUDA only.
 *
 * A plan's runs are launched in this order: copies of a rank's own share; collectives, in the order of the
 * calls (one kernel for successive ones of one type, operation and protocol: block b has channel b's works);
 * then all sends and receives, sorted by (message number on its connection, distance of the ranks, sender).
 * All messages of a collective thus have one order, and each rank launches its own in that order: of those
 * that have not ended, the first one is in a launch that runs at both ends, in whichever launch it is there.
 *
 * Order. Launches of a communicator run one after the other: if the stream changes, the new one waits for the
 * last launch, by an event or for the words that its blocks write. Communicators run side by side. With
 * RONDO_LAUNCH_ORDER_IMPLICIT one that has one rank on the device also waits for the last launch of any other
 * such communicator, but not in a capture.
 *
 * Several ranks of a communicator on the device (RONDO_ALLOW_SHARED_GPU): a part of such a clique that has
 * begun waits for one that has not, so all that may run there at once must fit on the device together, or is
 * refused: their blocks and those of all other communicators, or with implicit order of the largest. A rank
 * of a process that has several there keeps few launches in progress, so that the driver has room for the
 * others'.
 *
 * Capture. What a captured launch reads beyond its arguments lives as long as the graph. It has words of its
 * own, because other launches' serials only grow. A graph must not run at the same time as other launches of
 * its communicators: launch it in their stream, or order the streams by events.
 */
#ifndef RONDO_KERN_CUDA_EXEC_CUDA_H
#define RONDO_KERN_CUDA_EXEC_CUDA_H

#include "base/cuda.h"
#include "base/wait.h"
#include "kern/exec.h"
#include "kern/cuda/launch.h"

/* A device's kernels, loaded once per process, and the order of its launches. */
struct rondo_cuda_kernels;

/** Load all kernels of the image. The device stays open until they are put back. Nothing is loaded later:
 * that could wait for running kernels. */
rondo_status rondo_cuda_kernels_get(struct rondo_cuda_kernels **kernels,
                                    const struct rondo_cuda_device *device);
void rondo_cuda_kernels_put(struct rondo_cuda_kernels *kernels);
/** Have they one that reduces this type so? */
int rondo_cuda_kernels_reduce(const struct rondo_cuda_kernels *kernels, rondo_dtype type,
                              enum rondo_reduce reduce);
/** How many blocks run on the device together, whatever their kernel. */
int rondo_cuda_kernels_blocks(const struct rondo_cuda_kernels *kernels);

struct rondo_exec_cuda_config {
    const struct rondo_cuda_device *device;
    struct rondo_cuda_kernels *kernels;
    int rank, nranks, nchannels;
    int sharers;      /* ranks of this communicator on this device in this process, this one included */
    int flights;      /* the most launches in progress; 0: as many as the driver has room for */
    const char *name; /* of the communicator, for error messages */
    const struct rondo_exec_owner *owner; /* must outlive the executor */
};

/** Allocate all that calls need: pinned words and works, events. */
rondo_status rondo_exec_cuda_open(struct rondo_exec **exec, const struct rondo_exec_cuda_config *config);
/** Copy to the device what collectives read: ports[nchannels] with their connections as they are now, and
 * rank_at[nchannels], the orders of the rings. Call it once. Works keep naming the host's ports. */
rondo_status rondo_exec_cuda_wire(struct rondo_exec *exec, const struct rondo_ports *ports,
                                  const int32_t *const *rank_at);
/** Copy a connection for sends or receives to *there, the `conns` of its works from now on. Waits for the
 * copy, not for kernels. */
rondo_status rondo_exec_cuda_wire_peer(struct rondo_exec *exec, const struct rondo_conn *conn,
                                       struct rondo_conn **there);
/** A line of device memory for calls without buffers. After rondo_exec_cuda_wire. */
void *rondo_exec_cuda_line(const struct rondo_exec *exec);
/** Device memory that lives as long as the executor. Reuses the largest block so far if that is large enough;
 * a larger one comes beside it. */
rondo_status rondo_exec_cuda_scratch(struct rondo_exec *exec, size_t bytes, void **memory);

/** Launch a plan's runs. begin keeps a reference to the runs until the last step has ended, and inspects the
 * stream; each step launches one kernel, or copies. In a group, all steps of one communicator on a device
 * come before those of the next. @return RONDO_SUCCESS: everything is launched; RONDO_IN_PROGRESS: call again
 * (*moved 0: works have no room yet, wait first). start is begin and as many steps as there is room for. */
rondo_status rondo_exec_cuda_start(struct rondo_exec *exec, CUstream stream, struct rondo_run *runs, int n);
rondo_status rondo_exec_cuda_begin(struct rondo_exec *exec, CUstream stream, struct rondo_run *runs, int n);
rondo_status rondo_exec_cuda_step(struct rondo_exec *exec, int *moved);
/** Before the first step: the launches also wait for this stream's earlier work. Any device's stream. */
rondo_status rondo_exec_cuda_behind(struct rondo_exec *exec, CUstream stream);
/** After the last step of all plans of the group, for begin's stream and each of behind's: make it wait for
 * the plan. */
rondo_status rondo_exec_cuda_end(struct rondo_exec *exec, CUstream stream);

/* Direct access: works of one-shot and two-shot (kern/cuda/block_direct.h), whose ranks access one another's
 * device memory. Ranks announce memory in a table that the whole node sees, without waiting. Peers map it at
 * their next call, and it is used once all have; freed memory is released in the same way. Until then, and
 * for memory that is not rondo_mem_alloc_device's, kernels stage the data in the communicator's own memory.
 */
struct rondo_cuda_direct_config {
    int nlocal, index; /* all ranks of the communicator, at most RONDO_DIRECT_RANKS; this one's index */
    int reaches_all;   /* 0: some GPU cannot be accessed, so no rank uses direct access */
    /* bytes of a staging buffer, two per channel: a multiple of 128, at least RONDO_DIRECT_PIECE per rank */
    size_t stage_bytes;
    int copies; /* copy engines may carry calls, if all ranks can */
};
/** Bytes of a rank's entry in the table. */
size_t rondo_exec_cuda_direct_entry_bytes(int nlocal);
/** Three steps. open allocates device memory. table sets the zeroed table, whose entries are `stride` apart.
 * join is called until all ranks agree; while it returns RONDO_IN_PROGRESS, *silent has not answered. */
rondo_status rondo_exec_cuda_direct_open(struct rondo_exec *exec,
                                         const struct rondo_cuda_direct_config *config);
void rondo_exec_cuda_direct_table(struct rondo_exec *exec, uint8_t *places, size_t stride);
rondo_status rondo_exec_cuda_direct_join(struct rondo_exec *exec, int *silent);
/** Bytes of a staging buffer, equal on all ranks; 0: no direct access. */
size_t rondo_exec_cuda_direct_stage(const struct rondo_exec *exec);
/** Announce memory that is going to be used, if it can be. Local. */
void rondo_exec_cuda_direct_announce(struct rondo_exec *exec, const void *ptr, size_t bytes);

/* Copy engines (exec_cuda_copy.c) carry a run whose `copies` is set if all ranks have announced every buffer
 * that others read; otherwise its fallbacks run. All ranks must decide alike, so their hosts meet before a
 * plan begins, and each call waits for the peers' same call. On the device only the stream waits, as with
 * kernels. */
/** Can all ranks use copy engines? How many of this rank's calls did, captured ones excluded? */
int rondo_exec_cuda_copies(const struct rondo_exec *exec);
uint32_t rondo_exec_cuda_copied(const struct rondo_exec *exec);
/** Reach the runs' verdicts. Call it before rondo_exec_cuda_begin with the same runs, until it returns
 * something else than RONDO_IN_PROGRESS. */
rondo_status rondo_exec_cuda_meet(struct rondo_exec *exec, struct rondo_run *runs, int n);
/** After rondo_exec_cuda_meet, and rondo_exec_cuda_begin for runs that ask: is the run not to be launched? */
static inline int rondo_run_stays_out(const struct rondo_run *run)
{
    return run->fallback_of != NULL ? !run->fallback_of->asks && run->fallback_of->verdict != RONDO_NOT_DIRECT
                                    : (run->copies || run->asks) && run->verdict == RONDO_NOT_DIRECT;
}

/** Serial of the last launch, and of the last one up to which all have ended. Captured ones do not count. No
 * CUDA call. */
uint64_t rondo_exec_cuda_issued(const struct rondo_exec *exec);
uint64_t rondo_exec_cuda_ended(struct rondo_exec *exec);
/** Does the stream capture what is launched in it? */
int rondo_exec_cuda_captures(const struct rondo_exec *exec, CUstream stream);
/** May a call use the stream? RONDO_INVALID_USAGE, which leaves the executor as it is, if it captures and the
 * driver cannot tell captures apart. */
rondo_status rondo_exec_cuda_check_stream(struct rondo_exec *exec, CUstream stream);
/** Graphs that hold launches; they may run at any time. */
int rondo_exec_cuda_graphs(struct rondo_exec *exec);
/** RONDO_SUCCESS, or the error that a kernel found, in the owner's words. No CUDA call; any thread. */
rondo_status rondo_exec_cuda_fault(struct rondo_exec *exec);
/** Make kernels leave at once, now and later. Any thread, any time. */
void rondo_exec_cuda_abort(struct rondo_exec *exec);
/** RONDO_SUCCESS: all launches have ended; RONDO_IN_PROGRESS: not yet; else the device's error. */
rondo_status rondo_exec_cuda_query(struct rondo_exec *exec);
/** Not all launches have ended, and nobody waits for them: what they use stays when the executor closes. */
void rondo_exec_cuda_keep(struct rondo_exec *exec);

/** Is the device's context lost? Then none of its work runs any more. */
int rondo_exec_cuda_lost(struct rondo_exec *exec);

/* What a block was waiting for at the last look. */
struct rondo_cuda_wait {
    uint64_t step, serial; /* serial: of the launch */
    int32_t peer;
    uint16_t port, waits;
    int64_t since_ns; /* 0: it was not waiting */
};
/** Look at all blocks and at the stream. wait[2 * nchannels + 1] belongs to the caller, zeroed at first.
 * @return for how many ns the longest wait has not changed; 0: none waits. No CUDA call. */
int64_t rondo_exec_cuda_waited(struct rondo_exec *exec, struct rondo_cuda_wait *wait, int64_t now_ns);

/** The executor's ops: drop aborts, describe names what the first waiting block waits for; open, submit and
 * progress are NULL. */
extern const struct rondo_exec_ops rondo_exec_cuda;

#endif
