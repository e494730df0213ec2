/*
 * Costs on host memory. A call takes a fixed time, its longest path in hops, and the time in which the
 * busiest rank moves its bytes, or the busiest node those to and from other nodes. One thread serves all
 * channels of a rank, so channels share its bandwidth, and each further one makes every progress step a
 * little longer; what a second channel adds is the second tree.
 */
#include "tuner/cost_impl.h"
#include "coll/doubling.h"
#include "coll/twoshot.h"

struct terms {
    double base, hop, net_hop, copy, net_copy; /* us */
    size_t mailbox;                            /* an input: payload bytes of a place; 0: unknown */
};

/*
 * The longest path in hops, those of them between nodes, and the bytes that the busiest rank and the
 * busiest node pass. If the ranks of a node stand in groups (layout/layout.h, level), a hop and a copy
 * between groups take longer, and all ranks share the bandwidth between groups.
 */
struct path {
    double hops, net_hops, moved, net_moved;
    double far, slower; /* what groups add: hops, and the part by which the busiest rank's pass is longer */
};

/* What each further channel adds to a hop: the executor's progress looks at its slots too. */
static const double channel_share = 0.25;

static int log2_up(int n)
{
    int bits = 0;
    while ((int64_t)1 << bits < n) {
        bits++;
    }
    return bits;
}

/* Oversubscribed cores: hops wait for the scheduler, and copies share the core. */
static double oversubscribed(const struct rondo_layout *layout)
{
    return layout->model.ranks_per_core > 1 ? layout->model.ranks_per_core : 1;
}

/* ---- groups of a node's ranks; without groups these add nothing ---- */

static double groups_above(const struct rondo_model *m, int level)
{
    return level == 0 ? 1 : m->levels.groups[level - 1];
}

/* A block that goes once around the ring leaves each group once; one that goes up or down a tree of trees
 * passes the tree of each level. */
static double ring_far(const struct rondo_layout *layout)
{
    const struct rondo_model *m = &layout->model;
    double far = 0;
    for (int l = 0; l < m->levels.n; l++) {
        double edges = m->levels.groups[l] - (l == 0 && layout->nnodes == 1 ? 0 : groups_above(m, l));
        far += layout->nnodes * edges * (m->level[l].us - 1);
    }
    return far;
}

static int groups_a_group(const struct rondo_model *m, int level)
{
    return (int)(m->levels.groups[level] / groups_above(m, level) + 0.99);
}

static double tree_far(const struct rondo_model *m)
{
    double far = 0;
    for (int l = 0; l < m->levels.n; l++) {
        far += log2_up(groups_a_group(m, l)) * (m->level[l].us - 1);
    }
    return far;
}

/* Hops inside a node. A group with groups below it is entered one hop further down. */
static int tree_deep(const struct rondo_model *m, int local)
{
    int deep = m->levels.n, last = m->levels.n > 0 ? m->levels.groups[m->levels.n - 1] : 1;
    for (int l = 0; l < m->levels.n; l++) {
        deep += log2_up(groups_a_group(m, l));
    }
    return deep + log2_up((local + last - 1) / last);
}

/* A chain of conns is as fast as the slowest of them. */
static double slowest_more(const struct rondo_model *m)
{
    double most = 1;
    for (int l = 0; l < m->levels.n; l++) {
        most = m->level[l].copy > most ? m->level[l].copy : most;
    }
    return most - 1;
}

/* All ranks access all others: the mean, over all ranks, of the time relative to that inside a group. */
static double mean_of_all(const struct rondo_model *m, int of_copy)
{
    double mean = 0, near = 1;
    for (int l = 0; l < m->levels.n; l++) {
        double part = 1.0 / m->levels.groups[l];
        mean += (near - part) * (of_copy ? m->level[l].copy : m->level[l].us);
        near = part;
    }
    return mean + near;
}

/* @return the us that traffic between groups takes. bytes: between each two ranks, both directions
 * together. */
