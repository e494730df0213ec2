/* The shared heap of this process: segments, and the blocks in them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fork.h"
#include "base/heap_impl.h"
#include "base/log.h"
#include "base/mem.h"

static const size_t huge_page = 2u << 20, least_segment = 64u << 20, most_growth = (size_t)1 << 30;

/* [offset, offset + bytes) of its segment. */
struct block {
    size_t offset, bytes;
    uint64_t id;
};

struct segment {
    struct rondo_shm shm;
    uint64_t id;
    size_t limit; /* bytes for blocks; the head follows */
    struct block *blocks;
    int nblocks, capacity;
};

/* Segments by address, blocks by offset. Everything is under the lock. */
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment **segments;
static int nsegments, segments_capacity;
/* In a forked child: the parent's segments. The memory is shared with the parent, so the child must neither
 * allocate from it nor free it. */
static struct segment **inherited;

static void heap_child(void)
{
    (void)rondo_fork_lock(&heap_lock);
    (void)inherited;
    inherited = segments;
    segments = NULL;
    nsegments = segments_capacity = 0;
}
RONDO_AT_FORK(heap_child)

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Find the last segment that begins at or before an address; -1: none. */
static int segment_before(const uint8_t *at)
{
    int low = 0, high = nsegments;
    while (low < high) {
        int middle = (low + high) / 2;
        if (segments[middle]->shm.base <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

/* Find the last block of a segment that begins at or before an offset; -1: none. */
static int block_before(const struct segment *s, size_t offset)
{
    int low = 0, high = s->nblocks;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->blocks[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

static const struct segment *segment_by_id(uint64_t id)
{
    for (int i = 0; i < nsegments; i++) {
        if (segments[i]->id == id) {
            return segments[i];
        }
    }
    return NULL;
}

/* ---- segments ---- */

static size_t heap_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < nsegments; i++) {
        bytes += segments[i]->shm.size;
    }
    return bytes;
}

static rondo_status segment_open(struct segment *s, size_t size, size_t least)
{
    size_t page = page_size();
    struct rondo_segment_head *head;
    rondo_status status;
    RONDO_TRY(rondo_random(&s->id, sizeof(s->id)));
    RONDO_TRY(rondo_shm_create_large(&s->shm, size + page, least + page, 0, RONDO_SHM_FOR_USER));
    s->limit = s->shm.size - page;
    status = rondo_shm_reserve(&s->shm, s->limit, page);
    if (status != RONDO_SUCCESS) {
        rondo_shm_close(&s->shm);
        return status;
    }
    head = rondo_segment_head(s->shm.base, s->shm.size, page);
    head->magic = RONDO_SEGMENT_MAGIC;
    head->version = RONDO_SEGMENT_VERSION;
    head->id = s->id;
    return RONDO_SUCCESS;
}

/* Addresses cost nothing, so each segment is as large as all before it together, which keeps their number
 * small. Where addresses are limited, the segment is only as large as needed. */
static rondo_status segment_new(size_t bytes, struct segment **made)
{
    size_t need = rondo_round_up(bytes, huge_page), want = rondo_max_size(heap_bytes(), least_segment);
    struct segment *s;
    rondo_status status;
    int at;
    RONDO_TRY(RONDO_ARRAY_GROW(segments, nsegments, segments_capacity, "the heap's segments"));
    RONDO_TRY(RONDO_NEW(s, "a segment of the heap"));
    want = rondo_max_size(want < most_growth ? want : most_growth, need);
    status = segment_open(s, want, need);
    if (status != RONDO_SUCCESS) {
        rondo_free(s);
        return status;
    }
    at = segment_before(s->shm.base) + 1;
    memmove(&segments[at + 1], &segments[at], (size_t)(nsegments - at) * sizeof(struct segment *));
    segments[at] = s;
    nsegments++;
    *made = s;
    return RONDO_SUCCESS;
}

/* Return pages to the system at once. A peer that still has them mapped reads zeros, not another block. */
static void pages_return(struct segment *s, size_t begin, size_t end)
{
    if (end > begin) {
        (void)fallocate(s->shm.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                        (off_t)(end - begin));
    }
}

static void segment_end(int at)
{
    struct segment *s = segments[at];
    struct rondo_segment_head *head = rondo_segment_head(s->shm.base, s->shm.size, page_size());
    __atomic_store_n(&head->ended, 1, __ATOMIC_RELEASE);
    pages_return(s, 0, s->limit);
    rondo_shm_close(&s->shm);
    rondo_free(s->blocks);
    rondo_free(s);
    nsegments--;
    memmove(&segments[at], &segments[at + 1], (size_t)(nsegments - at) * sizeof(struct segment *));
}

/* Keep one empty segment for the next allocation. */
static void segments_trim(int emptied)
{
    for (int i = 0; i < nsegments; i++) {
        if (i != emptied && segments[i]->nblocks == 0) {
            segment_end(emptied);
            return;
        }
    }
}

/* ---- blocks ---- */

static size_t alignment_of(size_t bytes)
{
    return bytes >= huge_page ? huge_page : bytes >= page_size() ? page_size() : RONDO_CTRL_ALIGN;
}

/* Find the first gap that is long enough. @return 0: none; else *at: the index of the new block, *offset. */
static int find_gap(const struct segment *s, size_t bytes, size_t align, int *at, size_t *offset)
{
    size_t begin = 0;
    for (int i = 0; i <= s->nblocks; i++) {
        size_t end = i < s->nblocks ? s->blocks[i].offset : s->limit;
        begin = rondo_round_up(begin, align);
        if (begin <= end && bytes <= end - begin) {
            *at = i;
            *offset = begin;
            return 1;
        }
        begin = i < s->nblocks ? s->blocks[i].offset + s->blocks[i].bytes : begin;
    }
    return 0;
}

static rondo_status block_new(struct segment *s, int at, size_t offset, size_t bytes)
{
    size_t page = page_size(), begin = offset / page * page;
    RONDO_TRY(RONDO_ARRAY_GROW(s->blocks, s->nblocks, s->capacity, "the heap's blocks"));
    RONDO_TRY(rondo_shm_reserve(&s->shm, begin, rondo_round_up(offset + bytes, page) - begin));
    memmove(&s->blocks[at + 1], &s->blocks[at], (size_t)(s->nblocks - at) * sizeof(struct block));
    s->blocks[at] = (struct block){ .offset = offset, .bytes = bytes, .id = rondo_region_new_id() };
    s->nblocks++;
    return RONDO_SUCCESS;
}

static rondo_status heap_take(size_t bytes, uint8_t **ptr)
{
    size_t align = alignment_of(bytes), offset = 0;
    struct segment *s = NULL;
    rondo_status status;
    int at = 0;
    for (int i = 0; s == NULL && i < nsegments; i++) {
        s = find_gap(segments[i], bytes, align, &at, &offset) ? segments[i] : NULL;
    }
    if (s == NULL) {
        RONDO_TRY(segment_new(bytes, &s));
        at = 0;
        offset = 0;
    }
    status = block_new(s, at, offset, bytes);
    if (status != RONDO_SUCCESS && s->nblocks == 0) {
        segment_end(segment_before(s->shm.base));
    }
    *ptr = status == RONDO_SUCCESS ? s->shm.base + offset : NULL;
    return status;
}

rondo_status rondo_heap_alloc(void **ptr, size_t bytes)
{
    uint8_t *at;
    rondo_status status;
    if (bytes > (size_t)PTRDIFF_MAX / 2) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "cannot allocate %zu bytes on host %s: more than an address space holds", bytes,
                          rondo_log_host());
    }
    bytes = rondo_round_up(bytes, bytes >= page_size() ? page_size() : RONDO_CTRL_ALIGN);
    pthread_mutex_lock(&heap_lock);
    status = heap_take(bytes, &at);
    pthread_mutex_unlock(&heap_lock);
    if (status == RONDO_SUCCESS) {
        memset(at, 0, bytes); /* in this thread, so that the pages come from its NUMA node */
        rondo_region_count(1);
        *ptr = at;
    }
    return status;
}

/* Return the pages that only this block used. */
static void block_return(struct segment *s, int at)
{
    size_t page = page_size(), begin = s->blocks[at].offset, end = begin + s->blocks[at].bytes;
    size_t before = at > 0 ? s->blocks[at - 1].offset + s->blocks[at - 1].bytes : 0;
    size_t after = at + 1 < s->nblocks ? s->blocks[at + 1].offset : s->limit;
    begin = rondo_max_size(begin / page * page, rondo_round_up(before, page));
    end = rondo_min_size(rondo_round_up(end, page), after / page * page);
    pages_return(s, begin, end);
    s->nblocks--;
    memmove(&s->blocks[at], &s->blocks[at + 1], (size_t)(s->nblocks - at) * sizeof(struct block));
}

static int heap_give(const uint8_t *ptr)
{
    int i = segment_before(ptr), at;
    struct segment *s = i >= 0 ? segments[i] : NULL;
    size_t offset = s != NULL ? (size_t)(ptr - s->shm.base) : 0;
    at = s != NULL && offset < s->limit ? block_before(s, offset) : -1;
    if (at < 0 || s->blocks[at].offset != offset) {
        return 0;
    }
    rondo_region_count(-1);
    block_return(s, at);
    if (s->nblocks == 0) {
        segments_trim(i);
    }
    return 1;
}

rondo_status rondo_heap_free(void *ptr)
{
    int given;
    pthread_mutex_lock(&heap_lock);
    given = heap_give(ptr);
    pthread_mutex_unlock(&heap_lock);
    return given ? RONDO_SUCCESS
                 : rondo_fail(RONDO_INVALID_ARGUMENT,
                              "%p was not allocated by rondo_mem_alloc, or is freed already", ptr);
}

/* ---- finding blocks ---- */

int rondo_heap_find(const uint8_t *ptr, size_t bytes, struct rondo_region *region)
{
    int found = 0, i, at;
    pthread_mutex_lock(&heap_lock);
    i = segment_before(ptr);
    if (i >= 0 && (size_t)(ptr - segments[i]->shm.base) < segments[i]->limit) {
        const struct segment *s = segments[i];
        size_t offset = (size_t)(ptr - s->shm.base);
        at = block_before(s, offset);
        found = at >= 0 && offset - s->blocks[at].offset <= s->blocks[at].bytes &&
                bytes <= s->blocks[at].bytes - (offset - s->blocks[at].offset);
        if (found) {
            *region = (struct rondo_region){ .id = s->blocks[at].id,
                                             .base = s->shm.base + s->blocks[at].offset,
                                             .bytes = s->blocks[at].bytes,
                                             .segment = s->id };
        }
    }
    pthread_mutex_unlock(&heap_lock);
    return found;
}

int rondo_heap_segment(uint64_t id, uint8_t **base, size_t *bytes)
{
    const struct segment *s;
    pthread_mutex_lock(&heap_lock);
    s = segment_by_id(id);
    if (s != NULL) {
        *base = s->shm.base;
        *bytes = s->limit;
    }
    pthread_mutex_unlock(&heap_lock);
    return s != NULL;
}

rondo_status rondo_segment_note(uint64_t id, int serve, struct rondo_segment_note *note)
{
    struct segment *s;
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&heap_lock);
    s = (struct segment *)(uintptr_t)segment_by_id(id);
    if (s == NULL) {
        status = rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "no segment of the heap has this id");
    } else if (serve) {
        status = rondo_shm_serve(&s->shm);
    }
    if (status == RONDO_SUCCESS) {
        memset(note, 0, sizeof(*note));
        note->id = id;
        note->base = (uint64_t)(uintptr_t)s->shm.base;
        note->name = s->shm.name;
    }
    pthread_mutex_unlock(&heap_lock);
    return status;
}
