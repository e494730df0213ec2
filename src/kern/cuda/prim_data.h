/* How the data of a slice (kern/cuda/prim.h) moves, for each protocol: from its sources through the registers
 * of a team's threads to its destinations. Slots are aligned; the user's buffers may begin and end anywhere.
 * Simple assembles misaligned vectors from two aligned ones of 16 bytes; other bytes that are not 16 whole
 * and aligned ones go through rondo_load_bytes and rondo_store_bytes. Nothing outside a slice is read or
 * written. */
#ifndef RONDO_KERN_CUDA_PRIM_DATA_H
#define RONDO_KERN_CUDA_PRIM_DATA_H

#include "kern/proto.h"
#include "kern/cuda/reduce_gpu.h"

enum {
    RONDO_VECTORS = 8,     /* Simple: vectors of 16 bytes that a thread has in flight per source */
    RONDO_ROW_VECTORS = 4, /* the same if not all places are aligned */
    RONDO_LL_LINES = 4,    /* LL: lines that a thread waits for together */
    RONDO_LL128_ROWS = 4,  /* LL128: rows of four lines that a warp waits for together */
    RONDO_LL128_ROW_BYTES = RONDO_WARP / 8 * 8 * RONDO_LL128_DATA,
    RONDO_MOVES_ONLY = RONDO_NUM_REDUCES /* instead of an operation, for one source */
};

/* What happens to all words of a slice. */
struct rondo_mix {
    uint32_t nsrc, ndst;
    uint32_t own;    /* index of the user's buffer among the sources; nsrc: none */
    int32_t divisor; /* of the result; 0: none */
    int premul;      /* multiply the user's words by scalar first */
    uint64_t scalar; /* repeated in every element of the word */
};

typedef uint32_t __attribute__((may_alias)) rondo_word32;
typedef uint16_t __attribute__((may_alias)) rondo_word16;

/* ---- any bytes ---- */

#define RONDO_LOAD_PARTS_(part)                                                           \
    RONDO_UNROLLED for (uint32_t i = 0; i < 8 / sizeof(part); i++)                        \
    {                                                                                     \
        if (i * sizeof(part) < n)                                                         \
            word |= (uint64_t)((const part *)(const void *)p)[i] << 8 * sizeof(part) * i; \
    }                                                                                     \
    return word
#define RONDO_STORE_PARTS_(part)                                                                 \
    RONDO_UNROLLED for (uint32_t i = 0; i < 8 / sizeof(part); i++)                               \
    {                                                                                            \
        if (i * sizeof(part) < n) ((part *)(void *)p)[i] = (part)(word >> 8 * sizeof(part) * i); \
    }                                                                                            \
    return

/* Eight bytes at p; if fewer are `left` (at least 1), those and zeros. Loads as wide as size and alignment
 * allow. */
RONDO_FN uint64_t rondo_load_bytes(const uint8_t *p, size_t left)
{
    const uint32_t n = left < 8 ? (uint32_t)left : 8, odd = (uint32_t)(uintptr_t)p | n;
    uint64_t word = 0;
    if ((odd & 7) == 0) return *(const rondo_word *)(const void *)p;
    if ((odd & 3) == 0) {
        RONDO_LOAD_PARTS_(rondo_word32);
    }
    if ((odd & 1) == 0) {
        RONDO_LOAD_PARTS_(rondo_word16);
    }
    RONDO_LOAD_PARTS_(uint8_t);
}
RONDO_FN void rondo_store_bytes(uint8_t *p, size_t left, uint64_t word)
{
    const uint32_t n = left < 8 ? (uint32_t)left : 8, odd = (uint32_t)(uintptr_t)p | n;
    if ((odd & 7) == 0) {
        *(rondo_word *)(void *)p = word;
        return;
    }
    if ((odd & 3) == 0) {
        RONDO_STORE_PARTS_(rondo_word32);
    }
    if ((odd & 1) == 0) {
        RONDO_STORE_PARTS_(rondo_word16);
    }
    RONDO_STORE_PARTS_(uint8_t);
}
#undef RONDO_LOAD_PARTS_
#undef RONDO_STORE_PARTS_

