/* What direct.c (who knows which memory) and exec_cpu_direct.c (who moves what) share. */
#ifndef RONDO_KERN_DIRECT_IMPL_H
#define RONDO_KERN_DIRECT_IMPL_H

#include "coll/step.h"
#include "kern/exec.h"
#include "kern/direct.h"

enum { RONDO_BUFFER_IN, RONDO_BUFFER_OUT, RONDO_NUM_BUFFERS };

/* A buffer as its rank posts it. segment 0: it lies in none. */
struct rondo_place {
    uint64_t at, segment;
};

/* The first words of a post; fits the arrival word's line. For each bit of notes a struct rondo_segment_note
 * follows. */
struct rondo_direct_offer {
    struct rondo_place buffer[RONDO_NUM_BUFFERS];
    uint32_t open, notes; /* bit per buffer: others reach it, or need not; a note follows */
    uint32_t in_place;    /* input and output are one */
};

/* A segment that ranks of the communicator have told of: the same entries on all ranks. */
struct rondo_known {
    uint64_t id; /* 0: free */
    uint64_t owner_base;
    uint8_t *base; /* here; NULL: refused, or its owner has ended it */
    size_t bytes;
    uint64_t used; /* number of the last call that used it */
};

enum rondo_cma { RONDO_CMA_UNKNOWN, RONDO_CMA_WORKS, RONDO_CMA_REFUSED };
enum rondo_reach { RONDO_REACH_MAPPED, RONDO_REACH_CMA };

/* Of one kind of call: how often in a row it was for others, and for how many calls to come nobody is asked.
 */
struct rondo_direct_kind {
    uint16_t refused, wait;
};
enum { RONDO_DIRECT_SIZES = 64, RONDO_DIRECT_HINTS = 64 };

struct rondo_direct {
    int nlocal, index, one_process, serve;
    const struct rondo_nest *nest; /* NULL: no groups */
    int32_t *pids;                 /* NULL: without CMA */
    uint8_t *scratch;              /* of CMA, once it is used: a chunk per rank */
    uint8_t cma, reach; /* enum rondo_cma of this communicator, rondo_reach of the call under way */
    struct rondo_direct_offer *offer;                  /* of each rank, in the call under way */
    struct rondo_segment_note note[RONDO_NUM_BUFFERS]; /* of this rank's */
    uint32_t told;                                     /* what this rank said when more had to be told */
    const uint8_t **in;                                /* where this process reaches them */
    uint8_t **out;
    struct rondo_known *known;
    int nknown;
    int16_t hint[RONDO_DIRECT_HINTS]; /* where in the table a segment was last found, by its id */
    uint64_t ncalls;
    struct rondo_direct_kind kind[RONDO_NUM_COLLS][RONDO_DIRECT_SIZES];
    struct {
        const void *ptr;
        size_t bytes;
        uint64_t epoch, segment;
    } found[RONDO_NUM_BUFFERS]; /* the last answers of rondo_region_find */
};

/** May this kind of call ask now? Counts. */
int rondo_direct_asks(struct rondo_direct_kind *kind);
/** It was asked, and what came of it. */
void rondo_direct_learn(struct rondo_direct_kind *kind, int refused);

/** The segment of [ptr, ptr + bytes), 0: none. Remembers the last answer for this buffer. */
uint64_t rondo_direct_segment(struct rondo_direct *d, int buffer, const void *ptr, size_t bytes);
/** The table's entry, NULL: never told of, or forgotten. */
struct rondo_known *rondo_direct_known(struct rondo_direct *d, uint64_t segment);
/** Every segment that a call names, on all ranks alike, before anything is remembered in it. */
void rondo_direct_touch(struct rondo_direct *d, uint64_t segment);
/** All ranks could (mapped) or somebody could not: from here on it is known. base NULL: not mapped. Evicts
 * the entry that was not used for longest; the same on all ranks. */
void rondo_direct_remember(struct rondo_direct *d, const struct rondo_segment_note *note, uint8_t *base,
                           size_t bytes);
/** Can this process read what was posted of all others? Makes the scratch too. */
int rondo_cma_try(struct rondo_direct *d);
/** Bytes of a rank's part of the scratch. */
size_t rondo_cma_chunk(const struct rondo_direct *d);
/** Copy between here and rank r's memory. @return 0: *status names the rank. */
int rondo_cma_carry(const struct rondo_direct *d, int r, int writes, void *here, const void *there,
                    size_t bytes, rondo_status *status);
/**
 * The flow's block of a reduce where the kernel copies: so that all take equally long, the root, which reads
 * n - 1 inputs, has n elements to the n - 1 of each of the others, which write their results to it besides.
 */
void rondo_cma_span(const struct rondo_work *w, struct rondo_flow *flow);
/** n more elements of the flow's block. @return 0: *status is an error. */
int rondo_cma_move(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                   size_t n, rondo_status *status);
/** Unmap what its owners have ended. */
void rondo_direct_sweep(struct rondo_direct *d);

#endif
