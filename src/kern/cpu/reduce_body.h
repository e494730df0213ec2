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

/* An element of a span: spans may be equal, unaligned and of any type. */
#define SPAN __attribute__((packed, may_alias))

/* Tiles, small beside the first-level cache: bytes of the running result of four and more sources, and
 * elements of small floats to widen at once. */
enum { TILE = 4096, SMALL_TILE = 512 };

typedef void pair_fn(void *dst, const void *a, const void *b, size_t n);
typedef void triple_fn(void *dst, const void *a, const void *b, const void *c, size_t n);
typedef void widen_fn(float *x, const uint8_t *src, size_t n);
typedef void narrow_fn(uint8_t *dst, const float *x, size_t n);

/* More than two sources: tile by tile, two sources at a time, or one where there is no `triple`. */
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
        for (int k = 1; k < nsrcs; so_far = acc) {
            const int two = triple != NULL && k + 1 < nsrcs;
            void *to = k + 1 + two < nsrcs ? acc : (uint8_t *)dst + at;
            const void *next = (const uint8_t *)srcs[k] + at;
            if (two) {
                triple(to, so_far, next, (const uint8_t *)srcs[k + 1] + at, m);
            } else {
                pair(to, so_far, next, m);
            }
            k += 1 + two;
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

#define DECLARE_F32(ctx, op, ...) static pair_fn pair_f32_##op;
RONDO_REDUCES_OF_SMALL(DECLARE_F32, )

/* ---- steps: one operation on two elements ---- */

/* a and b are elements as arithmetic has them; the expression is the table's. */
#define STEP(type, op, arith, to_arith, from_arith, ...)                  \
    RONDO_FN type##_elem step_##type##_##op(type##_elem x, type##_elem y) \
    {                                                                     \
        const arith a = to_arith(x), b = to_arith(y);                     \
        return (type##_elem)from_arith((__VA_ARGS__));                    \
    }
#define STEP_OF_PAIR(type, op, ...) \
    RONDO_FN type##_elem step_##type##_##op(type##_elem a, type##_elem b) { return __VA_ARGS__; }
/* The plain formula, without C's search for infinities: what MPI libraries compute. GCC 12 would make fused
 * multiply-adds of a difference of products, whatever fp-contract says; the bits of this sum are the same. */
#define STEP_OF_COMPLEX_prod(type)                                                     \
    RONDO_FN type##_elem step_##type##_prod(type##_elem a, type##_elem b)              \
    {                                                                                  \
        return (type##_elem){ a.re * b.re + a.im * -b.im, a.re * b.im + a.im * b.re }; \
    }

/* Loops over a step: pair_ and triple_ do spans, reduce_ takes any number of them. */
#define LOOPS(type, op) PAIR_LOOP(type, op) TRIPLE_LOOP(type, op) REDUCE(type, op, triple_##type##_##op)
/* The same where code counts more than the last bit of speed. */
#define FEW_LOOPS(type, op) PAIR_LOOP(type, op) REDUCE(type, op, NULL)
#define PAIR_LOOP(type, op)                                                              \
    static void pair_##type##_##op(void *dst, const void *a, const void *b, size_t n)    \
    {                                                                                    \
        type##_span *d = dst;                                                            \
        const type##_span *x = a, *y = b;                                                \
        LOOP for (size_t i = 0; i < n; i++) d[i].e = step_##type##_##op(x[i].e, y[i].e); \
    }
#define TRIPLE_LOOP(type, op)                                                                               \
    static void triple_##type##_##op(void *dst, const void *a, const void *b, const void *c, size_t n)      \
    {                                                                                                       \
        type##_span *d = dst;                                                                               \
        const type##_span *x = a, *y = b, *z = c;                                                           \
        LOOP for (size_t i = 0; i < n; i++) d[i].e = step_##type##_##op(step_##type##_##op(x[i].e, y[i].e), \
                                                                        z[i].e);                            \
    }
#define REDUCE(type, op, triple)                                                               \
    static void reduce_##type##_##op(void *dst, const void *const *srcs, int nsrcs, size_t n)  \
    {                                                                                          \
        if (RONDO_LIKELY(nsrcs == 2))                                                          \
            pair_##type##_##op(dst, srcs[0], srcs[1], n);                                      \
        else                                                                                   \
            reduce_many(dst, srcs, nsrcs, n, sizeof(type##_elem), pair_##type##_##op, triple); \
    }

/* The loops of another type, for elements that are `times` of its own. */
#define BORROW(type, op, kin, times)                                                          \
    static void reduce_##type##_##op(void *dst, const void *const *srcs, int nsrcs, size_t n) \
    {                                                                                         \
        reduce_##kin##_##op(dst, srcs, nsrcs, (times)*n);                                     \
    }

/* ---- rows of the tables of operations; types: what STEP takes between op and expression, and kin ---- */

#define RONDO_UNPACK(...) __VA_ARGS__
#define SCALAR_ROW(types, op, OP, value, ...) SCALAR_ROW_(RONDO_UNPACK types, op, __VA_ARGS__)
#define SCALAR_ROW_(...) SCALAR_LOOPS(__VA_ARGS__)
#define SCALAR_LOOPS(type, arith, to_arith, from_arith, op, ...) \
    STEP(type, op, arith, to_arith, from_arith, __VA_ARGS__)     \
    LOOPS(type, op)
#define LOGIC_ROW(types, op, OP, value, ...) LOGIC_ROW_(RONDO_UNPACK types, op, __VA_ARGS__)
#define LOGIC_ROW_(...) LOGIC_LOOPS(__VA_ARGS__)
#define LOGIC_LOOPS(type, arith, to_arith, from_arith, op, ...) \
    STEP(type, op, arith, to_arith, from_arith, __VA_ARGS__)    \
    FEW_LOOPS(type, op)
#define BYTES_ROW(type, op, ...) BORROW(type, op, u8, sizeof(type##_elem))
#define PAIR_ROW(type, op, OP, value, ...) STEP_OF_PAIR(type, op, __VA_ARGS__) FEW_LOOPS(type, op)
#define SMALL_ROW(types, op, OP, ...) SMALL_ROW_(RONDO_UNPACK types, op, OP)
#define SMALL_ROW_(...) SMALL_LOOPS(__VA_ARGS__)
#define SMALL_LOOPS(type, TYPE, op, OP)                                                                  \
    static void reduce_##type##_##op(void *dst, const void *const *srcs, int nsrcs, size_t n)            \
    {                                                                                                    \
        if (nsrcs > 1 && fused_find(RONDO_##TYPE, RONDO_REDUCE_##OP) != NULL)                            \
            reduce_fused(dst, srcs, nsrcs, n, fused_find(RONDO_##TYPE, RONDO_REDUCE_##OP), widen_##type, \
                         narrow_##type, pair_f32_##op);                                                  \
        else                                                                                             \
            reduce_small(dst, srcs, nsrcs, n, sizeof(type##_elem), widen_##type, narrow_##type,          \
                         pair_f32_##op);                                                                 \
    }

/* ---- dst[i] = src[i] op a constant ---- */

#define PREMUL(type, kin)                                                                              \
    static void premul_##type(void *dst, const void *src, size_t n, uint64_t scalar_bits)              \
    {                                                                                                  \
        type##_elem scalar[SMALL_TILE];                                                                \
        const size_t tile = rondo_min_size(n, SMALL_TILE), bytes = rondo_min_size(sizeof(*scalar), 8); \
        for (size_t i = 0; i < tile; i++) memcpy(scalar + i, &scalar_bits, bytes);                     \
        for (size_t i = 0; i < n; i += SMALL_TILE) {                                                   \
            const void *const srcs[2] = { (const type##_span *)src + i, scalar };                      \
            reduce_##kin##_prod((type##_span *)dst + i, srcs, 2, rondo_min_size(SMALL_TILE, n - i));   \
        }                                                                                              \
    }

#define DIVIDE(type, arith)                                                             \
    static void divide_##type(void *dst, size_t n, int divisor)                         \
    {                                                                                   \
        const arith by = (arith)divisor;                                                \
        type##_span *d = dst;                                                           \
        LOOP for (size_t i = 0; i < n; i++) d[i].e = (type##_elem)((arith)d[i].e / by); \
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

/* ---- classes of types ---- */

/* Sums, products and logical values of signed integers have the bits of unsigned ones. */
#define LOOPS_OF_SIGNED(type, TYPE, arith, to_arith, from_arith, kin)  \
    RONDO_ORDER_TABLE(SCALAR_ROW, (type, arith, to_arith, from_arith)) \
    DIVIDE(type, arith)
#define LOOPS_OF_UNSIGNED(type, TYPE, arith, to_arith, from_arith, kin) \
    RONDO_ARITH_TABLE(SCALAR_ROW, (type, arith, to_arith, from_arith))  \
    RONDO_ORDER_TABLE(SCALAR_ROW, (type, arith, to_arith, from_arith))  \
    RONDO_LOGIC_TABLE(LOGIC_ROW, (type, arith, to_arith, from_arith))   \
    PREMUL(type, kin)                                                   \
    DIVIDE(type, arith)
#define LOOPS_OF_FLOAT(type, TYPE, arith, to_arith, from_arith, kin)   \
    RONDO_ARITH_TABLE(SCALAR_ROW, (type, arith, to_arith, from_arith)) \
    RONDO_ORDER_TABLE(SCALAR_ROW, (type, arith, to_arith, from_arith)) \
    PREMUL(type, kin)                                                  \
    DIVIDE(type, arith)
#define LOOPS_OF_SMALL(type, TYPE, arith, to_arith, from_arith, kin)                            \
    static void widen_##type(float *x, const uint8_t *src, size_t n)                            \
    {                                                                                           \
        const type##_span *s = (const void *)src;                                               \
        size_t i = widen_blocks(RONDO_##TYPE, x, src, n);                                       \
        for (; i < n; i++) x[i] = to_arith(s[i].e);                                             \
    }                                                                                           \
    static void narrow_##type(uint8_t *dst, const float *x, size_t n)                           \
    {                                                                                           \
        type##_span *d = (void *)dst;                                                           \
        size_t i = narrow_blocks(RONDO_##TYPE, dst, x, n);                                      \
        for (; i < n; i++) d[i].e = from_arith(x[i]);                                           \
    }                                                                                           \
    RONDO_REDUCES_OF_SMALL(SMALL_ROW, (type, TYPE))                                             \
    PREMUL(type, kin)                                                                           \
    static void divide_##type(void *dst, size_t n, int divisor)                                 \
    {                                                                                           \
        divide_small(dst, n, sizeof(type##_elem), (float)divisor, widen_##type, narrow_##type); \
    }
#define LOOPS_OF_COMPLEX(type, TYPE, arith, to_arith, from_arith, kin)                                       \
    BORROW(type, sum, kin, 2)                                                                                \
    STEP_OF_COMPLEX_prod(type) LOOPS(type, prod) static void divide_##type(void *dst, size_t n, int divisor) \
    {                                                                                                        \
        divide_##kin(dst, 2 * n, divisor);                                                                   \
    }
#define LOOPS_OF_LOGICAL(...)
/* Wide vectors gain little for pairs: only the first build has them. */
#if RONDO_ISA_BYTES == 16
#define LOOPS_OF_PAIR(type, ...) RONDO_PLACE_TABLE(PAIR_ROW, type)
#define ENTRIES_OF_PAIR(type, kin) RONDO_REDUCES_OF_PAIR(OP_ENTRY, type)
#else
#define LOOPS_OF_PAIR(...)
#define ENTRIES_OF_PAIR(...)
#endif

#define TYPE_LOOPS(ctx, type, TYPE, value, storage, arith, to_arith, from_arith, class, kin) \
    typedef storage type##_elem;                                                             \
    typedef struct {                                                                         \
        type##_elem e;                                                                       \
    } SPAN type##_span;                                                                      \
    _Static_assert(TILE % sizeof(type##_elem) == 0, "tiles hold whole elements");            \
    LOOPS_OF_##class(type, TYPE, arith, to_arith, from_arith, kin)

RONDO_DTYPE_TABLE(TYPE_LOOPS, )

/* Bitwise operations know no elements. */
RONDO_BITS_TABLE(LOGIC_ROW, (u8, uint32_t, RONDO_SAME, RONDO_SAME))
RONDO_BITS_TABLE(BYTES_ROW, u16)
RONDO_BITS_TABLE(BYTES_ROW, u32)
RONDO_BITS_TABLE(BYTES_ROW, u64)

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

/* ---- the build: whose loops carry an operation of a type; NULL: another build has them, or none ---- */

#define OP_ENTRY(type, op, OP, ...) [RONDO_REDUCE_##OP] = reduce_##type##_##op,
#define ENTRIES_OF_SIGNED(type, kin)  \
    RONDO_ARITH_TABLE(OP_ENTRY, kin)  \
    RONDO_ORDER_TABLE(OP_ENTRY, type) \
    RONDO_LOGIC_TABLE(OP_ENTRY, kin)  \
    RONDO_BITS_TABLE(OP_ENTRY, kin)
#define ENTRIES_OF_UNSIGNED(type, kin) RONDO_REDUCES_OF_UNSIGNED(OP_ENTRY, type)
#define ENTRIES_OF_FLOAT(type, kin) RONDO_REDUCES_OF_FLOAT(OP_ENTRY, type)
#define ENTRIES_OF_SMALL(type, kin) RONDO_REDUCES_OF_SMALL(OP_ENTRY, type)
#define ENTRIES_OF_COMPLEX(type, kin) RONDO_REDUCES_OF_COMPLEX(OP_ENTRY, type)
#define ENTRIES_OF_LOGICAL(type, kin) RONDO_REDUCES_OF_LOGICAL(OP_ENTRY, kin)
#define TYPE_ENTRY(ctx, type, TYPE, value, storage, arith, to_arith, from_arith, class, kin) \
    [RONDO_##TYPE] = { ENTRIES_OF_##class(type, kin) },

#define HAS_PREMUL_SIGNED(TYPE, type, kin) [RONDO_##TYPE] = premul_##kin,
#define HAS_PREMUL_UNSIGNED(TYPE, type, kin) [RONDO_##TYPE] = premul_##type,
#define HAS_PREMUL_FLOAT(TYPE, type, kin) [RONDO_##TYPE] = premul_##type,
#define HAS_PREMUL_SMALL(TYPE, type, kin) [RONDO_##TYPE] = premul_##type,
#define HAS_PREMUL_COMPLEX(...)
#define HAS_PREMUL_LOGICAL(...)
#define HAS_PREMUL_PAIR(...)
#define PREMUL_ENTRY(ctx, type, TYPE, value, storage, arith, to_arith, from_arith, class, kin) \
    HAS_PREMUL_##class(TYPE, type, kin)

#define HAS_DIVIDE_SIGNED(TYPE, type) [RONDO_##TYPE] = divide_##type,
#define HAS_DIVIDE_UNSIGNED(TYPE, type) [RONDO_##TYPE] = divide_##type,
#define HAS_DIVIDE_FLOAT(TYPE, type) [RONDO_##TYPE] = divide_##type,
#define HAS_DIVIDE_SMALL(TYPE, type) [RONDO_##TYPE] = divide_##type,
#define HAS_DIVIDE_COMPLEX(TYPE, type) [RONDO_##TYPE] = divide_##type,
#define HAS_DIVIDE_LOGICAL(...)
#define HAS_DIVIDE_PAIR(...)
#define DIVIDE_ENTRY(ctx, type, TYPE, value, storage, arith, to_arith, from_arith, class, kin) \
    HAS_DIVIDE_##class(TYPE, type)

const struct rondo_reduce_isa RONDO_ISA = {
    .name = RONDO_ISA_NAME,
    .reduce = { RONDO_DTYPE_TABLE(TYPE_ENTRY, ) },
    .premul = { RONDO_DTYPE_TABLE(PREMUL_ENTRY, ) },
    .divide = { RONDO_DTYPE_TABLE(DIVIDE_ENTRY, ) },
    .stream = stream_lines,
};
