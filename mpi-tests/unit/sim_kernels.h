/* The kernels of kern/cuda/kernels.h on the simulated machine: kern/cuda/block.h with type, operation and
 * protocol as arguments. */
#ifndef RONDO_UNIT_SIM_KERNELS_H
#define RONDO_UNIT_SIM_KERNELS_H

#include "kern/cuda/kernels.h"
#include "sim/machine_sim.h"

struct sim_kernel {
    enum { SIM_KERNEL_NONE, SIM_KERNEL_REDUCE, SIM_KERNEL_COPY, SIM_KERNEL_P2P } kind;
    int direct; /* for REDUCE and COPY; then proto is unused */
    rondo_dtype dtype;
    enum rondo_reduce reduce;
    enum rondo_proto proto;
};

/** Find it by the name of kern/cuda/kernels.h; kind NONE: no such kernel. */
struct sim_kernel sim_kernel_find(const char *name);
/** The kernel of a work. */
struct sim_kernel sim_kernel_of(const struct rondo_work *work);

/* One running kernel. */
struct sim_kernel_run {
    struct sim_kernel kernel;
    const struct rondo_launch *launch;
};
/** Its grid, for rondo_sim_run(). run must stay until that ends. */
struct rondo_sim_grid sim_kernel_grid(struct sim_kernel_run *run, uint32_t threads);

#endif
