#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/param.h"
#include "topo/xml/xml.h"
#include "topo/xml/xml_read.h"

enum {
    MAX_ELEMENTS = 5 * RONDO_MAX_CHANNELS * (RONDO_TOPO_MAX_LOCAL + 4),
    MAX_US_1000 = 1000000000
}; /* NCCL's files have up to five graphs */

struct reader {
    struct rondo_graph *graphs;
    const struct rondo_topo *topo;
    const char *file;
    struct rondo_graph *graph;     /* the open one */
    int32_t claimed;               /* channels according to the attribute, -1 none */
    int32_t channel, ndevs, nnets; /* of the open channel; nnets is 0 or 1 before the devices, 2 after them */
    uint8_t *seen;                 /* the open channel's devices */
};

/* ---- devices ---- */

static int point_type(const struct rondo_topo *topo, int point)
{
    return topo->node[topo->point[point]].type;
}

/* Find the device that an element names. @return -1: none, -2: the channel already has it. */
static int device_find(const struct reader *reader, int type, int32_t number)
{
    const struct rondo_topo *topo = reader->topo;
    int found = -1;
    for (int dev = 0; dev < topo->ndevs; dev++) {
        if (point_type(topo, dev) != type) {
            continue;
        }
        /* hosts by local rank: global ranks differ between nodes and communicators */
        int32_t own = type == RONDO_NODE_GPU ? rondo_topo_item(topo, dev)->gpu.dev : dev;
        if (own == number && !reader->seen[dev]) {
            return dev;
        }
        found = own == number ? -2 : found;
    }
    return found;
}

static int net_find(const struct rondo_topo *topo, int32_t number)
{
    for (int net = 0; net < topo->nnets; net++) {
        if (rondo_topo_item(topo, rondo_topo_net_point(topo, net))->net.dev == number) {
            return net;
        }
    }
    return -1;
}

static rondo_status device_read(struct reader *reader, const struct rondo_xml_element *element, int type)
{
    const char *attribute = type == RONDO_NODE_GPU ? "dev" : "rank";
    int32_t number = -1;
    RONDO_TRY(rondo_xml_int(element, attribute, 1, 0, INT32_MAX, &number));
    int dev = device_find(reader, type, number);
    if (dev < 0) {
        return rondo_xml_fail(
            element, attribute,
            dev == -2 ? "it appears twice; a channel visits each device once"
                      : "no rank of this node uses it; a channel has each device of the node's ranks once");
    }
    if (reader->nnets == 2) {
        return rondo_xml_fail(element, NULL,
                              "a device after the second <net>; expected <net>, the devices, <net>");
    }
    reader->seen[dev] = 1;
    reader->graph->order[reader->channel * reader->topo->ndevs + reader->ndevs++] = (int16_t)dev;
    return RONDO_SUCCESS;
}

static rondo_status net_read(struct reader *reader, const struct rondo_xml_element *element)
{
    int32_t number = -1;
    RONDO_TRY(rondo_xml_int(element, "dev", 1, 0, INT32_MAX, &number));
    if (reader->topo->options.nnodes <= 1) {
        /* the file is from a job of several nodes, this one has a single node: no nets */
        return RONDO_SUCCESS;
    }
    int net = net_find(reader->topo, number), out = reader->ndevs > 0;
    if (net < 0) {
        return rondo_xml_fail(element, "dev", "no such net; this node has %d", reader->topo->nnets);
    }
    if (reader->nnets != out) {
        return rondo_xml_fail(element, NULL, "expected one <net> before the devices and one after them");
    }
    reader->graph->net[2 * reader->channel + out] = (int16_t)net;
    reader->nnets++;
    return RONDO_SUCCESS;
}

/* ---- graphs ---- */

