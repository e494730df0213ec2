/* Other processes of this pid namespace: do they run? */
#ifndef RONDO_BASE_PROCESS_H
#define RONDO_BASE_PROCESS_H

#include "base/types.h"

enum rondo_process_state {
    RONDO_PROCESS_RUNS,
    RONDO_PROCESS_STOPPED, /* by a signal, such as SIGSTOP */
    RONDO_PROCESS_GONE     /* it has ended, or another process has its pid now */
};

/** @return when a process started, in clock ticks since boot: it differs from that of a later process with
 * the same pid; 0: unknown. Allocates nothing. */
uint64_t rondo_process_start(int pid);
/** @return a process's parent; 0: unknown. Allocates nothing. */
int rondo_process_parent(int pid);
/** @param start  as rondo_process_start gave it; 0: unknown. Allocates nothing. */
enum rondo_process_state rondo_process_look(int pid, uint64_t start);

#endif
