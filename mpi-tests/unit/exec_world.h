/* Ranks for the CPU executor over hand-made connections in plain memory, with steps preset near their wrap.
 * One thread runs them in an order drawn from a seed, or each has a thread. Connections may have a proxy,
 * which this header plays. */
#ifndef EXEC_WORLD_H
#define EXEC_WORLD_H

#include "exec_progress.h"

#include <stdio.h>

#include "coll/algo.h"
#include "kern/proto.h"

enum { MOST_RANKS = 8, SLOT_BYTES = 256, MOST_COUNT = 1500, NCALLS = 40, STACK_BYTES = 1 << 20 };

/* An edge of the ring: one connection, both ends. */
struct edge {
    uint8_t *memory;
    struct rondo_conn_tail tail;
    struct rondo_conn_head head;
    struct rondo_conn sender, receiver;
    /* Carried by the proxy: the receiver's memory, and what was carried. */
    uint8_t *far;
    struct rondo_conn_tail far_tail;
    struct rondo_conn_head far_head;
    uint8_t *outside[RONDO_SLOTS], *far_outside[RONDO_SLOTS];
    uint64_t carried, from_outside, to_outside;
};

struct rank {
    struct world *world;
    int rank, next_call, open;
    struct rondo_exec *exec;
    struct rondo_exec_owner owner;
    struct rondo_ports ports;
    struct rondo_mailbox mailbox;
    struct rondo_run run;
    int mismatch_peer;
    uint32_t mismatch_got;
    int32_t in[MOST_COUNT], out[MOST_COUNT];
    char wrong[160];
};

struct call {
    enum rondo_algo algo;
    enum rondo_proto proto;
    enum rondo_coll coll;
    size_t count;
};

struct world {
    int n;
    struct edge edge[MOST_RANKS]; /* i: from rank i to the next */
    struct rank rank[MOST_RANKS];
    uint8_t *places;
    int ncalls;
    struct call call[NCALLS];
    uint64_t in_place;  /* a bit per call */
    size_t piece;       /* elements that a rank publishes at once; 0: all */
    uint64_t fast_path; /* bits of ranks and calls that try publish and collect first; 0: none */
};

static inline rondo_status on_mismatch(void *arg, int peer, const struct rondo_work *work, uint32_t got)
{
    struct rank *r = arg;
    (void)work;
    r->mismatch_peer = peer;
    r->mismatch_got = got;
    return RONDO_INVALID_USAGE;
}

/* Fill slots with garbage under LL's flags of the lap after the wrap: what would be left from 2^32 steps
 * before without cleaning. */
static inline void fill_stale(uint8_t *slots)
{
    for (uint64_t slot = 0; slot < RONDO_SLOTS; slot++) {
        uint64_t *word = (uint64_t *)(void *)(slots + slot * SLOT_BYTES);
        for (size_t i = 0; i < SLOT_BYTES / 8; i++) {
            word[i] = rondo_ll_flag(slot) | 0xbadbad;
        }
    }
}

static inline void edge_init(struct world *w, int from, uint64_t step)
{
    struct edge *e = &w->edge[from];
    struct rondo_conn conn = {
        .tail = &e->tail, .head = &e->head, .step = step, .seen = step, .via = "memory"
    };
    e->memory = zeroed((size_t)RONDO_NUM_PROTOS * RONDO_SLOTS * SLOT_BYTES);
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        conn.slots[p] = e->memory + (size_t)p * RONDO_SLOTS * SLOT_BYTES;
        conn.slot_bytes[p] = SLOT_BYTES;
    }
    if ((uint32_t)(step + 200) < 200) {
        fill_stale(conn.slots[RONDO_PROTO_LL]);
    }
    e->tail.tail = e->head.head = step;
    e->sender = e->receiver = conn;
    e->sender.peer = (from + 1) % w->n;
    e->receiver.peer = from;
    w->rank[from].ports.send[RONDO_PORT_RING] = &e->sender;
    w->rank[(from + 1) % w->n].ports.recv[RONDO_PORT_RING] = &e->receiver;
}

static inline struct world *world_new(int n, uint64_t step, uint32_t op)
{
    struct world *w = zeroed(sizeof(*w));
    w->n = n;
    w->places = zeroed(rondo_mailbox_bytes(MOST_COUNT * 4, n));
    for (int i = 0; i < n; i++) {
        struct rank *r = &w->rank[i];
        r->world = w;
        r->rank = i;
        r->owner = (struct rondo_exec_owner){ .arg = r, .mismatch = on_mismatch };
        r->mismatch_peer = RONDO_NO_PEER;
        r->mailbox = (struct rondo_mailbox){
            w->places, rondo_mailbox_stride(MOST_COUNT * 4), MOST_COUNT * 4, i, n, op, op, op
        };
        assert_int_equal(rondo_exec_cpu.open(&r->exec, 2, n, &r->owner), RONDO_SUCCESS);
        edge_init(w, i, step);
    }
    return w;
}

