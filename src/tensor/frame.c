/* Frames of small contents: frame.h. In network byte order: bytes in use, number, epoch, flags (32 bits
 * each); then for each content a head, its bytes, and the data. */
#include "tensor/frame.h"

#include <endian.h>
#include <string.h>

struct start {
    uint32_t bytes, number, epoch, flags;
};
_Static_assert(sizeof(struct start) == RONDO_TENSOR_FRAME_START, "what a frame begins with");

/* With NEW_STEP the step follows, and with RONDO_TENSOR_CONTENT_CHECKED the checksum, 8 bytes each. The upper
 * bits of flags count further contents, of the same flags, bytes and step and the next indices: checksum and
 * data only. */
struct head {
    uint32_t index;
    uint16_t flags, bytes;
};
_Static_assert(sizeof(struct head) == RONDO_TENSOR_FRAME_CONTENT, "what a content begins with");

_Static_assert(RONDO_TENSOR_CONTENT_ACK == 8, "NEW_STEP comes after all flags of contents");
enum {
    NEW_STEP = 16, /* not that of the content before it; of the first one: not 0 */
    FLAGS = RONDO_TENSOR_CONTENT_TELL | RONDO_TENSOR_CONTENT_CHECKED | RONDO_TENSOR_CONTENT_SOON | NEW_STEP,
    ONE_MORE = 32,
    MOST_FURTHER = UINT16_MAX / ONE_MORE
};

void rondo_tensor_frame_begin(struct rondo_tensor_frame *frame, uint8_t *data, size_t room, uint32_t epoch,
                              int runs)
{
    *frame = (struct rondo_tensor_frame){
        .data = data, .room = room, .bytes = RONDO_TENSOR_FRAME_START, .epoch = epoch, .runs = runs
    };
}

static void put(struct rondo_tensor_frame *frame, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(frame->data + frame->bytes, data, bytes);
    }
    frame->bytes += bytes;
}

static size_t checksum_bytes(unsigned flags)
{
    return flags & RONDO_TENSOR_CONTENT_CHECKED ? sizeof(uint64_t) : 0;
}

/* Let a content share the head of the one before. @return 0: it needs one of its own. */
static int share_head(struct rondo_tensor_frame *frame, const struct rondo_tensor_content *content)
{
    struct head head;
    if (!frame->runs || frame->head == 0 || frame->further == MOST_FURTHER ||
        content->index != frame->last_index + 1 || content->step != frame->step) {
        return 0;
    }
    memcpy(&head, frame->data + frame->head, sizeof(head));
    unsigned flags = be16toh(head.flags), mine = content->flags & FLAGS;
    if ((flags & FLAGS & ~(unsigned)NEW_STEP) != mine || be16toh(head.bytes) != content->bytes ||
        content->bytes + checksum_bytes(mine) == 0) { /* a frame has an end because each content has bytes */
        return 0;
    }
    head.flags = htobe16((uint16_t)(flags + ONE_MORE));
    memcpy(frame->data + frame->head, &head, sizeof(head));
    frame->further++;
    return 1;
}

int rondo_tensor_frame_add(struct rondo_tensor_frame *frame, const struct rondo_tensor_content *content,
                           const void *data)
{
    unsigned flags = (content->flags & FLAGS) | (content->step != frame->step ? NEW_STEP : 0);
    struct head head = { htobe32(content->index), htobe16((uint16_t)flags),
                         htobe16((uint16_t)content->bytes) };
    uint64_t step = htobe64(content->step), checksum = htobe64(content->checksum);
    size_t before = sizeof(head) + (flags & NEW_STEP ? sizeof(step) : 0) + checksum_bytes(flags);
    if (content->epoch != frame->epoch || content->bytes > UINT16_MAX ||
        before + content->bytes > frame->room - frame->bytes) {
        return 0;
    }
    if (!share_head(frame, content)) {
        frame->head = frame->bytes;
        frame->further = 0;
        put(frame, &head, sizeof(head));
        if (flags & NEW_STEP) {
            put(frame, &step, sizeof(step));
            frame->step = content->step;
        }
    }
    frame->last_index = content->index;
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
                                     uint32_t number, int runs)
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
                                             .flags = flags,
                                             .runs = runs };
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

/* Read a head: of the next content, and maybe further ones. */
static rondo_status next_head(struct rondo_tensor_frame_in *frame)
{
    struct head head = { 0 };
    uint64_t step = htobe64(frame->step);
    int whole = take(frame, &head, sizeof(head));
    unsigned flags = be16toh(head.flags), further = frame->runs ? flags / ONE_MORE : 0;
    size_t each = be16toh(head.bytes) + checksum_bytes(flags);
    flags -= further * ONE_MORE;
    whole = whole && (!(flags & NEW_STEP) || take(frame, &step, sizeof(step)));
    frame->step = be64toh(step);
    frame->further = further;
    frame->content = (struct rondo_tensor_content){ .index = be32toh(head.index),
                                                    .epoch = frame->epoch,
                                                    .flags = flags & ~(unsigned)NEW_STEP,
                                                    .bytes = be16toh(head.bytes),
                                                    .step = frame->step };
    if (!whole || (1 + (size_t)further) * each > frame->left || (further > 0 && each == 0) ||
        (flags & ~(unsigned)FLAGS) != 0 || frame->content.index >= RONDO_TENSOR_IMM_FRAME - further) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                "a frame with content %08x of %u bytes and flags %u, and %u more, "
                                "of which %zu bytes are left",
                                frame->content.index, be16toh(head.bytes), flags, further, frame->left);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_frame_next(struct rondo_tensor_frame_in *frame,
                                     struct rondo_tensor_content *content, const uint8_t **data)
{
    uint64_t checksum = 0;
    if (frame->further > 0) {
        frame->further--;
        frame->content.index++;
    } else {
        RONDO_TRY(next_head(frame));
    }
    *content = frame->content;
    (void)take(frame, &checksum, checksum_bytes(content->flags)); /* the head's bytes were there */
    content->checksum = be64toh(checksum);
    *data = frame->at;
    frame->at += content->bytes;
    frame->left -= content->bytes;
    return RONDO_SUCCESS;
}
