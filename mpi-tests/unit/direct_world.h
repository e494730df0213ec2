/* Ranks on a mailbox whose buffers are accessible because they are threads of one process, because the memory
 * lies in the heap, or by the kernel; or that are not accessible. One thread runs them in an order drawn from
 * a seed, or each has a thread. Sums of floats round, so that the order of the ranks shows. */
#ifndef DIRECT_WORLD_H
#define DIRECT_WORLD_H

#include "exec_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "coll/algo.h"
#include "coll/twoshot.h"
#include "kern/direct_impl.h"

enum { MOST_RANKS = 6, MOST_COUNT = 3000, NCALLS = 60, PLACE = 4 * MOST_COUNT * MOST_RANKS };

/* Where buffers are, which decides whether access is direct. */
enum memory { ONE_PROCESS, HEAP, KERNEL, ORDINARY, ONE_IS_ORDINARY, NUM_MEMORIES };

struct call {
    enum rondo_coll coll;
    size_t count; /* of a rank's block */
    int root, in_place, divide, v;
};

struct rank {
    struct world *world;
    int rank, next_call, open, mismatch_peer;
    struct rondo_exec *exec;
    struct rondo_exec_owner owner;
    struct rondo_mailbox mailbox;
    struct rondo_direct *direct;
    struct rondo_run run[2]; /* two-shot, and one-shot, which is the fallback of an all_reduce */
    float *in, *out;
    int carried[3]; /* number of calls by verdict */
    char wrong[200];
};

struct world {
    int n, ncalls;
    enum memory memory;
    int only_in_place; /* CMA only for calls in place */
    int only_apart;    /* CMA only for the others */
    int way_apart;     /* enum rondo_apart */
    int apart;         /* local rank that is out of place in every call, plus 1; 0: none */
    struct rank rank[MOST_RANKS];
    uint8_t *places;
    size_t counts[MOST_RANKS], displs[MOST_RANKS];
    struct call call[NCALLS];
};

static inline rondo_status on_mismatch(void *arg, int peer, const struct rondo_work *work, uint32_t got)
{
    struct rank *r = arg;
    (void)work, (void)got;
    r->mismatch_peer = peer;
    return RONDO_INVALID_USAGE;
}

static inline int in_heap(const struct rank *r)
{
    return r->world->memory == HEAP || (r->world->memory == ONE_IS_ORDINARY && r->rank > 0);
}

static inline float *buffer_new(const struct rank *r)
{
    void *memory;
    if (!in_heap(r)) {
        return zeroed(PLACE);
    }
    assert_int_equal(rondo_heap_alloc(&memory, PLACE), RONDO_SUCCESS);
    return memory;
}

static inline void buffer_free(const struct rank *r, float *memory)
{
    if (in_heap(r)) {
        assert_int_equal(rondo_heap_free(memory), RONDO_SUCCESS);
    } else {
        free(memory);
    }
}

static inline struct world *world_new(int n, enum memory memory)
{
    struct world *w = zeroed(sizeof(*w));
    int32_t pids[MOST_RANKS];
    w->n = n;
    w->memory = memory;
    w->places = zeroed(rondo_mailbox_bytes(4 * MOST_COUNT, n));
    for (int i = 0; i < n; i++) {
        struct rank *r = &w->rank[i];
        struct rondo_direct_config config = { .nlocal = n, .index = i, .one_process = memory == ONE_PROCESS };
        config.pids = memory == KERNEL ? pids : NULL;
        for (int q = 0; q < n; q++) {
            pids[q] = (int32_t)getpid();
        }
        r->world = w;
        r->rank = i;
        r->owner = (struct rondo_exec_owner){ .arg = r, .mismatch = on_mismatch };
        r->mismatch_peer = RONDO_NO_PEER;
        r->mailbox = (struct rondo_mailbox){
            w->places, rondo_mailbox_stride(4 * MOST_COUNT), 4 * MOST_COUNT, i, n, 0, 0, 0
        };
        r->in = buffer_new(r);
        r->out = buffer_new(r);
        assert_int_equal(rondo_exec_cpu.open(&r->exec, 2, n, &r->owner), RONDO_SUCCESS);
        assert_int_equal(rondo_direct_open(&r->direct, &config), RONDO_SUCCESS);
    }
    return w;
}

static inline void world_free(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        struct rank *r = &w->rank[i];
        rondo_exec_cpu.close(r->exec);
        rondo_direct_close(r->direct);
        buffer_free(r, r->in);
        buffer_free(r, r->out);
    }
    free(w->places);
    free(w);
}

/* ---- calls ---- */

static inline float input(int rank, int call, size_t i)
{
    return (float)((unsigned)(rank * 7919 + call * 104729) + (unsigned)i * 31) / 3.0f;
}

static inline int gathers(const struct call *c) { return c->coll == RONDO_COLL_ALL_GATHER; }
static inline int scatters(const struct call *c) { return c->coll == RONDO_COLL_REDUCE_SCATTER; }

