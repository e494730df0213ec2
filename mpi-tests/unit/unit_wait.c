/* base/wait.h and base/progress.h with a simulated clock, yield and sleep: tests do not depend on time. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/wait.h"

static int64_t clock_ns, yield_ns;
static int yields, sleeps, clock_looks;
static int64_t least_sleep, longest_sleep, last_sleep;

/* These replace libc's in the whole program. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    (void)id;
    clock_looks++;
    now->tv_sec = clock_ns / 1000000000;
    now->tv_nsec = clock_ns % 1000000000;
    return 0;
}

int sched_yield(void)
{
    yields++;
    clock_ns += yield_ns;
    return 0;
}

int nanosleep(const struct timespec *request, struct timespec *left)
{
    (void)left;
    last_sleep = request->tv_sec * 1000000000 + request->tv_nsec;
    least_sleep = sleeps == 0 || last_sleep < least_sleep ? last_sleep : least_sleep;
    longest_sleep = last_sleep > longest_sleep ? last_sleep : longest_sleep;
    sleeps++;
    clock_ns += last_sleep;
    return 0;
}

/* What the waits of a test see. */
static struct {
    int checks, check_fails_at;
    int runs, idle_runs, first_idle, moves;
    int64_t idle_ns; /* what an idle hook takes */
    rondo_status hook_status;
    int warnings, lates;
    int64_t waited_ns;
    rondo_status report_status;
} seen;

static rondo_status check(void *arg)
{
    (void)arg;
    return ++seen.checks == seen.check_fails_at ? RONDO_REMOTE_ERROR : RONDO_SUCCESS;
}

static rondo_status report(void *arg, int late, int64_t waited_ns)
{
    (void)arg;
    seen.warnings += !late;
    seen.lates += late;
    seen.waited_ns = waited_ns;
    return late ? seen.report_status : RONDO_INTERNAL_ERROR; /* used only when late */
}

static rondo_status hook(void *arg, int *moved)
{
    (void)arg;
    seen.runs++;
    *moved |= seen.moves;
    return seen.hook_status;
}

static rondo_status idle_hook(void *arg, int *moved)
{
    const struct rondo_wait *wait = arg;
    (void)moved;
    clock_ns += seen.idle_ns;
    seen.first_idle = seen.idle_runs++ == 0 ? (int)wait->rounds : seen.first_idle;
    return RONDO_SUCCESS;
}

static struct rondo_wait wait;
static struct rondo_progress progress;
static struct rondo_wait_policy policy;

static int reset(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    clock_ns = 5000000000;
    yield_ns = 300;
    yields = sleeps = clock_looks = 0;
    least_sleep = longest_sleep = last_sleep = 0;
    progress = (struct rondo_progress){ .nhooks = 0 };
    rondo_progress_add(&progress, (struct rondo_hook){ "net", hook, NULL, 0 });
    rondo_progress_add(&progress, (struct rondo_hook){ "mpi", idle_hook, &wait, 1 });
    policy =
        (struct rondo_wait_policy){ .spins = 0, .progress = &progress, .check = check, .report = report };
    rondo_wait_begin(&wait, &policy);
    return 0;
}

static void rounds(int n)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(rondo_wait_once(&wait), RONDO_SUCCESS);
    }
}

static void spinning_checks_every_128_rounds_and_does_not_yield(void **state)
{
    int looks = clock_looks;
    (void)state;
    policy.spins = 100000;
    rondo_wait_begin(&wait, &policy);
    rounds(1280);
    assert_int_equal(seen.checks, 10);
    assert_int_equal(seen.runs, 10);
    assert_int_equal(clock_looks - looks, 10);
    assert_int_equal(yields, 0);
}

static void without_spins_each_round_checks_and_yields(void **state)
{
    int looks = clock_looks;
    (void)state;
    rounds(1600);
    assert_int_equal(seen.checks, 1600);
    assert_int_equal(yields, 1600);
    assert_int_equal(seen.runs, 100);
    assert_int_equal(clock_looks - looks, 100);
    assert_int_equal(sleeps, 0);
}

