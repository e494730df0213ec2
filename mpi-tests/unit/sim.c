#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_impl.h"

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list args;
    if (s->result->error[0] != '\0') {
        return;
    }
    va_start(args, fmt);
    vsnprintf(s->result->error, sizeof(s->result->error), fmt, args);
    va_end(args);
}

/* ---- the executor ---- */

void sim_wake(struct sim *s, int r)
{
    for (int f = 0; f < 2; f++) {
        int id = 2 * r + f;
        if (!s->in_pool[id] && !s->rank[r].flow[f].finished) {
            s->in_pool[id] = 1;
            s->pool[s->npool++] = id;
        }
    }
}

static int step_is_well_formed(struct sim *s, int r, const struct rank *k, const struct rondo_step *p)
{
    int nblocks = k->schedule->map == RONDO_MAP_WHOLE ? 1 : s->n;
    if ((p->act & RONDO_RECV) != 0 ? p->nfrom == 0 || p->nfrom > RONDO_TREE_FAN : p->nfrom != 0) {
        sim_fail(s, "rank %d: act %d with %d sources", r, p->act, p->nfrom);
    } else if ((p->act & RONDO_SEND) != 0 ? p->nto == 0 || p->nto > RONDO_TREE_FAN : p->nto != 0) {
        sim_fail(s, "rank %d: act %d with %d targets", r, p->act, p->nto);
    } else if (p->nfrom > 1 && (p->act & RONDO_REDUCE) == 0) {
        sim_fail(s, "rank %d: %d sources and no reduction", r, p->nfrom);
    } else if ((p->act & RONDO_REDUCE) != 0 && (p->act & (RONDO_RECV | RONDO_COLLECT | RONDO_PULL)) == 0) {
        sim_fail(s, "rank %d: a reduction of nothing received", r);
    } else if (p->block < 0 || p->block >= nblocks) {
        sim_fail(s, "rank %d: block %d of %d", r, p->block, nblocks);
    }
    for (int i = 0; i < p->nfrom && i < RONDO_TREE_FAN; i++) {
        if (p->from[i] >= RONDO_NUM_PORTS || k->recv[p->from[i]] == NULL) {
            sim_fail(s, "rank %d receives from port %d, which has no conn", r, p->from[i]);
        }
    }
    for (int i = 0; i < p->nto && i < RONDO_TREE_FAN; i++) {
        if (p->to[i] >= RONDO_NUM_PORTS || k->send[p->to[i]].to < 0) {
            sim_fail(s, "rank %d sends to port %d, which has no conn", r, p->to[i]);
        }
    }
    return s->result->error[0] == '\0';
}

/* Find the next step that has something to do. @return 0: there is none. */
static int enter(struct sim *s, int r, struct flow *flow, int f)
{
    struct rank *k = &s->rank[r];
    uint32_t nsteps = k->schedule->flow[f].nsteps(&k->work.seat);
    while (!flow->entered) {
        if (flow->k >= nsteps) {
            flow->k = 0;
            flow->loop++;
        }
        if (flow->loop >= k->nloops || nsteps == 0) {
            flow->finished = 1;
            s->open--;
            return 0;
        }
        flow->step = k->schedule->flow[f].step(&k->work.seat, flow->k);
        flow->span = rondo_work_span(&k->work, k->schedule->map, flow->loop, flow->step.block);
        flow->entered = flow->step.act != 0 &&
                        (flow->span.n > 0 ||
                         (flow->step.act & (RONDO_OPEN | RONDO_CLOSE | RONDO_PUBLISH | RONDO_COLLECT)) != 0);
        flow->k += !flow->entered;
        flow->done = 0;
    }
    return 1;
}

void sim_put_out(struct sim *s, int r, size_t at, struct elem e, int again)
{
    struct rank *k = &s->rank[r];
    if (k->out == NULL || at >= k->nout) {
        sim_fail(s, "rank %d writes element %zu of %zu", r, at, k->out == NULL ? 0 : k->nout);
        return;
    }
    if (k->writes[at] != again) {
        sim_fail(s, "rank %d writes element %zu twice, or for the first time and not again", r, at);
    }
    k->writes[at] = 1;
    k->out[at] = e;
}

struct elem sim_get_in(struct sim *s, int r, size_t at)
{
    struct rank *k = &s->rank[r];
    if (k->in == NULL || at >= k->nin) {
        sim_fail(s, "rank %d reads element %zu of %zu", r, at, k->in == NULL ? 0 : k->nin);
        return value_of(-1, at);
    }
    return k->in[at];
}

