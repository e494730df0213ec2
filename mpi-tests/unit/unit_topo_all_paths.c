/* Compare paths with all simple paths of small random machines, and with known facts about machines/. */
#include "topo_machine.h"

#include <stdio.h>
#include "topo/xml/xml.h"

static uint64_t seed;

static int draw(int n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (int)((seed >> 11) % (uint64_t)n);
}

/* ---- all simple paths ---- */

enum { MAX_HOPS = 40 };

struct simple_path {
    const struct rondo_topo *topo;
    int from, to;
    int link[MAX_HOPS], n;
    int type, mbs, hops, tried; /* best so far */
};

static int type_at(const struct simple_path *w, int node) { return w->topo->node[node].type; }
static int device_like(int type) { return type == RONDO_NODE_GPU || type == RONDO_NODE_DEV; }

/* The type of a whole path: what its worst link connects; DIS: not allowed. Follows the definition of the
 * types, not the implementation. */
static int path_type(const struct simple_path *w)
{
    const struct rondo_topo_link *link = w->topo->link;
    int worst = RONDO_PATH_LOC, first = 0, last = w->n - 1, bridges = 0;
    while (first <= last &&
           (link[w->link[first]].type == RONDO_LINK_LOC || link[w->link[first]].type == RONDO_LINK_NET)) {
        first++;
    }
    while (last >= first &&
           (link[w->link[last]].type == RONDO_LINK_LOC || link[w->link[last]].type == RONDO_LINK_NET)) {
        last--;
    }
    for (int i = first; i <= last; i++) {
        const struct rondo_topo_link *l = &link[w->link[i]];
        int a = type_at(w, l->from), b = type_at(w, l->to), type = RONDO_PATH_DIS;
        int relayed = i > first && device_like(a);
        if (relayed &&
            !(last == first + 1 && l->type == RONDO_LINK_NVL && link[w->link[first]].type == RONDO_LINK_NVL &&
              device_like(type_at(w, link[w->link[first]].from)) && device_like(b))) {
            return RONDO_PATH_DIS;
        }
        switch (l->type) {
        case RONDO_LINK_NVL: type = relayed ? RONDO_PATH_NVB : RONDO_PATH_NVL; break;
        case RONDO_LINK_C2C: type = RONDO_PATH_C2C; break;
        case RONDO_LINK_SYS: type = RONDO_PATH_SYS; break;
        case RONDO_LINK_PCI:
            type = a == RONDO_NODE_PCI && b == RONDO_NODE_PCI ? RONDO_PATH_PXB : RONDO_PATH_PIX;
            type = a == RONDO_NODE_CPU || b == RONDO_NODE_CPU ? RONDO_PATH_PHB : type;
            break;
        default: return RONDO_PATH_DIS;
        }
        worst = type > worst ? type : worst;
        bridges += i < last && b == RONDO_NODE_CPU;
    }
    int a = type_at(w, w->topo->point[w->from]), b = type_at(w, w->topo->point[w->to]);
    int c2c_out = first < last && a == RONDO_NODE_GPU && b == RONDO_NODE_NET &&
                  link[w->link[first]].type == RONDO_LINK_C2C;
    int c2c_in = first < last && b == RONDO_NODE_GPU && a == RONDO_NODE_NET &&
                 link[w->link[last]].type == RONDO_LINK_C2C;
    if (worst == RONDO_PATH_PHB && bridges == 1 && (c2c_out || c2c_in)) {
        worst = RONDO_PATH_P2C;
    }
    int host = a == RONDO_NODE_HOST || b == RONDO_NODE_HOST, cpu = a == RONDO_NODE_CPU || b == RONDO_NODE_CPU;
    return host && !cpu && worst < RONDO_PATH_PHB ? RONDO_PATH_PHB : worst;
}

static void path_judge(struct simple_path *w)
{
    int type = path_type(w), mbs = RONDO_LOC_MBS;
    for (int i = 0; i < w->n; i++) {
        mbs = w->topo->link[w->link[i]].mbs < mbs ? w->topo->link[w->link[i]].mbs : mbs;
    }
    w->tried++;
    if (type == RONDO_PATH_DIS) {
        return;
    }
    if (type < w->type || (type == w->type && (mbs > w->mbs || (mbs == w->mbs && w->n < w->hops)))) {
        w->type = type;
        w->mbs = mbs;
        w->hops = w->n;
    }
}

static void simple_paths_walk(struct simple_path *w, int node, uint8_t *seen)
{
    const struct rondo_topo_node *at = &w->topo->node[node];
    if (node == w->topo->point[w->to]) {
        path_judge(w);
        return;
    }
    seen[node] = 1;
    for (int l = at->first; l < at->first + at->nlinks && w->n < MAX_HOPS; l++) {
        int to = w->topo->link[l].to, type = type_at(w, to);
        if (!seen[to] &&
            (to == w->topo->point[w->to] || (type != RONDO_NODE_NET && type != RONDO_NODE_HOST))) {
            w->link[w->n++] = l;
            simple_paths_walk(w, to, seen);
            w->n--;
        }
    }
    seen[node] = 0;
}

