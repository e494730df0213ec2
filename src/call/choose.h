/* What carries a call: the algorithms that the tuner selects, and the pieces in which they move it. */
#ifndef RONDO_CALL_CHOOSE_H
#define RONDO_CALL_CHOOSE_H

#include "call/task.h"
#include "tuner/tuner.h"

/** Select what carries a call (tuner/select.h). */
rondo_status rondo_plan_choose(struct rondo_ctx *ctx, const struct rondo_task *task,
                               struct rondo_selection *selection);
/** Set a work's share of the call, as channel `channel` of `nchannels`: its range, and the chunk that its
 * schedule moves at once. */
void rondo_plan_cut(const struct rondo_ctx *ctx, struct rondo_work *w, const struct rondo_task *t,
                    enum rondo_map map, int channel, int nchannels);
/** Replace the tuner's selection for all collectives from the next call on (NULL: select again). All ranks
 * must pass the same choice, which stays the caller's. For benchmarks. */
void rondo_plan_force(struct rondo_ctx *ctx, const struct rondo_choice *choice);

#endif
