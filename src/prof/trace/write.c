/* The files of a communicator (trace.h): PREFIX.HASH.RANK.json, and its summary as .txt, .jsonl and .prom. */
#include <locale.h>
#include <string.h>
#include <unistd.h>

#include "prof/trace/trace.h"

static FILE *file_of(const struct trace_context *c, const char *ending)
{
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s.%016llx.%d.%s", trace_settings.prefix, (unsigned long long)c->hash,
             c->rank, ending);
    file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "libnccl-profiler-rondo: cannot write %s: %m; RONDO_TRACE_FILE sets another name\n",
                path);
    }
    return file;
}

static void done(FILE *file, const char *what)
{
    int failed = ferror(file);
    failed |= fclose(file);
    if (failed != 0) {
        fprintf(stderr, "libnccl-profiler-rondo: the %s is incomplete: %m\n", what);
    }
}

/* A string of JSON, which is one of Prometheus too. */
static void print_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else {
            fputc(c < ' ' ? ' ' : c, file);
        }
    }
    fputc('"', file);
}

/* ---- the trace ---- */

/* Thread numbers: calls; channel c; its conns; further lanes of a conn, for steps that overlap. 64 channels
 * and 32 lanes fit into an int. */
enum { CALLS = 0, CHANNELS = 1, CONNS = 1000000, LANES = 65 * CONNS };

static int thread_of(const struct trace_record *r)
{
    switch (r->type) {
    case RONDO_PROF_KERNEL_CH: return CHANNELS + r->channel;
    case RONDO_PROF_PROXY_OP: return CONNS * (1 + r->channel) + 2 * r->peer + r->op.is_send;
    case RONDO_PROF_PROXY_STEP: return LANES * r->step.lane + thread_of(r->parent);
    default: return CALLS;
    }
}

static void print_args(FILE *file, const struct trace_record *r)
{
    switch (r->type) {
    case RONDO_PROF_COLL:
    case RONDO_PROF_P2P:
        fprintf(file,
                "\"seq\":%llu,\"count\":%llu,\"type\":\"%s\",\"bytes\":%llu,\"%s\":%d,\"algo\":\"%s\","
                "\"proto\":\"%s\",\"channels\":%u",
                (unsigned long long)r->call.seq, (unsigned long long)r->call.count, r->call.what.datatype,
                (unsigned long long)r->call.what.bytes, r->type == RONDO_PROF_COLL ? "root" : "peer", r->peer,
                r->call.what.algo, r->call.what.proto, r->call.nchannels);
        break;
    case RONDO_PROF_PROXY_OP:
        fprintf(file, "\"channel\":%d,\"peer\":%d,\"send\":%d,\"steps\":%d,\"bytes\":%llu", r->channel,
                r->peer, r->op.is_send, r->op.nsteps, (unsigned long long)r->op.bytes);
        break;
    case RONDO_PROF_PROXY_STEP:
        fprintf(file, "\"step\":%d,\"bytes\":%llu,\"data_us\":%.3f,\"peer_us\":%.3f", r->step.step,
                (unsigned long long)r->step.bytes,
                r->step.waited != 0 ? (double)(r->step.waited - r->start) / 1e3 : 0,
                r->step.moved != 0 && r->step.waited != 0 ? (double)(r->step.moved - r->step.waited) / 1e3
                                                          : 0);
        break;
    default: fprintf(file, "\"channel\":%d", r->channel);
    }
}

static void print_record(FILE *file, const struct trace_record *r)
{
    const char *name = r->type == RONDO_PROF_COLL || r->type == RONDO_PROF_P2P ? r->call.what.func
                       : r->type == RONDO_PROF_KERNEL_CH                       ? "channel"
                       : r->type == RONDO_PROF_PROXY_OP ? (r->op.is_send ? "send" : "recv")
                                                        : "step";
    fprintf(file,
            ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%llu.%03u,"
            "\"dur\":%.3f,\"args\":{",
            r->type == RONDO_PROF_COLL        ? "coll"
            : r->type == RONDO_PROF_P2P       ? "p2p"
            : r->type == RONDO_PROF_KERNEL_CH ? "channel"
            : r->type == RONDO_PROF_PROXY_OP  ? "conn"
                                              : "step",
            name, r->context->rank, thread_of(r), (unsigned long long)(r->start / 1000),
            (unsigned)(r->start % 1000), (double)(r->stop - r->start) / 1e3);
    print_args(file, r);
    fputs("}}", file);
}

