/*
 * mpi_pgroup: process groups as training frameworks use them, over rondo_pgroup.h and, call for call as
 * PyTorch's ProcessGroupNCCL, over the NCCL face: communicators made at the first call, pairs, messages to
 * itself, batches, splits, groups in different orders, time limits, abort and destroy from the watchdog.
 *
 *   mpirun -n N mpi_pgroup [--gpu [--streams]]      --streams: only what is about the order in streams
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi_pgroup.h"

int pg_on_gpu;
rondo_stream pg_stream;

/* ---- data ---- */

double *pg_data(double base)
{
    double *data = malloc(PG_COUNT * sizeof(*data)), *there;
    for (int i = 0; i < PG_COUNT; i++) {
        data[i] = base + i;
    }
    if (!pg_on_gpu) {
        return data;
    }
    there = test_device_alloc(PG_COUNT * sizeof(*data));
    test_device_copy(there, data, PG_COUNT * sizeof(*data));
    free(data);
    return there;
}

int pg_is(double *data, double base, double step)
{
    double *here = data;
    int wrong = 0;
    if (pg_on_gpu) {
        here = malloc(PG_COUNT * sizeof(*here));
        test_device_wait(pg_stream);
        test_device_copy(here, data, PG_COUNT * sizeof(*here));
    }
    for (int i = 0; i < PG_COUNT; i++) {
        wrong += here[i] != base + i * step;
    }
    if (pg_on_gpu) {
        free(here);
    }
    return wrong == 0;
}

void pg_free(double *data)
{
    if (pg_on_gpu) {
        test_device_free(data);
    } else {
        free(data);
    }
}

/* ---- calls ---- */

rondo_pgroup_opts pg_opts(int64_t timeout_ms)
{
    rondo_pgroup_opts opts = RONDO_PGROUP_OPTS_INIT;
    opts.stream = pg_stream;
    opts.timeout_ms = timeout_ms;
    return opts;
}

static rondo_status sum_start_on(rondo_pgroup *group, double *data, rondo_stream stream,
                                 rondo_pgroup_work **work)
{
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    opts.stream = stream;
    return rondo_pgroup_all_reduce(group, data, data, PG_COUNT, RONDO_FLOAT64, RONDO_SUM, &opts, work);
}

rondo_status pg_sum_start(rondo_pgroup *group, double *data, rondo_pgroup_work **work)
{
    return sum_start_on(group, data, pg_stream, work);
}

void pg_finish(rondo_pgroup_work *work)
{
    MUST(rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT));
    MUST(rondo_pgroup_work_free(work));
}

/* A sum over a group, whose ranks contribute their numbers in it. */
void pg_check_sum(rondo_pgroup *group)
{
    int rank, n;
    double *data;
    rondo_pgroup_work *work;
    MUST(rondo_pgroup_rank(group, &rank));
    MUST(rondo_pgroup_count(group, &n));
    data = pg_data(rank);
    MUST(pg_sum_start(group, data, &work));
    pg_finish(work);
    test_check(pg_is(data, n * (n - 1) / 2.0, n), "a sum of %d ranks is wrong", n);
    pg_free(data);
}

rondo_pgroup *pg_group_new(rondo_pgroup *parent, const int *ranks, int n, const rondo_pgroup_config *config)
{
    rondo_pgroup *group;
    MUST(rondo_pgroup_new(parent, ranks, n, config, &group));
    return group;
}

/* ---- cases ---- */

