/* Communicators of MPI: error handlers, and who is who. */
#ifndef RONDO_MPI_COMM_MPI_H
#define RONDO_MPI_COMM_MPI_H

#include <mpi.h>

/*
 * MPI reports errors to the handler of the program's communicator, which by default aborts the program. Rondo
 * wants them back as codes, so it replaces the handler during each call. Several threads may have a guard on
 * one communicator: the last that ends it gives the program's handler back.
 */
struct rondo_mpi_guard {
    struct rondo_mpi_guard *next;
    MPI_Comm comm;
    MPI_Errhandler saved;
};
void rondo_mpi_guard_enter(struct rondo_mpi_guard *guard, MPI_Comm comm);
void rondo_mpi_guard_leave(struct rondo_mpi_guard *guard);

/** @return the rank that a rank of `from` has in `into`, or MPI_UNDEFINED. */
int rondo_mpi_rank_translate(MPI_Comm from, int rank, MPI_Comm into);

#endif
