/*
 * A conn: one direction of a channel between two ranks. A transport (net/) fills it in, an executor (kern/)
 * moves data through it.
 *
 *        sender                                   receiver
 *   head  <------------- credits -------------    writes head after it has consumed a slot
 *   writes slots, then tail ----------------->    tail
 *
 * The slots of each protocol and `tail` lie at the receiver, `head` at the sender, so that each side polls
 * its own memory. `step` counts slices since creation on both sides; slice s lies in slot s % RONDO_SLOTS. A
 * sender may post slice s once head + RONDO_SLOTS > s. Slice s has arrived once tail > s (Simple), or once
 * its flags say s + 1 (LL, LL128). The memory belongs to the transport's link and outlives the conn.
 *
 * Between nodes a proxy carries the slices, and each end has slots, head and tail of its own. The sender
 * announces protocol and bytes of each slice before it fills it, and posts the tail whatever the protocol.
 * The proxy moves the slice, returns the credit, and advances the receiver's tail once the whole slice is
 * there. One slot serves all protocols, so an earlier slice may have left what looks like a flag: flags count
 * only below the tail.
 */
#ifndef RONDO_BASE_CONN_H
#define RONDO_BASE_CONN_H

#include "base/types.h"

/* Written by the sender, read by the receiver, on a line of its own. */
struct rondo_conn_tail {
    uint64_t tail; /* slices posted: Simple, and the first of a GPU's message; LL and LL128 carry flags */
    uint32_t call[RONDO_SLOTS]; /* word of the call that began in this slot, or 0; written before the post */
    uint64_t size[RONDO_SLOTS]; /* proxied: rondo_conn_size() of the slice; written before the post */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* Written by the receiver, read by the sender, on a line of its own. */
struct rondo_conn_head {
    uint64_t head; /* slices consumed */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* One end of a conn, private to its rank. */
struct rondo_conn {
    uint8_t *slots[RONDO_NUM_PROTOS];      /* RONDO_SLOTS each, 128-byte aligned; NULL: protocol not in use */
    uint32_t slot_bytes[RONDO_NUM_PROTOS]; /* bytes of one slot, a multiple of 128 */
    uint32_t slot_gap[RONDO_NUM_PROTOS];   /* from the end of one slot to the next */
    struct rondo_conn_tail *tail;
    struct rondo_conn_head *head;
    uint64_t step; /* sender: slices posted; receiver: slices consumed */
    uint64_t
        seen; /* last value read of head (sender) or tail (receiver): saves a cache miss while it suffices */
    int32_t peer; /* rank at the other end */
    int32_t channel;
    uint32_t call_set; /* sender: bit per slot whose call word is not 0 */
    uint8_t proxied;   /* a proxy carries the slices */
    uint8_t wanted;    /* proxied receiver: an executor waits for the next slice; the proxy clears it */
    const char *via;   /* transport's name, for messages */
    /*
     * For a proxy whose device takes any memory, else NULL. outside[slot]: where the slice lies; NULL: in the
     * slot. A sender sets it before it posts, and does not change that memory until head is past the slice.
     * A receiver that wants a slice offers `into`, with room for exactly slice `step`, and withdraws it when
     * it goes on; the proxy may use it. `into_ahead`: bytes behind it for the following slices, which have
     * the same length except for the last.
     */
    uint8_t **outside;
    uint8_t *into;
    uint32_t into_bytes, into_ahead;
};

enum { RONDO_MAX_DIMS = 10 };

/* One seat's conns of one channel, by port (coll/step.h). Entries that do not exist are NULL. */
enum rondo_port {
    RONDO_PORT_RING = 0,   /* recv: previous rank of the ring; send: next */
    RONDO_PORT_PARENT = 1, /* recv: broadcast from the parent; send: reduction to it */
    RONDO_PORT_CHILD = 2,  /* RONDO_PORT_CHILD + i */
    RONDO_PORT_PEER = RONDO_PORT_CHILD + RONDO_TREE_FAN, /* the one peer of a send or recv */
    RONDO_PORT_DIM = RONDO_PORT_PEER + 1, /* RONDO_PORT_DIM + j: partner j of recursive doubling */
    RONDO_NUM_PORTS = RONDO_PORT_DIM + RONDO_MAX_DIMS
};
struct rondo_ports {
    struct rondo_conn *recv[RONDO_NUM_PORTS], *send[RONDO_NUM_PORTS];
};

/* Announces a slice to the proxy: its protocol, and its bytes as the protocol lays them out. The lap number
 * distinguishes it from the slot's previous slice. */
RONDO_FN uint64_t rondo_conn_size(uint64_t step, int proto, size_t wire_bytes)
{
    return (step / RONDO_SLOTS + 1) << 34 | (uint64_t)proto << 32 | (uint32_t)wire_bytes;
}
RONDO_FN uint32_t rondo_conn_size_bytes(uint64_t size) { return (uint32_t)size; }
RONDO_FN int rondo_conn_size_proto(uint64_t size) { return (int)(size >> 32 & 3); }

/* The 32-bit call word: sequence number and hash of {collective, count, type, op, root}; never 0. If the ends
 * have different words, the calls differ. */
RONDO_FN uint32_t rondo_call_word(uint64_t seq, uint64_t call_hash)
{
    uint64_t x = (seq + 1) * 0x9e3779b97f4a7c15ull ^ call_hash;
    x ^= x >> 32;
    return (uint32_t)x | 1u;
}

#endif
