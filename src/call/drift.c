/* Corrections of the cost model: who times which call, and when all ranks choose anew. */
#include "call/drift.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/backend.h"

/* Calls between two that are timed: at first, at most, and after a correction. */
enum { FIRST_STRIDE = 7, MOST_STRIDE = 63, ANEW_STRIDE = 1 };

_Static_assert((int)RONDO_DRIFT_SAMPLES == (int)RONDO_VOTE_WORDS, "a vote holds the samples");
static const uint32_t against = UINT32_MAX; /* the first word of a vote: no corrections; not a sample */

/* ---- what is timed ---- */

/* Do all ranks begin such a call before it ends on any? */
static int meets(uint32_t coll)
{
    return coll == RONDO_COLL_ALL_REDUCE || coll == RONDO_COLL_ALL_GATHER ||
           coll == RONDO_COLL_REDUCE_SCATTER;
}

/* Does the model choose in this communicator? */
static int is_modelled(const struct rondo_ctx *ctx)
{
    const struct rondo_layout *l = &ctx->wiring.layout;
    return rondo_params()->recalibrate && !ctx->backend->is_gpu && l->nnodes == 1 && l->nranks > 1 &&
           ctx->wiring.direct != NULL && l->measured == NULL && ctx->running.tuner == NULL &&
           ctx->running.forced == NULL && ctx->running.exec_ops == &rondo_exec_cpu;
}

/* From here on corrections change the model, so what it was before chooses where bits would change. */
static rondo_status begin(struct rondo_ctx *ctx)
{
    struct rondo_layout *l = &ctx->wiring.layout;
    RONDO_TRY(RONDO_NEW(ctx->calls.drift, "the corrections of the model"));
    if (!l->has_fixed) {
        l->fixed = l->model;
        l->has_fixed = 1;
    }
    l->drift = ctx->calls.drift;
    return RONDO_SUCCESS;
}

