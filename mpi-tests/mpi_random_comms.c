/* Statements of mpi_random that make and free communicators, and wrong calls with error handlers. */
#include "mpi_random.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mpi_common.h"

/* Some communicators stay alive until MPI_Finalize, which must cope. */
enum { MOST_LEAKED = 16 };
static int leaked;

/* MPI_Comm_create_group of Open MPI 4.1 ends with an internal error now and then. */
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION == 4
enum { GROUPS_FAIL = 1 };
#else
enum { GROUPS_FAIL = 0 };
#endif

/*
 * Open MPI 4.1 lets the threads of a process choose the id of a new communicator one after the other, the one
 * with the lowest id of the old communicator first. All ranks of the new one have to choose at once, and each
 * knows only its own threads: rank 0 lets thread A go first, whose peer on rank 1 makes another communicator
 * before this one, of a higher id than thread B's; there B goes first, and both wait for ever. So the threads
 * take turns, in an order that is equal on all ranks: the first creation of each thread, then the second
 * ones.
 */
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION == 4
enum { THREADS_STALL = 1 };
#else
enum { THREADS_STALL = 0 };
#endif

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int threads;             /* 0: nobody waits */
    long made[MOST_THREADS]; /* LONG_MAX: the program has ended */
} turns = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void run_turns_open(int threads)
{
    turns.threads = THREADS_STALL ? threads : 0;
    memset(turns.made, 0, sizeof(turns.made));
}

static int is_turn(int thread)
{
    for (int t = 0; t < turns.threads; t++) {
        if (turns.made[t] < turns.made[thread] + (t < thread)) {
            return 0;
        }
    }
    return 1;
}

static void turn_begin(const struct run *run)
{
    pthread_mutex_lock(&turns.lock);
    while (!is_turn(run->thread)) {
        pthread_cond_wait(&turns.changed, &turns.lock);
    }
    pthread_mutex_unlock(&turns.lock);
}

static void turn_end(const struct run *run, int last)
{
    if (turns.threads == 0) {
        return;
    }
    pthread_mutex_lock(&turns.lock);
    turns.made[run->thread] = last ? LONG_MAX : turns.made[run->thread] + 1;
    pthread_cond_broadcast(&turns.changed);
    pthread_mutex_unlock(&turns.lock);
}

void run_comms_open(struct run *run, MPI_Comm world, MPI_Comm self)
{
    struct comm *c = &run->comms[0];
    memset(run->comms, 0, sizeof(run->comms));
    c->alive = 1;
    c->handle = world;
    MPI_Comm_size(world, &c->n);
    MPI_Comm_rank(world, &c->rank);
    for (int r = 0; r < c->n; r++) {
        c->members[r] = r;
    }
    run->comms[1] = (struct comm){ .alive = 1, .id = 1, .n = 1, .handle = self, .members = { c->rank } };
    run->next_comm = 2;
}

/* Open MPI 4.1's non-blocking collectives use a communicator after it was freed. */
static void complete_on(struct run *run, const struct comm *c)
{
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION == 4
    for (int i = 0; i < MAX_OPS; i++) {
        if (run->ops[i].used && run->ops[i].active && !run->ops[i].message && run->ops[i].comm == c->handle) {
            run_complete(run, &run->ops[i]);
        }
    }
#else
    (void)run;
    (void)c;
#endif
}

static void comm_end(struct run *run, struct comm *c)
{
    complete_on(run, c);
    if (c->rank >= 0) {
        MUST(run, MPI_Comm_free(&c->handle));
        if (c->handle != MPI_COMM_NULL) {
            run_failed(run, NULL, "MPI_Comm_free left a handle");
        }
    }
    c->alive = 0;
}

void run_comms_close(struct run *run)
{
    int order[MAX_COMMS];
    for (int i = 0; i < MAX_COMMS; i++) {
        order[i] = i;
    }
    for (int i = MAX_COMMS - 1; i > 2; i--) {
        int j = 2 + rng_below(&run->all, i - 1), tmp = order[i];
        order[i] = order[j];
        order[j] = tmp;
    }
    for (int i = 2; i < MAX_COMMS; i++) {
        struct comm *c = &run->comms[order[i]];
        if (!c->alive) {
            continue;
        }
        if (!run->threaded && rng_one_in(&run->all, 50) && leaked < MOST_LEAKED) {
            leaked++;
            c->alive = 0;
        } else {
            comm_end(run, c);
        }
    }
    turn_end(run, 1);
}

struct comm *run_any_comm(struct run *run)
{
    struct comm *c;
    do { /* the first more often: faces take over after some calls on a communicator */
        c = &run->comms[rng_one_in(&run->all, 3) ? 0 : rng_below(&run->all, MAX_COMMS)];
    } while (!c->alive);
    return c;
}

