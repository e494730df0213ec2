/* Streams and the life of a communicator, with threads as ranks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "comm/comm.h"
#include "fake_ranks.h"
#include "faults.h"
#include "net/control/control_impl.h"

/* ---- streams ---- */

/* Each call needs the result of the previous one. */
static void chain(struct fake_rank *r)
{
    enum { LENGTH = 6, COUNT = 5000 };
    int64_t *x = calloc(COUNT, sizeof(*x)), *y = calloc(COUNT * (size_t)r->nranks, sizeof(*y)), want = 1;
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_OK(r, rondo_stream_query(stream)); /* nothing is queued */
    for (int i = 0; i < COUNT; i++) {
        x[i] = i + 1;
    }
    for (int k = 0; k < LENGTH; k++) {
        FAKE_OK(r, rondo_all_reduce(x, x, k % 2 == 0 ? COUNT : 1, RONDO_INT64, RONDO_SUM, r->comm, stream));
        want *= r->nranks;
    }
    FAKE_OK(r, rondo_all_gather(x, y, COUNT, RONDO_INT64, r->comm, stream));
    FAKE_OK(r, rondo_barrier(r->comm, stream));
    FAKE_OK(r, rondo_stream_synchronize(stream));
    FAKE_CHECK(r, x[0] == want, "%lld", (long long)x[0]);
    FAKE_CHECK(r, y[COUNT * (size_t)r->nranks - 1] == x[COUNT - 1] &&
                      x[COUNT - 1] > COUNT * (int64_t)(r->nranks > 1));
    FAKE_OK(r, rondo_stream_query(stream));
    FAKE_OK(r, rondo_stream_destroy(stream));
    free(x);
    free(y);
}

static void a_stream_runs_its_calls_in_order(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int n = 1; n <= 4; n++) {
        fake_ranks(n, chain, NULL);
    }
}

/* Two streams, each with calls of both communicators. */
static void crossed_streams(struct fake_rank *r)
{
    enum { ROUNDS = 30 };
    rondo_stream stream[2];
    rondo_comm *comm[2];
    int x[2] = { 1, 1 }, want = 1, polls = 0;
    rondo_status status;
    for (int i = 0; i < 2; i++) {
        FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm[i]));
        FAKE_OK(r, rondo_stream_create(&stream[i]));
    }
    for (int k = 0; k < ROUNDS; k++) {
        for (int s = 0; s < 2; s++) {
            FAKE_OK(r,
                    rondo_all_reduce(&x[s], &x[s], 1, RONDO_INT32, RONDO_SUM, comm[(s + k) % 2], stream[s]));
        }
        want = (int)((unsigned)want * (unsigned)r->nranks);
    }
    while ((status = rondo_stream_query(stream[1])) == RONDO_IN_PROGRESS) {
        polls++;
    }
    FAKE_CHECK(r, status == RONDO_SUCCESS, "%s after %d polls", rondo_last_error(NULL), polls);
    FAKE_CHECK(r, x[1] == want);
    FAKE_OK(r, rondo_stream_synchronize(stream[0]));
    FAKE_CHECK(r, x[0] == want);
    for (int i = 0; i < 2; i++) {
        FAKE_OK(r, rondo_stream_destroy(stream[i]));
        FAKE_OK(r, rondo_comm_destroy(comm[i]));
    }
}

static void two_streams_may_share_two_communicators(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks_bare(3, crossed_streams, NULL);
}

