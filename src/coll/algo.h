/*
 * The table of algorithms, and what each costs: the tuner, rondo-explain and the CPU executor read it. Pure
 * functions.
 *
 * Time of a choice in us: base + hops * latency + bytes / bandwidth, from the layout's model
 * (layout/layout.h). `bytes` is the size of the larger user buffer of one rank (all_gather, reduce_scatter:
 * nranks blocks), as in nccl-tests. A bandwidth of 0 in the model says that the protocol does not work there.
 */
#ifndef RONDO_COLL_ALGO_H
#define RONDO_COLL_ALGO_H

#include "layout/double_tree.h"
#include "layout/layout.h"
#include "coll/step.h"

struct rondo_choice {
    uint8_t algo, proto;
    uint8_t nchannels;
    uint8_t measured; /* 1: `us` comes from layout->measured, 0: from the model */
    double us;
};

struct rondo_flow_schedule {
    uint32_t (*nsteps)(const struct rondo_seat *seat);
    struct rondo_step (*step)(const struct rondo_seat *seat, uint32_t k);
};

/* us; negative when it cannot run on this layout (one-shot across nodes, or larger than the mailbox).
 * mailbox: payload bytes of a place, 0: none */
typedef double rondo_cost_fn(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                             int nchannels, size_t bytes, size_t mailbox);
/* What takes most of that time: "latency", "copy bandwidth", "network latency", "network bandwidth"; on GPU
 * machines those of tuner/cost_gpu.h. */
typedef const char *rondo_limit_fn(const struct rondo_layout *layout, enum rondo_coll coll,
                                   enum rondo_proto proto, int nchannels, size_t bytes);

struct rondo_schedule {
    uint8_t coll, algo;
    uint32_t protos;
    enum rondo_map map;
    const char *name; /* "ALL_REDUCE RING" */
    struct rondo_flow_schedule flow[2];
    rondo_cost_fn *cost_us;
    rondo_limit_fn *limit;
};

extern const struct rondo_schedule rondo_schedules[];
extern const int rondo_num_schedules;

/** The row of the collective that @a coll is scheduled as; NULL when the algorithm does not do it. */
const struct rondo_schedule *rondo_schedule_find(enum rondo_coll coll, enum rondo_algo algo);
/** The first row of the collective that @a coll is scheduled as, of algorithms with this medium; NULL: none. */
const struct rondo_schedule *rondo_schedule_first(enum rondo_coll coll, enum rondo_medium medium);

/* The rows' cost functions (tuner/cost.c). */
#define RONDO_COST_ROW_(ctx, COLL, ALGO, protos, MAP, flow0, flow1, cost) \
    rondo_cost_fn rondo_##cost##_cost_us;                                 \
    rondo_limit_fn rondo_##cost##_limit;
RONDO_SCHEDULE_TABLE(RONDO_COST_ROW_, )
#undef RONDO_COST_ROW_

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

/* Which (collective, algorithm, protocol) the user allows: bit proto of protos[coll][algo]. Says nothing of
 * what exists. */
struct rondo_allowed {
    uint8_t protos[RONDO_NUM_COLLS][RONDO_NUM_ALGOS];
};
/**
 * Parse RONDO_ALGO and RONDO_PROTO (NCCL's syntax and its names of collectives): lists separated by ';', as
 * "ring,tree" or "^oneshot" (all but these). The first list may stand for all collectives; the others,
 * "broadcast:^tree", replace it for one. NULL or empty: all. A list for all collectives leaves those alone
 * that none of its algorithms does ("tree" does no all_gather), and sends and receives, since they have no
 * choice. Algorithms that only NCCL has (nvls, pat, ...) mean nothing; a list of nothing else allows all.
 * @return RONDO_INVALID_ARGUMENT naming the parameter, the word and what is allowed.
 */
rondo_status rondo_allowed_parse(struct rondo_allowed *allowed, const char *algo, const char *proto);

/** Of what reduces, leave only algorithms that do so in rank order (coll/coll.def): RONDO_DETERMINISM=strict.
 */
void rondo_allowed_rank_order(struct rondo_allowed *allowed);

/**
 * The time of everything that may run: for each algorithm and protocol the best number of channels (the least
 * among equals; no fewer than the layout's least_channels, or as many as the algorithm can have) and its
 * time; us < 0: not available, be it that it does not exist, is not allowed or cannot run here. @a allowed
 * NULL: all.
 */
void rondo_cost_table(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                      enum rondo_coll coll, size_t bytes, size_t mailbox,
                      struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS]);
/** Fill in us and measured of a choice whose algorithm, protocol and channels are given; us < 0: it cannot
 * run. @return the model's time, whatever was measured. */
double rondo_choice_time(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes,
                         size_t mailbox, struct rondo_choice *choice);
/** Is x to be preferred? What was measured goes before what is only predicted; then the time counts. us < 0:
 * never, or always. */
int rondo_choice_better(const struct rondo_choice *x, const struct rondo_choice *than);
/** The best of the table; the first among equals. @return RONDO_INVALID_USAGE naming the collective,
 * RONDO_ALGO and RONDO_PROTO when nothing is left. */
rondo_status rondo_cost_choose(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                               enum rondo_coll coll, size_t bytes, size_t mailbox,
                               struct rondo_choice *choice);

/** The same without one algorithm, and where that one opens buffers without all that do; where what is
 * allowed then cannot do it, among all others that can run (rank_order: that reduce in rank order). */
rondo_status rondo_cost_choose_other(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                                     enum rondo_coll coll, size_t bytes, size_t mailbox,
                                     enum rondo_algo without, int rank_order, struct rondo_choice *choice);

/** The time of an algorithm that opens buffers where the kernel copies between processes; the table's row is
 * for buffers that are mapped. */
double rondo_cma_cost_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_coll coll,
                         size_t bytes, int in_place);

/** Elements that a hierarchical work moves at once: what a rank holds of them stays in its caches until it is
 * needed again. */
size_t rondo_hierarchical_chunk(const struct rondo_layout *layout, uint32_t elem_bytes);

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

/** Fill layout->channel[channel].tree from channel 0's ring. O(log n). Several nodes: src/init/layout.c. */
void rondo_tree_fill(struct rondo_layout *layout, int channel);

#endif
