/*
 * What the flight recorder costs: an 8-byte all_reduce on four communicators of one process, of which two
 * have RONDO_RECORDER=0 and two 1, in turns of a fraction of a millisecond. Prints percentiles of the turns.
 * record_cost [TURNS [PLUGIN]]; with PLUGIN, what that profiler plugin costs: two communicators have it, two
 * none. One rank a core, and RONDO_SPIN=1000000 where other programs run.
 */
#include <stdlib.h>

#include "base/param.h"
#include "mpi_common.h"

enum { CALLS = 1000, MOST_TURNS = 100000, COMMS = 4 };

static double took[COMMS][MOST_TURNS];

static rondo_comm *create(const char *name, const char *value)
{
    rondo_comm *comm;
    setenv(name, value, 1);
    TEST_MUST(rondo_param_reload(), NULL);
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    return comm;
}

/* @return nanoseconds of a call */
static double turn(rondo_comm *comm)
{
    double in = 1, out = 0, begin;
    TEST_MUST(rondo_barrier(comm, NULL), comm);
    begin = test_now();
    for (int i = 0; i < CALLS; i++) {
        TEST_MUST(rondo_all_reduce(&in, &out, 1, RONDO_FLOAT64, RONDO_SUM, comm, NULL), comm);
    }
    test_check(out == test.nranks, "the sum is %g", out);
    return (test_now() - begin) / CALLS * 1e9;
}

int main(int argc, char **argv)
{
    rondo_comm *comm[COMMS];
    long turns = 1500;
    test_init("record_cost", MPI_THREAD_FUNNELED);
    if (argc > 3 || (argc > 1 && !test_parse_long(argv[1], 1, MOST_TURNS, &turns))) {
        test_die("usage: record_cost [TURNS [PLUGIN]]");
    }
    for (int i = 0; i < COMMS; i++) {
        comm[i] = argc > 2 ? create("RONDO_PROFILER_PLUGIN", i % 2 ? argv[2] : "none")
                           : create("RONDO_RECORDER", i % 2 ? "1" : "0");
    }
    for (long t = 0; t < turns; t++) {
        for (int i = 0; i < COMMS; i++) { /* none always comes first */
            int which = (int)((t + i) % COMMS);
            took[which][t] = turn(comm[which]);
        }
    }
    for (int i = 0; i < COMMS; i++) {
        qsort(took[i], (size_t)turns, sizeof(double), test_compare_times);
        if (test.rank == 0) {
            printf("%s %s: 10 %% of the turns below %.1f ns a call, half below %.1f ns\n",
                   argc > 2 ? "profiler" : "recorder", i % 2 ? "on" : "off", took[i][turns / 10],
                   took[i][turns / 2]);
        }
        TEST_MUST(rondo_comm_destroy(comm[i]), NULL);
    }
    return test_finish();
}
