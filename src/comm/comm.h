/*
 * A communicator inside. The user holds a shell of 64 bytes that outlives it (comm.c), so that use after
 * destroy is an error and not a crash; everything else is the context, owned by the shell and freed by
 * destroy or abort.
 *
 * One thread at a time uses a context; the others that may touch it: abort (claims the shell, sets flags,
 * waits for that thread to leave), async_error and the queries (visitors), the control thread (its own
 * segment), and, while plans of streams are queued (nqueued > 0), whoever turns them under `queue_lock`.
 */
#ifndef RONDO_COMM_COMM_H
#define RONDO_COMM_COMM_H

#include <pthread.h>

#include "layout/layout.h"
#include "base/wait.h"
#include "coll/algo.h"
#include "tuner/select.h"
#include "kern/direct.h"
#include "kern/exec.h"
#include "net/bootstrap/bootstrap.h"
#include "net/control/control.h"
#include "net/transport/transport.h"

enum rondo_comm_state { RONDO_COMM_INIT, RONDO_COMM_READY, RONDO_COMM_FINALIZED, RONDO_COMM_FAILED };

struct rondo_ctx;
struct rondo_init;

enum { RONDO_COMM_ALIVE = 0x72636f6d, RONDO_COMM_DEAD = 0x64656164, RONDO_NAME_LEN = 32 };
struct rondo_comm {
    uint32_t magic, generation;
    struct rondo_ctx *ctx;
    struct rondo_comm *next; /* in the quarantine */
    char name[RONDO_NAME_LEN];
    int32_t rank;
    int16_t busy;     /* a thread is inside a call; atomic */
    int16_t visitors; /* threads that look at the context; atomic */
};
_Static_assert(sizeof(struct rondo_comm) == 64, "a shell is one cache line");
static inline int rondo_comm_is_alive(const struct rondo_comm *comm)
{
    return __atomic_load_n(&comm->magic, __ATOMIC_ACQUIRE) == RONDO_COMM_ALIVE;
}

/* One API call, checked: what a group collects. Counts in elements. */
struct rondo_task {
    struct rondo_ctx *ctx;
    rondo_stream stream;
    const void *send;
    void *recv;
    size_t count;
    const size_t *counts, *displs;           /* v-forms; of the receiver in all_to_allv */
    const size_t *send_counts, *send_displs; /* all_to_allv */
    rondo_op op;
    int32_t root;  /* or peer */
    int32_t dtype; /* enum rondo_dtype, as the user gave it */
    uint8_t coll;
    uint8_t premul; /* of an operation of the user's, as in a work, with its scalar: the operation may be gone
                       when a group ends */
    uint64_t scalar;
    rondo_comm *shell; /* in a group: the context may be gone at its end */
    size_t *owned;     /* in a group: the copies to which counts and displs point; freed at its end */
};

/* A stream that calls of a group were given beside the one they are launched in. Memory of the plan's works.
 */
struct rondo_also {
    rondo_stream stream;
    struct rondo_also *next;
};

/* A plan's place in a host stream; plans of a group have one in each stream that their calls were given. */
struct rondo_ticket {
    struct rondo_plan *plan;
    rondo_stream stream;
    struct rondo_ticket *before; /* in its stream; NULL when that one's plan is done */
    struct rondo_ticket *after;
    struct rondo_ticket *other; /* of the same plan */
};

/* Works of one or more calls that were issued together. */
struct rondo_plan {
    struct rondo_ctx *ctx;
    struct rondo_run *runs;
    int nruns, capacity;
    int open;                     /* runs that are not finished */
    int issued, done;             /* plans of streams; done is read by other threads (release, acquire) */
    rondo_status status;          /* valid when done */
    uint64_t first_seq, last_seq; /* calls noted in the control plane; 0: none */
    rondo_stream stream;          /* of a plan for a device */
    struct rondo_also *also;      /* further streams of a plan for a device */
    struct rondo_ticket *ticket;  /* on host memory: its places in streams; memory of the plan's works */
    int refs;                /* places in streams, and a group that waits for it: the last one frees it */
    int waited;              /* a group waits for it: some of its calls have no stream */
    struct rondo_plan *next; /* in the context's queue */
    size_t scratch;          /* bytes of device memory that copies of in-place buffers take */
    void *temp;              /* chain of memory that the calls needed: copies of counts */
    void
        *spare; /* one block of it, kept for the next call: fresh pages cost more than what is copied there */
    struct rondo_task *self; /* sends and receives to itself that have no partner yet, in order */
    int nself, self_capacity;
};

