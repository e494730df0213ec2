/*
 * What the protocols ask of a machine; machine_cpu.h and machine_cuda.h are the whole port. C11, C++17, CUDA.
 *
 *   RONDO_TID() RONDO_NTHREADS()   this thread and the number of threads that share a work (CPU: 0 and 1)
 *   RONDO_SYNC()                   barrier of those threads; what one wrote before it, all see after it
 *   RONDO_RELAX()                  one breath of a spinning wait
 *   rondo_load_acquire, rondo_store_release    64 bits, ordered, visible to every agent that maps the memory (other processes, GPUs, the NIC's CPU)
 *   rondo_load_relaxed, rondo_store_relaxed    64 bits, whole but not ordered; *_relaxed32: 32 bits (call words)
 *   rondo_load_pair, rondo_store_pair          16 aligned bytes at once; each 8-byte half is whole, the pair need not be.
 *       CPU: each half is an acquire or a release, so that what was written before a flag (the call word) is seen with it. CUDA: relaxed;
 *       a kernel that writes a call word fences once after it.
 *   rondo_load_word, rondo_store_word          64 plain bits of payload that something else orders (tail or a flag)
 *
 * Conversions of 8- and 16-bit floats are base/half.h's.
 */
#ifndef RONDO_KERN_MACHINE_H
#define RONDO_KERN_MACHINE_H

#include "base/types.h"

/* A word of a slot: slots are bytes that hold elements of any type. */
typedef uint64_t __attribute__((may_alias)) rondo_word;

#ifdef __CUDACC__
#include "kern/machine_cuda.h"
#else
#include "kern/machine_cpu.h"
#endif

#endif
