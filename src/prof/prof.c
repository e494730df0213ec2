/* The objects of a communicator that is profiled, and the events of their lives. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "prof/prof_impl.h"

/* Versions that a state belongs to. */
enum { FIRST = 1, OLD_LAST = 3, NEW_FIRST = 4, API_FIRST = 5, LAST = 99 };

struct rondo_prof_group {
    struct rondo_prof *prof;
    int masks[RONDO_PROF_PLUGINS];
    int all; /* of the masks */
    int refs;
    int has_ended, issued;
    struct rondo_prof_event api, group, launch;
    struct rondo_prof_group *next; /* in prof->free_groups */
};

struct rondo_prof_call {
    struct rondo_prof_group *group;
    struct rondo_prof_what what;
    int refs;
    struct rondo_prof_event api, event;
    struct rondo_prof_call *next; /* in prof->free_calls */
};

/* A slice of a conn. */
struct step {
    struct rondo_prof_event event;
    void *ticket; /* for events of the net device; NULL: none yet */
    size_t bytes;
    uint8_t stage;
};

/* A conn of a run. Steps [done, begun) are open, each at its number % RONDO_PROF_OPEN_STEPS. */
struct op {
    struct rondo_prof_event event;
    uint32_t done, begun;
    uint64_t bytes; /* of steps that have passed */
    uint8_t key, is_send;
    uint8_t old_stage; /* of step `done`, as versions before 4 know it */
    struct step step[RONDO_PROF_OPEN_STEPS];
};

struct rondo_prof_run {
    struct rondo_prof_call *call;
    uint32_t channel;
    int begun, nops, capacity;
    int refs; /* its end, and those who hold it */
    uint64_t since_ns;
    struct rondo_prof_event kernel;
    struct op *op;
    struct rondo_prof_run *next; /* in prof->free_runs, or in a chain */
};

static const struct rondo_prof_extra no_extra;

uint64_t rondo_prof_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- proxy control ---- */

static void control(struct rondo_prof *prof, const int *masks, enum rondo_prof_state state,
                    enum rondo_prof_state second, int appended)
{
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_PROXY_CTRL };
    struct rondo_prof_event event = { .open = 0 };
    union rondo_prof_args_v1 old = { .proxy_ctrl = { 0 } };
    union rondo_prof_args_v4 new = { .proxy_ctrl = { 0 } };
    rondo_prof_start(prof, masks, &event, &descr, &no_extra, NULL, NULL);
    rondo_prof_state(prof, &event, FIRST, OLD_LAST, state, &old);
    rondo_prof_state(prof, &event, NEW_FIRST, LAST, state, &new);
    if (second != state) {
        old.proxy_ctrl.appended = new.proxy_ctrl.appended = appended;
        rondo_prof_state(prof, &event, FIRST, OLD_LAST, second, &old);
        rondo_prof_state(prof, &event, NEW_FIRST, LAST, second, &new);
    }
    rondo_prof_stop(prof, &event);
}

void rondo_prof_idle(struct rondo_prof *prof, int idle)
{
    int masks[RONDO_PROF_PLUGINS], all = 0;
    if (prof->idle == idle) {
        return;
    }
    prof->idle = idle;
    for (int i = 0; i < prof->n; i++) {
        masks[i] = rondo_prof_mask(prof->at[i].plugin);
        all |= masks[i];
    }
    if (all & RONDO_PROF_PROXY_CTRL) {
        enum rondo_prof_state state = idle ? RONDO_PROF_CTRL_IDLE : RONDO_PROF_CTRL_ACTIVE;
        control(prof, masks, state, state, 0);
    }
}

/* ---- objects are used again: malloc and free would take as long as the rest ---- */

/* @return an object with any content; NULL: no memory. */
#define TAKE(list)                            \
    ({                                        \
        __typeof__(list) taken_ = (list);     \
        if (taken_ != NULL) {                 \
            (list) = taken_->next;            \
        } else {                              \
            taken_ = malloc(sizeof(*taken_)); \
        }                                     \
        taken_;                               \
    })
