/* What paths data may take: P2P, GPUDirect, PXN, flush_depends_on_sm_and_c2c, nets and channels of a device.
 */
#include "topo_machine.h"

static int net_at(const struct rondo_topo *topo, int i) { return rondo_topo_net_point(topo, i); }
static int cpu_at(const struct rondo_topo *topo, int i) { return rondo_topo_cpu_point(topo, i); }

static int p2p(const struct rondo_topo *topo, int a, int b, const char *why)
{
    struct rondo_topo_verdict verdict;
    int read;
    rondo_topo_p2p(topo, a, b, &read, &verdict);
    if (!strstr(verdict.reason, why)) {
        fail_msg("\"%s\" is not in: %s", why, verdict.reason);
    }
    return verdict.yes + 2 * read;
}

static int gdr(const struct rondo_topo *topo, int dev, int net, int read, const char *why)
{
    struct rondo_topo_verdict verdict;
    rondo_topo_gdr(topo, dev, net, read, &verdict);
    if (!strstr(verdict.reason, why)) {
        fail_msg("\"%s\" is not in: %s", why, verdict.reason);
    }
    return verdict.yes;
}

/* @return the relay */
static int pxn(const struct rondo_topo *topo, int dev, int net, const char *why)
{
    const struct rondo_item *item = rondo_topo_item(topo, rondo_topo_net_point(topo, net));
    struct rondo_topo_verdict verdict;
    uint8_t relay[16];
    rondo_topo_pxn(topo, dev, net, &verdict);
    rondo_topo_relays(topo, net, relay, 16);
    assert_int_equal(relay[dev],
                     topo->all_gpus && (item->net.port > 0 || item->net.gdr == 1) ? 1 + verdict.via : 0);
    if (!strstr(verdict.reason, why)) {
        fail_msg("\"%s\" is not in: %s", why, verdict.reason);
    }
    assert_int_equal(verdict.yes, verdict.via >= 0);
    return verdict.via;
}

/* ---- P2P ---- */

/* Two switches below one CPU, two GPUs each, and a fifth across the sockets. */
static void five_gpus(struct world *w, int (*processor)(struct world *))
{
    int c = processor(w), a = bridge(w, c, GEN4), b = bridge(w, a, GEN4), s = processor(w);
    gpu(w, a, 80, GEN4);
    gpu(w, a, 80, GEN4);
    gpu(w, b, 80, GEN4);
    gpu(w, c, 80, GEN4);
    gpu(w, s, 80, GEN4);
}

static void p2p_by_level(void **state)
{
    (void)state;
    static const int8_t to[] = { 1, 2, 3, 4 };
    static const int type[] = { RONDO_PATH_PIX, RONDO_PATH_PXB, RONDO_PATH_PHB, RONDO_PATH_SYS };
    for (int level = -1; level < RONDO_NUM_PATH_TYPES; level++) {
        struct world w = WORLD;
        five_gpus(&w, intel);
        w.options.p2p_level = level;
        struct rondo_topo *t = topo_of(&w);
        for (int i = 0; i < 4; i++) {
            int yes = type[i] <= (level < 0 ? RONDO_PATH_PXB : level);
            assert_int_equal(
                p2p(t, 0, to[i], yes ? "is within RONDO_P2P_LEVEL=" : "is beyond RONDO_P2P_LEVEL="), yes);
            const struct rondo_topo_path *path = rondo_topo_path(t, 0, to[i]);
            assert_int_equal(path->via, yes ? -1 : t->device_cpu[to[i]]);
            assert_int_equal(path->type, yes ? type[i] : type[i] > RONDO_PATH_PHB ? type[i] : RONDO_PATH_PHB);
        }
        assert_int_equal(p2p(t, 2, 2, "same device"), 1);
        world_end(&w, t);
    }
}

static void p2p_through_sockets_on_small_amd_hosts(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        struct world w = WORLD;
        for (int i = 0; i < n; i++) {
            gpu(&w, amd(&w), 80, GEN4);
        }
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(
            p2p(t, 0, 1,
                n == 2 ? "within RONDO_P2P_LEVEL=SYS (default)" : "beyond RONDO_P2P_LEVEL=PXB (default)"),
            n == 2);
        path_is(t, 0, 1, SYS, 16000);
        assert_int_equal(rondo_topo_path(t, 0, 1)->via, n == 2 ? -1 : cpu_at(t, 1));
        world_end(&w, t);
    }
}

