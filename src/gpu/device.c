/* A communicator's GPU: choosing, announcing, preparing and releasing it. Contract: comm/backend.h. */
#include "gpu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/layout_fill.h"
#include "comm/links.h"
#include "gpu/gpu.h"

int64_t rondo_device_patience = INT64_C(5000000000);
enum { GRAPHS_NS = 100000000 };

/* ---- the choice ---- */

static rondo_status resolve(struct rondo_ctx *ctx)
{
    struct rondo_device *device = ctx->device;
    device->ordinal = ctx->job.config.device;
    if (device->ordinal == RONDO_DEVICE_CURRENT) {
        RONDO_TRY(rondo_cuda_current(&device->ordinal));
        ctx->job.config.device = device->ordinal; /* children use the same */
    }
    return RONDO_SUCCESS;
}

static rondo_status open_device(struct rondo_ctx *ctx)
{
    struct rondo_device *device;
    RONDO_TRY(RONDO_NEW(device, "a communicator's device"));
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->net, NULL);
    pthread_mutex_init(&device->wake_lock, NULL);
    ctx->device = device;
    ctx->running.exec_ops = &rondo_exec_cuda;
    for (int i = 0; i < RONDO_NUM_COLLS * RONDO_NUM_ALGOS && rondo_params()->direct_gpu == 0; i++) {
        int a = i % RONDO_NUM_ALGOS;
        if (rondo_algo_medium((uint32_t)a) != RONDO_MEDIUM_CONNS) {
            ctx->running.allowed.protos[i / RONDO_NUM_ALGOS][a] = 0;
        }
    }
    device->chosen = resolve(ctx);
    if (device->chosen != RONDO_SUCCESS) {
        snprintf(device->text, sizeof(device->text), "%s", rondo_error_text());
    }
    return RONDO_SUCCESS;
}

static int allows_sharing(const struct rondo_ctx *ctx)
{
    return ctx->job.config.allow_shared_gpu != RONDO_CONFIG_DEFAULT ? ctx->job.config.allow_shared_gpu
                                                                    : rondo_params()->allow_shared_gpu;
}

static rondo_status fill_peer(struct rondo_ctx *ctx, struct rondo_peer *peer)
{
    struct rondo_device *device = ctx->device;
    const struct rondo_cuda_device *gpu = &device->gpu;
    if (device->chosen != RONDO_SUCCESS) {
        return rondo_fail_quiet(device->chosen, "%s", device->text);
    }
    RONDO_TRY(rondo_cuda_open(device->ordinal, &device->gpu));
    RONDO_TRY(rondo_cuda_kernels_get(&device->kernels, gpu));
    peer->device = gpu->ordinal;
    peer->shares_gpu = allows_sharing(ctx);
    peer->gpu_capability = (uint32_t)gpu->capability;
    peer->memory = gpu->memory;
    memcpy(peer->gpu_uuid, gpu->uuid, sizeof(peer->gpu_uuid));
    snprintf(peer->bus_id, sizeof(peer->bus_id), "%s", gpu->bus_id);
    return RONDO_SUCCESS;
}

/* Streams share the connections to the device, which carry launches in order: a launch that waits for an
 * earlier one of its stream holds up those of other ranks behind it. */
enum { DEFAULT_CONNECTIONS = 8, MOST_CONNECTIONS = 32, FEW_FLIGHTS = 4 };

static int connections(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return text != NULL && atoi(text) > 0 ? atoi(text) : DEFAULT_CONNECTIONS;
}

/* How many launches of a rank may be in progress. */
static int flights(const struct rondo_device *device)
{
    return device->sharers_here == 1 ? 0 : connections() < MOST_CONNECTIONS ? 1 : FEW_FLIGHTS;
}

