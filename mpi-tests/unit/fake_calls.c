/* Calls with known results. All inputs are small integers, so that sums are exact in every type and order. */
#include "fake_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xa5, GAP = 3 };

const char *const fake_coll_names[FAKE_NUM_COLLS] = { "all_reduce",      "reduce",         "broadcast",
                                                      "all_gather",      "reduce_scatter", "all_to_all",
                                                      "gather",          "scatter",        "all_gatherv",
                                                      "reduce_scatterv", "all_to_allv",    "barrier" };

/* ---- values ---- */

static int64_t input(const struct fake_call *c, int rank, size_t i)
{
    uint64_t h = ((uint64_t)rank * 0x9e3779b97f4a7c15ull + i + c->seed) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 31;
    return c->op == RONDO_PROD ? 1 + (int64_t)(h % 2) : (int64_t)(h % 7);
}

/* Combine each rank's input at [first + i] by the operation; an average gives the sum. */
static int64_t combine(const struct fake_call *c, const size_t *first, size_t i)
{
    int64_t a = input(c, 0, first[0] + i);
    for (int r = 1; r < c->nranks; r++) {
        int64_t b = input(c, r, first[r] + i);
        switch (c->op) {
        case RONDO_PROD: a *= b; break;
        case RONDO_MAX: a = a > b ? a : b; break;
        case RONDO_MIN: a = a < b ? a : b; break;
        default: a += b;
        }
    }
    return a;
}

static void put(const struct fake_call *c, void *place, int64_t value, int divide)
{
    double quotient = (double)value / c->nranks;
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } v = { .i64 = 0 };
    int64_t whole = divide ? value / c->nranks : value;
    switch (c->type) {
    case RONDO_INT8: v.i8 = (int8_t)whole; break;
    case RONDO_UINT8: v.u8 = (uint8_t)whole; break;
    case RONDO_INT32: v.i32 = (int32_t)whole; break;
    case RONDO_INT64: v.i64 = whole; break;
    case RONDO_FLOAT32: v.f32 = divide ? (float)value / (float)c->nranks : (float)value; break;
    default: v.f64 = divide ? quotient : (double)value;
    }
    memcpy(place, &v, rondo_dtype_size(c->type));
}

/* ---- sizes ---- */

static int is_v(enum fake_coll coll)
{
    return coll == FAKE_ALL_GATHERV || coll == FAKE_REDUCE_SCATTERV || coll == FAKE_ALL_TO_ALLV;
}

static size_t v_count(const struct fake_call *c, int r)
{
    return c->count * ((size_t)r * 3 + 1) % (2 * c->count + 1);
}

static int in_place(const struct fake_call *c);

/* In place, two ranks send each other equally much. */
static size_t pair_count(const struct fake_call *c, int from, int to)
{
    if (in_place(c) && from > to) {
        return pair_count(c, to, from);
    }
    return ((size_t)from * 3 + (size_t)to * 5 + 1) * (c->count + 1) % (c->count + 2);
}

/* Elements of block r in a buffer of a rank. */
static size_t block_count(const struct fake_call *c, int rank, int sent, int r)
{
    return c->coll != FAKE_ALL_TO_ALLV ? v_count(c, r)
           : sent                      ? pair_count(c, rank, r)
                                       : pair_count(c, r, rank);
}

/* Where that block begins; the rank's own block comes first. r == nranks: the end of all. */
static size_t block_at(const struct fake_call *c, int rank, int sent, int r)
{
    size_t at = (size_t)rank;
    for (int k = 0; k < c->nranks; k++) {
        int block = (rank + k) % c->nranks;
        if (block == r) {
            return at;
        }
        at += block_count(c, rank, sent, block) + GAP + (size_t)rank;
    }
    return at;
}

static void fill_counts(const struct fake_call *c, size_t *counts)
{
    size_t n = (size_t)c->nranks;
    for (size_t r = 0; r < n; r++) {
        counts[r] = block_count(c, c->rank, 0, (int)r);
        counts[n + r] = block_at(c, c->rank, 0, (int)r);
        counts[2 * n + r] = block_count(c, c->rank, 1, (int)r);
        counts[3 * n + r] = block_at(c, c->rank, 1, (int)r);
    }
}

