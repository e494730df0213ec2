/* Reductions of long doubles, complex numbers and pairs: every operation, number of sources, length and
 * alignment gives what its definition says, whatever lies in the padding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kern/cpu/reduce_isa.h"

enum { MAX_SOURCES = 8, MAX_COUNT = 700, ROOM = MAX_COUNT * 32 + 64 };

static uint64_t seed, dice;

static uint64_t draw(void)
{
    uint64_t x = dice += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* ---- a type: how to make an element, to combine two, and to compare ---- */

struct type {
    const char *name;
    size_t size;
    void (*make)(void *element);
    void (*combine)(void *total, const void *next, int op);
    int (*equal)(const void *a, const void *b);
};

/* A number that rounds when it is added or multiplied. */
#define NUMBER(T) ((T)((long double)(int64_t)draw() * 0x1p-61L))

/* volatile: every operation rounds, and none is joined with another. */
#define COMPLEX(name, T)                                                                   \
    typedef struct {                                                                       \
        T re, im;                                                                          \
    } name;                                                                                \
    static void make_##name(void *element)                                                 \
    {                                                                                      \
        const name e = { NUMBER(T), NUMBER(T) };                                           \
        memcpy(element, &e, sizeof(e));                                                    \
    }                                                                                      \
    static void combine_##name(void *total, const void *next, int op)                      \
    {                                                                                      \
        name a, b;                                                                         \
        memcpy(&a, total, sizeof(a));                                                      \
        memcpy(&b, next, sizeof(b));                                                       \
        volatile T rr = a.re * b.re, ii = a.im * b.im, ri = a.re * b.im, ir = a.im * b.re; \
        a.re = op == RONDO_REDUCE_SUM ? a.re + b.re : rr - ii;                             \
        a.im = op == RONDO_REDUCE_SUM ? a.im + b.im : ri + ir;                             \
        memcpy(total, &a, sizeof(a));                                                      \
    }                                                                                      \
    static int equal_##name(const void *a, const void *b)                                  \
    {                                                                                      \
        name x, y;                                                                         \
        memcpy(&x, a, sizeof(x));                                                          \
        memcpy(&y, b, sizeof(y));                                                          \
        return x.re == y.re && x.im == y.im;                                               \
    }
COMPLEX(cf32, float)
COMPLEX(cf64, double)
COMPLEX(cld, long double)

static void make_ld(void *element)
{
    const long double e = NUMBER(long double);
    memcpy(element, &e, sizeof(e));
}
static void combine_ld(void *total, const void *next, int op)
{
    long double a, b;
    memcpy(&a, total, sizeof(a));
    memcpy(&b, next, sizeof(b));
    switch (op) {
    case RONDO_REDUCE_SUM: a += b; break;
    case RONDO_REDUCE_PROD: a *= b; break;
    case RONDO_REDUCE_MAX: a = a > b ? a : b; break;
    default: a = a < b ? a : b;
    }
    memcpy(total, &a, sizeof(a));
}
static int equal_ld(const void *a, const void *b)
{
    long double x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x == y;
}

/* Few values and indices, so that many are equal. The padding stays as check() has filled it. */
#define PAIR(name, V, I)                                                           \
    typedef struct {                                                               \
        V value;                                                                   \
        I index;                                                                   \
    } name;                                                                        \
    static void make_##name(void *element)                                         \
    {                                                                              \
        const V value = (V)((int)(draw() % 5) - 2);                                \
        const I index = (I)(draw() % 6);                                           \
        memcpy(element, &value, sizeof(value));                                    \
        memcpy((uint8_t *)element + offsetof(name, index), &index, sizeof(index)); \
    }                                                                              \
    static void combine_##name(void *total, const void *next, int op)              \
    {                                                                              \
        name a, b;                                                                 \
        memcpy(&a, total, sizeof(a));                                              \
        memcpy(&b, next, sizeof(b));                                               \
        if (a.value == b.value) {                                                  \
            a.index = a.index < b.index ? a.index : b.index;                       \
        } else if ((a.value < b.value) != (op == RONDO_REDUCE_MINLOC)) {           \
            a = b;                                                                 \
        }                                                                          \
        memcpy(total, &a, sizeof(a));                                              \
    }                                                                              \
    static int equal_##name(const void *a, const void *b)                          \
    {                                                                              \
        name x, y;                                                                 \
        memcpy(&x, a, sizeof(x));                                                  \
        memcpy(&y, b, sizeof(y));                                                  \
        return x.value == y.value && x.index == y.index;                           \
    }
PAIR(float_int, float, int)
PAIR(double_int, double, int)
PAIR(long_int, long, int)
PAIR(int_int, int, int)
PAIR(short_int, short, int)
PAIR(ld_int, long double, int)
PAIR(float_float, float, float)
PAIR(double_double, double, double)

