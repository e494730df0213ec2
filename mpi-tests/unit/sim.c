#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/board.h"
#include "coll/chunk.h"
#include "coll/exchange.h"

struct elem {
    uint64_t sum, order;
};

struct message {
    size_t loop, at, n;
    int32_t block;
};

struct conn {
    int to; /* rank; -1: does not exist */
    int to_port;
    uint64_t head, tail;
    struct message message[RONDO_SLOTS];
    struct elem *data; /* RONDO_SLOTS slices; from the first message on */
};

struct flow {
    size_t loop, done;
    uint32_t k;
    int entered, finished, met; /* met: it has come to the OPEN or CLOSE that it is at */
    int block;                  /* of a move with GROUPS */
    struct rondo_step step;
    struct rondo_span span;
};

/* A place of the board in one bank. */
struct post {
    uint32_t op;
    int reads;
    size_t n;
    struct elem *data;
};

struct rank {
    struct rondo_work work;
    const struct rondo_schedule *schedule;
    size_t nloops, nin, nout;
    struct elem *in, *out; /* NULL: the call has none */
    struct elem *in_memory, *out_memory;
    uint8_t *writes;
    struct flow flow[2];
    struct conn send[RONDO_NUM_PORTS];
    struct conn *recv[RONDO_NUM_PORTS];
    int receives_from[RONDO_NUM_PORTS];
    struct post post[RONDO_ROOTED_BANKS]; /* of one for all, all for one; else the first RONDO_BOARD_BANKS of them */
    uint32_t op, meetings;                /* posted; OPEN and CLOSE come to */
    uint32_t moves;                       /* with GROUPS, done */
};

struct sim {
    const struct sim_case *c;
    struct sim_result *result;
    struct rondo_layout *layout;
    int n;
    struct rank *rank;
    size_t *displs;
    int *pool, npool; /* flows that may be able to move: 2 * rank + flow */
    uint8_t *in_pool;
    uint64_t random;
    size_t open; /* flows that are not finished */
};

/* ---- elements ---- */

static void fail(struct sim *s, const char *fmt, ...) RONDO_PRINTF(2, 3);
static void fail(struct sim *s, const char *fmt, ...)
{
    va_list args;
    if (s->result->error[0] != '\0') {
        return;
    }
    va_start(args, fmt);
    vsnprintf(s->result->error, sizeof(s->result->error), fmt, args);
    va_end(args);
}

static struct elem value_of(int rank, size_t at)
{
    uint64_t state = (uint64_t)rank << 40 ^ at;
    struct elem e;
    e.sum = e.order = sim_random(&state);
    return e;
}

static struct elem reduce(struct elem a, struct elem b)
{
    uint64_t state = a.order * 31 + b.order;
    a.sum += b.sum;
    a.order = sim_random(&state);
    return a;
}

static struct elem finish(struct elem a)
{
    uint64_t state = a.order ^ 0xf1;
    a.sum = a.sum * 3 + 1;
    a.order = sim_random(&state);
    return a;
}

/* ---- ranks, buffers, conns ---- */

static enum rondo_coll coll_of(const struct sim *s, int rank)
{
    return s->c->coll == RONDO_COLL_SEND && rank % 2 == 1 ? RONDO_COLL_RECV : s->c->coll;
}

static size_t count_of(const struct sim *s, int rank) { return s->c->counts != NULL ? s->c->counts[rank] : s->c->len; }

/* Elements of a buffer that holds every rank's block. */
static size_t gathered(const struct sim *s)
{
    size_t end = 0;
    for (int r = 0; r < s->n; r++) {
        end = rondo_max_size(end, s->displs[r] + count_of(s, r));
    }
    return end;
}

