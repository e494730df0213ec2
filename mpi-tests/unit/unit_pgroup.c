/* Process groups on host memory: ends while others look, calls inside calls, what idle ranks hear. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/inside.h"
#include "comm/comm.h"
#include "fake_ranks.h"
#include "in_child.h"
#include "pgroup/pgroup.h"
#include "rondo_pgroup.h"

enum { ALL = 3, PATIENCE_S = 20 };
static const int everybody[ALL] = { 0, 1, 2 };

/* The rank's default group, and one of the same ranks. */
struct member {
    rondo_pgroup *world, *group;
};

static void member_open(struct fake_rank *r, struct member *m, rondo_pgroup_config *config)
{
    config->timeout_ms = 1000LL * PATIENCE_S;
    FAKE_OK(r, rondo_pgroup_create(r->comm, config, &m->world));
    r->comm = NULL; /* the group's */
    FAKE_OK(r, rondo_pgroup_new(m->world, everybody, r->nranks, config, &m->group));
}

static void member_close(struct fake_rank *r, struct member *m)
{
    FAKE_OK(r, rondo_pgroup_destroy(m->group));
    FAKE_OK(r, rondo_pgroup_destroy(m->world));
}

static rondo_status sum(rondo_pgroup *group, int32_t *value, rondo_pgroup_work **work)
{
    return rondo_pgroup_all_reduce(group, value, value, 1, RONDO_INT32, RONDO_SUM, NULL, work);
}

/* Run ranks that meet at a barrier, which is their arg. */
static void run(int n, fake_rank_fn *fn)
{
    pthread_barrier_t meet;
    fake_params(NULL);
    pthread_barrier_init(&meet, NULL, (unsigned)n);
    fake_ranks(n, fn, &meet);
    pthread_barrier_destroy(&meet);
}

/* ---- ends ---- */

static void *end_group(void *group)
{
    pg_group_end(group, RONDO_REMOTE_ERROR, "the test ended the group");
    pg_group_unref(group);
    return NULL;
}

/* Is the communicator off its slot, and being aborted? */
static int is_taken(const struct pg_slot *slot)
{
    int taken;
    pthread_mutex_lock(&slot->group->world->lock);
    taken = slot->comm == NULL;
    pthread_mutex_unlock(&slot->group->world->lock);
    return taken;
}

static void destroyed_meanwhile(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    struct member m;
    config.watchdog = 0;
    member_open(r, &m, &config);
    if (r->rank == 0) { /* messages that nobody receives: their communicators are being made */
        int32_t value = 1;
        struct rondo_ctx *ctx;
        const rondo_comm *comm;
        pthread_t ender;
        for (int peer = 1; peer < ALL; peer++) {
            rondo_pgroup_work *work;
            FAKE_OK(r, rondo_pgroup_send(m.group, &value, 1, RONDO_INT32, peer, NULL, &work));
            FAKE_OK(r, rondo_pgroup_work_free(work));
        }
        comm = m.group->slots->comm;
        FAKE_OK(r, rondo_comm_visit(comm, "the test", &ctx)); /* the abort waits for this */
        pthread_mutex_lock(&m.world->world->lock);
        m.group->refs++;
        pthread_mutex_unlock(&m.world->world->lock);
        pthread_create(&ender, NULL, end_group, m.group); /* as the watchdog does */
        while (!is_taken(m.group->slots)) {
            fake_sleep_ms(1);
        }
        FAKE_OK(r, rondo_pgroup_destroy(m.group));
        rondo_comm_unvisit(comm);
        pthread_join(ender, NULL);
    } else {
        FAKE_OK(r, rondo_pgroup_destroy(m.group));
    }
    pthread_barrier_wait(r->arg);
    FAKE_OK(r, rondo_pgroup_destroy(m.world));
}

static void a_group_may_be_destroyed_while_another_thread_ends_it(void **state)
{
    (void)state;
    run(ALL, destroyed_meanwhile);
}

struct told {
    int begun, done; /* atomic */
};