static inline void world_free(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        rondo_exec_cpu.close(w->rank[i].exec);
        free(w->edge[i].memory);
        free(w->edge[i].far);
    }
    free(w->places);
    free(w);
}

/* ---- edges with a proxy ---- */

enum { UNTOUCHED = 0xee };

static inline void carry(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        struct edge *e = &w->edge[i];
        e->far = zeroed((size_t)RONDO_SLOTS * SLOT_BYTES);
        memset(e->memory, UNTOUCHED, (size_t)RONDO_NUM_PROTOS * RONDO_SLOTS * SLOT_BYTES);
        e->sender.proxied = e->receiver.proxied = 1;
        e->sender.outside = e->outside;
        e->receiver.outside = e->far_outside;
        e->receiver.tail = &e->far_tail;
        e->receiver.head = &e->far_head;
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            e->receiver.slots[p] = e->far;
            e->sender.slots[p] = e->memory;
        }
        e->carried = e->far_tail.tail = e->far_head.head = e->sender.step;
    }
}

/* Carry as late as possible: read a slice where it lies only when its receiver wants it, and let the sender
 * go on only then. Leave the slots of slices that lie elsewhere alone. */
static inline void carry_late(struct edge *e)
{
    size_t slot = e->carried % RONDO_SLOTS, at = slot * SLOT_BYTES;
    if (e->far == NULL || !e->receiver.wanted || e->carried != e->receiver.step ||
        e->carried == e->tail.tail) {
        return;
    }
    const uint8_t *from = e->outside[slot] != NULL ? e->outside[slot] : e->memory + at;
    uint8_t *to = e->receiver.into != NULL ? e->receiver.into : e->far + at;
    size_t bytes = rondo_conn_size_bytes(e->tail.size[slot]);
    assert_in_range(bytes, 1, SLOT_BYTES);
    assert_true(to != e->receiver.into || e->receiver.into_bytes == bytes);
    for (size_t k = 0; e->outside[slot] != NULL && k < SLOT_BYTES; k++) {
        assert_int_equal(e->memory[at + k], UNTOUCHED);
    }
    memcpy(to, from, bytes);
    memset(e->memory + at, UNTOUCHED, SLOT_BYTES);
    e->from_outside += e->outside[slot] != NULL;
    e->to_outside += to == e->receiver.into;
    e->far_outside[slot] = e->receiver.into;
    e->far_tail.call[slot] = e->tail.call[slot];
    e->receiver.wanted = 0;
    e->far_tail.tail = e->head.head = ++e->carried;
}

/* ---- calls ---- */

static inline size_t capacity(enum rondo_proto proto) { return rondo_proto_capacity(proto, SLOT_BYTES) / 4; }

static inline int32_t input(int rank, int call, size_t i)
{
    return (int32_t)((unsigned)rank * 1000003u + (unsigned)call * 7919u + (unsigned)i);
}

/* The rank enters a call of its list; root 0. */
static inline void submit(struct rank *r, const struct call *c, int number)
{
    struct rondo_work *w = &r->run.work;
    memset(&r->run, 0, sizeof(r->run));
    for (size_t i = 0; i < c->count; i++) {
        r->in[i] = input(r->rank, number, i);
    }
    memset(r->out, 0x5a, sizeof(r->out));
    int in_place = r->world->in_place >> number & 1;
    if (in_place) {
        memcpy(r->out, r->in, c->count * sizeof(r->in[0]));
    }
    w->coll = (uint8_t)c->coll;
    w->algo = (uint8_t)c->algo;
    w->proto = (uint8_t)c->proto;
    w->dtype = RONDO_INT32;
    w->elem_bytes = 4;
    w->reduce = RONDO_REDUCE_SUM;
    w->seq = (uint64_t)number + 1;
    w->call_word = rondo_call_word(w->seq, c->count * 31 + (uint64_t)c->coll);
    w->in = (const uint8_t *)(in_place ? r->out : r->in);
    w->out = (uint8_t *)r->out;
    w->block = w->len = c->count;
    w->chunk = c->algo == RONDO_ALGO_MAIL_TWOSHOT
                   ? (r->world->piece > 0 ? r->world->piece
                                          : rondo_round_up(c->count / (size_t)r->world->n + 1, 16))
               : rondo_algo_medium(c->algo) == RONDO_MEDIUM_MAILBOX
                   ? (c->coll == RONDO_COLL_ALL_REDUCE && r->world->piece > 0 ? r->world->piece : c->count)
               : c->coll == RONDO_COLL_BROADCAST ? capacity(c->proto)
                                                 : capacity(c->proto) * 3;
    w->seat = (struct rondo_seat){ .index = r->rank, .nranks = r->world->n, .parent = -1 };
    w->ports = &r->ports;
    w->mailbox = &r->mailbox;
    r->run.schedule = rondo_schedule_find(c->coll, c->algo);
    r->run.open = &r->open;
    r->open = 1;
    rondo_run_begin(&r->run);
    if (r->world->fast_path >> (3 * number + r->rank) % 64 & 1) {
        rondo_status status = RONDO_SUCCESS;
        int ended = rondo_exec_cpu.publish(r->exec, &r->run)
                        ? rondo_exec_cpu.collect(r->exec, &r->run, 5, &status)
                        : 0;
        if (ended < 0) {
            snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d: the fast path gives %d", r->rank, number,
                     (int)status);
        }
        if (ended != 0) {
            r->open = 0;
            return;
        }
    }
    rondo_exec_cpu.submit(r->exec, &r->run, 1);
}

