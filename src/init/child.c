/* rondo_comm_split and rondo_comm_shrink: children of a communicator, created over its control plane; and
 * what else its members tell each other that way. */
#include "init/child.h"

#include <string.h>

#include "base/inside.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/group.h"
#include "call/report.h"
#include "call/stream.h"
#include "call/wait.h"
#include "comm/backend.h"
#include "init/engine.h"
#include "init/life.h"

/* The bootstrap of a communicator of one rank: a hub without peers. */
static rondo_status alone(struct rondo_bootstrap **bootstrap)
{
    struct rondo_hub *hub;
    rondo_status status;
    RONDO_TRY(rondo_hub_create(1, &hub));
    status = rondo_bootstrap_threads(hub, 0, bootstrap);
    rondo_hub_release(hub);
    return status;
}

/* Hash the serial instead of adding it to the seed: else (serial, part) = (k, 1) and (k + 1, 0) may have
 * equal tags, and the control plane drops messages that have the tag of a finished bootstrap. */
uint64_t rondo_child_tag(uint64_t parent_hash, const char *kind, uint64_t serial, const void *part,
                         size_t bytes)
{
    uint64_t hash = rondo_hash(kind, strlen(kind), parent_hash);
    return rondo_hash(part, bytes, rondo_hash(&serial, sizeof(serial), hash));
}

rondo_status rondo_child_bootstrap(struct rondo_ctx *parent, const int *members, int n, int self,
                                   uint64_t tag, int over_ended, struct rondo_bootstrap **bootstrap)
{
    RONDO_TRY(n == 1 ? alone(bootstrap)
                     : rondo_bootstrap_control(parent->wiring.control, members, n, self, tag, over_ended,
                                               bootstrap));
    (*bootstrap)->idle = parent->job.mpi.progress;
    (*bootstrap)->idle_arg = parent->job.mpi.arg;
    (*bootstrap)->idle_asks = parent->job.mpi_asks;
    return RONDO_SUCCESS;
}

int rondo_child_in_node(const struct rondo_ctx *parent)
{
    return parent->job.nranks > 1 && parent->wiring.layout.nnodes == 1;
}

int rondo_child_may_inherit(const struct rondo_ctx *parent, const struct rondo_ctx *ctx)
{
    return !parent->backend->is_gpu && !ctx->backend->is_gpu && parent->wiring.layout.nnodes == 1 &&
           parent->wiring.peers != NULL && ctx->job.config.device == RONDO_CONFIG_DEFAULT;
}

rondo_status rondo_child_inherit(struct rondo_ctx *ctx, const struct rondo_ctx *parent, const int *ranks,
                                 int n, uint64_t tag)
{
    struct rondo_peer *peers;
    RONDO_TRY(RONDO_NEW_ARRAY(peers, n, "the records of the ranks"));
    for (int i = 0; i < n; i++) {
        peers[i] = parent->wiring.peers[ranks[i]];
        peers[i].rank = i;
        peers[i].nranks = n;
    }
    peers[0].id = parent->job.id;
    peers[0].id.nonce[0] = rondo_hash(&parent->job.id, sizeof(parent->job.id), tag);
    peers[0].id.nonce[1] = rondo_hash(&parent->job.id, sizeof(parent->job.id), peers[0].id.nonce[0]);
    ctx->wiring.peers = peers;
    ctx->wiring.names = rondo_intern_hold(parent->wiring.names);
    ctx->wiring.net.shm_mode = parent->wiring.net.shm_mode;
    ctx->wiring.calibration = parent->wiring.calibration;
    return RONDO_SUCCESS;
}

static rondo_status all_members(const struct rondo_ctx *parent, int **members)
{
    RONDO_TRY(RONDO_NEW_ARRAY(*members, parent->job.nranks, "the members of a split"));
    for (int r = 0; r < parent->job.nranks; r++) {
        (*members)[r] = r;
    }
    return RONDO_SUCCESS;
}

/* A later split of the node takes the place. */
static void end_place(struct rondo_ctx *parent, uint64_t serial)
{
    if (rondo_child_in_node(parent)) {
        rondo_control_split_end(parent->wiring.control, serial);
    }
}

