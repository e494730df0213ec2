/*
 * Net devices: how the net transport moves bytes between nodes. rondo_netdevs lists them in order of
 * preference: a loaded plugin, verbs, socket. Test builds can wrap a device to inject faults
 * (netdev_fault.h).
 *
 * A comm is one direction between two ranks. Both ends call prepare, which allocates and fills a handle; the
 * handles travel through the bootstrap or the control plane; then both ends call connect. No call blocks. One
 * thread at a time may use a comm; different threads may use different comms.
 *
 * Messages of a comm arrive whole and in the order of isend. Each one fills the irecv posted at the same
 * position, or, when that irecv has several parts, the part with its tag. A message that is longer than its
 * part, or whose tag no part expects, is an error at the receiver: RONDO_INVALID_USAGE. Devices do not trust
 * what a peer sends: they check lengths, tags and addresses.
 *
 * An error ends the comm: from then on every incomplete request of it fails, with one sentence that names
 * both ends and the usual cause. Errors of the peer or the link are RONDO_REMOTE_ERROR, errors of this host
 * RONDO_SYSTEM_ERROR. After an error only `test`, `close` and, for data that has arrived, `iflush` may be
 * called.
 */
#ifndef RONDO_NET_NETDEV_H
#define RONDO_NET_NETDEV_H

#include "base/net_event.h"
#include "base/status.h"

enum {
    RONDO_NET_HANDLE = 128,
    RONDO_NET_MAX_RECVS = 8,
    RONDO_NET_MAX_REQUESTS = 32, /* in flight on one comm */
    RONDO_NET_NOTE = 32          /* bytes of a note (iwrite) */
};

/* Bits. APART: isend_apart and irecv_apart work, with any host memory. PLACES: isend_from and irecv_into
 * work, with registered memory. WRITES: iwrite, irecv_word and key work. NO_FLUSH: iflush does not work.
 * FLUSH: what comes into GPU memory has to be flushed, even where the GPU keeps the order of a NIC's
 * writes. */
enum rondo_net_memory {
    RONDO_NET_HOST = 1,
    RONDO_NET_CUDA = 2,
    RONDO_NET_DMABUF = 4,
    RONDO_NET_APART = 8,
    RONDO_NET_PLACES = 16,
    RONDO_NET_WRITES = 32,
    RONDO_NET_NO_FLUSH = 64,
    RONDO_NET_FLUSH = 128
};

/* A range of registered memory. */
struct rondo_net_span {
    void *data, *region;
    size_t bytes;
};

/* Where a write goes: an address of the other end, and the key of its registration (key). */
struct rondo_net_target {
    uint64_t address;
    uint32_t key;
};

/* What came with a write. */
struct rondo_net_came {
    uint32_t word;
    int has_note;
    size_t bytes; /* with a note: of the data */
    uint8_t note[RONDO_NET_NOTE];
};

struct rondo_net_properties {
    char name[64];      /* "mlx5_0:1", "eth0" */
    char pci_path[128]; /* in sysfs; "": unknown */
    uint64_t guid;
    uint32_t memory; /* enum rondo_net_memory: the memory that isend and irecv accept */
    int32_t speed_mbps, port, max_comms, max_recvs;
    double latency_us;
};

/* The other end of a comm: for error messages and for authentication (net/auth.h). */
struct rondo_net_peer {
    int32_t rank, channel;
    int32_t self; /* this end's rank */
    char host[RONDO_HOST_LEN];
    uint64_t secret[2]; /* of the communicator; devices must not send it */
    /* NULL: none. Comms with one owner, to the same rank on the same channel, may share resources, a
     * sender with a receiver. They are connected together, and one thread at a time uses them all. */
    const void *owner;
};

