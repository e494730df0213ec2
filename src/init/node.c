#include "init/node.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/memo.h"
#include "base/param.h"
#include "base/wait.h"
#include "comm/layout_fill.h"
#include "net/netdev.h"
#include "topo/detect/detect.h"
#include "topo/stitch.h"
#include "topo/xml/xml.h"
#include "tuner/model.h"

/* ---- the machine: detected once a process ---- */

static pthread_mutex_t machine_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_machine machine; /* communicators come and go, the machine stays */
static int machine_known;
static uint64_t machine_hash; /* of it; it takes longer than all else that a split asks of a known machine */

/* Graphs of host memory, by the ranks' cores. */
struct packed {
    size_t n;
    uint8_t bytes[];
};
static struct rondo_memo known_graphs = { .drop = rondo_free };

/* A child knows the machine too, unless a thread of its parent was just looking for it. */
static void in_child(void)
{
    if (!rondo_fork_lock(&machine_lock)) {
        memset(&machine, 0, sizeof(machine));
        machine_known = 0;
        memset(known_graphs.last, 0, sizeof(known_graphs.last));
    }
}
RONDO_AT_FORK(in_child)

rondo_status rondo_node_machine(struct rondo_machine *found)
{
    const struct rondo_params *params = rondo_params();
    struct rondo_detect options = { .interfaces = params->socket_ifname };
    if (params->topo_file[0] == '\0') {
        return rondo_machine_detect(found, &options);
    }
    RONDO_TRY(rondo_machine_read(found, params->topo_file));
    found->is_described = 1;
    return RONDO_SUCCESS;
}

static rondo_status find_machine(void)
{
    const struct rondo_params *params = rondo_params();
    int64_t begin = rondo_now_ns();
    if (machine_known) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_node_machine(&machine));
    machine_hash = rondo_machine_hash(&machine);
    machine_known = 1;
    RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_GRAPH,
               "machine (%s): %d NUMA nodes, %d GPUs, %d nets, in %.1f ms%s%s", machine.source,
               rondo_machine_count(&machine, RONDO_ITEM_CPU), rondo_machine_count(&machine, RONDO_ITEM_GPU),
               rondo_machine_count(&machine, RONDO_ITEM_NET), (double)(rondo_now_ns() - begin) * 1e-6,
               machine.note[0] != '\0' ? "; " : "", machine.note);
    return params->topo_dump_file[0] != '\0' ? rondo_machine_write(&machine, params->topo_dump_file)
                                             : RONDO_SUCCESS;
}

uint64_t rondo_node_machine_hash(void)
{
    uint64_t hash;
    pthread_mutex_lock(&machine_lock);
    hash = machine_known ? machine_hash : 0;
    pthread_mutex_unlock(&machine_lock);
    return hash;
}

void rondo_node_forget_machine(void)
{
    pthread_mutex_lock(&machine_lock);
    rondo_machine_release(&machine);
    memset(&machine, 0, sizeof(machine));
    machine_known = 0;
    rondo_memo_clear(&known_graphs);
    pthread_mutex_unlock(&machine_lock);
}

/* ---- graphs of this node ---- */

static rondo_status level(const char *parameter, const char *text, int32_t *type)
{
    int found = text[0] != '\0' ? rondo_path_type_from_name(text) : -1;
    if (text[0] != '\0' && found < 0) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "%s=%s is not a path type: use LOC, NVL, PIX, PXB, PHB, SYS or NCCL's numbers",
                          parameter, text);
    }
    *type = found;
    return RONDO_SUCCESS;
}

rondo_status rondo_node_options(struct rondo_topo_options *options)
{
    static const int32_t gdr_read[] = {
        [RONDO_NET_GDR_READ_AUTO] = -1, [RONDO_NET_GDR_READ_NEVER] = 0, [RONDO_NET_GDR_READ_ALWAYS] = 1
    };
    const struct rondo_params *params = rondo_params();
    RONDO_TRY(level("RONDO_P2P_LEVEL", params->p2p_level, &options->p2p_level));
    RONDO_TRY(level("RONDO_NET_GDR_LEVEL", params->net_gdr_level, &options->gdr_level));
    options->gdr_c2c = params->net_gdr_c2c;
    options->gdr_read = gdr_read[params->net_gdr_read];
    options->cross_nic = (int32_t)params->cross_nic;
    options->p2p_disable = params->p2p_disable;
    options->shm_disable = params->shm_disable;
    options->pxn_disable = params->pxn_disable;
    return RONDO_SUCCESS;
}

