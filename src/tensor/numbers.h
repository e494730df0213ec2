/*
 * Numbers of requests (docs/tensor-protocol.md, version 5). A puller that repeats a request says its key,
 * slice and meta-data once more with a number, and from then on only the number. The publisher remembers them
 * for each connection, until the puller gives the number to another request.
 */
#ifndef RONDO_TENSOR_NUMBERS_H
#define RONDO_TENSOR_NUMBERS_H

#include "tensor/codec.h"

struct rondo_tensor_numbered; /* what a number stands for */

struct rondo_tensor_numbers { /* zeroed: none */
    struct rondo_tensor_numbered **at;
    size_t n; /* room; numbers that were never given are NULL */
};

/** Remember a NUMBERED_REQUEST under its number. */
rondo_status rondo_tensor_numbers_set(struct rondo_tensor_numbers *numbers,
                                      const struct rondo_tensor_message *message);
/** Make the TENSOR_REQUEST that a REPEAT_REQUEST stands for, maybe in its place; its key lives until the
 * number is given again. @return RONDO_REMOTE_ERROR: the number was never given; the sentence is not logged,
 * and lacks the sender.
 */
rondo_status rondo_tensor_numbers_get(const struct rondo_tensor_numbers *numbers,
                                      const struct rondo_tensor_message *message,
                                      struct rondo_tensor_message *request);
void rondo_tensor_numbers_release(struct rondo_tensor_numbers *numbers);

#endif
