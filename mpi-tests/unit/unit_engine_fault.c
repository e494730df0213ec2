/* Failures between ranks, with threads as ranks: aborts, missing ranks, failed creations; and that
 * nothing is left behind. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "fake_ranks.h"
#include "faults.h"

#define MOST_ABORT_S 1.0

/* ---- aborts ---- */

enum wait_kind { WAIT_CALL, WAIT_GROUP, WAIT_STREAM, WAIT_DRAIN, WAIT_DESTROY, WAIT_RECV, NUM_WAITS };

struct abort_case {
    enum wait_kind kind;
    double aborted_at;      /* written by the aborting thread, read after it was joined */
    pthread_barrier_t meet; /* all ranks and the aborting thread */
    pthread_barrier_t left; /* all ranks */
};

struct aborter {
    struct abort_case *c;
    rondo_comm *comm;
    rondo_status status;
    double took;
};

static void *abort_soon(void *arg)
{
    struct aborter *a = arg;
    pthread_barrier_wait(&a->c->meet);
    fake_sleep_ms(5); /* most ranks wait by then; an abort must work at any time */
    a->c->aborted_at = fake_now();
    a->status = rondo_comm_abort(a->comm);
    a->took = fake_now() - a->c->aborted_at;
    return NULL;
}

static rondo_status wait_somehow(struct fake_rank *r, enum wait_kind kind, rondo_stream stream)
{
    static const size_t count = 2000;
    rondo_status status = RONDO_SUCCESS;
    int *x = calloc(count, sizeof(*x));
    switch (kind) {
    case WAIT_CALL: status = rondo_all_reduce(x, x, count, RONDO_INT32, RONDO_SUM, r->comm, NULL); break;
    case WAIT_GROUP:
        rondo_group_start();
        rondo_all_reduce(x, x, count, RONDO_INT32, RONDO_SUM, r->comm, NULL);
        rondo_broadcast(x, x, 1, RONDO_INT32, r->nranks - 1, r->comm, NULL);
        status = rondo_group_end();
        break;
    case WAIT_RECV: status = rondo_recv(x, 1, RONDO_INT32, r->nranks - 1, r->comm, NULL); break;
    default:
        status = rondo_all_reduce(x, x, count, RONDO_INT32, RONDO_SUM, r->comm, stream);
        if (kind == WAIT_DESTROY) {
            rondo_comm_destroy(r->comm); /* works even when the abort came before the call */
            status = status == RONDO_SUCCESS ? rondo_stream_synchronize(stream) : status;
        } else if (status == RONDO_SUCCESS) {
            status = kind == WAIT_DRAIN ? rondo_comm_finalize(r->comm) : rondo_stream_synchronize(stream);
        }
        if (kind == WAIT_DRAIN) {
            rondo_stream_synchronize(stream); /* nobody uses the buffer any more */
        }
    }
    free(x);
    return status;
}

/* Another thread aborts rank 0 while all ranks wait for the last one. */
static void aborted_while_waiting(struct fake_rank *r)
{
    struct abort_case *c = r->arg;
    struct aborter a = { .c = c, .comm = r->comm };
    rondo_stream stream;
    pthread_t thread;
    rondo_status status = RONDO_SUCCESS;
    double left;
    int one = 1;
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == 0) {
        pthread_create(&thread, NULL, abort_soon, &a);
    }
    pthread_barrier_wait(&c->meet);
    if (r->rank < r->nranks - 1) {
        status = wait_somehow(r, c->kind, stream);
    }
    left = fake_now();
    pthread_barrier_wait(&c->left);
    if (r->rank == 0) {
        pthread_join(thread, NULL);
        r->comm = NULL;
        FAKE_CHECK(r, a.status == RONDO_SUCCESS && a.took < MOST_ABORT_S, "abort took %.3f s", a.took);
        FAKE_CHECK(r, left - c->aborted_at < MOST_ABORT_S, "the wait went on for %.3f s",
                   left - c->aborted_at);
    }
    if (r->rank == 0) { /* a call after the abort finds a dead handle; queued work is dropped */
        FAKE_CHECK(r,
                   status == RONDO_REMOTE_ERROR || status == RONDO_INVALID_ARGUMENT ||
                       status == RONDO_INVALID_USAGE,
                   "%s", rondo_status_string(status));
    } else if (r->rank < r->nranks - 1) {
        FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "wait %d: %s", c->kind, rondo_status_string(status));
    } else {
        FAKE_ERROR(r, rondo_all_reduce(&one, &one, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL),
                   RONDO_REMOTE_ERROR, "rank 0 on ");
    }
    if (c->kind == WAIT_DESTROY && r->rank < r->nranks - 1) {
        r->comm = NULL;
    }
    rondo_stream_destroy(stream);
}

