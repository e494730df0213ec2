/* What a rank copies in a call by copy engines, and which buffers its peers read. Contract: exec_cuda_impl.h.
 */
#include "kern/cuda/exec_cuda_impl.h"

static int is_root(const struct rondo_work *w) { return w->seat.index == w->seat.root; }

int rondo_cuda_copy_spreads(const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_BROADCAST && w->seat.nranks > 2;
}

static size_t block_bytes(const struct rondo_work *w, int rank)
{
    return (w->counts != NULL ? w->counts[rank] : w->block) * w->elem_bytes;
}

size_t rondo_cuda_copy_bytes(const struct rondo_work *w)
{
    return block_bytes(w, w->seat.index) * (w->coll == RONDO_COLL_ALL_TO_ALL ? (size_t)w->seat.nranks : 1);
}

unsigned rondo_cuda_copy_needs(const struct rondo_work *w)
{
    if (rondo_cuda_copy_bytes(w) == 0) {
        return 0;
    }
    return w->coll != RONDO_COLL_BROADCAST || is_root(w) ? RONDO_CUDA_NEEDS_IN
           : rondo_cuda_copy_spreads(w)                  ? RONDO_CUDA_NEEDS_OUT
                                                         : 0;
}

static void add_move(struct rondo_cuda_move *move, int *n, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (bytes > 0 && to != from) {
        move[(*n)++] = (struct rondo_cuda_move){ .to = to, .from = from, .bytes = bytes };
    }
}

/* Rank's piece of a buffer that is cut among all: whole lines. */
static size_t piece_of(const struct rondo_work *w, int rank, size_t *bytes)
{
    size_t all = block_bytes(w, 0),
           share = rondo_round_up((all + (size_t)w->seat.nranks - 1) / (size_t)w->seat.nranks,
                                  RONDO_CTRL_ALIGN);
    size_t at = rondo_min_size(share * (size_t)rank, all);
    *bytes = rondo_min_size(share, all - at);
    return at;
}

static int broadcast_moves(const struct rondo_cuda_copied *call, int round, struct rondo_cuda_move *move)
{
    const struct rondo_work *w = &call->run->work;
    int n = 0, nranks = w->seat.nranks, index = w->seat.index, root = w->seat.root;
    size_t bytes, at;
    if (is_root(w) || !rondo_cuda_copy_spreads(w)) {
        add_move(move, &n, call->out[index], call->in[root], round == 0 ? block_bytes(w, 0) : 0);
        return n;
    }
    for (int d = round; d < (round == 0 ? 1 : nranks); d++) {
        int rank = (index + d) % nranks;
        at = piece_of(w, rank, &bytes);
        add_move(move, &n, call->out[index] + at,
                 (round == 0 || rank == root ? call->in[root] : call->out[rank]) + at, bytes);
    }
    return n;
}

/* Everyone begins with another rank. In place, the second round brings what the first one has put aside. */
static int gather_moves(const struct rondo_cuda_copied *call, int round, struct rondo_cuda_move *move)
{
    const struct rondo_work *w = &call->run->work;
    int n = 0, nranks = w->seat.nranks, index = w->seat.index, exchanges = w->coll == RONDO_COLL_ALL_TO_ALL,
        aside = exchanges && w->in == w->out;
    CUdeviceptr to = aside ? (CUdeviceptr)(uintptr_t)call->run->aside : call->out[index];
    if (round > 0) {
        add_move(move, &n, call->out[index], to, aside ? rondo_cuda_copy_bytes(w) : 0);
        return n;
    }
    for (int d = 0; d < nranks; d++) {
        int rank = (index + d) % nranks;
        size_t block = block_bytes(w, rank),
               at = w->displs != NULL ? w->displs[rank] * w->elem_bytes : (size_t)rank * block;
        add_move(move, &n, to + at, call->in[rank] + (exchanges ? (size_t)index * block : 0), block);
    }
    return n;
}

int rondo_cuda_copy_moves(const struct rondo_cuda_copied *call, int round,
                          struct rondo_cuda_move move[RONDO_DIRECT_RANKS])
{
    return (call->run->work.coll == RONDO_COLL_BROADCAST ? broadcast_moves : gather_moves)(call, round, move);
}
