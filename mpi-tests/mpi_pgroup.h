/* Shared by mpi_pgroup's two halves: data on the host or a GPU. */
#ifndef RONDO_TESTS_MPI_PGROUP_H
#define RONDO_TESTS_MPI_PGROUP_H

#include "mpi_common.h"
#include "mpi_device.h"

enum { PG_COUNT = 3000 };

extern int pg_on_gpu;
extern rondo_stream pg_stream; /* on a GPU */

/* PG_COUNT doubles where calls want them, the i-th `base` + i. */
double *pg_data(double base);
/* Are they `base` + i * `step`? Waits for the stream. */
int pg_is(double *data, double base, double step);
void pg_free(double *data);

/* mpi_pgroup_nccl.c: what ProcessGroupNCCL does, through the NCCL face. */
void pg_nccl_cases(void);

#endif
