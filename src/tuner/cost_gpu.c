/* Costs on GPU machines (cost_impl.h). */
#include "tuner/cost_impl.h"

#include "coll/oneshot.h"

enum {
    SPANS = 3,
    WARP = 32,
    LEAST_THREADS = 3 * WARP,
    TREE_THREADS = 640,
    SLOW_RING_THREADS = 256,
    SLOW_RING_MBS = 12000
};
enum { TREE_STEPS = 24, PLATEAU_BYTES = 64, SM_AMPERE = 80 }; /* tree steps: 64 B .. 512 MiB */

/* ---- numbers ---- */

struct latency {
    double base, nvlink, pci, net;
};
#define ROW_(ctx, ALGO, PROTO, base, nvlink, pci, net) \
    [RONDO_ALGO_##ALGO][RONDO_PROTO_##PROTO] = { base, nvlink, pci, net },
static const struct latency latencies[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS] = { RONDO_MODEL_LATENCY_TABLE(
    ROW_, ) };
#undef ROW_

static const struct {
#define ROW_(ctx, name, value, why) double name;
    RONDO_MODEL_FACTOR_TABLE(ROW_, )
#undef ROW_
} factor = {
#define ROW_(ctx, name, value, why) .name = value,
    RONDO_MODEL_FACTOR_TABLE(ROW_, )
#undef ROW_
};

static const struct {
#define ROW_(ctx, name, value, why) double name;
    RONDO_MODEL_DIRECT_TABLE(ROW_, )
#undef ROW_
} direct = {
#define ROW_(ctx, name, value, why) .name = value,
    RONDO_MODEL_DIRECT_TABLE(ROW_, )
#undef ROW_
};

enum cap_of { CAP_LL, CAP_RING_LL128, CAP_TREE_LL128, CAP_TREE };
static const struct {
    enum cap_of what;
    int sm;
    double gbs[SPANS];
} caps[] = {
#define ROW_(ctx, WHAT, sm, one, two, more) { CAP_##WHAT, sm, { one, two, more } },
    RONDO_MODEL_CAP_TABLE(ROW_, )
#undef ROW_
};

static const struct {
    double ll[SPANS]; /* [0]: one node, where it is the GPUs' */
    double post_us;
} hosts[RONDO_NUM_GPU_HOSTS] = {
#define ROW_(ctx, KIND, two, more, post, what) [RONDO_GPU_HOST_##KIND] = { { 0, two, more }, post },
    RONDO_MODEL_HOST_TABLE(ROW_, )
#undef ROW_
};

static const struct {
    int threads, bytes;
} thread_limits[RONDO_NUM_PROTOS] = {
#define ROW_(ctx, PROTO, threads, bytes) [RONDO_PROTO_##PROTO] = { threads, bytes },
    RONDO_MODEL_THREAD_TABLE(ROW_, )
#undef ROW_
};

#define ROW_(ctx, PROTO, ...) [RONDO_PROTO_##PROTO] = { __VA_ARGS__ },
static const uint8_t tree_tenths[RONDO_NUM_PROTOS][TREE_STEPS] = { RONDO_MODEL_TREE_TABLE(ROW_, ) };
#undef ROW_

static int span_of(const struct rondo_layout *layout)
{
    return layout->nnodes < SPANS ? layout->nnodes - 1 : SPANS - 1;
}

static double cap_gbs(const struct rondo_layout *layout, enum cap_of what)
{
    double gbs = 0;
    if (what == CAP_LL && layout->nnodes > 1) {
        return hosts[layout->model.gpu.host].ll[span_of(layout)];
    }
    for (size_t i = 0; i < RONDO_COUNTOF(caps); i++) {
        if (caps[i].what == what && caps[i].sm <= layout->model.gpu.sm) {
            gbs = caps[i].gbs[span_of(layout)];
        }
    }
    return gbs;
}

static const struct rondo_model_graph *graph_of(const struct rondo_layout *layout, enum rondo_algo algo)
{
    return algo == RONDO_ALGO_TREE ? &layout->model.gpu.tree : &layout->model.gpu.ring;
}

/* The part of its bandwidth that the tree of an all_reduce reaches. */
static double tree_share(enum rondo_proto proto, size_t bytes)
{
    const uint8_t *tenths = tree_tenths[proto];
    double step = 64;
    int k = 0;
    while (k < TREE_STEPS - 1 && (double)bytes >= 2 * step) {
        step *= 2;
        k++;
    }
    if (k == TREE_STEPS - 1 || (double)bytes <= step) {
        return tenths[k] / 10.0;
    }
    return (tenths[k] + (tenths[k + 1] - tenths[k]) * ((double)bytes / step - 1)) / 10.0;
}

/* ---- channels and threads ---- */

static int max_threads(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_proto proto)
{
    const struct rondo_model_graph *ring = &layout->model.gpu.ring;
    int slow = (int64_t)ring->nchannels * ring->bw_intra <= SLOW_RING_MBS;
    return algo == RONDO_ALGO_RING && proto == RONDO_PROTO_SIMPLE && slow ? SLOW_RING_THREADS
                                                                          : thread_limits[proto].threads;
}

void rondo_gpu_blocks(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_proto proto,
                      size_t bytes, int *nchannels, int *nthreads)
{
    int ring_ll = algo == RONDO_ALGO_RING && proto == RONDO_PROTO_LL,
        threads = max_threads(layout, algo, proto);
    size_t each = (size_t)thread_limits[proto].bytes * (size_t)(ring_ll ? layout->nranks : 1),
           n = bytes / (each * (size_t)threads);
    n = rondo_max_size(rondo_min_size(n, (size_t)layout->model.gpu.nchannels), 1);
    *nchannels = (int)n;
    while (bytes < n * each * (size_t)threads && threads % 128 == 0) {
        threads /= 2;
    }
    threads += algo == RONDO_ALGO_RING && proto == RONDO_PROTO_SIMPLE ? WARP : 0; /* one warp synchronises */
    threads = threads < LEAST_THREADS ? LEAST_THREADS : threads;
    *nthreads = algo == RONDO_ALGO_TREE ? TREE_THREADS : threads;
}

/* ---- bandwidths ---- */

struct rate {
    double gbs;
    const char *limit;
};

static void cap(struct rate *rate, double gbs, const char *limit)
{
    if (gbs < rate->gbs) {
        rate->gbs = gbs;
        rate->limit = limit;
    }
}

/*
 * The rate of all channels of a graph. On two nodes the links inside count, as long as the nets carry their
 * part: all of a ring's traffic, half of a tree's. (NCCL ignores the nets there; its searches keep them no
 * slower, except in graphs that it found last of all.)
 */
static struct rate graph_rate(const struct rondo_layout *layout, const struct rondo_model_graph *graph,
                              int tree)
{
    int64_t inside = graph->bw_intra, nets = (int64_t)graph->bw_inter * (layout->nnodes == 2 && tree ? 2 : 1);
    if (layout->nnodes > 2 || (layout->nnodes == 2 && nets <= inside)) {
        return (struct rate){ graph->nchannels * ((double)nets * 1e-3), "net bandwidth" };
    }
    return (struct rate){ graph->nchannels * ((double)inside * 1e-3),
                          graph->nvlink ? "NVLink bandwidth" : "PCI bandwidth" };
}

static struct rate ring_rate(const struct rondo_layout *layout, enum rondo_proto proto)
{
    const struct rondo_model_graph *graph = &layout->model.gpu.ring;
    struct rate rate = graph_rate(layout, graph, 0);
    if (proto == RONDO_PROTO_LL) {
        rate.gbs *= factor.ring_ll;
        cap(&rate, cap_gbs(layout, CAP_LL), "LL bandwidth");
    } else if (proto == RONDO_PROTO_LL128) {
        rate.gbs *= factor.ring_ll128;
        cap(&rate, graph->nchannels * cap_gbs(layout, CAP_RING_LL128), "LL128 bandwidth");
    }
    return rate;
}

static struct rate tree_rate(const struct rondo_layout *layout, enum rondo_proto proto, size_t bytes)
{
    const struct rondo_model_graph *graph = &layout->model.gpu.tree;
    struct rate rate = graph_rate(layout, graph, 1);
    rate.gbs *= factor.tree;
    cap(&rate, graph->nchannels * cap_gbs(layout, CAP_TREE), "tree bandwidth");
    if (proto == RONDO_PROTO_LL) {
        rate.gbs *= factor.tree_ll;
        cap(&rate, cap_gbs(layout, CAP_LL), "LL bandwidth");
    } else if (proto == RONDO_PROTO_LL128) {
        rate.gbs *= layout->nnodes == 1 ? factor.tree_ll128_one_node : factor.tree_ll128;
        cap(&rate, graph->nchannels * cap_gbs(layout, CAP_TREE_LL128), "LL128 bandwidth");
    }
    rate.gbs *= (graph->one_gpu ? factor.tree_one_gpu : 1) * tree_share(proto, bytes);
    return rate;
}

/* ---- times ---- */

struct parts {
    double base, inside, net, move; /* us */
    const char *limit;              /* of move */
};

static double larger(double a, double b) { return a > b ? a : b; }

static void move_set(struct parts *parts, struct rate rate, double bytes)
{
    parts->move = bytes > 0 ? bytes / (rate.gbs * 1e3) : 0;
    parts->limit = rate.limit;
}

static double inside_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_proto proto)
{
    const struct latency *latency = &latencies[algo][proto];
    return graph_of(layout, algo)->nvlink ? latency->nvlink : latency->pci;
}

