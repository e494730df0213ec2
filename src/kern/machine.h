/*
 * What the protocols ask of a machine; machine_cpu.h and machine_cuda.h are the whole port. C11, C++17, CUDA.
 * A CPU's thread runs a work alone; in a thread block these words are each thread's own, and what a protocol
 * header does one thread does.
 *
 *   rondo_load_acquire, rondo_store_release    64 bits, ordered, visible to every agent that maps the memory
 * (other processes, GPUs, the NIC's CPU) rondo_load_relaxed, rondo_store_relaxed    64 bits, whole but not
 * ordered; *_relaxed32: 32 bits (call words) rondo_load_pair, rondo_store_pair          16 aligned bytes at
 * once; each 8-byte half is whole, the pair need not be. CPU: each half is an acquire or a release, so that
 * what was written before a flag (the call word) is seen with it. CUDA: relaxed; a kernel that writes a call
 * word fences once after it. rondo_load_word, rondo_store_word          64 plain bits of payload that
 * something else orders (tail or a flag)
 *
 * Machines with thread blocks (machine_cuda.h; tests: machine_sim.h) also have, for kern/cuda/prim.h:
 *   struct rondo_team {tid, nthreads, barrier} threads that run one flow of one work: whole warps of one
 * block, with a barrier of their own (1 .. 15; 0 is the block's) rondo_team_sync(team) barrier of a team:
 * what one wrote before it, all see after it rondo_block_tid() rondo_block_threads() rondo_block_index() in
 * the block, of the block, in the grid rondo_lane()                               in the warp: 0 .. 31
 *   rondo_warp_sync() rondo_warp_all(p) rondo_warp_any(p) rondo_warp_shuffle(v, lane)    of all 32 lanes,
 * which must all call it; v has 64 bits pairs that the lanes of a warp load or store between two of these are
 * one access where they lie in one line of 128 bytes rondo_fence()                              what this
 * thread wrote or read before it comes before what it writes after it, for every agent of the system struct
 * rondo_data16 {lo, hi}; rondo_load_data16(p), rondo_store_data16(p, v)   16 aligned bytes of user memory or
 * Simple slots, plain rondo_breath(words, &spins)                in a spinning wait, counted in spins
 * (uint32_t, from 0): 0 after a while when the launch is to be left (words->abort), else 1
 *
 * Conversions of 8- and 16-bit floats are base/half.h's.
 */
#ifndef RONDO_KERN_MACHINE_H
#define RONDO_KERN_MACHINE_H

#include "base/types.h"

/* A word of a slot: slots are bytes that hold elements of any type. */
typedef uint64_t __attribute__((may_alias)) rondo_word;

#ifdef __CUDACC__
#include "kern/cuda/machine_cuda.h"
#elif defined(RONDO_MACHINE_SIM)
#include "sim/machine_sim.h"
#else
#include "kern/cpu/machine_cpu.h"
#endif

#endif
