/*
 * Where everything of the picture stands: boxes of nodes, wires of links, and below the machine a strip with
 * a track for each channel, its stops under their devices. Pure and in integers: the same topo and graph give
 * the same picture. Wide machines are broken into rows.
 */
#ifndef RONDO_TOOLS_DRAW_PLACE_H
#define RONDO_TOOLS_DRAW_PLACE_H

#include "tools/draw/draw.h"

enum {
    RONDO_PLACE_WIDTH = 1480, /* rows are broken beyond this, where they can be */
    RONDO_PLACE_LEVELS = 32,  /* of hops that lie over each other; further ones share */
    RONDO_WIRE_POINTS = 6,
    RONDO_PLACE_STRIP_TOP = 28, /* names of the columns */
};

/* Pixels of a machine that fits, and of one that has to be drawn small. */
struct rondo_place_size {
    int32_t gpu_w, host_w, net_w, bridge_w, head_w; /* least widths */
    int32_t head_h, bridge_h, leaf_h, nic_h, bar_h, rail_h;
    int32_t gap, drop, pad,
        panel_gap;        /* between columns; between levels; around a panel's inside; between panels */
    int32_t radius, step; /* of a stop with two digits; between levels of hops */
};

/* w 0: not drawn. */
struct rondo_box {
    int32_t x, y, w, h, row;
};

/* The part of a NUMA node that stands in one place; `head` is its bar, the node's own box in the first part.
 * cpu -1: what no NUMA node leads to. */
struct rondo_place_panel {
    int32_t cpu, part, nparts; /* cpu: node */
    int32_t host;
    int32_t first, nchildren; /* nodes: place->child[first ..] */
    int32_t levels;           /* of bridges */
    struct rondo_box frame, head;
};

struct rondo_place_row {
    int32_t first, npanels;
    int32_t levels;       /* of bridges */
    int32_t above, below; /* heights of the lanes for links between NUMA nodes and for direct NVLinks */
    int32_t bars;         /* height */
    int32_t head_y, leaf_y, lane_y, bar_y, strip_y;
};

/* A bar of a node of NVSwitches: each row with its GPUs has one, the middle one is the node's box. */
struct rondo_place_bar {
    int32_t node, level;
    struct rondo_box box; /* row -1: the spine that joins the bars of all rows */
};

enum rondo_wire_shape {
    RONDO_WIRE_LINE, /* corners are rounded */
    RONDO_WIRE_ARC   /* from point 0 to point 1, both control points at the height y[2] */
};
struct rondo_wire {
    int32_t link;  /* the lower one of both directions; -1: a part of a bus */
    int32_t type;  /* enum rondo_link_type */
    int32_t mbs;   /* of the faster direction */
    int32_t width; /* tenths of a pixel */
    int32_t shape, npoints;
    int32_t level, level_to, gutter; /* as a hop's */
    int32_t x[RONDO_WIRE_POINTS], y[RONDO_WIRE_POINTS];
};

/* A hop of a channel; the arrow is at the end. To the next stop on the right straight, further over the
 * stops, to the left below them, to another row through the gutter. */
enum rondo_hop_kind { RONDO_HOP_STRAIGHT, RONDO_HOP_ABOVE, RONDO_HOP_BELOW, RONDO_HOP_ROWS };
struct rondo_hop {
    int32_t from, to;                /* points */
    int32_t kind;                    /* enum rondo_hop_kind */
    int32_t level, level_to, gutter; /* of the lanes it lies in: at its start, and where the rows differ at
                                        its end and between them */
    int32_t npoints;
    int32_t x[RONDO_WIRE_POINTS], y[RONDO_WIRE_POINTS];
};

/* Tracks lie in strips: one below each row of the machine, their stops under the devices; or, where many
 * tracks would tear the rows apart, below all of it with columns of their own. */
struct rondo_strip {
    int32_t y, height; /* without the names of its columns */
};
struct rondo_column {
    int32_t strip, x; /* strip -1: no channel stops there */
};

struct rondo_stop {
    int32_t point;
    int32_t position; /* in the order, from 0; -1: a net */
    int32_t strip, x, y;
};

/* Channels of equal order and nets are one track. */
struct rondo_track {
    uint32_t channels; /* bit c: channel c */
    int32_t first_stop, nstops, first_hop, nhops;
    int32_t *above, *below; /* per strip: levels in use */
    int32_t *y;             /* per strip: of the stops; -1: none there */
    int32_t gutter;         /* x where its levels begin */
};

struct rondo_place {
    const struct rondo_topo *topo;
    const struct rondo_graph *graph;
    int32_t width, height;
    int32_t compact;
    int32_t left, right; /* of the panels */
    int32_t legend_y;
    int32_t *parent;      /* per node, in the tree that is drawn; -1: none */
    int32_t *child;       /* grouped by parent, in document order; nodes without one last */
    int32_t *first_child; /* per node, and one more: the group of those without a parent */
    int32_t *nchildren;
    int32_t *panel_of;     /* per node; -1: none */
    struct rondo_box *box; /* per node */
    struct rondo_place_panel *panel;
    struct rondo_place_row *row;
    struct rondo_place_bar *bar;
    struct rondo_wire *wire;
    struct rondo_strip *strip;
    struct rondo_column *column; /* per device and net */
    struct rondo_track *track;
    struct rondo_stop *stop;
    struct rondo_hop *hop;
    int32_t npanels, nrows, nhosts, nbars, nwires, nstrips, ntracks, nstops, nhops;
    int32_t apart;  /* 1: strips are below the machine */
    int32_t radius; /* of a stop */
    int32_t bus;    /* 1: NUMA nodes of different rows are linked: their links are drawn as one bus */
    int32_t gutter; /* width in use, right of the panels */
    const struct rondo_place_size *size;
};

/** graph may be NULL: no strip. */
rondo_status rondo_place_create(struct rondo_place **place, const struct rondo_topo *topo,
                                const struct rondo_graph *graph);
void rondo_place_destroy(struct rondo_place *place);

/* ---- its parts, in the order they run ---- */

/** Boxes: columns and rows; y is only known when the lanes' heights are. */
rondo_status rondo_place_columns(struct rondo_place *place);
/** Wires, and the heights of lanes that they need. */
rondo_status rondo_wires_measure(struct rondo_place *place);
/** Tracks, levels of hops, heights of strips. */
rondo_status rondo_tracks_measure(struct rondo_place *place);
/** Heights to y in all boxes; then in wires and in hops. */
void rondo_place_heights(struct rondo_place *place);
void rondo_wires_place(struct rondo_place *place);
void rondo_tracks_place(struct rondo_place *place);

/** Tenths of a pixel of a link; those without a limit are thin. */
int32_t rondo_wire_width(int type, int32_t mbs);
/* Intervals that lie at levels, so that none overlap. */
struct rondo_levels {
    int32_t (*taken)[3]; /* from, to, level */
    int32_t n, count;    /* intervals; levels in use */
};
/** Put [from, to] at the lowest level that is free. taken must have room. @return the level. */
int32_t rondo_levels_take(struct rondo_levels *levels, int32_t from, int32_t to);
/** Of a GPU with a C2C link beside its PCI link: pixels on the left that bridges leave free for it. */
int32_t rondo_place_beside(const struct rondo_place *place, int node);

#endif
