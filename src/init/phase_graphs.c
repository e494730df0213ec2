/*
 * Phase "graphs": each rank reports how to reach its memory and how many channels it wants; the lowest rank
 * of each node also reports the hash of its node's graphs.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/wait.h"
#include "comm/backend.h"
#include "comm/layout_fill.h"
#include "comm/links.h"
#include "init/phases.h"
#include "net/netdev.h"
#include "tuner/plugin.h"
#include "tuner/tune_file.h"

enum { NEAR_RANKS = 64 }; /* every rank maps the memory of all others */

struct graph_record {
    struct rondo_round_head head;
    int32_t nchannels;
    uint32_t protos;
    struct rondo_graph_note note;
    struct rondo_shm_name memory; /* this rank's arena; of a node's lowest rank the segment of its control
                                   * plane, where the others find its arena */
};

/* With several nodes, or when ranks of a node may not share memory. */
struct nodes_record {
    struct graph_record graph;
    uint8_t control_addr[RONDO_ADDR_BYTES];
    uint32_t control_number, netdevs;
};

_Static_assert(sizeof(struct graph_record) == 144 && sizeof(struct nodes_record) == 184, "documented sizes");

/* All ranks compute the same value: they agree on the parameter. */
static int needs_net(const struct rondo_ctx *ctx)
{
    return ctx->wiring.layout.nnodes > 1 || (ctx->job.nranks > 1 && rondo_params()->shm_disable);
}

/* Bytes of a record without the backend's part, which comes last. */
static size_t host_bytes(const struct rondo_ctx *ctx)
{
    return needs_net(ctx) ? sizeof(struct nodes_record) : sizeof(struct graph_record);
}

static size_t record_bytes(const struct rondo_ctx *ctx)
{
    return host_bytes(ctx) + ctx->backend->record_bytes(ctx);
}

static void *backend_part(const struct rondo_ctx *ctx, void *record)
{
    return (char *)record + host_bytes(ctx);
}

/* A rank cannot know which of its memory a peer can open. It tries to open the next rank's: the ranks of a
 * job are usually alike. */
static enum rondo_shm_mode auto_shm_mode(const struct rondo_ctx *ctx, const char **why)
{
    const struct rondo_layout *l = &ctx->wiring.layout;
    const struct rondo_peer *self = &ctx->wiring.peers[ctx->job.rank],
                            *next = &ctx->wiring.peers[l->local_ranks[(l->local_rank + 1) % l->nlocal]];
    if (next->probe.inode == 0) {
        *why = "there is no memfd here";
        return RONDO_SHM_MODE_FILE;
    }
    if (l->nlocal == 1) {
        *why = "nobody else is on this node";
        return RONDO_SHM_MODE_MEMFD;
    }
    /* Peers cannot open the /proc files of a process that is not dumpable, whatever it can open itself. */
    if (prctl(PR_GET_DUMPABLE) == 1 && rondo_peer_can_open(next)) {
        *why = "the next rank's can be opened through /proc";
        return RONDO_SHM_MODE_MEMFD;
    }
    if (self->netns != 0 && self->netns == next->netns) {
        *why = "memfds cannot be opened through /proc, and the next rank is in the same network namespace";
        return RONDO_SHM_MODE_SOCKET;
    }
    *why = "memfds cannot be opened through /proc, and the next rank is in another network namespace";
    return RONDO_SHM_MODE_FILE;
}

static enum rondo_shm_mode choose_shm_mode(const struct rondo_ctx *ctx)
{
    enum rondo_shm_mode mode = (enum rondo_shm_mode)rondo_params()->shm_mode;
    const char *why = "RONDO_SHM_MODE says so";
    if (mode == RONDO_SHM_MODE_AUTO && ctx->wiring.net.shm_mode != RONDO_SHM_MODE_AUTO) {
        mode = ctx->wiring.net.shm_mode;
        why = "the parent uses it";
    } else if (mode == RONDO_SHM_MODE_AUTO) {
        mode = auto_shm_mode(ctx, &why);
    }
    RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_SHM, "rank %d: shared memory by %s: %s", ctx->job.rank,
               rondo_shm_mode_name(mode), why);
    return mode;
}

static uint32_t slot_bytes(int64_t buffer)
{
    return (uint32_t)(buffer / RONDO_SLOTS / RONDO_CTRL_ALIGN * RONDO_CTRL_ALIGN);
}

