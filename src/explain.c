#include "explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "coll/cost_gpu.h"
#include "model.h"

enum { MAX_ROWS = RONDO_NUM_ALGOS * RONDO_NUM_PROTOS };

/* ---- a layout of equal nodes ---- */

static rondo_status summarize(const struct rondo_topo *topo, const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, int most,
                              struct rondo_stitch_summary *summary)
{
    struct rondo_stitch_job job;
    struct rondo_stitch *stitch;
    rondo_status status;
    RONDO_TRY(rondo_stitch_job_create(&job, topo, graphs, nodes));
    job.input.max_channels = most;
    status = rondo_stitch_create(&stitch, &job.input);
    if (status == RONDO_SUCCESS) {
        *summary = *rondo_stitch_summary(stitch);
        rondo_stitch_destroy(stitch);
    }
    rondo_stitch_job_release(&job);
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
    struct rondo_cores cores = { { 0 } };
    for (int d = 0; d < topo->ndevs; d++) {
        rondo_cores_unite(&cores, &topo->rank[d].cores);
    }
    int n = rondo_cores_count(&cores);
    return n > 0 ? (double)topo->ndevs / n : 1;
}

/* Most channels: on GPUs as many as the graphs want, unless somebody says how many. */
static int most_channels(int gpus)
{
    const struct rondo_params *params = rondo_params();
    struct rondo_param_info info;
    rondo_param_get_info(RONDO_PARAM_max_nchannels, &info);
    int most = gpus && strcmp(info.origin, "default") == 0 ? RONDO_MAX_CHANNELS : (int)params->max_nchannels;
    return most < params->min_nchannels ? (int)params->min_nchannels : most;
}

rondo_status rondo_explain_layout(struct rondo_layout *layout, const struct rondo_topo *topo,
                                  const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes)
{
    struct rondo_stitch_summary summary;
    int most = most_channels(topo->all_gpus);
    if (nodes < 1 || (int64_t)nodes * topo->ndevs > RONDO_STITCH_MAX_RANKS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "a job of %d nodes with %d ranks each cannot be explained, expected 1 to %d nodes", nodes,
                          topo->ndevs, RONDO_STITCH_MAX_RANKS / topo->ndevs);
    }
    RONDO_TRY(summarize(topo, graphs, nodes, most, &summary));
    *layout = (struct rondo_layout){ .nranks = summary.nranks,
                                     .nnodes = nodes,
                                     .nlocal = topo->ndevs,
                                     .max_local = topo->ndevs,
                                     .least_channels = (int32_t)rondo_params()->min_nchannels,
                                     .protos = RONDO_ALL_PROTOS };
    rondo_model_host(&layout->model, ranks_per_core(topo));
    rondo_model_from_graphs(&layout->model, &summary);
    if (nodes > 1) {
        rondo_model_net(&layout->model, &summary, net_of(topo));
    }
    layout->nchannels = rondo_is_gpu_model(layout) ? summary.nchannels : most;
    return RONDO_SUCCESS;
}

/* ---- what is asked ---- */

struct question {
    FILE *out;
    const struct rondo_topo *topo;
    const struct rondo_layout *layout;
    struct rondo_allowed allowed;
    enum rondo_coll coll;
    size_t board;
};

static rondo_status coll_find(const char *name, enum rondo_coll *coll)
{
    char names[256] = "";
    int found = rondo_coll_from_name(name);
    if (found >= 0) {
        *coll = (enum rondo_coll)found;
        return RONDO_SUCCESS;
    }
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        size_t at = strlen(names);
        snprintf(names + at, sizeof(names) - at, "%s%s", c > 0 ? ", " : "", rondo_coll_name((enum rondo_coll)c));
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT, "no collective is called \"%s\"; expected one of %s", name, names);
}

static rondo_status sizes_parse(const char *text, int64_t *first, int64_t *last)
{
    char from[32];
    size_t n = strcspn(text, ":");
    int range = text[n] == ':';
    snprintf(from, sizeof(from), "%.*s", (int)(n < sizeof(from) ? n : sizeof(from) - 1), text);
    if (n >= sizeof(from) || rondo_parse_size(from, first) != 0 || rondo_parse_size(range ? text + n + 1 : from, last) != 0 || *first < 1 ||
        *last < *first || *last > INT64_MAX / 4) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "\"%s\" is no size in bytes; expected one as 64M, or a range as 8:128M", text);
    }
    return RONDO_SUCCESS;
}

/* ---- rows ---- */

