/*
 * A program with a tool of its own: wrappers that call PMPI, of a call that completes requests and of the one
 * that starts persistent ones, but not of the calls that make them. The face does not see the former.
 */
#include <mpi.h>
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <unistd.h>

#if MPI_VERSION >= 4 || (defined OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#define INIT MPI_Allreduce_init
#elif defined OMPI_HAVE_MPI_EXT_PCOLLREQ
#define INIT MPIX_Allreduce_init
#endif

static int nseen;

int MPI_Start(MPI_Request *request)
{
    nseen++;
    return PMPI_Start(request);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    nseen++;
    return PMPI_Wait(request, status);
}

int main(int argc, char **argv)
{
    enum { N = 100000, ROUNDS = 6 };
    static int mine[N], sum[N];
    int rank, n, wrong = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        MPI_Request request;
        int persistent = i >= ROUNDS;
        alarm(20); /* instead of a hang */
        mine[N - 1] = rank + i;
        MPI_Allreduce(mine, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        sum[N - 1] = -1;
        if (!persistent) {
            MPI_Iallreduce(mine, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        } else {
#ifdef INIT
            INIT(mine, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
            MPI_Start(&request);
#else
            break;
#endif
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += sum[N - 1] != n * i + n * (n - 1) / 2;
        if (persistent) {
            MPI_Request_free(&request);
        }
    }
    wrong += nseen < ROUNDS;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) {
        printf("shim_tool: %d ranks, %d wrong\n", n, all);
    }
    return all != 0;
}
