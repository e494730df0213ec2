/*
 * A thread that moves Rondo's non-blocking calls while this process waits in a function of MPI that does not:
 * another rank may need our part of such a call before it lets MPI go on. Begun at the first such wait; it
 * sleeps when nobody waits. It makes no call of MPI, so that any thread level will do. Plain types: for files
 * without mpi.h.
 */
#ifndef RONDO_SHIM_MPI_HELPER_H
#define RONDO_SHIM_MPI_HELPER_H

/* Calls under way that MPI's waits do not move; 0 where they do. */
extern int shim_moving __attribute__((visibility("hidden")));

/** Move the calls under way, and complete the requests of those that have ended. @return how many */
int shim_move(void) __attribute__((visibility("hidden")));

void shim_help_begin_slow(void) __attribute__((visibility("hidden")));
/** The wait is over. helped: what shim_help_begin returned. */
void shim_help_end(int helped) __attribute__((visibility("hidden")));
static inline int shim_help_is_needed(void)
{
    return __builtin_expect(__atomic_load_n(&shim_moving, __ATOMIC_RELAXED) != 0, 0);
}
/** This thread is about to wait in MPI. @return for shim_help_end */
static inline int shim_help_begin(void)
{
    if (!shim_help_is_needed()) {
        return 0;
    }
    shim_help_begin_slow();
    return 1;
}

#endif
