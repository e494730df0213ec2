/*
 * NetPlugin events: what net devices tell of the steps that they carry.
 *
 * A device gets the step's ticket with a message, and gets a ticket for each event. Tickets end with the
 * step: from then on they mean nothing. So a device may tell late, from any thread, even when the
 * communicator is gone. A ticket's memory is never freed, and its generation tells its uses apart.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/fork.h"
#include "base/net_event.h"
#include "prof/prof_impl.h"

/* A handle has a ticket's index (from 1) and its generation. */
enum { INDEX_BITS = 16, CHUNK = 256, CHUNKS = (1 << INDEX_BITS) / CHUNK, UPDATE_FIRST = 4, UPDATE_LAST = 99 };

struct ticket {
    uint32_t generation, index;
    struct rondo_prof *prof; /* NULL: it is free */
    int is_step;
    int masks[RONDO_PROF_PLUGINS];
    struct rondo_prof_event event;
    struct ticket *next; /* a step: its first event; an event: its step's next one; free: the next free */
};

static const struct rondo_prof_extra no_extra;

/* The lock is also that of calls into plugins (prof_impl.h). */
static struct {
    pthread_mutex_t lock;
    struct ticket *chunk[CHUNKS], *free;
    uint32_t n;
} tickets = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Tickets of the parent's steps mean nothing in a child. */
static void in_child(void)
{
    (void)rondo_fork_lock(&tickets.lock);
    tickets.free = NULL;
    tickets.n = 0;
}
RONDO_AT_FORK(in_child)

void rondo_prof_calls_lock(void) { pthread_mutex_lock(&tickets.lock); }
void rondo_prof_calls_unlock(void) { pthread_mutex_unlock(&tickets.lock); }

static void *handle_of(const struct ticket *t)
{
    return (void *)((uintptr_t)t->generation << INDEX_BITS | (uintptr_t)t->index);
}

/* @return the ticket; NULL: it has ended. */
static struct ticket *ticket_of(const void *handle)
{
    uintptr_t number = (uintptr_t)handle, index = number & ((1u << INDEX_BITS) - 1);
    struct ticket *t;
    if (index == 0 || index > tickets.n) {
        return NULL;
    }
    t = &tickets.chunk[(index - 1) / CHUNK][(index - 1) % CHUNK];
    return t->prof != NULL && t->generation == number >> INDEX_BITS ? t : NULL;
}

static struct ticket *take(void)
{
    struct ticket *t = tickets.free;
    if (t != NULL) {
        tickets.free = t->next;
        return t;
    }
    if (tickets.n + 1 == 1u << INDEX_BITS) {
        return NULL;
    }
    if (tickets.n % CHUNK == 0) {
        struct ticket *chunk = calloc(CHUNK, sizeof(*chunk));
        if (chunk == NULL) {
            return NULL;
        }
        tickets.chunk[tickets.n / CHUNK] = chunk;
    }
    t = &tickets.chunk[tickets.n / CHUNK][tickets.n % CHUNK];
    t->index = ++tickets.n;
    return t;
}

static void give(struct ticket *t)
{
    t->prof = NULL;
    t->generation++;
    t->next = tickets.free;
    tickets.free = t;
}

/* ---- steps ---- */

void *rondo_prof_ticket_take(struct rondo_prof *prof, const int *masks, const struct rondo_prof_event *step)
{
    struct ticket *t;
    rondo_prof_calls_lock();
    prof->shared = 1;
    t = take();
    if (t != NULL) {
        t->prof = prof;
        t->is_step = 1;
        t->event = *step;
        t->next = NULL;
        for (int i = 0; i < prof->n; i++) {
            t->masks[i] = masks[i];
        }
    }
    rondo_prof_calls_unlock();
    return t != NULL ? handle_of(t) : NULL;
}

void rondo_prof_ticket_give(void *handle)
{
    struct ticket *step;
    if (handle == NULL) {
        return;
    }
    rondo_prof_calls_lock();
    step = ticket_of(handle);
    while (step->next != NULL) {
        struct ticket *event = step->next;
        step->next = event->next;
        rondo_prof_stop_locked(event->prof, &event->event);
        give(event);
    }
    give(step);
    rondo_prof_calls_unlock();
}

/* ---- what devices tell ---- */

static void *start(struct ticket *step, int64_t kind, void *more)
{
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_NET_PLUGIN,
                                         .net_plugin = { .id = kind, .data = more } };
    struct ticket *t = take();
    if (t == NULL) {
        return NULL;
    }
    t->prof = step->prof;
    t->is_step = 0;
    t->event.open = 0;
    rondo_prof_start_locked(t->prof, step->masks, &t->event, &descr, &no_extra, &step->event, NULL);
    if (t->event.open == 0) { /* no plugin wants it */
        give(t);
        return NULL;
    }
    t->next = step->next;
    step->next = t;
    return handle_of(t);
}

int rondo_prof_net_event(void **event, int what, void *parent, int64_t kind, void *more)
{
    union rondo_prof_args_v4 args = { .net_plugin = { more } };
    struct ticket *t;
    if (event == NULL) {
        return 0;
    }
    rondo_prof_calls_lock();
    t = ticket_of(what == RONDO_NET_EVENT_START ? parent : *event);
    if (what == RONDO_NET_EVENT_START) {
        *event = t != NULL && t->is_step ? start(t, kind, more) : NULL;
    } else if (t != NULL && !t->is_step) {
        if (what == RONDO_NET_EVENT_UPDATE || what == RONDO_NET_EVENT_UPDATE_AND_STOP) {
            rondo_prof_state_locked(t->prof, &t->event, UPDATE_FIRST, UPDATE_LAST,
                                    RONDO_PROF_NET_PLUGIN_UPDATE, &args);
        }
        if (what == RONDO_NET_EVENT_STOP || what == RONDO_NET_EVENT_UPDATE_AND_STOP) {
            rondo_prof_stop_locked(t->prof, &t->event);
        }
    }
    rondo_prof_calls_unlock();
    return 0;
}
