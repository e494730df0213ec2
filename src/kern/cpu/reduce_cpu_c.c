/* Reductions in plain C, for every machine; vectorised for the compiler's baseline. */
#define RONDO_ISA rondo_reduce_c
#if defined(__SSE2__)
#define RONDO_ISA_NAME "sse2"
#elif defined(__ARM_NEON)
#define RONDO_ISA_NAME "neon"
#else
#define RONDO_ISA_NAME "c"
#endif
#define RONDO_ISA_BYTES 16
#include "kern/cpu/reduce_body.h"
