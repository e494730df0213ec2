/* Part of reduce_body.h: convert spans of 8- and 16-bit floats to float and back, a vector at a time, with
 * the same bits as base/half.h. In `x`, a block of two vectors may hold its elements in another order than
 * memory (even ones first), which saves a shuffle; the loops on x do not depend on it. Widening and narrowing
 * the same number of elements use the same order. */
#ifndef RONDO_KERN_CPU_REDUCE_SMALL_H
#define RONDO_KERN_CPU_REDUCE_SMALL_H

#include <string.h>
#include "base/half.h"
#ifdef RONDO_ISA_F16C
#include <immintrin.h>
#endif

enum { LANES = RONDO_ISA_BYTES / 4 };

typedef uint32_t vec_u32 __attribute__((vector_size(RONDO_ISA_BYTES)));
typedef float vec_f32 __attribute__((vector_size(RONDO_ISA_BYTES)));

RONDO_FN vec_u32 load_u32(const void *from)
{
    vec_u32 v;
    memcpy(&v, from, sizeof(v));
    return v;
}
RONDO_FN void store_u32(void *to, vec_u32 v) { memcpy(to, &v, sizeof(v)); }

RONDO_FN vec_u32 pick(vec_u32 mask, vec_u32 a, vec_u32 b) { return (a & mask) | (b & ~mask); }

RONDO_FN size_t widen_bf16_blocks(float *x, const uint8_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const vec_u32 both = load_u32(src + 2 * i);
        store_u32(x + i, both << 16);
        store_u32(x + i + LANES, both & 0xffff0000u);
    }
    return i;
}

/* The result is in the upper half; drop the lower half. */
RONDO_FN vec_u32 round_bf16(vec_u32 v)
{
    const vec_u32 is_nan = (vec_u32)((vec_f32)v != (vec_f32)v);
    return pick(is_nan, v | 0x400000u, v + 0x7fffu + (v >> 16 & 1u));
}

RONDO_FN size_t narrow_bf16_blocks(uint8_t *dst, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const vec_u32 lo = round_bf16(load_u32(x + i)), hi = round_bf16(load_u32(x + i + LANES));
        store_u32(dst + 2 * i, lo >> 16 | (hi & 0xffff0000u));
    }
    return i;
}

#ifdef RONDO_ISA_F16C
typedef uint16_t vec_u16 __attribute__((vector_size(RONDO_ISA_BYTES / 2)));
typedef int16_t vec_i16 __attribute__((vector_size(RONDO_ISA_BYTES / 2)));

RONDO_FN vec_u16 load_u16(const void *from)
{
    vec_u16 v;
    memcpy(&v, from, sizeof(v));
    return v;
}
RONDO_FN void store_u16(void *to, vec_u16 v) { memcpy(to, &v, sizeof(v)); }

