/* What a thread block does with a launch (kern/cuda/launch.h): it runs works one after the other, or sends
 * and receives side by side. Kernels are made of these three functions (kern/cuda/kernel_list.h), whose last
 * arguments are constants. All threads of the block call them; `shared` is in the block's shared memory,
 * uninitialised. The block first copies works and connections to shared memory, both at once: a work says
 * where its connections are. When it has ended, steps, credit and call_set go back. */
#ifndef RONDO_KERN_CUDA_BLOCK_H
#define RONDO_KERN_CUDA_BLOCK_H

#include "coll/chunk.h"
#include "coll/flows.h"
#include "kern/cuda/prim.h"

/* A team's position in its flow; belongs to the team's first thread. */
struct rondo_block_cursor {
    size_t loop, nloops;
    uint32_t k, nsteps, row;
    enum rondo_map map;
    size_t left, most;        /* bytes still to come: of the step, at most in a slice */
    struct rondo_slice slice; /* the step's next slice, except for its length */
};

struct rondo_block_shared {
    struct rondo_work work[RONDO_LAUNCH_P2P];
    struct rondo_prim_conn conn[2 * RONDO_NUM_PORTS];
    struct rondo_prim_shared team[RONDO_LAUNCH_P2P];
    struct rondo_block_cursor cursor[RONDO_LAUNCH_P2P];
    uint32_t left; /* a team has left */
};

/* The rows of RONDO_SCHEDULE_TABLE that a kernel runs. */
enum rondo_block_kind { RONDO_BLOCK_REDUCES, RONDO_BLOCK_COPIES, RONDO_BLOCK_P2P };

#define RONDO_BLOCK_REDUCES_(ctx, name, NAME, AS, reduces, has_root) RONDO_BLOCK_REDUCES_##NAME = reduces,
enum { RONDO_COLL_TABLE(RONDO_BLOCK_REDUCES_, ) RONDO_BLOCK_REDUCES_NONE };
#undef RONDO_BLOCK_REDUCES_

#define RONDO_BLOCK_AS_(ctx, name, NAME, AS, reduces, has_root) \
    case RONDO_COLL_##NAME: return RONDO_COLL_##AS;
/* The collective whose rows this one uses. */
RONDO_FN uint32_t rondo_block_scheduled_as(uint32_t coll)
{
    switch (coll) {
        RONDO_COLL_TABLE(RONDO_BLOCK_AS_, )
    default: return coll;
    }
}
#undef RONDO_BLOCK_AS_

RONDO_FN int rondo_block_has(enum rondo_block_kind kind, enum rondo_coll coll, int reduces)
{
    if (coll == RONDO_COLL_SEND || coll == RONDO_COLL_RECV) return kind == RONDO_BLOCK_P2P;
    return kind == (reduces ? RONDO_BLOCK_REDUCES : RONDO_BLOCK_COPIES);
}

/* A row's number, for a switch. */
RONDO_FN uint32_t rondo_block_row(const struct rondo_work *w)
{
    return rondo_block_scheduled_as(w->coll) * RONDO_NUM_ALGOS + w->algo;
}

