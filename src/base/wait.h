/*
 * Waiting. A wait spins with pause while ranks have cores of their own. It yields at once when they do not
 * (known beforehand, or noticed by a yield that took long), and sleeps after a long time. Every wait checks
 * the abort flag, runs the progress hooks and ends at its deadline. The policy is decided once per
 * communicator, from the node's core sets.
 *
 * A yield helps only if those whom the wait is for run on this core: else it wakes one that has to wait, too,
 * and that one yields back. So where they are known to run elsewhere, a short wait looks some more first.
 *
 *   struct rondo_wait wait;
 *   rondo_wait_begin(&wait, &policy);
 *   while (!ready) RONDO_TRY(rondo_wait_once(&wait));
 *
 * A wait with rondo_wait_reset has a new deadline at each progress of its thread. Where that may be progress
 * of others, or other threads may make this one's, the wait follows what it waits for (rondo_wait_follow).
 */
#ifndef RONDO_BASE_WAIT_H
#define RONDO_BASE_WAIT_H

#include "base/progress.h"

/*
 * Oversubscription noticed at run time, by how long a yield takes.
 *
 * A yield of some microseconds has let a process run that soon gave the core back: it waits for others, as
 * this one does, perhaps for this one. So the next waits yield at once; at first only a few, because it may
 * have been an interruption, and twice as many each time one of them notices it again.
 *
 * A yield of a whole slice has let a process run that computes and waits for nobody. The other ranks have
 * cores of their own, so such a yield only loses a slice, and waits go on to spin before they yield.
 */
struct rondo_oversubscription {
    uint32_t waits;   /* waits that will yield at once */
    uint32_t doubled; /* how often their number was doubled */
};

struct rondo_wait_policy {
    uint32_t spins;                                  /* checks with pause before the first yield */
    struct rondo_oversubscription *oversubscription; /* NULL: do not watch for oversubscription */
    int64_t sleep_after_ns;                          /* 0: never sleep */
    int64_t timeout_ns;                              /* 0: no deadline */
    int64_t warn_after_ns;                           /* 0: never */
    struct rondo_progress *progress;                 /* may be NULL */
    /* Called every few checks, in any phase of the wait. @return RONDO_SUCCESS to continue. */
    rondo_status (*check)(void *arg);
    /* Called once at warn_after and once at the deadline (late = 1): log who waits for whom; @return the
     * status to end the wait with when late. */
    rondo_status (*report)(void *arg, int late, int64_t waited_ns);
    void *arg;
};

/* The first checks of a wait do not pause: a pause costs up to 140 cycles, about the time a word takes to
 * arrive. */
enum { RONDO_EAGER_ROUNDS = 24 };

struct rondo_wait {
    const struct rondo_wait_policy *policy;
    uint32_t rounds, spins;
    /* Do those whom it waits for run on other cores? Gets the policy's arg. NULL: that is not known. */
    int (*elsewhere)(void *arg);
    uint32_t looks;      /* since the last yield, for those that do */
    int warned, noticed; /* noticed: oversubscription, in this wait */
    int64_t start_ns;    /* 0 while the wait is too short to be worth reading the clock */
    /* rondo_wait_follow; NULL: nothing is followed. */
    int (*has_moved)(void *arg);
    void *followed;
    int64_t since_ns;     /* when it was last seen to have moved; 0: not looked yet */
    uint32_t clock_looks; /* at it and the clock: policies may take turns by this number */
    uint32_t busy;        /* rounds with progress */
};

static inline void rondo_wait_begin(struct rondo_wait *wait, const struct rondo_wait_policy *policy)
{
    wait->policy = policy;
    wait->elsewhere = NULL;
    wait->has_moved = NULL;
    wait->spins = policy->spins;
    if (RONDO_UNLIKELY(policy->oversubscription != NULL && policy->oversubscription->waits > 0)) {
        policy->oversubscription->waits--;
        wait->spins = 0;
    } else if (policy->oversubscription != NULL) {
        policy->oversubscription->doubled = 0;
    }
    wait->rounds = wait->looks = 0;
    wait->warned = wait->noticed = 0;
    wait->start_ns = 0;
}

/** There was progress: start the wait anew. */
static inline void rondo_wait_reset(struct rondo_wait *wait)
{
    wait->rounds = wait->looks = 0;
    wait->start_ns = 0;
    wait->spins = wait->noticed ? 0 : wait->spins < wait->policy->spins ? wait->spins : wait->policy->spins;
}

/**
 * Warnings and the deadline count from when has_moved last said so, whichever thread moved it; spinning and
 * sleeping go on to depend on rondo_wait_reset. Call it after rondo_wait_begin.
 * @param has_moved  has what this wait is for moved since the last look? Called whenever the clock is read;
 *                   the first answer is ignored.
 */
static inline void rondo_wait_follow(struct rondo_wait *wait, int (*has_moved)(void *arg), void *arg)
{
    wait->has_moved = has_moved;
    wait->followed = arg;
    wait->since_ns = 0;
    wait->clock_looks = wait->busy = 0;
}

rondo_status rondo_wait_once_slow(struct rondo_wait *wait);
rondo_status rondo_wait_busy_slow(struct rondo_wait *wait);

enum { RONDO_BUSY_ROUNDS = 32 };
/** In a wait that follows something: there was progress, perhaps of others only. As rondo_wait_reset, but
 * every RONDO_BUSY_ROUNDS times it makes the checks of rondo_wait_once, which may end the wait. */
static inline rondo_status rondo_wait_busy(struct rondo_wait *wait)
{
    rondo_wait_reset(wait);
    return RONDO_LIKELY(++wait->busy % RONDO_BUSY_ROUNDS != 0) ? RONDO_SUCCESS : rondo_wait_busy_slow(wait);
}

static inline void rondo_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/** Wait a little. @return RONDO_SUCCESS: check again. */
static inline rondo_status rondo_wait_once(struct rondo_wait *wait)
{
    if (RONDO_LIKELY(++wait->rounds < wait->spins && (wait->rounds & 127) != 0)) {
        if (wait->rounds > RONDO_EAGER_ROUNDS) {
            rondo_cpu_relax();
        }
        return RONDO_SUCCESS;
    }
    return rondo_wait_once_slow(wait);
}

/** Monotonic time in ns. */
int64_t rondo_now_ns(void);

enum { RONDO_NS_PER_MS = 1000000 };
/** Milliseconds in ns; INT64_MAX if they are more than that. ms: at least 0. */
static inline int64_t rondo_ms_to_ns(int64_t ms)
{
    return ms <= INT64_MAX / RONDO_NS_PER_MS ? ms * RONDO_NS_PER_MS : INT64_MAX;
}

#endif
