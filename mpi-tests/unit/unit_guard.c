/* Calls that no program should make, and numbers that no program should pass, are errors: the communicators
 * of this and other processes go on. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "fake_ranks.h"

/* ---- deadlines ---- */

static int64_t timeout_of(int64_t ms)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_local *local;
    rondo_comm *comm;
    int64_t ns;
    config.timeout_ms = ms;
    assert_int_equal(rondo_local_create(1, &local), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_create_local(local, 0, &config, &comm), RONDO_SUCCESS);
    ns = comm->ctx->running.policy.timeout_ns;
    assert_int_equal(rondo_comm_destroy(comm), RONDO_SUCCESS);
    assert_int_equal(rondo_local_destroy(local), RONDO_SUCCESS);
    return ns;
}

/* 2^64 ns are 18446744073709.6 ms: a product that wraps would be a deadline of 0.4 ms. */
static void a_deadline_of_any_length_is_that_long_at_least(void **state)
{
    (void)state;
    fake_params(NULL);
    assert_true(timeout_of(0) == 0);
    assert_true(timeout_of(1) == 1000000);
    assert_true(timeout_of(INT64_MAX / 1000000) == INT64_MAX / 1000000 * 1000000);
    assert_true(timeout_of(INT64_MAX / 1000000 + 1) == INT64_MAX);
    assert_true(timeout_of(18446744073710) == INT64_MAX);
    assert_true(timeout_of(INT64_MAX) == INT64_MAX);
}

/* ---- handles ---- */

struct reuse {
    rondo_comm *heir; /* has the handle of the aborted creation */
};

/* The oldest handle comes back after 1,024 others. */
static void *reuse_the_oldest_handle(void *arg)
{
    struct reuse *reuse = arg;
    rondo_local *local;
    rondo_status status = rondo_local_create(1, &local);
    for (int i = 0; i < 1024 && status == RONDO_SUCCESS; i++) {
        status = rondo_comm_create_local(local, 0, NULL, &reuse->heir);
        status = status == RONDO_SUCCESS ? rondo_comm_destroy(reuse->heir) : status;
    }
    reuse->heir = NULL;
    if (status == RONDO_SUCCESS) {
        rondo_comm_create_local(local, 0, NULL, &reuse->heir);
    }
    rondo_local_destroy(local);
    return NULL;
}

/* Runs first: no handle is in quarantine yet. */
static void a_group_leaves_a_reused_handle_of_its_aborted_creation_alone(void **state)
{
    struct reuse reuse = { 0 };
    rondo_local *local;
    rondo_comm *comm = NULL;
    pthread_t thread;
    (void)state;
    fake_params(NULL);
    assert_int_equal(rondo_local_create(1, &local), RONDO_SUCCESS);
    assert_int_equal(rondo_group_start(), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_create_local(local, 0, NULL, &comm), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_abort(comm), RONDO_SUCCESS);
    pthread_create(&thread, NULL, reuse_the_oldest_handle, &reuse);
    pthread_join(thread, NULL);
    assert_ptr_equal(reuse.heir, comm);
    assert_int_equal(rondo_group_end(), RONDO_INVALID_ARGUMENT);
    assert_int_equal(reuse.heir->busy, 0);
    assert_int_equal(rondo_comm_abort(reuse.heir), RONDO_SUCCESS);
    rondo_local_destroy(local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_leaves_a_reused_handle_of_its_aborted_creation_alone),
        cmocka_unit_test(a_deadline_of_any_length_is_that_long_at_least),
    };
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
