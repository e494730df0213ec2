/* Creation of a communicator in steps that never block. */
#ifndef RONDO_INIT_INIT_H
#define RONDO_INIT_INIT_H

#include "comm/comm.h"
#include "net/bootstrap/bootstrap.h"

struct rondo_split {
    struct rondo_ctx *parent;
    uint64_t child; /* the parent's nchildren at the call; several splits may be in progress */
    int color, key;
};
/** Begin a creation; takes ownership of the bootstrap. split: NULL, or the parent's side of a split, which is
 * its first round. */
rondo_status rondo_init_begin(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split);
/**
 * Take a step. Any thread may call; while another one is in a step, it gets RONDO_IN_PROGRESS.
 * @return RONDO_SUCCESS (ready, ctx->life.init is NULL), RONDO_IN_PROGRESS, or the error that ended the
 * creation. After a successful split, nranks 0 means that this rank has no colour.
 */
rondo_status rondo_init_step(struct rondo_ctx *ctx);
/** Like rondo_init_step, but where the bootstrap forbids this thread to step (MPI with one thread), return
 * RONDO_IN_PROGRESS until the deadline: another thread may be stepping. */
rondo_status rondo_init_look(struct rondo_ctx *ctx);
/** The same in a poll or wait of another communicator, in the thread that began this one. One over MPI moves
 * only if Rondo may call MPI there at any time (config.mpi_progress). */
rondo_status rondo_init_look_aside(struct rondo_ctx *ctx);
/** Cancel a creation in progress. */
void rondo_init_cancel(struct rondo_ctx *ctx);
/** Step several creations until all have ended. Each context's state holds its result. @return the first
 * error. */
rondo_status rondo_init_run(struct rondo_ctx **ctxs, int n);

/* open.c: creations that do not block and are under way */
/** Have this thread's polls and waits of other communicators move this creation. Its shell is published. */
void rondo_open_add(struct rondo_ctx *ctx);
/** Before the context is freed. */
void rondo_open_remove(struct rondo_ctx *ctx);
/** Move each that this thread has begun by a step, unless another thread does; never waits for one. The
 * thread's last error stays. */
void rondo_open_step_all(void);

#endif
