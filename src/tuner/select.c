/* The table of costs, the best of it, and what carries a call: the best choice, and a fallback where that
 * needs direct access. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "topo/levels.h"
#include "tuner/drift.h"
#include "tuner/plugin.h"
#include "tuner/cost_impl.h"
#include "tuner/tune_file.h"

/* ---- the table, and the best of it ---- */

static uint32_t allowed_protos(const struct rondo_allowed *allowed, enum rondo_coll coll,
                               const struct rondo_schedule *schedule)
{
    return allowed != NULL ? schedule->protos & allowed->protos[coll][schedule->algo] : schedule->protos;
}

/* The first number of channels to try. On GPUs, use exactly as many as the bytes fill. */
static int first_channels(const struct rondo_layout *layout, enum rondo_coll coll,
                          const struct rondo_choice *best, size_t bytes)
{
    int fill, threads;
    if (!rondo_is_gpu_model(layout) || rondo_one_channel(coll)) {
        return 1;
    }
    rondo_gpu_blocks(layout, (enum rondo_algo)best->algo, (enum rondo_proto)best->proto, bytes, &fill,
                     &threads);
    return fill < layout->nchannels ? fill : layout->nchannels;
}

int rondo_choice_better(const struct rondo_choice *x, const struct rondo_choice *than)
{
    if (x->us < 0 || than->us < 0) {
        return x->us >= 0;
    }
    return x->measured != than->measured ? x->measured : x->us < than->us;
}

double rondo_choice_time(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes,
                         size_t mailbox, struct rondo_choice *c)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(coll, (enum rondo_algo)c->algo);
    enum rondo_proto proto = (enum rondo_proto)c->proto;
    double model = schedule == NULL || (schedule->protos >> proto & 1) == 0
                       ? -1
                       : rondo_cost_us(layout, coll, (enum rondo_algo)c->algo, proto, c->nchannels, bytes,
                                       mailbox);
    c->us = model;
    c->measured = 0;
    if (model >= 0 && layout->measured != NULL) {
        double us = rondo_measured_us(layout->measured, coll, (enum rondo_algo)c->algo, proto, c->nchannels,
                                      bytes);
        c->measured = us >= 0;
        c->us = us >= 0 ? us : model;
    } else if (model >= 0) {
        c->us = model * rondo_drift_factor(layout, coll, bytes, c->algo);
    }
    return model;
}

static void best_channels(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes,
                          size_t mailbox, struct rondo_choice *best)
{
    for (int c = first_channels(layout, coll, best, bytes); c <= layout->nchannels; c++) {
        struct rondo_choice with = { .algo = best->algo, .proto = best->proto, .nchannels = (uint8_t)c };
        rondo_choice_time(layout, coll, bytes, mailbox, &with);
        if (with.us >= 0 && (best->nchannels < layout->least_channels || rondo_choice_better(&with, best))) {
            *best = with;
        }
        if (rondo_is_gpu_model(layout) && (with.us < 0 || c >= layout->least_channels)) {
            break;
        }
    }
}

void rondo_cost_table(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                      enum rondo_coll coll, size_t bytes, size_t mailbox,
                      struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS])
{
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_schedule_find(coll, (enum rondo_algo)a);
        uint32_t protos = schedule != NULL ? allowed_protos(allowed, coll, schedule) : 0;
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            struct rondo_choice *best = &table[a][p];
            best->algo = (uint8_t)a;
            best->proto = (uint8_t)p;
            best->nchannels = best->measured = 0;
            best->us = -1;
            if ((protos >> p & 1) != 0) {
                best_channels(layout, coll, bytes, mailbox, best);
            }
        }
    }
}

_Static_assert(RONDO_MAILBOX_FEW == 8, "the sentence of nothing_left says so");

/* Say how much one-shot carries. */
static void most_published_text(enum rondo_coll coll, const struct rondo_layout *layout, size_t mailbox,
                                char *text, size_t size)
{
    size_t most = rondo_most_published(coll, layout, mailbox);
    if (most == SIZE_MAX) {
        snprintf(text, size, "any number of bytes");
    } else {
        snprintf(text, size, "at most %zu bytes by RONDO_%s_SIZE%s", most,
                 rondo_is_pair(layout) ? "PAIR" : "MAILBOX",
                 rondo_coll_has_root(coll) ? " (always 16K)" : "");
    }
}

