/* The loops of one build of reduce_isa.h, one for each row of the tables, for the compiler to vectorise. A
 * file that sets the target, RONDO_ISA and RONDO_ISA_NAME includes it once, and first, so that its own
 * includes are built for the target too. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#endif

#include "kern/cpu/reduce_isa.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "base/half.h"
#include "kern/cpu/reduce_small.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOOP _Pragma("GCC ivdep")
#endif

/* Spans may be equal, unaligned and of any type. */
#define SPAN __attribute__((aligned(1), may_alias))

/* Tiles, small beside the first-level cache: bytes of the running result of four and more sources, and
 * elements of small floats to widen at once. */
enum { TILE = 4096, SMALL_TILE = 512 };

typedef void pair_fn(void *dst, const void *a, const void *b, size_t n);
typedef void triple_fn(void *dst, const void *a, const void *b, const void *c, size_t n);
typedef void widen_fn(float *x, const uint8_t *src, size_t n);
typedef void narrow_fn(uint8_t *dst, const float *x, size_t n);

/* More than two sources: tile by tile, two sources at a time. */
static void reduce_many(void *dst, const void *const *srcs, int nsrcs, size_t n, size_t size, pair_fn *pair,
                        triple_fn *triple)
{
    uint8_t acc[TILE] RONDO_ALIGNED(RONDO_CACHE_LINE);
    if (nsrcs == 1) {
        memmove(dst, srcs[0], n * size);
        return;
    }
    for (size_t at = 0; at < n * size; at += TILE) {
        const size_t m = rondo_min_size(TILE, n * size - at) / size;
        const void *so_far = (const uint8_t *)srcs[0] + at;
        int k = 1;
        for (; k + 2 < nsrcs; k += 2, so_far = acc) {
            triple(acc, so_far, (const uint8_t *)srcs[k] + at, (const uint8_t *)srcs[k + 1] + at, m);
        }
        if (k + 1 < nsrcs) {
            triple((uint8_t *)dst + at, so_far, (const uint8_t *)srcs[k] + at,
                   (const uint8_t *)srcs[k + 1] + at, m);
        } else {
            pair((uint8_t *)dst + at, so_far, (const uint8_t *)srcs[k] + at, m);
        }
    }
}

/* 8- and 16-bit floats: widen a tile to float on the stack, and round to the storage type after each pair. */
static void reduce_small(void *dst, const void *const *srcs, int nsrcs, size_t n, size_t size,
                         widen_fn *widen, narrow_fn *narrow, pair_fn *pair)
{
    float x[SMALL_TILE] RONDO_ALIGNED(RONDO_CACHE_LINE), y[SMALL_TILE] RONDO_ALIGNED(RONDO_CACHE_LINE);
    uint8_t rounded[2 * SMALL_TILE] RONDO_ALIGNED(RONDO_CACHE_LINE);
    if (nsrcs == 1) {
        memmove(dst, srcs[0], n * size);
        return;
    }
    for (size_t i = 0; i < n; i += SMALL_TILE) {
        const size_t m = rondo_min_size(SMALL_TILE, n - i);
        widen(x, (const uint8_t *)srcs[0] + i * size, m);
        for (int k = 1; k < nsrcs; k++) {
            widen(y, (const uint8_t *)srcs[k] + i * size, m);
            pair(x, x, y, m);
            if (k + 1 < nsrcs) {
                narrow(rounded, x, m);
                widen(x, rounded, m);
            }
        }
        narrow((uint8_t *)dst + i * size, x, m);
    }
}

/* The same in one pass over the operands, tile by tile with more than two; dst may be any of the sources. */
static void reduce_fused(void *dst, const void *const *srcs, int nsrcs, size_t n, fused_fn *fused,
                         widen_fn *widen, narrow_fn *narrow, pair_fn *pair)
{
    enum { HALF = 2, MOST = TILE / HALF };
    uint8_t acc[TILE] RONDO_ALIGNED(RONDO_CACHE_LINE);
    const size_t tile = nsrcs == 2 ? n : MOST;
    for (size_t at = 0; at < n; at += tile) {
        const size_t m = rondo_min_size(tile, n - at);
        const uint8_t *so_far = (const uint8_t *)srcs[0] + HALF * at;
        for (int k = 1; k < nsrcs; k++, so_far = acc) {
            const uint8_t *next = (const uint8_t *)srcs[k] + HALF * at;
            uint8_t *to = k + 1 < nsrcs ? acc : (uint8_t *)dst + HALF * at;
            const size_t done = fused(to, so_far, next, m);
            const void *const rest[2] = { so_far + HALF * done, next + HALF * done };
            if (done < m) {
                reduce_small(to + HALF * done, rest, 2, m - done, HALF, widen, narrow, pair);
            }
        }
    }
}

