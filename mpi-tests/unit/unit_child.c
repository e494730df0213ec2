/* Split, with threads as ranks. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "init/child.h"
#include "net/control/control_impl.h"
#include "child_check.h"
#include "faults.h"
#include "rondo_pgroup.h"

/* ---- tags ---- */

static int by_value(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Messages with the tag of a bootstrap that has ended are dropped: a tag that repeats sometimes loses
 * records. */
static void tags_of_children_never_repeat(void **state)
{
    enum { SERIALS = 64, COLORS = 64, TAGS = SERIALS * (COLORS + 2) };
    uint64_t *tag = calloc(TAGS, sizeof(*tag));
    (void)state;
    assert_non_null(tag);
    for (uint64_t parent = 0; parent < 64; parent++) {
        int n = 0;
        for (uint64_t serial = 1; serial <= SERIALS; serial++) {
            int member = 0;
            for (int color = 0; color < COLORS; color++) {
                tag[n++] = rondo_child_tag(parent * 0x9e3779b97f4a7c15u, "color", serial, &color,
                                           sizeof(color));
            }
            tag[n++] = rondo_child_tag(parent * 0x9e3779b97f4a7c15u, "colors", serial, NULL, 0);
            tag[n++] = rondo_child_tag(parent * 0x9e3779b97f4a7c15u, "shrink", serial, &member,
                                       sizeof(member));
        }
        qsort(tag, (size_t)n, sizeof(*tag), by_value);
        for (int i = 1; i < n; i++) {
            assert_true(tag[i] != tag[i - 1]);
        }
    }
    free(tag);
}

/* ---- split ---- */

static void split_by_parity(struct fake_rank *r)
{
    int members[16], n = 0;
    rondo_comm *child = NULL;
    for (int q = r->nranks - 1; q >= 0; q--) { /* keys reverse the order */
        if (q % 2 == r->rank % 2) {
            members[n++] = q;
        }
    }
    FAKE_OK(r, rondo_comm_split(r->comm, r->rank % 2, -r->rank, NULL, &child));
    check_child(r, child, members, n);
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 10); /* the parent still works */
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void split_with_equal_keys(struct fake_rank *r)
{
    int members[16];
    rondo_comm *child = NULL, *grandchild = NULL;
    for (int q = 0; q < r->nranks; q++) {
        members[q] = q;
    }
    FAKE_OK(r, rondo_comm_split(r->comm, 7, 0, NULL, &child));
    check_child(r, child, members, r->nranks); /* by rank */
    FAKE_OK(r, rondo_comm_split(child, r->rank == 0 ? 1 : 0, r->rank, NULL, &grandchild));
    check_child(r, grandchild, r->rank == 0 ? members : members + 1, r->rank == 0 ? 1 : r->nranks - 1);
    FAKE_OK(r, rondo_comm_destroy(child)); /* children do not need their parents */
    check_child(r, grandchild, r->rank == 0 ? members : members + 1, r->rank == 0 ? 1 : r->nranks - 1);
    FAKE_OK(r, rondo_comm_destroy(grandchild));
}

static void split_without_colour(struct fake_rank *r)
{
    int members[16], out = r->rank == 1;
    rondo_comm *child = (rondo_comm *)members;
    for (int q = 0, n = 0; q < r->nranks; q++) {
        members[n] = q;
        n += q != 1;
    }
    FAKE_OK(r, rondo_comm_split(r->comm, out ? RONDO_SPLIT_NOCOLOR : 0, 0, NULL, &child));
    if (out) {
        FAKE_CHECK(r, child == NULL);
    } else {
        check_child(r, child, members, r->nranks - (r->nranks > 1));
        FAKE_OK(r, rondo_comm_destroy(child));
    }
}

static void splits_have_the_right_members(void **state)
{
    (void)state;
    fake_params("BUFFSIZE", "8K", NULL);
    for (int n = 1; n <= 5; n++) {
        fake_ranks(n, split_by_parity, NULL);
        fake_ranks(n, split_with_equal_keys, NULL);
        fake_ranks(n, split_without_colour, NULL);
    }
}

/* The first of two ranks gets a communicator of no ranks, as the split goes on. */
static void split_of_none(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *none = NULL, *child = NULL;
    rondo_pgroup *group = NULL;
    rondo_status error = RONDO_IN_PROGRESS;
    int n = -1;
    config.blocking = r->rank != 0;
    if (r->rank == 1) {
        pthread_barrier_wait(r->arg);
        FAKE_OK(r, rondo_comm_split(r->comm, 0, 0, &config, &child));
        FAKE_OK(r, rondo_comm_destroy(child));
        return;
    }
    error = rondo_comm_split(r->comm, RONDO_SPLIT_NOCOLOR, 0, &config, &none);
    pthread_barrier_wait(r->arg);
    while (error == RONDO_IN_PROGRESS) {
        FAKE_OK(r, rondo_comm_async_error(none, &error));
        sched_yield();
    }
    FAKE_OK(r, error);
    FAKE_OK(r, rondo_comm_count(none, &n));
    FAKE_CHECK(r, n == 0, "%d ranks", n);
    FAKE_ERROR(r, rondo_comm_split(none, 0, 0, NULL, &child), RONDO_INVALID_USAGE, "no ranks");
    FAKE_ERROR(r, rondo_comm_shrink(none, NULL, 0, 0, NULL, &child), RONDO_INVALID_USAGE, "no ranks");
    FAKE_ERROR(r, rondo_pgroup_create(none, NULL, &group), RONDO_INVALID_USAGE, "no ranks");
    FAKE_OK(r, rondo_comm_destroy(none));
}

static void a_communicator_of_no_ranks_is_only_destroyed(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    fake_params(NULL);
    pthread_barrier_init(&meet, NULL, 2);
    fake_ranks(2, split_of_none, &meet);
    pthread_barrier_destroy(&meet);
}

/* More splits at once than the parent's segment has places, of which the program polls the last one first. */
static void many_splits_at_once(struct fake_rank *r)
{
    enum { MANY = 2 * RONDO_SPLIT_SLOTS + 3 };
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child[MANY] = { NULL };
    const int members[3] = { 0, 1, 2 };
    config.blocking = 0;
    for (int i = 0; i < MANY; i++) {
        rondo_status begun = rondo_comm_split(r->comm, i % 4 == 3 && r->rank == 1 ? 1 : 0, 0, &config,
                                              &child[i]);
        FAKE_CHECK(r, begun == RONDO_IN_PROGRESS || begun == RONDO_SUCCESS);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        rondo_status error = RONDO_IN_PROGRESS;
        while (error == RONDO_IN_PROGRESS) {
            FAKE_OK(r, rondo_comm_async_error(child[i], &error));
            sched_yield();
        }
        FAKE_CHECK(r, error == RONDO_SUCCESS, "split %d: %s", i, rondo_status_string(error));
    }
    for (int i = 0; i < MANY; i++) {
        int n = -1;
        FAKE_OK(r, rondo_comm_count(child[i], &n));
        FAKE_CHECK(r, n == (i % 4 != 3 ? 3 : r->rank == 1 ? 1 : 2), "split %d has %d ranks", i, n);
        if (i % 4 != 3) {
            check_child(r, child[i], members, 3);
        }
        FAKE_OK(r, rondo_comm_destroy(child[i]));
    }
}

static void splits_wait_for_places_of_others(void **state)
{
    (void)state;
    fake_params("INIT_TIMEOUT", "100s", "BUFFSIZE", "8K", NULL);
    fake_ranks(3, many_splits_at_once, NULL);
}

/* A rank that is ready does not wait for those that have yet to read its links. */
static void split_and_leave(struct fake_rank *r)
{
    for (unsigned i = 0; i < 60; i++) {
        rondo_comm *child = NULL;
        if ((i + (unsigned)r->rank) % 3 == 0) {
            usleep(100 * (i % 4));
        }
        FAKE_OK(r, rondo_comm_split(r->comm, 0, 0, NULL, &child));
        FAKE_OK(r, rondo_comm_destroy(child));
    }
}

static void a_child_may_be_destroyed_at_once(void **state)
{
    (void)state;
    fake_params("INIT_TIMEOUT", "30s", NULL);
    fake_ranks(4, split_and_leave, NULL);
}

static void wrong_splits(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child = NULL;
    FAKE_ERROR(r, rondo_comm_split(r->comm, -2, 0, NULL, &child), RONDO_INVALID_ARGUMENT, "colour");
    FAKE_ERROR(r, rondo_comm_split(r->comm, 0, 0, NULL, NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_comm_split(NULL, 0, 0, NULL, &child), RONDO_INVALID_ARGUMENT, "NULL");
    config.magic = 5;
    FAKE_ERROR(r, rondo_comm_split(r->comm, 0, 0, &config, &child), RONDO_INVALID_ARGUMENT, "config");
    FAKE_CHECK(r, child == NULL);
    FAKE_OK(r, rondo_comm_split(r->comm, 0, 0, NULL, &child));
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void wrong_splits_are_errors(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, wrong_splits, NULL);
}

/* Two splits of one parent in a group, with the same colour; and a non-blocking split during another call of
 * the parent. */
static void splits_together(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child[2] = { NULL, NULL };
    rondo_status error = RONDO_IN_PROGRESS, begun;
    int up[3] = { 0, 1, 2 }, down[3] = { 2, 1, 0 };
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &child[0]));
    FAKE_OK(r, rondo_comm_split(r->comm, 0, -r->rank, NULL, &child[1]));
    FAKE_OK(r, rondo_group_end());
    check_child(r, child[0], up, 3);
    check_child(r, child[1], down, 3);
    FAKE_OK(r, rondo_comm_destroy(child[0]));
    FAKE_OK(r, rondo_comm_destroy(child[1]));
    config.blocking = 0;
    begun = rondo_comm_split(r->comm, 0, -r->rank, &config, &child[0]);
    FAKE_CHECK(r, begun == RONDO_IN_PROGRESS || begun == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 10);
    while (error == RONDO_IN_PROGRESS) {
        FAKE_OK(r, rondo_comm_async_error(child[0], &error));
    }
    FAKE_CHECK(r, error == RONDO_SUCCESS);
    check_child(r, child[0], down, 3);
    FAKE_OK(r, rondo_comm_destroy(child[0]));
}