/* A choice and prepared runs for calls that repeat: same collective, type, operation and root (in `what`) and
 * count. */
enum rondo_cached_state {
    RONDO_CACHED_NOT,
    RONDO_CACHED_RUNS,
    RONDO_CACHED_SHOT,  /* one run, for publish and collect (kern/exec.h) */
    RONDO_CACHED_SECOND /* two: the second is such a run, where the first one's buffers are not asked for
                           (kern/direct.h) */
};
struct rondo_cached {
    uint64_t what;
    size_t count;
    uint64_t call_hash;
    struct rondo_run *runs;
    int nruns;
    uint8_t state;  /* enum rondo_cached_state */
    uint8_t needed; /* of this rank's buffers: rondo_task_needs */
};
/* Kept by sets, so that calls that take turns do not push each other out. */
enum {
    RONDO_CACHED_SETS = 16,
    RONDO_CACHED_WAYS = 4,
    RONDO_CACHED_CALLS = RONDO_CACHED_SETS * RONDO_CACHED_WAYS
};
/** What is called, but for the count; no two calls that could be kept have the same. @return 0: it is none of
 * these. */
static inline uint64_t rondo_call_what(enum rondo_coll coll, unsigned type, unsigned op, int root)
{
    return RONDO_LIKELY((type | op) < 16)
               ? (uint64_t)(uint32_t)root << 32 | op << 16 | type << 8 | ((unsigned)coll + 1)
               : 0;
}

/* Both directions to one peer of send and recv. */
struct rondo_p2p {
    struct rondo_link link[2]; /* 0: from the peer, 1: to it */
    struct rondo_ports ports[2];
    uint64_t calls[2];                         /* sequence of calls in each direction */
    uint8_t lazy[2];                           /* link prepared */
    const struct rondo_ports *device_ports[2]; /* on a GPU: what its kernels read; NULL: not wired yet */
};

struct rondo_user_op {
    uint8_t used, dtype;
    uint8_t premul;  /* as in a work */
    uint64_t scalar; /* or its address on the device */
};
enum { RONDO_USER_OPS = 64 };

struct rondo_device;

