/*
 * Host streams. A plan is issued once the plans before it in its streams are done and every earlier plan of
 * its communicator is issued. So each stream runs in order, and all ranks issue the calls of a communicator
 * in the order in which they were made; therefore a group makes one plan a communicator, whatever the
 * streams. Query, synchronize and any waiting call of the process make progress on all plans; so a wait's
 * deadline counts from the last move of what it waits for (rondo_queue_moves), not of this thread.
 */
#include "call/stream.h"

#include <pthread.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/plan.h"
#include "call/profile.h"
#include "call/wait.h"

enum {
    STREAM_ALIVE = 0x72737472,
    MOST_SPARED = 64, /* runs of a plan that a stream keeps */
    ASIDE_SPINS = 64, /* looks before the first sleep aside: some time for the next slice to come */
    FIRST_STEPS = 16  /* of progress at most when a call is made: it must not wait */
};

/* The user's handle. In quarantine it has no plans. */
struct rondo_stream_st {
    struct rondo_shell shell;
    pthread_mutex_t lock;
    struct rondo_ticket *first, *last; /* of plans that are not reaped yet, in order */
    rondo_status status;               /* the first error */
    struct rondo_plan *spare;          /* one that has ended: the next call need not allocate */
};

/* Contexts with queued plans: any waiting thread makes progress on them. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_ctx *registry;
static int nregistered;

/* Guards ticket->before, which the context reads and the stream clears. The innermost lock. */
static pthread_mutex_t before_lock = PTHREAD_MUTEX_INITIALIZER;

/* A plan with several streams enters all of them before another such plan does: otherwise two plans could
 * wait for each other. The outermost lock. */
static pthread_mutex_t several_lock = PTHREAD_MUTEX_INITIALIZER;

/* A forked child leaves the parent's queued plans alone. */
static void forget_plans(void)
{
    pthread_mutex_init(&registry_lock, NULL);
    pthread_mutex_init(&before_lock, NULL);
    pthread_mutex_init(&several_lock, NULL);
    registry = NULL;
    nregistered = 0;
}

static struct rondo_shells streams = { .bytes = sizeof(struct rondo_stream_st),
                                       .what = "a stream",
                                       .alive_magic = STREAM_ALIVE,
                                       .forked = forget_plans };

