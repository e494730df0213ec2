/*
 * Transports: how two ranks share slots. One const array, in order of preference; the first that reaches the
 * peer wins. Setup: the receiver offers, the sender offers, they exchange records, both connect:
 *
 *   offer(recv link)                                  offer(send link)
 *     allocate slots and tail, fill a record            allocate head, fill a record
 *         \--- records travel: bootstrap round 3, or the control plane for lazy links ---/
 *   connect(link, the other end's record)             connect(link, the other end's record)
 *     fill link->conn                                   fill link->conn
 *
 * With a GPU (net->device), a conn's pointers are addresses of that device. Between GPUs of a node, p2p keeps
 * slots and control words in device memory. shm maps its arena into the device, and net has its ends in
 * pinned memory; for these the host uses link->tail and link->head.
 */
#ifndef RONDO_NET_TRANSPORT_TRANSPORT_H
#define RONDO_NET_TRANSPORT_TRANSPORT_H

#include "base/conn.h"
#include "layout/layout.h"
#include "base/progress.h"
#include "base/shm.h"
#include "net/peer.h"

struct rondo_net;
struct rondo_cuda_device;
struct rondo_gpu_name;

/* P2P mode: how two ranks of a node, each with a GPU, share device memory. Both ends have the same mode:
 * the topology's (topo/policy.c), then that of rondo_net_check. */
enum rondo_p2p_mode {
    RONDO_P2P_MODE_NONE,   /* P2P is disabled, their path exceeds RONDO_P2P_LEVEL, or they are not two GPUs */
    RONDO_P2P_MODE_WRITE,  /* slots at the receiver: senders write */
    RONDO_P2P_MODE_READ,   /* slots at the sender: receivers read */
    RONDO_P2P_MODE_BROKEN, /* one did not find what the other wrote, or not in time */
    RONDO_NUM_P2P_MODES
};

/* Progress of a link's hello (rondo_link_hello). */
enum rondo_hello_stage { RONDO_HELLO_NONE, RONDO_HELLO_POSTED, RONDO_HELLO_PASSED };

/* A connect record: fixed size, opaque except for its head. All zero: no connection. */
enum { RONDO_CONNECT_DATA = 132 };
struct rondo_connect {
    uint8_t transport; /* of the transport */
    uint8_t is_send;
    uint8_t port; /* enum rondo_port at this end; set by the caller */
    uint8_t reserved;
    uint16_t channel;
    uint16_t reserved2;
    int32_t peer;
    uint8_t data[RONDO_CONNECT_DATA];
};

/* One end of a connection. */
struct rondo_link {
    const struct rondo_transport *transport;
    void *state; /* private to the transport; disconnect frees it */
    int peer, channel;
    int is_send;
    int relayed;          /* 1 + the rank that a relay sends for (pxn.h); 0: this rank's own */
    uint32_t protos;      /* mask of protocols that need buffers */
    const char *net_name; /* net device in the graphs ("mlx5_0:1"), NULL: none; only offer reads it */
    struct rondo_conn conn;
    struct rondo_conn_tail *tail; /* the conn's, for access by this process; NULL: in device memory */
    struct rondo_conn_head *head;
    void *watched; /* for rondo_net.watch */
    int connected;
    int unwired; /* connected, but the slots are not there yet (rondo_link_wire) */
    int used;    /* by a run, since rondo_link_use */
    int hello;   /* enum rondo_hello_stage */
};

