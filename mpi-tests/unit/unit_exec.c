/*
 * The CPU executor alone: ranks over hand-made conns in plain memory, with running numbers preset near their wrap; turned in one thread in an order drawn from a seed,
 * or by a thread each.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "coll/algo.h"
#include "kern/exec.h"
#include "kern/proto.h"

enum { MOST_RANKS = 4, SLOT_BYTES = 256, MOST_COUNT = 1500, NCALLS = 40, STACK_BYTES = 1 << 20 };

/* An edge of the ring: one conn, both ends. */
struct edge {
    uint8_t *memory;
    struct rondo_conn_tail tail;
    struct rondo_conn_head head;
    struct rondo_conn sender, receiver;
    /* Carried by a proxy of ours: the receiver's own, and what was carried. */
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
    struct rondo_board board;
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
    uint64_t in_place; /* a bit per call */
    uint64_t quick;    /* ranks and calls that try to end at once; 0: none */
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void *zeroed(size_t bytes)
{
    void *memory = aligned_alloc(128, (bytes + 127) / 128 * 128);
    assert_non_null(memory);
    return memset(memory, 0, bytes);
}

static rondo_status on_mismatch(void *arg, int peer, const struct rondo_work *work, uint32_t got)
{
    struct rank *r = arg;
    (void)work;
    r->mismatch_peer = peer;
    r->mismatch_got = got;
    return RONDO_INVALID_USAGE;
}

/* Lines of LL that hold garbage under flags of the lap after the wrap: what was written there 2^32 steps before, had nobody cleaned it. */
static void fill_stale(uint8_t *slots)
{
    for (uint64_t slot = 0; slot < RONDO_SLOTS; slot++) {
        uint64_t *word = (uint64_t *)(void *)(slots + slot * SLOT_BYTES);
        for (size_t i = 0; i < SLOT_BYTES / 8; i++) {
            word[i] = rondo_ll_flag(slot) | 0xbadbad;
        }
    }
}

static void edge_init(struct world *w, int from, uint64_t step)
{
    struct edge *e = &w->edge[from];
    struct rondo_conn conn = { .tail = &e->tail, .head = &e->head, .step = step, .seen = step, .via = "memory" };
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

static struct world *world_new(int n, uint64_t step, uint32_t op)
{
    struct world *w = zeroed(sizeof(*w));
    w->n = n;
    w->places = zeroed(rondo_board_bytes(MOST_COUNT * 4, n));
    for (int i = 0; i < n; i++) {
        struct rank *r = &w->rank[i];
        r->world = w;
        r->rank = i;
        r->owner = (struct rondo_exec_owner){ .arg = r, .mismatch = on_mismatch };
        r->mismatch_peer = RONDO_NO_PEER;
        r->board = (struct rondo_board){ w->places, rondo_board_stride(MOST_COUNT * 4), MOST_COUNT * 4, i, n, op, op, op };
        assert_int_equal(rondo_exec_cpu.open(&r->exec, 2, n, &r->owner), RONDO_SUCCESS);
        edge_init(w, i, step);
    }
    return w;
}

static void world_free(struct world *w)
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

static void carry(struct world *w)
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

/* As late as can be: a slice is read where it lies when its receiver wants it, and only then its sender may go on. Slots of slices that lie elsewhere are left alone. */
static void carry_turn(struct edge *e)
{
    size_t slot = e->carried % RONDO_SLOTS, at = slot * SLOT_BYTES;
    if (e->far == NULL || !e->receiver.wanted || e->carried != e->receiver.step || e->carried == e->tail.tail) {
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

static size_t capacity(enum rondo_proto proto) { return rondo_proto_capacity(proto, SLOT_BYTES) / 4; }

static int32_t input(int rank, int call, size_t i) { return (int32_t)((unsigned)rank * 1000003u + (unsigned)call * 7919u + (unsigned)i); }

/* The rank enters a call of its list; root 0. */
static void submit(struct rank *r, const struct call *c, int number)
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
    w->chunk = c->algo == RONDO_ALGO_ONESHOT ? c->count : c->coll == RONDO_COLL_BROADCAST ? capacity(c->proto) : capacity(c->proto) * 3;
    w->seat = (struct rondo_seat){ .index = r->rank, .nranks = r->world->n, .parent = -1 };
    w->ports = &r->ports;
    w->board = &r->board;
    r->run.schedule = rondo_schedule_find(c->coll, c->algo);
    r->run.open = &r->open;
    r->open = 1;
    rondo_run_begin(&r->run);
    if (r->world->quick >> (3 * number + r->rank) % 64 & 1) {
        rondo_status status = RONDO_SUCCESS;
        int ended = rondo_exec_cpu.quick(r->exec, &r->run, 5, &status);
        if (ended < 0) {
            snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d: quick gives %d", r->rank, number, (int)status);
        }
        if (ended != 0) {
            r->open = 0;
            return;
        }
    }
    rondo_exec_cpu.submit(r->exec, &r->run, 1);
}

static void check(struct rank *r, const struct call *c, int number)
{
    for (size_t i = 0; i < MOST_COUNT && r->wrong[0] == '\0'; i++) {
        int32_t want = c->coll == RONDO_COLL_BROADCAST ? input(0, number, i) : 0;
        for (int q = 0; q < r->world->n && c->coll != RONDO_COLL_BROADCAST; q++) {
            want = (int32_t)((uint32_t)want + (uint32_t)input(q, number, i));
        }
        want = i < c->count && (c->coll != RONDO_COLL_REDUCE || r->rank == 0) ? want : 0x5a5a5a5a;
        if (r->out[i] != want) {
            snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d (algorithm %d, protocol %d, count %zu): [%zu] is %d, not %d", r->rank,
                     number, (int)c->algo, (int)c->proto, c->count, i, r->out[i], want);
        }
    }
}

/* One turn of one rank. @return 1: it has no calls left. */
static int turn(struct rank *r, int *moved)
{
    struct world *w = r->world;
    rondo_status status;
    const struct edge *e = &w->edge[r->rank];
    if (r->open == 0 && e->far != NULL && e->carried != e->sender.step) {
        return 0; /* a call does not return before what it sent has left */
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
    status = rondo_exec_cpu.turn(r->exec, moved);
    if (status != RONDO_SUCCESS && r->wrong[0] == '\0') {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d: turn gives %d", r->rank, (int)status);
    }
    return status != RONDO_SUCCESS;
}

static void assert_all_right(const struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        assert_string_equal(w->rank[i].wrong, "");
        assert_int_equal(w->rank[i].next_call, w->ncalls + 1);
    }
}

/* Ranks take turns at random, some for long: nobody may ever be the only one that can move and not move. */
static void run_interleaved(struct world *w, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull | 1;
    int idle = 0, done = 0;
    while (done != (1 << w->n) - 1) {
        int i = (int)(random_next(&state) % (uint64_t)w->n), burst = (int)(random_next(&state) % 5), moved = 0;
        for (int k = 0; k <= burst; k++) {
            done |= turn(&w->rank[i], &moved) << i;
        }
        carry_turn(&w->edge[random_next(&state) % (uint64_t)w->n]);
        idle = moved ? 0 : idle + 1;
        assert_in_range(idle, 0, 1000); /* each rank was asked often, and none could move */
    }
    assert_all_right(w);
}

static void random_calls(struct world *w, int only_proto, uint64_t seed)
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
        c->count = 1 + random_next(&state) % (random_next(&state) % 3 == 0 ? MOST_COUNT : 6); /* short ones leave old flags behind */
    }
}