/* Elements of a rank's block, and its place among all. */
static inline size_t block_of(const struct world *w, const struct call *c, int rank)
{
    return c->v ? w->counts[rank] % (c->count + 1) : c->count;
}
static inline size_t place_of(const struct world *w, const struct call *c, int rank)
{
    return c->v ? w->displs[rank] : (size_t)rank * c->count;
}

static inline size_t extent_of(const struct world *w, const struct call *c)
{
    return gathers(c) || scatters(c) ? (c->v ? MOST_COUNT * MOST_RANKS : c->count * (size_t)w->n) : c->count;
}

static inline float *recv_of(const struct rank *r, const struct call *c)
{
    return scatters(c) && c->in_place ? r->in + place_of(r->world, c, r->rank) : r->out;
}
static const float *send_of(const struct rank *r, const struct call *c)
{
    return !c->in_place || scatters(c) || r->world->apart == r->rank + 1
               ? r->in
               : r->out + (gathers(c) ? place_of(r->world, c, r->rank) : 0);
}

static inline void fill_work(struct rank *r, struct rondo_work *w, const struct call *c, int number,
                             size_t *counts)
{
    struct world *world = r->world;
    w->coll = (uint8_t)c->coll;
    w->dtype = RONDO_FLOAT32;
    w->elem_bytes = 4;
    w->reduce = RONDO_REDUCE_SUM;
    w->divide = (uint8_t)c->divide;
    w->stream = number % 3 == 0 && world->way_apart == RONDO_APART_DEFAULT;
    w->apart = (uint8_t)world->way_apart & 15;
    w->cma = world->memory != KERNEL ? RONDO_KERNEL_NEVER
             : world->only_in_place  ? RONDO_KERNEL_IN_PLACE
             : world->only_apart     ? RONDO_KERNEL_APART
                                     : RONDO_KERNEL_ALWAYS;
    w->seq = (uint64_t)number + 1;
    w->call_word = rondo_call_word(w->seq, c->count * 31 + (uint64_t)c->coll);
    w->in = (const uint8_t *)send_of(r, c);
    w->out = (uint8_t *)recv_of(r, c);
    w->block = w->len = c->count;
    w->counts = c->v ? counts : NULL;
    w->displs = c->v ? world->displs : NULL;
    w->seat = (struct rondo_seat){ .index = r->rank, .nranks = world->n, .root = c->root, .parent = -1 };
    w->mailbox = &r->mailbox;
    w->direct = r->direct;
}

static inline void submit(struct rank *r, const struct call *c, int number)
{
    static _Thread_local size_t counts[MOST_RANKS][MOST_RANKS];
    struct world *w = r->world;
    size_t n = (size_t)w->n, share = (c->count + n - 1) / n;
    float *send = (float *)(uintptr_t)send_of(r, c);
    memset(r->run, 0, sizeof(r->run));
    memset(r->in, 0x5a, PLACE);
    memset(r->out, 0x5a, PLACE);
    for (int q = 0; q < w->n; q++) {
        counts[r->rank][q] = block_of(w, c, q);
    }
    for (size_t i = 0; i < (scatters(c) ? extent_of(w, c) : block_of(w, c, r->rank)); i++) {
        send[i] = input(r->rank, number, i);
    }
    fill_work(r, &r->run[0].work, c, number, counts[r->rank]);
    fill_work(r, &r->run[1].work, c, number, counts[r->rank]);
    r->run[0].work.algo = RONDO_ALGO_TWOSHOT;
    r->run[0].work.chunk = gathers(c) || scatters(c) ? c->count : rondo_round_up(share, 16);
    r->run[1].work.algo = RONDO_ALGO_ONESHOT;
    r->run[1].work.chunk = c->count;
    r->run[1].fallback_of = &r->run[0];
    r->open = c->coll == RONDO_COLL_ALL_REDUCE ? 2 : 1;
    for (int k = 0; k < r->open; k++) {
        r->run[k].schedule = rondo_schedule_find(c->coll, (enum rondo_algo)r->run[k].work.algo);
        r->run[k].open = &r->open;
        rondo_run_begin(&r->run[k]);
    }
    rondo_exec_cpu.submit(r->exec, r->run, r->open);
}

static inline float sum_at(const struct world *w, const struct call *c, int number, size_t i)
{
    volatile float sum = input(0, number, i);
    for (int q = 1; q < w->n; q++) {
        sum = sum + input(q, number, i);
    }
    return c->divide ? sum / (float)w->n : sum;
}

static inline void expect(struct rank *r, const struct call *c, int number, const float *got, size_t n,
                          int from, size_t first)
{
    for (size_t i = 0; i < n && r->wrong[0] == '\0'; i++) {
        float want = from >= 0 ? input(from, number, i) : sum_at(r->world, c, number, first + i);
        if (memcmp(&got[i], &want, sizeof(want)) != 0) {
            snprintf(r->wrong, sizeof(r->wrong),
                     "rank %d, call %d (%s of %zu, root %d, in place %d, v %d): [%zu] is %.9g, not %.9g",
                     r->rank, number, rondo_coll_name(c->coll), c->count, c->root, c->in_place, c->v, i,
                     (double)got[i], (double)want);
        }
    }
}