static void make_buffers(struct sim *s, int r, size_t all)
{
    struct rank *k = &s->rank[r];
    enum rondo_coll coll = coll_of(s, r), as = rondo_coll_scheduled_as(coll);
    int is_root = r == s->c->root;
    int has_in = coll != RONDO_COLL_RECV && (as != RONDO_COLL_BROADCAST || is_root);
    int has_out = coll != RONDO_COLL_SEND && (as != RONDO_COLL_REDUCE || is_root);
    k->nin = as == RONDO_COLL_REDUCE_SCATTER ? all : count_of(s, r);
    k->nout = as == RONDO_COLL_ALL_GATHER ? all : count_of(s, r);
    if (has_out && !(s->c->in_place && as == RONDO_COLL_REDUCE_SCATTER)) {
        k->out = k->out_memory = sim_zeroed(k->nout, sizeof(struct elem));
    }
    if (has_in && s->c->in_place && k->out != NULL) {
        k->in = k->out + (as == RONDO_COLL_ALL_GATHER ? s->displs[r] : 0);
    } else if (has_in) {
        k->in = k->in_memory = sim_zeroed(k->nin, sizeof(struct elem));
        k->out = k->out == NULL && has_out ? k->in + s->displs[r] : k->out;
    }
    k->writes = sim_zeroed(k->nout, 1);
    for (size_t i = 0; k->in != NULL && i < k->nin; i++) {
        k->in[i] = value_of(r, i);
    }
}

static void connect(struct sim *s, int from, int port, int to, int to_port)
{
    struct conn *conn = &s->rank[from].send[port];
    conn->to = to;
    conn->to_port = to_port;
    s->rank[to].recv[to_port] = conn;
    s->rank[to].receives_from[to_port] = from;
}

/* Both ends as creation makes them: a parent's child i, and that child's parent, name one conn each way. */
static void connect_rank(struct sim *s, int channel, int r)
{
    const struct rondo_tree *tree;
    sim_layout_turn(s->layout, r);
    tree = &s->layout->channel[channel].tree;
    if (s->n > 1) {
        connect(s, r, RONDO_PORT_RING, s->layout->channel[channel].ring.next, RONDO_PORT_RING);
    }
    for (int i = 0; i < tree->nchildren; i++) {
        connect(s, r, RONDO_PORT_CHILD + i, tree->child[i], RONDO_PORT_PARENT);
        connect(s, tree->child[i], RONDO_PORT_PARENT, r, RONDO_PORT_CHILD + i);
    }
    for (int j = 0; s->c->algo == RONDO_ALGO_EXCHANGE && j < (int)rondo_exchange_ports(s->n); j++) {
        int peer = rondo_exchange_peer(r, s->n, (uint32_t)j);
        if (peer >= 0) {
            connect(s, r, RONDO_PORT_DIM + j, peer, RONDO_PORT_DIM + j);
        }
    }
    if (coll_of(s, r) == RONDO_COLL_SEND && r + 1 < s->n) {
        connect(s, r, RONDO_PORT_PEER, r + 1, RONDO_PORT_PEER);
    }
}

static void make_work(struct sim *s, int channel, int r)
{
    const struct sim_case *c = s->c;
    struct rank *k = &s->rank[r];
    enum rondo_coll coll = coll_of(s, r);
    size_t share = c->len / (size_t)c->nchannels;
    int root = coll == RONDO_COLL_SEND || coll == RONDO_COLL_RECV ? r ^ 1 : c->root;
    sim_layout_turn(s->layout, r);
    memset(&k->work, 0, sizeof(k->work));
    k->work.coll = (uint8_t)coll;
    k->work.algo = (uint8_t)c->algo;
    k->work.proto = RONDO_PROTO_SIMPLE;
    k->work.elem_bytes = (uint8_t)c->elem_bytes;
    k->work.block_rank = rondo_algo_opens(c->algo) || c->algo == RONDO_ALGO_ONESHOT ? NULL : s->layout->channel[channel].ring.rank_at;
    k->work.counts = c->counts;
    k->work.displs = c->displs;
    k->work.block = c->len;
    k->work.off = c->counts != NULL ? 0 : share * (size_t)channel;
    k->work.len = channel + 1 < c->nchannels ? share : c->len - share * (size_t)channel;
    k->work.chunk = c->chunk;
    rondo_seat_of(s->layout, channel, c->algo, coll, root, &k->work.seat);
    k->schedule = c->schedule != NULL ? c->schedule : rondo_schedule_find(coll, c->algo);
    k->nloops = rondo_work_nloops(&k->work, k->schedule->map);
    memset(k->flow, 0, sizeof(k->flow));
}

