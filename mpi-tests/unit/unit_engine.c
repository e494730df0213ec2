/* Collectives, groups and operations through the public interface, with threads as ranks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "fake_ranks.h"

static const int rank_counts[] = { 1, 2, 3, 4, 5, 8 };

/* ---- collectives ---- */

static void every_collective(struct fake_rank *r)
{
    static const size_t counts[] = { 0, 1, 7, 260, FAKE_LARGE(3001) };
    static const rondo_dtype types[] = { RONDO_FLOAT32, RONDO_UINT8, RONDO_INT32,
                                         RONDO_FLOAT64, RONDO_INT64, RONDO_INT8 };
    unsigned seed = 0;
    for (int coll = 0; coll < FAKE_NUM_COLLS; coll++) {
        for (size_t k = 0; k < RONDO_COUNTOF(counts); k++) {
            for (int in_place = 0; in_place <= (int)fake_call_last_place((enum fake_coll)coll);
                 in_place++, seed++) {
                FAKE_CALL(r, .coll = (enum fake_coll)coll, .type = types[seed % RONDO_COUNTOF(types)],
                          .op = (rondo_op)(seed / 3 % FAKE_OPS), .root = (int)(seed % (unsigned)r->nranks),
                          .count = counts[k], .in_place = in_place, .seed = seed);
            }
        }
    }
}

static void collectives_with(const char *algo, const char *proto)
{
    /* Small buffers, so that a few KiB use every slot several times. */
    fake_params("ALGO", algo, "PROTO", proto, "BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K",
                NULL);
    for (size_t i = 0; i < RONDO_COUNTOF(rank_counts); i++) {
        fake_ranks(rank_counts[i], every_collective, NULL);
    }
}

static void collectives_are_right_with_the_tuners_choice(void **state)
{
    (void)state;
    collectives_with("", "");
}

static void collectives_are_right_with_ring_and_each_protocol(void **state)
{
    (void)state;
    collectives_with("ring;all_to_all:p2p", "simple");
    collectives_with("ring;all_to_all:p2p", "ll");
    collectives_with("ring;all_to_all:p2p", "ll128");
}

static void collectives_are_right_with_tree_and_each_protocol(void **state)
{
    static const char algo[] = "ring;all_reduce:tree;broadcast:tree;reduce:tree";
    (void)state;
    collectives_with(algo, "simple");
    collectives_with(algo, "ll");
    collectives_with(algo, "ll128");
}

static void collectives_are_right_with_one_shot(void **state)
{
    (void)state;
    collectives_with("ring;all_reduce:oneshot,ring;all_gather:oneshot,ring;all_gatherv:oneshot,ring;"
                     "broadcast:oneshot,ring;reduce:oneshot,"
                     "ring;barrier:oneshot;reduce_scatter:oneshot,ring",
                     "");
}

static void large_and_small(struct fake_rank *r)
{
    static const size_t counts[] = { FAKE_LARGE(300000), 1, FAKE_LARGE(70001) };
    for (size_t k = 0; k < RONDO_COUNTOF(counts); k++) {
        FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = counts[k]);
        FAKE_CALL(r, .coll = FAKE_REDUCE_SCATTER, .type = RONDO_FLOAT32, .count = counts[k], .in_place = 1);
        FAKE_CALL(r, .coll = FAKE_ALL_TO_ALL, .type = RONDO_UINT8, .count = counts[k],
                  .in_place = (int)(k % 2));
        FAKE_CALL(r, .coll = FAKE_ALL_TO_ALL, .type = RONDO_UINT8, .count = counts[k],
                  .in_place = r->rank == 1); /* ranks differ */
        FAKE_CALL(r, .coll = FAKE_BROADCAST, .type = RONDO_INT32, .count = counts[k], .root = 1);
    }
}

static void calls_larger_than_all_buffers_are_right(void **state)
{
    (void)state;
    fake_params("MAX_NCHANNELS", "4", NULL);
    fake_ranks(3, large_and_small, NULL);
    fake_params("MIN_NCHANNELS", "4", NULL); /* some channels have nothing to do */
    fake_ranks(3, large_and_small, NULL);
}

