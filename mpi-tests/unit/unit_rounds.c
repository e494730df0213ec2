/* The rounds of creation as a state machine, in simulated time: trees of all sizes, and missing, dead,
 * stopped and late ranks at each position. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sim/rounds_sim.h"
#include "base/mem.h"

#define SECOND INT64_C(1000000000)
enum { MOST = 300 };

static void a_tree_covers_all_ranks_once_and_is_flat(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        int most = 0;
        for (int rank = 0; rank < n; rank++) {
            struct rondo_subtree place = rondo_subtree_of(rank, n);
            int next = rank + 1;
            assert_int_equal(place.rank, rank);
            assert_true(place.nchildren <= RONDO_SUBTREE_ARITY);
            for (int i = 0; i < place.nchildren; i++) {
                struct rondo_subtree child = rondo_subtree_of(place.child[i], n);
                assert_int_equal(child.parent, rank);
                assert_int_equal(child.rank, next);
                assert_int_equal(child.end, place.child[i + 1]);
                assert_true(rondo_subtree_is_above(rank, child.end - 1, n));
                next = child.end;
            }
            assert_int_equal(next, place.end);
            most = place.depth > most ? place.depth : most;
        }
        assert_int_equal(rondo_subtree_of(0, n).end, n);
        assert_int_equal(rondo_subtree_of(0, n).parent, -1);
        assert_true(1 << most <= n); /* at most log2(n) deep */
    }
    assert_true(rondo_subtree_of(131071, 131072).depth <= 9);
}

static struct rounds_sim_config config_of(int n, int nrounds, const size_t *record)
{
    return (struct rounds_sim_config){ .n = n,
                                       .nrounds = nrounds,
                                       .record = record,
                                       .latency_ns = 10000,
                                       .timeout_ns = 60 * SECOND,
                                       .seed = (uint64_t)n,
                                       .resend_ns = SECOND / 5,
                                       .carry = 1 };
}

static void allgathers_of_all_sizes_give_the_table(void **state)
{
    static const size_t record[] = { 8, 0, 24, 1100, 0, 1 };
    (void)state;
    for (int n = 1; n <= MOST; n += n < 24 ? 1 : 23) {
        struct rounds_sim_config config = config_of(n, 6, record);
        config.loss = n % 3 ? 0 : 0.02;
        config.part = n % 2 ? 0 : 333;
        config.nrounds = n < 24 ? 6 : 3;
        struct rounds_sim *sim = rounds_sim_new(&config);
        rounds_sim_run(sim);
        assert_true(rounds_sim_is_right(sim));
        for (int rank = 0; rank < n; rank++) {
            assert_int_equal(rounds_sim_rank(sim, rank)->status, RONDO_SUCCESS);
        }
        rounds_sim_free(sim);
    }
}

/* All ranks have the sum, also of records that take several messages, and of none. */
static void reductions_of_all_sizes_give_the_sum(void **state)
{
    static const size_t record[] = { 16, 1100, 0, 24, 1 };
    static const uint8_t kind[] = { ROUNDS_SIM_REDUCE, ROUNDS_SIM_REDUCE, ROUNDS_SIM_REDUCE,
                                    ROUNDS_SIM_ALLGATHER, ROUNDS_SIM_REDUCE };
    (void)state;
    for (int n = 1; n <= MOST; n += n < 24 ? 1 : 23) {
        struct rounds_sim_config config = config_of(n, 5, record);
        config.kind = kind;
        config.loss = n % 3 ? 0 : 0.02;
        config.part = n % 2 ? 0 : 333;
        struct rounds_sim *sim = rounds_sim_new(&config);
        rounds_sim_run(sim);
        assert_true(rounds_sim_is_right(sim));
        for (int rank = 0; rank < n; rank++) {
            assert_int_equal(rounds_sim_rank(sim, rank)->status, RONDO_SUCCESS);
        }
        rounds_sim_free(sim);
    }
}

