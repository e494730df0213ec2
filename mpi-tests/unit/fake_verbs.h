/*
 * RDMA cards of a test, behind the function table of net/verbs/verbs.h: one process, one "network" of all
 * queue pairs. Records what was asked for, checks keys, bounds, states, numbers and room of queues as a card
 * does, moves data when it is posted; what completes can be held back.
 */
#ifndef RONDO_UNIT_FAKE_VERBS_H
#define RONDO_UNIT_FAKE_VERBS_H

#include "net/verbs/verbs.h"

enum { FAKE_CARDS = 4, FAKE_PORTS = 2, FAKE_GIDS = 4, FAKE_MODIFIES = 64, FAKE_WRITES = 64 };

enum fake_verb {
    FAKE_OPEN,
    FAKE_PD,
    FAKE_MR,
    FAKE_CQ,
    FAKE_QP,
    FAKE_MODIFY,
    FAKE_POST_SEND,
    FAKE_POST_RECV,
    FAKE_POLL,
    FAKE_NUM_CALLS
};

struct fake_port {
    struct ibv_port_attr attr;
    union ibv_gid gid[FAKE_GIDS];
    uint32_t gid_type[FAKE_GIDS];
};

struct fake_card {
    struct ibv_device device;
    int ports;
    struct fake_port port[FAKE_PORTS];
};

struct fake_modify {
    uint32_t qpn;
    int mask;
    struct ibv_qp_attr attr;
};

struct fake_write {
    uint32_t qpn;
    enum ibv_wr_opcode opcode;
    uint64_t to;
    size_t bytes;
};

struct fake_verbs {
    int ncards;
    struct fake_card card[FAKE_CARDS];

    /* what was done */
    int calls[FAKE_NUM_CALLS], live[FAKE_NUM_CALLS]; /* live: objects of the first kinds */
    int nmodifies, writes, inlined, reads, overruns,
        bad_uses; /* bad_uses: what no program may do, such as to free what is in use */
    int early;    /* sends to a queue pair that is not ready to receive */
    struct fake_modify modify[FAKE_MODIFIES];
    struct fake_write write[FAKE_WRITES]; /* the first of them, since `writes` was 0 */
    struct ibv_qp_init_attr last_qp;
    struct ibv_send_wr last_write;
    uintptr_t last_mr_begin;
    size_t last_mr_bytes;
    int last_mr_access, last_cqe, last_mr_call; /* last_mr_call: 2 reg_mr_iova2, 1 reg_mr, 3 reg_dmabuf_mr */

    /* what goes wrong: the Nth call from now (1: the next one), with this errno */
    int fail_in[FAKE_NUM_CALLS], fail_errno;
    int fail_dmabuf_in;             /* the same of registrations of DMA-BUFs alone */
    uint32_t most_inline;           /* bytes that a queue pair can have; more is EINVAL, as real cards say */
    int inline_given;               /* what it has when it has any */
    int dmabuf_errno;               /* of a descriptor that is none */
    enum ibv_wc_status send_status; /* of the next operation of a card's */
    uint32_t vendor;
    int hold, hold_sends; /* nothing that has completed is seen; no send is */
    uint32_t hold_qpn;    /* nothing of this queue pair is; 0: no such */
    int newest_first; /* what completed on the queue pair that was made last is seen first; the order of one
                         stays */
    int events;
    struct ibv_async_event event;
};

extern struct fake_verbs fake;
extern const struct rondo_verbs_lib fake_verbs_lib;

/** Forget all, and have one card "fake0" of two ports: port 1 InfiniBand with LID 17 and MTU 4096, port 2
 * RoCE with MTU 1024. */
void fake_verbs_reset(void);
/** All objects are gone but the open cards. */
int fake_verbs_objects(void);
/** Post an event of the card of this context; element as the type needs. */
void fake_verbs_event(struct ibv_async_event event);
/** Write into memory by its rkey as the network does. @return 0, -1: the card refuses. */
int fake_verbs_poke(uint64_t address, uint32_t rkey, const void *data, size_t bytes);

#endif
