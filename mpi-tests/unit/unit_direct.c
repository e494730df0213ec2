/*
 * Two-shot and what it knows (kern/direct.h): ranks of a board with buffers that are open because they are threads of one process, because they lie in the heap, or by the kernel, and that are not; turned in
 * one thread in an order drawn from a seed, or by a thread each. Sums are of floats that do not add up exactly: the order of the ranks shows.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "coll/algo.h"
#include "coll/twoshot.h"
#include "kern/direct_impl.h"
#include "kern/exec.h"

enum { MOST_RANKS = 6, MOST_COUNT = 3000, NCALLS = 60, PLACE = 4 * MOST_COUNT * MOST_RANKS };

/* Where buffers are, and what has to come of it. */
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
    struct rondo_board board;
    struct rondo_direct *direct;
    struct rondo_run run[2]; /* two-shot, and one-shot, which carries an all_reduce where that may not */
    float *in, *out;
    int carried[3]; /* calls by verdict */
    char wrong[200];
};

struct world {
    int n, ncalls;
    enum memory memory;
    int only_in_place; /* the kernel copies nothing else */
    int apart;         /* local rank that is out of place in every call, plus 1; 0: none */
    struct rank rank[MOST_RANKS];
    uint8_t *places;
    size_t counts[MOST_RANKS], displs[MOST_RANKS];
    struct call call[NCALLS];
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
    (void)work, (void)got;
    r->mismatch_peer = peer;
    return RONDO_INVALID_USAGE;
}

static int in_heap(const struct rank *r) { return r->world->memory == HEAP || (r->world->memory == ONE_IS_ORDINARY && r->rank > 0); }

static float *buffer_new(const struct rank *r)
{
    void *memory;
    if (!in_heap(r)) {
        return zeroed(PLACE);
    }
    assert_int_equal(rondo_heap_alloc(&memory, PLACE), RONDO_SUCCESS);
    return memory;
}

static void buffer_free(const struct rank *r, float *memory)
{
    if (in_heap(r)) {
        assert_int_equal(rondo_heap_free(memory), RONDO_SUCCESS);
    } else {
        free(memory);
    }
}

static struct world *world_new(int n, enum memory memory)
{
    struct world *w = zeroed(sizeof(*w));
    int32_t pids[MOST_RANKS];
    w->n = n;
    w->memory = memory;
    w->places = zeroed(rondo_board_bytes(4 * MOST_COUNT, n));
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
        r->board = (struct rondo_board){ w->places, rondo_board_stride(4 * MOST_COUNT), 4 * MOST_COUNT, i, n, 0, 0, 0 };
        r->in = buffer_new(r);
        r->out = buffer_new(r);
        assert_int_equal(rondo_exec_cpu.open(&r->exec, 2, n, &r->owner), RONDO_SUCCESS);
        assert_int_equal(rondo_direct_open(&r->direct, &config), RONDO_SUCCESS);
    }
    return w;
}

static void world_free(struct world *w)
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

static float input(int rank, int call, size_t i) { return (float)((unsigned)(rank * 7919 + call * 104729) + (unsigned)i * 31) / 3.0f; }

static int gathers(const struct call *c) { return c->coll == RONDO_COLL_ALL_GATHER; }
static int scatters(const struct call *c) { return c->coll == RONDO_COLL_REDUCE_SCATTER; }

/* Elements of a rank's block, and where it lies among all. */
static size_t block_of(const struct world *w, const struct call *c, int rank) { return c->v ? w->counts[rank] % (c->count + 1) : c->count; }
static size_t place_of(const struct world *w, const struct call *c, int rank) { return c->v ? w->displs[rank] : (size_t)rank * c->count; }

static size_t extent_of(const struct world *w, const struct call *c)
{
    return gathers(c) || scatters(c) ? (c->v ? MOST_COUNT * MOST_RANKS : c->count * (size_t)w->n) : c->count;
}

static float *recv_of(const struct rank *r, const struct call *c)
{
    return scatters(c) && c->in_place ? r->in + place_of(r->world, c, r->rank) : r->out;
}
static const float *send_of(const struct rank *r, const struct call *c)
{
    return !c->in_place || scatters(c) || r->world->apart == r->rank + 1 ? r->in
                                                                         : r->out + (gathers(c) ? place_of(r->world, c, r->rank) : 0);
}

