/* The cost of an 8-byte all_reduce without its data movement: checks, group, plan, tuner, executor. Two ranks
 * are threads of a communicator whose executor moves nothing (RONDO_EXEC=null); one of them calls. Prints the
 * median of 9 runs, with quartiles. Speed never decides the exit status. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rondo.h"

enum { RUNS = 9, CALLS = 200000 };

struct caller {
    rondo_local *local;
    int rank;
    rondo_comm *comm;
    rondo_status status;
    pthread_t thread;
};

static void *create(void *arg)
{
    struct caller *c = arg;
    c->status = rondo_comm_create_local(c->local, c->rank, NULL, &c->comm);
    if (c->status != RONDO_SUCCESS) {
        fprintf(stderr, "bench_call: rank %d: %s\n", c->rank, rondo_last_error(NULL));
    }
    return NULL;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static int measure(rondo_comm *comm, double ns[RUNS])
{
    float in[2] = { 1, 2 }, out[2];
    for (int run = -1; run < RUNS; run++) { /* the first run warms up */
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) {
            if (rondo_all_reduce(in, out, 2, RONDO_FLOAT32, RONDO_SUM, comm, NULL) != RONDO_SUCCESS) {
                fprintf(stderr, "bench_call: %s\n", rondo_last_error(comm));
                return 1;
            }
        }
        if (run >= 0) {
            ns[run] = (now_ns() - start) / CALLS;
        }
    }
    qsort(ns, RUNS, sizeof(*ns), by_value);
    return 0;
}

int main(void)
{
    struct caller caller[2] = { { .rank = 0 }, { .rank = 1 } };
    double ns[RUNS];
    rondo_local *local;
    int failed = 0;
    setenv("RONDO_EXEC", "null", 1);
    if (rondo_local_create(2, &local) != RONDO_SUCCESS) {
        fprintf(stderr, "bench_call: %s\n", rondo_last_error(NULL));
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        caller[i].local = local;
        if (pthread_create(&caller[i].thread, NULL, create, &caller[i]) != 0) {
            fprintf(stderr, "bench_call: no thread\n");
            return 1;
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(caller[i].thread, NULL);
        failed |= caller[i].status != RONDO_SUCCESS;
    }
    if (!failed) {
        failed = measure(caller[0].comm, ns);
    }
    if (!failed) {
        printf("an 8-byte all_reduce without data movement: %.1f ns a call (median of %d runs of %d calls; "
               "quartiles %.1f, %.1f)\n",
               ns[RUNS / 2], RUNS, CALLS, ns[RUNS / 4], ns[RUNS - 1 - RUNS / 4]);
    }
    for (int i = 0; i < 2; i++) {
        failed |= caller[i].comm != NULL && rondo_comm_destroy(caller[i].comm) != RONDO_SUCCESS;
    }
    rondo_local_destroy(local);
    return failed;
}
