/* rondo-topo: show a machine as Rondo sees it: its devices, the paths between them, the rings and trees. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/param.h"
#include "tools/explain/explain.h"
#include "tools/libexec.h"
#include "init/node.h"
#include "tools/report.h"
#include "tools/simulate.h"
#include "tools/tool.h"
#include "topo/xml/xml.h"

static const char program[] = "rondo-topo";

/* ---- options ---- */

/* X(ctx, NAME, "--option", arguments, least, most, "group", "help"): takes least to most arguments */
#define TOPO_OPTION_TABLE(X, ctx)                                                                            \
    X(ctx, FILE, "--file", "FILE", 1, 1, "Machine (default: this one)",                                      \
      "read the machine from FILE, NCCL's topology XML or hwloc's XML (default: RONDO_TOPO_FILE or "         \
      "NCCL_TOPO_FILE)")                                                                                     \
    X(ctx, RANKS, "--ranks", "LIST", 1, 1, "",                                                               \
      "the ranks of a node: GPUs (\"0,2,5-7\"), or ranks in host memory (\"n4\": four); default: all GPUs, " \
      "else "                                                                                                \
      "one a core")                                                                                          \
    X(ctx, NODES, "--nodes", "N", 1, 1, "", "assume a job of N such nodes, and show the rings across them")  \
    X(ctx, GRAPH_FILE, "--graph-file", "FILE", 1, 1, "",                                                     \
      "read the channels from FILE (NCCL's graph XML) instead of searching for them")                        \
    X(ctx, GRAPH, "--graph", "ring|tree", 1, 1, "Output (default: the machine, its paths and its channels)", \
      "show only this graph")                                                                                \
    X(ctx, MATRIX, "-m, --matrix", "", 0, 0, "", "show only the path matrix")                                \
    X(ctx, BANDWIDTH, "--bandwidth", "", 0, 0, "", "show GB/s in the path matrix")                           \
    X(ctx, ALL, "--all", "", 0, 0, "",                                                                       \
      "do not fold equal hosts, devices and channels; draw each host, and all channels of more than 16 "     \
      "devices")                                                                                             \
    X(ctx, WHY, "--why", "A B", 2, 2, "",                                                                    \
      "explain the path from A to B hop by hop, and why P2P, GPUDirect and PXN are used or not; A and B: "   \
      "GPU0, NET1, CPU0, mlx5_1 or a PCI bus id")                                                            \
    X(ctx, SIMULATE, "--simulate", "N", 1, 1, "",                                                            \
      "measure the time and memory that the start of a job of N such nodes takes to join their channels")    \
    X(ctx, EXPLAIN, "--explain", "COLL SIZE", 2, 2, "",                                                      \
      "show what the tuner would choose for a collective (all_reduce, ...) of SIZE bytes (64M, or a range, " \
      "8:128M); see rondo-explain")                                                                          \
    X(ctx, JOB, "--job", "", 0, 0, "",                                                                       \
      "under mpirun or srun: show the machines of all nodes of the job, equal ones once, and nothing else")  \
    X(ctx, COMPARE, "--compare", "A B", 2, 2, "", "compare two machine files; exit status as diff's")        \
    X(ctx, JSON, "--json", "[FILE]", 0, 1, "Formats (FILE '-', or none: standard output)",                   \
      "write everything as JSON (described in src/tools/JSON.md)")                                           \
    X(ctx, SVG, "--svg", "FILE", 1, 1, "", "draw the ring, or the graph of --graph")                         \
    X(ctx, HTML, "--html", "FILE", 1, 1, "", "draw a page that switches graphs and channels on and off")     \
    X(ctx, DUMP_XML, "--dump-xml", "[FILE]", 0, 1, "", "write the machine as NCCL's topology XML")           \
    X(ctx, DUMP_GRAPH, "--dump-graph", "[FILE]", 0, 1, "", "write the channels as NCCL's graph XML")         \
    X(ctx, COLOR, "--color", "WHEN", 1, 1, "Other",                                                          \
      "use colors: always, never or auto (default: on a terminal, unless NO_COLOR is set)")                  \
    X(ctx, WIDTH, "--width", "COLUMNS", 1, 1, "",                                                            \
      "wrap the text at this width; 0: never (default: the terminal's width)")                               \
    X(ctx, HELP, "-h, --help", "", 0, 0, "", "show this help and exit")                                      \
    X(ctx, VERSION, "--version", "", 0, 0, "", "show the library's version and exit")

