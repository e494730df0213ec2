/* Reductions: every type, operation, number of sources, length and alignment gives the reference's bits with
 * every instruction set of this machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "kern/cpu/reduce_isa.h"

enum { MAX_SOURCES = 8, MAX_COUNT = 5000, ROOM = MAX_COUNT * 8 + 64 };

static uint64_t seed, dice;
static const struct rondo_reduce_isa
    *isas[8]; /* NULL after the last; cached, because cpuid is slow in virtual machines */

static uint64_t draw(void)
{
    uint64_t x = dice += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* ---- the reference: one element at a time, from the formats' definitions ---- */

/* Each type of one number of at most 8 bytes, described without the tables' columns under test. The others:
 * unit_reduce_two.c. */
static const struct type {
    enum { SIGNED, UNSIGNED, LOGICAL, NATIVE, SMALL } kind;
    int bits, mbits, bias;
    int top; /* SMALL: the first magnitude beyond the numbers: infinity, or E4M3's NaN */
} types[] = {
    [RONDO_INT8] = { SIGNED, 8, 0, 0, 0 },           [RONDO_UINT8] = { UNSIGNED, 8, 0, 0, 0 },
    [RONDO_INT32] = { SIGNED, 32, 0, 0, 0 },         [RONDO_UINT32] = { UNSIGNED, 32, 0, 0, 0 },
    [RONDO_INT64] = { SIGNED, 64, 0, 0, 0 },         [RONDO_UINT64] = { UNSIGNED, 64, 0, 0, 0 },
    [RONDO_FLOAT16] = { SMALL, 16, 10, 15, 0x7c00 }, [RONDO_FLOAT32] = { NATIVE, 32, 0, 0, 0 },
    [RONDO_FLOAT64] = { NATIVE, 64, 0, 0, 0 },       [RONDO_BFLOAT16] = { SMALL, 16, 7, 127, 0x7f80 },
    [RONDO_FLOAT8E4M3] = { SMALL, 8, 3, 7, 0x7f },   [RONDO_FLOAT8E5M2] = { SMALL, 8, 2, 15, 0x7c },
    [RONDO_INT16] = { SIGNED, 16, 0, 0, 0 },         [RONDO_UINT16] = { UNSIGNED, 16, 0, 0, 0 },
    [RONDO_BOOL8] = { LOGICAL, 8, 0, 0, 0 },         [RONDO_BOOL16] = { LOGICAL, 16, 0, 0, 0 },
    [RONDO_BOOL32] = { LOGICAL, 32, 0, 0, 0 },       [RONDO_BOOL64] = { LOGICAL, 64, 0, 0, 0 },
};
enum { NTYPES = RONDO_COUNTOF(types) };
_Static_assert((int)NTYPES == (int)RONDO_LONG_DOUBLE, "a type has no reference");

static uint64_t keep(uint64_t v, int bits) { return bits == 64 ? v : v & ((1ull << bits) - 1); }

static int64_t sign_extended(uint64_t v, int bits) { return (int64_t)(v << (64 - bits)) >> (64 - bits); }

/* The number of each magnitude. Values go on past the last number, which rounding needs. */
static double values[NTYPES][0x8000];

static double small_value(const struct type *t, int magnitude) { return values[t - types][magnitude]; }

static void fill_values(void)
{
    for (int type = 0; type < NTYPES; type++) {
        const struct type *t = &types[type];
        for (int i = 0; t->kind == SMALL && i < 1 << (t->bits - 1); i++) {
            const int e = i >> t->mbits, m = i & ((1 << t->mbits) - 1);
            values[type][i] = e == 0 ? ldexp(m, 1 - t->bias - t->mbits)
                                     : ldexp(m + (1 << t->mbits), e - t->bias - t->mbits);
        }
    }
}

static float small_widen(const struct type *t, uint64_t code)
{
    const int magnitude = (int)(code & ((1u << (t->bits - 1)) - 1));
    const float sign = code >> (t->bits - 1) ? -1.0f : 1.0f;
    if (magnitude >= t->top) {
        return magnitude == t->top && t->top != 0x7f ? sign * INFINITY : NAN;
    }
    return sign * (float)small_value(t, magnitude);
}

/* The nearest magnitude by bisection; of two equally near ones, the even one. */
static uint64_t small_narrow(const struct type *t, float value)
{
    const uint64_t sign = signbit(value) ? 1ull << (t->bits - 1) : 0;
    const double abs = fabs((double)value);
    int low = 0, high = t->top;
    if (isnan(value)) {
        return (uint64_t)t->top + (t->top != 0x7f);
    }
    if (abs >= small_value(t, t->top)) {
        return sign | (uint64_t)t->top;
    }
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(small_value(t, middle) <= abs ? &low : &high) = middle;
    }
    if (abs - small_value(t, low) > small_value(t, high) - abs ||
        (abs - small_value(t, low) == small_value(t, high) - abs && low % 2 != 0)) {
        low = high;
    }
    return sign | (uint64_t)low;
}

