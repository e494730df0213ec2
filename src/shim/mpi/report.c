/* What RONDO_MPI_REPORT prints: for each collective and size class, where its calls went and why. */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "shim/mpi/shim.h"

struct line {
    uint64_t calls, bytes, ns, taken, saved_calls;
    int64_t saved_ns; /* by the taken calls of classes that were measured */
    uint64_t reasons[SHIM_NREASONS];
};
static struct line lines[SHIM_NCOLLS][SHIM_NCLASSES];

#define REASON_TEXT_(ctx, NAME, text) text,
static const char *const reason_texts[] = { SHIM_REASON_TABLE(REASON_TEXT_, ) };

static void add(uint64_t *counter, uint64_t n) { __atomic_add_fetch(counter, n, __ATOMIC_RELAXED); }

void shim_report_add(const struct shim_call *call, int taken, int64_t ns)
{
    struct line *line = &lines[call->coll][shim_class(call->bytes)];
    add(&line->calls, 1);
    add(&line->bytes, call->bytes);
    add(&line->ns, (uint64_t)ns);
    if (!taken) {
        add(&line->reasons[call->reason], 1);
        return;
    }
    add(&line->taken, 1);
    const struct shim_trial *trial = call->cell->trial;
    if (trial != NULL && call->cell->verdict == SHIM_TAKE) {
        add(&line->saved_calls, 1);
        __atomic_add_fetch(&line->saved_ns, (trial->agreed[0] - trial->agreed[1]) / call->c->n,
                           __ATOMIC_RELAXED);
    }
}

/* The reasons of a line, most frequent first, such as "5 early, 8 trial". */
static void reasons_print(FILE *file, const struct line *line, int *seen)
{
    for (int i = 0; i < SHIM_NREASONS; i++) {
        if (line->reasons[i] > 0) {
            fprintf(file, " %llu:%c", (unsigned long long)line->reasons[i], 'a' + i);
            seen[i] = 1;
        }
    }
}

static void size_print(FILE *file, int class)
{
    static const char units[] = { 'B', 'K', 'M', 'G' };
    fprintf(file, "%6u%c", 1U << class % 10, units[class / 10]);
}

static void table_print(FILE *file)
{
    int seen[SHIM_NREASONS] = { 0 };
    double saved = 0, total = 0;
    fprintf(file,
            "# Rondo under MPI, rank 0 (rondo: calls that ran on Rondo; saved: of the classes that were "
            "measured; size: at most)\n");
    fprintf(file, "# %-20s %7s %10s %14s %11s %10s %11s  why the others did not\n", "collective", "size",
            "calls", "bytes", "time (ms)", "rondo", "saved (ms)");
    for (int coll = 0; coll < SHIM_NCOLLS; coll++) {
        for (int class = 0; class < SHIM_NCLASSES; class ++) {
            const struct line *line = &lines[coll][class];
            if (line->calls == 0) {
                continue;
            }
            fprintf(file, "  %-20s ", shim_coll_name((enum shim_coll)coll));
            size_print(file, class);
            fprintf(file, " %10llu %14llu %11.3f %10llu %11.3f ", (unsigned long long)line->calls,
                    (unsigned long long)line->bytes, (double)line->ns / 1e6, (unsigned long long)line->taken,
                    (double)line->saved_ns / 1e6);
            reasons_print(file, line, seen);
            fputc('\n', file);
            saved += (double)line->saved_ns;
            total += (double)line->ns;
        }
    }
    for (int i = 0; i < SHIM_NREASONS; i++) {
        if (seen[i]) {
            fprintf(file, "#   %c: %s\n", 'a' + i, reason_texts[i]);
        }
    }
    fprintf(file, "# time in these calls %.3f ms, saved %.3f ms\n", total / 1e6, saved / 1e6);
}

void shim_report_write(const char *where)
{
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0) {
        return;
    }
    FILE *file = strcmp(where, "1") == 0 ? stderr : fopen(where, "w");
    if (file == NULL) {
        RONDO_WARN("RONDO_MPI_REPORT=%s cannot be written: %s", where, strerror(errno));
        return;
    }
    table_print(file);
    if (file != stderr && fclose(file) != 0) {
        RONDO_WARN("RONDO_MPI_REPORT=%s cannot be written: %s", where, strerror(errno));
    }
}
