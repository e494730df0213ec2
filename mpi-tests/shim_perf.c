/*
 * The MPI face beside the MPI library, in turn in one process: MPI_X is the face's, PMPI_X the library's. Run
 * it under rondo-run; without, both are the library's. Prints medians of the slowest rank's time.
 *
 *   mpirun -n N rondo-run shim_perf [most bytes]
 *   mpirun -n N rondo-run shim_perf --overlap TESTS [most bytes]
 *
 * The second form measures how much of an Iallreduce is hidden behind computation, as osu_iallreduce does:
 * the time of the call and its wait alone, the computation of as much time, and both together with TESTS
 * calls of MPI_Test in it. Overlap is the part of the first time that the last one does not show.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 40, MOST_CALLS = 300 };
static const char *const names[] = { "allreduce", "bcast",  "reduce", "allgather", "reduce_scatter_block",
                                     "alltoall",  "barrier" };
enum { NCOLLS = sizeof names / sizeof *names };
static char *in, *out;
static int rank, nranks;

/* X: MPI or PMPI */
#define CALL(X, coll, bytes, comm)                                                                        \
    switch (coll) {                                                                                       \
    case 0: X##_Allreduce(in, out, (bytes) / 4, MPI_FLOAT, MPI_SUM, comm); break;                         \
    case 1: X##_Bcast(in, bytes, MPI_CHAR, 0, comm); break;                                               \
    case 2: X##_Reduce(in, out, (bytes) / 4, MPI_FLOAT, MPI_SUM, 0, comm); break;                         \
    case 3: X##_Allgather(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, comm); break;                        \
    case 4: X##_Reduce_scatter_block(in, out, (bytes) / 4 / nranks + 1, MPI_FLOAT, MPI_SUM, comm); break; \
    case 5: X##_Alltoall(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, comm); break;                         \
    default: X##_Barrier(comm); break;                                                                    \
    }

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int coll, int bytes)
{
    static double times[2][MOST_CALLS], slowest[MOST_CALLS];
    int calls = bytes > 65536 ? MOST_CALLS / 5 : MOST_CALLS;
    double median[2];
    for (int i = -WARM_UP; i < calls; i++) {
        for (int face = 0; face < 2; face++) {
            PMPI_Barrier(MPI_COMM_WORLD);
            double begin = MPI_Wtime();
            if (face) {
                CALL(MPI, coll, bytes, MPI_COMM_WORLD)
            } else {
                CALL(PMPI, coll, bytes, MPI_COMM_WORLD)
            }
            if (i >= 0) {
                times[face][i] = MPI_Wtime() - begin;
            }
        }
    }
    for (int face = 0; face < 2; face++) {
        PMPI_Reduce(times[face], slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        qsort(slowest, (size_t)calls, sizeof *slowest, by_value);
        median[face] = slowest[calls / 2];
    }
    if (rank == 0) {
        printf("%-22s %8d %10.2f %10.2f %7.2f\n", names[coll], bytes, median[0] * 1e6, median[1] * 1e6,
               median[0] / median[1]);
        fflush(stdout);
    }
}

/* ---- overlap ---- */

/* Compute for a time that was measured before, in parts with a test between them. */
static void compute(double seconds, int tests, int face, MPI_Request *request)
{
    int flag = 0;
    for (int part = 0; part <= tests; part++) {
        double end = MPI_Wtime() + seconds / (tests + 1);
        while (MPI_Wtime() < end) {
        }
        if (part < tests && !flag) {
            if (face) {
                MPI_Test(request, &flag, MPI_STATUS_IGNORE);
            } else {
                PMPI_Test(request, &flag, MPI_STATUS_IGNORE);
            }
        }
    }
}

/* One Iallreduce with a computation of this time beside it. @return the time of both */
static double iallreduce(int bytes, double seconds, int tests, int face)
{
    MPI_Request request;
    PMPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    if (face) {
        MPI_Iallreduce(in, out, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    } else {
        PMPI_Iallreduce(in, out, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    if (seconds > 0) {
        compute(seconds, tests, face, &request);
    }
    if (face) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return MPI_Wtime() - begin;
}

/* @return the median of the slowest rank's times, on all ranks */
static double median_of(double *times, int calls)
{
    static double slowest[MOST_CALLS];
    PMPI_Allreduce(times, slowest, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(slowest, (size_t)calls, sizeof *slowest, by_value);
    return slowest[calls / 2];
}

static void measure_overlap(int bytes, int tests)
{
    static double times[2][MOST_CALLS];
    int calls = bytes > 65536 ? MOST_CALLS / 5 : MOST_CALLS;
    double pure[2], total[2];
    for (int i = -WARM_UP; i < calls; i++) {
        for (int face = 0; face < 2; face++) {
            times[face][i < 0 ? 0 : i] = iallreduce(bytes, 0, 0, face);
        }
    }
    pure[0] = median_of(times[0], calls);
    pure[1] = median_of(times[1], calls);
    for (int i = 0; i < calls; i++) {
        for (int face = 0; face < 2; face++) {
            times[face][i] = iallreduce(bytes, pure[face], tests, face);
        }
    }
    for (int face = 0; face < 2; face++) {
        total[face] = median_of(times[face], calls);
    }
    if (rank == 0) {
        printf("%-22s %8d", "iallreduce", bytes);
        for (int face = 0; face < 2; face++) {
            double hidden = 100 - (total[face] - pure[face]) / pure[face] * 100;
            printf(" %10.2f %10.2f %7.1f", pure[face] * 1e6, total[face] * 1e6, hidden < 0 ? 0 : hidden);
        }
        printf("\n");
        fflush(stdout);
    }
}

static void overlap(int tests, int most)
{
    for (int i = 0; i < WARM_UP; i++) { /* Rondo's communicator comes with the blocking calls */
        MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        printf("# %d tests in each computation\n", tests);
        printf("# collective              bytes   MPI (us)  total (us) overlap%%  face (us)  total (us) "
               "overlap%%\n");
    }
    for (int bytes = 8; bytes <= most; bytes *= 8) {
        measure_overlap(bytes, tests);
    }
}

int main(int argc, char **argv)
{
    int overlaps = argc > 2 && strcmp(argv[1], "--overlap") == 0, first = overlaps ? 3 : 1;
    int most = argc > first ? atoi(argv[first]) : 1 << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    in = calloc((size_t)most + 64, (size_t)nranks);
    out = calloc((size_t)most + 64, (size_t)nranks);
    if (overlaps) {
        overlap(atoi(argv[2]), most);
    } else if (rank == 0) {
        printf("# collective              bytes   MPI (us)  face (us)   ratio\n");
    }
    for (int coll = 0; coll < NCOLLS && !overlaps; coll++) {
        for (int bytes = coll == NCOLLS - 1 ? 0 : 8; bytes <= most;
             bytes = bytes == 0 ? most + 1 : bytes * 8) {
            measure(coll, bytes);
        }
    }
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
