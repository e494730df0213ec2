/* What measured numbers do to the cost model. */
#include "tuner/calibration.h"

#include <stdio.h>
#include <string.h>

#include "coll/work.h"

/* How far a measured number may move the model: more is an accident of the measurement. */
static const double most_change = 12;

static const struct {
    const char *unit, *what;
    uint32_t least, most;
    size_t at;
} rows[] = {
#define ROW(ctx, name, unit, least, most, what) \
    { unit, what, least, most, offsetof(struct rondo_calibration, name) },
    RONDO_CALIBRATION_TABLE(ROW, )
#undef ROW
};

static uint32_t value_of(const struct rondo_calibration *c, size_t row)
{
    uint32_t value;
    memcpy(&value, (const char *)c + rows[row].at, sizeof(value));
    return value;
}

int rondo_calibration_known(const struct rondo_calibration *c)
{
    return c->copy > 0 && c->sum > 0 && c->apart_stores > 0;
}

int rondo_calibration_valid(const struct rondo_calibration *c)
{
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        uint32_t value = value_of(c, i);
        if (value != 0 && (value < rows[i].least || value > rows[i].most)) {
            return 0;
        }
    }
    return 1;
}

const char *rondo_calibration_text(const struct rondo_calibration *c, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        uint32_t value = value_of(c, i);
        if (value != 0 && at < size) {
            at += (size_t)snprintf(text + at, size - at, "%s%s %u %s", at > 0 ? "; " : "", rows[i].what,
                                   value, rows[i].unit);
        }
    }
    return text;
}

/* us a byte takes at that many MB/s; unknown: never. */
static double us(uint32_t mbs) { return mbs > 0 ? 1.0 / mbs : 1e9; }

static double within(double change)
{
    return change > most_change ? most_change : change < 1 / most_change ? 1 / most_change : change;
}

/* The fastest way to store a result apart from its sources. */
static void choose_apart(struct rondo_model *m, const struct rondo_calibration *c)
{
    const struct {
        enum rondo_apart way;
        uint32_t mbs;
    } ways[] = { { RONDO_APART_STORES, c->apart_stores },
                 { RONDO_APART_OVER, c->apart_over },
                 { RONDO_APART_PAST, c->apart_past },
                 { RONDO_APART_COPY, c->apart_copy } };
    double best = us(ways[0].mbs);
    m->apart = (int32_t)ways[0].way;
    for (size_t i = 1; i < RONDO_COUNTOF(ways); i++) {
        if (us(ways[i].mbs) < 0.9 * best) { /* by far, else the simplest way */
            best = us(ways[i].mbs);
            m->apart = (int32_t)ways[i].way;
        }
    }
    m->apart_us = best > us(c->sum) ? best - us(c->sum) : 0;
}

void rondo_model_calibrate(struct rondo_model *m, const struct rondo_calibration *c)
{
    double pair, conns, change;
    if (!rondo_calibration_known(c) || !rondo_calibration_valid(c) || m->ranks_per_core > 1 ||
        m->pair_bw <= 0) {
        return;
    }
    /* A rank of two copies its data to its place and sums the other's: two passes over the bytes. */
    pair = 2e-3 / (us(c->copy) + us(c->sum));
    change = within(pair / m->pair_bw);
    conns = within(2e-3 / (us(c->copy) + us(c->apart_stores)) /
                   m->pair_bw); /* slots stay where they are read */
    m->pair_bw *= change;
    m->pair_past_bw *= change;
    m->mailbox_bw *= change;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        m->bw[p] *= conns;
    }
    /* Two-shot reads half of the other's buffer and writes half of a result there: both cross once. */
    m->direct_bw *= within(2e-3 / us(c->sum) / m->direct_bw);
    if (c->kernel > 0 && c->kernel_call > 0) {
        change = within(2e-3 / us(c->kernel) / m->cma_bw); /* two-shot of two ranks has two passes */
        m->cma_bw *= change;
        m->cma_past_bw *= change;
        m->cma_us = c->kernel_call * 1e-3;
    }
    m->copy_us = us(c->copy);
    choose_apart(m, c);
    m->calibrated = 1;
}
