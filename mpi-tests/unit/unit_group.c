/* Groups over several streams, communicators and messages to itself: each rank chooses its own streams, and
 * calls run in the order in which they were made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "comm/comm.h"
#include "fake_ranks.h"

enum { STREAMS = 3, CALLS = 7, MOST = FAKE_LARGE(40000), MESSAGE = 1 << 20 };

/* ---- streams ---- */

struct streams {
    rondo_stream s[STREAMS]; /* the first is none */
};

static void streams_open(struct fake_rank *r, struct streams *streams)
{
    streams->s[0] = NULL;
    for (int i = 1; i < STREAMS; i++) {
        FAKE_OK(r, rondo_stream_create(&streams->s[i]));
    }
}

static void streams_close(struct fake_rank *r, struct streams *streams)
{
    for (int i = 1; i < STREAMS; i++) {
        FAKE_OK(r, rondo_stream_synchronize(streams->s[i]));
        FAKE_OK(r, rondo_stream_destroy(streams->s[i]));
    }
}

/* Each rank assigns its calls to random streams. */
static void mixed(struct fake_rank *r)
{
    static const size_t counts[] = { 1, 900, MOST };
    struct streams streams;
    struct fake_buffers buffers[CALLS];
    struct fake_call calls[CALLS];
    streams_open(r, &streams);
    for (unsigned round = 0; round < FAKE_ROUNDS(60); round++) {
        FAKE_OK(r, rondo_group_start());
        for (unsigned k = 0; k < CALLS; k++) {
            unsigned dice = (round * 131 + k * 17 + (unsigned)r->rank * 29) * 2654435761u >> 16;
            calls[k] = (struct fake_call){ .coll = (enum fake_coll)((round + k) % FAKE_NUM_COLLS),
                                           .type = RONDO_INT32,
                                           .count = counts[(round + k) % 3],
                                           .seed = round * CALLS + k,
                                           .rank = r->rank,
                                           .nranks = r->nranks };
            fake_call_prepare(&calls[k], &buffers[k]);
            FAKE_OK(r, fake_call_issue(&calls[k], &buffers[k], r->comm, streams.s[dice % STREAMS]));
        }
        FAKE_OK(r, rondo_group_end());
        for (int i = 1; i < STREAMS; i++) {
            FAKE_OK(r, rondo_stream_synchronize(streams.s[i]));
        }
        for (int k = 0; k < CALLS; k++) {
            const char *wrong = fake_call_check(&calls[k], &buffers[k]);
            FAKE_CHECK(r, wrong[0] == '\0', "round %u, call %d: %s", round, k, wrong);
        }
    }
    streams_close(r, &streams);
}

static void streams_do_not_change_the_order_of_a_groups_calls(void **state)
{
    (void)state;
    fake_params("BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K", NULL);
    for (int n = 1; n <= 4; n++) {
        fake_ranks(n, mixed, NULL);
    }
}

/* Data arrives only if both ranks also send. */
static void send_and_receive(struct fake_rank *r)
{
    struct streams streams;
    char *out = calloc(1, MESSAGE), *in = calloc(1, MESSAGE), *self = calloc(1, MESSAGE);
    int peer = 1 - r->rank;
    streams_open(r, &streams);
    memset(out, 1 + r->rank, MESSAGE);
    for (int round = 0; round < 6; round++) {
        rondo_stream mine = streams.s[round % STREAMS], other = streams.s[(round + 1) % STREAMS];
        memset(in, 0, MESSAGE);
        memset(self, 0, MESSAGE);
        FAKE_OK(r, rondo_group_start());
        FAKE_OK(r, rondo_send(out, MESSAGE, RONDO_UINT8, peer, r->comm, mine));
        FAKE_OK(r, rondo_send(out, MESSAGE, RONDO_UINT8, r->rank, r->comm, mine));
        FAKE_OK(r, rondo_recv(self, MESSAGE, RONDO_UINT8, r->rank, r->comm, other));
        FAKE_OK(r, rondo_recv(in, MESSAGE, RONDO_UINT8, peer, r->comm, other));
        FAKE_OK(r, rondo_group_end());
        for (int i = 1; i < STREAMS; i++) {
            FAKE_OK(r, rondo_stream_synchronize(streams.s[i]));
        }
        FAKE_CHECK(r, in[0] == 1 + peer && in[MESSAGE - 1] == 1 + peer, "round %d", round);
        FAKE_CHECK(r, self[0] == out[0] && self[MESSAGE - 1] == out[0], "round %d", round);
    }
    streams_close(r, &streams);
    free(out);
    free(in);
    free(self);
}

