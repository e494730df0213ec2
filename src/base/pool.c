#include "base/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/shm_socket.h"

enum {
    POOL_MAGIC = 0x6c6f6f70,
    POOL_VERSION = 1,
    LEAST_SEGMENT = 16 << 20,
    MOST_GROWTH = 1 << 30, /* a segment is larger only for one part */
    KEEP_PART = 256 << 10, /* free parts with more pages keep only what was reserved, or none */
    KEEP_BYTES = 4 << 20,
    SWEEP_SOME = 4
};

/* Begins a segment. After its page come the counts: one word a page of the segment, which says for the first
 * page of a part how many have the part open (low 32 bits) and which part it is, by a number that grows. A
 * late opener, whose part has gone, does not get the part that has its place now. */
struct head {
    uint32_t magic, version;
    uint64_t bytes;
};

struct extent {
    size_t at, bytes;
    size_t reserved;               /* bytes of it, from its begin, whose pages it has for certain */
    size_t later_begin, later_end; /* in the segment: where pages were reserved since, on whole pages */
    size_t kept;                   /* a free part: bytes of its pages, all zero */
};

struct extents {
    struct extent *extent;
    int n, capacity;
};

struct rondo_pool_segment {
    struct rondo_pool_segment *next;
    struct rondo_shm shm;
    int parts;                   /* open in this process */
    int offers;                  /* parts whose name peers may still look up (RONDO_SHM_MODE=socket) */
    struct rondo_shm_name offer; /* the segment's name by the socket, while there are any */
    int inherited;               /* this is a forked child: the segment is the parent's */
    /* of this process's segments only */
    size_t counted;       /* end of the counts that are reserved */
    struct extents free;  /* ascending; neighbours are merged */
    struct extents kept;  /* free, and their pages are still there */
    struct extents waits; /* closed here, and still open elsewhere */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_pool_segment *own, *others;
static size_t own_bytes, kept_bytes;

static size_t page_size(void)
{
    static size_t known; /* several threads may find it at once */
    size_t page = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (page == 0) {
        page = (size_t)sysconf(_SC_PAGESIZE);
        __atomic_store_n(&known, page, __ATOMIC_RELAXED);
    }
    return page;
}

/* ---- forks: a child leaves its parent's segments alone ---- */

static void pool_child(void)
{
    for (struct rondo_pool_segment *s = own; s != NULL; s = s->next) {
        s->inherited = 1;
    }
    for (struct rondo_pool_segment *s = others; s != NULL; s = s->next) {
        s->inherited = 1;
    }
    own = others = NULL;
    own_bytes = kept_bytes = 0;
    pthread_mutex_unlock(&lock);
}

static void pool_before(void) { pthread_mutex_lock(&lock); }
static void pool_parent(void) { pthread_mutex_unlock(&lock); }
static void watch_forks(void) { pthread_atfork(pool_before, pool_parent, pool_child); }

/* ---- counts ---- */

static _Atomic uint64_t *count_of(const struct rondo_pool_segment *s, size_t at)
{
    return (_Atomic uint64_t *)(void *)(s->shm.base + page_size()) + at / page_size();
}

static uint32_t nopen(uint64_t count) { return (uint32_t)count; }
static uint32_t life_of(uint64_t count) { return (uint32_t)(count >> 32); }

static size_t counts_end(size_t segment_bytes)
{
    size_t page = page_size();
    return page + rondo_round_up(segment_bytes / page * sizeof(uint64_t), page);
}

/* Reserve the count of a part that begins there. */
static rondo_status count_reserve(struct rondo_pool_segment *s, size_t at)
{
    size_t page = page_size(), need = rondo_round_up(page + (at / page + 1) * sizeof(uint64_t), page);
    if (need > s->counted) {
        RONDO_TRY(rondo_shm_reserve(&s->shm, s->counted, need - s->counted));
        s->counted = need;
    }
    return RONDO_SUCCESS;
}

/* ---- extents ---- */

static rondo_status extent_add(struct extents *list, int i, struct extent e, const char *what)
{
    RONDO_TRY(RONDO_ARRAY_GROW(list->extent, list->n, list->capacity, what));
    memmove(&list->extent[i + 1], &list->extent[i], sizeof(e) * (size_t)(list->n - i));
    list->extent[i] = e;
    list->n++;
    return RONDO_SUCCESS;
}

static void extent_remove(struct extents *list, int i)
{
    list->n--;
    memmove(&list->extent[i], &list->extent[i + 1], sizeof(*list->extent) * (size_t)(list->n - i));
}

/* @return the index of the first extent that begins at or after an offset. */
static int extent_at(const struct extents *list, size_t at)
{
    int low = 0, high = list->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list->extent[middle].at < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void give_pages(const struct rondo_pool_segment *s, size_t at, size_t bytes)
{
    if (bytes > 0) {
        (void)fallocate(s->shm.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
    }
}

/* Give pages and place of a part back. Where there is no memory for the list, its place stays unused until
 * the segment ends. */
static void give(struct rondo_pool_segment *s, struct extent e)
{
    struct extents *list = &s->free;
    int i = extent_at(list, e.at);
    give_pages(s, e.at, e.bytes);
    if (i < list->n && list->extent[i].at == e.at + e.bytes) {
        list->extent[i].at = e.at;
        list->extent[i].bytes += e.bytes;
    } else if (extent_add(list, i, e, "the free parts of shared memory") != RONDO_SUCCESS) {
        return;
    }
    if (i > 0 && list->extent[i - 1].at + list->extent[i - 1].bytes == list->extent[i].at) {
        list->extent[i - 1].bytes += list->extent[i].bytes;
        extent_remove(list, i);
    }
}

/* The next pages of [*at, end) that hold something. @return their bytes; 0: there are none. Where that cannot
 * be found out, all hold something. */
static size_t next_data(const struct rondo_pool_segment *s, size_t *at, size_t end)
{
    off_t data = lseek(s->shm.fd, (off_t)*at, SEEK_DATA), hole;
    if (data < 0) {
        return errno == ENXIO ? 0 : end - *at;
    }
    if ((size_t)data >= end) {
        return 0;
    }
    hole = lseek(s->shm.fd, data, SEEK_HOLE);
    *at = (size_t)data;
    return (hole < 0 || (size_t)hole > end ? end : (size_t)hole) - *at;
}

/* Nothing was written to [at, end): give back what was reserved of it. Such pages show nowhere. */
static void give_untouched(const struct rondo_pool_segment *s, const struct extent *e, size_t at, size_t end)
{
    at = rondo_max_size(at, e->later_begin);
    end = rondo_min_size(end, e->later_end);
    if (at < end) {
        give_pages(s, at, end - at);
    }
}

/* Clear the pages of a part behind those that were reserved with it, or give them back if they have more
 * bytes than `most`. @return the bytes that stay. */
static size_t clear_pages(const struct rondo_pool_segment *s, const struct extent *e, size_t most)
{
    size_t begin = e->at + e->reserved, end = e->at + e->bytes, at = begin, done = begin, all = 0, bytes;
    for (; (bytes = next_data(s, &at, end)) > 0; done = at += bytes) {
        all += bytes;
        if (all > most) {
            give_pages(s, begin, end - begin);
            return 0;
        }
        give_untouched(s, e, done, at);
        memset(s->shm.base + at, 0, bytes);
    }
    give_untouched(s, e, done, end);
    return all;
}

/* A part that nobody has open: keep its pages for the next part of this size, if they are few. (Taking pages
 * away from processes that have touched them interrupts the cores where these run.) */
static void release(struct rondo_pool_segment *s, struct extent e)
{
    if (e.reserved > 0 && e.reserved <= KEEP_PART && kept_bytes + e.reserved <= KEEP_BYTES) {
        size_t most = rondo_min_size(KEEP_PART - e.reserved, KEEP_BYTES - kept_bytes - e.reserved);
        e.kept = e.reserved + clear_pages(s, &e, most);
        if (extent_add(&s->kept, s->kept.n, e, "the free parts of shared memory") == RONDO_SUCCESS) {
            memset(s->shm.base + e.at, 0, e.reserved);
            kept_bytes += e.kept;
            return;
        }
    }
    give(s, e);
}

/* Release the parts that others have closed in the meantime. Looks at the last n only. */
static void sweep(struct rondo_pool_segment *s, int n)
{
    int end = n < s->waits.n ? s->waits.n - n : 0;
    for (int i = s->waits.n - 1; i >= end; i--) {
        struct extent e = s->waits.extent[i];
        if (nopen(atomic_load_explicit(count_of(s, e.at), memory_order_acquire)) == 0) {
            s->waits.extent[i] = s->waits.extent[--s->waits.n];
            release(s, e);
        }
    }
}

/* ---- segments ---- */

static struct rondo_pool_segment *segment_of(const struct rondo_shm_name *name)
{
    struct rondo_pool_segment *list[] = { own, others };
    for (int i = 0; i < 2; i++) {
        for (struct rondo_pool_segment *s = list[i]; s != NULL; s = s->next) {
            if (s->shm.name.inode == name->inode && s->shm.size == name->size) {
                return s;
            }
        }
    }
    return NULL;
}

static void segment_free(struct rondo_pool_segment *s)
{
    rondo_shm_close(&s->shm);
    rondo_free(s->free.extent);
    rondo_free(s->kept.extent);
    rondo_free(s->waits.extent);
    rondo_free(s);
}

static void segment_end(struct rondo_pool_segment *s)
{
    struct rondo_pool_segment **at = s->shm.fd >= 0 ? &own : &others;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    if (s->shm.fd >= 0) {
        own_bytes -= s->shm.size;
        for (int i = 0; i < s->kept.n; i++) {
            kept_bytes -= s->kept.extent[i].kept;
        }
    }
    segment_free(s);
}

static rondo_status segment_fill(struct rondo_pool_segment *s)
{
    struct head head = { .magic = POOL_MAGIC, .version = POOL_VERSION, .bytes = s->shm.size };
    size_t begin = counts_end(s->shm.size);
    s->counted = page_size();
    RONDO_TRY(rondo_shm_reserve(&s->shm, 0, s->counted));
    memcpy(s->shm.base, &head, sizeof(head));
    return extent_add(&s->free, 0, (struct extent){ .at = begin, .bytes = s->shm.size - begin },
                      "the free parts of shared memory");
}

static size_t clamp(size_t bytes, size_t least, size_t most)
{
    return bytes < least ? least : bytes > most ? most : bytes;
}

static rondo_status segment_new(size_t bytes, struct rondo_pool_segment **made)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t need = bytes + bytes / 256 + 4 * page_size(); /* a count for each page is less */
    size_t want = rondo_max_size(need, clamp(own_bytes, LEAST_SEGMENT, MOST_GROWTH));
    struct rondo_pool_segment *s;
    rondo_status status;
    pthread_once(&once, watch_forks);
    RONDO_TRY(RONDO_NEW(s, "a segment of shared memory"));
    s->shm.fd = -1;
    status = rondo_shm_create_large(&s->shm, want, need, 1, RONDO_SHM_FOR_BUFFERS);
    if (status == RONDO_SUCCESS) {
        status = segment_fill(s);
    }
    if (status != RONDO_SUCCESS) {
        segment_free(s);
        return status;
    }
    s->next = own;
    own = s;
    own_bytes += s->shm.size;
    *made = s;
    return RONDO_SUCCESS;
}

/* ---- taking ---- */

/* Find a free part that has its pages still. */
static struct rondo_pool_segment *find_kept(size_t bytes, size_t reserved, size_t *at)
{
    for (struct rondo_pool_segment *s = own; s != NULL; s = s->next) {
        for (int i = s->kept.n - 1; i >= 0; i--) {
            if (s->kept.extent[i].bytes == bytes && s->kept.extent[i].reserved == reserved) {
                *at = s->kept.extent[i].at;
                kept_bytes -= s->kept.extent[i].kept;
                s->kept.extent[i] = s->kept.extent[--s->kept.n];
                return s;
            }
        }
    }
    return NULL;
}

static int find_free(struct rondo_pool_segment *s, size_t bytes, size_t *at)
{
    for (int i = 0; i < s->free.n; i++) {
        struct extent *e = &s->free.extent[i];
        if (e->bytes >= bytes) {
            *at = e->at;
            e->at += bytes;
            e->bytes -= bytes;
            if (e->bytes == 0) {
                extent_remove(&s->free, i);
            }
            return 1;
        }
    }
    return 0;
}

/* A part that cannot be taken. */
static void give_up(struct rondo_pool_segment *s, size_t at, size_t bytes)
{
    give(s, (struct extent){ .at = at, .bytes = bytes });
    if (s->parts == 0) {
        segment_end(s);
    }
}

static rondo_status find(size_t bytes, size_t reserved, enum rondo_shm_use use,
                         struct rondo_pool_segment **segment, size_t *at)
{
    struct rondo_pool_segment *s = find_kept(bytes, reserved, at);
    rondo_status status;
    if (s == NULL) {
        for (s = own; s != NULL; s = s->next) {
            sweep(s, INT_MAX);
        }
        s = find_kept(bytes, reserved, at);
    }
    if (s != NULL) {
        *segment = s;
        s->shm.use = use;
        return RONDO_SUCCESS;
    }
    for (s = own; s != NULL && !find_free(s, bytes, at); s = s->next) {
    }
    if (s == NULL) {
        RONDO_TRY(segment_new(bytes, &s));
        (void)find_free(s, bytes, at);
    }
    *segment = s;
    s->shm.use = use;
    status = count_reserve(s, *at);
    if (status == RONDO_SUCCESS) {
        status = rondo_shm_reserve(&s->shm, *at, reserved);
    }
    if (status != RONDO_SUCCESS) {
        give_up(s, *at, bytes);
    }
    return status;
}

/* RONDO_SHM_MODE=socket: peers get the segment over a socket while some name may still be looked up. Those of
 * communicators with another mode keep to /proc: the segment's own name stays as it is. */
static rondo_status serve(struct rondo_pool_segment *s)
{
    if (s->offers == 0) {
        struct rondo_shm served = s->shm;
        RONDO_TRY(rondo_shm_serve(&served));
        s->offer = served.name;
    }
    s->offers++;
    return RONDO_SUCCESS;
}

/* name: by which the segment is found */
static void part_fill(struct rondo_shm *part, struct rondo_pool_segment *s, const struct rondo_shm_name *name,
                      size_t at, size_t bytes)
{
    *part = (struct rondo_shm){
        .base = s->shm.base + at, .size = bytes, .fd = s->shm.fd, .use = s->shm.use, .name = *name, .pool = s
    };
    part->name.life = life_of(atomic_load_explicit(count_of(s, at), memory_order_relaxed));
    part->name.offset = at;
    part->name.bytes = bytes;
    s->parts++;
}

rondo_status rondo_pool_take_apart(struct rondo_shm *part, size_t size, size_t reserved,
                                   enum rondo_shm_mode mode, enum rondo_shm_use use)
{
    rondo_status status;
    RONDO_TRY(rondo_shm_create(part, size, mode));
    part->use = use;
    status = rondo_shm_reserve(part, 0, reserved);
    if (status != RONDO_SUCCESS) {
        rondo_shm_close(part);
    }
    return status;
}

rondo_status rondo_pool_take(struct rondo_shm *part, size_t size, size_t reserved, enum rondo_shm_mode mode,
                             enum rondo_shm_use use)
{
    struct rondo_pool_segment *s = NULL;
    size_t bytes = rondo_round_up(size, page_size()), at = 0;
    rondo_status status;
    if (size == 0 || size > (size_t)PTRDIFF_MAX / 2 || reserved > size) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "cannot take %zu bytes of shared memory on host %s", size,
                          rondo_log_host());
    }
    if (mode == RONDO_SHM_MODE_FILE) {
        return rondo_pool_take_apart(part, size, reserved, mode, use);
    }
    pthread_mutex_lock(&lock);
    status = find(bytes, rondo_round_up(reserved, page_size()), use, &s, &at);
    if (status == RONDO_SUCCESS && mode == RONDO_SHM_MODE_SOCKET) {
        status = serve(s);
        if (status != RONDO_SUCCESS) {
            give_up(s, at, bytes);
        }
    }
    if (status == RONDO_SUCCESS) {
        _Atomic uint64_t *count = count_of(s, at);
        uint64_t life = life_of(atomic_load_explicit(count, memory_order_relaxed)) + UINT64_C(1);
        atomic_store_explicit(count, life << 32 | 1, memory_order_release);
        part_fill(part, s, mode == RONDO_SHM_MODE_SOCKET ? &s->offer : &s->shm.name, at, bytes);
        part->reserved = rondo_round_up(reserved, page_size());
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- opening ---- */

static rondo_status wrong_segment(void)
{
    return rondo_fail_quiet(RONDO_SYSTEM_ERROR, "a peer's shared memory on host %s is not what it announced",
                            rondo_log_host());
}

static rondo_status given_back(void)
{
    return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                            "a peer on host %s has given back the shared memory it announced",
                            rondo_log_host());
}

/* Map a segment of another process, without the lock: its owner may let this one wait. */
static rondo_status map(const struct rondo_shm_name *name, struct rondo_pool_segment **mapped)
{
    struct rondo_pool_segment *s;
    struct head head = { 0 };
    rondo_status status;
    RONDO_TRY(RONDO_NEW(s, "a peer's segment of shared memory"));
    status = rondo_shm_open_segment(&s->shm, name);
    if (status != RONDO_SUCCESS) {
        rondo_free(s);
        return status;
    }
    memcpy(&head, s->shm.base, sizeof(head));
    if (head.magic != POOL_MAGIC || head.version != POOL_VERSION || head.bytes != s->shm.size) {
        segment_free(s);
        return wrong_segment();
    }
    *mapped = s;
    return RONDO_SUCCESS;
}

/* Count this process among those that have the part open. It must be open at all, or it may become another
 * part. */
static int count_up(struct rondo_pool_segment *s, size_t at, uint32_t life)
{
    _Atomic uint64_t *count = count_of(s, at);
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    int same;
    do {
        same = nopen(now) != 0 && life_of(now) == life;
    } while (same && !atomic_compare_exchange_weak_explicit(count, &now, now + 1, memory_order_acq_rel,
                                                            memory_order_relaxed));
    return same;
}

/* With the lock. */
static rondo_status open_in(struct rondo_pool_segment *s, const struct rondo_shm_name *name,
                            struct rondo_shm *part)
{
    if (name->offset < counts_end(s->shm.size)) {
        return wrong_segment();
    }
    if (!count_up(s, name->offset, name->life)) {
        return given_back();
    }
    part_fill(part, s, name, name->offset, name->bytes);
    part->fd = -1;
    return RONDO_SUCCESS;
}

rondo_status rondo_pool_open(struct rondo_shm *part, const struct rondo_shm_name *name)
{
    struct rondo_pool_segment *s, *fresh = NULL;
    rondo_status status;
    pthread_mutex_lock(&lock);
    s = segment_of(name);
    if (s == NULL) {
        pthread_mutex_unlock(&lock);
        RONDO_TRY(map(name, &fresh));
        pthread_mutex_lock(&lock);
        s = segment_of(name); /* another thread may have been faster */
        if (s == NULL) {
            s = fresh;
            fresh = NULL;
            s->next = others;
            others = s;
        }
    }
    status = open_in(s, name, part);
    if (s->parts == 0) {
        segment_end(s);
    }
    pthread_mutex_unlock(&lock);
    if (fresh != NULL) {
        segment_free(fresh);
    }
    return status;
}

/* ---- closing ---- */

/* With the lock. Those that this process offers are its own parts that have a path. */
static void withdraw(struct rondo_shm *part)
{
    if (part->fd >= 0 && part->name.path[0] != '\0' && --part->pool->offers == 0) {
        rondo_shm_withdraw(part->name.inode);
    }
    part->name.path[0] = '\0';
}

void rondo_pool_unlink(struct rondo_shm *part)
{
    if (!part->pool->inherited) {
        pthread_mutex_lock(&lock);
        withdraw(part);
        pthread_mutex_unlock(&lock);
    }
}

void rondo_pool_close(struct rondo_shm *part)
{
    struct rondo_pool_segment *s = part->pool;
    struct extent e = { .at = part->name.offset, .bytes = part->name.bytes, .reserved = part->reserved };
    e.later_begin = e.at + part->later_begin / page_size() * page_size();
    e.later_end = e.at + rondo_round_up(part->later_end, page_size());
    if (s->inherited) {
        return;
    }
    pthread_mutex_lock(&lock);
    withdraw(part);
    uint32_t left = nopen(atomic_fetch_sub_explicit(count_of(s, e.at), 1, memory_order_acq_rel)) - 1;
    if (--s->parts == 0) {
        segment_end(s); /* those who have it mapped keep its memory */
    } else if (part->fd >= 0 && left == 0) {
        release(s, e);
    } else if (part->fd >= 0) {
        sweep(s, SWEEP_SOME); /* here rather than in a take, which has others waiting for it */
        (void)extent_add(&s->waits, s->waits.n, e, "the closed parts of shared memory");
    }
    pthread_mutex_unlock(&lock);
}

/* ---- for tests ---- */

void rondo_pool_look(struct rondo_pool_use *use)
{
    memset(use, 0, sizeof(*use));
    pthread_mutex_lock(&lock);
    for (struct rondo_pool_segment *s = own; s != NULL; s = s->next) {
        sweep(s, INT_MAX);
        use->segments++;
        use->parts += s->parts;
        use->waiting += s->waits.n;
        use->bytes += s->shm.size - counts_end(s->shm.size);
        for (int i = 0; i < s->free.n; i++) {
            use->bytes -= s->free.extent[i].bytes;
        }
        for (int i = 0; i < s->kept.n; i++) {
            use->bytes -= s->kept.extent[i].bytes;
        }
    }
    for (struct rondo_pool_segment *s = others; s != NULL; s = s->next) {
        use->mapped++;
        use->parts += s->parts;
    }
    use->kept = kept_bytes;
    pthread_mutex_unlock(&lock);
}
