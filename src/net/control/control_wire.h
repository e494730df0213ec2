/*
 * The control plane between nodes: TCP connections between processes, shared by all communicators of both.
 *
 * Each process has one listener (rondo_control_listen), on the interface that the socket device would
 * choose. Whoever first has something to send to a process connects to it; then either side sends on that
 * connection. When both connect at once there are two, and each side keeps to the one it began with, so that
 * messages stay in order. A process counts as lost when its last connection has ended without BYE, or at
 * the first beat a second after one of them has ended with bytes under way.
 *
 * A "process" here has one listener: a process that closes its last communicator closes all connections, and
 * counts as another one when it creates the next. So a BYE or an end of stream that is read late cannot
 * touch a communicator that was made meanwhile.
 *
 *     connecting side                                        accepting side
 *     hello: a communicator of both, its ranks,
 *            both processes                          --->
 *                                                    <---    welcome
 *     proof                                          --->
 *     message: head (communicator, epoch, kind,
 *            ranks, tag, bytes) and up to
 *            RONDO_MSG_BYTES                         <-->    message
 *
 * The first three are the handshake of net/auth.h. The connecting side holds its messages until the welcome
 * has come; the first one follows the proof at once. A process that leaves before it has read the proof says
 * BYE to whom it has welcomed, so that an end without BYE after the welcome is a death.
 *
 * The listener drops and counts a connection that does not begin with a hello, has a wrong proof, says
 * nothing for 5 s, or is one too many; questions of rondo-doctor come in by the same door (look.h). Every
 * field of a message is checked against the communicator's tables: the sender's rank lives in the process at
 * the other end, the epoch (derived from that communicator's own secret) is right, lengths and ranks are in
 * range.
 *
 * Messages (kind MSG, rondo_control_send). Each pair of ranks has a window of RONDO_WIRE_WINDOW messages for
 * each tag. The sender gets RONDO_IN_PROGRESS when it is used up; the receiver gives credit back, by tag, as
 * it takes messages. So a rank or a tag that nobody asks for holds up no other. A forgotten tag gives all
 * its credit back and is not used again. RONDO_MSG_PARKED waiting messages from one rank end the
 * communicator.
 *
 * Abort. Whoever ends a communicator first in its node, and the rank that leads the node, tell the leaders
 * of the nodes at distance +-2^k, once; when a leader is known to be dead they tell the next one. The lowest
 * live rank of a node leads it.
 *
 * Deaths. A leader watches the leaders of the nodes at +2^k: it asks for beats and keeps the connection. A
 * connection that ends without BYE means a dead process, and silence of RONDO_DEAD_AFTER an unresponsive
 * one: both end the communicators of its ranks that have not left. A process that refuses the connection
 * before it ever answered has ended, in order or not: that alone ends no communicator. One that takes the
 * call and ends it without a welcome is called again: at once, then after pauses, a limited number of times.
 *
 * Leave and ask. A rank that leaves tells all processes it is connected to; others learn it by asking. A
 * question to a rank's process is answered with the rank's state and its recent calls. Before either comes
 * the reason, if the communicator has ended: who is told that a rank has left knows why.
 *
 * Threads and memory. Any thread moves the sockets, under one lock a process, held for bounded work and
 * never while blocking. The control thread sleeps on them, beats and looks for silent peers. Allocated are:
 * accepted connections (at most RONDO_WIRE_UNNAMED without a right hello, RONDO_WIRE_CLAIMS a process
 * and RONDO_WIRE_LATE for closed communicators without a proof, then 2 a process), messages
 * until their rank takes them (at most RONDO_MSG_PARKED from each sender), and 32 bytes for each rank and
 * tag with credit outstanding. Messages for a communicator or rank that is not known here are kept, at most
 * RONDO_WIRE_PARKED for 60 s, then dropped and counted; a connection whose hello is for such a communicator
 * keeps its bytes in the kernel.
 *
 * Bytes: for a communicator of several nodes 11 a rank, 4 a node and 12 KiB; 95 KiB a process; 69 KiB a
 * connection (5 KiB until it has sent its proof). Connections: 2 log2(nodes) for a leader (and for whoever
 * ends a communicator), and one for each process that gets messages.
 *
 * Lock order: the watcher's, the wire's, an inbox's. All that is declared here is under the wire's lock.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_WIRE_H
#define RONDO_NET_CONTROL_CONTROL_WIRE_H

#include "net/auth.h"
#include "net/control/control_impl.h"
#include "net/control/look.h"
#include "net/control/spread.h"
#include "net/socket/socket.h"

enum {
    RONDO_WIRE_HELLO_MAGIC = 0x68637772,
    RONDO_WIRE_MAGIC = 0x6d637772,
    RONDO_WIRE_VERSION = 5,
    RONDO_WIRE_WINDOW = 8, /* messages of a tag, sent and not given back, from one rank to another */
    RONDO_WIRE_UNNAMED =
        1024,                /* connections without a right hello yet; a quarter of the descriptors if less */
    RONDO_WIRE_CLAIMS = 8,   /* welcomed connections that claim to be one process */
    RONDO_WIRE_LATE = 128,   /* welcomed connections that name a closed communicator */
    RONDO_WIRE_PARKED = 64,  /* messages for communicators that are not known yet */
    RONDO_WIRE_IN = 4 << 10, /* bytes of a connection read ahead */
    RONDO_WIRE_OUT = 64 << 10,              /* bytes of a connection queued for writing */
    RONDO_WIRE_RESERVE = 16 << 10,          /* part of RONDO_WIRE_OUT that MSG leaves free */
    RONDO_WIRE_ASKED = RONDO_CONTROL_ASKED, /* ranks whose calls are kept */
    RONDO_WIRE_CLOSED = 512,                /* ranks of closed communicators that are remembered */
    RONDO_WIRE_BUCKETS = 64, /* messages by sender; windows by rank and tag; connections by process */
    RONDO_WIRE_NOTES = 4     /* sentences to log when the lock is free */
};
#define RONDO_WIRE_UNNAMED_NS (5 * INT64_C(1000000000))
#define RONDO_WIRE_PARKED_NS (60 * INT64_C(1000000000))

