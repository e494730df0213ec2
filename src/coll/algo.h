/*
 * The table of algorithms, and what each costs: the tuner, rondo-explain and the CPU executor read it. Pure functions.
 *
 * Time of a choice in us: base + hops * latency + bytes / bandwidth, from the layout's model (base/layout.h). `bytes` is the size of the
 * larger user buffer of one rank (all_gather, reduce_scatter: nranks blocks), as in nccl-tests.
 */
#ifndef RONDO_COLL_ALGO_H
#define RONDO_COLL_ALGO_H

#include "base/layout.h"
#include "coll/step.h"

struct rondo_choice {
    uint8_t algo, proto;
    uint8_t nchannels;
    double us; /* predicted */
};

struct rondo_flow_schedule {
    uint32_t (*nsteps)(const struct rondo_seat *seat);
    struct rondo_step (*step)(const struct rondo_seat *seat, uint32_t k);
};

struct rondo_schedule {
    uint8_t coll, algo;
    uint32_t protos;
    enum rondo_map map;
    const char *name; /* "all_reduce ring" */
    struct rondo_flow_schedule flow[2];
    /* us; negative when it cannot run on this layout (one-shot across nodes, or larger than the board). board: payload bytes of a place, 0: none */
    double (*cost_us)(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto, int nchannels, size_t bytes, size_t board);
    const char *(*limit)(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto, int nchannels, size_t bytes); /* what limits: "latency", "copy bandwidth" */
};

extern const struct rondo_schedule rondo_schedules[];
extern const int rondo_num_schedules;

/** NULL when the algorithm does not do the collective. */
const struct rondo_schedule *rondo_schedule_find(enum rondo_coll coll, enum rondo_algo algo);

/* Names, NULL out of range; and back, -1 unknown. Collectives also by NCCL's spelling ("allreduce"). */
const char *rondo_coll_name(enum rondo_coll coll);
const char *rondo_algo_name(enum rondo_algo algo);
int rondo_coll_from_name(const char *name);
int rondo_algo_from_name(const char *name);
int rondo_coll_reduces(enum rondo_coll coll);
int rondo_coll_has_root(enum rondo_coll coll);
enum rondo_coll rondo_coll_scheduled_as(enum rondo_coll coll);

/* Which (collective, algorithm, protocol) the user allows: bit proto of allowed[coll][algo]. */
struct rondo_allowed {
    uint8_t protos[RONDO_NUM_COLLS][RONDO_NUM_ALGOS];
};
/**
 * Parse RONDO_ALGO and RONDO_PROTO: "ring,tree", "^oneshot", "all_reduce:ring;broadcast:^tree" (NCCL's syntax and its names of collectives).
 * @return RONDO_INVALID_ARGUMENT naming the parameter, the word and what is allowed.
 */
rondo_status rondo_allowed_parse(struct rondo_allowed *allowed, const char *algo, const char *proto);

/** The seat of this rank in a channel of the layout; root: rank, -1: none. For trees with a root, the tree is turned so that the root is its root. */
void rondo_seat_of(const struct rondo_layout *layout, int channel, enum rondo_algo algo, enum rondo_coll coll, int root, struct rondo_seat *seat);

/** Position of rank i's parent and children in one of the two complementary binary trees over n positions (0, 1); tree 1 is the mirror (n even) or shift (n odd) of tree 0. */
void rondo_double_tree(int n, int which, int i, int *parent, int child[2], int *nchildren);

#endif
