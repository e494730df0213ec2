/* What profiler plugins see of connections that a proxy carries: a ProxyStep for each slice, and the net
 * device's events in it. Who moves the net tells how far each connection is (rondo_net_watch); this compares
 * that with the slices that the runs are to pass on it, in their order.
 *
 * The caller holds the net's lock, on a GPU; functions that say so want that of the profile, too. */
#ifndef RONDO_CALL_PROFILE_NET_H
#define RONDO_CALL_PROFILE_NET_H

#include "comm/comm.h"

/** Watch the communicator's connections from now on. */
void rondo_profile_net_watch(struct rondo_ctx *ctx);
/** A run is to pass these slices on a connection; run NULL: nobody wants them. The profile's lock is held. */
rondo_status rondo_profile_net_add(struct rondo_ctx *ctx, struct rondo_link *link, struct rondo_prof_run *run,
                                   const struct rondo_prof_conn *conn);
/** No more of these events; those that began end with their runs. The profile's lock is held. */
void rondo_profile_net_forget(struct rondo_ctx *ctx);
/** Host memory: a run begins, with these connections (rondo_exec_owner.conns_begin). */
void rondo_profile_net_begin(void *ctx, const struct rondo_run *run, const struct rondo_prof_conn *conns,
                             int n);
/** It has ended, or is given up (rondo_exec_owner.conns_end). */
void rondo_profile_net_end(void *ctx, const struct rondo_run *run, int given_up);

#endif