/* ---- on the wire ---- */

/* Of the hello: client and server are each side's rondo_wire_process. */

enum rondo_wire_kind {
    RONDO_WIRE_MSG = 1, /* data: the bytes of rondo_control_send */
    RONDO_WIRE_CREDIT,  /* tag: the tag whose messages were taken; data: their number (uint32_t) */
    RONDO_WIRE_ABORT,   /* data: struct rondo_wire_abort */
    RONDO_WIRE_LEAVE,
    RONDO_WIRE_ASK,
    RONDO_WIRE_TELL, /* tag: 1: the rank has left; data: its ring of calls */
    RONDO_WIRE_ASK_COUNTS,
    RONDO_WIRE_TELL_COUNTS, /* tag of both: the number of a call with counts per rank (control_counts.c) */
    RONDO_WIRE_ASK_CLOCK,
    RONDO_WIRE_TELL_CLOCK, /* tag of both: the question's number; data: int64_t, the answering host's time */
    /* Between processes, without a communicator: */
    RONDO_WIRE_WATCH, /* send beats on this connection */
    RONDO_WIRE_BEAT,
    RONDO_WIRE_BYE, /* all ranks of the process have left in order */
    RONDO_WIRE_NUM_KINDS
};

struct rondo_wire_head {
    uint32_t magic;
    uint16_t kind, bytes;
    uint64_t comm_hash, tag;
    uint32_t epoch;
    int32_t from, to;
    uint32_t zero;
};

struct rondo_wire_abort {
    int32_t status, rank;        /* the rank at fault; -1: unknown */
    int32_t loss;                /* enum rondo_loss */
    char text[RONDO_ERROR_TEXT]; /* "": the receiver finds words for the loss */
};

enum { RONDO_WIRE_MESSAGE = sizeof(struct rondo_wire_head) + RONDO_MSG_BYTES };

/* ---- connections ---- */

enum rondo_wire_state {
    RONDO_WIRE_CONNECTING, /* not yet connected */
    RONDO_WIRE_GREETED,    /* connected; the hello is on its way, no welcome yet */
    RONDO_WIRE_ACCEPTED,   /* no hello yet */
    RONDO_WIRE_WAITING,    /* its hello names a communicator that is not known yet */
    RONDO_WIRE_WELCOMED,   /* its hello was answered, no proof yet */
    RONDO_WIRE_OPEN,
    RONDO_WIRE_ENDED
};

/* Has the other end sent no right hello yet? */
static inline int rondo_wire_is_unnamed(enum rondo_wire_state state)
{
    return state == RONDO_WIRE_ACCEPTED || state == RONDO_WIRE_WAITING;
}
/* Has it proved nothing yet? */
static inline int rondo_wire_is_unproved(enum rondo_wire_state state)
{
    return rondo_wire_is_unnamed(state) || state == RONDO_WIRE_WELCOMED;
}

