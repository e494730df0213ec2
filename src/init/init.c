/* Creation in steps that never block: so it can be non-blocking, and one thread can create several ranks. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/profile_net.h"
#include "comm/backend.h"
#include "init/child.h"
#include "init/life.h"
#include "init/phases.h"

#define REPORT_NS (1000 * INT64_C(1000000)) /* for the others to hear of a failure found at the deadline */

rondo_status rondo_init_begin(struct rondo_ctx *ctx, struct rondo_bootstrap *bootstrap,
                              const struct rondo_split *split)
{
    struct rondo_init *init;
    int64_t timeout = ctx->job.config.init_timeout_ms != RONDO_CONFIG_DEFAULT
                          ? rondo_ms_to_ns(ctx->job.config.init_timeout_ms)
                          : rondo_params()->init_timeout;
    rondo_status status = RONDO_NEW(init, "the state of creation");
    if (status != RONDO_SUCCESS) {
        bootstrap->ops->close(bootstrap, 0);
        return status;
    }
    init->ctx = ctx;
    init->bootstrap = bootstrap;
    ctx->job.mpi = (struct rondo_hook){ "mpi", bootstrap->idle, bootstrap->idle_arg, 1 };
    ctx->job.mpi_asks = bootstrap->idle_asks;
    init->phase = RONDO_PHASE_OPEN;
    if (split != NULL) {
        init->split = *split;
        init->phase = RONDO_PHASE_COLORS;
    }
    init->begin_ns = init->phase_ns = rondo_now_ns();
    init->deadline_ns = timeout > 0 && timeout < INT64_MAX - init->begin_ns ? init->begin_ns + timeout : 0;
    ctx->life.init = init;
    return RONDO_SUCCESS;
}

static void log_phases(const struct rondo_init *init)
{
    const struct rondo_ctx *ctx = init->ctx;
    char text[256] = "";
    size_t n = 0;
    if (!rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_INIT | RONDO_SUBSYS_ALLOC)) {
        return;
    }
    for (size_t p = 0; p < (size_t)rondo_num_phases; p++) {
        if (init->took_ns[p] > 0 && n < sizeof(text)) {
            n += (size_t)snprintf(text + n, sizeof(text) - n, " %s %.2f", rondo_phases[p]->name,
                                  (double)init->took_ns[p] * 1e-6);
        }
    }
    RONDO_INFO(RONDO_SUBSYS_INIT,
               "communicator \"%s\" %016llx: rank %d of %d, node %d of %d, local rank %d of %d, %d channels, "
               "bootstrap %s, ready in %.2f ms (%s )",
               ctx->job.name, (unsigned long long)ctx->job.hash, ctx->job.rank, ctx->job.nranks,
               ctx->wiring.layout.node, ctx->wiring.layout.nnodes, ctx->wiring.layout.local_rank,
               ctx->wiring.layout.nlocal, ctx->wiring.layout.nchannels, init->bootstrap->ops->name,
               (double)(rondo_now_ns() - init->begin_ns) * 1e-6, text);
    RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_ALLOC,
               "rank %d: %zu bytes of shared memory, %zu a channel (ring and tree, Simple %u, LL128 %u, LL "
               "%u bytes a slot, %d slots a conn)",
               ctx->job.rank, ctx->wiring.bytes, ctx->wiring.bytes / (size_t)ctx->wiring.layout.nchannels,
               ctx->wiring.net.slot_bytes[RONDO_PROTO_SIMPLE], ctx->wiring.net.slot_bytes[RONDO_PROTO_LL128],
               ctx->wiring.net.slot_bytes[RONDO_PROTO_LL], RONDO_SLOTS);
}

/* May the thread that makes calls progress the program's MPI while it waits? */
static int may_progress_mpi(const struct rondo_ctx *ctx)
{
    int says = ctx->job.config.mpi_progress;
    return ctx->job.mpi.progress != NULL && (says == RONDO_CONFIG_DEFAULT ? !ctx->job.mpi_asks : says);
}

/* For traces. Ranks of a node have one clock. */
static void compare_clocks(struct rondo_ctx *ctx)
{
    int64_t offset_ns, error_ns;
    int rank;
    if (RONDO_UNLIKELY(rondo_prof_wants_clock(ctx->prof)) && ctx->wiring.control != NULL &&
        rondo_control_clock(ctx->wiring.control, &rank, &offset_ns, &error_ns)) {
        rondo_prof_clock(ctx->prof, rank, offset_ns, error_ns);
    }
}

