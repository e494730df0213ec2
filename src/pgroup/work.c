/* Works: calls on their way to a communicator, and their ends. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "call/stream.h"
#include "pgroup/pgroup.h"

enum { MOST_SPARE = 16 }; /* ended works that a slot keeps, because their streams allocate nothing again */

/* ---- memory ---- */

rondo_status pg_work_new(struct pg_slot *slot, struct rondo_pgroup_work **work)
{
    struct rondo_pgroup_work *made;
    pthread_mutex_lock(&slot->group->world->lock);
    made = slot->spare;
    if (made != NULL) {
        slot->spare = made->queued;
        slot->nspare--;
    }
    pthread_mutex_unlock(&slot->group->world->lock);
    if (made == NULL) {
        RONDO_TRY(RONDO_NEW(made, "a work"));
    }
    made->slot = slot; /* one that was kept has its stream */
    made->group = slot->group;
    made->refs = 1;
    made->state = PG_QUEUED;
    made->status = RONDO_SUCCESS;
    made->text[0] = '\0';
    made->batch = NULL;
    made->kept = NULL;
    made->event = NULL;
    made->queued = NULL;
    *work = made;
    return RONDO_SUCCESS;
}

void pg_work_memory_free(struct rondo_pgroup_work *work)
{
    if (work->stream != NULL && work->slot->gpu == NULL) {
        char text[RONDO_ERROR_TEXT]; /* the call's, which says more than its stream's */
        snprintf(text, sizeof(text), "%s", rondo_error_text());
        (void)rondo_stream_destroy(work->stream);
        rondo_fail_quiet(RONDO_SUCCESS, "%s", text);
    }
    rondo_free(work);
}

/* Nobody has the work any more. */
static void work_retire(struct rondo_pgroup_work *work)
{
    struct rondo_pgroup *group = work->group;
    struct pg_slot *slot = work->slot;
    int keep;
    rondo_free(work->kept);
    rondo_free(work->batch);
    if (slot->gpu != NULL) {
        pg_event_free(slot->gpu, work->event);
        work->stream = NULL;
    }
    pthread_mutex_lock(&group->world->lock);
    /* The stream of a call that failed keeps its error. */
    keep = slot->nspare < MOST_SPARE && work->status == RONDO_SUCCESS;
    if (keep) {
        work->queued = slot->spare;
        slot->spare = work;
        slot->nspare++;
    }
    pthread_mutex_unlock(&group->world->lock);
    if (!keep) {
        pg_work_memory_free(work);
    }
    pg_group_unref(group);
}