static void fill_work(struct rank *r, struct rondo_work *w, const struct call *c, int number, size_t *counts)
{
    struct world *world = r->world;
    w->coll = (uint8_t)c->coll;
    w->dtype = RONDO_FLOAT32;
    w->elem_bytes = 4;
    w->reduce = RONDO_REDUCE_SUM;
    w->divide = (uint8_t)c->divide;
    w->stream = number % 3 == 0;
    w->cma = world->memory != KERNEL ? RONDO_KERNEL_NEVER : world->only_in_place ? RONDO_KERNEL_IN_PLACE : RONDO_KERNEL_ALWAYS;
    w->seq = (uint64_t)number + 1;
    w->call_word = rondo_call_word(w->seq, c->count * 31 + (uint64_t)c->coll);
    w->in = (const uint8_t *)send_of(r, c);
    w->out = (uint8_t *)recv_of(r, c);
    w->block = w->len = c->count;
    w->counts = c->v ? counts : NULL;
    w->displs = c->v ? world->displs : NULL;
    w->seat = (struct rondo_seat){ .index = r->rank, .nranks = world->n, .root = c->root, .parent = -1 };
    w->board = &r->board;
    w->direct = r->direct;
}

static void submit(struct rank *r, const struct call *c, int number)
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
    r->run[1].gate = 1;
    r->open = c->coll == RONDO_COLL_ALL_REDUCE ? 2 : 1;
    for (int k = 0; k < r->open; k++) {
        r->run[k].schedule = rondo_schedule_find(c->coll, (enum rondo_algo)r->run[k].work.algo);
        r->run[k].open = &r->open;
        rondo_run_begin(&r->run[k]);
    }
    rondo_exec_cpu.submit(r->exec, r->run, r->open);
}

static float sum_at(const struct world *w, const struct call *c, int number, size_t i)
{
    volatile float sum = input(0, number, i);
    for (int q = 1; q < w->n; q++) {
        sum = sum + input(q, number, i);
    }
    return c->divide ? sum / (float)w->n : sum;
}

static void expect(struct rank *r, const struct call *c, int number, const float *got, size_t n, int from, size_t first)
{
    for (size_t i = 0; i < n && r->wrong[0] == '\0'; i++) {
        float want = from >= 0 ? input(from, number, i) : sum_at(r->world, c, number, first + i);
        if (memcmp(&got[i], &want, sizeof(want)) != 0) {
            snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d (%s of %zu, root %d, in place %d, v %d): [%zu] is %.9g, not %.9g",
                     r->rank, number, rondo_coll_name(c->coll), c->count, c->root, c->in_place, c->v, i, (double)got[i], (double)want);
        }
    }
}

/* The result, and behind it nothing that was not there before. */
static void check(struct rank *r, const struct call *c, int number)
{
    struct world *w = r->world;
    static const uint32_t untouched = 0x5a5a5a5a;
    r->carried[r->run[0].verdict]++;
    if (r->run[0].verdict == RONDO_FOR_OTHERS && c->coll != RONDO_COLL_ALL_REDUCE) {
        return;
    }
    switch (c->coll) {
    case RONDO_COLL_ALL_GATHER:
        for (int q = 0; q < w->n; q++) {
            expect(r, c, number, r->out + place_of(w, c, q), block_of(w, c, q), q, 0);
        }
        break;
    case RONDO_COLL_REDUCE_SCATTER: expect(r, c, number, recv_of(r, c), block_of(w, c, r->rank), -1, place_of(w, c, r->rank)); break;
    case RONDO_COLL_BROADCAST: expect(r, c, number, r->out, c->count, c->root, 0); break;
    case RONDO_COLL_REDUCE:
        if (r->rank == c->root) {
            expect(r, c, number, r->out, c->count, -1, 0);
        }
        break;
    default: expect(r, c, number, r->out, c->count, -1, 0); break;
    }
    if (!scatters(c) && r->wrong[0] == '\0' && memcmp(&r->out[extent_of(w, c)], &untouched, 4) != 0 && extent_of(w, c) * 4 < PLACE) {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d (%s of %zu): written behind the end", r->rank, number,
                 rondo_coll_name(c->coll), c->count);
    }
}

