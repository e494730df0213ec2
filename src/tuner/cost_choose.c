/* The least of all costs: for each algorithm and protocol over its channels, measured or modelled, then of
 * what parameters allow. Contract: coll/algo.h. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "tuner/cost_gpu.h"
#include "tuner/cost_impl.h"
#include "tuner/measured.h"

static uint32_t allowed_protos(const struct rondo_allowed *allowed, enum rondo_coll coll,
                               const struct rondo_schedule *schedule)
{
    return allowed != NULL ? schedule->protos & allowed->protos[coll][schedule->algo] : schedule->protos;
}

/* Fewer are not looked at: on GPU machines every channel that the bytes fill is worth having, and no other.
 */
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
                       : schedule->cost_us(layout, coll, proto, c->nchannels, bytes, mailbox);
    c->us = model;
    c->measured = 0;
    if (model >= 0 && layout->measured != NULL) {
        double us = rondo_measured_us(layout->measured, coll, (enum rondo_algo)c->algo, proto, c->nchannels,
                                      bytes);
        c->measured = us >= 0;
        c->us = us >= 0 ? us : model;
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

_Static_assert(RONDO_ROOTED_RANKS == 8, "what the sentence says");

/* How much one-shot carries. */
static void most_posted_text(enum rondo_coll coll, const struct rondo_layout *layout, size_t mailbox,
                             char *text, size_t size)
{
    size_t most = rondo_most_posted(coll, layout, mailbox);
    if (most == SIZE_MAX) {
        snprintf(text, size, "any number of bytes");
    } else {
        snprintf(text, size, "at most %zu bytes by RONDO_%s_SIZE%s", most,
                 rondo_is_pair(layout) ? "PAIR" : "MAILBOX",
                 rondo_coll_has_root(coll) ? " (16K whatever that is)" : "");
    }
}

/* Nothing is left: because of the parameters alone, or because what they leave cannot run here. */
static rondo_status nothing_left(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                                 enum rondo_coll coll, size_t bytes, size_t mailbox)
{
    const char *name = rondo_coll_name(coll);
    char most[80];
    most_posted_text(coll, layout, mailbox, most, sizeof(most));
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        const struct rondo_schedule *schedule = rondo_schedule_find(coll, (enum rondo_algo)a);
        if (schedule != NULL && allowed_protos(allowed, coll, schedule) != 0) {
            return rondo_fail(RONDO_INVALID_USAGE,
                              "%s: nothing that RONDO_ALGO, RONDO_PROTO and RONDO_DETERMINISM allow can do "
                              "it with %zu bytes on %d ranks of %d nodes "
                              "(oneshot: one node%s, %s; simple only); allow more for %s or unset them",
                              name, bytes, layout->nranks, layout->nnodes,
                              rondo_coll_has_root(coll) ? " of at most 8 ranks" : "", most, name);
        }
    }
    return rondo_fail(RONDO_INVALID_USAGE,
                      "%s: RONDO_ALGO, RONDO_PROTO and RONDO_DETERMINISM leave no algorithm and protocol "
                      "that do it; allow more for it "
                      "(RONDO_ALGO=\"...;%s:...\") or unset them",
                      name, name);
}

/* The best of the table, NULL: it is empty. */
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

rondo_status rondo_cost_choose(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                               enum rondo_coll coll, size_t bytes, size_t mailbox,
                               struct rondo_choice *choice)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    const struct rondo_choice *best;
    rondo_cost_table(layout, allowed, coll, bytes, mailbox, table);
    best = best_of(table);
    if (best == NULL) {
        return nothing_left(layout, allowed, coll, bytes, mailbox);
    }
    *choice = *best;
    return RONDO_SUCCESS;
}

static void disallow(struct rondo_allowed *allowed, enum rondo_algo without)
{
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
            int same = a == (int)without || (rondo_algo_medium(without) == RONDO_MEDIUM_DIRECT &&
                                             rondo_algo_medium((uint32_t)a) == RONDO_MEDIUM_DIRECT);
            allowed->protos[c][a] = same ? 0 : allowed->protos[c][a];
        }
    }
}

rondo_status rondo_cost_choose_other(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                                     enum rondo_coll coll, size_t bytes, size_t mailbox,
                                     enum rondo_algo without, int rank_order, struct rondo_choice *choice)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    const struct rondo_choice *best;
    struct rondo_allowed others = *allowed;
    disallow(&others, without);
    rondo_cost_table(layout, &others, coll, bytes, mailbox, table);
    best = best_of(table);
    if (best == NULL) {
        memset(&others, 0xff, sizeof(others));
        if (rank_order) {
            rondo_allowed_rank_order(&others);
        }
        disallow(&others, without);
        return rondo_cost_choose(layout, &others, coll, bytes, mailbox, choice);
    }
    *choice = *best;
    return RONDO_SUCCESS;
}