static int by_time(const void *a, const void *b)
{
    const struct rondo_choice *x = a, *y = b;
    if ((x->us < 0) != (y->us < 0)) {
        return x->us < 0 ? 1 : -1;
    }
    if (x->us < y->us || x->us > y->us) {
        return x->us < y->us ? -1 : 1;
    }
    return x->algo != y->algo ? x->algo - y->algo : x->proto - y->proto;
}

/* What exists for the collective, fastest first, what cannot run last. @return how many. */
static int rows_find(const struct question *q, size_t bytes, struct rondo_choice rows[MAX_ROWS])
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    int n = 0;
    rondo_cost_table(q->layout, NULL, q->coll, bytes, q->board, table);
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_schedule_find(q->coll, (enum rondo_algo)a);
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            if (schedule != NULL && (schedule->protos >> p & 1) != 0) {
                rows[n++] = table[a][p];
            }
        }
    }
    qsort(rows, (size_t)n, sizeof(*rows), by_time);
    return n;
}

static int is_allowed(const struct question *q, const struct rondo_choice *row)
{
    return q->allowed.protos[q->coll][row->algo] >> row->proto & 1;
}

/* Bytes over the busiest link per byte of the buffer, as nccl-tests count them. */
static double bus_factor(const struct question *q)
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

static const char *row_limit(const struct question *q, const struct rondo_choice *row, size_t bytes)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(q->coll, (enum rondo_algo)row->algo);
    int oneshot = row->algo == RONDO_ALGO_ONESHOT && row->us < 0 && !rondo_is_gpu_model(q->layout);
    if (oneshot) {
        return q->layout->nnodes > 1 ? "not available: ranks of one node only" : "not available: more bytes than RONDO_BOARD_SIZE";
    }
    return schedule->limit(q->layout, q->coll, (enum rondo_proto)row->proto, row->nchannels > 0 ? row->nchannels : 1, bytes);
}

static void size_text(double bytes, char text[16])
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t u = 0;
    for (; bytes >= 1024 && u + 1 < RONDO_COUNTOF(unit); u++) {
        bytes /= 1024;
    }
    snprintf(text, 16, bytes == (double)(int64_t)bytes ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
}

/* The line's end is the caller's, who may want the last column padded. */
static void row_put(const struct question *q, const struct rondo_choice *row, size_t bytes, int width)
{
    int fill, nthreads;
    const char *limit = row_limit(q, row, bytes);
    fprintf(q->out, " %-9s %-8s", rondo_algo_name((enum rondo_algo)row->algo), rondo_proto_name((enum rondo_proto)row->proto));
    if (row->us < 0) {
        fprintf(q->out, " %8s %7s %12s %8s %8s  %s", "-", "-", "-", "-", "-", limit);
        return;
    }
    fprintf(q->out, " %8d", row->nchannels);
    if (rondo_is_gpu_model(q->layout)) {
        rondo_gpu_blocks(q->layout, (enum rondo_algo)row->algo, (enum rondo_proto)row->proto, bytes, &fill, &nthreads);
        fprintf(q->out, " %7d", nthreads);
    } else {
        fprintf(q->out, " %7s", "-");
    }
    double algbw = row->us > 0 ? (double)bytes / row->us * 1e-3 : 0;
    fprintf(q->out, " %12.2f %8.2f %8.2f  %-*s", row->us, algbw, algbw * bus_factor(q), width, limit);
}

static const char columns[] = " algorithm protocol channels threads      time us    algbw    busbw  limit";

static void graph_put(const struct question *q, const char *name, const struct rondo_graph *g)
{
    fprintf(q->out, "; %s %d x %.1f", name, g->nchannels, g->bw_intra * 1e-3);
    if (q->layout->nnodes > 1 && q->topo->nnets > 0) {
        fprintf(q->out, "/%.1f GB/s %s/%s", g->bw_inter * 1e-3, rondo_path_type_name(g->type_intra), rondo_path_type_name(g->type_inter));
    } else {
        fprintf(q->out, " GB/s %s", rondo_path_type_name(g->type_intra));
    }
}

/* What is taken to join the nodes. */
static void nets_put(const struct question *q)
{
    const struct rondo_model *m = &q->layout->model;
    if (q->layout->nnodes > 1 && q->topo->nnets == 0) {
        fputs("; no net is known of: sockets are assumed between the nodes", q->out);
    }
    if (q->layout->nnodes > 1 && !rondo_is_gpu_model(q->layout)) {
        fprintf(q->out, "; between nodes %.3g us, %.3g GB/s each way", m->net_us[RONDO_PROTO_SIMPLE], m->net_bw[RONDO_PROTO_SIMPLE]);
    }
    fputs("\n\n", q->out);
}

