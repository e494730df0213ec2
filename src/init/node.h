/*
 * What a node is and how channels are laid over its ranks. The lowest rank of a node detects the machine (or
 * reads RONDO_TOPO_FILE) once a process, builds the graph of the node's ranks and searches its channels; what
 * comes out are packed graphs (topo/stitch.h), the same bytes for equal nodes, that all ranks are given.
 */
#ifndef RONDO_INIT_NODE_H
#define RONDO_INIT_NODE_H

#include "layout/layout.h"
#include "net/peer.h"
#include "topo/search.h"

/**
 * Packed graphs of this rank's node; called by its lowest rank. bytes: rondo_free. ways: NULL, or room for
 * how GPU i shares memory with GPU k of the node (enum rondo_p2p_mode) at [i * nlocal + k].
 */
rondo_status rondo_node_graphs(const struct rondo_layout *layout, const struct rondo_peer *peers,
                               uint8_t **bytes, size_t *n, uint8_t *ways);
/** Of the machine that rondo_node_graphs found: equal machines have equal ones. */
uint64_t rondo_node_machine_hash(void);
/** How parameters bound the search: levels, rails, what is disabled. The error names the parameter. */
rondo_status rondo_node_options(struct rondo_topo_options *options);
/** Graphs of a topo: those that the file has, the others searched. file NULL or "": all are. The caller's:
 * rondo_graph_release, also after an error. */
rondo_status rondo_node_search(const struct rondo_topo *topo, const char *file,
                               struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
/** The machine by the parameters: from RONDO_TOPO_FILE, else detected. The caller's: rondo_machine_release.
 */
rondo_status rondo_node_machine(struct rondo_machine *machine);
/** For tests: the next call detects the machine again. */
void rondo_node_forget_machine(void);

/*
 * Everyone's part: rings of layout->nchannels channels over all ranks, from the distinct packed graphs.
 * graphs[node]: which of them a node has; fabric[node]: its place in the network. The same on all ranks,
 * because all have the same input. Several nodes: the layout keeps the stitch, and the model gets the numbers
 * of what joins the nodes (peers' net devices).
 */
struct rondo_shape {
    uint64_t hash;
    int32_t owner; /* rank that has the bytes from the start */
    uint32_t nbytes;
    uint8_t *bytes;
};
rondo_status rondo_node_rings(struct rondo_layout *layout, const struct rondo_peer *peers,
                              const struct rondo_shape *shapes, int nshapes, const uint64_t *graphs,
                              const uint64_t *fabric);

enum { RONDO_SHAPE_MAX_BYTES = 1 << 20 };

#endif
