/*
 * Runs schedules without threads or memory shared by anyone: every rank's flows step through coll/'s table
 * and coll/chunk.h as an executor would, one slice at a time in an order drawn from a seed, over conns of
 * RONDO_SLOTS slots. Finds deadlocks, steps on conns that do not exist, lengths that differ between sender
 * and receiver, posts overwritten before everyone has read them, elements that are written twice or not at
 * all, and wrong results.
 *
 * An element is a pair: a sum modulo 2^64 of values that differ for every rank and place, in which a
 * contribution that is missing or counted twice shows, and a hash that depends on the order of reduction.
 */
#ifndef RONDO_TESTS_SIM_H
#define RONDO_TESTS_SIM_H

#include "coll/algo.h"

/* Which flow that may be able to move goes next. */
enum sim_mode {
    SIM_RANDOM,
    SIM_STICKY, /* one flow as far as it goes: conns fill up */
    SIM_BURST,
    SIM_SLOW, /* one rank moves only when nobody else does */
    SIM_NUM_MODES
};

struct sim_case {
    enum rondo_coll coll; /* SEND: even ranks send to the next odd one, which receives */
    enum rondo_algo algo;
    int nranks, root; /* root: rank; not looked at without one */
    int nchannels;
    int nnodes; /* 0: one node; else trees over nodes with local[] ranks each, nranks in all */
    const int *local;
    int shuffled; /* rings in an order drawn from this seed; 0: rank order */
    size_t len;   /* elements of the buffer, or of a rank's block; v-forms: counts instead */
    size_t chunk, slice;
    uint32_t elem_bytes; /* for coll/chunk.h only */
    const size_t *counts, *displs;
    int in_place;
    enum sim_mode mode;
    uint64_t seed;
    const struct rondo_schedule *schedule; /* instead of the table's; NULL */
    struct rondo_layout *layout;           /* instead of one that is drawn; NULL */
    uint64_t *moved; /* [from * nranks + to]: elements that pass, by conns or from and to the other's memory,
                        are added; NULL */
};

struct sim_result {
    char error[256]; /* "": all is well */
    uint64_t digest; /* of all outputs, and the order in which they were reduced */
    uint64_t messages;
};

void sim_run(const struct sim_case *c, struct sim_result *result);

/** A layout of one node with n ranks, seen by rank 0; rings in rank order or shuffled, each channel
 * differently. */
struct rondo_layout *sim_layout_new(int n, int nchannels, int shuffled);
/**
 * The same over nodes with local[node] ranks, dealt to them in an order drawn from the seed (0: one node
 * after the other), as creation makes it: each node's orders inside, and the pattern of its tree, are drawn
 * too. Node i's nets are called "n<i>:0", where rings come in and first ranks of trees are, and "n<i>:1"; i
 * as layouts number nodes.
 */
struct rondo_layout *sim_layout_nodes(const int *local, int nnodes, int nchannels, uint64_t seed);
/** See it from another rank: `self` fields and trees. */
void sim_layout_turn(struct rondo_layout *layout, int rank);
void sim_layout_free(struct rondo_layout *layout);

uint64_t sim_random(uint64_t *state);
/** calloc that ends the program when there is no memory. */
void *sim_zeroed(size_t n, size_t size);

#endif
