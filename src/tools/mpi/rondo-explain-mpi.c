/*
 * rondo-explain --measure: run every choice with the ranks of this job, print measured and predicted times,
 * and write a tuning file (src/tuner/tune_file.h).
 *
 * tools/explain/trial.h says how a size is timed. Before a batch the same call runs once untimed, which
 * builds its plan, and the ranks pass a barrier. A time is that of the slowest rank. Between two sizes where
 * different choices are the fastest, the size in the middle is measured too. At the end it says how good the
 * predictions and the choices were; with RONDO_TUNE_FILE these are those of an earlier run. Buffers come from
 * rondo_mem_alloc: calls on other memory use the best candidate that can run there.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "tools/draw/text.h"
#include "call/choose.h"
#include "tools/explain/explain.h"
#include "tools/explain/trial.h"
#include "mpi/rondo_mpi.h"
#include "tools/explain/explain_options.h"
#include "tuner/tune_file.h"

static const char program[] = "rondo-explain";

enum { LEAST_BATCHES = 2 };
static const double SECONDS_PER_TURN = 0.2;
static const double GOOD_FACTOR = 1.5, GOOD_LOSS = 1.1;

struct job {
    rondo_comm *comm;
    struct rondo_ctx *ctx;
    int rank, json;
    float *send, *recv;
    struct rondo_trial *trial; /* by collective and size */
    int ntrials, trial_capacity;
    struct rondo_tune_section section;
    int capacity; /* of section.measured.point */
    /* Sizes: all, those whose choice took the predicted time to GOOD_FACTOR, and those whose choice took at
     * most GOOD_LOSS times as long as the fastest. Times of all candidates: all, as predicted. */
    int nsizes, npredicted, nchosen, ntimes, ntimes_predicted;
};

static void die(rondo_status status, const char *what)
{
    fprintf(stderr, "%s: %s: %s: %s\n", program, what, rondo_status_string(status), rondo_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, TOOL_FAILED);
    exit(TOOL_FAILED);
}

static void must(rondo_status status, const char *what)
{
    if (status != RONDO_SUCCESS) die(status, what);
}

/* ---- one call ---- */

