/* Phase "ready": all ranks know that all have connected. Then the control plane starts, if it does not run
 * already (near). */
#include "base/fault.h"
#include "base/mem.h"
#include "call/wait.h"
#include "comm/backend.h"
#include "init/phases.h"

static rondo_status prepare_exec(struct rondo_ctx *ctx)
{
    RONDO_TRY(rondo_fault("ready", ctx->job.rank, 0));
    return ctx->backend->open_exec(ctx);
}

rondo_status rondo_init_prepare_near(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    /* Another rank may be ready and destroy the communicator before this one has read its links. */
    RONDO_TRY(rondo_shm_map_all(&ctx->wiring.net));
    RONDO_TRY(prepare_exec(ctx));
    rondo_ctx_policy(ctx);
    RONDO_TRY(rondo_fault("hello", ctx->job.rank, 0)); /* what phase "hello" does elsewhere */
    RONDO_TRY(ctx->backend->attach(ctx));
    return ctx->backend->start(ctx);
}

static rondo_status begin_hello(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    rondo_net_settle(&ctx->wiring.net);
    RONDO_TRY(ctx->backend->attach(ctx));
    RONDO_TRY(rondo_fault("control", ctx->job.rank, 0));
    RONDO_TRY(rondo_control_start(ctx->wiring.control));
    RONDO_TRY(RONDO_NEW_ARRAY(init->hello, ctx->wiring.nlinks, "the connections"));
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        init->hello[i] = &ctx->wiring.links[i];
    }
    return RONDO_SUCCESS;
}

/* Near, all ranks know from what the others told: no round. */
static int is_known(const struct rondo_init *init) { return init->near && !init->near_failed; }

static rondo_status start_ready(struct rondo_init *init)
{
    if (is_known(init)) {
        return RONDO_SUCCESS;
    }
    if (init->local == RONDO_SUCCESS && !init->near) {
        rondo_init_keep(init, prepare_exec(init->ctx));
    }
    return rondo_init_agree(init);
}

static rondo_status test_ready(struct rondo_init *init)
{
    return is_known(init) ? RONDO_SUCCESS : rondo_init_test_round(init);
}

static rondo_status finish_ready(struct rondo_init *init)
{
    if (init->near_failed) { /* and no rank said why */
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR, "rank %d: a rank of the split has failed and is silent",
                                init->ctx->job.rank);
    }
    if (init->near) {
        rondo_net_settle(&init->ctx->wiring.net);
        rondo_init_use_inherited(init);
        return RONDO_SUCCESS;
    }
    rondo_ctx_policy(init->ctx);
    if (init->ctx->job.nranks > 1) {
        init->bootstrap->quiet = 1;
        rondo_init_keep_and_tell(init, begin_hello(init));
    }
    return RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_ready = {
    .name = "ready",
    .start = start_ready,
    .test = test_ready,
    .finish = finish_ready,
};
