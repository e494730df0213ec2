/*
 * Communicators whose buffers are on a GPU: what the top floor does otherwise for them. A context has a
 * `device` from its creation on when its config asks for one; everything here is called for such contexts
 * only, but for what says otherwise. Without RONDO_CUDA the one thing that is there is the error that says
 * so.
 *
 * Creation: the device is opened and its kernels are loaded before round "peers"; round "graphs" carries the
 * names of the ranks' device memory and the ways between the GPUs of a node; phase "gpus" checks these ways,
 * round "ways" tells what is broken; conns are copied to the device after "hello".
 *
 * Calls: a plan is built as for host memory and launched at once (kern/cuda/exec_cuda.h); connections of
 * sends and receives are made first, and that waits for the peers. A thread of the communicator looks after
 * what is under way without a CUDA call: faults, deaths, RONDO_WARN_AFTER and RONDO_TIMEOUT; and moves the
 * conns that a proxy carries. It takes the lock that calls hold while they make and launch plans.
 */
#ifndef RONDO_GPU_DEVICE_H
#define RONDO_GPU_DEVICE_H

#include "call/task.h"
#include "comm/comm.h"

#ifdef RONDO_CUDA

/** At creation, in the caller's thread: give the context a device if its config says so. What is wrong with
 * it is told in the first round, to all ranks. */
rondo_status rondo_device_choose(struct rondo_ctx *ctx);
/** Any context: remember the pages of buffers if RONDO_CHECK_POINTERS wants them checked: with a device, or
 * where this process uses CUDA. */
rondo_status rondo_device_check_pages(struct rondo_ctx *ctx);
/** Any context with pages. needed: bit 0 the send buffer, bit 1 the receive buffer. Do they lie where the
 * communicator can use them? */
rondo_status rondo_device_check(const struct rondo_task *task, unsigned needed);
/** Any context. After its net is closed. */
void rondo_device_free(struct rondo_ctx *ctx);
/** Open the device and say what it is. */
rondo_status rondo_device_fill_peer(struct rondo_ctx *ctx, struct rondo_peer *peer);
/** The peers are known: who shares the device. */
void rondo_device_peers(struct rondo_ctx *ctx);
/** Channels that fit; 0: too many ranks share the device, which check_channels says. */
int rondo_device_channels(const struct rondo_ctx *ctx);
rondo_status rondo_device_check_channels(const struct rondo_ctx *ctx);
const struct rondo_cuda_device *rondo_device_gpu(const struct rondo_ctx *ctx);
/** Bytes that a record of round "graphs" has for a device, beyond its own. The same on all ranks. */
size_t rondo_device_record_bytes(const struct rondo_ctx *ctx);
/** Fill that part, after rondo_net_open; ways: at a node's lowest rank the matrix of its ranks' ways (enum
 * rondo_p2p_mode), which is written by rondo_node_graphs. */
void rondo_device_fill_record(struct rondo_ctx *ctx, void *record);
uint8_t *rondo_device_record_p2p_modes(void *record);
/** All records of the node are here: record_of(arg, rank) is that part of a rank's. */
rondo_status rondo_device_names(struct rondo_ctx *ctx, void *(*record_of)(void *arg, int rank), void *arg);
/** rondo_net_check. */
rondo_status rondo_device_check_p2p_modes(struct rondo_ctx *ctx);
/** This rank's ways, as phase "gpus" has left them: layout.max_local bytes for round "ways"; and what another
 * rank of the node said. */
void rondo_device_p2p_modes(const struct rondo_ctx *ctx, uint8_t *ways);
void rondo_device_broken(struct rondo_ctx *ctx, int rank, const uint8_t *ways);
/** For round "ways": what other GPUs of the node send through this one (rondo_net_relay), once it is known
 * how they reach it; and what another rank of the node said. */
rondo_status rondo_device_relay(struct rondo_ctx *ctx, struct rondo_shm_name *name);
void rondo_device_relayed(struct rondo_ctx *ctx, int rank, const struct rondo_shm_name *name);
/** Once connected: does every conn within the node go from GPU to GPU, or by a proxy? What goes through host
 * memory in between may bring the 128 bytes of a store one by one. */
