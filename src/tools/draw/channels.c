/* Channels as text: those of a node, and the rings of a job. */
#include "tools/draw/text.h"

#include <string.h>
#include "base/mem.h"
#include "tools/simulate.h"

enum { MOST_RANKS = 1 << 20 };

static const char *device_word(const struct rondo_topo *topo)
{
    return rondo_node_type_name(topo->ndevs > 0 ? topo->node[topo->point[0]].type : RONDO_NODE_GPU);
}

/* The devices of a ring on one node, in the order of the data, and the nets on both ends; -1: none. */
struct order {
    int32_t in, out, n;
    const int32_t *device;
};

/* Print one line: the head, then "NET 0 > GPU 0 1 2 3 > NET 1". */
static void order_put(const struct rondo_draw *draw, const struct rondo_topo *topo, const char *head,
                      const struct order *order)
{
    enum { COLUMN = 24, MOST_NUMBERS = 16 };
    char piece[256];
    struct rondo_line line;
    rondo_line_begin(&line, draw, "                        ", 0, 0);
    rondo_line_piece(&line, "", RONDO_INK_PLAIN, head);
    line.start = COLUMN;
    if (order->in >= 0) {
        snprintf(piece, sizeof piece, "NET %d >", order->in);
        rondo_line_piece(&line, " ", RONDO_INK_GOOD, piece);
    }
    rondo_line_piece(&line, " ", RONDO_INK_PLAIN, device_word(topo));
    if (order->n > MOST_NUMBERS) {
        rondo_line_piece(&line, " ", RONDO_INK_BEST,
                         rondo_text_ranges(order->device, order->n, piece, sizeof piece));
    }
    for (int i = 0; i < order->n && order->n <= MOST_NUMBERS; i++) {
        snprintf(piece, sizeof piece, "%d", order->device[i]);
        rondo_line_piece(&line, " ", RONDO_INK_BEST, piece);
    }
    if (order->out >= 0) {
        snprintf(piece, sizeof piece, "> NET %d", order->out);
        rondo_line_piece(&line, " ", RONDO_INK_GOOD, piece);
    }
    rondo_line_end(&line);
}

/* ---- the channels of a node ---- */

/* Channels a and b run round the same ring, from other devices: the position in a of b's first device. -1:
 * they do not. */
static int rotation_of(const struct rondo_graph *graph, int a, int b)
{
    const int n = graph->ndevs;
    const int16_t *x = graph->order + (size_t)a * (size_t)n, *y = graph->order + (size_t)b * (size_t)n;
    int start = 0;
    if (graph->net[2 * a] >= 0 || graph->net[2 * b] >= 0 || n == 0) return -1;
    while (start < n && x[start] != y[0]) start++;
    for (int i = 0; i < n; i++) {
        if (start == n || x[(start + i) % n] != y[i]) return -1;
    }
    return start;
}

/* Print the channels that run round the ring of this one from another device. */
static void rotations_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
                          const struct rondo_graph *graph, int channel)
{
    int32_t like[RONDO_TOPO_CHANNELS], from[RONDO_TOPO_CHANNELS];
    int n = 0;
    char list[160], piece[256];
    for (int c = channel + 1; c < graph->nchannels; c++) {
        if (rotation_of(graph, channel, c) <= 0) continue;
        like[n] = c;
        from[n++] = graph->order[(size_t)c * (size_t)graph->ndevs];
    }
    if (n == 0) return;
    snprintf(piece, sizeof piece, "  channel%s %s", n > 1 ? "s" : "",
             rondo_text_ranges(like, n, list, sizeof list));
    fprintf(draw->out, "%-23s the same ring, starting at %s %s\n", piece, device_word(topo),
            rondo_text_ranges(from, n, list, sizeof list));
}

