/* Repeated small calls (src/call/fast_path.c), with threads as ranks: always right, still checked and
 * compared with other ranks' calls, and ended by aborts. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "fake_ranks.h"

enum { ROUNDS = 4 };

/* ---- results ---- */

static const enum fake_coll small_colls[] = { FAKE_ALL_REDUCE, FAKE_REDUCE,     FAKE_BROADCAST,
                                              FAKE_BARRIER,    FAKE_ALL_GATHER, FAKE_REDUCE_SCATTER,
                                              FAKE_ALL_TO_ALL };
static const size_t small_counts[] = { 1, 2, 13, 16, 40, 100, 900 };

/* More calls than the cache holds, in changing order: some are found, some were evicted. Sometimes a rank is
 * late, so that the others stop looking and wait. */
static void again_and_again(struct fake_rank *r)
{
    static const rondo_dtype types[] = { RONDO_FLOAT32, RONDO_INT32, RONDO_UINT8, RONDO_FLOAT64 };
    enum { NCALLS = RONDO_COUNTOF(small_colls) * RONDO_COUNTOF(small_counts) * 3 };
    for (unsigned i = 0; i < ROUNDS * NCALLS; i++) {
        unsigned round = i / NCALLS, k = round % 2 == 0 ? i % NCALLS : i * 59 % NCALLS,
                 form = k / (unsigned)RONDO_COUNTOF(small_colls);
        enum fake_coll coll = small_colls[k % RONDO_COUNTOF(small_colls)];
        if (i % 97 == (unsigned)r->rank) {
            fake_sleep_ms(1);
        }
        FAKE_CALL(r, .coll = coll, .type = types[form % RONDO_COUNTOF(types)], .op = (rondo_op)(k % FAKE_OPS),
                  .root = (int)(k / 5 % (unsigned)r->nranks),
                  .count = small_counts[form % RONDO_COUNTOF(small_counts)], .in_place = (int)(round % 3),
                  .seed = i);
    }
}

static void repeated_calls_are_right(void **state)
{
    static const char *const spins[] = { "", "0" }; /* 0: no rank looks twice, all wait */
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(spins); s++) {
        fake_params("SPIN", spins[s], NULL);
        fake_ranks(1, again_and_again, NULL);
        fake_ranks(2, again_and_again, NULL);
        fake_ranks(3, again_and_again, NULL);
    }
}

/* The same call, back to back: a rank that only sends runs ahead as far as it may. */
static void back_to_back(struct fake_rank *r)
{
    for (int i = 0; i < 3000; i++) {
        int root = i / 100 % r->nranks, in[3] = { i + r->rank, 7 * i, -r->rank }, out[3] = { -1, -1, -1 };
        FAKE_OK(r, rondo_broadcast(in, out, 3, RONDO_INT32, root, r->comm, NULL));
        FAKE_CHECK(r, out[0] == i + root && out[1] == 7 * i && out[2] == -root, "call %d: %d %d %d", i,
                   out[0], out[1], out[2]);
        FAKE_OK(r, rondo_reduce(in, r->rank == root ? out : NULL, 3, RONDO_INT32, RONDO_MAX, root, r->comm,
                                NULL));
        FAKE_CHECK(r, r->rank != root || (out[0] == i + r->nranks - 1 && out[1] == 7 * i && out[2] == 0),
                   "call %d: %d %d %d", i, out[0], out[1], out[2]);
    }
}

static void a_rank_that_only_sends_is_not_too_far_ahead(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, back_to_back, NULL);
    fake_ranks(4, back_to_back, NULL);
}

