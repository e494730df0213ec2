/* Fill the layout of a communicator (layout/layout.h): nodes, channels, rings and trees, in this order. */
#ifndef RONDO_COMM_LAYOUT_FILL_H
#define RONDO_COMM_LAYOUT_FILL_H

#include "layout/layout.h"
#include "net/peer.h"
#include "net/transport/transport.h"

/** Find the nodes of all ranks, and the numbers of the cost model. */
rondo_status rondo_layout_fill(struct rondo_layout *layout, const struct rondo_peer *peers, int rank,
                               int nranks);
/** Allocate channels. Each gets its ring next (init/node.h, which also keeps the stitch of several nodes),
 * then all get their trees. */
rondo_status rondo_layout_channels(struct rondo_layout *layout, int nchannels, int least, uint32_t protos);
/** Set a channel's ring. rank_at: position -> rank; the layout owns it from here on, even after an error. */
rondo_status rondo_layout_ring(struct rondo_layout *layout, int channel, int32_t *rank_at);
void rondo_layout_trees(struct rondo_layout *layout);
/**
 * The net ("mlx5_0:1", "eth0") that the graphs of this rank's node assign to a conn of a channel (port:
 * enum rondo_port). Valid as long as the layout. @return NULL: the conn stays in the node, or the graphs
 * have no net.
 */
const char *rondo_layout_net(const struct rondo_layout *layout, int channel, int port, int is_send);
/** List the conns of rings and trees that other ranks of this node send through this rank's GPU (PXN).
 * Those ranks' own layouts have the same conns with the same nets. The caller frees *list. */
rondo_status rondo_layout_relayed(const struct rondo_layout *layout, struct rondo_relayed **list, int *n);
void rondo_layout_release(struct rondo_layout *layout);

#endif
