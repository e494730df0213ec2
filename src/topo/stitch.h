/*
 * Stitching: from the graphs of nodes to the rings and trees of a job. Each rank holds 10 bytes per rank of
 * the job, 20 per node, and one copy of each distinct graph. A rank's neighbours in all channels are computed
 * in O(channels x log nodes), a whole ring in O(ranks). Pure functions of data that all ranks share, so all
 * ranks compute the same result.
 */
#ifndef RONDO_TOPO_STITCH_H
#define RONDO_TOPO_STITCH_H

#include "layout/layout.h"
#include "topo/search.h"

enum { RONDO_STITCH_MAX_RANKS = 1 << 24 };

/* What a rank sends to all others in the second allgather. */
struct rondo_stitch_rank {
    uint64_t graphs; /* hash of its node's packed graphs */
    uint32_t node;   /* node of the job; nodes are numbered by their lowest rank */
    uint16_t local;  /* local rank: the device's index in the graph */
    uint16_t flags;
};

/* What other nodes know about one of a node's nets. */
enum { RONDO_NET_NAME = 64, RONDO_NET_DEVS = 64 };
struct rondo_graph_net {
    int32_t rail;              /* -1 unknown */
    char name[RONDO_NET_NAME]; /* the net device's name, "mlx5_0:1" or "eth0"; "" unknown */
    /* bit d: kind applies to device d; only for the first RONDO_NET_DEVS devices */
    uint64_t gdr[RONDO_NUM_GDR];
    /* per device: 1 + the device through which it sends to this net (PXN); 0: sends itself */
    uint8_t relay[RONDO_NET_DEVS];
};

/* Pack a node's graphs into bytes: fixed little-endian layout with magic and version. Equal nodes give
 * equal bytes, whatever their rank numbers. nets NULL: nothing is known about them. */
rondo_status rondo_graphs_pack(const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int ndevs, int nnets,
                               const struct rondo_graph_net *nets, uint8_t **bytes,
                               size_t *n); /* free with rondo_free */
/**
 * Pack graphs together with facts from their topo: number and rails of nets, GPUDirect and PXN, names of the
 * nets that channels or GPUs use, compute capabilities, CPU models, and the levels of ranks on host memory
 * (levels.h).
 */
rondo_status rondo_graphs_pack_topo(const struct rondo_topo *topo,
                                    const struct rondo_graph graphs[RONDO_NUM_GRAPHS], uint8_t **bytes,
                                    size_t *n);
/** Unpack bytes received from another rank and check everything: sizes, ranges, orders being permutations.
 * graphs must be zeroed; release each with rondo_graph_release. */
