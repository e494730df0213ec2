/*
 * The primitive of a thread block: a team of threads passes one slice from up to RONDO_TREE_FAN connections
 * and the user's buffer to as many connections and the user's buffer. C11, C++17 and CUDA on top of
 * kern/machine.h. On a CPU the executor does the same (kern/cpu/exec_cpu.c); either may be at a connection's
 * other end.
 *
 * Roles. The team's first warp describes the slice. Each of its lanes claims a connection: it waits for data
 * or credit, checks or writes the call word, and finds the slot. After the workers' barrier all workers move
 * data (with LL and LL128 each waits for its own lines). After the team's barrier connections are posted: a
 * system-wide fence and a relaxed store. In large teams a separate warp posts, so that no worker waits for
 * the fence, and its memory traffic overlaps with the next slice. What is equal within a team lies in shared
 * memory: registers are for data.
 *
 * Leaving. A thread that must leave (abort, mismatch of a call word) sets `leave` to the slice's number. All
 * threads see it after that slice's barriers and none before, so they leave together. The communicator is
 * unusable then: steps and slots mean nothing.
 */
#ifndef RONDO_KERN_CUDA_PRIM_H
#define RONDO_KERN_CUDA_PRIM_H

#include "kern/cuda/launch.h"
#include "kern/cuda/prim_data.h"

enum {
    RONDO_PRIM_FAN = RONDO_TREE_FAN + 1, /* connections and the user's buffer */
    RONDO_LONG_WAIT =
        /* after this many spins, and again after as many, a wait writes what it waits for to words->block */
    1 << 16,
    RONDO_POST_THREADS = 128, /* teams of at least this size have a warp that posts */
    /* lane i has the i-th connection to receive from, lane RONDO_TO_LANE + i to send to */
    RONDO_TO_LANE = 8,
    RONDO_OWN_LANE = 16 /* the user's buffers */
};
enum rondo_prim_waits { RONDO_WAITS_NOT = 0, RONDO_WAITS_DATA = 1, RONDO_WAITS_CREDIT = 2 };

/* A connection during a launch. conn.step counts claimed slices. */
struct rondo_prim_conn {
    struct rondo_conn conn;
    struct rondo_conn *home; /* NULL: none at this port */
    uint64_t posted;         /* slices posted */
    uint32_t called;         /* the work's call word was written or checked */
    uint32_t unused;
};

/* One slice. */
struct rondo_slice {
    const uint8_t *in; /* NULL: the user's buffer is no source */
    uint8_t *out;      /* NULL: no destination */
    size_t bytes;      /* 0: there is none */
    uint32_t nfrom, nto;
    uint32_t from, to;  /* ports, a byte each */
    uint32_t own_first; /* `in` precedes received data; else it follows */
    struct rondo_mix mix;
};

/* What the threads of a team share, in the block's shared memory. */
struct rondo_prim_shared {
    const uint8_t *src[RONDO_PRIM_FAN]; /* in the order of reduction; slots and the user's buffer */
    uint8_t *dst[RONDO_PRIM_FAN];
    uint64_t src_flag[RONDO_PRIM_FAN],
        dst_flag[RONDO_PRIM_FAN]; /* the slices' flags, as the protocol stores them in a word */
    struct rondo_slice slice[2];  /* the current one and the previous one, which may still be posted */
    uint32_t leave;               /* number of the slice at which the team leaves */
    uint32_t unused;
};

/* A thread's view of its team, equal for all except team.tid. */
struct rondo_prim {
    struct rondo_team team,
        workers; /* workers.tid is valid for workers only: those with team.tid < workers.nthreads */
    struct rondo_prim_shared *shared;
    struct rondo_prim_conn *conns; /* receive: by port; send: RONDO_NUM_PORTS + port; solo: the only one */
    int solo;
    const struct rondo_work *work;
    struct rondo_gpu_words *words;
    uint64_t serial;
    uint32_t work_index; /* in the launch, for reporting a fault */
    uint32_t slice;      /* running number, from 1 */
};

RONDO_FN uint32_t rondo_prim_port(uint32_t ports, uint32_t i) { return ports >> 8 * i & 255; }