static void warn_of_connections(const struct rondo_ctx *ctx)
{
    const struct rondo_device *device = ctx->device;
    if (device->sharers_here > 1 && connections() < MOST_CONNECTIONS) {
        RONDO_WARN(
            "%d ranks of this process on %s share GPU %d (%s) and its %d connections: a rank has one "
            "call in progress at a time, and kernels of the program's streams may hold up other ranks' "
            "calls for ever: set CUDA_DEVICE_MAX_CONNECTIONS=%d before the program starts",
            device->sharers_here, rondo_log_host(), device->ordinal, device->gpu.bus_id, connections(),
            MOST_CONNECTIONS);
    }
}

static void use_peers(struct rondo_ctx *ctx)
{
    struct rondo_device *device = ctx->device;
    const struct rondo_peer *self = &ctx->wiring.peers[ctx->job.rank];
    int first = ctx->job.rank;
    for (int r = 0; r < ctx->job.nranks; r++) {
        if (r == ctx->job.rank || rondo_peer_same_gpu(self, &ctx->wiring.peers[r])) {
            device->sharers++;
            device->sharers_here += ctx->wiring.peers[r].process_hash == self->process_hash;
            first = r < first ? r : first;
        }
    }
    if (first == ctx->job.rank) {
        warn_of_connections(ctx);
    }
    if (device->sharers > device->sharers_here && first == ctx->job.rank) {
        RONDO_WARN("%d ranks of several processes on %s share GPU %d (%s): without MPS their kernels "
                   "take turns on it, which is very slow",
                   device->sharers, self->host, device->ordinal, self->bus_id);
    }
}

/* ---- channels ---- */

static int max_channels(const struct rondo_ctx *ctx)
{
    int fit = rondo_cuda_kernels_blocks(ctx->device->kernels) /
              (ctx->device->sharers > 0 ? ctx->device->sharers : 1);
    return fit < RONDO_MAX_CHANNELS ? fit : RONDO_MAX_CHANNELS;
}

static rondo_status check_channels(const struct rondo_ctx *ctx)
{
    const struct rondo_device *device = ctx->device;
    if (max_channels(ctx) > 0) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(RONDO_INVALID_USAGE,
                      "rank %d: %d ranks share GPU %d (%s) on %s, which runs %d blocks together, and each "
                      "rank needs at least one: use fewer ranks per GPU, or more GPUs",
                      ctx->job.rank, device->sharers, device->ordinal, device->gpu.bus_id, rondo_log_host(),
                      rondo_cuda_kernels_blocks(device->kernels));
}

static void fill_net(struct rondo_ctx *ctx)
{
    ctx->wiring.net.device = &ctx->device->gpu;
    ctx->wiring.net.lazy_protos = rondo_message_protos(ctx);
}

/* ---- device memory of the node's ranks, and P2P modes ---- */

/* This folder's part of a record of round "graphs". */
struct device_record {
    struct rondo_gpu_name name;
    /* P2P modes, filled by the node's lowest rank: [from * nlocal + to]; room for the fullest node's */
    uint8_t modes[];
};

static size_t record_bytes(const struct rondo_ctx *ctx)
{
    size_t most = (size_t)ctx->wiring.layout.max_local;
    return rondo_round_up(sizeof(struct device_record) + most * most, 8);
}

static void fill_record(struct rondo_ctx *ctx, void *record)
{
    struct device_record *mine = record;
    rondo_net_gpu(&ctx->wiring.net, &mine->name);
}

static uint8_t *record_modes(void *record) { return ((struct device_record *)record)->modes; }

static rondo_status use_records(struct rondo_ctx *ctx, void *(*record_of)(void *arg, int rank), void *arg)
{
    struct rondo_device *device = ctx->device;
    const struct rondo_layout *l = &ctx->wiring.layout;
    const struct device_record *leader = record_of(arg, l->local_ranks[0]);
    RONDO_TRY(RONDO_NEW_ARRAY(device->names, l->nlocal, "the memory of the node's GPUs"));
    RONDO_TRY(RONDO_NEW_ARRAY(device->modes, l->nlocal, "the P2P modes of GPUs"));
    for (int i = 0; i < l->nlocal; i++) {
        const struct device_record *record = record_of(arg, l->local_ranks[i]);
        uint8_t mode = leader->modes[l->local_rank * l->nlocal + i];
        device->names[i] = record->name;
        device->modes[i] = mode < RONDO_NUM_P2P_MODES ? mode : RONDO_P2P_MODE_NONE;
    }
    ctx->wiring.net.gpus = device->names;
    ctx->wiring.net.p2p_modes = device->modes;
    return RONDO_SUCCESS;
}