/* With one rank a node nothing hides a net's latency, so a ring has that of a tree. Simple waits for the
 * data and for the flush after it. */
static double net_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_proto proto)
{
    enum rondo_algo as = layout->nranks == layout->nnodes ? RONDO_ALGO_TREE : algo;
    return latencies[as][proto].net +
           graph_of(layout, algo)->latency_inter * 1e-3 * (proto == RONDO_PROTO_SIMPLE ? 2 : 1);
}

static double post_us(const struct rondo_layout *layout, enum rondo_proto proto)
{
    return layout->nnodes > 1 ? hosts[layout->model.gpu.host].post_us * (proto == RONDO_PROTO_SIMPLE ? 3 : 1)
                              : 0;
}

/* From a certain size, a ring with Simple over nodes takes longer than its steps predict. */
static void plateau(const struct rondo_layout *layout, size_t bytes, struct parts *parts)
{
    double more = layout->model.gpu.sm < SM_AMPERE ? factor.plateau_before_80 : factor.plateau;
    if (bytes / ((size_t)layout->model.gpu.nchannels * (size_t)layout->nranks) >= PLATEAU_BYTES) {
        parts->base *= more;
        parts->inside *= more;
        parts->net *= more;
    }
}

/* A ring's steps follow each other, so none is shorter than posting a message to a net, which one of them
 * does. */
