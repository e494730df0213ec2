/* The path between two points of a machine, hop by hop, and why P2P, GPUDirect and PXN are used or not. */
#include "tools/draw/text.h"

#include <string.h>

static const char *node_name(const struct rondo_topo *topo, int32_t node, char *text, size_t bytes)
{
    for (int p = 0; p < topo->npoints; p++) {
        if (topo->point[p] == node) return rondo_topo_point_name(topo, p, text, bytes);
    }
    char busid[24];
    int32_t item = topo->node[node].item;
    snprintf(text, bytes, "%s", rondo_node_type_name(topo->node[node].type));
    if (item >= 0 && topo->machine->item[item].kind == RONDO_ITEM_PCI) {
        rondo_text_add(text, bytes, " %s", rondo_busid_text(topo->machine->item[item].pci.busid, busid));
    }
    return text;
}

static void path_head(const struct rondo_draw *draw, const struct rondo_topo *topo,
                      const struct rondo_topo_path *path, const char *what)
{
    char gbs[32], text[128], via[96];
    struct rondo_line line;
    rondo_line_begin(&line, draw, "      ", 0, 0);
    snprintf(text, sizeof text, "%s:", what);
    rondo_line_piece(&line, "", RONDO_INK_PLAIN, text);
    rondo_line_piece(&line, " ", rondo_ink_of_path(path->type), rondo_path_type_name(path->type));
    snprintf(text, sizeof text, "(%s)", rondo_path_type_legend(path->type));
    rondo_line_piece(&line, " ", RONDO_INK_PLAIN, text);
    if (path->type != RONDO_PATH_DIS) {
        rondo_line_piece(&line, ", ", RONDO_INK_PLAIN, rondo_text_bandwidth(path->mbs, gbs));
    }
    if (path->latency_ns > 0) {
        snprintf(text, sizeof text, "%d.%02d us", path->latency_ns / 1000, path->latency_ns % 1000 / 10);
        rondo_line_piece(&line, ", ", RONDO_INK_PLAIN, text);
    }
    if (path->via >= 0) {
        snprintf(text, sizeof text, "relayed by %s", rondo_topo_point_name(topo, path->via, via, sizeof via));
        rondo_line_piece(&line, ", ", RONDO_INK_PLAIN, text);
    }
    rondo_line_end(&line);
}

static int64_t hop_mbs(const struct rondo_topo *topo, const struct rondo_topo_path *path, int i)
{
    int cost = topo->cost[path->first + i];
    return (int64_t)topo->link[topo->hop[path->first + i]].mbs * 60 / (cost > 0 ? cost : 60);
}

static void hops_put(const struct rondo_draw *draw, const struct rondo_topo *topo,
                     const struct rondo_topo_path *path)
{
    int widest = 0;
    char from[96], to[96], text[200], gbs[32];
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < path->nhops; i++) {
        const struct rondo_topo_link *link = &topo->link[topo->hop[path->first + i]];
        int n = snprintf(text, sizeof text, "%s > %s", node_name(topo, link->from, from, sizeof from),
                         node_name(topo, link->to, to, sizeof to));
        widest = n > widest ? n : widest;
        int64_t mbs = hop_mbs(topo, path, i);
        least = mbs < least ? mbs : least;
        most = mbs > most ? mbs : most;
    }
    for (int i = 0; i < path->nhops; i++) {
        const struct rondo_topo_link *link = &topo->link[topo->hop[path->first + i]];
        int64_t mbs = hop_mbs(topo, path, i);
        snprintf(text, sizeof text, "%s > %s", node_name(topo, link->from, from, sizeof from),
                 node_name(topo, link->to, to, sizeof to));
        fprintf(draw->out, "  %-*s  %-4s %13s", widest, text, rondo_link_type_name(link->type),
                rondo_text_bandwidth(mbs, gbs));
        if (topo->cost[path->first + i] > 60) fputs(", host bridge: a fifth lost", draw->out);
        if (mbs == least && mbs < most) {
            rondo_ink(draw, RONDO_INK_FAIR);
            fputs("  <- narrowest", draw->out);
            rondo_ink(draw, RONDO_INK_PLAIN);
        }
        fputc('\n', draw->out);
    }
}

#define VERDICT_INDENT "                "

static int hops_equal(const struct rondo_topo *topo, const struct rondo_topo_path *a,
                      const struct rondo_topo_path *b)
{
    return a->nhops == b->nhops &&
           memcmp(topo->hop + a->first, topo->hop + b->first, (size_t)a->nhops * sizeof *topo->hop) == 0 &&
           memcmp(topo->cost + a->first, topo->cost + b->first, (size_t)a->nhops) == 0;
}

static void verdict_put(const struct rondo_draw *draw, const char *what,
                        const struct rondo_topo_verdict *verdict, const char *more, const char *change)
{
    struct rondo_line line;
    char text[256];
    rondo_line_begin(&line, draw, VERDICT_INDENT, 0, 0);
    snprintf(text, sizeof text, "%-15s", what);
    rondo_line_piece(&line, "", RONDO_INK_TITLE, text);
    rondo_line_piece(&line, " ", verdict->yes ? RONDO_INK_BEST : RONDO_INK_FAIR,
                     verdict->yes ? "yes:" : "no: ");
    snprintf(text, sizeof text, "%s%s%s", verdict->reason, more, change[0] ? ";" : "");
    rondo_line_words(&line, RONDO_INK_PLAIN, text);
    rondo_line_words(&line, RONDO_INK_DIM, change);
    rondo_line_end(&line);
}

