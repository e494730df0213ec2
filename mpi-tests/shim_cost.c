/*
 * What the MPI face costs a call, in ns: of one that it leaves to the MPI library, and of one that runs on
 * Rondo (the face's part alone). The functions below stand between the face and both libraries. Where they
 * say so, a call ends here, so no rank waits for another, and what is timed is the face.
 *
 *   mpirun -n N rondo-run shim_cost
 *
 * The face measures and decides as in any program: the library whose calls end here is the faster one. Fails
 * if it decides otherwise, or takes a call for another one that it has left to MPI.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rondo.h"
#include "shim/mpi/shim.def"

enum { COUNT = 12, MOST_RANKS = 64, WARM_UP = 200, BATCHES = 201, BATCH = 1000 };
static int in[COUNT * MOST_RANKS], out[COUNT * MOST_RANKS], counts[MOST_RANKS];

/* Which library's calls end here. Those of Rondo with another count are the face's own. */
enum { MPI_ENDS = 1, RONDO_ENDS = 2 };
static int ends;
static MPI_Comm ends_on = MPI_COMM_NULL;
static long nended;
/* Where there are debts, a broadcast that ends here takes BCAST_NS on MPI. One on Rondo takes none, but the
 * next barrier takes debt_ns. Barriers take up to noise_ns besides, as if ranks waited for others' work. */
enum { BCAST_NS = 20000 };
static int has_debts, ncold; /* broadcasts on Rondo that take 8 * BCAST_NS, as the first ones may */
static double debt_ns, owed_ns, noise_ns;
static unsigned nbarriers;

static void spin(double ns)
{
    for (double end = MPI_Wtime() + ns * 1e-9; MPI_Wtime() < end;) {
    }
}

/* What a call that ends here takes. */
static void pass_time(const char *name)
{
    nended++;
    if (has_debts && strcmp(name, "rondo_broadcast") == 0) {
        owed_ns = debt_ns;
        spin(ncold > 0 ? 8 * BCAST_NS : 0);
        ncold -= ncold > 0;
    } else if (has_debts && strcmp(name, "PMPI_Bcast") == 0) {
        spin(BCAST_NS);
        owed_ns = 0;
    } else if (has_debts) {
        spin(owed_ns + noise_ns * (nbarriers++ % 4) / 3); /* the same in all turns */
        owed_ns = 0;
    }
}

static void *next_of(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    if (symbol == NULL) {
        fprintf(stderr, "shim_cost: no library has %s\n", name);
        abort();
    }
    return symbol;
}