/* The bytes of a reduction do not grow with the group. */
static void a_reduction_sends_few_bytes(void **state)
{
    static const size_t record[] = { 16 };
    static const uint8_t kind[] = { ROUNDS_SIM_REDUCE };
    uint64_t most = 0;
    (void)state;
    for (int n = 8; n <= 4096; n *= 8) {
        struct rounds_sim_config config = config_of(n, 1, record);
        config.carry = 0;
        config.kind = kind;
        struct rounds_sim *sim = rounds_sim_new(&config);
        rounds_sim_run(sim);
        for (int rank = 0; rank < n; rank++) {
            uint64_t bytes = rounds_sim_rank(sim, rank)->bytes;
            assert_true(rounds_sim_rank(sim, rank)->sent <= RONDO_SUBTREE_ARITY + 1);
            assert_true(n == 8 || bytes <= most);
            most = n == 8 && bytes > most ? bytes : most;
        }
        rounds_sim_free(sim);
        most = n == 8 ? most * 2 : most;
    }
}

/* In a round of short records a rank sends to at most its neighbours, whatever the size of the group. */
static void a_rank_has_few_messages(void **state)
{
    static const size_t record[] = { 0, 0 };
    (void)state;
    for (int n = 2; n <= 4096; n *= 2) {
        struct rounds_sim_config config = config_of(n, 2, record);
        struct rounds_sim *sim = rounds_sim_new(&config);
        int64_t took = rounds_sim_run(sim);
        for (int rank = 0; rank < n; rank++) {
            assert_true(rounds_sim_rank(sim, rank)->sent <= 2 * (RONDO_SUBTREE_ARITY + 1));
        }
        assert_true(took <= 4 * 10000 * (int64_t)rondo_subtree_of(n - 1, n).depth + 10000);
        rounds_sim_free(sim);
    }
}

/* ---- one rank at fault ---- */

/* What all others must find. */
struct expected {
    int rank;      /* at fault */
    int impatient; /* whose deadline passes; -1: of all */
    rondo_status status;
};

static void check(struct rounds_sim *sim, int n, const struct expected *expected, int64_t by_ns)
{
    for (int rank = 0; rank < n; rank++) {
        const struct rounds_sim_rank *out = rounds_sim_rank(sim, rank);
        if (rank == expected->rank) {
            continue;
        }
        if (out->status != expected->status || out->ended_ns > by_ns) {
            fail_msg("n %d, rank %d at fault: rank %d ends with %d after %lld ns", n, expected->rank, rank,
                     out->status, (long long)out->ended_ns);
        }
        int named = expected->status == RONDO_TIMEOUT ? (out->nmissing == 1 ? out->missing[0] : -2)
                                                      : out->named;
        if (named != expected->rank) {
            fail_msg("n %d, rank %d at fault: rank %d names %d (%d named)", n, expected->rank, rank, named,
                     out->nmissing);
        }
    }
}

static void run_fault(int n, int rank, enum rounds_sim_fate fate, int impatient)
{
    static const size_t record[] = { 24, 8 };
    static const uint8_t reduces[] = { ROUNDS_SIM_REDUCE, ROUNDS_SIM_ALLGATHER };
    struct rounds_sim_config config = config_of(n, 2, record);
    struct expected expected = { rank, impatient,
                                 fate == ROUNDS_SIM_DIES ? RONDO_REMOTE_ERROR : RONDO_TIMEOUT };
    config.carry = 0;
    config.kind = n % 2 ? reduces : NULL;
    config.timeout_ns = impatient < 0 ? SECOND : 60 * SECOND;
    struct rounds_sim *sim = rounds_sim_new(&config);
    for (int r = 0; r < n; r++) {
        rounds_sim_rank(sim, r)->comes_ns = r % 7 * 1000000;
    }
    if (impatient >= 0) {
        rounds_sim_impatient(sim, impatient, SECOND);
    }
    rounds_sim_rank(sim, rank)->fate = fate;
    rounds_sim_rank(sim, rank)->dies_ns = 0;
    rounds_sim_run(sim);
    check(sim, n, &expected, 6 * SECOND);
    rounds_sim_free(sim);
}

static void run_faults(enum rounds_sim_fate fate, int has_impatient)
{
    for (int n = 2; n <= MOST; n += n < 48 ? 1 : n < 200 ? 51 : 49) {
        for (int rank = 0; rank < n; rank += n < 48 ? 1 : 3) {
            run_fault(n, rank, fate, has_impatient ? (rank + 1 + rank % (n - 1)) % n : -1);
        }
    }
}

