/*
 * The control plane of a communicator: everything its ranks tell each other besides data.
 *
 * Within a node it is one small shared segment: the abort word, a mailbox, and for each local rank a
 * heartbeat, its recent calls and an inbox. Between nodes it is sockets (control_wire.h).
 *
 * One control thread a process serves all communicators: it beats, watches the processes (pidfd) and beats
 * of local peers, and the leaders of some other nodes. It never calls MPI or CUDA, allocates nothing within
 * a node and little between nodes, blocks all signals, and sleeps in epoll for RONDO_HEARTBEAT at a time.
 *
 * The first reason to end the communicator wins within a node: whoever ends it writes status, rank and
 * sentence once, every wait sees the word and returns them, and the other nodes are told. Ranks are ranks of
 * the communicator unless called local.
 */
#ifndef RONDO_NET_CONTROL_CONTROL_H
#define RONDO_NET_CONTROL_CONTROL_H

#include "base/mailbox.h"
#include "base/record.h"
#include "base/shm.h"
#include "base/wait.h"
#include "net/peer.h"

/* One call of a rank, as its ring of recent calls holds it. */
struct rondo_call {
    uint64_t seq; /* number of the call on this communicator, from 1; written last */
    uint64_t count;
    uint32_t word; /* call word: equal words, equal calls */
    int32_t op, root;
    uint8_t coll, dtype;
    uint8_t state;        /* 1: entered, 2: done */
    uint8_t reserved[29]; /* not stored in the ring */
};
_Static_assert(sizeof(struct rondo_call) == 64, "what an answer over the wire holds");

/* The send or receive that a rank waits in. */
struct rondo_message {
    uint64_t count;
    int32_t peer; /* -1: none */
    uint8_t is_send, dtype;
};

enum {
    RONDO_CALL_RING = 16, /* calls that are compared; the record keeps more (record.h) */
    RONDO_MSG_BYTES = 1024,
    RONDO_CONTROL_ASKED = 8,         /* ranks of other nodes whose calls are kept */
    RONDO_CONTROL_ASK_NS = 100000000 /* least time between two questions to such a rank */
};

/* Splits of a communicator of one node that may be under way at once (net/bootstrap/bootstrap_node.h). */
enum { RONDO_SPLIT_SLOTS = 8 };

enum { RONDO_CONTROL_COUNTS = 512, RONDO_COUNTS_UNKNOWN = -1, RONDO_COUNTS_LATER = -2 };

/* What is known about a rank. */
enum rondo_rank_state {
    RONDO_RANK_ALIVE,
    RONDO_RANK_LEFT,   /* in order */
    RONDO_RANK_DEAD,   /* exited without leaving */
    RONDO_RANK_SILENT, /* its heartbeat has stopped */
    RONDO_RANK_GONE    /* left or dead: its process, on another node, refused the first connection */
};

/* Did a communicator end because a rank was lost? */
enum rondo_loss { RONDO_LOSS_NONE, RONDO_LOSS_DEAD, RONDO_LOSS_SILENT, RONDO_NUM_LOSSES };

struct rondo_control_config {
    int rank, nranks;
    int local_rank, nlocal;
    const int *local_ranks;         /* local rank -> rank */
    const struct rondo_peer *peers; /* all ranks' records; must outlive the control */
    /*
     * Nodes, and rank -> node; must outlive the control. With nnodes <= 1, node_of is not read. With more,
     * peers[0].id holds the communicator's secret, and from rondo_control_start on peers[r].control_addr and
     * control_number say where r's process listens.
     */
    int nnodes;
    const int *node_of;
    uint64_t comm_hash;
    size_t mailbox_capacity; /* payload bytes for each rank */
    size_t extra;            /* bytes of the segment that are the caller's (rondo_control_extra) */
    enum rondo_shm_mode shm_mode;
    struct rondo_shm_name arena; /* the leader's, for the others (rondo_control_arena) */
    int pinned;                  /* a GPU maps the mailbox */
    const char *name;            /* of the communicator, for log lines and errors */
    /* Writes a call in words, for errors ("all_reduce #17 of 1024 f32"); the control thread calls it too.
     * NULL: errors give only the call's number. */
    void (*describe)(const struct rondo_call *call, char *text, size_t bytes);
};

struct rondo_control;

/**
 * Listen for the control planes of other nodes, on the interface of RONDO_SOCKET_IFNAME. There is one
 * listener a process, reference counted; it works before any control exists. Keep it open from before other
 * processes start their controls until after this process has closed its own.
 * @param addr    out: a struct sockaddr_in or in6, for peers[r].control_addr
 * @param number  out: counts this process's listeners, for peers[r].control_number. Messages from an earlier
 *                listener say nothing about communicators that were made after it.
 */
