/*
 * A store inside: what a rank publishes, what others ask it for, what it pulls, and its connections. One lock
 * protects all of it (core->lock); functions expect it held unless they say otherwise. Wires drop it only
 * while they copy a content (rondo_tensor_place), or it is checked and copied on where it has landed
 * (rondo_tensor_landed), and then touch nothing else. Publishers drop it to fill contents
 * (rondo_tensor_fill).
 *
 *     publish.c   keys -> publications
 *     answer.c    responses: what others have asked for
 *     home.c      where keys are, for RONDO_TENSOR_ANY
 *     pull.c      pulls of this rank, the cache of meta-data, requests (handles of the user)
 *     conn.c      one connection to each rank that is talked to: message buffers, connecting
 *     wire_*.c    how writes reach the other end: wire.h
 *     store.c     the life of a store, its thread, waiting
 *     api.c       rondo_tensor.h
 */
#ifndef RONDO_TENSOR_STORE_H
#define RONDO_TENSOR_STORE_H

#include <pthread.h>

#include "base/shm.h"
#include "comm/comm.h"
#include "tensor/arena.h"
#include "tensor/codec.h"
#include "tensor/gpu.h"
#include "tensor/map.h"
#include "tensor/numbers.h"
#include "tensor/wire.h"

enum { RONDO_TENSOR_ALIVE = 0x74656e73 };
/* A content that may be written to the place of a pull that was given up gets this long; then the connection
 * ends. */
#define RONDO_TENSOR_GRACE_NS (5 * INT64_C(1000000000))
/* So many bytes are copied, or checked, without the lock. */
#define RONDO_TENSOR_APART ((size_t)64 << 10)
/* A message that may wait for others waits this long. */
#define RONDO_TENSOR_LATER_NS INT64_C(100000)

/* The user's handle. */
struct rondo_tensor_store {
    struct rondo_shell shell;
    struct rondo_tensor_core *core;
};

/* ---- what this rank publishes ---- */

/* Responses, oldest first; zeroed: empty. A peer says how many there are and which ones end, so nothing here
 * takes longer if there are more. */
struct rondo_tensor_queue {
    struct rondo_tensor_response *first, *last;
};

/* Those that wait for a step that is not published; there are some. A publication looks at its own step's,
 * and at those of RONDO_TENSOR_LATEST. */
struct rondo_tensor_waits {
    struct rondo_tensor_node node;           /* in core->waits, by key and step */
    struct rondo_tensor_waits *next, **link; /* all of the key */
    struct rondo_tensor_key *key;
    uint64_t step;
    struct rondo_tensor_queue queue;
};

struct rondo_tensor_key {
    struct rondo_tensor_node node;
    struct rondo_tensor_pub *pubs; /* the highest step first */
    struct rondo_tensor_waits *waiting;
    int announced;
    size_t bytes;
    char text[]; /* terminated */
};

struct rondo_tensor_pub {
    struct rondo_tensor_pub *next;
    struct rondo_tensor_key *key;
    uint64_t step, left; /* left: pulls that may still begin; UINT64_MAX: any number */
    rondo_tensor tensor;
    struct rondo_tensor_meta meta;
    int gpu;      /* of tensor.data, or RONDO_TENSOR_NO_GPU */
    int holds;    /* responses that need the data */
    int unlanded; /* responses whose content has not landed */
    int ended;    /* no longer found; freed with the last response */
    struct rondo_tensor_request *request;
    rondo_status status; /* not RONDO_SUCCESS: there is no tensor, but this error, */
    char *text;          /* in words */
};

enum rondo_tensor_answer {
    RONDO_TENSOR_WAITING,  /* for the publication */
    RONDO_TENSOR_UNFILLED, /* it is in core->unfilled: it must be packed, or its checksum made */
    RONDO_TENSOR_FILLING,  /* a thread does that, without the lock */
    RONDO_TENSOR_ASKED,    /* the meta-data was sent; the re-request has not come */
    RONDO_TENSOR_QUEUED,   /* the content is in the connection's queue */
    RONDO_TENSOR_SENDING,  /* it is with the wire */
    RONDO_TENSOR_SENT      /* until the other end says that it has landed */
};

