/* Groups: a thread's calls between start and end are collected and issued together. */
#include "call/group.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "call/choose.h"
#include "call/plan_impl.h"
#include "call/profile.h"
#include "call/stream.h"
#include "call/wait.h"
#include "comm/backend.h"

/* The group of this thread. Arrays live from the first call to the end of the group. */
static _Thread_local struct {
    rondo_status status; /* first error of a call inside the group */
    struct rondo_task *task;
    int ntasks, capacity;
    struct rondo_creation *creation;
    int ncreations, creation_capacity;
    rondo_end_creations *end_creations;
} group;

/* Copy the caller's arrays, which need not live until the group ends. */
static rondo_status own_arrays(struct rondo_task *t)
{
    const size_t **array[] = { &t->counts, &t->displs, &t->send_counts, &t->send_displs };
    size_t n = (size_t)t->ctx->job.nranks;
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
    RONDO_TRY(RONDO_ARRAY_GROW(group.task, group.ntasks, group.capacity, "the calls of a group"));
    added = &group.task[group.ntasks];
    *added = *task;
    RONDO_TRY(own_arrays(added));
    added->shell = task->ctx->shell;
    if (RONDO_UNLIKELY(task->ctx->prof != NULL)) {
        rondo_profile_add(group.task, group.ntasks, rondo_group_depth());
    }
    group.ntasks++;
    return RONDO_SUCCESS;
}

rondo_status rondo_group_add_creation(struct rondo_ctx *ctx, rondo_comm **comm, rondo_end_creations *end)
{
    RONDO_TRY(
        RONDO_ARRAY_GROW(group.creation, group.ncreations, group.creation_capacity, "the calls of a group"));
    group.creation[group.ncreations++] =
        (struct rondo_creation){ .ctx = ctx, .shell = ctx->shell, .place = comm };
    group.end_creations = end;
    return RONDO_SUCCESS;
}

void rondo_group_note_error(rondo_status status)
{
    if (rondo_group_depth() > 0 && group.status == RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        group.status = status;
        snprintf(rondo_thread_texts_get()->group_error, RONDO_ERROR_TEXT, "%s", rondo_error_text());
    }
}

