/* The parts of gpu_bench: options (gpu_bench.c), the three tables (gpu_bench_run.c), buffers of known
 * contents that are too large to fill from the host (gpu_bench_data.c). */
#ifndef RONDO_TESTS_GPU_BENCH_H
#define RONDO_TESTS_GPU_BENCH_H

#include "gpu_world.h"
#include "mpi_values.h"

enum { BENCH_LIST = 16, BENCH_SAMPLES = 1000 };

struct bench_algo {
    const char *name;
    double (*user)(double n), (*slots)(double n); /* bytes moved for a byte of the call, by all of n ranks */
    double goal;                                  /* of the floor that is to be reached; 0: none */
    int goal_ranks;                               /* with so many ranks; 0: any number */
    int may_lack;                                 /* a build or a device may be without it */
};

struct bench {
    int nranks, ranks[BENCH_LIST];
    int nbytes; /* 0: the mode's own */
    size_t bytes[BENCH_LIST];
    int ntypes;
    rondo_dtype types[BENCH_LIST];
    const struct bench_algo *algo;
    const char *proto, *buffsize; /* NULL: as the library chooses */
    int cached;
    long iters, timeout_s;
    int (*run)(const struct bench *b); /* @return rows that came out */
};

int bench_bandwidth(const struct bench *b);
int bench_latency(const struct bench *b);
int bench_one_rank(const struct bench *b);

/* Fill device memory with what a rank gives to a sum of elements of `size` bytes, on this stream and to its
 * end: a period from the host, doubled on the device. */
void bench_fill(const struct test_values *values, size_t size, int rank, void *there, size_t count,
                rondo_stream stream);
/* Does it hold the sum? Pieces of it are looked at: first, last, and some between. A failure is counted. */
void bench_check(const struct test_values *values, size_t size, int rank, const void *there, size_t count);

#endif
