#include "topo/topo_build.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"

/* Keeps the two points x points path matrices (64 bytes an entry, plus hops) below 1 GB. */
enum { MAX_POINTS = 2500 };

int rondo_topo_node_add(struct rondo_topo_build *build, int type, int index, int item)
{
    struct rondo_topo *topo = build->topo;
    topo->node[topo->nnodes] = (struct rondo_topo_node){ .type = type, .index = index, .item = item };
    return topo->nnodes++;
}

int rondo_topo_above(const struct rondo_topo_build *build, int item)
{
    for (int32_t up = rondo_topo_build_item(build, item)->parent; up >= 0;
         up = rondo_topo_build_item(build, up)->parent) {
        int node = build->node_of[up];
        if (node >= 0 && (build->topo->node[node].type == RONDO_NODE_PCI ||
                          build->topo->node[node].type == RONDO_NODE_CPU)) {
            return node;
        }
    }
    return -1;
}

/* ---- ranks ---- */

static rondo_status busid_unknown(const struct rondo_machine *machine, const struct rondo_topo_rank *rank)
{
    char known[256] = "", text[24];
    size_t used = 0;
    for (int32_t i = 0; i < machine->nitems && used < sizeof known - 32; i++) {
        if (machine->item[i].kind == RONDO_ITEM_GPU && machine->item[i].parent >= 0) {
            int64_t busid = machine->item[machine->item[i].parent].pci.busid;
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     rondo_busid_text(busid, text));
        }
    }
    return rondo_fail(
        RONDO_INVALID_ARGUMENT,
        "rank %d uses GPU %s, but %s has %s%s; check that the topology file describes this machine",
        (int)rank->rank, rondo_busid_text(rank->busid, text), rondo_machine_source(machine),
        known[0] ? "only GPUs " : "no GPU", known);
}

/* Find the GPU item of each rank: gpu[i], -1 for host memory. */
static rondo_status ranks_resolve(struct rondo_topo_build *build, int32_t *gpu)
{
    struct rondo_topo *topo = build->topo;
    topo->all_gpus = 1;
    for (int i = 0; i < topo->ndevs; i++) {
        gpu[i] = -1;
        if (topo->rank[i].busid < 0) {
            topo->all_gpus = 0;
            continue;
        }
        int32_t pci = rondo_machine_find_pci(build->machine, topo->rank[i].busid);
        gpu[i] = pci < 0 ? -1 : build->gpu_of[pci];
        if (gpu[i] < 0) {
            return busid_unknown(build->machine, &topo->rank[i]);
        }
        build->gpu_ranks[gpu[i]]++;
        int sm = rondo_topo_build_item(build, gpu[i])->gpu.sm;
        topo->min_sm = sm > 0 && (topo->min_sm == 0 || sm < topo->min_sm) ? sm : topo->min_sm;
        topo->max_sm = sm > topo->max_sm ? sm : topo->max_sm;
    }
    return RONDO_SUCCESS;
}

/* ---- nodes ---- */

static void children_find(struct rondo_topo_build *build)
{
    for (int32_t i = build->machine->nitems - 1; i >= 0; i--) {
        const struct rondo_item *item = rondo_topo_build_item(build, i);
        if (item->kind == RONDO_ITEM_GPU && item->parent >= 0) {
            build->gpu_of[item->parent] = i;
        } else if (item->kind == RONDO_ITEM_NIC && item->parent >= 0) {
            build->nic_of[item->parent] = i;
        }
    }
}

static void used_mark(struct rondo_topo_build *build)
{
    for (int32_t i = 0; i < build->machine->nitems; i++) {
        const struct rondo_item *item = rondo_topo_build_item(build, i);
        if (item->kind == RONDO_ITEM_NET || (item->kind == RONDO_ITEM_GPU && build->gpu_ranks[i] > 0)) {
            for (int32_t up = i; up >= 0 && !build->used[up]; up = rondo_topo_build_item(build, up)->parent) {
                build->used[up] = 1;
            }
        }
    }
}

