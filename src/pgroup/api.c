/* Calls of groups: from arguments to works. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/wait.h"
#include "pgroup/pgroup.h"

/* ---- settings ---- */

static rondo_status opts_read(const struct rondo_pgroup *group, const char *call,
                              const rondo_pgroup_opts *opts, rondo_pgroup_opts *mine)
{
    rondo_pgroup_opts defaults = RONDO_PGROUP_OPTS_INIT;
    *mine = defaults;
    if (opts != NULL) {
        if (opts->size < offsetof(rondo_pgroup_opts, stream) || opts->size > 4096) {
            return rondo_fail(RONDO_INVALID_ARGUMENT,
                              "%s: the size of the settings is %zu: start from RONDO_PGROUP_OPTS_INIT", call,
                              opts->size);
        }
        memcpy(mine, opts, opts->size < sizeof(*mine) ? opts->size : sizeof(*mine));
    }
    if (mine->timeout_ms < RONDO_CONFIG_DEFAULT) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: opts.timeout_ms is %lld: give 0 or more, or RONDO_CONFIG_DEFAULT", call,
                          (long long)mine->timeout_ms);
    }
    mine->timeout_ms = mine->timeout_ms == RONDO_CONFIG_DEFAULT ? group->timeout_ms : mine->timeout_ms;
    if (mine->device == RONDO_PGROUP_DEVICE) {
        mine->device = group->device;
        return RONDO_SUCCESS;
    }
    return pg_device_number(mine->device, &mine->device);
}

/* ---- from a call to a work ---- */

/* Copy the counts of a call that will be made later. */
static rondo_status keep_counts(struct rondo_pgroup_work *work, struct pg_call *call, int n)
{
    int arrays = 0;
    while (arrays < 4 && call->counts[arrays] != NULL) {
        arrays++;
    }
    if (arrays == 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(work->kept, (size_t)arrays * (size_t)n, "the counts of a call"));
    for (int a = 0; a < arrays; a++) {
        call->counts[a] = memcpy(work->kept + (size_t)a * (size_t)n, call->counts[a],
                                 sizeof(size_t) * (size_t)n);
    }
    return RONDO_SUCCESS;
}

/* May a call that nobody gets a work of be made at once? It waits in its call, for the slot's earlier works,
 * too, while the caller holds slot->use. So messages may not: a send need not wait for the receive before it,
 * nor for one of another thread. */
static int may_run(const struct pg_slot *slot, int waits)
{
    return waits && slot->gpu == NULL && slot->kind == PG_ALL &&
           __atomic_load_n(&slot->group->world->ncreating, __ATOMIC_ACQUIRE) == 0 && /* which wait() moves */
           __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PG_READY && slot->first == NULL;
}

/* Start the work. @return an error if its call was refused at once. The caller holds slot->use. */
static rondo_status start(struct rondo_pgroup_work *work, int waits)
{
    struct pg_slot *slot = work->slot;
    rondo_status status = RONDO_SUCCESS;
    pg_work_open(work);
    if (may_run(slot, waits)) {
        status = pg_work_run(work);
    } else {
        if (work->batch == NULL) {
            status = keep_counts(work, &work->call, work->group->n);
        }
        if (status != RONDO_SUCCESS || !pg_slot_queue(slot, work)) {
            pg_work_end(work, status != RONDO_SUCCESS ? status : pg_group_check(work->group, "a call"));
        } else {
            pg_slot_advance_held(slot);
        }
    }
    if (__atomic_load_n(&work->state, __ATOMIC_ACQUIRE) != PG_DONE || work->status == RONDO_SUCCESS) {
        return RONDO_SUCCESS;
    }
    return rondo_fail_quiet(work->status, "%s", work->text);
}

