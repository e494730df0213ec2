/* The SVG picture of a machine and the channels of a graph. */
#include <string.h>
#include "base/mem.h"
#include "tools/draw/label.h"
#include "tools/draw/text.h"
#include "tools/draw/place.h"
#include "tools/draw/svg.h"

enum {
    NUM_COLORS = 8,
    CORNER = 7,
    ARROW = 7,
    LEGEND_STEP = 24,
    LABEL_X = 14,
    TITLE_HEIGHT = 28,
    MOST_TITLE = 1200,
    MOST_NARROW = 860, /* the same in a picture for narrow windows */
    MANY_DEVICES = 16  /* beyond these, several channels could not be followed */
};

struct svg {
    FILE *out;
    const struct rondo_place *place;
    const struct rondo_topo *topo;
    int64_t *load; /* per link: MB/s that the channels use */
};

/* ---- styles ---- */

/* X(selector, declarations for both modes, property, its value in light mode, in dark mode). Custom
 * properties would be shorter, but some SVG viewers do not support them. */

/* clang-format off */
#define STYLE_TABLE(X)                                                                    \
    X(".bg", "", "fill", "#ffffff", "#14181d")                                            \
    X("text", "", "fill", "#1b2026", "#e8ebef")                                           \
    X(".mut", "", "fill", "#58626d", "#a3adb8")                                           \
    X(".frame", "fill:none;stroke-width:1;stroke-dasharray:4 3", "stroke", "#9aa4ae", "#5c6773") \
    X(".panel", "stroke-width:1", "fill", "#f3f5f7", "#1a2027")                           \
    X(".panel", "", "stroke", "#ccd3da", "#333d48")                                       \
    X(".box", "stroke-width:1.2", "fill", "#ffffff", "#232b34")                           \
    X(".box", "", "stroke", "#7f8b98", "#7a8898")                                         \
    X(".bCPU", "", "fill", "#e2e8ef", "#2d3743")                                          \
    X(".bGPU,.bNVS", "", "fill", "#e9f5da", "#233518")                                    \
    X(".bGPU,.bNVS", "", "stroke", "#548516", "#86bd45")                                  \
    X(".bHOST", "", "fill", "#e6edfb", "#1c2a46")                                         \
    X(".bHOST", "", "stroke", "#3b69bd", "#7fa6ec")                                       \
    X(".bNIC,.bNET", "", "fill", "#e0f3f5", "#133239")                                    \
    X(".bNIC,.bNET", "", "stroke", "#1c7783", "#4fb9c8")                                  \
    X(".lLOC", "", "stroke", "#6f7a86", "#8d98a5")                                        \
    X(".lNVL", "", "stroke", "#6ba31f", "#7ab337")                                        \
    X(".lC2C", "", "stroke", "#8a4fc0", "#b78ae4")                                        \
    X(".lPCI", "", "stroke", "#7688a0", "#7487a0")                                        \
    X(".lSYS", "", "stroke", "#c06812", "#d98f3f")                                        \
    X(".lNET", "", "stroke", "#1c7783", "#4fb9c8")                                        \
    X(".guide", "stroke-width:1;stroke-dasharray:1 4", "stroke", "#b3bcc6", "#46515d")    \
    X(".stop", "stroke-width:1.6;stroke:currentColor", "fill", "#ffffff", "#14181d")      \
    X(".c0", "", "color", "#0060a8", "#58aef2")                                           \
    X(".c1", "", "color", "#c24a00", "#ff9a57")                                           \
    X(".c2", "", "color", "#00745a", "#3ccda2")                                           \
    X(".c3", "", "color", "#a53f88", "#ee92d3")                                           \
    X(".c4", "", "color", "#775a00", "#dfc04f")                                           \
    X(".c5", "", "color", "#4a52c4", "#a7adff")                                           \
    X(".c6", "", "color", "#555b61", "#c3c9cf")                                           \
    X(".c7", "", "color", "#96282d", "#ff9c9c")
/* clang-format on */

static const struct {
    const char *selector, *fixed, *property, *light, *dark;
} styles[] = {
#define ROW_(selector, fixed, property, light, dark) { selector, fixed, property, light, dark },
    STYLE_TABLE(ROW_)
#undef ROW_
};