static double between_groups(const struct rondo_layout *layout, double bytes)
{
    const struct rondo_model *m = &layout->model;
    double n = layout->nranks, most = 0;
    for (int l = 0; l < m->levels.n; l++) {
        double group = n / m->levels.groups[l], us = group * (n - group) * bytes / (m->level[l].bw * 1e3);
        most = us > most ? us : most;
    }
    return most;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* @return 0 if the protocol does not work on the path. */
static int path_terms(const struct rondo_layout *layout, enum rondo_proto proto, int nchannels,
                      const struct path *path, struct terms *t)
{
    const struct rondo_model *m = &layout->model;
    double channels = 1 + channel_share * (nchannels - 1);
    int across = layout->nnodes > 1, inside = layout->max_local > 1 || !across;
    if ((inside && m->bw[proto] <= 0) || (across && m->net_bw[proto] <= 0)) {
        return 0;
    }
    t->base = m->base_us;
    t->hop = (path->hops - path->net_hops + path->far) * m->hop_us[proto] * oversubscribed(layout) * channels;
    t->net_hop = path->net_hops * m->net_us[proto] * channels;
    t->copy = inside ? path->moved * (1 + path->slower) / (m->bw[proto] * 1e3) * oversubscribed(layout) : 0;
    t->net_copy = across ? path->net_moved / (m->net_bw[proto] * 1e3) : 0;
    return 1;
}

static double total(const struct terms *t)
{
    return t->base + t->hop + t->net_hop + (t->copy > t->net_copy ? t->copy : t->net_copy);
}

static const char *largest(const struct terms *t)
{
    double copy = t->copy > t->net_copy ? t->copy : t->net_copy;
    if (copy > t->base + t->hop + t->net_hop) {
        return t->net_copy > t->copy ? "network bandwidth" : "copy bandwidth";
    }
    return t->net_hop > t->base + t->hop ? "network latency" : "latency";
}

/* A block that goes around the ring except for one hop leaves every node once; if each rank is a node, all
 * but one. */
static double ring_net_hops(const struct rondo_layout *layout)
{
    int n = layout->nranks - 1;
    return layout->nnodes == 1 ? 0 : layout->nnodes < n ? layout->nnodes : n;
}

static int ring_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                      int nchannels, size_t bytes, struct terms *t)
{
    double n = layout->nranks, rounds = rondo_coll_scheduled_as(coll) == RONDO_COLL_ALL_REDUCE ? 2 : 1;
    struct path path = { .hops = rounds * (n - 1), .net_hops = rounds * ring_net_hops(layout) };
    path.moved = path.net_moved = rounds * (n - 1) / n * (double)bytes;
    path.far = rounds * ring_far(layout);
    path.slower = slowest_more(&layout->model);
    return rondo_one_channel(coll) && nchannels > 1 ? 0 : path_terms(layout, proto, nchannels, &path, t);
}

/* With two ranks, one only sends and the other only receives, which is faster than passing on (measured). */
static const double chain_ends = 0.83;

static int chain_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                       int nchannels, size_t bytes, struct terms *t)
{
    struct path path = { .hops = layout->nranks - 1, .net_hops = ring_net_hops(layout) };
    (void)coll;
    path.moved = path.net_moved = layout->nranks > 1 ? (double)bytes : 0;
    path.moved *= layout->nranks == 2 ? chain_ends : 1;
    path.far = ring_far(layout);
    path.slower = slowest_more(&layout->model);
    return path_terms(layout, proto, nchannels, &path, t);
}

/* The pipeline bubble at the end of each loop, while the first block of the next loop travels to the last
 * rank. */
static const double ordered_drain = 1.2;

/* All parts pass every conn except the one that closes the ring. The result travels once more: to everyone,
 * or to its block's rank or the root, which are half way on average. */
static int ordered_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                         int nchannels, size_t bytes, struct terms *t)
{
    double rounds = rondo_coll_scheduled_as(coll) == RONDO_COLL_ALL_REDUCE ? 2 : 1.5;
    struct path path = { .hops = rounds * (layout->nranks - 1), .net_hops = rounds * ring_net_hops(layout) };
    path.moved = path.net_moved = layout->nranks > 1 ? rounds * (double)bytes * ordered_drain : 0;
    path.far = rounds * ring_far(layout);
    path.slower = slowest_more(&layout->model);
    return rondo_one_channel(coll) && nchannels > 1 ? 0 : path_terms(layout, proto, nchannels, &path, t);
}

/*
 * A position passes the bytes once through each conn to a neighbour, in both directions for all_reduce. A
 * ring's position has two conns for one pass, so a conn counts half. In one tree the busiest position has
 * three neighbours; in two trees, where it is inner in one and a leaf in the other, it has four with half
 * the bytes each. With a root the path goes up and down as for all_reduce. The two trees are complementary
 * over nodes; inside a node they are the same tree, whose first ranks are inner in both and have one
 * neighbour less where the node is a leaf. A node on the path is left where it is entered, or one hop
 * further. Groups inside a node count as nodes do; one conn of the busiest rank crosses the farthest level.
 */