static void works(rondo_pgroup *world)
{
    enum { WORKS = 20 };
    rondo_pgroup_work *work[WORKS];
    double *data[WORKS];
    uint64_t before, after;
    char text[100];
    int done = 0, n = test.nranks;
    test.what = "works";
    pg_check_sum(world);
    MUST(rondo_pgroup_sequence(world, &before));
    for (int i = 0; i < WORKS; i++) {
        data[i] = pg_data(i + test.rank);
        MUST(pg_sum_start(world, data[i], &work[i]));
    }
    MUST(rondo_pgroup_work_text(work[3], text, sizeof(text)));
    test_check(strncmp(text, "all_reduce #5 (3000 ", 20) == 0 && strstr(text, "of group \"world\"") != NULL,
               "the text is %s", text);
    while (!done) { /* the last first */
        MUST(rondo_pgroup_work_test(work[WORKS - 1], &done));
        sched_yield();
    }
    for (int i = 0; i < WORKS; i++) {
        pg_finish(work[i]);
        test_check(pg_is(data[i], i * n + n * (n - 1) / 2.0, n), "sum %d is wrong", i);
        pg_free(data[i]);
    }
    MUST(rondo_pgroup_sequence(world, &after));
    test_check(before == 1 && after == 1 + WORKS, "%d collectives counted", (int)after);
}

/* How long a thread computes while it waits for a rank that comes late. */
static double wait_for_late(rondo_pgroup *world, rondo_status (*wait)(rondo_pgroup_work *, int64_t))
{
    double *data = pg_data(test.rank);
    struct timespec begin, end;
    rondo_pgroup_work *work;
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == test.nranks - 1) {
        usleep(100000);
    }
    MUST(pg_sum_start(world, data, &work));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    MUST(wait(work, RONDO_CONFIG_DEFAULT));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    MUST(rondo_pgroup_work_free(work));
    pg_free(data);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

/* One that waits aside leaves the core to others. */
static void aside(rondo_pgroup *world)
{
    double *data = pg_data(test.rank), at_once, slept;
    rondo_pgroup_work *work;
    test.what = "aside";
    at_once = wait_for_late(world, rondo_pgroup_work_wait);
    slept = wait_for_late(world, rondo_pgroup_work_wait_aside);
    test_check(test.rank == test.nranks - 1 || pg_on_gpu || slept < 0.012 || 2 * slept < at_once,
               "a thread computed %.1f ms while it waited aside for 100, and %.1f otherwise", 1e3 * slept,
               1e3 * at_once);
    MUST(pg_sum_start(world, data, &work));
    test_check(rondo_pgroup_work_wait_aside(work, -7) == RONDO_INVALID_ARGUMENT, "a limit of -7 ms is taken");
    while (rondo_pgroup_work_wait_aside(work, 10) == RONDO_TIMEOUT) {
    }
    MUST(rondo_pgroup_work_free(work));
    test_check(pg_is(data, test.nranks * (test.nranks - 1) / 2.0, test.nranks), "the sum is wrong");
    pg_free(data);
}

/* Given up at once, and finished by destroy. */
static void freed_works(rondo_pgroup *world)
{
    double *data = pg_data(0);
    int *all = malloc(sizeof(*all) * (size_t)test.nranks);
    rondo_pgroup_work *work;
    rondo_pgroup *group;
    test.what = "freed works";
    for (int r = 0; r < test.nranks; r++) {
        all[r] = r;
    }
    group = pg_group_new(world, all, test.nranks, NULL);
    MUST(pg_sum_start(group, data, &work));
    MUST(rondo_pgroup_work_free(work));
    MUST(rondo_pgroup_destroy(group));
    test_check(pg_is(data, 0, test.nranks), "a sum that nobody waited for is wrong");
    pg_free(data);
    free(all);
}

/* Halves at once, then pairs of neighbours that overlap; only members call. */
static void groups(rondo_pgroup *world)
{
    int ranks[TEST_MAX_RANKS], n = 0;
    rondo_pgroup *group, *left = NULL, *right = NULL;
    test.what = "groups";
    for (int r = test.rank % 2; r < test.nranks; r += 2) {
        ranks[n++] = r;
    }
    group = pg_group_new(world, ranks, n, NULL);
    pg_check_sum(group);
    pg_check_sum(group);
    MUST(rondo_pgroup_destroy(group));
    if (test.rank > 0) {
        left = pg_group_new(world, (int[]){ test.rank, test.rank - 1 }, 2, NULL); /* this rank is the first */
    }
    if (test.rank + 1 < test.nranks) {
        right = pg_group_new(world, (int[]){ test.rank + 1, test.rank }, 2, NULL);
    }
    if (left != NULL) {
        pg_check_sum(left);
        MUST(rondo_pgroup_destroy(left));
    }
    if (right != NULL) {
        pg_check_sum(right);
        MUST(rondo_pgroup_destroy(right));
    }
}