/* Make a call or a batch, which it takes over. */
static rondo_status submit(struct rondo_pgroup *group, const struct pg_call *call, struct pg_call *batch,
                           int ncalls, int peer, const rondo_pgroup_opts *opts, rondo_pgroup_work **place)
{
    struct rondo_pgroup_work *work;
    struct pg_slot *slot;
    rondo_status status;
    int waits;
    status = pg_slot_get(group, opts->device, peer, &slot);
    status = status == RONDO_SUCCESS ? pg_work_new(slot, &work) : status;
    if (status != RONDO_SUCCESS) {
        rondo_free(batch);
        return status;
    }
    work->call = *call;
    work->batch = batch;
    work->ncalls = ncalls;
    work->timeout_ns = rondo_ms_to_ns(opts->timeout_ms);
    if (slot->gpu != NULL) {
        work->stream = opts->stream;
    }
    if (slot->kind != PG_ALL) {
        work->call.root = slot->kind == PG_PAIR && slot->low == group->rank; /* the other one of 0 and 1 */
    }
    waits = place == NULL && slot->gpu == NULL;
    pthread_mutex_lock(&slot->use);
    status = start(work, waits);
    pthread_mutex_unlock(&slot->use);
    if (status == RONDO_SUCCESS && place == NULL) {
        status = waits ? pg_work_wait(work, RONDO_CONFIG_DEFAULT, 0) : pg_work_wait_issued(work);
    }
    if (status == RONDO_SUCCESS && place != NULL) {
        *place = work;
    } else {
        pg_work_unref(work);
    }
    return status;
}

/* ---- batches ---- */

static int in_batch(const struct rondo_pgroup *group)
{
    return __atomic_load_n(&group->batch.open, __ATOMIC_ACQUIRE) &&
           pthread_equal(group->batch.thread, pthread_self());
}

/* Keep the first error for the batch's end. */
static rondo_status batch_note(struct rondo_pgroup *group, rondo_status status)
{
    if (status != RONDO_SUCCESS && group->batch.status == RONDO_SUCCESS) {
        group->batch.status = status;
        snprintf(group->batch.text, sizeof(group->batch.text), "%s", rondo_last_error(NULL));
    }
    return status;
}

static rondo_status batch_add(struct rondo_pgroup *group, const struct pg_call *call,
                              const rondo_pgroup_opts *opts, rondo_pgroup_work **place)
{
    if (opts != NULL || place != NULL || call->counts[0] != NULL) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "rank %d of group \"%s\": a call in a batch has no settings, work or counts per rank "
            "of its own: give them to rondo_pgroup_batch_start and _end",
            group->rank, group->name);
    }
    if (group->batch.n == group->batch.room) {
        int room = group->batch.room == 0 ? 16 : 2 * group->batch.room;
        struct pg_call *grown;
        RONDO_TRY(RONDO_NEW_ARRAY(grown, room, "a batch of calls"));
        if (group->batch.n > 0) {
            memcpy(grown, group->batch.calls, sizeof(*grown) * (size_t)group->batch.n);
        }
        rondo_free(group->batch.calls);
        group->batch.calls = grown;
        group->batch.room = room;
    }
    group->batch.calls[group->batch.n++] = *call;
    return RONDO_SUCCESS;
}