static void ring_parts(const struct rondo_layout *layout, enum rondo_coll as, enum rondo_proto proto,
                       size_t bytes, struct parts *parts)
{
    double n = layout->nranks, rounds = as == RONDO_COLL_ALL_REDUCE ? 2 : 1,
           nets = rounds * (layout->nnodes - 1);
    int whole = as == RONDO_COLL_BROADCAST || as == RONDO_COLL_REDUCE;
    parts->inside = (rounds * (n - 1) - nets) *
                    larger(inside_us(layout, RONDO_ALGO_RING, proto), post_us(layout, proto));
    parts->net = nets * net_us(layout, RONDO_ALGO_RING, proto);
    move_set(parts, ring_rate(layout, proto),
             (whole ? (double)(n > 1) : rounds * (n - 1) / n) * (double)bytes);
    if (as == RONDO_COLL_ALL_REDUCE && proto == RONDO_PROTO_SIMPLE && layout->nnodes > 1) {
        plateau(layout, bytes, parts);
    }
}

static int log2_down(int n)
{
    int bits = 0;
    for (; n >= 2; n /= 2) {
        bits++;
    }
    return bits;
}

/* Up and down. With a root the bytes move in one of these directions only, but the root may be anywhere. */
static void tree_parts(const struct rondo_layout *layout, enum rondo_coll as, enum rondo_proto proto,
                       size_t bytes, struct parts *parts)
{
    double passes = layout->nranks == 1 ? 0 : as == RONDO_COLL_ALL_REDUCE ? 2 : 1;
    parts->inside = 2 * (layout->nranks / layout->nnodes - 1) * inside_us(layout, RONDO_ALGO_TREE, proto);
    parts->net = 2 * log2_down(layout->nnodes) * net_us(layout, RONDO_ALGO_TREE, proto);
    move_set(parts, tree_rate(layout, proto, bytes), passes * (double)bytes);
}

/*
 * One message, or one to each other rank at the same time (then `bytes` has a block for each): inside the
 * node over the ring's links, between nodes over the nets, which all ranks of the node share.
 */