/* The setting that would change the answer about a level; "": a level does not decide it. */
static void level_change(const struct rondo_topo_path *path, const struct rondo_topo_verdict *verdict,
                         const char *parameter, const char *below, char *text, size_t bytes)
{
    int yes = verdict->yes;
    text[0] = '\0';
    if (path->type >= RONDO_PATH_NET || (!yes && !strstr(verdict->reason, parameter))) return;
    if (!yes) {
        snprintf(text, bytes, "%s=%s would allow it", parameter, rondo_path_type_name(path->type));
    } else if (below[0]) {
        snprintf(text, bytes, "%s", below);
    }
}

static void why_devices(const struct rondo_draw *draw, const struct rondo_topo *topo, int a, int b)
{
    struct rondo_topo_verdict verdict;
    char change[128], more[64];
    int read = 0;
    rondo_topo_p2p(topo, a, b, &read, &verdict);
    level_change(rondo_topo_wired(topo, a, b), &verdict, "RONDO_P2P_LEVEL",
                 "RONDO_P2P_DISABLE=1 would forbid it", change, sizeof change);
    if (topo->options.p2p_disable) snprintf(change, sizeof change, "RONDO_P2P_DISABLE=0 would allow it");
    snprintf(more, sizeof more, "%s",
             !verdict.yes ? ""
             : read       ? "; the receiver reads"
                          : "; the sender writes");
    verdict_put(draw, "P2P", &verdict, more, change);
    fprintf(draw->out, "%-15s %d between these two\n", "channels", rondo_topo_p2p_channels(topo, a, b));
}

static void why_net(const struct rondo_draw *draw, const struct rondo_topo *topo, int dev, int net)
{
    struct rondo_topo_verdict verdict;
    char change[128];
    const struct rondo_topo_path *path = rondo_topo_wired(topo, dev, rondo_topo_net_point(topo, net));
    for (int read = 0; read < 2; read++) {
        rondo_topo_gdr(topo, dev, net, read, &verdict);
        level_change(path, &verdict, "RONDO_NET_GDR_LEVEL", "RONDO_NET_GDR_LEVEL=LOC would forbid it", change,
                     sizeof change);
        verdict_put(draw, read ? "GPUDirect send" : "GPUDirect recv", &verdict,
                    !read && verdict.yes && rondo_topo_flush(topo, dev) ? ", flushed afterwards" : "",
                    change);
    }
    rondo_topo_pxn(topo, dev, net, &verdict);
    snprintf(change, sizeof change, "%s",
             verdict.yes                 ? "RONDO_PXN_DISABLE=1 would forbid it"
             : topo->options.pxn_disable ? "RONDO_PXN_DISABLE=0 would allow it"
                                         : "");
    verdict_put(draw, "PXN", &verdict, "", change);
    int other = rondo_topo_net_for(topo, dev, 0);
    if (other >= 0 && other != net) {
        char text[96];
        struct rondo_line line;
        rondo_line_begin(&line, draw, VERDICT_INDENT, 0, 0);
        rondo_line_piece(&line, "", RONDO_INK_TITLE, "preferred net  ");
        rondo_line_words(&line, RONDO_INK_PLAIN,
                         rondo_topo_point_name(topo, rondo_topo_net_point(topo, other), text, sizeof text));
        rondo_line_words(&line, RONDO_INK_PLAIN, "for send and recv: the nearest, spread over GPUs");
        rondo_line_end(&line);
    }
}

rondo_status rondo_draw_why(const struct rondo_draw *draw, const struct rondo_topo *topo, int from, int to)
{
    char a[96], b[96];
    if (from < 0 || to < 0 || from >= topo->npoints || to >= topo->npoints) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "no path from point %d to point %d: this machine has points 0 to %d", from, to,
                          topo->npoints - 1);
    }
    const struct rondo_topo_path *wired = rondo_topo_wired(topo, from, to),
                                 *taken = rondo_topo_path(topo, from, to);
    rondo_ink(draw, RONDO_INK_TITLE);
    fprintf(draw->out, "%s to %s\n", rondo_topo_point_name(topo, from, a, sizeof a),
            rondo_topo_point_name(topo, to, b, sizeof b));
    rondo_ink(draw, RONDO_INK_PLAIN);
    int same = wired->type == taken->type && wired->mbs == taken->mbs && wired->via == taken->via;
    path_head(draw, topo, wired, same ? "path" : "as wired");
    hops_put(draw, topo, wired);
    if (!same) {
        path_head(draw, topo, taken, "as used");
        if (!hops_equal(topo, wired, taken)) hops_put(draw, topo, taken);
    }
    int net = topo->ndevs, cpu = topo->ndevs + topo->nnets;
    if (from != to && from < net && to < net) why_devices(draw, topo, from, to);
    if (from < net && to >= net && to < cpu) why_net(draw, topo, from, to - net);
    if (to < net && from >= net && from < cpu) why_net(draw, topo, to, from - net);
    return rondo_draw_finish(draw->out);
}
