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

/** The row of the collective that @a coll is scheduled as; NULL when the algorithm does not do it. */
const struct rondo_schedule *rondo_schedule_find(enum rondo_coll coll, enum rondo_algo algo);
/** The first row of the collective that @a coll is scheduled as, of algorithms with this medium; NULL: none.
 */
const struct rondo_schedule *rondo_schedule_first(enum rondo_coll coll, enum rondo_medium medium);

/* Names, NULL out of range; and back, -1 unknown. Case does not matter, nor underscores in collectives
 * ("AllReduce", as NCCL spells it). */
const char *rondo_coll_name(enum rondo_coll coll);
const char *rondo_algo_name(enum rondo_algo algo);
int rondo_coll_from_name(const char *name);
int rondo_algo_from_name(const char *name);
int rondo_coll_reduces(enum rondo_coll coll);
int rondo_algo_in_rank_order(enum rondo_algo algo);
int rondo_algo_sent_stays(enum rondo_algo algo);
int rondo_coll_has_root(enum rondo_coll coll);
enum rondo_coll rondo_coll_scheduled_as(enum rondo_coll coll);

/**
 * The seat of this rank in a channel of the layout; root: rank (send, recv: the peer), -1: none.
 * Positions: ring, ordered: in the channel's ring; tree: in the tree's order, on several nodes ranks; others:
 * ranks. For trees with a root, `toward` turns the tree so that the root is its root.
 */
void rondo_seat_of(const struct rondo_layout *layout, int channel, enum rondo_algo algo, enum rondo_coll coll,
                   int root, struct rondo_seat *seat);

/** Partners that each rank has conns with for exchanges, on channel 0: on several nodes only, and 0 where
 * there would be more than RONDO_MAX_DIMS. */
int rondo_doubling_dims(const struct rondo_layout *layout);

/*
 * Trees on one node. Channel c has tree c & 1 of two complementary ones over the positions of channel 0's
 * ring: the double trees (layout/double_tree.h), and where ranks stand in groups trees of trees
 * (layout/group_tree.h).
 */

/** Parent (-1: root) and children of position i in tree 0 or 1. */
void rondo_tree_place(const struct rondo_layout *layout, int which, int i, int *parent, int child[2],
                      int *nchildren);

/** Fill layout->channel[channel].tree from channel 0's ring. O(log n). Several nodes: src/comm/layout_fill.c.
 */
void rondo_tree_fill(struct rondo_layout *layout, int channel);

#endif