RONDO_FN int rondo_is_aligned16(const void *a, const void *b)
{
    return (((uintptr_t)a | (uintptr_t)b) & 15) == 0;
}

/* ---- words in registers: w[n], where n and all indices are constants ---- */

/* Operations without a short sequence of instructions have one copy of their code, and the words pass through
 * w[0]. */
RONDO_FN int rondo_word_is_long(rondo_dtype dtype, enum rondo_reduce reduce)
{
#ifdef __CUDA_ARCH__
    if (__CUDA_ARCH__ >= 890 && reduce != RONDO_REDUCE_SUM)
        return 0; /* sums have premul and divide, too, and would spill */
#endif
    (void)reduce;
    return dtype == RONDO_FLOAT8E4M3 || dtype == RONDO_FLOAT8E5M2;
}

RONDO_FN void rondo_words_shift(uint64_t *w, int n, uint64_t last)
{
    RONDO_UNROLLED for (int i = 0; i + 1 < n; i++) w[i] = w[i + 1];
    w[n - 1] = last;
}

/* w op= x; destroys x. */
RONDO_FN void rondo_words_reduce(uint64_t *w, uint64_t *x, int n, rondo_dtype dtype, enum rondo_reduce reduce)
{
    if (rondo_word_is_long(dtype, reduce)) {
        RONDO_ROLLED for (int i = 0; i < n; i++)
        {
            rondo_words_shift(w, n, rondo_word_reduce(dtype, reduce, w[0], x[0]));
            rondo_words_shift(x, n, x[0]);
        }
        return;
    }
    RONDO_UNROLLED for (int i = 0; i < n; i++) w[i] = rondo_word_reduce(dtype, reduce, w[i], x[i]);
}

/* Only sums are pre-multiplied and divided (see the table of operations): other kernels have no code for it.
 */
RONDO_FN void rondo_words_premul(uint64_t *w, int n, const struct rondo_mix *mix, uint32_t source,
                                 rondo_dtype dtype, enum rondo_reduce reduce)
{
    if (reduce != RONDO_REDUCE_SUM || !mix->premul || source != mix->own) return;
    RONDO_ROLLED for (int i = 0; i < n; i++)
        rondo_words_shift(w, n, rondo_word_reduce(dtype, RONDO_REDUCE_PROD, w[0], mix->scalar));
}
RONDO_FN void rondo_words_finish(uint64_t *w, int n, const struct rondo_mix *mix, rondo_dtype dtype,
                                 enum rondo_reduce reduce)
{
    if (reduce != RONDO_REDUCE_SUM || mix->divisor == 0) return;
    RONDO_ROLLED for (int i = 0; i < n; i++)
        rondo_words_shift(w, n, rondo_word_divide(dtype, w[0], mix->divisor));
}

/* ---- Simple ---- */

/* Vectors v, v + stride, .. below `end` of a source: n of them. `off` is that of a row (struct rondo_rows):
 * the other part of the vectors at its ends belongs to other rows, whose warps may overwrite it meanwhile. */
RONDO_FN void rondo_load_vectors(uint64_t *w, int n, const uint8_t *from, size_t v, size_t stride, size_t end,
                                 uint32_t off)
{
    RONDO_UNROLLED for (int i = 0; i < n; i++)
    {
        const size_t at = v + (size_t)i * stride;
        struct rondo_data16 d;
        d.lo = d.hi = 0;
        if (at < end) {
            const uint32_t first = rondo_lane() == 0 ? off : 0,
                           last = rondo_lane() == RONDO_WARP - 1 || at + 1 == end ? off : 0;
            d = rondo_load_part16(from + 16 * at, first, last != 0 ? last : 16);
        }
        w[2 * i] = d.lo;
        w[2 * i + 1] = d.hi;
    }
}
RONDO_FN void rondo_store_vectors(const uint64_t *w, int n, uint8_t *to, size_t v, size_t stride, size_t end)
{
    RONDO_UNROLLED for (int i = 0; i < n; i++)
    {
        struct rondo_data16 d;
        d.lo = w[2 * i];
        d.hi = w[2 * i + 1];
        if (v + (size_t)i * stride < end) rondo_store_data16(to + 16 * (v + (size_t)i * stride), d);
    }
}