/* Check the result, and that nothing else was written. */
static inline void check(struct rank *r, const struct call *c, int number)
{
    struct world *w = r->world;
    static const uint32_t untouched = 0x5a5a5a5a;
    r->carried[r->run[0].verdict]++;
    if (r->run[0].verdict == RONDO_NOT_DIRECT && c->coll != RONDO_COLL_ALL_REDUCE) {
        return;
    }
    switch (c->coll) {
    case RONDO_COLL_ALL_GATHER:
        for (int q = 0; q < w->n; q++) {
            expect(r, c, number, r->out + place_of(w, c, q), block_of(w, c, q), q, 0);
        }
        break;
    case RONDO_COLL_REDUCE_SCATTER:
        expect(r, c, number, recv_of(r, c), block_of(w, c, r->rank), -1, place_of(w, c, r->rank));
        break;
    case RONDO_COLL_BROADCAST: expect(r, c, number, r->out, c->count, c->root, 0); break;
    case RONDO_COLL_REDUCE:
        if (r->rank == c->root) {
            expect(r, c, number, r->out, c->count, -1, 0);
        }
        break;
    default: expect(r, c, number, r->out, c->count, -1, 0); break;
    }
    if (!scatters(c) && r->wrong[0] == '\0' && memcmp(&r->out[extent_of(w, c)], &untouched, 4) != 0 &&
        extent_of(w, c) * 4 < PLACE) {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d (%s of %zu): written behind the end", r->rank,
                 number, rondo_coll_name(c->coll), c->count);
    }
}

static inline int rank_step(struct rank *r, int *moved)
{
    struct world *w = r->world;
    rondo_status status;
    if (r->open == 0 && r->next_call > 0 && r->next_call <= w->ncalls) {
        check(r, &w->call[r->next_call - 1], r->next_call - 1);
    }
    if (r->open == 0) {
        if (r->next_call >= w->ncalls) {
            r->next_call = w->ncalls + 1;
            return 1;
        }
        if (in_heap(r) && r->next_call % 9 == 8) { /* allocations come and go */
            buffer_free(r, r->out);
            r->out = buffer_new(r);
        }
        submit(r, &w->call[r->next_call], r->next_call);
        r->next_call++;
        *moved = 1;
    }
    status = rondo_exec_cpu.progress(r->exec, moved);
    if (status != RONDO_SUCCESS && r->wrong[0] == '\0') {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d: progress gives %d: %s", r->rank, (int)status,
                 rondo_error_text());
    }
    return status != RONDO_SUCCESS;
}

static inline void random_calls(struct world *w, uint64_t seed)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE,     RONDO_COLL_ALL_REDUCE,
                                             RONDO_COLL_REDUCE_SCATTER, RONDO_COLL_ALL_GATHER,
                                             RONDO_COLL_BROADCAST,      RONDO_COLL_REDUCE };
    uint64_t state = seed * 0xbf58476d1ce4e5b9ull | 1;
    size_t end = 0;
    w->ncalls = NCALLS;
    for (int q = 0; q < w->n; q++) {
        w->counts[q] = random_next(&state) % (MOST_COUNT - 40);
        w->displs[q] = end + random_next(&state) % 20;
        end = w->displs[q] + MOST_COUNT - 40;
    }
    for (int k = 0; k < NCALLS; k++) {
        struct call *c = &w->call[k];
        c->coll = colls[random_next(&state) % RONDO_COUNTOF(colls)];
        c->count = 1 + random_next(&state) % (random_next(&state) % 2 == 0 ? MOST_COUNT - 50 : 40);
        c->root = (int)(random_next(&state) % (uint64_t)w->n);
        c->in_place = random_next(&state) % 2 == 0;
        c->divide = random_next(&state) % 4 == 0 && c->coll != RONDO_COLL_ALL_GATHER &&
                    c->coll != RONDO_COLL_BROADCAST;
        c->v = random_next(&state) % 3 == 0 && (gathers(c) || scatters(c));
    }
}

static inline void assert_all_right(const struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        int reached = w->memory != ORDINARY && w->memory != ONE_IS_ORDINARY;
        assert_string_equal(w->rank[i].wrong, "");
        assert_int_equal(w->rank[i].next_call, w->ncalls + 1);
        assert_int_equal(w->rank[i].carried[reached ? RONDO_DIRECT : RONDO_NOT_DIRECT] >=
                             w->ncalls * (reached ? 1 : 0),
                         1);
        assert_int_equal(w->rank[i].carried[RONDO_DIRECT], w->rank[0].carried[RONDO_DIRECT]);
    }
}

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
        idle = moved ? 0 : idle + 1;
        assert_in_range(idle, 0, 1000);
    }
    assert_all_right(w);
}

/* Run all ranks in turn; the caller checks the results. */
static inline void run_in_order(struct world *w)
{
    for (int done = 0; done != (1 << w->n) - 1;) {
        for (int i = 0; i < w->n; i++) {
            int moved = 0;
            done |= rank_step(&w->rank[i], &moved) << i;
        }
    }
}

#endif