static void spins_end_in_yields(void **state)
{
    (void)state;
    policy.spins = 256;
    rondo_wait_begin(&wait, &policy);
    rounds(255);
    assert_int_equal(yields, 0);
    rounds(100);
    assert_int_equal(yields, 100);
}

static void waits_that_yield_at_once(int n)
{
    for (int i = 0; i < n; i++) {
        int before = yields;
        rondo_wait_begin(&wait, &policy);
        rounds(1);
        assert_int_equal(yields - before, 1);
    }
}

static void a_wait_that_spins(void)
{
    int before = yields;
    rondo_wait_begin(&wait, &policy);
    rounds(63);
    assert_int_equal(yields - before, 0);
}

/* Another process ran: the next 16 waits yield at once, then one tries to spin again. While yields stay long,
 * up to 1024 waits do so. */
static void a_long_yield_suspends_spinning(void **state)
{
    struct rondo_oversubscription oversubscription = { 0 };
    (void)state;
    policy.spins = 64;
    policy.oversubscription = &oversubscription;
    rondo_wait_begin(&wait, &policy);
    rounds(100);
    assert_int_equal(oversubscription.waits, 0); /* short yields do not count */
    yield_ns = 50000;
    rounds(1);
    assert_int_equal(oversubscription.waits, 16);
    yield_ns = 300;
    waits_that_yield_at_once(16);
    a_wait_that_spins();
    yield_ns = 50000;
    rounds(10); /* a second wait, once */
    assert_int_equal(oversubscription.waits, 16);
    for (int n = 32; n <= 1024; n *= 2) {
        waits_that_yield_at_once(1);
        assert_int_equal(oversubscription.waits, n);
    }
    waits_that_yield_at_once(1);
    assert_int_equal(oversubscription.waits, 1024);
    yield_ns = 300;
    waits_that_yield_at_once(1024);
    a_wait_that_spins();
    assert_int_equal(oversubscription.doubled, 0);
}

/* MPI's hook may yield before the wait does. */
static void an_idle_hook_that_yields_long_suspends_spinning(void **state)
{
    struct rondo_oversubscription oversubscription = { 0 };
    (void)state;
    policy.spins = 100000;
    policy.oversubscription = &oversubscription;
    rondo_wait_begin(&wait, &policy);
    seen.idle_ns = 600;
    rounds(1280);
    assert_true(seen.idle_runs > 0);
    assert_int_equal(oversubscription.waits, 0);
    seen.idle_ns = 3000;
    rounds(128);
    assert_int_equal(oversubscription.waits, 16);
    waits_that_yield_at_once(16);
    a_wait_that_spins();
    seen.idle_ns = 4000000; /* MPI worked, or a process computed */
    rounds(2000);
    assert_int_equal(oversubscription.waits, 0);
}

/* A process that computes used up a slice: waits go on to spin, and forget that they yielded at once. */
static void a_yield_of_a_whole_slice_does_not(void **state)
{
    struct rondo_oversubscription oversubscription = { 0 };
    int before;
    (void)state;
    policy.spins = 64;
    policy.oversubscription = &oversubscription;
    rondo_wait_begin(&wait, &policy);
    yield_ns = 50000;
    rounds(64);
    assert_int_equal(oversubscription.waits, 16);
    yield_ns = 4000000;
    waits_that_yield_at_once(1);
    assert_int_equal(oversubscription.waits, 0);
    for (int i = 0; i < 3; i++) { /* the same wait spins between two such yields */
        before = yields;
        rounds(63);
        assert_int_equal(yields - before, 0);
        rounds(1);
        assert_int_equal(yields - before, 1);
    }
    rounds(1600); /* the rounds count on */
    assert_true(seen.idle_runs > 0);
    before = yields;
    rondo_wait_reset(&wait);
    rounds(63);
    assert_int_equal(yields - before, 0);
    rounds(1);
    assert_int_equal(yields - before, 1);
}

