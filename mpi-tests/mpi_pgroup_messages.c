/* mpi_pgroup: messages between two ranks and of a rank to itself. */
#include <pthread.h>

#include "mpi_pgroup.h"

/* A ring in which all send first: each pair is made by its first message, and nobody waits in the making. */
void pg_pairs(rondo_pgroup *world)
{
    int n = test.nranks, next = (test.rank + 1) % n, last = (test.rank + n - 1) % n;
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    uint64_t before, after;
    test.what = "pairs";
    MUST(rondo_pgroup_sequence(world, &before));
    for (int round = 0; round < 3; round++) {
        double *out = pg_data(test.rank + 100 * round), *in = pg_data(-1);
        rondo_pgroup_work *work[2];
        MUST(rondo_pgroup_send(world, out, PG_COUNT, RONDO_FLOAT64, next, &opts, &work[0]));
        MUST(rondo_pgroup_recv(world, in, PG_COUNT, RONDO_FLOAT64, last, &opts, &work[1]));
        pg_finish(work[1]);
        pg_finish(work[0]);
        test_check(pg_is(in, last + 100 * round, 1), "the message of rank %d is wrong", last);
        pg_free(out);
        pg_free(in);
    }
    MUST(rondo_pgroup_sequence(world, &after));
    test_check(before == after, "messages were counted as collectives");
}

/* Ranks 0 and 1 only, in calls that wait, while the others are elsewhere. */
static void one_pair(rondo_pgroup *world)
{
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    double *data = pg_data(test.rank);
    test.what = "one pair";
    if (test.nranks > 1 && test.rank == 0) {
        MUST(rondo_pgroup_send(world, data, PG_COUNT, RONDO_FLOAT64, 1, &opts, NULL));
        MUST(rondo_pgroup_recv(world, data, PG_COUNT, RONDO_FLOAT64, 1, &opts, NULL));
        test_check(pg_is(data, 0, 1), "rank 1 sent something else back");
    } else if (test.rank == 1) {
        MUST(rondo_pgroup_recv(world, data, PG_COUNT, RONDO_FLOAT64, 0, &opts, NULL));
        MUST(rondo_pgroup_send(world, data, PG_COUNT, RONDO_FLOAT64, 0, &opts, NULL));
        test_check(pg_is(data, 0, 1), "the message of rank 0 is wrong");
    }
    pg_free(data);
}

/* Rank 0 waits for messages whose sender waits for a later one of rank 0, to a new pair. */
static void many_open(rondo_pgroup *world)
{
    enum { MANY = 66 };
    rondo_pgroup *group = pg_group_new(world, (int[]){ 0, 1, 2 }, 3, NULL);
    rondo_pgroup_work *work[MANY];
    double data[MANY] = { 0 };
    test.what = "many open works";
    for (int i = 0; i < MANY - 1 && test.rank == 0; i++) {
        MUST(rondo_pgroup_recv(group, &data[i], 1, RONDO_FLOAT64, 1, NULL, &work[i]));
    }
    if (test.rank == 0) {
        MUST(rondo_pgroup_send(group, &data[MANY - 1], 1, RONDO_FLOAT64, 2, NULL, &work[MANY - 1]));
    } else {
        MUST(rondo_pgroup_recv(group, data, 1, RONDO_FLOAT64, test.rank == 2 ? 0 : 2, NULL, NULL));
    }
    for (int i = 0; i < MANY && test.rank == 0; i++) {
        pg_finish(work[i]);
    }
    for (int i = 0; i < (test.rank == 0 ? 0 : test.rank == 1 ? MANY - 1 : 1); i++) {
        MUST(rondo_pgroup_send(group, data, 1, RONDO_FLOAT64, test.rank - 1, NULL, NULL));
    }
    MUST(rondo_pgroup_destroy(group));
}

static void to_itself(rondo_pgroup *world)
{
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    double *out[2] = { pg_data(1), pg_data(2) }, *in[2] = { pg_data(-1), pg_data(-1) };
    rondo_pgroup_work *work[3];
    test.what = "to itself";
    MUST(rondo_pgroup_send(world, out[0], PG_COUNT, RONDO_FLOAT64, test.rank, &opts, &work[0]));
    MUST(rondo_pgroup_send(world, out[1], PG_COUNT, RONDO_FLOAT64, test.rank, &opts, &work[1]));
    MUST(rondo_pgroup_recv(world, in[0], PG_COUNT, RONDO_FLOAT64, test.rank, &opts, &work[2]));
    MUST(rondo_pgroup_recv(world, in[1], PG_COUNT, RONDO_FLOAT64, test.rank, &opts, NULL));
    for (int i = 0; i < 3; i++) {
        pg_finish(work[i]);
    }
    for (int i = 0; i < 2; i++) {
        test_check(pg_is(in[i], i + 1, 1), "message %d to itself is wrong", i);
        pg_free(in[i]);
        pg_free(out[i]);
    }
}

/* ---- messages that wait in their calls ---- */

/* A neighbour in a list of ranks. @return -1: it has none. */
static int neighbour(void)
{
    int peer = test.rank ^ 1;
    return peer < test.nranks ? peer : -1;
}

static void *send_in_thread(void *world)
{
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    double *out = pg_data(test.rank);
    MUST(rondo_pgroup_send(world, out, PG_COUNT, RONDO_FLOAT64, neighbour(), &opts, NULL));
    pg_free(out);
    return NULL;
}

/* A receive is under way while its pair's send waits in its call: of this thread, or of another one. Both
 * ranks do so, so that neither may send after it has received. */
static void send_beside_receive(rondo_pgroup *world, int threads)
{
    int peer = neighbour();
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    test.what = threads ? "a thread that sends, one that receives" : "a send beside a receive";
    for (int round = 0; round < 3 && peer >= 0; round++) {
        double *in = pg_data(-1);
        if (threads) {
            pthread_t thread;
            pthread_create(&thread, NULL, send_in_thread, world);
            MUST(rondo_pgroup_recv(world, in, PG_COUNT, RONDO_FLOAT64, peer, &opts, NULL));
            pthread_join(thread, NULL);
        } else {
            rondo_pgroup_work *work;
            MUST(rondo_pgroup_recv(world, in, PG_COUNT, RONDO_FLOAT64, peer, &opts, &work));
            (void)send_in_thread(world);
            pg_finish(work);
        }
        test_check(pg_is(in, peer, 1), "the message of rank %d is wrong", peer);
        pg_free(in);
    }
}

void pg_message_cases(rondo_pgroup *world)
{
    pg_pairs(world);
    one_pair(world);
    if (!pg_on_gpu && test.nranks > 2 && test.rank < 3) {
        many_open(world);
    }
    to_itself(world);
    if (!pg_on_gpu) { /* there no message waits in its call */
        send_beside_receive(world, 0);
        send_beside_receive(world, 1);
    }
}
