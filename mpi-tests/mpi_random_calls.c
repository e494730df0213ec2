/* Collective calls of mpi_random: what is drawn, this rank's buffers, the call itself, the results. */
#include "mpi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_common.h"

/* Arguments that MPI must not look at. */
enum { NONSENSE = -77 };

static const char *const names[C_COUNT] = {
    "barrier",  "bcast",     "reduce",    "allreduce",      "gather",
    "gatherv",  "scatter",   "scatterv",  "allgather",      "allgatherv",
    "alltoall", "alltoallv", "alltoallw", "reduce_scatter", "reduce_scatter_block",
    "scan",     "exscan",
};
static const char *const forms[] = { "", "i", "persistent ", "large ", "large i" };

static int is_reduction(enum coll coll)
{
    return coll == C_REDUCE || coll == C_ALLREDUCE || coll >= C_REDUCE_SCATTER;
}
static int has_root(enum coll coll)
{
    return coll == C_BCAST || coll == C_REDUCE || (coll >= C_GATHER && coll <= C_SCATTERV);
}
static int has_counts(enum coll coll)
{
    return coll == C_GATHERV || coll == C_SCATTERV || coll == C_ALLGATHERV || coll == C_ALLTOALLV ||
           coll == C_ALLTOALLW || coll == C_REDUCE_SCATTER;
}

/* ---- drawing ---- */

static long draw_count(struct rng *rng, int blocks)
{
    static const struct {
        int upto, most;
    } sizes[] = { { 1, 0 }, { 3, 1 }, { 14, 48 }, { 20, 700 }, { 22, 6000 }, { 23, 20000 }, { 24, 70000 } };
    int dice = rng_below(rng, 24), i = 0;
    long count;
    while (dice >= sizes[i].upto) {
        i++;
    }
    count = sizes[i].most == 0 ? 0 : 1 + rng_below(rng, sizes[i].most);
    if (count > 8 && rng_one_in(rng, 2)) {
        count -= count % 8;
    }
    return count > 700 ? count / blocks + 1 : count;
}

static void draw_type(struct op *op, struct rng *rng)
{
    const enum coll coll = op->coll;
    do { /* the common types more often */
        op->basic = values_basic(rng_below(rng, rng_one_in(rng, 2) ? 4 : values_basics()));
        op->oper = O_NONE;
        if (is_reduction(coll)) {
            for (int tries = 0; tries < 40 && op->oper == O_NONE; tries++) {
                int oper = rng_one_in(rng, 3) ? O_SUM : rng_below(rng, O_COUNT);
                op->oper = op->basic->ops & 1u << oper ? oper : O_NONE;
            }
        }
    } while (is_reduction(coll) && op->oper == O_NONE);
}

/* What the MPI library itself gets wrong, as the control showed. A face passes some calls on to it. */
static int is_broken(const struct op *op)
{
    int min_max = op->oper == O_MIN || op->oper == O_MAX;
    int exchange = op->coll == C_ALLTOALLV || op->coll == C_ALLTOALLW;
    int scatters = op->coll == C_REDUCE_SCATTER || op->coll == C_REDUCE_SCATTER_BLOCK;
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION == 4
    (void)scatters;
    return (min_max && op->basic->type == MPI_OFFSET) ||         /* compared as unsigned */
           (min_max && op->basic->type == MPI_UNSIGNED_LONG) ||  /* compared as signed */
           (op->coll == C_ALLTOALLW && op->n == 1) ||            /* takes displacements for items */
           (exchange && op->in_place && op->form != F_BLOCKING); /* hangs */
#elif defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40100000
    (void)exchange;
    return (op->coll == C_ALLGATHERV && op->n == 1) ||                /* ignores displacements */
           (op->coll == C_REDUCE && op->in_place && op->root != 0) || /* reads at MPI_IN_PLACE */
           (op->oper == O_NONE && op->basic->kind == K_PAIR) ||       /* truncates messages of padded pairs */
           (min_max && op->basic->kind == K_UINT) ||                  /* compared as signed */
           (scatters && op->oper > O_USER_SUM);                       /* in another order than the ranks' */
#else
    (void)exchange, (void)min_max, (void)scatters;
    return 0;
#endif
}

/* Open MPI 4.1 chooses allgatherv's algorithm by this rank's own layout, and hangs if the ranks differ. */
static int plain_only(enum coll coll)
{
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION == 4
    return coll == C_ALLGATHERV;
#else
    (void)coll;
    return 0;
#endif
}

