/* What the files of mpi_comm share. */
#ifndef RONDO_TESTS_MPI_COMM_H
#define RONDO_TESTS_MPI_COMM_H

#include "mpi_calls.h"

void expect_status(rondo_status got, rondo_status want, const rondo_comm *comm, const char *what);
/* Check that the communicator carries data: a reduction and a broadcast. */
void verify(rondo_comm *comm, const char *what);
rondo_comm *create(MPI_Comm mpi_comm);
void destroy(rondo_comm *comm);

/* mpi_comm_children.c */
void split_agrees_with_mpi(void);
void children_outlive_their_parents(void);
void shrink_leaves_a_rank_out(void);
void children_have_the_model_of_their_parent(void);
void creations_are_polled_in_any_order(void);

#endif