/* A request of another rank (or of this one), until its content has landed. */
struct rondo_tensor_response {
    struct rondo_tensor_node node;               /* in conn->responses, by index */
    struct rondo_tensor_response *next, *before; /* in a queue: of a key, the store, or the connection */
    struct rondo_tensor_conn *conn;
    struct rondo_tensor_waits *waits; /* while WAITING */
    uint64_t came;                    /* counts those that had to wait */
    struct rondo_tensor_pub *pub;
    enum rondo_tensor_answer state;
    int holds;                /* it needs pub's data */
    int cancelled, delivered; /* while it is SENDING or FILLING, what the other end said meanwhile */
    int answers;              /* while it is FILLING: the other end wants to know when it has ended */
    int dropped;              /* its connection has ended while it was FILLING; it is in no map */
    uint32_t index, flags, epoch;
    uint64_t step; /* as asked; then the publication's */
    rondo_tensor_slice slice;
    uint64_t address;
    uint32_t rkey[RONDO_TENSOR_PORTS];
    struct rondo_tensor_meta meta; /* what the receiver has cached; then the part's */
    const uint8_t *data;
    int gpu;      /* of data, or RONDO_TENSOR_NO_GPU */
    void *staged; /* packed form or clone, from the arenas; NULL: none */
    uint64_t checksum;
};

/** Insert a response behind another one of the queue, or with NULL as the first. */
static inline void rondo_tensor_queue_insert(struct rondo_tensor_queue *queue,
                                             struct rondo_tensor_response *response,
                                             struct rondo_tensor_response *behind)
{
    response->before = behind;
    response->next = behind != NULL ? behind->next : queue->first;
    *(behind != NULL ? &behind->next : &queue->first) = response;
    *(response->next != NULL ? &response->next->before : &queue->last) = response;
}

static inline void rondo_tensor_queue_remove(struct rondo_tensor_queue *queue,
                                             struct rondo_tensor_response *response)
{
    *(response->before != NULL ? &response->before->next : &queue->first) = response->next;
    *(response->next != NULL ? &response->next->before : &queue->last) = response->before;
    response->next = response->before = NULL;
}

/* ---- what this rank pulls ---- */

enum rondo_tensor_pull_state {
    RONDO_TENSOR_PULL_NEW,
    RONDO_TENSOR_PULL_LOCATING, /* asked which rank has the key */
    RONDO_TENSOR_PULL_ASKED,    /* the size is not known */
    RONDO_TENSOR_PULL_TOLD,     /* the publisher knows where the content goes, or has a place to write to */
    RONDO_TENSOR_PULL_PLACING,  /* the wire is writing it there */
    RONDO_TENSOR_PULL_DONE
};

struct rondo_tensor_pull {
    struct rondo_tensor_node node; /* in core->pulls, by index */
    struct rondo_tensor_request *request;
    struct rondo_tensor_conn *conn;
    enum rondo_tensor_pull_state state;
    int peer; /* as asked; RONDO_TENSOR_ANY: until it is located */
    int any, given_up, owns, unpacks;
    uint32_t index, epoch;
    uint64_t step;
    rondo_tensor_slice slice;
    const char *key;
    size_t key_bytes;
    rondo_tensor *result;
    rondo_status *status;
    struct rondo_tensor_meta meta;
    uint64_t checksum;
    int has_checksum;
    void *place;
    int gpu;       /* of place, or RONDO_TENSOR_NO_GPU */
    int current;   /* the GPU of the thread that began it, if memory of a GPU is wanted */
    void *landing; /* where the content lands before it is copied to its place; NULL: in its place */
    int offered;   /* the publisher may write to it */
    int cancelled; /* the publisher was told that nobody wants it */
    struct rondo_tensor_offer offer;
};

/* The user's request: pulls, or one publication. */
struct rondo_tensor_request {
    struct rondo_tensor_request *next, **link; /* all of the store */
    struct rondo_tensor_core *core;
    struct rondo_tensor_pub *pub; /* of a publication that has not ended */
    size_t n, left;               /* pulls, and those that have not ended; a publication: 1 */
    int is_publication;
    int64_t begun_ns;
    rondo_status status;
    char text[RONDO_ERROR_TEXT];
    struct rondo_tensor_pull pull[];
};