static void selector_put(FILE *out, const char *selector)
{
    for (const char *at = selector; *at;) {
        int n = (int)strcspn(at, ",");
        fprintf(out, "%s.rondo %.*s", at > selector ? "," : "", n, at);
        at += n + (at[n] == ',');
    }
}

static void colors_put(FILE *out, int dark)
{
    for (size_t i = 0; i < RONDO_COUNTOF(styles); i++) {
        selector_put(out, styles[i].selector);
        fprintf(out, "{%s%s%s:%s}\n", dark ? "" : styles[i].fixed, !dark && styles[i].fixed[0] ? ";" : "",
                styles[i].property, dark ? styles[i].dark : styles[i].light);
    }
}

void rondo_svg_style(FILE *out)
{
    fputs(".rondo{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\n"
          ".rondo .m{text-anchor:middle}\n.rondo .e{text-anchor:end}\n.rondo .b{font-weight:600}\n.rondo "
          ".l,.rondo .hop{fill:none}\n.rondo "
          ".hop{stroke:currentColor;stroke-width:2}\n"
          ".rondo .tip{fill:currentColor}\n.rondo .ch:hover .hop{stroke-width:3.5}\n.rondo "
          ".l:hover{stroke-opacity:.6}\n",
          out);
    colors_put(out, 0);
    fputs("@media (prefers-color-scheme:dark){\n", out);
    colors_put(out, 1);
    fputs("}\n", out);
}

/* ---- text ---- */

void rondo_svg_text(FILE *out, const char *text)
{
    for (const char *at = text; *at;) {
        int n = rondo_label_character(at);
        switch (n ? *at : 0) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        case 0: fputc('?', out); break;
        default: fwrite(at, 1, (size_t)n, out);
        }
        at += n ? n : 1;
    }
}

static void text_put(const struct svg *svg, int32_t x, int32_t y, int size, const char *class,
                     const char *text)
{
    if (!text[0]) return;
    fprintf(svg->out, "<text class=\"%s\" x=\"%d\" y=\"%d\" font-size=\"%d\">", class, x, y, size);
    rondo_svg_text(svg->out, text);
    fputs("</text>\n", svg->out);
}

static void title_put(const struct svg *svg, const char *text)
{
    fputs("<title>", svg->out);
    rondo_svg_text(svg->out, text);
    fputs("</title>", svg->out);
}

/* ---- shapes ---- */

static void rect_put(const struct svg *svg, const struct rondo_box *box, const char *class, int radius)
{
    fprintf(svg->out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>", class,
            box->x, box->y, box->w, box->h, radius);
}

static int32_t toward(int32_t from, int32_t to, int32_t most)
{
    int32_t distance = to - from, half = distance / 2;
    int32_t step = most < (half < 0 ? -half : half) ? most : (half < 0 ? -half : half);
    return distance < 0 ? -step : step;
}

/* Draw a line with rounded corners that ends `back` pixels early, to leave room for the arrow. */
static void line_put(FILE *out, const struct rondo_points *line, int32_t back)
{
    const int32_t *x = line->x, *y = line->y;
    int n = line->npoints;
    fprintf(out, "M%d %d", x[0], y[0]);
    for (int i = 1; i + 1 < n; i++) {
        fprintf(out, "L%d %dQ%d %d %d %d", x[i] - toward(x[i - 1], x[i], CORNER),
                y[i] - toward(y[i - 1], y[i], CORNER), x[i], y[i], x[i] + toward(x[i], x[i + 1], CORNER),
                y[i] + toward(y[i], y[i + 1], CORNER));
    }
    int32_t dx = (x[n - 1] > x[n - 2]) - (x[n - 1] < x[n - 2]),
            dy = (y[n - 1] > y[n - 2]) - (y[n - 1] < y[n - 2]);
    fprintf(out, "L%d %d", x[n - 1] - dx * back, y[n - 1] - dy * back);
}

static void arrow_put(FILE *out, const struct rondo_points *line)
{
    int n = line->npoints;
    int32_t x = line->x[n - 1], y = line->y[n - 1], dx = (x > line->x[n - 2]) - (x < line->x[n - 2]),
            dy = (y > line->y[n - 2]) - (y < line->y[n - 2]);
    fprintf(out, "M%d %dL%d %dL%d %dZ", x, y, x - dx * ARROW - dy * 4, y - dy * ARROW - dx * 4,
            x - dx * ARROW + dy * 4, y - dy * ARROW + dx * 4);
}

