/*
 * The creation of one rank of many: the real phases of init/ run for it, until the first that needs another
 * process. The other ranks' records are made up from its own, so that each phase has all of them to check and
 * to lay out.
 */
#ifndef RONDO_SIM_CREATION_SIM_H
#define RONDO_SIM_CREATION_SIM_H

#include <stddef.h>

#include "base/status.h"

struct creation_sim_result {
    double compute_ms;     /* CPU time of the rank's own code, until all graphs, rings and trees are made */
    double peak_mib;       /* the most memory that the process had more than before */
    size_t sent, received; /* bytes of records */
    int rounds;
    const char *stopped; /* the round that needs another process */
};

/** nlocal ranks a node. */
rondo_status creation_sim_run(int nranks, int nlocal, struct creation_sim_result *result);

#endif