static void abort_from_another_thread_ends_every_wait_within_a_second(void **state)
{
    static const char *const algos[] = { "", "ring", "tree", "twoshot" };
    (void)state;
    for (int kind = 0; kind < NUM_WAITS; kind++) {
        for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
            struct abort_case c = { .kind = (enum wait_kind)kind };
            fake_params("ALGO", algos[a], NULL);
            pthread_barrier_init(&c.meet, NULL, 5);
            pthread_barrier_init(&c.left, NULL, 4);
            fake_ranks(4, aborted_while_waiting, &c);
            pthread_barrier_destroy(&c.meet);
            pthread_barrier_destroy(&c.left);
        }
    }
}

static void calls_until_aborted(struct fake_rank *r)
{
    struct abort_case *c = r->arg;
    struct aborter a = { .c = c, .comm = r->comm };
    float x[300] = { 0 };
    pthread_t thread;
    rondo_status status = RONDO_SUCCESS;
    if (r->rank == 0) {
        pthread_create(&thread, NULL, abort_soon, &a);
    }
    pthread_barrier_wait(&c->meet);
    while (status == RONDO_SUCCESS) {
        status = rondo_all_reduce(x, x, 300, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL);
    }
    if (r->rank == 0) {
        r->comm = NULL;
        pthread_join(thread, NULL);
        FAKE_CHECK(r, a.status == RONDO_SUCCESS && a.took < MOST_ABORT_S);
        FAKE_CHECK(r, status == RONDO_REMOTE_ERROR || status == RONDO_INVALID_ARGUMENT);
    } else {
        FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s", rondo_last_error(r->comm));
    }
}

static void abort_may_come_at_any_time_during_calls(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int round = 0; round < 12; round++) {
        struct abort_case c = { 0 };
        pthread_barrier_init(&c.meet, NULL, 4);
        fake_ranks(3, calls_until_aborted, &c);
        pthread_barrier_destroy(&c.meet);
    }
}

static void abort_twice(struct fake_rank *r)
{
    FAKE_OK(r, rondo_comm_abort(r->comm));
    FAKE_ERROR(r, rondo_comm_abort(r->comm), RONDO_INVALID_ARGUMENT, "destroyed or aborted");
    FAKE_ERROR(r, rondo_comm_destroy(r->comm), RONDO_INVALID_ARGUMENT, "destroyed or aborted");
    r->comm = NULL;
}

static void a_second_abort_is_an_error(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(3, abort_twice, NULL);
}

/* ---- a rank that never calls, or never comes ---- */

static void await_timeout(struct fake_rank *r)
{
    rondo_status error = RONDO_SUCCESS;
    while (error == RONDO_SUCCESS) { /* of another rank */
        FAKE_OK(r, rondo_comm_async_error(r->comm, &error));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, error == RONDO_TIMEOUT);
}

static void call_but_for_one(struct fake_rank *r)
{
    int x = 1;
    double start = fake_now();
    FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    if (r->rank != 1) {
        rondo_status status = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL);
        FAKE_CHECK(r, status == RONDO_TIMEOUT && fake_now() - start < 10, "%s", rondo_last_error(r->comm));
    } else {
        await_timeout(r);
    }
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), "RONDO_TIMEOUT") &&
                   fake_has(rondo_last_error(r->comm), "rank 1 on "),
               "%s", rondo_last_error(r->comm));
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), "all_reduce #2") &&
                   fake_has(rondo_last_error(r->comm), "all_reduce #1"),
               "%s", rondo_last_error(r->comm));
}

