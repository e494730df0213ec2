/* Creation of a communicator, moved step by step. */
#ifndef RONDO_INIT_INIT_H
#define RONDO_INIT_INIT_H

#include "comm/comm.h"
#include "net/bootstrap/bootstrap.h"

struct rondo_split {
    struct rondo_ctx *parent;
    uint64_t child; /* the parent's nchildren at the call: several splits may be under way */
    int color, key;
};
/** Begin creation; takes ownership of the bootstrap. split: NULL, or the parent's side of a split (its first
 * round). */
rondo_status rondo_init_begin(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split);
/**
 * Move creation: RONDO_SUCCESS (ready; ctx->life.init is NULL), RONDO_IN_PROGRESS, or the error that
 * ended it. nranks 0 after success of a split: no colour. Any thread; one that comes while another is at
 * it gets RONDO_IN_PROGRESS.
 */
rondo_status rondo_init_step(struct rondo_ctx *ctx);
/** The same; where the bootstrap says that this thread may not (MPI of one thread): RONDO_IN_PROGRESS while
 * another one may be at it, until the deadline. */
rondo_status rondo_init_look(struct rondo_ctx *ctx);
/** Give up a creation under way. */
void rondo_init_cancel(struct rondo_ctx *ctx);
/** Run creations to their end, together. Each context's result is in its state. @return the first error. */
rondo_status rondo_init_run(struct rondo_ctx **ctxs, int n);

#endif