/* ---- the executor ---- */

static void wake(struct sim *s, int r)
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
        fail(s, "rank %d: act %d with %d sources", r, p->act, p->nfrom);
    } else if ((p->act & RONDO_SEND) != 0 ? p->nto == 0 || p->nto > RONDO_TREE_FAN : p->nto != 0) {
        fail(s, "rank %d: act %d with %d targets", r, p->act, p->nto);
    } else if (p->nfrom > 1 && (p->act & RONDO_REDUCE) == 0) {
        fail(s, "rank %d: %d sources and no reduction", r, p->nfrom);
    } else if ((p->act & RONDO_REDUCE) != 0 && (p->act & (RONDO_RECV | RONDO_RECV_ALL | RONDO_PULL)) == 0) {
        fail(s, "rank %d: a reduction of nothing received", r);
    } else if (p->block < 0 || p->block >= nblocks) {
        fail(s, "rank %d: block %d of %d", r, p->block, nblocks);
    }
    for (int i = 0; i < p->nfrom && i < RONDO_TREE_FAN; i++) {
        if (p->from[i] >= RONDO_NUM_PORTS || k->recv[p->from[i]] == NULL) {
            fail(s, "rank %d receives from port %d, which has no conn", r, p->from[i]);
        }
    }
    for (int i = 0; i < p->nto && i < RONDO_TREE_FAN; i++) {
        if (p->to[i] >= RONDO_NUM_PORTS || k->send[p->to[i]].to < 0) {
            fail(s, "rank %d sends to port %d, which has no conn", r, p->to[i]);
        }
    }
    return s->result->error[0] == '\0';
}

/* Go to the next step that has something to do. @return 0 when there is none. */
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
        flow->entered = flow->step.act != 0 && (flow->span.n > 0 || (flow->step.act & (RONDO_OPEN | RONDO_CLOSE)) != 0);
        flow->k += !flow->entered;
        flow->done = 0;
    }
    return 1;
}

/* again: an earlier step has written it. */
static void put_out(struct sim *s, int r, size_t at, struct elem e, int again)
{
    struct rank *k = &s->rank[r];
    if (k->out == NULL || at >= k->nout) {
        fail(s, "rank %d writes element %zu of %zu", r, at, k->out == NULL ? 0 : k->nout);
        return;
    }
    if (k->writes[at] != again) {
        fail(s, "rank %d writes element %zu twice, or for the first time and not again", r, at);
    }
    k->writes[at] = 1;
    k->out[at] = e;
}

static struct elem get_in(struct sim *s, int r, size_t at)
{
    struct rank *k = &s->rank[r];
    if (k->in == NULL || at >= k->nin) {
        fail(s, "rank %d reads element %zu of %zu", r, at, k->in == NULL ? 0 : k->nin);
        return value_of(-1, at);
    }
    return k->in[at];
}

/* The rank's own operand: its input, or what an earlier step has made of it. */
static struct elem get_own(struct sim *s, int r, const struct flow *flow, size_t at)
{
    const struct rank *k = &s->rank[r];
    if ((flow->step.act & RONDO_OWN_OUT) == 0) {
        return get_in(s, r, flow->span.in + at);
    }
    if (k->out == NULL || flow->span.out + at >= k->nout || k->writes[flow->span.out + at] != 1) {
        fail(s, "rank %d reads element %zu of its output, which no step has written", r, flow->span.out + at);
        return value_of(-1, at);
    }
    return k->out[flow->span.out + at];
}

static void count_moved(const struct sim *s, int from, int to, size_t n)
{
    if (s->c->moved != NULL && from != to) {
        s->c->moved[from * s->n + to] += n;
    }
}

