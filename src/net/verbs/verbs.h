/*
 * The verbs net device, shared by its files. One or several reliable queue pairs (lanes) a comm; nothing here
 * blocks.
 *
 * A comm owns a page-aligned block, struct rondo_verbs_memory, that the peer may write. The receiver posts an
 * empty receive and writes a clear-to-send (address, rkey, size, tag of each part) into slot `sequence % 32`
 * of the sender's block; the sender, who never writes before, writes the parts and last, with immediate data,
 * what says that it is all: the size of the one part, or the array of sizes into the receiver's block.
 * Receives therefore always find a posted work request.
 *
 * Lanes. Message s begins at lane s % n. Its data is one stripe there, or, when the sender's
 * RONDO_IB_SPLIT_DATA_ON_QPS is set, as many stripes of a multiple of 128 bytes as it fills, on this lane and
 * those after it; the last write of each lane has the immediate data. Lanes do not wait for one another, so
 * that what arrives on one is kept until it is the turn of its message: the first lane's word tells the
 * sizes, those tell how many lanes have a word of it.
 *
 * A receive may have a place besides (irecv_into): the clear-to-send names both, and the sender of a message
 * whose head can be left out and whose data are as long as the place writes these there, and says so by a bit
 * of the immediate data. One write all the same: from a place of its own and a header in two pieces, or the
 * data alone.
 *
 * Entries of the fifo carry the nonce of the sender's end and the running number, so that a write that is
 * late or foreign is not taken for a clear-to-send.
 */
#ifndef RONDO_NET_VERBS_VERBS_H
#define RONDO_NET_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include "net/netdev.h"

/* ---- the library, opened at run time ---- */

/* Functions of libibverbs that are not inline. Rows: X(ctx, return type, name, symbol, needed, parameters);
 * those not needed may be NULL. */
/* clang-format off */
#define RONDO_VERBS_TABLE(X, ctx)                                                                                                          \
    X(ctx, struct ibv_device **, get_device_list, ibv_get_device_list, 1, (int *n))                                                        \
    X(ctx, void, free_device_list, ibv_free_device_list, 1, (struct ibv_device **list))                                                    \
    X(ctx, const char *, get_device_name, ibv_get_device_name, 1, (struct ibv_device *device))                                             \
    X(ctx, __be64, get_device_guid, ibv_get_device_guid, 1, (struct ibv_device *device))                                                   \
    X(ctx, int, fork_init, ibv_fork_init, 0, (void))                                                                                       \
    X(ctx, struct ibv_context *, open_device, ibv_open_device, 1, (struct ibv_device *device))                                             \
    X(ctx, int, close_device, ibv_close_device, 1, (struct ibv_context *context))                                                          \
    X(ctx, int, get_async_event, ibv_get_async_event, 1, (struct ibv_context *context, struct ibv_async_event *event))                     \
    X(ctx, void, ack_async_event, ibv_ack_async_event, 1, (struct ibv_async_event *event))                                                 \
    X(ctx, int, query_device, ibv_query_device, 1, (struct ibv_context *context, struct ibv_device_attr *attr))                            \
    X(ctx, int, query_port, ibv_query_port, 1, (struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr))                    \
    X(ctx, int, query_gid, ibv_query_gid, 1, (struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid))                   \
    X(ctx, int, query_gid_ex, _ibv_query_gid_ex, 0,                                                                                        \
      (struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t bytes))             \
    X(ctx, struct ibv_pd *, alloc_pd, ibv_alloc_pd, 1, (struct ibv_context *context))                                                      \
    X(ctx, int, dealloc_pd, ibv_dealloc_pd, 1, (struct ibv_pd *pd))                                                                        \
    X(ctx, struct ibv_mr *, reg_mr, ibv_reg_mr, 1, (struct ibv_pd *pd, void *data, size_t bytes, int access))                              \
    X(ctx, struct ibv_mr *, reg_mr_iova2, ibv_reg_mr_iova2, 0,                                                                             \
      (struct ibv_pd *pd, void *data, size_t bytes, uint64_t iova, unsigned access))                                                       \
    X(ctx, struct ibv_mr *, reg_dmabuf_mr, ibv_reg_dmabuf_mr, 0,                                                                           \
      (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access))                                               \
    X(ctx, int, dereg_mr, ibv_dereg_mr, 1, (struct ibv_mr *mr))                                                                            \
    X(ctx, struct ibv_cq *, create_cq, ibv_create_cq, 1,                                                                                   \
      (struct ibv_context *context, int entries, void *arg, struct ibv_comp_channel *channel, int vector))                                 \
    X(ctx, int, destroy_cq, ibv_destroy_cq, 1, (struct ibv_cq *cq))                                                                        \
    X(ctx, struct ibv_qp *, create_qp, ibv_create_qp, 1, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr))                               \
    X(ctx, int, modify_qp, ibv_modify_qp, 1, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask))                                      \
    X(ctx, int, destroy_qp, ibv_destroy_qp, 1, (struct ibv_qp *qp))