/* @return the row of the two-level switch table whose lower (or upper) level the item is; -1: none. */
static int broadcom_level(const struct rondo_item *item, int lower)
{
    static const struct {
        int device, upper, lower;
    } row[] = {
#define ROW_(ctx, device_, upper_, lower_) { device_, upper_, lower_ },
        RONDO_TOPO_BROADCOM_TABLE(ROW_, )
#undef ROW_
    };
    if (item->kind != RONDO_ITEM_PCI || item->pci.vendor != 0x1000 || item->pci.subsystem_vendor != 0x1000) {
        return -1;
    }
    for (int i = 0; i < (int)RONDO_COUNTOF(row); i++) {
        if (item->pci.device == row[i].device &&
            (item->pci.subsystem_device & 0xf000) == (lower ? row[i].lower : row[i].upper)) {
            return i;
        }
    }
    return -1;
}

/* The lower level of a two-level switch is merged into its upper level, unless that is itself merged. */
static int is_flattened(const struct rondo_topo_build *build, int32_t i)
{
    const struct rondo_item *item = rondo_topo_build_item(build, i);
    int row = broadcom_level(item, 1);
    if (row < 0 || item->parent < 0 || broadcom_level(rondo_topo_build_item(build, item->parent), 0) != row) {
        return 0;
    }
    int above = build->node_of[item->parent];
    return above >= 0 && build->topo->node[above].item == item->parent;
}

/* The functions of a NIC (05:00.0 and 05:00.1) share one node and one link. @return that node, -1: none
 * yet. */
static int nic_find(const struct rondo_topo_build *build, int32_t pci, int first)
{
    const struct rondo_item *item = rondo_topo_build_item(build, pci);
    for (int n = first; n < build->topo->nnodes; n++) {
        const struct rondo_topo_node *node = &build->topo->node[n];
        if (node->type == RONDO_NODE_NIC) {
            int32_t other = rondo_topo_build_item(build, node->item)->parent;
            const struct rondo_item *parent = rondo_topo_build_item(build, other);
            if (parent->kind == RONDO_ITEM_PCI && parent->parent == item->parent &&
                parent->pci.busid >> 4 == item->pci.busid >> 4) {
                return n;
            }
        }
    }
    return -1;
}

static void pci_node(struct rondo_topo_build *build, int32_t i, int first, int *count)
{
    const struct rondo_item *item = rondo_topo_build_item(build, i);
    if (!build->used[i] || build->gpu_of[i] >= 0) {
        return;
    }
    if (build->nic_of[i] >= 0) {
        int nic = nic_find(build, i, first);
        build->node_of[i] = nic >= 0 ? nic
                                     : rondo_topo_node_add(build, RONDO_NODE_NIC, count[RONDO_NODE_NIC]++,
                                                           build->nic_of[i]);
    } else if (is_flattened(build, i)) {
        build->node_of[i] = build->node_of[item->parent];
    } else {
        build->node_of[i] = rondo_topo_node_add(build, RONDO_NODE_PCI, count[RONDO_NODE_PCI]++, i);
    }
}

/* Bridges and NICs in machine order, including virtual NICs directly below a NUMA node. */
static void inner_nodes(struct rondo_topo_build *build)
{
    int count[RONDO_NUM_NODE_TYPES] = { 0 }, first = build->topo->nnodes;
    for (int32_t i = 0; i < build->machine->nitems; i++) {
        const struct rondo_item *item = rondo_topo_build_item(build, i);
        if (item->kind == RONDO_ITEM_PCI) {
            pci_node(build, i, first, count);
        } else if (item->kind == RONDO_ITEM_NIC && build->used[i]) {
            int above = build->node_of[item->parent];
            int is_nic = above >= 0 && build->topo->node[above].type == RONDO_NODE_NIC;
            build->node_of[i] = is_nic
                                    ? above
                                    : rondo_topo_node_add(build, RONDO_NODE_NIC, count[RONDO_NODE_NIC]++, i);
        } else if (item->kind == RONDO_ITEM_GPU && build->gpu_ranks[i] > 1) {
            build->node_of[i] = rondo_topo_node_add(build, RONDO_NODE_DEV, count[RONDO_NODE_DEV]++, i);
        }
    }
}

static void kind_nodes(struct rondo_topo_build *build, enum rondo_item_kind kind, int type)
{
    for (int32_t i = 0, n = 0; i < build->machine->nitems; i++) {
        if (rondo_topo_build_item(build, i)->kind == (int32_t)kind) {
            build->node_of[i] = rondo_topo_node_add(build, type, n++, i);
        }
    }
}

