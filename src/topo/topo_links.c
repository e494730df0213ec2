#include "topo/topo_build.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/array.h"
#include "base/mem.h"

rondo_status rondo_topo_edge_add(struct rondo_topo_build *build, int a, int b, int type, int64_t mbs)
{
    RONDO_TRY(
        RONDO_ARRAY_GROW(build->edge, build->nedges, build->edge_capacity, "the links of the topology"));
    int64_t most = RONDO_MACHINE_MAX_MBS;
    build->edge[build->nedges++] = (struct rondo_topo_edge){ a, b,
                                                             (int32_t)(mbs < 1      ? 1
                                                                       : mbs > most ? most
                                                                                    : mbs),
                                                             type };
    return RONDO_SUCCESS;
}

/* ---- PCI, NUMA nodes, devices ---- */

static int64_t pci_rate(const struct rondo_item *pci)
{
    return rondo_topo_pci_mbs(pci->pci.speed, pci->pci.width);
}

static rondo_status pci_edge(struct rondo_topo_build *build, int32_t i)
{
    const struct rondo_topo *topo = build->topo;
    int node = build->gpu_of[i] >= 0 ? build->node_of[build->gpu_of[i]] : build->node_of[i];
    if (node < 0) {
        return RONDO_SUCCESS;
    }
    int type = topo->node[node].type;
    int owner = type == RONDO_NODE_PCI ? topo->node[node].item
                                       : rondo_topo_build_item(build, topo->node[node].item)->parent;
    if (owner != i) { /* another function of a NIC, or a merged switch level: the owner's link counts */
        return RONDO_SUCCESS;
    }
    int above = rondo_topo_above(build, i);
    return above < 0 ? RONDO_SUCCESS
                     : rondo_topo_edge_add(build, above, node, RONDO_LINK_PCI,
                                           pci_rate(rondo_topo_build_item(build, i)));
}

