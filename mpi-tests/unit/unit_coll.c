/* The schedules of coll/, simulated for many rank counts; sim.h says what a run finds. RONDO_TEST_SEED
 * repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/chunk.h"
#include "sim.h"

static uint64_t seed; /* every case draws its own from it */

static void describe(const struct sim_case *c)
{
    print_error("%s %s: %d ranks, root %d, %d channels, len %zu, chunk %zu, slice %zu, %u-byte elements, "
                "order %d, %s%s, mode %d, seed %llu\n",
                rondo_coll_name(c->coll), rondo_algo_name(c->algo), c->nranks, c->root, c->nchannels, c->len,
                c->chunk, c->slice, c->elem_bytes, c->shuffled, c->in_place ? "in place" : "out of place",
                c->counts != NULL ? ", counts" : "", (int)c->mode, (unsigned long long)c->seed);
}

static uint64_t run(const struct sim_case *c)
{
    struct sim_result result;
    sim_run(c, &result);
    if (result.error[0] != '\0') {
        describe(c);
        fail_msg("%s", result.error);
    }
    return result.digest;
}

static uint64_t draw(uint64_t below) { return sim_random(&seed) % below; }

/* Elements of a buffer or block: one; fewer than ranks; whole loops; some loops and a short one. */
static size_t some_length(const struct rondo_schedule *s, int n, size_t chunk, int which)
{
    size_t loop = s->map == RONDO_MAP_SPLIT ? chunk * (size_t)n : chunk;
    const size_t lengths[] = { 1, (size_t)(n + 1) / 2, 2 * loop, 2 * loop + 1 + draw(loop) };
    return lengths[which % 4];
}

/* A case of a row; everything that must not change its result is drawn at random. */
static struct sim_case some_case(const struct rondo_schedule *s, int n, int which)
{
    static const uint32_t sizes[] = { 1, 2, 4, 8 };
    struct sim_case c = { .coll = (enum rondo_coll)s->coll, .algo = (enum rondo_algo)s->algo, .nranks = n };
    c.slice = 1 + draw(4);
    c.chunk = c.slice * (1 + draw(RONDO_CHUNK_SLICES)) - draw(c.slice);
    c.len = some_length(s, n, c.chunk, which);
    c.in_place = which / 4 % 2;
    c.elem_bytes = sizes[draw(4)];
    c.nchannels = (int)(1 + draw(3));
    c.shuffled = (int)draw(1000);
    c.mode = (enum sim_mode)draw(SIM_NUM_MODES);
    c.seed = draw(UINT64_MAX);
    return c;
}

/* A receive runs with its send. Algorithms over groups of ranks run in unit_hierarchical, which has groups.
 */
static int runs_alone(const struct rondo_schedule *s)
{
    return s->coll != RONDO_COLL_RECV && rondo_algo_seating(s->algo) != RONDO_SEATING_GROUPS;
}

/* All ranks collect from all, so the tuner never selects it for many ranks (unit_cost). */
static int is_for_few(const struct rondo_schedule *s)
{
    return rondo_algo_medium(s->algo) == RONDO_MEDIUM_MAILBOX &&
           rondo_coll_has_root((enum rondo_coll)s->coll);
}

/* Every so many of the eight cases of a schedule is run for each number of ranks. */
#ifdef __SANITIZE_ADDRESS__
enum { CASES_APART = 3 }; /* slow; odd, so that even numbers of ranks meet all cases, too */
#else
enum { CASES_APART = 1 };
#endif

static void every_schedule_is_right_for_1_to_64_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        for (int n = s->coll == RONDO_COLL_SEND ? 2 : 1; runs_alone(s) && n <= 64;
             n += s->coll == RONDO_COLL_SEND ? 2 : 1) {
            for (int which = n % CASES_APART; which < 8; which += CASES_APART) {
                struct sim_case c = some_case(s, n, which);
                c.root = (int)draw((uint64_t)n);
                run(&c);
            }
        }
    }
}

