/* rondo-topo-mpi: the machines of a job. One process per node, the leader, describes its machine; the first
 * leader reports each kind of machine once, with the names of its nodes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "init/node.h"
#include "tools/report.h"
#include "tools/tool.h"
#include "topo/xml/xml.h"

enum { HELP, VERSION, NUM_OPTIONS };

static const struct tool_option option_table[NUM_OPTIONS] = {
    [HELP] = { "-h, --help", "", 0, 0, "Options", "show this help and exit" },
    [VERSION] = { "--version", "", 0, 0, "", "show the library's version and exit" },
};

static const struct tool_options options = {
    .program = "rondo-topo-mpi",
    .usage =
        "\n"
        "\n"
        "Run it with mpirun or srun to show the machines of the nodes of a job. Equal nodes are shown once,\n"
        "with their names: the tree of the machine, its paths and its channels. For files, pictures and\n"
        "details of one machine, use rondo-topo.",
    .outro = "Exit status:\n"
             "  0  success\n"
             "  1  failure on any node\n"
             "  2  wrong usage\n",
    .option = option_table,
    .n = NUM_OPTIONS,
    .help = HELP,
    .version = VERSION,
};

/* What a leader sends to the first one. A leader that fails sends its error, so that nobody waits for it. */
struct node_record {
    char host[RONDO_HOST_LEN];
    uint64_t hash;
    int32_t status;
    int32_t bytes; /* length of the machine as XML */
    char error[RONDO_ERROR_TEXT];
};

struct job {
    int n; /* number of nodes */
    struct node_record *record;
};

static void machine_describe(struct node_record *record, char **text)
{
    struct rondo_machine machine = { 0 };
    snprintf(record->host, sizeof record->host, "%s", rondo_log_host());
    rondo_status status = rondo_node_machine(&machine);
    if (status == RONDO_SUCCESS) status = rondo_machine_text(&machine, text);
    if (status == RONDO_SUCCESS) {
        record->hash = rondo_machine_hash(&machine);
        record->bytes = (int32_t)strlen(*text);
    } else {
        snprintf(record->error, sizeof record->error, "%s", rondo_error_text());
    }
    record->status = (int32_t)status;
    rondo_machine_release(&machine);
}

static int is_first_of_kind(const struct job *job, int node)
{
    for (int i = 0; i < node; i++) {
        if (job->record[i].status == RONDO_SUCCESS && job->record[i].hash == job->record[node].hash) return 0;
    }
    return job->record[node].status == RONDO_SUCCESS;
}

static rondo_status hosts_put(const struct job *job, int like, int *n)
{
    const char **name = NULL;
    RONDO_TRY(RONDO_NEW_ARRAY(name, job->n, "names of hosts"));
    *n = 0;
    for (int i = 0; i < job->n; i++) {
        if (job->record[i].status == RONDO_SUCCESS && job->record[i].hash == job->record[like].hash)
            name[(*n)++] = job->record[i].host;
    }
    printf("==== %d node%s: ", *n, *n == 1 ? "" : "s");
    rondo_status status = rondo_draw_hosts(stdout, name, *n);
    fputs("\n\n", stdout);
    rondo_free(name);
    return status;
}

static rondo_status kind_put(const struct job *job, int node, const char *xml)
{
    struct report report = { 0 };
    struct report_request request = { .nodes = job->n, .graph = -1 };
    struct rondo_draw draw;
    int n = 0;
    rondo_status status = RONDO_SUCCESS;
    /* mpirun may run us on a pseudo terminal whose text it writes to a file. */
    report_terminal(&draw, stdout, "never", 0);
    RONDO_TRY_GOTO(hosts_put(job, node, &n), out);
    RONDO_TRY_GOTO(
        rondo_machine_parse(&report.machine, xml, (size_t)job->record[node].bytes, job->record[node].host),
        out);
    RONDO_TRY_GOTO(report_compute(&report, &request), out);
    /* The rings of the job follow from one machine only if all nodes are equal. */
    if (n < job->n) request.nodes = 1;
    status = report_print(&draw, &report, &request);
    fputc('\n', stdout);
out:
    report_release(&report);
    return status;
}

/* The first leader fetches the machine of each kind from the first node of that kind. */
static int kinds_put(const struct job *job, const char *own, MPI_Comm leaders)
{
    int bad = 0, go = 1;
    for (int i = 0; i < job->n; i++) {
        char *xml = NULL;
        if (job->record[i].status != RONDO_SUCCESS) {
            fprintf(stderr, "%s: node %s: %s\n", options.program, job->record[i].host, job->record[i].error);
            bad = 1;
            continue;
        }
        if (!is_first_of_kind(job, i)) continue;
        rondo_status status = RONDO_SUCCESS;
        if (i > 0) {
            xml = malloc((size_t)job->record[i].bytes + 1);
            if (!xml) MPI_Abort(MPI_COMM_WORLD, 1);
            MPI_Send(&go, 1, MPI_INT, i, 0, leaders);
            MPI_Recv(xml, job->record[i].bytes, MPI_CHAR, i, 0, leaders, MPI_STATUS_IGNORE);
        }
        status = kind_put(job, i, i > 0 ? xml : own);
        if (status != RONDO_SUCCESS)
            fprintf(stderr, "%s: node %s: %s\n", options.program, job->record[i].host, rondo_error_text());
        bad |= status != RONDO_SUCCESS;
        free(xml);
    }
    go = 0;
    for (int i = 1; i < job->n; i++) MPI_Send(&go, 1, MPI_INT, i, 0, leaders);
    return bad;
}

static void serve(const char *xml, const struct node_record *record, MPI_Comm leaders)
{
    int go = 1;
    while (go) {
        MPI_Recv(&go, 1, MPI_INT, 0, 0, leaders, MPI_STATUS_IGNORE);
        if (go) MPI_Send(xml, record->bytes, MPI_CHAR, 0, 0, leaders);
    }
}

static int report_all(MPI_Comm leaders)
{
    struct node_record record = { .bytes = 0 };
    struct job job = { 0 };
    char *xml = NULL;
    int rank, bad = 0;
    MPI_Comm_rank(leaders, &rank);
    MPI_Comm_size(leaders, &job.n);
    machine_describe(&record, &xml);
    if (rank == 0 && RONDO_NEW_ARRAY(job.record, job.n, "records of nodes") != RONDO_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Gather(&record, sizeof record, MPI_BYTE, job.record, sizeof record, MPI_BYTE, 0, leaders);
    if (rank == 0) {
        bad = kinds_put(&job, xml, leaders);
    } else {
        serve(xml, &record, leaders);
    }
    rondo_free(job.record);
    free(xml);
    return bad;
}

int main(int argc, char **argv)
{
    int rank, local, bad = 0;
    MPI_Comm node, leaders;
    struct tool_given given;
    int code = tool_options_begin(&options, &given, argc, argv);
    if (code >= 0) return code;
    MPI_Init(&argc, &argv);
    if (tool_params_begin(options.program) >= 0) MPI_Abort(MPI_COMM_WORLD, TOOL_USAGE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_split(MPI_COMM_WORLD, local == 0 ? 0 : MPI_UNDEFINED, rank, &leaders);
    if (leaders != MPI_COMM_NULL) {
        bad = report_all(leaders);
        MPI_Comm_free(&leaders);
    }
    MPI_Comm_free(&node);
    MPI_Bcast(&bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return bad;
}
