#include <string.h>
#include "base/array.h"
#include "base/mem.h"
#include "topo/topo_build.h"

enum { FULL = 60, INTEL_P2P = 72 }; /* cost of a byte on a link, in 1/60 */

/*
 * Routes from a source are explored breadth first. A node keeps a route unless an earlier one there is at
 * least as good in type and as wide. So each node ends up with every route that a longer path may need:
 * better types, wider ones, shorter ones. Ordering by type first would lose a wide route whose type only
 * becomes worse later.
 */
struct label {
    int32_t node, link, before; /* the link taken and the label it came from; -1 at the source */
    int32_t next;               /* next label at the same node */
    int32_t mbs;
    int16_t type, nhops;
};

struct walk {
    const struct rondo_topo *topo;
    struct label *label;
    int32_t *head;              /* per node: its latest label, -1: none */
    int32_t *near_first, *near; /* per node: its links other than SYS */
    int32_t nlabels, capacity;
    int32_t source;
};

int rondo_topo_latency(int type)
{
    static const int32_t ns[RONDO_NUM_PATH_TYPES] = {
#define ROW_(ctx, NAME, ns_) [RONDO_PATH_##NAME] = ns_,
        RONDO_TOPO_LATENCY_TABLE(ROW_, )
#undef ROW_
    };
    return ns[type];
}

/* ---- hops ---- */

rondo_status rondo_topo_hops_reserve(struct rondo_topo *topo, int n)
{
    int64_t need = (int64_t)topo->nhops + n;
    int32_t capacity = topo->hop_capacity; /* of both arrays */
    if (need > INT32_MAX) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the paths have more than %d hops; describe a part of the machine",
                          topo->machine->source, INT32_MAX);
    }
    RONDO_TRY(RONDO_ARRAY_RESERVE(topo->hop, topo->nhops, need, capacity, "the hops of paths"));
    return RONDO_ARRAY_RESERVE(topo->cost, topo->nhops, need, topo->hop_capacity, "the hops of paths");
}

/* ---- the cost of a path ---- */

static int is_gpu(const struct rondo_topo *topo, int point)
{
    return topo->node[topo->point[point]].type == RONDO_NODE_GPU;
}

static int is_intel(const struct rondo_topo *topo, int node)
{
    const struct rondo_item *item = &topo->machine->item[topo->node[node].item];
    return item->cpu.arch == RONDO_ARCH_X86 && item->cpu.vendor == RONDO_VENDOR_INTEL;
}

static int through_intel(const struct rondo_topo *topo, const struct rondo_topo_path *path)
{
    for (int i = 0; i + 1 < path->nhops; i++) {
        int node = topo->link[topo->hop[path->first + i]].to;
        if (topo->node[node].type == RONDO_NODE_CPU && is_intel(topo, node)) {
            return 1;
        }
    }
    return 0;
}

void rondo_topo_path_settle(struct rondo_topo *topo, int from, int to, struct rondo_topo_path *path)
{
    int p2p = path->type == RONDO_PATH_PHB && is_gpu(topo, from) && is_gpu(topo, to) &&
              through_intel(topo, path);
    path->mbs = RONDO_LOC_MBS;
    for (int i = 0; i < path->nhops; i++) {
        const struct rondo_topo_link *link = &topo->link[topo->hop[path->first + i]];
        int cost = p2p && link->type == RONDO_LINK_PCI ? INTEL_P2P : FULL;
        int mbs = (int)((int64_t)link->mbs * FULL / cost);
        topo->cost[path->first + i] = (uint8_t)cost;
        path->mbs = mbs < path->mbs ? mbs : path->mbs;
    }
    int sm = is_gpu(topo, to) ? rondo_topo_item(topo, to)->gpu.sm : 0;
    path->reverse_eighth = sm > 0 && sm < 80 && topo->node[topo->point[from]].type == RONDO_NODE_NET;
}

/* ---- the walk ---- */