/* Report that nothing can run: the parameters allow nothing, or what they allow cannot run here. */
static rondo_status nothing_left(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                                 enum rondo_coll coll, size_t bytes, size_t mailbox)
{
    const char *name = rondo_coll_name(coll);
    char most[80];
    most_published_text(coll, layout, mailbox, most, sizeof(most));
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_schedule_find(coll, (enum rondo_algo)a);
        if (schedule != NULL && allowed_protos(allowed, coll, schedule) != 0) {
            return rondo_fail(
                RONDO_INVALID_USAGE,
                "%s: no algorithm and protocol that RONDO_ALGO, RONDO_PROTO and RONDO_DETERMINISM "
                "allow can carry %zu bytes on %d ranks of %d nodes (oneshot needs one node%s, "
                "%s, and protocol simple%s%s); allow more for %s or unset them",
                name, bytes, layout->nranks, layout->nnodes,
                rondo_coll_has_root(coll) ? " of at most 8 ranks" : "", most,
                rondo_schedule_find(coll, RONDO_ALGO_MAIL_TWOSHOT) != NULL
                    ? "; mail_twoshot 3 to 8 ranks of one node"
                    : "",
                layout->model.wide_trees && rondo_coll_has_root(coll) ? "; these trees serve only all_reduce"
                                                                      : "",
                name);
        }
    }
    return rondo_fail(RONDO_INVALID_USAGE,
                      "%s: RONDO_ALGO, RONDO_PROTO and RONDO_DETERMINISM allow no algorithm and protocol "
                      "that carry it; allow more (RONDO_ALGO=\"...;%s:...\") or unset them",
                      name, name);
}

/* @return the best of the table; NULL: nothing can run. */
static const struct rondo_choice *best_of(struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS])
{
    const struct rondo_choice *best = NULL;
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            if (table[a][p].us >= 0 && (best == NULL || rondo_choice_better(&table[a][p], best))) {
                best = &table[a][p];
            }
        }
    }
    return best;
}

/* Does the algorithm reduce every element from rank 0 to the last, whatever the rings? */
static int in_rank_order(const struct rondo_layout *layout, enum rondo_algo algo)
{
    return rondo_algo_in_rank_order(algo) &&
           (layout->rank_order || rondo_algo_medium(algo) != RONDO_MEDIUM_CONNS);
}

int rondo_bits_fixed(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo a,
                     enum rondo_algo b)
{
    return layout->nranks <= 2 || !rondo_coll_reduces(coll) || a == b ||
           (in_rank_order(layout, a) && in_rank_order(layout, b));
}

/* The layout as it was before anything was measured. */
static struct rondo_layout unmeasured(const struct rondo_layout *layout)
{
    struct rondo_layout fixed = *layout;
    fixed.model = layout->fixed;
    fixed.has_fixed = 0;
    fixed.drift = NULL;
    return fixed;
}

static int best_choice(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                       enum rondo_coll coll, size_t bytes, size_t mailbox, struct rondo_choice *choice)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    const struct rondo_choice *best;
    rondo_cost_table(layout, allowed, coll, bytes, mailbox, table);
    best = best_of(table);
    if (best != NULL) {
        *choice = *best;
    }
    return best != NULL;
}

rondo_status rondo_cost_choose(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                               enum rondo_coll coll, size_t bytes, size_t mailbox,
                               struct rondo_choice *choice)
{
    return best_choice(layout, allowed, coll, bytes, mailbox, choice)
               ? RONDO_SUCCESS
               : nothing_left(layout, allowed, coll, bytes, mailbox);
}

static void disallow_direct(struct rondo_allowed *allowed)
{
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        for (uint32_t a = 0; a < RONDO_NUM_ALGOS; a++) {
            allowed->protos[c][a] = rondo_algo_medium(a) == RONDO_MEDIUM_DIRECT ? 0 : allowed->protos[c][a];
        }
    }
}

rondo_status rondo_cost_choose_without_direct(const struct rondo_layout *layout,
                                              const struct rondo_allowed *allowed, enum rondo_coll coll,
                                              size_t bytes, size_t mailbox, int rank_order,
                                              struct rondo_choice *choice)
{
    struct rondo_allowed others = *allowed;
    disallow_direct(&others);
    if (!best_choice(layout, &others, coll, bytes, mailbox, choice)) {
        memset(&others, 0xff, sizeof(others));
        if (rank_order) {
            rondo_allowed_rank_order(&others);
        }
        disallow_direct(&others);
        return rondo_cost_choose(layout, &others, coll, bytes, mailbox, choice);
    }
    return RONDO_SUCCESS;
}