static void fill_net(struct rondo_ctx *ctx)
{
    const struct rondo_layout *l = &ctx->wiring.layout;
    struct rondo_net *net = &ctx->wiring.net;
    net->rank = ctx->job.rank;
    net->nranks = ctx->job.nranks;
    net->peers = ctx->wiring.peers;
    net->nlocal = l->nlocal;
    net->local_rank = l->local_rank;
    net->local_of = l->local_of;
    net->local_ranks = l->local_ranks;
    net->node_of = l->node_of;
    net->shm_mode = choose_shm_mode(ctx);
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        net->slot_bytes[proto] = slot_bytes(
            rondo_param_buffer_bytes((enum rondo_proto)proto, ctx->backend->is_gpu));
    }
    ctx->backend->fill_net(ctx);
    net->progress = &ctx->running.progress;
    net->name = ctx->job.name;
}

static void control_config(const struct rondo_init *init, struct rondo_control_config *config)
{
    const struct rondo_ctx *ctx = init->ctx;
    memset(config, 0, sizeof(*config));
    config->rank = ctx->job.rank;
    config->nranks = ctx->job.nranks;
    config->local_rank = ctx->wiring.layout.local_rank;
    config->nlocal = ctx->wiring.layout.nlocal;
    config->local_ranks = ctx->wiring.layout.local_ranks;
    config->peers = ctx->wiring.peers;
    config->nnodes = ctx->wiring.layout.nnodes;
    config->node_of = ctx->wiring.layout.node_of;
    config->comm_hash = ctx->job.hash;
    config->extra = init->extra;
    config->arena = ctx->wiring.net.arena;
    config->mailbox_capacity = ctx->backend->mailbox_capacity(ctx);
    config->shm_mode = ctx->wiring.net.shm_mode;
    config->pinned = ctx->backend->is_gpu;
    config->name = ctx->job.name;
    config->describe = rondo_call_text;
}

static int wanted_channels(const struct rondo_ctx *ctx)
{
    int most = rondo_param_max_channels(ctx->job.config.max_channels, ctx->backend->is_gpu);
    int fit = ctx->backend->max_channels(ctx);
    return most < fit ? most : fit;
}

/* Has the algorithm conns that are made at creation (comm/links.c)? */
static int has_links(const struct rondo_layout *layout, uint32_t algo)
{
    switch (rondo_algo_seating(algo)) {
    case RONDO_SEATING_RING:
    case RONDO_SEATING_TREE: return 1;
    case RONDO_SEATING_DIMS: return rondo_doubling_dims(layout) > 0;
    default: return 0;
    }
}

/* Allocate buffers only for protocols that some collective may use. */
uint32_t rondo_init_wanted_protos(const struct rondo_layout *layout, const struct rondo_allowed *allowed)
{
    uint32_t protos = 1u << RONDO_PROTO_SIMPLE;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *schedule = &rondo_schedules[i];
        for (int c = 0; c < RONDO_NUM_COLLS && has_links(layout, schedule->algo); c++) {
            protos |= rondo_coll_scheduled_as((enum rondo_coll)c) == schedule->coll
                          ? allowed->protos[c][schedule->algo] & schedule->protos
                          : 0;
        }
    }
    return protos;
}

/* What creation needs of the control plane's segment. graphs: bytes of the node's. */
static size_t extra_of(const struct rondo_init *init, size_t graphs)
{
    return init->inherits ? graphs : init->merges ? sizeof(struct rondo_node_measured) : 0;
}

static rondo_status prepare_graphs(struct rondo_init *init, struct graph_record *mine)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_control_config config;
    RONDO_TRY(rondo_fault("graphs", ctx->job.rank, 0));
    RONDO_TRY(ctx->backend->check_channels(ctx));
    mine->nchannels = wanted_channels(ctx);
    mine->protos = rondo_init_wanted_protos(&ctx->wiring.layout, &ctx->running.allowed);
    rondo_tuner_plugin_open(&ctx->running.tuner, ctx->job.hash, &ctx->wiring.layout);
    mine->note.plugin = rondo_tuner_plugin_identity(ctx->running.tuner);
    if (ctx->job.nranks == 1) {
        return RONDO_SUCCESS;
    }
    fill_net(ctx);
    if (rondo_params()->tune_file[0] != '\0') {
        RONDO_TRY(rondo_tune_read(&ctx->running.tune, rondo_params()->tune_file));
        mine->note.tune = ctx->running.tune->hash;
    }
    mine->note.handover = rondo_init_known_handover(init);
    RONDO_TRY(rondo_net_open(&ctx->wiring.net, rondo_links_max(&ctx->wiring.layout, mine->nchannels)));
    mine->memory = ctx->wiring.net.arena;
    ctx->backend->fill_record(ctx, backend_part(ctx, mine));
    if (ctx->wiring.layout.local_rank == 0) {
        RONDO_TRY(rondo_node_graphs(&ctx->wiring.layout, ctx->wiring.peers, &init->graph_bytes,
                                    &init->graph_nbytes,
                                    ctx->backend->record_modes(backend_part(ctx, mine))));
        init->extra = extra_of(init, init->graph_nbytes);
        control_config(init, &config);
        RONDO_TRY(rondo_control_create(&ctx->wiring.control, &config, &mine->memory));
        if (init->inherits) {
            memcpy(rondo_control_extra(ctx->wiring.control), init->graph_bytes, init->graph_nbytes);
        }
        mine->note.hash = rondo_graphs_hash(init->graph_bytes, init->graph_nbytes);
        mine->note.nbytes = (uint32_t)init->graph_nbytes;
        mine->note.machine = rondo_node_machine_hash();
        mine->note.fabric = rondo_fabric_key(getenv("SLURM_TOPOLOGY_ADDR"));
    }
    return RONDO_SUCCESS;
}

