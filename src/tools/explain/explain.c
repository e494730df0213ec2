#include "tools/explain/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/param.h"
#include "tuner/cost_gpu.h"
#include "tools/explain/explain_impl.h"
#include "tools/simulate.h"
#include "tuner/model.h"
#include "topo/machine.h"
#include "tuner/tune_file.h"

/* ---- a layout of equal nodes ---- */

static rondo_status summarize(const struct rondo_topo *topo,
                              const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, int most,
                              struct rondo_stitch_summary *summary)
{
    struct rondo_job job;
    struct rondo_stitch *stitch;
    rondo_status status;
    RONDO_TRY(rondo_job_create(&job, topo, graphs, nodes));
    job.input.max_channels = most;
    status = rondo_stitch_create(&stitch, &job.input);
    if (status == RONDO_SUCCESS) {
        *summary = *rondo_stitch_summary(stitch);
        rondo_stitch_destroy(stitch);
    }
    rondo_job_release(&job);
    return status;
}

/* Ports that have a number are of cards with verbs, or of what a plugin reaches; others are interfaces. */
static enum rondo_model_net net_of(const struct rondo_topo *topo)
{
    int ports = 0;
    for (int n = 0; n < topo->nnets; n++) {
        const struct rondo_item *item = rondo_topo_item(topo, rondo_topo_net_point(topo, n));
        ports += item != NULL && item->net.port > 0;
    }
    return ports > 0 && ports == topo->nnets ? RONDO_MODEL_RDMA : RONDO_MODEL_SOCKETS;
}

static double ranks_per_core(const struct rondo_topo *topo)
{
    struct rondo_cores cores = rondo_topo_cores(topo);
    int n = rondo_cores_count(&cores);
    return n > 0 ? (double)topo->ndevs / n : 1;
}

rondo_status rondo_explain_layout(struct rondo_layout *layout, const struct rondo_topo *topo,
                                  const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes)
{
    struct rondo_stitch_summary summary;
    int most = rondo_param_max_channels(RONDO_CONFIG_DEFAULT, topo->all_gpus);
    if (nodes < 1 || (int64_t)nodes * topo->ndevs > RONDO_STITCH_MAX_RANKS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "a job of %d nodes with %d ranks each cannot be explained, expected 1 to %d nodes",
                          nodes, topo->ndevs, RONDO_STITCH_MAX_RANKS / topo->ndevs);
    }
    RONDO_TRY(summarize(topo, graphs, nodes, most, &summary));
    *layout = (struct rondo_layout){ .nranks = summary.nranks,
                                     .nnodes = nodes,
                                     .nlocal = topo->ndevs,
                                     .max_local = topo->ndevs,
                                     .least_channels = (int32_t)rondo_params()->min_nchannels,
                                     .rank_order = rondo_tune_is_strict(),
                                     .machine = rondo_machine_hash(topo->machine),
                                     .protos = RONDO_ALL_PROTOS };
    rondo_model_host(&layout->model, ranks_per_core(topo));
    layout->model.pair_bw = topo->all_gpus ? 0 : layout->model.pair_bw; /* as for a communicator */
    rondo_model_from_graphs(&layout->model, &summary);
    rondo_model_machine(&layout->model, &summary);
    rondo_model_levels(&layout->model, &summary);
    if (nodes > 1) {
        rondo_model_net(&layout->model, &summary, net_of(topo));
    }
    layout->nchannels = rondo_is_gpu_model(layout) ? summary.nchannels : most;
    return RONDO_SUCCESS;
}

/* ---- what is asked ---- */

rondo_status rondo_explain_coll(const char *name, enum rondo_coll *coll)
{
    char names[256] = "";
    int found = rondo_coll_from_name(name);
    if (found >= 0) {
        *coll = (enum rondo_coll)found;
        return RONDO_SUCCESS;
    }
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        size_t at = strlen(names);
        snprintf(names + at, sizeof(names) - at, "%s%s", c > 0 ? ", " : "",
                 rondo_coll_name((enum rondo_coll)c));
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT, "no collective is called \"%s\"; expected one of %s", name,
                      names);
}

rondo_status rondo_explain_sizes(const char *text, int64_t *first, int64_t *last)
{
    char from[32];
    size_t n = strcspn(text, ":");
    int range = text[n] == ':';
    snprintf(from, sizeof(from), "%.*s", (int)(n < sizeof(from) ? n : sizeof(from) - 1), text);
    if (n >= sizeof(from) || rondo_parse_size(from, first) != 0 ||
        rondo_parse_size(range ? text + n + 1 : from, last) != 0 || *first < 1 || *last < *first ||
        *last > INT64_MAX / 4) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "\"%s\" is no size in bytes; expected one as 64M, or a range as 8:128M", text);
    }
    return RONDO_SUCCESS;
}

void rondo_explain_size_text(double bytes, char text[16])
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t u = 0;
    for (; bytes >= 1024 && u + 1 < RONDO_COUNTOF(unit); u++) {
        bytes /= 1024;
    }
    snprintf(text, 16, bytes == (double)(int64_t)bytes ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
}

/* ---- rows ---- */

static int by_preference(const void *a, const void *b)
{
    const struct rondo_choice *x = &((const struct rondo_explain_row *)a)->choice,
                              *y = &((const struct rondo_explain_row *)b)->choice;
    int better = rondo_choice_better(x, y), worse = rondo_choice_better(y, x);
    if (better != worse) {
        return better ? -1 : 1;
    }
    return x->algo != y->algo     ? x->algo - y->algo
           : x->proto != y->proto ? x->proto - y->proto
                                  : x->nchannels - y->nchannels;
}