static void draw_call(struct op *op, struct rng *rng, const struct comm *comm)
{
    static const unsigned char often[] = { C_ALLREDUCE, C_ALLREDUCE, C_BCAST, C_ALLGATHER, C_REDUCE };
    int dice = rng_below(rng, C_COUNT + (int)TEST_ARRAY_LEN(often));
    int blocks;
    op->coll = dice < C_COUNT ? (enum coll)dice : (enum coll)often[dice - C_COUNT];
    draw_type(op, rng);
    op->n = comm->n;
    op->rank = comm->rank;
    op->root = rng_below(rng, comm->n);
    op->in_place = rng_one_in(rng, 4) && op->coll != C_BARRIER && op->coll != C_BCAST;
    blocks = op->coll >= C_GATHER && op->coll <= C_REDUCE_SCATTER_BLOCK ? comm->n : 1;
    op->count = draw_count(rng, blocks);
    op->call = rng_next(rng);
    for (int r = 0; r < comm->n; r++) {
        op->counts[r] = rng_one_in(rng, 5) ? 0 : rng_below(rng, (int)op->count + 1);
    }
}

void call_draw(struct op *op, struct rng *rng, const struct comm *comm)
{
    do {
        draw_call(op, rng, comm);
    } while (is_broken(op));
}

void call_describe(const struct op *op, const struct comm *comm, char *text, size_t len)
{
    int used = snprintf(text, len, "%s%s on comm %d of %d", forms[op->form], names[op->coll], comm->id,
                        comm->n);
    if (op->coll != C_BARRIER && used > 0 && (size_t)used < len) {
        used += snprintf(text + used, len - (size_t)used, ": %s%ld %s%s%s%s",
                         has_counts(op->coll) ? "up to " : "", op->count, op->basic->name,
                         op->oper == O_NONE ? "" : " ", op->oper == O_NONE ? "" : values_oper(op->oper)->name,
                         op->in_place ? ", in place" : "");
    }
    if (has_root(op->coll) && used > 0 && (size_t)used < len) {
        snprintf(text + used, len - (size_t)used, ", root %d", op->root);
    }
}

/* The elements that rank `from` sends to rank `to`. */
static long pair_count(const struct op *op, int from, int to)
{
    uint64_t hash;
    if (!has_counts(op->coll)) {
        return op->count;
    }
    if (op->in_place && from > to) { /* in place, both directions are equal */
        int tmp = from;
        from = to;
        to = tmp;
    }
    hash = test_hash(op->call, (uint64_t)from, (uint64_t)to);
    return hash % 5 == 0 ? 0 : (long)(hash >> 8) % (op->count + 1);
}

/* ---- this rank's buffers ---- */

static void fills(struct block *block, int a, int b, long first)
{
    block->filled = 1;
    block->in_a = a;
    block->in_b = b;
    block->in_first = first;
}
static void wants(struct block *block, enum want want, int a, int b, long first)
{
    block->want = want;
    block->a = a;
    block->b = b;
    block->first = first;
}

static long total(const struct op *op)
{
    long sum = 0;
    for (int r = 0; r < op->n; r++) {
        sum += op->coll == C_REDUCE_SCATTER ? op->counts[r] : op->count;
    }
    return sum;
}

static void prepare_scatter_reduction(struct op *op, struct rng *rng)
{
    long mine = op->coll == C_REDUCE_SCATTER ? op->counts[op->rank] : op->count, all = total(op), before = 0;
    long parts[2] = { mine, all - mine };
    for (int r = 0; r < op->rank; r++) {
        before += op->coll == C_REDUCE_SCATTER ? op->counts[r] : op->count;
    }
    op->has_recv = 1;
    op->has_send = !op->in_place;
    area_make(&op->recv, rng, op->basic, op->in_place ? 2 : 1, parts, 0, 1);
    wants(&op->recv.blocks[0], W_REDUCED, 0, op->n - 1, before);
    if (op->in_place) { /* the rest of the buffer is undefined afterwards */
        fills(&op->recv.blocks[0], op->rank, 0, 0);
        fills(&op->recv.blocks[1], op->rank, 0, mine);
        wants(&op->recv.blocks[1], W_ANY, 0, 0, 0);
    } else {
        area_make(&op->send, rng, op->basic, 1, &all, 0, 1);
        fills(&op->send.blocks[0], op->rank, 0, 0);
    }
}

