/*
 * The verbs net device, shared by its files. A comm has one reliable queue pair or several (lanes). Nothing
 * here blocks.
 *
 *   sender                                              receiver
 *                                                         posts an empty receive
 *   slot `sequence % 32` of its fifo   <-- RDMA write --  clear-to-send: address, rkey, size, tag (each part)
 *   the parts                          -- RDMA write -->  their destinations
 *   the size, or an array of sizes     -- immediate  -->  completes the empty receive
 *
 * Each end owns a page-aligned block, struct rondo_verbs_memory, that the peer may write. The sender never
 * writes before it has the clear-to-send. Its last write carries immediate data: the size of the one part,
 * or, after an array of sizes written into the receiver's block, the mark that all has been written. So
 * messages always find a posted work request.
 *
 * Lanes. Message s begins at lane s % n. Its data is one stripe there or, with the sender's
 * RONDO_IB_SPLIT_DATA_ON_QPS, as many stripes of a multiple of 128 bytes as it fills, on this lane and those
 * after it; the last write on each lane carries the immediate data. Lanes do not wait for one another, so
 * what arrives on a lane is kept until its message is next: the word on the first lane tells the sizes, and
 * these tell how many lanes carry a word of the message.
 *
 * A receive may also have a place (irecv_into): the clear-to-send then names both destinations. If the head
 * of a message may be left out and its data is as long as the place, the sender writes the data there and
 * sets a bit of the immediate data. Either way it is one write: of header and data in two pieces, or of the
 * data alone.
 *
 * Writes with a word (iwrite, irecv_word) use the same clear-to-sends as credits, without an address: the
 * sender names where the data goes. One write may carry several of them that follow one another. The caller's
 * word is the immediate data of the last write on each lane that the data takes. The note, if there is one,
 * is written into the receiver's block behind the data of the first lane.
 *
 * Entries of the fifo carry the nonce of the sender's end and the sequence number, so that a late or foreign
 * write is not mistaken for a clear-to-send.
 */
#ifndef RONDO_NET_VERBS_VERBS_H
#define RONDO_NET_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include "net/netdev.h"

/* ---- the library, opened at run time ---- */

/* Functions of libibverbs that are not inline. Rows: X(ctx, return type, name, symbol, needed,
 * parameters); optional ones (needed 0) may be NULL. */
/* clang-format off */
#define RONDO_VERBS_TABLE(X, ctx)                                                                           \
    X(ctx, struct ibv_device **, get_device_list, ibv_get_device_list, 1, (int *n))                         \
    X(ctx, void, free_device_list, ibv_free_device_list, 1, (struct ibv_device **list))                     \
    X(ctx, const char *, get_device_name, ibv_get_device_name, 1, (struct ibv_device *device))              \
    X(ctx, __be64, get_device_guid, ibv_get_device_guid, 1, (struct ibv_device *device))                    \
    X(ctx, int, fork_init, ibv_fork_init, 0, (void))                                                        \
    X(ctx, struct ibv_context *, open_device, ibv_open_device, 1, (struct ibv_device *device))              \
    X(ctx, int, close_device, ibv_close_device, 1, (struct ibv_context *context))                           \
    X(ctx, int, get_async_event, ibv_get_async_event, 1,                                                    \
      (struct ibv_context *context, struct ibv_async_event *event))                                         \
    X(ctx, void, ack_async_event, ibv_ack_async_event, 1, (struct ibv_async_event *event))                  \
    X(ctx, int, query_device, ibv_query_device, 1,                                                          \
      (struct ibv_context *context, struct ibv_device_attr *attr))                                          \
    X(ctx, int, query_port, ibv_query_port, 1,                                                              \
      (struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr))                              \
    X(ctx, int, query_gid, ibv_query_gid, 1,                                                                \
      (struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid))                           \
    X(ctx, int, query_gid_ex, _ibv_query_gid_ex, 0,                                                         \
      (struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,             \
       uint32_t flags, size_t bytes))                                                                       \
    X(ctx, struct ibv_pd *, alloc_pd, ibv_alloc_pd, 1, (struct ibv_context *context))                       \
    X(ctx, int, dealloc_pd, ibv_dealloc_pd, 1, (struct ibv_pd *pd))                                         \
    X(ctx, struct ibv_mr *, reg_mr, ibv_reg_mr, 1,                                                          \
      (struct ibv_pd *pd, void *data, size_t bytes, int access))                                            \
    X(ctx, struct ibv_mr *, reg_mr_iova2, ibv_reg_mr_iova2, 0,                                              \
      (struct ibv_pd *pd, void *data, size_t bytes, uint64_t iova, unsigned access))                        \
    X(ctx, struct ibv_mr *, reg_dmabuf_mr, ibv_reg_dmabuf_mr, 0,                                            \
      (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access))                \
    X(ctx, int, dereg_mr, ibv_dereg_mr, 1, (struct ibv_mr *mr))                                             \
    X(ctx, struct ibv_cq *, create_cq, ibv_create_cq, 1,                                                    \
      (struct ibv_context *context, int entries, void *arg, struct ibv_comp_channel *channel, int vector))  \
    X(ctx, int, destroy_cq, ibv_destroy_cq, 1, (struct ibv_cq *cq))                                         \
    X(ctx, struct ibv_qp *, create_qp, ibv_create_qp, 1,                                                    \
      (struct ibv_pd *pd, struct ibv_qp_init_attr *attr))                                                   \
    X(ctx, int, modify_qp, ibv_modify_qp, 1, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask))       \
    X(ctx, int, destroy_qp, ibv_destroy_qp, 1, (struct ibv_qp *qp))
