/*
 * The messages of the tensor protocol, as bytes (docs/tensor-protocol.md). Pure functions: they allocate
 * nothing, and a decoded message points into the buffer that it was decoded from. Numbers are in network byte
 * order. Decoding trusts nothing: every length, type and product is checked, and the error names the field.
 */
#ifndef RONDO_TENSOR_CODEC_H
#define RONDO_TENSOR_CODEC_H

#include "base/status.h"
#include "rondo_tensor.h"

enum {
    RONDO_TENSOR_WIRE_MAGIC = 0x52544e53,
    RONDO_TENSOR_WIRE_VERSION = 6,
    RONDO_TENSOR_LEAST_VERSION = 3,    /* spoken with ends that know no later one */
    RONDO_TENSOR_FRAMES_VERSION = 4,   /* small contents may share a write (wire_write.c) */
    RONDO_TENSOR_NUMBERS_VERSION = 5,  /* requests may have numbers (numbers.h) */
    RONDO_TENSOR_RUNS_VERSION = 6,     /* one message may stand for many, one head of a frame as well */
    RONDO_TENSOR_NUMBERS = 65536,      /* from 0; and no run stands for more messages */
    RONDO_TENSOR_PORTS = 2,            /* of a connection, at most: keys of a place */
    RONDO_TENSOR_ALWAYS_FRAMED = 1024, /* contents of at most so many bytes come in frames, whatever their
                                        * place */
    RONDO_TENSOR_MAX_TEXT = 400,       /* bytes of the text of an error */
    RONDO_TENSOR_BATCH_HEAD = 16,      /* bytes before the first message of a message buffer */
    RONDO_TENSOR_MAX_MESSAGE = 1024    /* no message is longer: a message buffer holds at least one */
};

/* Immediate data of a write. All other values are the index of the request whose content is written, or, from
 * RONDO_TENSOR_FRAMES_VERSION on, those below RONDO_TENSOR_IMM_FRAME. */
#define RONDO_TENSOR_IMM_MESSAGE 0xffffffffu
#define RONDO_TENSOR_IMM_ACK 0xfffffffeu
#define RONDO_TENSOR_IMM_FRAME 0xfffffffdu
#define RONDO_TENSOR_LAST_INDEX 0xfffffffdu

/* Fields of a message besides its head, in this order; bits. */
enum rondo_tensor_field {
    RONDO_TENSOR_F_STEP = 1,
    RONDO_TENSOR_F_SLICE = 2,
    RONDO_TENSOR_F_PLACE = 4, /* remote address and keys, one for each port */
    RONDO_TENSOR_F_META = 8,  /* dead, packed, type, shape, bytes */
    RONDO_TENSOR_F_CHECKSUM = 16,
    RONDO_TENSOR_F_STATUS = 32, /* status and text */
    RONDO_TENSOR_F_RANK = 64,
    RONDO_TENSOR_F_NUMBER = 128,
    RONDO_TENSOR_F_COUNT = 256,
    RONDO_TENSOR_F_NAME = 512
};

/* X(ctx, NAME, type byte, fields) */
/* clang-format off */
#define RONDO_TENSOR_MESSAGE_TABLE(X, ctx)                                                             \
    X(ctx, TENSOR_REQUEST, 1, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_SLICE | RONDO_TENSOR_F_PLACE |      \
                              RONDO_TENSOR_F_META | RONDO_TENSOR_F_NAME)                               \
    X(ctx, META_DATA_RESPONSE, 2, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_META | RONDO_TENSOR_F_CHECKSUM) \
    X(ctx, TENSOR_RE_REQUEST, 3, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_PLACE | RONDO_TENSOR_F_NAME)     \
    X(ctx, ERROR_STATUS, 4, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_STATUS)                               \
    X(ctx, CANCEL, 5, 0)                                                                               \
    X(ctx, DELIVERED, 6, 0)                                                                            \
    X(ctx, LOCATE, 7, RONDO_TENSOR_F_NAME)                                                             \
    X(ctx, LOCATION, 8, RONDO_TENSOR_F_RANK)                                                           \
    X(ctx, ANNOUNCE, 9, RONDO_TENSOR_F_NAME)                                                           \
    X(ctx, CANCELLED, 10, 0)                                                                           \
    X(ctx, NUMBERED_REQUEST, 11, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_SLICE | RONDO_TENSOR_F_PLACE |   \
                                 RONDO_TENSOR_F_META | RONDO_TENSOR_F_NUMBER | RONDO_TENSOR_F_NAME)    \
    X(ctx, REPEAT_REQUEST, 12, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_NUMBER)                            \
    X(ctx, REPEAT_TO_PLACE, 13, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_PLACE | RONDO_TENSOR_F_NUMBER)    \
    X(ctx, REPEAT_RUN, 14, RONDO_TENSOR_F_STEP | RONDO_TENSOR_F_NUMBER | RONDO_TENSOR_F_COUNT)         \
    X(ctx, DELIVERED_RUN, 15, RONDO_TENSOR_F_COUNT)
