/* What a wait for queued calls and for groups counts as progress: deadlines, checks and aborts, while other
 * communicators or other threads move. Executors that say "moved" stand for those that do for long. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "base/types.h"
#include "comm/comm.h"
#include "fake_ranks.h"

enum { A, B, C, NUM_COMMS };
enum how { SYNCHRONIZE, BLOCKING, GROUP, NUM_HOWS };
/* Without the code that is tested, waits do not end: this ends them. */
static const double MOST_S = 20;

/* ---- an executor that always moves ---- */

static struct {
    const struct rondo_exec_ops *real;
    struct rondo_exec_ops ops;
    int only_mover;   /* only in calls of this thread does it move */
    pthread_t mover;  /* valid before only_mover is read as set */
    double ends;      /* it does so no more */
    int ended, moves; /* atomic */
} busy;

static rondo_status busy_progress(struct rondo_exec *exec, int *moved)
{
    int here = !busy.only_mover || pthread_equal(pthread_self(), busy.mover);
    if (fake_now() > busy.ends) {
        __atomic_store_n(&busy.ended, 1, __ATOMIC_RELEASE);
    } else if (here) {
        __atomic_add_fetch(&busy.moves, 1, __ATOMIC_RELAXED);
        *moved = 1;
    }
    return busy.real->progress(exec, moved);
}

static int busy_has_ended(void) { return __atomic_load_n(&busy.ended, __ATOMIC_ACQUIRE); }

/* Before the communicator's first call. */
static void make_busy(rondo_comm *comm, double seconds)
{
    busy.real = comm->ctx->running.exec_ops;
    busy.ops = *busy.real;
    busy.ops.progress = busy_progress;
    busy.only_mover = busy.ended = busy.moves = 0;
    busy.ends = fake_now() + seconds;
    comm->ctx->running.exec_ops = &busy.ops;
}

/* ---- two ranks, three communicators ---- */

struct test {
    enum how how;
    int first;                     /* of the communicators of a group */
    int a_ms;                      /* the deadline of A; the others have none */
    int done;                      /* rank 0 wants nothing more; atomic */
    rondo_comm *comm[NUM_COMMS];   /* of rank 0 */
    struct rondo_running *watched; /* rank 1 comes when its stalls have been counted; atomic */
};

static void comms_open(struct fake_rank *r, rondo_comm **comm)
{
    const struct test *test = r->arg;
    rondo_config config = RONDO_CONFIG_INIT;
    for (int i = 0; i < NUM_COMMS; i++) {
        config.timeout_ms = i == A ? test->a_ms : 0;
        FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, &config, &comm[i]));
    }
}

static void comms_abort(rondo_comm **comm)
{
    for (int i = 0; i < NUM_COMMS; i++) {
        if (comm[i] != NULL) {
            rondo_comm_abort(comm[i]);
        }
    }
}

static void comms_close(struct fake_rank *r, rondo_comm **comm)
{
    for (int i = 0; i < NUM_COMMS; i++) {
        FAKE_OK(r, rondo_comm_destroy(comm[i]));
    }
}

static int is_done(const struct test *test) { return __atomic_load_n(&test->done, __ATOMIC_ACQUIRE); }

static void set_done(struct test *test) { __atomic_store_n(&test->done, 1, __ATOMIC_RELEASE); }

/* The rank that does not come. */
static void stays_away(struct fake_rank *r, rondo_comm **comm)
{
    double end = fake_now() + MOST_S;
    while (!is_done(r->arg) && fake_now() < end) {
        fake_sleep_ms(1);
    }
    comms_abort(comm);
}

static int x[2], y[2], z[2]; /* of each rank */

static rondo_status reduce(int *value, rondo_comm *comm, rondo_stream stream)
{
    return rondo_all_reduce(value, value, 1, RONDO_INT32, RONDO_SUM, comm, stream);
}

/* Wait for what is queued on A, and but for SYNCHRONIZE for a further call. */
static rondo_status wait_for(enum how how, rondo_comm *comm, rondo_stream stream)
{
    rondo_status status;
    switch (how) {
    case SYNCHRONIZE: return rondo_stream_synchronize(stream);
    case BLOCKING: return reduce(&y[0], comm, NULL);
    default:
        rondo_group_start();
        status = reduce(&y[0], comm, NULL);
        return rondo_group_end() != RONDO_SUCCESS ? RONDO_TIMEOUT : status;
    }
}

/* ---- deadlines ---- */