/* The thread that uses the context adds it, and whoever ends it removes it. */
static void registry_add(struct rondo_ctx *ctx)
{
    if (RONDO_LIKELY(__atomic_load_n(&ctx->queue.registered, __ATOMIC_ACQUIRE))) {
        return;
    }
    pthread_mutex_lock(&registry_lock);
    if (!ctx->queue.registered) {
        __atomic_store_n(&ctx->queue.registered, 1, __ATOMIC_RELEASE);
        ctx->queue.registry_next = registry;
        registry = ctx;
        __atomic_add_fetch(&nregistered, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&registry_lock);
}

/* With the lock held. */
static void registry_remove(struct rondo_ctx *ctx)
{
    for (struct rondo_ctx **at = &registry; *at != NULL; at = &(*at)->queue.registry_next) {
        if (*at == ctx) {
            *at = ctx->queue.registry_next;
            __atomic_store_n(&ctx->queue.registered, 0, __ATOMIC_RELEASE);
            __atomic_sub_fetch(&nregistered, 1, __ATOMIC_RELEASE);
            break;
        }
    }
}

/* ---- a context's queue ---- */

static void plan_done(struct rondo_plan *plan, rondo_status status)
{
    if (status == RONDO_SUCCESS) {
        status = rondo_plan_compare(plan->ctx, plan->runs, plan->nruns);
        rondo_plan_calls_end(plan);
    } else if (plan->ctx->prof != NULL) {
        rondo_profile_forget(plan->ctx, plan->runs, plan->nruns);
    }
    plan->status = status;
    __atomic_store_n(&plan->done, 1, __ATOMIC_RELEASE);
}

static int is_issued(const struct rondo_plan *plan)
{
    return __atomic_load_n(&plan->issued, __ATOMIC_RELAXED);
}

static int is_done(const struct rondo_plan *plan) { return __atomic_load_n(&plan->done, __ATOMIC_ACQUIRE); }

/* Are the plans before it in its streams done? */
static int is_first(const struct rondo_plan *plan)
{
    int first = 1;
    pthread_mutex_lock(&before_lock);
    for (const struct rondo_ticket *t = plan->ticket; t != NULL && first; t = t->other) {
        first = t->before == NULL || is_done(t->before->plan);
    }
    pthread_mutex_unlock(&before_lock);
    return first;
}

static void issue_ready(struct rondo_ctx *ctx, int *moved)
{
    for (struct rondo_plan *plan = ctx->queue.first; plan != NULL; plan = plan->next) {
        if (plan->issued) {
            continue;
        }
        if (!is_first(plan)) {
            return; /* later plans of this communicator wait, too */
        }
        __atomic_store_n(&plan->issued, 1, __ATOMIC_RELAXED);
        plan->open = plan->nruns;
        rondo_submit(ctx, plan->runs, plan->nruns, plan->ticket != NULL ? plan->ticket->stream : NULL);
        *moved = 1;
    }
}

static void reap_done(struct rondo_ctx *ctx, rondo_status status, int *moved)
{
    struct rondo_plan **at = &ctx->queue.first;
    ctx->queue.last = NULL;
    while (*at != NULL) {
        struct rondo_plan *plan = *at;
        if (status != RONDO_SUCCESS || (plan->issued && plan->open == 0 && !ctx->wiring.net.busy)) {
            *at = plan->next;
            plan_done(plan, status); /* its owner may free it from here on */
            __atomic_sub_fetch(&ctx->queue.nplans, 1, __ATOMIC_RELEASE);
            *moved = 1;
        } else {
            ctx->queue.last = plan;
            at = &plan->next;
        }
    }
}

rondo_status rondo_ctx_progress_queue(struct rondo_ctx *ctx, int *moved)
{
    rondo_status status;
    int own = 0;
    if (pthread_mutex_trylock(&ctx->queue.lock) != 0) {
        return RONDO_SUCCESS;
    }
    if (ctx->queue.first == NULL) { /* another thread emptied it: the executor belongs to its owner again */
        pthread_mutex_unlock(&ctx->queue.lock);
        return RONDO_SUCCESS;
    }
    issue_ready(ctx, &own);
    status = rondo_ctx_with_reason(ctx, rondo_ctx_progress(ctx, &own));
    if (status == RONDO_SUCCESS) {
        status = rondo_ctx_ready(ctx);
    }
    if (status != RONDO_SUCCESS) {
        rondo_ctx_drop(ctx, rondo_ctx_fail(ctx, status, -1));
    }
    reap_done(ctx, status, &own);
    if (own) {
        __atomic_store_n(&ctx->queue.moves, ctx->queue.moves + 1, __ATOMIC_RELAXED);
        *moved = 1;
    }
    pthread_mutex_unlock(&ctx->queue.lock);
    return status;
}

void rondo_streams_progress(int *moved)
{
    if (__atomic_load_n(&nregistered, __ATOMIC_ACQUIRE) == 0 || pthread_mutex_trylock(&registry_lock) != 0) {
        return;
    }
    for (struct rondo_ctx *ctx = registry; ctx != NULL; ctx = ctx->queue.registry_next) {
        if (__atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) > 0) {
            rondo_ctx_progress_queue(ctx, moved); /* the plans keep errors */
        }
    }
    pthread_mutex_unlock(&registry_lock);
}

/* The context of a plan that keeps the next plan of this queue from being issued; NULL: none does. issued: is
 * it? With the registry's lock held: a context with a plan that is not done then does not end. */
