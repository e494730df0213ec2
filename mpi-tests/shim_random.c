/*
 * Random collectives of a plain MPI program, run with and without the MPI face: shim_random [seed [calls]].
 * Every call's result is compared with what MPI defines. Each rank describes its buffers as it likes (basic
 * types, contiguous types, types with gaps), calls block or do not, and messages of MPI's own are under way
 * between them.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPEN = 8, MAX_RANKS = 64 };
enum coll {
    ALLREDUCE,
    REDUCE,
    BCAST,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    BARRIER,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    NCOLLS
};
static const char *const names[] = {
    "Allreduce", "Reduce",  "Bcast",   "Allgather", "Allgatherv", "Alltoall",       "Alltoallv",
    "Gather",    "Gatherv", "Scatter", "Scatterv",  "Barrier",    "Reduce_scatter", "Reduce_scatter_block"
};

/* A buffer of n elements: the layout is this rank's own affair. */
struct buffer {
    char *memory;
    int n, elem, stride; /* bytes of an element; elements from one to the next */
    MPI_Datatype type;
    int count; /* of type, for n elements */
    int owns_type;
};

struct kind {
    MPI_Datatype type;
    int size;
    char form; /* 'i': integer, 'f': float */
};

#ifdef OPEN_MPI
enum { is_open_mpi = 1 };
#else
enum { is_open_mpi = 0 };
#endif

static int rank, nranks, failures;
static uint64_t common, own; /* random numbers: the same on all ranks; this rank's */

static unsigned draw(uint64_t *state, unsigned n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*state >> 33) % n;
}

static void store(const struct buffer *b, const struct kind *k, int i, int value)
{
    char *at = b->memory + (size_t)i * (size_t)b->stride * (size_t)b->elem;
    if (k->form == 'f') {
        float f = (float)value;
        double d = value;
        memcpy(at, k->size == 4 ? (void *)&f : (void *)&d, (size_t)k->size);
    } else {
        int64_t wide = value;
        memcpy(at, &wide, (size_t)k->size); /* little-endian */
    }
}

static int load(const struct buffer *b, const struct kind *k, int i)
{
    const char *at = b->memory + (size_t)i * (size_t)b->stride * (size_t)b->elem;
    if (k->form == 'f') {
        float f = 0;
        double d = 0;
        memcpy(k->size == 4 ? (void *)&f : (void *)&d, at, (size_t)k->size);
        return k->size == 4 ? (int)f : (int)d;
    }
    int64_t wide = 0;
    memcpy(&wide, at, (size_t)k->size);
    return (int)(k->size == 1 ? (signed char)wide : k->size == 2 ? (short)wide : (int)wide);
}

/* plain: in MPI's predefined type, as reductions and blocks of different sizes need. */
static void make(struct buffer *b, const struct kind *k, int n, int unit, int plain)
{
    int layout = plain ? 0 : (int)draw(&own, 3);
    b->n = n;
    b->elem = k->size;
    b->stride = layout == 1 ? 2 : 1;
    b->type = k->type;
    b->owns_type = 0;
    b->count = unit;
    if (layout == 1) {
        MPI_Type_create_resized(k->type, 0, 2 * k->size, &b->type);
    } else if (layout == 2 && unit % 2 == 0 && unit > 0) {
        MPI_Type_contiguous(2, k->type, &b->type);
        b->count = unit / 2;
    }
    if (b->type != k->type) {
        MPI_Type_commit(&b->type);
        b->owns_type = 1;
    }
    b->memory = malloc((size_t)(n + 1) * (size_t)b->stride * (size_t)k->size);
    for (int i = 0; i < n; i++) {
        store(b, k, i, -1);
    }
}

static void unmake(struct buffer *b) { free(b->memory); }

/* What rank r contributes as element i of call c; small, so that every sum is exact. */
static int value_of(int c, int r, int i) { return (c * 7 + r * 5 + i * 3) % 11 - 3; }

struct call {
    enum coll coll;
    struct kind kind;
    int number, count, root, in_place, op;
    struct buffer out, in;
    int counts[MAX_RANKS], displs[MAX_RANKS], out_counts[MAX_RANKS], out_displs[MAX_RANKS];
    MPI_Request request;
};

