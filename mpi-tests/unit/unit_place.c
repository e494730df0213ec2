/* Calls in place, with the result at either end of the buffer, and displacements that differ between
 * ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "fake_ranks.h"

/* Slots of a few KiB, so that a block fills all slots of a conn several times. */
#define SMALL "BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K"
#define OVER_SOCKETS "SHM_DISABLE", "1", "NET", "socket", "SOCKET_IFNAME", "=lo"

static const enum fake_coll colls[] = { FAKE_REDUCE_SCATTER, FAKE_ALL_TO_ALL, FAKE_ALL_TO_ALLV,
                                        FAKE_ALL_GATHERV, FAKE_REDUCE_SCATTERV };
static const rondo_dtype types[] = { RONDO_FLOAT32, RONDO_UINT8, RONDO_INT32,
                                     RONDO_FLOAT64, RONDO_INT64, RONDO_INT8 };

/* Call k; place: enum fake_place, or one more: ranks differ. */
static void one(struct fake_rank *r, unsigned k, size_t count, int place, rondo_stream stream)
{
    struct fake_call c = { .coll = colls[k % RONDO_COUNTOF(colls)],
                           .type = types[k / 2 % RONDO_COUNTOF(types)],
                           .op = (rondo_op)(k / 3 % FAKE_OPS),
                           .count = count,
                           .in_place = place <= FAKE_AT_START ? place : (int)(k + (unsigned)r->rank) % 3,
                           .seed = k };
    if (c.coll == FAKE_ALL_TO_ALLV && place > FAKE_AT_START) {
        c.in_place = FAKE_IN_PLACE; /* which makes the counts of two ranks equal */
    }
    fake_call(r, c, stream);
}

static void every_place(struct fake_rank *r)
{
    static const size_t counts[] = { 1, 17, 260, 1001, 5000 };
    unsigned k = (unsigned)r->nranks;
    for (int place = 0; place <= FAKE_AT_START + 1; place++) {
        for (size_t i = 0; i < 2 * RONDO_COUNTOF(colls) && r->failure[0] == '\0'; i++, k++) {
            one(r, k, counts[k / 3 % RONDO_COUNTOF(counts)], place, NULL);
        }
    }
}

/* Several slices of every medium. */
static void large_places(struct fake_rank *r)
{
    for (unsigned k = 0; k < 4 * RONDO_COUNTOF(colls) && r->failure[0] == '\0'; k++) {
        one(r, k, 70001, (int)(k / RONDO_COUNTOF(colls)), NULL);
    }
}

static void all_ranks(int most, fake_rank_fn *fn)
{
    for (int n = 1; n <= most; n++) {
        fake_ranks(n, fn, NULL);
    }
}

static void every_place_is_right_with_the_tuners_choice(void **state)
{
    (void)state;
    fake_params(SMALL, NULL);
    all_ranks(9, every_place);
    fake_params("MIN_NCHANNELS", "4", NULL);
    fake_ranks(4, every_place, NULL);
    fake_ranks(3, large_places, NULL);
}

static void every_place_is_right_with_each_protocol_of_rings(void **state)
{
    static const char *const protos[] = { "simple", "ll", "ll128" };
    (void)state;
    for (size_t p = 0; p < RONDO_COUNTOF(protos); p++) {
        fake_params(SMALL, "ALGO", "ring;all_to_all:p2p", "PROTO", protos[p], NULL);
        all_ranks(5, every_place);
    }
    fake_ranks(3, large_places, NULL);
}

static void every_place_is_right_with_one_shot_and_in_rank_order(void **state)
{
    (void)state;
    fake_params(SMALL, "ALGO", "oneshot,ring;all_to_all:oneshot,p2p", "PAIR_SIZE", "1000", NULL);
    all_ranks(5, every_place);
    fake_params(SMALL, "DETERMINISM", "strict", NULL);
    all_ranks(5, every_place);
    fake_ranks(3, large_places, NULL);
}

