/* Groups: a thread's calls between rondo_group_start and rondo_group_end. */
#ifndef RONDO_CALL_GROUP_H
#define RONDO_CALL_GROUP_H

#include "call/task.h"

/** @return > 0: this thread has an open group. */
static inline int rondo_group_depth(void) { return rondo_open_groups(); }

/** Add a call to the open group; copies the task and its counts. */
rondo_status rondo_group_add(const struct rondo_task *task);

/* A communicator that is created in the group. */
struct rondo_creation {
    struct rondo_ctx *ctx; /* may be freed before the group's end, which the shell tells */
    rondo_comm *shell;
    rondo_comm **place; /* the user's handle */
};
/* Complete the creations of a group together. status: an error gives all of them up. */
typedef rondo_status rondo_end_creations(struct rondo_creation *creations, int n, rondo_status status);
/** Add a creation that rondo_group_end completes with `end`, the same function for all. *comm becomes NULL
 * there if the creation fails, or if a split gives this rank no communicator. */
rondo_status rondo_group_add_creation(struct rondo_ctx *ctx, rondo_comm **comm, rondo_end_creations *end);

/**
 * End the outermost group without making its calls. *us: what the tuner expects its collectives to take one
 * after the other; sends and receives count nothing. A creation in the group is an error.
 */
rondo_status rondo_group_simulate(double *us);

/** A call inside the group failed: rondo_group_end returns the first such error and issues nothing. */
void rondo_group_note_error(rondo_status status);

#endif
