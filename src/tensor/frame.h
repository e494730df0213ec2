/*
 * Frames of small contents over net devices that write into memory of the other end (wire_write.c,
 * docs/tensor-protocol.md): several contents in one write. Pure functions. Reading trusts nothing, and reads
 * each number once, because the other end may change the frame at any time; a change of data harms nobody.
 */
#ifndef RONDO_TENSOR_FRAME_H
#define RONDO_TENSOR_FRAME_H

#include "tensor/wire.h"

enum {
    RONDO_TENSOR_FRAME_START = 16,       /* bytes before the first content */
    RONDO_TENSOR_FRAME_CONTENT = 8,      /* before each content, */
    RONDO_TENSOR_FRAME_MOST_CONTENT = 24 /* or at most */
};

/* A frame that contents are gathered in. */
struct rondo_tensor_frame {
    uint8_t *data; /* room bytes; NULL: there is no frame */
    size_t room, bytes;
    uint32_t epoch, flags; /* of all contents; RONDO_TENSOR_CONTENT_ACK */
    uint64_t step;         /* of the last content */
    int runs;              /* contents may share a head */
    size_t head;           /* where the last one begins; 0: there is none */
    uint32_t further;      /* contents of it, besides the first */
    uint32_t last_index;
};

/** Begin a frame of contents of this epoch, in room bytes. runs: contents that are alike may share a head
 * (RONDO_TENSOR_RUNS_VERSION). */
void rondo_tensor_frame_begin(struct rondo_tensor_frame *frame, uint8_t *data, size_t room, uint32_t epoch,
                              int runs);
/** Copy a content of content->bytes to the frame. @return 0: it has no room for it, or another epoch. */
int rondo_tensor_frame_add(struct rondo_tensor_frame *frame, const struct rondo_tensor_content *content,
                           const void *data);
/** Write its head. number: counts the sender's frames from 1. */
void rondo_tensor_frame_end(const struct rondo_tensor_frame *frame, uint32_t number);

/* A frame that is read. */
struct rondo_tensor_frame_in {
    const uint8_t *at;
    size_t left; /* bytes from at on */
    uint32_t epoch, flags;
    uint64_t step;
    int runs;
    uint32_t further;                    /* contents of the last head that were not read */
    struct rondo_tensor_content content; /* the last one */
};

/** Read the head of a frame that lies in room bytes. runs: as for rondo_tensor_frame_begin. @return
 * RONDO_REMOTE_ERROR: it is none, or not the frame with this number; the sentence is not logged, and lacks
 * the sender. */
rondo_status rondo_tensor_frame_open(struct rondo_tensor_frame_in *frame, const uint8_t *data, size_t room,
                                     uint32_t number, int runs);
/** Read the next content of a frame of which bytes are left. *data: its content->bytes. @return as
 * rondo_tensor_frame_open. */
rondo_status rondo_tensor_frame_next(struct rondo_tensor_frame_in *frame,
                                     struct rondo_tensor_content *content, const uint8_t **data);

#endif