rondo_status rondo_drift_kind_of(struct rondo_ctx *ctx, const struct rondo_task *t,
                                 struct rondo_drift_kind **kind)
{
    size_t bytes = rondo_task_bytes(t);
    struct rondo_drift_kind **at, *made;
    int size;
    *kind = NULL;
    if (bytes >> RONDO_DRIFT_LEAST_BITS == 0 || !meets(t->coll) || !is_modelled(ctx)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(ctx->calls.drift == NULL ? begin(ctx) : RONDO_SUCCESS);
    size = rondo_drift_size(bytes);
    at = &ctx->calls.drift->kind[t->coll][size];
    if (*at == NULL) {
        RONDO_TRY(RONDO_NEW(made, "a kind of calls"));
        made->coll = t->coll;
        made->bits = (uint8_t)(size + RONDO_DRIFT_LEAST_BITS);
        made->left = made->stride = FIRST_STRIDE;
        *at = made;
    }
    *kind = *at;
    return RONDO_SUCCESS;
}

void rondo_drift_free(struct rondo_drift **drift)
{
    for (int i = 0; *drift != NULL && i < RONDO_NUM_COLLS * RONDO_DRIFT_SIZES; i++) {
        rondo_free((*drift)->kind[i / RONDO_DRIFT_SIZES][i % RONDO_DRIFT_SIZES]);
    }
    rondo_free(*drift);
    *drift = NULL;
}

/* ---- a sample ---- */

/* Which way carried the call? run: becomes the run that did. */
static int way_of(const struct rondo_cached *call, const struct rondo_run **run, int *in_place)
{
    const struct rondo_run *first = &call->runs[0], *last = &call->runs[call->nruns - 1];
    int by_kernel, all;
    *in_place = first->work.in == first->work.out;
    *run = last->fallback_of != NULL && last->fallback_of->verdict == RONDO_DIRECT ? first : last;
    if (rondo_algo_medium((*run)->work.algo) != RONDO_MEDIUM_DIRECT) {
        return (*run)->work.algo;
    }
    by_kernel = rondo_direct_by_kernel(first->work.direct, &all);
    *in_place = by_kernel ? all : *in_place;
    return !by_kernel ? (*run)->work.algo : all ? RONDO_WAY_KERNEL_IN_PLACE : RONDO_WAY_KERNEL_APART;
}

uint32_t rondo_drift_measured(const struct rondo_ctx *ctx, const struct rondo_cached *call, int64_t ns)
{
    const struct rondo_run *run;
    struct rondo_choice ran = { .nchannels = 0 };
    enum rondo_coll coll = (enum rondo_coll)((call->what & 0xff) - 1);
    size_t bytes = call->count * call->runs[0].work.elem_bytes *
                   (size_t)(coll == RONDO_COLL_ALL_REDUCE ? 1 : ctx->job.nranks);
    int in_place, way = way_of(call, &run, &in_place);
    double us;
    for (int i = 0; i < call->nruns; i++) {
        ran.nchannels = (uint8_t)(ran.nchannels + (call->runs[i].fallback_of == run->fallback_of));
    }
    ran.algo = run->work.algo;
    ran.proto = run->work.proto;
    us = rondo_drift_us(&ctx->wiring.layout, coll, bytes, ctx->backend->mailbox_bytes(ctx), &ran, way,
                        in_place);
    return us > 0 ? rondo_drift_sample(way, (double)ns * 1e-3 / us) : 0;
}

/* ---- votes ---- */

static void vote(struct rondo_ctx *ctx, struct rondo_drift_kind *kind, int waits)
{
    struct rondo_drift *d = ctx->calls.drift;
    uint32_t no[RONDO_VOTE_WORDS] = { against };
    d->nvotes++;
    rondo_control_vote(ctx->wiring.control, d->nvotes, waits ? kind->sample : no);
    d->voted = waits ? kind : NULL;
    d->ended = (uint8_t)!waits;
}

/* The kind's calls are chosen anew when they are made next. */
static void choose_anew(struct rondo_ctx *ctx, const struct rondo_drift_kind *kind)
{
    char text[256];
    for (int i = 0; i < RONDO_CACHED_CALLS; i++) {
        struct rondo_cached *call = &ctx->calls.cached[i];
        call->state = call->kind == kind ? RONDO_CACHED_FREE : call->state;
    }
    if (ctx->job.rank == 0) {
        RONDO_INFO(RONDO_SUBSYS_TUNING,
                   "%s: from collective #%llu on, %s of %s%llu bytes: correction %d of %d of the predicted "
                   "times: %s",
                   ctx->job.name, (unsigned long long)ctx->calls.seq + 1,
                   rondo_coll_name((enum rondo_coll)kind->coll),
                   kind->bits + 1 < RONDO_DRIFT_LEAST_BITS + RONDO_DRIFT_SIZES ? "up to " : "over ",
                   kind->bits + 1 < RONDO_DRIFT_LEAST_BITS + RONDO_DRIFT_SIZES ? (2ull << kind->bits) - 1
                                                                               : 1ull << kind->bits,
                   kind->ncorrections, RONDO_DRIFT_CORRECTIONS, rondo_drift_text(kind, text, sizeof(text)));
    }
}

/* All ranks have voted on d->voted. */
static rondo_status judge(struct rondo_ctx *ctx)
{
    struct rondo_drift *d = ctx->calls.drift;
    struct rondo_drift_kind *kind = d->voted;
    uint32_t all[RONDO_VOTE_WORDS], of_rank[RONDO_VOTE_WORDS];
    memcpy(all, kind->sample, sizeof(all));
    for (int local = 0; local < ctx->wiring.layout.nlocal; local++) {
        if (!rondo_control_vote_of(ctx->wiring.control, local, d->nvotes, of_rank)) {
            int rank = ctx->wiring.layout.local_ranks[local];
            return rondo_ctx_fail(ctx,
                                  rondo_fail(RONDO_INTERNAL_ERROR,
                                             "rank %d on %s: rank %d has not voted on the times of %s, vote "
                                             "%llu; set RONDO_RECALIBRATE=0",
                                             ctx->job.rank, rondo_log_host(), rank,
                                             rondo_coll_name((enum rondo_coll)kind->coll),
                                             (unsigned long long)d->nvotes),
                                  rank);
        }
        d->ended |= of_rank[0] == against;
        rondo_drift_merge(all, of_rank);
    }
    d->voted = NULL;
    kind->nsamples = 0;
    if (d->ended) {
        return RONDO_SUCCESS;
    }
    kind->stride = 2 * kind->stride + 1 < MOST_STRIDE ? 2 * kind->stride + 1 : MOST_STRIDE;
    if (rondo_drift_judge(kind, all)) {
        kind->stride = ANEW_STRIDE;
        choose_anew(ctx, kind);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_drift_reached(struct rondo_ctx *ctx, struct rondo_drift_kind *kind, int waits)
{
    struct rondo_drift *d = ctx->calls.drift;
    d->taken = NULL;
    if (d->voted != NULL) {
        RONDO_TRY(judge(ctx));
    }
    if (d->ended || kind->ncorrections >= RONDO_DRIFT_CORRECTIONS) {
        kind->left = UINT32_MAX;
        return RONDO_SUCCESS;
    }
    kind->left = kind->stride;
    if (kind->nsamples < RONDO_DRIFT_SAMPLES) {
        uint32_t *sample = &kind->sample[kind->nsamples++];
        *sample = 0;
        d->taken = waits ? sample : NULL;
    } else if (d->voted == NULL) {
        vote(ctx, kind, waits);
    }
    return RONDO_SUCCESS;
}
