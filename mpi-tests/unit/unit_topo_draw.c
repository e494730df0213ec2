/* Text and JSON of a machine: they agree with the topology, fit the terminal, and are well-formed whatever
 * names a file contains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "machine_scene.h"
#include "tools/draw/text.h"

#define assert_says(text, part)                            \
    do {                                                   \
        if (!strstr(text, part)) {                         \
            fail_msg("\"%s\" is not in:\n%s", part, text); \
        }                                                  \
    } while (0)

/* ---- what is drawn ---- */

/* Make a graph by hand: channels 0 and 1 are equal, channel 2 runs in the opposite direction. */
static void graph_make(struct scene *scene, int id, int nets)
{
    struct rondo_graph *graph = &scene->graphs[id];
    int n = scene->topo->ndevs;
    *graph = (struct rondo_graph){ .id = id,
                                   .pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING
                                                                     : RONDO_PATTERN_BALANCED_TREE,
                                   .nchannels = 3,
                                   .bw_intra = 20000,
                                   .bw_inter = 12500,
                                   .type_intra = RONDO_PATH_NVL,
                                   .type_inter = RONDO_PATH_PIX,
                                   .ndevs = n,
                                   .bound = 120000,
                                   .bound_cut = RONDO_CUT_DEVICE,
                                   .bound_at = 0,
                                   .found = 60000 };
    assert_int_equal(RONDO_NEW_ARRAY(graph->order, 3 * n, "order"), RONDO_SUCCESS);
    for (int i = 0; i < n; i++) {
        graph->order[i] = graph->order[n + i] = (int16_t)i;
        graph->order[2 * n + i] = (int16_t)(n - 1 - i);
    }
    for (int c = 0; c < 2 * RONDO_TOPO_CHANNELS; c++) graph->net[c] = -1;
    for (int c = 0; c < 6 && nets; c++) graph->net[c] = (int16_t)(c == 5);
}

struct paper {
    char *text;
    size_t bytes;
    struct rondo_draw draw;
};

static struct rondo_draw *paper_open(struct paper *paper)
{
    memset(paper, 0, sizeof *paper);
    paper->draw.out = open_memstream(&paper->text, &paper->bytes);
    assert_non_null(paper->draw.out);
    return &paper->draw;
}

static char *paper_text(struct paper *paper)
{
    fclose(paper->draw.out);
    return paper->text;
}

/* Check that every line fits the terminal and does not end in spaces. */
static void assert_lines_fit(const char *text, int width)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");
        char line[4096];
        snprintf(line, sizeof line, "%.*s", n, text);
        if (rondo_text_columns(line) > width) fail_msg("longer than %d columns: %s", width, line);
        if (n > 0 && line[n - 1] == ' ') fail_msg("ends in a space: \"%s\"", line);
        text += n + (text[n] == '\n');
    }
}

/* ---- numbers and names ---- */

static void numbers_have_units_and_few_digits(void **state)
{
    (void)state;
    static const struct {
        int64_t mbs;
        const char *text;
    } rows[] = { { 24000, "24.0" },   { 20600, "20.6" }, { 1250, "1.25" }, { 240, "0.24" },
                 { 370800, "370.8" }, { 6000, "6.0" },   { 0, "0.0" },     { 187, "0.19" } };
    char text[64];
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++)
        assert_string_equal(rondo_text_gbs(rows[i].mbs, text), rows[i].text);
    assert_string_equal(rondo_text_bytes(32 << 20, text), "32 MiB");
    assert_string_equal(rondo_text_bytes(1000, text), "1000 B");
    assert_string_equal(rondo_text_pci_link(160, 16, text), "Gen4 x16");
    assert_string_equal(rondo_text_pci_link(0, 16, text), "");
    assert_string_equal(rondo_text_plain("a\nb\033[c\xc3\xa4", text, sizeof text), "a?b?[c??");
}

