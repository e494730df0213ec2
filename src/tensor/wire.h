/*
 * Wires: how the two ends of a connection write to each other. A write has a word of immediate data
 * (codec.h): the message buffer, an acknowledgement, or the content of a request. Writes arrive whole and in
 * order. Four wires: within the rank (wire_self.c), shared memory of the node (wire_shm.c), net devices that
 * write into memory of the other end (wire_write.c), and other net devices (wire_net.c).
 *
 * All functions are called with the store's lock, and none blocks. A wire reports what comes by the functions
 * below. An error ends the connection; its sentence names both ends.
 */
#ifndef RONDO_TENSOR_WIRE_H
#define RONDO_TENSOR_WIRE_H

#include "base/status.h"
#include "tensor/codec.h"

struct rondo_tensor_conn;
struct rondo_tensor_core;
struct rondo_tensor_response;

enum { RONDO_TENSOR_RECORD = 544 }; /* what one end tells the other to connect */

/* What is written with a content. Integers are of the host: wires that leave it convert them. */
struct rondo_tensor_content {
    uint32_t index, epoch;
    uint32_t flags; /* RONDO_TENSOR_CONTENT_... */
    uint64_t bytes, step, checksum;
};
enum {
    RONDO_TENSOR_CONTENT_TELL = 1,    /* the publisher wants to know that it has landed */
    RONDO_TENSOR_CONTENT_CHECKED = 2, /* checksum is valid */
    RONDO_TENSOR_CONTENT_SOON = 4,    /* with TELL: somebody waits for it, and for nothing else */
    RONDO_TENSOR_CONTENT_ACK = 8      /* the write also acknowledges the message buffer (sockets, frames) */
};

/* One use of a registration (regions.h). */
struct rondo_tensor_kept;
struct rondo_tensor_hold {
    void *region;                   /* NULL: none */
    struct rondo_tensor_kept *kept; /* region belongs to it; NULL: to this use */
};

/* A place that the other end may write to, until it is withdrawn. All zero: none. */
struct rondo_tensor_offer {
    uint64_t address;
    uint32_t key[RONDO_TENSOR_PORTS];
    struct rondo_tensor_hold hold[RONDO_TENSOR_PORTS];
    int gpu; /* RONDO_TENSOR_NO_GPU: host memory */
};

struct rondo_tensor_wire {
    const char *name;
    int over_net;
    int says_ready; /* 1: nothing may be written before the other end is connected, too */
    int delivers;   /* 1: rondo_tensor_sent means that the content has landed */
    int takes_acks; /* 1: a content may take an acknowledgement with it (rondo_tensor_ack_rides) */
    /** Allocate this end and fill its record. An error of open is followed by close. */
    rondo_status (*open)(struct rondo_tensor_conn *conn, void *record);
    /** Connect with the other end's record, which is not trusted. @return RONDO_IN_PROGRESS: call again. */
    rondo_status (*connect)(struct rondo_tensor_conn *conn, const void *record);
    /** The message buffer of this end, core->message_bytes long. Not touched between write and
     * rondo_tensor_written. */
    uint8_t *(*buffer)(struct rondo_tensor_conn *conn);
    /** Write its first bytes to the other end's. @return RONDO_IN_PROGRESS: no room now, also below. */
    rondo_status (*write)(struct rondo_tensor_conn *conn, size_t bytes);
    rondo_status (*ack)(struct rondo_tensor_conn *conn);
    /** Write a content. The response's data stays valid until rondo_tensor_sent, maybe called inside. */
    rondo_status (*content)(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response);
    /** Write contents that were gathered; no more come now. NULL: it gathers none. */
    rondo_status (*flush)(struct rondo_tensor_conn *conn);
    /** NULL: the wire asks rondo_tensor_place where a content goes. Else the other end writes it straight to
     * the place that its request names: let it write to [data, data + bytes), at least 1 byte, of a GPU or of
     * the host. */
    rondo_status (*offer)(struct rondo_tensor_conn *conn, void *data, size_t bytes, int gpu,
                          struct rondo_tensor_offer *offer);
    /** NULL: contents must lie in host memory. Can this one in memory of a GPU be written as it is? */
    int (*takes_gpu)(struct rondo_tensor_conn *conn, const void *data, size_t bytes, int gpu);
    void (*withdraw)(struct rondo_tensor_conn *conn, struct rondo_tensor_offer *offer);
    rondo_status (*progress)(struct rondo_tensor_conn *conn, int *moved);
    /** NULL: this end reads and writes contents itself. Else the other end reads them: a content whose
     * copy is not finished by then counts as failed. */
    void (*revoke)(struct rondo_tensor_conn *conn);
    /** NULL: never. After revoke: is the other end one of this process, and copies contents until this says
     * no? Other processes may read what is gone, or another content, and drop it. */
    int (*is_read)(struct rondo_tensor_conn *conn);
    /** Release this end; nobody touches memory of pulls and responses through it afterwards. Also after an
     * open or connect that failed, or never came. */
    void (*close)(struct rondo_tensor_conn *conn);
};

