/* The public calls: check the arguments, make a task, and run it or add it to the open group. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "call/cached.h"
#include "call/group.h"
#include "call/overlap.h"
#include "call/plan_impl.h"
#include "call/profile.h"
#include "call/stream.h"
#include "comm/backend.h"

static const char *call_name(const struct rondo_task *t) { return rondo_coll_name((enum rondo_coll)t->coll); }

static rondo_status bad(const struct rondo_task *t, const char *what, long long value, const char *allowed)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_%s on rank %d: %s is %lld: %s", call_name(t),
                      t->ctx->job.rank, what, value, allowed);
}

rondo_status rondo_task_check_stream(const struct rondo_task *t)
{
    char what[64];
    if (RONDO_LIKELY(t->stream == NULL)) {
        return RONDO_SUCCESS;
    }
    if (t->ctx->backend->check_stream != NULL) {
        return t->ctx->backend->check_stream(t->ctx, t->stream);
    }
    snprintf(what, sizeof(what), "rondo_%s on rank %d", call_name(t), t->ctx->job.rank);
    return rondo_stream_check(t->stream, what);
}

/* Has the call's type this operation where its buffers are? */
static int has_op(const struct rondo_task *t, rondo_op op)
{
    return rondo_dtype_allows((rondo_dtype)t->dtype, op) &&
           (!t->ctx->backend->is_gpu || (int)rondo_op_reduce(op) < RONDO_DEVICE_REDUCES);
}

/* What the call's type or operation may be instead: names, as "sum, prod". */
static const char *names_of(const struct rondo_task *t, int types, char *text, size_t len)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < (types ? RONDO_NUM_DTYPES : RONDO_NUM_OPS) && at < len; i++) {
        if (types ? i < RONDO_DEVICE_DTYPES : has_op(t, (rondo_op)i)) {
            at += (size_t)snprintf(text + at, len - at, "%s%s", at > 0 ? ", " : "",
                                   types ? rondo_dtype_name((rondo_dtype)i) : rondo_op_name((rondo_op)i));
        }
    }
    return text;
}

static rondo_status check_type(const struct rondo_task *t)
{
    char text[128];
    if (RONDO_UNLIKELY((unsigned)t->dtype >= RONDO_NUM_DTYPES)) {
        return bad(t, "the type", t->dtype, "one of enum rondo_dtype");
    }
    if (RONDO_UNLIKELY(t->dtype >= RONDO_DEVICE_DTYPES && t->ctx->backend->is_gpu)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_%s on rank %d: the type %s is of host memory only; on a GPU there are %s",
                          call_name(t), t->ctx->job.rank, rondo_dtype_name((rondo_dtype)t->dtype),
                          names_of(t, 1, text, sizeof(text)));
    }
    return RONDO_SUCCESS;
}

static rondo_status check_op(struct rondo_task *t)
{
    char text[128];
    if (RONDO_LIKELY((unsigned)t->op < RONDO_NUM_OPS)) {
        if (RONDO_LIKELY(t->op <= RONDO_MIN && t->dtype < RONDO_DEVICE_DTYPES) ||
            !rondo_coll_reduces((enum rondo_coll)t->coll) || has_op(t, t->op)) {
            return RONDO_SUCCESS;
        }
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_%s on rank %d: the operation is %s: type %s has %s%s", call_name(t),
                          t->ctx->job.rank, rondo_op_name(t->op), rondo_dtype_name((rondo_dtype)t->dtype),
                          names_of(t, 0, text, sizeof(text)), t->ctx->backend->is_gpu ? " on a GPU" : "");
    }
    unsigned slot = (unsigned)t->op - RONDO_NUM_OPS;
    if (slot >= RONDO_USER_OPS || !t->ctx->calls.user_op[slot].used) {
        return bad(
            t, "the operation", (long long)(int)t->op,
            "one of enum rondo_op, or one that rondo_op_create_premul_sum of this communicator returned");
    }
    if (t->ctx->calls.user_op[slot].dtype != t->dtype) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT, "rondo_%s on rank %d: the operation was created for %s, the call has %s",
            call_name(t), t->ctx->job.rank, rondo_dtype_name((rondo_dtype)t->ctx->calls.user_op[slot].dtype),
            rondo_dtype_name((rondo_dtype)t->dtype));
    }
    t->premul = t->ctx->calls.user_op[slot].premul;
    t->scalar = t->ctx->calls.user_op[slot].scalar;
    return RONDO_SUCCESS;
}

