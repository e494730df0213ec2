#include "mpi/comm_mpi.h"

void rondo_mpi_guard_enter(struct rondo_mpi_guard *guard, MPI_Comm user, int n)
{
    *guard = (struct rondo_mpi_guard){ .comm = { user, MPI_COMM_WORLD, MPI_COMM_SELF }, .n = n };
    for (int i = 0; i < guard->n; i++) {
        PMPI_Comm_get_errhandler(guard->comm[i], &guard->saved[i]);
        PMPI_Comm_set_errhandler(guard->comm[i], MPI_ERRORS_RETURN);
    }
}

void rondo_mpi_guard_leave(struct rondo_mpi_guard *guard)
{
    for (int i = guard->n - 1; i >= 0; i--) { /* in reverse: the program's may be one of the others */
        PMPI_Comm_set_errhandler(guard->comm[i], guard->saved[i]);
        PMPI_Errhandler_free(&guard->saved[i]);
    }
}

/* Join the communicators of two blocks of ranks, of which `other` is the first rank of the other one. */
static int blocks_join(MPI_Comm from, int other, int is_second, int tag, MPI_Comm *block)
{
    MPI_Comm both, merged;
    int rc = PMPI_Intercomm_create(*block, 0, from, other, tag, &both);
    if (rc != MPI_SUCCESS) {
        return rc;
    }
    rc = PMPI_Intercomm_merge(both, is_second, &merged);
    PMPI_Comm_free(&both);
    if (rc == MPI_SUCCESS && *block != MPI_COMM_SELF) {
        PMPI_Comm_free(block);
    }
    *block = rc == MPI_SUCCESS ? merged : *block;
    return rc;
}

int rondo_mpi_comm_build(MPI_Comm from, int tag, MPI_Comm *made)
{
    int rank, n, rc = MPI_SUCCESS;
    PMPI_Comm_rank(from, &rank);
    PMPI_Comm_size(from, &n);
    *made = MPI_COMM_SELF;
    for (int width = 1; width < n && rc == MPI_SUCCESS; width *= 2) {
        int first = rank / (2 * width) * 2 * width, second = first + width;
        if (second < n) {
            rc = blocks_join(from, rank < second ? second : first, rank >= second, tag, made);
        }
    }
    return rc;
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