static struct rondo_ctx *behind(struct rondo_ctx *ctx, int *issued)
{
    struct rondo_ctx *other = NULL;
    struct rondo_plan *plan;
    pthread_mutex_lock(&ctx->queue.lock);
    plan = ctx->queue.first;
    while (plan != NULL && plan->issued) {
        plan = plan->next;
    }
    pthread_mutex_lock(&before_lock);
    for (const struct rondo_ticket *t = plan != NULL ? plan->ticket : NULL; t != NULL && other == NULL;
         t = t->other) {
        const struct rondo_plan *before = t->before != NULL ? t->before->plan : NULL;
        if (before != NULL && !is_done(before)) {
            other = before->ctx;
            *issued = is_issued(before);
        }
    }
    pthread_mutex_unlock(&before_lock);
    pthread_mutex_unlock(&ctx->queue.lock);
    return other;
}

/* A plan that is not issued may be behind one of another communicator, in its own streams or in those of an
 * earlier plan of its communicator, and that one behind a third. Until they are done, their moves count: else
 * a deadline would end a communicator whose only fault is that it waits its turn. Moves of communicators that
 * are not in its way never count. */
uint64_t rondo_queue_moves(struct rondo_ctx *ctx, int issued)
{
    uint64_t moves = __atomic_load_n(&ctx->queue.moves, __ATOMIC_RELAXED);
    if (issued) {
        return moves;
    }
    pthread_mutex_lock(&registry_lock);
    for (int n = __atomic_load_n(&nregistered, __ATOMIC_RELAXED); n > 0 && !issued; n--) {
        ctx = behind(ctx, &issued);
        if (ctx == NULL) {
            break;
        }
        moves += __atomic_load_n(&ctx->queue.moves, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&registry_lock);
    return moves;
}

/* What a wait follows (rondo_wait_follow). */
struct followed {
    struct rondo_ctx *ctx; /* NULL: nothing */
    int all;               /* it waits for all plans, first of all for the first one */
    int issued;            /* the plan that it waits for */
    uint64_t moves;        /* at the last look */
};

static int first_is_issued(struct rondo_ctx *ctx)
{
    int issued;
    pthread_mutex_lock(&ctx->queue.lock);
    issued = ctx->queue.first != NULL && is_issued(ctx->queue.first);
    pthread_mutex_unlock(&ctx->queue.lock);
    return issued;
}

static int has_moved(void *arg)
{
    struct followed *followed = arg;
    uint64_t before = followed->moves;
    if (followed->ctx == NULL) {
        return 0;
    }
    followed->issued = followed->all ? first_is_issued(followed->ctx) : followed->issued;
    followed->moves = rondo_queue_moves(followed->ctx, followed->issued);
    if (followed->moves != before) {
        rondo_ctx_goes_on(followed->ctx);
    }
    return followed->moves != before;
}

rondo_status rondo_ctx_drain(struct rondo_ctx *ctx)
{
    struct rondo_wait wait;
    struct followed followed = { .ctx = ctx, .all = 1 };
    rondo_wait_begin(&wait, &ctx->running.policy);
    rondo_wait_follow(&wait, has_moved, &followed);
    rondo_ctx_goes_on(ctx);
    while (__atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) > 0) {
        int moved = 0;
        RONDO_TRY(rondo_ctx_progress_queue(ctx, &moved));
        rondo_streams_progress(&moved); /* it may wait for a plan of another communicator */
        RONDO_TRY(moved ? rondo_wait_busy(&wait) : rondo_wait_once(&wait));
    }
    return rondo_ctx_ready(ctx); /* another thread may have found an error in the queue */
}

void rondo_ctx_drop_queue(struct rondo_ctx *ctx, rondo_status status, int by_user)
{
    int moved = 0;
    pthread_mutex_lock(&registry_lock); /* also excludes visit() */
    registry_remove(ctx);
    pthread_mutex_lock(&ctx->queue.lock);
    if (ctx->queue.first != NULL) {
        if (by_user) {
            rondo_fail_quiet(status,
                             "rank %d: the communicator \"%s\" ended with work still queued on a stream",
                             ctx->job.rank, ctx->job.name);
        }
        rondo_ctx_drop(ctx, status);
        reap_done(ctx, status, &moved);
    }
    pthread_mutex_unlock(&ctx->queue.lock);
    pthread_mutex_unlock(&registry_lock);
}