static int combine(int op, int a, int b)
{
    return op == 0 ? a + b : op == 1 ? (a > b ? a : b) : (a < b ? a : b);
}

static int reduced(const struct call *c, int i)
{
    int value = value_of(c->number, 0, i);
    for (int r = 1; r < nranks; r++) {
        value = combine(c->op, value, value_of(c->number, r, i));
    }
    return value;
}

/* How many elements rank `from` sends to rank `to` in an alltoallv. */
static int pair_count(const struct call *c, int from, int to)
{
    return c->in_place ? (from + to + c->number) % 4 * (c->count + 1) / 2
                       : (from * 3 + to + c->number) % 5 * (c->count + 1) / 3;
}
static int block_count(const struct call *c, int r) { return (r + c->number) % 3 * (c->count + 2) / 2; }

static void expect(const struct call *c, const struct buffer *b, int at, int value)
{
    int got = load(b, &c->kind, at);
    if (got != value && failures++ < 5) {
        printf("rank %d: call %d, %s of %d elements of %d bytes, root %d%s: element %d is %d, not %d\n", rank,
               c->number, names[c->coll], c->count, c->kind.size, c->root, c->in_place ? ", in place" : "",
               at, got, value);
    }
}

static int sum_of(const int *v, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += v[i];
    }
    return sum;
}

/* ---- issue ---- */

#define BOTH(Name, iname, ...) \
    (blocking ? MPI_##Name(__VA_ARGS__, comm) : MPI_I##iname(__VA_ARGS__, comm, &c->request))

static void issue_reduction(struct call *c, MPI_Comm comm, int blocking)
{
    static const MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_MIN };
    int scatters = c->coll == REDUCE_SCATTER || c->coll == REDUCE_SCATTER_BLOCK, is_root = c->root == rank;
    int total = c->coll == REDUCE_SCATTER_BLOCK ? c->count * nranks : c->count;
    if (c->coll == REDUCE_SCATTER) {
        for (int r = 0; r < nranks; r++) {
            c->counts[r] = block_count(c, r);
        }
        total = sum_of(c->counts, nranks);
    }
    make(&c->out, &c->kind, total, c->count, 1);
    make(&c->in, &c->kind, total, c->count, 1);
    int aside = c->in_place && (c->coll != REDUCE || is_root);
    for (int i = 0; i < total; i++) {
        store(aside ? &c->in : &c->out, &c->kind, i, value_of(c->number, rank, i));
    }
    const void *send = aside ? MPI_IN_PLACE : c->out.memory;
    void *recv = c->in.memory;
    MPI_Op op = ops[c->op];
    if (c->coll == ALLREDUCE) {
        BOTH(Allreduce, allreduce, send, recv, c->count, c->kind.type, op);
    } else if (c->coll == REDUCE) {
        BOTH(Reduce, reduce, send, is_root ? recv : NULL, c->count, c->kind.type, op, c->root);
    } else if (c->coll == REDUCE_SCATTER) {
        BOTH(Reduce_scatter, reduce_scatter, send, recv, c->counts, c->kind.type, op);
    } else if (scatters) {
        BOTH(Reduce_scatter_block, reduce_scatter_block, send, recv, c->count, c->kind.type, op);
    }
}

/* Blocks with gaps between them, in the order of ranks backwards. */
static int lay_out(const int *counts, int *displs)
{
    int end = 0;
    for (int r = nranks - 1; r >= 0; r--) {
        displs[r] = end;
        end += counts[r] + 1;
    }
    return end;
}