static void several_splits_may_run_at_once(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int round = 0; round < 5; round++) {
        fake_ranks(3, splits_together, NULL);
    }
}

static void one_thread_can_split_for_all(void **state)
{
    enum { N = 4 };
    rondo_local *local;
    rondo_comm *comm[N], *child[N];
    int one = 1, sum[N];
    (void)state;
    fake_params(NULL);
    assert_int_equal(rondo_local_create(N, &local), RONDO_SUCCESS);
    for (int step = 0; step < 3; step++) {
        assert_int_equal(rondo_group_start(), RONDO_SUCCESS);
        for (int r = 0; r < N; r++) {
            rondo_status status =
                step == 0   ? rondo_comm_create_local(local, r, NULL, &comm[r])
                : step == 1 ? rondo_comm_split(comm[r], r == 3 ? RONDO_SPLIT_NOCOLOR : 0, 0, NULL, &child[r])
                : r == 3    ? RONDO_SUCCESS
                            : rondo_all_reduce(&one, &sum[r], 1, RONDO_INT32, RONDO_SUM, child[r], NULL);
            assert_int_equal(status, RONDO_SUCCESS);
        }
        assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    }
    assert_int_equal(sum[0], 3);
    assert_null(child[3]);
    for (int r = 0; r < N; r++) {
        assert_int_equal(r == 3 ? RONDO_SUCCESS : rondo_comm_destroy(child[r]), RONDO_SUCCESS);
        assert_int_equal(rondo_comm_destroy(comm[r]), RONDO_SUCCESS);
    }
    rondo_local_destroy(local);
}

