/* How far the cores of ranks 0 and 1 are apart: times depend on it. */
#include "perf.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCHES 200
#define ROUNDS 20

/* Yield from time to time: a partner that shares our core can answer only then. */
static void await(const _Atomic uint32_t *flag, uint32_t value)
{
    for (int rounds = 0; atomic_load_explicit(flag, memory_order_acquire) != value; rounds++) {
        if (rounds > 10000) {
            sched_yield();
            rounds = 0;
        }
    }
}

/* One-way latency of a flag that two ranks pass back and forth: the lower quartile over the batches, to
 * exclude those that other programs interrupted. */
static double ping_pong(_Atomic uint32_t *flag, int first)
{
    double batch[BATCHES];
    uint32_t value = 0;
    for (int b = 0; b < BATCHES; b++) {
        double start = test_now();
        for (int r = 0; r < ROUNDS; r++, value += 2) {
            if (first) {
                atomic_store_explicit(flag, value + 1, memory_order_release);
                await(flag, value + 2);
            } else {
                await(flag, value + 1);
                atomic_store_explicit(flag, value + 2, memory_order_release);
            }
        }
        batch[b] = 1e6 * (test_now() - start) / (2 * ROUNDS);
    }
    qsort(batch, BATCHES, sizeof(batch[0]), test_compare_times);
    return batch[BATCHES / 4];
}

/* A barrier whose waiters sleep, because spinning would occupy the cores that are measured. */
static void quiet_barrier(MPI_Comm comm)
{
    static const struct timespec nap = { .tv_nsec = 500000 };
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(comm, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        nanosleep(&nap, NULL);
    }
}

double perf_probe_one_way(void)
{
    MPI_Comm node;
    MPI_Win window;
    MPI_Aint size;
    int unit, mine[2] = { 0, 0 }, both[2];
    double one_way = -1;
    void *base;
    _Atomic uint32_t *flag;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, test.rank, MPI_INFO_NULL, &node);
    MPI_Win_allocate_shared(4096, 1, MPI_INFO_NULL, node, &base, &window);
    MPI_Win_shared_query(window, 0, &size, &unit, &base);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    memset(base, 0, test.rank == 0 ? 4096 : 0);
    flag = (_Atomic uint32_t *)base;
    /* World ranks 0 and 1 share memory if they are ranks 0 and 1 of their node. */
    MPI_Comm_rank(node, &mine[0]);
    mine[0] = test.rank < 2 && mine[0] == test.rank;
    MPI_Allreduce(mine, both, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Win_sync(window);
    MPI_Barrier(node);
    MPI_Win_sync(window);
    if (both[0] == 2 && test.rank < 2) {
        one_way = ping_pong(flag, test.rank == 0);
    }
    quiet_barrier(node);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
    MPI_Bcast(&one_way, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return one_way;
}

const char *perf_probe_name(double one_way)
{
    return one_way < 0      ? "not on one host"
           : one_way < 0.15 ? "cores near"
           : one_way < 1.2  ? "cores far"
                            : "one core shared";
}
