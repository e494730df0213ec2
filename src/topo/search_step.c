/*
 * The depth-first search for channels. It places one device after the other; using a path subtracts its cost
 * from each of its links, and backtracking returns it. The order of the candidates decides nearly everything:
 * on regular machines the first try is the answer.
 */
#include "topo/search_step.h"

#include <string.h>

#include "base/mem.h"

enum { NO_NET = -1 };
enum forced {
    FREE,
    IN_ORDER,
    REPLAY,
    SHIFT
}; /* source of a channel's order: searched, device numbers, the previous channel, that rotated by one */

struct rondo_lay {
    const struct rondo_topo *topo;
    struct rondo_attempt a;
    struct rondo_graph now, *best;
    int64_t *left; /* remaining per link, in 1/480 MB/s */
    uint8_t *used; /* [channel][device] */
    int16_t *cand; /* [channel][position][candidate] */
    int16_t *nets; /* in the order in which they are tried */
    int32_t nnets;
    int64_t budget;
    int32_t done; /* max_channels are laid */
    int32_t nhops;
    int64_t steps;
};

static void lay_channel(struct rondo_lay *s);
static void lay_device(struct rondo_lay *s, int dev, int at, int back, enum forced forced);

rondo_status rondo_lay_create(struct rondo_lay **lay, const struct rondo_topo *topo)
{
    struct rondo_lay *s;
    size_t n = (size_t)topo->ndevs,
           cells = rondo_min_size(RONDO_TOPO_CHANNELS * n, RONDO_SEARCH_MAX_PLACED) + n;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(s, "the search"));
    s->topo = topo;
    RONDO_TRY_GOTO(rondo_graph_alloc(&s->now, topo->ndevs), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(s->left, topo->nlinks + 1, "the search"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(s->used, cells, "the search"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(s->cand, cells * n, "the search"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(s->nets, topo->nnets + 1, "the search"), fail);
    *lay = s;
    return RONDO_SUCCESS;
fail:
    rondo_lay_destroy(s);
    return status;
}

void rondo_lay_destroy(struct rondo_lay *lay)
{
    if (lay != NULL) {
        rondo_graph_release(&lay->now);
        rondo_free(lay->left);
        rondo_free(lay->used);
        rondo_free(lay->cand);
        rondo_free(lay->nets);
        rondo_free(lay);
    }
}

/* ---- paths ---- */

static int over(const struct rondo_lay *s) { return s->done || s->budget <= 0; }
static void spend(struct rondo_lay *s)
{
    s->budget--;
    s->steps++;
}

static int through_nets(const struct rondo_lay *s)
{
    return s->topo->options.nnodes > 1 && s->topo->nnets > 0;
}

static void give(struct rondo_lay *s, const struct rondo_topo_path *path, int nhops, int64_t speed)
{
    const struct rondo_topo *topo = s->topo;
    for (int i = 0; i < nhops; i++) {
        int32_t hop = topo->hop[path->first + i];
        s->left[hop] += speed * topo->cost[path->first + i] * 8;
        if (path->reverse_eighth && i == path->nhops - 1) {
            s->left[topo->link[hop].reverse] += speed * 60;
        }
    }
}

/* Take a path from the links. @return 0, having taken nothing, if a link has too little left. */
static int take(struct rondo_lay *s, const struct rondo_topo_path *path, int64_t speed)
{
    const struct rondo_topo *topo = s->topo;
    for (int i = 0; i < path->nhops; i++) {
        int32_t hop = topo->hop[path->first + i], back = topo->link[hop].reverse;
        int64_t cost = speed * topo->cost[path->first + i] * 8,
                behind = path->reverse_eighth && i == path->nhops - 1 ? speed * 60 : 0;
        if (s->left[hop] < cost || s->left[back] < behind) {
            give(s, path, i, speed);
            return 0;
        }
        s->left[hop] -= cost;
        s->left[back] -= behind;
    }
    s->nhops += path->nhops;
    return 1;
}

static void give_back(struct rondo_lay *s, const struct rondo_topo_path *path, int64_t speed)
{
    give(s, path, path->nhops, speed);
    s->nhops -= path->nhops;
}

static const struct rondo_topo_path *intra_path(const struct rondo_lay *s, int from, int to)
{
    const struct rondo_topo_path *path = rondo_topo_path(s->topo, from, to);
    return path->mbs > 0 && path->type <= s->a.type_intra ? path : NULL;
}

static const struct rondo_topo_path *inter_path(const struct rondo_lay *s, int from, int to)
{
    const struct rondo_topo_path *path = rondo_topo_path(s->topo, from, to);
    return path->mbs > 0 && path->type <= s->a.type_inter ? path : NULL;
}

/* ---- a complete channel ---- */

static int better(const struct rondo_graph *a, const struct rondo_graph *b)
{
    int64_t x = (int64_t)a->nchannels * a->bw_intra, y = (int64_t)b->nchannels * b->bw_intra;
    return x > y ||
           (x == y && a->pattern == b->pattern && a->cross_nic == b->cross_nic && a->nhops < b->nhops);
}

static void channel_done(struct rondo_lay *s)
{
    s->now.nchannels++;
    s->now.nhops = s->nhops;
    if (s->now.nchannels >= s->a.min_channels && better(&s->now, s->best)) {
        rondo_graph_copy(s->best, &s->now);
    }
    if (s->now.nchannels >= s->a.max_channels) {
        s->done = 1;
    } else {
        lay_channel(s);
    }
    s->now.nchannels--;
}

static int16_t *channel_order(struct rondo_lay *s, int back_by)
{
    return s->now.order + (size_t)(s->now.nchannels - back_by) * (size_t)s->topo->ndevs;
}

/* ---- leaving through a net ---- */

static const struct rondo_item *net_item(const struct rondo_lay *s, int net)
{
    return rondo_topo_item(s->topo, rondo_topo_net_point(s->topo, net));
}

/* May a channel that entered through net `in` leave through `out`? */
static int may_leave(const struct rondo_lay *s, int in, int out)
{
    const struct rondo_item *a = net_item(s, in), *b = net_item(s, out);
    int c = s->now.nchannels;
    if (a->net.plane != b->net.plane && a->net.plane >= 0 && b->net.plane >= 0) {
        return 0;
    }
    if (s->a.pattern == RONDO_PATTERN_TREE) {
        return in == out;
    }
    if (s->a.cross_nic == 2) {
        return (c & 1) == 0 || out == s->now.net[2 * (c - 1)];
    }
    if (s->a.cross_nic == 1 || in == out) {
        return 1;
    }
    if (a->net.rail >= 0 && b->net.rail >= 0) {
        return a->net.rail == b->net.rail;
    }
    return a->net.guid != 0 && a->net.guid == b->net.guid && a->net.port == b->net.port;
}

/* The position after which a channel of this pattern goes to its net, -1: never. A balanced tree goes
 * there from position 0 and again from 1. */
static int first_position_to_net(const struct rondo_lay *s)
{
    if (!through_nets(s)) {
        return -1;
    }
    return s->a.pattern == RONDO_PATTERN_RING         ? s->topo->ndevs - 1
           : s->a.pattern == RONDO_PATTERN_SPLIT_TREE ? 1
                                                      : 0;
}

static void lay_exit(struct rondo_lay *s, int dev, int at, enum forced forced)
{
    int16_t *net = s->now.net + 2 * (size_t)s->now.nchannels;
    int balanced = s->a.pattern == RONDO_PATTERN_BALANCED_TREE, next = balanced && at == 0 ? 1 : -1;
    int64_t speed = balanced ? s->a.bw_inter / 2 : s->a.bw_inter;
    for (int i = 0; i < s->nnets && !over(s); i++) {
        int out = s->nets[i];
        const struct rondo_topo_path *path = inter_path(s, dev, rondo_topo_net_point(s->topo, out));
        if (path == NULL || !may_leave(s, net[0], out) || (balanced && at == 1 && out != net[1])) {
            continue;
        }
        spend(s);
        if (!take(s, path, speed)) {
            continue;
        }
        net[1] = (int16_t)out;
        lay_device(s, dev, at, next == 1 ? 1 : -2, forced);
        give_back(s, path, speed);
    }
}

/* ---- the next device ---- */

struct score {
    int32_t net_mbs, net_hops, mbs, hops;
    int16_t dev;
};

/* Nearest to the net first (if it matters), then the fastest and shortest paths, then by number. */
static int score_before(const struct score *a, const struct score *b)
{
    if (a->net_mbs != b->net_mbs) {
        return a->net_mbs > b->net_mbs;
    }
    if (a->net_hops != b->net_hops) {
        return a->net_hops < b->net_hops;
    }
    return a->mbs != b->mbs ? a->mbs > b->mbs : a->hops < b->hops;
}

/* with_net: 1: the next device goes to the net; -1: a later one does; 0: nets do not matter. */
static int sorted_candidates(struct rondo_lay *s, int dev, int with_net, int16_t *cand)
{
    struct score list[RONDO_TOPO_MAX_LOCAL];
    const uint8_t *used = s->used + (size_t)s->now.nchannels * (size_t)s->topo->ndevs;
    int n = s->topo->ndevs, count = 0, equal = 1, net = s->now.net[2 * s->now.nchannels];
    for (int i = 1; i < n; i++) {
        int d = (dev + i) % n, at = count;
        const struct rondo_topo_path *path = intra_path(s, dev, d);
        struct score score = { .dev = (int16_t)d };
        if (path == NULL || used[d]) {
            continue;
        }
        score.mbs = path->mbs;
        score.hops = path->nhops;
        if (with_net != 0 && net >= 0) {
            const struct rondo_topo_path *in = rondo_topo_path(s->topo, rondo_topo_net_point(s->topo, net),
                                                               d);
            score.net_mbs = in->mbs;
            score.net_hops = in->nhops;
        }
        for (; at > 0 && score_before(&score, &list[at - 1]); at--) {
            list[at] = list[at - 1];
        }
        list[at] = score;
        count++;
    }
    for (int i = 1; i < count; i++) {
        equal &= list[i].mbs == list[0].mbs;
    }
    /* Keep devices near the net for the end, where the channel returns to it. */
    for (int i = 0; i < count; i++) {
        cand[i] = list[with_net < 0 && equal ? count - 1 - i : i].dev;
    }
    return count;
}

/* Behind NVSwitches all devices are alike: try only neighbours, which keeps each device's set of peers
 * small. */
static int neighbours(const struct rondo_lay *s, int dev, int16_t *cand)
{
    const uint8_t *used = s->used + (size_t)s->now.nchannels * (size_t)s->topo->ndevs;
    int n = s->topo->ndevs, next = (dev + 1) % n, prev = (dev + n - 1) % n, count = 0;
    int order[2] = { next, prev }, wanted = s->a.pattern == RONDO_PATTERN_TREE || next == prev ? 1 : 2;
    if (s->a.pattern == RONDO_PATTERN_SPLIT_TREE || s->a.pattern == RONDO_PATTERN_BALANCED_TREE) {
        order[0] = prev;
        order[1] = next;
    }
    for (int i = 0; i < wanted; i++) {
        if (!used[order[i]] && intra_path(s, dev, order[i]) != NULL) {
            cand[count++] = (int16_t)order[i];
        }
    }
    return count;
}

static int candidates(struct rondo_lay *s, int dev, int at, int back, enum forced forced, int16_t *cand)
{
    int n = s->topo->ndevs;
    switch (forced) {
    case IN_ORDER: cand[0] = (int16_t)(at + 1); return 1;
    case REPLAY: cand[0] = channel_order(s, 1)[at + 1]; return 1;
    case SHIFT: cand[0] = channel_order(s, 1)[(at + 2) % n]; return 1;
    default: break;
    }
    return s->topo->nnvs > 0 ? neighbours(s, dev, cand)
                             : sorted_candidates(s, dev,
                                                 back < 0         ? 0
                                                 : back == at + 1 ? 1
                                                                  : -1,
                                                 cand);
}

static void lay_next(struct rondo_lay *s, int dev, int at, int back, enum forced forced)
{
    size_t n = (size_t)s->topo->ndevs, cell = ((size_t)s->now.nchannels * n + (size_t)at) * n;
    int16_t *cand = s->cand + cell;
    int count = candidates(s, dev, at, back, forced, cand);
    for (int i = 0; i < count && !over(s); i++) {
        const struct rondo_topo_path *path = intra_path(s, dev, cand[i]);
        if (path != NULL && !s->used[(size_t)s->now.nchannels * n + (size_t)cand[i]] &&
            take(s, path, s->a.bw_intra)) {
            lay_device(s, cand[i], at + 1, back, forced);
            give_back(s, path, s->a.bw_intra);
        }
    }
}

static void close_ring(struct rondo_lay *s, int dev)
{
    const struct rondo_topo_path *path = intra_path(s, dev, channel_order(s, 0)[0]);
    if (path != NULL && take(s, path, s->a.bw_intra)) {
        channel_done(s);
        give_back(s, path, s->a.bw_intra);
    }
}

/* Place a device and continue. back: the position that goes to the net, -1: none is left, -2: this one has
 * just been there. */
static void lay_device(struct rondo_lay *s, int dev, int at, int back, enum forced forced)
{
    int n = s->topo->ndevs,
        came_back = back == -2 || (back == at + 1 && at == 0 && s->a.pattern == RONDO_PATTERN_BALANCED_TREE);
    uint8_t *used = s->used + (size_t)s->now.nchannels * (size_t)n + dev;
    if (over(s)) {
        return;
    }
    if (!came_back) {
        spend(s);
        *used = 1;
        channel_order(s, 0)[at] = (int16_t)dev;
    }
    if (back == at) {
        lay_exit(s, dev, at, forced);
    } else if (at + 1 < n) {
        lay_next(s, dev, at, back == -2 ? -1 : back, forced);
    } else if (!through_nets(s) && s->a.pattern == RONDO_PATTERN_RING && n > 1 &&
               s->topo->options.nnodes == 1) {
        close_ring(s, dev);
    } else {
        channel_done(s);
    }
    if (!came_back) {
        *used = 0;
    }
}

/* ---- entering ---- */

static void start(struct rondo_lay *s, int net, int dev, enum forced forced)
{
    const struct rondo_topo_path *path = NULL;
    int back = first_position_to_net(s);
    if (over(s)) {
        return;
    }
    if (net == NO_NET) {
        lay_device(s, dev, 0, back, forced);
        return;
    }
    path = inter_path(s, rondo_topo_net_point(s->topo, net), dev);
    if (path != NULL && take(s, path, s->a.bw_inter)) {
        lay_device(s, dev, 0, back, forced);
        give_back(s, path, s->a.bw_inter);
    }
}

/* Give a small budget to an attempt that works at once or not at all. */
static void start_briefly(struct rondo_lay *s, int net, int dev, enum forced forced, int64_t most)
{
    int64_t kept = s->budget - most;
    if (kept <= 0) {
        start(s, net, dev, forced);
        return;
    }
    s->budget = most;
    start(s, net, dev, forced);
    s->budget = s->budget > 0 ? s->budget + kept : kept;
}

static void start_anywhere(struct rondo_lay *s, int net)
{
    int n = s->topo->ndevs, best = -1;
    const struct rondo_topo_path *in;
    if (net != NO_NET) { /* the devices nearest to the net first */
        int from = rondo_topo_net_point(s->topo, net);
        for (int d = 0; d < n; d++) {
            in = rondo_topo_path(s->topo, from, d);
            const struct rondo_topo_path *top = best >= 0 ? rondo_topo_path(s->topo, from, best) : NULL;
            if (in->mbs > 0 &&
                (top == NULL || in->mbs > top->mbs || (in->mbs == top->mbs && in->type < top->type))) {
                best = d;
            }
        }
        for (int d = 0; d < n && best >= 0; d++) {
            const struct rondo_topo_path *top = rondo_topo_path(s->topo, from, best);
            in = rondo_topo_path(s->topo, from, d);
            if (in->mbs == top->mbs && in->type == top->type) {
                start(s, net, d, FREE);
            }
        }
    }
    for (int d = 0; d < n; d++) {
        const struct rondo_topo_path *top =
            best >= 0 ? rondo_topo_path(s->topo, rondo_topo_net_point(s->topo, net), best) : NULL;
        in = best >= 0 ? rondo_topo_path(s->topo, rondo_topo_net_point(s->topo, net), d) : NULL;
        if (in == NULL || in->mbs != top->mbs || in->type != top->type) {
            start(s, net, d, FREE);
        }
    }
}

enum { BRIEF = 1 << 10 };

static void lay_from(struct rondo_lay *s, int net)
{
    int first = s->now.nchannels == 0;
    if (first) {
        if (net == NO_NET || s->topo->nnvs == 0) {
            start_briefly(s, net, 0, IN_ORDER, BRIEF);
        }
    } else {
        const int16_t *before = channel_order(s, 1);
        start(s, net, before[0], REPLAY);
        if (!s->a.same && !over(s)) {
            start_briefly(s, net, before[1 % s->topo->ndevs], SHIFT, BRIEF);
        }
    }
    if ((first || !s->a.same) && !over(s)) {
        start_anywhere(s, net);
    }
}

static void lay_channel(struct rondo_lay *s)
{
    int c = s->now.nchannels;
    int16_t *net = s->now.net + 2 * (size_t)c;
    net[0] = net[1] = NO_NET;
    if (!through_nets(s)) {
        lay_from(s, NO_NET);
        return;
    }
    for (int i = 0; i < s->nnets && !over(s); i++) {
        if (s->a.cross_nic == 2 && (c & 1) && s->nets[i] != net[-1]) {
            continue;
        }
        net[0] = s->nets[i];
        spend(s);
        lay_from(s, net[0]);
    }
}

/* Order the nets in turns: the nearest net of each device, then the second nearest of each, and so on.
 * Nets that no device may use are left out. */
static void order_nets(struct rondo_lay *s)
{
    const struct rondo_topo *topo = s->topo;
    uint64_t taken[RONDO_MACHINE_MAX_NETS / 64 + 1] = { 0 };
    s->nnets = 0;
    for (int more = 1; more;) {
        more = 0;
        for (int d = 0; d < topo->ndevs; d++) {
            int best = -1;
            for (int i = 0; i < topo->nnets; i++) {
                int net = (i + d) % topo->nnets; /* devices with the same nets start at different ones */
                const struct rondo_topo_path *p = inter_path(s, rondo_topo_net_point(topo, net), d);
                const struct rondo_topo_path *b =
                    best >= 0 ? rondo_topo_path(topo, rondo_topo_net_point(topo, best), d) : NULL;
                if (p != NULL && (taken[net / 64] >> (net % 64) & 1) == 0 &&
                    (b == NULL || p->type < b->type || (p->type == b->type && p->mbs > b->mbs))) {
                    best = net;
                }
            }
            if (best >= 0) {
                taken[best / 64] |= (uint64_t)1 << (best % 64);
                s->nets[s->nnets++] = (int16_t)best;
                more = 1;
            }
        }
    }
}

int rondo_lay_run(struct rondo_lay *s, const struct rondo_attempt *attempt, struct rondo_graph *best)
{
    s->a = *attempt;
    s->best = best;
    s->now.id = best->id;
    s->now.bound = best->bound;
    s->now.bound_cut = best->bound_cut;
    s->now.bound_at = best->bound_at;
    s->now.steps = best->steps;
    s->now.searches = best->searches;
    s->now.pattern = attempt->pattern;
    s->now.cross_nic = attempt->cross_nic;
    s->now.same_channels = attempt->same;
    s->now.bw_intra = attempt->bw_intra;
    s->now.bw_inter = attempt->bw_inter;
    s->now.type_intra = attempt->type_intra;
    s->now.type_inter = attempt->type_inter;
    s->now.nchannels = s->nhops = s->done = 0;
    s->steps = 0;
    s->budget = attempt->budget;
    for (int l = 0; l < s->topo->nlinks; l++) {
        s->left[l] = (int64_t)s->topo->link[l].mbs * RONDO_LINK_UNITS;
    }
    if (through_nets(s)) {
        order_nets(s);
    }
    lay_channel(s);
    best->steps += s->steps;
    best->searches++;
    return s->done ? 1 : s->budget > 0 ? 0 : -1;
}

/* ---- channels without a search, by locality ---- */

/* The smallest cache that contains a core, -1: none. Items are in machine order, which follows locality. */
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
    int32_t key[5]; /* package, NUMA node, cache or GPU (items are in machine order), core, device */
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
        0) { /* without a path, shared memory or the network carries the data; the type says so */
        g->bw_intra = g->bw_inter = 100;
        g->found = 100 * nchannels;
        g->type_intra = RONDO_PATH_NET;
    }
    return RONDO_SUCCESS;
}
