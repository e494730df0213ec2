/*
 * From the arguments of MPI's functions to calls of Rondo. Data movement is in bytes, so it has no part in
 * MPI's types beyond their signature; a type with gaps is packed. Arguments that are not significant at this
 * rank, or given with MPI_IN_PLACE, are not looked at.
 */
#include "shim/mpi/shim.h"

/* Packing needs as much memory again, and MPI's own functions count in int. */
static const int64_t MOST = INT64_C(1) << 30;

/* The product of two numbers that are not negative, or INT64_MAX if it is larger. */
static inline int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Is a number of bytes, which is the same on all ranks, one that Rondo takes? */
static inline int decide(struct shim_call *call, int64_t bytes)
{
    const struct shim_settings *s = shim_settings();
    if (RONDO_UNLIKELY(bytes <= 0)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->bytes = (size_t)bytes;
    if (RONDO_UNLIKELY(!(s->allowed >> call->coll & 1))) {
        return shim_leave(call, SHIM_BY_OFF);
    }
    if (RONDO_UNLIKELY(bytes > MOST || (size_t)bytes < s->min || (size_t)bytes > s->max)) {
        return shim_leave(call, SHIM_BY_SIZE);
    }
    return 1;
}

/* ---- reductions ---- */

/* The same buffer twice, without MPI_IN_PLACE: MPICH refuses that, Open MPI takes it for in place. */
static inline int is_alias(const void *send, const void *recv)
{
#ifdef OPEN_MPI
    (void)send, (void)recv;
    return 0;
#else
    return send == recv && send != MPI_BOTTOM; /* with absolute addresses both may be NULL */
#endif
}

static inline int is_sound(const void *send, const void *recv, int64_t count)
{
    return recv != NULL && send != NULL && count > 0 && recv != MPI_IN_PLACE && !is_alias(send, recv);
}

/* The part that all reductions share; elements decide. */
static inline int reduction(struct shim_call *call, int64_t count, int64_t elements, MPI_Datatype datatype,
                            MPI_Op op)
{
    const struct shim_type *type = shim_type_find(datatype);
    if (RONDO_UNLIKELY(count < 0 || elements <= 0 || type == NULL)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->op = shim_op_find(op, type);
    if (RONDO_UNLIKELY(call->op < 0)) {
        return shim_leave(call, SHIM_BY_TYPE);
    }
    call->dtype = type->dtype;
    call->count = (size_t)count;
    call->inexact = (type->kind == SHIM_KIND_FLOAT || type->kind == SHIM_KIND_COMPLEX) &&
                    (call->op == RONDO_SUM || call->op == RONDO_PROD) && call->c->n > 2;
    if (RONDO_UNLIKELY(call->inexact && shim_settings()->exact)) {
        return shim_leave(call, SHIM_BY_EXACT);
    }
    return decide(call, times(elements, (int64_t)type->size));
}

int shim_plan_allreduce(struct shim_call *call, const void *send, void *recv, int64_t count,
                        MPI_Datatype type, MPI_Op op)
{
    if (RONDO_UNLIKELY(!is_sound(send, recv, count))) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->send = send == MPI_IN_PLACE ? recv : send;
    call->recv = recv;
    return reduction(call, count, count, type, op);
}

static int root_is_good(const struct shim_call *call, int root) { return root >= 0 && root < call->c->n; }

int shim_plan_reduce(struct shim_call *call, const void *send, void *recv, int64_t count, MPI_Datatype type,
                     MPI_Op op, int root)
{
    int is_root = call->c->rank == root;
    if (!root_is_good(call, root) ||
        (is_root ? !is_sound(send, recv, count) : send == NULL || send == MPI_IN_PLACE)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->send = send == MPI_IN_PLACE ? recv : send;
    call->recv = is_root ? recv : NULL;
    call->root = root;
    return reduction(call, count, count, type, op);
}

int shim_plan_reduce_scatter_block(struct shim_call *call, const void *send, void *recv, int64_t count,
                                   MPI_Datatype type, MPI_Op op)
{
    if (!is_sound(send, recv, count)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->send = send == MPI_IN_PLACE ? recv : send;
    call->recv = recv;
    return reduction(call, count, times(count, call->c->n), type, op);
}

/* A reduce_scatter of blocks that differ, up to so many bytes in all, is faster as an all_reduce, whose plans
 * Rondo keeps. */
enum { MOST_SMALL = 8192 };

static enum shim_blocks blocks_of(struct shim_ints counts, int n, int64_t total, int *sole)
{
    int64_t first = shim_int(counts, 0);
    int equal = 1;
    *sole = -1;
    for (int r = 0; r < n; r++) {
        equal &= shim_int(counts, r) == first;
        *sole = shim_int(counts, r) == total ? r : *sole;
    }
    return equal ? SHIM_EQUAL : *sole >= 0 ? SHIM_SOLE : SHIM_UNEVEN;
}

/* The blocks of the result are out.counts, which the ranks have in common. */
int shim_plan_reduce_scatter(struct shim_call *call, const void *send, void *recv, struct shim_ints counts,
                             MPI_Datatype type, MPI_Op op)
{
    int64_t total = 0;
    int is_negative = counts.at == NULL, sole;
    for (int r = 0; r < call->c->n && !is_negative; r++) {
        is_negative = shim_int(counts, r) < 0;
        total += shim_int(counts, r);
    }
    /* A rank without a block may pass NULL to receive it, but it sends as all do. */
    if (is_negative || total == 0 || send == NULL || recv == MPI_IN_PLACE ||
        (recv == NULL && (send == MPI_IN_PLACE || shim_int(counts, call->c->rank) > 0)) ||
        is_alias(send, recv)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->send = send == MPI_IN_PLACE ? recv : send;
    call->recv = recv;
    call->has_out = call->has_in = 0;
    call->out.counts = counts;
    call->blocks = (uint8_t)blocks_of(counts, call->c->n, total, &sole);
    call->root = call->blocks == SHIM_SOLE ? sole : 0;
    if (!reduction(call, call->blocks == SHIM_EQUAL ? shim_int(counts, 0) : total, total, type, op)) {
        return 0;
    }
    if (call->blocks == SHIM_UNEVEN && call->bytes <= MOST_SMALL) {
        call->blocks = SHIM_SMALL;
    }
    call->moves = call->blocks >= SHIM_SMALL;
    return 1;
}

int shim_plan_barrier(struct shim_call *call)
{
    if (!(shim_settings()->allowed >> SHIM_BARRIER & 1)) {
        return shim_leave(call, SHIM_BY_OFF);
    }
    call->dtype = RONDO_UINT8;
    return 1;
}

/* ---- data movement ---- */

/* Describe a buffer of n times `count` elements. @return 0: MPI refuses it */
static int side(struct shim_side *s, const void *buf, int64_t count, int n, MPI_Datatype type)
{
    const struct shim_type *t = shim_type_find(type);
    if (RONDO_UNLIKELY(t == NULL || count < 0 || count > MOST ||
                       (buf == NULL && t->is_plain && count > 0 && t->size > 0))) {
        return 0; /* NULL is MPI_BOTTOM for a type with absolute addresses */
    }
    s->buf = (char *)(uintptr_t)buf;
    s->count = count * n;
    s->type = type;
    s->size = t->size;
    s->extent = t->extent;
    s->is_plain = t->is_plain;
    s->blocks = 0;
    s->packed = NULL;
    s->held = MPI_DATATYPE_NULL;
    return 1;
}

/* The same for an address that the program gave. A block of MPI_BOTTOM may lie where MPI_IN_PLACE points. */
static int given_side(struct shim_side *s, const void *buf, int64_t count, int n, MPI_Datatype type)
{
    return buf != MPI_IN_PLACE && side(s, buf, count, n, type);
}

/* One side's bytes for each rank decide. Buffers that need packing are run's business. */
static inline int movement(struct shim_call *call, int64_t count, size_t size, int copies)
{
    call->dtype = RONDO_UINT8;
    call->op = 0;
    call->moves = (call->has_out && !call->out.is_plain) || (call->has_in && !call->in.is_plain);
    int64_t bytes = times(count, (int64_t)size);
    if (size > (size_t)MOST || times(bytes, copies) > MOST) {
        call->bytes = (size_t)bytes;
        return shim_leave(call, SHIM_BY_SIZE);
    }
    call->count = (size_t)bytes;
    call->send = call->has_out ? call->out.buf : NULL;
    call->recv = call->has_in ? call->in.buf : NULL;
    return decide(call, bytes);
}

int shim_plan_bcast(struct shim_call *call, void *buf, int64_t count, MPI_Datatype type, int root)
{
    int is_root = call->c->rank == root;
    struct shim_side *s = is_root ? &call->out : &call->in;
    call->has_out = is_root;
    call->has_in = !is_root;
    if (!root_is_good(call, root) || !given_side(s, buf, count, 1, type)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    call->root = root;
    if (!movement(call, count, s->size, 1)) {
        return 0;
    }
    call->send = call->recv = buf;
    return 1;
}

/* Does this rank's part lie where MPICH looks for its block? The address that both arguments have in common
 * means nothing: parts of one buffer may be disjoint, and a rank that left such a call would be alone. */
static inline int is_own_block(const void *part, int64_t count, MPI_Datatype type,
                               const struct shim_side *blocks, int64_t its_count, int64_t at)
{
    return count != 0 && its_count != 0 && type == blocks->type &&
           is_alias(part, blocks->buf + at * (int64_t)blocks->size);
}

/* The place of this rank's block in a buffer of blocks. */
static char *own_block(const struct shim_call *call, const void *buf, int64_t count, MPI_Datatype type)
{
    const struct shim_type *t = shim_type_find(type);
    return (char *)(uintptr_t)buf + (t != NULL ? call->c->rank * count * t->extent : 0);
}

/* Describe a block of each rank beside this rank's part. @return 0: MPI refuses them */
static int blocks_beside(const struct shim_call *call, struct shim_side *s, const void *buf, int64_t count,
                         MPI_Datatype type, const void *part, int64_t its_count, MPI_Datatype its_type)
{
    return given_side(s, buf, count, call->c->n, type) &&
           !(its_count == count && is_own_block(part, its_count, its_type, s, count, call->c->rank * count));
}

int shim_plan_allgather(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                        void *recv, int64_t recvcount, MPI_Datatype recvtype)
{
    call->has_out = call->has_in = 1;
    if (!blocks_beside(call, &call->in, recv, recvcount, recvtype, send, sendcount, sendtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (send == MPI_IN_PLACE) {
        send = own_block(call, recv, recvcount, recvtype);
        sendcount = recvcount;
        sendtype = recvtype;
    }
    if (!side(&call->out, send, sendcount, 1, sendtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return movement(call, sendcount, call->out.size, call->c->n);
}

/* In place the data goes out from where it comes in. */
int shim_plan_alltoall(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                       void *recv, int64_t recvcount, MPI_Datatype recvtype)
{
    int aliases = sendcount == recvcount && sendtype == recvtype && is_alias(send, recv);
    if (send == MPI_IN_PLACE) {
        send = recv;
        sendcount = recvcount;
        sendtype = recvtype;
    }
    call->has_out = call->has_in = 1;
    if (aliases || !given_side(&call->in, recv, recvcount, call->c->n, recvtype) ||
        !given_side(&call->out, send, sendcount, call->c->n, sendtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return movement(call, sendcount, call->out.size, call->c->n);
}

int shim_plan_gather(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                     void *recv, int64_t recvcount, MPI_Datatype recvtype, int root)
{
    int is_root = call->c->rank == root;
    call->has_out = 1;
    call->has_in = is_root;
    call->root = root;
    if (!root_is_good(call, root) ||
        !(is_root ? blocks_beside(call, &call->in, recv, recvcount, recvtype, send, sendcount, sendtype)
                  : send != MPI_IN_PLACE)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (send == MPI_IN_PLACE) {
        send = own_block(call, recv, recvcount, recvtype);
        sendcount = recvcount;
        sendtype = recvtype;
    }
    if (!side(&call->out, send, sendcount, 1, sendtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return movement(call, sendcount, call->out.size, call->c->n);
}

int shim_plan_scatter(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                      void *recv, int64_t recvcount, MPI_Datatype recvtype, int root)
{
    int is_root = call->c->rank == root;
    call->has_out = is_root;
    call->has_in = 1;
    call->root = root;
    if (!root_is_good(call, root) ||
        !(is_root ? blocks_beside(call, &call->out, send, sendcount, sendtype, recv, recvcount, recvtype)
                  : recv != MPI_IN_PLACE)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (recv == MPI_IN_PLACE) {
        recv = own_block(call, send, sendcount, sendtype);
        recvcount = sendcount;
        recvtype = sendtype;
    }
    if (!side(&call->in, recv, recvcount, 1, recvtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return movement(call, recvcount, call->in.size, call->c->n);
}

/* ---- counts for each rank ---- */

/*
 * Where no rank knows the counts of all, the communicator decides. So no size may: side() refuses what is
 * larger than a decision allows, and is asked for less.
 */
static int side_any(struct shim_side *s, const void *buf, int64_t count, MPI_Datatype type)
{
    int sound = side(s, buf, count > MOST ? MOST : count, 1, type);
    s->count = count;
    return sound;
}

/* @return the elements of all blocks, or -1: MPI refuses them */
static int64_t block_side(struct shim_side *s, int n, const void *buf, struct shim_ints counts,
                          struct shim_ints displs, MPI_Datatype type)
{
    int64_t total = 0;
    if (counts.at == NULL || displs.at == NULL) {
        return -1;
    }
    for (int r = 0; r < n; r++) {
        int64_t count = shim_int(counts, r);
        if (count < 0) {
            return -1;
        }
        total += count;
    }
    if (buf == MPI_IN_PLACE || !side_any(s, buf, total, type)) {
        return -1;
    }
    s->blocks = n;
    s->counts = counts;
    s->displs = displs;
    return total;
}

/* is_own_block, of blocks with counts and displacements. */
static int is_own_v_block(const struct shim_call *call, const void *part, int64_t count, MPI_Datatype type,
                          const struct shim_side *blocks)
{
    return is_own_block(part, count, type, blocks, shim_int(blocks->counts, call->c->rank),
                        shim_int(blocks->displs, call->c->rank));
}

int shim_plan_allgatherv(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                         void *recv, struct shim_ints counts, struct shim_ints displs, MPI_Datatype recvtype)
{
    int64_t total = block_side(&call->in, call->c->n, recv, counts, displs, recvtype);
    call->has_out = call->has_in = 1;
    if (total < 0 || is_own_v_block(call, send, sendcount, sendtype, &call->in)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (send == MPI_IN_PLACE) {
        send = (char *)recv + shim_int(displs, call->c->rank) * call->in.extent;
        sendcount = shim_int(counts, call->c->rank);
        sendtype = recvtype;
    }
    if (sendcount != 0 ? !side(&call->out, send, sendcount, 1, sendtype)
                       : !side(&call->out, recv, 0, 1, recvtype)) { /* NULL with nothing to send */
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (!movement(call, total, call->in.size, 1)) {
        return 0;
    }
    call->moves = 1;
    return 1;
}

/* A side of `count` elements that this rank alone knows; none if there are no elements, as its type and
 * address mean nothing then. @return 0: MPI refuses it */
static int leaf_side(struct shim_side *s, int *has, const void *buf, int64_t count, MPI_Datatype type)
{
    *has = count != 0;
    return count == 0 || side_any(s, buf, count, type);
}

/* The root's blocks, beside its part. @return 0: MPI refuses one of them */
static int root_side(const struct shim_call *call, struct shim_side *s, const void *part, int64_t count,
                     MPI_Datatype its_type, const void *blocks, struct shim_ints counts,
                     struct shim_ints displs, MPI_Datatype type)
{
    return call->c->rank == call->root ? block_side(s, call->c->n, blocks, counts, displs, type) >= 0 &&
                                             !is_own_v_block(call, part, count, its_type, s)
                                       : part != MPI_IN_PLACE;
}

static int by_communicator(struct shim_call *call, const struct shim_side *leaf)
{
    if (!(shim_settings()->allowed >> call->coll & 1)) {
        return shim_leave(call, SHIM_BY_OFF);
    }
    call->dtype = RONDO_UINT8;
    call->moves = 1;
    call->send = call->has_out ? call->out.buf : NULL;
    call->recv = call->has_in ? call->in.buf : NULL;
    call->count = leaf != NULL ? (size_t)leaf->count * leaf->size : 0;
    return 1;
}

int shim_plan_alltoallv(struct shim_call *call, const void *send, struct shim_ints sendcounts,
                        struct shim_ints sdispls, MPI_Datatype sendtype, void *recv,
                        struct shim_ints recvcounts, struct shim_ints rdispls, MPI_Datatype recvtype)
{
    /* MPICH refuses no more: parts of one buffer may be disjoint. */
    int aliases = sendcounts.at == recvcounts.at && sendtype == recvtype && is_alias(send, recv);
    int64_t in, out;
    if (send == MPI_IN_PLACE) {
        send = recv;
        sendcounts = recvcounts;
        sdispls = rdispls;
        sendtype = recvtype;
    }
    call->has_out = call->has_in = 1;
    in = block_side(&call->in, call->c->n, recv, recvcounts, rdispls, recvtype);
    out = block_side(&call->out, call->c->n, send, sendcounts, sdispls, sendtype);
    if (in < 0 || out < 0 || (aliases && in != 0 && out != 0)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return by_communicator(call, NULL);
}

int shim_plan_gatherv(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                      void *recv, struct shim_ints counts, struct shim_ints displs, MPI_Datatype recvtype,
                      int root)
{
    call->has_in = call->c->rank == root;
    call->root = root;
    if (!root_is_good(call, root) ||
        !root_side(call, &call->in, send, sendcount, sendtype, recv, counts, displs, recvtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (send == MPI_IN_PLACE) {
        send = (char *)recv + shim_int(displs, root) * call->in.extent;
        sendcount = shim_int(counts, root);
        sendtype = recvtype;
    }
    if (!leaf_side(&call->out, &call->has_out, send, sendcount, sendtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return by_communicator(call, call->has_out ? &call->out : NULL);
}

int shim_plan_scatterv(struct shim_call *call, const void *send, struct shim_ints counts,
                       struct shim_ints displs, MPI_Datatype sendtype, void *recv, int64_t recvcount,
                       MPI_Datatype recvtype, int root)
{
    call->has_out = call->c->rank == root;
    call->root = root;
    if (!root_is_good(call, root) ||
        !root_side(call, &call->out, recv, recvcount, recvtype, send, counts, displs, sendtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    if (recv == MPI_IN_PLACE) {
        recv = (char *)(uintptr_t)send + shim_int(displs, root) * call->out.extent;
        recvcount = shim_int(counts, root);
        recvtype = sendtype;
    }
    if (!leaf_side(&call->in, &call->has_in, recv, recvcount, recvtype)) {
        return shim_leave(call, SHIM_BY_ARGUMENTS);
    }
    return by_communicator(call, call->has_in ? &call->in : NULL);
}