static int shows_gpu(int64_t busid)
{
    int32_t pci = rondo_machine_find_pci(&machine, busid);
    for (int32_t i = 0; pci >= 0 && i < machine.nitems; i++) {
        if (machine.item[i].kind == RONDO_ITEM_GPU && machine.item[i].parent == pci) {
            return 1;
        }
    }
    return 0;
}

/* The machine may lack a GPU (a container without its PCI tree, another machine's RONDO_TOPO_FILE). Its paths
 * are then unknown, and all paths count as equal. */
static int knows_gpus(const struct rondo_layout *layout, const struct rondo_peer *peers)
{
    for (int i = 0; i < layout->nlocal; i++) {
        const struct rondo_peer *peer = &peers[layout->local_ranks[i]];
        if (peer->device >= 0 && !shows_gpu(rondo_busid_parse(peer->bus_id))) {
            RONDO_WARN(
                "the machine (%s) shows no GPU at %s, which rank %d on %s uses: rings and trees do not "
                "follow the wiring; describe it with RONDO_TOPO_FILE",
                machine.source, peer->bus_id, peer->rank, rondo_log_host());
            return 0;
        }
    }
    return 1;
}

/* Unknown paths may use P2P: phase "p2p_check" tests each pair anyway. */
static void fill_p2p_modes(const struct rondo_layout *layout, const struct rondo_peer *peers,
                           const struct rondo_topo *topo, uint8_t *modes)
{
    int n = layout->nlocal, known = topo->all_gpus;
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            struct rondo_topo_verdict verdict = { .yes = !rondo_params()->p2p_disable };
            int read = 0;
            if (known) {
                rondo_topo_p2p(topo, a, b, &read, &verdict);
            }
            modes[a * n + b] = !verdict.yes ? RONDO_P2P_MODE_NONE
                               : read       ? RONDO_P2P_MODE_READ
                                            : RONDO_P2P_MODE_WRITE;
            if (!verdict.yes && a < b) {
                RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_P2P, "ranks %d and %d do not use P2P: %s",
                           peers[layout->local_ranks[a]].rank, peers[layout->local_ranks[b]].rank,
                           known ? verdict.reason : "RONDO_P2P_DISABLE=1");
            }
        }
    }
}

/* Log why a GPU's data go through host memory on their way to a NIC. */
static void log_gdr(const struct rondo_layout *layout, const struct rondo_peer *peers,
                    const struct rondo_topo *topo)
{
    struct rondo_topo_verdict verdict;
    char name[RONDO_MACHINE_NAME + 32];
    for (int dev = 0; topo->all_gpus && layout->nnodes > 1 && dev < layout->nlocal; dev++) {
        for (int net = 0; net < topo->nnets; net++) {
            rondo_topo_gdr(topo, dev, net, 0, &verdict);
            if (!verdict.yes) {
                RONDO_INFO(RONDO_SUBSYS_GRAPH | RONDO_SUBSYS_NET,
                           "rank %d does not use GPUDirect with %s: %s", peers[layout->local_ranks[dev]].rank,
                           rondo_topo_point_name(topo, rondo_topo_net_point(topo, net), name, sizeof(name)),
                           verdict.reason);
            }
        }
    }
}

