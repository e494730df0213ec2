/*
 * What a communicator does differently for buffers in host memory and on a GPU. A context chooses its
 * backend once, at creation (init/context.c): host/host.c or gpu/. Functions that return int or a size
 * report no errors.
 */
#ifndef RONDO_COMM_BACKEND_H
#define RONDO_COMM_BACKEND_H

#include "base/shm.h"
#include "comm/comm.h"
#include "net/peer.h"

/* How the GPUs of a node share memory (P2P modes), during creation. */
struct rondo_p2p_ops {
    /** Check each mode by a write that the peer reads. @return RONDO_IN_PROGRESS: call again. */
    rondo_status (*check)(struct rondo_ctx *ctx);
    /** This rank's modes after the check: layout.max_local bytes. */
    void (*modes)(const struct rondo_ctx *ctx, uint8_t *modes);
    /** What another rank of the node found: a mode that is broken is broken for both. */
    void (*use_modes)(struct rondo_ctx *ctx, int rank, const uint8_t *modes);
    /** Once the modes are known: relay what other GPUs of the node send through this one (PXN). */
    rondo_status (*relay)(struct rondo_ctx *ctx, struct rondo_shm_name *name);
    void (*use_relay)(struct rondo_ctx *ctx, int rank, const struct rondo_shm_name *name);
};

struct rondo_backend_ops {
    const char *name;
    int is_gpu;
    const struct rondo_p2p_ops *p2p; /* NULL: host memory */

    /* ---- creation, in the order of the calls ---- */

    /** Choose the executor and what the backend allows. Errors of the device itself wait for fill_peer,
     * which tells all ranks. */
    rondo_status (*open)(struct rondo_ctx *ctx);
    /** Open the device and describe it. */
    rondo_status (*fill_peer)(struct rondo_ctx *ctx, struct rondo_peer *peer);
    /** The peers are known. */
    void (*use_peers)(struct rondo_ctx *ctx);
    /** Channels that fit; 0: none, and check_channels says why. */
    int (*max_channels)(const struct rondo_ctx *ctx);
    rondo_status (*check_channels)(const struct rondo_ctx *ctx);
    /** Complete wiring.net before it is opened. */
    void (*fill_net)(struct rondo_ctx *ctx);
    /** Bytes of a rank's place in the mailbox of the control plane; 0: no mailbox. */
    size_t (*mailbox_capacity)(const struct rondo_ctx *ctx);
    /** Bytes that the backend adds to a record of round "graphs". All ranks return the same. */
    size_t (*record_bytes)(const struct rondo_ctx *ctx);
    /** Fill that part, after rondo_net_open. */
    void (*fill_record)(struct rondo_ctx *ctx, void *record);
    /** Its matrix of P2P modes, which rondo_node_graphs fills at a node's lowest rank; NULL: none. */
    uint8_t *(*record_modes)(void *record);
    /** All records of the node are here: record_of(arg, rank) is that part of a rank's. Not called for one
     * rank. */
    rondo_status (*use_records)(struct rondo_ctx *ctx, void *(*record_of)(void *arg, int rank), void *arg);
    /** Open the executor. */
    rondo_status (*open_exec)(struct rondo_ctx *ctx);
    /** All ranks are connected: use the mailbox, prepare direct access. Not called for one rank. */
    rondo_status (*attach)(struct rondo_ctx *ctx);
    /** Agree on direct access. @return RONDO_IN_PROGRESS: call again, *silent has not answered. */
    rondo_status (*join)(struct rondo_ctx *ctx, int *silent);
    /** The conns work. */
    rondo_status (*start)(struct rondo_ctx *ctx);
    /** Does every conn within the node go from GPU to GPU, or through a proxy? Host memory in between may
     * deliver the 128 bytes of a store one by one. */
    int (*links_reach)(const struct rondo_ctx *ctx);

    /* ---- calls ---- */

    /** Check a call's stream before the call counts. NULL: it is one of rondo_stream_create. */
    rondo_status (*check_stream)(struct rondo_ctx *ctx, rondo_stream stream);
    /** Run one call: wait for it, enqueue it, or launch it. */
    rondo_status (*run)(const struct rondo_task *task);
    /** rondo_plan_add for a call of a group. */
    rondo_status (*add)(struct rondo_plan *plan, const struct rondo_task *task);
    /**
     * Launch at once all plans of a group that belong to this backend and need nobody to wait for them.
     * They are freed and their places become NULL. After an error the communicators whose plans were not
     * launched have ended.
     */
    rondo_status (*launch)(struct rondo_plan **plans, int nplans);
    /** Connect messages with a rank in both directions, which does the same. RONDO_IN_PROGRESS: call again.
     * NULL: a call never waits for that. */
    rondo_status (*pair)(struct rondo_ctx *ctx, int peer);
    /** Wait until all calls have ended. */
    rondo_status (*drain)(struct rondo_ctx *ctx);
    /** May calls be under way? */
    int (*busy)(struct rondo_ctx *ctx);
    /** RONDO_SUCCESS, or an error that was found asynchronously; it ends the communicator. Any thread. */
    rondo_status (*look)(struct rondo_ctx *ctx);
    /** The communicator has ended: nothing waits for peers any more. Any thread. */
    void (*abort)(struct rondo_ctx *ctx);
    /** A byte to send and one to receive, for a barrier. */
    void (*barrier_bytes)(struct rondo_ctx *ctx, const void **send, void **recv);
    /** Memory for a copy of an in-place buffer, valid for this plan. NULL: no copy is needed. */
    rondo_status (*scratch)(struct rondo_plan *plan, size_t bytes, void **memory);
    /** Is a call offered to the copy engines? All ranks return the same. */
    int (*copies)(const struct rondo_task *task);
    /** Payload of a place in the mailbox, as the cost model is to see it; 0: no mailbox. */
    size_t (*mailbox_bytes)(const struct rondo_ctx *ctx);
    /** Is there code that reduces this type by this operation? Any thread. */
    int (*reduces)(const struct rondo_ctx *ctx, rondo_dtype type, rondo_op op);
    /** The user registered this memory. */
    void (*registered)(struct rondo_ctx *ctx, void *buf, size_t bytes);

    /* ---- the end ---- */

    /** Before the executor is closed: nothing of it is running, or waiting for it was in vain. */
    void (*stop)(struct rondo_ctx *ctx);
    /** After the net is closed. Also after an open that failed. */
    void (*close)(struct rondo_ctx *ctx);
};

/** The error of a build without CUDA that is asked for a GPU. */
rondo_status rondo_no_gpu(void);

#endif