RONDO_FN struct rondo_prim_conn *rondo_prim_conn_at(const struct rondo_prim *p, uint32_t port, int is_to)
{
    if (p->solo) return p->conns;
    return p->conns + (is_to ? RONDO_NUM_PORTS : 0) + port;
}

/* Index of the i-th connection's slot among the sources. */
RONDO_FN uint32_t rondo_prim_source(const struct rondo_slice *s, uint32_t i)
{
    return i + (s->in != NULL && s->own_first);
}

/* Make a team of the threads from `first` on. It uses two barriers, `barrier` and the next. posts: a separate
 * warp may post. */
RONDO_FN void rondo_prim_team(struct rondo_prim *p, uint32_t tid, uint32_t nthreads, uint32_t barrier,
                              int posts)
{
    p->team.tid = p->workers.tid = tid;
    p->team.nthreads = p->workers.nthreads = nthreads;
    p->team.barrier = p->workers.barrier = barrier;
    if (posts && nthreads >= RONDO_POST_THREADS) {
        p->workers.nthreads -= RONDO_WARP;
        p->workers.barrier++;
    }
}

/* ---- waiting ---- */

/* Show the host what a block waits for, and in which launch. The host measures how long the same wait lasts.
 * Of several waits in a block, the first one is shown until it ends. Two that begin at once may mix their
 * words; the next write repairs that. */
RONDO_FN void rondo_words_wait_begin(struct rondo_gpu_words *words, uint64_t serial, int32_t peer,
                                     uint32_t port, enum rondo_prim_waits waits, uint64_t step)
{
    rondo_word *step_word = (rondo_word *)&words->block[rondo_block_index()].step;
    const uint64_t who = (uint32_t)peer | (uint64_t)port << 32 | (uint64_t)waits << 48,
                   has = rondo_load_relaxed(step_word - 1);
    if (has >> 48 != RONDO_WAITS_NOT && has != who) return;
    rondo_store_relaxed((rondo_word *)&words->block[rondo_block_index()].waited, serial);
    rondo_store_relaxed(step_word, step);
    rondo_store_relaxed(step_word - 1, who);
}
/* The wait has ended. */
RONDO_FN void rondo_words_wait_end(struct rondo_gpu_words *words, int32_t peer, uint32_t port,
                                   enum rondo_prim_waits waits)
{
    rondo_word *step_word = (rondo_word *)&words->block[rondo_block_index()].step;
    const uint64_t who = (uint32_t)peer | (uint64_t)port << 32 | (uint64_t)waits << 48;
    if (rondo_load_relaxed(step_word - 1) != who) return;
    rondo_store_relaxed(step_word, 0);
    rondo_store_relaxed(step_word - 1, (uint32_t)-1 | (uint64_t)RONDO_WAITS_NOT << 48);
}

/* Several threads may leave at once, others look meanwhile. */
RONDO_FN void rondo_prim_leave(const struct rondo_prim *p)
{
    rondo_store_shared32(&p->shared->leave, p->slice);
}
RONDO_FN int rondo_prim_leaves(const struct rondo_prim *p)
{
    return rondo_load_shared32(&p->shared->leave) == p->slice;
}

/* Call in a spinning wait for step `step` of connection c. @return 0: the team leaves. */
RONDO_FN int rondo_prim_breath(const struct rondo_prim *p, uint32_t *spins, const struct rondo_prim_conn *c,
                               uint32_t port, enum rondo_prim_waits waits, uint64_t step)
{
    if (!rondo_breath(p->words, spins)) {
        rondo_prim_leave(p);
        return 0;
    }
    if (RONDO_UNLIKELY(*spins % RONDO_LONG_WAIT == 0)) {
        if (*spins == 0) *spins = RONDO_LONG_WAIT; /* it wrapped: the wait is a long one all the same */
        rondo_words_wait_begin(p->words, p->serial, c->conn.peer, port, waits, step);
    }
    return 1;
}
RONDO_FN void rondo_prim_waited(const struct rondo_prim *p, uint32_t spins, const struct rondo_prim_conn *c,
                                uint32_t port, enum rondo_prim_waits waits)
{
    if (RONDO_UNLIKELY(spins >= RONDO_LONG_WAIT)) rondo_words_wait_end(p->words, c->conn.peer, port, waits);
}

