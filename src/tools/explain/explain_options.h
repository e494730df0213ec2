/* Options of rondo-explain and rondo-explain-mpi. */
#ifndef RONDO_TOOLS_EXPLAIN_OPTIONS_H
#define RONDO_TOOLS_EXPLAIN_OPTIONS_H

#include "tools/tool.h"

/* X(ctx, NAME, "--option", arguments, least, most, "group", "help"): takes least to most arguments */
#define EXPLAIN_OPTION_TABLE(X, ctx)                                                                         \
    X(ctx, CHANNELS, "--channels", "", 0, 0, "Output",                                                       \
      "for a single SIZE, show every number of channels, not only the best")                                 \
    X(ctx, JSON, "--json", "", 0, 0, "", "print JSON (described in src/tools/JSON.md)")                      \
    X(ctx, FILE, "--file", "FILE", 1, 1, "Machine (default: this one)",                                      \
      "read the machine from FILE, NCCL's topology XML or hwloc's XML (default: RONDO_TOPO_FILE or "         \
      "NCCL_TOPO_FILE)")                                                                                     \
    X(ctx, RANKS, "--ranks", "LIST", 1, 1, "",                                                               \
      "the ranks of a node: GPUs (\"0,2,5-7\"), or ranks in host memory (\"n4\": four); default: all GPUs, " \
      "else "                                                                                                \
      "one a core")                                                                                          \
    X(ctx, NODES, "--nodes", "N", 1, 1, "", "assume a job of N such nodes")                                  \
    X(ctx, MEASURE, "--measure", "", 0, 0, "Measuring (under mpirun or srun)",                               \
      "run every choice with the ranks of this job, show measured and predicted times, and write a tuning "  \
      "file; takes about a minute")                                                                          \
    X(ctx, OUTPUT, "--output", "FILE", 1, 1, "",                                                             \
      "write the measured times to FILE, for RONDO_TUNE_FILE (default: rondo.tune, overwritten)")            \
    X(ctx, FACTOR, "--factor", "N", 1, 1, "", "multiply each size by N to get the next (default: 4)")        \
    X(ctx, HELP, "-h, --help", "", 0, 0, "Other", "show this help and exit")                                 \
    X(ctx, VERSION, "--version", "", 0, 0, "", "show the library's version and exit")

#define EXPLAIN_OPTION_ID_(ctx, NAME, ...) EXPLAIN_##NAME,
enum explain_option { EXPLAIN_OPTION_TABLE(EXPLAIN_OPTION_ID_, ) EXPLAIN_NUM_OPTIONS };
#undef EXPLAIN_OPTION_ID_

extern const struct tool_options explain_options;

#endif