static void p2p_can_be_disabled(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = intel(&w), a = bridge(&w, c, GEN4), g[4];
    for (int i = 0; i < 4; i++) {
        g[i] = gpu(&w, a, 80, GEN4);
    }
    nvlinks(&w, g[0], g[3], 4);
    owned(&w, g[1]);
    item_of(&w, g[1])->gpu.no_p2p = 1u << 2 | 1u << 1; /* reported by one end; means nothing alone */
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(p2p(t, 0, 1, "within"), 1);
    assert_int_equal(p2p(t, 1, 2, "GPUs 1 and 2"), 0);
    assert_int_equal(p2p(t, 2, 1, "GPUs 2 and 1"), 0);
    assert_int_equal(p2p(t, 1, 4, "path LOC"), 1);
    assert_int_equal(p2p(t, 0, 3, "reads"), 3);
    direct_is(t, 1, 2, PIX, 24000);
    path_is(t, 1, 2, PHB, 20000); /* staged in host memory through Intel's host bridge */
    path_is(t, 2, 1, PHB, 20000);
    assert_int_equal(rondo_topo_path(t, 1, 2)->nhops, 5);
    world_end(&w, t);
}

static void without_p2p_and_without_shared_memory(void **state)
{
    (void)state;
    for (int shm = 0; shm < 2; shm++) {
        struct world w = WORLD;
        int c = amd(&w), a = bridge(&w, c, GEN4), b = bridge(&w, c, GEN3);
        gpu(&w, a, 80, GEN4);
        gpu(&w, a, 80, GEN4);
        net(&w, a, GEN4, 200000);
        gpu(&w, b, 80, GEN4);
        net(&w, b, GEN4, 100000);
        host(&w, 0, 0);
        host(&w, 0, 0);
        w.options.p2p_disable = 1;
        w.options.shm_disable = shm;
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(p2p(t, 0, 1, "RONDO_P2P_DISABLE=1"), 0);
        assert_int_equal(p2p(t, 0, 3, "shared memory"), 0);
        direct_is(t, 0, 1, PIX, 24000);
        assert_int_equal(t->ndevs, 5); /* no device is dropped */
        if (shm) {
            path_is(t, 0, 1, NET, 24000);
            path_is(t, 0, 2, NET, 12500); /* out through one NIC, in through the other */
            assert_int_equal(rondo_topo_path(t, 0, 2)->via, net_at(t, 0));
            assert_int_equal(rondo_topo_path(t, 3, 4)->type, RONDO_PATH_NET);
        } else {
            path_is(t, 0, 1, PHB, 24000);
            path_is(t, 0, 2, PHB, 12000);
            assert_int_equal(rondo_topo_path(t, 3, 4)->type, RONDO_PATH_PHB);
        }
        world_end(&w, t);
    }
    struct world w = WORLD; /* no net either: sockets over the host */
    int c = amd(&w);
    gpu(&w, c, 80, GEN4);
    gpu(&w, c, 80, GEN4);
    w.options.p2p_disable = w.options.shm_disable = 1;
    struct rondo_topo *t = topo_of(&w);
    path_is(t, 0, 1, NET, 24000);
    world_end(&w, t);
}

/* A NIC faster than the path between two GPUs does not split the node. */
static void fast_nic_does_not_split_a_node(void **state)
{
    (void)state;
    struct world w = WORLD;
    for (int s = 0; s < 2; s++) {
        int a = bridge(&w, intel(&w), GEN5);
        gpu(&w, a, 89, GEN4);
        gpu(&w, a, 89, GEN4);
        net(&w, a, GEN5, 200000);
    }
    struct rondo_topo *t = topo_of(&w);
    path_is(t, 0, net_at(t, 0), PIX, 24000);
    path_is(t, 0, 2, SYS, 22000);
    path_is(t, 2, 1, SYS, 22000);
    world_end(&w, t);
}

/* ---- GPUDirect ---- */

