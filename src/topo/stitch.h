/*
 * From the graphs of nodes to the rings and trees of a job. Every rank holds 16 bytes for every other one and
 * each distinct graph once; what concerns one rank (its neighbours in each channel) is computed in O(channels
 * x log nodes), a whole ring in O(ranks). Pure functions of what all ranks know, so that all find the same.
 */
#ifndef RONDO_TOPO_STITCH_H
#define RONDO_TOPO_STITCH_H

#include <stdio.h>
#include "layout/layout.h"
#include "topo/search.h"

enum { RONDO_STITCH_MAX_RANKS = 1 << 24 };

/* What a rank tells all others in the second allgather. */
struct rondo_stitch_rank {
    uint64_t graphs; /* hash of its node's packed graphs */
    uint32_t node;   /* of the job, numbered by lowest rank */
    uint16_t local;  /* local rank: the device's index in the graph */
    uint16_t flags;
};

/* What ranks that have not seen a node's machine know of one of its nets. */
enum { RONDO_NET_NAME = 64, RONDO_NET_DEVS = 64 };
struct rondo_graph_net {
    int32_t rail;                  /* -1 unknown */
    char name[RONDO_NET_NAME];     /* as the net device calls it: "mlx5_0:1", "eth0"; "" unknown */
    uint64_t gdr[RONDO_NUM_GDR];   /* bit d: that is so of device d; of others than the first RONDO_NET_DEVS
                                      nothing is */
    uint8_t relay[RONDO_NET_DEVS]; /* of device d: 1 + the device through which it sends there (PXN); 0: by
                                      its own way */
};

/*
 * A node's graphs as bytes: fixed little-endian layout with magic and version; the same bytes for equal
 * nodes, whatever their ranks' numbers. nets NULL: nothing is known of them.
 */
rondo_status rondo_graphs_pack(const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int ndevs, int nnets,
                               const struct rondo_graph_net *nets, uint8_t **bytes,
                               size_t *n); /* free with rondo_free */
/**
 * The same with what a topo says of its points: numbers and rails of nets, what GPUs make of them, names of
 * those that channels or GPUs use, compute capabilities, kinds of CPUs, levels of ranks on host memory
 * (levels.h).
 */
rondo_status rondo_graphs_pack_topo(const struct rondo_topo *topo,
                                    const struct rondo_graph graphs[RONDO_NUM_GRAPHS], uint8_t **bytes,
                                    size_t *n);
/** Bytes from another rank: everything is checked (orders are permutations, ranges, sizes). graphs zeroed
 * before; rondo_graph_release after. */
