/* Reductions on host memory: which build of the loops this machine runs, and copies. */
#include "kern/reduce.h"

#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "kern/reduce_isa.h"

#ifdef __x86_64__
static int has_avx2(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
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

/* A cap that names no build of this machine ("c", "sse2" on another one) leaves the last, which is plain C. */
static const struct rondo_reduce_isa *choose(void)
{
    const char *cap = secure_getenv("RONDO_TEST_ISA");
    const struct rondo_reduce_isa *isa = rondo_reduce_usable(0);
    for (int i = 0; cap != NULL && strcmp(isa->name, cap) != 0 && rondo_reduce_usable(i) != NULL; i++) {
        isa = rondo_reduce_usable(i);
    }
    return isa;
}

/* Threads that come first at once choose the same. */
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

rondo_reduce_fn *rondo_reduce_get(rondo_dtype type, enum rondo_reduce op) { return chosen()->reduce[type][op]; }

void rondo_premul(void *dst, const void *src, size_t n, rondo_dtype type, uint64_t scalar_bits)
{
    chosen()->premul[type](dst, src, n, scalar_bits);
}

void rondo_divide(void *dst, size_t n, rondo_dtype type, int divisor) { chosen()->divide[type](dst, n, divisor); }

const char *rondo_reduce_isa(void) { return chosen()->name; }

/* ---- past the caches ---- */

enum {
    STREAM_MIN = 4096, /* of a copy: below this the two unaligned ends and the fence cost more than they save */
    PAST_TILE = 512,   /* of a reduction: little enough that its stores and the next one's loads are under way together */
    APART_TILE = 7680  /* the same where the targets' lines do not begin together, and each copy has ends of its own */
};

/* Stores past the caches are weakly ordered: a flag or tail that is stored next must not overtake them. */
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
        const size_t head = before_line(to), lines = (bytes - head) / RONDO_CACHE_LINE, tail = head + RONDO_CACHE_LINE * lines;
        memcpy(to, from, head);
        chosen()->stream(to + head, from + head, lines);
        stream_fence();
        memcpy(to + tail, from + tail, bytes - tail);
        return;
    }
    memcpy(dst, src, bytes);
}

void rondo_reduce_past(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, uint8_t *keep, size_t n)
{
    RONDO_ALIGNED(64) uint8_t tile[APART_TILE];
    const size_t elem = rondo_dtype_size(r->type), bytes = n * elem, head = rondo_min_size(before_line(dsts[0]), bytes);
    rondo_reduce_fn *reduce = rondo_reduce_get(r->type, r->op);
    int together = head % elem == 0;
    size_t here;
    for (int i = 1; i < ndsts; i++) {
        together &= before_line(dsts[i]) == before_line(dsts[0]);
    }
    for (size_t at = 0; at < bytes; at += here) {
        uint8_t *first = keep != NULL ? keep + at : tile;
        here = rondo_min_size(!together ? APART_TILE : at < head ? head : PAST_TILE, bytes - at);
        reduce(first, r->srcs, r->nsrcs, here / elem);
        if (r->divisor != 0) {
            rondo_divide(first, here / elem, r->type, r->divisor);
        }
        for (int i = 0; i < ndsts; i++) {
            if (together && at >= head && here == PAST_TILE) {
                chosen()->stream(dsts[i] + at, first, PAST_TILE / RONDO_CACHE_LINE);
            } else {
                rondo_copy(dsts[i] + at, first, here, !together);
            }
        }
        for (int k = 0; k < r->nsrcs; k++) {
            r->srcs[k] = (const uint8_t *)r->srcs[k] + here;
        }
    }
    stream_fence();
}
