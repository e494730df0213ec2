/* What a communicator keeps of its calls: plans, the cache of repeated calls, user operations. Data only:
 * call/ holds the functions. */
#ifndef RONDO_COMM_CALLS_H
#define RONDO_COMM_CALLS_H

#include "coll/work.h"
#include "rondo.h"

struct rondo_ctx;
struct rondo_drift_kind;
struct rondo_plan;
struct rondo_run;
struct rondo_task;

/* GPU: another stream of a group's calls, beside the one in which they are launched. rondo_plan_temp. */
struct rondo_extra_stream {
    rondo_stream stream;
    struct rondo_extra_stream *next;
};

/* A plan's place in a host stream. The plan of a group has one in each stream of its calls.
 * rondo_plan_temp. */
struct rondo_ticket {
    struct rondo_plan *plan;
    rondo_stream stream;
    struct rondo_ticket *before; /* in its stream; NULL once that plan is done */
    struct rondo_ticket *after;
    struct rondo_ticket *other; /* of the same plan */
};

/* The works of one or more calls that are issued together. */
struct rondo_plan {
    struct rondo_ctx *ctx;
    struct rondo_run *runs;
    int nruns, capacity;
    int open;                             /* runs that have not ended */
    int issued, done;                     /* queued plans; other threads read both (done: release, acquire) */
    rondo_status status;                  /* valid when done */
    uint64_t first_seq, last_seq;         /* calls recorded in the control plane; 0: none */
    uint64_t first_message, last_message; /* messages of the user, likewise */
    rondo_stream stream;                  /* GPU: launch there */
    struct rondo_extra_stream *extra;     /* GPU: further streams */
    struct rondo_ticket *ticket;          /* host memory: its places in streams */
    int refs;   /* one for each place in a stream, one for a group that waits; the last one frees it */
    int waited; /* some of its calls have no stream: a group waits for it */
    struct rondo_plan *next; /* in the context's queue */
    size_t scratch;          /* GPU: bytes that copies of in-place buffers take */
    void *temp;              /* list of blocks from rondo_plan_temp */
    void *spare; /* one block, kept for the next call: fresh pages cost more than the copy into them */
    struct rondo_task *self; /* sends and receives to itself without a partner, in order */
    int nself, self_capacity;
};

/* A selection and prepared runs for calls that repeat: same collective, type, operation and root (in
 * `what`), and same count. */
enum rondo_cached_state {
    RONDO_CACHED_FREE,
    RONDO_CACHED_RUNS,
    RONDO_CACHED_SHOT,     /* one run that publishes and collects (kern/exec.h) */
    RONDO_CACHED_FALLBACK, /* two runs: the fallback is such a run */
    RONDO_CACHED_COUNTED   /* as SHOT, and `kind` counts the call */
};
/* Buffers overlap when recv - send is one of the `span` distances from -before on; those in place are
 * allowed. Bytes. */
struct rondo_overlap {
    uintptr_t before, span, in_place[2];
};
struct rondo_cached {
    uint64_t what;
    size_t count;
    uint64_t call_hash;
    struct rondo_run *runs;
    int nruns;
    uint8_t state;  /* enum rondo_cached_state */
    uint8_t needed; /* rondo_task_needs */
    struct rondo_overlap overlap;
    struct rondo_drift_kind *kind; /* call/drift.h; NULL: its calls are not timed. Not owned */
};
/* Set-associative, so that alternating calls do not evict each other. */
enum {
    RONDO_CACHED_SETS = 16,
    RONDO_CACHED_WAYS = 4,
    RONDO_CACHED_CALLS = RONDO_CACHED_SETS * RONDO_CACHED_WAYS
};

/* rondo_op_create_premul_sum */
struct rondo_user_op {
    uint8_t used, dtype;
    uint8_t premul;  /* as in a work */
    uint64_t scalar; /* or its address on the device */
};
enum { RONDO_USER_OPS = 64 };

#endif