RONDO_FN void rondo_move_vectors(const uint8_t *const *src, uint8_t *const *dst, const struct rondo_mix *mix,
                                 size_t v, size_t stride, size_t end, rondo_dtype dtype,
                                 enum rondo_reduce reduce)
{
    uint64_t w[2 * RONDO_VECTORS], x[2 * RONDO_VECTORS];
    rondo_load_vectors(w, RONDO_VECTORS, src[0], v, stride, end, 0);
    rondo_words_premul(w, 2 * RONDO_VECTORS, mix, 0, dtype, reduce);
    if ((int)reduce != RONDO_MOVES_ONLY) {
        RONDO_ROLLED for (uint32_t i = 1; i < mix->nsrc; i++)
        {
            rondo_load_vectors(x, RONDO_VECTORS, src[i], v, stride, end, 0);
            rondo_words_premul(x, 2 * RONDO_VECTORS, mix, i, dtype, reduce);
            rondo_words_reduce(w, x, 2 * RONDO_VECTORS, dtype, reduce);
        }
    }
    rondo_words_finish(w, 2 * RONDO_VECTORS, mix, dtype, reduce);
    RONDO_ROLLED for (uint32_t i = 0; i < mix->ndst; i++)
        rondo_store_vectors(w, RONDO_VECTORS, dst[i], v, stride, end);
}

/* If not all places are aligned, a warp works on rows of RONDO_WARP - 1 vectors. Lane i has vector v of the
 * slice, which begins `off` bytes into an aligned vector of its place. A source's vector is assembled from
 * those of lane i and the next lane, a destination's from those of lane i and the one before. The last lane
 * has none of its own. */
struct rondo_rows {
    size_t v, stride, end; /* v, v + stride, .. below end */
};

/* 16 bytes from `off` (1 .. 15) of a vector and the one after it. */
RONDO_FN struct rondo_data16 rondo_join_vectors(struct rondo_data16 a, struct rondo_data16 b, uint32_t off)
{
    const uint32_t bits = 8 * (off & 7);
    const uint64_t first = off < 8 ? a.lo : a.hi, second = off < 8 ? a.hi : b.lo,
                   third = off < 8 ? b.lo : b.hi;
    struct rondo_data16 d;
    d.lo = first >> bits | second << 1 << (63 - bits);
    d.hi = second >> bits | third << 1 << (63 - bits);
    return d;
}

/* The vector w[0], w[1] of another lane. */
RONDO_FN struct rondo_data16 rondo_shuffle_vector(const uint64_t *w, uint32_t lane)
{
    struct rondo_data16 d;
    d.lo = rondo_warp_shuffle(w[0], lane % RONDO_WARP);
    d.hi = rondo_warp_shuffle(w[1], lane % RONDO_WARP);
    return d;
}

RONDO_FN void rondo_words_shift16(uint64_t *w, int n, struct rondo_data16 last)
{
    rondo_words_shift(w, n, last.lo);
    rondo_words_shift(w, n, last.hi);
}

/* A source's rows. If it is misaligned, loads one vector more than the slice has. */
RONDO_FN void rondo_load_rows(uint64_t *w, const uint8_t *from, const struct rondo_rows *rows)
{
    const uint32_t off = (uint32_t)(uintptr_t)from & 15, lane = rondo_lane();
    const size_t end = off != 0 ? rows->end + 1 : lane == RONDO_WARP - 1 ? 0 : rows->end;
    rondo_load_vectors(w, RONDO_ROW_VECTORS, from - off, rows->v, rows->stride, end, off);
    if (off == 0) return;
    RONDO_ROLLED for (int i = 0; i < RONDO_ROW_VECTORS; i++)
    {
        const struct rondo_data16 next = rondo_shuffle_vector(w, lane + 1);
        struct rondo_data16 d;
        d.lo = w[0];
        d.hi = w[1];
        rondo_words_shift16(w, 2 * RONDO_ROW_VECTORS, rondo_join_vectors(d, next, off));
    }
}

