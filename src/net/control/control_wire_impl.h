/*
 * What the parts of the wire share: connections (control_wire_conn.c), the listener and greetings
 * (control_wire_listen.c), messages (control_wire.c), beats, deaths and the spreading of reasons
 * (control_wire_watch.c). All of it is under the wire's lock.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_WIRE_IMPL_H
#define RONDO_NET_CONTROL_CONTROL_WIRE_IMPL_H

#include "net/control/control_impl.h"
#include "net/control/control_wire.h"
#include "net/socket/socket_impl.h"

enum {
    RONDO_WIRE_HELLO_MAGIC = 0x68637772,
    RONDO_WIRE_WELCOME_MAGIC = 0x77637772,
    RONDO_WIRE_MAGIC = 0x6d637772,
    RONDO_WIRE_VERSION = 2,
    RONDO_WIRE_IN = 4 << 10,       /* bytes read ahead */
    RONDO_WIRE_OUT = 64 << 10,     /* bytes to be written */
    RONDO_WIRE_RESERVE = 16 << 10, /* of them not for message */
    RONDO_WIRE_FINGERS = 2 * 31,
    RONDO_WIRE_ASKED = RONDO_CONTROL_ASKED, /* ranks whose calls are kept */
    RONDO_WIRE_CLOSED = 64,                 /* communicators that were here */
    RONDO_WIRE_BUCKETS =
        64, /* lists of message, by sender; of windows, by rank and tag; of connections, by process */
    RONDO_WIRE_NOTES = 4 /* sentences to be logged when the lock is free */
};
#define RONDO_WIRE_UNNAMED_NS (5 * INT64_C(1000000000))
#define RONDO_WIRE_PARKED_NS (60 * INT64_C(1000000000))

/* ---- on the wire ---- */

struct rondo_wire_hello {
    uint32_t magic, version;
    uint64_t secret[2];
    uint64_t comm_hash, process; /* of who connects (rondo_wire_process) */
    int32_t from, to;            /* ranks of the communicator */
};

struct rondo_wire_welcome {
    uint32_t magic, version;
    uint64_t secret[2];
    uint64_t process;
};

enum rondo_wire_kind {
    RONDO_WIRE_MSG = 1, /* data */
    RONDO_WIRE_CREDIT,  /* tag: of messages that were taken; data: how many (uint32_t) */
    RONDO_WIRE_ABORT,   /* struct rondo_wire_abort */
    RONDO_WIRE_LEAVE,
    RONDO_WIRE_ASK,
    RONDO_WIRE_TELL,  /* tag: 1: the rank has left; data: its ring of calls */
    RONDO_WIRE_WATCH, /* of a process (no communicator): beat on this connection */
    RONDO_WIRE_BEAT,  /* of a process */
    RONDO_WIRE_BYE,   /* of a process: all its ranks have left in order */
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
    int32_t status, rank; /* whose fault; -1 */
    char text[RONDO_ERROR_TEXT];
};

enum { RONDO_WIRE_MESSAGE = sizeof(struct rondo_wire_head) + RONDO_MSG_BYTES };

/* ---- connections ---- */

enum rondo_wire_state {
    RONDO_WIRE_CONNECTING, /* not yet connected */
    RONDO_WIRE_GREETED,    /* connected; hello and messages are on their way, no welcome yet */
    RONDO_WIRE_ACCEPTED,   /* no hello yet */
    RONDO_WIRE_WAITING,    /* its hello is for a communicator that is not known yet */
    RONDO_WIRE_OPEN,
    RONDO_WIRE_ENDED
};

struct rondo_wire_conn {
    struct rondo_wire_conn *next, *prev; /* all; or next of the ended */
    struct rondo_wire_conn *chain;       /* of the bucket, when `sending` */
    int fd, error;                       /* error: why it has ended, 0: end of stream */
    enum rondo_wire_state state, ended_in;
    uint32_t events; /* that epoll waits for */
    uint8_t incoming, sending, watching, beating, silent;
    int64_t since_ns, heard_ns;
    uint64_t process; /* at the other end */
    uint64_t own;     /* at this end: the same for all, but where a test has several nodes in one process */
    struct rondo_wire_hello hello;
    size_t in_bytes, out_from, out_to;
    uint8_t in[RONDO_WIRE_IN];
    uint8_t *out;
};

/* ---- the process's wire ---- */

