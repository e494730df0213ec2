/* The output of *_perf: the table, the progress line and the JSON file. */
#include "perf.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- the table ---- */

static const char *time_unit(const struct perf *perf) { return perf->options.cputime ? "cpu" : "time"; }

static void print_place_heads(const struct perf *perf, int line)
{
    const struct perf_options *o = &perf->options;
    static const char *const heads[2][5] = { { "algbw", "busbw", "#wrong", "mpi", "ratio" },
                                             { "(GB/s)", "(GB/s)", "", "(us)", "" } };
    for (int place = 0; place < 2; place++) {
        printf("  %9s", line == 0 ? time_unit(perf) : "(us)");
        if (o->verbose) {
            printf(" %9s %9s", line == 0 ? "min" : "(us)", line == 0 ? "max" : "(us)");
        }
        printf(" %7s %7s %6s", heads[line][0], heads[line][1], heads[line][2]);
        if (o->vs_mpi) {
            printf(" %9s %6s", heads[line][3], heads[line][4]);
        }
    }
    printf("\n");
}

void perf_print_header(const struct perf *perf, double one_way)
{
    static const char *const averages[] = { "rank 0", "average of the ranks", "fastest rank",
                                            "slowest rank" };
    const struct perf_options *o = &perf->options;
    int version = 0, width = 33 + 19 * (o->verbose != 0) + 17 * (o->vs_mpi != 0);
    rondo_get_version(&version);
    printf("# %s: Rondo %d.%d.%d, %d rank%s, %s, %ld per iteration\n", perf->program, version / 10000,
           version / 100 % 100, version % 100, test.nranks, test.nranks == 1 ? "" : "s",
           o->blocking ? "blocking calls" : "calls on a stream", o->aggregate);
    printf("# Time: %s, median of %ld iterations after %ld untimed; ranks start %s\n", averages[o->average],
           o->iters, o->warmup, test_start_name());
    if (one_way < 0) {
        printf("# Placement: ranks 0 and 1 are %s\n#\n", perf_probe_name(one_way));
    } else {
        printf("# Placement: %s (one-way latency between ranks 0 and 1: %.3f us)\n#\n",
               perf_probe_name(one_way), one_way);
    }
    printf("#%50s  %*s  %*s\n", "", (width + 12) / 2, "out-of-place", width / 2 + (width + 8) / 2 - 4,
           "in-place");
    printf("#%11s %12s %8s %7s %7s ", "size", "count", "type", "redop", "root");
    print_place_heads(perf, 0);
    printf("#%11s %12s %8s %7s %7s ", "(B)", "(elements)", "", "", "");
    print_place_heads(perf, 1);
    fflush(stdout);
}

static void print_number(int width, double value)
{
    printf(" %*.*f", width, value < 100 ? 2 : value < 10000 ? 1 : 0, value);
}

static void print_place(const struct perf_options *o, const struct perf_place *place)
{
    printf(" ");
    if (!place->run) {
        printf(" %9s", "n/a");
        printf(o->verbose ? " %9s %9s" : "", "n/a", "n/a");
        printf(" %7s %7s %6s", "n/a", "n/a", "n/a");
        printf(o->vs_mpi ? " %9s %6s" : "", "n/a", "n/a");
        return;
    }
    print_number(9, place->rondo.median);
    if (o->verbose) {
        print_number(9, place->rondo.min);
        print_number(9, place->rondo.max);
    }
    printf(" %7.2f %7.2f ", place->algbw, place->busbw);
    if (place->checked) {
        printf("%6zu", place->wrong);
    } else {
        printf("%6s", "n/a");
    }
    if (o->vs_mpi && place->compared) {
        print_number(9, place->mpi.median);
        printf(" %6.2f", place->rondo.median > 0 ? place->mpi.median / place->rondo.median : 0);
    } else if (o->vs_mpi) {
        printf(" %9s %6s", "n/a", "n/a");
    }
}

void perf_print_row(const struct perf *perf, const struct perf_row *row)
{
    printf("%12zu %12zu %8s %7s %7d ", row->bytes, row->count, test_types[row->type].name,
           row->op < 0 ? "none" : test_op_names[row->op], row->root);
    print_place(&perf->options, &row->place[0]);
    print_place(&perf->options, &row->place[1]);
    printf("\n");
    fflush(stdout);
}

