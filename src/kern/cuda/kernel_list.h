/*
 * The list of kernels, made from the tables of types, operations and protocols. kernels.cu instantiates them,
 * and so do tests on the simulated machine.
 *
 *   RONDO_KERNELS_OF_TYPE(X, type)  kernels of a row of RONDO_DEVICE_DTYPE_TABLE
 *   RONDO_KERNELS_THAT_MOVE(X)      kernels that reduce nothing
 *
 * Each row is X(name, proto, body):
 *   name   rondo_f32_sum_ll128, rondo_f32_sum_direct, rondo_copy_simple, rondo_p2p (kern/cuda/kernels.h)
 *   proto  ll, ll128, simple, direct, p2p
 *   body   a call of a function of kern/cuda/block.h or block_direct.h with `launch` (const struct
 *          rondo_launch *) and `shared` (struct rondo_block_shared *), which X must define
 */
#ifndef RONDO_KERN_CUDA_KERNEL_LIST_H
#define RONDO_KERN_CUDA_KERNEL_LIST_H

#include "base/types.h"

/* A type's enumerator by its name in the table. */
#define RONDO_KERNEL_DTYPE_(ctx, type, TYPE, ...) RONDO_KERNEL_DTYPE_##type = RONDO_##TYPE,
enum { RONDO_DEVICE_DTYPE_TABLE(RONDO_KERNEL_DTYPE_, ) RONDO_KERNEL_DTYPES_END };
#undef RONDO_KERNEL_DTYPE_

#define RONDO_KERNELS_OF_TYPE(X, type) RONDO_DEVICE_REDUCE_TABLE(RONDO_KERNEL_OPS_, (X, type))
#define RONDO_KERNEL_OPS_(of_type, op, OP, value, ...)                            \
    RONDO_PROTO_TABLE(RONDO_KERNEL_PROTOS_, (RONDO_KERNEL_LIST_ of_type, op, OP)) \
    RONDO_KERNEL_DIRECT_ROW_(RONDO_KERNEL_LIST_ of_type, op, OP)
#define RONDO_KERNEL_PROTOS_(of_op, proto, PROTO, value) \
    RONDO_KERNEL_ROW_(RONDO_KERNEL_LIST_ of_op, proto, PROTO)
#define RONDO_KERNEL_ROW_(...) RONDO_KERNEL_REDUCE_(__VA_ARGS__)
#define RONDO_KERNEL_REDUCE_(X, type, op, OP, proto, PROTO)                                         \
    X(rondo_##type##_##op##_##proto, proto,                                                         \
      rondo_block_reduce(launch, shared, (rondo_dtype)RONDO_KERNEL_DTYPE_##type, RONDO_REDUCE_##OP, \
                         RONDO_PROTO_##PROTO))
#define RONDO_KERNEL_DIRECT_ROW_(...) RONDO_KERNEL_DIRECT_(__VA_ARGS__)
#define RONDO_KERNEL_DIRECT_(X, type, op, OP) \
    X(rondo_##type##_##op##_direct, direct,   \
      rondo_block_direct(launch, shared, (rondo_dtype)RONDO_KERNEL_DTYPE_##type, RONDO_REDUCE_##OP))
#define RONDO_KERNEL_LIST_(...) __VA_ARGS__

#define RONDO_KERNELS_THAT_MOVE(X)                                                          \
    RONDO_PROTO_TABLE(RONDO_KERNEL_COPY_, (X))                                              \
    X(rondo_copy_direct, direct,                                                            \
      rondo_block_direct(launch, shared, RONDO_UINT8, (enum rondo_reduce)RONDO_MOVES_ONLY)) \
    X(rondo_p2p, p2p, rondo_block_p2p(launch, shared))
#define RONDO_KERNEL_COPY_(x, proto, PROTO, value) RONDO_KERNEL_COPY_ROW_(RONDO_KERNEL_LIST_ x, proto, PROTO)
#define RONDO_KERNEL_COPY_ROW_(...) RONDO_KERNEL_COPY_OF_(__VA_ARGS__)
#define RONDO_KERNEL_COPY_OF_(X, proto, PROTO) \
    X(rondo_copy_##proto, proto, rondo_block_copy(launch, shared, RONDO_PROTO_##PROTO))

/* Most threads of a block, by protocol. A block's threads share 65,536 registers. */
enum {
    RONDO_THREADS_ll = 512,
    RONDO_THREADS_ll128 = 512,
    RONDO_THREADS_simple = 512,
    RONDO_THREADS_direct = 512,
    RONDO_THREADS_p2p = 512
};

#endif
