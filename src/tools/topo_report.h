/* A machine with its paths and channels, and the report about it: what rondo-topo and rondo-topo-mpi share.
 */
#ifndef RONDO_TOOLS_TOPO_REPORT_H
#define RONDO_TOOLS_TOPO_REPORT_H

#include "tools/draw/draw.h"

enum { REPORT_MAX_NODES = 65536, REPORT_MAX_RANKS = 1 << 20 };

struct report_request {
    const char *ranks;      /* as rondo_topo_ranks takes it; NULL: all GPUs */
    const char *graph_file; /* NULL: search */
    int nodes;              /* of the job */
    int graph;              /* only this one; -1: all */
};

struct report {
    struct rondo_machine machine;
    struct rondo_topo *topo;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    double search_ms[RONDO_NUM_GRAPHS]; /* of the search's time, each graph's share of the steps */
};

/** Paths and channels of report->machine, which is filled before. */
rondo_status report_compute(struct report *report, const struct report_request *request);
void report_release(struct report *report);
/** How the terminal wants it: colours, width, characters. color: "auto", "always", "never"; NULL: auto. width
 * -1: the terminal's. @return 0, or -1: no such colour. */
int report_terminal(struct rondo_draw *draw, FILE *out, const char *color, int width);
/** The report in text: machine, paths, channels, and with several nodes the rings over them. */
rondo_status report_print(const struct rondo_draw *draw, const struct report *report,
                          const struct report_request *request);

#endif
