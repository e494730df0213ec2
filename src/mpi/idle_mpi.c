/*
 * MPI has no function that only makes progress. MPI_Iprobe makes none where a message waits that it can
 * report, so a program whose message comes early would stop MPI. MPI_Request_get_status of a request that is
 * not complete always does. The request is a generalized one, which nobody completes before MPI_Finalize.
 */
#include "mpi/idle_mpi.h"

#include <mpi.h>
#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    MPI_Request request;
    int state; /* 0: not made yet; 1: made; -1: cannot be made, or MPI_Finalize has begun */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int query(void *arg, MPI_Status *status)
{
    (void)arg;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int nothing(void *arg)
{
    (void)arg;
    return MPI_SUCCESS;
}

static int cancel(void *arg, int complete)
{
    (void)arg, (void)complete;
    return MPI_SUCCESS;
}

/* MPI_Finalize begins. */
static int self_deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    pthread_mutex_lock(&process.lock);
    if (process.state == 1) {
        __atomic_store_n(&process.state, -1, __ATOMIC_RELEASE);
        PMPI_Grequest_complete(process.request);
        PMPI_Wait(&process.request, MPI_STATUS_IGNORE);
    }
    pthread_mutex_unlock(&process.lock);
    return MPI_SUCCESS;
}

static int make(void)
{
    int key = MPI_KEYVAL_INVALID, made = -1;
    if (PMPI_Grequest_start(query, nothing, cancel, NULL, &process.request) == MPI_SUCCESS) {
        made = 1;
        if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, self_deleted, &key, NULL) == MPI_SUCCESS) {
            PMPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
        }
    }
    return made;
}

void rondo_mpi_progress(void)
{
    int finalized = 0, flag;
    PMPI_Finalized(&finalized);
    if (finalized) {
        return;
    }
    if (__atomic_load_n(&process.state, __ATOMIC_ACQUIRE) == 0) {
        pthread_mutex_lock(&process.lock);
        if (process.state == 0) {
            __atomic_store_n(&process.state, make(), __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&process.lock);
    }
    if (__atomic_load_n(&process.state, __ATOMIC_ACQUIRE) > 0) {
        PMPI_Request_get_status(process.request, &flag, MPI_STATUS_IGNORE);
    } else { /* on MPI_COMM_SELF, MPICH would look no further than this process */
        PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}
