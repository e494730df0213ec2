/*
 * A mailbox: memory of a node where each rank has one place to publish a small message for all.
 *
 * Place of rank r, bank b: {arrival word, payload}. Up to RONDO_MAILBOX_INLINE bytes of payload share the
 * arrival word's cache line, so that a small message costs one cache-line transfer per reader. A longer
 * payload begins with the next line, since whole lines are copied faster (2 KiB by a quarter). Two banks used
 * in turn need no trailing barrier: a rank that publishes operation k + 2 has seen everyone publish k + 1,
 * and everyone publishes k + 1 only after reading k. Arrival word: call word (high 32 bits) and operation
 * number (low 32 bits, never 0).
 *
 * Two ranks swap two places: what a rank has read in operation k it writes in k + 1. A line that another core
 * has written comes with the right to write it, so that no rank waits to get back what it wrote before, which
 * is half of a small exchange. With more readers, a line stays with none of them. Once published, a message
 * no longer belongs to its rank: nobody reads its own.
 *
 * After the places, on separate lines, are the marks: one per rank, set while it touches others' buffers, and
 * one for all, set once some rank has revoked access to its buffers. A rank sets its mark before it reads the
 * common one; a rank that revokes access sets the common one before it reads the others: one of the two sees
 * the other (kern/cpu/exec_cpu.h).
 *
 * A rank that has to wait shows on which core it runs: others that wait for it look longer before they yield
 * if that is not their own core.
 */
#ifndef RONDO_BASE_MAILBOX_H
#define RONDO_BASE_MAILBOX_H

#include "base/types.h"

enum { RONDO_MAILBOX_BANKS = 2, RONDO_MAILBOX_INLINE = RONDO_CACHE_LINE - 8 };

/* Few ranks: their places are larger, an all_reduce may be mail_twoshot (coll/oneshot.h), and rooted calls
 * have places of their own. */
enum { RONDO_MAILBOX_FEW = 8 };

/* Rooted calls (broadcast, reduce) of few ranks have places of their own, of the same form and of a size
 * within these limits, after the counts. A rank that only sends does not wait for its receivers, but is at
 * most RONDO_ROOTED_BANKS calls ahead: everyone publishes in every such call, if need be without payload, and
 * a rank that has published call k has read what it needs of all calls before k. */
enum {
    RONDO_ROOTED_BANKS = 8,
    RONDO_ROOTED_LEAST = 384 - RONDO_CACHE_LINE,
    RONDO_ROOTED_MOST = 16 << 10 /* payload bytes */
};

struct rondo_mailbox {
    uint8_t *places; /* rondo_mailbox_place */
    size_t stride;   /* bytes of a place, a multiple of RONDO_CTRL_ALIGN */
    size_t capacity; /* payload bytes of a place */
    int32_t index, nranks;
    uint32_t op; /* operations published by this rank */
    /* the same for rooted calls; and the last one that all are known to have published */
    uint32_t rooted, rooted_seen;
};

/* Offset in a place of a payload of that many bytes. */
RONDO_FN size_t rondo_mailbox_at(size_t bytes)
{
    return bytes <= RONDO_MAILBOX_INLINE ? 8 : RONDO_CACHE_LINE;
}
RONDO_FN size_t rondo_mailbox_stride(size_t capacity)
{
    return (RONDO_CACHE_LINE + capacity + RONDO_CTRL_ALIGN - 1) / RONDO_CTRL_ALIGN * RONDO_CTRL_ALIGN;
}
/* Payload bytes of a rooted place, by that of the other places. */
RONDO_FN size_t rondo_rooted_capacity(size_t capacity)
{
    return capacity < RONDO_ROOTED_LEAST  ? (size_t)RONDO_ROOTED_LEAST
           : capacity > RONDO_ROOTED_MOST ? (size_t)RONDO_ROOTED_MOST
                                          : capacity;
}
RONDO_FN size_t rondo_mailbox_nplaces(int nranks)
{
    return nranks == 2 ? 2 : RONDO_MAILBOX_BANKS * (size_t)nranks;
}
RONDO_FN size_t rondo_mailbox_bytes(size_t capacity, int nranks)
{
    size_t rooted = nranks > RONDO_MAILBOX_FEW ? 0
                                               : rondo_mailbox_stride(rondo_rooted_capacity(capacity)) *
                                                     RONDO_ROOTED_BANKS * (size_t)nranks;
    return rondo_mailbox_stride(capacity) * rondo_mailbox_nplaces(nranks) +
           (2 * (size_t)nranks + 1) * RONDO_CTRL_ALIGN + rooted;
}
RONDO_FN uint8_t *rondo_mailbox_place(const struct rondo_mailbox *b, uint32_t op, int rank)
{
    size_t at = b->nranks == 2 ? (op + (uint32_t)rank) & 1 : (op & 1) * (size_t)b->nranks + (size_t)rank;
    return b->places + at * b->stride;
}
/* rank == nranks: the common mark. */
RONDO_FN uint32_t *rondo_mailbox_mark(const struct rondo_mailbox *b, int rank)
{
    return (uint32_t *)(void *)(b->places + b->stride * rondo_mailbox_nplaces(b->nranks) +
                                (size_t)rank * RONDO_CTRL_ALIGN);
}
/* How far a rank has come between OPEN and CLOSE of a call (coll/hierarchical.h), on a separate line after
 * the marks. */
RONDO_FN uint32_t *rondo_mailbox_count(const struct rondo_mailbox *b, int rank)
{
    return rondo_mailbox_mark(b, b->nranks + 1 + rank);
}
/* The core on which a rank last waited, from 1 on; 0: it has not. On the line after the count. */
RONDO_FN uint32_t *rondo_mailbox_core(const struct rondo_mailbox *b, int rank)
{
    return rondo_mailbox_count(b, rank) + RONDO_CACHE_LINE / sizeof(uint32_t);
}
RONDO_FN uint8_t *rondo_mailbox_rooted(const struct rondo_mailbox *b, uint32_t op, int rank)
{
    uint8_t *first = (uint8_t *)rondo_mailbox_count(b, b->nranks);
    size_t stride = rondo_mailbox_stride(rondo_rooted_capacity(b->capacity));
    return first + ((size_t)rank * RONDO_ROOTED_BANKS + op % RONDO_ROOTED_BANKS) * stride;
}

#endif
