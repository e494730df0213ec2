/* Parts of an SVG picture, for pictures that stand alone and for HTML pages. */
#ifndef RONDO_TOOLS_DRAW_SVG_H
#define RONDO_TOOLS_DRAW_SVG_H

#include "tools/draw/draw.h"

/** Write the picture of a graph as an <svg> element. alone: include the styles and the title. */
rondo_status rondo_svg_put(FILE *out, const struct rondo_topo *topo,
                           const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int graph, int most, int alone);
/** Write the CSS rules of a picture. */
void rondo_svg_style(FILE *out);
/** Write any text as valid XML: escaped, UTF-8, without control characters. */
void rondo_svg_text(FILE *out, const char *text);

/** The graph with at most `most` of its channels; 0: all. Shares the channels of @a graph. */
struct rondo_graph rondo_draw_first_channels(const struct rondo_graph *graph, int most);

#endif