static rondo_status type_read(const struct rondo_xml_element *element, const char *name, int32_t *type)
{
    const char *text = rondo_xml_attr(element, name);
    if (text && text[0] >= '0' && text[0] <= '9') {
        return rondo_xml_int(element, name, 1, 0, RONDO_NUM_PATH_TYPES - 1, type);
    }
    *type = text ? rondo_path_type_from_name(text) : -1;
    if (*type < 0) {
        return rondo_xml_fail(element, text ? name : NULL, "%s: expected a path type from %s to %s", name,
                              rondo_path_type_name(0), rondo_path_type_name(RONDO_NUM_PATH_TYPES - 1));
    }
    return RONDO_SUCCESS;
}

static rondo_status graph_read(struct reader *reader, const struct rondo_xml_element *element,
                               enum rondo_xml_next *next)
{
    int32_t id = -1;
    RONDO_TRY(rondo_xml_int(element, "id", 1, 0, INT32_MAX, &id));
    if (id >= RONDO_NUM_GRAPHS) {
        *next = RONDO_XML_SKIP; /* NVLS and CollNet */
        return RONDO_SUCCESS;
    }
    struct rondo_graph *graph = &reader->graphs[id];
    if (graph->order) {
        return rondo_xml_fail(element, "id", "the %s appears twice", rondo_graph_name(id));
    }
    reader->graph = graph;
    reader->claimed = -1;
    reader->channel = -1;
    graph->id = id;
    graph->ndevs = reader->topo->ndevs;
    memset(graph->net, 0xff, sizeof graph->net);
    RONDO_TRY(rondo_xml_int(element, "pattern", 1, RONDO_PATTERN_BALANCED_TREE, RONDO_PATTERN_RING,
                            &graph->pattern));
    RONDO_TRY(rondo_xml_int(element, "crossnic", 0, 0, 2, &graph->cross_nic));
    RONDO_TRY(rondo_xml_int(element, "nchannels", 0, 0, RONDO_TOPO_CHANNELS, &reader->claimed));
    RONDO_TRY(rondo_xml_thousandths(element, "speedintra", 1, 1, RONDO_MACHINE_MAX_MBS, &graph->bw_intra));
    RONDO_TRY(rondo_xml_thousandths(element, "speedinter", 1, 1, RONDO_MACHINE_MAX_MBS, &graph->bw_inter));
    RONDO_TRY(rondo_xml_thousandths(element, "latencyinter", 0, 0, MAX_US_1000, &graph->latency_inter));
    RONDO_TRY(type_read(element, "typeintra", &graph->type_intra));
    RONDO_TRY(type_read(element, "typeinter", &graph->type_inter));
    RONDO_TRY(rondo_xml_int(element, "samechannels", 0, 0, 1, &graph->same_channels));
    RONDO_TRY(rondo_xml_int(element, "nhops", 0, 0, INT32_MAX, &graph->nhops));
    if ((id == RONDO_GRAPH_RING) != (graph->pattern == RONDO_PATTERN_RING)) {
        return rondo_xml_fail(element, "pattern", "a %s cannot have this pattern", rondo_graph_name(id));
    }
    return RONDO_NEW_ARRAY(graph->order, RONDO_TOPO_CHANNELS * (graph->ndevs + 1), "the channels of a graph");
}

static rondo_status channel_read(struct reader *reader, const struct rondo_xml_element *element)
{
    if (++reader->channel >= RONDO_TOPO_CHANNELS) {
        return rondo_xml_fail(element, NULL, "more than the limit of %d channels", RONDO_TOPO_CHANNELS);
    }
    reader->ndevs = reader->nnets = 0;
    memset(reader->seen, 0, (size_t)reader->topo->ndevs);
    return RONDO_SUCCESS;
}

