/* Parts of an SVG picture, for pictures that stand alone and for HTML pages. */
#ifndef RONDO_TOOLS_DRAW_SVG_H
#define RONDO_TOOLS_DRAW_SVG_H

#include "tools/draw/draw.h"

struct rondo_svg_look {
    int graph;
    int all;           /* as rondo_draw_svg */
    int alone;         /* include the styles and the title */
    int32_t limit;     /* RONDO_PLACE_WIDTH or RONDO_PLACE_NARROW */
    const char *class; /* one more CSS class, "": none */
};

/** Write the picture of a graph as an <svg> element. */
rondo_status rondo_svg_put(FILE *out, const struct rondo_topo *topo,
                           const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                           const struct rondo_svg_look *look);
/** Write the CSS rules of a picture. */
void rondo_svg_style(FILE *out);
/** Write any text as valid XML: escaped, UTF-8, without control characters. */
void rondo_svg_text(FILE *out, const char *text);

/** The graph with the channels that are drawn. Shares the channels of @a graph. */
struct rondo_graph rondo_svg_channels(const struct rondo_graph *graph, int all);

#endif