/* Two groups of the same ranks, used in another order by each rank: on a GPU in two streams, as the kernels
 * of one run one after the other. */
static void orders(rondo_pgroup *world)
{
    int *all = malloc(sizeof(*all) * (size_t)test.nranks), first = test.rank % 2;
    double *data[2] = { pg_data(0), pg_data(10) };
    rondo_pgroup_work *work[2];
    rondo_pgroup *group[2];
    rondo_stream other = pg_on_gpu ? test_device_stream_new() : NULL;
    test.what = "orders";
    for (int r = 0; r < test.nranks; r++) {
        all[r] = r;
    }
    for (int g = 0; g < 2; g++) {
        group[g] = pg_group_new(world, all, test.nranks, NULL);
    }
    for (int i = 0; i < 2; i++) {
        int g = i ^ first;
        MUST(sum_start_on(group[g], data[g], g == 0 ? pg_stream : other, &work[g]));
    }
    for (int i = 0; i < 2; i++) {
        int g = i ^ first;
        pg_finish(work[g]);
        test_check(pg_is(data[g], 10.0 * g * test.nranks, test.nranks), "sum of group %d is wrong", g);
        MUST(rondo_pgroup_destroy(group[g]));
        pg_free(data[g]);
    }
    if (pg_on_gpu) {
        test_device_stream_free(other);
    }
    free(all);
}

/* The calls of a stream run in their order, though the first one's communicator waits for rank 2. */
static void stream_order(rondo_pgroup *world)
{
    static const int members[2][2] = { { 0, 2 }, { 0, 1 } };
    double *data = pg_data(test.rank);
    rondo_pgroup_work *work[2] = { NULL, NULL };
    rondo_pgroup *group[2] = { NULL, NULL };
    test.what = "stream order";
    for (int i = 0; i < 2; i++) {
        if (test.rank == members[i][0] || test.rank == members[i][1]) {
            group[i] = pg_group_new(world, members[i], 2, NULL);
        }
    }
    if (group[1] != NULL) {
        pg_check_sum(group[1]); /* its communicator is there */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == 2) {
        usleep(100000);
    }
    for (int i = 0; i < 2; i++) {
        if (group[i] != NULL) {
            MUST(pg_sum_start(group[i], data, &work[i]));
        }
    }
    for (int i = 1; i >= 0; i--) { /* the later one first */
        if (group[i] != NULL) {
            pg_finish(work[i]);
        }
    }
    if (test.rank < 3) {
        test_check(pg_is(data, test.rank == 2 ? 2 : 3, test.rank == 2 ? 2 : 3),
                   "the second sum did not take the first one's result");
    }
    for (int i = 0; i < 2; i++) {
        if (group[i] != NULL) {
            MUST(rondo_pgroup_destroy(group[i]));
        }
    }
    pg_free(data);
}

/* Without a work, a call on a GPU is in its stream when it returns, also the first one of a communicator. */
static void first_calls(rondo_pgroup *world)
{
    int both[] = { 0, 1 }, n = test.nranks < 2 ? 1 : 2;
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    rondo_pgroup *fresh;
    double *data = pg_data(test.rank);
    test.what = "first calls";
    if (test.rank < n) {
        fresh = pg_group_new(world, both, n, NULL);
        MUST(rondo_pgroup_all_reduce(fresh, data, data, PG_COUNT, RONDO_FLOAT64, RONDO_SUM, &opts, NULL));
        test_check(pg_is(data, n == 2, n), "the first sum is wrong");
        if (n == 2 && test.rank == 0) {
            MUST(rondo_pgroup_send(fresh, data, PG_COUNT, RONDO_FLOAT64, 1, &opts, NULL));
        } else if (n == 2) {
            MUST(rondo_pgroup_recv(fresh, data, PG_COUNT, RONDO_FLOAT64, 0, &opts, NULL));
        }
        test_check(pg_is(data, n == 2, n), "the first message is wrong");
        MUST(rondo_pgroup_destroy(fresh));
    }
    pg_free(data);
}