/* A split without a colour that does not block gives a communicator of no ranks. */
static rondo_status has_ranks(const struct rondo_ctx *parent, const char *call)
{
    return parent->job.nranks > 0
               ? RONDO_SUCCESS
               : rondo_fail(
                     RONDO_INVALID_USAGE,
                     "%s: the communicator \"%s\" has no ranks, as its split had no colour here: destroy "
                     "it",
                     call, parent->job.name);
}

static rondo_status split(struct rondo_ctx *parent, int color, int key, const rondo_config *config,
                          rondo_comm **newcomm)
{
    struct rondo_split split = { .parent = parent, .color = color, .key = key };
    struct rondo_bootstrap *bootstrap;
    struct rondo_ctx *ctx;
    int *members;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(has_ranks(parent, "rondo_comm_split"));
    split.child = ++parent->job.nchildren; /* the other ranks count it, whatever becomes of it here */
    if (color < RONDO_SPLIT_NOCOLOR || newcomm == NULL) {
        status = rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_split on rank %d: %s", parent->job.rank,
                            newcomm == NULL
                                ? "the pointer for the new communicator is NULL"
                                : "the colour is negative: give 0 or more, or RONDO_SPLIT_NOCOLOR");
    }
    if (status == RONDO_SUCCESS) {
        status = parent->backend->drain(parent);
    }
    if (status == RONDO_SUCCESS) {
        status = rondo_ctx_create_child(parent, parent->job.rank, parent->job.nranks, config, &ctx);
    }
    if (status != RONDO_SUCCESS) {
        end_place(parent, split.child);
        return status;
    }
    ctx->job.agreed = 0;
    RONDO_TRY_GOTO(all_members(parent, &members), fail);
    status = rondo_child_bootstrap(parent, members, parent->job.nranks, parent->job.rank,
                                   rondo_child_tag(parent->job.hash, "colors", split.child, NULL, 0), 0,
                                   &bootstrap);
    rondo_free(members);
    if (status == RONDO_SUCCESS) {
        if (rondo_child_in_node(parent)) {
            rondo_bootstrap_control_node(bootstrap, split.child, 0);
        }
        return rondo_comm_start(ctx, bootstrap, &split, newcomm);
    }
fail:
    end_place(parent, split.child);
    rondo_ctx_free(ctx);
    return status;
}

/* Enter a communicator. An error refuses the open group, too. */
static rondo_status enter(rondo_comm *comm, const char *call, struct rondo_ctx **parent)
{
    rondo_status status = rondo_comm_enter(comm, call, parent);
    if (status != RONDO_SUCCESS && !rondo_is_inside_call()) {
        rondo_group_note_error(status);
    }
    return status;
}

rondo_status rondo_comm_split(rondo_comm *comm, int color, int key, const rondo_config *config,
                              rondo_comm **newcomm)
{
    struct rondo_ctx *parent;
    rondo_status status;
    RONDO_TRY(enter(comm, "rondo_comm_split", &parent));
    status = rondo_ctx_ready(parent);
    if (status == RONDO_SUCCESS) {
        status = split(parent, color, key, config, newcomm);
    }
    rondo_ctx_keep_error(parent, status);
    rondo_group_note_error(status);
    rondo_comm_leave(comm);
    return status;
}

/* List the remaining ranks in ascending order; *self is this rank's index. */
static rondo_status survivors(const struct rondo_ctx *parent, const int *exclude, int nexclude,
                              int **members_out, int *n, int *self)
{
    int *members;
    char *gone;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(RONDO_NEW_ARRAY(gone, parent->job.nranks, "the members of a shrink"));
    for (int i = 0; i < nexclude && status == RONDO_SUCCESS; i++) {
        if (exclude[i] < 0 || exclude[i] >= parent->job.nranks || exclude[i] == parent->job.rank) {
            status = rondo_fail(
                RONDO_INVALID_ARGUMENT, "rondo_comm_shrink on rank %d: rank %d cannot be excluded: %s",
                parent->job.rank, exclude[i],
                exclude[i] == parent->job.rank ? "excluded ranks do not call" : "no such rank");
        } else {
            gone[exclude[i]] = 1;
        }
    }
    if (status == RONDO_SUCCESS) {
        status = RONDO_NEW_ARRAY(members, parent->job.nranks, "the members of a shrink");
    }
    *n = 0;
    for (int r = 0; status == RONDO_SUCCESS && r < parent->job.nranks; r++) {
        if (!gone[r]) {
            *self = r == parent->job.rank ? *n : *self;
            members[(*n)++] = r;
        }
    }
    rondo_free(gone);
    if (status == RONDO_SUCCESS) {
        *members_out = members;
    }
    return status;
}

