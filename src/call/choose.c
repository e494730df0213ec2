/* Ask the tuner which runs carry a call, and cut the call into their pieces. */
#include "call/choose.h"

#include "coll/chunk.h"
#include "comm/backend.h"
#include "kern/proto.h"
#include "tuner/plugin.h"
#include "tuner/tuner.h"

size_t rondo_task_bytes(const struct rondo_task *t)
{
    size_t n = t->count, elem = rondo_dtype_size((rondo_dtype)t->dtype);
    enum rondo_coll as = rondo_coll_scheduled_as((enum rondo_coll)t->coll);
    if (t->counts != NULL) {
        n = 0;
        for (int r = 0; r < t->ctx->job.nranks; r++) {
            n += t->counts[r];
        }
    } else if (as == RONDO_COLL_ALL_GATHER || as == RONDO_COLL_REDUCE_SCATTER ||
               t->coll == RONDO_COLL_ALL_TO_ALL) {
        n *= (size_t)t->ctx->job.nranks;
    }
    return n * elem;
}

rondo_status rondo_plan_choose(struct rondo_ctx *ctx, const struct rondo_task *t,
                               struct rondo_selection *selection)
{
    struct rondo_select_input in = { .layout = &ctx->wiring.layout,
                                     .allowed = &ctx->running.allowed,
                                     .forced = ctx->running.forced,
                                     .coll = (enum rondo_coll)t->coll,
                                     .bytes = rondo_task_bytes(t),
                                     .uneven = t->counts != NULL,
                                     .private_scalar = t->op >= RONDO_NUM_OPS,
                                     .mailbox = ctx->backend->mailbox_bytes(ctx),
                                     .gpu = ctx->backend->is_gpu,
                                     .direct = ctx->wiring.direct != NULL,
                                     .plugin = ctx->running.tuner };
    return rondo_select(&in, selection);
}

void rondo_plan_force(struct rondo_ctx *ctx, const struct rondo_choice *choice)
{
    ctx->running.forced = choice;
    for (int i = 0; i < RONDO_CACHED_CALLS; i++) {
        ctx->calls.cached[i].state = RONDO_CACHED_FREE;
    }
}

/* ---- in which pieces ---- */

/* Elements that a schedule moves at once: half of a conn's buffer, so that the sender fills one half while
 * the receiver empties the other. Trees and chains take one slot, because their depth counts. */
static size_t chunk_of(const struct rondo_ctx *ctx, const struct rondo_work *w, enum rondo_map map)
{
    size_t payload = rondo_proto_capacity((enum rondo_proto)w->proto, ctx->wiring.net.slot_bytes[w->proto]);
    size_t line = RONDO_CACHE_LINE / w->elem_bytes, most, share, nloops;
    if (map == RONDO_MAP_WHOLE) {
        return payload / w->elem_bytes;
    }
    most = rondo_max_size(payload * (RONDO_SLOTS / 2) / w->elem_bytes / line * line, line);
    share = map == RONDO_MAP_SPLIT ? (w->len + (size_t)w->seat.nranks - 1) / (size_t)w->seat.nranks : w->len;
    nloops = (share + most - 1) / most;
    share = nloops == 0
                ? most
                : (share + nloops - 1) / nloops; /* loops of equal length, without a short one at the end */
    return rondo_round_up(share, line);
}

/* Direct access has no slots: one loop moves everything. */
static size_t whole_chunk(const struct rondo_work *w, enum rondo_map map)
{
    size_t chunk = map == RONDO_MAP_SPLIT ? (w->len + (size_t)w->seat.nranks - 1) / (size_t)w->seat.nranks
                                          : w->len;
    for (int r = 0; w->counts != NULL && r < w->seat.nranks; r++) {
        chunk = rondo_max_size(chunk, w->counts[r]);
    }
    return rondo_round_up(chunk, RONDO_CACHE_LINE / w->elem_bytes);
}

/* Two ranks publish in pieces of one place of the mailbox, and two-shot in pieces of which a place has one
 * for each rank; else all is published at once. */
static size_t published_chunk(const struct rondo_ctx *ctx, const struct rondo_work *w, enum rondo_map map)
{
    size_t line = RONDO_CACHE_LINE / w->elem_bytes, whole = whole_chunk(w, map), len = w->len, most, nloops;
    if (map == RONDO_MAP_SPLIT) {
        len = whole;
        most = ctx->wiring.mailbox->capacity / (size_t)w->seat.nranks / w->elem_bytes / line * line;
    } else if (!rondo_is_pair(&ctx->wiring.layout) || w->counts != NULL ||
               rondo_coll_has_root((enum rondo_coll)w->coll) || ctx->wiring.mailbox == NULL) {
        return whole;
    } else {
        most = ctx->wiring.mailbox->capacity / w->elem_bytes;
    }
    nloops = (len + most - 1) / most;
    return nloops > 1 ? rondo_round_up((len + nloops - 1) / nloops, line) : whole;
}

/* Give channel c of n an equal part of `count`, in whole cache lines. */
static void channel_part(struct rondo_work *w, size_t count, int c, int n)
{
    size_t line = RONDO_CACHE_LINE / w->elem_bytes, part;
    if (n == 1) {
        w->off = 0;
        w->len = count;
        return;
    }
    part = rondo_round_up((count + (size_t)n - 1) / (size_t)n, line);
    w->off = rondo_min_size(part * (size_t)c, count);
    w->len = rondo_min_size(part, count - w->off);
}

/* A plugin may ask for less at once than fits: whole cache lines, at least one. */
static size_t chunk_by_plugin(const struct rondo_ctx *ctx, const struct rondo_work *w,
                              const struct rondo_task *t, int nchannels)
{
    size_t line = RONDO_CACHE_LINE / w->elem_bytes,
           theirs = rondo_tuner_plugin_chunk(ctx->running.tuner, (enum rondo_coll)t->coll,
                                             rondo_task_bytes(t), (enum rondo_algo)w->algo,
                                             (enum rondo_proto)w->proto, nchannels,
                                             w->chunk * w->elem_bytes) /
                    w->elem_bytes;
    return theirs < w->chunk ? rondo_max_size(theirs / line * line, line) : w->chunk;
}

void rondo_plan_cut(const struct rondo_ctx *ctx, struct rondo_work *w, const struct rondo_task *t,
                    enum rondo_map map, int channel, int nchannels)
{
    channel_part(w, t->count, channel, nchannels);
    if (rondo_algo_seating(w->algo) == RONDO_SEATING_GROUPS) {
        w->chunk = rondo_min_size(whole_chunk(w, map),
                                  rondo_groups_chunk(&ctx->wiring.layout, w->elem_bytes));
    } else if (rondo_algo_medium(w->algo) == RONDO_MEDIUM_MAILBOX) {
        w->chunk = published_chunk(ctx, w, map);
    } else if (rondo_algo_medium(w->algo) == RONDO_MEDIUM_DIRECT) {
        w->chunk = whole_chunk(w, map);
    } else if (t->counts != NULL) {
        struct rondo_work longest = *w;
        for (int r = 0; r < ctx->job.nranks; r++) {
            longest.len = rondo_max_size(longest.len, t->counts[r]);
        }
        w->chunk = chunk_of(ctx, &longest, map);
    } else {
        w->chunk = chunk_of(ctx, w, map);
        if (RONDO_UNLIKELY(ctx->running.tuner != NULL)) {
            w->chunk = chunk_by_plugin(ctx, w, t, nchannels);
        }
    }
}
