/* Compare rings and trees over nodes with a direct implementation of their definitions. */
#include "topo_job.h"

#include "layout/double_tree.h"
#include "topo/stitch_impl.h"

/* ---- the definitions ---- */

struct expect {
    int nchannels, base; /* of the job, of a node's graphs */
    int ring[MAX_RANKS];
    int parent[MAX_RANKS], root, depth;
};

static const struct kind *kind_at(const struct job *job, int position)
{
    return &job->kind[job->kind_of[job->at[position]]];
}

static void expect_channels(const struct job *job, struct expect *e)
{
    int sm = 1000, bw = 1 << 30;
    e->base = RONDO_TOPO_CHANNELS;
    for (int i = 0; i < job->nnodes; i++) {
        const struct kind *k = kind_at(job, i);
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            e->base = k->graph[id].nchannels < e->base ? k->graph[id].nchannels : e->base;
        }
        sm = k->graph[0].min_sm < sm ? k->graph[0].min_sm : sm;
        bw = k->graph[0].bw_intra < bw ? k->graph[0].bw_intra : bw;
    }
    e->nchannels = 2 * e->base;
    if (!job->input.host_trees && job->nnodes > 1 && sm >= 90 && bw > 45000 && e->nchannels < 16) {
        e->nchannels *= 2;
    }
    if (job->input.max_channels > 0 && e->nchannels > job->input.max_channels) {
        e->nchannels = job->input.max_channels;
    }
}

static int ring_row(const struct job *job, const struct expect *e, int position, int channel)
{
    int c = channel % e->base;
    int last_odd = c == e->base - 1 && e->base % 2 == 1;
    return kind_at(job, position)->graph[0].cross_nic == 2 && position % 2 == 1 && !last_odd
               ? (c % 2 == 0 ? c + 1 : c - 1)
               : c;
}

static void expect_ring(const struct job *job, struct expect *e, int channel)
{
    int n = 0;
    for (int p = 0; p < job->nnodes; p++) {
        const struct kind *k = kind_at(job, p);
        const int16_t *order = k->graph[0].order + ring_row(job, e, p, channel) * k->ndevs;
        for (int i = 0; i < k->ndevs; i++) {
            e->ring[n++] = job->rank_of[job->at[p]][order[i]];
        }
    }
}

/* @return the parent of a position in one of the two trees over n, and whether it is its left child. The
 * root's only child is a right one. */
static int tree_parent(int n, int which, int i, int *left)
{
    int bit = 1, up, j = which == 0 ? i : n % 2 == 0 ? n - 1 - i : (i - 1 + n) % n;
    if (j == 0) {
        return -1;
    }
    while (!(j & bit)) {
        bit <<= 1;
    }
    up = (j ^ bit) | bit << 1;
    up = up >= n ? j ^ bit : up;
    *left = j < up;
    return which == 0 ? up : n % 2 == 0 ? n - 1 - up : (up + 1) % n;
}

static void expect_tree(const struct job *job, struct expect *e, int channel)
{
    int flat = job->input.host_trees && job->nnodes == 1, which = flat ? channel % 2 : channel / e->base % 2,
        left = 0;
    for (int p = 0; p < job->nnodes; p++) {
        const struct kind *k = kind_at(job, p);
        const int *rank = job->rank_of[job->at[p]];
        const int16_t *order = flat ? k->graph[0].order : k->graph[1].order + channel % e->base * k->ndevs;
        for (int i = 0; i < k->ndevs; i++) {
            int lead = !flat && k->ndevs > 1; /* the second place is below the first */
            int up = job->input.host_trees && i >= lead
                         ? lead + tree_parent(k->ndevs - lead, flat ? which : 0, i - lead, &left)
                         : i - 1;
            e->parent[rank[order[i]]] = up < 0 ? -1 : rank[order[up]];
        }
        int q = tree_parent(job->nnodes, which, p, &left);
        if (q >= 0) {
            const struct kind *above = kind_at(job, q);
            int pattern = above->graph[1].pattern;
            pattern = job->input.host_trees ? RONDO_PATTERN_BALANCED_TREE
                                            : pattern; /* so that no rank has too many neighbours */
            int place = pattern == RONDO_PATTERN_SPLIT_TREE ||
                                (pattern == RONDO_PATTERN_BALANCED_TREE && left)
                            ? above->ndevs > 1
                            : 0;
            e->parent[rank[order[0]]] =
                job->rank_of[job->at[q]][above->graph[1].order[channel % e->base * above->ndevs + place]];
        }
    }
    e->depth = 0;
    for (int r = 0; r < job->nranks; r++) {
        int hops = 0;
        for (int up = r; e->parent[up] >= 0 && hops <= job->nranks; hops++) {
            up = e->parent[up];
        }
        e->depth = hops > e->depth ? hops : e->depth;
        e->root = e->parent[r] < 0 ? r : e->root;
    }
}

