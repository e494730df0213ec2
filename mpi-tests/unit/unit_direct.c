/* Two-shot by direct access (kern/direct.h): results on every kind of memory, whom it waits for, calls that
 * differ, and the table of segments. */
#include "direct_world.h"

#include <pthread.h>

static void results_are_in_rank_order_on_every_kind_of_memory(void **state)
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

static void describe_names_the_awaited_rank(void **state)
{
    struct call c = { .coll = RONDO_COLL_ALL_REDUCE, .count = 100 };
    struct world *w = world_new(4, ONE_PROCESS);
    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            submit(&w->rank[i], &c, 0);
            progress_until_stuck(w->rank[i].exec);
        }
    }
    progress_until_stuck(w->rank[0].exec);
    assert_waits_for(w->rank[0].exec, -1 - 2, "the message of local rank 2");
    for (int i = 0; i < 4; i++) {
        rondo_exec_cpu.drop(w->rank[i].exec);
    }
    world_free(w);
}

static void mismatched_calls_are_detected(void **state)
{
    struct call ours = { .coll = RONDO_COLL_ALL_REDUCE, .count = 100 },
                theirs = { .coll = RONDO_COLL_BROADCAST, .count = 100 };
    struct world *w = world_new(2, ONE_PROCESS);
    int moved = 0;
    (void)state;
    submit(&w->rank[1], &theirs, 0);
    progress_until_stuck(w->rank[1].exec);
    submit(&w->rank[0], &ours, 0);
    assert_int_equal(rondo_exec_cpu.progress(w->rank[0].exec, &moved), RONDO_INVALID_USAGE);
    assert_int_equal(w->rank[0].mismatch_peer, -1 - 1);
    world_free(w);
}

/* CMA only pays in place: then all ranks must be in place, and calls out of place in between do not make
 * ranks ask less. */
static void cma_that_only_pays_in_place_needs_all_ranks_in_place(void **state)
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
        run_in_order(w);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(w->rank[i].wrong, "");
            assert_int_equal(w->rank[i].carried[RONDO_DIRECT], apart == 0 ? NCALLS / 8 : 0);
        }
        world_free(w);
    }
}

/* The same for CMA that only pays out of place: one rank is enough for that. */
static void cma_that_only_pays_out_of_place_is_for_calls_that_are_so(void **state)
{
    (void)state;
    for (int apart = 0; apart < 3; apart++) {
        struct world *w = world_new(3, KERNEL);
        w->only_apart = 1;
        w->apart = apart;
        w->ncalls = NCALLS;
        for (int k = 0; k < w->ncalls; k++) {
            w->call[k] = (struct call){ .coll = RONDO_COLL_ALL_REDUCE, .count = 500, .in_place = k % 8 != 7 };
        }
        run_in_order(w);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(w->rank[i].wrong, "");
            assert_int_equal(w->rank[i].carried[RONDO_DIRECT], apart == 0 ? NCALLS / 8 : NCALLS);
        }
        world_free(w);
    }
}

/* Every way to store a result apart from its sources gives the same, with one target and with several. */
static void results_are_stored_apart_in_every_way(void **state)
{
    enum { ALL = 17000, BLOCK = 8900 }; /* more than exec_cpu.c's APART_MIN */
    _Static_assert(ALL * 4 < PLACE && 2 * BLOCK * 4 < PLACE, "they fit the buffers");
    (void)state;
    for (int way = RONDO_APART_DEFAULT; way <= RONDO_APART_COPY; way++) {
        struct world *w = world_new(2, ONE_PROCESS);
        w->way_apart = way;
        w->ncalls = 8;
        for (int k = 0; k < w->ncalls; k++) {
            int all = k % 2 == 0;
            w->call[k] = (struct call){ .coll = all ? RONDO_COLL_ALL_REDUCE : RONDO_COLL_REDUCE_SCATTER,
                                        .count = all ? ALL : BLOCK,
                                        .in_place = k % 4 == 2,
                                        .divide = k >= 4 };
        }
        run_in_order(w);
        for (int i = 0; i < 2; i++) {
            assert_string_equal(w->rank[i].wrong, "");
            assert_int_equal(w->rank[i].carried[RONDO_DIRECT], w->ncalls);
        }
        world_free(w);
    }
}