static void batches(rondo_pgroup *world)
{
    int n = test.nranks, next = (test.rank + 1) % n, last = (test.rank + n - 1) % n;
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    double *sum[3], *out = pg_data(test.rank), *in = pg_data(-1);
    rondo_pgroup_work *work;
    uint64_t before, after;
    test.what = "batches";
    MUST(rondo_pgroup_sequence(world, &before));
    MUST(rondo_pgroup_batch_start(world, &opts));
    for (int i = 0; i < 3; i++) {
        sum[i] = pg_data(i);
        MUST(rondo_pgroup_all_reduce(world, sum[i], sum[i], PG_COUNT, RONDO_FLOAT64, RONDO_SUM, NULL, NULL));
    }
    MUST(rondo_pgroup_send(world, out, PG_COUNT, RONDO_FLOAT64, next, NULL, NULL));
    MUST(rondo_pgroup_recv(world, in, PG_COUNT, RONDO_FLOAT64, last, NULL, NULL));
    MUST(rondo_pgroup_batch_end(world, &work));
    pg_finish(work);
    test_check(pg_is(in, last, 1), "the batch's message is wrong");
    for (int i = 0; i < 3; i++) {
        test_check(pg_is(sum[i], i * n, n), "sum %d of the batch is wrong", i);
        pg_free(sum[i]);
    }
    MUST(rondo_pgroup_sequence(world, &after));
    test_check(after == before + 1, "a batch counts as %d", (int)(after - before));
    MUST(rondo_pgroup_batch_start(world, &opts));
    test_check(rondo_pgroup_send(world, out, PG_COUNT, RONDO_FLOAT64, n, NULL, NULL) ==
                   RONDO_INVALID_ARGUMENT,
               "a batch took a rank that there is not");
    MUST(rondo_pgroup_recv(world, in, PG_COUNT, RONDO_FLOAT64, last, NULL, NULL));
    test_check(rondo_pgroup_batch_end(world, &work) == RONDO_INVALID_ARGUMENT,
               "a batch ran without a call that was refused");
    MUST(rondo_pgroup_batch_start(world, &opts));
    test_check(rondo_pgroup_send(world, out, 1, RONDO_FLOAT64, next, &opts, NULL) == RONDO_INVALID_USAGE,
               "a call of a batch had settings");
    test_check(rondo_pgroup_batch_end(world, &work) == RONDO_INVALID_USAGE,
               "a batch with a refused call ran");
    pg_check_sum(world); /* and nothing is out of step */
    pg_free(out);
    pg_free(in);
}

/* Ranks beyond the first two have no calls in the batch. */
static void empty_batches(rondo_pgroup *world)
{
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    double *out = pg_data(test.rank), *in = pg_data(-1);
    uint64_t before, after;
    test.what = "empty batches";
    MUST(rondo_pgroup_sequence(world, &before));
    for (int i = 0; i < 2; i++) { /* with a work, and without */
        rondo_pgroup_work *work = NULL;
        MUST(rondo_pgroup_batch_start(world, &opts));
        if (test.rank < 2 && test.nranks > 1) {
            MUST(rondo_pgroup_send(world, out, PG_COUNT, RONDO_FLOAT64, 1 - test.rank, NULL, NULL));
            MUST(rondo_pgroup_recv(world, in, PG_COUNT, RONDO_FLOAT64, 1 - test.rank, NULL, NULL));
        }
        MUST(rondo_pgroup_batch_end(world, i == 0 ? &work : NULL));
        if (work != NULL) {
            pg_finish(work);
        }
    }
    if (test.rank < 2 && test.nranks > 1) {
        test_check(pg_is(in, 1 - test.rank, 1), "the batch's message is wrong");
    }
    MUST(rondo_pgroup_sequence(world, &after));
    test_check(after == before + 2, "two batches count as %d", (int)(after - before));
    pg_check_sum(world);
    pg_free(out);
    pg_free(in);
}