unsigned rondo_task_needs(const struct rondo_task *t, size_t sent, size_t received)
{
    unsigned both = (sent > 0) | (received > 0) << 1;
    int root = t->ctx->job.rank == t->root;
    switch ((enum rondo_coll)t->coll) {
    case RONDO_COLL_REDUCE:
    case RONDO_COLL_GATHERV:
    case RONDO_COLL_GATHER: return root ? both : both & 1;
    case RONDO_COLL_BROADCAST:
    case RONDO_COLL_SCATTERV:
    case RONDO_COLL_SCATTER: return root ? both : both & 2;
    case RONDO_COLL_SEND: return both & 1;
    case RONDO_COLL_RECV: return both & 2;
    case RONDO_COLL_BARRIER: return 0;
    default: return both;
    }
}

static rondo_status check_arrays(const struct rondo_task *t, const size_t *counts, const size_t *displs,
                                 const char *what, size_t *total)
{
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype), most = PTRDIFF_MAX / elem;
    *total = 0;
    if (counts == NULL || displs == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_%s on rank %d: the %s counts or displacements are NULL", call_name(t),
                          t->ctx->job.rank, what);
    }
    for (int r = 0; r < t->ctx->job.nranks; r++) {
        if (counts[r] > most || displs[r] > most - counts[r] || *total > most - counts[r]) {
            return rondo_fail(RONDO_INVALID_ARGUMENT,
                              "rondo_%s on rank %d: the %s count %zu at displacement %zu of rank %d is more "
                              "than memory can hold",
                              call_name(t), t->ctx->job.rank, what, counts[r], displs[r], r);
        }
        *total += counts[r];
    }
    return RONDO_SUCCESS;
}

/* all_to_allv: the block that a rank keeps must have one size. */
static rondo_status check_own_block(const struct rondo_task *t)
{
    size_t sent = t->send_counts[t->ctx->job.rank], received = t->counts[t->ctx->job.rank];
    if (sent == received) {
        return RONDO_SUCCESS;
    }
    struct rondo_task out = *t, in = *t;
    out.count = sent;
    in.count = received;
    return rondo_plan_self_differs(t->ctx, &out, &in);
}

/* Check the sizes and count the elements that this rank sends and receives. */
static rondo_status check_size(const struct rondo_task *t, size_t *sent, size_t *received)
{
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype), total;
    if (t->coll == RONDO_COLL_ALL_TO_ALLV) {
        RONDO_TRY(check_arrays(t, t->counts, t->displs, "receive", received));
        RONDO_TRY(check_arrays(t, t->send_counts, t->send_displs, "send", sent));
        return check_own_block(t);
    }
    if (t->coll == RONDO_COLL_ALL_GATHERV || t->coll == RONDO_COLL_REDUCE_SCATTERV) {
        int gathers = t->coll == RONDO_COLL_ALL_GATHERV;
        RONDO_TRY(check_arrays(t, t->counts, t->displs, "block", &total));
        *sent = gathers ? t->counts[t->ctx->job.rank] : total;
        *received = gathers ? total : t->counts[t->ctx->job.rank];
        return RONDO_SUCCESS;
    }
    if (rondo_task_has_own_counts(t) && t->ctx->job.rank == t->root) {
        RONDO_TRY(check_arrays(t, t->counts, t->displs, "block", &total));
        if (t->count != t->counts[t->root]) {
            return rondo_fail(RONDO_INVALID_ARGUMENT,
                              "rondo_%s on rank %d: its own count is %zu, and counts[%d], of the same block, "
                              "is %zu: pass the same count twice",
                              call_name(t), t->root, t->count, t->root, t->counts[t->root]);
        }
        *sent = t->coll == RONDO_COLL_GATHERV ? t->count : total;
        *received = t->coll == RONDO_COLL_GATHERV ? total : t->count;
        return RONDO_SUCCESS;
    }
    if (RONDO_UNLIKELY(t->count > UINT32_MAX &&
                       t->count > PTRDIFF_MAX / elem /
                                      (size_t)t->ctx->job.nranks)) { /* common calls need no division */
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "rondo_%s on rank %d: count %zu of %s (%zu bytes each, %d ranks) is more than memory can hold",
            call_name(t), t->ctx->job.rank, t->count, rondo_dtype_name((rondo_dtype)t->dtype), elem,
            t->ctx->job.nranks);
    }
    *sent = *received = t->count;
    return RONDO_SUCCESS;
}

/* Check that the buffers lie where the communicator can use them. */
static rondo_status check_pointers(const struct rondo_task *t, unsigned needed)
{
    if (needed & 1) {
        RONDO_TRY(t->ctx->check_pointer(t->ctx, call_name(t), "send", t->send));
    }
    return needed & 2 ? t->ctx->check_pointer(t->ctx, call_name(t), "receive", t->recv) : RONDO_SUCCESS;
}

