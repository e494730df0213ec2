#include "mpi_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mpi_common.h"

#define TYPE_ROW(ctx, name, NAME, value, storage, arith, to, from, class, kin) \
    [value] = { #name, sizeof(storage), TEST_##class },
const struct test_type test_types[RONDO_NUM_DTYPES] = { RONDO_DTYPE_TABLE(TYPE_ROW, ) };
#undef TYPE_ROW

#define OP_ROW(ctx, name, NAME, value, pairwise) [value] = #name,
const char *const test_op_names[TEST_NUM_OPS] = {
    RONDO_OP_TABLE(OP_ROW, )[TEST_OP_PREMUL] = "premul", [TEST_OP_NONE] = "none"
};
#undef OP_ROW

/* Exponent and mantissa bits of the floating-point types; zero for integers. Of long doubles, which the
 * machine defines, only as many bits are used as x86-64 has. */
static const struct {
    int ebits, mbits;
} formats[RONDO_NUM_DTYPES] = {
    [RONDO_FLOAT16] = { 5, 10 },      [RONDO_FLOAT32] = { 8, 23 },   [RONDO_FLOAT64] = { 11, 52 },
    [RONDO_BFLOAT16] = { 8, 7 },      [RONDO_FLOAT8E4M3] = { 4, 3 }, [RONDO_FLOAT8E5M2] = { 5, 2 },
    [RONDO_LONG_DOUBLE] = { 15, 62 },
};

/* Types whose elements are two numbers: their types, and where the second lies. */
enum { LONG = sizeof(long) == 8 ? RONDO_INT64 : RONDO_INT32 };
static const struct {
    uint8_t first, second, at;
} twos[RONDO_NUM_DTYPES] = {
    [RONDO_COMPLEX_FLOAT32] = { RONDO_FLOAT32, RONDO_FLOAT32, 4 },
    [RONDO_COMPLEX_FLOAT64] = { RONDO_FLOAT64, RONDO_FLOAT64, 8 },
    [RONDO_COMPLEX_LONG_DOUBLE] = { RONDO_LONG_DOUBLE, RONDO_LONG_DOUBLE, sizeof(long double) },
    [RONDO_FLOAT_INT] = { RONDO_FLOAT32, RONDO_INT32, 4 },
    [RONDO_DOUBLE_INT] = { RONDO_FLOAT64, RONDO_INT32, 8 },
    [RONDO_LONG_INT] = { LONG, RONDO_INT32, sizeof(long) },
    [RONDO_INT_INT] = { RONDO_INT32, RONDO_INT32, 4 },
    [RONDO_SHORT_INT] = { RONDO_INT16, RONDO_INT32, 4 },
    [RONDO_LONG_DOUBLE_INT] = { RONDO_LONG_DOUBLE, RONDO_INT32, sizeof(long double) },
    [RONDO_FLOAT_FLOAT] = { RONDO_FLOAT32, RONDO_FLOAT32, 4 },
    [RONDO_DOUBLE_DOUBLE] = { RONDO_FLOAT64, RONDO_FLOAT64, 8 },
};

struct test_values {
    struct test_values *next;
    rondo_dtype type;
    int op, nranks;
    uint64_t seed;
    unsigned char *result;
    unsigned char *input[]; /* filled on first use */
};

static struct test_values *cache;

static const char nccl_premul[] = "mulsum";

const char *test_type_nccl_name(int type)
{
    static const char *const names[RONDO_NUM_DTYPES] = {
        [RONDO_INT8] = "int8",         [RONDO_UINT8] = "uint8",   [RONDO_INT32] = "int32",
        [RONDO_UINT32] = "uint32",     [RONDO_INT64] = "int64",   [RONDO_UINT64] = "uint64",
        [RONDO_FLOAT16] = "half",      [RONDO_FLOAT32] = "float", [RONDO_FLOAT64] = "double",
        [RONDO_BFLOAT16] = "bfloat16",
    };
    return names[type] != NULL ? names[type] : test_types[type].name;
}

const char *test_op_nccl_name(int op) { return op == TEST_OP_PREMUL ? nccl_premul : test_op_names[op]; }

int test_type_by_name(const char *name)
{
    for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
        if (strcasecmp(name, test_types[type].name) == 0 ||
            strcasecmp(name, test_type_nccl_name(type)) == 0) {
            return type;
        }
    }
    return -1;
}

int test_op_by_name(const char *name)
{
    for (int op = 0; op < TEST_NUM_OPS; op++) {
        if (strcasecmp(name, test_op_names[op]) == 0 || strcasecmp(name, test_op_nccl_name(op)) == 0) {
            return op;
        }
    }
    return -1;
}

