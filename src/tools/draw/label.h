/* What the picture says: labels as long as they fit, and the facts that a box, a link or a channel shows when
 * it is pointed at. */
#ifndef RONDO_TOOLS_DRAW_LABEL_H
#define RONDO_TOOLS_DRAW_LABEL_H

#include "tools/draw/place.h"

enum { RONDO_LABEL = 96, RONDO_FACTS = 1024 };

/** "GPU 3", "NET 1", "PCI 4b:00.0". @return text. */
const char *rondo_label_name(const struct rondo_topo *topo, int node, char text[RONDO_LABEL]);
/** Line 0, 1, 2 of a node's box in at most `columns` characters; "": nothing fits, or there is no such line.
 * @return text. */
const char *rondo_label_line(const struct rondo_topo *topo, int node, int line, int columns,
                             char text[RONDO_LABEL]);
/** Bytes of the valid UTF-8 character here that XML may have; 0: none. */
int rondo_label_character(const char *bytes);
/** The text cut to `columns` characters, with an ellipsis when it was longer. @return out. */
const char *rondo_label_cut(const char *text, int columns, char *out, size_t bytes);
/** The same, but the end is kept. @return out. */
const char *rondo_label_tail(const char *text, int columns, char *out, size_t bytes);
/** Columns of text of this size (px) that fit in `width` pixels. */
int rondo_label_columns(int32_t width, int size);

/** Lines of facts. @return text. */
const char *rondo_facts_node(const struct rondo_topo *topo, int node, char text[RONDO_FACTS]);
const char *rondo_facts_wire(const struct rondo_place *place, const struct rondo_wire *wire,
                             char text[RONDO_FACTS]);
const char *rondo_facts_track(const struct rondo_place *place, const struct rondo_track *track,
                              char text[RONDO_FACTS]);
/** "channels 0-11". @return text. */
const char *rondo_label_track(const struct rondo_track *track, char text[RONDO_LABEL]);
/** The title: where the machine comes from, without folders; and the lines under it: the machine, the graph.
 * @return text. */
const char *rondo_label_source(const struct rondo_topo *topo);
const char *rondo_label_machine(const struct rondo_topo *topo, char text[RONDO_FACTS]);
const char *rondo_label_graph(const struct rondo_topo *topo, const struct rondo_graph *graph,
                              char text[RONDO_FACTS]);

/** MB/s that the channels of the graph put on each link; load: topo->nlinks. */
void rondo_graph_load(const struct rondo_topo *topo, const struct rondo_graph *graph, int64_t *load);

#endif
