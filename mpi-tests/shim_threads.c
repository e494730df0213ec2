/* Cases of shim_semantics: several threads (MPI_THREAD_MULTIPLE). */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim_semantics.h"

enum { THREADS = 3 };
static void *thread_main(void *arg)
{
    MPI_Comm comm = *(MPI_Comm *)arg;
    long wrong = 0;
    for (int i = 0; i < 300; i++) {
        int mine[40], sum[40];
        for (int k = 0; k < 40; k++) {
            mine[k] = rank + k + i;
        }
        MPI_Allreduce(mine, sum, 40, MPI_INT, MPI_SUM, comm);
        wrong += sum[39] != nranks * (39 + i) + nranks * (nranks - 1) / 2;
        if (i % 3 == 0) {
            MPI_Request request;
            MPI_Ibcast(mine, 40, MPI_INT, i % nranks, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            wrong += mine[39] != i % nranks + 39 + i;
        }
    }
    return (void *)wrong;
}

void threads_use_different_communicators(void)
{
    MPI_Comm comms[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, thread_main, &comms[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        check(wrong == NULL, "a result of a thread");
        MPI_Comm_free(&comms[i]);
    }
}

static int asks_no_more;
static void *asks_main(void *arg)
{
    MPI_Comm comm = *(MPI_Comm *)arg;
    for (int flag; !__atomic_load_n(&asks_no_more, __ATOMIC_ACQUIRE);) {
        MPI_Iprobe(0, 12, comm, &flag, MPI_STATUS_IGNORE);
    }
    return NULL;
}

/* Another thread has found the end of the call, and unpacks what it got, while this one begins to wait. */
void a_wait_meets_requests_that_end(void)
{
    enum { N = 1 << 17, ROUNDS = 60 };
    int *out = calloc((size_t)nranks * 2 * N, sizeof *out), *in = calloc((size_t)nranks * 2 * N, sizeof *in);
    MPI_Datatype some, column;
    MPI_Comm calls, questions;
    pthread_t thread;
    MPI_Type_vector(N, 1, 2, MPI_INT, &some);
    MPI_Type_create_resized(some, 0, 2 * N * (MPI_Aint)sizeof(int), &column);
    MPI_Type_commit(&column);
    MPI_Comm_dup(MPI_COMM_WORLD, &calls);
    MPI_Comm_dup(MPI_COMM_WORLD, &questions);
    warm(calls);
    __atomic_store_n(&asks_no_more, 0, __ATOMIC_RELEASE);
    pthread_create(&thread, NULL, asks_main, &questions);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
        MPI_Status statuses[2];
        out[2 * N * (nranks - 1) + 2 * N - 2] = rank + i;
        MPI_Ialltoall(out, 1, column, in, 1, column, calls, &requests[0]);
        usleep((useconds_t)(500 + i * 1237 % 6000));
        MPI_Waitall(2, requests, statuses);
        check(rank < nranks - 1 || in[2 * N - 2] == i, "the last element of rank 0");
    }
    __atomic_store_n(&asks_no_more, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    MPI_Comm_free(&calls);
    MPI_Comm_free(&questions);
    MPI_Type_free(&column);
    MPI_Type_free(&some);
    free(in);
    free(out);
}