/* clang-format on */

#define RONDO_VERBS_FIELD_(ctx, type, name, symbol, needed, parameters) type(*name) parameters;
struct rondo_verbs_lib {
    RONDO_VERBS_TABLE(RONDO_VERBS_FIELD_, )
};
#undef RONDO_VERBS_FIELD_

/** Get the functions; the first call opens the library. @return NULL if there are none; @a why says why. */
const struct rondo_verbs_lib *rondo_verbs_lib_open(char *why, size_t bytes);
void rondo_verbs_lib_close(void);
/** For tests: use these functions from the next open on; NULL: the real ones again. */
void rondo_verbs_lib_replace(const struct rondo_verbs_lib *lib);

/* ---- devices: a NIC (rondo_verbs_nic, what is opened) has ports (what the net transport sees) ---- */

struct rondo_verbs_mr;

struct rondo_verbs_nic {
    const struct rondo_verbs_lib *lib;
    struct ibv_context *context;
    char name[IBV_SYSFS_NAME_MAX], pci_path[128];
    uint64_t guid;
    uint32_t memory;      /* enum rondo_net_memory */
    pthread_mutex_t lock; /* protects what follows, and is held while an event is handled */
    struct ibv_pd *pd;    /* exists while comms use it */
    int users;
    struct rondo_verbs_mr *mrs;
    int failed; /* atomic: the device has reported a fatal event */
};

struct rondo_verbs_port {
    struct rondo_verbs_nic *nic;
    uint8_t number;
    char name[64]; /* "mlx5_0:1" */
    int32_t speed_mbps;
    int64_t down_ns; /* atomic: time of the event of a lost link, 0: up */
};

/* The source address of a port's packets, read when an end is prepared. */
struct rondo_verbs_address {
    union ibv_gid gid;
    int gid_index;
    uint16_t lid;
    uint8_t mtu, link_layer; /* enum ibv_mtu */
    uint32_t max_message;    /* bytes */
};

rondo_status rondo_verbs_devices_open(int *n, char *why, size_t bytes); /* idempotent */
void rondo_verbs_devices_close(void);
struct rondo_verbs_port *rondo_verbs_port_get(int device); /* NULL: no such device */
/** Set down_ns of one port, or of all (number -1), after an event. */
void rondo_verbs_ports_set_down(const struct rondo_verbs_nic *nic, int number, int64_t down_ns);
rondo_status rondo_verbs_address_query(const struct rondo_verbs_port *port,
                                       struct rondo_verbs_address *address);