#if RONDO_ISA_BYTES == 64
RONDO_FN vec_u32 floats_of_halves(vec_u16 v) { return (vec_u32)_mm512_cvtph_ps((__m256i)v); }
RONDO_FN vec_u16 halves_of_floats(vec_u32 v)
{
    return (vec_u16)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
RONDO_FN vec_u32 max_i32(vec_u32 a, vec_u32 b) { return (vec_u32)_mm512_max_epi32((__m512i)a, (__m512i)b); }
RONDO_FN vec_f32 min_f32(vec_f32 a, vec_f32 b)
{
    return (vec_f32)_mm512_min_ps((__m512)a, (__m512)b);
} /* b where either is NaN */
RONDO_FN vec_u16 min_u16(vec_u16 a, vec_u16 b) { return (vec_u16)_mm256_min_epu16((__m256i)a, (__m256i)b); }
#else
RONDO_FN vec_u32 floats_of_halves(vec_u16 v) { return (vec_u32)_mm256_cvtph_ps((__m128i)v); }
RONDO_FN vec_u16 halves_of_floats(vec_u32 v)
{
    return (vec_u16)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
}
RONDO_FN vec_u32 max_i32(vec_u32 a, vec_u32 b) { return (vec_u32)_mm256_max_epi32((__m256i)a, (__m256i)b); }
RONDO_FN vec_f32 min_f32(vec_f32 a, vec_f32 b)
{
    return (vec_f32)_mm256_min_ps((__m256)a, (__m256)b);
} /* b where either is NaN */
RONDO_FN vec_u16 min_u16(vec_u16 a, vec_u16 b) { return (vec_u16)_mm_min_epu16((__m128i)a, (__m128i)b); }
#endif

RONDO_FN size_t widen_f16_blocks(float *x, const uint8_t *src, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store_u32(x + i, floats_of_halves(load_u16(src + 2 * i)));
    return i;
}

RONDO_FN size_t narrow_f16_blocks(uint8_t *dst, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store_u16(dst + 2 * i, halves_of_floats(load_u32(x + i)));
    return i;
}

/* E5M2 is the upper byte of a half-precision number. */
RONDO_FN vec_u32 floats_of_e5m2(vec_u16 top) { return floats_of_halves(top); }

/* E4M3 shifted by one bit is a half-precision number that is 2^8 too small; all ones is NaN. */
RONDO_FN vec_u32 floats_of_e4m3(vec_u16 top)
{
    const vec_u16 is_nan = (vec_u16)((top & 0x7f00) == 0x7f00);
    const vec_u16 half = ((vec_u16)((vec_i16)top >> 1) & 0xbfff) | (is_nan & 0x7e00);
    return (vec_u32)((vec_f32)floats_of_halves(half) * 256.0f);
}

/* v rounded to `mbits` of mantissa, or to fewer below the exponent `emin`. Adding and subtracting the power
 * of two whose last place is the last one wanted rounds there. Values above 2^20 overflow either format
 * anyway; the cap keeps that power finite. */
RONDO_FN vec_u32 round_small(vec_u32 v, int mbits, int emin)
{
    const vec_u32 zero = v ^ v, sign = v & 0x80000000u;
    const vec_u32 least = zero + ((uint32_t)(127 + emin) << 23), cap = zero + ((uint32_t)(127 + 20) << 23);
    const vec_f32 abs = min_f32((vec_f32)cap, (vec_f32)(v ^ sign));
    const vec_f32 magic = (vec_f32)(max_i32((vec_u32)abs & 0x7f800000u, least) +
                                    ((uint32_t)(23 - mbits) << 23));
    return (vec_u32)((abs + magic) - magic) | sign;
}

RONDO_FN vec_u16 e5m2_of_floats(vec_u32 v) { return halves_of_floats(round_small(v, 2, -14)) & 0xff00; }

/* From 0x3f80 on, the half-precision number that is 2^8 too small has passed 448, the largest value: all
 * ones, which is NaN. */
RONDO_FN vec_u16 e4m3_of_floats(vec_u32 v)
{
    const vec_u16 half = halves_of_floats((vec_u32)((vec_f32)round_small(v, 3, -6) * 0x1p-8f));
    const vec_u16 zero = half ^ half;
    return min_u16(half & 0x7fff, zero + 0x3f80) << 1 | (half & 0x8000);
}

/* Pairs of bytes: the even ones form one vector, the odd ones another. */
#define BLOCKS_OF_BYTES(type)                                                                              \
    RONDO_FN size_t widen_##type##_blocks(float *x, const uint8_t *src, size_t n)                          \
    {                                                                                                      \
        size_t i = 0;                                                                                      \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                                                       \
            const vec_u16 both = load_u16(src + i);                                                        \
            store_u32(x + i, floats_of_##type(both << 8));                                                 \
            store_u32(x + i + LANES, floats_of_##type(both & 0xff00));                                     \
        }                                                                                                  \
        return i;                                                                                          \
    }                                                                                                      \
    RONDO_FN size_t narrow_##type##_blocks(uint8_t *dst, const float *x, size_t n)                         \
    {                                                                                                      \
        size_t i = 0;                                                                                      \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                                                       \
            store_u16(dst + i,                                                                             \
                      type##_of_floats(load_u32(x + i)) >> 8 | type##_of_floats(load_u32(x + i + LANES))); \
        }                                                                                                  \
        return i;                                                                                          \
    }
BLOCKS_OF_BYTES(e4m3)
BLOCKS_OF_BYTES(e5m2)
#endif

/* Reduce two spans of 16-bit floats in one pass, for operations that vectors have: only operands and result
 * touch memory. Same bits as widening, reducing and narrowing. @return how many of n elements it did. */
typedef size_t fused_fn(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n);

/* For widened codes: NaNs have zeros below their upper half, so rounding does not carry into it, and the sum
 * has made them quiet. */
RONDO_FN vec_u32 round_bf16_of_codes(vec_u32 v) { return v + 0x7fffu + (v >> 16 & 1u); }

#define FUSED_BF16(op, sign)                                                                              \
    static size_t fused_bf16_##op(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n)             \
    {                                                                                                     \
        size_t i = 0;                                                                                     \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                                                      \
            const vec_u32 x = load_u32(a + 2 * i), y = load_u32(b + 2 * i);                               \
            const vec_u32 lo = round_bf16_of_codes((vec_u32)((vec_f32)(x << 16) sign(vec_f32)(y << 16))); \
            const vec_u32 hi = round_bf16_of_codes(                                                       \
                (vec_u32)((vec_f32)(x & 0xffff0000u) sign(vec_f32)(y & 0xffff0000u)));                    \
            store_u32(dst + 2 * i, lo >> 16 | (hi & 0xffff0000u));                                        \
        }                                                                                                 \
        return i;                                                                                         \
    }
FUSED_BF16(sum, +)
FUSED_BF16(prod, *)

#ifdef RONDO_ISA_F16C
#define FUSED_F16(op, sign)                                                                  \
    static size_t fused_f16_##op(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n) \
    {                                                                                        \
        size_t i = 0;                                                                        \
        for (; i + LANES <= n; i += LANES) {                                                 \
            const vec_f32 x = (vec_f32)floats_of_halves(load_u16(a + 2 * i)),                \
                          y = (vec_f32)floats_of_halves(load_u16(b + 2 * i));                \
            store_u16(dst + 2 * i, halves_of_floats((vec_u32)(x sign y)));                   \
        }                                                                                    \
        return i;                                                                            \
    }
FUSED_F16(sum, +)
FUSED_F16(prod, *)
#else
#define fused_f16_sum NULL
#define fused_f16_prod NULL
#endif

/* NULL if there is none. */
RONDO_FN fused_fn *fused_find(rondo_dtype type, enum rondo_reduce op)
{
    if (type == RONDO_BFLOAT16) {
        return op == RONDO_REDUCE_SUM ? fused_bf16_sum : op == RONDO_REDUCE_PROD ? fused_bf16_prod : NULL;
    }
    if (type == RONDO_FLOAT16) {
        return op == RONDO_REDUCE_SUM ? fused_f16_sum : op == RONDO_REDUCE_PROD ? fused_f16_prod : NULL;
    }
    return NULL;
}

/* Widen or narrow as many of n elements as fill vectors. @return how many; base/half.h's functions do the
 * rest. */
RONDO_FN size_t widen_blocks(rondo_dtype type, float *x, const uint8_t *src, size_t n)
{
    switch ((int)type) {
    case RONDO_BFLOAT16: return widen_bf16_blocks(x, src, n);
#ifdef RONDO_ISA_F16C
    case RONDO_FLOAT16: return widen_f16_blocks(x, src, n);
    case RONDO_FLOAT8E4M3: return widen_e4m3_blocks(x, src, n);
    case RONDO_FLOAT8E5M2: return widen_e5m2_blocks(x, src, n);
#endif
    default: return 0;
    }
}

RONDO_FN size_t narrow_blocks(rondo_dtype type, uint8_t *dst, const float *x, size_t n)
{
    switch ((int)type) {
    case RONDO_BFLOAT16: return narrow_bf16_blocks(dst, x, n);
#ifdef RONDO_ISA_F16C
    case RONDO_FLOAT16: return narrow_f16_blocks(dst, x, n);
    case RONDO_FLOAT8E4M3: return narrow_e4m3_blocks(dst, x, n);
    case RONDO_FLOAT8E5M2: return narrow_e5m2_blocks(dst, x, n);
#endif
    default: return 0;
    }
}

#endif
