/* The CPU executor: advances any run that has data and credit, one slice at a time. It never blocks. */
#include "kern/cpu/exec_cpu.h"

#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "coll/chunk.h"
#include "kern/proto.h"
#include "kern/reduce.h"

/* LL, LL128: do not look for fewer units (eight LL128 lines). Reading lines while they are written slows
 * their sender down. */
enum { BATCH_UNITS = 120 };
/* Units of the largest element, which must not be cut. */
enum { ELEM_UNITS = 4 };

/* What one slice needs, resolved once per slice. */
struct slice {
    const struct rondo_work *w;
    const struct rondo_step *step;
    struct rondo_conn *from[RONDO_TREE_FAN], *to[RONDO_TREE_FAN];
    const uint8_t *in;
    uint8_t *out; /* NULL: nothing to copy (no COPY, or the data is there) */
    size_t bytes;
    uint8_t *stays; /* sent from here and unchanged until it has left; NULL: sent through slots */
};

_Static_assert(RONDO_NUM_PORTS <= 16, "a flow's `called` has a bit for each port in either direction");

void rondo_run_begin(struct rondo_run *run)
{
    run->nflows = 0;
    run->nloops = rondo_work_nloops(&run->work, run->schedule->map);
    for (uint32_t f = 0; f < 2; f++) {
        run->flow[f].nsteps = run->schedule->flow[f].nsteps(&run->work.seat);
        if (run->flow[f].nsteps != 0) {
            run->nflows = f + 1;
        }
    }
    rondo_run_again(run);
    rondo_shot_begin(run);
}

/* ---- tiles: scratch memory of a thread, for all its executors ---- */

static pthread_once_t tiles_once = PTHREAD_ONCE_INIT;
static pthread_key_t tiles_key; /* frees them when the thread ends */
static int have_tiles_key;
static __thread uint8_t (*tiles)[RONDO_TILE_BYTES];

static void tiles_free(void *memory)
{
    rondo_free(memory);
    tiles = NULL;
}

static void tiles_begin(void) { have_tiles_key = pthread_key_create(&tiles_key, tiles_free) == 0; }

static rondo_status tiles_get(struct rondo_exec *exec)
{
    if (RONDO_UNLIKELY(tiles == NULL)) {
        pthread_once(&tiles_once, tiles_begin);
        RONDO_TRY(RONDO_NEW_ARRAY(tiles, RONDO_MAX_SOURCES + 1, "the tiles of a thread"));
        (void)(have_tiles_key && pthread_setspecific(tiles_key, tiles));
    }
    exec->tile = tiles;
    return RONDO_SUCCESS;
}