static struct comm *free_slot(struct run *run)
{
    for (int i = 2; i < MAX_COMMS; i++) {
        if (!run->comms[i].alive) {
            return &run->comms[i];
        }
    }
    return NULL;
}

/* Enter a communicator of these ranks of `parent`. The handle is set by who is a member. */
static struct comm *enter(struct run *run, const struct comm *parent, int n, const int *ranks)
{
    struct comm *c = free_slot(run);
    if (c == NULL) {
        test_die("no free entry for a communicator");
    }
    *c = (struct comm){ .alive = 1, .id = run->next_comm++, .n = n, .rank = -1, .handle = MPI_COMM_NULL };
    for (int i = 0; i < n; i++) {
        c->members[i] = parent->members[ranks[i]];
        if (parent->rank == ranks[i]) {
            c->rank = i;
        }
    }
    return c;
}

/* A handle that MPI gave for an entry: compare what MPI says about it. */
static void check_new(struct run *run, struct comm *c)
{
    int n = -1, rank = -1;
    if (c->rank < 0) {
        if (c->handle != MPI_COMM_NULL) {
            run_failed(run, NULL, "a rank that is no member got a communicator");
        }
        return;
    }
    if (c->handle == MPI_COMM_NULL) {
        run_failed(run, NULL, "a member got no communicator");
        test_die("cannot go on");
    }
    MPI_Comm_size(c->handle, &n);
    MPI_Comm_rank(c->handle, &rank);
    run_saw(run, (uint64_t)c->id, (uint64_t)n << 32 | (uint64_t)(unsigned)rank);
    if (n != c->n || rank != c->rank) {
        run_failed(run, NULL, "rank %d of %d, not %d of %d", rank, n, c->rank, c->n);
    }
    MPI_Comm_set_errhandler(c->handle, MPI_ERRORS_RETURN);
}

static void make_split(struct run *run, struct comm *parent)
{
    int colors[MAX_RANKS], keys[MAX_RANKS], ncolors = 1 + rng_below(&run->all, 2);
    MPI_Comm handle = MPI_COMM_NULL;
    run_say(run, "split of comm %d in %d", parent->id, ncolors);
    for (int r = 0; r < parent->n; r++) {
        colors[r] = rng_below(&run->all, ncolors + 1); /* the last color: undefined */
        keys[r] = rng_below(&run->all, 4) - 1;
    }
    if (parent->rank >= 0) {
        int color = colors[parent->rank];
        MUST(run, MPI_Comm_split(parent->handle, color == ncolors ? MPI_UNDEFINED : color, keys[parent->rank],
                                 &handle));
    }
    for (int color = 0; color < ncolors; color++) {
        int ranks[MAX_RANKS], n = 0;
        for (int key = -1; key < 3; key++) {
            for (int r = 0; r < parent->n; r++) {
                if (colors[r] == color && keys[r] == key) {
                    ranks[n++] = r;
                }
            }
        }
        if (n > 0) {
            struct comm *c = enter(run, parent, n, ranks);
            c->handle = c->rank >= 0 ? handle : MPI_COMM_NULL;
            check_new(run, c);
        }
    }
}

/* Some ranks in any order, by MPI_Comm_create_group or MPI_Comm_create. */
static void make_group(struct run *run, struct comm *parent, int collective)
{
    int ranks[MAX_RANKS], n = 1 + rng_below(&run->all, parent->n);
    MPI_Group all, some;
    struct comm *c;
    run_say(run, "MPI_Comm_create%s of %d ranks of comm %d", collective ? "" : "_group", n, parent->id);
    for (int r = 0; r < parent->n; r++) {
        ranks[r] = r;
    }
    for (int i = 0; i < n; i++) {
        int j = i + rng_below(&run->all, parent->n - i), tmp = ranks[i];
        ranks[i] = ranks[j];
        ranks[j] = tmp;
    }
    c = enter(run, parent, n, ranks);
    if (parent->rank >= 0 && (collective || c->rank >= 0)) {
        MPI_Comm_group(parent->handle, &all);
        MPI_Group_incl(all, n, ranks, &some);
        if (collective) {
            MUST(run, MPI_Comm_create(parent->handle, some, &c->handle));
        } else {
            MUST(run, MPI_Comm_create_group(parent->handle, some, c->id, &c->handle));
        }
        MPI_Group_free(&all);
        MPI_Group_free(&some);
    }
    check_new(run, c);
}

