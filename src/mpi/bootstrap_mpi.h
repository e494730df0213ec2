/* The bootstrap over MPI: the private face of bootstrap_mpi.c, which is built once per MPI. */
#ifndef RONDO_MPI_BOOTSTRAP_MPI_H
#define RONDO_MPI_BOOTSTRAP_MPI_H

#include <mpi.h>
#include "net/bootstrap/bootstrap.h"

/**
 * A bootstrap over the ranks of an intracommunicator. MPI must be initialised and not finalised. Not
 * collective; open_start is.
 *
 * All its MPI calls come from its functions' callers. They are legal for MPI's thread level, which is checked
 * (RONDO_INVALID_USAGE). b->idle drives MPI's progress; it may be called for ever, whatever became of the
 * bootstrap and of MPI. It is NULL for one rank, and under MPI_THREAD_SERIALIZED, where another thread may be
 * in MPI while this one waits.
 */
rondo_status rondo_bootstrap_mpi(MPI_Comm comm, struct rondo_bootstrap **b);
/** Requests of failed creations that no one can wait for: MPI_Finalize may wait for their late ranks. */
int rondo_bootstrap_mpi_graves(void);

#endif