/* Where ranks share cores, that process may be one of them. */
static void without_spins_a_whole_slice_counts_as_well(void **state)
{
    struct rondo_oversubscription oversubscription = { 0 };
    (void)state;
    policy.oversubscription = &oversubscription;
    rondo_wait_begin(&wait, &policy);
    yield_ns = 4000000;
    rounds(3);
    assert_int_equal(yields, 3);
    assert_int_equal(oversubscription.waits, 16);
}

static int are_elsewhere, asked;
static int elsewhere(void *arg)
{
    (void)arg;
    asked++;
    return are_elsewhere;
}

/* The looks come before a round that checks and yields, and take the place of none. */
static void a_short_wait_for_others_elsewhere_looks_before_it_yields(void **state)
{
    int looks = clock_looks;
    (void)state;
    wait.elsewhere = elsewhere;
    are_elsewhere = 1;
    rounds(64);
    assert_int_equal(yields + seen.checks + clock_looks - looks, 0);
    rounds(1);
    assert_int_equal(yields, 1);
    assert_int_equal(seen.checks, 1);
    rounds(10);
    are_elsewhere = 0; /* one of them came to this core */
    rounds(1);
    assert_int_equal(yields, 2);
    are_elsewhere = 1;
    rounds(30 * 65);
    assert_int_equal(yields, 32);
    asked = 0;
    rounds(10); /* it is long by now */
    assert_int_equal(yields, 42);
    assert_int_equal(asked, 0);
    assert_int_equal(seen.checks, 42);
    rondo_wait_reset(&wait);
    rounds(64);
    assert_int_equal(yields, 42);
    policy.spins = 100;
    rondo_wait_begin(&wait, &policy);
    wait.elsewhere = elsewhere;
    asked = 0;
    rounds(200); /* a wait that spun has looked for long enough */
    assert_int_equal(yields, 42 + 101);
    assert_int_equal(asked, 0);
}

static void idle_hooks_run_only_in_a_long_wait(void **state)
{
    (void)state;
    rounds(1000);
    assert_int_equal(seen.idle_runs, 0);
    rounds(12800);
    assert_in_range(seen.first_idle, 1000, 1200);
    assert_in_range(seen.idle_runs, 99, 101);
}

static void idle_hooks_also_run_while_spinning(void **state)
{
    (void)state;
    policy.spins = 1000000;
    rondo_wait_begin(&wait, &policy);
    rounds(12800);
    assert_in_range(seen.first_idle, 1000, 1200);
    assert_in_range(seen.idle_runs, 90, 101);
}

static void sleeps_of_a_long_wait_grow_within_bounds(void **state)
{
    (void)state;
    policy.sleep_after_ns = 20000000;
    while (sleeps == 0) {
        rounds(1);
    }
    assert_in_range(clock_ns - 5000000000 - last_sleep, 20000000, 20000000 + 32 * yield_ns);
    assert_int_equal(last_sleep, 20000);
    rounds(2000);
    assert_int_equal(least_sleep, 20000);
    assert_int_equal(longest_sleep, 1000000);
    assert_int_equal(sleeps, 2001);
}

static void every_round_after_a_sleep_checks_everything(void **state)
{
    int idle, all;
    (void)state;
    policy.sleep_after_ns = 1;
    rounds(1000);
    assert_true(sleeps > 0);
    idle = seen.idle_runs;
    all = seen.runs;
    rounds(50);
    assert_int_equal(seen.runs - all, 50);
    assert_int_equal(seen.idle_runs - idle, 50);
}

static void a_wait_whose_hooks_move_does_not_sleep(void **state)
{
    (void)state;
    policy.sleep_after_ns = 1;
    seen.moves = 1;
    rounds(5000);
    assert_int_equal(sleeps, 0);
    assert_int_equal(yields, 5000 - 5000 / 16);
    seen.moves = 0;
    rounds(16);
    assert_true(sleeps > 0);
}

