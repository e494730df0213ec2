#include "base/thread.h"

#include <signal.h>
#include <string.h>

#include "base/log.h"

static const size_t stack_bytes = 8 << 20;

rondo_status rondo_thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_t started;
    sigset_t all, before;
    int error;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a new thread inherits the mask */
    error = pthread_create(&started, &attr, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (error != 0) {
        return rondo_fail_quiet(
            RONDO_SYSTEM_ERROR,
            "cannot start the thread %s on %s: %s; raise the limit of processes (ulimit -u, "
            "pids cgroup)",
            name, rondo_log_host(), strerror(error));
    }
    pthread_setname_np(started, name);
    *thread = started;
    return RONDO_SUCCESS;
}