/* ---- compare one channel ---- */

static void channel_is_as_expected(const struct job *job, const struct rondo_stitch *stitch,
                                   const struct expect *e, int channel)
{
    struct rondo_channel_layout view;
    int32_t ring[MAX_RANKS];
    int n = job->nranks, nedges = 0;
    rondo_stitch_ring(stitch, channel, ring);
    for (int i = 0; i < n; i++) {
        int r = e->ring[i];
        memset(&view, 0x55, sizeof view);
        rondo_stitch_channel(stitch, r, channel, &view);
        assert_int_equal(ring[i], r);
        assert_int_equal(view.ring.index, i);
        assert_int_equal(view.ring.next, e->ring[(i + 1) % n]);
        assert_int_equal(view.ring.prev, e->ring[(i + n - 1) % n]);
        assert_null(view.ring.rank_at);
        assert_null(view.ring.index_of);
        assert_int_equal(view.tree.parent, e->parent[r]);
        assert_int_equal(view.tree.root, e->root);
        assert_int_equal(view.tree.depth, e->depth);
        assert_in_range(view.tree.nchildren, 0, RONDO_TREE_FAN);
        for (int k = 0; k < RONDO_TREE_FAN; k++) {
            assert_true(k < view.tree.nchildren ? e->parent[view.tree.child[k]] == r
                                                : view.tree.child[k] == -1);
            assert_true(k == 0 || k >= view.tree.nchildren || view.tree.child[k] != view.tree.child[k - 1]);
        }
        nedges += view.tree.nchildren;
        assert_true(view.tree.nchildren + (view.tree.parent >= 0) <= RONDO_TREE_FAN ||
                    (!job->input.host_trees && rondo_stitch_summary(stitch)->wide_trees));
    }
    assert_int_equal(nedges, n - 1);
}

/* Following `toward` leads from one rank to another in at most the hops up and down the tree. */
static void toward_leads_there(const struct job *job, const struct rondo_stitch *stitch,
                               const struct expect *e, int channel)
{
    for (int k = 0; k < 10; k++) {
        int at = draw(job->nranks), to = draw(job->nranks), hops = 0, way;
        for (; (way = rondo_stitch_toward(stitch, at, channel, to)) >= 0 && hops <= 2 * e->depth; hops++) {
            struct rondo_channel_layout view;
            rondo_stitch_channel(stitch, at, channel, &view);
            assert_true(way <= view.tree.nchildren);
            at = way == 0 ? view.tree.parent : view.tree.child[way - 1];
        }
        assert_int_equal(way, -1);
        assert_int_equal(at, to);
    }
}

static void nets_are_as_expected(const struct job *job, const struct rondo_stitch *stitch,
                                 const struct expect *e, int channel)
{
    for (int p = 0, i = 0; p < job->nnodes; p++) {
        const struct kind *k = kind_at(job, p);
        const int16_t *net = k->graph[0].net + 2 * ring_row(job, e, p, channel);
        for (int d = 0; d < k->ndevs; d++, i++) {
            int r = e->ring[i], leaves = job->nnodes > 1;
            int across = e->parent[r] >= 0 && job->rank[e->parent[r]].node != job->rank[r].node;
            assert_int_equal(rondo_stitch_net(stitch, r, channel, 0), leaves && d == 0 ? net[0] : -1);
            assert_int_equal(rondo_stitch_net(stitch, r, channel, 1),
                             leaves && d == k->ndevs - 1 ? net[1] : -1);
            if (across) { /* the root of a node and its parent on another one both have a net, if their nodes
                             have */
                int up = e->parent[r], above = job->kind_of[job->rank[up].node], c = channel % e->base;
                const struct kind *a = &job->kind[above];
                int first = a->graph[1].order[c * a->ndevs] == job->rank[up].local;
                assert_int_equal(rondo_stitch_tree_net(stitch, r, channel), k->graph[1].net[2 * c]);
                assert_int_equal(rondo_stitch_tree_net(stitch, up, channel), a->graph[1].net[2 * c + !first]);
            }
        }
    }
}