/* ---- tests ---- */

static const uint64_t first_steps[] = { 0, 0x7fffffffull - 40, 0xffffffffull - 60, 0xffffffffull - 9, 0x1ffffffffull - 30, 0x100000000ull };

static void steps_may_wrap_with_every_protocol(void **state)
{
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(first_steps); s++) {
        for (int proto = -1; proto < RONDO_NUM_PROTOS; proto++) {
            for (uint64_t seed = 1; seed <= 12; seed++) {
                struct world *w = world_new(2 + (int)(seed % 3), first_steps[s], 0);
                random_calls(w, proto, seed);
                run_interleaved(w, seed);
                world_free(w);
            }
        }
    }
}

/* Slices stay in the user's memory as long as their proxy needs them there, and arrive there; the others, and those of other protocols, go through slots. */
static void slices_pass_by_slots_where_nothing_is_done_to_them(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world *w = world_new(2 + (int)(seed % 3), 0, 0);
        random_calls(w, seed % 2 ? RONDO_PROTO_SIMPLE : -1, seed);
        carry(w);
        run_interleaved(w, seed);
        world_free(w);
    }
}

/* All_reduce of n blocks of a slice each. Of a rank's 2n - 2 sends n - 2 are partial sums; of what it receives n - 1 blocks are done. In place or not. */
static void only_partial_sums_need_slots(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++) {
        struct world *w = world_new(n, 0, 0);
        w->ncalls = 1;
        w->call[0] = (struct call){ RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, (size_t)n * SLOT_BYTES / 4 };
        w->in_place = n == 3;
        carry(w);
        run_interleaved(w, (uint64_t)n);
        for (int i = 0; i < n; i++) {
            assert_int_equal(w->edge[i].carried, 2 * n - 2);
            assert_int_equal(w->edge[i].from_outside, n);
            assert_int_equal(w->edge[i].to_outside, n - 1);
        }
        world_free(w);
    }
}