static rondo_status init_end(struct rondo_init *init, rondo_status status, int round_open)
{
    struct rondo_ctx *ctx = init->ctx;
    if (status == RONDO_SUCCESS && ctx->job.nranks > 0) {
        /* Creation has set rank and name. The shell keeps them for threads that come after the end. */
        ctx->shell->rank = ctx->job.rank;
        memcpy(ctx->shell->name, ctx->job.name, sizeof(ctx->shell->name));
        ctx->wiring.bytes = ctx->job.nranks > 1 ? rondo_net_bytes(&ctx->wiring.net) : 0;
        log_phases(init);
        if (may_progress_mpi(ctx)) {
            status = rondo_progress_add(&ctx->running.progress, ctx->job.mpi);
        }
    }
    if (init->bootstrap != NULL) {
        init->bootstrap->ended = status;
        init->bootstrap->ops->close(init->bootstrap, !round_open);
    }
    if (init->split.parent != NULL && rondo_child_in_node(init->split.parent)) {
        rondo_control_split_end(init->split.parent->wiring.control, init->split.child);
    }
    if (status == RONDO_SUCCESS && ctx->job.nranks > 0) {
        struct rondo_prof_comm comm = { .name = ctx->job.name,
                                        .hash = ctx->job.hash,
                                        .nnodes = ctx->wiring.layout.nnodes,
                                        .nranks = ctx->job.nranks,
                                        .rank = ctx->job.rank,
                                        .locks = ctx->backend->is_gpu };
        rondo_prof_open(&ctx->prof, &comm);
        if (ctx->prof != NULL && !ctx->backend->is_gpu) {
            rondo_profile_net_watch(ctx);
        }
        compare_clocks(ctx);
    }
    if (status != RONDO_SUCCESS) {
        ctx->life.failure = status;
        snprintf(ctx->life.failure_text, sizeof(ctx->life.failure_text), "%s", rondo_error_text());
        if (ctx->wiring.control != NULL) {
            rondo_control_abort(ctx->wiring.control, status, -1, ctx->life.failure_text);
            rondo_control_leave(ctx->wiring.control);
        }
    }
    rondo_shm_close(&init->probe);
    rondo_free(init->mine);
    rondo_free(init->all);
    rondo_free(init->texts);
    rondo_free(init->reason);
    rondo_free(init->members);
    rondo_free(init->exchange_peers);
    rondo_free(init->copies);
    rondo_free(init->hello);
    rondo_init_free_shapes(init);
    rondo_init_free_calibrating(init, status == RONDO_SUCCESS);
    rondo_free(init);
    ctx->life.init = NULL;
    __atomic_store_n(&ctx->life.state, status == RONDO_SUCCESS ? RONDO_COMM_READY : RONDO_COMM_FAILED,
                     __ATOMIC_RELEASE);
    return status;
}

/* The program ends the creation here. If it does so because a rank is lost, the others must hear of that. */
static rondo_status cause_of(const struct rondo_init *init)
{
    const struct rondo_bootstrap_ops *ops = init->bootstrap != NULL ? init->bootstrap->ops : NULL;
    return ops != NULL && ops->cause != NULL ? ops->cause(init->bootstrap) : RONDO_SUCCESS;
}

void rondo_init_cancel(struct rondo_ctx *ctx)
{
    rondo_status status;
    if (ctx->life.init != NULL) {
        status = cause_of(ctx->life.init);
        if (status == RONDO_SUCCESS) {
            status = rondo_fail_quiet(RONDO_INVALID_USAGE,
                                      "rank %d: the creation of the communicator was cancelled",
                                      ctx->job.rank);
        }
        init_end(ctx->life.init, status, 1);
        rondo_ctx_leave_parent(ctx);
    }
}

/* The deadline has passed: find the ranks that are missing. @return RONDO_IN_PROGRESS until they are known.
 * */