extern const struct rondo_tensor_wire rondo_tensor_wire_self, rondo_tensor_wire_shm, rondo_tensor_wire_net,
    rondo_tensor_wire_write;
/** Does the net device that both ends have write into memory of the other end? The same at both ends. */
int rondo_tensor_writes_to(const struct rondo_tensor_core *core, const struct rondo_tensor_conn *conn);

/* ---- what wires report (conn.c, pull.c, publish.c) ---- */

/** The other end's message buffer has come. The wire may reuse the memory on return. */
rondo_status rondo_tensor_message_came(struct rondo_tensor_conn *conn, const uint8_t *data, size_t bytes);
rondo_status rondo_tensor_ack_came(struct rondo_tensor_conn *conn);
/** This end's message buffer may be filled again. */
void rondo_tensor_written(struct rondo_tensor_conn *conn);
/** A content is to be written. @return 1: say with it that the message buffer was read, then call _rode. */
int rondo_tensor_ack_rides(struct rondo_tensor_conn *conn);
void rondo_tensor_ack_rode(struct rondo_tensor_conn *conn);
/** The wire is done with a response's data. May free it. dropped: it is known that no pull has got it. */
void rondo_tensor_sent(struct rondo_tensor_response *response, int dropped);
/** From `content`, which then returns RONDO_SUCCESS: something that this content needs cannot be had. Its
 * pull ends with this thread's sentence, the response now, and the connection goes on. */
void rondo_tensor_unable(struct rondo_tensor_response *response, rondo_status status);
/**
 * A content comes, or with `offer` has come: where does it go?
 * @param place  out: bytes of room until rondo_tensor_landed; NULL: nobody wants it, drop it. The lock may be
 *               released meanwhile.
 * @return RONDO_REMOTE_ERROR: no such content was asked for.
 */
rondo_status rondo_tensor_place(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                                void **place);
/** It has landed at its place, or was lost (status, and this thread's sentence). Not for a place of NULL.
 * From `progress`. The lock may be released meanwhile. @return 1: a pull has it; 0: the pull had been given
 * up, or failed. */
int rondo_tensor_landed(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                        rondo_status status);
/** The place that a pull has offered, until it has landed; NULL: none. */
const struct rondo_tensor_offer *rondo_tensor_offer_of(const struct rondo_tensor_conn *conn,
                                                       const struct rondo_tensor_content *content);
/** Copy a response's data to the heap, where ranks of the node can read it. */
rondo_status rondo_tensor_stage(struct rondo_tensor_response *response);
/** What to write with the content of a response. */
void rondo_tensor_content_of(const struct rondo_tensor_response *response,
                             struct rondo_tensor_content *content);

/* ---- the door: where a store's thread sleeps, in memory of the node ---- */

struct rondo_tensor_door {
    uint32_t rung;     /* atomic; a futex */
    uint32_t sleeping; /* atomic; 1: ring it */
};
void rondo_tensor_door_ring(struct rondo_tensor_door *door);

#endif