/* Scalars belong to one rank: calls with them are not cached. */
static void with_scalars(struct fake_rank *r)
{
    for (int i = 0; i < 50; i++) {
        float x[2] = { (float)i, 1 }, y[2], scalar = (float)(r->rank + 1);
        rondo_op op;
        FAKE_OK(r, rondo_op_create_premul_sum(&op, &scalar, RONDO_FLOAT32, r->comm));
        FAKE_OK(r, rondo_all_reduce(x, y, 2, RONDO_FLOAT32, op, r->comm, NULL));
        FAKE_OK(r, rondo_op_destroy(op, r->comm));
        FAKE_CHECK(r, y[0] == 3 * (float)i && y[1] == 3, "call %d: %g %g", i, (double)y[0], (double)y[1]);
        FAKE_OK(r, rondo_all_reduce(x, x, 2, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
        FAKE_CHECK(r, x[0] == 2 * (float)i && x[1] == 2, "call %d: %g %g", i, (double)x[0], (double)x[1]);
    }
}

static void calls_with_scalars_are_not_cached(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, with_scalars, NULL);
}

/* ---- checks ---- */

/* A wrong call is an error although a right one like it was made before; later calls work. */
static void wrong_after_right(struct fake_rank *r)
{
    float x[4] = { 1, 2, 3, 4 }, y[4];
    for (int i = 0; i < 3; i++) {
        FAKE_OK(r, rondo_all_reduce(x, y, 4, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_broadcast(x, y, 4, RONDO_FLOAT32, 0, r->comm, NULL));
        FAKE_OK(r, rondo_reduce(x, y, 4, RONDO_FLOAT32, RONDO_SUM, 0, r->comm, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_ERROR(r, rondo_all_reduce(NULL, y, 4, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL),
                   RONDO_INVALID_ARGUMENT, "send buffer is NULL");
        FAKE_ERROR(r, rondo_all_reduce(x, NULL, 4, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL),
                   RONDO_INVALID_ARGUMENT, "receive buffer is NULL");
        FAKE_ERROR(r, rondo_broadcast(r->rank == 0 ? x : NULL, NULL, 4, RONDO_FLOAT32, 0, r->comm, NULL),
                   RONDO_INVALID_ARGUMENT, "receive buffer is NULL");
        FAKE_ERROR(r, rondo_reduce(NULL, y, 4, RONDO_FLOAT32, RONDO_SUM, 0, r->comm, NULL),
                   RONDO_INVALID_ARGUMENT, "send buffer is NULL");
        for (int bit = 5; bit < 32; bit++) { /* a packed word must not match another call */
            int large = (int)(1u << bit);
            FAKE_ERROR(
                r, rondo_all_reduce(x, y, 4, (rondo_dtype)(RONDO_FLOAT32 | large), RONDO_SUM, r->comm, NULL),
                RONDO_INVALID_ARGUMENT, "the type");
            FAKE_ERROR(r,
                       rondo_all_reduce(x, y, 4, RONDO_FLOAT32, (rondo_op)(RONDO_SUM | large), r->comm, NULL),
                       RONDO_INVALID_ARGUMENT, "the operation");
            FAKE_ERROR(r, rondo_broadcast(x, y, 4, RONDO_FLOAT32, large, r->comm, NULL),
                       RONDO_INVALID_ARGUMENT, "the root");
        }
        FAKE_ERROR(r, rondo_broadcast(x, y, 4, RONDO_FLOAT32, -1, r->comm, NULL), RONDO_INVALID_ARGUMENT,
                   "the root");
        FAKE_ERROR(r, rondo_all_reduce(x, y, 4, RONDO_FLOAT32, RONDO_SUM, NULL, NULL), RONDO_INVALID_ARGUMENT,
                   "");
        FAKE_OK(r, rondo_group_start()); /* in a group it waits for the group's end */
        FAKE_OK(r, rondo_all_reduce(x, y, 4, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_group_end());
        FAKE_CHECK(r, y[3] == 4 * (float)r->nranks, "%g", (double)y[3]);
    }
}

static void repeated_calls_are_still_checked(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, wrong_after_right, NULL);
}

/* ---- calls that differ ---- */

static rondo_status small_call(struct fake_rank *r, int which)
{
    int x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, y[16];
    switch (which) {
    case 0: return rondo_all_reduce(x, y, 4, RONDO_INT32, RONDO_SUM, r->comm, NULL);
    case 1: return rondo_all_reduce(x, y, 5, RONDO_INT32, RONDO_SUM, r->comm, NULL);
    case 2: return rondo_all_reduce(x, y, 4, RONDO_INT32, RONDO_MAX, r->comm, NULL);
    case 3: return rondo_broadcast(x, y, 4, RONDO_INT32, 0, r->comm, NULL);
    case 4: return rondo_broadcast(x, y, 4, RONDO_INT32, 1, r->comm, NULL);
    case 5: return rondo_reduce(x, y, 4, RONDO_INT32, RONDO_SUM, 0, r->comm, NULL);
    case 6: return rondo_all_gather(x, y, 4, RONDO_INT32, r->comm, NULL);
    default: return rondo_barrier(r->comm, NULL);
    }
}
enum { SMALL_CALLS = 8, USUAL = 3 };
static const char *const small_names[SMALL_CALLS] = {
    "all_reduce #%d (count 4, i32, sum)",   "all_reduce #%d (count 5, i32, sum)",
    "all_reduce #%d (count 4, i32, max)",   "broadcast #%d (count 4, i32, root 0)",
    "broadcast #%d (count 4, i32, root 1)", "reduce #%d (count 4, i32, sum, root 0)",
    "all_gather #%d (count 4, i32)",        "barrier #%d"
};

struct otherwise {
    int pair[2];
    pthread_barrier_t usual;
};

static void then_otherwise(struct fake_rank *r)
{
    struct otherwise *calls = r->arg;
    const int *pair = calls->pair;
    char name[2][64];
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < 2 * USUAL && status == RONDO_SUCCESS; i++) { /* both are cached by then */
        status = small_call(r, pair[i % 2]);
    }
    pthread_barrier_wait(
        &calls->usual); /* else its error would end right calls of late ranks: a sender is calls ahead */
    FAKE_CHECK(r, status == RONDO_SUCCESS, "%s: %s", rondo_status_string(status), rondo_last_error(r->comm));
    for (int k = 0; k < 2; k++) {
        snprintf(name[k], sizeof(name[k]), small_names[pair[k]], 2 * USUAL + 1); // NOLINT: the formats above
    }
    status = small_call(r, pair[r->rank == r->nranks - 1]);
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE || status == RONDO_SUCCESS, "%s",
               rondo_status_string(status)); /* as in unit_engine_differ */
    status = rondo_barrier(r->comm, NULL);
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE, "%s", rondo_status_string(status));
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), name[0]) && fake_has(rondo_last_error(r->comm), name[1]),
               "%s and %s: %s", name[0], name[1], rondo_last_error(r->comm));
}