/* clang-format on */

#define RONDO_VERBS_FIELD_(ctx, type, name, symbol, needed, parameters) type(*name) parameters;
struct rondo_verbs_lib {
    RONDO_VERBS_TABLE(RONDO_VERBS_FIELD_, )
};
#undef RONDO_VERBS_FIELD_

/** The functions, opened at the first call; NULL: @a why says why there are none. */
const struct rondo_verbs_lib *rondo_verbs_lib_open(char *why, size_t bytes);
void rondo_verbs_lib_close(void);
/** Tests: use these instead, from the next open on; NULL: the real ones again. */
void rondo_verbs_lib_replace(const struct rondo_verbs_lib *lib);

/* ---- devices: a card (what is opened) has ports (what the net transport sees) ---- */

struct rondo_verbs_mr;

struct rondo_verbs_card {
    const struct rondo_verbs_lib *lib;
    struct ibv_context *context;
    char name[IBV_SYSFS_NAME_MAX], pci_path[128];
    uint64_t guid;
    uint32_t memory;      /* enum rondo_net_memory */
    pthread_mutex_t lock; /* of what follows, and while an event is handled */
    struct ibv_pd *pd;    /* while comms use it */
    int users;
    struct rondo_verbs_mr *mrs;
    int failed; /* atomic: the device's fatal event was seen */
};

struct rondo_verbs_port {
    struct rondo_verbs_card *card;
    uint8_t number;
    char name[64]; /* "mlx5_0:1" */
    int32_t speed_mbps;
    int64_t down_ns; /* atomic: when the event of a lost link was seen, 0: up */
};

/* Where packets of a port come from, read when an end is prepared. */
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
/** All ports of a card are told of an event: down_ns of one port, -1: of all. */
void rondo_verbs_ports_set_down(const struct rondo_verbs_card *card, int number, int64_t down_ns);
rondo_status rondo_verbs_address_query(const struct rondo_verbs_port *port,
                                       struct rondo_verbs_address *address);
rondo_status rondo_verbs_pd_get(struct rondo_verbs_card *card);
void rondo_verbs_pd_put(struct rondo_verbs_card *card);
/** Does a filter, NCCL_IB_HCA's syntax ("^=mlx5_0:1,rxe"), let this port through? "" lets all. */
int rondo_verbs_filter(const char *filter, const char *device, int port);
/* A network that GIDs are chosen of: IPv4 ones as IPv4-mapped IPv6 ones. */
struct rondo_verbs_range {
    uint8_t prefix[16];
    int bits;
};
/** "10.1.0.0/16", "fd00::/8", an address alone, "" (all). @return 0, or -1 when it is none. */
int rondo_verbs_range_parse(const char *text, struct rondo_verbs_range *range);
int rondo_verbs_range_has(const struct rondo_verbs_range *range, const uint8_t gid[16]);

/* ---- a comm ---- */

