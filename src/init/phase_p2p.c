/*
 * Phases "p2p_check" and "p2p_modes", for GPUs only. First each pair of GPUs on a node checks that one finds
 * what the other has written. Then all ranks exchange their P2P modes: a mode that is broken in one direction
 * is broken for both.
 */
#include "base/mem.h"
#include "comm/backend.h"
#include "init/phases.h"

struct modes_record {
    struct rondo_round_head head;
    struct rondo_shm_name
        relay;       /* this rank's memory for conns that others send through its GPU; zero: none */
    uint8_t modes[]; /* by local rank; room for the fullest node's */
};

static int has_p2p(const struct rondo_init *init)
{
    return init->ctx->backend->p2p != NULL && init->ctx->wiring.layout.max_local > 1;
}

static rondo_status test_check(struct rondo_init *init)
{
    rondo_status status;
    if (!has_p2p(init) || init->local != RONDO_SUCCESS) {
        return RONDO_SUCCESS;
    }
    status = init->ctx->backend->p2p->check(init->ctx);
    if (status == RONDO_IN_PROGRESS) {
        return status;
    }
    rondo_init_keep(init, status);
    return RONDO_SUCCESS;
}

static rondo_status start_modes(struct rondo_init *init)
{
    struct modes_record *mine;
    if (!has_p2p(init)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_init_new_round(
        init, rondo_round_up(sizeof(*mine) + (size_t)init->ctx->wiring.layout.max_local, 8),
        init->ctx->job.nranks));
    mine = init->mine;
    if (init->local == RONDO_SUCCESS) {
        init->ctx->backend->p2p->modes(init->ctx, mine->modes);
        rondo_init_keep(init, init->ctx->backend->p2p->relay(init->ctx, &mine->relay));
    }
    return rondo_init_allgather(init);
}

static rondo_status test_modes(struct rondo_init *init)
{
    return has_p2p(init) ? rondo_init_test_round(init) : RONDO_SUCCESS;
}

static rondo_status finish_modes(struct rondo_init *init)
{
    if (!has_p2p(init)) {
        return RONDO_SUCCESS;
    }
    for (int r = 0; r < init->ctx->job.nranks; r++) {
        const struct modes_record *record = rondo_init_record(init, r);
        init->ctx->backend->p2p->use_modes(init->ctx, r, record->modes);
        init->ctx->backend->p2p->use_relay(init->ctx, r, &record->relay);
    }
    return RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_p2p_check = {
    .name = "p2p_check",
    .test = test_check,
    .own_deadline = 1,
};

const struct rondo_phase rondo_phase_p2p_modes = {
    .name = "p2p_modes",
    .start = start_modes,
    .test = test_modes,
    .finish = finish_modes,
};
