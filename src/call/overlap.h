/* Send and receive buffers of a call that overlap. */
#ifndef RONDO_CALL_OVERLAP_H
#define RONDO_CALL_OVERLAP_H

#include "call/task.h"

/**
 * Which distances between receive and send buffer a call with one count refuses.
 *
 * @param needed  of rondo_task_needs: nothing is refused unless this rank has both buffers
 */
struct rondo_overlap rondo_task_overlap(const struct rondo_task *task, unsigned needed);

/** Do the buffers overlap without being in place? */
static inline int rondo_overlaps(const struct rondo_overlap *o, const void *send, const void *recv)
{
    uintptr_t distance = (uintptr_t)recv - (uintptr_t)send;
    return distance + o->before < o->span && distance != o->in_place[0] && distance != o->in_place[1];
}

/** Does all_to_allv receive into the blocks that it sends: one buffer, equal counts and displacements? */
int rondo_task_swaps_blocks(const struct rondo_task *task);

/** RONDO_INVALID_ARGUMENT, with a sentence, for buffers that overlap; calls with counts per rank too. */
rondo_status rondo_task_check_overlap(const struct rondo_task *task, unsigned needed);

#endif
