/* The tuner's table for people. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tuner/cost_gpu.h"
#include "tools/explain/explain_impl.h"

/* Bytes over the busiest link per byte of the buffer, as nccl-tests count them. */
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

/* The line's end is the caller's, who may want the last column padded. */
static void row_put(const struct explain_job *job, const struct rondo_explain_row *row, size_t bytes,
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

/* What is taken to join the nodes, and what stands in one. */
static void nets_put(const struct explain_job *job)
{
    const struct rondo_layout *l = job->question.layout;
    const struct rondo_model *m = &l->model;
    if (l->nnodes > 1 && job->topo->nnets == 0) {
        fputs("; no net is known of: sockets are assumed between the nodes", job->out);
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
        fprintf(job->out, "model: host memory, %.2g ranks a core", l->model.ranks_per_core);
    }
    nets_put(job);
    fprintf(job->out, job->note[0] != '\0' ? "%s\n\n" : "%s\n", job->note);
}

static rondo_status one_size_put(const struct explain_job *job, size_t bytes)
{
    struct rondo_explain_row *rows;
    int n;
    RONDO_TRY(rondo_explain_rows(&job->question, bytes, &rows, &n));
    fprintf(job->out, " %s\n", columns);
    for (int i = 0; i < n; i++) {
        fputc(rows[i].chosen ? '>' : ' ', job->out);
        row_put(job, &rows[i], bytes, 0);
        fprintf(job->out, "%s\n",
                rows[i].choice.us < 0 || rows[i].allowed
                    ? ""
                    : "; not allowed by RONDO_ALGO, RONDO_PROTO or RONDO_DETERMINISM");
    }
    rondo_free(rows);
    return RONDO_SUCCESS;
}

static rondo_status size_put(const struct explain_job *job, size_t bytes)
{
    struct rondo_explain_row *rows;
    const struct rondo_explain_row *chosen = NULL, *next = NULL;
    char size[16];
    int n;
    RONDO_TRY(rondo_explain_rows(&job->question, bytes, &rows, &n));
    for (int i = 0; i < n; i++) {
        if (rows[i].chosen) {
            chosen = &rows[i];
        } else if (next == NULL && rows[i].choice.us >= 0 && rows[i].allowed) {
            next = &rows[i];
        }
    }
    rondo_explain_size_text((double)bytes, size);
    fprintf(job->out, "%10s", size);
    if (chosen != NULL) {
        row_put(job, chosen, bytes, next != NULL ? 18 : 0);
    }
    if (chosen != NULL && next != NULL) {
        fprintf(job->out, "  %s %s +%.0f %%", rondo_algo_name((enum rondo_algo)next->choice.algo),
                rondo_proto_name((enum rondo_proto)next->choice.proto),
                (next->choice.us / chosen->choice.us - 1) * 100);
    }
    fputc('\n', job->out);
    rondo_free(rows);
    return RONDO_SUCCESS;
}

rondo_status rondo_explain_text(const struct explain_job *job)
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
