/* base/half.h: conversions of the 16- and 8-bit floats against a reference in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/half.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

struct format {
    const char *name;
    int bits, mbits, bias;
    uint32_t max; /* code of the largest finite number */
    int has_inf;  /* max + 1 is infinity and larger codes are NaN; else max + 1 is NaN */
    float (*widen)(uint32_t code);
    uint32_t (*narrow)(float value);
};

#define WRAP(name, type)                                                                   \
    static float name##_widen(uint32_t code) { return rondo_##name##_to_f32((type)code); } \
    static uint32_t name##_narrow(float value) { return rondo_f32_to_##name(value); }
WRAP(f16, uint16_t)
WRAP(bf16, uint16_t)
WRAP(f8e4m3, uint8_t)
WRAP(f8e5m2, uint8_t)

static const struct format formats[] = {
    { "f16", 16, 10, 15, 0x7bff, 1, f16_widen, f16_narrow },
    { "bf16", 16, 7, 127, 0x7f7f, 1, bf16_widen, bf16_narrow },
    { "f8e4m3", 8, 3, 7, 0x7e, 0, f8e4m3_widen, f8e4m3_narrow },
    { "f8e5m2", 8, 2, 15, 0x7b, 1, f8e5m2_widen, f8e5m2_narrow },
};

static uint32_t sign_bit(const struct format *f) { return 1u << (f->bits - 1); }

static int code_is_nan(const struct format *f, uint32_t code)
{
    return (code & (sign_bit(f) - 1)) > f->max + (uint32_t)f->has_inf;
}

/* The value of a code. */
static double decode(const struct format *f, uint32_t code)
{
    uint32_t mag = code & (sign_bit(f) - 1);
    int exponent = (int)(mag >> f->mbits);
    double mantissa = mag & ((1u << f->mbits) - 1), value;
    if (code_is_nan(f, code)) {
        return NAN;
    }
    if (mag > f->max) {
        value = INFINITY;
    } else if (exponent == 0) {
        value = ldexp(mantissa, 1 - f->bias - f->mbits);
    } else {
        value = ldexp(mantissa + (1 << f->mbits), exponent - f->bias - f->mbits);
    }
    return code & sign_bit(f) ? -value : value;
}

/* The nearest code, ties to even: the step between codes at a value is a power of two, and rint() rounds
 * multiples of it. Not for NaN. */
static uint32_t encode(const struct format *f, float value)
{
    uint32_t sign = signbit(value) ? sign_bit(f) : 0;
    double abs = fabs((double)value), units;
    int exponent;
    if (abs == 0) {
        return sign;
    }
    if (isinf(value)) {
        return sign | (f->max + 1);
    }
    exponent = ilogb(abs) > 1 - f->bias ? ilogb(abs) : 1 - f->bias;
    units = rint(ldexp(abs, f->mbits - exponent));
    if (ldexp(units, exponent - f->mbits) > decode(f, f->max)) {
        return sign | (f->max + 1);
    }
    /* units is 2^mbits .. 2^(mbits + 1) for normal numbers: its leading bit adds one to the exponent field.
     */
    return sign | (((uint32_t)(exponent + f->bias - 1) << f->mbits) + (uint32_t)units);
}

static void expect_narrow(const struct format *f, uint32_t bits)
{
    float value = rondo_f32_from_bits(bits);
    uint32_t got = f->narrow(value);
    if (isnan(value)) {
        if (!code_is_nan(f, got) || (got & sign_bit(f)) >> (f->bits - 1) != bits >> 31) {
            fail_msg("%s of NaN %08x is %x", f->name, bits, got);
        }
    } else if (got != encode(f, value)) {
        fail_msg("%s of %a (%08x) is %x and not %x", f->name, (double)value, bits, got, encode(f, value));
    }
}

static void every_code_widens_to_its_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(formats); i++) {
        const struct format *f = &formats[i];
        for (uint32_t code = 0; code < 1u << f->bits; code++) {
            double wanted = decode(f, code);
            float got = f->widen(code);
            if (isnan(wanted) ? !isnan(got) : rondo_f32_bits((float)wanted) != rondo_f32_bits(got)) {
                fail_msg("%s %x widens to %a and not %a", f->name, code, (double)got, wanted);
            }
            assert_int_equal(rondo_f32_bits(got) >> 31, code >> (f->bits - 1));
        }
    }
}

static void every_code_survives_the_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(formats); i++) {
        const struct format *f = &formats[i];
        for (uint32_t code = 0; code < 1u << f->bits; code++) {
            uint32_t quiet = code_is_nan(f, code) && f->has_inf ? 1u << (f->mbits - 1) : 0;
            uint32_t back = f->narrow(f->widen(code));
            if (back != (code | quiet)) {
                fail_msg("%s %x comes back as %x", f->name, code, back);
            }
        }
    }
}

/* Where rounding changes: each value, each midpoint of two neighbours, and the floats next to them. */
static void ties_go_to_even_and_neighbours_do_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(formats); i++) {
        const struct format *f = &formats[i];
        for (uint32_t code = 0; code <= f->max; code++) {
            double here = decode(f, code);
            double next = code < f->max ? decode(f, code + 1) : 2 * here - decode(f, code - 1);
            float points[2] = { (float)here, (float)((here + next) / 2) };
            for (int k = 0; k < 2; k++) {
                uint32_t bits = rondo_f32_bits(points[k]);
                for (uint32_t sign = 0; sign < 2; sign++) {
                    expect_narrow(f, bits | sign << 31);
                    expect_narrow(f, (bits + 1) | sign << 31);
                    expect_narrow(f, (bits ? bits - 1 : 0) | sign << 31);
                }
            }
        }
    }
}