#define GIVE(list, object)       \
    do {                         \
        (object)->next = (list); \
        (list) = (object);       \
    } while (0)
#define FREE_ALL(list)                         \
    while ((list) != NULL) {                   \
        __typeof__(list) next_ = (list)->next; \
        free(list);                            \
        (list) = next_;                        \
    }

/* ---- groups ---- */

struct rondo_prof_group *rondo_prof_group_begin(struct rondo_prof *prof, int depth)
{
    struct rondo_prof_group *group = prof != NULL ? TAKE(prof->free_groups) : NULL;
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_GROUP_API, .group_api = { .depth = depth } };
    union rondo_prof_args_v4 args = { .proxy_ctrl = { 0 } };
    if (group == NULL) {
        return NULL;
    }
    *group = (struct rondo_prof_group){ .prof = prof, .refs = 1 };
    for (int i = 0; i < prof->n; i++) {
        group->masks[i] = rondo_prof_mask(prof->at[i].plugin);
        group->all |= group->masks[i];
    }
    rondo_prof_start(prof, group->masks, &group->api, &descr, &no_extra, NULL, NULL);
    rondo_prof_state(prof, &group->api, API_FIRST, LAST, RONDO_PROF_GROUP_START_API_STOP, &args);
    return group;
}

struct rondo_prof *rondo_prof_of_group(const struct rondo_prof_group *group) { return group->prof; }

void rondo_prof_group_ends(struct rondo_prof_group *group)
{
    union rondo_prof_args_v4 args = { .proxy_ctrl = { 0 } };
    if (group != NULL && !group->has_ended) {
        group->has_ended = 1;
        rondo_prof_state(group->prof, &group->api, API_FIRST, LAST, RONDO_PROF_GROUP_END_API_START, &args);
    }
}

static void group_unref(struct rondo_prof_group *group)
{
    if (--group->refs == 0) {
        rondo_prof_stop(group->prof, &group->group);
        GIVE(group->prof->free_groups, group);
    }
}

void rondo_prof_group_release(struct rondo_prof_group *group)
{
    if (group != NULL) {
        rondo_prof_group_ends(group);
        rondo_prof_stop(group->prof, &group->launch);
        rondo_prof_stop(group->prof, &group->api);
        group_unref(group);
    }
}

void rondo_prof_launch_begin(struct rondo_prof_group *group, void *stream)
{
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_KERNEL_LAUNCH, .kernel_launch = { stream } };
    if (group != NULL && group->launch.open == 0) {
        rondo_prof_start(group->prof, group->masks, &group->launch, &descr, &no_extra, &group->api, NULL);
    }
}

void rondo_prof_launch_end(struct rondo_prof_group *group, int nruns)
{
    if (group == NULL) {
        return;
    }
    rondo_prof_stop(group->prof, &group->launch);
    if (group->all & RONDO_PROF_PROXY_CTRL) {
        control(group->prof, group->masks, RONDO_PROF_CTRL_APPEND, RONDO_PROF_CTRL_APPEND_END, nruns);
    }
}

/* ---- calls ---- */

struct rondo_prof_call *rondo_prof_call_begin(struct rondo_prof_group *group,
                                              const struct rondo_prof_what *what)
{
    struct rondo_prof_call *call = group != NULL ? TAKE(group->prof->free_calls) : NULL;
    struct rondo_prof_descr_v4 descr = { .type = what->is_p2p ? RONDO_PROF_P2P_API : RONDO_PROF_COLL_API };
    if (call == NULL) {
        return NULL;
    }
    *call = (struct rondo_prof_call){ .group = group, .what = *what, .refs = 1 };
    group->refs++;
    if (what->is_p2p) {
        descr.p2p_api.func = what->func;
        descr.p2p_api.count = what->count;
        descr.p2p_api.datatype = what->datatype;
        descr.p2p_api.stream = what->stream;
    } else {
        descr.coll_api.func = what->func;
        descr.coll_api.count = what->count;
        descr.coll_api.datatype = what->datatype;
        descr.coll_api.root = what->root;
        descr.coll_api.stream = what->stream;
    }
    rondo_prof_start(group->prof, group->masks, &call->api, &descr, &no_extra, &group->api, NULL);
    return call;
}

