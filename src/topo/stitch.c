#include "topo/stitch_impl.h"

#include <string.h>
#include "base/mem.h"

struct hashed {
    uint64_t hash;
    int32_t shape;
};

static rondo_status take(struct rondo_stitch *s, void *ptr, size_t n, size_t size)
{
    RONDO_TRY(rondo_calloc(ptr, n, size, "the stitched graphs of the job's nodes"));
    s->sum.bytes += rondo_round_up(n * size, RONDO_CACHE_LINE);
    return RONDO_SUCCESS;
}
#define TAKE(s, ptr, n) take(s, &(ptr), (size_t)(n), sizeof(*(ptr)))

static int by_hash(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : (x->shape > y->shape) - (x->shape < y->shape);
}

static rondo_status hashes_sort(const struct rondo_stitch_input *in, struct hashed *hashed)
{
    for (int i = 0; i < in->ndistinct; i++) {
        hashed[i].hash = rondo_graphs_hash(in->bytes[i], in->nbytes[i]);
        hashed[i].shape = i;
    }
    qsort(hashed, (size_t)in->ndistinct, sizeof(*hashed), by_hash);
    for (int i = 1; i < in->ndistinct; i++) {
        int a = hashed[i - 1].shape, b = hashed[i].shape;
        if (hashed[i - 1].hash == hashed[i].hash &&
            (in->nbytes[a] != in->nbytes[b] || memcmp(in->bytes[a], in->bytes[b], in->nbytes[a]) != 0)) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "two different node graphs have the hash 0x%016llx; restrict the GPUs or nets "
                              "of one kind of node",
                              (unsigned long long)hashed[i].hash);
        }
    }
    return RONDO_SUCCESS;
}

/* @return the first shape with this hash; -1: there is none. */
static int hash_find(const struct hashed *hashed, int n, uint64_t hash)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (hashed[middle].hash < hash) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && hashed[low].hash == hash ? hashed[low].shape : -1;
}

static rondo_status input_check(const struct rondo_stitch_input *in, int *nnodes)
{
    *nnodes = 0;
    if (in->nranks < 1 || in->nranks > RONDO_STITCH_MAX_RANKS || in->rank == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%d ranks cannot be stitched, expected 1 to %d", in->nranks,
                          RONDO_STITCH_MAX_RANKS);
    }
    if (in->ndistinct < 1 || in->ndistinct > in->nranks || in->max_channels < 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%d distinct graphs for %d ranks and at most %d channels, expected 1 to %d graphs "
                          "and 0 or more channels",
                          in->ndistinct, in->nranks, in->max_channels, in->nranks);
    }
    for (int r = 0; r < in->nranks; r++) {
        if (in->rank[r].node > (uint32_t)*nnodes) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d claims node %u, expected at most %d: nodes are numbered by their "
                              "lowest rank",
                              r, in->rank[r].node, *nnodes);
        }
        *nnodes += in->rank[r].node == (uint32_t)*nnodes;
    }
    return RONDO_SUCCESS;
}

static int lowest_rank(const struct rondo_stitch_input *in, int node)
{
    int r = 0;
    while (in->rank[r].node != (uint32_t)node) {
        r++;
    }
    return r;
}

/* Read each rank's node and local rank, and each node's shape and number of ranks (into first[node + 1]). */
static rondo_status ranks_read(struct rondo_stitch *s, const struct rondo_stitch_input *in,
                               const struct hashed *hashed)
{
    int shape = -1, seen = 0;
    for (int r = 0; r < in->nranks; r++) {
        const struct rondo_stitch_rank *rank = &in->rank[r];
        int node = (int)rank->node;
        if (r == 0 || rank->graphs != in->rank[r - 1].graphs) {
            shape = hash_find(hashed, in->ndistinct, rank->graphs);
        }
        if (shape < 0) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d on node %d: its graphs (hash 0x%016llx) are not among the %d "
                              "received; all ranks must run the same librondo",
                              r, node, (unsigned long long)rank->graphs, in->ndistinct);
        }
        if (node == seen) {
            s->shape_of[seen++] = shape;
        } else if (s->shape_of[node] != shape) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d and rank %d, both on node %d, have different graphs; set "
                              "RONDO_TOPO_FILE and other topology parameters to the same values on all "
                              "ranks of a node",
                              lowest_rank(in, node), r, node);
        }
        s->node_of[r] = node;
        s->local_of[r] = rank->local;
        s->first[node + 1]++;
        s->shape[shape].used = 1;
    }
    return RONDO_SUCCESS;
}