static rondo_status check(struct rondo_task *t)
{
    unsigned needed;
    size_t sent = 0, received = 0;
    RONDO_TRY(rondo_ctx_ready(t->ctx));
    RONDO_TRY(rondo_task_check_stream(t));
    RONDO_TRY(check_type(t));
    RONDO_TRY(check_op(t));
    if (RONDO_UNLIKELY(t->root < 0 || t->root >= t->ctx->job.nranks)) {
        return bad(t, t->coll == RONDO_COLL_SEND || t->coll == RONDO_COLL_RECV ? "the peer" : "the root",
                   t->root, "a rank of the communicator is from 0 to its size less 1");
    }
    if (rondo_task_has_own_counts(t) && t->ctx->job.rank != t->root) {
        t->counts = t->displs = NULL; /* whatever the caller passed */
    }
    RONDO_TRY(check_size(t, &sent, &received));
    needed = rondo_task_needs(t, sent, received);
    if (RONDO_UNLIKELY((needed & 1 && t->send == NULL) || (needed & 2 && t->recv == NULL))) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_%s on rank %d: the %s buffer is NULL and the count is not 0", call_name(t),
                          t->ctx->job.rank, needed & 1 && t->send == NULL ? "send" : "receive");
    }
    RONDO_TRY(rondo_task_check_overlap(t, needed));
    return RONDO_UNLIKELY(t->ctx->check_pointer != NULL) ? check_pointers(t, needed) : RONDO_SUCCESS;
}

static rondo_status add_to_group(const struct rondo_task *t)
{
    rondo_status status = rondo_group_add(t);
    rondo_group_note_error(status);
    return status;
}

static rondo_status submit(struct rondo_task *t, rondo_comm *comm, const char *what)
{
    struct rondo_ctx *ctx;
    rondo_status status = rondo_comm_enter(comm, what, &ctx);
    if (RONDO_UNLIKELY(status != RONDO_SUCCESS)) {
        if (!rondo_is_inside_call()) { /* else a signal handler interrupts the group's thread in a call */
            rondo_group_note_error(status);
        }
        return status;
    }
    t->ctx = ctx;
    status = check(t);
    if (RONDO_LIKELY(status == RONDO_SUCCESS)) {
        status = RONDO_UNLIKELY(rondo_group_depth() > 0) ? add_to_group(t)
                 : RONDO_LIKELY(ctx->prof == NULL)       ? ctx->backend->run(t)
                                                         : rondo_profile_run(t);
    }
    if (RONDO_UNLIKELY(status != RONDO_SUCCESS)) {
        rondo_ctx_keep_error(ctx, status);
        rondo_group_note_error(status);
    }
    rondo_comm_leave(comm);
    return status;
}

#define TASK(NAME, ...)                                                                  \
    {                                                                                    \
        .coll = RONDO_COLL_##NAME, .dtype = (int32_t)type, .stream = stream, __VA_ARGS__ \
    }

