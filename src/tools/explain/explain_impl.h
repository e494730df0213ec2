/* A table that is being printed: private to explain.c, explain_text.c and explain_json.c. */
#ifndef RONDO_TOOLS_EXPLAIN_EXPLAIN_IMPL_H
#define RONDO_TOOLS_EXPLAIN_EXPLAIN_IMPL_H

#include "tools/explain/explain.h"

struct explain_job {
    FILE *out;
    const struct rondo_topo *topo;
    const struct rondo_graph *graphs;
    const struct rondo_explain_request *request;
    struct rondo_explain_question question;
    int64_t first, last;
    char note[512]; /* on RONDO_TUNE_FILE; "": there is none */
};

rondo_status rondo_explain_text(const struct explain_job *job);
rondo_status rondo_explain_json(const struct explain_job *job);

#endif
