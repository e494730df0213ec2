/*
 * PXN: a rank sends by a card that is far from its GPU through a GPU of its node that is near it
 * (layout/layout.h, relay of a rondo_card). For the net transport's files; sending only; with RONDO_CUDA.
 * Between the sender, its relay and the receiver, which has another node:
 *
 *   sender's kernels --- NVLink ---> slots in the relay's GPU --- card ---> receiver, as from anybody
 *                    \-- tail, call words, sizes: the relay's segment --/
 *
 * The relay owns everything but the conn: its segment of shared memory (a header, a cell for each conn, then
 * each end's lines, headers and, where the card does not take the GPU's memory, its slots), a block of device
 * memory with the slots, the net device's comms, and one thread that moves them. All of it is made before the
 * round that tells the segment's name, so that a sender finds in its cell what the receiver must be told, and
 * says it in its own record: the receiver sees one more comm. The receiver's record goes back through the
 * cell. Ranks in one process do the same.
 *
 * A sender that finds no cell, no memory or no way goes by its own way, and an INFO says why; once it has
 * taken a cell, what goes wrong is an error: the relay's is told in the cell, and ends the communicator as
 * the sender's own device would. A relay outlives its communicator: its thread, with what it holds, stays
 * until every sender has said that it is gone (GONE), or its process is dead; so relays may be destroyed
 * first, and memory never goes while kernels may write to it. Senders leave only when all they posted is sent
 * (rondo_net_progress, busy). A process that exits meanwhile waits for them, as long as RONDO_P2P_CHECK; a
 * sender whose slices stay looks whether its relay's process is still there.
 *
 * Memory of a relay: for each conn as much as the sender's own end would take
 * (net/transport/transport_net.h), and 1.5 KiB. The thread turns without a pause while something moves, naps,
 * and sleeps after SLEEP_TURNS; a sender that has posted wakes it.
 *
 * RONDO_PXN_DISABLE=1 turns PXN off; sends and receives of the user, exchanges, and receiving never use it.
 * The log line of such a conn ends with "/PXN" and the relay's rank, and the relay logs at its end what its
 * NIC sent.
 */
#ifndef RONDO_NET_TRANSPORT_PXN_H
#define RONDO_NET_TRANSPORT_PXN_H

#include "base/cuda_mem.h"
#include "net/transport/transport_net.h"

enum { RONDO_PXN_MAGIC = 0x6e787072, RONDO_PXN_VERSION = 1 };

/* A cell's sender. The relay itself writes GONE where no sender ever came, or it is dead. */
enum rondo_pxn_sender {
    RONDO_PXN_FREE,
    RONDO_PXN_TAKEN,   /* a sender has it */
    RONDO_PXN_CONNECT, /* theirs is there */
    RONDO_PXN_CLOSED,  /* nothing is to be moved any more */
    RONDO_PXN_GONE     /* nor is any memory of the relay's in use */
};

/* A cell's relay. */
enum rondo_pxn_relay { RONDO_PXN_OFFERED, RONDO_PXN_CONNECTED, RONDO_PXN_FAILED };

struct rondo_pxn_cell {
    /* From the start. */
    int32_t from, to, channel; /* ranks */
    uint32_t protos;
    char net[64];                       /* as the graphs call it */
    uint64_t offset, slots;             /* of the end in the segment; of its slots in the header's block */
    uint8_t record[RONDO_CONNECT_DATA]; /* what the receiver gets */
    uint8_t theirs[RONDO_CONNECT_DATA]; /* and says */
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

/** Wake the relay's thread, if it sleeps. */
void rondo_pxn_ring(struct rondo_pxn_header *header);
/** Relays of this process whose thread is there. */
int rondo_pxn_relays(void);
/** Slices that a rank's relay has sent so far for others, of the relay that its net holds. */
uint64_t rondo_pxn_carried(const struct rondo_net *net);

#endif
