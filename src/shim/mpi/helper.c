/*
 * See helper.h. The functions of wait.def that are asked or helped know nothing of their arguments, and pass
 * on all that there could be, so this file has no mpi.h.
 */
#include "shim/mpi/helper.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "base/log.h"
#include "call/stream.h"
#include "shim/mpi/wait.def"

int shim_moving;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int begun;
    int waiting; /* threads in MPI */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER };

static void *helper_main(void *arg)
{
    for (;;) {
        int moved = 0;
        if (__atomic_load_n(&process.waiting, __ATOMIC_ACQUIRE) == 0) {
            pthread_mutex_lock(&process.lock);
            while (process.waiting == 0) {
                pthread_cond_wait(&process.wake, &process.lock);
            }
            pthread_mutex_unlock(&process.lock);
        }
        rondo_streams_progress(&moved);
        if (!moved) {
            sched_yield(); /* the thread that waits may have no other core */
        }
    }
    return arg;
}

/* The program's signals are not for this thread. */
static int helper_start(void)
{
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&thread, NULL, helper_main, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0) {
        pthread_detach(thread);
    }
    return rc;
}

void shim_help_begin_slow(void)
{
    pthread_mutex_lock(&process.lock);
    __atomic_add_fetch(&process.waiting, 1, __ATOMIC_RELEASE);
    if (!process.begun) {
        int rc = helper_start();
        process.begun = rc == 0;
        if (rc != 0) {
            RONDO_WARN("no thread can be started (error %d): a call of MPI that waits may hang, because a "
                       "non-blocking call is under way in Rondo; RONDO_MPI=none avoids it",
                       rc);
        }
    }
    pthread_cond_signal(&process.wake);
    pthread_mutex_unlock(&process.lock);
}

void shim_help_end(int helped)
{
    if (helped) {
        __atomic_sub_fetch(&process.waiting, 1, __ATOMIC_RELEASE);
    }
}

#define ASKED_(ctx, Name)                                   \
    int PMPI_##Name(SHIM_ANY_PARAMS) __attribute__((weak)); \
    int MPI_##Name(SHIM_ANY_PARAMS);                        \
    int MPI_##Name(SHIM_ANY_PARAMS)                         \
    {                                                       \
        if (shim_help_is_needed()) {                        \
            shim_move();                                    \
        }                                                   \
        return PMPI_##Name(SHIM_ANY_ARGS);                  \
    }
SHIM_ASKED_TABLE(ASKED_, )

#define HELPED_(ctx, Name)                                  \
    int PMPI_##Name(SHIM_ANY_PARAMS) __attribute__((weak)); \
    int MPI_##Name(SHIM_ANY_PARAMS);                        \
    int MPI_##Name(SHIM_ANY_PARAMS)                         \
    {                                                       \
        int helped = shim_help_begin();                     \
        int code = PMPI_##Name(SHIM_ANY_ARGS);              \
        shim_help_end(helped);                              \
        return code;                                        \
    }
SHIM_HELPED_TABLE(HELPED_, )
