/* The cost model on host memory: what cannot run, what costs more, and what is chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/mailbox.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/algo.h"
#include "tuner/tuner.h"
#include "tuner/model.h"

enum { MAILBOX = 4096, BIG_MAILBOX = 128 << 10, BIG = 64 << 20 };
static const uint32_t all_protos = RONDO_ALL_PROTOS;

/* Realistic numbers; `nnodes` equally full nodes. */
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
    l.model.mailbox_us = 0.1;
    l.model.mailbox_bw = 6;
    l.model.pair_bw = 14;
    l.model.pair_past_bw = 12.5;
    l.model.conn_slows = 1;
    l.model.pair_cached = 1 << 20;
    l.model.stream_bytes = 16 << 20;
    l.model.direct_us = 0.25;
    l.model.direct_bw = 26;
    l.model.cma_us = 2;
    l.model.cma_bw = 14;
    l.model.cma_past_bw = 6.3;
    l.model.ranks_per_core = 1;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        l.model.hop_us[p] = p == RONDO_PROTO_SIMPLE ? 0.45 : p == RONDO_PROTO_LL128 ? 0.35 : 0.3;
        l.model.bw[p] = p == RONDO_PROTO_SIMPLE ? 6 : p == RONDO_PROTO_LL128 ? 4 : 2;
        l.model.net_us[p] = 15;
        l.model.net_bw[p] = 1.2;
    }
    return l;
}

static double us_of(const struct rondo_layout *l, enum rondo_coll coll, enum rondo_algo algo,
                    enum rondo_proto proto, int nchannels, size_t bytes)
{
    return rondo_cost_us(l, coll, algo, proto, nchannels, bytes, MAILBOX);
}

static double oneshot_us(const struct rondo_layout *l, int nchannels, size_t bytes, size_t mailbox)
{
    return rondo_cost_us(l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, nchannels, bytes,
                         mailbox);
}

static void oneshot_needs_one_node_and_a_mailbox_that_holds_it(void **state)
{
    struct rondo_layout l = some_layout(4, 1), two_nodes = some_layout(4, 2);
    (void)state;
    assert_true(oneshot_us(&l, 1, MAILBOX, MAILBOX) > 0);
    assert_true(oneshot_us(&l, 1, MAILBOX + 1, MAILBOX) < 0);
    assert_true(oneshot_us(&l, 1, 0, 0) < 0);
    assert_true(oneshot_us(&l, 2, 8, MAILBOX) < 0);
    assert_true(oneshot_us(&two_nodes, 1, 8, MAILBOX) < 0);
}

static void oneshot_with_a_root_is_for_few_ranks_and_bytes(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE };
    struct rondo_layout few = some_layout(RONDO_MAILBOX_FEW, 1), many = some_layout(RONDO_MAILBOX_FEW + 1, 1);
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(colls); i++) {
        assert_true(us_of(&few, colls[i], RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1,
                          rondo_rooted_capacity(MAILBOX)) > 0);
        assert_true(us_of(&few, colls[i], RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1,
                          rondo_rooted_capacity(MAILBOX) + 1) < 0);
        assert_true(us_of(&many, colls[i], RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, 8) < 0);
    }
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

static void v_forms_have_one_channel(void **state)
{
    struct rondo_layout l = some_layout(4, 1);
    (void)state;
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHERV, RONDO_ALGO_RING, RONDO_PROTO_LL, 1, 4096) > 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHERV, RONDO_ALGO_RING, RONDO_PROTO_LL, 2, 4096) < 0);
    assert_true(us_of(&l, RONDO_COLL_REDUCE_SCATTERV, RONDO_ALGO_RING, RONDO_PROTO_LL, 2, 4096) < 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_P2P, RONDO_PROTO_SIMPLE, 2, 4096) < 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING, RONDO_PROTO_LL, 2, 4096) > 0);
}

/* Runs on one node only. */
static int on_mailbox(int algo) { return rondo_algo_medium((uint32_t)algo) != RONDO_MEDIUM_CONNS; }

