/* The CPU as a machine: one thread runs a work. Contract: kern/machine.h, which includes this. */
#ifndef RONDO_KERN_CPU_MACHINE_CPU_H
#define RONDO_KERN_CPU_MACHINE_CPU_H

#include "base/wait.h"
#include "kern/machine.h"

RONDO_FN uint64_t rondo_load_acquire(const rondo_word *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
RONDO_FN void rondo_store_release(rondo_word *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
RONDO_FN uint64_t rondo_load_relaxed(const rondo_word *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
RONDO_FN void rondo_store_relaxed(rondo_word *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
RONDO_FN uint32_t rondo_load_relaxed32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
RONDO_FN void rondo_store_relaxed32(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }

RONDO_FN void rondo_load_pair(const rondo_word *p, uint64_t *lo, uint64_t *hi)
{
    *lo = rondo_load_acquire(p);
    *hi = rondo_load_acquire(p + 1);
}
RONDO_FN void rondo_store_pair(rondo_word *p, uint64_t lo, uint64_t hi)
{
    rondo_store_release(p, lo);
    rondo_store_release(p + 1, hi);
}

RONDO_FN uint64_t rondo_load_word(const rondo_word *p) { return *p; }
RONDO_FN void rondo_store_word(rondo_word *p, uint64_t v) { *p = v; }

#endif