/* Log which GPUs send through another GPU near the NIC, and why. */
static void log_pxn(const struct rondo_layout *layout, const struct rondo_peer *peers,
                    const struct rondo_topo *topo)
{
    struct rondo_topo_verdict verdict;
    char name[RONDO_MACHINE_NAME + 32];
    uint8_t relay[RONDO_NET_DEVS];
    for (int net = 0; topo->all_gpus && layout->nnodes > 1 && net < topo->nnets; net++) {
        rondo_topo_relays(topo, net, relay, RONDO_NET_DEVS);
        for (int dev = 0; dev < layout->nlocal && dev < RONDO_NET_DEVS; dev++) {
            if (relay[dev] != 0) {
                rondo_topo_pxn(topo, dev, net, &verdict);
                RONDO_INFO(RONDO_SUBSYS_GRAPH | RONDO_SUBSYS_NET,
                           "rank %d sends by %s through the GPU of rank %d (PXN): %s",
                           peers[layout->local_ranks[dev]].rank,
                           rondo_topo_point_name(topo, rondo_topo_net_point(topo, net), name, sizeof(name)),
                           peers[layout->local_ranks[relay[dev] - 1]].rank, verdict.reason);
            }
        }
    }
}

/* Are the ranks bound to cores that the machine has, and not all to the same ones? */
static int are_bound_there(const struct rondo_topo_rank *ranks, int n, const struct rondo_cores *all)
{
    int differ = 0;
    for (int i = 0; i < n; i++) {
        struct rondo_cores with = *all;
        rondo_cores_unite(&with, &ranks[i].cores);
        if (memcmp(&with, all, sizeof(with)) != 0) {
            return 0;
        }
        differ |= memcmp(&ranks[i].cores, &ranks[0].cores, sizeof(with)) != 0;
    }
    return differ;
}

/*
 * A described machine (RONDO_TOPO_FILE, HWLOC_SYNTHETIC, HWLOC_XMLFILE) need not be this host, to whose cores
 * the ranks are bound. Where their cores do not fit, rank k of the node takes the machine's k-th core, as
 * launchers place ranks by core, and starts again after the last one.
 */
static void place_by_core(struct rondo_topo_rank *ranks, int n)
{
    struct rondo_cores all = { { 0 } };
    int core = -1;
    for (int32_t i = 0; i < machine.nitems; i++) {
        if (machine.item[i].kind == RONDO_ITEM_CPU) {
            rondo_cores_unite(&all, &machine.item[i].cpu.cores);
        }
    }
    if (rondo_cores_count(&all) == 0 || are_bound_there(ranks, n, &all)) {
        return;
    }
    for (int i = 0; i < n; i++) {
        do {
            core = (core + 1) % RONDO_MAX_CORES;
        } while ((all.bits[core / 64] >> (core % 64) & 1) == 0);
        memset(&ranks[i].cores, 0, sizeof(ranks[i].cores));
        ranks[i].cores.bits[core / 64] = (uint64_t)1 << (core % 64);
    }
}

/* All that the graphs of a node depend on, besides the machine. */
struct node_input {
    struct rondo_topo_options options;
    struct rondo_topo_rank rank[]; /* nlocal */
};
_Static_assert(sizeof(struct node_input) + RONDO_MAX_CORES * sizeof(struct rondo_topo_rank) <=
                   RONDO_MEMO_MOST,
               "a memo keeps the graphs of a node with a rank on each core");

static size_t input_bytes(const struct rondo_layout *layout)
{
    return sizeof(struct node_input) + sizeof(struct rondo_topo_rank) * (size_t)layout->nlocal;
}

static rondo_status node_input(const struct rondo_layout *layout, const struct rondo_peer *peers,
                               struct node_input **input_out)
{
    const struct rondo_topo_options defaults = RONDO_TOPO_OPTIONS_DEFAULT;
    struct node_input *input;
    rondo_status status;
    int known = knows_gpus(layout, peers);
    RONDO_TRY(rondo_calloc(&input, 1, input_bytes(layout), "the ranks of this node"));
    input->options = defaults;
    status = rondo_node_options(&input->options);
    if (status != RONDO_SUCCESS) {
        rondo_free(input);
        return status;
    }
    input->options.nnodes = layout->nnodes;
    for (int i = 0; i < layout->nlocal; i++) {
        const struct rondo_peer *peer = &peers[layout->local_ranks[i]];
        input->rank[i].rank = peer->rank;
        input->rank[i].busid = peer->device >= 0 && known ? rondo_busid_parse(peer->bus_id) : -1;
        if (peer->cores != NULL) {
            input->rank[i].cores = *peer->cores;
        }
    }
    if (machine.is_described) {
        place_by_core(input->rank, layout->nlocal);
    }
    *input_out = input;
    return RONDO_SUCCESS;
}

