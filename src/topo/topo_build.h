/* Inside src/topo: what topo.c, topo_links.c, paths.c and policy.c share while a graph is made. */
#ifndef RONDO_TOPO_TOPO_BUILD_H
#define RONDO_TOPO_TOPO_BUILD_H

#include "topo/topo.h"

/*
 * Paths are searched between cores: the node where a point touches the rest (a NET's card, a HOST's NUMA
 * node, a shared GPU's DEV). These links lead there from the point.
 */
struct rondo_topo_attach {
    int32_t core;
    int32_t nhops;
    int32_t hop[3];
};

/* Two links, there and back. `a` is nearer to the root where that means something. */
struct rondo_topo_edge {
    int32_t a, b, mbs, type;
};

struct rondo_topo_build {
    struct rondo_topo *topo;
    const struct rondo_machine *machine;
    int32_t *node_of;                 /* item -> node, -1: none (left out, or not a node) */
    int32_t *gpu_of, *nic_of;         /* PCI item -> its first GPU / NIC child, -1 */
    uint8_t *used;                    /* item leads to a device or a net */
    int32_t *gpu_ranks;               /* GPU item -> ranks on it */
    int32_t *chain;                   /* per net: the nodes from it to its card, 4 each, -1 ends */
    struct rondo_topo_attach *attach; /* per point */
    struct rondo_topo_edge *edge;
    int32_t nedges, edge_capacity, node_capacity;
};

/** Edges of nodes that stand, then links and attachments. */
rondo_status rondo_topo_build_edges(struct rondo_topo_build *build);
rondo_status rondo_topo_build_pairs(struct rondo_topo_build *build);
rondo_status rondo_topo_build_links(struct rondo_topo_build *build);
rondo_status rondo_topo_edge_add(struct rondo_topo_build *build, int a, int b, int type, int64_t mbs);
int rondo_topo_node_add(struct rondo_topo_build *build, int type, int index, int item);
/** Does an NVLink of a rank's GPU end at the NVSwitches? */
int rondo_topo_needs_nvs(const struct rondo_topo_build *build);
/** Node that an item's PCI link leads to: the bridge above, or its NUMA node. */
int rondo_topo_above(const struct rondo_topo_build *build, int item);

/** Fill topo->wired. */
rondo_status rondo_topo_paths(struct rondo_topo *topo, const struct rondo_topo_attach *attach);
/** Fill topo->path from topo->wired. */
rondo_status rondo_topo_policy(struct rondo_topo *topo);
/** Room for n hops at the end of the pool: their first is topo->nhops. */
rondo_status rondo_topo_hops_reserve(struct rondo_topo *topo, int n);
/** Costs of the hops, bandwidth and reverse_eighth of a path between two points whose hops and type stand. */
void rondo_topo_path_settle(struct rondo_topo *topo, int from, int to, struct rondo_topo_path *path);
/** ns of a path of this type. */
int rondo_topo_latency(int type);
/** Item of the NUMA node that an item is below. */
static inline int32_t rondo_topo_root(const struct rondo_machine *machine, int32_t item)
{
    while (machine->item[item].parent >= 0) {
        item = machine->item[item].parent;
    }
    return item;
}

#endif
