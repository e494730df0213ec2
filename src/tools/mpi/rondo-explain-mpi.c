/*
 * rondo-explain --measure: run every choice with the ranks of this job, print measured and predicted times,
 * and write a tuning file (src/tuner/tune_file.h).
 *
 * For each size the candidates alternate, one iteration each, so that noise hits all of them alike. Before a
 * timed call, the same call runs once untimed, which builds its plan, and the ranks pass a barrier. A time is
 * that of the slowest rank; the median over the iterations counts. A candidate that is much slower than the
 * best is dropped early. Buffers come from rondo_mem_alloc: calls on other memory use the best candidate that
 * can run there.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "tools/draw/text.h"
#include "call/choose.h"
#include "tools/explain/explain.h"
#include "mpi/rondo_mpi.h"
#include "tools/explain/explain_options.h"
#include "tuner/tune_file.h"

static const char program[] = "rondo-explain";

enum { LEAST_RUNS = 7, MOST_RUNS = 101, TRIAL_RUNS = 3, FAR_BEHIND = 6 };
static const double SECONDS_PER_SIZE = 1.0;

struct job {
    rondo_comm *comm;
    struct rondo_ctx *ctx;
    int rank, json;
    float *send, *recv;
    struct rondo_tune_section section;
    int capacity; /* of section.measured.point */
};

/* The candidates of one size. */
struct trial {
    enum rondo_coll coll;
    size_t count, bytes;
    struct rondo_explain_row *row;
    int n;
    double *us;  /* [iteration][candidate] */
    char *alive; /* per candidate: 0: dropped, because it is too slow */
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

static rondo_status call(const struct job *job, const struct trial *t)
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

static double timed_call(const struct job *job, const struct trial *t, int candidate)
{
    rondo_plan_force(job->ctx, &t->row[candidate].choice);
    must(call(job, t), "a measured call");
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t begin = rondo_now_ns();
    must(call(job, t), "a measured call");
    return (double)(rondo_now_ns() - begin) * 1e-3;
}

/* ---- one size ---- */

static void run_all(const struct job *job, const struct trial *t, int iteration)
{
    double *us = t->us + (size_t)iteration * (size_t)t->n;
    for (int c = 0; c < t->n; c++) {
        us[c] = t->alive[c] ? timed_call(job, t, c) : 0;
    }
    MPI_Allreduce(MPI_IN_PLACE, us, t->n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(const struct trial *t, int candidate, int iterations)
{
    double us[MOST_RUNS];
    for (int i = 0; i < iterations; i++) us[i] = t->us[i * t->n + candidate];
    qsort(us, (size_t)iterations, sizeof us[0], by_value);
    return us[iterations / 2];
}

/* After the trial runs: drop the slow candidates, and compute the number of iterations. All ranks compute the
 * same values, because they share the times. */
static int iterations_for(const struct trial *t)
{
    double best = -1, sum = 0;
    for (int c = 0; c < t->n; c++) {
        double us = median(t, c, TRIAL_RUNS);
        best = best < 0 || us < best ? us : best;
    }
    for (int c = 0; c < t->n; c++) {
        t->alive[c] = median(t, c, TRIAL_RUNS) <= FAR_BEHIND * best;
        sum += t->alive[c] ? 2 * median(t, c, TRIAL_RUNS) : 0;
    }
    double fit = SECONDS_PER_SIZE * 1e6 / sum;
    return fit < LEAST_RUNS ? LEAST_RUNS : fit > MOST_RUNS ? MOST_RUNS : (int)fit;
}

/* Replace the rows by the measured ones. */
static void trial_run(const struct job *job, struct trial *t)
{
    int iterations, n = 0;
    must(rondo_calloc(&t->us, (size_t)t->n * MOST_RUNS, sizeof(double), "times"), "memory");
    must(rondo_calloc(&t->alive, (size_t)t->n, 1, "times"), "memory");
    memset(t->alive, 1, (size_t)t->n);
    for (int i = 0; i < TRIAL_RUNS; i++) run_all(job, t, i);
    iterations = iterations_for(t);
    for (int i = 0; i < iterations; i++) run_all(job, t, i);
    for (int c = 0; c < t->n; c++) {
        if (!t->alive[c]) continue;
        t->row[n] = t->row[c];
        t->row[n].choice.us = median(t, c, iterations);
        t->row[n++].choice.measured = 1;
    }
    t->n = n;
    rondo_plan_force(job->ctx, NULL);
    rondo_free(t->us);
    rondo_free(t->alive);
}

static int by_time(const void *a, const void *b)
{
    const struct rondo_explain_row *x = a, *y = b;
    return by_value(&x->choice.us, &y->choice.us);
}

static void trial_keep(struct job *job, const struct trial *t)
{
    struct rondo_measured *m = &job->section.measured;
    for (int i = 0; i < t->n; i++) {
        const struct rondo_choice *c = &t->row[i].choice;
        must(RONDO_ARRAY_GROW(m->point, m->npoints, job->capacity, "times"), "memory");
        m->point[m->npoints++] = (struct rondo_measured_point){ .coll = (uint8_t)t->coll,
                                                                .algo = c->algo,
                                                                .proto = c->proto,
                                                                .nchannels = c->nchannels,
                                                                .bytes = t->bytes,
                                                                .us = c->us };
    }
}

/* Keep the rows that can run and are allowed. */
static void candidates_find(const struct job *job, struct trial *t)
{
    struct rondo_explain_question q = { .layout = &job->ctx->wiring.layout,
                                        .allowed = &job->ctx->running.allowed,
                                        .coll = t->coll,
                                        .mailbox = job->ctx->wiring.mailbox
                                                       ? job->ctx->wiring.mailbox->capacity
                                                       : 0,
                                        .every = job->ctx->wiring.layout.model.gpu.nchannels == 0 };
    int n = 0;
    must(rondo_explain_rows(&q, t->bytes, &t->row, &t->n), "listing the choices");
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].model_us >= 0 && t->row[i].allowed) t->row[n++] = t->row[i];
    }
    t->n = n;
}

