/*
 * Process groups inside (rondo_pgroup.h is the contract).
 *
 *     world   what the groups of one default group share: its communicator (root), the list of open works,
 *             the watchdog. Lives until its last group and work are gone.
 *     group   ranks of the world; a list of slots
 *     slot    one communicator: of all the group's ranks, of a pair, or of this rank alone; with a device
 *     work    one call, or a batch, in a slot
 *
 * A slot's communicator is a child of root, made over root's control plane by its members alone
 * (rondo_engine_among). Its tag is a hash of the group, the kind of slot, and how many slots of that kind the
 * group had: all members count the same, whatever their devices' numbers are.
 *
 * Creation never blocks. Works of a slot that is not ready wait in its queue, and go to the communicator in
 * their order by whoever finds it ready: slot_advance, which test, wait, later calls and the watchdog do. So
 * ranks may meet their pairs in any order. On a GPU the works of a stream are issued in their order, too.
 *
 * Locks, outermost first: slot->use (one thread at a time makes calls on a communicator; a collective without
 * a work holds it until it is complete), world->step (one thread at a time moves creations: root's control
 * plane is not for several), world->lock (all lists, and states; never held in a call that waits or calls
 * the user). The watchdog only tries `use`. References: the user's handle and each open work hold the group,
 * which holds the world; the watchdog holds the world, too.
 */
#ifndef RONDO_PGROUP_PGROUP_H
#define RONDO_PGROUP_PGROUP_H

#include <pthread.h>

#include "base/status.h"
#include "coll/algo.h"
#include "rondo_pgroup.h"

struct pg_event; /* of a GPU: marks where a work ends in its stream (device.c) */
struct pg_device;

/* A call with the arguments that its function has. */
struct pg_call {
    enum rondo_coll coll;
    rondo_dtype type;
    rondo_op op;
    int root; /* or the peer, in the slot's communicator */
    size_t count;
    const void *send;
    void *recv;
    const size_t *counts[4]; /* send counts, send displacements, receive counts, .. or the one pair */
};

/* PG_RUNS: in the call of a thread that waits there. */
enum pg_state { PG_QUEUED, PG_RUNS, PG_ISSUED, PG_DONE };

struct rondo_pgroup_work {
    struct pg_slot *slot;
    struct rondo_pgroup *group;
    int refs;  /* of the user, of the list of open works, of who polls it; atomic */
    int state; /* enum pg_state; atomic; PG_DONE comes after status and text */
    rondo_status status;
    char text[RONDO_ERROR_TEXT]; /* of the error */
    struct pg_call call;         /* the only one, or the batch's first */
    struct pg_call *batch;       /* NULL: no batch */
    int ncalls;
    size_t *kept;        /* counts of the call, copied; NULL: none */
    rondo_stream stream; /* on host memory: the work's own, or NULL; on a GPU: the user's */
    struct pg_event *event;
    uint64_t
        sequence; /* of the group's collectives or the pair's messages; atomic, changes under world->lock */
    int64_t begin_ns, timeout_ns;          /* 0: no limit */
    struct rondo_pgroup_work *next, *prev; /* open works of the world */
    struct rondo_pgroup_work *queued;      /* next in the slot's queue, or in its spare list */
};

enum pg_kind { PG_ALL, PG_PAIR, PG_SELF };
enum pg_slot_state { PG_NONE, PG_CREATING, PG_READY, PG_FAILED };

struct pg_slot {
    struct pg_slot *next;
    struct rondo_pgroup *group;
    enum pg_kind kind;
    int device;        /* -1: host memory */
    int low, high;     /* of a pair: ranks of the group */
    uint64_t tag;      /* of its creation */
    uint64_t messages; /* of a pair */
    pthread_mutex_t use;
    int state; /* enum pg_slot_state; atomic, changes under world->lock */
    rondo_comm *comm;
    struct pg_device *gpu;                  /* NULL: host memory */
    struct rondo_pgroup_work *first, *last; /* the queue */
    struct rondo_pgroup_work *spare;        /* ended ones with their streams */
    int nspare;
};

enum { PG_MOST_POLLED = 64 }; /* works, or slots, that one look is about */

/* How often groups of the same ranks were made from a group. */
struct pg_children {
    uint64_t members; /* hash */
    uint64_t n;
};

struct rondo_pgroup {
    struct pg_world *world;
    struct rondo_pgroup *next; /* in the world */
    int refs;
    char name[32];
    uint64_t id; /* equal on all ranks */
    int rank, n;
    int *members; /* ranks of root */
    int device;
    int64_t timeout_ms;
    void (*on_error)(void *arg, rondo_pgroup *group, rondo_status status, const char *text);
    void *arg;
    uint64_t sequence;
    struct pg_slot *slots;
    struct pg_children *children;
    int nchildren;
    rondo_status failure; /* why the group has ended */
    int told;             /* on_error was called */
    char failure_text[RONDO_ERROR_TEXT];
    struct {
        int open;
        pthread_t thread;
        rondo_status status; /* the first call that was refused */
        char text[RONDO_ERROR_TEXT];
        rondo_pgroup_opts opts;
        struct pg_call *calls;
        int n, room;
    } batch;
};

