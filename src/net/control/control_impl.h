/*
 * Inside the control plane: the segment's layout, and what the folder's files share. Of other files only
 * those of a child's bootstrap include this.
 *
 *   head | reason | block of each local rank | boards of each | extra | places of all | rings of each
 *   | inbox of each | splits | votes | mailbox
 *
 * Lines of different writers are RONDO_CTRL_ALIGN apart. A segment takes 256 (head) + 640 (reason) bytes and,
 * for each local rank, 512 and four boards (16 and 8 for each rank of the communicator). On several nodes the
 * places take 40 for each rank and 64 for each node. Rings of 32,768 bytes, inboxes of 17,536, 8,192 for
 * splits, 384 for votes and the mailbox take pages when they are used, but in a file all is reserved at once,
 * because /dev/shm may be small. Readers check what a peer wrote before it bounds a copy or an index, and no
 * reader waits for a writer without a limit.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_IMPL_H
#define RONDO_NET_CONTROL_CONTROL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/record.h"
#include "net/control/control.h"

enum {
    RONDO_CONTROL_MAGIC = 0x636e6472,
    RONDO_CONTROL_VERSION = 3,
    RONDO_CONTROL_NAME = 64,        /* bytes of a communicator's name in errors */
    RONDO_CONTROL_MAX_LOCAL = 8192, /* ranks of a node: must fit the owner field of a cell's word */
    RONDO_MSG_CELLS = 16,           /* messages in an inbox; a power of two */
    RONDO_MSG_PARKED = 4096,        /* messages taken out of the inbox and not asked for yet */
    RONDO_MSG_FORGOTTEN = 32        /* tags whose late messages are dropped */
};

