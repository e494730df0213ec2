/* Running a call on Rondo: pack, issue, unpack, and what happens when that fails. */
#include <limits.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/wait.h"
#include "shim/mpi/shim.h"

/* ---- packing ---- */

enum direction { PACK, UNPACK };

/*
 * MPI_BOTTOM, for a type with absolute addresses, is NULL, which MPICH does not pack: the same addresses,
 * from another one that is not NULL.
 */
static int convert_bottom(enum direction direction, MPI_Datatype type, int count, char *line, int bytes)
{
    static char base[1];
    MPI_Aint back = -(MPI_Aint)(intptr_t)base;
    MPI_Datatype shifted;
    int position = 0, rc = PMPI_Type_create_hindexed_block(1, 1, &back, type, &shifted);
    if (rc != MPI_SUCCESS) {
        return rc;
    }
    rc = PMPI_Type_commit(&shifted);
    if (rc == MPI_SUCCESS) {
        rc = direction == PACK ? PMPI_Pack(base, count, shifted, line, bytes, &position, MPI_COMM_SELF)
                               : PMPI_Unpack(line, bytes, &position, base, count, shifted, MPI_COMM_SELF);
    }
    PMPI_Type_free(&shifted);
    return rc;
}

enum { PACK_PART = 1 << 30 }; /* bytes: MPI counts in int */

/* Bytes without gaps, in any number, as one element. */
static int packed_type(size_t size, MPI_Datatype *made)
{
    int lengths[2] = { (int)(size / PACK_PART), (int)(size % PACK_PART) };
    MPI_Aint at[2] = { 0, (MPI_Aint)lengths[0] * PACK_PART };
    MPI_Datatype types[2] = { MPI_DATATYPE_NULL, MPI_PACKED };
    int rc = PMPI_Type_contiguous(PACK_PART, MPI_PACKED, &types[0]);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Type_create_struct(2, lengths, at, types, made);
        PMPI_Type_free(&types[0]);
    }
    return rc == MPI_SUCCESS ? PMPI_Type_commit(made) : rc;
}

/* One element that is larger than a part, which MPI_Pack cannot count: a message of this rank to itself. */
static int convert_large(enum direction direction, MPI_Datatype type, size_t size, char *memory, char *line)
{
    static unsigned turn;
    /* Threads may do so at once. Persistent calls use tags from 0 (persist.c). */
    int tag = 32767 - (int)(__atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % 8192);
    MPI_Datatype packed;
    MPI_Comm self;
    int rc = shim_comm_self(&self);
    if (rc == MPI_SUCCESS) {
        rc = packed_type(size, &packed);
    }
    if (rc != MPI_SUCCESS) {
        return rc;
    }
    rc = direction == PACK
             ? PMPI_Sendrecv(memory, 1, type, 0, tag, line, 1, packed, 0, tag, self, MPI_STATUS_IGNORE)
             : PMPI_Sendrecv(line, 1, packed, 0, tag, memory, 1, type, 0, tag, self, MPI_STATUS_IGNORE);
    PMPI_Type_free(&packed);
    return rc;
}

/* Move elements between a buffer with gaps and bytes without, in parts. */
static int convert(enum direction direction, const struct shim_side *s, char *buf, int64_t count,
                   char *packed)
{
    int64_t most = s->size > 0 ? PACK_PART / (int64_t)s->size : count;
    MPI_Datatype type = s->held != MPI_DATATYPE_NULL ? s->held : s->type;
    if (s->size == 0 || count == 0) {
        return MPI_SUCCESS;
    }
    for (int64_t at = 0; most == 0 && at < count; at++) {
        int rc = convert_large(direction, type, s->size, buf + at * s->extent, packed + (size_t)at * s->size);
        if (rc != MPI_SUCCESS) {
            return rc;
        }
    }
    for (int64_t at = 0; most > 0 && at < count; at += most) {
        int part = (int)(count - at < most ? count - at : most), position = 0,
            bytes = (int)((int64_t)s->size * part);
        char *memory = buf + at * s->extent, *line = packed + (size_t)at * s->size;
        int rc = memory == NULL      ? convert_bottom(direction, type, part, line, bytes)
                 : direction == PACK ? PMPI_Pack(memory, part, type, line, bytes, &position, MPI_COMM_SELF)
                                     : PMPI_Unpack(line, bytes, &position, memory, part, type, MPI_COMM_SELF);
        if (rc != MPI_SUCCESS) {
            return rc;
        }
    }
    return MPI_SUCCESS;
}

