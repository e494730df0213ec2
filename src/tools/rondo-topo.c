/* rondo-topo: a machine as Rondo sees it: what is in it, the paths between its devices, and the rings and
 * trees over them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/param.h"
#include "tools/explain/explain.h"
#include "init/node.h"
#include "tools/topo_options.h"
#include "tools/topo_report.h"
#include "tools/simulate.h"
#include "topo/stitch.h"
#include "topo/xml/xml.h"

static const char program[] = "rondo-topo";

enum { EXIT_RUNTIME = 1, EXIT_USE = 2 };

static int failed(int code)
{
    fprintf(stderr, "%s: %s\n", program, rondo_error_text()[0] ? rondo_error_text() : "failed");
    return code;
}

/* ---- under a launcher ---- */

/* The first of the variables that is a number, or -1. */
static int64_t number_of(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        int64_t value;
        if (text && rondo_parse_int(text, &value) == 0) return value;
    }
    return -1;
}

static int64_t launched_local_rank(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID",
                                         NULL };
    return number_of(names);
}

static int launched_several_nodes(void)
{
    static const char *const size[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL };
    static const char *const local[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL };
    static const char *const nodes[] = { "SLURM_STEP_NUM_NODES", NULL };
    int64_t n = number_of(local);
    return n > 0 ? number_of(size) > n : number_of(nodes) > 1;
}

/* ---- inputs ---- */

/* A file that a person named: not there is wrong use, not failure. */
static int machine_load(struct rondo_machine *machine, const struct tool_given *given)
{
    const char *file = given->value[TOPO_FILE][0];
    if (file) return rondo_machine_read(machine, file) == RONDO_SUCCESS ? 0 : failed(EXIT_USE);
    if (rondo_node_machine(machine) == RONDO_SUCCESS) return 0;
    return failed(rondo_params()->topo_file[0] ? EXIT_USE : EXIT_RUNTIME);
}

static int graph_named(const char *name)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (strcmp(rondo_graph_name(id), name) == 0) return id;
    }
    fprintf(stderr, "%s: --graph %s: one of", program, name);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++)
        fprintf(stderr, "%s %s", id ? "," : "", rondo_graph_name(id));
    fputs(" was expected\n", stderr);
    return -1;
}

static int request_fill(struct report_request *request, const struct tool_given *given)
{
    *request = (struct report_request){ .ranks = given->value[TOPO_RANKS][0],
                                        .graph_file = given->value[TOPO_GRAPH_FILE][0],
                                        .nodes = 1,
                                        .graph = -1 };
    if (!request->graph_file && rondo_params()->graph_file[0])
        request->graph_file = rondo_params()->graph_file;
    if (given->given[TOPO_NODES])
        request->nodes = tool_options_number(&topo_options, given, TOPO_NODES, 1, REPORT_MAX_NODES);
    /* The channels of a job of several nodes go through its nets. */
    if (given->given[TOPO_SIMULATE] && !given->given[TOPO_NODES])
        request->nodes = tool_options_number(&topo_options, given, TOPO_SIMULATE, 1, REPORT_MAX_NODES);
    if (given->given[TOPO_GRAPH]) request->graph = graph_named(given->value[TOPO_GRAPH][0]);
    return request->nodes < 0 || (given->given[TOPO_GRAPH] && request->graph < 0) ? EXIT_USE : 0;
}

/* ---- outputs ---- */

/* Write by a function of a stream, to a file or, for "-", standard output. */
static int file_put(const char *file, rondo_status (*put)(FILE *out, const struct report *report, int graph),
                    const struct report *report, int graph)
{
    int standard = strcmp(file, "-") == 0;
    FILE *out = standard ? stdout : fopen(file, "w");
    if (!out) {
        fprintf(stderr, "%s: cannot write %s: %s\n", program, file, strerror(errno));
        return EXIT_RUNTIME;
    }
    rondo_status status = put(out, report, graph);
    if (!standard && fclose(out) != 0 && status == RONDO_SUCCESS) {
        fprintf(stderr, "%s: cannot write %s: %s\n", program, file, strerror(errno));
        return EXIT_RUNTIME;
    }
    return status == RONDO_SUCCESS ? 0 : failed(EXIT_RUNTIME);
}

static rondo_status svg_put(FILE *out, const struct report *report, int graph)
{
    return rondo_draw_svg(out, report->topo, report->graphs, graph < 0 ? RONDO_GRAPH_RING : graph);
}

static rondo_status html_put(FILE *out, const struct report *report, int graph)
{
    (void)graph;
    return rondo_draw_html(out, report->topo, report->graphs);
}

static rondo_status json_put(FILE *out, const struct report *report, int graph)
{
    (void)graph;
    return rondo_draw_json(out, report->topo, report->graphs, report->search_ms);
}

