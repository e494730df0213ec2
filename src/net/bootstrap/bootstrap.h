/*
 * A bootstrap carries the records that ranks exchange while a communicator is created. Four implementations
 * of one vtable: MPI (mpi/bootstrap_mpi.c, built once per MPI), TCP (bootstrap_meeting.c), threads of one
 * process (bootstrap_threads.c), and a parent's control plane (bootstrap_control.c).
 *
 * The caller starts a round, then tests it until it is done: no call blocks. One round is under way at a
 * time, and rounds come in the same order on all ranks. The caller watches the deadline: when it passes,
 * `missing` names the ranks that did not come, then the caller closes the bootstrap.
 */
#ifndef RONDO_NET_BOOTSTRAP_BOOTSTRAP_H
#define RONDO_NET_BOOTSTRAP_BOOTSTRAP_H

#include "base/status.h"

struct rondo_bootstrap;

struct rondo_bootstrap_ops {
    const char *name;
    /* Prepare for the first round (MPI: the ranks greet each other). Test it like a round. */
    rondo_status (*open_start)(struct rondo_bootstrap *b);
    /* all[i * bytes ..] = rank i's mine. The bootstrap owns both until the round is done. */
    rondo_status (*allgather_start)(struct rondo_bootstrap *b, const void *mine, void *all, size_t bytes);
    /* Merge the records of all ranks into one, which all get in *record. merge(into, from) may come in any
     * order, so it must not matter. The bootstrap owns record until the round is done; it has room for
     * RONDO_ROUNDS_REDUCED of `bytes` each. NULL: use an allgather. */
    rondo_status (*reduce_start)(struct rondo_bootstrap *b, void *record, size_t bytes,
                                 void (*merge)(void *into, const void *from));
    /* Exchange records with n peers: send[i] goes to peer[i] and recv[i] comes from it. Every peer names this
     * rank too; peers are distinct, and none is this rank. All ranks call it, also those without peers. */
    rondo_status (*exchange_start)(struct rondo_bootstrap *b, int n, const int *peer, const void *send,
                                   void *recv, size_t bytes);
    /* RONDO_SUCCESS: the round is done; RONDO_IN_PROGRESS: test again; RONDO_TIMEOUT: another rank's deadline
     * has passed, call `missing`; else an error. */
    rondo_status (*test)(struct rondo_bootstrap *b);
    /* After a deadline, find the ranks that are absent from the round under way. The ranks that came tell
     * each other, so call it until it is no longer RONDO_IN_PROGRESS: at most 5 s. *n <= max ranks,
     * ascending; 0: not known. An error: this rank has found, or been told, why creation has failed. */
    rondo_status (*missing)(struct rondo_bootstrap *b, int *ranks, int max, int *n);
    /* Look for ranks that have died or given up, while no round is under way. late: the deadline has passed.
     * RONDO_SUCCESS: none is known. NULL: nothing to look at. */
    rondo_status (*look)(struct rondo_bootstrap *b, int late);
    /* This rank ends the creation: does it do so because what the new communicator is made from has lost a
     * rank? @return the error that says so; RONDO_SUCCESS: not as far as is known. NULL: made from nothing */
    rondo_status (*cause)(struct rondo_bootstrap *b);
    /* May the calling thread start and test rounds? (An MPI initialised for one thread allows only that one.)
     * NULL: any thread may. */
    int (*may_step)(struct rondo_bootstrap *b);
    /* End creation and free b; waits about a second at most, a meeting whose creation went well 10 s for
     * ranks that do not take what was sent to them. ok 0: creation failed with b->ended and this thread's
     * sentence, which stays its sentence, and which the other ranks may not know yet. Requests that are still
     * under way cannot be cancelled: they keep their buffers until the process exits. */
    void (*close)(struct rondo_bootstrap *b, int ok);
};

struct rondo_bootstrap {
    const struct rondo_bootstrap_ops *ops;
    int rank, nranks;
    int root_world_rank; /* world rank of rank 0, for the unique id */
    /* The secret that the ranks have in common already, because other hosts may read what this bootstrap
     * carries. NULL: rank 0 makes one and sends it. */
    const uint64_t *secret;
    /* Set before open_start. 1: the program may start other collectives before creation is complete. */
    int overlaps;
    int moves_alone;    /* 1: no poll of another communicator moves the creation */
    int met;            /* 1: all ranks have come: one that is missing now came and does not answer */
    int quiet;          /* 1: from now on, the control plane tells the others of a failure */
    rondo_status ended; /* set before close: the error that ends creation */
    /* Makes progress in the program's MPI during long waits, as a service to the program. Call it only from
     * the thread that created the communicator. NULL: none. */
    rondo_status (*idle)(void *arg, int *moved);
    void *idle_arg;
    int idle_asks; /* 1: only if the program says that the thread may call MPI (config.mpi_progress) */
};

/** A hub is where ranks that are threads of one process meet: their bootstraps share it. */
struct rondo_hub;
rondo_status rondo_hub_create(int nranks, struct rondo_hub **hub);
/** Take one more reference. */
void rondo_hub_retain(struct rondo_hub *hub);
/** Drop the creator's reference, or another one; each bootstrap holds one of its own. */
void rondo_hub_release(struct rondo_hub *hub);
rondo_status rondo_bootstrap_threads(struct rondo_hub *hub, int rank, struct rondo_bootstrap **b);

/** Get what the bootstrap of a child has sent so far: parts of records, and notes about failures. */
void rondo_bootstrap_control_sent(const struct rondo_bootstrap *b, uint64_t *parts, uint64_t *notes);

/** Create a child (split, shrink) over its parent's control plane, which must outlive the bootstrap. The
 * child's secret is derived from the parent's and the tag.
 * @param members  the parent's ranks, in the child's order; @param self  this rank's index in it
 * @param tag      equal on all members, new for each child
 * @param over_ended  1: the parent may have ended, and only its members' losses count; 0: its end is the
 *                    child's, too, unless all go on for RONDO_BOOTSTRAP_ORPHAN_NS */
#define RONDO_BOOTSTRAP_ORPHAN_NS (1000 * INT64_C(1000000))
struct rondo_control;
rondo_status rondo_bootstrap_control(struct rondo_control *parent, const int *members, int n, int self,
                                     uint64_t tag, int over_ended, struct rondo_bootstrap **b);
/** Between two rounds, have some of the members go on alone, as a child of theirs. It cannot fail, and who
 * ends it from here on tells these members only. members, self, tag: as above */
void rondo_bootstrap_control_divide(struct rondo_bootstrap *b, const int *members, int n, int self,
                                    uint64_t tag);
/**
 * For a split of a parent of one node, before the first round of each group: small rounds go through the
 * parent's segment.
 * @param serial  counts the parent's splits from 1; all ranks that take part in this one end it later
 * @param of_child  0: b has all of the parent's ranks, and one such round; 1: b has the child's */
void rondo_bootstrap_control_node(struct rondo_bootstrap *b, uint64_t serial, int of_child);
/** This rank has no more rounds in a split, whatever came of it: another may take its place. */
void rondo_control_split_end(struct rondo_control *parent, uint64_t serial);

#endif