/* What the first test would see if the wrap were not cared for: a stale line is taken for data. */
static void stale_lines_are_seen_without_the_cleaning(void **state)
{
    struct world *w = world_new(2, 0xffffffffull - 1, 0);
    struct rondo_conn *conn = &w->edge[0].receiver;
    (void)state;
    conn->step = 0x100000003ull;
    assert_int_equal(rondo_ll_wait(conn, 0, 4), 4);
    rondo_ll_clean(conn);
    assert_int_equal(rondo_ll_wait(conn, 0, 4), 0);
    world_free(w);
}

static void boards_may_wrap(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_BROADCAST, RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE };
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct world *w = world_new(3, 0, seed % 2 == 0 ? 0 : UINT32_MAX - (uint32_t)(seed % 9));
        uint64_t draw = seed | 1;
        w->ncalls = NCALLS;
        w->quick = seed % 3 == 0 ? 0 : random_next(&draw);
        for (int k = 0; k < NCALLS; k++) {
            enum rondo_coll coll = colls[random_next(&draw) % RONDO_COUNTOF(colls)];
            w->call[k] = (struct call){ RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, coll, 1 + random_next(&draw) % 40 };
        }
        run_interleaved(w, seed);
        world_free(w);
    }
}

static void *thread_main(void *arg)
{
    struct rank *r = arg;
    int moved, done = 0;
    while (!done) {
        moved = 0;
        done = turn(r, &moved);
        if (!moved) {
            sched_yield();
        }
    }
    return NULL;
}

static void ranks_may_be_threads(void **state)
{
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(first_steps); s++) {
        struct world *w = world_new(3, first_steps[s], UINT32_MAX - 2);
        pthread_t id[MOST_RANKS];
        random_calls(w, -1, s + 100);
        w->quick = s % 2 == 0 ? UINT64_MAX : 0;
        for (int k = 0; k < NCALLS; k += 5) {
            w->call[k] = (struct call){ RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 20 };
        }
        for (int i = 0; i < w->n; i++) {
            assert_int_equal(pthread_create(&id[i], NULL, thread_main, &w->rank[i]), 0);
        }
        for (int i = 0; i < w->n; i++) {
            pthread_join(id[i], NULL);
        }
        assert_all_right(w);
        world_free(w);
    }
}

static void turn_until_stuck(struct rank *r)
{
    int moved = 1;
    while (moved) {
        moved = 0;
        assert_int_equal(rondo_exec_cpu.turn(r->exec, &moved), RONDO_SUCCESS);
    }
}

