/* Orders that are not searched for: devices by their place in the machine. Contract: topo/search_step.h. */
#include "base/mem.h"
#include "topo/search_step.h"

/* Cache that holds a core and covers least; -1 none. Items stand in the order of the machine, which is that
 * of locality. */
static int cache_of(const struct rondo_machine *m, int core)
{
    int best = -1, best_count = 0;
    for (int i = 0; i < m->nitems && core >= 0; i++) {
        const struct rondo_item *item = &m->item[i];
        if (item->kind == RONDO_ITEM_CACHE && (item->cache.cores.bits[core / 64] >> (core % 64) & 1)) {
            int count = rondo_cores_count(&item->cache.cores);
            if (best < 0 || count < best_count) {
                best = i;
                best_count = count;
            }
        }
    }
    return best;
}

static int lowest_core(const struct rondo_cores *cores)
{
    for (int w = 0; w < RONDO_MAX_CORES / 64; w++) {
        if (cores->bits[w] != 0) {
            return 64 * w + __builtin_ctzll(cores->bits[w]);
        }
    }
    return -1;
}

struct place {
    int32_t
        key[5]; /* package, NUMA node, cache or GPU (items stand in the order of the machine), core, device */
};

static struct place place_of(const struct rondo_topo *topo, int dev)
{
    const struct rondo_item *cpu = rondo_topo_item(topo, topo->device_cpu[dev]);
    int core = lowest_core(&topo->rank[dev].cores), gpu = topo->node[topo->point[dev]].item;
    int near = gpu >= 0 ? gpu : cache_of(topo->machine, core);
    return (struct place){ { cpu != NULL ? cpu->cpu.package : -1, topo->device_cpu[dev], near, core, dev } };
}

static int by_key(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    for (size_t i = 0; i < RONDO_COUNTOF(a->key); i++) {
        if (a->key[i] != b->key[i]) {
            return a->key[i] < b->key[i] ? -1 : 1;
        }
    }
    return 0;
}

static int nearest_net(const struct rondo_topo *topo, int dev)
{
    int best = -1;
    for (int net = 0; net < topo->nnets; net++) {
        const struct rondo_topo_path *p = rondo_topo_path(topo, dev, rondo_topo_net_point(topo, net));
        const struct rondo_topo_path *b = best >= 0
                                              ? rondo_topo_path(topo, dev, rondo_topo_net_point(topo, best))
                                              : NULL;
        if (p->mbs > 0 && (b == NULL || p->type < b->type || (p->type == b->type && p->mbs > b->mbs))) {
            best = net;
        }
    }
    return best;
}

rondo_status rondo_graph_lay_by_place(const struct rondo_topo *topo, struct rondo_graph *g, int inter,
                                      int nchannels, int64_t *scratch)
{
    struct place *place;
    int16_t net[2] = { -1, -1 };
    RONDO_TRY(RONDO_NEW_ARRAY(place, topo->ndevs, "the order of devices"));
    for (int d = 0; d < topo->ndevs; d++) {
        place[d] = place_of(topo, d);
    }
    qsort(place, (size_t)topo->ndevs, sizeof(*place), by_key);
    if (inter) {
        net[0] = (int16_t)nearest_net(topo, place[0].key[4]);
        net[1] = g->id == RONDO_GRAPH_TREE || topo->options.cross_nic == 0
                     ? net[0]
                     : (int16_t)nearest_net(topo, place[topo->ndevs - 1].key[4]);
    }
    g->nchannels = nchannels;
    g->same_channels = 1;
    g->cross_nic = net[0] != net[1] ? 1 : 0;
    for (int c = 0; c < nchannels; c++) {
        for (int d = 0; d < topo->ndevs; d++) {
            g->order[c * topo->ndevs + d] = (int16_t)place[d].key[4];
        }
        g->net[2 * c] = net[0];
        g->net[2 * c + 1] = net[1];
    }
    rondo_free(place);
    if (rondo_graph_fit(topo, g, scratch) <=
        0) { /* no path: said so by its type; shared memory or the network carry it all the same */
        g->bw_intra = g->bw_inter = 100;
        g->found = 100 * nchannels;
        g->type_intra = RONDO_PATH_NET;
    }
    return RONDO_SUCCESS;
}