/* A schedule's limit knows nothing of the mailbox. */
static const char *limit_of(const struct rondo_explain_question *q, const struct rondo_choice *c,
                            size_t bytes)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(q->coll, (enum rondo_algo)c->algo);
    if (c->algo == RONDO_ALGO_ONESHOT && c->us < 0 && !rondo_is_gpu_model(q->layout)) {
        return q->layout->nnodes > 1 ? "not available: ranks of one node only"
               : rondo_coll_has_root(q->coll)
                   ? "not available: more bytes or ranks than the mailbox has places for"
               : q->layout->nranks == 2 ? "not available: more bytes than RONDO_PAIR_SIZE"
                                        : "not available: more bytes than RONDO_MAILBOX_SIZE";
    }
    return schedule->limit(q->layout, q->coll, (enum rondo_proto)c->proto,
                           c->nchannels > 0 ? c->nchannels : 1, bytes);
}

static void row_fill(const struct rondo_explain_question *q, size_t bytes, const struct rondo_choice *chosen,
                     const struct rondo_choice *c, struct rondo_explain_row *row)
{
    row->choice = *c;
    row->model_us = rondo_choice_time(q->layout, q->coll, bytes, q->mailbox, &row->choice);
    row->limit = limit_of(q, &row->choice, bytes);
    row->allowed = q->allowed->protos[q->coll][c->algo] >> c->proto & 1;
    row->chosen = c->algo == chosen->algo && c->proto == chosen->proto && c->nchannels == chosen->nchannels;
}

/* Every number of channels that can run; one row, without a time, where none can. */
static int every_channels(const struct rondo_explain_question *q, size_t bytes,
                          const struct rondo_choice *chosen, struct rondo_choice c,
                          struct rondo_explain_row *rows)
{
    int n = 0;
    for (int k = 1; k <= q->layout->nchannels; k++) {
        c.nchannels = (uint8_t)k;
        row_fill(q, bytes, chosen, &c, &rows[n]);
        n += rows[n].model_us >= 0;
    }
    if (n == 0) {
        c.nchannels = 0;
        row_fill(q, bytes, chosen, &c, &rows[n++]);
    }
    return n;
}

rondo_status rondo_explain_rows(const struct rondo_explain_question *q, size_t bytes,
                                struct rondo_explain_row **rows, int *n)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS], chosen;
    RONDO_TRY(rondo_cost_choose(q->layout, q->allowed, q->coll, bytes, q->mailbox, &chosen));
    RONDO_TRY(RONDO_NEW_ARRAY(*rows,
                              RONDO_NUM_ALGOS * RONDO_NUM_PROTOS * (q->every ? q->layout->nchannels : 1),
                              "the tuner's table"));
    rondo_cost_table(q->layout, NULL, q->coll, bytes, q->mailbox, table);
    *n = 0;
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_schedule_find(q->coll, (enum rondo_algo)a);
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            if (schedule == NULL || (schedule->protos >> p & 1) == 0) {
                continue;
            }
            if (q->every) {
                *n += every_channels(q, bytes, &chosen, table[a][p], *rows + *n);
            } else {
                row_fill(q, bytes, &chosen, &table[a][p], *rows + (*n)++);
            }
        }
    }
    qsort(*rows, (size_t)*n, sizeof(**rows), by_preference);
    return RONDO_SUCCESS;
}

/* ---- of a job on equal machines ---- */

/* A tuning file of another shape is told of, and not used. */
static rondo_status use_tune(struct rondo_layout *layout, struct rondo_tune **tune, char *note, size_t size)
{
    struct rondo_tune_shape shape = rondo_tune_shape_of(layout);
    char text[160], why[256];
    const char *file = rondo_params()->tune_file;
    if (file[0] == '\0') {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_tune_read(tune, file));
    layout->measured = rondo_tune_find(*tune, &shape, why, sizeof(why));
    rondo_tune_shape_text(&shape, text, sizeof(text));
    if (layout->measured != NULL) {
        snprintf(note, size, "measured: %s, of %s", file, text);
    } else {
        snprintf(note, size, "RONDO_TUNE_FILE=%s is ignored: this is %s; %s", file, text, why);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_explain(FILE *out, const struct rondo_topo *topo,
                           const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                           const struct rondo_explain_request *request)
{
    struct rondo_layout layout;
    struct rondo_allowed allowed;
    struct rondo_tune *tune = NULL;
    struct explain_job job = { .out = out, .topo = topo, .graphs = graphs, .request = request };
    struct rondo_choice choice;
    struct rondo_explain_question *q = &job.question;
    rondo_status status;
    *q = (struct rondo_explain_question){ .layout = &layout, .allowed = &allowed, .every = request->every };
    RONDO_TRY(rondo_explain_coll(request->coll, &q->coll));
    RONDO_TRY(rondo_explain_sizes(request->sizes, &job.first, &job.last));
    RONDO_TRY(rondo_tune_allowed(&allowed));
    RONDO_TRY(rondo_explain_layout(&layout, topo, graphs, request->nodes));
    q->mailbox = request->nodes == 1 ? rondo_param_mailbox_size(layout.nranks) : 0;
    layout.model.gpu.direct = request->nodes == 1 ? (int32_t)rondo_params()->direct_gpu : 0;
    RONDO_TRY(use_tune(&layout, &tune, job.note, sizeof(job.note)));
    /* Before anything is printed. */
    RONDO_TRY_GOTO(rondo_cost_choose(&layout, &allowed, q->coll, (size_t)job.first, q->mailbox, &choice),
                   out);
    status = request->json ? rondo_explain_json(&job) : rondo_explain_text(&job);
    if (status == RONDO_SUCCESS && (fflush(out) != 0 || ferror(out))) {
        status = rondo_fail(RONDO_SYSTEM_ERROR, "the tuner's table could not be written: %m");
    }
out:
    rondo_tune_free(tune);
    return status;
}