struct rondo_transport {
    const char *name; /* "shm" */
    uint8_t number;   /* in records: the same in every build, not 0 */
    /* May self and peer use it? A pure function of both records and the parameters, so that both ends
     * agree. */
    int (*reaches)(const struct rondo_net *net, const struct rondo_peer *self, const struct rondo_peer *peer);
    /* Why it does not reach: completes the error after the transport's name ("is disabled by
     * RONDO_SHM_DISABLE"). */
    const char *(*why_not)(const struct rondo_net *net, const struct rondo_peer *self,
                           const struct rondo_peer *peer);
    /* Open for one communicator, once, before the first offer. max_links: the most links that will ever
     * exist. *state NULL: this communicator does not use the transport, and nothing else is called. */
    rondo_status (*open)(struct rondo_net *net, void **state, int max_links);
    /* Announce how many receiving and sending links will be offered, to allocate their memory at once. May
     * be NULL. */
    rondo_status (*expect)(void *state, int nrecv, int nsend, uint32_t protos);
    rondo_status (*offer)(void *state, struct rondo_link *link, struct rondo_connect *record);
    /* RONDO_IN_PROGRESS: call again with the same record; the caller has the deadline. */
    rondo_status (*connect)(void *state, struct rondo_link *link, const struct rondo_connect *record);
    /* Progress the hello of a connected link (link->hello); never blocks. NULL: the caller does it through
     * link->tail and link->head. */
    rondo_status (*hello)(struct rondo_link *link);
    /* Connect a lazy p2p link. RONDO_IN_PROGRESS until both ends have asked. Called from the ready
     * function of a run; uses no MPI. */
    rondo_status (*connect_lazy)(void *state, struct rondo_link *link);
    /* Get the slots of an unwired link. RONDO_IN_PROGRESS: the other end has not asked for them yet. Called
     * as connect_lazy is. NULL: connect leaves no link unwired. */
    rondo_status (*wire)(void *state, struct rondo_link *link);
    /* Where net->limited: a run is about to use a wired link, as wire; no run uses it any more. NULL: slots
     * stay. */
    rondo_status (*use)(void *state, struct rondo_link *link);
    void (*rest)(void *state, struct rondo_link *link);
    void (*disconnect)(void *state, struct rondo_link *link);
    /* Do now what lazy links need names for; see rondo_net_connect_all. */
    rondo_status (*connect_all)(void *state);
    /* All peers have connected what they connect at creation: remove names. */
    void (*settle)(void *state);
    void (*close)(void *state);
    size_t (*bytes)(void *state); /* memory in use, for the log */
    /* Progress proxied conns and set net->busy; never blocks. NULL: no conn is proxied. */
    rondo_status (*progress)(void *state, int *moved);
    /* From now on no peer touches user buffers through these conns; progress is not called again. NULL:
     * the transport moves data only in progress. */
    void (*revoke)(void *state);
    /* Add the cores near the devices of proxied conns. NULL: it knows none. */
    void (*cores)(void *state, struct rondo_cores *cores);
};

static inline struct rondo_link *rondo_link_of(struct rondo_conn *conn)
{
    return (struct rondo_link *)(void *)((char *)conn - offsetof(struct rondo_link, conn));
}

/* How far a proxied conn is, in slices since creation: each number is at most the one before. */
struct rondo_link_steps {
    uint64_t here;   /* a sender's executor has posted them; a receiver's device has received them */
    uint64_t moving; /* a sender's device has them; a receiver's executor sees them */
    uint64_t passed; /* the sender's device has sent them; the receiver's executor has returned their slots */
};

/* Who watches proxied conns. */
struct rondo_net_watch {
    /* After each progress of a conn. */
    void (*steps)(void *arg, struct rondo_link *link, const struct rondo_link_steps *steps);
    /* Slice `step` goes to the device: *parent is for the device's events (rondo_net_parent; NULL: nobody
     * asks). parent NULL: nothing goes yet. @return 0: it is too early to receive it. */
    int (*parent)(void *arg, struct rondo_link *link, uint64_t step, void **parent);
};

extern const struct rondo_transport rondo_transport_p2p, rondo_transport_shm, rondo_transport_net;

extern const struct rondo_transport *const rondo_transports[];
extern const int rondo_num_transports;

enum { RONDO_MAX_TRANSPORTS = 4 };

