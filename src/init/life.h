/* Contexts (context.c) and shells (life.c) from creation to destruction. */
#ifndef RONDO_INIT_LIFE_H
#define RONDO_INIT_LIFE_H

#include "init/init.h"

rondo_status rondo_ctx_create(int rank, int nranks, const rondo_config *config, struct rondo_ctx **ctx);
/** Create a context for a split or shrink; it inherits the device settings that the config leaves open, and
 * holds its parent until it is created. */
rondo_status rondo_ctx_create_child(struct rondo_ctx *parent, int rank, int nranks,
                                    const rondo_config *config, struct rondo_ctx **ctx);
/** Free a context with all that it owns. No other thread may be using it. What the creation of a child needs
 * (the control plane, the peers) stays until nobody holds it. */
void rondo_ctx_free(struct rondo_ctx *ctx);
void rondo_ctx_hold(struct rondo_ctx *ctx);
void rondo_ctx_let_go(struct rondo_ctx *ctx);
/** Is a child being created? */
int rondo_ctx_is_held(const struct rondo_ctx *ctx);
/** The creation of this context has ended: let its parent go, once. Not with a lock held: it may be freed. */
void rondo_ctx_leave_parent(struct rondo_ctx *ctx);
/** Free a context whose creation failed, and its shell, unless another thread is aborting it. The caller has
 * entered the shell. */
void rondo_comm_discard(struct rondo_ctx *ctx);
/** Wrap a context in a shell and create it, blocking, non-blocking or in the open group. Owns ctx and
 * bootstrap from here on, also after an error. */
rondo_status rondo_comm_start(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split, rondo_comm **comm);

#endif
