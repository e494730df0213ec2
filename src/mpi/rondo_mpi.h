/* Rondo for MPI programs: the only public header that knows MPI. Link with pkg-config --libs rondo. */
#ifndef RONDO_MPI_RONDO_MPI_H
#define RONDO_MPI_RONDO_MPI_H

#include <mpi.h>
#include "rondo.h"

/* An MPI_Comm is a pointer in one MPI and a number in another: the function has the name of the MPI that the
 * library was built for, and a program of the other one does not link. */
#ifdef OPEN_MPI
#define rondo_comm_create rondo_comm_create_openmpi
#else
#define rondo_comm_create rondo_comm_create_mpich
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Create a communicator over the ranks of an MPI intracommunicator. Collective over @a mpi_comm.
 *
 * Communication over MPI happens during this call only (with config.blocking 0: also inside
 * rondo_comm_async_error until creation is complete; where MPI was initialised for one thread, in the thread
 * that called this, others only look on), on a duplicate of @a mpi_comm. Collectives use none. A rank that
 * waits long inside one moves the program's own MPI by MPI_Iprobe on MPI_COMM_WORLD, which receives nothing:
 * with MPI_THREAD_SINGLE and FUNNELED from MPI's main thread only, with MPI_THREAD_SERIALIZED never. In a
 * group this returns before creation, which happens in rondo_group_end; if that fails *comm is dead and there
 * is nothing to destroy. When MPI is not initialised it is initialised for the program, and finalised at exit
 * if every communicator was destroyed. Errors of MPI come back as status. The wait for late ranks ends after
 * RONDO_INIT_TIMEOUT with an error that names them, on every rank that came.
 *
 * @param config  NULL: defaults.
 * @param comm    Set on success (and, with blocking 0, on RONDO_IN_PROGRESS). Owned by the caller until
 * rondo_comm_destroy or rondo_comm_abort.
 * @return RONDO_INVALID_ARGUMENT for MPI_COMM_NULL, an intercommunicator or a bad config; RONDO_INVALID_USAGE
 * after MPI_Finalize or in a thread that may not call MPI; RONDO_TIMEOUT after RONDO_INIT_TIMEOUT; else the
 * first error of any rank, the same on all.
 */
rondo_status rondo_comm_create(MPI_Comm mpi_comm, const rondo_config *config, rondo_comm **comm);

#ifdef __cplusplus
}
#endif
#endif
