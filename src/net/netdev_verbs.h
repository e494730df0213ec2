/*
 * The verbs net device, shared by its files. One reliable queue pair a comm; nothing here blocks.
 *
 * A comm owns a page-aligned block, struct rondo_verbs_memory, that the peer may write. The receiver posts an empty receive and writes a clear-to-send (address,
 * rkey, size, tag of each part) into slot `sequence % 32` of the sender's block; the sender, who never writes before, writes the parts and last, with immediate
 * data, what says that it is all: the size of the one part, or the array of sizes into the receiver's block. Receives therefore always find a posted work request.
 *
 * Entries of the fifo carry the nonce of the sender's end and the running number, so that a write that is late or foreign is not taken for a clear-to-send.
 */
#ifndef RONDO_NET_NETDEV_VERBS_H
#define RONDO_NET_NETDEV_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include "net/netdev.h"

/* ---- the library, opened at run time ---- */

/* Functions of libibverbs that are not inline. Rows: X(ctx, return type, name, symbol, needed, parameters); those not needed may be NULL. */
/* clang-format off */
#define RONDO_VERBS_TABLE(X, ctx)                                                                                                          \
    X(ctx, struct ibv_device **, get_device_list, ibv_get_device_list, 1, (int *n))                                                        \
    X(ctx, void, free_device_list, ibv_free_device_list, 1, (struct ibv_device **list))                                                    \
    X(ctx, const char *, get_device_name, ibv_get_device_name, 1, (struct ibv_device *device))                                             \
    X(ctx, __be64, get_device_guid, ibv_get_device_guid, 1, (struct ibv_device *device))                                                   \
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
rondo_status rondo_verbs_address_query(const struct rondo_verbs_port *port, struct rondo_verbs_address *address);
rondo_status rondo_verbs_pd_get(struct rondo_verbs_card *card);
void rondo_verbs_pd_put(struct rondo_verbs_card *card);
/** Does a filter, NCCL_IB_HCA's syntax ("^=mlx5_0:1,rxe"), let this port through? "" lets all. */
int rondo_verbs_filter(const char *filter, const char *device, int port);

/* ---- a comm ---- */

enum {
    RONDO_VERBS_MAGIC = 0x72647662,
    RONDO_VERBS_VERSION = 1,
    RONDO_VERBS_SLOTS = RONDO_NET_MAX_REQUESTS, /* messages, or groups of them, under way */
    RONDO_VERBS_FLUSHES = RONDO_NET_MAX_REQUESTS,
    RONDO_VERBS_SEND_WR = 2 * RONDO_VERBS_SLOTS, /* at most one write a request, and one more a group */
    RONDO_VERBS_RECV_WR = RONDO_VERBS_SLOTS,
    RONDO_VERBS_RNR_RETRY = 6, /* 7 is for ever */
    RONDO_VERBS_IDLE = 64      /* polls without a completion before events are looked for */
};

/* What is known of an end by the other one: its handle. */
struct rondo_verbs_end {
    uint32_t magic;
    uint16_t version;
    uint8_t is_send, port;
    uint32_t qpn, psn;
    uint16_t lid;
    uint8_t mtu, link_layer;
    uint32_t rkey;    /* of the block at address */
    uint64_t address; /* struct rondo_verbs_memory */
    uint64_t nonce;   /* of this end */
    uint64_t proof;   /* hash of the communicator's secret */
    uint8_t gid[16];
    char device[32];
};
_Static_assert(sizeof(struct rondo_verbs_end) <= RONDO_NET_HANDLE, "the handle has no room");

/* A part of a clear-to-send. `sequence` is last: a line arrives in the order of its bytes. */
struct rondo_verbs_cts {
    uint64_t address, bytes;
    uint32_t rkey;
    int32_t tag;
    uint32_t parts, reserved;
    uint64_t nonce; /* of the sender's end */
    uint64_t reserved2[2];
    uint64_t sequence; /* of the message, from 1 */
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
    int access, kind, refs;
};

/* What rondo_net_device.reg gives: the caller's use of a registration. */
struct rondo_verbs_region {
    struct rondo_verbs_region *next, **link; /* of the comm */
    struct rondo_verbs_mr *shared;
    uintptr_t begin, end; /* the caller's bytes */
};

enum rondo_verbs_kind { RONDO_VERBS_SEND, RONDO_VERBS_RECV, RONDO_VERBS_CTS, RONDO_VERBS_FLUSH, RONDO_VERBS_NUM_KINDS };

struct rondo_verbs_comm;