/* More bytes, ranks or nodes, or fewer cores, are never cheaper. */
static void more_work_never_costs_less(void **state)
{
    (void)state;
    for (int i = 0; i < rondo_num_schedules; i++) {
        const struct rondo_schedule *s = &rondo_schedules[i];
        enum rondo_coll coll = (enum rondo_coll)s->coll;
        int p2p = rondo_algo_seating(s->algo) == RONDO_SEATING_PEER,
            rooted = rondo_algo_medium(s->algo) == RONDO_MEDIUM_MAILBOX && rondo_coll_has_root(coll);
        int first = s->algo == RONDO_ALGO_MAIL_TWOSHOT ? 3 : 2;
        int last_n = rooted || first == 3 ? RONDO_MAILBOX_FEW : 64;
        size_t most = rooted ? rondo_rooted_capacity(MAILBOX) : MAILBOX;
        if (rondo_algo_seating(s->algo) == RONDO_SEATING_DIMS ||
            rondo_algo_seating(s->algo) == RONDO_SEATING_GROUPS) {
            continue; /* on several nodes only, and 7 ranks have more steps than 8:
                         doubling_is_for_few_bytes_on_several_nodes; in groups only: unit_levels */
        }
        for (int n = first; n <= last_n; n++) {
            double last = 0;
            struct rondo_layout fewer = some_layout(n - 1, 1), l = some_layout(n, 1),
                                nodes = some_layout(n, 2), crowded = l;
            crowded.model.ranks_per_core = 4;
            for (size_t bytes = 0; bytes <= most; bytes = 2 * bytes + 8) {
                double us = rondo_cost_us(&l, coll, (enum rondo_algo)s->algo, RONDO_PROTO_SIMPLE, 1, bytes,
                                          MAILBOX),
                       across = rondo_cost_us(&nodes, coll, (enum rondo_algo)s->algo, RONDO_PROTO_SIMPLE, 1,
                                              bytes, MAILBOX);
                assert_true(us > last);
                assert_true(p2p || n == 2 ||
                            us >= rondo_cost_us(&fewer, coll, (enum rondo_algo)s->algo, RONDO_PROTO_SIMPLE, 1,
                                                bytes, MAILBOX));
                assert_true(on_mailbox(s->algo) || across > us);
                assert_true(rondo_cost_us(&crowded, coll, (enum rondo_algo)s->algo, RONDO_PROTO_SIMPLE, 1,
                                          bytes, MAILBOX) > us);
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
        if (!on_mailbox(s->algo) && rondo_algo_seating(s->algo) != RONDO_SEATING_PEER &&
            rondo_algo_seating(s->algo) != RONDO_SEATING_DIMS) {
            assert_true(rondo_cost_us(&l, (enum rondo_coll)s->coll, (enum rondo_algo)s->algo, RONDO_PROTO_LL,
                                      1, BIG, 0) == l.model.base_us);
        }
    }
}

/* It has half the messages of a tree in a row, but each has the whole buffer. */
static void doubling_is_for_few_bytes_on_several_nodes(void **state)
{
    struct rondo_layout one = some_layout(8, 1), l = some_layout(8, 4), many = some_layout(4096, 4);
    (void)state;
    assert_true(us_of(&one, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING, RONDO_PROTO_SIMPLE, 1, 8) < 0);
    assert_true(us_of(&many, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING, RONDO_PROTO_SIMPLE, 1, 8) <
                0); /* more than RONDO_MAX_DIMS partners */
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING, RONDO_PROTO_SIMPLE, 2, 8) < 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING, RONDO_PROTO_SIMPLE, 1, 8) <
                us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE, 1, 8));
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING, RONDO_PROTO_SIMPLE, 1, BIG) >
                us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, BIG));
}

static struct rondo_choice choose(const struct rondo_layout *l, enum rondo_coll coll, size_t bytes)
{
    struct rondo_choice choice;
    assert_int_equal(rondo_cost_choose(l, NULL, coll, bytes, MAILBOX, &choice), RONDO_SUCCESS);
    assert_true(choice.us > 0 && choice.nchannels >= 1);
    return choice;
}

/* With direct access a large sum is two-shot; without, two ranks publish in pieces, up to 8 ranks go two-shot
 * over the mailbox, and more form a ring. */