static const char *p2p_parts(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                             size_t bytes, struct parts *parts)
{
    const struct rondo_model_graph *ring = &layout->model.gpu.ring;
    int single = coll == RONDO_COLL_SEND || coll == RONDO_COLL_RECV, n = layout->nranks,
        local = layout->max_local;
    int away = single ? layout->nnodes > 1 : n - local, near = single ? n > 1 && !away : local - 1;
    double block = (double)bytes / (single ? 1 : n);
    struct rate links = { ring->nchannels * (ring->bw_intra * 1e-3),
                          ring->nvlink ? "NVLink bandwidth" : "PCI bandwidth" };
    struct rate nets = { ring->nchannels * (ring->bw_inter * 1e-3) / local, "net bandwidth" };
    struct parts over_nets = { 0 };
    if (proto == RONDO_PROTO_LL && (away > 0 || block > (double)layout->model.gpu.p2p_ll)) {
        return away > 0 ? "one node only" : "more bytes a message than RONDO_P2P_LL_THRESHOLD";
    }
    links.gbs *= proto == RONDO_PROTO_LL ? 0.5 : 1; /* half of a line is flags */
    move_set(parts, links, block * near);
    move_set(&over_nets, nets, block * away);
    if (over_nets.move > parts->move) {
        move_set(parts, nets, block * away);
    }
    parts->inside = near > 0 ? inside_us(layout, RONDO_ALGO_RING, proto) : 0;
    parts->net = away > 0 ? net_us(layout, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE) +
                                (away - 1) * post_us(layout, RONDO_PROTO_SIMPLE)
                          : 0;
    return NULL;
}

/* How often a rank's bytes come in or go out in two-shot, apart from its own: shares are read from all ranks,
 * written to all, or both. */
static double twoshot_passes(enum rondo_coll as)
{
    return as == RONDO_COLL_ALL_GATHER || as == RONDO_COLL_REDUCE_SCATTER ? 1 : 2;
}

/* Two-shot where it is not known whether buffers are staged: the worse of both. Staged, ranks meet for each
 * window, and take what they need from the others' places. */
static void staged_parts(const struct rondo_layout *layout, enum rondo_coll as, int nchannels, double meeting,
                         struct rate links, size_t bytes, struct parts *parts)
{
    int blocks = as == RONDO_COLL_ALL_GATHER || as == RONDO_COLL_REDUCE_SCATTER;
    double n = layout->nranks, each = (double)bytes / (blocks ? n : 1),
           placed = as == RONDO_COLL_ALL_GATHER ? each : (double)bytes,
           windows = placed / ((double)nchannels * layout->model.gpu.direct);
    parts->inside = meeting * larger(2, windows);
    move_set(parts, links, (n - 1) * each);
}

/* One-shot: each rank writes its bytes to all others, half of each line are flags. A window waits for the one
 * before. */
static void shot_parts(const struct rondo_layout *layout, int nchannels, struct rate links, size_t bytes,
                       struct parts *parts)
{
    const struct latency *hop = &latencies[RONDO_ALGO_RING][RONDO_PROTO_LL];
    size_t n = (size_t)layout->nranks,
           room = rondo_oneshot_slot_room(rondo_oneshot_slot_bytes((size_t)layout->model.gpu.direct, n)) *
                  (size_t)nchannels;
    parts->inside = (layout->model.gpu.ring.near ? hop->nvlink : hop->pci) *
                    (double)rondo_max_size((bytes + room - 1) / room, 1);
    move_set(parts, links, 2.0 * (double)(n - 1) * (double)bytes);
}

/* @return why direct access cannot run; NULL: it can. Pairs that are not near share the links of others. */
static const char *direct_parts(const struct rondo_layout *layout, enum rondo_coll as, enum rondo_algo algo,
                                int staged, int nchannels, size_t bytes, struct parts *parts)
{
    const struct rondo_model_graph *ring = &layout->model.gpu.ring;
    struct rate links = { ring->nchannels * (ring->bw_intra * 1e-3),
                          ring->nvlink ? "NVLink bandwidth" : "PCI bandwidth" };
    double n = layout->nranks, meeting = ring->near ? direct.nvlink : direct.pci;
    if (layout->model.gpu.direct == 0) {
        return layout->nnodes > 1 ? "one node only"
                                  : "GPUs cannot access one another's memory, or RONDO_DIRECT_GPU=0";
    }
    if (layout->nnodes > 1 || (layout->nranks > 2 && !ring->near)) {
        return "one node only, all on NVLink or one GPU";
    }
    if (algo == RONDO_ALGO_ONESHOT && bytes > (size_t)layout->model.gpu.direct) {
        return "more bytes than a staging place (RONDO_DIRECT_GPU)";
    }
    if (algo == RONDO_ALGO_ONESHOT && as != RONDO_COLL_ALL_REDUCE) {
        return "all_reduce only";
    }
    parts->base = direct.base;
    if (algo == RONDO_ALGO_ONESHOT) {
        shot_parts(layout, nchannels, links, bytes, parts);
        return NULL;
    }
    if (staged) {
        staged_parts(layout, as, nchannels, meeting, links, bytes, parts);
        return NULL;
    }
    parts->inside = 2 * meeting;
    move_set(parts, links, twoshot_passes(as) / n * (n - 1) * (double)bytes);
    return NULL;
}

