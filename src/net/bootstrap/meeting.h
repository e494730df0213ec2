/*
 * A meeting: where the ranks of a communicator find each other without MPI or a launcher. Any process makes
 * the meeting's id and hands it on however it likes. The id holds an address; the ranks call there.
 *
 *     creator's process                 rank r                               rank 0
 *     listener, thread          <---    REGISTER: nranks, r, my address
 *                               --->    ACCEPTED, or REFUSED and why
 *     (they stay connected)
 *     once all have registered  ------------------------------------------>  TABLE: all addresses
 *                                       TABLE comes down a tree     <---     (net/bootstrap/subtree.h)
 *     then the creator has no part in it: rounds (rounds.h) over TCP between the ranks
 *
 * The creator need not be a rank, and serves any number of meetings at once; each meeting serves one creation
 * and costs it nothing afterwards. Ranks of the creator's process register without a connection, and if all
 * ranks are in that process they meet in a hub, as threads (bootstrap_threads.c).
 *
 * Every connection begins with the handshake of net/auth.h, keyed by the secret in the id: whoever has the id
 * may take part, nobody else. The id's way to the ranks is the program's own matter.
 *
 * Cost: the creator has one connection from each rank, and sends one table of 28 bytes a rank. A rank
 * has connections with the neighbours in the tree, at most RONDO_SUBTREE_ARITY + 1, and with those ranks that
 * it exchanges records with. Nothing blocks; errors name the address at fault.
 *
 * A rank that dies once it has registered, or the creator, ends the meeting for all at once, and they are
 * told its name: its connection ends. So does a rank 0 that the creator cannot give the table. That holds for
 * 256 ranks at a time, and while there are descriptors; other connections are given up after ACCEPTED. A rank
 * that dies before it has registered is found by the creator if they are processes of one job on one host,
 * all of which are the meeting's ranks (siblings.h); otherwise, or if it stops, at the deadline, when the
 * creator names the ranks that are missing. Once the table has come, a rank's neighbours see its connection
 * end.
 */
#ifndef RONDO_NET_BOOTSTRAP_MEETING_H
#define RONDO_NET_BOOTSTRAP_MEETING_H

#include "net/bootstrap/bootstrap.h"
#include "net/peer.h"

enum { RONDO_MEETING_HOST = 24, RONDO_MEETING_NAMES = 64 };

/* Plain data of at most 128 bytes, for processes of one version of Rondo. */
struct rondo_meeting_id {
    uint32_t magic, version; /* RONDO_VERSION_CODE */
    uint8_t addr[RONDO_ADDR_BYTES];
    int32_t pid;                   /* of the creator */
    uint64_t name, serial;         /* name: random, public; serial counts the creator's meetings */
    uint64_t secret[2];            /* random */
    char host[RONDO_MEETING_HOST]; /* cut */
    uint64_t check;                /* hash of the above: an id that was cut on its way is noticed */
};
_Static_assert(sizeof(struct rondo_meeting_id) <= 128, "fits NCCL's unique id");

/** Make a meeting. The process listens from the first one on, until it exits. Thread-safe. */
rondo_status rondo_meeting_create(struct rondo_meeting_id *id);
/** @return RONDO_INVALID_ARGUMENT, with a sentence, if these are not the bytes of an id. */
rondo_status rondo_meeting_check(const struct rondo_meeting_id *id);
/** Take part in a meeting. Not collective and does not wait; rounds begin with open_start. */
rondo_status rondo_bootstrap_meeting(const struct rondo_meeting_id *id, int rank, int nranks,
                                     struct rondo_bootstrap **b);

/* ---- ranks that can send each other their addresses, and need no creator ---- */

/* Where a rank can be reached. name and secret: random; those of rank 0 count. */
struct rondo_meeting_place {
    uint8_t addr[RONDO_ADDR_BYTES];
    int32_t status; /* of rondo_meeting_place_open; else than RONDO_SUCCESS: there is no such place */
    uint64_t name, secret[2];
};
/** Listen at a new place. @param listener  -1 if it fails */
rondo_status rondo_meeting_place_open(struct rondo_meeting_place *place, int *listener);
/** Take part in the rounds of ranks that know all places, which are good ones. There is no open_start: the
 * first round may begin. @param listener  of this rank's place; the bootstrap's from now on */
rondo_status rondo_bootstrap_places(const struct rondo_meeting_place *places, int rank, int nranks,
                                    int listener, struct rondo_bootstrap **b);

/** Fill an id that has an address and a serial number: its name is one that no other has. */
rondo_status rondo_meeting_name(struct rondo_meeting_id *id);

/* ---- for bootstrap_meeting.c: the creator's part, in its own process ---- */

/** Is this the process that made the id? */
int rondo_meeting_is_mine(const struct rondo_meeting_id *id);
/** Register a rank of this process. addr: of its listener. */
rondo_status rondo_meeting_register(const struct rondo_meeting_id *id, int rank, int nranks,
                                    const uint8_t addr[RONDO_ADDR_BYTES]);
/** Ask once registered whether all ranks have. RONDO_SUCCESS: *hub is where they meet, with a reference for
 * the caller, or NULL: the table comes. */
rondo_status rondo_meeting_poll(const struct rondo_meeting_id *id, struct rondo_hub **hub);
/** Once all have: has the table not reached rank 0? @return RONDO_REMOTE_ERROR: so it is */
rondo_status rondo_meeting_look(const struct rondo_meeting_id *id);
/** Name the ranks that have not registered, or rank 0 if it has not taken the table. *n: their number, at
 * most max. */
void rondo_meeting_missing(const struct rondo_meeting_id *id, int *ranks, int max, int *n);
/** A rank of the meeting with these gives up: whoever registers later is told why. */
void rondo_meeting_fail(uint64_t name, uint64_t serial, const char *text);

#endif