static double tree_conns(int neighbours, int fewer, int nchannels, enum rondo_coll coll)
{
    double conns = nchannels > 1 ? (neighbours + fewer) / 2.0 : neighbours;
    if (neighbours == 0) {
        return 0;
    }
    if (rondo_coll_scheduled_as(coll) != RONDO_COLL_ALL_REDUCE) {
        conns = conns / 2 > 1 ? conns / 2 : 1; /* sending all or receiving all is a pass as well */
    }
    return conns;
}

static int neighbours_of(int n) { return n - 1 < 3 ? n - 1 : 3; }

static int tree_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                      int nchannels, size_t bytes, struct terms *t)
{
    int n = layout->nranks, nodes = layout->nnodes, several = nodes > 1 && layout->max_local > 1,
        neighbours = neighbours_of(n);
    const struct rondo_model *m = &layout->model;
    int deep = tree_deep(m, nodes == 1 ? n : layout->max_local), groups = several || m->levels.n > 0;
    int inside = nodes == 1 ? deep : several ? deep + log2_up(nodes) - 1 : 0;
    struct path path = { .hops = 2 * (inside + log2_up(nodes)),
                         .net_hops = 2 * log2_up(nodes),
                         .far = 2 * tree_far(m) };
    path.moved = tree_conns(neighbours, groups && neighbours > 2 ? 2 : 1, nchannels, coll) * (double)bytes;
    path.slower = neighbours > 0 ? slowest_more(m) / neighbours : 0;
    path.net_moved = tree_conns(neighbours_of(nodes), 1, nchannels, coll) * (double)bytes;
    return path_terms(layout, proto, nchannels, &path, t);
}

/* Passes over one-shot's bytes (measured with two ranks; each further rank adds as much where all collect
 * from all). Of blocks, a rank publishes or collects one; with a root, one rank publishes or collects all. */
static double oneshot_passes(enum rondo_coll as, double n)
{
    static const double blocks = 1, rooted = 0.6;
    return as == RONDO_COLL_ALL_GATHER || as == RONDO_COLL_REDUCE_SCATTER ? blocks
           : rondo_coll_has_root(as)                                      ? rooted * n
                                                                          : n;
}

/* Collecting from n ranks: cache misses on different lines overlap about two deep. */
static int oneshot_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                         int nchannels, size_t bytes, struct terms *t)
{
    const struct rondo_model *m = &layout->model;
    double n = layout->nranks, passes = oneshot_passes(rondo_coll_scheduled_as(coll), n), bw;
    int pair = rondo_is_pair(layout) && !rondo_coll_has_root(coll);
    size_t published, pieces;
    (void)proto;
    if (coll == RONDO_COLL_REDUCE_SCATTERV) { /* the blocks may be apart in memory */
        return 0;
    }
    if ((rondo_coll_has_root(coll) && layout->nranks > RONDO_MAILBOX_FEW) || layout->nnodes > 1 ||
        nchannels > 1 || m->mailbox_bw <= 0) {
        return 0;
    }
    t->base = m->base_us;
    published = passes == 1 ? bytes / (size_t)layout->nranks : bytes;
    pieces = pair && t->mailbox > 0 && published > t->mailbox ? (published + t->mailbox - 1) / t->mailbox : 1;
    t->hop = m->mailbox_us * n / 2 * mean_of_all(m, 0) * oversubscribed(layout) * (double)pieces;
    bw = !pair ? m->mailbox_bw : bytes <= m->pair_cached ? m->pair_bw : m->pair_past_bw;
    t->copy = larger(passes * (double)bytes / (bw * 1e3) * mean_of_all(m, 1) * oversubscribed(layout),
                     between_groups(layout, passes / n * (double)bytes));
    t->net_hop = t->net_copy = 0;
    return 1;
}

/* What a message to all costs more where ranks share cores, for each rank of a core: all of them run before
 * the next one. Small, as are the other algorithms' hops there (measured: 3, 4 and 8 ranks on 2 cores). */
static const double message_switch_us = 1;

/*
 * A conn's pass stores every byte in a slot and reads it there. Here a rank stores its input for the others
 * and its result, and reads its share from all and the results of the others.
 */
