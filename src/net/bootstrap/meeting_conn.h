/*
 * One connection of a meeting: a non-blocking TCP stream of messages that begins with the handshake of
 * net/auth.h. Used by one thread at a time.
 */
#ifndef RONDO_NET_BOOTSTRAP_MEETING_CONN_H
#define RONDO_NET_BOOTSTRAP_MEETING_CONN_H

#include "net/auth.h"
#include "net/bootstrap/meeting.h"
#include "net/socket/socket.h"

enum {
    RONDO_MEET_MAGIC = 0x7465656d,
    RONDO_MEET_VERSION = 1,
    RONDO_MEET_ROOT = -1, /* the creator's "rank" */
    RONDO_MEET_READ = 16 << 10
};

enum rondo_meet_kind {
    RONDO_MEET_REGISTER = 1, /* struct rondo_meet_register */
    RONDO_MEET_ACCEPTED,
    RONDO_MEET_REFUSED, /* rondo_round_text */
    RONDO_MEET_WHO,     /* who has not registered? */
    RONDO_MEET_MISSING, /* their ranks, int32_t each */
    RONDO_MEET_FAILED,  /* rondo_round_text: a rank gives the meeting up */
    RONDO_MEET_TABLE,   /* the addresses of all ranks */
    RONDO_MEET_PART,    /* struct rondo_meet_part, and its bytes */
    RONDO_MEET_NOTE,    /* struct rondo_rounds_note */
    RONDO_MEET_BYE      /* this end closes in order */
};

struct rondo_meet_head {
    uint32_t magic, kind;
    uint64_t bytes;
};
struct rondo_meet_register {
    int32_t rank, nranks;
    uint8_t addr[RONDO_ADDR_BYTES];
};
struct rondo_meet_part {
    uint32_t round, zero;
    uint64_t at, bytes;
};

enum rondo_meet_state {
    RONDO_MEET_CONNECTING,
    RONDO_MEET_GREETED,   /* client: the hello is sent */
    RONDO_MEET_ACCEPTED_, /* server: no hello yet */
    RONDO_MEET_WELCOMED,  /* server: no proof yet */
    RONDO_MEET_OPEN,
    RONDO_MEET_ENDED
};

/* Has the other end, which called, proved nothing yet? */
static inline int rondo_meet_is_unproved(enum rondo_meet_state state)
{
    return state == RONDO_MEET_ACCEPTED_ || state == RONDO_MEET_WELCOMED;
}

/* A growing queue of bytes. */
struct rondo_meet_bytes {
    uint8_t *data;
    size_t from, to, capacity;
};

struct rondo_meet_conn {
    struct rondo_meet_conn *next;
    int fd, error; /* error: errno of the end; 0: end of stream */
    enum rondo_meet_state state, ended_in;
    int rank;           /* at the other end; known to a server once it is WELCOMED */
    int sends;          /* the owner sends on this one of a pair's connections */
    int bye, closes;    /* the other end has said goodbye; close when all is written */
    int finishes;       /* when all is written, say so (then 2), and read until the other end closes */
    int calls;          /* this end has made it */
    int kept, ready;    /* the creator's: of a rank that has registered; there is something to read */
    int eof, eof_error; /* nothing more can be read, and why (errno; 0: end of stream) */
    int cut;            /* errno of a send; what the other end sent before is still to be read */
    int noted;          /* the owner's: it knows of the end */
    int64_t since_ns;
    size_t parked; /* the owner's: bytes of it that are kept for later */
    size_t limit;  /* most bytes of a message that comes in */
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    uint64_t secret[2];
    struct rondo_meet_bytes in, out;
};

/** How long a connection to the creator may say nothing, and one that wants a descriptor wait while there is
 * none. Tests shorten it. */
extern int64_t rondo_meet_silent_ns;

/** A listener on the interface that the socket device would choose (without one, on the loopback). */
rondo_status rondo_meet_listen(int *fd, uint8_t addr[RONDO_ADDR_BYTES]);
/** Write an address as text. */
void rondo_meet_text(char text[RONDO_SOCKET_ADDR_TEXT], const uint8_t addr[RONDO_ADDR_BYTES]);
/** Connect to a rank, or to the creator. An error of the connection shows later, in state. Out of
 * descriptors: a quiet error. */
rondo_status rondo_meet_connect(const struct rondo_meeting_id *id, const uint8_t addr[RONDO_ADDR_BYTES],
                                int from, int to, size_t limit, struct rondo_meet_conn **conn);
/** Accept one connection, if there is one: else *conn is NULL. limit: as in struct rondo_meet_conn. Out of
 * descriptors while one waits: a quiet error. */
rondo_status rondo_meet_accept(int listener, size_t limit, struct rondo_meet_conn **conn);
/** Queue a message of up to two pieces, and write what can be written. */
rondo_status rondo_meet_send(struct rondo_meet_conn *conn, enum rondo_meet_kind kind, const void *data,
                             size_t bytes, const void *more, size_t more_bytes);
/** @return bytes that wait to be written. */
static inline size_t rondo_meet_queued(const struct rondo_meet_conn *conn)
{
    return conn->out.to - conn->out.from;
}
/**
 * Judge a hello on the server's side. @return the secret, or NULL: drop the connection
 */
typedef const uint64_t *rondo_meet_judge(void *arg, const struct rondo_auth_hello *hello);
/** Read, write, and take the handshake further. reads 0: only write. */
void rondo_meet_move(struct rondo_meet_conn *conn, int reads, rondo_meet_judge *judge, void *arg);
/** The next message that has come as a whole. @return its bytes, valid until the next call; NULL: none */
const void *rondo_meet_next(struct rondo_meet_conn *conn, struct rondo_meet_head *head);
/** What epoll or poll should wait for. */
short rondo_meet_events(const struct rondo_meet_conn *conn);
/** End a connection; state becomes ENDED. */
void rondo_meet_end(struct rondo_meet_conn *conn, int error);
/** Close and free. */
void rondo_meet_free(struct rondo_meet_conn *conn);

#endif
