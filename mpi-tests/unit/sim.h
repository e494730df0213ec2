/*
 * Simulates schedules without threads or shared memory. Every rank's flows step through coll's tables and
 * coll/chunk.h as an executor would, one slice at a time in an order drawn from a seed, over connections of
 * RONDO_SLOTS slots. It finds deadlocks, steps on connections that do not exist, lengths that differ between
 * sender and receiver, messages overwritten before everyone has read them, elements written twice or not at
 * all, and wrong results.
 *
 * An element is a pair: a sum modulo 2^64 of values that differ for every rank and place, which shows
 * contributions that are missing or counted twice, and a hash that depends on the order of reduction.
 */
#ifndef RONDO_TESTS_SIM_H
#define RONDO_TESTS_SIM_H

#include "coll/algo.h"

/* Which of the flows that may be able to move goes next. */
enum sim_mode {
    SIM_RANDOM,
    SIM_STICKY, /* one flow goes on until it blocks: connections fill up */
    SIM_BURST,
    SIM_SLOW, /* one rank moves only when nobody else does */
    SIM_NUM_MODES
};

struct sim_case {
    enum rondo_coll coll; /* SEND: even ranks send to the next odd one, which receives */
    enum rondo_algo algo;
    int nranks, root; /* root: a rank; ignored without one */
    int nchannels;
    int nnodes; /* 0: one node; else trees over nodes with local[] ranks each, nranks in all */
    const int *local;
    int shuffled; /* seed of a random order of the rings; 0: rank order */
    size_t len;   /* elements of the buffer, or of a rank's block; v-forms use counts instead */
    size_t chunk, slice;
    uint32_t elem_bytes; /* for coll/chunk.h only */
    const size_t *counts, *displs;
    int in_place;
    enum sim_mode mode;
    uint64_t seed;
    const struct rondo_schedule *schedule; /* instead of the table's, or NULL */
    struct rondo_layout *layout;           /* instead of a random one, or NULL */
    /* [from * nranks + to]: adds the elements that pass, by connections or by direct access; or NULL */
    uint64_t *moved;
};

struct sim_result {
    char error[256]; /* "": no error */
    uint64_t digest; /* of all outputs and their orders of reduction */
    uint64_t messages;
};

void sim_run(const struct sim_case *c, struct sim_result *result);

/** A layout of one node with n ranks, seen by rank 0; rings in rank order, or shuffled differently for each
 * channel. */
struct rondo_layout *sim_layout_new(int n, int nchannels, int shuffled);
/** The same over nodes with local[node] ranks, as creation makes it. The seed draws the order in which ranks
 * are dealt to nodes (0: node by node), each node's inner orders and the pattern of its tree. Node i, as
 * layouts number nodes, has net "n<i>:0" for incoming rings and first ranks of trees, and "n<i>:1". */
struct rondo_layout *sim_layout_nodes(const int *local, int nnodes, int nchannels, uint64_t seed);
/** Make the layout another rank's view: `self` fields and trees. */
void sim_layout_view(struct rondo_layout *layout, int rank);
void sim_layout_free(struct rondo_layout *layout);

uint64_t sim_random(uint64_t *state);
/** calloc that ends the program if there is no memory. */
void *sim_zeroed(size_t n, size_t size);

#endif
