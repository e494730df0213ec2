/* rondo-perf: runs a benchmark. The benchmarks are programs of their own, linked with an MPI; this one picks
 * the folder of the MPI that started it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/types.h"
#include "tools/libexec.h"
#include "tools/tool.h"

static const char program[] = "rondo-perf";
static const char suffix[] = "_perf";
/* A benchmark that is always there. */
static const char first[] = "all_reduce_perf";

/* X(ctx, NAME, "--option", arguments, least, most, "group", "help") */
#define PERF_OPTION_TABLE(X, ctx)                                                         \
    X(ctx, MPI, "--mpi", "openmpi|mpich", 1, 1, "Options before the benchmark",           \
      "the MPI, where both are installed (default: the one whose launcher started this)") \
    X(ctx, LIST, "--list", "", 0, 0, "", "list the benchmarks and exit")                  \
    X(ctx, HELP, "-h, --help", "", 0, 0, "", "show this help and exit")                   \
    X(ctx, VERSION, "--version", "", 0, 0, "", "show the library's version and exit")

#define PERF_OPTION_ID(ctx, NAME, ...) PERF_##NAME,
enum perf_option { PERF_OPTION_TABLE(PERF_OPTION_ID, ) PERF_NUM_OPTIONS };
#undef PERF_OPTION_ID
static const struct tool_option table[] = { PERF_OPTION_TABLE(TOOL_OPTION_ROW, ) };

static const struct tool_options options = {
    .program = program,
    .usage = "[OPTION]... BENCHMARK [OPTION OF THE BENCHMARK]...\n"
             "\n"
             "Measure a collective and check its results, in the manner of nccl-tests. Start it with mpirun "
             "or srun.\n"
             "'rondo-perf BENCHMARK --help' shows the benchmark's options, which are nccl-tests'.",
    .outro = "Exit status:\n"
             "  the benchmark's (0 success, 3 library error, 4 timeout, 6 wrong option, 7 wrong results),\n"
             "  1 if it cannot be run, 2 for wrong usage\n"
             "\n"
             "Examples:\n"
             "  mpirun -n 4 rondo-perf all_reduce -b 8 -e 64M -f 2\n"
             "  mpirun -n 2 rondo-perf all_gather -b 8 -e 1M -f 4 --vs mpi\n",
    .option = table,
    .n = PERF_NUM_OPTIONS,
    .help = PERF_HELP,
    .version = PERF_VERSION,
};

/* The length of a benchmark's name without its suffix, or 0. */
static int bare(const char *name)
{
    size_t n = strlen(name), tail = sizeof suffix - 1;
    return n > tail && strcmp(name + n - tail, suffix) == 0 ? (int)(n - tail) : 0;
}

static int is_benchmark(const struct dirent *entry) { return bare(entry->d_name) > 0; }

static int list(const char *mpi)
{
    char folder[PATH_MAX];
    struct dirent **entries;
    int n;
    if (libexec_find(program, mpi, first, folder) != 0) {
        return TOOL_FAILED;
    }
    n = scandir(folder, &entries, is_benchmark, alphasort);
    for (int i = 0; i < n; i++) {
        printf("%.*s\n", bare(entries[i]->d_name), entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return n >= 0 ? 0 : TOOL_FAILED;
}

static int wrong(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s%s%s; try '%s --help'\n", program, what, text[0] ? " " : "", text, program);
    return TOOL_USAGE;
}

/* The options of rondo-perf end where the benchmark's name stands. */
static int own_arguments(int argc, char **argv)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-') {
        at += 1 + (strcmp(argv[at], "--mpi") == 0);
    }
    return at < argc ? at : argc;
}

int main(int argc, char **argv)
{
    int at = own_arguments(argc, argv), code;
    struct tool_given given;
    char name[64], title[80];
    code = tool_options_begin(&options, &given, at, argv);
    if (code >= 0) {
        return code;
    }
    const char *mpi = given.value[PERF_MPI][0];
    if (given.given[PERF_LIST]) {
        return list(mpi);
    }
    if (at == argc) {
        return wrong("expected a benchmark, such as all_reduce", "");
    }
    if (strchr(argv[at], '/') != NULL || strlen(argv[at]) + sizeof suffix > sizeof name) {
        return wrong("expected a benchmark, such as all_reduce, instead of", argv[at]);
    }
    snprintf(name, sizeof name, "%s%s", argv[at], bare(argv[at]) > 0 ? "" : suffix);
    snprintf(title, sizeof title, "%s %.*s", program, bare(name), name);
    argv[at] = title; /* what the benchmark calls itself */
    return libexec_become(program, mpi, name, argv + at);
}
