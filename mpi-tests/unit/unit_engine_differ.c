/* Calls that differ between ranks, with threads as ranks: each is named, and writes only its buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "fake_ranks.h"

struct mismatch {
    const char *what;
    struct fake_call usual, odd; /* the last rank's call differs */
    const char *usual_text, *odd_text;
};

static const struct mismatch mismatches[] = {
    { "count",
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 8 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 9 },
      "all_reduce #1 (count 8, f32, sum)",
      "all_reduce #1 (count 9, f32, sum)" },
    { "large count",
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 30000 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 60000 },
      "all_reduce #1 (count 30000, f32, sum)",
      "all_reduce #1 (count 60000, f32, sum)" },
    { "one small, one large",
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 8 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 60000 },
      "all_reduce #1 (count 8, f32, sum)",
      "all_reduce #1 (count 60000, f32, sum)" },
    { "none",
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 8 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 0 },
      "all_reduce #1 (count 8, f32, sum)",
      "all_reduce #1 (count 0, f32, sum)" },
    { "type",
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 8 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 8 },
      "all_reduce #1 (count 8, f32, sum)",
      "all_reduce #1 (count 8, i32, sum)" },
    { "operation",
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 8 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .op = RONDO_MAX, .count = 8 },
      "all_reduce #1 (count 8, f32, sum)",
      "all_reduce #1 (count 8, f32, max)" },
    { "root",
      { .coll = FAKE_BROADCAST, .type = RONDO_UINT8, .count = 800, .root = 0 },
      { .coll = FAKE_BROADCAST, .type = RONDO_UINT8, .count = 800, .root = 1 },
      "broadcast #1 (count 800, u8, root 0)",
      "broadcast #1 (count 800, u8, root 1)" },
    { "root of reduce",
      { .coll = FAKE_REDUCE, .type = RONDO_INT32, .count = 5000, .root = 1 },
      { .coll = FAKE_REDUCE, .type = RONDO_INT32, .count = 5000, .root = 0 },
      "reduce #1 (count 5000, i32, sum, root 1)",
      "reduce #1 (count 5000, i32, sum, root 0)" },
    { "collective",
      { .coll = FAKE_ALL_GATHER, .type = RONDO_INT32, .count = 10 },
      { .coll = FAKE_REDUCE_SCATTER, .type = RONDO_INT32, .count = 10 },
      "all_gather #1 (count 10, i32)",
      "reduce_scatter #1 (count 10, i32, sum)" },
    { "collective, other conns",
      { .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 10 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 10 },
      "all_to_all #1 (count 10, i32)",
      "all_reduce #1 (count 10, i32, sum)" },
    { "count of gather",
      { .coll = FAKE_GATHER, .type = RONDO_INT32, .count = 1000, .root = 0 },
      { .coll = FAKE_GATHER, .type = RONDO_INT32, .count = 1001, .root = 0 },
      "gather #1 (count 1000, i32, root 0)",
      "gather #1 (count 1001, i32, root 0)" },
    { "barrier",
      { .coll = FAKE_BARRIER, .type = RONDO_UINT8 },
      { .coll = FAKE_ALL_REDUCE, .type = RONDO_UINT8, .op = RONDO_MAX, .count = 1 },
      "barrier #1",
      "all_reduce #1 (count 1, u8, max)" },
    { "counts of a v-form",
      { .coll = FAKE_ALL_GATHERV, .type = RONDO_UINT8, .count = 50 },
      { .coll = FAKE_ALL_GATHERV, .type = RONDO_UINT8, .count = 51 },
      "in all_gatherv #1 (all counts together ",
      "counts[0], of rank 0, is 5" },
    { "v-form",
      { .coll = FAKE_ALL_TO_ALLV, .type = RONDO_UINT8, .count = 50 },
      { .coll = FAKE_ALL_GATHERV, .type = RONDO_UINT8, .count = 50 },
      "all_to_allv #1 (all counts together",
      "all_gatherv #1 (all counts together" },
};

static void call_otherwise(struct fake_rank *r)
{
    const struct mismatch *m = r->arg;
    struct fake_call c = r->rank == r->nranks - 1 ? m->odd : m->usual;
    struct fake_buffers b;
    const char *damage;
    rondo_status status;
    c.rank = r->rank;
    c.nranks = r->nranks;
    fake_call_prepare(&c, &b);
    status = fake_call_issue(&c, &b, r->comm, NULL);
    damage = fake_call_guards(&c, &b);
    FAKE_CHECK(r, *damage == '\0', "%s", damage);
    /* A root that only sends, or a rank with nothing to do, may end before the difference is found. */
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE || status == RONDO_SUCCESS, "%s: %s: %s", m->what,
               rondo_status_string(status), rondo_last_error(r->comm));
    status = rondo_barrier(r->comm, NULL);
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE, "%s: the next call gives %s: %s", m->what,
               rondo_status_string(status), rondo_last_error(r->comm));
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), m->usual_text) &&
                   fake_has(rondo_last_error(r->comm), m->odd_text),
               "%s: %s", m->what, rondo_last_error(r->comm));
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), "rank 1 on ") ||
                   fake_has(rondo_last_error(r->comm), "rank 2 on "),
               "%s", rondo_last_error(r->comm));
    FAKE_CHECK(r, fake_has(rondo_last_error(r->comm), "same calls in the same order"), "%s",
               rondo_last_error(r->comm));
}

