/* Basic types, operations and values of mpi_random. */
#include "mpi_random.h"

#include <complex.h>
#include <math.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "mpi_common.h"

#define BIT(op) (1u << (op))
#define ARITH (BIT(O_SUM) | BIT(O_PROD) | BIT(O_MIN) | BIT(O_MAX))
#define LOGIC (BIT(O_LAND) | BIT(O_LOR) | BIT(O_LXOR))
#define BITS (BIT(O_BAND) | BIT(O_BOR) | BIT(O_BXOR))
#define C_INT_OPS (ARITH | LOGIC | BITS)
#define COMPLEX_OPS (BIT(O_SUM) | BIT(O_PROD))
#define LOC_OPS (BIT(O_MINLOC) | BIT(O_MAXLOC))

/* An element as a number: an integer or logical, a real or complex, a pair, an affine map x -> i * x + j. */
struct number {
    uint64_t i, j;
    long double re, im;
};

/* clang-format off */
#define PAIR(name, vtype) \
    struct name { vtype value; int index; }
/* clang-format on */
PAIR(float_int, float);
PAIR(double_int, double);
PAIR(long_int, long);
PAIR(short_int, short);
PAIR(longdouble_int, long double);
PAIR(int_int, int);

#define PLAIN(name, ctype, kind, ops)                                                           \
    {                                                                                           \
#name, name, kind, (int)sizeof(ctype), (int)sizeof(ctype), -1, (int)alignof(ctype), ops \
    }
#define PAIRED(name, ctype)                                                                      \
    {                                                                                            \
#name, name, K_PAIR, (int)sizeof(((struct ctype *)0)->value), (int)sizeof(struct ctype), \
            (int)offsetof(struct ctype, index), (int)alignof(struct ctype), LOC_OPS              \
    }
#define USER_INT BIT(O_USER_SUM)
#define USER_LONG BIT(O_USER_FIRST)