/* The net layer of one communicator. */
struct rondo_net {
    int rank, nranks;
    const struct rondo_peer *peers;
    int nlocal, local_rank;
    const int *local_of, *local_ranks, *node_of;
    enum rondo_shm_mode shm_mode; /* of this rank's segments */
    uint32_t slot_bytes[RONDO_NUM_PROTOS];
    uint32_t lazy_protos; /* of lazy links, besides Simple, where they are not proxied: a proxy delivers
                           * whole slices, and LL would only lengthen them */
    struct rondo_progress *progress; /* transports add their hooks */
    const char *name;                /* of the communicator */
    struct rondo_control *control;   /* exchanges records of lazy links; set before the first one */
    int limited; /* RONDO_MEM_LIMIT: every run calls rondo_link_use, and at its end rondo_link_rest; set by
                  * rondo_net_open */
    int proxied; /* number of conns that rondo_net_progress moves; 0: no need to call
                                      * it */
    int busy;    /* after a progress: slices posted here, or credits, are still on their way out */
    const struct rondo_net_watch *watch; /* NULL: nobody watches */
    void *watch_arg;
    /* For GPU communicators, else NULL; arrays by local rank. The device stays open until the net is
     * closed; the caller owns gpus and p2p_modes. */
    const struct rondo_cuda_device *device;
    int kept; /* kernels of the device may still use this net's memory: closing leaves all of it mapped */
    const struct rondo_gpu_name
        *gpus;          /* each rank's device memory, from its rondo_net_gpu; set before rondo_net_check */
    uint8_t *p2p_modes; /* enum rondo_p2p_mode with each rank; set before rondo_net_check */
    const struct rondo_nic *nics; /* NICs that the device may use by GPUDirect, owns, or reaches through
                                     * a relay; set before the first offer */
    int nnics;
    const struct rondo_shm_name *relays; /* by local rank: its segment for conns of others
                                          * (rondo_net_relay); NULL or zero: none; set before the first
                                          * offer */
    void *state[RONDO_MAX_TRANSPORTS];   /* by index in rondo_transports */
    struct rondo_shm_name
        arena; /* this rank's shared memory, set by the shm transport's open; travels in round 3 */
    const struct rondo_shm_name *arenas; /* by local rank; set before connect */
};

/* ---- for transports ---- */

enum rondo_lazy_stage {
    RONDO_LAZY_ASK,
    RONDO_LAZY_HEAR,
    RONDO_LAZY_CONNECT,
    RONDO_LAZY_TELL,
    RONDO_LAZY_TOLD
};

/*
 * Lazy links whose ends exchange records over the control plane. Each end offers when it is asked for, sends
 * its record, receives the other's, connects, and says so. Neither uses the conn before both have connected.
 * Zeroed at first; record: written by the transport's offer.
 */
struct rondo_lazy {
    enum rondo_lazy_stage stage;
    struct rondo_connect record; /* this end's, later the other end's */
};

/** Progress the link by one step or several. RONDO_IN_PROGRESS: call again. state: the transport's. */
rondo_status rondo_lazy_move(const struct rondo_net *net, void *state, struct rondo_link *link,
                             struct rondo_lazy *lazy);
/** @return the bytes of the slots of these protocols, without gaps. */
size_t rondo_net_slots_bytes(const struct rondo_net *net, uint32_t protos);
/** Does [offset, offset + bytes), which a peer named, lie aligned within [first, end)? */
static inline int rondo_net_inside(uint64_t offset, uint64_t bytes, uint64_t first, uint64_t end)
{
    return offset >= first && offset <= end && bytes <= end - offset && offset % RONDO_CTRL_ALIGN == 0;
}
/** @return the transport's state in an open net; NULL: it has none. */
void *rondo_transport_state(const struct rondo_net *net, const struct rondo_transport *transport);

/* Calls of net devices, whose plugins may call CUDA: with the context of the net's GPU current, and allowed
 * while streams capture. */