static void gdr_by_level(void **state)
{
    (void)state;
    static const int type[] = { RONDO_PATH_PIX, RONDO_PATH_PXB, RONDO_PATH_PHB, RONDO_PATH_SYS };
    static const int dev[] = { 0, 2, 3, 4 };
    for (int level = -1; level < RONDO_NUM_PATH_TYPES; level++) {
        struct world w = WORLD;
        five_gpus(&w, amd);
        net(&w, 1, GEN4, 100000);
        w.options.gdr_level = level;
        struct rondo_topo *t = topo_of(&w);
        for (int i = 0; i < 4; i++) {
            int yes = type[i] <= (level < 0 ? RONDO_PATH_PXB : level);
            assert_int_equal(gdr(t, dev[i], 0, 0,
                                 yes ? "is within RONDO_NET_GDR_LEVEL=" : "is beyond RONDO_NET_GDR_LEVEL="),
                             yes);
            for (int out = 0; out < 2; out++) {
                const struct rondo_topo_path *path = out ? rondo_topo_path(t, dev[i], net_at(t, 0))
                                                         : rondo_topo_path(t, net_at(t, 0), dev[i]);
                assert_int_equal(path->via, yes ? -1 : t->device_cpu[dev[i]]);
                assert_int_equal(path->type, yes || type[i] > RONDO_PATH_PHB ? type[i] : RONDO_PATH_PHB);
            }
        }
        world_end(&w, t);
    }
}

static void gdr_capabilities(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4), g0 = gpu(&w, a, 80, GEN4);
    gpu(&w, a, 80, GEN4);
    host(&w, 0, 0);
    net(&w, a, GEN4, 100000);
    int n1 = net(&w, a, GEN4, 100000);
    item_of(&w, g0)->gpu.gdr = 0;
    item_of(&w, n1)->net.gdr = 0;
    memcpy(item_of(&w, n1)->net.name, "mlx5_9", 7);
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(gdr(t, 0, 0, 0, "the GPU's driver"), 0);
    assert_int_equal(gdr(t, 1, 0, 0, "within"), 1);
    assert_int_equal(gdr(t, 1, 1, 0, "mlx5_9"), 0);
    assert_int_equal(gdr(t, 2, 0, 0, "no GPU"), 0);
    path_is(t, 0, net_at(t, 0), PHB, 12500);
    path_is(t, 1, net_at(t, 0), PIX, 12500);
    path_is(t, 1, net_at(t, 1), PHB, 12500);
    world_end(&w, t);
}

static void gdr_over_c2c(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct world w = WORLD;
        int c = cpu(&w, RONDO_ARCH_ARM, RONDO_VENDOR_NVIDIA, 0);
        c2c(&w, gpu(&w, c, 90, GEN5), 44712, 10);
        gpu(&w, c, 90, GEN5);
        net(&w, c, GEN5, 400000);
        w.options.gdr_c2c = on;
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(
            gdr(t, 0, 0, 0, on ? "P2C is within RONDO_NET_GDR_LEVEL=P2C" : "RONDO_NET_GDR_C2C=0"), on);
        assert_int_equal(gdr(t, 1, 0, 0, "PHB is beyond RONDO_NET_GDR_LEVEL=PXB"), 0);
        assert_int_equal(rondo_topo_path(t, 0, net_at(t, 0))->type,
                         RONDO_PATH_P2C); /* staged in the memory of the CPU on the path */
        assert_int_equal(rondo_topo_flush(t, 0), 0);
        world_end(&w, t);
    }
}

/* Before sm 80, NICs read a GPU only if its peers are on NVLink or it has none; they always write. */
static void nics_do_not_read_old_gpus(void **state)
{
    (void)state;
    for (int links = 0; links < 3; links++) {
        struct world w = WORLD;
        int a = bridge(&w, intel(&w), GEN3), g0 = gpu(&w, a, 70, GEN3);
        if (links < 2) {
            int g1 = gpu(&w, a, 70, GEN3);
            links ? nvlinks(&w, g0, g1, 1) : (void)0;
        }
        net(&w, a, GEN3, 100000);
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(gdr(t, 0, 0, 1, links ? "within" : "before sm 80"), links > 0);
        assert_int_equal(gdr(t, 0, 0, 0, "within"), 1);
        t->options.gdr_read = links == 0;
        assert_int_equal(gdr(t, 0, 0, 1, links ? "RONDO_NET_GDR_READ=0" : "within"), links == 0);
        assert_int_equal(gdr(t, 0, 0, 0, "within"), 1);
        world_end(&w, t);
    }
}