/* Before costs, as the walk compares them. */
static int raw_mbs(const struct rondo_topo *topo, const struct rondo_topo_path *path)
{
    int mbs = path->mbs == 0 ? 0 : RONDO_LOC_MBS;
    for (int i = 0; i < path->nhops; i++) {
        int of = topo->link[topo->hop[path->first + i]].mbs;
        mbs = of < mbs ? of : mbs;
    }
    return mbs;
}

static int compare_all(const struct rondo_topo *topo, uint64_t from_seed)
{
    int tried = 0;
    for (int a = 0; a < topo->npoints; a++) {
        for (int b = 0; b < topo->npoints; b++) {
            uint8_t seen[128] = { 0 };
            struct simple_path w = { .topo = topo, .from = a, .to = b, .type = RONDO_PATH_DIS };
            const struct rondo_topo_path *path = rondo_topo_wired(topo, a, b);
            if (a == b) {
                continue;
            }
            simple_paths_walk(&w, topo->point[a], seen);
            tried += w.tried;
            if (path->type != w.type || raw_mbs(topo, path) != w.mbs || path->nhops != w.hops) {
                fail_msg("seed %llu, point %d to %d: %s at %d MB/s with %d hops, the best of %d ways is %s "
                         "at %d with %d",
                         (unsigned long long)from_seed, a, b, rondo_path_type_name(path->type),
                         raw_mbs(topo, path), (int)path->nhops, w.tried, rondo_path_type_name(w.type), w.mbs,
                         w.hops);
            }
        }
    }
    return tried;
}

/* A machine of sockets, bridges at any depth, GPUs with NVLinks, switches and C2C, NICs, ranks on host memory
 * and links between bridges. */
static void random_machine(struct world *w)
{
    static const int speed[] = { 25, 80, 160, 320 };
    int cpus = 1 + draw(3), place[12], n = 0, g[6], gpus = 1 + draw(5), vendor = draw(3);
    for (int i = 0; i < cpus; i++) {
        place[n++] = vendor == 0 ? amd(w) : vendor == 1 ? intel(w) : cpu(w, RONDO_ARCH_ARM, -1, 0);
    }
    for (int i = draw(4); i > 0; i--) {
        int up = place[draw(n)];
        place[n++] = bridge(w, up, speed[draw(4)]);
    }
    for (int i = 0; i < gpus; i++) {
        g[i] = gpu(w, place[draw(n)], draw(2) ? 70 : 90, speed[draw(4)]);
    }
    for (int i = draw(3); i > 0; i--) {
        net(w, place[draw(n)], speed[draw(4)], 25000 << draw(5));
    }
    for (int i = draw(8); i > 0 && gpus > 1; i--) {
        int a = draw(gpus), b = draw(gpus);
        if (a != b) {
            nvlink(w, g[a], busid_of(w, g[b]), 1 + draw(3), 0x030200);
        }
    }
    for (int i = 0; i < gpus; i++) {
        draw(5) == 0 ? nvswitch(w, g[i], 1 + draw(6)) : (void)0;
        draw(4) == 0 ? c2c(w, g[i], 1000 << draw(8), 1) : (void)0;
        draw(8) == 0 ? owned(w, g[i]) : (void)0;
    }
    for (int i = draw(3); i > 0 && n > cpus + 1; i--) {
        int link = add(w, RONDO_ITEM_PCILINK, place[cpus + draw(n - cpus)]);
        item_of(w, link)->pcilink.target = item_of(w, place[cpus + draw(n - cpus)])->pci.busid;
    }
    if (draw(4) == 0) {
        host(w, 0, 0);
        host(w, 0, 0);
    }
}

static void paths_are_the_best_of_all(void **state)
{
    (void)state;
    int tried = 0;
    for (uint64_t s = 1; s <= 400; s++) {
        struct world w = WORLD;
        seed = s * UINT64_C(0x9e3779b97f4a7c15);
        random_machine(&w);
        struct rondo_topo *t = topo_of(&w);
        tried += compare_all(t, s);
        world_end(&w, t);
    }
    assert_true(tried > 20000);
}

/* The same input gives the same graph, to the byte. */
static void equal_input_gives_equal_graphs(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 20; s++) {
        struct world w = WORLD;
        seed = s * UINT64_C(0x9e3779b97f4a7c15);
        random_machine(&w);
        struct rondo_topo *a = topo_of(&w), *b = topo_of(&w);
        assert_int_equal(a->nhops, b->nhops);
        assert_memory_equal(a->hop, b->hop, (size_t)a->nhops * sizeof *a->hop);
        assert_memory_equal(a->link, b->link, (size_t)a->nlinks * sizeof *a->link);
        assert_memory_equal(a->path, b->path, (size_t)a->npoints * (size_t)a->npoints * sizeof *a->path);
        rondo_topo_destroy(b);
        world_end(&w, a);
    }
}

/* ---- machine files ---- */

/* Best and worst type over all pairs of devices, and from devices to nets. */
struct known {
    const char *name;
    int gpus, nets, best_dev, worst_dev, net, net_mbs;
};

