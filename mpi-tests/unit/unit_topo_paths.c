/* The graph of a machine and its paths, against results derived by hand. */
#include "topo_machine.h"

static int cpu_at(const struct rondo_topo *topo, int i) { return rondo_topo_cpu_point(topo, i); }
static int net_at(const struct rondo_topo *topo, int i) { return rondo_topo_net_point(topo, i); }

static int count_nodes(const struct rondo_topo *topo, int type)
{
    int n = 0;
    for (int i = 0; i < topo->nnodes; i++) {
        n += topo->node[i].type == type;
    }
    return n;
}

/* ---- tables ---- */

static void link_speeds_follow_the_tables(void **state)
{
    (void)state;
    static const int gen[] = { 25, 50, 80, 160, 320, 640 },
                     x16[] = { 3000, 6000, 12000, 24000, 48000, 96000 };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(rondo_topo_pci_mbs(gen[i], 16), x16[i]);
        assert_int_equal(rondo_topo_pci_mbs(gen[i], 8), x16[i] / 2);
        assert_int_equal(rondo_topo_pci_mbs(gen[i], 0), x16[i]);
    }
    assert_int_equal(rondo_topo_pci_mbs(25, 1), 187);
    assert_int_equal(rondo_topo_pci_mbs(0, 0), 12000);
    assert_int_equal(rondo_topo_pci_mbs(1280, 16), 96000);
    assert_int_equal(rondo_topo_pci_mbs(10, 16), 3000);
    static const int sm[] = { 0, 60, 61, 70, 75, 80, 86, 87, 89, 90, 100, 120 };
    static const int link[] = { 20000, 18000, 18000, 20000, 20000, 20000,
                                12000, 20000, 20000, 20600, 40100, 40100 };
    for (int i = 0; i < 12; i++) {
        assert_int_equal(rondo_topo_nvlink_mbs(sm[i]), link[i]);
    }
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 79), 6000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 85), 10000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 143), 22000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 207), 40000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, RONDO_VENDOR_AMD, 1), 16000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, RONDO_VENDOR_ZHAOXIN2, 91), 9000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_ARM, -1, 0), 6000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_POWER, RONDO_VENDOR_AMD, 0), 32000);
    assert_int_equal(rondo_topo_sys_mbs(RONDO_ARCH_X86, -1, 0), RONDO_LOC_MBS);
    assert_int_equal(rondo_topo_sys_mbs(-1, -1, 0), RONDO_LOC_MBS);
}

/* ---- PCI ---- */

/* Socket 0: switch A { GPU 0, GPU 1 at x8, NIC 0, switch B { GPU 2 } }, GPU 3 and NIC 1 below the CPU.
 * Socket 1: GPU 4. */
static void pci_types_and_bandwidths(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c0 = amd(&w), a = bridge(&w, c0, GEN4);
    gpu(&w, a, 80, GEN4);
    int g1 = gpu(&w, a, 80, GEN4);
    item_of(&w, item_of(&w, g1)->parent)->pci.width = 8;
    net(&w, a, GEN3, 100000);
    gpu(&w, bridge(&w, a, GEN3), 80, GEN4);
    gpu(&w, c0, 80, GEN4);
    net(&w, c0, GEN5, 200000);
    gpu(&w, amd(&w), 80, GEN5);
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(t->ndevs, 5);
    assert_int_equal(t->nnets, 2);
    assert_int_equal(t->ncpus, 2);
    assert_int_equal(t->nnvs, 0);
    assert_int_equal(t->all_gpus, 1);
    assert_int_equal(t->min_sm, 80);
    assert_int_equal(count_nodes(t, RONDO_NODE_PCI), 2);
    direct_is(t, 0, 1, PIX, 12000);
    direct_is(t, 0, 2, PXB, 12000);
    direct_is(t, 0, 3, PHB, 24000);
    direct_is(t, 0, 4, SYS, 16000);
    direct_is(t, 2, 3, PHB, 12000);
    direct_is(t, 0, cpu_at(t, 0), PHB, 24000);
    direct_is(t, 0, cpu_at(t, 1), SYS, 16000);
    direct_is(t, 0, net_at(t, 0), PIX, 12000);
    direct_is(t, 2, net_at(t, 0), PXB, 12000);
    direct_is(t, 3, net_at(t, 0), PHB, 12000);
    direct_is(t, 3, net_at(t, 1), PHB, 24000);
    direct_is(t, 4, net_at(t, 1), SYS, 16000);
    direct_is(t, net_at(t, 0), net_at(t, 1), PHB, 12000);
    direct_is(t, net_at(t, 1), cpu_at(t, 0), PHB, 25000);
    direct_is(t, cpu_at(t, 0), cpu_at(t, 1), SYS, 16000);
    assert_int_equal(rondo_topo_wired(t, 0, net_at(t, 0))->nhops, 3);
    assert_int_equal(t->device_cpu[2], cpu_at(t, 0));
    assert_int_equal(t->device_cpu[4], cpu_at(t, 1));
    world_end(&w, t);
}