static void splits(rondo_pgroup *world)
{
    rondo_pgroup *half = NULL, *quarter = NULL;
    int rank, n,
        color = test.rank == test.nranks - 1 && test.nranks > 2 ? RONDO_SPLIT_NOCOLOR : test.rank % 2;
    test.what = "splits";
    MUST(rondo_pgroup_split(world, color, -test.rank, NULL, &half));
    test_check((half == NULL) == (color == RONDO_SPLIT_NOCOLOR), "a rank without a colour has a group");
    if (half == NULL) {
        return;
    }
    MUST(rondo_pgroup_rank(half, &rank));
    MUST(rondo_pgroup_count(half, &n));
    test_check(rank == n - 1 - test.rank / 2, "rank %d of %d", rank, n);
    pg_check_sum(half);
    MUST(rondo_pgroup_split(half, rank, 0, NULL, &quarter));
    pg_check_sum(quarter);
    MUST(rondo_pgroup_destroy(half)); /* the parent first */
    pg_check_sum(quarter);
    MUST(rondo_pgroup_destroy(quarter));
}

static void counted_calls(rondo_pgroup *world)
{
    size_t counts[TEST_MAX_RANKS] = { 0 }, displs[TEST_MAX_RANKS] = { 0 };
    int n = test.nranks, wrong = 0;
    double *all = calloc((size_t)(n * n), sizeof(*all)), mine[TEST_MAX_RANKS] = { 0 };
    rondo_pgroup_opts host = RONDO_PGROUP_OPTS_INIT;
    rondo_pgroup_work *work;
    test.what = "counts";
    host.device = -1;
    for (int r = 0; r < n; r++) {
        counts[r] = (size_t)r + 1;
        displs[r] = (size_t)(r * n);
        mine[r] = 100 * test.rank + r;
    }
    MUST(rondo_pgroup_all_gatherv(world, mine, all, counts, displs, RONDO_FLOAT64, &host, &work));
    memset(counts, 0xff, sizeof(counts)); /* they were copied */
    pg_finish(work);
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < n; i++) {
            wrong += all[r * n + i] != (i <= r ? 100 * r + i : 0);
        }
    }
    test_check(wrong == 0, "%d wrong values", wrong);
    MUST(rondo_pgroup_barrier(world, &host, NULL));
    free(all);
}

static void refusals(rondo_pgroup *world)
{
    double x = 0;
    rondo_pgroup *group = NULL;
    rondo_pgroup_work *work = NULL;
    int other = (test.rank + 1) % test.nranks;
    uint64_t before, after;
    test.what = "refusals";
    MUST(rondo_pgroup_sequence(world, &before));
    test_check(rondo_pgroup_all_reduce(world, &x, &x, 1, RONDO_FLOAT64, RONDO_BAND, NULL, &work) ==
                       RONDO_INVALID_ARGUMENT &&
                   work == NULL,
               "a bitwise operation on doubles was taken");
    test_check(rondo_pgroup_broadcast(world, &x, &x, 1, RONDO_FLOAT64, test.nranks, NULL, NULL) ==
                   RONDO_INVALID_ARGUMENT,
               "a root outside was taken");
    test_check(rondo_pgroup_new(world, &other, 1, NULL, &group) ==
                   (test.nranks > 1 ? RONDO_INVALID_ARGUMENT : RONDO_SUCCESS),
               "a group without this rank was made");
    if (group != NULL) {
        MUST(rondo_pgroup_destroy(group));
    }
    test_check(rondo_pgroup_new(world, (int[]){ test.rank, test.rank }, 2, NULL, &group) ==
                   RONDO_INVALID_ARGUMENT,
               "a rank twice was taken");
    test_check(rondo_pgroup_work_wait(NULL, 0) == RONDO_INVALID_ARGUMENT, "NULL was waited for");
    MUST(rondo_group_start());
    test_check(rondo_pgroup_barrier(world, NULL, NULL) == RONDO_INVALID_USAGE, "a call inside a group");
    MUST(rondo_group_end());
    MUST(rondo_pgroup_sequence(world, &after));
    test_check(before == after, "refused calls were counted");
    pg_check_sum(world); /* refused calls harm nobody */
}