static rondo_status ranks_index(struct rondo_stitch *s, const struct rondo_stitch_input *in)
{
    s->sum.min_local = in->nranks;
    for (int node = 0; node < s->sum.nnodes; node++) {
        int n = s->first[node + 1], ndevs = s->shape[s->shape_of[node]].ndevs;
        if (n != ndevs) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "node %d (rank %d and others) has %d ranks, but its graphs are for %d devices; "
                              "use a topology file that matches the ranks",
                              node, lowest_rank(in, node), n, ndevs);
        }
        s->sum.min_local = n < s->sum.min_local ? n : s->sum.min_local;
        s->sum.max_local = n > s->sum.max_local ? n : s->sum.max_local;
        s->first[node + 1] += s->first[node];
    }
    memset(s->rank_of, 0xff, sizeof(*s->rank_of) * (size_t)in->nranks);
    for (int r = 0; r < in->nranks; r++) {
        int node = s->node_of[r], local = s->local_of[r], n = s->first[node + 1] - s->first[node];
        int32_t *at = &s->rank_of[s->first[node] + (local < n ? local : 0)];
        if (local >= n || *at >= 0) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d claims local rank %d of node %d, %s; expected each of 0 to %d once", r,
                              local, node, local >= n ? "which has fewer ranks" : "as does another rank",
                              n - 1);
        }
        *at = r;
    }
    return RONDO_SUCCESS;
}

/* ---- merge ---- */

#define LEAST(field) into->field = g->field < into->field ? g->field : into->field
#define MOST(field) into->field = g->field > into->field ? g->field : into->field
static void graph_merge(struct rondo_graph *into, const struct rondo_graph *g)
{
    LEAST(nchannels), LEAST(bw_intra), LEAST(bw_inter), LEAST(min_sm), LEAST(family), LEAST(same_channels);
    MOST(max_sm), MOST(type_intra), MOST(type_inter), MOST(latency_inter), MOST(cross_nic), MOST(nhops),
        MOST(fallback);
    into->bound_cut = g->bound < into->bound ? g->bound_cut : into->bound_cut;
    LEAST(bound);
    into->cpus |= g->cpus;
    /* 0 means that the size is unknown. */
    into->cache = into->cache == 0 || (g->cache > 0 && g->cache < into->cache) ? g->cache : into->cache;
    MOST(pattern); /* the plain tree wins: it loads one device with all tree traffic of its node */
}
#undef LEAST
#undef MOST

