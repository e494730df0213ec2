/*
 * What stands between the ranks of a node on host memory: packages, NUMA nodes, caches that cores share. A
 * rank is in a group that holds all cores it may run on.
 */
#ifndef RONDO_TOPO_LEVELS_H
#define RONDO_TOPO_LEVELS_H

#include "layout/group_tree.h"
#include "topo/topo.h"

/**
 * The levels of the machine on which each rank is in one group and which divide the ranks usefully, for
 * devices in this order: order[topo->ndevs]; cut[topo->ndevs] as layout/group_tree.h says. A level whose
 * groups do not stand together in the order is none. A rank with a GPU: there are no levels.
 */
rondo_status rondo_topo_levels(const struct rondo_topo *topo, const int16_t *order,
                               struct rondo_group_levels *levels, uint8_t *cut);

#endif