#define ID_(ctx, NAME, ...) TOPO_##NAME,
enum topo_option { TOPO_OPTION_TABLE(ID_, ) TOPO_NUM_OPTIONS };
#undef ID_

static const struct tool_option option_table[] = { TOPO_OPTION_TABLE(TOOL_OPTION_ROW, ) };
_Static_assert((int)TOPO_NUM_OPTIONS <= (int)TOOL_MAX_OPTIONS, "TOOL_MAX_OPTIONS is too small");

static const struct tool_options topo_options = {
    .program = program,
    .usage = "[OPTION]...\n"
             "\n"
             "Show a machine as Rondo sees it: its NUMA nodes, GPUs and network ports, the paths between "
             "them, and\n"
             "the rings and trees that Rondo builds on them.",
    .outro = "Exit status:\n"
             "  0  success\n"
             "  1  failure, or --compare found differences\n"
             "  2  wrong usage, or a file that cannot be read\n"
             "\n"
             "Under mpirun or srun the first process of each node prints a report; with --job one report\n"
             "covers the whole job.\n"
             "\n"
             "Examples:\n"
             "  rondo-topo                           show this machine\n"
             "  rondo-topo --file dgx.xml --nodes 4  show the channels of a job on four such machines\n"
             "  rondo-topo -m --bandwidth            the matrix of GB/s\n"
             "  rondo-topo --why GPU0 mlx5_3         explain one path\n"
             "  rondo-topo --html topo.html          draw an interactive page\n",
    .option = option_table,
    .n = TOPO_NUM_OPTIONS,
    .help = TOPO_HELP,
    .version = TOPO_VERSION,
};

/* ---- under a launcher ---- */

/* @return the value of the first variable that is a number, or -1. */
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

/* A file that the user named and that cannot be read is wrong usage, not a failure. */
static int machine_load(struct report *report, const struct tool_given *given)
{
    if (report_read(report, given->value[TOPO_FILE][0]) == RONDO_SUCCESS) return 0;
    return tool_fail(program, report->here ? TOOL_FAILED : TOOL_USAGE);
}

static int graph_named(const char *name)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (strcmp(rondo_graph_name(id), name) == 0) return id;
    }
    fprintf(stderr, "%s: --graph '%s': expected one of", program, name);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++)
        fprintf(stderr, "%s %s", id ? "," : "", rondo_graph_name(id));
    fputc('\n', stderr);
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
    /* The channels of a job of several nodes pass through its nets. */
    if (given->given[TOPO_SIMULATE] && !given->given[TOPO_NODES])
        request->nodes = tool_options_number(&topo_options, given, TOPO_SIMULATE, 1, REPORT_MAX_NODES);
    if (given->given[TOPO_GRAPH]) request->graph = graph_named(given->value[TOPO_GRAPH][0]);
    return request->nodes < 0 || (given->given[TOPO_GRAPH] && request->graph < 0) ? TOOL_USAGE : 0;
}

/* ---- outputs ---- */

/* Call put() on a file, or on standard output for "-". */
static int file_put(const char *file, rondo_status (*put)(FILE *out, const struct report *report, int graph),
                    const struct report *report, int graph)
{
    int standard = strcmp(file, "-") == 0;
    FILE *out = standard ? stdout : fopen(file, "w");
    if (!out) {
        fprintf(stderr, "%s: cannot write %s: %s\n", program, file, strerror(errno));
        return TOOL_FAILED;
    }
    rondo_status status = put(out, report, graph);
    if (!standard && fclose(out) != 0 && status == RONDO_SUCCESS) {
        fprintf(stderr, "%s: cannot write %s: %s\n", program, file, strerror(errno));
        return TOOL_FAILED;
    }
    return status == RONDO_SUCCESS ? 0 : tool_fail(program, TOOL_FAILED);
}

