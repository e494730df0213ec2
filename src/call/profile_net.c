/* The slices of proxied connections as events of profiler plugins (call/profile_net.h). */
#include "call/profile_net.h"

#include <string.h>

#include "base/mem.h"
#include "comm/backend.h"
#include "kern/profile.h"
#include "net/netdev.h"

/* Slices of a link that have arrived, and whose end this file has not seen: those that a receiver's device
 * may have received since the last look, after as many that it had. */
enum { ARRIVED = 2 * RONDO_SLOTS };
_Static_assert((int)RONDO_PROF_OPEN_STEPS == (int)RONDO_SLOTS, "a step is open while it may use a slot");

/* A run's slices [begin, end) on a link. */
struct slices {
    struct slices *next;
    struct rondo_prof_run *run; /* NULL: nobody wants them */
    uint64_t begin, at, end;    /* at: the first that has not passed */
    uint8_t key;
};

struct rondo_watched_link {
    struct rondo_watched_link *next; /* of the communicator */
    struct rondo_link *link;
    uint64_t planned;             /* slices of all runs so far */
    int wants_net;                /* the last run's plugins want the device's events */
    struct rondo_link_steps told; /* what was looked at last */
    uint64_t arrived;             /* receiver: those whose bytes are known */
    uint32_t bytes[ARRIVED];      /* of slice n, at n % ARRIVED */
    struct slices *first, **last;
};

/* ---- what has happened ---- */

static void forget_first(struct rondo_watched_link *w)
{
    struct slices *s = w->first;
    w->first = s->next;
    if (w->first == NULL) {
        w->last = &w->first;
    }
    if (s->run != NULL) {
        rondo_prof_run_let_go(s->run);
    }
    rondo_free(s);
}

static uint32_t bytes_of(const struct rondo_watched_link *w, uint64_t step)
{
    return w->link->is_send ? rondo_link_slice_bytes(w->link, step) : w->bytes[step % ARRIVED];
}

static void tell_one(const struct rondo_watched_link *w, const struct slices *s, uint64_t step,
                     const struct rondo_link_steps *steps)
{
    enum rondo_prof_stage stage = step < steps->passed   ? RONDO_PROF_STAGE_PASSED
                                  : step < steps->moving ? RONDO_PROF_STAGE_MOVES
                                  : step < steps->here   ? RONDO_PROF_STAGE_HELD
                                                         : RONDO_PROF_STAGE_WAITS;
    int knows = step < (w->link->is_send ? steps->moving : steps->here);
    rondo_prof_step_at(s->run, s->key, (uint32_t)(step - s->begin), stage, knows ? bytes_of(w, step) : 0);
}

/* Tell the slices that may be in slots, from the first that has not passed. */
static void tell(struct rondo_watched_link *w, const struct rondo_link_steps *steps)
{
    uint64_t limit = steps->passed + RONDO_SLOTS;
    for (struct slices *s = w->first; s != NULL && s->at < limit; s = s->next) {
        for (uint64_t step = s->at; step < s->end && step < limit && s->run != NULL; step++) {
            tell_one(w, s, step, steps);
        }
        s->at = steps->passed < s->at ? s->at : steps->passed < s->end ? steps->passed : s->end;
    }
    while (w->first != NULL && w->first->at == w->first->end) {
        forget_first(w);
    }
}

/* A receiver has these slices. Call it before their slots are used again, which takes another progress. */
static void arrive(struct rondo_watched_link *w, uint64_t here)
{
    uint64_t step = here > ARRIVED ? here - ARRIVED : 0;
    if (w->link->is_send) {
        return;
    }
    for (step = w->arrived > step ? w->arrived : step; step < here; step++) {
        w->bytes[step % ARRIVED] = rondo_link_slice_bytes(w->link, step);
    }
    w->arrived = here;
}

static void look(void *arg, struct rondo_link *link, const struct rondo_link_steps *steps)
{
    struct rondo_ctx *ctx = arg;
    struct rondo_watched_link *w = link->watched;
    if (w == NULL || w->first == NULL || memcmp(&w->told, steps, sizeof(*steps)) == 0) {
        return;
    }
    w->told = *steps;
    rondo_prof_lock(ctx->prof);
    arrive(w, steps->here);
    tell(w, steps);
    rondo_prof_unlock(ctx->prof);
}

static int parent_of(void *arg, struct rondo_link *link, uint64_t step, void **parent)
{
    struct rondo_ctx *ctx = arg;
    struct rondo_watched_link *w = link->watched;
    struct slices *s = w != NULL ? w->first : NULL;
    if (w == NULL || !w->wants_net) {
        return 1;
    }
    if (step >= w->planned || parent == NULL) {
        return step < w->planned;
    }
    while (s != NULL && step >= s->end) {
        s = s->next;
    }
    if (s != NULL && s->run != NULL && step >= s->at) {
        rondo_prof_lock(ctx->prof);
        rondo_prof_step_at(s->run, s->key, (uint32_t)(step - s->begin), RONDO_PROF_STAGE_WAITS, 0);
        *parent = rondo_prof_step_parent(s->run, s->key, (uint32_t)(step - s->begin));
        rondo_prof_unlock(ctx->prof);
    }
    return 1;
}

