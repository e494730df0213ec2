/* The bootstrap of ranks that are threads: rounds, exchanges, missing ranks, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/wait.h"
#include "bootstrap_finish.h"

enum { MAX_BYTES = 96 };

/* The byte that `from` gives `to` in a round (allgather: to = 0). */
static uint8_t expected_byte(int from, int to, int round, size_t i)
{
    return (uint8_t)(from * 31 + to * 17 + round * 7 + (int)i);
}

static void fill(uint8_t *data, size_t bytes, int from, int to, int round)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = expected_byte(from, to, round, i);
    }
}

static int wrong_bytes(const uint8_t *data, size_t bytes, int from, int to, int round)
{
    int wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        wrong += data[i] != expected_byte(from, to, round, i);
    }
    return wrong;
}

struct world {
    struct rondo_hub *hub;
    struct rondo_bootstrap **b;
    int n;
};

static struct world world_new(int n)
{
    struct world world = { .n = n };
    assert_int_equal(rondo_hub_create(n, &world.hub), RONDO_SUCCESS);
    assert_int_equal(RONDO_NEW_ARRAY(world.b, n, "ranks"), RONDO_SUCCESS);
    for (int i = 0; i < n; i++) {
        assert_int_equal(rondo_bootstrap_threads(world.hub, i, &world.b[i]), RONDO_SUCCESS);
        assert_int_equal(world.b[i]->rank, i);
        assert_int_equal(world.b[i]->nranks, n);
        assert_int_equal(world.b[i]->ops->open_start(world.b[i]), RONDO_SUCCESS);
        assert_int_equal(world.b[i]->ops->test(world.b[i]), RONDO_SUCCESS);
    }
    return world;
}

static void world_free(struct world *world, int ok)
{
    rondo_hub_release(world->hub); /* the hub lives on until the last bootstrap is closed */
    for (int i = 0; i < world->n; i++) {
        if (world->b[i]) {
            world->b[i]->ops->close(world->b[i], ok);
        }
    }
    rondo_free(world->b);
}

/* ---- ranks in turn, one thread ---- */

static void allgather_gives_every_rank_every_record(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 3, 7, 64, 300 };
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        int n = sizes[s];
        struct world world = world_new(n);
        uint8_t *all;
        assert_int_equal(rondo_calloc(&all, (size_t)n * (size_t)n, MAX_BYTES, "records"), RONDO_SUCCESS);
        for (int round = 0; round < 6; round++) {
            size_t bytes = (size_t)(round * 19 % MAX_BYTES) + 1;
            for (int i = 0; i < n; i++) {
                uint8_t mine[MAX_BYTES];
                fill(mine, bytes, i, 0, round);
                assert_int_equal(world.b[i]->ops->allgather_start(
                                     world.b[i], mine, all + (size_t)i * (size_t)n * MAX_BYTES, bytes),
                                 RONDO_SUCCESS);
                /* Nothing is complete before the last rank comes. */
                assert_int_equal(world.b[0]->ops->test(world.b[0]),
                                 i == n - 1 ? RONDO_SUCCESS : RONDO_IN_PROGRESS);
            }
            for (int i = 0; i < n; i++) {
                assert_int_equal(world.b[i]->ops->test(world.b[i]), RONDO_SUCCESS);
                for (int from = 0; from < n; from++) {
                    assert_int_equal(
                        wrong_bytes(all + (size_t)i * (size_t)n * MAX_BYTES + (size_t)from * bytes, bytes,
                                    from, 0, round),
                        0);
                }
            }
        }
        rondo_free(all);
        world_free(&world, 1);
    }
}

