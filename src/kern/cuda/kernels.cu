/* The kernels of the type that RONDO_KERNEL_TYPE names (f32), or without it those that only move bytes.
 * Makefile.am compiles this file once per type and architecture. */
#include "kern/cuda/block_direct.h"
#include "kern/cuda/kernel_list.h"

#define KERNEL(name, proto, body)                                          \
    extern "C" __global__ void __launch_bounds__(RONDO_THREADS_##proto, 1) \
        name(const __grid_constant__ struct rondo_launch argument)         \
    {                                                                      \
        __shared__ struct rondo_block_shared block_shared;                 \
        const struct rondo_launch *launch = &argument;                     \
        struct rondo_block_shared *shared = &block_shared;                 \
        body;                                                              \
    }

#ifdef RONDO_KERNEL_TYPE
#define OF_TYPE(type) RONDO_KERNELS_OF_TYPE(KERNEL, type)
OF_TYPE(RONDO_KERNEL_TYPE)
#else
RONDO_KERNELS_THAT_MOVE(KERNEL)
#endif