/* ---- what carries a call ---- */

/* Log the tuner's whole table in one line: "ring simple x1 12.3, tree ll128 x2 4.5, ..", in us, without what
 * cannot run. */
static void log_table(const struct rondo_select_input *in)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    char text[512] = "";
    size_t at = 0;
    rondo_cost_table(in->layout, in->allowed, in->coll, in->bytes, in->mailbox, table);
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            const struct rondo_choice *c = &table[a][p];
            if (c->us >= 0 && at < sizeof(text)) {
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %s x%d %.2f", at > 0 ? ", " : "",
                                       rondo_algo_name((enum rondo_algo)a),
                                       rondo_proto_name((enum rondo_proto)p), c->nchannels, c->us);
            }
        }
    }
    RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s of %zu bytes, predicted us: %s", in->layout->rank,
               rondo_coll_name(in->coll), in->bytes, text);
}

/* Every edge of the tree over a level's groups carries the whole buffer once in each direction: the least
 * there can be. */
static void log_groups(const struct rondo_select_input *in, enum rondo_algo algo)
{
    const struct rondo_group_levels *levels = &in->layout->model.levels;
    int nranks = in->layout->nranks;
    char text[128], edges[128];
    RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s over %s; 2 x %zu bytes over each of: %s", in->layout->rank,
               rondo_algo_name(algo), rondo_levels_text(levels, nranks, text, sizeof(text)), in->bytes,
               rondo_levels_edges_text(levels, nranks, 0, edges, sizeof(edges)));
}

/* Blocks of different lengths are not cut further. */
static void keep_uneven_whole(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    choice->nchannels = in->uneven ? 1 : choice->nchannels;
}

/* Choose from the table as the plugin changes it. */
static void ask_plugin(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    const struct rondo_choice *best;
    rondo_cost_table(in->layout, in->allowed, in->coll, in->bytes, in->mailbox, table);
    if (rondo_tuner_plugin_edit(in->plugin, in->layout, in->coll, in->bytes, table) &&
        (best = best_of(table)) != NULL) {
        *choice = *best;
    }
}

static rondo_status cheapest(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    RONDO_TRY(rondo_cost_choose(in->layout, in->allowed, in->coll, in->bytes, in->mailbox, choice));
    if (RONDO_UNLIKELY(in->plugin != NULL)) {
        ask_plugin(in, choice);
    }
    keep_uneven_whole(in, choice);
    if (rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_TUNING)) {
        log_table(in);
        RONDO_INFO(RONDO_SUBSYS_TUNING, "rank %d: %s of %zu bytes: %s, %s, %d channel%s", in->layout->rank,
                   rondo_coll_name(in->coll), in->bytes, rondo_algo_name((enum rondo_algo)choice->algo),
                   rondo_proto_name((enum rondo_proto)choice->proto), choice->nchannels,
                   choice->nchannels == 1 ? "" : "s");
        if (rondo_algo_seating(choice->algo) == RONDO_SEATING_GROUPS) {
            log_groups(in, (enum rondo_algo)choice->algo);
        }
    }
    return RONDO_SUCCESS;
}

/* The choice where direct access fails. */
static rondo_status cheapest_without_direct(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    RONDO_TRY(rondo_cost_choose_without_direct(in->layout, in->allowed, in->coll, in->bytes, in->mailbox,
                                               in->rank_order || rondo_tune_is_strict(), choice));
    keep_uneven_whole(in, choice);
    return RONDO_SUCCESS;
}

/* Times are measured without direct access: take an algorithm that uses it if the model predicts it to be
 * faster than the measured choice. */
static void prefer_direct(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    int measured = choice->measured && !in->gpu && in->mailbox > 0;
    for (int a = 0; measured && a < RONDO_NUM_ALGOS; a++) {
        int allowed = rondo_algo_medium((uint32_t)a) == RONDO_MEDIUM_DIRECT &&
                      (in->allowed->protos[in->coll][a] >> RONDO_PROTO_SIMPLE & 1) != 0;
        double us = allowed ? rondo_cost_us(in->layout, in->coll, (enum rondo_algo)a, RONDO_PROTO_SIMPLE, 1,
                                            in->bytes, in->mailbox)
                            : -1;
        if (us >= 0 && us < choice->us) {
            *choice = (struct rondo_choice){
                .algo = (uint8_t)a, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = us
            };
        }
    }
}

