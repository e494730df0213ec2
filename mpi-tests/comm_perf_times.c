/* The times of the calls of a communicator's life, beside MPI's. */
#include "comm_perf.h"

#include <stdlib.h>

/* ---- ways to make a communicator ---- */

static int half(void) { return 2 * test.rank / test.nranks; }

static rondo_status create(const struct comm_perf *cp, MPI_Comm mpi, rondo_comm **comm)
{
    return rondo_comm_create(mpi, &cp->config, comm);
}
static rondo_status create_polled(const struct comm_perf *cp, MPI_Comm mpi, rondo_comm **comm)
{
    rondo_config config = cp->config;
    rondo_status status, created = RONDO_IN_PROGRESS;
    config.blocking = 0;
    status = rondo_comm_create(mpi, &config, comm);
    while (status == RONDO_IN_PROGRESS || (status == RONDO_SUCCESS && created == RONDO_IN_PROGRESS)) {
        status = rondo_comm_async_error(*comm, &created);
    }
    return status == RONDO_SUCCESS ? created : status;
}
static rondo_status split_halves(const struct comm_perf *cp, MPI_Comm mpi, rondo_comm **comm)
{
    (void)mpi;
    return rondo_comm_split(cp->parent, half(), test.rank, &cp->config, comm);
}
static rondo_status split_all(const struct comm_perf *cp, MPI_Comm mpi, rondo_comm **comm)
{
    (void)mpi;
    return rondo_comm_split(cp->parent, 0, test.rank, &cp->config, comm);
}
static rondo_status shrink(const struct comm_perf *cp, MPI_Comm mpi, rondo_comm **comm)
{
    (void)mpi;
    return rondo_comm_shrink(cp->parent, NULL, 0, RONDO_SHRINK_DEFAULT, &cp->config, comm);
}

static void mpi_dup(MPI_Comm *comm) { MPI_Comm_dup(MPI_COMM_WORLD, comm); }
static void mpi_split_halves(MPI_Comm *comm) { MPI_Comm_split(MPI_COMM_WORLD, half(), test.rank, comm); }
static void mpi_split_all(MPI_Comm *comm) { MPI_Comm_split(MPI_COMM_WORLD, 0, test.rank, comm); }

struct way {
    const char *name, *call, *mpi_call;
    rondo_status (*rondo)(const struct comm_perf *cp, MPI_Comm mpi, rondo_comm **comm);
    void (*mpi)(MPI_Comm *comm); /* makes a communicator of the same ranks */
};

/* Creations are first: the others need a parent, which would take the cost of the first creation. */
enum { NCREATIONS = 2 };
static const struct way ways[] = {
    { "create", "rondo_comm_create", "MPI_Comm_dup", create, mpi_dup },
    { "create, polled", "rondo_comm_create", "MPI_Comm_dup", create_polled, mpi_dup },
    { "split in halves", "rondo_comm_split", "MPI_Comm_split", split_halves, mpi_split_halves },
    { "split, all", "rondo_comm_split", "MPI_Comm_split", split_all, mpi_split_all },
    { "shrink", "rondo_comm_shrink", "MPI_Comm_dup", shrink, mpi_dup },
};

/* ---- one life ---- */

enum step { MAKE, CALL, DESTROY, STEPS };

/* Microseconds of this rank: iters + 1 numbers for each step, the first call's first. */
struct samples {
    double *rondo[STEPS], *mpi[STEPS];
    size_t wrong;
};

/* Start the ranks together, and time what follows until lap(). */
static double begin(void)
{
    test_start();
    return test_now();
}
static double lap(double start) { return 1e6 * (test_now() - start); }

static void live_once(const struct comm_perf *cp, const struct way *way, size_t bytes, struct samples *s,
                      long i)
{
    struct test_call call;
    MPI_Comm mpi;
    rondo_comm *comm = NULL;
    rondo_status status;
    double start = begin();
    way->mpi(&mpi);
    s->mpi[MAKE][i] = lap(start);
    start = begin();
    status = way->rondo(cp, mpi, &comm);
    s->rondo[MAKE][i] = lap(start);
    perf_must(status, cp->parent, way->call);
    comm_perf_prepare(cp, comm, bytes, &call);
    start = begin();
    MPI_Allreduce(cp->send, cp->recv, (int)call.count, MPI_FLOAT, MPI_SUM, mpi);
    s->mpi[CALL][i] = lap(start);
    comm_perf_prepare(cp, comm, bytes, &call); /* the caches hold the same for both */
    start = begin();
    status = call.coll->run(&call, cp->send, cp->recv, comm, NULL);
    s->rondo[CALL][i] = lap(start);
    perf_must(status, comm, "all_reduce");
    s->wrong += comm_perf_wrong(cp, &call);
    start = begin();
    status = rondo_comm_destroy(comm);
    s->rondo[DESTROY][i] = lap(start);
    perf_must(status, NULL, "rondo_comm_destroy");
    start = begin();
    MPI_Comm_free(&mpi);
    s->mpi[DESTROY][i] = lap(start);
}

/* ---- the rows ---- */

struct cost {
    double first, median, mean;
};

