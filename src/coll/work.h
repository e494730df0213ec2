/*
 * A work is one channel's share of one call, as plain data for an executor (CPU or kernel). src/call/plan.c
 * makes it from a task and the tuner's choice; executors read it only through coll/chunk.h and the schedule.
 * Offsets, lengths and chunks are in elements.
 */
#ifndef RONDO_COLL_WORK_H
#define RONDO_COLL_WORK_H

#include "base/conn.h"

/* Where a rank sits: all that a schedule may depend on besides the step. */
struct rondo_seat {
    int32_t index, nranks;         /* position in the channel's ring (or the group's order) */
    int32_t root;                  /* position of the root; 0 when there is none */
    int32_t parent;                /* tree: position, -1 at the tree's root */
    int32_t child[RONDO_TREE_FAN]; /* tree: positions in the order of reduction; -1: none */
    int32_t nchildren;
    int32_t toward;  /* tree: neighbour towards the root. 0: parent; 1 + i: child i; -1: this is the root */
    int32_t nlevels; /* hierarchical: levels of groups on the node (layout/nest.h) */
};

enum rondo_kernel_copies {
    RONDO_KERNEL_NEVER,
    RONDO_KERNEL_ALWAYS,
    RONDO_KERNEL_IN_PLACE, /* if the call is in place on all ranks */
    RONDO_KERNEL_APART     /* unless it is */
};

/* How a result is stored that is not in place, below the size of `stream`. All give the same bits. */
enum rondo_apart {
    RONDO_APART_DEFAULT, /* as is best on most processors of this kind */
    RONDO_APART_STORES,
    RONDO_APART_OVER, /* rondo_reduce_over */
    RONDO_APART_PAST, /* rondo_reduce_past */
    RONDO_APART_COPY  /* copy this rank's input there, then reduce in place */
};

/* premul of a run in a plan: `scalar` is the device address of the scalar, which a launch fetches. */
enum { RONDO_PREMUL_DEVICE = 2 };

/* GPUs: a call of two works (kern/cuda/block_direct.h). The first asks whether the buffers of all ranks can
 * be accessed, and moves the data then. Else the second does, by another algorithm. */
enum rondo_pair {
    RONDO_PAIR_NONE,
    RONDO_PAIR_ASKS,
    RONDO_PAIR_FOLLOWS, /* the second: find out what the first did */
    RONDO_PAIR_DECLINES /* the second alone: this rank's buffers cannot be accessed; tell those that ask */
};

struct rondo_work {
    /* what */
    uint8_t coll, algo, proto, dtype, reduce; /* enum rondo_coll, rondo_algo, rondo_proto, ... */
    uint8_t premul;                           /* 1: multiply this rank's input by scalar */
    uint8_t divide;                           /* 1: divide the finished sum by nranks (avg) */
    uint8_t elem_bytes;
    uint8_t cma : 4;               /* direct access, ordinary memory: enum rondo_kernel_copies */
    uint8_t apart : 4;             /* enum rondo_apart */
    uint8_t stream : 1;            /* 1: store the output past the caches, it is larger than they are */
    uint8_t pair : 2;              /* enum rondo_pair */
    uint8_t in_region, out_region; /* direct access on a GPU: regions of its buffers; 0: none */
    uint32_t call_word;            /* goes with the first slice on each conn */
    uint64_t seq;                  /* number of the collective; 0: a user's send or recv */
    uint32_t channel;
    /* GPU: bit port: there is a connection to receive from; bit RONDO_NUM_PORTS + port: to send to */
    uint32_t wired;
    /* where */
    const uint8_t *in;
    uint8_t *out;
    const int32_t *block_rank; /* BLOCK: rank of each block (ring position); NULL: identity */
    const size_t *counts;      /* v-forms: elements of rank r's block; NULL: `block` for all */
    const size_t *displs;      /* v-forms: start of rank r's block in the gathered buffer; NULL: r * block */
    size_t block;    /* elements of one rank's block (all_gather, reduce_scatter) or of the buffer */
    size_t off, len; /* this channel's range of the buffer, or of each block */
    size_t chunk;    /* elements that a step moves in one loop */
    uint64_t scalar; /* bits of the pre-multiplier, in the type's own format */
    struct rondo_seat seat;
    union {
        const struct rondo_ports *ports;
        /* GPU: the connections of the bits of `wired`, lowest first; of a message: its only one, or NULL */
        struct rondo_conn *conns;
    };
    struct rondo_mailbox *mailbox; /* mailbox and direct access (base/mailbox.h) */
    struct rondo_direct *direct;   /* direct access (kern/direct.h) */
};

#endif
