/* Phase "done": all hellos have arrived. Only now may a rank report success. */
#include <stdatomic.h>

#include "base/log.h"
#include "comm/backend.h"
#include "init/phases.h"

struct done_record {
    struct rondo_round_head head;
    uint32_t handover_ns;
    uint32_t no_ll128;                    /* a conn of this rank does not go from GPU to GPU */
    struct rondo_calibration calibration; /* local rank 0 */
};

static struct rondo_node_measured *measured_of(const struct rondo_init *init)
{
    return (struct rondo_node_measured *)(void *)rondo_control_extra(init->ctx->wiring.control);
}

/* Each node uses what its own first rank has measured, so that stays in the node's memory. */
static void tell_measured(const struct rondo_init *init)
{
    struct rondo_node_measured *measured = measured_of(init);
    measured->handover_ns = init->handover.best_ns;
    measured->calibration = init->calibrating.found;
    atomic_store_explicit(&measured->told, 1, memory_order_release);
}

static void merge_done(void *into, const void *from)
{
    struct rondo_done *a = into;
    const struct rondo_done *b = from;
    rondo_round_merge_verdicts(&a->verdict, &b->verdict);
    a->no_ll128 = b->no_ll128 < a->no_ll128 ? b->no_ll128 : a->no_ll128;
}

static rondo_status start_done(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int reach;
    if (init->near) {
        return RONDO_SUCCESS;
    }
    if (init->local == RONDO_SUCCESS) {
        rondo_init_keep_and_tell(init, ctx->backend->start(ctx));
    }
    reach = ctx->backend->links_reach(ctx);
    if (init->merges) {
        if (ctx->wiring.layout.local_rank == 0 && init->local == RONDO_SUCCESS) {
            tell_measured(init);
        }
        init->done[0].no_ll128 = reach ? INT32_MAX : ctx->job.rank;
        return rondo_init_agree_with(init, &init->done[0].verdict, sizeof(init->done[0]), merge_done);
    }
    RONDO_TRY(rondo_init_new_round(init, sizeof(struct done_record), ctx->job.nranks));
    ((struct done_record *)init->mine)->handover_ns = init->handover.best_ns;
    ((struct done_record *)init->mine)->calibration = init->calibrating.found;
    ((struct done_record *)init->mine)->no_ll128 = !reach;
    return rondo_init_allgather(init);
}

/* @return the lowest rank of which a conn takes no LL128; nranks or more: none. */
static int without_ll128(const struct rondo_init *init)
{
    int r = 0;
    if (init->merges) {
        return init->done[0].no_ll128;
    }
    while (r < init->ctx->job.nranks && !((const struct done_record *)rondo_init_record(init, r))->no_ll128) {
        r++;
    }
    return r;
}

/* The graphs say which paths deliver 128 bytes at once, but some conns may not take them (a pair failed its
 * check, GPUs are in containers). Then no rank uses LL128, so that all choose alike. */
static void use_conns(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_model_gpu *gpu = &ctx->wiring.layout.model.gpu;
    int r = gpu->ring.ll128 || gpu->tree.ll128 ? without_ll128(init) : ctx->job.nranks;
    if (r < ctx->job.nranks) {
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

/* All ranks use what the node's first rank has measured. */
static rondo_status finish_done(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    if (init->near) {
        return RONDO_SUCCESS;
    }
    use_conns(init);
    if (init->merges) {
        const struct rondo_node_measured *measured = measured_of(init);
        if (atomic_load_explicit(&measured->told, memory_order_acquire)) {
            rondo_init_use_measured(init, &measured->calibration, measured->handover_ns);
        }
    } else if (ctx->job.nranks > 1) {
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
