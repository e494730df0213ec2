/* Pictures: nothing overlaps, labels fit, and the files are well-formed and need no other file, whatever
 * names a machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "machine_scene.h"
#include "tools/draw/draw.h"
#include "tools/draw/label.h"
#include "tools/draw/place.h"
#include "topo/search_step.h"

static uint32_t next(uint32_t *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

/* Make channels with random orders and nets. */
static void graph_shuffle(struct scene *scene, uint32_t seed, int nchannels)
{
    struct rondo_graph *graph = &scene->graphs[RONDO_GRAPH_RING];
    int n = scene->topo->ndevs;
    *graph = (struct rondo_graph){ .id = RONDO_GRAPH_RING,
                                   .pattern = RONDO_PATTERN_RING,
                                   .nchannels = nchannels,
                                   .bw_intra = 1000,
                                   .bw_inter = 1000 };
    assert_int_equal(rondo_graph_alloc(graph, n), RONDO_SUCCESS);
    for (int c = 0; c < nchannels; c++) {
        int16_t *order = graph->order + c * n;
        for (int i = 0; i < n; i++) {
            int j = (int)(next(&seed) % (uint32_t)(i + 1));
            order[i] = order[j];
            order[j] = (int16_t)i;
        }
        for (int i = 0; i < 2; i++)
            graph->net[2 * c + i] = scene->topo->nnets ? (int16_t)(next(&seed) % (uint32_t)scene->topo->nnets)
                                                       : -1;
    }
}

/* ---- random machines: bridges, NICs and NVLinks ---- */

struct random {
    FILE *out;
    uint32_t seed;
    int ngpus, gpus, nets, buses;
};

static void pci_put(struct random *random, int domain, int bus, const char *class)
{
    fprintf(random->out,
            "<pci busid=\"%04x:%02x:00.0\" class=\"%s\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n",
            domain, bus, class);
}

static void gpu_put(struct random *random)
{
    int gpu = random->gpus++;
    pci_put(random, 1, gpu, "0x030200");
    fprintf(random->out, "<gpu dev=\"%d\" sm=\"80\">\n", gpu);
    for (int peer = 0; peer < random->ngpus; peer++) {
        uint32_t pair = (uint32_t)(gpu * peer + 31 * (gpu + peer));
        if (peer != gpu && next(&pair) % 4 == 0)
            fprintf(random->out, "<nvlink target=\"0001:%02x:00.0\" count=\"%d\" tclass=\"0x030200\"/>\n",
                    peer, 1 + (gpu + peer) % 3);
    }
    fprintf(random->out, "</gpu></pci>\n");
}

static void nic_put(struct random *random)
{
    pci_put(random, 0, ++random->buses, "0x020700");
    fprintf(random->out, "<nic>");
    for (int port = (int)(next(&random->seed) % 2) + 1; port > 0; port--, random->nets++) {
        fprintf(random->out, "<net name=\"n%d\" dev=\"%d\" speed=\"100000\" port=\"%d\" guid=\"0x%d\"/>",
                random->nets, random->nets, port, random->buses);
    }
    fprintf(random->out, "</nic></pci>\n");
}

static void bridges_put(struct random *random, int depth)
{
    if (depth > 0) pci_put(random, 0, ++random->buses, "0x060400");
    for (int more = (int)(next(&random->seed) % 3); more >= 0; more--) {
        if (depth > 1) {
            bridges_put(random, depth - 1);
        } else if (random->gpus < random->ngpus && next(&random->seed) % 2) {
            gpu_put(random);
        } else {
            nic_put(random);
        }
    }
    if (depth > 0) fprintf(random->out, "</pci>\n");
}