static void tell_slowly(void *arg, rondo_pgroup *group, rondo_status status, const char *text)
{
    struct told *told = arg;
    (void)group, (void)status, (void)text;
    __atomic_store_n(&told->begun, 1, __ATOMIC_SEQ_CST);
    fake_sleep_ms(200);
    __atomic_store_n(&told->done, 1, __ATOMIC_SEQ_CST);
}

static void told_and_destroyed(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    struct told told = { 0 };
    struct member m;
    double end = fake_now() + PATIENCE_S;
    config.on_error = tell_slowly;
    config.arg = &told;
    member_open(r, &m, &config);
    pg_group_end(m.group, RONDO_REMOTE_ERROR, "the test ended the group");
    while (!__atomic_load_n(&told.begun, __ATOMIC_SEQ_CST) && fake_now() < end) {
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, __atomic_load_n(&told.begun, __ATOMIC_SEQ_CST));
    FAKE_OK(r, rondo_pgroup_destroy(m.group));
    FAKE_CHECK(r, __atomic_load_n(&told.done, __ATOMIC_SEQ_CST), "the watchdog may still use arg");
    FAKE_OK(r, rondo_pgroup_destroy(m.world));
}

static void destroy_waits_for_the_groups_on_error(void **state)
{
    (void)state;
    run(1, told_and_destroyed);
}

/* Rank 2 ends the group, in which rank 0 has no call and rank 1 one on another communicator. */
static void ended_elsewhere(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    rondo_status error = RONDO_SUCCESS, received = RONDO_REMOTE_ERROR;
    struct member m;
    int32_t value = 1;
    double end;
    member_open(r, &m, &config);
    FAKE_OK(r, sum(m.group, &value, NULL));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_pgroup_send(m.group, &value, 1, RONDO_INT32, 1, NULL, NULL));
    } else if (r->rank == 1) {
        FAKE_OK(r, rondo_pgroup_recv(m.group, &value, 1, RONDO_INT32, 0, NULL, NULL));
    }
    pthread_barrier_wait(r->arg);
    if (r->rank == 2) {
        FAKE_OK(r, rondo_pgroup_abort(m.group));
    }
    end = fake_now() + PATIENCE_S / 2;
    if (r->rank == 1) {
        received = rondo_pgroup_recv(m.group, &value, 1, RONDO_INT32, 0, NULL, NULL);
    }
    pthread_barrier_wait(r->arg);
    FAKE_CHECK(r, r->rank != 1 || fake_has(rondo_last_error(NULL), "rank 2 on"), "%d: %s", (int)received,
               rondo_last_error(NULL));
    while (r->rank == 0 && error == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_pgroup_error(m.group, &error));
    }
    FAKE_CHECK(r, r->rank != 0 || error == RONDO_REMOTE_ERROR, "error %d", (int)error);
    FAKE_CHECK(r, fake_now() < end, "it took too long");
    member_close(r, &m);
}

static void the_end_of_a_communicator_reaches_ranks_without_a_call_on_it(void **state)
{
    (void)state;
    run(ALL, ended_elsewhere);
}

/* ---- calls ---- */

static void interrupted(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    struct member m;
    rondo_pgroup_work *work, *other;
    int32_t value = 0;
    int done = 0;
    member_open(r, &m, &config);
    FAKE_OK(r, sum(m.group, &value, NULL)); /* the communicator is there */
    value = 1;
    if (r->rank == 1) {
        pthread_barrier_wait(r->arg);
    }
    FAKE_OK(r, sum(m.group, &value, &work)); /* rank 1 waits for what follows */
    if (r->rank == 0) {                      /* as in a callback, or a signal handler */
        FAKE_OK(r, rondo_inside_begin("the test"));
        rondo_status tested = rondo_pgroup_work_test(work, &done), waited = rondo_pgroup_work_wait(work, 0),
                     called = sum(m.group, &value, &other), aborted = rondo_pgroup_abort(m.group),
                     destroyed = rondo_pgroup_destroy(m.group);
        rondo_inside_end();
        pthread_barrier_wait(r->arg);
        FAKE_CHECK(r, tested == RONDO_INVALID_USAGE && !done, "%d", (int)tested);
        FAKE_CHECK(r, waited == RONDO_INVALID_USAGE, "%d", (int)waited);
        FAKE_CHECK(r, called == RONDO_INVALID_USAGE, "%d", (int)called);
        FAKE_CHECK(r, aborted == RONDO_INVALID_USAGE, "%d", (int)aborted);
        FAKE_CHECK(r, destroyed == RONDO_INVALID_USAGE, "%d", (int)destroyed);
    }
    FAKE_OK(r, rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT));
    FAKE_CHECK(r, value == 2, "the sum is %d", value);
    FAKE_OK(r, rondo_pgroup_work_free(work));
    member_close(r, &m);
}