/* More than a place of the mailbox holds, in blocks that are no whole cache lines; some results go past the
 * caches. */
static void piece_by_piece(struct fake_rank *r)
{
    static const enum fake_coll colls[] = { FAKE_ALL_REDUCE, FAKE_ALL_GATHER, FAKE_REDUCE_SCATTER,
                                            FAKE_ALL_TO_ALL, FAKE_ALL_GATHERV };
    static const size_t counts[] = { 1, 8, 17, 63, 250, 1001, FAKE_LARGE(30011) };
    static const rondo_dtype types[] = { RONDO_UINT8, RONDO_FLOAT64, RONDO_INT32 };
    for (unsigned i = 0; i < 3 * RONDO_COUNTOF(colls) * RONDO_COUNTOF(counts); i++) {
        enum fake_coll coll = colls[i % RONDO_COUNTOF(colls)];
        FAKE_CALL(r, .coll = coll, .type = types[i % RONDO_COUNTOF(types)],
                  .op = i % 4 == 0 ? RONDO_AVG : RONDO_SUM,
                  .count = counts[i / RONDO_COUNTOF(colls) % RONDO_COUNTOF(counts)], .in_place = (int)(i % 3),
                  .seed = i);
    }
}

static void two_ranks_publish_in_pieces(void **state)
{
    static const char *const sizes[] = { "64", "65", "1000", "16K", "1M" };
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        fake_params("PAIR_SIZE", sizes[s], "STREAM_SIZE", "20K", "ALGO", "oneshot;all_gatherv:oneshot,ring",
                    NULL);
        fake_ranks(2, piece_by_piece, NULL);
    }
    fake_params("PAIR_SIZE", "4K", "STREAM_SIZE", "20K", NULL);
    fake_ranks(2, piece_by_piece, NULL);
}

/* Only one algorithm is allowed, and it cannot carry the call. */
static void impossible(struct fake_rank *r)
{
    float x[2] = { 1, 2 }, y[8];
    FAKE_ERROR(r, rondo_all_gather(x, y, 2, RONDO_FLOAT32, r->comm, NULL), RONDO_INVALID_USAGE, "RONDO_ALGO");
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 100); /* no rank was left behind */
}

static void an_algorithm_that_cannot_carry_the_call_is_an_error(void **state)
{
    (void)state;
    fake_params("ALGO", "all_gather:tree", NULL);
    fake_ranks(3, impossible, NULL);
}

/* ---- many ranks ---- */

static void one_call(struct fake_rank *r)
{
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT64, .count = 50);
}

static void creation_works_with_64_and_256_ranks(void **state)
{
    (void)state;
    fake_params("BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K", "MAILBOX_SIZE", "64", NULL);
    fake_ranks(64, one_call, NULL);
    fake_ranks(256, one_call, NULL);
}

/* ---- groups ---- */

enum { MESSAGES = 12, WORDS = 700 };