static void world_random(struct scene *scene, uint32_t seed)
{
    char *text = NULL;
    size_t bytes = 0;
    struct random random = { .out = open_memstream(&text, &bytes), .seed = seed };
    int ncpus = 1 + (int)(next(&random.seed) % 5);
    random.ngpus = 1 + (int)(next(&random.seed) % 16);
    fprintf(random.out, "<system version=\"1\">\n");
    for (int c = 0; c < ncpus; c++) {
        fprintf(
            random.out,
            "<cpu numaid=\"%d\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\">\n",
            c);
        for (int more = (int)(next(&random.seed) % 3); more > 0; more--)
            bridges_put(&random, (int)(next(&random.seed) % 4));
        while (c == ncpus - 1 && random.gpus < random.ngpus) gpu_put(&random);
        fprintf(random.out, "</cpu>\n");
    }
    fprintf(random.out, "</system>\n");
    fclose(random.out);
    *scene = (struct scene){ 0 };
    assert_int_equal(rondo_machine_parse(&scene->machine, text, bytes, "random"), RONDO_SUCCESS);
    free(text);
    scene_topo(scene, NULL, 1 + (int)(seed % 2));
    graph_shuffle(scene, seed, 1 + (int)(seed % 9));
}

/* ---- positions ---- */

static int apart(const struct rondo_box *a, const struct rondo_box *b)
{
    return a->x + a->w <= b->x || b->x + b->w <= a->x || a->y + a->h <= b->y || b->y + b->h <= a->y;
}

static int inside(const struct rondo_box *a, const struct rondo_box *b)
{
    return a->x >= b->x && a->y >= b->y && a->x + a->w <= b->x + b->w && a->y + a->h <= b->y + b->h;
}

static void assert_boxes(const struct rondo_place *place)
{
    const struct rondo_topo *topo = place->topo;
    const struct rondo_box canvas = { 0, 0, place->width, place->legend_y, 0 };
    for (int p = 0; p < topo->npoints; p++) assert_true(place->box[topo->point[p]].w > 0);
    for (int i = 0; i < topo->nnodes; i++) {
        const struct rondo_box *box = &place->box[i];
        assert_true(box->w > 0 && box->h > 0 && inside(box, &canvas));
        if (place->panel_of[i] >= 0) assert_true(inside(box, &place->panel[place->panel_of[i]].frame));
        for (int j = 0; j < i; j++) {
            if (!apart(box, &place->box[j]))
                fail_msg("nodes %d and %d overlap at %d,%d and %d,%d", i, j, box->x, box->y, place->box[j].x,
                         place->box[j].y);
        }
        for (int p = 0; p < place->npanels; p++) {
            if (place->panel[p].part > 0) assert_true(apart(box, &place->panel[p].head));
        }
    }
    for (int p = 0; p < place->npanels; p++) {
        for (int q = 0; q < p; q++) assert_true(apart(&place->panel[p].frame, &place->panel[q].frame));
        for (int b = 0; b < place->nbars; b++) assert_true(apart(&place->panel[p].frame, &place->bar[b].box));
    }
}

/* Check that links stay inside the picture, and clear of the title. */
static void assert_wires(const struct rondo_place *place)
{
    for (int i = 0; i < place->nwires; i++) {
        const struct rondo_wire *wire = &place->wire[i];
        assert_in_range(wire->width, 10, 160);
        for (int p = 0; p < wire->line.npoints; p++) {
            assert_in_range(wire->line.x[p], 0, place->width);
            assert_in_range(wire->line.y[p], 70, place->legend_y);
        }
        if (wire->shape == RONDO_WIRE_ARC) {
            int32_t reach = wire->line.y[0] + (wire->line.y[2] - wire->line.y[0]) * 3 / 4;
            assert_in_range(reach, 70, place->legend_y);
            const struct rondo_place_row *row =
                &place->row[place->box[place->topo->link[wire->link].from].row];
            if (wire->line.y[2] > wire->line.y[0]) assert_true(reach <= row->bar_y + 8);
        }
    }
}