static int draw_all; /* --all */

static rondo_status svg_put(FILE *out, const struct report *report, int graph)
{
    return rondo_draw_svg(out, report->topo, report->graphs, graph < 0 ? RONDO_GRAPH_RING : graph, draw_all);
}

static rondo_status html_put(FILE *out, const struct report *report, int graph)
{
    (void)graph;
    return rondo_draw_html(out, report->topo, report->graphs, draw_all);
}

static rondo_status json_put(FILE *out, const struct report *report, int graph)
{
    (void)graph;
    return rondo_draw_json(out, report->topo, report->graphs, report->search_ms);
}

static int to_stdout(const char *file) { return !file || strcmp(file, "-") == 0; }

/* Print the text, and free it. */
static int text_print(rondo_status status, char *text)
{
    if (status != RONDO_SUCCESS) return tool_fail(program, TOOL_FAILED);
    int bad = fputs(text, stdout) == EOF || fflush(stdout) != 0;
    free(text);
    if (bad) fprintf(stderr, "%s: cannot write: %s\n", program, strerror(errno));
    return bad ? TOOL_FAILED : 0;
}

static int xml_put(const char *file, const struct rondo_machine *machine)
{
    char *text = NULL;
    if (!to_stdout(file))
        return rondo_machine_write(machine, file) == RONDO_SUCCESS ? 0 : tool_fail(program, TOOL_FAILED);
    rondo_status status = rondo_machine_text(machine, &text);
    return text_print(status, text);
}

static int graph_xml_put(const char *file, const struct report *report)
{
    char *text = NULL;
    if (!to_stdout(file))
        return rondo_graphs_write(report->graphs, report->topo, file) == RONDO_SUCCESS
                   ? 0
                   : tool_fail(program, TOOL_FAILED);
    rondo_status status = rondo_graphs_text(report->graphs, report->topo, &text);
    return text_print(status, text);
}

static int point_named(const struct rondo_topo *topo, const char *name)
{
    char text[96];
    int point = rondo_topo_point_find(topo, name);
    if (point >= 0) return point;
    fprintf(stderr, "%s: this machine has no '%s'; it has", program, name);
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
    if (b < 0) return TOOL_USAGE;
    return rondo_draw_why(draw, report->topo, a, b) == RONDO_SUCCESS ? 0 : tool_fail(program, TOOL_FAILED);
}

static int simulate_put(const struct report *report, const struct tool_given *given)
{
    int nodes = tool_options_number(&topo_options, given, TOPO_SIMULATE, 1, REPORT_MAX_NODES);
    if (nodes < 0) return TOOL_USAGE;
    return rondo_job_simulate(report->topo, report->graphs, nodes, stdout) == RONDO_SUCCESS
               ? 0
               : tool_fail(program, TOOL_FAILED);
}

static int explain_put(const struct report *report, const struct report_request *request,
                       const char *const *value)
{
    struct rondo_explain_request asked = {
        .coll = value[0], .sizes = value[1], .nodes = request->nodes, .here = report->here
    };
    rondo_status status = rondo_explain(stdout, report->topo, report->graphs, &asked);
    if (status == RONDO_SUCCESS) return 0;
    return tool_fail(program, status == RONDO_INVALID_ARGUMENT || status == RONDO_INVALID_USAGE
                                  ? TOOL_USAGE
                                  : TOOL_FAILED);
}

