/* Reductions of 8 bytes of payload in a register, for every type and pairwise operation of the tables. The
 * bits are those of kern/reduce.h (a NaN is only a NaN): each pair is rounded to the storage type. Type and
 * operation are constants at every call. A machine with better instructions for words defines
 * RONDO_NATIVE_WORDS and rondo_native_word() (kern/cuda/reduce_cuda.h). */
#ifndef RONDO_KERN_CUDA_REDUCE_GPU_H
#define RONDO_KERN_CUDA_REDUCE_GPU_H

#include <string.h>
#include "base/half.h"
#include "kern/machine.h"
#ifdef __CUDACC__
#include "kern/cuda/reduce_cuda.h"
#endif

/* Loop over the elements of a word. One loop for all, so that a division has one copy of its code. */
#define RONDO_WORD_LANES_(storage) (8 / (int)sizeof(storage))
#define RONDO_WORD_SHIFT_(storage, i) (8 * (int)sizeof(storage) * (i))

#define RONDO_WORD_TYPE_(ctx, type, TYPE, value, storage, arith, to_arith, from_arith, ...) \
    RONDO_FN storage rondo_word_get_##type(uint64_t word, int i)                            \
    {                                                                                       \
        storage e;                                                                          \
        word >>= RONDO_WORD_SHIFT_(storage, i);                                             \
        memcpy(&e, &word, sizeof(e));                                                       \
        return e;                                                                           \
    }                                                                                       \
    RONDO_FN uint64_t rondo_word_of_##type(storage e, int i)                                \
    {                                                                                       \
        uint64_t word = 0;                                                                  \
        memcpy(&word, &e, sizeof(e));                                                       \
        return word << RONDO_WORD_SHIFT_(storage, i);                                       \
    }                                                                                       \
    RONDO_FN uint64_t rondo_word_divide_##type(uint64_t x, int32_t divisor)                 \
    {                                                                                       \
        uint64_t word = 0;                                                                  \
        RONDO_ROLLED for (int i = 0; i < RONDO_WORD_LANES_(storage); i++)                   \
        {                                                                                   \
            arith e = to_arith(rondo_word_get_##type(x, i));                                \
            word |= rondo_word_of_##type((storage)from_arith((e / (arith)divisor)), i);     \
        }                                                                                   \
        return word;                                                                        \
    }                                                                                       \
    RONDO_DEVICE_REDUCE_TABLE(RONDO_WORD_ROW_, (type, storage, arith, to_arith, from_arith))

#define RONDO_WORD_ROW_(types, op, OP, value, ...) \
    RONDO_WORD_OP_OF_(RONDO_WORD_UNPACK_ types, op, __VA_ARGS__)
#define RONDO_WORD_OP_OF_(...) RONDO_WORD_OP_(__VA_ARGS__)
#define RONDO_WORD_UNPACK_(...) __VA_ARGS__
#define RONDO_WORD_OP_(type, storage, arith, to_arith, from_arith, op, ...)                             \
    RONDO_FN uint64_t rondo_word_##type##_##op(uint64_t x, uint64_t y)                                  \
    {                                                                                                   \
        uint64_t word = 0;                                                                              \
        RONDO_UNROLLED for (int i = 0; i < RONDO_WORD_LANES_(storage); i++)                             \
        {                                                                                               \
            arith a = to_arith(rondo_word_get_##type(x, i)), b = to_arith(rondo_word_get_##type(y, i)); \
            word |= rondo_word_of_##type((storage)from_arith((__VA_ARGS__)), i);                        \
        }                                                                                               \
        return word;                                                                                    \
    }
RONDO_DEVICE_DTYPE_TABLE(RONDO_WORD_TYPE_, )

/* Sums of bytes wrap separately: the upper bits are added without their carries. */
RONDO_FN uint64_t rondo_word_add_bytes(uint64_t x, uint64_t y)
{
    const uint64_t upper = 0x8080808080808080ull;
    return ((x & ~upper) + (y & ~upper)) ^ ((x ^ y) & upper);
}

#define RONDO_WORD_OP_CASE_(type, op, OP, ...) \
    if (reduce == RONDO_REDUCE_##OP) {         \
        return rondo_word_##type##_##op(x, y); \
    }
/* A type's row: the operation is a constant, so one case remains. */
#define RONDO_WORD_TYPE_CASE_(ctx, type, TYPE, ...)          \
    if ((int)dtype == RONDO_##TYPE) {                        \
        RONDO_DEVICE_REDUCE_TABLE(RONDO_WORD_OP_CASE_, type) \
    }

/** x op y for the elements of a word; operands keep their order. */
RONDO_FN uint64_t rondo_word_reduce(rondo_dtype dtype, enum rondo_reduce reduce, uint64_t x, uint64_t y)
{
#ifdef RONDO_NATIVE_WORDS
    uint64_t word;
    if (rondo_native_word(dtype, reduce, x, y, &word)) return word;
#endif
    if ((dtype == RONDO_INT8 || dtype == RONDO_UINT8) && reduce == RONDO_REDUCE_SUM)
        return rondo_word_add_bytes(x, y);
    RONDO_DEVICE_DTYPE_TABLE(RONDO_WORD_TYPE_CASE_, )
    return x;
}

#define RONDO_WORD_DIVIDE_CASE_(ctx, type, TYPE, ...) \
    case RONDO_##TYPE: return rondo_word_divide_##type(x, divisor);

/** Divide every element, as rondo_divide() does. */
RONDO_FN uint64_t rondo_word_divide(rondo_dtype dtype, uint64_t x, int32_t divisor)
{
    switch ((int)dtype) {
        RONDO_DEVICE_DTYPE_TABLE(RONDO_WORD_DIVIDE_CASE_, )
    default: return x;
    }
}

/** A word that repeats this element. */
RONDO_FN uint64_t rondo_word_repeat(uint64_t element, uint32_t elem_bytes)
{
    uint64_t word = elem_bytes >= 8 ? element : element & ((1ull << 8 * elem_bytes) - 1);
    for (uint32_t bytes = elem_bytes; bytes < 8; bytes *= 2) word |= word << 8 * bytes;
    return word;
}

#endif
