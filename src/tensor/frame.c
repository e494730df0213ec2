/* Frames of small contents: frame.h. In network byte order: bytes in use, number, epoch, flags (32 bits
 * each); then for each content a head, its bytes, and the data. */
#include "tensor/frame.h"

#include <endian.h>
#include <string.h>

struct start {
    uint32_t bytes, number, epoch, flags;
};
_Static_assert(sizeof(struct start) == RONDO_TENSOR_FRAME_START, "what a frame begins with");

/* With NEW_STEP the step follows, and with RONDO_TENSOR_CONTENT_CHECKED the checksum, 8 bytes each. */
struct head {
    uint32_t index;
    uint16_t flags, bytes;
};
_Static_assert(sizeof(struct head) == RONDO_TENSOR_FRAME_CONTENT, "what a content begins with");

_Static_assert(RONDO_TENSOR_CONTENT_ACK == 8, "NEW_STEP comes after all flags of contents");
enum {
    NEW_STEP = 16, /* not that of the content before it; of the first one: not 0 */
    FLAGS = RONDO_TENSOR_CONTENT_TELL | RONDO_TENSOR_CONTENT_CHECKED | RONDO_TENSOR_CONTENT_SOON | NEW_STEP
};

void rondo_tensor_frame_begin(struct rondo_tensor_frame *frame, uint8_t *data, size_t room, uint32_t epoch)
{
    *frame = (struct rondo_tensor_frame){
        .data = data, .room = room, .bytes = RONDO_TENSOR_FRAME_START, .epoch = epoch
    };
}

static void put(struct rondo_tensor_frame *frame, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(frame->data + frame->bytes, data, bytes);
    }
    frame->bytes += bytes;
}

int rondo_tensor_frame_add(struct rondo_tensor_frame *frame, const struct rondo_tensor_content *content,
                           const void *data)
{
    unsigned flags = (content->flags & FLAGS) | (content->step != frame->step ? NEW_STEP : 0);
    struct head head = { htobe32(content->index), htobe16((uint16_t)flags),
                         htobe16((uint16_t)content->bytes) };
    uint64_t step = htobe64(content->step), checksum = htobe64(content->checksum);
    size_t before = sizeof(head) + (flags & NEW_STEP ? sizeof(step) : 0) +
                    (flags & RONDO_TENSOR_CONTENT_CHECKED ? sizeof(checksum) : 0);
    if (content->epoch != frame->epoch || content->bytes > UINT16_MAX ||
        before + content->bytes > frame->room - frame->bytes) {
        return 0;
    }
    put(frame, &head, sizeof(head));
    if (flags & NEW_STEP) {
        put(frame, &step, sizeof(step));
        frame->step = content->step;
    }
    if (flags & RONDO_TENSOR_CONTENT_CHECKED) {
        put(frame, &checksum, sizeof(checksum));
    }
    put(frame, data, content->bytes);
    return 1;
}

void rondo_tensor_frame_end(const struct rondo_tensor_frame *frame, uint32_t number)
{
    struct start start = { htobe32((uint32_t)frame->bytes), htobe32(number), htobe32(frame->epoch),
                           htobe32(frame->flags) };
    memcpy(frame->data, &start, sizeof(start));
}

rondo_status rondo_tensor_frame_open(struct rondo_tensor_frame_in *frame, const uint8_t *data, size_t room,
                                     uint32_t number)
{
    struct start start = { 0 };
    if (room >= sizeof(start)) {
        memcpy(&start, data, sizeof(start));
    }
    size_t bytes = be32toh(start.bytes);
    uint32_t flags = be32toh(start.flags);
    if (bytes < sizeof(start) || bytes > room || (flags & ~(uint32_t)RONDO_TENSOR_CONTENT_ACK) != 0) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a frame that says it has %zu bytes and flags %u, in %zu",
                                bytes, flags, room);
    }
    if (be32toh(start.number) != number) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "frame %u, expected %u", be32toh(start.number), number);
    }
    *frame = (struct rondo_tensor_frame_in){ .at = data + sizeof(start),
                                             .left = bytes - sizeof(start),
                                             .epoch = be32toh(start.epoch),
                                             .flags = flags };
    return RONDO_SUCCESS;
}

/* @return 0: so many bytes are not left. */
static int take(struct rondo_tensor_frame_in *frame, void *out, size_t bytes)
{
    if (bytes > frame->left) {
        return 0;
    }
    memcpy(out, frame->at, bytes);
    frame->at += bytes;
    frame->left -= bytes;
    return 1;
}

rondo_status rondo_tensor_frame_next(struct rondo_tensor_frame_in *frame,
                                     struct rondo_tensor_content *content, const uint8_t **data)
{
    struct head head = { 0 };
    uint64_t step = htobe64(frame->step), checksum = 0;
    int whole = take(frame, &head, sizeof(head));
    unsigned flags = be16toh(head.flags);
    whole = whole && (!(flags & NEW_STEP) || take(frame, &step, sizeof(step))) &&
            (!(flags & RONDO_TENSOR_CONTENT_CHECKED) || take(frame, &checksum, sizeof(checksum)));
    frame->step = be64toh(step);
    *content = (struct rondo_tensor_content){ .index = be32toh(head.index),
                                              .epoch = frame->epoch,
                                              .flags = flags & ~(unsigned)NEW_STEP,
                                              .bytes = be16toh(head.bytes),
                                              .step = frame->step,
                                              .checksum = be64toh(checksum) };
    if (!whole || content->bytes > frame->left || (flags & ~(unsigned)FLAGS) != 0 ||
        content->index >= RONDO_TENSOR_IMM_FRAME) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                "a frame with content %08x of %llu bytes and flags %u, "
                                "of which %zu bytes are left",
                                content->index, (unsigned long long)content->bytes, flags, frame->left);
    }
    *data = frame->at;
    frame->at += content->bytes;
    frame->left -= content->bytes;
    return RONDO_SUCCESS;
}