/* The arrow at the start of a hop whose data go both ways. */
static void back_arrow_put(FILE *out, const struct rondo_points *line)
{
    struct rondo_points back = *line;
    int n = line->npoints;
    for (int i = 0; i < n; i++) {
        back.x[i] = line->x[n - 1 - i];
        back.y[i] = line->y[n - 1 - i];
    }
    arrow_put(out, &back);
}

static int is_tree(const struct rondo_place *place) { return place->graph->id == RONDO_GRAPH_TREE; }

static void wire_put(const struct svg *svg, const struct rondo_wire *wire)
{
    char facts[RONDO_FACTS];
    rondo_facts_wire(svg->place, wire, facts);
    if (wire->link >= 0 && svg->load) {
        int32_t reverse = svg->topo->link[wire->link].reverse;
        int64_t there = svg->load[wire->link], back = reverse >= 0 ? svg->load[reverse] : 0;
        char a[32], b[32];
        if (svg->place->graph && svg->place->graph->bw_intra < RONDO_LOC_MBS)
            rondo_text_add(facts, sizeof facts, "\nused by the channels: %s there, %s back",
                           rondo_text_bandwidth(there, a), rondo_text_bandwidth(back, b));
    }
    fprintf(svg->out, "<path class=\"l l%s\" data-l=\"%d\" stroke-width=\"%d.%d\" d=\"",
            rondo_link_type_name(wire->type), wire->link, wire->width / 10, wire->width % 10);
    if (wire->shape == RONDO_WIRE_ARC) {
        fprintf(svg->out, "M%d %dC%d %d %d %d %d %d", wire->line.x[0], wire->line.y[0], wire->line.x[0],
                wire->line.y[2], wire->line.x[1], wire->line.y[2], wire->line.x[1], wire->line.y[1]);
    } else {
        line_put(svg->out, &wire->line, 0);
    }
    fputs("\">", svg->out);
    title_put(svg, facts);
    fputs("</path>\n", svg->out);
}

/* Center the lines of text in a box. */
static void lines_put(const struct svg *svg, int node, int first, int second)
{
    const struct rondo_box *box = &svg->place->box[node];
    char text[3][RONDO_LABEL];
    int32_t height = 0, y;
    for (int i = 0; i < 3; i++) {
        rondo_label_line(svg->topo, node, i, rondo_label_columns(box->w - 6, i ? second : first), text[i]);
        if (text[i][0]) height += i ? second + second / 3 : first;
    }
    y = box->y + (box->h - height) / 2 - first / 8;
    for (int i = 0; i < 3; i++) {
        int size = i ? second : first;
        if (!text[i][0]) continue;
        y += i ? second + second / 3 : first;
        text_put(svg, box->x + box->w / 2, y, size, i == 0 ? "m b" : "m mut", text[i]);
    }
}

/* "64 GPUs" */
static const char *fold_label(const struct svg *svg, const struct rondo_fold *fold, char text[RONDO_LABEL])
{
    snprintf(text, RONDO_LABEL, "%d %s", fold->ndevs,
             svg->topo->node[svg->topo->point[fold->point]].type == RONDO_NODE_GPU ? "GPUs" : "ranks");
    return text;
}

/* The box for the devices of folded hosts. */
static void fold_put(const struct svg *svg, int node, const struct rondo_fold *fold)
{
    const struct rondo_box *box = &svg->place->box[node];
    char text[RONDO_LABEL], class[32];
    int size = svg->place->compact ? 10 : 13;
    snprintf(class, sizeof class, "box b%s", rondo_node_type_name(type_of(svg->place, node)));
    fprintf(svg->out, "<g data-hosts=\"%d\">", fold->nhosts);
    rondo_facts_fold(svg->place, fold, text);
    title_put(svg, text);
    for (int i = 2; i >= 0; i--) {
        struct rondo_box card = { box->x + 3 * i, box->y + 3 * i, box->w - 6, box->h - 6, 0 };
        rect_put(svg, &card, class, 6);
    }
    text_put(svg, box->x + box->w / 2 - 3, box->y + box->h / 2 - 2, size, "m b", fold_label(svg, fold, text));
    snprintf(text, sizeof text, "%d net%s", fold->nnets, fold->nnets == 1 ? "" : "s");
    if (fold->nnets) text_put(svg, box->x + box->w / 2 - 3, box->y + box->h / 2 + 11, 9, "m mut", text);
    fputs("</g>\n", svg->out);
}

