/* Private to src/topo: what topo.c, topo_links.c, paths.c and policy.c share while they build a graph. */
#ifndef RONDO_TOPO_TOPO_BUILD_H
#define RONDO_TOPO_TOPO_BUILD_H

#include "topo/topo.h"

/* Paths are searched between cores: the node where a point touches the rest (a NET's NIC, a HOST's NUMA
 * node, a shared GPU's DEV). These links lead from the point to its core. */
struct rondo_topo_attach {
    int32_t core;
    int32_t nhops;
    int32_t hop[3];
};

/* A pair of links, one each way. `a` is nearer to the root where that makes sense. */
struct rondo_topo_edge {
    int32_t a, b, mbs, type;
};

struct rondo_topo_build {
    struct rondo_topo *topo;
    const struct rondo_machine *machine;
    int32_t *node_of;                 /* item -> node, -1: left out, or not a node */
    int32_t *gpu_of, *nic_of;         /* PCI item -> its first GPU / NIC child, -1: none */
    uint8_t *used;                    /* per item: leads to a device or a net */
    int32_t *gpu_ranks;               /* GPU item -> number of ranks on it */
    int32_t *chain;                   /* per net: the nodes from it to its NIC, 4 each, ended by -1 */
    struct rondo_topo_attach *attach; /* per point */
    struct rondo_topo_edge *edge;
    int32_t nedges, edge_capacity;
};

static inline const struct rondo_item *rondo_topo_build_item(const struct rondo_topo_build *build,
                                                             int32_t item)
{
    return &build->machine->item[item];
}

/** Build in this order, with the nodes in place: edges, then links and attachments. */
rondo_status rondo_topo_build_edges(struct rondo_topo_build *build);
rondo_status rondo_topo_build_pairs(struct rondo_topo_build *build);
rondo_status rondo_topo_build_links(struct rondo_topo_build *build);
rondo_status rondo_topo_edge_add(struct rondo_topo_build *build, int a, int b, int type, int64_t mbs);
int rondo_topo_node_add(struct rondo_topo_build *build, int type, int index, int item);
/** @return 1 if an NVLink of a rank's GPU ends at an NVSwitch. */
int rondo_topo_needs_nvs(const struct rondo_topo_build *build);
/** @return the node at the upper end of an item's PCI link: the bridge above it, or its NUMA node. */
int rondo_topo_above(const struct rondo_topo_build *build, int item);

/** Compute topo->wired. */
rondo_status rondo_topo_paths(struct rondo_topo *topo, const struct rondo_topo_attach *attach);
/** Compute topo->path from topo->wired. */
rondo_status rondo_topo_policy(struct rondo_topo *topo);
/** Reserve n hops at the end of the pool; the first is topo->nhops. */
rondo_status rondo_topo_hops_reserve(struct rondo_topo *topo, int n);
/** Compute the costs, bandwidth and reverse_eighth of a path between two points from its hops and type. */
void rondo_topo_path_settle(struct rondo_topo *topo, int from, int to, struct rondo_topo_path *path);
/** @return the latency in ns of a path of this type. */
int rondo_topo_latency(int type);
/** @return the item of the NUMA node above an item. */
static inline int32_t rondo_topo_root(const struct rondo_machine *machine, int32_t item)
{
    while (machine->item[item].parent >= 0) {
        item = machine->item[item].parent;
    }
    return item;
}

#endif