/* Create the parent on all ranks; only then set INIT_TIMEOUT, and FAULT if the test has one. */
static void create_then_set(struct fake_rank *r, pthread_barrier_t *meet, const char *timeout,
                            const char *fault)
{
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &r->comm));
    pthread_barrier_wait(meet);
    if (r->rank == 0) { /* all ranks have the parent, and none is in a call */
        fake_params("INIT_TIMEOUT", timeout, fault != NULL ? "FAULT" : NULL, fault, NULL);
    }
    pthread_barrier_wait(meet);
}

static void split_but_for_one(struct fake_rank *r)
{
    rondo_comm *child = NULL;
    rondo_status status;
    create_then_set(r, r->arg, "200ms", NULL);
    if (r->rank != 1) {
        status = rondo_comm_split(r->comm, 0, 0, NULL, &child);
        pthread_barrier_wait(r->arg);
        /* Two deadlines pass; one rank may hear of it from the other. */
        FAKE_CHECK(r, (status == RONDO_TIMEOUT || status == RONDO_REMOTE_ERROR) && child == NULL, "%s",
                   rondo_status_string(status));
        FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "did not arrive, or do not answer: rank 1"), "%s",
                   rondo_last_error(NULL));
    } else {
        pthread_barrier_wait(r->arg); /* it stays until then */
    }
    FAKE_OK(r, rondo_comm_destroy(r->comm));
}

