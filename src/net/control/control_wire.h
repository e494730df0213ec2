/*
 * The control plane between nodes: TCP connections between processes, shared by all communicators of the two.
 *
 * One listener a process (rondo_control_listen), on the interface that the socket device would choose. Who
 * first has something to say to a process connects to it; either side then speaks on that connection. When
 * both connect at once there are two: each keeps to the one it began with, so that message stays in order.
 * The process is lost when the last of them has ended without BYE.
 *
 * A process here is one with one listener: after its last communicator it closes all connections, and with
 * the next one it is another. So a BYE or an end that is read late touches no communicator that was made
 * meanwhile.
 *
 *   hello (magic, version, secret and hash of a communicator of both, process, ranks) ->     <- welcome
 * (magic, version, secret, process) then messages either way: a head (communicator, epoch, kind, ranks, tag,
 * bytes), and up to RONDO_MSG_BYTES
 *
 * What is not a greeting, has a wrong secret, says nothing for 5 s, or is one too many, is dropped and
 * counted. Every claim of a message is checked against that communicator's table: the sender's rank lives in
 * the process at the other end, the epoch (made of that communicator's own secret) is right, lengths and
 * ranks are in range.
 *
 * message      a window of RONDO_WIRE_WINDOW messages per pair of ranks and tag: the sender is told
 * RONDO_IN_PROGRESS when it is used up, the receiver gives it back, by tag, as it takes them. So neither a
 * rank nor a tag that nobody asks for holds up another one. A tag that is forgotten gives back all that it
 * had, and is not used again. Mails of many tags that wait, RONDO_MSG_PARKED from one rank, end the
 * communicator. abort     whoever ends a communicator first in its node, and the rank that leads the node,
 * tell the leaders of the nodes at distance
 *           +-2^k, one time; when a leader is known to be dead the next one is told. The lowest live rank of
 * a node leads it. deaths    a leader watches the leaders of the nodes at +2^k: asks for beats, and holds the
 * connection. A connection that ends without BYE is a dead process, silence of RONDO_DEAD_AFTER an
 * unresponsive one: both end the communicators of its ranks that have not left. A process that refuses before
 * it ever answered has gone, in order or not: that alone ends nothing. leave     is told to all processes at
 * the other end of a connection; others learn it by asking. ask       a rank's state and its recent calls, by
 * its own process.
 *
 * Any thread moves the sockets: under one lock a process, held for bounded work, never blocking. The control
 * thread sleeps on them, beats and looks at the silent. It allocates: a connection that was accepted (at most
 * RONDO_WIRE_UNNAMED that have not said a secret, then 2 a process), and a message until its rank takes it
 * (bounded by RONDO_MSG_PARKED for each sender), and 32 bytes for each rank and tag with message that was not
 * given back. Messages for a communicator or rank that is not known here are kept: at most RONDO_WIRE_PARKED,
 * for 60 s, then dropped and counted; a connection that begins with one keeps its bytes in the kernel.
 *
 * Bytes: 11 a rank and 4 a node of a communicator of several nodes, and 12 KiB for it, 74 KiB a process, 69
 * KiB a connection (5 KiB until it has said a secret). Connections: two times log2(nodes) for a leader (and
 * for who ends a communicator), and one for each process that message goes to.
 *
 * Locks: the watcher's, then the wire's, then a inbox's.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_WIRE_H
#define RONDO_NET_CONTROL_CONTROL_WIRE_H

#include "net/control/control.h"

enum {
    RONDO_WIRE_WINDOW = 8, /* messages of a tag on the way, or not taken yet, from one rank to another */
    RONDO_WIRE_UNNAMED =
        1024, /* connections that have not said a secret yet; a quarter of the descriptors if that is less */
    RONDO_WIRE_PARKED = 64 /* messages for communicators that are not known yet */
};

/* What is known of a rank of another node; 0 to 3 as rondo_control_state_of. */
enum {
    RONDO_WIRE_ALIVE,
    RONDO_WIRE_LEFT,
    RONDO_WIRE_DEAD,
    RONDO_WIRE_SILENT,
    RONDO_WIRE_GONE /* left or dead */
};

/** Tables of a control whose communicator has several nodes; nothing for others. */
rondo_status rondo_wire_new(struct rondo_control *control, const struct rondo_control_config *config);
void rondo_wire_free(struct rondo_control *control);
/** At start, before the control is watched: messages come in from now on; a leader connects to those it
 * watches. */
rondo_status rondo_wire_join(struct rondo_control *control);
/** Tell the connected processes that this rank leaves in order. */
void rondo_wire_leave(struct rondo_control *control);
/** No message reaches the control after it. The last one, when there is no listener either, closes all
 * connections; what is still to be said gets at most 200 ms. */
void rondo_wire_part(struct rondo_control *control);

/** This rank has set the reason: tell the other nodes. */
void rondo_wire_spread(struct rondo_control *control);
/** The same, left to the control thread: for callers that hold the watcher's lock. */
void rondo_wire_spread_later(struct rondo_control *control);
/** For the control thread: a descriptor that is readable when there is something to move; -1: none. */
int rondo_wire_epoll(void);
/** For the control thread: move everything; beat and look at the silent when it is time. restart: this
 * process was itself stopped. */
void rondo_wire_tick(int64_t now, int restart, int64_t beat_ns, int64_t dead_ns);
/** For waiting threads: move everything, unless another thread is at it or it was done a moment ago. */
void rondo_wire_poll(void);

/* Of ranks on other nodes; as rondo_control_send, ... */
rondo_status rondo_wire_send(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                             size_t bytes);
rondo_status rondo_wire_receive(struct rondo_control *control, int rank, uint64_t tag, void *data, size_t max,
                                size_t *bytes);
void rondo_wire_forget(struct rondo_control *control, uint64_t tag);
/** One of RONDO_WIRE_... */
int rondo_wire_state_of(struct rondo_control *control, int rank);
/** Let a rank's process say whether it is there, in time. */
void rondo_wire_ask(struct rondo_control *control, int rank);
/** As rondo_control_last_call, of call seq (0: the last). */
int rondo_wire_call_of(struct rondo_control *control, int rank, uint64_t seq, int64_t since_ns,
                       struct rondo_call *call);

#endif
