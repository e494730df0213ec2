/* What each round of creation says, and what its answers mean. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/wait.h"
#include "comm/backend.h"
#include "comm/layout_fill.h"
#include "comm/links.h"
#include "init/launch_checks.h"
#include "init/phases.h"
#include "net/transport/handshake.h"

enum { GRACE_NS = 300000000 };
enum { PARAM_TEXT = 8192, ALLGATHER_RANKS = 64 };
struct param_record {
    struct rondo_round_head head;
    char text[PARAM_TEXT];
};

/* ---- rounds ---- */

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

static void set_head(const struct rondo_init *init)
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

rondo_status rondo_init_allgather(struct rondo_init *init)
{
    set_head(init);
    init->heads = RONDO_ROUND_HEADS;
    return init->bootstrap->ops->allgather_start(init->bootstrap, init->mine, init->all, init->bytes);
}

static rondo_status start_texts(struct rondo_init *init)
{
    struct rondo_bootstrap *b = init->bootstrap;
    init->heads = RONDO_ROUND_TEXTS;
    init->ended_ns = 0;
    set_text(init, init->text);
    RONDO_TRY(RONDO_NEW_ARRAY(init->texts, b->nranks, "the ranks' error messages"));
    return b->ops->allgather_start(b, init->text, init->texts, sizeof(init->text));
}

rondo_status rondo_init_test_round(struct rondo_init *init)
{
    RONDO_TRY(init->bootstrap->ops->test(init->bootstrap));
    if (init->heads != RONDO_ROUND_HEADS ||
        !rondo_round_failed(init->all, init->bytes, init->bootstrap->nranks)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(start_texts(init));
    return RONDO_IN_PROGRESS;
}

rondo_status rondo_init_check_round(struct rondo_init *init)
{
    int has_heads = init->heads != RONDO_ROUND_NO_HEADS;
    init->heads = RONDO_ROUND_NO_HEADS;
    return has_heads ? rondo_round_check(init->all, init->bytes, init->bootstrap->nranks, init->texts)
                     : RONDO_SUCCESS;
}

void *rondo_init_record(const struct rondo_init *init, int rank)
{
    return (char *)init->all + (size_t)rank * init->bytes;
}

void rondo_init_arm_faults(struct rondo_init *init)
{
    rondo_init_keep(init, rondo_fault_init());
    rondo_init_keep(init, rondo_fault("open", init->ctx->job.rank, 0));
}

/* ---- open ---- */

static rondo_status start_open(struct rondo_init *init)
{
    rondo_init_arm_faults(init);
    return init->bootstrap->ops->open_start(init->bootstrap);
}

static rondo_status finish_nothing(struct rondo_init *init)
{
    (void)init;
    return RONDO_SUCCESS;
}

/* ---- peers ---- */

static rondo_status fill_peer(struct rondo_init *init, struct rondo_peer *mine)
{
    struct rondo_ctx *ctx = init->ctx;
    RONDO_TRY(rondo_fault("peers", ctx->job.rank, 0));
    if (ctx->job.nranks > 1) {
        RONDO_TRY(rondo_shm_create(&init->probe, 4096, RONDO_SHM_MODE_AUTO));
    }
    RONDO_TRY(rondo_peer_fill(mine, ctx->job.rank, ctx->job.nranks,
                              init->probe.base != NULL ? &init->probe : NULL));
    RONDO_TRY(ctx->backend->fill_peer(ctx, mine));
    return ctx->job.rank == 0 ? rondo_unique_id_make(&mine->id, init->bootstrap->root_world_rank)
                              : RONDO_SUCCESS;
}

static rondo_status start_peers(struct rondo_init *init)
{
    RONDO_TRY(rondo_init_new_round(init, sizeof(struct rondo_peer), init->ctx->job.nranks));
    rondo_init_keep(init, fill_peer(init, init->mine));
    return rondo_init_allgather(init);
}

static rondo_status finish_peers(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    const struct rondo_peer *all = init->all;
    init->params_differ = rondo_peers_param_differs(all, ctx->job.nranks) >= 0;
    if (!init->params_differ) {
        RONDO_TRY(rondo_peers_check(all, ctx->job.nranks));
    }
    ctx->wiring.peers = init->all;
    init->all = NULL;
    ctx->job.id = ctx->wiring.peers[0].id;
    ctx->job.hash = rondo_hash(&ctx->job.id, sizeof(ctx->job.id), 0);
    if (ctx->job.name[0] == '\0') {
        snprintf(ctx->job.name, sizeof(ctx->job.name), "#%08x", (unsigned)ctx->job.hash);
    }
    ctx->backend->use_peers(ctx);
    if (init->split.parent == NULL) { /* children know no more than their parent */
        rondo_launch_warn(ctx);
    }
    return RONDO_SUCCESS;
}

/* Only when the hashes differ: which parameter, and whose. */
static rondo_status start_params(struct rondo_init *init)
{
    struct param_record *mine;
    if (!init->params_differ) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_init_new_round(init, sizeof(*mine), init->ctx->job.nranks));
    mine = init->mine;
    rondo_params_pack(mine->text, sizeof(mine->text));
    return rondo_init_allgather(init);
}

