/* How the layout of a communicator is filled (layout/layout.h): nodes, channels, rings and trees. */
#ifndef RONDO_COMM_LAYOUT_FILL_H
#define RONDO_COMM_LAYOUT_FILL_H

#include "layout/layout.h"
#include "net/peer.h"
#include "net/transport/transport.h"

/** Nodes of the ranks of `peers`, and the cost model. */
rondo_status rondo_layout_fill(struct rondo_layout *layout, const struct rondo_peer *peers, int rank,
                               int nranks);
/** Room for channels; then each gets its ring (node.h, which keeps the stitch of several nodes), and all get
 * their trees. */
rondo_status rondo_layout_channels(struct rondo_layout *layout, int nchannels, int least, uint32_t protos);
/** rank_at: position -> rank; the layout's from here on, also after an error. */
rondo_status rondo_layout_ring(struct rondo_layout *layout, int channel, int32_t *rank_at);
void rondo_layout_trees(struct rondo_layout *layout);
/**
 * The net ("mlx5_0:1", "eth0") through which the graphs of this rank's node lead a conn of a channel (port:
 * enum rondo_port); NULL: it does not leave the node, or the graphs know of no net. Lives as long as the
 * layout.
 */
const char *rondo_layout_net(const struct rondo_layout *layout, int channel, int port, int is_send);
/** What ranks of this node send on rings and trees to other nodes through this rank's GPU (PXN), as the
 * graphs say: the same conns, with the same nets, as those ranks' own layouts have. rondo_free. */
rondo_status rondo_layout_relayed(const struct rondo_layout *layout, struct rondo_relayed **list, int *n);
void rondo_layout_release(struct rondo_layout *layout);

#endif