enum rondo_wire_drop {
    RONDO_WIRE_DROP_GARBAGE,  /* connections: what was no greeting */
    RONDO_WIRE_DROP_STRANGER, /* a wrong secret, version, process or rank */
    RONDO_WIRE_DROP_SILENT,
    RONDO_WIRE_DROP_EXCESS,
    RONDO_WIRE_DROP_MESSAGE, /* messages: for nobody here */
    RONDO_WIRE_DROP_OLD,     /* kept too long, or too many */
    RONDO_WIRE_NUM_DROPS
};

struct rondo_wire_parked {
    int64_t since_ns; /* 0: unused */
    uint64_t number;  /* in order of arrival */
    uint64_t process;
    struct rondo_wire_head head;
    uint8_t data[RONDO_MSG_BYTES];
};

struct rondo_wire_closed {
    uint64_t comm_hash, secret[2], process;
    int rank;
};

struct rondo_wire {
    int pid; /* of the owner: a forked child has the memory and the descriptors, but they are the parent's */
    uint32_t number; /* among all of this process */
    int epoll, listener, listens /* references */, accepts /* 0: out of descriptors, until the next tick */;
    uint8_t addr[RONDO_ADDR_BYTES];
    uint32_t scope; /* of the interface, for link-local addresses */
    char where[RONDO_SOCKET_ADDR_TEXT];
    struct rondo_control *controls; /* by wire->next */
    struct rondo_wire_conn *conns, *ended;
    struct rondo_wire_conn *bucket[RONDO_WIRE_BUCKETS];
    int nunnamed;
    int64_t ticked_ns;
    uint64_t dropped[RONDO_WIRE_NUM_DROPS];
    struct rondo_wire_parked parked[RONDO_WIRE_PARKED];
    uint64_t nparked; /* so far */
    struct rondo_wire_closed closed[RONDO_WIRE_CLOSED];
    unsigned nclosed;
    char note[RONDO_WIRE_NOTES][RONDO_ERROR_TEXT];
    int nnotes;
};
extern struct rondo_wire *rondo_wire; /* NULL: neither a listener nor a control of several nodes */

void rondo_wire_lock(void);
int rondo_wire_trylock(void);
/** Deal with the connections that have ended, give the lock back, then log the notes. */
void rondo_wire_unlock(void);
/** Keep a sentence for the log. */
void rondo_wire_note(const char *fmt, ...) RONDO_PRINTF(1, 2);
/** Count a drop; a line when their number has doubled. */
void rondo_wire_count(enum rondo_wire_drop why);
/** The wire of this process, made if there is none. */
rondo_status rondo_wire_need(void);
/** Close it when nobody needs it any more. */
void rondo_wire_release(void);

/** A connection that was accepted. */
void rondo_wire_conn_accepted(int fd);
/** The connection to speak to a rank's process on, made if there is none. Quiet errors; RONDO_REMOTE_ERROR:
 * it has gone. */
rondo_status rondo_wire_conn_to(struct rondo_control *control, int rank, struct rondo_wire_conn **conn);
/** The one there is, or NULL. */
struct rondo_wire_conn *rondo_wire_conn_of(uint64_t own, uint64_t process);
/** Speak on this connection when there is no other yet. */
void rondo_wire_conn_use(struct rondo_wire_conn *conn);
/** Queue a message and write what can be written. room: bytes that must stay free behind it. @return 0: it
 * does not fit */
int rondo_wire_put(struct rondo_wire_conn *conn, const struct rondo_wire_head *head, const void *data,
                   size_t room);
/** Queue bytes; the connection has its output buffer. @return 0: they do not fit */
int rondo_wire_put_bytes(struct rondo_wire_conn *conn, const void *data, size_t bytes);
/** Take it out of use; what follows from that happens in rondo_wire_unlock. error: an errno, 0: end of
 * stream. */
void rondo_wire_end(struct rondo_wire_conn *conn, int error);
/** Go on with what was read already. */
void rondo_wire_parse(struct rondo_wire_conn *conn);
/** Wait for input only when it can be used. */
void rondo_wire_pause(struct rondo_wire_conn *conn, int paused);
/** Move all connections. */
void rondo_wire_progress(void);

/* ---- the listener (control_wire_listen.c) ---- */

void rondo_wire_accept(void);
/** After its hello has come, or what it waits for may be there. @return RONDO_WIRE_OPEN, RONDO_WIRE_WAITING,
 * RONDO_WIRE_ENDED */