static void unowned_gpus_and_empty_bridges_are_left_out(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4), b = bridge(&w, c, GEN4);
    bridge(&w, a, GEN4);
    int g0 = gpu(&w, a, 80, GEN4), g1 = gpu_alone(&w, b, 80, GEN4), g2 = gpu(&w, c, 80, GEN4);
    nvlinks(&w, g0, g1, 2);
    nvlinks(&w, g1, g2, 2);
    add(&w, RONDO_ITEM_NIC, pci(&w, b, 0x020000, GEN4, 16)); /* a NIC without a port */
    w.rank[0].rank = 7;
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(t->ndevs, 2);
    assert_int_equal(count_nodes(t, RONDO_NODE_PCI), 1);
    assert_int_equal(count_nodes(t, RONDO_NODE_NIC), 0);
    direct_is(t, 0, 1, PHB, 24000); /* GPUs without a rank do not relay */
    assert_int_equal(t->rank[0].rank, 7);
    assert_ptr_equal(rondo_topo_item(t, 1), item_of(&w, g2));
    world_end(&w, t);
}

static void unknown_bus_id_error_names_it(void **state)
{
    (void)state;
    struct world w = WORLD;
    struct rondo_topo *t;
    gpu(&w, amd(&w), 80, GEN4);
    w.rank[0].busid = 0x99000;
    assert_int_equal(rondo_topo_create(&t, &w.machine, w.rank, 1, NULL), RONDO_INVALID_ARGUMENT);
    assert_null(t);
    assert_says("0000:99:00.0");
    assert_says("0000:01:00.0");
    assert_int_equal(rondo_topo_create(&t, &w.machine, w.rank, 0, NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_topo_create(&t, &w.machine, w.rank, RONDO_TOPO_MAX_LOCAL + 1, NULL),
                     RONDO_INVALID_ARGUMENT);
    rondo_machine_release(&w.machine);
    w.rank[0].busid = -1;
    assert_int_equal(rondo_topo_create(&t, &w.machine, w.rank, 1, NULL), RONDO_INVALID_ARGUMENT);
    assert_says("no NUMA node");
}

static void broadcom_pair(struct world *w, int device, int sub_upper, int sub_lower, int *lower)
{
    int upper = bridge(w, 0, GEN4);
    *lower = bridge(w, upper, GEN4);
    for (int i = 0; i < 2; i++) {
        struct rondo_item *item = item_of(w, i ? *lower : upper);
        item->pci.vendor = item->pci.subsystem_vendor = 0x1000;
        item->pci.device = (uint16_t)device;
        item->pci.subsystem_device = (uint16_t)(i ? sub_lower : sub_upper);
    }
    gpu(w, upper, 90, GEN5);
    gpu(w, *lower, 90, GEN5);
}

static void broadcom_levels_are_one_switch(void **state)
{
    (void)state;
    static const struct {
        int device, upper, lower, type;
    } c[] = { { 0xc010, 0xa096, 0xa096, RONDO_PATH_PIX }, { 0xc030, 0x0001, 0x1001, RONDO_PATH_PIX },
              { 0xc030, 0x1001, 0x1001, RONDO_PATH_PXB }, { 0xc030, 0x0001, 0x0001, RONDO_PATH_PXB },
              { 0xc010, 0xb096, 0xb096, RONDO_PATH_PXB }, { 0xc034, 0xa096, 0xa096, RONDO_PATH_PXB } };
    for (int i = 0; i < (int)RONDO_COUNTOF(c); i++) {
        struct world w = WORLD;
        int lower;
        amd(&w);
        broadcom_pair(&w, c[i].device, c[i].upper, c[i].lower, &lower);
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(rondo_topo_wired(t, 0, 1)->type, c[i].type);
        assert_int_equal(rondo_topo_wired(t, 0, 1)->mbs,
                         c[i].type == RONDO_PATH_PIX ? 48000 : 24000); /* no link between the levels */
        assert_int_equal(count_nodes(t, RONDO_NODE_PCI), c[i].type == RONDO_PATH_PIX ? 1 : 2);
        world_end(&w, t);
    }
    struct world w = WORLD; /* only two levels merge: a third below is a switch of its own */
    int lower;
    amd(&w);
    broadcom_pair(&w, 0xc010, 0xa000, 0xa000, &lower);
    int third = bridge(&w, lower, GEN4);
    item_of(&w, third)->pci = item_of(&w, lower)->pci;
    item_of(&w, third)->pci.busid = 0x77000;
    gpu(&w, third, 90, GEN5);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, 1, PIX, 48000);
    direct_is(t, 1, 2, PXB, 24000);
    world_end(&w, t);
}

