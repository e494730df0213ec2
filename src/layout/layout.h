/*
 * The layout of a communicator: rings and trees over its ranks, and the numbers of the cost model.
 * comm/layout_fill.c fills it in from what topo/ found; the tuner and the plans read it. All ranks compute
 * the same values, except those about the rank itself.
 */
#ifndef RONDO_LAYOUT_LAYOUT_H
#define RONDO_LAYOUT_LAYOUT_H

#include "layout/nest.h"

struct rondo_ring {
    int32_t index;      /* this rank's position */
    int32_t prev, next; /* ranks */
    int32_t *rank_at;   /* position -> rank; owned by the layout; shared by channels with the same order */
    int32_t *index_of;  /* rank -> position */
};

struct rondo_tree {
    int32_t parent;                /* rank, -1: this rank is the root */
    int32_t child[RONDO_TREE_FAN]; /* ranks, -1: none */
    int32_t nchildren;
    int32_t depth; /* of the whole tree: hops from the root to the farthest rank */
    int32_t root;  /* rank at the root of this channel's tree */
};

struct rondo_channel_layout {
    struct rondo_ring ring;
    struct rondo_tree tree;
};

/* The graphs of all nodes merged into one: the lowest bandwidth, the worst paths. */
struct rondo_model_graph {
    int32_t nchannels;          /* as searched */
    int32_t bw_intra, bw_inter; /* MB/s of one channel inside the node, and through a NIC */
    int32_t latency_inter;      /* ns that the network adds to a message */
    int32_t nvlink;             /* 1: NVLink only inside the nodes */
    int32_t near;               /* 1: NVLink only, or one GPU per node: no two pairs share a link */
    int32_t ll128;              /* 1: every path delivers 128 bytes atomically, and every conn has LL128 */
    int32_t one_gpu;            /* 1: in the tree, one GPU carries all traffic of a node to others */
};

/* Input of the cost model of GPUs (tuner/cost_gpu.c), known to all ranks. */
struct rondo_model_gpu {
    int32_t nchannels; /* channels of the graphs; together they use their full bandwidth; 0: not GPUs */
    int32_t sm;        /* lowest compute capability x 10 */
    int32_t host;      /* enum rondo_gpu_host: the CPUs */
    int32_t p2p_ll;    /* largest message that uses LL inside a node */
    int32_t direct; /* bytes of a staging place of one-shot and two-shot; 0: GPUs cannot access one another's
                       memory */
    int32_t staged; /* 1: two-shot's buffers may have to be staged; 0: it is promised that they need not */
    struct rondo_model_graph ring, tree;
};

/* The cost of crossing from one group of a level (layout/group_tree.h) to a sibling, relative to staying in
 * an innermost group. */
struct rondo_model_level {
    double us, copy; /* factors of the time of a hop, and of copying */
    double bw;       /* GB/s in each direction between one of the groups and all others */
};

/*
 * Numbers of the cost model. Times are in us, bandwidths in GB/s (1e9 bytes); tuner/cost.c says how they are
 * used. If `gpu` is filled in, only it is used.
 */
struct rondo_model {
    double hop_us[RONDO_NUM_PROTOS]; /* a slice from one rank to the next inside a node */
    double bw[RONDO_NUM_PROTOS];     /* payload that one rank moves through a conn */
    double net_us[RONDO_NUM_PROTOS]; /* as hop_us, between nodes */
    double net_bw[RONDO_NUM_PROTOS]; /* in each direction, of all that a node's ranks send to other nodes */
    double base_us;                  /* fixed cost of a call */
    double mailbox_us, mailbox_bw;   /* one-shot: publishing to all; payload that one rank reads */
    double pair_bw, pair_past_bw; /* as mailbox_bw, for two ranks that swap places: up to pair_cached bytes,
                                        and above; 0: they do not swap */
    double conn_slows;            /* on far cores: share of the slowdown that bytes through conns have */
    double pair_slows;            /* as conn_slows, for the messages of such a pair */
    size_t pair_cached;           /* bytes of the larger buffer of a rank */
    size_t stream_bytes;          /* bytes of the same from which on results that are not in place bypass the
                            caches; 0: never */
    double direct_us, direct_bw;  /* two-shot: finding the buffers of all ranks; one rank's reads and
                                         writes of them, both counted */
    double cma_us, cma_bw;        /* where the kernel copies: a system call; the same bytes */
    double cma_past_bw;           /* the same, for bytes that bypass the caches */
    double apart_us;              /* what a byte of a sum that is not in place takes longer */
    double copy_us;               /* what a byte of a local copy takes; 0: unknown */
    int32_t apart;                /* enum rondo_apart: how it is stored */
    int32_t calibrated;           /* 1: bandwidths were measured (tuner/calibration.h) */
    double ranks_per_core;        /* > 1: oversubscribed; every hop costs a switch of the scheduler */
    struct rondo_group_levels levels; /* of a node; n = 0: all its ranks are equally near */
    struct rondo_model_level level[RONDO_NUM_LEVELS];
    int32_t wide_trees; /* 1: only all_reduce may use the trees (coll/tree.h) */
    double probed_us;   /* level[].us between the two ranks that measure a cache line's transfer; 0: none */
    struct rondo_model_gpu gpu;
};