static void a_rank_may_be_one_allgather_ahead(void **state)
{
    (void)state;
    struct world world = world_new(2);
    int in = 10, out[2][2] = { { 0 } };
    struct rondo_bootstrap *a = world.b[0], *b = world.b[1];
    assert_int_equal(a->ops->allgather_start(a, &in, out[0], sizeof in), RONDO_SUCCESS);
    in = 11;
    assert_int_equal(b->ops->allgather_start(b, &in, out[1], sizeof in), RONDO_SUCCESS);
    assert_int_equal(a->ops->test(a), RONDO_SUCCESS);
    /* Rank 0 begins the next round; rank 1 has not looked at this one yet. */
    in = 20;
    assert_int_equal(a->ops->allgather_start(a, &in, out[0], sizeof in), RONDO_SUCCESS);
    assert_int_equal(b->ops->test(b), RONDO_SUCCESS);
    assert_int_equal(out[1][0], 10);
    assert_int_equal(out[1][1], 11);
    in = 21;
    assert_int_equal(b->ops->allgather_start(b, &in, out[1], sizeof in), RONDO_SUCCESS);
    assert_int_equal(a->ops->test(a), RONDO_SUCCESS);
    assert_int_equal(b->ops->test(b), RONDO_SUCCESS);
    assert_int_equal(out[0][0] + out[0][1], 41);
    assert_int_equal(out[1][0] + out[1][1], 41);
    world_free(&world, 1);
}

static void exchange_parks_records_of_a_peer_that_is_ahead(void **state)
{
    (void)state;
    struct world world = world_new(3);
    struct rondo_bootstrap *a = world.b[0], *b = world.b[1], *c = world.b[2];
    static const int zero = 0, one = 1, both[] = { 0, 2 };
    int send = 1, got_a = 0, got_b[2] = { 0 }, send_b[2] = { 7, 8 };
    assert_int_equal(b->ops->exchange_start(b, 2, both, send_b, got_b, sizeof send), RONDO_SUCCESS);
    assert_int_equal(a->ops->exchange_start(a, 1, &one, &send, &got_a, sizeof send), RONDO_SUCCESS);
    assert_int_equal(a->ops->test(a), RONDO_SUCCESS);
    assert_int_equal(got_a, 7);
    send = 2; /* rank 0's second record lies in rank 1's inbox while rank 1 still waits for rank 2's first */
    assert_int_equal(a->ops->exchange_start(a, 1, &one, &send, &got_a, sizeof send), RONDO_SUCCESS);
    assert_int_equal(b->ops->test(b), RONDO_IN_PROGRESS);
    send = 3;
    assert_int_equal(c->ops->exchange_start(c, 1, &one, &send, &got_a, sizeof send), RONDO_SUCCESS);
    assert_int_equal(b->ops->test(b), RONDO_SUCCESS);
    assert_int_equal(got_b[0], 1);
    assert_int_equal(got_b[1], 3);
    assert_int_equal(b->ops->exchange_start(b, 1, &zero, send_b, got_b, sizeof send), RONDO_SUCCESS);
    assert_int_equal(b->ops->test(b), RONDO_SUCCESS);
    assert_int_equal(got_b[0], 2);
    assert_int_equal(c->ops->test(c), RONDO_SUCCESS);
    assert_int_equal(got_a, 8);
    assert_int_equal(a->ops->test(a), RONDO_SUCCESS);
    assert_int_equal(got_a, 7);
    world_free(&world, 1);
}

static void missing_names_exactly_the_absent(void **state)
{
    (void)state;
    struct world world = world_new(9);
    int in = 0, out[9], ranks[9], n = -1;
    static const int come[] = { 0, 2, 3, 5, 8 }, absent[] = { 1, 4, 6, 7 };
    for (size_t i = 0; i < RONDO_COUNTOF(come); i++) {
        struct rondo_bootstrap *b = world.b[come[i]];
        assert_int_equal(b->ops->allgather_start(b, &in, out, sizeof in), RONDO_SUCCESS);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(come); i++) {
        struct rondo_bootstrap *b = world.b[come[i]];
        assert_int_equal(b->ops->test(b), RONDO_IN_PROGRESS);
        assert_int_equal(b->ops->missing(b, ranks, 9, &n), RONDO_SUCCESS);
        assert_int_equal(n, 4);
        assert_memory_equal(ranks, absent, sizeof absent);
        assert_int_equal(b->ops->missing(b, ranks, 2, &n), RONDO_SUCCESS);
        assert_int_equal(n, 2);
    }
    world_free(&world, 0);
}

