/*
 * The net transport, shared by its files: conns between ranks that share no memory, carried by a net device.
 *
 * Each end has a block of its own: the two control lines, then RONDO_SLOTS slots, each after a gap in whose last bytes the header of its message goes. The sender's proxy sends a
 * slice as one message, header and slot; its credit comes back when the device needs the slot no more. The receiver's proxy has a receive posted for every slot that
 * was consumed, checks what comes against the header, and moves the tail. All waiting is the executor's: the proxy never blocks and touches an end only when something may have
 * changed for it.
 *
 * Over a device that takes any memory (RONDO_NET_APART) a slice may be sent from, and received to, where the executor says instead of the slot (conn->outside, conn->into): only its header goes through the end's
 * memory. There a receive is posted when its slice is wanted, and not before: then it is known where to.
 *
 * Of a rank with a GPU the whole end is pinned and the conn's addresses are the device's. Its kernels post and consume whenever they are there: the proxy takes whatever comes, as far as slots are free,
 * and an error counts while the executor says so (conn->wanted, which it sets and takes back by itself).
 *
 *   | tail, head lines | gap, slot 0 | gap, slot 1 | ... |       gap and slot: multiples of RONDO_CTRL_ALIGN; one slot serves all protocols
 *
 * Bytes of an end: 256 + 8 * (128 + the largest slot), in whole pages. A device that has failed says so once somebody waits for it: a peer that has finished and left before
 * this rank is no fault.
 */
#ifndef RONDO_NET_TRANSPORT_NET_H
#define RONDO_NET_TRANSPORT_NET_H

#include "net/lazy.h"
#include "net/netdev.h"
#include "net/pinned.h"
#include "net/transport.h"

/* Before the slot in a message. */
struct rondo_net_header {
    uint32_t step; /* of the slice, low half */
    uint32_t call; /* call word, or 0 */
    uint32_t bytes, proto;
};

/* One end of a conn; link->state. */
struct rondo_net_end {
    struct rondo_link *link;
    const uint64_t *word;  /* what the executor moves: the tail of a sending end, the head of a receiving one */
    uint64_t posted, done; /* slices given to the device, and through with it */
    rondo_status failed;   /* the device's error; its sentence is in text */
    struct rondo_net_state *owner;
    const struct rondo_net_device *device;
    int index, number; /* in the owner's list (-1: not carried yet); of the device */
    void *comm, *region;
    uint8_t *memory, *address; /* here, and for the executor */
    size_t bytes, stride;
    int gpu;                    /* its conn is a GPU's */
    struct rondo_pinned pinned; /* its memory, for that GPU */
    void *request[RONDO_SLOTS];
    int apart;                     /* the device takes any memory */
    uint8_t *outside[RONDO_SLOTS]; /* the conn's */
    uint64_t passed_by;            /* slices that did not go through a slot */
    struct rondo_lazy lazy;
    char via[32];
    char text[RONDO_ERROR_TEXT];
};

/* Of one communicator. */
struct rondo_net_state {
    struct rondo_net *net;
    struct rondo_net_ends {
        struct rondo_net_end **at;
        int n, capacity;
    } ends[2]; /* those that are carried: receiving, sending */
    size_t bytes;
};

/** The slot of a slice: where its payload lies; the header ends there. */
static inline uint8_t *rondo_net_slot(const struct rondo_net_end *end, uint64_t step)
{
    return end->memory + 2 * RONDO_CTRL_ALIGN + RONDO_CTRL_ALIGN + (step % RONDO_SLOTS) * end->stride;
}

/** Carry this end from now on. */
rondo_status rondo_net_carry(struct rondo_net_end *end);
void rondo_net_drop(struct rondo_net_end *end);
/** The transport's turn (net/transport.h). */
rondo_status rondo_net_state_turn(void *state, int *moved);

#endif
