/*
 * Channels of a node: how rings and trees are laid over its devices under the bandwidths of its links. Pure:
 * the same topo gives the same graphs on every rank and compiler (integers, budgets counted in steps). Never
 * fails: at worst one channel in plain order.
 *
 * Proof: a bound on nchannels x bw from cuts of the graph; the search stops when it is reached and otherwise
 * says what it missed.
 */
#ifndef RONDO_TOPO_SEARCH_H
#define RONDO_TOPO_SEARCH_H

#include "layout/group_tree.h"
#include "topo/topo.h"

#define RONDO_ENUM_ROW_(ctx, NAME, value, ...) RONDO_PATTERN_##NAME = value,
enum rondo_pattern { RONDO_TOPO_PATTERN_TABLE(RONDO_ENUM_ROW_, ) };
#undef RONDO_ENUM_ROW_

/* Graphs of a node; the number is the graph's id in files. */
enum rondo_graph_id { RONDO_GRAPH_RING, RONDO_GRAPH_TREE, RONDO_NUM_GRAPHS };

enum { RONDO_TOPO_CHANNELS = 32 }; /* of a search; stitching doubles them */

/* A bit for each pair of architecture and vendor, both of which may be unknown (-1). */
#define RONDO_GRAPH_CPU(arch, vendor) (((arch) + 1) * (RONDO_NUM_VENDORS + 1) + (vendor) + 1)
_Static_assert((RONDO_NUM_ARCHS + 1) * (RONDO_NUM_VENDORS + 1) <= 31, "bits of struct rondo_graph's cpus");

struct rondo_graph {
    int32_t id, pattern;
    int32_t nchannels;
    int32_t bw_intra, bw_inter;     /* MB/s of a channel inside the node and through a net; one node: equal */
    int32_t latency_inter;          /* ns of the nets used; 0 one node */
    int32_t type_intra, type_inter; /* worst path used; type_inter: device to net */
    int32_t cross_nic;              /* 1: in and out nets are of any rail; 2: odd channels mirror even ones */
    int32_t same_channels;          /* all channels have one order */
    int32_t nhops;                  /* links used, of all channels: less is better at equal bandwidth */
    int32_t min_sm,
        max_sm;     /* least and most compute capability x 10 of the node's GPUs; 0: none, or unknown */
    int32_t cpus;   /* kinds of CPUs: bit RONDO_GRAPH_CPU(arch, vendor) of each NUMA node's */
    int32_t family; /* the least of these CPUs' (CPUID's number); below 1: unknown */
    int32_t cache;  /* KiB of the outermost caches for each of the node's ranks; 0 unknown */
    int32_t ndevs;
    /* Channel c: devices order[c * ndevs + 0 .. ndevs - 1] in the direction of the data, in at net[2 * c],
     * out at net[2 * c + 1] (indices of nets, -1 on one node). */
    int16_t *order;
    int16_t net[2 * RONDO_TOPO_CHANNELS];
    /* Proof and effort. */
    int32_t bound; /* MB/s: no graph of this pattern, whatever its paths, has more in nchannels x bw (bw_inter
                      between nodes) */
    int32_t bound_cut;       /* enum rondo_bound_cut */
    int32_t bound_at;        /* point the cut is around, -1 */
    int32_t found;           /* nchannels x bw_intra (one node) or bw_inter */
    int32_t fallback;        /* 1: nothing was found: plain order */
    int64_t steps, searches; /* search effort */
    /* Of a ring that was packed with its topo (stitch.h), on host memory: the groups that its first channel's
     * order keeps together; cut owned, NULL: levels.n is 0. */
    struct rondo_group_levels levels;
    uint8_t *cut;
};

enum rondo_bound_cut {
    RONDO_CUT_DEVICE,
    RONDO_CUT_DEVICES,
    RONDO_CUT_NETS,
    RONDO_CUT_SET,
    RONDO_CUT_CHANNELS
};

/**
 * The ring and the tree of a node. graphs[] are zeroed before and owned by the caller after:
 * rondo_graph_release. Uses topo->options. The tree gets as many channels as the ring.
 */
rondo_status rondo_topo_search(const struct rondo_topo *topo, struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
void rondo_graph_release(struct rondo_graph *graph);
/** MB/s of all channels together; files and peers may say more than fits. */
static inline int32_t rondo_graph_found(int32_t nchannels, int32_t bw)
{
    int64_t found = (int64_t)nchannels * bw;
    return found > INT32_MAX ? INT32_MAX : (int32_t)found;
}
/** Do two channels have the same order and nets? */
int rondo_graph_channels_equal(const struct rondo_graph *graph, int a, int b);
/** Is the graph valid for topo: each device once a channel, paths within the types it claims, bandwidths
 * within the links? The error says what is wrong. */
rondo_status rondo_graph_check(const struct rondo_topo *topo, const struct rondo_graph *graph);
/** Fill bound, bound_cut and bound_at for the graph's id. nchannels: that so many channels are laid, no more
 * and no less; 0: any number. */
rondo_status rondo_topo_bound(const struct rondo_topo *topo, struct rondo_graph *graph, int nchannels);
/** "GPU 3's links", "the nets", "the cut around CPU 1": what limits. */
const char *rondo_graph_limit(const struct rondo_topo *topo, const struct rondo_graph *graph, char *text,
                              size_t bytes);

const char *rondo_graph_name(int id);        /* "ring", "tree" */
const char *rondo_pattern_name(int pattern); /* "balanced tree", ... */

#endif