static void ranges_fold_runs_both_ways(void **state)
{
    (void)state;
    const int32_t list[] = { 0, 1, 2, 3, 7, 9, 8, 7, 6, 2, 3 };
    char text[128], narrow[40];
    assert_string_equal(rondo_text_ranges(list, 11, text, sizeof text), "0-3,7,9-6,2,3");
    assert_string_equal(rondo_text_ranges(list, 0, text, sizeof text), "");
    int32_t odd[100];
    for (int i = 0; i < 100; i++) odd[i] = 1000000 + 2 * i;
    rondo_text_ranges(odd, 100, narrow, sizeof narrow);
    assert_true(strlen(narrow) < sizeof narrow);
    assert_says(narrow, "...");
}

static const char *hosts_text(const char *const *names, int n, struct paper *paper)
{
    struct rondo_draw *draw = paper_open(paper);
    assert_int_equal(rondo_draw_hosts(draw->out, names, n), RONDO_SUCCESS);
    return paper_text(paper);
}

static void host_names_are_folded_as_resource_managers_do(void **state)
{
    (void)state;
    static const struct {
        const char *name[8];
        const char *text;
    } rows[] = {
        { { "n003", "n001", "n002" }, "n[001-003]" },
        { { "n001", "n003", "n002", "n007" }, "n[001-003,007]" },
        { { "n9", "n10", "n11" }, "n[9-11]" },
        { { "n099", "n100" }, "n[099-100]" },
        { { "n1", "n01" }, "n[1,01]" },
        { { "login", "n1" }, "login,n1" },
        { { "n1.site.org", "n2.site.org", "n1.other" }, "n1.other,n[1-2].site.org" },
        { { "a1", "b1", "a2" }, "a[1-2],b1" },
        { { "n1", "n1", "n1" }, "n1" },
        { { "n12345678901234567890", "n1" }, "n12345678901234567890,n1" },
        { { "r1-n2", "r1-n3", "r2-n2" }, "r1-n[2-3],r2-n2" },
        { { "7", "8" }, "[7-8]" },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct paper paper;
        int n = 0;
        while (n < 8 && rows[i].name[n]) n++;
        const char *text = hosts_text(rows[i].name, n, &paper);
        /* Names are ordered by prefix; one with a long number is all prefix. */
        if (strcmp(rows[i].text, "n12345678901234567890,n1") == 0) {
            assert_says(text, "n12345678901234567890");
        } else {
            assert_string_equal(text, rows[i].text);
        }
        free(paper.text);
    }
}

/* ---- tree ---- */

static void tree_shows_every_device_once(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    char name[64];
    scene_open(&scene, "dgx_a100", NULL, 1);
    assert_int_equal(rondo_draw_tree(paper_open(&paper), scene.topo), RONDO_SUCCESS);
    const char *text = paper_text(&paper);
    for (int gpu = 0; gpu < 8; gpu++) {
        snprintf(name, sizeof name, "GPU %d  ", gpu);
        const char *first = strstr(text, name);
        assert_non_null(first);
        assert_null(strstr(first + 1, name));
    }
    assert_says(text, "NVLink 12 x 20.0 GB/s to NVSwitch");
    assert_says(text, "Gen4 x16 24.0 GB/s");
    assert_says(text, "NUMA node 3");
    assert_says(text, "|-- ");
    assert_null(strstr(text, "\u2500"));
    free(paper.text);
    scene_close(&scene);
}

static void tree_marks_gpus_without_a_rank(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    scene_open(&scene, "dgx1v", "5,2", 1);
    struct rondo_draw *draw = paper_open(&paper);
    draw->utf8 = 1;
    assert_int_equal(rondo_draw_tree(draw, scene.topo), RONDO_SUCCESS);
    const char *text = paper_text(&paper);
    assert_says(text, "\u251c\u2500 ");
    assert_says(text, "no rank");
    assert_says(text, "device 5");
    free(paper.text);
    scene_close(&scene);
}

static void equal_hosts_are_folded(void **state)
{
    (void)state;
    struct scene scene;
    for (int all = 0; all < 2; all++) {
        struct paper paper;
        scene_open(&scene, "gb200_nvl72", NULL, 1);
        struct rondo_draw *draw = paper_open(&paper);
        draw->all = all;
        assert_int_equal(rondo_draw_tree(draw, scene.topo), RONDO_SUCCESS);
        const char *text = paper_text(&paper);
        int lines = 0;
        for (const char *c = text; *c; c++) lines += *c == '\n';
        if (all) {
            assert_true(lines > 72);
            assert_says(text, "GPU 71 ");
        } else {
            assert_true(lines < 40);
            assert_says(text, "hosts 1-17 are like host 0: GPU 4-71");
        }
        free(paper.text);
        scene_close(&scene);
    }
}