/* C always moves. behind: A's call is behind one of B, which does not. */
static void deadline_beside(struct fake_rank *r, int behind)
{
    struct test *test = r->arg;
    rondo_comm *comm[NUM_COMMS];
    rondo_stream stream, other;
    rondo_status status;
    comms_open(r, comm);
    if (r->failure[0] != '\0' || r->rank == 1) {
        stays_away(r, comm);
        return;
    }
    make_busy(comm[C], MOST_S);
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_OK(r, rondo_stream_create(&other));
    FAKE_OK(r, reduce(&z[0], comm[C], other));
    if (behind) {
        FAKE_OK(r, reduce(&z[1], comm[B], stream));
    }
    FAKE_OK(r, reduce(&x[0], comm[A], stream));
    status = wait_for(test->how, comm[A], stream);
    FAKE_CHECK(r, !busy_has_ended(), "the deadline did not come while another communicator moved");
    FAKE_CHECK(r, status != RONDO_SUCCESS);
    FAKE_CHECK(r, comm[A]->ctx->life.failure == RONDO_TIMEOUT, "%s", rondo_last_error(comm[A]));
    FAKE_CHECK(r, comm[C]->ctx->life.failure == RONDO_SUCCESS);
    comms_abort(comm);
    (void)rondo_stream_destroy(stream);
    (void)rondo_stream_destroy(other);
    set_done(test);
}

static void beside(struct fake_rank *r) { deadline_beside(r, 0); }

static void behind_a_stuck_one(struct fake_rank *r) { deadline_beside(r, 1); }

static void a_deadline_comes_while_other_communicators_move(void **state)
{
    (void)state;
    fake_params("REPORT", "0", NULL);
    for (int how = 0; how < NUM_HOWS; how++) {
        struct test test = { .how = (enum how)how, .a_ms = 200 };
        fake_ranks_bare(2, beside, &test);
        if (how != SYNCHRONIZE) { /* this waits for B's call first, which has no deadline */
            test = (struct test){ .how = (enum how)how, .a_ms = 200 };
            fake_ranks_bare(2, behind_a_stuck_one, &test);
        }
    }
}

/* B's call moves for longer than A's deadline, and A's is behind it. Rank 1 has queued its calls of A, so
 * that these end as soon as B's has. */
static void behind_one_that_moves(struct fake_rank *r)
{
    struct test *test = r->arg;
    double lasts = 2.5e-3 * test->a_ms;
    rondo_comm *comm[NUM_COMMS];
    rondo_stream stream;
    comms_open(r, comm);
    if (r->failure[0] != '\0') {
        return;
    }
    FAKE_OK(r, rondo_stream_create(&stream));
    x[r->rank] = y[r->rank] = z[r->rank] = 1;
    if (r->rank == 0) {
        make_busy(comm[B], MOST_S);
        FAKE_OK(r, reduce(&z[0], comm[B], stream));
        FAKE_OK(r, reduce(&x[0], comm[A], stream));
        FAKE_OK(r, wait_for(test->how, comm[A], stream));
    } else {
        FAKE_OK(r, reduce(&x[1], comm[A], stream));
        FAKE_OK(r, reduce(&y[1], comm[A], stream));
        fake_sleep_ms((int)(lasts * 1e3));
        FAKE_OK(r, reduce(&z[1], comm[B], NULL));
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
    FAKE_CHECK(r, x[r->rank] == 2 && y[r->rank] == 2 && z[r->rank] == 2);
    comms_close(r, comm);
}

static void a_call_behind_one_that_moves_is_not_late(void **state)
{
    (void)state;
    fake_params("REPORT", "0", NULL);
    for (int how = BLOCKING; how < NUM_HOWS; how++) {
        struct test test = { .how = (enum how)how, .a_ms = 1000 };
        fake_ranks_bare(2, behind_one_that_moves, &test);
    }
}

static void *move_others(void *arg)
{
    struct test *test = arg;
    rondo_stream none;
    rondo_stream_create(&none);
    while (!is_done(test)) {
        rondo_stream_query(none);
        sched_yield();
    }
    rondo_stream_destroy(none);
    return NULL;
}

/* A thread of rank 0 moves A's call, and the one that waits for it never does. Rank 1 comes when that has
 * gone on for longer than the deadline. */
static void moved_by_another_thread(struct fake_rank *r)
{
    struct test *test = r->arg;
    rondo_comm *comm[NUM_COMMS];
    rondo_stream stream;
    pthread_t thread;
    comms_open(r, comm);
    if (r->failure[0] != '\0') {
        return;
    }
    x[r->rank] = y[r->rank] = 1;
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == 0) {
        make_busy(comm[A], MOST_S);
        pthread_create(&thread, NULL, move_others, test);
        busy.mover = thread;
        busy.only_mover = 1;
        FAKE_OK(r, reduce(&x[0], comm[A], stream));
        FAKE_OK(r, wait_for(test->how, comm[A], stream));
        if (test->how == SYNCHRONIZE) {
            FAKE_OK(r, reduce(&y[0], comm[A], NULL));
        }
        set_done(test);
        pthread_join(thread, NULL);
    } else {
        fake_sleep_ms(test->a_ms * 8 / 5);
        FAKE_OK(r, reduce(&x[1], comm[A], stream));
        FAKE_OK(r, reduce(&y[1], comm[A], stream));
        FAKE_OK(r, rondo_stream_synchronize(stream));
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
    FAKE_CHECK(r, x[r->rank] == 2 && y[r->rank] == 2);
    comms_close(r, comm);
}

static void a_call_that_another_thread_moves_is_not_late(void **state)
{
    (void)state;
    fake_params("REPORT", "0", NULL);
    for (int how = 0; how < NUM_HOWS; how++) {
        struct test test = { .how = (enum how)how, .a_ms = 1500 };
        fake_ranks_bare(2, moved_by_another_thread, &test);
    }
}

/* ---- groups of two communicators ---- */

static rondo_status group_of_two(rondo_comm **comm, int first)
{
    rondo_group_start();
    (void)reduce(&x[0], comm[first], NULL);
    (void)reduce(&y[0], comm[A + B - first], NULL);
    return rondo_group_end();
}

/* Both are stuck, and only A has a deadline. The wait does not sleep: that would make each round a full
 * one. */
static void one_deadline(struct fake_rank *r)
{
    struct test *test = r->arg;
    rondo_comm *comm[NUM_COMMS];
    comms_open(r, comm);
    if (r->failure[0] == '\0' && r->rank == 0) {
        FAKE_ERROR(r, group_of_two(comm, test->first), RONDO_TIMEOUT, "config.timeout_ms");
        set_done(test);
    }
    stays_away(r, comm);
}

static void each_communicator_of_a_group_has_its_deadline(void **state)
{
    static const char *const spins[] = { "0", "100000" };
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(spins); s++) {
        fake_params("REPORT", "0", "SLEEP_AFTER", "0", "SPIN", spins[s], NULL);
        for (int first = A; first <= B; first++) {
            struct test test = { .first = first, .a_ms = 200 };
            fake_ranks_bare(2, one_deadline, &test);
        }
    }
}

