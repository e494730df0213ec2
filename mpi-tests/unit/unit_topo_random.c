/*
 * 2,000 random machines: NUMA nodes, bridges, GPUs of many kinds, NVLinks between some pairs, NICs with and
 * without known speed. The invariants of paths, bounds and channels hold on all of them, and the same machine
 * gives the same result twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/search_step.h"

/* Single-threaded: ThreadSanitizer finds nothing here and takes thirty times as long. */
#ifdef __SANITIZE_THREAD__
enum { MACHINES = 50 };
#else
enum { MACHINES = 2000 };
#endif
enum { MAX_GPUS = 10 };

static uint64_t random_state;

static unsigned pick(unsigned n) /* 0 .. n - 1 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 11) % n);
}

static struct rondo_item *add(struct rondo_machine *m, enum rondo_item_kind kind, int parent, int32_t *at)
{
    assert_int_equal(rondo_machine_add(m, kind, parent, at), RONDO_SUCCESS);
    return &m->item[*at];
}

static void random_link(struct rondo_item *pci)
{
    static const int speeds[] = { 0, 25, 50, 80, 160, 320, 640 }, widths[] = { 0, 1, 4, 8, 16 };
    pci->pci.speed = speeds[pick(7)];
    pci->pci.width = widths[pick(5)];
}

static int64_t bus;

static int32_t add_pci(struct rondo_machine *m, int parent, uint32_t class_code)
{
    int32_t at;
    struct rondo_item *pci = add(m, RONDO_ITEM_PCI, parent, &at);
    pci->pci.busid = (bus += 1 << 12);
    pci->pci.class_code = class_code;
    random_link(pci);
    return at;
}

static void add_nic(struct rondo_machine *m, int parent, int dev)
{
    static const int mbps[] = { 0, -1, 1000, 10000, 100000, 200000, 400000 };
    int32_t nic, net;
    int pci = add_pci(m, parent, 0x020000);
    add(m, RONDO_ITEM_NIC, pci, &nic);
    for (unsigned ports = 1 + pick(2); ports > 0; ports--) {
        struct rondo_item *item = add(m, RONDO_ITEM_NET, nic, &net);
        snprintf(item->net.name, sizeof(item->net.name), "net%d_%u", dev, ports);
        item->net.dev = 2 * dev + (int)ports - 1;
        item->net.mbps = mbps[pick(7)];
        item->net.port = (int)ports;
        item->net.guid = (uint64_t)dev + 1;
        item->net.gdr = (int)pick(3) - 1;
        item->net.rail = pick(4) == 0 ? dev % 2 : -1;
    }
}

static void add_nvlinks(struct rondo_machine *m, const int *pci, const int *gpu, int n)
{
    int hidden = pick(3) == 0;
    for (int a = 0; a < n; a++) {
        int32_t at;
        for (int b = 0; b < n && !hidden; b++) {
            if (a != b && pick(3) == 0) {
                struct rondo_item *link = add(m, RONDO_ITEM_NVLINK, gpu[a], &at);
                link->nvlink.target = m->item[pci[b]].pci.busid;
                link->nvlink.count = 1 + (int)pick(4);
                link->nvlink.tclass = 0x030200;
            }
        }
        if (hidden && pick(8) != 0) {
            struct rondo_item *link = add(m, RONDO_ITEM_NVLINK, gpu[a], &at);
            link->nvlink.target = rondo_busid_parse("fffffff:ffff:ff.0");
            link->nvlink.count = 6 + (int)pick(12);
        }
    }
}

static void random_machine(struct rondo_machine *m)
{
    static const int sms[] = { 0, 60, 70, 75, 80, 86, 89, 90, 100, 120 };
    int cpus[4], place[12], pci[MAX_GPUS], gpu[MAX_GPUS], ncpus = 1 + (int)pick(4), nplaces = 0,
                                                          ngpus = 1 + (int)pick(MAX_GPUS);
    int arch = (int)pick(RONDO_NUM_ARCHS + 1) - 1, vendor = (int)pick(RONDO_NUM_VENDORS + 1) - 1,
        model = (int)pick(230), sm = sms[pick(10)];
    memset(m, 0, sizeof(*m));
    bus = 1 << 12;
    for (int i = 0; i < ncpus; i++) {
        struct rondo_item *cpu = add(m, RONDO_ITEM_CPU, -1, &cpus[i]);
        cpu->cpu.numa = i;
        cpu->cpu.arch = arch;
        cpu->cpu.vendor = vendor;
        cpu->cpu.family = 6;
        cpu->cpu.model = model;
        place[nplaces++] = cpus[i];
    }
    for (unsigned i = pick(8); i > 0; i--) {
        place[nplaces] = add_pci(m, place[pick((unsigned)nplaces)], 0x060400);
        nplaces++;
    }
    for (int i = 0; i < ngpus; i++) {
        struct rondo_item *item;
        pci[i] = add_pci(m, place[pick((unsigned)nplaces)], 0x030200);
        item = add(m, RONDO_ITEM_GPU, pci[i], &gpu[i]);
        item->gpu.dev = i;
        item->gpu.sm = pick(10) == 0 ? sms[pick(10)] : sm;
        item->gpu.gdr = (int)pick(3) - 1;
        item->gpu.no_p2p = pick(20) == 0 ? 1u << pick(MAX_GPUS) : 0;
    }
    for (int i = (int)pick(6); i > 0; i--) {
        add_nic(m, place[pick((unsigned)nplaces)], i);
    }
    if (pick(2) == 0) {
        add_nvlinks(m, pci, gpu, ngpus);
    }
    for (int i = 0; pick(6) == 0 && i < ngpus; i++) {
        int32_t at;
        struct rondo_item *c2c = add(m, RONDO_ITEM_C2C, gpu[i], &at);
        c2c->c2c.mbs = 10000 + (int)pick(50000);
        c2c->c2c.count = 1 + (int)pick(10);
    }
}

/* Hops lead from one end to the other, the bandwidth is that of the narrowest link, and types are symmetric
 * like the wires. */