static int is_nan(const struct type *t, uint64_t v)
{
    float f;
    double d;
    if (t->kind == SMALL) {
        return isnan(small_widen(t, v));
    }
    if (t->kind != NATIVE) {
        return 0;
    }
    memcpy(&f, &v, 4);
    memcpy(&d, &v, 8);
    return t->bits == 32 ? isnan(f) : isnan(d);
}

#define ARITHMETIC(T)                                \
    static T T##_op(T a, T b, int op)                \
    {                                                \
        switch (op) {                                \
        case RONDO_REDUCE_SUM: return a + b;         \
        case RONDO_REDUCE_PROD: return a * b;        \
        case RONDO_REDUCE_MAX: return a > b ? a : b; \
        default: return a < b ? a : b;               \
        }                                            \
    }
ARITHMETIC(float)
ARITHMETIC(double)
ARITHMETIC(uint64_t)

static uint64_t expected(const struct type *t, uint64_t a, uint64_t b, int op)
{
    float f, g;
    double d, e;
    uint64_t v = 0;
    switch (t->kind) {
    case SMALL: return small_narrow(t, float_op(small_widen(t, a), small_widen(t, b), op));
    case NATIVE:
        if (t->bits == 32) {
            memcpy(&f, &a, 4);
            memcpy(&g, &b, 4);
            f = float_op(f, g, op);
            memcpy(&v, &f, 4);
        } else {
            memcpy(&d, &a, 8);
            memcpy(&e, &b, 8);
            d = double_op(d, e, op);
            memcpy(&v, &d, 8);
        }
        return v;
    case SIGNED:
        if (op == RONDO_REDUCE_MAX || op == RONDO_REDUCE_MIN) {
            return (sign_extended(a, t->bits) > sign_extended(b, t->bits)) == (op == RONDO_REDUCE_MAX) ? a
                                                                                                       : b;
        }
        return keep(uint64_t_op(a, b, op), t->bits);
    default: return keep(uint64_t_op(a, b, op), t->bits);
    }
}

/* What integers and logicals have besides. */
static uint64_t expected_bits(uint64_t a, uint64_t b, int op)
{
    switch (op) {
    case RONDO_REDUCE_LAND: return a != 0 && b != 0;
    case RONDO_REDUCE_LOR: return a != 0 || b != 0;
    case RONDO_REDUCE_LXOR: return (a != 0) != (b != 0);
    case RONDO_REDUCE_BAND: return a & b;
    case RONDO_REDUCE_BOR: return a | b;
    default: return a ^ b;
    }
}

static int is_on_bits(int op) { return op >= RONDO_REDUCE_LAND && op <= RONDO_REDUCE_BXOR; }

/* Has the type this operation? */
static int has(int type, int op)
{
    switch (types[type].kind) {
    case SIGNED:
    case UNSIGNED: return op <= RONDO_REDUCE_BXOR;
    case LOGICAL: return op >= RONDO_REDUCE_LAND && op <= RONDO_REDUCE_LXOR;
    default: return op <= RONDO_REDUCE_MIN;
    }
}

/* ---- spans ---- */

static uint64_t element(const void *span, size_t i, int bits)
{
    uint64_t v = 0;
    memcpy(&v, (const uint8_t *)span + i * (size_t)bits / 8, (size_t)bits / 8);
    return v;
}

static void element_set(void *span, size_t i, int bits, uint64_t v)
{
    memcpy((uint8_t *)span + i * (size_t)bits / 8, &v, (size_t)bits / 8);
}

/* Random bits; half of the floats have exponents near 1, so that sums round but neither vanish nor overflow.
 */