struct rondo_ctx {
    /* identity */
    rondo_comm *shell;
    int rank, nranks;
    char name[RONDO_NAME_LEN];
    rondo_config config;
    struct rondo_unique_id id;
    uint64_t hash;      /* of the id: equal on all ranks */
    uint64_t nchildren; /* splits so far */
    struct rondo_shrinks
        *shrinks; /* shrinks so far, by who stays: ranks that are left out of one do not count it */
    int nshrinks;
    /* the ranks, how they are wired and connected */
    struct rondo_peer *peers;
    struct rondo_shm_name *arenas;
    struct rondo_layout layout;
    struct rondo_net net;
    struct rondo_link *links;
    int nlinks;
    struct rondo_ports *ports;     /* per channel */
    struct rondo_p2p **p2p;        /* per rank; NULL until used */
    struct rondo_control *control; /* NULL when nranks is 1 */
    int listening;                 /* it holds the process's control listener (several nodes) */
    int has_netdevs;               /* it holds the net devices (net/netdev.h) */
    struct rondo_mailbox *mailbox;
    struct rondo_direct *open_buffers; /* of the node (kern/direct.h); NULL without a mailbox */
    struct rondo_device *device;       /* the GPU on which its buffers are (device.h); NULL: host memory */
    struct rondo_pages
        *pages; /* of buffers, as far as they were asked for (RONDO_CHECK_POINTERS); NULL: no checks */
    /* running */
    const struct rondo_exec_ops *exec_ops;
    struct rondo_exec *exec;
    struct rondo_exec_owner exec_owner;
    struct rondo_progress progress;
    struct rondo_wait_policy policy;
    struct rondo_crowd crowd; /* of the policy */
    struct rondo_allowed allowed;
    struct rondo_tune *tune; /* RONDO_TUNE_FILE; NULL: none. Owned; layout.measured points into it */
    const struct rondo_choice
        *forced; /* what collectives run instead of the tuner's choice; NULL: nothing. Not owned */
    struct rondo_cached cached[RONDO_CACHED_CALLS];
    uint32_t cached_out;         /* calls that were pushed out */
    struct rondo_plan immediate; /* the plan of calls that run before they return */
    struct rondo_user_op user_op[RONDO_USER_OPS];
    uint64_t seq;     /* collectives called */
    uint64_t history; /* hash of all of them */
    uint32_t stall_checks;
    int lingers; /* of a drop: who was not waited for */
    uint8_t barrier_byte[2];
    /* plans of streams, in the order of the calls */
    pthread_mutex_t queue_lock;
    struct rondo_plan *queue, *queue_last;
    int nqueued;                     /* atomic */
    struct rondo_ctx *registry_next; /* contexts with queued plans */
    int registered;
    /* state */
    int state;            /* enum rondo_comm_state; atomic */
    int failing;          /* somebody writes why; atomic */
    int aborted;          /* atomic */
    rondo_status failure; /* why state is FAILED: written once, before state */
    char failure_text[RONDO_ERROR_TEXT];
    char error[RONDO_ERROR_TEXT]; /* of the calling thread's last call that failed */
    struct rondo_init *init;      /* under way; NULL afterwards */
    struct rondo_registration *registrations;
    size_t bytes; /* of buffers */
};

/* ---- comm.c ---- */

/**
 * The context of a live communicator, or an error that says what is wrong with the handle; what: the caller's
 * name. It is not freed before rondo_comm_leave. enter: for the thread that uses the communicator (not
 * hierarchical); visit: for any thread.
 */
rondo_status rondo_comm_enter(rondo_comm *comm, const char *what, struct rondo_ctx **ctx);
void rondo_comm_leave(rondo_comm *comm);
rondo_status rondo_comm_visit(const rondo_comm *comm, const char *what, struct rondo_ctx **ctx);
void rondo_comm_unvisit(const rondo_comm *comm);
rondo_status rondo_ctx_create(int rank, int nranks, const rondo_config *config, struct rondo_ctx **ctx);
/** Of a split or shrink: what the config leaves open is the parent's (device). */
rondo_status rondo_ctx_create_child(struct rondo_ctx *parent, int rank, int nranks,
                                    const rondo_config *config, struct rondo_ctx **ctx);
/** Free everything; no other thread is inside. */
void rondo_ctx_free(struct rondo_ctx *ctx);
rondo_status rondo_config_check(const rondo_config *config, rondo_config *checked);
/** Free a context that came to nothing, and its shell, unless another thread is at it (abort). The caller has
 * entered. */
void rondo_comm_discard(struct rondo_ctx *ctx);
/** Keep this thread's sentence as the communicator's; @return status. */
rondo_status rondo_ctx_keep_error(struct rondo_ctx *ctx, rondo_status status);
/** The communicator has ended: keep why, tell the others. @return status. */
rondo_status rondo_ctx_fail(struct rondo_ctx *ctx, rondo_status status, int whose);
/** READY, or the error to return. */
rondo_status rondo_ctx_ready(struct rondo_ctx *ctx);

/* ---- init.c: creation as a state machine; child.c: split and shrink ---- */

struct rondo_split {
    struct rondo_ctx *parent;
    uint64_t child; /* the parent's nchildren at the call: several splits may be under way */
    int color, key;
};
/* Of a parent: children with the same members. */
struct rondo_shrinks {
    uint64_t members; /* their hash */
    uint64_t n;
};
/** Begin creation; takes ownership of the bootstrap. split: NULL, or the parent's side of a split (its first
 * round). */