static void crossing_messages(struct fake_rank *r)
{
    int(*out)[WORDS] = calloc(MESSAGES, sizeof(*out)), (*in)[WORDS] = calloc(MESSAGES, sizeof(*in)),
    sum[2] = { r->rank, 1 }, total[2] = { 0, 0 };
    FAKE_OK(r, rondo_group_start());
    for (int m = 0; m < MESSAGES;
         m++) { /* all sends first, some to itself: no order of receives can block them */
        for (int w = 0; w < WORDS; w++) {
            out[m][w] = r->rank * 1000000 + m * 1000 + w;
        }
        FAKE_OK(r, rondo_send(out[m], WORDS, RONDO_INT32, (r->rank + m) % r->nranks, r->comm, NULL));
        FAKE_OK(r, rondo_group_start());
        if (m == MESSAGES / 2) {
            FAKE_OK(r, rondo_all_reduce(sum, total, 2, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        }
        FAKE_OK(r, rondo_group_end());
        FAKE_CHECK(r, total[1] == 0, "a nested group ran before the outer one ended");
    }
    for (int m = MESSAGES - 1; m >= 0; m--) {
        int back = MESSAGES - 1 - m; /* messages of a peer arrive in the order in which it sent them */
        FAKE_OK(r, rondo_recv(in[back], WORDS, RONDO_INT32,
                              (r->rank + r->nranks * MESSAGES - back) % r->nranks, r->comm, NULL));
    }
    FAKE_OK(r, rondo_group_end());
    FAKE_CHECK(r, total[1] == r->nranks && total[0] == r->nranks * (r->nranks - 1) / 2);
    for (int m = 0; m < MESSAGES; m++) {
        int from = (r->rank + r->nranks * MESSAGES - m) % r->nranks;
        FAKE_CHECK(r, in[m][0] == from * 1000000 + m * 1000 && in[m][WORDS - 1] == in[m][0] + WORDS - 1,
                   "message %d from %d is %d", m, from, in[m][0]);
    }
    free(out);
    free(in);
}

static void messages_of_a_group_never_block_one_another(void **state)
{
    (void)state;
    fake_params("BUFFSIZE", "4K", NULL);
    for (size_t i = 0; i < RONDO_COUNTOF(rank_counts); i++) {
        fake_ranks(rank_counts[i], crossing_messages, NULL);
    }
}

/* In a group, all_to_all's own block must not match the program's messages to itself. */
static void to_itself(struct fake_rank *r)
{
    enum { BLOCK = 3 };
    int x[BLOCK * 4], y[BLOCK * 4], mine[BLOCK] = { 7, 8, 9 }, got[BLOCK];
    for (int in_place = 0; in_place < 2; in_place++) {
        int *out = in_place ? x : y;
        for (int i = 0; i < BLOCK * r->nranks; i++) {
            x[i] = 100 * r->rank + i / BLOCK;
        }
        memset(got, 0, sizeof(got));
        FAKE_OK(r, rondo_group_start());
        if (in_place) {
            FAKE_OK(r, rondo_recv(got, BLOCK, RONDO_INT32, r->rank, r->comm, NULL));
        } else {
            FAKE_OK(r, rondo_send(mine, BLOCK, RONDO_INT32, r->rank, r->comm, NULL));
        }
        FAKE_OK(r, rondo_all_to_all(x, out, BLOCK, RONDO_INT32, r->comm, NULL));
        if (in_place) {
            FAKE_OK(r, rondo_send(mine, BLOCK, RONDO_INT32, r->rank, r->comm, NULL));
        } else {
            FAKE_OK(r, rondo_recv(got, BLOCK, RONDO_INT32, r->rank, r->comm, NULL));
        }
        FAKE_OK(r, rondo_group_end());
        for (int i = 0; i < BLOCK * r->nranks; i++) {
            FAKE_CHECK(r, out[i] == 100 * (i / BLOCK) + r->rank, "in place %d, element %d: %d", in_place, i,
                       out[i]);
        }
        FAKE_CHECK(r, memcmp(got, mine, sizeof(got)) == 0, "in place %d: %d", in_place, got[0]);
    }
}

static void own_blocks_and_messages_to_itself_do_not_mix_in_a_group(void **state)
{
    (void)state;
    fake_params("ALGO", "ring;all_to_all:p2p", NULL);
    for (int n = 1; n <= 4; n++) {
        fake_ranks(n, to_itself, NULL);
    }
}

static void group_misuse(struct fake_rank *r)
{
    int a = 1, b = 0;
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "without rondo_group_start");
    FAKE_ERROR(r, rondo_send(&a, 1, RONDO_INT32, r->rank, r->comm, NULL), RONDO_INVALID_USAGE, "no partner");
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_send(&a, 1, RONDO_INT32, r->rank, r->comm, NULL));
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "no partner");
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_recv(&b, 1, RONDO_INT32, r->rank, r->comm, NULL));
    FAKE_OK(r, rondo_send(&a, 2, RONDO_UINT8, r->rank, r->comm, NULL));
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "count and type must be equal");
    FAKE_OK(r, rondo_group_start());
    FAKE_ERROR(r, rondo_all_reduce(&a, &b, 1, RONDO_INT32, RONDO_SUM, NULL, NULL), RONDO_INVALID_ARGUMENT,
               "NULL");
    FAKE_OK(r, rondo_all_reduce(&a, &b, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CHECK(r, rondo_group_end() == RONDO_INVALID_ARGUMENT && b == 0,
               "a group with a wrong call issues nothing");
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 9);
}