static rondo_status test_params(struct rondo_init *init)
{
    return init->params_differ ? rondo_init_test_round(init) : RONDO_SUCCESS;
}

static rondo_status finish_params(struct rondo_init *init)
{
    const struct rondo_peer *peers = init->ctx->wiring.peers;
    struct param_record *root, *other;
    int r;
    if (!init->params_differ) {
        return RONDO_SUCCESS;
    }
    r = rondo_peers_param_differs(peers, init->ctx->job.nranks);
    root = rondo_init_record(init, 0);
    other = rondo_init_record(init, r);
    root->text[sizeof(root->text) - 1] = other->text[sizeof(other->text) - 1] = '\0';
    RONDO_TRY(rondo_params_compare(root->text, other->text, r, peers[r].host));
    return rondo_peers_check(peers,
                             init->ctx->job.nranks); /* equal as far as the texts go: at least who differs */
}

/* ---- gpus: what one rank of a node writes into another's GPU, does that one find it? Then ways: a way that
 * is broken is so for both. ---- */

struct ways_record {
    struct rondo_round_head head;
    struct rondo_shm_name
        relay;      /* this rank's memory for conns that others send through its GPU; zero: none */
    uint8_t ways[]; /* by local rank of the node; room for the fullest one's */
};

static int has_ways(const struct rondo_init *init)
{
    return init->ctx->backend->p2p != NULL && init->ctx->wiring.layout.max_local > 1;
}

static rondo_status start_gpus(struct rondo_init *init)
{
    (void)init;
    return RONDO_SUCCESS;
}

static rondo_status test_gpus(struct rondo_init *init)
{
    rondo_status status;
    if (!has_ways(init) || init->local != RONDO_SUCCESS) {
        return RONDO_SUCCESS;
    }
    status = init->ctx->backend->p2p->check(init->ctx);
    if (status == RONDO_IN_PROGRESS) {
        return status;
    }
    rondo_init_keep(init, status);
    return RONDO_SUCCESS;
}

static rondo_status start_ways(struct rondo_init *init)
{
    struct ways_record *mine;
    if (!has_ways(init)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_init_new_round(
        init, rondo_round_up(sizeof(*mine) + (size_t)init->ctx->wiring.layout.max_local, 8),
        init->ctx->job.nranks));
    mine = init->mine;
    if (init->local == RONDO_SUCCESS) {
        init->ctx->backend->p2p->modes(init->ctx, mine->ways);
        rondo_init_keep(init, init->ctx->backend->p2p->relay(init->ctx, &mine->relay));
    }
    return rondo_init_allgather(init);
}

static rondo_status test_ways(struct rondo_init *init)
{
    return has_ways(init) ? rondo_init_test_round(init) : RONDO_SUCCESS;
}

static rondo_status finish_ways(struct rondo_init *init)
{
    if (!has_ways(init)) {
        return RONDO_SUCCESS;
    }
    for (int r = 0; r < init->ctx->job.nranks; r++) {
        const struct ways_record *record = rondo_init_record(init, r);
        init->ctx->backend->p2p->use_modes(init->ctx, r, record->ways);
        init->ctx->backend->p2p->use_relay(init->ctx, r, &record->relay);
    }
    return RONDO_SUCCESS;
}

/* ---- connections ---- */

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
    if (init->ndoubling > 0) {
        int at = 0;
        while (at < init->ndoubling - 1 && init->exchange_peers[at] != peer) {
            at++;
        }
        peer = at;
    }
    return connects_of(rondo_init_record(init, peer));
}

static rondo_status prepare_connections(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_control_config config;
    RONDO_TRY(rondo_fault("connections", ctx->job.rank, 0));
    if (ctx->wiring.control == NULL) {
        rondo_init_control_config(ctx, &config);
        RONDO_TRY(rondo_control_attach(&ctx->wiring.control, &config, &init->segment));
    }
    ctx->wiring.net.control = ctx->wiring.control;
    return rondo_links_offer(ctx, connects_of(init->mine));
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
    if (ctx->job.nranks <= ALLGATHER_RANKS) {
        return rondo_init_allgather(init);
    }
    /* Many ranks: the same records, between the ranks that connect only. A rank that failed sends an empty
     * record; the next round says why. */
    RONDO_TRY(RONDO_NEW_ARRAY(init->exchange_peers,
                              rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels),
                              "the list of peers"));
    init->ndoubling = rondo_links_peers(ctx, init->exchange_peers);
    set_head(init);
    RONDO_TRY(rondo_calloc(&init->copies, (size_t)init->ndoubling, bytes, "the records of creation"));
    for (int i = 0; i < init->ndoubling; i++) {
        memcpy((char *)init->copies + (size_t)i * bytes, init->mine, bytes);
    }
    return init->bootstrap->ops->exchange_start(init->bootstrap, init->ndoubling, init->exchange_peers,
                                                init->copies, init->all, bytes);
}