static void sends_and_receives_of_a_group_may_have_different_streams(void **state)
{
    (void)state;
    fake_params("BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K", NULL);
    fake_ranks(2, send_and_receive, NULL);
}

/* A stream keeps the order of its work around a group, and a group waits for earlier work of its streams. */
static void before_and_behind(struct fake_rank *r)
{
    enum { N = 2000 };
    struct streams streams;
    static _Thread_local int a[N], b[N];
    streams_open(r, &streams);
    for (int round = 0; round < 50; round++) {
        int n = r->nranks;
        for (int i = 0; i < N; i++) {
            a[i] = 1;
            b[i] = 2;
        }
        FAKE_OK(r, rondo_all_reduce(a, a, N, RONDO_INT32, RONDO_SUM, r->comm, streams.s[1]));
        FAKE_OK(r, rondo_all_reduce(b, b, N, RONDO_INT32, RONDO_SUM, r->comm, streams.s[2]));
        FAKE_OK(r, rondo_group_start());
        FAKE_OK(r, rondo_all_reduce(a, a, N, RONDO_INT32, RONDO_SUM, r->comm, streams.s[1]));
        FAKE_OK(r, rondo_all_reduce(b, b, N, RONDO_INT32, RONDO_SUM, r->comm, streams.s[2]));
        FAKE_OK(r, rondo_group_end());
        FAKE_OK(r, rondo_all_reduce(a, a, N, RONDO_INT32, RONDO_SUM, r->comm, streams.s[1]));
        FAKE_OK(r, rondo_stream_synchronize(streams.s[1]));
        FAKE_OK(r, rondo_stream_synchronize(streams.s[2]));
        FAKE_CHECK(r, a[0] == n * n * n && a[N - 1] == a[0], "round %d: %d", round, a[0]);
        FAKE_CHECK(r, b[0] == 2 * n * n && b[N - 1] == b[0], "round %d: %d", round, b[0]);
    }
    streams_close(r, &streams);
}

static void a_group_keeps_the_order_of_its_streams(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(3, before_and_behind, NULL);
}

/* ---- several communicators ---- */

/* Rank 0's group follows the work on A, which needs rank 1's second call; that call follows the work on B,
 * which is the group's. */
static void queued_before(struct fake_rank *r)
{
    rondo_comm *a, *b;
    rondo_stream stream;
    int x = 1, y = 1, z = 1;
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &a));
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &b));
    FAKE_OK(r, rondo_stream_create(&stream));
    for (int round = 0; round < 20; round++) {
        x = y = z = 1;
        if (r->rank == 0) {
            FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, a, stream));
            FAKE_OK(r, rondo_group_start());
            FAKE_OK(r, rondo_all_reduce(&y, &y, 1, RONDO_INT32, RONDO_SUM, a, NULL));
            FAKE_OK(r, rondo_all_reduce(&z, &z, 1, RONDO_INT32, RONDO_SUM, b, NULL));
            FAKE_OK(r, rondo_group_end());
            FAKE_OK(r, rondo_stream_synchronize(stream));
        } else {
            FAKE_OK(r, rondo_all_reduce(&z, &z, 1, RONDO_INT32, RONDO_SUM, b, NULL));
            FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, a, NULL));
            FAKE_OK(r, rondo_all_reduce(&y, &y, 1, RONDO_INT32, RONDO_SUM, a, NULL));
        }
        FAKE_CHECK(r, x == 2 && y == 2 && z == 2, "round %d: %d %d %d", round, x, y, z);
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
    FAKE_OK(r, rondo_comm_destroy(a));
    FAKE_OK(r, rondo_comm_destroy(b));
}

