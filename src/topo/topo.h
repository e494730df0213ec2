/*
 * The graph of a node: its devices, their links, and the paths between them, built from a machine and the
 * ranks that run on it. Pure computation without I/O: equal input gives the same graph everywhere. Bandwidths
 * are integers in MB/s (1e6 bytes), latencies in ns.
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

/* A rank of the node and the device it drives. */
struct rondo_topo_rank {
    int32_t rank;             /* in the communicator; for display only */
    int64_t busid;            /* its GPU; -1: host memory */
    struct rondo_cores cores; /* for host memory, where the rank runs; all zero: anywhere */
};

struct rondo_topo_options {
    int32_t nnodes; /* in the job; > 1: channels enter and leave through NETs */
    /* worst path type used for P2P; -1: PXB, or SYS on an AMD host with at most two GPUs */
    int32_t p2p_level;
    /* worst path type over which a NIC accesses GPU memory; -1: PXB, or P2C where the GPU has C2C */
    int32_t gdr_level;
    int32_t gdr_c2c; /* 0: no GPUDirect over C2C */
    /* 0: NICs only write GPU memory; 1: they also read it, on any GPU; -1: they read it where that costs
     * no speed */
    int32_t gdr_read;
    int32_t cross_nic; /* 0, 1, 2 as in NCCL_CROSS_NIC */
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
    int32_t reverse; /* the link in the other direction */
    int32_t type;    /* enum rondo_link_type */
};

struct rondo_topo_node {
    int32_t type; /* enum rondo_node_type */
    /* among nodes of its type; devices are numbered by local rank, so "GPU 3" belongs to local rank 3 */
    int32_t index;
    int32_t item;          /* item of the machine; -1: none (NVS, HOST) */
    int32_t first, nlinks; /* outgoing links, fastest first; at equal speed NVL, PCI down, PCI up, SYS */
};

/*
 * A path between two points. Paths connect points: first the ranks' devices (GPU or HOST; point = local
 * rank), then NETs, CPUs, NVSs. cost[i] is how much of link hop[i] one byte takes, in 1/60: 60, or 72 where
 * an Intel host bridge costs a fifth more. Hops are contiguous except in a path of type NET, which leaves the
 * node at one NET and returns at the same or another one.
 */
struct rondo_topo_path {
    int32_t mbs; /* of the narrowest link, after costs; 0: not connected */
    int32_t latency_ns;
    int32_t type; /* enum rondo_path_type */
    int32_t nhops;
    int32_t first; /* hops at topo->hop[first..] and topo->cost[first..] */
    /* 1: the path also takes an eighth of the reverse of its last link, the one into the GPU: NIC to GPU
     * before sm 80 */
    int32_t reverse_eighth;
    int32_t via; /* point that relays by policy (NVB and PXN: a device; no P2P: a CPU), -1: none */
};

struct rondo_topo {
    const struct rondo_machine *machine; /* borrowed: must outlive the topo */
    struct rondo_topo_options options;
    struct rondo_topo_node *node;
    struct rondo_topo_link *link; /* grouped by `from` */
    int32_t nnodes, nlinks;
    int32_t ndevs, nnets, ncpus, nnvs; /* number of points of each kind */
    int32_t npoints;
    int32_t *point;                /* point -> node */
    struct rondo_topo_rank *rank;  /* per device */
    int32_t *device_cpu;           /* per device: the point of its CPU */
    struct rondo_topo_path *wired; /* npoints x npoints, row = from: the hardware alone */
    struct rondo_topo_path *path;  /* the same after policy: the paths that data takes and the search uses */
    int32_t *hop;
    uint8_t *cost;
    int32_t nhops, hop_capacity;
    int32_t min_sm, max_sm; /* of all GPUs; 0: none or unknown */
    int32_t all_gpus;       /* every rank has a GPU */
};

/**
 * Build the graph of the devices that ranks own. GPUs without a rank, and what leads only to them, are left
 * out. ranks[i] is local rank i; two ranks on one GPU become two devices that share its links. An unknown bus
 * id fails with RONDO_INVALID_ARGUMENT and an error that lists the known ones. The caller owns the machine,
 * which must outlive the topo.
 */