static rondo_status check_modes(struct rondo_ctx *ctx) { return rondo_net_check(&ctx->wiring.net); }

static void modes(const struct rondo_ctx *ctx, uint8_t *modes)
{
    memcpy(modes, ctx->device->modes, (size_t)ctx->wiring.layout.nlocal);
}

static void use_modes(struct rondo_ctx *ctx, int rank, const uint8_t *modes)
{
    const struct rondo_layout *l = &ctx->wiring.layout;
    if (l->node_of[rank] == l->node && modes[l->local_rank] == RONDO_P2P_MODE_BROKEN) {
        ctx->device->modes[l->local_of[rank]] = RONDO_P2P_MODE_BROKEN;
    }
}

static rondo_status relay(struct rondo_ctx *ctx, struct rondo_shm_name *name)
{
    struct rondo_relayed *list;
    int n;
    RONDO_TRY(
        RONDO_NEW_ARRAY(ctx->device->relays, ctx->wiring.layout.nlocal, "what other GPUs send for this one"));
    ctx->wiring.net.relays = ctx->device->relays;
    RONDO_TRY(rondo_layout_relayed(&ctx->wiring.layout, &list, &n));
    rondo_net_relay(&ctx->wiring.net, list, n, ctx->wiring.layout.protos, name);
    rondo_free(list);
    return RONDO_SUCCESS;
}

static void use_relay(struct rondo_ctx *ctx, int rank, const struct rondo_shm_name *name)
{
    const struct rondo_layout *l = &ctx->wiring.layout;
    if (l->node_of[rank] == l->node && ctx->device->relays != NULL) {
        ctx->device->relays[l->local_of[rank]] = *name;
    }
}

/* Whether the 128 bytes of a store stay whole between ranks of one GPU is not proven: only RONDO_PROTO may
 * ask for LL128 there. */
static int proto_asks_for_ll128(void)
{
    const char *text = rondo_params()->proto;
    return text[0] != '^' && (strstr(text, "ll128") != NULL || strstr(text, "LL128") != NULL);
}

static int links_reach(const struct rondo_ctx *ctx)
{
    if (ctx->device->sharers > 1 && !proto_asks_for_ll128()) {
        return 0;
    }
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        const struct rondo_link *link = &ctx->wiring.links[i];
        int same = ctx->wiring.layout.node_of[link->peer] == ctx->wiring.layout.node;
        if (same && link->transport != &rondo_transport_p2p && !link->conn.proxied) {
            return 0;
        }
    }
    return 1;
}

/* ---- running, and the end ---- */

static rondo_status open_exec(struct rondo_ctx *ctx)
{
    struct rondo_device *device = ctx->device;
    struct rondo_exec_cuda_config config = { .device = &device->gpu,
                                             .kernels = device->kernels,
                                             .rank = ctx->job.rank,
                                             .nranks = ctx->job.nranks,
                                             .nchannels = ctx->wiring.layout.nchannels,
                                             .sharers = device->sharers_here,
                                             .flights = flights(device),
                                             .name = ctx->job.name,
                                             .owner = &ctx->running.owner };
    RONDO_TRY(rondo_exec_cuda_open(&ctx->running.exec, &config));
    return rondo_device_direct_open(ctx);
}

