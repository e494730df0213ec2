/*
 * The floor of an all_reduce inside a node: the bytes that must move, at the bandwidth with which the same
 * ranks copy at once; and no less than a word from everyone to everyone takes.
 *
 *   mpirun -n N bench_floor [least bytes, 8] [most bytes, 64M] [iterations, 21]
 *
 * Every buffer of S bytes must be read once and every result written once: S bytes in and S bytes out for
 * each rank, as when each of them copies S bytes. The time is that of such copies by all ranks at once, the
 * slowest rank's, the median over iterations, each begun together (start.h) and with the source rewritten, as
 * in *_perf; of copies through the caches and of non-temporal ones the faster. Nobody has a result before it
 * has heard from all: each rank stores a word in a cache line (of two ranks: in the one that it read the last
 * one in) and waits until it has seen everyone's. The larger of the two is the floor. The columns are those
 * of *_perf, so that scripts/plot reads both; then all times.
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
    LINE = 128 /* the one beside it is fetched with a cache line */,
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

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median of the slowest rank's. */
static double median(double *us, int iterations)
{
    MPI_Allreduce(MPI_IN_PLACE, us, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(us, (size_t)iterations, sizeof(us[0]), by_value);
    return us[iterations / 2];
}

/* us of a copy by all ranks at once. */
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

/* Every rank's line, in memory that all of them map. */
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

/* Where a rank stores its word the k-th time: a line of its own, or of two ranks, handed over
 * (base/mailbox.h), the one in which it read the last one. */
static uint64_t *word_of(char *lines, int rank, uint64_t k, int handed)
{
    uint64_t line = handed ? ((uint64_t)rank + k) & 1 : (uint64_t)rank;
    return (uint64_t *)(void *)(lines + (size_t)line * LINE);
}

/* us until a rank that tells the others a word has heard from all of them. Ranks that share a core give it up
 * at once. */
static double exchange_us(char *lines, int handed, int iterations, int crowded)
{
    static uint64_t told;
    double us[MOST_ITERATIONS];
    for (int i = -UNTIMED; i < iterations; i++) {
        test_start();
        double begin = test_now();
        told++;
        __atomic_store_n(word_of(lines, test.rank, told, handed), told, __ATOMIC_RELEASE);
        for (int r = 0; r < test.nranks; r++) {
            /* Not at its own: the others have taken the line, and it would wait for it once more. */
            for (int spins = 0;
                 r != test.rank && __atomic_load_n(word_of(lines, r, told, handed), __ATOMIC_ACQUIRE) < told;
                 spins++) {
                if (crowded || spins > SPINS) {
                    sched_yield();
                } else if (spins > EAGER) { /* a pause takes about as long as the word */
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
    test_check(copied > 0 && to[bytes - 1] == from[bytes - 1],
               "a copy of %zu bytes took %g us, or is not one", bytes, us);
    if (test.rank == 0) {
        printf("%12zu %12zu %8s %7s %7d  %9.2f %7.2f %7.2f %6s  # a word %.2f us; through the caches %.2f "
               "us, past them %.2f us\n",
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
    int crowded = test.nranks > (int)sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Win win;
    test_start_open(TEST_START_AUTO);
    if (test.rank == 0) {
        printf("# bench_floor: %d ranks copy at once, begun %s, %ld iterations, median of the slowest rank's "
               "time\n",
               test.nranks, test_start_name(), iterations);
        printf("#%11s %12s %8s %7s %7s  %9s %7s %7s %6s\n", "size (B)", "count", "type", "redop", "root",
               "time (us)", "copied", "touched", "#wrong");
    }
    (void)copy_us(to, from, least, 0, (int)iterations); /* the first barriers and copies are slower */
    lines = lines_of_all(&win);
    exchange = exchange_us(lines, 0, MOST_ITERATIONS, crowded); /* of a time this short many */
    if (test.nranks == 2) {
        double handed = exchange_us(lines, 1, MOST_ITERATIONS, crowded);
        if (test.rank == 0) {
            printf("# a word in a line of one's own: %.2f us, in lines that are handed over: %.2f us\n",
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
