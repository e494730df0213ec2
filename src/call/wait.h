/* Waiting for calls. Meanwhile Rondo looks for aborts, dead ranks, calls that differ, and stragglers. */
#ifndef RONDO_CALL_WAIT_H
#define RONDO_CALL_WAIT_H

#include "call/task.h"
#include "observe/call_text.h"

/** Set the context's wait policy and the owner of its executor. */
void rondo_ctx_policy(struct rondo_ctx *ctx);
/** Make progress: one step of the executor, and of the net where conns are proxied. */
rondo_status rondo_ctx_progress(struct rondo_ctx *ctx, int *moved);
/** The progress of a call has failed. A rank that closes a connection because of an error also reports it
 * over the control plane: wait a moment for the cause. @return status, or that of the cause */
rondo_status rondo_ctx_with_reason(struct rondo_ctx *ctx, rondo_status status);
/** Make progress until *open is 0 and this rank has no data in flight. An error ends the communicator. */
rondo_status rondo_ctx_wait(struct rondo_ctx *ctx, const int *open);
/** Cancel all running works; call rondo_ctx_fail first, so that other ranks do not wait. On return nobody
 * touches the user's buffers, or this thread's error text says who still may. @return status. */
rondo_status rondo_ctx_drop(struct rondo_ctx *ctx, rondo_status status);
/** A wait for this context begins, or what it waits for has moved: stalls count anew. Any thread. */
static inline void rondo_ctx_goes_on(struct rondo_ctx *ctx)
{
    __atomic_store_n(&ctx->running.stall_checks, 0, __ATOMIC_RELAXED);
}
/** Issue a task now and wait for it. */
rondo_status rondo_task_run(const struct rondo_task *task);
/** After the runs: compare calls with the ranks that this one only sent to. */
rondo_status rondo_plan_compare(struct rondo_ctx *ctx, const struct rondo_run *runs, int nruns);
/** A wait has ended: rondo-doctor no longer sees what it was for. */
void rondo_ctx_waited(struct rondo_ctx *ctx);
/** Record in the control plane that the plan's calls are done. */
void rondo_plan_calls_end(struct rondo_plan *plan);
/** Note that this thread waits in a send or receive of the user; other tasks are not noted. alone: the thread
 * waits for nothing else. */
void rondo_message_begin(struct rondo_ctx *ctx, const struct rondo_task *task, int alone);
/** It waits in none. */
void rondo_message_end(struct rondo_ctx *ctx);

/* ---- stragglers.c: ranks that have not made this call ---- */

enum { RONDO_ANSWER_NS = 300000000 }; /* time limit for an answer of another node over the control plane */

/**
 * Format "; rank 3 on host has not made this call, its last collective: broadcast #16 (..) (done)" for some
 * stragglers of this node, or of its neighbour nodes, whose ranks are asked (for RONDO_ANSWER_NS at most, and
 * not after another rank has ended the communicator). Empty if there are none.
 * @param peer  becomes the rank that is farthest behind.
 */
void rondo_stragglers_text(struct rondo_ctx *ctx, int *peer, char *text, size_t size);

#endif