/* Store bytes [first, end) of a vector to their place in the 16 at `to`. */
RONDO_FN void rondo_store_part(uint8_t *to, struct rondo_data16 d, uint32_t first, uint32_t end)
{
    RONDO_ROLLED for (uint32_t begin = 0; begin < 16; begin += 8)
    {
        const uint32_t a = first > begin ? first : begin, b = end < begin + 8 ? end : begin + 8;
        if (a < b) rondo_store_bytes(to + a, b - a, (begin == 0 ? d.lo : d.hi) >> 8 * (a - begin));
    }
}

/* A destination's rows. At a row's ends, the other part of a vector belongs to another row or to nobody. */
RONDO_FN void rondo_store_rows(uint64_t *w, uint8_t *to, const struct rondo_rows *rows)
{
    const uint32_t off = (uint32_t)(uintptr_t)to & 15, lane = rondo_lane();
    size_t v = rows->v;
    if (off == 0) {
        rondo_store_vectors(w, RONDO_ROW_VECTORS, to, v, rows->stride,
                            lane == RONDO_WARP - 1 ? 0 : rows->end);
        return;
    }
    RONDO_ROLLED for (int i = 0; i < RONDO_ROW_VECTORS; i++, v += rows->stride)
    {
        const uint32_t first = lane == 0 ? off : 0, end = lane == RONDO_WARP - 1 || v >= rows->end ? off : 16;
        struct rondo_data16 own, d;
        own.lo = w[0];
        own.hi = w[1];
        d = rondo_join_vectors(rondo_shuffle_vector(w, lane + RONDO_WARP - 1), own, 16 - off);
        if (v < rows->end + (lane > 0) && first < end) {
            if (end - first == 16) {
                rondo_store_data16(to - off + 16 * v, d);
            } else {
                rondo_store_part(to - off + 16 * v, d, first, end);
            }
        }
        rondo_words_shift16(w, 2 * RONDO_ROW_VECTORS, own);
    }
}

RONDO_FN void rondo_move_rows(const uint8_t *const *src, uint8_t *const *dst, const struct rondo_mix *mix,
                              const struct rondo_rows *rows, rondo_dtype dtype, enum rondo_reduce reduce)
{
    uint64_t w[2 * RONDO_ROW_VECTORS], x[2 * RONDO_ROW_VECTORS];
    RONDO_UNROLLED for (int i = 0; i < 2 * RONDO_ROW_VECTORS; i++) w[i] = 0;
    RONDO_ROLLED for (uint32_t i = 0; i < mix->nsrc; i++)
    {
        rondo_load_rows(x, src[i], rows);
        rondo_words_premul(x, 2 * RONDO_ROW_VECTORS, mix, i, dtype, reduce);
        if (i != 0 && (int)reduce != RONDO_MOVES_ONLY) {
            rondo_words_reduce(w, x, 2 * RONDO_ROW_VECTORS, dtype, reduce);
        } else {
            RONDO_UNROLLED for (int j = 0; j < 2 * RONDO_ROW_VECTORS; j++) w[j] = x[j];
        }
    }
    rondo_words_finish(w, 2 * RONDO_ROW_VECTORS, mix, dtype, reduce);
    RONDO_ROLLED for (uint32_t i = 0; i < mix->ndst; i++) rondo_store_rows(w, dst[i], rows);
}

