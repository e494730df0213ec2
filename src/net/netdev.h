/*
 * Net devices: how bytes cross nodes under the net transport. One explicit list, in order of preference: a
 * loaded plugin, verbs, socket; `fault` wraps another one (tests).
 *
 * A comm is one direction between two ranks. Both ends prepare (allocate, say where), the records travel by
 * the bootstrap or the control plane, both connect. There is no handshake with the program's threads blocked:
 * everything returns at once. A comm is used by one thread at a time; different comms by different threads.
 *
 * Messages of a comm arrive whole and in the order of isend, each in the irecv posted in the same place of
 * the order (or, of irecvs with several parts, in the part with its tag). A message longer than its part, or
 * whose tag no part waits for, is an error at the receiver, RONDO_INVALID_USAGE. What a peer sends is never
 * believed: lengths, tags and addresses are checked.
 *
 * An error ends the comm: every request of it that is not complete fails from then on, with one sentence that
 * names both ends and what usually causes it. Errors of the peer or the link are RONDO_REMOTE_ERROR, of this
 * host RONDO_SYSTEM_ERROR. After an error only `test`, `close` and, for what has arrived, `iflush` may be
 * called.
 */
#ifndef RONDO_NET_NETDEV_H
#define RONDO_NET_NETDEV_H

#include "base/status.h"

enum {
    RONDO_NET_HANDLE = 128,
    RONDO_NET_MAX_RECVS = 8,
    RONDO_NET_MAX_REQUESTS = 32 /* under way on a comm */
};

/* Bits. APART: isend_apart and irecv_apart work, with any host memory. PLACES: isend_from and irecv_into
 * work, with registered memory. */
enum rondo_net_memory {
    RONDO_NET_HOST = 1,
    RONDO_NET_CUDA = 2,
    RONDO_NET_DMABUF = 4,
    RONDO_NET_APART = 8,
    RONDO_NET_PLACES = 16
};

/* Registered memory. */
struct rondo_net_span {
    void *data, *region;
    size_t bytes;
};

struct rondo_net_properties {
    char name[64];      /* "mlx5_0:1", "eth0" */
    char pci_path[128]; /* sysfs; "" none */
    uint64_t guid;
    uint32_t memory; /* enum rondo_net_memory: what isend and irecv may be given */
    int32_t speed_mbps, port, max_comms, max_recvs;
    double latency_us;
};

/* Who is at the other end, for messages and for proof. */
struct rondo_net_peer {
    int32_t rank, channel;
    char host[RONDO_HOST_LEN];
    uint64_t secret[2]; /* of the communicator: comes first on whatever is a connection */
    /* NULL: nobody. Comms of one owner to the same rank on the same channel may share what they use, a sender
     * with a receiver. They are connected together, and all used by one thread at a time. */
    const void *owner;
};