static void a_missing_rank_is_named_by_all(void **state)
{
    (void)state;
    run_faults(ROUNDS_SIM_ABSENT, 0);
}

static void one_rank_that_gives_up_is_enough_to_name_it(void **state)
{
    (void)state;
    for (int n = 3; n <= MOST; n += n < 30 ? 1 : 90) {
        for (int rank = 0; rank < n; rank += n < 30 ? 1 : 7) {
            int impatient = (rank * 5 + 1) % n;
            /* Nobody is above the ranks below a missing rank 0: those of other branches hear nothing. */
            if (impatient != rank && rank > 0) {
                run_fault(n, rank, ROUNDS_SIM_ABSENT, impatient);
            }
        }
    }
}

static void a_dead_rank_is_named_by_all(void **state)
{
    (void)state;
    run_faults(ROUNDS_SIM_DIES, 0);
}

/* A rank stops somewhere in ten rounds. Whoever cannot finish names it; the others have finished. */
static void a_rank_that_stops_is_named_at_any_time(void **state)
{
    enum { A = ROUNDS_SIM_ALLGATHER, R = ROUNDS_SIM_REDUCE };
    static const size_t record[] = { 24, 8, 500, 0, 8, 8, 8, 8, 8, 8 };
    static const uint8_t kind[] = { A, R, R, A, R, R, A, A, R, A };
    (void)state;
    for (int n = 2; n <= 70; n += n < 12 ? 1 : 29) {
        for (int rank = 0; rank < n; rank++) {
            for (int step = 0; step < 12; step++) {
                struct rounds_sim_config config = config_of(n, 10, record);
                config.carry = 0;
                config.kind = step % 2 ? kind : NULL;
                config.timeout_ns = SECOND;
                struct rounds_sim *sim = rounds_sim_new(&config);
                rounds_sim_rank(sim, rank)->fate = ROUNDS_SIM_STOPS;
                rounds_sim_rank(sim, rank)->dies_ns = step * 37001;
                rounds_sim_run(sim);
                for (int r = 0; r < n; r++) {
                    const struct rounds_sim_rank *out = rounds_sim_rank(sim, r);
                    if (r != rank && out->status != RONDO_SUCCESS &&
                        (out->nmissing != 1 || out->missing[0] != rank)) {
                        fail_msg("n %d, rank %d stops at %d: rank %d ends with %d, %d named, %d first", n,
                                 rank, step * 37001, r, out->status, out->nmissing, out->missing[0]);
                    }
                }
                rounds_sim_free(sim);
            }
        }
    }
}

static void a_late_rank_is_named_and_learns_it(void **state)
{
    static const size_t record[] = { 24 };
    (void)state;
    for (int n = 2; n <= 90; n += n < 30 ? 1 : 30) {
        for (int rank = 0; rank < n; rank++) {
            struct rounds_sim_config config = config_of(n, 1, record);
            struct expected expected = { rank, -1, RONDO_TIMEOUT };
            config.timeout_ns = SECOND;
            struct rounds_sim *sim = rounds_sim_new(&config);
            rounds_sim_rank(sim, rank)->comes_ns = 10 * SECOND;
            rounds_sim_run(sim);
            check(sim, n, &expected, 6 * SECOND);
            /* Rank 0 finds all records, and ends with the next round. */
            assert_true(rounds_sim_rank(sim, rank)->status != RONDO_SUCCESS || rank == 0);
            assert_true(rounds_sim_rank(sim, rank)->ended_ns < 17 * SECOND);
            rounds_sim_free(sim);
        }
    }
}

/* ---- many at fault ---- */

