/* Phase "done": all hellos have arrived. Only now may a rank report success. */
#include "base/log.h"
#include "comm/backend.h"
#include "init/phases.h"

struct done_record {
    struct rondo_round_head head;
    uint32_t handover_ns;
    uint32_t no_ll128;                    /* a conn of this rank does not go from GPU to GPU */
    struct rondo_calibration calibration; /* local rank 0 */
};

static rondo_status start_done(struct rondo_init *init)
{
    if (init->near) {
        return RONDO_SUCCESS;
    }
    if (init->local == RONDO_SUCCESS) {
        rondo_init_keep_and_tell(init, init->ctx->backend->start(init->ctx));
    }
    RONDO_TRY(rondo_init_new_round(init, sizeof(struct done_record), init->ctx->job.nranks));
    ((struct done_record *)init->mine)->handover_ns = init->handover.best_ns;
    ((struct done_record *)init->mine)->calibration = init->calibrating.found;
    ((struct done_record *)init->mine)->no_ll128 = !init->ctx->backend->links_reach(init->ctx);
    return rondo_init_allgather(init);
}

/* The graphs say which paths deliver 128 bytes at once, but some conns may not take them (a pair failed its
 * check, GPUs are in containers). Then no rank uses LL128, so that all choose alike. */
static void use_conns(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_model_gpu *gpu = &ctx->wiring.layout.model.gpu;
    for (int r = 0; r < ctx->job.nranks && (gpu->ring.ll128 || gpu->tree.ll128); r++) {
        const struct done_record *record = rondo_init_record(init, r);
        if (record->no_ll128) {
            gpu->ring.ll128 = gpu->tree.ll128 = 0;
            if (ctx->job.rank == 0) {
                RONDO_INFO(
                    RONDO_SUBSYS_INIT | RONDO_SUBSYS_TUNING,
                    "%s: LL128 is off: rank %d on %s shares its GPU, or reaches one of its node through host "
                    "memory",
                    ctx->job.name, r, ctx->wiring.peers[r].host);
            }
        }
    }
}

/* All ranks use what the node's first rank has measured. */
static rondo_status finish_done(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    if (init->near) {
        return RONDO_SUCCESS;
    }
    use_conns(init);
    if (ctx->job.nranks > 1) {
        const struct done_record *first = rondo_init_record(init, ctx->wiring.layout.local_ranks[0]);
        rondo_init_use_measured(init, &first->calibration, first->handover_ns);
    }
    return RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_done = {
    .name = "done",
    .start = start_done,
    .finish = finish_done,
};