static void issue_blocks(struct call *c, MPI_Comm comm, int blocking)
{
    int v = c->coll == ALLTOALLV;
    for (int r = 0; r < nranks; r++) {
        c->counts[r] = v ? pair_count(c, r, rank) : block_count(c, r);
        c->out_counts[r] = v ? pair_count(c, rank, r) : 0;
    }
    int nin = lay_out(c->counts, c->displs), nout = lay_out(c->out_counts, c->out_displs);
    /* A unit of 1: counts are in elements. MPICH 4.0.2 cuts Allgatherv by this rank's extent. */
    make(&c->in, &c->kind, nin, 1, !is_open_mpi && !v);
    if (!v) {
        /* Open MPI 4.1.4 chooses by the size of this rank's type, and hangs where ranks have different
         * ones. */
        make(&c->out, &c->kind, c->counts[rank], 1, 0);
        c->out.count = c->counts[rank];
        for (int i = 0; i < c->counts[rank]; i++) {
            store(c->in_place ? &c->in : &c->out, &c->kind, (c->in_place ? c->displs[rank] : 0) + i,
                  value_of(c->number, rank, i));
        }
        BOTH(Allgatherv, allgatherv, c->in_place ? MPI_IN_PLACE : c->out.memory, c->out.count, c->out.type,
             c->in.memory, c->counts, c->displs, c->in.type);
        return;
    }
    make(&c->out, &c->kind, nout, 1, 1);
    for (int r = 0; r < nranks; r++) {
        for (int i = 0; i < c->out_counts[r]; i++) {
            store(c->in_place ? &c->in : &c->out, &c->kind,
                  (c->in_place ? c->displs[r] : c->out_displs[r]) + i, value_of(c->number, rank, r * 9 + i));
        }
    }
    BOTH(Alltoallv, alltoallv, c->in_place ? MPI_IN_PLACE : c->out.memory, c->out_counts, c->out_displs,
         c->out.type, c->in.memory, c->counts, c->displs, c->in.type);
}

/* Gatherv and Scatterv: only the root knows all counts, and only it has counts that mean something. */
static void issue_rooted_blocks(struct call *c, MPI_Comm comm, int blocking)
{
    int is_root = c->root == rank, gathers = c->coll == GATHERV, here = c->in_place && is_root;
    int mine = block_count(c, rank), total;
    struct buffer *blocks = gathers ? &c->in : &c->out, *own_block = gathers ? &c->out : &c->in;
    for (int r = 0; r < nranks; r++) {
        c->counts[r] = block_count(c, r);
    }
    total = lay_out(c->counts, c->displs);
    make(blocks, &c->kind, is_root ? total : 0, 1, 0);
    make(own_block, &c->kind, mine, 1, 0);
    own_block->count = mine;
    if (gathers) {
        for (int i = 0; i < mine; i++) {
            store(here ? blocks : own_block, &c->kind, (here ? c->displs[rank] : 0) + i,
                  value_of(c->number, rank, i));
        }
        BOTH(Gatherv, gatherv, here ? MPI_IN_PLACE : own_block->memory, here ? -3 : mine,
             here ? MPI_DATATYPE_NULL : own_block->type, is_root ? blocks->memory : NULL,
             is_root ? c->counts : NULL, is_root ? c->displs : NULL,
             is_root ? blocks->type : MPI_DATATYPE_NULL, c->root);
        return;
    }
    for (int r = 0; is_root && r < nranks; r++) {
        for (int i = 0; i < c->counts[r]; i++) {
            store(blocks, &c->kind, c->displs[r] + i, value_of(c->number, rank, r * 9 + i));
        }
    }
    BOTH(Scatterv, scatterv, is_root ? blocks->memory : NULL, is_root ? c->counts : NULL,
         is_root ? c->displs : NULL, is_root ? blocks->type : MPI_DATATYPE_NULL,
         here ? MPI_IN_PLACE : own_block->memory, here ? -3 : mine,
         here ? MPI_DATATYPE_NULL : own_block->type, c->root);
}

