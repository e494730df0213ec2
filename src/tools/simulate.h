/* A simulated job of equal nodes, and what starting it would cost. */
#ifndef RONDO_TOOLS_SIMULATE_H
#define RONDO_TOOLS_SIMULATE_H

#include <stdio.h>
#include "topo/stitch.h"

/* Input for stitching `nodes` copies of a machine. Do not move it: input points into it. A smaller
 * input.nranks, a multiple of the devices, makes a smaller job. */
struct rondo_job {
    struct rondo_stitch_input input;
    struct rondo_stitch_rank *rank;
    uint8_t *packed;
    const uint8_t *bytes;
    size_t nbytes;
};
/** graphs: from rondo_topo_search. Uses host trees unless every rank has a GPU. Leaves nothing allocated
 * on error. */
rondo_status rondo_job_create(struct rondo_job *job, const struct rondo_topo *topo,
                              const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes);
void rondo_job_release(struct rondo_job *job);

/**
 * Print what starting a job of `nodes` copies of a machine would cost, one line for 1,000, 2,000, 4,000 ...
 * ranks and one for all of them: time of the merge, time of one rank's view, memory, bytes moved by the
 * allgathers. Runs rondo_stitch_check on each job. graphs: from rondo_topo_search.
 */
rondo_status rondo_job_simulate(const struct rondo_topo *topo,
                                const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, FILE *out);

#endif