rondo_status rondo_control_listen(uint8_t addr[RONDO_ADDR_BYTES], uint32_t *number);
/** Release the listener. The last release, once all controls are closed, closes the connections; it waits up
 * to 1 s for unwritten bytes, in which this process beats for no communicator. */
void rondo_control_unlisten(void);

/** Create the node's segment; its leader (local rank 0) does. @a name identifies it; the bootstrap carries
 * it to the others, who attach. */
rondo_status rondo_control_create(struct rondo_control **control, const struct rondo_control_config *config,
                                  struct rondo_shm_name *name);
rondo_status rondo_control_attach(struct rondo_control **control, const struct rondo_control_config *config,
                                  const struct rondo_shm_name *name);
/** Begin to beat and watch, and remove the segment's name (leader). Call it after the round in which all
 * ranks report that they have attached. */
rondo_status rondo_control_start(struct rondo_control *control);
/** Leave in order: from here on the end of this rank is no fault. Who is told of it knows the reason first,
 * if there is one. Never blocks. */
void rondo_control_leave(struct rondo_control *control);
/** Stop watching, unmap, free. */
void rondo_control_close(struct rondo_control *control);
/** A GPU may still use the mailbox: close leaves the segment mapped. */
void rondo_control_keep(struct rondo_control *control);

/** @return the name of the leader's arena, which all can read who have attached. */
const struct rondo_shm_name *rondo_control_arena(const struct rondo_control *control);
/** @return config.extra bytes of the segment, zero at first. What the leader writes there before the others
 * know the segment's name, they read. */
uint8_t *rondo_control_extra(struct rondo_control *control);
/** @return the node's mailbox, which belongs to the control; NULL: none (capacity 0 or one rank). */
struct rondo_mailbox *rondo_control_mailbox(struct rondo_control *control);

/**
 * End the communicator on every rank with this reason, unless another one came first: also the loss of a rank
 * that another communicator has told this process of. Any thread; never blocks.
 * @param rank  the rank at fault; -1: unknown
 */
void rondo_control_abort(struct rondo_control *control, rondo_status status, int rank, const char *text);
/** Has the communicator been ended? One load. */
int rondo_control_aborted(const struct rondo_control *control);
/**
 * Get the reason.
 * @param text  out: RONDO_ERROR_TEXT bytes
 * @param rank  out: the rank at fault; -1: unknown
 * @return its status; RONDO_SUCCESS: there is none.
 */
rondo_status rondo_control_reason(struct rondo_control *control, char *text, int *rank);
/** End the communicator if it has a rank that is lost, as another communicator has told this process: a rank
 * that goes because of a loss leaves the others its name. */
void rondo_control_tell_loss(struct rondo_control *control);
/** Name the rank of whose loss this process was told in the last RONDO_CONTROL_TOLD_NS; "": of none. */
#define RONDO_CONTROL_TOLD_NS (60 * INT64_C(1000000000))
void rondo_control_told_loss(char *text, size_t bytes);
/** Look for deaths and messages, which the control thread would find later. Call it in long waits: it is
 * cheap. Any thread. */
rondo_status rondo_control_progress(struct rondo_control *control, int *moved);

/** Record that a call begins, or that it is done. On the hot path: a few stores to this rank's own lines. */
void rondo_control_call_begin(struct rondo_control *control, const struct rondo_call *call);
void rondo_control_call_end(struct rondo_control *control, uint64_t seq);
/** The same, with the time. */
void rondo_control_call_end_timed(struct rondo_control *control, uint64_t seq);
/** Record that a send or receive of the user begins (coll, dtype, count, root: the peer), or that it is done.
 * seq: its number among this rank's messages, from 1. */
void rondo_control_message_begin(struct rondo_control *control, const struct rondo_call *message);
void rondo_control_message_end(struct rondo_control *control, uint64_t seq);
/** Record what this rank's runs wait for, for rondo-doctor. n 0: it does not wait. */
void rondo_control_waiting(struct rondo_control *control, const struct rondo_blocked *blocked, int n,
                           const char *text);
/** Describe this rank's segment, but for state, fd, inode and offset.
 * @return where this process has it, entry->bytes long */