static int is_broadcast(const struct sim *s) { return s->rank[0].work.coll == RONDO_COLL_BROADCAST; }
static int is_rooted(const struct sim *s) { return is_broadcast(s) || s->rank[0].work.coll == RONDO_COLL_REDUCE; }
static int root_of(const struct sim *s) { return s->rank[0].work.seat.root; }

static struct post *post_of(struct sim *s, int r, uint32_t op)
{
    return &s->rank[r].post[op % (uint32_t)(is_rooted(s) ? RONDO_ROOTED_BANKS : RONDO_BOARD_BANKS)];
}

/* Ranks that take what rank r posts. */
static int readers(const struct sim *s, int r) { return is_broadcast(s) ? (r == root_of(s) ? s->n - 1 : 0) : is_rooted(s) ? 1 : s->n; }

/* One for all, all for one: the same credit as the board's (base/board.h). */
static int has_credit(const struct sim *s, uint32_t op)
{
    for (int q = 0; q < s->n && is_rooted(s); q++) {
        if (s->rank[q].op + RONDO_ROOTED_BANKS <= op) {
            return 0;
        }
    }
    return 1;
}

/* @return 1: moved, 0: blocked. */
static int post_all(struct sim *s, int r, const struct flow *flow)
{
    struct rank *k = &s->rank[r];
    struct post *post = post_of(s, r, k->op + 1);
    if (!has_credit(s, k->op + 1)) {
        return 0;
    }
    k->op++;
    if (post->op != 0 && post->reads != readers(s, r)) {
        fail(s, "rank %d overwrites post %u, which %d of %d ranks have read", r, post->op, post->reads, readers(s, r));
        return 0;
    }
    free(post->data);
    post->data = sim_zeroed(flow->span.n, sizeof(struct elem));
    post->n = flow->span.n;
    post->op = k->op;
    post->reads = 0;
    for (size_t i = 0; readers(s, r) > 0 && i < post->n; i++) {
        post->data[i] = get_in(s, r, flow->span.in + i);
    }
    for (int q = 0; q < s->n; q++) {
        wake(s, q);
    }
    return 1;
}

static void take_all(struct sim *s, int r, const struct flow *flow)
{
    const struct rank *k = &s->rank[r];
    for (int q = 0; q < s->n; q++) {
        struct rondo_span span = rondo_work_span(&k->work, k->schedule->map, flow->loop, q);
        for (size_t i = 0; i < span.n; i++) {
            put_out(s, r, span.out + i, post_of(s, q, k->op)->data[i], 0);
        }
    }
}

static int recv_all(struct sim *s, int r, const struct flow *flow)
{
    uint32_t op = s->rank[r].op;
    int from = is_broadcast(s) ? root_of(s) : 0, to = is_broadcast(s) ? from + 1 : s->n;
    for (int q = from; q < to; q++) {
        const struct post *post = post_of(s, q, op);
        if (post->op < op) {
            return 0;
        }
        if (post->op > op || post->n != flow->span.n) {
            fail(s, "rank %d finds post %u of %zu elements instead of %u of %zu from rank %d", r, post->op, post->n, op, flow->span.n, q);
            return 0;
        }
    }
    if (is_broadcast(s)) {
        for (size_t i = 0; i < flow->span.n; i++) {
            put_out(s, r, flow->span.out + i, post_of(s, from, op)->data[i], 0);
        }
    } else if ((flow->step.act & RONDO_REDUCE) == 0) {
        take_all(s, r, flow);
    }
    for (size_t i = 0; (flow->step.act & RONDO_REDUCE) != 0 && i < flow->span.n; i++) {
        struct elem e = post_of(s, 0, op)->data[i];
        for (int q = 1; q < s->n; q++) {
            e = reduce(e, post_of(s, q, op)->data[i]);
        }
        put_out(s, r, flow->span.out + i, (flow->step.act & RONDO_FINISH) != 0 ? finish(e) : e, 0);
    }
    for (int q = from; q < to; q++) {
        post_of(s, q, op)->reads++;
        count_moved(s, q, r, post_of(s, q, op)->n);
    }
    return 1;
}

