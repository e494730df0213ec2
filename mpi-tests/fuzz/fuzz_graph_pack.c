/* Fuzz packed graphs from another rank. Graphs that are accepted pack to the same bytes, and a job can be
 * stitched from them. */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "topo/stitch.h"

enum { NNODES = 3, MAX_DEVS = 16 };

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void packs_to_the_same(const struct rondo_graph *graphs, const uint8_t *data, size_t bytes)
{
    static struct rondo_graph_net nets[RONDO_MACHINE_MAX_NETS];
    int nnets = rondo_graphs_nnets(data);
    uint8_t *again;
    size_t n;
    rondo_graphs_nets(data, nets);
    require(rondo_graphs_pack(graphs, graphs[0].ndevs, nnets, nets, &again, &n) == RONDO_SUCCESS);
    require(n == bytes && memcmp(again, data, n) == 0);
    rondo_free(again);
}

static void job_is_stitched(int ndevs, int host_trees, const uint8_t *data, size_t bytes)
{
    struct rondo_stitch_rank ranks[NNODES * MAX_DEVS];
    struct rondo_stitch *stitch;
    struct rondo_channel_layout layout;
    for (int r = 0; r < NNODES * ndevs; r++) {
        ranks[r] = (struct rondo_stitch_rank){ .graphs = rondo_graphs_hash(data, bytes),
                                               .node = (uint32_t)(r / ndevs),
                                               .local = (uint16_t)(r % ndevs) };
    }
    const struct rondo_stitch_input input = { .nranks = NNODES * ndevs,
                                              .rank = ranks,
                                              .ndistinct = 1,
                                              .bytes = &data,
                                              .nbytes = &bytes,
                                              .host_trees = host_trees };
    if (rondo_stitch_create(&stitch, &input) != RONDO_SUCCESS) {
        return;
    }
    require(rondo_stitch_check(stitch) == RONDO_SUCCESS);
    for (int r = 0; r < input.nranks; r++) {
        for (int c = 0; c < rondo_stitch_summary(stitch)->nchannels; c++) {
            rondo_stitch_channel(stitch, r, c, &layout);
            require(layout.ring.next >= 0 && layout.ring.next < input.nranks && layout.ring.prev >= 0 &&
                    layout.ring.prev < input.nranks);
        }
    }
    rondo_stitch_destroy(stitch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS] = { { 0 } };
    rondo_log_mask = RONDO_LOG_NONE;
    if (rondo_graphs_unpack(data, bytes, graphs) != RONDO_SUCCESS) {
        return 0;
    }
    packs_to_the_same(graphs, data, bytes);
    int ndevs = graphs[0].ndevs;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
    if (ndevs <= MAX_DEVS) {
        job_is_stitched(ndevs, 0, data, bytes);
        job_is_stitched(ndevs, 1, data, bytes);
    }
    return 0;
}
