/* Reductions on host memory: dispatch, copies and non-temporal stores. */
#include "kern/reduce.h"

#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "kern/cpu/reduce_isa.h"

#ifdef __x86_64__
static int has_avx2(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/* Does `rep movsb` fill lines without reading them? It does on AMD processors with fast string copies (ERMS).
 */
static int has_over(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_is("amd") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 9) != 0;
}
#else
static int has_over(void) { return 0; }
#endif

static int always(void) { return 1; }

/* Best first. */
static const struct {
    const struct rondo_reduce_isa *isa;
    int (*usable)(void);
} builds[] = {
#ifdef __x86_64__
    { &rondo_reduce_avx512, has_avx512 },
    { &rondo_reduce_avx2, has_avx2 },
#endif
    { &rondo_reduce_c, always },
};

const struct rondo_reduce_isa *rondo_reduce_usable(int i)
{
    for (size_t b = 0; b < RONDO_COUNTOF(builds); b++) {
        if (builds[b].usable() && i-- == 0) {
            return builds[b].isa;
        }
    }
    return NULL;
}

/* RONDO_TEST_ISA may name a build that this machine lacks; then the last one remains, plain C. */
static const struct rondo_reduce_isa *choose(void)
{
    const char *cap = secure_getenv("RONDO_TEST_ISA");
    const struct rondo_reduce_isa *isa = rondo_reduce_usable(0);
    for (int i = 0; cap != NULL && strcmp(isa->name, cap) != 0 && rondo_reduce_usable(i) != NULL; i++) {
        isa = rondo_reduce_usable(i);
    }
    return isa;
}

/* Threads may race to be first; they choose the same. */
static inline const struct rondo_reduce_isa *chosen(void)
{
    static const struct rondo_reduce_isa *cached;
    const struct rondo_reduce_isa *isa = __atomic_load_n(&cached, __ATOMIC_RELAXED);
    if (RONDO_UNLIKELY(isa == NULL)) {
        isa = choose();
        __atomic_store_n(&cached, isa, __ATOMIC_RELAXED);
    }
    return isa;
}

rondo_reduce_fn *rondo_reduce_get(rondo_dtype type, enum rondo_reduce op)
{
    rondo_reduce_fn *reduce = chosen()->reduce[type][op];
    return RONDO_LIKELY(reduce != NULL) ? reduce : rondo_reduce_c.reduce[type][op];
}

void rondo_premul(void *dst, const void *src, size_t n, rondo_dtype type, uint64_t scalar_bits)
{
    chosen()->premul[type](dst, src, n, scalar_bits);
}

void rondo_divide(void *dst, size_t n, rondo_dtype type, int divisor)
{
    chosen()->divide[type](dst, n, divisor);
}

const char *rondo_reduce_isa(void) { return chosen()->name; }

/* ---- past the caches ---- */

enum {
    STREAM_MIN =
        4096, /* for copies: below this the two unaligned ends and the fence cost more than they save */
    PAST_PARTS = 4,
    PAST_TILE = 512,  /* for reductions: small enough that its stores overlap the next tile's loads */
    APART_TILE = 7680 /* the same where targets are aligned differently, so that each copy has its own ends */
};

/* Non-temporal stores are weakly ordered: a flag or tail that is stored next must not overtake them. */
static void stream_fence(void)
{
#ifdef __x86_64__
    _mm_sfence();
#endif
}

/* Bytes before the first whole line. */
static size_t before_line(const void *at) { return -(uintptr_t)at % RONDO_CACHE_LINE; }

void rondo_copy(void *dst, const void *src, size_t bytes, int stream)
{
    if (stream && bytes >= STREAM_MIN) {
        uint8_t *to = dst;
        const uint8_t *from = src;
        const size_t head = before_line(to), lines = (bytes - head) / RONDO_CACHE_LINE,
                     tail = head + RONDO_CACHE_LINE * lines;
        memcpy(to, from, head);
        chosen()->stream(to + head, from + head, lines);
        stream_fence();
        memcpy(to + tail, from + tail, bytes - tail);
        return;
    }
    memcpy(dst, src, bytes);
}

/* A reduction past the caches; the sources are advanced to `at`. */
struct past {
    const struct rondo_reduction *r;
    uint8_t *const *dsts;
    int ndsts;
    uint8_t *keep;
    rondo_reduce_fn *reduce;
    size_t elem, at;
};