static void node_put(const struct svg *svg, int node)
{
    const struct rondo_place *place = svg->place;
    const struct rondo_box *box = &place->box[node];
    int type = svg->topo->node[node].type, small = place->compact;
    char facts[RONDO_FACTS], class[32];
    int fold = rondo_fold_at(place, node);
    if (box->w == 0) return;
    if (fold >= 0) {
        fold_put(svg, node, &place->fold[fold]);
        return;
    }
    snprintf(class, sizeof class, "box b%s", rondo_node_type_name(type));
    fprintf(svg->out, "<g data-node=\"%s%d\">", rondo_node_type_name(type), svg->topo->node[node].index);
    title_put(svg, rondo_facts_node(svg->topo, node, facts));
    rect_put(svg, box, class, box->h < 24 ? 4 : 6);
    fputc('\n', svg->out);
    if (type == RONDO_NODE_GPU || type == RONDO_NODE_HOST) {
        lines_put(svg, node, small ? 10 : 13, small ? 9 : 10);
    } else if (type == RONDO_NODE_NET) {
        lines_put(svg, node, small ? 10 : 11, 9);
    } else {
        lines_put(svg, node, type == RONDO_NODE_CPU && !small ? 12 : small ? 9 : 10, 9);
    }
    fputs("</g>\n", svg->out);
}

/* ---- layers ---- */

static void panels_put(const struct svg *svg)
{
    const struct rondo_place *place = svg->place;
    char text[RONDO_LABEL];
    for (int p = 0; p < place->npanels && place->nhosts > 1;) {
        const struct rondo_place_panel *panel = &place->panel[p];
        struct rondo_box frame = panel->frame;
        for (; p < place->npanels && place->panel[p].host == panel->host &&
               place->panel[p].frame.row == frame.row;
             p++) {
            frame.w = place->panel[p].frame.x + place->panel[p].frame.w - frame.x;
        }
        int32_t above = place->row[frame.row].above + 15;
        frame = (struct rondo_box){ frame.x - 5, frame.y - above, frame.w + 10, frame.h + above + 5,
                                    frame.row };
        if (panel->fold >= 0) {
            snprintf(text, sizeof text, "hosts %d-%d", panel->host,
                     panel->host + place->fold[panel->fold].nhosts - 1);
        } else {
            snprintf(text, sizeof text, panel->cpu < 0 ? "without a NUMA node" : "host %d", panel->host);
        }
        rect_put(svg, &frame, "frame", 8);
        text_put(svg, frame.x + 6, frame.y + 11, 9, "mut", text);
    }
    for (int p = 0; p < place->npanels; p++) {
        rect_put(svg, &place->panel[p].frame, "panel", 8);
        fputc('\n', svg->out);
    }
}

static void heads_put(const struct svg *svg)
{
    const struct rondo_place *place = svg->place;
    char text[RONDO_LABEL], name[RONDO_LABEL];
    for (int p = 0; p < place->npanels; p++) {
        const struct rondo_place_panel *panel = &place->panel[p];
        if (panel->cpu >= 0 && panel->part == 0) continue;
        int size = place->compact ? 9 : 12;
        rect_put(svg, &panel->head, "box bCPU", 4);
        if (panel->fold >= 0) {
            const struct rondo_fold *fold = &place->fold[panel->fold];
            snprintf(text, sizeof text, "%d hosts like host %d", fold->nhosts, fold->like);
        } else {
            snprintf(text, sizeof text, panel->cpu < 0 ? "no NUMA node" : "%s, continued",
                     panel->cpu < 0 ? "" : rondo_label_name(svg->topo, panel->cpu, name));
        }
        text_put(svg, panel->head.x + panel->head.w / 2, panel->head.y + panel->head.h / 2 + size / 3, size,
                 "m mut", text);
    }
}

