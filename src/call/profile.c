/* Calls as events of profiler plugins: names and numbers of NCCL, and what belongs to what. */
#include "call/profile.h"

#include "comm/backend.h"
#include "coll/algo.h"

enum { NO_NUMBER = 255 };

/* NCCL's name and number of a collective. Names that NCCL lacks have the same form. */
static const struct {
    const char *name;
    uint8_t number;
} funcs[RONDO_NUM_COLLS] = {
    [RONDO_COLL_ALL_REDUCE] = { "AllReduce", 4 },
    [RONDO_COLL_REDUCE] = { "Reduce", 1 },
    [RONDO_COLL_BROADCAST] = { "Broadcast", 0 },
    [RONDO_COLL_ALL_GATHER] = { "AllGather", 2 },
    [RONDO_COLL_REDUCE_SCATTER] = { "ReduceScatter", 3 },
    [RONDO_COLL_SEND] = { "Send", 6 },
    [RONDO_COLL_RECV] = { "Recv", 7 },
    [RONDO_COLL_ALL_TO_ALL] = { "AlltoAll", NO_NUMBER },
    [RONDO_COLL_GATHER] = { "Gather", NO_NUMBER },
    [RONDO_COLL_SCATTER] = { "Scatter", NO_NUMBER },
    [RONDO_COLL_BARRIER] = { "Barrier", NO_NUMBER },
    [RONDO_COLL_ALL_GATHERV] = { "AllGatherV", NO_NUMBER },
    [RONDO_COLL_REDUCE_SCATTERV] = { "ReduceScatterV", NO_NUMBER },
    [RONDO_COLL_ALL_TO_ALLV] = { "AlltoAllV", NO_NUMBER },
    [RONDO_COLL_GATHERV] = { "GatherV", NO_NUMBER },
    [RONDO_COLL_SCATTERV] = { "ScatterV", NO_NUMBER },
};

/* Rondo's numbers of types up to RONDO_DEVICE_DTYPES are NCCL's, and so are those of operations up to avg. */
static const char *const datatypes[RONDO_DEVICE_DTYPES] = {
    [RONDO_INT8] = "ncclInt8",
    [RONDO_UINT8] = "ncclUint8",
    [RONDO_INT32] = "ncclInt32",
    [RONDO_UINT32] = "ncclUint32",
    [RONDO_INT64] = "ncclInt64",
    [RONDO_UINT64] = "ncclUint64",
    [RONDO_FLOAT16] = "ncclFloat16",
    [RONDO_FLOAT32] = "ncclFloat32",
    [RONDO_FLOAT64] = "ncclFloat64",
    [RONDO_BFLOAT16] = "ncclBfloat16",
    [RONDO_FLOAT8E4M3] = "ncclFloat8e4m3",
    [RONDO_FLOAT8E5M2] = "ncclFloat8e5m2",
};

/* NCCL has numbers of tree and ring. Those of protocols are the same as Rondo's. */
static uint8_t algo_number(unsigned algo)
{
    return algo == RONDO_ALGO_TREE ? 0 : algo == RONDO_ALGO_RING ? 1 : NO_NUMBER;
}

/* NCCL writes both in capitals. */
#define RONDO_NAME_ROW_(ctx, name, NAME, ...) [RONDO_##ctx##_##NAME] = #NAME,
static const char *const algos[] = { RONDO_ALGO_TABLE(RONDO_NAME_ROW_, ALGO) };
static const char *const protos[] = { RONDO_PROTO_TABLE(RONDO_NAME_ROW_, PROTO) };
#undef RONDO_NAME_ROW_

static int is_p2p(const struct rondo_task *t)
{
    return t->coll == RONDO_COLL_SEND || t->coll == RONDO_COLL_RECV;
}

