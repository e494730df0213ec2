/* Threads of the library. */
#ifndef RONDO_BASE_THREAD_H
#define RONDO_BASE_THREAD_H

#include <pthread.h>
#include "base/status.h"

/**
 * Start a joinable thread that runs main(arg). It blocks all signals, which are for the program's own
 * threads, and its stack has 8 MiB whatever `ulimit -s` says.
 * @param name as ps -L shows it, at most 15 bytes: "rondo-shm"
 * @return RONDO_SYSTEM_ERROR if the system has no thread for us. Its sentence is not logged: the caller adds
 * what the thread was for, or calls rondo_fail_aloud.
 */
rondo_status rondo_thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *arg);

#endif
