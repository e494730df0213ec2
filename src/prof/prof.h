/*
 * Profiler plugins for NCCL (RONDO_PROFILER_PLUGIN): loading them, and telling them what a communicator does.
 * Layouts: prof/prof_abi.h. docs/profiler.md says what each event means here.
 *
 *     rondo_prof               a communicator: a context of each plugin; NULL: no plugin
 *       group                  a group of calls, or one call alone: GroupApi, Group, KernelLaunch
 *         call                 CollApi or P2pApi; Coll or P2p
 *           run                one channel: KernelCh
 *             op               one conn of it: ProxyOp
 *               step           one slice: ProxyStep
 *                 (net)        what the net device does for it: NetPlugin
 *
 * Every object keeps its parent: a call ends when its last run has ended and the caller has released it, a
 * group likewise. So events end in the order step, op, run, call, group, and each that began ends, also after
 * an error. Every function takes NULL and then does nothing: an object that could not be allocated is NULL,
 * and its events are missing.
 *
 * Which events a plugin wants (its activation mask) is read when a group begins, and is the same for all that
 * belongs to the group. The parents of an event that a plugin wants are sent, too.
 *
 * One thread at a time uses the objects of a communicator, as it uses the communicator. Where its own thread
 * also ends runs (GPUs), both hold rondo_prof_lock.
 */
#ifndef RONDO_PROF_PROF_H
#define RONDO_PROF_PROF_H

#include "base/types.h"
#include "prof/prof_abi.h"

struct rondo_prof;
struct rondo_prof_group;
struct rondo_prof_call;

/* ---- a communicator ---- */

struct rondo_prof_comm {
    const char *name; /* copied */
    uint64_t hash;    /* the same on all ranks */
    int nnodes, nranks, rank;
    int locks; /* a thread of its own ends runs: hold rondo_prof_lock */
};

/** Load the plugins at the first call in the process, unless there are to be none, and make a context in
 * each. *prof is NULL if none is used. No error: a plugin that cannot be loaded or fails is left out, with a
 * warning. Any thread. */
void rondo_prof_open(struct rondo_prof **prof, const struct rondo_prof_comm *comm);
/** Does a plugin want to know how this host's clock compares with another's? */
int rondo_prof_wants_clock(const struct rondo_prof *prof);
/** Tell it: offset_ns added to a time of this host gives that of another rank's host, to error_ns. */
void rondo_prof_clock(const struct rondo_prof *prof, int rank, int64_t offset_ns, int64_t error_ns);
/** The last holder: finalize the contexts and log what each plugin got. Calls and groups must have ended. */
void rondo_prof_close(struct rondo_prof *prof);
/** Hold it once more, until rondo_prof_close: a group of calls may outlive their communicator. */
void rondo_prof_hold(struct rondo_prof *prof);

/** Both do nothing for a communicator that does not lock. */
void rondo_prof_lock_calls(struct rondo_prof *prof);
void rondo_prof_unlock_calls(struct rondo_prof *prof);
void rondo_prof_lock(struct rondo_prof *prof);
void rondo_prof_unlock(struct rondo_prof *prof);

/** The rank's engine has made progress (idle 0) or has found nothing to do: ProxyCtrl, when it changes. */
void rondo_prof_idle(struct rondo_prof *prof, int idle);

/* ---- groups and calls ---- */

/** A group begins: at the first call of this communicator in it. depth: of nested groups, 1 for a call
 * alone. */
struct rondo_prof_group *rondo_prof_group_begin(struct rondo_prof *prof, int depth);
struct rondo_prof *rondo_prof_of_group(const struct rondo_prof_group *group);
/** All calls are in: what follows issues them. */
void rondo_prof_group_ends(struct rondo_prof_group *group);
/** The group's calls are issued or have failed; release it. */
void rondo_prof_group_release(struct rondo_prof_group *group);
/** Around handing runs to the executor: KernelLaunch, and ProxyCtrl with the number of runs. */
void rondo_prof_launch_begin(struct rondo_prof_group *group, void *stream);
void rondo_prof_launch_end(struct rondo_prof_group *group, int nruns);

/* A call as the user made it. Names are constants, numbers NCCL's (255: it has none). */
struct rondo_prof_what {
    const char *func, *datatype;
    const void *send;
    void *recv;
    size_t count;
    size_t elem_bytes;
    int32_t root; /* P2p: the peer */
    void *stream;
    uint8_t is_p2p, func_number, datatype_number;
    uint32_t op_number;
};
/** The user makes a call: CollApi or P2pApi. */
struct rondo_prof_call *rondo_prof_call_begin(struct rondo_prof_group *group,
                                              const struct rondo_prof_what *what);
