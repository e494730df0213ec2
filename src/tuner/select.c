/* Which algorithms carry a call: the tuner's choice, or what stands in its place; and in which pieces. */
#include <stdio.h>

#include "base/log.h"
#include "coll/chunk.h"
#include "comm/comm.h"
#include "gpu/device.h"
#include "kern/proto.h"
#include "tuner/tune_file.h"

size_t rondo_task_bytes(const struct rondo_task *t)
{
    size_t n = t->count, elem = rondo_dtype_size((rondo_dtype)t->dtype);
    enum rondo_coll as = rondo_coll_scheduled_as((enum rondo_coll)t->coll);
    if (t->counts != NULL) {
        n = 0;
        for (int r = 0; r < t->ctx->nranks; r++) {
            n += t->counts[r];
        }
    } else if (as == RONDO_COLL_ALL_GATHER || as == RONDO_COLL_REDUCE_SCATTER ||
               t->coll == RONDO_COLL_ALL_TO_ALL) {
        n *= (size_t)t->ctx->nranks;
    }
    return n * elem;
}

/* Payload bytes of a place that all ranks of the node read; 0: there is none. */
static size_t mailbox_of(const struct rondo_ctx *ctx)
{
    return ctx->device != NULL    ? rondo_device_mailbox_bytes(ctx)
           : ctx->mailbox != NULL ? ctx->mailbox->capacity
                                  : 0;
}

/* The tuner's whole table in one line: "ring simple x1 12.3, tree ll128 x2 4.5, ..", in us; what cannot run
 * is left out. */
static void log_table(const struct rondo_ctx *ctx, enum rondo_coll coll, size_t bytes, size_t mailbox)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    char text[512] = "";
    size_t at = 0;
    rondo_cost_table(&ctx->layout, &ctx->allowed, coll, bytes, mailbox, table);
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            const struct rondo_choice *c = &table[a][p];
            if (c->us >= 0 && at < sizeof(text)) {
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %s x%d %.2f", at > 0 ? ", " : "",
                                       rondo_algo_name((enum rondo_algo)a),
                                       rondo_proto_name((enum rondo_proto)p), c->nchannels, c->us);
            }
        }
    }
    RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s of %zu bytes, predicted us: %s", ctx->rank,
               rondo_coll_name(coll), bytes, text);
}

/* Over which groups it goes: each way between two of a level's, of those that a tree over them has, is passed
 * by all of the buffer once in each direction, which is the least there can be. */
static void log_nest(const struct rondo_ctx *ctx, size_t bytes)
{
    const struct rondo_group_levels *levels = &ctx->layout.model.levels;
    char text[128], edges[128];
    RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: hierarchical over %s; 2 x %zu bytes over each of: %s",
               ctx->rank, rondo_levels_text(levels, ctx->nranks, text, sizeof(text)), bytes,
               rondo_levels_edges_text(levels, ctx->nranks, 0, edges, sizeof(edges)));
}

static rondo_status choose(struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice *choice)
{
    size_t bytes = rondo_task_bytes(t), mailbox = mailbox_of(ctx);
    if (RONDO_UNLIKELY(ctx->forced != NULL)) {
        *choice = *ctx->forced;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(
        rondo_cost_choose(&ctx->layout, &ctx->allowed, (enum rondo_coll)t->coll, bytes, mailbox, choice));
    if (t->counts != NULL) {
        choice->nchannels = 1; /* blocks of different lengths are not cut further */
    }
    if (rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_TUNING)) {
        log_table(ctx, (enum rondo_coll)t->coll, bytes, mailbox);
        RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s of %zu bytes: %s, %s, %d channel%s", ctx->rank,
                   rondo_coll_name((enum rondo_coll)t->coll), bytes,
                   rondo_algo_name((enum rondo_algo)choice->algo),
                   rondo_proto_name((enum rondo_proto)choice->proto), choice->nchannels,
                   choice->nchannels == 1 ? "" : "s");
        if (choice->algo == RONDO_ALGO_HIERARCHICAL) {
            log_nest(ctx, bytes);
        }
    }
    return RONDO_SUCCESS;
}

