/* Communicators that come from others. */
#ifndef RONDO_INIT_CHILD_H
#define RONDO_INIT_CHILD_H

#include "comm/comm.h"
#include "net/bootstrap/bootstrap.h"

/* Of a parent: children with the same members. */
struct rondo_shrinks {
    uint64_t members; /* their hash */
    uint64_t n;
};
/** Of one bootstrap of a child: the kind of bootstrap, the serial of the call on the parent, and what tells
 * several of one call apart (bytes may be 0). */
uint64_t rondo_child_tag(uint64_t parent_hash, const char *kind, uint64_t serial, const void *part,
                         size_t bytes);
/** A bootstrap for a child of `parent` over its ranks members[0 .. n - 1]; self: this rank's place among
 * them. */
rondo_status rondo_child_bootstrap(struct rondo_ctx *parent, const int *members, int n, int self,
                                   uint64_t tag, struct rondo_bootstrap **bootstrap);

#endif