static void small_sum_on_a_node_is_oneshot_and_large_one_twoshot_or_a_ring(void **state)
{
    struct rondo_allowed all, only;
    (void)state;
    assert_int_equal(rondo_allowed_parse(&all, "", ""), RONDO_SUCCESS);
    assert_int_equal(rondo_allowed_parse(&only, "twoshot", ""), RONDO_SUCCESS);
    for (int n = 2; n <= 16; n++) {
        struct rondo_layout l = some_layout(n, 1);
        enum rondo_algo mail = n == 2 ? RONDO_ALGO_ONESHOT : RONDO_ALGO_MAIL_TWOSHOT;
        int few = n <= RONDO_MAILBOX_FEW;
        struct rondo_choice small = choose(&l, RONDO_COLL_ALL_REDUCE, 8),
                            large = choose(&l, RONDO_COLL_ALL_REDUCE, BIG), other;
        assert_int_equal(small.algo, RONDO_ALGO_ONESHOT);
        assert_int_equal(large.algo, RONDO_ALGO_TWOSHOT);
        assert_int_equal(
            rondo_cost_choose_without_direct(&l, &only, RONDO_COLL_ALL_REDUCE, BIG, BIG_MAILBOX, 1, &other),
            RONDO_SUCCESS);
        assert_int_equal(other.algo, few ? mail : RONDO_ALGO_ORDERED);
        assert_int_equal(
            rondo_cost_choose_without_direct(&l, &only, RONDO_COLL_ALL_REDUCE, BIG, BIG_MAILBOX, 0, &other),
            RONDO_SUCCESS);
        assert_int_equal(other.algo, few ? mail : RONDO_ALGO_RING);
        assert_int_equal(
            rondo_cost_choose_without_direct(&l, &all, RONDO_COLL_ALL_REDUCE, BIG, BIG_MAILBOX, 0, &large),
            RONDO_SUCCESS);
        assert_int_equal(large.algo, few ? mail : RONDO_ALGO_RING);
        assert_int_equal(large.proto, RONDO_PROTO_SIMPLE);
        assert_int_equal(large.nchannels, 1); /* channels share a thread */
        assert_int_equal(
            rondo_cost_choose_without_direct(&l, &all, RONDO_COLL_REDUCE_SCATTERV, 64, MAILBOX, 0, &other),
            RONDO_SUCCESS);
        assert_int_equal(other.algo,
                         RONDO_ALGO_RING); /* its blocks may be apart in memory, so they are not published */
        assert_int_equal(other.proto, RONDO_PROTO_LL);
        assert_int_equal(choose(&l, RONDO_COLL_REDUCE_SCATTER, 64).algo, RONDO_ALGO_ONESHOT);
        assert_int_equal(choose(&l, RONDO_COLL_ALL_GATHER, 64).algo, RONDO_ALGO_ONESHOT);
        assert_int_equal(choose(&l, RONDO_COLL_BROADCAST, 64).algo == RONDO_ALGO_ONESHOT,
                         n <= RONDO_MAILBOX_FEW);
        assert_int_equal(choose(&l, RONDO_COLL_REDUCE, 64).algo == RONDO_ALGO_ONESHOT,
                         n <= RONDO_MAILBOX_FEW);
    }
}

/* In their caches two ranks publish; past them the kernel copies, unless it would store past the caches. */
static void two_ranks_publish_what_the_kernel_would_copy_more_slowly(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_ALL_GATHER };
    struct rondo_layout l = some_layout(2, 1), three = some_layout(3, 1);
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(colls); i++) {
        for (size_t bytes = 1 << 14; bytes <= BIG; bytes *= 2) {
            double posted = rondo_cost_us(&l, colls[i], RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, bytes,
                                          BIG_MAILBOX);
            assert_true(rondo_cost_us(&l, colls[i], RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, bytes, 64) >
                        posted); /* in more pieces */
            assert_true(posted > 0);
            assert_true(us_of(&three, colls[i], RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, bytes) < 0);
            for (int in_place = 0; in_place < 2; in_place++) {
                double copied = rondo_cma_cost_us(&l, RONDO_ALGO_TWOSHOT, colls[i], bytes, in_place);
                int past = bytes >= l.model.stream_bytes && !in_place;
                assert_int_equal(posted < copied, bytes <= l.model.pair_cached || past);
            }
        }
    }
    assert_true(us_of(&l, RONDO_COLL_ALL_GATHERV, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, MAILBOX + 1) <
                0);
    l.model.pair_bw = 0; /* GPUs */
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, MAILBOX) > 0);
    assert_true(us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, MAILBOX + 1) < 0);
}

/* A system call costs more than a small message, and less than to pass a large one through conns; on
 * oversubscribed cores conns are better. */