/* Written by the leader before anyone attaches. */
struct rondo_control_head {
    uint64_t magic, comm_hash, bytes;
    uint32_t version;
    int32_t nlocal;
    struct rondo_shm_name arena; /* of the leader, whose record names this segment instead */
    /* For readers of the record (record.h): bytes from the segment's start, and the pair of times that tells
     * what a tick is. */
    uint32_t record_version, clock; /* enum rondo_record_clock */
    uint64_t ticks;
    int64_t ticks_ns; /* CLOCK_MONOTONIC */
    uint32_t blocks_at, block_bytes;
    uint64_t rings_at;
    uint32_t rings_bytes, reason_at;
    _Atomic uint32_t reported; /* a rank of the node writes the report */
    /* For rondo-doctor (look.h), of several nodes. */
    _Atomic uint32_t places; /* 1: the rest is valid */
    uint32_t scope;          /* of the interface, for link-local addresses */
    uint64_t secret[2];
    uint64_t places_at; /* struct rondo_control_place of each rank; host name of each node */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/*
 * Why the communicator ended. One compare-exchange takes the word from 0 to RONDO_REASON_WRITING, with
 * status, rank and writer in it. The writer sets it to SET when the text is complete; a reader that has
 * waited too long for the text sets it to LOST until then. Fields of the word: state (2 bits), enum
 * rondo_loss << 2, status << 8, writer's local rank << 16, (rank + 1) << 32.
 */
enum { RONDO_REASON_WRITING = 1, RONDO_REASON_SET = 2, RONDO_REASON_LOST = 3 };

struct rondo_control_reason {
    _Atomic uint64_t word;
    char text[RONDO_ERROR_TEXT];
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* Where a rank's process listens. */
struct rondo_control_place {
    uint64_t process; /* rondo_wire_process */
    int32_t node;
    uint8_t addr[RONDO_ADDR_BYTES]; /* struct sockaddr_in or in6 */
};
_Static_assert(sizeof(struct rondo_control_place) == 40, "documented size");
size_t rondo_control_places_bytes(int nnodes, int nranks);

enum { RONDO_LIFE_NONE, RONDO_LIFE_ATTACHED, RONDO_LIFE_ALIVE, RONDO_LIFE_LEFT };

/* The rank's process writes it; its control thread writes the beat. */
struct rondo_control_life {
    _Atomic uint64_t beat;
    _Atomic uint32_t state; /* RONDO_LIFE_...; pid and start are valid from ATTACHED on */
    int32_t pid;
    uint64_t start; /* rondo_process_start */
    int32_t rank;
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* The rank's calling thread writes it, for diagnosis. Nothing else may be decided by these numbers. */
struct rondo_control_calls {
    _Atomic uint64_t begun, done; /* running numbers of the newest call begun and done */
    _Atomic uint64_t waits; /* grows while the rank waits inside Rondo, stands still while it computes */
    _Atomic uint64_t message, message_count; /* struct rondo_message; 0: none. message is written last */
    _Atomic uint64_t stuck;                  /* number of a call << 24 | rank that it waits for */
    _Atomic uint64_t messages;               /* number of the newest message begun */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* A cell's word: lap << 16, owner (sender's local rank) << 2, state. The lap is the position of the cell's
 * message divided by the number of cells, so fresh memory is an empty inbox. Owner and lap change in one
 * step, so that the receiver can tell when the owner of a reserved cell is dead. */
enum { RONDO_CELL_FREE, RONDO_CELL_RESERVED, RONDO_CELL_FULL, RONDO_CELL_POISONED };

struct rondo_control_cell {
    _Atomic uint64_t word;
    uint64_t tag;
    uint64_t bytes;
    uint8_t data[RONDO_MSG_BYTES] RONDO_ALIGNED(RONDO_CACHE_LINE);
} RONDO_ALIGNED(RONDO_CACHE_LINE);

struct rondo_control_box {
    _Atomic uint64_t tail; /* next position to reserve, by all senders */
    struct rondo_control_cell cell[RONDO_MSG_CELLS] RONDO_ALIGNED(RONDO_CTRL_ALIGN);
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* Where a rank writes its records of a split, for the others to read (net/bootstrap/bootstrap_node.h). */
enum { RONDO_SPLIT_BANKS = 3, RONDO_SPLIT_BYTES = 312 };
struct rondo_split_bank {
    _Atomic uint64_t stamp; /* says whose record it is; written last */
    uint8_t data[RONDO_SPLIT_BYTES];
};
struct rondo_split_place {
    _Atomic uint64_t ended; /* the last split here that its rank has ended, with all before it */
    struct rondo_split_bank bank[RONDO_SPLIT_BANKS] RONDO_ALIGNED(RONDO_CACHE_LINE);
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);
_Static_assert(sizeof(struct rondo_split_place) == 1024, "documented size");

/* Splits that this rank has ended before an earlier one of the same place. */
struct rondo_split_early {
    pthread_mutex_t lock;
    uint64_t places[RONDO_SPLIT_SLOTS]; /* bit i: the (i + 1)th of the place after the last that is told */
};

/* What a rank votes. Bank number % RONDO_VOTE_BANKS. */
enum { RONDO_VOTE_BANKS = 2 };
struct rondo_control_vote {
    _Atomic uint64_t number; /* from 1; written last */
    _Atomic uint32_t word[RONDO_VOTE_WORDS];
};
struct rondo_control_votes {
    struct rondo_control_vote bank[RONDO_VOTE_BANKS];
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);
_Static_assert(sizeof(struct rondo_control_votes) == 384, "documented size");

struct rondo_control_block {
    struct rondo_control_life life;
    struct rondo_control_calls calls;
    struct rondo_record_wait wait;
};

/* The counts of a call with counts per rank (control_counts.c). */
enum { RONDO_CONTROL_BOARDS = 4 };
struct rondo_control_board {
    _Atomic uint64_t seq; /* the call; 0: none, or being written */
    uint64_t reserved;
    _Atomic uint64_t count[];
};
size_t rondo_control_boards_bytes(int nlocal, int nranks);

_Static_assert(sizeof(struct rondo_control_head) == 256 && sizeof(struct rondo_control_reason) == 640,
               "documented sizes");
_Static_assert(sizeof(struct rondo_record_rings) == 32768, "documented size");
_Static_assert(sizeof(struct rondo_control_block) == 512 && sizeof(struct rondo_control_box) == 17536,
               "documented sizes");

/* A message taken out of the inbox that nobody has asked for yet. */
struct rondo_parked {
    struct rondo_parked *next;
    uint64_t tag;
    size_t bytes;
    int rank;
    uint8_t data[];
};

/* The receiving side of an inbox; the box in the segment is the sending side. */
struct rondo_control_inbox {
    pthread_mutex_t lock; /* several threads may create children of one communicator */
    uint64_t head;        /* next position to take */
    int64_t stuck_ns;     /* since when the cell at head is reserved and not full; 0: it is not */
    struct rondo_parked *first, **last;
    int nparked, overflown; /* overflown: whoever gives the lock back ends the communicator */
    uint64_t forgotten[RONDO_MSG_FORGOTTEN];
    int nforgotten;
};

/* What the watcher knows about a local rank. The watcher's lock protects all but state. */
struct rondo_control_watch {
    int process; /* index in the watcher's table; -1: this process */
    uint64_t beat;
    int64_t since_ns;  /* of the last change of beat */
    _Atomic int state; /* RONDO_RANK_ALIVE, _DEAD or _SILENT */
};

struct rondo_control {
    int rank, nranks, local_rank, nlocal;
    int *local_ranks; /* local rank -> rank */
    int *local_of;    /* rank -> local rank, -1: on another node */
    const struct rondo_peer *peers;
    void (*describe)(const struct rondo_call *call, char *text, size_t bytes);
    char name[RONDO_CONTROL_NAME];
    int pid; /* of the process that opened it: a forked child must not touch it */
    int64_t made_ns;
    _Atomic uint8_t told_loss; /* the loss that ended it is known to the process (control_loss.c) */
    struct rondo_shm shm;
    int kept; /* rondo_control_keep */
    struct rondo_control_head *head;
    struct rondo_control_reason *reason;
    struct rondo_control_block *blocks, *own;
    struct rondo_record_rings *rings, *own_rings;
    enum rondo_record_clock clock;
    uint32_t ring_mask; /* lines of the ring that are used, less 1 */
    int record;         /* its number in the process's index; -1: none */
    int nnodes, node;
    uint8_t *boards, *extra, *places;
    unsigned nboards; /* written by this rank */
    struct rondo_control_box *boxes;
    struct rondo_split_place *splits; /* of each local rank, for each of the splits under way */
    struct rondo_split_early early;
    struct rondo_control_votes *votes; /* of each local rank */
    struct rondo_mailbox mailbox;
    struct rondo_control_inbox inbox;
    _Atomic int64_t looked_ns;          /* last look for deaths by a waiting thread */
    struct rondo_control_watch *watch;  /* by local rank */
    struct rondo_control *next, **link; /* in the watcher's list; what points to this one */
    int watched;
    struct rondo_wire_part *wire; /* NULL: the communicator has one node */
};

/** As rondo_control_abort, but leave it to the caller to tell the other nodes. loss: of the rank. @return 1:
 * this is the first reason; the caller logs it if nobody has. */
int rondo_control_end(struct rondo_control *control, rondo_status status, int rank, enum rondo_loss loss,
                      const char *text);

/* ---- lost ranks (control_loss.c) ---- */

/** @return which loss ended the communicator, without waiting for its sentence; *rank is the lost one. */
enum rondo_loss rondo_control_loss(const struct rondo_control *control, int *rank);
/** Remember that the process of a rank is lost, for its other communicators. */
void rondo_loss_learn(struct rondo_control *control, int rank, enum rondo_loss loss);
/** Name a rank: "rank 3 (pid 7 on host x) of communicator y". */
void rondo_loss_who(const struct rondo_control *control, int rank, char *text, size_t bytes);
/** Write the sentence about a rank whose loss is known by name only. */
void rondo_loss_text(const struct rondo_control *control, int rank, enum rondo_loss loss, char *text,
                     size_t bytes);

/* ---- the watcher (control_thread.c) ---- */

/** Begin to beat for a control and watch its ranks; the process's first one starts the control thread. */
rondo_status rondo_control_watch(struct rondo_control *control);
/** After this the control thread does not touch the control; the last one in the process ends the thread. */
void rondo_control_unwatch(struct rondo_control *control);
/** Look for dead processes now, unless another thread is doing so. Never blocks. */
void rondo_control_look(struct rondo_control *control);

/* ---- inboxes (control_msg.c) ---- */

void rondo_inbox_init(struct rondo_control_inbox *inbox);
void rondo_inbox_clear(struct rondo_control_inbox *inbox);
/** Park what is in the inbox, so that senders find room; nothing when another thread holds the lock. */
rondo_status rondo_msg_drain(struct rondo_control *control, int *moved);
/** Was this tag forgotten? Call it with the inbox's lock held. */
int rondo_msg_forgotten(const struct rondo_control_inbox *inbox, uint64_t tag);

/* ---- between nodes (control_wire*.c) ---- */

/** Make the tables of a control whose communicator has several nodes; nothing for others. */
rondo_status rondo_wire_new(struct rondo_control *control, const struct rondo_control_config *config);
void rondo_wire_free(struct rondo_control *control);
/** Accept messages from now on, and connect to the leaders that this one watches. Call it at start, before
 * the control is watched. */
rondo_status rondo_wire_join(struct rondo_control *control);
/** Write to the segment where the ranks of all nodes listen, as its leader. */
void rondo_wire_places(struct rondo_control *control);
/** Tell the connected processes that this rank leaves in order. */
void rondo_wire_leave(struct rondo_control *control);
/** After this no message reaches the control. The last one, when there is no listener either, closes all
 * connections; it waits up to 1 s for unwritten bytes. */
void rondo_wire_part(struct rondo_control *control);

/** Tell the other nodes the reason, which this rank has set. */
void rondo_wire_spread(struct rondo_control *control);
/** The same, left to the control thread: for callers that hold the watcher's lock. */
void rondo_wire_spread_later(struct rondo_control *control);
/** For the control thread. @return a descriptor that is readable when something can move; -1: none. */
int rondo_wire_epoll(void);
/** For the control thread: move everything; when it is time, beat and look for silent peers.
 * @param restart  this process was itself stopped
 * @return 1: it is to be called again soon */
int rondo_wire_tick(int64_t now, int restart, int64_t beat_ns, int64_t dead_ns);
/** For waiting threads: move everything, unless another thread is doing so or has just done it. */
void rondo_wire_poll(void);

/* For ranks on other nodes, as the functions of control.h with these names. */
rondo_status rondo_wire_send(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                             size_t bytes);
rondo_status rondo_wire_receive(struct rondo_control *control, int rank, uint64_t tag, void *data, size_t max,
                                size_t *bytes);
rondo_status rondo_wire_receive_any(struct rondo_control *control, uint64_t tag, int *rank, void *data,
                                    size_t max, size_t *bytes);
void rondo_wire_forget(struct rondo_control *control, uint64_t tag);
enum rondo_rank_state rondo_wire_state_of(struct rondo_control *control, int rank);
/** Ask a rank's process whether it is there; the answer, or its absence, changes rondo_wire_state_of. */
void rondo_wire_ask(struct rondo_control *control, int rank);
/** As rondo_control_last_call, for call seq (0: the newest). */
int rondo_wire_call_of(struct rondo_control *control, int rank, uint64_t seq, int64_t since_ns,
                       struct rondo_call *call);

#endif