/* ---- streams ---- */

rondo_status rondo_plan_add_stream(struct rondo_plan *plan, rondo_stream stream)
{
    struct rondo_ticket *ticket = plan->ticket;
    void *memory;
    while (ticket != NULL && ticket->stream != stream) {
        ticket = ticket->other;
    }
    plan->waited |= stream == NULL;
    if (stream == NULL || ticket != NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_plan_temp(plan, sizeof(*ticket), &memory));
    ticket = memory;
    *ticket = (struct rondo_ticket){ .plan = plan, .stream = stream, .other = plan->ticket };
    plan->ticket = ticket;
    return RONDO_SUCCESS;
}

void rondo_plan_unref(struct rondo_plan *plan)
{
    if (__atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        rondo_plan_release(plan);
        rondo_free(plan);
    }
}

/* Keep the memory of a plan that has ended, or free it. */
static void keep_plan(struct rondo_stream_st *stream, struct rondo_plan *plan)
{
    if (stream->spare != NULL || plan->capacity > MOST_SPARED) {
        rondo_plan_release(plan);
        rondo_free(plan);
        return;
    }
    rondo_plan_reset(plan);
    *plan = (struct rondo_plan){ .runs = plan->runs,
                                 .capacity = plan->capacity,
                                 .spare = plan->spare,
                                 .self = plan->self,
                                 .self_capacity = plan->self_capacity };
    stream->spare = plan;
}

/* Let go of plans that are done, in order, and keep the first error. The caller holds the lock. */
static void reap_stream(struct rondo_stream_st *stream)
{
    while (stream->first != NULL && is_done(stream->first->plan)) {
        struct rondo_plan *plan = stream->first->plan;
        struct rondo_ticket *after = stream->first->after;
        if (plan->status != RONDO_SUCCESS && stream->status == RONDO_SUCCESS) {
            stream->status = plan->status;
        }
        if (after != NULL) {
            pthread_mutex_lock(&before_lock);
            after->before = NULL;
            pthread_mutex_unlock(&before_lock);
        } else {
            stream->last = NULL;
        }
        stream->first = after;
        if (__atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) == 0) {
            keep_plan(stream, plan);
        }
    }
}

rondo_status rondo_stream_new_plan(rondo_stream stream, struct rondo_ctx *ctx, struct rondo_plan **plan)
{
    struct rondo_plan *made;
    pthread_mutex_lock(&stream->lock);
    reap_stream(stream);
    made = stream->spare;
    stream->spare = NULL;
    pthread_mutex_unlock(&stream->lock);
    if (made == NULL) {
        RONDO_TRY(RONDO_NEW(made, "a plan"));
    }
    made->ctx = ctx;
    *plan = made;
    return RONDO_SUCCESS;
}

static void enter_stream(struct rondo_ticket *ticket)
{
    struct rondo_stream_st *stream = ticket->stream;
    pthread_mutex_lock(&stream->lock);
    reap_stream(stream);
    ticket->before = stream->last;
    if (stream->last != NULL) {
        stream->last->after = ticket;
    } else {
        stream->first = ticket;
    }
    stream->last = ticket;
    pthread_mutex_unlock(&stream->lock);
}