struct rondo_net_inside {
    const struct rondo_cuda_device *outer;
    int pushed, mode;
};
#ifdef RONDO_CUDA
/** This thread calls the net's devices until leave; they nest. Without a GPU, nothing. */
void rondo_net_enter(const struct rondo_net *net, struct rondo_net_inside *inside);
void rondo_net_leave(const struct rondo_net_inside *inside);
#else
static inline void rondo_net_enter(const struct rondo_net *net, struct rondo_net_inside *inside)
{
    (void)net, (void)inside;
}
static inline void rondo_net_leave(const struct rondo_net_inside *inside) { (void)inside; }
#endif

/* ---- for communicators ---- */

/** Choose the transport for a pair, in an open net. @return RONDO_INTERNAL_ERROR "no transport found",
 * naming both ranks, their hosts and what was disabled. */
rondo_status rondo_transport_select(const struct rondo_net *net, int peer,
                                    const struct rondo_transport **transport);
/**
 * Open all transports. On error nothing stays open. @a net must not move until it is closed.
 * @param max_links the most links that will be offered, lazy links not counted.
 */
rondo_status rondo_net_open(struct rondo_net *net, int max_links);
/** GPU communicators: name this rank's block of device memory, for net->gpus of the node's ranks; zero
 * without one. */
void rondo_net_gpu(const struct rondo_net *net, struct rondo_gpu_name *name);
/**
 * GPU communicators, before the first offer: write and read the memory of every rank of the node that
 * net->p2p_modes allows, all at once. RONDO_IN_PROGRESS: call again; ends within RONDO_P2P_CHECK. If a rank's
 * memory could not be opened, or did not hold what was written, the pair's mode becomes RONDO_P2P_MODE_BROKEN
 * and a warning says why. The caller tells the node's ranks, so that both ends agree.
 */
rondo_status rondo_net_check(struct rondo_net *net);
/* A conn from another rank of the node to a rank of another node, through this rank's GPU (PXN). */
struct rondo_relayed {
    int32_t from, to, channel;
    const char *net_name; /* as in rondo_link */
};
/**
 * GPU communicators, once, after rondo_net_check and before the first offer: relay these conns until their
 * senders have left (net/transport/pxn.h). name: for net->relays of the node's ranks. If that fails, name is
 * zero, an INFO line says why, and the senders use their own NICs.
 */
void rondo_net_relay(struct rondo_net *net, const struct rondo_relayed *list, int n, uint32_t protos,
                     struct rondo_shm_name *name);
/** Announce how many links of each transport are coming. peers: of nrecv receiving links, then of nsend
 * sending ones. */
rondo_status rondo_net_expect(struct rondo_net *net, const int *peers, int nrecv, int nsend, uint32_t protos);
/** Fill a zeroed link and its record. net_name: as in the link. peer -1 means no connection: link and
 * record stay zero, and rondo_link_connect does nothing. On error the link is zero. */
rondo_status rondo_link_offer(struct rondo_net *net, struct rondo_link *link, int peer, int channel,
                              int is_send, uint32_t protos, const char *net_name,
                              struct rondo_connect *record);
/** Connect with the record of the other end, which is checked. RONDO_IN_PROGRESS: call again. Does nothing
 * when connected. After an error call rondo_link_close. */
rondo_status rondo_link_connect(struct rondo_net *net, struct rondo_link *link,
                                const struct rondo_connect *record);
/**
 * Where all ranks share the node's memory by memfds, on host memory: write the records of this rank's links
 * into its arena, for its peers to read. n < 0: it has failed, and offers none.
 */
void rondo_shm_tell(const struct rondo_net *net, const struct rondo_connect *records, int n);
/** Map the arenas of all ranks of the node: their owners may close them from now on. */
rondo_status rondo_shm_map_all(const struct rondo_net *net);
/** Read what a peer told: at most `most` records of links with these protocols, the rest stays as it is.
 * @return RONDO_IN_PROGRESS: nothing yet; RONDO_REMOTE_ERROR: it has failed, and reports that itself. */
