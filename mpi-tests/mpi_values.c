#include "mpi_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mpi_common.h"

#define TYPE_ROW(ctx, name, NAME, value, storage, arith, to, from, is_float) \
    [value] = { #name, sizeof(storage), is_float, !((storage)-1 > 1) },
const struct test_type test_types[RONDO_NUM_DTYPES] = { RONDO_DTYPE_TABLE(TYPE_ROW, ) };
#undef TYPE_ROW

#define OP_ROW(ctx, name, NAME, value, pairwise) [value] = #name,
const char *const test_op_names[TEST_NUM_OPS] = {
    RONDO_OP_TABLE(OP_ROW, )[TEST_OP_PREMUL] = "premul", [TEST_OP_NONE] = "none"
};
#undef OP_ROW

/* Exponent and mantissa bits of the floating-point types; zero for integers. */
static const struct {
    int ebits, mbits;
} formats[RONDO_NUM_DTYPES] = {
    [RONDO_FLOAT16] = { 5, 10 }, [RONDO_FLOAT32] = { 8, 23 },   [RONDO_FLOAT64] = { 11, 52 },
    [RONDO_BFLOAT16] = { 8, 7 }, [RONDO_FLOAT8E4M3] = { 4, 3 }, [RONDO_FLOAT8E5M2] = { 5, 2 },
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

int test_type_by_name(const char *name)
{
    static const char *const aliases[RONDO_NUM_DTYPES] = { "int8",   "uint8",    "int32",  "uint32",
                                                           "int64",  "uint64",   "half",   "float",
                                                           "double", "bfloat16", "f8e4m3", "f8e5m2" };
    for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
        if (strcasecmp(name, test_types[type].name) == 0 || strcasecmp(name, aliases[type]) == 0) {
            return type;
        }
    }
    return -1;
}

int test_op_by_name(const char *name)
{
    for (int op = 0; op < TEST_NUM_OPS; op++) {
        if (strcasecmp(name, test_op_names[op]) == 0) {
            return op;
        }
    }
    return -1;
}

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
    return test_types[type].is_signed ? (int64_t)(bits << unused) >> unused
                                      : (int64_t)(bits << unused >> unused);
}

/* ---- inputs ---- */

static double signed_by(uint64_t hash, double value) { return hash >> 63 && value != 0 ? -value : value; }

/*
 * For each element, any subset of the ranks' values must add up, or multiply, exactly. Sums: a value is an
 * integer times a power of two per element; the sum of all magnitudes fits in the significand, so in types
 * with few bits only some ranks, different ones per element, are nonzero. Products: one rank has a full
 * significand, three have powers of two, and all have a sign. `place` is the rank's role at this element.
 */
static double input_real(const struct test_values *v, uint64_t hash, uint64_t common, int place)
{
    int precision = formats[v->type].mbits + 1, scale = (int)(common >> 32) % 6 - 2;
    uint64_t budget = 1ull << precision, active;
    switch (v->op) {
    case RONDO_MIN:
    case RONDO_MAX: return signed_by(hash, ldexp((double)((hash >> 3) % budget), (int)(hash >> 58 & 3)));
    case RONDO_PROD:
        if (place == 0) {
            return signed_by(hash, ldexp((double)(budget / 2 + hash % (budget / 2)), 1 - precision));
        }
        return signed_by(hash, place <= 3 ? ldexp(1, (int)(hash % 5) - 2) : 1);
    default:
        budget = v->op == TEST_OP_PREMUL ? budget / 4 : budget; /* the scalars are 1/2, 1 and 2 */
        active = (uint64_t)v->nranks < budget ? (uint64_t)v->nranks : budget;
        return (uint64_t)place < active
                   ? signed_by(hash, ldexp((double)(hash % (budget / active + 1)), scale))
                   : 0;
    }
}