/* Three ranks that wait for each other at a barrier, their argument. */
static void three_that_meet(void (*body)(struct fake_rank *r))
{
    pthread_barrier_t meet;
    pthread_barrier_init(&meet, NULL, 3);
    fake_params(NULL);
    fake_ranks_bare(3, body, &meet);
    pthread_barrier_destroy(&meet);
}

static void a_split_names_the_rank_that_does_not_call(void **state)
{
    (void)state;
    three_that_meet(split_but_for_one);
}

/* Rank 2 dies as the others divide the parent without it, and rank 0, which knows, aborts its part. */
static void split_until_a_death(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child = NULL;
    rondo_status error = RONDO_IN_PROGRESS;
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &r->comm));
    config.blocking = 0;
    error = rondo_comm_split(r->comm, r->rank == 2 ? 1 : 0, 0, &config, &child);
    pthread_barrier_wait(r->arg); /* all have told their colours */
    for (int i = 0; i < 50 && r->rank == 1; i++) {
        FAKE_OK(r, rondo_comm_async_error(child, &error)); /* it goes on to wait for rank 0 */
        usleep(1000);
    }
    pthread_barrier_wait(r->arg);
    if (r->rank == 2) {
        rondo_control_end(r->comm->ctx->wiring.control, RONDO_REMOTE_ERROR, 2, RONDO_LOSS_DEAD,
                          "rank 2 of the parent exited");
    }
    pthread_barrier_wait(r->arg);
    if (r->rank == 0) {
        FAKE_CHECK(r, error == RONDO_IN_PROGRESS, "%s", rondo_status_string(error));
        FAKE_OK(r, rondo_comm_abort(child));
    }
    while (r->rank == 1 && error == RONDO_IN_PROGRESS) {
        FAKE_OK(r, rondo_comm_async_error(child, &error));
    }
    if (r->rank == 1) {
        FAKE_CHECK(r,
                   error == RONDO_REMOTE_ERROR && fake_has(rondo_last_error(child), "rank 2 of the parent"),
                   "%s: %s", rondo_status_string(error), rondo_last_error(child));
    }
    pthread_barrier_wait(r->arg);
    if (r->rank != 0 && child != NULL) {
        FAKE_OK(r, rondo_comm_abort(child));
    }
    FAKE_OK(r, rondo_comm_abort(r->comm));
}

static void an_aborted_split_names_the_rank_that_died(void **state)
{
    (void)state;
    three_that_meet(split_until_a_death);
}

/* ---- parents that end before their children are created ---- */

static void split_then_end_the_parent(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child = NULL, *small = NULL;
    rondo_status error;
    const int members[3] = { 0, 1, 2 }, gone = 2;
    config.blocking = 0;
    error = rondo_comm_split(r->comm, 0, 0, &config, &child);
    FAKE_CHECK(r, error == RONDO_IN_PROGRESS || error == RONDO_SUCCESS);
    usleep(r->rank == 0 ? 3000 : 0);
    FAKE_OK(r, rondo_comm_destroy(r->comm));
    r->comm = NULL;
    error = poll_child(child);
    FAKE_CHECK(r, error == RONDO_SUCCESS, "a split whose parent was destroyed: %s", rondo_last_error(child));
    check_child(r, child, members, 3);
    pthread_barrier_wait(r->arg); /* who aborts the child first would fail the others' calls */
    if (r->rank != gone) {        /* a shrink for use after an error goes on without its parent */
        error = rondo_comm_shrink(child, &gone, 1, RONDO_SHRINK_ABORT, &config, &small);
        FAKE_CHECK(r, error == RONDO_IN_PROGRESS || error == RONDO_SUCCESS);
        FAKE_OK(r, rondo_comm_abort(child));
        error = poll_child(small);
        FAKE_CHECK(r, error == RONDO_SUCCESS, "a shrink whose parent was aborted: %s",
                   rondo_last_error(small));
        check_child(r, small, members, 2);
        FAKE_OK(r, rondo_comm_destroy(small));
    } else {
        FAKE_OK(r, rondo_comm_abort(child));
    }
}