static void a_group_issues_all_before_it_waits_for_any(void **state)
{
    (void)state;
    fake_params("TIMEOUT", "100s", NULL);
    fake_ranks_bare(2, queued_before, NULL);
}

/* ---- operations ---- */

/* The second operation reuses the slot of the first. */
static void operations_in_turn(struct fake_rank *r)
{
    float half = 0.5f, x[3] = { 2, 4, 6 }, sum[3];
    int64_t five = 5, y = 1 + r->rank, total = 0;
    rondo_op op, again;
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_op_create_premul_sum(&op, &half, RONDO_FLOAT32, r->comm));
    FAKE_OK(r, rondo_all_reduce(x, sum, 3, RONDO_FLOAT32, op, r->comm, NULL));
    FAKE_OK(r, rondo_op_destroy(op, r->comm));
    FAKE_OK(r, rondo_op_create_premul_sum(&again, &five, RONDO_INT64, r->comm));
    FAKE_CHECK(r, again == op, "places are used again");
    FAKE_OK(r, rondo_all_reduce(&y, &total, 1, RONDO_INT64, again, r->comm, NULL));
    FAKE_OK(r, rondo_op_destroy(again, r->comm));
    FAKE_OK(r, rondo_group_end());
    FAKE_CHECK(r, sum[0] == (float)r->nranks && sum[2] == 3 * (float)r->nranks, "%g", (double)sum[0]);
    FAKE_CHECK(r, total == 5 * r->nranks * (r->nranks + 1) / 2, "%lld", (long long)total);
}

static void an_operation_may_be_destroyed_once_its_call_was_made(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int n = 1; n <= 3; n++) {
        fake_ranks(n, operations_in_turn, NULL);
    }
}

/* ---- calls that are refused ---- */

/* Only rank 0 makes a wrong call, then the right one: no rank may have counted the wrong one. */
static void refused(struct fake_rank *r)
{
    int x = 1, y = 0, in[2] = { 0, 0 }, out[2] = { 7, 8 };
    size_t one[2] = { 1, 1 }, at[2] = { 0, 1 }, other[2] = { 0, 1 };
    if (r->rank == 0) {
        FAKE_ERROR(r, rondo_all_to_allv(out, other, at, in, one, at, RONDO_INT32, r->comm, NULL),
                   RONDO_INVALID_USAGE, "must be equal");
        FAKE_OK(r, rondo_group_start());
        FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_send(&x, 1, RONDO_INT32, 1, r->comm, NULL));
        FAKE_OK(r, rondo_send(&x, 1, RONDO_INT32, 0, r->comm, NULL));
        FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "no partner");
    }
    FAKE_OK(r, rondo_all_to_allv(out, one, at, in, one, at, RONDO_INT32, r->comm, NULL));
    FAKE_CHECK(r, in[0] == 7 + r->rank && in[1] == 7 + r->rank);
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_OK(r, r->rank == 0 ? rondo_send(&x, 1, RONDO_INT32, 1, r->comm, NULL)
                            : rondo_recv(&in[0], 1, RONDO_INT32, 0, r->comm, NULL));
    FAKE_OK(r, rondo_group_end());
    FAKE_CHECK(r, y == 2 && (r->rank == 0 || in[0] == 1));
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 9);
}

static void a_rank_may_correct_a_refused_call(void **state)
{
    (void)state;
    fake_params("TIMEOUT", "100s", NULL);
    fake_ranks(2, refused, NULL);
}