void perf_print_trailer(const struct perf *perf, double one_way)
{
    if (one_way >= 0) {
        printf("# Placement at the end: %s (%.3f us)\n", perf_probe_name(one_way), one_way);
    }
    if (perf->options.check > 0) {
        printf("# Out of bounds values : %zu %s\n", perf->wrong, perf->wrong == 0 ? "OK" : "FAILED");
    } else {
        printf("# Out of bounds values : not checked\n");
    }
    printf("# Avg bus bandwidth    : %g\n#\n",
           perf->busbw_count > 0 ? perf->busbw_sum / perf->busbw_count : 0);
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

static FILE *json;
static char json_name[PATH_MAX], json_part[PATH_MAX + 8];
static int json_rows;
static double json_start;

static void json_string(const char *text)
{
    fputc('"', json);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(json, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            fprintf(json, "\\u%04x", *c); /* reading other bytes as Latin-1 is always valid */
        } else {
            fputc(*c, json);
        }
    }
    fputc('"', json);
}

static void json_number(const char *name, double value, int known)
{
    if (known && isfinite(value)) {
        fprintf(json, ",\"%s\":%.9g", name, value);
    } else {
        fprintf(json, ",\"%s\":null", name);
    }
}

static void json_placement(double one_way)
{
    if (one_way < 0) {
        fprintf(json, "null");
    } else {
        fprintf(json, "{\"one_way_us\":%.4f,\"cores\":\"%s\"}", one_way, perf_probe_name(one_way));
    }
}

int perf_json_open(const struct perf *perf, double one_way)
{
    const struct perf_options *o = &perf->options;
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME];
    int len, version = 0;
    /* Rename the file when it is complete, so that readers always see valid JSON. */
    snprintf(json_part, sizeof(json_part), "%s.part", o->json);
    snprintf(json_name, sizeof(json_name), "%s", o->json);
    json = fopen(json_part, "w");
    if (json == NULL) {
        fprintf(stderr, "%s: cannot write %s: %s\n", perf->program, json_part, strerror(errno));
        return 0;
    }
    MPI_Get_library_version(mpi, &len);
    MPI_Get_processor_name(host, &len);
    rondo_get_version(&version);
    fprintf(json, "{\"config\":{\"program\":");
    json_string(perf->program);
    fprintf(json, ",\"host\":");
    json_string(host);
    fprintf(json, ",\"mpi\":");
    json_string(mpi);
    fprintf(json,
            ",\"rondo_version\":%d,\"ranks\":%d,\"iters\":%ld,\"warmup\":%ld,\"aggregate\":%ld,\"check\":%ld,"
            "\"blocking\":%ld,"
            "\"average\":%ld,\"cputime\":%ld,\"vs_mpi\":%s},\n\"rows\":[",
            version, test.nranks, o->iters, o->warmup, o->aggregate, o->check, o->blocking, o->average,
            o->cputime, o->vs_mpi ? "true" : "false");
    json_start = one_way;
    return 1;
}

void perf_json_row(const struct perf_row *row)
{
    for (int i = 0; i < 2 && json != NULL; i++) {
        const struct perf_place *place = &row->place[i];
        if (!place->run) {
            continue;
        }
        fprintf(json,
                "%s\n{\"bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"op\":\"%s\",\"root\":%d,\"place\":\"%s\"",
                json_rows++ > 0 ? "," : "", row->bytes, row->count, test_types[row->type].name,
                row->op < 0 ? "none" : test_op_names[row->op], row->root, i == 0 ? "out" : "in");
        json_number("time_us", place->rondo.median, 1);
        json_number("min_us", place->rondo.min, 1);
        json_number("max_us", place->rondo.max, 1);
        json_number("algbw", place->algbw, 1);
        json_number("busbw", place->busbw, 1);
        json_number("wrong", (double)place->wrong, place->checked);
        json_number("mpi_time_us", place->mpi.median, place->compared);
        json_number("ratio", place->rondo.median > 0 ? place->mpi.median / place->rondo.median : NAN,
                    place->compared);
        fputc('}', json);
    }
}

int perf_json_close(double one_way, size_t wrong, double busbw)
{
    int failed;
    if (json == NULL) {
        return 1;
    }
    fprintf(json, "\n],\n\"placement\":{\"start\":");
    json_placement(json_start);
    fprintf(json, ",\"end\":");
    json_placement(one_way);
    fprintf(json, "},\"wrong\":%zu,\"avg_busbw\":%.9g}\n", wrong, busbw);
    failed = ferror(json);
    failed |= fclose(json) != 0;
    json = NULL;
    return !failed && rename(json_part, json_name) == 0;
}
