/*
 * The control plane of one communicator: what it says besides data. One small shared segment per node: abort
 * word, heartbeat, call records and inboxes of each local rank, the mailbox. Between nodes: sockets
 * (control_wire.h). One control thread a process beats for all communicators and watches the local peers'
 * processes (pidfd) and beats, and the leaders of some other nodes; it never calls MPI or CUDA, allocates
 * nothing within a node and little between nodes, has all signals blocked and sleeps in epoll
 * (RONDO_HEARTBEAT).
 *
 * The first reason in a node wins there: whoever ends the communicator writes status, rank and sentence once;
 * every wait sees the word and returns it; other nodes are told. Ranks are ranks of the communicator unless
 * called local.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_H
#define RONDO_NET_CONTROL_CONTROL_H

#include "base/mailbox.h"
#include "base/shm.h"
#include "base/wait.h"
#include "net/peer.h"

/* What a rank called: a line in its ring of recent calls. */
struct rondo_call {
    uint64_t seq; /* running number of calls of this communicator, from 1; written last */
    uint64_t count;
    uint32_t word; /* call word: equal words, equal calls */
    int32_t op, root;
    uint8_t coll, dtype;
    uint8_t state;        /* 1: entered, 2: done */
    uint8_t reserved[29]; /* not carried */
};

enum {
    RONDO_CALL_RING = 16,
    RONDO_MSG_BYTES = 1024,
    RONDO_CONTROL_ASKED = 8 /* ranks of other nodes whose calls are kept */,
    RONDO_CONTROL_ASK_NS = 100000000 /* and how often they are asked */
};

struct rondo_control_config {
    int rank, nranks;
    int local_rank, nlocal;
    const int *local_ranks;         /* local rank -> rank */
    const struct rondo_peer *peers; /* all ranks' records; must outlive the control */
    /* Nodes, and rank -> node; must outlive the control. 0 or 1 nodes: node_of is not looked at. With more,
     * peers[0].id holds the secret of the communicator, and peers[r].control_addr and control_number where
     * r's process listens, when it starts. */
    int nnodes;
    const int *node_of;
    uint64_t comm_hash;
    size_t mailbox_capacity; /* payload bytes a rank */
    enum rondo_shm_mode shm_mode;
    const char *name; /* of the communicator, for messages */
    /* A call in words, for messages ("all_reduce #17 of 1024 f32"); called by the control thread too. NULL:
     * only the number is named. */
    void (*describe)(const struct rondo_call *call, char *text, size_t bytes);
};

struct rondo_control;

/**
 * Listen for the control planes of other nodes, on the interface of RONDO_SOCKET_IFNAME, and say where: a
 * struct sockaddr_in or in6 for peers[r].control_addr. One listener a process, reference counted; it works
 * before any control is there, and must be open from before other processes start their controls until after
 * this one's are closed. number: of this listener among all that the process had, for
 * peers[r].control_number: what came from an earlier one says nothing of communicators that were made after
 * it.
 */
rondo_status rondo_control_listen(uint8_t addr[RONDO_ADDR_BYTES], uint32_t *number);
/** The last one, once all controls are closed, closes the connections: at most 200 ms, when there is still
 * something to be written. */
void rondo_control_unlisten(void);

/** The leader (local rank 0) creates the segment; `name` says where. Others get it by the bootstrap and
 * attach. */
rondo_status rondo_control_create(struct rondo_control **control, const struct rondo_control_config *config,
                                  struct rondo_shm_name *name);
rondo_status rondo_control_attach(struct rondo_control **control, const struct rondo_control_config *config,
                                  const struct rondo_shm_name *name);
/** After the round in which all ranks said that they have attached: remove the name (leader), begin to beat
 * and watch. */
rondo_status rondo_control_start(struct rondo_control *control);
/** This rank leaves in order: its end is no fault from here on. Never blocks. */
void rondo_control_leave(struct rondo_control *control);
/** Stop watching, unmap, free. */
void rondo_control_close(struct rondo_control *control);

/** The mailbox of the node, or NULL when it has none (capacity 0 or one rank). Belongs to the control. */
struct rondo_mailbox *rondo_control_mailbox(struct rondo_control *control);

/** End the communicator on every rank with this reason, unless one was first. @a rank: whose fault, -1
 * unknown. Any thread; never blocks. */
void rondo_control_abort(struct rondo_control *control, rondo_status status, int rank, const char *text);
/** One load: has the communicator been ended? */
int rondo_control_aborted(const struct rondo_control *control);
/** The reason: status, text (RONDO_ERROR_TEXT bytes) and whose fault; RONDO_SUCCESS when there is none. */
rondo_status rondo_control_reason(struct rondo_control *control, char *text, int *rank);
/** Called in long waits: what the control thread would find by itself later (deaths, message). Cheap; any
 * thread. */
rondo_status rondo_control_progress(struct rondo_control *control, int *moved);

/** Hot path: note the call under way / done. A few stores to this rank's own lines. */
void rondo_control_call_begin(struct rondo_control *control, const struct rondo_call *call);
void rondo_control_call_end(struct rondo_control *control, uint64_t seq);
/** A rank's last call (the newest when seq is 0). @return 0 when it is not (any more) in the ring. A rank of
 * another node is asked: 0 until the answer has come; what it said at most RONDO_CONTROL_ASK_NS before the
 * last time that it was asked for. */
int rondo_control_call_of(struct rondo_control *control, int rank, uint64_t seq, struct rondo_call *call);
/** A rank's last call. @return 1: here it is; 0: it has made none; -1: it is of another node, is asked, and
 * has not answered since then (rondo_now_ns). */
int rondo_control_last_call(struct rondo_control *control, int rank, int64_t since_ns,
                            struct rondo_call *call);
/** 0: alive, 1: left in order, 2: dead, 3: its beat has stopped. Of ranks of other nodes: as far as it is
 * known here. 1 is also said of a process that was gone when it was first connected to. */
int rondo_control_state_of(struct rondo_control *control, int rank);
/** Start time of a process in clock ticks since boot, 0: unknown: whoever gets its pid later has another one.
 * No allocation. */
uint64_t rondo_process_start(int pid);

/** Send up to RONDO_MSG_BYTES to a rank's inbox. RONDO_IN_PROGRESS: full, try again after a turn. */
rondo_status rondo_control_send(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                                size_t bytes);
/** Take the oldest message with this tag from this rank. RONDO_IN_PROGRESS: none. Message with other tags is
 * parked (bounded; over the bound the communicator ends with a clear error). */
rondo_status rondo_control_receive(struct rondo_control *control, int rank, uint64_t tag, void *data,
                                   size_t max, size_t *bytes);

#endif
