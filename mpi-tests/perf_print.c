/* The output of *_perf: the table, the progress line and the rows of the JSON file. */
#include "perf.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the table ---- */

/* The columns of a place. Those of nccl-tests come first, in its widths; others only by options. */
struct column {
    const char *head, *unit;
    int width;
};

static void print_columns(const struct perf *perf, int line)
{
    const struct perf_options *o = &perf->options;
    const struct column columns[] = { { o->cputime ? "cputime" : "time", "(us)", 7 },
                                      { "algbw", "(GB/s)", 6 },
                                      { "busbw", "(GB/s)", 6 },
                                      { "#wrong", "", 6 },
                                      { "min", "(us)", o->verbose ? 7 : 0 },
                                      { "max", "(us)", o->verbose ? 7 : 0 },
                                      { "mpi", "(us)", o->vs_mpi ? 9 : 0 },
                                      { "ratio", "", o->vs_mpi ? 6 : 0 },
                                      { "i_min", "(us)", o->per_iter ? 7 : 0 },
                                      { "i_max", "(us)", o->per_iter ? 7 : 0 },
                                      { "i_p99", "(us)", o->per_iter ? 7 : 0 },
                                      { "i_cv%", "(%)", o->per_iter ? 7 : 0 } };
    int total = 0;
    for (size_t i = 0; i < TEST_ARRAY_LEN(columns); i++) {
        total += columns[i].width > 0 ? columns[i].width + 2 : 0;
    }
    for (int place = 0; place < 2; place++) {
        const char *name = place == 0 ? "out-of-place" : "in-place";
        if (line == 0) {
            printf("%*s%*s", total / 2 + 8, name, total - total / 2 - 8, "");
            continue;
        }
        for (size_t i = 0; i < TEST_ARRAY_LEN(columns); i++) {
            if (columns[i].width > 0) {
                printf("  %*s", columns[i].width, line == 1 ? columns[i].head : columns[i].unit);
            }
        }
    }
    if (line > 0 && o->copy) {
        printf("  %9s  %6s", line == 1 ? "copy" : "(us)", line == 1 ? "excess" : "");
    }
    if (line > 0 && o->timestamps) {
        printf("  %19s", line == 1 ? "timestamp" : "Y-m-d H:M:S");
    }
    printf("\n");
}

void perf_print_title(const char *program)
{
    int version = 0;
    rondo_get_version(&version);
    printf("# %s: Rondo %d.%d.%d, %d rank%s", program, version / 10000, version / 100 % 100, version % 100,
           test.nranks, test.nranks == 1 ? "" : "s");
}

void perf_print_placement(double one_way)
{
    if (test.nranks == 1) {
        printf("#\n");
    } else if (one_way < 0) {
        printf("# Placement: ranks 0 and 1 are %s\n#\n", perf_probe_name(one_way));
    } else {
        printf("# Placement: %s (one-way latency between ranks 0 and 1: %.3f us)\n#\n",
               perf_probe_name(one_way), one_way);
    }
}

static void print_ranks(const struct perf_rank *ranks)
{
    printf("# Using devices\n");
    for (int rank = 0; rank < test.nranks; rank++) {
        const struct perf_rank *r = &ranks[rank];
        printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", rank, 0, r->pid, r->host,
               r->core, r->cores, r->device);
    }
    printf("#\n");
}