static void wait_for_nothing(struct fake_rank *r)
{
    int x = 1;
    if (r->rank == 0) {
        FAKE_OK(r, rondo_send(&x, 0, RONDO_INT32, 1, r->comm, NULL));
        await_timeout(r);
    } else {
        FAKE_ERROR(r, rondo_recv(&x, 1, RONDO_INT32, 0, r->comm, NULL), RONDO_TIMEOUT, "rank 0");
    }
}

static void the_deadline_names_the_rank_that_did_not_call(void **state)
{
    static const char *const algos[] = { "ring", "tree", "oneshot" };
    (void)state;
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        fake_params("ALGO", algos[a], "TIMEOUT", "2s", NULL);
        fake_ranks(4, call_but_for_one, NULL);
    }
    fake_ranks(2, wait_for_nothing, NULL);
}

/* ---- ranks that wait for each other ---- */

struct crossing {
    int odd_sends; /* the last rank sends to rank 0, else it receives from it */
    int grouped;
};

/* Rank 0 makes a collective, the last rank a message with rank 0 that the collective cannot answer. */
static void collective_against_message(struct fake_rank *r)
{
    enum { COUNT = 1 << 20 };
    const struct crossing *c = r->arg;
    int *x = calloc(COUNT, sizeof(*x)), last = r->nranks - 1;
    char says[160];
    rondo_status status = rondo_barrier(r->comm, NULL);
    if (status == RONDO_SUCCESS && c->grouped) {
        rondo_group_start();
    }
    if (status == RONDO_SUCCESS) {
        status = r->rank < last ? rondo_all_reduce(x, x, 8, RONDO_INT32, RONDO_SUM, r->comm, NULL)
                 : c->odd_sends ? rondo_send(x, COUNT, RONDO_INT32, 0, r->comm, NULL)
                                : rondo_recv(x, COUNT, RONDO_INT32, 0, r->comm, NULL);
    }
    if (c->grouped) {
        status = rondo_group_end();
    }
    free(x);
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE, "%s", rondo_last_error(r->comm));
    snprintf(says, sizeof(says), "waits in a %s of %d i32 %s rank 0, rank 0 on ",
             c->odd_sends ? "send" : "receive", COUNT, c->odd_sends ? "to" : "from");
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), says) &&
                   fake_has(rondo_last_error(r->comm), "in all_reduce #2 (count 8, i32, sum)") &&
                   fake_has(rondo_last_error(r->comm), "a collective does not meet sends and receives"),
               "%s", rondo_last_error(r->comm));
}

static void a_collective_against_a_message_is_named_as_such(void **state)
{
    static const char *const algos[] = { "", "ring" };
    (void)state;
    for (int k = 0; k < 4; k++) {
        for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
            struct crossing c = { .odd_sends = k & 1, .grouped = k >> 1 };
            fake_params("ALGO", algos[a], NULL);
            fake_ranks(2, collective_against_message, &c);
        }
    }
    struct crossing three = { .odd_sends = 0 };
    fake_params("ALGO", "oneshot", NULL);
    fake_ranks(3, collective_against_message, &three);
}

/* What is legal stays legal, however long it takes: messages that cross a collective but do not wait for it,
 * and a group that holds both. */