/* @return each of a rank's numbers, of the slowest rank. Sorts the samples. */
static struct cost summarise(double *us, long iters)
{
    double mine[3] = { us[0], 0, 0 }, most[3];
    qsort(us + 1, (size_t)iters, sizeof(*us), test_compare_times);
    mine[1] = (us[1 + (iters - 1) / 2] + us[1 + iters / 2]) / 2;
    for (long i = 1; i <= iters; i++) {
        mine[2] += us[i] / (double)iters;
    }
    MPI_Allreduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (struct cost){ most[0], most[1], most[2] };
}

static void print_header(long iters)
{
    printf("# Time: slowest rank; the first call, then the median and mean of %ld more\n#\n", iters);
    printf("#%16s %-19s %9s %9s %9s %6s  %-15s %9s %9s %9s %8s\n", "made by", "call", "first", "time", "mean",
           "#wrong", "MPI's call", "first", "time", "mean", "ratio");
    printf("#%16s %-19s %9s %9s %9s %6s  %-15s %9s %9s %9s\n", "", "", "(us)", "(us)", "(us)", "", "", "(us)",
           "(us)", "(us)");
}

static void print_cost(const struct cost *cost)
{
    perf_print_number(9, cost->first);
    perf_print_number(9, cost->median);
    perf_print_number(9, cost->mean);
}

static void write_cost(const char *prefix, const struct cost *cost)
{
    perf_json_text(",\"%sfirst_us\":%.9g,\"%stime_us\":%.9g,\"%smean_us\":%.9g", prefix, cost->first, prefix,
                   cost->median, prefix, cost->mean);
}

/* wrong: NULL for a call that has no results. */
static void row(struct comm_perf *cp, struct samples *s, enum step step, const char *made_by,
                const char *call, const char *mpi_call, const unsigned long *wrong)
{
    static int written;
    struct cost rondo = summarise(s->rondo[step], cp->iters), mpi = summarise(s->mpi[step], cp->iters);
    double ratio = rondo.median > 0 ? mpi.median / rondo.median : 0;
    char text[24] = "n/a";
    if (test.rank != 0) {
        return;
    }
    if (wrong != NULL) {
        snprintf(text, sizeof(text), "%lu", *wrong);
    }
    printf("%17s %-19s", made_by, call);
    print_cost(&rondo);
    printf(" %6s  %-15s", text, mpi_call);
    print_cost(&mpi);
    printf(" %8.3g\n", ratio);
    fflush(stdout);
    perf_json_text("%s\n{\"made_by\":\"%s\",\"call\":\"%s\"", written++ > 0 ? "," : "", made_by, call);
    write_cost("", &rondo);
    perf_json_number("wrong", wrong != NULL ? (double)*wrong : 0, wrong != NULL);
    perf_json_text(",\"mpi_call\":\"%s\"", mpi_call);
    write_cost("mpi_", &mpi);
    perf_json_number("ratio", ratio, 1);
    perf_json_text("}");
}

/* Live iters + 1 lives, each with one all_reduce. */
static unsigned long live(struct comm_perf *cp, const struct way *way, size_t bytes, struct samples *s)
{
    unsigned long wrong, total;
    s->wrong = 0;
    for (long i = 0; i <= cp->iters; i++) {
        live_once(cp, way, bytes, s, i);
    }
    wrong = s->wrong;
    MPI_Allreduce(&wrong, &total, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    cp->wrong += total;
    return total;
}

static void time_way(struct comm_perf *cp, const struct way *way, struct samples *s)
{
    unsigned long wrong = live(cp, way, COMM_PERF_SMALL, s);
    row(cp, s, MAKE, way->name, way->call, way->mpi_call, NULL);
    row(cp, s, DESTROY, way->name, "rondo_comm_destroy", "MPI_Comm_free", NULL);
    row(cp, s, CALL, way->name, "all_reduce of 8 B", "MPI_Allreduce", &wrong);
    wrong = live(cp, way, COMM_PERF_LARGE, s);
    row(cp, s, CALL, way->name, "all_reduce of 1 MiB", "MPI_Allreduce", &wrong);
}

void comm_perf_times(struct comm_perf *cp)
{
    size_t bytes = (size_t)(cp->iters + 1) * sizeof(double);
    struct samples s = { .wrong = 0 };
    perf_json_text("\"rows\":[");
    if (cp->iters > 0) {
        for (int step = 0; step < STEPS; step++) {
            s.rondo[step] = (double *)(void *)perf_buffer(bytes);
            s.mpi[step] = (double *)(void *)perf_buffer(bytes);
        }
        if (test.rank == 0) {
            print_header(cp->iters);
        }
        for (size_t w = 0; w < NCREATIONS; w++) {
            time_way(cp, &ways[w], &s);
        }
        perf_must(rondo_comm_create(MPI_COMM_WORLD, &cp->config, &cp->parent), NULL, "creating the parent");
        for (size_t w = NCREATIONS; w < TEST_ARRAY_LEN(ways); w++) {
            time_way(cp, &ways[w], &s);
        }
        perf_must(rondo_comm_destroy(cp->parent), NULL, "destroying the parent");
        for (int step = 0; step < STEPS; step++) {
            free(s.rondo[step]);
            free(s.mpi[step]);
        }
    }
    perf_json_text("\n],\n");
}
