/* Phase "hello": one empty slot passes through every conn in each direction. */
#include "base/fault.h"
#include "base/log.h"
#include "comm/backend.h"
#include "init/phases.h"
#include "net/transport/transport.h"

static rondo_status start_hello(struct rondo_init *init)
{
    if (!init->near) {
        rondo_init_keep_and_tell(init, rondo_fault("hello", init->ctx->job.rank, 0));
    }
    return RONDO_SUCCESS;
}

/* The next round reports a failure. */
static rondo_status join(struct rondo_init *init, int *silent)
{
    rondo_status status = init->ctx->backend->join(init->ctx, silent);
    if (status != RONDO_IN_PROGRESS) {
        rondo_init_keep_and_tell(init, status);
        return RONDO_SUCCESS;
    }
    return status;
}

static rondo_status test_hello(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int silent = -1;
    rondo_status status;
    if (ctx->job.nranks == 1 || init->near || init->local != RONDO_SUCCESS) {
        return RONDO_SUCCESS;
    }
    status = rondo_link_hello(init->hello, ctx->wiring.nlinks, &silent);
    if (ctx->wiring.net.proxied > 0) {
        int moved = 0;
        rondo_status progress = rondo_net_progress(&ctx->wiring.net, &moved);
        if (progress != RONDO_SUCCESS) {
            rondo_init_keep_and_tell(init, progress);
            return RONDO_SUCCESS;
        }
        status = ctx->wiring.net.busy ? RONDO_IN_PROGRESS : status;
    }
    if (status == RONDO_SUCCESS) {
        status = join(init, &silent);
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_init_measure_handover(init, &silent);
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_init_calibrate(init, &silent);
    }
    if (status == RONDO_IN_PROGRESS) {
        status = rondo_init_in_progress(ctx);
        if (status != RONDO_IN_PROGRESS) {
            rondo_init_keep(init, status);
            return RONDO_SUCCESS;
        }
    }
    if (status == RONDO_IN_PROGRESS) { /* ranks of other hosts cannot see that one is stopped */
        RONDO_TRY(rondo_init_look_out(init));
    }
    if (status == RONDO_IN_PROGRESS && init->deadline_ns != 0 && rondo_now_ns() > init->deadline_ns) {
        return rondo_fail(RONDO_TIMEOUT,
                          "rank %d on %s: rank %d on %s connected, but its empty slot did not arrive within "
                          "RONDO_INIT_TIMEOUT: is it stopped?",
                          ctx->job.rank, rondo_log_host(), silent,
                          silent >= 0 ? ctx->wiring.peers[silent].host : "?");
    }
    return status;
}

const struct rondo_phase rondo_phase_hello = {
    .name = "hello",
    .start = start_hello,
    .test = test_hello,
    .own_deadline = 1,
};