static void the_kernel_copies_what_is_large(void **state)
{
    struct rondo_layout l = some_layout(2, 1), crowded;
    (void)state;
    for (size_t bytes = 8; bytes <= BIG; bytes *= 2) {
        double cma = rondo_cma_cost_us(&l, RONDO_ALGO_TWOSHOT, RONDO_COLL_ALL_REDUCE, bytes, 1),
               ring = us_of(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, bytes);
        assert_true(bytes > 16384 || cma > ring);
        assert_true(bytes < 1 << 20 || cma < ring);
        crowded = l;
        crowded.model.ranks_per_core = 2;
        assert_true(rondo_cma_cost_us(&crowded, RONDO_ALGO_TWOSHOT, RONDO_COLL_ALL_REDUCE, bytes, 1) >
                    2 * cma - 1);
    }
}

/* On far cores the kernel's copies pay much earlier. Near cores and impossible times do not change the
 * model. */
static void far_cores_copy_by_the_kernel_earlier(void **state)
{
    static const uint32_t no_change[] = { 0, 60, 200, 5000 };
    struct rondo_layout near = some_layout(2, 1), far;
    size_t first[2] = { 0, 0 };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(no_change); i++) {
        far = near;
        rondo_model_handover(&far.model, no_change[i]);
        assert_memory_equal(&far.model, &near.model, sizeof(near.model));
    }
    rondo_model_handover(&far.model, 500);
    assert_string_equal(rondo_model_handover_name(500), "far");
    assert_string_equal(rondo_model_handover_name(70), "near");
    assert_string_equal(rondo_model_handover_name(9000), "unknown");
    for (int i = 0; i < 2; i++) {
        const struct rondo_layout *l = i == 0 ? &near : &far;
        for (size_t bytes = 1024; first[i] == 0 && bytes <= BIG; bytes *= 2) {
            double ring = us_of(l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, bytes);
            first[i] = rondo_cma_cost_us(l, RONDO_ALGO_TWOSHOT, RONDO_COLL_ALL_REDUCE, bytes, 0) < ring
                           ? bytes
                           : 0;
        }
    }
    assert_true(first[1] > 0 && first[1] <= 32768 && first[1] * 4 <= first[0]);
    assert_true(us_of(&far, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1, 1 << 20) <
                rondo_cma_cost_us(&far, RONDO_ALGO_TWOSHOT, RONDO_COLL_ALL_REDUCE, 1 << 20, 0));
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
    rondo_cost_table(l, NULL, RONDO_COLL_ALL_REDUCE, bytes, MAILBOX, table);
    return table[RONDO_ALGO_TREE][RONDO_PROTO_SIMPLE].nchannels;
}

/* In one tree inner ranks have three neighbours; two trees share that load, but the second channel costs
 * time. */
static void large_tree_is_a_double_tree_and_small_one_single(void **state)
{
    struct rondo_layout l = some_layout(8, 1);
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    (void)state;
    assert_int_equal(tree_channels(&l, BIG), 2);
    assert_int_equal(tree_channels(&l, 8), 1);
    l.nchannels = 1;
    rondo_cost_table(&l, NULL, RONDO_COLL_ALL_REDUCE, BIG, MAILBOX, table);
    assert_int_equal(table[RONDO_ALGO_TREE][RONDO_PROTO_SIMPLE].nchannels, 1);
    assert_true(table[RONDO_ALGO_TREE][RONDO_PROTO_SIMPLE].us >
                1.4 * table[RONDO_ALGO_RING][RONDO_PROTO_SIMPLE].us);
}

/* RONDO_MIN_NCHANNELS holds even where it is slower; algorithms with one channel keep one. */
static void calls_use_at_least_the_fewest_channels_where_they_can(void **state)
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
            int one = coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV ||
                      as == RONDO_COLL_SEND || as == RONDO_COLL_RECV;
            rondo_cost_table(&l, NULL, coll, 8, MAILBOX, table);
            for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
                for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
                    const struct rondo_choice *choice = &table[a][p];
                    assert_true(choice->us < 0 || choice->nchannels == (one || on_mailbox(a) ? 1 : wanted));
                }
            }
        }
        /* more than the minimum if that is faster: the second tree */
        assert_int_equal(tree_channels(&l, BIG), wanted > 2 ? wanted : 2);
    }
}

/* The table has a time for what exists, is allowed and can run, and -1 for the rest; the choice is its
 * minimum. */
