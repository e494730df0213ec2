/*
 * One rank's part in the rounds of a group, as a state machine: no thread, socket, clock or table is in it.
 * The owner gives the time with every call, and functions that carry messages; bootstrap_control.c drives it
 * over a control plane, the simulator of mpi-tests/sim over simulated time.
 *
 * An allgather runs over a tree (subtree.h). A rank waits for the pieces of its children and sends its
 * subtree's piece to its parent; rank 0 has the table then, and it comes down, each rank passing its parts
 * on as they arrive. A rank has at most RONDO_SUBTREE_ARITY + 1 neighbours, so it sends and receives O(1)
 * pieces in a round, whose bytes are the table's, in O(log n) steps. A reduction runs over the same tree: a
 * rank merges its children's records into its own before that goes up, and what rank 0 has comes down; so its
 * pieces are of one record. An exchange is between the peers alone.
 *
 * Failures. A rank that ends a round tells its neighbours why, and they pass it on: all return RONDO_TIMEOUT
 * if its limit has passed, else RONDO_REMOTE_ERROR. A neighbour that has died
 * is replaced by its own neighbours. So all ranks that have come learn of it in O(log n) steps.
 *
 * Who is missing (rondo_rounds_missing). A plain tree would blame a rank for the silence of one below it, and
 * a silent rank would hide those below. So after a deadline ranks talk to each other, also past silent ranks:
 *
 *   - A rank asks its parent (WHO). One that is asked answers at once (HERE), its test returns RONDO_TIMEOUT,
 *     and it asks its own parent. One that has not answered within STEP is silent, and the next one above is
 *     asked.
 *   - A rank asks its children (QUERY). One that answers (HERE) finds out what is missing below it and
 *     REPORTs that. One that does not within STEP is silent; if the round waits for it, it is missing, and
 *     its own children are asked in its place.
 *   - A rank leaves the ranks below it less time than it has itself (a QUERY says how much: GAP less a
 *     level), so that a report is there before the deadline of who waits for it.
 *   - Rank 0, or a rank above which all are silent, makes the LIST, and it goes down to all that answered.
 *
 * Named are: silent ranks that this round waits for (no piece of theirs has come, or they take none). Above
 * itself a rank names its parent at most: those further up may have ended in order. Whoever answers is never
 * named. At most RONDO_ROUNDS_NAMES are found, the lowest levels of the tree first. With one rank missing,
 * all ranks name exactly that one. If rank 0 and others are missing, ranks may name different ones of them.
 *
 * Memory: 200 bytes and two flows (32 bytes) for each neighbour or peer; after a deadline 2.3 KB. Not
 * thread-safe. Ranks are those of the group.
 */
#ifndef RONDO_NET_BOOTSTRAP_ROUNDS_H
#define RONDO_NET_BOOTSTRAP_ROUNDS_H

#include <stddef.h>

#include "net/peer.h"
#include "net/bootstrap/subtree.h"

enum {
    RONDO_ROUNDS_PART = 1000, /* most bytes of a piece in one message */
    RONDO_ROUNDS_NAMES = 64   /* missing ranks that are told */
};

/* Times, in ns. */
#define RONDO_ROUNDS_LOOK (10 * INT64_C(1000000))       /* between looks for notes and deaths */
#define RONDO_ROUNDS_ASK_AFTER (200 * INT64_C(1000000)) /* without a piece: ask whether its sender is alive */
#define RONDO_ROUNDS_ASK (1000 * INT64_C(1000000))      /* then this often */
#define RONDO_ROUNDS_LAST (300 * INT64_C(1000000))      /* for the last words of a rank that has left */
#define RONDO_ROUNDS_STEP (600 * INT64_C(1000000))      /* an answer that takes longer counts as silence */
#define RONDO_ROUNDS_GAP (100 * INT64_C(1000000))
#define RONDO_ROUNDS_DOWN (3200 * INT64_C(1000000))  /* for the reports of all below the top */
#define RONDO_ROUNDS_LIMIT (4500 * INT64_C(1000000)) /* of all of rondo_rounds_missing */
#define RONDO_ROUNDS_TELL (200 * INT64_C(1000000))   /* to send the list while inboxes are full */

/* A part of a piece. `at` counts from the piece's begin; `where` is in the sender's or receiver's own memory:
 * the table, or the records of an exchange. */
struct rondo_rounds_part {
    uint32_t round;
    uint64_t at, bytes; /* bytes: of the whole piece */
    size_t n;           /* of this part */
    uint64_t where;
};

enum rondo_rounds_kind {
    RONDO_ROUNDS_FAILED = 1, /* the round cannot end, because ... */
    RONDO_ROUNDS_WHO,
    RONDO_ROUNDS_LIST,
    RONDO_ROUNDS_QUERY,
    RONDO_ROUNDS_HERE,
    RONDO_ROUNDS_REPORT
};

struct rondo_rounds_note {
    uint32_t kind, round;
    uint32_t value; /* FAILED: the status; LIST, REPORT: number of ranks; QUERY: ms */
    int32_t from;
    union {
        rondo_round_text text;             /* FAILED */
        int32_t ranks[RONDO_ROUNDS_NAMES]; /* LIST, REPORT: ascending */
    } u;
};

/* What is known about a rank. */
enum rondo_rounds_state { RONDO_ROUNDS_ALIVE, RONDO_ROUNDS_LEFT, RONDO_ROUNDS_LOST };

