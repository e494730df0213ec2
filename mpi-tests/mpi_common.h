/*
 * What every program run under mpirun shares: start and end, counting of cases, a watchdog, guarded memory,
 * small parsers. Programs use rondo.h and rondo_mpi.h only, so they test what a user gets.
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
    const char *what; /* what is running, for the watchdog and for messages */
};
extern struct test_env test;

/* MPI_Init_thread with the level asked for; ends the program when MPI gives less. Names of levels: single
 * funneled serialized multiple. */
void test_init(const char *program, int thread_level);
/* Without MPI: for programs whose MPI is started by the library. */
void test_init_plain(const char *program);
/* Sum failures over ranks, print "PROGRAM: N cases, F failed" on rank 0, finalise MPI; the exit status of the
 * program. */
int test_finish(void);
/* The same without MPI, of this rank alone. */
int test_finish_plain(void);

/* Kill the process with a message naming test.what when it is not called again within @a seconds. 0: off. */
void test_watchdog(int seconds);

/* Count a case; on failure print a line with rank and test.what. Returns @a ok. */
int test_check(int ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Print a line that starts with program and rank on stderr, in one write. */
void test_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Print and end all ranks: for failures after which no further case makes sense. */
void test_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define TEST_MUST(call, comm)                                                                               \
    do {                                                                                                    \
        rondo_status test_status_ = (call);                                                                 \
        if (test_status_ != RONDO_SUCCESS) {                                                                \
            test_die("%s:%d: %s gave %s: %s", __FILE__, __LINE__, #call, rondo_status_string(test_status_), \
                     rondo_last_error(comm));                                                               \
        }                                                                                                   \
    } while (0)

double test_now(void); /* seconds, monotonic */
uint64_t test_hash(uint64_t a, uint64_t b, uint64_t c);

/* Memory between two guards of 64 known bytes; contents are the same known bytes. Never NULL: ends the
 * program. */
void *test_guard_alloc(size_t bytes);
int test_guard_intact(const void *mem, size_t bytes);
/* All of the contents are still as test_guard_alloc() left them. */
int test_guard_untouched(const void *mem, size_t bytes);
void test_guard_free(void *mem);

/* 12, 4K, 2M, 1G. False when it is not a size. */
int test_parse_size(const char *text, size_t *out);
int test_parse_long(const char *text, long min, long max, long *out);

/* rondo_status of a communicator that is expected to end: polls async_error until it is no longer SUCCESS, at
 * most @a seconds. */
rondo_status test_wait_error(rondo_comm *comm, double seconds);

#endif
