/*
 * The process's shared heap: memory in segments (base/shm.h) that the ranks of the node map; and the table of
 * memory that calls may count on: heap blocks and ranges that the user has registered. Any thread, any time.
 *
 * A segment lives while blocks of it do, the last empty one longer, so that a program that allocates and
 * frees does not make peers map anew. Blocks are reserved before they are given and given back to the system
 * when they are freed, whoever has the segment mapped. The last page of a segment is its head: peers see
 * there whether they have the right one, and whether it still lives. A forked child begins with a heap of its
 * own, without segments. Ids are random and never used again: whatever was kept for an id can be stale but
 * never wrong.
 */
#ifndef RONDO_BASE_HEAP_H
#define RONDO_BASE_HEAP_H

#include "base/shm.h"

/** Zeroed memory of a segment, aligned to RONDO_CTRL_ALIGN, from a page on to pages. bytes > 0. */
rondo_status rondo_heap_alloc(void **ptr, size_t bytes);
/** @return RONDO_INVALID_ARGUMENT when no block begins at @a ptr. */
rondo_status rondo_heap_free(void *ptr);

/* ---- what lies where ---- */

/* A block of the heap, or a registered range. */
struct rondo_region {
    uint64_t id; /* stable as long as it lives, not used again; never 0 */
    uint8_t *base;
    size_t bytes;
    uint64_t segment; /* of a heap block: the segment's id; 0: ordinary memory that was registered */
};

/** The region that holds all of [ptr, ptr + bytes), if there is one: 1 and *region. A load while there is
 * none at all; else O(log regions) under a lock. */
int rondo_region_find(const void *ptr, size_t bytes, struct rondo_region *region);
/** Changes whenever a region ends or begins: what was found before may be asked of rondo_region_find again
 * when it has. */
uint64_t rondo_region_epoch(void);
/** Register a range of any memory, as often as wanted. *id: for remove. */
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

/** How peers find a segment of this process. serve: they cannot open descriptors by /proc and ask for it over
 * a socket. @return RONDO_INVALID_ARGUMENT: no such segment. */
rondo_status rondo_segment_note(uint64_t id, int serve, struct rondo_segment_note *note);
/** The segment mapped here, once a process however often it is asked for; put as often as got. A segment of
 * this process is where it is. Errors are not logged. */
rondo_status rondo_segment_get(const struct rondo_segment_note *note, uint8_t **base, size_t *bytes);
void rondo_segment_put(uint64_t id);
/** A mapped segment of a peer: has its owner not ended it? */
int rondo_segment_alive(uint64_t id);
/** Segments mapped from peers, for tests and the log. */
int rondo_segments_mapped(void);

#endif