/* Wait for a sender's credit or a receiver's tail. @return 0: the team leaves. */
RONDO_FN int rondo_prim_wait_step(const struct rondo_prim *p, struct rondo_prim_conn *c, uint32_t port,
                                  int is_to)
{
    struct rondo_conn *conn = &c->conn;
    const rondo_word *word = is_to ? (const rondo_word *)&conn->head->head
                                   : (const rondo_word *)&conn->tail->tail;
    const uint64_t ahead = is_to ? RONDO_SLOTS : 0, step = conn->step;
    const enum rondo_prim_waits waits = is_to ? RONDO_WAITS_CREDIT : RONDO_WAITS_DATA;
    uint32_t spins = 0;
    uint64_t seen = conn->seen;
    while (seen + ahead <= step) {
        seen = rondo_load_acquire(word);
        if (seen + ahead <= step && !rondo_prim_breath(p, &spins, c, port, waits, step)) return 0;
    }
    rondo_prim_waited(p, spins, c, port, waits);
    conn->seen = seen;
    return 1;
}

/* ---- call words ---- */

/* Two connections that fail at once may mix their words; each word belongs to some mismatch. */
RONDO_FN void rondo_words_mismatch(struct rondo_gpu_words *words, uint64_t serial, uint32_t work_index,
                                   int32_t peer, uint32_t got)
{
    if (rondo_load_relaxed32(&words->fault) != RONDO_GPU_FINE) return;
    rondo_store_relaxed32(&words->fault_got, got);
    rondo_store_relaxed32((uint32_t *)&words->fault_peer, (uint32_t)peer);
    rondo_store_relaxed32(&words->fault_work, work_index);
    rondo_store_relaxed((rondo_word *)&words->fault_serial, serial);
    rondo_fence();
    rondo_store_relaxed32(&words->fault, RONDO_GPU_MISMATCH);
}
RONDO_FN void rondo_prim_mismatch(const struct rondo_prim *p, const struct rondo_prim_conn *c, uint32_t got)
{
    rondo_prim_leave(p);
    rondo_words_mismatch(p->words, p->serial, p->work_index, c->conn.peer, got);
}

/* Receiver: has the work's first slice on this connection arrived? The two ends of a message choose LL or
 * Simple by their own counts, which may differ: then the tail tells, since both post it. */
RONDO_FN int rondo_prim_first_has_come(const struct rondo_prim *p, struct rondo_conn *conn,
                                       enum rondo_proto proto)
{
    if (proto == RONDO_PROTO_SIMPLE || conn->proxied) return 1; /* it was waited for */
    if (p->solo) return rondo_load_relaxed((const rondo_word *)&conn->tail->tail) > conn->step;
    return rondo_proto_wait(proto, conn, 0, 1) != 0;
}

/* Receiver, first slice of the work on this connection: check the call word. The word may arrive before the
 * slice, but never after it. @return 0: the team leaves. */
RONDO_FN int rondo_prim_check_call(const struct rondo_prim *p, struct rondo_prim_conn *c, uint32_t port,
                                   enum rondo_proto proto)
{
    struct rondo_conn *conn = &c->conn;
    const uint32_t *call = &conn->tail->call[conn->step % RONDO_SLOTS];
    uint32_t spins = 0, got = rondo_load_relaxed32(call);
    while (got != p->work->call_word) {
        if (rondo_prim_first_has_come(p, conn, proto)) {
            rondo_fence();
            got = rondo_load_relaxed32(call);
            if (got == p->work->call_word) break;
            rondo_prim_mismatch(p, c, got);
            return 0;
        }
        if (!rondo_prim_breath(p, &spins, c, port, RONDO_WAITS_DATA, conn->step)) return 0;
        got = rondo_load_relaxed32(call);
    }
    rondo_prim_waited(p, spins, c, port, RONDO_WAITS_DATA);
    c->called = 1;
    return 1;
}

