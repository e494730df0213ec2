/* Reports that a rank writes by itself: rondo-doctor's, about the ranks of its host. And rondo_comm_dump. */
#ifndef RONDO_CALL_REPORT_H
#define RONDO_CALL_REPORT_H

#include "call/task.h"

/** Append a report to RONDO_REPORT, and write RONDO_DUMP, as these parameters say. why: begins the report, as
 * "rank 3 waited 30.0 s". One at a time in a process; takes milliseconds, and signals and stops nobody. */
void rondo_report(const char *why);
/** The same once a communicator and node: the first rank that comes does it, on the node of rank 0 and where
 * a rank is late (late_here). */
void rondo_report_late(struct rondo_ctx *ctx, int late_here, const char *why);
/** A call has failed on this rank, because of it or another one: write RONDO_DUMP, once a communicator and
 * node. */
void rondo_report_failed(struct rondo_ctx *ctx);
/** Write a report when SIGUSR1 comes, unless the program has a handler, ignores it, or wants no report. Any
 * thread; the first call counts. */
void rondo_report_on_signal(void);

#endif
