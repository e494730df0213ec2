/* LL128: lines of 128 bytes with 15 units of payload and a flag word, step + 1, which is released when the
 * line is complete. 15/16 of a slot is payload, and arrival is seen line by line. Flags have 64 bits: none
 * recurs, and 0 (fresh memory) is never one. */
#ifndef RONDO_KERN_PROTO_LL128_H
#define RONDO_KERN_PROTO_LL128_H

#include "kern/slot.h"

enum { RONDO_LL128_LINE = 16, RONDO_LL128_DATA = 15 }; /* words of a line, and how many are payload */

RONDO_FN size_t rondo_ll128_capacity(size_t slot_bytes)
{
    return slot_bytes / (8 * RONDO_LL128_LINE) * (8 * RONDO_LL128_DATA);
}
RONDO_FN size_t rondo_ll128_wire_bytes(size_t bytes)
{
    return (bytes + 8 * RONDO_LL128_DATA - 1) / (8 * RONDO_LL128_DATA) * (8 * RONDO_LL128_LINE);
}

RONDO_FN rondo_word *rondo_ll128_line(const struct rondo_conn *conn, size_t unit)
{
    return rondo_conn_slot(conn, RONDO_PROTO_LL128) + unit / RONDO_LL128_DATA * RONDO_LL128_LINE;
}

RONDO_FN size_t rondo_ll128_wait(const struct rondo_conn *conn, size_t unit, size_t max_units)
{
    const rondo_word *line = rondo_ll128_line(conn, unit);
    const size_t before = unit % RONDO_LL128_DATA; /* units of the first line before `unit` */
    size_t n = 0;
    /* Pairs with the release in rondo_ll128_post(): the line's payload is visible with its flag. */
    while (n < before + max_units && rondo_load_acquire(line + RONDO_LL128_DATA) == conn->step + 1) {
        n += RONDO_LL128_DATA;
        line += RONDO_LL128_LINE;
    }
    if (n < before) return 0;
    return n - before < max_units ? n - before : max_units;
}

RONDO_FN uint64_t rondo_ll128_get(const struct rondo_conn *conn, size_t unit)
{
    return rondo_load_word(rondo_ll128_line(conn, unit) + unit % RONDO_LL128_DATA);
}
RONDO_FN void rondo_ll128_put(const struct rondo_conn *conn, size_t unit, uint64_t word)
{
    rondo_store_word(rondo_ll128_line(conn, unit) + unit % RONDO_LL128_DATA, word);
}
RONDO_FN void rondo_ll128_post(const struct rondo_conn *conn, size_t nunits)
{
    if (nunits > 0)
        rondo_store_release(rondo_ll128_line(conn, nunits - 1) + RONDO_LL128_DATA, conn->step + 1);
}

#ifndef __CUDACC__
/* Releases the lines that it fills: a span must end with a line (15 units) or with the slice. */
RONDO_FN void rondo_ll128_put_span(const struct rondo_conn *conn, size_t unit0, const void *src, size_t bytes)
{
    const uint8_t *from = (const uint8_t *)src;
    const uint64_t flag = conn->step + 1;
    rondo_word *line = rondo_ll128_line(conn, unit0);
    size_t before = unit0 % RONDO_LL128_DATA, room = 8 * (RONDO_LL128_DATA - before);
    for (; bytes >= room; before = 0, room = 8 * RONDO_LL128_DATA, line += RONDO_LL128_LINE) {
        if (RONDO_LIKELY(before == 0))
            memcpy(line, from, 8 * RONDO_LL128_DATA); /* a constant size becomes a few vector moves */
        else
            memcpy(line + before, from, room);
        rondo_store_release(line + RONDO_LL128_DATA, flag);
        from += room;
        bytes -= room;
    }
    if (bytes > 0) {
        memcpy(line + before, from, bytes);
        rondo_store_release(line + RONDO_LL128_DATA, flag);
    }
}

RONDO_FN void rondo_ll128_get_span(const struct rondo_conn *conn, size_t unit0, void *dst, size_t bytes)
{
    uint8_t *to = (uint8_t *)dst;
    const rondo_word *line = rondo_ll128_line(conn, unit0);
    size_t before = unit0 % RONDO_LL128_DATA, room = 8 * (RONDO_LL128_DATA - before);
    for (; bytes >= room; before = 0, room = 8 * RONDO_LL128_DATA, line += RONDO_LL128_LINE) {
        if (RONDO_LIKELY(before == 0))
            memcpy(to, line, 8 * RONDO_LL128_DATA);
        else
            memcpy(to, line + before, room);
        to += room;
        bytes -= room;
    }
    if (bytes > 0) memcpy(to, line + before, bytes);
}
#endif

#endif
