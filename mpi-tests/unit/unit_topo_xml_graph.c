/* Graph files: reading, errors, and round trips. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "topo_texts.h"

#define NET(n) "<net name=\"mlx5_" #n "\" dev=\"" #n "\" speed=\"100000\"/>"
#define NODE CPU GPU_A TO_B(4) GPU_END GPU_B TO_A(4) GPU_END "<nic>" NET(0) "</nic><nic>" NET(1) "</nic>" END
#define GRAPH(id, pattern, n)                                                             \
    "<graph id=\"" #id "\" pattern=\"" #pattern "\" crossnic=\"2\" nchannels=\"" #n "\" " \
    "speedintra=\"20.5\" "
#define REST \
    "speedinter=\"12\" latencyinter=\"1.5\" typeintra=\"NVL\" typeinter=\"PHB\" samechannels=\"0\">\n"
#define CHANNEL                                                                            \
    "<channel><net dev=\"0\"/><gpu dev=\"0\" rank=\"0\"/><gpu dev=\"1\" rank=\"1\"/><net " \
    "dev=\"1\"/></channel>\n"
#define REVERSED                                                                           \
    "<channel><net dev=\"1\"/><gpu dev=\"1\" rank=\"1\"/><gpu dev=\"0\" rank=\"0\"/><net " \
    "dev=\"0\"/></channel>\n"
#define GRAPHS(inner) "<graphs version=\"1\">\n" inner "</graph></graphs>"

struct node {
    struct rondo_machine machine;
    struct rondo_topo *topo;
};

static void node_make(struct node *node, const char *text, int nnodes, int hosts)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct rondo_topo_rank ranks[2] = { { .rank = 4, .busid = hosts ? -1 : 0x17000 },
                                        { .rank = 5, .busid = hosts ? -1 : 0x18000 } };
    options.nnodes = nnodes;
    assert_ok(parse(&node->machine, text));
    assert_ok(rondo_topo_create(&node->topo, &node->machine, ranks, 2, &options));
}

static void node_destroy(struct node *node)
{
    rondo_topo_destroy(node->topo);
    rondo_machine_release(&node->machine);
}

static rondo_status graphs_parse(struct rondo_graph *graphs, const struct node *node, const char *text)
{
    return rondo_graphs_parse(graphs, node->topo, text, strlen(text), "g.xml");
}

static void graphs_release(struct rondo_graph *graphs)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
}

static void graphs_are_read(void **state)
{
    (void)state;
    struct node node;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    node_make(&node, NODE, 2, 0);
    assert_ok(graphs_parse(
        graphs, &node,
        GRAPHS("<graph id=\"3\" pattern=\"5\"><channel><gpu dev=\"77\"/></channel></graph>\n" GRAPH(0, 4, 2)
                   REST CHANNEL REVERSED "<what/>")));
    const struct rondo_graph *ring = &graphs[RONDO_GRAPH_RING];
    assert_int_equal(graphs[RONDO_GRAPH_TREE].nchannels, 0);
    assert_int_equal(ring->id, RONDO_GRAPH_RING);
    assert_int_equal(ring->pattern, RONDO_PATTERN_RING);
    assert_int_equal(ring->nchannels, 2);
    assert_int_equal(ring->ndevs, 2);
    assert_int_equal(ring->bw_intra, 20500);
    assert_int_equal(ring->bw_inter, 12000);
    assert_int_equal(ring->latency_inter, 1500);
    assert_int_equal(ring->type_intra, RONDO_PATH_NVL);
    assert_int_equal(ring->type_inter, RONDO_PATH_PHB);
    assert_int_equal(ring->cross_nic, 2);
    assert_int_equal(ring->same_channels, 0);
    assert_int_equal(ring->found, 24000);
    static const int16_t order[] = { 0, 1, 1, 0 }, net[] = { 0, 1, 1, 0, -1 };
    assert_memory_equal(ring->order, order, sizeof order);
    assert_memory_equal(ring->net, net, sizeof net);
    graphs_release(graphs);
    /* Types by number; only the tree. */
    assert_ok(graphs_parse(
        graphs, &node,
        GRAPHS("<graph id=\"1\" pattern=\"1\" speedintra=\".0014\" speedinter=\"45.0996\" typeintra=\"4\" "
               "typeinter=\"8\">" CHANNEL)));
    assert_int_equal(graphs[0].nchannels, 0);
    assert_int_equal(graphs[1].nchannels, 1);
    assert_int_equal(graphs[1].bw_intra, 1);
    assert_int_equal(graphs[1].bw_inter, 45100);
    assert_int_equal(graphs[1].type_intra, RONDO_PATH_PIX);
    assert_int_equal(graphs[1].type_inter, RONDO_PATH_PHB);
    graphs_release(graphs);
    node_destroy(&node);
}

