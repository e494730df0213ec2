/* Machines built in code, one line per item, and invariants of all graphs built from them. */
#ifndef RONDO_TESTS_TOPO_MACHINE_H
#define RONDO_TESTS_TOPO_MACHINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/topo.h"
#include "says.h"

enum { GEN3 = 80, GEN4 = 160, GEN5 = 320 };

struct world {
    struct rondo_machine machine;
    struct rondo_topo_options options;
    struct rondo_topo_rank rank[32];
    int nranks, gpus, nets, slot;
};
#define WORLD                                 \
    {                                         \
        .options = RONDO_TOPO_OPTIONS_DEFAULT \
    }

static inline struct rondo_item *item_of(struct world *w, int i) { return &w->machine.item[i]; }

static inline int add(struct world *w, enum rondo_item_kind kind, int parent)
{
    int32_t index;
    assert_int_equal(rondo_machine_add(&w->machine, kind, parent, &index), RONDO_SUCCESS);
    return index;
}

static inline int cpu(struct world *w, int arch, int vendor, int model)
{
    int i = add(w, RONDO_ITEM_CPU, -1);
    item_of(w, i)->cpu.numa = i;
    item_of(w, i)->cpu.arch = arch;
    item_of(w, i)->cpu.vendor = vendor;
    item_of(w, i)->cpu.model = model;
    return i;
}

static inline int amd(struct world *w) { return cpu(w, RONDO_ARCH_X86, RONDO_VENDOR_AMD, 49); }
static inline int intel(struct world *w) { return cpu(w, RONDO_ARCH_X86, RONDO_VENDOR_INTEL, 143); }

static inline int pci(struct world *w, int parent, uint32_t class_code, int speed, int width)
{
    int i = add(w, RONDO_ITEM_PCI, parent);
    item_of(w, i)->pci.busid = (int64_t)++w->slot << 12;
    item_of(w, i)->pci.class_code = class_code;
    item_of(w, i)->pci.speed = speed;
    item_of(w, i)->pci.width = width;
    return i;
}

static inline int bridge(struct world *w, int parent, int speed)
{
    return pci(w, parent, 0x060400, speed, 16);
}
static inline int64_t busid_of(struct world *w, int gpu)
{
    return item_of(w, item_of(w, gpu)->parent)->pci.busid;
}

static inline void host(struct world *w, int first_core, int ncores)
{
    struct rondo_topo_rank *rank = &w->rank[w->nranks];
    *rank = (struct rondo_topo_rank){ .rank = w->nranks++, .busid = -1 };
    for (int core = first_core; core < first_core + ncores; core++) {
        rank->cores.bits[core / 64] |= UINT64_C(1) << (core % 64);
    }
}

static inline void owned(struct world *w, int gpu)
{
    w->rank[w->nranks] = (struct rondo_topo_rank){ .rank = w->nranks, .busid = busid_of(w, gpu) };
    w->nranks++;
}

static inline int gpu_alone(struct world *w, int parent, int sm, int speed)
{
    int i = add(w, RONDO_ITEM_GPU, pci(w, parent, 0x030200, speed, 16));
    item_of(w, i)->gpu.dev = w->gpus++;
    item_of(w, i)->gpu.sm = sm;
    return i;
}

/* Add a GPU with a rank. */
static inline int gpu(struct world *w, int parent, int sm, int speed)
{
    int i = gpu_alone(w, parent, sm, speed);
    owned(w, i);
    return i;
}

static inline int net_of(struct world *w, int nic, int mbps)
{
    int i = add(w, RONDO_ITEM_NET, nic);
    item_of(w, i)->net.dev = w->nets++;
    item_of(w, i)->net.mbps = mbps;
    return i;
}

static inline int net(struct world *w, int parent, int speed, int mbps)
{
    return net_of(w, add(w, RONDO_ITEM_NIC, pci(w, parent, 0x020700, speed, 16)), mbps);
}

static inline void nvlink(struct world *w, int gpu, int64_t target, int count, uint32_t tclass)
{
    int i = add(w, RONDO_ITEM_NVLINK, gpu);
    item_of(w, i)->nvlink.target = target;
    item_of(w, i)->nvlink.count = count;
    item_of(w, i)->nvlink.tclass = tclass;
}

static inline void nvlinks(struct world *w, int a, int b, int count)
{
    nvlink(w, a, busid_of(w, b), count, 0x030200);
    nvlink(w, b, busid_of(w, a), count, 0x030200);
}

static inline void nvswitch(struct world *w, int gpu, int count)
{
    nvlink(w, gpu, INT64_C(0xfffffffffff), count, 0);
}

static inline void c2c(struct world *w, int gpu, int mbs, int count)
{
    int i = add(w, RONDO_ITEM_C2C, gpu);
    item_of(w, i)->c2c.mbs = mbs;
    item_of(w, i)->c2c.count = count;
}