#define RONDO_BLOCK_ROW_(what, COLL, ALGO, protos, MAP, flow0, flow1, cost)       \
    case RONDO_COLL_##COLL *RONDO_NUM_ALGOS + RONDO_ALGO_##ALGO:                  \
        if (rondo_block_has(kind, RONDO_COLL_##COLL, RONDO_BLOCK_REDUCES_##COLL)) \
            return RONDO_BLOCK_##what(MAP, flow0, flow1);                         \
        break;
#define RONDO_BLOCK_MAP(MAP, flow0, flow1) RONDO_MAP_##MAP
#define RONDO_BLOCK_NSTEPS(MAP, flow0, flow1) \
    flow == 0 ? rondo_##flow0##_nsteps(seat) : rondo_##flow1##_nsteps(seat)
#define RONDO_BLOCK_STEP(MAP, flow0, flow1) \
    flow == 0 ? rondo_##flow0##_step(seat, k) : rondo_##flow1##_step(seat, k)

RONDO_FN enum rondo_map rondo_block_map(enum rondo_block_kind kind, uint32_t row)
{
    switch (row) {
        RONDO_SCHEDULE_TABLE(RONDO_BLOCK_ROW_, MAP)
    }
    return RONDO_MAP_WHOLE;
}
RONDO_FN uint32_t rondo_block_nsteps(enum rondo_block_kind kind, uint32_t row, uint32_t flow,
                                     const struct rondo_seat *seat)
{
    switch (row) {
        RONDO_SCHEDULE_TABLE(RONDO_BLOCK_ROW_, NSTEPS)
    }
    return 0;
}
RONDO_FN struct rondo_step rondo_block_step(enum rondo_block_kind kind, uint32_t row, uint32_t flow,
                                            const struct rondo_seat *seat, uint32_t k)
{
    switch (row) {
        RONDO_SCHEDULE_TABLE(RONDO_BLOCK_ROW_, STEP)
    }
    return rondo_step_none();
}
#undef RONDO_BLOCK_ROW_
#undef RONDO_BLOCK_MAP
#undef RONDO_BLOCK_NSTEPS
#undef RONDO_BLOCK_STEP

/* ---- a flow ---- */

RONDO_FN uint32_t rondo_block_ports(const uint8_t *ports)
{
    uint32_t packed = 0;
    RONDO_UNROLLED for (int i = 0; i < RONDO_TREE_FAN; i++) packed |= (uint32_t)ports[i] << 8 * i;
    return packed;
}

/* Fill what is equal for all slices of a block of elements. */
RONDO_FN void rondo_block_slice(const struct rondo_work *w, const struct rondo_step *step,
                                struct rondo_slice *s)
{
    const int own = step->nfrom == 0 || (step->act & RONDO_REDUCE) != 0;
    s->nfrom = step->nfrom;
    s->nto = step->nto;
    s->from = rondo_block_ports(step->from);
    s->to = rondo_block_ports(step->to);
    s->own_first = (step->act & RONDO_OWN_FIRST) != 0;
    s->mix.nsrc = s->nfrom + (uint32_t)own;
    s->mix.own = s->own_first && own ? 0 : s->nfrom;
    s->mix.premul = w->premul && !(step->act & RONDO_OWN_OUT);
    s->mix.scalar = rondo_word_repeat(w->scalar, w->elem_bytes);
    s->mix.divisor = (step->act & RONDO_FINISH) && w->divide ? w->seat.nranks : 0;
}

/* Enter a step: its elements go in slices, which both ends of every connection cut alike. */
RONDO_FN void rondo_block_enter(const struct rondo_prim *p, struct rondo_block_cursor *c,
                                const struct rondo_step *step, const struct rondo_span *span,
                                enum rondo_proto proto)
{
    const struct rondo_work *w = p->work;
    const uint8_t *in = (step->act & RONDO_OWN_OUT) ? w->out + span->out * w->elem_bytes
                                                    : w->in + span->in * w->elem_bytes;
    uint8_t *out = w->out + span->out * w->elem_bytes;
    struct rondo_slice *s = &c->slice;
    rondo_block_slice(w, step, s);
    c->left = c->most = span->n * w->elem_bytes;
    if (s->nfrom + s->nto > 0) {
        const struct rondo_prim_conn *any = s->nfrom > 0 ? rondo_prim_conn_at(p, s->from & 255, 0)
                                                         : rondo_prim_conn_at(p, s->to & 255, 1);
        const uint32_t most = (uint32_t)rondo_proto_capacity(proto, any->conn.slot_bytes[proto]);
        c->most = most - most % w->elem_bytes;
    }
    s->out = !(step->act & RONDO_COPY) || (out == in && s->nfrom == 0 && !w->premul && !w->divide) ? NULL
                                                                                                   : out;
    s->in = s->mix.nsrc == s->nfrom ? NULL : in;
    s->mix.ndst = s->nto + (s->out != NULL);
}

/* The team's first thread finds its next slice. */
RONDO_FN void rondo_block_next(const struct rondo_prim *p, struct rondo_block_cursor *c,
                               enum rondo_block_kind kind, uint32_t flow, enum rondo_proto proto)
{
    const struct rondo_work *w = p->work;
    const uint32_t data = RONDO_COPY | RONDO_SEND | RONDO_RECV;
    RONDO_ROLLED while (c->left == 0 && c->loop < c->nloops)
    {
        const struct rondo_step step = rondo_block_step(kind, c->row, flow, &w->seat, c->k);
        const struct rondo_span span = rondo_work_span(w, c->map, c->loop, step.block);
        if (++c->k == c->nsteps) {
            c->k = 0;
            c->loop++;
        }
        if ((step.act & data) != 0 && span.n != 0) rondo_block_enter(p, c, &step, &span, proto);
    }
    c->slice.bytes = c->left < c->most ? c->left : c->most;
    *rondo_prim_slice(p) = c->slice;
    c->left -= c->slice.bytes;
    if (c->slice.in != NULL) c->slice.in += c->slice.bytes;
    if (c->slice.out != NULL) c->slice.out += c->slice.bytes;
}

/* A team runs a flow of a work. @return 0: the team leaves. */
RONDO_FN int rondo_block_flow(struct rondo_prim *p, struct rondo_block_cursor *c, enum rondo_block_kind kind,
                              uint32_t flow, rondo_dtype dtype, enum rondo_reduce reduce,
                              enum rondo_proto proto)
{
    if (p->team.tid == 0) {
        c->row = rondo_block_row(p->work);
        c->nsteps = rondo_block_nsteps(kind, c->row, flow, &p->work->seat);
        c->map = rondo_block_map(kind, c->row);
        c->nloops = c->nsteps == 0 ? 0 : rondo_work_nloops(p->work, c->map);
        c->loop = c->left = c->most = 0;
        c->k = 0;
        c->slice.in = NULL;
        c->slice.out = NULL;
    }
    do {
        if (p->team.tid == 0) rondo_block_next(p, c, kind, flow, proto);
    } while (rondo_prim_pass(p, dtype, reduce, proto));
    return !rondo_prim_leaves(p);
}

/* ---- works and connections ---- */

/* Copy words of plain data, by all threads of a block. */
RONDO_FN void rondo_block_copy_words(void *to, const void *from, size_t bytes)
{
    RONDO_ROLLED for (size_t i = rondo_block_tid(); i < bytes / 8; i += rondo_block_threads())
    {
        ((rondo_word *)to)[i] = ((const rondo_word *)from)[i];
    }
}

RONDO_FN struct rondo_team rondo_block_all(void)
{
    struct rondo_team all;
    all.tid = rondo_block_tid();
    all.nthreads = rondo_block_threads();
    all.barrier = 0;
    return all;
}

RONDO_FN const struct rondo_work *rondo_block_works(const struct rondo_launch *launch)
{
    return launch->works != NULL ? launch->works : launch->inline_works;
}

RONDO_FN uint32_t rondo_bits_below(uint32_t bits, uint32_t i)
{
#ifdef __CUDACC__
    return (uint32_t)__popc(bits & ((1u << i) - 1));
#else
    return (uint32_t)__builtin_popcount(bits & ((1u << i) - 1));
#endif
}

/* Where connection i of the block lies: for p2p that of work i, else that of bit i of the only work's
 * `wired`. NULL: there is none. */
RONDO_FN struct rondo_conn *rondo_block_home(const struct rondo_work *works, uint32_t i, int p2p)
{
    if (p2p) return works[i].conns;
    return (works->wired >> i & 1) != 0 ? works->conns + rondo_bits_below(works->wired, i) : NULL;
}

/* Copy n works and the connections that they use: those of the first work, or for p2p each work's connection.
 * Ends with a barrier. */
RONDO_FN void rondo_block_load(const struct rondo_launch *launch, struct rondo_block_shared *shared,
                               uint32_t first, uint32_t n, int p2p)
{
    enum { WORDS = sizeof(struct rondo_conn) / 8 };
    const struct rondo_team all = rondo_block_all();
    const struct rondo_work *works = rondo_block_works(launch) + first;
    const uint32_t nconns = p2p ? n : 2 * RONDO_NUM_PORTS;
    rondo_block_copy_words(shared->work, works, n * sizeof(*works));
    RONDO_ROLLED for (uint32_t i = all.tid; i < nconns * WORDS; i += all.nthreads)
    {
        struct rondo_conn *home = rondo_block_home(works, i / WORDS, p2p);
        struct rondo_prim_conn *c = &shared->conn[i / WORDS];
        const uint32_t word = i % WORDS;
        if (word == 0) {
            c->home = home;
            c->called = 0;
        }
        if (home == NULL) continue;
        ((rondo_word *)&c->conn)[word] = ((const rondo_word *)home)[word];
        if (word == offsetof(struct rondo_conn, step) / 8) c->posted = ((const rondo_word *)home)[word];
    }
    if (all.tid < RONDO_LAUNCH_P2P) shared->team[all.tid].leave = 0;
    if (all.tid == 0) shared->left = 0;
    rondo_team_sync(&all);
}

/* Call after all teams have ended the work. @return 0: one of them has left. */
RONDO_FN int rondo_block_store(struct rondo_block_shared *shared, uint32_t nconns)
{
    const struct rondo_team all = rondo_block_all();
    int left;
    rondo_team_sync(&all);
    left = (int)shared->left;
    if (all.tid < nconns && shared->conn[all.tid].home != NULL) {
        const struct rondo_prim_conn *c = &shared->conn[all.tid];
        c->home->step = c->conn.step;
        c->home->seen = c->conn.seen;
        c->home->call_set = c->conn.call_set;
    }
    rondo_team_sync(&all); /* all of it is stored: see rondo_block_ended */
    return !left;
}

/* After a barrier: the next launch may begin in another stream when it sees the word, and finds what this one
 * has left in the connections. */
RONDO_FN void rondo_block_ended(const struct rondo_launch *launch)
{
    if (rondo_block_tid() == 0)
        rondo_store_release((rondo_word *)&launch->words->block[rondo_block_index()].ended, launch->serial);
}

RONDO_FN void rondo_block_prim(struct rondo_prim *p, const struct rondo_launch *launch,
                               struct rondo_block_shared *shared, uint32_t first, uint32_t team, int p2p)
{
    p->shared = &shared->team[team];
    p->conns = p2p ? &shared->conn[team] : shared->conn;
    p->solo = p2p;
    p->work = &shared->work[p2p ? team : 0];
    p->words = launch->words;
    p->serial = launch->serial;
    p->work_index = first + (p2p ? team : 0);
    p->slice = 1;
}

/* ---- collectives ---- */

/* Warps of a block's first flow of two. That flow has the reductions, so it gets more; with Simple both move
 * as much. */
RONDO_FN uint32_t rondo_block_first_warps(uint32_t warps, enum rondo_proto proto)
{
    return proto == RONDO_PROTO_SIMPLE ? warps / 2 : warps * 7 / 10;
}

/* The second work of a pair (coll/work.h): tell the ranks that ask that this one's buffers cannot be
 * accessed. Nobody waits: no rank gets past the call before all have read this. Called by the first warp. */
RONDO_FN void rondo_block_decline(const struct rondo_launch *launch, uint32_t call_word)
{
    struct rondo_gpu_direct *d = launch->direct;
    const uint32_t channel = rondo_block_index(), peer = rondo_lane(), n = d->reach.nranks,
                   own = d->reach.index;
    const uint64_t met = d->channel[channel].met + 1;
    if (peer < n && peer != own) {
        struct rondo_gpu_cell *to = d->reach.cell[peer] + (size_t)channel * n + own;
        rondo_store_relaxed((rondo_word *)&to->work[met & 1].call, (uint64_t)call_word << 32);
        rondo_store_release((rondo_word *)&to->met, met);
    }
    rondo_warp_sync();
    if (peer == 0) d->channel[channel].met = met;
}
/* Called by all threads. @return 1: the first work has carried the call. */
RONDO_FN int rondo_block_is_carried(const struct rondo_launch *launch, const struct rondo_work *w)
{
    if (w->pair == RONDO_PAIR_FOLLOWS)
        return w->len == 0 || launch->direct->channel[rondo_block_index()].open != 0;
    if (w->pair == RONDO_PAIR_DECLINES && w->len != 0 && rondo_block_tid() < RONDO_WARP)
        rondo_block_decline(launch, w->call_word);
    return 0;
}

/* Run a work by all threads, as two teams if it has two flows. */
RONDO_FN void rondo_block_work(const struct rondo_launch *launch, struct rondo_block_shared *shared,
                               uint32_t index, enum rondo_block_kind kind, rondo_dtype dtype,
                               enum rondo_reduce reduce, enum rondo_proto proto)
{
    const struct rondo_work *w = &shared->work[0];
    const uint32_t row = rondo_block_row(w), nthreads = rondo_block_threads(), tid = rondo_block_tid();
    const uint32_t first = rondo_block_nsteps(kind, row, 1, &w->seat) == 0 ? nthreads
                           : rondo_block_nsteps(kind, row, 0, &w->seat) == 0
                               ? 0
                               : RONDO_WARP * rondo_block_first_warps(nthreads / RONDO_WARP, proto);
    const uint32_t flow = tid >= first;
    struct rondo_prim p;
    rondo_block_prim(&p, launch, shared, index, flow, 0);
    rondo_prim_team(&p, flow ? tid - first : tid, flow ? nthreads - first : first, 1 + 2 * flow,
                    proto == RONDO_PROTO_SIMPLE);
    if (!rondo_block_flow(&p, &shared->cursor[flow], kind, flow, dtype, reduce, proto))
        rondo_store_shared32(&shared->left, 1);
}

RONDO_FN void rondo_block_works_of(const struct rondo_launch *launch, struct rondo_block_shared *shared,
                                   enum rondo_block_kind kind, rondo_dtype dtype, enum rondo_reduce reduce,
                                   enum rondo_proto proto)
{
    const uint32_t end = launch->first[rondo_block_index() + 1];
    RONDO_ROLLED for (uint32_t i = launch->first[rondo_block_index()]; i < end; i++)
    {
        rondo_block_load(launch, shared, i, 1, 0);
        if (!rondo_block_is_carried(launch, &shared->work[0]))
            rondo_block_work(launch, shared, i, kind, dtype, reduce, proto);
        if (!rondo_block_store(shared, 2 * RONDO_NUM_PORTS)) break;
    }
    rondo_block_ended(launch);
}

/** Collectives that reduce. */
RONDO_FN void rondo_block_reduce(const struct rondo_launch *launch, struct rondo_block_shared *shared,
                                 rondo_dtype dtype, enum rondo_reduce reduce, enum rondo_proto proto)
{
    rondo_block_works_of(launch, shared, RONDO_BLOCK_REDUCES, dtype, reduce, proto);
}

/** Collectives that only move bytes. */
RONDO_FN void rondo_block_copy(const struct rondo_launch *launch, struct rondo_block_shared *shared,
                               enum rondo_proto proto)
{
    rondo_block_works_of(launch, shared, RONDO_BLOCK_COPIES, RONDO_UINT8, (enum rondo_reduce)RONDO_MOVES_ONLY,
                         proto);
}

/* ---- sends and receives ---- */

/** Sends and receives, LL or Simple as each work says. Teams of whole warps run up to RONDO_LAUNCH_P2P of
 * them at once, and no more than there are warps. */
RONDO_FN void rondo_block_p2p(const struct rondo_launch *launch, struct rondo_block_shared *shared)
{
    const uint32_t warps = rondo_block_threads() / RONDO_WARP,
                   most = warps < RONDO_LAUNCH_P2P ? warps : (uint32_t)RONDO_LAUNCH_P2P;
    const uint32_t end = launch->first[rondo_block_index() + 1];
    uint32_t at = launch->first[rondo_block_index()];
    while (at < end) {
        const uint32_t n = end - at < most ? end - at : most, of_team = RONDO_WARP * (warps / n),
                       team = rondo_block_tid() / of_team;
        rondo_block_load(launch, shared, at, n, 1);
        if (team < n) {
            const enum rondo_reduce moves = (enum rondo_reduce)RONDO_MOVES_ONLY;
            struct rondo_prim p;
            int stayed;
            rondo_block_prim(&p, launch, shared, at, team, 1);
            /* barriers 1 .. 15: two each for up to seven teams */
            rondo_prim_team(&p, rondo_block_tid() - team * of_team, of_team, n <= 7 ? 1 + 2 * team : 1 + team,
                            n <= 7);
            stayed = p.work->proto == RONDO_PROTO_LL
                         ? rondo_block_flow(&p, &shared->cursor[team], RONDO_BLOCK_P2P, 0, RONDO_UINT8, moves,
                                            RONDO_PROTO_LL)
                         : rondo_block_flow(&p, &shared->cursor[team], RONDO_BLOCK_P2P, 0, RONDO_UINT8, moves,
                                            RONDO_PROTO_SIMPLE);
            if (!stayed) rondo_store_shared32(&shared->left, 1);
        }
        if (!rondo_block_store(shared, n)) break;
        at += n;
    }
    rondo_block_ended(launch);
}

#endif
