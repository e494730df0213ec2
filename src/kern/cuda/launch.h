/*
 * A launch: what the host hands to a kernel, and the words through which both talk. Plain data, read by host,
 * CUDA and the simulated machine alike.
 *
 * A grid has one block a channel (sends and receives: up to RONDO_LAUNCH_P2P of them in one block, on warps
 * of their own). Block b runs works first[b] .. first[b + 1] - 1 one after the other. All pointers of a work
 * and of what it leads to (ports, conns, counts, block_rank) are addresses that the device can read; conns
 * are in device memory, one array a communicator, and their `step`, `seen` and `call_set` belong to the
 * kernels: the host writes a conn once, when it is connected.
 *
 * Ordering: launches of a communicator are in one order on all ranks; a launch begins when the one before it
 * has ended (same stream, or an event between streams).
 */
#ifndef RONDO_KERN_CUDA_LAUNCH_H
#define RONDO_KERN_CUDA_LAUNCH_H

#include "coll/work.h"

enum {
    RONDO_WARP = 32,
    RONDO_MAX_THREADS = 640,         /* of a block */
    RONDO_LAUNCH_INLINE = 22,        /* works that travel as kernel arguments: a launch stays under 4 KiB */
    RONDO_LAUNCH_P2P = 8,            /* sends and receives of one block */
    RONDO_DIRECT_RANKS = RONDO_WARP, /* that reach into one another's memory: a lane each */
    RONDO_DIRECT_REGIONS = 32,       /* of a rank's memory; 0 is none of the user's */
    RONDO_DIRECT_PIECE =
        16 /* bytes: a window of each rank's block is whole ones of these; an element, at least */
};

/* Why a kernel ended a communicator. */
enum rondo_gpu_fault {
    RONDO_GPU_FINE = 0,
    RONDO_GPU_MISMATCH = 1, /* a call word is not ours */
};

/*
 * Pinned host memory, mapped; one a communicator. Lines of different writers are apart. Nobody polls them
 * through the driver: plain loads say how far the device is.
 */
struct rondo_gpu_words {
    uint32_t abort
        RONDO_ALIGNED(RONDO_CTRL_ALIGN); /* by the host; not 0: kernels leave at once, from every wait */
    uint32_t fault RONDO_ALIGNED(
        RONDO_CTRL_ALIGN); /* by the kernel, once, after the words below: enum rondo_gpu_fault */
    uint32_t fault_got;    /* MISMATCH: the word that came */
    int32_t fault_peer;    /* the rank at the other end of that conn */
    uint32_t fault_work;   /* index of the work in its launch */
    uint64_t fault_serial; /* of that launch */
    struct {
        uint64_t begun, ended; /* serial of the last launch that this block began, ended */
        int32_t peer; /* while threads of it wait for long: for whom the first of them does, -1 - nothing; and
                         why */
        uint16_t port;  /* enum rondo_port */
        uint16_t waits; /* 0: no, 1: for data, 2: for credit */
        uint64_t step;  /* of the conn that it waits for */
    } block[RONDO_MAX_CHANNELS] RONDO_ALIGNED(RONDO_CTRL_ALIGN);
};

/* ---- ranks that reach into one another's device memory (kern/cuda/block_direct.h) ---- */

/* What a rank says to another one, of a channel; in the memory of who reads it. */
struct rondo_gpu_cell {
    uint64_t
        met; /* meetings that the writer has come to; it posts the next one when all have come to this one */
    struct {
        uint64_t call;    /* its call word << 32 | the writer's buffers that all reach: 1 in, 2 out */
        uint64_t in, out; /* these buffers, as addresses of the reader */
    } work[2]; /* that began with a meeting; of an even one, an odd one: who has come to it may find the next
                  one posted */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* User memory of this rank. The host writes `open` last, and takes it back first. */
struct rondo_gpu_region {
    uint64_t open; /* not 0: all peers have it */
    uint64_t base, bytes;
    uint64_t at[RONDO_DIRECT_RANKS]; /* where the peers have it, by their addresses */
};

/* Where a rank reaches all of them. */
struct rondo_gpu_reach {
    uint32_t nranks, index;
    uint64_t stage_bytes; /* of a place to stage data in, a piece for each rank at least: a channel has two,
                             used in turn */
    struct rondo_gpu_cell *cell[RONDO_DIRECT_RANKS]; /* of each rank: [channel * nranks + writer] */
    uint8_t *stage[RONDO_DIRECT_RANKS];              /* [(2 * channel + turn) * stage_bytes] */
};

/* In device memory, one a rank and communicator. */
struct rondo_gpu_direct {
    struct rondo_gpu_reach reach;
    struct {
        uint64_t met, staged; /* the kernels' own: meetings, and places staged in */
    } channel[RONDO_MAX_CHANNELS];
    struct rondo_gpu_region region[RONDO_DIRECT_REGIONS];
};

struct rondo_launch {
    uint64_t serial; /* of the communicator, from 1 */
    struct rondo_gpu_words *words;
    struct rondo_gpu_direct *direct; /* NULL: no kernel of that kind */
    const struct rondo_work
        *works; /* device-visible and unchanged until the launch has ended; NULL: inline_works */
    uint32_t nblocks;
    uint16_t first[RONDO_MAX_CHANNELS + 1];
    struct rondo_work inline_works[RONDO_LAUNCH_INLINE];
};
#ifndef __cplusplus
_Static_assert(sizeof(struct rondo_launch) <= 4096, "kernel arguments of 4 KiB");
#endif

#endif