/* Graphs that nobody can use, and a part of what is said about each. */
static const struct {
    const char *text, *part;
} refused[] = {
    { "<system version=\"1\"/>", "g.xml:1: <system>: expected the root <graphs version=\"1\">" },
    { "<graphs version=\"2\"/>", "g.xml:1: <graphs version=\"2\">: expected the root" },
    { GRAPHS("<graph pattern=\"4\" speedintra=\"1\">"), "g.xml:2: <graph>: the attribute id is missing" },
    { GRAPHS("<graph id=\"0\" speedintra=\"1\">"), "the attribute pattern is missing" },
    { GRAPHS(GRAPH(0, 7, 1) REST CHANNEL), "<graph pattern=\"7\">: expected an integer from 1 to 4" },
    { GRAPHS(GRAPH(0, 1, 1) REST CHANNEL), "a ring cannot have this pattern" },
    { GRAPHS(GRAPH(1, 4, 1) REST CHANNEL), "a tree cannot have this pattern" },
    { GRAPHS(GRAPH(0, 4, 33) REST CHANNEL), "<graph nchannels=\"33\">: expected an integer from 0 to 32" },
    { GRAPHS(GRAPH(0, 4, 2) REST CHANNEL), "the ring has 1 channels, but its nchannels is 2" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\">"), "the attribute speedintra is missing" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"1000000000\" " REST),
      "speedintra=\"1000000000\">: expected a number from 0.001 to 100000.000" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"NaN\" " REST), "expected a number from" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"-1\" " REST), "expected a number from" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"1e3\" " REST), "expected a number from" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"1.2.3\" " REST), "expected a number from" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"\" " REST), "expected a number from" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"99999999999999999999999999\" " REST),
      "expected a number from" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"1\" speedinter=\"1\" typeintra=\"NVX\">"),
      "typeintra: expected a path type from LOC to DIS" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"1\" speedinter=\"1\" typeintra=\"12\">"),
      "expected an integer from 0 to 11" },
    { GRAPHS("<graph id=\"0\" pattern=\"4\" speedintra=\"1\" speedinter=\"1\" typeintra=\"NVL\">"),
      "typeinter: expected" },
    { GRAPHS(GRAPH(0, 4, 1) REST CHANNEL "</graph>\n" GRAPH(0, 4, 1) REST CHANNEL),
      "g.xml:5: <graph id=\"0\">: the ring appears twice" },
    { GRAPHS(GRAPH(0, 4, 1) REST
             "<channel><net dev=\"0\"/><gpu dev=\"0\"/><gpu dev=\"0\"/><net dev=\"0\"/></channel>"),
      "g.xml:3: <gpu dev=\"0\">: it appears twice" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><net dev=\"0\"/><gpu dev=\"2\"/></channel>"),
      "<gpu dev=\"2\">: no rank of this node uses it" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><net dev=\"0\"/><host rank=\"4\"/></channel>"),
      "<host rank=\"4\">: no rank of this node uses it" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><net dev=\"0\"/><gpu/></channel>"),
      "<gpu>: the attribute dev is missing" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><net dev=\"2\"/></channel>"),
      "<net dev=\"2\">: no such net; this node has 2" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><net dev=\"0\"/><net dev=\"0\"/></channel>"),
      "expected one <net> before the devices and one after them" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><gpu dev=\"0\"/><net dev=\"0\"/></channel>"),
      "expected one <net> before the devices" },
    { GRAPHS(GRAPH(0, 4, 1) REST
             "<channel><net dev=\"0\"/><gpu dev=\"0\"/><net dev=\"0\"/><gpu dev=\"1\"/></channel>"),
      "a device after the second <net>" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><net dev=\"0\"/><gpu dev=\"0\"/><net dev=\"0\"/></channel>"),
      "g.xml:3: channel 0 has 1 devices, but this node has 2 ranks" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>"),
      "channel 0 has no nets" },
    { GRAPHS(GRAPH(0, 4, 1) REST "<channel/>"), "channel 0 has 0 devices" },
    { "<graphs version=\"1\">", "g.xml:1: the file is truncated inside 1 open element" },
    { "<!DOCTYPE topology><graphs version=\"1\"/>", "documents with a DTD" },
    { "", "0 bytes" },
};