/* One word at a time, wherever it lies: for the ends of a slice. */
RONDO_FN void rondo_move_word(const uint8_t *const *src, uint8_t *const *dst, const struct rondo_mix *mix,
                              size_t at, size_t left, rondo_dtype dtype, enum rondo_reduce reduce)
{
    uint64_t w = 0;
    RONDO_ROLLED for (uint32_t i = 0; i < mix->nsrc; i++)
    {
        uint64_t x = rondo_load_bytes(src[i] + at, left);
        rondo_words_premul(&x, 1, mix, i, dtype, reduce);
        w = i == 0 || (int)reduce == RONDO_MOVES_ONLY ? x : rondo_word_reduce(dtype, reduce, w, x);
    }
    rondo_words_finish(&w, 1, mix, dtype, reduce);
    RONDO_ROLLED for (uint32_t i = 0; i < mix->ndst; i++) rondo_store_bytes(dst[i] + at, left, w);
}

/* Vectors begin .. end - 1 of a slice with misaligned places. Excludes the slice's first and last 16 bytes,
 * so that the aligned vectors around them lie within it. */
RONDO_FN void rondo_move_apart(const uint8_t *const *src, uint8_t *const *dst, const struct rondo_mix *mix,
                               size_t begin, size_t end, uint32_t tid, uint32_t nthreads, rondo_dtype dtype,
                               enum rondo_reduce reduce)
{
    const uint32_t lane = rondo_lane();
    struct rondo_rows rows;
    rows.v = begin + (size_t)(RONDO_WARP - 1) * (tid / RONDO_WARP) + lane;
    rows.stride = (size_t)(RONDO_WARP - 1) * (nthreads / RONDO_WARP);
    rows.end = end;
    RONDO_ROLLED for (; rows.v < end + lane; rows.v += RONDO_ROW_VECTORS * rows.stride)
    {
        rondo_move_rows(src, dst, mix, &rows, dtype, reduce);
    }
}

/* mix->nsrc sources and ndst destinations; aligned: all of them are. Whole warps call it. */
RONDO_FN void rondo_move_simple(const uint8_t *const *src, uint8_t *const *dst, const struct rondo_mix *mix,
                                int aligned, size_t bytes, uint32_t tid, uint32_t nthreads, rondo_dtype dtype,
                                enum rondo_reduce reduce)
{
    const size_t begin = aligned ? 0 : 1, end = aligned ? bytes / 16 : bytes / 16 > 2 ? bytes / 16 - 1 : 1;
    if (aligned) {
        RONDO_ROLLED for (size_t v = tid; v < end; v += (size_t)RONDO_VECTORS * nthreads)
        {
            rondo_move_vectors(src, dst, mix, v, nthreads, end, dtype, reduce);
        }
    } else {
        rondo_move_apart(src, dst, mix, begin, end, tid, nthreads, dtype, reduce);
    }
    RONDO_ROLLED for (size_t word = tid;; word += nthreads)
    {
        const size_t at = 8 * word + (word < 2 * begin ? 0 : 16 * (end - begin));
        if (at >= bytes) break;
        rondo_move_word(src, dst, mix, at, bytes - at, dtype, reduce);
    }
}

/* ---- LL ---- */

/* Load lines u, u + stride, .. below `end` into w. @return 1: all have arrived. */
RONDO_FN int rondo_ll_load_lines(uint64_t *w, const uint8_t *slot, uint64_t flag, size_t u, size_t stride,
                                 size_t end)
{
    uint64_t wrong = 0;
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL_LINES; i++)
    {
        uint64_t lo = flag, hi = flag;
        if (u + (size_t)i * stride < end)
            rondo_load_pair((const rondo_word *)(const void *)slot + 2 * (u + (size_t)i * stride), &lo, &hi);
        wrong |= (lo ^ flag) | (hi ^ flag);
        w[i] = (lo & 0xffffffffu) | hi << 32;
    }
    return wrong >> 32 == 0;
}