/* Groups on streams, with blocking calls between queued ones. */
static void mixed_calls(struct fake_rank *r)
{
    int x = 1, in = 0, out = r->rank, now = 0, one = 1;
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    for (int k = 0; k < 10; k++) {
        FAKE_OK(r, rondo_group_start());
        FAKE_OK(r, rondo_send(&out, 1, RONDO_INT32, (r->rank + 1) % r->nranks, r->comm, stream));
        FAKE_OK(r, rondo_all_reduce(&one, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
        FAKE_OK(r, rondo_recv(&in, 1, RONDO_INT32, (r->rank + r->nranks - 1) % r->nranks, r->comm, stream));
        FAKE_OK(r, rondo_group_end());
        FAKE_OK(r, rondo_all_reduce(&one, &now, 1, RONDO_INT32, RONDO_SUM, r->comm,
                                    NULL)); /* waits for queued calls */
        FAKE_CHECK(r, now == r->nranks && x == r->nranks && in == (r->rank + r->nranks - 1) % r->nranks);
        x = in = now = 0;
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
}

static void calls_without_a_stream_follow_queued_calls(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int n = 1; n <= 4; n++) {
        fake_ranks(n, mixed_calls, NULL);
    }
}

/* Ranks in turn: the one that comes last does its part of a call before the call returns. */
struct turns {
    pthread_barrier_t next;
    size_t count;
};

/* Sanitizers make steps so slow that another thread may take some: then nothing is said of "at once". */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SAYS_AT_ONCE = 0 };
#else
enum { SAYS_AT_ONCE = 1 };
#endif

/* Has the last call ended, and on the fast path? Its record has no time of the end then. */
static int ended_fast(const struct fake_rank *r)
{
    const struct rondo_ctx *ctx = r->comm->ctx;
    struct rondo_record_line *line =
        &ctx->wiring.control->own_rings->collective[ctx->calls.seq % RONDO_RECORD_CALLS];
    uint64_t state = atomic_load(&line->word[RONDO_LINE_KIND]) >> RONDO_LINE_STATE_SHIFT;
    return atomic_load(&line->word[RONDO_LINE_SEQ]) == ctx->calls.seq && (state & 0xff) == 2 &&
           atomic_load(&line->word[RONDO_LINE_END]) == 0;
}

static void last_of_two(struct fake_rank *r)
{
    enum { ROUNDS = 6, SMALL = 1000 };
    int nat_once = 0;
    struct turns *turns = r->arg;
    size_t count = turns->count, own = count * (r->rank == 0 ? 3 : 7) / 8; /* late in its half */
    int32_t *x = calloc(count, sizeof(*x)), *y = calloc(count, sizeof(*y));
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    for (int k = 0; k < ROUNDS; k++) {
        int is_last = k % 2 == r->rank;
        x[0] = x[count * 3 / 8] = x[count * 7 / 8] = k + r->rank;
        memset(y, 0, count * sizeof(*y));
        pthread_barrier_wait(&turns->next);
        if (is_last) {
            pthread_barrier_wait(&turns->next);
        }
        FAKE_OK(r, rondo_all_reduce(x, y, count, RONDO_INT32, RONDO_SUM, r->comm, stream));
        if (!is_last) {
            FAKE_CHECK(r, rondo_stream_query(stream) == RONDO_IN_PROGRESS);
            pthread_barrier_wait(&turns->next);
        } else if (k > 1) { /* the first calls find out how */
            FAKE_CHECK(r, ended_fast(r) || count > SMALL, "round %d", k);
            nat_once += y[own] == 2 * k + 1;
        }
        FAKE_OK(r, rondo_stream_synchronize(stream));
        FAKE_CHECK(r, is_last || !ended_fast(r), "round %d", k);
        FAKE_CHECK(r, y[0] == 2 * k + 1 && y[count * 3 / 8] == y[0] && y[count * 7 / 8] == y[0], "round %d",
                   k);
    }
    FAKE_CHECK(r, nat_once > 0 || !SAYS_AT_ONCE, "no call was done at once");
    FAKE_OK(r, rondo_stream_destroy(stream));
    free(x);
    free(y);
}

static void the_last_rank_does_its_part_at_once(void **state)
{
    static const size_t counts[] = { 2, 1000, 1 << 20 };
    (void)state;
    fake_params(NULL);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct turns turns = { .count = counts[i] };
        pthread_barrier_init(&turns.next, NULL, 2);
        fake_ranks(2, last_of_two, &turns);
        pthread_barrier_destroy(&turns.next);
    }
}

/* Calls that were made before, so that their messages are published at once: several under way, blocking ones
 * between them, and more kinds than the cache holds. */
