/* What a call is to profiler plugins (prof/prof.h). Nothing here runs, but for one branch, while a
 * communicator has no plugin (ctx->prof NULL). */
#ifndef RONDO_CALL_PROFILE_H
#define RONDO_CALL_PROFILE_H

#include "call/task.h"

/** Run a call outside groups, on a communicator with plugins. */
rondo_status rondo_profile_run(const struct rondo_task *task);
/** A call of a group: tasks[n] is added to tasks[0 .. n - 1]. */
void rondo_profile_add(struct rondo_task *tasks, int n, int depth);
/** The group of these calls ends, before they are issued. */
void rondo_profile_group_ends(const struct rondo_task *tasks, int n);
/** They are issued, have failed, or were only estimated: release what rondo_profile_add made. */
void rondo_profile_release(struct rondo_task *tasks, int n);

/** The call's runs are ready: watch them. */
void rondo_profile_watch(const struct rondo_task *task, struct rondo_run *runs, int n);
/** The executor does not have these runs and will not get them. */
void rondo_profile_forget(struct rondo_ctx *ctx, struct rondo_run *runs, int n);
/** The rank has made progress (idle 0), or found nothing to do. */
void rondo_profile_idle(struct rondo_ctx *ctx, int idle);
/** Hand runs to the executor. */
void rondo_profile_submit(struct rondo_ctx *ctx, struct rondo_run *runs, int n, void *stream);

/** A GPU's runs are going to be launched. */
void rondo_profile_launch_begin(struct rondo_ctx *ctx, struct rondo_run *runs, int n, void *stream);
/** They are launched: they begin. @return them chained, for rondo_prof_runs_end when their launches have
 * ended. launched 0: they failed, and have ended; NULL. */
struct rondo_prof_run *rondo_profile_launch_end(struct rondo_ctx *ctx, struct rondo_run *runs, int n,
                                                int launched);

static inline void rondo_submit(struct rondo_ctx *ctx, struct rondo_run *runs, int n, void *stream)
{
    if (RONDO_LIKELY(ctx->prof == NULL)) {
        ctx->running.exec_ops->submit(ctx->running.exec, runs, n);
    } else {
        rondo_profile_submit(ctx, runs, n, stream);
    }
}

#endif