/* A non-blocking call unpacks when its communicator may be gone. */
static rondo_status convert_side(enum direction direction, const struct shim_call *call,
                                 const struct shim_side *s)
{
    int rc = MPI_SUCCESS;
    char *packed = s->packed;
    if (!s->blocks) {
        rc = convert(direction, s, s->buf, s->count, packed);
    }
    for (int r = 0; r < s->blocks && rc == MPI_SUCCESS; r++) {
        int64_t count = shim_int(s->counts, r);
        rc = convert(direction, s, s->buf + shim_int(s->displs, r) * s->extent, count, packed);
        packed += (size_t)count * s->size;
    }
    if (rc != MPI_SUCCESS) {
        int rank = -1;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "rank %d of MPI_COMM_WORLD on %s: MPI cannot %s the buffer of a %s (error %d)",
                          rank, rondo_log_host(), direction == PACK ? "pack" : "unpack",
                          shim_coll_name((enum shim_coll)call->coll), rc);
    }
    return RONDO_SUCCESS;
}

static rondo_status memory_for(const struct shim_call *call, void *memory, size_t bytes)
{
    void *got = malloc(bytes + !bytes);
    if (got == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "rank %d on %s: no memory (%zu bytes) for an MPI %s",
                          call->c->rank, rondo_log_host(), bytes, shim_coll_name((enum shim_coll)call->coll));
    }
    memcpy(memory, &got, sizeof got);
    return RONDO_SUCCESS;
}

/* A non-blocking call may use its type after the program has freed it. */
static rondo_status side_pack(struct shim_call *call, struct shim_side *s, enum direction direction,
                              int keeps)
{
    RONDO_TRY(memory_for(call, &s->packed, (size_t)s->count * s->size));
    if (direction == PACK) {
        return convert_side(PACK, call, s);
    }
    if (keeps && shim_type_hold(s->type, &s->held) != MPI_SUCCESS) {
        s->held = MPI_DATATYPE_NULL;
        return rondo_fail(RONDO_SYSTEM_ERROR, "rank %d on %s: MPI cannot make a type of another one",
                          call->c->rank, rondo_log_host());
    }
    return RONDO_SUCCESS;
}

/* The counts and displacements of a side's blocks, in bytes from *base. */
static void block_sizes(const struct shim_side *s, int n, size_t *counts, size_t *displs, char **base)
{
    int64_t least = 0;
    size_t end = 0;
    for (int r = 0; r < n && s->is_plain; r++) {
        int64_t at = shim_int(s->displs, r);
        least = shim_int(s->counts, r) > 0 && at < least ? at : least;
    }
    for (int r = 0; r < n; r++) {
        counts[r] = (size_t)shim_int(s->counts, r) * s->size;
        displs[r] = !s->is_plain    ? end
                    : counts[r] > 0 ? (size_t)((shim_int(s->displs, r) - least) * s->extent)
                                    : 0;
        end += counts[r];
    }
    *base = s->is_plain ? s->buf + least * s->extent : s->packed;
}

/* ---- prepare and finish ---- */

static rondo_status sizes_reserve(struct shim_call *call, int keeps)
{
    size_t bytes = 4 * (size_t)call->c->n * sizeof(size_t);
    if (keeps) {
        return memory_for(call, &call->sizes, bytes);
    }
    if (call->c->sizes == NULL) {
        RONDO_TRY(memory_for(call, &call->c->sizes, bytes));
    }
    call->sizes = call->c->sizes;
    return RONDO_SUCCESS;
}

/* Have the result put into memory of the call, of which a part goes to the program's buffer. */
static rondo_status result_aside(struct shim_call *call, size_t bytes, size_t part_at, size_t part_bytes)
{
    RONDO_TRY(memory_for(call, &call->temp, bytes));
    call->temp_at = part_at;
    call->temp_bytes = part_bytes;
    call->temp_to = call->recv;
    call->recv = call->temp;
    return RONDO_SUCCESS;
}

/* MPI's reduce_scatter in place puts the result at the start; Rondo's at this rank's block. */
static rondo_status prepare_uneven(struct shim_call *call)
{
    size_t n = (size_t)call->c->n, *counts = call->sizes, *displs = call->sizes + n, end = 0;
    size_t elem = rondo_dtype_size((rondo_dtype)call->dtype);
    for (size_t r = 0; r < n; r++) {
        counts[r] = (size_t)shim_int(call->out.counts, (int)r);
        displs[r] = end;
        end += counts[r];
    }
    if (call->send == call->recv && displs[call->c->rank] != 0) {
        size_t bytes = counts[call->c->rank] * elem;
        return result_aside(call, bytes, 0, bytes);
    }
    return RONDO_SUCCESS;
}

