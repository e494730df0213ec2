#include "tools/explain/trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MOST_CALLS = 500 };
static const double BATCH_US = 50, FAR_BEHIND = 6, CLOSE = 1.3, AS_FAST = 1.1, QUARTILE = 0.25;

rondo_status rondo_trial_make(struct rondo_trial *t, const struct rondo_explain_row *rows, int n)
{
    t->n = 0;
    RONDO_TRY(RONDO_NEW_ARRAY(t->candidate, n, "the times of the choices"));
    for (int i = 0; i < n; i++) {
        if (rows[i].model_us >= 0 && rows[i].allowed) {
            struct rondo_candidate *c = &t->candidate[t->n++];
            c->row = rows[i];
            c->predicted_us = rows[i].choice.us;
            c->calls = 1;
        }
    }
    return RONDO_SUCCESS;
}

void rondo_trial_free(struct rondo_trial *t)
{
    rondo_free(t->candidate);
    t->candidate = NULL;
    t->n = 0;
}

/* ---- a turn ---- */

int rondo_trial_runs(const struct rondo_trial *t, int candidate, int batch)
{
    enum rondo_candidate_state state = t->candidate[candidate].state;
    return state == RONDO_CANDIDATE_CLOSE || (state == RONDO_CANDIDATE_BEHIND && batch % 2 == 0);
}

void rondo_trial_add(struct rondo_trial *t, int batch, const double *us)
{
    for (int i = 0; i < t->n; i++) {
        struct rondo_candidate *c = &t->candidate[i];
        if (rondo_trial_runs(t, i, batch) && c->ntimes < RONDO_TRIAL_MOST) {
            c->us[c->ntimes++] = us[i];
        }
    }
}

static int calls_of(double us)
{
    return us * MOST_CALLS <= BATCH_US ? MOST_CALLS : us >= BATCH_US ? 1 : (int)(BATCH_US / us) + 1;
}

static const struct rondo_candidate *fastest(const struct rondo_trial *t)
{
    const struct rondo_candidate *best = &t->candidate[0];
    for (int i = 1; i < t->n; i++) {
        best = rondo_trial_time(&t->candidate[i]) < rondo_trial_time(best) ? &t->candidate[i] : best;
    }
    return best;
}

void rondo_trial_sift(struct rondo_trial *t)
{
    double best = rondo_trial_time(fastest(t));
    for (int i = 0; i < t->n; i++) {
        struct rondo_candidate *c = &t->candidate[i];
        double us = rondo_trial_time(c);
        c->calls = calls_of(us);
        if (c->ntimes >= RONDO_TRIAL_FIRST && c->state != RONDO_CANDIDATE_SLOW) {
            c->state = c->row.chosen || us <= CLOSE * best ? RONDO_CANDIDATE_CLOSE
                       : us <= FAR_BEHIND * best           ? RONDO_CANDIDATE_BEHIND
                                                           : RONDO_CANDIDATE_SLOW;
        }
    }
}

/* ---- times ---- */

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double rondo_trial_time(const struct rondo_candidate *c)
{
    double us[RONDO_TRIAL_MOST];
    int only_first = c->ntimes <= RONDO_TRIAL_FIRST, from = only_first ? 0 : RONDO_TRIAL_FIRST,
        n = c->ntimes - from;
    memcpy(us, c->us + from, (size_t)n * sizeof(*us));
    qsort(us, (size_t)n, sizeof(*us), by_value);
    return us[only_first ? 0 : (int)(QUARTILE * (n - 1))];
}

/* @return the candidate of the trial that is this one at another size; NULL: none. */
static const struct rondo_candidate *same(const struct rondo_trial *t, const struct rondo_candidate *other)
{
    const struct rondo_choice *x = &other->row.choice;
    for (int i = 0; i < t->n; i++) {
        const struct rondo_choice *y = &t->candidate[i].row.choice;
        if (x->algo == y->algo && x->proto == y->proto && x->nchannels == y->nchannels) {
            return &t->candidate[i];
        }
    }
    return NULL;
}

static int as_fast(const struct rondo_trial *t, const struct rondo_candidate *other)
{
    const struct rondo_candidate *c = same(t, other);
    return c != NULL && rondo_trial_time(c) <= AS_FAST * rondo_trial_time(fastest(t));
}

size_t rondo_trial_between(const struct rondo_trial *a, const struct rondo_trial *b)
{
    int doublings = 0;
    while (a->bytes << (doublings + 1) <= b->bytes) {
        doublings++;
    }
    return doublings < 2 || as_fast(a, fastest(b)) || as_fast(b, fastest(a)) ? 0 : a->bytes << doublings / 2;
}

static int by_time(const void *a, const void *b)
{
    const struct rondo_candidate *x = a, *y = b;
    return by_value(&x->row.choice.us, &y->row.choice.us);
}

void rondo_trial_end(struct rondo_trial *t)
{
    for (int i = 0; i < t->n; i++) {
        t->candidate[i].row.choice.us = rondo_trial_time(&t->candidate[i]);
        t->candidate[i].row.choice.measured = 1;
    }
    qsort(t->candidate, (size_t)t->n, sizeof(*t->candidate), by_time);
}