RONDO_FN void rondo_ll_store_lines(const uint64_t *w, uint8_t *slot, uint64_t flag, size_t u, size_t stride,
                                   size_t end)
{
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL_LINES; i++)
    {
        if (u + (size_t)i * stride < end) {
            rondo_store_pair((rondo_word *)(void *)slot + 2 * (u + (size_t)i * stride),
                             (w[i] & 0xffffffffu) | flag, w[i] >> 32 | flag);
        }
    }
}

/* Load the same words of the user's buffer. */
RONDO_FN void rondo_ll_load_user(uint64_t *w, const uint8_t *in, size_t bytes, size_t u, size_t stride)
{
    RONDO_ROLLED for (int i = 0; i < RONDO_LL_LINES; i++, u += stride)
    {
        rondo_words_shift(w, RONDO_LL_LINES, 8 * u < bytes ? rondo_load_bytes(in + 8 * u, bytes - 8 * u) : 0);
    }
}
RONDO_FN void rondo_ll_store_user(uint64_t *w, uint8_t *out, size_t bytes, size_t u, size_t stride)
{
    RONDO_ROLLED for (int i = 0; i < RONDO_LL_LINES; i++, u += stride)
    {
        if (8 * u < bytes) rondo_store_bytes(out + 8 * u, bytes - 8 * u, w[0]);
        rondo_words_shift(w, RONDO_LL_LINES, w[0]);
    }
}

/* ---- LL128 ---- */

/* A row is four lines, 60 words of payload, held by the lanes of a warp. In line order, lane 8 q + j has
 * words 2 j and 2 j + 1 of line q; for j = 7 the second one is the flag. In user order, lane i < 30 has words
 * 2 i and 2 i + 1, 16 contiguous bytes. Word 15 q + r of the row lies in line q. The lanes synchronise before
 * each row so that eight of them make one access to a line: its flag is then as new as its data. */

/* User order to line order: an odd line begins with a lane's second word. */
RONDO_FN void rondo_row_to_lines(uint64_t *first, uint64_t *second)
{
    const uint32_t lane = rondo_lane(), line = lane / 8, word = 15 * line + 2 * (lane % 8), odd = line & 1;
    const uint64_t even_word = rondo_warp_shuffle(*first, (word + odd) / 2),
                   odd_word = rondo_warp_shuffle(*second, word / 2);
    *first = odd ? odd_word : even_word;
    *second = odd ? even_word : odd_word;
}

/* Line order to user order: the last word of an even line shares a lane with the first word of the next one,
 * which therefore takes the flag's place. */
RONDO_FN void rondo_row_to_user(uint64_t *first, uint64_t *second)
{
    const uint32_t lane = rondo_lane(), word = 2 * lane, line = word / 15 < 3 ? word / 15 : 3, odd = line & 1;
    const uint32_t at = 8 * line + (word - 15 * line) / 2;
    const uint64_t next = rondo_warp_shuffle(*first, (lane + 1) % RONDO_WARP);
    uint64_t lo, hi;
    if (lane % 8 == 7) *second = next;
    lo = rondo_warp_shuffle(*first, (at + odd) % RONDO_WARP);
    hi = rondo_warp_shuffle(*second, at % RONDO_WARP);
    *first = odd ? hi : lo;
    *second = odd ? lo : hi;
}

/* Load rows row, row + 1, .. of a slot into w; `lines` is the slice's number of lines. @return 1: all of them
 * have arrived. All lanes call it. */
RONDO_FN int rondo_ll128_load_rows(uint64_t *w, const uint8_t *slot, uint64_t flag, size_t row, size_t lines)
{
    const uint32_t lane = rondo_lane();
    int arrived = 1;
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++)
    {
        uint64_t lo = 0, hi = flag;
        rondo_warp_sync();
        if (4 * (row + (size_t)i) + lane / 8 < lines) {
            rondo_load_pair((const rondo_word *)(const void *)slot +
                                2 * (RONDO_WARP * (row + (size_t)i) + lane),
                            &lo, &hi);
        }
        w[2 * i] = lo;
        w[2 * i + 1] = hi;
        arrived &= lane % 8 != 7 || hi == flag;
    }
    return rondo_warp_all(arrived);
}

