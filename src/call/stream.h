/* Host streams, and the queue of a context whose plans go through them. */
#ifndef RONDO_CALL_STREAM_H
#define RONDO_CALL_STREAM_H

#include "comm/comm.h"

/** The plan has calls that were given this stream (NULL: whoever made them waits). */
rondo_status rondo_plan_add_stream(struct rondo_plan *plan, rondo_stream stream);
/**
 * Queue a plan behind what its context and its streams hold. From here on its streams own it; where it is
 * waited for, the caller does as well, until rondo_plan_unref.
 */
rondo_status rondo_stream_enqueue(struct rondo_plan *plan);
/** Done with a queued plan that was waited for: plan->done is set. */
void rondo_plan_unref(struct rondo_plan *plan);
/** Move the queued plans of this context; skips when another thread does. */
rondo_status rondo_ctx_progress_queue(struct rondo_ctx *ctx, int *moved);
/** Move all queued plans of the process (any waiting call does). */
void rondo_streams_progress(int *moved);
/** Wait until the context's queue is empty. */
rondo_status rondo_ctx_drain(struct rondo_ctx *ctx);
/** The context ends: its queued plans are done with this status. */
void rondo_ctx_drop_queue(struct rondo_ctx *ctx, rondo_status status);

#endif