static void a_wrong_group_issues_nothing_and_ends_nothing(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, group_misuse, NULL);
}

enum { COMMS = 3 };

/* The ranks use the communicators of the group in different orders. */
static void several_communicators(struct fake_rank *r)
{
    rondo_comm *comm[COMMS];
    int mine[COMMS], sum[COMMS], got[COMMS];
    for (int c = 0; c < COMMS; c++) {
        FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm[c]));
    }
    for (int round = 0; round < 20; round++) {
        FAKE_OK(r, rondo_group_start());
        for (int k = 0; k < COMMS; k++) {
            int c = (k + r->rank) % COMMS;
            mine[c] = r->rank + c + round;
            got[c] = -1;
            FAKE_OK(r, rondo_all_reduce(&mine[c], &sum[c], 1, RONDO_INT32, RONDO_SUM, comm[c], NULL));
            FAKE_OK(r, rondo_recv(&got[c], 1, RONDO_INT32, (r->rank + 1) % r->nranks, comm[c], NULL));
            FAKE_OK(r, rondo_send(&mine[c], 1, RONDO_INT32, (r->rank + r->nranks - 1) % r->nranks, comm[c],
                                  NULL));
        }
        FAKE_OK(r, rondo_group_end());
        for (int c = 0; c < COMMS; c++) {
            FAKE_CHECK(r, sum[c] == r->nranks * (r->nranks - 1) / 2 + r->nranks * (c + round));
            FAKE_CHECK(r, got[c] == (r->rank + 1) % r->nranks + c + round);
        }
    }
    for (int c = 0; c < COMMS; c++) {
        FAKE_OK(r, rondo_comm_destroy(comm[c]));
    }
}

static void a_group_may_hold_several_communicators_in_any_order(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks_bare(3, several_communicators, NULL);
}

static void one_thread_can_be_all_ranks(void **state)
{
    enum { N = 5, COUNT = 3000 };
    static int in[N][COUNT], out[N][COUNT], got[N];
    rondo_local *local;
    rondo_comm *comm[N];
    (void)state;
    fake_params(NULL);
    assert_int_equal(rondo_local_create(N, &local), RONDO_SUCCESS);
    assert_int_equal(rondo_group_start(), RONDO_SUCCESS);
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_create_local(local, r, NULL, &comm[r]), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    for (int round = 0; round < 3; round++) {
        int n = round == 0 ? 1 : COUNT;
        assert_int_equal(rondo_group_start(), RONDO_SUCCESS);
        for (int r = N - 1; r >= 0; r--) {
            for (int i = 0; i < n; i++) {
                in[r][i] = r + i;
            }
            assert_int_equal(
                rondo_all_reduce(in[r], out[r], (size_t)n, RONDO_INT32, RONDO_SUM, comm[r], NULL),
                RONDO_SUCCESS);
            assert_int_equal(rondo_send(&in[r][0], 1, RONDO_INT32, (r + 1) % N, comm[r], NULL),
                             RONDO_SUCCESS);
            assert_int_equal(rondo_recv(&got[r], 1, RONDO_INT32, (r + N - 1) % N, comm[r], NULL),
                             RONDO_SUCCESS);
        }
        assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
        for (int r = 0; r < N; r++) {
            assert_int_equal(out[r][n - 1], N * (N - 1) / 2 + N * (n - 1));
            assert_int_equal(got[r], (r + N - 1) % N);
        }
    }
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_destroy(comm[r]), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_local_destroy(local), RONDO_SUCCESS);
}

