/* What a forked child does about locks, threads and descriptors that are its parent's. */
#ifndef RONDO_BASE_FORK_H
#define RONDO_BASE_FORK_H

#include <pthread.h>

/** Behind child(), which is static: have every forked child call it first. It may not wait for a lock:
 * whoever holds it is not in the child. */
#define RONDO_AT_FORK(child)                                       \
    static void __attribute__((constructor)) child##_at_fork(void) \
    {                                                              \
        (void)pthread_atfork(NULL, NULL, child);                   \
    }

/** In a forked child, give a lock back that a thread of the parent may have held. @return 0: it did, so what
 * the lock guards may be half changed: forget it. */
static inline int rondo_fork_lock(pthread_mutex_t *lock)
{
    int whole = pthread_mutex_trylock(lock) == 0;
    if (whole) {
        pthread_mutex_unlock(lock);
    } else {
        pthread_mutex_init(lock, NULL);
    }
    return whole;
}

#endif