/* all_to_all as one work through a medium, with all_gather's schedule. us < 0: it cannot run. */
static struct rondo_choice all_to_all_by(const struct rondo_select_input *in, enum rondo_medium medium)
{
    const struct rondo_schedule *schedule = rondo_schedule_first(RONDO_COLL_ALL_GATHER, medium);
    struct rondo_choice with = {
        .algo = schedule->algo, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = -1
    };
    if (in->direct && (in->allowed->protos[RONDO_COLL_ALL_TO_ALL][with.algo] & schedule->protos) != 0) {
        with.us = rondo_cost_us(in->layout, RONDO_COLL_ALL_GATHER, (enum rondo_algo)with.algo,
                                RONDO_PROTO_SIMPLE, 1, in->bytes, in->mailbox);
    }
    return with;
}

/*
 * all_to_all consists of messages, or, where ranks see one another's memory, of one work with all_gather's
 * schedule in which each rank takes a different block: through the mailbox, which needs no direct access, or
 * with direct access.
 */
static void select_all_to_all(const struct rondo_select_input *in, struct rondo_selection *selection)
{
    struct rondo_choice published = all_to_all_by(in, RONDO_MEDIUM_MAILBOX),
                        direct = all_to_all_by(in, RONDO_MEDIUM_DIRECT),
                        other = { .proto = RONDO_PROTO_SIMPLE, .nchannels = 1 };
    other.algo = rondo_schedule_first(RONDO_COLL_ALL_TO_ALL, RONDO_MEDIUM_CONNS)->algo;
    other.us = rondo_cost_us(in->layout, RONDO_COLL_ALL_TO_ALL, (enum rondo_algo)other.algo,
                             RONDO_PROTO_SIMPLE, 1, in->bytes, in->mailbox);
    other = published.us >= 0 && rondo_choice_better(&published, &other) ? published : other;
    if (direct.us >= 0 && rondo_choice_better(&direct, &other)) {
        *selection = (struct rondo_selection){ .primary = direct, .fallback = other };
    } else {
        *selection = (struct rondo_selection){ .primary = other };
    }
    RONDO_INFO(RONDO_SUBSYS_TUNING,
               "rank %d: all_to_all of %zu bytes: %s, %.2f us predicted; without direct access %s, %.2f us",
               in->layout->rank, in->bytes, rondo_algo_name((enum rondo_algo)selection->primary.algo),
               selection->primary.us, rondo_algo_name((enum rondo_algo)other.algo), other.us);
}

/* Does every rank take part in every channel of the call, with as many bytes? */
static int is_even(const struct rondo_select_input *in)
{
    return !in->uneven && (in->coll == RONDO_COLL_ALL_REDUCE || in->coll == RONDO_COLL_ALL_GATHER ||
                           in->coll == RONDO_COLL_REDUCE_SCATTER);
}

/* GPUs: two-shot where the buffers of all ranks are registered, which their kernels find out, if that is
 * faster. A rank knows its own buffers only, so the others' do not change what it selects. */
static void prefer_registered(const struct rondo_select_input *in, struct rondo_selection *selection)
{
    const struct rondo_choice other = selection->primary;
    double us;
    if (!in->gpu || in->private_scalar || in->plugin != NULL || other.measured || !is_even(in) ||
        rondo_algo_medium(other.algo) != RONDO_MEDIUM_CONNS ||
        (in->allowed->protos[in->coll][RONDO_ALGO_TWOSHOT] >> RONDO_PROTO_SIMPLE & 1) == 0) {
        return;
    }
    us = rondo_gpu_registered_us(in->layout, in->coll, other.nchannels, in->bytes);
    if (us < 0 || us >= other.us) {
        return;
    }
    selection->primary = (struct rondo_choice){
        .algo = RONDO_ALGO_TWOSHOT, .proto = RONDO_PROTO_SIMPLE, .nchannels = other.nchannels, .us = us
    };
    selection->fallback = other;
    RONDO_INFO(RONDO_SUBSYS_TUNING,
               "rank %d: %s of %zu bytes: twoshot, %.2f us predicted, if all ranks' buffers are registered",
               in->layout->rank, rondo_coll_name(in->coll), in->bytes, us);
}

