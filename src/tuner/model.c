#include "tuner/model.h"

#include <string.h>

#include "base/param.h"
#include "tuner/cost_impl.h"

enum { SM_VOLTA = 70, SM_HOPPER = 90 };

static const struct {
    double us, most, unknown; /* GB/s: at most (0: what the port carries), and for unknown ports */
} nets[RONDO_MODEL_NUM_NETS] = { [RONDO_MODEL_SOCKETS] = { 12, 2, 2 }, [RONDO_MODEL_RDMA] = { 2, 0, 10 } };

/* Half of an LL line is flags, of an LL128 line one sixteenth. Flags are checked once more before a send,
 * and slots are smaller. */
static const double proto_us[RONDO_NUM_PROTOS] = {
    [RONDO_PROTO_LL] = 2, [RONDO_PROTO_LL128] = 2, [RONDO_PROTO_SIMPLE] = 0
};
static const double proto_bw[RONDO_NUM_PROTOS] = {
    [RONDO_PROTO_LL] = 1.0 / 2, [RONDO_PROTO_LL128] = 15.0 / 16, [RONDO_PROTO_SIMPLE] = 1
};

static void net_fill(struct rondo_model *m, double us, double bw)
{
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        m->net_us[p] = us + proto_us[p];
        m->net_bw[p] = bw * proto_bw[p];
    }
}

void rondo_model_net(struct rondo_model *model, const struct rondo_stitch_summary *summary,
                     enum rondo_model_net net)
{
    const struct rondo_graph *ring = &summary->graph[RONDO_GRAPH_RING];
    double bw = summary->min_nets > 0 && ring->found > 0 ? ring->found * 1e-3 : nets[net].unknown;
    bw = nets[net].most > 0 && nets[net].most < bw ? nets[net].most : bw;
    net_fill(model, nets[net].us + ring->latency_inter * 1e-3, bw);
}

enum { ZEN5 = 26 }; /* family */
static const int32_t amd = 1 << RONDO_GRAPH_CPU(RONDO_ARCH_X86, RONDO_VENDOR_AMD);

static int is_zen5(const struct rondo_graph *graph) { return graph->cpus == amd && graph->family >= ZEN5; }

/* Outputs of at least this size are stored past the caches: half of a rank's share of the outermost cache,
 * because a call has an input too; all of it on Zen 5 (measured: 8 of 16 MiB are 1.3 to 2 times as fast in
 * the cache). */
static size_t stream_bytes(const struct rondo_graph *graph)
{
    static const size_t most = 16 << 20; /* also for ranks with a larger share (measured: 52 MiB each) */
    size_t share = (size_t)graph->cache * 1024 / (is_zen5(graph) ? 1 : 2);
    if (rondo_params()->stream_size != RONDO_PARAM_AUTO) {
        return (size_t)rondo_params()->stream_size;
    }
    return share > 0 && share < most ? share : most;
}

void rondo_model_host(struct rondo_model *m, double ranks_per_core)
{
    static const struct rondo_graph unknown;
    m->ranks_per_core = ranks_per_core;
    m->base_us = 0.2;
    m->mailbox_us = 0.1;
    m->mailbox_bw = 7.6;
    m->pair_bw = 14;
    m->pair_past_bw = 12.5;
    m->pair_slows = m->conn_slows = 1;
    m->pair_cached = 1 << 20;
    m->direct_us = 0.6;
    m->direct_bw = 26;
    m->cma_us = 1.8;
    m->cma_bw = 14;
    m->cma_past_bw = 6.3;
    m->stream_bytes = stream_bytes(&unknown);
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        m->hop_us[p] = p == RONDO_PROTO_SIMPLE ? 0.55 : p == RONDO_PROTO_LL128 ? 0.4 : 0.33;
    }
    net_fill(m, nets[RONDO_MODEL_SOCKETS].us, nets[RONDO_MODEL_SOCKETS].unknown);
    m->bw[RONDO_PROTO_LL] = 2.2;
    m->bw[RONDO_PROTO_LL128] = 4;
    m->bw[RONDO_PROTO_SIMPLE] = 6;
}

/*
 * Estimates from published numbers of servers with one and two sockets; not measured. us and copy are
 * relative to two cores that share a cache; bw in GB/s, one way out of one group.
 */
static const struct rondo_model_level beyond[RONDO_NUM_LEVELS] = {
    [RONDO_LEVEL_CACHE] = { .us = 2, .copy = 1.2, .bw = 50 },
    [RONDO_LEVEL_NUMA] = { .us = 2.5, .copy = 1.4, .bw = 50 },
    [RONDO_LEVEL_PACKAGE] = { .us = 4, .copy = 1.8, .bw = 60 },
};

void rondo_model_levels(struct rondo_model *m, const struct rondo_stitch_summary *summary)
{
    m->levels = summary->levels;
    for (int l = 0; l < m->levels.n; l++) {
        m->level[l] = beyond[m->levels.kind[l]];
    }
    m->probed_us = summary->apart > 0 ? m->level[summary->apart - 1].us : 0;
}

/* Near cores take 140 to 200 ns (measured as init/handover.c does). Above the second number the cores are
 * far; above the third, the ranks shared one. */
enum { NEAR_NS = 140, MOST_NEAR_NS = 250, MOST_FAR_NS = 1200 };

const char *rondo_model_handover_name(uint32_t ns)
{
    return ns == 0 || ns > MOST_FAR_NS ? "unknown" : ns > MOST_NEAR_NS ? "far" : "near";
}