static rondo_status test_connections(struct rondo_init *init)
{
    return init->ctx->job.nranks == 1 ? RONDO_SUCCESS : rondo_init_test_round(init);
}

/* A neighbour that failed has nothing to connect with. It tells why itself, in the next round. */
static rondo_status finish_connections(struct rondo_init *init)
{
    for (int i = 0; i < init->ndoubling && init->local == RONDO_SUCCESS; i++) {
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

/* ---- connect: what takes the other end's part too, where memory is not shared ---- */

static rondo_status start_connect(struct rondo_init *init)
{
    (void)init;
    return RONDO_SUCCESS;
}

/* Errors are told in the next round. A rank that has one closes what it has: its peers' connections end
 * instead of waiting for it. */
static rondo_status test_connect(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int pending = -1;
    rondo_status status = init->local;
    if (ctx->job.nranks == 1) {
        return RONDO_SUCCESS;
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_links_connect(ctx, records_of, init, &pending);
    }
    if (status == RONDO_IN_PROGRESS && init->deadline_ns != 0 && rondo_now_ns() > init->deadline_ns) {
        status = rondo_fail(RONDO_TIMEOUT,
                            "rank %d on %s: the connection with rank %d on %s was not made within "
                            "RONDO_INIT_TIMEOUT: is it alive, and may "
                            "the two hosts talk to each other (firewall, RONDO_SOCKET_IFNAME)?",
                            ctx->job.rank, rondo_log_host(), pending, ctx->wiring.peers[pending].host);
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

/* ---- ready: everyone says that it has connected ---- */

static rondo_status prepare_exec(struct rondo_ctx *ctx)
{
    RONDO_TRY(rondo_fault("ready", ctx->job.rank, 0));
    return ctx->backend->open_exec(ctx);
}

static rondo_status start_ready(struct rondo_init *init)
{
    RONDO_TRY(rondo_init_new_round(init, sizeof(struct rondo_round_head), init->ctx->job.nranks));
    if (init->local == RONDO_SUCCESS) {
        rondo_init_keep(init, prepare_exec(init->ctx));
    }
    return rondo_init_allgather(init);
}

/* From here on the control plane tells the others: a rank that failed sends no hello. In the words of a
 * round's record, since some may hear it there. */
static void keep_and_tell(struct rondo_init *init, rondo_status status)
{
    rondo_round_text text;
    rondo_init_keep(init, status);
    if (status != RONDO_SUCCESS && init->ctx->wiring.control != NULL) {
        set_text(init, text);
        rondo_control_abort(init->ctx->wiring.control, status, init->ctx->job.rank, text);
    }
}

static rondo_status begin_hello(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    rondo_net_settle(&ctx->wiring.net);
    RONDO_TRY(ctx->backend->attach(ctx));
    RONDO_TRY(rondo_control_start(ctx->wiring.control));
    RONDO_TRY(RONDO_NEW_ARRAY(init->hello, ctx->wiring.nlinks, "the connections"));
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        init->hello[i] = &ctx->wiring.links[i];
    }
    return RONDO_SUCCESS;
}

static rondo_status finish_ready(struct rondo_init *init)
{
    rondo_ctx_policy(init->ctx);
    if (init->ctx->job.nranks > 1) {
        keep_and_tell(init, begin_hello(init));
    }
    return RONDO_SUCCESS;
}

/* ---- hello: one empty slot each way through every conn ---- */

static rondo_status start_hello(struct rondo_init *init)
{
    keep_and_tell(init, rondo_fault("hello", init->ctx->job.rank, 0));
    return RONDO_SUCCESS;
}

/* While the control plane watches already: a rank that died, or gave up, is named by it at once. */
static rondo_status in_progress_unless_ended(struct rondo_ctx *ctx)
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

/* A failure is told in the next round. */
static rondo_status join(struct rondo_init *init, int *silent)
{
    rondo_status status = init->ctx->backend->join(init->ctx, silent);
    if (status != RONDO_IN_PROGRESS) {
        keep_and_tell(init, status);
        return RONDO_SUCCESS;
    }
    return status;
}

static rondo_status test_hello(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int silent = -1;
    rondo_status status;
    if (ctx->job.nranks == 1 || init->local != RONDO_SUCCESS) {
        return RONDO_SUCCESS;
    }
    status = rondo_link_hello(init->hello, ctx->wiring.nlinks, &silent);
    if (ctx->wiring.net.proxied > 0) {
        int moved = 0;
        rondo_status turned = rondo_net_progress(&ctx->wiring.net, &moved);
        if (turned != RONDO_SUCCESS) {
            keep_and_tell(init, turned);
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
    if (status == RONDO_IN_PROGRESS) {
        status = in_progress_unless_ended(ctx);
        if (status != RONDO_IN_PROGRESS) {
            rondo_init_keep(init, status); /* told in the next round */
            return RONDO_SUCCESS;
        }
    }
    if (status == RONDO_IN_PROGRESS && init->deadline_ns != 0 && rondo_now_ns() > init->deadline_ns) {
        return rondo_fail(RONDO_TIMEOUT,
                          "rank %d on %s: rank %d on %s connected but its empty slot did not pass within "
                          "RONDO_INIT_TIMEOUT: is it stopped?",
                          ctx->job.rank, rondo_log_host(), silent,
                          silent >= 0 ? ctx->wiring.peers[silent].host : "?");
    }
    return status;
}

/* ---- done: has everyone's hello passed? Only then does anyone succeed. ---- */

struct done_record {
    struct rondo_round_head head;
    uint32_t handover_ns;
    uint32_t no_ll128; /* some conn of this rank's does not go from GPU to GPU */
};

static rondo_status start_done(struct rondo_init *init)
{
    if (init->local == RONDO_SUCCESS) {
        keep_and_tell(init, init->ctx->backend->start(init->ctx));
    }
    RONDO_TRY(rondo_init_new_round(init, sizeof(struct done_record), init->ctx->job.nranks));
    ((struct done_record *)init->mine)->handover_ns = init->handover.best_ns;
    ((struct done_record *)init->mine)->no_ll128 = !init->ctx->backend->links_reach(init->ctx);
    return rondo_init_allgather(init);
}

/* Ranks that have passed this round may have ended the communicator already; its records are then on their
 * way. A dead rank's never come. */
static rondo_status test_done(struct rondo_init *init)
{
    rondo_status status = rondo_init_test_round(init);
    if (status != RONDO_IN_PROGRESS || init->ctx->wiring.control == NULL ||
        !rondo_control_aborted(init->ctx->wiring.control)) {
        return status;
    }
    if (init->ended_ns == 0) {
        init->ended_ns = rondo_now_ns();
    }
    return rondo_now_ns() - init->ended_ns < GRACE_NS ? status : in_progress_unless_ended(init->ctx);
}

/* The graphs say which paths deliver 128 bytes as one; conns may have come to go elsewhere (a pair whose
 * check failed, GPUs of containers). Then it is the same for all ranks: they choose alike. */
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
                    "%s: LL128 is not used: rank %d on %s reaches a GPU of its node through host memory",
                    ctx->job.name, r, ctx->wiring.peers[r].host);
            }
        }
    }
}