/* The kinds of the pairs' values: integers have K_INT's arithmetic. */
static struct basic basics[] = {
    PLAIN(MPI_INT, int, K_INT, C_INT_OPS | USER_INT),
    PLAIN(MPI_DOUBLE, double, K_FLOAT, ARITH),
    PLAIN(MPI_FLOAT, float, K_FLOAT, ARITH),
    PLAIN(MPI_LONG, long, K_INT, C_INT_OPS | USER_LONG),
    PLAIN(MPI_SIGNED_CHAR, signed char, K_INT, C_INT_OPS),
    PLAIN(MPI_UNSIGNED_CHAR, unsigned char, K_UINT, C_INT_OPS),
    PLAIN(MPI_SHORT, short, K_INT, C_INT_OPS),
    PLAIN(MPI_UNSIGNED_SHORT, unsigned short, K_UINT, C_INT_OPS),
    PLAIN(MPI_UNSIGNED, unsigned, K_UINT, C_INT_OPS),
    PLAIN(MPI_UNSIGNED_LONG, unsigned long, K_UINT, C_INT_OPS),
    PLAIN(MPI_LONG_LONG, long long, K_INT, C_INT_OPS),
    PLAIN(MPI_UNSIGNED_LONG_LONG, unsigned long long, K_UINT, C_INT_OPS),
    PLAIN(MPI_INT8_T, int8_t, K_INT, C_INT_OPS),
    PLAIN(MPI_INT16_T, int16_t, K_INT, C_INT_OPS),
    PLAIN(MPI_INT32_T, int32_t, K_INT, C_INT_OPS),
    PLAIN(MPI_INT64_T, int64_t, K_INT, C_INT_OPS),
    PLAIN(MPI_UINT8_T, uint8_t, K_UINT, C_INT_OPS),
    PLAIN(MPI_UINT16_T, uint16_t, K_UINT, C_INT_OPS),
    PLAIN(MPI_UINT32_T, uint32_t, K_UINT, C_INT_OPS),
    PLAIN(MPI_UINT64_T, uint64_t, K_UINT, C_INT_OPS),
    PLAIN(MPI_AINT, MPI_Aint, K_INT, ARITH | BITS),
    PLAIN(MPI_OFFSET, MPI_Offset, K_INT, ARITH | BITS),
    PLAIN(MPI_COUNT, MPI_Count, K_INT, ARITH | BITS),
    PLAIN(MPI_CHAR, char, K_CHAR, 0),
    PLAIN(MPI_WCHAR, wchar_t, K_CHAR, 0),
    PLAIN(MPI_BYTE, unsigned char, K_BYTE, BITS),
    PLAIN(MPI_C_BOOL, bool, K_BOOL, LOGIC),
    PLAIN(MPI_LONG_DOUBLE, long double, K_FLOAT, ARITH),
    PLAIN(MPI_C_FLOAT_COMPLEX, float complex, K_COMPLEX, COMPLEX_OPS),
    PLAIN(MPI_C_DOUBLE_COMPLEX, double complex, K_COMPLEX, COMPLEX_OPS),
    PLAIN(MPI_C_LONG_DOUBLE_COMPLEX, long double complex, K_COMPLEX, COMPLEX_OPS),
    PAIRED(MPI_FLOAT_INT, float_int),
    PAIRED(MPI_DOUBLE_INT, double_int),
    PAIRED(MPI_LONG_INT, long_int),
    PAIRED(MPI_SHORT_INT, short_int),
    PAIRED(MPI_LONG_DOUBLE_INT, longdouble_int),
    PAIRED(MPI_2INT, int_int),
    PLAIN(MPI_INTEGER, int, K_INT, ARITH | BITS),
    PLAIN(MPI_REAL, float, K_FLOAT, ARITH),
    PLAIN(MPI_DOUBLE_PRECISION, double, K_FLOAT, ARITH),
    PLAIN(MPI_LOGICAL, int, K_LOGICAL, LOGIC),
    PLAIN(MPI_COMPLEX, float complex, K_COMPLEX, COMPLEX_OPS),
    PLAIN(MPI_DOUBLE_COMPLEX, double complex, K_COMPLEX, COMPLEX_OPS),
    PLAIN(MPI_CHARACTER, char, K_CHAR, 0),
    /* Types of our own, for operations of our own; values_open makes them. */
    { "affine", MPI_BYTE, K_AFFINE, 16, 16, -1, 8, BIT(O_USER_AFFINE) },
    { "affine with a gap", MPI_BYTE, K_AFFINE, 16, 24, -1, 8, BIT(O_USER_AFFINE) },
};

static struct oper opers[O_COUNT] = {
    [O_SUM] = { "sum", MPI_SUM },
    [O_PROD] = { "prod", MPI_PROD },
    [O_MIN] = { "min", MPI_MIN },
    [O_MAX] = { "max", MPI_MAX },
    [O_LAND] = { "land", MPI_LAND },
    [O_LOR] = { "lor", MPI_LOR },
    [O_LXOR] = { "lxor", MPI_LXOR },
    [O_BAND] = { "band", MPI_BAND },
    [O_BOR] = { "bor", MPI_BOR },
    [O_BXOR] = { "bxor", MPI_BXOR },
    [O_MINLOC] = { "minloc", MPI_MINLOC },
    [O_MAXLOC] = { "maxloc", MPI_MAXLOC },
    [O_USER_SUM] = { "user sum", MPI_OP_NULL },
    [O_USER_FIRST] = { "user first", MPI_OP_NULL },
    [O_USER_AFFINE] = { "user affine", MPI_OP_NULL },
};

/* ---- random numbers ---- */