/* One turn of one rank. @return 1: it has no calls left. */
static int turn(struct rank *r, int *moved)
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
        if (in_heap(r) && r->next_call % 9 == 8) { /* memory comes and goes */
            buffer_free(r, r->out);
            r->out = buffer_new(r);
        }
        submit(r, &w->call[r->next_call], r->next_call);
        r->next_call++;
        *moved = 1;
    }
    status = rondo_exec_cpu.turn(r->exec, moved);
    if (status != RONDO_SUCCESS && r->wrong[0] == '\0') {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d: turn gives %d: %s", r->rank, (int)status, rondo_error_text());
    }
    return status != RONDO_SUCCESS;
}

static void random_calls(struct world *w, uint64_t seed)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_ALL_REDUCE, RONDO_COLL_REDUCE_SCATTER,
                                             RONDO_COLL_ALL_GATHER, RONDO_COLL_BROADCAST,  RONDO_COLL_REDUCE };
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
        c->divide = random_next(&state) % 4 == 0 && c->coll != RONDO_COLL_ALL_GATHER && c->coll != RONDO_COLL_BROADCAST;
        c->v = random_next(&state) % 3 == 0 && (gathers(c) || scatters(c));
    }
}

static void assert_all_right(const struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        int reached = w->memory != ORDINARY && w->memory != ONE_IS_ORDINARY;
        assert_string_equal(w->rank[i].wrong, "");
        assert_int_equal(w->rank[i].next_call, w->ncalls + 1);
        assert_int_equal(w->rank[i].carried[reached ? RONDO_DIRECT : RONDO_FOR_OTHERS] >= w->ncalls * (reached ? 1 : 0), 1);
        assert_int_equal(w->rank[i].carried[RONDO_DIRECT], w->rank[0].carried[RONDO_DIRECT]);
    }
}

static void run_interleaved(struct world *w, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull | 1;
    int idle = 0, done = 0;
    while (done != (1 << w->n) - 1) {
        int i = (int)(random_next(&state) % (uint64_t)w->n), burst = (int)(random_next(&state) % 5), moved = 0;
        for (int k = 0; k <= burst; k++) {
            done |= turn(&w->rank[i], &moved) << i;
        }
        idle = moved ? 0 : idle + 1;
        assert_in_range(idle, 0, 1000);
    }
    assert_all_right(w);
}

/* ---- tests ---- */

