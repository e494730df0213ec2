/* All schedules that the rows of coll.def name (coll/algo.c, kern/cuda/block.h). */
#ifndef RONDO_COLL_FLOWS_H
#define RONDO_COLL_FLOWS_H

#include "coll/doubling.h"
#include "coll/hierarchical.h"
#include "coll/oneshot.h"
#include "coll/ordered.h"
#include "coll/p2p.h"
#include "coll/ring.h"
#include "coll/tree.h"
#include "coll/twoshot.h"

/* `none`: flow 1 of an algorithm with one flow. */
RONDO_FN uint32_t rondo_none_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 0;
}

RONDO_FN struct rondo_step rondo_none_step(const struct rondo_seat *seat, uint32_t k)
{
    (void)seat, (void)k;
    return rondo_step_none();
}

#endif
