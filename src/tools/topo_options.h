/* Options of rondo-topo. */
#ifndef RONDO_TOOLS_TOPO_OPTIONS_H
#define RONDO_TOOLS_TOPO_OPTIONS_H

#include "tools/options.h"

/* X(ctx, NAME, "--option", arguments, least, most, "group", "help"): least..most arguments */
#define TOPO_OPTION_TABLE(X, ctx)                                                                            \
    X(ctx, FILE, "--file", "FILE", 1, 1, "What machine (default: this one)",                                 \
      "NCCL's topology XML or hwloc's XML; RONDO_TOPO_FILE and NCCL_TOPO_FILE are the default")              \
    X(ctx, RANKS, "--ranks", "LIST", 1, 1, "",                                                               \
      "the ranks of a node: GPUs \"0,2,5-7\", or \"n4\": 4 ranks in host memory")                            \
    X(ctx, NODES, "--nodes", "N", 1, 1, "", "a job of N such nodes; shows the rings over them, too")         \
    X(ctx, GRAPH_FILE, "--graph-file", "FILE", 1, 1, "",                                                     \
      "take the channels of this file (NCCL's graph XML) instead of searching")                              \
    X(ctx, GRAPH, "--graph", "ring|tree", 1, 1,                                                              \
      "What to show (default: tree of the machine, paths, channels)", "only this graph")                     \
    X(ctx, BANDWIDTH, "--bandwidth", "", 0, 0, "", "GB/s in the matrix of paths")                            \
    X(ctx, ALL, "--all", "", 0, 0, "", "fold nothing: every host, point and channel")                        \
    X(ctx, WHY, "--why", "A B", 2, 2, "",                                                                    \
      "the path from A to B hop by hop, and why P2P, GPUDirect or PXN is used or not; A and B: GPU0, NET1, " \
      "mlx5_1, CPU0 or a bus id")                                                                            \
    X(ctx, SIMULATE, "--simulate", "N", 1, 1, "",                                                            \
      "what starting a job of N such nodes costs: time and memory of joining their channels")                \
    X(ctx, EXPLAIN, "--explain", "COLL SIZE", 2, 2, "",                                                      \
      "what the tuner would choose for all_reduce, ... of SIZE bytes (64M), and all else it looked at; a "   \
      "range (8:128M): the choices")                                                                         \
    X(ctx, COMPARE, "--compare", "A B", 2, 2, "", "what differs between two files; exit status as diff's")   \
    X(ctx, JSON, "--json", "[FILE]", 0, 1, "Formats (- or no FILE: standard output)",                        \
      "everything, for programs")                                                                            \
    X(ctx, SVG, "--svg", "FILE", 1, 1, "", "a picture with the ring, or the graph of --graph")               \
    X(ctx, HTML, "--html", "FILE", 1, 1, "", "a page where graphs and channels are switched on and off")     \
    X(ctx, DUMP_XML, "--dump-xml", "[FILE]", 0, 1, "", "the machine in NCCL's format")                       \
    X(ctx, DUMP_GRAPH, "--dump-graph", "[FILE]", 0, 1, "", "the channels in NCCL's graph format")            \
    X(ctx, COLOR, "--color", "auto|always|never", 1, 1, "Other",                                             \
      "colours; auto: on a terminal without NO_COLOR")                                                       \
    X(ctx, WIDTH, "--width", "COLUMNS", 1, 1, "", "columns of the text; 0: lines are never broken")          \
    X(ctx, HELP, "--help", "", 0, 0, "", "this text")                                                        \
    X(ctx, VERSION, "--version", "", 0, 0, "", "version of the library")

#define TOPO_OPTION_ID_(ctx, NAME, ...) TOPO_##NAME,
enum topo_option { TOPO_OPTION_TABLE(TOPO_OPTION_ID_, ) TOPO_NUM_OPTIONS };
#undef TOPO_OPTION_ID_

extern const struct tool_options topo_options;

#endif