static rondo_status start(struct rondo_ctx *ctx)
{
    const int32_t *rank_at[RONDO_MAX_CHANNELS];
    struct rondo_ports *none = NULL;
    rondo_status status;
    for (int c = 0; c < ctx->wiring.layout.nchannels; c++) {
        rank_at[c] = ctx->wiring.layout.channel[c].ring.rank_at;
    }
    if (ctx->wiring.ports == NULL) { /* one rank */
        RONDO_TRY(RONDO_NEW_ARRAY(none, ctx->wiring.layout.nchannels, "the ports"));
        ctx->wiring.ports = none;
    }
    status = rondo_exec_cuda_wire(ctx->running.exec, ctx->wiring.ports, rank_at);
    return status == RONDO_SUCCESS && ctx->job.nranks > 1 ? rondo_device_watch(ctx) : status;
}

static void barrier_bytes(struct rondo_ctx *ctx, const void **send, void **recv)
{
    uint8_t *line = rondo_exec_cuda_line(ctx->running.exec);
    *send = line;
    *recv = line + RONDO_CACHE_LINE;
}

static rondo_status scratch(struct rondo_plan *plan, size_t bytes, void **memory)
{
    void *scratch;
    bytes = rondo_round_up(bytes, RONDO_CTRL_ALIGN);
    RONDO_TRY(rondo_exec_cuda_scratch(plan->ctx->running.exec, plan->scratch + bytes, &scratch));
    *memory = (uint8_t *)scratch + plan->scratch;
    plan->scratch += bytes;
    return RONDO_SUCCESS;
}

static void abort_device(struct rondo_ctx *ctx)
{
    if (ctx->running.exec != NULL) {
        rondo_exec_cuda_abort(ctx->running.exec);
    }
}

/* Launches of graphs are counted nowhere; after an error they do nothing. */
static int busy(struct rondo_ctx *ctx)
{
    struct rondo_exec *exec = ctx->running.exec;
    return rondo_device_busy(ctx) &&
           (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) != RONDO_COMM_FAILED ||
            rondo_exec_cuda_ended(exec) < rondo_exec_cuda_issued(exec));
}

/* Has every launch ended? If the driver cannot tell, make the kernels leave and read their own words. */
static int is_through(struct rondo_exec *exec, int *unreported)
{
    if (!*unreported) {
        rondo_status status = rondo_exec_cuda_query(exec);
        if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS) {
            return status == RONDO_SUCCESS;
        }
        *unreported = 1;
        rondo_exec_cuda_abort(exec);
    }
    return rondo_exec_cuda_ended(exec) >= rondo_exec_cuda_issued(exec) || rondo_exec_cuda_lost(exec);
}

/* Launches may yet begin, behind other work of their streams: what they read and write stays. */
static void keep_memory(struct rondo_ctx *ctx, const char *why)
{
    RONDO_WARN("rank %d: communicator \"%s\" on GPU %d (%s) ends, but %s: its memory, and other "
               "processes' that it has mapped, is kept until this process ends",
               ctx->job.rank, ctx->job.name, ctx->device->ordinal, ctx->device->gpu.bus_id, why);
    rondo_exec_cuda_keep(ctx->running.exec);
    ctx->wiring.net.kept = 1;
    if (ctx->wiring.control != NULL) {
        rondo_control_keep(ctx->wiring.control); /* copy engines write to its mailbox */
    }
}

/* Launches of graphs are counted nowhere. After a drain the user says that none run; after an error or an
 * abort only a graph that is gone runs no more. */
static int graphs_may_run(struct rondo_ctx *ctx)
{
    return (__atomic_load_n(&ctx->life.aborted, __ATOMIC_ACQUIRE) ||
            __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED) &&
           rondo_exec_cuda_graphs(ctx->running.exec) > 0 && !rondo_exec_cuda_lost(ctx->running.exec);
}

static void nap(void)
{
    struct timespec ms = { 0, 1000000 };
    nanosleep(&ms, NULL);
}

/* @return 0: launches have not ended in time */
static int wait_for_launches(struct rondo_ctx *ctx)
{
    int64_t begin_ns = rondo_now_ns(), check = rondo_params()->p2p_check,
            limit = check > rondo_device_patience ? check : rondo_device_patience;
    int unreported = 0, through, asked = 0;
    while (!(through = is_through(ctx->running.exec, &unreported)) && rondo_now_ns() - begin_ns < limit) {
        if (!asked && rondo_now_ns() - begin_ns > rondo_device_patience / 2) {
            asked = 1;
            rondo_exec_cuda_abort(ctx->running.exec); /* destroyed with work that does not end */
        }
        nap();
    }
    return through;
}

