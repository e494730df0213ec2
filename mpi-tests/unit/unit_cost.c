/* The cost model: what cannot run, what costs more than what, and what is chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "coll/algo.h"

enum { BOARD = 4096, BIG = 64 << 20 };
static const uint32_t all_protos = RONDO_ALL_PROTOS;

/* Numbers of the order of a machine's; `nnodes` equally full nodes. */
static struct rondo_layout some_layout(int nranks, int nnodes)
{
    struct rondo_layout l;
    memset(&l, 0, sizeof(l));
    l.nranks = nranks;
    l.nnodes = nnodes;
    l.max_local = l.nlocal = (nranks + nnodes - 1) / nnodes;
    l.nchannels = 2;
    l.protos = all_protos;
    l.model.base_us = 0.05;
    l.model.board_us = 0.1;
    l.model.board_bw = 6;
    l.model.ranks_per_core = 1;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        l.model.hop_us[p] = p == RONDO_PROTO_SIMPLE ? 0.45 : p == RONDO_PROTO_LL128 ? 0.35 : 0.3;
        l.model.bw[p] = p == RONDO_PROTO_SIMPLE ? 6 : p == RONDO_PROTO_LL128 ? 4 : 2;
        l.model.net_us[p] = 15;
        l.model.net_bw[p] = 1.2;
    }
    return l;
}

static double us_of(const struct rondo_layout *l, enum rondo_coll coll, enum rondo_algo algo, enum rondo_proto proto, int nchannels,
                    size_t bytes)
{
    return rondo_schedule_find(coll, algo)->cost_us(l, coll, proto, nchannels, bytes, BOARD);
}

static void oneshot_needs_one_node_and_a_board_that_holds_it(void **state)
{
    struct rondo_layout l = some_layout(4, 1), two_nodes = some_layout(4, 2);
    rondo_cost_fn *us = rondo_schedule_find(RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT)->cost_us;
    (void)state;
    assert_true(us(&l, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, BOARD, BOARD) > 0);
    assert_true(us(&l, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, BOARD + 1, BOARD) < 0);
    assert_true(us(&l, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, 0, 0) < 0);
    assert_true(us(&l, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 2, 8, BOARD) < 0);
    assert_true(us(&two_nodes, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, 8, BOARD) < 0);
}

static void protocol_without_buffers_or_bandwidth_cannot_run(void **state)
{
    struct rondo_layout l = some_layout(4, 2);
    (void)state;
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL128, 1, 8) > 0);
    l.model.net_bw[RONDO_PROTO_LL128] = 0;
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL128, 1, 8) < 0);
    l.protos = 1 << RONDO_PROTO_SIMPLE;
    assert_true(us_of(&l, RONDO_COLL_BROADCAST, RONDO_ALGO_TREE, RONDO_PROTO_LL, 1, 8) < 0);
    assert_true(us_of(&l, RONDO_COLL_BROADCAST, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE, 1, 8) > 0);
}

static void forms_with_counts_have_one_channel(void **state)
{
    struct rondo_layout l = some_layout(4, 1);
    (void)state;
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHERV, RONDO_ALGO_RING, RONDO_PROTO_LL, 1, 4096) > 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHERV, RONDO_ALGO_RING, RONDO_PROTO_LL, 2, 4096) < 0);
    assert_true(us_of(&l, RONDO_COLL_REDUCE_SCATTERV, RONDO_ALGO_RING, RONDO_PROTO_LL, 2, 4096) < 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_P2P, RONDO_PROTO_SIMPLE, 2, 4096) < 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING, RONDO_PROTO_LL, 2, 4096) > 0);
}

/* More bytes, more ranks, more nodes, fewer cores: never cheaper. */
static void more_work_never_costs_less(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        enum rondo_coll coll = (enum rondo_coll)s->coll;
        int p2p = s->algo == RONDO_ALGO_P2P;
        for (int n = 2; n <= 64; n++) {
            double last = 0;
            struct rondo_layout fewer = some_layout(n - 1, 1), l = some_layout(n, 1), nodes = some_layout(n, 2), crowded = l;
            crowded.model.ranks_per_core = 4;
            for (size_t bytes = 0; bytes <= BOARD; bytes = 2 * bytes + 8) {
                double us = s->cost_us(&l, coll, RONDO_PROTO_SIMPLE, 1, bytes, BOARD),
                       across = s->cost_us(&nodes, coll, RONDO_PROTO_SIMPLE, 1, bytes, BOARD);
                assert_true(us > last);
                assert_true(p2p || n == 2 || us >= s->cost_us(&fewer, coll, RONDO_PROTO_SIMPLE, 1, bytes, BOARD));
                assert_true(s->algo == RONDO_ALGO_ONESHOT || across > us);
                assert_true(s->cost_us(&crowded, coll, RONDO_PROTO_SIMPLE, 1, bytes, BOARD) > us);
                last = us;
            }
        }
    }
}

