/* Which algorithms carry a call: the tuner's choice, or what stands in its place. */
#include <stdio.h>

#include "base/log.h"
#include "comm.h"
#include "tune.h"

size_t rondo_task_bytes(const struct rondo_task *t)
{
    size_t n = t->count, elem = rondo_dtype_size((rondo_dtype)t->dtype);
    enum rondo_coll as = rondo_coll_scheduled_as((enum rondo_coll)t->coll);
    if (t->counts != NULL) {
        n = 0;
        for (int r = 0; r < t->ctx->nranks; r++) {
            n += t->counts[r];
        }
    } else if (as == RONDO_COLL_ALL_GATHER || as == RONDO_COLL_REDUCE_SCATTER) {
        n *= (size_t)t->ctx->nranks;
    }
    return n * elem;
}

/* The tuner's whole table in one line: "ring simple x1 12.3, tree ll128 x2 4.5, ..", in us; what cannot run is left out. */
static void log_table(const struct rondo_ctx *ctx, enum rondo_coll coll, size_t bytes, size_t board)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    char text[512] = "";
    size_t at = 0;
    rondo_cost_table(&ctx->layout, &ctx->allowed, coll, bytes, board, table);
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            const struct rondo_choice *c = &table[a][p];
            if (c->us >= 0 && at < sizeof(text)) {
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %s x%d %.2f", at > 0 ? ", " : "",
                                       rondo_algo_name((enum rondo_algo)a), rondo_proto_name((enum rondo_proto)p), c->nchannels, c->us);
            }
        }
    }
    RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s of %zu bytes, predicted us: %s", ctx->rank, rondo_coll_name(coll), bytes, text);
}

static rondo_status choose(struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice *choice)
{
    size_t bytes = rondo_task_bytes(t), board = ctx->board != NULL ? ctx->board->capacity : 0;
    if (RONDO_UNLIKELY(ctx->forced != NULL)) {
        *choice = *ctx->forced;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_cost_choose(&ctx->layout, &ctx->allowed, (enum rondo_coll)t->coll, bytes, board, choice));
    if (t->counts != NULL) {
        choice->nchannels = 1; /* blocks of different lengths are not cut further */
    }
    if (rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_TUNING)) {
        log_table(ctx, (enum rondo_coll)t->coll, bytes, board);
        RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s of %zu bytes: %s, %s, %d channel%s", ctx->rank,
                   rondo_coll_name((enum rondo_coll)t->coll), bytes, rondo_algo_name((enum rondo_algo)choice->algo),
                   rondo_proto_name((enum rondo_proto)choice->proto), choice->nchannels, choice->nchannels == 1 ? "" : "s");
    }
    return RONDO_SUCCESS;
}

/* What carries a call on memory that is not open. */
static rondo_status choose_other(struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice *choice)
{
    RONDO_TRY(rondo_cost_choose_other(&ctx->layout, &ctx->allowed, (enum rondo_coll)t->coll, rondo_task_bytes(t),
                                      ctx->board != NULL ? ctx->board->capacity : 0, RONDO_ALGO_TWOSHOT, rondo_tune_is_strict(), choice));
    if (t->counts != NULL) {
        choice->nchannels = 1;
    }
    return RONDO_SUCCESS;
}

/* A measured choice was so on memory that is not open: two-shot is for that which is, if it is predicted to be faster there. */
static void prefer_open(const struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice *choice)
{
    enum rondo_coll coll = (enum rondo_coll)t->coll;
    const struct rondo_schedule *schedule = rondo_schedule_find(coll, RONDO_ALGO_TWOSHOT);
    double us;
    if (!choice->measured || schedule == NULL || ctx->board == NULL ||
        (ctx->allowed.protos[coll][RONDO_ALGO_TWOSHOT] & schedule->protos) == 0) {
        return;
    }
    us = schedule->cost_us(&ctx->layout, coll, RONDO_PROTO_SIMPLE, 1, rondo_task_bytes(t), ctx->board->capacity);
    if (us >= 0 && us < choice->us) {
        *choice = (struct rondo_choice){ .algo = RONDO_ALGO_TWOSHOT, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = us };
    }
}

int rondo_plan_choose(struct rondo_ctx *ctx, const struct rondo_task *t, struct rondo_choice choice[2], rondo_status *status)
{
    static const struct rondo_choice none;
    *status = choose(ctx, t, &choice[0]);
    choice[1] = none;
    if (*status == RONDO_SUCCESS && ctx->forced == NULL) {
        prefer_open(ctx, t, &choice[0]);
    }
    if (*status != RONDO_SUCCESS || choice[0].algo != RONDO_ALGO_TWOSHOT) {
        return *status == RONDO_SUCCESS;
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
        ctx->cached[i].valid = 0;
    }
}
