/*
 * One-shot and two-shot on GPUs: the same block of each rank of a node, with direct access to one another's
 * device memory. Reductions happen in registers, in rank order.
 *
 * One-shot of an all_reduce is LL: a rank writes its input into a slot of every peer's memory, a flag with
 * every 4 bytes (kern/proto_ll.h), and sums what comes into its own memory. Nobody meets. A call that is
 * longer than a slot goes in windows. The slots of two windows are used in turn: who has received all of a
 * window knows that all ranks have read the one before, because a block reads all of a window before it
 * writes the next. A slot's first line has the call word.
 *
 * All else:
 *
 * Ranks meet: a rank in a meeting has ended all its earlier reads and writes, for every rank that has come to
 * the meeting, too. A rank writes the meeting's number to a line of each peer's memory and waits for the
 * peers' numbers in its own memory. A work's first meeting also carries the call word and where the rank's
 * buffers are.
 *
 *   two-shot, all ranks can access all buffers: meet; the schedule's moves (coll/twoshot.h), between the
 *       users' buffers; meet
 *   two-shot that asks (coll/work.h), but some rank's buffers cannot be accessed: nothing. Another launch, of
 *       the same pieces for the same channels, carries the call. A rank whose own cannot be launches that
 *       alone, and tells the others at its begin, without waiting (block.h)
 *   other one-shots, and two-shot otherwise: window by window, copy what others need to this rank's staging
 *       buffer, meet, read from all ranks'. Two are used in turn, so that nobody waits for slow readers
 *
 * All ranks choose the same of the two, from the same words. The results have the same bits.
 *
 * The first warp of a block leads: between two barriers it meets and writes the next move to shared memory.
 * Then all threads carry it out. Lane r stands for rank r.
 *
 * Leaving works as in kern/cuda/prim.h. After a rank has left, others may access its buffers a moment longer,
 * until they have left, too: the user must keep them.
 */
#ifndef RONDO_KERN_CUDA_BLOCK_DIRECT_H
#define RONDO_KERN_CUDA_BLOCK_DIRECT_H

#include "kern/cuda/block.h"

enum { RONDO_DIRECT_BEGIN, RONDO_DIRECT_OPEN, RONDO_DIRECT_STAGE, RONDO_DIRECT_TAKE, RONDO_DIRECT_END };

/* The block's position in its work. */
struct rondo_direct_cursor {
    size_t loop, nloops;
    size_t window;          /* staged: elements of a window */
    uint64_t met, staged;   /* as in struct rondo_gpu_direct */
    uint32_t phase, k;      /* k: step of the schedule, or move of a window */
    uint32_t nsteps, parts; /* moves into the staging buffer */
    uint32_t act;           /* of the schedule's move */
    uint32_t called;
    uint64_t shots; /* as in struct rondo_gpu_direct */
};

/* What the threads of a block share. */
struct rondo_direct_shared {
    struct rondo_work work;
    struct rondo_gpu_reach reach;
    struct rondo_direct_cursor cursor;
    size_t bytes; /* of the next move; 0: there is none */
    size_t rest;  /* of the same move, after these bytes */
    const uint8_t *src[RONDO_DIRECT_RANKS];
    uint8_t *dst[RONDO_DIRECT_RANKS];
    uint64_t in[RONDO_DIRECT_RANKS], out[RONDO_DIRECT_RANKS]; /* the ranks' buffers, with direct access */
    struct rondo_mix mix;
    uint32_t aligned, leave;
    uint32_t left, unused; /* one-shot: the barrier at which the block leaves */
};
#ifndef __cplusplus
_Static_assert(sizeof(struct rondo_direct_shared) <= sizeof(struct rondo_block_shared),
               "one shared memory for all kernels");
#endif

/* ---- the schedule: two-shot's rows ---- */