/* ---- operations ---- */

static void multiplied(struct fake_rank *r)
{
    double scalar = 0.5 * (r->rank + 1), in[100], out[100], want = 0;
    float wrong = 1;
    rondo_op op, other;
    FAKE_OK(r, rondo_op_create_premul_sum(&op, &scalar, RONDO_FLOAT64, r->comm));
    FAKE_OK(r, rondo_op_create_premul_sum(&other, &wrong, RONDO_FLOAT32, r->comm));
    scalar = 1e9; /* it was copied */
    for (int i = 0; i < 100; i++) {
        in[i] = i + 2 * r->rank;
    }
    FAKE_OK(r, rondo_all_reduce(in, out, 100, RONDO_FLOAT64, op, r->comm, NULL));
    for (int i = 0; i < 100; i++, want = 0) {
        for (int q = 0; q < r->nranks; q++) {
            want += 0.5 * (q + 1) * (i + 2 * q);
        }
        FAKE_CHECK(r, out[i] == want, "out[%d] is %g, not %g", i, out[i], want);
    }
    FAKE_OK(r, rondo_reduce(in, r->rank == 0 ? out : NULL, 1, RONDO_FLOAT64, op, 0, r->comm, NULL));
    FAKE_ERROR(r, rondo_all_reduce(in, out, 100, RONDO_FLOAT64, other, r->comm, NULL), RONDO_INVALID_ARGUMENT,
               "was created for f32");
    FAKE_OK(r, rondo_op_destroy(op, r->comm));
    FAKE_ERROR(r, rondo_op_destroy(op, r->comm), RONDO_INVALID_ARGUMENT, "is not an operation");
    FAKE_ERROR(r, rondo_all_reduce(in, out, 100, RONDO_FLOAT64, op, r->comm, NULL), RONDO_INVALID_ARGUMENT,
               "the operation is");
    FAKE_OK(r, rondo_op_destroy(other, r->comm));
}

static void every_user_operation(struct fake_rank *r)
{
    int32_t scalar = 3, x = 1, y = 0;
    rondo_op op[65];
    int made = 0;
    while (made < 65 &&
           rondo_op_create_premul_sum(&op[made], &scalar, RONDO_INT32, r->comm) == RONDO_SUCCESS) {
        made++;
    }
    FAKE_CHECK(r, made == 64 && fake_has(rondo_last_error(r->comm), "in use"));
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, op[63], r->comm, NULL));
    FAKE_CHECK(r, y == 3 * r->nranks);
    FAKE_OK(r, rondo_op_destroy(op[7], r->comm));
    FAKE_OK(r, rondo_op_create_premul_sum(&op[7], &scalar, RONDO_INT32, r->comm));
}

static void premultiplied_sums_are_right_and_checked(void **state)
{
    static const char *const algos[] = { "ring", "tree", "oneshot" };
    (void)state;
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        char algo[64];
        snprintf(algo, sizeof(algo), "ring;all_reduce:%s", algos[a]);
        fake_params("ALGO", algo, NULL);
        fake_ranks(1, multiplied, NULL);
        fake_ranks(2, multiplied, NULL);
        fake_ranks(3, multiplied, NULL);
    }
    fake_ranks(2, every_user_operation, NULL);
}

/* Integer averages are truncated towards zero, negative ones too. */
static void averages(struct fake_rank *r)
{
    int8_t in[3] = { (int8_t)(r->rank == 0 ? -100 : -1), (int8_t)(r->rank == 0 ? 100 : 1),
                     (int8_t)(r->rank == 0 ? -2 : 0) },
           out[3];
    float f = (float)r->rank, mean;
    FAKE_OK(r, rondo_all_reduce(in, out, 3, RONDO_INT8, RONDO_AVG, r->comm, NULL));
    FAKE_CHECK(r, out[0] == -102 / 3 && out[1] == 102 / 3 && out[2] == 0, "%d %d %d", out[0], out[1], out[2]);
    FAKE_OK(r, rondo_all_reduce(&f, &mean, 1, RONDO_FLOAT32, RONDO_AVG, r->comm, NULL));
    FAKE_CHECK(r, mean == 1.0f);
}