/* All ranks in the same order. */
static void make_same(struct run *run, struct comm *parent, int how)
{
    static const char *const names[] = { "dup", "idup", "cart", "dup_with_info", "split_type" };
    int ranks[MAX_RANKS], one = 1;
    struct comm *c;
    MPI_Request request;
    run_say(run, "%s of comm %d", names[how], parent->id);
    for (int r = 0; r < parent->n; r++) {
        ranks[r] = r;
    }
    c = enter(run, parent, parent->n, ranks);
    if (c->rank < 0) {
        return;
    }
    switch (how) {
    case 0: MUST(run, MPI_Comm_dup(parent->handle, &c->handle)); break;
    case 1:
        MUST(run, MPI_Comm_idup(parent->handle, &c->handle, &request));
        MUST(run, MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
    case 2: MUST(run, MPI_Cart_create(parent->handle, 1, &parent->n, &one, 0, &c->handle)); break;
    case 3: MUST(run, MPI_Comm_dup_with_info(parent->handle, MPI_INFO_NULL, &c->handle)); break;
    default:
        MUST(run, MPI_Comm_split_type(parent->handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &c->handle));
    }
    check_new(run, c);
}

void statement_comm(struct run *run)
{
    struct comm *parent = run_any_comm(run), *old;
    int how = rng_below(&run->all, 12), room = 0;
    for (int i = 2; i < MAX_COMMS; i++) {
        room += !run->comms[i].alive;
    }
    if (room < 2 || how < 3) {
        old = &run->comms[2 + rng_below(&run->all, MAX_COMMS - 2)];
        if (old->alive && old->busy == 0) {
            run_say(run, "free of comm %d", old->id);
            comm_end(run, old);
        }
        return;
    }
    turn_begin(run);
    if (how < 6) {
        make_split(run, parent);
    } else if (how < 8) {
        make_group(run, parent, how == 6 || GROUPS_FAIL);
    } else {
        make_same(run, parent, how < 9 ? 0 : rng_below(&run->all, 5));
    }
    turn_end(run, 0);
}

/* ---- intercommunicators ---- */

/* The groups are the even and the odd ranks of `c`. Each rank gets what the other group sent. */
static void inter_calls(struct run *run, const struct comm *c, MPI_Comm inter, int rounds)
{
    int even = c->rank % 2 == 0, mine = c->rank / 2, remote = -1;
    MPI_Comm_remote_size(inter, &remote);
    for (int round = 0; round < rounds; round++) {
        int in = 1000 * round + c->rank + 1, out = -1, sum = 0, root = 77, all[MAX_RANKS + 1] = { 0 };
        for (int r = even ? 1 : 0; r < c->n; r += 2) {
            sum += 1000 * round + r + 1;
        }
        MUST(run, MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, inter));
        run_saw(run, (uint64_t)(run->statement * 100 + round), (uint64_t)out);
        if (out != sum) {
            run_failed(run, NULL, "allreduce between groups gave %d, not %d", out, sum);
        }
        out = even && mine == 0 ? 4000 + round : -1;
        root = !even ? 0 : mine == 0 ? MPI_ROOT : MPI_PROC_NULL;
        MUST(run, MPI_Bcast(&out, 1, MPI_INT, root, inter));
        if (out != (!even || mine == 0 ? 4000 + round : -1)) {
            run_failed(run, NULL, "bcast between groups gave %d", out);
        }
        MUST(run, MPI_Allgather(&in, 1, MPI_INT, all, 1, MPI_INT, inter));
        for (int r = 0; r < remote; r++) {
            if (all[r] != 1000 * round + 2 * r + even + 1) {
                run_failed(run, NULL, "allgather between groups: element %d is %d", r, all[r]);
            }
        }
        MUST(run, MPI_Barrier(inter));
    }
}

void statement_inter(struct run *run)
{
    struct comm *c = run_any_comm(run);
    int rounds = 1 + rng_below(&run->all, 8), tag = run->next_tag++, first = rng_below(&run->all, 2);
    MPI_Comm half, inter;
    if (c->n < 2) {
        return;
    }
    run_say(run, "%d rounds between the even and the odd ranks of comm %d", rounds, c->id);
    turn_begin(run);
    if (c->rank >= 0) {
        MUST(run, MPI_Comm_split(c->handle, c->rank % 2, 0, &half));
        MUST(run, MPI_Intercomm_create(half, 0, c->handle, c->rank % 2 == 0 ? 1 : 0, tag, &inter));
    }
    turn_end(run, 0);
    if (c->rank < 0) {
        return;
    }
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    inter_calls(run, c, inter, rounds);
    MUST(run, MPI_Comm_free(first ? &half : &inter));
    MUST(run, MPI_Comm_free(first ? &inter : &half));
}

