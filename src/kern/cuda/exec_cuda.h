/*
 * Runs on a GPU: the executor of communicators with a device. Calls are not submitted and turned but
 * launched, on the user's stream; kernels wait by themselves. Compiled with RONDO_CUDA only.
 *
 * Of a plan's runs, in this order: copies of a rank's own share; collectives, in the order of the calls (one
 * kernel for successive ones of one type, operation and protocol: block b has channel b's works); then all
 * sends and receives, sorted by (message of that conn, distance of the ranks), so that whatever does not fit
 * into one launch goes in the same order at both ends: no kernel waits for one that can only come after it.
 *
 * Order. Launches of a communicator run one after the other: another stream than last time waits for an
 * event. A communicator with one rank on the device waits for the last launch of any other such one; those
 * with several (RONDO_ALLOW_SHARED_GPU) do not, since a part of a clique that has begun could wait for one
 * that may not: all blocks of theirs and of the largest other communicator fit on the device together, or
 * they are refused.
 *
 * Capture. What a captured launch reads beyond its arguments lives as long as the graph; its words are not
 * those of other launches, whose serials only grow. A graph must not run at the same time as other launches
 * of its communicators: launch it in their stream, or order the streams by events.
 */
#ifndef RONDO_KERN_CUDA_EXEC_CUDA_H
#define RONDO_KERN_CUDA_EXEC_CUDA_H

#include "base/cuda.h"
#include "base/wait.h"
#include "kern/exec.h"
#include "kern/cuda/launch.h"

/* The kernels on a device, loaded once a process; its launches' order. */
struct rondo_cuda_kernels;

/** Load all kernels of the image on a device that stays open until they are put back: nothing is loaded
 * later, when other kernels may be waiting. */
rondo_status rondo_cuda_kernels_get(struct rondo_cuda_kernels **kernels,
                                    const struct rondo_cuda_device *device);
void rondo_cuda_kernels_put(struct rondo_cuda_kernels *kernels);
/** Blocks that run on the device together, whatever their kernel. */
int rondo_cuda_kernels_blocks(const struct rondo_cuda_kernels *kernels);

struct rondo_exec_cuda_config {
    const struct rondo_cuda_device *device;
    struct rondo_cuda_kernels *kernels;
    int rank, nranks, nchannels;
    int sharers;      /* ranks of this communicator that use this device in this process; 1: this one alone */
    const char *name; /* of the communicator, for messages */
    const struct rondo_exec_owner *owner; /* outlives the executor */
};

/** Everything that calls need: pinned words and works, events, device memory for ports. */
rondo_status rondo_exec_cuda_open(struct rondo_exec **exec, const struct rondo_exec_cuda_config *config);
/** Copy what collectives read to the device: ports[nchannels] with their conns as they are now,
 * rank_at[nchannels] (orders of the rings). Once. Later works name the host's ports. */
rondo_status rondo_exec_cuda_wire(struct rondo_exec *exec, const struct rondo_ports *ports,
                                  const int32_t *const *rank_at);
/** A conn of sends or receives: *ports is what its works name from now on. Waits for the copy, not for
 * kernels. */
rondo_status rondo_exec_cuda_wire_peer(struct rondo_exec *exec, const struct rondo_conn *conn, int is_send,
                                       const struct rondo_ports **ports);
/** A line of device memory, for calls without buffers. After rondo_exec_cuda_wire. */
void *rondo_exec_cuda_line(const struct rondo_exec *exec);
/** Device memory for as long as the executor lives: the largest asked for so far, if it is as large; else
 * new. */
rondo_status rondo_exec_cuda_scratch(struct rondo_exec *exec, size_t bytes, void **memory);

/**
 * Launch a plan's runs. begin notes them (they stay until the end of the last step) and looks at the stream;
 * each step launches one kernel, or copies. Of one group's plans on a device the steps of one communicator
 * come before those of the next.
 * @return RONDO_IN_PROGRESS: there is more (*moved 0: no room for works; wait and try again); RONDO_SUCCESS:
 * all is launched.
 */
rondo_status rondo_exec_cuda_begin(struct rondo_exec *exec, CUstream stream, struct rondo_run *runs, int n);
rondo_status rondo_exec_cuda_step(struct rondo_exec *exec, int *moved);
/** Before the first step: what is launched comes behind what this stream, too, has been given. Any device's.
 */
rondo_status rondo_exec_cuda_behind(struct rondo_exec *exec, CUstream stream);
/** After the last step of all plans of the group, with begin's stream and each of behind's: it goes on when
 * the plan is through. */
rondo_status rondo_exec_cuda_end(struct rondo_exec *exec, CUstream stream);