/* A program that gives up aborts its communicators in any order. */
static void abort_the_parent_first(struct fake_rank *r)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *split = NULL, *shrunk = NULL;
    rondo_status error;
    int gone = 1;
    config.blocking = 0;
    if (r->rank != 2) {
        error = rondo_comm_split(r->comm, 0, 0, &config, &split);
        FAKE_CHECK(r, error == RONDO_IN_PROGRESS || (r->rank != 0 && error == RONDO_REMOTE_ERROR),
                   "without rank 2: %s", rondo_status_string(error)); /* rank 0 may have aborted before */
    }
    if (r->rank == 0) {
        error = rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_DEFAULT, &config, &shrunk);
        FAKE_CHECK(r, error == RONDO_IN_PROGRESS, "without rank 2: %s", rondo_status_string(error));
        FAKE_OK(r, rondo_comm_abort(r->comm));
        error = poll_child(split);
        FAKE_CHECK(r, error == RONDO_REMOTE_ERROR, "a split whose parent was aborted: %s",
                   rondo_status_string(error));
        FAKE_OK(r, rondo_comm_abort(shrunk));
        FAKE_OK(r, rondo_comm_abort(split));
    } else {
        pthread_barrier_wait(r->arg);
        FAKE_OK(r, rondo_comm_abort(r->comm));
        if (split != NULL) {
            FAKE_OK(r, rondo_comm_abort(split));
        }
    }
    if (r->rank == 0) {
        pthread_barrier_wait(r->arg);
    }
    r->comm = NULL;
}

static void a_parent_may_end_before_its_children_are_created(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    fake_params("INIT_TIMEOUT", "60s", "BUFFSIZE", "8K", NULL);
    pthread_barrier_init(&meet, NULL, 3);
    for (int round = 0; round < 5; round++) {
        fake_ranks(3, split_then_end_the_parent, &meet);
    }
    fake_ranks(3, abort_the_parent_first, &meet);
    pthread_barrier_destroy(&meet);
}

/* Rank 0's call is refused before it reaches the others, which count it all the same. */
static void split_refused_on_one(struct fake_rank *r)
{
    const int members[3] = { 0, 1, 2 };
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child = NULL;
    config.init_timeout_ms = 300;
    if (r->rank == 0) {
        FAKE_ERROR(r, rondo_comm_split(r->comm, -7, 0, &config, &child), RONDO_INVALID_ARGUMENT, "negative");
    } else {
        FAKE_ERROR(r, rondo_comm_split(r->comm, 0, 0, &config, &child), RONDO_TIMEOUT, "rank 0");
    }
    pthread_barrier_wait(r->arg);
    FAKE_OK(r, rondo_comm_split(r->comm, 0, 0, NULL, &child));
    check_child(r, child, members, 3);
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void splits_go_on_after_one_that_a_rank_refused(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    fake_params("INIT_TIMEOUT", "10s", NULL);
    pthread_barrier_init(&meet, NULL, 3);
    fake_ranks(3, split_refused_on_one, &meet);
    pthread_barrier_destroy(&meet);
}

/* Rank 0 ends the ninth split, which it refuses, before the first, which had the same place. */
static void split_refused_before_others(struct fake_rank *r)
{
    enum { MANY = RONDO_SPLIT_SLOTS };
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child[MANY + 1] = { NULL };
    const int members[2] = { 0, 1 };
    rondo_status status;
    config.blocking = 0;
    if (r->rank == 1) {
        pthread_barrier_wait(r->arg);
    }
    for (int i = 0; i <= MANY; i++) {
        status = rondo_comm_split(r->comm, r->rank == 0 && i == MANY ? -7 : 0, 0, &config, &child[i]);
        FAKE_CHECK(r, status == RONDO_IN_PROGRESS || status == RONDO_SUCCESS ||
                          (r->rank == 0 && i == MANY && status == RONDO_INVALID_ARGUMENT));
    }
    if (r->rank == 0) {
        pthread_barrier_wait(r->arg);
    }
    for (int i = 0; i < MANY; i++) {
        status = poll_child(child[i]);
        FAKE_CHECK(r, status == RONDO_SUCCESS, "split %d: %s", i, rondo_last_error(child[i]));
        FAKE_OK(r, rondo_comm_destroy(child[i]));
    }
    if (r->rank == 1) {
        FAKE_OK(r, rondo_comm_abort(child[MANY]));
    }
    for (int i = 0; i < 2 * MANY; i++) { /* all places, twice */
        FAKE_OK(r, rondo_comm_split(r->comm, 0, 0, NULL, &child[0]));
        check_child(r, child[0], members, 2);
        FAKE_OK(r, rondo_comm_destroy(child[0]));
    }
}

static void splits_may_end_in_any_order(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    fake_params("INIT_TIMEOUT", "10s", NULL);
    pthread_barrier_init(&meet, NULL, 2);
    fake_ranks(2, split_refused_before_others, &meet);
    pthread_barrier_destroy(&meet);
}

/* ---- faults ---- */

/* The creation of a child fails on one rank: all ranks get the same error, and the parent still works. */
static void child_fails(struct fake_rank *r, char *text)
{
    rondo_comm *child = NULL;
    FAKE_ERROR(r, rondo_comm_split(r->comm, 0, -r->rank, NULL, &child), RONDO_INTERNAL_ERROR,
               "injected failure");
    FAKE_CHECK(r, child == NULL);
    snprintf(text, 512, "%s", rondo_last_error(NULL));
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 10);
}