static rondo_status label_add(struct walk *walk, struct label label)
{
    RONDO_TRY(RONDO_ARRAY_GROW(walk->label, walk->nlabels, walk->capacity, "routes through the machine"));
    label.next = walk->head[label.node];
    walk->head[label.node] = walk->nlabels;
    walk->label[walk->nlabels++] = label;
    return RONDO_SUCCESS;
}

static int is_device(const struct rondo_topo *topo, int node)
{
    int type = topo->node[node].type;
    return type == RONDO_NODE_GPU || type == RONDO_NODE_DEV;
}

/*
 * The type that a link adds to a route, by what it joins; RONDO_PATH_DIS: it must not be used. Links inside
 * NICs and devices belong to attachments. A GPU forwards nothing, except between the NVLinks of two
 * neighbouring GPUs.
 */
static int step_type(const struct walk *walk, const struct label *at, const struct rondo_topo_link *link)
{
    const struct rondo_topo *topo = walk->topo;
    int from = topo->node[link->from].type, to = topo->node[link->to].type;
    if (is_device(topo, at->node) && at->node != walk->source) {
        int relay = at->nhops == 1 && topo->link[at->link].type == RONDO_LINK_NVL &&
                    is_device(topo, walk->source) && link->type == RONDO_LINK_NVL &&
                    is_device(topo, link->to);
        return relay ? RONDO_PATH_NVB : RONDO_PATH_DIS;
    }
    switch (link->type) {
    case RONDO_LINK_NVL: return RONDO_PATH_NVL;
    case RONDO_LINK_C2C: return RONDO_PATH_C2C;
    case RONDO_LINK_SYS: return RONDO_PATH_SYS;
    case RONDO_LINK_PCI:
        if (from == RONDO_NODE_CPU || to == RONDO_NODE_CPU) {
            return from == RONDO_NODE_CPU && at->type == RONDO_PATH_C2C ? RONDO_PATH_P2C : RONDO_PATH_PHB;
        }
        return from == RONDO_NODE_PCI && to == RONDO_NODE_PCI ? RONDO_PATH_PXB : RONDO_PATH_PIX;
    default: return RONDO_PATH_DIS;
    }
}

static int is_dominated(const struct walk *walk, const struct label *label)
{
    for (int i = walk->head[label->node]; i >= 0; i = walk->label[i].next) {
        if (walk->label[i].type <= label->type && walk->label[i].mbs >= label->mbs) {
            return 1;
        }
    }
    return 0;
}

/* The bandwidth of a point's attachment. */
static int attach_mbs(const struct rondo_topo *topo, const struct rondo_topo_attach *attach)
{
    int mbs = RONDO_LOC_MBS;
    for (int i = 0; i < attach->nhops; i++) {
        int of = topo->link[attach->hop[i]].mbs;
        mbs = of < mbs ? of : mbs;
    }
    return mbs;
}

static rondo_status walk_step(struct walk *walk, int from, int l)
{
    const struct rondo_topo_link *link = &walk->topo->link[l];
    const struct label *at = &walk->label[from];
    int type = step_type(walk, at, link);
    struct label next = { .node = link->to, .link = l, .before = from, .nhops = (int16_t)(at->nhops + 1) };
    next.mbs = link->mbs < at->mbs ? link->mbs : at->mbs;
    next.type = (int16_t)(type > at->type ? type : at->type);
    return type == RONDO_PATH_DIS || is_dominated(walk, &next) ? RONDO_SUCCESS : label_add(walk, next);
}

/*
 * All NUMA nodes of a host are linked, each link as fast as the slower of the two, so two SYS links in a row
 * gain nothing. After a SYS link only the other kinds are tried, or a walk would be quadratic in the number
 * of NUMA nodes.
 */
