/* Everything as JSON (RFC 8259). Numbers are written from integers, so that neither the locale nor rounding
 * changes them. */
#include "tools/draw/text.h"

#include <string.h>

struct json {
    FILE *out;
    int depth;
    int first; /* 1: the open object or array is still empty */
};

/* ---- the writer ---- */

static void json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(out, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            /* The encoding is unknown: writing each byte as a character of its value is always valid. */
            fprintf(out, "\\u%04x", *c);
        } else {
            fputc(*c, out);
        }
    }
    fputc('"', out);
}

static void json_next(struct json *j, const char *key)
{
    if (!j->first) fputc(',', j->out);
    if (j->depth <= 3 && (j->depth > 0 || !j->first)) fprintf(j->out, "\n%*s", j->depth, "");
    j->first = 0;
    if (key) {
        json_string(j->out, key);
        fputc(':', j->out);
    }
}

static void json_open(struct json *j, const char *key, char bracket)
{
    json_next(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->first = 1;
}

static void json_close(struct json *j, char bracket)
{
    j->depth--;
    fputc(bracket, j->out);
    j->first = 0;
}

static void json_text(struct json *j, const char *key, const char *text)
{
    json_next(j, key);
    json_string(j->out, text);
}

static void json_int(struct json *j, const char *key, int64_t value)
{
    json_next(j, key);
    fprintf(j->out, "%lld", (long long)value);
}

static void json_bool(struct json *j, const char *key, int value)
{
    json_next(j, key);
    fputs(value ? "true" : "false", j->out);
}

/* -1, unknown or none, becomes null. */
static void json_index(struct json *j, const char *key, int64_t value)
{
    if (value >= 0) {
        json_int(j, key, value);
    } else {
        json_next(j, key);
        fputs("null", j->out);
    }
}

/* value / 1000 */
static void json_thousandths(struct json *j, const char *key, int64_t value)
{
    json_next(j, key);
    if (value < 0) value = 0;
    fprintf(j->out, "%lld", (long long)(value / 1000));
    if (value % 1000) fprintf(j->out, ".%03lld", (long long)(value % 1000));
}

static void json_busid(struct json *j, const char *key, int64_t busid)
{
    char text[24];
    if (busid >= 0) json_text(j, key, rondo_busid_text(busid, text));
}

static void json_cores(struct json *j, const char *key, const struct rondo_cores *cores)
{
    char text[4096];
    if (rondo_cores_count(cores) > 0) json_text(j, key, rondo_text_cores(cores, text, sizeof text));
}

/* ---- the machine ---- */

static void cpu_put(struct json *j, const struct rondo_item *item)
{
    const char *arch = rondo_arch_name(item->cpu.arch), *vendor = rondo_vendor_name(item->cpu.vendor);
    char hash[24];
    json_index(j, "numa", item->cpu.numa);
    json_index(j, "package", item->cpu.package);
    if (arch) json_text(j, "arch", arch);
    if (vendor) json_text(j, "vendor", vendor);
    json_int(j, "family", item->cpu.family);
    json_int(j, "model", item->cpu.model);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)item->cpu.host_hash);
    if (item->cpu.host_hash) json_text(j, "host_hash", hash);
    json_cores(j, "cores", &item->cpu.cores);
}

static void pci_put(struct json *j, const struct rondo_item *item)
{
    char text[24];
    json_busid(j, "busid", item->pci.busid);
    snprintf(text, sizeof text, "0x%06x", item->pci.class_code & 0xffffff);
    json_text(j, "class", text);
    snprintf(text, sizeof text, "%04x:%04x", item->pci.vendor, item->pci.device);
    if (item->pci.vendor) json_text(j, "device", text);
    if (item->pci.speed > 0) {
        json_thousandths(j, "gt_s", (int64_t)item->pci.speed * 100);
        json_int(j, "width", item->pci.width);
    }
    json_thousandths(j, "gb_s", rondo_topo_pci_mbs(item->pci.speed, item->pci.width));
}

static void gpu_put(struct json *j, const struct rondo_item *item)
{
    json_index(j, "dev", item->gpu.dev);
    if (item->gpu.name[0]) json_text(j, "name", item->gpu.name);
    if (item->gpu.sm > 0) json_int(j, "sm", item->gpu.sm);
    if (item->gpu.gdr >= 0) json_bool(j, "gdr", item->gpu.gdr);
}

