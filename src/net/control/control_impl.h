/*
 * Inside the control plane: the segment's layout and what control.c, control_thread.c and control_msg.c
 * share. Nobody else includes this.
 *
 *   head | reason | block of local rank 0 | block 1 | ... | mailbox
 *
 * Lines of different writers are RONDO_CTRL_ALIGN apart. Bytes of a segment: 128 (head) + 640 (reason) +
 * 18,816 a local rank + the mailbox. What a peer wrote is checked before it bounds a copy or an index; no
 * reader waits without end for a writer.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_IMPL_H
#define RONDO_NET_CONTROL_CONTROL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/control/control.h"

enum {
    RONDO_CONTROL_MAGIC = 0x636e6472,
    RONDO_CONTROL_VERSION = 1,
    RONDO_CONTROL_NAME = 64,        /* bytes of a communicator's name in messages */
    RONDO_CONTROL_MAX_LOCAL = 8192, /* ranks of a node: must fit the owner field of a cell's word */
    RONDO_MSG_CELLS = 16,           /* messages in a box; a power of two */
    RONDO_MSG_PARKED = 4096,        /* messages taken out of the box and not asked for yet */
    RONDO_MSG_FORGOTTEN = 32        /* tags whose late message is dropped */
};

/* Written by the leader before anyone attaches. */
struct rondo_control_head {
    uint64_t magic, comm_hash, bytes;
    uint32_t version;
    int32_t nlocal;
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/*
 * Why the communicator ended. The word goes from 0 to RONDO_REASON_WRITING by one compare-exchange, with
 * status, rank and writer in it; then to SET when the text is complete, or to LOST by whoever waited in vain
 * for the text. Fields of the word: state (2 bits), status << 8, writer's local rank << 16, (rank + 1) << 32.
 */
enum { RONDO_REASON_WRITING = 1, RONDO_REASON_SET = 2, RONDO_REASON_LOST = 3 };

struct rondo_control_reason {
    _Atomic uint64_t word;
    char text[RONDO_ERROR_TEXT];
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

enum { RONDO_LIFE_NONE, RONDO_LIFE_ATTACHED, RONDO_LIFE_ALIVE, RONDO_LIFE_LEFT };

/* Written by the rank's process; the beat by its control thread. */
struct rondo_control_life {
    _Atomic uint64_t beat;
    _Atomic uint32_t state; /* RONDO_LIFE_...; pid and start are valid from ATTACHED on */
    int32_t pid;
    uint64_t start; /* of the process, as /proc says: tells a process from a later one with the same pid; 0:
                       unknown */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* Written by the rank's calling thread: numbers for the doctor and for messages, never a ground to act. */
struct rondo_control_calls {
    _Atomic uint64_t begun, done; /* running numbers of the newest call begun and done */
    _Atomic uint64_t waits; /* turns of long waits: grows while the rank waits inside Rondo, stands still
                               while it computes */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

/* A struct rondo_call packed into words by control.c; word 0 is seq, 0 while the others are being written. */
struct rondo_control_line {
    _Atomic uint64_t word[sizeof(struct rondo_call) / 8];
} RONDO_ALIGNED(RONDO_CACHE_LINE);

/* A cell's word: position << 16, owner (sender's local rank) << 2, state. Owner and position change in one
 * step, so that a dead owner is known. */
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

struct rondo_control_block {
    struct rondo_control_life life;
    struct rondo_control_calls calls;
    struct rondo_control_line ring[RONDO_CALL_RING];
    struct rondo_control_box box;
};

_Static_assert(sizeof(struct rondo_call) == 64, "a call is one cache line");
_Static_assert(sizeof(struct rondo_control_head) == 128 && sizeof(struct rondo_control_reason) == 640,
               "documented sizes");
_Static_assert(sizeof(struct rondo_control_block) == 18816, "documented size");

/* A message taken out of the box that nobody has asked for yet. */
struct rondo_parked {
    struct rondo_parked *next;
    uint64_t tag;
    size_t bytes;
    int rank;
    uint8_t data[];
};

/* The receiving side of this rank's box. */
struct rondo_control_msg {
    pthread_mutex_t lock; /* several threads may create children of one communicator */
    uint64_t head;        /* next position to take */
    int64_t stuck_ns;     /* since when the cell at head is reserved and not full; 0: it is not */
    struct rondo_parked *first, **last;
    int nparked, overflown; /* overflown: the communicator is to be ended, once the lock is free */
    uint64_t forgotten[RONDO_MSG_FORGOTTEN];
    int nforgotten;
};

/* What the watcher knows of a local rank. All but state are under the watcher's lock. */
struct rondo_control_watch {
    int process; /* index in the watcher's table; -1: this process */
    uint64_t beat;
    int64_t since_ns;  /* of the last change of beat */
    _Atomic int state; /* as rondo_control_state_of: 0, 2 or 3 */
};

struct rondo_control {
    int rank, nranks, local_rank, nlocal;
    int *local_ranks; /* local rank -> rank */
    int *local_of;    /* rank -> local rank, -1: on another node */
    const struct rondo_peer *peers;
    void (*describe)(const struct rondo_call *call, char *text, size_t bytes);
    char name[RONDO_CONTROL_NAME];
    int pid; /* of the process that opened it: a forked child must not touch */
    struct rondo_shm shm;
    struct rondo_control_head *head;
    struct rondo_control_reason *reason;
    struct rondo_control_block *blocks, *own;
    struct rondo_mailbox mailbox;
    struct rondo_control_msg message;
    _Atomic int64_t looked_ns;         /* last look for deaths by a waiting thread */
    struct rondo_control_watch *watch; /* by local rank */
    struct rondo_control *next;        /* in the watcher's list */
    int watched;
    struct rondo_wire_part *wire; /* NULL: the communicator has one node */
};

/** As rondo_control_abort. @return 1: this was the first reason; the caller logs it if nobody has. */
int rondo_control_end(struct rondo_control *control, rondo_status status, int rank, const char *text);

/** Begin to beat for and watch over a control; the first one of the process starts the control thread. */
rondo_status rondo_control_watch(struct rondo_control *control);
/** After it the control thread does not touch the control; the last one of the process ends the thread. */
void rondo_control_unwatch(struct rondo_control *control);
/** Look for dead processes now, unless the control thread is just doing it. Never blocks. */
void rondo_control_look(struct rondo_control *control);

void rondo_msg_init(struct rondo_control_msg *message);
void rondo_msg_clear(struct rondo_control_msg *message);
/** Give the cells of a fresh box their positions. */
void rondo_inbox_init(struct rondo_control_box *box);
/** Take what is in the box, so that senders find room; only if nobody else is at it. */
rondo_status rondo_msg_drain(struct rondo_control *control, int *moved);
/** Is late message with this tag to be dropped? With the message's lock. */
int rondo_msg_forgotten(const struct rondo_control_msg *message, uint64_t tag);
/** Drop parked and future message with this tag. */
void rondo_msg_forget(struct rondo_control *control, uint64_t tag);

#endif
