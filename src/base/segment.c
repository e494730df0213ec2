/* Segments of peers' heaps, mapped here. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/heap_impl.h"
#include "base/log.h"
#include "base/mem.h"

struct mapped {
    struct mapped *next;
    struct rondo_shm shm;
    uint64_t id;
    size_t limit;
    int refs;
};

static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapped *maps;

static void in_child(void) { maps = rondo_fork_lock(&map_lock) ? maps : NULL; }
RONDO_AT_FORK(in_child)

static struct mapped **map_of(uint64_t id)
{
    struct mapped **at = &maps;
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

/* Is it the segment that the peer announced? Its owner and size were checked before. */
static rondo_status map_check(const struct rondo_segment_note *note, struct rondo_shm *shm)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rondo_segment_head head = { 0 };
    if (shm->size > page) {
        memcpy(&head, rondo_segment_head(shm->base, shm->size, page), sizeof(head));
    }
    if (head.magic == RONDO_SEGMENT_MAGIC && head.version == RONDO_SEGMENT_VERSION && head.id == note->id &&
        head.ended == 0) {
        return RONDO_SUCCESS;
    }
    rondo_shm_close(shm);
    return rondo_fail_quiet(RONDO_SYSTEM_ERROR,
                            "a segment of a peer's heap on host %s is not the one it announced",
                            rondo_log_host());
}

/* Without the lock: its owner may let this one wait. */
static rondo_status map_new(const struct rondo_segment_note *note, struct mapped **made)
{
    struct mapped *m;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(m, "a mapped segment"));
    status = rondo_shm_open(&m->shm, &note->name);
    if (status == RONDO_SUCCESS) {
        status = map_check(note, &m->shm);
    }
    if (status != RONDO_SUCCESS) {
        rondo_free(m);
        return status;
    }
    m->id = note->id;
    m->limit = m->shm.size - (size_t)sysconf(_SC_PAGESIZE);
    *made = m;
    return RONDO_SUCCESS;
}

rondo_status rondo_segment_get(const struct rondo_segment_note *note, uint8_t **base, size_t *bytes)
{
    struct mapped *m, *fresh = NULL;
    if (rondo_heap_segment(note->id, base, bytes)) {
        return RONDO_SUCCESS;
    }
    pthread_mutex_lock(&map_lock);
    m = *map_of(note->id);
    if (m == NULL) {
        pthread_mutex_unlock(&map_lock);
        RONDO_TRY(map_new(note, &fresh));
        pthread_mutex_lock(&map_lock);
        m = *map_of(note->id); /* another thread may have been faster */
        if (m == NULL) {
            m = fresh;
            fresh = NULL;
            m->next = maps;
            maps = m;
        }
    }
    m->refs++;
    *base = m->shm.base;
    *bytes = m->limit;
    pthread_mutex_unlock(&map_lock);
    if (fresh != NULL) {
        rondo_shm_close(&fresh->shm);
        rondo_free(fresh);
    }
    return RONDO_SUCCESS;
}

void rondo_segment_put(uint64_t id)
{
    struct mapped **at, *m;
    pthread_mutex_lock(&map_lock);
    at = map_of(id);
    m = *at;
    if (m != NULL && --m->refs == 0) {
        *at = m->next;
        rondo_shm_close(&m->shm);
        rondo_free(m);
    }
    pthread_mutex_unlock(&map_lock);
}

int rondo_segment_alive(uint64_t id)
{
    struct mapped *m;
    uint8_t *base;
    size_t bytes;
    int alive;
    if (rondo_heap_segment(id, &base, &bytes)) {
        return 1;
    }
    pthread_mutex_lock(&map_lock);
    m = *map_of(id);
    alive = m != NULL &&
            __atomic_load_n(
                &rondo_segment_head(m->shm.base, m->shm.size, (size_t)sysconf(_SC_PAGESIZE))->ended,
                __ATOMIC_ACQUIRE) == 0;
    pthread_mutex_unlock(&map_lock);
    return alive;
}

int rondo_segments_mapped(void)
{
    int n = 0;
    pthread_mutex_lock(&map_lock);
    for (const struct mapped *m = maps; m != NULL; m = m->next) {
        n++;
    }
    pthread_mutex_unlock(&map_lock);
    return n;
}