/* What no allowed algorithm carries is refused on all ranks, and counted on none: as a blocking call, on a
 * stream, and in groups that have messages before it or behind it. */
static void refused_by_the_tuner(struct fake_rank *r)
{
    enum { TOO_LARGE = 1 << 20 };
    int32_t *x = calloc(TOO_LARGE, sizeof(*x)), y = 1;
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_ERROR(
        r, rondo_all_reduce(x, x, TOO_LARGE, RONDO_INT32, RONDO_SUM, r->comm, r->rank == 0 ? NULL : stream),
        RONDO_INVALID_USAGE, "RONDO_ALGO");
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 9);
    FAKE_OK(r, rondo_group_start());
    if (r->rank == 0) {
        FAKE_OK(r, rondo_all_reduce(x, x, TOO_LARGE, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_send(&y, 1, RONDO_INT32, 1, r->comm, NULL));
    } else {
        FAKE_OK(r, r->rank == 1 ? rondo_recv(&y, 1, RONDO_INT32, 0, r->comm, NULL) : RONDO_SUCCESS);
        FAKE_OK(r, rondo_all_reduce(x, x, TOO_LARGE, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    }
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "RONDO_ALGO");
    FAKE_OK(r, r->rank == 0   ? rondo_send(&y, 1, RONDO_INT32, 1, r->comm, NULL)
               : r->rank == 1 ? rondo_recv(&y, 1, RONDO_INT32, 0, r->comm, NULL)
                              : RONDO_SUCCESS);
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 9);
    FAKE_OK(r, rondo_stream_destroy(stream));
    free(x);
}

static void a_call_that_no_algorithm_carries_is_counted_nowhere(void **state)
{
    (void)state;
    fake_params("TIMEOUT", "100s", "ALGO", "allreduce:oneshot", "MAILBOX_SIZE", "16K", NULL);
    fake_ranks(3, refused_by_the_tuner, NULL);
}

static void to_itself_of_nothing(struct fake_rank *r)
{
    int32_t x = 5;
    FAKE_OK(r, rondo_send(NULL, 0, RONDO_INT32, r->rank, r->comm, NULL));
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_recv(NULL, 0, RONDO_INT32, r->rank, r->comm, NULL));
    FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_MAX, r->comm, NULL));
    FAKE_OK(r, rondo_group_end());
    FAKE_CHECK(r, x == 5);
}

static void a_message_to_itself_of_nothing_needs_no_partner(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(1, to_itself_of_nothing, NULL);
    fake_ranks(2, to_itself_of_nothing, NULL);
}

static void refused_children(struct fake_rank *r)
{
    int32_t x = 1;
    rondo_comm *child = NULL;
    for (int shrinks = 0; shrinks < 2; shrinks++) {
        FAKE_OK(r, rondo_group_start());
        if (shrinks) {
            FAKE_ERROR(r, rondo_comm_shrink(r->comm, NULL, -1, 0, NULL, &child), RONDO_INVALID_ARGUMENT, "");
        } else {
            FAKE_ERROR(r, rondo_comm_split(r->comm, -7, 0, NULL, &child), RONDO_INVALID_ARGUMENT, "colo");
        }
        FAKE_OK(r, rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_ARGUMENT, "");
        FAKE_CHECK(r, x == 1, "a group made its calls without a communicator that was refused");
    }
}

static void a_child_that_is_refused_ends_its_group(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, refused_children, NULL);
}