static void a_long_spinning_wait_sleeps_too(void **state)
{
    (void)state;
    policy.spins = 1000000000;
    rondo_wait_begin(&wait, &policy);
    policy.sleep_after_ns = 1000;
    rounds(128);
    clock_ns += 5000;
    rounds(128);
    assert_int_equal(sleeps, 1);
    assert_int_equal(yields, 0);
}

static void a_failed_check_or_hook_ends_the_wait(void **state)
{
    (void)state;
    seen.check_fails_at = 3;
    rounds(2);
    assert_int_equal(rondo_wait_once(&wait), RONDO_REMOTE_ERROR);
    seen.hook_status = RONDO_SYSTEM_ERROR;
    rounds(12);
    assert_int_equal(rondo_wait_once(&wait), RONDO_SYSTEM_ERROR); /* the 16th round */
    assert_int_equal(seen.idle_runs, 0);
}

static rondo_status wait_for_ever(void)
{
    rondo_status status;
    do {
        status = rondo_wait_once(&wait);
    } while (status == RONDO_SUCCESS);
    return status;
}

static void a_missed_deadline_is_reported_once_and_ends_the_wait(void **state)
{
    (void)state;
    policy.timeout_ns = 3000000;
    policy.warn_after_ns = 1000000;
    seen.report_status = RONDO_INVALID_USAGE;
    assert_int_equal(wait_for_ever(), RONDO_INVALID_USAGE);
    assert_int_equal(seen.warnings, 1);
    assert_int_equal(seen.lates, 1);
    assert_in_range(seen.waited_ns, 3000000, 3000000 + 32 * yield_ns);
}

static void a_report_without_an_error_still_ends_the_wait(void **state)
{
    (void)state;
    policy.timeout_ns = 3000000;
    seen.report_status = RONDO_SUCCESS;
    assert_int_equal(wait_for_ever(), RONDO_TIMEOUT);
    policy.report = NULL;
    rondo_wait_begin(&wait, &policy);
    rondo_error_clear();
    assert_int_equal(wait_for_ever(), RONDO_TIMEOUT);
    assert_non_null(strstr(rondo_error_text(), "deadline 0.003 s"));
}

static void the_deadline_applies_while_hooks_move_and_while_asleep(void **state)
{
    (void)state;
    policy.timeout_ns = 50000000;
    seen.report_status = RONDO_TIMEOUT;
    seen.moves = 1;
    assert_int_equal(wait_for_ever(), RONDO_TIMEOUT);
    seen.moves = 0;
    policy.sleep_after_ns = 1000;
    rondo_wait_begin(&wait, &policy);
    assert_int_equal(wait_for_ever(), RONDO_TIMEOUT);
    assert_in_range(seen.waited_ns, 50000000, 51000000);
}

static void a_reset_wait_has_a_new_deadline(void **state)
{
    int64_t began = clock_ns;
    (void)state;
    policy.timeout_ns = 1000000;
    seen.report_status = RONDO_TIMEOUT;
    for (int i = 0; i < 50; i++) {
        rounds(1000);
        rondo_wait_reset(&wait);
    }
    assert_true(clock_ns - began > 10 * policy.timeout_ns);
}

static int moves, moves_seen; /* of what a wait follows */
static int has_moved(void *arg)
{
    int before = moves_seen;
    (void)arg;
    moves_seen = moves;
    return moves != before;
}

static void the_deadline_counts_from_the_last_move_of_what_is_followed(void **state)
{
    int64_t began = clock_ns;
    (void)state;
    policy.timeout_ns = 1000000;
    policy.sleep_after_ns = 1000;
    seen.report_status = RONDO_TIMEOUT;
    rondo_wait_begin(&wait, &policy);
    rondo_wait_follow(&wait, has_moved, NULL);
    while (clock_ns - began < 20 * policy.timeout_ns) { /* another thread moves it */
        moves++;
        rounds(1);
    }
    assert_true(sleeps > 0); /* this thread has nothing to do */
    assert_int_equal(wait_for_ever(), RONDO_TIMEOUT);
    assert_in_range(seen.waited_ns, 1000000, 2000000);
}

