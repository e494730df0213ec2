/*
 * Upper bounds on any set of channels, from cuts of the graph. A ring's channel crosses each cut that
 * separates its points once in each direction, and the network behind all nets is a point like the devices.
 * So nchannels x bw is at most the smallest maximum flow between two points. Inside a node every channel,
 * ring or tree, crosses a cut between devices at least once, in either direction. Between nodes a tree brings
 * data down to every device and takes it out once.
 *
 * Only links on paths that channels may use count, at their lowest cost. If the number of channels is given,
 * capacities are whole numbers of channels.
 */
#include <string.h>

#include "base/mem.h"
#include "topo/search_step.h"

struct arc {
    int32_t to, pair; /* pair: the reverse arc, which returns flow */
    int64_t capacity, left;
};

struct flow {
    const struct rondo_topo *topo;
    struct arc *arc;
    int32_t *first;             /* per node v: its arcs are arc[first[v] .. first[v + 1]) */
    int32_t *queue, *by;        /* breadth first search; by[v]: the arc that reached v, -1 none */
    int32_t nnodes, world, all; /* world: the network; all: a source that feeds all devices */
    int32_t either;             /* arcs hold the sum of both directions */
    int32_t nchannels;          /* exact number, 0: any */
    int64_t best;
    int32_t cut, at;
};

static const int64_t INFINITE = (int64_t)1 << 50;

/* ---- link capacities ---- */

static void mark_path(const struct rondo_topo *topo, int from, int to, uint8_t *cost)
{
    const struct rondo_topo_path *path = rondo_topo_path(topo, from, to);
    for (int i = 0; path->mbs > 0 && i < path->nhops; i++) {
        uint8_t *least = &cost[topo->hop[path->first + i]], this = topo->cost[path->first + i];
        *least = *least == 0 || this < *least ? this : *least;
    }
}

/* Lowest cost of each link on any path between two devices, or a device and a net; 0: on none. */
static void mark_links(const struct rondo_topo *topo, int inter, uint8_t *cost)
{
    for (int a = 0; a < topo->ndevs; a++) {
        for (int b = 0; b < topo->ndevs; b++) {
            if (a != b) {
                mark_path(topo, a, b, cost);
            }
        }
        for (int net = 0; inter && net < topo->nnets; net++) {
            mark_path(topo, a, rondo_topo_net_point(topo, net), cost);
            mark_path(topo, rondo_topo_net_point(topo, net), a, cost);
        }
    }
}

static int64_t link_capacity(const struct rondo_topo *topo, const uint8_t *cost, int link)
{
    return cost[link] == 0 ? 0 : (int64_t)topo->link[link].mbs * 60 / cost[link];
}

/* ---- the flow network ---- */

struct arc_list {
    struct arc *arc;
    int32_t *from;
    int32_t n;
};

static void add_arcs(struct arc_list *list, int from, int to, int64_t there, int64_t back)
{
    list->arc[list->n] = (struct arc){ .to = to, .pair = list->n + 1, .capacity = there };
    list->from[list->n++] = from;
    list->arc[list->n] = (struct arc){ .to = from, .pair = list->n - 1, .capacity = back };
    list->from[list->n++] = to;
}

/* either: a channel may cross in either direction (trees on one node). */
static void list_arcs(const struct flow *f, const uint8_t *cost, int inter, int either, struct arc_list *list)
{
    const struct rondo_topo *topo = f->topo;
    for (int l = 0; l < topo->nlinks; l++) {
        int r = topo->link[l].reverse;
        int64_t there = link_capacity(topo, cost, l), back = r >= 0 ? link_capacity(topo, cost, r) : 0;
        if (r > l || r < 0) {
            add_arcs(list, topo->link[l].from, topo->link[l].to, either ? there + back : there,
                     either ? there + back : back);
        }
    }
    for (int net = 0; inter && net < topo->nnets; net++) {
        add_arcs(list, topo->point[rondo_topo_net_point(topo, net)], f->world, INFINITE, INFINITE);
    }
    for (int d = 0; d < topo->ndevs; d++) {
        add_arcs(list, f->all, topo->point[d], INFINITE, 0);
    }
}