struct rondo_wire_conn {
    struct rondo_wire_conn *next, *prev; /* in the list of all; next: in that of the ended */
    struct rondo_wire_conn *chain;       /* in its bucket, when `sending` */
    int fd, error;                       /* error: why it has ended; 0: end of stream */
    int cut;                             /* errno of a send that failed because the network did */
    int lost;                            /* errno of what has ended with bytes under way: this connection, or
                                          * before, at lost_ns, another with the process */
    int64_t lost_ns;
    int ncalls;       /* again, after the listener had ended the first one */
    int64_t again_ns; /* there is no socket: when to call again; 0: there is one */
    enum rondo_wire_state state, ended_in;
    uint32_t events; /* for which epoll waits */
    uint8_t incoming, sending;
    uint8_t was_open; /* another connection with the process was open, and has ended */
    int64_t since_ns;
    struct rondo_beats beats;
    uint64_t process; /* at the other end */
    uint64_t own;     /* process at this end; differs only in tests with several nodes in one process */
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    uint64_t secret[2];             /* of the hello's communicator, at the connecting side */
    uint8_t addr[RONDO_ADDR_BYTES]; /* at which it calls */
    size_t in_bytes, out_from, out_to;
    uint8_t in[RONDO_WIRE_IN];
    uint8_t *out;
};

/* ---- the process's wire ---- */

enum rondo_wire_drop {
    /* connections */
    RONDO_WIRE_DROP_GARBAGE,  /* no hello */
    RONDO_WIRE_DROP_STRANGER, /* wrong proof, version, process or rank */
    RONDO_WIRE_DROP_SILENT,
    RONDO_WIRE_DROP_EXCESS,
    /* messages */
    RONDO_WIRE_DROP_MESSAGE, /* for nobody here */
    RONDO_WIRE_DROP_OLD,     /* kept too long, or too many */
    RONDO_WIRE_NUM_DROPS
};

struct rondo_wire_parked {
    int64_t since_ns; /* 0: unused */
    uint64_t number;  /* counts arrivals */
    uint64_t process;
    struct rondo_wire_head head;
    uint8_t data[RONDO_MSG_BYTES];
};

struct rondo_wire_closed {
    uint64_t comm_hash, secret[2], process;
    int rank, lost; /* lost: the rank by whose loss it ended */
    enum rondo_loss loss;
};

/* An answer to rondo-doctor. */
enum { RONDO_WIRE_LOOK_FREE, RONDO_WIRE_LOOK_RUNS, RONDO_WIRE_LOOK_ENDED };
struct rondo_wire_look {
    _Atomic int state, unwanted;
    int fd;
    pthread_t thread;
    struct rondo_look what;
};

struct rondo_wire {
    uint32_t number; /* counts the wires of this process */
    int epoll, listener;
    int listens; /* references to the listener */
    int accepts; /* 0: out of descriptors; accept again at the next tick */
    uint8_t addr[RONDO_ADDR_BYTES];
    uint32_t scope; /* of the interface, for link-local addresses */
    char where[RONDO_SOCKET_ADDR_TEXT];
    struct rondo_control *controls; /* by wire->next */
    struct rondo_wire_conn *conns, *ended;
    struct rondo_wire_conn *bucket[RONDO_WIRE_BUCKETS];
    int nunnamed; /* connections without a right hello */
    int nagain;   /* connections that wait to call again */
    int64_t ticked_ns;
    uint64_t dropped[RONDO_WIRE_NUM_DROPS];
    struct rondo_wire_parked parked[RONDO_WIRE_PARKED];
    uint64_t nparked; /* in total, so far */
    struct rondo_wire_closed closed[RONDO_WIRE_CLOSED];
    unsigned nclosed;
    struct rondo_wire_look looks[RONDO_LOOKS];
    char note[RONDO_WIRE_NOTES][RONDO_ERROR_TEXT];
    int nnotes;
};
extern struct rondo_wire *rondo_wire; /* NULL: the process has no listener and no control of several nodes, or
                                       * is a forked child */

extern int64_t rondo_wire_fork_ns; /* how long a fork waits for the lock */
void rondo_wire_lock(void);
int rondo_wire_trylock(void);
/** Handle the connections that have ended: judge them, call again, or leave that to another one. */
void rondo_wire_settle(void);
/** The same; give the lock back, then log the notes. */
void rondo_wire_unlock(void);
/** Keep a sentence; rondo_wire_unlock logs it. */
void rondo_wire_note(const char *fmt, ...) RONDO_PRINTF(1, 2);
/** Count a drop, and log a line each time the total reaches a power of two. */
void rondo_wire_count(enum rondo_wire_drop why);
/** Make the process's wire if there is none. */
rondo_status rondo_wire_need(void);
/** Close it if nobody needs it any more. */
void rondo_wire_release(void);

