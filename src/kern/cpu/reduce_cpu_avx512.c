/* Reductions for AVX-512 F, BW, DQ and VL. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")
#endif
#define RONDO_ISA rondo_reduce_avx512
#define RONDO_ISA_NAME "avx512"
#define RONDO_ISA_BYTES 64
#define RONDO_ISA_F16C
#include "kern/cpu/reduce_body.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