static void every_root_is_right_for_1_to_16_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        for (int n = 1; rondo_algo_seating(s->algo) != RONDO_SEATING_PEER &&
                        rondo_coll_has_root((enum rondo_coll)s->coll) && n <= 16;
             n++) {
            for (int root = 0; root < n; root++) {
                struct sim_case c = some_case(s, n, root);
                c.root = root;
                c.nchannels = 2; /* both trees */
                run(&c);
            }
        }
    }
}

static void first_middle_and_last_root_are_right_for_1000_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        int has_root = rondo_algo_seating(s->algo) != RONDO_SEATING_PEER &&
                       rondo_coll_has_root((enum rondo_coll)s->coll);
        for (int root = 0; has_root && !is_for_few(s) && root < 1000; root += 333) {
            struct sim_case c = some_case(s, 1000, 3);
            c.root = root;
            c.shuffled = 0;
            c.nchannels = 2;
            run(&c);
        }
    }
}

static void rings_and_trees_are_right_for_1000_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        struct sim_case c = some_case(s, 1000, 3);
        c.root = 617;
        c.slice = s->map == RONDO_MAP_WHOLE ? 3 : 1;
        c.chunk = c.slice;
        c.len = s->map == RONDO_MAP_SPLIT   ? 1100
                : s->map == RONDO_MAP_BLOCK ? 1
                                            : 16; /* SPLIT: a loop and a short one */
        c.nchannels = 1;
        c.elem_bytes = 8;
        if (runs_alone(s) && !is_for_few(s)) {
            run(&c);
        }
    }
}

static void trees_and_chains_are_right_for_4096_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        struct sim_case c = some_case(s, 4096, 0);
        c.root = 4000;
        c.slice = c.chunk = 5;
        c.len = 33;
        c.nchannels = 2;
        if (s->map == RONDO_MAP_WHOLE && rondo_algo_medium(s->algo) == RONDO_MEDIUM_CONNS &&
            rondo_algo_seating(s->algo) != RONDO_SEATING_DIMS && runs_alone(s)) {
            run(&c);
        }
    }
}

/* Most blocks are empty, which saves memory; the schedule still walks all steps. */
static void rings_are_right_for_4096_ranks(void **state)
{
    enum { N = 4096 };
    size_t *counts = calloc(N, sizeof(*counts)), *displs = calloc(N, sizeof(*displs)), end = 0;
    struct sim_case c = { .coll = RONDO_COLL_ALL_REDUCE,
                          .algo = RONDO_ALGO_RING,
                          .nranks = N,
                          .nchannels = 1,
                          .len = 100,
                          .chunk = 2,
                          .slice = 1,
                          .elem_bytes = 8 };
    (void)state;
    assert_true(counts != NULL && displs != NULL);
    c.seed = draw(UINT64_MAX);
    run(&c);
    for (int r = 0; r < N; r++) {
        counts[r] = r % 64 == 5;
        displs[r] = end;
        end += counts[r];
    }
    c.counts = counts;
    c.displs = displs;
    c.coll = RONDO_COLL_ALL_GATHERV;
    run(&c);
    c.coll = RONDO_COLL_REDUCE_SCATTERV;
    run(&c);
    free(counts);
    free(displs);
}

/* Blocks of any length, also 0, with gaps, in any order in memory. */
static void blocks_of_uneven_counts_are_right(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_GATHERV, RONDO_COLL_REDUCE_SCATTERV,
                                             RONDO_COLL_ALL_GATHER, RONDO_COLL_REDUCE_SCATTER };
    (void)state;
    for (int n = 1; n <= 24; n++) {
        for (int which = 0; which < 8; which++) {
            const struct rondo_schedule *s = rondo_schedule_find(colls[which % 4], RONDO_ALGO_RING);
            struct sim_case c = some_case(s, n, which);
            size_t counts[24], displs[24], end = 0;
            for (int i = 0; i < n; i++) {
                int r = which < 4 ? i : n - 1 - i;
                counts[r] = draw(3) == 0 ? 0 : draw(3 * c.chunk + 2);
                displs[r] = end + draw(2);
                end = displs[r] + counts[r];
            }
            c.coll = colls[which % 4]; /* a work may carry either name */
            c.counts = counts;
            c.displs = displs;
            c.len = draw(2) * 1000; /* must not matter */
            c.nchannels = 1;
            run(&c);
        }
    }
}

