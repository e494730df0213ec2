#include "tools/explain/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/param.h"
#include "tuner/calibration.h"
#include "tuner/tuner.h"
#include "tools/draw/text.h"
#include "tools/simulate.h"
#include "tuner/model.h"
#include "tuner/plugin.h"
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

/* Only ports of verbs NICs and of plugins have a port number; network interfaces have none. */
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
                          "cannot explain a job of %d nodes with %d ranks each: expected 1 to %d nodes",
                          nodes, topo->ndevs, RONDO_STITCH_MAX_RANKS / topo->ndevs);
    }
    RONDO_TRY(summarize(topo, graphs, nodes, most, &summary));
    *layout = (struct rondo_layout){ .nranks = summary.nranks,
                                     .nnodes = nodes,
                                     .nlocal = topo->ndevs,
                                     .min_local = topo->ndevs,
                                     .max_local = topo->ndevs,
                                     .least_channels = (int32_t)rondo_params()->min_nchannels,
                                     .rank_order = rondo_tune_is_strict(),
                                     .machine = rondo_machine_hash(topo->machine),
                                     .protos = RONDO_ALL_PROTOS };
    rondo_model_host(&layout->model, ranks_per_core(topo));
    layout->model.pair_bw = topo->all_gpus ? 0 : layout->model.pair_bw; /* as in a communicator */
    rondo_model_from_graphs(&layout->model, &summary);
    rondo_model_machine(&layout->model, &summary);
    rondo_model_levels(&layout->model, &summary);
    if (nodes > 1) {
        rondo_model_net(&layout->model, &summary, net_of(topo));
    }
    layout->nchannels = rondo_is_gpu_model(layout) ? summary.nchannels : most;
    return RONDO_SUCCESS;
}

/* ---- the request ---- */

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
    return rondo_fail(RONDO_INVALID_ARGUMENT, "unknown collective \"%s\": expected one of %s", name, names);
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
                          "invalid size \"%s\": expected bytes, such as 64M, or a range, such as 8:128M",
                          text);
    }
    return RONDO_SUCCESS;
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

