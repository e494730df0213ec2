/*
 * The p2p transport, shared by its files: conns between GPUs of one node, in device memory. Compiled only
 * with RONDO_CUDA.
 *
 * A rank's device memory is a list of blocks (base/cuda_mem.h). The first begins with 128 bytes for each
 * local rank and for each link; slots follow there and in all other blocks:
 *
 *   | cells: one a local rank | lines: head or tail of each link | slots ... |   | slots ... |
 *
 * The words of a cell: what a peer must find when it looks, what the peer writes and must find again, and
 * whether the peer has the memory open. In write mode slots and tail lie at the receiver, the head at the
 * sender. In read mode (RONDO_P2P_MODE_READ) the slots of Simple lie at the sender; those of LL and LL128 are
 * polled, so they are always at the receiver. A peer's block is opened once.
 *
 * Nothing here waits for a kernel. Copies use a stream of the communicator. What must have happened before a
 * block is freed is waited for up to RONDO_P2P_CHECK; memory that may still be in use then is left to the
 * driver.
 *
 * Blocks have at least 2 MiB: one with cells and lines, one with the slots of all links made at creation
 * (rondo_net_expect), one for several lazy links. Between processes, memory shared by IPC handles ends with
 * its owner, which therefore waits until its openers have cleared their cells; VMM memory does not. A pair
 * that fails the check (lost or foreign bytes, no answer within RONDO_P2P_CHECK) uses shm at both ends, and a
 * warning names it.
 */
#ifndef RONDO_NET_TRANSPORT_TRANSPORT_P2P_H
#define RONDO_NET_TRANSPORT_TRANSPORT_P2P_H

#include "base/cuda_pool.h"
#include "net/transport/transport.h"

/* What the owner and one of its peers write into the owner's cell for that peer. */
struct rondo_p2p_cell {
    uint64_t owner[2];  /* written by the owner, at creation: rondo_p2p_pattern */
    uint64_t writer[2]; /* written by the peer, in its check */
    uint64_t open;      /* written by the peer, for memory that ends with its owner: enum rondo_p2p_open */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

enum rondo_p2p_open { RONDO_P2P_NEVER, RONDO_P2P_OPENED, RONDO_P2P_CLOSED };

/* In pinned memory: source and destination of copies to and from cells. First the own cell for a peer (at
 * creation and at the end), then the peer's cell for this rank. */
struct rondo_p2p_look {
    uint64_t owner[2], writer[2], found[2], open;
};

/* A peer of the node: its blocks as opened here, and its check. */
struct rondo_p2p_map {
    struct rondo_gpu_mem *mem; /* mem[0]: its first block */
    int n, capacity;
    int told;        /* its cell for this rank says that we have it open */
    CUstream stream; /* of its check, while that runs */
};

struct rondo_p2p_block {
    struct rondo_gpu_mem mem;
    size_t used;
};

struct rondo_p2p {
    struct rondo_net *net;
    const struct rondo_cuda *cuda;
    CUstream stream;
    struct rondo_p2p_block *block; /* this rank's */
    int nblocks, capacity;
    size_t first_line, nlines, max_lines; /* in the first block; lines given out; all lines */
    size_t expected;                      /* slot bytes to come */
    int zeroing;                          /* the zeroes of a block may be in flight */
    struct rondo_p2p_map *map;            /* by local rank */
    struct rondo_gpu_pinned pinned;
    struct rondo_p2p_look *look; /* in it, by local rank; then two constants, then one word a
                                           * line */
    uint64_t *constant, *word;
    int64_t deadline_ns; /* of the check; 0: not begun */
    int stuck;           /* copies, or kernels, have not ended: nothing that they use may be freed */
};

/* One end; link->state. */
struct rondo_p2p_link {
    struct rondo_p2p *owner;
    size_t line, slots; /* in the first block; in block `place` */
    int place;          /* -1: this end has no slots */
    size_t number;      /* index of its line */
    int looking;        /* a copy of the polled word is in flight */
    int zeroing;        /* so are the zeroes of its slots */
    struct rondo_lazy lazy;
};

/* ---- memory (transport_p2p_memory.c) ---- */

/** Make the device's context current and suspend this thread's captures; leave undoes both. Every entry
 * point of the transport runs between the two. */
rondo_status rondo_p2p_enter(const struct rondo_p2p *p2p, CUstreamCaptureMode *before);
void rondo_p2p_leave(CUstreamCaptureMode before);
/** Allocate all blocks of a communicator and its pinned memory; free them. Between enter and leave, as all
 * below. */
rondo_status rondo_p2p_make(struct rondo_p2p *p2p, int max_links);
void rondo_p2p_drop(struct rondo_p2p *p2p);
/** Take a line in the first block; take slots in some block, which is zeroed after one of the next two. */
rondo_status rondo_p2p_take_line(struct rondo_p2p *p2p, struct rondo_p2p_link *own);
rondo_status rondo_p2p_take_slots(struct rondo_p2p *p2p, struct rondo_p2p_link *own, size_t bytes);
/** Wait for the zeroes, within creation; or look for those of a link. @return RONDO_IN_PROGRESS: not yet. */
rondo_status rondo_p2p_zero(struct rondo_p2p *p2p);
rondo_status rondo_p2p_zeroed(struct rondo_p2p *p2p, struct rondo_p2p_link *own);
/** Find a block of a local peer; the first use opens it. name NULL: the first block. Errors are not
 * logged. */
rondo_status rondo_p2p_open(struct rondo_p2p *p2p, int local, const struct rondo_gpu_name *name,
                            struct rondo_gpu_mem *mem);
/** Wait until all of a stream's copies are done. @return RONDO_TIMEOUT after deadline_ns. */
rondo_status rondo_p2p_wait(const struct rondo_p2p *p2p, CUstream stream, int64_t deadline_ns);
/** The initial content of a rank's cell for a local peer: no other memory has it. */
void rondo_p2p_pattern(const struct rondo_gpu_name *owner, int local, uint64_t pattern[2]);
/** rondo_net_check of this transport. */
rondo_status rondo_p2p_check(struct rondo_p2p *p2p);
static inline CUdeviceptr rondo_p2p_address(const struct rondo_gpu_mem *mem, size_t offset)
{
    return (CUdeviceptr)(uintptr_t)(mem->base + offset);
}
/** Offset of a field of the cell of local rank `local`. */
#define RONDO_P2P_CELL(local, field) \
    ((size_t)(local) * sizeof(struct rondo_p2p_cell) + offsetof(struct rondo_p2p_cell, field))

#endif