static void net_put(struct json *j, const struct rondo_item *item)
{
    char guid[24];
    json_text(j, "name", item->net.name);
    json_index(j, "dev", item->net.dev);
    json_thousandths(j, "gbit_s", item->net.mbps > 0 ? item->net.mbps : 10000);
    json_int(j, "port", item->net.port);
    snprintf(guid, sizeof guid, "0x%016llx", (unsigned long long)item->net.guid);
    json_text(j, "guid", guid);
    if (item->net.gdr >= 0) json_bool(j, "gdr", item->net.gdr);
    if (item->net.rail >= 0) json_int(j, "rail", item->net.rail);
    if (item->net.plane >= 0) json_int(j, "plane", item->net.plane);
}

static void item_put(struct json *j, const struct rondo_machine *machine, int32_t at)
{
    const struct rondo_item *item = &machine->item[at];
    json_open(j, NULL, '{');
    json_int(j, "item", at);
    json_index(j, "parent", item->parent);
    json_text(j, "kind", rondo_item_kind_name((enum rondo_item_kind)item->kind));
    switch (item->kind) {
    case RONDO_ITEM_CPU: cpu_put(j, item); break;
    case RONDO_ITEM_PCI: pci_put(j, item); break;
    case RONDO_ITEM_GPU: gpu_put(j, item); break;
    case RONDO_ITEM_NET: net_put(j, item); break;
    case RONDO_ITEM_NVLINK:
        json_busid(j, "target", item->nvlink.target);
        json_int(j, "count", item->nvlink.count);
        break;
    case RONDO_ITEM_C2C:
        json_thousandths(j, "gb_s", item->c2c.mbs);
        json_int(j, "count", item->c2c.count);
        break;
    case RONDO_ITEM_PCILINK: json_busid(j, "target", item->pcilink.target); break;
    case RONDO_ITEM_CACHE:
        json_int(j, "level", item->cache.level);
        json_int(j, "bytes", item->cache.bytes);
        json_cores(j, "cores", &item->cache.cores);
        break;
    default: break;
    }
    json_close(j, '}');
}

static void machine_put(struct json *j, const struct rondo_machine *machine)
{
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)rondo_machine_hash(machine));
    json_open(j, "machine", '{');
    json_text(j, "source", machine->source);
    json_text(j, "note", machine->note);
    json_bool(j, "virtual", machine->is_virtual);
    json_text(j, "hash", hash);
    json_open(j, "items", '[');
    for (int32_t i = 0; i < machine->nitems; i++) item_put(j, machine, i);
    json_close(j, ']');
    json_close(j, '}');
}

/* ---- the graph of the node ---- */

static void options_put(struct json *j, const struct rondo_topo_options *options)
{
    json_open(j, "options", '{');
    json_int(j, "nnodes", options->nnodes);
    if (options->p2p_level >= 0) json_text(j, "p2p_level", rondo_path_type_name(options->p2p_level));
    if (options->gdr_level >= 0) json_text(j, "gdr_level", rondo_path_type_name(options->gdr_level));
    json_bool(j, "gdr_c2c", options->gdr_c2c);
    if (options->gdr_read >= 0) json_bool(j, "gdr_read", options->gdr_read);
    json_int(j, "cross_nic", options->cross_nic);
    json_bool(j, "p2p_disable", options->p2p_disable);
    json_bool(j, "shm_disable", options->shm_disable);
    json_bool(j, "pxn_disable", options->pxn_disable);
    json_close(j, '}');
}