static void bars_put(const struct svg *svg)
{
    const struct rondo_place *place = svg->place;
    char facts[RONDO_FACTS];
    for (int i = 0; i < place->nbars; i++) {
        const struct rondo_place_bar *bar = &place->bar[i];
        if (bar->box.row >= 0 && bar->box.h == place->size->bar_h) continue;
        fputs("<g>", svg->out);
        title_put(svg, rondo_facts_node(svg->topo, bar->node, facts));
        rect_put(svg, &bar->box, "box bNVS", 4);
        fputs("</g>\n", svg->out);
    }
}

static void machine_put(const struct svg *svg)
{
    const struct rondo_place *place = svg->place;
    panels_put(svg);
    for (int nvl = 0; nvl < 2; nvl++) {
        for (int i = 0; i < place->nwires; i++) {
            if ((place->wire[i].type == RONDO_LINK_NVL) == nvl) wire_put(svg, &place->wire[i]);
        }
    }
    heads_put(svg);
    bars_put(svg);
    for (int i = 0; i < svg->topo->nnodes; i++) node_put(svg, i);
}

/* ---- channels ---- */

/* Draw the names of the columns above the tracks, and guides down from them. */
static void strip_put(const struct svg *svg, int strip)
{
    const struct rondo_place *place = svg->place;
    const struct rondo_strip *at = &place->strip[strip];
    for (int p = 0; p < svg->topo->ndevs + svg->topo->nnets; p++) {
        const struct rondo_column *column = &place->column[p];
        int32_t wide = place->apart ? 2 * place->radius + 9 : place->box[svg->topo->point[p]].w;
        char name[RONDO_LABEL];
        if (column->strip != strip) continue;
        fprintf(svg->out, "<path class=\"guide\" d=\"M%d %dV%d\"/>", column->x, at->y - 4,
                at->y + at->height);
        int fold = rondo_fold_at(place, svg->topo->point[p]);
        if (fold >= 0) {
            fold_label(svg, &place->fold[fold], name);
        } else {
            rondo_label_line(svg->topo, svg->topo->point[p], 0, rondo_label_columns(wide, 9), name);
        }
        text_put(svg, column->x, at->y - 9, 9, "m mut", name);
    }
}

static void track_links_put(const struct svg *svg, const struct rondo_track *track)
{
    const struct rondo_topo *topo = svg->topo;
    struct rondo_graph one = *svg->place->graph;
    int channel = __builtin_ctz(track->channels), any = 0;
    one.nchannels = 1;
    one.bw_intra = one.bw_inter = 480;
    one.order += (size_t)channel * (size_t)one.ndevs;
    memmove(one.net, one.net + 2 * (size_t)channel, 2 * sizeof *one.net);
    rondo_graph_load(topo, &one, svg->load);
    for (int l = 0; l < topo->nlinks; l++) {
        int32_t reverse = topo->link[l].reverse;
        if ((reverse < 0 || l < reverse) && (svg->load[l] > 0 || (reverse >= 0 && svg->load[reverse] > 0)))
            fprintf(svg->out, "%s%d", any++ ? " " : "", l);
    }
}

static const char *stop_label(const struct svg *svg, const struct rondo_stop *stop, char text[32])
{
    if (stop->position < 0) {
        snprintf(text, 32, "net");
    } else if (rondo_fold_at(svg->place, svg->topo->point[stop->point]) < 0 || stop->last == stop->position) {
        snprintf(text, 32, "%d", stop->position);
    } else if (stop->half > svg->place->radius) {
        snprintf(text, 32, "%d\u2013%d", stop->position, stop->last);
    } else {
        snprintf(text, 32, "\u2026");
    }
    return text;
}

/* The names at the stubs of a hop: where the data go, where they come from. */
static void stubs_put(const struct svg *svg, const struct rondo_track *track, const struct rondo_hop *hop)
{
    const struct rondo_stop *stop = &svg->place->stop[track->first_stop];
    char text[32];
    for (int i = 0; i < track->nstops; i++, stop++) {
        if (stop->point == hop->to)
            text_put(svg, hop->line.x[1] + 2, hop->line.y[1] + 9, 9, "e tip", stop_label(svg, stop, text));
        if (stop->point == hop->from)
            text_put(svg, hop->end.x[0] + 2, hop->end.y[0] - 2, 9, "e tip", stop_label(svg, stop, text));
    }
}