/* What the first rank of the node has measured counts for all. */
static rondo_status finish_done(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    use_conns(init);
    if (ctx->job.nranks > 1) {
        const struct done_record *first = rondo_init_record(init, ctx->wiring.layout.local_ranks[0]);
        rondo_init_use_handover(ctx, first->handover_ns);
    }
    return RONDO_SUCCESS;
}

/* ---- the list ---- */

const struct rondo_phase rondo_phases[] = {
    { "colors", rondo_init_start_colors, NULL, rondo_init_finish_colors, 0 },
    { "open", start_open, NULL, finish_nothing, 0 },
    { "peers", start_peers, NULL, finish_peers, 0 },
    { "params", start_params, test_params, finish_params, 0 },
    { "graphs", rondo_init_start_graphs, NULL, rondo_init_finish_graphs, 0 },
    { "shapes", rondo_init_start_shapes, rondo_init_test_shapes, rondo_init_finish_shapes, 0 },
    { "gpus", start_gpus, test_gpus, finish_nothing, 1 },
    { "ways", start_ways, test_ways, finish_ways, 0 },
    { "connections", start_connections, test_connections, finish_connections, 0 },
    { "connect", start_connect, test_connect, finish_nothing, 1 },
    { "ready", start_ready, NULL, finish_ready, 0 },
    { "hello", start_hello, test_hello, finish_nothing, 1 },
    { "done", start_done, test_done, finish_done, 0 },
};
_Static_assert(RONDO_COUNTOF(rondo_phases) <= RONDO_MAX_PHASES, "RONDO_MAX_PHASES counts the phases");
const int rondo_num_phases = RONDO_COUNTOF(rondo_phases);