static rondo_status call(const struct job *job, const struct rondo_trial *t)
{
    rondo_comm *comm = job->comm;
    switch (t->coll) {
    case RONDO_COLL_ALL_REDUCE:
        return rondo_all_reduce(job->send, job->recv, t->count, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case RONDO_COLL_REDUCE:
        return rondo_reduce(job->send, job->recv, t->count, RONDO_FLOAT32, RONDO_SUM, 0, comm, NULL);
    case RONDO_COLL_BROADCAST:
        return rondo_broadcast(job->send, job->recv, t->count, RONDO_FLOAT32, 0, comm, NULL);
    case RONDO_COLL_ALL_GATHER:
        return rondo_all_gather(job->send, job->recv, t->count, RONDO_FLOAT32, comm, NULL);
    default:
        return rondo_reduce_scatter(job->send, job->recv, t->count, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    }
}

/* Other collectives are made of messages, or use the schedule of one of these. */
static int has_choice(enum rondo_coll coll)
{
    return rondo_coll_scheduled_as(coll) == coll && coll != RONDO_COLL_SEND && coll != RONDO_COLL_RECV;
}

/* The number of elements for a larger buffer of about `bytes` bytes: at least one per rank. */
static size_t count_of(const struct job *job, enum rondo_coll coll, size_t bytes, size_t *real)
{
    size_t blocks = coll == RONDO_COLL_ALL_GATHER || coll == RONDO_COLL_REDUCE_SCATTER
                        ? (size_t)job->ctx->job.nranks
                        : 1;
    size_t count = bytes / sizeof(float) / blocks;
    count = count > 0 ? count : 1;
    *real = count * blocks * sizeof(float);
    return count;
}

/* @return us a call. */
static double batch(const struct job *job, const struct rondo_trial *t, const struct rondo_candidate *c)
{
    rondo_plan_force(job->ctx, &c->row.choice);
    must(call(job, t), "a measured call");
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t begin = rondo_now_ns();
    for (int i = 0; i < c->calls; i++) must(call(job, t), "a measured call");
    return (double)(rondo_now_ns() - begin) * 1e-3 / c->calls;
}

/* ---- one size ---- */

/* Run one batch of each candidate. @return us since the turn began. */
static double batches_run(const struct job *job, struct rondo_trial *t, double *us, int number, int64_t began)
{
    for (int i = 0; i < t->n; i++) {
        us[i] = rondo_trial_runs(t, i, number) ? batch(job, t, &t->candidate[i]) : 0;
    }
    us[t->n] = (double)(rondo_now_ns() - began) * 1e-3;
    MPI_Allreduce(MPI_IN_PLACE, us, t->n + 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    rondo_trial_add(t, number, us);
    return us[t->n];
}

static void turn(const struct job *job, struct rondo_trial *t)
{
    double *us, spent = 0;
    int64_t began = rondo_now_ns();
    must(RONDO_NEW_ARRAY(us, t->n + 1, "times"), "memory");
    while (t->candidate[0].ntimes < RONDO_TRIAL_FIRST) {
        spent = batches_run(job, t, us, 0, began);
        rondo_trial_sift(t);
    }
    for (int i = 0; i < RONDO_TRIAL_BATCHES && (i < LEAST_BATCHES || spent < SECONDS_PER_TURN * 1e6); i++)
        spent = batches_run(job, t, us, i, began);
    rondo_trial_sift(t);
    rondo_plan_force(job->ctx, NULL);
    rondo_free(us);
}

static void trial_keep(struct job *job, const struct rondo_trial *t)
{
    struct rondo_measured *m = &job->section.measured;
    for (int i = 0; i < t->n; i++) {
        const struct rondo_choice *c = &t->candidate[i].row.choice;
        must(RONDO_ARRAY_GROW(m->point, m->npoints, job->capacity, "times"), "memory");
        m->point[m->npoints++] = (struct rondo_measured_point){ .coll = (uint8_t)t->coll,
                                                                .algo = c->algo,
                                                                .proto = c->proto,
                                                                .nchannels = c->nchannels,
                                                                .bytes = t->bytes,
                                                                .us = c->us };
    }
}

static void trial_begin(const struct job *job, struct rondo_trial *t)
{
    struct rondo_explain_question q = { .layout = &job->ctx->wiring.layout,
                                        .allowed = &job->ctx->running.allowed,
                                        .coll = t->coll,
                                        .mailbox = job->ctx->wiring.mailbox
                                                       ? job->ctx->wiring.mailbox->capacity
                                                       : 0,
                                        .every = job->ctx->wiring.layout.model.gpu.nchannels == 0 };
    struct rondo_explain_row *rows;
    int n;
    must(rondo_explain_rows(&q, t->bytes, &rows, &n), "listing the choices");
    must(rondo_trial_make(t, rows, n), "memory");
    rondo_free(rows);
}

/* Insert a size, unless it is there. @return 1: inserted at `at`. */
static int trial_insert(struct job *job, int at, enum rondo_coll coll, size_t bytes)
{
    struct rondo_trial t = { .coll = coll }, *before = at > 0 ? &job->trial[at - 1] : NULL,
                       *after = at < job->ntrials ? &job->trial[at] : NULL;
    t.count = count_of(job, coll, bytes, &t.bytes);
    if ((before && before->coll == coll && before->bytes >= t.bytes) ||
        (after && after->coll == coll && after->bytes <= t.bytes))
        return 0;
    must(RONDO_ARRAY_GROW(job->trial, job->ntrials, job->trial_capacity, "sizes"), "memory");
    memmove(job->trial + at + 1, job->trial + at, (size_t)(job->ntrials++ - at) * sizeof t);
    trial_begin(job, &t);
    job->trial[at] = t;
    return 1;
}

/* ---- all sizes ---- */

/* Measure also between sizes of a collective. @return the end of its trials. */
static int between(struct job *job, int from, int to)
{
    for (int i = from + 1; i < to;) {
        size_t bytes = rondo_trial_between(&job->trial[i - 1], &job->trial[i]);
        if (bytes > 0 && trial_insert(job, i, job->trial[i].coll, bytes)) {
            turn(job, &job->trial[i]);
            to++;
        } else {
            i++;
        }
    }
    return to;
}

static void progress(const struct job *job, int round, int from, int64_t began)
{
    double done = round + (double)from / job->ntrials, s = (double)(rondo_now_ns() - began) * 1e-9;
    char left[32] = "";
    if (round > 0) snprintf(left, sizeof left, ", about %.0f s left", s / done * (RONDO_TRIAL_ROUNDS - done));
    if (job->rank == 0)
        fprintf(stderr, "%s: round %d of %d, %s%s\n", program, round + 1, RONDO_TRIAL_ROUNDS,
                rondo_coll_name(job->trial[from].coll), left);
}

static int coll_end(const struct job *job, int from)
{
    int to = from;
    while (to < job->ntrials && job->trial[to].coll == job->trial[from].coll) to++;
    return to;
}

static void rounds_run(struct job *job)
{
    int64_t began = rondo_now_ns();
    for (int round = 0; round < RONDO_TRIAL_ROUNDS; round++) {
        for (int from = 0, to; from < job->ntrials; from = to) {
            to = coll_end(job, from);
            progress(job, round, from, began);
            for (int i = from; i < to; i++) turn(job, &job->trial[i]);
            to = round == 0 ? between(job, from, to) : to;
        }
    }
}

/* ---- text ---- */

static void size_put(const struct rondo_trial *t)
{
    char size[24];
    rondo_text_bytes((int64_t)t->bytes, size);
    for (int i = 0; i < t->n; i++) {
        const struct rondo_explain_row *row = &t->candidate[i].row;
        printf("%10s %c%c%-12s %-8s %8d %12.2f %12.2f %8.2f  %s\n", i == 0 ? size : "",
               row->chosen ? '>' : ' ', i == 0 ? '*' : ' ',
               rondo_algo_name((enum rondo_algo)row->choice.algo),
               rondo_proto_name((enum rondo_proto)row->choice.proto), row->choice.nchannels, row->model_us,
               row->choice.us, row->model_us > 0 ? row->choice.us / row->model_us : 0, row->limit);
    }
}

static void json_put(const struct rondo_trial *t, int first)
{
    struct rondo_explain_row *rows;
    must(RONDO_NEW_ARRAY(rows, t->n, "rows"), "memory");
    for (int i = 0; i < t->n; i++) rows[i] = t->candidate[i].row;
    rondo_explain_json_size(stdout, t->bytes, rows, t->n, first);
    rondo_free(rows);
}

static int good(double measured, double predicted)
{
    return measured <= GOOD_FACTOR * predicted && predicted <= GOOD_FACTOR * measured;
}

/* Count how good prediction and choice were at this size. @return how much slower the tuner's choice is than
 * the fastest: what a job without the tuning file loses. */
static double judge(struct job *job, const struct rondo_trial *t)
{
    double loss = 0;
    for (int i = 0; i < t->n; i++) {
        const struct rondo_candidate *c = &t->candidate[i];
        if (c->row.chosen) {
            loss = c->row.choice.us / t->candidate[0].row.choice.us;
            job->npredicted += good(c->row.choice.us, c->predicted_us);
        }
        job->ntimes++;
        job->ntimes_predicted += good(c->row.choice.us, c->predicted_us);
    }
    job->nsizes++;
    job->nchosen += loss > 0 && loss <= GOOD_LOSS;
    return loss;
}

static void coll_put(struct job *job, int from, int to)
{
    enum rondo_coll coll = job->trial[from].coll;
    double worst = 1;
    size_t worst_bytes = 0;
    if (job->rank == 0 && job->json) rondo_explain_json_head(stdout, coll, &job->ctx->wiring.layout);
    if (job->rank == 0 && !job->json) {
        printf("\n%s\n%10s   algorithm    protocol channels     model us  measured us    ratio  predicted "
               "limit\n",
               rondo_coll_name(coll), "size");
    }
    for (int i = from; i < to; i++) {
        struct rondo_trial *t = &job->trial[i];
        rondo_trial_end(t);
        trial_keep(job, t);
        if (job->rank == 0 && job->json) json_put(t, i == from);
        if (job->rank == 0 && !job->json) size_put(t);
        double loss = judge(job, t);
        if (loss > worst) {
            worst = loss;
            worst_bytes = t->bytes;
        }
        rondo_trial_free(t);
    }
    if (job->rank == 0 && job->json) rondo_explain_json_end(stdout);
    if (job->rank == 0 && !job->json) {
        char size[24];
        if (worst > 1) {
            printf("%s: the choice (>) takes up to %.2f times as long as the fastest (*), at %s\n",
                   rondo_coll_name(coll), worst, rondo_text_bytes((int64_t)worst_bytes, size));
        } else {
            printf("%s: the choice (>) is the fastest (*) at every size\n", rondo_coll_name(coll));
        }
    }
}

/* ---- the job ---- */

/* Before the minute of measuring. What the file holds stays until there are new times. */
static FILE *file_open(const char *file)
{
    FILE *out = fopen(file, "a");
    if (!out) {
        fprintf(stderr, "%s: cannot write %s: %m\n", program, file);
        MPI_Abort(MPI_COMM_WORLD, TOOL_FAILED);
        exit(TOOL_FAILED);
    }
    return out;
}

static void file_write(struct job *job, FILE *out, const char *file)
{
    char now[32] = "", shape[160];
    time_t t = time(NULL);
    struct tm tm;
    int cut = ftruncate(fileno(out), 0) == 0 || errno == EINVAL; /* EINVAL: a device or a pipe */
    if (gmtime_r(&t, &tm)) strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", &tm);
    fprintf(out, "rondo-tune %d\n# rondo-explain --measure on %s, %s\n", RONDO_TUNE_VERSION, rondo_log_host(),
            now);
    rondo_status status = cut ? rondo_tune_write(out, &job->section, 0)
                              : rondo_fail(RONDO_SYSTEM_ERROR, "%s: %m", file);
    if (fclose(out) != 0 && status == RONDO_SUCCESS) status = rondo_fail(RONDO_SYSTEM_ERROR, "%s: %m", file);
    must(status, file);
    rondo_tune_shape_text(&job->section.shape, shape, sizeof shape);
    if (!job->json) {
        printf("\nOf %d sizes, the choice took the predicted time to a factor %.1f at %d (%.0f %%), and at "
               "most %.0f %% "
               "longer than the fastest at %d (%.0f %%).\n",
               job->nsizes, GOOD_FACTOR, job->npredicted, 100.0 * job->npredicted / job->nsizes,
               100 * (GOOD_LOSS - 1), job->nchosen, 100.0 * job->nchosen / job->nsizes);
        printf("Of the %d times of all choices, %d (%.0f %%) were as predicted to that factor.\n",
               job->ntimes, job->ntimes_predicted, 100.0 * job->ntimes_predicted / job->ntimes);
        printf("Wrote %d times to %s. Set RONDO_TUNE_FILE to use them in jobs of exactly %s.\n",
               job->section.measured.npoints, file, shape);
    }
}

static rondo_status asked_for(const struct tool_given *given, enum rondo_coll *only, int64_t *first,
                              int64_t *last)
{
    *only = RONDO_NUM_COLLS;
    if (given->nwords > 0) {
        RONDO_TRY(rondo_explain_coll(given->word[0], only));
        if (!has_choice(*only)) {
            return rondo_fail(RONDO_INVALID_ARGUMENT, "%s has nothing to choose: it is %s", given->word[0],
                              rondo_coll_scheduled_as(*only) == RONDO_COLL_SEND || *only == RONDO_COLL_RECV
                                  ? "made of messages"
                                  : rondo_coll_name(rondo_coll_scheduled_as(*only)));
        }
    }
    return rondo_explain_sizes(given->nwords > 1 ? given->word[1] : "8:16M", first, last);
}

/* The same without the log's copies of an error, one per rank. */
static rondo_status asked_for_quietly(const struct tool_given *given, enum rondo_coll *only, int64_t *first,
                                      int64_t *last)
{
    RONDO_TRY(rondo_param_init());
    uint32_t mask = rondo_log_mask;
    rondo_log_mask = RONDO_LOG_NONE;
    rondo_status status = asked_for(given, only, first, last);
    rondo_log_mask = mask;
    return status;
}

static int measure(const struct tool_given *given, int factor)
{
    struct job job = { .json = given->given[EXPLAIN_JSON] };
    enum rondo_coll only;
    int64_t first, last;
    size_t room;
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    if (asked_for_quietly(given, &only, &first, &last) != RONDO_SUCCESS) {
        if (job.rank == 0) fprintf(stderr, "%s: %s\n", program, rondo_error_text());
        return TOOL_USAGE;
    }
    must(rondo_comm_create(MPI_COMM_WORLD, NULL, &job.comm), "creating the communicator");
    job.ctx = job.comm->ctx;
    job.section.shape = rondo_tune_shape_of(&job.ctx->wiring.layout);
    if (job.ctx->job.nranks == 1) {
        fprintf(stderr, "%s: one rank has nothing to choose; start several ranks with mpirun or srun\n",
                program);
        return TOOL_USAGE;
    }
    room = (size_t)last + sizeof(float) * (size_t)job.ctx->job.nranks;
    must(rondo_mem_alloc((void **)&job.send, room), "memory");
    must(rondo_mem_alloc((void **)&job.recv, room), "memory");
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        if (!has_choice((enum rondo_coll)c) || (only != RONDO_NUM_COLLS && only != (enum rondo_coll)c))
            continue;
        for (int64_t bytes = first; bytes <= last; bytes *= factor)
            trial_insert(&job, job.ntrials, (enum rondo_coll)c, (size_t)bytes);
    }
    const char *file = given->given[EXPLAIN_OUTPUT] ? given->value[EXPLAIN_OUTPUT][0] : "rondo.tune";
    FILE *out = job.rank == 0 ? file_open(file) : NULL;
    rounds_run(&job);
    if (job.rank == 0 && job.json) putchar('[');
    for (int from = 0, to; from < job.ntrials; from = to) {
        to = coll_end(&job, from);
        if (job.rank == 0 && job.json && from > 0) putchar(',');
        coll_put(&job, from, to);
    }
    if (job.rank == 0 && job.json) puts("]");
    if (job.rank == 0) file_write(&job, out, file);
    must(rondo_mem_free(job.send), "memory");
    must(rondo_mem_free(job.recv), "memory");
    must(rondo_comm_destroy(job.comm), "destroying the communicator");
    rondo_free(job.section.measured.point);
    rondo_free(job.trial);
    return 0;
}

int main(int argc, char **argv)
{
    struct tool_given given;
    int factor = 4, code = tool_options_begin(&explain_options, &given, argc, argv);
    if (code >= 0) return code;
    if (!given.given[EXPLAIN_MEASURE] || given.given[EXPLAIN_FILE] || given.given[EXPLAIN_RANKS] ||
        given.given[EXPLAIN_NODES] || given.given[EXPLAIN_CHANNELS]) {
        fprintf(
            stderr,
            "%s: --measure runs on this job and takes only --output, --factor and --json; try '%s --help'\n",
            program, program);
        return TOOL_USAGE;
    }
    if (given.given[EXPLAIN_FACTOR] &&
        (factor = tool_options_number(&explain_options, &given, EXPLAIN_FACTOR, 2, 1 << 20)) < 0)
        return TOOL_USAGE;
    MPI_Init(&argc, &argv);
    code = measure(&given, factor);
    MPI_Finalize();
    return code;
}
