/* One call of the user's, checked. */
#ifndef RONDO_CALL_TASK_H
#define RONDO_CALL_TASK_H

#include "comm/comm.h"

/* One API call, checked: what a group collects. Counts in elements. */
struct rondo_task {
    struct rondo_ctx *ctx;
    rondo_stream stream;
    const void *send;
    void *recv;
    size_t count;
    const size_t *counts, *displs;           /* v-forms; of the receiver in all_to_allv */
    const size_t *send_counts, *send_displs; /* all_to_allv */
    rondo_op op;
    int32_t root;  /* or peer */
    int32_t dtype; /* enum rondo_dtype, as the user gave it */
    uint8_t coll;
    uint8_t premul; /* of an operation of the user's, as in a work, with its scalar: the operation may be gone
                       when a group ends */
    uint64_t scalar;
    rondo_comm *shell; /* in a group: the context may be gone at its end */
    size_t *owned;     /* in a group: the copies to which counts and displs point; freed at its end */
};

/** The buffers that this rank must have in a call: bit 0 send, bit 1 recv. sent, received: elements of all of
 * its parts. (api.c) */
unsigned rondo_task_needs(const struct rondo_task *task, size_t sent, size_t received);
/** Hash of what all ranks must agree on in this call. */
uint64_t rondo_task_hash(const struct rondo_task *task);
/** Bytes of the larger user buffer of one rank: what the cost model is asked with. */
size_t rondo_task_bytes(const struct rondo_task *task);

#endif