rondo_status rondo_init_begin(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split);
/**
 * Move creation: RONDO_SUCCESS (ready; ctx->init is NULL), RONDO_IN_PROGRESS, or the error that ended it.
 * nranks 0 after success of a split: no colour. Any thread; one that comes while another is at it gets
 * RONDO_IN_PROGRESS.
 */
rondo_status rondo_init_step(struct rondo_ctx *ctx);
/** The same; where the bootstrap says that this thread may not (MPI of one thread): RONDO_IN_PROGRESS while
 * another one may be at it, until the deadline. */
rondo_status rondo_init_look(struct rondo_ctx *ctx);
/** Give up a creation under way. */
void rondo_init_cancel(struct rondo_ctx *ctx);
/** Run creations to their end, together. Each context's result is in its state. @return the first error. */
rondo_status rondo_init_run(struct rondo_ctx **ctxs, int n);
/** Of one bootstrap of a child: the kind of bootstrap, the serial of the call on the parent, and what tells
 * several of one call apart (bytes may be 0). */
uint64_t rondo_child_tag(uint64_t parent_hash, const char *kind, uint64_t serial, const void *part,
                         size_t bytes);
/** A bootstrap for a child of `parent` over its ranks members[0 .. n - 1]; self: this rank's place among
 * them. */
rondo_status rondo_child_bootstrap(struct rondo_ctx *parent, const int *members, int n, int self,
                                   uint64_t tag, struct rondo_bootstrap **bootstrap);
/** Wrap a context in a shell and create it: blocking, non-blocking or in the open group. */
rondo_status rondo_comm_start(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split, rondo_comm **comm);

/* ---- layout.c ---- */

/** Nodes of the ranks of ctx->peers, and the cost model. */
rondo_status rondo_layout_fill(struct rondo_layout *layout, const struct rondo_peer *peers, int rank,
                               int nranks);
/** Room for channels; then each gets its ring (node.h, which keeps the stitch of several nodes), and all get
 * their trees. */
rondo_status rondo_layout_channels(struct rondo_layout *layout, int nchannels, int least, uint32_t protos);
/** rank_at: position -> rank; the layout's from here on, also after an error. */
rondo_status rondo_layout_ring(struct rondo_layout *layout, int channel, int32_t *rank_at);
void rondo_layout_trees(struct rondo_layout *layout);
/**
 * The net ("mlx5_0:1", "eth0") through which the graphs of this rank's node lead a conn of a channel (port:
 * enum rondo_port); NULL: it does not leave the node, or the graphs know of no net. Lives as long as the
 * layout.
 */
const char *rondo_layout_net(const struct rondo_layout *layout, int channel, int port, int is_send);
/** What ranks of this node send on rings and trees to other nodes through this rank's GPU (PXN), as the
 * graphs say: the same conns, with the same nets, as those ranks' own layouts have. rondo_free. */
rondo_status rondo_layout_relayed(const struct rondo_layout *layout, struct rondo_relayed **list, int *n);
void rondo_layout_release(struct rondo_layout *layout);

/* ---- link.c: the conns of a communicator ---- */

/** Offer this rank's ends of all rings and trees, and of exchanges. records: rondo_links_max() of them. */
int rondo_links_max(const struct rondo_layout *layout, int nchannels);
rondo_status rondo_links_offer(struct rondo_ctx *ctx, struct rondo_connect *records);
/** records_of(arg, peer): the peer's records. RONDO_IN_PROGRESS: call again; *pending: a peer whose part is
 * missing, else -1. */
rondo_status rondo_links_connect(struct rondo_ctx *ctx,
                                 const struct rondo_connect *(*records_of)(void *arg, int peer), void *arg,
                                 int *pending);
/** Close them all: an end that came to nothing is then seen at the other end too. */
void rondo_links_close(struct rondo_ctx *ctx);
/** Ranks this one has or (after an error) would have links with, ascending, without repetition. @return how
 * many. */