static int spans_overlap(int32_t a, int32_t b, int32_t c, int32_t d)
{
    int32_t low = (a < b ? a : b) > (c < d ? c : d) ? (a < b ? a : b) : (c < d ? c : d),
            high = (a > b ? a : b) < (c > d ? c : d) ? (a > b ? a : b) : (c > d ? c : d);
    return low < high;
}

static void assert_points_apart(const struct rondo_points *a, const struct rondo_points *b)
{
    for (int i = 0; i + 1 < a->npoints; i++) {
        for (int j = 0; j + 1 < b->npoints; j++) {
            if (a->y[i] == a->y[i + 1] && b->y[j] == b->y[j + 1] && a->y[i] == b->y[j])
                assert_false(spans_overlap(a->x[i], a->x[i + 1], b->x[j], b->x[j + 1]));
            if (a->x[i] == a->x[i + 1] && b->x[j] == b->x[j + 1] && a->x[i] == b->x[j])
                assert_false(spans_overlap(a->y[i], a->y[i + 1], b->y[j], b->y[j + 1]));
        }
    }
}

static void assert_hops_apart(const struct rondo_hop *a, const struct rondo_hop *b)
{
    assert_points_apart(&a->line, &b->line);
    assert_points_apart(&a->line, &b->end);
    assert_points_apart(&a->end, &b->line);
    assert_points_apart(&a->end, &b->end);
}

static void assert_tracks(const struct rondo_place *place)
{
    uint32_t channels = 0;
    for (int t = 0; t < place->ntracks; t++) {
        const struct rondo_track *track = &place->track[t];
        assert_int_equal(channels & track->channels, 0);
        channels |= track->channels;
        assert_true(track->nstops >= place->topo->ndevs);
        for (int i = 0; i < track->nstops; i++) {
            const struct rondo_stop *stop = &place->stop[track->first_stop + i];
            assert_true(stop->x - place->radius >= 0 && stop->x + place->radius <= place->width);
            assert_true(stop->y - place->radius >= place->strip[stop->strip].y);
            assert_true(stop->y + place->radius <=
                        place->strip[stop->strip].y + place->strip[stop->strip].height);
            if (!place->apart)
                assert_int_equal(stop->x, place->box[place->topo->point[stop->point]].x +
                                              place->box[place->topo->point[stop->point]].w / 2);
        }
    }
    assert_int_equal(channels, (uint32_t)((UINT64_C(1) << place->graph->nchannels) - 1));
    int out_of_levels = 0;
    for (int i = 0; i < place->nhops; i++) {
        out_of_levels |= place->hop[i].level >= RONDO_PLACE_LEVELS - 1 ||
                         place->hop[i].level_to >= RONDO_PLACE_LEVELS - 1;
        const struct rondo_points *line[] = { &place->hop[i].line, &place->hop[i].end };
        assert_int_equal(line[1]->npoints, place->hop[i].kind == RONDO_HOP_STUBS ? 2 : 0);
        for (int l = 0; l < 2; l++) {
            for (int p = 0; p < line[l]->npoints; p++) {
                assert_in_range(line[l]->x[p], 0, place->width);
                assert_in_range(line[l]->y[p], 0, place->legend_y);
            }
        }
    }
    /* A tree may enter a net twice, and then its hops join. */
    for (int i = 0; i < place->nhops && !out_of_levels && place->graph->pattern == RONDO_PATTERN_RING; i++) {
        for (int j = 0; j < i; j++) assert_hops_apart(&place->hop[i], &place->hop[j]);
    }
}

static void assert_place(const struct scene *scene, int graph)
{
    static const int32_t limit[] = { RONDO_PLACE_WIDTH, RONDO_PLACE_NARROW };
    for (size_t i = 0; i < RONDO_COUNTOF(limit); i++) {
        struct rondo_place *place;
        assert_int_equal(rondo_place_create(&place, scene->topo, &scene->graphs[graph], limit[i], 1),
                         RONDO_SUCCESS);
        assert_int_equal(place->nfolds, 0);
        assert_boxes(place);
        assert_wires(place);
        if (place->graph) assert_tracks(place);
        rondo_place_destroy(place);
    }
}