enum {
    RONDO_VERBS_MAGIC = 0x72647662,
    RONDO_VERBS_VERSION = 3,
    RONDO_VERBS_LANES = 8,    /* queue pairs of a comm: so many numbers has a handle room for */
    RONDO_VERBS_STRIPE = 128, /* stripes are multiples of it */
    RONDO_VERBS_SLOTS = RONDO_NET_MAX_REQUESTS, /* messages, or groups of them, under way */
    RONDO_VERBS_FLUSHES = RONDO_NET_MAX_REQUESTS,
    RONDO_VERBS_SEND_WR =
        2 * RONDO_VERBS_SLOTS, /* of a lane: at most one write a request, and one more a group */
    RONDO_VERBS_RECV_WR = RONDO_VERBS_SLOTS,
    RONDO_VERBS_INLINE =
        64, /* bytes within a work request that a card is asked for: a clear-to-send of one part */
    RONDO_VERBS_PIECES = 2,    /* of a write: a header, and data that lie elsewhere */
    RONDO_VERBS_RNR_RETRY = 6, /* 7 is for ever */
    RONDO_VERBS_IDLE = 64      /* polls without a completion before events are looked for */
};

/* What is known of an end by the other one: its handle. */
struct rondo_verbs_end {
    uint32_t magic;
    uint16_t version;
    uint8_t is_send, port;
    uint32_t psn;     /* of lane 0 */
    uint32_t rkey;    /* of the block at address */
    uint64_t address; /* struct rondo_verbs_memory */
    uint64_t nonce;   /* of this end */
    uint64_t proof;   /* hash of the communicator's secret */
    uint8_t gid[16];
    uint16_t lid;
    uint8_t mtu, link_layer;
    uint8_t lanes, split;              /* split: data of a message goes over several lanes (of a sender) */
    uint8_t qpn[RONDO_VERBS_LANES][3]; /* 24 bits, the low ones first */
    char device[26];
};
_Static_assert(sizeof(struct rondo_verbs_end) <= RONDO_NET_HANDLE, "the handle has no room");

/* A message's size, in immediate data: it lies at the place that the clear-to-send names. Receives with a
 * place are shorter than this. */
#define RONDO_VERBS_PLACED 0x80000000u

/* A part of a clear-to-send. `sequence` is last: a line arrives in the order of its bytes. */
struct rondo_verbs_cts {
    uint64_t address, bytes;
    uint32_t rkey;
    int32_t tag;
    uint32_t parts;
    uint32_t place_rkey;
    uint64_t nonce;              /* of the sender's end */
    uint64_t place, place_bytes; /* of data without a head (isend_from); 0 bytes: none */
    uint64_t sequence;           /* of the message, from 1 */
} RONDO_ALIGNED(64);
_Static_assert(sizeof(struct rondo_verbs_cts) == 64, "an entry is a line");

/* At both ends: written by the peer at one, the source of its writes at the other. */
struct rondo_verbs_memory {
    struct rondo_verbs_cts fifo[RONDO_VERBS_SLOTS][RONDO_NET_MAX_RECVS];
    uint64_t sizes[RONDO_VERBS_SLOTS][RONDO_NET_MAX_RECVS];
    uint64_t landing; /* of flushes */
};

/* A registration that comms of one card share, of whole pages. */
struct rondo_verbs_mr {
    struct rondo_verbs_mr *next;
    struct ibv_mr *mr;
    uintptr_t begin, end; /* whole pages */
    uint64_t id; /* of the region of the user's memory that it is of (base/heap.h), which another one may
                    follow at the same address; 0: none */
    int access, kind, refs;
};

/* What rondo_net_device.reg gives: the caller's use of a registration. */
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
    size_t head_bytes;                        /* of a send: in front, that a place can do without */
    size_t place_bytes;                       /* of a receive; 0: no place */
    int by_cpu;                               /* of a send: the CPU can read the data */
    int stripes; /* of a receive: lanes that its message comes on; 0: not known yet */
};

/* The sends of one clear-to-send, whose entries are copied when they are seen: the peer can change its words
 * at any time. */
