/*
 * The rounds of a group (net/bootstrap/rounds.h) in simulated time: every rank's real state machine in one
 * process. What is simulated is the rest: the wire, the clock, arrivals, deaths and deadlines.
 *
 * A message takes the latency, one more retransmission timeout where it is lost (messages keep their order,
 * as over TCP), and time to leave its sender, which sends one at a time. A pair of ranks has a window of
 * RONDO_WIRE_WINDOW parts; where parts are larger than RONDO_ROUNDS_PART, to have fewer events, their time
 * is that of as many parts as they stand for. A rank that is alive acts at once when something comes or a
 * time is reached; what its own code takes is not counted in simulated time.
 */
#ifndef RONDO_SIM_ROUNDS_SIM_H
#define RONDO_SIM_ROUNDS_SIM_H

#include "net/bootstrap/rounds.h"

enum rounds_sim_fate {
    ROUNDS_SIM_COMES,
    ROUNDS_SIM_ABSENT, /* never comes; its process lives */
    ROUNDS_SIM_DIES,   /* at dies_ns */
    ROUNDS_SIM_STOPS   /* at dies_ns it becomes silent; its process lives */
};

/* What a round is. With ROUNDS_SIM_SHAPE + k it is step k of the broadcast of rank 0's graphs. */
enum { ROUNDS_SIM_ALLGATHER, ROUNDS_SIM_REDUCE, ROUNDS_SIM_RING, ROUNDS_SIM_SHAPE };

struct rounds_sim_config {
    int n, nrounds;
    const size_t *record; /* bytes of each round's record */
    const uint8_t *kind;  /* of each round; NULL: all are allgathers. Those and reductions (sums) carry. */
    size_t part;          /* most bytes of a message; 0: RONDO_ROUNDS_PART */
    int coarse;           /* move tables in 16 parts at most: for large groups */
    int64_t latency_ns, timeout_ns;
    double bytes_per_ns; /* 0: no limit */
    double loss;         /* probability */
    int64_t resend_ns;
    uint64_t seed;
    int carry; /* messages carry data, and tables are checked: n * n records */
};

enum { ROUNDS_SIM_NAMES = 16 };

/* What became of a rank. */
struct rounds_sim_rank {
    /* the caller's: set before the run */
    enum rounds_sim_fate fate;
    int64_t comes_ns, dies_ns;
    /* the result */
    rondo_status status; /* RONDO_IN_PROGRESS: it never came, or died */
    int64_t ended_ns;
    int nmissing, missing[ROUNDS_SIM_NAMES];
    int named;             /* the rank that its error calls dead; -1: none */
    uint64_t sent, bytes;  /* messages of up to RONDO_ROUNDS_PART bytes, and their bytes with heads */
    uint64_t flows, notes; /* pieces of a round and notes that it sent */
};

struct rounds_sim;

struct rounds_sim *rounds_sim_new(const struct rounds_sim_config *config);
struct rounds_sim_rank *rounds_sim_rank(struct rounds_sim *sim, int rank);
/** Give a rank a deadline of its own. */
void rounds_sim_impatient(struct rounds_sim *sim, int rank, int64_t timeout_ns);
/** Run until nothing happens any more. @return the time */
int64_t rounds_sim_run(struct rounds_sim *sim);
uint64_t rounds_sim_events(const struct rounds_sim *sim);
/** @return 0: a table was wrong (carry only). */
int rounds_sim_is_right(const struct rounds_sim *sim);
void rounds_sim_free(struct rounds_sim *sim);

#endif
