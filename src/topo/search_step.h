/*
 * One attempt of the search: lay as many channels as fit at one speed, with one set of allowances, by
 * depth-first search in a fixed order and within a budget of steps.
 */
#ifndef RONDO_TOPO_SEARCH_STEP_H
#define RONDO_TOPO_SEARCH_STEP_H

#include "topo/search.h"

/* What an attempt may do. */
struct rondo_attempt {
    int32_t pattern;
    int32_t bw_intra, bw_inter; /* MB/s of a channel */
    int32_t type_intra, type_inter;
    int32_t cross_nic; /* 0: out where it came in; 1: any net; 2: odd channels mirror even ones */
    int32_t same;      /* every channel repeats the first one's order */
    int32_t min_channels, max_channels;
    int64_t budget; /* steps; a step is a device that is put at a position, or a net that is tried */
};

/* Devices times channels at most: the search is recursive, and stacks are finite. */
enum { RONDO_MOST_PLACED = 1 << 12 };

struct rondo_lay;

rondo_status rondo_lay_create(struct rondo_lay **lay, const struct rondo_topo *topo);
void rondo_lay_destroy(struct rondo_lay *lay);
/**
 * Run an attempt. @a best, with order allocated, is replaced when a better graph is found: more nchannels x
 * bw_intra, then fewer hops.
 * @return 1: max_channels were laid, nothing better exists with these allowances; 0: the order was exhausted;
 * -1: the budget was.
 */
int rondo_lay_run(struct rondo_lay *lay, const struct rondo_attempt *attempt, struct rondo_graph *best);

/* ---- what a channel takes ---- */

/* A leg of a channel: from one point to another. eighths: of the speed (8: all of it, 4: half, where a
 * balanced tree leaves through two devices). */
struct rondo_leg {
    int32_t from, to;
    int32_t inter; /* at bw_inter */
    int32_t eighths;
};

/** Legs of channel c: at most ndevs + 3. @return their number. */
int rondo_graph_legs(const struct rondo_topo *topo, const struct rondo_graph *graph, int channel,
                     struct rondo_leg *legs);
/** order for RONDO_TOPO_CHANNELS channels; everything else stays. */
rondo_status rondo_graph_alloc(struct rondo_graph *graph, int ndevs);
void rondo_graph_copy(struct rondo_graph *to,
                      const struct rondo_graph *from); /* both allocated, same ndevs */
/**
 * Raise the speeds to what the links leave for exactly these channels: both together, then that inside the
 * node of a tree up to twice that between nodes. Sets types, hops and latency to what the legs have. @return
 * the common speed, 0: some leg has no path. scratch: 2 * topo->nlinks.
 */
int32_t rondo_graph_fit(const struct rondo_topo *topo, struct rondo_graph *graph, int64_t *scratch);

/**
 * Channels without a search, by place: devices of a cache, of a NUMA node, of a package stand together, so
 * that each of these boundaries is crossed once each way: no ring crosses less. Host endpoints are always
 * laid so, GPUs when the search found nothing. graph: allocated, with its id. inter: channels go through
 * nets. scratch: as above.
 */
rondo_status rondo_graph_lay_by_place(const struct rondo_topo *topo, struct rondo_graph *graph, int inter,
                                      int nchannels, int64_t *scratch);

/* Units in which links are counted: 1/480 MB/s, so that costs in 1/60 and eighths are whole. */
enum { RONDO_LINK_UNITS = 480 };

#endif
