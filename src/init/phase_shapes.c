/*
 * Phase "shapes": every rank gets each distinct node's graphs (its shape) and makes rings and trees of them.
 * Phase "graphs" has exchanged hashes, so each distinct shape is broadcast once, down a binomial tree: in
 * step k the 2^k ranks that have it (counted from its owner) send it to as many others. Nodes are usually all
 * alike, which makes one broadcast.
 */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/backend.h"
#include "comm/layout_fill.h"
#include "init/phases.h"
#include "tuner/tune_file.h"

enum { MANY_SHAPES = 16 };

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

/* List the distinct hashes in ascending order; the lowest rank with a shape owns it. */
static rondo_status list_shapes(struct rondo_init *init, struct seen *seen)
{
    struct rondo_ctx *ctx = init->ctx;
    int n = 0;
    for (int r = 0; r < ctx->job.nranks; r++) {
        if (ctx->wiring.layout.local_of[r] == 0) {
            const struct rondo_graph_note *note = rondo_init_graph_note(init, r);
            if (note->nbytes == 0 || note->nbytes > RONDO_SHAPE_MAX_BYTES) {
                return rondo_fail(
                    RONDO_INTERNAL_ERROR,
                    "rank %d reports that its node's graphs take %u bytes; 1 to %d are expected", r,
                    note->nbytes, RONDO_SHAPE_MAX_BYTES);
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

/* Each shape is a broadcast of its own, so many take long. The names of nets are part of a node's. */
static void log_shapes(const struct rondo_init *init)
{
    const struct rondo_ctx *ctx = init->ctx;
    if (ctx->job.rank == 0 && ctx->wiring.layout.nnodes > 1) {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_GRAPH, "%s: the graphs of %d nodes have %d shapes%s",
                   ctx->job.name, ctx->wiring.layout.nnodes, init->nshapes,
                   init->nshapes > MANY_SHAPES ? ", which are sent one after the other: give the net "
                                                 "interfaces of alike nodes the same names"
                                               : "");
    }
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
    log_shapes(init);
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

static int receives(const struct rondo_init *init, int owner, int step)
{
    int n = init->ctx->job.nranks, at = (init->ctx->job.rank - owner + n) % n;
    return at >= 1 << step;
}

/* Both ranks send; the receiver of the tree's upper rank ignores what it gets. */
static rondo_status start_step(struct rondo_init *init)
{
    struct rondo_shape *shape = &init->shape[init->shape_at];
    int peer = rondo_shape_partner(init->ctx->job.nranks, init->ctx->job.rank, shape->owner,
                                   init->shape_step);
    init->shape_peer[0] = peer;
    rondo_free(init->all);
    init->all = NULL;
    RONDO_TRY(rondo_calloc(&init->all, 1, shape->nbytes, "a node's graphs"));
    return init->bootstrap->ops->exchange_start(init->bootstrap, peer >= 0, init->shape_peer, shape->bytes,
                                                init->all, shape->nbytes);
}

/* The node's first rank has written the graphs into the new segment. The next round reports an error. */
static rondo_status take_near(struct rondo_init *init)
{
    RONDO_TRY(rondo_init_attach(init));
    if (init->graph_bytes == NULL) {
        memcpy(init->shape[0].bytes, rondo_control_extra(init->ctx->wiring.control), init->shape[0].nbytes);
    }
    return RONDO_SUCCESS;
}

static rondo_status start_shapes(struct rondo_init *init)
{
    rondo_init_keep(init, rondo_fault("shapes", init->ctx->job.rank, 0));
    if (init->near) {
        if (init->local == RONDO_SUCCESS) {
            rondo_init_keep(init, take_near(init));
        }
        return RONDO_SUCCESS;
    }
    init->shape_at = init->shape_step = 0;
    return init->ctx->job.nranks == 1 ? RONDO_SUCCESS : start_step(init);
}

/* @return 1 after the last step. */
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

/* Do as many steps as possible at once: most ranks take no part in most steps. */
static rondo_status test_shapes(struct rondo_init *init)
{
    if (init->ctx->job.nranks == 1 || init->near) {
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

/* ---- rings and trees ---- */

/* Call it when the layout and its model are complete. */
static void use_tune(struct rondo_ctx *ctx)
{
    struct rondo_tune_shape shape = rondo_tune_shape_of(&ctx->wiring.layout);
    char text[160], why[256] = "";
    if (ctx->running.tune == NULL) {
        return;
    }
    ctx->wiring.layout.measured = rondo_tune_find(ctx->running.tune, &shape, why, sizeof(why));
    if (ctx->job.rank == 0 && rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_INIT | RONDO_SUBSYS_TUNING)) {
        rondo_tune_shape_text(&shape, text, sizeof(text));
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_TUNING, "RONDO_TUNE_FILE=%s %s %s%s%s",
                   rondo_params()->tune_file,
                   ctx->wiring.layout.measured != NULL ? "is used for" : "is ignored: this job is", text,
                   why[0] != '\0' ? "; " : "", why);
    }
}

static rondo_status alone(struct rondo_layout *layout)
{
    int32_t *rank_at;
    RONDO_TRY(RONDO_NEW_ARRAY(rank_at, 1, "a ring"));
    RONDO_TRY(rondo_layout_ring(layout, 0, rank_at));
    for (int c = 1; c < layout->nchannels; c++) {
        layout->channel[c].ring = layout->channel[0].ring;
    }
    return RONDO_SUCCESS;
}

/* Where the paths between GPUs are unknown, the cost model of host memory chooses, which assumes that the 128
 * bytes of a store arrive at once. So LL128 goes, and no conn gets slots for it. */
static void mask_ll128(struct rondo_ctx *ctx)
{
    uint32_t ll128 = 1u << RONDO_PROTO_LL128;
    if (!ctx->backend->is_gpu || ctx->job.nranks == 1 || ctx->wiring.layout.model.gpu.nchannels > 0 ||
        (ctx->wiring.layout.protos & ll128) == 0) {
        return;
    }
    ctx->wiring.layout.protos &= ~ll128;
    if (ctx->job.rank == 0) {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_TUNING,
                   "%s: LL128 is off: the paths between the GPUs are unknown", ctx->job.name);
    }
}

static rondo_status finish_shapes(struct rondo_init *init)
{
    struct rondo_ctx *ctx = init->ctx;
    if (init->near && init->local != RONDO_SUCCESS) {
        return RONDO_SUCCESS; /* this rank may not have the graphs */
    }
    RONDO_TRY(ctx->job.nranks == 1 ? alone(&ctx->wiring.layout)
                                   : rondo_node_rings(&ctx->wiring.layout, ctx->wiring.peers, init->shape,
                                                      init->nshapes, init->node_graphs, init->node_fabric));
    rondo_layout_trees(&ctx->wiring.layout);
    mask_ll128(ctx);
    ctx->wiring.net.nics = ctx->wiring.layout.nics;
    ctx->wiring.net.nnics = ctx->wiring.layout.nnics;
    use_tune(ctx);
    rondo_init_free_shapes(init);
    return RONDO_SUCCESS;
}

const struct rondo_phase rondo_phase_shapes = {
    .name = "shapes",
    .start = start_shapes,
    .test = test_shapes,
    .finish = finish_shapes,
};
