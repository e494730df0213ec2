/* What split, shrink and phase "colors" share. */
#ifndef RONDO_INIT_CHILD_H
#define RONDO_INIT_CHILD_H

#include "comm/comm.h"
#include "net/bootstrap/bootstrap.h"

/* How often a parent has been shrunk to the same members with the same flags. */
struct rondo_shrinks {
    uint64_t members; /* hash of these and the flags */
    uint64_t n;
};
/** Hash what identifies a child's bootstrap: its kind, the serial of the call on the parent, and `part`,
 * which distinguishes several bootstraps of one call (bytes may be 0). */
uint64_t rondo_child_tag(uint64_t parent_hash, const char *kind, uint64_t serial, const void *part,
                         size_t bytes);
/** May a child take its ranks' records from the parent's, as far as this rank knows? On one node nothing in
 * them is the parent's alone: a communicator of several nodes has a secret, and a GPU may have changed. */
int rondo_child_may_inherit(const struct rondo_ctx *parent, const struct rondo_ctx *ctx);
/** Take the records of the parent's ranks ranks[0 .. n - 1], and an id that no other communicator has. All
 * members compute the same. */
rondo_status rondo_child_inherit(struct rondo_ctx *ctx, const struct rondo_ctx *parent, const int *ranks,
                                 int n, uint64_t tag);
/** May small rounds of a split of this parent stay in its segment? All its ranks return the same. */
int rondo_child_in_node(const struct rondo_ctx *parent);
/** Create a bootstrap for a child of the parent's ranks members[0 .. n - 1]; self is this rank's index.
 * over_ended: as for rondo_bootstrap_control. */
rondo_status rondo_child_bootstrap(struct rondo_ctx *parent, const int *members, int n, int self,
                                   uint64_t tag, int over_ended, struct rondo_bootstrap **bootstrap);

#endif