#define STAND_(type, name, params, args, is_ours) \
    __attribute__((noinline)) type name params;   \
    type name params                              \
    {                                             \
        static type(*next) params;                \
        if (is_ours) {                            \
            pass_time(#name);                     \
            return (type)0;                       \
        }                                         \
        if (next == NULL) {                       \
            void *symbol = next_of(#name);        \
            memcpy(&next, &symbol, sizeof next);  \
        }                                         \
        return next args;                         \
    }
#define MPI_(NAME, Name)                                                         \
    STAND_(int, PMPI_##Name, (SHIM_PARAMS_##NAME(int, int)), (SHIM_ARGS_##NAME), \
           (ends & MPI_ENDS) && comm == ends_on)
MPI_(ALLREDUCE, Allreduce)
MPI_(REDUCE, Reduce)
MPI_(REDUCE_SCATTER, Reduce_scatter)
MPI_(BCAST, Bcast)
MPI_(ALLGATHER, Allgather)
MPI_(ALLTOALL, Alltoall)
MPI_(BARRIER, Barrier)
STAND_(int, PMPI_Iallreduce, (SHIM_PARAMS_ALLREDUCE(int, int), MPI_Request *request),
       (SHIM_ARGS_ALLREDUCE, request), (ends & MPI_ENDS) && comm == ends_on)

#define RONDO_(name, params, args, is_ours) \
    STAND_(rondo_status, name, params, args, (ends & RONDO_ENDS) && (is_ours))
#define INTS_ (count == COUNT && type == RONDO_INT32)
#define BYTES_ (count == COUNT * sizeof(int) && type == RONDO_UINT8)
RONDO_(rondo_all_reduce,
       (const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op, rondo_comm *comm,
        rondo_stream stream),
       (send, recv, count, type, op, comm, stream), INTS_)
RONDO_(rondo_reduce,
       (const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op, int root, rondo_comm *comm,
        rondo_stream stream),
       (send, recv, count, type, op, root, comm, stream), INTS_)
RONDO_(rondo_reduce_scatter,
       (const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op, rondo_comm *comm,
        rondo_stream stream),
       (send, recv, count, type, op, comm, stream), INTS_)
RONDO_(rondo_broadcast,
       (const void *send, void *recv, size_t count, rondo_dtype type, int root, rondo_comm *comm,
        rondo_stream stream),
       (send, recv, count, type, root, comm, stream), BYTES_ || has_debts)
RONDO_(rondo_all_gather,
       (const void *send, void *recv, size_t count, rondo_dtype type, rondo_comm *comm, rondo_stream stream),
       (send, recv, count, type, comm, stream), BYTES_)
RONDO_(rondo_all_to_all,
       (const void *send, void *recv, size_t count, rondo_dtype type, rondo_comm *comm, rondo_stream stream),
       (send, recv, count, type, comm, stream), BYTES_)
RONDO_(rondo_barrier, (rondo_comm * comm, rondo_stream stream), (comm, stream), 1)

/* Each collective by the face and by the function that stands behind it. The face leaves the last one to MPI
 * because it leaves the first. */
#define CALLS(Y)                                                  \
    Y(Allreduce, (in, out, COUNT, MPI_INT, MPI_SUM, comm))        \
    Y(Bcast, (in, COUNT, MPI_INT, 0, comm))                       \
    Y(Reduce, (in, out, COUNT, MPI_INT, MPI_SUM, 0, comm))        \
    Y(Allgather, (in, COUNT, MPI_INT, out, COUNT, MPI_INT, comm)) \
    Y(Reduce_scatter, (in, out, counts, MPI_INT, MPI_SUM, comm))  \
    Y(Alltoall, (in, COUNT, MPI_INT, out, COUNT, MPI_INT, comm))  \
    Y(Barrier, (comm))                                            \
    Y(Iallreduce, (in, out, COUNT, MPI_INT, MPI_SUM, comm, &request))
static MPI_Request request = MPI_REQUEST_NULL;
#define TWO_(Name, args)                                        \
    static void face_##Name(MPI_Comm comm) { MPI_##Name args; } \
    static void behind_##Name(MPI_Comm comm) { PMPI_##Name args; }
CALLS(TWO_)
#define ROW_(Name, args) { #Name, face_##Name, behind_##Name },
static const struct {
    const char *name;
    void (*face)(MPI_Comm), (*behind)(MPI_Comm);
} rows[] = { CALLS(ROW_) };
enum { NROWS = sizeof rows / sizeof *rows };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The face's time for a call, less that of the function behind it: the median of batches in turn. */
static double cost(int row, MPI_Comm comm)
{
    static double ns[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        double begin = MPI_Wtime(), middle;
        for (int i = 0; i < BATCH; i++) {
            rows[row].face(comm);
        }
        middle = MPI_Wtime();
        for (int i = 0; i < BATCH; i++) {
            rows[row].behind(comm);
        }
        ns[b] = (2 * middle - begin - MPI_Wtime()) / BATCH * 1e9;
    }
    qsort(ns, BATCHES, sizeof *ns, by_value);
    return ns[BATCHES / 2];
}

/* Have the face find out that this library is the faster one, then time calls that end in its place.
 * @return ns, or -1: the face decided otherwise */
static double measure(int row, int library, MPI_Comm comm)
{
    long before;
    double ns;
    ends = library;
    ends_on = comm;
    for (int i = 0; i < WARM_UP; i++) {
        rows[row].face(comm);
    }
    before = nended;
    for (int i = 0; i < BATCH; i++) {
        rows[row].face(comm);
    }
    if (nended - before != BATCH) {
        return -1;
    }
    ends |= MPI_ENDS; /* behind the face */
    ns = cost(row, comm);
    ends = 0;
    return ns;
}

/* A broadcast of another size may have the handle of a type that was freed, but not its short way to MPI. */
static int forgets_types(MPI_Comm comm)
{
    enum { CALLS = 20 };
    MPI_Datatype small, large;
    MPI_Type_contiguous(COUNT, MPI_INT, &small);
    MPI_Type_commit(&small);
    ends = MPI_ENDS;
    ends_on = comm;
    MPI_Bcast(in, 1, small, 0, comm);
    MPI_Bcast(in, 1, small, 0, comm);
    MPI_Type_free(&small);
    MPI_Type_contiguous(COUNT * MOST_RANKS, MPI_INT, &large);
    MPI_Type_commit(&large);
    nended = 0;
    for (int i = 0; i < CALLS; i++) { /* in its own measuring, MPI and Rondo take turns */
        MPI_Bcast(in, 1, large, 0, comm);
    }
    ends = 0;
    MPI_Type_free(&large);
    if (nended == CALLS) {
        fprintf(stderr, "shim_cost: calls of another type were left to MPI as those of the freed type\n");
    }
    return nended < CALLS;
}

/* Broadcasts that are faster on Rondo by BCAST_NS but for the first `cold`, with a barrier behind each that
 * then takes longer by `ns`, and up to `noise` anyhow. @return the face decided as it should */
static int weighs_others(MPI_Comm comm, int bytes, int cold, double ns, double noise, int leaves)
{
    enum { CALLS = 20 };
    static char data[1 << 10];
    ends = MPI_ENDS | RONDO_ENDS;
    ends_on = comm;
    debt_ns = ns;
    noise_ns = noise;
    ncold = cold;
    has_debts = 1;
    for (int i = 0; i < WARM_UP; i++) {
        MPI_Bcast(data, bytes, MPI_CHAR, 0, comm);
        MPI_Barrier(comm);
    }
    has_debts = 0;
    ends = MPI_ENDS;
    nended = 0;
    for (int i = 0; i < CALLS; i++) {
        MPI_Bcast(data, bytes, MPI_CHAR, 0, comm);
    }
    ends = 0;
    if (nended != (leaves ? CALLS : 0)) {
        fprintf(stderr,
                "shim_cost: %ld of %d broadcasts were left to MPI that are faster on Rondo by %d ns, "
                "but for the first %d, with barriers that are slower then by %.0f ns and vary by %.0f ns\n",
                nended, CALLS, BCAST_NS, cold, ns, noise);
    }
    return nended == (leaves ? CALLS : 0);
}

static MPI_Comm duplicate(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < WARM_UP; i++) { /* creates Rondo's communicator */
        MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm);
    }
    return comm;
}

