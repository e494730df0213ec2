/* What the PTX ISA says of an instruction's value, where C has no operator for it. */
#ifndef RONDO_PTX_PTX_MATH_H
#define RONDO_PTX_PTX_MATH_H

#include <math.h>

#include "base/half.h"

/* bfi: `bits` bits of a from bit `at` of b on; both count modulo 256, and bits beyond the word are lost. */
RONDO_FN uint64_t ptx_insert(uint64_t a, uint64_t b, uint32_t at, uint32_t bits, uint32_t width)
{
    uint64_t mask;
    at &= 255;
    bits &= 255;
    if (bits == 0 || at >= width) return b;
    mask = bits >= 64 ? ~0ull : (1ull << bits) - 1;
    mask = mask << at;
    return (b & ~mask) | (a << at & mask);
}

/* prmt without a mode: each nibble of c chooses a byte of b:a, or eight copies of its sign. */
RONDO_FN uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t c)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t nibble = c >> 4 * i & 15;
        uint32_t byte = (uint32_t)(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        d |= byte << 8 * i;
    }
    return d;
}

/* f32 arithmetic has one NaN. (That of f64 keeps a payload, which no test may look at.) */
RONDO_FN float ptx_one_nan32(float v) { return v != v ? rondo_f32_from_bits(0x7fffffff) : v; }

/* ---- small floats ---- */

RONDO_FN float ptx_from_f16(uint32_t code) { return rondo_f16_to_f32((uint16_t)code); }
RONDO_FN float ptx_from_bf16(uint32_t code) { return rondo_bf16_to_f32((uint16_t)code); }
RONDO_FN float ptx_from_e4m3(uint32_t code) { return rondo_f8e4m3_to_f32((uint8_t)code); }
RONDO_FN float ptx_from_e5m2(uint32_t code) { return rondo_f8e5m2_to_f32((uint8_t)code); }
RONDO_FN uint16_t ptx_to_f16(float v) { return v != v ? 0x7fff : rondo_f32_to_f16(v); }
RONDO_FN uint16_t ptx_to_bf16(float v) { return v != v ? 0x7fff : rondo_f32_to_bf16(v); }
/* satfinite: what is too large becomes the largest. */
RONDO_FN uint8_t ptx_to_e4m3(float v)
{
    return v != v ? 0x7f : rondo_f32_to_f8e4m3(v > 448 ? 448 : v < -448 ? -448 : v);
}
RONDO_FN uint8_t ptx_to_e5m2(float v)
{
    return v != v ? 0x7f : rondo_f32_to_f8e5m2(v > 57344 ? 57344 : v < -57344 ? -57344 : v);
}

/* Both halves of a register. */
RONDO_FN uint32_t ptx_f16_of_f8(uint16_t a, float (*from)(uint32_t))
{
    return (uint32_t)ptx_to_f16(from(a >> 8)) << 16 | ptx_to_f16(from(a & 255));
}
RONDO_FN uint16_t ptx_f8_of_f16(uint32_t a, uint8_t (*to)(float))
{
    return (uint16_t)(to(ptx_from_f16(a >> 16)) << 8 | to(ptx_from_f16(a & 0xffff)));
}
/* set.gt.u32: one word for both halves is what the ISA's u32 means: each half is all ones or 0. */
RONDO_FN uint32_t ptx_greater(uint32_t a, uint32_t b, float (*from)(uint32_t))
{
    return (from(a >> 16) > from(b >> 16) ? 0xffff0000u : 0) |
           (from(a & 0xffff) > from(b & 0xffff) ? 0xffffu : 0);
}

/* min and max: a NaN yields to a number, and -0 is less than 0. */
RONDO_FN uint32_t ptx_least(uint32_t a, uint32_t b, float (*from)(uint32_t))
{
    const float x = from(a), y = from(b);
    if (x != x && y != y) return 0x7fff;
    if (x != x || y != y) return x != x ? b : a;
    return x < y || (x == y && a >> 15 != 0) ? a : b;
}
RONDO_FN uint32_t ptx_greatest(uint32_t a, uint32_t b, float (*from)(uint32_t))
{
    const float x = from(a), y = from(b);
    if (x != x && y != y) return 0x7fff;
    if (x != x || y != y) return x != x ? b : a;
    return x > y || (x == y && b >> 15 != 0) ? a : b;
}

/* cvt.rzi to an integer of 32 or 64 bits. What is too large or too small becomes the largest or smallest. */
RONDO_FN int64_t ptx_signed(float v, int bits)
{
    const float end = bits == 32 ? 0x1p31f : 0x1p63f;
    if (v != v) return bits == 32 ? 0 : INT64_MIN;
    if (v >= end) return bits == 32 ? INT32_MAX : INT64_MAX;
    if (v < -end) return bits == 32 ? INT32_MIN : INT64_MIN;
    return (int64_t)v;
}
RONDO_FN uint64_t ptx_unsigned(float v, int bits)
{
    if (v != v) return bits == 32 ? 0 : 1ull << 63;
    if (v >= (bits == 32 ? 0x1p32f : 0x1p64f)) return bits == 32 ? UINT32_MAX : UINT64_MAX;
    return v > 0 ? (uint64_t)v : 0;
}

/* v as a float whose last bit is set if v has more bits: rounding that once more is rounding v once. */
RONDO_FN float ptx_round_to_odd(double v)
{
    const float f = (float)v;
    uint32_t bits = rondo_f32_bits(f);
    if ((double)f == v || v != v) return f;
    bits -= fabs((double)f) > fabs(v); /* towards 0 */
    return rondo_f32_from_bits(bits | 1);
}

/* a * b + c, rounded once. The product of small floats is exact in double; the sum is made odd like above. */
RONDO_FN float ptx_fma_odd(float a, float b, float c)
{
    const double p = (double)a * b, s = p + c, back = s - p, error = (p - (s - back)) + (c - back);
    double sum = s;
    uint64_t bits;
    if (isfinite(s) && error != 0) {
        memcpy(&bits, &s, sizeof bits);
        bits -= (error < 0) == (s > 0); /* towards 0 */
        bits |= 1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return ptx_round_to_odd(sum);
}
RONDO_FN uint32_t ptx_fma(uint32_t a, uint32_t b, uint32_t c, float (*from)(uint32_t), uint16_t (*to)(float))
{
    const uint32_t low = to(ptx_fma_odd(from(a & 0xffff), from(b & 0xffff), from(c & 0xffff)));
    return (uint32_t)to(ptx_fma_odd(from(a >> 16), from(b >> 16), from(c >> 16))) << 16 | low;
}

#endif
