/*
 * The *_perf programs. They share this code; perf_prog.c is compiled once per collective. Options, columns,
 * bandwidth factors and exit codes follow nccl-tests; README.md explains the differences.
 */
#ifndef RONDO_TESTS_PERF_H
#define RONDO_TESTS_PERF_H

#include "mpi_calls.h"
#include "start.h"
#include "tools/options.h"

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
/* How an iteration is called and timed; nccl-tests' -z. */
enum perf_blocking {
    PERF_STREAM,        /* calls on a stream, one wait after the last iteration */
    PERF_CALLS_BARRIER, /* blocking calls and a barrier after each iteration, all of it timed together */
    PERF_CALLS,         /* blocking calls, timed together */
    PERF_EACH           /* the ranks start each iteration together, and it is timed alone */
};

struct perf_options {
    size_t min_bytes, max_bytes, step_bytes, factor; /* factor 0: add step_bytes instead */
    long iters, warmup, aggregate, check, blocking, average, cputime, timeout_s, memory;
    long cycles; /* how often the sizes are run; 0: until the job is ended */
    long unalign, timestamps, memory_report, per_iter, per_iter_skip;
    long flush; /* iterations between flushes of the caches; 0: none */
    int all_types, all_ops, all_roots;
    int type, op, root;
    int vs_mpi, copy, verbose, osu;
    int osu_iters; /* the iterations are OSU's */
    enum test_start_kind start;
    const char *json, *nccl_json;
};

/* Microseconds per call, over the iterations. time: their median (PERF_EACH), or mean. */
struct perf_times {
    double time, min, max, p99, p999, cv; /* cv: standard deviation in percent of the mean */
};

struct perf_place {
    int run;      /* 0: the collective has no in-place form */
    int checked;  /* `wrong` is valid */
    int compared; /* `mpi` is valid */
    size_t wrong; /* wrong elements, over all ranks and checks */
    double algbw, busbw;
    struct perf_times rondo, mpi;
};

/* How many local copies a call out of place may take beyond the same call in place. */
#define PERF_MOST_COPIES 1.2

struct perf_row {
    size_t bytes, count;
    rondo_dtype type;
    int op, root;               /* -1: none */
    struct perf_place place[2]; /* out of place, in place */
    int copied;                 /* `copy` is valid */
    struct perf_times copy;     /* a local copy of what a rank both sends and receives */
    double excess;              /* out of place / (in place + PERF_MOST_COPIES copies) */
};

/* Rondo and MPI in each place, a copy, and scratch. */
enum { PERF_COPY_SAMPLES = 4, PERF_SCRATCH, PERF_NUM_SAMPLES };

struct perf {
    struct perf_options options;
    const char *program;
    const struct test_coll *coll;
    rondo_comm *comm;
    rondo_stream stream;
    rondo_op premul; /* of the row's type; valid if the row's operation is TEST_OP_PREMUL */
    char *send, *recv, *want;
    void *handle[2]; /* registrations of send and recv; NULL: none */
    size_t slot;     /* bytes between the buffers of aggregated calls */
    double *samples; /* PERF_NUM_SAMPLES arrays of `iters` */
    char *evict;     /* what a flush of the caches writes; NULL: none */
    size_t evict_bytes;
    double held[3]; /* bytes of this process: before, with the communicator, with the buffers */
    size_t wrong;
    double busbw_sum;
    int busbw_count;
};

/** The main function of the program for a collective. */
int perf_main(int argc, char **argv, const char *coll);

/** @return the last part of a program's path. */
const char *perf_program_name(const char *path);
/** @return the exit status of a program that failed so. */
int perf_exit_of(rondo_status status);
/** End the program unless the call was successful. comm: may be NULL. */
void perf_must(rondo_status status, const rondo_comm *comm, const char *what);
/** Allocate zeroed, touched memory at the start of a page, for free(). Ends the program if there is none. */
char *perf_buffer(size_t bytes);

/** Parse the command line. print: this rank prints help and errors. @return PERF_OK, PERF_HELP or
 * PERF_USAGE. */
int perf_options_parse(struct perf_options *options, int argc, char **argv, int print);

