/*
 * What the protocols need from a machine, in C11, C++17 and CUDA. machine_cpu.h and machine_cuda.h are the
 * ports. On a CPU one thread runs a work. In a thread block every thread calls these functions for itself.
 *
 *   rondo_load_acquire, rondo_store_release
 *       64 bits, ordered, visible to every agent that maps the memory (other processes, GPUs, the NIC's CPU)
 *   rondo_load_relaxed, rondo_store_relaxed
 *       64 bits, atomic but not ordered; *_relaxed32: 32 bits (call words)
 *   rondo_load_pair, rondo_store_pair
 *       16 aligned bytes; each 8-byte half is atomic, the pair may not be. CPU: each half is an acquire or a
 *       release, so that what was written before a flag (the call word) is visible with it. CUDA: relaxed; a
 *       kernel that writes a call word fences once after it.
 *   rondo_load_word, rondo_store_word
 *       64 plain bits of payload, ordered by something else (tail, a flag)
 *
 * Machines with thread blocks (machine_cuda.h; in tests machine_sim.h) also have, for kern/cuda/prim.h:
 *   struct rondo_team {tid, nthreads, barrier}
 *       threads that run one flow of one work: whole warps of a block with their own barrier (1 .. 15; 0 is
 *       the block's)
 *   rondo_team_sync(team)
 *       the team's barrier: after it all see what any wrote before it
 *   rondo_block_tid() rondo_block_threads() rondo_block_index()
 *       the thread in its block, the block's threads, the block in its grid
 *   rondo_lane()
 *       the thread in its warp: 0 .. 31
 *   rondo_warp_sync() rondo_warp_all(p) rondo_warp_any(p) rondo_warp_shuffle(v, lane)
 *       all 32 lanes must call these; v has 64 bits. After rondo_warp_sync() all lanes see what any wrote
 *       before it; the others order nothing. The first pairs that the lanes load or store after it are one
 *       access if they lie in one line of 128 bytes.
 *   rondo_load_shared32(p), rondo_store_shared32(p, v)
 *       32 bits of the block's shared memory that others load or store at the same time; not ordered
 *   rondo_fence()
 *       orders this thread's accesses before it with its writes after it, for every agent of the system
 *   struct rondo_data16 {lo, hi}; rondo_load_data16(p), rondo_store_data16(p, v)
 *       16 aligned bytes of user memory or Simple slots, plain; rondo_load_part16(p, first, end): only bytes
 *       first .. end - 1 are used, the others may change meanwhile
 *   rondo_breath(words, &spins)
 *       call in a spinning wait; spins is a uint32_t that starts at 0. @return 0 now and then once the launch
 *       is aborted (words->abort), else 1
 *
 * base/half.h converts 8- and 16-bit floats.
 */
#ifndef RONDO_KERN_MACHINE_H
#define RONDO_KERN_MACHINE_H

#include "base/types.h"

/* A word of a slot. Slots are bytes that hold elements of any type. */
typedef uint64_t __attribute__((may_alias)) rondo_word;

#ifdef __CUDACC__
#include "kern/cuda/machine_cuda.h"
#elif defined(RONDO_MACHINE_SIM)
#include "sim/machine_sim.h"
#else
#include "kern/cpu/machine_cpu.h"
#endif

#endif