void pg_work_unref(struct rondo_pgroup_work *work)
{
    if (__atomic_sub_fetch(&work->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        work_retire(work);
    }
}

/* ---- open works ---- */

static uint64_t *counter_of(const struct rondo_pgroup_work *work)
{
    return work->slot->kind == PG_ALL ? &work->group->sequence : &work->slot->messages;
}

/* The other ranks do not count a call that was refused here: later ones move up. */
static void take_back_number(const struct rondo_pgroup_work *work)
{
    struct pg_world *world = work->group->world;
    uint64_t *counter = counter_of(work);
    pthread_mutex_lock(&world->lock);
    if (work->group->failure == RONDO_SUCCESS) {
        --*counter;
        for (struct rondo_pgroup_work *w = world->open; w != NULL; w = w->next) {
            if (counter_of(w) == counter && w->sequence > work->sequence) {
                __atomic_sub_fetch(&w->sequence, 1, __ATOMIC_RELAXED);
            }
        }
    }
    pthread_mutex_unlock(&world->lock);
}

void pg_work_open(struct rondo_pgroup_work *work)
{
    struct pg_world *world = work->group->world;
    __atomic_add_fetch(&work->refs, 1, __ATOMIC_RELAXED);
    work->begin_ns = rondo_now_ns();
    pthread_mutex_lock(&world->lock);
    work->group->refs++;
    work->sequence = ++*counter_of(work);
    work->next = NULL;
    work->prev = world->newest;
    if (world->newest != NULL) {
        world->newest->next = work;
    } else {
        world->open = work;
    }
    world->newest = work;
    if (world->asleep) {
        world->asleep = 0;
        pthread_cond_signal(&world->wake);
    }
    pthread_mutex_unlock(&world->lock);
}

static void unlink_work(struct pg_world *world, struct rondo_pgroup_work *work)
{
    world->at = world->at == work ? work->next : world->at;
    if (work->prev != NULL) {
        work->prev->next = work->next;
    } else {
        world->open = work->next;
    }
    if (work->next != NULL) {
        work->next->prev = work->prev;
    } else {
        world->newest = work->prev;
    }
}

void pg_work_end(struct rondo_pgroup_work *work, rondo_status status)
{
    struct rondo_pgroup *group = work->group;
    struct pg_slot *slot = work->slot;
    char text[RONDO_ERROR_TEXT];
    rondo_status ended = RONDO_SUCCESS;
    int first, slot_state, was;
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    pthread_mutex_lock(&group->world->lock);
    was = work->state;
    first = was != PG_DONE;
    slot_state = slot->state;
    if (first) {
        if (status != RONDO_SUCCESS) {
            /* What ended the group says more than what its communicators heard. */
            int known = group->failure != RONDO_SUCCESS;
            work->status = known ? group->failure : status;
            snprintf(work->text, sizeof(work->text), "%s", known ? group->failure_text : text);
        }
        unlink_work(group->world, work);
        __atomic_store_n(&work->state, PG_DONE, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&group->world->lock);
    if (!first) {
        return;
    }
    /* A call that was refused harms nobody; one whose communicator has ended ends the group. */
    if (status != RONDO_SUCCESS && slot_state == PG_READY &&
        rondo_comm_async_error(slot->comm, &ended) == RONDO_SUCCESS && ended != RONDO_SUCCESS) {
        pg_group_end(group, status, text);
    }
    if (status != RONDO_SUCCESS && was != PG_ISSUED) {
        take_back_number(work);
    }
    pg_work_unref(work);
}

/* ---- to the communicator ---- */

static rondo_status make_call(const struct pg_call *c, rondo_comm *comm, rondo_stream s)
{
    const size_t *const *n = c->counts;
    switch (c->coll) {
    case RONDO_COLL_ALL_REDUCE: return rondo_all_reduce(c->send, c->recv, c->count, c->type, c->op, comm, s);
    case RONDO_COLL_REDUCE: return rondo_reduce(c->send, c->recv, c->count, c->type, c->op, c->root, comm, s);
    case RONDO_COLL_BROADCAST: return rondo_broadcast(c->send, c->recv, c->count, c->type, c->root, comm, s);
    case RONDO_COLL_ALL_GATHER: return rondo_all_gather(c->send, c->recv, c->count, c->type, comm, s);
    case RONDO_COLL_REDUCE_SCATTER:
        return rondo_reduce_scatter(c->send, c->recv, c->count, c->type, c->op, comm, s);
    case RONDO_COLL_ALL_TO_ALL: return rondo_all_to_all(c->send, c->recv, c->count, c->type, comm, s);
    case RONDO_COLL_GATHER: return rondo_gather(c->send, c->recv, c->count, c->type, c->root, comm, s);
    case RONDO_COLL_SCATTER: return rondo_scatter(c->send, c->recv, c->count, c->type, c->root, comm, s);
    case RONDO_COLL_ALL_GATHERV: return rondo_all_gatherv(c->send, c->recv, n[0], n[1], c->type, comm, s);
    case RONDO_COLL_REDUCE_SCATTERV:
        return rondo_reduce_scatterv(c->send, c->recv, n[0], n[1], c->type, c->op, comm, s);
    case RONDO_COLL_ALL_TO_ALLV:
        return rondo_all_to_allv(c->send, n[0], n[1], c->recv, n[2], n[3], c->type, comm, s);
    case RONDO_COLL_SEND: return rondo_send(c->send, c->count, c->type, c->root, comm, s);
    case RONDO_COLL_RECV: return rondo_recv(c->recv, c->count, c->type, c->root, comm, s);
    case RONDO_COLL_BARRIER: return rondo_barrier(comm, s);
    default: return rondo_fail(RONDO_INTERNAL_ERROR, "a process group has no call %d", (int)c->coll);
    }
}

static rondo_status make_calls(struct rondo_pgroup_work *const *works, int n)
{
    rondo_status status = RONDO_SUCCESS, ended;
    if (n == 1 && works[0]->ncalls == 0) {
        return RONDO_SUCCESS;
    }
    if (n == 1 && works[0]->batch == NULL) {
        return make_call(&works[0]->call, works[0]->slot->comm, works[0]->stream);
    }
    RONDO_TRY(rondo_group_start());
    for (int w = 0; w < n; w++) {
        const struct pg_call *calls = works[w]->batch != NULL ? works[w]->batch : &works[w]->call;
        for (int i = 0; i < works[w]->ncalls && status == RONDO_SUCCESS; i++) {
            status = make_call(&calls[i], works[w]->slot->comm, works[w]->stream);
        }
    }
    ended = rondo_group_end(); /* returns the first error of a call inside it, too */
    return status != RONDO_SUCCESS ? status : ended;
}

/* Works that run in the background need a stream each. */
static rondo_status give_stream(struct rondo_pgroup_work *work)
{
    return work->slot->gpu != NULL || work->stream != NULL ? RONDO_SUCCESS
                                                           : rondo_stream_create(&work->stream);
}

/* It may have ended meanwhile, with its group. */
static void issued(struct rondo_pgroup_work *work)
{
    pthread_mutex_lock(&work->group->world->lock);
    if (work->state == PG_QUEUED) {
        __atomic_store_n(&work->state, PG_ISSUED, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&work->group->world->lock);
}

/* Without an event behind its call, which all ranks count, nobody would know its end: the group ends. */
static rondo_status record(struct rondo_pgroup_work *work)
{
    rondo_status status = pg_event_record(work->slot->gpu, work->stream, &work->event);
    char text[RONDO_ERROR_TEXT];
    if (status != RONDO_SUCCESS) {
        snprintf(text, sizeof(text), "%s", rondo_error_text());
        pg_group_end(work->group, status, text);
        rondo_fail_quiet(status, "%s", text);
    }
    return status;
}

static void issue(struct rondo_pgroup_work *const *works, int n)
{
    rondo_status status = RONDO_SUCCESS;
    for (int w = 0; w < n; w++) { /* whoever ends it may let it go */
        __atomic_add_fetch(&works[w]->refs, 1, __ATOMIC_RELAXED);
    }
    for (int w = 0; w < n && status == RONDO_SUCCESS; w++) {
        status = give_stream(works[w]);
    }
    if (status == RONDO_SUCCESS) {
        status = make_calls(works, n);
    }
    for (int w = 0; w < n; w++) {
        if (status == RONDO_SUCCESS && works[w]->slot->gpu != NULL) {
            status = record(works[w]);
        }
        if (status == RONDO_SUCCESS) {
            issued(works[w]);
        } else {
            pg_work_end(works[w], status);
        }
        pg_work_unref(works[w]);
    }
}

void pg_work_issue(struct rondo_pgroup_work *work) { issue(&work, 1); }

void pg_work_issue_both(struct rondo_pgroup_work *a, struct rondo_pgroup_work *b)
{
    struct rondo_pgroup_work *both[2] = { a, b };
    issue(both, 2);
}

rondo_status pg_work_run(struct rondo_pgroup_work *work)
{
    rondo_stream own = work->stream;
    rondo_status status;
    work->stream = NULL;
    __atomic_store_n(&work->state, PG_RUNS, __ATOMIC_RELEASE);
    status = make_calls(&work, 1);
    work->stream = own;
    pg_work_end(work, status);
    return work->status;
}

/* ---- looking ---- */

/* The sentence is the communicator's. */
static rondo_status of_comm(const struct pg_slot *slot, rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof(text), "%s", rondo_last_error(slot->comm));
    return rondo_fail_quiet(status, "%s", text);
}

static rondo_status query_host(const struct rondo_pgroup_work *work)
{
    rondo_status status = rondo_stream_query(work->stream);
    return status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS ? status : of_comm(work->slot, status);
}

/* What a kernel found is the communicator's. Any other error is the device's, which is lost to the group. */
static rondo_status query_gpu(const struct rondo_pgroup_work *work)
{
    struct pg_slot *slot = work->slot;
    rondo_status error = RONDO_SUCCESS, status = pg_event_query(slot->gpu, work->event);
    char text[RONDO_ERROR_TEXT];
    if (status == RONDO_IN_PROGRESS) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    RONDO_TRY(rondo_comm_async_error(slot->comm, &error));
    if (error != RONDO_SUCCESS && error != RONDO_IN_PROGRESS) {
        return of_comm(slot, error);
    }
    if (status != RONDO_SUCCESS) {
        pg_group_end(work->group, status, text);
        rondo_fail_quiet(status, "%s", text);
    }
    return status;
}

int pg_work_poll(struct rondo_pgroup_work *work)
{
    rondo_status status;
    if (__atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == PG_QUEUED) {
        pg_work_advance(work);
    }
    if (__atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == PG_ISSUED) {
        status = work->slot->gpu != NULL ? query_gpu(work) : query_host(work);
        if (status != RONDO_IN_PROGRESS) {
            pg_work_end(work, status);
        }
    }
    return __atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == PG_DONE;
}

int pg_works_next(struct pg_world *world, struct rondo_pgroup_work *works[PG_MOST_POLLED])
{
    struct rondo_pgroup_work *w;
    int n = 0;
    pthread_mutex_lock(&world->lock);
    for (w = world->at != NULL ? world->at : world->open; w != NULL && n < PG_MOST_POLLED; w = w->next) {
        __atomic_add_fetch(&w->refs, 1, __ATOMIC_RELAXED);
        works[n++] = w;
    }
    world->at = w;
    pthread_mutex_unlock(&world->lock);
    return n;
}

/* ---- rondo_pgroup.h ---- */

static rondo_status work_check(const struct rondo_pgroup_work *work, const char *call)
{
    if (work == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the work is NULL", call);
    }
    return work->group->world->pid == getpid()
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INVALID_USAGE,
                            "%s: this process is a forked child, and the work belongs to its parent", call);
}

/* Of a work that has ended. */
static rondo_status result(const struct rondo_pgroup_work *work)
{
    return work->status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(work->status, "%s", work->text);
}

rondo_status rondo_pgroup_work_test(rondo_pgroup_work *work, int *done)
{
    int ended;
    RONDO_TRY(work_check(work, "rondo_pgroup_work_test"));
    RONDO_TRY(pg_outside_groups("rondo_pgroup_work_test"));
    if (done == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_pgroup_work_test: the place for the answer is NULL");
    }
    (void)pg_slots_move(work->group->world);
    ended = pg_work_poll(work);
    *done = ended;
    return ended ? result(work) : RONDO_SUCCESS;
}

/* May this thread wait in the engine, whose limit is the group's? */
static int may_synchronize(const struct rondo_pgroup_work *work)
{
    return work->slot->gpu == NULL && __atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == PG_ISSUED &&
           work->timeout_ns == rondo_ms_to_ns(work->group->timeout_ms);
}

static rondo_status too_late(const struct rondo_pgroup_work *work, int64_t timeout_ms)
{
    char what[160];
    pg_work_describe(work, what, sizeof(what));
    return rondo_fail_quiet(RONDO_TIMEOUT, "rank %d: %s is not done after %lld ms, and goes on",
                            work->group->rank, what, (long long)timeout_ms);
}

rondo_status pg_work_wait(struct rondo_pgroup_work *work, int64_t timeout_ms, int aside)
{
    struct rondo_wait_policy policy = { .spins = aside ? 20 : 100,
                                        .sleep_after_ns = aside ? 1 : rondo_params()->sleep_after };
    struct rondo_wait wait;
    int64_t begin = timeout_ms > 0 ? rondo_now_ns() : 0,
            limit = rondo_ms_to_ns(timeout_ms > 0 ? timeout_ms : 0);
    rondo_wait_begin(&wait, &policy);
    (void)pg_slots_move(work->group->world); /* at 0 ms, too */
    while (!pg_work_poll(work)) {
        int moved = 0;
        if (timeout_ms >= 0 && (timeout_ms == 0 || rondo_now_ns() - begin > limit)) {
            return too_late(work, timeout_ms);
        }
        if (!pg_slots_move(work->group->world) && timeout_ms < 0 && may_synchronize(work)) {
            (void)(aside ? rondo_stream_wait_aside(work->stream) : rondo_stream_synchronize(work->stream));
            continue; /* the next poll sees the result */
        }
        if (!work->group->world->has_thread) {
            pg_work_late(work);
        }
        rondo_streams_progress(&moved);
        if (moved) {
            rondo_wait_reset(&wait);
        } else {
            (void)rondo_wait_once(&wait);
        }
    }
    return result(work);
}

rondo_status pg_work_wait_issued(struct rondo_pgroup_work *work)
{
    struct rondo_wait_policy policy = { .spins = 100, .sleep_after_ns = rondo_params()->sleep_after };
    struct rondo_wait wait;
    rondo_wait_begin(&wait, &policy);
    while (__atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == PG_QUEUED) {
        (void)pg_slots_move(work->group->world);
        pg_work_advance(work);
        if (!work->group->world->has_thread) {
            pg_work_late(work);
        }
        (void)rondo_wait_once(&wait);
    }
    return __atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == PG_DONE ? result(work) : RONDO_SUCCESS;
}

static rondo_status wait_checked(struct rondo_pgroup_work *work, const char *call, int64_t timeout_ms,
                                 int aside)
{
    RONDO_TRY(work_check(work, call));
    RONDO_TRY(pg_outside_groups(call));
    if (timeout_ms < RONDO_CONFIG_DEFAULT) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: a time of %lld ms; give 0 or more, or RONDO_CONFIG_DEFAULT", call,
                          (long long)timeout_ms);
    }
    return pg_work_wait(work, timeout_ms, aside);
}