static void too_large_becomes_infinity_or_the_nan_of_e4m3(void **state)
{
    (void)state;
    assert_int_equal(rondo_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(rondo_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(rondo_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(rondo_f32_to_f8e4m3(464.0f), 0x7e);
    assert_int_equal(rondo_f32_to_f8e4m3(464.1f), 0x7f);
    assert_int_equal(rondo_f32_to_f8e4m3(-INFINITY), 0xff);
    assert_int_equal(rondo_f32_to_f8e5m2(61439.0f), 0x7b);
    assert_int_equal(rondo_f32_to_f8e5m2(61440.0f), 0x7c);
    assert_int_equal(rondo_f32_to_bf16(3.4e38f), 0x7f80);
}

static uint64_t random_next(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static void millions_of_patterns_match_the_reference(void **state)
{
    uint64_t seed = 20240229;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 2000000; i++) {
        uint64_t random = random_next(&seed);
        /* Any pattern, and one whose exponent is within reach of the small formats. */
        uint32_t any = (uint32_t)random, near = (any & 0x807fffff) | (uint32_t)(100 + (random >> 32) % 48)
                                                                         << 23;
        for (size_t k = 0; k < RONDO_COUNTOF(formats); k++) {
            expect_narrow(&formats[k], any);
            expect_narrow(&formats[k], near);
        }
    }
}

static void nan_keeps_sign_and_upper_payload(void **state)
{
    (void)state;
    assert_int_equal(rondo_f32_to_f16(rondo_f32_from_bits(0xffc06000)), 0xfe03);
    assert_int_equal(rondo_f32_to_f16(rondo_f32_from_bits(0x7f800001)), 0x7e00);
    assert_int_equal(rondo_f32_to_bf16(rondo_f32_from_bits(0xff810000)), 0xffc1);
    assert_int_equal(rondo_f32_to_f8e5m2(rondo_f32_from_bits(0x7fa00000)), 0x7f);
    assert_int_equal(rondo_f32_to_f8e4m3(rondo_f32_from_bits(0xff800001)), 0xff);
}

#ifdef __FLT16_MANT_DIG__
static void f16_agrees_with_the_compilers_Float16(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (uint32_t code = 0; code < 1u << 16; code++) {
        uint16_t half = (uint16_t)code;
        _Float16 theirs;
        memcpy(&theirs, &half, sizeof half);
        if (!isnan(rondo_f16_to_f32(half))) {
            assert_int_equal(rondo_f32_bits((float)theirs), rondo_f32_bits(rondo_f16_to_f32(half)));
        }
    }
    for (int i = 0; i < 2000000; i++) {
        uint32_t any = (uint32_t)random_next(&seed);
        float value = rondo_f32_from_bits(i & 1 ? any : (any & 0x8fffffff) | 0x30000000);
        _Float16 theirs = (_Float16)value;
        uint16_t bits;
        memcpy(&bits, &theirs, sizeof bits);
        if (!isnan(value) && bits != rondo_f32_to_f16(value)) {
            fail_msg("%a: %04x, the compiler's %04x", (double)value, rondo_f32_to_f16(value), bits);
        }
    }
}
#else
static void f16_agrees_with_the_compilers_Float16(void **state)
{
    (void)state;
    print_message("skipped: this compiler has no _Float16\n");
    skip();
}
#endif

#ifdef __SSE__
static void flush_to_zero_mode_changes_nothing(void **state)
{
    unsigned saved = _mm_getcsr();
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(formats); i++) {
        const struct format *f = &formats[i];
        for (uint32_t code = 0; code < 1u << f->bits; code++) {
            float value = f->widen(code), flushed;
            uint32_t down = rondo_f32_bits(value) - (code & 1), back = f->narrow(rondo_f32_from_bits(down)),
                     flushed_back;
            _mm_setcsr(saved | 0x8040); /* flush to zero, denormals are zero */
            flushed = f->widen(code);
            flushed_back = f->narrow(rondo_f32_from_bits(down));
            _mm_setcsr(saved);
            assert_memory_equal(&flushed, &value, sizeof value);
            assert_int_equal(flushed_back, back);
        }
    }
}
#else
static void flush_to_zero_mode_changes_nothing(void **state)
{
    (void)state;
    print_message("skipped: no SSE control register on this machine\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_widens_to_its_value),
        cmocka_unit_test(every_code_survives_the_round_trip),
        cmocka_unit_test(ties_go_to_even_and_neighbours_do_not),
        cmocka_unit_test(too_large_becomes_infinity_or_the_nan_of_e4m3),
        cmocka_unit_test(millions_of_patterns_match_the_reference),
        cmocka_unit_test(nan_keeps_sign_and_upper_payload),
        cmocka_unit_test(f16_agrees_with_the_compilers_Float16),
        cmocka_unit_test(flush_to_zero_mode_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