rondo_status rondo_topo_create(struct rondo_topo **topo, const struct rondo_machine *machine,
                               const struct rondo_topo_rank *ranks, int nranks,
                               const struct rondo_topo_options *options);
void rondo_topo_destroy(struct rondo_topo *topo);

/**
 * Make up ranks for a machine that nobody runs on: one on each GPU of @a list ("0,2,5-7": NVML indices in
 * this order; NULL: all). On a machine without GPUs, one rank per NUMA node, or n ranks spread over the cores
 * ("n4"). Free *ranks with rondo_free.
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
/** @return all cores the ranks may run on; empty: unknown. */
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

/* ---- policy: decisions, each with a reason that --why prints ---- */

struct rondo_topo_verdict {
    int32_t yes;
    int32_t via;      /* point that relays, -1: none */
    char reason[192]; /* "path PHB is beyond RONDO_P2P_LEVEL=PXB" */
};

/** Can two devices use P2P (direct loads and stores)? *read: the receiver reads instead of the sender
 * writing (NVLink between two sm 80). */
void rondo_topo_p2p(const struct rondo_topo *topo, int a, int b, int *read,
                    struct rondo_topo_verdict *verdict);
/** Can a device and a net use GPUDirect? read: the NIC reads GPU memory, to send. */
void rondo_topo_gdr(const struct rondo_topo *topo, int dev, int net, int read,
                    struct rondo_topo_verdict *verdict);
/** @return 1 if GPUDirect writes into this device need a flush before the data may be read: before sm 90,
 * or when C2C data direct forces it. */
int rondo_topo_flush(const struct rondo_topo *topo, int dev);
/** For each of the first 64 devices, say how its GPU can use a net: bit d of gdr[kind]. All bits are zero
 * if a rank has no GPU or if the net is not an RDMA NIC. */
void rondo_topo_gdr_masks(const struct rondo_topo *topo, int net, uint64_t gdr[RONDO_NUM_GDR]);
/** For the first n devices, find the device through which each should send to a net (PXN): relay[dev] is 1
 * + that device, 0: none. Decides like rondo_topo_pxn; all zero unless the net is an RDMA NIC. */
void rondo_topo_relays(const struct rondo_topo *topo, int net, uint8_t *relay, int n);
/** Should dev send to the net through another device next to it (PXN)? verdict->via is that device. */
void rondo_topo_pxn(const struct rondo_topo *topo, int dev, int net, struct rondo_topo_verdict *verdict);
/** Choose a device's net for a channel without a graph (send/recv): among the nets with the best path,
 * devices start at bit-reversed positions and channels continue from there. @return -1 without nets. */
int rondo_topo_net_for(const struct rondo_topo *topo, int dev, int channel);
/** @return the channels per send/recv peer, a power of two: 2 per NVLink, 2 over PCI, as many as the
 * bandwidth needs over NET. peer -1: on another node. */
int rondo_topo_p2p_channels(const struct rondo_topo *topo, int dev, int peer);

/** Name a point for people: "GPU 3", "NET 1 (mlx5_1)", "CPU 0". @return text. */
const char *rondo_topo_point_name(const struct rondo_topo *topo, int point, char *text, size_t bytes);
/** Find a point by name: "GPU0", "gpu 3", "NET1", "mlx5_1", "CPU0", or a bus id. @return -1 if there is
 * none. */
int rondo_topo_point_find(const struct rondo_topo *topo, const char *name);

const char *rondo_node_type_name(int type);
const char *rondo_link_type_name(int type);
const char *rondo_path_type_name(int type);
const char *rondo_path_type_legend(int type);
/* -1 unknown; also accepts 0..5, the numbers of NCCL_P2P_LEVEL */
int rondo_path_type_from_name(const char *name);
/** @return the MB/s of a link between two such NUMA nodes, of one NVLink of this sm, of a PCI link. */
int rondo_topo_sys_mbs(int arch, int vendor, int model);
int rondo_topo_nvlink_mbs(int sm);
int rondo_topo_pci_mbs(int speed, int width);

#endif