/* ---- the file ---- */

static int draw_all = 1;

static char *drawn(const struct scene *scene, int graph)
{
    static char *text;
    static size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (graph >= 0) {
        assert_int_equal(rondo_draw_svg(out, scene->topo, scene->graphs, graph, draw_all), RONDO_SUCCESS);
    } else {
        assert_int_equal(rondo_draw_html(out, scene->topo, scene->graphs, draw_all), RONDO_SUCCESS);
    }
    fclose(out);
    return text;
}

static int number(xmlNode *node, const char *name)
{
    xmlChar *text = xmlGetProp(node, (const xmlChar *)name);
    int value = text ? atoi((char *)text) : 0;
    xmlFree(text);
    return value;
}

struct count {
    int nodes[RONDO_NUM_NODE_TYPES], texts, small;
    uint32_t channels;
    int width, height, seen[RONDO_NUM_NODE_TYPES][RONDO_TOPO_MAX_LOCAL];
};

static void count_node(struct count *count, const char *name)
{
    for (int type = 0; type < RONDO_NUM_NODE_TYPES; type++) {
        size_t n = strlen(rondo_node_type_name(type));
        if (strncmp(name, rondo_node_type_name(type), n) != 0 || name[n] < '0' || name[n] > '9') continue;
        count->nodes[type]++;
        assert_int_equal(count->seen[type][atoi(name + n)]++, 0);
    }
}

/* Count the channels of an attribute data-channels: "0-3,7". */
static void count_channels(struct count *count, const char *list)
{
    for (char *at = (char *)list; *at; at += *at == ',') {
        long from = strtol(at, &at, 10), to = *at == '-' ? strtol(at + 1, &at, 10) : from;
        for (long c = from; c <= to; c++) {
            assert_int_equal(count->channels >> c & 1, 0);
            count->channels |= 1u << c;
        }
    }
}

static void count_walk(struct count *count, xmlNode *node, int rect_w)
{
    for (; node; node = node->next) {
        if (node->type != XML_ELEMENT_NODE) continue;
        const char *name = (const char *)node->name;
        xmlChar *of = xmlGetProp(node, (const xmlChar *)"data-node"),
                *channels = xmlGetProp(node, (const xmlChar *)"data-channels");
        assert_string_not_equal(name, "script");
        if (of) count_node(count, (char *)of);
        if (channels) count_channels(count, (char *)channels);
        if (strcmp(name, "rect") == 0 && node->parent &&
            xmlHasProp(node->parent, (const xmlChar *)"data-node"))
            rect_w = number(node, "width");
        if (strcmp(name, "text") == 0) {
            xmlChar *text = xmlNodeGetContent(node);
            int size = number(node, "font-size");
            count->texts++;
            count->small += size < 9 && strcmp((char *)text, "net") != 0;
            assert_in_range(number(node, "x"), 0, count->width);
            assert_in_range(number(node, "y"), 8, count->height);
            if (rect_w) assert_true(xmlUTF8Strlen(text) * size * 62 / 100 <= rect_w);
            xmlFree(text);
        }
        count_walk(count, node->children, of ? 1 << 20 : 0);
        xmlFree(of);
        xmlFree(channels);
    }
}