/* Set the elements of both buffers. */
static void extent(const struct fake_call *c, const struct fake_buffers *b, size_t *send, size_t *recv)
{
    size_t n = (size_t)c->nranks, all = n * c->count, root = c->rank == c->root;
    *send = *recv = c->count;
    switch (c->coll) {
    case FAKE_REDUCE: *recv = root ? c->count : 0; break;
    case FAKE_BROADCAST: *send = root ? c->count : 0; break;
    case FAKE_ALL_GATHER: *recv = all; break;
    case FAKE_REDUCE_SCATTER: *send = all; break;
    case FAKE_ALL_TO_ALL: *send = *recv = all; break;
    case FAKE_GATHER: *recv = root ? all : 0; break;
    case FAKE_SCATTER: *send = root ? all : 0; break;
    case FAKE_ALL_GATHERV:
        *send = b->counts[c->rank];
        *recv = block_at(c, c->rank, 0, c->nranks);
        break;
    case FAKE_REDUCE_SCATTERV:
        *send = block_at(c, c->rank, 1, c->nranks);
        *recv = b->counts[c->rank];
        break;
    case FAKE_ALL_TO_ALLV:
        *send = block_at(c, c->rank, 1, c->nranks);
        *recv = block_at(c, c->rank, 0, c->nranks);
        break;
    case FAKE_BARRIER: *send = *recv = 0; break;
    default: break;
    }
}

enum fake_place fake_call_last_place(enum fake_coll coll)
{
    return coll == FAKE_BARRIER          ? FAKE_OUT_OF_PLACE
           : coll == FAKE_REDUCE_SCATTER ? FAKE_AT_START
                                         : FAKE_IN_PLACE;
}

/* @return whether this rank passes one buffer for both. In rooted calls only the root does. */
static int in_place(const struct fake_call *c)
{
    int rooted = c->coll == FAKE_REDUCE || c->coll == FAKE_BROADCAST || c->coll == FAKE_GATHER ||
                 c->coll == FAKE_SCATTER;
    return c->in_place && c->coll != FAKE_BARRIER && (!rooted || c->rank == c->root);
}

/* ---- buffers ---- */

static uint8_t *new_memory(size_t bytes)
{
    uint8_t *memory = malloc(bytes + 2 * GUARD);
    if (memory == NULL) {
        abort();
    }
    return memset(memory, GUARD_BYTE, bytes + 2 * GUARD);
}

void fake_call_prepare(const struct fake_call *c, struct fake_buffers *b)
{
    size_t elem = rondo_dtype_size(c->type), send, recv, own;
    memset(b, 0, sizeof(*b));
    b->counts = calloc((size_t)c->nranks * 4, sizeof(size_t));
    if (b->counts == NULL) {
        abort();
    }
    fill_counts(c, b->counts);
    own = (is_v(c->coll) ? b->counts[c->nranks + c->rank] : (size_t)c->rank * c->count) * elem;
    extent(c, b, &send, &recv);
    b->bytes[0] = send * elem;
    b->bytes[1] = recv * elem;
    if (in_place(c)) {
        b->bytes[1] = (send > recv ? send : recv) * elem;
        b->memory[1] = new_memory(b->bytes[1]);
        b->send = b->recv = b->memory[1] + GUARD;
        b->send += c->coll == FAKE_ALL_GATHER || c->coll == FAKE_ALL_GATHERV || c->coll == FAKE_GATHER ? own
                                                                                                       : 0;
        b->recv += (c->coll == FAKE_REDUCE_SCATTER && c->in_place != FAKE_AT_START) ||
                           c->coll == FAKE_REDUCE_SCATTERV || c->coll == FAKE_SCATTER
                       ? own
                       : 0;
    } else {
        b->memory[0] = new_memory(b->bytes[0]);
        b->memory[1] = new_memory(b->bytes[1]);
        b->send = b->memory[0] + GUARD;
        b->recv = b->memory[1] + GUARD;
    }
    for (size_t i = 0; i < send; i++) {
        put(c, b->send + i * elem, input(c, c->rank, i), 0);
    }
}

static void release(struct fake_buffers *b)
{
    free(b->memory[0]);
    free(b->memory[1]);
    free(b->counts);
    memset(b, 0, sizeof(*b));
}

