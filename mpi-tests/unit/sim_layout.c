/* Layouts for simulations: one node with rings in any order; several nodes, as creation makes them. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "comm/layout_fill.h"
#include "init/node.h"
#include "topo/stitch.h"

void *sim_zeroed(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size);
    if (p == NULL) {
        fprintf(stderr, "sim: out of memory\n");
        abort();
    }
    return p;
}

uint64_t sim_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

struct rondo_layout *sim_layout_new(int n, int nchannels, int shuffled)
{
    struct rondo_layout *layout = sim_zeroed(1, sizeof(*layout));
    uint64_t state = (uint64_t)shuffled;
    layout->nranks = layout->nlocal = layout->max_local = n;
    layout->nnodes = 1;
    layout->nchannels = nchannels;
    layout->channel = sim_zeroed((size_t)nchannels, sizeof(*layout->channel));
    for (int c = 0; c < nchannels; c++) {
        struct rondo_ring *ring = &layout->channel[c].ring;
        ring->rank_at = sim_zeroed((size_t)n, sizeof(int32_t));
        ring->index_of = sim_zeroed((size_t)n, sizeof(int32_t));
        for (int i = 0; i < n; i++) {
            int j = shuffled != 0 ? (int)(sim_random(&state) % (uint64_t)(i + 1)) : i;
            ring->rank_at[i] = ring->rank_at[j];
            ring->rank_at[j] = i;
        }
        for (int i = 0; i < n; i++) {
            ring->index_of[ring->rank_at[i]] = i;
        }
    }
    sim_layout_view(layout, 0);
    return layout;
}

/* ---- several nodes ---- */

static void must(rondo_status status)
{
    if (status != RONDO_SUCCESS) {
        fprintf(stderr, "sim: %s\n", rondo_error_text());
        abort();
    }
}

static void order_draw(int16_t *order, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++) {
        int j = *state != 0 ? (int)(sim_random(state) % (uint64_t)(i + 1)) : i;
        order[i] = order[j];
        order[j] = (int16_t)i;
    }
}

static void shape_draw(struct rondo_shape *shape, int node, int ndevs, uint64_t *state)
{
    enum { CHANNELS = 2 };
    struct rondo_graph graph[RONDO_NUM_GRAPHS] = { { 0 } };
    struct rondo_graph_net net[2] = { { .rail = -1 }, { .rail = -1 } };
    int16_t *order = sim_zeroed((size_t)(CHANNELS * RONDO_NUM_GRAPHS * ndevs), sizeof(*order));
    size_t nbytes;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        struct rondo_graph *g = &graph[id];
        *g = (struct rondo_graph){
            .id = id, .nchannels = 1 + node % CHANNELS, .ndevs = ndevs, .bw_intra = 9000, .bw_inter = 1000
        };
        g->pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING : 1 + (int)(sim_random(state) % 3);
        g->order = order + id * CHANNELS * ndevs;
        for (int c = 0; c < CHANNELS; c++) {
            order_draw(g->order + c * ndevs, ndevs, state);
            g->net[2 * c + 1] = 1;
        }
    }
    for (int i = 0; i < 2; i++) {
        snprintf(net[i].name, sizeof(net[i].name), "n%d:%d", node, i);
    }
    must(rondo_graphs_pack(graph, ndevs, 2, net, &shape->bytes, &nbytes));
    shape->nbytes = (uint32_t)nbytes;
    shape->hash = rondo_graphs_hash(shape->bytes, nbytes);
    free(order);
}

/* The node of each rank. */
static struct rondo_peer *peers_draw(const int *local, int nnodes, uint64_t *state, int *n)
{
    struct rondo_peer *peers;
    int at = 0;
    *n = 0;
    for (int node = 0; node < nnodes; node++) {
        *n += local[node];
    }
    peers = sim_zeroed((size_t)*n, sizeof(*peers));
    for (int node = 0; node < nnodes; node++) {
        for (int i = 0; i < local[node]; i++, at++) {
            int j = *state != 0 ? (int)(sim_random(state) % (uint64_t)(at + 1)) : at;
            peers[at].host_hash = peers[j].host_hash;
            peers[j].host_hash = (uint64_t)node + 1;
            peers[at].device = -1;
        }
    }
    return peers;
}

struct rondo_layout *sim_layout_nodes(const int *local, int nnodes, int nchannels, uint64_t seed)
{
    struct rondo_layout *layout = sim_zeroed(1, sizeof(*layout));
    struct rondo_shape *shape = sim_zeroed((size_t)nnodes, sizeof(*shape));
    uint64_t *graphs = sim_zeroed((size_t)nnodes, sizeof(*graphs)), state = seed;
    int *count = sim_zeroed((size_t)nnodes, sizeof(*count)), n;
    struct rondo_peer *peers = peers_draw(local, nnodes, &state, &n);
    must(rondo_layout_fill(layout, peers, 0, n));
    must(rondo_layout_channels(layout, nchannels, 1, RONDO_ALL_PROTOS));
    for (int r = 0; r < n; r++) {
        count[layout->node_of[r]]++;
    }
    for (int node = 0; node < nnodes; node++) {
        shape_draw(&shape[node], node, count[node], &state);
        graphs[node] = shape[node].hash;
    }
    must(rondo_node_rings(layout, peers, shape, nnodes, graphs, NULL));
    sim_layout_view(layout, 0);
    for (int node = 0; node < nnodes; node++) {
        rondo_free(shape[node].bytes);
    }
    free(shape);
    free(graphs);
    free(count);
    free(peers);
    return layout;
}

void sim_layout_view(struct rondo_layout *layout, int rank)
{
    int n = layout->nranks;
    layout->rank = layout->local_rank = rank;
    if (layout->stitch != NULL) {
        layout->node = layout->node_of[rank];
        layout->local_rank = layout->local_of[rank];
    }
    for (int c = 0; c < layout->nchannels; c++) {
        struct rondo_ring *ring = &layout->channel[c].ring;
        ring->index = ring->index_of[rank];
        ring->prev = ring->rank_at[(ring->index + n - 1) % n];
        ring->next = ring->rank_at[(ring->index + 1) % n];
    }
    rondo_layout_trees(layout);
}

void sim_layout_free(struct rondo_layout *layout)
{
    if (layout->node_of != NULL) {
        rondo_layout_release(layout);
        free(layout);
        return;
    }
    for (int c = 0; c < layout->nchannels; c++) {
        free(layout->channel[c].ring.rank_at);
        free(layout->channel[c].ring.index_of);
    }
    free(layout->channel);
    free(layout);
}
