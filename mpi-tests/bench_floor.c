/*
 * A lower bound for an all_reduce inside a node.
 *
 *   mpirun -n N bench_floor [least bytes, 8] [most bytes, 64M] [iterations, 21]
 *
 * It is the larger of two times:
 *
 * - Copying. Every buffer of S bytes must be read once and every result written once, as if each rank copied
 *   S bytes. All ranks copy at once, started together (start.h), with the source rewritten before, as in
 *   *_perf. The time is the slowest rank's, the median over the iterations, with cached or non-temporal
 *   stores, whichever is faster.
 * - A word from each rank to all others, because no rank has a result before it has heard from all. Each rank
 *   stores a word in a cache line and waits until it has seen all words. With two ranks, it may store its
 *   word in the line from which it read the last one.
 *
 * The columns are those of *_perf, so that scripts/plot reads both.
 */
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/wait.h"
#include "kern/reduce.h"
#include "mpi_common.h"
#include "start.h"

enum {
    MOST_ITERATIONS = 1000,
    UNTIMED = 3,
    LINE = 128 /* the prefetcher fetches pairs of cache lines */,
    EAGER = 200,
    SPINS = 1000
};

static char *buffer(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        test_die("no memory for %zu bytes", bytes);
    }
    return memset(memory, 1, bytes);
}

/* @return the median over the iterations of the slowest rank's time. */
static double median(double *us, int iterations)
{
    MPI_Allreduce(MPI_IN_PLACE, us, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(us, (size_t)iterations, sizeof(us[0]), test_compare_times);
    return us[iterations / 2];
}

/* @return the time of a copy by all ranks at once, in us. */
static double copy_us(char *to, char *from, size_t bytes, int past_caches, int iterations)
{
    double us[MOST_ITERATIONS];
    for (int i = -UNTIMED; i < iterations; i++) {
        memset(from, i & 0x7f, bytes);
        test_start();
        double begin = test_now();
        rondo_copy(to, from, bytes, past_caches);
        us[i < 0 ? 0 : i] = (test_now() - begin) * 1e6;
    }
    return median(us, iterations);
}

/* @return shared memory with a line for each rank. */
static char *lines_of_all(MPI_Win *win)
{
    MPI_Aint bytes;
    int unit;
    char *lines;
    MPI_Win_allocate_shared(test.rank == 0 ? (MPI_Aint)test.nranks * LINE : 0, 1, MPI_INFO_NULL,
                            MPI_COMM_WORLD, &lines, win);
    MPI_Win_shared_query(*win, 0, &bytes, &unit, &lines);
    if (test.rank == 0) {
        memset(lines, 0, (size_t)bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return lines;
}

/* @return where a rank stores its k-th word: in its own line, or, if two ranks hand lines over
 * (base/mailbox.h), in the line from which it read the last word. */
static uint64_t *word_of(char *lines, int rank, uint64_t k, int handed)
{
    uint64_t line = handed ? ((uint64_t)rank + k) & 1 : (uint64_t)rank;
    return (uint64_t *)(void *)(lines + (size_t)line * LINE);
}

/* @return the time from storing a word until a rank has read those of all others, in us. Oversubscribed ranks
 * yield at once. */
static double exchange_us(char *lines, int handed, int iterations, int oversubscribed)
{
    static uint64_t sent;
    double us[MOST_ITERATIONS];
    for (int i = -UNTIMED; i < iterations; i++) {
        test_start();
        double begin = test_now();
        sent++;
        __atomic_store_n(word_of(lines, test.rank, sent, handed), sent, __ATOMIC_RELEASE);
        for (int r = 0; r < test.nranks; r++) {
            /* Skip the own word: others have fetched the line, and reading it would wait for it again. */
            for (int spins = 0;
                 r != test.rank && __atomic_load_n(word_of(lines, r, sent, handed), __ATOMIC_ACQUIRE) < sent;
                 spins++) {
                if (oversubscribed || spins > SPINS) {
                    sched_yield();
                } else if (spins > EAGER) { /* a pause instruction takes about as long as the word */
                    rondo_cpu_relax();
                }
            }
        }
        us[i < 0 ? 0 : i] = (test_now() - begin) * 1e6;
    }
    return median(us, iterations);
}

static void row(char *to, char *from, size_t bytes, double exchange, int iterations)
{
    double cached = copy_us(to, from, bytes, 0, iterations),
           streamed = copy_us(to, from, bytes, 1, iterations);
    double copied = cached < streamed ? cached : streamed, us = copied > exchange ? copied : exchange,
           gbs = (double)bytes / us * 1e-3;
    test_check(copied > 0 && to[bytes - 1] == from[bytes - 1], "a copy of %zu bytes took %g us, or is wrong",
               bytes, us);
    if (test.rank == 0) {
        printf("%12zu %12zu %8s %7s %7d  %9.2f %7.2f %7.2f %6s  # word %.2f us; cached copy %.2f us, "
               "non-temporal copy %.2f us\n",
               bytes, bytes, "u8", "none", -1, us, gbs, 2 * gbs, "n/a", exchange, cached, streamed);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    size_t least = 8, most = 64 << 20;
    long iterations = 21;
    int good;
    test_init("bench_floor", MPI_THREAD_SINGLE);
    test_watchdog(600);
    good = (argc < 2 || test_parse_size(argv[1], &least)) && (argc < 3 || test_parse_size(argv[2], &most)) &&
           (argc < 4 || test_parse_long(argv[3], 1, MOST_ITERATIONS, &iterations)) && least > 0 &&
           most >= least && most < (size_t)1 << 40;
    if (!good) {
        test_die("usage: bench_floor [least bytes] [most bytes] [iterations, at most %d]", MOST_ITERATIONS);
    }
    char *from = buffer(most), *to = buffer(most), *lines;
    double exchange;
    int oversubscribed = test.nranks > (int)sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Win win;
    test_start_open(TEST_START_AUTO);
    if (test.rank == 0) {
        printf("# bench_floor: %d ranks copy at once, start %s; median of %ld iterations, slowest rank\n",
               test.nranks, test_start_name(), iterations);
        printf("#%11s %12s %8s %7s %7s  %9s %7s %7s %6s\n", "size (B)", "count", "type", "redop", "root",
               "time (us)", "copied", "touched", "#wrong");
    }
    (void)copy_us(to, from, least, 0, (int)iterations); /* warm up */
    lines = lines_of_all(&win);
    exchange = exchange_us(lines, 0, MOST_ITERATIONS, oversubscribed); /* short times need many */
    if (test.nranks == 2) {
        double handed = exchange_us(lines, 1, MOST_ITERATIONS, oversubscribed);
        if (test.rank == 0) {
            printf("# a word in lines of their own: %.2f us, in lines that are handed over: %.2f us\n",
                   exchange, handed);
        }
        exchange = handed < exchange ? handed : exchange;
    }
    for (size_t bytes = least; bytes <= most; bytes *= 2) {
        row(to, from, bytes, exchange, (int)iterations);
    }
    MPI_Win_free(&win);
    test_start_close();
    free(from);
    free(to);
    return test_finish();
}
