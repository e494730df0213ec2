/* Corrections of the cost model (tuner/drift.h, call/drift.h): judged alike, at the same call on all ranks,
 * without another bit in a result, and not for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "call/cached.h"
#include "call/drift.h"
#include "fake_ranks.h"

/* ---- samples ---- */

static void fill(uint32_t all[RONDO_DRIFT_SAMPLES], int way, double ratio)
{
    for (int i = 0; i < RONDO_DRIFT_SAMPLES; i++) {
        all[i] = rondo_drift_sample(way, ratio);
    }
}

static double factor_of(const struct rondo_drift_kind *kind, int way) { return (double)kind->factor[way]; }

static void a_way_is_corrected_if_it_drifts_by_more_than_half(void **state)
{
    static const struct {
        double ratio;
        int drifts;
    } cases[] = { { 1, 0 }, { 1.49, 0 }, { 1.52, 1 }, { 0.65, 0 }, { 0, 0 }, { 1e9, 1 } };
    uint32_t all[RONDO_DRIFT_SAMPLES];
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        struct rondo_drift_kind kind = { .coll = RONDO_COLL_ALL_REDUCE };
        fill(all, RONDO_ALGO_ONESHOT, cases[i].ratio);
        assert_int_equal(rondo_drift_judge(&kind, all), cases[i].drifts);
        assert_int_equal(kind.ncorrections, cases[i].drifts);
        assert_int_equal(rondo_drift_judge(&kind, all), 0); /* it is what the factor says */
    }
}

/* The median decides, and only if there are enough. */
static void few_slow_calls_are_no_drift(void **state)
{
    struct rondo_drift_kind kind = { .coll = RONDO_COLL_ALL_REDUCE };
    uint32_t all[RONDO_DRIFT_SAMPLES];
    (void)state;
    fill(all, RONDO_ALGO_ONESHOT, 1.1);
    for (int i = 0; i < RONDO_DRIFT_SAMPLES / 2 - 1; i++) {
        all[2 * i] = rondo_drift_sample(RONDO_ALGO_ONESHOT, 100);
    }
    assert_int_equal(rondo_drift_judge(&kind, all), 0);
    memset(all, 0, sizeof(all));
    for (int i = 0; i < RONDO_DRIFT_LEAST - 1; i++) {
        all[i] = rondo_drift_sample(RONDO_WAY_KERNEL_APART, 3);
    }
    assert_int_equal(rondo_drift_judge(&kind, all), 0);
    all[RONDO_DRIFT_LEAST] = all[0];
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    assert_true(factor_of(&kind, RONDO_WAY_KERNEL_APART) == 3);
    assert_true(factor_of(&kind, RONDO_ALGO_ONESHOT) == 0); /* never measured */
}

/* What was tried is compared by what it took, even if that is about what was predicted. */
static void the_next_way_counts_as_measured(void **state)
{
    struct rondo_drift_kind kind = { .coll = RONDO_COLL_ALL_REDUCE };
    uint32_t all[RONDO_DRIFT_SAMPLES];
    (void)state;
    fill(all, RONDO_ALGO_TWOSHOT, 1.3);
    assert_int_equal(rondo_drift_judge(&kind, all), 0);
    assert_true(factor_of(&kind, RONDO_ALGO_TWOSHOT) == 0);
    fill(all, RONDO_ALGO_ONESHOT, 2);
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    fill(all, RONDO_ALGO_TWOSHOT, 1.3);
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    assert_true(factor_of(&kind, RONDO_ALGO_TWOSHOT) > 1.29 && factor_of(&kind, RONDO_ALGO_TWOSHOT) < 1.31);
    fill(all, RONDO_ALGO_TWOSHOT, 1.5); /* and not again for so little */
    assert_int_equal(rondo_drift_judge(&kind, all), 0);
    fill(all, RONDO_ALGO_RING, 1); /* as predicted, but no longer by the factor of what was not measured */
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    assert_true(factor_of(&kind, RONDO_ALGO_RING) == 1);
}

/* What was measured on a busy host says nothing of an idle one: the model chooses again. */
static void a_way_that_becomes_faster_ends_all_corrections(void **state)
{
    struct rondo_drift_kind kind = { .coll = RONDO_COLL_ALL_REDUCE };
    uint32_t all[RONDO_DRIFT_SAMPLES];
    (void)state;
    fill(all, RONDO_ALGO_ONESHOT, 4);
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    fill(all, RONDO_ALGO_RING, 3);
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    fill(all, RONDO_ALGO_RING, 2.1);
    assert_int_equal(rondo_drift_judge(&kind, all), 0);
    fill(all, RONDO_ALGO_RING, 1.9);
    assert_int_equal(rondo_drift_judge(&kind, all), 1);
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        assert_true(factor_of(&kind, w) == 0);
    }
}