static int mail_twoshot_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                              int nchannels, size_t bytes, struct terms *t)
{
    const struct rondo_model *m = &layout->model;
    double n = layout->nranks, passes = (1 + 2 * (n - 1) / n) / 2, messages = 2,
           crowd = oversubscribed(layout);
    (void)coll;
    if (layout->nnodes > 1 || nchannels > 1 || layout->nranks < 3 || layout->nranks > RONDO_MAILBOX_FEW ||
        m->mailbox_bw <= 0 || m->bw[proto] <= 0) {
        return 0;
    }
    if (t->mailbox > 0 && bytes > t->mailbox) {
        messages += (double)((bytes - 1) / t->mailbox);
    }
    t->base = m->base_us;
    t->hop = messages * (m->mailbox_us * n / 2 * mean_of_all(m, 0) * crowd +
                         (crowd > 1 ? message_switch_us * crowd : 0));
    t->copy = larger(passes * (double)bytes / (m->bw[proto] * 1e3) * mean_of_all(m, 1) * crowd,
                     between_groups(layout, passes / n * (double)bytes));
    t->net_hop = t->net_copy = 0;
    return 1;
}

/*
 * Two-shot's passes by collective, over the larger buffer of a rank (1: every byte read or written once):
 * where buffers are mapped, and where the kernel copies, with two ranks. Measured: the kernel copies
 * through scratch memory what is reduced, and straight to its place what is not; the root of an in-place
 * broadcast has nothing to copy for itself.
 */
static const struct {
    double mapped, kernel, kernel_in_place;
} twoshot_passes[RONDO_NUM_COLLS] = {
    [RONDO_COLL_ALL_REDUCE] = { 2, 2, 2 },           [RONDO_COLL_REDUCE] = { 1.5, 1.9, 1.9 },
    [RONDO_COLL_BROADCAST] = { 1.5, 1.9, 1.1 },      [RONDO_COLL_ALL_GATHER] = { 1.8, 1, 1 },
    [RONDO_COLL_REDUCE_SCATTER] = { 1.5, 1.5, 1.5 },
};

/* All ranks meet at the mailbox before and after. */
static int twoshot_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                         int nchannels, size_t bytes, struct terms *t)
{
    const struct rondo_model *m = &layout->model;
    (void)proto;
    if (layout->nnodes > 1 || layout->nranks < 2 || nchannels > 1 || m->mailbox_bw <= 0 ||
        m->direct_bw <= 0) {
        return 0;
    }
    t->base = m->base_us + m->direct_us;
    double moved = twoshot_passes[rondo_coll_scheduled_as(coll)].mapped * (double)bytes;
    t->hop = m->mailbox_us * layout->nranks * mean_of_all(m, 0) * oversubscribed(layout);
    t->copy = larger(moved / (m->direct_bw * 1e3) * mean_of_all(m, 1) * oversubscribed(layout),
                     between_groups(layout, moved / layout->nranks));
    t->net_hop = t->net_copy = 0;
    return 1;
}

/* Bytes of every buffer that a rank holds at once at the innermost level: less than a second-level cache. */
enum { HIERARCHICAL_SHARE = 128 << 10 };

/* Bytes of a piece. A rank holds as many pieces as there are innermost groups. */
static size_t hierarchical_piece(const struct rondo_model *m)
{
    return HIERARCHICAL_SHARE / (size_t)(m->levels.n > 0 ? m->levels.groups[m->levels.n - 1] : 1);
}

size_t rondo_groups_chunk(const struct rondo_layout *layout, uint32_t elem_bytes)
{
    size_t line = RONDO_CACHE_LINE / elem_bytes,
           piece = hierarchical_piece(&layout->model) / elem_bytes / line * line;
    return piece > line ? piece : line;
}

/*
 * Passes over the bytes. A rank reads its share from all ranks of its innermost group; then, at each level,
 * the part that it holds there from all groups of the level, its own included. The results go back the same
 * path.
 */
static double hierarchical_passes(const struct rondo_layout *layout)
{
    const struct rondo_model *m = &layout->model;
    double passes = 1;
    for (int l = 0; l < m->levels.n; l++) {
        double own = groups_above(m, l), others = m->levels.groups[l] - own;
        passes += (own + others * m->level[l].copy) / layout->nranks;
    }
    return 2 * passes;
}

/* Groups of each level pass the minimum. @return the us of the level where that takes longest, each path. */
static double hierarchical_between(const struct rondo_model *m, double bytes)
{
    double most = 0;
    for (int l = 0; l < m->levels.n; l++) {
        most = larger(most, 2 * (1 - 1.0 / m->levels.groups[l]) * bytes / (m->level[l].bw * 1e3));
    }
    return most;
}