static void prepare_reduction(struct op *op, struct rng *rng)
{
    int me = op->rank, last = op->coll == C_SCAN ? me : op->coll == C_EXSCAN ? me - 1 : op->n - 1;
    if (op->coll == C_REDUCE_SCATTER || op->coll == C_REDUCE_SCATTER_BLOCK) {
        prepare_scatter_reduction(op, rng);
        return;
    }
    op->has_recv = op->coll != C_REDUCE || op->root == me;
    op->has_send = !op->in_place || !op->has_recv;
    if (op->has_recv) {
        area_make(&op->recv, rng, op->basic, 1, &op->count, 0, 1);
        wants(&op->recv.blocks[0], last < 0 ? W_ANY : W_REDUCED, 0, last, 0);
    }
    if (op->has_send) {
        area_make(&op->send, rng, op->basic, 1, &op->count, 0, 1);
    }
    fills(op->has_send ? &op->send.blocks[0] : &op->recv.blocks[0], me, 0, 0);
}

/* gather(v), allgather(v): one block from each rank. */
static void prepare_gathering(struct op *op, struct rng *rng)
{
    const long *counts = op->counts;
    int me = op->rank, v = has_counts(op->coll), plain = plain_only(op->coll);
    op->has_recv = op->coll == C_ALLGATHER || op->coll == C_ALLGATHERV || op->root == me;
    op->has_send = !op->in_place || !op->has_recv;
    if (op->has_recv) {
        area_make(&op->recv, rng, op->basic, op->n, counts, v, plain);
        for (int r = 0; r < op->n; r++) {
            wants(&op->recv.blocks[r], W_VALUE, r, 0, 0);
        }
    }
    if (op->has_send) {
        area_make(&op->send, rng, op->basic, 1, &counts[me], 0, plain);
    }
    fills(op->has_send ? &op->send.blocks[0] : &op->recv.blocks[me], me, 0, 0);
}

static void prepare_scattering(struct op *op, struct rng *rng)
{
    int me = op->rank, v = has_counts(op->coll);
    op->has_send = op->root == me;
    op->has_recv = !op->in_place || !op->has_send;
    if (op->has_send) {
        area_make(&op->send, rng, op->basic, op->n, op->counts, v, 0);
        for (int r = 0; r < op->n; r++) {
            fills(&op->send.blocks[r], me, r, 0);
        }
    }
    if (op->has_recv) {
        area_make(&op->recv, rng, op->basic, 1, &op->counts[me], 0, 0);
        wants(&op->recv.blocks[0], W_VALUE, op->root, me, 0);
    }
}

static void prepare_exchange(struct op *op, struct rng *rng)
{
    int me = op->rank, v = has_counts(op->coll);
    long out[MAX_RANKS], in[MAX_RANKS];
    for (int r = 0; r < op->n; r++) {
        out[r] = pair_count(op, me, r);
        in[r] = pair_count(op, r, me);
    }
    op->has_recv = 1;
    op->has_send = !op->in_place;
    area_make(&op->recv, rng, op->basic, op->n, in, v, 0);
    if (op->has_send) {
        area_make(&op->send, rng, op->basic, op->n, out, v, 0);
    }
    for (int r = 0; r < op->n; r++) {
        wants(&op->recv.blocks[r], W_VALUE, r, me, 0);
        fills(op->has_send ? &op->send.blocks[r] : &op->recv.blocks[r], me, r, 0);
    }
}

/* Counts, displacements and types of the blocks of both buffers, where a call has arrays of them. */
static void fill_arrays(struct op *op)
{
    struct area *areas[2] = { &op->send, &op->recv };
    for (int side = 0; side < 2; side++) {
        const struct area *area = areas[side];
        for (int b = 0; b < MAX_RANKS; b++) {
            int real = area->blocks != NULL && b < area->nblocks;
            op->ints[2 * side][b] = real ? area_items(area, b) : NONSENSE;
            op->ints[2 * side + 1][b] = !real                     ? NONSENSE
                                        : op->coll == C_ALLTOALLW ? (int)area->blocks[b].offset
                                                                  : area_place(area, b);
            op->types[side][b] = real ? area->layout.type : MPI_DATATYPE_NULL;
        }
    }
}

