/*
 * A communicator inside. The user holds a shell of 64 bytes that outlives the communicator, so that a use
 * after destroy returns an error and does not crash. Everything else is the context, which the shell owns;
 * destroy and abort free it.
 *
 * One thread at a time uses a context. Others may touch it as well:
 * - abort claims the shell, sets flags, and waits for that thread to leave;
 * - async_error and the queries are visitors;
 * - the control thread uses its own segment;
 * - while plans are queued on streams (queue.nplans > 0), any thread makes progress on them under queue.lock.
 */
#ifndef RONDO_COMM_COMM_H
#define RONDO_COMM_COMM_H

#include <pthread.h>

#include "base/inside.h"
#include "base/shell.h"
#include "base/wait.h"
#include "tuner/calibration.h"
#include "tuner/drift.h"
#include "comm/calls.h"
#include "kern/direct.h"
#include "kern/exec.h"
#include "layout/layout.h"
#include "net/control/control.h"
#include "net/peer.h"
#include "net/transport/transport.h"

struct rondo_init;
struct rondo_backend_ops;
struct rondo_device;
struct rondo_pages;
struct rondo_p2p;
struct rondo_prof;
struct rondo_registration;
struct rondo_shrinks;
struct rondo_tensor_core;

enum rondo_comm_state { RONDO_COMM_INIT, RONDO_COMM_READY, RONDO_COMM_FINALIZED, RONDO_COMM_FAILED };

struct rondo_ctx;
enum { RONDO_COMM_ALIVE = 0x72636f6d, RONDO_NAME_LEN = 32 };
struct rondo_comm {
    struct rondo_shell shell;
    struct rondo_ctx *ctx;
    char name[RONDO_NAME_LEN];
    int32_t rank;
    int16_t busy;     /* a thread is inside a call; atomic */
    int16_t visitors; /* threads that read the context; atomic */
};
_Static_assert(sizeof(struct rondo_comm) == 64, "a shell is one cache line");

/* Who this rank is. */
struct rondo_job {
    int rank, nranks;
    int agreed;       /* atomic; 0: a split's ranks do not know them yet, and these are the parent's */
    pthread_t thread; /* which created the communicator, and normally uses it */
    char name[RONDO_NAME_LEN];
    rondo_config config;
    struct rondo_unique_id id;
    uint64_t hash;                                /* of the id: all ranks have the same */
    uint64_t nchildren;                           /* splits so far */
    uint64_t nshares;                             /* calls of rondo_engine_share so far */
    struct rondo_comm *splits[RONDO_SPLIT_SLOTS]; /* the last ones, by their number; may be others' by now */
    struct rondo_shrinks
        *shrinks; /* shrinks so far, counted for each set of members: excluded ranks do not see one */
    int nshrinks;
    struct rondo_hook mpi; /* makes progress in the program's MPI; progress NULL: none */
    int mpi_asks;          /* only if config.mpi_progress is 1 */
};

/* The ranks, and what connects them. */
struct rondo_wiring {
    struct rondo_peer *peers;
    struct rondo_intern *names;    /* hosts and core sets of the peers; a child holds its parent's */
    struct rondo_shm_name *arenas; /* by local rank */
    struct rondo_layout layout;
    struct rondo_net net;
    size_t bytes; /* of shared memory for buffers */
    struct rondo_link *links;
    int nlinks;
    struct rondo_ports *ports; /* of each channel */
    uint8_t *wired;            /* of each channel: 1 << seating whose conns have their slots; atomic */
    struct rondo_p2p **p2p;    /* of each rank; NULL until used */
    int listening;             /* holds the process's listener of the control plane (several nodes) */
    int has_netdevs;           /* holds the net devices (net/netdev.h) */
    uint32_t handover_ns;      /* time of a cache line between local ranks 0 and 1; 0: unknown */
    struct rondo_calibration calibration; /* that the model uses, the same on all ranks; flag 0: none */
    struct rondo_mailbox *mailbox;
    struct rondo_direct *direct;   /* direct access between ranks of the node; NULL without a mailbox */
    struct rondo_control *control; /* NULL when nranks is 1 */
};

/* What runs calls, and how this rank waits for them. */
struct rondo_running {
    const struct rondo_exec_ops *exec_ops;
    struct rondo_exec *exec;
    struct rondo_exec_owner owner;
    struct rondo_progress progress;
    struct rondo_wait_policy policy;
    struct rondo_oversubscription oversubscription; /* of the policy */
    /* Atomic: threads that wait for streams check as well. */
    uint32_t stall_checks; /* in the present wait */
    int64_t stalled_ns;    /* since when, about; set by the first of these checks that looks */
    uint64_t suspected;    /* a collective of the rank whose message this one waits for; 0: none */
    int told;              /* rondo-doctor sees what this rank waits for */
    int lingers;           /* a rank that a drop did not wait for; -1: none */
    struct rondo_allowed allowed;
    int may_refuse;                   /* not all is allowed: a call may find no algorithm */
    struct rondo_tune *tune;          /* RONDO_TUNE_FILE; NULL: none. Owned; layout.measured points into it */
    struct rondo_tuner_plugin *tuner; /* NULL: none */
    const struct rondo_choice *forced; /* replaces the tuner's selection; NULL: nothing does. Not owned */
};