static void every_place_is_right_with_direct_access(void **state)
{
    (void)state;
    fake_params("ALGO", "twoshot,ring;all_to_all:twoshot,p2p", NULL);
    all_ranks(9, every_place);
    fake_ranks(4, large_places, NULL);
}

static void every_place_is_right_over_sockets(void **state)
{
    (void)state;
    fake_params(SMALL, OVER_SOCKETS, NULL);
    all_ranks(4, every_place);
    /* Rank 1's first send is the block of rank 0, where its result arrives. It leaves late. */
    fake_params(OVER_SOCKETS, "NET_FAULT", "rank=1,again=1000", NULL);
    fake_ranks(3, large_places, NULL);
}

enum { MOST = 40 };

/* Many calls at once: in groups, in streams, and both. */
static void many_at_once(struct fake_rank *r)
{
    struct fake_call call[MOST];
    struct fake_buffers b[MOST];
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    for (int round = 0; round < 3; round++) {
        FAKE_OK(r, round > 0 ? rondo_group_start() : RONDO_SUCCESS);
        for (unsigned k = 0; k < MOST; k++) {
            call[k] = (struct fake_call){ .coll = colls[k % RONDO_COUNTOF(colls)],
                                          .type = types[k % RONDO_COUNTOF(types)],
                                          .count = k * k * 3,
                                          .in_place = (int)(k / RONDO_COUNTOF(colls) % 3),
                                          .seed = k,
                                          .rank = r->rank,
                                          .nranks = r->nranks };
            fake_call_prepare(&call[k], &b[k]);
            FAKE_OK(r, fake_call_issue(&call[k], &b[k], r->comm, round == 1 ? NULL : stream));
        }
        FAKE_OK(r, round > 0 ? rondo_group_end() : RONDO_SUCCESS);
        FAKE_OK(r, rondo_stream_synchronize(stream));
        for (unsigned k = 0; k < MOST; k++) {
            const char *wrong = fake_call_check(&call[k], &b[k]);
            FAKE_CHECK(r, *wrong == '\0', "%s", wrong);
        }
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
}

static void calls_in_place_may_run_in_groups_and_streams(void **state)
{
    (void)state;
    fake_params(SMALL, NULL);
    all_ranks(4, many_at_once);
    fake_params(SMALL, "ALGO", "ring;all_to_all:p2p", NULL);
    fake_ranks(4, many_at_once, NULL);
    fake_params(SMALL, OVER_SOCKETS, NULL);
    fake_ranks(3, many_at_once, NULL);
}

/* Equal displacements need no other algorithm, others do: alternate. */
static void displacements_come_and_go(struct fake_rank *r)
{
    enum { N = 3, EACH = 5000, ROOM = 2 * N * EACH };
    static _Thread_local int32_t in[ROOM], out[EACH];
    for (int time = 0; time < 40; time++) {
        size_t counts[N] = { EACH, EACH / 2, EACH - 1 }, displs[N];
        int turn = time % 3 == 2 ? r->rank : 0;
        for (int k = 0; k < N; k++) {
            displs[k] = (size_t)((k + turn) % N) * (EACH + (size_t)turn);
            for (size_t i = 0; i < counts[k]; i++) {
                in[displs[k] + i] = (int32_t)i * (k + 1) + r->rank + time;
            }
        }
        FAKE_OK(r, rondo_reduce_scatterv(in, out, counts, displs, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        for (size_t i = 0; i < counts[r->rank]; i++) {
            int32_t want = N * ((int32_t)i * (r->rank + 1) + time) + N * (N - 1) / 2;
            FAKE_CHECK(r, out[i] == want, "call %d, element %zu: %d, not %d", time, i, out[i], want);
        }
    }
}

static void equal_and_different_displacements_alternate(void **state)
{
    (void)state;
    fake_params("ALGO", "twoshot,ring", NULL);
    fake_ranks(3, displacements_come_and_go, NULL);
}

/* In place, sizes that two ranks do not agree on are found by the receiver, and no buffer is damaged. */
static void asymmetric(struct fake_rank *r)
{
    int32_t x[64];
    size_t counts[2] = { 3, 3 }, displs[2] = { 0, 10 };
    for (int i = 0; i < 64; i++) {
        x[i] = i;
    }
    counts[0] += r->rank == 1;
    counts[1] += r->rank == 1; /* a rank's own block concerns nobody else */
    FAKE_ERROR(r, rondo_all_to_allv(x, NULL, NULL, x, counts, displs, RONDO_INT32, r->comm, NULL),
               RONDO_INVALID_USAGE, "calls differ");
    FAKE_CHECK(r,
               fake_has(rondo_last_error(NULL), "rank 0 on ") &&
                   (fake_has(rondo_last_error(NULL), "receives 3 i32 from rank 1") ||
                    fake_has(rondo_last_error(NULL), "receives 4 i32 from rank 0")) &&
                   (fake_has(rondo_last_error(NULL), "sends it 4, in all_to_allv #1") ||
                    fake_has(rondo_last_error(NULL), "sends it 3, in all_to_allv #1")),
               "%s", rondo_last_error(NULL));
    for (int i = 0; i < 64; i++) {
        FAKE_CHECK(r, x[i] == i, "element %d was overwritten", i);
    }
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void counts_in_place_that_two_ranks_do_not_share_are_an_error(void **state)
{
    (void)state;
    fake_params(SMALL, NULL);
    fake_ranks(2, asymmetric, NULL);
}

/* Rank 1 has another count for rank 2, and one for rank 3 that is too large: the first is named. */
static void other_counts(struct fake_rank *r)
{
    static _Thread_local int32_t in[40], out[4 * 40];
    size_t counts[4] = { 3, 4, 5, 6 }, displs[4] = { 0, 40, 80, 120 };
    const char *first, *text;
    rondo_status status;
    counts[2] += 2 * (r->rank == 1);
    counts[3] += 9 * (r->rank == 1);
    status = r->arg == NULL
                 ? rondo_all_gatherv(in, out, counts, displs, RONDO_INT32, r->comm, NULL)
                 : rondo_reduce_scatterv(out, in, counts, displs, RONDO_INT32, RONDO_SUM, r->comm, NULL);
    status = status == RONDO_SUCCESS ? rondo_barrier(r->comm, NULL) : status;
    text = rondo_last_error(r->comm);
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE, "%s", rondo_status_string(status));
    first = strstr(text, "counts[2], of rank 2, is ");
    FAKE_CHECK(r, first != NULL && fake_has(first, "7 on rank 1 on ") && fake_has(first, "5 on rank "), "%s",
               text);
    FAKE_CHECK(r, fake_has(text, "in all_gatherv #1") || fake_has(text, "in reduce_scatterv #1"), "%s", text);
}

static void counts_that_differ_are_printed(void **state)
{
    static const char *const algos[] = { "", "ring", "twoshot,ring" };
    int reduces = 1;
    (void)state;
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        fake_params("ALGO", algos[a], NULL);
        fake_ranks(4, other_counts, NULL);
        fake_ranks(4, other_counts, &reduces);
    }
    fake_params(OVER_SOCKETS, NULL);
    fake_ranks(4, other_counts, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_is_right_with_the_tuners_choice),
        cmocka_unit_test(every_place_is_right_with_each_protocol_of_rings),
        cmocka_unit_test(every_place_is_right_with_one_shot_and_in_rank_order),
        cmocka_unit_test(every_place_is_right_with_direct_access),
        cmocka_unit_test(every_place_is_right_over_sockets),
        cmocka_unit_test(calls_in_place_may_run_in_groups_and_streams),
        cmocka_unit_test(equal_and_different_displacements_alternate),
        cmocka_unit_test(counts_in_place_that_two_ranks_do_not_share_are_an_error),
        cmocka_unit_test(counts_that_differ_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