static void log_graph(const struct rondo_topo *topo, const struct rondo_graph *g)
{
    char limit[160];
    RONDO_INFO(RONDO_SUBSYS_GRAPH,
               "%s (%s): %d channels of %.1f/%.1f GB/s, %s/%s, %.1f of at most %.1f GB/s: %s; %lld steps",
               rondo_graph_name(g->id), rondo_pattern_name(g->pattern), g->nchannels, g->bw_intra * 1e-3,
               g->bw_inter * 1e-3, rondo_path_type_name(g->type_intra), rondo_path_type_name(g->type_inter),
               g->found * 1e-3, g->bound * 1e-3, rondo_graph_limit(topo, g, limit, sizeof(limit)),
               (long long)g->steps);
}

/* A graph of the file replaces the one that was searched. */
static rondo_status graphs_from_file(const struct rondo_topo *topo, const char *file,
                                     struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    struct rondo_graph given[RONDO_NUM_GRAPHS] = { 0 };
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(rondo_graphs_read(given, topo, file));
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        struct rondo_graph spare = graphs[id];
        if (status == RONDO_SUCCESS && given[id].nchannels > 0) {
            status = rondo_topo_bound(topo, &given[id], 0);
            graphs[id] = given[id];
            given[id] = spare;
        }
        rondo_graph_release(&given[id]);
    }
    return status;
}

rondo_status rondo_node_search(const struct rondo_topo *topo, const char *file,
                               struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    RONDO_TRY(rondo_topo_search(topo, graphs));
    return file != NULL && file[0] != '\0' ? graphs_from_file(topo, file, graphs) : RONDO_SUCCESS;
}

static rondo_status make_graphs(const struct rondo_topo *topo, struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    const struct rondo_params *params = rondo_params();
    RONDO_TRY(rondo_node_search(topo, params->graph_file, graphs));
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        log_graph(topo, &graphs[id]);
    }
    return params->graph_dump_file[0] != '\0' ? rondo_graphs_write(graphs, topo, params->graph_dump_file)
                                              : RONDO_SUCCESS;
}

static rondo_status search_graphs(const struct rondo_layout *layout, const struct rondo_peer *peers,
                                  const struct node_input *input, uint8_t **bytes, size_t *n, uint8_t *modes)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS] = { 0 };
    struct rondo_topo *topo = NULL;
    rondo_status status;
    RONDO_TRY(rondo_topo_create(&topo, &machine, input->rank, layout->nlocal, &input->options));
    if (modes != NULL) {
        fill_p2p_modes(layout, peers, topo, modes);
        log_gdr(layout, peers, topo);
        log_pxn(layout, peers, topo);
    }
    RONDO_TRY_GOTO(make_graphs(topo, graphs), out);
    RONDO_TRY_GOTO(rondo_graphs_pack_topo(topo, graphs, bytes, n), out);
    if (*n > RONDO_SHAPE_MAX_BYTES) {
        status = rondo_fail(RONDO_INTERNAL_ERROR,
                            "the graphs of %d ranks on host %s take %zu bytes; %d are allowed",
                            layout->nlocal, rondo_log_host(), *n, RONDO_SHAPE_MAX_BYTES);
    }
out:
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
    rondo_topo_destroy(topo);
    return status;
}

/* Copy the graphs of an earlier communicator whose ranks had the same cores. Ranks' numbers are not in them:
 * the input has them for log lines only. @return 0: there was none. */
static int recall_graphs(struct node_input *input, size_t size, int nlocal, uint8_t **bytes, size_t *n)
{
    const struct packed *packed;
    for (int i = 0; i < nlocal; i++) {
        input->rank[i].rank = 0;
    }
    packed = rondo_memo_find(&known_graphs, input, size);
    if (packed == NULL || rondo_calloc(bytes, 1, packed->n, "a node's graphs") != RONDO_SUCCESS) {
        return 0;
    }
    memcpy(*bytes, packed->bytes, packed->n);
    *n = packed->n;
    RONDO_INFO(RONDO_SUBSYS_GRAPH,
               "%d ranks have the cores of an earlier communicator's: its graphs are used", nlocal);
    return 1;
}

