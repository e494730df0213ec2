/* Phase "peers": every rank tells all others who it is and where it runs. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "comm/backend.h"
#include "init/launch_checks.h"
#include "init/phases.h"
#include "net/peer_wire.h"

static rondo_status fill_peer(struct rondo_init *init, struct rondo_peer *mine,
                              struct rondo_peer_parts *parts)
{
    struct rondo_ctx *ctx = init->ctx;
    RONDO_TRY(rondo_fault("peers", ctx->job.rank, 0));
    if (ctx->job.nranks > 1) {
        RONDO_TRY(rondo_shm_create(&init->probe, 4096, RONDO_SHM_MODE_AUTO));
    }
    RONDO_TRY(rondo_peer_fill(mine, parts, ctx->job.rank, ctx->job.nranks,
                              init->probe.base != NULL ? &init->probe : NULL));
    RONDO_TRY(ctx->backend->fill_peer(ctx, mine));
    return ctx->job.rank == 0
               ? rondo_unique_id_make(&mine->id, init->bootstrap->root_world_rank, init->bootstrap->secret)
               : RONDO_SUCCESS;
}

/* A split may have found the records already (phase_colors.c); then there is no round. */
static int are_known(const struct rondo_init *init) { return init->ctx->wiring.peers != NULL; }

static rondo_status pack_peer(struct rondo_init *init)
{
    struct rondo_peer mine = { .rank = init->ctx->job.rank };
    struct rondo_peer_parts parts;
    RONDO_TRY(fill_peer(init, &mine, &parts));
    return rondo_peer_pack(init->mine, &mine)
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INTERNAL_ERROR, "the record of rank %d does not fit %zu bytes", mine.rank,
                            sizeof(struct rondo_peer_wire));
}

static rondo_status start_peers(struct rondo_init *init)
{
    if (are_known(init)) {
        rondo_init_keep(init, rondo_fault("peers", init->ctx->job.rank, 0));
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_init_new_round(init, sizeof(struct rondo_peer_wire), init->ctx->job.nranks));
    rondo_init_keep(init, pack_peer(init));
    return rondo_init_allgather(init);
}

static rondo_status test_peers(struct rondo_init *init)
{
    return are_known(init) ? RONDO_SUCCESS : rondo_init_test_round(init);
}

/* All ranks have the same bytes, and find the same error. */
static rondo_status unpack_records(const struct rondo_init *init, struct rondo_peer *peers)
{
    const struct rondo_peer_wire *wire = init->all;
    struct rondo_peer_parts parts;
    for (int r = 0; r < init->ctx->job.nranks; r++) {
        if (!rondo_peer_unpack(&peers[r], &parts, &wire[r])) {
            return rondo_fail_quiet(RONDO_INTERNAL_ERROR,
                                    "rank %d sent a record that cannot be read; do all ranks run the same "
                                    "library?",
                                    r);
        }
        RONDO_TRY(rondo_peer_keep(&peers[r], init->ctx->wiring.names));
    }
    return RONDO_SUCCESS;
}

/* The records are read where they lie, the first one first: what is kept of one ends before the next begins.
 * So a process never has two tables of all ranks. */
static rondo_status take_records(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_peer *peers = init->all, *kept;
    _Static_assert(sizeof(*peers) <= sizeof(struct rondo_peer_wire),
                   "a record takes the place of its packed one");
    RONDO_TRY(rondo_intern_create(&ctx->wiring.names));
    rondo_status status = unpack_records(init, peers);
    kept = realloc(peers, sizeof(*peers) * (size_t)ctx->job.nranks);
    peers = kept != NULL ? kept : peers;
    init->all = NULL;
    init->params_differ = status == RONDO_SUCCESS && rondo_peers_param_differs(peers, ctx->job.nranks) >= 0;
    if (status == RONDO_SUCCESS && !init->params_differ) {
        status = rondo_peers_check(peers, ctx->job.nranks);
    }
    if (status != RONDO_SUCCESS) {
        rondo_free(peers);
        return status;
    }
    ctx->wiring.peers = peers;
    return RONDO_SUCCESS;
}

static rondo_status finish_peers(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    init->inherits = are_known(init);
    if (!init->inherits) {
        RONDO_TRY(take_records(init));
    }
    if (init->bootstrap->secret != NULL) {
        memcpy(ctx->wiring.peers[0].id.nonce, init->bootstrap->secret, sizeof(ctx->job.id.nonce));
    }
    ctx->job.id = ctx->wiring.peers[0].id;
    /* An inherited id has no secret to hide. */
    ctx->job.hash = init->inherits ? rondo_hash(&ctx->job.id, sizeof(ctx->job.id), 1)
                                   : rondo_unique_id_hash(&ctx->job.id);
    if (ctx->job.name[0] == '\0') {
        snprintf(ctx->job.name, sizeof(ctx->job.name), "#%08x", (unsigned)ctx->job.hash);
    }
    ctx->backend->use_peers(ctx);
    if (ctx->life.parent == NULL && !init->inherits) { /* a child's ranks were checked with the parent's */
        rondo_launch_warn(ctx);
    }
    return RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_peers = {
    .name = "peers",
    .start = start_peers,
    .test = test_peers,
    .finish = finish_peers,
};
