/* Groups: a thread's calls between start and end, collected and issued together. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "comm.h"
#include "device.h"

/* A communicator that is created in the group. */
struct created {
    rondo_comm *shell;  /* the context may be gone at the group's end */
    rondo_comm **place; /* the user's handle */
};

_Thread_local int rondo_group_level RONDO_FAST_TLS;

/* Of this thread; arrays live from the first call to the end of the group. */
static _Thread_local struct {
    rondo_status status; /* first error of a call inside the group */
    struct rondo_task *task;
    int ntasks, capacity;
    struct rondo_ctx **init;
    struct created *created; /* by index of init */
    int ninits, init_capacity, created_capacity;
} group;

static rondo_status grow(void *array, int *capacity, int used, size_t size)
{
    void **place = array, *bigger;
    int wanted = 2 * *capacity + 16;
    if (used < *capacity) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_calloc(&bigger, (size_t)wanted, size, "the calls of a group"));
    if (used > 0) {
        memcpy(bigger, *place, size * (size_t)used);
    }
    rondo_free(*place);
    *place = bigger;
    *capacity = wanted;
    return RONDO_SUCCESS;
}

/* The caller's arrays may be gone when the group ends. */
static rondo_status own_arrays(struct rondo_task *t)
{
    const size_t **array[] = { &t->counts, &t->displs, &t->send_counts, &t->send_displs };
    size_t n = (size_t)t->ctx->nranks;
    if (t->counts == NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(t->owned, n * RONDO_COUNTOF(array), "the counts of a call"));
    for (size_t i = 0; i < RONDO_COUNTOF(array); i++) {
        if (*array[i] != NULL) {
            memcpy(t->owned + i * n, *array[i], n * sizeof(size_t));
            *array[i] = t->owned + i * n;
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_group_add(const struct rondo_task *task)
{
    struct rondo_task *added;
    RONDO_TRY(grow(&group.task, &group.capacity, group.ntasks, sizeof(*group.task)));
    added = &group.task[group.ntasks];
    *added = *task;
    RONDO_TRY(own_arrays(added));
    added->shell = task->ctx->shell;
    group.ntasks++;
    return RONDO_SUCCESS;
}

rondo_status rondo_group_add_init(struct rondo_ctx *ctx, rondo_comm **comm)
{
    RONDO_TRY(grow(&group.init, &group.init_capacity, group.ninits, sizeof(struct rondo_ctx *)));
    RONDO_TRY(grow(&group.created, &group.created_capacity, group.ninits, sizeof(*group.created)));
    group.created[group.ninits].shell = ctx->shell;
    group.created[group.ninits].place = comm;
    group.init[group.ninits++] = ctx;
    return RONDO_SUCCESS;
}

/* Creations that were not aborted since. @return the error of one that was. */
static rondo_status enter_inits(void)
{
    rondo_status status = RONDO_SUCCESS;
    int n = 0;
    for (int i = 0; i < group.ninits; i++) {
        struct rondo_ctx *ctx;
        rondo_status entered = rondo_comm_enter(group.created[i].shell, "rondo_group_end", &ctx);
        if (entered == RONDO_SUCCESS && ctx == group.init[i]) {
            group.init[n] = ctx;
            group.created[n++] = group.created[i];
        } else {
            status = entered;
        }
    }
    group.ninits = n;
    return status;
}

/* Creations of the group, together. Those that failed, and splits without a colour, leave NULL. status: an error gives all of them up. */
static rondo_status run_inits(rondo_status status)
{
    rondo_status entered = enter_inits();
    status = status == RONDO_SUCCESS ? entered : status;
    if (status == RONDO_SUCCESS) {
        status = rondo_init_run(group.init, group.ninits);
    }
    for (int i = 0; i < group.ninits; i++) {
        struct rondo_ctx *ctx = group.init[i];
        if (__atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) != RONDO_COMM_READY || ctx->nranks == 0) {
            *group.created[i].place = NULL;
            rondo_comm_discard(ctx);
        } else {
            rondo_comm_leave(ctx->shell);
        }
    }
    return status;
}

void rondo_group_note_error(rondo_status status)
{
    if (rondo_group_level > 0 && group.status == RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        group.status = status;
    }
}

rondo_status rondo_group_start(void)
{
    rondo_group_level++;
    return RONDO_SUCCESS;
}

/* One plan per communicator and stream of the group, but one for all streams of a GPU's communicator, in the order in which they appear. */
static rondo_status build_plans(struct rondo_plan ***plans_out, int *nplans_out)
{
    struct rondo_plan **plans;
    int nplans = 0;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(RONDO_NEW_ARRAY(plans, group.ntasks, "the plans of a group"));
    for (int i = 0; i < group.ntasks && status == RONDO_SUCCESS; i++) {
        const struct rondo_task *t = &group.task[i];
        struct rondo_plan *plan = NULL;
        for (int p = nplans - 1; p >= 0 && plan == NULL; p--) {
            plan = plans[p]->ctx == t->ctx && (t->ctx->device != NULL || plans[p]->stream == t->stream) ? plans[p] : NULL;
        }
        if (plan == NULL) {
            status = RONDO_NEW(plan, "a plan");
            if (status != RONDO_SUCCESS) {
                break;
            }
            plan->ctx = t->ctx;
            plan->stream = t->stream;
            plans[nplans++] = plan;
        }
        status = t->ctx->device != NULL ? rondo_device_add(plan, t) : rondo_plan_add(plan, t);
    }
    for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
        status = rondo_plan_check(plans[p]);
    }
    *plans_out = plans;
    *nplans_out = nplans;
    return status;
}

/* Is there something to wait for? Not of a plan that its stream has. */
static int is_open(const struct rondo_plan *plan) { return plan->stream == NULL && (plan->open > 0 || plan->ctx->net.busy); }

/* Plans without a stream: issue all, then turn all until every one is done. */
static rondo_status run_plans(struct rondo_plan **plans, int nplans)
{
    struct rondo_wait wait;
    struct rondo_ctx *waiter = NULL;
    rondo_status status = RONDO_SUCCESS;
    int open = 1, looked = 0;
    for (int p = 0; p < nplans; p++) {
        struct rondo_ctx *ctx = plans[p]->ctx;
        if (plans[p]->stream == NULL) {
            RONDO_TRY(rondo_ctx_drain(ctx));
        }
    }
    for (int p = 0; p < nplans; p++) {
        struct rondo_plan *plan = plans[p];
        if (plan->stream == NULL) {
            plan->open = plan->nruns;
            plan->ctx->exec_ops->submit(plan->ctx->exec, plan->runs, plan->nruns);
            plan->ctx->stall_checks = 0;
            waiter = plan->ctx;
        }
    }
    if (waiter != NULL) {
        rondo_wait_begin(&wait, &waiter->policy);
    }
    while (waiter != NULL && open && status == RONDO_SUCCESS) {
        int moved = 0;
        open = 0;
        for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
            if (is_open(plans[p])) {
                status = rondo_ctx_turn(plans[p]->ctx, &moved);
                open |= is_open(plans[p]);
            }
        }
        if (moved) {
            rondo_wait_reset(&wait);
        } else if (open && status == RONDO_SUCCESS) {
            do { /* whoever is open is looked after, in turn */
                looked = (looked + 1) % nplans;
            } while (!is_open(plans[looked]));
            wait.policy = &plans[looked]->ctx->policy;
            status = rondo_wait_turn(&wait);
        }
    }
    for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
        status = plans[p]->stream == NULL ? rondo_plan_compare(plans[p]->ctx, plans[p]->runs, plans[p]->nruns) : RONDO_SUCCESS;
    }
    return status;
}

