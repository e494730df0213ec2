/*
 * The graph of a node: what its devices are linked by, and the paths between them. Built from a machine and
 * the ranks that run on it; pure computation, no I/O: the same machine and ranks give the same graph
 * everywhere. Bandwidths are integers, MB/s (1e6 bytes); latencies ns.
 */
#ifndef RONDO_TOPO_TOPO_H
#define RONDO_TOPO_TOPO_H

#include "layout/layout.h"
#include "topo/machine.h"

#define RONDO_ENUM_ROW_(ctx, NAME, ...) RONDO_NODE_##NAME,
enum rondo_node_type { RONDO_TOPO_NODE_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_NODE_TYPES };
#undef RONDO_ENUM_ROW_
#define RONDO_ENUM_ROW_(ctx, NAME, ...) RONDO_LINK_##NAME,
enum rondo_link_type { RONDO_TOPO_LINK_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_LINK_TYPES };
#undef RONDO_ENUM_ROW_
#define RONDO_ENUM_ROW_(ctx, NAME, ...) RONDO_PATH_##NAME,
enum rondo_path_type { RONDO_TOPO_PATH_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_PATH_TYPES };
#undef RONDO_ENUM_ROW_

enum { RONDO_TOPO_MAX_LOCAL = 1024, RONDO_LOC_MBS = 5000000 };

/* A rank of the node: which device it drives. */
struct rondo_topo_rank {
    int32_t rank;             /* in the communicator: only shown */
    int64_t busid;            /* of its GPU; -1: host memory */
    struct rondo_cores cores; /* host memory: where it runs; all zero: anywhere */
};

struct rondo_topo_options {
    int32_t nnodes;    /* of the job; > 1: channels enter and leave through NETs */
    int32_t p2p_level; /* enum rondo_path_type: worst path used for P2P; -1: PXB, SYS on an AMD host with at
                          most two GPUs */
    int32_t gdr_level; /* worst path used by a card to read GPU memory; -1: PXB, P2C where the GPU has C2C */
    int32_t gdr_c2c;   /* 0: no GPUDirect over C2C */
    int32_t gdr_read; /* 0: cards only write GPU memory; 1: they read it too, whatever the GPU; -1: where that
                         slows nothing */
    int32_t cross_nic; /* 0, 1, 2 as NCCL_CROSS_NIC */
    int32_t p2p_disable, shm_disable, pxn_disable;
    int32_t min_channels, max_channels; /* 0: 1 and RONDO_TOPO_CHANNELS */
};
#define RONDO_TOPO_OPTIONS_DEFAULT                                                                  \
    {                                                                                               \
        .nnodes = 1, .p2p_level = -1, .gdr_level = -1, .gdr_c2c = 1, .gdr_read = -1, .cross_nic = 2 \
    }

struct rondo_topo_link {
    int32_t from, to; /* nodes */
    int32_t mbs;
    int32_t reverse; /* the link the other way */
    int32_t type;    /* enum rondo_link_type */
};

struct rondo_topo_node {
    int32_t type;  /* enum rondo_node_type */
    int32_t index; /* among its type: "GPU 3" is a local rank's: devices are numbered in the order of local
                      ranks */
    int32_t item;  /* in the machine; -1: none (NVS, HOST) */
    int32_t first,
        nlinks; /* its outgoing links, fastest first; NVL, then PCI down, PCI up, SYS at equal speed */
};

/*
 * A path between two points. Points are the nodes that paths are computed for: first the ranks' devices (GPU
 * or HOST; point = local rank), then NETs, then CPUs, then NVSs. cost[i]: how much of link hop[i] one byte
 * takes, in 1/60: 60, or 72 where an Intel host bridge costs a fifth more. Hops follow each other, but in a
 * path of type NET, which leaves the node at one NET and comes back at the same or another.
 */
struct rondo_topo_path {
    int32_t mbs; /* of the narrowest link, after costs; 0: not connected */
    int32_t latency_ns;
    int32_t type; /* enum rondo_path_type */
    int32_t nhops;
    int32_t first;          /* hops at topo->hop[first..] and topo->cost[first..] */
    int32_t reverse_eighth; /* 1: the reverse of the link into the GPU (the last one, no other) is loaded with
                               an eighth as well: card to GPU before sm 80 */
    int32_t via; /* point that relays it by policy (NVB and PXN: a device; no P2P: a CPU), -1: none */
};

struct rondo_topo {
    const struct rondo_machine *machine; /* not owned: outlives the topo */
    struct rondo_topo_options options;
    struct rondo_topo_node *node;
    struct rondo_topo_link *link; /* grouped by `from` */
    int32_t nnodes, nlinks;
    int32_t ndevs, nnets, ncpus, nnvs; /* points of each kind */
    int32_t npoints;
    int32_t *point;                /* point -> node */
    struct rondo_topo_rank *rank;  /* per device */
    int32_t *device_cpu;           /* per device: its CPU's point */
    struct rondo_topo_path *wired; /* npoints x npoints, row = from: as the hardware is wired */
    struct rondo_topo_path *path;  /* the same after policy: what data takes; the search uses these */
    int32_t *hop;
    uint8_t *cost;
    int32_t nhops, hop_capacity;
    int32_t min_sm, max_sm; /* of the GPUs; 0: none or unknown */
    int32_t all_gpus;       /* every rank has a GPU */
};

