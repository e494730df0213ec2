/*
 * A machine, its paths and its channels as text, JSON and pictures. Every function writes to a stream and
 * returns RONDO_SYSTEM_ERROR when the stream fails.
 */
#ifndef RONDO_TOOLS_DRAW_DRAW_H
#define RONDO_TOOLS_DRAW_DRAW_H

#include <stdio.h>
#include "topo/search.h"
#include "topo/topo.h"

struct rondo_draw {
    FILE *out;
    int color;     /* use terminal colors */
    int width;     /* columns of the terminal; 0: unlimited */
    int utf8;      /* use box-drawing characters */
    int bandwidth; /* show GB/s in the path matrix */
    int all;       /* do not fold equal hosts, points and channels */
};

/* ---- text ---- */

/** Print the machine as a tree: NUMA nodes, bridges, GPUs and NICs, with the bandwidth of their links. */
rondo_status rondo_draw_tree(const struct rondo_draw *draw, const struct rondo_topo *topo);
/** Print the matrix of path types between devices, nets and CPUs, and a legend. */
rondo_status rondo_draw_matrix(const struct rondo_draw *draw, const struct rondo_topo *topo);
/** Print each graph's bandwidth, found and possible, and the order of its channels. Equal channels share a
 * line ("channels 0-11"). */
rondo_status rondo_draw_graphs(const struct rondo_draw *draw, const struct rondo_topo *topo,
                               const struct rondo_graph graphs[RONDO_NUM_GRAPHS]);
/** Print the rings of a job of `nodes` such nodes. */
rondo_status rondo_draw_rings(const struct rondo_draw *draw, const struct rondo_topo *topo,
                              const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes);
/** Print the path between two points hop by hop, and why P2P, GPUDirect and PXN are used or not. */
rondo_status rondo_draw_why(const struct rondo_draw *draw, const struct rondo_topo *topo, int from, int to);
/** Print host names sorted and folded as resource managers do: "login,n[001-003,007]". */
rondo_status rondo_draw_hosts(FILE *out, const char *const *names, int n);

/* ---- JSON and pictures ---- */

/** Write everything as JSON; src/tools/JSON.md describes the fields. search_ms may be NULL. */
rondo_status rondo_draw_json(FILE *out, const struct rondo_topo *topo,
                             const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                             const double search_ms[RONDO_NUM_GRAPHS]);
/** Write an SVG picture of the machine and the channels of one graph. It needs no other file and follows the
 * viewer's light or dark mode. all: each host and each channel; 0: equal hosts side by side are drawn as
 * one, and of many devices only the first channel, as more could not be followed. */
rondo_status rondo_draw_svg(FILE *out, const struct rondo_topo *topo,
                            const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int graph, int all);
/** Write an HTML page with the pictures of all graphs, which switches graphs and channels on and off, and
 * zooms. A wide machine has a second picture of each, for narrow windows. It loads nothing from anywhere.
 * all: as above. */
rondo_status rondo_draw_html(FILE *out, const struct rondo_topo *topo,
                             const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int all);

#endif
