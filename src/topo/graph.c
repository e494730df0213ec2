/* The link loads of a graph's channels: legs, fit, check; and names. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/search_step.h"

enum { MAX_NAME = 96 };

rondo_status rondo_graph_alloc(struct rondo_graph *graph, int ndevs)
{
    graph->ndevs = ndevs;
    return RONDO_NEW_ARRAY(graph->order, (size_t)RONDO_TOPO_CHANNELS * (size_t)ndevs,
                           "the channels of a graph");
}

void rondo_graph_release(struct rondo_graph *graph)
{
    rondo_free(graph->order);
    rondo_free(graph->cut);
    graph->order = NULL;
    graph->cut = NULL;
    graph->nchannels = 0;
}

void rondo_graph_copy(struct rondo_graph *to, const struct rondo_graph *from)
{
    int16_t *order = to->order;
    memcpy(order, from->order, sizeof(*order) * (size_t)from->nchannels * (size_t)from->ndevs);
    *to = *from;
    to->order = order;
}

int rondo_graph_channels_equal(const struct rondo_graph *graph, int a, int b)
{
    size_t n = (size_t)graph->ndevs;
    return memcmp(graph->order + (size_t)a * n, graph->order + (size_t)b * n, n * sizeof(*graph->order)) ==
               0 &&
           memcmp(graph->net + 2 * (size_t)a, graph->net + 2 * (size_t)b, 2 * sizeof(*graph->net)) == 0;
}

static struct rondo_leg *add_leg(struct rondo_leg *leg, int from, int to, int inter, int eighths)
{
    *leg = (struct rondo_leg){ .from = from, .to = to, .inter = inter, .eighths = eighths };
    return leg + 1;
}

/* Trees leave where the pattern says, a ring at its last device. */
static struct rondo_leg *legs_to_net(struct rondo_leg *leg, const struct rondo_graph *graph,
                                     const int16_t *order, int net)
{
    int n = graph->ndevs;
    switch (n > 1 ? graph->pattern : RONDO_PATTERN_TREE) {
    case RONDO_PATTERN_RING: return add_leg(leg, order[n - 1], net, 1, 8);
    case RONDO_PATTERN_SPLIT_TREE: return add_leg(leg, order[1], net, 1, 8);
    case RONDO_PATTERN_BALANCED_TREE:
        leg = add_leg(leg, order[0], net, 1, 4);
        return add_leg(leg, order[1], net, 1, 4);
    default: return add_leg(leg, order[0], net, 1, 8);
    }
}

int rondo_graph_legs(const struct rondo_topo *topo, const struct rondo_graph *graph, int channel,
                     struct rondo_leg *legs)
{
    const int16_t *order = graph->order + (size_t)channel * (size_t)graph->ndevs;
    const int16_t *net = graph->net + 2 * (size_t)channel;
    struct rondo_leg *leg = legs;
    if (net[0] >= 0) {
        leg = add_leg(leg, rondo_topo_net_point(topo, net[0]), order[0], 1, 8);
    }
    for (int i = 0; i + 1 < graph->ndevs; i++) {
        leg = add_leg(leg, order[i], order[i + 1], 0, 8);
    }
    if (net[1] >= 0) {
        leg = legs_to_net(leg, graph, order, rondo_topo_net_point(topo, net[1]));
    } else if (graph->pattern == RONDO_PATTERN_RING && graph->ndevs > 1 && net[0] < 0 &&
               topo->options.nnodes == 1) {
        leg = add_leg(leg, order[graph->ndevs - 1], order[0], 0, 8);
    }
    return (int)(leg - legs);
}

/* Add a leg's load on each link, in 1/480 of its speed. */
static void add_use(const struct rondo_topo *topo, const struct rondo_leg *leg, int64_t *use)
{
    const struct rondo_topo_path *path = rondo_topo_path(topo, leg->from, leg->to);
    for (int i = 0; i < path->nhops; i++) {
        int32_t hop = topo->hop[path->first + i];
        use[hop] += (int64_t)topo->cost[path->first + i] * leg->eighths;
        if (path->reverse_eighth && i == path->nhops - 1) {
            use[topo->link[hop].reverse] += 60 * leg->eighths / 8;
        }
    }
}