/* Sender, with credit: what must precede a slice's first word. */
RONDO_FN void rondo_prim_begin_slice(const struct rondo_prim *p, struct rondo_prim_conn *c, size_t bytes,
                                     enum rondo_proto proto)
{
    struct rondo_conn *conn = &c->conn;
    const uint32_t slot = (uint32_t)(conn->step % RONDO_SLOTS), first = !c->called;
    if (rondo_ll_clean_due(conn->step)) rondo_ll_clean(conn);
    if (conn->proxied) {
        rondo_store_relaxed((rondo_word *)&conn->tail->size[slot],
                            rondo_conn_size(conn->step, (int)proto, rondo_proto_wire_bytes(proto, bytes)));
    }
    if (first || (conn->call_set & 1u << slot)) {
        rondo_store_relaxed32(&conn->tail->call[slot], first ? p->work->call_word : 0);
        conn->call_set = first ? conn->call_set | 1u << slot : conn->call_set & ~(1u << slot);
        c->called = 1;
        if (proto != RONDO_PROTO_SIMPLE) rondo_fence(); /* flags are not released one by one */
    }
}

/* ---- the roles ---- */

RONDO_FN uint64_t rondo_prim_flag(enum rondo_proto proto, uint64_t step)
{
    return proto == RONDO_PROTO_LL ? rondo_ll_flag(step) : step + 1;
}

RONDO_FN void rondo_prim_claim_conn(const struct rondo_prim *p, const struct rondo_slice *s, uint32_t i,
                                    int is_to, enum rondo_proto proto)
{
    const uint32_t port = rondo_prim_port(is_to ? s->to : s->from, i), source = rondo_prim_source(s, i);
    struct rondo_prim_conn *c = rondo_prim_conn_at(p, port, is_to);
    if ((is_to || proto == RONDO_PROTO_SIMPLE || c->conn.proxied) && !rondo_prim_wait_step(p, c, port, is_to))
        return;
    if (is_to) {
        rondo_prim_begin_slice(p, c, s->bytes, proto);
        p->shared->dst[i] = (uint8_t *)rondo_conn_slot(&c->conn, proto);
        p->shared->dst_flag[i] = rondo_prim_flag(proto, c->conn.step);
    } else {
        if (!c->called && !rondo_prim_check_call(p, c, port, proto)) return;
        p->shared->src[source] = (const uint8_t *)rondo_conn_slot(&c->conn, proto);
        p->shared->src_flag[source] = rondo_prim_flag(proto, c->conn.step);
    }
    c->conn.step++;
}

RONDO_FN void rondo_prim_claim(const struct rondo_prim *p, const struct rondo_slice *s,
                               enum rondo_proto proto)
{
    const uint32_t lane = rondo_lane(), is_to = lane >= RONDO_TO_LANE, i = lane % RONDO_TO_LANE;
    if (lane < RONDO_OWN_LANE) {
        if (i < (is_to ? s->nto : s->nfrom)) rondo_prim_claim_conn(p, s, i, (int)is_to, proto);
    } else if (lane == RONDO_OWN_LANE) {
        if (s->in != NULL) p->shared->src[s->mix.own] = s->in;
        if (s->out != NULL) p->shared->dst[s->nto] = s->out;
    }
    rondo_warp_sync();
}

/* Lanes as in rondo_prim_claim(). What a lane posts was written before the team's barrier; slots that it
 * returns were read before it. */
RONDO_FN void rondo_prim_post(const struct rondo_prim *p, const struct rondo_slice *s, enum rondo_proto proto)
{
    const uint32_t lane = rondo_lane(), is_to = lane >= RONDO_TO_LANE, i = lane % RONDO_TO_LANE;
    const int begins_message = p->solo && p->slice == 1; /* its receiver may wait for Simple */
    struct rondo_prim_conn *c;
    if (lane >= RONDO_OWN_LANE || i >= (is_to ? s->nto : s->nfrom)) return;
    c = rondo_prim_conn_at(p, rondo_prim_port(is_to ? s->to : s->from, i), (int)is_to);
    c->posted++;
    if (is_to && proto != RONDO_PROTO_SIMPLE && !c->conn.proxied && !begins_message)
        return; /* the flags tell */
    /* A slot that is given back needs no fence: what was loaded from it has been used before the barrier, so
     * the loads have ended. */
    if (is_to) rondo_fence();
    rondo_store_relaxed(is_to ? (rondo_word *)&c->conn.tail->tail : (rondo_word *)&c->conn.head->head,
                        c->posted);
}

