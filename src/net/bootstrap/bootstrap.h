/*
 * A bootstrap: how ranks exchange records while a communicator is made. Three implementations of one vtable:
 * MPI (bootstrap_mpi.c, built once per MPI), threads of one process (bootstrap_threads.c), a parent's control
 * plane (bootstrap_control.c).
 *
 * Every round is started, then tested until done: no call blocks. One round is under way at a time. Rounds
 * happen in the same order on all ranks. Deadlines are the caller's: when one passes it asks `missing` for
 * the ranks that did not come, then `fail`s.
 */
#ifndef RONDO_NET_BOOTSTRAP_BOOTSTRAP_H
#define RONDO_NET_BOOTSTRAP_BOOTSTRAP_H

#include "base/status.h"

struct rondo_bootstrap;

struct rondo_bootstrap_ops {
    const char *name;
    /* Make whatever is needed before the first round (MPI: the duplicate of the communicator). Tested like a
     * round. */
    rondo_status (*open_start)(struct rondo_bootstrap *b);
    /* all[i * bytes ..] = rank i's mine. Both belong to the bootstrap until the round is done. */
    rondo_status (*allgather_start)(struct rondo_bootstrap *b, const void *mine, void *all, size_t bytes);
    /* Records between pairs: n times, send[i] (bytes) goes to peer[i] and recv[i] comes from it. The relation
     * is symmetric; peers are distinct and not rank. */
    rondo_status (*exchange_start)(struct rondo_bootstrap *b, int n, const int *peer, const void *send,
                                   void *recv, size_t bytes);
    /* RONDO_SUCCESS: the round is done; RONDO_IN_PROGRESS: test again; RONDO_TIMEOUT: another rank's deadline
     * has passed, ask `missing` as after one's own; else an error. */
    rondo_status (*test)(struct rondo_bootstrap *b);
    /* After a deadline: the ranks known to be absent from the round under way. Tested as a round (the ranks
     * that came tell one another): RONDO_IN_PROGRESS until known or given up (bounded: at most 1 s more). *n
     * <= max ranks, ascending; 0: not known. */
    rondo_status (*missing)(struct rondo_bootstrap *b, int *ranks, int max, int *n);
    /* May the calling thread start and test rounds? (MPI that was initialised for one thread: only that one.)
     * NULL: any may. */
    int (*may_step)(struct rondo_bootstrap *b);
    /* End of creation: free what creation needed. ok = 0: a round failed or timed out; requests under way are
     * left to a graveyard. Never blocks; frees b. */
    void (*close)(struct rondo_bootstrap *b, int ok);
};

struct rondo_bootstrap {
    const struct rondo_bootstrap_ops *ops;
    int rank, nranks;
    int root_world_rank; /* of rank 0: for the unique id */
    /* A service to the program: moves its MPI in long waits; NULL: none. Called only from the thread that
     * made the communicator. */
    rondo_status (*idle)(void *arg, int *moved);
    void *idle_arg;
};

/** Threads of one process. The meeting place is shared by its ranks' bootstraps. */
struct rondo_hub;
rondo_status rondo_hub_create(int nranks, struct rondo_hub **hub);
void rondo_hub_release(struct rondo_hub *hub); /* reference counted: freed with the last bootstrap */
rondo_status rondo_bootstrap_threads(struct rondo_hub *hub, int rank, struct rondo_bootstrap **b);

/** A parent's control plane: children of split and shrink. `members` are the parent's ranks in the child's
 * order; `tag` is the same on all of them and new each time. */
struct rondo_control;
rondo_status rondo_bootstrap_control(struct rondo_control *parent, const int *members, int n, int self,
                                     uint64_t tag, struct rondo_bootstrap **b);

#endif