/* clang-format on */
#define RONDO_ENUM_ROW_(ctx, NAME, type, fields) RONDO_TENSOR_##NAME = type,
enum rondo_tensor_type { RONDO_TENSOR_MESSAGE_TABLE(RONDO_ENUM_ROW_, ) RONDO_TENSOR_NUM_TYPES };
#undef RONDO_ENUM_ROW_

/* Flags of a message. */
enum {
    RONDO_TENSOR_KNOWN = 1,   /* TENSOR_REQUEST: the meta-data is what the receiver has cached */
    RONDO_TENSOR_CHECKED = 2, /* TENSOR_REQUEST: the content's checksum is wanted */
    RONDO_TENSOR_ANSWER = 4,  /* CANCEL: say CANCELLED when nothing will be written any more */
    RONDO_TENSOR_FRAMED = 8,  /* TENSOR_REQUEST, TENSOR_RE_REQUEST: the content comes in a frame, and not to a
                               * place (RONDO_TENSOR_FRAMES_VERSION) */
    RONDO_TENSOR_ALL_FLAGS = 15
};

struct rondo_tensor_meta {
    rondo_dtype type;
    int dead, packed, ndims;
    int64_t shape[RONDO_TENSOR_MAX_DIMS];
    uint64_t bytes;
};

struct rondo_tensor_message {
    enum rondo_tensor_type type;
    uint32_t flags, index, epoch;
    uint64_t step; /* RONDO_TENSOR_LATEST in a request only */
    rondo_tensor_slice slice;
    uint64_t address, checksum;
    uint32_t rkey[RONDO_TENSOR_PORTS];
    struct rondo_tensor_meta meta;
    rondo_status status;
    int32_t rank;
    uint32_t number, count;  /* count: of a run, for as many indices (and numbers) from the first on */
    const char *name, *text; /* not terminated */
    size_t name_bytes, text_bytes;
};

const char *rondo_tensor_type_name(int type); /* "TENSOR_REQUEST"; NULL: none */

/** Write a message. @return its bytes; 0: it has no room in @a room bytes. Text is cut to fit. */
size_t rondo_tensor_encode(const struct rondo_tensor_message *message, uint8_t *out, size_t room);
/** Change the count of a run, a message of so many bytes. */
void rondo_tensor_encode_count(uint8_t *run, size_t bytes, uint32_t count);
/** Read the message that begins at @a in. *used: its bytes. @return RONDO_REMOTE_ERROR: it is not one; the
 * sentence says what is wrong with it, is not logged, and lacks the sender. */
rondo_status rondo_tensor_decode(const uint8_t *in, size_t bytes, struct rondo_tensor_message *message,
                                 size_t *used);

/** Write the head of a message buffer of @a bytes in all. version: of the connection. sequence: counts the
 * sender's buffers from 1. */
void rondo_tensor_batch_encode(uint8_t out[RONDO_TENSOR_BATCH_HEAD], unsigned version, size_t bytes,
                               uint32_t sequence);
/** Check the head. *end: where the last message ends. @return as rondo_tensor_decode. */
rondo_status rondo_tensor_batch_decode(const uint8_t *in, size_t bytes, unsigned version, uint32_t sequence,
                                       size_t *end);

/** Check type, dimensions and bytes of a tensor: the product of the shape must not overflow, and be `bytes`
 * unless the tensor is packed or dead. @return as rondo_tensor_decode. */
rondo_status rondo_tensor_meta_check(const struct rondo_tensor_meta *meta);
int rondo_tensor_meta_same(const struct rondo_tensor_meta *a, const struct rondo_tensor_meta *b);
/** The meta-data of a part of a tensor, and where its bytes begin. @return RONDO_INVALID_ARGUMENT: it lies
 * outside, or the tensor has no such parts (packed). Not logged. */
rondo_status rondo_tensor_meta_slice(const struct rondo_tensor_meta *whole, const rondo_tensor_slice *slice,
                                     struct rondo_tensor_meta *part, uint64_t *offset);

#endif