static void print_boot_id(FILE *file)
{
    char id[64] = "";
    FILE *from = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (from != NULL) {
        if (fgets(id, sizeof id, from) == NULL) {
            id[0] = '\0';
        }
        fclose(from);
    }
    id[strcspn(id, "\n")] = '\0';
    print_text(file, id);
}

static void write_trace(const struct trace_context *c)
{
    char host[256] = "";
    FILE *file = file_of(c, "json");
    if (file == NULL) {
        return;
    }
    (void)gethostname(host, sizeof host - 1);
    fprintf(file, "{\"otherData\":{\"format\":\"rondo-trace 1\",\"comm\":\"%016llx\",\"name\":",
            (unsigned long long)c->hash);
    print_text(file, c->name);
    fprintf(file, ",\"rank\":%d,\"nranks\":%d,\"nnodes\":%d,\"pid\":%d,\"host\":", c->rank, c->nranks,
            c->nnodes, (int)getpid());
    print_text(file, host);
    fputs(",\"boot_id\":", file);
    print_boot_id(file);
    if (c->clock_rank >= 0) {
        fprintf(file, ",\"clock\":{\"rank\":%d,\"offset_us\":%.3f,\"error_us\":%.3f}", c->clock_rank,
                (double)c->offset_ns / 1e3, (double)c->error_ns / 1e3);
    }
    fprintf(file, ",\"monotonic_ns\":%llu,\"real_ns\":%llu,\"lost\":%llu},\n\"traceEvents\":[\n",
            (unsigned long long)c->begun_monotonic, (unsigned long long)c->begun_real,
            (unsigned long long)c->lost);
    fprintf(file, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            c->rank, c->rank);
    for (const struct trace_chunk *chunk = c->first; chunk != NULL; chunk = chunk->next) {
        for (uint64_t i = 0; i < trace_records(chunk); i++) {
            if (chunk->record[i].stop != 0) {
                print_record(file, &chunk->record[i]);
            }
        }
    }
    fputs("\n]}\n", file);
    done(file, "trace");
}

/* ---- the summary ---- */

struct numbers {
    double mean, least, most, median, p99; /* us */
    double algbw, busbw;                   /* GB/s */
};

static struct numbers numbers_of(const struct trace_context *c, const struct trace_row *row)
{
    double mean = (double)row->total / (double)row->count;
    double algbw = mean > 0 ? (double)row->what.bytes / mean : 0;
    return (struct numbers){ .mean = mean / 1e3,
                             .least = (double)row->least / 1e3,
                             .most = (double)row->most / 1e3,
                             .median = trace_quantile(row, 0.5) / 1e3,
                             .p99 = trace_quantile(row, 0.99) / 1e3,
                             .algbw = algbw,
                             .busbw = algbw * trace_bus_factor(row->what.func, c->nranks) };
}

static void write_text(const struct trace_context *c)
{
    FILE *file = file_of(c, "txt");
    if (file == NULL) {
        return;
    }
    fprintf(file, "# communicator %s %016llx, rank %d of %d; times in us, p50 and p99 to a factor 1.5\n",
            c->name, (unsigned long long)c->hash, c->rank, c->nranks);
    fprintf(file, "%-15s %-14s %12s %-12s %-7s %9s %10s %10s %10s %10s %10s %8s %8s\n", "# call", "type",
            "bytes", "algorithm", "proto", "count", "mean", "min", "p50", "p99", "max", "algbw", "busbw");
    for (int i = 0; i < c->nrows; i++) {
        const struct trace_row *row = &c->row[i];
        struct numbers n = numbers_of(c, row);
        fprintf(file, "%-15s %-14s %12llu %-12s %-7s %9llu %10.2f %10.2f %10.2f %10.2f %10.2f %8.2f %8.2f\n",
                row->what.func, row->what.datatype, (unsigned long long)row->what.bytes, row->what.algo,
                row->what.proto, (unsigned long long)row->count, n.mean, n.least, n.median, n.p99, n.most,
                n.algbw, n.busbw);
    }
    if (c->rows_lost > 0 || c->lost > 0) {
        fprintf(file, "# not counted: %llu events, %llu calls of further kinds\n",
                (unsigned long long)c->lost, (unsigned long long)c->rows_lost);
    }
    done(file, "summary");
}