/* Points come first, so that a point's number is also its node's. */
static void nodes_build(struct rondo_topo_build *build, const int32_t *gpu)
{
    struct rondo_topo *topo = build->topo;
    for (int i = 0; i < topo->ndevs; i++) {
        int node = rondo_topo_node_add(build, gpu[i] < 0 ? RONDO_NODE_HOST : RONDO_NODE_GPU, i, gpu[i]);
        if (gpu[i] >= 0) {
            build->node_of[gpu[i]] = node;
        }
    }
    kind_nodes(build, RONDO_ITEM_NET, RONDO_NODE_NET);
    kind_nodes(build, RONDO_ITEM_CPU, RONDO_NODE_CPU);
    if (topo->nnvs > 0) {
        rondo_topo_node_add(build, RONDO_NODE_NVS, 0, -1);
    }
    for (int p = 0; p < topo->npoints; p++) {
        topo->point[p] = p;
    }
    inner_nodes(build);
}

/* ---- devices' NUMA nodes ---- */

static int overlap(const struct rondo_cores *a, const struct rondo_cores *b)
{
    int n = 0;
    for (size_t i = 0; i < RONDO_COUNTOF(a->bits); i++) {
        n += __builtin_popcountll(a->bits[i] & b->bits[i]);
    }
    return n;
}

/* @return the number of the NUMA node with most of a rank's cores; -1: none has any. */
static int cores_cpu(const struct rondo_topo *topo, const struct rondo_cores *cores)
{
    int best = -1, most = 0;
    for (int c = 0; c < topo->ncpus; c++) {
        int n = overlap(cores, &rondo_topo_item(topo, rondo_topo_cpu_point(topo, c))->cpu.cores);
        if (n > most) {
            most = n;
            best = c;
        }
    }
    return best;
}

static void device_cpus(struct rondo_topo_build *build, const int32_t *gpu)
{
    struct rondo_topo *topo = build->topo;
    for (int i = 0, next = 0; i < topo->ndevs; i++) {
        if (gpu[i] >= 0) {
            topo->device_cpu[i] = build->node_of[rondo_topo_root(build->machine, gpu[i])];
            continue;
        }
        int cpu = cores_cpu(topo, &topo->rank[i].cores);
        topo->device_cpu[i] = rondo_topo_cpu_point(topo, cpu >= 0 ? cpu : next++ % topo->ncpus);
    }
}

/* ---- life ---- */

static void build_release(struct rondo_topo_build *build)
{
    rondo_free(build->node_of);
    rondo_free(build->gpu_of);
    rondo_free(build->nic_of);
    rondo_free(build->used);
    rondo_free(build->gpu_ranks);
    rondo_free(build->chain);
    rondo_free(build->attach);
    rondo_free(build->edge);
}

static rondo_status build_alloc(struct rondo_topo_build *build)
{
    int n = build->machine->nitems;
    RONDO_TRY(RONDO_NEW_ARRAY(build->node_of, n, "nodes of items"));
    RONDO_TRY(RONDO_NEW_ARRAY(build->gpu_of, n, "GPUs of items"));
    RONDO_TRY(RONDO_NEW_ARRAY(build->nic_of, n, "NICs of items"));
    RONDO_TRY(RONDO_NEW_ARRAY(build->used, n, "marks of items"));
    RONDO_TRY(RONDO_NEW_ARRAY(build->gpu_ranks, n, "ranks of GPUs"));
    for (int i = 0; i < n; i++) {
        build->node_of[i] = build->gpu_of[i] = build->nic_of[i] = -1;
    }
    return RONDO_SUCCESS;
}