/* Meta-data that a rank has sent for a part of a key. */
struct rondo_tensor_known {
    struct rondo_tensor_node node;
    int peer;
    rondo_tensor_slice slice;
    struct rondo_tensor_meta meta;
    uint32_t number; /* of the request for it; RONDO_TENSOR_NUMBERS: it has none */
    int numbered;    /* the publisher was told what the number stands for */
    size_t key_bytes;
    char key[];
};

/* Where a key was announced (at its home rank), or found (at a rank that pulls from ANY). */
struct rondo_tensor_home {
    struct rondo_tensor_node node;
    int rank; /* -1: not announced yet */
    struct rondo_tensor_locate *asking;
    size_t key_bytes;
    char key[];
};
/* A question for the rank of a key that is not announced. A peer says how many there are, and takes them back
 * one by one. */
struct rondo_tensor_locate {
    struct rondo_tensor_node node;            /* in conn->locates, by index */
    struct rondo_tensor_locate *next, **link; /* those for the same key */
    struct rondo_tensor_home *home;
    struct rondo_tensor_conn *conn;
};

/* A request of an epoch that has not begun here. */
struct rondo_tensor_later {
    struct rondo_tensor_node node;            /* in conn->later, by index */
    struct rondo_tensor_later *next, *before; /* all of the store, in the order in which they came */
    struct rondo_tensor_conn *conn;
    size_t bytes;
    uint8_t message[];
};

/* ---- connections ---- */

enum rondo_tensor_conn_state {
    RONDO_TENSOR_CONN_HELLO,   /* until the other end has said hello */
    RONDO_TENSOR_CONN_RECORD,  /* until its record has come */
    RONDO_TENSOR_CONN_CONNECT, /* until the wire is connected */
    RONDO_TENSOR_CONN_OPEN,
    RONDO_TENSOR_CONN_BROKEN
};

/* The last message in the queue, if one that follows may become a run with it. */
struct rondo_tensor_tail {
    enum rondo_tensor_type type; /* of a run */
    size_t at, bytes;            /* in the queue */
    uint32_t count;              /* of messages; 0: there is no such message */
    uint32_t flags, index, epoch, number;
    uint64_t step;
};

struct rondo_tensor_conn {
    struct rondo_tensor_conn *next;
    struct rondo_tensor_core *core;
    int peer;
    enum rondo_tensor_conn_state state;
    int hello_sent, hello_came, record_made, record_sent, record_came, connected, ready_sent, ready_came,
        end_came, owes_end;
    uint32_t netdevs;   /* the other end's */
    uint32_t version;   /* of the protocol, that both ends speak */
    size_t framed_most; /* bytes of a content that can come in a frame here, or be written in one; 0: none */
    const struct rondo_tensor_wire *wire;
    void *link;  /* the wire's */
    int busy;    /* a thread is in the wire's progress, and may have dropped the lock */
    int closing; /* it is broken, and somebody may still read or write through the wire */
    /* encoded messages that wait for the message buffer */
    uint8_t *queue;
    size_t queue_first, queue_end, queue_size;
    uint32_t written, came;      /* message buffers */
    int local_busy, remote_busy; /* the buffer here; the one at the other end */
    int owes_acks;
    int64_t busy_ns; /* since when the other end's buffer is busy */
    struct rondo_tensor_tail tail;
    int urgent;       /* a message in the queue may not wait for others */
    int64_t later_ns; /* else: until when they may wait */
    int ncancels;     /* pulls that wait for CANCELLED, and since when one of them has not ended */
    int64_t cancel_ns;
    struct rondo_tensor_queue sends;
    struct rondo_tensor_map responses, locates, later;
    struct rondo_tensor_numbers numbers; /* that the other end has given */
    uint32_t next_number;                /* that this end gives */
    rondo_status failure;                /* the connection is broken, or will be at its next progress */
    char failure_text[RONDO_ERROR_TEXT];
    uint8_t record[RONDO_TENSOR_RECORD] RONDO_ALIGNED(8), their_record[RONDO_TENSOR_RECORD] RONDO_ALIGNED(8);
};

struct rondo_tensor_core {
    pthread_mutex_t lock;
    struct rondo_tensor_core *next; /* stores of the communicator */
    struct rondo_ctx *ctx;          /* NULL: it has ended */
    int ending;                     /* a thread ends the store (store.c) */
    int rank, nranks;
    unsigned forks;  /* rondo_tensor_forks at its creation */
    uint32_t number; /* of the communicator's stores */
    uint64_t tag;    /* of its control messages */
    size_t message_bytes;
    uint32_t newest; /* version of the protocol that it speaks; 0: the least one, and does not say so */
    int checksum;
    int64_t timeout_ns;