int rondo_links_peers(const struct rondo_ctx *ctx, int *peers);
rondo_status rondo_p2p_get(struct rondo_ctx *ctx, int peer, int is_send, struct rondo_p2p **p2p);
/** Protocols that messages between GPUs may use besides Simple, as a mask: the same on all ranks. */
uint32_t rondo_message_protos(const struct rondo_ctx *ctx);
/** How a message of so many bytes goes: both ends find the same, of a link whose protocols both have. */
enum rondo_proto rondo_message_proto(const struct rondo_link *link, size_t bytes);

/* ---- plan.c ---- */

/** The buffers that this rank must have in a call: bit 0 send, bit 1 recv. sent, received: elements of all of
 * its parts. (api.c) */
unsigned rondo_task_needs(const struct rondo_task *task, size_t sent, size_t received);
/** Hash of what all ranks must agree on in this call. */
uint64_t rondo_task_hash(const struct rondo_task *task);
/** Append the works of a task to a plan (grows it). Notes the call in the control plane. */
rondo_status rondo_plan_add(struct rondo_plan *plan, const struct rondo_task *task);
/* The root counts twice: that product's upper bits hardly change with bit 32 and those above it. */
static inline struct rondo_cached *rondo_cached_set(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    return &ctx->cached[((what ^ what >> 20 ^ count << 20) * 0x9e3779b97f4a7c15ull >> 60) %
                        RONDO_CACHED_SETS * RONDO_CACHED_WAYS];
}
/** What is kept of a call; NULL: nothing. */
static inline struct rondo_cached *rondo_cached_find(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    struct rondo_cached *set = rondo_cached_set(ctx, what, count);
    for (int way = 0; way < RONDO_CACHED_WAYS; way++) {
        if (set[way].what == what && set[way].count == count && set[way].state != RONDO_CACHED_NOT) {
            return &set[way];
        }
    }
    return NULL;
}
/** The prepared runs of a repeated call, ready to submit; NULL: this call is not of the kind that is kept. */
rondo_status rondo_plan_cached(struct rondo_ctx *ctx, const struct rondo_task *task,
                               struct rondo_cached **cached);
/** All calls are in: every send to itself has its receive? */
rondo_status rondo_plan_check(const struct rondo_plan *plan);
/* plan_memory.c: one more run, zeroed; memory that lives as long as the plan's works. */
rondo_status rondo_plan_next_run(struct rondo_plan *plan, struct rondo_run **run);
rondo_status rondo_plan_temp(struct rondo_plan *plan, size_t bytes, void **memory);
void rondo_plan_reset(struct rondo_plan *plan);
void rondo_plan_release(struct rondo_plan *plan);

/* ---- plan_choose.c ---- */

/** Bytes of the larger user buffer of one rank: what the cost model is asked with. */
size_t rondo_task_bytes(const struct rondo_task *task);
/** Select what carries a call (tuner/select.h). */
rondo_status rondo_plan_choose(struct rondo_ctx *ctx, const struct rondo_task *task,
                               struct rondo_selection *selection);
/** A work's share of the call, as channel `channel` of so many: its range, and what its schedule moves at
 * once. */
void rondo_plan_cut(const struct rondo_ctx *ctx, struct rondo_work *w, const struct rondo_task *t,
                    enum rondo_map map, int channel, int nchannels);
/** From the next call on, collectives run this choice (NULL: the tuner's). The same on all ranks; `choice`
 * stays where it is. For those who measure. */
void rondo_plan_force(struct rondo_ctx *ctx, const struct rondo_choice *choice);

/* ---- mem.c ---- */

/** End all registrations. */
void rondo_ctx_deregister(struct rondo_ctx *ctx);

/* ---- run.c: waiting ---- */