static void stops_put(const struct svg *svg, const struct rondo_track *track)
{
    int32_t radius = svg->place->radius;
    for (int i = 0; i < track->nstops; i++) {
        const struct rondo_stop *stop = &svg->place->stop[track->first_stop + i];
        char text[32];
        stop_label(svg, stop, text);
        if (stop->half > radius) {
            struct rondo_box box = { stop->x - stop->half, stop->y - radius, 2 * stop->half, 2 * radius, 0 };
            rect_put(svg, &box, "stop", radius);
        } else if (stop->position >= 0) {
            fprintf(svg->out, "<circle class=\"stop\" cx=\"%d\" cy=\"%d\" r=\"%d\"/>", stop->x, stop->y,
                    radius);
        } else {
            struct rondo_box box = { stop->x - radius, stop->y - radius, 2 * radius, 2 * radius, 0 };
            rect_put(svg, &box, "stop", 2);
        }
        text_put(svg, stop->x, stop->y + 3, stop->position < 0 ? 8 : 9, "m", text);
    }
}

static void track_put(const struct svg *svg, int t)
{
    const struct rondo_place *place = svg->place;
    const struct rondo_track *track = &place->track[t];
    char text[RONDO_FACTS], label[RONDO_LABEL], cut[RONDO_LABEL];
    fprintf(svg->out, "<g class=\"ch c%d\" data-t=\"%d\" data-channels=\"", t % NUM_COLORS, t);
    rondo_svg_text(svg->out, strchr(rondo_label_track(track, label), ' ') + 1);
    fputs("\" data-links=\"", svg->out);
    track_links_put(svg, track);
    fputs("\">", svg->out);
    title_put(svg, rondo_facts_track(place, track, text));
    fputs("\n<path class=\"hop\" d=\"", svg->out);
    for (int i = 0; i < track->nhops; i++) {
        const struct rondo_hop *hop = &place->hop[track->first_hop + i];
        line_put(svg->out, &hop->line, ARROW - 1);
        if (hop->kind == RONDO_HOP_STUBS) line_put(svg->out, &hop->end, ARROW - 1);
    }
    fputs("\"/>\n<path class=\"tip\" d=\"", svg->out);
    for (int i = 0; i < track->nhops; i++) {
        const struct rondo_hop *hop = &place->hop[track->first_hop + i];
        arrow_put(svg->out, &hop->line);
        if (is_tree(place)) back_arrow_put(svg->out, &hop->line);
        if (hop->kind != RONDO_HOP_STUBS) continue;
        arrow_put(svg->out, &hop->end);
        if (is_tree(place)) back_arrow_put(svg->out, &hop->end);
    }
    fputs("\"/>\n", svg->out);
    for (int i = 0; i < track->nhops; i++) {
        if (place->hop[track->first_hop + i].kind == RONDO_HOP_STUBS)
            stubs_put(svg, track, &place->hop[track->first_hop + i]);
    }
    stops_put(svg, track);
    for (int r = 0; r < place->nstrips; r++) {
        if (track->y[r] >= 0)
            text_put(svg, LABEL_X, track->y[r] + 4, 11, "b tip", rondo_label_cut(label, 15, cut, sizeof cut));
    }
    fputs("</g>\n", svg->out);
}

/* ---- legend ---- */

struct pen {
    int32_t x, y, right;
};

static void sample_put(const struct svg *svg, struct pen *pen, int type, int32_t mbs, const char *text)
{
    int32_t width = (type >= 0 ? 40 : 0) + 7 * rondo_text_columns(text) + 16,
            tenths = rondo_wire_width(type, mbs);
    if (pen->x + width > pen->right) {
        pen->x = LABEL_X;
        pen->y += LEGEND_STEP;
    }
    if (svg->out && type >= 0) {
        fprintf(svg->out, "<path class=\"l l%s\" stroke-width=\"%d.%d\" d=\"M%d %dh30\"/>",
                rondo_link_type_name(type), tenths / 10, tenths % 10, pen->x, pen->y - 4);
    }
    if (svg->out) text_put(svg, pen->x + (type >= 0 ? 38 : 0), pen->y, 11, "", text);
    pen->x += width;
}

