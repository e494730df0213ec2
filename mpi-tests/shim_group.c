/*
 * A program that uses Rondo itself, under the MPI face. What it makes between rondo_group_start and
 * rondo_group_end runs at the group's end, but its collectives of MPI run at once. Run it with
 * RONDO_MPI_TUNE=measure and always.
 */
#include <stdio.h>

#include "mpi_common.h"

/* Some of the calls create Rondo's communicator, some measure. */
static void blocking(MPI_Comm comm)
{
    int column[6], parts[64 * 2];
    MPI_Datatype gapped;
    MPI_Type_vector(3, 1, 2, MPI_INT, &gapped);
    MPI_Type_commit(&gapped);
    test.what = "a blocking call in a group";
    for (int i = 0; i < 100; i++) {
        int mine = test.rank + i, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        test_check(sum == test.nranks * i + test.nranks * (test.nranks - 1) / 2, "call %d: the sum is %d", i,
                   sum);
        for (int k = 0; k < 6; k++) {
            column[k] = test.rank == 0 ? k + i : -1;
        }
        MPI_Bcast(column, 1, gapped, 0, comm);
        test_check(column[4] == 4 + i, "call %d: the column has %d", i, column[4]);
        MPI_Allgather((int[2]){ test.rank, i }, 2, MPI_INT, parts, 2, MPI_INT, comm);
        test_check(parts[2 * test.nranks - 1] == i, "call %d: the last part is %d", i,
                   parts[2 * test.nranks - 1]);
    }
    MPI_Type_free(&gapped);
}

static void nonblocking(MPI_Comm comm)
{
    test.what = "a non-blocking call in a group";
    for (int i = 0; i < 20; i++) {
        int mine = test.rank + i, sum = -1;
        MPI_Request request;
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        test_check(sum == test.nranks * i + test.nranks * (test.nranks - 1) / 2, "call %d: the sum is %d", i,
                   sum);
    }
}

int main(void)
{
    MPI_Comm comm;
    rondo_comm *own = NULL;
    int one = 1, sum = -1;
    test_init("shim_group", MPI_THREAD_SINGLE);
    test_watchdog(40);
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &own), NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    TEST_MUST(rondo_group_start(), NULL);
    TEST_MUST(rondo_all_reduce(&one, &sum, 1, RONDO_INT32, RONDO_SUM, own, NULL), own);
    blocking(comm);
    nonblocking(comm);
    MPI_Comm_free(&comm);
    test.what = "the program's own call";
    test_check(sum == -1, "it ran before the group's end");
    TEST_MUST(rondo_group_end(), NULL);
    test_check(sum == test.nranks, "the sum is %d", sum);
    TEST_MUST(rondo_comm_destroy(own), NULL);
    return test_finish();
}
