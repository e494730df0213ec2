/* The kernels of kern/cuda/kernels.h on the simulated machine: kern/cuda/block.h with type, operation and
 * protocol as arguments. If FAKE_CUDA_PTX names a file of PTX (kernels/all-80.ptx in a build with CUDA),
 * those that are in it run as PTX (ptx/ptx.h). A file that cannot be read, or a kernel that cannot be
 * decoded, ends the program with a sentence. */
#ifndef RONDO_UNIT_SIM_KERNELS_H
#define RONDO_UNIT_SIM_KERNELS_H

#include "kern/cuda/kernels.h"
#include "ptx/ptx.h"
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

/** The kernels of FAKE_CUDA_PTX; NULL: not set. */
struct ptx_module *sim_kernel_ptx(void);
/** A kernel's name, of at most RONDO_KERNEL_NAME bytes. */
void sim_kernel_name(const struct sim_kernel *kernel, char *name);

/* One running kernel. */
struct sim_kernel_run {
    struct sim_kernel kernel;
    const struct rondo_launch *launch;
    int in_c;           /* whatever FAKE_CUDA_PTX says */
    struct ptx_run ptx; /* set by sim_kernel_grid() */
};
/** Its grid, for rondo_sim_run(). run must stay until that ends. */
struct rondo_sim_grid sim_kernel_grid(struct sim_kernel_run *run, uint32_t threads);

#endif
