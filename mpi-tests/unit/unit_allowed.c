/* RONDO_ALGO and RONDO_PROTO: what a text allows, and the errors of bad texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "coll/algo.h"
#include "init/phases.h"
#include "tuner/tuner.h"

enum {
    RING = 1 << RONDO_ALGO_RING,
    TREE = 1 << RONDO_ALGO_TREE,
    ONESHOT = 1 << RONDO_ALGO_ONESHOT,
    P2P = 1 << RONDO_ALGO_P2P,
    EXCHANGE = 1 << RONDO_ALGO_DOUBLING,
    ANY = (1 << RONDO_NUM_ALGOS) - 1
};
enum {
    LL = 1 << RONDO_PROTO_LL,
    LL128 = 1 << RONDO_PROTO_LL128,
    SIMPLE = 1 << RONDO_PROTO_SIMPLE,
    EVERY = LL | LL128 | SIMPLE
};

static struct rondo_allowed parsed(const char *algo, const char *proto)
{
    struct rondo_allowed allowed;
    memset(&allowed, 0xff, sizeof(allowed));
    if (rondo_allowed_parse(&allowed, algo, proto) != RONDO_SUCCESS) {
        fail_msg("%s", rondo_error_text());
    }
    return allowed;
}

static int algos(const struct rondo_allowed *a, enum rondo_coll coll)
{
    int mask = 0;
    for (int i = 0; i < RONDO_NUM_ALGOS; i++) {
        mask |= (a->protos[coll][i] != 0) << i;
    }
    return mask;
}

static void assert_algos(const char *algo, enum rondo_coll coll, int mask)
{
    struct rondo_allowed a = parsed(algo, "");
    if (algos(&a, coll) != mask) {
        fail_msg("\"%s\" for %s: %#x instead of %#x", algo, rondo_coll_name(coll), algos(&a, coll), mask);
    }
    for (int i = 0; i < RONDO_NUM_ALGOS; i++) {
        assert_int_equal(a.protos[coll][i], (mask >> i & 1) != 0 ? EVERY : 0);
    }
}

static void assert_protos(const char *proto, enum rondo_coll coll, int mask)
{
    struct rondo_allowed a = parsed(NULL, proto);
    for (int i = 0; i < RONDO_NUM_ALGOS; i++) {
        assert_int_equal(a.protos[coll][i], mask);
    }
}

static void empty_texts_allow_all(void **state)
{
    static const char *const texts[] = { NULL, "", " ", ";", " ; ;" };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(texts); i++) {
        for (int c = 0; c < RONDO_NUM_COLLS; c++) {
            assert_algos(texts[i], (enum rondo_coll)c, ANY);
            assert_protos(texts[i], (enum rondo_coll)c, EVERY);
        }
    }
}

static void list_allows_its_words_and_caret_all_others(void **state)
{
    (void)state;
    assert_algos("ring", RONDO_COLL_ALL_REDUCE, RING);
    assert_algos("Ring,TREE", RONDO_COLL_BROADCAST, RING | TREE);
    assert_algos(" ring , tree ", RONDO_COLL_BROADCAST, RING | TREE);
    assert_algos("^oneshot", RONDO_COLL_ALL_REDUCE, ANY & ~ONESHOT);
    assert_algos(" ^ ring,tree", RONDO_COLL_BARRIER, ANY & ~RING & ~TREE);
    assert_protos("Simple", RONDO_COLL_ALL_REDUCE, SIMPLE);
    assert_protos("LL,LL128", RONDO_COLL_REDUCE, LL | LL128);
    assert_protos("^LL128", RONDO_COLL_REDUCE, LL | SIMPLE);
}

static void list_for_one_collective_replaces_the_general_one(void **state)
{
    (void)state;
    assert_algos("all_reduce:ring;broadcast:tree", RONDO_COLL_ALL_REDUCE, RING);
    assert_algos("all_reduce:ring;broadcast:tree", RONDO_COLL_BROADCAST, TREE);
    assert_algos("all_reduce:ring;broadcast:tree", RONDO_COLL_REDUCE, ANY);
    assert_algos("tree", RONDO_COLL_REDUCE, TREE);
    assert_algos("tree", RONDO_COLL_ALL_GATHER, ANY); /* no tree carries it, so the list does not apply */
    assert_algos("all_gather:tree", RONDO_COLL_ALL_GATHER, TREE);
    assert_algos("ring;allreduce:tree,oneshot", RONDO_COLL_ALL_REDUCE, TREE | ONESHOT);
    assert_algos("ring;allreduce:tree,oneshot", RONDO_COLL_REDUCE, RING);
    assert_algos("ring;allreduce:tree;AllReduce : ring", RONDO_COLL_ALL_REDUCE, RING);
    assert_algos("ring;allgatherv:tree;", RONDO_COLL_ALL_GATHERV, TREE);
    assert_algos("ring;allgatherv:tree;", RONDO_COLL_ALL_GATHER, RING);
    assert_protos("allreduce:^ll", RONDO_COLL_ALL_REDUCE, LL128 | SIMPLE);
    assert_protos("allreduce:^ll", RONDO_COLL_BROADCAST, EVERY);
    assert_protos("simple;reducescatter:ll", RONDO_COLL_REDUCE_SCATTER, LL);
}

/* They have one algorithm, so "ring" for all collectives does not apply to them. */
static void general_list_does_not_apply_to_sends_and_receives(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_SEND,   RONDO_COLL_RECV,    RONDO_COLL_ALL_TO_ALL,
                                             RONDO_COLL_GATHER, RONDO_COLL_SCATTER, RONDO_COLL_ALL_TO_ALLV };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(colls); i++) {
        assert_algos("ring", colls[i], ANY);
        assert_protos("ll", colls[i], EVERY);
    }
    assert_algos("ring;send:^p2p", RONDO_COLL_SEND, ANY & ~P2P);
    assert_protos("send:ll", RONDO_COLL_SEND, LL);
}

