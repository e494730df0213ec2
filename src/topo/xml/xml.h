/*
 * Files that describe machines and graphs. By libxml2, without network, entities, DTDs or XInclude; size,
 * depth, number of items and values are bounded (topo/machine.h). Each error names file, line, element,
 * attribute and what was expected there.
 */
#ifndef RONDO_TOPO_XML_XML_H
#define RONDO_TOPO_XML_XML_H

#include "topo/machine.h"
#include "topo/search.h"

enum { RONDO_XML_MAX_BYTES = 64 << 20 };

/**
 * Read a machine from a file: NCCL's topology format (root <system>) or hwloc's (root <topology>), told apart
 * by the root. machine is empty before, and on error after. Items are in document order; NVLinks between GPUs
 * are one item a direction, both directions there, with equal counts (the smaller one). hwloc's must be
 * UTF-8.
 */
rondo_status rondo_machine_read(struct rondo_machine *machine, const char *file);
/** The same from memory; @a name stands for the file in errors. */
rondo_status rondo_machine_parse(struct rondo_machine *machine, const char *text, size_t bytes,
                                 const char *name);
/** In NCCL's format, with every attribute spelled out, so that NCCL reads it as we do (short lines, no tab,
 * no declaration). Written to a temporary name and renamed. */
rondo_status rondo_machine_write(const struct rondo_machine *machine, const char *file);
rondo_status rondo_machine_text(const struct rondo_machine *machine, char **text); /* free() it */

/**
 * NCCL's graph format (root <graphs version="1">), GPUs by dev, nets by dev. Graphs that the file does not
 * have are left with nchannels 0. Order, ranks and nets are checked against topo: each device once a channel,
 * nets that exist.
 */
struct rondo_topo;
rondo_status rondo_graphs_read(struct rondo_graph graphs[RONDO_NUM_GRAPHS], const struct rondo_topo *topo,
                               const char *file);
rondo_status rondo_graphs_parse(struct rondo_graph graphs[RONDO_NUM_GRAPHS], const struct rondo_topo *topo,
                                const char *text, size_t bytes, const char *name);
rondo_status rondo_graphs_text(const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                               const struct rondo_topo *topo, char **text); /* free() it */
rondo_status rondo_graphs_write(const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                                const struct rondo_topo *topo, const char *file);

#endif