static void messages_around_collectives(struct fake_rank *r)
{
    int x[4] = { 1, 1, 1, 1 }, y[4] = { 0 };
    if (r->rank == 0) { /* the first message waits until both ranks have asked for the connection */
        FAKE_OK(r, rondo_send(x, 4, RONDO_INT32, 1, r->comm, NULL));
    } else {
        FAKE_OK(r, rondo_recv(y, 4, RONDO_INT32, 0, r->comm, NULL));
    }
    for (int round = 0; round < 3; round++) {
        if (r->rank == 0) {
            FAKE_OK(r, rondo_send(x, 4, RONDO_INT32, 1, r->comm, NULL)); /* returns before it is received */
            FAKE_OK(r, rondo_barrier(r->comm, NULL));
            FAKE_OK(r, rondo_group_start());
            FAKE_OK(r, rondo_all_reduce(x, y, 4, RONDO_INT32, RONDO_SUM, r->comm, NULL));
            FAKE_OK(r, rondo_send(x, 4, RONDO_INT32, 1, r->comm, NULL));
            FAKE_OK(r, rondo_group_end());
        } else {
            fake_sleep_ms(150); /* longer than compare_kinds() waits */
            FAKE_OK(r, rondo_barrier(r->comm, NULL));
            FAKE_OK(r, rondo_recv(y, 4, RONDO_INT32, 0, r->comm, NULL));
            FAKE_OK(r, rondo_recv(y, 4, RONDO_INT32, 0, r->comm, NULL));
            fake_sleep_ms(150);
            FAKE_OK(r, rondo_all_reduce(x, y, 4, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        }
        FAKE_CHECK(r, y[3] == 2);
    }
}

/* Rank 1's group waits for rank 2, and no more for rank 0, which waits for rank 1. */
static void a_group_with_a_late_message(struct fake_rank *r)
{
    int x[4] = { 1, 1, 1, 1 }, y[2][4] = { { 0 } };
    if (r->rank == 1) {
        FAKE_OK(r, rondo_group_start());
        FAKE_OK(r, rondo_recv(y[1], 4, RONDO_INT32, 2, r->comm, NULL));
        FAKE_OK(r, rondo_recv(y[0], 4, RONDO_INT32, 0, r->comm, NULL));
        FAKE_OK(r, rondo_group_end());
    } else {
        fake_sleep_ms(r->rank == 2 ? 250 : 0); /* longer than compare_kinds() waits */
        FAKE_OK(r, rondo_send(x, 4, RONDO_INT32, 1, r->comm, NULL));
    }
    FAKE_OK(r, rondo_all_reduce(x, x, 4, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CHECK(r, x[3] == 3);
}

static void messages_that_pass_a_collective_are_no_error(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, messages_around_collectives, NULL);
    fake_params("ALGO", "oneshot", NULL);
    fake_ranks(3, a_group_with_a_late_message, NULL);
}

/* Rank 0 calls on A, then B; rank 1 on B, then A. */
static void opposite_orders(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *pair[2] = { NULL };
    rondo_status status = RONDO_SUCCESS;
    char *text = r->arg;
    int x = 1;
    for (int i = 0; i < 2; i++) {
        config.name = i == 0 ? "A" : "B";
        FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, &config, &pair[i]));
    }
    for (int k = 0; k < 2 && status == RONDO_SUCCESS; k++) {
        status = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, pair[k ^ r->rank], NULL);
    }
    FAKE_CHECK(r, status == RONDO_TIMEOUT || status == RONDO_REMOTE_ERROR, "%s", rondo_last_error(NULL));
    snprintf(text + r->rank * 512, 512, "%s", rondo_last_error(pair[r->rank]));
    rondo_comm_destroy(pair[0]); /* the timeout has ended both */
    rondo_comm_destroy(pair[1]);
}

static void communicators_in_opposite_orders_are_named_as_such(void **state)
{
    char text[2][512] = { "", "" };
    (void)state;
    fake_params("TIMEOUT", "1s", NULL);
    fake_ranks(2, opposite_orders, text);
    for (int rank = 0; rank < 2; rank++) { /* one finds it, and the other one is told or finds it, too */
        char says[160];
        snprintf(says, sizeof(says), "waits for rank %d of communicator \"%s\" in all_reduce #1", rank,
                 rank == 0 ? "B" : "A");
        if (strstr(text[rank], says) == NULL) {
            fail_msg("\"%s\" is not in: %s", says, text[rank]);
        }
        assert_non_null(strstr(text[rank], "use their communicators in different orders"));
    }
}

static void call_late(struct fake_rank *r)
{
    int x = 1;
    if (r->rank == 1) {
        fake_sleep_ms(400); /* the test measures how long the other rank waits */
    }
    FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CHECK(r, x == r->nranks);
}

static void a_long_wait_is_reported_in_the_log(void **state)
{
    char path[] = "/tmp/rondo-unit-XXXXXX", line[1024];
    int fd = mkstemp(path), found = 0;
    FILE *file;
    (void)state;
    assert_true(fd >= 0);
    fake_params("DEBUG", "WARN", "DEBUG_FILE", path, "WARN_AFTER", "50ms", NULL);
    fake_ranks(3, call_late, NULL);
    fake_params(NULL); /* closes the file */
    file = fdopen(fd, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        found += fake_has(line, "has waited") && fake_has(line, "all_reduce #1") &&
                 fake_has(line, "rank 1 on ");
    }
    fclose(file);
    unlink(path);
    assert_in_range(found, 1, 2); /* once for each rank that waits */
}

