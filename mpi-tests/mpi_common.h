/*
 * Shared by all programs that run under mpirun: start and end, counting of cases, a watchdog, guarded memory,
 * parsers. It uses only rondo.h and rondo_mpi.h, so that the programs test what a user gets.
 */
#ifndef RONDO_TESTS_MPI_COMMON_H
#define RONDO_TESTS_MPI_COMMON_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "rondo_mpi.h"

#define TEST_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define TEST_MAX_RANKS 256

struct test_env {
    const char *program;
    int rank, nranks;
    unsigned long cases, failed;
    const char *what; /* what is running now, for the watchdog and messages */
};
extern struct test_env test;

/** Call MPI_Init_thread. Ends the program if MPI provides a lower level. */
void test_init(const char *program, int thread_level);
/** The same without MPI, for programs in which the library starts MPI. */
void test_init_plain(const char *program);
/** Sum the failures of all ranks, print "PROGRAM: N cases, F failed" on rank 0, and finalize MPI. @return the
 * exit status of the program. */
int test_finish(void);
/** The same without MPI, for this rank alone. */
int test_finish_plain(void);

/** Kill the process, with a message that names test.what, unless this is called again within `seconds`. 0:
 * switch it off. */
void test_watchdog(int seconds);

/** Count a case; if it failed, print a line with the rank and test.what. @return ok. */
int test_check(int ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Print a line on stderr, prefixed by program and rank, in one write. */
void test_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/** Print a line and end all ranks. */
void test_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define TEST_MUST(call, comm)                                                                               \
    do {                                                                                                    \
        rondo_status test_status_ = (call);                                                                 \
        if (test_status_ != RONDO_SUCCESS) {                                                                \
            test_die("%s:%d: %s gave %s: %s", __FILE__, __LINE__, #call, rondo_status_string(test_status_), \
                     rondo_last_error(comm));                                                               \
        }                                                                                                   \
    } while (0)

/** Make a folder for a file of this program, in $TMPDIR, and write its path to the buffer. */
void test_folder_make(char *path, size_t bytes);

double test_now(void); /* seconds, monotonic */
/** Each rank calls this after a wait for a rank that does not come, with the time at which it began to wait;
 * it is a barrier. @return true if all ranks but that one began within a quarter of the deadline, and none
 * took longer than `longest`. Else the machine is busy, and another rank, that is only late, may be named. */
int test_are_punctual(double start, int but, double deadline, double longest);
int test_compare_times(const void *a, const void *b); /* doubles, for qsort */
uint64_t test_hash(uint64_t a, uint64_t b, uint64_t c);

/** Allocate memory between two guards of 64 known bytes, and fill it with known bytes. Ends the program if
 * there is none. */
void *test_guard_alloc(size_t bytes);
int test_guard_intact(const void *mem, size_t bytes);
/** @return true if nobody has written to the memory since test_guard_alloc(). */
int test_guard_untouched(const void *mem, size_t bytes);
void test_guard_free(void *mem);

/** Parse "12", "4K", "2M", "1G". @return false if it is no size. */
int test_parse_size(const char *text, size_t *out);
int test_parse_long(const char *text, long min, long max, long *out);

/** Poll async_error until the communicator has failed, for at most `seconds`. @return its error. */
rondo_status test_wait_error(rondo_comm *comm, double seconds);

/** @return true if an error's text names the rank, and no other one in its list of ranks that did not
 * answer. */
int test_names_rank(const char *text, int rank);

#endif
