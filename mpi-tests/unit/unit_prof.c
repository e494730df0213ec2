/* prof/prof.h: steps that overlap, and the events that net devices give to them. Two plugins, of versions 3
 * and 7, count what they are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/net_event.h"
#include "prof/prof_impl.h"

enum { OLD, NEW, PLUGINS, KIND = 77 << 16 | 1, KEY = 5, MOST = 64, MOST_EVENTS = 20000 };

/* An event of a plugin; a handle. */
struct event {
    int plugin, type, open, updates, children;
    struct event *parent;
};

static struct {
    struct event event[MOST_EVENTS + 1];
    int n, bad;
    int states[PLUGINS][MOST],
        nstates[PLUGINS]; /* of ProxyOps of version 3, and of ProxySteps of version 7 */
} seen;

static struct rondo_prof prof;
static struct rondo_prof_plugin plugins[PLUGINS];

static int start(int plugin, void **handle, int type, void *parent)
{
    struct event *e = &seen.event[seen.n];
    if (++seen.n > MOST_EVENTS) { /* it declines */
        seen.n--;
        return 0;
    }
    *e = (struct event){ .plugin = plugin, .type = type, .open = 1, .parent = parent };
    if (type == RONDO_PROF_NET_PLUGIN) {
        seen.bad += e->parent == NULL || e->parent->type != RONDO_PROF_PROXY_STEP || !e->parent->open;
        e->parent->children++;
    }
    *handle = e;
    return 0;
}

static int start_old(void *context, void **handle, void *descr)
{
    const struct rondo_prof_descr_v3 *d = descr;
    (void)context;
    seen.bad += d->type == RONDO_PROF_NET_PLUGIN &&
                (d->net_plugin.id != KIND || *(int *)d->net_plugin.data != KIND);
    return start(OLD, handle, d->type, d->parent);
}

static int start_new(void *context, void **handle, void *descr)
{
    const struct rondo_prof_descr_v4 *d = descr;
    (void)context;
    return start(NEW, handle, (int)d->type, d->parent);
}

static int stop(void *handle)
{
    struct event *e = handle;
    seen.bad += !e->open || e->children > 0;
    e->open = 0;
    if (e->type == RONDO_PROF_NET_PLUGIN) {
        e->parent->children--;
    }
    return 0;
}

static int state(void *handle, int number, void *args)
{
    struct event *e = handle;
    int wanted = e->plugin == OLD ? RONDO_PROF_PROXY_OP : RONDO_PROF_PROXY_STEP;
    seen.bad += !e->open;
    if (number == RONDO_PROF_NET_PLUGIN_UPDATE) {
        seen.bad += e->plugin == OLD || *(int *)((union rondo_prof_args_v4 *)args)->net_plugin.data != KIND;
        e->updates++;
    } else if (e->type == wanted && seen.nstates[e->plugin] < MOST) {
        seen.states[e->plugin][seen.nstates[e->plugin]++] = number;
    }
    return 0;
}

static const struct rondo_prof_plugin_table old_table = { .start = start_old, .stop = stop, .state = state },
                                            new_table = { .start = start_new, .stop = stop, .state = state };

static struct rondo_prof_group *group;
static struct rondo_prof_call *call;

/* A communicator, a call, and a run with one sending connection of nsteps slices. */
static struct rondo_prof_run *begin(int old_mask, int new_mask, uint32_t nsteps)
{
    struct rondo_prof_what what = { .func = "AllReduce", .datatype = "ncclInt8" };
    struct rondo_prof_how how = { .seq = 1, .algo = "RING", .proto = "SIMPLE", .nchannels = 1 };
    struct rondo_prof_conn conn = { .key = KEY, .chunk_bytes = 8, .nsteps = nsteps, .is_send = 1 };
    struct rondo_prof_run *run;
    memset(&seen, 0, sizeof seen);
    memset(&prof, 0, sizeof prof);
    for (int i = 0; i < PLUGINS; i++) {
        plugins[i] = (struct rondo_prof_plugin){ .table = i == OLD ? &old_table : &new_table,
                                                 .mask = i == OLD ? old_mask : new_mask };
        for (int v = 0; v < rondo_prof_num_versions; v++) {
            if (rondo_prof_versions[v].version == (i == OLD ? 3 : 7)) {
                plugins[i].version = &rondo_prof_versions[v];
            }
        }
        prof.at[i].plugin = &plugins[i];
    }
    prof.n = PLUGINS;
    prof.idle = -1;
    group = rondo_prof_group_begin(&prof, 1);
    call = rondo_prof_call_begin(group, &what);
    rondo_prof_call_issue(call, &how);
    run = rondo_prof_run_add(call, 0);
    rondo_prof_run_begin(run, &conn, 1);
    return run;
}

