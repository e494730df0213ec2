/* The parts of comm_perf: what the calls of a communicator's life take, and what a communicator holds. */
#ifndef RONDO_TESTS_COMM_PERF_H
#define RONDO_TESTS_COMM_PERF_H

#include "perf.h"

enum { COMM_PERF_MOST_LIVE = 16, COMM_PERF_SMALL = 8, COMM_PERF_LARGE = 1 << 20 };

struct comm_perf {
    long iters, timeout_s;
    long live[COMM_PERF_MOST_LIVE]; /* numbers of communicators */
    int nlive;
    long most_kib; /* of memory that a communicator and rank may hold; 0: no limit */
    const char *json;
    rondo_config config;
    rondo_comm *parent; /* of all ranks; split and shrunk */
    char *send, *recv, *want;
    size_t wrong; /* elements, over all ranks and calls */
};

/** Prepare an all_reduce of `bytes`: the inputs, and the expected result. */
void comm_perf_prepare(const struct comm_perf *cp, rondo_comm *comm, size_t bytes, struct test_call *call);
/** @return the number of this rank's wrong elements. */
size_t comm_perf_wrong(const struct comm_perf *cp, const struct test_call *call);

/** Time the calls, and print and write their rows. */
void comm_perf_times(struct comm_perf *cp);

/** Measure what communicators hold while they live, for each number in `live`. Print and write the rows.
 * @return an exit status. */
int comm_perf_held(struct comm_perf *cp);

#endif
