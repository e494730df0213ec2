/* The table of schedules, the names and properties of collectives and algorithms, and where a rank sits. Pure
 * functions. */
#ifndef RONDO_COLL_ALGO_H
#define RONDO_COLL_ALGO_H

#include "layout/double_tree.h"
#include "layout/layout.h"
#include "coll/step.h"

struct rondo_flow_schedule {
    uint32_t (*nsteps)(const struct rondo_seat *seat);
    struct rondo_step (*step)(const struct rondo_seat *seat, uint32_t k);
};

struct rondo_schedule {
    uint8_t coll, algo;
    uint32_t protos;
    enum rondo_map map;
    const char *name; /* "ALL_REDUCE RING" */
    struct rondo_flow_schedule flow[2];
};

extern const struct rondo_schedule rondo_schedules[];
extern const int rondo_num_schedules;

/** Find the row of an algorithm for the collective that @a coll is scheduled as. @return NULL: it does not
 * do it. */
const struct rondo_schedule *rondo_schedule_find(enum rondo_coll coll, enum rondo_algo algo);
/** Find the first row for the collective that @a coll is scheduled as whose algorithm has this medium.
 * @return NULL: none. */
const struct rondo_schedule *rondo_schedule_first(enum rondo_coll coll, enum rondo_medium medium);

/* Names; NULL out of range. The reverse ignores case and, in collectives, underscores (NCCL's "AllReduce");
 * -1: unknown. */
const char *rondo_coll_name(enum rondo_coll coll);
const char *rondo_algo_name(enum rondo_algo algo);
int rondo_coll_from_name(const char *name);
int rondo_algo_from_name(const char *name);
/* Columns of coll.def. */
int rondo_coll_reduces(enum rondo_coll coll);
int rondo_coll_has_root(enum rondo_coll coll);
enum rondo_coll rondo_coll_scheduled_as(enum rondo_coll coll);
int rondo_algo_in_rank_order(enum rondo_algo algo);
int rondo_algo_sent_stays(enum rondo_algo algo);

/**
 * Fill in this rank's seat in a channel of the layout. root: a rank (send, recv: the peer); -1: none.
 * Positions follow from the algorithm's seating (coll.def); in a tree over several nodes they are ranks.
 * For a call with a root, `toward` turns the tree so that the root is at its top.
 */
void rondo_seat_of(const struct rondo_layout *layout, int channel, enum rondo_algo algo, enum rondo_coll coll,
                   int root, struct rondo_seat *seat);

/** @return the partners with which each rank has conns for recursive doubling, on channel 0. On several nodes
 * only; 0 if they would be more than RONDO_MAX_DIMS. */
int rondo_doubling_dims(const struct rondo_layout *layout);

/*
 * Trees on one node. Channel c has tree c & 1 of two complementary trees over the positions of channel 0's
 * ring: double trees (layout/double_tree.h), or, where ranks stand in groups, trees of trees
 * (layout/group_tree.h). Trees over several nodes are in the layout (src/comm/layout_fill.c).
 */

/** Find the parent (-1: root) and the children of position i in tree 0 or 1. */
void rondo_tree_place(const struct rondo_layout *layout, int which, int i, int *parent, int child[2],
                      int *nchildren);

/** Fill in layout->channel[channel].tree from channel 0's ring. O(log n). */
void rondo_tree_fill(struct rondo_layout *layout, int channel);

#endif