static void end_plans(struct rondo_plan **plans, int nplans, rondo_status status)
{
    for (int p = 0; p < nplans; p++) {
        struct rondo_plan *plan = plans[p];
        if (plan == NULL) {
            continue; /* its stream has it */
        }
        if (status == RONDO_SUCCESS) {
            rondo_plan_calls_end(plan);
        } else if (plan->open > 0 || plan->ctx->net.busy) { /* what is still on its way out may lie in the caller's memory */
            rondo_ctx_drop(plan->ctx, rondo_ctx_fail(plan->ctx, status, -1));
        }
        rondo_plan_release(plan);
        rondo_free(plan);
    }
    rondo_free(plans);
}

static rondo_status run_tasks(void)
{
    struct rondo_plan **plans = NULL;
    int nplans = 0;
    rondo_status status = build_plans(&plans, &nplans);
    if (status == RONDO_SUCCESS) {
        status = rondo_device_run_plans(plans, nplans);
    }
    for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
        if (plans[p] != NULL && plans[p]->stream != NULL) {
            struct rondo_plan *plan = plans[p];
            plans[p] = NULL;
            status = rondo_stream_enqueue(plan);
        }
    }
    if (status == RONDO_SUCCESS) {
        int kept = 0;
        for (int p = 0; p < nplans; p++) { /* close the gaps that streams left */
            plans[kept] = plans[p];
            kept += plans[p] != NULL;
        }
        nplans = kept;
        status = run_plans(plans, nplans);
    }
    end_plans(plans, nplans, status);
    return status;
}

static void leave_tasks(int n)
{
    for (int i = 0; i < n; i++) {
        rondo_comm_leave(group.task[i].shell);
    }
}

static rondo_status enter_tasks(void)
{
    for (int i = 0; i < group.ntasks; i++) {
        struct rondo_ctx *ctx;
        rondo_status status = rondo_comm_enter(group.task[i].shell, "rondo_group_end", &ctx);
        if (status == RONDO_SUCCESS && ctx != group.task[i].ctx) {
            rondo_comm_leave(group.task[i].shell);
            status = rondo_fail(RONDO_INVALID_ARGUMENT,
                                "rondo_group_end: a communicator of the group was destroyed or aborted before the group's end");
        }
        if (status != RONDO_SUCCESS) {
            leave_tasks(i);
            return status;
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status issue_tasks(void)
{
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(enter_tasks());
    for (int i = 0; i < group.ntasks && status == RONDO_SUCCESS; i++) {
        status = rondo_ctx_ready(group.task[i].ctx);
    }
    if (status == RONDO_SUCCESS) {
        status = run_tasks();
    }
    for (int i = 0; i < group.ntasks && status != RONDO_SUCCESS; i++) {
        rondo_ctx_keep_error(group.task[i].ctx, status);
    }
    leave_tasks(group.ntasks);
    return status;
}

rondo_status rondo_group_end(void)
{
    rondo_status status;
    if (rondo_group_level == 0) {
        return rondo_fail(RONDO_INVALID_USAGE, "rondo_group_end without rondo_group_start in this thread");
    }
    if (--rondo_group_level > 0) {
        return RONDO_SUCCESS;
    }
    status = group.status;
    if (group.ninits > 0) {
        status = run_inits(status);
    }
    if (status == RONDO_SUCCESS && group.ntasks > 0) {
        status = issue_tasks();
    }
    for (int i = 0; i < group.ntasks; i++) {
        rondo_free(group.task[i].owned);
    }
    rondo_free(group.task);
    rondo_free(group.init);
    rondo_free(group.created);
    memset(&group, 0, sizeof(group));
    return status;
}