static inline void check(struct rank *r, const struct call *c, int number)
{
    for (size_t i = 0; i < MOST_COUNT && r->wrong[0] == '\0'; i++) {
        int32_t want = c->coll == RONDO_COLL_BROADCAST ? input(0, number, i) : 0;
        for (int q = 0; q < r->world->n && c->coll != RONDO_COLL_BROADCAST; q++) {
            want = (int32_t)((uint32_t)want + (uint32_t)input(q, number, i));
        }
        want = i < c->count && (c->coll != RONDO_COLL_REDUCE || r->rank == 0) ? want : 0x5a5a5a5a;
        if (r->out[i] != want) {
            snprintf(r->wrong, sizeof(r->wrong),
                     "rank %d, call %d (algorithm %d, protocol %d, count %zu): [%zu] is %d, not %d", r->rank,
                     number, (int)c->algo, (int)c->proto, c->count, i, r->out[i], want);
        }
    }
}

static inline int rank_step(struct rank *r, int *moved)
{
    struct world *w = r->world;
    rondo_status status;
    const struct edge *e = &w->edge[r->rank];
    if (r->open == 0 && e->far != NULL && e->carried != e->sender.step) {
        return 0; /* a call does not return before its data has left */
    }
    if (r->open == 0 && r->next_call > 0 && r->next_call <= w->ncalls) {
        check(r, &w->call[r->next_call - 1], r->next_call - 1);
    }
    if (r->open == 0) {
        if (r->next_call >= w->ncalls) {
            r->next_call = w->ncalls + 1;
            return 1;
        }
        submit(r, &w->call[r->next_call], r->next_call);
        r->next_call++;
        *moved = 1;
    }
    status = rondo_exec_cpu.progress(r->exec, moved);
    if (status != RONDO_SUCCESS && r->wrong[0] == '\0') {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d: progress gives %d", r->rank, (int)status);
    }
    return status != RONDO_SUCCESS;
}

static inline void assert_all_right(const struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        assert_string_equal(w->rank[i].wrong, "");
        assert_int_equal(w->rank[i].next_call, w->ncalls + 1);
    }
}

/* Ranks make progress at random, some rarely. A rank that is the only one able to move must move. */
static inline void run_interleaved(struct world *w, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull | 1;
    int idle = 0, done = 0;
    while (done != (1 << w->n) - 1) {
        int i = (int)(random_next(&state) % (uint64_t)w->n), burst = (int)(random_next(&state) % 5),
            moved = 0;
        for (int k = 0; k <= burst; k++) {
            done |= rank_step(&w->rank[i], &moved) << i;
        }
        carry_late(&w->edge[random_next(&state) % (uint64_t)w->n]);
        idle = moved ? 0 : idle + 1;
        assert_in_range(idle, 0, 1000); /* every rank was tried often, and none could move */
    }
    assert_all_right(w);
}

static inline void random_calls(struct world *w, int only_proto, uint64_t seed)
{
    uint64_t state = seed * 0xbf58476d1ce4e5b9ull | 1;
    w->ncalls = NCALLS;
    w->in_place = random_next(&state);
    for (int k = 0; k < NCALLS; k++) {
        struct call *c = &w->call[k];
        int proto = only_proto >= 0 ? only_proto : (int)(random_next(&state) % RONDO_NUM_PROTOS);
        c->algo = RONDO_ALGO_RING;
        c->proto = (enum rondo_proto)proto;
        c->coll = random_next(&state) % 4 == 0 ? RONDO_COLL_BROADCAST : RONDO_COLL_ALL_REDUCE;
        c->count = 1 + random_next(&state) % (random_next(&state) % 3 == 0
                                                  ? MOST_COUNT
                                                  : 6); /* short ones leave old flags behind */
    }
}

#endif