rondo_status rondo_verbs_pd_get(struct rondo_verbs_nic *nic);
void rondo_verbs_pd_put(struct rondo_verbs_nic *nic);
/** Does a filter in NCCL_IB_HCA's syntax ("^=mlx5_0:1,rxe") allow this port? "" allows all. */
int rondo_verbs_filter(const char *filter, const char *device, int port);
/* A network to choose GIDs from; IPv4 as IPv4-mapped IPv6. */
struct rondo_verbs_range {
    uint8_t prefix[16];
    int bits;
};
/** Parse "10.1.0.0/16", "fd00::/8", a single address or "" (all). @return 0, or -1 if invalid. */
int rondo_verbs_range_parse(const char *text, struct rondo_verbs_range *range);
int rondo_verbs_range_has(const struct rondo_verbs_range *range, const uint8_t gid[16]);

/* ---- a comm ---- */

enum {
    RONDO_VERBS_MAGIC = 0x72647662,
    RONDO_VERBS_VERSION = 4,
    RONDO_VERBS_LANES = 8,    /* queue pairs of a comm at most; the handle has room for their numbers */
    RONDO_VERBS_STRIPE = 128, /* stripes are multiples of it */
    RONDO_VERBS_SLOTS = RONDO_NET_MAX_REQUESTS, /* messages, or groups of them, in flight */
    RONDO_VERBS_FLUSHES = RONDO_NET_MAX_REQUESTS,
    RONDO_VERBS_SEND_WR = 2 *
                          RONDO_VERBS_SLOTS, /* of a lane: at most one write a request, plus one a group */
    RONDO_VERBS_RECV_WR = RONDO_VERBS_SLOTS,
    RONDO_VERBS_INLINE = 64,   /* inline bytes requested for a work request: a clear-to-send of one part */
    RONDO_VERBS_PIECES = 2,    /* of a write: a header, and data elsewhere */
    RONDO_VERBS_RNR_RETRY = 6, /* 7 means forever */
    RONDO_VERBS_WORD_TAG = INT32_MIN, /* of a clear-to-send for a write with a word */
    RONDO_VERBS_IDLE = 64             /* polls without a completion before a look for events */
};

/* What one end tells the other: its handle. */
struct rondo_verbs_end {
    uint32_t magic;
    uint16_t version;
    uint8_t is_send, port;
    uint32_t psn;     /* of lane 0 */
    uint32_t rkey;    /* of the block at address */
    uint64_t address; /* of struct rondo_verbs_memory */
    uint64_t nonce;   /* of this end */
    uint64_t proof;   /* rondo_netdev_proof, with the nonce */
    uint8_t gid[16];
    uint16_t lid;
    uint8_t mtu, link_layer;
    uint8_t lanes, split;              /* split: a sender spreads a message over several lanes */
    uint8_t qpn[RONDO_VERBS_LANES][3]; /* 24 bits, little-endian */
    char device[26];
};
_Static_assert(sizeof(struct rondo_verbs_end) <= RONDO_NET_HANDLE, "the handle has no room");

/* A bit of the size in immediate data: the message is in the place that the clear-to-send names. Receives
 * with a place are shorter than this. */
#define RONDO_VERBS_PLACED 0x80000000u

/* A part of a clear-to-send. `sequence` is last: the bytes of a line arrive in order. */
struct rondo_verbs_cts {
    uint64_t address, bytes;
    uint32_t rkey;
    int32_t tag;
    uint32_t parts;
    uint32_t place_rkey;
    uint64_t nonce;              /* of the sender's end */
    uint64_t place, place_bytes; /* for data without a head (isend_from); 0 bytes: none */
    uint64_t sequence;           /* of the message, from 1 */
} RONDO_ALIGNED(64);
_Static_assert(sizeof(struct rondo_verbs_cts) == 64, "an entry is a line");