static rondo_status select_by_model(const struct rondo_select_input *in, struct rondo_selection *selection)
{
    *selection = (struct rondo_selection){ .fallback = { .nchannels = 0 } };
    if (in->coll == RONDO_COLL_ALL_TO_ALL) {
        select_all_to_all(in, selection);
        return RONDO_SUCCESS;
    }
    if (RONDO_UNLIKELY(in->forced != NULL)) {
        selection->primary = *in->forced;
    } else {
        RONDO_TRY(cheapest(in, &selection->primary));
        prefer_direct(in, &selection->primary);
        prefer_registered(in, selection);
    }
    if (rondo_algo_medium(selection->primary.algo) != RONDO_MEDIUM_DIRECT ||
        (in->gpu && !in->private_scalar)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(cheapest_without_direct(in, &selection->fallback));
    if (in->private_scalar || !in->direct) {
        *selection = (struct rondo_selection){ .primary = selection->fallback };
    }
    return RONDO_SUCCESS;
}

/* ---- what was measured must not change the bits of a result ---- */

static int all_in_rank_order(const struct rondo_layout *layout, const struct rondo_selection *s)
{
    return in_rank_order(layout, (enum rondo_algo)s->primary.algo) &&
           (s->fallback.nchannels == 0 || in_rank_order(layout, (enum rondo_algo)s->fallback.algo));
}

/*
 * More than two ranks reduce with what the model selects before anything is measured. Only where that reduces
 * in rank order, whatever the memory, what was measured selects among the algorithms that do.
 */
rondo_status rondo_select(const struct rondo_select_input *in, struct rondo_selection *selection)
{
    const struct rondo_layout *l = in->layout;
    struct rondo_select_input with = *in;
    struct rondo_layout fixed;
    struct rondo_allowed ordered = *in->allowed;
    if (in->plugin != NULL || !l->has_fixed || l->nranks <= 2 || l->rank_order ||
        !rondo_coll_reduces(in->coll)) {
        return select_by_model(in, selection);
    }
    fixed = unmeasured(l);
    with.layout = &fixed;
    RONDO_TRY(select_by_model(&with, selection));
    if (!all_in_rank_order(l, selection)) {
        return RONDO_SUCCESS;
    }
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        if (!in_rank_order(l, (enum rondo_algo)a)) {
            ordered.protos[in->coll][a] = 0;
        }
    }
    with.layout = l;
    with.allowed = &ordered;
    with.rank_order = 1; /* also where the user allows nothing that could run then */
    return select_by_model(&with, selection);
}

/* ---- ordinary memory ---- */

double rondo_apart_us(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes, int by_kernel)
{
    double share = coll == RONDO_COLL_ALL_REDUCE ? (by_kernel ? 0.5 : 1) : 0;
    return share * (double)bytes * layout->model.apart_us;
}

double rondo_kernel_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_coll coll,
                       size_t bytes, int in_place)
{
    const struct rondo_model *m = &layout->model;
    double in = rondo_cma_cost_us(layout, algo, coll, bytes, 1), out;
    if (in_place) {
        return in;
    }
    out = rondo_cma_cost_us(layout, algo, coll, bytes, 0) + rondo_apart_us(layout, coll, bytes, 1);
    in += (double)bytes * m->copy_us;
    return m->copy_us > 0 && bytes < m->stream_bytes && in < out ? in : out;
}

enum rondo_kernel_copies rondo_select_kernel(const struct rondo_layout *layout, enum rondo_coll coll,
                                             size_t bytes, const struct rondo_selection *selection)
{
    static const enum rondo_kernel_copies when[2][2] = { { RONDO_KERNEL_NEVER, RONDO_KERNEL_IN_PLACE },
                                                         { RONDO_KERNEL_APART, RONDO_KERNEL_ALWAYS } };
    enum rondo_algo algo = (enum rondo_algo)selection->primary.algo;
    struct rondo_layout fixed;
    int faster[2];
    if (layout->has_fixed &&
        !rondo_bits_fixed(layout, coll, algo, (enum rondo_algo)selection->fallback.algo)) {
        fixed = unmeasured(layout);
        layout = &fixed;
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        int way = in_place ? RONDO_WAY_KERNEL_IN_PLACE : RONDO_WAY_KERNEL_APART;
        double apart = in_place ? 0 : rondo_apart_us(layout, coll, bytes, 0);
        double other = selection->fallback.us +
                       apart * rondo_drift_factor(layout, coll, bytes, selection->fallback.algo);
        faster[in_place] = rondo_kernel_us(layout, algo, coll, bytes, in_place) *
                               rondo_drift_factor(layout, coll, bytes, way) <
                           other;
    }
    return when[faster[0]][faster[1]];
}
