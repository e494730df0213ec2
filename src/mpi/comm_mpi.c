#include "mpi/comm_mpi.h"

void rondo_mpi_guard_enter(struct rondo_mpi_guard *guard, MPI_Comm comm)
{
    guard->comm = comm;
    PMPI_Comm_get_errhandler(comm, &guard->saved);
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

void rondo_mpi_guard_leave(struct rondo_mpi_guard *guard)
{
    PMPI_Comm_set_errhandler(guard->comm, guard->saved);
    PMPI_Errhandler_free(&guard->saved);
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
