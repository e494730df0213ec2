/*
 * The net transport, shared by its files: conns between ranks that share no memory, carried by a net device.
 *
 * Each end has a block of its own: the two control lines, then RONDO_SLOTS slots, each after a gap in whose
 * last bytes the header of its message goes. The sender's proxy sends a slice as one message, header and
 * slot; its credit comes back when the device needs the slot no more. The receiver's proxy has a receive
 * posted for every slot that was consumed, checks what comes against the header, and moves the tail. All
 * waiting is the executor's: the proxy never blocks and touches an end only when something may have changed
 * for it.
 *
 * Over a device that takes any memory (RONDO_NET_APART) a slice may be sent from, and received to, where the
 * executor says instead of the slot (conn->outside, conn->into): only its header goes through the end's
 * memory. There a receive is posted when its slice is wanted, and not before: then it is known where to.
 *
 * GPUDirect: where the topology says that card and GPU are near enough, and the card takes the GPU's memory,
 * an end's slots are there, and only its lines and the headers in pinned memory. Then a slice is two messages
 * (`split`): the header, and the slot; that is so at both ends when one of them wants it, which the records
 * say. What a card wrote is flushed, if the GPU or the topology says so, before the tail tells of it: once
 * for all slices that have come meanwhile. An end whose slots cannot be had or registered has them in pinned
 * memory after all.
 *
 * Over a device that reaches registered memory (RONDO_NET_PLACES) the same goes for slices whose places lie
 * in regions (base/heap.h), each side for itself: a sender's leaves from there, a receiver's arrives there,
 * in one message all the same (transport_net_user.c); what lies elsewhere is copied to the slot, and from it.
 *
 * Of a rank with a GPU the whole end is pinned and the conn's addresses are the device's. Its kernels post
 * and consume whenever they are there: the proxy takes whatever comes, as far as slots are free, and an error
 * counts while the executor says so (conn->wanted, which it sets and takes back by itself).
 *
 *   | tail, head lines | gap, slot 0 | gap, slot 1 | ... |       gap and slot: multiples of RONDO_CTRL_ALIGN;
 * one slot serves all protocols
 *
 * Bytes of an end: 256 + 8 * (128 + the largest slot), in whole pages. A device that has failed says so once
 * somebody waits for it: a peer that has finished and left before this rank is no fault.
 *
 * A message's header has 16 bytes (step, call word, bytes, protocol). A call is over when net->busy is 0:
 * nothing it sent needs this rank any more.
 *
 * Over sockets, of a ring's 2n - 2 slices a block only the n - 2 partial sums are sent from slots, and n - 1
 * are received into slots (unit_exec.c counts them). Over plugins all slices use slots. Over verbs,
 * registered memory is used for slices of 4 KiB and more. A receiver that has places posts receives only
 * when it knows them: a whole block ahead (trees, chains, send and recv: eight slices), but not for the
 * first slice of a call; after two slices without a place it posts ahead again. An end keeps 8 regions
 * registered, and forgets one that was freed or deregistered at the communicator's next call. A call that
 * fails first takes its places back (rondo_net_revoke: the queue pairs end).
 *
 * GPUDirect is used for each direction and NIC as RONDO_NET_GDR_LEVEL and RONDO_NET_GDR_READ allow; the
 * node's graphs carry the choice. Memory is registered by DMA-BUF, else by nvidia_peermem; the conn's log
 * line then ends with "/GDRDMA". Nothing is flushed where the GPU orders writes itself
 * (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) or with RONDO_GDR_FLUSH_DISABLE. Slots on a GPU are
 * pieces of 64 KiB, out of blocks of 2 MiB or more. The thread that carries these conns runs on those of the
 * rank's cores that are near the NICs (RONDO_PROXY_CORES).
 *
 * By default an end takes 513 KiB; an end for send and recv takes 8 * (128 + RONDO_P2P_NET_CHUNKSIZE) bytes,
 * 257 KiB, made at the first message between the two.
 */
#ifndef RONDO_NET_TRANSPORT_TRANSPORT_NET_H
#define RONDO_NET_TRANSPORT_TRANSPORT_NET_H

#include "net/transport/lazy.h"
#include "net/netdev.h"
#include "net/transport/pinned.h"
#include "net/transport/transport.h"

struct rondo_gpu_mem;

/* Before the slot in a message. */
struct rondo_net_header {
    uint32_t step; /* of the slice, low half */
    uint32_t call; /* call word, or 0 */
    uint32_t bytes, proto;
};