/* As ranks in other processes see it: two GPUs, each with a NIC next to it, and a third NIC without RDMA. */
static void gdr_masks_match_the_verdicts(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = intel(&w), a = bridge(&w, c, GEN4), b = bridge(&w, c, GEN4);
    uint64_t gdr[RONDO_NUM_GDR];
    static const uint64_t none[RONDO_NUM_GDR], first[] = { 1, 0, 1, 1 }, second[] = { 2, 2, 0, 2 };
    gpu(&w, a, 80, GEN4);
    gpu(&w, b, 90, GEN4);
    int n0 = net(&w, a, GEN4, 200000), n1 = net(&w, b, GEN4, 200000), n2 = net(&w, b, GEN4, 10000);
    item_of(&w, n0)->net.port = item_of(&w, n1)->net.port = 1;
    item_of(&w, n2)->net.port = 0;
    struct rondo_topo *t = topo_of(&w);
    item_of(&w, n2)->net.gdr = -1;
    t->options.gdr_read = -1;
    rondo_topo_gdr_masks(t, 1, gdr);
    assert_memory_equal(gdr, second, sizeof gdr);
    rondo_topo_gdr_masks(t, 2, gdr);
    assert_memory_equal(gdr, none, sizeof gdr);
    t->options.gdr_read = 0;
    rondo_topo_gdr_masks(t, 0, gdr);
    assert_memory_equal(gdr, first, sizeof gdr);
    t->all_gpus = 0;
    rondo_topo_gdr_masks(t, 0, gdr);
    assert_memory_equal(gdr, none, sizeof gdr);
    world_end(&w, t);
}

static void flush_depends_on_sm_and_c2c(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = cpu(&w, RONDO_ARCH_ARM, RONDO_VENDOR_NVIDIA, 0), a = bridge(&w, c, GEN5);
    gpu(&w, c, 80, GEN4);
    gpu(&w, c, 90, GEN4);
    gpu(&w, c, 0, GEN4);
    host(&w, 0, 0);
    c2c(&w, gpu(&w, a, 100, GEN5), 44712, 5); /* data by PCI, flags by C2C */
    net(&w, a, GEN5, 400000);
    struct rondo_topo *t = topo_of(&w);
    static const int flush[] = { 1, 0, 1, 0, 1 };
    for (int d = 0; d < 5; d++) {
        assert_int_equal(rondo_topo_flush(t, d), flush[d]);
    }
    world_end(&w, t);
}

/* ---- PXN ---- */

/* Two sockets with a switch each; two GPUs and a NIC per switch; NVLinks between all pairs but the last. */
static void pxn_world(struct world *w, int nvlinked)
{
    int g[4];
    for (int s = 0; s < 2; s++) {
        int a = bridge(w, amd(w), GEN4);
        g[2 * s] = gpu(w, a, 80, GEN4);
        g[2 * s + 1] = gpu(w, a, 80, GEN4);
        net(w, a, GEN4, 200000);
    }
    for (int i = 0; i < 4 && nvlinked; i++) {
        for (int j = i + 1; j < 4; j++) {
            i == 2 ? (void)0 : nvlinks(w, g[i], g[j], 4);
        }
    }
}

static void pxn_avoids_the_cpu(void **state)
{
    (void)state;
    struct world w = WORLD;
    pxn_world(&w, 1);
    struct rondo_topo *t = topo_of(&w);
    direct_is(t, 0, net_at(t, 1), SYS, 16000);
    path_is(t, 0, net_at(t, 1), PXN, 24000);
    assert_int_equal(rondo_topo_path(t, 0, net_at(t, 1))->via, 2);
    assert_int_equal(rondo_topo_path(t, 0, net_at(t, 1))->nhops, 4);
    path_is(t, net_at(t, 1), 0, SYS, 16000); /* received directly */
    path_is(t, 0, net_at(t, 0), PIX, 24000);
    assert_int_equal(
        pxn(t, 0, 1, "GPU 2 is on NVLink and has path PIX to it at 24000 MB/s; its own path is SYS at 16000"),
        2);
    assert_int_equal(pxn(t, 0, 0, "own path is PIX"), -1);
    assert_int_equal(pxn(t, 3, 0, "GPU 0"), 0);
    world_end(&w, t);
}

static void pxn_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct world w = WORLD;
        pxn_world(&w, i != 1);
        w.options.pxn_disable = i == 0;
        w.options.p2p_disable = i == 2;
        for (int k = 0; k < w.machine.nitems; k++) {
            if (item_of(&w, k)->kind == RONDO_ITEM_GPU && i == 3) {
                item_of(&w, k)->gpu.gdr = 0;
            }
        }
        w.options.gdr_level = i == 4 ? RONDO_PATH_LOC : -1;
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(pxn(t, 0, 1, i == 0 ? "RONDO_PXN_DISABLE=1" : "no GPU next to the net"), -1);
        path_is(t, 0, net_at(t, 1), SYS, 16000);
        assert_int_equal(rondo_topo_path(t, 0, net_at(t, 1))->via, cpu_at(t, 0));
        world_end(&w, t);
    }
}