static void assert_svg(const struct scene *scene, int graph, const char *text, size_t bytes)
{
    struct count *count = calloc(1, sizeof *count);
    xmlDoc *doc = xmlReadMemory(text, (int)bytes, "picture", NULL,
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_HUGE);
    assert_non_null(doc);
    xmlNode *root = xmlDocGetRootElement(doc);
    assert_string_equal((const char *)root->name, "svg");
    count->width = number(root, "width");
    count->height = number(root, "height") + 40;
    count_walk(count, root->children, 0);
    assert_int_equal(count->nodes[RONDO_NODE_GPU] + count->nodes[RONDO_NODE_HOST], scene->topo->ndevs);
    assert_int_equal(count->nodes[RONDO_NODE_NET], scene->topo->nnets);
    assert_int_equal(count->nodes[RONDO_NODE_CPU], scene->topo->ncpus);
    assert_int_equal(count->nodes[RONDO_NODE_NVS], scene->topo->nnvs);
    assert_int_equal(count->channels, (uint32_t)((UINT64_C(1) << scene->graphs[graph].nchannels) - 1));
    assert_int_equal(count->small, 0);
    xmlFreeDoc(doc);
    free(count);
}

/* Check that the page has one script and loads nothing. */
static void assert_html(const struct scene *scene)
{
    char *text = drawn(scene, -1), *at = text;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (scene->graphs[id].nchannels == 0) continue;
        char *from = strstr(at, "<svg"), *to = strstr(at, "</svg>");
        assert_non_null(from);
        assert_non_null(to);
        assert_svg(scene, id, from, (size_t)(to + 6 - from));
        at = to + 6;
        if (strncmp(from, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rondo wide\"", 57) != 0)
            continue;
        from = strstr(at, "<svg"), to = strstr(at, "</svg>");
        assert_non_null(from);
        assert_memory_equal(strstr(from, "class="), "class=\"rondo narrow\"", 20);
        assert_svg(scene, id, from, (size_t)(to + 6 - from));
        at = to + 6;
    }
    if (at > text) assert_null(strstr(at, "<svg")); /* without channels there is the machine alone */
    char *script = strstr(text, "<script");
    assert_non_null(script);
    assert_null(strstr(script + 1, "<script"));
    for (char *http = strstr(text, "http"); http; http = strstr(http + 1, "http"))
        assert_memory_equal(http, "http://www.w3.org/2000/svg", 26);
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "href"));
    assert_null(strstr(text, "url("));
    assert_null(strstr(text, "@import"));
    free(text);
}

static void assert_pictures(const struct scene *scene)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (id > 0 && scene->graphs[id].nchannels == 0) continue;
        assert_place(scene, id);
        char *text = drawn(scene, id), *again = drawn(scene, id);
        assert_string_equal(text, again);
        assert_svg(scene, id, text, strlen(text));
        free(text);
        free(again);
    }
    assert_html(scene);
}

/* ---- cases ---- */

static void pictures_of_many_machines_are_right(void **state)
{
    (void)state;
    static const struct {
        const char *name, *list;
        int nnodes;
    } cases[] = { { "dgx_a100", NULL, 1 },      { "dgx_a100", NULL, 2 },
                  { "dgx1v", NULL, 1 },         { "dgx1v", NULL, 2 },
                  { "aws_p4d", NULL, 2 },       { "l40s_8", NULL, 1 },
                  { "dgx2", NULL, 2 },          { "gh200_node", NULL, 1 },
                  { "gb200_node", NULL, 2 },    { "pcie32nic", NULL, 2 },
                  { "cpu_dual", NULL, 1 },      { "cpu_dual", "n128", 2 },
                  { "cpu_dual", "n1", 2 },      { "gb10_spark", NULL, 2 },
                  { "amd_nps4_4gpu", NULL, 2 }, { "perlmutter_a100x4", NULL, 2 },
                  { "dgx_h100", "3,1,6", 2 } };
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct scene scene;
        scene_search(&scene, cases[i].name, cases[i].list, cases[i].nnodes);
        assert_pictures(&scene);
        scene_close(&scene);
    }
}