static rondo_status prepare_small(struct shim_call *call)
{
    size_t elem = rondo_dtype_size((rondo_dtype)call->dtype), at = 0;
    for (int r = 0; r < call->c->rank; r++) {
        at += (size_t)shim_int(call->out.counts, r);
    }
    return result_aside(call, call->count * elem, at * elem,
                        (size_t)shim_int(call->out.counts, call->c->rank) * elem);
}

rondo_status shim_prepare(struct shim_call *call, int keeps)
{
    size_t n = (size_t)call->c->n;
    struct shim_side *out = &call->out, *in = &call->in;
    char *base;
    call->sizes = NULL;
    if (call->coll == SHIM_REDUCE_SCATTER && call->blocks == SHIM_SMALL) {
        return prepare_small(call);
    }
    if (call->coll == SHIM_REDUCE_SCATTER) {
        RONDO_TRY(sizes_reserve(call, keeps));
        return prepare_uneven(call);
    }
    if (call->has_out && !out->is_plain) {
        RONDO_TRY(side_pack(call, out, PACK, keeps));
        call->send = out->packed;
    }
    if (call->has_in && !in->is_plain) {
        RONDO_TRY(side_pack(call, in, UNPACK, keeps));
        call->recv = in->packed;
    }
    if (call->coll == SHIM_BCAST) {
        call->send = call->recv = call->has_out ? out->packed : in->packed;
    }
    if ((call->has_in && in->blocks) || (call->has_out && out->blocks)) {
        RONDO_TRY(sizes_reserve(call, keeps));
    }
    if (call->has_in && in->blocks) {
        block_sizes(in, call->c->n, call->sizes, call->sizes + n, &base);
        call->recv = base;
    }
    if (call->has_out && out->blocks) {
        block_sizes(out, call->c->n, call->sizes + 2 * n, call->sizes + 3 * n, &base);
        call->send = base;
    }
    return RONDO_SUCCESS;
}

static void side_free(struct shim_side *s)
{
    free(s->packed);
    s->packed = NULL;
    if (s->held != MPI_DATATYPE_NULL) {
        PMPI_Type_free(&s->held);
    }
}

rondo_status shim_finish(struct shim_call *call, rondo_status status)
{
    if (call->temp != NULL) {
        if (status == RONDO_SUCCESS && call->temp_bytes > 0) {
            memcpy(call->temp_to, (char *)call->temp + call->temp_at, call->temp_bytes);
        }
        free(call->temp);
        call->temp = NULL;
    }
    if (call->has_in) {
        if (status == RONDO_SUCCESS && call->in.packed != NULL) {
            status = convert_side(UNPACK, call, &call->in);
        }
        side_free(&call->in);
    }
    if (call->has_out) {
        side_free(&call->out);
    }
    return status;
}

/* ---- issue ---- */

static rondo_status issue_blocks(const struct shim_call *call, rondo_stream stream)
{
    size_t n = (size_t)call->c->n, *in = call->sizes, *out = call->sizes + 2 * n;
    rondo_comm *comm = call->c->rondo;
    rondo_dtype type = (rondo_dtype)call->dtype;
    if (call->coll == SHIM_REDUCE_SCATTER) {
        return rondo_reduce_scatterv(call->send, call->recv, in, in + n, type, (rondo_op)call->op, comm,
                                     stream);
    }
    return call->coll == SHIM_ALLGATHERV
               ? rondo_all_gatherv(call->send, call->recv, in, in + n, type, comm, stream)
               : rondo_all_to_allv(call->send, out, out + n, call->recv, in, in + n, type, comm, stream);
}

/* Only the root has counts. */
static rondo_status issue_rooted_blocks(const struct shim_call *call, rondo_stream stream)
{
    size_t n = (size_t)call->c->n, *counts = NULL, *displs = NULL;
    rondo_comm *comm = call->c->rondo;
    rondo_dtype type = (rondo_dtype)call->dtype;
    int gathers = call->coll == SHIM_GATHERV;
    if (call->c->rank == call->root) {
        counts = call->sizes + (gathers ? 0 : 2 * n);
        displs = counts + n;
    }
    return gathers ? rondo_gatherv(call->send, call->count, call->recv, counts, displs, type, call->root,
                                   comm, stream)
                   : rondo_scatterv(call->send, counts, displs, call->recv, call->count, type, call->root,
                                    comm, stream);
}

static rondo_status issue_reduce_scatter(const struct shim_call *call, rondo_stream stream)
{
    rondo_comm *comm = call->c->rondo;
    rondo_dtype type = (rondo_dtype)call->dtype;
    rondo_op op = (rondo_op)call->op;
    switch ((enum shim_blocks)call->blocks) {
    case SHIM_EQUAL: return rondo_reduce_scatter(call->send, call->recv, call->count, type, op, comm, stream);
    case SHIM_SOLE:
        return rondo_reduce(call->send, call->recv, call->count, type, op, call->root, comm, stream);
    case SHIM_SMALL: return rondo_all_reduce(call->send, call->recv, call->count, type, op, comm, stream);
    case SHIM_UNEVEN: break;
    }
    return issue_blocks(call, stream);
}

