/*
 * Words whose elements the GPU reduces in pairs; kern/cuda/reduce_gpu.h asks here first. Only cases with the
 * same bits as rounding a float32 result once:
 *
 *   f16, bf16  sums and products: float32 has more than twice the mantissa and two bits, so that rounding to
 *              it first changes nothing.
 *   f8         the same in f16, whose 11 bits are enough for 4 (2 p + 2). Products of two elements are exact
 *              there, or beyond the largest value. Narrowing saturates: a value beyond the largest becomes
 *              the next code, which is NaN (e4m3) or infinity (e5m2).
 *   max, min   a > b ? a : b, also for NaNs and zeros, where the instructions for maxima decide otherwise.
 */
#ifndef RONDO_KERN_CUDA_REDUCE_CUDA_H
#define RONDO_KERN_CUDA_REDUCE_CUDA_H

#include "base/types.h"

#ifdef __CUDA_ARCH__
#define RONDO_NATIVE_WORDS 1

#define RONDO_PAIR_OP_(name, instruction)                           \
    RONDO_FN uint32_t name(uint32_t a, uint32_t b)                  \
    {                                                               \
        uint32_t r;                                                 \
        asm(instruction " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); \
        return r;                                                   \
    }
RONDO_PAIR_OP_(rondo_pair_add_f16, "add.rn.f16x2")
RONDO_PAIR_OP_(rondo_pair_mul_f16, "mul.rn.f16x2")
RONDO_PAIR_OP_(rondo_pair_above_f16, "set.gt.u32.f16x2") /* all ones in the halves where a > b */

#if __CUDA_ARCH__ >= 900
RONDO_PAIR_OP_(rondo_pair_add_bf16, "add.rn.bf16x2")
RONDO_PAIR_OP_(rondo_pair_mul_bf16, "mul.rn.bf16x2")
RONDO_PAIR_OP_(rondo_pair_above_bf16, "set.gt.u32.bf16x2")
#else
RONDO_FN uint32_t rondo_pair_fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
/* a times one plus b: multiplying by one and adding -0 change nothing */
RONDO_FN uint32_t rondo_pair_add_bf16(uint32_t a, uint32_t b)
{
    return rondo_pair_fma_bf16(a, 0x3f803f80u, b);
}
RONDO_FN uint32_t rondo_pair_mul_bf16(uint32_t a, uint32_t b)
{
    return rondo_pair_fma_bf16(a, b, 0x80008000u);
}
RONDO_FN uint32_t rondo_pair_above_bf16(uint32_t a, uint32_t b)
{
    const uint32_t hi = __uint_as_float(a & 0xffff0000u) > __uint_as_float(b & 0xffff0000u) ? 0xffff0000u : 0;
    return hi | (__uint_as_float(a << 16) > __uint_as_float(b << 16) ? 0xffffu : 0);
}
#endif

#undef RONDO_PAIR_OP_

/* op with the three instructions of a type. */
#define RONDO_PAIR_REDUCE_(type)                                                                            \
    RONDO_FN uint32_t rondo_pair_reduce_##type(enum rondo_reduce reduce, uint32_t a, uint32_t b)            \
    {                                                                                                       \
        uint32_t first;                                                                                     \
        if (reduce == RONDO_REDUCE_SUM) return rondo_pair_add_##type(a, b);                                 \
        if (reduce == RONDO_REDUCE_PROD) return rondo_pair_mul_##type(a, b);                                \
        first = reduce == RONDO_REDUCE_MAX ? rondo_pair_above_##type(a, b) : rondo_pair_above_##type(b, a); \
        return (a & first) | (b & ~first);                                                                  \
    }
RONDO_PAIR_REDUCE_(f16)
RONDO_PAIR_REDUCE_(bf16)
#undef RONDO_PAIR_REDUCE_

RONDO_FN uint64_t rondo_both_pairs(uint32_t lo, uint32_t hi) { return (uint64_t)hi << 32 | lo; }

#if __CUDA_ARCH__ >= 890
/* Two one-byte elements to halves and back; `most` is the largest half that the type still rounds to a
 * number. */
#define RONDO_PAIR_F8_(type, code, most)                                                        \
    RONDO_FN uint32_t rondo_pair_widen_##type(uint32_t codes)                                   \
    {                                                                                           \
        uint32_t r;                                                                             \
        asm("cvt.rn.f16x2." code " %0, %1;" : "=r"(r) : "h"((uint16_t)codes));                  \
        return r;                                                                               \
    }                                                                                           \
    RONDO_FN uint32_t rondo_pair_narrow_##type(uint32_t halves)                                 \
    {                                                                                           \
        const uint32_t beyond = rondo_pair_above_f16(halves & 0x7fff7fffu, most);               \
        uint16_t codes;                                                                         \
        asm("cvt.rn.satfinite." code ".f16x2 %0, %1;" : "=h"(codes) : "r"(halves));             \
        return (uint32_t)codes + ((beyond & 1u) | (beyond >> 8 & 0x100u));                      \
    }                                                                                           \
    RONDO_FN uint32_t rondo_four_##type(enum rondo_reduce reduce, uint32_t a, uint32_t b)       \
    {                                                                                           \
        const uint32_t lo = rondo_pair_reduce_f16(reduce, rondo_pair_widen_##type(a & 0xffffu), \
                                                  rondo_pair_widen_##type(b & 0xffffu));        \
        const uint32_t hi = rondo_pair_reduce_f16(reduce, rondo_pair_widen_##type(a >> 16),     \
                                                  rondo_pair_widen_##type(b >> 16));            \
        return rondo_pair_narrow_##type(hi) << 16 | rondo_pair_narrow_##type(lo);               \
    }
RONDO_PAIR_F8_(f8e4m3, "e4m3x2", 0x5f405f40u) /* 464 */
RONDO_PAIR_F8_(f8e5m2, "e5m2x2", 0x7b7f7b7fu) /* the half before 61440 */
#undef RONDO_PAIR_F8_
#endif

/* @return 1: *word is x op y. 0: element by element is best. */
RONDO_FN int rondo_native_word(rondo_dtype dtype, enum rondo_reduce reduce, uint64_t x, uint64_t y,
                               uint64_t *word)
{
    const uint32_t a = (uint32_t)x, b = (uint32_t)y, c = (uint32_t)(x >> 32), d = (uint32_t)(y >> 32);
    switch ((int)dtype) {
    case RONDO_FLOAT16:
        *word = rondo_both_pairs(rondo_pair_reduce_f16(reduce, a, b), rondo_pair_reduce_f16(reduce, c, d));
        return 1;
    case RONDO_BFLOAT16:
        *word = rondo_both_pairs(rondo_pair_reduce_bf16(reduce, a, b), rondo_pair_reduce_bf16(reduce, c, d));
        return 1;
#if __CUDA_ARCH__ >= 890
    case RONDO_FLOAT8E4M3:
        *word = rondo_both_pairs(rondo_four_f8e4m3(reduce, a, b), rondo_four_f8e4m3(reduce, c, d));
        return 1;
    case RONDO_FLOAT8E5M2:
        *word = rondo_both_pairs(rondo_four_f8e5m2(reduce, a, b), rondo_four_f8e5m2(reduce, c, d));
        return 1;
#endif
    default: return 0;
    }
}

#endif

#endif