/* The root of a reduce is in place, the other rank is not: its target is one of its sources. */
static void a_root_in_place_is_read_before_it_is_written(void **state)
{
    enum { ALL = 17000 }; /* as above */
    (void)state;
    for (int way = RONDO_APART_DEFAULT; way <= RONDO_APART_COPY; way++) {
        for (int root = 0; root < 2; root++) {
            struct world *w = world_new(2, ONE_PROCESS);
            w->way_apart = way;
            w->apart = 2 - root; /* 1 + the other rank */
            w->ncalls = 2;
            for (int k = 0; k < w->ncalls; k++) {
                w->call[k] = (struct call){
                    .coll = RONDO_COLL_REDUCE, .count = ALL, .root = root, .in_place = 1, .divide = k
                };
            }
            run_in_order(w);
            for (int i = 0; i < 2; i++) {
                assert_string_equal(w->rank[i].wrong, "");
                assert_int_equal(w->rank[i].carried[RONDO_DIRECT], w->ncalls);
            }
            world_free(w);
        }
    }
}

/* The table evicts the least recently used entry, and equal histories make equal tables. */
static void the_table_is_bounded_and_deterministic(void **state)
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
        (void)rondo_direct_known(a, id / 2 + 1); /* a look-up changes nothing */
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

/* The shares of a CMA reduce cover everything in whole lines, and no share takes longer by more than a line
 * of each rank. */
static void shares_of_a_reduce_cover_it_and_take_equally_long(void **state)
{
    static const size_t lens[] = { 1, 15, 16, 100, 4096, 65537, 1 << 20 };
    (void)state;
    for (int n = 2; n <= 9; n++) {
        for (size_t i = 0; i < RONDO_COUNTOF(lens); i++) {
            size_t len = lens[i], line = RONDO_CACHE_LINE / sizeof(float), most = 0, covered = 0;
            int root = (int)(i % (size_t)n);
            for (int k = 0; k < n; k++) { /* the root's share first, then the others' in rank order */
                int index = k == 0 ? root : k - (k <= root);
                struct rondo_work w = { .coll = RONDO_COLL_REDUCE, .elem_bytes = sizeof(float), .len = len };
                struct rondo_flow flow = { 0 };
                w.seat = (struct rondo_seat){ .index = index, .nranks = n, .root = root };
                rondo_cma_span(&w, &flow);
                assert_true(flow.n == 0 || flow.in == covered);
                assert_int_equal(flow.in, flow.out);
                assert_true(flow.in % line == 0 || flow.in == len);
                covered += flow.n;
                most = rondo_max_size(most, flow.n * (size_t)(index == root ? n - 1 : n));
            }
            assert_int_equal(covered, len);
            assert_true(most <= len * (size_t)(n * (n - 1)) / (size_t)(n + (n - 1) * (n - 1)) +
                                    line * (size_t)(n * n));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_in_place_is_read_before_it_is_written),
        cmocka_unit_test(results_are_in_rank_order_on_every_kind_of_memory),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(describe_names_the_awaited_rank),
        cmocka_unit_test(mismatched_calls_are_detected),
        cmocka_unit_test(cma_that_only_pays_in_place_needs_all_ranks_in_place),
        cmocka_unit_test(cma_that_only_pays_out_of_place_is_for_calls_that_are_so),
        cmocka_unit_test(results_are_stored_apart_in_every_way),
        cmocka_unit_test(the_table_is_bounded_and_deterministic),
        cmocka_unit_test(shares_of_a_reduce_cover_it_and_take_equally_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