/* Two communicators in a group have one wrong call each; the first error counts. */
static void explained(struct fake_rank *r)
{
    rondo_comm *other;
    int32_t value = 1;
    FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &other));
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_all_reduce(&value, &value, 1, RONDO_INT32, RONDO_SUM, other, NULL));
    FAKE_ERROR(r, rondo_all_reduce(NULL, &value, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL),
               RONDO_INVALID_ARGUMENT, "is NULL");
    FAKE_ERROR(r, rondo_all_reduce(&value, &value, 1, (rondo_dtype)99, RONDO_SUM, other, NULL),
               RONDO_INVALID_ARGUMENT, "the type is 99");
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_ARGUMENT, "is NULL");
    FAKE_CHECK(r, fake_has(rondo_last_error(other), "is NULL"), "%s", rondo_last_error(other));
    FAKE_CHECK(r, fake_has(rondo_last_error(r->comm), "is NULL"), "%s", rondo_last_error(r->comm));
    FAKE_OK(r, rondo_all_reduce(&value, &value, 1, RONDO_INT32, RONDO_SUM, other, NULL));
    FAKE_OK(r, rondo_comm_destroy(other));
}

static void every_communicator_of_a_failed_group_holds_its_first_error(void **state)
{
    (void)state;
    fake_ranks(2, explained, NULL);
}

/* Rank 1 ends one communicator of rank 0's group once it has got what that sent on the other. */
static void ended_beside(struct fake_rank *r)
{
    rondo_comm *other;
    struct rondo_call call;
    int32_t value = 1, sum = 1;
    FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &other));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_group_start());
        FAKE_OK(r, rondo_all_reduce(&sum, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_broadcast(&value, &value, 1, RONDO_INT32, 0, other, NULL));
        FAKE_CHECK(r, rondo_group_end() != RONDO_SUCCESS, "no error of the communicator that ended");
        FAKE_CHECK(r, rondo_control_call_of(other->ctx->wiring.control, 0, 1, &call) == 1);
        FAKE_CHECK(r, call.state == 2, "a call that has ended is under way in the record");
    } else {
        FAKE_OK(r, rondo_broadcast(&value, &value, 1, RONDO_INT32, 0, other, NULL));
    }
    rondo_comm_abort(r->comm);
    r->comm = NULL;
    FAKE_OK(r, rondo_all_reduce(&value, &value, 1, RONDO_INT32, RONDO_SUM, other, NULL));
    FAKE_OK(r, rondo_comm_destroy(other));
}

static void calls_beside_one_that_fails_end_in_the_record(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, ended_beside, NULL);
}

/* Rank 2 of 2 is refused. Rank 1 never comes, for which rank 0's creation would wait. */
static void a_creation_that_is_refused_refuses_its_group(void **state)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_local *local;
    rondo_comm *first, *second;
    (void)state;
    fake_params(NULL);
    config.init_timeout_ms = 2000;
    assert_int_equal(rondo_local_create(2, &local), RONDO_SUCCESS);
    assert_int_equal(rondo_group_start(), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_create_local(local, 0, &config, &first), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_create_local(local, 2, &config, &second), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_group_end(), RONDO_INVALID_ARGUMENT);
    assert_true(fake_has(rondo_last_error(NULL), "no such rank"));
    assert_int_equal(rondo_local_destroy(local), RONDO_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_do_not_change_the_order_of_a_groups_calls),
        cmocka_unit_test(sends_and_receives_of_a_group_may_have_different_streams),
        cmocka_unit_test(a_group_keeps_the_order_of_its_streams),
        cmocka_unit_test(a_group_issues_all_before_it_waits_for_any),
        cmocka_unit_test(an_operation_may_be_destroyed_once_its_call_was_made),
        cmocka_unit_test(a_rank_may_correct_a_refused_call),
        cmocka_unit_test(a_call_that_no_algorithm_carries_is_counted_nowhere),
        cmocka_unit_test(a_message_to_itself_of_nothing_needs_no_partner),
        cmocka_unit_test(a_child_that_is_refused_ends_its_group),
        cmocka_unit_test(a_creation_that_is_refused_refuses_its_group),
        cmocka_unit_test(calls_beside_one_that_fails_end_in_the_record),
        cmocka_unit_test(every_communicator_of_a_failed_group_holds_its_first_error),
    };
    fake_watchdog(600);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