/* ---- moving flagged lines ---- */

/* Wait for a line, on behalf of its source's connection. */
RONDO_FN int rondo_prim_line_breath(const struct rondo_prim *p, const struct rondo_slice *s, uint32_t source,
                                    uint32_t *spins)
{
    const uint32_t port = rondo_prim_port(s->from, source - (s->in != NULL && s->own_first));
    const struct rondo_prim_conn *c = rondo_prim_conn_at(p, port, 0);
    return rondo_prim_breath(p, spins, c, port, RONDO_WAITS_DATA, c->conn.step - 1);
}

RONDO_FN void rondo_prim_line_waited(const struct rondo_prim *p, const struct rondo_slice *s, uint32_t source,
                                     uint32_t spins)
{
    if (RONDO_UNLIKELY(spins >= RONDO_LONG_WAIT)) {
        const uint32_t port = rondo_prim_port(s->from, source - (s->in != NULL && s->own_first));
        rondo_prim_waited(p, spins, rondo_prim_conn_at(p, port, 0), port, RONDO_WAITS_DATA);
    }
}

RONDO_FN void rondo_prim_move_ll(const struct rondo_prim *p, const struct rondo_slice *s, rondo_dtype dtype,
                                 enum rondo_reduce reduce)
{
    const struct rondo_prim_shared *sh = p->shared;
    const size_t units = (s->bytes + 7) / 8, stride = p->workers.nthreads;
    uint64_t w[RONDO_LL_LINES], x[RONDO_LL_LINES], own[RONDO_LL_LINES];
    RONDO_UNROLLED for (int i = 0; i < RONDO_LL_LINES; i++) own[i] = w[i] = 0;
    RONDO_ROLLED for (size_t u = p->workers.tid; u < units; u += RONDO_LL_LINES * stride)
    {
        if (s->in != NULL) rondo_ll_load_user(own, s->in, s->bytes, u, stride);
        RONDO_ROLLED for (uint32_t i = 0; i < s->mix.nsrc; i++)
        {
            uint32_t spins = 0;
            RONDO_UNROLLED for (int j = 0; j < RONDO_LL_LINES; j++) x[j] = own[j];
            while (i != s->mix.own &&
                   !rondo_ll_load_lines(x, sh->src[i], sh->src_flag[i], u, stride, units)) {
                if (!rondo_prim_line_breath(p, s, i, &spins)) return;
            }
            rondo_prim_line_waited(p, s, i, spins);
            rondo_words_premul(x, RONDO_LL_LINES, &s->mix, i, dtype, reduce);
            if (i != 0 && (int)reduce != RONDO_MOVES_ONLY) {
                rondo_words_reduce(w, x, RONDO_LL_LINES, dtype, reduce);
            } else {
                RONDO_UNROLLED for (int j = 0; j < RONDO_LL_LINES; j++) w[j] = x[j];
            }
        }
        rondo_words_finish(w, RONDO_LL_LINES, &s->mix, dtype, reduce);
        RONDO_ROLLED for (uint32_t i = 0; i < s->nto; i++)
            rondo_ll_store_lines(w, sh->dst[i], sh->dst_flag[i], u, stride, units);
        if (s->out != NULL) rondo_ll_store_user(w, s->out, s->bytes, u, stride);
    }
}

