/*
 * Transports: how two ranks share slots. One const array, in order; the first that reaches wins. Set-up in
 * the order of a receiver that offers, a sender that offers, an exchange of records, and both connecting:
 *
 *   offer(recv link): allocate slots and tail here, say where      offer(send link): allocate head here, say
 * where
 *   ... records travel (bootstrap round 3, or the control plane for lazy p2p) ...
 *   connect(link, peer's record): fill link->conn
 *
 * Ranks with a GPU (net->device): a conn's pointers are addresses of that device. Between GPUs of a node p2p
 * has slots and control words in device memory; shm maps its arena into the device, net has its ends in
 * pinned memory, and there the host finds tail and head at link->tail and link->head.
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

/* How two ranks of a node, each with a GPU, share device memory; the same at both ends: the topology's word
 * (topo/policy.c), then that of rondo_net_check. */
enum rondo_p2p_mode {
    RONDO_P2P_MODE_NONE,  /* P2P is disabled, or their path is beyond RONDO_P2P_LEVEL, or they are no two GPUs
                           */
    RONDO_P2P_MODE_WRITE, /* slots at the receiver: senders write */
    RONDO_P2P_MODE_READ,  /* slots at the sender: receivers read */
    RONDO_P2P_MODE_BROKEN, /* what one wrote the other did not find, or not in time */
    RONDO_NUM_P2P_MODES
};

/* How far the empty slot of net/transport/handshake.h has come. */
enum rondo_hello_stage { RONDO_HELLO_NONE, RONDO_HELLO_POSTED, RONDO_HELLO_PASSED };

/* A connect record: fixed size, opaque but for its head. All zero: no connection. */
enum { RONDO_CONNECT_DATA = 132 };
struct rondo_connect {
    uint8_t transport; /* its number */
    uint8_t is_send;
    uint8_t port; /* enum rondo_port at this end; set by src/ */
    uint8_t reserved;
    uint16_t channel;
    uint16_t reserved2;
    int32_t peer;
    uint8_t data[RONDO_CONNECT_DATA];
};

/* One end of a connection. */
struct rondo_link {
    const struct rondo_transport *transport;
    void *state; /* of this link; freed by disconnect */
    int peer, channel;
    int is_send;
    uint32_t protos;      /* mask of protocols that need buffers */
    const char *net_name; /* the net that the graphs say ("mlx5_0:1"), NULL: none; only looked at by offer */
    struct rondo_conn conn;
    struct rondo_conn_tail
        *tail; /* the conn's, where this process reads and writes it; NULL: in device memory */
    struct rondo_conn_head *head;
    int connected;
    int hello; /* enum rondo_hello_stage */
};

struct rondo_transport {
    const char *name; /* "shm" */
    uint8_t number;   /* in records: the same in every build, not 0 */
    /* May self and peer use it? A pure function of both records and the parameters: both ends find the same
     * answer. */
    int (*reaches)(const struct rondo_net *net, const struct rondo_peer *self, const struct rondo_peer *peer);
    /* When it does not: what follows its name in the error ("is disabled by RONDO_SHM_DISABLE"). */
    const char *(*why_not)(const struct rondo_net *net, const struct rondo_peer *self,
                           const struct rondo_peer *peer);
    /* Per communicator. open is called once, before the first offer, with the most links that will ever
     * exist. A state of NULL: this communicator has no use for it, and nothing else is called. */
    rondo_status (*open)(struct rondo_net *net, void **state, int max_links);
    /* NULL: nothing. How many receiving and sending links are going to be offered, so that their memory is
     * had at once. */
    rondo_status (*expect)(void *state, int nrecv, int nsend, uint32_t protos);
    rondo_status (*offer)(void *state, struct rondo_link *link, struct rondo_connect *record);
    /* RONDO_IN_PROGRESS: call again with the same record; the caller has the deadline. */
    rondo_status (*connect)(void *state, struct rondo_link *link, const struct rondo_connect *record);
    /* NULL: link->tail and link->head are there. Move the hello of a connected link: link->hello; never
     * blocks. */
    rondo_status (*hello)(struct rondo_link *link);
    /* Lazy p2p links: RONDO_IN_PROGRESS until both ends have asked. Called from the ready function of a run;
     * uses no MPI. */
    rondo_status (*connect_lazy)(void *state, struct rondo_link *link);
    void (*disconnect)(void *state, struct rondo_link *link);
    /* Do now what lazy links will need a name for; see rondo_net_connect_all. */
    rondo_status (*connect_all)(void *state);
    /* All peers have connected what they will connect at creation: names may go. */
    void (*settle)(void *state);
    void (*close)(void *state);
    size_t (*bytes)(void *state); /* memory in use, for the log */
    /* NULL: its conns need none. Move what proxied conns have to move and set net->busy; never blocks. */
    rondo_status (*progress)(void *state, int *moved);
    /* NULL: nothing moves but in turns. Nobody reaches the memory of executors' callers from now on; no more
     * turns. */
    void (*revoke)(void *state);
    /* NULL: there is no such place. Add the cores that are near the devices which proxied conns use. */
    void (*cores)(void *state, struct rondo_cores *cores);
};

