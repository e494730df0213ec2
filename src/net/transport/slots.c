#include "net/transport/slots.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/pool.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_slots *oldest, *newest; /* those that rest and have their pages */
static struct rondo_slots_held held;
static unsigned life;

/* ---- forks: a child leaves its parent's slots alone ---- */

static void before(void) { pthread_mutex_lock(&lock); }
static void parent(void) { pthread_mutex_unlock(&lock); }
static void child(void)
{
    oldest = newest = NULL;
    memset(&held, 0, sizeof(held));
    life++;
    pthread_mutex_unlock(&lock);
}
static void watch_forks(void) { pthread_atfork(before, parent, child); }

/* ---- the list; with the lock ---- */

static void list_remove(struct rondo_slots *slots)
{
    *(slots->prev != NULL ? &slots->prev->next : &oldest) = slots->next;
    *(slots->next != NULL ? &slots->next->prev : &newest) = slots->prev;
    slots->prev = slots->next = NULL;
    held.resting--;
}

static void list_add(struct rondo_slots *slots)
{
    slots->prev = newest;
    *(newest != NULL ? &newest->next : &oldest) = slots;
    newest = slots;
    held.resting++;
}

static uint64_t word(uint64_t step, enum rondo_use use) { return step << 2 | (uint64_t)use; }

/* Give back the pages of slots that rest, unless the sender uses them or has posted more. */
static int give_back(struct rondo_slots *slots)
{
    uint64_t rests = word(slots->step, RONDO_USE_RESTS);
    /* Pairs with the release in rondo_use_rest(): all that the sender stored lies before the hole. */
    if (!__atomic_compare_exchange_n(slots->use, &rests, word(slots->step, RONDO_USE_GONE), 0,
                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return 0;
    }
    list_remove(slots);
    slots->state = RONDO_USE_GONE;
    rondo_shm_give(&slots->part, 0, slots->bytes);
    slots->part.reserved = 0;
    held.bytes -= slots->bytes;
    held.links--;
    held.gone++;
    return 1;
}

/* Give back what has rested longest until there is room for so many bytes more. */
static void make_room(size_t bytes)
{
    size_t limit = (size_t)rondo_params()->mem_limit;
    struct rondo_slots *next;
    for (struct rondo_slots *s = oldest; s != NULL && held.bytes + bytes > limit; s = next) {
        next = s->next;
        (void)give_back(s);
    }
}

/* Count slots that are about to get pages. */
static void count(const struct rondo_slots *slots)
{
    pthread_mutex_lock(&lock);
    make_room(slots->bytes);
    held.bytes += slots->bytes;
    held.links++;
    pthread_mutex_unlock(&lock);
}

static void uncount(const struct rondo_slots *slots)
{
    held.bytes -= slots->bytes;
    held.links--;
}

/* ---- the receiver ---- */

rondo_status rondo_slots_take(struct rondo_slots *slots, size_t bytes, enum rondo_shm_mode mode,
                              uint64_t *use, uint64_t step)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    rondo_status status;
    pthread_once(&once, watch_forks);
    memset(slots, 0, sizeof(*slots));
    slots->bytes = rondo_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    slots->state = RONDO_USE_USED;
    slots->life = life;
    slots->use = use;
    if (use != NULL) {
        __atomic_store_n(use, word(step, RONDO_USE_RESTS), __ATOMIC_RELAXED);
        count(slots);
    }
    status = rondo_pool_take(&slots->part, bytes, bytes, mode, RONDO_SHM_FOR_BUFFERS);
    if (status != RONDO_SUCCESS) {
        slots->part.base = NULL;
        rondo_slots_close(slots);
    }
    return status;
}

rondo_status rondo_slots_begin(struct rondo_slots *slots)
{
    int gone;
    if (slots->use == NULL) {
        return RONDO_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    if (slots->state == RONDO_USE_RESTS) {
        list_remove(slots);
        slots->state = RONDO_USE_USED;
    }
    gone = slots->state == RONDO_USE_GONE;
    pthread_mutex_unlock(&lock);
    if (!gone) {
        return RONDO_SUCCESS;
    }
    count(slots);
    rondo_status status = rondo_shm_reserve(&slots->part, 0, slots->bytes);
    pthread_mutex_lock(&lock);
    if (status == RONDO_SUCCESS) {
        slots->part.reserved = slots->bytes;
        slots->state = RONDO_USE_USED;
        held.got++;
        /* Pairs with the acquire in rondo_use_begin(): the pages are there. */
        __atomic_store_n(slots->use, word(slots->step, RONDO_USE_RESTS), __ATOMIC_RELEASE);
    } else {
        uncount(slots);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void rondo_slots_rest(struct rondo_slots *slots, uint64_t step)
{
    if (slots->use == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (slots->state == RONDO_USE_USED) {
        slots->state = RONDO_USE_RESTS;
        slots->step = step;
        list_add(slots);
        make_room(0);
    }
    pthread_mutex_unlock(&lock);
}

void rondo_slots_close(struct rondo_slots *slots)
{
    if (slots->use != NULL && slots->life == life) {
        pthread_mutex_lock(&lock);
        if (slots->state == RONDO_USE_RESTS) {
            list_remove(slots);
        }
        if (slots->state != RONDO_USE_GONE) {
            uncount(slots);
        }
        pthread_mutex_unlock(&lock);
    }
    rondo_shm_close(&slots->part);
    memset(slots, 0, sizeof(*slots));
}

/* ---- the sender ---- */

int rondo_use_begin(uint64_t *use, uint64_t step)
{
    uint64_t rests = word(step, RONDO_USE_RESTS);
    /* A receiver that looks meanwhile sees USED, and its slots stay. */
    return __atomic_compare_exchange_n(use, &rests, word(step, RONDO_USE_USED), 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

void rondo_use_rest(uint64_t *use, uint64_t step)
{
    __atomic_store_n(use, word(step, RONDO_USE_RESTS), __ATOMIC_RELEASE);
}

void rondo_slots_look(struct rondo_slots_held *out)
{
    pthread_mutex_lock(&lock);
    *out = held;
    pthread_mutex_unlock(&lock);
}