static struct rondo_prof_call *begin_call(const struct rondo_task *t, struct rondo_prof_group *group)
{
    int known = t->dtype < RONDO_DEVICE_DTYPES;
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype);
    struct rondo_prof_what what = { .func = funcs[t->coll].name,
                                    .datatype = known ? datatypes[t->dtype]
                                                      : rondo_dtype_name((rondo_dtype)t->dtype),
                                    .send = t->send,
                                    .recv = t->recv,
                                    .count = t->counts != NULL ? rondo_task_bytes(t) / elem : t->count,
                                    .root = t->root,
                                    .stream = t->stream,
                                    .is_p2p = (uint8_t)is_p2p(t),
                                    .func_number = funcs[t->coll].number,
                                    .datatype_number = known ? (uint8_t)t->dtype : NO_NUMBER,
                                    .op_number = t->op };
    if (t->coll == RONDO_COLL_BARRIER) {
        what.count = 0; /* its byte is an implementation detail */
    }
    return rondo_prof_call_begin(group, &what);
}

/* ---- calls alone ---- */

rondo_status rondo_profile_run(const struct rondo_task *task)
{
    struct rondo_task t = *task;
    struct rondo_prof *prof = t.ctx->prof;
    struct rondo_prof_group *group;
    rondo_status status;
    rondo_prof_lock_calls(prof);
    group = rondo_prof_group_begin(prof, 1);
    t.prof = group != NULL ? begin_call(&t, group) : NULL;
    rondo_prof_group_ends(group);
    rondo_prof_unlock_calls(prof);
    status = t.ctx->backend->run(&t);
    rondo_prof_lock_calls(prof);
    rondo_prof_call_release(t.prof);
    rondo_prof_group_release(group);
    rondo_prof_unlock_calls(prof);
    return status;
}

/* ---- groups: a communicator may be destroyed or aborted before the group that calls it ends ---- */

void rondo_profile_add(struct rondo_task *tasks, int n, int depth)
{
    struct rondo_task *t = &tasks[n];
    struct rondo_prof_group *group = NULL;
    rondo_prof_lock_calls(t->ctx->prof);
    for (int i = n - 1; i >= 0 && group == NULL; i--) {
        group = tasks[i].ctx == t->ctx ? rondo_prof_call_group(tasks[i].prof) : NULL;
        if (group != NULL && rondo_prof_of_group(group) != t->ctx->prof) {
            group = NULL; /* of one that has ended, in whose place this one is */
        }
    }
    if (group == NULL) {
        group = rondo_prof_group_begin(t->ctx->prof, depth);
        t->prof_group = group;
        if (group != NULL) {
            rondo_prof_hold(t->ctx->prof);
        }
    }
    t->prof = group != NULL ? begin_call(t, group) : NULL;
    rondo_prof_call_returns(t->prof);
    rondo_prof_unlock_calls(t->ctx->prof);
}

void rondo_profile_group_ends(const struct rondo_task *tasks, int n)
{
    for (int i = 0; i < n; i++) {
        if (tasks[i].prof_group != NULL) {
            struct rondo_prof *prof = rondo_prof_of_group(tasks[i].prof_group);
            rondo_prof_lock_calls(prof);
            rondo_prof_group_ends(tasks[i].prof_group);
            rondo_prof_unlock_calls(prof);
        }
    }
}

void rondo_profile_release(struct rondo_task *tasks, int n)
{
    for (int i = 0; i < n; i++) {
        if (tasks[i].prof != NULL) {
            struct rondo_prof *prof = rondo_prof_of_group(rondo_prof_call_group(tasks[i].prof));
            rondo_prof_lock_calls(prof);
            rondo_prof_call_release(tasks[i].prof);
            rondo_prof_unlock_calls(prof);
            tasks[i].prof = NULL;
        }
    }
    for (int i = 0; i < n; i++) {
        if (tasks[i].prof_group != NULL) {
            struct rondo_prof *prof = rondo_prof_of_group(tasks[i].prof_group);
            rondo_prof_lock_calls(prof);
            rondo_prof_group_release(tasks[i].prof_group);
            rondo_prof_unlock_calls(prof);
            rondo_prof_close(prof);
            tasks[i].prof_group = NULL;
        }
    }
}

