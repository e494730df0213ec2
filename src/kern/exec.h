/*
 * An executor runs works. The CPU executor never blocks: it keeps lanes (first in, first out) of runs and
 * advances whichever has data and credit; `turn` is called by whoever waits. Runs of one lane are executed in
 * order; lanes are independent, so a group of sends and receives cannot deadlock.
 *
 * Lanes: channel c of the collectives is lane c; a p2p conn has a lane of its own (its index is given by
 * src/). All ranks submit to a lane in the same order.
 */
#ifndef RONDO_KERN_EXEC_H
#define RONDO_KERN_EXEC_H

#include "base/status.h"
#include "coll/work.h"
#include "base/mailbox.h"
#include "coll/algo.h"
#include "kern/reduce.h"

struct rondo_exec;

enum { RONDO_NO_PEER = -0x7fffffff };

/* A cursor through one flow of a schedule. */
struct rondo_flow {
    size_t loop; /* of the run's nloops */
    uint32_t k, nsteps;
    uint8_t entered; /* step, in, out, n below are those of (loop, k) */
    struct rondo_step step;
    size_t in, out, n; /* the block: offsets and elements */
    size_t done;       /* elements of the block passed (whole slices) */
    size_t unit; /* LL, LL128: 8-byte units of the current slice passed; mailbox: ranks whose post was seen */
    uint32_t called; /* bit per recv port, and per send port from bit 16: the call word was checked, written;
                        mailbox, one for all and all for one: the number of the operation */
};

/* Whether ranks reach one another's buffers in a run; all ranks reach the same verdict (kern/zerocopy.h). */
enum rondo_verdict { RONDO_UNDECIDED, RONDO_DIRECT, RONDO_NOT_DIRECT };

/* Of a one-shot run, found out once, so that a call that is made again needs no steps (rondo_run_begin). */
enum rondo_shot_takes {
    RONDO_TAKES_STEPS /* not one post and what was posted */,
    RONDO_TAKES_NOTHING,
    RONDO_TAKES_OWN /* a copy of the input */,
    RONDO_TAKES_POSTS,
    RONDO_TAKES_WORDS /* that all have posted */
};
struct rondo_shot {
    rondo_reduce_fn *reduce; /* of posts; NULL: they are copied */
    size_t in, out, n;       /* the block of its steps: offsets and elements */
    enum rondo_shot_takes takes;
};

/* A work under way. Memory belongs to the plan that submitted it and stays until *open has been decremented
 * for it. */
struct rondo_run {
    struct rondo_work work;
    const struct rondo_schedule *schedule;
    size_t nloops;
    uint32_t lane;
    uint32_t nflows;
    uint8_t only_sends; /* of the owner: this rank receives nothing in this run */
    uint8_t verdict;    /* enum rondo_verdict of a run whose schedule opens buffers */
    uint8_t in_place; /* a message whose bytes lie where another one's arrive: it is copied to slots, and from
                         them */
    /* Other runs of the same plan, or NULL. A plan that moves its runs moves these (plan_memory.c). */
    struct rondo_run
        *arrives_after;            /* the send whose bytes lie where this message arrives: they leave first */
    struct rondo_run *fallback_of; /* runs if that one's verdict is RONDO_NOT_DIRECT, else it ends at once */
    uint8_t
        copies;  /* on a GPU: for its copy engines, if all ranks' buffers allow it (verdict RONDO_DIRECT) */
    void *aside; /* of such a run in place: device memory of the output's size */
    struct rondo_flow flow[2];
    struct rondo_shot shot;
    struct rondo_run *next; /* in the lane */
    int *open;              /* works of the plan that are not finished */
    /* NULL: at once; else asked before the first step (lazy connections): 1 go on, 0 not yet, -1 *status is
     * an error */
    int (*ready)(struct rondo_run *run, rondo_status *status);
    void *ready_arg, *ready_ctx;
};

/* What an executor tells its owner. */
struct rondo_exec_owner {
    void *arg;
    /* A peer's call word differs from ours. peer: rank, or -1 - local rank for the mailbox. Composes the
     * error that names both calls. */
    rondo_status (*mismatch)(void *arg, int peer, const struct rondo_work *work, uint32_t got);
    /* A local rank is still in the middle of a slice of this rank's buffers, which were taken back (drop) so
     * long ago. @return 1: wait no longer for it, be it that it died. NULL: 0, always. */
    int (*given_up)(void *arg, int local, int64_t waited_ns);
};

struct rondo_exec_ops {
    const char *name;
    /* max_sources: ranks of the largest mailbox; owner must outlive the executor */
    rondo_status (*open)(struct rondo_exec **exec, int nlanes, int max_sources,
                         const struct rondo_exec_owner *owner);
    /* Append to the lanes; takes no ownership; never blocks, never allocates. */
    void (*submit)(struct rondo_exec *exec, struct rondo_run *runs, int n);
    /* A one-shot run without a lane and without its steps, in two parts; *open is left as it is. post: what
     * this rank has for the others. @return 1, or 0: not now, submit it. take: what they have for this rank,
     * with so many looks at them without a pause. @return 1: the run has ended, 0: submit it, as it is by
     * now, -1: *status is an error. NULL: submit all. */
    int (*post)(struct rondo_exec *exec, struct rondo_run *run);
    int (*take)(struct rondo_exec *exec, struct rondo_run *run, int looks, rondo_status *status);
    /* Advance every lane as far as it goes. *moved is set when anything did. An error is final for the
     * executor. */
    rondo_status (*progress)(struct rondo_exec *exec, int *moved);
    /* Forget all runs (abort), for good: none is touched again; every *open becomes 0. Other ranks leave
     * their buffers alone from then on: waits until they have finished the slice they are at. */
    void (*drop)(struct rondo_exec *exec);
    /* What the first run that waits waits for: "data from rank 3 (channel 0, simple, step 17)". *peer as in
     * mismatch, RONDO_NO_PEER when nothing waits.
     * @return bytes written. */
    int (*describe)(struct rondo_exec *exec, char *text, size_t size, int *peer);
    void (*close)(struct rondo_exec *exec);
};

extern const struct rondo_exec_ops rondo_exec_cpu;
extern const struct rondo_exec_ops
    rondo_exec_null; /* finishes every run at once: measures the cost of a call */

/** Of a run of one for all, or all for one, over the mailbox, that has ended: a local rank whose post of it
 * is of another call; -1: none is that has come. *unknown: some rank has not posted it yet. */
int rondo_mailbox_differs(const struct rondo_run *run, int *unknown);
/** Prepare a run's cursors from its work and schedule. */
void rondo_run_begin(struct rondo_run *run);
/** Set the cursors of a run back to the start: the work's buffers and call word may have changed, nothing
 * else. */
static inline void rondo_run_again(struct rondo_run *run)
{
    run->verdict = RONDO_UNDECIDED;
    for (uint32_t f = 0; f < 2; f++) {
        struct rondo_flow *flow = &run->flow[f];
        flow->loop = flow->nsteps == 0 ? run->nloops : 0;
        flow->k = 0;
        flow->entered = 0;
        flow->called = 0;
    }
}

#endif
