/* Host streams, and the queue of a context's plans that go through them. */
#ifndef RONDO_CALL_STREAM_H
#define RONDO_CALL_STREAM_H

#include "comm/comm.h"

/** Check the handle of a host stream. what: the caller's name. */
rondo_status rondo_stream_check(rondo_stream stream, const char *what);
/** Note that the plan has calls on this stream. NULL: the caller waits for them. */
rondo_status rondo_plan_add_stream(struct rondo_plan *plan, rondo_stream stream);
/** Get an empty plan for a call on this stream; memory of an earlier one, if there is any. It is the caller's
 * until rondo_stream_enqueue. */
rondo_status rondo_stream_new_plan(rondo_stream stream, struct rondo_ctx *ctx, struct rondo_plan **plan);
/** Queue a plan behind the plans of its context and of its streams. From here on its streams own it; if
 * plan->waited, the caller does as well, until rondo_plan_unref. Makes the progress that needs no wait, up to
 * a limit. */
rondo_status rondo_stream_enqueue(struct rondo_plan *plan);
/** The same without progress. */
void rondo_stream_put(struct rondo_plan *plan);
/** Is this a stream of host memory whose calls have all ended well? */
int rondo_stream_is_free(rondo_stream stream);
/** As rondo_stream_query, but without progress, and without an error's sentence. The stream is valid. */
rondo_status rondo_stream_look(rondo_stream stream);
/** Drop the reference to a queued plan that the caller waited for: plan->done is set. */
void rondo_plan_unref(struct rondo_plan *plan);
/** Make progress on the queued plans of this context; does nothing while another thread does it. */
rondo_status rondo_ctx_progress_queue(struct rondo_ctx *ctx, int *moved);
/** How often anything of this context's queue moved, whichever thread moved it. issued: is the plan that the
 * caller waits for? If not, the number also counts what moves of those that it is behind. */
uint64_t rondo_queue_moves(struct rondo_ctx *ctx, int issued);
/** Make progress on all queued plans of the process. Every waiting call does this. */
void rondo_streams_progress(int *moved);
/** The same as a public function, for a thread that is in no other. */
rondo_status rondo_streams_poll(void);
/** As rondo_stream_synchronize, in a thread beside others that compute: it sleeps between looks in which
 * nothing moved. */
rondo_status rondo_stream_wait_aside(rondo_stream stream);
/** Wait until the context's queue is empty. */
rondo_status rondo_ctx_drain(struct rondo_ctx *ctx);
/** The context ends: complete its queued plans with this status. by_user: it is destroyed, which the sentence
 * then says; else the thread's sentence stays, because the caller may tell other communicators, too. */
void rondo_ctx_drop_queue(struct rondo_ctx *ctx, rondo_status status, int by_user);

#endif
