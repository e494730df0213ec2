#include "observe/call_text.h"

#include <stdio.h>

int rondo_call_has_counts(enum rondo_coll coll)
{
    return coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV ||
           coll == RONDO_COLL_ALL_TO_ALLV;
}

void rondo_call_text(const struct rondo_call *call, char *text, size_t size)
{
    char op[40] = "", root[32] = "";
    enum rondo_coll coll = (enum rondo_coll)call->coll;
    const char *type = rondo_dtype_name((rondo_dtype)call->dtype), *name = rondo_coll_name(coll);
    if (name == NULL) { /* from another rank: not to be trusted */
        snprintf(text, size, "an unknown call #%llu", (unsigned long long)call->seq);
        return;
    }
    if (coll == RONDO_COLL_BARRIER) {
        snprintf(text, size, "barrier #%llu", (unsigned long long)call->seq);
        return;
    }
    if (rondo_coll_reduces(coll)) {
        const char *op_name = rondo_op_name((rondo_op)call->op);
        snprintf(op, sizeof(op), ", %s", op_name != NULL ? op_name : "pre-multiplied sum");
    }
    if (rondo_coll_has_root(coll)) {
        snprintf(root, sizeof(root), ", root %d", call->root);
    }
    snprintf(text, size, "%s #%llu (%s %llu, %s%s%s)", name, (unsigned long long)call->seq,
             rondo_call_has_counts(coll) ? "all counts together" : "count", (unsigned long long)call->count,
             type != NULL ? type : "?", op, root);
}

void rondo_message_text(const struct rondo_message *message, char *text, size_t size)
{
    const char *type = rondo_dtype_name((rondo_dtype)message->dtype);
    snprintf(text, size, "a %s of %llu %s %s rank %d", message->is_send ? "send" : "receive",
             (unsigned long long)message->count, type != NULL ? type : "?", message->is_send ? "to" : "from",
             (int)message->peer);
}