static void links_between_switches(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4), b = bridge(&w, c, GEN3);
    gpu(&w, a, 80, GEN4);
    gpu(&w, b, 80, GEN4);
    for (int i = 0; i < 2; i++) {
        int link = add(&w, RONDO_ITEM_PCILINK, i ? a : b);
        item_of(&w, link)->pcilink.target = item_of(&w, i ? b : a)->pci.busid;
    }
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, 1, PXB, 12000);
    assert_int_equal(rondo_topo_wired(t, 0, 1)->nhops, 3);
    world_end(&w, t);
}

/* ---- NICs ---- */

static void functions_of_a_nic_share_its_link(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4);
    gpu(&w, a, 80, GEN4);
    int n0 = net(&w, a, GEN3, 100000), n1 = net(&w, a, GEN3, 100000);
    int f0 = item_of(&w, item_of(&w, n0)->parent)->parent, f1 = item_of(&w, item_of(&w, n1)->parent)->parent;
    item_of(&w, f1)->pci.busid = item_of(&w, f0)->pci.busid + 1;
    net_of(&w, add(&w, RONDO_ITEM_NIC, c), 0); /* a virtual NIC: no PCI device, speed unknown */
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(count_nodes(t, RONDO_NODE_NIC), 2);
    const struct rondo_topo_path *x = rondo_topo_wired(t, 0, net_at(t, 0)),
                                 *y = rondo_topo_wired(t, 0, net_at(t, 1));
    assert_int_equal(t->hop[x->first + 1], t->hop[y->first + 1]);
    assert_int_not_equal(t->hop[x->first + 2], t->hop[y->first + 2]);
    direct_is(t, 0, net_at(t, 2), PHB, 1250);
    world_end(&w, t);
}

/* Two nets with equal guid and port share a wire, on one NIC or on two; each is reached only through its own
 * NIC. */
static void equal_ports_share_a_wire(void **state)
{
    (void)state;
    for (int nics = 1; nics <= 2; nics++) {
        struct world w = WORLD;
        int c0 = amd(&w), c1 = amd(&w), n0 = net(&w, bridge(&w, c0, GEN4), GEN4, 100000);
        gpu(&w, item_of(&w, item_of(&w, item_of(&w, n0)->parent)->parent)->parent, 80, GEN4);
        int n1 = nics == 1 ? net_of(&w, item_of(&w, n0)->parent, 100000) : net(&w, c1, GEN4, 100000);
        gpu(&w, c1, 80, GEN4);
        item_of(&w, n0)->net.guid = item_of(&w, n1)->net.guid = 42;
        item_of(&w, n0)->net.port = item_of(&w, n1)->net.port = 1;
        struct rondo_topo *t = topo_of(&w);
        int shared = 0;
        const struct rondo_topo_path *x = rondo_topo_wired(t, 0, net_at(t, 0)),
                                     *y = rondo_topo_wired(t, 1, net_at(t, 1));
        for (int i = 0; i < x->nhops; i++) {
            for (int j = 0; j < y->nhops; j++) {
                shared += t->hop[x->first + i] == t->hop[y->first + j] &&
                          t->link[t->hop[x->first + i]].type == RONDO_LINK_NET;
            }
        }
        assert_int_equal(shared, 1);
        direct_is(t, 0, net_at(t, 0), PIX, 12500);
        if (nics == 2) {
            direct_is(t, 0, net_at(t, 1), SYS, 12500);
            direct_is(t, 1, net_at(t, 1), PHB, 12500);
            direct_is(t, 1, net_at(t, 0), SYS, 12500);
        }
        world_end(&w, t);
    }
}