#define RONDO_DIRECT_ROW_(what, COLL, ALGO, protos, MAP, flow0, flow1, cost)               \
    if (rondo_algo_medium((uint32_t)RONDO_ALGO_##ALGO) == RONDO_MEDIUM_DIRECT &&           \
        (int)RONDO_BLOCK_REDUCES_##COLL == reduces && coll == (uint32_t)RONDO_COLL_##COLL) \
        return RONDO_DIRECT_##what(MAP, flow0);
#define RONDO_DIRECT_MAP(MAP, flow0) RONDO_MAP_##MAP
#define RONDO_DIRECT_NSTEPS(MAP, flow0) rondo_##flow0##_nsteps(seat)
#define RONDO_DIRECT_STEP(MAP, flow0) rondo_##flow0##_step(seat, k)

RONDO_FN enum rondo_map rondo_direct_map(int reduces, uint32_t coll)
{
    RONDO_SCHEDULE_TABLE(RONDO_DIRECT_ROW_, MAP)
    return RONDO_MAP_WHOLE;
}
RONDO_FN uint32_t rondo_direct_nsteps(int reduces, uint32_t coll, const struct rondo_seat *seat)
{
    RONDO_SCHEDULE_TABLE(RONDO_DIRECT_ROW_, NSTEPS)
    return 0;
}
RONDO_FN struct rondo_step rondo_direct_step(int reduces, uint32_t coll, const struct rondo_seat *seat,
                                             uint32_t k)
{
    RONDO_SCHEDULE_TABLE(RONDO_DIRECT_ROW_, STEP)
    return rondo_step_none();
}
#undef RONDO_DIRECT_ROW_
#undef RONDO_DIRECT_MAP
#undef RONDO_DIRECT_NSTEPS
#undef RONDO_DIRECT_STEP

/* ---- meetings ---- */

/* This rank's buffers that all peers can access: 1 in, 2 out. The host may change that at any time: lane 0's
 * view counts. */
RONDO_FN uint32_t rondo_direct_offers(const struct rondo_launch *launch, const struct rondo_work *w)
{
    uint32_t open = 0;
    RONDO_ROLLED for (uint32_t i = 0; i < 2; i++)
    {
        const struct rondo_gpu_region *region =
            &launch->direct->region[i == 0 ? w->in_region : w->out_region];
        const uint64_t at = (uint64_t)(uintptr_t)(i == 0 ? w->in : w->out);
        if (rondo_load_acquire((const rondo_word *)&region->open) != 0 && at - region->base < region->bytes)
            open |= 1u << i;
    }
    return (uint32_t)rondo_warp_shuffle(open, 0);
}

/* Write what a work's first meeting carries. */
RONDO_FN void rondo_direct_say(const struct rondo_launch *launch, const struct rondo_work *w,
                               struct rondo_gpu_cell *to, uint64_t met, uint32_t peer, uint32_t offers)
{
    const struct rondo_gpu_region *in = &launch->direct->region[w->in_region],
                                  *out = &launch->direct->region[w->out_region];
    rondo_store_relaxed((rondo_word *)&to->work[met & 1].call, (uint64_t)w->call_word << 32 | offers);
    if (offers & 1)
        rondo_store_relaxed((rondo_word *)&to->work[met & 1].in,
                            in->at[peer] + ((uint64_t)(uintptr_t)w->in - in->base));
    if (offers & 2)
        rondo_store_relaxed((rondo_word *)&to->work[met & 1].out,
                            out->at[peer] + ((uint64_t)(uintptr_t)w->out - out->base));
}

/* @return 0: the block leaves. */
RONDO_FN int rondo_direct_wait(const struct rondo_launch *launch, const struct rondo_gpu_cell *from,
                               uint32_t peer, uint64_t met)
{
    uint32_t spins = 0;
    while (rondo_load_acquire((const rondo_word *)&from->met) < met) {
        if (!rondo_breath(launch->words, &spins)) return 0;
        if (RONDO_UNLIKELY(spins % RONDO_LONG_WAIT == 0)) {
            if (spins == 0) spins = RONDO_LONG_WAIT; /* it wrapped */
            rondo_words_wait_begin(launch->words, launch->serial, (int32_t)peer, RONDO_NUM_PORTS,
                                   RONDO_WAITS_DATA, met);
        }
    }
    if (RONDO_UNLIKELY(spins >= RONDO_LONG_WAIT))
        rondo_words_wait_end(launch->words, (int32_t)peer, RONDO_NUM_PORTS, RONDO_WAITS_DATA);
    return 1;
}

/* Called by all lanes of the first warp after a barrier of the block. offers is NULL except in a work's first
 * meeting: then it is this rank's, and on return those that every rank makes, as far as the move needs them.
 * @return 0: the block leaves. */
RONDO_FN int rondo_direct_meet(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                               uint32_t work_index, uint64_t met, uint32_t needs, uint32_t needs_of_root,
                               uint32_t *offers)
{
    const struct rondo_gpu_reach *reach = &s->reach;
    const uint32_t peer = rondo_lane(), own = reach->index, n = reach->nranks,
                   wanted = peer == (uint32_t)s->work.seat.root ? needs_of_root : needs;
    const size_t line = (size_t)rondo_block_index() * n;
    uint32_t theirs = offers != NULL ? *offers : 0;
    int stays = 1;
    if (peer < n && peer != own) {
        struct rondo_gpu_cell *to = reach->cell[peer] + line + own, *from = reach->cell[own] + line + peer;
        if (offers != NULL) rondo_direct_say(launch, &s->work, to, met, peer, *offers);
        rondo_fence();
        rondo_store_relaxed((rondo_word *)&to->met, met);
        stays = rondo_direct_wait(launch, from, peer, met);
        if (stays && offers != NULL) {
            const uint64_t call = rondo_load_relaxed((const rondo_word *)&from->work[met & 1].call);
            theirs = (uint32_t)call;
            s->in[peer] = rondo_load_relaxed((const rondo_word *)&from->work[met & 1].in);
            s->out[peer] = rondo_load_relaxed((const rondo_word *)&from->work[met & 1].out);
            if ((uint32_t)(call >> 32) != s->work.call_word) {
                rondo_words_mismatch(launch->words, launch->serial, work_index, (int32_t)peer,
                                     (uint32_t)(call >> 32));
                stays = 0;
            }
        }
    } else if (peer == own) {
        s->in[own] = (uint64_t)(uintptr_t)s->work.in;
        s->out[own] = (uint64_t)(uintptr_t)s->work.out;
    }
    if (offers != NULL) *offers = !rondo_warp_any(peer < n && (wanted & ~theirs) != 0);
    return !rondo_warp_any(!stays);
}

/* ---- moves: lanes set sources and destinations; @return elements ---- */

RONDO_FN const uint8_t *rondo_direct_stage(const struct rondo_direct_shared *s, uint64_t staged,
                                           uint32_t rank)
{
    return s->reach.stage[rank] + (2 * (size_t)rondo_block_index() + (staged & 1)) * s->reach.stage_bytes;
}

RONDO_FN void rondo_direct_mix(struct rondo_direct_shared *s, uint32_t nsrc, uint32_t ndst, int own,
                               int finish)
{
    if (rondo_lane() != 0) return;
    s->mix.nsrc = nsrc;
    s->mix.ndst = ndst;
    s->mix.own = own ? 0 : nsrc;
    s->mix.premul = own && s->work.premul;
    s->mix.scalar = rondo_word_repeat(s->work.scalar, s->work.elem_bytes);
    s->mix.divisor = finish && s->work.divide ? s->work.seat.nranks : 0;
}

/* A step of the schedule, between the users' buffers. */
RONDO_FN size_t rondo_direct_open_move(struct rondo_direct_shared *s, const struct rondo_direct_cursor *c,
                                       int reduces)
{
    const struct rondo_work *w = &s->work;
    const struct rondo_step step = rondo_direct_step(reduces, w->coll, &w->seat, c->k);
    const struct rondo_span span = rondo_work_span(w, rondo_direct_map(reduces, w->coll), c->loop,
                                                   step.block);
    const uint32_t rank = rondo_lane(), n = s->reach.nranks, own = s->reach.index,
                   root = (uint32_t)w->seat.root;
    const uint32_t from = (step.act & RONDO_PULL_ROOT) ? root : (uint32_t)step.block,
                   to = (step.act & RONDO_PUSH_ROOT) ? root : own;
    const int all_in = (step.act & RONDO_REDUCE) != 0, all_out = (step.act & RONDO_PUSH) != 0;
    if (rank < n) {
        const uint8_t *src = (const uint8_t *)(uintptr_t)s->in[rank] + span.in * w->elem_bytes;
        uint8_t *dst = (uint8_t *)(uintptr_t)s->out[rank] + span.out * w->elem_bytes;
        if (all_in || rank == from) s->src[all_in ? rank : 0] = src;
        if (all_out || rank == to)
            s->dst[all_out ? (rank + n - own) % n : 0] = dst; /* every rank begins with itself */
    }
    rondo_direct_mix(s, all_in ? n : 1, all_out ? n : 1, 0, (step.act & RONDO_FINISH) != 0);
    return span.n;
}

/* Blocks of a window that a rank stages: all ranks' if each rank needs its own. */
RONDO_FN uint32_t rondo_direct_parts(const struct rondo_direct_shared *s)
{
    return s->work.coll == RONDO_COLL_REDUCE_SCATTER ? s->reach.nranks : 1;
}
RONDO_FN enum rondo_map rondo_direct_staged_map(int reduces, const struct rondo_work *w)
{
    return rondo_direct_map(reduces, w->coll) == RONDO_MAP_BLOCK ? RONDO_MAP_BLOCK : RONDO_MAP_WHOLE;
}

RONDO_FN size_t rondo_direct_stage_move(struct rondo_direct_shared *s, const struct rondo_direct_cursor *c,
                                        int reduces)
{
    const struct rondo_work *w = &s->work;
    const uint32_t own = s->reach.index;
    const struct rondo_span span = rondo_work_span(w, rondo_direct_staged_map(reduces, w), c->loop,
                                                   (int32_t)(rondo_direct_parts(s) > 1 ? c->k : own));
    if (rondo_lane() == 0) {
        s->src[0] = w->in + span.in * w->elem_bytes;
        s->dst[0] = (uint8_t *)rondo_direct_stage(s, c->staged, own) + c->k * c->window * w->elem_bytes;
    }
    rondo_direct_mix(s, 1, 1, 1, 0);
    return span.n;
}

RONDO_FN size_t rondo_direct_take_move(struct rondo_direct_shared *s, const struct rondo_direct_cursor *c,
                                       int reduces)
{
    const struct rondo_work *w = &s->work;
    const uint32_t rank = rondo_lane(), n = s->reach.nranks, own = s->reach.index,
                   root = (uint32_t)w->seat.root;
    const int sums = (c->act & RONDO_REDUCE) != 0;
    const uint32_t from = sums ? own : (c->act & RONDO_PULL_ROOT) ? root : (own + c->k) % n;
    const struct rondo_span span = rondo_work_span(w, rondo_direct_staged_map(reduces, w), c->loop,
                                                   (int32_t)from);
    const size_t part = rondo_direct_parts(s) > 1 ? own * c->window * w->elem_bytes : 0;
    if ((c->act & RONDO_PUSH_ROOT) && own != root) return 0;
    if (rank < n && (sums || rank == from))
        s->src[sums ? rank : 0] = rondo_direct_stage(s, c->staged, rank) + part;
    if (rank == 0) s->dst[0] = w->out + span.out * w->elem_bytes;
    rondo_direct_mix(s, sums ? n : 1, 1, 0, (c->act & RONDO_FINISH) != 0);
    return span.n;
}

/* ---- a work ---- */

RONDO_FN void rondo_direct_begin_staged(struct rondo_direct_shared *s, struct rondo_direct_cursor *c,
                                        int reduces)
{
    const uint32_t parts = rondo_direct_parts(s), own = s->reach.index;
    c->window = s->reach.stage_bytes / parts / RONDO_DIRECT_PIECE * RONDO_DIRECT_PIECE / s->work.elem_bytes;
    c->parts = (c->act & RONDO_PULL) || own == (uint32_t)s->work.seat.root ? parts : 0;
    c->phase = RONDO_DIRECT_STAGE;
    c->loop = 0;
    c->k = 0;
    if (rondo_lane() == 0) s->work.chunk = c->window;
    rondo_warp_sync();
    c->nloops = rondo_work_nloops(&s->work, rondo_direct_staged_map(reduces, &s->work));
}

/* @return 0: the block leaves. */
RONDO_FN int rondo_direct_begin(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                                struct rondo_direct_cursor *c, uint32_t index, int reduces)
{
    const struct rondo_work *w = &s->work;
    uint32_t open = 0;
    c->act = rondo_direct_step(reduces, w->coll, &w->seat, 1).act;
    if (w->pair == RONDO_PAIR_ASKS && w->len == 0) {
        c->phase = RONDO_DIRECT_END;
        return 1;
    }
    if (rondo_algo_medium(w->algo) == RONDO_MEDIUM_DIRECT) {
        open = rondo_direct_offers(launch, w);
        c->called = 1;
        if (!rondo_direct_meet(launch, s, index, ++c->met, rondo_twoshot_needs(c->act, 0),
                               rondo_twoshot_needs(c->act, 1), &open))
            return 0;
    }
    if (w->pair == RONDO_PAIR_ASKS) {
        if (rondo_lane() == 0) launch->direct->channel[rondo_block_index()].open = open;
        if (!open) {
            c->phase = RONDO_DIRECT_END;
            return 1;
        }
    }
    if (!open) {
        rondo_direct_begin_staged(s, c, reduces);
        return 1;
    }
    c->nsteps = rondo_direct_nsteps(reduces, w->coll, &w->seat);
    c->nloops = rondo_work_nloops(w, rondo_direct_map(reduces, w->coll));
    c->phase = RONDO_DIRECT_OPEN;
    c->loop = 0;
    c->k = 1;
    return 1;
}

/* A loop's moves lie between its first and last step. @return 0: the block leaves. */
RONDO_FN int rondo_direct_open(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                               struct rondo_direct_cursor *c, uint32_t index, int reduces, size_t *n)
{
    if (c->k + 1 < c->nsteps) {
        *n = rondo_direct_open_move(s, c, reduces);
        c->k++;
        return 1;
    }
    c->k = 1;
    if (++c->loop < c->nloops) return 1;
    c->phase = RONDO_DIRECT_END;
    return rondo_direct_meet(launch, s, index, ++c->met, 0, 0, NULL);
}

/* @return 0: the block leaves. */
RONDO_FN int rondo_direct_staged(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                                 struct rondo_direct_cursor *c, uint32_t index, int reduces, size_t *n)
{
    const uint32_t takes = (c->act & (RONDO_REDUCE | RONDO_PULL_ROOT)) ? 1 : s->reach.nranks;
    uint32_t none = 0;
    if (c->phase == RONDO_DIRECT_TAKE) {
        if (c->k < takes) {
            *n = rondo_direct_take_move(s, c, reduces);
            c->k++;
            return 1;
        }
        c->k = 0;
        c->loop++;
        c->staged++;
        c->phase = c->loop < c->nloops ? RONDO_DIRECT_STAGE : RONDO_DIRECT_END;
        return 1;
    }
    if (c->k < c->parts) {
        *n = rondo_direct_stage_move(s, c, reduces);
        c->k++;
        return 1;
    }
    c->k = 0;
    c->phase = RONDO_DIRECT_TAKE;
    if (c->called) return rondo_direct_meet(launch, s, index, ++c->met, 0, 0, NULL);
    c->called = 1;
    return rondo_direct_meet(launch, s, index, ++c->met, 0, 0, &none);
}

/* Cut the next move of n bytes. If all sources and destinations have the same offset from 16-byte alignment,
 * the bytes before it go first, alone. @return the bytes to move now; the rest is s->rest. */
RONDO_FN size_t rondo_direct_align(struct rondo_direct_shared *s, size_t n)
{
    const uint32_t lane = rondo_lane(), off = (uint32_t)(uintptr_t)s->dst[0] & 15, head = 16 - off;
    int odd = lane < s->mix.nsrc && ((uint32_t)(uintptr_t)s->src[lane] & 15) != off;
    odd |= lane < s->mix.ndst && ((uint32_t)(uintptr_t)s->dst[lane] & 15) != off;
    odd = rondo_warp_any(odd);
    const int peel = !odd && off != 0 && head % s->work.elem_bytes == 0 && head < n;
    if (lane == 0) {
        s->aligned = !odd && off == 0;
        s->rest = peel ? n - head : 0;
    }
    return peel ? head : n;
}
RONDO_FN void rondo_direct_go_on(struct rondo_direct_shared *s)
{
    const uint32_t lane = rondo_lane();
    if (lane < s->mix.nsrc) s->src[lane] += s->bytes;
    if (lane < s->mix.ndst) s->dst[lane] += s->bytes;
    rondo_warp_sync();
    if (lane != 0) return;
    s->bytes = s->rest;
    s->rest = 0;
    s->aligned = 1;
}

/* The first warp, after a barrier: find the next move. */
RONDO_FN void rondo_direct_next(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                                uint32_t index, int reduces, uint32_t elem_bytes)
{
    struct rondo_direct_cursor c = s->cursor;
    size_t n = 0;
    int stays = 1;
    if (s->rest != 0) {
        rondo_direct_go_on(s);
        return;
    }
    rondo_warp_sync();
    while (n == 0 && c.phase != RONDO_DIRECT_END) {
        if (c.phase == RONDO_DIRECT_BEGIN) {
            stays = rondo_direct_begin(launch, s, &c, index, reduces);
        } else if (c.phase == RONDO_DIRECT_OPEN) {
            stays = rondo_direct_open(launch, s, &c, index, reduces, &n);
        } else {
            stays = rondo_direct_staged(launch, s, &c, index, reduces, &n);
        }
        c.phase = stays ? c.phase : (uint32_t)RONDO_DIRECT_END;
        rondo_warp_sync();
    }
    n = stays ? n * elem_bytes : 0;
    if (n != 0) n = rondo_direct_align(s, n);
    if (rondo_lane() == 0) {
        s->cursor = c;
        s->bytes = n;
        s->leave |= !stays;
    }
}

/* ---- one-shot of an all_reduce ---- */

RONDO_FN int rondo_direct_is_shot(const struct rondo_work *w, int reduces)
{
    return reduces && w->coll == RONDO_COLL_ALL_REDUCE && rondo_algo_medium(w->algo) == RONDO_MEDIUM_MAILBOX;
}

/* The first warp finds the slots of a window: its own rank's first, and its place in every rank's memory;
 * each after the line with the call word. */
RONDO_FN void rondo_shot_window(struct rondo_direct_shared *s, uint64_t shot, size_t bytes)
{
    const struct rondo_gpu_reach *reach = &s->reach;
    const uint32_t rank = rondo_lane(), n = reach->nranks, own = reach->index;
    const size_t first = (2 * (size_t)rondo_block_index() + (shot & 1)) * n;
    if (rank < n) s->dst[rank] = reach->slots[rank] + (first + own) * reach->slot_bytes + 16;
    rondo_direct_mix(s, n, 1, 0, 1);
    if (rank != 0) return;
    s->src[0] = reach->slots[own] + first * reach->slot_bytes + 16;
    s->mix.own = own;
    s->mix.premul = s->work.premul;
    s->bytes = bytes;
}

/* Old flags of lines that no window has used for long must not match again: both slots are zeroed twice in
 * 2^32 windows (kern/proto_ll.h). */
RONDO_FN int rondo_shot_clean_due(uint64_t shot)
{
    return RONDO_UNLIKELY(((uint32_t)shot & 0x7ffffffeu) == 0x7ffffffeu);
}
/* Each thread zeroes the lines that it writes afterwards. */
RONDO_FN void rondo_shot_clean(const struct rondo_direct_shared *s, uint32_t tid, uint32_t nthreads)
{
    RONDO_ROLLED for (uint32_t i = 0; i < s->reach.nranks; i++)
    {
        RONDO_ROLLED for (size_t u = tid; u < s->reach.slot_bytes / 16 - 1; u += nthreads)
            rondo_store_pair((rondo_word *)(void *)s->dst[i] + 2 * u, 0, 0);
    }
}

/* Write this rank's data to all ranks: every one begins with the next. */
RONDO_FN void rondo_shot_send(const struct rondo_direct_shared *s, const uint8_t *in, uint64_t flag,
                              uint32_t tid, uint32_t nthreads, rondo_dtype dtype, enum rondo_reduce reduce)
{
    const uint32_t n = s->reach.nranks, own = s->reach.index;
    if (tid < n) rondo_store_pair((rondo_word *)(void *)s->dst[tid] - 2, s->work.call_word | flag, flag);
    RONDO_ROLLED for (size_t u = tid; 8 * u < s->bytes; u += nthreads)
    {
        uint64_t w = rondo_load_bytes(in + 8 * u, s->bytes - 8 * u);
        rondo_words_premul(&w, 1, &s->mix, own, dtype, reduce);
        RONDO_ROLLED for (uint32_t i = 1; i <= n; i++) rondo_store_pair(
            (rondo_word *)(void *)s->dst[(own + i) % n] + 2 * u, (w & 0xffffffffu) | flag, w >> 32 | flag);
    }
}

/* Call in a spinning wait for a line of a peer. @return 0: the block leaves. */
RONDO_FN int rondo_shot_breath(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                               uint32_t peer, uint64_t shot, uint32_t *spins, uint32_t barrier)
{
    if (!rondo_breath(launch->words, spins)) {
        rondo_store_shared32(&s->left, barrier);
        return 0;
    }
    if (RONDO_UNLIKELY(*spins % RONDO_LONG_WAIT == 0)) {
        if (*spins == 0) *spins = RONDO_LONG_WAIT; /* it wrapped */
        rondo_words_wait_begin(launch->words, launch->serial, (int32_t)peer, RONDO_NUM_PORTS,
                               RONDO_WAITS_DATA, shot);
    }
    return 1;
}
RONDO_FN void rondo_shot_waited(const struct rondo_launch *launch, uint32_t peer, uint32_t spins)
{
    if (RONDO_UNLIKELY(spins >= RONDO_LONG_WAIT))
        rondo_words_wait_end(launch->words, (int32_t)peer, RONDO_NUM_PORTS, RONDO_WAITS_DATA);
}

/* A thread for each rank: wait for its call word. */
RONDO_FN void rondo_shot_check(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                               uint32_t peer, uint64_t shot, uint32_t index, uint32_t barrier)
{
    const uint64_t flag = rondo_ll_flag(shot);
    const rondo_word *line = (const rondo_word *)(const void *)(s->src[0] + peer * s->reach.slot_bytes) - 2;
    uint32_t spins = 0;
    uint64_t call = 0, unused;
    for (rondo_load_pair(line, &call, &unused); (call ^ flag) >> 32 != 0;
         rondo_load_pair(line, &call, &unused)) {
        if (!rondo_shot_breath(launch, s, peer, shot, &spins, barrier)) return;
    }
    rondo_shot_waited(launch, peer, spins);
    if ((uint32_t)call != s->work.call_word) {
        rondo_words_mismatch(launch->words, launch->serial, index, (int32_t)peer, (uint32_t)call);
        rondo_store_shared32(&s->left, barrier);
    }
}

/* The first rank from `first` on whose line u has not come. */
RONDO_FN uint32_t rondo_shot_missing(const struct rondo_direct_shared *s, uint64_t flag, size_t u,
                                     uint32_t first)
{
    RONDO_ROLLED for (; first + 1 < s->reach.nranks; first++)
    {
        uint64_t lo, hi;
        rondo_load_pair((const rondo_word *)(const void *)(s->src[0] + first * s->reach.slot_bytes) + 2 * u,
                        &lo, &hi);
        if (((lo ^ flag) | (hi ^ flag)) >> 32 != 0) break;
    }
    return first;
}

/* Reduce what all ranks have written here, a word at a time; lines of several ranks are loaded together. */
RONDO_FN void rondo_shot_take(const struct rondo_launch *launch, struct rondo_direct_shared *s, uint8_t *out,
                              uint64_t shot, uint32_t barrier, uint32_t tid, uint32_t nthreads,
                              rondo_dtype dtype, enum rondo_reduce reduce)
{
    const uint64_t flag = rondo_ll_flag(shot);
    const uint32_t n = s->reach.nranks;
    const size_t apart = s->reach.slot_bytes / 16;
    uint64_t w, x[RONDO_LL_LINES];
    RONDO_ROLLED for (size_t u = tid; 8 * u < s->bytes; u += nthreads)
    {
        w = 0;
        RONDO_ROLLED for (uint32_t i = 0; i < n; i += RONDO_LL_LINES)
        {
            uint32_t spins = 0, missing = 0;
            while (!rondo_ll_load_lines(x, s->src[0], flag, u + i * apart, apart, u + n * apart)) {
                if (RONDO_UNLIKELY(spins % RONDO_LONG_WAIT == RONDO_LONG_WAIT - 1))
                    missing = rondo_shot_missing(s, flag, u, i);
                if (!rondo_shot_breath(launch, s, missing, shot, &spins, barrier)) return;
            }
            rondo_shot_waited(launch, missing, spins);
            RONDO_ROLLED for (uint32_t k = i; k < i + RONDO_LL_LINES && k < n; k++)
            {
                w = k == 0 ? x[0] : rondo_word_reduce(dtype, reduce, w, x[0]);
                rondo_words_shift(x, RONDO_LL_LINES, 0);
            }
        }
        rondo_words_finish(&w, 1, &s->mix, dtype, reduce);
        rondo_store_bytes(out + 8 * u, s->bytes - 8 * u, w);
    }
}

/* Called by all threads. They leave together: `barrier` counts the barriers, and s->left names the one after
 * which they do. @return 0: the block leaves. */
RONDO_FN int rondo_shot_work(const struct rondo_launch *launch, struct rondo_direct_shared *s, uint32_t index,
                             rondo_dtype dtype, enum rondo_reduce reduce)
{
    const struct rondo_team all = rondo_block_all();
    const size_t all_bytes = s->work.len * s->work.elem_bytes, from = s->work.off * s->work.elem_bytes,
                 room = rondo_oneshot_slot_room(s->reach.slot_bytes);
    uint64_t shot = s->cursor.shots;
    uint32_t barrier = 1;
    RONDO_ROLLED for (size_t at = 0; at < all_bytes; at += room, shot++)
    {
        if (all.tid < RONDO_WARP) rondo_shot_window(s, shot, all_bytes - at < room ? all_bytes - at : room);
        rondo_team_sync(&all);
        if (rondo_shot_clean_due(shot)) rondo_shot_clean(s, all.tid, all.nthreads);
        rondo_shot_send(s, s->work.in + from + at, rondo_ll_flag(shot), all.tid, all.nthreads, dtype, reduce);
        if (all.tid < s->reach.nranks) rondo_shot_check(launch, s, all.tid, shot, index, barrier);
        rondo_team_sync(&all);
        if (rondo_load_shared32(&s->left) == barrier++) return 0;
        rondo_shot_take(launch, s, s->work.out + from + at, shot, barrier, all.tid, all.nthreads, dtype,
                        reduce);
        rondo_team_sync(&all); /* all of the window is read */
        if (rondo_load_shared32(&s->left) == barrier++) return 0;
        if (all.tid == 0) s->cursor.shots = shot + 1;
    }
    return 1;
}

/* Called by all threads. @return 0: the block leaves. */
RONDO_FN int rondo_direct_work(const struct rondo_launch *launch, struct rondo_direct_shared *s,
                               uint32_t index, rondo_dtype dtype, enum rondo_reduce reduce)
{
    const struct rondo_team all = rondo_block_all();
    const int reduces = (int)reduce != RONDO_MOVES_ONLY;
    if (rondo_direct_is_shot(&s->work, reduces)) return rondo_shot_work(launch, s, index, dtype, reduce);
    for (;;) {
        if (all.tid < RONDO_WARP) rondo_direct_next(launch, s, index, reduces, s->work.elem_bytes);
        rondo_team_sync(&all);
        if (s->bytes == 0) return !s->leave;
        rondo_move_simple(s->src, s->dst, &s->mix, (int)s->aligned, s->bytes, all.tid, all.nthreads, dtype,
                          reduce);
        rondo_team_sync(&all);
    }
}

/** One-shot and two-shot. reduce: RONDO_MOVES_ONLY for collectives that only move bytes. */
RONDO_FN void rondo_block_direct(const struct rondo_launch *launch, void *shared, rondo_dtype dtype,
                                 enum rondo_reduce reduce)
{
    struct rondo_direct_shared *s = (struct rondo_direct_shared *)shared;
    const struct rondo_team all = rondo_block_all();
    const uint32_t channel = rondo_block_index(), end = launch->first[channel + 1];
    int stays = 1;
    rondo_block_copy_words(&s->reach, &launch->direct->reach, sizeof(s->reach));
    RONDO_ROLLED for (uint32_t i = launch->first[channel]; stays && i < end; i++)
    {
        rondo_block_copy_words(&s->work, rondo_block_works(launch) + i, sizeof(s->work));
        if (all.tid == 0) {
            s->cursor.phase = RONDO_DIRECT_BEGIN;
            s->cursor.called = 0;
            s->cursor.met = launch->direct->channel[channel].met;
            s->cursor.staged = launch->direct->channel[channel].staged;
            s->cursor.shots = launch->direct->channel[channel].shots;
            s->rest = 0;
            s->leave = s->left = 0;
        }
        rondo_team_sync(&all);
        stays = rondo_direct_work(launch, s, i, dtype, reduce);
        if (all.tid == 0) {
            launch->direct->channel[channel].met = s->cursor.met;
            launch->direct->channel[channel].staged = s->cursor.staged;
            launch->direct->channel[channel].shots = s->cursor.shots;
        }
        rondo_team_sync(&all); /* shared memory is reused */
    }
    rondo_block_ended(launch);
}

#endif
