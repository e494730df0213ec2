/*
 * RONDO_DETERMINISM=strict: compare every reduction, bit for bit, with the sequential one from rank 0 to
 * the last. Inputs cancel, so sums differ in almost any other order. Shared by unit_strict (threads as
 * ranks) and mpi_strict (several hosts).
 */
#ifndef RONDO_TESTS_STRICT_CASE_H
#define RONDO_TESTS_STRICT_CASE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "rondo.h"

enum strict_coll {
    STRICT_ALL_REDUCE,
    STRICT_REDUCE,
    STRICT_REDUCE_SCATTER,
    STRICT_REDUCE_SCATTERV,
    STRICT_NUM_COLLS
};
enum { STRICT_TEXT = 512, STRICT_MAX_RANKS = 64 };

struct strict_case {
    enum strict_coll coll;
    rondo_dtype type; /* f32, f64, f16 or bf16 */
    rondo_op op;      /* sum, prod or avg */
    size_t count;     /* of the call, or of a block where there are blocks */
    int root, in_place;
    int rank, nranks;
};

static size_t strict_elem(rondo_dtype type)
{
    return type == RONDO_FLOAT64 ? 8 : type == RONDO_FLOAT32 ? 4 : 2;
}

/* Terms of both signs over many powers of two; factors around 1. */
static double strict_value(const struct strict_case *c, int rank, size_t i)
{
    uint64_t h = ((uint64_t)rank << 40 ^ i ^ (uint64_t)c->coll << 60) * 0x9e3779b97f4a7c15ull;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 32;
    double fraction = 1 + (double)(h & 0xfffff) / 0x100000;
    int range = strict_elem(c->type) == 2 ? 8 : 24;
    double scale = (double)(1ull << (h >> 20) % (uint64_t)range) / (double)(1 << range / 2);
    return c->op == RONDO_PROD  ? 0.5 + fraction / 2
           : (h >> 60 & 1) != 0 ? -fraction * scale
                                : fraction * scale;
}

static void strict_store(rondo_dtype type, void *at, double value)
{
    float f = (float)value;
    uint16_t half = type == RONDO_FLOAT16 ? rondo_f32_to_f16(f) : rondo_f32_to_bf16(f);
    memcpy(at,
           type == RONDO_FLOAT64   ? (const void *)&value
           : type == RONDO_FLOAT32 ? (const void *)&f
                                   : &half,
           strict_elem(type));
}

static double strict_load(rondo_dtype type, const void *at)
{
    double d;
    float f;
    uint16_t half;
    if (type == RONDO_FLOAT64) {
        memcpy(&d, at, sizeof(d));
        return d;
    }
    if (type == RONDO_FLOAT32) {
        memcpy(&f, at, sizeof(f));
        return (double)f;
    }
    memcpy(&half, at, sizeof(half));
    return (double)(type == RONDO_FLOAT16 ? rondo_f16_to_f32(half) : rondo_bf16_to_f32(half));
}

/* One operation in the type, rounded once. Sum, product and quotient of two floats computed in double and
 * rounded to float are those in float. */
static void strict_step(const struct strict_case *c, void *acc, double value)
{
    double a = strict_load(c->type, acc);
    strict_store(c->type, acc, c->op == RONDO_PROD ? a * value : a + value);
}

/* The expected element i of the whole reduction. backward: from the last rank to the first, which must
 * differ. */
static void strict_expect(const struct strict_case *c, size_t i, void *acc, int backward)
{
    uint64_t value = 0;
    for (int k = 0; k < c->nranks; k++) {
        int r = backward ? c->nranks - 1 - k : k;
        strict_store(c->type, &value, strict_value(c, r, i));
        if (k == 0) {
            memcpy(acc, &value, strict_elem(c->type));
        } else {
            strict_step(c, acc, strict_load(c->type, &value));
        }
    }
    if (c->op == RONDO_AVG) {
        strict_store(c->type, acc, strict_load(c->type, acc) / c->nranks);
    }
}

struct strict_buffers {
    uint8_t *in, *out;
    size_t *counts, *displs, first, n; /* the part of the whole that this rank gets */
};

static size_t strict_total(const struct strict_case *c)
{
    return c->coll >= STRICT_REDUCE_SCATTER ? c->count * (size_t)c->nranks : c->count;
}

static void strict_prepare(const struct strict_case *c, struct strict_buffers *b)
{
    size_t total = strict_total(c), elem = strict_elem(c->type), at = 0;
    b->in = malloc(total * elem + 8);
    b->out = c->in_place ? b->in : malloc(total * elem + 8);
    b->counts = malloc(2 * sizeof(size_t) * (size_t)c->nranks);
    if (b->in == NULL || b->out == NULL || b->counts == NULL) {
        abort();
    }
    b->displs = b->counts + c->nranks;
    for (int r = 0; r < c->nranks; r++) { /* v-form: blocks of all sizes, together the same */
        size_t share = r + 1 == c->nranks ? total - at : (total - at) / (size_t)(1 + (r + 1) % 3);
        b->counts[r] = c->coll == STRICT_REDUCE_SCATTERV ? share : c->count;
        b->displs[r] = at;
        at += c->coll == STRICT_REDUCE_SCATTERV ? share : c->count;
    }
    b->first = c->coll >= STRICT_REDUCE_SCATTER ? b->displs[c->rank] : 0;
    b->n = c->coll == STRICT_REDUCE && c->rank != c->root ? 0
           : c->coll >= STRICT_REDUCE_SCATTER             ? b->counts[c->rank]
                                                          : total;
    for (size_t i = 0; i < total; i++) {
        strict_store(c->type, b->in + i * elem, strict_value(c, c->rank, i));
    }
}