uint64_t rng_next(struct rng *rng)
{
    uint64_t x = rng->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

int rng_below(struct rng *rng, int below) { return (int)(rng_next(rng) % (uint64_t)below); }
int rng_one_in(struct rng *rng, int n) { return rng_below(rng, n) == 0; }

/* ---- operations of our own ---- */

/* MPI may call them in another thread than the one that gets the result, and only MPI knows of that. */
#define UNWATCHED __attribute__((no_sanitize_thread))

/* The values of MPI_INT add modulo 2^32; the result does not depend on the order. */
UNWATCHED static void user_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const unsigned *a = in;
    unsigned *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++) {
        b[i] += a[i];
    }
}

/* Keeps the left operand, so the result is rank 0's value: associative, not commutative. */
UNWATCHED static void user_first(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const long *a = in;
    long *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++) {
        b[i] = a[i];
    }
}

/* Composes maps x -> a * x + b, first the left one. Looks at the type, as a user's operation may. */
UNWATCHED static void user_affine(void *in, void *inout, int *count, MPI_Datatype *type)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(*type, &lb, &extent);
    for (int i = 0; i < *count; i++) {
        const uint64_t *a = (const void *)((char *)in + i * extent);
        uint64_t *b = (void *)((char *)inout + i * extent);
        b[1] += a[1] * b[0];
        b[0] *= a[0];
    }
}

void values_open(void)
{
    struct basic *last = &basics[TEST_ARRAY_LEN(basics) - 1];
    MPI_Type_contiguous(2, MPI_UINT64_T, &last[-1].type);
    MPI_Type_commit(&last[-1].type);
    MPI_Type_create_resized(last[-1].type, 0, last->extent, &last->type);
    MPI_Type_commit(&last->type);
    MPI_Op_create(user_sum, 1, &opers[O_USER_SUM].op);
    MPI_Op_create(user_first, 0, &opers[O_USER_FIRST].op);
    MPI_Op_create(user_affine, 0, &opers[O_USER_AFFINE].op);
}

void values_close(void)
{
    struct basic *last = &basics[TEST_ARRAY_LEN(basics) - 1];
    MPI_Type_free(&last[-1].type);
    MPI_Type_free(&last->type);
    for (int op = O_USER_SUM; op <= O_USER_AFFINE; op++) {
        MPI_Op_free(&opers[op].op);
    }
}

int values_basics(void) { return (int)TEST_ARRAY_LEN(basics); }
const struct basic *values_basic(int i) { return &basics[i]; }
const struct oper *values_oper(int op) { return &opers[op]; }

/* ---- numbers and bytes ---- */

static int is_real(const struct basic *b)
{
    return b->kind == K_FLOAT || b->kind == K_COMPLEX ||
           (b->kind == K_PAIR &&
            (b->type == MPI_FLOAT_INT || b->type == MPI_DOUBLE_INT || b->type == MPI_LONG_DOUBLE_INT));
}

static void store_real(int size, long double value, void *dst)
{
    float f = (float)value;
    double d = (double)value;
    switch (size) {
    case 4: memcpy(dst, &f, 4); break;
    case 8: memcpy(dst, &d, 8); break;
    default: memcpy(dst, &value, 10); break; /* the other six bytes are padding */
    }
}

static long double load_real(int size, const void *src)
{
    float f;
    double d;
    long double l = 0;
    switch (size) {
    case 4: memcpy(&f, src, 4); return f;
    case 8: memcpy(&d, src, 8); return d;
    default: memcpy(&l, src, 10); return l;
    }
}

static uint64_t cut(const struct basic *b, uint64_t i)
{
    int unused = 64 - 8 * b->size;
    if (unused <= 0) {
        return i;
    }
    return b->kind == K_INT || b->kind == K_PAIR ? (uint64_t)((int64_t)(i << unused) >> unused)
                                                 : i << unused >> unused;
}