int main(int argc, char **argv)
{
    int rank, nranks, failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (nranks < 2 || nranks > MOST_RANKS) {
        fprintf(stderr, "shim_cost: %d ranks; 2 to %d will do\n", nranks, MOST_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int r = 0; r < nranks; r++) {
        counts[r] = COUNT;
    }
    MPI_Comm left = duplicate(), taken = duplicate();
    if (rank == 0) {
        printf("# the face's time in a call, in ns, of the slowest rank\n");
        printf("# collective           left to MPI   on Rondo\n");
    }
    for (int row = 0; row < NROWS; row++) {
        double mine[2] = { measure(row, MPI_ENDS, left), 0 }, least[2], most[2];
        int both = row + 1 < NROWS;
        if (both) {
            mine[1] = measure(row, RONDO_ENDS, taken);
        }
        MPI_Allreduce(mine, least, 2, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
        MPI_Allreduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        failed |= least[0] == -1 || least[1] == -1;
        if (rank == 0) {
            char on_rondo[24] = "";
            if (both) {
                snprintf(on_rondo, sizeof on_rondo, "%.1f", most[1]);
            }
            printf("%-22s %11.1f %10s%s\n", rows[row].name, most[0], on_rondo,
                   least[0] == -1 || least[1] == -1 ? "  the face decided otherwise" : "");
        }
    }
    /* forgets_types leaves a trial unfinished on `left`, which must lapse. */
    failed |= !forgets_types(left);
    failed |= !weighs_others(left, 100, 0, 3 * BCAST_NS, 0, 1) |
              !weighs_others(left, 200, 0, BCAST_NS / 100, 0, 0) |
              !weighs_others(left, 400, 0, 3 * BCAST_NS, 40 * BCAST_NS, 0) |
              !weighs_others(left, 600, 0, BCAST_NS / 4, 0, 0) | !weighs_others(taken, 100, 8, 0, 0, 0);
    MPI_Comm_free(&left);
    MPI_Comm_free(&taken);
    MPI_Finalize();
    return failed;
}