/* The nearer GPU itself sends through the wider one, so it relays for nobody. */
static void relays_that_are_relayed(void)
{
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4), b = bridge(&w, a, GEN4);
    int g[] = { gpu(&w, c, 90, GEN4), gpu(&w, b, 90, GEN4), gpu(&w, a, 90, GEN3) };
    net(&w, a, GEN4, 200000);
    for (int i = 0; i < 3; i++) {
        nvswitch(&w, g[i], 4);
    }
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(pxn(t, 2, 0, ""), 1);
    assert_int_equal(pxn(t, 0, 0, ""), 1);
    world_end(&w, t);
}

/* The relay is chosen by path type, then bandwidth, then whose own net it is. A wider path is reason enough.
 * Relays are on the same host. */
static void pxn_picks_its_relay(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4), b = bridge(&w, a, GEN4), g[5];
    g[0] = gpu(&w, c, 90, GEN4);
    g[1] = gpu(&w, b, 90, GEN4);
    g[2] = gpu(&w, a, 90, GEN3);
    g[3] = gpu(&w, a, 90, GEN4);
    g[4] = gpu(&w, a, 90, GEN4);
    net(&w, a, GEN4, 200000);
    net(&w, a, GEN4, 200000);
    for (int i = 0; i < 5; i++) {
        nvswitch(&w, g[i], 4);
    }
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(rondo_topo_net_for(t, 3, 0), 0);
    assert_int_equal(rondo_topo_net_for(t, 4, 0), 1);
    assert_int_equal(pxn(t, 0, 0, ""), 3);
    assert_int_equal(pxn(t, 0, 1, ""), 4);
    assert_int_equal(pxn(t, 2, 0, "own path is PIX at 12000"), 3);
    assert_int_equal(pxn(t, 1, 0, "own path is PXB"), -1);
    item_of(&w, c)->cpu.host_hash = 1;
    world_end(&w, t);
    relays_that_are_relayed();
    struct world v = WORLD;
    for (int h = 0; h < 2; h++) {
        int s = amd(&v), x = bridge(&v, s, GEN4);
        item_of(&v, s)->cpu.host_hash = (uint64_t)h + 1;
        nvswitch(&v, gpu(&v, x, 90, GEN4), 4);
        net(&v, x, GEN4, 200000);
    }
    t = topo_of(&v);
    assert_int_equal(pxn(t, 0, 1, "no GPU next to the net"), -1);
    path_is(t, 0, net_at(t, 1), DIS, 0);
    world_end(&v, t);
}

/* C2C hosts: the other CPU's NICs through its GPU. */
static void pxn_over_c2c(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct world w = WORLD;
        for (int s = 0; s < 2; s++) {
            int c = cpu(&w, RONDO_ARCH_ARM, RONDO_VENDOR_NVIDIA, 0), g = gpu(&w, c, 100, GEN5);
            c2c(&w, g, 44712, 5);
            nvswitch(&w, g, 18);
            net(&w, c, GEN5, 400000);
        }
        w.options.gdr_c2c = on;
        struct rondo_topo *t = topo_of(&w);
        assert_int_equal(pxn(t, 0, 1, ""), on ? 1 : -1);
        assert_int_equal(rondo_topo_path(t, 0, net_at(t, 1))->type, on ? RONDO_PATH_PXN : RONDO_PATH_SYS);
        world_end(&w, t);
    }
}

/* ---- nets and channels of a device ---- */

/* GPUs and nets on one switch: each device's net for channels 0 and up. */
static void nets_are(int gpus, int nets, const int8_t *expected, int channels)
{
    struct world w = WORLD;
    int a = bridge(&w, amd(&w), GEN4);
    for (int i = 0; i < gpus; i++) {
        gpu(&w, a, 80, GEN4);
    }
    for (int i = 0; i < nets; i++) {
        net(&w, a, GEN4, 100000);
    }
    struct rondo_topo *t = topo_of(&w);
    for (int d = 0; d < gpus; d++) {
        for (int c = 0; c < channels; c++) {
            assert_int_equal(rondo_topo_net_for(t, d, c), expected[d * channels + c]);
        }
        assert_int_equal(rondo_topo_net_for(t, d, 96), rondo_topo_net_for(t, d, 0));
        assert_int_equal(rondo_topo_net_for(t, d, -1), -1);
    }
    world_end(&w, t);
}

