/* Phase "colors", the first of a split: the parent's ranks exchange colours; those of one colour go on. */
#include <stdlib.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/backend.h"
#include "init/child.h"
#include "init/phases.h"

struct color_record {
    struct rondo_round_head head;
    int32_t color, key;
    uint64_t inherits; /* hash of this rank's parameters; 0: the child needs a round of peers' records */
};

/* May the child take its ranks' records from the parent's, as far as this rank knows? */
static uint64_t may_inherit(const struct rondo_init *init)
{
    return rondo_child_may_inherit(init->split.parent, init->ctx) ? rondo_param_agree_hash() : 0;
}

static rondo_status start_colors(struct rondo_init *init)
{
    struct color_record *mine;
    rondo_init_arm_faults(init);
    RONDO_TRY(RONDO_NEW_ARRAY(init->members, init->bootstrap->nranks, "the members of a split"));
    RONDO_TRY(rondo_init_new_round(init, sizeof(*mine), init->bootstrap->nranks));
    mine = init->mine;
    mine->color = init->split.color;
    mine->key = init->split.key;
    mine->inherits = may_inherit(init);
    init->older = __atomic_exchange_n(&init->split.parent->job.splits[init->split.child % RONDO_SPLIT_SLOTS],
                                      init->ctx->shell, __ATOMIC_ACQ_REL);
    return rondo_init_allgather(init);
}

/* By key, then by rank. */
static int by_key(const void *x, const void *y, void *init)
{
    int a = *(const int *)x, b = *(const int *)y;
    int key_a = ((const struct color_record *)rondo_init_record(init, a))->key;
    int key_b = ((const struct color_record *)rondo_init_record(init, b))->key;
    return key_a != key_b ? (key_a > key_b) - (key_a < key_b) : (a > b) - (a < b);
}

/* Do all members inherit, with the parameters that the parent's ranks had? */
static int all_inherit(const struct rondo_init *init, const int *ranks, int n)
{
    uint64_t first = init->split.parent->wiring.peers != NULL ? init->split.parent->wiring.peers[0].param_hash
                                                              : 0;
    for (int i = 0; i < n; i++) {
        const struct color_record *record = rondo_init_record(init, ranks[i]);
        if (record->inherits == 0 || record->inherits != first) {
            return 0;
        }
    }
    return 1;
}

/* The others of this colour wait for this rank from here on, and only they: what fails is told to them. */
static rondo_status join_color(struct rondo_init *init, int self, int n)
{
    struct rondo_ctx *ctx = init->ctx, *parent = init->split.parent;
    uint64_t tag = rondo_child_tag(parent->job.hash, "color", init->split.child, &init->split.color,
                                   sizeof(init->split.color));
    if (n == 1) {
        init->bootstrap->ops->close(init->bootstrap, 1);
        init->bootstrap = NULL;
        RONDO_TRY(rondo_child_bootstrap(parent, init->members, n, self, tag, 0, &init->bootstrap));
    } else {
        rondo_bootstrap_control_divide(init->bootstrap, init->members, n, self, tag);
        if (rondo_child_in_node(parent)) {
            rondo_bootstrap_control_node(init->bootstrap, init->split.child, 1);
        }
    }
    RONDO_TRY(rondo_fault("colors", parent->job.rank, 0));
    if (all_inherit(init, init->members, n)) {
        RONDO_TRY(rondo_child_inherit(ctx, parent, init->members, n, tag));
    }
    ctx->job.rank = self;
    ctx->job.nranks = n;
    __atomic_store_n(&ctx->job.agreed, 1, __ATOMIC_RELEASE);
    return RONDO_SUCCESS;
}

static rondo_status finish_colors(struct rondo_init *init)
{
    const struct rondo_ctx *parent = init->split.parent;
    int n = 0, self = 0;
    if (init->split.color == RONDO_SPLIT_NOCOLOR) {
        init->ctx->job.nranks = 0;
        __atomic_store_n(&init->ctx->job.agreed, 1, __ATOMIC_RELEASE);
        return RONDO_SUCCESS;
    }
    for (int r = 0; r < parent->job.nranks; r++) {
        const struct color_record *record = rondo_init_record(init, r);
        if (record->color == init->split.color) {
            init->members[n++] = r;
        }
    }
    qsort_r(init->members, (size_t)n, sizeof(*init->members), by_key, init);
    while (init->members[self] != parent->job.rank) {
        self++;
    }
    return join_color(init, self, n);
}

/* A split may wait for the place that an older one has in the parent's segment (bootstrap_node.h). The
 * program need not be polling that one, so it is moved here. An error is its own. */
static void move_older(rondo_comm *shell)
{
    struct rondo_ctx *older;
    if (shell != NULL && rondo_comm_visit_alive(shell, &older)) {
        if (__atomic_load_n(&older->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_INIT) {
            (void)rondo_init_look(older);
        }
        rondo_comm_unvisit(shell);
    }
}

static rondo_status test_colors(struct rondo_init *init)
{
    rondo_status status = rondo_init_test_round(init);
    if (status == RONDO_IN_PROGRESS) {
        move_older(init->older);
    }
    return status;
}

const struct rondo_phase rondo_phase_colors = {
    .name = "colors",
    .start = start_colors,
    .test = test_colors,
    .finish = finish_colors,
};
