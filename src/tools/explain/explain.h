/* What the tuner would choose, and why: its table for a communicator, or for a machine that need not be this
 * one. */
#ifndef RONDO_TOOLS_EXPLAIN_EXPLAIN_H
#define RONDO_TOOLS_EXPLAIN_EXPLAIN_H

#include <stdio.h>

#include "tuner/tuner.h"
#include "topo/search.h"

/* ---- the rows of the table ---- */

struct rondo_explain_question {
    const struct rondo_layout *layout;
    const struct rondo_allowed *allowed;
    enum rondo_coll coll;
    size_t mailbox; /* bytes that a rank's place in the mailbox holds; 0: no mailbox */
    int every;      /* 1: a row for every number of channels; 0: only for the best number */
};

struct rondo_explain_row {
    struct rondo_choice choice; /* us < 0: it cannot run */
    double model_us;            /* predicted by the model, even if a time was measured; < 0: it cannot run */
    const char *limit;          /* what takes most of the predicted time, or why it cannot run */
    uint8_t allowed;            /* 0: forbidden by RONDO_ALGO, RONDO_PROTO or RONDO_DETERMINISM */
    uint8_t chosen;             /* 1: a call of this size runs this */
};

/** List every algorithm and protocol of the collective: fastest first, those that cannot run last. Release
 * *rows with rondo_free. @return the error of rondo_cost_choose if nothing can run. */
rondo_status rondo_explain_rows(const struct rondo_explain_question *question, size_t bytes,
                                struct rondo_explain_row **rows, int *n);
/** Find a collective by name (rondo_coll_from_name). The error lists all names. */
rondo_status rondo_explain_coll(const char *name, enum rondo_coll *coll);
/** Parse a size ("64M") or a range of sizes ("8:128M"). */
rondo_status rondo_explain_sizes(const char *text, int64_t *first, int64_t *last);

/* Print a table as JSON (src/tools/JSON.md): its head, each size, its end. */
void rondo_explain_json_head(FILE *out, enum rondo_coll coll, const struct rondo_layout *layout);
void rondo_explain_json_size(FILE *out, size_t bytes, const struct rondo_explain_row *rows, int n, int first);
void rondo_explain_json_end(FILE *out);

/* ---- a job of equal nodes ---- */

struct rondo_explain_request {
    const char *coll, *sizes;
    int nodes;
    int every; /* for a single size, show every number of channels */
    int json;  /* print JSON (src/tools/JSON.md) instead of text */
    int here;  /* topo is this machine: use what was measured on it (tuner/calibration.h), and say so */
};

/**
 * Print the tuner's table for a collective on `nodes` nodes like topo's. For a single size, list every
 * algorithm and protocol, fastest first, with its channels, time and bandwidths, what limits it, or why it
 * cannot run. For a range, double the size and print the choice and the runner-up. A size is the larger of a
 * rank's buffers. RONDO_ALGO, RONDO_PROTO, RONDO_DETERMINISM, RONDO_TUNE_FILE and the limits of channels
 * apply as in a job. graphs: the result of rondo_topo_search for topo.
 */
rondo_status rondo_explain(FILE *out, const struct rondo_topo *topo,
                           const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                           const struct rondo_explain_request *request);

/** Fill the layout, without channels, that rondo_explain uses. For tests; it owns no memory. */
rondo_status rondo_explain_layout(struct rondo_layout *layout, const struct rondo_topo *topo,
                                  const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes);

#endif
