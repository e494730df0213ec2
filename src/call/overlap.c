/* Which send and receive buffers a call accepts: disjoint ones, or exactly the collective's in-place
 * position. */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "call/overlap.h"
#include "comm/backend.h"

/* Bytes from @a begin on; a send block or a receive block. */
struct block {
    uintptr_t begin, end;
    int received;
};

static size_t bytes_of(const struct rondo_task *t, size_t count)
{
    return count * rondo_dtype_size((rondo_dtype)t->dtype);
}

/* Whose buffer holds a block for every rank, and so where in it the other buffer lies in place. */
enum blocks { NO_BLOCKS, SEND_BLOCKS, RECV_BLOCKS, BOTH_BLOCKS };
static enum blocks blocks_of(const struct rondo_task *t)
{
    switch ((enum rondo_coll)t->coll) {
    case RONDO_COLL_ALL_GATHER:
    case RONDO_COLL_ALL_GATHERV:
    case RONDO_COLL_GATHERV:
    case RONDO_COLL_GATHER: return RECV_BLOCKS;
    case RONDO_COLL_REDUCE_SCATTER:
    case RONDO_COLL_REDUCE_SCATTERV:
    case RONDO_COLL_SCATTERV:
    case RONDO_COLL_SCATTER: return SEND_BLOCKS;
    case RONDO_COLL_ALL_TO_ALL:
    case RONDO_COLL_ALL_TO_ALLV: return BOTH_BLOCKS;
    default: return NO_BLOCKS;
    }
}

/* May the result lie at the start of the send buffer? The kernels of GPUs cannot. */
static int ends_at_start(const struct rondo_task *t)
{
    return t->coll == RONDO_COLL_REDUCE_SCATTER && !t->ctx->backend->is_gpu;
}

struct rondo_overlap rondo_task_overlap(const struct rondo_task *t, unsigned needed)
{
    struct rondo_overlap o = { 0, 0, { 0, 0 } };
    enum blocks blocks = blocks_of(t);
    size_t n = (size_t)t->ctx->job.nranks, bytes = bytes_of(t, t->count);
    size_t sent = blocks & SEND_BLOCKS ? n * bytes : bytes,
           received = blocks & RECV_BLOCKS ? n * bytes : bytes;
    uintptr_t own = (uintptr_t)t->ctx->job.rank * bytes;
    if (needed == 3) {
        o.before = received - 1;
        o.span = sent + received - 1;
        o.in_place[0] = blocks == SEND_BLOCKS ? own : blocks == RECV_BLOCKS ? -own : 0;
        o.in_place[1] = ends_at_start(t) ? 0 : o.in_place[0];
    }
    return o;
}

int rondo_task_swaps_blocks(const struct rondo_task *t)
{
    if (t->coll != RONDO_COLL_ALL_TO_ALLV || t->send != t->recv) {
        return 0;
    }
    for (int r = 0; r < t->ctx->job.nranks; r++) {
        if (t->send_counts[r] != t->counts[r] || (t->counts[r] > 0 && t->send_displs[r] != t->displs[r])) {
            return 0;
        }
    }
    return 1;
}

static rondo_status refuse(const struct rondo_task *t)
{
    static const char *const position[] = {
        [NO_BLOCKS] = "recv == send",
        [SEND_BLOCKS] = "recv == send + the displacement of this rank's block",
        [RECV_BLOCKS] = "send == recv + the displacement of this rank's block",
        [BOTH_BLOCKS] = "recv == send",
    };
    return rondo_fail(RONDO_INVALID_ARGUMENT,
                      "rondo_%s on rank %d: the send buffer at %p and the receive buffer at %p overlap: use "
                      "disjoint buffers, or in place exactly %s%s",
                      rondo_coll_name((enum rondo_coll)t->coll), t->ctx->job.rank, t->send, t->recv,
                      position[blocks_of(t)],
                      t->coll == RONDO_COLL_ALL_TO_ALLV
                          ? ", with the same counts and displacements for both, and blocks that are disjoint"
                      : ends_at_start(t) ? ", or recv == send"
                                         : "");
}

static struct block block_at(const struct rondo_task *t, const void *buffer, size_t displ, size_t count,
                             int received)
{
    uintptr_t begin = (uintptr_t)buffer + bytes_of(t, displ);
    return (struct block){ begin, begin + bytes_of(t, count), received };
}

static int by_begin(const void *x, const void *y)
{
    const struct block *a = x, *b = y;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Does a block overlap one of the other buffer, or (alone) any other one? Sorts them. */
static int any_overlap(struct block *block, size_t n, int alone)
{
    uintptr_t end[2] = { 0, 0 }; /* of the send and receive blocks so far */
    qsort(block, n, sizeof(*block), by_begin);
    for (size_t i = 0; i < n; i++) {
        int kind = block[i].received;
        if (block[i].begin == block[i].end) {
            continue;
        }
        if (block[i].begin < end[!kind] || (alone && block[i].begin < end[kind])) {
            return 1;
        }
        end[kind] = block[i].end > end[kind] ? block[i].end : end[kind];
    }
    return 0;
}

/* The blocks of a buffer that has counts per rank, or the one block of a buffer that has not. */
static size_t add_blocks(const struct rondo_task *t, struct block *block, int received)
{
    size_t n = (size_t)t->ctx->job.nranks;
    const void *buffer = received ? t->recv : t->send;
    const size_t *counts = received || t->send_counts == NULL ? t->counts : t->send_counts,
                 *displs = received || t->send_displs == NULL ? t->displs : t->send_displs;
    if (!(blocks_of(t) & (received ? RECV_BLOCKS : SEND_BLOCKS))) {
        block[0] = block_at(t, buffer, 0, t->counts[t->ctx->job.rank], received);
        return 1;
    }
    for (size_t r = 0; r < n; r++) {
        block[r] = block_at(t, buffer, displs[r], counts[r], received);
    }
    return n;
}

/* Counts per rank: blocks may lie between one another. */
static rondo_status check_blocks(const struct rondo_task *t)
{
    size_t own = t->coll == RONDO_COLL_ALL_TO_ALLV ? 0 : bytes_of(t, t->displs[t->ctx->job.rank]), n;
    struct block *block;
    int overlap, swaps = rondo_task_swaps_blocks(t);
    if ((blocks_of(t) == RECV_BLOCKS && (uintptr_t)t->send == (uintptr_t)t->recv + own) ||
        (blocks_of(t) == SEND_BLOCKS && (uintptr_t)t->recv == (uintptr_t)t->send + own)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(block, 2 * t->ctx->job.nranks, "the blocks of a call"));
    n = add_blocks(t, block, 0);
    n += swaps ? 0 : add_blocks(t, block + n, 1);
    overlap = any_overlap(block, n, swaps);
    rondo_free(block);
    return overlap ? refuse(t) : RONDO_SUCCESS;
}

rondo_status rondo_task_check_overlap(const struct rondo_task *t, unsigned needed)
{
    struct rondo_overlap o;
    if (needed != 3) {
        return RONDO_SUCCESS;
    }
    if (t->counts != NULL) {
        return check_blocks(t);
    }
    o = rondo_task_overlap(t, needed);
    return rondo_overlaps(&o, t->send, t->recv) ? refuse(t) : RONDO_SUCCESS;
}