/* All ranks know the names of a node's nets. */
static void nets_have_their_names(const struct job *job, const struct rondo_stitch *stitch)
{
    for (int r = 0; r < job->nranks; r++) {
        const struct kind *k = &job->kind[job->kind_of[job->rank[r].node]];
        assert_null(rondo_stitch_net_name(stitch, r, -1));
        assert_null(rondo_stitch_net_name(stitch, r, k->nnets));
        for (int net = 0; net < k->nnets; net++) {
            const char *name = rondo_stitch_net_name(stitch, r, net);
            assert_true(k->net[net].name[0] == '\0' ? name == NULL
                                                    : name != NULL && strcmp(name, k->net[net].name) == 0);
            assert_int_equal(rondo_stitch_rail(stitch, r, net), k->net[net].rail);
        }
    }
}

static void rings_are_shared_when_equal(const struct job *job, const struct rondo_stitch *stitch,
                                        int nchannels)
{
    int32_t ring[2][MAX_RANKS];
    for (int c = 0; c < nchannels; c++) {
        int first = -1;
        rondo_stitch_ring(stitch, c, ring[0]);
        for (int b = 0; b <= c && first < 0; b++) {
            rondo_stitch_ring(stitch, b, ring[1]);
            first = memcmp(ring[0], ring[1], sizeof(int32_t) * (size_t)job->nranks) == 0 ? b : -1;
        }
        assert_int_equal(rondo_stitch_ring_of(stitch, c), first);
    }
}

static void summary_is_merged(const struct job *job, const struct rondo_stitch_summary *sum,
                              const struct expect *e)
{
    assert_int_equal(sum->nchannels, e->nchannels);
    assert_int_equal(sum->nnodes, job->nnodes);
    assert_int_equal(sum->nranks, job->nranks);
    assert_int_equal(sum->network_order, job->input.fabric != NULL);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        int bw = 1 << 30, type = -1, least = MAX_DEVS, most = 0, cpus = 0, family = 1 << 30, cache = 0;
        for (int p = 0; p < job->nnodes; p++) {
            const struct kind *k = kind_at(job, p);
            bw = k->graph[id].bw_inter < bw ? k->graph[id].bw_inter : bw;
            type = k->graph[id].type_inter > type ? k->graph[id].type_inter : type;
            cpus |= k->graph[id].cpus;
            family = k->graph[id].family < family ? k->graph[id].family : family;
            cache = cache == 0 || (k->graph[id].cache > 0 && k->graph[id].cache < cache)
                        ? k->graph[id].cache
                        : cache; /* 0: unknown */
            least = k->ndevs < least ? k->ndevs : least;
            most = k->ndevs > most ? k->ndevs : most;
        }
        assert_int_equal(sum->graph[id].nchannels, e->base);
        assert_int_equal(sum->graph[id].bw_inter, bw);
        assert_int_equal(sum->graph[id].type_inter, type);
        assert_int_equal(sum->graph[id].cpus, cpus);
        assert_int_equal(sum->graph[id].family, family);
        assert_int_equal(sum->graph[id].cache, cache);
        assert_null(sum->graph[id].order);
        assert_int_equal(sum->min_local, least);
        assert_int_equal(sum->max_local, most);
    }
}

static void job_is_as_expected(struct job *job)
{
    struct rondo_stitch *stitch;
    struct expect *e = calloc(1, sizeof(*e));
    assert_non_null(e);
    assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
    expect_channels(job, e);
    summary_is_merged(job, rondo_stitch_summary(stitch), e);
    for (int c = 0; c < e->nchannels; c++) {
        expect_ring(job, e, c);
        expect_tree(job, e, c);
        channel_is_as_expected(job, stitch, e, c);
        toward_leads_there(job, stitch, e, c);
        nets_are_as_expected(job, stitch, e, c);
    }
    rings_are_shared_when_equal(job, stitch, e->nchannels);
    nets_have_their_names(job, stitch);
    assert_int_equal(rondo_stitch_check(stitch), RONDO_SUCCESS);
    rondo_stitch_destroy(stitch);
    free(e);
}