extern const struct rondo_transport rondo_transport_p2p, rondo_transport_shm, rondo_transport_net;

extern const struct rondo_transport *const rondo_transports[];
extern const int rondo_num_transports;

enum { RONDO_MAX_TRANSPORTS = 4 };

/* The net side of one communicator. */
struct rondo_net {
    int rank, nranks;
    const struct rondo_peer *peers;
    int nlocal, local_rank;
    const int *local_of, *local_ranks, *node_of;
    enum rondo_shm_mode shm_mode; /* of this rank's segments */
    uint32_t slot_bytes[RONDO_NUM_PROTOS];
    uint32_t lazy_protos; /* that lazy links have besides Simple, where no proxy carries them: it brings
                             slices whole, and they would only be longer */
    struct rondo_progress *progress; /* transports add their hooks here */
    const char *name;                /* of the communicator */
    struct rondo_control *control;   /* for lazy links that take records; set before the first one */
    int proxied;                     /* conns that rondo_net_progress moves; 0: it need not be called */
    int busy; /* after a turn: slices posted here are still on their way out, or credits */
    /* Of GPU communicators, else NULL; by local rank. The device is open until the net is closed; names and
     * ways are src/'s. */
    const struct rondo_cuda_device *device;
    const struct rondo_gpu_name
        *gpus;     /* each rank's device memory, as its rondo_net_gpu says; before rondo_net_check */
    uint8_t *ways; /* enum rondo_p2p_mode to each; before rondo_net_check */
    const struct rondo_card *cards; /* nets that the device may use by GPUDirect, has as its own, or sends to
                                       through another one; before the first offer */
    int ncards;
    const struct rondo_shm_name *relays; /* by local rank: its segment for conns of others (rondo_net_relay);
                                            NULL, or zero: it has none; before the first offer */
    void *state[RONDO_MAX_TRANSPORTS];   /* by index in rondo_transports */
    struct rondo_shm_name
        arena; /* of this rank's shared memory, set by the shm transport's open; travels in round 3 */
    const struct rondo_shm_name *arenas; /* rank -> its arena (local ranks only valid); set before connect */
};

/** A transport's state of an open net; NULL: it has none. */
void *rondo_transport_state(const struct rondo_net *net, const struct rondo_transport *transport);
/** Choose the transport for a pair, of an open net. @return RONDO_INTERNAL_ERROR "no transport found" naming
 * both ranks, hosts and what was disabled. */
rondo_status rondo_transport_select(const struct rondo_net *net, int peer,
                                    const struct rondo_transport **transport);
/**
 * Open all transports. @a max_links: the most links that will be offered; lazy links are not counted. On
 * error nothing stays open.
 * @a net must stay where it is until it is closed.
 */