static void a_picture_of_72_gpus_breaks_into_rows(void **state)
{
    (void)state;
    struct scene scene;
    struct rondo_place *place;
    scene_search(&scene, "gb200_nvl72", NULL, 1);
    assert_int_equal(scene.topo->ndevs, 72);
    assert_pictures(&scene);
    assert_int_equal(
        rondo_place_create(&place, scene.topo, &scene.graphs[RONDO_GRAPH_RING], RONDO_PLACE_WIDTH, 1),
        RONDO_SUCCESS);
    assert_true(place->nrows > 1 && place->compact);
    assert_in_range(place->width, 1000, 1800);
    rondo_place_destroy(place);
    rondo_graph_release(&scene.graphs[RONDO_GRAPH_RING]);
    graph_shuffle(&scene, 7, 6);
    assert_pictures(&scene);
    scene_close(&scene);
}

static struct rondo_place *folded(const struct scene *scene, int32_t limit)
{
    struct rondo_place *place;
    assert_int_equal(rondo_place_create(&place, scene->topo, &scene->graphs[RONDO_GRAPH_RING], limit, 0),
                     RONDO_SUCCESS);
    return place;
}

/* Eighteen equal hosts: the first, the last, and one panel for the others. */
static void equal_hosts_are_drawn_once(void **state)
{
    (void)state;
    struct scene scene;
    scene_search(&scene, "gb200_nvl72", NULL, 2);
    scene.graphs[RONDO_GRAPH_RING].nchannels = 1;
    struct rondo_place *place = folded(&scene, RONDO_PLACE_WIDTH);
    assert_int_equal(place->nfolds, 1);
    assert_int_equal(place->fold[0].first, 1);
    assert_int_equal(place->fold[0].nhosts, 16);
    assert_int_equal(place->fold[0].ndevs, 64);
    assert_int_equal(place->fold[0].nnets, 64);
    assert_int_equal(place->nrows, 1);
    int drawn_devices = 0, folded_stops = 0;
    for (int p = 0; p < scene.topo->ndevs; p++) drawn_devices += place->box[scene.topo->point[p]].w > 0;
    assert_int_equal(drawn_devices, 9);
    for (int i = 0; i < place->track[0].nstops; i++) {
        const struct rondo_stop *stop = &place->stop[i];
        if (stop->point != place->fold[0].point) continue;
        folded_stops++;
        assert_int_equal(stop->last - stop->position + 1, 64);
    }
    assert_int_equal(folded_stops, 1);
    assert_int_equal(place->nhops, place->track[0].nhops);
    for (int i = 0; i < place->nhops; i++) assert_int_not_equal(place->hop[i].from, place->hop[i].to);
    rondo_place_destroy(place);
    place = folded(&scene, RONDO_PLACE_NARROW);
    assert_true(place->nrows > 1 && place->width < 860);
    int stubs = 0;
    for (int i = 0; i < place->nhops; i++) stubs += place->hop[i].kind == RONDO_HOP_STUBS;
    assert_int_not_equal(stubs, 0);
    rondo_place_destroy(place);
    draw_all = 0;
    char *text = drawn(&scene, RONDO_GRAPH_RING);
    draw_all = 1;
    assert_non_null(strstr(text, ">16 hosts like host 0<"));
    assert_non_null(strstr(text, ">64 GPUs<"));
    assert_null(strstr(text, ">GPU 40<"));
    free(text);
    scene_close(&scene);
}

/* A host stays in the picture if a channel enters the node there, or if it is not like its neighbours. */
static void hosts_that_differ_are_drawn(void **state)
{
    (void)state;
    struct scene scene;
    scene_search(&scene, "gb200_nvl72", NULL, 2);
    struct rondo_graph *ring = &scene.graphs[RONDO_GRAPH_RING];
    ring->nchannels = 1;
    ring->net[0] = ring->net[1] = 36;
    struct rondo_place *place = folded(&scene, RONDO_PLACE_WIDTH);
    assert_int_equal(place->nfolds, 2);
    assert_int_equal(place->fold[0].nhosts, 8);
    assert_int_equal(place->fold[1].first, 10);
    assert_int_equal(place->fold[1].nhosts, 7);
    rondo_place_destroy(place);
    ring->net[0] = ring->net[1] = 0;
    scene.machine.item[scene.topo->node[scene.topo->point[scene.topo->ndevs + 20]].item].net.mbps++;
    place = folded(&scene, RONDO_PLACE_WIDTH);
    assert_int_equal(place->nfolds, 2);
    assert_int_equal(rondo_fold_of_host(place, 5), -1);
    rondo_place_destroy(place);
    scene_close(&scene);
    scene_search(&scene, "dgx_h100", NULL, 2);
    place = folded(&scene, RONDO_PLACE_WIDTH);
    assert_int_equal(place->nfolds, 0);
    rondo_place_destroy(place);
    scene_close(&scene);
}

