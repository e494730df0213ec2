/*
 * Channels of a node: rings and trees laid over its devices within the bandwidth of its links. Pure: integers
 * only and budgets counted in steps, so the same topo gives the same graphs on every rank and compiler. The
 * search always finds something: at worst, one channel in plain order.
 *
 * Cuts of the graph bound nchannels x bw. The search stops when it reaches the bound and otherwise reports
 * the gap.
 */
#ifndef RONDO_TOPO_SEARCH_H
#define RONDO_TOPO_SEARCH_H

#include "layout/group_tree.h"
#include "topo/topo.h"

#define RONDO_ENUM_ROW_(ctx, NAME, value, ...) RONDO_PATTERN_##NAME = value,
enum rondo_pattern { RONDO_TOPO_PATTERN_TABLE(RONDO_ENUM_ROW_, ) };
#undef RONDO_ENUM_ROW_

/* The graphs of a node, numbered as in graph files. */
enum rondo_graph_id { RONDO_GRAPH_RING, RONDO_GRAPH_TREE, RONDO_NUM_GRAPHS };

enum { RONDO_TOPO_CHANNELS = 32 }; /* per search; stitching doubles them */

/* One bit per pair of architecture and vendor; both may be unknown (-1). */
#define RONDO_GRAPH_CPU(arch, vendor) (((arch) + 1) * (RONDO_NUM_VENDORS + 1) + (vendor) + 1)
_Static_assert((RONDO_NUM_ARCHS + 1) * (RONDO_NUM_VENDORS + 1) <= 31, "bits of struct rondo_graph's cpus");

struct rondo_graph {
    int32_t id, pattern;
    int32_t nchannels;
    /* MB/s of a channel inside the node and through a net; equal on one node */
    int32_t bw_intra, bw_inter;
    int32_t latency_inter;          /* ns of the nets used; 0 on one node */
    int32_t type_intra, type_inter; /* type of the worst path used; type_inter: device to net */
    /* 1: a channel may enter and leave on different rails; 2: odd channels mirror even ones */
    int32_t cross_nic;
    int32_t same_channels; /* all channels have the same order */
    int32_t nhops;         /* links used by all channels; fewer is better at equal bandwidth */
    /* lowest and highest compute capability x 10 of the node's GPUs; 0: none, or unknown */
    int32_t min_sm, max_sm;
    int32_t cpus;   /* CPU models: bit RONDO_GRAPH_CPU(arch, vendor) of each NUMA node */
    int32_t family; /* lowest CPUID family of these CPUs; below 1: unknown */
    int32_t cache;  /* KiB of outermost cache per rank of the node; 0 unknown */
    int32_t ndevs;
    /* Channel c visits devices order[c * ndevs + 0 .. ndevs - 1] in the direction of the data, enters at
     * net[2 * c] and leaves at net[2 * c + 1] (net indices, -1 on one node). */
    int16_t *order;
    int16_t net[2 * RONDO_TOPO_CHANNELS];
    /* How good the result is and what it cost. bound, MB/s: no graph of this pattern can have a larger
     * nchannels x bw (bw_inter between nodes), whatever its paths. */
    int32_t bound;
    int32_t bound_cut;       /* enum rondo_bound_cut */
    int32_t bound_at;        /* the point around which the cut lies, -1: none */
    int32_t found;           /* nchannels x bw_intra (one node) or bw_inter */
    int32_t fallback;        /* 1: the search found nothing and used plain order */
    int64_t steps, searches; /* search effort */
    /* For a packed ring on host memory (stitch.h), the groups that the first channel's order keeps
     * together. cut is owned, NULL if levels.n is 0. */
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

/** Find the ring and the tree of a node, with topo->options. The tree gets as many channels as the ring.
 * graphs[] must be zeroed; release each with rondo_graph_release. */
rondo_status rondo_topo_search(const struct rondo_topo *topo, struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
void rondo_graph_release(struct rondo_graph *graph);
/** @return the MB/s of all channels together, saturated: files and peers may claim more than fits. */
static inline int32_t rondo_graph_found(int32_t nchannels, int32_t bw)
{
    int64_t found = (int64_t)nchannels * bw;
    return found > INT32_MAX ? INT32_MAX : (int32_t)found;
}
/** @return 1 if two channels have the same order and nets. */
int rondo_graph_channels_equal(const struct rondo_graph *graph, int a, int b);
/** Check a graph against topo: each device once per channel, paths within the claimed types, bandwidths
 * within the links. The error says what is wrong. */
rondo_status rondo_graph_check(const struct rondo_topo *topo, const struct rondo_graph *graph);
/** Compute bound, bound_cut and bound_at for the graph's id. nchannels: the exact number of channels; 0:
 * any number. */
rondo_status rondo_topo_bound(const struct rondo_topo *topo, struct rondo_graph *graph, int nchannels);
/** Name what limits a graph: "GPU 3's links", "the nets", "the cut around CPU 1". @return text. */
const char *rondo_graph_limit(const struct rondo_topo *topo, const struct rondo_graph *graph, char *text,
                              size_t bytes);

const char *rondo_graph_name(int id);        /* "ring", "tree" */
const char *rondo_pattern_name(int pattern); /* "balanced tree", ... */

#endif