static void come_but_for_one(struct fake_rank *r)
{
    rondo_comm *comm = NULL;
    if (r->rank == 2) {
        return;
    }
    pthread_barrier_wait(r->arg);
    /* A rank whose peer timed out first gets that rank's error text. */
    rondo_status status = rondo_comm_create_local(r->local, r->rank, NULL, &comm);
    FAKE_CHECK(r, status == RONDO_TIMEOUT || status == RONDO_REMOTE_ERROR);
    FAKE_CHECK(r,
               fake_has(rondo_last_error(NULL), "did not arrive, or do not answer: rank 2") && comm == NULL,
               "%s", rondo_last_error(NULL));
}

static void the_deadline_of_creation_names_the_missing_rank(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    pthread_barrier_init(&meet, NULL, 3);
    fake_params("INIT_TIMEOUT", "1s", NULL);
    fake_ranks_bare(4, come_but_for_one, &meet);
    pthread_barrier_destroy(&meet);
}

/* ---- faults of creation, and what is left behind ---- */

struct failures {
    char text[128][512];
    double took[128];
};

static void fail_to_create(struct fake_rank *r)
{
    struct failures *f = r->arg;
    rondo_comm *comm = NULL;
    double start = fake_now();
    rondo_status status = rondo_comm_create_local(r->local, r->rank, NULL, &comm);
    f->took[r->rank] = fake_now() - start;
    FAKE_CHECK(r, status != RONDO_SUCCESS && comm == NULL);
    FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "injected failure"), "%s", rondo_last_error(NULL));
    snprintf(f->text[r->rank], sizeof(f->text[r->rank]), "%s", rondo_last_error(NULL));
}

static const char *const phases[] = { "open", "peers", "graphs", "names", "connections", "ready", "hello" };
static void fail_in(const char *phase, int n, int faulty)
{
    struct failures *f = calloc(1, sizeof(*f));
    char fault[64], names[32];
    snprintf(fault, sizeof(fault), "rank=%d,phase=%s,act=fail", faulty, phase);
    fake_params("FAULT", fault, "INIT_TIMEOUT", "30s", "BUFFSIZE", "8K", NULL);
    fake_ranks_bare(n, fail_to_create, f);
    snprintf(names, sizeof(names), "rank %d on ", faulty);
    for (int r = 0; r < n; r++) {
        assert_string_equal(f->text[r], f->text[faulty]);
        assert_true(strncmp(f->text[r], names, strlen(names)) == 0 && f->took[r] < 20);
    }
    free(f);
}

static void a_failed_creation_is_the_same_error_on_all_ranks(void **state)
{
    (void)state;
    needs_faults();
    for (size_t p = 0; p < RONDO_COUNTOF(phases); p++) {
        for (int n = 2; n <= 8; n += 3) {
            fail_in(phases[p], n, 0);
            fail_in(phases[p], n, n - 1);
        }
        fail_in(phases[p], 66, 40); /* more than an allgather carries */
    }
}

static void refuse_fault(struct fake_rank *r)
{
    rondo_comm *comm = NULL;
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm), RONDO_INVALID_ARGUMENT,
               "act=kill|stop|exit|fail|delay:MS");
}

static void late_in_the_second_call(struct fake_rank *r)
{
    double start = fake_now();
    int x = 1;
    FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CHECK(r, x == 4 && fake_now() - start >= 0.03);
}

static void faults_are_armed_as_the_parameter_says(void **state)
{
    (void)state;
    needs_faults();
    fake_params("FAULT", "rank=1,phase=peers,act=explode", NULL);
    fake_ranks_bare(2, refuse_fault, NULL);
    fake_params("FAULT", "rank=1,phase=call,op=2,act=delay:30", NULL);
    fake_ranks(2, late_in_the_second_call, NULL);
}

