/* The output of *_perf: the table, the progress line and the rows of the JSON file. */
#include "perf.h"

#include <math.h>
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
    if (o->copy) {
        printf("   %9s %6s", line == 0 ? "copy" : "(us)", line == 0 ? "excess" : "");
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
    if (one_way < 0) {
        printf("# Placement: ranks 0 and 1 are %s\n#\n", perf_probe_name(one_way));
    } else {
        printf("# Placement: %s (one-way latency between ranks 0 and 1: %.3f us)\n#\n",
               perf_probe_name(one_way), one_way);
    }
}

void perf_print_header(const struct perf *perf, double one_way)
{
    static const char *const averages[] = { "rank 0", "average of the ranks", "fastest rank",
                                            "slowest rank" };
    const struct perf_options *o = &perf->options;
    int width = 33 + 19 * (o->verbose != 0) + 17 * (o->vs_mpi != 0);
    perf_print_title(perf->program);
    printf(", %s, %ld per iteration\n", o->blocking ? "blocking calls" : "calls on a stream", o->aggregate);
    printf("# Time: %s, median of %ld iterations after %ld untimed; ranks start %s\n", averages[o->average],
           o->iters, o->warmup, test_start_name());
    perf_print_placement(one_way);
    printf("#%50s  %*s  %*s\n", "", (width + 12) / 2, "out-of-place", width / 2 + (width + 8) / 2 - 4,
           "in-place");
    printf("#%11s %12s %8s %7s %7s ", "size", "count", "type", "redop", "root");
    print_place_heads(perf, 0);
    printf("#%11s %12s %8s %7s %7s ", "(B)", "(elements)", "", "", "");
    print_place_heads(perf, 1);
    fflush(stdout);
}

void perf_print_number(int width, double value)
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
    perf_print_number(9, place->rondo.median);
    if (o->verbose) {
        perf_print_number(9, place->rondo.min);
        perf_print_number(9, place->rondo.max);
    }
    printf(" %7.2f %7.2f ", place->algbw, place->busbw);
    if (place->checked) {
        printf("%6zu", place->wrong);
    } else {
        printf("%6s", "n/a");
    }
    if (o->vs_mpi && place->compared) {
        perf_print_number(9, place->mpi.median);
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
    if (perf->options.copy && row->copied) {
        printf("  ");
        perf_print_number(9, row->copy.median);
        printf(" %6.2f", row->excess);
    } else if (perf->options.copy) {
        printf("   %9s %6s", "n/a", "n/a");
    }
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
        perf_json_number("time_us", place->rondo.median, 1);
        perf_json_number("min_us", place->rondo.min, 1);
        perf_json_number("max_us", place->rondo.max, 1);
        perf_json_number("algbw", place->algbw, 1);
        perf_json_number("busbw", place->busbw, 1);
        perf_json_number("wrong", (double)place->wrong, place->checked);
        perf_json_number("mpi_time_us", place->mpi.median, place->compared);
        perf_json_number("ratio", place->rondo.median > 0 ? place->mpi.median / place->rondo.median : NAN,
                         place->compared);
        perf_json_number("copy_us", row->copy.median, row->copied);
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