/* What is kept of calls. */
struct rondo_calls {
    struct rondo_cached cached[RONDO_CACHED_CALLS];
    uint32_t cached_out;         /* calls that were evicted */
    struct rondo_drift *drift;   /* call/drift.h; NULL: no call was counted yet. Owned */
    struct rondo_plan immediate; /* the plan of calls that run before they return */
    struct rondo_user_op user_op[RONDO_USER_OPS];
    uint64_t seq;                 /* collectives called */
    uint64_t messages;            /* the user's sends and receives */
    uint64_t history;             /* hash of all of them */
    struct rondo_message message; /* that this rank waits in; peer -1: none */
    int message_alone;            /* it waits for nothing else */
    uint8_t barrier_byte[2];
};

/* Plans of streams, in the order of the calls. */
struct rondo_queue {
    int nplans; /* atomic */
    int registered;
    uint64_t moves; /* how often a thread moved something here; written under the lock, atomic */
    struct rondo_plan *first, *last;
    struct rondo_ctx *registry_next; /* of the contexts that have queued plans */
    pthread_mutex_t lock;            /* also held by the thread that moves a creation */
};

/* From creation to failure or destroy. */
struct rondo_life {
    int state;                   /* enum rondo_comm_state; atomic */
    int failing;                 /* a thread is writing why; atomic */
    int aborted;                 /* atomic */
    int revoked;                 /* the user revoked it, after an error or not; atomic */
    rondo_status failure;        /* why state is FAILED: written once, before state */
    struct rondo_init *init;     /* creation under way; NULL afterwards */
    struct rondo_ctx *parent;    /* of a split or shrink; held until the creation ends; atomic */
    struct rondo_ctx *open_next; /* of the creations under way that do not block (init/open.c) */
    int was_open;                /* it was one; atomic */
    int holds;                   /* 1, and 1 for each child that is being created; atomic */
    char failure_text[RONDO_ERROR_TEXT];
    char error[RONDO_ERROR_TEXT]; /* of the calling thread's last call that failed */
};

struct rondo_ctx {
    rondo_comm *shell;
    struct rondo_job job;
    struct rondo_wiring wiring;
    const struct rondo_backend_ops *backend; /* host memory or GPU (comm/backend.h) */
    struct rondo_device *device;             /* of the GPU backend; else NULL */
    /* Is memory of a kind that the communicator can use? NULL: not checked (RONDO_CHECK_POINTERS). The
     * context owns the pages that were found good. */
    rondo_status (*check_pointer)(const struct rondo_ctx *ctx, const char *call, const char *which,
                                  const void *pointer);
    struct rondo_pages *pages;
    struct rondo_prof *prof;            /* contexts in profiler plugins; NULL: there are none */
    struct rondo_watched_link *watched; /* what these see of proxied links (call/profile_net.c) */
    struct rondo_running running;
    struct rondo_calls calls;
    struct rondo_queue queue;
    struct rondo_life life;
    struct rondo_registration *registrations;
    /* Tensor stores (tensor/): end_stores stops them before the control plane closes; NULL: there are
     * none. */
    struct rondo_tensor_core *stores;
    void (*end_stores)(struct rondo_ctx *ctx);
    uint32_t nstores; /* made so far */
};

/* ---- shells: handles ---- */

extern struct rondo_shells rondo_comms;

/** Turn the shell from alive to dead. Only one caller succeeds, and it ends the communicator. what: the
 * caller's name. */
rondo_status rondo_shell_claim(rondo_comm *shell, const char *what, struct rondo_ctx **ctx);
static inline int rondo_comm_is_alive(const rondo_comm *comm)
{
    return __atomic_load_n(&comm->shell.magic, __ATOMIC_ACQUIRE) == RONDO_COMM_ALIVE;
}
/**
 * Get the context of a live communicator, or an error that says what is wrong with the handle. The
 * context is not freed before rondo_comm_leave (rondo_shell_leave, rondo_comm_unvisit). what: the caller's
 * name.
 * - comm_enter: for a public function that uses one communicator; it also marks the thread (base/inside.h);
 * - shell_enter: inside such a function, not nested;
 * - visit: for any thread.
 */
rondo_status rondo_comm_enter(rondo_comm *comm, const char *what, struct rondo_ctx **ctx);
void rondo_comm_leave(rondo_comm *comm);
rondo_status rondo_shell_enter(rondo_comm *comm, const char *what, struct rondo_ctx **ctx);
void rondo_shell_leave(rondo_comm *comm);
rondo_status rondo_comm_visit(const rondo_comm *comm, const char *what, struct rondo_ctx **ctx);
void rondo_comm_unvisit(const rondo_comm *comm);
/** Visit a communicator that another thread may end. @return 0: it has ended, which is no error. */
int rondo_comm_visit_alive(const rondo_comm *comm, struct rondo_ctx **ctx);

/* ---- errors ---- */

/** Keep this thread's error text as the communicator's. @return status. */
rondo_status rondo_ctx_keep_error(struct rondo_ctx *ctx, rondo_status status);
/** End the communicator: keep the reason and tell the other ranks. whose: the rank at fault; -1: unknown.
 * @return status. */
rondo_status rondo_ctx_fail(struct rondo_ctx *ctx, rondo_status status, int whose);
/** @return RONDO_SUCCESS when the communicator is READY, else the error to return. */
rondo_status rondo_ctx_ready(struct rondo_ctx *ctx);

#endif