static const char *const machines[] = { "dgx_a100", "dgx1v",  "dgx_h100", "gb200_node", "gb200_nvl72",
                                        "a10x4_vm", "l40s_8", "cpu_dual", "ws2",        "perlmutter_a100x4" };

static void text_fits_the_terminal(void **state)
{
    (void)state;
    static const int widths[] = { 80, 140 };
    for (size_t i = 0; i < RONDO_COUNTOF(machines) * RONDO_COUNTOF(widths); i++) {
        struct scene scene;
        struct paper paper;
        scene_open(&scene, machines[i / 2], NULL, 1);
        graph_make(&scene, RONDO_GRAPH_RING, 0);
        struct rondo_draw *draw = paper_open(&paper);
        draw->width = widths[i % 2];
        draw->utf8 = 1;
        assert_int_equal(rondo_draw_tree(draw, scene.topo), RONDO_SUCCESS);
        assert_int_equal(rondo_draw_matrix(draw, scene.topo), RONDO_SUCCESS);
        assert_int_equal(rondo_draw_graphs(draw, scene.topo, scene.graphs), RONDO_SUCCESS);
        assert_lines_fit(paper_text(&paper), widths[i % 2]);
        free(paper.text);
        scene_close(&scene);
    }
}

/* ---- matrix ---- */

/* Find the word in column `column` (from 0) of the line that starts with `label`. */
static void matrix_word(const char *text, const char *label, int column, char word[32])
{
    size_t n = strlen(label);
    while (text && !(strncmp(text, label, n) == 0 && text[n] == ' ')) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    if (!text) fail_msg("no line starts with %s", label);
    for (int i = 0; i <= column; i++) {
        text += strcspn(text, " ");
        text += strspn(text, " ");
    }
    snprintf(word, 32, "%.*s", (int)strcspn(text, " \n"), text);
}

static void matrix_shows_the_type_of_every_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(machines); i++) {
        struct scene scene;
        struct paper paper;
        scene_open(&scene, machines[i], NULL, 1);
        const struct rondo_topo *topo = scene.topo;
        int n = topo->ndevs + topo->nnets + topo->ncpus;
        if (n <= 48 && topo->all_gpus) {
            assert_int_equal(rondo_draw_matrix(paper_open(&paper), topo), RONDO_SUCCESS);
            const char *text = paper_text(&paper);
            for (int from = 0; from < topo->ndevs; from++) {
                for (int to = 0; to < n; to++) {
                    char label[32], word[32];
                    snprintf(label, sizeof label, "GPU%d", from);
                    matrix_word(text, label, to, word);
                    word[strcspn(word, "*")] = '\0';
                    assert_string_equal(
                        word,
                        from == to ? "-" : rondo_path_type_name(rondo_topo_wired(topo, from, to)->type));
                }
            }
            free(paper.text);
        }
        scene_close(&scene);
    }
}

static void legend_explains_only_the_types_that_occur(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    scene_open(&scene, "dgx_a100", NULL, 1);
    struct rondo_draw *draw = paper_open(&paper);
    draw->bandwidth = 1;
    draw->color = 1;
    assert_int_equal(rondo_draw_matrix(draw, scene.topo), RONDO_SUCCESS);
    const char *text = paper_text(&paper);
    assert_says(text, rondo_path_type_legend(RONDO_PATH_NVL));
    assert_says(text, rondo_path_type_legend(RONDO_PATH_SYS));
    assert_null(strstr(text, rondo_path_type_legend(RONDO_PATH_C2C)));
    assert_says(text, "NVL 240.0");
    assert_says(text, "\033[");
    free(paper.text);
    scene_close(&scene);
}