/* All ranks meet at the mailbox before and after, and in every loop the holders wait for one another. */
static double hierarchical_hops(const struct rondo_layout *layout, double bytes)
{
    const struct rondo_model *m = &layout->model;
    double looks = 0, loops = larger(bytes / layout->nranks / (double)hierarchical_piece(m), 1);
    for (int l = 0; l < m->levels.n; l++) {
        looks += 2 * (groups_a_group(m, l) - 1) * m->level[l].us;
    }
    return m->mailbox_us * (layout->nranks * mean_of_all(m, 0) + looks * loops);
}

/* Needs two groups of at least two ranks. */
static int hierarchical_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                              int nchannels, size_t bytes, struct terms *t)
{
    const struct rondo_model *m = &layout->model;
    (void)coll, (void)proto;
    if (layout->nnodes > 1 || m->levels.n == 0 || m->levels.several < 2 || nchannels > 1 ||
        m->mailbox_bw <= 0 || m->direct_bw <= 0) {
        return 0;
    }
    t->base = m->base_us + m->direct_us;
    t->hop = hierarchical_hops(layout, (double)bytes) * oversubscribed(layout);
    t->copy = larger(hierarchical_passes(layout) * (double)bytes / (m->direct_bw * 1e3) *
                         oversubscribed(layout),
                     hierarchical_between(m, (double)bytes));
    t->net_hop = t->net_copy = 0;
    return 1;
}

/* How much more the kernel's copies suffer than conns when cores are oversubscribed (measured: 3 and 4 ranks
 * on 2 cores). */
static const double cma_oversubscribed = 1.4;

/* GB/s of the kernel's copies. Past the caches two ranks have something faster (measured), more do not. */
static double cma_bandwidth(const struct rondo_layout *layout, size_t bytes, int in_place)
{
    const struct rondo_model *m = &layout->model;
    int past = m->stream_bytes > 0 && bytes >= m->stream_bytes && !in_place;
    return past && layout->nranks == 2 ? m->cma_past_bw : m->cma_bw;
}

double rondo_cma_cost_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_coll coll,
                         size_t bytes, int in_place)
{
    const struct rondo_model *m = &layout->model;
    int hierarchical = rondo_algo_seating(algo) == RONDO_SEATING_GROUPS;
    double n = layout->nranks,
           calls = 2 * (n - 1); /* system calls; what further ones cost for many bytes is in the bandwidth */
    enum rondo_coll as = rondo_coll_scheduled_as(coll);
    double copied = (in_place ? twoshot_passes[as].kernel_in_place : twoshot_passes[as].kernel) * 2 *
                    (n - 1) / n * (double)bytes;
    double slower = m->ranks_per_core > 1 ? cma_oversubscribed * oversubscribed(layout) : 1;
    double hops = hierarchical ? hierarchical_hops(layout, (double)bytes)
                               : m->mailbox_us * n * mean_of_all(m, 0);
    double copy = hierarchical ? 2 * hierarchical_passes(layout) * (double)bytes : copied * mean_of_all(m, 1);
    double between = hierarchical ? hierarchical_between(m, (double)bytes)
                                  : between_groups(layout, copied / 2 / n);
    return m->base_us + m->direct_us + (hops + m->cma_us * calls) * slower +
           larger(copy / (cma_bandwidth(layout, bytes, in_place) * 1e3) * slower, between);
}

/* How much slower a byte is when every rank reduces all bytes, not a share (measured over sockets). */
static const double doubling_work = 1.2;

/* Each swap passes the whole buffer. All ranks of a node swap at once, each with a different node if the swap
 * leaves the node. */
static int doubling_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                          int nchannels, size_t bytes, struct terms *t)
{
    int n = layout->nranks, extra = (n & (n - 1)) != 0 ? 2 : 0, steps = (int)rondo_doubling_swaps(n) + extra;
    int away = log2_up(layout->nnodes) + extra;
    struct path path = { .hops = steps,
                         .net_hops = away < steps ? away : steps,
                         .moved = steps * (double)bytes };
    (void)coll;
    path.net_moved = path.net_hops * (double)bytes * layout->max_local * doubling_work;
    if (nchannels > 1 || rondo_doubling_dims(layout) == 0 ||
        !path_terms(layout, proto, nchannels, &path, t)) {
        return 0;
    }
    /* Ranks that share cores also share the time of the calls that send and receive; with other algorithms
     * one rank at a time leaves a node. */
    t->net_hop *= layout->max_local > 1 && oversubscribed(layout) > 1 ? oversubscribed(layout) * doubling_work
                                                                      : 1;
    return 1;
}