static int compare(const char *const *file)
{
    struct rondo_machine a = { 0 }, b = { 0 };
    char *text = NULL;
    int n = 0, code = 0;
    if (rondo_machine_read(&a, file[0]) != RONDO_SUCCESS ||
        rondo_machine_read(&b, file[1]) != RONDO_SUCCESS ||
        rondo_machine_diff(&a, &b, &text, &n) != RONDO_SUCCESS) {
        code = tool_fail(program, TOOL_USAGE);
    } else if (n > 0) {
        printf("here: %s\nthere: %s\n%s", file[0], file[1], text);
        code = TOOL_FAILED;
    }
    free(text);
    rondo_machine_release(&a);
    rondo_machine_release(&b);
    return code;
}

/* ---- what the options ask for; by default, the report ---- */

static int text_put(const struct rondo_draw *draw, const struct report *report,
                    const struct report_request *request)
{
    if (launched_several_nodes()) {
        printf("node %s, machine %016llx (for one report about all nodes: rondo-topo --job)\n",
               rondo_log_host(), (unsigned long long)rondo_machine_hash(&report->machine));
    }
    return report_print(draw, report, request) == RONDO_SUCCESS ? 0 : tool_fail(program, TOOL_FAILED);
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
    draw_all = given->given[TOPO_ALL];
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
    if (code == 0 && given->given[TOPO_MATRIX] && ++done)
        code = rondo_draw_matrix(draw, report->topo) == RONDO_SUCCESS ? 0 : tool_fail(program, TOOL_FAILED);
    if (code == 0 && !done) code = text_put(draw, report, request);
    return code;
}

/* --dump-xml alone computes no paths, so that it works on any machine. */
static int only_xml(const struct tool_given *given)
{
    return given->given[TOPO_DUMP_XML] && !given->given[TOPO_JSON] && !given->given[TOPO_SVG] &&
           !given->given[TOPO_HTML] && !given->given[TOPO_DUMP_GRAPH] && !given->given[TOPO_WHY] &&
           !given->given[TOPO_SIMULATE] && !given->given[TOPO_EXPLAIN] && !given->given[TOPO_MATRIX];
}

/* Two documents in one stream are unreadable. */
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
        fprintf(stderr, "%s: %d documents would go to standard output: give all but one a FILE\n", program,
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
    if (!one_on_stdout(given)) return TOOL_USAGE;
    if (given->given[TOPO_WIDTH] &&
        (width = tool_options_number(&topo_options, given, TOPO_WIDTH, 0, 10000)) < 0)
        return TOOL_USAGE;
    const char *color = given->value[TOPO_COLOR][0];
    /* A launcher may run us on a pseudo terminal whose text it writes to a file. */
    if (!color && launched_local_rank() >= 0) color = "never";
    if (report_terminal(&draw, stdout, color, width) != 0) {
        fprintf(stderr, "%s: --color '%s': expected auto, always or never\n", program, color);
        return TOOL_USAGE;
    }
    draw.bandwidth = given->given[TOPO_BANDWIDTH];
    draw.all = given->given[TOPO_ALL];
    int code = request_fill(&request, given);
    if (code == 0) code = machine_load(&report, given);
    if (code == 0 && given->given[TOPO_DUMP_XML])
        code = xml_put(given->value[TOPO_DUMP_XML][0], &report.machine);
    if (code == 0 && !only_xml(given)) {
        rondo_status status = report_compute(&report, &request);
        code = status == RONDO_SUCCESS
                   ? outputs(&draw, &report, &request, given)
                   : tool_fail(program, status == RONDO_INVALID_ARGUMENT ? TOOL_USAGE : TOOL_FAILED);
    }
    report_release(&report);
    return code;
}

int main(int argc, char **argv)
{
    struct tool_given given;
    int code = tool_options_begin(&topo_options, &given, argc, argv);
    if (code >= 0) return code;
    if (given.given[TOPO_JOB]) {
        char *job[] = { "rondo-topo-mpi", NULL };
        return libexec_become(program, NULL, job[0], job);
    }
    if (launched_local_rank() > 0) return 0;
    if ((code = tool_params_begin(program)) >= 0) return code;
    if (given.given[TOPO_COMPARE]) return compare(given.value[TOPO_COMPARE]);
    return run(&given);
}