/* Ranks that wait for a slow one measure too much; the slow one measures what the call takes. */
static void the_rank_that_came_last_counts(void **state)
{
    struct rondo_drift_kind kind = { .coll = RONDO_COLL_ALL_REDUCE };
    uint32_t all[RONDO_DRIFT_SAMPLES], slow[RONDO_DRIFT_SAMPLES], third[RONDO_DRIFT_SAMPLES];
    (void)state;
    fill(all, RONDO_ALGO_TWOSHOT, 50);
    fill(third, RONDO_ALGO_TWOSHOT, 40);
    fill(slow, RONDO_ALGO_TWOSHOT, 1);
    slow[3] = 0;                                          /* it did not wait for that call */
    third[4] = rondo_drift_sample(RONDO_ALGO_ONESHOT, 1); /* impossible */
    rondo_drift_merge(all, third);
    rondo_drift_merge(all, slow);
    for (int i = 0; i < RONDO_DRIFT_SAMPLES; i++) {
        assert_int_equal(all[i], i == 3 || i == 4 ? 0 : slow[i]);
    }
    assert_int_equal(rondo_drift_judge(&kind, all), 0);
}

static void every_size_has_a_kind(void **state)
{
    (void)state;
    assert_int_equal(rondo_drift_size((size_t)1 << RONDO_DRIFT_LEAST_BITS), 0);
    assert_int_equal(rondo_drift_size(((size_t)2 << RONDO_DRIFT_LEAST_BITS) - 1), 0);
    assert_int_equal(rondo_drift_size((size_t)2 << RONDO_DRIFT_LEAST_BITS), 1);
    assert_int_equal(rondo_drift_size(SIZE_MAX), RONDO_DRIFT_SIZES - 1);
}

/* ---- ranks ---- */

enum { MOST_RANKS = 4, CALLS = FAKE_ROUNDS(1500), COUNT = 3072, SHOWN = 4 };

/* What each rank did in each call: how many corrections there were before, and which algorithm was first. */
struct seen {
    int ncalls, slow, streams_from, aborts_at;
    uint8_t corrections[MOST_RANKS][CALLS], algo[MOST_RANKS][CALLS];
    int ended[MOST_RANKS];
};

/* The model says that what goes over the mailbox takes no time. */
static void falsify(struct fake_rank *r)
{
    struct rondo_layout *l = &r->comm->ctx->wiring.layout;
    l->model.mailbox_us = 1e-6;
    l->model.mailbox_bw = 1e9;
    l->model.pair_bw = l->model.pair_bw > 0 ? 1e9 : 0;
    l->model.pair_past_bw = l->model.pair_bw;
    l->model.base_us = 1e-3;
    l->fixed = l->model; /* so that more than two ranks begin with it, too */
}

static void note(struct fake_rank *r, struct seen *seen, int call)
{
    const struct rondo_drift *d = r->comm->ctx->calls.drift;
    const struct rondo_cached *entry = rondo_cached_find(
        r->comm->ctx, rondo_call_what(RONDO_COLL_ALL_REDUCE, RONDO_FLOAT32, RONDO_SUM, 0), COUNT);
    const struct rondo_drift_kind *kind = entry != NULL ? entry->kind : NULL;
    FAKE_CHECK(r, entry != NULL && kind != NULL && d != NULL, "call %d", call);
    seen->corrections[r->rank][call] = kind->ncorrections;
    seen->algo[r->rank][call] = entry->runs[0].work.algo;
    seen->ended[r->rank] = d->ended;
}

/* In rank order, as all algorithms reduce that may be chosen. */
static float sum_of(const struct fake_rank *r, int call, int i)
{
    float sum = (float)(call % 100) * 0.1f + (float)i;
    for (int rank = 1; rank < r->nranks; rank++) {
        sum += (float)(call % 100) * 0.1f / (float)(rank + 1) + (float)i;
    }
    return sum;
}