/* Schedules do not know the mailbox, so its limits are named here. */
static const char *limit_of(const struct rondo_explain_question *q, const struct rondo_choice *c,
                            size_t bytes)
{
    if (rondo_algo_medium(c->algo) == RONDO_MEDIUM_MAILBOX && c->us < 0 && !rondo_is_gpu_model(q->layout)) {
        return q->layout->nnodes > 1 ? "not available: ranks of one node only"
               : c->algo == RONDO_ALGO_MAIL_TWOSHOT
                   ? "not available: only for 3 to 8 ranks, and RONDO_MAILBOX_SIZE of 64 bytes a rank"
               : rondo_coll_has_root(q->coll) ? "not available: more bytes or ranks than the mailbox holds"
               : q->layout->nranks == 2       ? "not available: more bytes than RONDO_PAIR_SIZE"
                                              : "not available: more bytes than RONDO_MAILBOX_SIZE";
    }
    return rondo_cost_limit(q->layout, q->coll, (enum rondo_algo)c->algo, (enum rondo_proto)c->proto,
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

/* Add a row for every number of channels that can run; if none can, one row without a time. */
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

/* ---- as text ---- */

struct explain_job {
    FILE *out;
    const struct rondo_topo *topo;
    const struct rondo_graph *graphs;
    const struct rondo_explain_request *request;
    struct rondo_explain_question question;
    int64_t first, last;
    char note[512];        /* about RONDO_TUNE_FILE; "": none */
    char measured[2][640]; /* what was measured on this machine, cores near and far; "": nothing */
    struct rondo_tuner_plugin *plugin; /* NULL: none */
};

/* busbw / algbw, as in nccl-tests: bytes over the busiest link per byte of the buffer. */
static double bus_factor(const struct rondo_explain_question *q)
{
    double n = q->layout->nranks, others = (n - 1) / n;
    switch (q->coll) {
    case RONDO_COLL_ALL_REDUCE:
    case RONDO_COLL_BARRIER: return 2 * others;
    case RONDO_COLL_BROADCAST:
    case RONDO_COLL_REDUCE:
    case RONDO_COLL_SEND:
    case RONDO_COLL_RECV: return 1;
    default: return others;
    }
}

/* Print a row without its newline; the last column is padded to `width`. */
static void text_row(const struct explain_job *job, const struct rondo_explain_row *row, size_t bytes,
                     int width)
{
    const struct rondo_choice *c = &row->choice;
    int fill, nthreads;
    fprintf(job->out, " %-12s %-8s", rondo_algo_name((enum rondo_algo)c->algo),
            rondo_proto_name((enum rondo_proto)c->proto));
    if (c->us < 0) {
        fprintf(job->out, " %8s %7s %12s %8s %8s  %s", "-", "-", "-", "-", "-", row->limit);
        return;
    }
    fprintf(job->out, " %8d", c->nchannels);
    if (rondo_is_gpu_model(job->question.layout)) {
        rondo_gpu_blocks(job->question.layout, (enum rondo_algo)c->algo, (enum rondo_proto)c->proto, bytes,
                         &fill, &nthreads);
        fprintf(job->out, " %7d", nthreads);
    } else {
        fprintf(job->out, " %7s", "-");
    }
    double algbw = c->us > 0 ? (double)bytes / c->us * 1e-3 : 0;
    fprintf(job->out, " %12.2f %8.2f %8.2f  ", c->us, algbw, algbw * bus_factor(&job->question));
    if (c->measured) {
        char text[96];
        snprintf(text, sizeof(text), "measured; model %.2f, %s", row->model_us, row->limit);
        fprintf(job->out, "%-*s", width, text);
    } else {
        fprintf(job->out, "%-*s", width, row->limit);
    }
}

static const char columns[] = " algorithm    protocol channels threads      time us    algbw    busbw  limit";

static void graph_put(const struct explain_job *job, const char *name, const struct rondo_graph *g)
{
    fprintf(job->out, "; %s %d x %.1f", name, g->nchannels, g->bw_intra * 1e-3);
    if (job->question.layout->nnodes > 1 && job->topo->nnets > 0) {
        fprintf(job->out, "/%.1f GB/s %s/%s", g->bw_inter * 1e-3, rondo_path_type_name(g->type_intra),
                rondo_path_type_name(g->type_inter));
    } else {
        fprintf(job->out, " GB/s %s", rondo_path_type_name(g->type_intra));
    }
}

static void levels_put(FILE *out, const struct rondo_layout *l)
{
    char text[128];
    if (l->model.levels.n > 0) {
        fprintf(out, "; %s%s", l->nnodes > 1 ? "a node has " : "",
                rondo_levels_text(&l->model.levels, l->max_local, text, sizeof(text)));
    }
}

/* Print what the model assumes about the links between nodes and the groups inside one. */
static void nets_put(const struct explain_job *job)
{
    const struct rondo_layout *l = job->question.layout;
    const struct rondo_model *m = &l->model;
    if (l->nnodes > 1 && job->topo->nnets == 0) {
        fputs("; no network port found: sockets are assumed between the nodes", job->out);
    }
    if (l->nnodes > 1 && !rondo_is_gpu_model(l)) {
        fprintf(job->out, "; between nodes %.3g us, %.3g GB/s each way", m->net_us[RONDO_PROTO_SIMPLE],
                m->net_bw[RONDO_PROTO_SIMPLE]);
    }
    levels_put(job->out, l);
    fputc('\n', job->out);
}

static void head_put(const struct explain_job *job)
{
    const struct rondo_layout *l = job->question.layout;
    fprintf(job->out, "%s of %s bytes on %d rank%s, %d node%s, at most %d channel%s (algbw, busbw: GB/s)\n",
            rondo_coll_name(job->question.coll), job->request->sizes, l->nranks, l->nranks == 1 ? "" : "s",
            l->nnodes, l->nnodes == 1 ? "" : "s", l->nchannels, l->nchannels == 1 ? "" : "s");
    if (rondo_is_gpu_model(l)) {
        fprintf(job->out, "model: GPUs of sm %d", l->model.gpu.sm);
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            graph_put(job, rondo_graph_name(id), &job->graphs[id]);
        }
    } else {
        fprintf(job->out, "model: host memory, %.2g ranks per core", l->model.ranks_per_core);
    }
    nets_put(job);
    for (int far = 0; far < 2; far++) {
        fprintf(job->out, job->measured[far][0] != '\0' ? "%s\n" : "%s", job->measured[far]);
    }
    if ((job->measured[0][0] != '\0' || job->measured[1][0] != '\0') && rondo_params()->recalibrate) {
        fprintf(job->out,
                "a running communicator of one node corrects the times of all_reduce, all_gather and "
                "reduce_scatter from 8 KiB on by what calls take (RONDO_RECALIBRATE); RONDO_DEBUG=INFO with "
                "RONDO_DEBUG_SUBSYS=TUNING says how\n");
    }
    fprintf(job->out, job->note[0] != '\0' ? "%s\n\n" : "%s\n", job->note);
}

/* Say what a tuner plugin changes, and what a call then runs. */
static void plugin_put(const struct explain_job *job, size_t bytes)
{
    const struct rondo_explain_question *q = &job->question;
    struct rondo_choice before[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS], after[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    const struct rondo_choice *best = NULL;
    if (job->plugin == NULL) {
        return;
    }
    rondo_cost_table(q->layout, q->allowed, q->coll, bytes, q->mailbox, before);
    memcpy(after, before, sizeof(after));
    if (!rondo_tuner_plugin_edit(job->plugin, q->layout, q->coll, bytes, after)) {
        fprintf(job->out, "  tuner plugin %s changes nothing\n", rondo_tuner_plugin_text(job->plugin));
        return;
    }
    fprintf(job->out, "  tuner plugin %s changes", rondo_tuner_plugin_text(job->plugin));
    for (int i = 0; i < RONDO_NUM_ALGOS * RONDO_NUM_PROTOS; i++) {
        const struct rondo_choice *old = &before[i / RONDO_NUM_PROTOS][i % RONDO_NUM_PROTOS],
                                  *new = &after[i / RONDO_NUM_PROTOS][i % RONDO_NUM_PROTOS];
        if (old->us >= 0 && (old->us != new->us || old->nchannels != new->nchannels)) {
            fprintf(job->out, " %s %s x%d %.2f -> x%d %.2f us,", rondo_algo_name((enum rondo_algo)old->algo),
                    rondo_proto_name((enum rondo_proto)old->proto), old->nchannels, old->us, new->nchannels,
                    new->us);
        }
        best = new->us >= 0 && (best == NULL || rondo_choice_better(new, best)) ? new : best;
    }
    if (best != NULL) {
        fprintf(job->out, " and a call runs %s %s x%d\n", rondo_algo_name((enum rondo_algo)best->algo),
                rondo_proto_name((enum rondo_proto)best->proto), best->nchannels);
    } else {
        fprintf(job->out, " and allows nothing: the model chooses\n");
    }
}

/* What is selected if kernels find that no buffer has to be staged. */
static void registered_put(const struct explain_job *job, size_t bytes)
{
    const struct rondo_explain_question *q = &job->question;
    struct rondo_select_input in = { .layout = q->layout,
                                     .allowed = q->allowed,
                                     .coll = q->coll,
                                     .bytes = bytes,
                                     .mailbox = q->mailbox,
                                     .gpu = 1,
                                     .plugin = job->plugin };
    struct rondo_selection selection;
    if (rondo_is_gpu_model(q->layout) && rondo_select(&in, &selection) == RONDO_SUCCESS &&
        selection.fallback.nchannels > 0) {
        const struct rondo_choice *c = &selection.primary;
        fprintf(job->out,
                "with buffers of rondo_mem_alloc_device on all ranks: %s %s, %d channels, %.1f us\n",
                rondo_algo_name((enum rondo_algo)c->algo), rondo_proto_name((enum rondo_proto)c->proto),
                c->nchannels, c->us);
    }
}

static rondo_status one_size_put(const struct explain_job *job, size_t bytes)
{
    struct rondo_explain_row *rows;
    int n;
    RONDO_TRY(rondo_explain_rows(&job->question, bytes, &rows, &n));
    fprintf(job->out, " %s\n", columns);
    for (int i = 0; i < n; i++) {
        fputc(rows[i].chosen ? '>' : ' ', job->out);
        text_row(job, &rows[i], bytes, 0);
        fprintf(job->out, "%s\n",
                rows[i].choice.us < 0 || rows[i].allowed
                    ? ""
                    : "; not allowed by RONDO_ALGO, RONDO_PROTO or RONDO_DETERMINISM");
    }
    plugin_put(job, bytes);
    registered_put(job, bytes);
    rondo_free(rows);
    return RONDO_SUCCESS;
}

static rondo_status size_put(const struct explain_job *job, size_t bytes)
{
    struct rondo_explain_row *rows;
    const struct rondo_explain_row *chosen = NULL, *next = NULL;
    char size[24];
    int n;
    RONDO_TRY(rondo_explain_rows(&job->question, bytes, &rows, &n));
    for (int i = 0; i < n; i++) {
        if (rows[i].chosen) {
            chosen = &rows[i];
        } else if (next == NULL && rows[i].choice.us >= 0 && rows[i].allowed) {
            next = &rows[i];
        }
    }
    rondo_text_bytes((int64_t)bytes, size);
    fprintf(job->out, "%10s", size);
    if (chosen != NULL) {
        text_row(job, chosen, bytes, next != NULL ? 18 : 0);
    }
    if (chosen != NULL && next != NULL) {
        fprintf(job->out, "  %s %s +%.0f %%", rondo_algo_name((enum rondo_algo)next->choice.algo),
                rondo_proto_name((enum rondo_proto)next->choice.proto),
                (next->choice.us / chosen->choice.us - 1) * 100);
    }
    fputc('\n', job->out);
    plugin_put(job, bytes);
    rondo_free(rows);
    return RONDO_SUCCESS;
}

static rondo_status text_print(const struct explain_job *job)
{
    head_put(job);
    if (strchr(job->request->sizes, ':') == NULL) {
        return one_size_put(job, (size_t)job->first);
    }
    fprintf(job->out, "%10s%-88s  %s\n", "size", columns, "next best");
    for (int64_t bytes = job->first; bytes <= job->last; bytes *= 2) {
        RONDO_TRY(size_put(job, (size_t)bytes));
    }
    return RONDO_SUCCESS;
}

/* ---- as JSON: see src/tools/JSON.md ---- */

/* Numbers are written from integers, so that the locale cannot change them. */
static void json_time(FILE *out, const char *key, double us)
{
    long long ns = (long long)(us * 1000 + 0.5);
    fprintf(out, "\"%s\":%lld.%03lld,", key, ns / 1000, ns % 1000);
}

static void json_row(FILE *out, const struct rondo_explain_row *row)
{
    const struct rondo_choice *c = &row->choice;
    fprintf(out, "{\"algorithm\":\"%s\",\"protocol\":\"%s\",", rondo_algo_name((enum rondo_algo)c->algo),
            rondo_proto_name((enum rondo_proto)c->proto));
    if (c->us >= 0) {
        fprintf(out, "\"channels\":%d,", c->nchannels);
        json_time(out, "us", c->us);
        json_time(out, "model_us", row->model_us);
        fprintf(out, "\"source\":\"%s\",", c->measured ? "measured" : "model");
    }
    fprintf(out, "\"limit\":\"%s\",\"allowed\":%s,\"chosen\":%s}", row->limit,
            row->allowed ? "true" : "false", row->chosen ? "true" : "false");
}

void rondo_explain_json_head(FILE *out, enum rondo_coll coll, const struct rondo_layout *l)
{
    fprintf(out,
            "{\"schema\":1,\"collective\":\"%s\",\"ranks\":%d,\"nodes\":%d,\"channels\":%d,\"memory\":\"%s\","
            "\"machine\":\"%016llx\","
            "\"sizes\":[",
            rondo_coll_name(coll), l->nranks, l->nnodes, l->nchannels, rondo_is_gpu_model(l) ? "gpu" : "host",
            (unsigned long long)l->machine);
}

void rondo_explain_json_size(FILE *out, size_t bytes, const struct rondo_explain_row *rows, int n, int first)
{
    fprintf(out, "%s\n{\"bytes\":%zu,\"rows\":[", first ? "" : ",", bytes);
    for (int i = 0; i < n; i++) {
        fputs(i > 0 ? ",\n  " : "\n  ", out);
        json_row(out, &rows[i]);
    }
    fputs("]}", out);
}

void rondo_explain_json_end(FILE *out) { fputs("]}\n", out); }

static rondo_status json_print(const struct explain_job *job)
{
    rondo_explain_json_head(job->out, job->question.coll, job->question.layout);
    for (int64_t bytes = job->first; bytes <= job->last; bytes *= 2) {
        struct rondo_explain_row *rows;
        int n;
        RONDO_TRY(rondo_explain_rows(&job->question, (size_t)bytes, &rows, &n));
        rondo_explain_json_size(job->out, (size_t)bytes, rows, n, bytes == job->first);
        rondo_free(rows);
    }
    rondo_explain_json_end(job->out);
    return RONDO_SUCCESS;
}

/* ---- a job of equal nodes ---- */

/* What creation would use on this machine: the numbers of near cores. Those of far ones are only shown. */
static void use_calibration(struct rondo_layout *layout, enum rondo_coll coll, char measured[2][640])
{
    static const char *const placements[2] = { "near", "far" };
    for (int far = 0; far < 2; far++) {
        struct rondo_calibration c;
        char key[RONDO_CALIBRATION_KEY], text[512];
        if (!rondo_calibration_read(rondo_calibration_key(placements[far], key), &c)) {
            continue;
        }
        snprintf(measured[far], sizeof(measured[far]), "measured on this machine, cores %s: %s",
                 placements[far], rondo_calibration_text(&c, text, sizeof(text)));
        if (!far && (layout->nranks == 2 || !rondo_coll_reduces(coll))) { /* as rondo_select */
            rondo_model_calibrate(&layout->model, &c);
        }
    }
}

/* A tuning file for another shape is not used; the note says so. */
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
        snprintf(note, size, "measured times: %s, for %s", file, text);
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
    layout.model.gpu.direct = request->nodes == 1 ? (int32_t)rondo_param_direct_gpu() : 0;
    layout.model.gpu.staged = rondo_params()->direct_gpu == RONDO_PARAM_AUTO;
    if (request->here && request->nodes == 1 && !rondo_is_gpu_model(&layout) &&
        rondo_params()->calibrate != RONDO_CALIBRATE_NEVER) {
        use_calibration(&layout, q->coll, job.measured);
    }
    RONDO_TRY(use_tune(&layout, &tune, job.note, sizeof(job.note)));
    rondo_tuner_plugin_open(&job.plugin, 1, &layout);
    /* Fail before anything is printed. */
    RONDO_TRY_GOTO(rondo_cost_choose(&layout, &allowed, q->coll, (size_t)job.first, q->mailbox, &choice),
                   out);
    status = request->json ? json_print(&job) : text_print(&job);
    if (status == RONDO_SUCCESS && (fflush(out) != 0 || ferror(out))) {
        status = rondo_fail(RONDO_SYSTEM_ERROR, "cannot write the table: %m");
    }
out:
    rondo_tuner_plugin_close(job.plugin);
    rondo_tune_free(tune);
    return status;
}