static void table_holds_what_can_run_and_choice_is_its_least(void **state)
{
    struct rondo_layout l = some_layout(6, 1);
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS], choice;
    struct rondo_allowed allowed;
    (void)state;
    assert_int_equal(rondo_allowed_parse(&allowed, "^oneshot,twoshot,mail_twoshot", "^ll"), RONDO_SUCCESS);
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        for (size_t bytes = 0; bytes < BIG; bytes = bytes * 4 + 8) {
            double least = -1;
            rondo_cost_table(&l, &allowed, (enum rondo_coll)c, bytes, MAILBOX, table);
            for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
                for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
                    const struct rondo_schedule *s = rondo_schedule_find((enum rondo_coll)c,
                                                                         (enum rondo_algo)a);
                    int possible = s != NULL && !on_mailbox(a) && a != RONDO_ALGO_DOUBLING &&
                                   (s->protos >> p & 1) != 0 && p != RONDO_PROTO_LL;
                    double us = table[a][p].us;
                    assert_true(table[a][p].algo == a && table[a][p].proto == p);
                    assert_true((us >= 0) == possible && (table[a][p].nchannels > 0) == possible);
                    least = us >= 0 && (least < 0 || us < least) ? us : least;
                    if (possible) {
                        assert_true(us == rondo_cost_us(&l, (enum rondo_coll)c, (enum rondo_algo)s->algo,
                                                        (enum rondo_proto)p, table[a][p].nchannels, bytes,
                                                        MAILBOX));
                    }
                }
            }
            assert_int_equal(rondo_cost_choose(&l, &allowed, (enum rondo_coll)c, bytes, MAILBOX, &choice),
                             RONDO_SUCCESS);
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
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_REDUCE, 8, MAILBOX, &choice),
                     RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_SEND, 8, MAILBOX, &choice), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_GATHER, 8, MAILBOX, &choice),
                     RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "RONDO_ALGO"));
    assert_non_null(strstr(rondo_error_text(), "RONDO_PROTO"));
    assert_non_null(strstr(rondo_error_text(), "all_gather:"));
    assert_int_equal(rondo_allowed_parse(&allowed, "oneshot", NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_REDUCE, MAILBOX + 1, MAILBOX, &choice),
                     RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "4097 bytes"));
    assert_non_null(strstr(rondo_error_text(), "RONDO_MAILBOX_SIZE"));
    assert_non_null(strstr(rondo_error_text(), "all_reduce:"));
    l = some_layout(2, 1);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_GATHERV, MAILBOX + 1, MAILBOX, &choice),
                     RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "at most 4096 bytes by RONDO_PAIR_SIZE,"));
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_REDUCE, 1 << 20, BIG, &choice),
                     RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "at most 16384 bytes by RONDO_PAIR_SIZE (always 16K),"));
    l = some_layout(2, 2);
    assert_int_equal(rondo_cost_choose(&l, &allowed, RONDO_COLL_ALL_REDUCE, 8, MAILBOX, &choice),
                     RONDO_INVALID_USAGE);
    assert_non_null(strstr(rondo_error_text(), "any number of bytes,"));
}

static void limit_names_the_largest_part(void **state)
{
    struct rondo_layout l = some_layout(8, 1), nodes = some_layout(8, 4);
    (void)state;
    assert_string_equal(
        rondo_cost_limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, 8), "latency");
    assert_string_equal(
        rondo_cost_limit(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, BIG),
        "copy bandwidth");
    assert_string_equal(
        rondo_cost_limit(&nodes, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, 8),
        "network latency");
    assert_string_equal(
        rondo_cost_limit(&nodes, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, BIG),
        "network bandwidth");
    assert_string_equal(
        rondo_cost_limit(&nodes, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1, 8),
        "not available");
}

/* ---- several nodes, with the numbers that creation uses ---- */

static struct rondo_layout job_layout(int nnodes, int nlocal, enum rondo_model_net net, int mbs)
{
    struct rondo_layout l = some_layout(nnodes * nlocal, nnodes);
    struct rondo_stitch_summary summary = { .nnodes = nnodes, .min_nets = mbs > 0 };
    summary.graph[RONDO_GRAPH_RING].found = mbs;
    rondo_model_host(&l.model, 1);
    rondo_model_net(&l.model, &summary, net);
    return l;
}