struct rondo_verbs_request {
    struct rondo_verbs_comm *comm;
    enum rondo_verbs_kind kind;
    int busy, done, n;
    int tags[RONDO_NET_MAX_RECVS];
    size_t room[RONDO_NET_MAX_RECVS], bytes[RONDO_NET_MAX_RECVS];
    uint64_t address; /* of a send: its data */
    uint32_t lkey;
};

/* The sends of one clear-to-send, whose entries are copied when they are seen: the peer can change its words at any time. */
struct rondo_verbs_group {
    int parts, matched; /* parts 0: not seen yet */
    struct rondo_verbs_cts cts[RONDO_NET_MAX_RECVS];
    struct rondo_verbs_request *request[RONDO_NET_MAX_RECVS];
};

struct rondo_verbs_comm {
    struct rondo_verbs_port *port;
    const struct rondo_verbs_lib *lib;
    struct rondo_net_peer peer;
    struct rondo_verbs_address address;
    struct rondo_verbs_end mine, theirs;
    int is_send, connected, has_pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp, *flush_qp; /* flush_qp: to itself, from the first GPU memory on */
    struct rondo_verbs_memory *memory;
    struct ibv_mr *memory_mr;
    struct rondo_verbs_region *regions;

    uint64_t sequence; /* messages (groups) begun */
    uint64_t finished; /* receives whose message has arrived */
    int cts_open;      /* written, not yet completed */
    int in_use[RONDO_VERBS_NUM_KINDS];
    struct rondo_verbs_request requests[RONDO_VERBS_SLOTS + RONDO_VERBS_FLUSHES];
    struct rondo_verbs_request *receives[RONDO_VERBS_SLOTS]; /* by sequence */
    struct rondo_verbs_group groups[RONDO_VERBS_SLOTS];

    int idle;
    int event; /* atomic: enum ibv_event_type + 1 of this queue pair or completion queue */
    rondo_status error;
    char text[RONDO_ERROR_TEXT];
};

/* queue pairs (netdev_verbs_qp.c) */
rondo_status rondo_verbs_qp_open(struct rondo_verbs_comm *comm);       /* completion queue, queue pair in INIT */
rondo_status rondo_verbs_qp_connect(struct rondo_verbs_comm *comm);    /* mine and theirs are known: RTR, RTS */
rondo_status rondo_verbs_qp_open_flush(struct rondo_verbs_comm *comm); /* idempotent */
void rondo_verbs_qp_close(struct rondo_verbs_comm *comm);              /* of whatever there is */
/** How long until a lost link is an error: the card's own attempts, and a second. */
int64_t rondo_verbs_retry_window_ns(void);

/* memory (netdev_verbs_mr.c) */
rondo_status rondo_verbs_reg_own(struct rondo_verbs_comm *comm); /* its block */
rondo_status rondo_verbs_reg(void *comm, void *data, size_t bytes, int kind, int fd, void **region);
rondo_status rondo_verbs_unreg(void *comm, void *region);
void rondo_verbs_unreg_all(struct rondo_verbs_comm *comm);

/* data (netdev_verbs_data.c), as in netdev.h */
rondo_status rondo_verbs_isend(void *comm, const void *data, size_t bytes, int tag, void *region, void **request);
rondo_status rondo_verbs_irecv(void *comm, int n, void *const *data, const size_t *bytes, const int *tags, void *const *regions,
                               void **request);
rondo_status rondo_verbs_iflush(void *comm, int n, void *const *data, const size_t *bytes, void *const *regions, void **request);
rondo_status rondo_verbs_test(void *request, int *done, size_t *bytes);

/* errors (netdev_verbs_error.c) */
enum { RONDO_VERBS_ENDS = 320 };
/** Both ends of a comm in words: host, device, GID or LID, queue pair. */
void rondo_verbs_ends(const struct rondo_verbs_comm *comm, char text[RONDO_VERBS_ENDS]);
/** End a comm: keeps the first sentence, which is logged once. @return its status. */
rondo_status rondo_verbs_comm_fail(struct rondo_verbs_comm *comm, rondo_status status, const char *fmt, ...) RONDO_PRINTF(3, 4);
rondo_status rondo_verbs_comm_error(const struct rondo_verbs_comm *comm); /* the kept one, again */
rondo_status rondo_verbs_fail_wc(struct rondo_verbs_comm *comm, const struct ibv_wc *wc);
/** What can be done about an errno of memory or attributes, for the end of a sentence. */
const char *rondo_verbs_errno_cause(int error);
/** Take the device's events, without waiting, and look whether one ends this comm. */
rondo_status rondo_verbs_events(struct rondo_verbs_comm *comm);

#endif
