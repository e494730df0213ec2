/*
 * LL: each half of a unit travels with a flag in one 8-byte store, so that arrival costs no barrier and no
 * second cache miss. Half of a slot is payload.
 *
 *   line (16 bytes) = data32 flag32 data32 flag32
 *
 * The flag is the low half of step + 1. Short slices leave lines with old flags, which would match again
 * after 2^32 steps. So the sender zeroes every slot twice in 2^32 steps (rondo_ll_clean); 0, which fresh and
 * cleaned memory holds, is never a flag.
 */
#ifndef RONDO_KERN_PROTO_LL_H
#define RONDO_KERN_PROTO_LL_H

#include "kern/slot.h"

RONDO_FN size_t rondo_ll_capacity(size_t slot_bytes) { return slot_bytes / 16 * 8; }
RONDO_FN size_t rondo_ll_wire_bytes(size_t bytes) { return (bytes + 7) / 8 * 16; }

/* The flag of a step, shifted to its place in a word. Where the low half of step + 1 is 0 the flag is 1,
 * which no other step of that slot has: their flags are multiples of RONDO_SLOTS. */
RONDO_FN uint64_t rondo_ll_flag(uint64_t step)
{
    uint32_t flag = (uint32_t)(step + 1);
    return (uint64_t)(flag + (flag == 0)) << 32;
}

/* One lap of the slots, twice in 2^32 steps. */
RONDO_FN int rondo_ll_clean_due(uint64_t step)
{
    const uint32_t lap = 0x80000000u - RONDO_SLOTS;
    return RONDO_UNLIKELY(((uint32_t)step & lap) == lap);
}

/* Zero a slot. The sender calls it when due, with credit for slice conn->step and before the first put of it,
 * whatever the slice's protocol: the next lap may use LL. One thread does it. */
RONDO_FN void rondo_ll_clean(const struct rondo_conn *conn)
{
    if (conn->slots[RONDO_PROTO_LL] == NULL) return;
    rondo_word *slot = rondo_conn_slot(conn, RONDO_PROTO_LL);
    for (size_t i = 0; i < conn->slot_bytes[RONDO_PROTO_LL] / 8; i++) {
        rondo_store_relaxed(slot + i, 0);
    }
}

RONDO_FN size_t rondo_ll_wait(const struct rondo_conn *conn, size_t unit, size_t max_units)
{
    const rondo_word *line = rondo_conn_slot(conn, RONDO_PROTO_LL) + 2 * unit;
    const uint64_t flag = rondo_ll_flag(conn->step);
    size_t n = 0;
    for (; n < max_units; n++, line += 2) {
        uint64_t lo, hi;
        rondo_load_pair(line, &lo, &hi);
        if ((((lo ^ flag) | (hi ^ flag)) >> 32) != 0) break;
    }
    return n;
}

RONDO_FN uint64_t rondo_ll_get(const struct rondo_conn *conn, size_t unit)
{
    uint64_t lo, hi;
    rondo_load_pair(rondo_conn_slot(conn, RONDO_PROTO_LL) + 2 * unit, &lo, &hi);
    return (lo & 0xffffffffu) | hi << 32;
}

RONDO_FN void rondo_ll_put(const struct rondo_conn *conn, size_t unit, uint64_t word)
{
    const uint64_t flag = rondo_ll_flag(conn->step);
    rondo_store_pair(rondo_conn_slot(conn, RONDO_PROTO_LL) + 2 * unit, (word & 0xffffffffu) | flag,
                     word >> 32 | flag);
}

/* Nothing to do: each unit carries its flag. */
RONDO_FN void rondo_ll_post(const struct rondo_conn *conn, size_t nunits)
{
    (void)conn;
    (void)nunits;
}

#ifndef __CUDACC__
RONDO_FN void rondo_ll_put_span(const struct rondo_conn *conn, size_t unit0, const void *src, size_t bytes)
{
    const uint8_t *from = (const uint8_t *)src;
    const uint64_t flag = rondo_ll_flag(
        conn->step); /* load it once: a store to a line could alias the conn */
    rondo_word *line = rondo_conn_slot(conn, RONDO_PROTO_LL) + 2 * unit0;
    uint64_t word;
    for (; bytes >= 8; bytes -= 8, from += 8, line += 2) {
        memcpy(&word, from, 8);
        rondo_store_pair(line, (word & 0xffffffffu) | flag, word >> 32 | flag);
    }
    if (bytes > 0) {
        word = 0;
        memcpy(&word, from, bytes);
        rondo_store_pair(line, (word & 0xffffffffu) | flag, word >> 32 | flag);
    }
}

RONDO_FN void rondo_ll_get_span(const struct rondo_conn *conn, size_t unit0, void *dst, size_t bytes)
{
    uint8_t *to = (uint8_t *)dst;
    const rondo_word *line = rondo_conn_slot(conn, RONDO_PROTO_LL) + 2 * unit0;
    uint64_t lo, hi, word;
    for (; bytes >= 8; bytes -= 8, to += 8, line += 2) {
        rondo_load_pair(line, &lo, &hi);
        word = (lo & 0xffffffffu) | hi << 32;
        memcpy(to, &word, 8);
    }
    if (bytes > 0) {
        rondo_load_pair(line, &lo, &hi);
        word = (lo & 0xffffffffu) | hi << 32;
        memcpy(to, &word, bytes);
    }
}
#endif

#endif