/* Print a channel together with its equals; nothing if it was printed with an earlier one. */
static void channel_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
                        const struct rondo_graph *graph, int channel)
{
    int32_t like[RONDO_TOPO_CHANNELS], order[RONDO_TOPO_MAX_LOCAL];
    int n = 0, ndevs = graph->ndevs < RONDO_TOPO_MAX_LOCAL ? graph->ndevs : RONDO_TOPO_MAX_LOCAL;
    char list[160], piece[256];
    for (int c = 0; c < channel; c++) {
        if ((rondo_graph_channels_equal(graph, c, channel) || rotation_of(graph, c, channel) >= 0) &&
            !draw->all)
            return;
    }
    like[n++] = channel;
    for (int c = channel + 1; c < graph->nchannels && !draw->all; c++) {
        if (rondo_graph_channels_equal(graph, c, channel)) like[n++] = c;
    }
    for (int i = 0; i < ndevs; i++)
        order[i] = graph->order[(size_t)channel * (size_t)graph->ndevs + (size_t)i];

    snprintf(piece, sizeof piece, "  channel%s %s", n > 1 ? "s" : "",
             rondo_text_ranges(like, n, list, sizeof list));
    order_put(draw, topo, piece,
              &(struct order){ graph->net[2 * channel], graph->net[2 * channel + 1], ndevs, order });
    if (!draw->all) rotations_put(draw, topo, graph, channel);
}

static void found_put(struct rondo_line *line, const struct rondo_topo *topo, const struct rondo_graph *graph)
{
    char text[256], limit[128], found[24], bound[24];
    rondo_text_gbs(graph->found, found);
    rondo_text_gbs(graph->bound, bound);
    if (graph->fallback) {
        rondo_line_piece(line, "  ", RONDO_INK_BAD, "no channel fits the links: plain order");
        return;
    }
    if (graph->bound <= 0) {
        snprintf(text, sizeof text, "found %s GB/s", found);
        rondo_line_piece(line, "  ", RONDO_INK_PLAIN, text);
        return;
    }
    int percent = (int)(((int64_t)graph->found * 100 + graph->bound / 2) / graph->bound);
    snprintf(text, sizeof text, "found %s of at most %s GB/s (%d %%),", found, bound, percent);
    rondo_line_piece(line, "  ",
                     percent >= 95   ? RONDO_INK_BEST
                     : percent >= 75 ? RONDO_INK_FAIR
                                     : RONDO_INK_BAD,
                     text);
    snprintf(text, sizeof text, "limited by %s", rondo_graph_limit(topo, graph, limit, sizeof limit));
    rondo_line_piece(line, " ", RONDO_INK_PLAIN, text);
}

static void graph_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
                      const struct rondo_graph *graph)
{
    char text[256], intra[24], inter[24];
    const char *name = rondo_graph_name(graph->id), *pattern = rondo_pattern_name(graph->pattern);
    struct rondo_line line;
    rondo_line_begin(&line, draw, "      ", 0, 0);
    snprintf(text, sizeof text, "%-4s", name);
    rondo_line_piece(&line, "", RONDO_INK_TITLE, text);
    snprintf(text, sizeof text, "%d x %s GB/s %s", graph->nchannels, rondo_text_gbs(graph->bw_intra, intra),
             rondo_path_type_name(graph->type_intra));
    if (graph->type_intra == RONDO_PATH_LOC) {
        snprintf(text, sizeof text, "%d channel%s inside one device", graph->nchannels,
                 graph->nchannels > 1 ? "s" : "");
    } else if (graph->bw_intra >= RONDO_LOC_MBS) {
        snprintf(text, sizeof text, "%d channel%s, no link limits, %s", graph->nchannels,
                 graph->nchannels > 1 ? "s" : "", rondo_path_type_name(graph->type_intra));
    }
    rondo_line_piece(&line, "  ", RONDO_INK_PLAIN, text);
    if (topo->options.nnodes > 1 && graph->net[0] >= 0) {
        snprintf(text, sizeof text, "to the net %s GB/s %s", rondo_text_gbs(graph->bw_inter, inter),
                 rondo_path_type_name(graph->type_inter));
        rondo_line_piece(&line, ", ", RONDO_INK_PLAIN, text);
    }
    if (strcmp(name, pattern) != 0) rondo_line_piece(&line, ", ", RONDO_INK_PLAIN, pattern);
    if (graph->found < RONDO_LOC_MBS) found_put(&line, topo, graph);
    rondo_line_end(&line);
    for (int c = 0; c < graph->nchannels; c++) channel_put(draw, topo, graph, c);
}

rondo_status rondo_draw_graphs(const struct rondo_draw *draw, const struct rondo_topo *topo,
                               const struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (graphs[id].nchannels > 0 && graphs[id].order) graph_put(draw, topo, &graphs[id]);
    }
    return rondo_draw_finish(draw->out);
}

/* ---- the rings of a job ---- */

/* The part of a ring that lies on one node. */
struct visit {
    int32_t node;
    struct order order;
};

static int orders_equal(const struct order *a, const struct order *b)
{
    return a->n == b->n && a->in == b->in && a->out == b->out &&
           memcmp(a->device, b->device, (size_t)a->n * sizeof *a->device) == 0;
}