static void pictures_of_random_machines_are_right(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct scene scene;
        world_random(&scene, seed * 2654435761u);
        assert_pictures(&scene);
        scene_close(&scene);
    }
}

static void hostile_names_are_escaped(void **state)
{
    (void)state;
    static const char name[] = "<script>&\"'</title>\x01\xff\xc3(\xed\xa0\x80]]>";
    struct scene scene;
    scene_search(&scene, "dgx1v", NULL, 1);
    snprintf(scene.machine.source, sizeof scene.machine.source, "%.7s", name);
    snprintf(scene.machine.note, sizeof scene.machine.note, "%s\u00e9", name);
    for (int i = 0; i < scene.machine.nitems; i++) {
        struct rondo_item *item = &scene.machine.item[i];
        if (item->kind == RONDO_ITEM_GPU) snprintf(item->gpu.name, sizeof item->gpu.name, "%s", name);
        if (item->kind == RONDO_ITEM_NET) snprintf(item->net.name, sizeof item->net.name, "%s", name);
    }
    assert_pictures(&scene);
    char *text = drawn(&scene, RONDO_GRAPH_RING);
    assert_null(strstr(text, "<script"));
    assert_non_null(strstr(text, "&lt;script&gt;&amp;&quot;&#39;&lt;/title&gt;?"
                                 "?"
                                 "?"
                                 "("
                                 "?"
                                 "?"
                                 "?"
                                 "]]&gt;"));
    assert_non_null(strstr(text, "\u00e9"));
    free(text);
    scene_close(&scene);
}

static void widths_grow_with_bandwidth(void **state)
{
    (void)state;
    int32_t last = 0;
    static const int32_t mbs[] = { 1250, 6000, 12000, 24000, 48000, 96000, 247200, 721800 };
    for (size_t i = 0; i < RONDO_COUNTOF(mbs); i++) {
        assert_true(rondo_wire_width(RONDO_LINK_NVL, mbs[i]) > last);
        last = rondo_wire_width(RONDO_LINK_NVL, mbs[i]);
    }
    assert_int_equal(rondo_wire_width(RONDO_LINK_PCI, 100000), 60); /* 6 * sqrt(100) tenths of a pixel */
}

static void intervals_on_one_level_do_not_overlap(void **state)
{
    (void)state;
    int32_t taken[40][3];
    struct rondo_levels levels = { .taken = taken };
    assert_int_equal(rondo_levels_take(&levels, 0, 10), 0);
    assert_int_equal(rondo_levels_take(&levels, 11, 20), 0);
    assert_int_equal(rondo_levels_take(&levels, 10, 11), 1);
    assert_int_equal(rondo_levels_take(&levels, 0, 20), 2);
    assert_int_equal(levels.count, 3);
    for (int i = 0; i < 36; i++) rondo_levels_take(&levels, 0, 20);
    assert_int_equal(levels.count, RONDO_PLACE_LEVELS);
}

