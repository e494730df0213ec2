/*
 * A launch: what the host passes to a kernel, and the words through which both communicate. Plain data for
 * the host, CUDA and the simulated machine.
 *
 * A grid has one block per channel; a block of sends and receives has up to RONDO_LAUNCH_P2P of them, on
 * separate warps. Block b runs works first[b] .. first[b + 1] - 1 one after the other. All pointers of a work
 * and of what it refers to (connections, counts, block_rank) are addresses that the device can read.
 * Connections are in device memory, one array per communicator. Their `step`, `seen` and `call_set` belong to
 * the kernels; the host writes a connection once, when it is connected.
 *
 * Ordering: all ranks launch a communicator's calls in the same order, and a launch begins when the previous
 * one has ended (same stream, or an event between streams).
 */
#ifndef RONDO_KERN_CUDA_LAUNCH_H
#define RONDO_KERN_CUDA_LAUNCH_H

#include "coll/work.h"

enum {
    RONDO_WARP = 32,
    RONDO_MAX_THREADS = 640, /* of a block */
    /* works that travel as kernel arguments, so that these stay under 4 KiB */
    RONDO_LAUNCH_INLINE = 22,
    RONDO_LAUNCH_P2P = 8,            /* sends and receives per block */
    RONDO_DIRECT_RANKS = RONDO_WARP, /* ranks with direct access to one another: a lane each */
    RONDO_DIRECT_REGIONS = 32,       /* of a rank's memory; 0 is not the user's */
    RONDO_DIRECT_PIECE =
        16 /* bytes: a window of each rank's block is a multiple of this; at least an element */
};

/* Why a kernel ended a communicator. */
enum rondo_gpu_fault {
    RONDO_GPU_FINE = 0,
    RONDO_GPU_MISMATCH = 1, /* a call word differs from ours */
};

/* Pinned, mapped host memory, one per communicator. Different writers have different lines. Nobody polls
 * through the driver: plain loads tell how far the device is. */
struct rondo_gpu_words {
    uint32_t abort
        RONDO_ALIGNED(RONDO_CTRL_ALIGN); /* written by the host; not 0: kernels leave every wait at once */
    uint32_t fault RONDO_ALIGNED(
        RONDO_CTRL_ALIGN); /* written by the kernel once, after the words below: enum rondo_gpu_fault */
    uint32_t fault_got;    /* MISMATCH: the word that arrived */
    int32_t fault_peer;    /* rank at the other end of the connection */
    uint32_t fault_work;   /* index of the work in its launch */
    uint64_t fault_serial; /* of that launch */
    struct {
        uint64_t waited; /* serial of the last launch in which this block waited for long */
        uint64_t ended;  /* serial of the last launch that it ended */
        /* while threads wait for long: the rank that the first one waits for (-1: none), and why */
        int32_t peer;
        uint16_t port;  /* enum rondo_port */
        uint16_t waits; /* 0: no, 1: for data, 2: for credit */
        uint64_t step;  /* of the connection that it waits for */
    } block[RONDO_MAX_CHANNELS] RONDO_ALIGNED(RONDO_CTRL_ALIGN);
};

/* ---- direct access (kern/cuda/block_direct.h) ---- */

/* What one rank tells another, per channel; in the reader's memory. */
struct rondo_gpu_cell {
    uint64_t
        /* meetings that the writer has reached; it publishes the next one after all have reached this one */
        met;
    struct {
        /* the writer's call word << 32 | its buffers that all ranks can access: 1 in, 2 out */
        uint64_t call;
        uint64_t in, out; /* these buffers, as the reader's addresses */
        /* of meetings that begin a work, even and odd: a rank in one may find the next one published */
    } work[2];
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* User memory of this rank. The host sets `open` last and clears it first. */
struct rondo_gpu_region {
    uint64_t open; /* not 0: all peers have it mapped */
    uint64_t base, bytes;
    uint64_t at[RONDO_DIRECT_RANKS]; /* where peers have it mapped, as their addresses */
};

/* Where a rank accesses all ranks. */
struct rondo_gpu_reach {
    uint32_t nranks, index;
    /* of a staging buffer, with a piece for each rank at least; a channel has two, used in turn */
    uint64_t stage_bytes;
    struct rondo_gpu_cell *cell[RONDO_DIRECT_RANKS]; /* of each rank: [channel * nranks + writer] */
    uint8_t *stage[RONDO_DIRECT_RANKS];              /* [(2 * channel + which) * stage_bytes] */
    /* of one-shot: a channel has two for each writer, used in turn: a line with the call word, then LL */
    uint64_t slot_bytes;
    uint8_t *slots[RONDO_DIRECT_RANKS]; /* [((2 * channel + which) * nranks + writer) * slot_bytes] */
};

/* In device memory, one per rank and communicator. */
struct rondo_gpu_direct {
    struct rondo_gpu_reach reach;
    struct {
        /* used by kernels: meetings, staging buffers filled, slots of one-shot filled in each peer */
        uint64_t met, staged, shots;
        uint64_t open; /* the last work that asked has moved its data (enum rondo_pair) */
    } channel[RONDO_MAX_CHANNELS];
    struct rondo_gpu_region region[RONDO_DIRECT_REGIONS];
};

struct rondo_launch {
    uint64_t serial; /* of the communicator, from 1 */
    struct rondo_gpu_words *words;
    struct rondo_gpu_direct *direct; /* NULL: the kernel does not use it */
    const struct rondo_work
        *works; /* device-visible, unchanged until the launch has ended; NULL: inline_works */
    uint32_t nblocks;
    uint16_t first[RONDO_MAX_CHANNELS + 1];
    struct rondo_work inline_works[RONDO_LAUNCH_INLINE];
};
#ifndef __cplusplus
_Static_assert(sizeof(struct rondo_launch) <= 4096, "kernel arguments of 4 KiB");
_Static_assert(2 * RONDO_NUM_PORTS <= 32, "the bits of a work's `wired`");

/* Copy the connections of `ports` to conns[], as a work's `conns` has them. @return its `wired`. */
static inline uint32_t rondo_launch_conns(const struct rondo_ports *ports, struct rondo_conn *conns)
{
    uint32_t wired = 0;
    for (uint32_t i = 0; i < 2 * RONDO_NUM_PORTS; i++) {
        const struct rondo_conn *conn = i < RONDO_NUM_PORTS ? ports->recv[i]
                                                            : ports->send[i - RONDO_NUM_PORTS];
        if (conn != NULL) {
            *conns++ = *conn;
            wired |= 1u << i;
        }
    }
    return wired;
}
#endif

#endif
