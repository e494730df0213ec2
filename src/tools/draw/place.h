/*
 * Where everything in the picture of a machine stands. place.c places the boxes of nodes, wire.c the wires of
 * links, and track.c, below the machine, a track for each channel with its stops under their devices. All
 * computation is in integers and has no side effects: the same topo and graph give the same picture. A wide
 * machine is broken into rows.
 *
 * Fields are in pixels unless noted.
 */
#ifndef RONDO_TOOLS_DRAW_PLACE_H
#define RONDO_TOOLS_DRAW_PLACE_H

#include "tools/draw/draw.h"

enum {
    RONDO_PLACE_WIDTH = 1480,    /* break rows beyond this width, where possible */
    RONDO_PLACE_NARROW = 660,    /* the same, in pictures for narrow windows */
    RONDO_PLACE_LEVELS = 32,     /* most levels of lanes; further hops share the last one */
    RONDO_LINE_POINTS = 6,       /* most points of a line */
    RONDO_PLACE_STRIP_TOP = 28,  /* height of the names of columns */
    RONDO_PLACE_TITLE_MORE = 15, /* height of the third line in the title of a narrow picture */
};

/* Sizes of boxes and gaps: one set for machines that fit in a row, one for larger machines. */
struct rondo_place_size {
    int32_t gpu_w, host_w, net_w, bridge_w, head_w, fold_w; /* least widths */
    int32_t head_h, bridge_h, leaf_h, nic_h, bar_h, rail_h;
    int32_t gap;       /* between columns */
    int32_t drop;      /* between levels */
    int32_t pad;       /* inside a panel's frame */
    int32_t panel_gap; /* between panels */
    int32_t radius;    /* of a stop with two digits */
    int32_t step;      /* between levels of hops */
};

/* w == 0: not drawn. */
struct rondo_box {
    int32_t x, y, w, h, row;
};

/* The lines between a list of points, with rounded corners. */
struct rondo_points {
    int32_t npoints;
    int32_t x[RONDO_LINE_POINTS], y[RONDO_LINE_POINTS];
};

/* A NUMA node, or one part of it, with the devices below. `head` is its bar; that of the first part is the
 * node's own box. */
struct rondo_place_panel {
    int32_t cpu;              /* node; -1: devices without a NUMA node */
    int32_t part, nparts;     /* this part, and the number of parts */
    int32_t host;             /* number of the host */
    int32_t fold;             /* it stands for several hosts; -1: it does not */
    int32_t first, nchildren; /* nodes place->child[first ...] */
    int32_t levels;           /* levels of bridges */
    struct rondo_box frame, head;
};

struct rondo_place_row {
    int32_t first, npanels;
    int32_t levels;       /* levels of bridges */
    int32_t above, below; /* heights of the lanes for links between NUMA nodes and for direct NVLinks */
    int32_t bars;         /* height of the NVSwitch bars */
    int32_t head_y, leaf_y, lane_y, bar_y, strip_y;
};

/* A bar of an NVSwitch node. Each row with GPUs on it has one; the middle one is the node's box. */
struct rondo_place_bar {
    int32_t node, level;
    struct rondo_box box; /* row -1: the spine that joins the bars of all rows */
};

enum rondo_wire_shape {
    RONDO_WIRE_LINE,
    RONDO_WIRE_ARC /* from point 0 to point 1; both control points have the height y[2] */
};
struct rondo_wire {
    int32_t link;            /* the lower of the two directions; -1: part of a bus */
    int32_t type;            /* enum rondo_link_type */
    int32_t mbs;             /* MB/s of the faster direction */
    int32_t width;           /* tenths of a pixel */
    int32_t shape;           /* enum rondo_wire_shape */
    int32_t level, level_to; /* between rows: levels of the lanes at its ends */
    int32_t gutter;          /* between rows: level in the gutter */
    struct rondo_points line;
};

/* A hop of a channel, with an arrow at its end. */
enum rondo_hop_kind {
    RONDO_HOP_STRAIGHT, /* to the next stop on the right */
    RONDO_HOP_ABOVE,    /* further right, above the stops */
    RONDO_HOP_BELOW,    /* to the left, below the stops */
    RONDO_HOP_STUBS     /* to another row: a stub at each end, with the other's name */
};
struct rondo_hop {
    int32_t from, to; /* points */
    int32_t kind;     /* enum rondo_hop_kind */
    int32_t level;    /* level of the lane at its start */
    int32_t level_to; /* stubs: of the one at its end */
    struct rondo_points line;
    struct rondo_points end; /* stubs: the one at its end */
};

/* Equal hosts side by side that are drawn as one panel. Its box is that of its first device, which stands for
 * all. */
struct rondo_fold {
    int32_t first, nhosts; /* numbers of hosts */
    int32_t like;          /* a host that is drawn and equal */
    int32_t ndevs, nnets;
    int32_t point; /* the first device */
};

/* Tracks lie in strips: one strip below each row of the machine, with the stops under the devices. If many
 * tracks would tear the rows apart, the strips lie below the machine and have columns of their own. */