static void check_direct(const struct rondo_topo *t, int a, int b)
{
    const struct rondo_topo_path *p = rondo_topo_wired(t, a, b), *q = rondo_topo_wired(t, b, a);
    int node = t->point[a];
    assert_int_equal(p->mbs > 0, q->mbs > 0);
    assert_int_equal(p->type, q->type);
    for (int i = 0; i < p->nhops; i++) {
        const struct rondo_topo_link *l = &t->link[t->hop[p->first + i]];
        assert_int_equal(l->from, node);
        assert_true((int64_t)p->mbs * t->cost[p->first + i] <= (int64_t)l->mbs * 60);
        assert_int_equal(t->link[l->reverse].to, l->from);
        node = l->to;
    }
    if (p->mbs > 0) {
        assert_int_equal(node, t->point[b]);
    } else {
        assert_int_equal(p->type, RONDO_PATH_DIS);
    }
}

/* A detour over a CPU is never better: a path is at most as bad as its two halves (a CPU adds PHB). */
static void check_triangle(const struct rondo_topo *t, int a, int b)
{
    const struct rondo_topo_path *p = rondo_topo_wired(t, a, b);
    for (int c = 0; c < t->ncpus; c++) {
        int cpu = rondo_topo_cpu_point(t, c);
        const struct rondo_topo_path *x = rondo_topo_wired(t, a, cpu), *y = rondo_topo_wired(t, cpu, b);
        int worst = x->type > y->type ? x->type : y->type;
        if (x->mbs > 0 && y->mbs > 0) {
            worst = worst < RONDO_PATH_PHB ? RONDO_PATH_PHB : worst;
            assert_true(p->type <= worst);
        }
    }
}

static void check_paths(const struct rondo_topo *t)
{
    for (int a = 0; a < t->npoints; a++) {
        for (int b = 0; b < t->npoints; b++) {
            check_direct(t, a, b);
            if (a < t->ndevs && b < t->ndevs + t->nnets && a != b) {
                check_triangle(t, a, b);
                assert_true(rondo_topo_path(t, a, b)->type >= 0 &&
                            rondo_topo_path(t, a, b)->type < RONDO_NUM_PATH_TYPES);
            }
        }
    }
}

static void check_graphs(const struct rondo_topo *t, unsigned seed)
{
    struct rondo_graph first[RONDO_NUM_GRAPHS], again[RONDO_NUM_GRAPHS];
    memset(first, 0, sizeof(first));
    memset(again, 0, sizeof(again));
    assert_int_equal(rondo_topo_search(t, first), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_search(t, again), RONDO_SUCCESS);
    assert_int_equal(first[RONDO_GRAPH_RING].nchannels, first[RONDO_GRAPH_TREE].nchannels);
    for (int g = 0; g < RONDO_NUM_GRAPHS; g++) {
        size_t cells = (size_t)first[g].nchannels * (size_t)first[g].ndevs;
        if (rondo_graph_check(t, &first[g]) != RONDO_SUCCESS) {
            fail_msg("machine %u: %s", seed, rondo_error_text());
        }
        if (t->ndevs > 1 && first[g].bound > 0 && !first[g].fallback && first[g].found > first[g].bound) {
            fail_msg("machine %u, %s: found %d above the bound %d", seed, rondo_graph_name(g), first[g].found,
                     first[g].bound);
        }
        assert_int_equal(first[g].nchannels, again[g].nchannels);
        assert_int_equal(first[g].bw_intra, again[g].bw_intra);
        assert_int_equal(first[g].bw_inter, again[g].bw_inter);
        assert_int_equal(first[g].steps, again[g].steps);
        assert_memory_equal(first[g].order, again[g].order, cells * sizeof(*first[g].order));
        assert_memory_equal(first[g].net, again[g].net,
                            2 * (size_t)first[g].nchannels * sizeof(*first[g].net));
        rondo_graph_release(&first[g]);
        rondo_graph_release(&again[g]);
    }
}

static void random_machines_keep_all_invariants(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= MACHINES; seed++) {
        struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
        struct rondo_machine machine;
        struct rondo_topo_rank *ranks;
        struct rondo_topo *topo;
        int n;
        random_state = seed * 0x9e3779b97f4a7c15ull;
        random_machine(&machine);
        if (rondo_machine_check(&machine) != RONDO_SUCCESS) {
            fail_msg("machine %u: %s", seed, rondo_error_text());
        }
        options.nnodes = 1 + (int)pick(2);
        options.cross_nic = (int)pick(3);
        options.p2p_disable = pick(20) == 0;
        options.pxn_disable = pick(10) == 0;
        assert_int_equal(rondo_topo_ranks(&machine, NULL, &ranks, &n), RONDO_SUCCESS);
        assert_int_equal(rondo_topo_create(&topo, &machine, ranks, n, &options), RONDO_SUCCESS);
        check_paths(topo);
        check_graphs(topo, seed);
        rondo_topo_destroy(topo);
        rondo_free(ranks);
        rondo_machine_release(&machine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_machines_keep_all_invariants) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