static rondo_status name_missing(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int ranks[16], n = 0;
    char list[RONDO_ERROR_TEXT / 2] = "";
    size_t at = 0;
    rondo_status status = init->bootstrap->ops->missing(init->bootstrap, ranks, (int)RONDO_COUNTOF(ranks),
                                                        &n);
    if (status != RONDO_SUCCESS) {
        return status; /* RONDO_IN_PROGRESS, or the error that the ranks have agreed on */
    }
    if (init->local != RONDO_SUCCESS && n == 0) {
        /* No rank is known to be missing: this rank's own error says more. */
        return rondo_fail_quiet(init->local, "%s", init->local_text);
    }
    for (int i = 0; i < n && at < sizeof(list); i++) {
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%srank %d%s%s", i > 0 ? ", " : "", ranks[i],
                               ctx->wiring.peers != NULL ? " on " : "",
                               ctx->wiring.peers != NULL ? ctx->wiring.peers[ranks[i]].host : "");
    }
    return rondo_fail(
        RONDO_TIMEOUT,
        "rank %d on %s: creation of the communicator stopped in round \"%s\" after %.1f s "
        "(RONDO_INIT_TIMEOUT): %s%s%s: do all ranks make the call, and are they "
        "alive?%s%s%s",
        ctx->job.rank, rondo_log_host(), rondo_phases[init->phase]->name,
        (double)(rondo_now_ns() - init->begin_ns) * 1e-9,
        n == 0                 ? "the missing ranks are unknown"
        : init->bootstrap->met ? "do not answer:"
                               : "did not arrive, or do not answer:",
        n > 0 ? " " : "", list,
        strcmp(init->bootstrap->ops->name, "mpi") == 0 ? " (MPI_Finalize may wait for a late rank)" : "",
        init->local != RONDO_SUCCESS ? "; before that, this rank had failed: " : "", init->local_text);
}

/* A phase with its own deadline may use up all the time. The next round reports what it found, so that round
 * has some more time, also on ranks that did not have to wait. */
static int is_late(const struct rondo_init *init)
{
    int64_t more = init->phase > 0 && rondo_phases[init->phase - 1]->own_deadline ? REPORT_NS : 0;
    return init->deadline_ns != 0 && rondo_now_ns() > init->deadline_ns + more;
}

/* Without a limit ranks may come as late as they like. Once all have come they only wait for each other, so
 * that RONDO_INIT_TIMEOUT finds one that has died on another host. */
static void limit_when_met(struct rondo_init *init)
{
    int64_t timeout = rondo_params()->init_timeout;
    if (init->deadline_ns == 0 && timeout > 0 && init->bootstrap->met && !init->bootstrap->overlaps) {
        init->deadline_ns = rondo_now_ns() + timeout;
    }
}

static rondo_status step_phase(struct rondo_init *init, const struct rondo_phase *phase)
{
    rondo_status status;
    if (!init->started) {
        RONDO_TRY(phase->start != NULL ? phase->start(init) : RONDO_SUCCESS);
        init->started = 1;
    }
    if (init->late) {
        return name_missing(init);
    }
    status = phase->test != NULL ? phase->test(init) : rondo_init_test_round(init);
    if (phase->own_deadline) {
        return status;
    }
    if (status == RONDO_IN_PROGRESS) {
        init->late = is_late(init);
    } else if (status == RONDO_TIMEOUT) { /* another rank's deadline has passed */
        init->late = 1;
        status = RONDO_IN_PROGRESS;
    }
    return status;
}

static rondo_status aborted(const struct rondo_init *init)
{
    RONDO_TRY(cause_of(init));
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "rank %d aborted the creation of the communicator",
                            init->ctx->job.rank);
}

/* Do all ranks find this error of finish, with the same records? Else one lacks memory, or the like: the
 * others have begun the next round, or will. */
static int is_of_all(rondo_status status)
{
    return status == RONDO_SUCCESS || status == RONDO_INVALID_USAGE || status == RONDO_INVALID_ARGUMENT;
}

static rondo_status init_step(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    int before = rondo_log_rank();
    rondo_status status = RONDO_SUCCESS;
    int round_open = 0; /* the others wait for this rank, and are to be told that it has failed */
    rondo_log_set_rank(ctx->job.rank);
    rondo_log_set_process_rank(ctx->job.rank, ctx->job.nranks);
    while (status == RONDO_SUCCESS && init->phase < rondo_num_phases) {
        const struct rondo_phase *phase = rondo_phases[init->phase];
        status = __atomic_load_n(&ctx->life.aborted, __ATOMIC_ACQUIRE) ? aborted(init)
                                                                       : step_phase(init, phase);
        if (status != RONDO_SUCCESS) {
            round_open = 1;
            break;
        }
        init->started = 0;
        status = rondo_init_check_round(init);
        if (status == RONDO_SUCCESS && phase->finish != NULL) {
            status = phase->finish(init);
            round_open = !is_of_all(status);
        }
        if (status == RONDO_SUCCESS) {
            limit_when_met(init);
        }
        init->took_ns[init->phase] = rondo_now_ns() - init->phase_ns;
        init->phase_ns += init->took_ns[init->phase];
        init->phase = ctx->job.nranks == 0 ? rondo_num_phases : init->phase + 1;
    }
    if (status != RONDO_IN_PROGRESS) {
        status = init_end(init, status, round_open);
    }
    rondo_log_set_rank(before);
    return status;
}

