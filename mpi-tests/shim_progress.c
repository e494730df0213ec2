/*
 * A rank that waits in a collective moves the messages of MPI, even while a message that it has not received
 * yet matches every probe: the last rank has such a message from itself and waits in Allreduce, and rank 0
 * sends it more than fits in MPI's buffers before it calls Allreduce.
 */
#include <stdio.h>
#include <stdlib.h>

#include "mpi_common.h"

enum { BYTES = 1 << 21, ROUNDS = 20 };

int main(void)
{
    char *large = calloc(1, BYTES);
    int last, small = 1;
    test_init("shim_progress", MPI_THREAD_SINGLE);
    last = test.nranks - 1;
    test.what = "a message beside allreduce";
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
        int sum = 0, got = 0;
        test_watchdog(20);
        large[BYTES - 1] = test.rank == 0 ? (char)(round + 1) : 0;
        if (test.rank == last) {
            MPI_Isend(&small, 1, MPI_INT, last, 1, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(large, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[1]);
        }
        if (test.rank == 0) {
            MPI_Send(large, BYTES, MPI_BYTE, last, 2, MPI_COMM_WORLD);
        }
        MPI_Allreduce(&small, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        test_check(sum == test.nranks, "round %d: the sum is %d", round, sum);
        if (test.rank == last) {
            MPI_Recv(&got, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            test_check(large[BYTES - 1] == (char)(round + 1), "round %d: the message is wrong", round);
        }
    }
    free(large);
    return test_finish();
}