static void net_for_alternates_over_the_best_nets(void **state)
{
    (void)state;
    nets_are(4, 4, (int8_t[]){ 0, 0, 2, 2, 1, 1, 3, 3 }, 2);
    nets_are(2, 4, (int8_t[]){ 0, 1, 0, 2, 3, 2 }, 3);
    nets_are(4, 2, (int8_t[]){ 0, 0, 1, 1, 0, 0, 1, 1 }, 2);
    nets_are(2, 6, (int8_t[]){ 0, 1, 2, 0, 3, 4, 5, 3 }, 4);
    nets_are(3, 2, (int8_t[]){ 0, 1, 0 }, 1);
    nets_are(1, 3, (int8_t[]){ 0, 1, 2, 0 }, 4);
    nets_are(2, 0, (int8_t[]){ -1, -1 }, 1);
}

/* A wide port farther away beats a narrow one next to the GPU; of equally wide ones, the nearer wins. */
static void only_the_widest_nets_are_used(void **state)
{
    (void)state;
    struct world w = WORLD;
    int c = amd(&w), a = bridge(&w, c, GEN4);
    gpu(&w, a, 80, GEN4);
    gpu(&w, c, 80, GEN4);
    net(&w, a, GEN4, 10000);
    net(&w, c, GEN4, 200000);
    net(&w, a, GEN4, 200000);
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(rondo_topo_net_for(t, 0, 0), 2);
    assert_int_equal(rondo_topo_net_for(t, 0, 1), 2);
    assert_int_equal(rondo_topo_net_for(t, 1, 0) >= 1, 1);
    world_end(&w, t);
}

static void p2p_channels_follow_the_bandwidth(void **state)
{
    (void)state;
    struct world w = WORLD;
    int a = bridge(&w, amd(&w), GEN5), g[4];
    for (int i = 0; i < 4; i++) {
        g[i] = gpu(&w, a, 90, GEN5);
    }
    nvlinks(&w, g[0], g[1], 1);
    nvlinks(&w, g[0], g[2], 6);
    nvlinks(&w, g[1], g[3], 40);
    for (int i = 0; i < 4; i++) {
        net(&w, a, GEN5, 400000);
    }
    struct rondo_topo *t = topo_of(&w);
    assert_int_equal(rondo_topo_p2p_channels(t, 0, 0), 1);
    assert_int_equal(rondo_topo_p2p_channels(t, 0, 1), 2);
    assert_int_equal(rondo_topo_p2p_channels(t, 0, 2), 16);
    assert_int_equal(rondo_topo_p2p_channels(t, 1, 3), 64); /* no more than exist */
    assert_int_equal(rondo_topo_p2p_channels(t, 1, 2), 2);
    assert_int_equal(rondo_topo_p2p_channels(t, 0, -1), 4); /* 48000 / 14000 */
    world_end(&w, t);
    struct world v = WORLD;
    int c = amd(&v);
    gpu(&v, c, 80, GEN4);
    host(&v, 0, 0);
    t = topo_of(&v);
    assert_int_equal(rondo_topo_p2p_channels(t, 0, -1), 2);
    assert_int_equal(rondo_topo_p2p_channels(t, 0, 1), 2);
    world_end(&v, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p2p_by_level),
        cmocka_unit_test(p2p_through_sockets_on_small_amd_hosts),
        cmocka_unit_test(p2p_can_be_disabled),
        cmocka_unit_test(without_p2p_and_without_shared_memory),
        cmocka_unit_test(fast_nic_does_not_split_a_node),
        cmocka_unit_test(gdr_by_level),
        cmocka_unit_test(gdr_capabilities),
        cmocka_unit_test(gdr_over_c2c),
        cmocka_unit_test(gdr_masks_match_the_verdicts),
        cmocka_unit_test(nics_do_not_read_old_gpus),
        cmocka_unit_test(flush_depends_on_sm_and_c2c),
        cmocka_unit_test(pxn_avoids_the_cpu),
        cmocka_unit_test(pxn_refused),
        cmocka_unit_test(pxn_picks_its_relay),
        cmocka_unit_test(pxn_over_c2c),
        cmocka_unit_test(net_for_alternates_over_the_best_nets),
        cmocka_unit_test(only_the_widest_nets_are_used),
        cmocka_unit_test(p2p_channels_follow_the_bandwidth),
    };
    return cmocka_run_group_tests_name("topo_policy", tests, NULL, NULL);
}