/* Calls that are not cached: alone, on a stream, in a group; and one that is. */
static void fail_to_plan(struct fake_rank *r)
{
    const int *form = r->arg;
    size_t counts[3] = { 1, 2, 3 }, displs[3] = { 0, 1, 3 };
    int x[3] = { 1, 1, 1 }, y[6];
    rondo_stream stream = NULL;
    rondo_status status;
    FAKE_OK(r, rondo_stream_create(&stream));
    status = *form == 2 ? rondo_group_start() : RONDO_SUCCESS;
    status = status != RONDO_SUCCESS ? status
             : *form == 3
                 ? rondo_all_reduce(x, y, 3, RONDO_INT32, RONDO_SUM, r->comm, NULL)
                 : rondo_all_gatherv(x, y, counts, displs, RONDO_INT32, r->comm, *form == 1 ? stream : NULL);
    status = *form == 2 ? rondo_group_end() : status;
    status = *form == 1 && status == RONDO_SUCCESS ? rondo_stream_synchronize(stream) : status;
    FAKE_CHECK(r, status != RONDO_SUCCESS, "the call succeeds");
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), "rank 1") &&
                   fake_has(rondo_last_error(r->comm), "injected failure"),
               "%s", rondo_last_error(r->comm));
    FAKE_CHECK(r, rondo_barrier(r->comm, NULL) != RONDO_SUCCESS, "a barrier succeeds");
    (void)rondo_stream_destroy(stream); /* it says that a call of it failed */
}

static void a_rank_that_cannot_make_its_call_tells_the_others(void **state)
{
    (void)state;
    needs_faults();
    for (int form = 0; form < 4; form++) {
        fake_params("FAULT", "rank=1,phase=plan,act=fail", NULL);
        fake_ranks(3, fail_to_plan, &form);
    }
}

static void refuse_any_fault(struct fake_rank *r)
{
    rondo_comm *comm = NULL;
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm), RONDO_INVALID_ARGUMENT,
               "this build of Rondo has no fault injection");
}

static void a_build_without_faults_refuses_the_parameter(void **state)
{
    (void)state;
    if (has_faults) {
        skip();
    }
    fake_params("FAULT", "rank=1,phase=call,act=delay:1", NULL);
    fake_ranks_bare(2, refuse_any_fault, NULL);
}

static void live_and_die(struct fake_rank *r)
{
    int x = 1, y;
    rondo_stream stream;
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CALL(r, .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 100, .in_place = 1);
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_stream_destroy(stream));
}

static void one_life(int cycle)
{
    fake_params(NULL);
    fake_ranks(3, live_and_die, NULL);
    fake_ranks(3, abort_twice, NULL);
    if (has_faults) {
        fail_in(phases[cycle % (int)RONDO_COUNTOF(phases)], 3, cycle % 3);
    }
    fake_params("SHM_MODE", "file", NULL);
    fake_ranks(2, live_and_die, NULL);
}

static void nothing_is_left_behind(void **state)
{
    struct holdings before;
    (void)state;
    one_life(0);
    before = holdings_now();
    for (int cycle = 0; cycle < 30; cycle++) {
        one_life(cycle);
    }
    assert_int_equal(before.shared, 0);
    fake_holds(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_from_another_thread_ends_every_wait_within_a_second),
        cmocka_unit_test(abort_may_come_at_any_time_during_calls),
        cmocka_unit_test(a_second_abort_is_an_error),
        cmocka_unit_test(the_deadline_names_the_rank_that_did_not_call),
        cmocka_unit_test(a_collective_against_a_message_is_named_as_such),
        cmocka_unit_test(messages_that_pass_a_collective_are_no_error),
        cmocka_unit_test(communicators_in_opposite_orders_are_named_as_such),
        cmocka_unit_test(a_long_wait_is_reported_in_the_log),
        cmocka_unit_test(the_deadline_of_creation_names_the_missing_rank),
        cmocka_unit_test(a_failed_creation_is_the_same_error_on_all_ranks),
        cmocka_unit_test(faults_are_armed_as_the_parameter_says),
        cmocka_unit_test(a_rank_that_cannot_make_its_call_tells_the_others),
        cmocka_unit_test(a_build_without_faults_refuses_the_parameter),
        cmocka_unit_test(nothing_is_left_behind),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