static void no_innocent_rank_is_ever_named(void **state)
{
    static const size_t record[] = { 24, 300, 8 };
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t random = rondo_hash(&i, sizeof(i), seed);
        int n = 2 + (int)(random % 200), faults = 1 + (int)(random >> 16) % 12;
        struct rounds_sim_config config = config_of(n, 3, record);
        config.carry = 0;
        config.timeout_ns = SECOND;
        config.loss = random >> 32 & 1 ? 0.01 : 0;
        config.resend_ns = SECOND / 20;
        struct rounds_sim *sim = rounds_sim_new(&config);
        for (int f = 0; f < faults; f++) {
            random = rondo_hash(&f, sizeof(f), random);
            struct rounds_sim_rank *rank = rounds_sim_rank(sim, (int)(random % (uint64_t)n));
            rank->fate = random >> 40 & 1 ? ROUNDS_SIM_ABSENT : ROUNDS_SIM_STOPS;
            rank->dies_ns = (int64_t)(random >> 44 & 7) * 20000;
        }
        rounds_sim_run(sim);
        int failed = 0, named = 0;
        for (int r = 0; r < n; r++) {
            const struct rounds_sim_rank *out = rounds_sim_rank(sim, r);
            failed += out->fate == ROUNDS_SIM_COMES && out->status == RONDO_TIMEOUT;
            named += out->fate == ROUNDS_SIM_COMES && out->nmissing > 0;
            for (int k = 0; k < out->nmissing && out->fate == ROUNDS_SIM_COMES; k++) {
                if (rounds_sim_rank(sim, out->missing[k])->fate == ROUNDS_SIM_COMES) {
                    fail_msg("case %d, n %d: rank %d names rank %d", (int)i, n, r, out->missing[k]);
                }
            }
            assert_true(out->fate != ROUNDS_SIM_COMES || out->status != RONDO_IN_PROGRESS);
        }
        assert_int_equal(named, failed); /* everyone names someone */
        rounds_sim_free(sim);
    }
}

/* ---- a rank that has left ---- */

static rondo_status send_to_who_left(void *arg, int rank, const struct rondo_rounds_part *part)
{
    (void)arg, (void)rank, (void)part;
    return RONDO_REMOTE_ERROR;
}

static rondo_status receive_nothing(void *arg, int rank, const struct rondo_rounds_part *part)
{
    (void)arg, (void)rank, (void)part;
    return RONDO_IN_PROGRESS;
}

static rondo_status hear_nothing(void *arg, struct rondo_rounds_note *note)
{
    (void)arg, (void)note;
    return RONDO_IN_PROGRESS;
}

static enum rondo_rounds_state has_left(void *arg, int rank)
{
    (void)arg, (void)rank;
    return RONDO_ROUNDS_LEFT;
}

static void ask_nobody(void *arg, int rank) { (void)arg, (void)rank; }

static rondo_status lose(void *arg, int rank)
{
    (void)arg, (void)rank;
    return RONDO_REMOTE_ERROR;
}

/* However long ago the round before was. */
static void the_last_words_of_who_left_have_their_time_in_every_round(void **state)
{
    static const struct rondo_rounds_ops ops = { .send = send_to_who_left,
                                                 .receive = receive_nothing,
                                                 .hear = hear_nothing,
                                                 .state = has_left,
                                                 .ask = ask_nobody,
                                                 .lost = lose };
    struct rondo_rounds r;
    (void)state;
    assert_int_equal(rondo_rounds_init(&r, 1, 2, &ops, NULL), RONDO_SUCCESS);
    r.looked_ns = SECOND;
    rondo_rounds_allgather(&r, 8, 9 * SECOND);
    assert_int_equal(rondo_rounds_test(&r, 9 * SECOND), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_rounds_test(&r, 9 * SECOND + RONDO_ROUNDS_LAST / 2), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_rounds_test(&r, 9 * SECOND + RONDO_ROUNDS_LAST), RONDO_REMOTE_ERROR);
    rondo_rounds_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_covers_all_ranks_once_and_is_flat),
        cmocka_unit_test(allgathers_of_all_sizes_give_the_table),
        cmocka_unit_test(reductions_of_all_sizes_give_the_sum),
        cmocka_unit_test(a_reduction_sends_few_bytes),
        cmocka_unit_test(a_rank_has_few_messages),
        cmocka_unit_test(a_missing_rank_is_named_by_all),
        cmocka_unit_test(one_rank_that_gives_up_is_enough_to_name_it),
        cmocka_unit_test(a_dead_rank_is_named_by_all),
        cmocka_unit_test(a_rank_that_stops_is_named_at_any_time),
        cmocka_unit_test(a_late_rank_is_named_and_learns_it),
        cmocka_unit_test(no_innocent_rank_is_ever_named),
        cmocka_unit_test(the_last_words_of_who_left_have_their_time_in_every_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
