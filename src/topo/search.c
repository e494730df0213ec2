/*
 * The search tries fast channels first and lowers the speed step by step. At each speed it relaxes one
 * condition after another, each only when the attempt before did not succeed: channels may differ from one
 * another, patterns get simpler, paths get worse, channels change rails. A bound from cuts tells when no
 * better graph exists and which attempts cannot pay off.
 */
#include <string.h>

#include "base/mem.h"
#include "topo/search_step.h"

enum {
    /* Budgets count steps of the search. */
    BUDGET = 1 << 16,         /* limits the search for one graph, */
    BUDGET_DEVICE = 1 << 10,  /* and this is added for each device */
    BUDGET_ATTEMPT = 1 << 13, /* limits one attempt */
    BUDGET_SAME = 1 << 8,     /* is enough if all channels repeat the first: that works at once or never */
    BUDGET_AFTER = 1 << 15,   /* limits all improvements together */
    BUDGET_IMPROVE = 1 << 11, /* limits one improvement */
    MOST_SEARCHED = 256       /* more devices are not searched unless NVSwitches connect them */
};

struct search {
    const struct rondo_topo *topo;
    struct rondo_lay *lay; /* NULL: nothing is searched */
    struct rondo_graph *best, tried;
    const int32_t *speed;
    int32_t nspeeds;
    int32_t inter; /* channels go through nets */
    int32_t min_channels, max_channels;
    int32_t intra_types[RONDO_NUM_PATH_TYPES], nintra, inter_types[RONDO_NUM_PATH_TYPES], ninter;
    int64_t budget, *scratch;
};

/* ---- what the node offers ---- */

static void pick_speeds(struct search *s)
{
    static const int32_t intra[] = { RONDO_TOPO_SPEEDS_INTRA }, inter[] = { RONDO_TOPO_SPEEDS_INTER };
    static const int32_t intra90[] = { RONDO_TOPO_SPEEDS_INTRA_SM90 },
                         inter90[] = { RONDO_TOPO_SPEEDS_INTER_SM90 };
    static const int32_t intra100[] = { RONDO_TOPO_SPEEDS_INTRA_SM100 },
                         inter100[] = { RONDO_TOPO_SPEEDS_INTER_SM100 };
    const struct {
        int sm;
        const int32_t *speed[2];
        size_t n[2];
    } tables[] = {
        { 100, { intra100, inter100 }, { RONDO_COUNTOF(intra100), RONDO_COUNTOF(inter100) } },
        { 90, { intra90, inter90 }, { RONDO_COUNTOF(intra90), RONDO_COUNTOF(inter90) } },
        { 0, { intra, inter }, { RONDO_COUNTOF(intra), RONDO_COUNTOF(inter) } },
    };
    size_t t = 0;
    while (s->topo->min_sm < tables[t].sm) {
        t++;
    }
    s->speed = tables[t].speed[s->inter];
    s->nspeeds = (int32_t)tables[t].n[s->inter];
}

static void see_type(const struct rondo_topo_path *path, uint32_t *seen)
{
    if (path->mbs > 0 && path->type < RONDO_PATH_DIS) {
        *seen |= 1u << path->type;
    }
}

/* List the path types that occur, best first; others cannot make a difference. No attempt requires a path
 * better than PIX between a device and a net. */
static void list_types(struct search *s)
{
    const struct rondo_topo *topo = s->topo;
    uint32_t intra = 0, inter = 0;
    for (int a = 0; a < topo->ndevs; a++) {
        for (int b = 0; b < topo->ndevs; b++) {
            if (a != b) {
                see_type(rondo_topo_path(topo, a, b), &intra);
            }
        }
        for (int net = 0; s->inter && net < topo->nnets; net++) {
            see_type(rondo_topo_path(topo, a, rondo_topo_net_point(topo, net)), &inter);
            see_type(rondo_topo_path(topo, rondo_topo_net_point(topo, net), a), &inter);
        }
    }
    for (int t = 0; t < RONDO_NUM_PATH_TYPES; t++) {
        if (intra >> t & 1) {
            s->intra_types[s->nintra++] = t;
        }
        if (t >= RONDO_PATH_PIX && inter >> t & 1) {
            s->inter_types[s->ninter++] = t;
        }
    }
    if (s->nintra == 0) {
        s->intra_types[s->nintra++] = RONDO_PATH_LOC;
    }
    if (s->ninter == 0) {
        s->inter_types[s->ninter++] = RONDO_PATH_PIX;
    }
}

