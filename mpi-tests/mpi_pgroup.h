/* Shared by mpi_pgroup's parts: data on the host or a GPU, and calls. */
#ifndef RONDO_TESTS_MPI_PGROUP_H
#define RONDO_TESTS_MPI_PGROUP_H

#include "mpi_common.h"
#include "mpi_device.h"
#include "rondo_pgroup.h"

enum { PG_COUNT = 3000 };

extern int pg_on_gpu;
extern rondo_stream pg_stream; /* on a GPU */

/* PG_COUNT doubles where calls want them, the i-th `base` + i. */
double *pg_data(double base);
/* Are they `base` + i * `step`? Waits for the stream. */
int pg_is(double *data, double base, double step);
void pg_free(double *data);

#define MUST(call) TEST_MUST(call, NULL)

/* Settings with the tests' stream. */
rondo_pgroup_opts pg_opts(int64_t timeout_ms);
rondo_pgroup *pg_group_new(rondo_pgroup *parent, const int *ranks, int n, const rondo_pgroup_config *config);
/* An all_reduce of PG_COUNT doubles in place. */
rondo_status pg_sum_start(rondo_pgroup *group, double *data, rondo_pgroup_work **work);
/* Wait for the work, and free it. */
void pg_finish(rondo_pgroup_work *work);
/* A sum over a group, whose ranks contribute their numbers in it. */
void pg_check_sum(rondo_pgroup *group);

/* mpi_pgroup_messages.c */
void pg_pairs(rondo_pgroup *world);
void pg_message_cases(rondo_pgroup *world);
/* mpi_pgroup_nccl.c: what ProcessGroupNCCL does, through the NCCL face. */
void pg_nccl_cases(void);

#endif
