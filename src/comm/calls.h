/* What a communicator keeps of its calls: plans, works of repeated calls, operations of the user. Data only; call/ works
 * on it. */
#ifndef RONDO_COMM_CALLS_H
#define RONDO_COMM_CALLS_H

#include "coll/work.h"
#include "rondo.h"

struct rondo_ctx;
struct rondo_plan;
struct rondo_run;
struct rondo_task;

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
struct rondo_user_op {
    uint8_t used, dtype;
    uint8_t premul;  /* as in a work */
    uint64_t scalar; /* or its address on the device */
};
enum { RONDO_USER_OPS = 64 };

#endif