const void *rondo_control_record(const struct rondo_control *control, struct rondo_record_entry *entry);
/** @return 1 for the first caller on the node: it writes the report about the communicator. */
int rondo_control_claim_report(struct rondo_control *control);
/** Have the control thread call a function soon after each rondo_control_wake, which is async-signal-safe. */
void rondo_control_on_wake(void (*function)(void));
void rondo_control_wake(void);
/** Have the control thread look around soon. Async-signal-safe. */
void rondo_control_ring(void);
/**
 * Get call @a seq of a rank; 0: its newest. @return 0: it is not in the ring (yet, or any more). A rank of
 * another node is asked, at most every RONDO_CONTROL_ASK_NS: 0 until it has answered, and the answer may be
 * that old.
 */
int rondo_control_call_of(struct rondo_control *control, int rank, uint64_t seq, struct rondo_call *call);
/**
 * Keep the counts of call @a seq, one for each rank, in a call with counts per rank. Before the call's
 * rondo_control_call_begin. Of more than RONDO_CONTROL_COUNTS ranks, those of the first ones are kept.
 */
void rondo_control_counts_put(struct rondo_control *control, uint64_t seq, const size_t *counts);
/** Get counts of call @a seq of a rank, from that of rank @a first on, at most @a n. @return how many; 0: no
 * more are kept; or RONDO_COUNTS_...: one of the last calls has them, and a rank of another node is asked. */
int rondo_control_counts_of(struct rondo_control *control, int rank, uint64_t seq, int first,
                            uint64_t *counts, int n);
/** Get the newest call of a rank. @return 1: found; 0: it has made none; -1: it is on another node, was
 * asked, and has not answered since @a since_ns (rondo_now_ns). */
int rondo_control_last_call(struct rondo_control *control, int rank, int64_t since_ns,
                            struct rondo_call *call);
/**
 * Compare this node's CLOCK_MONOTONIC with that of another one, on the node's lowest rank: some pings, in at
 * most 100 ms. The nodes form a tree; the first one compares with none.
 * @param rank  out: of the other node;  @param offset_ns  out: what to add to a time of this node to get the
 * other one's;  @param error_ns  out: the offset is that exact
 * @return 1: found; 0: not this rank, or no answer
 */
int rondo_control_clock(struct rondo_control *control, int *rank, int64_t *offset_ns, int64_t *error_ns);
/** Record the message that this rank waits in; NULL: none. */
void rondo_control_message(struct rondo_control *control, const struct rondo_message *message);
/** Get the message that a rank of this node waits in. @return 0: none, or a rank of another node. */
int rondo_control_message_of(struct rondo_control *control, int rank, struct rondo_message *message);
/** Record that this rank waits for another one in its collective @a seq, and has no message that others could
 * wait for. */
void rondo_control_stuck(struct rondo_control *control, uint64_t seq, int rank);
/** @return the collective in which a rank of this node waits so for @a waited_for; 0: in none. */
uint64_t rondo_control_stuck_of(struct rondo_control *control, int rank, int waited_for);
/** @return the state of a rank, as known here; LEFT for GONE. A rank of another node whose death has ended
 * the communicator is dead. */
enum rondo_rank_state rondo_control_state_of(struct rondo_control *control, int rank);

/*
 * Votes: numbers that the ranks of a node show one another. Nobody waits: the caller knows that all have
 * voted, because all have made a call since that ends on no rank before all have begun it. A vote stays until
 * its rank's next but one: the caller knows in the same way that nobody reads it any more.
 */
enum { RONDO_VOTE_WORDS = 32 };
/** Show this rank's vote. number: counts the communicator's votes from 1. */
void rondo_control_vote(struct rondo_control *control, uint64_t number,
                        const uint32_t word[RONDO_VOTE_WORDS]);
/** Get that of a local rank. @return 0: it has not voted so often, or more often. */
int rondo_control_vote_of(const struct rondo_control *control, int local, uint64_t number,
                          uint32_t word[RONDO_VOTE_WORDS]);

/** Send up to RONDO_MSG_BYTES to a rank's inbox. @return RONDO_IN_PROGRESS: no room now, try again. */
rondo_status rondo_control_send(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                                size_t bytes);
/** Receive the oldest message with this tag from this rank. @return RONDO_IN_PROGRESS: none. Messages with
 * other tags are parked; too many of them end the communicator. */
rondo_status rondo_control_receive(struct rondo_control *control, int rank, uint64_t tag, void *data,
                                   size_t max, size_t *bytes);
/** The same from any rank: *rank is its sender. */
rondo_status rondo_control_receive_any(struct rondo_control *control, uint64_t tag, int *rank, void *data,
                                       size_t max, size_t *bytes);
/** Drop all messages with this tag, those that have come and those that will. */
void rondo_control_forget(struct rondo_control *control, uint64_t tag);

#endif
