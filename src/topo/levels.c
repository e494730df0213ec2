#include "topo/levels.h"

#include <string.h>
#include "base/mem.h"

/* A device's group on each level of the table; -1: it is in no group, or in several. */
struct place {
    int32_t group[RONDO_NUM_LEVELS];
};

static int holds(const struct rondo_cores *all, const struct rondo_cores *some)
{
    struct rondo_cores both = *some;
    rondo_cores_intersect(&both, all);
    return memcmp(&both, some, sizeof both) == 0;
}

static int meets(const struct rondo_cores *a, const struct rondo_cores *b)
{
    struct rondo_cores both = *a;
    rondo_cores_intersect(&both, b);
    return rondo_cores_count(&both) > 0;
}

/* The package whose NUMA nodes have all the cores; -1: there is none. */
static int package_of(const struct rondo_machine *m, const struct rondo_cores *cores)
{
    struct rondo_cores found = { { 0 } };
    int package = -1;
    for (int i = 0; i < m->nitems; i++) {
        const struct rondo_item *item = &m->item[i];
        if (item->kind == RONDO_ITEM_CPU && meets(&item->cpu.cores, cores)) {
            if (item->cpu.package < 0 || (package >= 0 && item->cpu.package != package)) {
                return -1;
            }
            package = item->cpu.package;
            rondo_cores_unite(&found, &item->cpu.cores);
        }
    }
    return holds(&found, cores) ? package : -1;
}

/* The smallest item of a kind that contains the cores; -1: there is none. */
static int item_of(const struct rondo_machine *m, enum rondo_item_kind kind, const struct rondo_cores *cores)
{
    int best = -1, best_count = 0;
    for (int i = 0; i < m->nitems; i++) {
        const struct rondo_item *item = &m->item[i];
        const struct rondo_cores *has = kind == RONDO_ITEM_CPU ? &item->cpu.cores : &item->cache.cores;
        if (item->kind == (int32_t)kind && holds(has, cores)) {
            int count = rondo_cores_count(has);
            if (best < 0 || count < best_count) {
                best = i;
                best_count = count;
            }
        }
    }
    return best;
}

static struct place place_of(const struct rondo_topo *topo, int dev)
{
    const struct rondo_machine *m = topo->machine;
    const struct rondo_cores *cores = &topo->rank[dev].cores;
    struct place place = { { -1, -1, -1 } };
    if (topo->rank[dev].busid < 0 && rondo_cores_count(cores) > 0) {
        place.group[RONDO_LEVEL_PACKAGE] = package_of(m, cores);
        place.group[RONDO_LEVEL_NUMA] = item_of(m, RONDO_ITEM_CPU, cores);
        place.group[RONDO_LEVEL_CACHE] = item_of(m, RONDO_ITEM_CACHE, cores);
    }
    return place;
}

/* Are two devices in the same group of this level and of all levels kept above it? */
static int together(const struct place *a, const struct place *b, const struct rondo_group_levels *levels,
                    int kind)
{
    for (int l = 0; l < levels->n; l++) {
        if (a->group[levels->kind[l]] != b->group[levels->kind[l]]) {
            return 0;
        }
    }
    return a->group[kind] == b->group[kind];
}

/* Count the groups of a level below the levels already kept. @return 0 if a device is in no group, or if a
 * group is not contiguous. */
static int groups_of(const struct place *place, int n, const struct rondo_group_levels *levels, int kind)
{
    int groups = 1;
    for (int i = 0; i < n; i++) {
        if (place[i].group[kind] < 0) {
            return 0;
        }
        if (i > 0 && !together(&place[i - 1], &place[i], levels, kind)) {
            groups++;
            for (int before = 0; before < i; before++) {
                if (together(&place[before], &place[i], levels, kind)) {
                    return 0;
                }
            }
        }
    }
    return groups;
}

/* place: sorted in the order. */
static void levels_keep(const struct place *place, int n, struct rondo_group_levels *levels, uint8_t *cut)
{
    int above = 1;
    memset(levels, 0, sizeof *levels);
    memset(cut, 0, (size_t)n);
    for (int kind = 0; kind < RONDO_NUM_LEVELS; kind++) {
        int groups = groups_of(place, n, levels, kind);
        if (groups > above && groups < n) {
            levels->kind[levels->n++] = (uint8_t)kind;
            above = groups;
            for (int i = 1; i < n; i++) {
                cut[i] = (uint8_t)(cut[i] == 0 && place[i].group[kind] != place[i - 1].group[kind] ? levels->n
                                                                                                   : cut[i]);
            }
        }
    }
    rondo_levels_count(levels, cut, n);
}

rondo_status rondo_topo_levels(const struct rondo_topo *topo, const int16_t *order,
                               struct rondo_group_levels *levels, uint8_t *cut)
{
    struct place *place;
    if (topo->all_gpus) {
        memset(levels, 0, sizeof *levels);
        memset(cut, 0, (size_t)topo->ndevs);
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(place, topo->ndevs, "the groups of ranks"));
    for (int i = 0; i < topo->ndevs; i++) {
        place[i] = place_of(topo, order[i]);
    }
    levels_keep(place, topo->ndevs, levels, cut);
    rondo_free(place);
    return RONDO_SUCCESS;
}