static void averages_of_integers_are_truncated(void **state)
{
    static const char *const algos[] = { "ring", "tree", "oneshot" };
    (void)state;
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        fake_params("ALGO", algos[a], NULL);
        fake_ranks(3, averages, NULL);
    }
}

/* ---- wrong arguments ---- */

static void bad_arguments(struct fake_rank *r)
{
    float x[16] = { 0 }, y[16] = { 0 };
    size_t n[2] = { 1, 1 }, d[2] = { 0, 1 }, huge[2] = { SIZE_MAX / 2, SIZE_MAX / 2 };
    rondo_comm *comm = r->comm;
    rondo_stream stream;
    int value;
    FAKE_ERROR(r, rondo_all_reduce(x, y, 1, RONDO_FLOAT32, RONDO_SUM, NULL, NULL), RONDO_INVALID_ARGUMENT,
               "NULL");
    FAKE_ERROR(r, rondo_all_reduce(NULL, y, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL), RONDO_INVALID_ARGUMENT,
               "send buffer is NULL");
    FAKE_ERROR(r, rondo_all_reduce(x, NULL, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL), RONDO_INVALID_ARGUMENT,
               "receive buffer is NULL");
    FAKE_ERROR(r, rondo_all_reduce(x, y, 1, (rondo_dtype)99, RONDO_SUM, comm, NULL), RONDO_INVALID_ARGUMENT,
               "the type is 99");
    FAKE_ERROR(r, rondo_all_reduce(x, y, 1, (rondo_dtype)-1, RONDO_SUM, comm, NULL), RONDO_INVALID_ARGUMENT,
               "the type is");
    FAKE_ERROR(r, rondo_all_reduce(x, y, 1, RONDO_FLOAT32, (rondo_op)20, comm, NULL), RONDO_INVALID_ARGUMENT,
               "the operation is 20");
    FAKE_ERROR(r, rondo_all_reduce(x, y, 1, RONDO_FLOAT32, (rondo_op)-1, comm, NULL), RONDO_INVALID_ARGUMENT,
               "the operation is -1");
    FAKE_ERROR(r, rondo_all_reduce(x, y, SIZE_MAX, RONDO_FLOAT32, RONDO_SUM, comm, NULL),
               RONDO_INVALID_ARGUMENT, "more than memory");
    FAKE_ERROR(r, rondo_all_gather(x, y, (size_t)PTRDIFF_MAX / 4, RONDO_FLOAT32, comm, NULL),
               RONDO_INVALID_ARGUMENT, "more than memory");
    FAKE_ERROR(r, rondo_broadcast(x, y, 1, RONDO_FLOAT32, r->nranks, comm, NULL), RONDO_INVALID_ARGUMENT,
               "the root is");
    FAKE_ERROR(r, rondo_reduce(x, y, 1, RONDO_FLOAT32, RONDO_SUM, -1, comm, NULL), RONDO_INVALID_ARGUMENT,
               "the root is -1");
    FAKE_ERROR(r, rondo_send(x, 1, RONDO_FLOAT32, 99, comm, NULL), RONDO_INVALID_ARGUMENT, "the peer is 99");
    FAKE_ERROR(r, rondo_all_gatherv(x, y, NULL, d, RONDO_FLOAT32, comm, NULL), RONDO_INVALID_ARGUMENT,
               "NULL");
    FAKE_ERROR(r, rondo_reduce_scatterv(x, y, n, NULL, RONDO_FLOAT32, RONDO_SUM, comm, NULL),
               RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_all_gatherv(x, y, huge, d, RONDO_FLOAT32, comm, NULL), RONDO_INVALID_ARGUMENT,
               "more than memory");
    FAKE_ERROR(r, rondo_all_to_allv(x, NULL, d, y, n, d, RONDO_FLOAT32, comm, NULL), RONDO_INVALID_ARGUMENT,
               "send");
    FAKE_ERROR(r, rondo_op_create_premul_sum(NULL, x, RONDO_FLOAT32, comm), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_comm_count(comm, NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_comm_async_error(comm, NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_stream_create(NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_ERROR(r, rondo_stream_synchronize(NULL), RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_ERROR(r, rondo_all_reduce(x, NULL, 1, RONDO_FLOAT32, RONDO_SUM, comm, stream),
               RONDO_INVALID_ARGUMENT, "receive buffer is NULL");
    FAKE_OK(r, rondo_stream_destroy(stream));
    FAKE_OK(r, rondo_all_reduce(NULL, NULL, 0, RONDO_FLOAT32, RONDO_SUM, comm, NULL));
    FAKE_OK(r, rondo_comm_count(comm, &value));
    FAKE_CHECK(r, value == r->nranks);
    FAKE_OK(r, rondo_comm_rank(comm, &value));
    FAKE_CHECK(r, value == r->rank);
    FAKE_OK(r, rondo_comm_device(comm, &value));
    FAKE_CHECK(r, value == -1);
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32,
              .count = 10); /* none of these errors ended the communicator */
}

static void wrong_arguments_are_errors_that_say_what_is_wrong(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(2, bad_arguments, NULL);
}

static void wrong_configs_are_errors_on_all_ranks(void **state)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_local *local;
    rondo_comm *comm = (rondo_comm *)&config;
    (void)state;
    fake_params(NULL);
    assert_int_equal(rondo_local_create(0, &local), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_local_create(1, NULL), RONDO_INVALID_ARGUMENT);
    for (int wrong = 0; wrong < 6; wrong++) {
        rondo_config c = config;
        c.magic = wrong == 0 ? 1 : c.magic;
        c.size = wrong == 1 ? 8 : wrong == 2 ? 100000 : c.size;
        c.blocking = wrong == 3 ? 2 : c.blocking;
        c.max_channels = wrong == 4 ? 65 : c.max_channels;
        c.timeout_ms = wrong == 5 ? -2 : c.timeout_ms;
        assert_int_equal(rondo_local_create(1, &local), RONDO_SUCCESS);
        assert_int_equal(rondo_comm_create_local(local, 0, &c, &comm), RONDO_INVALID_ARGUMENT);
        assert_ptr_equal(comm, &config); /* untouched */
        assert_true(fake_has(rondo_last_error(NULL), "config"));
        rondo_local_destroy(local);
    }
    assert_int_equal(rondo_local_create(1, &local), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_create_local(local, 1, NULL, &comm), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_comm_create_local(local, 0, NULL, NULL), RONDO_INVALID_ARGUMENT);
    rondo_local_destroy(local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_right_with_the_tuners_choice),
        cmocka_unit_test(collectives_are_right_with_ring_and_each_protocol),
        cmocka_unit_test(collectives_are_right_with_tree_and_each_protocol),
        cmocka_unit_test(collectives_are_right_with_one_shot),
        cmocka_unit_test(calls_larger_than_all_buffers_are_right),
        cmocka_unit_test(two_ranks_publish_in_pieces),
        cmocka_unit_test(an_algorithm_that_cannot_carry_the_call_is_an_error),
        cmocka_unit_test(creation_works_with_64_and_256_ranks),
        cmocka_unit_test(messages_of_a_group_never_block_one_another),
        cmocka_unit_test(own_blocks_and_messages_to_itself_do_not_mix_in_a_group),
        cmocka_unit_test(a_wrong_group_issues_nothing_and_ends_nothing),
        cmocka_unit_test(a_group_may_hold_several_communicators_in_any_order),
        cmocka_unit_test(one_thread_can_be_all_ranks),
        cmocka_unit_test(premultiplied_sums_are_right_and_checked),
        cmocka_unit_test(averages_of_integers_are_truncated),
        cmocka_unit_test(wrong_arguments_are_errors_that_say_what_is_wrong),
        cmocka_unit_test(wrong_configs_are_errors_on_all_ranks),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