/* How much more than a ring a reduction in rank order moves: every part passes every link, and the result
 * goes on to the root or the block's rank, half way on average. */
static double ordered_more(const struct rondo_layout *layout, enum rondo_coll as)
{
    double n = layout->nranks;
    return n > 1 ? n / (n - 1) * (as == RONDO_COLL_ALL_REDUCE ? 1 : 1.5) : 1;
}

/* @return why it cannot run; NULL: it can. */
static const char *parts_fill(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                              enum rondo_proto proto, int staged, int nchannels, size_t bytes,
                              struct parts *parts)
{
    enum rondo_coll as = rondo_coll_scheduled_as(coll);
    double more = algo == RONDO_ALGO_ORDERED ? ordered_more(layout, as) : 1;
    algo = algo == RONDO_ALGO_ORDERED ? RONDO_ALGO_RING : algo; /* on the ring's links */
    const struct rondo_model_graph *graph = graph_of(layout, algo);
    int fill, threads, is_direct = algo == RONDO_ALGO_ONESHOT || algo == RONDO_ALGO_TWOSHOT;
    if (!is_direct && algo != RONDO_ALGO_RING && algo != RONDO_ALGO_TREE && algo != RONDO_ALGO_P2P) {
        return "host memory only";
    }
    if (proto == RONDO_PROTO_LL128 && !graph->ll128) {
        return "LL128 needs NVLink inside nodes, nets near the GPUs, and GPUs of one kind since sm 70";
    }
    if (graph->nchannels < 1 || graph->bw_intra <= 0 || (layout->nnodes > 1 && graph->bw_inter <= 0)) {
        return "its graph has no bandwidth";
    }
    rondo_gpu_blocks(layout, algo, proto, bytes, &fill, &threads);
    *parts = (struct parts){ .base = latencies[algo == RONDO_ALGO_P2P ? RONDO_ALGO_RING : algo][proto].base };
    if (is_direct) {
        const char *why = direct_parts(layout, as, algo, staged, nchannels, bytes, parts);
        if (why != NULL) {
            return why;
        }
    } else if (algo == RONDO_ALGO_P2P) {
        const char *why = p2p_parts(layout, coll, proto, bytes, parts);
        if (why != NULL) {
            return why;
        }
        fill = 1;
    } else if (algo == RONDO_ALGO_TREE) {
        tree_parts(layout, as, proto, bytes, parts);
    } else {
        ring_parts(layout, as, proto, bytes, parts);
        parts->move *= more;
    }
    if (nchannels < fill) {
        parts->move *= (double)fill / nchannels;
        parts->limit = "number of channels";
    }
    return NULL;
}

double rondo_gpu_registered_us(const struct rondo_layout *layout, enum rondo_coll coll, int nchannels,
                               size_t bytes)
{
    struct parts parts;
    if (parts_fill(layout, coll, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 0, nchannels, bytes, &parts) !=
        NULL) {
        return -1;
    }
    return parts.base + parts.inside + parts.net + parts.move + direct.second;
}

double rondo_gpu_cost_us(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes)
{
    struct parts parts;
    return parts_fill(layout, coll, algo, proto, layout->model.gpu.staged, nchannels, bytes, &parts) != NULL
               ? -1
               : parts.base + parts.inside + parts.net + parts.move;
}

const char *rondo_gpu_limit(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                            enum rondo_proto proto, int nchannels, size_t bytes)
{
    struct parts parts;
    const char *why = parts_fill(layout, coll, algo, proto, layout->model.gpu.staged, nchannels, bytes,
                                 &parts);
    if (why != NULL) {
        return why;
    }
    if (parts.move > parts.base + parts.inside + parts.net) {
        return parts.limit;
    }
    if (parts.base >= parts.inside && parts.base >= parts.net) {
        return "base latency";
    }
    if (parts.net >= parts.inside) {
        return "net latency";
    }
    if (algo == RONDO_ALGO_RING && post_us(layout, proto) > inside_us(layout, algo, proto)) {
        return "posting to nets";
    }
    return graph_of(layout, algo)->nvlink ? "NVLink latency" : "PCI latency";
}
