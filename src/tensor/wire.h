/*
 * Wires: how the two ends of a connection write to each other. A write has a word of immediate data
 * (codec.h): the message buffer, an acknowledgement, or the content of a request. Writes arrive whole and in
 * order. Three wires: within the rank (wire_self.c), shared memory of the node (wire_shm.c), and net devices
 * (wire_net.c).
 *
 * All functions are called with the store's lock, and none blocks. A wire reports what comes by the functions
 * below. An error ends the connection; its sentence names both ends.
 */
#ifndef RONDO_TENSOR_WIRE_H
#define RONDO_TENSOR_WIRE_H

#include "base/status.h"

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
    RONDO_TENSOR_CONTENT_TELL = 1,   /* the publisher wants to know that it has landed */
    RONDO_TENSOR_CONTENT_CHECKED = 2 /* checksum is valid */
};

struct rondo_tensor_wire {
    const char *name;
    int delivers; /* 1: rondo_tensor_sent means that the content has landed */
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
    /** Write a content. The response's data stays valid until rondo_tensor_sent. */
    rondo_status (*content)(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response);
    rondo_status (*progress)(struct rondo_tensor_conn *conn, int *moved);
    /** Release this end; nobody touches memory of pulls and responses through it afterwards. Also after an
     * open or connect that failed, or never came. */
    void (*close)(struct rondo_tensor_conn *conn);
};

extern const struct rondo_tensor_wire rondo_tensor_wire_self, rondo_tensor_wire_shm, rondo_tensor_wire_net;

/* ---- what wires report (conn.c, pull.c, publish.c) ---- */

/** The other end's message buffer has come. The wire may reuse the memory on return. */
rondo_status rondo_tensor_message_came(struct rondo_tensor_conn *conn, const uint8_t *data, size_t bytes);
rondo_status rondo_tensor_ack_came(struct rondo_tensor_conn *conn);
/** This end's message buffer may be filled again. */
void rondo_tensor_written(struct rondo_tensor_conn *conn);
/** The wire is done with a response's data. May free it. dropped: it is known that no pull has got it. */
void rondo_tensor_sent(struct rondo_tensor_response *response, int dropped);
/**
 * A content comes: where does it go?
 * @param place  out: bytes of room until rondo_tensor_landed; NULL: nobody wants it, drop it. The lock may be
 *               released meanwhile.
 * @return RONDO_REMOTE_ERROR: no such content was asked for.
 */
rondo_status rondo_tensor_place(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                                void **place);
/** It has landed at its place, or was lost (status, and this thread's sentence). Not for a place of NULL.
 * @return 1: a pull has it; 0: the pull had been given up, or failed. */
int rondo_tensor_landed(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                        rondo_status status);
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
