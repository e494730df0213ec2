/*
 * Small rounds of a split within one node. Every rank of the parent has a place for its record in the
 * parent's segment, and all others read it there: one hop, no messages. bootstrap_control.c uses them for
 * allgathers that fit: the pieces of its tree are then read there, and deaths, deadlines and reasons are
 * found as in other rounds.
 *
 * A place has three banks: one for the colours, which all of the parent's ranks read, and two that the rounds
 * of the child use in turn. A rank that starts round k + 2 has seen all members in round k + 1, so all have
 * read round k. The places of RONDO_SPLIT_SLOTS splits may be in use at once; the next split waits until all
 * ranks have ended the one whose place it takes (rondo_control_split_end).
 */
#ifndef RONDO_NET_BOOTSTRAP_BOOTSTRAP_NODE_H
#define RONDO_NET_BOOTSTRAP_BOOTSTRAP_NODE_H

#include "net/control/control_impl.h"

struct rondo_node_rounds {
    uint64_t serial; /* of the split, counted from 1 by the parent's ranks alike; 0: not used */
    int of_child;    /* 0: the parent's ranks exchange colours */
    uint32_t round;  /* under way, or done */
    /* of the round under way; bytes 0: none goes this way */
    const void *mine;
    size_t bytes;
    int written;
};

/** Start an allgather; mine stays valid until it is done. All members call it for each, and all records of
 * one too large go another way. */
void rondo_node_round_start(struct rondo_node_rounds *rounds, const void *mine, size_t bytes);
/** Is this round one? */
static inline int rondo_node_round_is(const struct rondo_node_rounds *rounds) { return rounds->bytes > 0; }
/** Write this rank's record, unless it is there already or its place is in use: call it with each test. */
void rondo_node_round_write(struct rondo_node_rounds *rounds, struct rondo_control *parent);
/** Copy n bytes of the table of all records, from `where` on, to the same place of @a table. members: the
 * parent's ranks. @return RONDO_IN_PROGRESS: some of them are not there yet. */
rondo_status rondo_node_round_read(const struct rondo_node_rounds *rounds, const struct rondo_control *parent,
                                   const int *members, uint64_t where, size_t n, uint8_t *table);

#endif
