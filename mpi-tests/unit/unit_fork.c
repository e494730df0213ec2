/* What a forked child may rely on, whatever other threads of its parent were doing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include "base/fork.h"
#include "base/heap_impl.h"
#include "in_child.h"

enum { FORKS = 100, PATIENCE_S = 20 };

/* ---- a thread that holds a lock until it is told ---- */

struct holder {
    pthread_t thread;
    void (*lock)(void), (*unlock)(void);
    sem_t held, go;
};

static void *hold(void *arg)
{
    struct holder *holder = arg;
    holder->lock();
    sem_post(&holder->held);
    while (sem_wait(&holder->go) != 0) {
    }
    holder->unlock();
    return NULL;
}

static void holder_start(struct holder *holder, void (*lock)(void), void (*unlock)(void))
{
    holder->lock = lock;
    holder->unlock = unlock;
    assert_int_equal(sem_init(&holder->held, 0, 0) | sem_init(&holder->go, 0, 0), 0);
    assert_int_equal(pthread_create(&holder->thread, NULL, hold, holder), 0);
    while (sem_wait(&holder->held) != 0) {
    }
}

static void holder_end(struct holder *holder)
{
    sem_post(&holder->go);
    pthread_join(holder->thread, NULL);
    sem_destroy(&holder->held);
    sem_destroy(&holder->go);
}

/* ---- locks ---- */

static pthread_mutex_t some_lock = PTHREAD_MUTEX_INITIALIZER;
static int whole = -1;
static void some_in_child(void) { whole = rondo_fork_lock(&some_lock); }
RONDO_AT_FORK(some_in_child)
static void some_take(void) { pthread_mutex_lock(&some_lock); }
static void some_give(void) { pthread_mutex_unlock(&some_lock); }

static int look_at_lock(void *expected)
{
    return whole != *(int *)expected || pthread_mutex_trylock(&some_lock) != 0;
}

static void a_child_has_its_locks_and_knows_which_were_held(void **state)
{
    struct holder holder;
    int expected = 0;
    (void)state;
    holder_start(&holder, some_take, some_give);
    assert_int_equal(in_child(look_at_lock, &expected), 0);
    holder_end(&holder);
    expected = 1;
    assert_int_equal(in_child(look_at_lock, &expected), 0);
    assert_int_equal(whole, -1); /* the parent is not asked */
}

/* ---- memory that calls rely on ---- */

static uint8_t buffer[4096];
static volatile int stop;

static void *add_and_remove(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        uint64_t id;
        if (rondo_region_add(buffer, sizeof(buffer), &id) == RONDO_SUCCESS) {
            rondo_region_remove(id);
        }
        rondo_segment_put(1);
    }
    return NULL;
}

static int use_regions(void *arg)
{
    struct rondo_region region;
    uint64_t id;
    (void)arg;
    alarm(PATIENCE_S); /* a lock that nobody gives back would be waited for without end */
    if (rondo_region_find(buffer, 1, &region) || rondo_segments_mapped() != 0 ||
        rondo_region_add(buffer, sizeof(buffer), &id) != RONDO_SUCCESS) {
        return 1;
    }
    return !rondo_region_find(buffer, 1, &region) || !rondo_region_remove(id);
}

static void a_child_of_a_busy_process_has_regions_of_its_own(void **state)
{
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, add_and_remove, NULL), 0);
    for (int i = 0; i < FORKS; i++) {
        assert_int_equal(in_child(use_regions, NULL), 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_its_locks_and_knows_which_were_held),
        cmocka_unit_test(a_child_of_a_busy_process_has_regions_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