static void graphs_are_refused(void **state)
{
    struct node node;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    (void)state;
    node_make(&node, NODE, 2, 0);
    for (size_t i = 0; i < RONDO_COUNTOF(refused); i++) {
        rondo_error_clear();
        if (graphs_parse(graphs, &node, refused[i].text) != RONDO_INVALID_ARGUMENT) {
            fail_msg("not refused: %s", refused[i].text);
        }
        assert_says(refused[i].part);
        assert_null(graphs[RONDO_GRAPH_RING].order);
    }
    node_destroy(&node);
}

static void graphs_beyond_a_limit_are_refused(void **state)
{
    struct node node;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    size_t bytes;
    char *text = repeat("<graphs version=\"1\">"
                        "<graph id=\"0\" pattern=\"4\" speedintra=\"1\" " REST,
                        CHANNEL, 33, "</graph></graphs>", &bytes);
    (void)state;
    node_make(&node, NODE, 2, 0);
    assert_int_equal(rondo_graphs_parse(graphs, node.topo, text, bytes, "g.xml"), RONDO_INVALID_ARGUMENT);
    assert_says("more than the limit of 32 channels");
    rondo_free(text);
    text = repeat("<graphs version=\"1\">", "<x/>", 1000000, "</graphs>", &bytes);
    assert_int_equal(rondo_graphs_parse(graphs, node.topo, text, bytes, "g.xml"), RONDO_INVALID_ARGUMENT);
    assert_says("more than the limit of");
    assert_says(" elements");
    rondo_free(text);
    node_destroy(&node);
}

static void assert_graphs_equal(const struct rondo_graph *a, const struct rondo_graph *b)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        assert_int_equal(a[id].nchannels, b[id].nchannels);
        if (a[id].nchannels == 0) {
            continue;
        }
        assert_int_equal(a[id].pattern, b[id].pattern);
        assert_int_equal(a[id].bw_intra, b[id].bw_intra);
        assert_int_equal(a[id].bw_inter, b[id].bw_inter);
        assert_int_equal(a[id].latency_inter, b[id].latency_inter);
        assert_int_equal(a[id].type_intra, b[id].type_intra);
        assert_int_equal(a[id].type_inter, b[id].type_inter);
        assert_int_equal(a[id].cross_nic, b[id].cross_nic);
        assert_int_equal(a[id].same_channels, b[id].same_channels);
        assert_int_equal(a[id].nhops, b[id].nhops);
        assert_int_equal(a[id].found, b[id].found);
        assert_memory_equal(a[id].order, b[id].order,
                            (size_t)a[id].nchannels * (size_t)a[id].ndevs * sizeof *a[id].order);
        assert_memory_equal(a[id].net, b[id].net, (size_t)a[id].nchannels * 2 * sizeof *a[id].net);
    }
}

static void written_graphs_are_read_back(void **state)
{
    (void)state;
    static const char hosts[] = "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" "
                                "vendor=\"AuthenticAMD\" familyid=\"1\" "
                                "modelid=\"1\"><nic>" NET(0) "</nic></cpu></system>";
    for (int nnodes = 1; nnodes <= 2; nnodes++) {
        for (int host = 0; host < 2; host++) {
            struct node node;
            struct rondo_graph graphs[RONDO_NUM_GRAPHS] = { { 0 } }, back[RONDO_NUM_GRAPHS];
            node_make(&node, host ? hosts : NODE, nnodes, host);
            assert_ok(rondo_topo_search(node.topo, graphs));
            assert_ok(rondo_graphs_write(graphs, node.topo, path("g.xml")));
            assert_int_equal(files_here(), 1);
            assert_ok(rondo_graphs_read(back, node.topo, path("g.xml")));
            assert_graphs_equal(graphs, back);
            unlink(path("g.xml"));
            graphs_release(graphs);
            graphs_release(back);
            node_destroy(&node);
        }
    }
}

/* On one node, the nets of a graph written for several nodes are ignored. */
static void on_one_node_nets_are_ignored(void **state)
{
    (void)state;
    struct node node;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    node_make(&node, NODE, 1, 0);
    assert_ok(graphs_parse(graphs, &node, GRAPHS(GRAPH(0, 4, 1) REST CHANNEL)));
    assert_int_equal(graphs[0].net[0], -1);
    assert_int_equal(graphs[0].net[1], -1);
    assert_int_equal(graphs[0].found, 20500);
    graphs_release(graphs);
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_read),
        cmocka_unit_test(graphs_are_refused),
        cmocka_unit_test(graphs_beyond_a_limit_are_refused),
        cmocka_unit_test(written_graphs_are_read_back),
        cmocka_unit_test(on_one_node_nets_are_ignored),
    };
    return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
