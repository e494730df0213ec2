/* Plans: the works of one or more calls (struct rondo_plan: comm/calls.h). */
#ifndef RONDO_CALL_PLAN_H
#define RONDO_CALL_PLAN_H

#include "call/task.h"

/** Append the works of a task to a plan (grows it). Notes the call in the control plane. */
rondo_status rondo_plan_add(struct rondo_plan *plan, const struct rondo_task *task);
/** All calls are in: every send to itself has its receive? */
rondo_status rondo_plan_check(const struct rondo_plan *plan);
/* One more run, zeroed; memory that lives as long as the plan's works. */
rondo_status rondo_plan_next_run(struct rondo_plan *plan, struct rondo_run **run);
rondo_status rondo_plan_temp(struct rondo_plan *plan, size_t bytes, void **memory);
void rondo_plan_reset(struct rondo_plan *plan);
void rondo_plan_release(struct rondo_plan *plan);

#endif
