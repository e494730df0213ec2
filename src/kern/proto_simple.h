/* Simple: a slot is all payload, and conn->tail announces it. One release per slice: the least work per byte,
 * the highest latency. */
#ifndef RONDO_KERN_PROTO_SIMPLE_H
#define RONDO_KERN_PROTO_SIMPLE_H

#include "kern/slot.h"

RONDO_FN size_t rondo_simple_capacity(size_t slot_bytes) { return slot_bytes; }

RONDO_FN size_t rondo_simple_wire_bytes(size_t bytes) { return bytes; }

/* The slot itself; reductions work on it in place. */
RONDO_FN uint8_t *rondo_simple_slot(const struct rondo_conn *conn)
{
    return (uint8_t *)rondo_conn_slot(conn, RONDO_PROTO_SIMPLE);
}

RONDO_FN size_t rondo_simple_wait(struct rondo_conn *conn, size_t unit, size_t max_units)
{
    (void)unit;
    if (conn->seen <= conn->step) {
        /* Pairs with the release in rondo_simple_post(): the slot is visible once tail passes our step. */
        conn->seen = rondo_load_acquire(&conn->tail->tail);
        if (conn->seen <= conn->step) return 0;
    }
    return max_units;
}

RONDO_FN uint64_t rondo_simple_get(const struct rondo_conn *conn, size_t unit)
{
    return rondo_load_word(rondo_conn_slot(conn, RONDO_PROTO_SIMPLE) + unit);
}
RONDO_FN void rondo_simple_put(const struct rondo_conn *conn, size_t unit, uint64_t word)
{
    rondo_store_word(rondo_conn_slot(conn, RONDO_PROTO_SIMPLE) + unit, word);
}
RONDO_FN void rondo_simple_post(const struct rondo_conn *conn, size_t nunits)
{
    (void)nunits;
    rondo_store_release(&conn->tail->tail, conn->step + 1);
}

#ifndef __CUDACC__
RONDO_FN void rondo_simple_put_span(const struct rondo_conn *conn, size_t unit0, const void *src,
                                    size_t bytes)
{
    memcpy(rondo_simple_slot(conn) + 8 * unit0, src, bytes);
}
RONDO_FN void rondo_simple_get_span(const struct rondo_conn *conn, size_t unit0, void *dst, size_t bytes)
{
    memcpy(dst, rondo_simple_slot(conn) + 8 * unit0, bytes);
}
#endif

#endif
