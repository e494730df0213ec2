#include "tools/draw/label.h"

#include <string.h>
#include "tools/draw/text.h"
#include "topo/search_step.h"

static const struct rondo_item *item_of(const struct rondo_topo *topo, int node)
{
    int32_t item = topo->node[node].item;
    return item < 0 ? NULL : &topo->machine->item[item];
}

static const struct rondo_item *pci_of(const struct rondo_topo *topo, int node)
{
    int32_t item = topo->node[node].item;
    while (item >= 0 && topo->machine->item[item].kind != RONDO_ITEM_PCI)
        item = topo->machine->item[item].parent;
    return item < 0 ? NULL : &topo->machine->item[item];
}

/* Leave out domain 0000. */
static const char *busid_short(const struct rondo_topo *topo, int node, char text[24])
{
    const struct rondo_item *pci = pci_of(topo, node);
    if (!pci) return "";
    rondo_busid_text(pci->pci.busid, text);
    return strncmp(text, "0000:", 5) == 0 ? text + 5 : text;
}

int rondo_label_character(const char *bytes)
{
    const unsigned char *text = (const unsigned char *)bytes;
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int n = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : text[0] >> 3 == 30 ? 4 : 0;
    if (n == 0) return 0;
    uint32_t code = n == 1 ? text[0] : text[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (text[i] >> 6 != 2) return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < least[n] || (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff ||
        code > 0x10ffff)
        return 0;
    return code >= ' ' || code == '\n' ? n : 0;
}

/* Replace each byte that cannot be shown by '?', so that columns can be counted. */
static void clean(char *text)
{
    while (*text) {
        int n = rondo_label_character(text);
        if (n == 0 || *text == '\n') *text = '?';
        text += n ? n : 1;
    }
}

int rondo_label_columns(int32_t width, int size) { return width * 100 / (size * 62); }

const char *rondo_label_cut(const char *from, int columns, char *out, size_t bytes)
{
    char text[RONDO_FACTS];
    snprintf(text, sizeof text, "%s", from);
    clean(text);
    int whole = rondo_text_columns(text), keep = whole <= columns ? whole : columns - 1;
    size_t n = 0;
    for (int seen = 0; text[n]; n++) {
        if (((unsigned char)text[n] & 0xc0) != 0x80 && seen++ == keep) break;
    }
    snprintf(out, bytes, "%.*s%s", (int)n, text, keep < whole && columns > 0 ? "\u2026" : "");
    return out;
}

const char *rondo_label_middle(const char *from, int columns, char *out, size_t bytes)
{
    char text[RONDO_FACTS];
    snprintf(text, sizeof text, "%s", from);
    clean(text);
    int whole = rondo_text_columns(text), head = (columns - 1) / 2, tail = columns - 1 - head, seen = 0;
    size_t first = 0, last = 0;
    if (whole <= columns || columns < 3) return rondo_label_cut(text, columns, out, bytes);
    for (size_t n = 0; text[n]; n++) {
        if (((unsigned char)text[n] & 0xc0) == 0x80) continue;
        if (seen == head) first = n;
        if (seen++ == whole - tail) last = n;
    }
    snprintf(out, bytes, "%.*s\u2026%s", (int)first, text, text + last);
    return out;
}

const char *rondo_label_name(const struct rondo_topo *topo, int node, char text[RONDO_LABEL])
{
    char busid[24];
    const struct rondo_topo_node *at = &topo->node[node];
    if (at->type == RONDO_NODE_PCI && pci_of(topo, node)) {
        snprintf(text, RONDO_LABEL, "PCI %s", busid_short(topo, node, busid));
    } else {
        snprintf(text, RONDO_LABEL, "%s %d", rondo_node_type_name(at->type), at->index);
    }
    return text;
}

/* ---- lines of boxes: the first candidate that fits ---- */

struct fit {
    char *text;
    int columns;
};

static int fits(const struct fit *fit, const char *fmt, ...) RONDO_PRINTF(2, 3);
static int fits(const struct fit *fit, const char *fmt, ...)
{
    char whole[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(whole, sizeof whole, fmt, args);
    va_end(args);
    clean(whole);
    if (!whole[0] || rondo_text_columns(whole) > fit->columns || strlen(whole) >= RONDO_LABEL) return 0;
    memcpy(fit->text, whole, strlen(whole) + 1);
    return 1;
}

static int cpu_line(const struct fit *fit, const struct rondo_topo *topo, int node)
{
    const struct rondo_item *cpu = item_of(topo, node);
    int index = topo->node[node].index;
    char cores[64], numa[32] = "", model[64] = "";
    if (!cpu) return fits(fit, "CPU %d", index);
    int n = rondo_cores_count(&cpu->cpu.cores);
    if (cpu->cpu.numa >= 0) snprintf(numa, sizeof numa, ", NUMA %d", cpu->cpu.numa);
    if (rondo_vendor_name(cpu->cpu.vendor))
        snprintf(model, sizeof model, ", %s", rondo_vendor_name(cpu->cpu.vendor));
    rondo_text_cores(&cpu->cpu.cores, cores, sizeof cores);
    return (n > 0 && fits(fit, "CPU %d%s%s, %d cores: %s", index, numa, model, n, cores)) ||
           (n > 0 && fits(fit, "CPU %d%s, cores %s", index, numa, cores)) ||
           (n > 0 && fits(fit, "CPU %d%s, %d cores", index, numa, n)) || fits(fit, "CPU %d%s", index, numa) ||
           fits(fit, "CPU %d", index);
}

static int gpu_line(const struct fit *fit, const struct rondo_topo *topo, int node, int line)
{
    const struct rondo_item *gpu = item_of(topo, node);
    int index = topo->node[node].index;
    char busid[24];
    if (line == 0) return fits(fit, "GPU %d", index) || fits(fit, "G%d", index) || fits(fit, "%d", index);
    if (line == 1) return fits(fit, "%s", busid_short(topo, node, busid));
    if (topo->rank[index].rank != index) return fits(fit, "rank %d", topo->rank[index].rank);
    if (!gpu || gpu->kind != RONDO_ITEM_GPU) return 0;
    const char *name = gpu->gpu.name;
    if (strncmp(name, "NVIDIA ", 7) == 0) name += 7;
    return fits(fit, "%s", name) || fits(fit, "%.*s", (int)strcspn(name, " -"), name) ||
           (gpu->gpu.sm > 0 && fits(fit, "sm %d", gpu->gpu.sm));
}

static int host_line(const struct fit *fit, const struct rondo_topo *topo, int node, int line)
{
    int index = topo->node[node].index, n = rondo_cores_count(&topo->rank[index].cores);
    char cores[64];
    if (line == 0) return fits(fit, "HOST %d", index) || fits(fit, "H%d", index) || fits(fit, "%d", index);
    if (line == 2) return topo->rank[index].rank != index && fits(fit, "rank %d", topo->rank[index].rank);
    rondo_text_cores(&topo->rank[index].cores, cores, sizeof cores);
    if (n == 0) return fits(fit, "any core");
    return fits(fit, "core%s %s", n > 1 ? "s" : "", cores) || fits(fit, "%s", cores) ||
           fits(fit, "%d cores", n) || fits(fit, "%d c", n);
}

static int pci_line(const struct fit *fit, const struct rondo_topo *topo, int node)
{
    char busid[24], link[24] = "";
    const struct rondo_item *pci = pci_of(topo, node);
    const char *at = busid_short(topo, node, busid);
    if (pci) rondo_text_pci_link(pci->pci.speed, pci->pci.width, link);
    return (link[0] && fits(fit, "PCI bridge %s, %s upstream", at, link)) ||
           (link[0] && fits(fit, "PCI %s %s", at, link)) || fits(fit, "PCI %s", at) || fits(fit, "%s", at) ||
           fits(fit, "PCI");
}

static int net_line(const struct fit *fit, const struct rondo_topo *topo, int node, int line)
{
    const struct rondo_item *net = item_of(topo, node);
    int index = topo->node[node].index;
    if (line == 0) return fits(fit, "NET %d", index) || fits(fit, "N%d", index);
    if (line != 1 || !net || net->kind != RONDO_ITEM_NET) return 0;
    char cut[RONDO_LABEL];
    return fits(fit, "%s", rondo_label_middle(net->net.name, fit->columns, cut, sizeof cut));
}

const char *rondo_label_line(const struct rondo_topo *topo, int node, int line, int columns,
                             char text[RONDO_LABEL])
{
    struct fit fit = { text, columns };
    const struct rondo_topo_node *at = &topo->node[node];
    char busid[24];
    text[0] = '\0';
    switch (at->type) {
    case RONDO_NODE_GPU: gpu_line(&fit, topo, node, line); break;
    case RONDO_NODE_HOST: host_line(&fit, topo, node, line); break;
    case RONDO_NODE_NET: net_line(&fit, topo, node, line); break;
    case RONDO_NODE_CPU: (void)(line == 0 && cpu_line(&fit, topo, node)); break;
    case RONDO_NODE_PCI: (void)(line == 0 && pci_line(&fit, topo, node)); break;
    case RONDO_NODE_NVS:
        (void)(line == 0 &&
               (fits(&fit, "NVSwitches of NVLink domain %d", at->index) || fits(&fit, "NVSwitch")));
        break;
    default:
        (void)(line == 0 && (fits(&fit, "NIC %s", busid_short(topo, node, busid)) ||
                             fits(&fit, "NIC %d", at->index) || fits(&fit, "NIC")));
    }
    return text;
}

/* ---- details ---- */

static void facts_of_item(const struct rondo_topo *topo, int node, char *text)
{
    const struct rondo_item *item = item_of(topo, node), *pci = pci_of(topo, node);
    const struct rondo_topo_node *at = &topo->node[node];
    char word[256];
    if (pci)
        rondo_text_add(text, RONDO_FACTS, "\nbus id %s", rondo_busid_text(pci->pci.busid, (char[24]){ 0 }));
    if (pci && rondo_text_pci_link(pci->pci.speed, pci->pci.width, word)[0])
        rondo_text_add(text, RONDO_FACTS, ", PCI %s", word);
    if (at->type == RONDO_NODE_GPU || at->type == RONDO_NODE_HOST)
        rondo_text_add(text, RONDO_FACTS, "\nrank %d", topo->rank[at->index].rank);
    if (at->type == RONDO_NODE_HOST && rondo_cores_count(&topo->rank[at->index].cores) > 0) {
        rondo_text_add(text, RONDO_FACTS, "\ncores %s",
                       rondo_text_cores(&topo->rank[at->index].cores, word, sizeof word));
    }
    if (!item) return;
    if (item->kind == RONDO_ITEM_GPU && item->gpu.name[0])
        rondo_text_add(text, RONDO_FACTS, "\n%s", item->gpu.name);
    if (item->kind == RONDO_ITEM_GPU)
        rondo_text_add(text, RONDO_FACTS, "\ndevice %d, compute capability %d.%d", item->gpu.dev,
                       item->gpu.sm / 10, item->gpu.sm % 10);
    if (item->kind == RONDO_ITEM_NET) {
        rondo_text_add(text, RONDO_FACTS, "\n%s, port %d, device %d", item->net.name, item->net.port,
                       item->net.dev);
        if (item->net.mbps > 0) rondo_text_add(text, RONDO_FACTS, "\n%d Mbit/s", item->net.mbps);
    }
    if (item->kind == RONDO_ITEM_CPU) {
        rondo_text_add(text, RONDO_FACTS, "\nNUMA node %d", item->cpu.numa);
        if (rondo_arch_name(item->cpu.arch))
            rondo_text_add(text, RONDO_FACTS, ", %s", rondo_arch_name(item->cpu.arch));
        if (rondo_vendor_name(item->cpu.vendor))
            rondo_text_add(text, RONDO_FACTS, " %s", rondo_vendor_name(item->cpu.vendor));
        int n = rondo_cores_count(&item->cpu.cores);
        if (n > 0)
            rondo_text_add(text, RONDO_FACTS, "\n%d cores: %s", n,
                           rondo_text_cores(&item->cpu.cores, word, sizeof word));
    }
}

/* "to devices: 7 x NVL at up to 370.8 GB/s": count the points of [first, last) by type of path. */
static void facts_of_paths(const struct rondo_topo *topo, int point, int first, int last, const char *what,
                           char *text)
{
    int count[RONDO_NUM_PATH_TYPES] = { 0 }, any = 0;
    int32_t best[RONDO_NUM_PATH_TYPES] = { 0 };
    char word[32];
    for (int p = first; p < last; p++) {
        const struct rondo_topo_path *path = rondo_topo_path(topo, point, p);
        if (p == point || path->type < 0 || path->type >= RONDO_NUM_PATH_TYPES) continue;
        count[path->type]++;
        best[path->type] = path->mbs > best[path->type] ? path->mbs : best[path->type];
    }
    for (int type = 0; type < RONDO_NUM_PATH_TYPES; type++) {
        if (!count[type]) continue;
        rondo_text_add(text, RONDO_FACTS, "%s%s%s %d x %s", any ? ", " : "\nto ", any ? "" : what,
                       any ? "" : ":", count[type], rondo_path_type_name(type));
        if (best[type] > 0 && type != RONDO_PATH_DIS)
            rondo_text_add(text, RONDO_FACTS, " at up to %s", rondo_text_bandwidth(best[type], word));
        any = 1;
    }
}

static int point_of(const struct rondo_topo *topo, int node)
{
    int p = 0;
    while (p < topo->npoints && topo->point[p] != node) p++;
    return p;
}

const char *rondo_facts_node(const struct rondo_topo *topo, int node, char text[RONDO_FACTS])
{
    const struct rondo_topo_node *at = &topo->node[node];
    int point = point_of(topo, node);
    text[0] = '\0';
    rondo_text_add(text, RONDO_FACTS, "%s %d", rondo_node_type_name(at->type), at->index);
    facts_of_item(topo, node, text);
    if (point < topo->ndevs) facts_of_paths(topo, point, 0, topo->ndevs, "devices", text);
    if (point < topo->ndevs)
        facts_of_paths(topo, point, topo->ndevs, topo->ndevs + topo->nnets, "nets", text);
    if (at->type == RONDO_NODE_NET && point < topo->npoints)
        facts_of_paths(topo, point, 0, topo->ndevs, "devices", text);
    return text;
}

void rondo_graph_load(const struct rondo_topo *topo, const struct rondo_graph *graph, int64_t *load)
{
    struct rondo_leg leg[RONDO_TOPO_MAX_LOCAL + 3];
    memset(load, 0, sizeof *load * (size_t)topo->nlinks);
    for (int c = 0; c < graph->nchannels; c++) {
        int n = rondo_graph_legs(topo, graph, c, leg);
        for (int i = 0; i < n; i++) {
            const struct rondo_topo_path *path = rondo_topo_path(topo, leg[i].from, leg[i].to);
            int64_t mbs = (int64_t)(leg[i].inter ? graph->bw_inter : graph->bw_intra) * leg[i].eighths / 8;
            for (int h = 0; h < path->nhops; h++)
                load[topo->hop[path->first + h]] += mbs * topo->cost[path->first + h] / 60;
        }
    }
}

const char *rondo_facts_fold(const struct rondo_place *place, const struct rondo_fold *fold,
                             char text[RONDO_LABEL])
{
    int32_t list[RONDO_TOPO_MAX_LOCAL];
    int n = 0;
    char ranges[RONDO_LABEL / 2];
    for (int p = 0; p < place->topo->ndevs && n < RONDO_TOPO_MAX_LOCAL; p++) {
        if (place->shown[p] == fold->point) list[n++] = p;
    }
    snprintf(text, RONDO_LABEL, "hosts %d-%d, each like host %d\ndevices %s", fold->first,
             fold->first + fold->nhosts - 1, fold->like, rondo_text_ranges(list, n, ranges, sizeof ranges));
    return text;
}

const char *rondo_facts_wire(const struct rondo_place *place, const struct rondo_wire *wire,
                             char text[RONDO_FACTS])
{
    const struct rondo_topo *topo = place->topo;
    char a[RONDO_LABEL], b[RONDO_LABEL], word[32], back[32];
    text[0] = '\0';
    if (wire->link < 0) {
        rondo_text_add(text, RONDO_FACTS, "links between NUMA nodes, each pair %s",
                       rondo_text_bandwidth(wire->mbs, word));
        return text;
    }
    const struct rondo_topo_link *link = &topo->link[wire->link];
    int32_t reverse = link->reverse >= 0 ? topo->link[link->reverse].mbs : link->mbs;
    rondo_text_add(text, RONDO_FACTS, "%s: %s - %s, %s", rondo_link_type_name(link->type),
                   rondo_label_name(topo, link->from, a), rondo_label_name(topo, link->to, b),
                   rondo_text_bandwidth(link->mbs, word));
    rondo_text_add(text, RONDO_FACTS, reverse == link->mbs ? " each way" : " there, %s back",
                   rondo_text_bandwidth(reverse, back));
    return text;
}

const char *rondo_label_track(const struct rondo_track *track, char text[RONDO_LABEL])
{
    int32_t list[RONDO_TOPO_CHANNELS];
    int n = 0;
    char ranges[RONDO_LABEL - 16];
    for (int c = 0; c < RONDO_TOPO_CHANNELS; c++) {
        if (track->channels >> c & 1) list[n++] = c;
    }
    snprintf(text, RONDO_LABEL, "channel%s %s", n > 1 ? "s" : "",
             rondo_text_ranges(list, n, ranges, sizeof ranges));
    return text;
}

const char *rondo_facts_track(const struct rondo_place *place, const struct rondo_track *track,
                              char text[RONDO_FACTS])
{
    const struct rondo_graph *graph = place->graph;
    int channel = __builtin_ctz(track->channels);
    const int16_t *net = graph->net + 2 * (size_t)channel;
    int32_t order[RONDO_TOPO_MAX_LOCAL];
    int n = graph->ndevs < RONDO_TOPO_MAX_LOCAL ? graph->ndevs : RONDO_TOPO_MAX_LOCAL;
    char list[512], intra[32], inter[32];
    for (int i = 0; i < n; i++) order[i] = graph->order[(size_t)channel * (size_t)graph->ndevs + (size_t)i];
    rondo_label_track(track, text);
    rondo_text_add(text, RONDO_FACTS, ": ");
    if (net[0] >= 0) rondo_text_add(text, RONDO_FACTS, "in at NET %d, ", net[0]);
    rondo_text_add(text, RONDO_FACTS, "devices %s", rondo_text_ranges(order, n, list, sizeof list));
    if (net[1] >= 0) rondo_text_add(text, RONDO_FACTS, ", out at NET %d", net[1]);
    rondo_text_add(text, RONDO_FACTS, "; %s each", rondo_text_bandwidth(graph->bw_intra, intra));
    if (net[1] >= 0 && graph->bw_inter != graph->bw_intra)
        rondo_text_add(text, RONDO_FACTS, ", %s through the net",
                       rondo_text_bandwidth(graph->bw_inter, inter));
    return text;
}

/* ---- title ---- */

static void count_add(char *text, int n, const char *one, const char *many)
{
    if (n > 0) rondo_text_add(text, RONDO_FACTS, "%s%d %s", text[0] ? ", " : "", n, n == 1 ? one : many);
}

const char *rondo_label_source(const struct rondo_topo *topo)
{
    const char *slash = strrchr(topo->machine->source, '/');
    if (slash && slash[1]) return slash + 1;
    return topo->machine->source[0] ? topo->machine->source : "machine";
}

const char *rondo_label_machine(const struct rondo_topo *topo, char text[RONDO_FACTS])
{
    const struct rondo_item *gpu = topo->ndevs > 0 ? rondo_topo_item(topo, 0) : NULL;
    text[0] = '\0';
    if (topo->all_gpus) {
        count_add(text, topo->ndevs, "GPU", "GPUs");
    } else {
        count_add(text, topo->ndevs, "rank", "ranks");
    }
    if (gpu && gpu->kind == RONDO_ITEM_GPU && gpu->gpu.name[0])
        rondo_text_add(text, RONDO_FACTS, " (%s)", gpu->gpu.name);
    if (gpu && gpu->kind == RONDO_ITEM_GPU && !gpu->gpu.name[0] && gpu->gpu.sm > 0)
        rondo_text_add(text, RONDO_FACTS, " (sm %d)", gpu->gpu.sm);
    count_add(text, topo->nnets, "net", "nets");
    count_add(text, topo->ncpus, "NUMA node", "NUMA nodes");
    count_add(text, topo->nnvs, "domain of NVSwitches", "domains of NVSwitches");
    if (topo->options.nnodes > 1)
        rondo_text_add(text, RONDO_FACTS, ", one of %d such nodes", topo->options.nnodes);
    if (topo->machine->note[0]) rondo_text_add(text, RONDO_FACTS, "; %s", topo->machine->note);
    return text;
}

const char *rondo_label_graph(const struct rondo_topo *topo, const struct rondo_graph *graph,
                              char text[RONDO_FACTS])
{
    char intra[32], inter[32], found[24], bound[32], limit[128];
    const char *name = rondo_graph_name(graph->id), *pattern = rondo_pattern_name(graph->pattern);
    text[0] = '\0';
    if (graph->nchannels == 0) return text;
    rondo_text_add(text, RONDO_FACTS, "%s: %d channel%s x %s, %s", strcmp(name, "tree") == 0 ? pattern : name,
                   graph->nchannels, graph->nchannels > 1 ? "s" : "",
                   rondo_text_bandwidth(graph->bw_intra, intra), rondo_path_type_name(graph->type_intra));
    if (topo->options.nnodes > 1) {
        rondo_text_add(text, RONDO_FACTS, "; through the net %s, %s",
                       rondo_text_bandwidth(graph->bw_inter, inter), rondo_path_type_name(graph->type_inter));
    }
    if (graph->fallback) {
        rondo_text_add(text, RONDO_FACTS, "; no channel fits the links: plain order");
    } else if (graph->bound > 0 && graph->bound < RONDO_LOC_MBS) {
        rondo_text_add(text, RONDO_FACTS, "; %s of at most %s, limited by %s",
                       rondo_text_gbs(graph->found, found), rondo_text_bandwidth(graph->bound, bound),
                       rondo_graph_limit(topo, graph, limit, sizeof limit));
    }
    return text;
}