#define KNOWN(name, gpus, nets, best, worst, net, mbs)                                  \
    {                                                                                   \
#name, gpus, nets, RONDO_PATH_##best, RONDO_PATH_##worst, RONDO_PATH_##net, mbs \
    }
static const struct known known[] = {
    KNOWN(a10x4_vm, 4, 1, PHB, PHB, PHB, 1250),
    KNOWN(amd_nps4_4gpu, 4, 1, SYS, SYS, PHB, 12500),
    KNOWN(asym_3p1, 4, 1, PIX, SYS, PHB, 12500),
    KNOWN(aws_p4d, 8, 4, NVL, NVL, PIX, 12000),
    KNOWN(aws_p5, 8, 8, NVL, NVL, PIX, 48000),
    KNOWN(azure_ndv4, 8, 8, NVL, NVL, PIX, 24000),
    KNOWN(azure_ndv5, 8, 8, NVL, NVL, PIX, 48000),
    KNOWN(dgx1v, 8, 4, NVL, NVB, PIX, 12000),
    KNOWN(dgx2, 16, 8, NVL, NVL, PIX, 12000),
    KNOWN(dgx_a100, 8, 8, NVL, NVL, PXB, 24000),
    KNOWN(dgx_b200, 8, 8, NVL, NVL, PIX, 48000),
    KNOWN(dgx_h100, 8, 8, NVL, NVL, PIX, 48000),
    KNOWN(gb200_node, 4, 4, NVL, NVL, P2C, 48000),
    KNOWN(hgx_h200, 8, 8, NVL, NVL, PIX, 48000),
    KNOWN(l40s_8, 8, 2, PIX, SYS, PIX, 24000),
    KNOWN(l40s_8_nonet, 8, 0, PIX, SYS, DIS, 0),
    KNOWN(perlmutter_a100x4, 4, 4, NVL, NVL, PHB, 24000),
    KNOWN(ws2, 2, 0, PHB, PHB, DIS, 0),
    KNOWN(gb200_nvl72, 72, 72, NVL, NVL, P2C, 48000),
};

static struct rondo_topo *file_topo(struct rondo_machine *machine, const char *name, int *n)
{
    char file[4096];
    const char *dir = getenv("srcdir");
    struct rondo_topo_rank *ranks;
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct rondo_topo *topo;
    memset(machine, 0, sizeof *machine);
    snprintf(file, sizeof file, "%s/mpi-tests/unit/machines/%s.xml", dir ? dir : ".", name);
    assert_int_equal(rondo_machine_read(machine, file), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_ranks(machine, NULL, &ranks, n), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_create(&topo, machine, ranks, *n, &options), RONDO_SUCCESS);
    topo_valid(topo);
    rondo_free(ranks);
    return topo;
}

static void file_check(const struct known *k)
{
    struct rondo_machine machine;
    int n, best = RONDO_PATH_DIS, worst = RONDO_PATH_LOC, net = RONDO_PATH_DIS, mbs = 0;
    struct rondo_topo *t = file_topo(&machine, k->name, &n);
    assert_int_equal(n, k->gpus);
    assert_int_equal(t->nnets, k->nets);
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            int type = rondo_topo_path(t, a, b)->type;
            best = a != b && type < best ? type : best;
            worst = a != b && type > worst ? type : worst;
        }
        for (int i = 0; i < t->nnets; i++) {
            const struct rondo_topo_path *path = rondo_topo_path(t, a, rondo_topo_net_point(t, i));
            if (path->type < net || (path->type == net && path->mbs > mbs)) {
                net = path->type;
                mbs = path->mbs;
            }
        }
    }
    if (best != k->best_dev || worst != k->worst_dev || net != k->net || mbs != k->net_mbs) {
        fail_msg("%s: devices %s to %s, nets %s at %d MB/s", k->name, rondo_path_type_name(best),
                 rondo_path_type_name(worst), rondo_path_type_name(net), mbs);
    }
    rondo_topo_destroy(t);
    rondo_machine_release(&machine);
}

static void path_types_of_known_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(known); i++) {
        file_check(&known[i]);
    }
}

/* In an NVLink domain of trays, devices reach their own tray's NICs and no other. */
static void nics_stay_in_their_tray(void **state)
{
    (void)state;
    struct rondo_machine machine;
    int n;
    struct rondo_topo *t = file_topo(&machine, "gb200_nvl72", &n);
    for (int d = 0; d < n; d++) {
        int reached = 0;
        for (int i = 0; i < t->nnets; i++) {
            reached += rondo_topo_path(t, d, rondo_topo_net_point(t, i))->mbs > 0;
        }
        assert_int_equal(reached, 4);
        assert_int_equal(rondo_topo_net_for(t, d, 0) / 4, d / 4);
        assert_int_equal(rondo_topo_path(t, d, (d + 4) % n)->type, RONDO_PATH_NVL);
    }
    rondo_topo_destroy(t);
    rondo_machine_release(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_the_best_of_all),
        cmocka_unit_test(equal_input_gives_equal_graphs),
        cmocka_unit_test(path_types_of_known_machines),
        cmocka_unit_test(nics_stay_in_their_tray),
    };
    return cmocka_run_group_tests_name("topo_ways", tests, NULL, NULL);
}