void perf_print_header(const struct perf *perf, const struct perf_rank *ranks, double one_way)
{
    static const char *const averages[] = { "rank 0", "average of the ranks", "fastest rank",
                                            "slowest rank" },
                             *const calls[] = { "calls on a stream", "blocking calls and barriers",
                                                "blocking calls", "blocking calls, each alone" };
    const struct perf_options *o = &perf->options;
    perf_print_title(perf->program);
    printf("\n# Collective test starting: %s\n", perf->program);
    printf(
        "# nThread 1 nGpus 1 minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %ld iters: %ld agg iters: "
        "%ld validation: %ld graph: 0 unalign: %ld\n",
        o->min_bytes, o->max_bytes, o->factor > 0 ? o->factor : o->step_bytes,
        o->factor > 0 ? "factor" : "bytes", o->warmup, o->iters, o->aggregate, o->check, o->unalign);
    printf("# Time: %s, %s of the iterations; %s", averages[o->average],
           o->blocking == PERF_EACH ? "median" : "mean", calls[o->blocking]);
    if (o->blocking == PERF_EACH) {
        printf(", ranks start %s", test_start_name());
    }
    printf("\n");
    perf_print_placement(one_way);
    print_ranks(ranks);
    printf("# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    print_columns(perf, 0);
    printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    print_columns(perf, 1);
    printf("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    print_columns(perf, 2);
    fflush(stdout);
}

void perf_print_number(int width, double value)
{
    printf(" %*.*f", width, value < 100 ? 2 : value < 10000 ? 1 : 0, value);
}

static void print_number(int width, double value)
{
    printf(" ");
    perf_print_number(width, value);
}

static void print_missing(int width, int columns)
{
    for (int i = 0; i < columns; i++) {
        printf("  %*s", width, "N/A");
    }
}

static void print_place(const struct perf_options *o, const struct perf_place *place)
{
    if (!place->run) {
        print_missing(7, 1);
        print_missing(6, 3);
        print_missing(7, 2 * o->verbose);
        print_missing(9, o->vs_mpi);
        print_missing(6, o->vs_mpi);
        print_missing(7, 4 * (int)o->per_iter);
        return;
    }
    print_number(7, place->rondo.time);
    printf("  %6.2f  %6.2f", place->algbw, place->busbw);
    if (place->checked) {
        printf("  %6zu", place->wrong);
    } else {
        print_missing(6, 1);
    }
    if (o->verbose) {
        print_number(7, place->rondo.min);
        print_number(7, place->rondo.max);
    }
    if (o->vs_mpi && place->compared) {
        print_number(9, place->mpi.time);
        printf("  %6.2f", place->rondo.time > 0 ? place->mpi.time / place->rondo.time : 0);
    } else if (o->vs_mpi) {
        print_missing(9, 1);
        print_missing(6, 1);
    }
    if (o->per_iter) {
        print_number(7, place->rondo.min);
        print_number(7, place->rondo.max);
        print_number(7, place->rondo.p99);
        print_number(7, place->rondo.cv);
    }
}

void perf_timestamp(char *text, size_t size)
{
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local) == NULL || strftime(text, size, "%Y-%m-%d %H:%M:%S", &local) == 0) {
        snprintf(text, size, "unknown");
    }
}

void perf_print_row(const struct perf *perf, const struct perf_row *row)
{
    const struct perf_options *o = &perf->options;
    char now[32];
    printf("%12zu  %12zu  %8s  %6s  %6d", row->bytes, row->count, test_type_nccl_name(row->type),
           row->op < 0 ? "none" : test_op_nccl_name(row->op), row->root);
    print_place(o, &row->place[0]);
    print_place(o, &row->place[1]);
    if (o->copy && row->copied) {
        print_number(9, row->copy.time);
        printf("  %6.2f", row->excess);
    } else if (o->copy) {
        print_missing(9, 1);
        print_missing(6, 1);
    }
    if (o->timestamps) {
        perf_timestamp(now, sizeof(now));
        printf("  %19s", now);
    }
    printf("\n");
    fflush(stdout);
}

int perf_print_trailer(const struct perf *perf, double one_way)
{
    const char *text = getenv("NCCL_TESTS_MIN_BW");
    double busbw = perf->busbw_count > 0 ? perf->busbw_sum / perf->busbw_count : 0;
    int enough = text == NULL || busbw >= 0.9 * strtod(text, NULL);
    if (one_way >= 0) {
        printf("# Placement at the end: %s (%.3f us)\n", perf_probe_name(one_way), one_way);
    }
    if (perf->options.check > 0) {
        printf("# Out of bounds values : %zu %s\n", perf->wrong, perf->wrong == 0 ? "OK" : "FAILED");
    } else {
        printf("# Out of bounds values : not checked\n");
    }
    printf("# Avg bus bandwidth    : %g %s\n#\n# Collective test concluded: %s\n#\n", busbw,
           text == NULL ? ""
           : enough     ? "OK"
                        : "FAILED",
           perf->program);
    fflush(stdout);
    return enough;
}

/* ---- OSU's columns ---- */

/* "all_reduce" -> "Allreduce" */
static void osu_name(const char *coll, char *name, size_t size)
{
    size_t used = 0;
    for (; *coll != '\0' && used + 1 < size; coll++) {
        if (*coll != '_' || strncmp(coll, "_scatter", 8) == 0) {
            name[used++] = *coll;
        }
    }
    name[used] = '\0';
    name[0] = (char)toupper((unsigned char)name[0]);
}