/* Drivers report the end of a graph some time after it. One that the program has not destroyed yet would be
 * waited for in vain. @return 0: there are such */
static int wait_for_graphs(struct rondo_ctx *ctx)
{
    int64_t begin_ns = rondo_now_ns();
    int left;
    while ((left = graphs_may_run(ctx)) && rondo_now_ns() - begin_ns < GRAPHS_NS) {
        nap();
    }
    return !left;
}

/* Memory is freed after this, unless it is kept. */
static void stop(struct rondo_ctx *ctx)
{
    if (ctx->device == NULL) {
        return;
    }
    rondo_device_unwatch(ctx);
    rondo_device_profile_forget(ctx);
    rondo_device_forget_calls(ctx);
    if (ctx->running.exec == NULL) {
        return;
    }
    if (__atomic_load_n(&ctx->life.aborted, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) != RONDO_COMM_READY) {
        rondo_exec_cuda_abort(ctx->running.exec);
    }
    if (!wait_for_launches(ctx)) {
        keep_memory(ctx, "its calls have not ended in time");
    } else if (!wait_for_graphs(ctx)) {
        keep_memory(ctx, "graphs with its calls were not destroyed");
    }
}

static void close_device(struct rondo_ctx *ctx)
{
    struct rondo_device *device = ctx->device;
    if (device == NULL) {
        return;
    }
    if (!ctx->wiring.net.kept) {
        if (device->kernels != NULL) {
            rondo_cuda_kernels_put(device->kernels);
        }
        rondo_cuda_close(&device->gpu);
    }
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->net);
    pthread_mutex_destroy(&device->wake_lock);
    rondo_free(device->names);
    rondo_free(device->modes);
    rondo_free(device->relays);
    rondo_free(device->wait);
    rondo_free(device);
    ctx->device = NULL;
}

static const struct rondo_p2p_ops p2p = {
    .check = check_modes,
    .modes = modes,
    .use_modes = use_modes,
    .relay = relay,
    .use_relay = use_relay,
};

static int reduces(const struct rondo_ctx *ctx, rondo_dtype type, rondo_op op)
{
    return rondo_dtype_allows(type, op) &&
           rondo_cuda_kernels_reduce(ctx->device->kernels, type, rondo_op_reduce(op));
}

static const struct rondo_backend_ops backend = {
    .name = "gpu",
    .is_gpu = 1,
    .p2p = &p2p,
    .open = open_device,
    .fill_peer = fill_peer,
    .use_peers = use_peers,
    .max_channels = max_channels,
    .check_channels = check_channels,
    .fill_net = fill_net,
    .mailbox_capacity = rondo_device_table_bytes,
    .record_bytes = record_bytes,
    .fill_record = fill_record,
    .record_modes = record_modes,
    .use_records = use_records,
    .open_exec = open_exec,
    .attach = rondo_device_attach,
    .join = rondo_device_join,
    .start = start,
    .links_reach = links_reach,
    .check_stream = rondo_device_check_stream,
    .run = rondo_device_run,
    .add = rondo_device_add,
    .launch = rondo_device_launch,
    .pair = rondo_device_pair,
    .drain = rondo_device_drain,
    .busy = busy,
    .look = rondo_device_look,
    .abort = abort_device,
    .barrier_bytes = barrier_bytes,
    .scratch = scratch,
    .copies = rondo_device_copies,
    .mailbox_bytes = rondo_device_mailbox_bytes,
    .reduces = reduces,
    .registered = rondo_device_registered,
    .stop = stop,
    .close = close_device,
};

const struct rondo_gpu rondo_gpu = {
    .backend = &backend,
    .check_pointers = rondo_device_check_pointers,
    .alloc = rondo_device_mem_alloc,
    .release = rondo_gpu_free,
};