static void nothing_to_do_ends_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        struct sim_case c = some_case(&rondo_schedules[i], 6, 0);
        c.len = 0;
        if (runs_alone(&rondo_schedules[i])) {
            run(&c);
        }
    }
}

/* The speed of ranks changes neither the sums nor their order: results are bitwise repeatable. */
static void result_does_not_depend_on_timing(void **state)
{
    static const int counts[] = { 2, 3, 5, 8, 13, 32 };
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        for (size_t j = 0; runs_alone(&rondo_schedules[i]) && j < RONDO_COUNTOF(counts); j++) {
            struct sim_case c = some_case(
                &rondo_schedules[i],
                counts[j] + (rondo_schedules[i].coll == RONDO_COLL_SEND ? counts[j] % 2 : 0), 3);
            uint64_t first = 0;
            c.root = counts[j] / 2;
            for (int mode = 0; mode < 2 * SIM_NUM_MODES; mode++) {
                c.mode = (enum sim_mode)(mode / 2);
                c.seed = draw(UINT64_MAX);
                if (mode == 0) {
                    first = run(&c);
                } else if (run(&c) != first) {
                    describe(&c);
                    fail_msg("another result than in mode 0");
                }
            }
        }
    }
}

/* The order of a sum depends on algorithm, ranks and root only, not on how it is sliced. */
static void result_does_not_depend_on_slices_in_a_tree(void **state)
{
    (void)state;
    for (int n = 2; n <= 20; n++) {
        struct sim_case c = some_case(rondo_schedule_find(RONDO_COLL_REDUCE, RONDO_ALGO_TREE), n, 0);
        uint64_t first;
        c.len = 60;
        c.root = n / 3;
        c.slice = c.chunk = 60;
        first = run(&c);
        c.slice = 7;
        c.chunk = 14;
        assert_true(run(&c) == first);
    }
}

/* ---- faults that the simulator must find ---- */

static const struct rondo_schedule *honest;
static uint32_t spoiled_act; /* acts removed from the spoiled step */

static struct rondo_step lose_act(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = honest->flow[0].step(seat, k);
    if (seat->index == 1) {
        s.act &= (uint8_t)~spoiled_act;
    }
    return s;
}

static struct rondo_step mistake_block(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = honest->flow[0].step(seat, k);
    if (seat->index == 1 && (s.act & RONDO_SEND) == 0) {
        s.block = (s.block + 1) % seat->nranks;
    }
    return s;
}

static struct rondo_step add_twice(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = honest->flow[0].step(seat, k);
    if (seat->index == 1 &&
        (s.act & (RONDO_RECV | RONDO_COPY | RONDO_SEND)) == (RONDO_RECV | RONDO_COPY | RONDO_SEND)) {
        s.act |= RONDO_REDUCE;
    }
    return s;
}

static void assert_seen(enum rondo_coll coll,
                        struct rondo_step (*step)(const struct rondo_seat *seat, uint32_t k),
                        const char *what)
{
    struct rondo_schedule spoiled;
    struct sim_result result;
    struct sim_case c = { .coll = coll,
                          .algo = RONDO_ALGO_RING,
                          .nranks = 5,
                          .nchannels = 1,
                          .len = 40,
                          .chunk = 8,
                          .slice = 4,
                          .elem_bytes = 8,
                          .in_place = 1 };
    honest = rondo_schedule_find(coll, RONDO_ALGO_RING);
    spoiled = *honest;
    spoiled.flow[0].step = step;
    c.schedule = &spoiled;
    sim_run(&c, &result);
    if (strstr(result.error, what) == NULL) {
        fail_msg("%s with a spoiled step: \"%s\" instead of \"%s\"", rondo_coll_name(coll), result.error,
                 what);
    }
}