int rondo_device_links_reach(const struct rondo_ctx *ctx);
/** The executor; then, when hello has passed, the conns on the device, and the thread. */
rondo_status rondo_device_prepare(struct rondo_ctx *ctx);
rondo_status rondo_device_start(struct rondo_ctx *ctx);
/** Nothing is under way any more, or was waited for in vain: before the executor is closed. */
void rondo_device_stop(struct rondo_ctx *ctx);

/** rondo_plan_add, with the lock that keeps the thread from looking at calls meanwhile. Plans of a device may
 * have several streams: they are launched in the first one, between events of the others. */
rondo_status rondo_device_add(struct rondo_plan *plan, const struct rondo_task *task);
/** Launch one call. */
rondo_status rondo_device_run(const struct rondo_task *task);
/** Launch those plans of a group that are a device's, together; they are released, their places become NULL.
 * After an error the communicators of which not all is launched have ended. */
rondo_status rondo_device_run_plans(struct rondo_plan **plans, int nplans);
/** Wait until everything launched has ended. */
rondo_status rondo_device_drain(struct rondo_ctx *ctx);
/** RONDO_SUCCESS, or what a kernel found, which ends the communicator. Any thread. */
rondo_status rondo_device_look(struct rondo_ctx *ctx);
/** The communicator has ended: kernels leave. Any thread. */
void rondo_device_abort(struct rondo_ctx *ctx);
/** For plans: a byte to send and one to receive (barrier); memory for a copy of an in-place buffer, for this
 * plan. */
void rondo_device_bytes(const struct rondo_ctx *ctx, const void **send, void **recv);
rondo_status rondo_device_scratch(struct rondo_plan *plan, size_t bytes, void **memory);

/** For rondo_mem_alloc_device and rondo_mem_free. 0: not of it. */
rondo_status rondo_device_mem_alloc(void **ptr, size_t bytes, int ordinal);
int rondo_device_mem_free(void *ptr);
/** Any context: memory is registered. Is it of a kind that the communicator can use? Then its peers are told
 * of it. */
rondo_status rondo_device_register(struct rondo_ctx *ctx, void *buf, size_t bytes);
/**
 * Direct calls (kern/cuda/exec_cuda.h), with RONDO_DIRECT_GPU on one node: bytes of a rank's place in the
 * control plane's mailbox, which is the table of the ranks' memory; given to the executor when all ranks see
 * it; and all ranks agree, RONDO_IN_PROGRESS: *silent has not said yet. mailbox_bytes: what the cost model is
 * to take for the mailbox; 0: no direct calls.
 */
size_t rondo_device_table_bytes(const struct rondo_ctx *ctx);
void rondo_device_table(struct rondo_ctx *ctx);
rondo_status rondo_device_join(struct rondo_ctx *ctx, int *silent);
size_t rondo_device_mailbox_bytes(const struct rondo_ctx *ctx);
/** Any context: is a call to be offered to the copy engines (RONDO_COPY_GPU)? The same on all ranks. */
int rondo_device_copies(const struct rondo_task *task);

#else

