/* Shared by direct.c (which memory is known) and exec_cpu_direct.c (the moves). */
#ifndef RONDO_KERN_DIRECT_IMPL_H
#define RONDO_KERN_DIRECT_IMPL_H

#include "coll/step.h"
#include "kern/exec.h"
#include "kern/direct.h"

enum { RONDO_BUFFER_IN, RONDO_BUFFER_OUT, RONDO_NUM_BUFFERS };

/* Where a rank's buffer is. segment 0: in none. */
struct rondo_place {
    uint64_t at, segment;
};

/* The first words of OPEN's message; they fit the arrival word's line. A struct rondo_segment_note follows
 * for each bit of `notes`. */
struct rondo_direct_offer {
    struct rondo_place buffer[RONDO_NUM_BUFFERS];
    uint32_t open, notes; /* bit per buffer: accessible or not needed; a note follows */
    uint32_t in_place;    /* input and output are the same */
    uint64_t displs; /* reduce_scatterv: hash of the displacements; equal on all ranks: this rank reads the
                             others' inputs at its own */
};

/* A segment in the table, which has the same entries on all ranks. */
struct rondo_known {
    uint64_t id; /* 0: free */
    uint64_t owner_base;
    uint8_t *base; /* mapped here; NULL: refused, or its owner has freed it */
    size_t bytes;
    uint64_t used; /* number of the last call that used it */
};

enum rondo_cma { RONDO_CMA_UNKNOWN, RONDO_CMA_WORKS, RONDO_CMA_REFUSED };
enum rondo_reach { RONDO_REACH_MAPPED, RONDO_REACH_CMA };

/* For a kind of call: refusals in a row, and calls to come that do not ask. */
struct rondo_direct_kind {
    uint16_t refused, wait;
};
enum { RONDO_DIRECT_SIZES = 64, RONDO_DIRECT_HINTS = 64 };

struct rondo_direct {
    int nlocal, index, one_process, serve;
    const struct rondo_nest *nest; /* NULL: no groups */
    int32_t *pids;                 /* NULL: without CMA */
    uint8_t *scratch;              /* for CMA, from its first use: a chunk per rank */
    uint8_t cma, reach;            /* enum rondo_cma of this communicator, rondo_reach of the current call */
    struct rondo_direct_offer *offer;                  /* each rank's, in the current call */
    struct rondo_segment_note note[RONDO_NUM_BUFFERS]; /* this rank's */
    uint32_t could;                                    /* this rank's answer in OPEN's second round */
    const uint8_t **in;                                /* every rank's buffers, as addresses here */
    uint8_t **out;
    struct rondo_known *known;
    int nknown;
    int16_t hint[RONDO_DIRECT_HINTS]; /* index in `known` where a segment was last found, by its id */
    uint64_t ncalls;
    struct rondo_direct_kind kind[RONDO_NUM_COLLS][RONDO_DIRECT_SIZES];
    struct {
        const void *ptr;
        size_t bytes;
        uint64_t epoch, segment;
    } found[RONDO_NUM_BUFFERS]; /* latest answers of rondo_region_find */
};

/** May a call of this kind ask now? Advances a counter. */
int rondo_direct_asks(struct rondo_direct_kind *kind);
/** Record the answer. */
void rondo_direct_learn(struct rondo_direct_kind *kind, int refused);

/** The segment of [ptr, ptr + bytes), or 0. Remembers the latest answer for this buffer. */
uint64_t rondo_direct_segment(struct rondo_direct *d, int buffer, const void *ptr, size_t bytes);
/** The segment's entry; NULL: unknown or evicted. */
struct rondo_known *rondo_direct_known(struct rondo_direct *d, uint64_t segment);
/** Mark a segment that the current call names as used. All ranks must touch all of a call's segments before
 * they remember new ones. */
void rondo_direct_touch(struct rondo_direct *d, uint64_t segment);
/** Enter a segment: mapped by all ranks, or by some not (base NULL). Evicts the least recently used entry,
 * the same one on all ranks. */
void rondo_direct_remember(struct rondo_direct *d, const struct rondo_segment_note *note, uint8_t *base,
                           size_t bytes);
/** Can this process read one byte of every rank's buffers? Allocates the scratch. */
int rondo_cma_try(struct rondo_direct *d);
/** Bytes of a rank's part of the scratch. */
size_t rondo_cma_chunk(const struct rondo_direct *d);
/** Copy between `here` and `there` in rank r's memory. @return 0: *status names the rank. */
int rondo_cma_carry(const struct rondo_direct *d, int r, int writes, void *here, const void *there,
                    size_t bytes, rondo_status *status);
/** Set the flow's block of a CMA reduce so that all ranks take equally long. For each n elements of the root,
 * which reads n - 1 inputs, every other rank has n - 1, which it also writes to the root. */
void rondo_cma_span(const struct rondo_work *w, struct rondo_flow *flow);
/** Move n more elements of the flow's block. @return 0: *status is an error. */
int rondo_cma_move(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                   size_t n, rondo_status *status);
/** Unmap segments that their owners have freed. */
void rondo_direct_sweep(struct rondo_direct *d);

#endif
