/* Options of rondo-explain, and of the program that measures for it. */
#ifndef RONDO_TOOLS_EXPLAIN_OPTIONS_H
#define RONDO_TOOLS_EXPLAIN_OPTIONS_H

#include "tools/options.h"

/* X(ctx, NAME, "--option", arguments, least, most, "group", "help"): least..most arguments */
#define EXPLAIN_OPTION_TABLE(X, ctx)                                                                       \
    X(ctx, CHANNELS, "--channels", "", 0, 0, "What to show",                                               \
      "of one size every number of channels, not only the best")                                           \
    X(ctx, JSON, "--json", "", 0, 0, "", "everything, for programs")                                       \
    X(ctx, FILE, "--file", "FILE", 1, 1, "What machine (default: this one)",                               \
      "NCCL's topology XML or hwloc's XML; RONDO_TOPO_FILE and NCCL_TOPO_FILE are the default")            \
    X(ctx, RANKS, "--ranks", "LIST", 1, 1, "",                                                             \
      "the ranks of a node: GPUs \"0,2,5-7\", or \"n4\": 4 ranks in host memory")                          \
    X(ctx, NODES, "--nodes", "N", 1, 1, "", "a job of N such nodes")                                       \
    X(ctx, MEASURE, "--measure", "", 0, 0, "Measuring (under mpirun or srun)",                             \
      "run everything that there is to choose from with the ranks of this job, and show the times beside " \
      "the predicted ones")                                                                                \
    X(ctx, OUTPUT, "--output", "FILE", 1, 1, "",                                                           \
      "write the times here, for RONDO_TUNE_FILE (default: rondo.tune); a file that is there is replaced") \
    X(ctx, FACTOR, "--factor", "N", 1, 1, "", "from one measured size to the next (default: 4)")           \
    X(ctx, HELP, "--help", "", 0, 0, "Other", "this text")                                                 \
    X(ctx, VERSION, "--version", "", 0, 0, "", "version of the library")

#define EXPLAIN_OPTION_ID_(ctx, NAME, ...) EXPLAIN_##NAME,
enum explain_option { EXPLAIN_OPTION_TABLE(EXPLAIN_OPTION_ID_, ) EXPLAIN_NUM_OPTIONS };
#undef EXPLAIN_OPTION_ID_

extern const struct tool_options explain_options;

#endif
