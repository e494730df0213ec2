/*
 * A node's machine and the channels over its ranks. The lowest rank of a node detects the machine (or reads
 * RONDO_TOPO_FILE) once a process, builds the graph of the node's ranks and searches its channels. The result
 * is packed graphs (topo/stitch.h), with the same bytes on equal nodes, which all ranks receive.
 */
#ifndef RONDO_INIT_NODE_H
#define RONDO_INIT_NODE_H

#include "layout/layout.h"
#include "net/peer.h"
#include "topo/search.h"

/**
 * Pack the graphs of this rank's node, on its lowest rank. Free *bytes with rondo_free. modes: NULL, or room
 * for the P2P mode (enum rondo_p2p_mode) of GPUs i and k of the node at [i * nlocal + k].
 */
rondo_status rondo_node_graphs(const struct rondo_layout *layout, const struct rondo_peer *peers,
                               uint8_t **bytes, size_t *n, uint8_t *modes);
/** @return the hash of the machine that rondo_node_graphs found, equal for equal machines; 0: none yet. */
uint64_t rondo_node_machine_hash(void);
/** Read the parameters that bound the search: levels, rails, what is disabled. Errors name the parameter. */
rondo_status rondo_node_options(struct rondo_topo_options *options);
/** Get the graphs of a topo: from the file where it has them, else by search. file: NULL or "" for none. The
 * caller releases them with rondo_graph_release, also after an error. */
rondo_status rondo_node_search(const struct rondo_topo *topo, const char *file,
                               struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
/** Read the machine from RONDO_TOPO_FILE, or detect it. Release it with rondo_machine_release. */
rondo_status rondo_node_machine(struct rondo_machine *machine);
/** For tests: make the next call detect the machine again. */
void rondo_node_forget_machine(void);

/*
 * On every rank: lay rings of layout->nchannels channels over all ranks, from the distinct packed graphs.
 * graphs[node] is the hash of a node's graphs, fabric[node] its place in the network. All ranks have the same
 * input, so they compute the same rings. With several nodes the layout keeps the stitch, and the model gets
 * the numbers of the network between the nodes (the peers' net devices).
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