#define TYPE(NAME, name, T) \
    [RONDO_##NAME - RONDO_LONG_DOUBLE] = { #name, sizeof(T), make_##name, combine_##name, equal_##name }
static const struct type types[] = {
    TYPE(LONG_DOUBLE, ld, long double),          TYPE(COMPLEX_FLOAT32, cf32, cf32),
    TYPE(COMPLEX_FLOAT64, cf64, cf64),           TYPE(COMPLEX_LONG_DOUBLE, cld, cld),
    TYPE(FLOAT_INT, float_int, float_int),       TYPE(DOUBLE_INT, double_int, double_int),
    TYPE(LONG_INT, long_int, long_int),          TYPE(INT_INT, int_int, int_int),
    TYPE(SHORT_INT, short_int, short_int),       TYPE(LONG_DOUBLE_INT, ld_int, ld_int),
    TYPE(FLOAT_FLOAT, float_float, float_float), TYPE(DOUBLE_DOUBLE, double_double, double_double),
};
enum { NTYPES = RONDO_COUNTOF(types) };
_Static_assert((int)NTYPES == (int)RONDO_NUM_DTYPES - (int)RONDO_LONG_DOUBLE, "a type has no reference");

/* Has the type this operation? */
static int has(int type, int op)
{
    switch (type + RONDO_LONG_DOUBLE) {
    case RONDO_LONG_DOUBLE: return op <= RONDO_REDUCE_MIN;
    case RONDO_COMPLEX_FLOAT32:
    case RONDO_COMPLEX_FLOAT64:
    case RONDO_COMPLEX_LONG_DOUBLE: return op <= RONDO_REDUCE_PROD;
    default: return op == RONDO_REDUCE_MINLOC || op == RONDO_REDUCE_MAXLOC;
    }
}

static uint8_t memory[MAX_SOURCES + 1][ROOM], before[MAX_SOURCES][ROOM], want[ROOM];

static void check_span(const struct type *t, const uint8_t *got, size_t n, const char *what, int op)
{
    for (size_t i = 0; i < n; i++) {
        if (!t->equal(got + i * t->size, want + i * t->size)) {
            fail_msg("%s, %s, operation %d: element %zu of %zu is wrong; seed %llu", what, t->name, op, i, n,
                     (unsigned long long)seed);
        }
    }
}

/* Sources lie at odd addresses; the destination is separate or one of them. */
static void check(int type, int op, int nsrcs, size_t n)
{
    const struct type *t = &types[type];
    const size_t bytes = n * t->size;
    const int in_place = (int)(draw() % (uint64_t)(2 * nsrcs));
    uint8_t *src[MAX_SOURCES] = { NULL }, *dst = memory[MAX_SOURCES] + 1 + draw() % 32;
    const void *srcs[MAX_SOURCES];
    for (int s = 0; s < nsrcs; s++) {
        srcs[s] = src[s] = memory[s] + 1 + draw() % 32;
        for (size_t i = 0; i < bytes; i++) {
            src[s][i] = (uint8_t)(draw() >> 8);
        }
        for (size_t i = 0; i < n; i++) {
            t->make(src[s] + i * t->size);
        }
        memcpy(before[s], src[s], bytes);
    }
    memcpy(want, src[0], bytes);
    for (int s = 1; s < nsrcs; s++) {
        for (size_t i = 0; i < n; i++) {
            t->combine(want + i * t->size, src[s] + i * t->size, op);
        }
    }
    if (in_place < nsrcs) {
        dst = src[in_place];
    }
    for (int k = 0; rondo_reduce_usable(k) != NULL; k++) {
        rondo_reduce_fn *reduce = rondo_reduce_usable(k)->reduce[type + RONDO_LONG_DOUBLE][op];
        if (reduce == NULL) {
            continue; /* this build leaves it to the first */
        }
        if (in_place < nsrcs) {
            memcpy(dst, before[in_place], bytes);
        }
        dst[-1] = dst[bytes] = 0x5a;
        reduce(dst, srcs, nsrcs, n);
        check_span(t, dst, n, rondo_reduce_usable(k)->name, op);
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
            assert_int_equal(
                rondo_reduce_get((rondo_dtype)(type + RONDO_LONG_DOUBLE), (enum rondo_reduce)op) != NULL,
                has(type, op));
            for (size_t s = 0; has(type, op) && s < RONDO_COUNTOF(sources); s++) {
                for (size_t n = 0; n <= 40; n++) {
                    check(type, op, sources[s], n);
                }
                check(type, op, sources[s], MAX_COUNT); /* several tiles */
            }
        }
    }
}

static void complex_quotients_are_those_of_their_parts(void **state)
{
    struct {
        float re, im;
    } f[2] = { { 3, -5 }, { 1, 7 } };
    struct {
        long double re, im;
    } l[1] = { { 1, -2 } };
    (void)state;
    rondo_divide(f, 2, RONDO_COMPLEX_FLOAT32, 3);
    assert_true(f[0].re == 3.0f / 3 && f[0].im == -5.0f / 3 && f[1].re == 1.0f / 3 && f[1].im == 7.0f / 3);
    rondo_divide(l, 1, RONDO_COMPLEX_LONG_DOUBLE, 3);
    assert_true(l[0].re == 1.0L / 3 && l[0].im == -2.0L / 3);
}

/* C's own product searches for infinities that a plain product turns into NaNs. */
static void a_complex_product_is_the_plain_formula(void **state)
{
    const struct {
        double re, im;
    } a = { 1e200, 1e200 }, b = { 1e200, 1e200 };
    struct {
        double re, im;
    } c;
    (void)state;
    rondo_reduce_get(RONDO_COMPLEX_FLOAT64, RONDO_REDUCE_PROD)(&c, (const void *[]){ &a, &b }, 2, 1);
    assert_true(c.re != c.re && c.im > 1e300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operation_folds_from_the_left_at_any_length),
        cmocka_unit_test(complex_quotients_are_those_of_their_parts),
        cmocka_unit_test(a_complex_product_is_the_plain_formula),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = dice = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu (RONDO_TEST_SEED sets it)\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