static uint64_t random_element(const struct type *t)
{
    const uint64_t v = keep(draw(), t->bits), how = draw() % 16;
    const float f = (float)(1 + (v & 0xffff)) / 4096.0f * (v >> (t->bits - 1) ? -1.0f : 1.0f);
    const double d = (double)f + (double)(v >> 40) * 0x1p-40;
    uint64_t u = 0;
    if (how == 0) {
        return keep(0 - (v & 1), t->bits) << (v >> 1 & 1 ? t->bits - 1 : 0) >> (v >> 2 & 1) &
               keep(~0ull, t->bits); /* 0, -0, all ones, ... */
    }
    if (t->kind == LOGICAL && how < 6) {
        return 0;
    }
    if (how < 8 || t->kind == SIGNED || t->kind == UNSIGNED || t->kind == LOGICAL) {
        return v;
    }
    if (t->kind == SMALL) {
        return small_narrow(t, f);
    }
    memcpy(&u, t->bits == 32 ? (const void *)&f : (const void *)&d, (size_t)t->bits / 8);
    return u;
}

static uint8_t memory[MAX_SOURCES + 2][ROOM] __attribute__((aligned(64)));

static void check_span(const struct rondo_reduce_isa *isa, int type, const void *got, const void *want,
                       size_t n, const char *what)
{
    const struct type *t = &types[type];
    if (n == 0 || memcmp(got, want, n * (size_t)t->bits / 8) == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t g = element(got, i, t->bits), w = element(want, i, t->bits);
        if (g != w && !(is_nan(t, g) && is_nan(t, w))) {
            fail_msg("%s, %s, type %d, element %zu of %zu: %#llx, expected %#llx; seed %llu", what, isa->name,
                     type, i, n, (unsigned long long)g, (unsigned long long)w, (unsigned long long)seed);
        }
    }
}

/* Sources lie at odd addresses; the destination is separate or one of them. */
static void check_reduce(int type, int op, int nsrcs, size_t n, const uint64_t *fixed)
{
    static uint8_t before[MAX_SOURCES][ROOM], want[ROOM];
    const struct type *t = &types[type];
    const size_t bytes = n * (size_t)t->bits / 8;
    const int in_place = (int)(draw() % (uint64_t)(2 * nsrcs));
    uint8_t *src[MAX_SOURCES], *dst = memory[MAX_SOURCES] + 32 + draw() % 32;
    const void *srcs[MAX_SOURCES];
    for (int s = 0; s < nsrcs; s++) {
        srcs[s] = src[s] = memory[s] + 1 + draw() % 32;
        for (size_t i = 0; i < n; i++) {
            element_set(src[s], i, t->bits, fixed != NULL ? fixed[(size_t)s * n + i] : random_element(t));
        }
        memcpy(before[s], src[s], bytes);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = element(src[0], i, t->bits);
        for (int s = 1; s < nsrcs; s++) {
            v = is_on_bits(op) ? expected_bits(v, element(src[s], i, t->bits), op)
                               : expected(t, v, element(src[s], i, t->bits), op);
        }
        element_set(want, i, t->bits, v);
    }
    if (in_place < nsrcs) {
        dst = src[in_place];
    }
    for (int k = 0; isas[k] != NULL; k++) {
        if (in_place < nsrcs) {
            memcpy(dst, before[in_place], bytes);
        }
        dst[-1] = dst[bytes] = 0x5a;
        isas[k]->reduce[type][op](dst, srcs, nsrcs, n);
        check_span(isas[k], type, dst, want, n, "reduce");
        assert_true(dst[-1] == 0x5a && dst[bytes] == 0x5a);
        for (int s = 0; s < nsrcs; s++) {
            assert_true(src[s] == dst || memcmp(src[s], before[s], bytes) == 0);
        }
    }
}

static void every_type_and_operation_folds_from_the_left_at_any_length(void **state)
{
    static const int sources[] = { 1, 2, 3, 4, 5, 8 };
    (void)state;
    for (int type = 0; type < NTYPES; type++) {
        for (int op = 0; op < RONDO_NUM_REDUCES; op++) {
            assert_int_equal(rondo_reduce_get((rondo_dtype)type, (enum rondo_reduce)op) != NULL,
                             has(type, op));
            for (size_t s = 0; has(type, op) && s < RONDO_COUNTOF(sources); s++) {
                for (size_t n = 0; n <= 130; n++) {
                    check_reduce(type, op, sources[s], n, NULL);
                }
                check_reduce(type, op, sources[s], 1000, NULL);
                check_reduce(type, op, sources[s], MAX_COUNT, NULL); /* several tiles */
            }
        }
    }
}