/* The options of a program, and how to use one. one: @return NULL, or what is wrong with the value. */
struct perf_args {
    const struct tool_options *options;
    const char *(*one)(void *options, int id, const char *text);
};
/** @return PERF_OK, PERF_HELP or PERF_USAGE. */
int perf_args_parse(const struct perf_args *args, void *options, int argc, char **argv, int print);
/** Print what is wrong with the command line. @return PERF_USAGE. */
int perf_args_complain(int print, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Say that a value is invalid unless it is right. @return NULL, or that text. */
const char *perf_args_valid(int right);

/** @return busbw / algbw, where algbw = bytes / time. */
double perf_bus_factor(const struct test_coll *coll, int nranks);
/** @return the count of a call for a total of `bytes`. Rounds to 16 bytes per rank where nccl-tests does. */
size_t perf_count(const struct test_coll *coll, size_t bytes, rondo_dtype type, int nranks);
/** @return the size that the table shows: the larger of the buffers of a rank (of the root). */
size_t perf_row_bytes(const struct test_coll *coll, size_t count, rondo_dtype type, int nranks);
/** @return the count for OSU's size: bytes of a rank's block or buffer, not rounded. */
size_t perf_osu_count(size_t bytes, rondo_dtype type);

/** Check and time one row. */
void perf_measure(struct perf *perf, struct perf_row *row);

/** @return true if MPI has this collective for the type, operation and count. */
int perf_mpi_has(const struct test_call *call);
void perf_mpi_run(const struct test_call *call, const void *send, void *recv, int inplace);

/** Collective. @return the one-way latency of a flag between ranks 0 and 1 in us; negative: not on one
 * host. */
double perf_probe_one_way(void);
/** "cores near", "cores far", "one core shared" or "not on one host" */
const char *perf_probe_name(double one_way);

/* Where a rank runs. For each rank one is kept on rank 0. */
struct perf_rank {
    int pid, core;                        /* core: the first one that it may use */
    char host[64], cores[64], device[64]; /* cores: "0-3,8"; device: the processor */
};

void perf_print_header(const struct perf *perf, const struct perf_rank *ranks, double one_way);
void perf_print_row(const struct perf *perf, const struct perf_row *row);
/** @return false if the mean bandwidth is too low: below 0.9 of NCCL_TESTS_MIN_BW, if that is set. */
int perf_print_trailer(const struct perf *perf, double one_way);
/** The same columns as OSU's benchmarks have. */
void perf_osu_header(const struct perf *perf);
void perf_osu_row(const struct perf *perf, const struct perf_row *row);
/** Write the time as nccl-tests' column "timestamp" does. */
void perf_timestamp(char *text, size_t size);

/** Collective. @return on rank 0 an array of all ranks, for free(); elsewhere NULL. */
struct perf_rank *perf_ranks_gather(void);
/** Collective. Print on rank 0 what the communicator, buffers and calls hold, on the rank that holds most. */
void perf_memory_report(const struct perf *perf);
/** Show progress on stderr, if it is a terminal, in a line that the next call overwrites. */
void perf_progress(const struct perf_row *row, const char *place, long done, long of);
void perf_progress_clear(void);

/* Parts of the table, for all programs. perf_print_title leaves its line open. */
void perf_print_title(const char *program);
void perf_print_placement(double one_way);
/** Print a space and the number with a precision that suits its size. */
void perf_print_number(int width, double value);

/** Open the JSON file and write its start: an open object "config". Call on rank 0 only, as all that follow.
 * @return false, after a message, if it cannot be written. */
int perf_json_begin(const char *program, const char *name);
/* Without a file these do nothing. A number that is not known or not finite is null. */
void perf_json_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void perf_json_number(const char *name, double value, int known);
void perf_json_placements(double at_start, double at_end);
/** Give the file its name. @return false if it could not be written. */
int perf_json_end(void);

void perf_json_quoted(FILE *file, const char *text);

/* The JSON file of nccl-tests (-J). Without a file these do nothing. Rank 0 only.
 * perf_nccl_open: @return false, after a message, if it cannot be written. */
int perf_nccl_open(const struct perf *perf, const struct perf_rank *ranks, int argc, char **argv);
void perf_nccl_row(const struct perf *perf, const struct perf_row *row);
/** @return false if it could not be written. */
int perf_nccl_close(const struct perf *perf, double busbw);

/* The JSON file of a collective: the same, with its rows. */
int perf_json_open(const struct perf *perf, double one_way);
void perf_json_row(const struct perf_row *row);
int perf_json_close(double one_way, size_t wrong, double busbw);

#endif