static rondo_status topo_alloc(struct rondo_topo_build *build)
{
    struct rondo_topo *topo = build->topo;
    topo->npoints = topo->ndevs + topo->nnets + topo->ncpus + topo->nnvs;
    if (topo->npoints > MAX_POINTS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s has %d devices, %d nets and %d NUMA nodes, more than the limit of %d in all; "
                          "describe a part of the machine",
                          rondo_machine_source(build->machine), (int)topo->ndevs, (int)topo->nnets,
                          (int)topo->ncpus, MAX_POINTS);
    }
    size_t square = (size_t)topo->npoints * (size_t)topo->npoints;
    int nodes = topo->npoints + build->machine->nitems +
                2 * topo->nnets; /* plus at most two per shared wire */
    RONDO_TRY(RONDO_NEW_ARRAY(topo->node, nodes, "nodes of the topology"));
    RONDO_TRY(RONDO_NEW_ARRAY(topo->point, topo->npoints, "points of the topology"));
    RONDO_TRY(RONDO_NEW_ARRAY(topo->device_cpu, topo->ndevs, "NUMA nodes of devices"));
    RONDO_TRY(RONDO_NEW_ARRAY(topo->wired, square, "paths of the topology"));
    RONDO_TRY(RONDO_NEW_ARRAY(topo->path, square, "paths of the topology"));
    RONDO_TRY(RONDO_NEW_ARRAY(build->attach, topo->npoints, "points of the topology"));
    return RONDO_NEW_ARRAY(build->chain, 4 * topo->nnets, "ports of the topology");
}

static rondo_status topo_fill(struct rondo_topo_build *build, const struct rondo_topo_rank *ranks,
                              int32_t *gpu)
{
    struct rondo_topo *topo = build->topo;
    RONDO_TRY(RONDO_NEW_ARRAY(topo->rank, topo->ndevs, "ranks of the node"));
    memcpy(topo->rank, ranks, (size_t)topo->ndevs * sizeof *ranks);
    RONDO_TRY(build_alloc(build));
    children_find(build);
    RONDO_TRY(ranks_resolve(build, gpu));
    used_mark(build);
    topo->nnets = rondo_machine_count(build->machine, RONDO_ITEM_NET);
    topo->ncpus = rondo_machine_count(build->machine, RONDO_ITEM_CPU);
    topo->nnvs = rondo_topo_needs_nvs(build);
    if (topo->ncpus == 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s has no NUMA node (<cpu>); it needs at least one",
                          rondo_machine_source(build->machine));
    }
    RONDO_TRY(topo_alloc(build));
    nodes_build(build, gpu);
    device_cpus(build, gpu);
    RONDO_TRY(rondo_topo_build_edges(build));
    RONDO_TRY(rondo_topo_build_pairs(build));
    RONDO_TRY(rondo_topo_build_links(build));
    RONDO_TRY(rondo_topo_paths(topo, build->attach));
    return rondo_topo_policy(topo);
}

rondo_status rondo_topo_create(struct rondo_topo **out, const struct rondo_machine *machine,
                               const struct rondo_topo_rank *ranks, int nranks,
                               const struct rondo_topo_options *options)
{
    static const struct rondo_topo_options standard = RONDO_TOPO_OPTIONS_DEFAULT;
    rondo_status status;
    struct rondo_topo_build build = { .machine = machine };
    struct rondo_topo *topo = NULL;
    int32_t *gpu = NULL;
    *out = NULL;
    if (nranks < 1 || nranks > RONDO_TOPO_MAX_LOCAL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "a node has %d ranks, expected 1 to %d; start fewer ranks per node", nranks,
                          RONDO_TOPO_MAX_LOCAL);
    }
    RONDO_TRY_GOTO(RONDO_NEW(topo, "topology"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(gpu, nranks, "GPUs of ranks"), fail);
    topo->machine = machine;
    topo->options = options ? *options : standard;
    topo->ndevs = nranks;
    build.topo = topo;
    RONDO_TRY_GOTO(topo_fill(&build, ranks, gpu), fail);
    build_release(&build);
    rondo_free(gpu);
    *out = topo;
    return RONDO_SUCCESS;
fail:
    build_release(&build);
    rondo_free(gpu);
    rondo_topo_destroy(topo);
    return status;
}

void rondo_topo_destroy(struct rondo_topo *topo)
{
    if (!topo) {
        return;
    }
    rondo_free(topo->node);
    rondo_free(topo->link);
    rondo_free(topo->point);
    rondo_free(topo->rank);
    rondo_free(topo->device_cpu);
    rondo_free(topo->wired);
    rondo_free(topo->path);
    rondo_free(topo->hop);
    rondo_free(topo->cost);
    rondo_free(topo);
}

struct rondo_cores rondo_topo_cores(const struct rondo_topo *topo)
{
    struct rondo_cores all = { { 0 } };
    for (int d = 0; d < topo->ndevs; d++) {
        rondo_cores_unite(&all, &topo->rank[d].cores);
    }
    return all;
}