/* ---- NVLink ---- */

static void nvlink_count_is_the_smaller_of_both_ends(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), g[4];
    for (int i = 0; i < 4; i++) {
        g[i] = gpu(&w, c, i == 3 ? 86 : 80, GEN4);
    }
    nvlink(&w, g[0], busid_of(&w, g[1]), 4, 0x030200);
    nvlink(&w, g[1], busid_of(&w, g[0]), 3, 0x030200);
    nvlink(&w, g[0], busid_of(&w, g[2]), 2, 0); /* reported at one end, in two items, of unknown class */
    nvlink(&w, g[0], busid_of(&w, g[2]), 1, 0);
    nvlinks(&w, g[0], g[3], 1);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, 1, NVL, 60000);
    direct_is(t, 0, 2, NVL, 60000);
    direct_is(t, 0, 3, NVL, 12000);
    direct_is(t, 1, 2, NVB, 60000);
    assert_int_equal(rondo_topo_wired(t, 1, 2)->via, 0);
    assert_int_equal(rondo_topo_path(t, 1, 2)->via, 0);
    world_end(&w, t);
}

/* NVB has one relay, never a second, and does not continue over PCI. */
static void nvb_paths_use_exactly_one_relay(void **state)
{
    (void)state;
    struct world w = WORLD;
    int g[4];
    for (int i = 0; i < 4; i++) {
        g[i] = gpu(&w, amd(&w), 70, GEN3);
        if (i > 0) {
            nvlinks(&w, g[i - 1], g[i], 1);
        }
    }
    net(&w, 0, GEN3, 100000);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, 2, NVB, 20000);
    direct_is(t, 0, 3, SYS, 12000);
    direct_is(t, 1, net_at(t, 0), SYS, 12000);
    direct_is(t, 1, cpu_at(t, 0), SYS, 12000);
    world_end(&w, t);
}

/* An NVSwitch connects all GPUs. Its links are hidden by a virtual machine, lead to a PCI device, or have an
 * unknown class. */
static void nvswitches_are_one_node(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), s = pci(&w, bridge(&w, c, GEN4), 0x068000, GEN4, 16), g[4];
    for (int i = 0; i < 4; i++) {
        g[i] = gpu(&w, c, 90, GEN5);
    }
    nvswitch(&w, g[0], 18);
    nvlink(&w, g[1], item_of(&w, s)->pci.busid, 9, 0);
    nvlink(&w, g[1], item_of(&w, s)->pci.busid, 9, 0x068000);
    nvlink(&w, g[2], 0x123456000, 12, 0);
    nvlinks(&w, g[3], g[0], 1);
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(t->nnvs, 1);
    assert_int_equal(count_nodes(t, RONDO_NODE_NVS), 1);
    assert_int_equal(count_nodes(t, RONDO_NODE_PCI), 0);
    direct_is(t, 0, 1, NVL, 18 * 20600);
    direct_is(t, 0, 2, NVL, 12 * 20600);
    direct_is(t, 0, t->npoints - 1, NVL, 18 * 20600);
    direct_is(t, 3, 0, NVL, 20600);
    direct_is(t, 3, 1, PHB, 48000); /* GPU 0 does not relay to a switch */
    world_end(&w, t);
}