static void make_calls(struct fake_rank *r)
{
    static __thread float in[COUNT], out[COUNT];
    struct seen *seen = r->arg;
    rondo_stream stream;
    falsify(r);
    FAKE_OK(r, rondo_stream_create(&stream));
    for (int call = 0; call < seen->ncalls; call++) {
        int queues = seen->streams_from > 0 && r->rank == 1 && call >= seen->streams_from;
        for (int i = 0; i < COUNT; i++) {
            in[i] = (float)(call % 100) * 0.1f / (float)(r->rank + 1) + (float)i;
        }
        if (seen->slow && r->rank == 1 && call % 5 == 0) {
            fake_sleep_ms(1);
        }
        FAKE_OK(r,
                rondo_all_reduce(in, out, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, queues ? stream : NULL));
        if (queues) {
            FAKE_OK(r, rondo_stream_synchronize(stream));
        }
        for (int i = 0; i < COUNT; i += COUNT / SHOWN - 1) {
            float sum = sum_of(r, call, i);
            FAKE_CHECK(r, memcmp(&out[i], &sum, sizeof(sum)) == 0, "call %d: %a instead of %a", call,
                       (double)out[i], (double)sum);
        }
        note(r, seen, call);
        if (r->failure[0] != '\0') {
            return;
        }
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
}

static struct seen *run_ranks(int n, struct seen how)
{
    struct seen *seen = malloc(sizeof(*seen));
    assert_non_null(seen);
    *seen = how;
    seen->ncalls = CALLS;
    fake_ranks(n, make_calls, seen);
    return seen;
}

/* All ranks chose anew at the same calls, and chose the same. @return the corrections */
static int same_on_all(const struct seen *seen, int n)
{
    for (int call = 0; call < seen->ncalls; call++) {
        for (int r = 1; r < n; r++) {
            if (seen->corrections[r][call] != seen->corrections[0][call] ||
                seen->algo[r][call] != seen->algo[0][call]) {
                fail_msg("call %d: %d corrections and %s on rank %d, %d and %s on rank 0", call,
                         seen->corrections[r][call], rondo_algo_name(seen->algo[r][call]), r,
                         seen->corrections[0][call], rondo_algo_name(seen->algo[0][call]));
            }
        }
    }
    return seen->corrections[0][seen->ncalls - 1];
}

static void all_ranks_choose_anew_at_the_same_call(void **state)
{
    (void)state;
    fake_params("RECALIBRATE", "1", NULL);
    for (int n = 2; n <= MOST_RANKS; n++) {
        struct seen *seen = run_ranks(n, (struct seen){ .slow = 0 });
        int corrections = same_on_all(seen, n);
        assert_int_equal(seen->algo[0][0], RONDO_ALGO_ONESHOT);
        assert_in_range(corrections, 1, RONDO_DRIFT_CORRECTIONS);
        free(seen);
    }
}

static void a_slow_rank_changes_nothing_about_that(void **state)
{
    (void)state;
    fake_params("RECALIBRATE", "1", NULL);
    for (int n = 2; n <= 3; n++) {
        struct seen *seen = run_ranks(n, (struct seen){ .slow = 1 });
        assert_in_range(same_on_all(seen, n), 1, RONDO_DRIFT_CORRECTIONS);
        free(seen);
    }
}

/* A rank that does not wait for a call in which all vote ends the corrections. The other ranks learn it at
 * the same call, and the choice stays. */
static void a_rank_that_uses_streams_ends_it_on_all(void **state)
{
    (void)state;
    fake_params("RECALIBRATE", "1", NULL);
    for (int from = 1; from < CALLS; from += CALLS / 7) {
        struct seen *seen = run_ranks(3, (struct seen){ .streams_from = from });
        (void)same_on_all(seen, 3);
        assert_int_equal(seen->ended[0], seen->ended[2]);
        assert_true(seen->ended[1] || from > CALLS / 2);
        free(seen);
    }
}

static void calls(struct fake_rank *r, int n)
{
    static __thread float in[COUNT], out[COUNT];
    for (int i = 0; i < n; i++) {
        FAKE_OK(r, rondo_all_reduce(in, out, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
    }
}

/* Whenever the kind was corrected, the model becomes wrong in the other direction. */
static void never_right(struct fake_rank *r)
{
    struct rondo_model *m = &r->comm->ctx->wiring.layout.model;
    const struct rondo_drift_kind *kind;
    falsify(r);
    calls(r, 1);
    kind = r->comm->ctx->calls.drift->kind[RONDO_COLL_ALL_REDUCE][rondo_drift_size(COUNT * sizeof(float))];
    for (int seen = 0, i = 0; seen < RONDO_DRIFT_CORRECTIONS; i++) {
        FAKE_CHECK(r, i < 60 * 64 * RONDO_DRIFT_CORRECTIONS, "%d corrections", kind->ncorrections);
        calls(r, 1);
        if (kind->ncorrections > seen) {
            seen = kind->ncorrections;
            m->base_us = seen % 2 != 0 ? 1e6 : 1e-6;
        }
    }
    calls(r, 600);
    FAKE_CHECK(r, kind->ncorrections == RONDO_DRIFT_CORRECTIONS, "%d corrections", kind->ncorrections);
    FAKE_CHECK(r, kind->left > 1u << 30, "%u calls are left", kind->left);
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        FAKE_CHECK(r, kind->factor[w] == 0, "way %d: %g", w, (double)kind->factor[w]);
    }
}

static void corrections_end(void **state)
{
    (void)state;
    fake_params("RECALIBRATE", "1", NULL);
    fake_ranks(2, never_right, NULL);
    fake_ranks(3, never_right, NULL);
}

static void expects_nothing(struct fake_rank *r)
{
    calls(r, 20);
    FAKE_CHECK(r, r->comm->ctx->calls.drift == NULL, "calls are counted");
}

/* Broadcast and reduce do not synchronize the ranks, and small calls are not worth it. */
static void expects_few(struct fake_rank *r)
{
    static __thread float in[COUNT], out[COUNT];
    for (int i = 0; i < 20; i++) {
        FAKE_OK(r, rondo_broadcast(in, out, COUNT, RONDO_FLOAT32, 0, r->comm, NULL));
        FAKE_OK(r, rondo_reduce(in, out, COUNT, RONDO_FLOAT32, RONDO_SUM, 0, r->comm, NULL));
        FAKE_OK(r, rondo_all_reduce(in, out, 2047, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    FAKE_CHECK(r, r->comm->ctx->calls.drift == NULL, "calls are counted");
    calls(r, 1);
    FAKE_CHECK(r, r->comm->ctx->calls.drift != NULL, "calls are not counted");
}

static void only_some_calls_are_timed(void **state)
{
    (void)state;
    fake_params("RECALIBRATE", "0", NULL);
    fake_ranks(2, expects_nothing, NULL);
    fake_params("RECALIBRATE", "1", "EXEC", "null", NULL);
    fake_ranks(2, expects_nothing, NULL);
    fake_params("RECALIBRATE", "1", NULL);
    fake_ranks(2, expects_few, NULL);
}

/* ---- the end ---- */

static void aborted(struct fake_rank *r)
{
    static __thread float in[COUNT], out[COUNT];
    const int *at = r->arg;
    falsify(r);
    for (int call = 0; call < CALLS; call++) {
        rondo_status status;
        if (r->rank == 1 && call == *at) {
            rondo_comm_abort(r->comm);
            r->comm = NULL;
            return;
        }
        status = rondo_all_reduce(in, out, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL);
        if (call >= *at && status != RONDO_SUCCESS) {
            return;
        }
        FAKE_CHECK(r, status == RONDO_SUCCESS && call < *at, "call %d: %s", call, rondo_last_error(NULL));
    }
}

/* Between any two steps of the first vote and of the next: nobody waits, and nothing is left. */
static void an_end_in_the_middle_leaves_nothing(void **state)
{
    static const int at[] = { 1, 255, 256, 262, 263, 264, 270, 271, 272, 273, 300 };
    struct holdings then;
    (void)state;
    fake_params("RECALIBRATE", "1", NULL);
    fake_ranks(3, aborted, &(int){ 0 });
    then = holdings_now();
    for (size_t i = 0; i < RONDO_COUNTOF(at); i++) {
        int call = at[i];
        fake_ranks(3, aborted, &call);
        fake_holds(then);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_way_is_corrected_if_it_drifts_by_more_than_half),
        cmocka_unit_test(few_slow_calls_are_no_drift),
        cmocka_unit_test(the_next_way_counts_as_measured),
        cmocka_unit_test(a_way_that_becomes_faster_ends_all_corrections),
        cmocka_unit_test(the_rank_that_came_last_counts),
        cmocka_unit_test(every_size_has_a_kind),
        cmocka_unit_test(all_ranks_choose_anew_at_the_same_call),
        cmocka_unit_test(a_slow_rank_changes_nothing_about_that),
        cmocka_unit_test(a_rank_that_uses_streams_ends_it_on_all),
        cmocka_unit_test(corrections_end),
        cmocka_unit_test(only_some_calls_are_timed),
        cmocka_unit_test(an_end_in_the_middle_leaves_nothing),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