/* Exists at both ends: written by the peer at one, the source of its writes at the other. */
struct rondo_verbs_memory {
    struct rondo_verbs_cts fifo[RONDO_VERBS_SLOTS][RONDO_NET_MAX_RECVS];
    /* Of a write with a note (iwrite): the bytes of its data, then the note. */
    uint64_t sizes[RONDO_VERBS_SLOTS][RONDO_NET_MAX_RECVS];
    uint64_t landing; /* target of flush reads */
};

_Static_assert(RONDO_NET_NOTE <= (RONDO_NET_MAX_RECVS - 1) * sizeof(uint64_t), "a note has room");
_Static_assert(sizeof(uint64_t) + RONDO_NET_NOTE <= RONDO_VERBS_INLINE, "a note is sent inline");
/* sizes[][0] before a write comes, and still after one without a note. */
#define RONDO_VERBS_NO_NOTE UINT64_MAX

/* A registration of whole pages, shared by comms of one NIC. */
struct rondo_verbs_mr {
    struct rondo_verbs_mr *next;
    struct ibv_mr *mr;
    uintptr_t begin, end; /* whole pages */
    uint64_t id; /* the region of user memory it belongs to (base/heap.h), which another region may follow
                  * at the same address; 0: none */
    int access, kind, refs;
};

/* The result of rondo_net_device.reg: one use of a registration. */
struct rondo_verbs_region {
    struct rondo_verbs_region *next, **link; /* of the comm */
    struct rondo_verbs_mr *shared;
    uintptr_t begin, end; /* the caller's bytes */
};

enum rondo_verbs_kind {
    RONDO_VERBS_SEND,
    RONDO_VERBS_RECV,
    RONDO_VERBS_CTS,
    RONDO_VERBS_FLUSH,
    RONDO_VERBS_NUM_KINDS
};

struct rondo_verbs_comm;

struct rondo_verbs_request {
    struct rondo_verbs_comm *comm;
    enum rondo_verbs_kind kind;
    int busy, done, failed, n;
    int tags[RONDO_NET_MAX_RECVS];
    size_t room[RONDO_NET_MAX_RECVS], bytes[RONDO_NET_MAX_RECVS];
    struct ibv_sge piece[RONDO_VERBS_PIECES]; /* of a send: its data, in order */
    size_t head_bytes;                        /* of a send: leading bytes that are left out for a place */
    size_t place_bytes;                       /* of a receive; 0: no place */
    int by_cpu;                               /* of a send: the CPU can read the data */
    int by_word;                              /* iwrite, irecv_word */
    struct rondo_net_target target;           /* of an iwrite */
    uint32_t word;
    int has_note;
    uint8_t note[RONDO_NET_NOTE];
    struct rondo_net_came *came; /* of an irecv_word */
    int stripes;                 /* of a receive: lanes that carry its message; 0: unknown yet */
    struct rondo_net_events events;
};

/* The sends of one clear-to-send. Its entries are copied once seen, because the peer can change its words
 * at any time. */
struct rondo_verbs_group {
    int parts, matched, open; /* parts 0: not seen yet; open: lanes with writes not completed */
    int placed;               /* the one part goes to its place */
    struct rondo_verbs_cts cts[RONDO_NET_MAX_RECVS];
    struct rondo_verbs_request *request[RONDO_NET_MAX_RECVS];
};

/* A queue pair of a comm, and immediate data that arrived on it for later messages. */
struct rondo_verbs_lane {
    struct ibv_qp *qp;
    uint32_t inline_bytes; /* inline room of its work requests */
    int posted;            /* receives in its queue */
    uint32_t came, taken;
    uint32_t imm[RONDO_VERBS_SLOTS];
};

/* Work that a comm has given its NIC, and what came back. Tests assert that it is minimal. */
struct rondo_verbs_counts {
    uint64_t sends, receives; /* work requests posted */
    uint64_t doorbells;       /* calls that posted sends */
    uint64_t bytes;           /* sent by them */
    uint64_t inlined;         /* sends with inline data */
    uint64_t completions;
};