/* All lanes of a warp take the same branch. */
RONDO_FN void rondo_prim_move_ll128(const struct rondo_prim *p, const struct rondo_slice *s,
                                    rondo_dtype dtype, enum rondo_reduce reduce)
{
    enum { WORDS = 2 * RONDO_LL128_ROWS };
    const struct rondo_prim_shared *sh = p->shared;
    const size_t lines = (s->bytes + 8 * RONDO_LL128_DATA - 1) / (8 * RONDO_LL128_DATA),
                 rows = (lines + 3) / 4;
    const size_t stride = (size_t)RONDO_LL128_ROWS * (p->workers.nthreads / RONDO_WARP);
    const int aligned = rondo_is_aligned16(s->in, s->out);
    uint64_t w[WORDS], x[WORDS], own[WORDS];
    RONDO_UNROLLED for (int i = 0; i < WORDS; i++) own[i] = w[i] = 0;
    RONDO_ROLLED for (size_t row = RONDO_LL128_ROWS * (size_t)(p->workers.tid / RONDO_WARP); row < rows;
                      row += stride)
    {
        const int whole = aligned && (row + RONDO_LL128_ROWS) * RONDO_LL128_ROW_BYTES <= s->bytes;
        if (s->in != NULL) rondo_ll128_load_user(own, s->in, s->bytes, row, whole);
        RONDO_ROLLED for (uint32_t i = 0; i < s->mix.nsrc; i++)
        {
            uint32_t spins = 0;
            RONDO_UNROLLED for (int j = 0; j < WORDS; j++) x[j] = own[j];
            while (i != s->mix.own && !rondo_ll128_load_rows(x, sh->src[i], sh->src_flag[i], row, lines)) {
                if (rondo_warp_any(!rondo_prim_line_breath(p, s, i, &spins))) return;
            }
            rondo_prim_line_waited(p, s, i, spins);
            rondo_words_premul(x, WORDS, &s->mix, i, dtype, reduce);
            if (i != 0 && (int)reduce != RONDO_MOVES_ONLY) {
                rondo_words_reduce(w, x, WORDS, dtype, reduce);
            } else {
                RONDO_UNROLLED for (int j = 0; j < WORDS; j++) w[j] = x[j];
            }
        }
        rondo_words_finish(w, WORDS, &s->mix, dtype, reduce);
        RONDO_ROLLED for (uint32_t i = 0; i < s->nto; i++)
            rondo_ll128_store_rows(w, sh->dst[i], sh->dst_flag[i], row, lines);
        if (s->out != NULL) rondo_ll128_store_user(w, s->out, s->bytes, row, whole);
    }
}

RONDO_FN void rondo_prim_move(const struct rondo_prim *p, const struct rondo_slice *s, rondo_dtype dtype,
                              enum rondo_reduce reduce, enum rondo_proto proto)
{
    if (proto == RONDO_PROTO_LL) {
        rondo_prim_move_ll(p, s, dtype, reduce);
    } else if (proto == RONDO_PROTO_LL128) {
        rondo_prim_move_ll128(p, s, dtype, reduce);
    } else {
        rondo_move_simple(p->shared->src, p->shared->dst, &s->mix, rondo_is_aligned16(s->in, s->out),
                          s->bytes, p->workers.tid, p->workers.nthreads, dtype, reduce);
    }
}

RONDO_FN struct rondo_slice *rondo_prim_slice(const struct rondo_prim *p)
{
    return &p->shared->slice[p->slice & 1];
}

/** Pass rondo_prim_slice(), which one thread of the team's first warp has filled. All threads of the team
 * call it with the same arguments; dtype, reduce (RONDO_MOVES_ONLY: one source) and proto are constants.
 * @return 1: go on; 0: there was no slice, or the team leaves (rondo_prim_leaves()). */
RONDO_FN int rondo_prim_pass(struct rondo_prim *p, rondo_dtype dtype, enum rondo_reduce reduce,
                             enum rondo_proto proto)
{
    const struct rondo_slice *s = rondo_prim_slice(p);
    const int posts_apart = p->workers.nthreads != p->team.nthreads,
              works = p->team.tid < p->workers.nthreads;
    const uint32_t poster = posts_apart ? p->workers.nthreads : 0;
    if (p->team.tid < RONDO_WARP) {
        rondo_warp_sync();
        if (s->bytes != 0) rondo_prim_claim(p, s, proto);
    }
    if (works) {
        int leaves;
        rondo_team_sync(&p->workers);
        leaves = rondo_prim_leaves(p);
        /* Another warp may be leaving already, and some lanes see it: those of a warp go together. */
        if (proto == RONDO_PROTO_LL128) leaves = rondo_warp_any(leaves);
        if (!leaves && s->bytes != 0) rondo_prim_move(p, s, dtype, reduce, proto);
    }
    rondo_team_sync(&p->team);
    if (rondo_prim_leaves(p) || s->bytes == 0) return 0;
    if (p->team.tid - poster < RONDO_WARP) rondo_prim_post(p, s, proto);
    p->slice++;
    return 1;
}

#endif
