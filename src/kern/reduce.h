/*
 * Reductions over spans of host memory, for every type and pairwise operation of the tables, vectorised and
 * dispatched at run time (AVX-512, AVX2, SSE, NEON, plain C). All builds give the same bits: they use
 * vertical operations only; 8- and 16-bit floats are widened to float32 and each pair is rounded once, to
 * nearest even; integers wrap; complex products follow the plain formula. Spans need only their element
 * type's alignment, or less, and may be equal (dst == srcs[i]) but must not overlap otherwise.
 */
#ifndef RONDO_KERN_REDUCE_H
#define RONDO_KERN_REDUCE_H

#include "base/types.h"

/** dst[i] = (..(srcs[0][i] op srcs[1][i]) op ..) op srcs[nsrcs - 1][i]; nsrcs >= 1, where 1 copies. Reads
 * each source once and writes dst once. */
typedef void rondo_reduce_fn(void *dst, const void *const *srcs, int nsrcs, size_t n);
/** The function for this machine; NULL if the type has no such operation. */
rondo_reduce_fn *rondo_reduce_get(rondo_dtype type, enum rondo_reduce op);

/** dst[i] = src[i] * *scalar (pre-multiplied sum), rounded once, for types of rondo_dtype_premul(). The
 * scalar has the type's own format. dst may equal src. */
void rondo_premul(void *dst, const void *src, size_t n, rondo_dtype type, uint64_t scalar_bits);
/** dst[i] = dst[i] / divisor, for types with sums: integers truncate towards zero, floats round once. */
void rondo_divide(void *dst, size_t n, rondo_dtype type, int divisor);
/** Copy, with non-temporal stores if `stream` is set. */
void rondo_copy(void *dst, const void *src, size_t bytes, int stream);

struct rondo_reduction {
    rondo_dtype type;
    enum rondo_reduce op;
    int divisor; /* 0: no division */
    int nsrcs;
    const void **srcs; /* calls leave them at the sources' ends */
};
/** Reduce n elements and store them to ndsts >= 1 targets with non-temporal stores; also to `keep` through
 * the caches, unless it is NULL. A target is one of the sources (reduce_scatter in place) or overlaps none.
 */
void rondo_reduce_past(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, uint8_t *keep,
                       size_t n);

/** Reduce n elements tile by tile and copy each tile to ndsts >= 1 targets, with an instruction that takes
 * over whole lines without reading them, if there is one: for targets whose lines another core owns. Targets
 * as above. */
void rondo_reduce_over(const struct rondo_reduction *r, uint8_t *const *dsts, int ndsts, size_t n);
/** Is rondo_reduce_over faster than stores, for this many bytes on this processor? */
int rondo_over_pays(size_t bytes);

/** What dispatch chose: "avx512", "avx2", "sse2", "neon" or "c". RONDO_TEST_ISA caps it, for tests. */
const char *rondo_reduce_isa(void);

#endif