static void calls_that_differ_are_named(void **state)
{
    (void)state;
    fake_params(NULL);
    for (int a = 0; a < SMALL_CALLS; a++) {
        for (int b = a + 1; b < SMALL_CALLS; b++) {
            struct otherwise calls = { .pair = { a, b } };
            int nranks = 2 + (a + b) % 2;
            pthread_barrier_init(&calls.usual, NULL, (unsigned)nranks);
            fake_ranks(nranks, then_otherwise, &calls);
            pthread_barrier_destroy(&calls.usual);
        }
    }
}

/* ---- the end ---- */

static void until_aborted(struct fake_rank *r)
{
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < 20; i++) {
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    if (r->rank == 1) {
        rondo_comm *comm = r->comm;
        fake_sleep_ms(5);
        r->comm = NULL;
        FAKE_OK(r, rondo_comm_abort(comm));
        FAKE_ERROR(r, rondo_barrier(comm, NULL), RONDO_INVALID_ARGUMENT, "");
        return;
    }
    status = rondo_barrier(r->comm, NULL);
    FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s: %s", rondo_status_string(status),
               rondo_last_error(r->comm));
    FAKE_CHECK(r, rondo_barrier(r->comm, NULL) == RONDO_REMOTE_ERROR); /* not even published */
}

static void an_abort_ends_a_call_that_waits(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, until_aborted, NULL);
    fake_ranks(3, until_aborted, NULL);
}

static void after_the_end(struct fake_rank *r)
{
    int x = 1, y = 0;
    for (int i = 0; i < 5; i++) {
        FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    }
    FAKE_OK(r, rondo_comm_finalize(r->comm));
    FAKE_ERROR(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL), RONDO_INVALID_USAGE,
               "finalized");
    FAKE_OK(r, rondo_comm_destroy(r->comm));
    FAKE_ERROR(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL), RONDO_INVALID_ARGUMENT,
               "destroyed");
    r->comm = NULL;
}

static void calls_after_the_end_are_errors(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, after_the_end, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_calls_are_right),
        cmocka_unit_test(a_rank_that_only_sends_is_not_too_far_ahead),
        cmocka_unit_test(calls_with_scalars_are_not_cached),
        cmocka_unit_test(repeated_calls_are_still_checked),
        cmocka_unit_test(calls_that_differ_are_named),
        cmocka_unit_test(an_abort_ends_a_call_that_waits),
        cmocka_unit_test(calls_after_the_end_are_errors),
    };
    fake_watchdog(240);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