/*
 * Direct: works of one-shot and two-shot (kern/cuda/block_direct.h), whose ranks reach into one another's
 * device memory. Ranks tell each other of memory in a table that all of a node see, without waiting: what a
 * rank tells of is mapped by the others at their next call, and used once all have; freed memory is let go in
 * the same way. Until then, and where memory is not rondo_mem_alloc_device's, kernels stage the data in the
 * communicator's own memory.
 */
struct rondo_cuda_direct_config {
    int nlocal, index;  /* all ranks of the communicator; at most RONDO_DIRECT_RANKS */
    int reaches_all;    /* 0: some GPU of them is not reached: nobody calls directly */
    size_t stage_bytes; /* of a place that data is staged in, a multiple of 128, RONDO_DIRECT_PIECE a rank at
                           least; two a channel */
    int copies;         /* calls may go to the copy engines, if all can */
};
/** Bytes of a rank's place in the table. */
size_t rondo_exec_cuda_direct_post_bytes(int nlocal);
/** Device memory. Afterwards the table is given (zeroed; places `stride` apart), and join is called until all
 * have agreed: RONDO_IN_PROGRESS: *silent has not. */
rondo_status rondo_exec_cuda_direct_open(struct rondo_exec *exec,
                                         const struct rondo_cuda_direct_config *config);
void rondo_exec_cuda_direct_table(struct rondo_exec *exec, uint8_t *places, size_t stride);
rondo_status rondo_exec_cuda_direct_join(struct rondo_exec *exec, int *silent);
/** Bytes of a place to stage data in; 0: there are no direct calls. The same on all ranks. */
size_t rondo_exec_cuda_direct_stage(const struct rondo_exec *exec);
/** This memory is going to be used: tell of it now. Any memory; local. */
void rondo_exec_cuda_direct_tell(struct rondo_exec *exec, const void *ptr, size_t bytes);

/*
 * Copy engines (exec_cuda_copy.c): a run whose `copies` is set goes to them where every buffer that others
 * read lies in memory that all have told of; else its fallbacks run. That all ranks decide
 * alike needs their hosts: before a plan begins they meet, each call waiting for the peers' own. In the
 * stream it is as with kernels: nobody waits but it.
 */
/** Do all ranks have such calls? And how many of this rank's went there (captured ones do not count). */
int rondo_exec_cuda_copies(const struct rondo_exec *exec);
uint32_t rondo_exec_cuda_copied(const struct rondo_exec *exec);
/** Before rondo_exec_cuda_begin with the same runs, until it does not say RONDO_IN_PROGRESS: their verdicts.
 */
rondo_status rondo_exec_cuda_meet(struct rondo_exec *exec, struct rondo_run *runs, int n);
/** Does a run of a plan that was met for stay out? */
static inline int rondo_run_stays_out(const struct rondo_run *run)
{
    return run->fallback_of != NULL ? run->fallback_of->verdict != RONDO_NOT_DIRECT
                                    : run->copies && run->verdict == RONDO_NOT_DIRECT;
}

/** Serial of the last launch, and up to which all have ended; captured ones do not count. No CUDA call. */
uint64_t rondo_exec_cuda_issued(const struct rondo_exec *exec);
uint64_t rondo_exec_cuda_ended(struct rondo_exec *exec);
/** Graphs that hold launches: they may run at any time. */
int rondo_exec_cuda_graphs(struct rondo_exec *exec);
/** RONDO_SUCCESS, or what a kernel found, as the owner says it. No CUDA call; any thread. */
rondo_status rondo_exec_cuda_fault(struct rondo_exec *exec);
/** Kernels leave at once, now and later. Any thread, any time. */
void rondo_exec_cuda_abort(struct rondo_exec *exec);
/** RONDO_SUCCESS: the device is through with everything launched; RONDO_IN_PROGRESS; or its error. */
rondo_status rondo_exec_cuda_query(struct rondo_exec *exec);

/** Is the device's context lost? Nothing of it runs any more. */
int rondo_exec_cuda_lost(struct rondo_exec *exec);

/* What a block has waited for, as it was last seen. */
struct rondo_cuda_wait {
    uint64_t step, begun;
    int32_t peer;
    uint16_t port, waits;
    int64_t since_ns; /* 0: it did not wait */
};
/** Look at all blocks, and at the stream; wait[2 * nchannels + 1] is the caller's, zeroed at first. @return
 * ns for which the one that waits longest has waited for one and the same; 0: none waits. No CUDA call. */
int64_t rondo_exec_cuda_waited(struct rondo_exec *exec, struct rondo_cuda_wait *wait, int64_t now_ns);

/** The executor's ops: drop is abort, describe says what the first waiting block waits for; open, submit and
 * turn are not there. */
extern const struct rondo_exec_ops rondo_exec_cuda;

#endif
