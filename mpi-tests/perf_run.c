/* One row of *_perf: check the results, then time the calls. */
#include "perf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct place {
    struct test_call call;
    struct test_extent extent;
    const char *name;
    int inplace_form; /* 0: out of place */
    int inplace;      /* 1: this rank's call is in place; for some collectives only the root's is */
};

/* As in nccl-tests: busbw = algbw * times * (n - 1) / n, and a size counts the blocks of all ranks, or one
 * buffer. */
static const struct shape {
    const char *name;
    int times;  /* 0: busbw = algbw */
    int blocks; /* 1: a size counts the blocks of all ranks */
} shapes[] = { { "all_reduce", 2, 0 }, { "all_gather", 1, 1 }, { "reduce_scatter", 1, 1 },
               { "all_to_all", 1, 1 }, { "gather", 1, 1 },     { "scatter", 1, 1 } };

static struct shape shape_of(const struct test_coll *coll)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(shapes); i++) {
        if (strcmp(shapes[i].name, coll->name) == 0) {
            return shapes[i];
        }
    }
    return (struct shape){ .name = coll->name };
}

double perf_bus_factor(const struct test_coll *coll, int nranks)
{
    int times = shape_of(coll).times;
    return times == 0 ? 1 : (double)times * (nranks - 1) / nranks;
}

size_t perf_count(const struct test_coll *coll, size_t bytes, rondo_dtype type, int nranks)
{
    size_t size = test_types[type].size, count = bytes / size;
    return shape_of(coll).blocks ? count / (size_t)nranks & ~(16 / size - 1) : count;
}

size_t perf_row_bytes(const struct test_coll *coll, size_t count, rondo_dtype type, int nranks)
{
    return count * (shape_of(coll).blocks ? (size_t)nranks : 1) * test_types[type].size;
}

size_t perf_osu_count(size_t bytes, rondo_dtype type) { return bytes / test_types[type].size; }

/* ---- one call ---- */

