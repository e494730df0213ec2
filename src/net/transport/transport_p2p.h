/*
 * The p2p transport, shared by its files: conns between GPUs of one node, in device memory. Compiled with
 * RONDO_CUDA only.
 *
 * A rank's device memory is a list of blocks (base/cuda_mem.h): the first begins with 128 bytes for each
 * local rank and for each link, then come slots, as in the blocks after it:
 *
 *   | cells: one a local rank | lines: head or tail of each link | slots ... |   | slots ... |
 *
 * Words of a cell: what a peer must find when it looks, what it writes and must find again, and whether it
 * has the memory open. Senders write: slots and tail lie at the receiver, the head at the sender. Where
 * receivers read (RONDO_P2P_MODE_READ) the slots of Simple lie at the sender; LL and LL128 are polled, so
 * theirs are always the receiver's. A peer's block is opened once.
 *
 * Nothing here waits for a kernel. Copies go through a stream of the communicator's own; what must have
 * happened before a block goes is waited for as long as RONDO_P2P_CHECK, and memory that somebody may still
 * use then is left to the driver.
 *
 * Blocks are 2 MiB at least: one with cells and lines, one with the slots of all links made at creation
 * (rondo_net_expect), one for several lazy links. Between processes, memory shared by IPC handles goes with
 * its owner, which therefore waits until its openers have cleared their cells; VMM memory does not. A pair
 * that fails the check (lost or foreign bytes, no answer within RONDO_P2P_CHECK) uses shm at both ends, and
 * a warning names it.
 */
#ifndef RONDO_NET_TRANSPORT_TRANSPORT_P2P_H
#define RONDO_NET_TRANSPORT_TRANSPORT_P2P_H

#include "base/cuda_mem.h"
#include "net/transport/lazy.h"
#include "net/transport/transport.h"

/* What the owner and one of its peers leave in the owner's cell of that peer. */
struct rondo_p2p_cell {
    uint64_t owner[2];  /* by the owner, at creation: rondo_p2p_pattern */
    uint64_t writer[2]; /* by the peer, in its check */
    uint64_t open;      /* by the peer, of memory that goes with its owner: enum rondo_p2p_open */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

enum rondo_p2p_open { RONDO_P2P_NEVER, RONDO_P2P_OPENED, RONDO_P2P_CLOSED };

/* In pinned memory: what copies move between here and cells: ours of a peer (at creation and at the end),
 * then a peer's of us. */
struct rondo_p2p_look {
    uint64_t owner[2], writer[2], found[2], open;
};

/* A peer of the node: its blocks as they are open here, and its check. */
struct rondo_p2p_map {
    struct rondo_gpu_mem *mem; /* mem[0]: its first block */
    int n, capacity;
    int told;        /* its cell of us says that we have it open */
    CUstream stream; /* of its check, while that lasts */
};

struct rondo_p2p_block {
    struct rondo_gpu_mem mem;
    size_t used;
};

struct rondo_p2p {
    struct rondo_net *net;
    const struct rondo_cuda *cuda;
    CUstream stream;
    struct rondo_p2p_block *block; /* ours */
    int nblocks, capacity;
    size_t first_line, nlines, max_lines; /* in the first block; given out; all */
    size_t expected;                      /* bytes of slots to come */
    struct rondo_p2p_map *map;            /* by local rank */
    struct rondo_p2p_look *look;          /* pinned, by local rank; then two constants, then a word a line */
    uint64_t *constant, *word;
    int64_t deadline_ns; /* of the check; 0: not begun */
    int stuck;           /* copies of the check never came to an end: nothing that they use may go */
};

/* One end; link->state. */
struct rondo_p2p_link {
    struct rondo_p2p *owner;
    size_t line, slots; /* in the first block; in block `place` */
    int place;          /* -1: no slots here */
    size_t number;      /* of its line */
    int looking;        /* a copy of the word that it polls is under way */
    struct rondo_lazy lazy;
};

/* ---- the memory (transport_p2p_memory.c) ---- */

/** With the device's context current, captures of this thread at rest. Every entry of the transport is
 * between these. */
rondo_status rondo_p2p_enter(const struct rondo_p2p *p2p, CUstreamCaptureMode *before);
void rondo_p2p_leave(CUstreamCaptureMode before);
/** All blocks of a communicator, and what is pinned. Between enter and leave, as all below. */
rondo_status rondo_p2p_make(struct rondo_p2p *p2p, int max_links);
void rondo_p2p_drop(struct rondo_p2p *p2p);
/** A line in the first block; slots in some block, zeroed. */
rondo_status rondo_p2p_take_line(struct rondo_p2p *p2p, struct rondo_p2p_link *own);
rondo_status rondo_p2p_take_slots(struct rondo_p2p *p2p, struct rondo_p2p_link *own, size_t bytes);
/** A block of a local peer's, opened at its first use. name NULL: its first one. Errors are not logged. */
rondo_status rondo_p2p_open(struct rondo_p2p *p2p, int local, const struct rondo_gpu_name *name,
                            struct rondo_gpu_mem *mem);
/** Until all of a stream's copies are done, at most until deadline_ns: RONDO_TIMEOUT. */
rondo_status rondo_p2p_wait(const struct rondo_p2p *p2p, CUstream stream, int64_t deadline_ns);
/** What a rank's cell of a local peer holds from the start: the owner's memory has it and no other. */
void rondo_p2p_pattern(const struct rondo_gpu_name *owner, int local, uint64_t pattern[2]);
/** rondo_net_check, within (transport_p2p_check.c). */
rondo_status rondo_p2p_check(struct rondo_p2p *p2p);
static inline CUdeviceptr rondo_p2p_address(const struct rondo_gpu_mem *mem, size_t offset)
{
    return (CUdeviceptr)(uintptr_t)(mem->base + offset);
}
/** Offset of a field of the cell of local rank `local`. */
#define RONDO_P2P_CELL(local, field) \
    ((size_t)(local) * sizeof(struct rondo_p2p_cell) + offsetof(struct rondo_p2p_cell, field))

#endif
