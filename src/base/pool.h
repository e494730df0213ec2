/*
 * Parts of shared memory for communicators, cut from a few large segments of this process: a part costs no
 * descriptor, and no mapping in a process that has the segment mapped already.
 *
 * Segments are sparse memfds, each twice as large as the one before. One ends with its last part that this
 * process has open, its own or another's. A part is a struct rondo_shm like a segment's: rondo_shm_reserve,
 * _open, _unlink and _close serve both. Its memory goes to another part only when every process that opened
 * it has closed it, so that nobody writes into a stranger's. Parts that a dead process had open are not used
 * again before the segment ends.
 *
 * RONDO_SHM_MODE=file has no pool: names of files are removed once all peers have mapped them, and a peer of
 * a later communicator would not find the segment. A part is then a segment of its own.
 */
#ifndef RONDO_BASE_POOL_H
#define RONDO_BASE_POOL_H

#include "base/shm.h"

/** Take a part of @a size bytes (rounded up to pages), zeroed, of which the first @a reserved bytes are
 * reserved. Close it with rondo_shm_close. Any thread. */
rondo_status rondo_pool_take(struct rondo_shm *part, size_t size, size_t reserved, enum rondo_shm_mode mode,
                             enum rondo_shm_use use);
/** The same as a segment of its own: for memory that a GPU pins, which it does once for each address, while
 * ranks that are threads have the same pool. */
rondo_status rondo_pool_take_apart(struct rondo_shm *part, size_t size, size_t reserved,
                                   enum rondo_shm_mode mode, enum rondo_shm_use use);

/** For tests: what this process has now. */
struct rondo_pool_use {
    int segments, mapped; /* of this process; of others */
    int parts;            /* that this process took, or opened, and has not closed */
    int waiting;          /* closed here, and still open elsewhere */
    size_t bytes, kept;   /* of parts taken; of pages in free parts, for the next one */
};
void rondo_pool_look(struct rondo_pool_use *use);

/* ---- for shm.c: what it does with a part (shm->pool is not NULL, name->bytes is not 0) ---- */

rondo_status rondo_pool_open(struct rondo_shm *part, const struct rondo_shm_name *name);
void rondo_pool_unlink(struct rondo_shm *part);
void rondo_pool_close(struct rondo_shm *part);

#endif