static void calls_inside_other_calls_are_refused_and_end_no_work(void **state)
{
    (void)state;
    run(2, interrupted);
}

/* Rank 0 only looks for its message, which rank 1 sends after a sum of both, whose communicator is made. */
static void looked_for(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    struct member m;
    rondo_pgroup_work *added, *message;
    int32_t value = 1, got = 0;
    config.watchdog = 0;
    member_open(r, &m, &config);
    FAKE_OK(r, sum(m.group, &value, &added));
    if (r->rank == 0) {
        rondo_status status;
        double end = fake_now() + PATIENCE_S / 2;
        FAKE_OK(r, rondo_pgroup_recv(m.group, &got, 1, RONDO_INT32, 1, NULL, &message));
        do {
            status = rondo_pgroup_work_wait(message, 0);
        } while (status == RONDO_TIMEOUT && fake_now() < end);
        FAKE_CHECK(r, status == RONDO_SUCCESS && got == 2, "%s", rondo_last_error(NULL));
        FAKE_OK(r, rondo_pgroup_work_free(message));
    }
    FAKE_OK(r, rondo_pgroup_work_wait(added, RONDO_CONFIG_DEFAULT));
    FAKE_OK(r, rondo_pgroup_work_free(added));
    if (r->rank == 1) {
        FAKE_OK(r, rondo_pgroup_send(m.group, &value, 1, RONDO_INT32, 0, NULL, NULL));
    }
    member_close(r, &m);
}

static void a_wait_of_0_ms_moves_the_creation_of_other_communicators(void **state)
{
    (void)state;
    run(2, looked_for);
}

static void exchanged(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    struct member m;
    size_t counts[2] = { 1, 1 }, displs[2] = { 0, 1 };
    member_open(r, &m, &config);
    for (int made = 0; made < 2; made++) { /* before the communicator is made, and after */
        int32_t values[2] = { 10 * r->rank, 10 * r->rank + 1 };
        FAKE_OK(r, rondo_pgroup_all_to_allv(m.group, values, NULL, NULL, values, counts, displs, RONDO_INT32,
                                            NULL, NULL));
        FAKE_CHECK(r, values[0] == r->rank && values[1] == 10 + r->rank, "%d %d", values[0], values[1]);
    }
    member_close(r, &m);
}

static void all_to_allv_in_place_needs_no_send_counts(void **state)
{
    (void)state;
    run(2, exchanged);
}

static int ask_for_error(void *group)
{
    rondo_status error = RONDO_SUCCESS;
    return rondo_pgroup_error(group, &error) != RONDO_INVALID_USAGE || error != RONDO_SUCCESS;
}

static void forked(struct fake_rank *r)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    struct member m;
    member_open(r, &m, &config);
    FAKE_CHECK(r, in_child(ask_for_error, m.group) == 0);
    member_close(r, &m);
}

static void a_forked_child_is_refused_the_groups_error(void **state)
{
    (void)state;
    run(1, forked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_may_be_destroyed_while_another_thread_ends_it),
        cmocka_unit_test(destroy_waits_for_the_groups_on_error),
        cmocka_unit_test(the_end_of_a_communicator_reaches_ranks_without_a_call_on_it),
        cmocka_unit_test(calls_inside_other_calls_are_refused_and_end_no_work),
        cmocka_unit_test(a_wait_of_0_ms_moves_the_creation_of_other_communicators),
        cmocka_unit_test(all_to_allv_in_place_needs_no_send_counts),
        cmocka_unit_test(a_forked_child_is_refused_the_groups_error),
    };
    fake_watchdog(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