static void keep_graphs(const struct node_input *input, size_t size, const uint8_t *bytes, size_t n)
{
    struct packed *packed = malloc(sizeof(*packed) + n); /* without it they are only not kept: no error */
    if (packed == NULL) {
        return;
    }
    packed->n = n;
    memcpy(packed->bytes, bytes, n);
    if (!rondo_memo_keep(&known_graphs, input, size, packed)) {
        free(packed);
    }
}

rondo_status rondo_node_graphs(const struct rondo_layout *layout, const struct rondo_peer *peers,
                               uint8_t **bytes, size_t *n, uint8_t *modes)
{
    const struct rondo_params *params = rondo_params();
    int memo = modes == NULL && params->graph_file[0] == '\0' && params->graph_dump_file[0] == '\0';
    struct node_input *input = NULL;
    rondo_status status;
    *bytes = NULL;
    pthread_mutex_lock(&machine_lock);
    RONDO_TRY_GOTO(find_machine(), out);
    RONDO_TRY_GOTO(node_input(layout, peers, &input), out);
    if (!memo || !recall_graphs(input, input_bytes(layout), layout->nlocal, bytes, n)) {
        RONDO_TRY_GOTO(search_graphs(layout, peers, input, bytes, n, modes), out);
        if (memo) {
            keep_graphs(input, input_bytes(layout), *bytes, *n);
        }
    }
out:
    pthread_mutex_unlock(&machine_lock);
    rondo_free(input);
    if (status != RONDO_SUCCESS) {
        rondo_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* ---- rings over all ranks ---- */

/* RONDO_DETERMINISM=strict: on every channel the position is the rank. */
static rondo_status fill_rings_in_rank_order(struct rondo_layout *layout)
{
    int32_t *rank_at;
    RONDO_TRY(RONDO_NEW_ARRAY(rank_at, layout->nranks, "a ring"));
    for (int r = 0; r < layout->nranks; r++) {
        rank_at[r] = r;
    }
    RONDO_TRY(rondo_layout_ring(layout, 0, rank_at));
    for (int c = 1; c < layout->nchannels; c++) {
        layout->channel[c].ring = layout->channel[0].ring;
    }
    return RONDO_SUCCESS;
}

/* More channels than were stitched repeat them from the first. */
static rondo_status fill_rings(struct rondo_layout *layout, const struct rondo_stitch *stitch)
{
    int stitched = rondo_stitch_summary(stitch)->nchannels;
    if (layout->rank_order) {
        return fill_rings_in_rank_order(layout);
    }
    for (int c = 0; c < layout->nchannels; c++) {
        int same = rondo_stitch_ring_of(stitch, c % stitched);
        if (same < c) {
            layout->channel[c].ring = layout->channel[same].ring;
        } else {
            int32_t *rank_at;
            RONDO_TRY(RONDO_NEW_ARRAY(rank_at, layout->nranks, "a ring"));
            rondo_stitch_ring(stitch, c % stitched, rank_at);
            RONDO_TRY(rondo_layout_ring(layout, c, rank_at));
        }
    }
    return RONDO_SUCCESS;
}

/* The slowest pair of ranks decides: RDMA counts only if all ranks have the same device for it. */
static enum rondo_model_net net_of_all(const struct rondo_peer *peers, int nranks)
{
    uint32_t common = UINT32_MAX;
    for (int r = 0; r < nranks; r++) {
        common &= peers[r].netdevs;
    }
    for (int i = 0; i < rondo_num_netdevs; i++) {
        if ((common >> i & 1) != 0 && rondo_netdevs[i] != &rondo_netdev_socket) {
            return RONDO_MODEL_RDMA;
        }
    }
    return RONDO_MODEL_SOCKETS;
}

/* Host memory has binary trees inside nodes, GPUs have chains. */
static int is_host(const struct rondo_peer *peers, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        if (peers[r].device < 0) {
            return 1;
        }
    }
    return 0;
}

/* GPUs use as many channels as load the graphs' links, or UNKNOWN_CHANNELS where the links are unknown. */
static void limit_channels(struct rondo_layout *layout, int host)
{
    enum { UNKNOWN_CHANNELS = 16 };
    int known = layout->model.gpu.nchannels, most = known > 0 ? known : UNKNOWN_CHANNELS;
    most = most < layout->least_channels ? layout->least_channels : most;
    if (!host && layout->nchannels > most) {
        layout->nchannels = most;
    }
}

/* List the NICs that the transport uses with GPUDirect or through a relay. */
static rondo_status fill_nics(struct rondo_layout *layout, const struct rondo_stitch *stitch)
{
    int nnets = rondo_stitch_nnets(stitch, layout->rank);
    RONDO_TRY(RONDO_NEW_ARRAY(layout->nics, nnets, "the nets of this node"));
    for (int net = 0; net < nnets; net++) {
        const char *name = rondo_stitch_net_name(stitch, layout->rank, net);
        uint32_t gdr = rondo_stitch_gdr(stitch, layout->rank, net);
        int relay = rondo_stitch_relay(stitch, layout->rank, net);
        if (name != NULL && (gdr != 0 || relay >= 0)) {
            struct rondo_nic *nic = &layout->nics[layout->nnics++];
            snprintf(nic->name, sizeof(nic->name), "%s", name);
            nic->gdr = gdr;
            nic->relay = relay >= 0 && relay < layout->nlocal ? 1 + layout->local_ranks[relay] : 0;
        }
    }
    return RONDO_SUCCESS;
}

/* Build the trees of one node whose ranks form groups, in the order of channel 0's ring. Rank order has no
 * groups. */
static rondo_status fill_grouped(struct rondo_layout *layout, const struct rondo_stitch *stitch)
{
    const uint8_t *cut = rondo_stitch_cuts(stitch);
    for (int which = 0; cut != NULL && !layout->rank_order && which < 2; which++) {
        RONDO_TRY(rondo_group_tree_create(&layout->grouped[which], layout->nranks, cut,
                                          rondo_stitch_summary(stitch)->levels.n, which, 0));
    }
    return cut == NULL || layout->rank_order
               ? RONDO_SUCCESS
               : rondo_nest_create(&layout->nest, layout->nranks, layout->channel[0].ring.rank_at, cut,
                                   rondo_stitch_summary(stitch)->levels.n);
}

/* Log how the edges of trees and rings cross the levels. RONDO_DETERMINISM=strict has rank order instead. */
static void log_levels(const struct rondo_layout *layout, const struct rondo_stitch *stitch)
{
    const struct rondo_stitch_summary *sum = rondo_stitch_summary(stitch);
    int n = sum->max_local, several = sum->nnodes > 1;
    struct rondo_channel_layout view;
    char text[128], tree[128], ring[128];
    if (layout->rank != 0 || layout->rank_order || sum->levels.n == 0) {
        return;
    }
    rondo_stitch_channel(stitch, 0, 0, &view);
    RONDO_INFO(RONDO_SUBSYS_GRAPH, "levels%s: %s; edges of a tree: %s, %d hops deep%s; of a ring: %s",
               several ? " of a node" : "", rondo_levels_text(&sum->levels, n, text, sizeof(text)),
               rondo_levels_edges_text(&sum->levels, n, 0, tree, sizeof(tree)), view.tree.depth,
               several ? " over all nodes" : "",
               rondo_levels_edges_text(&sum->levels, n, !several, ring, sizeof(ring)));
}

/* The layout reads all that it needs of one node's stitch, so an earlier communicator's will do. */
struct stitch_key {
    int32_t nranks, host_trees;
    uint8_t bytes[];
};
static pthread_mutex_t stitch_lock = PTHREAD_MUTEX_INITIALIZER;
static void drop_stitch(void *stitch) { rondo_stitch_destroy(stitch); }
static struct rondo_memo known_stitches = { .drop = drop_stitch };

static void stitches_in_child(void)
{
    if (!rondo_fork_lock(&stitch_lock)) {
        memset(known_stitches.last, 0, sizeof(known_stitches.last));
    }
}
RONDO_AT_FORK(stitches_in_child)

static rondo_status use_stitch(struct rondo_layout *layout, const struct rondo_peer *peers,
                               struct rondo_stitch *stitch)
{
    RONDO_TRY(fill_nics(layout, stitch));
    rondo_model_from_graphs(&layout->model, rondo_stitch_summary(stitch));
    limit_channels(layout, is_host(peers, layout->nranks));
    rondo_model_machine(&layout->model, rondo_stitch_summary(stitch));
    rondo_model_levels(&layout->model, rondo_stitch_summary(stitch));
    log_levels(layout, stitch);
    return fill_rings(layout, stitch);
}

static rondo_status stitch_nodes(struct rondo_layout *layout, const struct rondo_peer *peers,
                                 const struct rondo_stitch_input *input)
{
    RONDO_TRY(rondo_stitch_create(&layout->stitch, input)); /* the layout owns it */
    layout->toward = rondo_stitch_toward;
    RONDO_TRY(use_stitch(layout, peers, layout->stitch));
    rondo_model_net(&layout->model, rondo_stitch_summary(layout->stitch), net_of_all(peers, layout->nranks));
    return RONDO_SUCCESS;
}

static rondo_status stitch_node(struct rondo_layout *layout, const struct rondo_peer *peers,
                                const struct rondo_stitch_input *input)
{
    size_t bytes = sizeof(struct stitch_key) + input->nbytes[0];
    struct rondo_stitch *stitch = NULL;
    struct stitch_key *key;
    int kept = 1;
    rondo_status status;
    RONDO_TRY(rondo_calloc(&key, 1, bytes, "a node's graphs"));
    key->nranks = input->nranks;
    key->host_trees = input->host_trees;
    memcpy(key->bytes, input->bytes[0], input->nbytes[0]);
    pthread_mutex_lock(&stitch_lock);
    stitch = rondo_memo_find(&known_stitches, key, bytes);
    if (stitch == NULL) {
        RONDO_TRY_GOTO(rondo_stitch_create(&stitch, input), out);
        kept = rondo_memo_keep(&known_stitches, key, bytes, stitch);
    }
    RONDO_TRY_GOTO(use_stitch(layout, peers, stitch), out);
    status = fill_grouped(layout, stitch);
out:
    if (!kept) {
        rondo_stitch_destroy(stitch);
    }
    pthread_mutex_unlock(&stitch_lock);
    rondo_free(key);
    return status;
}

rondo_status rondo_node_rings(struct rondo_layout *layout, const struct rondo_peer *peers,
                              const struct rondo_shape *shapes, int nshapes, const uint64_t *graphs,
                              const uint64_t *fabric)
{
    struct rondo_stitch_rank *rank = NULL;
    const uint8_t **bytes = NULL;
    size_t *nbytes = NULL;
    rondo_status status;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(rank, layout->nranks, "the table of ranks"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(bytes, nshapes, "the nodes' graphs"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(nbytes, nshapes, "the nodes' graphs"), out);
    for (int i = 0; i < nshapes; i++) {
        bytes[i] = shapes[i].bytes;
        nbytes[i] = shapes[i].nbytes;
    }
    for (int r = 0; r < layout->nranks; r++) {
        rank[r].graphs = graphs[layout->node_of[r]];
        rank[r].node = (uint32_t)layout->node_of[r];
        rank[r].local = (uint16_t)layout->local_of[r];
    }
    struct rondo_stitch_input input = { .nranks = layout->nranks,
                                        .rank = rank,
                                        .ndistinct = nshapes,
                                        .bytes = bytes,
                                        .nbytes = nbytes,
                                        .fabric = fabric,
                                        .host_trees = is_host(peers, layout->nranks) };
    status = (layout->nnodes > 1 ? stitch_nodes : stitch_node)(layout, peers, &input);
out:
    rondo_free(rank);
    rondo_free(bytes);
    rondo_free(nbytes);
    return status;
}
