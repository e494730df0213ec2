/*
 * all_to_all where a rank's input is its output: what leaves a place is what arrives there, so two ranks swap
 * their blocks. Each swaps one half of them, by itself; of a rank whose two buffers differ and one in place,
 * the former moves both blocks. Who is in place has posted its output (OPEN), and who is not has not.
 */
#include <string.h>

#include "kern/zerocopy_impl.h"
#include "kern/cpu/exec_cpu.h"
#include "kern/reduce.h"

/* A piece of the two blocks: theirs for this rank, where it belongs, this rank's for them, where that
 * belongs. */
struct piece {
    const uint8_t *theirs, *mine;
    uint8_t *here, *there;
};

int rondo_swaps(const struct rondo_work *w, int peer)
{
    return w->coll == RONDO_COLL_ALL_TO_ALL && peer != w->direct->index &&
           (w->in == w->out || w->direct->out[peer] != NULL);
}

/* Which of the block's n elements this rank moves: [*begin, *end). */
static void own_part(const struct rondo_work *w, int peer, size_t n, size_t *begin, size_t *end)
{
    int me_in_place = w->in == w->out, both = me_in_place && w->direct->out[peer] != NULL,
        first = w->direct->index < peer;
    *begin = both && !first ? n / 2 : 0;
    *end = (both && first) ? n / 2 : me_in_place && !both ? 0 : n;
}

static void swap_mapped(struct rondo_exec *exec, const struct piece *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += RONDO_TILE_BYTES) {
        size_t here = rondo_min_size(RONDO_TILE_BYTES, bytes - at);
        memcpy(exec->tile[0], p->theirs + at, here);
        memcpy(p->there + at, p->mine + at, here);
        memcpy(p->here + at, exec->tile[0], here);
    }
}

static int swap_by_kernel(const struct rondo_work *w, int peer, const struct piece *p, size_t bytes,
                          rondo_status *status)
{
    const struct rondo_direct *d = w->direct;
    size_t chunk = rondo_cma_chunk(d), n;
    for (size_t at = 0; at < bytes; at += n) {
        n = rondo_min_size(chunk, bytes - at);
        if (!rondo_cma_carry(d, peer, 0, d->scratch, p->theirs + at, n, status) ||
            !rondo_cma_carry(d, peer, 1, (uint8_t *)p->mine + at, p->there + at, n, status)) {
            return 0;
        }
        memcpy(p->here + at, d->scratch, n);
    }
    return 1;
}

int rondo_swap_move(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                    size_t n, rondo_status *status)
{
    int peer = flow->step.block;
    size_t begin, end, at, bytes;
    struct piece p;
    own_part(w, peer, flow->n, &begin, &end);
    begin = rondo_max_size(begin, flow->done);
    end = rondo_min_size(end, flow->done + n);
    if (begin >= end) {
        return 1;
    }
    at = begin * w->elem_bytes;
    bytes = (end - begin) * w->elem_bytes;
    p.theirs = w->direct->in[peer] + flow->in * w->elem_bytes + at;
    p.there = w->direct->out[peer] + flow->in * w->elem_bytes + at;
    p.mine = w->in + flow->out * w->elem_bytes +
             at; /* a block lies in the input where that of the same rank lies in the output */
    p.here = w->out + flow->out * w->elem_bytes + at;
    if (w->direct->reach == RONDO_REACH_CMA) {
        return swap_by_kernel(w, peer, &p, bytes, status);
    }
    swap_mapped(exec, &p, bytes);
    return 1;
}