static void repeated_calls(struct fake_rank *r)
{
    enum { NSTREAMS = 3, KINDS = 80, ROUNDS = 4 };
    int32_t x[KINDS], y[NSTREAMS][KINDS], z = 0, one = 1;
    rondo_stream stream[NSTREAMS];
    for (int s = 0; s < NSTREAMS; s++) {
        FAKE_OK(r, rondo_stream_create(&stream[s]));
    }
    for (int k = 0; k < KINDS * ROUNDS; k++) {
        size_t count = 1 + (size_t)(k / ROUNDS) % KINDS;
        x[0] = x[count - 1] = k + r->rank;
        for (int s = 0; s < NSTREAMS; s++) {
            FAKE_OK(
                r, rondo_all_reduce(x, y[s], s == 1 ? 1 : count, RONDO_INT32, RONDO_SUM, r->comm, stream[s]));
        }
        if (k % 3 == 0) {
            FAKE_OK(r, rondo_all_reduce(&one, &z, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
            FAKE_CHECK(r, z == r->nranks);
        }
        for (int s = 0; s < NSTREAMS; s++) {
            size_t last = s == 1 ? 0 : count - 1;
            FAKE_OK(r, rondo_stream_synchronize(stream[s]));
            FAKE_CHECK(r, y[s][last] == r->nranks * k + r->nranks * (r->nranks - 1) / 2, "call %d", k);
        }
    }
    for (int s = 0; s < NSTREAMS; s++) {
        FAKE_OK(r, rondo_stream_destroy(stream[s]));
    }
}

static void repeated_calls_of_streams_are_published_at_once(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int n = 2; n <= 3; n++) {
        fake_ranks(n, repeated_calls, NULL);
    }
}

static void unfinished_streams(struct fake_rank *r)
{
    int *x = calloc(20000, sizeof(*x));
    rondo_stream stream;
    x[0] = x[19999] = 1;
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_OK(r, rondo_all_reduce(x, x, 20000, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_stream_destroy(stream)); /* synchronizes */
    FAKE_CHECK(r, x[0] == r->nranks && x[19999] == r->nranks);
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_OK(r, rondo_all_reduce(x, x, 20000, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_comm_destroy(r->comm)); /* completes queued calls */
    r->comm = NULL;
    FAKE_CHECK(r, x[0] == r->nranks * r->nranks && x[19999] == x[0]);
    FAKE_OK(r, rondo_stream_query(stream));
    FAKE_OK(r, rondo_stream_destroy(stream));
    free(x);
}

static void destroy_completes_queued_work(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(3, unfinished_streams, NULL);
}

static void streams_after_abort(struct fake_rank *r)
{
    int x = 1, *queued = r->arg; /* after an abort no rank's call is accepted */
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == 0) {
        double end = fake_now() + 30;
        while (__atomic_load_n(queued, __ATOMIC_ACQUIRE) < r->nranks - 1 && fake_now() < end) {
            fake_sleep_ms(1);
        }
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
    } else {
        for (int k = 0; k < 5; k++) {
            FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
        }
        __atomic_add_fetch(queued, 1, __ATOMIC_RELEASE);
        FAKE_CHECK(r, rondo_stream_synchronize(stream) == RONDO_REMOTE_ERROR);
        FAKE_CHECK(r,
                   fake_has(rondo_last_error(r->comm), "rank 0 on ") &&
                       fake_has(rondo_last_error(r->comm), "aborted"),
                   "%s", rondo_last_error(r->comm));
        FAKE_CHECK(r, rondo_stream_query(stream) == RONDO_REMOTE_ERROR);
        FAKE_ERROR(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream),
                   RONDO_REMOTE_ERROR, "aborted");
        FAKE_ERROR(r, rondo_comm_finalize(r->comm), RONDO_REMOTE_ERROR, "aborted");
    }
    rondo_stream_destroy(stream);
}

static void streams_report_the_abort_of_their_communicator(void **state)
{
    int queued = 0;
    (void)state;
    fake_params(NULL);
    fake_ranks(3, streams_after_abort, &queued);
}

/* ---- the life of a communicator ---- */

static void handles(struct fake_rank *r)
{
    rondo_comm *comm = r->comm, *never = NULL;
    uint64_t zeros[8] = { 0 };
    float x[2] = { 0 };
    int value;
    rondo_status error;
    FAKE_OK(r, rondo_comm_async_error(comm, &error));
    FAKE_CHECK(r, error == RONDO_SUCCESS);
    FAKE_OK(r, rondo_comm_finalize(comm));
    FAKE_ERROR(r, rondo_all_reduce(x, x, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL), RONDO_INVALID_USAGE,
               "finalized");
    FAKE_ERROR(r, rondo_comm_finalize(comm), RONDO_INVALID_USAGE, "finalized");
    FAKE_ERROR(r, rondo_comm_split(comm, 0, 0, NULL, &never), RONDO_INVALID_USAGE, "finalized");
    FAKE_OK(r, rondo_comm_count(comm, &value));
    FAKE_OK(r, rondo_comm_async_error(comm, &error));
    FAKE_CHECK(r, error == RONDO_SUCCESS);
    FAKE_OK(r, rondo_comm_destroy(comm));
    r->comm = NULL;
    FAKE_ERROR(r, rondo_all_reduce(x, x, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL), RONDO_INVALID_ARGUMENT,
               "was destroyed or aborted");
    FAKE_ERROR(r, rondo_barrier(comm, NULL), RONDO_INVALID_ARGUMENT, "was destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_destroy(comm), RONDO_INVALID_ARGUMENT, "was destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_abort(comm), RONDO_INVALID_ARGUMENT, "was destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_finalize(comm), RONDO_INVALID_ARGUMENT, "was destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_count(comm, &value), RONDO_INVALID_ARGUMENT, "was destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_async_error(comm, &error), RONDO_INVALID_ARGUMENT, "was destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_split(comm, 0, 0, NULL, &never), RONDO_INVALID_ARGUMENT,
               "was destroyed or aborted");
    FAKE_CHECK(r, rondo_last_error(comm) != NULL);
    FAKE_ERROR(r, rondo_comm_destroy(NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_comm_abort(NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_comm_destroy((rondo_comm *)zeros), RONDO_INVALID_ARGUMENT, "is not a communicator");
}

static void handles_of_ended_communicators_are_errors_and_not_crashes(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(1, handles, NULL);
    fake_ranks(3, handles, NULL);
}

/* Shells of dead communicators are reused, the oldest first, and stale handles are recognised. */
static void shells_are_reused_and_stale_handles_recognised(void **state)
{
    rondo_local *local;
    rondo_comm *first = NULL, *comm;
    (void)state;
    fake_params(NULL);
    assert_int_equal(rondo_local_create(1, &local), RONDO_SUCCESS);
    for (int i = 0; i < 1500; i++) {
        assert_int_equal(rondo_comm_create_local(local, 0, NULL, &comm), RONDO_SUCCESS);
        assert_int_equal(rondo_comm_destroy(comm), RONDO_SUCCESS);
        first = i == 600 ? comm : first;
    }
    assert_int_equal(rondo_comm_destroy(first), RONDO_INVALID_ARGUMENT);
    rondo_local_destroy(local);
}

static rondo_comm *begin_creation(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    config.blocking = 0;
    config.name = "made in steps";
    rondo_status status = rondo_comm_create_local(r->local, r->rank, &config, &comm);
    if ((status != RONDO_IN_PROGRESS && status != RONDO_SUCCESS) || comm == NULL) {
        fake_fail(r, __FILE__, __LINE__, "creation", ": %s", rondo_last_error(NULL));
    }
    return comm;
}

static void stepwise(struct fake_rank *r)
{
    rondo_status error = RONDO_IN_PROGRESS;
    int one = 1, sum = 0;
    r->comm = begin_creation(r);
    FAKE_OK(r, rondo_comm_async_error(r->comm, &error));
    if (error == RONDO_IN_PROGRESS && r->rank == 0) { /* not ready yet: rank 1 comes later */
        FAKE_ERROR(r, rondo_all_reduce(&one, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL),
                   RONDO_INVALID_USAGE, "still being created");
        FAKE_ERROR(r, rondo_comm_finalize(r->comm), RONDO_INVALID_USAGE, "still being created");
    }
    while (error == RONDO_IN_PROGRESS) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &error));
    }
    FAKE_CHECK(r, error == RONDO_SUCCESS);
    FAKE_OK(r, rondo_all_reduce(&one, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CHECK(r, sum == r->nranks);
    FAKE_OK(r, rondo_comm_destroy(r->comm));
    r->comm = begin_creation(r);
    FAKE_OK(r, rondo_comm_destroy(r->comm)); /* never polled: destroy completes it */
}

static void async_error_moves_a_non_blocking_creation(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks_bare(1, stepwise, NULL);
    fake_ranks_bare(4, stepwise, NULL);
}

/* A rank alone cannot wait for the others: it sees only this. */
static void a_rank_alone_is_not_ready_and_can_be_aborted(void **state)
{
    struct fake_rank r = { .rank = 0, .nranks = 2 };
    rondo_status error;
    int x = 1;
    (void)state;
    fake_params(NULL);
    assert_int_equal(rondo_local_create(2, &r.local), RONDO_SUCCESS);
    r.comm = begin_creation(&r);
    assert_string_equal(r.failure, "");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(rondo_comm_async_error(r.comm, &error), RONDO_SUCCESS);
        assert_int_equal(error, RONDO_IN_PROGRESS);
    }
    assert_int_equal(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r.comm, NULL), RONDO_INVALID_USAGE);
    assert_true(fake_has(rondo_last_error(NULL), "made in steps"));
    assert_int_equal(rondo_comm_abort(r.comm), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_abort(r.comm), RONDO_INVALID_ARGUMENT);
    rondo_local_destroy(r.local);
}