/* DGX-1V's hybrid cube mesh. */
static void cube_mesh_paths(void **state)
{
    (void)state;
    static const int8_t links[8][8] = { { 0, 1, 1, 2, 2, 0, 0, 0 }, { 1, 0, 2, 1, 0, 2, 0, 0 },
                                        { 1, 2, 0, 2, 0, 0, 1, 0 }, { 2, 1, 2, 0, 0, 0, 0, 1 },
                                        { 2, 0, 0, 0, 0, 1, 1, 2 }, { 0, 2, 0, 0, 1, 0, 2, 1 },
                                        { 0, 0, 1, 0, 1, 2, 0, 2 }, { 0, 0, 0, 1, 2, 1, 2, 0 } };
    struct world w = WORLD;
    int g[8], c[2] = { cpu(&w, RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 79),
                       cpu(&w, RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 79) };
    for (int i = 0; i < 8; i++) {
        g[i] = gpu(&w, c[i / 4], 70, GEN3);
    }
    for (int a = 0; a < 8; a++) {
        for (int b = 0; b < 8; b++) {
            if (links[a][b]) {
                nvlink(&w, g[a], busid_of(&w, g[b]), links[a][b], 0x030200);
            }
        }
    }
    struct rondo_topo *t = topo_of(&w);
    for (int a = 0; a < 8; a++) {
        for (int b = 0; b < 8; b++) {
            int widest = 0;
            for (int r = 0; r < 8; r++) {
                int both = links[a][r] < links[r][b] ? links[a][r] : links[r][b];
                widest = both > widest ? both : widest;
            }
            if (a != b) {
                path_is_(rondo_topo_path(t, a, b), links[a][b] ? RONDO_PATH_NVL : RONDO_PATH_NVB,
                         20000 * (links[a][b] ? links[a][b] : widest), __FILE__, __LINE__);
                assert_int_equal(rondo_topo_path(t, a, b)->via >= 0, links[a][b] == 0);
            }
        }
    }
    world_end(&w, t);
}

/* ---- processors ---- */

static void intel_bridges_cost_a_fifth_more(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = intel(&w), a = bridge(&w, c, GEN4), s = intel(&w);
    gpu(&w, a, 80, GEN4);
    gpu(&w, a, 80, GEN4);
    gpu(&w, c, 70, GEN4);
    gpu(&w, s, 80, GEN4);
    net(&w, c, GEN4, 400000);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, 1, PIX, 24000);
    direct_is(t, 0, 2, PHB, 20000);
    path_is(t, 0, 2, PHB, 20000);
    direct_is(t, 0, 3, SYS, 22000);
    direct_is(t, 0, net_at(t, 0), PHB, 24000);
    path_is(t, net_at(t, 0), 0, PHB, 24000);
    for (int d = 0; d < 4; d++) { /* into a GPU before sm 80 */
        assert_int_equal(rondo_topo_wired(t, net_at(t, 0), d)->reverse_eighth, d == 2);
        assert_int_equal(rondo_topo_path(t, net_at(t, 0), d)->reverse_eighth, d == 2);
        assert_int_equal(rondo_topo_path(t, d, net_at(t, 0))->reverse_eighth, 0);
        assert_int_equal(rondo_topo_path(t, d, 2)->reverse_eighth, 0);
    }
    world_end(&w, t);
}

static void sys_speed_is_the_slower_cpus(void **state)
{
    (void)state;
    struct world w = WORLD;
    amd(&w);
    intel(&w);
    cpu(&w, -1, -1, 0);
    cpu(&w, -1, -1, 0);
    host(&w, 0, 0);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, cpu_at(t, 0), cpu_at(t, 1), SYS, 16000);
    direct_is(t, cpu_at(t, 0), cpu_at(t, 2), SYS, 16000);
    direct_is(t, cpu_at(t, 2), cpu_at(t, 3), SYS, RONDO_LOC_MBS);
    world_end(&w, t);
}

