/* The words in a picture: labels, cut to fit their boxes, and the details shown for a box, link or
 * channel. */
#ifndef RONDO_TOOLS_DRAW_LABEL_H
#define RONDO_TOOLS_DRAW_LABEL_H

#include "tools/draw/place.h"

enum { RONDO_LABEL = 96, RONDO_FACTS = 1024 };

/* Functions that fill `text` return it. */

/* ---- labels ---- */

/** "GPU 3", "NET 1", "PCI 4b:00.0" */
const char *rondo_label_name(const struct rondo_topo *topo, int node, char text[RONDO_LABEL]);
/** Line 0, 1 or 2 in a node's box, in at most `columns` characters; "": there is no such line, or none
 * fits. */
const char *rondo_label_line(const struct rondo_topo *topo, int node, int line, int columns,
                             char text[RONDO_LABEL]);
/** "channels 0-11" */
const char *rondo_label_track(const struct rondo_track *track, char text[RONDO_LABEL]);
/** The title: the machine's source, without folders. */
const char *rondo_label_source(const struct rondo_topo *topo);
/** The lines under the title: the machine, the graph. */
const char *rondo_label_machine(const struct rondo_topo *topo, char text[RONDO_FACTS]);
const char *rondo_label_graph(const struct rondo_topo *topo, const struct rondo_graph *graph,
                              char text[RONDO_FACTS]);

/** @return the length of the UTF-8 character here; 0: it is invalid, or not allowed in XML. */
int rondo_label_character(const char *bytes);
/** Cut text to `columns` characters, with an ellipsis if it is longer. @return out. */
const char *rondo_label_cut(const char *text, int columns, char *out, size_t bytes);
/** The same, but leave out the middle. @return out. */
const char *rondo_label_middle(const char *text, int columns, char *out, size_t bytes);
/** @return how many characters of this font size (px) fit in `width` pixels. */
int rondo_label_columns(int32_t width, int size);

/* ---- details, one per line ---- */

const char *rondo_facts_node(const struct rondo_topo *topo, int node, char text[RONDO_FACTS]);
const char *rondo_facts_fold(const struct rondo_place *place, const struct rondo_fold *fold,
                             char text[RONDO_LABEL]);
const char *rondo_facts_wire(const struct rondo_place *place, const struct rondo_wire *wire,
                             char text[RONDO_FACTS]);
const char *rondo_facts_track(const struct rondo_place *place, const struct rondo_track *track,
                              char text[RONDO_FACTS]);

/** Compute the MB/s that a graph's channels put on each link: load[topo->nlinks]. */
void rondo_graph_load(const struct rondo_topo *topo, const struct rondo_graph *graph, int64_t *load);

#endif