struct rondo_verbs_comm {
    int device; /* the port's index */
    struct rondo_verbs_port *port;
    const struct rondo_verbs_lib *lib;
    struct rondo_net_peer peer;
    struct rondo_verbs_address address;
    struct rondo_verbs_end mine, theirs;
    int is_send, connected, has_pd;
    struct ibv_cq *cq;
    int nlanes, nready, split, shown; /* ready: lanes in RTS; shown: the lane that error messages name */
    struct rondo_verbs_lane lane[RONDO_VERBS_LANES];
    int attempts; /* failed attempts to connect a queue pair */
    int64_t attempt_ns;
    struct ibv_qp *flush_qp; /* connected to itself, from the first GPU memory on */
    struct rondo_verbs_counts counts;
    struct rondo_verbs_memory *memory;
    struct ibv_mr *memory_mr;
    struct rondo_verbs_region *regions;

    uint64_t sequence;    /* messages (groups) begun */
    uint64_t finished;    /* receives whose message has arrived */
    uint32_t cts_open;    /* bits of slots: written, not completed */
    uint64_t cts_waiting; /* clear-to-sends before `sequence` that are not written yet */
    int in_use[RONDO_VERBS_NUM_KINDS];
    struct rondo_verbs_request requests[RONDO_VERBS_SLOTS + RONDO_VERBS_FLUSHES];
    struct rondo_verbs_request *receives[RONDO_VERBS_SLOTS]; /* by sequence */
    struct rondo_verbs_group groups[RONDO_VERBS_SLOTS];

    int idle;
    int gone;  /* the error is of an operation with the peer: what arrived before it stays valid and is
               * flushed */
    int event; /* atomic: enum ibv_event_type + 1 of this queue pair or completion queue */
    rondo_status error;
    char text[RONDO_ERROR_TEXT];
};

/* queue pairs (verbs_qp.c) */
rondo_status rondo_verbs_qp_open(
    struct rondo_verbs_comm *comm); /* creates the completion queue and nlanes queue pairs in INIT; stores
                                     * their numbers in mine */
rondo_status rondo_verbs_qp_connect(struct rondo_verbs_comm *comm);    /* mine and theirs are known: RTR,
                                                                        * RTS; RONDO_IN_PROGRESS: call
                                                                        * again later */
rondo_status rondo_verbs_qp_open_flush(struct rondo_verbs_comm *comm); /* idempotent */
void rondo_verbs_qp_close(struct rondo_verbs_comm *comm);              /* whatever exists */
/** Close lanes from n on, which the other end does not have. */
void rondo_verbs_qp_keep(struct rondo_verbs_comm *comm, int n);
/** Size of the completion queue: every work request in flight completes with an error when its queue pair
 * ends, signalled or not. */
static inline int rondo_verbs_cqe(int lanes)
{
    return lanes * (RONDO_VERBS_SEND_WR + RONDO_VERBS_RECV_WR) + RONDO_VERBS_FLUSHES;
}
static inline uint32_t rondo_verbs_qpn(const struct rondo_verbs_end *end, int lane)
{
    const uint8_t *qpn = end->qpn[lane];
    return qpn[0] | (uint32_t)qpn[1] << 8 | (uint32_t)qpn[2] << 16;
}
/** @return how long a link may be lost before it is an error: the NIC's own retries plus a second. */
int64_t rondo_verbs_retry_window_ns(void);

/* memory (verbs_mr.c) */
rondo_status rondo_verbs_reg_own(struct rondo_verbs_comm *comm); /* the comm's own block */
rondo_status rondo_verbs_reg(void *comm, void *data, size_t bytes, int kind, int fd, void **region);
rondo_status rondo_verbs_unreg(void *comm, void *region);
void rondo_verbs_unreg_all(struct rondo_verbs_comm *comm);

/* messages (verbs_data.c, verbs_send.c), as in netdev.h */
rondo_status rondo_verbs_isend(void *comm, const void *data, size_t bytes, int tag, void *region,
                               void **request);
rondo_status rondo_verbs_irecv(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                               void *const *regions, void **request);
rondo_status rondo_verbs_isend_from(void *comm, const struct rondo_net_span *head,
                                    const struct rondo_net_span *data, int plain, int tag, void **request);