static void summary_fill(struct rondo_stitch *s, const struct rondo_graph *graphs,
                         const struct rondo_stitch_input *in)
{
    struct rondo_graph *merged = s->sum.graph;
    int most = in->max_channels > 0 && in->max_channels < RONDO_MAX_CHANNELS ? in->max_channels
                                                                             : RONDO_MAX_CHANNELS,
        any = 0;
    s->nchannels = RONDO_TOPO_CHANNELS;
    s->sum.min_nets = RONDO_MACHINE_MAX_NETS;
    for (int i = 0; i < s->nshapes; i++) {
        if (s->shape[i].used && s->shape[i].nnets < s->sum.min_nets) {
            s->sum.min_nets = s->shape[i].nnets;
        }
        for (int id = 0; s->shape[i].used && id < RONDO_NUM_GRAPHS; id++) {
            const struct rondo_graph *g = &graphs[RONDO_NUM_GRAPHS * i + id];
            any ? graph_merge(&merged[id], g) : (void)(merged[id] = *g);
            s->nchannels = g->nchannels < s->nchannels ? g->nchannels : s->nchannels;
        }
        any |= s->shape[i].used;
    }
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        merged[id].order = NULL;
        merged[id].cut = NULL;
        merged[id].levels.n = 0;
        merged[id].ndevs = 0;
        merged[id].bound_at = -1;
        merged[id].nchannels = s->nchannels;
        merged[id].found = rondo_graph_found(s->nchannels,
                                             s->sum.nnodes > 1 ? merged[id].bw_inter : merged[id].bw_intra);
        memset(merged[id].net, 0xff, sizeof merged[id].net);
    }
    s->sum.nchannels = 2 * s->nchannels; /* each of the two trees has a set */
    if (!s->host_trees && s->sum.nnodes > 1 && merged[RONDO_GRAPH_RING].min_sm >= 90 &&
        merged[RONDO_GRAPH_RING].bw_intra > 45000 && s->sum.nchannels < 16) {
        s->sum.nchannels *= 2; /* few fast channels need more blocks to fill them */
    }
    s->sum.nchannels = s->sum.nchannels < most ? s->sum.nchannels : most;
}

/* ---- shapes ---- */

/* The levels belong to the ring's first order. Trees over several nodes have their own orders, which
 * differ from it only if a graph file says so. */
static int one_order(const struct rondo_stitch *s, const struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    size_t n = (size_t)graphs[RONDO_GRAPH_RING].ndevs;
    for (int c = 0; c < s->nchannels && s->sum.nnodes > 1; c++) {
        if (memcmp(graphs[RONDO_GRAPH_TREE].order + (size_t)c * n, graphs[RONDO_GRAPH_RING].order,
                   n * sizeof(int16_t)) != 0) {
            return 0;
        }
    }
    return 1;
}

/* @return the outermost level that separates devices 0 and 1, counted from 1; 0: none does. */
static int outermost_between(const struct rondo_stitch_shape *shape, const struct rondo_graph *ring)
{
    int between = 0, least = 0;
    for (int place = 0; place < shape->ndevs && shape->levels.n > 0 && between < 2; place++) {
        int cut = between == 1 ? shape->cut[place] : 0;
        least = cut != 0 && (least == 0 || cut < least) ? cut : least;
        between += ring->order[place] < 2;
    }
    return least;
}

/* With nodes below, both trees take the same shape inside a node: its first rank is the root, and the
 * second attachment is as near to it as possible. */
static rondo_status inner_trees(struct rondo_stitch *s, struct rondo_stitch_shape *shape,
                                const struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    const struct rondo_graph *ring = &graphs[RONDO_GRAPH_RING];
    int n = shape->ndevs, several = s->sum.nnodes > 1, nlevels = one_order(s, graphs) ? ring->levels.n : 0;
    if (nlevels > 0) {
        RONDO_TRY(TAKE(s, shape->cut, n));
        memcpy(shape->cut, ring->cut, (size_t)n);
        shape->levels = ring->levels;
    }
    if (s->sum.max_local == n && s->sum.levels.n == 0) {
        s->sum.levels = shape->levels;
        s->sum.apart = outermost_between(shape, ring);
    }
    for (int which = several; which < 2; which++) {
        RONDO_TRY(
            rondo_group_tree_create(&shape->inner[which], n, shape->cut, nlevels, which, several ? 2 : 0));
        s->sum.bytes += (size_t)n * sizeof(*shape->inner[which].link);
    }
    return RONDO_SUCCESS;
}

/* From four nodes on, some have two child nodes. In a chain of GPUs, the place where both attach may have a
 * neighbour on either side, or a parent on another node. */
static int is_wide(const struct rondo_stitch *s, const struct rondo_stitch_shape *shape)
{
    return !s->host_trees && s->sum.nnodes > 3 && shape->attach[0] == shape->attach[1] &&
           shape->ndevs > 1 + shape->attach[0];
}