void rondo_prof_call_returns(struct rondo_prof_call *call)
{
    if (call != NULL) {
        rondo_prof_stop(call->group->prof, &call->api);
    }
}

static void call_unref(struct rondo_prof_call *call)
{
    struct rondo_prof_group *group = call->group;
    if (--call->refs == 0) {
        rondo_prof_stop(group->prof, &call->event);
        GIVE(group->prof->free_calls, call);
        group_unref(group);
    }
}

void rondo_prof_call_release(struct rondo_prof_call *call)
{
    if (call == NULL) {
        return;
    }
    if (call->refs == 1) { /* it ends inside the function that the user called */
        rondo_prof_stop(call->group->prof, &call->event);
    }
    rondo_prof_call_returns(call);
    call_unref(call);
}

struct rondo_prof_group *rondo_prof_call_group(const struct rondo_prof_call *call)
{
    return call != NULL ? call->group : NULL;
}

static void start_group(struct rondo_prof_group *group)
{
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_GROUP };
    if (!group->issued) { /* NCCL gives it no parent in any version */
        group->issued = 1;
        rondo_prof_start(group->prof, group->masks, &group->group, &descr, &no_extra, NULL, NULL);
    }
}

void rondo_prof_call_issue(struct rondo_prof_call *call, const struct rondo_prof_how *how)
{
    const struct rondo_prof_what *what = call != NULL ? &call->what : NULL;
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_COLL };
    struct rondo_prof_extra extra;
    uint8_t nchannels;
    if (call == NULL) {
        return;
    }
    nchannels = (uint8_t)(how->nchannels > 255 ? 255 : how->nchannels);
    extra = (struct rondo_prof_extra){ .traffic_bytes = how->traffic_bytes,
                                       .op = what->op_number,
                                       .func = what->func_number,
                                       .datatype = what->datatype_number,
                                       .algo = how->algo_number,
                                       .proto = how->proto_number };
    start_group(call->group);
    if (what->is_p2p) {
        descr.type = RONDO_PROF_P2P;
        descr.p2p.func = what->func;
        descr.p2p.buf = what->recv != NULL ? what->recv : (void *)(uintptr_t)what->send;
        descr.p2p.datatype = what->datatype;
        descr.p2p.count = what->count;
        descr.p2p.peer = what->root;
        descr.p2p.nchannels = nchannels;
    } else {
        descr.coll.seq = how->seq;
        descr.coll.func = what->func;
        descr.coll.send = what->send;
        descr.coll.recv = what->recv;
        descr.coll.count = what->count;
        descr.coll.root = what->root;
        descr.coll.datatype = what->datatype;
        descr.coll.nchannels = nchannels;
        descr.coll.nwarps = 1; /* one thread moves the data */
        descr.coll.algo = how->algo;
        descr.coll.proto = how->proto;
    }
    rondo_prof_start(call->group->prof, call->group->masks, &call->event, &descr, &extra, &call->api,
                     &call->group->group);
}

/* ---- runs ---- */

struct rondo_prof_run *rondo_prof_run_add(struct rondo_prof_call *call, uint32_t channel)
{
    struct rondo_prof_run *run;
    struct op *op;
    int capacity;
    if (call == NULL || !(call->group->all &
                          (RONDO_PROF_KERNEL_CH | RONDO_PROF_PROXY_OP | RONDO_PROF_COLL | RONDO_PROF_P2P))) {
        return NULL;
    }
    run = call->group->prof->free_runs;
    if (run != NULL) {
        call->group->prof->free_runs = run->next;
    } else {
        run = calloc(1, sizeof(*run));
    }
    if (run == NULL) {
        return NULL;
    }
    op = run->op; /* is kept */
    capacity = run->capacity;
    *run = (struct rondo_prof_run){
        .call = call, .channel = channel, .op = op, .capacity = capacity, .refs = 1
    };
    call->refs++;
    return run;
}