struct rondo_net_device {
    const char *name; /* "socket" */
    /** Find the devices. Called before anything else; later calls return the same until finalize.
     * *ndevices 0 is no error: this host has none, and @a why (may be NULL; bytes long) says why. */
    rondo_status (*init)(int *ndevices, char *why, size_t bytes);
    rondo_status (*properties)(int device, struct rondo_net_properties *properties);
    /** Allocate one end. handle: RONDO_NET_HANDLE bytes, 8-byte aligned, plain data for the other end. */
    rondo_status (*prepare)(int device, const struct rondo_net_peer *peer, int is_send, void **comm,
                            void *handle);
    /** Connect with the handle of the other end (which has the opposite direction). RONDO_IN_PROGRESS:
     * call again; the caller has the deadline. */
    rondo_status (*connect)(void *comm, const void *handle);
    /** Register memory for isend and irecv. kind: one bit of rondo_net_memory; fd: a DMA-BUF, or -1. May
     * return the same object for the same pages. */
    rondo_status (*reg)(void *comm, void *data, size_t bytes, int kind, int fd, void **region);
    rondo_status (*unreg)(void *comm, void *region);
    /** Start a send. *request NULL is no error: there is no room or credit now, try again. data stays the
     * caller's, who does not change it until the request is done. */
    rondo_status (*isend)(void *comm, const void *data, size_t bytes, int tag, void *region, void **request);
    /** Post a receive of n parts, 1 to max_recvs, which may arrive in any order. */
    rondo_status (*irecv)(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                          void *const *regions, void **request);
    /**
     * As isend, and as irecv of one part, for a message in two places: head_bytes at head, then bytes at
     * data. The two ends need not split it alike. The memory is not registered. Only for devices with APART.
     */
    rondo_status (*isend_apart)(void *comm, const void *head, size_t head_bytes, const void *data,
                                size_t bytes, int tag, void **request);
    rondo_status (*irecv_apart)(void *comm, void *head, size_t head_bytes, void *data, size_t bytes, int tag,
                                void **request);
    /** As isend of `head` followed by `data`. plain: if the receive has a place of exactly data's size,
     * send only data. Only for devices with PLACES. */
    rondo_status (*isend_from)(void *comm, const struct rondo_net_span *head,
                               const struct rondo_net_span *data, int plain, int tag, void **request);
    /**
     * As irecv of one part at `whole`, except that a plain message may arrive at `place` (at least 1 byte),
     * without its head. test reports two parts: bytes at whole and bytes at place; one of them is 0.
     */
    rondo_status (*irecv_into)(void *comm, const struct rondo_net_span *whole,
                               const struct rondo_net_span *place, int tag, void **request);
    /**
     * One-sided: write data (0 bytes: none) straight to memory that the other end has registered for its
     * receiving comm, and announce it by a word of immediate data. note: NULL, or RONDO_NET_NOTE bytes that
     * come with it, and then large data may be spread over queue pairs. A write to memory that is not
     * registered ends the comm. Only for devices with WRITES; takes a receive of irecv_word, in order, and
     * no other one.
     */
    rondo_status (*iwrite)(void *comm, const struct rondo_net_span *data,
                           const struct rondo_net_target *target, uint32_t word, const void *note,
                           void **request);
    /** Allow the other end one more iwrite, to whatever it has a key of. When test says done, the data has
     * come, and *came is filled. more: it need not know before the next call, which comes at once. */
    rondo_status (*irecv_word)(void *comm, struct rondo_net_came *came, int more, void **request);
    /** The key of a region of a receiving comm, with which the other end may write to the region until
     * unreg. Devices register whole pages. */
    uint32_t (*key)(void *region);
    /** After a receive into GPU memory: done when the GPU sees the data. *request NULL: nothing to wait
     * for. */
    rondo_status (*iflush)(void *comm, int n, void *const *data, const size_t *bytes, void *const *regions,
                           void **request);
    /**
     * Progress the comm. *done 1: the request is released, and bytes (NULL, or one value a part) holds what
     * arrived in each part. Received data stays valid after the comm fails: a refused receive does not fail
     * those before it, and flushes continue when the peer has gone (except that Rondo does not call a failed
     * plugin again). Test every request before RONDO_NET_MAX_REQUESTS later ones of its comm are made:
     * devices have no more places.
     */
    rondo_status (*test)(void *request, int *done, size_t *bytes);
    /** Give up requests in flight: on return nobody touches their memory, and only close may be called.
     * NULL: the device touches memory only within calls. */
    void (*stop)(void *comm);
    /** Close the comm and give up its requests in flight. Never blocks; safe at any time after prepare. */
    void (*close)(void *comm);
    /** Release threads, listeners and devices, after all comms are closed. init may follow. */
    void (*finalize)(void);
};

/* ---- what profiler plugins see of devices ---- */

/* Set around the isend and irecv of a message that somebody watches: what the device gives as the parent of
 * the message's events, which may begin and end until the message's test is done. */
extern __thread void *rondo_net_parent;
/* Takes the events of devices, from any thread; a device calls it only for messages with a parent. Set before
 * there is one. */
extern rondo_net_event_fn rondo_net_event; /* atomic */

/* The events of one request. A message may be two requests, and plugins have room for 8 events of a step. */
enum { RONDO_NET_EVENTS = 4 };
struct rondo_net_events {
    void *parent;
    int n;
    void *event[RONDO_NET_EVENTS];
};
static inline void rondo_net_events_begin(struct rondo_net_events *events)
{
    events->parent = rondo_net_parent;
    events->n = 0;
}
/** Begin another event, if events->parent is not NULL. */
void rondo_net_events_add(struct rondo_net_events *events, int64_t kind, void *data);
/** The request is done. */
void rondo_net_events_end(struct rondo_net_events *events);

extern const struct rondo_net_device rondo_netdev_plugin, rondo_netdev_verbs, rondo_netdev_socket;

/* ---- the list of devices and the choice (netdev.c) ---- */

/* In order of preference. Every build has the same order, because masks of indices travel. */
extern const struct rondo_net_device *const rondo_netdevs[];
extern const int rondo_num_netdevs;

/**
 * Find the devices that RONDO_NET allows and that exist here, as bits by index in rondo_netdevs. Asks each
 * device once until it is finalized, so only the first call is expensive. Thread-safe. *mask 0 is an error
 * only if RONDO_NET names a device.
 * @a why (may be NULL) lists what each device found or why it found nothing, for the log and the error "no
 * net device".
 */
rondo_status rondo_netdev_mask(uint32_t *mask, char *why, size_t bytes);
/** Choose the device for two ranks with these masks: the first that both have, wrapped if RONDO_NET_FAULT
 * injects faults. @return NULL if there is none. Both ends get the same answer. */
const struct rondo_net_device *rondo_netdev_common(uint32_t mask_a, uint32_t mask_b);
/**
 * Prove in a handle that its maker knows the communicator's secret. Covers the device's name, the direction,
 * both ranks, the channel and a random number of the maker.
 * @param mine  the handle is this end's, not the other one's; @param is_send  its maker sends
 */
uint64_t rondo_netdev_proof(const struct rondo_net_peer *peer, const char *device, int mine, int is_send,
                            uint64_t random);
/** Find a device by its name or a usual alias ("IB" is verbs; a loaded plugin's own name), in any case.
 * @return NULL if there is none. */
const struct rondo_net_device *rondo_netdev_by_name(const char *name);
/** Hold the devices for a communicator, from before its rondo_netdev_mask. Thread-safe. */
void rondo_netdev_hold(void);
/** Drop that hold, after the communicator's comms are closed. The last drop finalizes the devices, and the
 * next rondo_netdev_mask asks them again. Thread-safe. */
void rondo_netdev_finalize(void);

#endif