static int32_t fastest_path(const struct search *s)
{
    const struct rondo_topo *topo = s->topo;
    int32_t best = 0;
    for (int a = 0; a < topo->ndevs; a++) {
        for (int b = s->inter ? topo->ndevs : 0; b < topo->ndevs + (s->inter ? topo->nnets : 0); b++) {
            int32_t mbs = a != b ? rondo_topo_path(topo, a, b)->mbs : 0;
            best = mbs > best ? mbs : best;
        }
    }
    return best;
}

/* @return the bandwidth to compare graphs by, in MB/s: through the nets, or inside a single node. */
static int64_t total(const struct search *s, const struct rondo_graph *g)
{
    return (int64_t)g->nchannels * (s->inter ? g->bw_inter : g->bw_intra);
}

/* ---- attempts ---- */

/* @return how many channels of this speed there can be at most. The bound limits them, and so do the links of
 * each device: a channel fits into one link or does not. */
static int channels_at(const struct search *s, int32_t speed)
{
    const struct rondo_topo *topo = s->topo;
    int64_t most = s->max_channels;
    if (s->best->bound > 0 && s->best->bound / speed < most) {
        most = s->best->bound / speed;
    }
    for (int d = 0; d < topo->ndevs && s->best->id == RONDO_GRAPH_RING; d++) {
        const struct rondo_topo_node *node = &topo->node[topo->point[d]];
        int64_t n = 0;
        for (int l = node->first; l < node->first + node->nlinks; l++) {
            n += topo->link[l].mbs / speed;
        }
        most = n < most ? n : most;
    }
    return (int)most;
}

static int worth(const struct search *s, const struct rondo_attempt *a)
{
    int32_t slow = a->bw_inter < a->bw_intra && s->inter ? a->bw_inter : a->bw_intra;
    int most = channels_at(s, slow);
    most = most < a->max_channels ? most : a->max_channels;
    return slow > 0 && most >= a->min_channels && (int64_t)most * slow > total(s, s->best) && s->budget > 0;
}

/* @return 1 if as many channels were laid as requested. */
static int run(struct search *s, struct rondo_attempt *a, int64_t budget, struct rondo_graph *into)
{
    int64_t before = into->steps, least = 4 * (int64_t)s->topo->ndevs * a->max_channels;
    int done;
    a->budget = budget > least ? budget : least;
    a->budget = a->budget < s->budget ? a->budget : s->budget;
    done = rondo_lay_run(s->lay, a, into);
    s->budget -= into->steps - before;
    return done == 1;
}

static int optimal(const struct search *s)
{
    return s->best->nchannels > 0 && total(s, s->best) + s->best->nchannels > s->best->bound;
}

/* Try one order for all channels first, then different ones. On sm 90 and later, try a plain tree after the
 * balanced one. */
static int try_patterns(struct search *s, struct rondo_attempt *a)
{
    int pattern = a->pattern, done = 0;
    for (int simpler = 0; simpler < 2 && !done; simpler++) {
        if (simpler && (pattern != RONDO_PATTERN_BALANCED_TREE || s->topo->min_sm < 90 || !s->inter)) {
            break;
        }
        a->pattern = simpler ? RONDO_PATTERN_TREE : pattern;
        for (a->same = 1; a->same >= 0 && !done; a->same--) {
            done = worth(s, a) && (run(s, a, a->same ? BUDGET_SAME : BUDGET_ATTEMPT, s->best) || optimal(s));
        }
    }
    a->pattern = pattern;
    return done;
}

static int try_types(struct search *s, struct rondo_attempt *a)
{
    for (int e = 0; e < s->ninter; e++) {
        a->type_inter = s->inter_types[e];
        if (s->best->nchannels > 0 && a->type_inter > s->best->type_inter && a->type_inter > RONDO_PATH_PXN) {
            break;
        }
        for (int i = 0; i < s->nintra; i++) {
            a->type_intra = s->intra_types[i];
            if (i > 0 && ((s->inter && a->type_intra > a->type_inter) ||
                          (s->best->nchannels > 0 && a->type_intra > s->best->type_intra))) {
                break;
            }
            if (try_patterns(s, a)) {
                return 1;
            }
        }
    }
    return 0;
}

static int try_rails(struct search *s, struct rondo_attempt *a)
{
    int wanted = s->inter && s->topo->nnets > 1 ? s->topo->options.cross_nic : 0;
    a->cross_nic = wanted == 1 ? 1 : 0;
    if (try_types(s, a)) {
        return 1;
    }
    a->cross_nic = 2;
    return wanted == 2 && a->pattern != RONDO_PATTERN_TREE && try_types(s, a);
}

