/*
 * A communicator's end in simulated time: every node's real state machine (net/control/spread.h: who watches
 * whom, beats, who tells whom) in one process. A node is its leader here; its other ranks read the leader's
 * word in shared memory. What is simulated is the rest: connections, the wire, the clock, the control thread
 * that wakes at its beats and when something comes.
 *
 * A death ends the connections of the dead process: whoever watches it reads that a latency later. A silent
 * rank says nothing more, and its connections stay. An abort by a rank that lives needs no detection.
 */
#ifndef RONDO_SIM_DEATH_SIM_H
#define RONDO_SIM_DEATH_SIM_H

#include <stdint.h>

enum death_sim_kind { DEATH_SIM_ABORT, DEATH_SIM_DEATH, DEATH_SIM_SILENCE };

struct death_sim_config {
    int nranks, nlocal; /* ranks, and of a node */
    enum death_sim_kind kind;
    int rank; /* which; alone on its node, or the death of a node as a whole if nlocal > 1 */
    int also; /* so many nodes, spread over the ring, die with it */
    int64_t latency_ns, beat_ns, dead_ns;
    double bytes_per_ns, loss;
    int64_t resend_ns;
    uint64_t seed;
};

struct death_sim_result {
    int64_t first_ns, last_ns; /* from the event until the first and the last node know */
    int64_t ready_ns;          /* from the start until all connections are open */
    int nknow, nlive;          /* nodes that know, that live */
    int wrong;                 /* nodes that blame a live rank */
    uint64_t messages, bytes;  /* of the reason, all nodes */
    uint64_t most_messages;    /* of one node */
    uint64_t connections;      /* of one node, at most */
    double beats;              /* that a node sends in one interval, on average */
    uint64_t events;
};

void death_sim_run(const struct death_sim_config *config, struct death_sim_result *result);

#endif