struct elem sim_get_own(struct sim *s, int r, const struct flow *flow, size_t at)
{
    const struct rank *k = &s->rank[r];
    if ((flow->step.act & RONDO_OWN_OUT) == 0) {
        return sim_get_in(s, r, flow->span.in + at);
    }
    if (k->out == NULL || flow->span.out + at >= k->nout || k->writes[flow->span.out + at] != 1) {
        sim_fail(s, "rank %d reads element %zu of its output, which no step has written", r,
                 flow->span.out + at);
        return value_of(-1, at);
    }
    return k->out[flow->span.out + at];
}

static struct elem *slot_of(const struct sim *s, struct conn *conn, uint64_t step)
{
    size_t elems = s->c->slice;
    if (conn->data == NULL) {
        conn->data = sim_zeroed(RONDO_SLOTS * elems, sizeof(struct elem));
    }
    return conn->data + step % RONDO_SLOTS * elems;
}

static void move_elems(struct sim *s, int r, const struct flow *flow, size_t n)
{
    struct rank *k = &s->rank[r];
    const struct rondo_step *p = &flow->step;
    for (size_t i = 0; i < n; i++) {
        size_t at = flow->done + i;
        struct elem e;
        if ((p->act & RONDO_RECV) != 0) {
            e = slot_of(s, k->recv[p->from[0]], k->recv[p->from[0]]->head)[i];
            for (int j = 1; j < p->nfrom; j++) {
                e = reduce(e, slot_of(s, k->recv[p->from[j]], k->recv[p->from[j]]->head)[i]);
            }
            if ((p->act & RONDO_REDUCE) != 0) {
                struct elem own = sim_get_own(s, r, flow, at);
                e = (p->act & RONDO_OWN_FIRST) != 0 ? reduce(own, e) : reduce(e, own);
            }
        } else {
            e = sim_get_own(s, r, flow, at);
        }
        if ((p->act & RONDO_FINISH) != 0) {
            e = finish(e);
        }
        if ((p->act & RONDO_COPY) != 0) {
            sim_put_out(s, r, flow->span.out + at, e, (p->act & RONDO_OWN_OUT) != 0);
        }
        for (int j = 0; j < p->nto; j++) {
            slot_of(s, &k->send[p->to[j]], k->send[p->to[j]].tail)[i] = e;
        }
    }
}

/* One slice. @return 1: moved, 0: blocked or failed. */
static int move_slice(struct sim *s, int r, struct flow *flow)
{
    struct rank *k = &s->rank[r];
    const struct rondo_step *p = &flow->step;
    size_t n = rondo_min_size(s->c->slice, flow->span.n - flow->done);
    struct message message = { flow->loop, flow->done, n, p->block };
    for (int i = 0; i < p->nfrom; i++) {
        const struct conn *conn = k->recv[p->from[i]];
        const struct message *got = &conn->message[conn->head % RONDO_SLOTS];
        if (conn->tail == conn->head) {
            return 0;
        }
        if (got->loop != flow->loop || got->at != flow->done || got->n != n || got->block != p->block) {
            sim_fail(s,
                     "rank %d expects loop %zu block %d [%zu, +%zu) and gets loop %zu block %d [%zu, +%zu)",
                     r, flow->loop, p->block, flow->done, n, got->loop, got->block, got->at, got->n);
            return 0;
        }
    }
    for (int i = 0; i < p->nto; i++) {
        if (k->send[p->to[i]].tail - k->send[p->to[i]].head == RONDO_SLOTS) {
            return 0;
        }
    }
    move_elems(s, r, flow, n);
    for (int i = 0; i < p->nfrom; i++) {
        k->recv[p->from[i]]->head++;
        sim_wake(s, k->receives_from[p->from[i]]);
    }
    for (int i = 0; i < p->nto; i++) {
        struct conn *conn = &k->send[p->to[i]];
        conn->message[conn->tail++ % RONDO_SLOTS] = message;
        sim_wake(s, conn->to);
        count_moved(s, r, conn->to, n);
        s->result->messages++;
    }
    flow->done += n;
    return 1;
}