/* Return from the public function if the call takes the fast path. */
#define FAST_PATH(NAME, op, root, send, recv)                                                         \
    do {                                                                                              \
        rondo_status status_;                                                                         \
        uint64_t what_ = rondo_call_what(RONDO_COLL_##NAME, (unsigned)type, (unsigned)op, root);      \
        if (RONDO_LIKELY(RONDO_LIKELY(stream == NULL)                                                 \
                             ? rondo_fast_path(comm, what_, count, send, recv, &status_)              \
                             : rondo_fast_start(comm, what_, count, send, recv, stream, &status_))) { \
            return status_;                                                                           \
        }                                                                                             \
    } while (0)

rondo_status rondo_all_reduce(const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op,
                              rondo_comm *comm, rondo_stream stream)
{
    FAST_PATH(ALL_REDUCE, op, 0, send, recv);
    struct rondo_task t = TASK(ALL_REDUCE, .send = send, .recv = recv, .count = count, .op = op);
    return submit(&t, comm, "rondo_all_reduce");
}

rondo_status rondo_reduce(const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op, int root,
                          rondo_comm *comm, rondo_stream stream)
{
    FAST_PATH(REDUCE, op, root, send, recv);
    struct rondo_task t = TASK(REDUCE, .send = send, .recv = recv, .count = count, .op = op, .root = root);
    return submit(&t, comm, "rondo_reduce");
}

rondo_status rondo_broadcast(const void *send, void *recv, size_t count, rondo_dtype type, int root,
                             rondo_comm *comm, rondo_stream stream)
{
    FAST_PATH(BROADCAST, 0, root, send, recv);
    struct rondo_task t = TASK(BROADCAST, .send = send, .recv = recv, .count = count, .root = root);
    return submit(&t, comm, "rondo_broadcast");
}

rondo_status rondo_all_gather(const void *send, void *recv, size_t count, rondo_dtype type, rondo_comm *comm,
                              rondo_stream stream)
{
    FAST_PATH(ALL_GATHER, 0, 0, send, recv);
    struct rondo_task t = TASK(ALL_GATHER, .send = send, .recv = recv, .count = count);
    return submit(&t, comm, "rondo_all_gather");
}

rondo_status rondo_reduce_scatter(const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op,
                                  rondo_comm *comm, rondo_stream stream)
{
    FAST_PATH(REDUCE_SCATTER, op, 0, send, recv);
    struct rondo_task t = TASK(REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .op = op);
    return submit(&t, comm, "rondo_reduce_scatter");
}

rondo_status rondo_all_to_all(const void *send, void *recv, size_t count, rondo_dtype type, rondo_comm *comm,
                              rondo_stream stream)
{
    FAST_PATH(ALL_TO_ALL, 0, 0, send, recv);
    struct rondo_task t = TASK(ALL_TO_ALL, .send = send, .recv = recv, .count = count);
    return submit(&t, comm, "rondo_all_to_all");
}

rondo_status rondo_gather(const void *send, void *recv, size_t count, rondo_dtype type, int root,
                          rondo_comm *comm, rondo_stream stream)
{
    struct rondo_task t = TASK(GATHER, .send = send, .recv = recv, .count = count, .root = root);
    return submit(&t, comm, "rondo_gather");
}

rondo_status rondo_scatter(const void *send, void *recv, size_t count, rondo_dtype type, int root,
                           rondo_comm *comm, rondo_stream stream)
{
    struct rondo_task t = TASK(SCATTER, .send = send, .recv = recv, .count = count, .root = root);
    return submit(&t, comm, "rondo_scatter");
}

rondo_status rondo_gatherv(const void *send, size_t sendcount, void *recv, const size_t *counts,
                           const size_t *displs, rondo_dtype type, int root, rondo_comm *comm,
                           rondo_stream stream)
{
    struct rondo_task t = TASK(GATHERV, .send = send, .recv = recv, .count = sendcount, .counts = counts,
                               .displs = displs, .root = root);
    return submit(&t, comm, "rondo_gatherv");
}

rondo_status rondo_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                            size_t recvcount, rondo_dtype type, int root, rondo_comm *comm,
                            rondo_stream stream)
{
    struct rondo_task t = TASK(SCATTERV, .send = send, .recv = recv, .count = recvcount, .counts = counts,
                               .displs = displs, .root = root);
    return submit(&t, comm, "rondo_scatterv");
}

rondo_status rondo_all_gatherv(const void *send, void *recv, const size_t *counts, const size_t *displs,
                               rondo_dtype type, rondo_comm *comm, rondo_stream stream)
{
    struct rondo_task t = TASK(ALL_GATHERV, .send = send, .recv = recv, .counts = counts, .displs = displs);
    return submit(&t, comm, "rondo_all_gatherv");
}

rondo_status rondo_reduce_scatterv(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                   rondo_dtype type, rondo_op op, rondo_comm *comm, rondo_stream stream)
{
    struct rondo_task t = TASK(REDUCE_SCATTERV, .send = send, .recv = recv, .counts = counts,
                               .displs = displs, .op = op);
    return submit(&t, comm, "rondo_reduce_scatterv");
}

rondo_status rondo_all_to_allv(const void *send, const size_t *sendcounts, const size_t *sdispls, void *recv,
                               const size_t *recvcounts, const size_t *rdispls, rondo_dtype type,
                               rondo_comm *comm, rondo_stream stream)
{
    int same = send == recv && sendcounts == NULL && sdispls == NULL;
    struct rondo_task t = TASK(ALL_TO_ALLV, .send = send, .recv = recv, .counts = recvcounts,
                               .displs = rdispls, .send_counts = same ? recvcounts : sendcounts,
                               .send_displs = same ? rdispls : sdispls);
    return submit(&t, comm, "rondo_all_to_allv");
}

rondo_status rondo_send(const void *send, size_t count, rondo_dtype type, int peer, rondo_comm *comm,
                        rondo_stream stream)
{
    struct rondo_task t = TASK(SEND, .send = send, .count = count, .root = peer);
    return submit(&t, comm, "rondo_send");
}