/**
 * The graph of the devices that ranks own: GPUs without a rank, and what leads only to them, are left out.
 * ranks[i] is local rank i. Two ranks on one GPU are two devices that share its links. An unknown bus id is
 * RONDO_INVALID_ARGUMENT naming it and those that exist. The machine stays the caller's and must outlive
 * topo.
 */
rondo_status rondo_topo_create(struct rondo_topo **topo, const struct rondo_machine *machine,
                               const struct rondo_topo_rank *ranks, int nranks,
                               const struct rondo_topo_options *options);
void rondo_topo_destroy(struct rondo_topo *topo);

/**
 * Ranks for a machine that nobody runs on: one on each GPU of `list` ("0,2,5-7": NVML indices, in this order;
 * NULL: all), or, when the machine has no GPU, on each core set: one rank a NUMA node, or n ranks spread
 * ("n4"). *ranks is allocated, rondo_free it.
 */
rondo_status rondo_topo_ranks(const struct rondo_machine *machine, const char *list,
                              struct rondo_topo_rank **ranks, int *n);

static inline const struct rondo_topo_path *rondo_topo_path(const struct rondo_topo *topo, int from, int to)
{
    return &topo->path[(size_t)from * (size_t)topo->npoints + (size_t)to];
}
static inline const struct rondo_topo_path *rondo_topo_wired(const struct rondo_topo *topo, int from, int to)
{
    return &topo->wired[(size_t)from * (size_t)topo->npoints + (size_t)to];
}
static inline int rondo_topo_net_point(const struct rondo_topo *topo, int net) { return topo->ndevs + net; }
/** All cores that the ranks may run on; none: not known. */
struct rondo_cores rondo_topo_cores(const struct rondo_topo *topo);
static inline int rondo_topo_cpu_point(const struct rondo_topo *topo, int cpu)
{
    return topo->ndevs + topo->nnets + cpu;
}
static inline const struct rondo_item *rondo_topo_item(const struct rondo_topo *topo, int point)
{
    int32_t item = topo->node[topo->point[point]].item;
    return item < 0 ? NULL : &topo->machine->item[item];
}

/* ---- policy: each decision with its reason, a sentence that --why prints ---- */

struct rondo_topo_verdict {
    int32_t yes;
    int32_t via;      /* point that relays, -1 none */
    char reason[192]; /* "path PHB is beyond RONDO_P2P_LEVEL=PXB" */
};

/** P2P between two devices (direct loads and stores). *read: the receiver reads instead of the sender writing
 * (NVLink between two sm 80). */
void rondo_topo_p2p(const struct rondo_topo *topo, int a, int b, int *read,
                    struct rondo_topo_verdict *verdict);
/** GPUDirect between device and net. read: the card reads GPU memory (send). */
void rondo_topo_gdr(const struct rondo_topo *topo, int dev, int net, int read,
                    struct rondo_topo_verdict *verdict);
/** Does GPUDirect into this device need a flush before the data may be read (before sm 90, or when forced by
 * C2C data direct)? */
int rondo_topo_flush(const struct rondo_topo *topo, int dev);
/** What the GPUs among the first 64 devices make of a net: bit d of gdr[kind]. Nothing where a rank has no
 * GPU, and of nets that are no cards for RDMA. */
void rondo_topo_gdr_masks(const struct rondo_topo *topo, int net, uint64_t gdr[RONDO_NUM_GDR]);
/** Through whom devices should send to a net by PXN: relay[dev] is 1 + that device, 0: nobody. As
 * rondo_topo_pxn says, for the first n devices; nothing of nets that are no cards for RDMA. */
void rondo_topo_relays(const struct rondo_topo *topo, int net, uint8_t *relay, int n);
/** PXN: should dev send through another device next to the net? verdict->via is that device. */
void rondo_topo_pxn(const struct rondo_topo *topo, int dev, int net, struct rondo_topo_verdict *verdict);
/** The net of a device for a channel without a graph (send/recv): among the nets with the best path, devices
 * start at bit-reversed positions, channels go on from there. -1: no net. */
int rondo_topo_net_for(const struct rondo_topo *topo, int dev, int channel);
/** Channels per peer of send/recv: NVL 2 x links, PCI 2, NET as the bandwidth needs; a power of two. peer -1:
 * on another node. */
int rondo_topo_p2p_channels(const struct rondo_topo *topo, int dev, int peer);

/** Names for people: "GPU 3", "NET 1 (mlx5_1)", "CPU 0". @return text. */
const char *rondo_topo_point_name(const struct rondo_topo *topo, int point, char *text, size_t bytes);
/** "GPU0", "gpu 3", "NET1", "mlx5_1", "CPU0", or a bus id, to a point; -1 none. */
int rondo_topo_point_find(const struct rondo_topo *topo, const char *name);

const char *rondo_node_type_name(int type);
const char *rondo_link_type_name(int type);
const char *rondo_path_type_name(int type);
const char *rondo_path_type_legend(int type);
int rondo_path_type_from_name(const char *name); /* -1 unknown; also NCCL's numbers 0..5 of NCCL_P2P_LEVEL */
/** MB/s of a link between two NUMA nodes of this kind; of an NVLink of this sm; of a PCI link. */
int rondo_topo_sys_mbs(int arch, int vendor, int model);
int rondo_topo_nvlink_mbs(int sm);
int rondo_topo_pci_mbs(int speed, int width);

#endif