/* What carries a call on memory that is not open. */
static rondo_status choose_other(struct rondo_ctx *ctx, const struct rondo_task *t,
                                 struct rondo_choice *choice)
{
    RONDO_TRY(rondo_cost_choose_other(&ctx->layout, &ctx->allowed, (enum rondo_coll)t->coll,
                                      rondo_task_bytes(t), mailbox_of(ctx), RONDO_ALGO_TWOSHOT,
                                      rondo_tune_is_strict(), choice));
    if (t->counts != NULL) {
        choice->nchannels = 1;
    }
    return RONDO_SUCCESS;
}

/* A measured choice was so on memory that is not open: what opens buffers is for that which is, if it is
 * predicted to be faster there. */
static void prefer_open(const struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice *choice)
{
    enum rondo_coll coll = (enum rondo_coll)t->coll;
    int measured = choice->measured && ctx->mailbox != NULL;
    for (int a = 0; measured && a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_algo_opens((enum rondo_algo)a)
                                                    ? rondo_schedule_find(coll, (enum rondo_algo)a)
                                                    : NULL;
        double us = schedule != NULL && (ctx->allowed.protos[coll][a] & schedule->protos) != 0
                        ? schedule->cost_us(&ctx->layout, coll, RONDO_PROTO_SIMPLE, 1, rondo_task_bytes(t),
                                            ctx->mailbox->capacity)
                        : -1;
        if (us >= 0 && us < choice->us) {
            *choice = (struct rondo_choice){
                .algo = (uint8_t)a, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = us
            };
        }
    }
}

/* all_to_all in one work, as all_gather's. us < 0: not so. */
static struct rondo_choice exchange_by(const struct rondo_ctx *ctx, enum rondo_algo algo, size_t bytes)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(RONDO_COLL_ALL_GATHER, algo);
    struct rondo_choice with = {
        .algo = (uint8_t)algo, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = -1
    };
    if (ctx->open_buffers != NULL &&
        (ctx->allowed.protos[RONDO_COLL_ALL_TO_ALL][algo] & schedule->protos) != 0) {
        with.us = schedule->cost_us(&ctx->layout, RONDO_COLL_ALL_GATHER, RONDO_PROTO_SIMPLE, 1, bytes,
                                    mailbox_of(ctx));
    }
    return with;
}

/*
 * all_to_all is made of messages; where ranks see one another's memory, of one work as all_gather's, in which
 * everyone takes another block: over the mailbox, which need not ask whose memory is open, or over open
 * buffers. @return how many choices: 2: open buffers, and what carries it on memory that is not open.
 */
static int choose_all_to_all(const struct rondo_ctx *ctx, const struct rondo_task *t,
                             struct rondo_choice choice[2])
{
    static const struct rondo_choice none;
    size_t bytes = rondo_task_bytes(t);
    struct rondo_choice posts = exchange_by(ctx, RONDO_ALGO_ONESHOT, bytes),
                        open = exchange_by(ctx, RONDO_ALGO_TWOSHOT, bytes),
                        other = { .algo = RONDO_ALGO_P2P, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1 };
    int opens;
    other.us = rondo_p2p_cost_us(&ctx->layout, RONDO_COLL_ALL_TO_ALL, RONDO_PROTO_SIMPLE, 1, bytes,
                                 mailbox_of(ctx));
    other = posts.us >= 0 && rondo_choice_better(&posts, &other) ? posts : other;
    opens = open.us >= 0 && rondo_choice_better(&open, &other);
    choice[0] = opens ? open : other;
    choice[1] = opens ? other : none;
    RONDO_INFO(
        RONDO_SUBSYS_TUNING,
        "rank %d: all_to_all of %zu bytes: %s, %.2f us predicted; on memory that is not open %s, %.2f us",
        ctx->rank, bytes, rondo_algo_name((enum rondo_algo)choice[0].algo), choice[0].us,
        rondo_algo_name((enum rondo_algo)other.algo), other.us);
    return opens ? 2 : 1;
}

int rondo_plan_choose(struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice choice[2],
                      rondo_status *status)
{
    static const struct rondo_choice none;
    if (t->coll == RONDO_COLL_ALL_TO_ALL) {
        *status = RONDO_SUCCESS;
        return choose_all_to_all(ctx, t, choice);
    }
    *status = choose(ctx, t, &choice[0]);
    choice[1] = none;
    if (*status == RONDO_SUCCESS && ctx->forced == NULL) {
        prefer_open(ctx, t, &choice[0]);
    }
    if (*status != RONDO_SUCCESS || !rondo_algo_opens((enum rondo_algo)choice[0].algo)) {
        return *status == RONDO_SUCCESS;
    }
    if (ctx->device != NULL && t->op < RONDO_NUM_OPS) {
        return 1; /* its kernel finds out what is open, and does without */
    }
    *status = choose_other(ctx, t, &choice[1]);
    if (*status != RONDO_SUCCESS) {
        return 0;
    }
    if (t->op >= RONDO_NUM_OPS || ctx->open_buffers == NULL) { /* other ranks' scalars are not known */
        choice[0] = choice[1];
        choice[1] = none;
        return 1;
    }
    return 2;
}

