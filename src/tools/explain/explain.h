/* What the tuner would choose, and why: its table for a machine that need not be this one, or for a
 * communicator that there is. */
#ifndef RONDO_TOOLS_EXPLAIN_EXPLAIN_H
#define RONDO_TOOLS_EXPLAIN_EXPLAIN_H

#include <stdio.h>

#include "coll/algo.h"
#include "topo/search.h"

/* ---- the rows of the table ---- */

struct rondo_explain_question {
    const struct rondo_layout *layout;
    const struct rondo_allowed *allowed;
    enum rondo_coll coll;
    size_t mailbox; /* payload bytes of a place of the mailbox; 0: none */
    int every; /* 1: a row for every number of channels; 0: for the best one of each algorithm and protocol */
};

struct rondo_explain_row {
    struct rondo_choice choice; /* us < 0: it cannot run */
    double model_us;            /* what the model says, whatever was measured; < 0: it cannot run */
    const char *limit;          /* what takes most of that, or why it cannot run */
    uint8_t allowed;            /* 0: RONDO_ALGO, RONDO_PROTO or RONDO_DETERMINISM forbid it */
    uint8_t chosen;             /* 1: what a call of this size runs */
};

/** What exists for the collective, best first, what cannot run last. rows: rondo_free. @return the error of
 * rondo_cost_choose when nothing can run. */
rondo_status rondo_explain_rows(const struct rondo_explain_question *question, size_t bytes,
                                struct rondo_explain_row **rows, int *n);
/** A name of a collective, as rondo_coll_from_name; the error names all of them. */
rondo_status rondo_explain_coll(const char *name, enum rondo_coll *coll);
/** "64M", or a range "8:128M". */
rondo_status rondo_explain_sizes(const char *text, int64_t *first, int64_t *last);
/** 65536 as "64 KiB" */
void rondo_explain_size_text(double bytes, char text[16]);

/* One table as JSON (src/tools/JSON.md): its head, its sizes, its end. */
void rondo_explain_json_head(FILE *out, enum rondo_coll coll, const struct rondo_layout *layout);
void rondo_explain_json_size(FILE *out, size_t bytes, const struct rondo_explain_row *rows, int n, int first);
void rondo_explain_json_end(FILE *out);

/* ---- of a job on equal machines ---- */

struct rondo_explain_request {
    const char *coll, *sizes;
    int nodes;
    int every; /* one size: every number of channels */
    int json;  /* an object for programs (src/tools/JSON.md) instead of text */
};

/**
 * Print the table of a collective on such nodes: one size: every algorithm and protocol, best first, with
 * channels, time, bandwidths and what limits it, and why others are not available; a range: for each doubled
 * size the choice and the next best. Sizes are those of the larger buffer of a rank. RONDO_ALGO, RONDO_PROTO,
 * RONDO_DETERMINISM, RONDO_TUNE_FILE and the limits of channels count as they would in a job. graphs: as
 * rondo_topo_search found them for topo.
 */
rondo_status rondo_explain(FILE *out, const struct rondo_topo *topo,
                           const struct rondo_graph graphs[RONDO_NUM_GRAPHS],
                           const struct rondo_explain_request *request);

/** The layout (without channels) that the table is asked with: for tests. Nothing in it has to be released.
 */
rondo_status rondo_explain_layout(struct rondo_layout *layout, const struct rondo_topo *topo,
                                  const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes);

#endif
