/* Waiting for calls, and what is looked at meanwhile: aborts, deaths, calls that differ, stragglers. */
#ifndef RONDO_CALL_WAIT_H
#define RONDO_CALL_WAIT_H

#include "call/task.h"

/** Set the context's wait policy and executor owner. */
void rondo_ctx_policy(struct rondo_ctx *ctx);
/** One turn of the executor, and of the net where conns are proxied. */
rondo_status rondo_ctx_progress(struct rondo_ctx *ctx, int *moved);
/** Turn until *open is 0 and nothing of this rank's is left on its way. An error ends the communicator. */
rondo_status rondo_ctx_wait(struct rondo_ctx *ctx, const int *open);
/** Forget what is under way, for good: nobody is at its buffers from then on. @return status; this thread's
 * sentence says where that could not be waited for. After rondo_ctx_fail, so that others do not wait. */
rondo_status rondo_ctx_drop(struct rondo_ctx *ctx, rondo_status status);
/** Issue a task now and wait for it. */
rondo_status rondo_task_run(const struct rondo_task *task);
/** After the runs: do the ranks to which this one only sent make the same calls? */
rondo_status rondo_plan_compare(struct rondo_ctx *ctx, const struct rondo_run *runs, int nruns);
/** Note in the control plane that the plan's calls are done. */
void rondo_plan_calls_end(struct rondo_plan *plan);

/** The call as text: "all_reduce #17 (count 8, f32, sum)". */
void rondo_call_text(const struct rondo_call *call, char *text, size_t size);

enum { RONDO_ANSWER_NS = 300000000 }; /* another node's answer by the control plane takes that long at most */

/**
 * "; rank 3 on host has not made this call, its last collective: broadcast #16 (..) (done)" for some of those
 * behind: of this node, or of the nodes next to it, whose ranks are asked (RONDO_ANSWER_NS at most, or until
 * another rank has ended the communicator). Nothing when none is. @param peer  becomes the one farthest
 * behind.
 */
void rondo_stragglers_text(struct rondo_ctx *ctx, int *peer, char *text, size_t size);

#endif