/* The serial counts shrinks to the same members with the same flags, so all members compute the same tag,
 * however often others have shrunk without them, and whoever was refused one for the parent's end. */
static rondo_status shrink_tag(struct rondo_ctx *parent, const int *members, int n, int flags, uint64_t *tag)
{
    size_t bytes = sizeof(*members) * (size_t)n;
    uint64_t hash = rondo_hash(members, bytes, parent->job.hash + (uint64_t)flags);
    struct rondo_shrinks *known = parent->job.shrinks, *grown;
    while (known < parent->job.shrinks + parent->job.nshrinks && known->members != hash) {
        known++;
    }
    if (known == parent->job.shrinks + parent->job.nshrinks) {
        RONDO_TRY(RONDO_NEW_ARRAY(grown, parent->job.nshrinks + 1, "the shrinks of a communicator"));
        for (int i = 0; i < parent->job.nshrinks; i++) {
            grown[i] = parent->job.shrinks[i];
        }
        known = grown + parent->job.nshrinks++;
        *known = (struct rondo_shrinks){ .members = hash };
        rondo_free(parent->job.shrinks);
        parent->job.shrinks = grown;
    }
    *tag = rondo_child_tag(parent->job.hash, flags == RONDO_SHRINK_ABORT ? "shrink over" : "shrink",
                           ++known->n, members, bytes);
    return RONDO_SUCCESS;
}

/* The ranks cannot ask each other first, as those of a split do. They need not: their processes have the
 * parameters that the parent was made with, and no rank may give a device where others give none. */
static int shrink_inherits(const struct rondo_ctx *parent, const struct rondo_ctx *ctx)
{
    return rondo_child_may_inherit(parent, ctx) &&
           parent->wiring.peers[parent->job.rank].param_hash == rondo_param_agree_hash();
}

enum how { OVER_ENDED = 1 /* the parent may have ended */, MOVES_ALONE = 2 };

/* Start a communicator of the parent's ranks `members`, of which this one is members[self]. */
static rondo_status start_among(struct rondo_ctx *parent, int self, const int *members, int n, uint64_t tag,
                                int how, const rondo_config *config, rondo_comm **newcomm)
{
    struct rondo_bootstrap *bootstrap;
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_ctx_create_child(parent, self, n, config, &ctx));
    status = shrink_inherits(parent, ctx) ? rondo_child_inherit(ctx, parent, members, n, tag) : RONDO_SUCCESS;
    if (status == RONDO_SUCCESS) {
        status = rondo_child_bootstrap(parent, members, n, self, tag, how & OVER_ENDED, &bootstrap);
    }
    if (status != RONDO_SUCCESS) {
        rondo_ctx_free(ctx);
        return status;
    }
    bootstrap->moves_alone = how == MOVES_ALONE;
    return rondo_comm_start(ctx, bootstrap, NULL, newcomm);
}

/* Other ranks may wait in the calls that are under way here: those end on all. */
static void end_calls(struct rondo_ctx *parent)
{
    if (parent->backend->busy(parent) && rondo_ctx_ready(parent) == RONDO_SUCCESS) {
        rondo_fail_quiet(RONDO_REMOTE_ERROR,
                         "rank %d on %s called rondo_comm_shrink with RONDO_SHRINK_ABORT, which ends the "
                         "calls that are under way",
                         parent->job.rank, rondo_log_host());
        rondo_ctx_fail(parent, RONDO_REMOTE_ERROR, parent->job.rank);
    }
    rondo_ctx_drop_queue(parent, RONDO_REMOTE_ERROR, 1);
}