static int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }

/* The latency of the port at an end of the leg, without the path to it, as in NCCL's graph files. */
static int32_t net_latency(const struct rondo_topo *topo, const struct rondo_leg *leg)
{
    int end = topo->node[topo->point[leg->from]].type == RONDO_NODE_NET ? leg->from : leg->to;
    const struct rondo_item *item = rondo_topo_item(topo, end);
    double ns = item != NULL && item->kind == RONDO_ITEM_NET ? item->net.latency * 1000 : 0;
    return ns > 0 && ns < 1e8 ? (int32_t)ns : 0;
}

/* Sum the loads of all channels: use[0 .. nlinks) by legs inside the node, use[nlinks ..) by legs through
 * nets. Also sets types, hops and latency. @return 0: a leg has no path. */
static int sum_use(const struct rondo_topo *topo, struct rondo_graph *graph, int64_t *use)
{
    struct rondo_leg legs[RONDO_TOPO_MAX_LOCAL + 3];
    memset(use, 0, sizeof(*use) * 2 * (size_t)topo->nlinks);
    graph->type_intra = RONDO_PATH_LOC;
    graph->type_inter = graph->net[0] >= 0 ? RONDO_PATH_PIX : RONDO_PATH_LOC;
    graph->nhops = graph->latency_inter = 0;
    for (int c = 0; c < graph->nchannels; c++) {
        int n = rondo_graph_legs(topo, graph, c, legs);
        for (int i = 0; i < n; i++) {
            const struct rondo_topo_path *path = rondo_topo_path(topo, legs[i].from, legs[i].to);
            int32_t *type = legs[i].inter ? &graph->type_inter : &graph->type_intra;
            if (path->mbs <= 0) {
                return 0;
            }
            *type = path->type > *type ? path->type : *type;
            graph->nhops += path->nhops;
            graph->latency_inter = max32(graph->latency_inter,
                                         legs[i].inter ? net_latency(topo, &legs[i]) : 0);
            add_use(topo, &legs[i], use + (legs[i].inter ? topo->nlinks : 0));
        }
    }
    return 1;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

int32_t rondo_graph_fit(const struct rondo_topo *topo, struct rondo_graph *graph, int64_t *scratch)
{
    const int64_t *intra = scratch, *inter = scratch + topo->nlinks;
    int64_t both = RONDO_MACHINE_MAX_MBS, inside;
    if (!sum_use(topo, graph, scratch)) {
        return 0;
    }
    for (int l = 0; l < topo->nlinks; l++) {
        if (intra[l] + inter[l] > 0) {
            both = min64(both, (int64_t)topo->link[l].mbs * RONDO_LINK_UNITS / (intra[l] + inter[l]));
        }
    }
    inside = both;
    if (graph->pattern != RONDO_PATTERN_RING && graph->net[0] >= 0) {
        inside = 2 * both;
        for (int l = 0; l < topo->nlinks; l++) {
            if (intra[l] > 0) {
                inside = min64(inside,
                               ((int64_t)topo->link[l].mbs * RONDO_LINK_UNITS - inter[l] * both) / intra[l]);
            }
        }
    }
    graph->bw_inter = (int32_t)both;
    graph->bw_intra = (int32_t)inside;
    graph->found = (int32_t)min64(both * graph->nchannels, RONDO_MACHINE_MAX_MBS);
    return graph->bw_inter;
}

/* ---- check ---- */

static rondo_status check_orders(const struct rondo_topo *topo, const struct rondo_graph *graph)
{
    const char *name = rondo_graph_name(graph->id);
    uint8_t seen[RONDO_TOPO_MAX_LOCAL];
    if (graph->ndevs != topo->ndevs || graph->nchannels < 1 || graph->nchannels > RONDO_TOPO_CHANNELS) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT,
                                "%s: %d channels over %d devices, expected 1 to %d channels over %d devices",
                                name, graph->nchannels, graph->ndevs, RONDO_TOPO_CHANNELS, topo->ndevs);
    }
    for (int c = 0; c < graph->nchannels; c++) {
        memset(seen, 0, sizeof(seen));
        for (int i = 0; i < graph->ndevs; i++) {
            int dev = graph->order[c * graph->ndevs + i];
            if (dev < 0 || dev >= graph->ndevs || seen[dev]++) {
                return rondo_fail_quiet(
                    RONDO_INVALID_ARGUMENT,
                    "%s, channel %d, position %d: device %d appears twice or is not one of 0 to %d", name, c,
                    i, dev, graph->ndevs - 1);
            }
        }
        for (int i = 0; i < 2; i++) {
            if (graph->net[2 * c + i] < -1 || graph->net[2 * c + i] >= topo->nnets) {
                return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "%s, channel %d: net %d is not one of %d",
                                        name, c, graph->net[2 * c + i], topo->nnets);
            }
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_graph_check(const struct rondo_topo *topo, const struct rondo_graph *graph)
{
    struct rondo_graph own = *graph; /* a copy for new types and speeds; the order stays the caller's */
    int64_t *use;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(check_orders(topo, graph));
    RONDO_TRY(RONDO_NEW_ARRAY(use, 2 * topo->nlinks + 1, "the check of a graph"));
    if (!sum_use(topo, &own, use)) {
        status = rondo_fail_quiet(RONDO_INVALID_ARGUMENT,
                                  "%s: a channel connects two points that have no path",
                                  rondo_graph_name(graph->id));
    } else if (own.type_intra > graph->type_intra || own.type_inter > graph->type_inter) {
        status = rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "%s: claims paths %s/%s but uses %s/%s",
                                  rondo_graph_name(graph->id), rondo_path_type_name(graph->type_intra),
                                  rondo_path_type_name(graph->type_inter),
                                  rondo_path_type_name(own.type_intra), rondo_path_type_name(own.type_inter));
    }
    for (int l = 0; status == RONDO_SUCCESS && !graph->fallback && l < topo->nlinks; l++) {
        int64_t load = use[l] * graph->bw_intra + use[topo->nlinks + l] * graph->bw_inter;
        if (load > (int64_t)topo->link[l].mbs * RONDO_LINK_UNITS) {
            status = rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "%s: a %s link of %d MB/s carries %lld MB/s",
                                      rondo_graph_name(graph->id), rondo_link_type_name(topo->link[l].type),
                                      topo->link[l].mbs, (long long)(load / RONDO_LINK_UNITS));
        }
    }
    rondo_free(use);
    return status;
}

