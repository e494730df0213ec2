/*
 * A work: one channel's share of one call, as plain data that an executor (CPU or kernel) reads.
 * Made by src/call/plan.c from a task and the tuner's choice; interpreted through coll/chunk.h and
 * coll/algo.h only. Offsets, lengths and chunks are in elements.
 */
#ifndef RONDO_COLL_WORK_H
#define RONDO_COLL_WORK_H

#include "base/conn.h"

/* Where a rank stands in its group: all that a schedule may depend on besides k. */
struct rondo_seat {
    int32_t index, nranks; /* position in the channel's ring (or the group's order) */
    int32_t root;          /* position of the root; 0 when there is none */
    int32_t parent;        /* tree: position, -1 at the tree's root */
    int32_t
        child[RONDO_TREE_FAN]; /* tree: positions, -1 when absent; in the order in which they are reduced */
    int32_t nchildren;
    int32_t
        toward; /* tree: neighbour on the way to the root; -1: this is the root, 0: parent, 1 + i: child i */
    int32_t nlevels; /* hierarchical: of groups in which the node's ranks stand (layout/nest.h) */
};

enum rondo_kernel_copies {
    RONDO_KERNEL_NEVER,
    RONDO_KERNEL_ALWAYS,
    RONDO_KERNEL_IN_PLACE /* where the call is in place on all ranks */
};

enum {
    RONDO_PREMUL_DEVICE = 2
}; /* premul of a plan only: scalar is the device address of one, which a launch fetches */

struct rondo_work {
    /* what */
    uint8_t coll, algo, proto, dtype,
        reduce;     /* enum rondo_coll, rondo_algo, rondo_proto, rondo_dtype, rondo_reduce */
    uint8_t premul; /* 1: this rank's input is multiplied by scalar */
    uint8_t divide; /* the finished sum is divided by nranks (avg) */
    uint8_t elem_bytes;
    uint8_t
        cma; /* two-shot, ordinary memory: may the kernel copy between processes? enum rondo_kernel_copies */
    uint8_t stream;                /* the output is larger than the caches: store it past them */
    uint8_t in_region, out_region; /* two-shot on a GPU: where its buffers lie among those that peers reach
                                      (kern/cuda/launch.h); 0: elsewhere */
    uint32_t call_word;            /* of the call, for the first slice on each conn */
    uint64_t seq;                  /* of the collective, for messages; 0: send or recv */
    uint32_t channel;
    /* where */
    const uint8_t *in;
    uint8_t *out;
    const int32_t
        *block_rank; /* block (ring position) -> rank, for all_gather and reduce_scatter; NULL: identity */
    const size_t *counts; /* v-forms: elements of rank r's block; NULL: all `block` */
    const size_t *displs; /* v-forms: where rank r's block begins in the gathered buffer; NULL: r * block */
    size_t
        block; /* elements of one rank's block (all_gather, reduce_scatter), of the whole buffer (others) */
    size_t off, len; /* this channel's range: of the buffer, or of each block */
    size_t chunk;    /* elements that a schedule moves at once */
    uint64_t scalar; /* bits of the pre-multiplier, in the type's own format */
    struct rondo_seat seat;
    const struct rondo_ports *ports;
    struct rondo_mailbox *mailbox; /* one-shot, two-shot (base/mailbox.h) */
    struct rondo_direct *direct;   /* two-shot (kern/direct.h) */
};

#endif