void rondo_model_handover(struct rondo_model *m, uint32_t ns)
{
    /* Measured on cores four times as far: slots 4 to 6 times as slow, the kernel's copies 1.4 times,
     * mapped buffers 1.6 times. */
    double expected = m->probed_us > 0 ? m->probed_us : 1, slower = (double)ns / (NEAR_NS * expected);
    if (ns <= MOST_NEAR_NS * expected || ns > MOST_FAR_NS * expected) {
        return;
    }
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        m->hop_us[p] *= slower;
    }
    m->mailbox_us *= slower;
    if (m->calibrated) {
        return; /* the bandwidths were measured between cores as far */
    }
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        m->bw[p] /= 1 + (slower - 1) * m->conn_slows;
    }
    m->mailbox_bw /= slower;
    m->pair_bw /= 1 + (slower - 1) * m->pair_slows;
    m->pair_past_bw /= 1 + (slower - 1) * m->pair_slows;
    m->direct_bw /= 1 + (slower - 1) * 0.2;
    m->cma_bw /= 1 + (slower - 1) * 0.15;
    m->cma_past_bw /= 1 + (slower - 1) * 0.15;
}

/* 128 bytes arrive as one over NVLink and through switches, not through a host bridge; GPUs before Hopper
 * need peers of their own kind. Creation checks later that conns take these paths (init/phase_done.c). */
static int has_ll128(const struct rondo_graph *graph)
{
    int farthest = graph->min_sm >= SM_HOPPER ? RONDO_PATH_PXN : RONDO_PATH_PXB;
    return graph->min_sm >= SM_VOLTA && (graph->min_sm == graph->max_sm || graph->min_sm >= SM_HOPPER) &&
           graph->type_intra <= RONDO_PATH_NVB && graph->type_inter <= farthest;
}

static struct rondo_model_graph model_graph(const struct rondo_graph *graph)
{
    return (struct rondo_model_graph){ .nchannels = graph->nchannels,
                                       .bw_intra = graph->bw_intra,
                                       .bw_inter = graph->bw_inter,
                                       .latency_inter = graph->latency_inter,
                                       .nvlink = graph->type_intra == RONDO_PATH_NVL,
                                       .near = graph->type_intra <= RONDO_PATH_NVL,
                                       .ll128 = has_ll128(graph),
                                       .one_gpu = graph->pattern == RONDO_PATTERN_TREE };
}

/* Nothing is known to connect the nodes: assume sockets, not a shared PCI tree. */
static void sockets_join(struct rondo_model_graph *graph)
{
    int32_t share = (int32_t)(nets[RONDO_MODEL_SOCKETS].unknown * 1e3) /
                    (graph->nchannels > 0 ? graph->nchannels : 1);
    graph->bw_inter = share > 0 ? share : 1;
    graph->latency_inter = (int32_t)(nets[RONDO_MODEL_SOCKETS].us * 1e3);
}

void rondo_model_machine(struct rondo_model *m, const struct rondo_stitch_summary *summary)
{
    const struct rondo_graph *ring = &summary->graph[RONDO_GRAPH_RING];
    m->stream_bytes = stream_bytes(ring);
    if (ring->cpus == amd) {
        /* Measured on Zen 3: one-shot of any size is faster than the kernel's copies, which are as fast as
         * elsewhere, and mapped buffers are faster than one-shot. */
        m->direct_bw = 40;
        m->pair_bw = m->pair_past_bw = m->pair_bw > 0 ? 16 : 0;
        m->pair_slows = 0.15; /* as the kernel's copies */
    }
    if (is_zen5(ring)) {
        /* Measured: the kernel's copies are 1.5 times as fast as on Zen 3, everything else 2 to 3 times,
         * also on far and on oversubscribed cores. The model has one scale, so here the copies become
         * slower. */
        m->cma_bw = 6;
        m->cma_past_bw = 4;
        m->conn_slows = m->pair_slows;
    }
}

static int host_of(int32_t cpus)
{
    return (cpus & amd) == 0 ? RONDO_GPU_HOST_OTHER : cpus == amd ? RONDO_GPU_HOST_AMD : RONDO_GPU_HOST_MIXED;
}

void rondo_model_from_graphs(struct rondo_model *model, const struct rondo_stitch_summary *summary)
{
    const struct rondo_graph *ring = &summary->graph[RONDO_GRAPH_RING],
                             *tree = &summary->graph[RONDO_GRAPH_TREE];
    struct rondo_model_gpu *gpu = &model->gpu;
    memset(gpu, 0, sizeof(*gpu));
    model->wide_trees = summary->wide_trees;
    if (ring->min_sm <= 0 || ring->nchannels <= 0) {
        return;
    }
    gpu->nchannels = 2 * ring->nchannels; /* the summary's may be fewer if the user asks for that */
    gpu->nchannels = summary->nchannels > gpu->nchannels ? summary->nchannels : gpu->nchannels;
    gpu->sm = ring->min_sm;
    gpu->host = host_of(ring->cpus);
    gpu->p2p_ll = (int32_t)rondo_params()->p2p_ll_threshold;
    gpu->ring = model_graph(ring);
    gpu->tree = model_graph(tree);
    if (summary->nnodes > 1 && summary->min_nets == 0) {
        sockets_join(&gpu->ring);
        sockets_join(&gpu->tree);
    }
}