void rondo_stream_put(struct rondo_plan *plan)
{
    struct rondo_ctx *ctx = plan->ctx;
    int several = plan->ticket != NULL && plan->ticket->other != NULL;
    plan->refs = plan->waited;
    for (const struct rondo_ticket *t = plan->ticket; t != NULL; t = t->other) {
        plan->refs++;
    }
    registry_add(ctx);
    if (several) {
        pthread_mutex_lock(&several_lock);
    }
    for (struct rondo_ticket *t = plan->ticket; t != NULL; t = t->other) {
        enter_stream(t);
    }
    if (several) {
        pthread_mutex_unlock(&several_lock);
    }
    pthread_mutex_lock(&ctx->queue.lock);
    __atomic_add_fetch(&ctx->queue.nplans, 1, __ATOMIC_RELEASE);
    if (ctx->queue.first == NULL) {
        ctx->queue.first = plan;
    } else {
        ctx->queue.last->next = plan;
    }
    ctx->queue.last = plan;
    pthread_mutex_unlock(&ctx->queue.lock);
}

/* Whoever comes last can do all of its part at once, and the others then find theirs ready. */
rondo_status rondo_stream_enqueue(struct rondo_plan *plan)
{
    struct rondo_ctx *ctx = plan->ctx; /* another thread may end and free the plan */
    int moved = 1;
    rondo_stream_put(plan);
    for (int step = 0; step < FIRST_STEPS && moved; step++) {
        moved = 0;
        RONDO_TRY(rondo_ctx_progress_queue(ctx, &moved));
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_stream_check(rondo_stream stream, const char *what)
{
    if (stream == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the stream is NULL", what);
    }
    switch (__atomic_load_n(&stream->shell.magic, __ATOMIC_ACQUIRE)) {
    case STREAM_ALIVE: return RONDO_SUCCESS;
    case RONDO_SHELL_DEAD:
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the stream was destroyed before this call", what);
    case RONDO_SHELL_FORKED:
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "%s: this process is a forked child, and the stream belongs to its parent: only the "
            "parent may use and destroy it; the child may create its own",
            what);
    default:
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: %p is not a stream of host memory: pass one that rondo_stream_create returned",
                          what, (const void *)stream);
    }
}

static rondo_status stream_create(rondo_stream *stream)
{
    void *memory;
    rondo_stream made;
    if (stream == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_stream_create: the place for the stream is NULL");
    }
    RONDO_TRY(rondo_shell_create(&streams, &memory));
    made = memory;
    pthread_mutex_init(&made->lock, NULL);
    rondo_shell_publish(&streams, &made->shell);
    *stream = made;
    return RONDO_SUCCESS;
}

rondo_status rondo_stream_create(rondo_stream *stream)
{
    RONDO_RUN_INSIDE("rondo_stream_create", stream_create(stream));
}

/* Visit the context of a plan that is not done, so that it is not freed. @return NULL: there is nothing to
 * wait for. */
static struct rondo_ctx *visit(const struct rondo_plan *plan)
{
    struct rondo_ctx *ctx = NULL;
    pthread_mutex_lock(&registry_lock);
    if (!is_done(plan) && !__atomic_load_n(&plan->ctx->life.aborted, __ATOMIC_ACQUIRE)) {
        ctx = plan->ctx;
        __atomic_add_fetch(&ctx->shell->visitors, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&registry_lock);
    return ctx;
}

/* Make progress on all streams. first, unless NULL: becomes this stream's first plan; its context is then
 * visited, or NULL. @return RONDO_IN_PROGRESS while plans of this stream are open. */
static rondo_status stream_progress(struct rondo_stream_st *stream, int *moved, struct followed *first)
{
    rondo_status status;
    rondo_streams_progress(moved);
    pthread_mutex_lock(&stream->lock);
    reap_stream(stream);
    if (first != NULL) {
        first->ctx = stream->first != NULL ? visit(stream->first->plan) : NULL;
        first->issued = stream->first != NULL && is_issued(stream->first->plan);
    }
    status = stream->first != NULL ? RONDO_IN_PROGRESS : stream->status;
    pthread_mutex_unlock(&stream->lock);
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        return rondo_fail_quiet(
            status, "a call of this stream failed: rondo_last_error of its communicator says why");
    }
    return status;
}