struct rondo_verbs_group {
    int parts, matched, open; /* parts 0: not seen yet; open: lanes whose writes have not completed */
    int placed;               /* the one part goes to its place */
    struct rondo_verbs_cts cts[RONDO_NET_MAX_RECVS];
    struct rondo_verbs_request *request[RONDO_NET_MAX_RECVS];
};

/* A queue pair of a comm, and the immediate data that came on it and of whose message it is not the turn. */
struct rondo_verbs_lane {
    struct ibv_qp *qp;
    uint32_t inline_bytes; /* that its work requests have room for */
    int posted;            /* receives in its queue */
    uint32_t came, taken;
    uint32_t imm[RONDO_VERBS_SLOTS];
};

/* What a comm has asked of its card, and what came back. Tests assert that it is the least. */
struct rondo_verbs_counts {
    uint64_t sends, receives; /* work requests posted */
    uint64_t doorbells;       /* calls that posted sends */
    uint64_t bytes;           /* of these sends */
    uint64_t inlined;         /* sends with their data within */
    uint64_t completions;
};

struct rondo_verbs_comm {
    struct rondo_verbs_port *port;
    const struct rondo_verbs_lib *lib;
    struct rondo_net_peer peer;
    struct rondo_verbs_address address;
    struct rondo_verbs_end mine, theirs;
    int is_send, connected, has_pd;
    struct ibv_cq *cq;
    int nlanes, nready, split, shown; /* ready: in RTS; shown: the lane that messages name */
    struct rondo_verbs_lane lane[RONDO_VERBS_LANES];
    int attempts; /* to connect a queue pair, that failed */
    int64_t attempt_ns;
    struct ibv_qp *flush_qp; /* to itself, from the first GPU memory on */
    struct rondo_verbs_counts counts;
    struct rondo_verbs_memory *memory;
    struct ibv_mr *memory_mr;
    struct rondo_verbs_region *regions;

    uint64_t sequence; /* messages (groups) begun */
    uint64_t finished; /* receives whose message has arrived */
    uint32_t cts_open; /* bits of slots: written, not yet completed */
    int in_use[RONDO_VERBS_NUM_KINDS];
    struct rondo_verbs_request requests[RONDO_VERBS_SLOTS + RONDO_VERBS_FLUSHES];
    struct rondo_verbs_request *receives[RONDO_VERBS_SLOTS]; /* by sequence */
    struct rondo_verbs_group groups[RONDO_VERBS_SLOTS];

    int idle;
    int gone; /* the error is one of an operation with the peer: what arrived before it counts, and is flushed
               */
    int event; /* atomic: enum ibv_event_type + 1 of this queue pair or completion queue */
    rondo_status error;
    char text[RONDO_ERROR_TEXT];
};

/* queue pairs (netdev_verbs_qp.c) */
rondo_status rondo_verbs_qp_open(
    struct rondo_verbs_comm *comm); /* completion queue, nlanes queue pairs in INIT, their numbers in mine */
rondo_status rondo_verbs_qp_connect(struct rondo_verbs_comm *comm);    /* mine and theirs are known: RTR, RTS;
                                                                          RONDO_IN_PROGRESS: once more, later */
rondo_status rondo_verbs_qp_open_flush(struct rondo_verbs_comm *comm); /* idempotent */
void rondo_verbs_qp_close(struct rondo_verbs_comm *comm);              /* of whatever there is */
/** Give up lanes from n on, of which the other end has none. */
void rondo_verbs_qp_keep(struct rondo_verbs_comm *comm, int n);
/** Room that the completion queue needs: every work request that can be under way completes with an error
 * when its queue pair ends, signalled or not. */
static inline int rondo_verbs_cqe(int lanes)
{
    return lanes * (RONDO_VERBS_SEND_WR + RONDO_VERBS_RECV_WR) + RONDO_VERBS_FLUSHES;
}
static inline uint32_t rondo_verbs_qpn(const struct rondo_verbs_end *end, int lane)
{
    const uint8_t *qpn = end->qpn[lane];
    return qpn[0] | (uint32_t)qpn[1] << 8 | (uint32_t)qpn[2] << 16;
}
/** How long until a lost link is an error: the card's own attempts, and a second. */
int64_t rondo_verbs_retry_window_ns(void);

