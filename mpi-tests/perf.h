/*
 * The *_perf programs: one body, built into each with the name of its collective (perf_prog.c). Options,
 * columns, factors and exit codes follow nccl-tests; what differs, and why, is in README.md.
 */
#ifndef RONDO_TESTS_PERF_H
#define RONDO_TESTS_PERF_H

#include "mpi_calls.h"
#include "start.h"

enum perf_exit {
    PERF_OK = 0,
    PERF_INTERNAL = 1,
    PERF_LIBRARY = 3,
    PERF_TIMEOUT = 4,
    PERF_USAGE = 6,
    PERF_DATA = 7,
    PERF_HELP = -1
};
enum perf_memory { PERF_ORDINARY, PERF_REGISTERED, PERF_MEM_ALLOC };
enum perf_average { PERF_RANK0, PERF_AVERAGE, PERF_MIN, PERF_MAX };

struct perf_options {
    size_t min_bytes, max_bytes, step_bytes, factor; /* factor 0: steps of step_bytes */
    long iters, warmup, aggregate, check, blocking, average, cputime, timeout_s, memory;
    int all_types, all_ops, all_roots;
    int type, op, root;
    int vs_mpi, verbose;
    enum test_start_kind start;
    const char *json;
};

/* Times of an iteration in microseconds: median, least and most over iterations. */
struct perf_times {
    double median, min, max;
};

struct perf_place {
    int run;      /* false: the collective has no such form */
    int checked;  /* wrong holds a result */
    int compared; /* mpi holds a result */
    size_t wrong; /* elements, over all ranks and checks */
    double algbw, busbw;
    struct perf_times rondo, mpi;
};

struct perf_row {
    size_t bytes, count;
    rondo_dtype type;
    int op, root;               /* -1: none */
    struct perf_place place[2]; /* out of place, in place */
};

struct perf {
    struct perf_options options;
    const char *program;
    const struct test_coll *coll;
    rondo_comm *comm;
    rondo_stream stream;
    char *send, *recv, *want;
    void *handle[2]; /* of send and recv, where they are registered */
    size_t slot;     /* bytes between the buffers of aggregated calls */
    double *samples; /* iters entries for Rondo, as many for MPI, as many of scratch */
    size_t wrong;
    double busbw_sum;
    int busbw_count;
};

/* The whole program: run the collective of this name. */
int perf_main(int argc, char **argv, const char *coll);

/* PERF_OK, PERF_HELP or PERF_USAGE; prints on rank 0. */
int perf_options_parse(struct perf_options *options, int argc, char **argv, int print);

/* How much a rank sends and receives together decides the factors: algbw = moved bytes / time, busbw = algbw
 * * factor. */
double perf_bus_factor(const struct test_coll *coll, int nranks);
/* Elements a call is made with for `bytes` in all, rounded down to 16 bytes a rank where nccl-tests does so.
 */
size_t perf_count(const struct test_coll *coll, size_t bytes, rondo_dtype type, int nranks);
/* The size that stands in the table: the larger of what is sent and received by the root or by any rank. */
size_t perf_row_bytes(const struct test_coll *coll, size_t count, rondo_dtype type, int nranks);

/* Time and check one row. */
void perf_measure(struct perf *perf, struct perf_row *row);

/* True when MPI has the collective with this type, operation and count. */
int perf_mpi_has(const struct test_call *call);
void perf_mpi_run(const struct test_call *call, const void *send, void *recv, int inplace);

/* One-way time of a flag between ranks 0 and 1 in microseconds; negative: they share no host. Collective. */
double perf_probe_one_way(void);
const char *perf_probe_name(double one_way);

void perf_print_header(const struct perf *perf, double one_way);
void perf_print_row(const struct perf *perf, const struct perf_row *row);
void perf_print_trailer(const struct perf *perf, double one_way);
/* A line on stderr that the next one overwrites; nothing when stderr is no terminal. */
void perf_progress(const struct perf_row *row, const char *place, long done, long of);
void perf_progress_clear(void);

/* The JSON file; all on rank 0. False: cannot be written (reported). */
int perf_json_open(const struct perf *perf, double one_way);
void perf_json_row(const struct perf_row *row);
int perf_json_close(double one_way, size_t wrong, double busbw);

#endif