rondo_status rondo_net_open(struct rondo_net *net, int max_links);
/** GPU communicators: this rank's block of device memory, for net->gpus of its node's ranks; zero without. */
void rondo_net_gpu(const struct rondo_net *net, struct rondo_gpu_name *name);
/**
 * GPU communicators, before the first offer: write and read the memory of every rank of the node that
 * net->ways allows, all at once. RONDO_IN_PROGRESS: call again; ends within RONDO_P2P_CHECK. Ways to those
 * whose memory could not be opened, or did not hold what was written, become RONDO_P2P_MODE_BROKEN; a warning
 * names the pair and says why. The caller tells the node's ranks, so that a way is broken at both ends.
 */
rondo_status rondo_net_check(struct rondo_net *net);
/* A conn of another rank of the node, to a rank of another one, that goes through this rank's GPU (PXN). */
struct rondo_relayed {
    int32_t from, to, channel;
    const char *net_name; /* as in its link */
};
/**
 * GPU communicators, after rondo_net_check, before the first offer, once: carry these conns, until their
 * senders are gone (net/transport/pxn.h). name: for net->relays of the node's ranks. Where that does not go,
 * name is zero, an INFO says why, and the senders go by their own ways.
 */
void rondo_net_relay(struct rondo_net *net, const struct rondo_relayed *list, int n, uint32_t protos,
                     struct rondo_shm_name *name);
/** How many links of each transport are coming; peers: of nrecv receiving links, then nsend sending ones. */
rondo_status rondo_net_expect(struct rondo_net *net, const int *peers, int nrecv, int nsend, uint32_t protos);
/** Fill a zeroed link and its record. net_name: as in the link. peer -1: no connection; link and record stay
 * zero, and rondo_link_connect does nothing. On error the link is zero. */
rondo_status rondo_link_offer(struct rondo_net *net, struct rondo_link *link, int peer, int channel,
                              int is_send, uint32_t protos, const char *net_name,
                              struct rondo_connect *record);
/** RONDO_IN_PROGRESS: call again. Connect with the record that the other end offered: checked, never trusted.
 * Does nothing when connected. After an error: rondo_link_close. */
rondo_status rondo_link_connect(struct rondo_net *net, struct rondo_link *link,
                                const struct rondo_connect *record);
/** Prepare a lazy p2p link (channel -1, Simple and net->lazy_protos), then call rondo_link_connect_lazy until
 * it is no longer RONDO_IN_PROGRESS. Once per peer and direction. */
rondo_status rondo_link_lazy(struct rondo_net *net, struct rondo_link *link, int peer, int is_send);
rondo_status rondo_link_connect_lazy(struct rondo_net *net, struct rondo_link *link);
/** Safe on a zeroed link; leaves it zeroed. All links are closed before their net. Space is not used again.
 */
void rondo_link_close(struct rondo_net *net, struct rondo_link *link);
/** After the connects and before the round in which all ranks say that they have connected: lazy links will
 * need no name later. */
rondo_status rondo_net_connect_all(struct rondo_net *net);
/**
 * Move the conns that a proxy carries: called wherever the executor is turned, until net->busy is 0 also
 * after its works are done: then nothing of this rank's waits for it any more. An error is a device's, and
 * somebody waits for it.
 */
rondo_status rondo_net_progress(struct rondo_net *net, int *moved);
/** The communicator has failed: nobody reaches the memory of calls that have not ended, through this rank's
 * conns, from now on. */
void rondo_net_revoke(struct rondo_net *net);
/** Where whoever calls rondo_net_progress is near the devices that carry its conns; none: not known. */
void rondo_net_cores(const struct rondo_net *net, struct rondo_cores *cores);
/**
 * The calling thread goes where the cards are whose conns it carries, as RONDO_PROXY_CORES says. Nothing is
 * lost where that is not known, or not allowed: it stays where it is.
 * @param near  as of rondo_net_cores;  @param does  for the log: what the thread does
 */
void rondo_net_bind(int rank, const struct rondo_cores *near, const char *does);
/** After that round: remove names. */
void rondo_net_settle(struct rondo_net *net);
/** Safe on a net that is not open. */
void rondo_net_close(struct rondo_net *net);
size_t rondo_net_bytes(const struct rondo_net *net);

#endif
