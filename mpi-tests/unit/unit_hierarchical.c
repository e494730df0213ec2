/* Hierarchical two-shot (coll/hierarchical.h). Simulated: the bytes between groups are the least possible. In
 * the executor: ranks on a mailbox, in groups of all kinds, with direct access; one thread runs them in an
 * order drawn from a seed, or each has a thread. Results must have the bits of the groups' order of reduction
 * on every rank, and a rank that leaves in the middle has its buffers to itself. RONDO_TEST_SEED repeats a
 * run. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "coll/hierarchical.h"
#include "kern/direct_impl.h"
#include "kern/exec.h"
#include "kern/reduce.h"
#include "node_job.h"
#include "sim.h"

enum {
    MOST_RANKS = 16,
    BYTES = 64 << 10,
    PLACE = 512,
    SCRATCH = MOST_RANKS << 16,
    CHUNK_LINES = 2,
    MOST_CALLS = 40,
    CORES = 64
};

/* Ranks in an order, and where groups end (layout/group_tree.h). */
struct groups {
    int n, nlevels;
    int32_t rank_at[MOST_RANKS];
    uint8_t cut[MOST_RANKS];
};

static const struct groups shapes[] = {
    { 6, 1, { 0, 1, 2, 3, 4, 5 }, { 0, 0, 1, 0, 1, 0 } },
    { 6, 1, { 3, 0, 5, 1, 4, 2 }, { 0, 1, 0, 0, 1, 0 } },
    { 7, 1, { 0, 1, 2, 3, 4, 5, 6 }, { 0, 0, 0, 0, 0, 1, 0 } },
    { 9, 2, { 8, 7, 6, 5, 4, 3, 2, 1, 0 }, { 0, 0, 0, 2, 0, 1, 0, 0, 0 } },
    { 12, 2, { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, { 0, 0, 2, 0, 2, 0, 1, 0, 2, 0, 2, 0 } },
    { 16,
      3,
      { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
      { 0, 0, 3, 0, 2, 0, 3, 0, 1, 0, 3, 0, 2, 0, 3, 0 } },
};

struct call {
    rondo_dtype dtype;
    enum rondo_reduce reduce;
    size_t count;
    int in_place, divide;
};

struct world;

struct rank {
    struct world *world;
    int rank, next_call, open;
    struct rondo_exec *exec;
    struct rondo_exec_owner owner;
    struct rondo_mailbox mailbox;
    struct rondo_direct *direct;
    struct rondo_run run;
    uint8_t *in, *out, *kept; /* kept: a copy of its input */
    char wrong[160];
};

struct world {
    const struct groups *groups;
    struct rondo_nest *nest;
    uint8_t *places;
    int ncalls;
    struct call call[MOST_CALLS];
    uint8_t *expected[MOST_CALLS];
    struct rank rank[MOST_RANKS];
};

static uint64_t seed;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % below;
}

static void *pages(void)
{
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static rondo_status on_mismatch(void *arg, int peer, const struct rondo_work *work, uint32_t got)
{
    (void)arg, (void)peer, (void)work, (void)got;
    return RONDO_INVALID_USAGE;
}

static struct world *world_new(const struct groups *groups, enum rondo_reach reach)
{
    struct world *w = calloc(1, sizeof(*w));
    int32_t pids[MOST_RANKS];
    assert_non_null(w);
    w->groups = groups;
    w->places = aligned_alloc(RONDO_CTRL_ALIGN, rondo_mailbox_bytes(PLACE, groups->n));
    assert_non_null(w->places);
    memset(w->places, 0, rondo_mailbox_bytes(PLACE, groups->n));
    assert_int_equal(rondo_nest_create(&w->nest, groups->n, groups->rank_at, groups->cut, groups->nlevels),
                     RONDO_SUCCESS);
    for (int i = 0; i < groups->n; i++) {
        pids[i] = (int32_t)getpid();
    }
    for (int i = 0; i < groups->n; i++) {
        struct rank *r = &w->rank[i];
        struct rondo_direct_config config = {
            .nlocal = groups->n, .index = i, .pids = pids, .nest = w->nest
        };
        config.one_process = reach == RONDO_REACH_MAPPED;
        r->world = w;
        r->rank = i;
        r->owner = (struct rondo_exec_owner){ .arg = r, .mismatch = on_mismatch };
        r->mailbox = (struct rondo_mailbox){
            .places = w->places, .stride = rondo_mailbox_stride(PLACE), .capacity = PLACE, .index = i
        };
        r->mailbox.nranks = groups->n;
        r->in = pages();
        r->out = pages();
        r->kept = pages();
        assert_int_equal(rondo_exec_cpu.open(&r->exec, 1, groups->n, &r->owner), RONDO_SUCCESS);
        assert_int_equal(rondo_direct_open(&r->direct, &config), RONDO_SUCCESS);
    }
    return w;
}

static void rank_gives_back(struct rank *r)
{
    if (r->in != NULL) {
        munmap(r->in, BYTES);
        munmap(r->out, BYTES);
    }
    r->in = r->out = NULL;
}

static void world_free(struct world *w)
{
    for (int i = 0; i < w->groups->n; i++) {
        rondo_exec_cpu.close(w->rank[i].exec);
        rondo_direct_close(w->rank[i].direct);
        rank_gives_back(&w->rank[i]);
        munmap(w->rank[i].kept, BYTES);
    }
    for (int k = 0; k < w->ncalls; k++) {
        free(w->expected[k]);
    }
    rondo_nest_destroy(w->nest);
    free(w->places);
    free(w);
}

/* ---- calls ---- */

static size_t bytes_of(const struct call *c) { return c->count * rondo_dtype_size(c->dtype); }

/* Numbers of either sign whose float sums round, and small enough that no product is infinite. */
static void fill(uint8_t *to, const struct call *c, int number, int rank)
{
    uint64_t state = seed + (uint64_t)number * 977 + (uint64_t)rank;
    for (size_t i = 0; i < c->count; i++) {
        int64_t drawn = (int64_t)draw(&state, 21) - 10;
        if (c->dtype == RONDO_FLOAT32) {
            ((float *)(void *)to)[i] = (float)drawn / 3.0f;
        } else if (c->dtype == RONDO_FLOAT64) {
            ((double *)(void *)to)[i] = (double)drawn / 3.0;
        } else if (c->dtype == RONDO_INT64) {
            ((int64_t *)(void *)to)[i] = drawn;
        } else {
            to[i] = (uint8_t)drawn;
        }
    }
}

/* The expected result of the positions from `begin` on that are in one group of a level. */
static void expect_group(const struct world *w, const struct call *c, int number, int level, int begin,
                         uint8_t *to)
{
    const void *sources[MOST_RANKS];
    uint8_t *part[MOST_RANKS];
    int n = 0;
    if (level > w->nest->nlevels) {
        fill(to, c, number, w->nest->rank_at[begin]);
        return;
    }
    for (int p = begin; p < rondo_nest_end(w->nest, level, begin);
         p = rondo_nest_end(w->nest, level + 1, p)) {
        sources[n] = part[n] = calloc(1, bytes_of(c));
        assert_non_null(part[n]);
        expect_group(w, c, number, level + 1, p, part[n++]);
    }
    rondo_reduce_get(c->dtype, c->reduce)(to, sources, n, c->count);
    for (int i = 0; i < n; i++) {
        free(part[i]);
    }
}

static void add_call(struct world *w, struct call call)
{
    int k = w->ncalls++;
    assert_in_range(k, 0, MOST_CALLS - 1);
    w->call[k] = call;
    w->expected[k] = calloc(1, bytes_of(&call));
    assert_non_null(w->expected[k]);
    expect_group(w, &call, k, 0, 0, w->expected[k]);
    if (call.divide) {
        rondo_divide(w->expected[k], call.count, call.dtype, w->groups->n);
    }
}

/* Sizes around every boundary: a line, a piece, one loop, several loops; every type and operation in turn. */
static void add_calls(struct world *w)
{
    static const rondo_dtype types[] = { RONDO_FLOAT32, RONDO_INT64, RONDO_FLOAT64, RONDO_UINT8 };
    static const enum rondo_reduce ops[] = { RONDO_REDUCE_SUM, RONDO_REDUCE_MAX, RONDO_REDUCE_PROD,
                                             RONDO_REDUCE_MIN };
    size_t n = (size_t)w->groups->n, number = 0;
    for (size_t t = 0; t < RONDO_COUNTOF(types); t++) {
        size_t line = RONDO_CACHE_LINE / rondo_dtype_size(types[t]), piece = CHUNK_LINES * line,
               loop = piece * n;
        const size_t counts[] = {
            1, line + 1, piece, loop - 1, loop, loop + 1, 2 * loop + piece + 3, 3 * loop
        };
        for (size_t i = 0; i < RONDO_COUNTOF(counts); i++, number++) {
            struct call c = { types[t], ops[number % RONDO_COUNTOF(ops)], counts[i], number % 3 == 0, 0 };
            c.divide = c.reduce == RONDO_REDUCE_SUM && number % 8 == 0;
            add_call(w, c);
        }
    }
}

static void submit(struct rank *r)
{
    const struct call *c = &r->world->call[r->next_call];
    struct rondo_work *w = &r->run.work;
    int n = r->world->groups->n;
    memset(r->out, 0x5a, BYTES);
    fill(c->in_place ? r->out : r->in, c, r->next_call, r->rank);
    *w = (struct rondo_work){ .coll = RONDO_COLL_ALL_REDUCE,
                              .algo = RONDO_ALGO_HIERARCHICAL,
                              .dtype = (uint8_t)c->dtype };
    w->elem_bytes = (uint8_t)rondo_dtype_size(c->dtype);
    w->reduce = (uint8_t)c->reduce;
    w->divide = (uint8_t)c->divide;
    w->cma = 1;
    w->stream = r->next_call % 3 == 1;
    w->call_word = (uint32_t)r->next_call + 1;
    w->in = c->in_place ? r->out : r->in;
    w->out = r->out;
    w->len = w->block = c->count;
    w->chunk = CHUNK_LINES * RONDO_CACHE_LINE / w->elem_bytes;
    w->seat = (struct rondo_seat){
        .index = r->rank, .nranks = n, .parent = -1, .nlevels = r->world->nest->nlevels
    };
    w->mailbox = &r->mailbox;
    w->direct = r->direct;
    r->run.schedule = rondo_schedule_find(RONDO_COLL_ALL_REDUCE, RONDO_ALGO_HIERARCHICAL);
    r->run.open = &r->open;
    r->open = 1;
    rondo_run_begin(&r->run);
    rondo_exec_cpu.submit(r->exec, &r->run, 1);
    r->next_call++;
}

static void check(struct rank *r)
{
    int k = r->next_call - 1;
    const struct call *c = &r->world->call[k];
    size_t bytes = bytes_of(c);
    if (r->run.verdict != RONDO_DIRECT) {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d: it was for others", r->rank, k);
    } else if (memcmp(r->out, r->world->expected[k], bytes) != 0) {
        snprintf(r->wrong, sizeof(r->wrong),
                 "rank %d, call %d (type %d, op %d, count %zu, in place %d): a wrong result", r->rank, k,
                 (int)c->dtype, (int)c->reduce, c->count, c->in_place);
    } else if (r->out[bytes] != 0x5a) {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d: written behind the end", r->rank, k);
    }
}

/* @return 1: the rank has no calls left, or has failed. */
static int rank_step(struct rank *r, int *moved)
{
    if (r->open == 0 && r->next_call > 0) {
        check(r);
    }
    if (r->open == 0 && (r->wrong[0] != '\0' || r->next_call == r->world->ncalls)) {
        return 1;
    }
    if (r->open == 0) {
        submit(r);
        *moved = 1;
    }
    if (rondo_exec_cpu.progress(r->exec, moved) != RONDO_SUCCESS) {
        snprintf(r->wrong, sizeof(r->wrong), "rank %d, call %d: %.100s", r->rank, r->next_call - 1,
                 rondo_error_text());
        return 1;
    }
    return 0;
}

static void run_interleaved(struct world *w, uint64_t state)
{
    int n = w->groups->n, done = 0, idle = 0;
    while (done != (1 << n) - 1) {
        int i = (int)draw(&state, (uint64_t)n), moved = 0;
        done |= rank_step(&w->rank[i], &moved) << i;
        assert_string_equal(w->rank[i].wrong, "");
        idle = moved ? 0 : idle + 1;
        assert_in_range(idle, 0, 2000);
    }
}

/* ---- the schedule, simulated ---- */

/* All ranks may run on all cores, or each on one of its own. */
static void lay(struct job *job, const char *machine, int n, const int *core)
{
    synthetic(machine);
    job_init(job, n, core, NULL);
    job_lay(job, 1);
}

/* Groups of any number and size: right results in long and short loops, in place or not, and no level is
 * crossed more often than necessary. */
static void hierarchical_is_right_and_moves_the_least_over_groups_of_any_size(void **state)
{
    static const struct {
        const char *machine;
        int n, core[16];
    } cases[] = {
        { "package:1 numa:1 l3:3 core:2 pu:1", 6, { 0, 1, 2, 3, 4, 5 } },
        { "package:1 numa:1 l3:3 core:4 pu:1", 6, { 0, 4, 8, 1, 9, 10 } },
        { "package:1 numa:2 core:8 pu:1", 9, { 0, 1, 2, 3, 4, 5, 6, 7, 8 } },
        { "package:2 numa:2 l3:2 core:2 pu:1", 13, { 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13, 14 } },
        { "package:2 numa:2 l3:2 core:2 pu:1", 16, { 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 } },
    };
    static const size_t lens[] = { 1, 5, 63, 64, 65, 333, 1000 };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct job job;
        int n = cases[i].n;
        lay(&job, cases[i].machine, n, cases[i].core);
        const struct rondo_nest *nest = job.layout.nest;
        assert_non_null(nest);
        for (size_t l = 0; l < RONDO_COUNTOF(lens); l++) {
            uint64_t *moved = sim_zeroed((size_t)(n * n), sizeof(*moved));
            struct sim_case c = { .coll = RONDO_COLL_ALL_REDUCE,
                                  .algo = RONDO_ALGO_HIERARCHICAL,
                                  .nranks = n,
                                  .nchannels = 1,
                                  .len = lens[l] };
            c.chunk = 16;
            c.slice = 4;
            c.elem_bytes = 8;
            c.in_place = l % 2 == 0;
            c.mode = (enum sim_mode)(l % SIM_NUM_MODES);
            c.seed = seed + l;
            c.layout = &job.layout;
            c.moved = moved;
            struct sim_result result;
            sim_run(&c, &result);
            assert_string_equal(result.error, "");
            for (int level = 1; level <= nest->nlevels; level++) {
                uint64_t crossed = 0, groups = (uint64_t)job.layout.model.levels.groups[level - 1];
                for (int k = 0; k < n * n; k++) {
                    int from = rondo_nest_begin(nest, level, nest->place[k / n]),
                        to = rondo_nest_begin(nest, level, nest->place[k % n]);
                    crossed += from != to ? moved[k] : 0;
                }
                assert_int_equal(crossed, 2 * (groups - 1) * lens[l]);
            }
            free(moved);
        }
        job_release(&job);
    }
}

/* With 64 ranks on eight NUMA nodes, all ranks hold equally much at every level. */
static void equal_groups_hold_equally_much(void **state)
{
    int core[CORES] = { 0 };
    struct job job;
    (void)state;
    lay(&job, "package:2 numa:4 l3:1 core:8 pu:1", CORES, core);
    for (int level = 0, each = 1; level <= 3; level++, each = level == 1 ? 2 : level == 2 ? 8 : CORES) {
        for (int place = 0; place < CORES; place++) {
            int held = 0;
            for (int piece = 0; piece < CORES; piece++) {
                held += rondo_nest_holder(job.layout.nest, level, place, piece) == place;
            }
            assert_int_equal(held, each);
        }
    }
    job_release(&job);
}

/* ---- the executor ---- */

static void results_have_the_groups_order_of_reduction(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(shapes); i++) {
        for (int reach = RONDO_REACH_MAPPED; reach <= RONDO_REACH_CMA; reach++) {
            struct world *w = world_new(&shapes[i], (enum rondo_reach)reach);
            add_calls(w);
            run_interleaved(w, seed + i);
            world_free(w);
        }
    }
}