/* Slots of an end in a GPU's memory. */
struct rondo_net_gdr {
    int wanted;     /* the topology, the GPU and the card allow it */
    int on;         /* they are there */
    uint32_t kinds; /* how the card may be given them: bits of rondo_net_memory */
    uint8_t *slots; /* stride bytes each */
    size_t bytes, stride;
    void *region;
    int flush;               /* of what came */
    int failed;              /* one did */
    int dirty;               /* something came since the last one began */
    void *request;           /* one is under way */
    uint64_t told, flushing; /* slices that the receiver knows of, and after this flush */
    uint64_t flushes;        /* so far */
};

/* Registered memory of the user's that the end's device has been given: what its slices leave from, and
 * arrive in. */
enum { RONDO_NET_RANGES = 8 };
struct rondo_net_range {
    uint64_t id; /* of the region (base/heap.h); 0: none */
    uint8_t *base;
    size_t bytes;
    void *region;  /* NULL: the device did not take it */
    int uses;      /* slices under way */
    uint64_t used; /* slice that used it last */
};
struct rondo_net_user {
    struct rondo_net_range range[RONDO_NET_RANGES];
    int uses;                  /* of all */
    uint8_t held[RONDO_SLOTS]; /* 1 + the range that the slice in each slot uses; 0: none */
    uint64_t copied;           /* sender: slices copied to their slots, up to this one */
    int late;                  /* receiver: receives are posted when it is known where to */
    uint64_t asked;            /* receiver: slice that was waited for last */
    uint8_t *place[RONDO_SLOTS];
    uint32_t
        place_bytes[RONDO_SLOTS]; /* receiver: where the slice of each slot may arrive; NULL: in the slot */
};

/* One end of a conn; link->state. */
struct rondo_net_end {
    struct rondo_link *link;
    const uint64_t
        *word; /* what the executor moves: the tail of a sending end, the head of a receiving one */
    uint64_t posted, done; /* slices given to the device, and through with it */
    rondo_status failed;   /* the device's error; its sentence is in text */
    rondo_status refused; /* receiver: the same, of a receive that the device did not take: those that it took
                             come first */
    struct rondo_net_state *owner;
    const struct rondo_net_device *device;
    int index, number; /* in the owner's list (-1: not carried yet); of the device */
    void *comm, *region;
    uint8_t *memory, *address; /* here, and for the executor */
    size_t bytes, stride;
    int gpu;                    /* its conn is a GPU's */
    struct rondo_pinned pinned; /* its memory, for that GPU */
    void *request[RONDO_SLOTS];
    int split; /* headers are messages of their own; their requests, NULL when done: */
    void *head[RONDO_SLOTS];
    struct rondo_net_gdr gdr;
    int apart;                     /* the device takes any memory */
    uint8_t *outside[RONDO_SLOTS]; /* the conn's */
    uint64_t passed_by;            /* slices that did not go through a slot */
    int places;                    /* the device reaches registered memory */
    struct rondo_net_user user;
    struct rondo_lazy lazy;
    int borrowed;              /* its memory is a relay's segment (net/transport/pxn.h): */
    size_t offset;             /* there */
    struct rondo_pxn_use *pxn; /* of a sender that goes through a relay; NULL: by its own device */
    char via[64];
    int logged; /* text: why it failed */
    char text[RONDO_ERROR_TEXT];
};

/* Of one communicator. */
struct rondo_net_state {
    struct rondo_net *net;
    struct rondo_net_ends {
        struct rondo_net_end **at;
        int n, capacity;
    } ends[2]; /* those that are carried: receiving, sending */
    size_t bytes;
    uint64_t epoch,
        refused; /* of regions, when they were looked at; the last one that a device did not take */
    struct rondo_net_pool *pool; /* device memory */
    uint64_t no_gdr; /* bit: number of a device that has refused the GPU's memory: it is not asked again */
    /* Of a relay's own net (net/transport/pxn.h): memory that senders see. */
    struct rondo_shm *segment;
    size_t segment_used, expected; /* next end's offset; bytes of slots of all ends */
    struct rondo_pxn *pxn;         /* of a GPU's net: what it relays, and who relays for it; NULL: nobody */
};

/** The slot of a slice: where its payload lies, or would if it did not lie in a GPU's memory; the header ends
 * there. */
static inline uint8_t *rondo_net_slot(const struct rondo_net_end *end, uint64_t step)
{
    return end->memory + 2 * RONDO_CTRL_ALIGN + RONDO_CTRL_ALIGN + (step % RONDO_SLOTS) * end->stride;
}

