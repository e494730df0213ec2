/*
 * The graphs of the nodes, told to all ranks. Each node's lowest rank says the hash of its graphs in round
 * "graphs"; here each distinct one travels once, down a binomial tree: in step k the 2^k ranks that have it
 * (counted from its owner) send it to as many others. Equal nodes, the usual case, make one tree.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "init/phases.h"

static struct rondo_shape *find_shape(struct rondo_init *init, uint64_t hash)
{
    for (int i = 0; i < init->nshapes; i++) {
        if (init->shape[i].hash == hash) {
            return &init->shape[i];
        }
    }
    return NULL;
}

struct seen {
    uint64_t hash;
    int32_t rank;
    uint32_t nbytes;
};

static int by_hash(const void *x, const void *y)
{
    const struct seen *a = x, *b = y;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash)
                              : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Distinct hashes in ascending order; the lowest rank that has one owns it. */
static rondo_status list_shapes(struct rondo_init *init, struct seen *seen)
{
    struct rondo_ctx *ctx = init->ctx;
    int n = 0;
    for (int r = 0; r < ctx->job.nranks; r++) {
        if (ctx->wiring.layout.local_of[r] == 0) {
            const struct rondo_graph_note *note = rondo_init_graph_note(init, r);
            if (note->nbytes == 0 || note->nbytes > RONDO_SHAPE_MAX_BYTES) {
                return rondo_fail(RONDO_INTERNAL_ERROR,
                                  "rank %d says that its node's graphs take %u bytes; 1 to %d are expected",
                                  r, note->nbytes, RONDO_SHAPE_MAX_BYTES);
            }
            init->node_graphs[ctx->wiring.layout.node_of[r]] = note->hash;
            init->node_fabric[ctx->wiring.layout.node_of[r]] = note->fabric;
            seen[n++] = (struct seen){ note->hash, r, note->nbytes };
        }
    }
    qsort(seen, (size_t)n, sizeof(*seen), by_hash);
    for (int i = 0; i < n; i++) {
        if (i == 0 || seen[i].hash != seen[i - 1].hash) {
            struct rondo_shape *shape = &init->shape[init->nshapes++];
            shape->hash = seen[i].hash;
            shape->owner = seen[i].rank;
            shape->nbytes = seen[i].nbytes;
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_init_list_shapes(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    struct seen *seen;
    rondo_status status;
    RONDO_TRY(RONDO_NEW_ARRAY(init->shape, ctx->wiring.layout.nnodes, "the nodes' graphs"));
    RONDO_TRY(RONDO_NEW_ARRAY(init->node_graphs, ctx->wiring.layout.nnodes, "the nodes' graphs"));
    RONDO_TRY(RONDO_NEW_ARRAY(init->node_fabric, ctx->wiring.layout.nnodes, "the nodes' graphs"));
    RONDO_TRY(RONDO_NEW_ARRAY(seen, ctx->wiring.layout.nnodes, "the nodes' graphs"));
    status = list_shapes(init, seen);
    rondo_free(seen);
    RONDO_TRY(status);
    for (int i = 0; i < init->nshapes; i++) {
        RONDO_TRY(rondo_calloc(&init->shape[i].bytes, 1, init->shape[i].nbytes, "a node's graphs"));
    }
    struct rondo_shape *own = init->graph_bytes != NULL
                                  ? find_shape(init, rondo_graphs_hash(init->graph_bytes, init->graph_nbytes))
                                  : NULL;
    if (own != NULL) {
        memcpy(own->bytes, init->graph_bytes, own->nbytes);
    }
    return RONDO_SUCCESS;
}

/* With whom this rank exchanges in a step, -1: nobody. Ranks are counted from the owner. */
static int partner(const struct rondo_init *init, int owner, int step)
{
    int n = init->ctx->job.nranks, at = (init->ctx->job.rank - owner + n) % n, bit = 1 << step, other;
    if (at >= 2 * bit) {
        return -1;
    }
    other = at < bit ? at + bit : at - bit;
    return other < n ? (other + owner) % n : -1;
}

static int receives(const struct rondo_init *init, int owner, int step)
{
    int n = init->ctx->job.nranks, at = (init->ctx->job.rank - owner + n) % n;
    return at >= 1 << step;
}

/* The record goes both ways; the half that leads up is not looked at. */
static rondo_status start_step(struct rondo_init *init)
{
    struct rondo_shape *shape = &init->shape[init->shape_at];
    int peer = partner(init, shape->owner, init->shape_step);
    init->shape_peer[0] = peer;
    rondo_free(init->all);
    init->all = NULL;
    RONDO_TRY(rondo_calloc(&init->all, 1, shape->nbytes, "a node's graphs"));
    return init->bootstrap->ops->exchange_start(init->bootstrap, peer >= 0, init->shape_peer, shape->bytes,
                                                init->all, shape->nbytes);
}

rondo_status rondo_init_start_shapes(struct rondo_init *init)
{
    init->shape_at = init->shape_step = 0;
    return init->ctx->job.nranks == 1 ? RONDO_SUCCESS : start_step(init);
}

/* A step is done: @return 1 when it was the last one. */
static int end_step(struct rondo_init *init)
{
    struct rondo_shape *shape = &init->shape[init->shape_at];
    if (init->shape_peer[0] >= 0 && receives(init, shape->owner, init->shape_step)) {
        memcpy(shape->bytes, init->all, shape->nbytes);
    }
    if (1 << ++init->shape_step >= init->ctx->job.nranks) {
        init->shape_step = 0;
        init->shape_at++;
    }
    return init->shape_at == init->nshapes;
}

/* As many steps as can be done now: most ranks have no part in most steps. */
rondo_status rondo_init_test_shapes(struct rondo_init *init)
{
    if (init->ctx->job.nranks == 1) {
        return RONDO_SUCCESS;
    }
    for (;;) {
        RONDO_TRY(init->bootstrap->ops->test(init->bootstrap));
        if (end_step(init)) {
            return RONDO_SUCCESS;
        }
        RONDO_TRY(start_step(init));
    }
}

void rondo_init_free_shapes(struct rondo_init *init)
{
    for (int i = 0; i < init->nshapes; i++) {
        rondo_free(init->shape[i].bytes);
    }
    rondo_free(init->shape);
    rondo_free(init->node_graphs);
    rondo_free(init->node_fabric);
    rondo_free(init->graph_bytes);
    init->shape = NULL;
    init->node_graphs = init->node_fabric = NULL;
    init->graph_bytes = NULL;
    init->nshapes = 0;
}
