/* A machine with its paths and channels, and the text report about it: shared by rondo-topo, rondo-topo-mpi
 * and rondo-explain. */
#ifndef RONDO_TOOLS_REPORT_H
#define RONDO_TOOLS_REPORT_H

#include "tools/draw/draw.h"

enum { REPORT_MAX_NODES = 65536 };

struct report_request {
    const char *ranks;      /* list for rondo_topo_ranks; NULL: all GPUs, or one on each core */
    const char *graph_file; /* NULL: search for channels */
    int nodes;              /* number of nodes of the job */
    int graph;              /* show only this graph; -1: all */
};

/* Zero it, fill `machine`, then call report_compute. */
struct report {
    struct rondo_machine machine;
    int here; /* it is this machine, not one of a file */
    struct rondo_topo *topo;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    double search_ms[RONDO_NUM_GRAPHS]; /* time of the search, shared out by steps */
};

/** Read the machine: a file, or NULL: this one, unless a parameter names a file. */
rondo_status report_read(struct report *report, const char *file);
/** Compute the paths and channels of report->machine. */
rondo_status report_compute(struct report *report, const struct report_request *request);
void report_release(struct report *report);
/** Set colors, width and characters for a terminal. color: "auto", "always", "never" or NULL (auto). width:
 * -1 for the terminal's. @return 0, or -1 if `color` is none of these. */
int report_terminal(struct rondo_draw *draw, FILE *out, const char *color, int width);
/** Print the machine, its paths and its channels, and for several nodes the rings across them. */
rondo_status report_print(const struct rondo_draw *draw, const struct report *report,
                          const struct report_request *request);

#endif
