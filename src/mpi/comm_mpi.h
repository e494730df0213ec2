/* Communicators of MPI: error handlers, who is who, and making one without attribute callbacks. */
#ifndef RONDO_MPI_COMM_MPI_H
#define RONDO_MPI_COMM_MPI_H

#include <mpi.h>

/*
 * MPI reports errors to the handler of the program's communicator, or, while it makes one, of MPI_COMM_WORLD
 * or MPI_COMM_SELF (MPICH, out of communicators), which by default aborts the program. Rondo wants them back
 * as codes, so it replaces these handlers during each call. While a helper runs, its handlers are in place.
 */
struct rondo_mpi_guard {
    MPI_Comm comm[3];
    MPI_Errhandler saved[3];
    int n;
};

/** Replace the handlers of the first n of: the program's communicator, MPI_COMM_WORLD, MPI_COMM_SELF. */
void rondo_mpi_guard_enter(struct rondo_mpi_guard *guard, MPI_Comm user, int n);
void rondo_mpi_guard_leave(struct rondo_mpi_guard *guard);

/** @return the rank that a rank of `from` has in `into`, or MPI_UNDEFINED. */
int rondo_mpi_rank_translate(MPI_Comm from, int rank, MPI_Comm into);

/**
 * Make a communicator of the same ranks in the same order; all of them call it, and it waits for them. Blocks
 * of 1, 2, 4 .. ranks join, so that only messages with this tag travel on `from`. (MPI_Comm_create_group of
 * Open MPI 4.1 copies attributes.)
 * @return MPI's error code
 */
int rondo_mpi_comm_build(MPI_Comm from, int tag, MPI_Comm *made);

#endif
