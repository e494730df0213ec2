/* Layouts for simulations: one node, rings in any order. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

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
    sim_layout_turn(layout, 0);
    return layout;
}

void sim_layout_turn(struct rondo_layout *layout, int rank)
{
    int n = layout->nranks;
    layout->rank = layout->local_rank = rank;
    for (int c = 0; c < layout->nchannels; c++) {
        struct rondo_ring *ring = &layout->channel[c].ring;
        ring->index = ring->index_of[rank];
        ring->prev = ring->rank_at[(ring->index + n - 1) % n];
        ring->next = ring->rank_at[(ring->index + 1) % n];
    }
    for (int c = 0; c < layout->nchannels; c++) {
        rondo_tree_fill(layout, c);
    }
}

void sim_layout_free(struct rondo_layout *layout)
{
    for (int c = 0; c < layout->nchannels; c++) {
        free(layout->channel[c].ring.rank_at);
        free(layout->channel[c].ring.index_of);
    }
    free(layout->channel);
    free(layout);
}
