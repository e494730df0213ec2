/* A thread block as a machine. Contract: kern/machine.h, which includes this. Addresses are generic (device,
 * peer or mapped host memory), and the scope is the whole system. Payload of LL and LL128 is loaded relaxed,
 * not plain, so that it never comes from a cache that the peer's writes do not reach. */
#ifndef RONDO_KERN_CUDA_MACHINE_CUDA_H
#define RONDO_KERN_CUDA_MACHINE_CUDA_H

#include "kern/cuda/launch.h"
#include "kern/machine.h"

#ifdef __CUDACC__

struct rondo_team {
    uint32_t tid, nthreads, barrier;
};

RONDO_FN uint32_t rondo_block_tid(void) { return threadIdx.x; }
RONDO_FN uint32_t rondo_block_threads(void) { return blockDim.x; }
RONDO_FN uint32_t rondo_block_index(void) { return blockIdx.x; }
RONDO_FN uint32_t rondo_lane(void) { return threadIdx.x % RONDO_WARP; }

RONDO_FN void rondo_team_sync(const struct rondo_team *team)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(team->barrier), "r"(team->nthreads) : "memory");
}
RONDO_FN void rondo_warp_sync(void) { __syncwarp(); }
RONDO_FN int rondo_warp_all(int p) { return __all_sync(0xffffffffu, p); }
RONDO_FN int rondo_warp_any(int p) { return __any_sync(0xffffffffu, p); }
RONDO_FN uint64_t rondo_warp_shuffle(uint64_t v, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, (unsigned long long)v, (int)lane);
}
RONDO_FN void rondo_fence(void) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

RONDO_FN uint64_t rondo_load_acquire(const rondo_word *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
RONDO_FN void rondo_store_release(rondo_word *p, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
RONDO_FN uint64_t rondo_load_relaxed(const rondo_word *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
RONDO_FN void rondo_store_relaxed(rondo_word *p, uint64_t v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
RONDO_FN uint32_t rondo_load_relaxed32(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
RONDO_FN void rondo_store_relaxed32(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

RONDO_FN uint32_t rondo_load_shared32(const uint32_t *p) { return *(const volatile uint32_t *)p; }
RONDO_FN void rondo_store_shared32(uint32_t *p, uint32_t v) { *(volatile uint32_t *)p = v; }

RONDO_FN void rondo_load_pair(const rondo_word *p, uint64_t *lo, uint64_t *hi)
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(*lo), "=l"(*hi) : "l"(p) : "memory");
}
RONDO_FN void rondo_store_pair(rondo_word *p, uint64_t lo, uint64_t hi)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(lo), "l"(hi) : "memory");
}

RONDO_FN uint64_t rondo_load_word(const rondo_word *p) { return rondo_load_relaxed(p); }
RONDO_FN void rondo_store_word(rondo_word *p, uint64_t v) { rondo_store_relaxed(p, v); }

struct rondo_data16 {
    uint64_t lo, hi;
};
/* Plain, but volatile: several loads stay in flight in program order, and a barrier's "memory" clobber keeps
 * them on its side. */
RONDO_FN struct rondo_data16 rondo_load_data16(const void *p)
{
    struct rondo_data16 v;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p));
    return v;
}
RONDO_FN struct rondo_data16 rondo_load_part16(const void *p, uint32_t first, uint32_t end)
{
    (void)first, (void)end;
    return rondo_load_data16(p);
}
RONDO_FN void rondo_store_data16(void *p, struct rondo_data16 v)
{
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory");
}

/* The abort word lies in host memory, so look at it rarely. */
enum { RONDO_BREATHS = 4096 };
RONDO_FN int rondo_breath(const struct rondo_gpu_words *words, uint32_t *spins)
{
    return ++*spins % RONDO_BREATHS != 0 || rondo_load_relaxed32(&words->abort) == 0;
}

#endif

#endif
