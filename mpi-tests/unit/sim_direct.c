/* Simulated steps over the mailbox and by direct access. */
#include <stdlib.h>

#include "sim_impl.h"

static int is_broadcast(const struct sim *s) { return s->rank[0].work.coll == RONDO_COLL_BROADCAST; }
static int is_rooted(const struct sim *s)
{
    return is_broadcast(s) || s->rank[0].work.coll == RONDO_COLL_REDUCE;
}
static int root_of(const struct sim *s) { return s->rank[0].work.seat.root; }

static struct place *place_of(struct sim *s, int r, uint32_t op)
{
    return &s->rank[r].place[op % (uint32_t)(is_rooted(s) ? RONDO_ROOTED_BANKS : RONDO_MAILBOX_BANKS)];
}

/* Number of ranks that read rank r's message. */
static int readers(const struct sim *s, int r)
{
    return is_broadcast(s) ? (r == root_of(s) ? s->n - 1 : 0) : is_rooted(s) ? 1 : s->n;
}

/* Rooted calls have the mailbox's credit (base/mailbox.h). */
static int has_credit(const struct sim *s, uint32_t op)
{
    for (int q = 0; q < s->n && is_rooted(s); q++) {
        if (s->rank[q].op + RONDO_ROOTED_BANKS <= op) {
            return 0;
        }
    }
    return 1;
}

/* What rank q publishes in the step: input for all, or the flow's block. */
static struct rondo_span published(const struct sim *s, const struct flow *flow, int q)
{
    const struct rondo_work *w = &s->rank[0].work;
    size_t loop = w->chunk * (size_t)s->n;
    if (w->coll == RONDO_COLL_REDUCE_SCATTER) {
        return (struct rondo_span){ .n = w->block * (size_t)s->n };
    }
    if (s->rank[0].schedule->map != RONDO_MAP_SPLIT) {
        return flow->span;
    }
    return flow->step.act & RONDO_OWN_OUT
               ? rondo_work_span(w, RONDO_MAP_SPLIT, flow->loop, q)
               : (struct rondo_span){ .in = w->off + flow->loop * loop,
                                      .n = rondo_min_size(loop, w->len - flow->loop * loop) };
}

int sim_publish(struct sim *s, int r, const struct flow *flow)
{
    struct rank *k = &s->rank[r];
    struct rondo_span span = published(s, flow, r);
    struct place *place = place_of(s, r, k->op + 1);
    if (!has_credit(s, k->op + 1)) {
        return 0;
    }
    k->op++;
    if (place->op != 0 && place->reads != readers(s, r)) {
        sim_fail(s, "rank %d overwrites message %u, which %d of %d ranks have read", r, place->op,
                 place->reads, readers(s, r));
        return 0;
    }
    free(place->data);
    place->data = sim_zeroed(span.n, sizeof(struct elem));
    place->n = span.n;
    place->op = k->op;
    place->reads = 0;
    for (size_t i = 0; readers(s, r) > 0 && i < place->n; i++) {
        place->data[i] = flow->step.act & RONDO_OWN_OUT ? sim_get_own(s, r, flow, i)
                                                        : sim_get_in(s, r, span.in + i);
    }
    for (int q = 0; q < s->n; q++) {
        sim_wake(s, q);
    }
    return 1;
}

static void take_all(struct sim *s, int r, const struct flow *flow)
{
    const struct rank *k = &s->rank[r];
    for (int q = 0; q < s->n; q++) {
        struct rondo_span span = rondo_work_span(&k->work, k->schedule->map, flow->loop, q);
        for (size_t i = 0; i < span.n && (q != r || !(flow->step.act & RONDO_OWN_OUT)); i++) {
            sim_put_out(s, r, span.out + i, place_of(s, q, k->op)->data[i], 0);
        }
    }
}

int sim_collect(struct sim *s, int r, const struct flow *flow)
{
    uint32_t op = s->rank[r].op;
    int from = is_broadcast(s) ? root_of(s) : 0, to = is_broadcast(s) ? from + 1 : s->n;
    size_t at = flow->span.in - published(s, flow, r).in;
    for (int q = from; q < to; q++) {
        const struct place *place = place_of(s, q, op);
        size_t n = published(s, flow, q).n;
        if (place->op < op) {
            return 0;
        }
        if (place->op > op || place->n != n) {
            sim_fail(s, "rank %d finds message %u of %zu elements instead of %u of %zu from rank %d", r,
                     place->op, place->n, op, n, q);
            return 0;
        }
    }
    if (is_broadcast(s)) {
        for (size_t i = 0; i < flow->span.n; i++) {
            sim_put_out(s, r, flow->span.out + i, place_of(s, from, op)->data[i], 0);
        }
    } else if ((flow->step.act & RONDO_REDUCE) == 0) {
        take_all(s, r, flow);
    }
    for (size_t i = 0; (flow->step.act & RONDO_REDUCE) != 0 && i < flow->span.n; i++) {
        struct elem e = place_of(s, 0, op)->data[at + i];
        for (int q = 1; q < s->n; q++) {
            e = reduce(e, place_of(s, q, op)->data[at + i]);
        }
        sim_put_out(s, r, flow->span.out + i, (flow->step.act & RONDO_FINISH) != 0 ? finish(e) : e, 0);
    }
    for (int q = from; q < to; q++) {
        place_of(s, q, op)->reads++;
        count_moved(s, q, r, place_of(s, q, op)->n);
    }
    return 1;
}