static void large_machines_list_classes_of_equal_points(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    scene_open(&scene, "gb200_nvl72", NULL, 1);
    assert_int_equal(rondo_draw_matrix(paper_open(&paper), scene.topo), RONDO_SUCCESS);
    const char *text = paper_text(&paper);
    assert_says(text, "GPU0, like 1-71");
    assert_says(text, "NVL  GPU 1-71");
    free(paper.text);
    scene_close(&scene);
}

/* ---- graphs and paths ---- */

static void equal_channels_are_folded(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    scene_open(&scene, "dgx_a100", NULL, 2);
    graph_make(&scene, RONDO_GRAPH_RING, 1);
    assert_int_equal(rondo_draw_graphs(paper_open(&paper), scene.topo, scene.graphs), RONDO_SUCCESS);
    const char *text = paper_text(&paper);
    assert_says(text, "3 x 20.0 GB/s NVL, to the net 12.5 GB/s PIX");
    assert_says(text, "found 60.0 of at most 120.0 GB/s (50 %)");
    assert_says(text, "channels 0,1");
    assert_says(text, "NET 0 > GPU 0 1 2 3 4 5 6 7 > NET 0");
    assert_says(text, "channel 2");
    assert_says(text, "NET 0 > GPU 7 6 5 4 3 2 1 0 > NET 1");
    free(paper.text);
    scene_close(&scene);
}

static void why_shows_every_hop(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    scene_open(&scene, "dgx_a100", NULL, 2);
    for (int to = 0; to < scene.topo->npoints; to++) {
        char name[96];
        struct rondo_draw *draw = paper_open(&paper);
        draw->width = 80;
        assert_int_equal(rondo_draw_why(draw, scene.topo, 0, to), RONDO_SUCCESS);
        const char *text = paper_text(&paper);
        const struct rondo_topo_path *path = rondo_topo_wired(scene.topo, 0, to);
        assert_says(text, rondo_topo_point_name(scene.topo, to, name, sizeof name));
        assert_lines_fit(text, 80);
        assert_says(text, rondo_path_type_legend(path->type));
        int hops = 0;
        for (const char *at = text; (at = strstr(at, " > ")); at++) hops++;
        assert_true(hops >= path->nhops);
        if (to > 0 && to < scene.topo->ndevs) assert_says(text, "P2P");
        if (to >= scene.topo->ndevs && to < scene.topo->ndevs + scene.topo->nnets)
            assert_says(text, "GPUDirect");
        if (path->type == RONDO_PATH_SYS) assert_says(text, "SYS      16.0 GB/s  <- narrowest");
        free(paper.text);
    }
    assert_int_equal(rondo_draw_why(paper_open(&paper), scene.topo, 0, scene.topo->npoints),
                     RONDO_INVALID_ARGUMENT);
    free(paper_text(&paper));
    scene_close(&scene);
}

/* ---- JSON ---- */

/* @return the end of the value that starts at text; NULL: it is not well-formed. */
static const char *json_value(const char *text, int depth);

static const char *json_skip(const char *text) { return text + strspn(text, " \n\t\r"); }

static const char *json_string(const char *text)
{
    if (*text++ != '"') return NULL;
    for (; *text != '"'; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e) return NULL;
        if (*text == '\\') {
            text++;
            if (*text == 'u') {
                for (int i = 0; i < 4; i++) {
                    if (!isxdigit((unsigned char)*++text)) return NULL;
                }
            } else if (!*text || !strchr("\"\\/bfnrt", *text)) {
                return NULL;
            }
        }
    }
    return text + 1;
}

static const char *json_list(const char *text, char end, int depth)
{
    text = json_skip(text + 1);
    if (*text == end) return text + 1;
    for (;;) {
        if (end == '}') {
            text = json_string(json_skip(text));
            if (!text || *(text = json_skip(text)) != ':') return NULL;
            text++;
        }
        text = json_value(json_skip(text), depth + 1);
        if (!text) return NULL;
        text = json_skip(text);
        if (*text == end) return text + 1;
        if (*text++ != ',') return NULL;
    }
}

