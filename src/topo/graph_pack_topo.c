/* Packing graphs together with facts from their topo. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/levels.h"
#include "topo/stitch.h"

/* CPUID's family. Files written by NCCL shift the extended part: 143, 175 and 191 stand for 23, 25 and 26. */
static int32_t family_of(const struct rondo_item *cpu)
{
    int32_t family = cpu != NULL ? cpu->cpu.family : -1;
    return family >= 128 ? 15 + (family >> 4) : family;
}

static int32_t cpus_of(const struct rondo_topo *topo, int32_t *family)
{
    int32_t cpus = 0;
    *family = topo->ncpus > 0 ? INT32_MAX : -1;
    for (int i = 0; i < topo->ncpus; i++) {
        const struct rondo_item *item = rondo_topo_item(topo, rondo_topo_cpu_point(topo, i));
        int32_t its = family_of(item);
        cpus |= item == NULL ? 0 : 1 << RONDO_GRAPH_CPU(item->cpu.arch, item->cpu.vendor);
        *family = its < *family ? its : *family;
    }
    return cpus;
}

/* KiB per rank of the outermost caches that the ranks' cores have. */
static int32_t cache_of(const struct rondo_topo *topo)
{
    const struct rondo_machine *m = topo->machine;
    struct rondo_cores used = rondo_topo_cores(topo);
    int known = rondo_cores_count(&used) > 0;
    int64_t bytes = 0;
    int32_t level = 0;
    for (int32_t i = 0; i < m->nitems; i++) {
        const struct rondo_item *item = &m->item[i];
        struct rondo_cores both = used;
        if (item->kind == RONDO_ITEM_CACHE && item->cache.level >= level) {
            rondo_cores_intersect(&both, &item->cache.cores);
            bytes = item->cache.level > level ? 0 : bytes;
            level = item->cache.level;
            bytes += !known || rondo_cores_count(&both) > 0 ? item->cache.bytes : 0;
        }
    }
    bytes = bytes / (topo->ndevs > 0 ? topo->ndevs : 1) >> 10;
    return bytes < 0 || bytes > INT32_MAX ? 0 : (int32_t)bytes;
}

/* The verbs device names a port by its NIC and number; interfaces have no port. */
static void net_of(const struct rondo_item *item, struct rondo_graph_net *net)
{
    net->rail = item == NULL ? -1 : item->net.rail;
    if (item == NULL) {
        net->name[0] = '\0';
    } else if (item->net.port > 0) {
        snprintf(net->name, sizeof net->name, "%.50s:%d", item->net.name, (int)item->net.port);
    } else {
        snprintf(net->name, sizeof net->name, "%.63s", item->net.name);
    }
    for (char *c = net->name; *c != '\0'; c++) { /* a file may contain names that no device has */
        *c = *c <= ' ' || *c > '~' ? '?' : *c;
    }
}

static int net_used(const struct rondo_graph graphs[RONDO_NUM_GRAPHS], const struct rondo_graph_net *known,
                    int net)
{
    for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
        if (known->gdr[kind] != 0) {
            return 1;
        }
    }
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        for (int i = 0; i < 2 * graphs[id].nchannels; i++) {
            if (graphs[id].net[i] == net) {
                return 1;
            }
        }
    }
    return 0;
}

rondo_status rondo_graphs_pack_topo(const struct rondo_topo *topo,
                                    const struct rondo_graph graphs[RONDO_NUM_GRAPHS], uint8_t **bytes,
                                    size_t *n)
{
    struct rondo_graph known[RONDO_NUM_GRAPHS];
    struct rondo_graph_net *nets;
    RONDO_TRY(RONDO_NEW_ARRAY(nets, topo->nnets, "the nets of this node"));
    for (int i = 0; i < topo->nnets; i++) {
        net_of(rondo_topo_item(topo, rondo_topo_net_point(topo, i)), &nets[i]);
        rondo_topo_gdr_masks(topo, i, nets[i].gdr);
        rondo_topo_relays(topo, i, nets[i].relay, RONDO_NET_DEVS);
        if (!net_used(graphs, &nets[i], i)) { /* unused nets may have names that differ on every node */
            nets[i].name[0] = '\0';
        }
    }
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        known[id] = graphs[id];
        known[id].min_sm = topo->all_gpus ? topo->min_sm : 0;
        known[id].max_sm = topo->all_gpus ? topo->max_sm : 0;
        known[id].cpus = cpus_of(topo, &known[id].family);
        known[id].cache = cache_of(topo);
    }
    uint8_t *cut = NULL;
    rondo_status status = RONDO_NEW_ARRAY(cut, topo->ndevs, "the levels of this node");
    if (status == RONDO_SUCCESS) {
        known[RONDO_GRAPH_RING].cut = cut;
        status = rondo_topo_levels(topo, graphs[RONDO_GRAPH_RING].order, &known[RONDO_GRAPH_RING].levels,
                                   cut);
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_graphs_pack(known, topo->ndevs, topo->nnets, nets, bytes, n);
    }
    rondo_free(cut);
    rondo_free(nets);
    return status;
}
