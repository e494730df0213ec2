/* Meetings whose ranks are busy elsewhere for longer than a connection may be silent, in creations that do
 * not block; whose creator runs out of descriptors; and whose table does not arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>
#include "meeting_world.h"
#include "net/bootstrap/meeting_ranks.h"

/* The creator looks once a second at connections that are silent. */
static const int64_t silent_ns = 300 * INT64_C(1000000), long_ns = 1500 * INT64_C(1000000);

static int impatient(void **state)
{
    rondo_meet_silent_ns = silent_ns;
    return remote(state);
}

static int full(void **state)
{
    creator_spares = 2;
    return remote(state);
}

static int end(void **state)
{
    rondo_meet_silent_ns = 10000 * INT64_C(1000000);
    creator_spares = -1;
    return creator_stop(state);
}

/* b: a rank that goes on meanwhile; NULL: none. */
static void be_busy(struct rondo_bootstrap *b)
{
    for (int64_t until = rondo_now_ns() + long_ns; rondo_now_ns() < until;) {
        assert_true(b == NULL || b->ops->test(b) == RONDO_IN_PROGRESS);
        usleep(10000);
    }
}

static void *meet(void *arg)
{
    struct rondo_bootstrap *b = arg;
    uint8_t mine = 0, all[4];
    rondo_status status = finish(b);
    status = status == RONDO_SUCCESS ? b->ops->allgather_start(b, &mine, all, 1) : status;
    status = status == RONDO_SUCCESS ? finish(b) : status;
    b->ended = status;
    b->ops->close(b, status == RONDO_SUCCESS);
    return (void *)(intptr_t)status;
}

static void all_meet(struct rondo_bootstrap *const *b, int n)
{
    pthread_t thread[4];
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&thread[r], NULL, meet, b[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        void *status;
        pthread_join(thread[r], &status);
        assert_int_equal((intptr_t)status, RONDO_SUCCESS);
    }
}

static struct rondo_bootstrap *call(struct rondo_meeting_id id, int rank, int nranks)
{
    struct rondo_bootstrap *b;
    assert_int_equal(rondo_bootstrap_meeting(&id, rank, nranks, &b), RONDO_SUCCESS);
    assert_int_equal(b->ops->open_start(b), RONDO_SUCCESS);
    return b;
}

/* The creator drops connections that say nothing: these ranks call again. */
static void ranks_that_were_busy_call_again(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b[2] = { call(id, 0, 2), call(id, 1, 2) };
    (void)state;
    be_busy(NULL);
    all_meet(b, 2);
}

static void the_table_waits_for_a_busy_rank(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b[2] = { begin(id, 0, 2), call(id, 1, 2) };
    (void)state;
    be_busy(b[1]);
    all_meet(b, 2);
}

static void the_table_waits_for_a_descriptor(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b[2] = { call(id, 0, 2), call(id, 1, 2) };
    (void)state;
    all_meet(b, 2);
}

/* Rank 0 of 2 has registered, with this address. @return its connection to the creator */
static struct rondo_meet_conn *rank_0_at(const struct rondo_meeting_id *id,
                                         const uint8_t at[RONDO_ADDR_BYTES])
{
    struct rondo_meet_register mine = { .rank = 0, .nranks = 2 };
    int64_t end_ns = rondo_now_ns() + DEADLINE_NS;
    struct rondo_meet_conn *conn;
    struct rondo_meet_head head;
    memcpy(mine.addr, at, sizeof(mine.addr));
    assert_int_equal(rondo_meet_connect(id, id->addr, 0, RONDO_MEET_ROOT, 1000, &conn), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_send(conn, RONDO_MEET_REGISTER, &mine, sizeof(mine), NULL, 0), RONDO_SUCCESS);
    while (rondo_meet_next(conn, &head) == NULL) {
        assert_true(rondo_now_ns() < end_ns);
        rondo_meet_move(conn, 1, NULL, NULL);
        usleep(1000);
    }
    assert_int_equal(head.kind, RONDO_MEET_ACCEPTED);
    return conn;
}

/* An address at which nobody listens, and which no other process gets meanwhile. @return its socket */
static int unheard_address(uint8_t addr[RONDO_ADDR_BYTES])
{
    union rondo_socket_addr at;
    socklen_t bytes;
    int listener, fd;
    assert_int_equal(rondo_meet_listen(&listener, addr), RONDO_SUCCESS);
    close(listener);
    memcpy(&at, addr, sizeof(at));
    bytes = rondo_socket_addr_bytes(&at);
    at.in6.sin6_port = 0; /* any; IPv4 has it at the same place */
    fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, &at.any, bytes), 0);
    assert_int_equal(getsockname(fd, &at.any, &bytes), 0);
    memcpy(addr, &at, bytes);
    return fd;
}

static void the_end_of_rank_0_is_told(void **state)
{
    struct rondo_meeting_id id = new_id();
    uint8_t addr[RONDO_ADDR_BYTES];
    struct rondo_meet_conn *conn;
    struct rondo_bootstrap *b;
    int unheard = unheard_address(addr);
    (void)state;
    conn = rank_0_at(&id, addr);
    b = call(id, 1, 2);
    assert_int_equal(finish(b), RONDO_REMOTE_ERROR);
    close(unheard);
    assert_non_null(strstr(rondo_error_text(), "rank 0 ("));
    assert_non_null(strstr(rondo_error_text(), "cannot be reached by the process that made"));
    b->ended = RONDO_REMOTE_ERROR;
    b->ops->close(b, 0);
    rondo_meet_free(conn);
}

