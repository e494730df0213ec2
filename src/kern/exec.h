/*
 * An executor runs works. The CPU executor keeps lanes, queues of runs that it executes in order. `progress`
 * advances every lane that has data and credit and never blocks; whoever waits for a run calls it.
 *
 * Lanes are independent, so a group of sends and receives cannot deadlock. Channel c of the collectives is
 * lane c; each connection for sends or receives has a lane of its own. All ranks submit to a lane in the same
 * order.
 */
#ifndef RONDO_KERN_EXEC_H
#define RONDO_KERN_EXEC_H

#include "base/status.h"
#include "coll/work.h"
#include "base/mailbox.h"
#include "base/record.h"
#include "coll/algo.h"
#include "kern/reduce.h"
#include "prof/prof.h"

struct rondo_exec;

enum { RONDO_NO_PEER = -0x7fffffff };

/* A cursor through one flow of a schedule. */
struct rondo_flow {
    size_t loop; /* 0 .. the run's nloops */
    uint32_t k, nsteps;
    uint8_t entered; /* step, in, out and n below are those of (loop, k) */
    struct rondo_step step;
    size_t in, out, n; /* the block: offsets and elements */
    size_t done;       /* elements of the block passed, in whole slices */
    size_t
        unit; /* LL, LL128: 8-byte units of the current slice passed; mailbox: ranks whose message arrived */
    /* Ports: bit p: the call word of recv port p was checked; bit 16 + p: that of send port p was written.
     * Rooted calls over the mailbox: the operation's number. */
    uint32_t called;
};

/* Whether ranks reach one another's buffers in a run; all ranks reach the same verdict (kern/direct.h). */
enum rondo_verdict { RONDO_UNDECIDED, RONDO_DIRECT, RONDO_NOT_DIRECT };

/* What a one-shot run does after it has published. rondo_run_begin finds out once, so that a repeated call
 * needs no steps. */
enum rondo_shot_kind {
    RONDO_SHOT_NEEDS_STEPS, /* more than one publish and one collect */
    RONDO_SHOT_PUBLISHES_ONLY,
    RONDO_SHOT_COPIES_INPUT,
    RONDO_SHOT_COLLECTS,
    RONDO_SHOT_COLLECTS_WORDS /* waits for all ranks, reads no payload */
};
struct rondo_shot {
    rondo_reduce_fn *reduce; /* NULL: payloads are copied */
    size_t in, out, n;       /* the block of its steps: offsets and elements */
    enum rondo_shot_kind kind;
};

/* A work in progress. The plan that submitted it owns the memory, which must stay until *open has been
 * decremented for the run. */
struct rondo_run {
    struct rondo_work work;
    const struct rondo_schedule *schedule;
    size_t nloops;
    uint32_t lane;
    uint32_t nflows;
    uint8_t only_sends; /* for the owner: this rank receives nothing in this run */
    uint8_t verdict;    /* enum rondo_verdict, where the schedule uses direct access */
    uint8_t in_place;   /* another message, or reduce_scatter's result, arrives where bytes to be sent lie:
                           they leave through slots */
    uint8_t copies;     /* GPU: uses copy engines if all ranks' buffers allow it (verdict RONDO_DIRECT) */
    uint8_t asks;     /* GPU: two-shot if all ranks' buffers allow it, which kernels find out: the fallback is
                           launched, too. verdict RONDO_NOT_DIRECT: this rank's do not, so this run is not */
    uint16_t threads; /* GPU: of a block; 0: as many as its kernel may have */
    /* Other runs of the same plan, or NULL. A plan that moves its runs moves these (plan_memory.c). */
    struct rondo_run
        *arrives_after;            /* the send whose bytes lie where this message arrives: they leave first */
    struct rondo_run *fallback_of; /* runs if that one's verdict is RONDO_NOT_DIRECT, else it ends at once */
    void *aside;                   /* device memory of the output's size, for an in-place run with `copies` */
    struct rondo_flow flow[2];
    struct rondo_shot shot;
    struct rondo_prof_run *prof; /* NULL: nobody watches it. The executor ends it and clears this */
    struct rondo_run *next;      /* in the lane */
    int *open;                   /* counts the plan's unfinished runs */
    /* Connections that are made at first use: called before each progress of the run until it returns 1.
     * 0: the run cannot start yet; 2: it can, call again; -1: *status is an error. NULL: nothing to do. */
    int (*ready)(struct rondo_run *run, rondo_status *status);
    void *ready_arg, *ready_ctx;
    /* Called when the run has ended, whether or not it called ready; not when it is dropped. It may set ready
     * again, for the run's next time. NULL: nothing to do. */
    void (*ended)(struct rondo_run *run);
};

