/* rondo-explain: the tuner's table for a collective, and why it chooses what it does. --measure is the work
 * of rondo-explain-mpi, which knows MPI. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/param.h"
#include "tools/explain/explain.h"
#include "init/node.h"
#include "tools/explain/explain_options.h"
#include "tools/topo_report.h"
#include "topo/xml/xml.h"

static const char program[] = "rondo-explain";

enum { EXIT_RUNTIME = 1, EXIT_USE = 2 };

static int failed(int code)
{
    fprintf(stderr, "%s: %s\n", program, rondo_error_text()[0] ? rondo_error_text() : "failed");
    return code;
}

/* The program beside this one, which takes the same arguments. Returns only after a failure. */
static int measure(char **argv)
{
    char path[PATH_MAX];
    const char suffix[] = "-mpi";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof suffix);
    const char *name = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    if (!name) {
        fprintf(stderr, "%s: where this program lies cannot be told: %s\n", program, strerror(errno));
        return EXIT_RUNTIME;
    }
    snprintf(path + (name - path), sizeof path - (size_t)(name - path), "/%s%s", program, suffix);
    execv(path, argv);
    fprintf(stderr, "%s: --measure needs %s, which cannot be run: %s; was Rondo built with an MPI?\n",
            program, path, strerror(errno));
    return EXIT_RUNTIME;
}

static int table(const struct tool_given *given, int nodes)
{
    struct report report = { 0 };
    struct report_request ranks = { .ranks = given->value[EXPLAIN_RANKS][0], .nodes = nodes, .graph = -1 };
    struct rondo_explain_request request = { .coll = given->word[0],
                                             .sizes = given->word[1],
                                             .nodes = nodes,
                                             .every = given->given[EXPLAIN_CHANNELS],
                                             .json = given->given[EXPLAIN_JSON] };
    const char *file = given->value[EXPLAIN_FILE][0];
    rondo_status status = file ? rondo_machine_read(&report.machine, file)
                               : rondo_node_machine(&report.machine);
    if (status == RONDO_SUCCESS) status = report_compute(&report, &ranks);
    if (status == RONDO_SUCCESS) status = rondo_explain(stdout, report.topo, report.graphs, &request);
    report_release(&report);
    if (status == RONDO_SUCCESS) return 0;
    return failed(status == RONDO_INVALID_ARGUMENT || status == RONDO_INVALID_USAGE ? EXIT_USE
                                                                                    : EXIT_RUNTIME);
}

int main(int argc, char **argv)
{
    struct tool_given given;
    int version = 0, nodes = 1;
    if (tool_options_parse(&explain_options, &given, EXPLAIN_HELP, argc, argv) != 0) return EXIT_USE;
    if (given.given[EXPLAIN_HELP]) {
        tool_options_help(&explain_options);
        return 0;
    }
    if (given.given[EXPLAIN_VERSION]) {
        rondo_get_version(&version);
        printf("%s %d.%d.%d\n", program, version / 10000, version / 100 % 100, version % 100);
        return 0;
    }
    if (given.given[EXPLAIN_MEASURE]) return measure(argv);
    if (given.nwords < 2 || given.given[EXPLAIN_OUTPUT] || given.given[EXPLAIN_FACTOR]) {
        fprintf(stderr,
                "%s: expected a collective and a size; --output and --factor belong to --measure; %s --help "
                "lists all\n",
                program, program);
        return EXIT_USE;
    }
    if (given.given[EXPLAIN_NODES] &&
        (nodes = tool_options_number(&explain_options, &given, EXPLAIN_NODES, 1, REPORT_MAX_NODES)) < 0) {
        return EXIT_USE;
    }
    if (rondo_param_init() != RONDO_SUCCESS) return failed(EXIT_USE);
    /* A failure is one sentence, printed here: the log's copy of it only for those who ask for a log. */
    if (!getenv("RONDO_DEBUG") && !getenv("NCCL_DEBUG")) rondo_log_mask = RONDO_LOG_NONE;
    return table(&given, nodes);
}