static void simulator_finds_spoiled_schedules(void **state)
{
    (void)state;
    spoiled_act = RONDO_REDUCE; /* a contribution is missing */
    assert_seen(RONDO_COLL_ALL_REDUCE, lose_act, "wrong");
    assert_seen(RONDO_COLL_REDUCE_SCATTER, lose_act, "wrong");
    spoiled_act = RONDO_COPY;
    assert_seen(RONDO_COLL_ALL_REDUCE, lose_act, "not written");
    assert_seen(RONDO_COLL_ALL_GATHER, lose_act, "not written");
    spoiled_act = RONDO_FINISH;
    assert_seen(RONDO_COLL_REDUCE_SCATTER, lose_act, "wrong");
    assert_seen(RONDO_COLL_ALL_REDUCE, add_twice, "wrong");
    assert_seen(RONDO_COLL_ALL_GATHER, mistake_block, "expects");
}

/* Shows why a chunk has at most RONDO_CHUNK_SLICES slices, and that the simulator finds deadlocks. */
static void ring_with_a_chunk_of_all_slots_deadlocks(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_REDUCE_SCATTER,
                                             RONDO_COLL_ALL_GATHER };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(colls); i++) {
        struct sim_result result;
        struct sim_case c = { .coll = colls[i],
                              .algo = RONDO_ALGO_RING,
                              .nranks = 3,
                              .nchannels = 1,
                              .len = 96,
                              .slice = 2,
                              .elem_bytes = 64 };
        c.chunk = RONDO_CHUNK_SLICES * c.slice;
        run(&c);
        c.chunk = RONDO_SLOTS * c.slice;
        sim_run(&c, &result);
        assert_non_null(strstr(result.error, "deadlock"));
    }
}

/* ---- spans, names, table ---- */

/* Blocks of a loop are contiguous, cover the work once, are whole cache lines if the chunk is, and never
 * exceed a chunk. */
static void check_split(size_t len, size_t chunk, int n, uint32_t bytes)
{
    struct rondo_work w = {
        .coll = RONDO_COLL_ALL_REDUCE, .len = len, .chunk = chunk, .elem_bytes = (uint8_t)bytes
    };
    size_t covered = 0, nloops;
    w.seat.nranks = n;
    nloops = rondo_work_nloops(&w, RONDO_MAP_SPLIT);
    for (size_t loop = 0; loop < nloops; loop++) {
        for (int b = 0; b < n; b++) {
            struct rondo_span s = rondo_work_span(&w, RONDO_MAP_SPLIT, loop, b);
            assert_true(s.n <= chunk);
            assert_true(s.n == 0 || (s.in == covered && s.out == covered));
            assert_true(s.n == 0 || chunk * bytes % RONDO_CACHE_LINE != 0 ||
                        s.in * bytes % RONDO_CACHE_LINE == 0);
            covered += s.n;
        }
    }
    assert_int_equal(covered, len);
}

static void shares_of_a_short_loop_are_whole_lines_and_never_more_than_a_chunk(void **state)
{
    (void)state;
    for (uint32_t bytes = 1; bytes <= 8; bytes *= 2) {
        for (int n = 1; n <= 9; n++) {
            for (size_t len = 1; len <= 700; len += 13) {
                check_split(len, 128, n, bytes);
                check_split(len, 20, n, bytes);
            }
        }
    }
}

/* Ranks with different counts of their own run the same loops. */
static void v_forms_have_the_loops_of_the_longest_block(void **state)
{
    static const size_t counts[] = { 0, 11, 3 };
    (void)state;
    for (size_t len = 0; len < 100; len += 33) {
        struct rondo_work w = {
            .coll = RONDO_COLL_ALL_GATHERV, .len = len, .chunk = 5, .elem_bytes = 4, .counts = counts
        };
        w.seat.nranks = 3;
        assert_int_equal(rondo_work_nloops(&w, RONDO_MAP_BLOCK), 3);
    }
}

