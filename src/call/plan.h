/* Plans: the works of one or more calls (struct rondo_plan: comm/calls.h). */
#ifndef RONDO_CALL_PLAN_H
#define RONDO_CALL_PLAN_H

#include "call/task.h"

/** Append the works of a task, and record the call in the control plane. */
rondo_status rondo_plan_add(struct rondo_plan *plan, const struct rondo_task *task);
/** A call could not be planned, which the others do not see: unless all refuse such a call, end the
 * communicator. Not with the lock of a GPU's communicator held. @return status */
rondo_status rondo_plan_fails(struct rondo_ctx *ctx, rondo_status status);
/** All calls are in: does every send to itself have its receive? */
rondo_status rondo_plan_check(const struct rondo_plan *plan);

/* ---- memory (plan_memory.c) ---- */

/** Append one zeroed run. Invalidates pointers to earlier runs. */
rondo_status rondo_plan_next_run(struct rondo_plan *plan, struct rondo_run **run);
/** Allocate memory that lives until the plan is reset. */
rondo_status rondo_plan_temp(struct rondo_plan *plan, size_t bytes, void **memory);
/** Drop the works and keep the memory for the next call. */
void rondo_plan_reset(struct rondo_plan *plan);
/** Free what the plan holds; the plan itself is the caller's. */
void rondo_plan_release(struct rondo_plan *plan);

#endif