/* ---- text ---- */

static void size_put(const struct trial *t)
{
    char size[24];
    rondo_text_bytes((int64_t)t->bytes, size);
    for (int i = 0; i < t->n; i++) {
        const struct rondo_explain_row *row = &t->row[i];
        printf("%10s %c%c%-12s %-8s %8d %12.2f %12.2f %8.2f  %s\n", i == 0 ? size : "",
               row->chosen ? '>' : ' ', i == 0 ? '*' : ' ',
               rondo_algo_name((enum rondo_algo)row->choice.algo),
               rondo_proto_name((enum rondo_proto)row->choice.proto), row->choice.nchannels, row->model_us,
               row->choice.us, row->model_us > 0 ? row->choice.us / row->model_us : 0, row->limit);
    }
}

/* How much slower the tuner's choice is than the fastest: what a job without the tuning file loses. 0: the
 * choice was dropped as too slow. */
static double loss_of(const struct trial *t)
{
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].chosen) return t->row[i].choice.us / t->row[0].choice.us;
    }
    return 0;
}

static void coll_measure(struct job *job, enum rondo_coll coll, size_t first, size_t last, size_t factor)
{
    size_t before = 0;
    double worst = 1, loss;
    size_t worst_bytes = 0;
    if (job->rank == 0 && job->json) rondo_explain_json_head(stdout, coll, &job->ctx->wiring.layout);
    if (job->rank == 0 && !job->json) {
        printf("\n%s\n%10s   algorithm    protocol channels     model us  measured us    ratio  predicted "
               "limit\n",
               rondo_coll_name(coll), "size");
    }
    for (size_t bytes = first; bytes <= last; bytes *= factor) {
        struct trial t = { .coll = coll };
        t.count = count_of(job, coll, bytes, &t.bytes);
        if (t.bytes == before) continue;
        candidates_find(job, &t);
        trial_run(job, &t);
        qsort(t.row, (size_t)t.n, sizeof *t.row, by_time);
        trial_keep(job, &t);
        if (job->rank == 0 && job->json) rondo_explain_json_size(stdout, t.bytes, t.row, t.n, before == 0);
        if (job->rank == 0 && !job->json) size_put(&t);
        loss = loss_of(&t);
        if (loss == 0 || loss > worst) {
            worst = loss == 0 ? FAR_BEHIND : loss;
            worst_bytes = t.bytes;
        }
        before = t.bytes;
        rondo_free(t.row);
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
        fflush(stdout);
    }
}

/* ---- the job ---- */

static void file_write(struct job *job, const char *file)
{
    char now[32] = "", shape[160];
    time_t t = time(NULL);
    struct tm tm;
    FILE *out = fopen(file, "w");
    if (!out) {
        fprintf(stderr, "%s: cannot write %s: %m\n", program, file);
        MPI_Abort(MPI_COMM_WORLD, TOOL_FAILED);
        exit(TOOL_FAILED);
    }
    if (gmtime_r(&t, &tm)) strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", &tm);
    fprintf(out, "rondo-tune %d\n# rondo-explain --measure on %s, %s\n", RONDO_TUNE_VERSION, rondo_log_host(),
            now);
    rondo_status status = rondo_tune_write(out, &job->section, 0);
    if (fclose(out) != 0 && status == RONDO_SUCCESS) status = rondo_fail(RONDO_SYSTEM_ERROR, "%s: %m", file);
    must(status, file);
    rondo_tune_shape_text(&job->section.shape, shape, sizeof shape);
    if (!job->json)
        printf("\nWrote %d times to %s. Set RONDO_TUNE_FILE to use them in jobs of exactly %s.\n",
               job->section.measured.npoints, file, shape);
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
    int told = 0;
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
    if (job.rank == 0 && job.json) putchar('[');
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        if (!has_choice((enum rondo_coll)c) || (only != RONDO_NUM_COLLS && only != (enum rondo_coll)c))
            continue;
        if (job.rank == 0 && job.json && told++) putchar(',');
        coll_measure(&job, (enum rondo_coll)c, (size_t)first, (size_t)last, (size_t)factor);
    }
    if (job.rank == 0 && job.json) puts("]");
    if (job.rank == 0)
        file_write(&job, given->given[EXPLAIN_OUTPUT] ? given->value[EXPLAIN_OUTPUT][0] : "rondo.tune");
    must(rondo_mem_free(job.send), "memory");
    must(rondo_mem_free(job.recv), "memory");
    must(rondo_comm_destroy(job.comm), "destroying the communicator");
    rondo_free(job.section.measured.point);
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