static pthread_barrier_t all_have_begun; /* a rank that comes after the abort cannot begin */

static void abort_creation(struct fake_rank *r)
{
    rondo_status error = RONDO_IN_PROGRESS;
    double start = fake_now();
    r->comm = begin_creation(r);
    pthread_barrier_wait(&all_have_begun);
    if (r->rank == 0) {
        FAKE_OK(r, rondo_comm_abort(r->comm));
        return;
    }
    while (error == RONDO_IN_PROGRESS) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &error));
    }
    FAKE_CHECK(r, error != RONDO_SUCCESS && fake_now() - start < 5, "%s", rondo_last_error(r->comm));
    FAKE_OK(r, rondo_comm_async_error(r->comm, &error));
    FAKE_CHECK(r, error != RONDO_SUCCESS && error != RONDO_IN_PROGRESS);
    FAKE_OK(r, rondo_comm_destroy(r->comm));
}

static void abort_of_a_creation_ends_it_on_all_ranks(void **state)
{
    (void)state;
    fake_params(NULL);
    pthread_barrier_init(&all_have_begun, NULL, 3);
    fake_ranks_bare(3, abort_creation, NULL);
    pthread_barrier_destroy(&all_have_begun);
}

/* ---- groups that create ---- */

static void creations_given_up(struct fake_rank *r)
{
    rondo_comm *comm = NULL, *other = NULL;
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm));
    pthread_barrier_wait(&all_have_begun); /* after the abort no rank can begin */
    FAKE_ERROR(r, rondo_comm_create_local(r->local, 99, NULL, &other), RONDO_INVALID_ARGUMENT, "99");
    FAKE_OK(r, rondo_comm_abort(comm));
    FAKE_CHECK(r, rondo_group_end() != RONDO_SUCCESS, "a creation of the group was aborted");
    FAKE_CHECK(r, rondo_comm_destroy(comm) == RONDO_INVALID_ARGUMENT);
}

