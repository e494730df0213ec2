/* The bootstrap over MPI (bootstrap_mpi.c, which is built once per MPI). */
#ifndef RONDO_MPI_BOOTSTRAP_MPI_H
#define RONDO_MPI_BOOTSTRAP_MPI_H

#include <mpi.h>
#include "net/bootstrap/bootstrap.h"

/**
 * Create a bootstrap over the ranks of an intracommunicator. MPI must be initialised and not finalised. Not
 * collective, but open_start is.
 *
 * It calls MPI only from the threads that call its functions, and checks MPI's thread level first
 * (RONDO_INVALID_USAGE). b->idle makes progress in MPI; it stays valid after the bootstrap is closed and
 * after MPI_Finalize. It is NULL for one rank. Under MPI_THREAD_SERIALIZED, where another thread may be in
 * MPI while this one waits, b->idle_asks is 1.
 */
rondo_status rondo_bootstrap_mpi(MPI_Comm comm, struct rondo_bootstrap **b);
/** @return how many failed creations left requests that nobody can complete: MPI_Finalize may wait for their
 * late ranks. */
int rondo_bootstrap_mpi_graves(void);

#endif
