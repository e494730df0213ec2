/* Parts of gpu_bench: what the command line says, tables, calls on known data, and the modes. */
#ifndef RONDO_TESTS_GPU_BENCH_H
#define RONDO_TESTS_GPU_BENCH_H

#include "gpu_world.h"
#include "mpi_values.h"

enum { BENCH_LIST = 16, BENCH_SAMPLES = 1000, BENCH_IN_A_ROW = 50, BENCH_WARM = 3 };

struct bench_algo {
    const char *name;
    double (*user)(double n), (*slots)(double n); /* bytes that all n ranks move per byte of the call */
    double goal;                                  /* share of the lower bound to reach; 0: none */
    int goal_ranks;                               /* number of ranks for the goal; 0: any */
    int may_lack;                                 /* 1: a build or a device may not have it */
};

struct gpu_nccl; /* another library that carries the calls */

struct bench {
    int nranks, ranks[BENCH_LIST];
    int nbytes; /* 0: the default of the mode */
    size_t bytes[BENCH_LIST];
    int ntypes;
    rondo_dtype types[BENCH_LIST];
    const struct bench_algo *algo;
    const char *proto, *buffsize; /* NULL: the library chooses */
    const char *nccl;             /* a file: NCCL carries the calls; NULL: Rondo */
    const char *rows;             /* a file that gets a line for each measurement; NULL: none */
    int cached, mpi;
    long iters, timeout_s, seconds;
    int (*run)(const struct bench *b); /* @return the number of rows printed */
};

/* Shared by the ranks of a process. */
struct table {
    const struct bench *b;
    double copy; /* bytes per second, read plus written */
    const struct test_values *values;
    struct gpu_nccl *nccl;
    int rows;
    double samples[BENCH_SAMPLES];
};

/* A rank's buffers for a row. */
struct buffers {
    void *send, *recv, *handle[2];
    size_t bytes, count;
    rondo_dtype type;
};

/* ---- gpu_bench_calls.c ---- */

double bench_median(double *samples, long n);
const char *bench_size_text(size_t bytes, char text[24]);
/** "met" or "missed"; "" without a goal. */
const char *bench_met(double goal, int good);
/** What carries the calls, as tables name it: "ring simple", "NCCL 2.30.7". */
const char *bench_name(const struct table *t, char text[48]);

/** Write a measurement to the file of --rows: what was measured and its lower bound, both in us. floor_us 0:
 * there is none. Call it on rank 0. */
void bench_note(const struct bench *b, const char *what, int nranks, size_t bytes, double us, double floor_us,
                const char *floor);

/** @return the median seconds of one of several copies on the device. */
double bench_copies(CUdeviceptr to, CUdeviceptr from, size_t bytes, int copies, rondo_stream stream);
/** Collective. Measure on rank 0, alone, how fast the device copies, for t->copy. */
void bench_copy(const struct gpu_rank *r, struct table *t, size_t bytes, long iters);
/** Bytes that all ranks move in a call, over what a copy moves in a second. */
double bench_floor(const struct table *t, int nranks, size_t bytes);

struct buffers bench_buffers(const struct gpu_rank *r, size_t bytes, rondo_dtype type);
void bench_buffers_free(const struct gpu_rank *r, struct buffers *x);
/** Issue calls and wait for them. */
void bench_call(const struct gpu_rank *r, const struct buffers *x, int calls);
/** The first call of a row, with known inputs and a checked result. @return 0 if the row is skipped. */
int bench_first_call(const struct gpu_rank *r, const struct buffers *x);
/** Check the result of the last call. */
void bench_check(const struct gpu_rank *r, const struct buffers *x);
/** Collective. @return the median time of a call in seconds, slowest rank; valid on rank 0. */
double bench_time(const struct gpu_rank *r, const struct buffers *x, int calls, double *samples, long iters);

/** The command line's, with the mode's sizes if it names none. */
struct bench bench_with_sizes(const struct bench *b, const size_t *bytes, int n);
/** Run fn with each number of ranks. @return the rows printed. */
int bench_run(const struct bench *b, gpu_rank_fn *fn, struct table *t);

/* ---- modes; @return the number of rows printed ---- */

int bench_bandwidth(const struct bench *b);
int bench_latency(const struct bench *b);
int bench_one_rank(const struct bench *b);
int bench_overlap(const struct bench *b);
/* gpu_bench_torn.c */
int bench_torn(const struct bench *b);

/* ---- gpu_nccl.c ---- */

/** Open the library, and make a communicator of mpirun's processes. @return NULL, after a line that says why
 * it refuses, on every rank. */
struct gpu_nccl *gpu_nccl_open(const char *file);
void gpu_nccl_close(struct gpu_nccl *nccl);
/** "NCCL 2.30.7" */
const char *gpu_nccl_name(const struct gpu_nccl *nccl);
/** A sum. */
void gpu_nccl_all_reduce(struct gpu_nccl *nccl, const struct buffers *x, rondo_stream stream);

#endif
