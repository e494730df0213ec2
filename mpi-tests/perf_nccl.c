/* The JSON file of nccl-tests 2.19 (-J): its names, nesting and units, for the programs that read it. Truth
 * values are text there. */
#include "perf.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static FILE *file;
static char part[PATH_MAX + 8];
static int rows;

static void put_text(const char *name, const char *text)
{
    fprintf(file, "\"%s\":", name);
    perf_json_quoted(file, text);
}

static void put_now(const char *name)
{
    char now[32];
    perf_timestamp(now, sizeof(now));
    put_text(name, now);
}

static void put_list(const char *name, char **texts, int all)
{
    const char *separator = "";
    fprintf(file, ",\"%s\":[", name);
    for (char **at = texts; *at != NULL; at++) {
        if (all || strncmp(*at, "RONDO_", 6) == 0 || strncmp(*at, "NCCL_", 5) == 0) {
            fputs(separator, file);
            perf_json_quoted(file, *at);
            separator = ",";
        }
    }
    fputc(']', file);
}

static void put_config(const struct perf_options *o, const struct perf_rank *ranks)
{
    fprintf(file, ",\n\"config\":{\"nthreads\":1,\"ngpus\":1,\"minimum_bytes\":%zu,\"maximum_bytes\":%zu",
            o->min_bytes, o->max_bytes);
    fprintf(file, o->factor > 0 ? ",\"step_factor\":%zu" : ",\"step_bytes\":%zu",
            o->factor > 0 ? o->factor : o->step_bytes);
    fprintf(file,
            ",\"warmup_iters\":%ld,\"iterations\":%ld,\"aggregated_iterations\":%ld,\"validation\":%ld,"
            "\"graph\":0,\"blocking_collectives\":\"%s\",\"per_iter_timing\":\"%s\",\"per_iter_skip\":%ld,"
            "\"parallel_init\":\"false\",\n\"devices\":[",
            o->warmup, o->iters, o->aggregate, o->check, o->blocking != PERF_STREAM ? "true" : "false",
            o->per_iter ? "true" : "false", o->per_iter_skip);
    for (int rank = 0; rank < test.nranks; rank++) {
        const struct perf_rank *r = &ranks[rank];
        fprintf(file, "%s\n{\"rank\":%d,\"group\":0,\"pid\":%d,", rank > 0 ? "," : "", rank, r->pid);
        put_text("hostname", r->host);
        fprintf(file, ",\"device\":%d,", r->core);
        put_text("device_hex", r->cores);
        fputc(',', file);
        put_text("device_info", r->device);
        fputc('}', file);
    }
    fprintf(file, "]},\n\"results\":[");
}

int perf_nccl_open(const struct perf *perf, const struct perf_rank *ranks, int argc, char **argv)
{
    int version = 0;
    (void)argc; /* argv ends with NULL */
    snprintf(part, sizeof(part), "%s.part", perf->options.nccl_json);
    file = fopen(part, "w");
    if (file == NULL) {
        fprintf(stderr, "%s: cannot write %s: %s\n", perf->program, part, strerror(errno));
        return 0;
    }
    rondo_get_version(&version);
    fprintf(file, "{\"version\":1,");
    put_now("start_time");
    put_list("args", argv, 1);
    put_list("env", environ, 0);
    fprintf(file, ",\"rondo_version\":%d", version);
    put_config(&perf->options, ranks);
    return 1;
}

static void put_per_iter(const struct perf_options *o, const char *name, const struct perf_times *times)
{
    fprintf(file,
            ",\"%s_per_iter\":{\"skipped_iterations\":%ld,\"min_us\":%f,\"max_us\":%f,\"p99_us\":%f,"
            "\"cv_pct\":%f}",
            name, o->per_iter_skip, times->min, times->max, times->p99, times->cv);
}

static void put_place(const struct perf_options *o, const char *name, const struct perf_place *place)
{
    if (!place->run) {
        fprintf(file, ",\"%s\":null", name);
        return;
    }
    fprintf(file, ",\"%s\":{\"%s\":%f,\"alg_bw\":%f,\"bus_bw\":%f,\"nwrong\":", name,
            o->cputime ? "cpu_time" : "time", place->rondo.time, place->algbw, place->busbw);
    if (place->checked) {
        fprintf(file, "%f}", (double)place->wrong);
    } else {
        fprintf(file, "null}");
    }
    if (o->per_iter) {
        put_per_iter(o, name, &place->rondo);
    }
}

void perf_nccl_row(const struct perf *perf, const struct perf_row *row)
{
    const struct perf_options *o = &perf->options;
    if (file == NULL) {
        return;
    }
    fprintf(file, "%s\n{\"size\":%zu,\"count\":%zu,\"type\":\"%s\",\"redop\":\"%s\",\"root\":\"%6d\"",
            rows++ > 0 ? "," : "", row->bytes, row->count, test_type_nccl_name(row->type),
            row->op < 0 ? "none" : test_op_nccl_name(row->op), row->root);
    put_place(o, "out_of_place", &row->place[0]);
    put_place(o, "in_place", &row->place[1]);
    fprintf(file, ",\"actual_iterations\":%ld,\"experiment_name\":\"\"}", o->iters);
}

int perf_nccl_close(const struct perf *perf, double busbw)
{
    int failed;
    if (file == NULL) {
        return 1;
    }
    fprintf(file,
            "\n],\n\"out_of_bounds\":{\"count\":%zu,\"okay\":\"%s\"},"
            "\"average_bus_bandwidth\":{\"bandwidth\":%f,\"okay\":\"unchecked\"},\"errors\":[],",
            perf->wrong, perf->wrong == 0 ? "true" : "false", busbw);
    put_now("end_time");
    fprintf(file, "}\n");
    failed = ferror(file);
    failed |= fclose(file) != 0;
    file = NULL;
    return !failed && rename(part, perf->options.nccl_json) == 0;
}
