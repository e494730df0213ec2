/*
 * A workaround that tests on several hosts preload into MPICH programs (fault_common.sh). With MPICH before
 * 4.2 over UCX's TCP, ranks sometimes hang in MPI_Finalize, with or without Rondo (MPI_Init, MPI_Barrier,
 * MPI_Finalize suffice). A rank disconnects, for which its peers must answer a flush, and then blocks in a
 * PMI barrier, where it answers nobody. A peer that disconnects later waits for it for ever
 * (github.com/pmodels/mpich/pull/6596). With this library a rank makes progress on UCX while it waits for the
 * barrier.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* Declared here, not included: wrappers of the launcher (sh, taskset) load this too, without MPI and UCX. */
int MPI_Finalize(void);
unsigned ucp_worker_progress(void *worker);
void ucp_worker_destroy(void *worker);
__attribute__((weak)) int PMPI_Finalize(void);

static void *answering; /* the worker, from the first disconnect until it is destroyed */
static int finalizing;

static void *next(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    return symbol ? symbol : (abort(), NULL);
}

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*real)(void *);
    if (!real) {
        real = (unsigned (*)(void *))next("ucp_worker_progress");
    }
    if (finalizing) {
        answering = worker;
    }
    return real(worker);
}

void ucp_worker_destroy(void *worker)
{
    answering = NULL;
    ((void (*)(void *))next("ucp_worker_destroy"))(worker);
}

static int is_launcher(int fd)
{
    const char *text = getenv("PMI_FD");
    return text && strtol(text, NULL, 10) == fd;
}

ssize_t read(int fd, void *data, size_t size)
{
    static ssize_t (*real)(int, void *, size_t);
    if (!real) {
        real = (ssize_t(*)(int, void *, size_t))next("read");
    }
    if (answering && is_launcher(fd)) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        while (poll(&readable, 1, 1) == 0) {
            ucp_worker_progress(answering);
        }
    }
    return real(fd, data, size);
}

int MPI_Finalize(void)
{
    finalizing = 1;
    return PMPI_Finalize();
}