rondo_status rondo_pgroup_batch_start(rondo_pgroup *group, const rondo_pgroup_opts *opts)
{
    rondo_pgroup_opts mine;
    int open;
    RONDO_TRY(pg_group_check(group, "rondo_pgroup_batch_start"));
    RONDO_TRY(opts_read(group, "rondo_pgroup_batch_start", opts, &mine));
    pthread_mutex_lock(&group->world->lock);
    open = group->batch.open;
    if (!open) {
        group->batch.thread = pthread_self();
        group->batch.status = RONDO_SUCCESS;
        group->batch.opts = mine;
        group->batch.n = 0;
        __atomic_store_n(&group->batch.open, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&group->world->lock);
    return !open ? RONDO_SUCCESS
                 : rondo_fail(RONDO_INVALID_USAGE,
                              "rondo_pgroup_batch_start: group \"%s\" has an open batch; end it first",
                              group->name);
}

rondo_status rondo_pgroup_batch_end(rondo_pgroup *group, rondo_pgroup_work **work)
{
    static const struct pg_call none = { .coll = RONDO_COLL_BARRIER };
    rondo_pgroup_opts opts;
    struct pg_call *calls;
    rondo_status status;
    int n;
    if (group == NULL || !in_batch(group)) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "rondo_pgroup_batch_end: this thread has no open batch of the group");
    }
    RONDO_TRY(pg_outside_groups("rondo_pgroup_batch_end"));
    calls = group->batch.calls;
    n = group->batch.n;
    opts = group->batch.opts; /* another thread may begin a batch once this one is closed */
    status = group->batch.status;
    if (status != RONDO_SUCCESS) {
        rondo_fail_quiet(status, "%s", group->batch.text);
    } else {
        group->batch.calls = NULL; /* the work's */
        group->batch.room = 0;
    }
    __atomic_store_n(&group->batch.open, 0, __ATOMIC_RELEASE);
    RONDO_TRY(status);
    status = pg_group_check(group, "rondo_pgroup_batch_end");
    if (status != RONDO_SUCCESS) {
        rondo_free(calls);
        return status;
    }
    if (n == 0) { /* others may have calls in theirs: it counts, and makes the communicator with them */
        rondo_free(calls);
        return submit(group, &none, NULL, 0, -1, &opts, work);
    }
    return submit(group, &calls[0], calls, n, -1, &opts, work);
}

/* ---- the calls ---- */

/* A call with counts: none may be missing, as they are copied before the engine sees them. */
static rondo_status check_counts(const struct pg_call *call)
{
    int arrays = call->coll == RONDO_COLL_ALL_GATHERV || call->coll == RONDO_COLL_REDUCE_SCATTERV ? 2 : 0;
    arrays = call->coll == RONDO_COLL_ALL_TO_ALLV ? 4 : arrays;
    for (int a = 0; a < arrays; a++) {
        if (call->counts[a] == NULL) {
            return rondo_fail(RONDO_INVALID_ARGUMENT,
                              "%s of a process group: an array of counts or displacements is NULL",
                              rondo_coll_name(call->coll));
        }
    }
    return RONDO_SUCCESS;
}

/* What does not need the communicator. */
static rondo_status check(struct rondo_pgroup *group, const struct pg_call *call)
{
    const char *name = rondo_coll_name(call->coll);
    RONDO_TRY(pg_group_check(group, name));
    RONDO_TRY(pg_outside_groups(name));
    if (call->root < 0 || call->root >= group->n) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: group \"%s\" has no rank %d, but 0 to %d", name,
                          group->name, call->root, group->n - 1);
    }
    return check_counts(call);
}

static rondo_status call_checked(struct rondo_pgroup *group, const struct pg_call *call, int peer,
                                 const rondo_pgroup_opts *opts, rondo_pgroup_work **work)
{
    rondo_pgroup_opts mine;
    rondo_status status = check(group, call);
    if (group != NULL && in_batch(group)) {
        return batch_note(group, status == RONDO_SUCCESS ? batch_add(group, call, opts, work) : status);
    }
    RONDO_TRY(status);
    RONDO_TRY(opts_read(group, rondo_coll_name(call->coll), opts, &mine));
    return submit(group, call, NULL, 1, peer, &mine, work);
}

static rondo_status collective(struct rondo_pgroup *group, const struct pg_call *call,
                               const rondo_pgroup_opts *opts, rondo_pgroup_work **work)
{
    return call_checked(group, call, -1, opts, work);
}

#define DATA_ .send = send, .recv = recv, .count = count, .type = type

rondo_status rondo_pgroup_all_reduce(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                     rondo_dtype type, rondo_op op, const rondo_pgroup_opts *opts,
                                     rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_ALL_REDUCE, DATA_, .op = op }, opts, work);
}

rondo_status rondo_pgroup_reduce(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                 rondo_dtype type, rondo_op op, int root, const rondo_pgroup_opts *opts,
                                 rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_REDUCE, DATA_, .op = op, .root = root },
                      opts, work);
}

rondo_status rondo_pgroup_broadcast(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                    rondo_dtype type, int root, const rondo_pgroup_opts *opts,
                                    rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_BROADCAST, DATA_, .root = root }, opts,
                      work);
}

