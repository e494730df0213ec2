/*
 * The MPI face beside the MPI library, in turn in one process: MPI_X is the face's, PMPI_X the library's. Run it
 * under rondo-run; without, both are the library's. Prints medians of the slowest rank's time.
 *
 *   mpirun -n N rondo-run shim_perf [most bytes]
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

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 1 << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    in = calloc((size_t)most + 64, (size_t)nranks);
    out = calloc((size_t)most + 64, (size_t)nranks);
    if (rank == 0) {
        printf("# collective              bytes   MPI (us)  face (us)   ratio\n");
    }
    for (int coll = 0; coll < NCOLLS; coll++) {
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
