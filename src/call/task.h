/* One call of the user, with checked arguments. */
#ifndef RONDO_CALL_TASK_H
#define RONDO_CALL_TASK_H

#include "comm/comm.h"

/* Counts are in elements. */
struct rondo_task {
    struct rondo_ctx *ctx;
    rondo_stream stream;
    const void *send;
    void *recv;
    size_t count;
    const size_t *counts, *displs; /* v-forms; all_to_allv: what is received; gatherv, scatterv: the root's */
    const size_t *send_counts, *send_displs; /* all_to_allv */
    rondo_op op;
    int32_t root;  /* or peer */
    int32_t dtype; /* enum rondo_dtype, as the user passed it */
    uint8_t coll;  /* enum rondo_coll */
    uint8_t
        premul; /* user operation, with its scalar as in a work: it may be destroyed before a group ends */
    uint64_t scalar;
    rondo_comm *shell;            /* in a group: the context may be freed before it ends */
    size_t *owned;                /* in a group: copies that counts and displs point to, freed at its end */
    struct rondo_prof_call *prof; /* call/profile.h; NULL: not profiled */
    struct rondo_prof_group *prof_group; /* the communicator's group, at the call that began it */
};

/** Has only the root counts per rank? Then ranks cannot compare them. */
static inline int rondo_task_has_own_counts(const struct rondo_task *task)
{
    return task->coll == RONDO_COLL_GATHERV || task->coll == RONDO_COLL_SCATTERV;
}
/** Which buffers a call needs on this rank: bit 0 send, bit 1 recv. sent, received: elements in all of its
 * parts. (api.c) */
unsigned rondo_task_needs(const struct rondo_task *task, size_t sent, size_t received);
/** Check the stream of a call. (api.c) */
rondo_status rondo_task_check_stream(const struct rondo_task *task);
/** Hash what all ranks must agree on in this call. */
uint64_t rondo_task_hash(const struct rondo_task *task);
/** Bytes of the larger user buffer of one rank: the size that the cost model takes. */
size_t rondo_task_bytes(const struct rondo_task *task);

#endif