int test_has_op(rondo_dtype type, int op)
{
    if (op < RONDO_NUM_OPS) {
        return rondo_dtype_allows(type, (rondo_op)op);
    }
    return op == TEST_OP_NONE || (rondo_dtype_allows(type, RONDO_AVG) && test_types[type].size <= 8 &&
                                  test_types[type].kind != TEST_COMPLEX);
}

static int is_float(rondo_dtype type)
{
    return test_types[type].kind == TEST_FLOAT || test_types[type].kind == TEST_SMALL;
}

static int is_integer(rondo_dtype type) { return twos[type].at == 0 && !is_float(type); }

/* ---- numbers of any format ---- */

static uint64_t encode(rondo_dtype type, double value)
{
    int ebits = formats[type].ebits, mbits = formats[type].mbits, bias = (1 << (ebits - 1)) - 1, exponent;
    uint64_t sign = (uint64_t)(signbit(value) != 0) << (ebits + mbits), mantissa;
    if (value == 0) {
        return sign;
    }
    frexp(value, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    mantissa = (uint64_t)rint(
        ldexp(fabs(value), mbits - exponent)); /* rounds to nearest even, the default mode */
    if (mantissa >> (mbits + 1) != 0) {
        mantissa >>= 1;
        exponent++;
    }
    if (mantissa >> mbits == 0) {
        return sign | mantissa;
    }
    return sign | (uint64_t)(exponent + bias) << mbits | (mantissa & ((1ull << mbits) - 1));
}

static double decode(rondo_dtype type, uint64_t bits)
{
    int ebits = formats[type].ebits, mbits = formats[type].mbits, bias = (1 << (ebits - 1)) - 1;
    int biased = (int)(bits >> mbits) & ((1 << ebits) - 1);
    uint64_t mantissa = bits & ((1ull << mbits) - 1);
    double value = biased == 0 ? ldexp((double)mantissa, 1 - bias - mbits)
                               : ldexp((double)(mantissa | 1ull << mbits), biased - bias - mbits);
    return bits >> (ebits + mbits) & 1 ? -value : value;
}

static uint64_t load(rondo_dtype type, const void *element)
{
    uint8_t b;
    uint16_t h;
    uint32_t w;
    uint64_t d;
    switch (test_types[type].size) {
    case 1: memcpy(&b, element, 1); return b;
    case 2: memcpy(&h, element, 2); return h;
    case 4: memcpy(&w, element, 4); return w;
    default: memcpy(&d, element, 8); return d;
    }
}

static void store(rondo_dtype type, void *element, uint64_t bits)
{
    uint8_t b = (uint8_t)bits;
    uint16_t h = (uint16_t)bits;
    uint32_t w = (uint32_t)bits;
    switch (test_types[type].size) {
    case 1: memcpy(element, &b, 1); break;
    case 2: memcpy(element, &h, 2); break;
    case 4: memcpy(element, &w, 4); break;
    default: memcpy(element, &bits, 8); break;
    }
}

/* Extend a number of the type's width to 64 bits. */
static int64_t extend(rondo_dtype type, uint64_t bits)
{
    int unused = 64 - 8 * (int)test_types[type].size;
    return test_types[type].kind == TEST_SIGNED ? (int64_t)(bits << unused) >> unused
                                                : (int64_t)(bits << unused >> unused);
}

/* A number of any scalar type. Every long double holds 64-bit integers, and sums of a few ranks' inputs. */
static long double number(rondo_dtype type, const void *at)
{
    long double value;
    if (type == RONDO_LONG_DOUBLE) {
        memcpy(&value, at, sizeof(value));
        return value;
    }
    if (is_float(type)) {
        return decode(type, load(type, at));
    }
    return test_types[type].kind == TEST_SIGNED ? (long double)extend(type, load(type, at))
                                                : (long double)load(type, at);
}

static void put_number(rondo_dtype type, void *at, long double value)
{
    if (type == RONDO_LONG_DOUBLE) {
        memcpy(at, &value, sizeof(value));
    } else if (is_float(type)) {
        store(type, at, encode(type, (double)value));
    } else {
        store(type, at, (uint64_t)(int64_t)value);
    }
}

/* ---- inputs ---- */

static long double signed_by(uint64_t hash, long double value)
{
    return hash >> 63 && value != 0 ? -value : value;
}

/*
 * For each element, any subset of the ranks' values must add up, or multiply, exactly. Sums: a value is an
 * integer times a power of two per element; the sum of all magnitudes fits in the significand, so in types
 * with few bits only some ranks, different ones per element, are nonzero. Products: one rank has a full
 * significand, three have powers of two, and all have a sign. `place` is the rank's role at this element.
 */
static long double input_real(const struct test_values *v, rondo_dtype type, uint64_t hash, uint64_t common,
                              int place)
{
    int precision = formats[type].mbits + 1, scale = (int)(common >> 32) % 6 - 2;
    uint64_t budget = 1ull << precision, active;
    switch (v->op) {
    case RONDO_MIN:
    case RONDO_MAX:
        return signed_by(hash, ldexpl((long double)((hash >> 3) % budget), (int)(hash >> 58 & 3)));
    case RONDO_PROD:
        if (place == 0) {
            return signed_by(hash, ldexpl((long double)(budget / 2 + hash % (budget / 2)), 1 - precision));
        }
        return signed_by(hash, place <= 3 ? ldexpl(1, (int)(hash % 5) - 2) : 1);
    default:
        budget = v->op == TEST_OP_PREMUL ? budget / 4 : budget; /* the scalars are 1/2, 1 and 2 */
        active = (uint64_t)v->nranks < budget ? (uint64_t)v->nranks : budget;
        return (uint64_t)place < active
                   ? signed_by(hash, ldexpl((long double)(hash % (budget / active + 1)), scale))
                   : 0;
    }
}

/* Logical operations need zeros, few or many of them; bitwise ones need ones. */
static uint64_t input_integer(const struct test_values *v, uint64_t hash)
{
    uint64_t again = test_hash(hash, 1, 2), some = again % (2 * (uint64_t)v->nranks + 1);
    switch (v->op) {
    case RONDO_PROD: return hash | 1; /* odd, so that a product of many is not zero */
    case RONDO_LAND: return some == 0 ? 0 : hash | 1ull << again % 8;
    case RONDO_LOR: return some != 0 ? 0 : hash | 1ull << again % 8;
    case RONDO_LXOR: return again % 2 == 0 ? 0 : hash | 1ull << again % 8;
    case RONDO_BAND: return hash | again;
    case RONDO_BOR: return hash & again;
    default: return hash;
    }
}

/* Complex products: one rank has two full significands, the others a unit times a power of two. Pairs: values
 * that are often equal. Padding is random. */
static void input_two(const struct test_values *v, uint64_t hash, uint64_t common, int place,
                      uint8_t *element)
{
    rondo_dtype first = (rondo_dtype)twos[v->type].first, second = (rondo_dtype)twos[v->type].second;
    uint64_t again = test_hash(hash, 3, 4);
    long double a, b;
    if (test_types[v->type].kind == TEST_PAIR) {
        a = (long double)((int64_t)(hash % 7) - 3);
        b = (long double)((hash >> 8) % 100);
    } else {
        a = input_real(v, first, hash, common, place);
        b = input_real(v, second, again, common, place);
        if (v->op == RONDO_PROD && place != 0) {
            *(hash >> 40 & 1 ? &a : &b) = 0;
        }
    }
    for (size_t i = 0; i < test_types[v->type].size; i++) {
        element[i] = (uint8_t)(again >> 8 * (i % 8));
    }
    put_number(first, element, a);
    put_number(second, element + twos[v->type].at, b);
}

static void input(const struct test_values *v, int rank, size_t i, uint8_t *element)
{
    uint64_t seed = v->seed * 1000 + (uint64_t)v->type * 32 + (uint64_t)v->op,
             hash = test_hash(seed, (uint64_t)rank, i), common = test_hash(seed, UINT64_MAX, i);
    int place = (int)((common % 65536 + (uint64_t)rank) % (uint64_t)v->nranks);
    common &= 0xffffffffffffull;
    if (v->op == TEST_OP_NONE) {
        for (size_t at = 0; at < test_types[v->type].size; at++) {
            element[at] = (uint8_t)(hash >> 8 * (at % 8));
            hash = at % 8 == 7 ? test_hash(hash, 5, 6) : hash;
        }
    } else if (twos[v->type].at != 0) {
        input_two(v, hash, common, place, element);
    } else if (is_float(v->type)) {
        put_number(v->type, element, input_real(v, v->type, hash, common, place));
    } else {
        store(v->type, element, input_integer(v, hash));
    }
}

void test_premul_scalar(rondo_dtype type, int rank, void *scalar)
{
    store(type, scalar, is_float(type) ? encode(type, ldexp(1, rank % 3 - 1)) : (uint64_t)rank * 2 + 3);
}

/* ---- results ---- */

static uint64_t reduce_integers(const struct test_values *v, size_t i)
{
    size_t size = test_types[v->type].size;
    uint64_t total = load(v->type, v->input[0] + i * size), scalar = 0;
    if (v->op == TEST_OP_PREMUL) {
        total *= 3;
    }
    for (int r = 1; r < v->nranks; r++) {
        uint64_t bits = load(v->type, v->input[r] + i * size);
        int64_t a = extend(v->type, total), b = extend(v->type, bits);
        int less = test_types[v->type].kind == TEST_SIGNED ? b < a : (uint64_t)b < (uint64_t)a;
        switch (v->op) {
        case RONDO_LAND: total = total != 0 && bits != 0; break;
        case RONDO_LOR: total = total != 0 || bits != 0; break;
        case RONDO_LXOR: total = (total != 0) != (bits != 0); break;
        case RONDO_BAND: total &= bits; break;
        case RONDO_BOR: total |= bits; break;
        case RONDO_BXOR: total ^= bits; break;
        case RONDO_PROD: total *= bits; break;
        case RONDO_MAX: total = less ? total : bits; break;
        case RONDO_MIN: total = less ? bits : total; break;
        case TEST_OP_PREMUL:
            test_premul_scalar(v->type, r, &scalar);
            total += bits * load(v->type, &scalar);
            break;
        default: total += bits; break;
        }
    }
    if (v->op == RONDO_AVG) {
        int64_t sum = extend(v->type, total);
        return test_types[v->type].kind == TEST_SIGNED ? (uint64_t)(sum / v->nranks)
                                                       : (uint64_t)sum / (uint64_t)v->nranks;
    }
    return total;
}

static void reduce_reals(const struct test_values *v, size_t i, void *result)
{
    size_t size = test_types[v->type].size;
    long double total = number(v->type, v->input[0] + i * size);
    uint64_t scalar = 0;
    if (v->op == TEST_OP_PREMUL) {
        total *= 0.5L;
    }
    for (int r = 1; r < v->nranks; r++) {
        long double value = number(v->type, v->input[r] + i * size);
        switch (v->op) {
        case RONDO_PROD: total *= value; break;
        case RONDO_MAX: total = value > total ? value : total; break;
        case RONDO_MIN: total = value < total ? value : total; break;
        case TEST_OP_PREMUL:
            test_premul_scalar(v->type, r, &scalar);
            total += value * number(v->type, &scalar);
            break;
        default: total += value; break;
        }
    }
    put_number(v->type, result, v->op == RONDO_AVG ? total / v->nranks : total);
}

static void reduce_twos(const struct test_values *v, size_t i, uint8_t *result)
{
    size_t size = test_types[v->type].size, at = twos[v->type].at;
    rondo_dtype first = (rondo_dtype)twos[v->type].first, second = (rondo_dtype)twos[v->type].second;
    long double a = number(first, v->input[0] + i * size), b = number(second, v->input[0] + i * size + at),
                re;
    for (int r = 1; r < v->nranks; r++) {
        long double c = number(first, v->input[r] + i * size),
                    d = number(second, v->input[r] + i * size + at);
        switch (v->op) {
        case RONDO_MINLOC:
        case RONDO_MAXLOC:
            if (c == a ? d < b : (c < a) == (v->op == RONDO_MINLOC)) {
                a = c;
                b = d;
            }
            break;
        case RONDO_PROD:
            re = a * c - b * d;
            b = a * d + b * c;
            a = re;
            break;
        default: a += c; b += d;
        }
    }
    put_number(first, result, v->op == RONDO_AVG ? a / v->nranks : a);
    put_number(second, result + at, v->op == RONDO_AVG ? b / v->nranks : b);
}

/* ---- tables ---- */

static void *table_alloc(const struct test_values *v)
{
    void *table = calloc(TEST_PERIOD, test_types[v->type].size);
    if (table == NULL) {
        test_die("no memory for a table of values");
    }
    return table;
}

static void need_input(struct test_values *v, int rank)
{
    size_t size = test_types[v->type].size;
    if (v->input[rank] == NULL) {
        v->input[rank] = table_alloc(v);
        for (size_t i = 0; i < TEST_PERIOD; i++) {
            input(v, rank, i, v->input[rank] + i * size);
        }
    }
}

static void need_result(struct test_values *v)
{
    size_t size = test_types[v->type].size;
    if (v->result != NULL) {
        return;
    }
    for (int r = 0; r < v->nranks; r++) {
        need_input(v, r);
    }
    v->result = table_alloc(v);
    for (size_t i = 0; i < TEST_PERIOD; i++) {
        if (twos[v->type].at != 0) {
            reduce_twos(v, i, v->result + i * size);
        } else if (is_float(v->type)) {
            reduce_reals(v, i, v->result + i * size);
        } else {
            store(v->type, v->result + i * size, reduce_integers(v, i));
        }
    }
}

const struct test_values *test_values_get(rondo_dtype type, int op, int nranks, uint64_t seed)
{
    struct test_values *v;
    for (v = cache; v != NULL; v = v->next) {
        if (v->type == type && v->op == op && v->nranks == nranks && v->seed == seed) {
            return v;
        }
    }
    v = calloc(1, sizeof(*v) + (size_t)nranks * sizeof(v->input[0]));
    if (v == NULL) {
        test_die("no memory for values");
    }
    *v = (struct test_values){ .next = cache, .type = type, .op = op, .nranks = nranks, .seed = seed };
    cache = v;
    return v;
}

void test_values_clear(void)
{
    while (cache != NULL) {
        struct test_values *v = cache;
        cache = v->next;
        for (int r = 0; r < v->nranks; r++) {
            free(v->input[r]);
        }
        free(v->result);
        free(v);
    }
}

static void copy_periodic(const unsigned char *table, size_t size, size_t first, size_t count,
                          unsigned char *dst)
{
    first %= TEST_PERIOD;
    while (count > 0) {
        size_t part = TEST_PERIOD - first < count ? TEST_PERIOD - first : count;
        memcpy(dst, table + first * size, part * size);
        dst += part * size;
        count -= part;
        first = 0;
    }
}

void test_values_input(const struct test_values *values, int rank, size_t first, size_t count, void *dst)
{
    need_input((struct test_values *)values, rank);
    copy_periodic(values->input[rank], test_types[values->type].size, first, count, dst);
}

void test_values_result(const struct test_values *values, size_t first, size_t count, void *dst)
{
    need_result((struct test_values *)values);
    copy_periodic(values->result, test_types[values->type].size, first, count, dst);
}

/* May one number differ from another as averages of floats may? Two units in the last place. */
static int is_near(rondo_dtype type, long double a, long double b)
{
    int exponent;
    (void)frexpl(b, &exponent);
    return fabsl(a - b) <= ldexpl(2, exponent - 1 - formats[type].mbits) ||
           fabsl(a - b) <= ldexpl(2, 2 - (1 << (formats[type].ebits - 1)) - formats[type].mbits);
}

static int same_number(const struct test_values *values, rondo_dtype type, const char *got, const char *want)
{
    long double a = number(type, got), b = number(type, want);
    return a == b ? signbit(a) == signbit(b)
                  : values->op == RONDO_AVG && is_float(type) && is_near(type, a, b);
}

/* Padding is not compared, except where calls only move it. */
static int same_element(const struct test_values *values, const char *got, const char *want)
{
    rondo_dtype type = values->type;
    if (values->op == TEST_OP_NONE || is_integer(type)) {
        return memcmp(got, want, test_types[type].size) == 0;
    }
    if (twos[type].at == 0) {
        return same_number(values, type, got, want);
    }
    return same_number(values, (rondo_dtype)twos[type].first, got, want) &&
           same_number(values, (rondo_dtype)twos[type].second, got + twos[type].at, want + twos[type].at);
}

size_t test_values_wrong(const struct test_values *values, const void *got, const void *want, size_t count,
                         size_t *index)
{
    size_t size = test_types[values->type].size, wrong = 0;
    if (count == 0 || memcmp(got, want, count * size) == 0) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (!same_element(values, (const char *)got + i * size, (const char *)want + i * size) &&
            wrong++ == 0 && index != NULL) {
            *index = i;
        }
    }
    return wrong;
}

void test_values_text(rondo_dtype type, const void *element, char *text, size_t len)
{
    const unsigned char *bytes = element;
    size_t at = twos[type].at;
    if (at != 0) {
        snprintf(text, len, "(%.17Lg, %.17Lg)", number((rondo_dtype)twos[type].first, bytes),
                 number((rondo_dtype)twos[type].second, bytes + at));
        return;
    }
    snprintf(text, len, is_integer(type) ? "%.0Lf (0x" : "%.17Lg (0x", number(type, element));
    for (size_t i = test_types[type].size; i-- > 0 && strlen(text) + 4 < len;) {
        size_t end = strlen(text);
        snprintf(text + end, len - end, "%02x%s", bytes[i], i == 0 ? ")" : "");
    }
}