struct fault_case {
    const char *phase;
    pthread_barrier_t meet;
    char text[3][512]; /* by rank */
};

static void create_then_fail(struct fake_rank *r)
{
    struct fault_case *c = r->arg;
    char fault[64];
    snprintf(fault, sizeof(fault), "rank=1,phase=%s,act=fail", c->phase);
    create_then_set(r, &c->meet, "10s", fault);
    child_fails(r, c->text[r->rank]);
    FAKE_OK(r, rondo_comm_destroy(r->comm));
}

static void a_failed_split_leaves_the_parent_usable(void **state)
{
    static const char *const phases[] = {
        "open", "peers", "graphs", "shapes", "connections", "ready", "hello"
    };
    (void)state;
    needs_faults();
    for (size_t p = 0; p < RONDO_COUNTOF(phases); p++) {
        struct fault_case c = { .phase = phases[p] };
        pthread_barrier_init(&c.meet, NULL, 3);
        fake_params(NULL);
        fake_ranks_bare(3, create_then_fail, &c);
        pthread_barrier_destroy(&c.meet);
        assert_true(strncmp(c.text[1], "rank 1 on ", 10) == 0);
        assert_string_equal(c.text[0], c.text[1]);
        assert_string_equal(c.text[2], c.text[1]);
    }
}

/* A rank that fails once all have told their colours tells those of its own, and no others. */
static void fail_in_colors(struct fake_rank *r)
{
    rondo_comm *child = NULL;
    const int members[1] = { 3 };
    create_then_set(r, r->arg, "30s", "rank=1,phase=colors,act=fail");
    if (r->rank == 3) {
        FAKE_OK(r, rondo_comm_split(r->comm, 1, 0, NULL, &child));
        check_child(r, child, members, 1);
        FAKE_OK(r, rondo_comm_destroy(child));
    } else {
        FAKE_ERROR(r, rondo_comm_split(r->comm, 0, -r->rank, NULL, &child),
                   r->rank == 1 ? RONDO_INTERNAL_ERROR : RONDO_REMOTE_ERROR, "injected failure in colors");
        FAKE_CHECK(r, strncmp(rondo_last_error(NULL), "rank 1 on ", 10) == 0, "%s", rondo_last_error(NULL));
    }
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 10);
    FAKE_OK(r, rondo_comm_destroy(r->comm));
}

static void a_split_that_fails_after_the_colours_ends_for_its_colour(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    needs_faults();
    pthread_barrier_init(&meet, NULL, 4);
    fake_params(NULL);
    fake_ranks_bare(4, fail_in_colors, &meet);
    pthread_barrier_destroy(&meet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_of_children_never_repeat),
        cmocka_unit_test(splits_have_the_right_members),
        cmocka_unit_test(splits_wait_for_places_of_others),
        cmocka_unit_test(a_communicator_of_no_ranks_is_only_destroyed),
        cmocka_unit_test(a_child_may_be_destroyed_at_once),
        cmocka_unit_test(wrong_splits_are_errors),
        cmocka_unit_test(several_splits_may_run_at_once),
        cmocka_unit_test(one_thread_can_split_for_all),
        cmocka_unit_test(a_split_names_the_rank_that_does_not_call),
        cmocka_unit_test(an_aborted_split_names_the_rank_that_died),
        cmocka_unit_test(a_parent_may_end_before_its_children_are_created),
        cmocka_unit_test(splits_go_on_after_one_that_a_rank_refused),
        cmocka_unit_test(splits_may_end_in_any_order),
        cmocka_unit_test(a_failed_split_leaves_the_parent_usable),
        cmocka_unit_test(a_split_that_fails_after_the_colours_ends_for_its_colour),
    };
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