static void random_jobs_match_the_definitions(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        struct job *job = job_new();
        seed = 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1);
        job_draw(job);
        job_is_as_expected(job);
        job_free(job);
    }
}

/* ---- examples ---- */

static void stitch_two(struct job *job, struct rondo_stitch **stitch)
{
    int kinds[2] = { 0, job->nkinds - 1 };
    for (int k = 0; k < job->nkinds; k++) {
        kind_pack(&job->kind[k]);
    }
    job_lay(job, kinds, 2, 0);
    assert_int_equal(rondo_stitch_create(stitch, &job->input), RONDO_SUCCESS);
}

/* Two nodes of eight GPUs and one net each. */
static void two_nodes_of_eight_gpus_form_one_ring(void **state)
{
    static const int16_t order[2][8] = { { 0, 7, 6, 3, 2, 5, 4, 1 }, { 2, 1, 0, 5, 4, 7, 6, 3 } };
    static const int32_t ring[16] = { 0, 7, 6, 3, 2, 5, 4, 1, 10, 9, 8, 13, 12, 15, 14, 11 };
    struct job *job = job_new();
    struct rondo_stitch *stitch;
    int32_t found[16];
    (void)state;
    job->nkinds = 2;
    for (int k = 0; k < 2; k++) {
        kind_init(&job->kind[k], 8, 1, 1, RONDO_PATTERN_BALANCED_TREE);
        memcpy(job->kind[k].order[RONDO_GRAPH_RING], order[k], sizeof order[k]);
    }
    stitch_two(job, &stitch);
    rondo_stitch_ring(stitch, 0, found);
    assert_memory_equal(found, ring, sizeof ring);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(rondo_stitch_net(stitch, ring[i], 0, 0), i % 8 == 0 ? 0 : -1);
        assert_int_equal(rondo_stitch_net(stitch, ring[i], 0, 1), i % 8 == 7 ? 0 : -1);
    }
    assert_int_equal(rondo_stitch_summary(stitch)->nchannels, 2);
    assert_int_equal(rondo_stitch_ring_of(stitch, 1), 0);
    rondo_stitch_destroy(stitch);
    job_free(job);
}

/* Eight GPUs with a net each, rings in mirrored pairs: in at net 2k and out at 2k - 1, and the reverse. */
static void mirrored_channels_stay_on_their_rail(void **state)
{
    (void)state;
    for (int nnodes = 2; nnodes <= 10; nnodes += 2) {
        struct job *job = job_new();
        struct rondo_stitch *stitch;
        int kinds[MAX_NODES] = { 0 };
        int32_t ring[MAX_RANKS];
        job->nkinds = 1;
        kind_init(&job->kind[0], 8, 8, 8, RONDO_PATTERN_TREE);
        job->kind[0].graph[RONDO_GRAPH_RING].cross_nic = 2;
        for (int c = 0; c < 8; c++) {
            for (int i = 0; i < 8; i++) {
                job->kind[0].order[0][c * 8 + i] = (int16_t)((c / 2 * 2 + (c % 2 ? 7 - i : i)) % 8);
            }
            job->kind[0].graph[0].net[2 * c] = job->kind[0].order[0][c * 8];
            job->kind[0].graph[0].net[2 * c + 1] = job->kind[0].order[0][c * 8 + 7];
        }
        kind_pack(&job->kind[0]);
        seed = 77;
        job_lay(job, kinds, nnodes, 1);
        job_use_keys(job);
        assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
        assert_int_equal(rondo_stitch_check(stitch), RONDO_SUCCESS);
        for (int c = 0; c < rondo_stitch_summary(stitch)->nchannels; c++) {
            rondo_stitch_ring(stitch, c, ring);
            for (int i = 7; i < job->nranks; i += 8) {
                int from = ring[i], to = ring[(i + 1) % job->nranks];
                int out = rondo_stitch_rail(stitch, from, rondo_stitch_net(stitch, from, c, 1));
                assert_in_range(out, 0, 7);
                assert_int_equal(out, rondo_stitch_rail(stitch, to, rondo_stitch_net(stitch, to, c, 0)));
            }
        }
        rondo_stitch_destroy(stitch);
        job_free(job);
    }
}

