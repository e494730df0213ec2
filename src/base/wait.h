/*
 * Waiting: spin with pause while ranks have cores of their own, yield at once when they do not (known
 * beforehand, or seen: a yield that took long), sleep after long waits; every wait looks at the abort flag,
 * turns the hooks and ends at its deadline. Decided once per communicator from the node's core sets.
 *
 *   struct rondo_wait wait;
 *   rondo_wait_begin(&wait, &policy);
 *   while (!ready) RONDO_TRY(rondo_wait_once(&wait));
 */
#ifndef RONDO_BASE_WAIT_H
#define RONDO_BASE_WAIT_H

#include "base/progress.h"

/*
 * A yield that took long has let somebody else run, or the machine did something of its own (an interrupt, a
 * virtual machine's host). So few waits do without spinning first, and twice as many each time that one of
 * these sees it again.
 */
struct rondo_crowd {
    uint32_t waits;   /* still to come that yield at once */
    uint32_t doubled; /* how often */
};

struct rondo_wait_policy {
    uint32_t spins;                  /* turns with pause before the first yield */
    struct rondo_crowd *crowd;       /* does somebody else want this core? NULL: not watched */
    int64_t sleep_after_ns;          /* 0: never sleep */
    int64_t timeout_ns;              /* 0: no deadline */
    int64_t warn_after_ns;           /* 0: never */
    struct rondo_progress *progress; /* may be NULL */
    /* Looked at every few turns, from any phase of the wait. @return RONDO_SUCCESS to go on. */
    rondo_status (*check)(void *arg);
    /* Called once at warn_after and once at the deadline (late = 1): log who waits for whom; @return the
     * status to end the wait with when late. */
    rondo_status (*report)(void *arg, int late, int64_t waited_ns);
    void *arg;
};

/* The first turns of a wait do not pause: a pause costs up to 140 cycles, about as much as the word that is
 * waited for takes to come. */
enum { RONDO_EAGER_TURNS = 24 };

struct rondo_wait {
    const struct rondo_wait_policy *policy;
    uint32_t turns, spins;
    int warned, crowded; /* crowded: it has seen so */
    int64_t start_ns;    /* 0 until the wait has become long enough to be worth reading the clock */
};

static inline void rondo_wait_begin(struct rondo_wait *wait, const struct rondo_wait_policy *policy)
{
    wait->policy = policy;
    wait->spins = policy->spins;
    if (RONDO_UNLIKELY(policy->crowd != NULL && policy->crowd->waits > 0)) {
        policy->crowd->waits--;
        wait->spins = 0;
    } else if (policy->crowd != NULL) {
        policy->crowd->doubled = 0;
    }
    wait->turns = 0;
    wait->warned = wait->crowded = 0;
    wait->start_ns = 0;
}

/** Something moved: the wait starts anew. */
static inline void rondo_wait_reset(struct rondo_wait *wait)
{
    wait->turns = 0;
    wait->start_ns = 0;
    wait->spins = wait->crowded ? 0 : wait->spins;
}

rondo_status rondo_wait_once_slow(struct rondo_wait *wait);

static inline void rondo_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/** One turn of a wait. @return RONDO_SUCCESS: look again. */
static inline rondo_status rondo_wait_once(struct rondo_wait *wait)
{
    if (RONDO_LIKELY(++wait->turns < wait->spins && (wait->turns & 127) != 0)) {
        if (wait->turns > RONDO_EAGER_TURNS) {
            rondo_cpu_relax();
        }
        return RONDO_SUCCESS;
    }
    return rondo_wait_once_slow(wait);
}

/** Monotonic time in ns. */
int64_t rondo_now_ns(void);

#endif
