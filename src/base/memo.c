#include "base/memo.h"

#include <string.h>

#include "base/mem.h"
#include "base/types.h"

static void forget(struct rondo_memo *memo, struct rondo_remembered *r)
{
    if (r->input != NULL) {
        memo->drop(r->result);
        rondo_free(r->input);
        memset(r, 0, sizeof(*r));
    }
}

void *rondo_memo_find(struct rondo_memo *memo, const void *input, size_t bytes)
{
    for (int i = 0; i < RONDO_MEMO_RESULTS; i++) {
        struct rondo_remembered *r = &memo->last[i];
        if (r->input != NULL && r->bytes == bytes && memcmp(r->input, input, bytes) == 0) {
            r->used = ++memo->uses;
            return r->result;
        }
    }
    return NULL;
}

int rondo_memo_keep(struct rondo_memo *memo, const void *input, size_t bytes, void *result)
{
    struct rondo_remembered *oldest = memo->last;
    void *copy;
    if (bytes == 0 || bytes > RONDO_MEMO_MOST) {
        return 0;
    }
    copy = malloc(bytes); /* without it the result is only not kept: no error */
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, input, bytes);
    for (int i = 1; i < RONDO_MEMO_RESULTS; i++) {
        oldest = memo->last[i].used < oldest->used ? &memo->last[i] : oldest;
    }
    forget(memo, oldest);
    *oldest = (struct rondo_remembered){ copy, result, bytes, ++memo->uses };
    return 1;
}

void rondo_memo_clear(struct rondo_memo *memo)
{
    for (int i = 0; i < RONDO_MEMO_RESULTS; i++) {
        forget(memo, &memo->last[i]);
    }
}