rondo_status shim_issue(const struct shim_call *call, rondo_stream stream)
{
    rondo_comm *comm = call->c->rondo;
    rondo_dtype type = (rondo_dtype)call->dtype;
    rondo_op op = (rondo_op)call->op;
    const void *send = call->send;
    void *recv = call->recv;
    size_t count = call->count;
    switch ((enum shim_coll)call->coll) {
    case SHIM_ALLREDUCE: return rondo_all_reduce(send, recv, count, type, op, comm, stream);
    case SHIM_REDUCE: return rondo_reduce(send, recv, count, type, op, call->root, comm, stream);
    case SHIM_BCAST: return rondo_broadcast(send, recv, count, type, call->root, comm, stream);
    case SHIM_BARRIER: return rondo_barrier(comm, stream);
    case SHIM_ALLGATHER: return rondo_all_gather(send, recv, count, type, comm, stream);
    case SHIM_ALLTOALL: return rondo_all_to_all(send, recv, count, type, comm, stream);
    case SHIM_GATHER: return rondo_gather(send, recv, count, type, call->root, comm, stream);
    case SHIM_SCATTER: return rondo_scatter(send, recv, count, type, call->root, comm, stream);
    case SHIM_REDUCE_SCATTER: return issue_reduce_scatter(call, stream);
    case SHIM_REDUCE_SCATTER_BLOCK: return rondo_reduce_scatter(send, recv, count, type, op, comm, stream);
    case SHIM_ALLGATHERV:
    case SHIM_ALLTOALLV: return issue_blocks(call, stream);
    case SHIM_GATHERV:
    case SHIM_SCATTERV: return issue_rooted_blocks(call, stream);
    case SHIM_NCOLLS: break;
    }
    return rondo_fail(RONDO_INTERNAL_ERROR, "an unknown collective (%d)", call->coll);
}

/* ---- a blocking call ---- */

void shim_fail(struct shim_call *call, rondo_status status)
{
    struct shim_comm *c = call->c;
    if (!c->failed) {
        if (!rondo_error_logged()) {
            rondo_fail_aloud(status);
        }
        RONDO_WARN("rank %d: Rondo failed in %s MPI %s, so %s any more", c->rank,
                   c->busy ? "a persistent" : "an", shim_coll_name((enum shim_coll)call->coll),
                   c->busy ? "this request makes no calls" : "the MPI communicator has no collectives");
        shim_comm_fail(c);
        if (c->host != NULL && !c->host->failed) { /* over which the others may agree on their next call */
            shim_comm_fail(c->host);
        }
    }
}

int shim_error(struct shim_call *call, rondo_status status)
{
    struct shim_comm *c = call->c;
    shim_fail(call, status);
    if (!shim_inside_mpi) {
        PMPI_Comm_call_errhandler(c->comm, MPI_ERR_OTHER);
    }
    return MPI_ERR_OTHER;
}

static __attribute__((noinline)) rondo_status run_moves(struct shim_call *call)
{
    call->out.packed = call->in.packed = NULL;
    call->out.held = call->in.held = MPI_DATATYPE_NULL;
    rondo_status status = shim_prepare(call, 0);
    if (status == RONDO_SUCCESS) {
        status = shim_issue(call, NULL);
    }
    return shim_finish(call, status);
}

static __attribute__((noinline)) rondo_status run_timed(struct shim_call *call)
{
    int64_t begin = rondo_now_ns();
    rondo_status status = call->c->host != NULL ? shim_gpu_run(call)
                          : call->moves         ? run_moves(call)
                                                : shim_issue(call, NULL);
    if (status == RONDO_SUCCESS) {
        shim_took(call, rondo_now_ns() - begin);
    }
    return status;
}

int shim_run(struct shim_call *call)
{
    rondo_status status;
    if (RONDO_UNLIKELY(call->c->failed)) {
        return shim_error(call, RONDO_INVALID_USAGE);
    }
    struct shim_outer outer = shim_enter(SHIM_CALLS);
    if (RONDO_UNLIKELY(call->timed || shim_reporting || call->c->host != NULL)) {
        status = run_timed(call);
    } else {
        status = RONDO_UNLIKELY(call->moves) ? run_moves(call) : shim_issue(call, NULL);
    }
    shim_exit(outer);
    return RONDO_LIKELY(status == RONDO_SUCCESS) ? MPI_SUCCESS : shim_error(call, status);
}
