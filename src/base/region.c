/* The table of memory that calls may rely on: heap blocks and registered ranges. */
#include <pthread.h>
#include <string.h>

#include "base/array.h"
#include "base/fork.h"
#include "base/heap_impl.h"
#include "base/mem.h"

/* Sorted by base. `farthest` is the index of the entry, up to this one, that ends last: if any entry covers a
 * range that begins here, that one does. */
struct entry {
    struct rondo_region region;
    int refs, farthest;
};

static pthread_mutex_t region_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static int nentries, capacity;
static int nregions; /* blocks and entries; atomic */
static uint64_t epoch, last_id;

uint64_t rondo_region_new_id(void) { return __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED); }

uint64_t rondo_region_epoch(void) { return __atomic_load_n(&epoch, __ATOMIC_ACQUIRE); }

void rondo_region_count(int change)
{
    __atomic_add_fetch(&nregions, change, __ATOMIC_RELAXED);
    __atomic_add_fetch(&epoch, 1, __ATOMIC_RELEASE);
}

/* The heap's blocks are the parent's, and what it registered was so for its communicators. */
static void in_child(void)
{
    (void)rondo_fork_lock(&region_lock);
    entries = NULL; /* lost to the child: another thread may have been changing them */
    nentries = capacity = nregions = 0;
    epoch++;
}
RONDO_AT_FORK(in_child)

static uintptr_t end_of(int at) { return (uintptr_t)entries[at].region.base + entries[at].region.bytes; }

static void link_farthest(int from)
{
    for (int i = from; i < nentries; i++) {
        int before = i > 0 ? entries[i - 1].farthest : i;
        entries[i].farthest = end_of(before) > end_of(i) ? before : i;
    }
}

/* Find the last entry that begins at or before an address; -1: none. */
static int entry_before(const uint8_t *at)
{
    int low = 0, high = nentries;
    while (low < high) {
        int middle = (low + high) / 2;
        if (entries[middle].region.base <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

static int find_registered(const uint8_t *at, size_t bytes, struct rondo_region *region)
{
    int found = 0, i;
    pthread_mutex_lock(&region_lock);
    i = entry_before(at);
    if (i >= 0) {
        const struct rondo_region *r = &entries[entries[i].farthest].region;
        size_t skip = (size_t)(at - r->base);
        found = skip <= r->bytes && bytes <= r->bytes - skip;
        if (found) {
            *region = *r;
        }
    }
    pthread_mutex_unlock(&region_lock);
    return found;
}

int rondo_region_find(const void *ptr, size_t bytes, struct rondo_region *region)
{
    if (RONDO_LIKELY(__atomic_load_n(&nregions, __ATOMIC_RELAXED) == 0)) {
        return 0;
    }
    return rondo_heap_find(ptr, bytes, region) || find_registered(ptr, bytes, region);
}

static rondo_status entry_new(int at, uint8_t *base, size_t bytes)
{
    RONDO_TRY(RONDO_ARRAY_GROW(entries, nentries, capacity, "the registered ranges"));
    memmove(&entries[at + 1], &entries[at], (size_t)(nentries - at) * sizeof(*entries));
    entries[at] = (struct entry){ .region = { .id = rondo_region_new_id(), .base = base, .bytes = bytes },
                                  .refs = 0 };
    nentries++;
    link_farthest(at);
    return RONDO_SUCCESS;
}

rondo_status rondo_region_add(void *ptr, size_t bytes, uint64_t *id)
{
    rondo_status status = RONDO_SUCCESS;
    int at;
    pthread_mutex_lock(&region_lock);
    for (at = entry_before(ptr);
         at >= 0 && entries[at].region.base == ptr && entries[at].region.bytes != bytes;) {
        at--;
    }
    if (at < 0 || entries[at].region.base != ptr) {
        at = entry_before(ptr) + 1;
        status = entry_new(at, ptr, bytes);
    }
    if (status == RONDO_SUCCESS) {
        entries[at].refs++;
        *id = entries[at].region.id;
        if (entries[at].refs == 1) {
            rondo_region_count(1);
        }
    }
    pthread_mutex_unlock(&region_lock);
    return status;
}

static void entry_end(int at)
{
    nentries--;
    memmove(&entries[at], &entries[at + 1], (size_t)(nentries - at) * sizeof(*entries));
    link_farthest(0);
    rondo_region_count(-1);
    if (nentries == 0) {
        rondo_free(entries);
        entries = NULL;
        capacity = 0;
    }
}

int rondo_region_remove(uint64_t id)
{
    int at = 0;
    pthread_mutex_lock(&region_lock);
    while (at < nentries && entries[at].region.id != id) {
        at++;
    }
    int found = at < nentries;
    if (found && --entries[at].refs == 0) {
        entry_end(at);
    }
    pthread_mutex_unlock(&region_lock);
    return found;
}