/* Lower the speed until there is a graph, and further while half the speed may give more in total. */
static void fall(struct search *s, int pattern)
{
    struct rondo_attempt a = { .pattern = pattern,
                               .min_channels = s->min_channels,
                               .max_channels = s->max_channels };
    int32_t fastest = fastest_path(s);
    for (int i = 0; i < s->nspeeds; i++) {
        a.bw_intra = a.bw_inter = s->speed[i];
        if (s->speed[i] > fastest) {
            continue;
        }
        if (s->best->nchannels > 0 && (int64_t)s->speed[i] * 100 <= (int64_t)s->best->bw_inter * 49) {
            return;
        }
        if (try_rails(s, &a)) {
            return;
        }
    }
}

/* ---- improvements ---- */

static void double_channels(struct rondo_graph *g)
{
    size_t cells = (size_t)g->nchannels * (size_t)g->ndevs;
    memcpy(g->order + cells, g->order, cells * sizeof(*g->order));
    memcpy(g->net + 2 * (size_t)g->nchannels, g->net, 2 * (size_t)g->nchannels * sizeof(*g->net));
    g->nchannels *= 2;
    g->bw_intra /= 2;
    g->bw_inter /= 2;
}

/* Split fast channels in two, because two thread blocks move more than one. */
static void duplicate(struct search *s)
{
    struct rondo_graph *g = s->best;
    if (g->bw_intra >= 25000 && 2 * g->nchannels <= s->max_channels &&
        !(s->topo->min_sm > 80 && g->bw_intra < 50000 && g->nchannels > 4)) {
        double_channels(g);
    }
}

/* On one node, make a single ring two of half the speed: two trees use a link in both directions, but one
 * does not. */
static void split_single(struct search *s, struct rondo_graph *ring)
{
    if (ring->nchannels == 1 && s->max_channels > 1 && s->topo->options.nnodes == 1 && s->topo->ndevs > 1 &&
        s->topo->max_sm > 0) {
        double_channels(ring);
        rondo_graph_fit(s->topo, ring, s->scratch);
    }
}

/* Does the gain justify a change of the channels? More channels cost latency, so it must exceed 1/64. */
static int pays(int64_t now, int64_t then) { return then - now > now / 64; }

/* Run an attempt like the best graph except for what the caller sets; the fitted result is s->tried.
 * @return the channels' common speed, 0: fewer channels than requested. */
static int32_t try_like(struct search *s, struct rondo_attempt *a, int64_t budget)
{
    struct rondo_graph *g = &s->tried, *best = s->best;
    a->pattern = best->pattern;
    a->cross_nic = best->cross_nic;
    rondo_graph_copy(g, best);
    g->nchannels = 0;
    run(s, a, budget, g);
    best->steps = g->steps;
    best->searches = g->searches;
    return g->nchannels > 0 ? rondo_graph_fit(s->topo, g, s->scratch) : 0;
}

static int no_worse_paths(const struct rondo_graph *g, const struct rondo_graph *than)
{
    return g->type_intra <= than->type_intra && g->type_inter <= than->type_inter;
}

/* Try speeds that no table has: for each number of channels, the one that the bound allows, and slightly
 * less. */
static void improve(struct search *s)
{
    static const int percent[] = { 100, 97, 90 };
    struct rondo_graph *best = s->best;
    for (int n = s->min_channels; n <= s->max_channels && n <= 16 && s->budget > 0; n++) {
        for (size_t p = 0; p < RONDO_COUNTOF(percent) && !optimal(s); p++) {
            int64_t speed = (int64_t)best->bound / n * percent[p] / 100;
            struct rondo_attempt a = { .type_intra = best->type_intra,
                                       .type_inter = best->type_inter,
                                       .min_channels = n,
                                       .max_channels = n };
            a.bw_intra = a.bw_inter = (int32_t)speed;
            if (!pays(best->found, speed * n) || !worth(s, &a)) {
                break;
            }
            if (try_like(s, &a, BUDGET_IMPROVE) > 0 && pays(best->found, s->tried.found) &&
                no_worse_paths(&s->tried, best)) {
                rondo_graph_copy(best, &s->tried);
            }
        }
    }
}

/* A tree is better if it has more bandwidth in total. It also is if it has as much, more of it inside the
 * node, and no worse paths. */
static int better_tree(const struct rondo_graph *g, const struct rondo_graph *best)
{
    return best->nchannels == 0 || pays(best->found, g->found) ||
           (g->found >= best->found && g->bw_intra > best->bw_intra && no_worse_paths(g, best));
}

