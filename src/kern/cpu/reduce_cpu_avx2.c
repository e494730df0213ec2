/* Reductions for AVX2 with F16C. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif
#define RONDO_ISA rondo_reduce_avx2
#define RONDO_ISA_NAME "avx2"
#define RONDO_ISA_BYTES 32
#define RONDO_ISA_F16C
#include "kern/cpu/reduce_body.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