/** Add a connection that was accepted. */
void rondo_wire_conn_accepted(int fd);
/** Find the connection to send on to a rank's process, or make it. Errors are quiet; RONDO_REMOTE_ERROR: the
 * process has ended. */
rondo_status rondo_wire_conn_to(struct rondo_control *control, int rank, struct rondo_wire_conn **conn);
/** @return the connection to send on; NULL: none. */
struct rondo_wire_conn *rondo_wire_conn_of(uint64_t own, uint64_t process);
/** Send on this connection from now on, unless there is another one. */
void rondo_wire_conn_use(struct rondo_wire_conn *conn);
/** Queue a message and write what can be written. @param room  bytes that must stay free behind it
 * @return 0: it does not fit */
int rondo_wire_put(struct rondo_wire_conn *conn, const struct rondo_wire_head *head, const void *data,
                   size_t room);
/** Queue bytes on a connection that has its output buffer. @return 0: they do not fit */
int rondo_wire_put_bytes(struct rondo_wire_conn *conn, const void *data, size_t bytes);
/** Take a connection out of use; rondo_wire_unlock does what follows from it. @param error errno; 0: end of
 * stream */
void rondo_wire_end(struct rondo_wire_conn *conn, int error);
/** Parse the bytes that were read. */
void rondo_wire_parse(struct rondo_wire_conn *conn);
/** Stop waiting for input (paused), or wait again. */
void rondo_wire_pause(struct rondo_wire_conn *conn, int paused);
/** Move all connections. */
void rondo_wire_progress(void);

/* ---- the listener (control_wire_listen.c) ---- */

void rondo_wire_accept(void);
/** Judge a connection whose hello has come, or that waits for a communicator. @return RONDO_WIRE_WELCOMED,
 * RONDO_WIRE_WAITING or RONDO_WIRE_ENDED */
enum rondo_wire_state rondo_wire_name(struct rondo_wire_conn *conn);
/** Judge the proof of a welcomed connection. @return RONDO_WIRE_OPEN or RONDO_WIRE_ENDED */
enum rondo_wire_state rondo_wire_prove(struct rondo_wire_conn *conn, const uint8_t proof[RONDO_AUTH_PROOF]);
int rondo_wire_unnamed_limit(void);
/** Drop connections that say nothing; accept again after descriptors had run out. */
void rondo_wire_expire(int64_t now);

/* ---- questions of rondo-doctor (control_look.c) ---- */

/** Judge the hello of one. control: of the rank asked, NULL: none. @return RONDO_WIRE_WELCOMED or
 * RONDO_WIRE_ENDED */
enum rondo_wire_state rondo_wire_look_name(struct rondo_wire_conn *conn, const struct rondo_control *control);
/** Answer it, once it has proved itself. @return 0: too many are being answered */
int rondo_wire_look_start(const struct rondo_wire_conn *conn);
/** End those that are being answered. */
void rondo_wire_looks_end(void);

/* ---- a control's part ---- */

/** Identify a rank's process, with the listener that it had when the communicator was made. */
static inline uint64_t rondo_wire_process(const struct rondo_peer *peer)
{
    return peer->process_hash + peer->control_number;
}

struct rondo_wire_msg {
    struct rondo_wire_msg *next;
    uint64_t tag;
    size_t bytes;
    int rank;
    uint8_t data[];
};

/* The messages of one tag to or from one rank. */
struct rondo_wire_window {
    struct rondo_wire_window *next;
    uint64_t tag;
    int rank;
    uint8_t messages; /* sent or received, and not given back */
    uint8_t taken;    /* those of the received ones that the rank took */
};

struct rondo_wire_asked {
    int rank;   /* -1: unused */
    int ncalls; /* -1: no answer yet */
    int64_t asked_ns, told_ns, used_ns;
    struct rondo_call call[RONDO_CALL_RING];
};

/* The latest question about counts per rank. */
enum { RONDO_CONTROL_TOLD = 120 };
struct rondo_wire_counts {
    uint64_t seq; /* 0: none */
    int rank, first, answered, n;
    uint64_t count[RONDO_CONTROL_TOLD];
};

/* The latest question about a clock (control_clock.c). */
struct rondo_wire_ping {
    int rank;
    uint64_t number;
    int64_t asked_ns, told_ns, heard_ns; /* heard_ns 0: no answer yet */
};