static void a_creation_aborted_inside_its_group_is_an_error_of_the_group(void **state)
{
    (void)state;
    fake_params(NULL);
    pthread_barrier_init(&all_have_begun, NULL, 2);
    fake_ranks_bare(2, creations_given_up, NULL);
    pthread_barrier_destroy(&all_have_begun);
}

static void calls_given_up(struct fake_rank *r)
{
    int x = 1, y = 0;
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_OK(r, rondo_comm_abort(r->comm));
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_ARGUMENT, "destroyed or aborted");
    r->comm = NULL;
}

static void a_communicator_aborted_inside_a_group_is_an_error_of_the_group(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(1, calls_given_up, NULL);
}

/* ---- how ranks share memory ---- */

static void sum_once(struct fake_rank *r)
{
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .op = RONDO_SUM, .count = 1000);
}

static int lines_with(const char *path, const char *text)
{
    char line[1024];
    int n = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        n += strstr(line, text) != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

/* Not dumpable: /proc hides the process's files from other processes of its user. */
static void memory_is_shared_by_the_first_mode_that_works(void **state)
{
    static const char *const by[] = { "shared memory by socket: memfds cannot be opened",
                                      "shared memory by memfd: the next rank's can be" };
    char path[] = "/tmp/unit_engine_life.XXXXXX";
    int fd = mkstemp(path), was = prctl(PR_GET_DUMPABLE);
    (void)state;
    assert_true(fd >= 0);
    for (int dumpable = 0; dumpable < 2; dumpable++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(prctl(PR_SET_DUMPABLE, dumpable), 0);
        fake_params("DEBUG", "INFO", "DEBUG_SUBSYS", "INIT", "DEBUG_FILE", path, NULL);
        fake_ranks(3, sum_once, NULL);
        assert_int_equal(lines_with(path, by[dumpable]), 3);
    }
    prctl(PR_SET_DUMPABLE, was);
    fake_params(NULL);
    close(fd);
    unlink(path);
}

/* Memory registered twice, in part, never deregistered, deregistered twice; memory that peers map, freed and
 * allocated again between calls. */
static void register_and_sum(struct fake_rank *r)
{
    enum { COUNT = 3000 };
    void *handle[4], *memory = NULL, *none = r;
    int32_t *x;
    FAKE_OK(r, rondo_mem_free(NULL));
    FAKE_OK(r, rondo_mem_alloc(&none, 0));
    FAKE_CHECK(r, none == NULL);
    FAKE_CHECK(r, rondo_mem_alloc(NULL, 8) == RONDO_INVALID_ARGUMENT &&
                      rondo_mem_free(r) == RONDO_INVALID_ARGUMENT);
    for (int round = 0; round < 5; round++) {
        FAKE_OK(r, rondo_mem_alloc(&memory, sizeof(*x) * COUNT));
        x = memory;
        FAKE_CHECK(r, x[0] == 0 && x[COUNT - 1] == 0);
        FAKE_OK(r, rondo_comm_register(r->comm, x, sizeof(*x) * COUNT, &handle[0]));
        FAKE_OK(r, rondo_comm_register(r->comm, x, sizeof(*x) * COUNT, &handle[1]));
        FAKE_OK(r, rondo_comm_register(r->comm, x + 1, sizeof(*x), &handle[2]));
        FAKE_CHECK(r, rondo_comm_register(r->comm, NULL, 8, &handle[3]) == RONDO_INVALID_ARGUMENT);
        FAKE_CHECK(r, rondo_comm_register(r->comm, x, 0, &handle[3]) == RONDO_INVALID_ARGUMENT);
        FAKE_CHECK(r, rondo_comm_register(r->comm, x, 8, NULL) == RONDO_INVALID_ARGUMENT);
        for (int i = 0; i < COUNT; i++) {
            x[i] = i * (r->rank + 1);
        }
        FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        for (int i = 0; i < COUNT; i++) {
            FAKE_CHECK(r, x[i] == i * r->nranks * (r->nranks + 1) / 2, "%d", x[i]);
        }
        FAKE_OK(r, rondo_comm_deregister(r->comm, handle[1]));
        FAKE_OK(r, rondo_comm_deregister(r->comm, handle[0]));
        FAKE_CHECK(r, rondo_comm_deregister(r->comm, handle[0]) ==
                          RONDO_INVALID_ARGUMENT); /* destroy ends handle[2] */
        FAKE_OK(r, rondo_mem_free(x));
    }
}

static void registered_memory_may_be_freed_and_allocated_again(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int n = 1; n <= 4; n++) {
        fake_ranks(n, register_and_sum, NULL);
    }
}