static int meet(struct sim *s, int r, struct flow *flow)
{
    if ((flow->step.act & RONDO_OPEN) != 0 ? flow->loop > 0 : flow->loop + 1 < s->rank[r].nloops) {
        flow->done = flow->span.n;
        return 1;
    }
    if (!flow->met) {
        flow->met = 1;
        s->rank[r].meetings++;
        for (int q = 0; q < s->n; q++) {
            wake(s, q);
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

/* Between OPEN and CLOSE: a slice, straight from and to other ranks' buffers. */
static void move_open(struct sim *s, int r, struct flow *flow)
{
    const struct rondo_step *p = &flow->step;
    size_t n = rondo_min_size(s->c->slice, flow->span.n - flow->done);
    for (int q = 0; q < s->n; q++) {
        int reads = (p->act & RONDO_REDUCE) != 0 || q == ((p->act & RONDO_PULL_ROOT) != 0 ? s->rank[r].work.seat.root : p->block);
        count_moved(s, q, r, reads ? n : 0);
        count_moved(s, r, q, (p->act & RONDO_PUSH) != 0 || ((p->act & RONDO_PUSH_ROOT) != 0 && q == s->rank[r].work.seat.root) ? n : 0);
    }
    for (size_t i = 0; i < n; i++, flow->done++) {
        size_t in = flow->span.in + flow->done, out = flow->span.out + flow->done;
        int from = (p->act & RONDO_PULL_ROOT) != 0 ? s->rank[r].work.seat.root : (p->act & RONDO_REDUCE) != 0 ? 0 : p->block;
        struct elem e = get_in(s, from, in);
        for (int q = 1; (p->act & RONDO_REDUCE) != 0 && q < s->n; q++) {
            e = reduce(e, get_in(s, q, in));
        }
        e = (p->act & RONDO_FINISH) != 0 ? finish(e) : e;
        for (int q = 0; q < s->n; q++) {
            if ((p->act & RONDO_PUSH) != 0 || ((p->act & RONDO_PUSH_ROOT) != 0 && q == s->rank[r].work.seat.root) ||
                ((p->act & RONDO_COPY) != 0 && q == r)) {
                put_out(s, q, out, e, 0);
            }
        }
    }
}

/* Who holds a block in a group inside that of this rank's step (base/nest.h), and what it has: its input where it is by itself, else what was made of it; on the way back what it gets. */
static int inside_holder(const struct sim *s, const struct rondo_step *p, int position, int block)
{
    return rondo_nest_rank(s->layout->nest, p->level + 1, position, block);
}

/* @return 0: a rank whose part of the block is needed has not done the move before. */
static int groups_ready(const struct sim *s, int r, const struct flow *flow, int block)
{
    const struct rondo_nest *nest = s->layout->nest;
    int level = flow->step.level, place = nest->place[r];
    if ((flow->step.act & RONDO_PULL) == 0) {
        return s->rank[rondo_nest_rank(nest, level - 1, place, block)].moves >= s->rank[r].moves;
    }
    for (int c = rondo_nest_begin(nest, level, place); c < rondo_nest_end(nest, level, place); c = rondo_nest_end(nest, level + 1, c)) {
        if (level < nest->nlevels && s->rank[inside_holder(s, &flow->step, c, block)].moves < s->rank[r].moves) {
            return 0;
        }
    }
    return 1;
}

static struct elem groups_have(struct sim *s, int r, const struct flow *flow, int block, size_t in, size_t out)
{
    const struct rondo_nest *nest = s->layout->nest;
    const struct rondo_step *p = &flow->step;
    int place = nest->place[r], first = rondo_nest_begin(nest, p->level, place);
    struct elem e = { 0, 0 };
    for (int c = first; c < rondo_nest_end(nest, p->level, place); c = rondo_nest_end(nest, p->level + 1, c)) {
        int q = inside_holder(s, p, c, block);
        struct elem has = p->level == nest->nlevels ? get_in(s, q, in) : s->rank[q].out[out];
        count_moved(s, q, r, 1);
        e = c == first ? has : reduce(e, has);
    }
    return (p->act & RONDO_FINISH) != 0 ? finish(e) : e;
}

/* One block. @return 1: moved, 0: blocked. */
static int move_groups(struct sim *s, int r, struct flow *flow)
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
            put_out(s, r, out, groups_have(s, r, flow, block, in, out), p->level < nest->nlevels);
        }
        for (int c = rondo_nest_begin(nest, p->level, place); c < rondo_nest_end(nest, p->level, place);
             c = rondo_nest_end(nest, p->level + 1, c)) {
            int q = inside_holder(s, p, c, block);
            if ((p->act & RONDO_PUSH) != 0 && q != r) {
                put_out(s, q, out, k->out[out], p->level < nest->nlevels);
                count_moved(s, r, q, 1);
            }
        }
    }
    if (++flow->block == s->n) {
        flow->block = 0;
        flow->done = flow->span.n;
        k->moves++;
        for (int q = 0; q < s->n; q++) {
            wake(s, q);
        }
    }
    return 1;
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
                struct elem own = get_own(s, r, flow, at);
                e = (p->act & RONDO_OWN_FIRST) != 0 ? reduce(own, e) : reduce(e, own);
            }
        } else {
            e = get_own(s, r, flow, at);
        }
        if ((p->act & RONDO_FINISH) != 0) {
            e = finish(e);
        }
        if ((p->act & RONDO_COPY) != 0) {
            put_out(s, r, flow->span.out + at, e, (p->act & RONDO_OWN_OUT) != 0);
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
            fail(s, "rank %d expects loop %zu block %d [%zu, +%zu) and gets loop %zu block %d [%zu, +%zu)", r, flow->loop, p->block,
                 flow->done, n, got->loop, got->block, got->at, got->n);
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
        wake(s, k->receives_from[p->from[i]]);
    }
    for (int i = 0; i < p->nto; i++) {
        struct conn *conn = &k->send[p->to[i]];
        conn->message[conn->tail++ % RONDO_SLOTS] = message;
        wake(s, conn->to);
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
    if ((flow->step.act & (RONDO_POST_ALL | RONDO_RECV_ALL)) != 0) {
        moved = (flow->step.act & RONDO_POST_ALL) != 0 ? post_all(s, r, flow) : recv_all(s, r, flow);
        flow->done = moved ? flow->span.n : 0;
    } else if ((flow->step.act & (RONDO_OPEN | RONDO_CLOSE)) != 0) {
        moved = meet(s, r, flow);
    } else if ((flow->step.act & RONDO_GROUPS) != 0) {
        moved = move_groups(s, r, flow);
    } else if ((flow->step.act & (RONDO_PULL | RONDO_PULL_ROOT)) != 0) {
        move_open(s, r, flow);
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
        connect_rank(s, channel, r);
        make_work(s, channel, r);
        wake(s, r);
    }
    while (s->npool > 0 && s->result->error[0] == '\0') {
        int id = pick(s), burst = s->c->mode == SIM_STICKY ? 1 << 30 : s->c->mode == SIM_BURST ? (int)(sim_random(&s->random) % 16) : 1;
        while (burst > 0 && advance(s, id / 2, id % 2)) {
            burst--;
        }
        if (burst <= 0) {
            wake(s, id / 2); /* it stopped for another's turn, not for want of anything */
        }
    }
    if (s->open > 0) {
        fail(s, "deadlock: %zu flows wait", s->open);
    }
    for (int r = 0; r < s->n; r++) {
        for (int p = 0; p < RONDO_NUM_PORTS; p++) {
            struct conn *conn = &s->rank[r].send[p];
            if (conn->to >= 0 && conn->tail != conn->head) {
                fail(s, "%d slices from rank %d to %d are never received", (int)(conn->tail - conn->head), r, conn->to);
            }
            free(conn->data);
            memset(conn, 0, sizeof(*conn));
        }
    }
}