void rondo_plan_force(struct rondo_ctx *ctx, const struct rondo_choice *choice)
{
    ctx->forced = choice;
    for (int i = 0; i < RONDO_CACHED_CALLS; i++) {
        ctx->cached[i].state = RONDO_CACHED_NOT;
    }
}

/* ---- in which pieces ---- */

/* Elements that a schedule moves at once: half of a conn's buffer, so that one half is filled while the other
 * is emptied; trees and chains one slot, for depth. */
static size_t chunk_of(const struct rondo_ctx *ctx, const struct rondo_work *w, enum rondo_map map)
{
    size_t payload = rondo_proto_capacity((enum rondo_proto)w->proto, ctx->net.slot_bytes[w->proto]);
    size_t line = RONDO_CACHE_LINE / w->elem_bytes, most, share, nloops;
    if (map == RONDO_MAP_WHOLE) {
        return payload / w->elem_bytes;
    }
    most = rondo_max_size(payload * (RONDO_SLOTS / 2) / w->elem_bytes / line * line, line);
    share = map == RONDO_MAP_SPLIT ? (w->len + (size_t)w->seat.nranks - 1) / (size_t)w->seat.nranks : w->len;
    nloops = (share + most - 1) / most;
    share = nloops == 0 ? most : (share + nloops - 1) / nloops; /* equal loops: no short one at the end */
    return rondo_round_up(share, line);
}

/* Open buffers have no slots: all in one loop. */
static size_t whole_chunk(const struct rondo_work *w, enum rondo_map map)
{
    size_t chunk = map == RONDO_MAP_SPLIT ? (w->len + (size_t)w->seat.nranks - 1) / (size_t)w->seat.nranks
                                          : w->len;
    for (int r = 0; w->counts != NULL && r < w->seat.nranks; r++) {
        chunk = rondo_max_size(chunk, w->counts[r]);
    }
    return rondo_round_up(chunk, RONDO_CACHE_LINE / w->elem_bytes);
}

/* Two ranks post what a place of their mailbox holds, others all at once. */
static size_t posted_chunk(const struct rondo_ctx *ctx, const struct rondo_work *w, enum rondo_map map)
{
    size_t line = RONDO_CACHE_LINE / w->elem_bytes, nloops;
    if (!rondo_is_pair(&ctx->layout) || w->counts != NULL || rondo_coll_has_root((enum rondo_coll)w->coll) ||
        ctx->mailbox == NULL) {
        return whole_chunk(w, map);
    }
    nloops = (w->len * w->elem_bytes + ctx->mailbox->capacity - 1) / ctx->mailbox->capacity;
    return nloops > 1 ? rondo_round_up((w->len + nloops - 1) / nloops, line) : whole_chunk(w, map);
}

/* Channel c of n: an equal part of `count`, in whole lines. */
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

void rondo_plan_cut(const struct rondo_ctx *ctx, struct rondo_work *w, const struct rondo_task *t,
                    enum rondo_map map, int channel, int nchannels)
{
    channel_part(w, t->count, channel, nchannels);
    if (w->algo == RONDO_ALGO_HIERARCHICAL) {
        w->chunk = rondo_min_size(whole_chunk(w, map), rondo_hierarchical_chunk(&ctx->layout, w->elem_bytes));
    } else if (w->algo == RONDO_ALGO_ONESHOT) {
        w->chunk = posted_chunk(ctx, w, map);
    } else if (w->algo == RONDO_ALGO_TWOSHOT) {
        w->chunk = whole_chunk(w, map);
    } else if (t->counts != NULL) {
        struct rondo_work longest = *w;
        for (int r = 0; r < ctx->nranks; r++) {
            longest.len = rondo_max_size(longest.len, t->counts[r]);
        }
        w->chunk = chunk_of(ctx, &longest, map);
    } else {
        w->chunk = chunk_of(ctx, w, map);
    }
}