void rondo_prof_free_objects(struct rondo_prof *prof)
{
    for (struct rondo_prof_run *run = prof->free_runs; run != NULL; run = run->next) {
        free(run->op);
    }
    FREE_ALL(prof->free_runs);
    FREE_ALL(prof->free_calls);
    FREE_ALL(prof->free_groups);
}

struct rondo_prof_group *rondo_prof_run_group(const struct rondo_prof_run *run) { return run->call->group; }

int rondo_prof_run_wants_conns(const struct rondo_prof_run *run)
{
    return (run->call->group->all & (RONDO_PROF_PROXY_OP | RONDO_PROF_PROXY_STEP)) != 0;
}

int rondo_prof_run_begun(const struct rondo_prof_run *run) { return run->begun; }

/* What versions before 4 learn of an op. */
static void old_state(struct rondo_prof_run *run, const struct op *op, enum rondo_prof_state sends,
                      uint32_t steps, uint64_t bytes)
{
    union rondo_prof_args_v1 args = { .proxy_op = { .bytes = bytes, .steps = (int32_t)steps } };
    enum rondo_prof_state state = op->is_send ? sends
                                              : sends - RONDO_PROF_SEND_POSTED + RONDO_PROF_RECV_POSTED;
    rondo_prof_state(run->call->group->prof, &op->event, FIRST, OLD_LAST, state, &args);
}

static void op_begin(struct rondo_prof_run *run, struct op *op, const struct rondo_prof_conn *conn)
{
    struct rondo_prof_group *group = run->call->group;
    union rondo_prof_args_v4 none = { .proxy_step = { 0 } };
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_PROXY_OP,
                                         .proxy_op = { .pid = getpid(),
                                                       .channel = (uint8_t)run->channel,
                                                       .peer = conn->peer,
                                                       .nsteps = (int32_t)conn->nsteps,
                                                       .chunk_bytes = (int32_t)conn->chunk_bytes,
                                                       .is_send = conn->is_send } };
    op->done = op->begun = 0;
    op->bytes = 0;
    op->key = conn->key;
    op->is_send = conn->is_send;
    op->event.open = 0;
    rondo_prof_start(group->prof, group->masks, &op->event, &descr, &no_extra, &run->call->event, NULL);
    rondo_prof_state(group->prof, &op->event, NEW_FIRST, LAST, RONDO_PROF_OP_IN_PROGRESS, &none);
}

void rondo_prof_run_seen(struct rondo_prof_run *run)
{
    if (run->since_ns == 0) {
        run->since_ns = rondo_prof_now();
    }
}

void rondo_prof_run_begin(struct rondo_prof_run *run, const struct rondo_prof_conn *conns, int nconns)
{
    struct rondo_prof_group *group;
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_KERNEL_CH };
    if (run == NULL || run->begun) {
        return;
    }
    group = run->call->group;
    run->begun = 1;
    rondo_prof_run_seen(run);
    descr.kernel_ch.channel = (uint8_t)run->channel;
    descr.kernel_ch.timer = run->since_ns;
    rondo_prof_start(group->prof, group->masks, &run->kernel, &descr, &no_extra, &run->call->event, NULL);
    if (nconns > run->capacity) {
        struct op *more = realloc(run->op,
                                  (size_t)nconns * sizeof(*more)); /* steps are filled as they begin */
        if (more == NULL) {
            return;
        }
        run->op = more;
        run->capacity = nconns;
    }
    run->nops = nconns;
    for (int i = 0; i < nconns; i++) {
        op_begin(run, &run->op[i], &conns[i]);
    }
}

void rondo_prof_run_hold(struct rondo_prof_run *run, int n) { run->refs += n; }

static struct step *step_of(struct op *op, uint32_t number)
{
    return &op->step[number % RONDO_PROF_OPEN_STEPS];
}

