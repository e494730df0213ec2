/* rondo-explain: what the tuner would choose for a collective, and why. --measure runs rondo-explain-mpi,
 * because only programs under src/tools/mpi know MPI. */
#include <stdio.h>
#include <string.h>
#include "init/node.h"
#include "tools/explain/explain.h"
#include "tools/explain/explain_options.h"
#include "tools/libexec.h"
#include "tools/report.h"
#include "topo/xml/xml.h"

static const char program[] = "rondo-explain";

static int table(const struct tool_given *given, int nodes)
{
    struct report report = { 0 };
    struct report_request ranks = { .ranks = given->value[EXPLAIN_RANKS][0], .nodes = nodes, .graph = -1 };
    struct rondo_explain_request request = { .coll = given->word[0],
                                             .sizes = given->word[1],
                                             .nodes = nodes,
                                             .every = given->given[EXPLAIN_CHANNELS],
                                             .json = given->given[EXPLAIN_JSON] };
    rondo_status status = report_read(&report, given->value[EXPLAIN_FILE][0]);
    request.here = report.here;
    if (status == RONDO_SUCCESS) status = report_compute(&report, &ranks);
    if (status == RONDO_SUCCESS) status = rondo_explain(stdout, report.topo, report.graphs, &request);
    report_release(&report);
    if (status == RONDO_SUCCESS) return 0;
    return tool_fail(program, status == RONDO_INVALID_ARGUMENT || status == RONDO_INVALID_USAGE
                                  ? TOOL_USAGE
                                  : TOOL_FAILED);
}

int main(int argc, char **argv)
{
    struct tool_given given;
    int nodes = 1, code = tool_options_begin(&explain_options, &given, argc, argv);
    if (code >= 0) return code;
    if (given.given[EXPLAIN_MEASURE]) return libexec_become(program, NULL, "rondo-explain-mpi", argv);
    if (given.given[EXPLAIN_OUTPUT] || given.given[EXPLAIN_FACTOR]) {
        fprintf(stderr, "%s: --output and --factor need --measure; try '%s --help'\n", program, program);
        return TOOL_USAGE;
    }
    if (given.nwords < 2) {
        fprintf(stderr, "%s: expected a collective and a size, such as 'all_reduce 64M'; try '%s --help'\n",
                program, program);
        return TOOL_USAGE;
    }
    if (given.given[EXPLAIN_NODES] &&
        (nodes = tool_options_number(&explain_options, &given, EXPLAIN_NODES, 1, REPORT_MAX_NODES)) < 0)
        return TOOL_USAGE;
    code = tool_params_begin(program);
    return code >= 0 ? code : table(&given, nodes);
}
