/*
 * The last few results of a computation, by its input: most communicators of a program have the same ranks as
 * one before. A zeroed struct is an empty one; the caller sets drop, and holds a lock of its own.
 */
#ifndef RONDO_BASE_MEMO_H
#define RONDO_BASE_MEMO_H

#include <stddef.h>
#include <stdint.h>

enum { RONDO_MEMO_RESULTS = 8, RONDO_MEMO_MOST = 256 << 10 /* bytes of an input */ };

struct rondo_memo {
    void (*drop)(void *result); /* frees a result */
    struct rondo_remembered {
        void *input, *result; /* input NULL: free */
        size_t bytes;         /* of the input */
        uint64_t used;
    } last[RONDO_MEMO_RESULTS];
    uint64_t uses;
};

/** @return the result for these bytes, which stays the memo's; NULL: it has none. */
void *rondo_memo_find(struct rondo_memo *memo, const void *input, size_t bytes);
/** Keep a result, which becomes the memo's, in place of the one that was not used for longest. @return 0: the
 * input is too long, or there is no memory; the result stays the caller's. */
int rondo_memo_keep(struct rondo_memo *memo, const void *input, size_t bytes, void *result);
/** Drop all results. */
void rondo_memo_clear(struct rondo_memo *memo);

#endif
