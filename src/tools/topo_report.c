#include "tools/topo_report.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "init/node.h"
#include "tools/draw/draw_line.h"
#include "tools/simulate.h"
#include "topo/levels.h"
#include "topo/stitch.h"
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

rondo_status report_compute(struct report *report, const struct report_request *request)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct rondo_topo_rank *ranks = NULL;
    int n = 0;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(rondo_node_options(&options));
    options.nnodes = request->nodes;
    RONDO_TRY(rondo_topo_ranks(&report->machine, request->ranks, &ranks, &n));
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

/* ---- rings over nodes ---- */

/* The part of a ring that is on one node: devices in order, and the nets before and behind. */
struct visit {
    int32_t node, n, in, out;
    const int32_t *device;
};

static int visits_equal(const struct visit *a, const struct visit *b)
{
    return a->n == b->n && a->in == b->in && a->out == b->out &&
           memcmp(a->device, b->device, (size_t)a->n * sizeof *a->device) == 0;
}

static void visit_put(const struct rondo_draw *draw, const struct report *report, const struct visit *visits,
                      int nvisits, int which, int32_t *nodes)
{
    const struct visit *visit = &visits[which];
    char text[256], piece[300];
    struct rondo_line line;
    int n = 0;
    for (int v = 0; v < which; v++) {
        if (visits_equal(&visits[v], visit)) return;
    }
    for (int v = which; v < nvisits; v++) {
        if (visits_equal(&visits[v], visit)) nodes[n++] = visits[v].node;
    }
    int every_other = n > 2;
    for (int i = 1; i < n && every_other; i++) every_other = nodes[i] == nodes[i - 1] + 2;
    if (every_other) {
        snprintf(piece, sizeof piece, "    nodes %d,%d..%d", nodes[0], nodes[1], nodes[n - 1]);
    } else {
        snprintf(piece, sizeof piece, "    node%s %s", n > 1 ? "s" : "",
                 rondo_text_ranges(nodes, n, text, sizeof text));
    }
    rondo_line_begin(&line, draw, "                        ", 0, 0);
    rondo_line_piece(&line, "", RONDO_INK_PLAIN, piece);
    line.start = 24;
    if (visit->in >= 0) {
        snprintf(piece, sizeof piece, "NET %d >", visit->in);
        rondo_line_piece(&line, " ", RONDO_INK_GOOD, piece);
    }
    snprintf(piece, sizeof piece, "%s ", report->topo->all_gpus ? "GPU" : "HOST");
    for (int i = 0; i < visit->n && visit->n <= 16; i++)
        rondo_text_add(piece, sizeof piece, "%s%d", i ? " " : "", visit->device[i]);
    if (visit->n > 16)
        rondo_text_add(piece, sizeof piece, "%s",
                       rondo_text_ranges(visit->device, visit->n, text, sizeof text));
    rondo_line_piece(&line, " ", RONDO_INK_BEST, piece);
    if (visit->out >= 0) {
        snprintf(piece, sizeof piece, "> NET %d", visit->out);
        rondo_line_piece(&line, " ", RONDO_INK_GOOD, piece);
    }
    rondo_line_end(&line);
}

/* The parts of a channel's ring, cut where it goes from node to node; ring[] gets the devices. @return how
 * many. */
static int visits_find(const struct rondo_stitch *stitch, const struct rondo_stitch_rank *rank, int nranks,
                       int channel, int32_t *ring, struct visit *visits)
{
    int n = 0;
    rondo_stitch_ring(stitch, channel, ring);
    for (int i = 0; i < nranks; i++) {
        int32_t at = ring[i], node = (int32_t)rank[at].node;
        if (i == 0 || node != visits[n - 1].node) {
            visits[n++] = (struct visit){ .node = node,
                                          .in = rondo_stitch_net(stitch, at, channel, 0),
                                          .device = ring + i };
        }
        visits[n - 1].n++;
        if (i + 1 == nranks || (int32_t)rank[ring[i + 1]].node != node)
            visits[n - 1].out = rondo_stitch_net(stitch, at, channel, 1);
        ring[i] = rank[at].local;
    }
    return n;
}

