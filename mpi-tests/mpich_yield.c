/*
 * A library that scripts/mpi-suites preloads into MPICH's programs, with Rondo and without. MPICH over UCX
 * waits without giving its core away: with more ranks than cores each call takes as many time slices as there
 * are ranks, and a test that passes alone runs into its time limit. With this library a rank that finds
 * nothing to do gives its core to the next.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>

/* Declared here, not included: wrappers of the launcher load this too, without UCX. */
unsigned ucp_worker_progress(void *worker);

static unsigned (*real_progress(void))(void *)
{
    void *symbol = dlsym(RTLD_NEXT, "ucp_worker_progress");
    void *library = symbol ? NULL : dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD); /* Python's own scope */
    if (library) {
        symbol = dlsym(library, "ucp_worker_progress");
    }
    return symbol ? (unsigned (*)(void *))symbol : (abort(), NULL);
}

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*real)(void *);
    if (!real) {
        real = real_progress();
    }
    unsigned count = real(worker);
    if (count == 0) {
        sched_yield();
    }
    return count;
}