rondo_status rondo_graphs_unpack(const uint8_t *bytes, size_t n, struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
/** Hash of packed graphs: what rondo_stitch_rank carries. */
uint64_t rondo_graphs_hash(const uint8_t *bytes, size_t n);

/** Nets of packed graphs that rondo_graphs_unpack has accepted: how many, and what is known of them:
 * nets[rondo_graphs_nnets()]. */
int rondo_graphs_nnets(const uint8_t *bytes);
void rondo_graphs_nets(const uint8_t *bytes, struct rondo_graph_net *nets);

struct rondo_stitch;

struct rondo_stitch_input {
    int32_t nranks;
    const struct rondo_stitch_rank *rank; /* per rank; stays the caller's, not kept */
    int32_t ndistinct;                    /* distinct packed graphs: */
    const uint8_t *const *bytes;
    const size_t *nbytes;
    const uint64_t *fabric; /* per node (by number): sort key of its place in the network (equal switch, equal
                               high bits); NULL: rank order */
    int32_t host_trees;     /* 1: host memory: binary trees inside nodes, not chains; no rank has more than
                               RONDO_TREE_FAN neighbours: a tree serves any root */
    int32_t max_channels;   /* after doubling; 0: RONDO_MAX_CHANNELS */
};

/*
 * What all ranks agree on after the merge: minimum of channels and speeds, maximum of types. graph[] has the
 * merged values, order NULL. nchannels is what a layout gets: doubled (a second set for the second tree), and
 * again where NCCL does.
 */
struct rondo_stitch_summary {
    struct rondo_graph graph[RONDO_NUM_GRAPHS];
    int32_t nchannels, nnodes, nranks, min_local, max_local;
    int32_t min_nets;      /* of the node with the fewest; 0: speeds between nodes are not known */
    int32_t network_order; /* nodes stand in the order of the fabric keys */
    /* Host memory: groups of the ranks of the fullest node, of equals of one that has any; and which of these
     * levels, the outermost, counted from 1, lies between its local ranks 0 and 1 (0: none). */
    struct rondo_group_levels levels;
    int32_t apart;
    size_t bytes; /* memory of the stitch */
};

/** Merge. Errors: a rank's hash without graph, nodes whose ranks do not match their graph's devices: named.
 * O(nranks). */
rondo_status rondo_stitch_create(struct rondo_stitch **stitch, const struct rondo_stitch_input *input);
void rondo_stitch_destroy(struct rondo_stitch *stitch);
const struct rondo_stitch_summary *rondo_stitch_summary(const struct rondo_stitch *stitch);

/** A rank's place in a channel. rank_at and index_of of the ring are left NULL. */
void rondo_stitch_channel(const struct rondo_stitch *stitch, int rank, int channel,
                          struct rondo_channel_layout *out);
/** Position -> rank of a channel's ring: rank_at[nranks]. */
void rondo_stitch_ring(const struct rondo_stitch *stitch, int channel, int32_t *rank_at);
/** Host memory on one node whose ranks stand in groups: cuts of channel 0's ring (layout/group_tree.h) for
 * summary's levels, for as long as the stitch lives; NULL: no groups, or another case. */
const uint8_t *rondo_stitch_cuts(const struct rondo_stitch *stitch);
/** Channels with equal rings have equal numbers here (the lowest of them): one rank_at serves them all. */
int rondo_stitch_ring_of(const struct rondo_stitch *stitch, int channel);
/** Net (index on the rank's node) through which a rank receives (0) or sends (1) on a channel; -1: it does
 * not leave the node there, or the node has none. */
int rondo_stitch_net(const struct rondo_stitch *stitch, int rank, int channel, int send);
/** The same for the tree: the net of all conns between nodes that a rank has on a channel; -1: it has none
 * there. */
int rondo_stitch_tree_net(const struct rondo_stitch *stitch, int rank, int channel);
/** Rail of a net of a rank's node; -1 unknown. Its name; NULL unknown; lives as long as the stitch. */
int rondo_stitch_rail(const struct rondo_stitch *stitch, int rank, int net);
const char *rondo_stitch_net_name(const struct rondo_stitch *stitch, int rank, int net);
/** Nets of a rank's node; and what its GPU makes of one of them: bits of enum rondo_gdr. */
int rondo_stitch_nnets(const struct rondo_stitch *stitch, int rank);
uint32_t rondo_stitch_gdr(const struct rondo_stitch *stitch, int rank, int net);
/** The local rank of the node through whose GPU a rank sends by a net (PXN); -1: by its own way. */
int rondo_stitch_relay(const struct rondo_stitch *stitch, int rank, int net);
/**
 * The neighbour of a rank in a channel's tree that leads to rank `to`: -1: it is there, 0: the parent, 1 + c:
 * child c. O(depth x log nodes).
 */
int rondo_stitch_toward(const struct rondo_stitch *stitch, int rank, int channel, int to);
/** Walk everything: every ring closed with each rank once, every tree connected and consistent (child's
 * parent, parent's child). O(nranks x channels); the error says where. */
rondo_status rondo_stitch_check(const struct rondo_stitch *stitch);

/* What a stitch of `nodes` copies of a machine is made from, for tools; stays where it is. With a smaller
 * input.nranks, a multiple of the devices, it is a smaller job. */
struct rondo_stitch_job {
    struct rondo_stitch_input input;
    struct rondo_stitch_rank *rank;
    uint8_t *packed;
    const uint8_t *bytes;
    size_t nbytes;
};
/** graphs: as rondo_topo_search found them. Host trees where not every rank has a GPU. On error nothing is
 * left. */
rondo_status rondo_stitch_job_create(struct rondo_stitch_job *job, const struct rondo_topo *topo,
                                     const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes);
void rondo_stitch_job_release(struct rondo_stitch_job *job);

/**
 * What a job of `nodes` copies of a machine would cost at start, a line for 1,000, 2,000, 4,000 ... ranks and
 * one for all: time of the merge, time of one rank's view, memory, bytes that the allgathers move. Each job
 * is checked by rondo_stitch_check. graphs: as rondo_topo_search found them.
 */
rondo_status rondo_stitch_simulate(const struct rondo_topo *topo,
                                   const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, FILE *out);

/** A sort key from Slurm's SLURM_TOPOLOGY_ADDR ("s0.s4.node7"): switches in high bits, so that nodes of a
 * switch stand together; 0: no information. */
uint64_t rondo_fabric_key(const char *slurm_topology_addr);

#endif
