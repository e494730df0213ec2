/* The tuner's table for programs: src/tools/JSON.md. Numbers are written from integers, so that no locale
 * gets in. */
#include "base/mem.h"
#include "tuner/cost_gpu.h"
#include "tools/explain/explain_impl.h"

/* Microseconds, to the nanosecond. */
static void time_put(FILE *out, const char *key, double us)
{
    long long ns = (long long)(us * 1000 + 0.5);
    fprintf(out, "\"%s\":%lld.%03lld,", key, ns / 1000, ns % 1000);
}

static void row_put(FILE *out, const struct rondo_explain_row *row)
{
    const struct rondo_choice *c = &row->choice;
    fprintf(out, "{\"algorithm\":\"%s\",\"protocol\":\"%s\",", rondo_algo_name((enum rondo_algo)c->algo),
            rondo_proto_name((enum rondo_proto)c->proto));
    if (c->us >= 0) {
        fprintf(out, "\"channels\":%d,", c->nchannels);
        time_put(out, "us", c->us);
        time_put(out, "model_us", row->model_us);
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
        row_put(out, &rows[i]);
    }
    fputs("]}", out);
}

void rondo_explain_json_end(FILE *out) { fputs("]}\n", out); }

rondo_status rondo_explain_json(const struct explain_job *job)
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