struct rondo_wire_part {
    struct rondo_control *next;
    const int *node_of;
    int nnodes;
    int *first;      /* node -> its lowest rank */
    int *after;      /* rank -> the next one of its node; -1: none */
    int *by_process; /* ranks, sorted by process once joined */
    uint32_t epoch;
    const uint64_t *secret;
    uint8_t joined, left;
    uint8_t complained;        /* of a connection that cannot be made */
    uint8_t debt;              /* some credit could not be sent */
    _Atomic uint8_t spreading; /* this rank set the reason, or leads the node */
    struct rondo_spread spread;
    _Atomic uint8_t *state; /* rank -> enum rondo_rank_state */
    /* Under the inbox's lock: messages that nobody has asked for yet, and their number by rank. */
    _Atomic uint16_t *waiting; /* read without the lock */
    _Atomic int nwaiting;      /* of all ranks */
    struct rondo_wire_msg *first_msg[RONDO_WIRE_BUCKETS], **last_msg[RONDO_WIRE_BUCKETS];
    struct rondo_wire_window *window_out[RONDO_WIRE_BUCKETS], *window_in[RONDO_WIRE_BUCKETS];
    struct rondo_wire_asked asked[RONDO_WIRE_ASKED];
    struct rondo_wire_counts counts;
    struct rondo_wire_ping ping;
};

/** @return the control of a rank in this process; NULL: none. */
struct rondo_control *rondo_wire_control(uint64_t comm_hash, int rank);
const struct rondo_wire_closed *rondo_wire_closed_of(uint64_t comm_hash, int rank);
/** Find the ranks of the process at the other end: places [*from, *to) of by_process. */
void rondo_wire_ranks_of(const struct rondo_control *control, const struct rondo_wire_conn *conn, int *from,
                         int *to);
/** Let the hello be of a communicator that goes on, and has a rank in that process.
 * @return 0: none has, so nobody there misses this process */
int rondo_wire_hello_renew(struct rondo_wire_conn *conn);
/** Handle a message that came. @return 0: no intact Rondo sends this */
int rondo_wire_dispatch(struct rondo_wire_conn *conn, const struct rondo_wire_head *head, const void *data);
/** Send a message from a control's rank to another rank. @return 0: not possible now */
int rondo_wire_say(struct rondo_control *control, int rank, enum rondo_wire_kind kind, uint64_t tag,
                   const void *data, size_t bytes);
struct rondo_wire_head rondo_wire_head_of(const struct rondo_control *control, int rank,
                                          enum rondo_wire_kind kind, uint64_t tag, size_t bytes);

/* ---- counts of calls (control_counts.c) ---- */

int rondo_wire_on_ask_counts(struct rondo_control *control, const struct rondo_wire_head *head,
                             const void *data);
int rondo_wire_on_tell_counts(struct rondo_control *control, const struct rondo_wire_head *head,
                              const void *data);

/* ---- clocks (control_clock.c) ---- */

int rondo_wire_on_ask_clock(struct rondo_control *control, const struct rondo_wire_head *head,
                            const void *data);
int rondo_wire_on_tell_clock(struct rondo_control *control, const struct rondo_wire_head *head,
                             const void *data);

/* ---- messages (control_wire_msg.c) ---- */

int rondo_wire_on_msg(struct rondo_control *control, const struct rondo_wire_head *head, const void *data);
int rondo_wire_on_credit(struct rondo_control *control, const struct rondo_wire_head *head, const void *data);
/** Send the credits that could not be sent before. */
void rondo_wire_repay(struct rondo_control *control);
/** Free waiting messages and windows. */
void rondo_wire_msg_clear(struct rondo_wire_part *part);

/* ---- beats and deaths (control_wire_watch.c) ---- */

/** Watch the leaders ahead, if this rank leads its node. */
void rondo_wire_watch_ahead(struct rondo_control *control);
void rondo_wire_spread_on(struct rondo_control *control);
/** @return the message with the reason why the communicator has ended. */
struct rondo_wire_abort rondo_wire_abort_of(struct rondo_control *control);
/** Leave the judgement of a connection that has ended to the others with that process: it may have been the
 * only one that was open (both connected at once, or it was called again before this end was seen). @return
 * their number */
int rondo_wire_pass_on(const struct rondo_wire_conn *ended);
/** All connections of a process have ended, this one last. */
void rondo_wire_lost(const struct rondo_wire_conn *conn);
/** The process at the other end has said that all its ranks have left. */
void rondo_wire_bye(const struct rondo_wire_conn *conn);
/** The process at the other end has proved that it lives. */
void rondo_wire_proved(const struct rondo_wire_conn *conn);
void rondo_wire_heard(struct rondo_wire_conn *conn, int64_t now);

#endif
