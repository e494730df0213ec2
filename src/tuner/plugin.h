/*
 * Tuner plugins for NCCL (RONDO_TUNER_PLUGIN, libnccl-tuner*.so), versions 2 to 6: they choose what carries a
 * call. A plugin gets the tuner's times of ring and tree, and changes them; Rondo's own algorithms keep their
 * times and compete with them.
 *
 * All ranks must come to the same choice, so a plugin must decide alike on all of them, as NCCL demands too,
 * and give an error for a call on all or on none: nothing checks that. Whether all ranks have the same
 * plugin, and its init succeeded on all, is agreed on in round "graphs" (init/phase_graphs.c): else no rank
 * uses it.
 */
#ifndef RONDO_TUNER_PLUGIN_H
#define RONDO_TUNER_PLUGIN_H

#include "tuner/tuner.h"

struct rondo_tuner_plugin;

/** Load the plugin at the first call in the process, and make a context for a communicator. *plugin NULL:
 * none is used. A plugin that cannot be loaded, or whose init fails, is left out with a warning; of
 * init there is one a process. Any thread. */
void rondo_tuner_plugin_open(struct rondo_tuner_plugin **plugin, uint64_t comm,
                             const struct rondo_layout *layout);
void rondo_tuner_plugin_close(struct rondo_tuner_plugin *plugin);
/** The same on ranks whose plugins have the same name and version; plugin NULL: 0. */
uint64_t rondo_tuner_plugin_identity(const struct rondo_tuner_plugin *plugin);
/** "NAME (v6, PATH)". */
const char *rondo_tuner_plugin_text(const struct rondo_tuner_plugin *plugin);

/** Let the plugin change a table of rondo_cost_table(): us, and nchannels where it asks for a number that is
 * possible. What cannot run stays out. @return 1: it changed something, 0: not, or it gave an error. */
int rondo_tuner_plugin_edit(struct rondo_tuner_plugin *plugin, const struct rondo_layout *layout,
                            enum rondo_coll coll, size_t bytes,
                            struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS]);
/** Bytes that a step moves at once, if the plugin says (version 6); else `chunk`. */
size_t rondo_tuner_plugin_chunk(struct rondo_tuner_plugin *plugin, enum rondo_coll coll, size_t bytes,
                                enum rondo_algo algo, enum rondo_proto proto, int nchannels, size_t chunk);

#endif