/* A call whose communicator is being made, inside rondo_group_start: the group would keep it, but it would
 * look done. */
static void open_group(rondo_pgroup *world)
{
    int all[TEST_MAX_RANKS], done = 0;
    double *data = pg_data(test.rank);
    rondo_pgroup_opts opts = pg_opts(INT64_MAX); /* the longest limit is not over at once */
    rondo_pgroup *fresh;
    rondo_pgroup_work *work, *none = NULL;
    test.what = "inside rondo_group_start";
    for (int r = 0; r < test.nranks; r++) {
        all[r] = r;
    }
    fresh = pg_group_new(world, all, test.nranks, NULL);
    MUST(rondo_pgroup_all_reduce(fresh, data, data, PG_COUNT, RONDO_FLOAT64, RONDO_SUM, &opts, &work));
    MUST(rondo_pgroup_batch_start(world, NULL));
    MUST(rondo_group_start());
    test_check(rondo_pgroup_work_test(work, &done) == RONDO_INVALID_USAGE && !done, "a work was tested");
    test_check(rondo_pgroup_work_wait(work, 0) == RONDO_INVALID_USAGE, "a work was waited for");
    test_check(rondo_pgroup_batch_end(world, &none) == RONDO_INVALID_USAGE && none == NULL, "a batch ended");
    MUST(rondo_group_end());
    MUST(rondo_pgroup_batch_end(world, NULL));
    pg_finish(work);
    test_check(pg_is(data, test.nranks * (test.nranks - 1) / 2.0, test.nranks), "the sum is wrong");
    MUST(rondo_pgroup_destroy(fresh));
    pg_free(data);
}

/* Rank 0's first call is refused once the communicator is there, and has let a second one follow. */
static void late_refusal(rondo_pgroup *world)
{
    int all[TEST_MAX_RANKS];
    rondo_pgroup_opts opts = pg_opts(RONDO_CONFIG_DEFAULT);
    double *data = pg_data(test.rank), x = 0;
    rondo_pgroup_work *refused = NULL, *work;
    rondo_pgroup *group;
    uint64_t counted;
    char text[100];
    test.what = "late refusal";
    for (int r = 0; r < test.nranks; r++) {
        all[r] = r;
    }
    group = pg_group_new(world, all, test.nranks, NULL);
    if (test.rank == 0) {
        MUST(rondo_pgroup_all_reduce(group, &x, &x, 1, RONDO_FLOAT64, RONDO_BAND, &opts, &refused));
    }
    MPI_Barrier(MPI_COMM_WORLD); /* the communicator is not there before the others make a call */
    MUST(pg_sum_start(group, data, &work));
    if (test.rank == 0) {
        test_check(rondo_pgroup_work_wait(refused, RONDO_CONFIG_DEFAULT) == RONDO_INVALID_ARGUMENT,
                   "a bitwise operation on doubles was taken");
        MUST(rondo_pgroup_work_free(refused));
    }
    MUST(rondo_pgroup_work_text(work, text, sizeof(text)));
    test_check(strncmp(text, "all_reduce #1 ", 14) == 0, "the text is %s", text);
    pg_finish(work);
    MUST(rondo_pgroup_sequence(group, &counted));
    test_check(counted == 1, "%d collectives counted", (int)counted);
    MUST(rondo_pgroup_destroy(group));
    pg_free(data);
}

/* ---- ends ---- */

struct told {
    int done; /* atomic */
    rondo_status status;
    char text[600];
};

