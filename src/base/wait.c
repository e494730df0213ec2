#include "base/wait.h"

#include <sched.h>
#include <time.h>

enum {
    MOST_LOOKS = 64,     /* for a rank that runs elsewhere: longer than another core takes to switch to it */
    LOOKING_ROUNDS = 32, /* of yielding, after which a wait does so no more */
    LOOK_EVERY = 16,     /* rounds of yielding between two checks of the hooks and the clock */
    IDLE_AFTER = 1000,   /* rounds after which a wait is long */
    IDLE_EVERY =
        128, /* rounds between two runs of the idle hooks; slow rounds while spinning are multiples of it */
    LONG_YIELD_NS = 2000, /* a yield that takes longer has let another process run; others take 0.2 to 1 us */
    SLICE_YIELD_NS = 500000, /* one that takes longer, a process that computes: slices last 0.7 ms or more */
    YIELDING_WAITS = 16,     /* after a yield of others, this many waits do not spin */
    MOST_DOUBLINGS = 6,
    MIN_SLEEP_NS = 20 * 1000,
    MAX_SLEEP_NS = 1000 * 1000,
};

int64_t rondo_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Warn once, or end the wait at its deadline. */
static rondo_status wait_report(struct rondo_wait *wait, int64_t waited_ns)
{
    const struct rondo_wait_policy *policy = wait->policy;
    if (policy->timeout_ns > 0 && waited_ns >= policy->timeout_ns) {
        rondo_status status = policy->report ? policy->report(policy->arg, 1, waited_ns) : RONDO_SUCCESS;
        return status != RONDO_SUCCESS
                   ? status
                   : rondo_fail(RONDO_TIMEOUT,
                                "gave up after waiting %.3f s (deadline %.3f s, RONDO_TIMEOUT)",
                                (double)waited_ns * 1e-9, (double)policy->timeout_ns * 1e-9);
    }
    if (policy->warn_after_ns > 0 && waited_ns >= policy->warn_after_ns && !wait->warned) {
        wait->warned = 1;
        if (policy->report) {
            (void)policy->report(policy->arg, 0, waited_ns); /* a warning never ends the wait */
        }
    }
    return RONDO_SUCCESS;
}

/* Sleep in proportion to the time waited, so that a sleep never prolongs a wait much. */
static void wait_sleep(int64_t over_ns)
{
    int64_t ns = over_ns / 32;
    ns = ns < MIN_SLEEP_NS ? MIN_SLEEP_NS : ns > MAX_SLEEP_NS ? MAX_SLEEP_NS : ns;
    nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL);
}

/* Note oversubscription once per wait: a long wait notices it again and again. */
static void see_others(struct rondo_wait *wait)
{
    struct rondo_oversubscription *oversubscription = wait->policy->oversubscription;
    if (!wait->noticed) {
        oversubscription->waits = YIELDING_WAITS << oversubscription->doubled;
        oversubscription->doubled += oversubscription->doubled < MOST_DOUBLINGS;
        wait->noticed = 1;
    }
}

/* The yield has lost a slice: spin anew. The rounds count on, for the hooks of a long wait. */
static void see_slice(struct rondo_wait *wait)
{
    struct rondo_oversubscription *oversubscription = wait->policy->oversubscription;
    oversubscription->waits = oversubscription->doubled = 0;
    wait->spins = wait->rounds + wait->policy->spins;
    wait->noticed = 0;
}

/* The hooks of long waits: MPI's may yield (mpi_yield_when_idle), and does so before this wait. */
static rondo_status run_idle(struct rondo_wait *wait, int *moved)
{
    int watched = wait->policy->oversubscription != NULL;
    int64_t before_ns = watched ? rondo_now_ns() : 0, took_ns;
    RONDO_TRY(rondo_progress_run(wait->policy->progress, 1, moved));
    took_ns = watched ? rondo_now_ns() - before_ns : 0;
    if (took_ns > LONG_YIELD_NS && took_ns <= SLICE_YIELD_NS) {
        see_others(wait);
    }
    return RONDO_SUCCESS;
}

/* Yield, and notice if another process ran meanwhile. */
static void give_way(struct rondo_wait *wait)
{
    int64_t before_ns, took_ns;
    if (wait->policy->oversubscription == NULL) {
        sched_yield();
        return;
    }
    before_ns = rondo_now_ns();
    sched_yield();
    took_ns = rondo_now_ns() - before_ns;
    if (took_ns > SLICE_YIELD_NS && wait->policy->spins > 0) {
        see_slice(wait);
    } else if (took_ns > LONG_YIELD_NS) {
        see_others(wait);
    }
}

/* Instead of a yield: @return 1: look again. It counts as no round. */
static int looks_on(struct rondo_wait *wait)
{
    if (wait->elsewhere == NULL || wait->rounds > LOOKING_ROUNDS || wait->looks == MOST_LOOKS ||
        !wait->elsewhere(wait->policy->arg)) {
        wait->looks = 0;
        return 0;
    }
    wait->looks++;
    wait->rounds--;
    rondo_cpu_relax();
    return 1;
}

/* @return how long what the wait follows has not moved. */
static int64_t still_for(struct rondo_wait *wait, int64_t now_ns)
{
    wait->clock_looks++;
    if (wait->has_moved(wait->followed) || wait->since_ns == 0) {
        wait->since_ns = now_ns;
    }
    return now_ns - wait->since_ns;
}

rondo_status rondo_wait_busy_slow(struct rondo_wait *wait)
{
    const struct rondo_wait_policy *policy = wait->policy;
    int64_t still_ns = still_for(wait, rondo_now_ns());
    int moved = 0;
    if (policy->check) {
        RONDO_TRY(policy->check(policy->arg));
    }
    if (policy->progress) {
        RONDO_TRY(rondo_progress_run(policy->progress, 0, &moved));
    }
    return wait_report(wait, still_ns);
}

rondo_status rondo_wait_once_slow(struct rondo_wait *wait)
{
    const struct rondo_wait_policy *policy = wait->policy;
    int spinning = wait->rounds < wait->spins;
    int moved = 0;
    int64_t waited_ns, now_ns;

    if (!spinning && looks_on(wait)) {
        return RONDO_SUCCESS;
    }

    if (policy->check) {
        RONDO_TRY(policy->check(policy->arg));
    }
    if (!spinning && wait->rounds % LOOK_EVERY != 0) {
        give_way(wait);
        return RONDO_SUCCESS;
    }
    if (policy->progress) {
        RONDO_TRY(rondo_progress_run(policy->progress, 0, &moved));
        if (wait->rounds >= IDLE_AFTER && wait->rounds % IDLE_EVERY == 0) {
            RONDO_TRY(run_idle(wait, &moved));
        }
    }
    now_ns = rondo_now_ns();
    if (wait->start_ns == 0) {
        wait->start_ns = now_ns;
    }
    waited_ns = now_ns - wait->start_ns;
    RONDO_TRY(wait_report(wait, wait->has_moved == NULL ? waited_ns : still_for(wait, now_ns)));
    if (moved) {
        return RONDO_SUCCESS;
    }
    if (policy->sleep_after_ns > 0 && waited_ns > policy->sleep_after_ns) {
        wait_sleep(waited_ns - policy->sleep_after_ns);
        wait->rounds |= IDLE_EVERY - 1; /* the round after a sleep checks everything */
    } else if (!spinning) {
        give_way(wait);
    }
    return RONDO_SUCCESS;
}