static void missing_in_an_exchange_names_the_silent_peer(void **state)
{
    (void)state;
    struct world world = world_new(4);
    static const int peers[] = { 3, 0, 2 }, one = 1;
    int send[3] = { 1, 2, 3 }, got[3], ranks[4], n = -1;
    struct rondo_bootstrap *b = world.b[1];
    assert_int_equal(b->ops->exchange_start(b, 3, peers, send, got, sizeof(int)), RONDO_SUCCESS);
    assert_int_equal(world.b[0]->ops->exchange_start(world.b[0], 1, &one, send, got, sizeof(int)),
                     RONDO_SUCCESS);
    assert_int_equal(b->ops->missing(b, ranks, 4, &n), RONDO_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(ranks[0], 2);
    assert_int_equal(ranks[1], 3);
    world_free(&world, 0);
}

static void failure_of_one_rank_ends_the_rounds_of_all(void **state)
{
    (void)state;
    struct world world = world_new(3);
    int in = 0, out[3];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world.b[i]->ops->allgather_start(world.b[i], &in, out, sizeof in), RONDO_SUCCESS);
        assert_int_equal(world.b[i]->ops->test(world.b[i]), RONDO_IN_PROGRESS);
    }
    rondo_fail_quiet(RONDO_SYSTEM_ERROR, "the disk is on fire; call the fire brigade");
    world.b[2]->ops->close(world.b[2], 0);
    world.b[2] = NULL;
    for (int i = 0; i < 2; i++) {
        rondo_error_clear();
        assert_int_equal(world.b[i]->ops->test(world.b[i]), RONDO_REMOTE_ERROR);
        assert_non_null(strstr(rondo_error_text(), "rank 2 on "));
        assert_non_null(strstr(rondo_error_text(), "the disk is on fire; call the fire brigade"));
    }
    struct rondo_bootstrap *again;
    assert_int_equal(rondo_bootstrap_threads(world.hub, 2, &again), RONDO_INVALID_USAGE);
    world_free(&world, 0);
}

static void a_complete_round_is_delivered_even_if_a_rank_fails_after_it(void **state)
{
    (void)state;
    struct world world = world_new(2);
    int in = 5, out[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world.b[i]->ops->allgather_start(world.b[i], &in, out, sizeof in), RONDO_SUCCESS);
    }
    world.b[1]->ops->close(world.b[1], 0);
    world.b[1] = NULL;
    assert_int_equal(world.b[0]->ops->test(world.b[0]), RONDO_SUCCESS);
    assert_int_equal(out[0] + out[1], 10);
    assert_int_equal(world.b[0]->ops->allgather_start(world.b[0], &in, out, sizeof in), RONDO_REMOTE_ERROR);
    world_free(&world, 0);
}

static void records_of_different_sizes_are_refused_and_named(void **state)
{
    (void)state;
    struct world world = world_new(2);
    int64_t in = 0, out[2];
    assert_int_equal(world.b[1]->ops->allgather_start(world.b[1], &in, out, 8), RONDO_SUCCESS);
    assert_int_equal(world.b[0]->ops->allgather_start(world.b[0], &in, out, 4), RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "rank 0 sends 4 bytes where rank 1 sent 8"));
    world_free(&world, 0);
}

static void bad_ranks_and_peers_are_refused(void **state)
{
    (void)state;
    struct rondo_hub *none;
    assert_int_equal(rondo_hub_create(0, &none), RONDO_INVALID_ARGUMENT);
    struct world world = world_new(3);
    struct rondo_bootstrap *again;
    assert_int_equal(rondo_bootstrap_threads(world.hub, 1, &again), RONDO_INVALID_USAGE);
    assert_int_equal(rondo_bootstrap_threads(world.hub, 3, &again), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_bootstrap_threads(world.hub, -1, &again), RONDO_INVALID_ARGUMENT);
    static const int bad[][2] = {
        { 0, 0 }, { 1, 0 }, { 0, 3 }, { -1, 0 }
    }; /* rank 1's peers: twice the same, itself, out of range */
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        struct world w = world_new(3);
        int send[2] = { 0 }, recv[2];
        assert_int_equal(w.b[1]->ops->exchange_start(w.b[1], 2, bad[i], send, recv, sizeof(int)),
                         RONDO_INTERNAL_ERROR);
        world_free(&w, 0);
    }
    world_free(&world, 1);
}

/* ---- ranks as threads ---- */

enum { THREADS = 8, ROUNDS = 60, COMMS = 3 };

struct rank_arg {
    struct rondo_hub *hub;
    int rank;
    uint64_t seed;
    int wrong;
    rondo_status status;
};