rondo_status rondo_recv(void *recv, size_t count, rondo_dtype type, int peer, rondo_comm *comm,
                        rondo_stream stream)
{
    struct rondo_task t = TASK(RECV, .recv = recv, .count = count, .root = peer);
    return submit(&t, comm, "rondo_recv");
}

rondo_status rondo_barrier(rondo_comm *comm, rondo_stream stream)
{
    rondo_dtype type = RONDO_UINT8;
    size_t count = 1; /* the backend provides the byte */
    FAST_PATH(BARRIER, RONDO_MAX, 0, NULL, NULL);
    struct rondo_task t = TASK(BARRIER, .count = count, .op = RONDO_MAX);
    return submit(&t, comm, "rondo_barrier");
}

/* ---- operations of the user ---- */

static rondo_status create_premul_sum(rondo_op *op, const void *scalar, rondo_dtype type, int on_device,
                                      struct rondo_ctx *ctx)
{
    if (op == NULL || scalar == NULL) {
        return rondo_ctx_keep_error(
            ctx, rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_op_create_premul_sum on rank %d: the %s is NULL",
                            ctx->job.rank, op == NULL ? "place for the operation" : "scalar"));
    }
    if ((unsigned)type >= RONDO_NUM_DTYPES) {
        return rondo_ctx_keep_error(
            ctx, rondo_fail(RONDO_INVALID_ARGUMENT,
                            "rondo_op_create_premul_sum on rank %d: the type is %d: one of enum rondo_dtype",
                            ctx->job.rank, (int)type));
    }
    if (!rondo_dtype_premul(type)) {
        return rondo_ctx_keep_error(
            ctx, rondo_fail(RONDO_INVALID_ARGUMENT,
                            "rondo_op_create_premul_sum on rank %d: the type is %s: an integer or a float of "
                            "at most 8 bytes can be multiplied by a scalar",
                            ctx->job.rank, rondo_dtype_name(type)));
    }
    for (unsigned i = 0; i < RONDO_USER_OPS; i++) {
        struct rondo_user_op *user = &ctx->calls.user_op[i];
        if (!user->used) {
            user->used = 1;
            user->dtype = (uint8_t)type;
            user->premul = on_device ? RONDO_PREMUL_DEVICE : 1;
            user->scalar = on_device ? (uint64_t)(uintptr_t)scalar : 0;
            if (!on_device) {
                memcpy(&user->scalar, scalar, rondo_dtype_size(type));
            }
            *op = (rondo_op)(RONDO_NUM_OPS + i);
            return RONDO_SUCCESS;
        }
    }
    return rondo_ctx_keep_error(
        ctx, rondo_fail(
                 RONDO_INVALID_USAGE,
                 "rank %d: all %d operations of this communicator are in use: rondo_op_destroy the old ones",
                 ctx->job.rank, RONDO_USER_OPS));
}

rondo_status rondo_op_create_premul_sum(rondo_op *op, const void *scalar, rondo_dtype type, rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_op_create_premul_sum", &ctx));
    status = create_premul_sum(op, scalar, type, 0, ctx);
    rondo_comm_leave(comm);
    return status;
}

rondo_status rondo_op_create_premul_sum_device(rondo_op *op, const void *scalar, rondo_dtype type,
                                               rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_op_create_premul_sum_device", &ctx));
    status =
        !ctx->backend->is_gpu
            ? rondo_ctx_keep_error(
                  ctx,
                  rondo_fail(
                      RONDO_INVALID_ARGUMENT,
                      "rondo_op_create_premul_sum_device on rank %d: the communicator \"%s\" has no device: "
                      "rondo_op_create_premul_sum takes a scalar in host memory",
                      ctx->job.rank, ctx->job.name))
            : create_premul_sum(op, scalar, type, 1, ctx);
    rondo_comm_leave(comm);
    return status;
}

static rondo_status op_destroy(rondo_op op, struct rondo_ctx *ctx)
{
    unsigned slot = (unsigned)op - RONDO_NUM_OPS;
    if (slot >= RONDO_USER_OPS || !ctx->calls.user_op[slot].used) {
        return rondo_ctx_keep_error(
            ctx,
            rondo_fail(
                RONDO_INVALID_ARGUMENT,
                "rondo_op_destroy on rank %d: %d is not an operation that was created on this communicator",
                ctx->job.rank, (int)op));
    }
    ctx->calls.user_op[slot].used = 0;
    return RONDO_SUCCESS;
}

rondo_status rondo_op_destroy(rondo_op op, rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_op_destroy", &ctx));
    status = op_destroy(op, ctx);
    rondo_comm_leave(comm);
    return status;
}