static void speed_between_nodes_is_that_of_port_and_device(void **state)
{
    struct rondo_model slow = job_layout(2, 1, RONDO_MODEL_SOCKETS, 1250).model,
                       socket = job_layout(2, 1, RONDO_MODEL_SOCKETS, 25000).model,
                       nic = job_layout(2, 1, RONDO_MODEL_RDMA, 25000).model,
                       unknown = job_layout(2, 1, RONDO_MODEL_SOCKETS, 0).model;
    struct rondo_stitch_summary far = { .nnodes = 2, .min_nets = 1 };
    (void)state;
    assert_true(slow.net_bw[RONDO_PROTO_SIMPLE] == 1.25); /* the port */
    assert_true(socket.net_bw[RONDO_PROTO_SIMPLE] == 2);  /* one thread */
    assert_true(nic.net_bw[RONDO_PROTO_SIMPLE] == 25);
    assert_true(unknown.net_bw[RONDO_PROTO_SIMPLE] == 2);
    assert_true(socket.net_us[RONDO_PROTO_SIMPLE] == 12 && nic.net_us[RONDO_PROTO_SIMPLE] == 2);
    far.graph[RONDO_GRAPH_RING].latency_inter = 3000;
    rondo_model_net(&nic, &far, RONDO_MODEL_RDMA);
    assert_true(nic.net_us[RONDO_PROTO_SIMPLE] == 5);
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) { /* flags and padding gain nothing there */
        assert_true(p == RONDO_PROTO_SIMPLE ||
                    (nic.net_us[p] > 5 && nic.net_bw[p] < nic.net_bw[RONDO_PROTO_SIMPLE]));
    }
    assert_true(nic.net_bw[RONDO_PROTO_LL128] > 1.8 * nic.net_bw[RONDO_PROTO_LL]);
}

/* With the best number of channels. */
static double best_us(const struct rondo_layout *l, enum rondo_coll coll, enum rondo_algo algo,
                      enum rondo_proto proto, size_t bytes)
{
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    rondo_cost_table(l, NULL, coll, bytes, MAILBOX, table);
    return table[algo][proto].us;
}

static void simple_is_chosen_between_nodes(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE,
                                             RONDO_COLL_ALL_GATHER, RONDO_COLL_REDUCE_SCATTER };
    (void)state;
    for (int net = 0; net < RONDO_MODEL_NUM_NETS; net++) {
        for (int nnodes = 2; nnodes <= 16; nnodes++) {
            for (int nlocal = 1; nlocal <= 8; nlocal++) {
                struct rondo_layout l = job_layout(nnodes, nlocal, (enum rondo_model_net)net, 10000);
                for (size_t i = 0; i < RONDO_COUNTOF(colls); i++) {
                    for (size_t bytes = 8; bytes <= BIG; bytes *= 2) {
                        const enum rondo_algo algos[] = { RONDO_ALGO_RING, RONDO_ALGO_TREE };
                        assert_int_not_equal(choose(&l, colls[i], bytes).algo, RONDO_ALGO_ONESHOT);
                        for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
                            double us = best_us(&l, colls[i], algos[a], RONDO_PROTO_SIMPLE, bytes);
                            assert_true(us < 0 ||
                                        us < best_us(&l, colls[i], algos[a], RONDO_PROTO_LL, bytes));
                            assert_true(us < 0 ||
                                        us < best_us(&l, colls[i], algos[a], RONDO_PROTO_LL128, bytes));
                        }
                    }
                }
            }
        }
    }
}

static void few_bytes_on_many_nodes_are_a_tree_and_many_a_ring(void **state)
{
    (void)state;
    for (int net = 0; net < RONDO_MODEL_NUM_NETS; net++) {
        for (int nnodes = 4; nnodes <= 64; nnodes++) {
            for (int nlocal = 1; nlocal <= 8; nlocal *= 2) {
                struct rondo_layout l = job_layout(nnodes, nlocal, (enum rondo_model_net)net, 1250);
                for (int large = 0; large < 2; large++) {
                    size_t bytes = large ? (size_t)1 << 34 : 8;
                    double tree = best_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE,
                                          bytes);
                    double ring = best_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE,
                                          bytes);
                    assert_true(tree > 0 && ring > 0 && (large ? ring < tree : tree < ring));
                }
            }
        }
    }
}

