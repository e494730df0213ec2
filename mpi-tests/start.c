#include "start.h"

#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "mpi_common.h"

enum { LEAD_NS = 1500, LEAD_NS_PER_RANK = 100 /* time for all ranks to read the instant */ };

/* Written by rank 0. */
struct instant {
    _Atomic uint64_t start; /* number of the start; published after `at` */
    _Atomic int64_t at;
};

static struct {
    MPI_Win window;
    struct instant *instant; /* NULL: start after a barrier */
    uint64_t starts;
} start;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Collective on a node. @return the number of cores that its ranks may use. In a container, or under taskset,
 * more are online. */
static int allowed_cores(MPI_Comm node)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof(set), &set);
    MPI_Allreduce(MPI_IN_PLACE, &set, sizeof(set), MPI_BYTE, MPI_BOR, node);
    return CPU_COUNT(&set);
}

void test_start_open(enum test_start_kind kind)
{
    MPI_Comm node;
    MPI_Aint bytes;
    int unit, nlocal, ncores, together;
    void *base;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, test.rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &nlocal);
    ncores = allowed_cores(node);
    MPI_Comm_free(&node);
    together = nlocal == test.nranks &&
               (kind == TEST_START_INSTANT || (kind == TEST_START_AUTO && nlocal <= ncores));
    MPI_Allreduce(MPI_IN_PLACE, &together, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!together) {
        return;
    }
    MPI_Win_allocate_shared(test.rank == 0 ? 4096 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base,
                            &start.window);
    MPI_Win_shared_query(start.window, 0, &bytes, &unit, &base);
    start.instant = base;
    if (test.rank == 0) {
        memset(base, 0, (size_t)bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

void test_start_close(void)
{
    if (start.instant != NULL) {
        MPI_Win_free(&start.window);
        start.instant = NULL;
    }
}

void test_start(void)
{
    struct instant *instant = start.instant;
    int64_t at;
    MPI_Barrier(MPI_COMM_WORLD);
    if (instant == NULL) {
        return;
    }
    start.starts++;
    if (test.rank == 0) {
        at = now_ns() + LEAD_NS + (int64_t)LEAD_NS_PER_RANK * test.nranks;
        atomic_store_explicit(&instant->at, at, memory_order_relaxed);
        atomic_store_explicit(&instant->start, start.starts, memory_order_release);
    } else {
        while (atomic_load_explicit(&instant->start, memory_order_acquire) != start.starts) {
        }
        at = atomic_load_explicit(&instant->at, memory_order_relaxed);
    }
    while (now_ns() < at) {
    }
}

const char *test_start_name(void) { return start.instant != NULL ? "at one instant" : "after a barrier"; }