static void progress_of_others_leaves_the_deadline(void **state)
{
    rondo_status status;
    (void)state;
    policy.timeout_ns = 1000000;
    policy.warn_after_ns = 500000;
    policy.sleep_after_ns = 1000;
    seen.report_status = RONDO_TIMEOUT;
    rondo_wait_begin(&wait, &policy);
    rondo_wait_follow(&wait, has_moved, NULL);
    do {
        clock_ns += 10000;
        status = rondo_wait_busy(&wait);
    } while (status == RONDO_SUCCESS);
    assert_int_equal(status, RONDO_TIMEOUT);
    assert_in_range(seen.waited_ns, 1000000, 1000000 + 10000 * RONDO_BUSY_ROUNDS);
    assert_int_equal(seen.warnings, 1);
    assert_int_equal(seen.checks, seen.runs);
    assert_int_equal(seen.checks, wait.clock_looks);
    assert_int_equal(sleeps + yields, 0);
}

static void a_busy_wait_notices_a_failed_check(void **state)
{
    (void)state;
    rondo_wait_follow(&wait, has_moved, NULL);
    seen.check_fails_at = 2;
    for (int i = 1; i < 2 * RONDO_BUSY_ROUNDS; i++) {
        assert_int_equal(rondo_wait_busy(&wait), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_wait_busy(&wait), RONDO_REMOTE_ERROR);
}

static void a_full_list_of_hooks_is_an_error(void **state)
{
    int arg;
    (void)state;
    for (int i = progress.nhooks; i < RONDO_MAX_HOOKS; i++) {
        assert_int_equal(rondo_progress_add(&progress, (struct rondo_hook){ "one", hook, &arg, 0 }),
                         RONDO_SUCCESS);
    }
    assert_int_equal(rondo_progress_add(&progress, (struct rondo_hook){ "many", hook, &arg, 0 }),
                     RONDO_INTERNAL_ERROR);
    assert_non_null(strstr(rondo_error_text(), "many"));
    assert_int_equal(progress.nhooks, RONDO_MAX_HOOKS);
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(spinning_checks_every_128_rounds_and_does_not_yield),
        TEST(without_spins_each_round_checks_and_yields),
        TEST(spins_end_in_yields),
        TEST(a_long_yield_suspends_spinning),
        TEST(an_idle_hook_that_yields_long_suspends_spinning),
        TEST(a_yield_of_a_whole_slice_does_not),
        TEST(without_spins_a_whole_slice_counts_as_well),
        TEST(a_short_wait_for_others_elsewhere_looks_before_it_yields),
        TEST(idle_hooks_run_only_in_a_long_wait),
        TEST(idle_hooks_also_run_while_spinning),
        TEST(sleeps_of_a_long_wait_grow_within_bounds),
        TEST(every_round_after_a_sleep_checks_everything),
        TEST(a_wait_whose_hooks_move_does_not_sleep),
        TEST(a_long_spinning_wait_sleeps_too),
        TEST(a_failed_check_or_hook_ends_the_wait),
        TEST(a_missed_deadline_is_reported_once_and_ends_the_wait),
        TEST(a_report_without_an_error_still_ends_the_wait),
        TEST(the_deadline_applies_while_hooks_move_and_while_asleep),
        TEST(a_reset_wait_has_a_new_deadline),
        TEST(the_deadline_counts_from_the_last_move_of_what_is_followed),
        TEST(progress_of_others_leaves_the_deadline),
        TEST(a_busy_wait_notices_a_failed_check),
        TEST(a_full_list_of_hooks_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
