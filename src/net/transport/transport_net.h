/*
 * The net transport, shared by its files: conns between ranks that share no memory, carried by a net device.
 *
 * Each end has a block of memory of its own: two control lines, then RONDO_SLOTS slots, each after a gap
 * whose last bytes hold the header of its message. Gaps and slots are multiples of RONDO_CTRL_ALIGN, and one
 * slot serves all protocols:
 *
 *   | tail line | head line | gap | slot 0 | gap | slot 1 | ...
 *                              `--- a message: the end of the gap (header) and the slot
 *
 * That is 256 + 8 * (128 + the largest slot) bytes, in whole pages. The header has 16 bytes (step, call word,
 * bytes, protocol). The sender's proxy sends a slice as one message, header and slot; the credit comes back
 * when the device no longer needs the slot. The receiver's proxy keeps a receive posted for every consumed
 * slot, checks each message against its header, and moves the tail. The proxy never blocks: only the executor
 * waits, and the proxy touches an end only when something may have changed for it. A call is over when
 * net->busy is 0: nothing it sent needs this rank any more. A failed device reports its error only when
 * somebody waits for it: a peer that has finished and left before this rank is no failure.
 *
 * Any host memory (RONDO_NET_APART, sockets): a slice may be sent from, and received to, the user's buffer
 * instead of the slot (conn->outside, conn->into); only its header uses the end's memory. Such a receive is
 * posted when its slice is wanted, once the destination is known. In a ring, of the 2n - 2 slices a block
 * only the n - 2 partial sums are sent from slots, and n - 1 are received into slots (unit_exec.c counts
 * them).
 *
 * Registered memory (RONDO_NET_PLACES, verbs): the same for slices of 4 KiB and more that lie in registered
 * regions (base/heap.h), each side on its own, still in one message (transport_net_user.c). Other slices are
 * copied to and from the slot. A receiver with places posts receives only once it knows them, a whole block
 * ahead (trees, chains, send and recv: eight slices), except for the first slice of a call; after two slices
 * without a place it posts ahead again. An end keeps 8 regions registered; it forgets a freed or deregistered
 * one at the communicator's next call. A call that fails first takes its places back (rondo_net_revoke ends
 * the queue pairs). Over plugins all slices use slots.
 *
 * GPUDirect: if NIC and GPU are near enough (RONDO_NET_GDR_LEVEL and RONDO_NET_GDR_READ, for each direction
 * and NIC; the node's graphs carry the choice) and the NIC takes the GPU's memory, an end's slots are in GPU
 * memory, and only its lines and headers in pinned memory. Then a slice is two messages (`split`): the
 * header, and the slot. Both ends split when one of them wants it, which the records tell. Received data is
 * flushed before the tail announces it, one flush for all slices that came meanwhile, unless the GPU orders
 * writes itself (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), and the NIC's plugin does not ask for
 * flushes, or RONDO_GDR_FLUSH_DISABLE is set.
 * Memory is registered by DMA-BUF, else by nvidia_peermem; the conn's log line then ends with "/GDRDMA". If
 * the slots cannot be allocated or registered, they are in pinned memory after all. Slots in GPU memory are
 * pieces of 64 KiB, from blocks of 2 MiB or more.
 *
 * For a rank with a GPU the whole end is pinned, and the conn has device addresses. Its kernels post and
 * consume at any time: the proxy receives as long as slots are free, and reports an error only while the
 * executor sets conn->wanted. The thread that carries these conns runs on those of the rank's cores that are
 * near the NICs (RONDO_PROXY_CORES).
 *
 * By default an end takes 513 KiB; an end for send and recv takes 8 * (128 + RONDO_P2P_NET_CHUNKSIZE) bytes,
 * 257 KiB, allocated at the first message between the two ranks.
 */
#ifndef RONDO_NET_TRANSPORT_TRANSPORT_NET_H
#define RONDO_NET_TRANSPORT_TRANSPORT_NET_H

#include "net/netdev.h"
#include "net/transport/pinned.h"
#include "net/transport/transport.h"

struct rondo_gpu_mem;

/* Precedes the slot in a message. */
struct rondo_net_header {
    uint32_t step; /* low half of the slice's step */
    uint32_t call; /* call word, or 0 */
    uint32_t bytes, proto;
};

/* Slots of an end in GPU memory. */
struct rondo_net_gdr {
    int wanted;     /* the topology, the GPU and the NIC allow it */
    int on;         /* the slots exist */
    uint32_t kinds; /* bits of rondo_net_memory: how to register the slots */
    uint8_t *slots; /* stride bytes each */
    size_t bytes, stride;
    void *region;
    int flush;               /* received data needs flushes */
    int failed;              /* a flush has failed */
    int dirty;               /* data arrived since the last flush began */
    void *request;           /* the flush in flight */
    uint64_t told, flushing; /* slices announced to the receiver, and after this flush */
    uint64_t flushes;        /* flushes so far */
};

