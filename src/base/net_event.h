/*
 * Events of net devices for profiler plugins, as NCCL has them: what a net plugin tells by the callback of
 * its init, and what a profiler plugin finds in the data of NetPlugin events. It includes nothing of Rondo,
 * so that plugins can use it.
 */
#ifndef RONDO_BASE_NET_EVENT_H
#define RONDO_BASE_NET_EVENT_H

#include <stddef.h>
#include <stdint.h>

/* The callback. START fills *event with a handle for the later calls, or with NULL: nobody wants it. parent:
 * what isend or irecv got. kind: who defines the event, and its version. more: the data of START and of
 * UPDATE, read before the call returns. */
enum rondo_net_what {
    RONDO_NET_EVENT_START,
    RONDO_NET_EVENT_STOP,
    RONDO_NET_EVENT_UPDATE,
    RONDO_NET_EVENT_UPDATE_AND_STOP
};
typedef int (*rondo_net_event_fn)(void **event, int what, void *parent, int64_t kind, void *more);

/* Kinds: a number of 16 bits, then a version of 16 bits. */
enum { RONDO_NET_KIND_IB = 1 << 16 | 1, RONDO_NET_KIND_SOCKET = 2 << 16 | 1 };

/* Work requests of one queue pair for one message. */
struct rondo_net_ib_event {
    uint8_t type; /* 1: queue pair */
    struct {
        int device; /* its index */
        uint64_t wr_id;
        int opcode; /* of ibv_wr_opcode; of a receive: of ibv_wc_opcode */
        int number; /* of the queue pair */
        size_t bytes;
    } qp;
};

/* One connection's part of a message. */
struct rondo_net_socket_event {
    uint8_t type; /* 1: socket */
    struct {
        int fd, op; /* 0: send, 1: receive */
        size_t bytes;
    } socket;
};

_Static_assert(offsetof(struct rondo_net_ib_event, qp.wr_id) == 16 &&
                   offsetof(struct rondo_net_ib_event, qp.number) == 28 &&
                   sizeof(struct rondo_net_ib_event) == 40,
               "version 1");
_Static_assert(offsetof(struct rondo_net_socket_event, socket.op) == 12 &&
                   sizeof(struct rondo_net_socket_event) == 24,
               "version 1");

#endif
