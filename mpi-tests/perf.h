/*
 * The *_perf programs. They share this code; perf_prog.c is compiled once per collective. Options, columns,
 * bandwidth factors and exit codes follow nccl-tests; README.md explains the differences.
 */
#ifndef RONDO_TESTS_PERF_H
#define RONDO_TESTS_PERF_H

#include <getopt.h>

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
    size_t min_bytes, max_bytes, step_bytes, factor; /* factor 0: add step_bytes instead */
    long iters, warmup, aggregate, check, blocking, average, cputime, timeout_s, memory;
    int all_types, all_ops, all_roots;
    int type, op, root;
    int vs_mpi, copy, verbose;
    enum test_start_kind start;
    const char *json;
};

/* Microseconds per call, over the iterations. */
struct perf_times {
    double median, min, max;
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
    char *send, *recv, *want;
    void *handle[2]; /* registrations of send and recv; NULL: none */
    size_t slot;     /* bytes between the buffers of aggregated calls */
    double *samples; /* PERF_NUM_SAMPLES arrays of `iters` */
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

/* The options of a program, and how to parse them. */
struct perf_args {
    const char *letters; /* for getopt_long, with h */
    const struct option *rows;
    void (*usage)(const char *program);
    int (*one)(void *options, int opt, const char *text); /* false: the value is invalid */
};
/** @return PERF_OK, PERF_HELP or PERF_USAGE. */
int perf_args_parse(const struct perf_args *args, void *options, int argc, char **argv, int print);
/** Print what is wrong with the command line. value: may be NULL. @return PERF_USAGE. */
int perf_args_complain(int print, const char *what, const char *value);

/** @return busbw / algbw, where algbw = bytes / time. */
double perf_bus_factor(const struct test_coll *coll, int nranks);
/** @return the count of a call for a total of `bytes`. Rounds to 16 bytes per rank where nccl-tests does. */
size_t perf_count(const struct test_coll *coll, size_t bytes, rondo_dtype type, int nranks);
/** @return the size that the table shows: the larger of the buffers of a rank (of the root). */
size_t perf_row_bytes(const struct test_coll *coll, size_t count, rondo_dtype type, int nranks);

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

void perf_print_header(const struct perf *perf, double one_way);
void perf_print_row(const struct perf *perf, const struct perf_row *row);
void perf_print_trailer(const struct perf *perf, double one_way);
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

/* The JSON file of a collective: the same, with its rows. */
int perf_json_open(const struct perf *perf, double one_way);
void perf_json_row(const struct perf_row *row);
int perf_json_close(double one_way, size_t wrong, double busbw);

#endif
