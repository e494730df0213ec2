/* Calls that no program should make, and numbers that no program should pass, are errors: the communicators
 * of this and other processes go on. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
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

/* ---- streams ---- */

static void dead_stream(struct fake_rank *r)
{
    static const char *const says = "the stream was destroyed before this call";
    uint64_t zeros[16] = { 0 };
    rondo_stream dead, never = (rondo_stream)(void *)zeros, heir;
    int x = 1, sum = 0;
    FAKE_OK(r, rondo_stream_create(&dead));
    FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, dead));
    FAKE_OK(r, rondo_stream_destroy(dead));
    FAKE_CHECK(r, sum == r->nranks);
    FAKE_ERROR(r, rondo_stream_query(dead), RONDO_INVALID_ARGUMENT, says);
    FAKE_ERROR(r, rondo_stream_synchronize(dead), RONDO_INVALID_ARGUMENT, says);
    FAKE_ERROR(r, rondo_stream_destroy(dead), RONDO_INVALID_ARGUMENT, says);
    FAKE_ERROR(r, rondo_barrier(r->comm, dead), RONDO_INVALID_ARGUMENT, says);
    FAKE_ERROR(r, rondo_stream_query(never), RONDO_INVALID_ARGUMENT, "is not a stream of host memory");
    FAKE_ERROR(r, rondo_stream_query((rondo_stream)(void *)r->comm), RONDO_INVALID_ARGUMENT,
               "is not a stream");
    FAKE_OK(r, rondo_stream_create(&heir));
    FAKE_CHECK(r, heir != dead); /* a stale handle is recognised for a long time */
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, heir));
    FAKE_OK(r, rondo_stream_destroy(heir));
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_ARGUMENT, says);
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 100);
}

static void a_destroyed_stream_is_an_error_and_not_a_crash(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, dead_stream, NULL);
}

/* ---- forked children ---- */

enum { CHILD_S = 20 };

/* The exit code of the child is the line that failed. */
#define CHILD_SAYS(call, wanted, part)                                                            \
    do {                                                                                          \
        if ((call) != (wanted) || !fake_has(rondo_last_error(NULL), part)) _exit(__LINE__ & 255); \
    } while (0)
#define CHILD_REFUSED(call) CHILD_SAYS(call, RONDO_INVALID_USAGE, "this process is a forked child")
#define CHILD_OK(call) CHILD_SAYS(call, RONDO_SUCCESS, "")

/* ThreadSanitizer does not support threads in forked children. */
#ifdef __SANITIZE_THREAD__
enum { THREADS_AFTER_FORK = 0 };
#else
enum { THREADS_AFTER_FORK = 1 };
#endif

/* The child has communicators and streams of its own. */
static void child_own_calls(void)
{
    rondo_local *local;
    rondo_comm *comm[2];
    rondo_stream stream;
    int in[2] = { 1, 2 }, out[2] = { 0 };
    CHILD_OK(rondo_local_create(2, &local));
    CHILD_OK(rondo_stream_create(&stream));
    CHILD_OK(rondo_group_start());
    for (int i = 0; i < 2; i++) {
        CHILD_OK(rondo_comm_create_local(local, i, NULL, &comm[i]));
    }
    CHILD_OK(rondo_group_end());
    CHILD_OK(rondo_group_start());
    for (int i = 0; i < 2; i++) {
        CHILD_OK(
            rondo_all_reduce(&in[i], &out[i], 1, RONDO_INT32, RONDO_SUM, comm[i], i == 0 ? stream : NULL));
    }
    CHILD_OK(rondo_group_end());
    CHILD_OK(rondo_stream_destroy(stream));
    CHILD_OK(rondo_comm_destroy(comm[0]));
    CHILD_OK(rondo_comm_destroy(comm[1]));
    CHILD_OK(rondo_local_destroy(local));
    if (out[0] != 3 || out[1] != 3) {
        _exit(254);
    }
}

static void child_main(rondo_comm *comm, rondo_stream stream)
{
    int x[64] = { 0 }, n, exclude = 1;
    void *handle;
    rondo_status error;
    rondo_comm *made;
    rondo_op op;
    alarm(CHILD_S);
    CHILD_REFUSED(rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, comm, NULL)); /* a repeated call */
    CHILD_REFUSED(rondo_all_reduce(x, x, 64, RONDO_INT32, RONDO_SUM, comm, stream));
    CHILD_REFUSED(rondo_send(x, 1, RONDO_INT32, 1, comm, NULL));
    CHILD_REFUSED(rondo_barrier(comm, NULL));
    CHILD_REFUSED(rondo_comm_split(comm, 0, 0, NULL, &made));
    CHILD_REFUSED(rondo_comm_shrink(comm, &exclude, 1, RONDO_SHRINK_DEFAULT, NULL, &made));
    CHILD_REFUSED(rondo_comm_async_error(comm, &error));
    CHILD_REFUSED(rondo_comm_count(comm, &n));
    CHILD_REFUSED(rondo_comm_register(comm, x, sizeof(x), &handle));
    CHILD_REFUSED(rondo_op_create_premul_sum(&op, x, RONDO_INT32, comm));
    CHILD_REFUSED(rondo_stream_query(stream));
    CHILD_REFUSED(rondo_stream_synchronize(stream));
    CHILD_REFUSED(rondo_stream_destroy(stream));
    CHILD_REFUSED(rondo_comm_finalize(comm));
    CHILD_REFUSED(rondo_comm_abort(comm));
    CHILD_REFUSED(rondo_comm_destroy(comm));
    if (THREADS_AFTER_FORK) {
        child_own_calls();
    }
}

