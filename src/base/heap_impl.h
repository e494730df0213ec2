/* What heap.c, region.c and segment.c share. */
#ifndef RONDO_BASE_HEAP_IMPL_H
#define RONDO_BASE_HEAP_IMPL_H

#include "base/heap.h"

/* Begins the last page of a segment. The owner writes it once, except for `ended`. */
struct rondo_segment_head {
    uint32_t magic, version;
    uint64_t id;
    uint32_t ended; /* atomic: the owner has freed the segment */
};
enum { RONDO_SEGMENT_MAGIC = 0x72646865, RONDO_SEGMENT_VERSION = 1 };

static inline struct rondo_segment_head *rondo_segment_head(uint8_t *base, size_t size, size_t page)
{
    return (struct rondo_segment_head *)(void *)(base + size - page);
}

/** Find the heap block that holds all of [at, at + bytes). */
int rondo_heap_find(const uint8_t *at, size_t bytes, struct rondo_region *region);
/** Find a segment of this process by its id. @return 0: there is none. */
int rondo_heap_segment(uint64_t id, uint8_t **base, size_t *bytes);
/** Count a region that has begun (1) or ended (-1). */
void rondo_region_count(int change);
/** An id that was never given before. */
uint64_t rondo_region_new_id(void);

#endif
