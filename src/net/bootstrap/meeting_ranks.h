/*
 * A rank's connections with the other ranks of a meeting, and what has come by them.
 *
 * They are made when they are first needed, by whoever needs them. Both ends of a pair may do so at once:
 * each sends on the connection that it had first, so that messages of a direction stay in order, and reads
 * both.
 *
 * Strangers may call, too. Of the connections that have proved nothing RONDO_MEET_STRANGERS more than there
 * are ranks are kept, the newest ones; without descriptors, those that have said nothing for long make room.
 */
#ifndef RONDO_NET_BOOTSTRAP_MEETING_RANKS_H
#define RONDO_NET_BOOTSTRAP_MEETING_RANKS_H

#include "net/bootstrap/meeting_conn.h"

enum { RONDO_MEET_STRANGERS = 64 };

/* A part or a note that has come. */
struct rondo_meet_item {
    struct rondo_meet_item *next;
    struct rondo_meet_conn *conn; /* by which it came */
    size_t bytes;
    uint8_t data[];
};
struct rondo_meet_items {
    struct rondo_meet_item *first, **end;
};

struct rondo_meet_ranks {
    struct rondo_meeting_id id;
    int rank, nranks;
    int listener;   /* -1: none */
    uint8_t *table; /* of all ranks' addresses; NULL: not known yet */
    uint8_t *state; /* enum rondo_rounds_state of each rank, as far as it is known */
    struct rondo_meet_conn *conns;
    int64_t short_ns; /* since when a connection waits for a descriptor; 0: none does */
    struct rondo_meet_items parts, notes;
};

/** Begin without an id, a listener and a table. */
rondo_status rondo_meet_ranks_init(struct rondo_meet_ranks *ranks, int rank, int nranks);
/** Close and free all. */
void rondo_meet_ranks_release(struct rondo_meet_ranks *ranks);
const uint8_t *rondo_meet_addr_of(const struct rondo_meet_ranks *ranks, int rank);
/** Get the connection to send on to a rank, and begin to connect if there is none. It may have ended. */
rondo_status rondo_meet_conn_to(struct rondo_meet_ranks *ranks, int rank, struct rondo_meet_conn **conn);
/** Accept, read and write. A table that comes is taken, and goes on down the tree. */
rondo_status rondo_meet_ranks_move(struct rondo_meet_ranks *ranks);
/** For rondo_meet_move: arg is struct rondo_meet_ranks. */
const uint64_t *rondo_meet_ranks_judge(void *arg, const struct rondo_auth_hello *hello);
/** Take the first item of a rank, or of any (-1). @return NULL: there is none */
struct rondo_meet_item *rondo_meet_item_take(struct rondo_meet_items *items, int from);
/** Be done with it. */
void rondo_meet_part_free(struct rondo_meet_item *part);
/** Write what is queued on these connections, for a limited time: a goodbye after it tells the peer that this
 * is no death. */
void rondo_meet_flush(struct rondo_meet_ranks *ranks, struct rondo_meet_conn *first, int64_t limit_ns);
/** Say goodbye to all, and flush. */
void rondo_meet_say_goodbye(struct rondo_meet_ranks *ranks, int64_t limit_ns);

#endif
