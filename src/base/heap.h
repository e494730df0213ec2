/*
 * The process's shared heap: memory in segments (base/shm.h) that all ranks of the node can map; and a table
 * of the memory that calls may rely on: heap blocks, and ranges that the user registered. Thread-safe.
 *
 * A segment lives while it has blocks; the last empty one lives longer, so that a program which allocates and
 * frees does not make peers map again. Blocks are reserved before they are returned, and given back to the
 * system when they are freed, whoever has the segment mapped. The last page of a segment is its head, which
 * tells peers whether they mapped the right segment and whether it still lives. A forked child starts with an
 * empty heap of its own. Ids are random and never reused, so what is cached for an id can be stale but never
 * wrong.
 */
#ifndef RONDO_BASE_HEAP_H
#define RONDO_BASE_HEAP_H

#include "base/shm.h"

/** Allocate zeroed memory of a segment, aligned to RONDO_CTRL_ALIGN, or to a page from a page on. bytes > 0.
 */
rondo_status rondo_heap_alloc(void **ptr, size_t bytes);
/** @return RONDO_INVALID_ARGUMENT when no block begins at @a ptr. */
rondo_status rondo_heap_free(void *ptr);

/* ---- what lies where ---- */

/* A block of the heap, or a registered range. */
struct rondo_region {
    uint64_t id; /* stable while it lives, never reused, never 0 */
    uint8_t *base;
    size_t bytes;
    uint64_t segment; /* of a heap block: the segment's id; 0: ordinary memory that was registered */
};

/** Find the region that holds all of [ptr, ptr + bytes). @return 1 and *region, or 0. Costs one load while
 * there are no regions, else O(log regions) under a lock. */
int rondo_region_find(const void *ptr, size_t bytes, struct rondo_region *region);
/** A number that changes whenever a region begins or ends, and so invalidates cached answers of
 * rondo_region_find. */
uint64_t rondo_region_epoch(void);
/** Register a range of any memory; a range may be registered repeatedly. *id: for rondo_region_remove. */
rondo_status rondo_region_add(void *ptr, size_t bytes, uint64_t *id);
/** @return 0 when there is no such registration. */
int rondo_region_remove(uint64_t id);

/* ---- segments, of this process and of peers ---- */

/* What a peer needs to map a segment: plain data. */
struct rondo_segment_note {
    uint64_t id;
    uint64_t base; /* address in the process that owns it */
    struct rondo_shm_name name;
};

/** Describe a segment of this process for peers. serve: they cannot open descriptors through /proc and will
 * ask for it over a socket. @return RONDO_INVALID_ARGUMENT: no such segment. */
rondo_status rondo_segment_note(uint64_t id, int serve, struct rondo_segment_note *note);
/** Map a segment, once per process; call rondo_segment_put as often as this. A segment of this process is not
 * mapped again. Errors are not logged. */
rondo_status rondo_segment_get(const struct rondo_segment_note *note, uint8_t **base, size_t *bytes);
void rondo_segment_put(uint64_t id);
/** Does the owner of a mapped segment still have it? */
int rondo_segment_alive(uint64_t id);
/** How many segments of peers are mapped, for tests and the log. */
int rondo_segments_mapped(void);

#endif
