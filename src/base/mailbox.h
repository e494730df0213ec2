/*
 * A mailbox: memory that all ranks of a node see, in which each rank has a place to post one message for
 * everybody.
 *
 * Place of rank r, bank b: {arrival word, payload}: up to RONDO_MAILBOX_INLINE bytes of payload share the
 * arrival word's cache line, so that a small message costs one cache-line transfer per reader; a longer
 * payload begins with the next line, since whole lines are copied faster (of 2 KiB a quarter). Two banks used
 * in turn need no trailing barrier: whoever posts operation k + 2 has seen everyone post k + 1, and everyone
 * posts k + 1 only after having read k. Arrival word: call word (high 32 bits) and operation number (low 32
 * bits, never 0).
 *
 * Two ranks hand two places over to one another: what a rank has read in operation k it writes in k + 1. A
 * line that another core has written comes with the right to write it, so that nobody waits to get back what
 * it wrote before, which is half of a small exchange. Where there are more readers a line stays with none of
 * them. A rank's post is no longer its own once it is posted: nobody reads what it has posted itself.
 *
 * Behind the places, on lines of their own, the marks: of each rank whether it touches others' buffers at
 * this moment, and of all whether somebody has taken its buffers back. A rank marks itself before it looks at
 * the latter; who takes its buffers back says so before it looks at the former: one of the two sees the other
 * (kern/cpu/exec_cpu.h).
 */
#ifndef RONDO_BASE_MAILBOX_H
#define RONDO_BASE_MAILBOX_H

#include "base/types.h"

enum { RONDO_MAILBOX_BANKS = 2, RONDO_MAILBOX_INLINE = RONDO_CACHE_LINE - 8 };

/*
 * What one rank has for all, or all for one: places of their own, of the same form and of a size in the
 * limits below, behind the counts, where there are few ranks. Who only sends does not wait for who receives
 * it, but is RONDO_ROOTED_BANKS calls ahead at most: everyone posts in every such call (who has nothing to
 * say, nothing), and who has posted call k has read what was for it in all calls before k.
 */
enum {
    RONDO_ROOTED_BANKS = 8,
    RONDO_ROOTED_RANKS = 8,
    RONDO_ROOTED_LEAST = 384 - RONDO_CACHE_LINE,
    RONDO_ROOTED_MOST = 16 << 10 /* payload bytes */
};

struct rondo_mailbox {
    uint8_t *places; /* rondo_mailbox_place */
    size_t stride;   /* bytes of a place: multiple of RONDO_CTRL_ALIGN */
    size_t capacity; /* payload bytes of a place */
    int32_t index, nranks;
    uint32_t op;                  /* operations posted by this rank */
    uint32_t rooted, rooted_seen; /* the same of one for all and all for one; and what all are known to have
                                     posted of these */
};

/* Where in a place a payload of so many bytes lies. */
RONDO_FN size_t rondo_mailbox_at(size_t bytes)
{
    return bytes <= RONDO_MAILBOX_INLINE ? 8 : RONDO_CACHE_LINE;
}
RONDO_FN size_t rondo_mailbox_stride(size_t capacity)
{
    return (RONDO_CACHE_LINE + capacity + RONDO_CTRL_ALIGN - 1) / RONDO_CTRL_ALIGN * RONDO_CTRL_ALIGN;
}
/* Payload bytes of a rooted place of a mailbox with so many in its others. */
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
    size_t rooted = nranks > RONDO_ROOTED_RANKS ? 0
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
/* rank nranks: the mark of all. */
RONDO_FN uint32_t *rondo_mailbox_mark(const struct rondo_mailbox *b, int rank)
{
    return (uint32_t *)(void *)(b->places + b->stride * rondo_mailbox_nplaces(b->nranks) +
                                (size_t)rank * RONDO_CTRL_ALIGN);
}
/* How far a rank has come between OPEN and CLOSE of a call (coll/hierarchical.h): a line of its own behind
 * the marks. */
RONDO_FN uint32_t *rondo_mailbox_count(const struct rondo_mailbox *b, int rank)
{
    return rondo_mailbox_mark(b, b->nranks + 1 + rank);
}
RONDO_FN uint8_t *rondo_mailbox_rooted(const struct rondo_mailbox *b, uint32_t op, int rank)
{
    uint8_t *first = (uint8_t *)rondo_mailbox_count(b, b->nranks);
    size_t stride = rondo_mailbox_stride(rondo_rooted_capacity(b->capacity));
    return first + ((size_t)rank * RONDO_ROOTED_BANKS + op % RONDO_ROOTED_BANKS) * stride;
}

#endif
