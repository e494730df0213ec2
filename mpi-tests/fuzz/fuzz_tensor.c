/* Fuzz the message buffers and the frames of the tensor protocol as other ranks send them. Each message that
 * is taken survives being written and read again, byte for byte, and its meta-data is consistent. */
#include <stdlib.h>
#include <string.h>
#include "tensor/frame.h"
#include "tensor/numbers.h"

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* What a number stands for is what it was given to, and as valid as that. */
static void take_number(struct rondo_tensor_numbers *numbers, const struct rondo_tensor_message *message)
{
    uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE];
    struct rondo_tensor_message request, again;
    size_t used, n;
    if (message->type == RONDO_TENSOR_NUMBERED_REQUEST) {
        require(rondo_tensor_numbers_set(numbers, message) == RONDO_SUCCESS);
        require(rondo_tensor_numbers_get(numbers, message, &request) == RONDO_SUCCESS);
        require(request.name_bytes == message->name_bytes &&
                memcmp(request.name, message->name, message->name_bytes) == 0);
    } else if ((message->type != RONDO_TENSOR_REPEAT_REQUEST &&
                message->type != RONDO_TENSOR_REPEAT_TO_PLACE) ||
               rondo_tensor_numbers_get(numbers, message, &request) != RONDO_SUCCESS) {
        return;
    }
    n = rondo_tensor_encode(&request, bytes, sizeof(bytes));
    require(n > 0 && rondo_tensor_decode(bytes, n, &again, &used) == RONDO_SUCCESS && used == n);
}

static size_t take_message(struct rondo_tensor_numbers *numbers, const uint8_t *data, size_t bytes)
{
    uint8_t copy[RONDO_TENSOR_MAX_MESSAGE];
    struct rondo_tensor_message message;
    struct rondo_tensor_meta part;
    uint64_t offset;
    size_t used = 0;
    if (rondo_tensor_decode(data, bytes, &message, &used) != RONDO_SUCCESS) {
        return 0;
    }
    require(used > 0 && used <= bytes && used <= sizeof(copy));
    require(rondo_tensor_encode(&message, copy, sizeof(copy)) == used && memcmp(copy, data, used) == 0);
    require(message.name_bytes <= RONDO_TENSOR_MAX_KEY && message.text_bytes <= RONDO_TENSOR_MAX_TEXT);
    if (rondo_tensor_meta_slice(&message.meta, &message.slice, &part, &offset) == RONDO_SUCCESS) {
        require(offset <= message.meta.bytes && part.bytes <= message.meta.bytes - offset);
    }
    take_number(numbers, &message);
    return used;
}

/* What is read of a frame lies in it, and makes a frame that is read in the same way. */
static void take_frame(const uint8_t *data, size_t bytes, int runs)
{
    struct rondo_tensor_frame_in in, again;
    struct rondo_tensor_frame out;
    struct rondo_tensor_content content, same;
    const uint8_t *at, *same_at;
    if (rondo_tensor_frame_open(&in, data, bytes, 1, runs) != RONDO_SUCCESS) {
        return;
    }
    size_t room = bytes + RONDO_TENSOR_FRAME_MOST_CONTENT;
    uint8_t *copy = malloc(room);
    require(copy != NULL && in.at + in.left <= data + bytes);
    rondo_tensor_frame_begin(&out, copy, room, in.epoch, runs);
    out.flags = in.flags;
    while (in.left > 0 && rondo_tensor_frame_next(&in, &content, &at) == RONDO_SUCCESS) {
        require(at >= data && at + content.bytes <= data + bytes);
        require(rondo_tensor_frame_add(&out, &content, at));
    }
    rondo_tensor_frame_end(&out, 1);
    require(rondo_tensor_frame_open(&in, data, bytes, 1, runs) == RONDO_SUCCESS);
    require(rondo_tensor_frame_open(&again, copy, out.bytes, 1, runs) == RONDO_SUCCESS &&
            again.flags == in.flags);
    while (again.left > 0) {
        require(rondo_tensor_frame_next(&in, &content, &at) == RONDO_SUCCESS);
        require(rondo_tensor_frame_next(&again, &same, &same_at) == RONDO_SUCCESS);
        require(content.index == same.index && content.epoch == same.epoch && content.flags == same.flags &&
                content.bytes == same.bytes && content.step == same.step &&
                (!(content.flags & RONDO_TENSOR_CONTENT_CHECKED) || content.checksum == same.checksum) &&
                memcmp(at, same_at, content.bytes) == 0);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t head[RONDO_TENSOR_BATCH_HEAD];
    struct rondo_tensor_numbers numbers = { NULL, 0 };
    size_t end, used;
    take_frame(data, bytes, 0);
    take_frame(data, bytes, 1);
    if (bytes >= sizeof(head) &&
        rondo_tensor_batch_decode(data, bytes, RONDO_TENSOR_WIRE_VERSION, 1, &end) == RONDO_SUCCESS) {
        rondo_tensor_batch_encode(head, RONDO_TENSOR_WIRE_VERSION, end, 1);
        require(memcmp(head, data, sizeof(head)) == 0);
        data += sizeof(head);
        bytes = end - sizeof(head);
    }
    for (; bytes > 0; data += used, bytes -= used) {
        used = take_message(&numbers, data, bytes);
        if (used == 0) {
            break;
        }
    }
    rondo_tensor_numbers_release(&numbers);
    return 0;
}