rondo_status fake_call_issue(const struct fake_call *c, const struct fake_buffers *b, rondo_comm *comm,
                             rondo_stream stream)
{
    size_t n = (size_t)c->nranks;
    const size_t *counts = b->counts, *displs = counts + n;
    switch (c->coll) {
    case FAKE_ALL_REDUCE: return rondo_all_reduce(b->send, b->recv, c->count, c->type, c->op, comm, stream);
    case FAKE_REDUCE:
        return rondo_reduce(b->send, c->rank == c->root ? b->recv : NULL, c->count, c->type, c->op, c->root,
                            comm, stream);
    case FAKE_BROADCAST:
        return rondo_broadcast(c->rank == c->root ? b->send : NULL, b->recv, c->count, c->type, c->root, comm,
                               stream);
    case FAKE_ALL_GATHER: return rondo_all_gather(b->send, b->recv, c->count, c->type, comm, stream);
    case FAKE_REDUCE_SCATTER:
        return rondo_reduce_scatter(b->send, b->recv, c->count, c->type, c->op, comm, stream);
    case FAKE_ALL_TO_ALL: return rondo_all_to_all(b->send, b->recv, c->count, c->type, comm, stream);
    case FAKE_GATHER:
        return rondo_gather(b->send, c->rank == c->root ? b->recv : NULL, c->count, c->type, c->root, comm,
                            stream);
    case FAKE_SCATTER:
        return rondo_scatter(c->rank == c->root ? b->send : NULL, b->recv, c->count, c->type, c->root, comm,
                             stream);
    case FAKE_ALL_GATHERV: return rondo_all_gatherv(b->send, b->recv, counts, displs, c->type, comm, stream);
    case FAKE_REDUCE_SCATTERV:
        return rondo_reduce_scatterv(b->send, b->recv, counts, displs, c->type, c->op, comm, stream);
    case FAKE_ALL_TO_ALLV:
        return in_place(c) && c->seed % 2 == 0
                   ? rondo_all_to_allv(b->send, NULL, NULL, b->recv, counts, displs, c->type, comm, stream)
                   : rondo_all_to_allv(b->send, counts + 2 * n, counts + 3 * n, b->recv, counts, displs,
                                       c->type, comm, stream);
    default: return rondo_barrier(comm, stream);
    }
}

/* ---- results ---- */

static void want_block(const struct fake_call *c, uint8_t *recv, size_t at, int from, size_t first, size_t n)
{
    size_t elem = rondo_dtype_size(c->type);
    for (size_t i = 0; i < n; i++) {
        put(c, recv + (at + i) * elem, input(c, from, first + i), 0);
    }
}

static void want_reduced(const struct fake_call *c, uint8_t *recv, size_t begin, size_t n)
{
    size_t elem = rondo_dtype_size(c->type), *first = calloc((size_t)c->nranks, sizeof(*first));
    if (first == NULL) {
        abort();
    }
    for (int r = 0; r < c->nranks; r++) {
        first[r] = c->coll == FAKE_REDUCE_SCATTERV ? block_at(c, r, 1, c->rank) : begin;
    }
    for (size_t i = 0; i < n; i++) {
        put(c, recv + i * elem, combine(c, first, i), c->op == RONDO_AVG);
    }
    free(first);
}

/* Write the expected result. */
static void expect(const struct fake_call *c, const struct fake_buffers *b, uint8_t *recv)
{
    size_t n = c->count, own = (size_t)c->rank * n;
    int root = c->rank == c->root;
    switch (c->coll) {
    case FAKE_ALL_REDUCE: want_reduced(c, recv, 0, n); return;
    case FAKE_REDUCE: want_reduced(c, recv, 0, root ? n : 0); return;
    case FAKE_BROADCAST: want_block(c, recv, 0, c->root, 0, n); return;
    case FAKE_REDUCE_SCATTER: want_reduced(c, recv, own, n); return;
    case FAKE_REDUCE_SCATTERV: want_reduced(c, recv, 0, b->counts[c->rank]); return;
    case FAKE_SCATTER: want_block(c, recv, 0, c->root, own, n); return;
    case FAKE_BARRIER: return;
    default: break;
    }
    for (int r = 0; r < c->nranks; r++) {
        size_t at = b->counts[c->nranks + r];
        if (c->coll == FAKE_ALL_GATHER || (c->coll == FAKE_GATHER && root)) {
            want_block(c, recv, (size_t)r * n, r, 0, n);
        } else if (c->coll == FAKE_ALL_TO_ALL) {
            want_block(c, recv, (size_t)r * n, r, own, n);
        } else if (c->coll == FAKE_ALL_GATHERV) {
            want_block(c, recv, at, r, 0, b->counts[r]);
        } else if (c->coll == FAKE_ALL_TO_ALLV) {
            want_block(c, recv, at, r, block_at(c, r, 1, c->rank), b->counts[r]);
        }
    }
}

/* A float average may differ in the last place. */
static int differs(const struct fake_call *c, const uint8_t *got, const uint8_t *want)
{
    size_t elem = rondo_dtype_size(c->type);
    float f[2];
    double d[2];
    if (memcmp(got, want, elem) == 0) {
        return 0;
    }
    if (c->op != RONDO_AVG || (c->type != RONDO_FLOAT32 && c->type != RONDO_FLOAT64)) {
        return 1;
    }
    if (c->type == RONDO_FLOAT64) {
        memcpy(&d[0], got, elem);
        memcpy(&d[1], want, elem);
        return !(d[0] - d[1] < 1e-12 && d[1] - d[0] < 1e-12);
    }
    memcpy(&f[0], got, elem);
    memcpy(&f[1], want, elem);
    return !(f[0] - f[1] < 1e-6f && f[1] - f[0] < 1e-6f);
}

