/*
 * The socket net device, shared by its files: interfaces (socket_if.c), listeners and the start of
 * connections (socket_listen.c), messages (socket_stream.c), helper threads (socket_helper.c), the device
 * table and the life of a comm, lanes included (socket.c).
 *
 * A comm is `nconns` TCP connections, which the sender makes to the listener of the receiver's device. The
 * receiver writes nothing but one welcome on each, and drops a connection whose first bytes do not prove that
 * its sender knows the communicator's secret (net/auth.h). Connection i carries the i-th part of every
 * message; a frame precedes part 0:
 *
 *   conn 0:  | frame 0 | message 0, part 0 | frame 1 | message 1 (small) | frame 2 | message 2, part 0 | ...
 *   conn 1:  | message 0, part 1 | message 2, part 1 | ...
 *
 * Parts of a message are equal and have at least 128 KiB, so small messages are all part 0.
 *
 * With RONDO_SOCKET_NTHREADS, helper threads move the connections from 1 on, and parts have at least 16 KiB.
 * Helpers find their work in the list of messages with several parts (`spread`, up to `published`).
 * Connection 0 and the lane stay with the thread that uses the comm. A helper touches only its connections,
 * how much of a message is left, and the memory of messages that are not done; it records an error, and the
 * comm's user ends the comm. Helpers end when the comm is closed, fails or is given up, before its callers
 * get their memory back.
 *
 * A sender and a receiver of one owner between the same ranks are each other's reverse comm, if their other
 * ends are too. Then small messages of both directions use connection 0 of one of them: acknowledgements ride
 * on data, which saves a packet and a fifth of the time of a message. Longer messages do better on separate
 * connections, since the two directions of a connection share a lock. So one of the directions has, besides
 * its own connections, a lane: connection 0 of its reverse comm, used in the other direction. Before a
 * message that goes elsewhere than the one before it, a switch says so where that one went. Senders name
 * their reverse comm in their handles; the direction whose sender has the higher cookie gets the lane, so all
 * four ends agree.
 *
 * A small message is one system call at each end. A receiver expects the next message to be as long as the
 * last one, and reads it into its place together with its frame; bytes of later messages are moved away. So
 * memory of a receive behind the message that came may have been overwritten.
 */
#ifndef RONDO_NET_SOCKET_SOCKET_H
#define RONDO_NET_SOCKET_SOCKET_H

#include <netinet/in.h>
#include <pthread.h>
#include <sys/uio.h>
#include "base/ifnames.h"
#include "net/auth.h"
#include "net/netdev.h"

enum {
    RONDO_SOCKET_HELPED = 64, /* most connections of a comm that helper threads move */
    RONDO_SOCKET_CONNS = RONDO_SOCKET_HELPED + 1,
    RONDO_SOCKET_PART = 128 << 10,       /* least bytes of a part that is not the last */
    RONDO_SOCKET_HELPED_PART = 16 << 10, /* the same, with helper threads */
    RONDO_SOCKET_READ = 4112,      /* bytes to read ahead on connection 0: frames, and small messages with
                                  * them */
    RONDO_SOCKET_SMALL = 1040,     /* longest message for the lane (measured over veth: the lane wins up to 1
                                  * KiB) */
    RONDO_SOCKET_COPIED = 4112,    /* up to this size a sender copies frames and messages together, which is
                                  * cheaper than a gathered call */
    RONDO_SOCKET_UNNAMED = 1024,   /* most connections without a right hello; a quarter of the descriptors
                                  * if that is less */
    RONDO_SOCKET_CLAIMS = 8,       /* most welcomed connections for one place in a comm */
    RONDO_SOCKET_SILENT_MS = 5000, /* how long they may be silent before their hello */
    RONDO_SOCKET_MESSAGES = RONDO_NET_MAX_REQUESTS * RONDO_NET_MAX_RECVS, /* a byte holds an index */
    RONDO_SOCKET_MAGIC = 0x6b637372,                                      /* "rsck" */
    RONDO_SOCKET_VERSION = 4,
    RONDO_SOCKET_ADDR_TEXT = 80
};