static int advance(struct sim *s, int r, int f)
{
    struct flow *flow = &s->rank[r].flow[f];
    int moved;
    if (flow->finished || !enter(s, r, flow, f) || !step_is_well_formed(s, r, &s->rank[r], &flow->step)) {
        return 0;
    }
    if ((flow->step.act & (RONDO_PUBLISH | RONDO_COLLECT)) != 0) {
        moved = (flow->step.act & RONDO_PUBLISH) != 0 ? sim_publish(s, r, flow) : sim_collect(s, r, flow);
        if (!moved) {
            return 0;
        }
        flow->done = flow->span.n;
    } else if ((flow->step.act & (RONDO_OPEN | RONDO_CLOSE)) != 0) {
        moved = sim_meet(s, r, flow);
    } else if ((flow->step.act & RONDO_GROUPS) != 0) {
        moved = sim_move_groups(s, r, flow);
    } else if ((flow->step.act & (RONDO_PULL | RONDO_PULL_ROOT)) != 0) {
        sim_move_open(s, r, flow);
        moved = 1;
    } else {
        moved = move_slice(s, r, flow);
    }
    if (flow->done == flow->span.n && !flow->met) {
        flow->entered = 0;
        flow->k++;
    }
    return moved;
}

static int pick(struct sim *s)
{
    int at = s->c->mode == SIM_STICKY ? s->npool - 1 : (int)(sim_random(&s->random) % (uint64_t)s->npool), id;
    if (s->c->mode == SIM_SLOW && s->pool[at] / 2 == (int)(s->c->seed % (uint64_t)s->n)) {
        at = (at + 1) % s->npool;
    }
    id = s->pool[at];
    s->pool[at] = s->pool[--s->npool];
    s->in_pool[id] = 0;
    return id;
}

static void run_channel(struct sim *s, int channel)
{
    s->open = 2 * (size_t)s->n;
    for (int r = 0; r < s->n; r++) {
        for (int p = 0; p < RONDO_NUM_PORTS; p++) {
            s->rank[r].send[p].to = -1;
            s->rank[r].recv[p] = NULL;
        }
    }
    for (int r = 0; r < s->n; r++) {
        sim_connect_rank(s, channel, r);
        sim_make_work(s, channel, r);
        sim_wake(s, r);
    }
    while (s->npool > 0 && s->result->error[0] == '\0') {
        int id = pick(s), burst = s->c->mode == SIM_STICKY  ? 1 << 30
                                  : s->c->mode == SIM_BURST ? (int)(sim_random(&s->random) % 16)
                                                            : 1;
        while (burst > 0 && advance(s, id / 2, id % 2)) {
            burst--;
        }
        if (burst <= 0) {
            sim_wake(s, id / 2); /* it stopped because of the mode, not because it was blocked */
        }
    }
    if (s->open > 0) {
        sim_fail(s, "deadlock: %zu flows wait", s->open);
    }
    for (int r = 0; r < s->n; r++) {
        for (int p = 0; p < RONDO_NUM_PORTS; p++) {
            struct conn *conn = &s->rank[r].send[p];
            if (conn->to >= 0 && conn->tail != conn->head) {
                sim_fail(s, "%d slices from rank %d to %d are never received", (int)(conn->tail - conn->head),
                         r, conn->to);
            }
            free(conn->data);
            memset(conn, 0, sizeof(*conn));
        }
    }
}

void sim_run(const struct sim_case *c, struct sim_result *result)
{
    struct sim s = { .c = c, .result = result, .n = c->nranks, .random = c->seed };
    size_t all;
    memset(result, 0, sizeof(*result));
    s.layout = c->layout != NULL ? c->layout
               : c->nnodes > 0   ? sim_layout_nodes(c->local, c->nnodes, c->nchannels, (uint64_t)c->shuffled)
                                 : sim_layout_new(c->nranks, c->nchannels, c->shuffled);
    s.rank = sim_zeroed((size_t)s.n, sizeof(*s.rank));
    s.pool = sim_zeroed(2 * (size_t)s.n, sizeof(*s.pool));
    s.in_pool = sim_zeroed(2 * (size_t)s.n, 1);
    s.displs = sim_zeroed((size_t)s.n, sizeof(*s.displs));
    for (int r = 0; r < s.n; r++) {
        s.displs[r] = c->displs != NULL ? c->displs[r] : (size_t)r * c->len;
    }
    all = sim_gathered(&s);
    for (int r = 0; r < s.n; r++) {
        sim_make_buffers(&s, r, all);
    }
    for (int channel = 0; channel < c->nchannels && result->error[0] == '\0'; channel++) {
        run_channel(&s, channel);
    }
    if (result->error[0] == '\0') {
        sim_check_results(&s, all);
    }
    for (int r = 0; r < s.n; r++) {
        free(s.rank[r].in_memory);
        free(s.rank[r].out_memory);
        free(s.rank[r].writes);
        for (int b = 0; b < RONDO_ROOTED_BANKS; b++) {
            free(s.rank[r].place[b].data);
        }
    }
    free(s.rank);
    free(s.pool);
    free(s.in_pool);
    free(s.displs);
    if (c->layout == NULL) {
        sim_layout_free(s.layout);
    }
}
