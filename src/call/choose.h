/* What carries a call: which algorithms, and in which pieces. */
#ifndef RONDO_CALL_CHOOSE_H
#define RONDO_CALL_CHOOSE_H

#include "call/task.h"
#include "tuner/select.h"

/** Select what carries a call (tuner/select.h). */
rondo_status rondo_plan_choose(struct rondo_ctx *ctx, const struct rondo_task *task,
                               struct rondo_selection *selection);
/** A work's share of the call, as channel `channel` of so many: its range, and what its schedule moves at
 * once. */
void rondo_plan_cut(const struct rondo_ctx *ctx, struct rondo_work *w, const struct rondo_task *t,
                    enum rondo_map map, int channel, int nchannels);
/** From the next call on, collectives run this choice (NULL: the tuner's). The same on all ranks; `choice`
 * stays where it is. For those who measure. */
void rondo_plan_force(struct rondo_ctx *ctx, const struct rondo_choice *choice);

#endif