struct rondo_strip {
    int32_t y, height; /* without the names of the columns */
};
struct rondo_column {
    int32_t strip, x; /* strip -1: no channel stops there */
};

struct rondo_stop {
    int32_t point;
    int32_t position; /* in the channel's order, from 0; -1: a net */
    int32_t last;     /* folded devices: the last position, or -1: not all between; else as position */
    int32_t strip, x, y;
    int32_t half; /* of its width */
};

/* Channels with equal order and nets share a track. */
struct rondo_track {
    uint32_t channels; /* bit c: channel c */
    int32_t first_stop, nstops, first_hop, nhops;
    int32_t *above, *below; /* per strip: levels in use */
    int32_t *y;             /* per strip: y of the stops; -1: none there */
};

struct rondo_place {
    const struct rondo_topo *topo;
    const struct rondo_graph *graph; /* NULL: no channels */
    int32_t width, height;
    int32_t limit;       /* break rows beyond it */
    int32_t compact;     /* 1: the small sizes are used */
    int32_t left, right; /* of the panels */
    int32_t legend_y;
    int32_t *parent;       /* per node, in the tree that is drawn; -1: none */
    int32_t *child;        /* nodes grouped by parent, in document order; those without a parent last */
    int32_t *first_child;  /* per node, and one more for the nodes without a parent */
    int32_t *nchildren;    /* likewise */
    int32_t *panel_of;     /* per node; -1: none */
    struct rondo_box *box; /* per node */
    struct rondo_place_panel *panel;
    struct rondo_place_row *row;
    struct rondo_place_bar *bar;
    struct rondo_wire *wire;
    struct rondo_strip *strip;
    struct rondo_column *column; /* per device and net */
    int32_t *shown;              /* likewise: the point that is drawn for it, mostly itself */
    struct rondo_fold *fold;
    struct rondo_track *track;
    struct rondo_stop *stop;
    struct rondo_hop *hop;
    int32_t npanels, nrows, nhosts, nfolds, nbars, nwires, nstrips, ntracks, nstops, nhops;
    int32_t apart;  /* 1: the strips lie below the machine */
    int32_t radius; /* of a stop */
    int32_t bus;    /* 1: the links between NUMA nodes, which stand in several rows, are drawn as a bus */
    int32_t gutter; /* width in use right of the panels */
    const struct rondo_place_size *size;
};

/** Place everything. graph may be NULL. Release with rondo_place_destroy.
 * @param limit  break rows beyond this width: RONDO_PLACE_WIDTH or RONDO_PLACE_NARROW
 * @param all    draw each host; 0: fold equal ones */
rondo_status rondo_place_create(struct rondo_place **place, const struct rondo_topo *topo,
                                const struct rondo_graph *graph, int32_t limit, int all);
void rondo_place_destroy(struct rondo_place *place);

/* ---- the steps of rondo_place_create, in their order ---- */

/** Place the boxes in columns and rows. Their y follows once the heights of the lanes are known. */
rondo_status rondo_place_columns(struct rondo_place *place, int all);
/** Choose the hosts to fold. number[node]: a NUMA node's host. Needs place->parent. */
rondo_status rondo_folds_make(struct rondo_place *place, const int32_t *number, int nhosts, int all);
/** List the wires, and compute the heights of the lanes that they need. */
rondo_status rondo_wires_measure(struct rondo_place *place);
/** List the tracks, and compute the levels of hops and the heights of strips. */
rondo_status rondo_tracks_measure(struct rondo_place *place);
/** Turn heights into y: of the boxes, of the wires, of the hops. */
void rondo_place_heights(struct rondo_place *place);
void rondo_wires_place(struct rondo_place *place);
void rondo_tracks_place(struct rondo_place *place);

/** @return the width of a link in tenths of a pixel. Links without a bandwidth limit are thin. */
int32_t rondo_wire_width(int type, int32_t mbs);
/** @return the pixels that bridges leave free on the left of a GPU that has a C2C link beside its PCI
 * link. */
int32_t rondo_place_beside(const struct rondo_place *place, int node);

/** @return the fold that hides the host, or whose box is that of the node; -1: none. */
int rondo_fold_of_host(const struct rondo_place *place, int32_t host);
int rondo_fold_at(const struct rondo_place *place, int node);

/* ---- helpers of place.c, wire.c and track.c ---- */

/* Intervals on levels: those on one level do not overlap. */
struct rondo_levels {
    int32_t (*taken)[3]; /* from, to, level; must have room for all */
    int32_t n, count;    /* intervals; levels in use */
};
/** Put [from, to] on the lowest free level. @return the level. */
int32_t rondo_levels_take(struct rondo_levels *levels, int32_t from, int32_t to);

void rondo_points_set(struct rondo_points *line, int n, const int32_t xy[][2]);
/** Compare arrays of two or three numbers, for qsort. */
int rondo_place_compare2(const void *a, const void *b);
int rondo_place_compare3(const void *a, const void *b);

static inline int type_of(const struct rondo_place *place, int node) { return place->topo->node[node].type; }
static inline int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

#endif
