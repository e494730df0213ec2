/*
 * Functions that a waiting rank must call so that others can move on: net proxies, the control plane, the
 * program's MPI. One list per communicator, filled at creation and constant afterwards; only the waiting
 * thread runs it.
 */
#ifndef RONDO_BASE_PROGRESS_H
#define RONDO_BASE_PROGRESS_H

#include "base/status.h"

enum { RONDO_MAX_HOOKS = 8 };

struct rondo_hook {
    const char *name;
    /* Make what progress is possible without blocking, and set *moved if there was any. An error ends the
     * wait. */
    rondo_status (*progress)(void *arg, int *moved);
    void *arg;
    int idle_only; /* 1: only in long waits (the program's MPI) */
};

struct rondo_progress {
    struct rondo_hook hook[RONDO_MAX_HOOKS];
    int nhooks;
};

/** @return RONDO_INTERNAL_ERROR when the list is full. */
rondo_status rondo_progress_add(struct rondo_progress *progress, struct rondo_hook hook);
/** Run the hooks for all waits (idle 0), or those for long waits (1). */
rondo_status rondo_progress_run(struct rondo_progress *progress, int idle, int *moved);

#endif
