/*
 * The machine is a thread block. Contract: kern/machine.h, which includes this. Addresses are generic (device, peer or mapped host memory) and the scope is the
 * whole system; payload is loaded relaxed and not plain, so that it never comes from a cache that the peer's writes do not reach.
 */
#ifndef RONDO_KERN_MACHINE_CUDA_H
#define RONDO_KERN_MACHINE_CUDA_H

#include "kern/machine.h"

#ifdef __CUDACC__

#define RONDO_TID() threadIdx.x
#define RONDO_NTHREADS() blockDim.x
#define RONDO_SYNC() __syncthreads()
#define RONDO_RELAX() ((void)0)

RONDO_FN uint64_t rondo_load_acquire(const rondo_word *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
RONDO_FN void rondo_store_release(rondo_word *p, uint64_t v) { asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
RONDO_FN uint64_t rondo_load_relaxed(const rondo_word *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
RONDO_FN void rondo_store_relaxed(rondo_word *p, uint64_t v) { asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
RONDO_FN uint32_t rondo_load_relaxed32(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
RONDO_FN void rondo_store_relaxed32(uint32_t *p, uint32_t v) { asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }

RONDO_FN void rondo_load_pair(const rondo_word *p, uint64_t *lo, uint64_t *hi)
{
    asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];" : "=l"(*lo), "=l"(*hi) : "l"(p) : "memory");
}
RONDO_FN void rondo_store_pair(rondo_word *p, uint64_t lo, uint64_t hi)
{
    asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(lo), "l"(hi) : "memory");
}

RONDO_FN uint64_t rondo_load_word(const rondo_word *p) { return rondo_load_relaxed(p); }
RONDO_FN void rondo_store_word(rondo_word *p, uint64_t v) { rondo_store_relaxed(p, v); }

#endif

#endif