/* Rank 0 takes the table, and does not pass it on. */
static void a_table_that_is_late_is_no_used_id(void **state)
{
    struct rondo_meeting_id id = new_id();
    int64_t end_ns = rondo_now_ns() + DEADLINE_NS;
    uint8_t addr[RONDO_ADDR_BYTES];
    struct rondo_meet_ranks zero;
    struct rondo_meet_conn *conn;
    struct rondo_bootstrap *b;
    int ranks[4], n = 0;
    rondo_status status;
    (void)state;
    assert_int_equal(rondo_meet_ranks_init(&zero, 0, 1), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_listen(&zero.listener, addr), RONDO_SUCCESS);
    zero.id = id;
    conn = rank_0_at(&id, addr);
    b = call(id, 1, 2);
    while (zero.conns == NULL || zero.conns->state != RONDO_MEET_ENDED) {
        assert_true(rondo_now_ns() < end_ns);
        assert_int_equal(b->ops->test(b), RONDO_IN_PROGRESS);
        assert_int_equal(rondo_meet_ranks_move(&zero), RONDO_SUCCESS);
        usleep(1000);
    }
    for (int i = 0; i < 20; i++) { /* the creator lets it go */
        assert_int_equal(b->ops->test(b), RONDO_IN_PROGRESS);
        usleep(1000);
    }
    do { /* until then it knows who is missing */
        assert_true(rondo_now_ns() < end_ns);
        usleep(1000);
        status = b->ops->missing(b, ranks, 4, &n);
    } while (status == RONDO_IN_PROGRESS || status == RONDO_SUCCESS);
    assert_int_equal(status, RONDO_TIMEOUT);
    assert_non_null(strstr(rondo_error_text(), "it comes from rank 0, which"));
    b->ended = status;
    b->ops->close(b, 0);
    rondo_meet_free(conn);
    rondo_meet_ranks_release(&zero);
}

static const uint64_t *secret_of(void *arg, const struct rondo_auth_hello *hello)
{
    (void)hello;
    return arg;
}

/* Rank 0 ends after its welcome, before the table is written. */
static void a_table_is_not_delivered_to_who_has_ended(void **state)
{
    struct rondo_meeting_id id = { .secret = { 1, 2 } };
    const int64_t end_ns = rondo_now_ns() + DEADLINE_NS;
    struct rondo_meet_conn *root, *zero = NULL;
    uint8_t addr[RONDO_ADDR_BYTES];
    int listener;
    (void)state;
    assert_int_equal(rondo_meet_listen(&listener, addr), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_connect(&id, addr, RONDO_MEET_ROOT, 0, 0, &root), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_send(root, RONDO_MEET_TABLE, addr, sizeof(addr), NULL, 0), RONDO_SUCCESS);
    root->finishes = 1;
    while (zero == NULL || zero->state != RONDO_MEET_WELCOMED) {
        assert_true(rondo_now_ns() < end_ns);
        if (root->state == RONDO_MEET_CONNECTING) {
            rondo_meet_move(root, 1, NULL, NULL);
        }
        if (zero == NULL) {
            assert_int_equal(rondo_meet_accept(listener, 0, &zero), RONDO_SUCCESS);
        } else {
            rondo_meet_move(zero, 1, secret_of, id.secret);
        }
        usleep(1000);
    }
    rondo_meet_free(zero);
    while (root->state != RONDO_MEET_ENDED) {
        assert_true(rondo_now_ns() < end_ns);
        rondo_meet_move(root, 1, NULL, NULL);
    }
    assert_int_equal(root->ended_in, RONDO_MEET_OPEN);
    assert_int_equal(root->finishes, 1);
    rondo_meet_free(root);
    close(listener);
}

static void the_oldest_failures_are_forgotten(void **state)
{
    static const uint8_t addr[RONDO_ADDR_BYTES] = { 1 };
    struct rondo_meeting_id first, id;
    (void)state;
    for (int i = 0; i < 65; i++) {
        id = new_id();
        first = i == 0 ? id : first;
        assert_int_equal(rondo_meeting_register(&id, 0, 2, addr), RONDO_SUCCESS);
        rondo_meeting_fail(id.name, id.serial, "it has failed");
    }
    assert_int_equal(rondo_meeting_register(&id, 1, 2, addr), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_meeting_register(&first, 1, 2, addr), RONDO_INVALID_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_that_were_busy_call_again, impatient, end),
        cmocka_unit_test_setup_teardown(the_table_waits_for_a_busy_rank, impatient, end),
        cmocka_unit_test_setup_teardown(the_table_waits_for_a_descriptor, full, end),
        cmocka_unit_test(the_end_of_rank_0_is_told),
        cmocka_unit_test_setup_teardown(the_end_of_rank_0_is_told, remote, end),
        cmocka_unit_test_setup_teardown(a_table_that_is_late_is_no_used_id, remote, end),
        cmocka_unit_test(a_table_is_not_delivered_to_who_has_ended),
        cmocka_unit_test(the_oldest_failures_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
