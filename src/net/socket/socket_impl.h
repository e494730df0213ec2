/*
 * What the parts of the socket device share: interfaces (netdev_socket_if.c), listeners and the start of
 * connections (netdev_socket_listen.c), messages (netdev_socket_stream.c), comms that share connections
 * (netdev_socket_mate.c), threads that help (netdev_socket_helper.c), the device's table and the life of a
 * comm (netdev_socket.c).
 *
 * A comm is `nconns` TCP connections, made by the sender to the listener of the receiver's device; the
 * receiver never writes but one welcome on each. Connection i carries, of every message in turn, the i-th
 * part (parts are equal, 128 KiB at least: small messages are all part 0); a frame goes before part 0.
 *
 * With RONDO_SOCKET_NTHREADS connections from 1 on are moved by helper threads, which find what to do in the
 * list of messages of several parts (`spread`, as far as it is `published`), and parts are 16 KiB at least;
 * connection 0 and the lane stay with whoever uses the comm. A helper touches nothing but its connections,
 * how much of a message is left, and the memory of messages that are not done; what goes wrong there it
 * notes, and the comm's user ends the comm.
 *
 * A sender and a receiver of one owner between the same ranks are mates, if their other ends are mates as
 * well. Then small messages of both directions go over connection 0 of one of them: acknowledgements ride on
 * data, one packet less a message and a fifth of its time. For longer ones connections of their own are
 * better, since the two directions of a connection share a lock. So one of the directions has a lane besides
 * its own connections: connection 0 of its mate, the other way. Before a message that goes elsewhere than the
 * one before it, a switch says so where the one before went. Senders say in their handles who their mates
 * are, and of the two directions the one whose sender has the higher cookie has the lane: all four find the
 * same.
 *
 * A small message is one system call at each end. A receiver expects the next message to be as long as the
 * last one, and reads it to its place together with its frame; what turns out to be of later messages is
 * moved away. So bytes of a receive's memory behind the message that came may have been written.
 *
 * Helpers end when the comm is closed, fails or is given up, before its callers get their memory back.
 */
#ifndef RONDO_NET_SOCKET_SOCKET_IMPL_H
#define RONDO_NET_SOCKET_SOCKET_IMPL_H

#include <netinet/in.h>
#include <pthread.h>
#include <sys/uio.h>
#include "base/ifnames.h"
#include "net/netdev.h"

enum {
    RONDO_SOCKET_HELPED = 64, /* most connections of a comm that threads move */
    RONDO_SOCKET_CONNS = RONDO_SOCKET_HELPED + 1,
    RONDO_SOCKET_PART = 128 << 10,       /* fewest bytes of a part that is not the last */
    RONDO_SOCKET_HELPED_PART = 16 << 10, /* the same, where an end has threads */
    RONDO_SOCKET_READ = 4112,    /* bytes read ahead on connection 0: frames, and small messages with them */
    RONDO_SOCKET_SMALL = 1040,   /* bytes of a message that goes by the lane, at most (measured over veth: the
                                    lane wins up to 1 KiB) */
    RONDO_SOCKET_COPIED = 4112,  /* bytes up to which a sender copies frames and messages together: cheaper
                                    than a gathered call */
    RONDO_SOCKET_UNNAMED = 1024, /* most connections that have not said what they are; a quarter of the
                                    descriptors if that is less */
    RONDO_SOCKET_SILENT_MS = 5000,                                        /* they may be silent so long */
    RONDO_SOCKET_MESSAGES = RONDO_NET_MAX_REQUESTS * RONDO_NET_MAX_RECVS, /* a place is one byte */
    RONDO_SOCKET_MAGIC = 0x6b637372,                                      /* "rsck" */
    RONDO_SOCKET_VERSION = 3,
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
    uint16_t port;         /* of the receiver's listener, in network order; 0: a sender's */
    uint32_t nconns, part; /* part: fewest bytes of one; the lower values of the two ends count */
    uint64_t cookie, mate /* of a sender: its mate's cookie; 0: none */;
    uint8_t addr[16]; /* 4 bytes of IPv4, or IPv6 */
    char ifname[RONDO_IFACE_NAME];
};
_Static_assert(sizeof(struct rondo_socket_handle) <= RONDO_NET_HANDLE, "a handle fits");

/* First on a connection, from the sender. */
struct rondo_socket_hello {
    uint32_t magic, version;
    uint64_t secret[2];
    uint64_t to, from; /* cookies of the two comms */
    uint32_t index, zero;
};

/* The answer. */
struct rondo_socket_welcome {
    uint32_t magic, version;
    uint64_t from; /* the hello's */
};

/* Before a message. */
struct rondo_socket_frame {
    uint64_t bytes; /* UINT64_MAX: none; the next frame is on the other one of connection 0 and lane */
    int32_t tag;
    uint32_t check; /* RONDO_SOCKET_MAGIC + the message's number: a stream that has slipped is noticed */
};