static int most_neighbours(const struct job *job, const struct rondo_stitch *stitch)
{
    int most = 0;
    for (int c = 0; c < rondo_stitch_summary(stitch)->nchannels; c++) {
        for (int r = 0; r < job->nranks; r++) {
            struct rondo_channel_layout view;
            rondo_stitch_channel(stitch, r, c, &view);
            int n = view.tree.nchildren + (view.tree.parent >= 0);
            most = n > most ? n : most;
        }
    }
    return most;
}

/* One more than a step of a call with a root has room for. */
static void trees_where_a_rank_has_four_neighbours_are_wide(void **state)
{
    static const int patterns[] = { RONDO_PATTERN_TREE, RONDO_PATTERN_SPLIT_TREE,
                                    RONDO_PATTERN_BALANCED_TREE };
    int nwide = 0;
    (void)state;
    for (int i = 0; i < 3 * 8 * 3; i++) {
        struct job *job = job_new();
        struct rondo_stitch *stitch;
        int kinds[MAX_NODES] = { 0 };
        job->nkinds = 1;
        kind_init(&job->kind[0], 1 + i / 3 % 3 + (i / 3 % 3 == 2), 1, 1, patterns[i % 3]); /* 1, 2, 4 GPUs */
        kind_pack(&job->kind[0]);
        job_lay(job, kinds, 1 + i / 9, 0);
        assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
        assert_int_equal(rondo_stitch_summary(stitch)->wide_trees,
                         most_neighbours(job, stitch) > RONDO_TREE_FAN);
        nwide += rondo_stitch_summary(stitch)->wide_trees;
        rondo_stitch_destroy(stitch);
        job_free(job);
    }
    assert_int_equal(nwide, 5 * (2 + 1)); /* 4 to 8 nodes; TREE of 2 or 4 GPUs, SPLIT_TREE of 4 */
}

/* Ranks on host memory of one node use double trees over the ring of channel 0: tree c & 1 for channel c. */
static void host_memory_of_one_node_uses_double_trees_over_its_ring(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_DEVS; n++) {
        struct job *job = job_new();
        struct rondo_stitch *stitch;
        int kinds[1] = { 0 };
        job->nkinds = 1;
        kind_init(&job->kind[0], n, 0, 3, RONDO_PATTERN_TREE);
        seed = 5;
        shuffle16(job->kind[0].order[0], n);
        kind_pack(&job->kind[0]);
        job_lay(job, kinds, 1, 1);
        job->input.host_trees = 1;
        assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
        assert_int_equal(rondo_stitch_summary(stitch)->nchannels, 6);
        int32_t ring[MAX_DEVS];
        rondo_stitch_ring(stitch, 0, ring);
        for (int c = 0; c < 6; c++) {
            for (int i = 0; i < n; i++) {
                struct rondo_channel_layout view;
                int parent, child[2], nchildren;
                rondo_double_tree(n, c & 1, i, &parent, child, &nchildren);
                rondo_stitch_channel(stitch, ring[i], c, &view);
                assert_int_equal(view.tree.parent, parent < 0 ? -1 : ring[parent]);
                assert_int_equal(view.tree.nchildren, nchildren);
                for (int k = 0; k < nchildren; k++) {
                    assert_int_equal(view.tree.child[k], ring[child[k]]);
                }
                assert_int_equal(view.tree.root, ring[rondo_double_tree_root(n, c & 1)]);
            }
        }
        rondo_stitch_destroy(stitch);
        job_free(job);
    }
}

/* Every node is a leaf in exactly one tree over nodes, except that with an odd number one node is inner in
 * both; no path is longer than necessary. */