    struct rondo_tensor_map keys, waits, homes;
    uint64_t nwaited; /* requests, so far */
    int has_retired;
    uint64_t retired; /* the highest step that was retired */
    uint32_t epoch;
    int unflushed; /* a message went to another connection than the one that is read */
    struct rondo_tensor_queue unfilled;
    size_t nunfilled;
    struct rondo_tensor_response *filling; /* NULL: none; one at a time, so that callbacks are, too */
    int unserved;                          /* a pull was given back to a publication */
    struct rondo_tensor_later *later, *later_last;

    struct rondo_tensor_response *spare; /* that have ended */
    size_t nspare;
    struct rondo_tensor_map pulls, known, found;
    uint32_t last_index;
    struct rondo_tensor_request *requests;

    struct rondo_tensor_arenas arenas;
    struct rondo_tensor_gpus *gpus;
    struct rondo_tensor_conn *conns, **conn_of; /* conn_of: by rank */
    uint32_t netdevs;
    int holds_netdevs, nnet, nopening;
    struct rondo_shm door_memory;
    struct rondo_tensor_door *door; /* NULL: no other process needs one */
    struct rondo_tensor_door own_door;
    int64_t looked_ns, checked_ns; /* last looks for hellos, and for deaths */

    rondo_status failure; /* the store has ended */
    char failure_text[RONDO_ERROR_TEXT];
    uint64_t nmoved; /* rounds of progress, by whichever thread, that found something */
    int drivers;     /* threads that make progress while they wait; atomic */
    int spins;       /* drivers spin: ranks have cores of their own */
    struct rondo_oversubscription oversubscription; /* as drivers have noticed it */
    /* waits that shared their core with the rank that ended them, since it moved to another core; after how
     * many it moves again; how often it has tried to */
    uint32_t shared, shared_most, moves;
    int wants_thread, stop, has_thread;
    pthread_t thread;
    rondo_tensor_stats stats;
};

/* ---- store.c ---- */

/** How many forks lie between the first process and this one: in a child, another number than its parent's
 * stores have. */
extern unsigned rondo_tensor_forks;

/** One round of progress: hellos, connections, deaths, and the end of the communicator. */
void rondo_tensor_progress(struct rondo_tensor_core *core, int *moved);
/** Wait without the lock, making progress, until done(arg) (called with the lock), or the deadline. what: the
 * call, for the sentence. @return RONDO_TIMEOUT without a sentence of its own; or the store's failure. */
rondo_status rondo_tensor_wait_until(struct rondo_tensor_core *core, int (*done)(void *arg), void *arg,
                                     int64_t timeout_ns);
/** Wait without the lock until done(arg), which other threads bring about by ending their copies. */
void rondo_tensor_wait_for_copies(struct rondo_tensor_core *core, int (*done)(void *arg), void *arg);
/** The store has ended: nothing can be done any more. Keeps this thread's sentence. */
void rondo_tensor_core_fail(struct rondo_tensor_core *core, rondo_status status);
uint64_t rondo_tensor_key_hash(const char *key, size_t bytes);
/** Has the other end of a connection exited, or left the communicator? */
int rondo_tensor_has_gone(const struct rondo_tensor_conn *conn);
/** Where a rank is, for errors: "rank 3 on host". */
const char *rondo_tensor_who(const struct rondo_tensor_core *core, int rank, char text[96]);

/* ---- publish.c ---- */

rondo_status rondo_tensor_pub_add(struct rondo_tensor_core *core, const char *key, uint64_t step,
                                  const rondo_tensor *tensor, uint64_t pulls, int announce,
                                  struct rondo_tensor_request *request);
rondo_status rondo_tensor_pub_add_error(struct rondo_tensor_core *core, const char *key, uint64_t step,
                                        rondo_status status, const char *text);
/** Pack, and make checksums, without the lock, what requests wait for, unless another thread does. Then it is
 * written. @return 1: there was some. */
