/*
 * Files that describe machines and graphs. libxml2 parses them, without network access, entities, DTDs or
 * XInclude. Size, depth, number of items and values are bounded (topo/machine.h). Errors name file, line,
 * element, attribute, and what was expected.
 */
#ifndef RONDO_TOPO_XML_XML_H
#define RONDO_TOPO_XML_XML_H

#include "topo/machine.h"
#include "topo/search.h"

enum { RONDO_XML_MAX_BYTES = 64 << 20 };

/**
 * Read a machine from a file in NCCL's topology format (root <system>) or hwloc's, which must be UTF-8 (root
 * <topology>). *machine must be empty, and is empty again on error. Items come in document order. NVLinks
 * between GPUs are one item per direction, always in both directions, with equal counts (the smaller one).
 */
rondo_status rondo_machine_read(struct rondo_machine *machine, const char *file);
/** Read a machine from memory; errors call it @a name. */
rondo_status rondo_machine_parse(struct rondo_machine *machine, const char *text, size_t bytes,
                                 const char *name);
/** Write a machine in NCCL's format with every attribute spelled out, so that NCCL reads it as Rondo does
 * (short lines, no tabs, no declaration). Writes a temporary file and renames it. */
rondo_status rondo_machine_write(const struct rondo_machine *machine, const char *file);
rondo_status rondo_machine_text(const struct rondo_machine *machine, char **text); /* free() it */

/**
 * NCCL's graph format (root <graphs version="1">), which identifies GPUs and nets by dev. Graphs missing from
 * the file get nchannels 0. Devices, ranks and nets are checked against topo: each device once per channel,
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
