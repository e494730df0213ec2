/*
 * Phases "connections" and "connect". Ranks exchange the addresses of their conns' memory, then connect;
 * where memory is not shared, both ends take part.
 */
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/links.h"
#include "init/phases.h"

enum { ALLGATHER_RANKS = 64 }; /* above, only ranks that connect exchange records */

static struct rondo_connect *connects_of(void *record)
{
    return (struct rondo_connect *)((char *)record + sizeof(struct rondo_round_head));
}

static const struct rondo_connect *records_of(void *arg, int peer)
{
    struct rondo_init *init = arg;
    if (peer == init->ctx->job.rank) {
        return connects_of(init->mine);
    }
    if (init->nexchange > 0) {
        int at = 0;
        while (at < init->nexchange - 1 && init->exchange_peers[at] != peer) {
            at++;
        }
        peer = at;
    }
    return connects_of(rondo_init_record(init, peer));
}

static rondo_status prepare_connections(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    RONDO_TRY(rondo_fault("connections", ctx->job.rank, 0));
    RONDO_TRY(rondo_init_attach(init));
    ctx->wiring.net.control = ctx->wiring.control;
    return rondo_links_offer(ctx, connects_of(init->mine));
}

/* What a rank tells is final: with its links it says that nothing of it is missing. */
static void tell_near(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    if (init->local == RONDO_SUCCESS) {
        rondo_init_keep(init, rondo_init_prepare_near(init));
    }
    init->near_failed = init->local != RONDO_SUCCESS;
    rondo_shm_tell(&ctx->wiring.net, connects_of(init->mine), init->near_failed ? -1 : ctx->wiring.nlinks);
}

static rondo_status start_connections(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    size_t bytes = sizeof(struct rondo_round_head) +
                   sizeof(struct rondo_connect) *
                       (size_t)rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels);
    if (ctx->job.nranks == 1) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_init_new_round(init, bytes,
                                   ctx->job.nranks <= ALLGATHER_RANKS
                                       ? ctx->job.nranks
                                       : rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels)));
    if (init->local == RONDO_SUCCESS) {
        rondo_init_keep(init, prepare_connections(init));
    }
    if (init->near) {
        tell_near(init);
        return RONDO_SUCCESS;
    }
    if (ctx->job.nranks <= ALLGATHER_RANKS) {
        return rondo_init_allgather(init);
    }
    /* Many ranks: only those that connect exchange records. A rank that failed sends an empty record; the
     * next round says why. */
    RONDO_TRY(RONDO_NEW_ARRAY(init->exchange_peers,
                              rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels),
                              "the list of peers"));
    init->nexchange = rondo_links_peers(ctx, init->exchange_peers);
    rondo_init_set_head(init);
    RONDO_TRY(rondo_calloc(&init->copies, (size_t)init->nexchange, bytes, "the records of creation"));
    for (int i = 0; i < init->nexchange; i++) {
        memcpy((char *)init->copies + (size_t)i * bytes, init->mine, bytes);
    }
    return init->bootstrap->ops->exchange_start(init->bootstrap, init->nexchange, init->exchange_peers,
                                                init->copies, init->all, bytes);
}

static rondo_status test_connections(struct rondo_init *init)
{
    return init->ctx->job.nranks == 1 || init->near ? RONDO_SUCCESS : rondo_init_test_round(init);
}

