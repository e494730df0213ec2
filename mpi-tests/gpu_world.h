/*
 * Ranks that are threads of one process and share one GPU: what gpu_ranks and gpu_bench are made of. Built
 * with RONDO_CUDA only; the driver is the one that the library opens.
 *
 * Kernels of such ranks wait for one another, so nothing here may wait for all of the device while a rank has
 * still to launch: device memory is had and given back between gpu_meet()s only. Every wait has an end:
 * test_watchdog() ends the process.
 */
#ifndef RONDO_TESTS_GPU_WORLD_H
#define RONDO_TESTS_GPU_WORLD_H

#include "mpi_common.h"
#include "mpi_device.h"

enum { GPU_MOST_RANKS = 16, GPU_SKIPPED = 77 };

struct gpu_team; /* where the ranks meet */

struct gpu_rank {
    int rank, nranks;
    rondo_comm *comm;
    rondo_stream stream;
    struct gpu_team *team;
    void *arg;
};
typedef void gpu_rank_fn(struct gpu_rank *r);

/* The program's start: the device, current in this thread. 0; GPU_SKIPPED: there is none, and a line said
 * why. */
int gpu_begin(const char *program);
void gpu_end(void);

/* Run fn as n ranks of a communicator, each in a thread with a stream of its own; returns when all have
 * ended. A failure ends the program. */
void gpu_ranks_run(int n, gpu_rank_fn *fn, void *arg);
/* Returns when all ranks have called it; spins, so that what follows begins together. */
void gpu_meet(const struct gpu_rank *r);
/* All ranks give a number and get the largest. */
double gpu_most(const struct gpu_rank *r, double mine);

/* A call of the driver that base/cuda.def has no row for; ends the program where the driver has none. */
void *gpu_driver_call(const char *name);

static inline const struct rondo_cuda *gpu_cuda(void) { return rondo_cuda(NULL); }
static inline CUdeviceptr gpu_address(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

/* ---- gpu_graph.c ---- */

/* A rank: capture calls in a graph, replay it *(const long *)r->arg times, and check what that made. */
void gpu_graph_rank(struct gpu_rank *r);

/* ---- gpu_launch.c: launches without a communicator ---- */

/* A kernel that does nothing, as short as launches get. */
struct gpu_empty {
    CUmodule module;
    CUfunction function;
    const char *name;
    void *launch, *words; /* NULL: it has no arguments */
};
void gpu_empty_open(struct gpu_empty *empty);
void gpu_empty_launch(const struct gpu_empty *empty, CUstream stream);
void gpu_empty_close(struct gpu_empty *empty);
/* The library's kernels on the device, once more. */
CUmodule gpu_module_load(void);

#endif