static void *thread_main(void *arg)
{
    struct rank *r = arg;
    for (int moved = 0; !rank_step(r, &moved); moved = 0) {
        if (!moved) {
            sched_yield();
        }
    }
    return NULL;
}

static void ranks_may_be_threads(void **state)
{
    static const int used[] = { 1, 3 };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(used); i++) {
        for (int reach = RONDO_REACH_MAPPED; reach <= RONDO_REACH_CMA; reach++) {
            struct world *w = world_new(&shapes[used[i]], (enum rondo_reach)reach);
            pthread_t id[MOST_RANKS];
            add_calls(w);
            for (int k = 0; k < w->groups->n; k++) {
                assert_int_equal(pthread_create(&id[k], NULL, thread_main, &w->rank[k]), 0);
            }
            for (int k = 0; k < w->groups->n; k++) {
                pthread_join(id[k], NULL);
                assert_string_equal(w->rank[k].wrong, "");
            }
            world_free(w);
        }
    }
}

/* After some steps one rank leaves and its memory goes: no other rank may touch it at any step, and none can
 * finish without the leaver. Covers every step in which a rank can wait, except the last loop's CLOSE. */
static void a_rank_that_leaves_in_any_step_has_its_buffers_to_itself(void **state)
{
    const struct groups *groups = &shapes[4];
    uint32_t left_at = 0, others_at = 0, steps = rondo_hierarchical_moves(groups->nlevels);
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct world *w = world_new(groups, (enum rondo_reach)(round % 2));
        uint64_t order = seed + (uint64_t)round;
        struct rank *leaver = &w->rank[draw(&order, (uint64_t)groups->n)];
        int moved = 0, rounds = (int)draw(&order, 120);
        add_call(w, (struct call){ RONDO_FLOAT32, RONDO_REDUCE_SUM, 1200, round % 4 < 2, 0 });
        for (int i = 0; i < groups->n; i++) {
            submit(&w->rank[i]);
        }
        for (int i = 0; i < rounds; i++) {
            assert_int_equal(rondo_exec_cpu.progress(w->rank[draw(&order, (uint64_t)groups->n)].exec, &moved),
                             RONDO_SUCCESS);
        }
        if (leaver->open == 0) { /* all have finished, or are about to */
            world_free(w);
            continue;
        }
        left_at |= 1u << leaver->run.flow[0].k;
        rondo_exec_cpu.drop(leaver->exec);
        rank_gives_back(leaver);
        for (int i = 0; i < 6 * groups->n; i++) {
            struct rank *r = &w->rank[i % groups->n];
            if (r != leaver) {
                assert_int_equal(rondo_exec_cpu.progress(r->exec, &moved), RONDO_SUCCESS);
                others_at |= r->open ? 1u << r->run.flow[0].k : 0;
                assert_int_equal(*rondo_mailbox_mark(&r->mailbox, r->rank), 0);
            }
        }
        world_free(w);
    }
    for (uint32_t k = 2; k <= steps; k++) { /* in the first move nobody waits for anyone */
        assert_true(left_at >> k & 1);
        assert_true(others_at >> k & 1);
    }
}

