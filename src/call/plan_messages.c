/* Sends and receives, and the calls that consist of them: gather and scatter. Contract: plan_impl.h. */
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "call/plan_impl.h"
#include "comm/backend.h"
#include "comm/links.h"

/* Have both ends asked for the lazy connection? */
static int p2p_ready(struct rondo_run *run, rondo_status *status)
{
    struct rondo_link *link = run->ready_arg;
    struct rondo_ctx *ctx = (struct rondo_ctx *)run->ready_ctx;
    *status = link->connected ? RONDO_SUCCESS : rondo_link_connect_lazy(&ctx->wiring.net, link);
    if (*status == RONDO_SUCCESS && ctx->wiring.net.limited) {
        *status = rondo_link_use(&ctx->wiring.net, link);
    }
    return *status == RONDO_SUCCESS ? 1 : *status == RONDO_IN_PROGRESS ? 0 : -1;
}

/* RONDO_MEM_LIMIT: the slots may go until the next message. */
static void p2p_rest(struct rondo_run *run)
{
    struct rondo_ctx *ctx = run->ready_ctx;
    rondo_link_rest(&ctx->wiring.net, run->ready_arg);
    run->ready = p2p_ready;
}

rondo_status rondo_plan_self_differs(const struct rondo_ctx *ctx, const struct rondo_task *send,
                                     const struct rondo_task *recv)
{
    return rondo_fail(
        RONDO_INVALID_USAGE,
        "rank %d on %s: it sends to itself %zu %s and receives %zu %s: count and type must be equal",
        ctx->job.rank, rondo_log_host(), send->count, rondo_dtype_name((rondo_dtype)send->dtype), recv->count,
        rondo_dtype_name((rondo_dtype)recv->dtype));
}

static rondo_status add_to_self(struct rondo_plan *plan, const struct rondo_task *t)
{
    int is_send = t->coll == RONDO_COLL_SEND;
    for (int i = 0; i < plan->nself; i++) {
        struct rondo_task other = plan->self[i];
        if ((other.coll == RONDO_COLL_SEND) == is_send) {
            continue;
        }
        if (other.count != t->count || other.dtype != t->dtype) {
            return rondo_plan_self_differs(plan->ctx, is_send ? t : &other, is_send ? &other : t);
        }
        memmove(&plan->self[i], &plan->self[i + 1], sizeof(other) * (size_t)(plan->nself - i - 1));
        plan->nself--;
        return rondo_plan_add_local(plan, t, is_send ? t->send : other.send, is_send ? other.recv : t->recv,
                                    t->count);
    }
    RONDO_TRY(RONDO_ARRAY_GROW(plan->self, plan->nself, plan->self_capacity, "sends to itself"));
    plan->self[plan->nself++] = *t;
    return RONDO_SUCCESS;
}

/* Put the message on record, for rondo-doctor. */
static void note_message(struct rondo_plan *plan, const struct rondo_task *t)
{
    struct rondo_call message = { .seq = ++plan->ctx->calls.messages,
                                  .count = t->count,
                                  .root = t->root,
                                  .coll = (uint8_t)t->coll,
                                  .dtype = (uint8_t)t->dtype };
    plan->last_message = message.seq;
    if (plan->first_message == 0) {
        plan->first_message = message.seq;
    }
    rondo_control_message_begin(plan->ctx->wiring.control, &message);
}

rondo_status rondo_plan_add_p2p(struct rondo_plan *plan, const struct rondo_task *t, uint64_t seq)
{
    struct rondo_ctx *ctx = plan->ctx;
    int is_send = t->coll == RONDO_COLL_SEND, peer = t->root;
    struct rondo_task agreed = { .coll = RONDO_COLL_SEND, .dtype = t->dtype, .count = t->count, .ctx = ctx };
    struct rondo_p2p *p2p;
    struct rondo_run *run;
    struct rondo_work *w;
    if (peer == ctx->job.rank) {
        return t->count > 0 ? add_to_self(plan, t) : RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_p2p_get(ctx, peer, is_send, &p2p));
    p2p->calls[is_send]++;
    if (seq == 0 && !ctx->backend->is_gpu) { /* the end of a GPU's is not known */
        note_message(plan, t);
    }
    if (t->count == 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_plan_next_run(plan, &run));
    w = &run->work;
    rondo_plan_fill_op(w, t);
    run->schedule = rondo_schedule_first((enum rondo_coll)t->coll, RONDO_MEDIUM_CONNS);
    w->coll = t->coll;
    w->algo = run->schedule->algo;
    w->proto = (uint8_t)rondo_message_proto(&p2p->link[is_send], t->count * w->elem_bytes);
    w->call_word = rondo_call_word(p2p->calls[is_send], rondo_task_hash(&agreed));
    w->seq = seq;
    w->in = t->send;
    w->out = t->recv;
    w->block = w->len = t->count;
    w->chunk = t->count; /* the executor cuts it into slices */
    w->ports = &p2p->ports[is_send];
    run->lane = (uint32_t)(ctx->wiring.layout.nchannels + 2 * peer + is_send);
    rondo_seat_of(&ctx->wiring.layout, 0, (enum rondo_algo)w->algo, (enum rondo_coll)t->coll, peer, &w->seat);
    /* Another thread may be connecting it for a queued message; pairs with the release in
     * rondo_link_connect_lazy(). */
    if (ctx->wiring.net.limited || !__atomic_load_n(&p2p->link[is_send].connected, __ATOMIC_ACQUIRE)) {
        run->ready = p2p_ready;
        run->ready_arg = &p2p->link[is_send];
        run->ready_ctx = ctx;
        run->ended = ctx->wiring.net.limited ? p2p_rest : NULL;
    }
    rondo_run_begin(run);
    return RONDO_SUCCESS;
}