static void step_stop(struct rondo_prof_run *run, struct step *step)
{
    rondo_prof_ticket_give(step->ticket); /* events of the device end first */
    step->ticket = NULL;
    rondo_prof_stop(run->call->group->prof, &step->event);
}

static void end_ops(struct rondo_prof_run *run)
{
    for (int i = 0; i < run->nops; i++) {
        struct op *op = &run->op[i];
        for (; op->done < op->begun; op->done++) { /* open after an error */
            step_stop(run, step_of(op, op->done));
        }
        rondo_prof_stop(run->call->group->prof, &op->event);
    }
}

void rondo_prof_run_let_go(struct rondo_prof_run *run)
{
    struct rondo_prof_call *call = run->call;
    struct rondo_prof *prof = call->group->prof;
    if (--run->refs == 0) {
        end_ops(run);
        run->next = prof->free_runs;
        prof->free_runs = run;
        call_unref(call);
    }
}

void rondo_prof_run_end(struct rondo_prof_run *run)
{
    if (run == NULL) {
        return;
    }
    if (run->refs == 1) {
        end_ops(run);
    }
    if (run->kernel.open != 0) {
        union rondo_prof_args_v4 args = { .kernel_ch = { rondo_prof_now() } };
        struct rondo_prof *prof = run->call->group->prof;
        rondo_prof_state(prof, &run->kernel, NEW_FIRST, LAST, RONDO_PROF_KERNEL_CH_STOP, &args);
        rondo_prof_stop(prof, &run->kernel);
    }
    rondo_prof_run_let_go(run);
}

struct rondo_prof_run *rondo_prof_run_chain(struct rondo_prof_run *run, struct rondo_prof_run *others)
{
    if (run == NULL) {
        return others;
    }
    run->next = others;
    return run;
}

void rondo_prof_runs_end(struct rondo_prof_run *first)
{
    while (first != NULL) {
        struct rondo_prof_run *next = first->next;
        rondo_prof_run_end(first);
        first = next;
    }
}

/* ---- slices ---- */

static void step_state(struct rondo_prof_run *run, const struct step *step, enum rondo_prof_state state,
                       size_t bytes)
{
    union rondo_prof_args_v1 old = { .proxy_op = { 0 } };
    union rondo_prof_args_v4 new = { .proxy_step = { bytes } };
    struct rondo_prof *prof = run->call->group->prof;
    if (state != RONDO_PROF_STEP_SEND_PEER_WAIT) {
        rondo_prof_state(prof, &step->event, FIRST, OLD_LAST, state, &old);
    }
    rondo_prof_state(prof, &step->event, NEW_FIRST, LAST, state, &new);
}

/* Versions before 4 learn of one step of an op at a time: what step `done` has reached. */
static void old_states(struct rondo_prof_run *run, struct op *op)
{
    const struct step *step = step_of(op, op->done);
    for (; op->old_stage < step->stage; op->old_stage++) {
        if (op->old_stage + 1 == RONDO_PROF_STAGE_HELD) {
            old_state(run, op, RONDO_PROF_SEND_REM_FIFO_WAIT, op->done + 1,
                      op->is_send ? op->bytes : op->bytes + step->bytes);
        } else if (op->old_stage + 1 == RONDO_PROF_STAGE_MOVES) {
            old_state(run, op, RONDO_PROF_SEND_TRANSMITTED, op->done + 1, op->bytes + step->bytes);
        }
    }
}

static void old_begin(struct rondo_prof_run *run, struct op *op)
{
    op->old_stage = RONDO_PROF_STAGE_WAITS;
    if (op->done < op->begun) {
        old_state(run, op, RONDO_PROF_SEND_POSTED, op->done + 1, op->bytes);
        old_states(run, op);
    }
}