static void issue_movement(struct call *c, MPI_Comm comm, int blocking)
{
    int n = c->count, is_root = c->root == rank;
    int many_out = c->coll == ALLTOALL || c->coll == SCATTER,
        many_in = c->coll == ALLTOALL || c->coll == ALLGATHER || c->coll == GATHER;
    make(&c->out, &c->kind, many_out ? n * nranks : n, n, 0);
    make(&c->in, &c->kind, many_in ? n * nranks : n, n, 0);
    int here = c->coll == ALLTOALL || c->coll == ALLGATHER ? c->in_place : c->in_place && is_root;
    struct buffer *from = here && c->coll != SCATTER ? &c->in : &c->out;
    int first = here && (c->coll == ALLGATHER || c->coll == GATHER) ? rank * n : 0;
    for (int i = 0; i < (many_out ? n * nranks : n); i++) {
        store(from, &c->kind, first + i, value_of(c->number, rank, i));
    }
    const void *send = here && c->coll != SCATTER ? MPI_IN_PLACE : c->out.memory;
    void *recv = here && c->coll == SCATTER ? MPI_IN_PLACE : c->in.memory;
    const struct buffer *o = &c->out, *in = &c->in;
    if (c->coll == BCAST) {
        BOTH(Bcast, bcast, is_root ? o->memory : in->memory, is_root ? o->count : in->count,
             is_root ? o->type : in->type, c->root);
    } else if (c->coll == ALLGATHER) {
        BOTH(Allgather, allgather, send, o->count, here ? MPI_DATATYPE_NULL : o->type, recv, in->count,
             in->type);
    } else if (c->coll == ALLTOALL) {
        BOTH(Alltoall, alltoall, send, o->count, here ? MPI_DATATYPE_NULL : o->type, recv, in->count,
             in->type);
    } else if (c->coll == GATHER) {
        BOTH(Gather, gather, send, o->count, here ? MPI_DATATYPE_NULL : o->type, is_root ? recv : NULL,
             is_root ? in->count : -1, is_root ? in->type : MPI_DATATYPE_NULL, c->root);
    } else {
        BOTH(Scatter, scatter, is_root ? send : NULL, is_root ? o->count : -1,
             is_root ? o->type : MPI_DATATYPE_NULL, recv, in->count, here ? MPI_DATATYPE_NULL : in->type,
             c->root);
    }
}

static void issue(struct call *c, MPI_Comm comm, int blocking)
{
    c->request = MPI_REQUEST_NULL;
    if (c->coll == BARRIER) {
        if (blocking) {
            MPI_Barrier(comm);
        } else {
            MPI_Ibarrier(comm, &c->request);
        }
        return;
    }
    if (c->coll == ALLGATHERV || c->coll == ALLTOALLV) {
        issue_blocks(c, comm, blocking);
    } else if (c->coll == GATHERV || c->coll == SCATTERV) {
        issue_rooted_blocks(c, comm, blocking);
    } else if (c->coll == ALLREDUCE || c->coll == REDUCE || c->coll == REDUCE_SCATTER ||
               c->coll == REDUCE_SCATTER_BLOCK) {
        issue_reduction(c, comm, blocking);
    } else {
        issue_movement(c, comm, blocking);
    }
    /* MPI keeps what a call needs of its types. */
    if (c->in.owns_type) {
        MPI_Type_free(&c->in.type);
    }
    if (c->out.owns_type) {
        MPI_Type_free(&c->out.type);
    }
}

/* ---- check ---- */

static void check_blocks(const struct call *c)
{
    for (int r = 0; r < nranks; r++) {
        for (int i = 0; i < c->counts[r]; i++) {
            expect(c, &c->in, c->displs[r] + i,
                   value_of(c->number, r, c->coll == ALLTOALLV ? rank * 9 + i : i));
        }
    }
}

static void check(struct call *c)
{
    int n = c->count, is_root = c->root == rank, first = 0;
    if (c->coll == BARRIER) {
        return;
    }
    if (c->coll == REDUCE_SCATTER) {
        first = sum_of(c->counts, rank);
        n = c->counts[rank];
    } else if (c->coll == REDUCE_SCATTER_BLOCK) {
        first = rank * n;
    }
    if (c->coll == ALLGATHERV || c->coll == ALLTOALLV || (c->coll == GATHERV && is_root)) {
        check_blocks(c);
    } else if (c->coll == SCATTERV) {
        int here = is_root && c->in_place;
        for (int i = 0; i < c->counts[rank]; i++) {
            expect(c, here ? &c->out : &c->in, (here ? c->displs[rank] : 0) + i,
                   value_of(c->number, c->root, rank * 9 + i));
        }
    } else if (c->coll == ALLREDUCE || (c->coll == REDUCE && is_root) || c->coll >= REDUCE_SCATTER) {
        for (int i = 0; i < n; i++) {
            expect(c, &c->in, i, reduced(c, first + i));
        }
    } else if (c->coll == ALLGATHER || (c->coll == GATHER && is_root) || c->coll == ALLTOALL) {
        for (int i = 0; i < n * nranks; i++) {
            expect(c, &c->in, i, value_of(c->number, i / n, i % n + (c->coll == ALLTOALL ? rank * n : 0)));
        }
    } else if (c->coll == BCAST || c->coll == SCATTER) {
        const struct buffer *b = is_root && (c->coll == BCAST || c->in_place) ? &c->out : &c->in;
        for (int i = 0; i < n; i++) {
            int at = c->coll == SCATTER ? rank * n + i : i;
            expect(c, b, b == &c->out ? at : i, value_of(c->number, c->root, at));
        }
    }
    unmake(&c->in);
    unmake(&c->out);
}