/* Rank 0 forks while a call of its is queued on a stream. */
static void fork_one(struct fake_rank *r)
{
    rondo_stream stream;
    int x = 1, sum = 0, status = 0;
    pid_t child = 0;
    for (int i = 0; i < 3; i++) {
        FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    }
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
        child = fork();
        if (child == 0) {
            child_main(r->comm, stream);
            _exit(0);
        }
        FAKE_CHECK(r, child > 0 && waitpid(child, &status, 0) == child);
        FAKE_CHECK(r, status == 0, "the child ended with %d or signal %d", WEXITSTATUS(status),
                   WTERMSIG(status));
    } else {
        fake_sleep_ms(50); /* any time is fine: most runs fork before this call */
        FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
    FAKE_CHECK(r, sum == r->nranks);
    FAKE_OK(r, rondo_all_reduce(&x, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 30000);
}

static void a_forked_child_is_refused_and_does_not_disturb_its_parent(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, fork_one, NULL);
}

/* ---- signal handlers ---- */

enum { HANDLED = 10 };

static struct interrupted {
    pthread_t thread; /* of rank 0 */
    rondo_comm *busy; /* of rank 0 */
    rondo_comm *idle; /* another one of that thread */
    rondo_local *local;
    rondo_stream stream;
    void *memory;
    rondo_status status[HANDLED];
    int grouped, nstatus, handled; /* handled: atomic */
} interrupted;

static void on_signal(int signal)
{
    struct interrupted *in = &interrupted;
    static int x[2];
    rondo_status error;
    rondo_comm *made;
    void *memory;
    (void)signal;
    in->nstatus = 0;
    in->status[in->nstatus++] = rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, in->busy, NULL);
    in->status[in->nstatus++] = rondo_all_reduce(x, x, 2, RONDO_INT32, RONDO_SUM, in->idle, NULL);
    in->status[in->nstatus++] = rondo_comm_async_error(in->idle, &error);
    in->status[in->nstatus++] = rondo_comm_abort(in->busy);
    in->status[in->nstatus++] = rondo_stream_synchronize(in->stream);
    in->status[in->nstatus++] = rondo_mem_alloc(&memory, 100);
    in->status[in->nstatus++] = rondo_mem_free(in->memory);
    in->status[in->nstatus++] = rondo_group_start();
    in->status[in->nstatus++] = rondo_group_end();
    in->status[in->nstatus++] = rondo_comm_create_local(in->local, 0, NULL, &made);
    __atomic_store_n(&in->handled, fake_has(rondo_last_error(NULL), "by a signal handler") ? 1 : -1,
                     __ATOMIC_RELEASE);
}

static rondo_status sum_of_ones(struct fake_rank *r, int *sum)
{
    int one = 1;
    if (interrupted.grouped) {
        rondo_group_start();
        rondo_all_reduce(&one, sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL);
        return rondo_group_end();
    }
    return rondo_all_reduce(&one, sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL);
}

/* Rank 1 makes its call when rank 0's signal handler has returned. */
static void interrupt_rank_0(struct fake_rank *r)
{
    int sum = 0, handled = 0;
    if (r->rank == 0) {
        interrupted.thread = pthread_self();
        interrupted.busy = r->comm;
    }
    for (int i = 0; i < 3; i++) {
        FAKE_OK(r, sum_of_ones(r, &sum));
    }
    while (r->rank == 1 && __atomic_load_n(&interrupted.busy->busy, __ATOMIC_ACQUIRE) == 0) {
        fake_sleep_ms(1);
    }
    if (r->rank == 1) {
        pthread_kill(interrupted.thread, SIGUSR1);
        while ((handled = __atomic_load_n(&interrupted.handled, __ATOMIC_ACQUIRE)) == 0) {
            fake_sleep_ms(1);
        }
    }
    FAKE_OK(r, sum_of_ones(r, &sum));
    FAKE_CHECK(r, sum == 2 && handled >= 0);
    FAKE_OK(r, sum_of_ones(r, &sum));
}

static void a_signal_handlers_call_inside_a_call_is_refused(void **state)
{
    struct sigaction action = { .sa_handler = on_signal };
    (void)state;
    fake_params(NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int grouped = 0; grouped < 2; grouped++) {
        interrupted = (struct interrupted){ .grouped = grouped };
        assert_int_equal(rondo_local_create(1, &interrupted.local), RONDO_SUCCESS);
        assert_int_equal(rondo_comm_create_local(interrupted.local, 0, NULL, &interrupted.idle),
                         RONDO_SUCCESS);
        assert_int_equal(rondo_stream_create(&interrupted.stream), RONDO_SUCCESS);
        assert_int_equal(rondo_mem_alloc(&interrupted.memory, 100), RONDO_SUCCESS);
        fake_ranks(2, interrupt_rank_0, NULL);
        assert_int_equal(interrupted.nstatus, HANDLED);
        for (int i = 0; i < HANDLED; i++) {
            assert_int_equal(interrupted.status[i], RONDO_INVALID_USAGE);
        }
        assert_int_equal(rondo_mem_free(interrupted.memory), RONDO_SUCCESS);
        assert_int_equal(rondo_stream_destroy(interrupted.stream), RONDO_SUCCESS);
        assert_int_equal(rondo_comm_destroy(interrupted.idle), RONDO_SUCCESS);
        assert_int_equal(rondo_local_destroy(interrupted.local), RONDO_SUCCESS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_leaves_a_reused_handle_of_its_aborted_creation_alone),
        cmocka_unit_test(a_deadline_of_any_length_is_that_long_at_least),
        cmocka_unit_test(a_destroyed_stream_is_an_error_and_not_a_crash),
        cmocka_unit_test(a_forked_child_is_refused_and_does_not_disturb_its_parent),
        cmocka_unit_test(a_signal_handlers_call_inside_a_call_is_refused),
    };
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