static int to_stdout(const char *file) { return !file || strcmp(file, "-") == 0; }

/* Print text that was made, and free it. */
static int text_print(rondo_status status, char *text)
{
    if (status != RONDO_SUCCESS) return failed(EXIT_RUNTIME);
    int bad = fputs(text, stdout) == EOF || fflush(stdout) != 0;
    free(text);
    if (bad) fprintf(stderr, "%s: cannot write: %s\n", program, strerror(errno));
    return bad ? EXIT_RUNTIME : 0;
}

static int xml_put(const char *file, const struct rondo_machine *machine)
{
    char *text = NULL;
    if (!to_stdout(file))
        return rondo_machine_write(machine, file) == RONDO_SUCCESS ? 0 : failed(EXIT_RUNTIME);
    rondo_status status = rondo_machine_text(machine, &text);
    return text_print(status, text);
}

static int graph_xml_put(const char *file, const struct report *report)
{
    char *text = NULL;
    if (!to_stdout(file))
        return rondo_graphs_write(report->graphs, report->topo, file) == RONDO_SUCCESS ? 0
                                                                                       : failed(EXIT_RUNTIME);
    rondo_status status = rondo_graphs_text(report->graphs, report->topo, &text);
    return text_print(status, text);
}

static int point_named(const struct rondo_topo *topo, const char *name)
{
    char text[96];
    int point = rondo_topo_point_find(topo, name);
    if (point >= 0) return point;
    fprintf(stderr, "%s: nothing is called %s here; there are", program, name);
    for (int p = 0; p < topo->npoints && p < 64; p++) {
        fprintf(stderr, "%s %s", p ? "," : "", rondo_topo_point_name(topo, p, text, sizeof text));
    }
    fputs(topo->npoints > 64 ? " and more\n" : "\n", stderr);
    return -1;
}

static int why_put(const struct rondo_draw *draw, const struct report *report, const char *from,
                   const char *to)
{
    int a = point_named(report->topo, from), b = a < 0 ? -1 : point_named(report->topo, to);
    if (b < 0) return EXIT_USE;
    return rondo_draw_why(draw, report->topo, a, b) == RONDO_SUCCESS ? 0 : failed(EXIT_RUNTIME);
}

static int simulate_put(const struct report *report, const struct tool_given *given)
{
    int nodes = tool_options_number(&topo_options, given, TOPO_SIMULATE, 1, REPORT_MAX_NODES);
    if (nodes < 0) return EXIT_USE;
    return rondo_job_simulate(report->topo, report->graphs, nodes, stdout) == RONDO_SUCCESS
               ? 0
               : failed(EXIT_RUNTIME);
}

static int explain_put(const struct report *report, const struct report_request *request,
                       const char *const *value)
{
    struct rondo_explain_request asked = { .coll = value[0], .sizes = value[1], .nodes = request->nodes };
    rondo_status status = rondo_explain(stdout, report->topo, report->graphs, &asked);
    if (status == RONDO_SUCCESS) return 0;
    return failed(status == RONDO_INVALID_ARGUMENT || status == RONDO_INVALID_USAGE ? EXIT_USE
                                                                                    : EXIT_RUNTIME);
}

static int compare(const char *const *file)
{
    struct rondo_machine a = { 0 }, b = { 0 };
    char *text = NULL;
    int n = 0, code = 0;
    if (rondo_machine_read(&a, file[0]) != RONDO_SUCCESS ||
        rondo_machine_read(&b, file[1]) != RONDO_SUCCESS ||
        rondo_machine_diff(&a, &b, &text, &n) != RONDO_SUCCESS) {
        code = failed(EXIT_USE);
    } else if (n > 0) {
        printf("here: %s\nthere: %s\n%s", file[0], file[1], text);
        code = EXIT_RUNTIME;
    }
    free(text);
    rondo_machine_release(&a);
    rondo_machine_release(&b);
    return code;
}

/* ---- the parts that were asked for; without any, the report ---- */

static int text_put(const struct rondo_draw *draw, const struct report *report,
                    const struct report_request *request)
{
    if (launched_several_nodes()) {
        printf(
            "node %s, machine %016llx (for a report of all nodes, equal ones folded, run rondo-topo-mpi)\n",
            rondo_log_host(), (unsigned long long)rondo_machine_hash(&report->machine));
    }
    return report_print(draw, report, request) == RONDO_SUCCESS ? 0 : failed(EXIT_RUNTIME);
}

