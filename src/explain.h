/* What the tuner would choose, and why: its table for a machine that need not be this one. */
#ifndef RONDO_EXPLAIN_H
#define RONDO_EXPLAIN_H

#include <stdio.h>

#include "topo/search.h"

/**
 * Print the table of a collective on `nodes` such nodes: one size ("64M"): every algorithm and protocol, fastest first, with channels, time, bandwidths and what limits it, and why others
 * are not available; a range ("8:128M"): for each doubled size the choice and the next best. Sizes are those of the larger buffer of a rank.
 * RONDO_ALGO, RONDO_PROTO and the limits of channels count as they would in a job. graphs: as rondo_topo_search found them for topo.
 */
rondo_status rondo_explain(FILE *out, const struct rondo_topo *topo, const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes,
                           const char *coll, const char *sizes);

/** The layout (without channels) that the table is asked with: for tests. Nothing in it has to be released. */
struct rondo_layout;
rondo_status rondo_explain_layout(struct rondo_layout *layout, const struct rondo_topo *topo,
                                  const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes);

#endif