/* ---- invariants ---- */

static inline void path_valid(const struct rondo_topo *topo, int from, int to,
                              const struct rondo_topo_path *path)
{
    int at = topo->point[from], mbs = RONDO_LOC_MBS;
    assert_in_range(path->type, 0, RONDO_PATH_DIS);
    if (path->mbs == 0) {
        assert_int_equal(path->type, RONDO_PATH_DIS);
        assert_int_equal(path->nhops, 0);
        return;
    }
    assert_in_range(path->first + path->nhops, 0, topo->nhops);
    for (int i = 0; i < path->nhops; i++) {
        const struct rondo_topo_link *link = &topo->link[topo->hop[path->first + i]];
        int cost = topo->cost[path->first + i];
        if (path->type != RONDO_PATH_NET ||
            topo->node[link->from].type != RONDO_NODE_NET) { /* the network connects two ports */
            assert_int_equal(link->from, at);
        }
        assert_true(cost == 60 || (cost == 72 && link->type == RONDO_LINK_PCI));
        mbs = link->mbs * 60LL / cost < mbs ? (int)(link->mbs * 60LL / cost) : mbs;
        at = link->to;
    }
    assert_int_equal(at, topo->point[to]);
    assert_int_equal(path->mbs, mbs);
    assert_in_range(path->via + 1, 0, topo->npoints);
    assert_true(path->latency_ns >= 0);
}

static inline void links_valid(const struct rondo_topo *topo)
{
    static const int kind[RONDO_NUM_LINK_TYPES] = {
        [RONDO_LINK_NVL] = 1, [RONDO_LINK_PCI] = 3, [RONDO_LINK_SYS] = 4
    };
    int n = 0;
    for (int i = 0; i < topo->nnodes; i++) {
        const struct rondo_topo_node *node = &topo->node[i];
        n += node->nlinks;
        for (int l = node->first; l < node->first + node->nlinks; l++) {
            const struct rondo_topo_link *link = &topo->link[l], *back = &topo->link[link->reverse];
            assert_int_equal(link->from, i);
            assert_in_range(link->to, 0, topo->nnodes - 1);
            assert_true(link->mbs > 0);
            assert_int_equal(back->reverse, l);
            assert_int_equal(back->from, link->to);
            assert_int_equal(back->to, i);
            assert_int_equal(back->type, link->type);
            assert_int_equal(back->mbs, link->mbs);
            if (l > node->first) {
                const struct rondo_topo_link *before = &topo->link[l - 1];
                assert_true(before->mbs >= link->mbs);
                if (before->mbs == link->mbs && kind[before->type] && kind[link->type]) {
                    assert_true(kind[before->type] <= kind[link->type]);
                }
            }
        }
    }
    assert_int_equal(n, topo->nlinks);
}

static inline void topo_valid(const struct rondo_topo *topo)
{
    links_valid(topo);
    for (int a = 0; a < topo->npoints; a++) {
        for (int b = 0; b < topo->npoints; b++) {
            path_valid(topo, a, b, rondo_topo_wired(topo, a, b));
            path_valid(topo, a, b, rondo_topo_path(topo, a, b));
            assert_int_equal(rondo_topo_wired(topo, a, b)->type, rondo_topo_wired(topo, b, a)->type);
            assert_int_equal(rondo_topo_wired(topo, a, b)->mbs, rondo_topo_wired(topo, b, a)->mbs);
            assert_int_equal(rondo_topo_wired(topo, a, b)->nhops, rondo_topo_wired(topo, b, a)->nhops);
            assert_true(a != b || rondo_topo_path(topo, a, b)->type == RONDO_PATH_LOC);
        }
    }
}

static inline struct rondo_topo *topo_of(struct world *w)
{
    struct rondo_topo *topo;
    assert_int_equal(rondo_topo_create(&topo, &w->machine, w->rank, w->nranks, &w->options), RONDO_SUCCESS);
    topo_valid(topo);
    return topo;
}

static inline void world_end(struct world *w, struct rondo_topo *topo)
{
    rondo_topo_destroy(topo);
    rondo_machine_release(&w->machine);
}

static inline void path_is_(const struct rondo_topo_path *path, int type, int mbs, const char *file, int line)
{
    if (path->type != type || path->mbs != mbs) {
        print_error("%s:%d: %s at %d MB/s, expected %s at %d\n", file, line, rondo_path_type_name(path->type),
                    (int)path->mbs, rondo_path_type_name(type), mbs);
        _fail(file, line);
    }
}
#define direct_is(topo, a, b, type, mbs) \
    path_is_(rondo_topo_wired(topo, a, b), RONDO_PATH_##type, mbs, __FILE__, __LINE__)
#define path_is(topo, a, b, type, mbs) \
    path_is_(rondo_topo_path(topo, a, b), RONDO_PATH_##type, mbs, __FILE__, __LINE__)

#endif