/* Reduce a tile at the sources' current position into `first`. */
static void past_reduce(const struct past *p, uint8_t *first, size_t bytes)
{
    p->reduce(first, p->r->srcs, p->r->nsrcs, bytes / p->elem);
    if (p->r->divisor != 0) {
        rondo_divide(first, bytes / p->elem, p->r->type, p->r->divisor);
    }
}

static void past_move(struct past *p, size_t to)
{
    for (int k = 0; k < p->r->nsrcs; k++) {
        p->r->srcs[k] = (const uint8_t *)p->r->srcs[k] + (ptrdiff_t)(to - p->at);
    }
    p->at = to;
}

/* lines: the tile is PAST_TILE bytes and whole lines of the targets. */
static void past_tile(struct past *p, size_t at, size_t bytes, int lines, int apart)
{
    RONDO_ALIGNED(64) uint8_t tile[APART_TILE];
    uint8_t *first = p->keep != NULL ? p->keep + at : tile;
    past_move(p, at);
    past_reduce(p, first, bytes);
    for (int i = 0; i < p->ndsts; i++) {
        if (lines) {
            chosen()->stream(p->dsts[i] + at, first, PAST_TILE / RONDO_CACHE_LINE);
        } else {
            rondo_copy(p->dsts[i] + at, first, bytes, apart);
        }
    }
}

/* How many parts of the span to interleave. On Intel processors (measured) several streams get more from
 * memory and from other cores than one; on AMD processors one is best. */
static size_t past_parts(void)
{
#ifdef __x86_64__
    return __builtin_cpu_is("amd") ? 1 : PAST_PARTS;
#else
    return PAST_PARTS;
#endif
}

void rondo_reduce_past(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, uint8_t *keep,
                       size_t n)
{
    struct past p = {
        .r = r, .dsts = dsts, .ndsts = ndsts, .keep = keep, .reduce = rondo_reduce_get(r->type, r->op)
    };
    const size_t elem = rondo_dtype_size(r->type), bytes = n * elem,
                 head = rondo_min_size(before_line(dsts[0]), bytes);
    int together = head % elem == 0;
    size_t at = 0, part = 0, nparts = past_parts();
    p.elem = elem;
    for (int i = 1; i < ndsts; i++) {
        together &= before_line(dsts[i]) == before_line(dsts[0]);
    }
    if (together) {
        past_tile(&p, 0, head, 0, 0);
        part = (bytes - head) / (nparts * PAST_TILE) * PAST_TILE;
        at = head;
    }
    for (size_t done = 0; done < part; done += PAST_TILE) {
        for (size_t k = 0; k < nparts; k++) {
            past_tile(&p, at + k * part + done, PAST_TILE, 1, 0);
        }
    }
    for (at += nparts * part; at < bytes; at = p.at) {
        size_t here = rondo_min_size(together ? PAST_TILE : APART_TILE, bytes - at);
        past_tile(&p, at, here, together && here == PAST_TILE, !together);
        past_move(&p, at + here);
    }
    past_move(&p, bytes);
    stream_fence();
}

/* ---- targets whose lines another core owns ---- */

enum {
    OVER_MIN = 32 << 10, /* below this the start-up costs more than it saves */
    OVER_TILE =
        /* half of it costs more start-ups; twice as much is read again from the second-level cache */
    16 << 10
};

int rondo_over_pays(size_t bytes)
{
    static int cached; /* 0: unknown, 1: no, 2: yes; threads that race find the same */
    int has = __atomic_load_n(&cached, __ATOMIC_RELAXED);
    if (bytes < OVER_MIN) {
        return 0;
    }
    if (RONDO_UNLIKELY(has == 0)) {
        has = 1 + has_over();
        __atomic_store_n(&cached, has, __ATOMIC_RELAXED);
    }
    return has == 2;
}

static void copy_over(uint8_t *to, const uint8_t *from, size_t bytes)
{
#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
    memcpy(to, from, bytes); /* sanitizers see memcpy */
#endif
}

void rondo_reduce_over(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, size_t n)
{
    RONDO_ALIGNED(64) uint8_t tile[OVER_TILE];
    struct past p = { .r = r, .reduce = rondo_reduce_get(r->type, r->op), .elem = rondo_dtype_size(r->type) };
    const size_t bytes = n * p.elem;
    for (size_t at = 0; at < bytes; at += OVER_TILE) {
        size_t here = rondo_min_size(OVER_TILE, bytes - at);
        past_move(&p, at);
        past_reduce(&p, tile, here);
        for (int i = 0; i < ndsts; i++) {
            copy_over(dsts[i] + at, tile, here);
        }
    }
    past_move(&p, bytes);
}