/* User memory registered with the end's device: sources and destinations of its slices. */
enum { RONDO_NET_RANGES = 8 };
struct rondo_net_range {
    uint64_t id; /* of the region (base/heap.h); 0: none */
    uint8_t *base;
    size_t bytes;
    void *region;  /* NULL: the device refused it */
    int uses;      /* slices in flight */
    uint64_t used; /* last slice that used it */
};
struct rondo_net_user {
    struct rondo_net_range range[RONDO_NET_RANGES];
    int uses;                  /* of all ranges */
    uint8_t held[RONDO_SLOTS]; /* 1 + the range of the slice in each slot; 0: none */
    uint64_t copied;           /* sender: slices before this one have been copied to their slots */
    int late;                  /* receiver: posts a receive only when its place is known */
    uint64_t asked;            /* receiver: the slice last waited for */
    uint8_t *place[RONDO_SLOTS];
    uint32_t
        place_bytes[RONDO_SLOTS]; /* receiver: where the slice of each slot may arrive; NULL: in the slot */
};

/* One end of a conn; link->state. */
struct rondo_net_end {
    struct rondo_link *link;
    const uint64_t
        *word; /* the word that the executor moves: the tail of a sending end, the head of a receiving one */
    uint64_t posted, done; /* slices given to the device, and completed by it */
    rondo_status failed;   /* the device's error; text has the sentence */
    rondo_status refused;  /* receiver: the error of a receive that the device refused; receives it accepted
                           * come first */
    struct rondo_net_state *owner;
    const struct rondo_net_device *device;
    int index, number; /* in the owner's list (-1: not carried yet); of the device */
    void *comm, *region;
    uint8_t *memory, *address; /* here, and in the executor's address space */
    size_t bytes, stride;
    int gpu;                    /* the conn is used by a GPU */
    struct rondo_pinned pinned; /* the end's memory, mapped for that GPU */
    void *request[RONDO_SLOTS];
    int split; /* headers are messages of their own; their requests, NULL when done: */
    void *head[RONDO_SLOTS];
    struct rondo_net_gdr gdr;
    int apart;                     /* the device takes any host memory */
    uint8_t *outside[RONDO_SLOTS]; /* conn->outside of each slot */
    uint64_t passed_by;            /* slices that bypassed the slots */
    int places;                    /* the device takes registered memory */
    struct rondo_net_user user;
    struct rondo_lazy lazy;
    int borrowed;              /* the memory is in a relay's segment (net/transport/pxn.h) */
    size_t offset;             /* of that memory */
    struct rondo_pxn_use *pxn; /* sends through this relay; NULL: its own device */
    char via[64];
    int logged; /* text: why the end failed */
    char text[RONDO_ERROR_TEXT];
};

/* Per communicator. */
struct rondo_net_state {
    struct rondo_net *net;
    struct rondo_net_ends {
        struct rondo_net_end **at;
        int n, capacity;
    } ends[2]; /* ends that are carried: receiving, sending */
    size_t bytes;
    uint64_t epoch, refused; /* epoch of the regions when last checked; the last one that a device refused */
    struct rondo_net_pool *pool; /* device memory */
    uint64_t no_gdr;             /* bits by device number: refused GPU memory, not asked again */
    /* In a relay's net (net/transport/pxn.h): memory that senders see. */
    struct rondo_shm *segment;
    size_t segment_used, expected; /* offset of the next end; slot bytes of all ends */
    struct rondo_pxn *pxn;         /* of a GPU's net: what it relays, and which ranks relay for it; NULL:
                                    * none */
};

/** The slot of a slice: where its payload lies, unless that is in GPU memory. The header ends there. */
static inline uint8_t *rondo_net_slot(const struct rondo_net_end *end, uint64_t step)
{
    return end->memory + 2 * RONDO_CTRL_ALIGN + RONDO_CTRL_ALIGN + (step % RONDO_SLOTS) * end->stride;
}

/** Start to carry this end; rondo_net_drop stops. */
rondo_status rondo_net_carry(struct rondo_net_end *end);
void rondo_net_drop(struct rondo_net_end *end);
/** @return what the topology knows about a NIC; NULL: nothing. */
const struct rondo_nic *rondo_net_nic(const struct rondo_net *net, const char *name);
/** Bytes of the largest slot of a link's protocols; bytes of an end with slots of that size. */
size_t rondo_net_largest(const struct rondo_net *net, const struct rondo_link *link);
size_t rondo_net_room(size_t slot_bytes);
/** Make a new end for this link, in link->state. Fill its conn, once its memory and device exist. */
rondo_status rondo_net_end_new(struct rondo_net_state *state, struct rondo_link *link);
void rondo_net_conn_fill(struct rondo_net_end *end);
/** Progress one carried end; busy: as in struct rondo_net. */
rondo_status rondo_net_end_progress(struct rondo_net_end *end, int is_send, int *busy, int *moved);

/** Slice end->posted goes to the device: set rondo_net_parent, which the caller clears afterwards. */
void rondo_net_parent_begin(const struct rondo_net_end *end);
/** May it be received already? Whoever watches receives wants their slices to belong to a call; the one that
 * somebody waits for does. */