static void calls_that_differ_are_named_and_write_only_their_buffers(void **state)
{
    static const char *const algos[][2] = { { "", "" },
                                            { "^twoshot", "" },
                                            { "ring", "simple" },
                                            { "ring", "ll" },
                                            { "ring;all_reduce:tree;broadcast:tree;reduce:tree", "ll128" } };
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(mismatches); m++) {
        for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
            struct mismatch copy = mismatches[m];
            fake_params("ALGO", algos[a][0], "PROTO", algos[a][1], "BUFFSIZE", "8K", "PAIR_SIZE", "64", NULL);
            fake_ranks(2, call_otherwise, &copy);
            fake_ranks(3, call_otherwise, &copy);
        }
    }
}

static void call_in_another_order(struct fake_rank *r)
{
    int x[8] = { 0 };
    rondo_status status = RONDO_SUCCESS;
    for (int k = 0; k < 2 && status == RONDO_SUCCESS; k++) {
        status = (k == 0) == (r->rank == 0) ? rondo_all_reduce(x, x, 4, RONDO_INT32, RONDO_SUM, r->comm, NULL)
                                            : rondo_broadcast(x, x, 4, RONDO_INT32, 0, r->comm, NULL);
    }
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE, "%s", rondo_status_string(status));
    FAKE_CHECK(r,
               fake_has(rondo_last_error(r->comm), "all_reduce #1 (") &&
                   fake_has(rondo_last_error(r->comm), "broadcast #1 ("),
               "%s", rondo_last_error(r->comm));
}

static void group_in_another_order(struct fake_rank *r)
{
    int x[8] = { 0 };
    FAKE_OK(r, rondo_group_start());
    for (int k = 0; k < 2; k++) { /* all ranks make the same last call of the group */
        FAKE_OK(
            r, rondo_all_reduce(x, x, k == 0 && r->rank == 1 ? 3 : 4, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    }
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "all_reduce #1 (count 3");
}

static void send_otherwise(struct fake_rank *r)
{
    int x[2000] = { 0 }, guard[4] = { 7, 7, 7, 7 };
    rondo_status status = r->rank == 0 ? rondo_send(x, 2000, RONDO_INT32, 1, r->comm, NULL)
                                       : rondo_recv(guard, 4, RONDO_INT32, 0, r->comm, NULL);
    FAKE_CHECK(r, guard[0] == 7 && guard[3] == 7);
    if (r->rank == 1) {
        FAKE_CHECK(r,
                   status == RONDO_INVALID_USAGE &&
                       fake_has(rondo_last_error(r->comm), "receives 4 i32 from rank 0"),
                   "%s", rondo_last_error(r->comm));
    } else {
        FAKE_CHECK(r, status == RONDO_INVALID_USAGE || status == RONDO_SUCCESS);
        while (status == RONDO_SUCCESS) { /* a communicator that ends while it is destroyed is an error */
            FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
            fake_sleep_ms(1);
        }
    }
}

/* Two messages; the first is empty on the ranks of `empty`. The second one reveals it if only one rank's was
 * empty. */
static void send_nothing(struct fake_rank *r)
{
    int empty = *(const int *)r->arg, x[4] = { 5, 6, 7, 8 }, guard[4] = { 0 };
    rondo_status status = RONDO_SUCCESS;
    for (int k = 0; k < 2 && status == RONDO_SUCCESS; k++) {
        size_t count = k == 0 && empty >> r->rank & 1 ? 0 : 4;
        status = r->rank == 0 ? rondo_send(x, count, RONDO_INT32, 1, r->comm, NULL)
                              : rondo_recv(guard, count, RONDO_INT32, 0, r->comm, NULL);
    }
    if (empty == 3) {
        FAKE_OK(r, status);
        FAKE_CHECK(r, r->rank == 0 || memcmp(guard, x, sizeof(x)) == 0);
        return;
    }
    FAKE_CHECK(r, guard[0] == 0 && status == (r->rank == 1 || status != RONDO_SUCCESS ? RONDO_INVALID_USAGE
                                                                                      : RONDO_SUCCESS));
    FAKE_ERROR(r, rondo_barrier(r->comm, NULL), RONDO_INVALID_USAGE, "receives 4 i32 from rank 0");
}

static void differing_orders_and_messages_are_found(void **state)
{
    static const char *const algos[] = { "", "ring" };
    (void)state;
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        fake_params("ALGO", algos[a], NULL);
        fake_ranks(2, call_in_another_order, NULL);
        fake_ranks(2, group_in_another_order, NULL);
        fake_ranks(2, send_otherwise, NULL);
        for (int empty = 1; empty <= 3; empty++) {
            fake_ranks(2, send_nothing, &empty);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_differ_are_named_and_write_only_their_buffers),
        cmocka_unit_test(differing_orders_and_messages_are_found),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