rondo_status rondo_graphs_unpack(const uint8_t *bytes, size_t n, struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
/** @return the hash of packed graphs that struct rondo_stitch_rank carries. */
uint64_t rondo_graphs_hash(const uint8_t *bytes, size_t n);

/** The nets of packed graphs that rondo_graphs_unpack has accepted: their number, and
 * nets[rondo_graphs_nnets()]. */
int rondo_graphs_nnets(const uint8_t *bytes);
void rondo_graphs_nets(const uint8_t *bytes, struct rondo_graph_net *nets);

struct rondo_stitch;

struct rondo_stitch_input {
    int32_t nranks;
    const struct rondo_stitch_rank *rank; /* per rank; borrowed during the call */
    int32_t ndistinct;                    /* the distinct packed graphs */
    const uint8_t *const *bytes;
    const size_t *nbytes;
    /* per node, by number: sort key of its place in the network, with equal high bits under one switch;
     * NULL: rank order */
    const uint64_t *fabric;
    /* 1: host memory. Nodes use binary trees inside, not chains, and no rank has more than RONDO_TREE_FAN
     * neighbours, so a tree can serve any root */
    int32_t host_trees;
    int32_t max_channels; /* after doubling; 0: RONDO_MAX_CHANNELS */
};

/*
 * The merge of all nodes, equal on all ranks: minimum of channels and speeds, maximum of types. graph[] has
 * the merged values, with order NULL. nchannels is the layout's number: doubled, with the second set for the
 * second tree, and doubled again where NCCL does so.
 */
struct rondo_stitch_summary {
    struct rondo_graph graph[RONDO_NUM_GRAPHS];
    int32_t nchannels, nnodes, nranks, min_local, max_local;
    int32_t min_nets;      /* nets of the node with the fewest; 0: speeds between nodes are unknown */
    int32_t network_order; /* 1: nodes are sorted by fabric key */
    int32_t wide_trees;    /* 1: a rank may have more than RONDO_TREE_FAN neighbours in a tree */
    /*
     * For host memory: the groups of ranks on the fullest node; among equally full nodes, one that has
     * groups. apart is the outermost of these levels that separates its local ranks 0 and 1, counted from 1
     * (0: none).
     */
    struct rondo_group_levels levels;
    int32_t apart;
    size_t bytes; /* memory used by the stitch */
};

/** Merge the graphs of all nodes. The error names a rank whose hash has no graph, or a node whose ranks do
 * not match the devices of its graph. O(nranks). */
rondo_status rondo_stitch_create(struct rondo_stitch **stitch, const struct rondo_stitch_input *input);
void rondo_stitch_destroy(struct rondo_stitch *stitch);
const struct rondo_stitch_summary *rondo_stitch_summary(const struct rondo_stitch *stitch);

/** Get a rank's place in a channel. Leaves the ring's rank_at and index_of NULL. */
void rondo_stitch_channel(const struct rondo_stitch *stitch, int rank, int channel,
                          struct rondo_channel_layout *out);
/** List a channel's ring by position: rank_at[nranks]. */
void rondo_stitch_ring(const struct rondo_stitch *stitch, int channel, int32_t *rank_at);
/** For host memory on one node with groups of ranks: the cuts (layout/group_tree.h) of channel 0's ring
 * for the summary's levels. Valid while the stitch lives. @return NULL otherwise. */
const uint8_t *rondo_stitch_cuts(const struct rondo_stitch *stitch);
/** @return the lowest channel whose ring equals this channel's, so that one rank_at serves all of them. */
int rondo_stitch_ring_of(const struct rondo_stitch *stitch, int channel);
/** @return the net, an index on the rank's node, through which a rank receives (0) or sends (1) on a
 * channel; -1: the rank does not leave the node there, or the node has no nets. */
int rondo_stitch_net(const struct rondo_stitch *stitch, int rank, int channel, int send);
/** @return the net of all of a rank's tree conns to other nodes on a channel; -1: it has none. */
int rondo_stitch_tree_net(const struct rondo_stitch *stitch, int rank, int channel);
/** Rail of a net of a rank's node, -1 unknown; and its name, NULL unknown, valid while the stitch lives. */
int rondo_stitch_rail(const struct rondo_stitch *stitch, int rank, int net);
const char *rondo_stitch_net_name(const struct rondo_stitch *stitch, int rank, int net);
/** Number of nets of a rank's node; and how its GPU can use one of them, as bits of enum rondo_gdr. */
int rondo_stitch_nnets(const struct rondo_stitch *stitch, int rank);
uint32_t rondo_stitch_gdr(const struct rondo_stitch *stitch, int rank, int net);
/** @return the local rank through whose GPU a rank sends to a net (PXN); -1: it sends itself. */
int rondo_stitch_relay(const struct rondo_stitch *stitch, int rank, int net);
/** Find the tree neighbour of a rank on the way to rank @a to. @return -1: the rank is @a to; 0: the
 * parent; 1 + c: child c. O(depth x log nodes). */
int rondo_stitch_toward(const struct rondo_stitch *stitch, int rank, int channel, int to);
/** Check every ring (closed, each rank once) and every tree (connected, parents and children agree). The
 * error says where. O(nranks x channels). */
rondo_status rondo_stitch_check(const struct rondo_stitch *stitch);

/** Make a sort key from Slurm's SLURM_TOPOLOGY_ADDR ("s0.s4.node7"). Switches fill the high bits, so nodes
 * of one switch sort together. @return 0: no information. */
uint64_t rondo_fabric_key(const char *slurm_topology_addr);

#endif
