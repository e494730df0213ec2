/* The parts of gpu_bench: options (gpu_bench.c), the three tables (gpu_bench_run.c), and buffers with known
 * contents that are too large to be filled by the host (gpu_bench_data.c). */
#ifndef RONDO_TESTS_GPU_BENCH_H
#define RONDO_TESTS_GPU_BENCH_H

#include "gpu_world.h"
#include "mpi_values.h"

enum { BENCH_LIST = 16, BENCH_SAMPLES = 1000 };

struct bench_algo {
    const char *name;
    double (*user)(double n), (*slots)(double n); /* bytes that all n ranks move per byte of the call */
    double goal;                                  /* share of the lower bound to reach; 0: none */
    int goal_ranks;                               /* number of ranks for the goal; 0: any */
    int may_lack;                                 /* 1: a build or a device may not have it */
};

struct bench {
    int nranks, ranks[BENCH_LIST];
    int nbytes; /* 0: the default of the mode */
    size_t bytes[BENCH_LIST];
    int ntypes;
    rondo_dtype types[BENCH_LIST];
    const struct bench_algo *algo;
    const char *proto, *buffsize; /* NULL: the library chooses */
    int cached;
    long iters, timeout_s;
    int (*run)(const struct bench *b); /* @return the number of rows printed */
};

int bench_bandwidth(const struct bench *b);
int bench_latency(const struct bench *b);
int bench_one_rank(const struct bench *b);

/* Fill device memory with a rank's input for a sum, and wait for the stream. The first period comes from the host
 * and is doubled on the device. */
void bench_fill(const struct test_values *values, size_t size, int rank, void *there, size_t count,
                rondo_stream stream);
/* Check that device memory holds the sum: the first and last piece and some between. Counts a failure. */
void bench_check(const struct test_values *values, size_t size, int rank, const void *there, size_t count);

#endif