/* This thread may not take the step, but another may. After the deadline no other seems to: then the attempt
 * ends the creation with an error that says why. */
static int must_leave_to_another(const struct rondo_init *init)
{
    struct rondo_bootstrap *b = init->bootstrap;
    return b->ops->may_step != NULL && !b->ops->may_step(b) &&
           (init->deadline_ns == 0 || rondo_now_ns() <= init->deadline_ns);
}

/* Another thread may be in MPI, unless the program says that none is. */
static int must_not_aside(const struct rondo_init *init)
{
    return init->bootstrap->ops->may_step != NULL && !may_progress_mpi(init->ctx);
}

enum how { STEP, LOOK, LOOK_ASIDE };

static int leaves(const struct rondo_init *init, enum how how)
{
    return how == LOOK ? must_leave_to_another(init) : how == LOOK_ASIDE && must_not_aside(init);
}

static rondo_status step_or_look(struct rondo_ctx *ctx, enum how how)
{
    rondo_status status;
    if (pthread_mutex_trylock(&ctx->queue.lock) != 0) {
        return RONDO_IN_PROGRESS;
    }
    if (ctx->life.init != NULL) {
        status = leaves(ctx->life.init, how) ? RONDO_IN_PROGRESS : init_step(ctx->life.init);
    } else {
        status = ctx->life.failure == RONDO_SUCCESS
                     ? RONDO_SUCCESS
                     : rondo_fail_quiet(ctx->life.failure, "%s", ctx->life.failure_text);
    }
    pthread_mutex_unlock(&ctx->queue.lock);
    if (status != RONDO_IN_PROGRESS) {
        rondo_ctx_leave_parent(ctx);
    }
    return status;
}

rondo_status rondo_init_step(struct rondo_ctx *ctx) { return step_or_look(ctx, STEP); }

rondo_status rondo_init_look(struct rondo_ctx *ctx) { return step_or_look(ctx, LOOK); }

rondo_status rondo_init_look_aside(struct rondo_ctx *ctx) { return step_or_look(ctx, LOOK_ASIDE); }

/* A parent knows whether its ranks share cores: then none of its children's spins. @return the parent, which
 * the caller lets go after the wait; NULL: none. */
static struct rondo_ctx *learn_from_parent(struct rondo_wait_policy *policy, struct rondo_ctx *ctx)
{
    struct rondo_ctx *parent = NULL;
    if (pthread_mutex_trylock(&ctx->queue.lock) == 0) { /* another thread may be ending the creation */
        parent = ctx->life.init != NULL ? ctx->life.init->split.parent : NULL;
        if (parent != NULL) {
            rondo_ctx_hold(parent);
        }
        pthread_mutex_unlock(&ctx->queue.lock);
    }
    if (parent != NULL && parent->running.policy.spins < policy->spins) {
        policy->spins = parent->running.policy.spins;
    }
    if (parent != NULL && parent->running.policy.oversubscription != NULL) {
        policy->oversubscription = parent->running.policy.oversubscription;
    }
    return parent;
}

rondo_status rondo_init_run(struct rondo_ctx **ctxs, int n)
{
    struct rondo_progress progress = { .nhooks = 0 };
    struct rondo_wait_policy policy = { .spins = 100,
                                        .sleep_after_ns = rondo_params()->sleep_after,
                                        .progress = &progress };
    struct rondo_wait wait;
    struct rondo_ctx *parent;
    rondo_status first = RONDO_SUCCESS;
    char text[RONDO_ERROR_TEXT] = "";
    int open = n;
    for (int i = 0; i < n; i++) { /* a split does not call MPI itself */
        if (may_progress_mpi(ctxs[i]) && progress.nhooks == 0) {
            RONDO_TRY(rondo_progress_add(&progress, ctxs[i]->job.mpi));
        }
    }
    parent = learn_from_parent(&policy, ctxs[0]);
    rondo_wait_begin(&wait, &policy);
    while (open > 0) {
        open = 0;
        for (int i = 0; i < n; i++) {
            rondo_status status = rondo_init_step(ctxs[i]);
            open += status == RONDO_IN_PROGRESS;
            if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS && first == RONDO_SUCCESS) {
                first = status;
                snprintf(text, sizeof(text), "%s", rondo_error_text());
            }
        }
        if (open > 0) {
            rondo_open_step_all();
            rondo_wait_once(&wait); /* no deadline here: each creation has its own */
        }
    }
    if (parent != NULL) {
        rondo_ctx_let_go(parent);
    }
    return first == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(first, "%s", text);
}