rondo_status rondo_pgroup_work_wait(rondo_pgroup_work *work, int64_t timeout_ms)
{
    return wait_checked(work, "rondo_pgroup_work_wait", timeout_ms, 0);
}

rondo_status rondo_pgroup_work_wait_aside(rondo_pgroup_work *work, int64_t timeout_ms)
{
    return wait_checked(work, "rondo_pgroup_work_wait_aside", timeout_ms, 1);
}

rondo_status rondo_pgroup_work_free(rondo_pgroup_work *work)
{
    RONDO_TRY(work_check(work, "rondo_pgroup_work_free"));
    pg_work_unref(work);
    return RONDO_SUCCESS;
}

void pg_work_describe(const struct rondo_pgroup_work *work, char *text, size_t size)
{
    const struct pg_call *c = &work->call;
    unsigned long long number = __atomic_load_n(&work->sequence, __ATOMIC_RELAXED);
    if (work->ncalls != 1) {
        snprintf(text, size, "batch #%llu of %d calls of group \"%s\"", number, work->ncalls,
                 work->group->name);
        return;
    }
    if (work->slot->kind != PG_ALL) {
        int peer = work->slot->low == work->group->rank ? work->slot->high : work->slot->low;
        snprintf(text, size, "%s #%llu (%zu %s) with rank %d of group \"%s\"", rondo_coll_name(c->coll),
                 number, c->count, rondo_dtype_name(c->type), peer, work->group->name);
        return;
    }
    snprintf(text, size, "%s #%llu (%zu %s) of group \"%s\"", rondo_coll_name(c->coll), number, c->count,
             rondo_dtype_name(c->type), work->group->name);
}

rondo_status rondo_pgroup_work_text(const rondo_pgroup_work *work, char *text, size_t size)
{
    RONDO_TRY(work_check(work, "rondo_pgroup_work_text"));
    if (text == NULL || size == 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_pgroup_work_text: there is no place for the text");
    }
    pg_work_describe(work, text, size);
    return RONDO_SUCCESS;
}