/* A neighbour that failed sent no connections. It reports its error itself, in the next round. */
static rondo_status finish_connections(struct rondo_init *init)
{
    for (int i = 0; i < init->nexchange && init->local == RONDO_SUCCESS; i++) {
        const struct rondo_round_head *head = rondo_init_record(init, i);
        int peer = init->exchange_peers[i];
        if (head->magic != RONDO_PEER_MAGIC || head->status != RONDO_SUCCESS) {
            init->heard = head->magic == RONDO_PEER_MAGIC;
            rondo_init_keep(init, rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                                   "rank %d on %s sent no connections to rank %d on %s", peer,
                                                   init->ctx->wiring.peers[peer].host, init->ctx->job.rank,
                                                   rondo_log_host()));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status too_late(const struct rondo_init *init, int pending)
{
    const struct rondo_ctx *ctx = init->ctx;
    if (init->deadline_ns == 0 || rondo_now_ns() <= init->deadline_ns) {
        return RONDO_IN_PROGRESS;
    }
    return rondo_fail(RONDO_TIMEOUT,
                      "rank %d on %s: the connection with rank %d on %s was not made within "
                      "RONDO_INIT_TIMEOUT: is that rank alive, and can the two hosts reach each other "
                      "(firewall, RONDO_SOCKET_IFNAME)?",
                      ctx->job.rank, rondo_log_host(), pending, ctx->wiring.peers[pending].host);
}

/* This rank cannot go on without another. */
static rondo_status wait_for(struct rondo_init *init, int pending)
{
    RONDO_TRY(rondo_init_look_out(init));
    return too_late(init, pending);
}

/* Read the links of all other ranks: who has told them is ready. @return RONDO_REMOTE_ERROR: one has
 * failed. */
static rondo_status hear_near(struct rondo_init *init, int *pending)
{
    struct rondo_ctx *ctx = init->ctx;
    int most = rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels);
    *pending = -1;
    for (int r = 0; r < ctx->job.nranks; r++) {
        struct rondo_round_head *head = rondo_init_record(init, r);
        rondo_status status;
        if (r == ctx->job.rank || head->magic == RONDO_PEER_MAGIC) {
            continue;
        }
        status = rondo_shm_hear(&ctx->wiring.net, r, ctx->wiring.layout.protos, connects_of(head), most);
        if (status == RONDO_IN_PROGRESS) {
            *pending = *pending < 0 ? r : *pending;
        } else {
            RONDO_TRY(status);
            head->magic = RONDO_PEER_MAGIC;
        }
    }
    return *pending < 0 ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static rondo_status connect_near(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int pending;
    RONDO_TRY(rondo_links_connect(ctx, records_of, init, &pending));
    return rondo_control_start(ctx->wiring.control);
}

/* If a rank told that it failed, all others read that too, and round "ready" says why. Any other error is
 * this rank's alone, because others may be ready already: it ends the communicator. */
static rondo_status test_near(struct rondo_init *init)
{
    int pending;
    rondo_status status;
    if (init->near_failed) {
        return RONDO_SUCCESS;
    }
    status = hear_near(init, &pending);
    if (status == RONDO_REMOTE_ERROR) {
        init->near_failed = init->heard = 1;
        rondo_init_keep(init, status);
        return RONDO_SUCCESS;
    }
    if (status == RONDO_IN_PROGRESS) {
        return wait_for(init, pending);
    }
    return status == RONDO_SUCCESS ? connect_near(init) : status;
}

/* The next round reports errors. A rank that fails closes its connections, so that its peers do not wait. */
static rondo_status test_connect(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int pending = -1;
    rondo_status status = init->local;
    if (ctx->job.nranks == 1) {
        return RONDO_SUCCESS;
    }
    if (init->near) {
        return test_near(init);
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_links_connect(ctx, records_of, init, &pending);
    }
    if (status == RONDO_IN_PROGRESS) {
        status = wait_for(init, pending);
    }
    if (status == RONDO_IN_PROGRESS) {
        return status;
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_net_connect_all(&ctx->wiring.net);
    }
    if (status != RONDO_SUCCESS) {
        rondo_init_keep(init, status);
        rondo_links_close(ctx);
    }
    return RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_connections = {
    .name = "connections",
    .start = start_connections,
    .test = test_connections,
    .finish = finish_connections,
};

const struct rondo_phase rondo_phase_connect = {
    .name = "connect",
    .test = test_connect,
    .own_deadline = 1,
};
