#include "mpi/comm_mpi.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_mpi_guard *guards; /* under way */

/* @return one on the communicator; NULL: none */
static const struct rondo_mpi_guard *guard_on(MPI_Comm comm)
{
    const struct rondo_mpi_guard *guard = guards;
    while (guard != NULL && guard->comm != comm) {
        guard = guard->next;
    }
    return guard;
}

void rondo_mpi_guard_enter(struct rondo_mpi_guard *guard, MPI_Comm comm)
{
    const struct rondo_mpi_guard *other;
    pthread_mutex_lock(&lock);
    other = guard_on(comm);
    if (other != NULL) {
        guard->saved = other->saved;
    } else {
        PMPI_Comm_get_errhandler(comm, &guard->saved);
        PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    guard->comm = comm;
    guard->next = guards;
    guards = guard;
    pthread_mutex_unlock(&lock);
}

void rondo_mpi_guard_leave(struct rondo_mpi_guard *guard)
{
    struct rondo_mpi_guard **link = &guards;
    pthread_mutex_lock(&lock);
    while (*link != guard) {
        link = &(*link)->next;
    }
    *link = guard->next;
    if (guard_on(guard->comm) == NULL) {
        PMPI_Comm_set_errhandler(guard->comm, guard->saved);
        PMPI_Errhandler_free(&guard->saved);
    }
    pthread_mutex_unlock(&lock);
}

int rondo_mpi_rank_translate(MPI_Comm from, int rank, MPI_Comm into)
{
    MPI_Group groups[2];
    int to = MPI_UNDEFINED;
    PMPI_Comm_group(from, &groups[0]);
    PMPI_Comm_group(into, &groups[1]);
    PMPI_Group_translate_ranks(groups[0], 1, &rank, groups[1], &to);
    PMPI_Group_free(&groups[1]);
    PMPI_Group_free(&groups[0]);
    return to;
}
