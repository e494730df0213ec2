/* Which hosts of a picture stand for others like them. */
#include <string.h>
#include "base/mem.h"
#include "tools/draw/place.h"
#include "tools/draw/text.h"

enum { LEAST_FOLDED = 2 };

/* ---- the shape of items ---- */

/* Hash an item without its address, name and number. */
static uint64_t item_shape(const struct rondo_item *item)
{
    int64_t v[6] = { item->kind };
    switch (item->kind) {
    case RONDO_ITEM_CPU:
        v[1] = item->cpu.arch, v[2] = item->cpu.vendor, v[3] = item->cpu.family, v[4] = item->cpu.model;
        v[5] = rondo_cores_count(&item->cpu.cores);
        break;
    case RONDO_ITEM_PCI:
        v[1] = item->pci.class_code, v[2] = item->pci.speed, v[3] = item->pci.width, v[4] = item->pci.device;
        break;
    case RONDO_ITEM_GPU: v[1] = item->gpu.sm, v[2] = item->gpu.gdr; break;
    case RONDO_ITEM_NET: v[1] = item->net.mbps, v[2] = item->net.port, v[3] = item->net.gdr; break;
    case RONDO_ITEM_NVLINK: v[1] = item->nvlink.count; break;
    case RONDO_ITEM_C2C: v[1] = item->c2c.count, v[2] = item->c2c.mbs; break;
    case RONDO_ITEM_CACHE: v[1] = item->cache.level, v[2] = item->cache.bytes; break;
    default: break;
    }
    return rondo_hash(v, sizeof v, 0);
}

void rondo_draw_shapes(const struct rondo_machine *machine, uint64_t *shape)
{
    for (int32_t i = machine->nitems - 1; i >= 0; i--) {
        const struct rondo_item *item = &machine->item[i];
        int idle = rondo_text_is_bridge(item) && shape[i] == 0;
        shape[i] = rondo_hash(&shape[i], sizeof shape[i], item_shape(item));
        if (item->parent >= 0 && !idle)
            shape[item->parent] = rondo_hash(&shape[i], sizeof shape[i], shape[item->parent]);
    }
}

/* ---- hosts ---- */

/* What is compared of a host, and what keeps it in the picture. */
struct host {
    uint64_t shape;
    int32_t ndevs, nnets;
    int32_t first; /* point of its first device; -1: none */
    int32_t keep;  /* a channel enters or leaves the node here */
};

static int32_t host_of(const struct rondo_place *place, const int32_t *number, int node)
{
    while (place->parent[node] >= 0) node = place->parent[node];
    return type_of(place, node) == RONDO_NODE_CPU ? number[node] : -1;
}

static int32_t host_of_point(const struct rondo_place *place, const int32_t *number, int point)
{
    return host_of(place, number, place->topo->point[point]);
}

static rondo_status hosts_fill(const struct rondo_place *place, const int32_t *number, struct host *host,
                               int nhosts)
{
    const struct rondo_topo *topo = place->topo;
    const struct rondo_graph *graph = place->graph;
    uint64_t *shape;
    RONDO_TRY(RONDO_NEW_ARRAY(shape, topo->machine->nitems, "a picture's hosts"));
    rondo_draw_shapes(topo->machine, shape);
    for (int h = 0; h < nhosts; h++) host[h].first = -1;
    for (int i = 0; i < topo->nnodes; i++) {
        if (type_of(place, i) != RONDO_NODE_CPU) continue;
        struct host *at = &host[number[i]];
        uint64_t one = topo->node[i].item >= 0 ? shape[topo->node[i].item] : 0;
        at->shape = rondo_hash(&one, sizeof one, at->shape);
    }
    for (int p = 0; p < topo->ndevs + topo->nnets; p++) {
        int32_t h = host_of_point(place, number, p);
        if (h < 0) continue;
        if (p >= topo->ndevs) {
            host[h].nnets++;
        } else if (host[h].ndevs++ == 0) {
            host[h].first = p;
        }
    }
    for (int i = 0; graph && i < 2 * graph->nchannels; i++) {
        int32_t h = graph->net[i] < 0 ? -1 : host_of_point(place, number, topo->ndevs + graph->net[i]);
        if (h >= 0) host[h].keep = 1;
    }
    rondo_free(shape);
    return RONDO_SUCCESS;
}

static int hosts_equal(const struct host *a, const struct host *b)
{
    return a->shape == b->shape && a->ndevs == b->ndevs && a->nnets == b->nnets;
}

/* In a row of equal hosts, all but the first, the last and those to keep are folded where two or more stand
 * side by side. */
static void folds_find(struct rondo_place *place, const struct host *host, int nhosts)
{
    for (int first = 0, end; first < nhosts; first = end) {
        for (end = first + 1; end < nhosts && hosts_equal(&host[first], &host[end]);) end++;
        for (int h = first + 1, stop; host[first].ndevs > 0 && h < end - 1; h = stop + 1) {
            for (stop = h; stop < end - 1 && !host[stop].keep;) stop++;
            if (stop - h < LEAST_FOLDED) continue;
            place->fold[place->nfolds++] = (struct rondo_fold){ .first = h,
                                                                .nhosts = stop - h,
                                                                .like = first,
                                                                .ndevs = (stop - h) * host[h].ndevs,
                                                                .nnets = (stop - h) * host[h].nnets,
                                                                .point = host[h].first };
        }
    }
}

int rondo_fold_of_host(const struct rondo_place *place, int32_t host)
{
    for (int f = 0; f < place->nfolds; f++) {
        if (host >= place->fold[f].first && host < place->fold[f].first + place->fold[f].nhosts) return f;
    }
    return -1;
}

int rondo_fold_at(const struct rondo_place *place, int node)
{
    for (int f = 0; f < place->nfolds; f++) {
        if (place->topo->point[place->fold[f].point] == node) return f;
    }
    return -1;
}

rondo_status rondo_folds_make(struct rondo_place *place, const int32_t *number, int nhosts, int all)
{
    int npoints = place->topo->ndevs + place->topo->nnets;
    struct host *host;
    RONDO_TRY(RONDO_NEW_ARRAY(place->shown, npoints, "a picture's hosts"));
    for (int p = 0; p < npoints; p++) place->shown[p] = p;
    if (all || nhosts < LEAST_FOLDED + 2) return RONDO_SUCCESS;
    RONDO_TRY(RONDO_NEW_ARRAY(place->fold, nhosts, "a picture's hosts"));
    RONDO_TRY(RONDO_NEW_ARRAY(host, nhosts, "a picture's hosts"));
    rondo_status status = hosts_fill(place, number, host, nhosts);
    if (status == RONDO_SUCCESS) folds_find(place, host, nhosts);
    for (int p = 0; p < npoints && place->nfolds > 0; p++) {
        int f = rondo_fold_of_host(place, host_of_point(place, number, p));
        if (f >= 0) place->shown[p] = place->fold[f].point;
    }
    rondo_free(host);
    return status;
}