/** Set the context's wait policy and executor owner. */
void rondo_ctx_policy(struct rondo_ctx *ctx);
/** One turn of the executor, and of the net where conns are proxied. */
rondo_status rondo_ctx_progress(struct rondo_ctx *ctx, int *moved);
/** Turn until *open is 0 and nothing of this rank's is left on its way. An error ends the communicator. */
rondo_status rondo_ctx_wait(struct rondo_ctx *ctx, const int *open);
/** Forget what is under way, for good: nobody is at its buffers from then on. @return status; this thread's
 * sentence says where that could not be waited for. After rondo_ctx_fail, so that others do not wait. */
rondo_status rondo_ctx_drop(struct rondo_ctx *ctx, rondo_status status);
/** Issue a task now and wait for it. */
rondo_status rondo_task_run(struct rondo_task *task);
/**
 * A call with so many elements of `what` (rondo_call_what) from beginning to end, if it was made before and
 * is one that passes over the mailbox: what is small. A call's time is its way to the post, which is why this
 * one looks at nothing that could be known before. @return 1: *status is the call's; 0: nothing was done, it
 * goes the general way (which says what is wrong with it, if anything is).
 */
int rondo_fast_path(rondo_comm *comm, uint64_t what, size_t count, const void *send, void *recv,
                    rondo_status *status);
/** After the runs: do the ranks to which this one only sent make the same calls? */
rondo_status rondo_plan_compare(struct rondo_ctx *ctx, const struct rondo_run *runs, int nruns);
/** Note in the control plane that the plan's calls are done. */
void rondo_plan_calls_end(struct rondo_plan *plan);

/* ---- group.c ---- */

/* Read by every call: at a fixed place of the thread's memory, also in a library that is loaded later. */
#define RONDO_FAST_TLS __attribute__((tls_model("initial-exec")))
extern _Thread_local int rondo_group_level RONDO_FAST_TLS;
/** Calls inside an open group of this thread? */
static inline int rondo_group_depth(void) { return rondo_group_level; }
rondo_status rondo_group_add(const struct rondo_task *task);
/** A creation that group_end completes. *comm becomes NULL there when it fails, or when a split gave no
 * communicator. */
rondo_status rondo_group_add_init(struct rondo_ctx *ctx, rondo_comm **comm);
/** A call inside the group failed: group_end will say so and issue nothing. */
void rondo_group_note_error(rondo_status status);

/* ---- stream.c ---- */

/** The plan has calls that were given this stream (NULL: whoever made them waits). */
rondo_status rondo_plan_add_stream(struct rondo_plan *plan, rondo_stream stream);
/**
 * Queue a plan behind what its context and its streams hold. From here on its streams own it; where it is
 * waited for, the caller does as well, until rondo_plan_unref.
 */
rondo_status rondo_stream_enqueue(struct rondo_plan *plan);
/** Done with a queued plan that was waited for: plan->done is set. */
void rondo_plan_unref(struct rondo_plan *plan);
/** Move the queued plans of this context; skips when another thread does. */
rondo_status rondo_ctx_progress_queue(struct rondo_ctx *ctx, int *moved);
/** Move all queued plans of the process (any waiting call does). */
void rondo_streams_progress(int *moved);
/** Wait until the context's queue is empty. */
rondo_status rondo_ctx_drain(struct rondo_ctx *ctx);
/** The context ends: its queued plans are done with this status. */
void rondo_ctx_drop_queue(struct rondo_ctx *ctx, rondo_status status);

/** The call as text: "all_reduce #17 (count 8, f32, sum)". */
void rondo_call_text(const struct rondo_call *call, char *text, size_t size);

/* ---- behind.c: who has not made this call ---- */

enum { RONDO_ANSWER_NS = 300000000 }; /* another node's answer by the control plane takes that long at most */

/**
 * "; rank 3 on host has not made this call, its last collective: broadcast #16 (..) (done)" for some of those
 * behind: of this node, or of the nodes next to it, whose ranks are asked (RONDO_ANSWER_NS at most, or until
 * another rank has ended the communicator). Nothing when none is. @param peer  becomes the one farthest
 * behind.
 */
void rondo_behind_text(struct rondo_ctx *ctx, int *peer, char *text, size_t size);

#endif