static void results_are_of_rank_order_whatever_the_memory(void **state)
{
    (void)state;
    for (int memory = 0; memory < NUM_MEMORIES; memory++) {
        for (uint64_t seed = 1; seed <= 12; seed++) {
            struct world *w = world_new(2 + (int)(seed % (MOST_RANKS - 1)), (enum memory)memory);
            random_calls(w, seed);
            run_interleaved(w, seed);
            world_free(w);
        }
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
    for (int memory = 0; memory < NUM_MEMORIES; memory++) {
        struct world *w = world_new(3, (enum memory)memory);
        pthread_t id[MOST_RANKS];
        random_calls(w, (uint64_t)memory + 77);
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
    struct call c = { .coll = RONDO_COLL_ALL_REDUCE, .count = 100 };
    struct world *w = world_new(4, ONE_PROCESS);
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
    for (int i = 0; i < 4; i++) {
        rondo_exec_cpu.drop(w->rank[i].exec);
    }
    world_free(w);
}

static void calls_that_differ_are_seen(void **state)
{
    struct call ours = { .coll = RONDO_COLL_ALL_REDUCE, .count = 100 }, theirs = { .coll = RONDO_COLL_BROADCAST, .count = 100 };
    struct world *w = world_new(2, ONE_PROCESS);
    int moved = 0;
    (void)state;
    submit(&w->rank[1], &theirs, 0);
    turn_until_stuck(&w->rank[1]);
    submit(&w->rank[0], &ours, 0);
    assert_int_equal(rondo_exec_cpu.turn(w->rank[0].exec, &moved), RONDO_INVALID_USAGE);
    assert_int_equal(w->rank[0].mismatch_peer, -1 - 1);
    world_free(w);
}

static int32_t dead_process(void)
{
    int status;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return (int32_t)child;
}

/* One rank cannot: then nobody does, and the call is made all the same. */
static void where_one_may_not_nobody_does(void **state)
{
    struct world *w = world_new(3, KERNEL);
    (void)state;
    w->rank[1].direct->pids[2] = dead_process();
    w->ncalls = 5;
    for (int k = 0; k < w->ncalls; k++) {
        w->call[k] = (struct call){ .coll = RONDO_COLL_ALL_REDUCE, .count = 500 };
    }
    for (int done = 0; done != 7;) {
        for (int i = 0; i < 3; i++) {
            int moved = 0;
            done |= turn(&w->rank[i], &moved) << i;
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_string_equal(w->rank[i].wrong, "");
        assert_int_equal(w->rank[i].carried[RONDO_FOR_OTHERS], 5);
        assert_int_equal(w->rank[i].direct->cma, RONDO_CMA_REFUSED);
    }
    world_free(w);
}

/* In place on all ranks: where that decides; calls out of place between them do not make ranks ask less. */
static void where_only_calls_in_place_pay_all_ranks_are(void **state)
{
    (void)state;
    for (int apart = 0; apart < 3; apart++) {
        struct world *w = world_new(3, KERNEL);
        w->only_in_place = 1;
        w->apart = apart;
        w->ncalls = NCALLS;
        for (int k = 0; k < w->ncalls; k++) {
            w->call[k] = (struct call){ .coll = RONDO_COLL_ALL_REDUCE, .count = 500, .in_place = k % 8 == 7 };
        }
        for (int done = 0; done != 7;) {
            for (int i = 0; i < 3; i++) {
                int moved = 0;
                done |= turn(&w->rank[i], &moved) << i;
            }
        }
        for (int i = 0; i < 3; i++) {
            assert_string_equal(w->rank[i].wrong, "");
            assert_int_equal(w->rank[i].carried[RONDO_DIRECT], apart == 0 ? NCALLS / 8 : 0);
        }
        world_free(w);
    }
}

/* A peer that is gone when its memory is wanted. */
static void a_process_that_ended_is_an_error(void **state)
{
    struct call c = { .coll = RONDO_COLL_ALL_REDUCE, .count = 500 };
    struct world *w = world_new(2, KERNEL);
    rondo_status status = RONDO_SUCCESS;
    int moved = 1;
    (void)state;
    for (int i = 0; i < 2; i++) {
        w->rank[i].direct->cma = RONDO_CMA_WORKS;
        w->rank[i].direct->scratch = zeroed(1 << 20);
    }
    w->rank[0].direct->pids[1] = dead_process();
    submit(&w->rank[0], &c, 0);
    submit(&w->rank[1], &c, 0);
    turn_until_stuck(&w->rank[0]);
    (void)rondo_exec_cpu.turn(w->rank[1].exec, &moved);
    while (status == RONDO_SUCCESS && moved) {
        moved = 0;
        status = rondo_exec_cpu.turn(w->rank[0].exec, &moved);
    }
    assert_int_equal(status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "local rank 1"));
    world_free(w);
}

/* One rank of two processes with memory of its own, to the end of its calls. @return 0: all was right, and carried so. */
static int run_alone(struct world *w, int rank, enum rondo_verdict verdict)
{
    struct rank *r = &w->rank[rank];
    int moved = 0;
    w->memory = HEAP;
    r->in = buffer_new(r);
    r->out = buffer_new(r);
    while (!turn(r, &moved)) {
        sched_yield();
    }
    if (r->wrong[0] != '\0') {
        fprintf(stderr, "%s\n", r->wrong);
    }
    return r->wrong[0] != '\0' || r->carried[verdict] != w->ncalls;
}

static void two_processes(int refused)
{
    struct world *w = world_new(2, ORDINARY);
    enum rondo_verdict verdict = refused ? RONDO_FOR_OTHERS : RONDO_DIRECT;
    size_t bytes = rondo_board_bytes(4 * MOST_COUNT, 2);
    uint8_t *places = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    float *ordinary[2] = { w->rank[0].in, w->rank[0].out };
    struct rlimit old, none;
    int status;
    pid_t child;
    assert_true(places != MAP_FAILED);
    w->rank[0].board.places = w->rank[1].board.places = places;
    w->ncalls = 20;
    for (int k = 0; k < w->ncalls; k++) {
        w->call[k] = (struct call){ .coll = RONDO_COLL_ALL_REDUCE, .count = 100 + (size_t)k * 91, .in_place = k % 2 };
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(run_alone(w, 1, verdict));
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3; /* what is allocated below was there before: only peers' segments cannot be opened */
    {
        void *kept;
        assert_int_equal(rondo_heap_alloc(&kept, PLACE), RONDO_SUCCESS);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, refused ? &none : &old), 0);
        assert_int_equal(run_alone(w, 0, verdict), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(rondo_heap_free(kept), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_segments_mapped(), refused ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    buffer_free(&w->rank[0], w->rank[0].in);
    buffer_free(&w->rank[0], w->rank[0].out);
    w->memory = ORDINARY;
    w->rank[0].in = ordinary[0];
    w->rank[0].out = ordinary[1];
    world_free(w);
    assert_int_equal(rondo_segments_mapped(), 0);
    munmap(places, bytes);
}

static void processes_map_one_anothers_memory(void **state)
{
    (void)state;
    two_processes(0);
}

static void what_one_process_cannot_map_is_for_others(void **state)
{
    (void)state;
    two_processes(1);
}

/* What is refused again and again is asked about less and less, but never never; once it is granted, always. */
static void who_is_refused_asks_less(void **state)
{
    struct rondo_direct_kind kind = { 0 };
    int asked = 0, gap = 0, longest = 0;
    (void)state;
    for (int call = 0; call < 2000; call++) {
        if (rondo_direct_asks(&kind)) {
            rondo_direct_learn(&kind, 1);
            asked++;
            gap = 0;
        }
        longest = ++gap > longest ? gap : longest;
        assert_true(call >= 4 || asked == call + 1);
    }
    assert_in_range(asked, 20, 60);
    assert_int_equal(longest, 65);
    while (!rondo_direct_asks(&kind)) {
    }
    rondo_direct_learn(&kind, 0);
    for (int call = 0; call < 100; call++) {
        assert_true(rondo_direct_asks(&kind));
        rondo_direct_learn(&kind, 0);
    }
}

/* The table forgets what was not used for longest, and is the same for whoever was told the same. */
static void the_table_is_bounded_and_the_same(void **state)
{
    struct rondo_direct_config config = { .nlocal = 2, .index = 0 };
    struct rondo_direct *a, *b;
    (void)state;
    assert_int_equal(rondo_direct_open(&a, &config), RONDO_SUCCESS);
    config.index = 1;
    assert_int_equal(rondo_direct_open(&b, &config), RONDO_SUCCESS);
    for (uint64_t id = 1; id <= 1000; id++) {
        struct rondo_segment_note note = { .id = id };
        a->ncalls++;
        b->ncalls++;
        rondo_direct_touch(a, 5);
        rondo_direct_touch(b, 5);
        assert_null(rondo_direct_known(a, id));
        (void)rondo_direct_known(a, id / 2 + 1); /* who merely looks changes nothing */
        rondo_direct_remember(a, &note, NULL, 0);
        rondo_direct_remember(b, &note, NULL, 0);
        assert_non_null(rondo_direct_known(a, id));
    }
    assert_non_null(rondo_direct_known(a, 5));
    for (uint64_t id = 1; id <= 1000; id++) {
        assert_int_equal(rondo_direct_known(a, id) != NULL, id == 5 || id > 1000 - (uint64_t)a->nknown + 1);
        assert_int_equal(rondo_direct_known(a, id) != NULL, rondo_direct_known(b, id) != NULL);
    }
    rondo_direct_close(a);
    rondo_direct_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_of_rank_order_whatever_the_memory),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(describe_names_who_is_waited_for),
        cmocka_unit_test(calls_that_differ_are_seen),
        cmocka_unit_test(processes_map_one_anothers_memory),
        cmocka_unit_test(what_one_process_cannot_map_is_for_others),
        cmocka_unit_test(where_one_may_not_nobody_does),
        cmocka_unit_test(where_only_calls_in_place_pay_all_ranks_are),
        cmocka_unit_test(a_process_that_ended_is_an_error),
        cmocka_unit_test(who_is_refused_asks_less),
        cmocka_unit_test(the_table_is_bounded_and_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
