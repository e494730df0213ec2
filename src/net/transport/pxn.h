/*
 * PXN: a rank sends through a NIC that is far from its own GPU by way of another GPU of its node that is near
 * the NIC (layout/layout.h, relay of a rondo_nic). Private to the net transport; for sending only; with
 * RONDO_CUDA. The receiver is on another node:
 *
 *   sender's kernels --- NVLink ---> slots in the relay's GPU --- NIC ---> receiver, as from any sender
 *                    \-- tail, call words, sizes: the relay's segment --/
 *
 * The relay owns everything but the conn: a segment of shared memory (a header, one cell for each conn, then
 * each end's lines, headers and, if the NIC does not take the GPU's memory, its slots), a block of device
 * memory with the slots, the net device's comms, and one thread that progresses them. It makes all of this
 * before the round that publishes the segment's name. A sender finds in its cell the record for the receiver
 * and sends it as its own: the receiver sees one more comm. The receiver's record comes back through the
 * cell. Ranks of one process do the same.
 *
 * A sender that finds no cell, memory or P2P mode uses its own NIC, and an INFO line says why. Once it has
 * taken a cell, failures are errors: the relay writes its error into the cell, which ends the communicator as
 * the sender's own device would.
 *
 * A relay outlives its communicator: its thread keeps all memory until every sender has written GONE or its
 * process is dead. So relays may be destroyed first, and no memory goes while kernels may write to it.
 * Senders leave only when everything they posted is sent (rondo_net_progress, busy). A process that exits
 * meanwhile waits for them, up to RONDO_P2P_CHECK. A sender whose slices do not move checks that its relay's
 * process is alive.
 *
 * A relay takes, for each conn, the memory of the sender's own end (net/transport/transport_net.h) and 1.5
 * KiB. The thread polls while something moves, then naps, and after SLEEP_ROUNDS sleeps; a sender that posts
 * wakes it.
 *
 * RONDO_PXN_DISABLE=1 turns PXN off. User sends and receives, recursive doubling and all receiving never use
 * it. The log line of such a conn ends with "/PXN" and the relay's rank; at its end the relay logs what its
 * NIC sent.
 */
#ifndef RONDO_NET_TRANSPORT_PXN_H
#define RONDO_NET_TRANSPORT_PXN_H

#include "base/cuda_mem.h"
#include "net/transport/transport_net.h"

enum { RONDO_PXN_MAGIC = 0x6e787072, RONDO_PXN_VERSION = 1 };

/* State of a cell's sender. The relay itself writes GONE if no sender ever came or the sender is dead. */
enum rondo_pxn_sender {
    RONDO_PXN_FREE,
    RONDO_PXN_TAKEN,   /* a sender has taken the cell */
    RONDO_PXN_CONNECT, /* `theirs` is written */
    RONDO_PXN_CLOSED,  /* nothing more to send */
    RONDO_PXN_GONE     /* and the sender uses no memory of the relay */
};

/* State of a cell's relay. */
enum rondo_pxn_relay { RONDO_PXN_OFFERED, RONDO_PXN_CONNECTED, RONDO_PXN_FAILED };

struct rondo_pxn_cell {
    /* Constant once published. */
    int32_t from, to, channel; /* ranks */
    uint32_t protos;
    char net[64];                       /* name in the graphs */
    uint64_t offset, slots;             /* of the end in the segment; of its slots in the header's block */
    uint8_t record[RONDO_CONNECT_DATA]; /* the record for the receiver */
    uint8_t theirs[RONDO_CONNECT_DATA]; /* the receiver's record */
    uint32_t sender, relay; /* enum rondo_pxn_sender, enum rondo_pxn_relay; atomic: release, acquire */
    uint32_t gdr;           /* once connected: the slots are in the block, not in the segment */
    int32_t status;         /* once failed: rondo_status and its sentence */
    char via[64], text[RONDO_ERROR_TEXT]; /* via: once connected */
};

struct rondo_pxn_header {
    uint32_t magic, version;
    int32_t rank, ncells;
    uint64_t bytes;        /* of the segment */
    uint32_t bell, asleep; /* atomic; the thread sleeps on bell (futex) while asleep */
    struct rondo_gpu_name block;
    struct rondo_pxn_cell cell[];
};

/** Wake the relay's thread if it sleeps. */
void rondo_pxn_ring(struct rondo_pxn_header *header);
/** @return the number of relays of this process whose thread runs. */
int rondo_pxn_relays(void);
/** @return the number of slices that the relay of this net has sent for other ranks. */
uint64_t rondo_pxn_carried(const struct rondo_net *net);

/* ---- what the state of a net has: its relay (pxn_relay.c) and its senders (pxn_sender.c) ---- */

/* The process of another rank. */
struct rondo_pxn_process {
    int32_t pid;
    uint64_t start; /* rondo_process_start; 0: unknown */
};

/* A local rank's relay, opened here for this rank's conns. */
struct rondo_pxn_map {
    struct rondo_shm shm;
    struct rondo_pxn_header *header; /* NULL: not open */
    struct rondo_gpu_mem block;      /* base NULL: it has no block */
    int ncells;                      /* read once, when opened */
    int shut;                        /* opening failed: not tried again */
    struct rondo_pxn_process owner;  /* the relay's process */
};

/* A sending end's use of a relay. */
struct rondo_pxn_use {
    struct rondo_pxn_map *map;
    struct rondo_pxn_cell *cell;
    int relay;        /* rank */
    int asked;        /* `theirs` is written */
    int64_t still_ns; /* when the head was first seen at its present value, or the relay's process was last
                   * checked; 0: the head moves */
};

enum { RONDO_PXN_LOOK_NS = 500000000 }; /* interval between checks of a process that does not answer */

struct rondo_pxn_thread;
struct rondo_pxn {
    struct rondo_pxn_map *map; /* by local rank; NULL: no sender needed one */
    struct rondo_pxn_thread *relay;
};

/** Identify a rank's process while it is known to be alive. rondo_pxn_is_dead tells whether it has ended,
 * even if it is a zombie or another process has its pid now. */
struct rondo_pxn_process rondo_pxn_process(const struct rondo_net *net, int rank);
int rondo_pxn_is_dead(const struct rondo_pxn_process *process);
/** Mark the cell's relay as failed, with this thread's error sentence. */
void rondo_pxn_cell_fail(struct rondo_pxn_cell *cell, rondo_status status);
/** Get the state's rondo_pxn; the first call creates it. */
rondo_status rondo_pxn_get(struct rondo_net_state *state, struct rondo_pxn **pxn);
/** Release the names of the relay's memory. */
void rondo_pxn_relay_settle(struct rondo_pxn_thread *relay);
/** The relay's communicator closes: the relay stays until its senders have left. */
void rondo_pxn_relay_leave(struct rondo_pxn_thread *relay);

static inline uint32_t rondo_pxn_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void rondo_pxn_store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline int rondo_pxn_swap(uint32_t *word, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

#endif
