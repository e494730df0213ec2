/* Ranks made up from a list; names of points and types. */
#include "topo_machine.h"

#include <stdio.h>

/* ---- made-up ranks ---- */

static void listed(struct world *w, const char *list, const char *expected)
{
    struct rondo_topo_rank *ranks;
    char text[128] = "";
    int n;
    assert_int_equal(rondo_topo_ranks(&w->machine, list, &ranks, &n), RONDO_SUCCESS);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ranks[i].rank, i);
        int32_t pci_item = rondo_machine_find_pci(&w->machine, ranks[i].busid);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%d ", (int)item_of(w, pci_item + 1)->gpu.dev);
    }
    assert_string_equal(text, expected);
    rondo_free(ranks);
}

static void lists_of_gpus(void **state)
{
    (void)state;
    static const char *const bad[] = { "",    ",", "1,",  "x",     "3-1", "1-",  "-1",
                                       "1 2", "8", "0-8", "99999", "1;2", "2,,3" };
    struct world w = WORLD;
    struct rondo_topo_rank *ranks;
    int n, c = amd(&w);
    for (int i = 0; i < 8; i++) {
        gpu_alone(&w, c, 80, GEN4);
    }
    listed(&w, NULL, "0 1 2 3 4 5 6 7 ");
    listed(&w, "0,2,5-7", "0 2 5 6 7 ");
    listed(&w, "3", "3 ");
    listed(&w, "7,0-1,7", "7 0 1 7 ");
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(rondo_topo_ranks(&w.machine, bad[i], &ranks, &n), RONDO_INVALID_ARGUMENT);
        assert_null(ranks);
        assert_says("0,2,5-7");
    }
    assert_int_equal(rondo_topo_ranks(&w.machine, "9", &ranks, &n), RONDO_INVALID_ARGUMENT);
    assert_says("has no GPU 9 (it has 8)");
    rondo_machine_release(&w.machine);
}

static void ranks_on_core_sets(void **state)
{
    (void)state;
    struct world w = WORLD;
    struct rondo_topo_rank *ranks;
    int n;
    assert_int_equal(rondo_topo_ranks(&w.machine, NULL, &ranks, &n), RONDO_INVALID_ARGUMENT);
    assert_says("neither a GPU nor a NUMA node");
    for (int i = 0; i < 3; i++) { /* the third node has only memory */
        int c = amd(&w);
        item_of(&w, c)->cpu.cores.bits[0] = i == 2 ? 0 : UINT64_C(0xff) << (8 * i);
    }
    assert_int_equal(rondo_topo_ranks(&w.machine, NULL, &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(ranks[1].cores.bits[0], 0xff00);
    assert_int_equal(ranks[1].busid, -1);
    rondo_free(ranks);
    assert_int_equal(rondo_topo_ranks(&w.machine, "n4", &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ranks[i].cores.bits[0], 0xf << (4 * i));
    }
    rondo_free(ranks);
    assert_int_equal(rondo_topo_ranks(&w.machine, "n3", &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(ranks[0].cores.bits[0], 0x0f);
    assert_int_equal(ranks[1].cores.bits[0], 0xf0);
    assert_int_equal(ranks[2].cores.bits[0], 0xff00);
    rondo_free(ranks);
    assert_int_equal(rondo_topo_ranks(&w.machine, "n40", &ranks, &n),
                     RONDO_SUCCESS); /* more ranks than cores: each may use all of the node's */
    assert_int_equal(ranks[0].cores.bits[0], 0xff);
    assert_int_equal(ranks[39].cores.bits[0], 0xff00);
    rondo_free(ranks);
    static const char *const bad[] = { "n0", "n", "n1025", "n4x", "4", "n-1" };
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(rondo_topo_ranks(&w.machine, bad[i], &ranks, &n), RONDO_INVALID_ARGUMENT);
    }
    rondo_machine_release(&w.machine);
}

/* ---- names ---- */

static void names_and_back(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), g0 = gpu(&w, c, 80, GEN4), n0 = net(&w, c, GEN4, 100000), n1 = net(&w, c, GEN4, 100000);
    char text[96], busid[24];
    nvswitch(&w, g0, 4);
    host(&w, 0, 0);
    memcpy(item_of(&w, n0)->net.name, "mlx5_0", 7);
    struct rondo_topo *t = topo_of(&w);
    static const char *const name[] = { "GPU 0", "HOST 1", "NET 0 (mlx5_0)", "NET 1", "CPU 0", "NVS" };
    for (int p = 0; p < t->npoints; p++) {
        assert_string_equal(rondo_topo_point_name(t, p, text, sizeof text), name[p]);
        text[strcspn(text, "(")] = '\0';
        for (char *end = text + strlen(text); end > text && end[-1] == ' ';) {
            *--end = '\0';
        }
        assert_int_equal(rondo_topo_point_find(t, text), p);
    }
    static const char *const find[] = { "GPU0", "gpu 0", "host1", "NET1",   "mlx5_0", "cpu0", "nvs0",
                                        "GPU1", "NET",   "NET12", "gpu 0x", "mlx5_1", "",     "ab:00.0" };
    static const int point[] = { 0, 0, 1, 3, 2, 4, 5, -1, -1, -1, -1, -1, -1, -1 };
    for (size_t i = 0; i < RONDO_COUNTOF(find); i++) {
        assert_int_equal(rondo_topo_point_find(t, find[i]), point[i]);
    }
    assert_int_equal(rondo_topo_point_find(t, rondo_busid_text(busid_of(&w, g0), busid)), 0);
    int64_t nic = item_of(&w, item_of(&w, item_of(&w, n1)->parent)->parent)->pci.busid;
    assert_int_equal(rondo_topo_point_find(t, rondo_busid_text(nic, busid)), 3);
    assert_string_equal(rondo_topo_point_name(t, -1, text, sizeof text), "no point");
    assert_string_equal(rondo_topo_point_name(t, t->npoints, text, sizeof text), "no point");
    world_end(&w, t);
}

static void types_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < RONDO_NUM_PATH_TYPES; i++) {
        assert_int_equal(rondo_path_type_from_name(rondo_path_type_name(i)), i);
        assert_true(strlen(rondo_path_type_legend(i)) > 5);
    }
    assert_int_equal(rondo_path_type_from_name("phb"), RONDO_PATH_PHB);
    static const int old[] = { RONDO_PATH_LOC, RONDO_PATH_PIX, RONDO_PATH_PXB,
                               RONDO_PATH_PHB, RONDO_PATH_SYS, RONDO_PATH_SYS };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(rondo_path_type_from_name((char[]){ (char)('0' + i), '\0' }), old[i]);
    }
    assert_int_equal(rondo_path_type_from_name("6"), -1);
    assert_int_equal(rondo_path_type_from_name("PH"), -1);
    assert_int_equal(rondo_path_type_from_name(""), -1);
    assert_string_equal(rondo_path_type_name(-1), "?");
    assert_string_equal(rondo_path_type_legend(RONDO_NUM_PATH_TYPES), "?");
    assert_string_equal(rondo_node_type_name(RONDO_NODE_NVS), "NVS");
    assert_string_equal(rondo_node_type_name(RONDO_NUM_NODE_TYPES), "?");
    assert_string_equal(rondo_link_type_name(RONDO_LINK_SYS), "SYS");
    assert_string_equal(rondo_link_type_name(-1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_gpus),
        cmocka_unit_test(ranks_on_core_sets),
        cmocka_unit_test(names_and_back),
        cmocka_unit_test(types_have_names),
    };
    return cmocka_run_group_tests_name("topo_names", tests, NULL, NULL);
}