static void print_histogram(FILE *file, const struct trace_row *row)
{
    int last = TRACE_BUCKETS - 1;
    while (last > 0 && row->bucket[last] == 0) {
        last--;
    }
    for (int i = 0; i <= last; i++) {
        fprintf(file, "%s%u", i > 0 ? "," : "", row->bucket[i]);
    }
}

static void write_lines(const struct trace_context *c)
{
    FILE *file = file_of(c, "jsonl");
    for (int i = 0; file != NULL && i < c->nrows; i++) {
        const struct trace_row *row = &c->row[i];
        struct numbers n = numbers_of(c, row);
        fprintf(file,
                "{\"comm\":\"%016llx\",\"rank\":%d,\"nranks\":%d,\"call\":\"%s\",\"type\":\"%s\","
                "\"bytes\":%llu,\"algo\":\"%s\",\"proto\":\"%s\",\"count\":%llu,\"mean_us\":%.3f,"
                "\"min_us\":%.3f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f,\"algbw_GBs\":%.4f,"
                "\"busbw_GBs\":%.4f,\"histogram_log2_ns\":[",
                (unsigned long long)c->hash, c->rank, c->nranks, row->what.func, row->what.datatype,
                (unsigned long long)row->what.bytes, row->what.algo, row->what.proto,
                (unsigned long long)row->count, n.mean, n.least, n.median, n.p99, n.most, n.algbw, n.busbw);
        print_histogram(file, row);
        fputs("]}\n", file);
    }
    if (file != NULL) {
        done(file, "summary");
    }
}

static void print_labels(FILE *file, const struct trace_context *c, const struct trace_row *row)
{
    fprintf(file,
            "comm=\"%016llx\",rank=\"%d\",call=\"%s\",type=\"%s\",bytes=\"%llu\",algo=\"%s\",proto=\"%s\"",
            (unsigned long long)c->hash, c->rank, row->what.func, row->what.datatype,
            (unsigned long long)row->what.bytes, row->what.algo, row->what.proto);
}

static void write_prometheus(const struct trace_context *c)
{
    FILE *file = file_of(c, "prom");
    if (file == NULL) {
        return;
    }
    fputs(
        "# HELP rondo_call_seconds Time of collectives and messages.\n# TYPE rondo_call_seconds histogram\n",
        file);
    for (int i = 0; i < c->nrows; i++) {
        const struct trace_row *row = &c->row[i];
        uint64_t seen = 0;
        for (int b = 0; b < TRACE_BUCKETS; b++) {
            if (row->bucket[b] > 0) {
                seen += row->bucket[b];
                fputs("rondo_call_seconds_bucket{", file);
                print_labels(file, c, row);
                fprintf(file, ",le=\"%.9g\"} %llu\n", (double)(2ull << b) / 1e9, (unsigned long long)seen);
            }
        }
        fputs("rondo_call_seconds_bucket{", file);
        print_labels(file, c, row);
        fprintf(file, ",le=\"+Inf\"} %llu\nrondo_call_seconds_sum{", (unsigned long long)row->count);
        print_labels(file, c, row);
        fprintf(file, "} %.9f\nrondo_call_seconds_count{", (double)row->total / 1e9);
        print_labels(file, c, row);
        fprintf(file, "} %llu\n", (unsigned long long)row->count);
    }
    done(file, "summary");
}

void trace_write(struct trace_context *c)
{
    /* JSON has a decimal point, also in a program whose locale has a comma. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL), old = plain ? uselocale(plain) : NULL;
    write_trace(c);
    if (trace_settings.text) {
        write_text(c);
    }
    if (trace_settings.json) {
        write_lines(c);
    }
    if (trace_settings.prometheus) {
        write_prometheus(c);
    }
    if (plain) {
        uselocale(old);
        freelocale(plain);
    }
}