static const struct rondo_net_watch watch = { .steps = look, .parent = parent_of };

void rondo_profile_net_watch(struct rondo_ctx *ctx)
{
    __atomic_store_n(&rondo_net_event, rondo_prof_net_event, __ATOMIC_RELAXED);
    ctx->wiring.net.watch = &watch;
    ctx->wiring.net.watch_arg = ctx;
}

/* ---- what is to happen ---- */

static struct rondo_watched_link *watched_of(struct rondo_ctx *ctx, struct rondo_link *link)
{
    struct rondo_watched_link *w = link->watched;
    if (w == NULL && RONDO_NEW(w, "what plugins see of a connection") == RONDO_SUCCESS) {
        w->link = link;
        w->planned = w->arrived = link->conn.step; /* the host's copy, on a GPU: the hello's */
        w->last = &w->first;
        w->next = ctx->watched;
        ctx->watched = w;
        link->watched = w;
    }
    return w;
}

rondo_status rondo_profile_net_add(struct rondo_ctx *ctx, struct rondo_link *link, struct rondo_prof_run *run,
                                   const struct rondo_prof_conn *conn)
{
    struct rondo_watched_link *w = watched_of(ctx, link);
    struct rondo_link_steps none;
    struct slices *s;
    if (w == NULL) {
        return RONDO_SYSTEM_ERROR;
    }
    w->wants_net = 0;
    RONDO_TRY(RONDO_NEW(s, "what plugins see of a connection"));
    if (!ctx->backend->is_gpu) { /* runs that nobody wants are not added */
        w->planned = link->conn.step;
    }
    *s = (struct slices){ .run = run, .begin = w->planned, .at = w->planned, .key = conn->key };
    w->planned = s->end = s->begin + conn->nsteps;
    *w->last = s;
    w->last = &s->next;
    if (run != NULL) {
        w->wants_net = rondo_prof_run_wants_net(run);
        rondo_prof_run_hold(run, 1);
    }
    if (w->first == s) { /* all before have passed */
        none = (struct rondo_link_steps){ .here = s->begin, .moving = s->begin, .passed = s->begin };
        tell(w, &none);
    }
    w->told.here = UINT64_MAX; /* look again */
    return RONDO_SUCCESS;
}

void rondo_profile_net_forget(struct rondo_ctx *ctx)
{
    ctx->wiring.net.watch = NULL;
    while (ctx->watched != NULL) {
        struct rondo_watched_link *w = ctx->watched;
        ctx->watched = w->next;
        while (w->first != NULL) {
            forget_first(w);
        }
        w->link->watched = NULL;
        rondo_free(w);
    }
}

/* ---- runs on host memory ---- */

void rondo_profile_net_begin(void *arg, const struct rondo_run *run, const struct rondo_prof_conn *conns,
                             int n)
{
    struct rondo_ctx *ctx = arg;
    rondo_prof_lock(ctx->prof);
    for (int i = 0; i < n; i++) {
        struct rondo_conn *const *ports = conns[i].is_send ? run->work.ports->send : run->work.ports->recv;
        struct rondo_conn *conn = ports[rondo_profile_key_port(conns[i].key)];
        if (conn->proxied && conns[i].nsteps > 0 &&
            rondo_profile_net_add(ctx, rondo_link_of(conn), run->prof, &conns[i]) != RONDO_SUCCESS) {
            rondo_error_clear(); /* its steps are missing */
        }
    }
    rondo_prof_unlock(ctx->prof);
}

static void take_out(struct rondo_watched_link *w, const struct rondo_prof_run *run)
{
    struct slices **at = &w->first;
    while (*at != NULL) {
        struct slices *s = *at;
        if (s->run == run) {
            *at = s->next;
            rondo_prof_run_let_go(s->run);
            rondo_free(s);
        } else {
            at = &s->next;
        }
    }
    w->last = at;
}

void rondo_profile_net_end(void *arg, const struct rondo_run *run, int given_up)
{
    struct rondo_ctx *ctx = arg;
    rondo_prof_lock(ctx->prof);
    for (struct rondo_watched_link *w = ctx->watched; w != NULL; w = w->next) {
        uint64_t step = w->link->conn.step;
        if (given_up) {
            take_out(w, run->prof);
        } else if (!w->link->is_send && w->first != NULL && w->first->run == run->prof) {
            /* The executor has taken all; nobody may look again. */
            arrive(w, step);
            tell(w, &(struct rondo_link_steps){ .here = step, .moving = step, .passed = step });
        }
    }
    rondo_prof_unlock(ctx->prof);
}