int sim_meet(struct sim *s, int r, struct flow *flow)
{
    if ((flow->step.act & RONDO_OPEN) != 0 ? flow->loop > 0 : flow->loop + 1 < s->rank[r].nloops) {
        flow->done = flow->span.n;
        return 1;
    }
    if (!flow->met) {
        flow->met = 1;
        s->rank[r].meetings++;
        for (int q = 0; q < s->n; q++) {
            sim_wake(s, q);
        }
    }
    for (int q = 0; q < s->n; q++) {
        if (s->rank[q].meetings < s->rank[r].meetings) {
            return 0;
        }
    }
    flow->met = 0;
    flow->done = flow->span.n;
    return 1;
}

void sim_move_open(struct sim *s, int r, struct flow *flow)
{
    const struct rondo_step *p = &flow->step;
    size_t n = rondo_min_size(s->c->slice, flow->span.n - flow->done);
    for (int q = 0; q < s->n; q++) {
        int reads = (p->act & RONDO_REDUCE) != 0 ||
                    q == ((p->act & RONDO_PULL_ROOT) != 0 ? s->rank[r].work.seat.root : p->block);
        count_moved(s, q, r, reads ? n : 0);
        count_moved(s, r, q,
                    (p->act & RONDO_PUSH) != 0 ||
                            ((p->act & RONDO_PUSH_ROOT) != 0 && q == s->rank[r].work.seat.root)
                        ? n
                        : 0);
    }
    for (size_t i = 0; i < n; i++, flow->done++) {
        size_t in = flow->span.in + flow->done, out = flow->span.out + flow->done;
        int from = (p->act & RONDO_PULL_ROOT) != 0 ? s->rank[r].work.seat.root
                   : (p->act & RONDO_REDUCE) != 0  ? 0
                                                   : p->block;
        struct elem e = sim_get_in(s, from, in);
        for (int q = 1; (p->act & RONDO_REDUCE) != 0 && q < s->n; q++) {
            e = reduce(e, sim_get_in(s, q, in));
        }
        e = (p->act & RONDO_FINISH) != 0 ? finish(e) : e;
        for (int q = 0; q < s->n; q++) {
            if ((p->act & RONDO_PUSH) != 0 ||
                ((p->act & RONDO_PUSH_ROOT) != 0 && q == s->rank[r].work.seat.root) ||
                ((p->act & RONDO_COPY) != 0 && q == r)) {
                sim_put_out(s, q, out, e, 0);
            }
        }
    }
}

/* Who holds a block in a group inside that of this rank's step (layout/nest.h), and its data: the input of a
 * rank alone, else the group's result; on the way back what it gets. */
static int inside_holder(const struct sim *s, const struct rondo_step *p, int position, int block)
{
    return rondo_nest_rank(s->layout->nest, p->level + 1, position, block);
}

/* @return 0: a rank whose part of the block is needed has not made its previous move. */
static int groups_ready(const struct sim *s, int r, const struct flow *flow, int block)
{
    const struct rondo_nest *nest = s->layout->nest;
    int level = flow->step.level, place = nest->place[r];
    if ((flow->step.act & RONDO_PULL) == 0) {
        return s->rank[rondo_nest_rank(nest, level - 1, place, block)].moves >= s->rank[r].moves;
    }
    for (int c = rondo_nest_begin(nest, level, place); c < rondo_nest_end(nest, level, place);
         c = rondo_nest_end(nest, level + 1, c)) {
        if (level < nest->nlevels &&
            s->rank[inside_holder(s, &flow->step, c, block)].moves < s->rank[r].moves) {
            return 0;
        }
    }
    return 1;
}

static struct elem groups_have(struct sim *s, int r, const struct flow *flow, int block, size_t in,
                               size_t out)
{
    const struct rondo_nest *nest = s->layout->nest;
    const struct rondo_step *p = &flow->step;
    int place = nest->place[r], first = rondo_nest_begin(nest, p->level, place);
    struct elem e = { 0, 0 };
    for (int c = first; c < rondo_nest_end(nest, p->level, place);
         c = rondo_nest_end(nest, p->level + 1, c)) {
        int q = inside_holder(s, p, c, block);
        struct elem has = p->level == nest->nlevels ? sim_get_in(s, q, in) : s->rank[q].out[out];
        count_moved(s, q, r, 1);
        e = c == first ? has : reduce(e, has);
    }
    return (p->act & RONDO_FINISH) != 0 ? finish(e) : e;
}

int sim_move_groups(struct sim *s, int r, struct flow *flow)
{
    const struct rondo_nest *nest = s->layout->nest;
    const struct rondo_step *p = &flow->step;
    struct rank *k = &s->rank[r];
    int place = nest->place[r], block = flow->block;
    struct rondo_span span = rondo_work_span(&k->work, k->schedule->map, flow->loop, block);
    size_t n = rondo_nest_holder(nest, p->level, place, block) == place ? span.n : 0;
    if (n > 0 && !groups_ready(s, r, flow, block)) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        size_t in = span.in + i, out = span.out + i;
        if ((p->act & RONDO_PULL) != 0) {
            sim_put_out(s, r, out, groups_have(s, r, flow, block, in, out), p->level < nest->nlevels);
        }
        for (int c = rondo_nest_begin(nest, p->level, place); c < rondo_nest_end(nest, p->level, place);
             c = rondo_nest_end(nest, p->level + 1, c)) {
            int q = inside_holder(s, p, c, block);
            if ((p->act & RONDO_PUSH) != 0 && q != r) {
                sim_put_out(s, q, out, k->out[out], p->level < nest->nlevels);
                count_moved(s, r, q, 1);
            }
        }
    }
    if (++flow->block == s->n) {
        flow->block = 0;
        flow->done = flow->span.n;
        k->moves++;
        for (int q = 0; q < s->n; q++) {
            sim_wake(s, q);
        }
    }
    return 1;
}