/* Which of the two forms a type takes, known at compile time. */
#define IS_SMALL(storage, is_float) (is_float && sizeof(storage) < sizeof(float))

#define DECLARE_F32(ctx, op, ...) static pair_fn pair_f32_##op;
RONDO_REDUCE_TABLE(DECLARE_F32, )

/* For each type and operation: step_ does two elements, pair_ and triple_ do spans, reduce_ takes any number.
 */
#define OP_LOOPS(type, TYPE, storage, arith, to_arith, from_arith, is_float, op, OP, ...)                    \
    RONDO_FN storage step_##type##_##op(storage x, storage y)                                                \
    {                                                                                                        \
        const arith a = to_arith(x), b = to_arith(y);                                                        \
        return (storage)from_arith((__VA_ARGS__));                                                           \
    }                                                                                                        \
    static void pair_##type##_##op(void *dst, const void *a, const void *b, size_t n)                        \
    {                                                                                                        \
        type##_span *d = dst;                                                                                \
        const type##_span *x = a, *y = b;                                                                    \
        LOOP for (size_t i = 0; i < n; i++) d[i] = step_##type##_##op(x[i], y[i]);                           \
    }                                                                                                        \
    static void triple_##type##_##op(void *dst, const void *a, const void *b, const void *c, size_t n)       \
    {                                                                                                        \
        type##_span *d = dst;                                                                                \
        const type##_span *x = a, *y = b, *z = c;                                                            \
        LOOP for (size_t i = 0; i < n; i++) d[i] = step_##type##_##op(step_##type##_##op(x[i], y[i]), z[i]); \
    }                                                                                                        \
    static void reduce_##type##_##op(void *dst, const void *const *srcs, int nsrcs, size_t n)                \
    {                                                                                                        \
        if (IS_SMALL(storage, is_float) && nsrcs > 1 && fused_find(RONDO_##TYPE, RONDO_REDUCE_##OP) != NULL) \
            reduce_fused(dst, srcs, nsrcs, n, fused_find(RONDO_##TYPE, RONDO_REDUCE_##OP), widen_##type,     \
                         narrow_##type, pair_f32_##op);                                                      \
        else if (IS_SMALL(storage, is_float))                                                                \
            reduce_small(dst, srcs, nsrcs, n, sizeof(storage), widen_##type, narrow_##type, pair_f32_##op);  \
        else if (RONDO_LIKELY(nsrcs == 2))                                                                   \
            pair_##type##_##op(dst, srcs[0], srcs[1], n);                                                    \
        else                                                                                                 \
            reduce_many(dst, srcs, nsrcs, n, sizeof(storage), pair_##type##_##op, triple_##type##_##op);     \
    }

#define OP_ROW(types, op, OP, value, ...) OP_ROW_(RONDO_UNPACK types, op, OP, __VA_ARGS__)
#define OP_ROW_(...) OP_LOOPS(__VA_ARGS__)
#define RONDO_UNPACK(...) __VA_ARGS__

/* dst[i] = src[i] op a constant, for premul and divide. */
#define CONSTANT_LOOPS(type, storage, arith, to_arith, from_arith, is_float)                                \
    static void premul_##type(void *dst, const void *src, size_t n, uint64_t scalar_bits)                   \
    {                                                                                                       \
        storage scalar[SMALL_TILE];                                                                         \
        const size_t tile = rondo_min_size(n, SMALL_TILE);                                                  \
        for (size_t i = 0; i < tile; i++) memcpy(scalar + i, &scalar_bits, sizeof(*scalar));                \
        for (size_t i = 0; i < n; i += SMALL_TILE) {                                                        \
            const void *const srcs[2] = { (const type##_span *)src + i, scalar };                           \
            reduce_##type##_prod((type##_span *)dst + i, srcs, 2, rondo_min_size(SMALL_TILE, n - i));       \
        }                                                                                                   \
    }                                                                                                       \
    static void divide_##type(void *dst, size_t n, int divisor)                                             \
    {                                                                                                       \
        const arith by = (arith)divisor;                                                                    \
        type##_span *d = dst;                                                                               \
        if (IS_SMALL(storage, is_float)) {                                                                  \
            divide_small(dst, n, sizeof(storage), (float)divisor, widen_##type, narrow_##type);             \
        } else {                                                                                            \
            LOOP for (size_t i = 0; i < n; i++) d[i] = (storage)from_arith((to_arith((storage)d[i]) / by)); \
        }                                                                                                   \
    }

static void divide_small(void *dst, size_t n, size_t size, float divisor, widen_fn *widen, narrow_fn *narrow)
{
    float x[SMALL_TILE] RONDO_ALIGNED(RONDO_CACHE_LINE);
    for (size_t i = 0; i < n; i += SMALL_TILE) {
        uint8_t *d = (uint8_t *)dst + i * size;
        const size_t m = rondo_min_size(SMALL_TILE, n - i);
        widen(x, d, m);
        for (size_t j = 0; j < m; j++) x[j] /= divisor;
        narrow(d, x, m);
    }
}

#define TYPE_LOOPS(ctx, type, TYPE, value, storage, arith, to_arith, from_arith, is_float)   \
    typedef storage SPAN type##_span;                                                        \
    static void widen_##type(float *x, const uint8_t *src, size_t n)                         \
    {                                                                                        \
        const type##_span *s = (const void *)src;                                            \
        size_t i = widen_blocks(RONDO_##TYPE, x, src, n);                                    \
        for (; i < n; i++) x[i] = (float)to_arith(s[i]);                                     \
    }                                                                                        \
    static void narrow_##type(uint8_t *dst, const float *x, size_t n)                        \
    {                                                                                        \
        type##_span *d = (void *)dst;                                                        \
        size_t i = narrow_blocks(RONDO_##TYPE, dst, x, n);                                   \
        for (; i < n; i++) d[i] = (storage)from_arith(x[i]);                                 \
    }                                                                                        \
    RONDO_REDUCE_TABLE(OP_ROW, (type, TYPE, storage, arith, to_arith, from_arith, is_float)) \
    CONSTANT_LOOPS(type, storage, arith, to_arith, from_arith, is_float)

RONDO_DTYPE_TABLE(TYPE_LOOPS, )

/* Store whole lines past the caches, with the widest stores: a line that is written in parts may be
 * interleaved with parts of other lines. */
static void stream_lines(uint8_t *dst, const uint8_t *src, size_t lines)
{
#if defined(__x86_64__)
    for (; lines > 0; lines--, dst += RONDO_CACHE_LINE, src += RONDO_CACHE_LINE) {
#if RONDO_ISA_BYTES == 64
        _mm512_stream_si512((void *)dst, _mm512_loadu_si512((const void *)src));
#elif RONDO_ISA_BYTES == 32
        const __m256i a = _mm256_loadu_si256((const void *)src),
                      b = _mm256_loadu_si256((const void *)(src + 32));
        _mm256_stream_si256((void *)dst, a);
        _mm256_stream_si256((void *)(dst + 32), b);
#else
        const __m128i a = _mm_loadu_si128((const void *)src), b = _mm_loadu_si128((const void *)(src + 16)),
                      c = _mm_loadu_si128((const void *)(src + 32)),
                      d = _mm_loadu_si128((const void *)(src + 48));
        _mm_stream_si128((void *)dst, a);
        _mm_stream_si128((void *)(dst + 16), b);
        _mm_stream_si128((void *)(dst + 32), c);
        _mm_stream_si128((void *)(dst + 48), d);
#endif
    }
#else
    memcpy(dst, src, RONDO_CACHE_LINE * lines);
#endif
}

#define OP_ENTRY(type, op, OP, ...) [RONDO_REDUCE_##OP] = reduce_##type##_##op,
#define TYPE_ENTRY(ctx, type, TYPE, ...) [RONDO_##TYPE] = { RONDO_REDUCE_TABLE(OP_ENTRY, type) },
#define PREMUL_ENTRY(ctx, type, TYPE, ...) [RONDO_##TYPE] = premul_##type,
#define DIVIDE_ENTRY(ctx, type, TYPE, ...) [RONDO_##TYPE] = divide_##type,

const struct rondo_reduce_isa RONDO_ISA = {
    .name = RONDO_ISA_NAME,
    .reduce = { RONDO_DTYPE_TABLE(TYPE_ENTRY, ) },
    .premul = { RONDO_DTYPE_TABLE(PREMUL_ENTRY, ) },
    .divide = { RONDO_DTYPE_TABLE(DIVIDE_ENTRY, ) },
    .stream = stream_lines,
};