static const char *json_number(const char *text)
{
    text += *text == '-';
    if (!isdigit((unsigned char)*text) || (text[0] == '0' && isdigit((unsigned char)text[1]))) return NULL;
    text += strspn(text, "0123456789");
    if (*text == '.') {
        if (!isdigit((unsigned char)text[1])) return NULL;
        text += 1 + strspn(text + 1, "0123456789");
    }
    return text;
}

static const char *json_value(const char *text, int depth)
{
    static const char *const words[] = { "true", "false", "null" };
    if (depth > 32) return NULL;
    if (*text == '{') return json_list(text, '}', depth);
    if (*text == '[') return json_list(text, ']', depth);
    if (*text == '"') return json_string(text);
    for (size_t i = 0; i < RONDO_COUNTOF(words); i++) {
        if (strncmp(text, words[i], strlen(words[i])) == 0) return text + strlen(words[i]);
    }
    return json_number(text);
}

static void assert_json(const char *text)
{
    const char *end = json_value(json_skip(text), 0);
    if (!end) fail_msg("not JSON: %.400s...", text);
    assert_string_equal(json_skip(end), "");
}

static void json_is_well_formed(void **state)
{
    (void)state;
    const double ms[RONDO_NUM_GRAPHS] = { 0.25, 12.5 };
    for (size_t i = 0; i < RONDO_COUNTOF(machines); i++) {
        struct scene scene;
        struct paper paper;
        scene_open(&scene, machines[i], NULL, 1);
        graph_make(&scene, RONDO_GRAPH_RING, 0);
        graph_make(&scene, RONDO_GRAPH_TREE, 0);
        assert_int_equal(rondo_draw_json(paper_open(&paper)->out, scene.topo, scene.graphs, ms),
                         RONDO_SUCCESS);
        const char *text = paper_text(&paper);
        assert_json(text);
        assert_says(text, "\"algo\":\"ring\"");
        assert_says(text, "\"search_ms\":12.500");
        assert_says(text, "\"bw_intra\":20,");
        assert_says(text, "\"found\":60,");
        assert_says(text, "\"net_in\":null");
        free(paper.text);
        scene_close(&scene);
    }
}

static void json_escapes_any_text_of_a_file(void **state)
{
    (void)state;
    struct scene scene;
    struct paper paper;
    scene_open(&scene, "ws2", NULL, 1);
    snprintf(scene.machine.source, sizeof scene.machine.source, "a\"b\\c\nd\te\x01\xff%%s</script>");
    snprintf(scene.machine.note, sizeof scene.machine.note, "\x80\x81");
    assert_int_equal(rondo_draw_json(paper_open(&paper)->out, scene.topo, scene.graphs, NULL), RONDO_SUCCESS);
    const char *text = paper_text(&paper);
    assert_json(text);
    assert_says(text, "a\\\"b\\\\c\\u000ad\\u0009e\\u0001\\u00ff%s</script>");
    free(paper.text);
    scene_close(&scene);
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    struct scene scene;
    FILE *full = fopen("/dev/full", "w");
    if (!full) skip();
    struct rondo_draw draw = { .out = full };
    scene_open(&scene, "ws2", NULL, 1);
    assert_int_equal(rondo_draw_tree(&draw, scene.topo), RONDO_SYSTEM_ERROR);
    assert_says(rondo_error_text(), "space");
    fclose(full);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_units_and_few_digits),
        cmocka_unit_test(ranges_fold_runs_both_ways),
        cmocka_unit_test(host_names_are_folded_as_resource_managers_do),
        cmocka_unit_test(tree_shows_every_device_once),
        cmocka_unit_test(tree_marks_gpus_without_a_rank),
        cmocka_unit_test(equal_hosts_are_folded),
        cmocka_unit_test(text_fits_the_terminal),
        cmocka_unit_test(matrix_shows_the_type_of_every_path),
        cmocka_unit_test(legend_explains_only_the_types_that_occur),
        cmocka_unit_test(large_machines_list_classes_of_equal_points),
        cmocka_unit_test(equal_channels_are_folded),
        cmocka_unit_test(why_shows_every_hop),
        cmocka_unit_test(json_is_well_formed),
        cmocka_unit_test(json_escapes_any_text_of_a_file),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
