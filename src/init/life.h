/* Contexts and shells from creation to destruction. */
#ifndef RONDO_INIT_LIFE_H
#define RONDO_INIT_LIFE_H

#include "init/init.h"

rondo_status rondo_ctx_create(int rank, int nranks, const rondo_config *config, struct rondo_ctx **ctx);
/** Of a split or shrink: what the config leaves open is the parent's (device). */
rondo_status rondo_ctx_create_child(struct rondo_ctx *parent, int rank, int nranks,
                                    const rondo_config *config, struct rondo_ctx **ctx);
/** Free everything; no other thread is inside. */
void rondo_ctx_free(struct rondo_ctx *ctx);
/** Free a context that came to nothing, and its shell, unless another thread is at it (abort). The caller has
 * entered. */
void rondo_comm_discard(struct rondo_ctx *ctx);
/** Wrap a context in a shell and create it: blocking, non-blocking or in the open group. */
rondo_status rondo_comm_start(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split, rondo_comm **comm);

#endif