static rondo_status strict_issue(const struct strict_case *c, const struct strict_buffers *b,
                                 rondo_comm *comm)
{
    void *out = c->in_place && c->coll == STRICT_REDUCE_SCATTER ? b->in + b->first * strict_elem(c->type)
                                                                : b->out;
    switch (c->coll) {
    case STRICT_ALL_REDUCE: return rondo_all_reduce(b->in, out, c->count, c->type, c->op, comm, NULL);
    case STRICT_REDUCE: return rondo_reduce(b->in, out, c->count, c->type, c->op, c->root, comm, NULL);
    case STRICT_REDUCE_SCATTER: return rondo_reduce_scatter(b->in, out, c->count, c->type, c->op, comm, NULL);
    default: return rondo_reduce_scatterv(b->in, out, b->counts, b->displs, c->type, c->op, comm, NULL);
    }
}

/* *apart: elements whose bits another order would change. @return 1: all as expected. */
static int strict_compare(const struct strict_case *c, const struct strict_buffers *b, size_t *apart,
                          char text[STRICT_TEXT])
{
    size_t elem = strict_elem(c->type),
           shift = c->in_place && c->coll == STRICT_REDUCE_SCATTER ? b->first : 0;
    for (size_t i = 0; i < b->n; i++) {
        uint64_t expected = 0, other = 0, got = 0;
        strict_expect(c, b->first + i, &expected, 0);
        strict_expect(c, b->first + i, &other, 1);
        memcpy(&got, b->out + (shift + i) * elem, elem);
        *apart += expected != other;
        if (got != expected) {
            snprintf(text, STRICT_TEXT,
                     "collective %d, type %d, operation %d, count %zu, root %d, %s place: element %zu of "
                     "rank %d of %d is %.17g, expected %.17g",
                     (int)c->coll, (int)c->type, (int)c->op, c->count, c->root, c->in_place ? "in" : "out of",
                     i, c->rank, c->nranks, strict_load(c->type, &got), strict_load(c->type, &expected));
            return 0;
        }
    }
    return 1;
}

/* Check one call. *apart grows by the elements whose bits another order would change. @return 1; or 0, with
 * the reason in text. */
static int strict_call(const struct strict_case *c, rondo_comm *comm, size_t *apart, char text[STRICT_TEXT])
{
    struct strict_buffers b;
    int good;
    strict_prepare(c, &b);
    rondo_status status = strict_issue(c, &b, comm);
    if (status != RONDO_SUCCESS) {
        snprintf(text, STRICT_TEXT, "%s: %s", rondo_status_string(status), rondo_last_error(comm));
    }
    good = status == RONDO_SUCCESS && strict_compare(c, &b, apart, text);
    if (!c->in_place) {
        free(b.out);
    }
    free(b.in);
    free(b.counts);
    return good;
}

/* Check every collective, type, operation and size up to `most` elements of the whole; the rest of a case
 * follows from its number. @return 1; or 0, with the reason in text. */
static int strict_all(rondo_comm *comm, int rank, int nranks, size_t most, size_t *apart,
                      char text[STRICT_TEXT])
{
    static const size_t counts[] = { 1, 2, 3, 17, 260, 1000, 1024, 4099, 33000, 150001 };
    static const rondo_dtype types[] = { RONDO_FLOAT32, RONDO_FLOAT64, RONDO_FLOAT16, RONDO_BFLOAT16 };
    static const rondo_op ops[] = { RONDO_SUM, RONDO_SUM, RONDO_PROD, RONDO_AVG };
    unsigned k = 0;
    for (int coll = 0; coll < STRICT_NUM_COLLS; coll++) {
        for (size_t s = 0; s < sizeof(counts) / sizeof(counts[0]); s++) {
            for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++, k++) {
                struct strict_case c = { .coll = (enum strict_coll)coll,
                                         .type = types[t],
                                         .op = ops[(k + k / 4) % 4],
                                         .count = counts[s],
                                         .root = (int)(k / 3 % (unsigned)nranks),
                                         .in_place = coll != STRICT_REDUCE_SCATTERV &&
                                                     k % 2 == (unsigned)(k / 8 % 2),
                                         .rank = rank,
                                         .nranks = nranks };
                if (strict_total(&c) <= most && !strict_call(&c, comm, apart, text)) {
                    return 0;
                }
            }
        }
    }
    return 1;
}

#endif