/* Callbacks of an executor's owner. */
struct rondo_exec_owner {
    void *arg;
    /* A peer's call word differs from ours. peer: a rank, or -1 - local rank on the mailbox.
     * @return the error, whose sentence names both calls. */
    rondo_status (*mismatch)(void *arg, int peer, const struct rondo_work *work, uint32_t got);
    /* After drop, a local rank has been in the middle of a slice of this rank's buffers for waited_ns.
     * @return 1: stop waiting for it (it may have died). NULL: always wait. */
    int (*given_up)(void *arg, int local, int64_t waited_ns);
    /* A run that a profiler watches begins, with these conns; ends, or is given up. Somebody else tells of
     * the slices of proxied conns. NULL: the executor tells of all. */
    void (*conns_begin)(void *arg, const struct rondo_run *run, const struct rondo_prof_conn *conns, int n);
    void (*conns_end)(void *arg, const struct rondo_run *run, int given_up);
};

struct rondo_exec_ops {
    const char *name;
    /* max_sources: ranks of the largest mailbox; owner must outlive the executor */
    rondo_status (*open)(struct rondo_exec **exec, int nlanes, int max_sources,
                         const struct rondo_exec_owner *owner);
    /* Append runs to their lanes. Does not take ownership, block or allocate. */
    void (*submit)(struct rondo_exec *exec, struct rondo_run *runs, int n);
    /* The fast path: a one-shot run in two halves, without lane and steps; *open is left alone. NULL: submit
     * every run. publish writes this rank's message. @return 1, or 0: not possible now, submit the run.
     * collect reads the others' messages; it looks for a missing one `looks` times without a pause.
     * @return 1: the run has ended; 0: submit it, it resumes where it is; -1: *status is an error. */
    int (*publish)(struct rondo_exec *exec, struct rondo_run *run);
    int (*collect)(struct rondo_exec *exec, struct rondo_run *run, int looks, rondo_status *status);
    /* Advance every lane as far as possible; set *moved if anything advanced. An error is final for the
     * executor. */
    rondo_status (*progress)(struct rondo_exec *exec, int *moved);
    /* Abort: forget all runs and zero their *open. Waits until other ranks have finished their current slice
     * of this rank's buffers; they touch none afterwards. */
    void (*drop)(struct rondo_exec *exec);
    /* What the blocked run number `at` waits for, from 0: "data from rank 3 (channel 0, simple, step 17)".
     * blocked->peer as in mismatch, or RONDO_NO_PEER when no more waits. @return bytes written. */
    int (*describe)(struct rondo_exec *exec, int at, char *text, size_t size, struct rondo_blocked *blocked);
    /* Do all local ranks that the runs wait for run on other cores than this thread? 0: no, or it is not
     * known. NULL: never known. */
    int (*elsewhere)(struct rondo_exec *exec);
    void (*close)(struct rondo_exec *exec);
};

extern const struct rondo_exec_ops rondo_exec_cpu;
/* Finishes every run at once: measures the cost of a call. */
extern const struct rondo_exec_ops rondo_exec_null;

/** Compare call words after a rooted call (broadcast, reduce) over the mailbox. Sets *unknown if some rank
 * has not published yet. @return a local rank that made another call, or -1. */
int rondo_mailbox_differs(const struct rondo_run *run, int *unknown);
/** Prepare a run's cursors from its work and schedule. */
void rondo_run_begin(struct rondo_run *run);
/** Reset a run's cursors for another call. Only the work's buffers, call word and seq may have changed. */
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
/** Give a run the arguments of one call. */
static inline void rondo_run_call(struct rondo_run *run, const void *in, void *out, uint32_t word,
                                  uint64_t seq)
{
    run->work.in = in;
    run->work.out = out;
    run->work.call_word = word;
    run->work.seq = seq;
}

#endif