static void node_is_leaf_in_exactly_one_tree(void **state)
{
    (void)state;
    for (int nnodes = 2; nnodes <= MAX_NODES; nnodes++) {
        struct job *job = job_new();
        struct rondo_stitch *stitch;
        int kinds[MAX_NODES] = { 0 }, once = 0, both_inner = 0, log2 = 0;
        job->nkinds = 1;
        kind_init(&job->kind[0], 1, 1, 1, RONDO_PATTERN_TREE);
        kind_pack(&job->kind[0]);
        job_lay(job, kinds, nnodes, 1);
        assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
        while (1 << log2 < nnodes) {
            log2++;
        }
        for (int r = 0; r < nnodes; r++) {
            struct rondo_channel_layout view[2];
            rondo_stitch_channel(stitch, r, 0, &view[0]);
            rondo_stitch_channel(stitch, r, 1, &view[1]);
            int leaves = (view[0].tree.nchildren == 0) + (view[1].tree.nchildren == 0);
            once += leaves == 1;
            both_inner += leaves == 0;
            assert_true(view[0].tree.depth <= log2 && view[1].tree.depth <= log2);
            assert_int_not_equal(view[0].tree.root, view[1].tree.root);
        }
        assert_int_equal(both_inner, nnodes % 2);
        assert_int_equal(once, nnodes - nnodes % 2);
        rondo_stitch_destroy(stitch);
        job_free(job);
    }
}

/* ---- channels ---- */

static int channels_of(int nchannels, int sm, int bw, int nnodes, int host, int most)
{
    struct job *job = job_new();
    struct rondo_stitch *stitch;
    int kinds[4] = { 0 };
    job->nkinds = 1;
    kind_init(&job->kind[0], 4, 4, nchannels, RONDO_PATTERN_TREE);
    job->kind[0].graph[0].min_sm = sm;
    job->kind[0].graph[0].bw_intra = bw;
    kind_pack(&job->kind[0]);
    job_lay(job, kinds, nnodes, 0);
    job->input.host_trees = host;
    job->input.max_channels = most;
    assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
    assert_int_equal(rondo_stitch_check(stitch), RONDO_SUCCESS);
    int n = rondo_stitch_summary(stitch)->nchannels;
    rondo_stitch_destroy(stitch);
    job_free(job);
    return n;
}

static void channels_are_doubled_and_limited(void **state)
{
    (void)state;
    assert_int_equal(channels_of(4, 80, 48000, 2, 0, 0), 8);
    assert_int_equal(channels_of(4, 90, 48000, 2, 0, 0), 16);
    assert_int_equal(channels_of(4, 90, 45000, 2, 0, 0), 8);
    assert_int_equal(channels_of(4, 90, 48000, 1, 0, 0), 8);
    assert_int_equal(channels_of(4, 90, 48000, 2, 1, 0), 8);
    assert_int_equal(channels_of(8, 90, 48000, 2, 0, 0), 16);
    assert_int_equal(channels_of(32, 90, 48000, 2, 0, 0), 64);
    assert_int_equal(channels_of(32, 90, 48000, 2, 0, 100), 64);
    assert_int_equal(channels_of(4, 90, 48000, 2, 0, 3), 3);
    assert_int_equal(channels_of(1, 0, 5000, 2, 1, 1), 1);
}

/* ---- keys of the network ---- */

static void nodes_of_a_switch_sort_together(void **state)
{
    static const char *const order[] = { "s0.s2.a", "s0.s4.b", "s0.s10.c", "s1.s2.d", "s1.s4.e", "s12.s1.f" };
    uint64_t key[6];
    (void)state;
    assert_int_equal(rondo_fabric_key(NULL), 0);
    assert_int_equal(rondo_fabric_key(""), 0);
    assert_int_equal(rondo_fabric_key("node7"), 0);
    assert_true(rondo_fabric_key("s0.s4.node7") == rondo_fabric_key("s0.s4.node8"));
    assert_true(rondo_fabric_key("leaf.n") != 0);
    for (int i = 0; i < 6; i++) {
        key[i] = rondo_fabric_key(order[i]);
        assert_true(i == 0 || key[i - 1] < key[i]);
    }
    assert_true(key[0] >> 43 == key[1] >> 43 && key[0] >> 43 != key[3] >> 43);
    /* With more levels than fit, the lowest ones still count; equal names below different switches are
     * different switches. */
    assert_true(rondo_fabric_key("a.b.c.d1.n") != rondo_fabric_key("a.b.c.d2.n"));
    assert_true(rondo_fabric_key("a.b.c.d1.n") == rondo_fabric_key("a.b.c.d1.m"));
    assert_true(rondo_fabric_key("a.x.c.d1.n") != rondo_fabric_key("a.b.c.d1.n"));
    assert_true(rondo_fabric_key("rack99999999999999999999999.n") != 0);
    assert_true(rondo_fabric_key("...") != 0);
}

