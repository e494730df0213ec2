/* Groups: a thread's calls between rondo_group_start and rondo_group_end. */
#ifndef RONDO_CALL_GROUP_H
#define RONDO_CALL_GROUP_H

#include "call/task.h"

/* Read by every call: at a fixed place of the thread's memory, also in a library that is loaded later. */
#define RONDO_FAST_TLS __attribute__((tls_model("initial-exec")))
extern _Thread_local int rondo_group_level RONDO_FAST_TLS;
/** Calls inside an open group of this thread? */
static inline int rondo_group_depth(void) { return rondo_group_level; }
rondo_status rondo_group_add(const struct rondo_task *task);
/* A communicator that is created in the group. */
struct rondo_creation {
    struct rondo_ctx *ctx; /* may be gone at the group's end; the shell tells */
    rondo_comm *shell;
    rondo_comm **place; /* the user's handle */
};
/* Complete the creations of a group together. status: an error gives all of them up. */
typedef rondo_status rondo_end_creations(struct rondo_creation *creations, int n, rondo_status status);
/** A creation that group_end completes, with `end`, one and the same for all. *comm becomes NULL there when it fails, or
 * when a split gave no communicator. */
rondo_status rondo_group_add_creation(struct rondo_ctx *ctx, rondo_comm **comm, rondo_end_creations *end);
/** A call inside the group failed: group_end will say so and issue nothing. */
void rondo_group_note_error(rondo_status status);

#endif