static void pairs_of_all_8_bit_floats_are_exact(void **state)
{
    static uint64_t pairs[2 * 4096];
    (void)state;
    for (int type = 0; type < NTYPES; type++) {
        for (int op = 0; types[type].kind == SMALL && types[type].bits == 8 && has(type, op); op++) {
            for (uint64_t first = 0; first < 65536; first += 4096) {
                for (uint64_t i = 0; i < 4096; i++) {
                    pairs[i] = (first + i) >> 8;
                    pairs[4096 + i] = (first + i) & 0xff;
                }
                check_reduce(type, op, 2, 4096, pairs);
            }
        }
    }
}

static void all_16_bit_floats_are_exact_with_each_exponent(void **state)
{
    static uint64_t pairs[2 * 4096];
    (void)state;
    for (int type = 0; type < NTYPES; type++) {
        for (int op = 0; types[type].kind == SMALL && types[type].bits == 16 && op < 2; op++) {
            for (uint64_t first = 0; first < 65536; first += 4096) {
                for (int round = 0; round < 2; round++) {
                    for (uint64_t i = 0; i < 4096; i++) {
                        pairs[i] = first + i;
                        pairs[4096 + i] = draw() & 0xffff;
                    }
                    check_reduce(type, op, 2, 4096, pairs);
                }
            }
        }
    }
}

static void integers_wrap_and_never_saturate(void **state)
{
    const int8_t i8[2][2] = { { 127, -128 }, { 1, -128 } };
    const uint8_t u8[2][2] = { { 255, 16 }, { 1, 17 } };
    const int32_t i32[2][2] = { { INT32_MAX, INT32_MIN }, { 1, -1 } };
    const int64_t i64[2][2] = { { INT64_MAX, INT64_MIN }, { 1, -1 } };
    (void)state;
    for (int k = 0; isas[k] != NULL; k++) {
        const struct rondo_reduce_isa *isa = isas[k];
        int8_t a[2];
        uint8_t b[2];
        int32_t c[2];
        int64_t d[2];
        isa->reduce[RONDO_INT8][RONDO_REDUCE_SUM](a, (const void *[]){ i8[0], i8[1] }, 2, 2);
        assert_true(a[0] == -128 && a[1] == 0);
        isa->reduce[RONDO_UINT8][RONDO_REDUCE_SUM](b, (const void *[]){ u8[0], u8[1] }, 2, 2);
        assert_true(b[0] == 0 && b[1] == 33);
        isa->reduce[RONDO_UINT8][RONDO_REDUCE_PROD](b, (const void *[]){ u8[0], u8[1] }, 2, 2);
        assert_true(b[0] == 255 && b[1] == 16);
        isa->reduce[RONDO_INT32][RONDO_REDUCE_SUM](c, (const void *[]){ i32[0], i32[1] }, 2, 2);
        assert_true(c[0] == INT32_MIN && c[1] == INT32_MAX);
        isa->reduce[RONDO_INT32][RONDO_REDUCE_PROD](c, (const void *[]){ i32[0], i32[1] }, 2, 2);
        assert_true(c[0] == INT32_MAX && c[1] == INT32_MIN);
        isa->reduce[RONDO_INT64][RONDO_REDUCE_SUM](d, (const void *[]){ i64[0], i64[1] }, 2, 2);
        assert_true(d[0] == INT64_MIN && d[1] == INT64_MAX);
        isa->reduce[RONDO_INT64][RONDO_REDUCE_PROD](d, (const void *[]){ i64[0], i64[1] }, 2, 2);
        assert_true(d[0] == INT64_MAX && d[1] == INT64_MIN);
    }
}