static double clock_us(const struct perf *perf)
{
    struct timespec now;
    clock_gettime(perf->options.cputime ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void must(const struct perf *perf, rondo_status status, const char *what)
{
    if (status != RONDO_SUCCESS) {
        test_say("%s of %s: %s: %s", what, perf->coll->name, rondo_status_string(status),
                 rondo_last_error(perf->comm));
        MPI_Abort(MPI_COMM_WORLD, perf_exit_of(status));
    }
}

/* Where the buffers of one of the aggregated calls begin. */
static size_t begin_of(const struct perf *perf, const struct place *place, long call)
{
    return (size_t)call * perf->slot + (size_t)perf->options.unalign * test_types[place->call.type].size;
}

static char *send_of(const struct perf *perf, const struct place *place, long call)
{
    char *base = (place->inplace ? perf->recv : perf->send) + begin_of(perf, place, call);
    return place->inplace ? base + place->extent.inplace_send * test_types[place->call.type].size : base;
}

static char *recv_of(const struct perf *perf, const struct place *place, long call)
{
    char *base = perf->recv + begin_of(perf, place, call);
    return place->inplace ? base + place->extent.inplace_recv * test_types[place->call.type].size : base;
}

static void fill(const struct perf *perf, const struct place *place)
{
    for (long i = 0; i < perf->options.aggregate; i++) {
        test_call_fill(&place->call, send_of(perf, place, i));
    }
}

static void call_rondo(const struct perf *perf, const struct place *place)
{
    long calls = perf->options.aggregate;
    if (calls > 1) {
        must(perf, rondo_group_start(), "group start");
    }
    for (long i = 0; i < calls; i++) {
        must(perf,
             place->call.coll->run(&place->call, send_of(perf, place, i), recv_of(perf, place, i), perf->comm,
                                   perf->stream),
             "call");
    }
    if (calls > 1) {
        must(perf, rondo_group_end(), "group end");
    }
}

/* Wait for calls on a stream. */
static void wait_rondo(const struct perf *perf)
{
    if (perf->stream != NULL) {
        must(perf, rondo_stream_synchronize(perf->stream), "synchronize");
    }
}

static void call_mpi(const struct perf *perf, const struct place *place)
{
    for (long i = 0; i < perf->options.aggregate; i++) {
        perf_mpi_run(&place->call, send_of(perf, place, i), recv_of(perf, place, i), place->inplace);
    }
}

/* ---- timing ---- */

/* Refill the send buffers and start the ranks together, both untimed; then time the calls. */
static double time_once(const struct perf *perf, const struct place *place,
                        void (*run)(const struct perf *, const struct place *))
{
    double start;
    fill(perf, place);
    test_start();
    start = clock_us(perf);
    run(perf, place);
    return (clock_us(perf) - start) / (double)perf->options.aggregate;
}

/* Combine the ranks of each iteration as -a asks. */
static double *combine(const struct perf *perf, const double *mine)
{
    static const MPI_Op ops[] = { [PERF_AVERAGE] = MPI_SUM, [PERF_MIN] = MPI_MIN, [PERF_MAX] = MPI_MAX };
    const struct perf_options *o = &perf->options;
    double *all = perf->samples + PERF_SCRATCH * o->iters;
    if (o->average == PERF_RANK0) {
        memcpy(all, mine, (size_t)o->iters * sizeof(*all));
        MPI_Bcast(all, (int)o->iters, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else {
        MPI_Allreduce(mine, all, (int)o->iters, MPI_DOUBLE, ops[o->average], MPI_COMM_WORLD);
    }
    for (long i = 0; o->average == PERF_AVERAGE && i < o->iters; i++) {
        all[i] /= test.nranks;
    }
    return all;
}

static double mean_of(const double *values, long n)
{
    double sum = 0;
    for (long i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum / (double)n;
}

/* As OSU does: each rank's mean, then the average, the least and the most of the ranks. */
static struct perf_times summarise_osu(const struct perf *perf, const double *mine)
{
    struct perf_times times = { 0 };
    double mean = mean_of(mine, perf->options.iters);
    MPI_Allreduce(&mean, &times.time, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mean, &times.min, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&mean, &times.max, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    times.time /= test.nranks;
    return times;
}

/* Combine the ranks, then the iterations. Those that -K names count only for the time. */
static struct perf_times summarise(const struct perf *perf, const double *mine)
{
    const struct perf_options *o = &perf->options;
    struct perf_times times = { 0 };
    double *all, *kept, mean, squares = 0;
    long n = o->iters - o->per_iter_skip, at99 = (99 * n + 99) / 100 - 1, at999 = (999 * n + 999) / 1000 - 1;
    if (o->osu) {
        return summarise_osu(perf, mine);
    }
    all = combine(perf, mine);
    kept = all + o->per_iter_skip;
    times.time = mean_of(all, o->iters);
    mean = mean_of(kept, n);
    for (long i = 0; i < n; i++) {
        squares += (kept[i] - mean) * (kept[i] - mean);
    }
    times.cv = mean > 0 ? 100 * sqrt(squares / (double)n) / mean : 0;
    qsort(kept, (size_t)n, sizeof(*kept), test_compare_times);
    times.min = kept[0];
    times.max = kept[n - 1];
    times.p99 = kept[at99];
    times.p999 = kept[at999];
    if (o->blocking == PERF_EACH) {
        qsort(all, (size_t)o->iters, sizeof(*all), test_compare_times);
        times.time = (all[(o->iters - 1) / 2] + all[o->iters / 2]) / 2;
    }
    return times;
}

/* The times of a place; other: MPI's. */
static double *samples_of(const struct perf *perf, const struct place *place, int other)
{
    return perf->samples + (2 * place->inplace_form + other) * perf->options.iters;
}

/* Push everything out of the caches: write more than they hold. */
static void flush_caches(const struct perf *perf, long i)
{
    if (perf->evict != NULL && i % perf->options.flush == 0) {
        memset(perf->evict, (int)i, perf->evict_bytes);
    }
}

/* One iteration of a place. i < 0: untimed. */
static void time_place(const struct perf *perf, const struct place *place, int vs_mpi, long i)
{
    flush_caches(perf, i);
    double took = time_once(perf, place, call_rondo),
           mpi_took = vs_mpi ? time_once(perf, place, call_mpi) : 0;
    if (i >= 0) {
        samples_of(perf, place, 0)[i] = took;
        samples_of(perf, place, 1)[i] = mpi_took;
    }
}

static void summarise_place(const struct perf *perf, const struct place *place, struct perf_place *out,
                            size_t bytes)
{
    out->rondo = summarise(perf, samples_of(perf, place, 0));
    if (out->compared) {
        out->mpi = summarise(perf, samples_of(perf, place, 1));
    }
    out->algbw = out->rondo.time > 0 ? (double)bytes / out->rondo.time * 1e-3 : 0;
    out->busbw = out->algbw * perf_bus_factor(perf->coll, test.nranks);
}

static void time_each(const struct perf *perf, const struct perf_row *row, const struct place *place,
                      const struct perf_place *out)
{
    const struct perf_options *o = &perf->options;
    for (long i = -o->warmup; i < o->iters; i++) {
        time_place(perf, place, out->compared, i);
        perf_progress(row, place->name, i + 1, o->iters);
    }
}

/* Time n iterations that follow one another, as nccl-tests does. Blocking calls have times of their own,
 * whose mean is the time; calls on a stream have one time together. */
static void time_together(const struct perf *perf, const struct place *place,
                          void (*run)(const struct perf *, const struct place *), long n, double *samples)
{
    const struct perf_options *o = &perf->options;
    double start, before, now;
    MPI_Barrier(MPI_COMM_WORLD);
    start = before = clock_us(perf);
    for (long i = 0; i < n; i++) {
        run(perf, place);
        if (o->blocking == PERF_CALLS_BARRIER) {
            MPI_Barrier(MPI_COMM_WORLD);
        }
        now = o->blocking == PERF_STREAM ? 0 : clock_us(perf);
        samples[i] = (now - before) / (double)o->aggregate;
        before = now;
    }
    wait_rondo(perf);
    if (o->blocking == PERF_STREAM) {
        now = clock_us(perf);
        for (long i = 0; i < n; i++) {
            samples[i] = (now - start) / (double)(n * o->aggregate);
        }
    }
}

/* Warm up and time the loops of a place. */
static void time_loops(const struct perf *perf, const struct place *place, const struct perf_place *out)
{
    const struct perf_options *o = &perf->options;
    double *scratch = perf->samples + PERF_SCRATCH * o->iters;
    for (int mpi = 0; mpi <= out->compared; mpi++) {
        fill(perf, place);
        for (long done = 0, n; done < o->warmup; done += n) {
            n = o->warmup - done < o->iters ? o->warmup - done : o->iters;
            time_together(perf, place, mpi ? call_mpi : call_rondo, n, scratch);
        }
        time_together(perf, place, mpi ? call_mpi : call_rondo, o->iters, samples_of(perf, place, mpi));
    }
}

/* ---- beside a local copy ---- */

/* What the call out of place has to copy beside the work that it has in place. */
static void call_copy(const struct perf *perf, const struct place *place)
{
    size_t n = place->extent.send < place->extent.recv ? place->extent.send : place->extent.recv;
    for (long i = 0; i < perf->options.aggregate; i++) {
        memcpy(recv_of(perf, place, i), send_of(perf, place, i), n * test_types[place->call.type].size);
    }
}

/* Time both places and a copy in turn. Before the call out of place and before the copy, an untimed call out
 * of place has left the lines of the receive buffer in the same caches. */
static void time_beside_copy(const struct perf *perf, struct perf_row *row, const struct place place[2])
{
    const struct perf_options *o = &perf->options;
    double *copy = perf->samples + PERF_COPY_SAMPLES * o->iters, allowed;
    void (*leave)(const struct perf *, const struct place *) = row->place[0].compared ? call_mpi : call_rondo;
    for (long i = -o->warmup; i < o->iters; i++) {
        double took;
        (void)time_once(perf, &place[0], leave);
        time_place(perf, &place[0], row->place[0].compared, i);
        time_place(perf, &place[1], row->place[1].compared, i);
        (void)time_once(perf, &place[0], leave);
        took = time_once(perf, &place[0], call_copy);
        if (i >= 0) {
            copy[i] = took;
        }
        perf_progress(row, "beside a copy", i + 1, o->iters);
    }
    row->copied = 1;
    row->copy = summarise(perf, copy);
    summarise_place(perf, &place[0], &row->place[0], row->bytes);
    summarise_place(perf, &place[1], &row->place[1], row->bytes);
    allowed = row->place[1].rondo.time + PERF_MOST_COPIES * row->copy.time;
    row->excess = allowed > 0 ? row->place[0].rondo.time / allowed : 0;
}

/* ---- checking ---- */

static size_t check_once(const struct perf *perf, struct place *place, long round)
{
    size_t size = test_types[place->call.type].size, wrong = 0;
    struct test_extent e = place->extent;
    place->call.first = (size_t)(round * 131 + 7);
    for (long i = 0; i < perf->options.aggregate; i++) {
        memset(recv_of(perf, place, i), 0x5a ^ (int)round, e.recv * size);
    }
    fill(perf, place);
    if (e.recv > 0) {
        place->call.coll->expect(&place->call, perf->want);
    }
    call_rondo(perf, place);
    wait_rondo(perf);
    for (long i = 0; i < perf->options.aggregate; i++) {
        wrong += test_values_wrong(place->call.values, recv_of(perf, place, i), perf->want, e.recv, NULL);
    }
    return wrong;
}

static void check_place(const struct perf *perf, struct place *place, struct perf_place *out)
{
    unsigned long mine = 0, total = 0;
    for (long round = 0; round < perf->options.check; round++) {
        mine += check_once(perf, place, round);
    }
    MPI_Allreduce(&mine, &total, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    out->checked = perf->options.check > 0;
    out->wrong = total;
    place->call.first = 0;
}

static struct place place_of(const struct perf *perf, const struct perf_row *row, int inplace)
{
    struct place place = { .name = inplace ? "in-place" : "out-of-place", .inplace_form = inplace };
    place.call = (struct test_call){ .coll = perf->coll,
                                     .type = row->type,
                                     .op = row->op < 0 ? TEST_OP_NONE : row->op,
                                     .handle = row->op == TEST_OP_PREMUL ? perf->premul : (rondo_op)row->op,
                                     .root = row->root,
                                     .count = row->count,
                                     .rank = test.rank,
                                     .nranks = test.nranks };
    if (!perf->coll->rooted || row->root < 0) {
        place.call.root = test.nranks > 1; /* sendrecv: to the next rank */
    }
    place.call.values = test_values_get(row->type, place.call.op, test.nranks, 1);
    place.extent = perf->coll->extent(&place.call);
    place.inplace = inplace && test_call_inplace(&place.call);
    return place;
}

void perf_measure(struct perf *perf, struct perf_row *row)
{
    int last = perf->coll->inplace != TEST_NEVER_INPLACE && !perf->options.osu,
        beside = perf->options.copy && last;
    struct place place[2];
    for (int inplace = 0; inplace <= last; inplace++) {
        struct perf_place *out = &row->place[inplace];
        place[inplace] = place_of(perf, row, inplace);
        *out = (struct perf_place){ .run = 1 };
        out->compared = perf->options.vs_mpi && perf_mpi_has(&place[inplace].call);
        check_place(perf, &place[inplace], out);
        if (!beside && perf->options.blocking == PERF_EACH) {
            time_each(perf, row, &place[inplace], out);
        } else if (!beside) {
            time_loops(perf, &place[inplace], out);
        }
        if (!beside) {
            summarise_place(perf, &place[inplace], out, row->bytes);
        }
    }
    if (beside) {
        time_beside_copy(perf, row, place);
    }
    for (int inplace = 0; inplace <= last; inplace++) {
        perf->wrong += row->place[inplace].wrong;
        perf->busbw_sum += row->place[inplace].busbw;
        perf->busbw_count++;
    }
}