/* Ranks 0 and 1 form a group, and so do 2 and 3. Ranks 2 and 3 stop after OPEN. */
static void describe_names_the_straggler(void **state)
{
    struct world *w = world_new(&shapes[0], RONDO_REACH_MAPPED);
    char text[200] = "";
    struct rondo_blocked blocked = { 0 };
    int moved = 0;
    (void)state;
    add_call(w, (struct call){ RONDO_FLOAT32, RONDO_REDUCE_SUM, 600, 0, 0 });
    for (int i = 5; i >= 0; i--) {
        submit(&w->rank[i]);
        if (i >= 2) {
            assert_int_equal(rondo_exec_cpu.progress(w->rank[i].exec, &moved), RONDO_SUCCESS);
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rondo_exec_cpu.progress(w->rank[i % 2].exec, &moved), RONDO_SUCCESS);
    }
    assert_true(rondo_exec_cpu.describe(w->rank[0].exec, 0, text, sizeof(text), &blocked) > 0);
    assert_in_range(-1 - blocked.peer, 2, 3);
    assert_non_null(strstr(text, "of local rank"));
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(hierarchical_is_right_and_moves_the_least_over_groups_of_any_size,
                                  no_synthetic),
        cmocka_unit_test_teardown(equal_groups_hold_equally_much, no_synthetic),
        cmocka_unit_test(results_have_the_groups_order_of_reduction),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(a_rank_that_leaves_in_any_step_has_its_buffers_to_itself),
        cmocka_unit_test(describe_names_the_straggler),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = text != NULL ? strtoull(text, NULL, 0) : 20261122;
    print_message("seed %llu (RONDO_TEST_SEED)\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