struct rondo_rounds_ops {
    /* Send a part. @return RONDO_IN_PROGRESS: no room now; RONDO_REMOTE_ERROR: the rank has ended. */
    rondo_status (*send)(void *arg, int rank, const struct rondo_rounds_part *part);
    /* Receive the next part from a rank, which must be this one. @return RONDO_IN_PROGRESS: none has come. */
    rondo_status (*receive)(void *arg, int rank, const struct rondo_rounds_part *part);
    /* Send a note. @return RONDO_IN_PROGRESS: no room now; RONDO_REMOTE_ERROR: the rank has ended. */
    rondo_status (*say)(void *arg, int rank, const struct rondo_rounds_note *note);
    /* Receive the oldest note from any rank, with note->from set to it. @return RONDO_IN_PROGRESS: none. */
    rondo_status (*hear)(void *arg, struct rondo_rounds_note *note);
    enum rondo_rounds_state (*state)(void *arg, int rank);
    /* Find out whether a rank is alive; `state` tells later. */
    void (*ask)(void *arg, int rank);
    /* A rank has ended, so the round cannot. @return RONDO_REMOTE_ERROR, with its sentence. */
    rondo_status (*lost)(void *arg, int rank);
    /* In a reduction: merge the record at this place of the table into the one at 0. NULL: there are none. */
    void (*merge)(void *arg, uint64_t where);
};

struct rondo_rounds_flow {
    int rank;
    uint8_t finished, follows; /* follows: passes on what comes in */
    uint64_t where, bytes, done;
};

struct rondo_rounds {
    const struct rondo_rounds_ops *ops;
    void *arg;
    int n;
    struct rondo_subtree place;
    uint32_t round;
    enum {
        RONDO_ROUNDS_NONE,
        RONDO_ROUNDS_GATHER,
        RONDO_ROUNDS_SPREAD,
        RONDO_ROUNDS_EXCHANGE
    } phase; /* an allgather or a reduction gathers, then spreads */
    int reduces;
    size_t record, part; /* part: most bytes of a part; the simulator makes it larger */
    struct rondo_rounds_flow *in, *out;
    int nin, nout, capacity;
    int64_t looked_ns, asks_ns;
    int64_t left_ns;                 /* since when this round waits for a rank that has left; 0: for none */
    uint64_t nparts, nnotes;         /* sent so far */
    rondo_status ended;              /* what test returns from now on; RONDO_SUCCESS: nothing has failed */
    int told;                        /* the others know that the rounds have ended */
    struct rondo_rounds_note *heard; /* FAILED; NULL: none */
    struct rondo_rounds_late *late;  /* NULL: no deadline has passed */
};

/** Begin, with no round under way. */
rondo_status rondo_rounds_init(struct rondo_rounds *r, int rank, int n, const struct rondo_rounds_ops *ops,
                               void *arg);
void rondo_rounds_release(struct rondo_rounds *r);
/** Begin anew in another group, of the same owner. */
void rondo_rounds_reset(struct rondo_rounds *r, int rank, int n);
/** Start an allgather; this rank's record is in the table already. */
void rondo_rounds_allgather(struct rondo_rounds *r, size_t record, int64_t now);
/** Start a reduction: this rank's record is the first of its table, which has room for
 * RONDO_ROUNDS_REDUCED of them. In the end all ranks have the same one there. */
enum { RONDO_ROUNDS_REDUCED = RONDO_SUBTREE_ARITY + 1 };
void rondo_rounds_reduce(struct rondo_rounds *r, size_t record, int64_t now);
/** Start an exchange of records with n peers, distinct and not this rank. */
rondo_status rondo_rounds_exchange(struct rondo_rounds *r, int n, const int *peer, size_t record,
                                   int64_t now);
/** As struct rondo_bootstrap_ops. */
rondo_status rondo_rounds_test(struct rondo_rounds *r, int64_t now);
rondo_status rondo_rounds_missing(struct rondo_rounds *r, int64_t now, int *ranks, int max, int *n);
/** Tell the others that this rank ends the rounds, unless they know. status, text: why; the reason that
 * another rank gave is passed on instead. */
void rondo_rounds_give_up(struct rondo_rounds *r, rondo_status status, const char *text);
/** The owner knows that a rank, any of the group, has died: end the round under way. @return as test */
rondo_status rondo_rounds_lose(struct rondo_rounds *r, int rank);
/** @return when test or missing has something to do, even if no message comes; INT64_MAX: never. */
int64_t rondo_rounds_wake(const struct rondo_rounds *r);

/* ---- private to rounds.c and rounds_missing.c ---- */

/** Read notes and act on them. @return the status that ends the round; RONDO_SUCCESS: none does. */
rondo_status rondo_rounds_listen(struct rondo_rounds *r, int64_t now);
/** @return the status that another rank gave (r->heard is not NULL), with its sentence. */
rondo_status rondo_rounds_heard(const struct rondo_rounds *r);
/** A note about missing ranks. @return as rondo_rounds_listen */
rondo_status rondo_rounds_on_note(struct rondo_rounds *r, const struct rondo_rounds_note *note, int64_t now);
struct rondo_rounds_flow *rondo_rounds_open_flow(struct rondo_rounds_flow *flows, int n, int rank);
int64_t rondo_rounds_late_wake(const struct rondo_rounds *r);

#endif