static rondo_status exec_cpu_open(struct rondo_exec **exec_out, int nlanes, int max_sources,
                                  const struct rondo_exec_owner *owner)
{
    rondo_status status;
    struct rondo_exec *exec;
    RONDO_TRY(RONDO_NEW(exec, "an executor"));
    exec->owner = owner;
    exec->nlanes = nlanes;
    exec->max_sources = max_sources;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(exec->lane, nlanes, "the executor's lanes"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(exec->active, nlanes, "the executor's lanes"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(exec->sources, max_sources, "the executor's sources"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(exec->targets, max_sources, "the executor's targets"), fail);
    *exec_out = exec;
    return RONDO_SUCCESS;
fail:
    rondo_exec_cpu.close(exec);
    return status;
}

static void exec_cpu_close(struct rondo_exec *exec)
{
    if (exec == NULL) {
        return;
    }
    rondo_free(exec->targets);
    rondo_free(exec->sources);
    rondo_free(exec->active);
    rondo_free(exec->lane);
    rondo_free(exec);
}

static void exec_cpu_submit(struct rondo_exec *exec, struct rondo_run *runs, int n)
{
    for (int i = 0; i < n; i++) {
        struct rondo_run *run = &runs[i];
        struct rondo_lane *lane = &exec->lane[run->lane];
        run->next = NULL;
        if (lane->first == NULL) {
            exec->active[exec->nactive++] = (int)run->lane;
            lane->first = run;
        } else {
            lane->last->next = run;
        }
        lane->last = run;
    }
}

/* ---- call words ---- */

static rondo_status check_call(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                               int port, const struct rondo_conn *conn)
{
    uint32_t bit = 1u << port, got;
    if (RONDO_LIKELY(flow->called & bit)) {
        return RONDO_SUCCESS;
    }
    flow->called |= bit;
    got = __atomic_load_n(&conn->tail->call[conn->step % RONDO_SLOTS], __ATOMIC_RELAXED);
    return RONDO_LIKELY(got == w->call_word) ? RONDO_SUCCESS
                                             : exec->owner->mismatch(exec->owner->arg, conn->peer, w, got);
}

/* Call before a slot's first word is stored. Writes the call word where a call begins, else 0. */
static void write_call(const struct rondo_work *w, struct rondo_flow *flow, int port, struct rondo_conn *conn)
{
    uint32_t bit = 1u << (16 + port), slot = (uint32_t)(conn->step % RONDO_SLOTS);
    if (!(flow->called & bit)) {
        flow->called |= bit;
        conn->call_set |= 1u << slot;
        __atomic_store_n(&conn->tail->call[slot], w->call_word, __ATOMIC_RELAXED);
    } else if (RONDO_UNLIKELY(conn->call_set & 1u << slot)) {
        conn->call_set &= ~(1u << slot);
        __atomic_store_n(&conn->tail->call[slot], 0, __ATOMIC_RELAXED);
    }
}

/* Tell the proxy what to carry, and from where, before the slot is filled. It sends once the tail has passed
 * the slot. */
static void announce(struct rondo_conn *conn, enum rondo_proto proto, const struct slice *s)
{
    uint64_t *size = &conn->tail->size[conn->step % RONDO_SLOTS];
    if (conn->outside != NULL) {
        conn->outside[conn->step % RONDO_SLOTS] = s->stays;
    }
    __atomic_store_n(size, rondo_conn_size(conn->step, (int)proto, rondo_proto_wire_bytes(proto, s->bytes)),
                     __ATOMIC_RELEASE);
}

/* ---- slices that bypass slots (base/conn.h) ---- */

/* Where a slice can stay until it has left: the input if it is sent unchanged, else the output. In rings,
 * trees and between two ranks, both are overwritten only with data that depends on this slice's arrival;
 * doubling overwrites them at its next step. */
static uint8_t *stays_at(const struct slice *s)
{
    const struct rondo_work *w = s->w;
    if (w->proto != RONDO_PROTO_SIMPLE || !(s->step->act & RONDO_SEND) ||
        !rondo_algo_sent_stays((enum rondo_algo)w->algo)) {
        return NULL;
    }
    return s->step->nfrom == 0 && !w->premul && !(w->divide && (s->step->act & RONDO_FINISH))
               ? (uint8_t *)s->in
               : s->out;
}

/* Bytes after this slice that the next slices of the connection fill: the rest of its block, or of all blocks
 * where a loop has one step. At most one slice per slot. */
static uint32_t bytes_ahead(const struct rondo_run *run, const struct rondo_flow *flow, const struct slice *s)
{
    const struct rondo_work *w = s->w;
    size_t end = run->schedule->map == RONDO_MAP_WHOLE && flow->nsteps == 1 ? w->off + w->len
                                                                            : flow->out + flow->n;
    return (uint32_t)rondo_min_size((end - flow->out - flow->done) * w->elem_bytes - s->bytes,
                                    (RONDO_SLOTS - 1) * s->bytes);
}

/* Data that is only copied can arrive in the output. Not a call's first slice on a connection: the peer's
 * slice may be longer, since the call words have not been compared yet. */
static void offer_place(const struct slice *s, const struct rondo_run *run, const struct rondo_flow *flow)
{
    struct rondo_conn *from = s->step->nfrom == 1 ? s->from[0] : NULL;
    if (RONDO_LIKELY(from == NULL || from->outside == NULL || run->in_place)) {
        return;
    }
    if (s->w->proto == RONDO_PROTO_SIMPLE && !(s->step->act & (RONDO_REDUCE | RONDO_FINISH)) &&
        (flow->called >> s->step->from[0] & 1)) {
        from->into = s->out;
        from->into_bytes = (uint32_t)s->bytes;
        from->into_ahead = s->out != NULL ? bytes_ahead(run, flow, s) : 0;
    }
}

static const uint8_t *arrived_at(const struct rondo_conn *conn)
{
    const uint8_t *outside = conn->outside != NULL ? conn->outside[conn->step % RONDO_SLOTS] : NULL;
    return outside != NULL ? outside : rondo_simple_slot(conn);
}

/* Does the slice go through the connection's slot? */
static int fills_slot(const struct slice *s, const struct rondo_conn *to)
{
    return to->outside == NULL || s->stays == NULL;
}

/* ---- moving a slice ---- */

/* Only the user's output is stored past the caches, and only out of place. Slots, and output that is sent on,
 * are read at once. */
static int past_caches(const struct slice *s, const uint8_t *dst, size_t at)
{
    return s->w->stream && s->stays == NULL && s->w->in != s->w->out && s->out != NULL && dst == s->out + at;
}

/* Below this the start of any other way costs more than it saves. */
enum { APART_MIN = 32 << 10 };

static enum rondo_apart way_apart(const struct rondo_work *w, size_t bytes)
{
    if (w->stream) {
        return RONDO_APART_PAST;
    }
    if (w->apart == RONDO_APART_DEFAULT) {
        return rondo_over_pays(bytes) ? RONDO_APART_OVER : RONDO_APART_STORES;
    }
    return bytes < APART_MIN ? RONDO_APART_STORES : (enum rondo_apart)w->apart;
}

/* Copy this rank's source to the only target, and take it from there. @return 0: not possible. A reduce's
 * root may be in place though this rank is not: then the target is the root's source. */
static int copy_own(struct rondo_exec *exec, const struct rondo_work *w, int nsrcs, uint8_t *const *dsts,
                    int ndsts, size_t n)
{
    int own = w->mailbox->index, i = 0;
    while (ndsts == 1 && i < nsrcs && exec->sources[i] != dsts[0]) {
        i++;
    }
    if (ndsts != 1 || own >= nsrcs || i < nsrcs) {
        return 0;
    }
    memcpy(dsts[0], exec->sources[own], n * w->elem_bytes);
    exec->sources[own] = dsts[0];
    return 1;
}

int rondo_reduce_apart(struct rondo_exec *exec, const struct rondo_work *w, int nsrcs, uint8_t *const *dsts,
                       int ndsts, size_t n)
{
    struct rondo_reduction what;
    enum rondo_apart way = w->in == w->out ? RONDO_APART_STORES : way_apart(w, n * w->elem_bytes);
    if (way == RONDO_APART_STORES || (way == RONDO_APART_COPY && !copy_own(exec, w, nsrcs, dsts, ndsts, n))) {
        return 0;
    }
    what = rondo_work_reduction(exec, w, nsrcs);
    if (way == RONDO_APART_PAST) {
        rondo_reduce_past(&what, dsts, ndsts, NULL, n);
    } else if (way == RONDO_APART_OVER) {
        rondo_reduce_over(&what, dsts, ndsts, n);
    } else {
        rondo_reduce_get(what.type, what.op)(dsts[0], what.srcs, nsrcs, n);
        if (what.divisor != 0) {
            rondo_divide(dsts[0], n, what.type, what.divisor);
        }
    }
    return 1;
}

/* Reduce one tile into the first destination, finish it there, and copy it to the others. srcs holds received
 * data. */
static void move_tile(const struct slice *s, const void **srcs, int nsrcs, size_t at, size_t bytes,
                      uint8_t *const *dst, int ndst, uint8_t *scratch)
{
    const struct rondo_work *w = s->w;
    size_t n = bytes / w->elem_bytes;
    const uint8_t *in = s->in == NULL ? NULL : s->in + at;
    int own = nsrcs == 0 || (s->step->act & RONDO_REDUCE) != 0;
    if (own && w->premul && !(s->step->act & RONDO_OWN_OUT)) {
        rondo_premul(scratch, in, n, (rondo_dtype)w->dtype, w->scalar);
        in = scratch;
    }
    if (own && (s->step->act & RONDO_OWN_FIRST)) {
        srcs[nsrcs] = srcs[0];
        srcs[0] = in;
        nsrcs++;
    } else if (own) {
        srcs[nsrcs++] = in;
    }
    if (nsrcs == 1) {
        if (dst[0] != srcs[0]) {
            rondo_copy(dst[0], srcs[0], bytes, past_caches(s, dst[0], at));
        }
    } else {
        rondo_reduce_get((rondo_dtype)w->dtype, (enum rondo_reduce)w->reduce)(dst[0], srcs, nsrcs, n);
    }
    if ((s->step->act & RONDO_FINISH) && w->divide) {
        rondo_divide(dst[0], n, (rondo_dtype)w->dtype, w->seat.nranks);
    }
    for (int i = 1; i < ndst; i++) {
        rondo_copy(dst[i], dst[0], bytes, past_caches(s, dst[i], at));
    }
}

static void move_simple(struct rondo_exec *exec, const struct slice *s)
{
    uint8_t *dst[RONDO_TREE_FAN + 1];
    const void *srcs[RONDO_MAX_SOURCES];
    int ndst = 0, whole;
    size_t tile = RONDO_TILE_BYTES;
    for (int i = 0; i < s->step->nto; i++) {
        if (fills_slot(s, s->to[i])) {
            dst[ndst++] = rondo_simple_slot(s->to[i]);
        }
    }
    if (s->out != NULL && (s->step->nfrom != 1 || arrived_at(s->from[0]) != s->out)) {
        dst[ndst++] = s->out;
    }
    if (ndst == 0) {
        return;
    }
    whole = ndst == 1 && !s->w->premul && !s->w->divide;
    tile = whole ? s->bytes : tile;
    for (size_t at = 0; at < s->bytes; at += tile) {
        uint8_t *to[RONDO_TREE_FAN + 1];
        for (int i = 0; i < s->step->nfrom; i++) {
            srcs[i] = arrived_at(s->from[i]) + at;
        }
        for (int i = 0; i < ndst; i++) {
            to[i] = dst[i] + at;
        }
        move_tile(s, srcs, s->step->nfrom, at, rondo_min_size(tile, s->bytes - at), to, ndst, exec->tile[0]);
    }
}

/* LL and LL128: move `bytes` from `unit` on, which have arrived on every connection (the whole slice if the
 * step receives nothing). */
static void move_flagged(struct rondo_exec *exec, const struct slice *s, enum rondo_proto proto, size_t unit,
                         size_t bytes)
{
    for (size_t done = 0; done < bytes; done += RONDO_TILE_BYTES) {
        size_t n = rondo_min_size(RONDO_TILE_BYTES, bytes - done), u = unit + done / 8;
        const void *srcs[RONDO_MAX_SOURCES];
        uint8_t *dst = s->out != NULL ? s->out + u * 8 : exec->tile[RONDO_MAX_SOURCES];
        for (int i = 0; i < s->step->nfrom; i++) {
            srcs[i] = exec->tile[i];
            rondo_proto_get_span(proto, s->from[i], u, exec->tile[i], n);
        }
        move_tile(s, srcs, s->step->nfrom, u * 8, n, &dst, 1, exec->tile[RONDO_MAX_SOURCES - 1]);
        for (int i = 0; i < s->step->nto; i++) {
            rondo_proto_put_span(proto, s->to[i], u, dst, n);
        }
    }
}

static void finish_slice(const struct slice *s, enum rondo_proto proto)
{
    for (int i = 0; i < s->step->nto; i++) {
        rondo_proto_post(proto, s->to[i], (s->bytes + 7) / 8);
        rondo_conn_sent(s->to[i]);
    }
    for (int i = 0; i < s->step->nfrom; i++) {
        s->from[i]->into = NULL;
        rondo_conn_consumed(s->from[i]);
    }
}

/* Send a slice of this rank's input that it also keeps: the peers need not wait for its own copy. */
static int send_then_keep(struct rondo_exec *exec, const struct slice *s)
{
    struct slice sent = *s;
    if (s->step->nfrom > 0 || s->step->nto == 0 || s->out == NULL || s->w->premul || s->w->divide) {
        return 0;
    }
    sent.out = NULL;
    move_simple(exec, &sent);
    finish_slice(s, RONDO_PROTO_SIMPLE);
    if (s->out != s->in) {
        rondo_copy(s->out, s->in, s->bytes, past_caches(s, s->out, 0));
    }
    return 1;
}

/* Units that have arrived from `unit` on: at least a batch or the rest of the slice, else 0. */
static size_t arrivals(enum rondo_proto proto, struct rondo_conn *conn, size_t unit, size_t units)
{
    size_t left = units - unit;
    if (!rondo_conn_arrived(conn)) {
        return 0;
    }
    if (proto != RONDO_PROTO_SIMPLE &&
        rondo_proto_wait(proto, conn, unit + rondo_min_size(left, BATCH_UNITS) - 1, 1) == 0) {
        return 0;
    }
    return rondo_proto_wait(proto, conn, unit, left);
}

/* @return 1: the whole slice has passed, 0: blocked, -1: *status is an error. */
static int advance_slice(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                         const struct slice *s, rondo_status *status, int *moved)
{
    enum rondo_proto proto = (enum rondo_proto)run->work.proto;
    size_t units = (s->bytes + 7) / 8, arrived = units, bytes;
    if (flow->unit == 0) {
        for (int i = 0; i < s->step->nto; i++) {
            if (!rondo_conn_credit(s->to[i])) {
                return 0;
            }
        }
    }
    for (int i = 0; i < s->step->nfrom; i++) {
        arrived = rondo_min_size(arrived, flow->unit + arrivals(proto, s->from[i], flow->unit, units));
        if (arrived == flow->unit) {
            return 0;
        }
    }
    arrived = arrived < units ? arrived - arrived % ELEM_UNITS : arrived;
    for (int i = 0; i < s->step->nfrom; i++) {
        *status = check_call(exec, &run->work, flow, s->step->from[i], s->from[i]);
        if (RONDO_UNLIKELY(*status != RONDO_SUCCESS)) {
            return -1;
        }
    }
    *moved = 1;
    if (flow->unit == 0) {
        for (int i = 0; i < s->step->nto; i++) {
            if (RONDO_UNLIKELY(rondo_ll_clean_due(s->to[i]->step))) {
                rondo_ll_clean(s->to[i]);
            }
            write_call(&run->work, flow, s->step->to[i], s->to[i]);
            if (RONDO_UNLIKELY(s->to[i]->proxied)) {
                announce(s->to[i], proto, s);
            }
        }
    }
    if (proto == RONDO_PROTO_SIMPLE && send_then_keep(exec, s)) {
        return 1;
    }
    if (proto == RONDO_PROTO_SIMPLE) {
        move_simple(exec, s);
    } else {
        bytes = arrived == units ? s->bytes - flow->unit * 8 : (arrived - flow->unit) * 8;
        move_flagged(exec, s, proto, flow->unit, bytes);
    }
    flow->unit = arrived;
    if (arrived < units) {
        return 0;
    }
    finish_slice(s, proto);
    flow->unit = 0;
    return 1;
}

/* A slice that somebody watches: how far is it before the executor tries to pass it on? */
static void profile_try(const struct rondo_exec *exec, const struct rondo_run *run,
                        const struct rondo_flow *flow, const struct slice *s)
{
    size_t units = (s->bytes + 7) / 8;
    int data = 1, credit = 1;
    for (int i = 0; i < s->step->nfrom; i++) {
        data &= arrivals((enum rondo_proto)run->work.proto, s->from[i], flow->unit, units) ==
                units - flow->unit;
    }
    for (int i = 0; i < s->step->nto && flow->unit == 0; i++) {
        credit &= rondo_conn_credit(s->to[i]);
    }
    enum rondo_prof_stage stage = !data    ? RONDO_PROF_STAGE_WAITS
                                  : credit ? RONDO_PROF_STAGE_MOVES
                                           : RONDO_PROF_STAGE_HELD;
    rondo_profile_slice(exec, run, s->step, stage, s->bytes);
}

/* ---- flows ---- */

static void enter_step(struct rondo_run *run, int f, struct rondo_flow *flow)
{
    struct rondo_span span;
    flow->step = run->schedule->flow[f].step(&run->work.seat, flow->k);
    span = rondo_work_span(&run->work, run->schedule->map, flow->loop, flow->step.block);
    flow->in = span.in;
    flow->out = span.out;
    flow->n = span.n;
    flow->done = 0;
    flow->unit = 0;
    flow->entered = 1;
}

static void next_step(struct rondo_flow *flow)
{
    flow->entered = 0;
    if (++flow->k == flow->nsteps) {
        flow->k = 0;
        flow->loop++;
    }
}

static void fill_slice(const struct rondo_run *run, const struct rondo_flow *flow, struct slice *s)
{
    const struct rondo_work *w = &run->work;
    const struct rondo_conn *any = NULL;
    size_t most;
    s->w = w;
    s->step = &flow->step;
    for (int i = 0; i < flow->step.nfrom; i++) {
        any = s->from[i] = w->ports->recv[flow->step.from[i]];
    }
    for (int i = 0; i < flow->step.nto; i++) {
        any = s->to[i] = w->ports->send[flow->step.to[i]];
    }
    /* Both ends cut a block into the same slices, because all slots have the same size. */
    most = any == NULL
               ? flow->n
               : rondo_proto_capacity((enum rondo_proto)w->proto, any->slot_bytes[w->proto]) / w->elem_bytes;
    s->bytes = rondo_min_size(flow->n - flow->done, most) * w->elem_bytes;
    s->in = w->in == NULL ? NULL
                          /* some ranks have no input or no output */
                          : w->in + (flow->in + flow->done) * w->elem_bytes;
    s->out = w->out == NULL ? NULL : w->out + (flow->out + flow->done) * w->elem_bytes;
    if (flow->step.act & RONDO_OWN_OUT) {
        s->in = s->out;
    }
    if (!(flow->step.act & RONDO_COPY) ||
        (s->out == s->in && flow->step.nfrom == 0 && !w->premul && !w->divide)) {
        s->out = NULL;
    }
    s->stays = any != NULL && any->proxied && !run->in_place ? stays_at(s) : NULL;
}

/* In place: has the data that lies where the next slice arrives been sent? Both directions have the same
 * slices. A rank without a free slot waits for a peer that has already received. */
static int has_left(const struct rondo_run *run, const struct rondo_flow *flow)
{
    const struct rondo_flow *leaves = &run->arrives_after->flow[0];
    return leaves->loop > flow->loop || leaves->done > flow->done;
}

static int mailbox_step(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                        rondo_status *status, int *moved)
{
    const struct rondo_work *w = &run->work;
    int two_shot = run->schedule->map == RONDO_MAP_SPLIT, passed;
    flow->done = flow->n;
    if (flow->step.act & RONDO_PUBLISH) {
        return two_shot ? rondo_mail_twoshot_publish(run, flow) : rondo_oneshot_publish(w, flow);
    }
    passed = (two_shot
                  ? rondo_mail_twoshot_collect(exec, run, flow, rondo_shot_reduce(w, &flow->step), status)
                  : rondo_oneshot_collect(exec, w, flow, rondo_shot_reduce(w, &flow->step), status));
    *moved |= passed == 1;
    return passed;
}

/* @return 1: the flow has ended, 0: blocked, -1: *status is an error. */
static int advance_flow(struct rondo_exec *exec, struct rondo_run *run, int f, rondo_status *status,
                        int *moved)
{
    struct rondo_flow *flow = &run->flow[f];
    while (flow->loop < run->nloops) {
        int passed = 1;
        if (!flow->entered) {
            enter_step(run, f, flow);
        }
        if (flow->step.act & (RONDO_PUBLISH | RONDO_COLLECT)) {
            passed = mailbox_step(exec, run, flow, status, moved);
        } else if (flow->step.act & RONDO_DIRECT_ACTS) {
            passed = rondo_direct_step(exec, run, flow, status, moved);
            if (run->verdict == RONDO_NOT_DIRECT) {
                return 1;
            }
        } else if (flow->step.act != 0 && flow->n != 0) {
            struct slice s;
            if (RONDO_UNLIKELY(run->arrives_after != NULL) && !has_left(run, flow)) {
                return 0;
            }
            fill_slice(run, flow, &s);
            offer_place(&s, run, flow);
            if (RONDO_UNLIKELY(run->prof != NULL)) {
                profile_try(exec, run, flow, &s);
            }
            passed = advance_slice(exec, run, flow, &s, status, moved);
            if (passed == 1) {
                flow->done += s.bytes / run->work.elem_bytes;
                if (RONDO_UNLIKELY(run->prof != NULL)) {
                    rondo_profile_slice(exec, run, &flow->step, RONDO_PROF_STAGE_PASSED, s.bytes);
                }
            }
        }
        if (passed != 1) {
            return passed;
        }
        if (flow->step.act == 0 || flow->done >= flow->n) {
            next_step(flow);
        }
    }
    return 1;
}

/* @return as advance_flow. */
static int advance_run(struct rondo_exec *exec, struct rondo_run *run, rondo_status *status, int *moved)
{
    int ended = 1;
    if (RONDO_UNLIKELY(run->fallback_of != NULL) && run->fallback_of->verdict != RONDO_NOT_DIRECT) {
        return run->fallback_of->verdict == RONDO_DIRECT;
    }
    if (RONDO_UNLIKELY(run->ready != NULL)) {
        int ready = run->ready(run, status);
        if (ready < 1) {
            return ready;
        }
        run->ready = ready == 1 ? NULL : run->ready;
    }
    if (RONDO_UNLIKELY(run->prof != NULL)) {
        rondo_profile_advance(exec, run);
    }
    for (int f = 0; f < (int)run->nflows; f++) {
        int flow = advance_flow(exec, run, f, status, moved);
        if (flow < 0) {
            return -1;
        }
        ended &= flow;
    }
    return ended;
}

/* Runs in lanes go first. */
static int exec_cpu_publish(struct rondo_exec *exec, struct rondo_run *run)
{
    return exec->nactive == 0 && run->shot.kind != RONDO_SHOT_NEEDS_STEPS && rondo_shot_publish(run);
}

static rondo_status exec_cpu_progress(struct rondo_exec *exec, int *moved)
{
    rondo_status status;
    RONDO_TRY(exec->nactive > 0 ? tiles_get(exec) : RONDO_SUCCESS);
    for (int i = 0; i < exec->nactive;) {
        struct rondo_lane *lane = &exec->lane[exec->active[i]];
        while (lane->first != NULL) {
            struct rondo_run *run = lane->first;
            int ended = advance_run(exec, run, &status, moved);
            if (RONDO_UNLIKELY(ended < 0)) {
                return status;
            }
            if (ended == 0) {
                break;
            }
            *moved = 1;
            lane->first = run->next;
            if (RONDO_UNLIKELY(run->prof != NULL)) {
                rondo_profile_end(exec, run, 0);
            }
            if (RONDO_UNLIKELY(run->ended != NULL)) {
                run->ended(run);
            }
            --*run->open;
        }
        if (lane->first == NULL) {
            exec->active[i] = exec->active[--exec->nactive];
        } else {
            i++;
        }
    }
    return RONDO_SUCCESS;
}

static void exec_cpu_drop(struct rondo_exec *exec)
{
    const struct rondo_mailbox *open = NULL; /* other ranks have access to this rank's buffers */
    for (int i = 0; i < exec->nlanes; i++) {
        for (struct rondo_run *run = exec->lane[i].first; run != NULL; run = run->next) {
            open = rondo_algo_medium(run->work.algo) == RONDO_MEDIUM_DIRECT ? run->work.mailbox : open;
            if (run->prof != NULL) {
                rondo_profile_end(exec, run, 1);
            }
            --*run->open;
        }
        exec->lane[i].first = NULL;
    }
    exec->nactive = 0;
    if (open != NULL) {
        rondo_mailbox_revoke(open, exec->owner);
    }
}

/* ---- who waits for whom ---- */

static struct rondo_blocked blocked_on(const struct rondo_conn *conn, const struct rondo_work *w,
                                       enum rondo_blocked_what what)
{
    return (struct rondo_blocked){ .peer = conn->peer,
                                   .channel = (uint16_t)w->channel,
                                   .proto = w->proto,
                                   .what = (uint8_t)what,
                                   .step = conn->step };
}

static int waits_by_mailbox(const struct rondo_run *run, const struct rondo_flow *flow)
{
    return (flow->step.act & (RONDO_PUBLISH | RONDO_COLLECT | RONDO_OPEN | RONDO_CLOSE | RONDO_GROUPS)) ||
           (run->in_place && (flow->step.act & RONDO_PULL));
}

/* What a flow waits for; what NONE: nothing. */
static struct rondo_blocked blocked_flow(const struct rondo_run *run, const struct rondo_flow *flow)
{
    const struct rondo_work *w = &run->work;
    struct slice s;
    if (waits_by_mailbox(run, flow)) {
        return (struct rondo_blocked){ .peer = -1 - (int)flow->unit, /* the mailbox's local rank */
                                       .channel = (uint16_t)w->channel,
                                       .proto = RONDO_NUM_PROTOS,
                                       .what = RONDO_BLOCKED_MESSAGE };
    }
    fill_slice(run, flow, &s);
    for (int i = 0; i < flow->step.nfrom; i++) {
        if (!rondo_conn_arrived(s.from[i]) ||
            rondo_proto_wait((enum rondo_proto)w->proto, s.from[i], flow->unit, 1) == 0) {
            return blocked_on(s.from[i], w, RONDO_BLOCKED_DATA);
        }
    }
    for (int i = 0; i < flow->step.nto; i++) {
        if (!rondo_conn_credit(s.to[i])) {
            return blocked_on(s.to[i], w, RONDO_BLOCKED_CREDIT);
        }
    }
    return (struct rondo_blocked){ .peer = RONDO_NO_PEER };
}

/* What a lane's first run waits for. */
static struct rondo_blocked blocked_run(const struct rondo_run *run)
{
    if (run->ready != NULL && !run->flow[0].entered) {
        return (struct rondo_blocked){ .peer = run->work.seat.root,
                                       .channel = (uint16_t)run->work.channel,
                                       .proto = run->work.proto,
                                       .what = RONDO_BLOCKED_CONNECT };
    }
    for (int f = 0; f < (int)run->nflows; f++) {
        struct rondo_blocked blocked;
        if (run->flow[f].entered && run->flow[f].loop < run->nloops) {
            blocked = blocked_flow(run, &run->flow[f]);
            if (blocked.what != RONDO_BLOCKED_NONE) {
                return blocked;
            }
        }
    }
    return (struct rondo_blocked){ .peer = RONDO_NO_PEER };
}

static int exec_cpu_describe(struct rondo_exec *exec, int at, char *text, size_t size,
                             struct rondo_blocked *blocked)
{
    for (int i = 0; i < exec->nactive; i++) {
        struct rondo_run *run = exec->lane[exec->active[i]].first;
        *blocked = run != NULL ? blocked_run(run) : (struct rondo_blocked){ .what = RONDO_BLOCKED_NONE };
        if (blocked->what == RONDO_BLOCKED_NONE || at-- > 0) {
            continue;
        }
        switch ((enum rondo_blocked_what)blocked->what) {
        case RONDO_BLOCKED_CONNECT:
            return snprintf(text, size, "rank %d to make its side of the connection", (int)blocked->peer);
        case RONDO_BLOCKED_MESSAGE:
            return snprintf(text, size, "the message of local rank %d", -1 - (int)blocked->peer);
        default:
            return snprintf(text, size, "%s rank %d (channel %u, %s, step %llu)",
                            blocked->what == RONDO_BLOCKED_DATA ? "data from" : "credit of",
                            (int)blocked->peer, (unsigned)blocked->channel,
                            rondo_proto_name((enum rondo_proto)blocked->proto),
                            (unsigned long long)blocked->step);
        }
    }
    *blocked = (struct rondo_blocked){ .peer = RONDO_NO_PEER };
    return 0;
}

static int exec_cpu_elsewhere(struct rondo_exec *exec)
{
    const struct rondo_run *run = exec->nactive == 1 ? exec->lane[exec->active[0]].first : NULL;
    return run != NULL && run->work.mailbox != NULL && run->nflows == 1 &&
           waits_by_mailbox(run, &run->flow[0]) && rondo_mailbox_elsewhere(exec, &run->work, &run->flow[0]);
}

const struct rondo_exec_ops rondo_exec_cpu = {
    .name = "cpu",
    .open = exec_cpu_open,
    .submit = exec_cpu_submit,
    .publish = exec_cpu_publish,
    .collect = rondo_shot_collect,
    .progress = exec_cpu_progress,
    .drop = exec_cpu_drop,
    .describe = exec_cpu_describe,
    .elsewhere = exec_cpu_elsewhere,
    .close = exec_cpu_close,
};