/* ---- checks ---- */

/* Rank 1 comes when rank 0's wait has looked for a stall. */
static void counts_anew(struct fake_rank *r)
{
    enum { EARLIER = 1 << 20 };
    struct test *test = r->arg;
    struct rondo_running *running = NULL;
    double end = fake_now() + MOST_S;
    rondo_comm *comm[NUM_COMMS];
    rondo_stream stream;
    comms_open(r, comm);
    if (r->failure[0] != '\0') {
        return;
    }
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == 0) {
        running = &comm[A]->ctx->running;
        running->stall_checks = EARLIER;
        __atomic_store_n(&test->watched, running, __ATOMIC_RELEASE);
        FAKE_OK(r, reduce(&x[0], comm[A], stream));
        FAKE_OK(r, rondo_stream_synchronize(stream));
        FAKE_CHECK(r, __atomic_load_n(&running->stall_checks, __ATOMIC_RELAXED) < EARLIER,
                   "the checks of earlier waits count");
    } else {
        while ((running == NULL || __atomic_load_n(&running->stall_checks, __ATOMIC_RELAXED) == EARLIER) &&
               fake_now() < end) {
            sched_yield();
            running = __atomic_load_n(&test->watched, __ATOMIC_ACQUIRE);
        }
        FAKE_OK(r, reduce(&x[1], comm[A], NULL));
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
    comms_close(r, comm);
}

static void each_wait_for_a_stream_counts_stalls_anew(void **state)
{
    struct test test = { .a_ms = 0 };
    (void)state;
    fake_params("REPORT", "0", NULL);
    fake_ranks_bare(2, counts_anew, &test);
}

/* ---- aborts ---- */

static void *abort_a(void *arg)
{
    struct test *test = arg;
    while (__atomic_load_n(&busy.moves, __ATOMIC_RELAXED) < 1000) {
        sched_yield();
    }
    rondo_comm_abort(test->comm[A]);
    return NULL;
}

/* A's own call always moves (first: A), or the other call of its group. */
static void aborted_beside(struct fake_rank *r)
{
    struct test *test = r->arg;
    rondo_comm *comm[NUM_COMMS];
    rondo_status status;
    pthread_t thread;
    comms_open(r, comm);
    if (r->failure[0] == '\0' && r->rank == 0) {
        make_busy(comm[test->first], MOST_S);
        test->comm[A] = comm[A];
        pthread_create(&thread, NULL, abort_a, test);
        status = test->how == GROUP ? group_of_two(comm, test->first) : reduce(&x[0], comm[A], NULL);
        pthread_join(thread, NULL);
        comm[A] = NULL;
        set_done(test);
        FAKE_CHECK(r, !busy_has_ended(), "the abort was not seen while the rank moved");
        FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s", rondo_status_string(status));
    }
    stays_away(r, comm);
}

static void an_abort_is_seen_while_the_rank_moves(void **state)
{
    static const struct test cases[] = { { .how = BLOCKING, .first = A },
                                         { .how = GROUP, .first = A },
                                         { .how = GROUP, .first = B } };
    (void)state;
    fake_params("REPORT", "0", NULL);
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct test test = cases[i];
        fake_ranks_bare(2, aborted_beside, &test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_comes_while_other_communicators_move),
        cmocka_unit_test(a_call_behind_one_that_moves_is_not_late),
        cmocka_unit_test(a_call_that_another_thread_moves_is_not_late),
        cmocka_unit_test(each_communicator_of_a_group_has_its_deadline),
        cmocka_unit_test(each_wait_for_a_stream_counts_stalls_anew),
        cmocka_unit_test(an_abort_is_seen_while_the_rank_moves),
    };
    fake_watchdog(600);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