/* Grace-Hopper: from a GPU to a NIC of its own CPU is P2C; between GPUs, and from a CPU, it stays PHB. */
static void c2c_paths(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c0 = cpu(&w, RONDO_ARCH_ARM, RONDO_VENDOR_NVIDIA, 0),
        c1 = cpu(&w, RONDO_ARCH_ARM, RONDO_VENDOR_NVIDIA, 0);
    int g0 = gpu(&w, c0, 90, GEN5), g1 = gpu(&w, c0, 90, GEN5);
    gpu(&w, c0, 90, GEN4);
    c2c(&w, g0, 44712, 10);
    c2c(&w, g1, 44712, 10);
    net(&w, c0, GEN5, 200000);
    net(&w, bridge(&w, c1, GEN5), GEN5, 200000);
    net(&w, bridge(&w, c0, GEN5), GEN5, 400000);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, cpu_at(t, 0), C2C, 447120);
    direct_is(t, 0, 1, C2C, 447120);
    direct_is(t, 0, 2, PHB, 24000);
    direct_is(t, 0, net_at(t, 0), P2C, 25000);
    direct_is(t, net_at(t, 0), 0, P2C, 25000);
    direct_is(t, 0, net_at(t, 2), P2C, 48000);
    direct_is(t, 2, net_at(t, 0), PHB, 24000);
    direct_is(t, 0, net_at(t, 1), SYS, 6000);
    direct_is(t, cpu_at(t, 0), net_at(t, 0), PHB, 25000);
    direct_is(t, net_at(t, 0), net_at(t, 2), PHB, 25000);
    world_end(&w, t);
}

/* NVLink to the CPU (Power): the NIC behind it is at PHB. */
static void nvlink_to_the_cpu_gives_phb_nets(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = cpu(&w, RONDO_ARCH_POWER, -1, 0), g[2] = { gpu(&w, c, 70, GEN3), gpu(&w, c, 70, GEN3) };
    for (int i = 0; i < 2; i++) {
        nvlink(&w, g[i], 0x7777000, 3, 0x068001);
    }
    net(&w, c, GEN4, 100000);
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(t->nnvs, 0);
    direct_is(t, 0, cpu_at(t, 0), NVL, 60000);
    direct_is(t, 0, 1, NVL, 60000);
    direct_is(t, 0, net_at(t, 0), PHB, 12500);
    world_end(&w, t);
}

/* A better type does not hide a wider path that is needed further on: PIX is narrow here, and across the
 * sockets only bandwidth counts. */
static void a_better_type_does_not_hide_a_wider_path(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c0 = intel(&w), a = bridge(&w, c0, GEN5), b = bridge(&w, c0, 25), c1 = intel(&w);
    int g0 = gpu(&w, a, 80, GEN5), link = add(&w, RONDO_ITEM_PCILINK, b);
    gpu(&w, b, 80, GEN5);
    gpu(&w, c1, 80, GEN5);
    item_of(&w, link)->pcilink.target = item_of(&w, a)->pci.busid;
    c2c(&w, g0, 1000, 1);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, cpu_at(t, 0), C2C, 1000);
    direct_is(t, 0, 2, SYS, 22000);
    direct_is(t, 0, 1, PXB, 3000);
    world_end(&w, t);
}

/* ---- ranks ---- */

static void two_ranks_share_a_gpu(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4), g0 = gpu(&w, a, 80, GEN4), g1 = gpu(&w, a, 80, GEN4),
        g2 = gpu(&w, c, 80, GEN4);
    owned(&w, g0);
    nvlinks(&w, g0, g1, 2);
    nvlinks(&w, g0, g2, 1);
    net(&w, a, GEN4, 100000);
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(t->ndevs, 4);
    assert_int_equal(count_nodes(t, RONDO_NODE_DEV), 1);
    direct_is(t, 0, 3, LOC, RONDO_LOC_MBS);
    path_is(t, 0, 3, LOC, RONDO_LOC_MBS);
    direct_is(t, 0, 1, NVL, 40000);
    direct_is(t, 3, 1, NVL, 40000);
    direct_is(t, 1, 2, NVB, 20000);
    assert_int_equal(rondo_topo_wired(t, 1, 2)->via, 0);
    direct_is(t, 3, net_at(t, 0), PIX, 12500);
    const struct rondo_topo_path *x = rondo_topo_wired(t, 0, net_at(t, 0)),
                                 *y = rondo_topo_wired(t, 3, net_at(t, 0));
    for (int i = 1; i < x->nhops; i++) {
        assert_int_equal(t->hop[x->first + i], t->hop[y->first + i]);
    }
    world_end(&w, t);
}