/* Open what connects nodes: the listener of the control plane, and the net devices. */
static rondo_status prepare_nodes(struct rondo_init *init, struct nodes_record *mine)
{
    if (init->ctx->wiring.layout.nnodes > 1) {
        RONDO_TRY(rondo_control_listen(mine->control_addr, &mine->control_number));
        init->ctx->wiring.listening = 1;
    }
    rondo_netdev_hold();
    init->ctx->wiring.has_netdevs = 1;
    return rondo_netdev_mask(&mine->netdevs, NULL, 0);
}

const struct rondo_graph_note *rondo_init_graph_note(const struct rondo_init *init, int r)
{
    const struct graph_record *record = rondo_init_record(init, r);
    return &record->note;
}

/* Lay out the nodes first: the size of a record depends on them. */
static rondo_status start_graphs(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    init->merges = init->bootstrap->ops->reduce_start != NULL && !init->inherits;
    RONDO_TRY(rondo_layout_fill(&ctx->wiring.layout, ctx->wiring.peers, ctx->job.rank, ctx->job.nranks));
    if (ctx->backend->is_gpu) {
        ctx->wiring.layout.model.pair_bw = 0; /* GPUs do not publish in pieces */
    }
    RONDO_TRY(rondo_init_new_round(init, record_bytes(ctx), ctx->job.nranks));
    rondo_init_keep(init, prepare_graphs(init, init->mine));
    if (needs_net(ctx) && init->local == RONDO_SUCCESS) {
        rondo_init_keep(init, prepare_nodes(init, init->mine));
    }
    return rondo_init_allgather(init);
}

/* Add to the peers' records what phase "peers" could not know. */
static void complete_peers(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    for (int r = 0; r < ctx->job.nranks; r++) {
        const struct nodes_record *record = rondo_init_record(init, r);
        memcpy(ctx->wiring.peers[r].control_addr, record->control_addr, sizeof(record->control_addr));
        ctx->wiring.peers[r].control_number = record->control_number;
        ctx->wiring.peers[r].netdevs = record->netdevs;
    }
}

/* Check that all ranks have read the same tuning file, and hash the nodes' machines. */
static rondo_status finish_tune(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    uint64_t tune = rondo_init_graph_note(init, 0)->tune, first = rondo_init_graph_note(init, 0)->machine,
             sum = 0;
    int differ = 0;
    for (int r = 0; r < ctx->job.nranks; r++) {
        const struct rondo_graph_note *note = rondo_init_graph_note(init, r);
        if (note->tune != tune) {
            return rondo_fail(RONDO_INVALID_USAGE,
                              "rank %d on %s has read another tuning file than rank 0 on %s, or only one of "
                              "them has read one: give all ranks the same RONDO_TUNE_FILE",
                              r, ctx->wiring.peers[r].host, ctx->wiring.peers[0].host);
        }
        if (note->nbytes > 0) {
            sum += rondo_hash(&note->machine, sizeof(note->machine),
                              0); /* a sum: the order of nodes does not matter */
            differ |= note->machine != first;
        }
    }
    ctx->wiring.layout.machine = differ ? sum : first;
    return RONDO_SUCCESS;
}

/* A plugin chooses only where all ranks have it: one host may not have the library, or its init may fail
 * there. */
