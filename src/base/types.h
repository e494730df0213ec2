/* What all folders share: markers of functions, sizes of lines and slots, enums made from the tables. C11 and
 * C++17 (CUDA). */
#ifndef RONDO_BASE_TYPES_H
#define RONDO_BASE_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include "rondo.h"

/* A function that host and device share; always inlined, so that constant arguments propagate. */
#ifdef __CUDACC__
#define RONDO_FN static __device__ __forceinline__
#elif defined(RONDO_MACHINE_SIM)
#define RONDO_FN static inline __attribute__((unused)) /* tests: not inlined, so that they compile sooner */
#else
#define RONDO_FN static inline __attribute__((always_inline, unused))
#endif

#define RONDO_SAME(v) (v)
/* a op b in the type of a. Signed integers wrap: the operation is done in the unsigned type of the same
 * width. */
#define RONDO_WRAP(a, op, b) ((__typeof__(a))(RONDO_UNSIGNED(a) op RONDO_UNSIGNED(b)))
#ifdef __cplusplus
#define RONDO_UNSIGNED(v) rondo_unsigned(v)
#else
#define RONDO_UNSIGNED(v) _Generic((v), int32_t : (uint32_t)(v), int64_t : (uint64_t)(v), default : (v))
#endif
/* UNROLLED precedes a loop of constant length whose counter indexes an array, so that nvcc keeps the array in
 * registers. ROLLED precedes a loop whose body should not be copied. */
#ifdef __CUDACC__
#define RONDO_UNROLLED _Pragma("unroll")
#define RONDO_ROLLED _Pragma("unroll 1")
#else
#define RONDO_UNROLLED
#define RONDO_ROLLED
#endif

#define RONDO_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define RONDO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define RONDO_LIKELY(x) __builtin_expect(!!(x), 1)
#define RONDO_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RONDO_COUNTOF(a) (sizeof(a) / sizeof((a)[0]))

enum {
    RONDO_CACHE_LINE = 64, /* bytes that travel between cores at once */
    RONDO_CTRL_ALIGN =
        128,         /* spacing of control words of different writers: a line and its prefetched neighbour */
    RONDO_SLOTS = 8, /* slots of a conn: how many slices a sender may run ahead; a power of two */
    RONDO_MAX_CHANNELS = 64, /* as NCCL */
    RONDO_TREE_FAN = 3,      /* most children of a tree position */
    RONDO_HOST_LEN = 64      /* bytes of a host name in records and messages, terminated */
};

/* Pairwise operations: the rows of RONDO_REDUCE_TABLE. */
#define RONDO_ENUM_ROW_(ctx, name, NAME, value, ...) RONDO_REDUCE_##NAME = value,
enum rondo_reduce { RONDO_REDUCE_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_REDUCES };
#undef RONDO_ENUM_ROW_

/* GPUs have the first types and the first pairwise operations. */
#define RONDO_COUNT_ROW_(...) +1
enum {
    RONDO_DEVICE_DTYPES = 0 RONDO_DEVICE_DTYPE_TABLE(RONDO_COUNT_ROW_, ),
    RONDO_DEVICE_REDUCES = 0 RONDO_DEVICE_REDUCE_TABLE(RONDO_COUNT_ROW_, )
};
#undef RONDO_COUNT_ROW_

#define RONDO_ENUM_ROW_(ctx, name, NAME, value) RONDO_PROTO_##NAME = value,
enum rondo_proto { RONDO_PROTO_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_PROTOS };
#undef RONDO_ENUM_ROW_

#ifdef __cplusplus
RONDO_FN uint32_t rondo_unsigned(int32_t v) { return (uint32_t)v; }
RONDO_FN uint64_t rondo_unsigned(int64_t v) { return (uint64_t)v; }
RONDO_FN uint32_t rondo_unsigned(uint32_t v) { return v; }
RONDO_FN uint64_t rondo_unsigned(uint64_t v) { return v; }
RONDO_FN float rondo_unsigned(float v) { return v; }
RONDO_FN double rondo_unsigned(double v) { return v; }
#endif

static inline size_t rondo_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t rondo_max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t rondo_round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

#ifndef __CUDACC__
/* Names as users write them ("f32", "sum", "simple"), or NULL out of range; and back (any case), or -1 if
 * unknown. */
const char *rondo_dtype_name(rondo_dtype type);
/* The pairwise operation that an operation of the API is made of. */
enum rondo_reduce rondo_op_reduce(rondo_op op);
/* May an operation be a pre-multiplied sum of this type? */
int rondo_dtype_premul(rondo_dtype type);
const char *rondo_op_name(rondo_op op);
const char *rondo_proto_name(enum rondo_proto proto);
int rondo_dtype_from_name(const char *name);
int rondo_op_from_name(const char *name);
int rondo_proto_from_name(const char *name);
#endif

#endif