static rondo_status shape_fill(struct rondo_stitch *s, struct rondo_stitch_shape *shape,
                               const struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    int n = shape->ndevs, pattern = graphs[RONDO_GRAPH_TREE].pattern, second = n > 1;
    if (s->host_trees) {
        RONDO_TRY(inner_trees(s, shape, graphs));
    }
    shape->swaps = graphs[RONDO_GRAPH_RING].cross_nic == 2;
    second = s->host_trees ? shape->inner[1].second : second;
    shape->attach[0] = pattern == RONDO_PATTERN_TREE && !s->host_trees ? 0 : second;
    shape->attach[1] = pattern == RONDO_PATTERN_SPLIT_TREE && !s->host_trees ? second : 0;
    s->sum.wide_trees |= is_wide(s, shape);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        RONDO_TRY(TAKE(s, shape->order[id], s->nchannels * n));
        RONDO_TRY(TAKE(s, shape->place[id], s->nchannels * n));
        RONDO_TRY(TAKE(s, shape->net[id], s->nchannels * 2));
        memcpy(shape->order[id], graphs[id].order, sizeof(int16_t) * (size_t)(s->nchannels * n));
        memcpy(shape->net[id], graphs[id].net, sizeof(int16_t) * (size_t)(s->nchannels * 2));
        for (int i = 0; i < s->nchannels * n; i++) {
            shape->place[id][i - i % n + graphs[id].order[i]] = (int16_t)(i % n);
        }
    }
    RONDO_TRY(TAKE(s, shape->nets, shape->nnets));
    rondo_graphs_nets(shape->bytes, shape->nets);
    return RONDO_SUCCESS;
}

/* Unpack the ranks' graphs, merge them, and keep what the views need. */
static rondo_status shapes_read(struct rondo_stitch *s, const struct rondo_stitch_input *in)
{
    struct rondo_graph *graphs;
    RONDO_TRY(RONDO_NEW_ARRAY(graphs, RONDO_NUM_GRAPHS * s->nshapes, "the graphs of the job's nodes"));
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < s->nshapes && status == RONDO_SUCCESS; i++) {
        struct rondo_stitch_shape *shape = &s->shape[i];
        if (shape->used && (status = rondo_graphs_unpack(in->bytes[i], in->nbytes[i],
                                                         &graphs[RONDO_NUM_GRAPHS * i])) == RONDO_SUCCESS) {
            shape->bytes = in->bytes[i];
            shape->ndevs = graphs[RONDO_NUM_GRAPHS * i].ndevs;
            shape->nnets = rondo_graphs_nnets(in->bytes[i]);
        }
    }
    if (status == RONDO_SUCCESS) {
        status = ranks_index(s, in);
    }
    if (status == RONDO_SUCCESS) {
        summary_fill(s, graphs, in);
    }
    for (int i = 0; i < s->nshapes; i++) {
        if (s->shape[i].used && status == RONDO_SUCCESS) {
            status = shape_fill(s, &s->shape[i], &graphs[RONDO_NUM_GRAPHS * i]);
        }
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            rondo_graph_release(&graphs[RONDO_NUM_GRAPHS * i + id]);
        }
    }
    rondo_free(graphs);
    return status;
}

/* ---- order of the nodes ---- */

struct keyed {
    uint64_t key;
    int32_t node;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->node > y->node) - (x->node < y->node);
}

static int keys_tell(const uint64_t *fabric, int nnodes)
{
    int known = 0, differ = 0;
    for (int i = 0; fabric != NULL && i < nnodes; i++) {
        known += fabric[i] != 0;
        differ |= fabric[i] != fabric[0];
    }
    return known >= 2 && differ;
}