struct pg_world {
    pthread_mutex_t lock, step;
    pthread_cond_t wake; /* the watchdog: there are works, a slot is being made, or it is to stop; while it is
                            in a group's on_error: who destroys the group */
    rondo_comm *root;
    int refs;
    pid_t pid;
    struct rondo_pgroup *groups;
    struct rondo_pgroup_work *open, *newest; /* oldest first */
    struct rondo_pgroup_work *at;            /* where the watchdog's next look begins; NULL: at the oldest */
    int moved;                               /* slots in creation that this turn has moved */
    int looked;                              /* the same of ready ones, whose communicators may have ended */
    int ncreating;                           /* atomic, changes under lock */
    int asleep;                              /* the watchdog sleeps until it is woken */
    int has_thread, stop;
    pthread_t thread;
    struct rondo_pgroup *telling; /* the group whose on_error runs */
};

/* ---- group.c ---- */
void pg_world_unref(struct pg_world *world);
void pg_group_unref(struct rondo_pgroup *group);
/** End the group: revoke its communicators, end its works. Any thread; does not wait. */
void pg_group_end(struct rondo_pgroup *group, rondo_status status, const char *text);
/** @return RONDO_SUCCESS, or why the group has ended, as this thread's sentence. */
rondo_status pg_group_check(struct rondo_pgroup *group, const char *call);
/** @return RONDO_INVALID_USAGE if this thread is inside rondo_group_start, which would keep all that a call
 * hands to a communicator, or inside another call, where communicators refuse theirs. */
rondo_status pg_outside_groups(const char *call);

/* ---- slot.c ---- */
/** Find a slot, or make one. peer: of a message, in the group; -1: the slot of all ranks. */
rondo_status pg_slot_get(struct rondo_pgroup *group, int device, int peer, struct pg_slot **slot);
/** Move its creation and issue its queue, unless another thread does. wait: wait for that thread. */
void pg_slot_advance(struct pg_slot *slot, int wait);
/** The same, where the caller holds slot->use. */
void pg_slot_advance_held(struct pg_slot *slot);
/** Queue a work. @return 0: the group has ended. */
int pg_slot_queue(struct pg_slot *slot, struct rondo_pgroup_work *work);
/** The same for a queued work, and for one that has to be issued before it. */
void pg_work_advance(struct rondo_pgroup_work *work);
/** Move all that are being made: another rank may wait for one of those before it comes to what this thread
 * waits for. @return 0: there are none. */
int pg_slots_move(struct pg_world *world);
/** End the group if one of its communicators has ended, which those hear of, too, that have no call in it. */
void pg_group_look(struct rondo_pgroup *group);
/** The same for the next few communicators of all groups, in turn. */
void pg_slots_look(struct pg_world *world);
void pg_slot_free(struct pg_slot *slot);

/* ---- work.c ---- */
rondo_status pg_work_new(struct pg_slot *slot, struct rondo_pgroup_work **work);
/** Give it its number and put it into the list of open works. The caller holds slot->use. */
void pg_work_open(struct rondo_pgroup_work *work);
/** It has ended, unless it had before. The thread's sentence is the reason. A call that was refused gives its
 * number back. */
void pg_work_end(struct rondo_pgroup_work *work, rondo_status status);
void pg_work_unref(struct rondo_pgroup_work *work);
/** Hand its calls to the slot's communicator. The caller holds slot->use. */
void pg_work_issue(struct rondo_pgroup_work *work);
/** The same for a send and a receive of this rank to itself, together. */
void pg_work_issue_both(struct rondo_pgroup_work *a, struct rondo_pgroup_work *b);
/** Make its call now, and wait. The caller holds slot->use. */
rondo_status pg_work_run(struct rondo_pgroup_work *work);
/** aside: sleep between looks in which nothing moved. */
rondo_status pg_work_wait(struct rondo_pgroup_work *work, int64_t timeout_ms, int aside);
/** Look whether it has ended. @return 1: it has. */
int pg_work_poll(struct rondo_pgroup_work *work);
/** Wait until it was handed to its communicator, on a GPU: to its stream. */
rondo_status pg_work_wait_issued(struct rondo_pgroup_work *work);
/** Get the open works that the next look is about, in turn, each with a reference. @return their number; 0:
 * none is open. */
int pg_works_next(struct pg_world *world, struct rondo_pgroup_work *works[PG_MOST_POLLED]);
void pg_work_memory_free(struct rondo_pgroup_work *work);
void pg_work_describe(const struct rondo_pgroup_work *work, char *text, size_t size);

/* ---- watchdog.c ---- */
rondo_status pg_watchdog_start(struct pg_world *world);
/** End the group of a work whose time is over, and report who is out of step. */
void pg_work_late(struct rondo_pgroup_work *work);
/** Stop it; from its own thread, it stops when the caller has returned to it. */
void pg_watchdog_stop(struct pg_world *world);

/* ---- device.c ---- */
/** The number of a device that a caller named. */
rondo_status pg_device_number(int named, int *device);
rondo_status pg_device_open(int number, struct pg_device **device);
void pg_device_close(struct pg_device *device);
/** Mark the end of what is in the stream. */
rondo_status pg_event_record(struct pg_device *device, rondo_stream stream, struct pg_event **event);
/** @return RONDO_IN_PROGRESS: the stream has not come there. */
rondo_status pg_event_query(struct pg_device *device, struct pg_event *event);
void pg_event_free(struct pg_device *device, struct pg_event *event);

#endif
