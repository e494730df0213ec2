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

/* ---- copies ---- */

#ifdef __x86_64__
/* Whole lines past the caches; SSE2 is enough, since the memory and not the core sets the pace. dst is 64-byte aligned. */
static void stream_lines(uint8_t *dst, const uint8_t *src, size_t lines)
{
    for (; lines > 0; lines--, dst += 64, src += 64) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)src);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + 48));
        _mm_stream_si128((__m128i *)(void *)dst, a);
        _mm_stream_si128((__m128i *)(void *)(dst + 16), b);
        _mm_stream_si128((__m128i *)(void *)(dst + 32), c);
        _mm_stream_si128((__m128i *)(void *)(dst + 48), d);
    }
    _mm_sfence(); /* the stores are weakly ordered: a flag or tail that is stored next must not overtake them */
}
#endif

enum { STREAM_MIN = 4096 }; /* below this the two unaligned ends and the fence cost more than they save */

void rondo_copy(void *dst, const void *src, size_t bytes, int stream)
{
#ifdef __x86_64__
    if (stream && bytes >= STREAM_MIN) {
        uint8_t *to = dst;
        const uint8_t *from = src;
        const size_t head = (uintptr_t)to % 64 ? 64 - (uintptr_t)to % 64 : 0, lines = (bytes - head) / 64, tail = head + 64 * lines;
        memcpy(to, from, head);
        stream_lines(to + head, from + head, lines);
        memcpy(to + tail, from + tail, bytes - tail);
        return;
    }
#endif
    (void)stream;
    memcpy(dst, src, bytes);
}
