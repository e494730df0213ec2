/*
 * A layout: the rings and trees laid over the ranks of a communicator, and what they cost. Filled by src/
 * from topo/ (and stitched over nodes), read by coll/'s costs and by src/'s plans. The same on all ranks, but
 * for `self` fields.
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

/* A graph over the GPUs of all nodes, merged: the least bandwidth, the worst paths. */
struct rondo_model_graph {
    int32_t nchannels;          /* as searched */
    int32_t bw_intra, bw_inter; /* MB/s of one of them inside the node and through a net */
    int32_t latency_inter;      /* ns that the nets add to a message */
    int32_t nvlink;             /* 1: only NVLink inside the nodes */
    int32_t near;  /* 1: only NVLink, or one GPU, inside the nodes: pairs do not share the links of others */
    int32_t ll128; /* 1: all its paths deliver 128 bytes as one, and its conns take them */
    int32_t one_gpu; /* tree: 1: all of a node's traffic to other nodes is one GPU's */
};

/* What the model of GPU machines is computed from (tuner/cost_gpu.h): plain facts that all ranks know. */
struct rondo_model_gpu {
    int32_t
        nchannels;  /* laid over the graphs, which they load fully when all are used; 0: not a GPU machine */
    int32_t sm;     /* least compute capability x 10 */
    int32_t host;   /* enum rondo_gpu_host: the CPUs */
    int32_t p2p_ll; /* most bytes of a message that goes by LL inside a node */
    int32_t direct; /* bytes of a place in which one-shot and two-shot stage data; 0: the GPUs do not reach
                       into one another's memory */
    struct rondo_model_graph ring, tree;
};

/*
 * Numbers of the cost model. Times in us, bandwidths in GB/s (1e9 bytes); coll/algo.h says how they are used.
 * With `gpu` filled it says all, and the numbers of host memory are not looked at.
 */
/* What lies between groups of a level (layout/group_tree.h) that are in one group of the level above, against
 * what lies between ranks of one innermost group. */
struct rondo_model_level {
    double us, copy; /* a hop takes so many times as long, and so does copying */
    double bw;       /* GB/s each way between one of the groups and all the others */
};

struct rondo_model {
    double hop_us[RONDO_NUM_PROTOS]; /* one slice from one rank to the next inside a node */
    double bw[RONDO_NUM_PROTOS];     /* of one rank moving data through a conn, payload */
    double net_us[RONDO_NUM_PROTOS]; /* the same between nodes */
    double net_bw[RONDO_NUM_PROTOS]; /* each way, of what a node's ranks pass to other nodes */
    double base_us;                  /* fixed cost of a call */
    double mailbox_us, mailbox_bw;   /* one-shot: a post seen by everyone; payload read by one rank */
    double pair_bw, pair_past_bw;    /* the same of two ranks, which hand their places over: up to pair_cached
                                        bytes, and above; 0: they do not */
    double conn_slows;   /* on far cores: of what these are slower, the part that bytes through conns are */
    double pair_slows;   /* the same of such posts */
    size_t pair_cached;  /* of the larger buffer of a rank */
    size_t stream_bytes; /* the same; from so many on results that are not in place are stored past the
                            caches; 0: never */
    double direct_us, direct_bw;      /* two-shot: to find all ranks' buffers; of one rank reading and writing
                                         them, both counted */
    double cma_us, cma_bw;            /* where the kernel copies: a call into it; the same bytes */
    double cma_past_bw;               /* those that are stored past the caches */
    double ranks_per_core;            /* > 1: oversubscribed; every hop costs a turn of the scheduler */
    struct rondo_group_levels levels; /* of a node; none: all its ranks are equally near */
    struct rondo_model_level level[RONDO_NUM_LEVELS];
    double probed_us; /* level's us between the two ranks that measure how long a line takes; 0: none */
    struct rondo_model_gpu gpu;
};

/* What the graphs of a node say of a GPU and a net; bits of a rondo_card. */
enum rondo_gdr {
    RONDO_GDR_WRITE, /* the card may write the GPU's memory: what is received goes there */
    RONDO_GDR_READ,  /* and read it: what is sent comes from there */
    RONDO_GDR_FLUSH, /* what it has written may be read after a flush only */
    RONDO_GDR_OWN,   /* the GPU's sends and receives go through this net, or others that are as near */
    RONDO_NUM_GDR
};

/* A net of this rank's node and its GPU. */
struct rondo_card {
    char name[64]; /* as the net device calls it: "mlx5_0:1" */
    uint32_t gdr;  /* 1 << enum rondo_gdr */
    int32_t
        relay; /* 1 + the rank of this node through whose GPU this one sends there (PXN); 0: by its own way */
};

struct rondo_stitch;
struct rondo_measured;

struct rondo_layout {
    int32_t rank, nranks;
    int32_t nnodes, node;       /* this rank's node */
    int32_t local_rank, nlocal; /* within the node */
    int32_t max_local;          /* ranks of the fullest node */
    int32_t *node_of;           /* rank -> node */
    int32_t *local_of;          /* rank -> local rank */
    int32_t *local_ranks;       /* local rank -> rank, of this node */
    int32_t nchannels;
    int32_t least_channels; /* of a call; fewer only where its algorithm cannot have as many */
    struct rondo_channel_layout *channel;
    /* Trees over several nodes (topo/stitch.h), owned, 10 bytes a rank and 20 a node; and its
     * rondo_stitch_toward. NULL on one node: trees are those over channel 0's ring. */
    struct rondo_stitch *stitch;
    int (*toward)(const struct rondo_stitch *stitch, int rank, int channel, int to);
    struct rondo_card *cards; /* nets that this rank's GPU may use by GPUDirect, has as its own, or sends to
                                 through another one; owned */
    int32_t ncards;
    /* One node whose ranks stand in groups: its two trees, in positions of channel 0's ring. link owned, 6
     * bytes a rank; NULL: they are the double trees. */
    struct rondo_group_tree grouped[2];
    struct rondo_nest *nest; /* the same groups, for what goes by open buffers; owned; NULL: there are none */
    struct rondo_model model;
    uint32_t protos;    /* mask of protocols with buffers */
    int32_t rank_order; /* 1: RONDO_DETERMINISM=strict: rings are in rank order, and what reduces uses only
                           algorithms that do so in that order (coll/coll.def) */
    uint64_t machine;   /* hash of the nodes' machines; equal: jobs on machines of one kind */
    const struct rondo_measured
        *measured; /* times that stand for the model's (tuner/measured.h); NULL: none. Not owned */
};

/* Two ranks that hand the places of their mailbox over (base/mailbox.h), and post in pieces; GPUs do not. */
static inline int rondo_is_pair(const struct rondo_layout *layout)
{
    return layout->nranks == 2 && layout->model.pair_bw > 0;
}

#endif