static void names_and_enums_convert_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < RONDO_NUM_COLLS; i++) {
        assert_int_equal(rondo_coll_from_name(rondo_coll_name((enum rondo_coll)i)), i);
    }
    for (int i = 0; i < RONDO_NUM_ALGOS; i++) {
        assert_int_equal(rondo_algo_from_name(rondo_algo_name((enum rondo_algo)i)), i);
    }
    assert_int_equal(rondo_coll_from_name("AllReduce"), RONDO_COLL_ALL_REDUCE);
    assert_int_equal(rondo_coll_from_name("reducescatter"), RONDO_COLL_REDUCE_SCATTER);
    assert_int_equal(rondo_coll_from_name("ALLTOALL"), RONDO_COLL_ALL_TO_ALL);
    assert_int_equal(rondo_coll_from_name("all_reduc"), -1);
    assert_int_equal(rondo_coll_from_name("all_reduce_"), RONDO_COLL_ALL_REDUCE);
    assert_int_equal(rondo_coll_from_name(""), -1);
    assert_int_equal(rondo_coll_from_name(NULL), -1);
    assert_int_equal(rondo_algo_from_name("rings"), -1);
    assert_int_equal(rondo_algo_from_name(NULL), -1);
    assert_null(rondo_coll_name(RONDO_NUM_COLLS));
    assert_null(rondo_coll_name((enum rondo_coll) - 1));
    assert_null(rondo_algo_name(RONDO_NUM_ALGOS));
}

static void every_collective_has_a_schedule(void **state)
{
    (void)state;
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        enum rondo_coll as = rondo_coll_scheduled_as((enum rondo_coll)c);
        int found = 0;
        for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
            const struct rondo_schedule *s = rondo_schedule_find((enum rondo_coll)c, (enum rondo_algo)a);
            assert_true(s == NULL || (s->coll == as && s->algo == a && s->protos != 0));
            found += s != NULL;
        }
        assert_true(found > 0);
        assert_int_equal(rondo_coll_scheduled_as(as), as);
    }
    assert_null(rondo_schedule_find(RONDO_NUM_COLLS, RONDO_ALGO_RING));
    assert_null(rondo_schedule_find(RONDO_COLL_ALL_GATHER, RONDO_ALGO_TREE));
    assert_ptr_equal(rondo_schedule_find(RONDO_COLL_BARRIER, RONDO_ALGO_TREE),
                     rondo_schedule_find(RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE));
    assert_string_equal(rondo_schedule_find(RONDO_COLL_ALL_GATHERV, RONDO_ALGO_RING)->name,
                        "ALL_GATHER RING");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_is_right_for_1_to_64_ranks),
        cmocka_unit_test(every_root_is_right_for_1_to_16_ranks),
        cmocka_unit_test(first_middle_and_last_root_are_right_for_1000_ranks),
        cmocka_unit_test(rings_and_trees_are_right_for_1000_ranks),
        cmocka_unit_test(trees_and_chains_are_right_for_4096_ranks),
        cmocka_unit_test(rings_are_right_for_4096_ranks),
        cmocka_unit_test(blocks_of_uneven_counts_are_right),
        cmocka_unit_test(nothing_to_do_ends_at_once),
        cmocka_unit_test(result_does_not_depend_on_timing),
        cmocka_unit_test(result_does_not_depend_on_slices_in_a_tree),
        cmocka_unit_test(simulator_finds_spoiled_schedules),
        cmocka_unit_test(ring_with_a_chunk_of_all_slots_deadlocks),
        cmocka_unit_test(shares_of_a_short_loop_are_whole_lines_and_never_more_than_a_chunk),
        cmocka_unit_test(v_forms_have_the_loops_of_the_longest_block),
        cmocka_unit_test(names_and_enums_convert_both_ways),
        cmocka_unit_test(every_collective_has_a_schedule),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = text != NULL ? strtoull(text, NULL, 0) : 20240607;
    print_message("seed %llu (RONDO_TEST_SEED)\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