static int outputs(const struct rondo_draw *draw, const struct report *report,
                   const struct report_request *request, const struct tool_given *given)
{
    static const struct {
        enum topo_option option;
        rondo_status (*put)(FILE *out, const struct report *report, int graph);
    } files[] = { { TOPO_JSON, json_put }, { TOPO_SVG, svg_put }, { TOPO_HTML, html_put } };
    const char *const(*value)[2] = given->value;
    int code = 0, done = given->given[TOPO_DUMP_XML];
    for (size_t i = 0; i < RONDO_COUNTOF(files) && code == 0; i++) {
        if (!given->given[files[i].option]) continue;
        const char *file = value[files[i].option][0];
        code = file_put(file ? file : "-", files[i].put, report, request->graph);
        done++;
    }
    if (code == 0 && given->given[TOPO_DUMP_GRAPH] && ++done)
        code = graph_xml_put(value[TOPO_DUMP_GRAPH][0], report);
    if (code == 0 && given->given[TOPO_WHY] && ++done)
        code = why_put(draw, report, value[TOPO_WHY][0], value[TOPO_WHY][1]);
    if (code == 0 && given->given[TOPO_SIMULATE] && ++done) code = simulate_put(report, given);
    if (code == 0 && given->given[TOPO_EXPLAIN] && ++done)
        code = explain_put(report, request, value[TOPO_EXPLAIN]);
    if (code == 0 && !done) code = text_put(draw, report, request);
    return code;
}

/* --dump-xml alone needs no paths, so that it works on any machine. */
static int only_xml(const struct tool_given *given)
{
    return given->given[TOPO_DUMP_XML] && !given->given[TOPO_JSON] && !given->given[TOPO_SVG] &&
           !given->given[TOPO_HTML] && !given->given[TOPO_DUMP_GRAPH] && !given->given[TOPO_WHY] &&
           !given->given[TOPO_SIMULATE] && !given->given[TOPO_EXPLAIN];
}

/* Two documents in one stream are neither. */
static int one_on_stdout(const struct tool_given *given)
{
    static const enum topo_option documents[] = { TOPO_JSON, TOPO_SVG, TOPO_HTML, TOPO_DUMP_XML,
                                                  TOPO_DUMP_GRAPH };
    int n = 0;
    for (size_t i = 0; i < RONDO_COUNTOF(documents); i++) {
        const char *file = given->value[documents[i]][0];
        n += given->given[documents[i]] && (file == NULL || strcmp(file, "-") == 0);
    }
    if (n > 1) {
        fprintf(stderr, "%s: %d documents would go to standard output: give each but one a FILE\n", program,
                n);
    }
    return n <= 1;
}

static int run(const struct tool_given *given)
{
    struct report report = { 0 };
    struct report_request request;
    struct rondo_draw draw;
    int width = -1;
    if (!one_on_stdout(given)) return EXIT_USE;
    if (given->given[TOPO_WIDTH] &&
        (width = tool_options_number(&topo_options, given, TOPO_WIDTH, 0, 10000)) < 0)
        return EXIT_USE;
    const char *color = given->value[TOPO_COLOR][0];
    /* A launcher's processes may write to a terminal of its own, whose text then goes to a file. */
    if (!color && launched_local_rank() >= 0) color = "never";
    if (report_terminal(&draw, stdout, color, width) != 0) {
        fprintf(stderr, "%s: --color %s: auto, always or never was expected\n", program, color);
        return EXIT_USE;
    }
    draw.bandwidth = given->given[TOPO_BANDWIDTH];
    draw.all = given->given[TOPO_ALL];
    int code = request_fill(&request, given);
    if (code == 0) code = machine_load(&report.machine, given);
    if (code == 0 && given->given[TOPO_DUMP_XML])
        code = xml_put(given->value[TOPO_DUMP_XML][0], &report.machine);
    if (code == 0 && !only_xml(given)) {
        rondo_status status = report_compute(&report, &request);
        code = status == RONDO_SUCCESS ? outputs(&draw, &report, &request, given)
                                       : failed(status == RONDO_INVALID_ARGUMENT ? EXIT_USE : EXIT_RUNTIME);
    }
    report_release(&report);
    return code;
}

int main(int argc, char **argv)
{
    struct tool_given given;
    int version = 0;
    if (tool_options_parse(&topo_options, &given, TOPO_HELP, argc, argv) != 0) return EXIT_USE;
    if (given.given[TOPO_HELP]) {
        tool_options_help(&topo_options);
        return 0;
    }
    if (given.given[TOPO_VERSION]) {
        rondo_get_version(&version);
        printf("%s %d.%d.%d\n", program, version / 10000, version / 100 % 100, version % 100);
        return 0;
    }
    if (launched_local_rank() > 0) return 0;
    if (rondo_param_init() != RONDO_SUCCESS) return failed(EXIT_USE);
    /* A failure is one sentence, printed here: the log's copy of it only for those who ask for a log. */
    if (!getenv("RONDO_DEBUG") && !getenv("NCCL_DEBUG")) rondo_log_mask = RONDO_LOG_NONE;
    if (given.given[TOPO_COMPARE]) return compare(given.value[TOPO_COMPARE]);
    return run(&given);
}