/* In the watchdog's thread. */
static void on_error(void *arg, rondo_pgroup *group, rondo_status status, const char *text)
{
    struct told *told = arg;
    told->status = status;
    snprintf(told->text, sizeof(told->text), "%s", text);
    (void)rondo_pgroup_abort(group);
    (void)rondo_pgroup_destroy(group);
    __atomic_store_n(&told->done, 1, __ATOMIC_RELEASE);
}

static int is_told(struct told *told)
{
    for (double end = test_now() + 30; test_now() < end && !__atomic_load_n(&told->done, __ATOMIC_ACQUIRE);) {
        usleep(1000);
    }
    return __atomic_load_n(&told->done, __ATOMIC_ACQUIRE);
}

/* The last rank does not make the call; the others' watchdogs name it, and end and free the group. */
static void late(rondo_pgroup *group, struct told *told)
{
    int last = test.nranks - 1;
    char name[32];
    double *data = pg_data(0);
    rondo_pgroup_opts opts = pg_opts(300);
    snprintf(name, sizeof(name), "rank %d on ", last);
    pg_check_sum(group);
    if (test.rank != last) {
        rondo_pgroup_work *work;
        rondo_status status = rondo_pgroup_all_reduce(group, data, data, PG_COUNT, RONDO_FLOAT64, RONDO_SUM,
                                                      &opts, &work);
        test_check(status == RONDO_SUCCESS, "the late call: %s", rondo_last_error(NULL));
        status = rondo_pgroup_work_wait(work, 1);
        test_check(status != RONDO_SUCCESS, "a wait of 1 ms gave %s", rondo_status_string(status));
        status = rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT);
        test_check(status == RONDO_TIMEOUT || status == RONDO_REMOTE_ERROR, "the wait gave %s: %s",
                   rondo_status_string(status), rondo_last_error(NULL));
        test_check(strstr(rondo_last_error(NULL), name) != NULL, "rank %d is not named: %s", last,
                   rondo_last_error(NULL));
        if (test_check(is_told(told), "the watchdog told nothing")) {
            test_check(told->status == status, "the watchdog told %s", rondo_status_string(told->status));
        }
        MUST(rondo_pgroup_work_free(work)); /* it outlives its group */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == last) {
        rondo_status status = pg_sum_start(group, data, NULL);
        test_check(status != RONDO_SUCCESS || pg_on_gpu, "a call on a group that others ended was taken");
        if (status == RONDO_SUCCESS) {
            (void)rondo_pgroup_abort(group);
        }
        if (status == RONDO_SUCCESS || !is_told(told)) {
            MUST(rondo_pgroup_destroy(group));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    pg_free(data);
}

static void time_limits(rondo_pgroup *world)
{
    int all[TEST_MAX_RANKS];
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    rondo_pgroup_id id;
    rondo_pgroup *group;
    struct told told = { 0 };
    test.what = "time limit";
    for (int r = 0; r < test.nranks; r++) {
        all[r] = r;
    }
    config.on_error = on_error;
    config.arg = &told;
    config.name = "limited";
    config.device = pg_on_gpu ? RONDO_DEVICE_CURRENT : RONDO_CONFIG_DEFAULT;
    late(pg_group_new(world, all, test.nranks, &config), &told);
    test.what = "time limit of a default group"; /* whose watchdog ends itself */
    memset(&told, 0, sizeof(told));
    memset(&id, 0, sizeof(id));
    if (test.rank == 0) {
        MUST(rondo_pgroup_id_create(&id));
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    MUST(rondo_pgroup_create_id(&id, test.rank, test.nranks, &config, &group));
    late(group, &told);
    pg_check_sum(world); /* other groups go on */
}

static void *abort_later(void *group)
{
    usleep(50000);
    MUST(rondo_pgroup_abort(group));
    return NULL;
}

/* Another thread ends the group in which this one waits for a rank that never comes. */
static void aborts(rondo_pgroup *world)
{
    int all[TEST_MAX_RANKS];
    rondo_pgroup *group;
    test.what = "abort";
    for (int r = 0; r < test.nranks; r++) {
        all[r] = r;
    }
    group = pg_group_new(world, all, test.nranks, NULL);
    for (int made = 0; made < 2; made++) { /* before its communicator is made, then after */
        if (test.rank != test.nranks - 1) {
            pthread_t thread;
            double *data = pg_data(0);
            rondo_pgroup_work *work;
            rondo_status error = RONDO_SUCCESS;
            MUST(pg_sum_start(group, data, &work));
            pthread_create(&thread, NULL, abort_later, group);
            test_check(rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT) == RONDO_REMOTE_ERROR,
                       "the wait of an aborted work gave %s", rondo_last_error(NULL));
            pthread_join(thread, NULL);
            MUST(rondo_pgroup_work_free(work));
            MUST(rondo_pgroup_error(group, &error));
            test_check(error == RONDO_REMOTE_ERROR, "an aborted group has the error %d", (int)error);
            test_check(pg_sum_start(group, data, NULL) == RONDO_REMOTE_ERROR, "an aborted group took a call");
            pg_free(data);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MUST(rondo_pgroup_abort(group));
        MUST(rondo_pgroup_destroy(group));
        if (!made) {
            group = pg_group_new(world, all, test.nranks, NULL);
            pg_check_sum(group);
        }
    }
}

static void cases(rondo_pgroup *world)
{
    works(world);
    freed_works(world);
    aside(world);
    groups(world);
    orders(world);
    pg_message_cases(world);
    first_calls(world);
    if (pg_on_gpu && test.nranks > 2) {
        stream_order(world);
    }
    batches(world);
    empty_batches(world);
    splits(world);
    counted_calls(world);
    refusals(world);
    open_group(world);
    if (test.nranks > 1) {
        late_refusal(world);
        aborts(world);
        time_limits(world);
    }
}

static void all_cases(rondo_pgroup_config *config)
{
    rondo_comm *comm;
    rondo_pgroup *world, *alone;
    test.what = "creation";
    MUST(rondo_group_start());
    MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm));
    if (test.nranks > 1) {
        test_check(rondo_pgroup_create(comm, config, &world) == RONDO_INVALID_USAGE,
                   "a communicator that is not made yet was taken");
    }
    MUST(rondo_group_end());
    MUST(rondo_pgroup_create(comm, config, &world));
    cases(world);
    MUST(rondo_pgroup_destroy(world));
    test.what = "no watchdog";
    config->watchdog = 0;
    MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm));
    MUST(rondo_pgroup_create(comm, config, &world));
    alone = pg_group_new(world, &test.rank, 1, NULL);
    pg_check_sum(alone);
    pg_pairs(world);
    MUST(rondo_pgroup_destroy(world));
    pg_check_sum(alone); /* the last group ends the world */
    MUST(rondo_pgroup_destroy(alone));
    pg_nccl_cases();
}

static void stream_cases(const rondo_pgroup_config *config)
{
    rondo_comm *comm;
    rondo_pgroup *world;
    MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm));
    MUST(rondo_pgroup_create(comm, config, &world));
    first_calls(world);
    stream_order(world);
    MUST(rondo_pgroup_destroy(world));
}

int main(int argc, char **argv)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    const char *why = "";
    test_init("mpi_pgroup", MPI_THREAD_FUNNELED);
    test_watchdog(100);
    pg_on_gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;
    if (pg_on_gpu) {
        if (test_device_begin(test.rank, &why) < 0) {
            test_die("--gpu: %s", why);
        }
        pg_stream = test_device_stream_new();
        config.device = RONDO_DEVICE_CURRENT;
    }
    if (argc > 2 && strcmp(argv[2], "--streams") == 0) {
        stream_cases(&config);
    } else {
        all_cases(&config);
    }
    if (pg_on_gpu) {
        test_device_stream_free(pg_stream);
        test_device_end();
    }
    return test_finish();
}
