/*
 * Simulated RDMA NICs behind the function table of net/verbs/verbs.h: one process, one "network" of all
 * queue pairs. Records the calls; checks keys, bounds, states, sequence numbers and queue sizes as a NIC
 * does; moves data when it is posted. Completions can be held back.
 */
#ifndef RONDO_UNIT_FAKE_VERBS_H
#define RONDO_UNIT_FAKE_VERBS_H

#include "net/verbs/verbs.h"

enum { FAKE_NICS = 4, FAKE_PORTS = 2, FAKE_GIDS = 4, FAKE_MODIFIES = 64, FAKE_WRITES = 64 };

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

struct fake_nic {
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
    uint32_t imm; /* immediate data, in host byte order */
};

struct fake_verbs {
    int nnics;
    struct fake_nic nic[FAKE_NICS];

    /* calls made */
    int calls[FAKE_NUM_CALLS], live[FAKE_NUM_CALLS]; /* live: objects of the first kinds */
    int nmodifies, writes, inlined, reads, overruns,
        bad_uses; /* bad_uses: misuse that no program may commit, such as freeing what is in use */
    int early;    /* sends to a queue pair that is not ready to receive */
    struct fake_modify modify[FAKE_MODIFIES];
    struct fake_write write[FAKE_WRITES]; /* the first of them, since `writes` was 0 */
    struct ibv_qp_init_attr last_qp;
    struct ibv_send_wr last_write;
    uintptr_t last_mr_begin;
    size_t last_mr_bytes;
    int last_mr_access, last_cqe, last_mr_call; /* last_mr_call: 2 reg_mr_iova2, 1 reg_mr, 3 reg_dmabuf_mr */

    /* faults: the Nth call from now fails (1: the next one), with this errno */
    int fail_in[FAKE_NUM_CALLS], fail_errno;
    int fail_dmabuf_in;             /* the same, only for registrations of DMA-BUFs */
    uint32_t most_inline;           /* most inline bytes of a queue pair; more is EINVAL, as with real
                                     * NICs */
    int inline_given;               /* inline bytes granted, if any */
    int dmabuf_errno;               /* for an invalid descriptor */
    enum ibv_wc_status send_status; /* of a NIC's next operation */
    uint32_t vendor;
    void (*called)(enum fake_verb); /* with each call that a NIC counts; NULL: nobody listens */
    int hold, hold_sends;           /* hide all completions; hide those of sends */
    uint32_t hold_qpn;              /* hide those of this queue pair; 0: none */
    int newest_first; /* show completions of the newest queue pair first, each queue pair in order */
    int events;
    struct ibv_async_event event;
};

extern struct fake_verbs fake;
extern const struct rondo_verbs_lib fake_verbs_lib;

/** Reset everything to one NIC "fake0" with two ports: port 1 InfiniBand with LID 17 and MTU 4096,
 * port 2 RoCE with MTU 1024. */
void fake_verbs_reset(void);
/** @return the number of live objects, without the open NICs. */
int fake_verbs_objects(void);
/** Of one kind of objects. Ranks that are threads may call it, and the next one. */
int fake_verbs_live(enum fake_verb kind);
/** Set hold_sends while other threads use NICs. */
void fake_verbs_hold_sends(int hold);
/** Take the record of the first writes, and begin a new one. @return their number, at most FAKE_WRITES. */
int fake_verbs_take_writes(struct fake_write out[FAKE_WRITES]);
/** Post an event of this context's NIC; element as the type needs. */
void fake_verbs_event(struct ibv_async_event event);
/** Write into memory by its rkey as the network does. @return 0, or -1 if the NIC refuses. */
int fake_verbs_poke(uint64_t address, uint32_t rkey, const void *data, size_t bytes);

#endif