/* Group the arcs by node. */
static rondo_status group_arcs(struct flow *f, const struct arc_list *list)
{
    int32_t *at;
    RONDO_TRY(RONDO_NEW_ARRAY(at, list->n + 1, "a bound"));
    for (int i = 0; i < list->n; i++) {
        f->first[list->from[i] + 1]++;
    }
    for (int v = 0; v < f->nnodes; v++) {
        f->first[v + 1] += f->first[v];
    }
    memcpy(f->queue, f->first, sizeof(*f->queue) * (size_t)f->nnodes);
    for (int i = 0; i < list->n; i++) {
        at[i] = f->queue[list->from[i]]++;
    }
    for (int i = 0; i < list->n; i++) {
        f->arc[at[i]] = list->arc[i];
        f->arc[at[i]].pair = at[list->arc[i].pair];
    }
    rondo_free(at);
    return RONDO_SUCCESS;
}

static void flow_release(struct flow *f)
{
    rondo_free(f->arc);
    rondo_free(f->first);
    rondo_free(f->queue);
    rondo_free(f->by);
}

static rondo_status flow_init(struct flow *f, const uint8_t *cost, int inter, int either)
{
    const struct rondo_topo *topo = f->topo;
    struct arc_list list = { 0 };
    size_t most = (size_t)(2 * (topo->nlinks + topo->nnets + topo->ndevs));
    rondo_status status;
    f->arc = NULL;
    f->first = f->queue = f->by = NULL;
    f->either = either;
    f->world = topo->nnodes;
    f->all = topo->nnodes + 1;
    f->nnodes = topo->nnodes + 2;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(f->arc, most, "a bound"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(f->first, f->nnodes + 1, "a bound"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(f->queue, f->nnodes, "a bound"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(f->by, f->nnodes, "a bound"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(list.arc, most, "a bound"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(list.from, most, "a bound"), out);
    list_arcs(f, cost, inter, either, &list);
    status = group_arcs(f, &list);
out:
    rondo_free(list.arc);
    rondo_free(list.from);
    if (status != RONDO_SUCCESS) {
        flow_release(f);
    }
    return status;
}

/* ---- maximum flow: shortest augmenting paths ---- */

static int reach(struct flow *f, int source, int sink)
{
    int head = 0, tail = 0;
    for (int v = 0; v < f->nnodes; v++) {
        f->by[v] = -1;
    }
    f->queue[tail++] = source;
    f->by[source] = -2;
    while (head < tail) {
        int v = f->queue[head++];
        for (int a = f->first[v]; a < f->first[v + 1]; a++) {
            if (f->arc[a].left > 0 && f->by[f->arc[a].to] == -1) {
                f->by[f->arc[a].to] = a;
                f->queue[tail++] = f->arc[a].to;
            }
        }
        if (sink >= 0 && f->by[sink] != -1) {
            return 1;
        }
    }
    return 0;
}

static int64_t augment(struct flow *f, int source, int sink)
{
    int64_t least = INFINITE;
    for (int v = sink; v != source; v = f->arc[f->arc[f->by[v]].pair].to) {
        least = f->arc[f->by[v]].left < least ? f->arc[f->by[v]].left : least;
    }
    for (int v = sink; v != source; v = f->arc[f->arc[f->by[v]].pair].to) {
        f->arc[f->by[v]].left -= least;
        f->arc[f->arc[f->by[v]].pair].left += least;
    }
    return least;
}

/* Name the cut. f->by marks the source's side. */
static void name_cut(struct flow *f, int source)
{
    const struct rondo_topo *topo = f->topo;
    int inside = 0, dev[2] = { -1, -1 }, world = f->by[f->world] != -1, cpu = -1;
    for (int d = 0; d < topo->ndevs; d++) {
        int in = f->by[topo->point[d]] != -1;
        inside += in;
        dev[in] = d;
    }
    for (int c = 0; c < topo->ncpus && cpu < 0; c++) {
        int point = rondo_topo_cpu_point(topo, c);
        cpu = (f->by[topo->point[point]] != -1) != world ? point : -1;
    }
    f->cut = RONDO_CUT_SET;
    f->at = cpu >= 0 ? cpu : dev[1] >= 0 ? dev[1] : dev[0];
    if (inside == 0 || inside == topo->ndevs) {
        f->cut = RONDO_CUT_NETS;
        f->at = -1;
    } else if (inside == 1 && !world) {
        f->cut = RONDO_CUT_DEVICE;
        f->at = dev[1];
    } else if (inside == topo->ndevs - 1 && (world || source != f->world)) {
        f->cut = RONDO_CUT_DEVICE;
        f->at = dev[0];
    }
}

/* The most that n channels can carry in total if each goes through one of two capacities. The candidate
 * speeds are those at which a capacity holds one channel less. */
static int64_t in_channels(int64_t a, int64_t b, int n)
{
    int64_t best = 0;
    for (int i = 0; i <= n; i++) { /* i channels through a, the others through b */
        int64_t x = i > 0 ? a / i : INFINITE, y = i < n ? b / (n - i) : INFINITE, speed = x < y ? x : y;
        best = speed > best ? speed : best;
    }
    return best * n;
}

/* What crosses the cut marked by f->by, counted by direction; for arcs that hold both directions. */
static int64_t cut_in_channels(const struct flow *f, const uint8_t *cost)
{
    const struct rondo_topo *topo = f->topo;
    int64_t out = 0, in = 0;
    for (int l = 0; l < topo->nlinks; l++) {
        int from = f->by[topo->link[l].from] != -1, to = f->by[topo->link[l].to] != -1;
        out += from && !to ? link_capacity(topo, cost, l) : 0;
        in += to && !from ? link_capacity(topo, cost, l) : 0;
    }
    return in_channels(out, in, f->nchannels);
}

/* Lower f->best to the maximum flow from source to sink. Stops as soon as the flow cannot be lower. */
static void lower(struct flow *f, const uint8_t *cost, int source, int sink)
{
    int64_t total = 0, whole;
    int end = f->first[f->nnodes];
    for (int a = 0; a < end; a++) {
        f->arc[a].left = f->arc[a].capacity;
    }
    while (total < f->best && reach(f, source, sink)) {
        total += augment(f, source, sink);
    }
    if (total < f->best || (f->either && f->nchannels > 0 && total <= 2 * f->best)) {
        while (reach(f, source, sink)) {
            total += augment(f, source, sink);
        }
        whole = f->either && f->nchannels > 0 ? cut_in_channels(f, cost) : total;
        total = whole < total ? whole : total;
        if (total < f->best) {
            f->best = total;
            name_cut(f, source);
        }
    }
}

/* ---- bounds ---- */

static int device_node(const struct rondo_topo *topo, int d) { return topo->point[d]; }

/* Host endpoints of one NUMA node are alike: one flow represents all of them. */
static int stands_for_itself(const struct rondo_topo *topo, int d)
{
    if (topo->node[device_node(topo, d)].type != RONDO_NODE_HOST) {
        return 1;
    }
    for (int e = d - 1; e > 0; e--) {
        if (topo->device_cpu[e] == topo->device_cpu[d] &&
            topo->node[device_node(topo, e)].type == RONDO_NODE_HOST) {
            return 0;
        }
    }
    return 1;
}

static void ring_flows(struct flow *f, const uint8_t *cost, int inter)
{
    const struct rondo_topo *topo = f->topo;
    int hub = inter ? f->world : device_node(topo, 0);
    for (int d = inter ? 0 : 1; d < topo->ndevs; d++) {
        if (!stands_for_itself(topo, d)) {
            continue;
        }
        lower(f, cost, hub, device_node(topo, d));
        lower(f, cost, device_node(topo, d), hub);
    }
}

/* Down to every device, and out once. */
static void tree_flows(struct flow *f, const uint8_t *cost)
{
    for (int d = 0; d < f->topo->ndevs; d++) {
        if (stands_for_itself(f->topo, d)) {
            lower(f, cost, f->world, device_node(f->topo, d));
        }
    }
    lower(f, cost, f->all, f->world);
}

static void device_flows(struct flow *f, const uint8_t *cost)
{
    for (int d = 1; d < f->topo->ndevs; d++) {
        if (stands_for_itself(f->topo, d)) {
            lower(f, cost, device_node(f->topo, 0), device_node(f->topo, d));
        }
    }
}

/* The number of channels of a speed that all devices together can send. */
static int64_t hops_at(const int64_t *out, int n, int64_t speed)
{
    int64_t hops = 0;
    for (int d = 0; d < n; d++) {
        hops += out[d] / speed;
    }
    return hops;
}

/* A chain's channel leaves all devices but one: n channels need n x (ndevs - 1) hops of a speed. */
static void chain_sum(struct flow *f, const uint8_t *cost)
{
    const struct rondo_topo *topo = f->topo;
    int64_t out[RONDO_TOPO_MAX_LOCAL], sum = 0, low = 1, high;
    for (int d = 0; d < topo->ndevs; d++) {
        const struct rondo_topo_node *node = &topo->node[device_node(topo, d)];
        out[d] = 0;
        for (int l = node->first; l < node->first + node->nlinks; l++) {
            out[d] += link_capacity(topo, cost, l);
        }
        sum += out[d];
    }
    high = sum / (topo->ndevs - 1);
    if (f->nchannels > 0 && high / f->nchannels > 0) {
        high /= f->nchannels;
        while (low < high) { /* find the highest speed with enough hops */
            int64_t middle = (low + high + 1) / 2;
            if (hops_at(out, topo->ndevs, middle) >= (int64_t)f->nchannels * (topo->ndevs - 1)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        high = low * f->nchannels;
    }
    if (high < f->best) {
        f->best = high;
        f->cut = RONDO_CUT_DEVICES;
        f->at = -1;
    }
}

/* A channel is no faster than the best path of the worst placed device; the number of channels is limited. */
static void channel_limit(struct flow *f, int inter)
{
    const struct rondo_topo *topo = f->topo;
    int64_t worst = INFINITE,
            most = topo->options.max_channels > 0 ? topo->options.max_channels : RONDO_TOPO_CHANNELS;
    for (int d = 0; d < topo->ndevs; d++) {
        int64_t best = 0;
        for (int p = 0; p < topo->ndevs + (inter ? topo->nnets : 0); p++) {
            int64_t mbs = p == d ? 0 : rondo_topo_path(topo, d, p)->mbs;
            best = mbs > best ? mbs : best;
        }
        worst = best < worst ? best : worst;
    }
    if (worst * most < f->best) {
        f->best = worst * most;
        f->cut = RONDO_CUT_CHANNELS;
        f->at = -1;
    }
}

/* Between the devices alone: one crossing in either direction, and the hops of a chain. */
static rondo_status bound_inside(struct flow *f, int chain)
{
    uint8_t *cost;
    rondo_status status;
    RONDO_TRY(RONDO_NEW_ARRAY(cost, f->topo->nlinks + 1, "a bound"));
    mark_links(f->topo, 0, cost);
    status = flow_init(f, cost, 0, 1);
    if (status == RONDO_SUCCESS) {
        device_flows(f, cost);
        if (chain) {
            chain_sum(f, cost);
        }
        flow_release(f);
    }
    rondo_free(cost);
    return status;
}

/* Rings on one node cross in both directions; rings and trees of several nodes go through the nets. */
static rondo_status bound_around(struct flow *f, int ring, int inter)
{
    uint8_t *cost;
    rondo_status status;
    RONDO_TRY(RONDO_NEW_ARRAY(cost, f->topo->nlinks + 1, "a bound"));
    mark_links(f->topo, inter, cost);
    status = flow_init(f, cost, inter, 0);
    if (status == RONDO_SUCCESS) {
        if (ring) {
            ring_flows(f, cost, inter);
        } else {
            tree_flows(f, cost);
        }
        flow_release(f);
    }
    rondo_free(cost);
    return status;
}

rondo_status rondo_topo_bound(const struct rondo_topo *topo, struct rondo_graph *graph, int nchannels)
{
    int inter = topo->options.nnodes > 1 && topo->nnets > 0, ring = graph->id == RONDO_GRAPH_RING;
    /* without nets, a ring over several nodes is a chain in each */
    int around = inter || (ring && topo->options.nnodes == 1);
    struct flow f = {
        .topo = topo, .nchannels = nchannels, .best = INFINITE, .cut = RONDO_CUT_CHANNELS, .at = -1
    };
    graph->bound = 0;
    graph->bound_cut = RONDO_CUT_CHANNELS;
    graph->bound_at = -1;
    if (topo->ndevs < 2 && !inter) {
        return RONDO_SUCCESS;
    }
    channel_limit(&f, inter);
    if (around) {
        RONDO_TRY(bound_around(&f, ring, inter));
    }
    if (topo->ndevs > 1 && (inter || !around)) {
        RONDO_TRY(bound_inside(&f, !inter));
    }
    graph->bound = (int32_t)(f.best < RONDO_MACHINE_MAX_MBS ? f.best : RONDO_MACHINE_MAX_MBS);
    graph->bound_cut = f.cut;
    graph->bound_at = f.at;
    return RONDO_SUCCESS;
}
