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

static const char usage[] =
    "usage: mpirun -n RANKS rondo-perf [--mpi MPI] BENCHMARK [OPTION]...\n"
    "       rondo-perf --list\n"
    "\n"
    "Measure a collective and check its results, in the manner of nccl-tests. 'rondo-perf BENCHMARK --help'\n"
    "shows the options, which are nccl-tests'.\n"
    "\n"
    "  --mpi MPI   openmpi or mpich, where both are installed (default: the one whose launcher started "
    "this)\n"
    "  --list      list the benchmarks and exit\n"
    "  -h, --help  show this help and exit\n"
    "\n"
    "Exit status: the benchmark's (0 success, 3 library error, 4 timeout, 6 wrong option, 7 wrong results),\n"
    "1 if it cannot be run, 2 for wrong usage\n"
    "\n"
    "Examples:\n"
    "  mpirun -n 4 rondo-perf all_reduce -b 8 -e 64M -f 2\n"
    "  mpirun -n 2 rondo-perf all_gather --vs mpi\n";

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

int main(int argc, char **argv)
{
    const char *mpi = NULL;
    char name[64], title[80];
    int at = 1;
    if (at + 1 < argc && strcmp(argv[at], "--mpi") == 0) {
        mpi = argv[at + 1];
        at += 2;
    }
    if (at == argc) {
        return wrong("expected a benchmark, such as all_reduce", "");
    }
    if (strcmp(argv[at], "-h") == 0 || strcmp(argv[at], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (strcmp(argv[at], "--list") == 0) {
        return list(mpi);
    }
    if (argv[at][0] == '-' || strchr(argv[at], '/') != NULL ||
        strlen(argv[at]) + sizeof suffix > sizeof name) {
        return wrong("expected a benchmark, such as all_reduce, instead of", argv[at]);
    }
    snprintf(name, sizeof name, "%s%s", argv[at], bare(argv[at]) > 0 ? "" : suffix);
    snprintf(title, sizeof title, "%s %.*s", program, bare(name), name);
    argv[at] = title; /* what the benchmark calls itself */
    return libexec_become(program, mpi, name, argv + at);
}
