/*
 * How rondo-explain --measure times the candidates of a size, and what it makes of the times. Nothing here
 * communicates: all ranks add the same times, and so decide alike.
 *
 * A trial is one collective at one size. A time is that of a batch: calls in a loop, so many that they take
 * 50 us, divided by their number. Candidates alternate, one batch each, so noise hits all of them alike.
 * Trials take turns in rounds, so each sees the machine at several moments. The lower quartile counts: what
 * calls take when little disturbs them.
 */
#ifndef RONDO_TOOLS_EXPLAIN_TRIAL_H
#define RONDO_TOOLS_EXPLAIN_TRIAL_H

#include "tools/explain/explain.h"

enum {
    RONDO_TRIAL_FIRST = 3, /* batches before all others: they find the slow candidates, and are not counted */
    RONDO_TRIAL_ROUNDS = 5,
    RONDO_TRIAL_BATCHES = 24, /* most batches of a candidate in a turn */
    RONDO_TRIAL_MOST = RONDO_TRIAL_FIRST + RONDO_TRIAL_ROUNDS * RONDO_TRIAL_BATCHES
};

enum rondo_candidate_state {
    RONDO_CANDIDATE_CLOSE,  /* may be the fastest, or is the tuner's choice: runs in every batch */
    RONDO_CANDIDATE_BEHIND, /* runs in every second batch */
    RONDO_CANDIDATE_SLOW    /* has run for the last time; the least of its first times counts */
};

struct rondo_candidate {
    struct rondo_explain_row row;
    double predicted_us; /* the model's, or a tuning file's */
    enum rondo_candidate_state state;
    int calls; /* of a batch */
    int ntimes;
    double us[RONDO_TRIAL_MOST]; /* a call, by batch */
};

struct rondo_trial {
    enum rondo_coll coll;
    size_t count, bytes;
    int n;
    struct rondo_candidate *candidate;
};

/** Make a candidate of every row that can run and is allowed. */
rondo_status rondo_trial_make(struct rondo_trial *t, const struct rondo_explain_row *rows, int n);
void rondo_trial_free(struct rondo_trial *t);

/** Does this candidate run in a batch? They count from 0 in each turn. */
int rondo_trial_runs(const struct rondo_trial *t, int candidate, int batch);
/** Add a batch: us a call of each candidate that ran in it. */
void rondo_trial_add(struct rondo_trial *t, int batch, const double *us);
/** Find out how many calls a batch needs and, after the first ones, which candidates go on. Call it after
 * each of the first batches and after each turn. */
void rondo_trial_sift(struct rondo_trial *t);
/** @return us a call. */
double rondo_trial_time(const struct rondo_candidate *c);
/** @return the size to measure between two, because none is the fastest at both; 0: none. */
size_t rondo_trial_between(const struct rondo_trial *a, const struct rondo_trial *b);
/** Put the times into the rows, and sort the candidates by them. */
void rondo_trial_end(struct rondo_trial *t);

#endif