/* memory (netdev_verbs_mr.c) */
rondo_status rondo_verbs_reg_own(struct rondo_verbs_comm *comm); /* its block */
rondo_status rondo_verbs_reg(void *comm, void *data, size_t bytes, int kind, int fd, void **region);
rondo_status rondo_verbs_unreg(void *comm, void *region);
void rondo_verbs_unreg_all(struct rondo_verbs_comm *comm);

/* messages (netdev_verbs_data.c, netdev_verbs_send.c), as in netdev.h */
rondo_status rondo_verbs_isend(void *comm, const void *data, size_t bytes, int tag, void *region,
                               void **request);
rondo_status rondo_verbs_irecv(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                               void *const *regions, void **request);
rondo_status rondo_verbs_isend_from(void *comm, const struct rondo_net_span *head,
                                    const struct rondo_net_span *data, int plain, int tag, void **request);
rondo_status rondo_verbs_irecv_into(void *comm, const struct rondo_net_span *whole,
                                    const struct rondo_net_span *place, int tag, void **request);
rondo_status rondo_verbs_iflush(void *comm, int n, void *const *data, const size_t *bytes,
                                void *const *regions, void **request);
rondo_status rondo_verbs_test(void *request, int *done, size_t *bytes);
/** What a comm (of prepare) has done so far; valid until it is closed. */
const struct rondo_verbs_counts *rondo_verbs_counts(const void *comm);

/* shared by the two */
static inline uint64_t rondo_verbs_wr_id(enum rondo_verbs_kind kind, uint64_t value)
{
    return (uint64_t)kind << 32 | (uint32_t)value;
}
/** Lane i of those of a message. */
static inline struct rondo_verbs_lane *rondo_verbs_lane_of(struct rondo_verbs_comm *comm, uint64_t sequence,
                                                           int i)
{
    return &comm->lane[(sequence + (uint64_t)i) % (uint64_t)comm->nlanes];
}
/** Bytes of a stripe, but of the last, of a message; and how many stripes there are: 1 at least. */
size_t rondo_verbs_stripe(const struct rondo_verbs_comm *comm, uint64_t bytes);
int rondo_verbs_stripes(const struct rondo_verbs_comm *comm, uint64_t bytes);
/** NULL: `most` of this kind are under way. */
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
/** The completion of a lane's writes of this message. */
void rondo_verbs_group_done(struct rondo_verbs_comm *comm, uint32_t sequence);
rondo_status rondo_verbs_progress(struct rondo_verbs_comm *comm);

/* errors (netdev_verbs_error.c) */
enum { RONDO_VERBS_ENDS = 320 };
/** Both ends of a comm in words: host, device, GID or LID, queue pair (of the lane `shown`). */
void rondo_verbs_ends(const struct rondo_verbs_comm *comm, char text[RONDO_VERBS_ENDS]);
/** End a comm: keeps the first sentence, which is logged once (but for a failed operation of a receiver:
 * net/transport/transport_net_proxy.c does when somebody waits). @return its status. */
rondo_status rondo_verbs_comm_fail(struct rondo_verbs_comm *comm, rondo_status status, const char *fmt, ...)
    RONDO_PRINTF(3, 4);
rondo_status rondo_verbs_comm_error(const struct rondo_verbs_comm *comm); /* the kept one, again */
rondo_status rondo_verbs_fail_wc(struct rondo_verbs_comm *comm, const struct ibv_wc *wc);
/** What can be done about an errno of memory or attributes, for the end of a sentence. */
const char *rondo_verbs_errno_cause(int error);
/** Take the device's events, without waiting, and look whether one ends this comm. */
rondo_status rondo_verbs_events(struct rondo_verbs_comm *comm);

#endif
