/*
 * Slots, credits and steps of a conn (base/conn.h): what every protocol stands on.
 *
 * A protocol is six functions, each named rondo_<proto>_*, on units of 8 bytes of payload, counted from the
 * start of the slice conn->step: capacity(slot_bytes)          bytes of payload that a slot carries
 *   wire_bytes(bytes)             bytes of the slot that a slice of so much payload takes
 *   wait(conn, unit, max)         how many units from `unit` on have arrived, at most max; never blocks; 0:
 * none yet get(conn, unit)               a unit that wait counted put(conn, unit, word)         a unit of a
 * slice for which there is credit post(conn, nunits)            units 0 .. nunits - 1 of the slice are put.
 * Simple, LL: once, at the end. LL128: whenever a line of 15 units is whole and at the end (it releases the
 * line of unit nunits - 1); more often does no harm. With several threads: their barrier first. and on the
 * CPU put_span and get_span for runs of bytes from `unit0` on: user memory may be misaligned, and the last
 * unit may be short. LL128's put_span posts its lines itself: it must end with a line or with the slice.
 *
 * A sender:   if rondo_conn_credit() { rondo_ll_clean() if due, whatever the protocol; call word, announce if
 * proxied; put..; post; rondo_conn_sent() } A receiver: while (!rondo_conn_arrived() || wait() == 0) ..;
 * get..; rondo_conn_consumed()
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

/* Sender: may slice conn->step be written? Reads the peer's word only when the credit known so far is used
 * up. */
RONDO_FN int rondo_conn_credit(struct rondo_conn *conn)
{
    if (conn->seen + RONDO_SLOTS > conn->step) return 1;
    /* Pairs with the release in rondo_conn_consumed(): the receiver's reads of the slot are over. */
    conn->seen = rondo_load_acquire(&conn->head->head);
    return conn->seen + RONDO_SLOTS > conn->step;
}

/* Sender, after post: on to the next slice. */
RONDO_FN void rondo_conn_sent(struct rondo_conn *conn)
{
    if (RONDO_UNLIKELY(conn->proxied)) rondo_store_release(&conn->tail->tail, conn->step + 1);
    conn->step++;
}

/* Receiver: has the proxy brought all of slice conn->step? 1 where there is no proxy: the protocol itself
 * knows. */
RONDO_FN int rondo_conn_arrived(struct rondo_conn *conn)
{
    if (RONDO_LIKELY(!conn->proxied) || conn->seen > conn->step) return 1;
    /* Pairs with the proxy's release: the slot is visible once tail passes our step. */
    conn->seen = rondo_load_acquire(&conn->tail->tail);
    if (conn->seen > conn->step) return 1;
    conn->wanted = 1;
    return 0;
}

/* Receiver: slice conn->step is read; its slot goes back to the sender. */
RONDO_FN void rondo_conn_consumed(struct rondo_conn *conn)
{
    conn->step++;
    rondo_store_release(&conn->head->head, conn->step);
}

#endif
