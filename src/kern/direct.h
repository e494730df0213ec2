/*
 * What ranks of one node know of one another's buffers, for the steps OPEN to CLOSE of a schedule
 * (coll/step.h, coll/twoshot.h). One a communicator and rank; works name it.
 *
 * OPEN: every rank posts on the mailbox where its buffers are: in a segment of its heap (base/heap.h), or at
 * an address of its process. With the first post of a segment goes how to find it; then all map it and post
 * whether they could. From what all have posted all conclude the same: buffers are reached by mapping, or by
 * the kernel (process_vm_readv, "CMA"), or this call is for another algorithm. What all could map, and what
 * somebody could not, is remembered in a table that is the same on all ranks.
 *
 * CMA is for ordinary memory of other processes, where the plan says that it pays (work.cma) and all ranks
 * can: tried with the first buffers that are posted for it.
 *
 * A program that has no such memory should not pay for being asked: kinds of calls (collective and power of
 * two of their size) that were for others again and again are asked about less and less often, by the same
 * count on all ranks.
 */
#ifndef RONDO_KERN_ZEROCOPY_H
#define RONDO_KERN_ZEROCOPY_H

#include "base/heap.h"
#include "layout/nest.h"
#include "base/status.h"

struct rondo_direct;
struct rondo_work;

/* Order of the values of RONDO_CMA. */
enum rondo_cma_mode { RONDO_CMA_AUTO, RONDO_CMA_NEVER, RONDO_CMA_ALWAYS };

struct rondo_direct_config {
    int nlocal, index;   /* ranks of the mailbox; this one */
    int one_process;     /* all of them are threads of this process: every address is everybody's */
    int serve;           /* segments are asked for over sockets */
    const int32_t *pids; /* per local rank; copied; NULL: without CMA */
    const struct rondo_nest
        *nest; /* the groups in which the ranks stand, which must outlive this; NULL: none */
};
rondo_status rondo_direct_open(struct rondo_direct **direct, const struct rondo_direct_config *config);
/** Does nobody ask for buffers in this call of such a work (which opens them)? 1 counts: it is for another
 * algorithm then, on all ranks. 0: the work finds out, and counts. */
int rondo_direct_declines(const struct rondo_work *w);
/** Unmaps what no other communicator uses. NULL is fine. */
void rondo_direct_close(struct rondo_direct *direct);

#endif