/* Find as much bandwidth over better paths. */
static void improve_types(struct search *s)
{
    struct rondo_graph *best = s->best;
    for (int e = 0; e < s->ninter && s->inter_types[e] < best->type_inter && s->budget > 0; e++) {
        struct rondo_attempt a = { .bw_intra = best->bw_intra,
                                   .bw_inter = best->bw_inter,
                                   .type_intra = best->type_intra };
        a.type_inter = s->inter_types[e];
        a.min_channels = a.max_channels = best->nchannels;
        if (try_like(s, &a, BUDGET_ATTEMPT) >= best->bw_inter) {
            rondo_graph_copy(best, &s->tried);
            return;
        }
    }
}

/* Trees move twice as many bytes inside a node as between nodes: find orders that leave room for it. */
static void improve_inside(struct search *s)
{
    struct rondo_graph *best = s->best;
    for (int i = 0; i < s->nspeeds && best->bw_intra < 2 * best->bw_inter && s->budget > 0; i++) {
        struct rondo_attempt a = { .bw_intra = s->speed[i],
                                   .bw_inter = best->bw_inter,
                                   .type_intra = best->type_intra };
        if (s->speed[i] > 2 * best->bw_inter || s->speed[i] <= best->bw_intra) {
            continue;
        }
        a.type_inter = best->type_inter;
        a.min_channels = a.max_channels = best->nchannels;
        if (try_like(s, &a, BUDGET_ATTEMPT) >= best->bw_inter && better_tree(&s->tried, best)) {
            rondo_graph_copy(best, &s->tried);
            return;
        }
    }
}

/* ---- a tree from the ring's channels ---- */

/* A ring's channels always give a tree, and often one that is as good. ROTATED: channel c starts c places
 * further on. MIRRORED: odd channels are the even ones reversed. SPREAD: devices that are equally near to
 * their nets take turns in being first. */
enum variant { AS_IS, ROTATED, MIRRORED, SPREAD };

/* @return where a channel starts in its ring: at the device, of those nearest to the net, that was first
 * least often. */
static int spread_start(const struct search *s, const int16_t *order, int net, const int16_t *starts)
{
    const struct rondo_topo_path *best = NULL;
    int at = 0, from = net >= 0 ? rondo_topo_net_point(s->topo, net) : -1;
    for (int i = 0; from >= 0 && i < s->topo->ndevs; i++) {
        const struct rondo_topo_path *p = rondo_topo_path(s->topo, from, order[i]);
        int nearer = best == NULL || p->type < best->type || (p->type == best->type && p->mbs > best->mbs);
        if (nearer ||
            (p->type == best->type && p->mbs == best->mbs && starts[order[i]] < starts[order[at]])) {
            best = p;
            at = i;
        }
    }
    return at;
}

static int ring_position(enum variant variant, int c, int begin, int i, int n)
{
    switch (variant) {
    case ROTATED: return (i + c) % n;
    case MIRRORED: return c & 1 ? n - 1 - i : i;
    case SPREAD: return (i + begin) % n;
    default: return i;
    }
}

static void try_from_ring(struct search *s, const struct rondo_graph *ring, int pattern, enum variant variant)
{
    struct rondo_graph *g = &s->tried;
    int16_t starts[RONDO_TOPO_MAX_LOCAL] = { 0 };
    int n = ring->ndevs;
    g->id = RONDO_GRAPH_TREE;
    g->pattern = pattern;
    g->nchannels = ring->nchannels;
    g->cross_nic = 0;
    g->same_channels = variant == AS_IS && ring->same_channels;
    g->fallback = ring->fallback;
    for (int c = 0; c < ring->nchannels; c++) {
        int from = variant == MIRRORED ? c & ~1 : c,
            begin = spread_start(s, ring->order + (size_t)c * (size_t)n, ring->net[2 * c], starts);
        for (int i = 0; i < n; i++) {
            g->order[c * n + i] = ring->order[from * n + ring_position(variant, c, begin, i, n)];
        }
        starts[g->order[c * n]]++;
        g->net[2 * c] = g->net[2 * c + 1] = ring->net[2 * from + (variant == MIRRORED && (c & 1))];
    }
    if (rondo_graph_fit(s->topo, g, s->scratch) > 0 && better_tree(g, s->best)) {
        g->steps = s->best->steps;
        g->searches = s->best->searches;
        g->bound = s->best->bound;
        g->bound_cut = s->best->bound_cut;
        g->bound_at = s->best->bound_at;
        rondo_graph_copy(s->best, g);
    }
}

static void from_ring(struct search *s, const struct rondo_graph *ring)
{
    int simple = s->inter && (ring->ndevs < 2 || s->topo->min_sm >= 90);
    for (int variant = AS_IS; variant <= SPREAD; variant++) {
        if (!simple) {
            try_from_ring(s, ring, RONDO_PATTERN_BALANCED_TREE, (enum variant)variant);
        }
        try_from_ring(s, ring, RONDO_PATTERN_TREE, (enum variant)variant);
    }
}