/* ---- devices ---- */

enum rondo_socket_drop {
    RONDO_SOCKET_GARBAGE,
    RONDO_SOCKET_STRANGER,
    RONDO_SOCKET_SILENT,
    RONDO_SOCKET_EXCESS,
    RONDO_SOCKET_NUM_DROPS
};

struct rondo_socket_unnamed {
    struct rondo_socket_unnamed *next, *prev;
    int64_t since_ns;
    size_t bytes;
    int fd;
    struct rondo_socket_hello hello;
};

struct rondo_socket_device {
    char name[RONDO_IFACE_NAME], pci_path[128], text[RONDO_SOCKET_ADDR_TEXT];
    union rondo_socket_addr addr; /* port 0 */
    uint64_t guid;                /* the interface's hardware address, 0: none */
    int32_t mbps;
    /* The rest under the lock, but for `nwaiting` and `looked_ns`, which are atomic. */
    pthread_mutex_t lock;
    int listener, epoll, refs /* receiving comms */, nunnamed, accept_errno;
    uint16_t port;
    struct rondo_socket_comm *waiting; /* receiving comms that are not connected */
    struct rondo_socket_unnamed *oldest, *newest;
    int64_t looked_ns;
    int nwaiting;
    uint64_t dropped[RONDO_SOCKET_NUM_DROPS];
};

/** Interfaces as devices, with a line of log each. *device: an array, free with rondo_free; the caller makes
 * the locks. why: a sentence. */
rondo_status rondo_socket_find(struct rondo_socket_device **device, int *n, char *why, size_t bytes);
/** "52:54:00:12:34:56" as a number; of longer ones (InfiniBand) the last 16 digits, the port's GUID; 0: there
 * is none, or it is all zeros. */
uint64_t rondo_socket_guid(const char *address);
/** "10.0.0.1:4711", "[fe80::1%eth0]:4711"; without a port when it is 0. */
void rondo_socket_addr_text(char text[RONDO_SOCKET_ADDR_TEXT], const union rondo_socket_addr *addr);
static inline socklen_t rondo_socket_addr_bytes(const union rondo_socket_addr *addr)
{
    return addr->any.sa_family == AF_INET6 ? (socklen_t)sizeof addr->in6 : (socklen_t)sizeof addr->in;
}

/* ---- comms ---- */

struct rondo_socket_request {
    struct rondo_socket_comm *comm;
    int used, n, left; /* parts, and those that are not complete (atomic) */
    uint32_t empty;    /* bits of parts that no message has come for */
    void *data[RONDO_NET_MAX_RECVS];
    size_t bytes[RONDO_NET_MAX_RECVS]; /* room; what arrived once complete */
    int tags[RONDO_NET_MAX_RECVS];
    void *head; /* of a receive of one part: its first bytes go here */
    size_t head_bytes;
};

struct rondo_socket_message {
    struct rondo_socket_request *request;
    uint8_t *head, *data; /* its first head_bytes, and the others */
    size_t bytes, part;   /* bytes: of both; part: of all but the last part */
    struct rondo_socket_frame frame;
    uint32_t head_bytes;
    int left;               /* connections that are not through with it; atomic */
    uint8_t lane, switches; /* it goes by the lane; the one before it went elsewhere */
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
    uint64_t from;   /* receiver: the cookie in the hello */
    uint64_t seq;    /* of the message that it is at; from connection 1 on counted in spread. Atomic where a
                        helper moves it */
    uint64_t offset; /* in the frame and the part of that */
};

struct rondo_socket_comm {
    struct rondo_socket_device *device;
    struct rondo_socket_comm *next; /* in device->waiting */
    struct rondo_socket_comm *mate; /* of the other direction; NULL: none, or gone */
    int opened;                     /* its own connections are there */
    int shared;                     /* one of mate and comm has a lane */
    int lane;                       /* its index in conn; 0: none */
    int at;                         /* where the last message went, or the next frame comes: 0 or lane */
    struct rondo_net_peer peer;
    int is_send, connected, waiting, nconns, narrived;
    uint64_t cookie;
    struct rondo_socket_handle other; /* the other end's, once connect has it */
    rondo_status status;              /* the error that ended it, and its sentence */
    char text[RONDO_ERROR_TEXT];
    uint32_t turns;
    int64_t stalled_ns,
        watched_ns; /* since when nothing moves, 0: it does (atomic); when the link was last looked at */
    struct rondo_socket_helpers *helpers; /* NULL: none */
    size_t least_part;
    uint64_t head; /* messages so far */
    uint64_t nspread,
        published; /* those of several parts; as far as the connections from 1 on may know (atomic) */
    uint8_t spread[RONDO_SOCKET_MESSAGES]; /* their places in message */
    uint64_t posted, matched;              /* receives so far; those all of whose parts have a message */
    struct rondo_socket_request *order[RONDO_NET_MAX_REQUESTS];
    struct rondo_socket_request request[RONDO_NET_MAX_REQUESTS];
    struct rondo_socket_message message[RONDO_SOCKET_MESSAGES];
    struct rondo_socket_stage {
        size_t last;           /* bytes of the last message that came, of its part here */
        size_t from, to, room; /* what waits */
        uint8_t *bytes; /* of a receiver _READ bytes, more after a message that was much shorter than the
                           last; of a sender _COPIED */
    } stage[2];         /* of connection 0, of the lane */
    struct rondo_socket_conn conn[]; /* nconns, and the lane */
};