static void describe_names_who_is_waited_for(void **state)
{
    static const char *const protos[] = { "ll", "ll128", "simple" };
    struct call all_reduce = { RONDO_ALGO_RING, RONDO_PROTO_LL, RONDO_COLL_ALL_REDUCE, 900 }, broadcast = all_reduce;
    char text[200] = "", want[64];
    int peer = 77;
    (void)state;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        struct world *w = world_new(3, 5, 0);
        struct rank *r = &w->rank[0];
        rondo_exec_cpu.describe(r->exec, text, sizeof(text), &peer);
        assert_int_equal(peer, RONDO_NO_PEER);
        all_reduce.proto = broadcast.proto = (enum rondo_proto)p;
        submit(r, &all_reduce, 0);
        turn_until_stuck(r);
        assert_true(rondo_exec_cpu.describe(r->exec, text, sizeof(text), &peer) > 0);
        assert_int_equal(peer, 2);
        snprintf(want, sizeof(want), "data from rank 2 (channel 0, %s, step 5)", protos[p]);
        assert_string_equal(text, want);
        rondo_exec_cpu.drop(r->exec);
        assert_int_equal(r->open, 0);
        assert_int_equal(rondo_exec_cpu.describe(r->exec, text, sizeof(text), &peer), 0);
        assert_int_equal(peer, RONDO_NO_PEER);
        world_free(w);

        w = world_new(3, 5, 0);
        broadcast.coll = RONDO_COLL_BROADCAST;
        submit(&w->rank[0], &broadcast, 0);
        turn_until_stuck(&w->rank[0]);
        assert_true(rondo_exec_cpu.describe(w->rank[0].exec, text, sizeof(text), &peer) > 0);
        assert_int_equal(peer, 1);
        snprintf(want, sizeof(want), "credit of rank 1 (channel 0, %s, step %d)", protos[p], 5 + RONDO_SLOTS);
        assert_string_equal(text, want);
        world_free(w);
    }
}

static void describe_names_the_missing_post_of_a_board(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 3 };
    struct world *w = world_new(4, 0, 0);
    char text[200] = "";
    int peer = 0;
    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            submit(&w->rank[i], &c, 0);
            turn_until_stuck(&w->rank[i]);
        }
    }
    turn_until_stuck(&w->rank[0]);
    assert_true(rondo_exec_cpu.describe(w->rank[0].exec, text, sizeof(text), &peer) > 0);
    assert_int_equal(peer, -1 - 2);
    assert_string_equal(text, "the post of local rank 2");
    world_free(w);
}

/* The last to come has nothing to wait for; one that comes before it has posted, and goes on in a lane. */
static void calls_of_the_board_can_end_at_once(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 20 },
                other = { RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 20 };
    struct world *w = world_new(3, 0, 0);
    (void)state;
    w->quick = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        submit(&w->rank[i], &c, 0);
        assert_int_equal(w->rank[i].open, i < 2);
    }
    for (int i = 0; i < 3; i++) {
        turn_until_stuck(&w->rank[i]);
        assert_int_equal(w->rank[i].open, 0);
        check(&w->rank[i], &c, 0);
        assert_string_equal(w->rank[i].wrong, "");
    }
    submit(&w->rank[0], &other, 1);
    assert_int_equal(w->rank[0].open, 1);
    world_free(w);
}

/* Who only posts goes on until its places are used up, and again once the others have come as far. */
static void one_for_all_waits_for_nobody_until_its_banks_are_used_up(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_BROADCAST, 5 };
    struct world *w = world_new(3, 0, UINT32_MAX - 2);
    char text[200] = "";
    int peer = 0;
    (void)state;
    for (int k = 0; k < RONDO_ROOTED_BANKS; k++) {
        submit(&w->rank[0], &c, k);
        turn_until_stuck(&w->rank[0]);
        assert_int_equal(w->rank[0].open, k == RONDO_ROOTED_BANKS - 1);
    }
    assert_true(rondo_exec_cpu.describe(w->rank[0].exec, text, sizeof(text), &peer) > 0);
    assert_int_equal(peer, -1 - 1);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(w->rank[0].open, 1);
        submit(&w->rank[i], &c, 0);
        turn_until_stuck(&w->rank[i]);
        assert_int_equal(w->rank[i].open, 0);
        check(&w->rank[i], &c, 0);
        assert_string_equal(w->rank[i].wrong, "");
        turn_until_stuck(&w->rank[0]);
    }
    assert_int_equal(w->rank[0].open, 0);
    world_free(w);
}