static void useless_keys_leave_the_order(void **state)
{
    static const struct {
        uint64_t key[3];
        int network;
    } cases[] = {
        { { 5, 5, 5 }, 0 }, { { 0, 0, 0 }, 0 }, { { 0, 0, 5 }, 0 }, { { 0, 5, 5 }, 1 }, { { 7, 5, 0 }, 1 }
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct job *job = job_new();
        struct rondo_stitch *stitch;
        int kinds[3] = { 0 };
        int32_t ring[3];
        job->nkinds = 1;
        kind_init(&job->kind[0], 1, 1, 1, RONDO_PATTERN_TREE);
        kind_pack(&job->kind[0]);
        job_lay(job, kinds, 3, 0);
        job->input.fabric = cases[i].key;
        assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
        assert_int_equal(rondo_stitch_summary(stitch)->network_order, cases[i].network);
        rondo_stitch_ring(stitch, 0, ring);
        assert_int_equal(ring[0], i == 4 ? 2 : 0);
        rondo_stitch_destroy(stitch);
        job_free(job);
    }
}

/* ---- the check ---- */

/* The check must detect each change of a stitch's contents. */
static void check_detects_every_corruption(void **state)
{
    (void)state;
    struct job *job = job_new();
    struct rondo_stitch *s;
    int kinds[5] = { 0 };
    job->nkinds = 1;
    kind_init(&job->kind[0], 4, 1, 2, RONDO_PATTERN_BALANCED_TREE);
    kind_pack(&job->kind[0]);
    job_lay(job, kinds, 5, 0);
    assert_int_equal(rondo_stitch_create(&s, &job->input), RONDO_SUCCESS);
#define BREAK(what, value)                                             \
    do {                                                               \
        __typeof__(what) whole = what;                                 \
        what = value;                                                  \
        assert_int_equal(rondo_stitch_check(s), RONDO_INTERNAL_ERROR); \
        what = whole;                                                  \
        assert_int_equal(rondo_stitch_check(s), RONDO_SUCCESS);        \
    } while (0)
    BREAK(s->rank_of[5], 6);
    BREAK(s->local_of[5], 2);
    BREAK(s->node_of[5], 3);
    BREAK(s->start[2], 7);
    BREAK(s->position[1], 2);
    BREAK(s->node_at[1], 2);
    BREAK(s->depth[1], s->depth[1] + 1);
    BREAK(s->shape[0].order[RONDO_GRAPH_RING][1], 2);
    BREAK(s->shape[0].order[RONDO_GRAPH_TREE][5], 2);
    BREAK(s->shape[0].place[RONDO_GRAPH_TREE][6], 1);
    BREAK(s->shape[0].place[RONDO_GRAPH_RING][6], 1);
#undef BREAK
    assert_says("channel ");
    rondo_stitch_destroy(s);
    job_free(job);
}

int main(void)
{
    rondo_log_mask = RONDO_LOG_NONE; /* tests check the sentences */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_jobs_match_the_definitions),
        cmocka_unit_test(two_nodes_of_eight_gpus_form_one_ring),
        cmocka_unit_test(mirrored_channels_stay_on_their_rail),
        cmocka_unit_test(trees_where_a_rank_has_four_neighbours_are_wide),
        cmocka_unit_test(host_memory_of_one_node_uses_double_trees_over_its_ring),
        cmocka_unit_test(node_is_leaf_in_exactly_one_tree),
        cmocka_unit_test(channels_are_doubled_and_limited),
        cmocka_unit_test(nodes_of_a_switch_sort_together),
        cmocka_unit_test(useless_keys_leave_the_order),
        cmocka_unit_test(check_detects_every_corruption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
