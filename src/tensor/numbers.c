/* Numbers of requests: numbers.h. */
#include "tensor/numbers.h"

#include <string.h>

#include "base/mem.h"

struct rondo_tensor_numbered {
    rondo_tensor_slice slice;
    struct rondo_tensor_meta meta;
    size_t key_bytes;
    char key[];
};

static rondo_status grow(struct rondo_tensor_numbers *numbers, uint32_t number)
{
    struct rondo_tensor_numbered **at;
    size_t n = rondo_max_size(numbers->n, 16);
    while (n <= number) {
        n *= 2;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(at, n, "the numbers of tensor requests"));
    if (numbers->n > 0) {
        memcpy(at, numbers->at, numbers->n * sizeof(*at));
    }
    rondo_free(numbers->at);
    numbers->at = at;
    numbers->n = n;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_numbers_set(struct rondo_tensor_numbers *numbers,
                                      const struct rondo_tensor_message *message)
{
    struct rondo_tensor_numbered *numbered;
    if (message->number >= numbers->n) {
        RONDO_TRY(grow(numbers, message->number));
    }
    RONDO_TRY(rondo_calloc(&numbered, 1, sizeof(*numbered) + message->name_bytes, "a numbered request"));
    numbered->slice = message->slice;
    numbered->meta = message->meta;
    numbered->key_bytes = message->name_bytes;
    memcpy(numbered->key, message->name, message->name_bytes);
    rondo_free(numbers->at[message->number]);
    numbers->at[message->number] = numbered;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_numbers_get(const struct rondo_tensor_numbers *numbers,
                                      const struct rondo_tensor_message *message,
                                      struct rondo_tensor_message *request)
{
    const struct rondo_tensor_numbered *numbered = message->number < numbers->n ? numbers->at[message->number]
                                                                                : NULL;
    if (numbered == NULL) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a repeated request with number %u, which was not given",
                                message->number);
    }
    if (request != message) {
        *request = *message;
    }
    request->type = RONDO_TENSOR_TENSOR_REQUEST;
    request->flags |= RONDO_TENSOR_KNOWN;
    request->number = 0;
    request->slice = numbered->slice;
    request->meta = numbered->meta;
    request->name = numbered->key;
    request->name_bytes = numbered->key_bytes;
    return RONDO_SUCCESS;
}

void rondo_tensor_numbers_release(struct rondo_tensor_numbers *numbers)
{
    for (size_t i = 0; i < numbers->n; i++) {
        rondo_free(numbers->at[i]);
    }
    rondo_free(numbers->at);
    *numbers = (struct rondo_tensor_numbers){ NULL, 0 };
}