/* ---- wrong arguments ---- */

static _Thread_local struct {
    int calls, code;
    MPI_Comm comm;
} handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    handled.calls++;
    handled.code = *code;
    handled.comm = *comm;
}

enum {
    W_COUNT,
    W_ROOT,
    W_TYPE,
    W_OP,
    W_OP_TYPE,
    W_IROOT,
    W_UNCOMMITTED,
    W_REDUCE_ROOT,
    W_GATHER_COUNT,
    W_KINDS
};
static const struct {
    const char *what;
    int class;
} wrongs[W_KINDS] = {
    [W_COUNT] = { "allreduce of -1 elements", MPI_ERR_COUNT },
    [W_ROOT] = { "bcast from a root that is no rank", MPI_ERR_ROOT },
    [W_TYPE] = { "allreduce without a type", MPI_ERR_TYPE },
    [W_OP] = { "allreduce without an operation", MPI_ERR_OP },
    [W_OP_TYPE] = { "allreduce of doubles by band", MPI_ERR_OP },
    [W_IROOT] = { "ibcast from a root that is no rank", MPI_ERR_ROOT },
    [W_UNCOMMITTED] = { "bcast of a type that is not committed", MPI_ERR_TYPE },
    [W_REDUCE_ROOT] = { "reduce to a root that is no rank", MPI_ERR_ROOT },
    [W_GATHER_COUNT] = { "allgather of -1 elements", MPI_ERR_COUNT },
};

static int wrong_call(int kind, const struct comm *c)
{
    double in[2 * MAX_RANKS] = { 0 }, out[2 * MAX_RANKS] = { 0 };
    MPI_Request request;
    MPI_Datatype type;
    int code;
    switch (kind) {
    case W_COUNT: return MPI_Allreduce(in, out, -1, MPI_DOUBLE, MPI_SUM, c->handle);
    case W_ROOT: return MPI_Bcast(in, 2, MPI_DOUBLE, c->n, c->handle);
    case W_TYPE: return MPI_Allreduce(in, out, 2, MPI_DATATYPE_NULL, MPI_SUM, c->handle);
    case W_OP: return MPI_Allreduce(in, out, 2, MPI_DOUBLE, MPI_OP_NULL, c->handle);
    case W_OP_TYPE: return MPI_Allreduce(in, out, 2, MPI_DOUBLE, MPI_BAND, c->handle);
    case W_IROOT: return MPI_Ibcast(in, 2, MPI_DOUBLE, -3, c->handle, &request);
    case W_UNCOMMITTED:
        MPI_Type_contiguous(2, MPI_DOUBLE, &type);
        code = MPI_Bcast(in, 1, type, 0, c->handle);
        MPI_Type_free(&type);
        return code;
    case W_REDUCE_ROOT: return MPI_Reduce(in, out, 2, MPI_DOUBLE, MPI_SUM, c->n, c->handle);
    default: return MPI_Allgather(in, -1, MPI_DOUBLE, out, -1, MPI_DOUBLE, c->handle);
    }
}

/* A wrong call gives the error, on the handler of the communicator, and leaves it in working order. */
void statement_wrong(struct run *run)
{
    struct comm *c = run_any_comm(run);
    int kind = rng_below(&run->all, W_KINDS), own = rng_below(&run->all, 2), code, class = -1;
    MPI_Errhandler errhandler = MPI_ERRHANDLER_NULL;
#if !defined(OPEN_MPI) /* Debian's MPICH checks no arguments */
    return;
#endif
    run_say(run, "%s on comm %d of %d%s", wrongs[kind].what, c->id, c->n, own ? " with a handler" : "");
    if (c->rank < 0) {
        return;
    }
    if (own) {
        MPI_Comm_create_errhandler(handler, &errhandler);
        MPI_Comm_set_errhandler(c->handle, errhandler);
        MPI_Errhandler_free(&errhandler);
    }
    memset(&handled, 0, sizeof(handled));
    code = wrong_call(kind, c);
    MPI_Error_class(code, &class);
    run_saw(run, (uint64_t)run->statement, (uint64_t) class);
    if (class != wrongs[kind].class && !(kind == W_TYPE && class == MPI_ERR_OP)) {
        run_failed(run, NULL, "error class %d, not %d", class, wrongs[kind].class);
    }
    if (handled.calls != own || (own && (handled.code != code || handled.comm != c->handle))) {
        run_failed(run, NULL, "the handler was called %d times, with code %d for %d", handled.calls,
                   handled.code, code);
    }
    MPI_Comm_set_errhandler(c->handle, MPI_ERRORS_RETURN);
}