static void encode(const struct basic *b, const struct number *n, void *dst)
{
    char *to = dst;
    int index = (int)n->j;
    if (b->kind == K_AFFINE) {
        memcpy(to, &n->i, 8);
        memcpy(to + 8, &n->j, 8);
        return;
    }
    if (b->kind == K_COMPLEX) {
        store_real(b->size / 2, n->re, to);
        store_real(b->size / 2, n->im, to + b->size / 2);
    } else if (is_real(b)) {
        store_real(b->size, n->re, to);
    } else {
        memcpy(to, &n->i, (size_t)b->size); /* little endian */
    }
    if (b->kind == K_PAIR) {
        memcpy(to + b->loc, &index, sizeof(index));
    }
}

static struct number decode(const struct basic *b, const void *src)
{
    struct number n = { 0 };
    const char *from = src;
    int index;
    if (b->kind == K_AFFINE) {
        memcpy(&n.i, from, 8);
        memcpy(&n.j, from + 8, 8);
        return n;
    }
    if (b->kind == K_COMPLEX) {
        n.re = load_real(b->size / 2, from);
        n.im = load_real(b->size / 2, from + b->size / 2);
    } else if (is_real(b)) {
        n.re = load_real(b->size, from);
    } else {
        memcpy(&n.i, from, (size_t)b->size);
        n.i = cut(b, n.i);
    }
    if (b->kind == K_PAIR) {
        memcpy(&index, from + b->loc, sizeof(index));
        n.j = (uint64_t)(int64_t)index;
    }
    return n;
}

/* ---- inputs: every partial result is exact in its type ---- */

static struct number real_input(int op, uint64_t h)
{
    struct number n = { 0 };
    static const signed char turn[4][2] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 0, -1 } };
    if (op == O_PROD) {
        long double scale = ldexpl(1, (int)(h >> 8 & 0xff) % 3 - 1);
        n.re = scale * turn[h & 3][0];
        n.im = scale * turn[h & 3][1];
        return n;
    }
    n.re = (long double)((int)(h & 0x1ffff) - 0xffff) / 4;
    n.im = (long double)((int)(h >> 20 & 0x1ffff) - 0xffff) / 4;
    return n;
}

static struct number input(const struct basic *b, int op, uint64_t h)
{
    struct number n = { .i = h, .j = h >> 32 };
    switch (b->kind) {
    case K_FLOAT:
        n = real_input(op, h);
        if (op == O_PROD) {
            n.re += n.im; /* one of them is zero */
        }
        break;
    case K_COMPLEX: n = real_input(op, h); break;
    case K_PAIR: /* few values, so that indexes decide */
        n.i = (uint64_t)((int64_t)(h % 5) - 2);
        n.re = (long double)(int64_t)n.i;
        n.j = (uint64_t)(int64_t)(int)(h >> 32);
        break;
    case K_AFFINE: n.i |= 1, n.j = h * 0x9e3779b97f4a7c15ull; break;
    case K_BOOL:
    case K_LOGICAL: n.i = h & 1; break;
    case K_INT:
    case K_UINT:
        if (op == O_LAND || op == O_LOR || op == O_LXOR) {
            n.i = h & 3 ? h | 1 : 0;
        } else if (op == O_PROD) {
            n.i |= 1;
        }
        break;
    default: break;
    }
    n.i = b->kind == K_AFFINE ? n.i : cut(b, n.i);
    return n;
}

static struct number combine_reals(const struct basic *b, int op, struct number x, struct number y)
{
    struct number n = { 0 };
    switch (op) {
    case O_SUM:
        n.re = x.re + y.re;
        n.im = x.im + y.im;
        break;
    case O_PROD:
        n.re = b->kind == K_COMPLEX ? x.re * y.re - x.im * y.im : x.re * y.re;
        n.im = x.re * y.im + x.im * y.re;
        break;
    case O_MIN: n = y.re < x.re ? y : x; break;
    default: n = y.re > x.re ? y : x; break;
    }
    return n;
}

static int is_less(const struct basic *b, struct number x, struct number y)
{
    if (is_real(b)) {
        return x.re < y.re;
    }
    return b->kind == K_UINT ? x.i < y.i : (int64_t)x.i < (int64_t)y.i;
}