static void end(struct rondo_prof_run *run)
{
    rondo_prof_run_end(run);
    rondo_prof_call_release(call);
    rondo_prof_group_release(group);
    for (int i = 0; i < seen.n; i++) {
        assert_int_equal(seen.event[i].open, 0);
    }
    assert_int_equal(seen.bad, 0);
    rondo_prof_free_objects(&prof);
}

/* ---- steps ---- */

static void steps_overlap_and_pass_in_order(void **state)
{
    static const int old_states[] = { RONDO_PROF_SEND_POSTED,      RONDO_PROF_SEND_REM_FIFO_WAIT,
                                      RONDO_PROF_SEND_TRANSMITTED, RONDO_PROF_SEND_DONE,
                                      RONDO_PROF_SEND_POSTED,      RONDO_PROF_SEND_REM_FIFO_WAIT,
                                      RONDO_PROF_SEND_TRANSMITTED, RONDO_PROF_SEND_DONE },
                     new_states[] = { RONDO_PROF_STEP_SEND_GPU_WAIT,  RONDO_PROF_STEP_SEND_GPU_WAIT,
                                      RONDO_PROF_STEP_SEND_PEER_WAIT, RONDO_PROF_STEP_SEND_WAIT,
                                      RONDO_PROF_STEP_SEND_PEER_WAIT, RONDO_PROF_STEP_SEND_WAIT };
    int mask = RONDO_PROF_PROXY_STEP;
    struct rondo_prof_run *run = begin(mask, mask, 2);
    (void)state;
    rondo_prof_step_at(run, KEY, 1, RONDO_PROF_STAGE_MOVES, 4); /* the first one begins, too */
    rondo_prof_step_at(run, KEY, 0, RONDO_PROF_STAGE_MOVES, 8);
    rondo_prof_step_at(run, KEY, 0, RONDO_PROF_STAGE_PASSED, 8);
    rondo_prof_step_at(run, KEY, 0, RONDO_PROF_STAGE_PASSED, 8); /* again: nothing happens */
    rondo_prof_step_at(run, KEY, 1 + RONDO_PROF_OPEN_STEPS, RONDO_PROF_STAGE_WAITS,
                       0); /* nor beyond the slots */
    rondo_prof_step(run, KEY, RONDO_PROF_STAGE_PASSED, 4);
    assert_int_equal(seen.nstates[OLD], sizeof old_states / sizeof old_states[0]);
    assert_memory_equal(seen.states[OLD], old_states, sizeof old_states); /* one step at a time */
    assert_int_equal(seen.nstates[NEW], sizeof new_states / sizeof new_states[0]);
    assert_memory_equal(seen.states[NEW], new_states, sizeof new_states);
    end(run);
}

/* ---- events of net devices ---- */

static int tell(void **event, enum rondo_net_what what, void *parent)
{
    int data = KIND;
    return rondo_prof_net_event(event, (int)what, parent, KIND, &data);
}

static int count(int plugin, int only_open)
{
    int n = 0;
    for (int i = 0; i < seen.n; i++) {
        const struct event *e = &seen.event[i];
        n += e->plugin == plugin && e->type == RONDO_PROF_NET_PLUGIN && (e->open || !only_open);
    }
    return n;
}

