/*
 * Pictures and text of a machine, its paths and its channels. Each writes to a stream; an error of the stream
 * is RONDO_SYSTEM_ERROR.
 */
#ifndef RONDO_TOOLS_DRAW_DRAW_H
#define RONDO_TOOLS_DRAW_DRAW_H

#include <stdio.h>
#include "topo/search.h"
#include "topo/topo.h"

struct rondo_draw {
    FILE *out;
    int color;     /* terminal colours */
    int width;     /* columns of the terminal; 0: unlimited */
    int utf8;      /* the terminal shows box drawing characters */
    int bandwidth; /* matrices show GB/s, too */
    int all;       /* nothing is folded */
};

/** The machine as a tree: NUMA nodes, bridges, GPUs, NICs, with links' kind, rate and bandwidth. */
rondo_status rondo_draw_tree(const struct rondo_draw *draw, const struct rondo_topo *topo);
/** Matrix of path types and bandwidths between devices, nets and CPUs, with a legend of the types that occur.
 */
rondo_status rondo_draw_matrix(const struct rondo_draw *draw, const struct rondo_topo *topo);
/** The graphs: a line each with found / bound and what limits, then each channel's order; equal channels
 * folded ("channels 0-11"). */
rondo_status rondo_draw_graphs(const struct rondo_draw *draw, const struct rondo_topo *topo,
                               const struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
/** A path hop by hop, and why P2P, GPUDirect or PXN is or is not used. */
rondo_status rondo_draw_why(const struct rondo_draw *draw, const struct rondo_topo *topo, int from, int to);
/** Everything for programs; the schema is in src/tools/JSON.md. */
rondo_status rondo_draw_json(FILE *out, const struct rondo_topo *topo,
                             const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                             const double search_ms[RONDO_NUM_GRAPHS]);
/** Names of hosts, sorted and folded as resource managers write them: "login,n[001-003,007]". */
rondo_status rondo_draw_hosts(FILE *out, const char *const *names, int n);
/** A picture: sockets, switches, devices, nets; links as wide as their bandwidth; the channels of one graph
 * over it. Stands alone; readable in light and dark. */
rondo_status rondo_draw_svg(FILE *out, const struct rondo_topo *topo,
                            const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int graph);
/** The picture in a page where graphs and channels are switched on and off; nothing is loaded from anywhere.
 */
rondo_status rondo_draw_html(FILE *out, const struct rondo_topo *topo,
                             const struct rondo_graph graphs[RONDO_NUM_GRAPHS]);

#endif