/* ---- one graph ---- */

static void improve_all(struct search *s, int tree)
{
    s->budget = BUDGET_AFTER + (int64_t)BUDGET_DEVICE * s->topo->ndevs;
    if (!optimal(s)) {
        improve(s);
    }
    if (s->inter) {
        improve_types(s);
    }
    if (s->inter && tree) {
        improve_inside(s);
    }
}

static void search_init(struct search *s, struct rondo_graph *best, int id, const struct rondo_graph *ring)
{
    const struct rondo_topo_options *options = &s->topo->options;
    int most = options->max_channels > 0 && options->max_channels < RONDO_TOPO_CHANNELS
                   ? options->max_channels
                   : RONDO_TOPO_CHANNELS;
    if (most > RONDO_SEARCH_MAX_PLACED / s->topo->ndevs) {
        most = RONDO_SEARCH_MAX_PLACED / s->topo->ndevs;
    }
    s->best = best;
    s->budget = BUDGET + (int64_t)BUDGET_DEVICE * s->topo->ndevs;
    s->min_channels = ring != NULL ? ring->nchannels : options->min_channels > 1 ? options->min_channels : 1;
    s->max_channels = ring != NULL ? ring->nchannels : most;
    s->min_channels = s->min_channels < s->max_channels ? s->min_channels : s->max_channels;
    best->id = id;
    best->pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING
                    : s->topo->ndevs == 1  ? RONDO_PATTERN_TREE
                                           : RONDO_PATTERN_BALANCED_TREE;
    best->nchannels = 0;
    best->type_intra = best->type_inter = RONDO_PATH_DIS;
}

/* Skip the search: on host memory the order by place is optimal, and with very many PCI devices any search
 * takes too long. */
static int by_place(const struct rondo_topo *topo)
{
    return (topo->max_sm == 0 && !topo->all_gpus) || (topo->ndevs > MOST_SEARCHED && topo->nnvs == 0);
}

static rondo_status search_graph(struct search *s, struct rondo_graph *best, int id,
                                 const struct rondo_graph *ring)
{
    search_init(s, best, id, ring);
    RONDO_TRY(rondo_topo_bound(s->topo, best, ring != NULL ? ring->nchannels : 0));
    if (s->lay == NULL) {
        RONDO_TRY(rondo_graph_lay_by_place(s->topo, best, s->inter, s->min_channels, s->scratch));
    } else if (s->topo->ndevs > 1 || s->inter) {
        fall(s, best->pattern);
        if (best->nchannels > 0 && ring == NULL) {
            duplicate(s);
        }
        rondo_graph_fit(s->topo, best, s->scratch);
    }
    if (best->nchannels == 0) {
        best->fallback = s->topo->ndevs > 1 || s->inter;
        RONDO_TRY(rondo_graph_lay_by_place(s->topo, best, s->inter, s->min_channels, s->scratch));
    }
    if (ring != NULL && s->lay != NULL && s->topo->ndevs > 1) {
        from_ring(s, ring);
    }
    if (s->lay != NULL && s->topo->ndevs > 1) {
        improve_all(s, ring != NULL);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_topo_search(const struct rondo_topo *topo, struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    struct search s = { .topo = topo, .inter = topo->options.nnodes > 1 && topo->nnets > 0 };
    rondo_status status;
    if (!by_place(topo)) {
        RONDO_TRY_GOTO(rondo_lay_create(&s.lay, topo), out);
    }
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(s.scratch, 2 * topo->nlinks + 1, "the search"), out);
    RONDO_TRY_GOTO(rondo_graph_alloc(&s.tried, topo->ndevs), out);
    pick_speeds(&s);
    list_types(&s);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        RONDO_TRY_GOTO(rondo_graph_alloc(&graphs[id], topo->ndevs), out);
    }
    RONDO_TRY_GOTO(search_graph(&s, &graphs[RONDO_GRAPH_RING], RONDO_GRAPH_RING, NULL), out);
    split_single(&s, &graphs[RONDO_GRAPH_RING]);
    RONDO_TRY_GOTO(search_graph(&s, &graphs[RONDO_GRAPH_TREE], RONDO_GRAPH_TREE, &graphs[RONDO_GRAPH_RING]),
                   out);
out:
    rondo_graph_release(&s.tried);
    rondo_free(s.scratch);
    rondo_lay_destroy(s.lay);
    for (int id = 0; status != RONDO_SUCCESS && id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
    return status;
}