static void events_belong_to_their_step(void **state)
{
    int mask = RONDO_PROF_NET_PLUGIN;
    struct rondo_prof_run *run = begin(mask, mask, 3);
    void *first, *second, *one = &mask, *two = &mask, *late = &mask, *stale;
    (void)state;
    assert_null(rondo_prof_step_parent(run, KEY, 0)); /* it has not begun */
    rondo_prof_step_at(run, KEY, 1, RONDO_PROF_STAGE_WAITS, 0);
    first = rondo_prof_step_parent(run, KEY, 0);
    second = rondo_prof_step_parent(run, KEY, 1);
    assert_true(first != NULL && second != NULL && first != second);
    assert_ptr_equal(rondo_prof_step_parent(run, KEY, 0), first);
    tell(&one, RONDO_NET_EVENT_START, first);
    tell(&two, RONDO_NET_EVENT_START, second);
    assert_true(one != NULL && two != NULL && one != two);
    tell(&late, RONDO_NET_EVENT_START, one); /* an event is no parent */
    assert_null(late);
    tell(&one, RONDO_NET_EVENT_UPDATE, NULL);
    stale = one;
    tell(&one, RONDO_NET_EVENT_UPDATE_AND_STOP, NULL);
    tell(&stale, RONDO_NET_EVENT_STOP, NULL); /* it has ended */
    assert_int_equal(count(OLD, 1) + count(NEW, 1), 2);
    for (int number = 0; number < 3; number++) { /* the end of a step ends its events */
        rondo_prof_step_at(run, KEY, (uint32_t)number, RONDO_PROF_STAGE_PASSED, 8);
    }
    assert_int_equal(count(OLD, 1) + count(NEW, 1), 0);
    tell(&two, RONDO_NET_EVENT_UPDATE_AND_STOP, NULL);
    tell(&late, RONDO_NET_EVENT_START, first);
    assert_null(late);
    tell(&late, RONDO_NET_EVENT_START, NULL);
    assert_null(late);
    assert_int_equal(count(OLD, 0), 2);
    assert_int_equal(count(NEW, 0), 2);
    for (int i = 0; i < seen.n; i++) {
        assert_true(seen.event[i].updates == 0 ||
                    (seen.event[i].plugin == NEW && seen.event[i].updates == 2));
    }
    end(run);
    tell(&late, RONDO_NET_EVENT_START, second); /* the communicator is gone */
    assert_null(late);
}

static void only_those_who_want_them_get_events(void **state)
{
    struct rondo_prof_run *run = begin(RONDO_PROF_PROXY_STEP, RONDO_PROF_NET_PLUGIN, 1);
    void *event;
    (void)state;
    assert_true(rondo_prof_run_wants_net(run));
    rondo_prof_step_at(run, KEY, 0, RONDO_PROF_STAGE_WAITS, 0);
    tell(&event, RONDO_NET_EVENT_START, rondo_prof_step_parent(run, KEY, 0));
    assert_non_null(event);
    assert_int_equal(count(OLD, 0), 0);
    assert_int_equal(count(NEW, 0), 1);
    end(run);
    run = begin(RONDO_PROF_PROXY_STEP, RONDO_PROF_PROXY_STEP, 1);
    assert_false(rondo_prof_run_wants_net(run));
    rondo_prof_step_at(run, KEY, 0, RONDO_PROF_STAGE_WAITS, 0);
    assert_null(rondo_prof_step_parent(run, KEY, 0));
    assert_int_equal(prof.shared, 0); /* nothing is locked */
    end(run);
}

enum { STEPS = 200, THREADS = 3 };
static void *parents[STEPS]; /* atomic */
static int over;             /* atomic */

/* Tell of steps while others end them. */
static void *tell_beside(void *arg)
{
    for (int i = 0; !__atomic_load_n(&over, __ATOMIC_ACQUIRE); i++) {
        void *parent = __atomic_load_n(&parents[i % STEPS], __ATOMIC_ACQUIRE), *event = NULL;
        tell(&event, RONDO_NET_EVENT_START, parent);
        if (event != NULL) {
            tell(&event, i % 2 == 0 ? RONDO_NET_EVENT_UPDATE : RONDO_NET_EVENT_STOP, NULL);
            sched_yield();
        }
    }
    return arg;
}

static void threads_tell_while_steps_end(void **state)
{
    struct rondo_prof_run *run = begin(RONDO_PROF_NET_PLUGIN, RONDO_PROF_NET_PLUGIN, STEPS);
    pthread_t thread[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, tell_beside, NULL), 0);
    }
    for (uint32_t number = 0; number < STEPS; number++) {
        rondo_prof_step_at(run, KEY, number, RONDO_PROF_STAGE_WAITS, 0);
        __atomic_store_n(&parents[number], rondo_prof_step_parent(run, KEY, number), __ATOMIC_RELEASE);
        sched_yield();
        rondo_prof_step_at(run, KEY, number, RONDO_PROF_STAGE_PASSED, 8);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    end(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_overlap_and_pass_in_order),
        cmocka_unit_test(events_belong_to_their_step),
        cmocka_unit_test(only_those_who_want_them_get_events),
        cmocka_unit_test(threads_tell_while_steps_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