static void devices_put(struct json *j, const struct rondo_topo *topo)
{
    json_open(j, "devices", '[');
    for (int d = 0; d < topo->ndevs; d++) {
        json_open(j, NULL, '{');
        json_int(j, "device", d);
        json_int(j, "rank", topo->rank[d].rank);
        json_busid(j, "busid", topo->rank[d].busid);
        json_cores(j, "cores", &topo->rank[d].cores);
        json_index(j, "cpu", topo->device_cpu[d]);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void nodes_put(struct json *j, const struct rondo_topo *topo)
{
    json_open(j, "nodes", '[');
    for (int n = 0; n < topo->nnodes; n++) {
        json_open(j, NULL, '{');
        json_int(j, "node", n);
        json_text(j, "type", rondo_node_type_name(topo->node[n].type));
        json_int(j, "index", topo->node[n].index);
        json_index(j, "item", topo->node[n].item);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "links", '[');
    for (int l = 0; l < topo->nlinks; l++) {
        json_open(j, NULL, '{');
        json_int(j, "from", topo->link[l].from);
        json_int(j, "to", topo->link[l].to);
        json_text(j, "type", rondo_link_type_name(topo->link[l].type));
        json_thousandths(j, "gb_s", topo->link[l].mbs);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void matrix_put(struct json *j, const struct rondo_topo *topo, const char *key,
                       const struct rondo_topo_path *paths, int types)
{
    json_open(j, key, '[');
    for (int from = 0; from < topo->npoints; from++) {
        json_open(j, NULL, '[');
        for (int to = 0; to < topo->npoints; to++) {
            const struct rondo_topo_path *path = &paths[(size_t)from * (size_t)topo->npoints + (size_t)to];
            if (types) {
                json_text(j, NULL, rondo_path_type_name(path->type));
            } else {
                json_thousandths(j, NULL, path->mbs);
            }
        }
        json_close(j, ']');
    }
    json_close(j, ']');
}

static void paths_put(struct json *j, const struct rondo_topo *topo)
{
    char name[96];
    json_open(j, "paths", '{');
    json_open(j, "points", '[');
    for (int p = 0; p < topo->npoints; p++) {
        json_open(j, NULL, '{');
        json_text(j, "name", rondo_topo_point_name(topo, p, name, sizeof name));
        json_int(j, "node", topo->point[p]);
        json_close(j, '}');
    }
    json_close(j, ']');
    matrix_put(j, topo, "type", topo->path, 1);
    matrix_put(j, topo, "gb_s", topo->path, 0);
    matrix_put(j, topo, "wired_type", topo->wired, 1);
    matrix_put(j, topo, "wired_gb_s", topo->wired, 0);
    json_close(j, '}');
}

static void channel_put(struct json *j, const struct rondo_topo *topo, const struct rondo_graph *graph, int c)
{
    const int16_t *order = graph->order + (size_t)c * (size_t)graph->ndevs;
    json_open(j, NULL, '{');
    json_open(j, "devices", '[');
    for (int i = 0; i < graph->ndevs; i++) json_int(j, NULL, order[i]);
    json_close(j, ']');
    json_open(j, "ranks", '[');
    for (int i = 0; i < graph->ndevs; i++)
        json_int(j, NULL, order[i] >= 0 && order[i] < topo->ndevs ? topo->rank[order[i]].rank : -1);
    json_close(j, ']');
    json_index(j, "net_in", graph->net[2 * c]);
    json_index(j, "net_out", graph->net[2 * c + 1]);
    json_close(j, '}');
}

static void graph_put(struct json *j, const struct rondo_topo *topo, const struct rondo_graph *graph,
                      const double *search_ms)
{
    char limit[128];
    json_open(j, NULL, '{');
    json_text(j, "algo", rondo_graph_name(graph->id));
    json_text(j, "pattern", rondo_pattern_name(graph->pattern));
    json_int(j, "nchannels", graph->nchannels);
    json_thousandths(j, "bw_intra", graph->bw_intra);
    json_thousandths(j, "bw_inter", graph->bw_inter);
    json_text(j, "type_intra", rondo_path_type_name(graph->type_intra));
    json_text(j, "type_inter", rondo_path_type_name(graph->type_inter));
    json_int(j, "cross_nic", graph->cross_nic);
    json_bool(j, "same_channels", graph->same_channels);
    json_bool(j, "fallback", graph->fallback);
    json_thousandths(j, "found", graph->found);
    json_thousandths(j, "bound", graph->bound);
    json_text(j, "limit", graph->bound > 0 ? rondo_graph_limit(topo, graph, limit, sizeof limit) : "");
    if (search_ms && *search_ms >= 0 && *search_ms < 1e12)
        json_thousandths(j, "search_ms", (int64_t)(*search_ms * 1000));
    json_int(j, "search_steps", graph->steps);
    json_open(j, "channels", '[');
    for (int c = 0; c < graph->nchannels && graph->order; c++) channel_put(j, topo, graph, c);
    json_close(j, ']');
    json_close(j, '}');
}

rondo_status rondo_draw_json(FILE *out, const struct rondo_topo *topo,
                             const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                             const double search_ms[RONDO_NUM_GRAPHS])
{
    struct json j = { .out = out, .first = 1 };
    json_open(&j, NULL, '{');
    json_int(&j, "schema", 1);
    options_put(&j, &topo->options);
    machine_put(&j, topo->machine);
    devices_put(&j, topo);
    nodes_put(&j, topo);
    paths_put(&j, topo);
    json_open(&j, "graphs", '[');
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (graphs && graphs[id].nchannels > 0)
            graph_put(&j, topo, &graphs[id], search_ms ? &search_ms[id] : NULL);
    }
    json_close(&j, ']');
    json_close(&j, '}');
    fputc('\n', out);
    return rondo_draw_finish(out);
}