static void labels_are_cut_to_fit(void **state)
{
    (void)state;
    char text[RONDO_LABEL];
    assert_string_equal(rondo_label_cut("mlx5_10", 7, text, sizeof text), "mlx5_10");
    assert_string_equal(rondo_label_cut("mlx5_10", 6, text, sizeof text), "mlx5_\u2026");
    assert_string_equal(rondo_label_middle("mlx5_t1_0", 7, text, sizeof text), "mlx\u20261_0");
    assert_string_equal(rondo_label_middle("mlx5_10", 4, text, sizeof text), "m\u202610");
    assert_string_equal(rondo_label_middle("\u00e9\u00e9\u00e9\u00e9", 3, text, sizeof text),
                        "\u00e9\u2026\u00e9");
    assert_string_equal(rondo_label_middle("mlx5_10", 9, text, sizeof text), "mlx5_10");
    struct scene scene;
    scene_search(&scene, "l40s_8", NULL, 1);
    assert_string_equal(rondo_label_source(scene.topo), "l40s_8.xml");
    assert_string_equal(rondo_label_line(scene.topo, scene.topo->point[0], 0, 5, text), "GPU 0");
    assert_string_equal(rondo_label_line(scene.topo, scene.topo->point[0], 0, 2, text), "G0");
    assert_string_equal(rondo_label_line(scene.topo, scene.topo->point[0], 1, 7, text), "1b:00.0");
    char facts[RONDO_FACTS];
    struct rondo_graph *ring = &scene.graphs[RONDO_GRAPH_RING];
    ring->nchannels = 1;
    ring->bw_intra = ring->found = 22000;
    ring->type_intra = RONDO_PATH_SYS;
    ring->bound = 24000;
    assert_non_null(strstr(rondo_label_graph(scene.topo, ring, facts),
                           "ring: 1 channel x 22.0 GB/s, SYS; 22.0 of at most 24.0 GB/s, limited by "));
    ring->fallback = 1;
    assert_non_null(strstr(rondo_label_graph(scene.topo, ring, facts), "no channel fits"));
    assert_non_null(strstr(rondo_facts_node(scene.topo, scene.topo->point[0], facts), "bus id 0000:1b:00.0"));
    scene_close(&scene);
}

static void write_errors_and_foreign_graphs_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    scene_search(&scene, "l40s_8", NULL, 1);
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(rondo_draw_svg(full, scene.topo, scene.graphs, RONDO_GRAPH_RING, 1), RONDO_SYSTEM_ERROR);
    assert_int_equal(rondo_draw_html(full, scene.topo, scene.graphs, 0), RONDO_SYSTEM_ERROR);
    fclose(full);
    FILE *out = fopen("/dev/null", "w");
    scene.graphs[RONDO_GRAPH_TREE].ndevs = 4;
    assert_int_equal(rondo_draw_svg(out, scene.topo, scene.graphs, RONDO_GRAPH_TREE, 0),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_draw_html(out, scene.topo, scene.graphs, 0), RONDO_INVALID_ARGUMENT);
    fclose(out);
    scene_close(&scene);
}

static void a_machine_without_channels_has_a_picture(void **state)
{
    (void)state;
    struct scene scene;
    scene_search(&scene, "ws2", NULL, 1);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) rondo_graph_release(&scene.graphs[id]);
    memset(scene.graphs, 0, sizeof scene.graphs);
    assert_pictures(&scene);
    char *text = drawn(&scene, RONDO_GRAPH_RING);
    assert_non_null(strstr(text, ">no channels<"));
    free(text);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_of_many_machines_are_right),
        cmocka_unit_test(a_picture_of_72_gpus_breaks_into_rows),
        cmocka_unit_test(equal_hosts_are_drawn_once),
        cmocka_unit_test(hosts_that_differ_are_drawn),
        cmocka_unit_test(pictures_of_random_machines_are_right),
        cmocka_unit_test(hostile_names_are_escaped),
        cmocka_unit_test(widths_grow_with_bandwidth),
        cmocka_unit_test(intervals_on_one_level_do_not_overlap),
        cmocka_unit_test(labels_are_cut_to_fit),
        cmocka_unit_test(write_errors_and_foreign_graphs_are_refused),
        cmocka_unit_test(a_machine_without_channels_has_a_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