int rondo_tensor_fill(struct rondo_tensor_core *core);
/** Pulls were given back: answer those that wait. */
void rondo_tensor_serve_again(struct rondo_tensor_core *core);
/** End publications up to a step; all: of all steps. Contents under way keep them until pubs_idle. */
void rondo_tensor_pubs_retire(struct rondo_tensor_core *core, uint64_t step, int all);
/** Is a content under way to a rank, or made for it? Not those that wait for the other end to ask, or to
 * say that they have landed. */
int rondo_tensor_serves(const struct rondo_tensor_core *core);
/** Is no ended publication's data in use? */
int rondo_tensor_pubs_idle(void *core);
/** The publication's request is given up. */
void rondo_tensor_pub_forget(struct rondo_tensor_pub *pub);
/** Requests that came for this epoch before it began. */
void rondo_tensor_later_replay(struct rondo_tensor_core *core);
void rondo_tensor_pubs_release(struct rondo_tensor_core *core);

/* Messages of a peer. An error is the peer's fault, and breaks the connection. */
rondo_status rondo_tensor_on_request(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
/** A request with a number, or the number of one (RONDO_TENSOR_NUMBERS_VERSION). */
rondo_status rondo_tensor_on_numbered(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
/** As many requests with numbers as it counts (RONDO_TENSOR_RUNS_VERSION). */
rondo_status rondo_tensor_on_run(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_re_request(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_cancel(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_delivered(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_delivered_run(struct rondo_tensor_conn *conn,
                                           const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_locate(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_announce(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
/** The connection has ended: its responses end. */
void rondo_tensor_responses_drop(struct rondo_tensor_conn *conn);

/* ---- pull.c ---- */

/** Begin all pulls of a request. Errors are those of the pulls. */
void rondo_tensor_pulls_begin(struct rondo_tensor_request *request);
void rondo_tensor_pull_fail(struct rondo_tensor_pull *pull, rondo_status status, const char *text);
/** Give up what has not ended, with this error. */
void rondo_tensor_request_give_up(struct rondo_tensor_request *request, rondo_status status,
                                  const char *text);
rondo_status rondo_tensor_on_meta_data(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_error(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_location(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
rondo_status rondo_tensor_on_cancelled(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m);
/** The connection, or with NULL the store, has ended: pulls over it fail with its sentence. */
void rondo_tensor_pulls_drop(struct rondo_tensor_core *core, struct rondo_tensor_conn *conn,
                             rondo_status status, const char *text);
void rondo_tensor_pulls_release(struct rondo_tensor_core *core);

/* ---- conn.c ---- */

/** Get the connection to a rank, and begin to connect if there is none. */
rondo_status rondo_tensor_conn_get(struct rondo_tensor_core *core, int peer, struct rondo_tensor_conn **conn);
/** Queue a message; its epoch is set here. */
rondo_status rondo_tensor_say(struct rondo_tensor_conn *conn, struct rondo_tensor_message *message);
/** As rondo_tensor_say, for a message that nobody waits for: it may go with a later one. */
rondo_status rondo_tensor_say_later(struct rondo_tensor_conn *conn, struct rondo_tensor_message *message);
/** Queue the content of a response. */
void rondo_tensor_conn_send(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response);
/** The connection has failed; everything over it ends with this thread's sentence. */
void rondo_tensor_conn_break(struct rondo_tensor_conn *conn, rondo_status status);
/** End what broken connections still have if nobody reads and writes through them any more. */
void rondo_tensor_conns_settle(struct rondo_tensor_core *core);
/** Break it at its next progress, with this thread's sentence; nothing on RONDO_SUCCESS. */
void rondo_tensor_conn_doom(struct rondo_tensor_conn *conn, rondo_status status);
/** Look for hellos of other ranks. */
rondo_status rondo_tensor_conns_listen(struct rondo_tensor_core *core, int *moved);
rondo_status rondo_tensor_conn_progress(struct rondo_tensor_conn *conn, int *moved);
/** Should the messages that wait be written now, although more will come? */
int rondo_tensor_conn_has_enough(const struct rondo_tensor_conn *conn);
/** Write contents while messages that ask for more are read: the first ones must not wait for the last. */
rondo_status rondo_tensor_conn_send_early(struct rondo_tensor_conn *conn);
/** Write what can be written now. */
void rondo_tensor_conn_flush(struct rondo_tensor_conn *conn);
void rondo_tensor_flush_all(struct rondo_tensor_core *core);
void rondo_tensor_conns_release(struct rondo_tensor_core *core);

#endif