static rondo_status cpu_edges(struct rondo_topo_build *build)
{
    const struct rondo_topo *topo = build->topo;
    for (int a = 0; a < topo->ncpus; a++) {
        const struct rondo_item *x = rondo_topo_item(topo, rondo_topo_cpu_point(topo, a));
        int of_a = rondo_topo_sys_mbs(x->cpu.arch, x->cpu.vendor, x->cpu.model);
        for (int b = a + 1; b < topo->ncpus; b++) {
            const struct rondo_item *y = rondo_topo_item(topo, rondo_topo_cpu_point(topo, b));
            if (x->cpu.host_hash == y->cpu.host_hash) {
                int of_b = rondo_topo_sys_mbs(y->cpu.arch, y->cpu.vendor, y->cpu.model);
                RONDO_TRY(rondo_topo_edge_add(build, rondo_topo_cpu_point(topo, a),
                                              rondo_topo_cpu_point(topo, b), RONDO_LINK_SYS,
                                              of_a < of_b ? of_a : of_b));
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status device_edges(struct rondo_topo_build *build)
{
    const struct rondo_topo *topo = build->topo;
    for (int i = 0; i < topo->ndevs; i++) {
        int32_t item = topo->node[i].item;
        int core = item < 0 ? topo->device_cpu[i] : build->node_of[item];
        if (core != i) {
            RONDO_TRY(rondo_topo_edge_add(build, core, i, RONDO_LINK_LOC, RONDO_LOC_MBS));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status c2c_edge(struct rondo_topo_build *build, int32_t i)
{
    const struct rondo_item *item = rondo_topo_build_item(build, i);
    int gpu = build->node_of[item->parent];
    if (gpu < 0 || item->c2c.mbs <= 0 || item->c2c.count <= 0) {
        return RONDO_SUCCESS;
    }
    int cpu = build->node_of[rondo_topo_root(build->machine, i)];
    return rondo_topo_edge_add(build, cpu, gpu, RONDO_LINK_C2C, (int64_t)item->c2c.mbs * item->c2c.count);
}

/* ---- ports ---- */

static int64_t net_rate(const struct rondo_item *net)
{
    return (net->net.mbps > 0 ? net->net.mbps : 10000) / 8;
}

static uint64_t host_of(const struct rondo_topo_build *build, int32_t item)
{
    return rondo_topo_build_item(build, rondo_topo_root(build->machine, item))->cpu.host_hash;
}

static int same_wire(const struct rondo_topo_build *build, int a, int b)
{
    const struct rondo_topo_node *x = &build->topo->node[build->topo->ndevs + a],
                                 *y = &build->topo->node[build->topo->ndevs + b];
    const struct rondo_item *i = rondo_topo_build_item(build, x->item),
                            *j = rondo_topo_build_item(build, y->item);
    return i->net.guid != 0 && i->net.guid == j->net.guid && i->net.port == j->net.port &&
           host_of(build, x->item) == host_of(build, y->item);
}

static int net_nic(const struct rondo_topo_build *build, int net)
{
    return build
        ->node_of[rondo_topo_build_item(build, build->topo->node[build->topo->ndevs + net].item)->parent];
}

/* Connect the nets from `net` on that share its wire: nets - LOC - y - the wire - x - LOC - their NICs. x
 * is the NIC if there is only one. */
static rondo_status wire_edges(struct rondo_topo_build *build, int net, int *index)
{
    struct rondo_topo *topo = build->topo;
    int others = 0, nic = net_nic(build, net);
    int64_t rate = 0;
    for (int n = net; n < topo->nnets; n++) {
        if (same_wire(build, net, n)) {
            int64_t own = net_rate(rondo_topo_item(topo, topo->ndevs + n));
            rate = own > rate ? own : rate;
            others += net_nic(build, n) != nic;
        }
    }
    int32_t item = topo->node[nic].item;
    int y = rondo_topo_node_add(build, RONDO_NODE_NIC, (*index)++, item);
    int x = others == 0 ? nic : rondo_topo_node_add(build, RONDO_NODE_NIC, (*index)++, item);
    RONDO_TRY(rondo_topo_edge_add(build, x, y, RONDO_LINK_NET, rate));
    for (int n = net; n < topo->nnets; n++) {
        if (!same_wire(build, net, n)) {
            continue;
        }
        RONDO_TRY(rondo_topo_edge_add(build, y, topo->ndevs + n, RONDO_LINK_LOC,
                                      net_rate(rondo_topo_item(topo, topo->ndevs + n))));
        int32_t *chain = &build->chain[4 * n];
        int own = net_nic(build, n), known = x == nic;
        for (int m = net; m < n && !known; m++) {
            known = same_wire(build, net, m) && net_nic(build, m) == own;
        }
        if (!known) {
            RONDO_TRY(rondo_topo_edge_add(build, own, x, RONDO_LINK_LOC, RONDO_LOC_MBS));
        }
        chain[0] = y;
        chain[1] = x;
        chain[2] = x == nic ? -1 : own;
        chain[3] = -1;
    }
    return RONDO_SUCCESS;
}

static rondo_status net_edges(struct rondo_topo_build *build)
{
    struct rondo_topo *topo = build->topo;
    int index = 0;
    for (int n = topo->npoints; n < topo->nnodes; n++) {
        index += topo->node[n].type == RONDO_NODE_NIC;
    }
    for (int n = 0; n < topo->nnets; n++) {
        build->chain[4 * n] = -1;
    }
    for (int n = 0; n < topo->nnets; n++) {
        int shared = 0;
        for (int m = n + 1; m < topo->nnets && !shared; m++) {
            shared = same_wire(build, n, m);
        }
        if (build->chain[4 * n] >= 0) {
            continue;
        }
        if (shared) {
            RONDO_TRY(wire_edges(build, n, &index));
            continue;
        }
        build->chain[4 * n] = net_nic(build, n);
        build->chain[4 * n + 1] = -1;
        RONDO_TRY(rondo_topo_edge_add(build, net_nic(build, n), topo->ndevs + n, RONDO_LINK_NET,
                                      net_rate(rondo_topo_item(topo, topo->ndevs + n))));
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_topo_build_edges(struct rondo_topo_build *build)
{
    RONDO_TRY(cpu_edges(build));
    for (int32_t i = 0; i < build->machine->nitems; i++) {
        const struct rondo_item *item = rondo_topo_build_item(build, i);
        if (item->kind == RONDO_ITEM_PCI) {
            RONDO_TRY(pci_edge(build, i));
        } else if (item->kind == RONDO_ITEM_NIC && build->node_of[i] >= 0 &&
                   build->node_of[i] != build->node_of[item->parent]) {
            int64_t mbs = rondo_topo_build_item(build, item->parent)->kind == RONDO_ITEM_PCI
                              ? pci_rate(rondo_topo_build_item(build, item->parent))
                              : RONDO_LOC_MBS;
            RONDO_TRY(rondo_topo_edge_add(build, rondo_topo_above(build, i), build->node_of[i],
                                          RONDO_LINK_PCI, mbs));
        } else if (item->kind == RONDO_ITEM_C2C) {
            RONDO_TRY(c2c_edge(build, i));
        }
    }
    RONDO_TRY(device_edges(build));
    return net_edges(build);
}

/* ---- NVLink ---- */

enum nv_end { NV_GPU, NV_NVS, NV_CPU };

/* What an NVLink leads to: by the class in the file, else by the target's class in the machine. A hidden
 * or unknown target is an NVSwitch. */
static enum nv_end nvlink_end(const struct rondo_topo_build *build, const struct rondo_item *item,
                              int32_t *gpu)
{
    int32_t pci = item->nvlink.target == RONDO_BUSID_HIDDEN
                      ? -1
                      : rondo_machine_find_pci(build->machine, item->nvlink.target);
    *gpu = pci < 0 ? -1 : build->gpu_of[pci];
    if (*gpu >= 0) {
        return NV_GPU;
    }
    if (item->nvlink.target == RONDO_BUSID_HIDDEN) {
        return NV_NVS;
    }
    uint32_t tclass = item->nvlink.tclass ? item->nvlink.tclass
                      : pci < 0           ? 0
                                          : rondo_topo_build_item(build, pci)->pci.class_code;
    return tclass >> 16 == 0x03 ? NV_GPU : tclass == 0x068001 ? NV_CPU : NV_NVS;
}

int rondo_topo_needs_nvs(const struct rondo_topo_build *build)
{
    for (int32_t i = 0; i < build->machine->nitems; i++) {
        int32_t target;
        const struct rondo_item *item = rondo_topo_build_item(build, i);
        if (item->kind == RONDO_ITEM_NVLINK && build->gpu_ranks[item->parent] > 0 && item->nvlink.count > 0 &&
            nvlink_end(build, item, &target) == NV_NVS) {
            return 1;
        }
    }
    return 0;
}

/* The NVLinks between two nodes, or the link between two PCI switches, as reported from both ends. */
struct pair {
    int32_t lo, hi;
    int64_t count[2]; /* reported by lo, by hi */
    int32_t mbs;
};

static int pair_compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->lo != y->lo ? (x->lo > y->lo) - (x->lo < y->lo) : (x->hi > y->hi) - (x->hi < y->hi);
}

static int gpu_rate(const struct rondo_topo_build *build, int32_t gpu)
{
    return rondo_topo_nvlink_mbs(rondo_topo_build_item(build, gpu)->gpu.sm);
}

/* Turn an NVLINK item into a pair. @return 0 if it leads nowhere. */
static int nvlink_pair(const struct rondo_topo_build *build, int32_t i, struct pair *pair)
{
    const struct rondo_topo *topo = build->topo;
    const struct rondo_item *item = rondo_topo_build_item(build, i);
    int from = build->node_of[item->parent], to = -1, mbs = from < 0 ? 0 : gpu_rate(build, item->parent);
    int32_t gpu;
    if (from < 0 || item->nvlink.count <= 0) {
        return 0;
    }
    switch (nvlink_end(build, item, &gpu)) {
    case NV_GPU:
        to = gpu < 0 ? -1 : build->node_of[gpu];
        mbs = to >= 0 && gpu_rate(build, gpu) < mbs ? gpu_rate(build, gpu) : mbs;
        break;
    case NV_NVS: to = topo->npoints - 1; break;
    case NV_CPU: to = build->node_of[rondo_topo_root(build->machine, i)]; break;
    }
    if (to < 0 || to == from) {
        return 0;
    }
    *pair = (struct pair){ .lo = from < to ? from : to, .hi = from < to ? to : from, .mbs = mbs };
    pair->count[from > to] = item->nvlink.count;
    return 1;
}

/* Turn a PCILINK item into a pair. @return 0 if it leads nowhere. */
static int pcilink_pair(const struct rondo_topo_build *build, int32_t i, struct pair *pair)
{
    const struct rondo_item *item = rondo_topo_build_item(build, i);
    int32_t target = rondo_machine_find_pci(build->machine, item->pcilink.target);
    int a = build->node_of[item->parent], b = target < 0 ? -1 : build->node_of[target];
    if (a < 0 || b < 0 || a == b || build->topo->node[a].type != RONDO_NODE_PCI ||
        build->topo->node[b].type != RONDO_NODE_PCI) {
        return 0;
    }
    *pair = (struct pair){ .lo = a < b ? a : b,
                           .hi = a < b ? b : a,
                           .mbs = rondo_topo_pci_mbs(rondo_topo_build_item(build, item->parent)->pci.speed,
                                                     rondo_topo_build_item(build, item->parent)->pci.width) };
    return 1;
}

/* Merge the reports from both ends, or from the only one, into one edge. */
static rondo_status pairs_join(struct rondo_topo_build *build, struct pair *pair, int n, int type)
{
    qsort(pair, (size_t)n, sizeof *pair, pair_compare);
    for (int i = 0; i < n;) {
        struct pair sum = pair[i];
        for (i++; i < n && pair_compare(&sum, &pair[i]) == 0; i++) {
            sum.count[0] += pair[i].count[0];
            sum.count[1] += pair[i].count[1];
            sum.mbs = pair[i].mbs < sum.mbs ? pair[i].mbs : sum.mbs;
        }
        int64_t few = sum.count[0] < sum.count[1] ? sum.count[0] : sum.count[1];
        int64_t count = type == RONDO_LINK_PCI ? 1
                        : few > 0              ? few
                                               : sum.count[0] + sum.count[1]; /* one end may report nothing */
        RONDO_TRY(rondo_topo_edge_add(build, sum.lo, sum.hi, type, count * sum.mbs));
    }
    return RONDO_SUCCESS;
}

static rondo_status pairs_build(struct rondo_topo_build *build, enum rondo_item_kind kind, int type)
{
    struct pair *pair;
    int n = 0;
    RONDO_TRY(RONDO_NEW_ARRAY(pair, rondo_machine_count(build->machine, kind), "links of the topology"));
    for (int32_t i = 0; i < build->machine->nitems; i++) {
        if (rondo_topo_build_item(build, i)->kind == (int32_t)kind) {
            n += kind == RONDO_ITEM_NVLINK ? nvlink_pair(build, i, &pair[n])
                                           : pcilink_pair(build, i, &pair[n]);
        }
    }
    rondo_status status = pairs_join(build, pair, n, type);
    rondo_free(pair);
    return status;
}

rondo_status rondo_topo_build_pairs(struct rondo_topo_build *build)
{
    RONDO_TRY(pairs_build(build, RONDO_ITEM_NVLINK, RONDO_LINK_NVL));
    return pairs_build(build, RONDO_ITEM_PCILINK, RONDO_LINK_PCI);
}

/* ---- links from edges ---- */

struct half {
    struct rondo_topo_link link;
    int32_t rank; /* by kind, among links of equal speed */
    int32_t edge, dir;
};

static int half_compare(const void *a, const void *b)
{
    const struct half *x = a, *y = b;
    if (x->link.from != y->link.from) {
        return x->link.from < y->link.from ? -1 : 1;
    }
    if (x->link.mbs != y->link.mbs) {
        return x->link.mbs > y->link.mbs ? -1 : 1;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->link.to != y->link.to) {
        return x->link.to < y->link.to ? -1 : 1;
    }
    return x->edge < y->edge ? -1 : x->edge > y->edge;
}

static int kind_rank(int type, int up)
{
    static const int32_t rank[RONDO_NUM_LINK_TYPES] = {
        [RONDO_LINK_LOC] = 0, [RONDO_LINK_NVL] = 1, [RONDO_LINK_C2C] = 2,
        [RONDO_LINK_NET] = 3, [RONDO_LINK_PCI] = 4, [RONDO_LINK_SYS] = 6
    };
    return rank[type] + (type == RONDO_LINK_PCI && up);
}

static void links_fill(struct rondo_topo *topo, const struct half *half, int32_t *at)
{
    for (int i = 0; i < topo->nlinks; i++) {
        topo->link[i] = half[i].link;
        at[2 * half[i].edge + half[i].dir] = i;
        struct rondo_topo_node *node = &topo->node[half[i].link.from];
        node->first = node->nlinks++ == 0 ? i : node->first;
    }
    for (int i = 0; i < topo->nlinks; i++) {
        topo->link[i].reverse = at[2 * half[i].edge + !half[i].dir];
    }
}

static int link_find(const struct rondo_topo *topo, int from, int to)
{
    const struct rondo_topo_node *node = &topo->node[from];
    for (int l = node->first; l < node->first + node->nlinks; l++) {
        if (topo->link[l].to == to) {
            return l;
        }
    }
    return -1;
}

static void attach_hop(const struct rondo_topo *topo, struct rondo_topo_attach *attach, int to)
{
    attach->hop[attach->nhops++] = link_find(topo, attach->core, to);
    attach->core = to;
}

static void attach_all(struct rondo_topo_build *build)
{
    const struct rondo_topo *topo = build->topo;
    for (int p = 0; p < topo->npoints; p++) {
        struct rondo_topo_attach *attach = &build->attach[p];
        attach->core = p;
        if (p < topo->ndevs) {
            int32_t item = topo->node[p].item;
            int core = item < 0 ? topo->device_cpu[p] : build->node_of[item];
            if (core != p) {
                attach_hop(topo, attach, core);
            }
        } else if (p < topo->ndevs + topo->nnets) {
            for (const int32_t *next = &build->chain[4 * (p - topo->ndevs)]; *next >= 0; next++) {
                attach_hop(topo, attach, *next);
            }
        }
    }
}

rondo_status rondo_topo_build_links(struct rondo_topo_build *build)
{
    struct rondo_topo *topo = build->topo;
    struct half *half = NULL;
    int32_t *at = NULL;
    rondo_status status;
    topo->nlinks = 2 * build->nedges;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(topo->link, topo->nlinks, "links of the topology"), done);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(half, topo->nlinks, "links of the topology"), done);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(at, topo->nlinks, "links of the topology"), done);
    for (int e = 0; e < build->nedges; e++) {
        const struct rondo_topo_edge *edge = &build->edge[e];
        for (int dir = 0; dir < 2; dir++) {
            half[2 * e + dir] = (struct half){
                .link = { .from = dir ? edge->b : edge->a,
                          .to = dir ? edge->a : edge->b,
                          .mbs = edge->mbs,
                          .type = edge->type },
                .rank = kind_rank(edge->type, dir),
                .edge = e,
                .dir = dir,
            };
        }
    }
    qsort(half, (size_t)topo->nlinks, sizeof *half, half_compare);
    links_fill(topo, half, at);
    attach_all(build);
done:
    rondo_free(half);
    rondo_free(at);
    return status;
}