static rondo_status walk_run(struct walk *walk, int source, int mbs)
{
    const struct rondo_topo *topo = walk->topo;
    walk->source = source;
    walk->nlabels = 0;
    memset(walk->head, 0xff, (size_t)topo->nnodes * sizeof *walk->head);
    RONDO_TRY(label_add(walk, (struct label){ source, -1, -1, -1, mbs, RONDO_PATH_LOC, 0 }));
    for (int i = 0; i < walk->nlabels; i++) {
        int node = walk->label[i].node, by = walk->label[i].link;
        if (by >= 0 && topo->link[by].type == RONDO_LINK_SYS) {
            for (int l = walk->near_first[node]; l < walk->near_first[node + 1]; l++) {
                RONDO_TRY(walk_step(walk, i, walk->near[l]));
            }
            continue;
        }
        for (int l = topo->node[node].first; l < topo->node[node].first + topo->node[node].nlinks; l++) {
            RONDO_TRY(walk_step(walk, i, l));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status walk_init(struct walk *walk)
{
    const struct rondo_topo *topo = walk->topo;
    RONDO_TRY(RONDO_NEW_ARRAY(walk->head, topo->nnodes, "routes through the machine"));
    RONDO_TRY(RONDO_NEW_ARRAY(walk->near_first, topo->nnodes + 1, "routes through the machine"));
    RONDO_TRY(RONDO_NEW_ARRAY(walk->near, topo->nlinks, "routes through the machine"));
    for (int node = 0, n = 0; node < topo->nnodes; node++) {
        for (int l = topo->node[node].first; l < topo->node[node].first + topo->node[node].nlinks; l++) {
            if (topo->link[l].type != RONDO_LINK_SYS) {
                walk->near[n++] = l;
            }
        }
        walk->near_first[node + 1] = n;
    }
    return RONDO_SUCCESS;
}

static void walk_release(struct walk *walk)
{
    rondo_free(walk->label);
    rondo_free(walk->head);
    rondo_free(walk->near_first);
    rondo_free(walk->near);
}

/* The type of a route between two points. P2C is for NICs: between GPUs such a route counts as one through
 * the host bridge. A rank's cores are behind their NUMA node, as a NIC is. */
static int label_type(const struct walk *walk, const struct label *label, int from, int to)
{
    const struct rondo_topo *topo = walk->topo;
    int a = topo->node[topo->point[from]].type, b = topo->node[topo->point[to]].type;
    int host = a == RONDO_NODE_HOST || b == RONDO_NODE_HOST, cpu = a == RONDO_NODE_CPU || b == RONDO_NODE_CPU;
    if (host && !cpu && label->type < RONDO_PATH_PHB) {
        return RONDO_PATH_PHB;
    }
    return label->type == RONDO_PATH_P2C && is_device(topo, label->node) ? RONDO_PATH_PHB : label->type;
}

/* The best route to the core of a point: by type, then bandwidth, then hops, then the first one found.
 * @return -1 if there is none. */
static int walk_best(const struct walk *walk, const struct rondo_topo_attach *attach, int from, int to)
{
    int best = -1, best_type = 0, best_mbs = 0, most = attach_mbs(walk->topo, &attach[to]);
    for (int i = walk->head[attach[to].core]; i >= 0; i = walk->label[i].next) {
        const struct label *label = &walk->label[i];
        int type = label_type(walk, label, from, to), mbs = label->mbs < most ? label->mbs : most;
        int equal = best >= 0 && type == best_type && mbs == best_mbs;
        if (best < 0 || type < best_type || (type == best_type && mbs > best_mbs) ||
            (equal && label->nhops <= walk->label[best].nhops)) {
            best = i;
            best_type = type;
            best_mbs = mbs;
        }
    }
    return best;
}

/* ---- paths ---- */

static struct rondo_topo_path *wired_of(struct rondo_topo *topo, int from, int to)
{
    return &topo->wired[(size_t)from * (size_t)topo->npoints + (size_t)to];
}

static void hop_put(struct rondo_topo *topo, struct rondo_topo_path *path, int link)
{
    topo->hop[path->first + path->nhops++] = link;
}

/* The device point at a relay; the first rank's if several share the GPU. */
static int relay_point(const struct rondo_topo *topo, const struct rondo_topo_attach *attach, int node)
{
    for (int d = 0; d < topo->ndevs; d++) {
        if (attach[d].core == node) {
            return d;
        }
    }
    return -1;
}

static void path_finish(struct rondo_topo *topo, int from, int to, struct rondo_topo_path *path)
{
    rondo_topo_path_settle(topo, from, to, path);
    path->latency_ns = rondo_topo_latency(path->type);
    for (int end = 0; end < 2; end++) {
        int point = end ? to : from;
        if (topo->node[topo->point[point]].type == RONDO_NODE_NET) {
            double ns = rondo_topo_item(topo, point)->net.latency * 1000;
            path->latency_ns += ns > 0 && ns < 1e8 ? (int32_t)ns : 0;
        }
    }
    topo->nhops = path->first + path->nhops;
}

/* Store the route found, and the reverse of its links as the path back. */
static rondo_status pair_put(struct rondo_topo *topo, const struct rondo_topo_attach *attach,
                             const struct walk *walk, int from, int to, int last)
{
    struct rondo_topo_path *go = wired_of(topo, from, to), *back = wired_of(topo, to, from);
    const struct label *end = &walk->label[last];
    RONDO_TRY(rondo_topo_hops_reserve(topo, 2 * (end->nhops + attach[from].nhops + attach[to].nhops)));
    *go =
        (struct rondo_topo_path){ .first = topo->nhops, .type = label_type(walk, end, from, to), .via = -1 };
    for (int i = 0; i < attach[from].nhops; i++) {
        hop_put(topo, go, attach[from].hop[i]);
    }
    go->nhops += end->nhops;
    for (int i = last, at = go->first + go->nhops; walk->label[i].link >= 0; i = walk->label[i].before) {
        topo->hop[--at] = walk->label[i].link;
    }
    if (go->type == RONDO_PATH_NVB) {
        go->via = relay_point(topo, attach, walk->label[end->before].node);
    }
    for (int i = attach[to].nhops - 1; i >= 0; i--) {
        hop_put(topo, go, topo->link[attach[to].hop[i]].reverse);
    }
    path_finish(topo, from, to, go);
    *back = (struct rondo_topo_path){ .first = topo->nhops, .type = go->type, .via = go->via };
    for (int i = go->nhops - 1; i >= 0; i--) {
        hop_put(topo, back, topo->link[topo->hop[go->first + i]].reverse);
    }
    path_finish(topo, to, from, back);
    return RONDO_SUCCESS;
}

static rondo_status paths_from(struct rondo_topo *topo, const struct rondo_topo_attach *attach,
                               struct walk *walk, int from)
{
    *wired_of(topo, from,
              from) = (struct rondo_topo_path){ .mbs = RONDO_LOC_MBS, .type = RONDO_PATH_LOC, .via = -1 };
    RONDO_TRY(walk_run(walk, attach[from].core, attach_mbs(topo, &attach[from])));
    for (int to = from + 1; to < topo->npoints; to++) {
        int last = walk_best(walk, attach, from, to);
        if (last < 0) {
            *wired_of(topo, from, to) = *wired_of(
                topo, to, from) = (struct rondo_topo_path){ .type = RONDO_PATH_DIS, .via = -1 };
        } else {
            RONDO_TRY(pair_put(topo, attach, walk, from, to, last));
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_topo_paths(struct rondo_topo *topo, const struct rondo_topo_attach *attach)
{
    struct walk walk = { .topo = topo };
    rondo_status status;
    RONDO_TRY_GOTO(walk_init(&walk), done);
    for (int from = 0; from < topo->npoints; from++) {
        RONDO_TRY_GOTO(paths_from(topo, attach, &walk, from), done);
    }
done:
    walk_release(&walk);
    return status;
}
