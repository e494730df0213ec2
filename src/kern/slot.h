/*
 * Slots, credits and steps of a connection (base/conn.h), which all protocols share. A protocol is a set of
 * functions named rondo_<proto>_*. They work on units of 8 bytes of payload, counted from the start of the
 * slice conn->step:
 *
 *   capacity(slot_bytes)   payload bytes of a slot
 *   wire_bytes(bytes)      bytes of the slot that a slice of that much payload occupies
 *   wait(conn, unit, max)  units that have arrived from `unit` on, at most max; 0: none; never blocks
 *   get(conn, unit)        a unit that wait counted
 *   put(conn, unit, word)  a unit of a slice for which there is credit
 *   post(conn, nunits)     release units 0 .. nunits - 1, which have been put. Simple, LL: once, at the end.
 *                          LL128: at the end and whenever a line of 15 units is complete (it releases the
 *                          line of unit nunits - 1); more often is harmless. Threads synchronise first.
 *
 * and on the CPU put_span and get_span for runs of bytes from `unit0` on. User memory may be misaligned and
 * the last unit may be short. LL128's put_span releases its lines itself: it must end with a line or with the
 * slice.
 *
 *   Sender:   if (rondo_conn_credit()) { rondo_ll_clean() if due, for every protocol; write the call word;
 *             announce if proxied; put..; post; rondo_conn_sent() }
 *   Receiver: while (!rondo_conn_arrived() || wait() == 0) ..; get..; rondo_conn_consumed()
 */
#ifndef RONDO_KERN_SLOT_H
#define RONDO_KERN_SLOT_H

#include <string.h>
#include "base/conn.h"
#include "kern/machine.h"

/* The slot of slice conn->step. */
RONDO_FN rondo_word *rondo_conn_slot(const struct rondo_conn *conn, enum rondo_proto proto)
{
    return (rondo_word *)(void *)(conn->slots[proto] + (conn->step % RONDO_SLOTS) *
                                                           (conn->slot_bytes[proto] + conn->slot_gap[proto]));
}

/* Sender: may it write slice conn->step? Reads the peer's word only when the known credit is used up. */
RONDO_FN int rondo_conn_credit(struct rondo_conn *conn)
{
    if (conn->seen + RONDO_SLOTS > conn->step) return 1;
    /* Pairs with the release in rondo_conn_consumed(): the receiver has finished reading the slot. */
    conn->seen = rondo_load_acquire(&conn->head->head);
    return conn->seen + RONDO_SLOTS > conn->step;
}

/* Sender, after post: go on to the next slice. */
RONDO_FN void rondo_conn_sent(struct rondo_conn *conn)
{
    if (RONDO_UNLIKELY(conn->proxied)) rondo_store_release(&conn->tail->tail, conn->step + 1);
    conn->step++;
}

/* Receiver: has the proxy delivered the whole slice conn->step? Without a proxy 1: the protocol tells. */
RONDO_FN int rondo_conn_arrived(struct rondo_conn *conn)
{
    if (RONDO_LIKELY(!conn->proxied) || conn->seen > conn->step) return 1;
    /* Pairs with the proxy's release: the slot is visible once tail has passed this step. */
    conn->seen = rondo_load_acquire(&conn->tail->tail);
    if (conn->seen > conn->step) return 1;
    conn->wanted = 1;
    return 0;
}

/* Receiver: slice conn->step has been read; return its slot to the sender. */
RONDO_FN void rondo_conn_consumed(struct rondo_conn *conn)
{
    conn->step++;
    rondo_store_release(&conn->head->head, conn->step);
}

#endif