rondo_status rondo_verbs_irecv_into(void *comm, const struct rondo_net_span *whole,
                                    const struct rondo_net_span *place, int tag, void **request);
rondo_status rondo_verbs_iwrite(void *comm, const struct rondo_net_span *data,
                                const struct rondo_net_target *target, uint32_t word, const void *note,
                                void **request);
rondo_status rondo_verbs_irecv_word(void *comm, struct rondo_net_came *came, int more, void **request);
uint32_t rondo_verbs_key(void *region);
rondo_status rondo_verbs_iflush(void *comm, int n, void *const *data, const size_t *bytes,
                                void *const *regions, void **request);
rondo_status rondo_verbs_test(void *request, int *done, size_t *bytes);
/** @return the work done by a comm (of prepare) so far; valid until it is closed. */
const struct rondo_verbs_counts *rondo_verbs_counts(const void *comm);

/* shared by verbs_data.c and verbs_send.c */
static inline uint64_t rondo_verbs_wr_id(enum rondo_verbs_kind kind, uint64_t value)
{
    return (uint64_t)kind << 32 | (uint32_t)value;
}
/** Lane i of a message. */
static inline struct rondo_verbs_lane *rondo_verbs_lane_of(struct rondo_verbs_comm *comm, uint64_t sequence,
                                                           int i)
{
    return &comm->lane[(sequence + (uint64_t)i) % (uint64_t)comm->nlanes];
}
/** Bytes of each stripe of a message except the last; number of its stripes, at least 1. */
size_t rondo_verbs_stripe(const struct rondo_verbs_comm *comm, uint64_t bytes);
int rondo_verbs_stripes(const struct rondo_verbs_comm *comm, uint64_t bytes);
/** @return NULL if `most` requests of this kind are in flight. */
struct rondo_verbs_request *rondo_verbs_request_take(struct rondo_verbs_comm *comm,
                                                     enum rondo_verbs_kind kind, int most);
/** Is the comm usable, in this direction? */
rondo_status rondo_verbs_comm_check(const struct rondo_verbs_comm *comm, int is_send);
rondo_status rondo_verbs_region_check(const struct rondo_verbs_comm *comm,
                                      const struct rondo_verbs_region *region, const void *data,
                                      size_t bytes);
/** Bytes that a work request sends. */
static inline size_t rondo_verbs_wr_bytes(const struct ibv_send_wr *wr)
{
    size_t bytes = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        bytes += wr->sg_list[i].length;
    }
    return bytes;
}
/** Post a chain of sends, counted. */
rondo_status rondo_verbs_post(struct rondo_verbs_comm *comm, struct ibv_qp *qp, struct ibv_send_wr *wr,
                              const char *what);
/** The writes of this message on one lane have completed. */
void rondo_verbs_group_done(struct rondo_verbs_comm *comm, uint32_t sequence);
rondo_status rondo_verbs_progress(struct rondo_verbs_comm *comm);

/* errors (verbs_error.c) */
enum { RONDO_VERBS_ENDS = 320 };
/** Describe both ends of a comm: host, device, GID or LID, queue pair (of the lane `shown`). */
void rondo_verbs_ends(const struct rondo_verbs_comm *comm, char text[RONDO_VERBS_ENDS]);
/** End a comm: keeps the first sentence, which is logged once (except for a failed operation of a
 * receiver, which net/transport/transport_net_proxy.c logs when somebody waits). @return its status. */
rondo_status rondo_verbs_comm_fail(struct rondo_verbs_comm *comm, rondo_status status, const char *fmt, ...)
    RONDO_PRINTF(3, 4);
rondo_status rondo_verbs_comm_error(const struct rondo_verbs_comm *comm); /* returns the kept error */
rondo_status rondo_verbs_fail_wc(struct rondo_verbs_comm *comm, const struct ibv_wc *wc);
/** @return what the user can do about an errno of memory or attributes, for the end of a sentence. */
const char *rondo_verbs_errno_cause(int error);
/** Read the device's pending events; fail the comm if one concerns it. */
rondo_status rondo_verbs_events(struct rondo_verbs_comm *comm);

#endif