static struct number combine_pairs(const struct basic *b, int op, struct number x, struct number y)
{
    int less = is_less(b, x, y), more = is_less(b, y, x);
    if (!less && !more) {
        return (int64_t)x.j < (int64_t)y.j ? x : y;
    }
    return (op == O_MINLOC) == less ? x : y;
}

static struct number combine(const struct basic *b, int op, struct number x, struct number y)
{
    struct number n = x;
    if (op == O_MINLOC || op == O_MAXLOC) {
        return combine_pairs(b, op, x, y);
    }
    if (is_real(b)) {
        return combine_reals(b, op, x, y);
    }
    switch (op) {
    case O_USER_FIRST: break;
    case O_USER_AFFINE:
        n.i = x.i * y.i;
        n.j = x.j * y.i + y.j;
        return n;
    case O_USER_SUM:
    case O_SUM: n.i = x.i + y.i; break;
    case O_PROD: n.i = x.i * y.i; break;
    case O_MIN: n = is_less(b, y, x) ? y : x; break;
    case O_MAX: n = is_less(b, x, y) ? y : x; break;
    case O_LAND: n.i = x.i && y.i; break;
    case O_LOR: n.i = x.i || y.i; break;
    case O_LXOR: n.i = !x.i != !y.i; break;
    case O_BAND: n.i = x.i & y.i; break;
    case O_BOR: n.i = x.i | y.i; break;
    default: n.i = x.i ^ y.i; break;
    }
    n.i = cut(b, n.i);
    return n;
}

static uint64_t source(uint64_t call, int a, int b, long index)
{
    return test_hash(call, (uint64_t)a << 32 | (uint64_t)(unsigned)b, (uint64_t)index);
}

void value_write(const struct basic *basic, int op, uint64_t call, int a, int b, long index, void *dst)
{
    struct number n = input(basic, op, source(call, a, b, index));
    encode(basic, &n, dst);
}

void value_reduce(const struct basic *basic, int op, uint64_t call, int first, int last, long index,
                  void *dst)
{
    struct number n = input(basic, op, source(call, first, 0, index));
    for (int r = first + 1; r <= last; r++) {
        n = combine(basic, op, n, input(basic, op, source(call, r, 0, index)));
    }
    encode(basic, &n, dst);
}

int value_same(const struct basic *basic, const void *a, const void *b)
{
    struct number x = decode(basic, a), y = decode(basic, b);
    if (is_real(basic) && (x.re != y.re || x.im != y.im)) {
        return 0;
    }
    return (is_real(basic) || x.i == y.i) && x.j == y.j;
}

void value_text(const struct basic *basic, const void *element, char *text, size_t len)
{
    struct number n = decode(basic, element);
    if (basic->kind == K_PAIR && is_real(basic)) {
        snprintf(text, len, "(%Lg, %lld)", n.re, (long long)n.j);
    } else if (basic->kind == K_PAIR || basic->kind == K_AFFINE) {
        snprintf(text, len, "(%lld, %lld)", (long long)n.i, (long long)n.j);
    } else if (is_real(basic)) {
        snprintf(text, len, basic->kind == K_COMPLEX ? "(%Lg, %Lg)" : "%Lg", n.re, n.im);
    } else {
        snprintf(text, len, "%lld", (long long)n.i);
    }
}

uint64_t value_digest(const struct basic *basic, const void *element)
{
    struct number n = decode(basic, element);
    double re = (double)n.re + 0.0, im = (double)n.im + 0.0; /* no sign of zero */
    uint64_t bits[2];
    if (!is_real(basic)) {
        return test_hash(n.i, n.j, 0);
    }
    memcpy(&bits[0], &re, sizeof(re));
    memcpy(&bits[1], &im, sizeof(im));
    return test_hash(bits[0], bits[1], n.j);
}