rondo_status rondo_pgroup_all_gather(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                     rondo_dtype type, const rondo_pgroup_opts *opts,
                                     rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_ALL_GATHER, DATA_ }, opts, work);
}

rondo_status rondo_pgroup_reduce_scatter(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                         rondo_dtype type, rondo_op op, const rondo_pgroup_opts *opts,
                                         rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_REDUCE_SCATTER, DATA_, .op = op }, opts,
                      work);
}

rondo_status rondo_pgroup_all_to_all(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                     rondo_dtype type, const rondo_pgroup_opts *opts,
                                     rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_ALL_TO_ALL, DATA_ }, opts, work);
}

rondo_status rondo_pgroup_gather(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                 rondo_dtype type, int root, const rondo_pgroup_opts *opts,
                                 rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_GATHER, DATA_, .root = root }, opts, work);
}

rondo_status rondo_pgroup_scatter(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                  rondo_dtype type, int root, const rondo_pgroup_opts *opts,
                                  rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_SCATTER, DATA_, .root = root }, opts,
                      work);
}

rondo_status rondo_pgroup_all_gatherv(rondo_pgroup *group, const void *send, void *recv, const size_t *counts,
                                      const size_t *displs, rondo_dtype type, const rondo_pgroup_opts *opts,
                                      rondo_pgroup_work **work)
{
    return collective(group,
                      &(struct pg_call){ .coll = RONDO_COLL_ALL_GATHERV,
                                         .send = send,
                                         .recv = recv,
                                         .type = type,
                                         .counts = { counts, displs } },
                      opts, work);
}

rondo_status rondo_pgroup_reduce_scatterv(rondo_pgroup *group, const void *send, void *recv,
                                          const size_t *counts, const size_t *displs, rondo_dtype type,
                                          rondo_op op, const rondo_pgroup_opts *opts,
                                          rondo_pgroup_work **work)
{
    return collective(group,
                      &(struct pg_call){ .coll = RONDO_COLL_REDUCE_SCATTERV,
                                         .send = send,
                                         .recv = recv,
                                         .type = type,
                                         .op = op,
                                         .counts = { counts, displs } },
                      opts, work);
}

rondo_status rondo_pgroup_all_to_allv(rondo_pgroup *group, const void *send, const size_t *sendcounts,
                                      const size_t *sdispls, void *recv, const size_t *recvcounts,
                                      const size_t *rdispls, rondo_dtype type, const rondo_pgroup_opts *opts,
                                      rondo_pgroup_work **work)
{
    int as_received = send == recv && sendcounts == NULL && sdispls == NULL;
    return collective(group,
                      &(struct pg_call){ .coll = RONDO_COLL_ALL_TO_ALLV,
                                         .send = send,
                                         .recv = recv,
                                         .type = type,
                                         .counts = { as_received ? recvcounts : sendcounts,
                                                     as_received ? rdispls : sdispls, recvcounts, rdispls } },
                      opts, work);
}

rondo_status rondo_pgroup_barrier(rondo_pgroup *group, const rondo_pgroup_opts *opts,
                                  rondo_pgroup_work **work)
{
    return collective(group, &(struct pg_call){ .coll = RONDO_COLL_BARRIER }, opts, work);
}

rondo_status rondo_pgroup_send(rondo_pgroup *group, const void *send, size_t count, rondo_dtype type,
                               int peer, const rondo_pgroup_opts *opts, rondo_pgroup_work **work)
{
    return call_checked(
        group,
        &(struct pg_call){
            .coll = RONDO_COLL_SEND, .send = send, .count = count, .type = type, .root = peer },
        peer, opts, work);
}

rondo_status rondo_pgroup_recv(rondo_pgroup *group, void *recv, size_t count, rondo_dtype type, int peer,
                               const rondo_pgroup_opts *opts, rondo_pgroup_work **work)
{
    return call_checked(
        group,
        &(struct pg_call){
            .coll = RONDO_COLL_RECV, .recv = recv, .count = count, .type = type, .root = peer },
        peer, opts, work);
}
