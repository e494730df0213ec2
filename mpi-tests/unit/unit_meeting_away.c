/* Meetings whose ranks are busy elsewhere for longer than a connection may be silent, in creations that do not
 * block; and whose creator runs out of descriptors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include "meeting_world.h"
#include "net/bootstrap/meeting_conn.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_that_were_busy_call_again, impatient, end),
        cmocka_unit_test_setup_teardown(the_table_waits_for_a_busy_rank, impatient, end),
        cmocka_unit_test_setup_teardown(the_table_waits_for_a_descriptor, full, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