/** Carry this end from now on. */
rondo_status rondo_net_carry(struct rondo_net_end *end);
void rondo_net_drop(struct rondo_net_end *end);
/** What the topology says of a net; NULL: nothing. */
const struct rondo_card *rondo_net_card(const struct rondo_net *net, const char *name);
/** Bytes of the largest slot of a link's protocols; of an end's memory whose slots are in it. */
size_t rondo_net_largest(const struct rondo_net *net, const struct rondo_link *link);
size_t rondo_net_room(size_t slot_bytes);
/** A new end of this link, in link->state; its conn, once its memory and its device are there. */
rondo_status rondo_net_end_new(struct rondo_net_state *state, struct rondo_link *link);
void rondo_net_conn_fill(struct rondo_net_end *end);
/** Move one end that is carried; busy: as in struct rondo_net. */
rondo_status rondo_net_end_progress(struct rondo_net_end *end, int is_send, int *busy, int *moved);

/* ---- transport_net_user.c: of ends with places ---- */

/** Send slice end->posted, of which the executor says that it lies outside (NULL: in its slot): from there if
 * that is registered memory, else copied to the slot. */
rondo_status rondo_net_user_send(struct rondo_net_end *end, const struct rondo_net_header *header,
                                 const uint8_t *outside, void **request);
/** Post receives: to the places that the executor offers in registered memory, or to slots. */
rondo_status rondo_net_user_receive(struct rondo_net_end *end, uint64_t head);
/** Slice end->done has come, with these bytes (rondo_net_device.irecv_into): is it in its place? Then its
 * header is written. */
int rondo_net_user_arrived(struct rondo_net_end *end, const size_t bytes[2]);
/** The device is through with a slice. */
void rondo_net_user_done(struct rondo_net_end *end, uint64_t step);
/** Regions have ended: the device forgets them. @return 0: not those that slices are still under way of. */
int rondo_net_user_look(struct rondo_net_end *end);
/** The device forgets all. */
void rondo_net_user_close(struct rondo_net_end *end);

/* ---- transport_net_split.c ---- */

/** Send slice end->posted, whose header is written; receive it. *request NULL: try again. Test slice
 * end->done; *bytes with the header. */
rondo_status rondo_net_split_send(struct rondo_net_end *end, size_t bytes, void **request);
rondo_status rondo_net_split_receive(struct rondo_net_end *end, void **request);
rondo_status rondo_net_split_test(struct rondo_net_end *end, int *done, size_t *bytes);
/** Of an end with gdr.flush: move flushes, and the tail behind them. */
rondo_status rondo_net_flush(struct rondo_net_end *end, int *moved);

/* ---- transport_net_gdr.c: none of these fails; where something does not go, an INFO says why and the end is
 * as without ---- */

#ifdef RONDO_CUDA
/** Sets gdr.wanted, by the properties of the end's device. */
void rondo_net_gdr_choose(struct rondo_net_end *end, const struct rondo_net_properties *properties);
/** If wanted, device memory for slots of so many bytes: gdr.on. */
void rondo_net_gdr_memory(struct rondo_net_end *end, size_t slot_bytes);
/** After the device has connected: if on, register that memory, or be off. */
void rondo_net_gdr_register(struct rondo_net_end *end);
/** Bytes of the slots of an end there; the block that the last piece was had from, NULL: none was. */
size_t rondo_net_gdr_bytes(size_t slot_bytes);
struct rondo_gpu_mem *rondo_net_gdr_block(const struct rondo_net_state *state);
/** All ends are gone. */
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

/* ---- pxn_sender.c: ends that go through another rank's GPU; pxn_relay.c: those of others
 * (net/transport/pxn.h) ---- */

struct rondo_pxn_use;
struct rondo_pxn;

#ifdef RONDO_CUDA
/** Does this sending link go through a relay, and is one ready? 1: it is offered. 0: by its own way; an INFO
 * says why if the topology would have it otherwise. */
int rondo_pxn_offer(struct rondo_net_state *state, struct rondo_link *link, struct rondo_connect *record);
/** Of an end with pxn: as the transport's connect, with a record that is checked; its turn, with the tail;
 * its end, memory and all. */
rondo_status rondo_pxn_connect(struct rondo_net_end *end, const struct rondo_connect *connect);
rondo_status rondo_pxn_progress(struct rondo_net_end *end, uint64_t tail, int *busy, int *moved);
void rondo_pxn_disconnect(struct rondo_net_end *end);
/** The transport's settle and close. */
void rondo_pxn_settle(struct rondo_net_state *state);
void rondo_pxn_close(struct rondo_net_state *state);
/** Memory of the relay's, for the log. */
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

/** The transport's turn (net/transport/transport.h), and its revoke. */
rondo_status rondo_net_state_progress(void *state, int *moved);
void rondo_net_state_revoke(void *state);

#endif