/* Do i and j exchange in this round? A hash of (seed, round, i, j) decides, so both sides agree. */
static int edge(uint64_t seed, int round, int i, int j)
{
    int key[3] = { round, i < j ? i : j, i < j ? j : i };
    return i != j && rondo_hash(key, sizeof key, seed) & 1;
}

static rondo_status rank_exchange(struct rank_arg *arg, struct rondo_bootstrap *b, int round)
{
    int peer[THREADS], n = 0;
    size_t bytes = (size_t)(round % MAX_BYTES) + 1;
    uint8_t send[THREADS * MAX_BYTES], recv[THREADS * MAX_BYTES] = { 0 };
    for (int j = THREADS - 1; j >= 0; j--) {
        if (edge(arg->seed, round, arg->rank, j)) {
            fill(send + (size_t)n * bytes, bytes, arg->rank, j, round);
            peer[n++] = j;
        }
    }
    RONDO_TRY(b->ops->exchange_start(b, n, peer, send, recv, bytes));
    RONDO_TRY(finish(b));
    for (int i = 0; i < n; i++) {
        arg->wrong += wrong_bytes(recv + (size_t)i * bytes, bytes, peer[i], arg->rank, round);
    }
    return RONDO_SUCCESS;
}

static rondo_status rank_allgather(struct rank_arg *arg, struct rondo_bootstrap *b, int round)
{
    size_t bytes = (size_t)(round * 5 % MAX_BYTES) + 1;
    uint8_t mine[MAX_BYTES], all[THREADS * MAX_BYTES];
    fill(mine, bytes, arg->rank, 0, round);
    RONDO_TRY(b->ops->allgather_start(b, mine, all, bytes));
    RONDO_TRY(finish(b));
    for (int i = 0; i < THREADS; i++) {
        arg->wrong += wrong_bytes(all + (size_t)i * bytes, bytes, i, 0, round);
    }
    return RONDO_SUCCESS;
}

static rondo_status rank_rounds(struct rank_arg *arg, struct rondo_bootstrap *b)
{
    for (int round = 0; round < ROUNDS; round++) {
        int kind = (int)(rondo_hash(&round, sizeof round, arg->seed) % 3);
        RONDO_TRY(kind == 0 ? rank_allgather(arg, b, round) : rank_exchange(arg, b, round));
    }
    return RONDO_SUCCESS;
}

/* Several communicators one after another in one hub: a fast rank is in the next one while others close the
 * last. */
static void *rank_main(void *data)
{
    struct rank_arg *arg = data;
    for (int comm = 0; comm < COMMS && arg->status == RONDO_SUCCESS; comm++) {
        struct rondo_bootstrap *b;
        arg->status = rondo_bootstrap_threads(arg->hub, arg->rank, &b);
        if (arg->status == RONDO_SUCCESS) {
            arg->status = rank_rounds(arg, b);
            b->ops->close(b, arg->status == RONDO_SUCCESS);
        }
    }
    return NULL;
}

static void threads_in_any_order_get_the_right_records(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        struct rondo_hub *hub;
        assert_int_equal(rondo_hub_create(THREADS, &hub), RONDO_SUCCESS);
        pthread_t thread[THREADS];
        struct rank_arg arg[THREADS];
        for (int i = 0; i < THREADS; i++) {
            arg[i] = (struct rank_arg){ .hub = hub, .rank = i, .seed = seed };
            assert_int_equal(pthread_create(&thread[i], NULL, rank_main, &arg[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(arg[i].status, RONDO_SUCCESS);
            assert_int_equal(arg[i].wrong, 0);
        }
        rondo_hub_release(hub);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allgather_gives_every_rank_every_record),
        cmocka_unit_test(a_rank_may_be_one_allgather_ahead),
        cmocka_unit_test(exchange_parks_records_of_a_peer_that_is_ahead),
        cmocka_unit_test(missing_names_exactly_the_absent),
        cmocka_unit_test(missing_in_an_exchange_names_the_silent_peer),
        cmocka_unit_test(failure_of_one_rank_ends_the_rounds_of_all),
        cmocka_unit_test(a_complete_round_is_delivered_even_if_a_rank_fails_after_it),
        cmocka_unit_test(records_of_different_sizes_are_refused_and_named),
        cmocka_unit_test(bad_ranks_and_peers_are_refused),
        cmocka_unit_test(threads_in_any_order_get_the_right_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