struct rondo_net_device {
    const char *name; /* "socket" */
    /** Find devices; called before anything else, again returns the same until finalize. *ndevices 0: none
     * here, no error; @a why (if not NULL) says why, bytes long. */
    rondo_status (*init)(int *ndevices, char *why, size_t bytes);
    rondo_status (*properties)(int device, struct rondo_net_properties *properties);
    /** Allocate an end. handle: RONDO_NET_HANDLE bytes, 8-byte aligned, for the other end, plain data without
     * pointers of this process's that it could use. */
    rondo_status (*prepare)(int device, const struct rondo_net_peer *peer, int is_send, void **comm,
                            void *handle);
    /** With the other end's handle (of the other direction). RONDO_IN_PROGRESS: call again; the caller has
     * the deadline. */
    rondo_status (*connect)(void *comm, const void *handle);
    /** Memory that isend and irecv are given. kind: one bit of rondo_net_memory; fd: of a DMA-BUF, -1 else.
     * May be the same object for the same pages. */
    rondo_status (*reg)(void *comm, void *data, size_t bytes, int kind, int fd, void **region);
    rondo_status (*unreg)(void *comm, void *region);
    /** *request NULL: no room or no credit now, try again; not an error. data stays the caller's and
     * untouched until the request is done. */
    rondo_status (*isend)(void *comm, const void *data, size_t bytes, int tag, void *region, void **request);
    /** n parts, 1 to max_recvs, that may arrive in any order among them. */
    rondo_status (*irecv)(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                          void *const *regions, void **request);
    /** As isend, and irecv of one part, of a message that lies in two places: head_bytes at head, bytes at
     * data; the other end need not do the same. Memory is not registered. Only devices whose properties say
     * APART. */
    rondo_status (*isend_apart)(void *comm, const void *head, size_t head_bytes, const void *data,
                                size_t bytes, int tag, void **request);
    rondo_status (*irecv_apart)(void *comm, void *head, size_t head_bytes, void *data, size_t bytes, int tag,
                                void **request);
    /** As isend of `head` and behind it `data`. plain: to a receive whose place is just as long as data go
     * data alone. Only devices whose properties say PLACES. */
    rondo_status (*isend_from)(void *comm, const struct rondo_net_span *head,
                               const struct rondo_net_span *data, int plain, int tag, void **request);
    /** As irecv of one part at `whole`; but a message that is plain may arrive at `place` (1 byte at least),
     * without its head. test tells of two parts: bytes at whole, bytes at place; one of them is 0. */
    rondo_status (*irecv_into)(void *comm, const struct rondo_net_span *whole,
                               const struct rondo_net_span *place, int tag, void **request);
    /** After a receive into GPU memory: done when the GPU sees the data. *request NULL: nothing to wait for.
     */
    rondo_status (*iflush)(void *comm, int n, void *const *data, const size_t *bytes, void *const *regions,
                           void **request);
    /** Move the comm on. *done 1: the request is gone, bytes (NULL, or room for its parts) has what arrived
     * in each. What arrived counts, whatever happened to the comm after it (but a plugin that has failed is
     * not asked again): a receive that is refused says nothing of those before it, and flushes go on when a
     * peer is gone. No request may wait for its test while more than RONDO_NET_MAX_REQUESTS later ones of its
     * comm are made: devices keep places for so many. */
    rondo_status (*test)(void *request, int *done, size_t *bytes);
    /** Give up requests under way: nobody touches their memory from then on, and only close may be called.
     * NULL: nobody does so but within calls. */
    void (*stop)(void *comm);
    /** Never blocks; requests under way are given up. Safe at any time after prepare. */
    void (*close)(void *comm);
    /** End of use: threads, listeners, devices. All comms are closed; init may come again. */
    void (*finalize)(void);
};

extern const struct rondo_net_device rondo_netdev_plugin, rondo_netdev_verbs, rondo_netdev_socket;

/* ---- the list and the choice (netdev.c) ---- */

/* In order of preference; the same order in every build, so that masks travel. */
extern const struct rondo_net_device *const rondo_netdevs[];
extern const int rondo_num_netdevs;

/**
 * Bits, by index in rondo_netdevs, of those that RONDO_NET allows and that have a device here. Each is asked
 * once until it is finalized, so that all but the first call are cheap; any thread. *mask 0 is no error
 * unless RONDO_NET names one. why (may be NULL): what each has or why it has nothing, for the log and for "no
 * net device".
 */
rondo_status rondo_netdev_mask(uint32_t *mask, char *why, size_t bytes);
/** What two ranks with these masks use: the first that both have, behind the faults of RONDO_NET_FAULT; NULL:
 * none. The same answer at both ends. */
const struct rondo_net_device *rondo_netdev_common(uint32_t mask_a, uint32_t mask_b);
/** One of the list by its name or a usual one ("IB" is verbs, an open plugin's own), in any case; NULL: none.
 */
const struct rondo_net_device *rondo_netdev_by_name(const char *name);
/** A communicator holds the devices from before its mask on. Any thread. */
void rondo_netdev_hold(void);
/** Let go; when nobody else holds them, what rondo_netdev_mask has asked is finalized, and the next mask asks
 * again. This user's comms are closed. Any thread. */
void rondo_netdev_finalize(void);

#endif