static void algorithms_that_only_nccl_has_are_ignored(void **state)
{
    (void)state;
    assert_algos("nvls,ring,CollnetDirect", RONDO_COLL_ALL_REDUCE, RING);
    assert_algos("^NVLSTree,pat", RONDO_COLL_ALL_REDUCE, ANY);
    assert_algos("NVLS", RONDO_COLL_ALL_REDUCE, ANY);
    assert_algos("ring;allgather:pat", RONDO_COLL_ALL_GATHER, ANY);
    assert_algos("ring;allreduce:tree,collnetchain", RONDO_COLL_ALL_REDUCE, TREE);
}

static void algorithm_and_protocol_both_decide(void **state)
{
    struct rondo_allowed a = parsed("ring,tree;reduce:tree", "simple;reduce:ll,ll128");
    (void)state;
    assert_int_equal(a.protos[RONDO_COLL_ALL_REDUCE][RONDO_ALGO_RING], SIMPLE);
    assert_int_equal(a.protos[RONDO_COLL_ALL_REDUCE][RONDO_ALGO_ONESHOT], 0);
    assert_int_equal(a.protos[RONDO_COLL_REDUCE][RONDO_ALGO_TREE], LL | LL128);
    assert_int_equal(a.protos[RONDO_COLL_REDUCE][RONDO_ALGO_RING], 0);
}

/* The parameter, the word, and what would be allowed. */
static void assert_refused(const char *algo, const char *proto, const char *param, const char *word,
                           const char *allowed_word)
{
    struct rondo_allowed a;
    rondo_error_clear();
    assert_int_equal(rondo_allowed_parse(&a, algo, proto), RONDO_INVALID_ARGUMENT);
    if (strstr(rondo_error_text(), param) == NULL || strstr(rondo_error_text(), word) == NULL ||
        strstr(rondo_error_text(), allowed_word) == NULL) {
        fail_msg("\"%s\" names not all of %s, %s, %s", rondo_error_text(), param, word, allowed_word);
    }
    assert_true(strlen(rondo_error_text()) < RONDO_ERROR_TEXT - 1); /* not cut */
}

static void bad_words_are_named(void **state)
{
    char endless[4096];
    (void)state;
    assert_refused("rings", "", "RONDO_ALGO", "\"rings\"", "ring, tree, oneshot, twoshot, p2p");
    assert_refused("ring,,tree", "", "RONDO_ALGO", "\"\"", "oneshot");
    assert_refused("ring,", "", "RONDO_ALGO", "\"\"", "oneshot");
    assert_refused("^", "", "RONDO_ALGO", "\"\"", "oneshot");
    assert_refused("^ring,^tree", "", "RONDO_ALGO", "\"^tree\"", "\"^a\" for all but a");
    assert_refused("ring,^tree", "", "RONDO_ALGO", "\"^tree\"", "\"^a\" for all but a");
    assert_refused("all_reduces:ring", "", "RONDO_ALGO", "\"all_reduces\"", "reduce_scatter");
    assert_refused("all_reduce:", "", "RONDO_ALGO", "\"\"", "oneshot");
    assert_refused(":ring", "", "RONDO_ALGO", "\"\"", "all_reduce");
    assert_refused("all_reduce:ring:tree", "", "RONDO_ALGO", "\"ring:tree\"", "oneshot");
    assert_refused("all_reduce:ring;tree", "", "RONDO_ALGO", "\"tree\"", "only the first");
    assert_refused("", "ll64", "RONDO_PROTO", "\"ll64\"", "ll, ll128, simple");
    assert_refused("", "nvls", "RONDO_PROTO", "\"nvls\"", "simple");
    memset(endless, 'x', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    assert_refused(endless, "", "RONDO_ALGO", "xxxx", "oneshot");
    assert_refused("", endless, "RONDO_PROTO", "xxxx", "simple");
    memcpy(endless, "ring:", 5);
    assert_refused(endless, "", "RONDO_ALGO", "\"ring\"", "all_reduce");
}

static uint32_t buffers(const char *algo, const char *proto, int nnodes)
{
    struct rondo_layout layout = { .nranks = 4, .nnodes = nnodes };
    struct rondo_allowed allowed = parsed(algo, proto);
    return rondo_init_wanted_protos(&layout, &allowed);
}

static void conns_get_buffers_for_what_their_algorithms_may_use(void **state)
{
    (void)state;
    assert_int_equal(buffers("", "", 1), EVERY);
    assert_int_equal(buffers("", "simple", 2), SIMPLE);
    assert_int_equal(buffers("ring", "ll", 1), LL | SIMPLE);
    assert_int_equal(buffers("oneshot", "", 1), SIMPLE); /* nothing but messages uses conns */
    assert_int_equal(buffers("oneshot;all_reduce:doubling", "", 1), SIMPLE);
    assert_int_equal(buffers("oneshot;all_reduce:doubling", "", 2), EVERY);
    assert_int_equal(buffers("doubling", "ll", 2), LL | SIMPLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_texts_allow_all),
        cmocka_unit_test(list_allows_its_words_and_caret_all_others),
        cmocka_unit_test(list_for_one_collective_replaces_the_general_one),
        cmocka_unit_test(general_list_does_not_apply_to_sends_and_receives),
        cmocka_unit_test(algorithms_that_only_nccl_has_are_ignored),
        cmocka_unit_test(algorithm_and_protocol_both_decide),
        cmocka_unit_test(conns_get_buffers_for_what_their_algorithms_may_use),
        cmocka_unit_test(bad_words_are_named),
    };
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