rondo_status rondo_plan_add_message(struct rondo_plan *plan, const struct rondo_task *t, int is_send,
                                    int peer, const void *send, void *recv, size_t count)
{
    struct rondo_task message = { .ctx = t->ctx,
                                  .coll = is_send ? RONDO_COLL_SEND : RONDO_COLL_RECV,
                                  .dtype = t->dtype,
                                  .root = peer,
                                  .send = send,
                                  .recv = recv,
                                  .count = count };
    return rondo_plan_add_p2p(plan, &message, plan->ctx->calls.seq);
}

rondo_status rondo_plan_add_rooted(struct rondo_plan *plan, const struct rondo_task *t)
{
    struct rondo_ctx *ctx = plan->ctx;
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype);
    int gather = t->coll == RONDO_COLL_GATHER || t->coll == RONDO_COLL_GATHERV;
    char *own;
    if (ctx->job.rank != t->root) {
        return rondo_plan_add_message(plan, t, gather, t->root, t->send, t->recv, t->count);
    }
    for (int d = 1; d < ctx->job.nranks; d++) {
        int peer = (ctx->job.rank + d) % ctx->job.nranks;
        size_t at = (t->counts != NULL ? t->displs[peer] : (size_t)peer * t->count) * elem;
        const char *from = gather ? NULL : (const char *)t->send + at;
        char *to = gather ? (char *)t->recv + at : NULL;
        RONDO_TRY(rondo_plan_add_message(plan, t, !gather, peer, from, to,
                                         t->counts != NULL ? t->counts[peer] : t->count));
    }
    own = (char *)(gather ? t->recv : (void *)t->send) +
          (t->counts != NULL ? t->displs[t->root] : (size_t)t->root * t->count) * elem;
    return gather ? rondo_plan_add_local(plan, t, t->send, own, t->count)
                  : rondo_plan_add_local(plan, t, own, t->recv, t->count);
}

static rondo_status no_partner(const struct rondo_task *t)
{
    return rondo_fail(RONDO_INVALID_USAGE,
                      "rank %d on %s: a %s of %zu %s with itself has no partner in its group: put both "
                      "between rondo_group_start and rondo_group_end",
                      t->ctx->job.rank, rondo_log_host(), t->coll == RONDO_COLL_SEND ? "send" : "receive",
                      t->count, rondo_dtype_name((rondo_dtype)t->dtype));
}

rondo_status rondo_plan_check(const struct rondo_plan *plan)
{
    return RONDO_LIKELY(plan->nself == 0) ? RONDO_SUCCESS : no_partner(plan->self);
}

/* One of no elements needs no partner. */
static int is_to_self(const struct rondo_task *t)
{
    return (t->coll == RONDO_COLL_SEND || t->coll == RONDO_COLL_RECV) && t->root == t->ctx->job.rank &&
           t->count > 0;
}

rondo_status rondo_plan_check_selves(const struct rondo_task *tasks, int n)
{
    char *matched = NULL;
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        const struct rondo_task *t = &tasks[i];
        int j = i + 1;
        if (!is_to_self(t)) {
            continue;
        }
        if (matched == NULL) {
            RONDO_TRY(RONDO_NEW_ARRAY(matched, n, "the calls of a group"));
        }
        if (matched[i]) {
            continue;
        }
        while (j < n &&
               (matched[j] || !is_to_self(&tasks[j]) || tasks[j].ctx != t->ctx || tasks[j].coll == t->coll)) {
            j++;
        }
        if (j == n) {
            status = no_partner(t);
        } else if (tasks[j].count != t->count || tasks[j].dtype != t->dtype) {
            status = t->coll == RONDO_COLL_SEND ? rondo_plan_self_differs(t->ctx, t, &tasks[j])
                                                : rondo_plan_self_differs(t->ctx, &tasks[j], t);
        } else {
            matched[j] = 1;
        }
    }
    rondo_free(matched);
    return status;
}
