/* The wire over a net device that writes into memory of the other end: what its files share. wire_write.c
 * connects and writes, wire_write_in.c reads what has come. */
#ifndef RONDO_TENSOR_WIRE_WRITE_H
#define RONDO_TENSOR_WIRE_WRITE_H

#include "tensor/frame.h"
#include "tensor/regions.h"

enum {
    RONDO_TENSOR_WRITES_IN = 16, /* writes that the other end may have under way, for each port */
    RONDO_TENSOR_WRITES_OUT = 24 /* of this end */
};
_Static_assert((int)RONDO_TENSOR_WRITES_IN <= (int)RONDO_NET_MAX_REQUESTS &&
                   (int)RONDO_TENSOR_WRITES_OUT <= (int)RONDO_NET_MAX_REQUESTS,
               "a comm has room");

/* What comes with a content; in network byte order. */
struct rondo_tensor_note {
    uint32_t epoch, flags;
    uint64_t bytes, step, checksum;
};
_Static_assert(sizeof(struct rondo_tensor_note) == RONDO_NET_NOTE, "a note is filled");

struct rondo_tensor_sending {
    struct rondo_tensor_sending *next;
    struct rondo_tensor_response *response;
    struct rondo_tensor_content content;
    const uint8_t *data;
    struct rondo_tensor_hold hold[RONDO_TENSOR_PORTS];
    int slot; /* of its data; -1: it lies elsewhere */
    size_t posted, done;
    int begun; /* also without bytes there is one write */
};

/* A content of several pieces, or for a GPU, that comes in. */
struct rondo_tensor_arriving {
    struct rondo_tensor_arriving *next;
    struct rondo_tensor_content content;
    void *place;
    size_t came;
    int flushing; /* all of it has come, to memory of a GPU, and may not be seen there yet */
    int flushed[RONDO_TENSOR_PORTS];
    void *flush[RONDO_TENSOR_PORTS]; /* requests */
};

enum rondo_tensor_flight_kind {
    RONDO_TENSOR_FLIGHT_NONE,
    RONDO_TENSOR_FLIGHT_MESSAGE,
    RONDO_TENSOR_FLIGHT_ACK,
    RONDO_TENSOR_FLIGHT_CONTENT,
    RONDO_TENSOR_FLIGHT_FRAME
};

struct rondo_tensor_flight {
    enum rondo_tensor_flight_kind kind;
    void *request;
    struct rondo_tensor_sending *sending;
    int slot; /* of a frame */
    size_t bytes;
};

struct rondo_tensor_write_port {
    void *out, *in; /* comms */
    int out_connected, in_connected;
    struct rondo_tensor_regions sends, receives;
    void *out_region; /* of link->out */
    struct rondo_tensor_flight flight[RONDO_TENSOR_WRITES_OUT];
    void *word[RONDO_TENSOR_WRITES_IN]; /* requests */
    struct rondo_net_came came[RONDO_TENSOR_WRITES_IN];
    uint32_t allowed, received, written;
    int topping; /* writes are being allowed up to RONDO_TENSOR_WRITES_IN */
};

struct rondo_tensor_write_link {
    const struct rondo_net_device *device;
    int nports;
    struct rondo_tensor_write_port port[RONDO_TENSOR_PORTS];
    size_t eager, slot_bytes;
    uint8_t *out; /* the message buffer, then slots */
    uint8_t *in;  /* the other end's message buffer, then its frames */
    size_t out_bytes, in_bytes;
    void *in_region;
    uint8_t *message;                /* a copy of what came: the other end could change it while it is read */
    struct rondo_net_target inbox;   /* the other end's */
    uint32_t slots;                  /* bits: in use */
    size_t frame_bytes;              /* room of a frame, at both ends; 0: there are none */
    struct rondo_tensor_frame frame; /* that contents are gathered in */
    int frame_slot;
    uint32_t frames_out, frames_in;
    struct rondo_tensor_sending *first, **last; /* contents that are not posted in full */
    struct rondo_tensor_sending *posted;        /* and those that are */
    struct rondo_tensor_arriving *arriving;
};

/** Read what has come on a port. */
rondo_status rondo_tensor_words_progress(struct rondo_tensor_conn *conn, struct rondo_tensor_write_port *port,
                                         int *moved);
/** End contents that GPUs see now. */
rondo_status rondo_tensor_flushes_progress(struct rondo_tensor_conn *conn, int *moved);

#endif
