/* The watchdog: a thread of a world, which finds works that take too long, moves what nobody waits for, and
 * tells the user about groups that have ended. */
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/wait.h"
#include "init/engine.h"
#include "pgroup/pgroup.h"

enum {
    LOOK_MS = 100,  /* between looks while there are works */
    CREATE_MS = 2,  /* while a communicator is being made, whose ranks may be busy elsewhere */
    IDLE_LOOKS = 10 /* looks without works before it sleeps until it is woken */
};
static const int64_t grace_ns = 2000000000; /* a creation has its own limit, and names who is missing */

static int64_t limit_of(const struct rondo_pgroup_work *work)
{
    int ready = __atomic_load_n(&work->slot->state, __ATOMIC_ACQUIRE) == PG_READY;
    int64_t grace = ready ? 0 : grace_ns;
    return work->timeout_ns > 0 && work->timeout_ns < INT64_MAX - grace ? work->timeout_ns + grace
                                                                        : INT64_MAX;
}

void pg_work_late(struct rondo_pgroup_work *work)
{
    struct pg_slot *slot = work->slot;
    char what[160], who[300] = "", text[RONDO_ERROR_TEXT];
    int64_t waited = rondo_now_ns() - work->begin_ns;
    if (waited < limit_of(work) || pg_work_poll(work)) {
        return;
    }
    pg_work_describe(work, what, sizeof(what));
    if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PG_READY) {
        rondo_engine_late(slot->comm, "a call of a process group is late", who, sizeof(who));
    } else {
        snprintf(who, sizeof(who), ": its communicator is not ready: have all of its ranks made the call?");
    }
    snprintf(text, sizeof(text), "rank %d on %s: %s is not done after %.1f s%s", work->group->rank,
             rondo_log_host(), what, (double)waited * 1e-9, who);
    pg_group_end(work->group, rondo_fail(RONDO_TIMEOUT, "%s", text), text);
}

/* ---- a look ---- */

/* A group whose user is to be told. With the world's lock. */
static struct rondo_pgroup *untold(const struct pg_world *world)
{
    struct rondo_pgroup *group = world->groups;
    while (group != NULL && (group->failure == RONDO_SUCCESS || group->told || group->on_error == NULL)) {
        group = group->next;
    }
    return group;
}

/* The same, with a reference; the caller tells. */
static struct rondo_pgroup *ended_group(struct pg_world *world)
{
    struct rondo_pgroup *group;
    pthread_mutex_lock(&world->lock);
    group = untold(world);
    if (group != NULL) {
        group->told = 1;
        group->refs++;
        world->telling = group;
    }
    pthread_mutex_unlock(&world->lock);
    return group;
}

static int look(struct pg_world *world)
{
    struct rondo_pgroup_work *works[PG_MOST_POLLED];
    struct rondo_pgroup *group;
    int n = pg_works_next(world, works);
    (void)pg_slots_move(world);
    for (int i = 0; i < n; i++) {
        pg_work_late(works[i]); /* a work that runs in a waiting thread, too */
        (void)pg_work_poll(works[i]);
        pg_work_unref(works[i]);
    }
    pg_slots_look(world);
    while ((group = ended_group(world)) != NULL) {
        char text[RONDO_ERROR_TEXT];
        snprintf(text, sizeof(text), "%s", group->failure_text);
        group->on_error(group->arg, group, group->failure, text);
        pthread_mutex_lock(&world->lock);
        world->telling = NULL;
        pthread_cond_broadcast(&world->wake);
        pthread_mutex_unlock(&world->lock);
        pg_group_unref(group);
    }
    return n;
}

/* ---- the thread ---- */

/* Sleep until the next look: not in the middle of a turn along the works. With the world's lock, without
 * which works may have been opened, and groups ended, since the last look. */
static void rest(struct pg_world *world, int idle)
{
    struct timespec at;
    if (world->at != NULL) {
        return;
    }
    if (idle > IDLE_LOOKS && world->open == NULL && world->ncreating == 0 && untold(world) == NULL) {
        world->asleep = 1;
        while (world->asleep && !world->stop) {
            pthread_cond_wait(&world->wake, &world->lock);
        }
        world->asleep = 0;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (world->ncreating > 0 ? CREATE_MS : LOOK_MS) * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&world->wake, &world->lock, &at);
}

static void *watchdog_main(void *arg)
{
    struct pg_world *world = arg;
    int idle = 0;
    pthread_mutex_lock(&world->lock);
    while (!world->stop) {
        rest(world, idle);
        if (world->stop) {
            break;
        }
        pthread_mutex_unlock(&world->lock);
        idle = look(world) > 0 ? 0 : idle + 1;
        pthread_mutex_lock(&world->lock);
    }
    pthread_mutex_unlock(&world->lock);
    pg_world_unref(world);
    return NULL;
}

rondo_status pg_watchdog_start(struct pg_world *world)
{
    rondo_status status;
    pthread_mutex_lock(&world->lock);
    world->refs++;
    status = rondo_thread_start(&world->thread, "rondo-pgroup", watchdog_main, world);
    world->refs -= status != RONDO_SUCCESS;
    world->has_thread = status == RONDO_SUCCESS;
    pthread_mutex_unlock(&world->lock);
    return status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_aloud(status);
}

void pg_watchdog_stop(struct pg_world *world)
{
    if (!world->has_thread) {
        return;
    }
    pthread_mutex_lock(&world->lock);
    world->stop = 1;
    pthread_cond_signal(&world->wake);
    pthread_mutex_unlock(&world->lock);
    if (pthread_equal(world->thread, pthread_self())) {
        pthread_detach(world->thread);
    } else {
        pthread_join(world->thread, NULL);
    }
}
