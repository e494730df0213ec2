/* Fuzz the message buffers of the tensor protocol as other ranks send them. Each message that is taken
 * survives being written and read again, byte for byte, and its meta-data is consistent. */
#include <stdlib.h>
#include <string.h>
#include "tensor/codec.h"

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static size_t take_message(const uint8_t *data, size_t bytes)
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
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t head[RONDO_TENSOR_BATCH_HEAD];
    size_t end, used;
    if (bytes >= sizeof(head) && rondo_tensor_batch_decode(data, bytes, 1, &end) == RONDO_SUCCESS) {
        rondo_tensor_batch_encode(head, end, 1);
        require(memcmp(head, data, sizeof(head)) == 0);
        data += sizeof(head);
        bytes = end - sizeof(head);
    }
    for (; bytes > 0; data += used, bytes -= used) {
        used = take_message(data, bytes);
        if (used == 0) {
            break;
        }
    }
    return 0;
}
