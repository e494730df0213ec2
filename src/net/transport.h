/*
 * Transports: how two ranks share slots. One const array, in order; the first that reaches wins. Set-up in the order of a receiver that offers, a sender that offers,
 * an exchange of records, and both connecting:
 *
 *   offer(recv link): allocate slots and tail here, say where      offer(send link): allocate head here, say where
 *   ... records travel (bootstrap round 3, or the control plane for lazy p2p) ...
 *   connect(link, peer's record): fill link->conn
 */
#ifndef RONDO_NET_TRANSPORT_H
#define RONDO_NET_TRANSPORT_H

#include "base/conn.h"
#include "base/progress.h"
#include "base/shm.h"
#include "net/peer.h"

struct rondo_net;

/* A connect record: fixed size, opaque but for its head. All zero: no connection. */
enum { RONDO_CONNECT_DATA = 132 };
struct rondo_connect {
    uint8_t transport; /* index in rondo_transports + 1 */
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
    int connected;
    int hello; /* how far the empty slot of net/handshake.h has come */
};

struct rondo_transport {
    const char *name; /* "shm" */
    /* May self and peer use it? A pure function of both records and the parameters: both ends find the same answer. */
    int (*reaches)(const struct rondo_net *net, const struct rondo_peer *self, const struct rondo_peer *peer);
    /* When it does not: what follows its name in the error ("is disabled by RONDO_SHM_DISABLE"). */
    const char *(*why_not)(const struct rondo_net *net, const struct rondo_peer *self, const struct rondo_peer *peer);
    /* Per communicator. open is called once, before the first offer, with the most links that will ever exist. */
    rondo_status (*open)(struct rondo_net *net, void **state, int max_links);
    rondo_status (*offer)(void *state, struct rondo_link *link, struct rondo_connect *record);
    /* RONDO_IN_PROGRESS: call again with the same record; the caller has the deadline. */
    rondo_status (*connect)(void *state, struct rondo_link *link, const struct rondo_connect *record);
    /* Lazy p2p links: RONDO_IN_PROGRESS until both ends have asked. Called from the ready function of a run; uses no MPI. */
    rondo_status (*connect_lazy)(void *state, struct rondo_link *link);
    void (*disconnect)(void *state, struct rondo_link *link);
    /* Do now what lazy links will need a name for; see rondo_net_connect_all. */
    rondo_status (*connect_all)(void *state);
    /* All peers have connected what they will connect at creation: names may go. */
    void (*settle)(void *state);
    void (*close)(void *state);
    size_t (*bytes)(void *state); /* memory in use, for the log */
    /* NULL: its conns need none. Move what proxied conns have to move and set net->busy; never blocks. */
    rondo_status (*turn)(void *state, int *moved);
};

extern const struct rondo_transport rondo_transport_shm, rondo_transport_net;

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
    struct rondo_progress *progress;     /* transports add their hooks here */
    const char *name;                    /* of the communicator */
    struct rondo_control *control;       /* for lazy links between nodes; set before the first one */
    int proxied;                         /* conns that rondo_net_turn moves; 0: it need not be called */
    int busy;                            /* after a turn: slices posted here are still on their way out, or credits */
    void *state[RONDO_MAX_TRANSPORTS];   /* by index in rondo_transports */
    struct rondo_shm_name arena;         /* of this rank's shared memory, set by the shm transport's open; travels in round 3 */
    const struct rondo_shm_name *arenas; /* rank -> its arena (local ranks only valid); set before connect */
};

/** Choose the transport for a pair. @return RONDO_INTERNAL_ERROR "no transport found" naming both ranks, hosts and what was disabled. */
rondo_status rondo_transport_select(const struct rondo_net *net, int peer, const struct rondo_transport **transport);
/**
 * Open all transports. @a max_links: the most links that will be offered; lazy links are not counted. On error nothing stays open.
 * @a net must stay where it is until it is closed.
 */
rondo_status rondo_net_open(struct rondo_net *net, int max_links);
/** Fill a zeroed link and its record. net_name: as in the link. peer -1: no connection; link and record stay zero, and rondo_link_connect does nothing. On error the link is zero. */
rondo_status rondo_link_offer(struct rondo_net *net, struct rondo_link *link, int peer, int channel, int is_send, uint32_t protos,
                              const char *net_name, struct rondo_connect *record);
/** RONDO_IN_PROGRESS: call again. Connect with the record that the other end offered: checked, never trusted. Does nothing when connected. After an error: rondo_link_close. */
rondo_status rondo_link_connect(struct rondo_net *net, struct rondo_link *link, const struct rondo_connect *record);
/** Prepare a lazy p2p link (channel -1, Simple), then call rondo_link_connect_lazy until it is no longer RONDO_IN_PROGRESS. Once per peer and direction. */
rondo_status rondo_link_lazy(struct rondo_net *net, struct rondo_link *link, int peer, int is_send);
rondo_status rondo_link_connect_lazy(struct rondo_net *net, struct rondo_link *link);
/** Safe on a zeroed link; leaves it zeroed. All links are closed before their net. Space is not used again. */
void rondo_link_close(struct rondo_net *net, struct rondo_link *link);
/** After the connects and before the round in which all ranks say that they have connected: lazy links will need no name later. */
rondo_status rondo_net_connect_all(struct rondo_net *net);
/**
 * Move the conns that a proxy carries: called wherever the executor is turned, until net->busy is 0 also after its works are done: then nothing of this rank's
 * waits for it any more. An error is a device's, and somebody waits for it.
 */
rondo_status rondo_net_turn(struct rondo_net *net, int *moved);
/** After that round: remove names. */
void rondo_net_settle(struct rondo_net *net);
/** Safe on a net that is not open. */
void rondo_net_close(struct rondo_net *net);
size_t rondo_net_bytes(const struct rondo_net *net);

#endif