enum rondo_wire_state rondo_wire_name(struct rondo_wire_conn *conn);
/** @return 0: not the welcome of the process that was called */
int rondo_wire_welcomed(const struct rondo_wire_conn *conn, const struct rondo_wire_welcome *welcome);
int rondo_wire_unnamed_limit(void);
/** Drop those who say nothing; accept again where descriptors had run out. */
void rondo_wire_expire(int64_t now);

/* ---- a control's part ---- */

/** A rank's process with the listener that it had when the communicator was made. */
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

/* Message of one tag to or from one rank. */
struct rondo_wire_window {
    struct rondo_wire_window *next;
    uint64_t tag;
    int rank;
    uint8_t messages; /* sent and not given back; came and not given back */
    uint8_t taken;    /* of those that came: taken */
};

struct rondo_wire_asked {
    int rank;   /* -1: unused */
    int ncalls; /* -1: no answer yet */
    int64_t asked_ns, told_ns, used_ns;
    struct rondo_call call[RONDO_CALL_RING];
};

struct rondo_wire_finger {
    int node, ahead; /* ahead: one of those that this node's leader watches */
    int watched;     /* rank, -1 */
    int told;        /* rank that was told the reason, -1 */
};

struct rondo_wire_part {
    struct rondo_control *next;
    const int *node_of;
    int nnodes;
    int *first;      /* of a node: its lowest rank */
    int *after;      /* of a rank: the next one of its node, -1 */
    int *by_process; /* ranks, by their processes; when joined */
    uint32_t epoch;
    const uint64_t *secret;
    uint8_t joined, left, complained /* of a connection that cannot be made */,
        debt /* credits that could not be sent */;
    _Atomic uint8_t spreading; /* this rank set the reason, or leads the node */
    struct rondo_wire_finger finger[RONDO_WIRE_FINGERS];
    int nfingers;
    _Atomic uint8_t *state;
    _Atomic uint16_t
        *waiting; /* messages from a rank that nobody has asked for yet; written under the inbox's lock */
    struct rondo_wire_msg *first_msg[RONDO_WIRE_BUCKETS],
        **last_msg[RONDO_WIRE_BUCKETS]; /* under the inbox's lock */
    struct rondo_wire_window *window_out[RONDO_WIRE_BUCKETS],
        *window_in[RONDO_WIRE_BUCKETS]; /* under the wire's lock */
    struct rondo_wire_asked asked[RONDO_WIRE_ASKED];
};

/** The control of a rank that is here, or NULL. */
struct rondo_control *rondo_wire_control(uint64_t comm_hash, int rank);
const struct rondo_wire_closed *rondo_wire_closed_of(uint64_t comm_hash, int rank);
/** Ranks of the process at the other end: places [*from, *to) of by_process. */
void rondo_wire_ranks_of(const struct rondo_control *control, const struct rondo_wire_conn *conn, int *from,
                         int *to);
/** A message that came. @return 0: it cannot have come from a Rondo that is in order */
int rondo_wire_dispatch(struct rondo_wire_conn *conn, const struct rondo_wire_head *head, const void *data);
/** Say something of a control's rank to another rank. @return 0: it could not be said */
int rondo_wire_say(struct rondo_control *control, int rank, enum rondo_wire_kind kind, uint64_t tag,
                   const void *data, size_t bytes);
struct rondo_wire_head rondo_wire_head_of(const struct rondo_control *control, int rank,
                                          enum rondo_wire_kind kind, uint64_t tag, size_t bytes);

/* ---- message (control_wire_msg.c) ---- */

int rondo_wire_on_msg(struct rondo_control *control, const struct rondo_wire_head *head, const void *data);
int rondo_wire_on_credit(struct rondo_control *control, const struct rondo_wire_head *head, const void *data);
/** Credits that could not be sent before. */
void rondo_wire_repay(struct rondo_control *control);
/** What waits, and the windows. */
void rondo_wire_msg_clear(struct rondo_wire_part *part);

/* ---- beats and deaths (control_wire_watch.c) ---- */

void rondo_wire_fingers(struct rondo_wire_part *part, int node);
/** The leader of this node watches the leaders ahead of it. */
void rondo_wire_watch_ahead(struct rondo_control *control);
void rondo_wire_spread_on(struct rondo_control *control);
/** All connections of a process have ended, this one last. */
void rondo_wire_lost(const struct rondo_wire_conn *conn);
/** The process at the other end said that all its ranks have left. */
void rondo_wire_bye(const struct rondo_wire_conn *conn);
void rondo_wire_heard(struct rondo_wire_conn *conn, int64_t now);

#endif