static uint64_t expected_quotient(const struct type *t, uint64_t v, int divisor)
{
    float f;
    double d;
    switch (t->kind) {
    case SMALL: return small_narrow(t, small_widen(t, v) / (float)divisor);
    case NATIVE:
        memcpy(&f, &v, 4);
        memcpy(&d, &v, 8);
        f /= (float)divisor;
        d /= divisor;
        v = 0;
        memcpy(&v, t->bits == 32 ? (void *)&f : (void *)&d, (size_t)t->bits / 8);
        return v;
    case SIGNED: return keep((uint64_t)(sign_extended(v, t->bits) / divisor), t->bits);
    default: return v / (uint64_t)divisor;
    }
}

static void quotients_truncate_towards_zero_or_round_once(void **state)
{
    static const int divisors[] = { 1, 2, 3, 7, 8, 100, 4096, 131071 };
    static uint8_t before[ROOM], want[ROOM];
    int32_t negative[] = { -7, 7, -1, INT32_MIN };
    (void)state;
    for (int type = 0; type < NTYPES; type++) {
        const struct type *t = &types[type];
        for (size_t i = 0; has(type, RONDO_REDUCE_SUM) && i < 8 * RONDO_COUNTOF(divisors); i++) {
            const size_t n = i % 8 == 0 ? 1500 : draw() % 140;
            const int divisor = divisors[i / 8];
            uint8_t *span = memory[0] + 1 + draw() % 32;
            for (size_t e = 0; e < n; e++) {
                element_set(before, e, t->bits, random_element(t));
                element_set(want, e, t->bits, expected_quotient(t, element(before, e, t->bits), divisor));
            }
            for (int k = 0; isas[k] != NULL; k++) {
                memcpy(span, before, n * (size_t)t->bits / 8);
                isas[k]->divide[type](span, n, divisor);
                check_span(isas[k], type, span, want, n, "divide");
            }
        }
    }
    rondo_divide(negative, 4, RONDO_INT32, 2);
    assert_true(negative[0] == -3 && negative[1] == 3 && negative[2] == 0 && negative[3] == INT32_MIN / 2);
}

static void premultiplied_elements_are_products_with_the_scalar(void **state)
{
    static uint8_t want[ROOM];
    (void)state;
    for (int type = 0; type < NTYPES; type++) {
        const struct type *t = &types[type];
        assert_int_equal(rondo_dtype_premul((rondo_dtype)type), has(type, RONDO_REDUCE_SUM));
        for (size_t i = 0; has(type, RONDO_REDUCE_SUM) && i < 150; i++) {
            const size_t n = i == 0 ? MAX_COUNT : i;
            const uint64_t scalar = random_element(t);
            uint8_t *src = memory[0] + 1 + draw() % 32, *dst = i % 3 == 0 ? src : memory[1] + draw() % 32;
            static uint8_t before[ROOM];
            for (size_t e = 0; e < n; e++) {
                element_set(before, e, t->bits, random_element(t));
                element_set(want, e, t->bits,
                            expected(t, element(before, e, t->bits), scalar, RONDO_REDUCE_PROD));
            }
            for (int k = 0; isas[k] != NULL; k++) {
                memcpy(src, before, n * (size_t)t->bits / 8);
                isas[k]->premul[type](dst, src, n, scalar);
                check_span(isas[k], type, dst, want, n, "premul");
            }
        }
    }
}

static void copies_are_exact_at_any_alignment(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM; i++) {
        memory[0][i] = (uint8_t)draw();
    }
    for (int stream = 0; stream < 2; stream++) {
        for (size_t i = 0; i < 600; i++) {
            const size_t bytes = i < 200 ? i : draw() % 20000, from = draw() % 80, to = 1 + draw() % 80;
            memset(memory[1], 0x5a, bytes + 200);
            rondo_copy(memory[1] + to, memory[0] + from, bytes, stream);
            assert_memory_equal(memory[1] + to, memory[0] + from, bytes);
            assert_true(memory[1][to - 1] == 0x5a && memory[1][to + bytes] == 0x5a);
        }
    }
}

/* Non-temporal stores and rondo_reduce_over. Targets whose lines begin together or not, elements across
 * lines, a target that is a source, with and without `keep`. */