/* ---- names ---- */

const char *rondo_graph_name(int id)
{
    return id == RONDO_GRAPH_RING ? "ring" : id == RONDO_GRAPH_TREE ? "tree" : "?";
}

const char *rondo_pattern_name(int pattern)
{
#define ROW_(ctx, NAME, value, name, what) \
    case value: return name;
    switch (pattern) {
        RONDO_TOPO_PATTERN_TABLE(ROW_, )
    default: return "?";
    }
#undef ROW_
}

const char *rondo_graph_limit(const struct rondo_topo *topo, const struct rondo_graph *graph, char *text,
                              size_t bytes)
{
    char name[MAX_NAME] = "";
    if (graph->bound_at >= 0) {
        rondo_topo_point_name(topo, graph->bound_at, name, sizeof(name));
    }
    switch (graph->bound_cut) {
    case RONDO_CUT_DEVICE: snprintf(text, bytes, "the links of %s", name); break;
    case RONDO_CUT_DEVICES: snprintf(text, bytes, "the links of all devices together"); break;
    case RONDO_CUT_NETS: snprintf(text, bytes, "the nets and their links"); break;
    case RONDO_CUT_SET: snprintf(text, bytes, "the cut around %s", name); break;
    default: snprintf(text, bytes, "the number of channels"); break;
    }
    return text;
}
