/*
 * Ranks that share one GPU, for gpu_ranks and gpu_bench: threads of one process, or mpirun's processes. Built
 * with RONDO_CUDA only; uses the CUDA driver that the library opens.
 *
 * The kernels of the ranks wait for one another, so nothing may wait for the whole device while a rank still
 * has to launch: allocate and free device memory only between two gpu_meet() calls. test_watchdog() ends a
 * process that hangs.
 */
#ifndef RONDO_TESTS_GPU_WORLD_H
#define RONDO_TESTS_GPU_WORLD_H

#include "mpi_common.h"
#include "mpi_device.h"

enum { GPU_MOST_RANKS = 16, GPU_SKIPPED = 77 };

struct gpu_team; /* where the ranks meet */

struct gpu_rank {
    int rank, nranks;
    int leads; /* 1: the first of its process, which does what is done once in a process */
    rondo_comm *comm;
    rondo_stream stream;
    struct gpu_team *team;
    void *arg;
};
typedef void gpu_rank_fn(struct gpu_rank *r);

/** Make the device current in this thread. @return 0, or GPU_SKIPPED after a line that says why. */
int gpu_begin(const char *program);
/** The same in each of mpirun's processes: each is a rank of everything that gpu_ranks_run runs. */
int gpu_begin_mpi(const char *program);
/** Print how many cases failed. @return the exit status of the program. */
int gpu_end(void);

/** Run fn as n ranks of a communicator, each in a thread with its own stream, and wait for all. A failure
 * ends the program. After gpu_begin_mpi, n is the number of processes. */
void gpu_ranks_run(int n, gpu_rank_fn *fn, void *arg);
/** Wait until all ranks have called this. Threads spin, so that they continue together. */
void gpu_meet(const struct gpu_rank *r);
/** Collective. @return the largest number of all ranks. */
double gpu_most(const struct gpu_rank *r, double mine);

/** @return a driver function that base/cuda.def does not list. Ends the program if the driver lacks it. */
void *gpu_driver_call(const char *name);

static inline const struct rondo_cuda *gpu_cuda(void) { return rondo_cuda(NULL); }
static inline CUdeviceptr gpu_address(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

/* ---- gpu_graph.c ---- */

/** As one rank, capture calls in a graph, replay it *(const long *)r->arg times, and check the results. */
void gpu_graph_rank(struct gpu_rank *r);

/* ---- gpu_launch.c: launches without a communicator ---- */

/* A kernel that does nothing: the shortest launch. */
struct gpu_empty {
    CUmodule module;
    CUfunction function;
    const char *name;
    void *launch, *words; /* NULL: no arguments */
};
void gpu_empty_open(struct gpu_empty *empty);
void gpu_empty_launch(const struct gpu_empty *empty, CUstream stream);
void gpu_empty_close(struct gpu_empty *empty);
/** Load the library's kernels on the device once more. */
CUmodule gpu_module_load(void);

#endif