static void agree_on_plugin(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    static int said; /* once a process */
    uint64_t first = rondo_init_graph_note(init, 0)->plugin, other = first;
    int r = 0;
    while (other == first && ++r < ctx->job.nranks) {
        other = rondo_init_graph_note(init, r)->plugin;
    }
    if (other == first) {
        return;
    }
    if (ctx->job.rank == 0 && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
        RONDO_WARN(
            "%s: no rank uses a tuner plugin: rank 0 on %s has %s, rank %d on %s has %s; give all ranks "
            "the same one, or set RONDO_TUNER_PLUGIN=none",
            ctx->job.name, ctx->wiring.peers[0].host, rondo_tuner_plugin_text(ctx->running.tuner), r,
            ctx->wiring.peers[r].host,
            other == 0   ? "none"
            : first == 0 ? "one"
                         : "another");
    }
    rondo_tuner_plugin_close(ctx->running.tuner);
    ctx->running.tuner = NULL;
}

static void *backend_part_of(void *arg, int rank)
{
    struct rondo_init *init = arg;
    return backend_part(init->ctx, rondo_init_record(init, rank));
}

/* Do local ranks 0 and 1 both know their time from core to core? Else they measure it. */
static void use_known_handover(struct rondo_init *init)
{
    const struct rondo_layout *l = &init->ctx->wiring.layout;
    if (l->nlocal > 1) {
        uint32_t first = rondo_init_graph_note(init, l->local_ranks[0])->handover,
                 second = rondo_init_graph_note(init, l->local_ranks[1])->handover;
        init->handover.known = first != 0 && second != 0;
        init->handover.best_ns = init->handover.known ? first - 1 : 0;
    }
}

/* Nothing is left to measure, and all can read what others write into new memory: links need no round, and no
 * slot to pass through them. All ranks compute the same value. */
static int is_near(const struct rondo_init *init)
{
    const struct rondo_ctx *ctx = init->ctx;
    int near = init->inherits && ctx->job.nranks > 1 && ctx->job.nranks <= NEAR_RANKS &&
               !rondo_params()->shm_disable &&
               (init->handover.known || ctx->wiring.layout.model.ranks_per_core > 1);
    for (int r = 0; near && r < ctx->job.nranks; r++) {
        const struct graph_record *record = rondo_init_record(init, r);
        near = record->memory.mode == RONDO_SHM_MODE_MEMFD;
    }
    return near;
}

/* Keep the names of this node's memory. */
static rondo_status take_names(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    const struct rondo_layout *l = &ctx->wiring.layout;
    RONDO_TRY(RONDO_NEW_ARRAY(ctx->wiring.arenas, l->nlocal, "the names of the ranks' memory"));
    for (int i = 1; i < l->nlocal; i++) {
        const struct graph_record *record = rondo_init_record(init, l->local_ranks[i]);
        ctx->wiring.arenas[i] = record->memory;
    }
    if (l->local_rank == 0) {
        ctx->wiring.arenas[0] = ctx->wiring.net.arena;
    } else {
        const struct graph_record *leader = rondo_init_record(init, l->local_ranks[0]);
        init->segment = leader->memory;
    }
    ctx->wiring.net.arenas = ctx->wiring.arenas;
    return RONDO_SUCCESS;
}

rondo_status rondo_init_attach(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_control_config config;
    if (ctx->wiring.control == NULL) {
        control_config(init, &config);
        RONDO_TRY(rondo_control_attach(&ctx->wiring.control, &config, &init->segment));
        ctx->wiring.arenas[0] = *rondo_control_arena(ctx->wiring.control);
    }
    return RONDO_SUCCESS;
}

static rondo_status finish_graphs(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int nchannels = RONDO_MAX_CHANNELS;
    uint32_t protos = UINT32_MAX;
    for (int r = 0; r < ctx->job.nranks; r++) {
        const struct graph_record *record = rondo_init_record(init, r);
        nchannels = record->nchannels < nchannels ? record->nchannels : nchannels;
        protos &= record->protos;
    }
    RONDO_TRY(rondo_fault("names", ctx->job.rank, 0));
    RONDO_TRY(take_names(init));
    if (needs_net(ctx)) {
        complete_peers(init);
    }
    if (ctx->job.nranks > 1) {
        RONDO_TRY(ctx->backend->use_records(ctx, backend_part_of, init));
    }
    RONDO_TRY(finish_tune(init));
    agree_on_plugin(init);
    use_known_handover(init);
    init->extra = extra_of(init, rondo_init_graph_note(init, ctx->wiring.layout.local_ranks[0])->nbytes);
    init->near = is_near(init);
    RONDO_TRY(
        rondo_layout_channels(&ctx->wiring.layout, nchannels, (int)rondo_params()->min_nchannels, protos));
    return ctx->job.nranks > 1 ? rondo_init_list_shapes(init) : RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_graphs = {
    .name = "graphs",
    .start = start_graphs,
    .finish = finish_graphs,
};