static const char *say(const struct fake_call *c, const char *what, size_t at)
{
    static _Thread_local char text[256];
    snprintf(text, sizeof(text), "%s of %zu (type %d, op %d, root %d, seed %u%s): %s at %zu",
             fake_coll_names[c->coll], c->count, (int)c->type, (int)c->op, c->root, c->seed,
             in_place(c) ? c->in_place == FAKE_AT_START ? ", at the start" : ", in place" : "", what, at);
    return text;
}

static const char *compare(const struct fake_call *c, const struct fake_buffers *b)
{
    size_t elem = rondo_dtype_size(c->type), send, recv;
    uint8_t *want = new_memory(b->bytes[1]);
    const char *wrong = "";
    extent(c, b, &send, &recv);
    if (in_place(c)) { /* the rest of the buffer must be unchanged */
        uint8_t *at = want + GUARD + (b->send - (b->memory[1] + GUARD));
        for (size_t i = 0; i < send; i++) {
            put(c, at + i * elem, input(c, c->rank, i), 0);
        }
    }
    expect(c, b, want + GUARD + (b->recv - (b->memory[1] + GUARD)));
    for (size_t at = 0; at < b->bytes[1] + 2 * GUARD && *wrong == '\0'; at++) {
        int inside = at >= GUARD && at < GUARD + b->bytes[1];
        if (!inside) {
            wrong = b->memory[1][at] == want[at] ? ""
                                                 : say(c, "a guard of the receive buffer is damaged", at);
        } else if ((at - GUARD) % elem == 0) {
            wrong = differs(c, b->memory[1] + at, want + at)
                        ? say(c, "the receive buffer is wrong", (at - GUARD) / elem)
                        : "";
        }
    }
    free(want);
    return wrong;
}

/* Check that the send buffer is unchanged. */
static const char *compare_send(const struct fake_call *c, const struct fake_buffers *b)
{
    size_t elem = rondo_dtype_size(c->type), n = b->bytes[0] / elem;
    const char *wrong = "";
    for (size_t i = 0; b->memory[0] != NULL && i < n && *wrong == '\0'; i++) {
        uint8_t want[8];
        put(c, want, input(c, c->rank, i), 0);
        wrong = memcmp(want, b->send + i * elem, elem) == 0 ? "" : say(c, "the send buffer was changed", i);
    }
    return wrong;
}

static const char *guards(const struct fake_call *c, const struct fake_buffers *b)
{
    for (int m = 0; m < 2; m++) {
        for (size_t at = 0; b->memory[m] != NULL && at < GUARD; at++) {
            if (b->memory[m][at] != GUARD_BYTE || b->memory[m][GUARD + b->bytes[m] + at] != GUARD_BYTE) {
                return say(c,
                           m == 0 ? "a guard of the send buffer is damaged"
                                  : "a guard of the receive buffer is damaged",
                           at);
            }
        }
    }
    return "";
}

const char *fake_call_check(const struct fake_call *c, struct fake_buffers *b)
{
    const char *wrong = guards(c, b);
    wrong = *wrong == '\0' ? compare(c, b) : wrong;
    wrong = *wrong == '\0' ? compare_send(c, b) : wrong;
    release(b);
    return wrong;
}

const char *fake_call_guards(const struct fake_call *c, struct fake_buffers *b)
{
    const char *wrong = guards(c, b);
    release(b);
    return wrong;
}

void fake_call(struct fake_rank *r, struct fake_call c, rondo_stream stream)
{
    struct fake_buffers b;
    const char *wrong;
    rondo_status status;
    c.rank = r->rank;
    c.nranks = r->nranks;
    fake_call_prepare(&c, &b);
    status = fake_call_issue(&c, &b, r->comm, stream);
    if (status != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, fake_coll_names[c.coll], " of %zu: %s: %s", c.count,
                  rondo_status_string(status), rondo_last_error(NULL));
        fake_call_guards(&c, &b);
        return;
    }
    if (stream != NULL && (status = rondo_stream_synchronize(stream)) != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, fake_coll_names[c.coll], " of %zu on a stream: %s", c.count,
                  rondo_last_error(r->comm));
    }
    wrong = fake_call_check(&c, &b);
    FAKE_CHECK(r, *wrong == '\0', "%s", wrong);
}