/* List the bandwidths of a type of link in descending order. @return their number, at most `most`. */
static int speeds_of(const struct rondo_place *place, int type, int32_t *mbs, int most)
{
    int n = 0;
    for (int32_t last = INT32_MAX; n < most; n++) {
        int32_t best = 0;
        for (int i = 0; i < place->nwires; i++) {
            if (place->wire[i].type == type && place->wire[i].mbs < last && place->wire[i].mbs > best)
                best = place->wire[i].mbs;
        }
        if (best == 0) break;
        mbs[n] = last = best;
    }
    return n;
}

static int has_stubs(const struct rondo_place *place)
{
    for (int i = 0; i < place->nhops; i++) {
        if (place->hop[i].kind == RONDO_HOP_STUBS) return 1;
    }
    return 0;
}

/* Draw the legend; without a stream only measure it. @return its lower end. */
static int32_t legend_put(const struct svg *svg)
{
#define WHAT_(ctx, NAME, name, what) what,
    static const char *const what[] = { RONDO_TOPO_LINK_TABLE(WHAT_, ) };
#undef WHAT_
    const struct rondo_place *place = svg->place;
    struct pen pen = { LABEL_X, place->legend_y, place->width - 8 };
    for (int type = 0; type < RONDO_NUM_LINK_TYPES; type++) {
        int32_t mbs[5];
        char text[RONDO_LABEL], number[24];
        int n = speeds_of(place, type, mbs, 5);
        for (int i = 0; i < n; i++) {
            text[0] = '\0';
            if (i == 0) rondo_text_add(text, sizeof text, "%s, %s: ", rondo_link_type_name(type), what[type]);
            rondo_text_add(text, sizeof text, mbs[i] >= RONDO_LOC_MBS ? "no limit" : "%s%s GB/s",
                           i == 4 ? "\u2026 " : "", rondo_text_gbs(mbs[i], number));
            sample_put(svg, &pen, type, mbs[i], text);
        }
    }
    pen = (struct pen){ LABEL_X, pen.y + LEGEND_STEP, pen.right };
    sample_put(svg, &pen, -1, 0, "The thickness of a link is its bandwidth.");
    if (place->ntracks) {
        pen = (struct pen){ LABEL_X, pen.y + LEGEND_STEP, pen.right };
        sample_put(svg, &pen, -1, 0,
                   "Circles: the position of a device in the channel, in the column of the device.");
        sample_put(
            svg, &pen, -1, 0,
            is_tree(place)
                ? "Arrows both ways: data go up the tree to be reduced, and down to be spread; net: its "
                  "parent and children on other nodes."
                : "Arrows: the direction of the data; above the line to the right, below it to the left.");
        if (has_stubs(place))
            sample_put(svg, &pen, -1, 0,
                       "An arrow with a number comes from or goes to that position in another row.");
    }
    return pen.y + 16;
}

/* ---- the picture ---- */

struct rondo_graph rondo_svg_channels(const struct rondo_graph *graph, int all)
{
    struct rondo_graph shown = *graph;
    if (!all && shown.ndevs > MANY_DEVICES && shown.nchannels > 1) shown.nchannels = 1;
    return shown;
}

static int is_narrow(const struct rondo_place *place) { return place->limit == RONDO_PLACE_NARROW; }
static int head_size(const struct rondo_place *place) { return is_narrow(place) ? 11 : 12; }

/* Widen the picture of a narrow machine to fit its title. */
static void title_fit(struct rondo_place *place)
{
    char text[RONDO_FACTS];
    int32_t columns = rondo_text_columns(rondo_label_machine(place->topo, text));
    if (place->graph)
        columns = max32(columns, rondo_text_columns(rondo_label_graph(place->topo, place->graph, text)));
    int32_t width = (columns + 1) * head_size(place) * 62 / 100 + 2 * LABEL_X,
            most = is_narrow(place) ? MOST_NARROW : MOST_TITLE;
    if (width > most) width = most;
    if (place->width < width) place->width = width;
}

/* End a text that is too long at its last semicolon that fits. @return what follows; NULL: nothing. */
static char *title_break(char *text, int columns)
{
    char *last = NULL;
    if (rondo_text_columns(text) <= columns) return NULL;
    for (char *at = text; (at = strstr(at, "; ")) && at - text < columns; at++) last = at;
    if (!last) return NULL;
    *last = '\0';
    return last + 2;
}