/* Making the works of messages, for every call anew (measured). */
static const double message_us = 0.35;

/* One message, or one to or from each of the others; the peer may be on another node. */
static int p2p_terms(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                     int nchannels, size_t bytes, struct terms *t)
{
    int single = coll == RONDO_COLL_SEND || coll == RONDO_COLL_RECV, n = layout->nranks;
    double messages = single ? 1 : n - 1, away = single ? layout->nnodes > 1 : n - layout->max_local;
    struct path path = { .hops = messages,
                         .net_hops = away,
                         .moved = single ? (double)bytes : (double)bytes * (n - 1) / n };
    path.net_moved = single
                         ? (double)bytes
                         : (double)bytes * away / n * layout->max_local; /* ranks of a node share its links */
    if (nchannels > 1 || proto != RONDO_PROTO_SIMPLE || !path_terms(layout, proto, nchannels, &path, t)) {
        return 0;
    }
    t->base += messages * message_us * (single ? 1 : 2);
    return 1;
}

typedef int terms_fn(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_proto proto,
                     int nchannels, size_t bytes, struct terms *t);
#define TERMS_ROW(ctx, COLL, ALGO, protos, MAP, flow0, flow1, cost) cost##_terms,
/* In the order of rondo_schedules. */
static terms_fn *const terms_of[] = { RONDO_SCHEDULE_TABLE(TERMS_ROW, ) };

/* Is there memory for it? Conns of a graph have buffers for the layout's protocols only, those between a
 * sender and a receiver get theirs with the conn. */
static int has_memory(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                      enum rondo_proto proto, size_t bytes, size_t mailbox)
{
    switch (rondo_algo_medium(algo)) {
    case RONDO_MEDIUM_MAILBOX:
        return algo == RONDO_ALGO_MAIL_TWOSHOT /* host memory only, also where the GPUs have no model */
                   ? layout->model.gpu.direct == 0 && mailbox >= (size_t)layout->nranks * RONDO_CACHE_LINE
                   : mailbox > 0 && bytes <= rondo_most_published(coll, layout, mailbox);
    case RONDO_MEDIUM_DIRECT: return mailbox >= RONDO_TWOSHOT_BYTES;
    case RONDO_MEDIUM_CONNS: break;
    }
    return rondo_algo_seating(algo) == RONDO_SEATING_PEER || (layout->protos >> proto & 1) != 0;
}

/* A step has room for RONDO_TREE_FAN neighbours, and a root takes all that a position has. */
static int serves_root(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo)
{
    return !layout->model.wide_trees || !rondo_coll_has_root(coll) ||
           rondo_algo_seating(algo) != RONDO_SEATING_TREE;
}

double rondo_cost_us(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                     enum rondo_proto proto, int nchannels, size_t bytes, size_t mailbox)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(coll, algo);
    struct terms t = { .mailbox = mailbox };
    if (schedule == NULL || !serves_root(layout, coll, algo)) {
        return -1;
    }
    if (rondo_is_gpu_model(layout)) {
        int fits = rondo_algo_medium(algo) != RONDO_MEDIUM_CONNS ||
                   has_memory(layout, coll, algo, proto, bytes, mailbox);
        return fits && (nchannels == 1 || !rondo_one_channel(coll))
                   ? rondo_gpu_cost_us(layout, coll, algo, proto, nchannels, bytes)
                   : -1;
    }
    return has_memory(layout, coll, algo, proto, bytes, mailbox) &&
                   terms_of[schedule - rondo_schedules](layout, coll, proto, nchannels, bytes, &t)
               ? total(&t)
               : -1;
}

const char *rondo_cost_limit(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                             enum rondo_proto proto, int nchannels, size_t bytes)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(coll, algo);
    struct terms t = { .mailbox = 0 };
    if (!serves_root(layout, coll, algo)) {
        return "a rank has too many neighbours in these trees to be any call's root";
    }
    if (rondo_is_gpu_model(layout)) {
        return rondo_gpu_limit(layout, coll, algo, proto, nchannels, bytes);
    }
    return schedule != NULL && terms_of[schedule - rondo_schedules](layout, coll, proto, nchannels, bytes, &t)
               ? largest(&t)
               : "not available";
}
