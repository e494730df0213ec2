/* What the files of shim_semantics share. */
#ifndef RONDO_TESTS_SHIM_SEMANTICS_H
#define RONDO_TESTS_SHIM_SEMANTICS_H

#include <mpi.h>

extern int rank, nranks;
/** Report a failure of the case that runs. */
void check(int ok, const char *text);
/** Enough calls for Rondo to take the communicator over. */
void warm(MPI_Comm comm);

void iallreduce_is_right(void);
void gather_in_place_keeps_every_block(void);
void a_broadcast_needs_no_more_of_the_root(void);
void reduce_scatter_takes_any_blocks(void);
void freed_communicators_leave_nothing(void);

#endif