static void head_put(const struct svg *svg, const struct rondo_graph *graph, int32_t height,
                     const struct rondo_svg_look *look)
{
    const struct rondo_place *place = svg->place;
    char text[RONDO_FACTS], cut[RONDO_FACTS];
    const char *source = rondo_label_source(svg->topo);
    int alone = look->alone, size = head_size(place);
    int32_t top = alone ? 0 : TITLE_HEIGHT, wide = place->width - 2 * LABEL_X;
    fprintf(
        svg->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rondo%s%s\" data-graph=\"%s\" viewBox=\"0 %d %d "
        "%d\" width=\"%d\" height=\"%d\" "
        "role=\"img\" aria-label=\"",
        look->class[0] ? " " : "", look->class, rondo_graph_name(graph->id), top, place->width, height - top,
        place->width, height - top);
    rondo_svg_text(svg->out, source);
    fputs(": ", svg->out);
    rondo_svg_text(svg->out, rondo_label_machine(svg->topo, text));
    fputs("\">\n", svg->out);
    if (alone) {
        fputs("<style>\n", svg->out);
        rondo_svg_style(svg->out);
        fputs("</style>\n", svg->out);
    }
    fprintf(svg->out, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", place->width, height);
    if (alone)
        text_put(svg, LABEL_X, 27, 16, "b",
                 rondo_label_cut(source, rondo_label_columns(wide, 17), cut, sizeof cut));
    text_put(svg, LABEL_X, 47, size, "mut",
             rondo_label_cut(text, rondo_label_columns(wide, size), cut, sizeof cut));
    snprintf(text, sizeof text, "no channels");
    if (place->graph) rondo_label_graph(svg->topo, graph, text);
    if (place->graph && place->graph->nchannels < graph->nchannels)
        rondo_text_add(text, sizeof text, "; drawn: %d of them (all: --all)", place->graph->nchannels);
    char *more = is_narrow(place) ? title_break(text, rondo_label_columns(wide, size)) : NULL;
    text_put(svg, LABEL_X, 66, size, "",
             rondo_label_cut(text, rondo_label_columns(wide, size), cut, sizeof cut));
    if (more)
        text_put(svg, LABEL_X, 66 + RONDO_PLACE_TITLE_MORE, size, "",
                 rondo_label_cut(more, rondo_label_columns(wide, size), cut, sizeof cut));
}

rondo_status rondo_svg_put(FILE *out, const struct rondo_topo *topo,
                           const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                           const struct rondo_svg_look *look)
{
    int graph = look->graph;
    struct rondo_graph shown = rondo_svg_channels(&graphs[graph], look->all);
    struct rondo_place *place;
    struct svg svg = { .topo = topo };
    if (graphs[graph].nchannels > 0 && graphs[graph].ndevs != topo->ndevs) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "the %s has channels of %d devices, but the machine has %d devices; use a graph of this "
            "machine",
            rondo_graph_name(graph), graphs[graph].ndevs, topo->ndevs);
    }
    RONDO_TRY(rondo_place_create(&place, topo, &shown, look->limit, look->all));
    svg.place = place;
    title_fit(place);
    int32_t height = legend_put(&svg);
    rondo_status status;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(svg.load, topo->nlinks, "a picture's loads"), out);
    if (place->graph) rondo_graph_load(topo, place->graph, svg.load);
    svg.out = out;
    head_put(&svg, &graphs[graph], height, look);
    machine_put(&svg);
    for (int r = 0; r < place->nstrips; r++) strip_put(&svg, r);
    for (int t = 0; t < place->ntracks; t++) track_put(&svg, t);
    legend_put(&svg);
    fputs("</svg>\n", out);
out:
    rondo_free(svg.load);
    rondo_place_destroy(place);
    return status;
}

rondo_status rondo_draw_svg(FILE *out, const struct rondo_topo *topo,
                            const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int graph, int all)
{
    const struct rondo_svg_look look = {
        .graph = graph, .all = all, .alone = 1, .limit = RONDO_PLACE_WIDTH, .class = ""
    };
    RONDO_TRY(rondo_svg_put(out, topo, graphs, &look));
    return rondo_draw_finish(out);
}