union rondo_socket_addr {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* ---- on the wire ---- */

struct rondo_socket_handle {
    uint32_t magic, version;
    uint8_t is_send, family /* 4 or 6 */;
    uint16_t port;         /* of the receiver's listener, in network order; 0: the handle is a sender's */
    uint32_t nconns, part; /* part: least bytes of one; the lower values of the two ends apply */
    uint64_t cookie, reverse /* of a sender: its reverse comm's cookie; 0: none */;
    uint8_t addr[16]; /* 4 bytes of IPv4, or IPv6 */
    char ifname[RONDO_IFACE_NAME];
};
_Static_assert(sizeof(struct rondo_socket_handle) <= RONDO_NET_HANDLE, "a handle fits");

/* A connection begins with the handshake of net/auth.h: the sender is the client; ids are the cookies of the
 * two comms. */

/* Precedes a message. */
struct rondo_socket_frame {
    uint64_t bytes; /* UINT64_MAX: a switch; the next frame is on the other one of connection 0 and lane */
    int32_t tag;
    uint32_t check; /* RONDO_SOCKET_MAGIC + the message's number: detects a stream that is out of step */
};

/* ---- devices ---- */

enum rondo_socket_drop {
    RONDO_SOCKET_GARBAGE,
    RONDO_SOCKET_STRANGER,
    RONDO_SOCKET_SILENT,
    RONDO_SOCKET_EXCESS,
    RONDO_SOCKET_NUM_DROPS
};

/* A connection whose sender has not proved who it is. */
struct rondo_socket_unnamed {
    struct rondo_socket_unnamed *next, *prev;
    int64_t since_ns;
    size_t bytes; /* of the hello or the proof, so far */
    int fd;
    int welcomed; /* the hello is right; it may stay until its comm waits no longer */
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
};

struct rondo_socket_device {
    char name[RONDO_IFACE_NAME], pci_path[128], text[RONDO_SOCKET_ADDR_TEXT];
    union rondo_socket_addr addr; /* port 0 */
    uint64_t guid;                /* the interface's hardware address, 0: none */
    int32_t mbps;
    /* The rest is under the lock, except `nwaiting` and `looked_ns`, which are atomic. */
    pthread_mutex_t lock;
    int listener, epoll, refs /* receiving comms */, accept_errno;
    int nunnamed; /* without a right hello */
    uint16_t port;
    struct rondo_socket_comm *waiting; /* receiving comms that are not connected yet */
    struct rondo_socket_unnamed *oldest, *newest;
    int64_t looked_ns;
    int nwaiting;
    uint64_t dropped[RONDO_SOCKET_NUM_DROPS];
};

/** List interfaces as devices and log each. *device: an array, free with rondo_free; the caller
 * initializes the locks. why: a sentence. */
rondo_status rondo_socket_find(struct rondo_socket_device **device, int *n, char *why, size_t bytes);
/** Parse "52:54:00:12:34:56" as a number; of longer addresses (InfiniBand) use the last 16 digits, the
 * port's GUID. @return 0 if there is none, or it is all zeros. */
uint64_t rondo_socket_guid(const char *address);
/** Write "10.0.0.1:4711" or "[fe80::1%eth0]:4711"; omits port 0. */
void rondo_socket_addr_text(char text[RONDO_SOCKET_ADDR_TEXT], const union rondo_socket_addr *addr);
static inline socklen_t rondo_socket_addr_bytes(const union rondo_socket_addr *addr)
{
    return addr->any.sa_family == AF_INET6 ? (socklen_t)sizeof addr->in6 : (socklen_t)sizeof addr->in;
}

/* ---- comms ---- */

struct rondo_socket_request {
    struct rondo_socket_comm *comm;
    int used, n, left; /* parts; parts not complete (atomic) */
    uint32_t empty;    /* bits of parts without a message */
    void *data[RONDO_NET_MAX_RECVS];
    size_t bytes[RONDO_NET_MAX_RECVS]; /* room; when complete, bytes received */
    int tags[RONDO_NET_MAX_RECVS];
    void *head; /* of a receive with one part: its first bytes go here */
    size_t head_bytes;
    struct rondo_net_events events;
};

struct rondo_socket_message {
    struct rondo_socket_request *request;
    uint8_t *head, *data; /* destination or source of the first head_bytes, and of the rest */
    size_t bytes, part;   /* bytes: head and data; part: of each part except the last */
    struct rondo_socket_frame frame;
    uint32_t head_bytes;
    int left;               /* connections that have not finished it; atomic */
    uint8_t lane, switches; /* it uses the lane; a switch precedes it */
};

enum rondo_socket_state {
    RONDO_SOCKET_NEW,
    RONDO_SOCKET_CONNECTING,
    RONDO_SOCKET_GREETED,
    RONDO_SOCKET_READY
};

struct rondo_socket_conn {
    int fd; /* -1: none */
    enum rondo_socket_state state;
    int late;         /* sender: the hello came so late that the receiver may have dropped the connection */
    int64_t begun_ns; /* sender: when it was begun */
    uint64_t from;    /* receiver: the cookie in the hello */
    uint64_t seq;     /* the message it is at; from connection 1 on, an index into spread. Atomic if a
                      * helper moves it */
    uint64_t offset;  /* in that message's frame and part */
};

struct rondo_socket_comm {
    struct rondo_socket_device *device;
    struct rondo_socket_comm *next;    /* in device->waiting */
    struct rondo_socket_comm *reverse; /* the comm of the other direction; NULL: none, or closed */
    int opened;                        /* its own connections exist */
    int shared;                        /* the reverse comm or this one has a lane */
    int lane;                          /* its index in conn; 0: none */
    int at;                            /* where the last message went, or the next frame comes: 0 or lane */
    struct rondo_net_peer peer;
    int is_send, connected, waiting, nconns, narrived;
    uint64_t cookie;
    uint8_t nonce[RONDO_AUTH_NONCE];  /* of a sender's hellos, which differ by their index */
    struct rondo_socket_handle other; /* the other end's, set by connect */
    rondo_status status;              /* the error that ended it, with its sentence */
    char text[RONDO_ERROR_TEXT];
    uint32_t tests;
    int64_t stalled_ns,
        watched_ns; /* since when nothing moves, 0: it moves (atomic); when the link was last checked */
    struct rondo_socket_helpers *helpers; /* NULL: none */
    size_t least_part;
    uint64_t head; /* messages so far */
    uint64_t nspread,
        published; /* messages with several parts; how many of them connections from 1 on may see (atomic) */
    uint8_t spread[RONDO_SOCKET_MESSAGES]; /* their indices in message */
    uint64_t posted, matched;              /* receives so far; receives whose parts all have a message */
    struct rondo_socket_request *order[RONDO_NET_MAX_REQUESTS];
    struct rondo_socket_request request[RONDO_NET_MAX_REQUESTS];
    struct rondo_socket_message message[RONDO_SOCKET_MESSAGES];
    struct rondo_socket_stage {
        size_t last;           /* length of the last message received, of its part here */
        size_t from, to, room; /* buffered bytes */
        uint8_t *bytes; /* a receiver has _READ bytes, more after a message much shorter than the last one;
                         * a sender _COPIED */
    } stage[2];         /* of connection 0 and of the lane */
    struct rondo_socket_conn conn[]; /* nconns, then the lane */
};

/**
 * End a comm with a sentence: what happened, both ends, the interface, usual causes.
 * @param error an errno; 0: end of stream; -1: bytes that are not Rondo's.
 * @return the status
 */
rondo_status rondo_socket_lost(struct rondo_socket_comm *comm, int error, const char *doing);
/** End a comm with this sentence; both ends are appended. @return the status */
rondo_status rondo_socket_end(struct rondo_socket_comm *comm, rondo_status status, const char *fmt, ...)
    RONDO_PRINTF(3, 4);
/** @return the error that has ended a comm. */
rondo_status rondo_socket_ended(const struct rondo_socket_comm *comm);
/** Set a connection's options: no delay, keepalive within RONDO_SOCKET_TIMEOUT, buffers. */
void rondo_socket_options(int fd);
/** Set the congestion control of a connection that is established, as RONDO_SOCKET_CONGESTION says. */
void rondo_socket_congestion(int fd);
/** May it be used here? A wrong name is an error. */
rondo_status rondo_socket_congestion_check(const char *name);
/** Should a connection with this congestion control, to a host that answers within so many microseconds (0:
 * unknown), have another one? */
int rondo_socket_paces_in_vain(const char *name, uint32_t rtt_us);

/* ---- listening (socket_listen.c) ---- */

/** Register the comm with the device's listener, which the first one opens. */
rondo_status rondo_socket_listen(struct rondo_socket_comm *comm);
/** The comm no longer waits. gone: it also closes; the last one closes the listener. */
void rondo_socket_unlisten(struct rondo_socket_comm *comm, int gone);
/** In a forked child: close what it inherited of the listener, which is the parent's. */
void rondo_socket_forget(struct rondo_socket_device *device);
/** Does a connection wait? accept() that finds no free descriptor fails before it looks. */
int rondo_socket_someone_calls(int listener);
/** Serve a listener: accept, read hellos, hand connections to their comms, drop others. Bounded work. */
void rondo_socket_accept(struct rondo_socket_device *device);

/** Number of its connections, including the lane. */
static inline int rondo_socket_conns(const struct rondo_socket_comm *comm)
{
    return comm->nconns + (comm->lane != 0);
}

/* ---- messages (socket_stream.c) ---- */

rondo_status rondo_socket_isend(void *comm, const void *data, size_t bytes, int tag, void *region,
                                void **request);
rondo_status rondo_socket_irecv(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                                void *const *regions, void **request);
rondo_status rondo_socket_isend_apart(void *comm, const void *head, size_t head_bytes, const void *data,
                                      size_t bytes, int tag, void **request);
rondo_status rondo_socket_irecv_apart(void *comm, void *head, size_t head_bytes, void *data, size_t bytes,
                                      int tag, void **request);
/** Make room for this many bytes in a stage; keeps its content. An error ends the comm. */
rondo_status rondo_socket_stage_room(struct rondo_socket_comm *comm, struct rondo_socket_stage *stage,
                                     size_t bytes);
/** Move what can be moved now. */
rondo_status rondo_socket_progress(struct rondo_socket_comm *comm);
enum { RONDO_SOCKET_FINE = -2 };
/** As rondo_socket_progress for connection i. @return RONDO_SOCKET_FINE, or an error as for
 * rondo_socket_lost. *left: is there more to move? */
int rondo_socket_conn_move(struct rondo_socket_comm *comm, int i, int *left);

/* ---- helper threads (socket_helper.c) ---- */

/** The number of connections and the length of parts that this process's parameters ask for. */
void rondo_socket_wants(int *nconns, size_t *part);
/** Start the threads that RONDO_SOCKET_NTHREADS asks for, once the comm is connected. An error ends the
 * comm. */
rondo_status rondo_socket_help(struct rondo_socket_comm *comm);
/** Wake the helpers after messages have been published. */
void rondo_socket_help_wake(struct rondo_socket_comm *comm);
/** @return a helper's error, as rondo_socket_conn_move. */
int rondo_socket_help_lost(const struct rondo_socket_comm *comm);
/** Stop and join the helpers: nobody touches the memory of messages any more. Waits for at most one
 * non-blocking system call; idempotent. */
void rondo_socket_help_end(struct rondo_socket_comm *comm);

#endif