static rondo_status on_start(void *arg, const struct rondo_xml_element *element, enum rondo_xml_next *next)
{
    static const char *const expected[] = { "graphs", "graph", "channel" };
    struct reader *reader = arg;
    const char *name = element->name;
    if (element->depth == 1) {
        const char *version = rondo_xml_attr(element, "version");
        if (strcmp(name, expected[0]) != 0 || !version || strcmp(version, "1") != 0) {
            return rondo_xml_fail(element, strcmp(name, expected[0]) == 0 ? "version" : NULL,
                                  "expected the root <graphs version=\"1\">");
        }
        return RONDO_SUCCESS;
    }
    if (element->depth == 2 && strcmp(name, expected[1]) == 0) {
        return graph_read(reader, element, next);
    }
    if (element->depth == 3 && strcmp(name, expected[2]) == 0) {
        return channel_read(reader, element);
    }
    if (element->depth == 4 && strcmp(name, "net") == 0) {
        return net_read(reader, element);
    }
    if (element->depth == 4 && (strcmp(name, "gpu") == 0 || strcmp(name, "host") == 0)) {
        return device_read(reader, element, name[0] == 'g' ? RONDO_NODE_GPU : RONDO_NODE_HOST);
    }
    *next = RONDO_XML_SKIP;
    return RONDO_SUCCESS;
}

static rondo_status channel_end(const struct reader *reader, int line)
{
    const struct rondo_topo *topo = reader->topo;
    if (reader->ndevs != topo->ndevs) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "%s:%d: channel %d has %d devices, but this node has %d ranks; each must appear once",
            reader->file, line, reader->channel, reader->ndevs, topo->ndevs);
    }
    if (topo->options.nnodes > 1 && topo->nnets > 0 && reader->nnets != 2) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s:%d: channel %d has no nets; with several nodes, expected one <net> before "
                          "the devices and one after them",
                          reader->file, line, reader->channel);
    }
    return RONDO_SUCCESS;
}

static rondo_status graph_end(struct reader *reader, int line)
{
    struct rondo_graph *graph = reader->graph;
    graph->nchannels = reader->channel + 1;
    if (reader->claimed >= 0 && reader->claimed != graph->nchannels) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s:%d: the %s has %d channels, but its nchannels is %d",
                          reader->file, line, rondo_graph_name(graph->id), graph->nchannels, reader->claimed);
    }
    graph->found = rondo_graph_found(graph->nchannels,
                                     reader->topo->options.nnodes > 1 ? graph->bw_inter : graph->bw_intra);
    reader->graph = NULL;
    return RONDO_SUCCESS;
}

static rondo_status on_end(void *arg, int depth, int line)
{
    struct reader *reader = arg;
    if (depth == 3) {
        return channel_end(reader, line);
    }
    return depth == 2 && reader->graph ? graph_end(reader, line) : RONDO_SUCCESS;
}