/**
 * End a comm with a sentence of what happened, both ends, the interface, and causes.
 * error: an errno, 0 the end of the stream, -1 what cannot have come from a Rondo. @return the status
 */
rondo_status rondo_socket_lost(struct rondo_socket_comm *comm, int error, const char *doing);
/** End a comm with a sentence; both ends are added. @return the status */
rondo_status rondo_socket_end(struct rondo_socket_comm *comm, rondo_status status, const char *fmt, ...)
    RONDO_PRINTF(3, 4);
/** The error that has ended a comm, again. */
rondo_status rondo_socket_ended(const struct rondo_socket_comm *comm);
/** Options of a connection: no delay, keepalive within RONDO_SOCKET_TIMEOUT, buffers. */
void rondo_socket_options(int fd);

/* ---- listening (netdev_socket_listen.c) ---- */

/** Make the comm known to the device's listener, which is opened for the first one. */
rondo_status rondo_socket_listen(struct rondo_socket_comm *comm);
/** The comm waits no longer. gone: nor is it there; with the last one the listener closes. */
void rondo_socket_unlisten(struct rondo_socket_comm *comm, int gone);
/** Look at a listener: accept, read hellos, hand connections to their comms, drop others. Bounded. */
void rondo_socket_accept(struct rondo_socket_device *device);

/* ---- comms that share connections (netdev_socket_mate.c) ---- */

/** Before its handle is filled: a sender finds its mate among the receivers that wait. */
void rondo_socket_mate(struct rondo_socket_comm *comm);
/** A comm whose own connections are there is connected when it needs no lane, or has it: RONDO_IN_PROGRESS
 * until mate and comm know the other ends and the mate has its connections. */
rondo_status rondo_socket_lane(struct rondo_socket_comm *comm);
/** The comm closes. @return which of its connections stays open, for the mate; -1: none. The other end sees
 * that nothing more is sent. */
int rondo_socket_unmate(struct rondo_socket_comm *comm);
/** How many connections it has, with the lane. */
static inline int rondo_socket_ways(const struct rondo_socket_comm *comm)
{
    return comm->nconns + (comm->lane != 0);
}

/* ---- messages (netdev_socket_stream.c) ---- */

rondo_status rondo_socket_isend(void *comm, const void *data, size_t bytes, int tag, void *region,
                                void **request);
rondo_status rondo_socket_irecv(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                                void *const *regions, void **request);
rondo_status rondo_socket_isend_apart(void *comm, const void *head, size_t head_bytes, const void *data,
                                      size_t bytes, int tag, void **request);
rondo_status rondo_socket_irecv_apart(void *comm, void *head, size_t head_bytes, void *data, size_t bytes,
                                      int tag, void **request);
/** Room for so many bytes in a stage; what waits there stays. An error ends the comm. */
rondo_status rondo_socket_stage_room(struct rondo_socket_comm *comm, struct rondo_socket_stage *stage,
                                     size_t bytes);
/** Move what can be moved now. */
rondo_status rondo_socket_progress(struct rondo_socket_comm *comm);
enum { RONDO_SOCKET_FINE = -2 };
/** The same on connection i: RONDO_SOCKET_FINE, or an error as rondo_socket_lost has it. *left: is there more
 * to move? */
int rondo_socket_conn_move(struct rondo_socket_comm *comm, int i, int *left);

/* ---- threads that help (netdev_socket_helper.c) ---- */

/** How many connections this process wants of a comm, and of how long parts, by its parameters. */
void rondo_socket_wants(int *nconns, size_t *part);
/** Of a comm that has its connections: start the threads that RONDO_SOCKET_NTHREADS asks for. An error ends
 * the comm. */
rondo_status rondo_socket_help(struct rondo_socket_comm *comm);
/** Messages have been published. */
void rondo_socket_help_wake(struct rondo_socket_comm *comm);
/** What a helper met: as rondo_socket_conn_move. */
int rondo_socket_help_lost(const struct rondo_socket_comm *comm);
/** The threads are gone, and nobody touches the memory of messages. Waits for one system call that does not
 * block. Any number of times. */
void rondo_socket_help_end(struct rondo_socket_comm *comm);

#endif
