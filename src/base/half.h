/*
 * Conversions between float and the 16- and 8-bit floats: IEEE half, bfloat16, OCP FP8 E4M3 (no infinity, NaN
 * is 0x7f and 0xff, largest 448) and E5M2.
 *
 * Conversion to float is exact. Conversion from float rounds to nearest even, also to subnormals; larger
 * values become infinity (E4M3: NaN, also from infinity). NaN stays NaN: narrowing keeps the sign and the
 * upper bits of the payload and sets the quiet bit, as F16C does (E4M3 has one NaN for each sign).
 *
 * The functions have no branches, so that compilers vectorise loops over them. Two additions of floats round
 * and align subnormals. They involve no subnormal float, so a program that flushes those to zero gets the
 * same bits.
 *
 * Device code uses the GPU's instructions for f16 and bf16, which give the same bits, but only one NaN.
 */
#ifndef RONDO_BASE_HALF_H
#define RONDO_BASE_HALF_H

#include <string.h>
#include "base/types.h"

RONDO_FN uint32_t rondo_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

RONDO_FN float rondo_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* cond ? a : b by a mask. With ?: gcc branches around an addition of floats, and then does not vectorise. */
RONDO_FN uint32_t rondo_select(int cond, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)cond;
    return (a & mask) | (b & ~mask);
}

/*
 * Widen |x| of a format with `mbits` of mantissa and exponent bias `bias`, except infinity and NaN. For
 * subnormals, put the mantissa below the implicit one of the smallest normal's binade and subtract that one.
 */
RONDO_FN uint32_t rondo_small_widen(uint32_t mag, int mbits, int bias)
{
    const int shift = 23 - mbits;
    const uint32_t rebias = (uint32_t)(127 - bias) << 23;
    const uint32_t smallest = rebias + (1u << 23);
    uint32_t normal = (mag << shift) + rebias;
    uint32_t sub = rondo_f32_bits(rondo_f32_from_bits((mag << shift) + smallest) -
                                  rondo_f32_from_bits(smallest));
    return rondo_select(mag >= 1u << mbits, normal, sub);
}

/*
 * Round |x|, given as float bits, to such a format; the result may exceed its largest finite code. For
 * subnormals, add the power of two whose last place is the format's smallest subnormal: the addition rounds
 * to that place.
 */
RONDO_FN uint32_t rondo_small_round(uint32_t abs, int mbits, int bias)
{
    const int shift = 23 - mbits;
    const uint32_t rebias = (uint32_t)(127 - bias) << 23;
    const uint32_t magic = (uint32_t)(127 + 1 - bias - mbits + 23) << 23;
    uint32_t normal = (abs + ((1u << (shift - 1)) - 1) + ((abs >> shift) & 1) - rebias) >> shift;
    uint32_t sub = rondo_f32_bits(rondo_f32_from_bits(abs) + rondo_f32_from_bits(magic)) - magic;
    return rondo_select(abs >= rebias + (1u << 23), normal, sub);
}

/* Narrow to an IEEE-like format whose infinity is `inf`. Larger values become infinity; NaN keeps its upper
 * payload. */
RONDO_FN uint32_t rondo_small_narrow(uint32_t abs, int mbits, int bias, uint32_t inf)
{
    uint32_t rounded = rondo_small_round(abs, mbits, bias);
    uint32_t nan = inf | 1u << (mbits - 1) | ((abs & 0x7fffffu) >> (23 - mbits));
    uint32_t finite = rondo_select(rounded < inf, rounded, inf);
    return rondo_select(abs > 0x7f800000u, nan, finite);
}

#ifdef __CUDA_ARCH__
RONDO_FN float rondo_f16_to_f32(uint16_t code)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
    return value;
}

RONDO_FN uint16_t rondo_f32_to_f16(float value)
{
    uint16_t code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
}

RONDO_FN uint16_t rondo_f32_to_bf16(float value)
{
    uint16_t code;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
}
#else
RONDO_FN float rondo_f16_to_f32(uint16_t code)
{
    uint32_t mag = code & 0x7fffu, sign = (uint32_t)(code & 0x8000u) << 16;
    uint32_t special = 0x7f800000u | (mag << 13);
    uint32_t finite = rondo_small_widen(mag, 10, 15);
    return rondo_f32_from_bits(sign | rondo_select(mag >= 0x7c00u, special, finite));
}

RONDO_FN uint16_t rondo_f32_to_f16(float value)
{
    uint32_t bits = rondo_f32_bits(value), abs = bits & 0x7fffffffu;
    return (uint16_t)((bits ^ abs) >> 16 | rondo_small_narrow(abs, 10, 15, 0x7c00u));
}

RONDO_FN uint16_t rondo_f32_to_bf16(float value)
{
    uint32_t bits = rondo_f32_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)rondo_select((bits & 0x7fffffffu) > 0x7f800000u, nan, rounded);
}
#endif

RONDO_FN float rondo_bf16_to_f32(uint16_t code) { return rondo_f32_from_bits((uint32_t)code << 16); }

RONDO_FN float rondo_f8e4m3_to_f32(uint8_t code)
{
    uint32_t mag = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t finite = rondo_small_widen(mag, 3, 7);
    return rondo_f32_from_bits(sign | rondo_select(mag == 0x7fu, 0x7fc00000u, finite));
}

/* Infinity and NaN exceed 0x7f like any other large number. */
RONDO_FN uint8_t rondo_f32_to_f8e4m3(float value)
{
    uint32_t bits = rondo_f32_bits(value), abs = bits & 0x7fffffffu;
    uint32_t rounded = rondo_small_round(abs, 3, 7);
    return (uint8_t)((bits ^ abs) >> 24 | rondo_select(rounded < 0x7fu, rounded, 0x7fu));
}

RONDO_FN float rondo_f8e5m2_to_f32(uint8_t code)
{
    uint32_t mag = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t special = 0x7f800000u | (mag << 21);
    uint32_t finite = rondo_small_widen(mag, 2, 15);
    return rondo_f32_from_bits(sign | rondo_select(mag >= 0x7cu, special, finite));
}

RONDO_FN uint8_t rondo_f32_to_f8e5m2(float value)
{
    uint32_t bits = rondo_f32_bits(value), abs = bits & 0x7fffffffu;
    return (uint8_t)((bits ^ abs) >> 24 | rondo_small_narrow(abs, 2, 15, 0x7cu));
}

#endif
