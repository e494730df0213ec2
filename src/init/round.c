/* One round of creation: an allgather of records, each of which begins with the sender's status, or an
 * agreement on a status alone. */
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "init/phases.h"

enum { GRACE_NS = 300000000 }; /* for records that are on their way when the communicator has ended */

void rondo_init_keep(struct rondo_init *init, rondo_status status)
{
    if (status != RONDO_SUCCESS && init->local == RONDO_SUCCESS) {
        init->local = status;
        snprintf(init->local_text, sizeof(init->local_text), "%s", rondo_error_text());
    }
}

rondo_status rondo_init_new_round(struct rondo_init *init, size_t bytes, int n)
{
    rondo_free(init->mine);
    rondo_free(init->all);
    init->mine = init->all = NULL;
    init->bytes = bytes;
    RONDO_TRY(rondo_calloc(&init->mine, 1, bytes, "a record of creation"));
    return rondo_calloc(&init->all, (size_t)n, bytes, "the records of creation");
}

void rondo_init_set_head(const struct rondo_init *init)
{
    *(struct rondo_round_head *)init->mine = (struct rondo_round_head){ RONDO_PEER_MAGIC, init->local };
}

static void set_text(const struct rondo_init *init, rondo_round_text text)
{
    text[0] = '\0';
    if (init->local != RONDO_SUCCESS && !init->heard) {
        rondo_fail_quiet(init->local, "%s", init->local_text);
        rondo_round_text_fill(text, init->ctx->job.rank);
    }
}

static struct rondo_round_verdict verdict_of(const struct rondo_init *init)
{
    return (struct rondo_round_verdict){ .head = { RONDO_PEER_MAGIC, init->local },
                                         .rank = init->bootstrap->rank,
                                         .has_text = init->local != RONDO_SUCCESS && !init->heard };
}

rondo_status rondo_init_allgather(struct rondo_init *init)
{
    rondo_init_set_head(init);
    init->heads = RONDO_ROUND_HEADS;
    return init->bootstrap->ops->allgather_start(init->bootstrap, init->mine, init->all, init->bytes);
}

rondo_status rondo_init_agree(struct rondo_init *init)
{
    struct rondo_bootstrap *b = init->bootstrap;
    if (b->ops->reduce_start == NULL || init->near) { /* near, all records are one hop away */
        RONDO_TRY(rondo_init_new_round(init, sizeof(struct rondo_round_head), b->nranks));
        return rondo_init_allgather(init);
    }
    return rondo_init_agree_with(init, init->verdict, sizeof(init->verdict[0]), rondo_round_merge_verdicts);
}

rondo_status rondo_init_agree_with(struct rondo_init *init, struct rondo_round_verdict *record, size_t bytes,
                                   void (*merge)(void *into, const void *from))
{
    init->heads = RONDO_ROUND_VERDICT;
    init->agreed = record;
    *record = verdict_of(init);
    return init->bootstrap->ops->reduce_start(init->bootstrap, record, bytes, merge);
}

static rondo_status start_texts(struct rondo_init *init)
{
    struct rondo_bootstrap *b = init->bootstrap;
    init->heads = RONDO_ROUND_TEXTS;
    init->ended_ns = 0;
    if (b->ops->reduce_start != NULL) {
        RONDO_TRY(RONDO_NEW_ARRAY(init->reason, RONDO_ROUNDS_REDUCED, "the ranks' error messages"));
        init->reason->verdict = verdict_of(init);
        set_text(init, init->reason->text);
        return b->ops->reduce_start(b, init->reason, sizeof(*init->reason), rondo_round_merge_reasons);
    }
    set_text(init, init->text);
    RONDO_TRY(RONDO_NEW_ARRAY(init->texts, b->nranks, "the ranks' error messages"));
    return b->ops->allgather_start(b, init->text, init->texts, sizeof(init->text));
}

/* A rank of this node may have ended the communicator. But one that has passed its last round may also have
 * destroyed the communicator; its records then still arrive. Those of a dead rank never do. */
static rondo_status test_or_hear(struct rondo_init *init)
{
    rondo_status status = init->bootstrap->ops->test(init->bootstrap);
    if (status == RONDO_SUCCESS || init->ctx->wiring.control == NULL ||
        !rondo_control_aborted(init->ctx->wiring.control)) {
        return status;
    }
    if (status != RONDO_IN_PROGRESS) { /* perhaps that rank's exit: its reason came first */
        return rondo_init_in_progress(init->ctx);
    }
    if (init->ended_ns == 0) {
        init->ended_ns = rondo_now_ns();
    }
    return rondo_now_ns() - init->ended_ns < GRACE_NS ? status : rondo_init_in_progress(init->ctx);
}

static int has_failed(const struct rondo_init *init)
{
    switch (init->heads) {
    case RONDO_ROUND_HEADS: return rondo_round_failed(init->all, init->bytes, init->bootstrap->nranks);
    case RONDO_ROUND_VERDICT: return rondo_round_verdict_failed(init->agreed);
    default: return 0;
    }
}

rondo_status rondo_init_test_round(struct rondo_init *init)
{
    RONDO_TRY(test_or_hear(init));
    if (!has_failed(init)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(start_texts(init));
    return RONDO_IN_PROGRESS;
}

rondo_status rondo_init_check_round(struct rondo_init *init)
{
    int has_heads = init->heads == RONDO_ROUND_HEADS || init->heads == RONDO_ROUND_TEXTS;
    init->heads = RONDO_ROUND_NO_HEADS;
    if (init->reason != NULL) { /* there is one only after a verdict that failed */
        RONDO_TRY(rondo_round_reason_check(init->reason));
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d on %s: a round of the creation failed, and no rank says why",
                          init->ctx->job.rank, rondo_log_host());
    }
    return has_heads ? rondo_round_check(init->all, init->bytes, init->bootstrap->nranks, init->texts)
                     : RONDO_SUCCESS;
}

void *rondo_init_record(const struct rondo_init *init, int rank)
{
    return (char *)init->all + (size_t)rank * init->bytes;
}

/* The text is that of a round's record: some ranks read it there first. */
void rondo_init_keep_and_tell(struct rondo_init *init, rondo_status status)
{
    rondo_round_text text;
    rondo_init_keep(init, status);
    if (status != RONDO_SUCCESS && init->ctx->wiring.control != NULL) {
        set_text(init, text);
        rondo_control_abort(init->ctx->wiring.control, status, init->ctx->job.rank, text);
    }
}

rondo_status rondo_init_look_out(struct rondo_init *init)
{
    const struct rondo_bootstrap_ops *ops = init->bootstrap->ops;
    int late = init->deadline_ns != 0 && rondo_now_ns() > init->deadline_ns;
    return ops->look != NULL ? ops->look(init->bootstrap, late) : RONDO_SUCCESS;
}

rondo_status rondo_init_in_progress(struct rondo_ctx *ctx)
{
    char text[RONDO_ERROR_TEXT];
    int whose;
    rondo_status status;
    if (ctx->wiring.control == NULL || !rondo_control_aborted(ctx->wiring.control)) {
        return RONDO_IN_PROGRESS;
    }
    status = rondo_control_reason(ctx->wiring.control, text, &whose);
    return rondo_fail_quiet(status == RONDO_SUCCESS ? RONDO_REMOTE_ERROR : status, "%s", text);
}