/* Print a visit together with the nodes that have the same order; nothing if it was printed with an earlier
 * one. */
static void visit_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
                      const struct visit *visits, int nvisits, int which, int32_t *nodes)
{
    const struct order *order = &visits[which].order;
    char text[256], head[300];
    int n = 0;
    for (int v = 0; v < which; v++) {
        if (orders_equal(&visits[v].order, order)) return;
    }
    for (int v = which; v < nvisits; v++) {
        if (orders_equal(&visits[v].order, order)) nodes[n++] = visits[v].node;
    }
    int every_other = n > 2;
    for (int i = 1; i < n && every_other; i++) every_other = nodes[i] == nodes[i - 1] + 2;
    if (every_other) {
        snprintf(head, sizeof head, "    nodes %d,%d..%d", nodes[0], nodes[1], nodes[n - 1]);
    } else {
        snprintf(head, sizeof head, "    node%s %s", n > 1 ? "s" : "",
                 rondo_text_ranges(nodes, n, text, sizeof text));
    }
    order_put(draw, topo, head, order);
}

/* Cut a channel's ring where it passes from node to node. ring[] receives the devices. @return the number of
 * visits. */
static int visits_find(const struct rondo_stitch *stitch, const struct rondo_stitch_rank *rank, int nranks,
                       int channel, int32_t *ring, struct visit *visits)
{
    int n = 0;
    rondo_stitch_ring(stitch, channel, ring);
    for (int i = 0; i < nranks; i++) {
        int32_t at = ring[i], node = (int32_t)rank[at].node;
        if (i == 0 || node != visits[n - 1].node) {
            visits[n++] = (struct visit){
                node, { .in = rondo_stitch_net(stitch, at, channel, 0), .device = ring + i }
            };
        }
        visits[n - 1].order.n++;
        if (i + 1 == nranks || (int32_t)rank[ring[i + 1]].node != node)
            visits[n - 1].order.out = rondo_stitch_net(stitch, at, channel, 1);
        ring[i] = rank[at].local;
    }
    return n;
}

static uint64_t visits_hash(const struct visit *visits, int n)
{
    uint64_t hash = 0;
    for (int v = 0; v < n; v++) {
        const int32_t words[3] = { visits[v].node, visits[v].order.in, visits[v].order.out };
        hash = rondo_hash(words, sizeof words, hash);
        hash = rondo_hash(visits[v].order.device, (size_t)visits[v].order.n * sizeof *visits[v].order.device,
                          hash);
    }
    return hash;
}

static rondo_status rings_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
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
        for (int v = 0; v < nvisits; v++) visit_put(draw, topo, visits, nvisits, v, nodes);
    }
out:
    rondo_free(ring);
    rondo_free(nodes);
    rondo_free(visits);
    return status;
}

static rondo_status stitched_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
                                 const struct rondo_job *job)
{
    struct rondo_stitch *stitch = NULL;
    struct rondo_channel_layout layout;
    RONDO_TRY(rondo_stitch_create(&stitch, &job->input));
    const struct rondo_stitch_summary *summary = rondo_stitch_summary(stitch);
    rondo_stitch_channel(stitch, 0, 0, &layout);
    rondo_ink(draw, RONDO_INK_TITLE);
    fprintf(draw->out,
            "\nRings of the job: %d nodes, %d ranks, %d channels; trees of depth %d; %zu KiB per rank\n",
            summary->nnodes, summary->nranks, summary->nchannels, layout.tree.depth, summary->bytes >> 10);
    rondo_ink(draw, RONDO_INK_PLAIN);
    rondo_status status = rings_put(draw, topo, stitch, job->rank, summary->nranks);
    rondo_stitch_destroy(stitch);
    return status;
}

rondo_status rondo_draw_rings(const struct rondo_draw *draw, const struct rondo_topo *topo,
                              const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes)
{
    struct rondo_job job;
    if ((int64_t)nodes * topo->ndevs > MOST_RANKS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "cannot show the rings of %d nodes with %d ranks each: expected at most %d nodes; "
                          "--simulate takes more",
                          nodes, topo->ndevs, MOST_RANKS / topo->ndevs);
    }
    RONDO_TRY(rondo_job_create(&job, topo, graphs, nodes));
    rondo_status status = stitched_put(draw, topo, &job);
    rondo_job_release(&job);
    return status;
}
