/* Progress in the program's MPI while a call of Rondo waits. */
#ifndef RONDO_MPI_IDLE_MPI_H
#define RONDO_MPI_IDLE_MPI_H

/**
 * Make progress in MPI, and receive nothing. From any thread that may call MPI; does nothing after
 * MPI_Finalize.
 */
void rondo_mpi_progress(void);

#endif
