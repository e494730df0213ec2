/*
 * The kernels by name, and the library with their code: one image (fat binary) in librondo-kernels.so, beside
 * librondo.so. It is opened when the first communicator with a GPU is made, so that programs on host memory
 * never load it.
 *
 * Every kernel is `extern "C" void NAME(const struct rondo_launch launch)` (kern/cuda/launch.h), for a grid
 * of launch.nblocks blocks of rondo_kernel_threads() threads, without dynamic shared memory:
 *
 *   rondo_<dtype>_<reduce>_<proto>        collectives that reduce, and barriers: rondo_f32_sum_ll128
 *   rondo_<dtype>_<reduce>_direct         those by one-shot and two-shot
 *   rondo_copy_<proto>, rondo_copy_direct collectives that only move bytes
 *   rondo_p2p                             sends and receives of a group; each work names its protocol
 */
#ifndef RONDO_KERN_CUDA_KERNELS_H
#define RONDO_KERN_CUDA_KERNELS_H

#include "coll/step.h"
#include "kern/cuda/launch.h"

enum { RONDO_KERNEL_NAME = 48 };
#define RONDO_KERNELS_LIBRARY "librondo-kernels.so"
#define RONDO_KERNELS_SYMBOL "rondo_kernels"

/** By one-shot or two-shot? Then kern/cuda/block_direct.h runs it, and the protocol does not matter. */
static inline int rondo_work_is_direct(const struct rondo_work *work)
{
    return rondo_algo_medium(work->algo) != RONDO_MEDIUM_CONNS;
}
/** The name of the kernel that runs a work. */
void rondo_kernel_name(char name[RONDO_KERNEL_NAME], const struct rondo_work *work);
/** Threads of its blocks: RONDO_NTHREADS in whole warps, or the most that the kernel was built for
 * (kern/cuda/kernel_list.h). */
uint32_t rondo_kernel_threads(const struct rondo_work *work);
/** The image for cuModuleLoadData, opened once. NULL: *why is a sentence that says what is missing and what
 * to do. RONDO_KERNELS_LIB names another library, for tests and tools. */
const void *rondo_kernels_image(const char **why);

#endif