static void hosts_attach_to_their_numa_node(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c[2] = { intel(&w), intel(&w) };
    for (int i = 0; i < 2; i++) {
        item_of(&w, c[i])->cpu.cores.bits[0] = UINT64_C(0xff) << (8 * i);
    }
    net(&w, c[0], GEN4, 100000);
    host(&w, 0, 4);
    host(&w, 4, 4);
    host(&w, 6, 8); /* most cores in the second node */
    host(&w, 4, 8); /* as many in both nodes */
    host(&w, 0, 0); /* unknown: round robin */
    host(&w, 0, 0);
    gpu(&w, c[0], 80, GEN4);
    struct rondo_topo *t = topo_of(&w);
    static const int where[] = { 0, 0, 1, 0, 0, 1, 0 };
    for (int d = 0; d < 7; d++) {
        assert_int_equal(t->device_cpu[d], cpu_at(t, where[d]));
    }
    assert_int_equal(t->all_gpus, 0);
    assert_int_equal(t->node[1].type, RONDO_NODE_HOST);
    path_is(t, 0, 1, PHB, RONDO_LOC_MBS);
    path_is(t, 0, 2, SYS, 22000);
    path_is(t, 0, 6, PHB, 24000);
    path_is(t, 0, net_at(t, 0), PHB, 12500);
    path_is(t, 2, net_at(t, 0), SYS, 12500);
    path_is(t, 0, cpu_at(t, 0), LOC, RONDO_LOC_MBS);
    path_is(t, 0, cpu_at(t, 1), SYS, 22000);
    world_end(&w, t);
}

/* One NVLink domain over two hosts: their CPUs are not connected. */
static void hosts_of_an_nvlink_domain_are_not_connected(void **state)
{
    (void)state;
    struct world w = WORLD;
    for (int h = 0; h < 2; h++) {
        int c = amd(&w);
        item_of(&w, c)->cpu.host_hash = (uint64_t)h + 1;
        nvswitch(&w, gpu(&w, c, 100, GEN5), 18);
        gpu(&w, c, 100, GEN5);
        net(&w, c, GEN5, 400000);
    }
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, cpu_at(t, 0), cpu_at(t, 1), DIS, 0);
    direct_is(t, 0, 2, NVL, 18 * 40100);
    direct_is(t, 0, 3, DIS, 0);
    direct_is(t, 0, net_at(t, 1), DIS, 0);
    path_is(t, 0, 2, NVL, 18 * 40100);
    path_is(t, 0, 3, NET, 48000);
    path_is(t, 0, net_at(t, 1), DIS, 0);
    world_end(&w, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_speeds_follow_the_tables),
        cmocka_unit_test(pci_types_and_bandwidths),
        cmocka_unit_test(unowned_gpus_and_empty_bridges_are_left_out),
        cmocka_unit_test(unknown_bus_id_error_names_it),
        cmocka_unit_test(broadcom_levels_are_one_switch),
        cmocka_unit_test(links_between_switches),
        cmocka_unit_test(functions_of_a_nic_share_its_link),
        cmocka_unit_test(equal_ports_share_a_wire),
        cmocka_unit_test(nvlink_count_is_the_smaller_of_both_ends),
        cmocka_unit_test(nvb_paths_use_exactly_one_relay),
        cmocka_unit_test(nvswitches_are_one_node),
        cmocka_unit_test(cube_mesh_paths),
        cmocka_unit_test(intel_bridges_cost_a_fifth_more),
        cmocka_unit_test(sys_speed_is_the_slower_cpus),
        cmocka_unit_test(c2c_paths),
        cmocka_unit_test(nvlink_to_the_cpu_gives_phb_nets),
        cmocka_unit_test(a_better_type_does_not_hide_a_wider_path),
        cmocka_unit_test(two_ranks_share_a_gpu),
        cmocka_unit_test(hosts_attach_to_their_numa_node),
        cmocka_unit_test(hosts_of_an_nvlink_domain_are_not_connected),
    };
    return cmocka_run_group_tests_name("topo_paths", tests, NULL, NULL);
}