static rondo_status shrink(struct rondo_ctx *parent, const int *exclude, int nexclude, int flags,
                           const rondo_config *config, rondo_comm **newcomm)
{
    int *members, n, self = -1;
    rondo_status status;
    uint64_t tag;
    if (nexclude < 0 || nexclude > parent->job.nranks) { /* before anything reads the list */
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "rondo_comm_shrink on rank %d: the list has %d ranks, the communicator %d: give the "
            "ranks that leave",
            parent->job.rank, nexclude, parent->job.nranks);
    }
    if (newcomm == NULL || (nexclude > 0 && exclude == NULL) ||
        (flags != RONDO_SHRINK_DEFAULT && flags != RONDO_SHRINK_ABORT)) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "rondo_comm_shrink on rank %d: the pointer for the communicator or the list of ranks "
            "is NULL, or flags %d are unknown",
            parent->job.rank, flags);
    }
    if (__atomic_load_n(&parent->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_INIT) {
        return rondo_ctx_ready(parent);
    }
    RONDO_TRY(has_ranks(parent, "rondo_comm_shrink"));
    if (__atomic_load_n(&parent->life.revoked, __ATOMIC_ACQUIRE)) {
        flags = RONDO_SHRINK_ABORT; /* it has ended its calls already */
    }
    RONDO_TRY(survivors(parent, exclude, nexclude, &members, &n, &self));
    status = shrink_tag(parent, members, n, flags,
                        &tag); /* the others count it, whatever becomes of it here */
    if (status == RONDO_SUCCESS && flags == RONDO_SHRINK_ABORT) {
        end_calls(parent);
    } else if (status == RONDO_SUCCESS) {
        status = rondo_ctx_ready(parent);
        status = status == RONDO_SUCCESS ? parent->backend->drain(parent) : status;
    }
    if (status == RONDO_SUCCESS) {
        status = start_among(parent, self, members, n, tag, flags == RONDO_SHRINK_ABORT ? OVER_ENDED : 0,
                             config, newcomm);
    }
    rondo_free(members);
    return status;
}

rondo_status rondo_comm_shrink(rondo_comm *comm, const int *exclude, int nexclude, int flags,
                               const rondo_config *config, rondo_comm **newcomm)
{
    struct rondo_ctx *parent;
    rondo_status status;
    RONDO_TRY(enter(comm, "rondo_comm_shrink", &parent));
    status = rondo_ctx_keep_error(parent, shrink(parent, exclude, nexclude, flags, config, newcomm));
    rondo_group_note_error(status);
    rondo_comm_leave(comm);
    return status;
}

static rondo_status among(struct rondo_ctx *parent, const int *members, int n, uint64_t tag,
                          const rondo_config *config, rondo_comm **newcomm)
{
    int self = 0;
    while (self < n && members[self] != parent->job.rank) {
        self++;
    }
    if (self == n) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "rank %d is no member of the communicator that it makes",
                          parent->job.rank);
    }
    tag = rondo_child_tag(parent->job.hash, "among", tag, members, sizeof(*members) * (size_t)n);
    return start_among(parent, self, members, n, tag, MOVES_ALONE, config, newcomm);
}

rondo_status rondo_engine_among(rondo_comm *comm, const int *members, int n, uint64_t tag,
                                const rondo_config *config, rondo_comm **newcomm)
{
    struct rondo_ctx *parent;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_engine_among", &parent));
    status = rondo_ctx_ready(parent);
    if (status == RONDO_SUCCESS) {
        status = among(parent, members, n, tag, config, newcomm);
    }
    rondo_ctx_keep_error(parent, status);
    rondo_comm_leave(comm);
    return status;
}

/* ---- telling each other ---- */

static rondo_status run_round(struct rondo_ctx *ctx, struct rondo_bootstrap *b)
{
    struct rondo_wait wait;
    rondo_status status;
    rondo_wait_begin(&wait, &ctx->running.policy);
    while ((status = b->ops->test(b)) == RONDO_IN_PROGRESS) {
        RONDO_TRY(rondo_wait_once(&wait));
    }
    return status;
}

