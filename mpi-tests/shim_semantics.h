/* What the files of shim_semantics share. */
#ifndef RONDO_TESTS_SHIM_SEMANTICS_H
#define RONDO_TESTS_SHIM_SEMANTICS_H

#include <mpi.h>

extern int rank, nranks;
/** Report a failure of the case that runs. */
void check(int ok, const char *text);
/** Enough calls for Rondo to take the communicator over. */
void warm(MPI_Comm comm);

/* shim_complaints.c */
void iallreduce_is_right(void);
void gather_in_place_keeps_every_block(void);
void a_broadcast_needs_no_more_of_the_root(void);
void reduce_scatter_takes_any_blocks(void);
void freed_communicators_leave_nothing(void);
void a_communicator_that_goes_late_leaves_nothing(void);
void callbacks_may_use_a_communicator_that_goes(void);
void an_error_handler_may_not_return(void);
void types_may_have_large_counts(void);
/* shim_blocks.c */
void one_rank_has_a_derived_type_in_a_v_collective(void);
void one_address_has_nothing_to_send_and_receive(void);
void one_buffer_has_disjoint_parts(void);
void only_the_root_knows_the_counts(void);
void an_element_may_be_larger_than_1_gib(void);
void blocks_with_gaps_outlive_their_communicator(void);
/* shim_persistent.c */
void the_programs_attributes_are_left_alone(void);
void persistent_calls_start_in_any_order(void);
void a_persistent_call_outlives_its_communicator(void);
void a_failed_persistent_call_calls_its_error_handler(void);
void freed_persistent_calls_make_room(void);
/* shim_threads.c */
void threads_use_different_communicators(void);
void a_wait_meets_requests_that_end(void);

#endif