/* ---- results ---- */

static uint64_t sum_of_all(const struct sim *s, size_t at)
{
    uint64_t sum = 0;
    for (int r = 0; r < s->n; r++) {
        sum += value_of(r, at).sum;
    }
    return sum * 3 + 1; /* finish() */
}

static void check_range(struct sim *s, int r, size_t begin, size_t n, const uint64_t *sums, int from)
{
    const struct rank *k = &s->rank[r];
    for (size_t i = 0; i < n; i++) {
        uint64_t want = sums != NULL ? sums[i] : value_of(from, i).sum, state;
        if (k->out == NULL || k->out[begin + i].sum != want || k->writes[begin + i] != 1) {
            fail(s, "rank %d: element %zu is wrong, or was not written", r, begin + i);
            return;
        }
        k->writes[begin + i] = 0; /* what is left at the end was not to be written */
        state = s->result->digest ^ k->out[begin + i].order;
        s->result->digest = sim_random(&state) + k->out[begin + i].sum;
    }
}

static void check_results(struct sim *s, size_t all)
{
    enum rondo_coll as = rondo_coll_scheduled_as(s->c->coll);
    int reduces = as == RONDO_COLL_ALL_REDUCE || as == RONDO_COLL_REDUCE || as == RONDO_COLL_REDUCE_SCATTER;
    size_t n = reduces ? (as == RONDO_COLL_REDUCE_SCATTER ? all : s->c->len) : 0;
    uint64_t *sums = sim_zeroed(n, sizeof(*sums));
    for (size_t i = 0; i < n; i++) {
        sums[i] = sum_of_all(s, i);
    }
    for (int r = 0; r < s->n; r++) {
        if (as == RONDO_COLL_ALL_REDUCE || (as == RONDO_COLL_REDUCE && r == s->c->root)) {
            check_range(s, r, 0, s->c->len, sums, -1);
        } else if (as == RONDO_COLL_REDUCE_SCATTER) {
            check_range(s, r, 0, count_of(s, r), sums + s->displs[r], -1);
        } else if (as == RONDO_COLL_BROADCAST) {
            check_range(s, r, 0, s->c->len, NULL, s->c->root);
        } else if (coll_of(s, r) == RONDO_COLL_RECV) {
            check_range(s, r, 0, s->c->len, NULL, r - 1);
        }
        for (int q = 0; as == RONDO_COLL_ALL_GATHER && q < s->n; q++) {
            check_range(s, r, s->displs[q], count_of(s, q), NULL, q);
        }
        for (size_t i = 0; i < s->rank[r].nout; i++) {
            if (s->rank[r].writes[i] != 0) {
                fail(s, "rank %d writes element %zu, which nobody asked for", r, i);
            }
        }
        for (size_t i = 0; as == RONDO_COLL_ALL_REDUCE && i < s->c->len && s->rank[r].out != NULL; i++) {
            if (s->rank[r].out[i].order != s->rank[0].out[i].order) {
                fail(s, "ranks 0 and %d have element %zu reduced in different orders", r, i);
            }
        }
    }
    free(sums);
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
    all = gathered(&s);
    for (int r = 0; r < s.n; r++) {
        make_buffers(&s, r, all);
    }
    for (int channel = 0; channel < c->nchannels && result->error[0] == '\0'; channel++) {
        run_channel(&s, channel);
    }
    if (result->error[0] == '\0') {
        check_results(&s, all);
    }
    for (int r = 0; r < s.n; r++) {
        free(s.rank[r].in_memory);
        free(s.rank[r].out_memory);
        free(s.rank[r].writes);
        for (int b = 0; b < RONDO_ROOTED_BANKS; b++) {
            free(s.rank[r].post[b].data);
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