void call_prepare(struct op *op, struct rng *local, const struct comm *comm)
{
    op->comm = comm->handle;
    op->has_send = op->has_recv = 0;
    op->junk = rng_one_in(local, 2);
    if (!has_counts(op->coll)) {
        for (int r = 0; r < op->n; r++) {
            op->counts[r] = op->count;
        }
    }
    if (op->coll == C_BCAST) {
        op->has_recv = 1;
        area_make(&op->recv, local, op->basic, 1, &op->count, 0, 0);
        wants(&op->recv.blocks[0], W_VALUE, op->root, 0, 0);
        if (op->root == op->rank) {
            fills(&op->recv.blocks[0], op->root, 0, 0);
        }
    } else if (is_reduction(op->coll)) {
        prepare_reduction(op, local);
    } else if (op->coll == C_GATHER || op->coll == C_GATHERV || op->coll == C_ALLGATHER ||
               op->coll == C_ALLGATHERV) {
        prepare_gathering(op, local);
    } else if (op->coll == C_SCATTER || op->coll == C_SCATTERV) {
        prepare_scattering(op, local);
    } else if (op->coll != C_BARRIER) {
        prepare_exchange(op, local);
    }
    fill_arrays(op);
    call_fill(op);
}

void call_fill(struct op *op)
{
    if (op->has_send) {
        area_fill(&op->send, op->oper, op->call);
    }
    if (op->has_recv) {
        area_fill(&op->recv, op->oper, op->call);
    }
}

void call_free(struct op *op)
{
    if (op->has_send) {
        area_free(&op->send);
    }
    if (op->has_recv) {
        area_free(&op->recv);
    }
    op->used = 0;
}

/* ---- the call ---- */

#ifdef RANDOM_INIT
#define INIT(Big, ...) op->form == F_PERSISTENT ? RANDOM_INIT(Big)(__VA_ARGS__, MPI_INFO_NULL, request):
#define BARRIER_INIT INIT(Barrier, op->comm)
#else
#define INIT(Big, ...)
#define BARRIER_INIT
#endif
#if RANDOM_MPI4
#define LARGE(Big, small, ...)                                                 \
    op->form == F_LARGE               ? MPI_##Big##_c(__VA_ARGS__)             \
    : op->form == F_LARGE_NONBLOCKING ? MPI_I##small##_c(__VA_ARGS__, request) \
                                      :