/* ---- runs ---- */

/* Bytes as NCCL counts them: of a collective's whole buffer, twice for all_reduce. */
static size_t traffic_bytes(const struct rondo_task *t)
{
    size_t bytes = t->coll == RONDO_COLL_BARRIER ? 0 : rondo_task_bytes(t);
    return t->coll == RONDO_COLL_ALL_REDUCE ? 2 * bytes : bytes;
}

void rondo_profile_watch(const struct rondo_task *task, struct rondo_run *runs, int n)
{
    struct rondo_prof_how how = {
        .algo = "NONE", .proto = "NONE", .algo_number = NO_NUMBER, .proto_number = NO_NUMBER
    };
    if (task->prof == NULL) {
        return;
    }
    how.seq = is_p2p(task) ? 0 : task->ctx->calls.seq;
    how.traffic_bytes = traffic_bytes(task);
    for (int i = 0; i < n; i++) {
        how.nchannels += runs[i].fallback_of == NULL; /* of the selection; not what runs where it fails */
    }
    if (n > 0) {
        how.algo = algos[runs[0].work.algo];
        how.proto = protos[runs[0].work.proto];
        how.algo_number = algo_number(runs[0].work.algo);
        how.proto_number = runs[0].work.proto;
    }
    rondo_prof_lock_calls(task->ctx->prof);
    rondo_prof_call_issue(task->prof, &how);
    for (int i = 0; i < n; i++) {
        runs[i].prof = rondo_prof_run_add(task->prof, runs[i].work.channel);
    }
    rondo_prof_unlock_calls(task->ctx->prof);
}

void rondo_profile_forget(struct rondo_ctx *ctx, struct rondo_run *runs, int n)
{
    rondo_prof_lock_calls(ctx->prof);
    for (int i = 0; i < n; i++) {
        rondo_prof_run_end(runs[i].prof);
        runs[i].prof = NULL;
    }
    rondo_prof_unlock_calls(ctx->prof);
}

void rondo_profile_idle(struct rondo_ctx *ctx, int idle)
{
    rondo_prof_lock_calls(ctx->prof);
    rondo_prof_idle(ctx->prof, idle);
    rondo_prof_unlock_calls(ctx->prof);
}

static struct rondo_prof_group *group_of(const struct rondo_run *runs, int n)
{
    struct rondo_prof_group *group = NULL;
    for (int i = 0; i < n && group == NULL; i++) {
        group = runs[i].prof != NULL ? rondo_prof_run_group(runs[i].prof) : NULL;
    }
    return group;
}

void rondo_profile_launch_begin(struct rondo_ctx *ctx, struct rondo_run *runs, int n, void *stream)
{
    rondo_prof_lock_calls(ctx->prof);
    rondo_prof_launch_begin(group_of(runs, n), stream);
    rondo_prof_unlock_calls(ctx->prof);
}

struct rondo_prof_run *rondo_profile_launch_end(struct rondo_ctx *ctx, struct rondo_run *runs, int n,
                                                int launched)
{
    struct rondo_prof_run *first = NULL;
    rondo_prof_lock_calls(ctx->prof);
    rondo_prof_launch_end(group_of(runs, n), launched ? n : 0);
    for (int i = n - 1; i >= 0; i--) {
        if (launched) {
            rondo_prof_run_begin(runs[i].prof, NULL, 0);
            first = rondo_prof_run_chain(runs[i].prof, first);
        } else {
            rondo_prof_run_end(runs[i].prof);
        }
        runs[i].prof = NULL;
    }
    rondo_prof_unlock_calls(ctx->prof);
    return first;
}

void rondo_profile_submit(struct rondo_ctx *ctx, struct rondo_run *runs, int n, void *stream)
{
    struct rondo_prof_group *group = group_of(runs, n);
    rondo_prof_launch_begin(group, stream);
    ctx->running.exec_ops->submit(ctx->running.exec, runs, n);
    rondo_prof_launch_end(group, n);
}
