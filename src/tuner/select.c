/* Select what carries a call: the cheapest choice, and a fallback where that needs direct access. */
#include "tuner/select.h"

#include <stdio.h>

#include "base/log.h"
#include "topo/levels.h"
#include "tuner/tune_file.h"

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

static rondo_status cheapest(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    RONDO_TRY(rondo_cost_choose(in->layout, in->allowed, in->coll, in->bytes, in->mailbox, choice));
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
    RONDO_TRY(rondo_cost_choose_other(in->layout, in->allowed, in->coll, in->bytes, in->mailbox,
                                      RONDO_ALGO_TWOSHOT, rondo_tune_is_strict(), choice));
    keep_uneven_whole(in, choice);
    return RONDO_SUCCESS;
}

/* Times are measured without direct access: take an algorithm that uses it if the model predicts it to be
 * faster than the measured choice. */
static void prefer_direct(const struct rondo_select_input *in, struct rondo_choice *choice)
{
    int measured = choice->measured && !in->gpu && in->mailbox > 0;
    for (int a = 0; measured && a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_algo_medium((uint32_t)a) == RONDO_MEDIUM_DIRECT
                                                    ? rondo_schedule_find(in->coll, (enum rondo_algo)a)
                                                    : NULL;
        double us = schedule != NULL && (in->allowed->protos[in->coll][a] & schedule->protos) != 0
                        ? schedule->cost_us(in->layout, in->coll, RONDO_PROTO_SIMPLE, 1, in->bytes,
                                            in->mailbox)
                        : -1;
        if (us >= 0 && us < choice->us) {
            *choice = (struct rondo_choice){
                .algo = (uint8_t)a, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = us
            };
        }
    }
}

/* all_to_all as one work, with all_gather's schedule. us < 0: it cannot run. */
static struct rondo_choice exchange_by(const struct rondo_select_input *in, enum rondo_algo algo)
{
    const struct rondo_schedule *schedule = rondo_schedule_find(RONDO_COLL_ALL_GATHER, algo);
    struct rondo_choice with = {
        .algo = (uint8_t)algo, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1, .us = -1
    };
    if (in->direct && (in->allowed->protos[RONDO_COLL_ALL_TO_ALL][algo] & schedule->protos) != 0) {
        with.us = schedule->cost_us(in->layout, RONDO_COLL_ALL_GATHER, RONDO_PROTO_SIMPLE, 1, in->bytes,
                                    in->mailbox);
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
    struct rondo_choice posts = exchange_by(in, RONDO_ALGO_ONESHOT),
                        open = exchange_by(in, RONDO_ALGO_TWOSHOT),
                        other = { .algo = RONDO_ALGO_P2P, .proto = RONDO_PROTO_SIMPLE, .nchannels = 1 };
    other.us = rondo_p2p_cost_us(in->layout, RONDO_COLL_ALL_TO_ALL, RONDO_PROTO_SIMPLE, 1, in->bytes,
                                 in->mailbox);
    other = posts.us >= 0 && rondo_choice_better(&posts, &other) ? posts : other;
    if (open.us >= 0 && rondo_choice_better(&open, &other)) {
        *selection = (struct rondo_selection){ .primary = open, .fallback = other };
    } else {
        *selection = (struct rondo_selection){ .primary = other };
    }
    RONDO_INFO(RONDO_SUBSYS_TUNING,
               "rank %d: all_to_all of %zu bytes: %s, %.2f us predicted; without direct access %s, %.2f us",
               in->layout->rank, in->bytes, rondo_algo_name((enum rondo_algo)selection->primary.algo),
               selection->primary.us, rondo_algo_name((enum rondo_algo)other.algo), other.us);
}

rondo_status rondo_select(const struct rondo_select_input *in, struct rondo_selection *selection)
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
