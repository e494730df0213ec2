/*
 * Which elements a block of a loop has. A work passes its range [off, off + len) in `nloops` loops:
 *   SPLIT  ring all_reduce: a loop covers nranks * chunk elements of the range; block b is its b-th share
 *   BLOCK  all_gather, reduce_scatter: a loop covers `chunk` elements of every rank's block; block b belongs
 *          to rank block_rank[b] (all_to_all, as all_gather: what rank b has for this rank)
 *   WHOLE  trees, chains, messages: a loop covers `chunk` elements; there is one block
 * Pure functions of the work, so sender and receiver find the same lengths. Shared with CUDA.
 *
 * A block travels in slices. In a ring, every rank sends its first block before it receives one, and passes
 * a slice on only when the next conn has a free slot. If a block filled all slots, no rank could go on; so
 * a chunk has at most RONDO_CHUNK_SLICES slices.
 */
#ifndef RONDO_COLL_CHUNK_H
#define RONDO_COLL_CHUNK_H

#include "coll/step.h"

enum { RONDO_CHUNK_SLICES = RONDO_SLOTS - 1 };

struct rondo_span {
    size_t in, out; /* offsets in elements from work->in and work->out */
    size_t n;       /* elements; 0: nothing to do */
};

/* Shares of a short SPLIT loop are whole cache lines, so that no two ranks write one line, but at most a
 * chunk, which need not be whole lines. */
RONDO_FN size_t rondo_split_share(size_t rest, size_t chunk, int32_t nranks, uint32_t elem_bytes)
{
    size_t line = RONDO_CACHE_LINE / elem_bytes, share = (rest + (size_t)nranks - 1) / (size_t)nranks;
    share = (share + line - 1) / line * line;
    return share < chunk ? share : chunk;
}

RONDO_FN size_t rondo_work_nloops(const struct rondo_work *w, enum rondo_map map)
{
    size_t per_loop = map == RONDO_MAP_SPLIT ? w->chunk * (size_t)w->seat.nranks : w->chunk, longest = w->len;
    if (w->counts != NULL) { /* v-forms have one channel: the longest block counts, not `len` */
        longest = 0;
        for (int32_t r = 0; r < w->seat.nranks; r++)
            longest = w->counts[r] > longest ? w->counts[r] : longest;
    }
    return (longest + per_loop - 1) / per_loop;
}

RONDO_FN struct rondo_span rondo_work_span(const struct rondo_work *w, enum rondo_map map, size_t loop,
                                           int32_t block)
{
    struct rondo_span s;
    size_t begin, rest;
    s.in = s.out = s.n = 0;
    if (map == RONDO_MAP_SPLIT) {
        size_t per_loop = w->chunk * (size_t)w->seat.nranks, share = w->chunk;
        begin = loop * per_loop;
        rest = w->len - begin;
        if (rest < per_loop) share = rondo_split_share(rest, w->chunk, w->seat.nranks, w->elem_bytes);
        begin += share * (size_t)block;
        if (begin >= w->len) return s;
        s.n = w->len - begin < share ? w->len - begin : share;
        s.in = s.out = w->off + begin;
        return s;
    }
    begin = loop * w->chunk;
    if (map == RONDO_MAP_WHOLE) {
        s.n = w->len - begin < w->chunk ? w->len - begin : w->chunk;
        s.in = s.out = w->off + begin;
        return s;
    }
    {
        int gather = w->coll == RONDO_COLL_ALL_GATHER || w->coll == RONDO_COLL_ALL_GATHERV;
        int32_t rank = w->block_rank != NULL ? w->block_rank[block] : block;
        size_t length = w->counts != NULL ? w->counts[rank] : w->len;
        size_t at = w->displs != NULL ? w->displs[rank] : (size_t)rank * w->block;
        if (begin >= length) return s;
        s.n = length - begin < w->chunk ? length - begin : w->chunk;
        begin += w->off;
        if (w->coll == RONDO_COLL_ALL_TO_ALL) {
            s.in = (size_t)w->seat.index * w->block + begin;
            s.out = at + begin;
            return s;
        }
        /* One buffer holds a single block, the rank's own; the other holds all. */
        s.in = gather ? begin : at + begin;
        s.out = gather ? at + begin : begin;
    }
    return s;
}

#endif