int rondo_stream_is_free(rondo_stream stream)
{
    return __atomic_load_n(&stream->shell.magic, __ATOMIC_ACQUIRE) == STREAM_ALIVE &&
           rondo_stream_look(stream) == RONDO_SUCCESS;
}

rondo_status rondo_stream_look(rondo_stream stream)
{
    rondo_status status;
    pthread_mutex_lock(&stream->lock);
    reap_stream(stream);
    status = stream->first != NULL ? RONDO_IN_PROGRESS : stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

static rondo_status poll_all(void)
{
    int moved = 0;
    rondo_streams_progress(&moved);
    return RONDO_SUCCESS;
}

rondo_status rondo_streams_poll(void) { RONDO_RUN_INSIDE("rondo_stream_query", poll_all()); }

static rondo_status query(rondo_stream stream)
{
    int moved = 0;
    RONDO_TRY(rondo_stream_check(stream, "rondo_stream_query"));
    return stream_progress(stream, &moved, NULL);
}

rondo_status rondo_stream_query(rondo_stream stream)
{
    RONDO_RUN_INSIDE("rondo_stream_query", query(stream));
}

static rondo_status wait_for(struct rondo_stream_st *stream, int aside)
{
    struct rondo_wait wait;
    struct followed first = { .ctx = NULL };
    const struct rondo_ctx *last = NULL;
    rondo_status status;
    struct rondo_wait_policy none = { .spins = aside ? ASIDE_SPINS : 100,
                                      .sleep_after_ns = aside ? 1 : rondo_params()->sleep_after },
                             sleepy;
    rondo_wait_begin(&wait, &none);
    rondo_wait_follow(&wait, has_moved, &first);
    for (;;) {
        struct rondo_ctx *waiting;
        int moved = 0;
        status = stream_progress(stream, &moved, &first);
        if (status != RONDO_IN_PROGRESS) {
            return status;
        }
        waiting = first.ctx;
        if (waiting != NULL && waiting != last) {
            rondo_wait_follow(&wait, has_moved, &first);
            rondo_ctx_goes_on(waiting);
            last = waiting;
        }
        wait.policy = waiting != NULL ? &waiting->running.policy : &none;
        if (aside && waiting != NULL) {
            sleepy = *wait.policy;
            sleepy.sleep_after_ns = 1;
            sleepy.oversubscription = NULL; /* this says nothing about the cores of ranks */
            wait.policy = &sleepy;
        }
        /* An error ends the communicator and its plans, as the next step finds. */
        (void)(moved ? rondo_wait_busy(&wait) : rondo_wait_once(&wait));
        if (waiting != NULL) {
            rondo_comm_unvisit(waiting->shell);
        }
    }
}

static rondo_status synchronize(rondo_stream stream)
{
    RONDO_TRY(rondo_stream_check(stream, "rondo_stream_synchronize"));
    return wait_for(stream, 0);
}

rondo_status rondo_stream_synchronize(rondo_stream stream)
{
    RONDO_RUN_INSIDE("rondo_stream_synchronize", synchronize(stream));
}

rondo_status rondo_stream_wait_aside(rondo_stream stream)
{
    RONDO_RUN_INSIDE("rondo_stream_synchronize", wait_for(stream, 1));
}

static rondo_status stream_destroy(rondo_stream stream)
{
    struct rondo_plan *spare;
    rondo_status status;
    RONDO_TRY(rondo_stream_check(stream, "rondo_stream_destroy"));
    status = wait_for(stream, 0);
    if (!rondo_shell_kill(&streams, &stream->shell)) { /* another thread was faster */
        return rondo_stream_check(stream, "rondo_stream_destroy");
    }
    spare = stream->spare;
    stream->spare = NULL;
    if (spare != NULL) {
        rondo_plan_release(spare);
        rondo_free(spare);
    }
    rondo_shell_bury(&streams, &stream->shell);
    return status;
}

rondo_status rondo_stream_destroy(rondo_stream stream)
{
    RONDO_RUN_INSIDE("rondo_stream_destroy", stream_destroy(stream));
}