rondo_status rondo_graphs_parse(struct rondo_graph graphs[RONDO_NUM_GRAPHS], const struct rondo_topo *topo,
                                const char *text, size_t bytes, const char *name)
{
    const struct rondo_xml_visitor visitor = { .start = on_start,
                                               .end = on_end,
                                               .max_elements = MAX_ELEMENTS };
    struct reader reader = { .graphs = graphs, .topo = topo, .file = name };
    memset(graphs, 0, RONDO_NUM_GRAPHS * sizeof *graphs);
    RONDO_TRY(RONDO_NEW_ARRAY(reader.seen, topo->ndevs + 1, "the devices of a channel"));
    rondo_status status = rondo_xml_walk(text, bytes, name, &visitor, &reader);
    rondo_free(reader.seen);
    for (int id = 0; status != RONDO_SUCCESS && id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
    return status;
}

rondo_status rondo_graphs_read(struct rondo_graph graphs[RONDO_NUM_GRAPHS], const struct rondo_topo *topo,
                               const char *file)
{
    char *text, label[RONDO_FILE_LABEL];
    size_t bytes;
    memset(graphs, 0, RONDO_NUM_GRAPHS * sizeof *graphs);
    RONDO_TRY(rondo_xml_load(file, &text, &bytes));
    rondo_status status = rondo_graphs_parse(graphs, topo, text, bytes, rondo_param_file_label(file, label));
    rondo_free(text);
    return status;
}

/* ---- writing ---- */

/* Print thousandths as a decimal fraction without trailing zeros. */
static const char *decimal_text(int32_t value, char text[16])
{
    int n = snprintf(text, 16, "%d.%03d", value / 1000, value % 1000);
    while (text[n - 1] == '0') {
        text[--n] = '\0';
    }
    if (text[n - 1] == '.') {
        text[n - 1] = '\0';
    }
    return text;
}

static void net_write(FILE *out, const struct rondo_topo *topo, int net)
{
    if (net >= 0 && net < topo->nnets) {
        fprintf(out, "      <net dev=\"%d\"/>\n",
                rondo_topo_item(topo, rondo_topo_net_point(topo, net))->net.dev);
    }
}

static void channel_write(FILE *out, const struct rondo_graph *graph, const struct rondo_topo *topo,
                          int channel)
{
    fprintf(out, "    <channel>\n");
    net_write(out, topo, graph->net[2 * channel]);
    for (int i = 0; i < graph->ndevs; i++) {
        int dev = graph->order[channel * graph->ndevs + i];
        if (point_type(topo, dev) == RONDO_NODE_GPU) {
            fprintf(out, "      <gpu dev=\"%d\" rank=\"%d\"/>\n", rondo_topo_item(topo, dev)->gpu.dev,
                    topo->rank[dev].rank);
        } else {
            fprintf(out, "      <host rank=\"%d\"/>\n", dev);
        }
    }
    net_write(out, topo, graph->net[2 * channel + 1]);
    fprintf(out, "    </channel>\n");
}

static void graph_write(FILE *out, const struct rondo_graph *graph, const struct rondo_topo *topo)
{
    char intra[16], inter[16], latency[16];
    fprintf(out, "  <graph id=\"%d\" pattern=\"%d\" crossnic=\"%d\" nchannels=\"%d\"", graph->id,
            graph->pattern, graph->cross_nic, graph->nchannels);
    fprintf(out, " speedintra=\"%s\" speedinter=\"%s\" latencyinter=\"%s\"",
            decimal_text(graph->bw_intra, intra), decimal_text(graph->bw_inter, inter),
            decimal_text(graph->latency_inter, latency));
    fprintf(out, " typeintra=\"%s\" typeinter=\"%s\" samechannels=\"%d\" nhops=\"%d\">\n",
            rondo_path_type_name(graph->type_intra), rondo_path_type_name(graph->type_inter),
            graph->same_channels, graph->nhops);
    for (int channel = 0; channel < graph->nchannels; channel++) {
        channel_write(out, graph, topo, channel);
    }
    fprintf(out, "  </graph>\n");
}

static rondo_status graphs_check(const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                                 const struct rondo_topo *topo)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        const struct rondo_graph *graph = &graphs[id];
        if (graph->nchannels && (graph->ndevs != topo->ndevs || graph->nchannels < 0 ||
                                 graph->nchannels > RONDO_TOPO_CHANNELS || !graph->order)) {
            return rondo_fail(
                RONDO_INVALID_ARGUMENT,
                "cannot write the %s: it has %d channels of %d devices, but this node has %d ranks",
                rondo_graph_name(id), graph->nchannels, graph->ndevs, topo->ndevs);
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_graphs_text(const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                               const struct rondo_topo *topo, char **text)
{
    size_t bytes;
    *text = NULL;
    RONDO_TRY(graphs_check(graphs, topo));
    FILE *out = open_memstream(text, &bytes);
    if (!out) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the text of graphs");
    }
    fprintf(out, "<graphs version=\"1\">\n");
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (graphs[id].nchannels) {
            graph_write(out, &graphs[id], topo);
        }
    }
    fprintf(out, "</graphs>\n");
    int bad = ferror(out);
    if (fclose(out) != 0 || bad) {
        free(*text);
        *text = NULL;
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the text of graphs");
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_graphs_write(const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                                const struct rondo_topo *topo, const char *file)
{
    char *text;
    RONDO_TRY(rondo_graphs_text(graphs, topo, &text));
    rondo_status status = rondo_xml_store(file, text, strlen(text));
    free(text);
    return status;
}
