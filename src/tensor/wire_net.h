/*
 * The wire over a net device (net/netdev.h): four comms, two in each direction. Frames carry the immediate
 * word, with the message or a small content behind it; receives for them are always posted. The data of a
 * larger content follows on the second comm, straight from the tensor to its place, in pieces.
 *
 *     publisher                                       puller
 *     frame: immediate = request index, size   --->   a posted frame: where does it go? (rondo_tensor_place)
 *     data, in pieces of 4 MiB                 --->   receives posted at the place
 *
 * Small contents that are written one after the other share a frame, each with a head of its own.
 *
 * Shared by wire_net.c (connecting, frames) and wire_net_data.c.
 */
#ifndef RONDO_TENSOR_WIRE_NET_H
#define RONDO_TENSOR_WIRE_NET_H

#include "tensor/regions.h"

enum {
    RONDO_TENSOR_FRAME_HEAD = 40,
    RONDO_TENSOR_FRAMES_IN = 4,  /* posted receives */
    RONDO_TENSOR_FRAMES_OUT = 8, /* acknowledgements and contents under way, besides the message */
    RONDO_TENSOR_FLIGHTS = 16,   /* pieces of data under way in one direction */
    RONDO_TENSOR_PIECE = 4 << 20
};

/* The comms of a connection, and their order in the record. The other end's are in the order recv, send. */
enum { RONDO_TENSOR_OUT, RONDO_TENSOR_IN, RONDO_TENSOR_DATA_OUT, RONDO_TENSOR_DATA_IN, RONDO_TENSOR_COMMS };

/* One content whose data is being moved. */
struct rondo_tensor_move {
    struct rondo_tensor_move *next;
    struct rondo_tensor_response *response; /* of a publisher */
    struct rondo_tensor_content content;
    uint8_t *data; /* NULL: dropped */
    struct rondo_tensor_hold hold;
    size_t posted, done;
};

struct rondo_tensor_moves {
    struct rondo_tensor_regions regions; /* and the comm */
    int is_send;
    struct rondo_tensor_move *first, **last; /* by the order of their frames */
    struct rondo_tensor_move *posting;       /* the first with pieces to post */
    struct {
        void *request;
        struct rondo_tensor_move *move;
        size_t bytes;
    } flight[RONDO_TENSOR_FLIGHTS];
    uint32_t began, ended;
    uint8_t *drop; /* where dropped pieces go */
    void *drop_region;
};

struct rondo_tensor_frame_out {
    void *request;
    uint8_t *data;
};

struct rondo_tensor_net {
    const struct rondo_net_device *device;
    void *comm[RONDO_TENSOR_COMMS];
    int connected[RONDO_TENSOR_COMMS];
    size_t frame_bytes, eager;
    uint8_t *out, *in; /* frames */
    size_t out_bytes, in_bytes;
    void *out_region, *in_region;
    void *message; /* request of the message; NULL: none */
    struct rondo_tensor_frame_out frame[RONDO_TENSOR_FRAMES_OUT];
    struct rondo_tensor_frame_out *open; /* one that small contents are gathered in; NULL: none */
    size_t gathered;                     /* its bytes */
    void *posted[RONDO_TENSOR_FRAMES_IN];
    uint32_t received;
    struct rondo_tensor_moves sends, receives;
};

/** Get what the data of a content needs. response: of a publisher; else place, or NULL: it is dropped. */
rondo_status rondo_tensor_move_new(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                                   struct rondo_tensor_response *response,
                                   const struct rondo_tensor_content *content, void *place,
                                   struct rondo_tensor_move **move);
void rondo_tensor_move_free(struct rondo_tensor_moves *moves, struct rondo_tensor_move *move);
/** Queue it. */
rondo_status rondo_tensor_move_add(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                                   struct rondo_tensor_move *move);
rondo_status rondo_tensor_moves_progress(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                                         int *moved);
void rondo_tensor_moves_close(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves);

#endif