static void head_put(const struct question *q, const struct rondo_graph graphs[RONDO_NUM_GRAPHS], const char *sizes)
{
    const struct rondo_layout *l = q->layout;
    fprintf(q->out, "%s of %s bytes on %d rank%s, %d node%s, at most %d channel%s (algbw, busbw: GB/s)\n", rondo_coll_name(q->coll), sizes,
            l->nranks, l->nranks == 1 ? "" : "s", l->nnodes, l->nnodes == 1 ? "" : "s", l->nchannels, l->nchannels == 1 ? "" : "s");
    if (!rondo_is_gpu_model(l)) {
        fprintf(q->out, "model: host memory, %.2g ranks a core", l->model.ranks_per_core);
        nets_put(q);
        return;
    }
    fprintf(q->out, "model: GPUs of sm %d", l->model.gpu.sm);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        graph_put(q, rondo_graph_name(id), &graphs[id]);
    }
    nets_put(q);
}

/* ---- the two tables ---- */

static rondo_status one_size_put(const struct question *q, size_t bytes)
{
    struct rondo_choice rows[MAX_ROWS], choice;
    int n = rows_find(q, bytes, rows);
    RONDO_TRY(rondo_cost_choose(q->layout, &q->allowed, q->coll, bytes, q->board, &choice));
    fprintf(q->out, " %s\n", columns);
    for (int i = 0; i < n; i++) {
        fputc(rows[i].algo == choice.algo && rows[i].proto == choice.proto ? '>' : ' ', q->out);
        row_put(q, &rows[i], bytes, 0);
        fprintf(q->out, "%s\n", rows[i].us < 0 || is_allowed(q, &rows[i]) ? "" : "; not allowed by RONDO_ALGO or RONDO_PROTO");
    }
    return RONDO_SUCCESS;
}

static rondo_status sweep_put(const struct question *q, size_t first, size_t last)
{
    fprintf(q->out, "%10s%-85s  %s\n", "size", columns, "next best");
    for (size_t bytes = first; bytes <= last; bytes *= 2) {
        struct rondo_choice rows[MAX_ROWS], choice;
        char size[16];
        int n = rows_find(q, bytes, rows), next = -1;
        RONDO_TRY(rondo_cost_choose(q->layout, &q->allowed, q->coll, bytes, q->board, &choice));
        for (int i = 0; i < n && next < 0; i++) {
            int chosen = rows[i].algo == choice.algo && rows[i].proto == choice.proto;
            next = rows[i].us >= 0 && is_allowed(q, &rows[i]) && !chosen ? i : -1;
        }
        size_text((double)bytes, size);
        fprintf(q->out, "%10s", size);
        row_put(q, &choice, bytes, next >= 0 ? 18 : 0);
        if (next >= 0) {
            fprintf(q->out, "  %s %s +%.0f %%", rondo_algo_name((enum rondo_algo)rows[next].algo),
                    rondo_proto_name((enum rondo_proto)rows[next].proto), (rows[next].us / choice.us - 1) * 100);
        }
        fputc('\n', q->out);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_explain(FILE *out, const struct rondo_topo *topo, const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes,
                           const char *coll, const char *sizes)
{
    const struct rondo_params *params = rondo_params();
    struct rondo_layout layout;
    struct question q = { .out = out, .topo = topo, .layout = &layout, .board = nodes == 1 ? (size_t)params->board_size : 0 };
    struct rondo_choice choice;
    int64_t first, last;
    RONDO_TRY(coll_find(coll, &q.coll));
    RONDO_TRY(sizes_parse(sizes, &first, &last));
    RONDO_TRY(rondo_allowed_parse(&q.allowed, params->algo, params->proto));
    RONDO_TRY(rondo_explain_layout(&layout, topo, graphs, nodes));
    RONDO_TRY(rondo_cost_choose(&layout, &q.allowed, q.coll, (size_t)first, q.board, &choice)); /* before anything is printed */
    head_put(&q, graphs, sizes);
    RONDO_TRY(strchr(sizes, ':') == NULL ? one_size_put(&q, (size_t)first) : sweep_put(&q, (size_t)first, (size_t)last));
    return fflush(out) != 0 || ferror(out) ? rondo_fail(RONDO_SYSTEM_ERROR, "the tuner's table could not be written: %m") : RONDO_SUCCESS;
}