#else
#define LARGE(Big, small, ...)
#endif
#define CALL_V(Big, small, ...)                                     \
    (op->form == F_NONBLOCKING ? MPI_I##small(__VA_ARGS__, request) \
                               : INIT(Big, __VA_ARGS__) MPI_##Big(__VA_ARGS__))
#define CALL(Big, small, ...)                                                          \
    (op->form == F_NONBLOCKING ? MPI_I##small(__VA_ARGS__, request)                    \
                               : INIT(Big, __VA_ARGS__) LARGE(Big, small, __VA_ARGS__) \
                                     MPI_##Big(__VA_ARGS__))

struct arguments {
    const void *sbuf;
    void *rbuf;
    int scount, rcount; /* of one block */
    MPI_Datatype stype, rtype;
    const int *scounts, *splaces, *rcounts, *rplaces;
};

/* Open MPI 4.1 refuses a persistent call with two NULLs, also if there is no data. */
static void *buffer(const struct op *op, const struct area *area, int in_use)
{
    if (!in_use || (op->junk && op->count == 0 && op->form != F_PERSISTENT)) {
        return NULL;
    }
    return area_buffer(area);
}

/* Arguments as MPI wants them; where it must not look at one, half of the calls pass nonsense. */
static struct arguments arguments(const struct op *op)
{
    int nonsense = op->junk ? NONSENSE : 0;
    MPI_Datatype no_type = op->junk ? MPI_DATATYPE_NULL : MPI_BYTE;
    struct arguments a = { buffer(op, &op->send, op->has_send),
                           buffer(op, &op->recv, op->has_recv),
                           nonsense,
                           nonsense,
                           no_type,
                           no_type,
                           NULL,
                           NULL,
                           NULL,
                           NULL };
    if (op->has_send) {
        a.scount = area_items(&op->send, 0);
        a.stype = op->send.layout.type;
    }
    if (op->has_recv) {
        a.rcount = area_items(&op->recv, 0);
        a.rtype = op->recv.layout.type;
    }
    if (op->has_send || !op->junk) {
        a.scounts = op->ints[0], a.splaces = op->ints[1];
    }
    if (op->has_recv || !op->junk) {
        a.rcounts = op->ints[2], a.rplaces = op->ints[3];
    }
    if (op->coll == C_SCATTER || op->coll == C_SCATTERV) {
        a.rbuf = op->has_recv ? a.rbuf : MPI_IN_PLACE;
    } else if (op->in_place && !op->has_send) {
        a.sbuf = MPI_IN_PLACE;
    }
    return a;
}

static int issue_reduction(struct op *op, const struct arguments *a, MPI_Request *request)
{
    MPI_Datatype type = op->basic->type;
    MPI_Op oper = values_oper(op->oper)->op;
    int count = (int)op->count, *counts = op->ints[0];
    switch (op->coll) {
    case C_REDUCE: return CALL(Reduce, reduce, a->sbuf, a->rbuf, count, type, oper, op->root, op->comm);
    case C_ALLREDUCE: return CALL(Allreduce, allreduce, a->sbuf, a->rbuf, count, type, oper, op->comm);
    case C_SCAN: return CALL(Scan, scan, a->sbuf, a->rbuf, count, type, oper, op->comm);
    case C_EXSCAN: return CALL(Exscan, exscan, a->sbuf, a->rbuf, count, type, oper, op->comm);
    case C_REDUCE_SCATTER_BLOCK:
        return CALL(Reduce_scatter_block, reduce_scatter_block, a->sbuf, a->rbuf, count, type, oper,
                    op->comm);
    default:
        for (int r = 0; r < op->n; r++) {
            counts[r] = (int)op->counts[r];
        }
        return CALL_V(Reduce_scatter, reduce_scatter, a->sbuf, a->rbuf, counts, type, oper, op->comm);
    }
}

static int issue_exchange(struct op *op, const struct arguments *a, MPI_Request *request)
{
    MPI_Datatype *stypes = a->scounts != NULL ? op->types[0] : NULL, *rtypes = op->types[1];
    switch (op->coll) {
    case C_ALLTOALL:
        return CALL(Alltoall, alltoall, a->sbuf, a->scount, a->stype, a->rbuf, a->rcount, a->rtype, op->comm);
    case C_ALLTOALLV:
        return CALL_V(Alltoallv, alltoallv, a->sbuf, a->scounts, a->splaces, a->stype, a->rbuf, a->rcounts,
                      a->rplaces, a->rtype, op->comm);
    default:
        return CALL_V(Alltoallw, alltoallw, a->sbuf, a->scounts, a->splaces, stypes, a->rbuf, a->rcounts,
                      a->rplaces, rtypes, op->comm);
    }
}

static int issue_data(struct op *op, const struct arguments *a, MPI_Request *request)
{
    int root = op->root;
    MPI_Comm comm = op->comm;
    switch (op->coll) {
    case C_GATHER:
        return CALL(Gather, gather, a->sbuf, a->scount, a->stype, a->rbuf, a->rcount, a->rtype, root, comm);
    case C_GATHERV:
        return CALL_V(Gatherv, gatherv, a->sbuf, a->scount, a->stype, a->rbuf, a->rcounts, a->rplaces,
                      a->rtype, root, comm);
    case C_SCATTER:
        return CALL(Scatter, scatter, a->sbuf, a->scount, a->stype, a->rbuf, a->rcount, a->rtype, root, comm);
    case C_SCATTERV:
        return CALL_V(Scatterv, scatterv, a->sbuf, a->scounts, a->splaces, a->stype, a->rbuf, a->rcount,
                      a->rtype, root, comm);
    case C_ALLGATHER:
        return CALL(Allgather, allgather, a->sbuf, a->scount, a->stype, a->rbuf, a->rcount, a->rtype, comm);
    default:
        return CALL_V(Allgatherv, allgatherv, a->sbuf, a->scount, a->stype, a->rbuf, a->rcounts, a->rplaces,
                      a->rtype, comm);
    }
}

int call_issue(struct op *op)
{
    struct arguments a = arguments(op);
    MPI_Request *request = &op->request;
    int code;
    if ((op->form == F_LARGE || op->form == F_LARGE_NONBLOCKING) && (has_counts(op->coll) || !RANDOM_MPI4)) {
        op->form = op->form == F_LARGE ? F_BLOCKING : F_NONBLOCKING;
    }
    if (op->coll == C_BARRIER) {
        code = op->form == F_NONBLOCKING || op->form == F_LARGE_NONBLOCKING
                   ? MPI_Ibarrier(op->comm, request)
                   : BARRIER_INIT MPI_Barrier(op->comm);
    } else if (op->coll == C_BCAST) {
        code = CALL(Bcast, bcast, a.rbuf, a.rcount, a.rtype, op->root, op->comm);
    } else if (is_reduction(op->coll)) {
        code = issue_reduction(op, &a, request);
    } else if (op->coll >= C_ALLTOALL && op->coll <= C_ALLTOALLW) {
        code = issue_exchange(op, &a, request);
    } else {
        code = issue_data(op, &a, request);
    }
    return code;
}