rondo_status rondo_shm_hear(const struct rondo_net *net, int peer, uint32_t protos,
                            struct rondo_connect *records, int most);
/** Prepare a lazy p2p link (channel -1, Simple and net->lazy_protos). Then call rondo_link_connect_lazy
 * until it no longer returns RONDO_IN_PROGRESS. Once per peer and direction. */
rondo_status rondo_link_lazy(struct rondo_net *net, struct rondo_link *link, int peer, int is_send);
rondo_status rondo_link_connect_lazy(struct rondo_net *net, struct rondo_link *link);
/** Get the slots of a connected link that has none yet, at the first call that uses it: until then its sender
 * has no credit. @return RONDO_IN_PROGRESS: a sender calls again, its receiver must call too. */
rondo_status rondo_link_wire(struct rondo_net *net, struct rondo_link *link);
/** Where net->limited, instead of rondo_link_wire and at the begin of each run: get the link's slots, which
 * may have been given back since its last run (slots.h). @return as rondo_link_wire; SUCCESS again until
 * rest. */
rondo_status rondo_link_use(struct rondo_net *net, struct rondo_link *link);
/** The run has ended. Does nothing if the link was not used. */
void rondo_link_rest(struct rondo_net *net, struct rondo_link *link);
/**
 * Every conn passes one empty slot each way before creation ends. A pair whose memory is not really shared,
 * or whose other end never came, is thus reported at creation, not in the first collective.
 *
 * Progress the hello of @a n links; skips NULL and unconnected ones. Where conns are proxied, call
 * rondo_net_progress between the calls. Never blocks; call again with the same links while RONDO_IN_PROGRESS.
 *
 * Senders post one empty slice, receivers consume it, senders see the credit. When done, step == seen == 1 on
 * both ends (of a fresh conn): all protocols share the step, so the flags of LL and LL128 continue from
 * there. Errors come from a device: its copies move the words that lie in its memory.
 *
 * @param pending_peer a rank that has not done its part; -1 when done.
 */
rondo_status rondo_link_hello(struct rondo_link **links, int n, int *pending_peer);
/** Close and zero a link; safe on a zeroed one. Close all links before their net. The link's space is not
 * reused. */
void rondo_link_close(struct rondo_net *net, struct rondo_link *link);
/** Open everything lazy links would later need a name for. Call after the connects, before the round in
 * which all ranks report that they have connected. */
rondo_status rondo_net_connect_all(struct rondo_net *net);
/**
 * Progress the proxied conns. Call it wherever the executor makes progress, and after the works are done
 * until net->busy is 0: then nothing sent by this rank needs it any more. Errors come from a device, and only
 * while somebody waits for it.
 */
rondo_status rondo_net_progress(struct rondo_net *net, int *moved);
/** @return the bytes of a slice of a proxied conn, as its protocol lays them out, from when a sender's
 * device has it, or a receiver's has received it, until its slot is used again; 0: not known. */
uint32_t rondo_link_slice_bytes(const struct rondo_link *link, uint64_t step);
/** The communicator has failed: from now on no peer touches the buffers of unfinished calls through this
 * rank's conns. */
void rondo_net_revoke(struct rondo_net *net);
/** Find the cores near the devices that carry proxied conns, for the thread that calls rondo_net_progress;
 * none: unknown. */
void rondo_net_cores(const struct rondo_net *net, struct rondo_cores *cores);
/**
 * Bind the calling thread near the NICs of its conns, as RONDO_PROXY_CORES says. If their cores are unknown
 * or not allowed, the thread stays where it is.
 * @param near from rondo_net_cores;  @param does what the thread does, for the log
 */
void rondo_net_bind(int rank, const struct rondo_cores *near, const char *does);
/** Remove names, after that round. */
void rondo_net_settle(struct rondo_net *net);
/** Close all transports; safe on a net that is not open. */
void rondo_net_close(struct rondo_net *net);
size_t rondo_net_bytes(const struct rondo_net *net);

#endif