static uint64_t visits_hash(const struct visit *visits, int n)
{
    uint64_t hash = 0;
    for (int v = 0; v < n; v++) {
        const int32_t words[3] = { visits[v].node, visits[v].in, visits[v].out };
        hash = rondo_hash(words, sizeof words, hash);
        hash = rondo_hash(visits[v].device, (size_t)visits[v].n * sizeof *visits[v].device, hash);
    }
    return hash;
}

static rondo_status rings_put(const struct rondo_draw *draw, const struct report *report,
                              const struct rondo_stitch *stitch, const struct rondo_stitch_rank *rank,
                              int nranks)
{
    const int nchannels = rondo_stitch_summary(stitch)->nchannels;
    int32_t *ring = NULL, *nodes = NULL;
    struct visit *visits = NULL;
    uint64_t hash[RONDO_MAX_CHANNELS];
    char text[160];
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(ring, nranks, "a ring"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(nodes, nranks, "a ring"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(visits, nranks, "a ring"), out);
    for (int c = 0; c < nchannels; c++)
        hash[c] = visits_hash(visits, visits_find(stitch, rank, nranks, c, ring, visits));
    for (int c = 0; c < nchannels; c++) {
        int32_t like[RONDO_MAX_CHANNELS];
        int n = 0, first = 0;
        while (hash[first] != hash[c]) first++;
        if (first < c) continue;
        for (int other = c; other < nchannels; other++) {
            if (hash[other] == hash[c]) like[n++] = other;
        }
        fprintf(draw->out, "  channel%s %s\n", n > 1 ? "s" : "",
                rondo_text_ranges(like, n, text, sizeof text));
        int nvisits = visits_find(stitch, rank, nranks, c, ring, visits);
        for (int v = 0; v < nvisits; v++) visit_put(draw, report, visits, nvisits, v, nodes);
    }
out:
    rondo_free(ring);
    rondo_free(nodes);
    rondo_free(visits);
    return status;
}

static rondo_status stitched_put(const struct rondo_draw *draw, const struct report *report,
                                 const struct rondo_job *job)
{
    struct rondo_stitch *stitch = NULL;
    struct rondo_channel_layout layout;
    RONDO_TRY(rondo_stitch_create(&stitch, &job->input));
    const struct rondo_stitch_summary *summary = rondo_stitch_summary(stitch);
    rondo_stitch_channel(stitch, 0, 0, &layout);
    rondo_ink(draw, RONDO_INK_TITLE);
    fprintf(draw->out, "\n%d nodes joined: %d ranks, %d channels, trees %d hops deep, %zu KiB\n",
            summary->nnodes, summary->nranks, summary->nchannels, layout.tree.depth, summary->bytes >> 10);
    rondo_ink(draw, RONDO_INK_PLAIN);
    rondo_status status = rings_put(draw, report, stitch, job->rank, summary->nranks);
    rondo_stitch_destroy(stitch);
    return status;
}

static rondo_status nodes_put(const struct rondo_draw *draw, const struct report *report, int nodes)
{
    const struct rondo_topo *topo = report->topo;
    struct rondo_job job;
    if ((int64_t)nodes * topo->ndevs > REPORT_MAX_RANKS) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "%d nodes of %d ranks are more than %d ranks: fewer nodes are shown, too; --simulate counts",
            nodes, topo->ndevs, REPORT_MAX_RANKS);
    }
    RONDO_TRY(rondo_job_create(&job, topo, report->graphs, nodes));
    rondo_status status = stitched_put(draw, report, &job);
    rondo_job_release(&job);
    return status;
}

/* ---- the report ---- */

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

/* How ranks on host memory stand in groups, by which trees are laid. */
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
        title_put(draw, "Paths, as wired");
        RONDO_TRY(rondo_draw_matrix(draw, report->topo));
        fputc('\n', draw->out);
    }
    snprintf(title, sizeof title, "Channels");
    if (request->nodes > 1) snprintf(title, sizeof title, "Channels of each of %d nodes", request->nodes);
    title_put(draw, title);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (request->graph >= 0 && request->graph != id) shown[id].nchannels = 0;
    }
    RONDO_TRY(rondo_draw_graphs(draw, report->topo, shown));
    RONDO_TRY(levels_put(draw, report));
    if (request->nodes > 1) RONDO_TRY(nodes_put(draw, report, request->nodes));
    return rondo_draw_finish(draw->out);
}