/** The function that the user called returns. */
void rondo_prof_call_returns(struct rondo_prof_call *call);
/** The caller is done with it. */
void rondo_prof_call_release(struct rondo_prof_call *call);
struct rondo_prof_group *rondo_prof_call_group(const struct rondo_prof_call *call);

/* How a call runs. */
struct rondo_prof_how {
    uint64_t seq; /* of the communicator's collectives; P2p: 0 */
    const char *algo, *proto;
    uint8_t algo_number, proto_number;
    int nchannels;
    size_t traffic_bytes; /* that this rank sends */
};
/** The call is issued: Group (of the first call) and Coll or P2p. Once for each call. */
void rondo_prof_call_issue(struct rondo_prof_call *call, const struct rondo_prof_how *how);

/* ---- runs: what the executor tells ---- */

/* One conn's part of a run. */
struct rondo_prof_conn {
    uint8_t key; /* names the conn in the run */
    int32_t peer;
    uint32_t chunk_bytes; /* most that a step moves */
    uint32_t nsteps;      /* slices that will pass */
    uint8_t is_send;
};
struct rondo_prof_run;
/** A run belongs to the call: it will begin and end, or only end. */
struct rondo_prof_run *rondo_prof_run_add(struct rondo_prof_call *call, uint32_t channel);
struct rondo_prof_group *rondo_prof_run_group(const struct rondo_prof_run *run);
/** Does anybody want the run's conns? Else it begins with nconns = 0. */
int rondo_prof_run_wants_conns(const struct rondo_prof_run *run);
/** Has it begun? */
int rondo_prof_run_begun(const struct rondo_prof_run *run);
/** The executor looks at it for the first time: its timer starts. Later calls do nothing. */
void rondo_prof_run_seen(struct rondo_prof_run *run);
/** The run begins: KernelCh, and a ProxyOp for each conn. Later calls do nothing. */
void rondo_prof_run_begin(struct rondo_prof_run *run, const struct rondo_prof_conn *conns, int nconns);
/** The run has ended, or never will begin; releases it. Its KernelCh ends; its ProxyOps and its call do once
 * those have let it go that hold it. */
void rondo_prof_run_end(struct rondo_prof_run *run);
/** Somebody else tells of the run's conns, and may do so after its end: n times of let_go. */
void rondo_prof_run_hold(struct rondo_prof_run *run, int n);
void rondo_prof_run_let_go(struct rondo_prof_run *run);
/** Put a run in front of others that end together. @return the new first one. NULL is no run. */
struct rondo_prof_run *rondo_prof_run_chain(struct rondo_prof_run *run, struct rondo_prof_run *others);
/** End a chain of runs. */
void rondo_prof_runs_end(struct rondo_prof_run *first);

/* A slice on a conn goes through these stages in order; several may be told at once, and telling one again
 * does nothing. On a conn whose slices overlap, several are open at once, and they pass in order. */
enum { RONDO_PROF_OPEN_STEPS = 8 };
enum rondo_prof_stage {
    RONDO_PROF_STAGE_WAITS,  /* for data: a sender for those that it forwards, a receiver for the peer's */
    RONDO_PROF_STAGE_HELD,   /* the data is here; a sender waits for credit, a receiver for its own sends */
    RONDO_PROF_STAGE_MOVES,  /* it is being copied, reduced or written into the slot */
    RONDO_PROF_STAGE_PASSED, /* it is in the slot; the receiver has returned the slot */
};
/** Tell of the first slice that has not passed. */
void rondo_prof_step(struct rondo_prof_run *run, uint8_t key, enum rondo_prof_stage stage, size_t bytes);
/** Tell of slice `number` of the run, less than RONDO_PROF_OPEN_STEPS after that one: it begins, and so do
 * those before it. */
void rondo_prof_step_at(struct rondo_prof_run *run, uint8_t key, uint32_t number, enum rondo_prof_stage stage,
                        size_t bytes);

/* ---- events of net devices: NetPlugin (prof_net.c) ---- */

/** Does anybody want them? */
int rondo_prof_run_wants_net(const struct rondo_prof_run *run);
/** @return the parent for rondo_prof_net_event of an open slice, with which it ends; NULL: nobody asks. */
void *rondo_prof_step_parent(struct rondo_prof_run *run, uint8_t key, uint32_t number);
/** NCCL's callback for net plugins (base/net_event.h), from any thread. A parent or an event that has ended
 * is no error: nothing happens. @return 0 */
int rondo_prof_net_event(void **event, int what, void *parent, int64_t kind, void *more);

/** ns, monotone. */
uint64_t rondo_prof_now(void);

#endif
