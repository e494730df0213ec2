/*
 * Direct access: ranks of a node read and write one another's user buffers in the steps from OPEN to CLOSE of
 * a schedule (coll/step.h, coll/twoshot.h). Each rank of a communicator has one `struct rondo_direct`.
 *
 * OPEN: every rank publishes where its buffers are: in a segment of its heap (base/heap.h), or at an address
 * of its process. The first message that names a segment says how to find it; then all ranks map it and
 * publish whether that worked. All ranks draw the same conclusion from the same messages: buffers are mapped,
 * or the kernel copies (process_vm_readv, "CMA"), or this call uses the fallback. A table, equal on all
 * ranks, remembers which segments all could map and which some rank could not.
 *
 * CMA serves ordinary memory of other processes if the plan finds it worth while (work.cma) and all ranks can
 * use it, which the first such call finds out.
 *
 * Programs whose memory cannot be accessed should not pay for asking. Kinds of calls (collective and power of
 * two of the size) that were refused repeatedly are asked less and less often, by the same count on all
 * ranks.
 */
#ifndef RONDO_KERN_DIRECT_H
#define RONDO_KERN_DIRECT_H

#include "base/heap.h"
#include "layout/nest.h"
#include "base/status.h"

struct rondo_direct;
struct rondo_work;

struct rondo_direct_config {
    int nlocal, index;             /* ranks of the mailbox, and this one's index */
    int one_process;               /* the ranks are threads of this process: all addresses are valid here */
    int serve;                     /* share segments over sockets */
    const int32_t *pids;           /* per local rank; copied; NULL: without CMA */
    const struct rondo_nest *nest; /* groups for hierarchical algorithms; must outlive this; NULL: none */
};
rondo_status rondo_direct_open(struct rondo_direct **direct, const struct rondo_direct_config *config);
/** Skip direct access for this call? Call it last: it advances a counter. @return 1: yes, on all ranks; 0:
 * run the work, which finds out and counts. */
int rondo_direct_declines(const struct rondo_work *w);
/** After a run with verdict RONDO_DIRECT: did the kernel copy? @return 0: buffers are mapped. in_place:
 * becomes
 * 1 if the call was in place on all ranks. */
int rondo_direct_by_kernel(const struct rondo_direct *direct, int *in_place);
/** Unmaps segments that no other communicator uses. NULL is fine. */
void rondo_direct_close(struct rondo_direct *direct);

#endif