/* Found at the deadline, and reported in a round that begins after it. */
static void connect_in_vain(struct fake_rank *r)
{
    rondo_comm *comm = NULL;
    char *text = r->arg;
    FAKE_CHECK(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm) != RONDO_SUCCESS && comm == NULL);
    snprintf(text + 512 * r->rank, 512, "%s", rondo_last_error(NULL));
}

static void all_ranks_name_a_connection_that_is_late(void **state)
{
    char text[3][512];
    (void)state;
    needs_faults();
    fake_params("SHM_DISABLE", "1", "SOCKET_IFNAME", "lo", "NET_FAULT", "rank=0,connect=1000000",
                "INIT_TIMEOUT", "1s", NULL);
    fake_ranks_bare(3, connect_in_vain, text);
    for (int r = 0; r < 3; r++) {
        assert_string_equal(text[r], text[0]);
    }
    assert_non_null(strstr(text[0], "rank 0 on "));
    assert_non_null(strstr(text[0], " was not made within RONDO_INIT_TIMEOUT"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_runs_its_calls_in_order),
        cmocka_unit_test(two_streams_may_share_two_communicators),
        cmocka_unit_test(calls_without_a_stream_follow_queued_calls),
        cmocka_unit_test(the_last_rank_does_its_part_at_once),
        cmocka_unit_test(repeated_calls_of_streams_are_published_at_once),
        cmocka_unit_test(destroy_completes_queued_work),
        cmocka_unit_test(streams_report_the_abort_of_their_communicator),
        cmocka_unit_test(handles_of_ended_communicators_are_errors_and_not_crashes),
        cmocka_unit_test(shells_are_reused_and_stale_handles_recognised),
        cmocka_unit_test(async_error_moves_a_non_blocking_creation),
        cmocka_unit_test(a_rank_alone_is_not_ready_and_can_be_aborted),
        cmocka_unit_test(abort_of_a_creation_ends_it_on_all_ranks),
        cmocka_unit_test(all_ranks_name_a_connection_that_is_late),
        cmocka_unit_test(a_creation_aborted_inside_its_group_is_an_error_of_the_group),
        cmocka_unit_test(a_communicator_aborted_inside_a_group_is_an_error_of_the_group),
        cmocka_unit_test(memory_is_shared_by_the_first_mode_that_works),
        cmocka_unit_test(registered_memory_may_be_freed_and_allocated_again),
    };
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