static int has_size(const struct perf *perf) { return strcmp(perf->coll->name, "barrier") != 0; }

void perf_osu_header(const struct perf *perf)
{
    char name[64];
    osu_name(perf->coll->name, name, sizeof(name));
    perf_print_title(perf->program);
    printf("\n# OSU MPI %s Latency Test, by Rondo\n", name);
    if (has_size(perf)) {
        printf("# Datatype: %s\n%-10s", test_type_nccl_name(perf->options.type), "# Size");
    } else {
        printf("#");
    }
    printf("%*s", has_size(perf) ? 18 : 17, "Avg Latency(us)");
    if (perf->options.verbose) {
        printf("%18s%18s%12s", "Min Latency(us)", "Max Latency(us)", "Iterations");
    }
    printf("\n");
    fflush(stdout);
}

void perf_osu_row(const struct perf *perf, const struct perf_row *row)
{
    const struct perf_times *times = &row->place[0].rondo;
    if (has_size(perf)) {
        printf("%-10zu", row->bytes);
    }
    printf("%18.2f", times->time);
    if (perf->options.verbose) {
        printf("%18.2f%18.2f%12ld", times->min, times->max, perf->options.iters);
    }
    printf("\n");
    fflush(stdout);
}

/* ---- progress ---- */

void perf_progress(const struct perf_row *row, const char *place, long done, long of)
{
    static double last;
    double now;
    if (test.rank != 0 || !isatty(STDERR_FILENO) || (now = test_now()) - last < 0.2) {
        return;
    }
    last = now;
    fprintf(stderr, "\r%zu bytes, %s %s, %s: %ld of %ld\033[K", row->bytes, test_types[row->type].name,
            row->op < 0 ? "none" : test_op_names[row->op], place, done < 0 ? 0 : done, of);
}

void perf_progress_clear(void)
{
    if (test.rank == 0 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K");
    }
}

/* ---- JSON ---- */

static int json_rows;
static double json_start;

int perf_json_open(const struct perf *perf, double one_way)
{
    const struct perf_options *o = &perf->options;
    if (!perf_json_begin(perf->program, o->json)) {
        return 0;
    }
    perf_json_text(",\"iters\":%ld,\"warmup\":%ld,\"aggregate\":%ld,\"check\":%ld,\"blocking\":%ld,"
                   "\"average\":%ld,\"cputime\":%ld,\"vs_mpi\":%s,\"copy\":%s},\n"
                   "\"rows\":[",
                   o->iters, o->warmup, o->aggregate, o->check, o->blocking, o->average, o->cputime,
                   o->vs_mpi ? "true" : "false", o->copy ? "true" : "false");
    json_start = one_way;
    return 1;
}

void perf_json_row(const struct perf_row *row)
{
    for (int i = 0; i < 2; i++) {
        const struct perf_place *place = &row->place[i];
        if (!place->run) {
            continue;
        }
        perf_json_text(
            "%s\n{\"bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"op\":\"%s\",\"root\":%d,\"place\":\"%s\"",
            json_rows++ > 0 ? "," : "", row->bytes, row->count, test_types[row->type].name,
            row->op < 0 ? "none" : test_op_names[row->op], row->root, i == 0 ? "out" : "in");
        perf_json_number("time_us", place->rondo.time, 1);
        perf_json_number("min_us", place->rondo.min, 1);
        perf_json_number("max_us", place->rondo.max, 1);
        perf_json_number("algbw", place->algbw, 1);
        perf_json_number("busbw", place->busbw, 1);
        perf_json_number("wrong", (double)place->wrong, place->checked);
        perf_json_number("mpi_time_us", place->mpi.time, place->compared);
        perf_json_number("p999_us", place->rondo.p999, 1);
        perf_json_number("mpi_p999_us", place->mpi.p999, place->compared);
        perf_json_number("ratio", place->rondo.time > 0 ? place->mpi.time / place->rondo.time : NAN,
                         place->compared);
        perf_json_number("copy_us", row->copy.time, row->copied);
        perf_json_number("excess", row->excess, row->copied);
        perf_json_text("}");
    }
}

int perf_json_close(double one_way, size_t wrong, double busbw)
{
    perf_json_text("\n],\n");
    perf_json_placements(json_start, one_way);
    perf_json_text(",\"wrong\":%zu,\"avg_busbw\":%.9g}\n", wrong, busbw);
    return perf_json_end();
}
