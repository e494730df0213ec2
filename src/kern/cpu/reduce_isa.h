/* One build of reduce_body.h. It is compiled once per instruction set: reduce_cpu_c.c (the compiler's
 * baseline: SSE2 on x86-64, NEON on aarch64), reduce_cpu_avx2.c and reduce_cpu_avx512.c. reduce_cpu.c chooses
 * one. */
#ifndef RONDO_KERN_CPU_REDUCE_ISA_H
#define RONDO_KERN_CPU_REDUCE_ISA_H

#include "kern/reduce.h"

struct rondo_reduce_isa {
    const char *name;
    /* NULL: rondo_reduce_c has it, or the type has no such operation */
    rondo_reduce_fn *reduce[RONDO_NUM_DTYPES][RONDO_NUM_REDUCES];
    void (*premul[RONDO_NUM_DTYPES])(void *dst, const void *src, size_t n, uint64_t scalar_bits);
    void (*divide[RONDO_NUM_DTYPES])(void *dst, size_t n, int divisor);
    void (*stream)(uint8_t *dst, const uint8_t *src,
                   size_t lines); /* non-temporal; dst is 64-byte aligned; no fence */
};

extern const struct rondo_reduce_isa rondo_reduce_c;
#ifdef __x86_64__
extern const struct rondo_reduce_isa rondo_reduce_avx2, rondo_reduce_avx512;
#endif

/* The builds that this machine can run, best first; NULL after the last. Without RONDO_TEST_ISA dispatch
 * takes the first. */
const struct rondo_reduce_isa *rondo_reduce_usable(int i);

#endif