rondo_status rondo_group_refuse(const char *why)
{
    if (why == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_group_refuse: the sentence is NULL");
    }
    if (rondo_group_depth() > 0) {
        rondo_group_note_error(rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "%s", why));
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_group_start(void)
{
    RONDO_TRY(rondo_inside_begin("rondo_group_start"));
    rondo_inside += RONDO_INSIDE_GROUP;
    rondo_inside_end();
    return RONDO_SUCCESS;
}

/* Get the plan of the task's communicator; its first call in the group adds one. */
static rondo_status plan_of(struct rondo_plan **plans, int *nplans, const struct rondo_task *t,
                            struct rondo_plan **plan)
{
    for (int p = *nplans - 1; p >= 0; p--) {
        if (plans[p]->ctx == t->ctx) {
            *plan = plans[p];
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(RONDO_NEW(*plan, "a plan"));
    (*plan)->ctx = t->ctx;
    (*plan)->stream = t->stream;
    plans[(*nplans)++] = *plan;
    return RONDO_SUCCESS;
}

/* One plan per communicator keeps its calls in the order in which they were made. Streams do not change it:
 * each rank chooses its own. */
static rondo_status build_plans(struct rondo_plan ***plans_out, int *nplans_out)
{
    struct rondo_plan **plans;
    int nplans = 0;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(rondo_plan_check_selves(group.task, group.ntasks));
    for (int i = 0; i < group.ntasks && status == RONDO_SUCCESS; i++) { /* before any is counted */
        status = rondo_plan_check_choice(&group.task[i]);
    }
    for (int i = 0; i < group.ntasks && status != RONDO_SUCCESS; i++) {
        (void)rondo_plan_fails(group.task[i].ctx, status); /* not if it was refused, as all ranks refuse it */
    }
    RONDO_TRY(status);
    RONDO_TRY(RONDO_NEW_ARRAY(plans, group.ntasks, "the plans of a group"));
    for (int i = 0; i < group.ntasks && status == RONDO_SUCCESS; i++) {
        const struct rondo_task *t = &group.task[i];
        struct rondo_plan *plan;
        status = plan_of(plans, &nplans, t, &plan);
        if (status == RONDO_SUCCESS) {
            int first = plan->nruns;
            status = t->ctx->backend->add(plan, t);
            if (RONDO_UNLIKELY(t->prof != NULL) && status == RONDO_SUCCESS) {
                rondo_profile_watch(t, plan->runs + first, plan->nruns - first);
            }
            rondo_message_begin(t->ctx, t, group.ntasks == 1);
        }
    }
    for (int p = 0; p < nplans; p++) {
        (void)rondo_plan_fails(plans[p]->ctx, status);
    }
    *plans_out = plans;
    *nplans_out = nplans;
    return status;
}

/* Streams own queued plans. The others run here, because nothing is queued before them. */
static int is_queued(const struct rondo_plan *plan)
{
    return __atomic_load_n(&plan->refs, __ATOMIC_RELAXED) > 0;
}

/* Is there something to wait for? */
static int is_open(const struct rondo_plan *plan)
{
    return is_queued(plan) ? !__atomic_load_n(&plan->done, __ATOMIC_ACQUIRE)
                           : plan->open > 0 || plan->ctx->wiring.net.busy;
}

/* Issue all plans before waiting for any. Plans that need no wait leave the list. status: of the plans that
 * backends launched. */
static rondo_status issue_plans(struct rondo_plan **plans, int *nplans, rondo_status status)
{
    int kept = 0, n = *nplans;
    for (int p = 0; p < n; p++) {
        struct rondo_plan *plan = plans[p];
        struct rondo_ctx *ctx = plan != NULL ? plan->ctx : NULL;
        int waited = plan != NULL && plan->waited;
        if (ctx == NULL) {
            continue; /* launched by its backend */
        }
        if (status != RONDO_SUCCESS) { /* this rank has numbered calls that it does not make */
            rondo_ctx_fail(ctx, status, -1);
        } else if (plan->ticket != NULL || __atomic_load_n(&ctx->queue.nplans, __ATOMIC_ACQUIRE) > 0) {
            status = rondo_stream_enqueue(plan);
            if (!waited) {
                continue;
            }
        } else {
            plan->open = plan->nruns;
            rondo_submit(ctx, plan->runs, plan->nruns, NULL);
            rondo_ctx_goes_on(ctx);
        }
        plans[kept++] = plan;
    }
    *nplans = kept;
    return status;
}

/* The plans that a group waits for (rondo_wait_follow). */
struct followed {
    struct rondo_plan **plans;
    int nplans;
    uint64_t own;   /* moves of plans that are not queued */
    uint64_t moves; /* of all, at the last look */
};

/* moved: something has, perhaps only plans of other communicators. */
static rondo_status progress_plan(struct rondo_plan *plan, struct followed *followed, int *moved)
{
    rondo_status status = RONDO_SUCCESS;
    int now = 0;
    if (!is_queued(plan)) {
        status = rondo_ctx_with_reason(plan->ctx, rondo_ctx_progress(plan->ctx, &now));
        followed->own += now != 0;
    } else {
        rondo_ctx_progress_queue(plan->ctx, &now); /* the plan keeps an error */
        rondo_streams_progress(&now);              /* it may wait for a plan of another communicator */
    }
    *moved |= now;
    return status;
}

/* A group moves when any of its plans does. */
static int has_moved(void *arg)
{
    struct followed *followed = arg;
    uint64_t before = followed->moves, moves = followed->own;
    for (int p = 0; p < followed->nplans; p++) {
        const struct rondo_plan *plan = followed->plans[p];
        if (is_queued(plan) && is_open(plan)) {
            moves += rondo_queue_moves(plan->ctx, __atomic_load_n(&plan->issued, __ATOMIC_RELAXED));
        }
    }
    followed->moves = moves;
    for (int p = 0; p < followed->nplans && moves != before; p++) {
        rondo_ctx_goes_on(followed->plans[p]->ctx);
    }
    return moves != before;
}

/* Open plans take turns with their checks and deadlines: a turn ends with a look at the clock, as not each
 * round has one. Another thread may complete a queued plan at any time, so perhaps none is open by now. */
static const struct rondo_wait_policy *policy_of(struct rondo_plan **plans, int nplans, uint32_t turn)
{
    int at = (int)(turn % (uint32_t)nplans);
    for (int k = 0; k < nplans && !is_open(plans[at]); k++) {
        at = (at + 1) % nplans;
    }
    return &plans[at]->ctx->running.policy;
}

/* The result of a plan that has ended. */
static rondo_status result_of(const struct rondo_plan *plan)
{
    if (!is_queued(plan)) {
        return rondo_plan_compare(plan->ctx, plan->runs, plan->nruns);
    }
    return plan->status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_ctx_ready(plan->ctx);
}

/* Make progress on all plans until each is done. */
static rondo_status wait_for_plans(struct rondo_plan **plans, int nplans)
{
    struct rondo_wait wait;
    struct followed followed = { .plans = plans, .nplans = nplans };
    rondo_status status = RONDO_SUCCESS;
    int open = nplans > 0;
    if (nplans > 0) {
        rondo_wait_begin(&wait, &plans[nplans - 1]->ctx->running.policy);
        rondo_wait_follow(&wait, has_moved, &followed);
    }
    while (open && status == RONDO_SUCCESS) {
        int moved = 0;
        open = 0;
        for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
            if (is_open(plans[p])) {
                status = progress_plan(plans[p], &followed, &moved);
                open |= is_open(plans[p]);
            }
        }
        if (open && status == RONDO_SUCCESS) {
            wait.policy = policy_of(plans, nplans, wait.clock_looks);
            status = moved ? rondo_wait_busy(&wait) : rondo_wait_once(&wait);
        }
    }
    for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
        status = result_of(plans[p]);
    }
    return status;
}

/* In a group that fails: has this plan ended all the same? Its communicator goes on. Those of plans that were
 * not issued have failed. */
static int has_ended(const struct rondo_plan *plan)
{
    return !is_open(plan) && __atomic_load_n(&plan->ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY;
}

static void end_plans(struct rondo_plan **plans, int nplans, rondo_status status)
{
    for (int p = 0; p < nplans; p++) {
        struct rondo_plan *plan = plans[p];
        if (plan == NULL) {
            continue; /* launched by its backend */
        }
        rondo_message_end(plan->ctx);
        rondo_ctx_waited(plan->ctx);
        if (is_queued(plan)) {
            if (is_open(plan)) {
                rondo_ctx_drop_queue(plan->ctx, rondo_ctx_fail(plan->ctx, status, -1), 0);
            }
            rondo_plan_unref(plan);
            continue;
        }
        if (status == RONDO_SUCCESS || has_ended(plan)) {
            rondo_plan_calls_end(plan);
        } else if (plan->open > 0 ||
                   plan->ctx->wiring.net.busy) { /* data in flight may lie in the caller's memory */
            rondo_ctx_drop(plan->ctx, rondo_ctx_fail(plan->ctx, status, -1));
        }
        if (plan->ctx->prof != NULL) {
            rondo_profile_forget(plan->ctx, plan->runs, plan->nruns);
        }
        rondo_plan_release(plan);
        rondo_free(plan);
    }
    rondo_free(plans);
}

/* Let each backend launch the plans that it need not wait for. */
static rondo_status launch_plans(struct rondo_plan **plans, int nplans)
{
    rondo_status status = RONDO_SUCCESS;
    for (int p = 0; p < nplans && status == RONDO_SUCCESS; p++) {
        status = plans[p] != NULL ? plans[p]->ctx->backend->launch(plans, nplans) : RONDO_SUCCESS;
    }
    return status;
}

static rondo_status run_tasks(void)
{
    struct rondo_plan **plans = NULL;
    int nplans = 0;
    rondo_status status = build_plans(&plans, &nplans);
    if (status == RONDO_SUCCESS) {
        status = issue_plans(plans, &nplans, launch_plans(plans, nplans));
    }
    if (status == RONDO_SUCCESS) {
        status = wait_for_plans(plans, nplans);
    }
    end_plans(plans, nplans, status);
    return status;
}

static void leave_tasks(int n)
{
    for (int i = 0; i < n; i++) {
        rondo_shell_leave(group.task[i].shell);
    }
}

static rondo_status enter_tasks(void)
{
    for (int i = 0; i < group.ntasks; i++) {
        struct rondo_ctx *ctx;
        rondo_status status = rondo_shell_enter(group.task[i].shell, "rondo_group_end", &ctx);
        if (status == RONDO_SUCCESS && ctx != group.task[i].ctx) {
            rondo_shell_leave(group.task[i].shell);
            status = rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_group_end: a communicator of the group was "
                                                        "destroyed or aborted before the group's end");
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
        status = status == RONDO_SUCCESS ? rondo_task_check_stream(&group.task[i]) : status;
    }
    if (status == RONDO_SUCCESS) {
        status = run_tasks();
    }
    leave_tasks(group.ntasks);
    return status;
}

/* The group failed: all its communicators that still exist hold the sentence. */
static void keep_error(rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    for (int i = 0; i < group.ntasks; i++) {
        struct rondo_ctx *ctx;
        if (!rondo_comm_is_alive(group.task[i].shell) ||
            rondo_comm_visit(group.task[i].shell, "rondo_group_end", &ctx) != RONDO_SUCCESS) {
            continue;
        }
        if (ctx == group.task[i].ctx) { /* else the shell has become another communicator's */
            rondo_fail_quiet(status, "%s", text);
            rondo_ctx_keep_error(ctx, status);
        }
        rondo_comm_unvisit(group.task[i].shell);
    }
    rondo_fail_quiet(status, "%s", text);
}

static void clear(void)
{
    for (int i = 0; i < group.ntasks; i++) {
        rondo_free(group.task[i].owned);
    }
    rondo_free(group.task);
    rondo_free(group.creation);
    memset(&group, 0, sizeof(group));
}

static rondo_status group_end(void)
{
    rondo_status status;
    if (rondo_group_depth() == 0) {
        return rondo_fail(RONDO_INVALID_USAGE, "rondo_group_end without rondo_group_start in this thread");
    }
    rondo_inside -= RONDO_INSIDE_GROUP;
    if (rondo_group_depth() > 0) {
        return RONDO_SUCCESS;
    }
    status = group.status;
    if (status != RONDO_SUCCESS) {
        rondo_fail_quiet(status, "%s", rondo_thread_texts_get()->group_error);
    }
    if (group.ncreations > 0) {
        status = group.end_creations(group.creation, group.ncreations, status);
    }
    rondo_profile_group_ends(group.task, group.ntasks);
    if (status == RONDO_SUCCESS && group.ntasks > 0) {
        status = issue_tasks();
    }
    rondo_profile_release(group.task, group.ntasks);
    if (status != RONDO_SUCCESS) {
        keep_error(status);
    }
    clear();
    return status;
}

rondo_status rondo_group_end(void) { RONDO_RUN_INSIDE("rondo_group_end", group_end()); }

/* ---- without making the calls ---- */

static rondo_status estimate(double *us)
{
    RONDO_TRY(enter_tasks());
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < group.ntasks && status == RONDO_SUCCESS; i++) {
        const struct rondo_task *t = &group.task[i];
        struct rondo_selection selection = { .primary = { .us = 0 } };
        status = rondo_ctx_ready(t->ctx);
        int is_message = t->coll == RONDO_COLL_SEND || t->coll == RONDO_COLL_RECV;
        if (status == RONDO_SUCCESS && t->ctx->job.nranks > 1 && !is_message && rondo_task_bytes(t) > 0) {
            status = rondo_plan_choose(t->ctx, t, &selection);
        }
        *us += status == RONDO_SUCCESS && selection.primary.us > 0 ? selection.primary.us : 0;
    }
    leave_tasks(group.ntasks);
    return status;
}

static rondo_status simulate(double *us)
{
    rondo_status status;
    *us = 0;
    if (rondo_group_depth() != 1) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "the end of a group that is to be estimated must be the outermost one: %d are open",
                          rondo_group_depth());
    }
    rondo_inside -= RONDO_INSIDE_GROUP;
    status = group.status;
    if (status != RONDO_SUCCESS) {
        rondo_fail_quiet(status, "%s", rondo_thread_texts_get()->group_error);
    } else if (group.ncreations > 0) {
        status = rondo_fail(RONDO_INVALID_USAGE, "a group that creates communicators cannot be estimated");
    }
    if (group.ncreations > 0) {
        group.end_creations(group.creation, group.ncreations, status);
    } else if (status == RONDO_SUCCESS) {
        status = estimate(us);
    }
    rondo_profile_release(group.task, group.ntasks);
    clear();
    return status;
}

rondo_status rondo_group_simulate(double *us) { RONDO_RUN_INSIDE("rondo_group_simulate", simulate(us)); }