static rondo_status nodes_order(struct rondo_stitch *s, const uint64_t *fabric)
{
    struct keyed *keyed;
    int n = s->sum.nnodes;
    s->sum.network_order = keys_tell(fabric, n);
    RONDO_TRY(RONDO_NEW_ARRAY(keyed, n, "the order of the job's nodes"));
    for (int i = 0; i < n; i++) {
        keyed[i].node = i;
        keyed[i].key = s->sum.network_order ? fabric[i] : 0;
    }
    if (s->sum.network_order) {
        qsort(keyed, (size_t)n, sizeof(*keyed), by_key);
    }
    for (int position = 0; position < n; position++) {
        int node = keyed[position].node;
        s->node_at[position] = node;
        s->position[node] = position;
        s->start[position + 1] = s->start[position] + s->first[node + 1] - s->first[node];
    }
    rondo_free(keyed);
    return RONDO_SUCCESS;
}

/* ---- create ---- */

static rondo_status arrays_take(struct rondo_stitch *s)
{
    int nranks = s->sum.nranks, nnodes = s->sum.nnodes;
    RONDO_TRY(TAKE(s, s->node_of, nranks));
    RONDO_TRY(TAKE(s, s->local_of, nranks));
    RONDO_TRY(TAKE(s, s->rank_of, nranks));
    RONDO_TRY(TAKE(s, s->first, nnodes + 1));
    RONDO_TRY(TAKE(s, s->shape_of, nnodes));
    RONDO_TRY(TAKE(s, s->position, nnodes));
    RONDO_TRY(TAKE(s, s->node_at, nnodes));
    RONDO_TRY(TAKE(s, s->start, nnodes + 1));
    return TAKE(s, s->shape, s->nshapes);
}

static rondo_status stitch_fill(struct rondo_stitch *s, const struct rondo_stitch_input *in)
{
    struct hashed *hashed;
    RONDO_TRY(arrays_take(s));
    RONDO_TRY(RONDO_NEW_ARRAY(hashed, in->ndistinct, "the hashes of the job's node graphs"));
    rondo_status status = hashes_sort(in, hashed);
    if (status == RONDO_SUCCESS) {
        status = ranks_read(s, in, hashed);
    }
    rondo_free(hashed);
    RONDO_TRY(status);
    RONDO_TRY(shapes_read(s, in));
    RONDO_TRY(nodes_order(s, in->fabric));
    return rondo_stitch_derive(s);
}

rondo_status rondo_stitch_create(struct rondo_stitch **stitch, const struct rondo_stitch_input *input)
{
    struct rondo_stitch *s;
    int nnodes;
    *stitch = NULL;
    RONDO_TRY(input_check(input, &nnodes));
    RONDO_TRY(RONDO_NEW(s, "the stitched graphs of the job's nodes"));
    s->sum.bytes = sizeof(*s);
    s->sum.nranks = input->nranks;
    s->sum.nnodes = nnodes;
    s->host_trees = input->host_trees;
    s->nshapes = input->ndistinct;
    rondo_status status = stitch_fill(s, input);
    if (status != RONDO_SUCCESS) {
        rondo_stitch_destroy(s);
        return status;
    }
    *stitch = s;
    return RONDO_SUCCESS;
}

void rondo_stitch_destroy(struct rondo_stitch *stitch)
{
    if (stitch == NULL) {
        return;
    }
    for (int i = 0; stitch->shape != NULL && i < stitch->nshapes; i++) {
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            rondo_free(stitch->shape[i].order[id]);
            rondo_free(stitch->shape[i].place[id]);
            rondo_free(stitch->shape[i].net[id]);
        }
        rondo_free(stitch->shape[i].inner[0].link);
        rondo_free(stitch->shape[i].inner[1].link);
        rondo_free(stitch->shape[i].cut);
        rondo_free(stitch->shape[i].nets);
    }
    rondo_free(stitch->shape);
    rondo_free(stitch->start);
    rondo_free(stitch->node_at);
    rondo_free(stitch->position);
    rondo_free(stitch->shape_of);
    rondo_free(stitch->first);
    rondo_free(stitch->rank_of);
    rondo_free(stitch->local_of);
    rondo_free(stitch->node_of);
    rondo_free(stitch);
}
