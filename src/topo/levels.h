/* The levels of a machine that separate ranks on host memory: packages, NUMA nodes, shared caches. A rank
 * belongs to the group that contains all cores it may run on. */
#ifndef RONDO_TOPO_LEVELS_H
#define RONDO_TOPO_LEVELS_H

#include "layout/group_tree.h"
#include "topo/topo.h"

/**
 * Find the levels that put each rank in one group and divide the ranks usefully. order[topo->ndevs] is the
 * order of the devices; cut[topo->ndevs] gets the boundaries (layout/group_tree.h). A level counts only if
 * each of its groups is contiguous in the order. There are no levels if a rank has a GPU.
 */
rondo_status rondo_topo_levels(const struct rondo_topo *topo, const int16_t *order,
                               struct rondo_group_levels *levels, uint8_t *cut);

#endif