int rondo_net_may_receive(const struct rondo_net_end *end);

/* ---- transport_net_user.c: ends whose device takes registered memory ---- */

/** Send slice end->posted. outside: where the executor says it lies (NULL: in its slot); sent from there
 * if that is registered memory, else copied to the slot. */
rondo_status rondo_net_user_send(struct rondo_net_end *end, const struct rondo_net_header *header,
                                 const uint8_t *outside, void **request);
/** Post receives, to the places that the executor offers in registered memory or to slots. */
rondo_status rondo_net_user_receive(struct rondo_net_end *end, uint64_t head);
/** Slice end->done has arrived, with these bytes (rondo_net_device.irecv_into). @return 1 if it is in its
 * place; then this writes its header. */
int rondo_net_user_arrived(struct rondo_net_end *end, const size_t bytes[2]);
/** The device has completed a slice. */
void rondo_net_user_done(struct rondo_net_end *end, uint64_t step);
/** Regions have ended: deregister them from the device. @return 0: some still have slices in flight. */
int rondo_net_user_look(struct rondo_net_end *end);
/** Deregister all. */
void rondo_net_user_close(struct rondo_net_end *end);

/* ---- transport_net_gdr.c: none of these fails; where GPUDirect does not work an INFO line says why, and
 * the end goes on without it ---- */

#ifdef RONDO_CUDA
/** Set gdr.wanted, from the properties of the end's device. */
void rondo_net_gdr_choose(struct rondo_net_end *end, const struct rondo_net_properties *properties);
/** If wanted, allocate device memory for slots of this size and set gdr.on. */
void rondo_net_gdr_memory(struct rondo_net_end *end, size_t slot_bytes);
/** After the device has connected: if on, register that memory, or turn gdr off. */
void rondo_net_gdr_register(struct rondo_net_end *end);
/** Bytes that the slots of an end take there; the block of the last piece, NULL: none. */
size_t rondo_net_gdr_bytes(size_t slot_bytes);
struct rondo_gpu_mem *rondo_net_gdr_block(const struct rondo_net_state *state);
/** Release the blocks, after all ends are closed. */
void rondo_net_gdr_close(struct rondo_net_state *state);
#else
static inline void rondo_net_gdr_choose(struct rondo_net_end *end,
                                        const struct rondo_net_properties *properties)
{
    (void)end, (void)properties;
}
static inline void rondo_net_gdr_memory(struct rondo_net_end *end, size_t slot_bytes)
{
    (void)end, (void)slot_bytes;
}
static inline void rondo_net_gdr_register(struct rondo_net_end *end) { (void)end; }
static inline void rondo_net_gdr_close(struct rondo_net_state *state) { (void)state; }
#endif

/* ---- pxn_sender.c: ends that send through another rank's GPU; pxn_relay.c: ends of other ranks
 * (net/transport/pxn.h) ---- */

struct rondo_pxn_use;
struct rondo_pxn;

#ifdef RONDO_CUDA
/** Offer through a relay if this sending link wants one and it is ready. @return 1: offered. 0: use the
 * own NIC; an INFO line says why if the topology wanted a relay. */
int rondo_pxn_offer(struct rondo_net_state *state, struct rondo_link *link, struct rondo_connect *record);
/** For an end with pxn: connect, with a checked record; progress, with the tail; close, with all memory. */
rondo_status rondo_pxn_connect(struct rondo_net_end *end, const struct rondo_connect *connect);
rondo_status rondo_pxn_progress(struct rondo_net_end *end, uint64_t tail, int *busy, int *moved);
void rondo_pxn_disconnect(struct rondo_net_end *end);
/** settle and close of the transport. */
void rondo_pxn_settle(struct rondo_net_state *state);
void rondo_pxn_close(struct rondo_net_state *state);
/** Memory of this rank's relay, for the log. */
size_t rondo_pxn_bytes(const struct rondo_net_state *state);
#else
static inline int rondo_pxn_offer(struct rondo_net_state *state, struct rondo_link *link,
                                  struct rondo_connect *record)
{
    return (void)state, (void)link, (void)record, 0;
}
static inline rondo_status rondo_pxn_connect(struct rondo_net_end *end, const struct rondo_connect *connect)
{
    return (void)end, (void)connect, RONDO_SUCCESS;
}
static inline rondo_status rondo_pxn_progress(struct rondo_net_end *end, uint64_t tail, int *busy, int *moved)
{
    return (void)end, (void)tail, (void)busy, (void)moved, RONDO_SUCCESS;
}
static inline void rondo_pxn_disconnect(struct rondo_net_end *end) { (void)end; }
static inline void rondo_pxn_settle(struct rondo_net_state *state) { (void)state; }
static inline void rondo_pxn_close(struct rondo_net_state *state) { (void)state; }
static inline size_t rondo_pxn_bytes(const struct rondo_net_state *state) { return (void)state, (size_t)0; }
#endif

/** progress and revoke of the transport (net/transport/transport.h). */
rondo_status rondo_net_state_progress(void *state, int *moved);
void rondo_net_state_revoke(void *state);

#endif