/* No context has a device: creation fails in rondo_device_fill_peer. */
static inline rondo_status rondo_device_none(void)
{
    return rondo_fail(RONDO_INVALID_USAGE, "config.device asks for a GPU, but this library was built without "
                                           "CUDA: configure it --with-cuda=DIR, or leave "
                                           "RONDO_CONFIG_DEFAULT there for host memory");
}
static inline rondo_status rondo_device_choose(struct rondo_ctx *ctx) { return (void)ctx, RONDO_SUCCESS; }
static inline rondo_status rondo_device_check_pages(struct rondo_ctx *ctx)
{
    return (void)ctx, RONDO_SUCCESS;
}
static inline rondo_status rondo_device_check(const struct rondo_task *task, unsigned needed)
{
    return (void)task, (void)needed, RONDO_SUCCESS;
}
static inline void rondo_device_free(struct rondo_ctx *ctx) { (void)ctx; }
static inline rondo_status rondo_device_fill_peer(struct rondo_ctx *ctx, struct rondo_peer *peer)
{
    return (void)ctx, (void)peer, rondo_device_none();
}
static inline void rondo_device_peers(struct rondo_ctx *ctx) { (void)ctx; }
static inline int rondo_device_channels(const struct rondo_ctx *ctx) { return (void)ctx, 1; }
static inline rondo_status rondo_device_check_channels(const struct rondo_ctx *ctx)
{
    return (void)ctx, RONDO_SUCCESS;
}
static inline const struct rondo_cuda_device *rondo_device_gpu(const struct rondo_ctx *ctx)
{
    return (void)ctx, NULL;
}
static inline size_t rondo_device_record_bytes(const struct rondo_ctx *ctx) { return (void)ctx, (size_t)0; }
static inline void rondo_device_fill_record(struct rondo_ctx *ctx, void *record) { (void)ctx, (void)record; }
static inline uint8_t *rondo_device_record_p2p_modes(void *record) { return record; }
static inline rondo_status rondo_device_names(struct rondo_ctx *ctx, void *(*record_of)(void *arg, int rank),
                                              void *arg)
{
    return (void)ctx, (void)record_of, (void)arg, rondo_device_none();
}
static inline rondo_status rondo_device_check_p2p_modes(struct rondo_ctx *ctx)
{
    return (void)ctx, RONDO_SUCCESS;
}
static inline void rondo_device_p2p_modes(const struct rondo_ctx *ctx, uint8_t *ways)
{
    (void)ctx, (void)ways;
}
static inline void rondo_device_broken(struct rondo_ctx *ctx, int rank, const uint8_t *ways)
{
    (void)ctx, (void)rank, (void)ways;
}
static inline rondo_status rondo_device_relay(struct rondo_ctx *ctx, struct rondo_shm_name *name)
{
    return (void)ctx, (void)name, RONDO_SUCCESS;
}
static inline void rondo_device_relayed(struct rondo_ctx *ctx, int rank, const struct rondo_shm_name *name)
{
    (void)ctx, (void)rank, (void)name;
}
static inline int rondo_device_links_reach(const struct rondo_ctx *ctx) { return (void)ctx, 1; }
static inline rondo_status rondo_device_prepare(struct rondo_ctx *ctx)
{
    return (void)ctx, rondo_device_none();
}
static inline rondo_status rondo_device_start(struct rondo_ctx *ctx)
{
    return (void)ctx, rondo_device_none();
}
static inline void rondo_device_stop(struct rondo_ctx *ctx) { (void)ctx; }
static inline rondo_status rondo_device_add(struct rondo_plan *plan, const struct rondo_task *task)
{
    return (void)plan, (void)task, rondo_device_none();
}
static inline rondo_status rondo_device_run(const struct rondo_task *task)
{
    return (void)task, rondo_device_none();
}
static inline rondo_status rondo_device_run_plans(struct rondo_plan **plans, int nplans)
{
    return (void)plans, (void)nplans, RONDO_SUCCESS;
}
static inline rondo_status rondo_device_drain(struct rondo_ctx *ctx)
{
    return (void)ctx, rondo_device_none();
}
static inline rondo_status rondo_device_look(struct rondo_ctx *ctx) { return (void)ctx, RONDO_SUCCESS; }
static inline void rondo_device_abort(struct rondo_ctx *ctx) { (void)ctx; }
static inline rondo_status rondo_device_mem_alloc(void **ptr, size_t bytes, int ordinal)
{
    return (void)ptr, (void)bytes, (void)ordinal, rondo_device_none();
}
static inline int rondo_device_mem_free(void *ptr) { return (void)ptr, 0; }
static inline rondo_status rondo_device_register(struct rondo_ctx *ctx, void *buf, size_t bytes)
{
    return (void)ctx, (void)buf, (void)bytes, RONDO_SUCCESS;
}
static inline size_t rondo_device_table_bytes(const struct rondo_ctx *ctx) { return (void)ctx, (size_t)0; }
static inline void rondo_device_table(struct rondo_ctx *ctx) { (void)ctx; }
static inline rondo_status rondo_device_join(struct rondo_ctx *ctx, int *silent)
{
    return (void)ctx, (void)silent, RONDO_SUCCESS;
}
static inline size_t rondo_device_mailbox_bytes(const struct rondo_ctx *ctx) { return (void)ctx, (size_t)0; }
static inline int rondo_device_copies(const struct rondo_task *task) { return (void)task, 0; }
static inline void rondo_device_bytes(const struct rondo_ctx *ctx, const void **send, void **recv)
{
    (void)ctx, (void)send, (void)recv;
}
static inline rondo_status rondo_device_scratch(struct rondo_plan *plan, size_t bytes, void **memory)
{
    return (void)plan, (void)bytes, (void)memory, rondo_device_none();
}

#endif

#endif