static void one_rank_costs_the_call(void **state)
{
    struct rondo_layout l = some_layout(1, 1);
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        if (s->algo != RONDO_ALGO_P2P && s->algo != RONDO_ALGO_ONESHOT) {
            assert_true(s->cost_us(&l, (enum rondo_coll)s->coll, RONDO_PROTO_LL, 1, BIG, 0) == l.model.base_us);
        }
    }
}

static struct rondo_choice choose(const struct rondo_layout *l, enum rondo_coll coll, size_t bytes)
{
    struct rondo_choice choice;
    assert_int_equal(rondo_cost_choose(l, NULL, coll, bytes, BOARD, &choice), RONDO_SUCCESS);
    assert_true(choice.us > 0 && choice.nchannels >= 1);
    return choice;
}

static void small_sum_on_a_node_is_oneshot_and_large_one_a_ring(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n++) {
        struct rondo_layout l = some_layout(n, 1);
        struct rondo_choice small = choose(&l, RONDO_COLL_ALL_REDUCE, 8), large = choose(&l, RONDO_COLL_ALL_REDUCE, BIG);
        assert_int_equal(small.algo, RONDO_ALGO_ONESHOT);
        assert_int_equal(large.algo, RONDO_ALGO_RING);
        assert_int_equal(large.proto, RONDO_PROTO_SIMPLE);
        assert_int_equal(large.nchannels, 1); /* channels share a thread */
        assert_int_equal(choose(&l, RONDO_COLL_ALL_GATHER, 64).proto, RONDO_PROTO_LL);
    }
}

static void many_ranks_and_few_bytes_are_a_tree(void **state)
{
    struct rondo_layout many = some_layout(256, 1), nodes = some_layout(64, 16);
    (void)state;
    assert_int_equal(choose(&many, RONDO_COLL_ALL_REDUCE, 64).algo, RONDO_ALGO_TREE);
    assert_int_equal(choose(&nodes, RONDO_COLL_ALL_REDUCE, 8192).algo, RONDO_ALGO_TREE);
    assert_int_equal(choose(&nodes, RONDO_COLL_BROADCAST, 8).algo, RONDO_ALGO_TREE);
    nodes.nchannels = 1;
    assert_int_equal(choose(&nodes, RONDO_COLL_BROADCAST, BIG * 16ul).algo,
                     RONDO_ALGO_RING); /* a single tree sends twice from its inner ranks */
}

static int tree_channels(const struct rondo_layout *l, size_t bytes)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    rondo_cost_table(l, NULL, RONDO_COLL_ALL_REDUCE, bytes, BOARD, table);
    return table[RONDO_ALGO_TREE][RONDO_PROTO_SIMPLE].nchannels;
}

/* One tree loads its inner ranks with three neighbours; two share that load, and the second channel costs turns. */
static void large_tree_is_a_double_tree_and_small_one_single(void **state)
{
    struct rondo_layout l = some_layout(8, 1);
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    (void)state;
    assert_int_equal(tree_channels(&l, BIG), 2);
    assert_int_equal(tree_channels(&l, 8), 1);
    l.nchannels = 1;
    rondo_cost_table(&l, NULL, RONDO_COLL_ALL_REDUCE, BIG, BOARD, table);
    assert_int_equal(table[RONDO_ALGO_TREE][RONDO_PROTO_SIMPLE].nchannels, 1);
    assert_true(table[RONDO_ALGO_TREE][RONDO_PROTO_SIMPLE].us > 1.4 * table[RONDO_ALGO_RING][RONDO_PROTO_SIMPLE].us);
}

/* RONDO_MIN_NCHANNELS: slower, but as the user wants it; what can have one channel only keeps it. */
static void calls_are_cut_over_the_least_number_of_channels_where_they_can(void **state)
{
    (void)state;
    for (int least = 0; least <= 6; least++) {
        struct rondo_layout l = some_layout(4, 1);
        int built, wanted;
        l.nchannels = built = 4;
        l.least_channels = least;
        wanted = least < 1 ? 1 : least < built ? least : built;
        for (int c = 0; c < RONDO_NUM_COLLS; c++) {
            struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
            enum rondo_coll coll = (enum rondo_coll)c, as = rondo_coll_scheduled_as(coll);
            int one = coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV || as == RONDO_COLL_SEND ||
                      as == RONDO_COLL_RECV;
            rondo_cost_table(&l, NULL, coll, 8, BOARD, table);
            for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
                for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
                    const struct rondo_choice *choice = &table[a][p];
                    assert_true(choice->us < 0 || choice->nchannels == (one || a == RONDO_ALGO_ONESHOT ? 1 : wanted));
                }
            }
        }
        /* More than the least when that is faster: the second tree. */
        assert_int_equal(tree_channels(&l, BIG), wanted > 2 ? wanted : 2);
    }
}