static uint64_t input_bits(const struct test_values *v, int rank, size_t i)
{
    uint64_t seed = v->seed * 1000 + (uint64_t)v->type * 20 + (uint64_t)v->op,
             hash = test_hash(seed, (uint64_t)rank, i), common;
    if (v->op == TEST_OP_NONE) {
        return hash;
    }
    if (!test_types[v->type].is_float) {
        return v->op == RONDO_PROD ? hash | 1 : hash; /* odd, so that a product of many is not zero */
    }
    common = test_hash(seed, UINT64_MAX, i);
    return encode(v->type, input_real(v, hash, common & 0xffffffffffffull,
                                      (int)((common % 65536 + (uint64_t)rank) % (uint64_t)v->nranks)));
}

void test_premul_scalar(rondo_dtype type, int rank, void *scalar)
{
    store(type, scalar,
          test_types[type].is_float ? encode(type, ldexp(1, rank % 3 - 1)) : (uint64_t)rank * 2 + 3);
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
        int less = test_types[v->type].is_signed ? b < a : (uint64_t)b < (uint64_t)a;
        switch (v->op) {
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
        return test_types[v->type].is_signed ? (uint64_t)(sum / v->nranks)
                                             : (uint64_t)sum / (uint64_t)v->nranks;
    }
    return total;
}

static uint64_t reduce_reals(const struct test_values *v, size_t i)
{
    size_t size = test_types[v->type].size;
    double total = decode(v->type, load(v->type, v->input[0] + i * size));
    uint64_t scalar = 0;
    if (v->op == TEST_OP_PREMUL) {
        total *= 0.5;
    }
    for (int r = 1; r < v->nranks; r++) {
        double value = decode(v->type, load(v->type, v->input[r] + i * size));
        switch (v->op) {
        case RONDO_PROD: total *= value; break;
        case RONDO_MAX: total = value > total ? value : total; break;
        case RONDO_MIN: total = value < total ? value : total; break;
        case TEST_OP_PREMUL:
            test_premul_scalar(v->type, r, &scalar);
            total += value * decode(v->type, load(v->type, &scalar));
            break;
        default: total += value; break;
        }
    }
    return encode(v->type, v->op == RONDO_AVG ? total / v->nranks : total);
}

/* ---- tables ---- */

static void *table_alloc(const struct test_values *v)
{
    void *table = malloc(TEST_PERIOD * test_types[v->type].size);
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
            store(v->type, v->input[rank] + i * size, input_bits(v, rank, i));
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
        store(v->type, v->result + i * size,
              test_types[v->type].is_float ? reduce_reals(v, i) : reduce_integers(v, i));
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

/* @return the distance of two floats in ulp. */
static uint64_t ulps(rondo_dtype type, uint64_t a, uint64_t b)
{
    uint64_t sign = 1ull << (8 * test_types[type].size - 1);
    int64_t x = a & sign ? -(int64_t)(a & ~sign) : (int64_t)a,
            y = b & sign ? -(int64_t)(b & ~sign) : (int64_t)b;
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

size_t test_values_wrong(const struct test_values *values, const void *got, const void *want, size_t count,
                         size_t *index)
{
    rondo_dtype type = values->type;
    size_t size = test_types[type].size, wrong = 0;
    uint64_t tolerance = values->op == RONDO_AVG && test_types[type].is_float ? 2 : 0;
    if (count == 0 || memcmp(got, want, count * size) == 0) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t g = load(type, (const char *)got + i * size), w = load(type, (const char *)want + i * size);
        if (g != w && (tolerance == 0 || ulps(type, g, w) > tolerance)) {
            if (wrong++ == 0 && index != NULL) {
                *index = i;
            }
        }
    }
    return wrong;
}

void test_values_text(rondo_dtype type, const void *element, char *text, size_t len)
{
    uint64_t bits = load(type, element);
    int digits = 2 * (int)test_types[type].size;
    if (test_types[type].is_float) {
        snprintf(text, len, "%.17g (0x%0*llx)", decode(type, bits), digits, (unsigned long long)bits);
    } else if (test_types[type].is_signed) {
        snprintf(text, len, "%lld (0x%0*llx)", (long long)extend(type, bits), digits,
                 (unsigned long long)bits);
    } else {
        snprintf(text, len, "%llu (0x%0*llx)", (unsigned long long)bits, digits, (unsigned long long)bits);
    }
}