static rondo_status share(struct rondo_ctx *ctx, const void *mine, void *all, size_t bytes)
{
    struct rondo_bootstrap *b;
    int *members;
    uint64_t serial = ++ctx->job.nshares;
    rondo_status status;
    RONDO_TRY(all_members(ctx, &members));
    status = rondo_child_bootstrap(ctx, members, ctx->job.nranks, ctx->job.rank,
                                   rondo_child_tag(ctx->job.hash, "share", serial, NULL, 0), 0, &b);
    rondo_free(members);
    RONDO_TRY(status);
    status = b->ops->open_start(b);
    status = status == RONDO_SUCCESS ? run_round(ctx, b) : status;
    status = status == RONDO_SUCCESS ? b->ops->allgather_start(b, mine, all, bytes) : status;
    status = status == RONDO_SUCCESS ? run_round(ctx, b) : status;
    b->ended = status;
    b->ops->close(b, status == RONDO_SUCCESS);
    return status;
}

rondo_status rondo_engine_share(rondo_comm *comm, const void *mine, void *all, size_t bytes)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_engine_share", &ctx));
    status = rondo_ctx_ready(ctx);
    if (status == RONDO_SUCCESS) {
        status = share(ctx, mine, all, bytes);
    }
    rondo_ctx_keep_error(ctx, status);
    rondo_comm_leave(comm);
    return status;
}

rondo_status rondo_engine_pair(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_engine_pair", &ctx));
    status = rondo_ctx_ready(ctx);
    if (status == RONDO_SUCCESS && ctx->backend->pair != NULL && ctx->job.nranks == 2) {
        status = ctx->backend->pair(ctx, !ctx->job.rank);
    }
    rondo_ctx_keep_error(ctx, status);
    rondo_comm_leave(comm);
    return status;
}

rondo_status rondo_engine_revoke(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    RONDO_TRY(rondo_comm_visit(comm, "rondo_engine_revoke", &ctx));
    status = rondo_ctx_ready(ctx);
    if (status == RONDO_SUCCESS) {
        __atomic_store_n(&ctx->life.revoked, 1, __ATOMIC_RELEASE); /* before another thread sees the end */
        rondo_ctx_fail(ctx,
                       rondo_fail_quiet(RONDO_REMOTE_ERROR, "rank %d revoked the communicator \"%s\"",
                                        ctx->job.rank, ctx->job.name),
                       ctx->job.rank);
    } else if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_FAILED) {
        __atomic_store_n(&ctx->life.revoked, 1, __ATOMIC_RELEASE);
        status = RONDO_SUCCESS; /* another rank was first, or an error */
    }
    rondo_comm_unvisit(comm);
    return status;
}

rondo_status rondo_engine_bytes(rondo_comm *comm, uint64_t *bytes)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_visit(comm, "rondo_engine_bytes", &ctx));
    *bytes = ctx->wiring.bytes;
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

rondo_status rondo_engine_config(rondo_comm *comm, const char *what, rondo_config *config)
{
    struct rondo_ctx *ctx;
    RONDO_TRY(rondo_comm_visit(comm, what, &ctx));
    *config = ctx->job.config;
    config->name = NULL;
    rondo_comm_unvisit(comm);
    return RONDO_SUCCESS;
}

void rondo_engine_end(rondo_comm *comm, rondo_status reason, const char *text)
{
    struct rondo_ctx *ctx;
    if (rondo_comm_visit(comm, "rondo_engine_end", &ctx) != RONDO_SUCCESS) {
        return;
    }
    if (rondo_ctx_ready(ctx) == RONDO_SUCCESS) {
        rondo_ctx_fail(ctx, rondo_fail_quiet(reason, "%s", text), -1);
    }
    rondo_comm_unvisit(comm);
}

rondo_status rondo_engine_check(rondo_comm *comm)
{
    struct rondo_ctx *ctx;
    rondo_status status = RONDO_SUCCESS;
    if (rondo_comm_visit_alive(comm, &ctx)) {
        status = rondo_ctx_ready(ctx);
        rondo_comm_unvisit(comm);
    }
    return status;
}

void rondo_engine_late(rondo_comm *comm, const char *why, char *text, size_t size)
{
    struct rondo_ctx *ctx;
    int peer = -1;
    text[0] = '\0';
    if (rondo_comm_visit(comm, "rondo_engine_late", &ctx) != RONDO_SUCCESS) {
        return;
    }
    rondo_stragglers_text(ctx, &peer, text, size);
    rondo_report_late(ctx, peer >= 0 && ctx->wiring.layout.node_of[peer] == ctx->wiring.layout.node, why);
    rondo_comm_unvisit(comm);
}