/* After drop nothing touches the runs any more, and the executor can be used for new ones. */
static void drop_forgets_runs(void **state)
{
    struct call c = { RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_BROADCAST, 1200 },
                alone = { RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_BROADCAST, 10 };
    struct world *w = world_new(2, 0, 0);
    struct rank *r = &w->rank[0];
    struct rondo_run *lost = zeroed(3 * sizeof(*lost));
    int open = 3, moved = 0;
    (void)state;
    submit(r, &c, 0);
    turn_until_stuck(r);
    for (int i = 0; i < 3; i++) {
        lost[i] = r->run;
        lost[i].open = &open;
        lost[i].lane = (uint32_t)i % 2;
        rondo_run_again(&lost[i]);
    }
    rondo_exec_cpu.submit(r->exec, lost, 3);
    assert_int_equal(rondo_exec_cpu.turn(r->exec, &moved), RONDO_SUCCESS);
    rondo_exec_cpu.drop(r->exec);
    assert_int_equal(open, 0);
    assert_int_equal(r->open, 0);
    free(lost);
    assert_int_equal(rondo_exec_cpu.turn(r->exec, &moved), RONDO_SUCCESS);
    w->edge[0].head.head = w->edge[0].sender.step; /* as if the peer had taken all */
    submit(r, &alone, 1);
    turn_until_stuck(r);
    assert_int_equal(r->open, 0);
    world_free(w);
}

static void another_call_word_is_told_before_data_is_touched(void **state)
{
    (void)state;
    for (int p = 0; p <= RONDO_NUM_PROTOS; p++) {
        int oneshot = p == RONDO_NUM_PROTOS, moved = 0;
        struct call ours = { oneshot ? RONDO_ALGO_ONESHOT : RONDO_ALGO_RING, oneshot ? RONDO_PROTO_SIMPLE : (enum rondo_proto)p,
                             RONDO_COLL_ALL_REDUCE, 100 },
                    theirs = ours;
        struct world *w = world_new(3, 0xfffffffeull, 0);
        struct rank *r = &w->rank[0];
        rondo_status status = RONDO_SUCCESS;
        theirs.count = 90;
        submit(&w->rank[2], &theirs, 0);
        turn_until_stuck(&w->rank[2]);
        submit(&w->rank[1], &ours, 0);
        turn_until_stuck(&w->rank[1]);
        submit(r, &ours, 0);
        for (int k = 0; k < 10 && status == RONDO_SUCCESS; k++) {
            status = rondo_exec_cpu.turn(r->exec, &moved);
        }
        assert_int_equal(status, RONDO_INVALID_USAGE);
        assert_int_equal(r->mismatch_peer, oneshot ? -1 - 2 : 2);
        assert_int_equal(r->mismatch_got, w->rank[2].run.work.call_word);
        for (size_t i = 0; i < MOST_COUNT; i++) {
            assert_int_equal(r->out[i], 0x5a5a5a5a);
        }
        rondo_exec_cpu.drop(r->exec);
        world_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_may_wrap_with_every_protocol),
        cmocka_unit_test(slices_pass_by_slots_where_nothing_is_done_to_them),
        cmocka_unit_test(only_partial_sums_need_slots),
        cmocka_unit_test(stale_lines_are_seen_without_the_cleaning),
        cmocka_unit_test(boards_may_wrap),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(describe_names_who_is_waited_for),
        cmocka_unit_test(describe_names_the_missing_post_of_a_board),
        cmocka_unit_test(calls_of_the_board_can_end_at_once),
        cmocka_unit_test(one_for_all_waits_for_nobody_until_its_banks_are_used_up),
        cmocka_unit_test(drop_forgets_runs),
        cmocka_unit_test(another_call_word_is_told_before_data_is_touched),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