/* GPUDirect between a GPU and a NIC: bit numbers of rondo_nic.gdr. */
enum rondo_gdr {
    RONDO_GDR_WRITE, /* the NIC may write GPU memory, so received data goes there */
    RONDO_GDR_READ,  /* the NIC may read GPU memory, so data is sent from there */
    RONDO_GDR_FLUSH, /* data that the NIC wrote may be read only after a flush */
    RONDO_GDR_OWN,   /* sends and receives of the GPU use this NIC, or others as near */
    RONDO_NUM_GDR
};

/* A NIC of this rank's node, as its GPU uses it. */
struct rondo_nic {
    char name[64]; /* the name of its net device: "mlx5_0:1" */
    uint32_t gdr;  /* 1 << enum rondo_gdr */
    int32_t relay; /* 1 + the rank of this node whose GPU relays what this one sends there (PXN); 0: none */
};

struct rondo_drift;
struct rondo_stitch;
struct rondo_measured;

struct rondo_layout {
    int32_t rank, nranks;
    int32_t nnodes, node;         /* node: this rank's */
    int32_t local_rank, nlocal;   /* in the node */
    int32_t min_local, max_local; /* ranks of the emptiest node, and of the fullest */
    int32_t *node_of;             /* rank -> node */
    int32_t *local_of;            /* rank -> local rank */
    int32_t *local_ranks;         /* local rank -> rank, of this node */
    int32_t nchannels;
    int32_t least_channels; /* fewest channels of a call, unless its algorithm cannot use as many */
    struct rondo_channel_layout *channel;
    /* Trees over several nodes (topo/stitch.h), owned, 10 bytes per rank and 20 per node, and
     * rondo_stitch_toward. NULL on one node, whose trees are over channel 0's ring. */
    struct rondo_stitch *stitch;
    int (*toward)(const struct rondo_stitch *stitch, int rank, int channel, int to);
    struct rondo_nic *nics; /* NICs that this rank's GPU uses by GPUDirect, as its own, or through another
                                 GPU; owned */
    int32_t nnics;
    /* On one node whose ranks form groups: its two trees, in positions of channel 0's ring. link is owned, 6
     * bytes per rank; NULL: they are the double trees. */
    struct rondo_group_tree grouped[2];
    struct rondo_nest *nest; /* the same groups, for hierarchical algorithms; owned; NULL: no groups */
    struct rondo_model model;
    /* The model before anything was measured: it chooses where a choice changes the bits of a result, so that
     * these are the same from run to run. has_fixed 0: nothing was measured. */
    struct rondo_model fixed;
    int32_t has_fixed;
    uint32_t protos;    /* mask of protocols with buffers */
    int32_t rank_order; /* 1: RONDO_DETERMINISM=strict: rings are in rank order, and reductions use only
                           algorithms that follow it (coll/coll.def) */
    uint64_t machine;   /* hash of the nodes' machines; equal for jobs on machines of one kind */
    const struct rondo_measured
        *measured; /* measured times that replace the model's (tuner/tune_file.h); NULL: none. Not owned */
    const struct rondo_drift *drift; /* corrections of the model (tuner/drift.h); NULL: none. Not owned */
};

/* Are these two ranks that swap the places of their mailbox (base/mailbox.h) and publish in pieces? Never on
 * GPUs. */
static inline int rondo_is_pair(const struct rondo_layout *layout)
{
    return layout->nranks == 2 && layout->model.pair_bw > 0;
}

#endif