RONDO_FN void rondo_ll128_store_rows(const uint64_t *w, uint8_t *slot, uint64_t flag, size_t row,
                                     size_t lines)
{
    const uint32_t lane = rondo_lane();
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++)
    {
        rondo_warp_sync();
        if (4 * (row + (size_t)i) + lane / 8 < lines) {
            rondo_store_pair((rondo_word *)(void *)slot + 2 * (RONDO_WARP * (row + (size_t)i) + lane),
                             w[2 * i], lane % 8 == 7 ? flag : w[2 * i + 1]);
        }
    }
    rondo_warp_sync();
}

/* This lane's 16 bytes of a row of the user's buffer, or as many as there are. */
RONDO_FN struct rondo_data16 rondo_load_user16(const uint8_t *in, size_t at, size_t bytes)
{
    struct rondo_data16 d;
    d.lo = at < bytes ? rondo_load_bytes(in + at, bytes - at) : 0;
    d.hi = at + 8 < bytes ? rondo_load_bytes(in + at + 8, bytes - at - 8) : 0;
    return d;
}
RONDO_FN void rondo_store_user16(uint8_t *out, size_t at, size_t bytes, struct rondo_data16 d)
{
    if (at < bytes) rondo_store_bytes(out + at, bytes - at, d.lo);
    if (at + 8 < bytes) rondo_store_bytes(out + at + 8, bytes - at - 8, d.hi);
}

/* Load the user's rows in line order. whole: every lane's 16 bytes exist and are aligned. */
RONDO_FN void rondo_ll128_load_user(uint64_t *w, const uint8_t *in, size_t bytes, size_t row, int whole)
{
    const uint32_t lane = rondo_lane();
    const size_t at = RONDO_LL128_ROW_BYTES * row + 16 * (size_t)lane;
    if (whole) {
        RONDO_UNROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++)
        {
            struct rondo_data16 d;
            d.lo = d.hi = 0;
            if (lane < RONDO_LL128_ROW_BYTES / 16)
                d = rondo_load_data16(in + at + (size_t)(RONDO_LL128_ROW_BYTES * i));
            w[2 * i] = d.lo;
            w[2 * i + 1] = d.hi;
        }
    } else {
        RONDO_ROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++)
        {
            const size_t here = at + (size_t)(RONDO_LL128_ROW_BYTES * i);
            rondo_words_shift16(w, 2 * RONDO_LL128_ROWS,
                                rondo_load_user16(in, here, lane < RONDO_LL128_ROW_BYTES / 16 ? bytes : 0));
        }
    }
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++) rondo_row_to_lines(&w[2 * i], &w[2 * i + 1]);
}

RONDO_FN void rondo_ll128_store_user(uint64_t *w, uint8_t *out, size_t bytes, size_t row, int whole)
{
    const uint32_t lane = rondo_lane();
    const size_t at = RONDO_LL128_ROW_BYTES * row + 16 * (size_t)lane;
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++) rondo_row_to_user(&w[2 * i], &w[2 * i + 1]);
    if (whole) {
        RONDO_UNROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++)
        {
            struct rondo_data16 d;
            d.lo = w[2 * i];
            d.hi = w[2 * i + 1];
            if (lane < RONDO_LL128_ROW_BYTES / 16)
                rondo_store_data16(out + at + (size_t)(RONDO_LL128_ROW_BYTES * i), d);
        }
        return;
    }
    RONDO_ROLLED for (int i = 0; i < RONDO_LL128_ROWS; i++)
    {
        const size_t here = at + (size_t)(RONDO_LL128_ROW_BYTES * i);
        struct rondo_data16 d;
        d.lo = w[0];
        d.hi = w[1];
        if (lane < RONDO_LL128_ROW_BYTES / 16) rondo_store_user16(out, here, bytes, d);
        rondo_words_shift16(w, 2 * RONDO_LL128_ROWS, d);
    }
}

#endif