static void reductions_by_other_stores_have_the_same_results(void **state)
{
    static uint8_t want[ROOM], kept[ROOM + 64];
    (void)state;
    for (size_t i = 0; i < 3000; i++) {
        const rondo_dtype type = (rondo_dtype)(i % NTYPES);
        const enum rondo_reduce op = (enum rondo_reduce)(draw() % RONDO_NUM_REDUCES);
        if (!has((int)type, (int)op)) {
            continue;
        }
        const size_t elem = rondo_dtype_size(type), n = i < 300 ? i : draw() % (MAX_COUNT - 64),
                     bytes = n * elem, step = draw() % 3 == 0 ? 1 : elem;
        const void *srcs[MAX_SOURCES];
        const int over = draw() % 3 == 0;
        uint8_t *dsts[MAX_SOURCES], *keep_at = !over && draw() % 2 == 0 ? kept + draw() % 64 : NULL;
        struct rondo_reduction what = { type, op, op <= RONDO_REDUCE_MIN && draw() % 3 == 0 ? 3 : 0,
                                        1 + (int)(draw() % (MAX_SOURCES / 2)), srcs };
        const int ndsts = 1 + (int)(draw() % (MAX_SOURCES - (size_t)what.nsrcs)), same = draw() % 4 != 0,
                  in_place = draw() % 4 == 0;
        const size_t off = 64 + draw() % 64 / step * step;
        for (int k = 0; k < MAX_SOURCES; k++) {
            if (k < what.nsrcs) {
                srcs[k] = memory[k] + draw() % 32;
                for (size_t e = 0; e < n; e++) {
                    element_set((uint8_t *)(uintptr_t)srcs[k], e, types[type].bits,
                                random_element(&types[type]));
                }
            } else {
                memset(memory[k], 0x5a, bytes + 200);
                dsts[k - what.nsrcs] = memory[k] + (same ? off : 64 + draw() % 64) +
                                       (64 - (uintptr_t)memory[k] % 64) % 64;
            }
        }
        rondo_reduce_get(type, op)(want, srcs, what.nsrcs, n);
        if (what.divisor != 0) {
            rondo_divide(want, n, type, what.divisor);
        }
        dsts[0] = in_place ? (uint8_t *)(uintptr_t)srcs[0] : dsts[0];
        if (over) {
            rondo_reduce_over(&what, dsts, ndsts, n);
        } else {
            rondo_reduce_past(&what, dsts, ndsts, keep_at, n);
        }
        for (int k = 0; k < ndsts; k++) {
            check_span(isas[0], type, dsts[k], want, n, over ? "over lines" : "past the caches");
            assert_true((k == 0 && in_place) || (dsts[k][-1] == 0x5a && dsts[k][bytes] == 0x5a));
        }
        if (keep_at != NULL) {
            check_span(isas[0], type, keep_at, want, n, "kept");
        }
    }
}

/* Dispatch happens once per process, so test it in a child. */
static void check_cap(const char *cap, const char *chosen)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (cap != NULL) {
            setenv("RONDO_TEST_ISA", cap, 1);
        }
        _exit(strcmp(rondo_reduce_isa(), chosen) != 0 ||
              rondo_reduce_get(RONDO_FLOAT32, RONDO_REDUCE_SUM) == NULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void dispatch_chooses_the_best_or_the_cap(void **state)
{
    int last = 0;
    (void)state;
    unsetenv("RONDO_TEST_ISA");
    check_cap(NULL, isas[0]->name);
    for (; isas[last] != NULL; last++) {
        check_cap(isas[last]->name, isas[last]->name);
    }
    check_cap("c", isas[last - 1]->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: its children must make the choice */
        cmocka_unit_test(dispatch_chooses_the_best_or_the_cap),
        cmocka_unit_test(every_type_and_operation_folds_from_the_left_at_any_length),
        cmocka_unit_test(pairs_of_all_8_bit_floats_are_exact),
        cmocka_unit_test(all_16_bit_floats_are_exact_with_each_exponent),
        cmocka_unit_test(integers_wrap_and_never_saturate),
        cmocka_unit_test(quotients_truncate_towards_zero_or_round_once),
        cmocka_unit_test(premultiplied_elements_are_products_with_the_scalar),
        cmocka_unit_test(copies_are_exact_at_any_alignment),
        cmocka_unit_test(reductions_by_other_stores_have_the_same_results),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    fill_values();
    seed = dice = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu (RONDO_TEST_SEED sets it); instruction sets:", (unsigned long long)seed);
    for (int i = 0; (isas[i] = rondo_reduce_usable(i)) != NULL; i++) {
        printf(" %s", isas[i]->name);
    }
    printf("\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