/* ---- the program ---- */

static void draw_call(struct call *c, int number)
{
    static const struct {
        int size;
        char form;
    } kinds[] = { { 4, 'i' }, { 8, 'f' }, { 4, 'f' }, { 1, 'i' }, { 8, 'i' }, { 2, 'i' } };
    const MPI_Datatype types[] = { MPI_INT, MPI_DOUBLE, MPI_FLOAT, MPI_SIGNED_CHAR, MPI_LONG, MPI_SHORT };
    int k = (int)draw(&common, 6);
    memset(c, 0, sizeof *c);
    c->number = number;
    c->coll = (enum coll)draw(&common, NCOLLS);
    c->kind.type = types[k];
    c->kind.size = kinds[k].size;
    c->kind.form = kinds[k].form;
    c->count = draw(&common, 12) == 0 ? (int)draw(&common, 60000) : (int)draw(&common, 40);
    c->root = (int)draw(&common, (unsigned)nranks);
    c->in_place = draw(&common, 3) == 0 && c->coll != BCAST;
    c->in_place &= is_open_mpi || c->coll != REDUCE; /* MPICH 4.0.2 reads from MPI_IN_PLACE */
    c->op = (int)draw(&common, 3);
}

/* Complete some of the requests, whose calls may end in any order, and a message that MPI carries. */
static int complete(struct call *open, int nopen, MPI_Comm comm)
{
    MPI_Request requests[MAX_OPEN + 2];
    MPI_Status statuses[MAX_OPEN + 2]; /* MPICH's header warns of MPI_STATUSES_IGNORE */
    int token[2] = { rank, -1 }, way = (int)draw(&common, 3), index, flag, done = 0;
    for (int i = 0; i < nopen; i++) {
        requests[i] = open[i].request;
    }
    MPI_Irecv(&token[1], 1, MPI_INT, (rank + nranks - 1) % nranks, 7, comm, &requests[nopen]);
    MPI_Isend(&token[0], 1, MPI_INT, (rank + 1) % nranks, 7, comm, &requests[nopen + 1]);
    if (way == 0) {
        MPI_Waitall(nopen + 2, requests, statuses);
    } else if (way == 1) {
        while (done < nopen + 2) {
            MPI_Waitany(nopen + 2, requests, &index, MPI_STATUS_IGNORE);
            done += index != MPI_UNDEFINED;
        }
    } else {
        do {
            MPI_Testall(nopen + 2, requests, &flag, statuses);
        } while (!flag);
    }
    if (token[1] != (rank + nranks - 1) % nranks) {
        printf("rank %d: a message is wrong\n", rank);
        failures++;
    }
    for (int i = 0; i < nopen; i++) {
        check(&open[i]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    int ncalls = argc > 2 ? atoi(argv[2]) : 600, nopen = 0, all = 0, level;
    static struct call open[MAX_OPEN], now;
    MPI_Comm world, other, comms[2];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &other);
    comms[0] = world;
    comms[1] = other;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &nranks);
    common = seed;
    own = seed * 1000003u + (unsigned)rank;
    for (int i = 0; i < ncalls; i++) {
        MPI_Comm comm = comms[draw(&common, 2)];
        int blocking = draw(&common, 3) > 0;
        draw_call(&now, i);
        blocking |= !is_open_mpi && now.in_place; /* MPICH 4.0.2 aborts in non-blocking calls in place */
        struct call *c = &now;
        if (!blocking) {
            c = &open[nopen];
            *c = now;
        }
        issue(c, comm, blocking);
        if (blocking) {
            check(c);
        } else if (++nopen == MAX_OPEN || draw(&common, 4) == 0) {
            nopen = complete(open, nopen, comm);
        }
    }
    complete(open, nopen, world);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("seed %u: %d calls of %d ranks, %d wrong\n", seed, ncalls, nranks, all);
    }
    MPI_Comm_free(&world); /* other is left to MPI_Finalize */
    MPI_Finalize();
    return all != 0;
}
