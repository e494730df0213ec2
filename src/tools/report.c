#include "tools/report.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/param.h"
#include "init/node.h"
#include "tools/draw/text.h"
#include "topo/levels.h"
#include "topo/xml/xml.h"

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static rondo_status graphs_find(struct report *report, const struct report_request *request)
{
    double start = now_ms();
    RONDO_TRY(rondo_node_search(report->topo, request->graph_file, report->graphs));
    double ms = now_ms() - start, steps = 0;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) steps += (double)report->graphs[id].steps;
    for (int id = 0; id < RONDO_NUM_GRAPHS && steps > 0; id++)
        report->search_ms[id] = ms * (double)report->graphs[id].steps / steps;
    return RONDO_SUCCESS;
}

/* The ranks of a machine without GPUs: one on each core. NULL: as rondo_topo_ranks chooses, because the
 * machine has GPUs or lists no cores. */
static const char *default_ranks(const struct rondo_machine *machine, char text[32])
{
    int n = 0;
    if (rondo_machine_count(machine, RONDO_ITEM_GPU) > 0) return NULL;
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_CPU) n += rondo_cores_count(&machine->item[i].cpu.cores);
    }
    snprintf(text, 32, "n%d", n < RONDO_TOPO_MAX_LOCAL ? n : RONDO_TOPO_MAX_LOCAL);
    return n > 0 ? text : NULL;
}

rondo_status report_read(struct report *report, const char *file)
{
    report->here = file == NULL && rondo_params()->topo_file[0] == '\0';
    return file ? rondo_machine_read(&report->machine, file) : rondo_node_machine(&report->machine);
}

rondo_status report_compute(struct report *report, const struct report_request *request)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct rondo_topo_rank *ranks = NULL;
    int n = 0;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(rondo_node_options(&options));
    options.nnodes = request->nodes;
    char all[32];
    const char *list = request->ranks ? request->ranks : default_ranks(&report->machine, all);
    RONDO_TRY(rondo_topo_ranks(&report->machine, list, &ranks, &n));
    RONDO_TRY_GOTO(rondo_topo_create(&report->topo, &report->machine, ranks, n, &options), out);
    status = graphs_find(report, request);
out:
    rondo_free(ranks);
    return status;
}

void report_release(struct report *report)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) rondo_graph_release(&report->graphs[id]);
    rondo_topo_destroy(report->topo);
    rondo_machine_release(&report->machine);
    memset(report, 0, sizeof *report);
}

int report_terminal(struct rondo_draw *draw, FILE *out, const char *color, int width)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    int tty = isatty(fileno(out));
    struct winsize size;
    *draw = (struct rondo_draw){ .out = out };
    setlocale(LC_CTYPE, "");
    draw->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (!color || strcmp(color, "auto") == 0) {
        draw->color = tty && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0;
    } else if (strcmp(color, "always") == 0) {
        draw->color = 1;
    } else if (strcmp(color, "never") != 0) {
        return -1;
    }
    if (width >= 0) {
        draw->width = width;
    } else if (tty && ioctl(fileno(out), TIOCGWINSZ, &size) == 0) {
        draw->width = size.ws_col;
    }
    return 0;
}

static void head_put(const struct rondo_draw *draw, const struct report *report)
{
    const struct rondo_machine *machine = &report->machine;
    char source[256], note[256], text[256] = "";
    static const enum rondo_item_kind kinds[] = { RONDO_ITEM_CPU, RONDO_ITEM_GPU, RONDO_ITEM_NET };
    static const char *const names[] = { "NUMA node", "GPU", "network port" };
    for (size_t i = 0; i < RONDO_COUNTOF(kinds); i++) {
        int n = rondo_machine_count(machine, kinds[i]);
        char count[16] = "no";
        if (n > 0) snprintf(count, sizeof count, "%d", n);
        rondo_text_add(text, sizeof text, "%s%s %s%s", i ? ", " : "", count, names[i], n == 1 ? "" : "s");
    }
    rondo_ink(draw, RONDO_INK_TITLE);
    fprintf(draw->out, "%s", rondo_text_plain(machine->source, source, sizeof source));
    rondo_ink(draw, RONDO_INK_PLAIN);
    fprintf(draw->out, ": %s; machine %016llx\n", text, (unsigned long long)rondo_machine_hash(machine));
    if (machine->note[0]) {
        rondo_ink(draw, RONDO_INK_FAIR);
        fprintf(draw->out, "note: %s\n", rondo_text_plain(machine->note, note, sizeof note));
        rondo_ink(draw, RONDO_INK_PLAIN);
    }
    fputc('\n', draw->out);
}

static void title_put(const struct rondo_draw *draw, const char *text)
{
    rondo_ink(draw, RONDO_INK_TITLE);
    fprintf(draw->out, "%s\n", text);
    rondo_ink(draw, RONDO_INK_PLAIN);
}

/* Print the groups of ranks in host memory, which the trees follow. */
static rondo_status levels_put(const struct rondo_draw *draw, const struct report *report)
{
    const struct rondo_topo *topo = report->topo;
    struct rondo_group_levels levels;
    char text[128], edges[128];
    uint8_t *cut;
    RONDO_TRY(RONDO_NEW_ARRAY(cut, topo->ndevs, "the levels of a node"));
    rondo_status status = rondo_topo_levels(topo, report->graphs[RONDO_GRAPH_RING].order, &levels, cut);
    rondo_free(cut);
    if (status == RONDO_SUCCESS && levels.n > 0) {
        fprintf(draw->out, "levels %s; edges of a tree: %s\n",
                rondo_levels_text(&levels, topo->ndevs, text, sizeof text),
                rondo_levels_edges_text(&levels, topo->ndevs, 0, edges, sizeof edges));
    }
    return status;
}

rondo_status report_print(const struct rondo_draw *draw, const struct report *report,
                          const struct report_request *request)
{
    struct rondo_graph shown[RONDO_NUM_GRAPHS];
    char title[128];
    memcpy(shown, report->graphs, sizeof shown);
    if (request->graph < 0) {
        head_put(draw, report);
        RONDO_TRY(rondo_draw_tree(draw, report->topo));
        fputc('\n', draw->out);
        title_put(draw, "Paths (as wired)");
        RONDO_TRY(rondo_draw_matrix(draw, report->topo));
        fputc('\n', draw->out);
    }
    snprintf(title, sizeof title, "Channels");
    if (request->nodes > 1) snprintf(title, sizeof title, "Channels of one of %d nodes", request->nodes);
    title_put(draw, title);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (request->graph >= 0 && request->graph != id) shown[id].nchannels = 0;
    }
    RONDO_TRY(rondo_draw_graphs(draw, report->topo, shown));
    RONDO_TRY(levels_put(draw, report));
    if (request->nodes > 1) RONDO_TRY(rondo_draw_rings(draw, report->topo, report->graphs, request->nodes));
    return rondo_draw_finish(draw->out);
}