/* How much longer a call takes if a hop between nodes takes a microsecond more. */
static double net_hops_of(int nnodes, int nlocal, enum rondo_coll coll, enum rondo_algo algo)
{
    struct rondo_layout l = job_layout(nnodes, nlocal, RONDO_MODEL_SOCKETS, 1250);
    double us = us_of(&l, coll, algo, RONDO_PROTO_SIMPLE, 1, 8);
    l.model.net_us[RONDO_PROTO_SIMPLE] += 1;
    return us_of(&l, coll, algo, RONDO_PROTO_SIMPLE, 1, 8) - us;
}

static void latency_counts_the_hops_between_nodes(void **state)
{
    (void)state;
    assert_float_equal(net_hops_of(4, 3, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING), 8, 1e-6); /* twice around */
    assert_float_equal(net_hops_of(4, 1, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING), 6,
                       1e-6); /* except for one hop */
    assert_float_equal(net_hops_of(4, 3, RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING), 4, 1e-6);
    assert_float_equal(net_hops_of(2, 3, RONDO_COLL_BROADCAST, RONDO_ALGO_RING), 2,
                       1e-6); /* a root in the middle of its node */
    assert_float_equal(net_hops_of(16, 3, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE), 8, 1e-6);
    assert_float_equal(net_hops_of(5, 1, RONDO_COLL_BROADCAST, RONDO_ALGO_TREE), 6, 1e-6);
    assert_float_equal(net_hops_of(1, 8, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE), 0, 1e-6);
}

/* A tree crosses two nodes once each way, a ring nearly twice; in a long job both do twice. */
static void bandwidth_counts_what_leaves_a_node(void **state)
{
    struct rondo_layout two = job_layout(2, 4, RONDO_MODEL_SOCKETS, 1000),
                        many = job_layout(16, 1, RONDO_MODEL_SOCKETS, 1000);
    double second = 1e9 / BIG; /* 1 GB/s */
    (void)state;
    assert_float_equal(us_of(&two, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE, 2, BIG) *
                           second * 1e-6,
                       1, 0.01);
    assert_float_equal(us_of(&two, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 2, BIG) *
                           second * 1e-6,
                       1.75, 0.01);
    assert_float_equal(us_of(&many, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, RONDO_PROTO_SIMPLE, 2, BIG) *
                           second * 1e-6,
                       2, 0.01);
    assert_float_equal(us_of(&many, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 2, BIG) *
                           second * 1e-6,
                       1.875, 0.02);
    assert_float_equal(us_of(&two, RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_P2P, RONDO_PROTO_SIMPLE, 1, BIG) *
                           second * 1e-6,
                       2, 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oneshot_needs_one_node_and_a_mailbox_that_holds_it),
        cmocka_unit_test(oneshot_with_a_root_is_for_few_ranks_and_bytes),
        cmocka_unit_test(protocol_without_buffers_or_bandwidth_cannot_run),
        cmocka_unit_test(v_forms_have_one_channel),
        cmocka_unit_test(more_work_never_costs_less),
        cmocka_unit_test(one_rank_costs_the_call),
        cmocka_unit_test(doubling_is_for_few_bytes_on_several_nodes),
        cmocka_unit_test(small_sum_on_a_node_is_oneshot_and_large_one_twoshot_or_a_ring),
        cmocka_unit_test(two_ranks_publish_what_the_kernel_would_copy_more_slowly),
        cmocka_unit_test(the_kernel_copies_what_is_large),
        cmocka_unit_test(far_cores_copy_by_the_kernel_earlier),
        cmocka_unit_test(many_ranks_and_few_bytes_are_a_tree),
        cmocka_unit_test(large_tree_is_a_double_tree_and_small_one_single),
        cmocka_unit_test(calls_use_at_least_the_fewest_channels_where_they_can),
        cmocka_unit_test(table_holds_what_can_run_and_choice_is_its_least),
        cmocka_unit_test(nothing_allowed_is_invalid_usage_that_names_parameters_and_collective),
        cmocka_unit_test(limit_names_the_largest_part),
        cmocka_unit_test(speed_between_nodes_is_that_of_port_and_device),
        cmocka_unit_test(simple_is_chosen_between_nodes),
        cmocka_unit_test(few_bytes_on_many_nodes_are_a_tree_and_many_a_ring),
        cmocka_unit_test(latency_counts_the_hops_between_nodes),
        cmocka_unit_test(bandwidth_counts_what_leaves_a_node),
    };
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
