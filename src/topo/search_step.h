/* One attempt of the search: lay as many channels as fit at one speed under one set of constraints, by
 * depth-first search in a fixed order and within a budget of steps. */
#ifndef RONDO_TOPO_SEARCH_STEP_H
#define RONDO_TOPO_SEARCH_STEP_H

#include "topo/search.h"

/* The constraints of an attempt. */
struct rondo_attempt {
    int32_t pattern;
    int32_t bw_intra, bw_inter; /* MB/s of a channel */
    int32_t type_intra, type_inter;
    /* 0: leave through the net where it entered; 1: any net; 2: odd channels mirror even ones */
    int32_t cross_nic;
    int32_t same; /* every channel repeats the first one's order */
    int32_t min_channels, max_channels;
    int64_t budget; /* steps: one for each device placed and each net tried */
};

/* Limit on devices x channels: the search is recursive and stacks are finite. */
enum { RONDO_SEARCH_MAX_PLACED = 1 << 12 };

struct rondo_lay;

rondo_status rondo_lay_create(struct rondo_lay **lay, const struct rondo_topo *topo);
void rondo_lay_destroy(struct rondo_lay *lay);
/**
 * Run an attempt. Replaces @a best, whose order is allocated, when it finds a better graph: more nchannels x
 * bw_intra, then fewer hops.
 * @return 1: laid max_channels, no better graph exists under these constraints; 0: tried every order; -1: ran
 * out of budget.
 */
int rondo_lay_run(struct rondo_lay *lay, const struct rondo_attempt *attempt, struct rondo_graph *best);

/* ---- the links a channel uses ---- */

/* A leg of a channel, from one point to another. eighths is the share of the channel's speed: 8 is all of
 * it, 4 is half, where a balanced tree leaves through two devices. */
struct rondo_leg {
    int32_t from, to;
    int32_t inter; /* runs at bw_inter */
    int32_t eighths;
};

/** List the legs of a channel, at most ndevs + 3. @return their number. */
int rondo_graph_legs(const struct rondo_topo *topo, const struct rondo_graph *graph, int channel,
                     struct rondo_leg *legs);
/** Allocate order for RONDO_TOPO_CHANNELS channels; leave all else unchanged. */
rondo_status rondo_graph_alloc(struct rondo_graph *graph, int ndevs);
void rondo_graph_copy(struct rondo_graph *to,
                      const struct rondo_graph *from); /* both allocated, with equal ndevs */
/**
 * Raise the speeds of exactly these channels to what the links allow: first both speeds together, then a
 * tree's bw_intra up to twice bw_inter. Sets types, hops and latency from the legs. scratch: 2 * topo->nlinks
 * entries. @return the common speed, 0: a leg has no path.
 */
int32_t rondo_graph_fit(const struct rondo_topo *topo, struct rondo_graph *graph, int64_t *scratch);

/**
 * Lay channels without a search, by locality: devices under one cache, NUMA node and package stay together,
 * so each of these boundaries is crossed once each way, the least a ring can do. Used for all host endpoints,
 * and for GPUs when the search finds nothing. graph: allocated, with its id. inter: channels go through nets.
 * scratch: as above.
 */
rondo_status rondo_graph_lay_by_place(const struct rondo_topo *topo, struct rondo_graph *graph, int inter,
                                      int nchannels, int64_t *scratch);

/* Link loads are counted in 1/480 MB/s, which keeps costs in 1/60 and eighths integral. */
enum { RONDO_LINK_UNITS = 480 };

#endif