static void step_begin(struct rondo_prof_run *run, struct op *op)
{
    struct rondo_prof_group *group = run->call->group;
    struct rondo_prof_descr_v4 descr = { .type = RONDO_PROF_PROXY_STEP,
                                         .proxy_step = { (int32_t)op->begun } };
    struct step *step = step_of(op, op->begun++);
    *step = (struct step){ .stage = RONDO_PROF_STAGE_WAITS };
    rondo_prof_start(group->prof, group->masks, &step->event, &descr, &no_extra, &op->event, NULL);
    if (op->begun == op->done + 1) {
        old_begin(run, op);
    }
    step_state(run, step, op->is_send ? RONDO_PROF_STEP_SEND_GPU_WAIT : RONDO_PROF_STEP_RECV_WAIT, 0);
}

static void step_end(struct rondo_prof_run *run, struct op *op, struct step *step)
{
    op->bytes += step->bytes;
    step_stop(run, step);
    op->done++;
    old_state(run, op, RONDO_PROF_SEND_DONE, op->done, op->bytes);
    old_begin(run, op);
}

/* Go from step->stage to the next one. */
static void step_next(struct rondo_prof_run *run, struct op *op, struct step *step)
{
    step->stage++;
    if (step == step_of(op, op->done)) {
        old_states(run, op);
    }
    switch ((enum rondo_prof_stage)step->stage) {
    case RONDO_PROF_STAGE_HELD:
        step_state(run, step, op->is_send ? RONDO_PROF_STEP_SEND_PEER_WAIT : RONDO_PROF_STEP_RECV_FLUSH_WAIT,
                   op->is_send ? 0 : step->bytes);
        break;
    case RONDO_PROF_STAGE_MOVES:
        step_state(run, step, op->is_send ? RONDO_PROF_STEP_SEND_WAIT : RONDO_PROF_STEP_RECV_GPU_WAIT,
                   step->bytes);
        break;
    case RONDO_PROF_STAGE_PASSED: step_end(run, op, step); break;
    case RONDO_PROF_STAGE_WAITS: break;
    }
}

static struct op *op_of(struct rondo_prof_run *run, uint8_t key)
{
    for (int i = 0; i < run->nops; i++) {
        if (run->op[i].key == key) {
            return &run->op[i];
        }
    }
    return NULL;
}

static void step_go(struct rondo_prof_run *run, struct op *op, uint32_t number, enum rondo_prof_stage stage,
                    size_t bytes)
{
    struct step *step = step_of(op, number);
    if (number < op->done || number >= op->done + RONDO_PROF_OPEN_STEPS) {
        return;
    }
    while (op->begun <= number) {
        step_begin(run, op);
    }
    while (step->stage < (uint8_t)stage && number >= op->done) {
        step->bytes = bytes;
        step_next(run, op, step);
    }
}

void rondo_prof_step(struct rondo_prof_run *run, uint8_t key, enum rondo_prof_stage stage, size_t bytes)
{
    struct op *op = op_of(run, key);
    if (op != NULL) {
        step_go(run, op, op->done, stage, bytes);
    }
}

void rondo_prof_step_at(struct rondo_prof_run *run, uint8_t key, uint32_t number, enum rondo_prof_stage stage,
                        size_t bytes)
{
    struct op *op = op_of(run, key);
    if (op != NULL) {
        step_go(run, op, number, stage, bytes);
    }
}

/* ---- events of net devices ---- */

int rondo_prof_run_wants_net(const struct rondo_prof_run *run)
{
    return (run->call->group->all & RONDO_PROF_NET_PLUGIN) != 0;
}

void *rondo_prof_step_parent(struct rondo_prof_run *run, uint8_t key, uint32_t number)
{
    struct rondo_prof_group *group = run->call->group;
    struct op *op = op_of(run, key);
    struct step *step = op != NULL ? step_of(op, number) : NULL;
    if (step == NULL || number < op->done || number >= op->begun || !rondo_prof_run_wants_net(run)) {
        return NULL;
    }
    if (step->ticket == NULL) {
        step->ticket = rondo_prof_ticket_take(group->prof, group->masks, &step->event);
    }
    return step->ticket;
}
