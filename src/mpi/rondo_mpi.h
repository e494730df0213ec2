/* Rondo for MPI programs: the only public header that includes mpi.h. Link with pkg-config --libs rondo. */
#ifndef RONDO_MPI_RONDO_MPI_H
#define RONDO_MPI_RONDO_MPI_H

#include <mpi.h>
#include "rondo.h"

/* MPI_Comm is a pointer in Open MPI, a number in MPICH, and has values of its own in the ABI of MPI 5. So the
 * functions' names contain the MPI that the library was built for, and a program built with another does not
 * link. */
#ifdef OPEN_MPI
#define rondo_comm_create rondo_comm_create_openmpi
#define rondo_comm_create_f rondo_comm_create_f_openmpi
#elif defined MPI_ABI_VERSION && !defined MPICH_VERSION && !defined I_MPI_VERSION
#define rondo_comm_create rondo_comm_create_mpiabi
#define rondo_comm_create_f rondo_comm_create_f_mpiabi
#define RONDO_MPI_FINT_ int /* the ABI has no MPI_Fint */
#else
#define rondo_comm_create rondo_comm_create_mpich
#define rondo_comm_create_f rondo_comm_create_f_mpich
#endif

#ifndef RONDO_MPI_FINT_
#define RONDO_MPI_FINT_ MPI_Fint
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Create a communicator over the ranks of an MPI intracommunicator. Collective over @a mpi_comm.
 *
 * Rondo communicates over MPI during this call only, by non-blocking collectives on @a mpi_comm. It makes no
 * communicator and runs none of the program's attribute callbacks. With config.blocking 0, or in a group, it
 * goes on inside rondo_comm_async_error or rondo_group_end until creation is complete, and @a mpi_comm must
 * live until then. The ranks greet each other over MPI, beginning in this call; the rest runs over TCP
 * connections of their own (RONDO_SOCKET_IFNAME), which hold some descriptors until creation is complete.
 * Several such creations may overlap on one @a mpi_comm. Below MPI_THREAD_SERIALIZED only the thread that
 * made this call goes on, while others merely see the state; else any thread does, one at a time. In
 * rondo_comm_async_error of another communicator it goes on where a rank that waits makes progress in the
 * program's MPI (below).
 *
 * Collectives do not communicate over MPI. A rank that waits long inside one, or in a split, makes progress
 * in the program's own MPI by MPI_Request_get_status, which receives nothing: with MPI_THREAD_SINGLE
 * and FUNNELED from MPI's main thread only. With MPI_THREAD_SERIALIZED another thread may be in MPI, so there
 * it does so only if config.mpi_progress is 1: no other thread uses MPI while this one is in a call of Rondo.
 * Without it, a rank that waits in Rondo for one that is in MPI_Send to it may wait for ever.
 *
 * In a group this returns before creation, which happens in rondo_group_end; if that fails, *comm is invalid
 * and there is nothing to destroy. If MPI is not initialised, Rondo initialises it, and finalises it at exit
 * if every communicator was destroyed. MPI's errors come back as status.
 *
 * The wait for late ranks ends after config.init_timeout_ms (RONDO_INIT_TIMEOUT) with an error that names
 * them, on every rank that arrived. The death of a rank that has arrived ends it at once: ranks of its node
 * see it and tell the others. A stopped one counts as dead after RONDO_DEAD_AFTER. After such an error, small
 * messages of Rondo with a tag just below MPI_TAG_UB may be left on @a mpi_comm.
 *
 * @param config  NULL: defaults.
 * @param comm    Set on success (and, with blocking 0, on RONDO_IN_PROGRESS). The caller owns it until
 *                rondo_comm_destroy or rondo_comm_abort.
 * @return RONDO_INVALID_ARGUMENT for MPI_COMM_NULL, an intercommunicator or a bad config; RONDO_INVALID_USAGE
 *         after MPI_Finalize or in a thread that may not call MPI; RONDO_TIMEOUT after the limit;
 *         RONDO_REMOTE_ERROR if a rank died; else the first error of any rank, which all ranks return.
 */
rondo_status rondo_comm_create(MPI_Comm mpi_comm, const rondo_config *config, rondo_comm **comm);
/**
 * The same for a communicator's handle in Fortran, for languages that have this number rather than an
 * MPI_Comm: an integer of "use mpi", MPI_VAL of mpi_f08, comm.py2f() of mpi4py.
 */
rondo_status rondo_comm_create_f(RONDO_MPI_FINT_ mpi_comm, const rondo_config *config, rondo_comm **comm);

#ifdef __cplusplus
}
#endif
#endif
