/* Rondo for MPI programs: the only public header that includes mpi.h. Link with pkg-config --libs rondo. */
#ifndef RONDO_MPI_RONDO_MPI_H
#define RONDO_MPI_RONDO_MPI_H

#include <mpi.h>
#include "rondo.h"

/* MPI_Comm is a pointer in Open MPI and a number in MPICH. So the function's name contains the MPI that the
 * library was built for, and a program built with the other one does not link. */
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
 * Rondo communicates over MPI during this call only, on a duplicate of @a mpi_comm. With config.blocking 0
 * it also does so inside rondo_comm_async_error until creation is complete; if MPI was initialised for one
 * thread, only in the thread that made this call, while others merely see the state.
 *
 * Collectives do not communicate over MPI. A rank that waits long inside one makes progress in the program's
 * own MPI by MPI_Iprobe on MPI_COMM_WORLD, which receives nothing: with MPI_THREAD_SINGLE and FUNNELED from
 * MPI's main thread only, with MPI_THREAD_SERIALIZED never.
 *
 * In a group this returns before creation, which happens in rondo_group_end; if that fails, *comm is invalid
 * and there is nothing to destroy. If MPI is not initialised, Rondo initialises it, and finalises it at exit
 * if every communicator was destroyed. MPI's errors come back as status. The wait for late ranks ends after
 * RONDO_INIT_TIMEOUT with an error that names them, on every rank that arrived.
 *
 * @param config  NULL: defaults.
 * @param comm    Set on success (and, with blocking 0, on RONDO_IN_PROGRESS). The caller owns it until
 *                rondo_comm_destroy or rondo_comm_abort.
 * @return RONDO_INVALID_ARGUMENT for MPI_COMM_NULL, an intercommunicator or a bad config; RONDO_INVALID_USAGE
 *         after MPI_Finalize or in a thread that may not call MPI; RONDO_TIMEOUT after RONDO_INIT_TIMEOUT;
 *         else the first error of any rank, which all ranks return.
 */
rondo_status rondo_comm_create(MPI_Comm mpi_comm, const rondo_config *config, rondo_comm **comm);

#ifdef __cplusplus
}
#endif
#endif
