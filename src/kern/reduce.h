/*
 * Reductions over spans on host memory, for every type and pairwise operation of the tables, vectorised and
 * dispatched at run time (AVX-512, AVX2, SSE, NEON, plain C), with the same bits from each: vertical
 * operations only, 8- and 16-bit floats go pairwise through float32 and are rounded once to nearest even at
 * each pair, integers wrap.
 *
 * Spans may have any alignment of their element type and may be equal (dst == srcs[i]) but not otherwise
 * overlap.
 */
#ifndef RONDO_KERN_REDUCE_H
#define RONDO_KERN_REDUCE_H

#include "base/types.h"

/** dst[i] = (..(srcs[0][i] op srcs[1][i]) op ..) op srcs[nsrcs - 1][i]; nsrcs >= 1 (1: a copy). Reads each
 * source once, writes dst once. */
typedef void rondo_reduce_fn(void *dst, const void *const *srcs, int nsrcs, size_t n);
/** The function for this machine; never NULL for valid arguments. */
rondo_reduce_fn *rondo_reduce_get(rondo_dtype type, enum rondo_reduce op);

/** dst[i] = src[i] * *scalar, scalar in the type's own format (pre-multiplied sum), rounded once. dst may
 * equal src. */
void rondo_premul(void *dst, const void *src, size_t n, rondo_dtype type, uint64_t scalar_bits);
/** dst[i] = dst[i] / divisor: integers truncate towards zero, floats are rounded once. */
void rondo_divide(void *dst, size_t n, rondo_dtype type, int divisor);
/** Copy; with non-temporal stores when stream is set. */
void rondo_copy(void *dst, const void *src, size_t bytes, int stream);

struct rondo_reduction {
    rondo_dtype type;
    enum rondo_reduce op;
    int divisor; /* 0: the result is not divided */
    int nsrcs;
    const void **srcs; /* left at their ends */
};
/** Reduce n elements, and store them to ndsts (at least 1) targets with non-temporal stores; unless keep is
 * NULL to that, too, through the caches. A target is one of the sources (a reduce_scatter in place), or
 * overlaps none. */
void rondo_reduce_past(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, uint8_t *keep,
                       size_t n);

/**
 * Reduce n elements, tile by tile, and copy them to ndsts (at least 1) targets by an instruction that takes
 * whole lines over without reading them first, where there is one: for targets whose lines are another
 * core's. Targets as above.
 */
void rondo_reduce_over(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, size_t n);
/** Is that faster than stores, of this many bytes on this processor? */
int rondo_over_pays(size_t bytes);

/** "avx512", "avx2", "sse2", "neon", "c": what dispatch chose. RONDO_TEST_ISA (tests only) caps it. */
const char *rondo_reduce_isa(void);

#endif
