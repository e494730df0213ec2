/*
 * An executor runs works. The CPU executor never blocks: it keeps lanes (first in, first out) of runs and advances whichever has data and credit; `turn` is
 * called by whoever waits. Runs of one lane are executed in order; lanes are independent, so a group of sends and receives cannot deadlock.
 *
 * Lanes: channel c of the collectives is lane c; a p2p conn has a lane of its own (its index is given by src/). All ranks submit to a lane in the same order.
 */
#ifndef RONDO_KERN_EXEC_H
#define RONDO_KERN_EXEC_H

#include "base/status.h"
#include "base/work.h"
#include "base/board.h"

enum { RONDO_SCRATCH_BYTES = 16384 };

struct rondo_schedule;
struct rondo_exec;

/* A cursor through one flow of a schedule. */
struct rondo_flow {
    size_t loop;       /* of the work's nloops */
    uint32_t k;        /* of nsteps */
    uint32_t nsteps;
    size_t done;       /* elements of the block passed (whole slices) */
    size_t unit;       /* LL, LL128: elements of the current slice passed */
    uint8_t checked;   /* bit per from-port: call word checked; SEND ports: call word written (bits 4..) */
    uint8_t posted;    /* one-shot: own message is on the board */
};

/* A work under way. Memory belongs to the plan that submitted it and stays until *open has been decremented for it. */
struct rondo_run {
    struct rondo_work work;
    const struct rondo_schedule *schedule;
    size_t nloops;
    uint32_t lane;
    uint32_t nflows;
    struct rondo_flow flow[2];
    struct rondo_run *next; /* in the lane */
    int *open;              /* works of the plan that are not finished */
    int (*ready)(struct rondo_run *run, rondo_status *status); /* NULL: at once; else asked before the first step (lazy connections) */
    void *ready_arg;
};

/* What an executor tells its owner. */
struct rondo_exec_owner {
    void *arg;
    /* The peer's call word differs from ours (peer: rank, -1 unknown). Composes the error that names both calls. */
    rondo_status (*mismatch)(void *arg, int peer, const struct rondo_work *work, uint32_t got);
};

struct rondo_exec_ops {
    const char *name;
    rondo_status (*open)(struct rondo_exec **exec, int nlanes, const struct rondo_exec_owner *owner);
    /* Append to the lanes; takes no ownership; never blocks, never allocates. */
    void (*submit)(struct rondo_exec *exec, struct rondo_run *runs, int n);
    /* Advance every lane as far as it goes. *moved is set when anything did. An error is final for the executor. */
    rondo_status (*turn)(struct rondo_exec *exec, int *moved);
    /* Forget all runs (abort): none is touched again; every *open becomes 0. */
    void (*drop)(struct rondo_exec *exec);
    /* What the first run of each lane waits for, as a sentence: peers, channel, step. @return bytes written. */
    int (*describe)(struct rondo_exec *exec, char *text, size_t size, int *peer);
    void (*close)(struct rondo_exec *exec);
};

extern const struct rondo_exec_ops rondo_exec_cpu;
extern const struct rondo_exec_ops rondo_exec_null; /* finishes every run at once: measures the cost of a call */

/** Prepare a run's cursors from its work and schedule. */
void rondo_run_begin(struct rondo_run *run);

#endif