/* The table has a time for what exists, is allowed and can run, and -1 for all else; the choice is its least. */
static void table_holds_what_can_run_and_choice_is_its_least(void **state)
{
    struct rondo_layout l = some_layout(6, 1);
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS], choice;
    struct rondo_allowed allowed;
    (void)state;
    assert_int_equal(rondo_allowed_parse(&allowed, "^oneshot", "^ll"), RONDO_SUCCESS);
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        for (size_t bytes = 0; bytes < BIG; bytes = bytes * 4 + 8) {
            double least = -1;
            rondo_cost_table(&l, &allowed, (enum rondo_coll)c, bytes, BOARD, table);
            for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
                for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
                    const struct rondo_schedule *s = rondo_schedule_find((enum rondo_coll)c, (enum rondo_algo)a);
                    int possible = s != NULL && a != RONDO_ALGO_ONESHOT && (s->protos >> p & 1) != 0 &&
                                   (p != RONDO_PROTO_LL || a == RONDO_ALGO_P2P);
                    double us = table[a][p].us;
                    assert_true(table[a][p].algo == a && table[a][p].proto == p);
                    assert_true((us >= 0) == possible && (table[a][p].nchannels > 0) == possible);
                    least = us >= 0 && (least < 0 || us < least) ? us : least;
                    if (possible) {
                        assert_true(us == s->cost_us(&l, (enum rondo_coll)c, (enum rondo_proto)p, table[a][p].nchannels, bytes, BOARD));
                    }
                }
            }
            assert_int_equal(rondo_cost_choose(&l, &allowed, (enum rondo_coll)c, bytes, BOARD, &choice), RONDO_SUCCESS);
            assert_true(choice.us == least);
        }
    }
}

static void nothing_allowed_is_invalid_usage_that_names_parameters_and_collective(void **state)
{
    struct rondo_layout l = some_layout(4, 1);
    struct rondo_allowed allowed;
    struct rondo_choice choice;
    (void)state;
    assert_int_equal(rondo_allowed_parse(&allowed, "tree;all_gather:tree", NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_REDUCE, 8, BOARD, &choice), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_SEND, 8, BOARD, &choice), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_GATHER, 8, BOARD, &choice), RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "RONDO_ALGO"));
    assert_non_null(strstr(rondo_error_text(), "RONDO_PROTO"));
    assert_non_null(strstr(rondo_error_text(), "all_gather:"));
    assert_int_equal(rondo_allowed_parse(&allowed, "oneshot", NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_REDUCE, BOARD + 1, BOARD, &choice), RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "4097 bytes"));
    assert_non_null(strstr(rondo_error_text(), "RONDO_BOARD_SIZE"));
    assert_non_null(strstr(rondo_error_text(), "all_reduce:"));
}

static void limit_names_the_largest_part(void **state)
{
    struct rondo_layout l = some_layout(8, 1), nodes = some_layout(8, 4);
    const struct rondo_schedule *ring = rondo_schedule_find(RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING);
    (void)state;
    assert_string_equal(ring->limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, 8), "latency");
    assert_string_equal(ring->limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, BIG), "copy bandwidth");
    assert_string_equal(ring->limit(&nodes, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, 8), "network latency");
    assert_string_equal(ring->limit(&nodes, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, BIG), "network bandwidth");
    assert_string_equal(rondo_oneshot_limit(&nodes, RONDO_COLL_ALL_REDUCE, RONDO_PROTO_SIMPLE, 1, 8), "not available");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oneshot_needs_one_node_and_a_board_that_holds_it),
        cmocka_unit_test(protocol_without_buffers_or_bandwidth_cannot_run),
        cmocka_unit_test(forms_with_counts_have_one_channel),
        cmocka_unit_test(more_work_never_costs_less),
        cmocka_unit_test(one_rank_costs_the_call),
        cmocka_unit_test(small_sum_on_a_node_is_oneshot_and_large_one_a_ring),
        cmocka_unit_test(many_ranks_and_few_bytes_are_a_tree),
        cmocka_unit_test(large_tree_is_a_double_tree_and_small_one_single),
        cmocka_unit_test(calls_are_cut_over_the_least_number_of_channels_where_they_can),
        cmocka_unit_test(table_holds_what_can_run_and_choice_is_its_least),
        cmocka_unit_test(nothing_allowed_is_invalid_usage_that_names_parameters_and_collective),
        cmocka_unit_test(limit_names_the_largest_part),
    };
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
