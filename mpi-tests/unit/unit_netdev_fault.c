/* RONDO_NET_FAULT makes net devices misbehave on purpose: here the socket device over the loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "faults.h"
#include "netdev_pair.h"
#include "says.h"

static rondo_status mask_with(const char *faults)
{
    uint32_t mask;
    if (faults != NULL && faults[0] != '\0') {
        needs_faults();
    }
    rondo_netdev_finalize();
    set_param("RONDO_NET_FAULT", faults);
    return rondo_netdev_mask(&mask, NULL, 0);
}

static const struct rondo_net_device *net_with(const char *faults)
{
    uint32_t mask;
    assert_int_equal(mask_with(faults), RONDO_SUCCESS);
    assert_int_equal(rondo_netdev_mask(&mask, NULL, 0), RONDO_SUCCESS);
    return rondo_netdev_common(mask, mask);
}

static void without_faults_the_device_is_used_directly(void **state)
{
    (void)state;
    assert_ptr_equal(net_with(NULL), &rondo_netdev_socket);
    assert_string_equal(net_with("seed=1")->name, "fault");
    assert_ptr_equal(net_with(""), &rondo_netdev_socket);
}

static void a_build_without_faults_refuses_the_parameter(void **state)
{
    uint32_t mask;
    (void)state;
    if (has_faults) {
        skip();
    }
    rondo_netdev_finalize();
    set_param("RONDO_NET_FAULT", "seed=1");
    assert_int_equal(rondo_netdev_mask(&mask, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("this build of Rondo has no fault injection");
    assert_int_equal(mask_with(""), RONDO_SUCCESS);
}

static void the_parameter_is_parsed_strictly(void **state)
{
    static const char *const good[] = { "seed=0",
                                        "seed=9223372036854775807,late=1,again=1,connect=1,die=1,delay=1ms",
                                        "rank=0",
                                        "fail=isend:1",
                                        "fail=test:3:remote,delay=0",
                                        "fail=iflush:1:internal" };
    static const char *const bad[] = {
        ",",       "seed",         "seed=",       "seed=x",      "seed=-1",          "rank=-1",
        "late=0",  "late=1000001", "again=1.5",   "delay=-1",    "delay=x",          "die=0",
        "drop=1",  "fail=isend",   "fail=isend:", "fail=foo:1",  "fail=isend:1:foo", "fail=isend:1:",
        "late=1,", "late =1",      "LATE=1",      "fail=isend:0"
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(good); i++) {
        assert_int_equal(mask_with(good[i]), RONDO_SUCCESS);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        if (mask_with(bad[i]) != RONDO_INVALID_ARGUMENT) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        assert_says("RONDO_NET_FAULT has \"");
    }
    assert_int_equal(mask_with("late=2,drop=9"), RONDO_INVALID_ARGUMENT);
    assert_says("RONDO_NET_FAULT has \"drop=9\"");
}

static void connecting_stays_in_progress(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair, net_with("connect=40"), 0, &far_peer);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(pair.net->connect(pair.sender, pair.to_sender), RONDO_IN_PROGRESS);
        assert_int_equal(pair.net->connect(pair.receiver, pair.to_receiver), RONDO_IN_PROGRESS);
    }
    pair_connect(&pair);
    pair_close(&pair);
}

static void each_request_is_refused_a_few_times_first(void **state)
{
    struct pair pair;
    void *sending, *receiving;
    int byte = 0, tag = 0;
    size_t bytes = sizeof byte;
    void *data = &byte, *region = NULL;
    (void)state;
    pair_open(&pair, net_with("again=3"));
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            assert_int_equal(pair.net->isend(pair.sender, &byte, bytes, 0, NULL, &sending), RONDO_SUCCESS);
            assert_null(sending);
            assert_int_equal(pair.net->irecv(pair.receiver, 1, &data, &bytes, &tag, &region, &receiving),
                             RONDO_SUCCESS);
            assert_null(receiving);
        }
        assert_int_equal(pair.net->irecv(pair.receiver, 1, &data, &bytes, &tag, &region, &receiving),
                         RONDO_SUCCESS);
        assert_non_null(receiving);
        assert_int_equal(pair.net->isend(pair.sender, &byte, bytes, 0, NULL, &sending), RONDO_SUCCESS);
        assert_non_null(sending);
        pair_finish(&pair, sending, receiving, NULL);
    }
    pair_close(&pair);
}

/* Write into text, for each of n messages that have arrived, how many tests it took to report completion. */
static void count_tests(struct pair *pair, int n, char *text)
{
    for (int i = 0; i < n; i++) {
        void *sending, *receiving;
        int done = 0, tests = 0;
        size_t arrived;
        uint32_t from = 0x1234u + (unsigned)i, to = 0;
        assert_int_equal(pair_receive(pair, &to, sizeof to, 0, NULL, &receiving), RONDO_SUCCESS);
        assert_int_equal(pair_send(pair, &from, sizeof from, 0, NULL, &sending), RONDO_SUCCESS);
        while (!done) {
            int64_t start = rondo_now_ns();
            while (to != from) { /* the devices of both ends move the data */
                assert_int_equal(pair->net->test(receiving, &done, &arrived), RONDO_SUCCESS);
                end_of_patience(start);
            }
            if (!done) {
                assert_int_equal(pair->net->test(receiving, &done, &arrived), RONDO_SUCCESS);
                tests++;
            }
        }
        assert_int_equal(arrived, sizeof to);
        for (done = 0; !done;) {
            assert_int_equal(pair->net->test(sending, &done, NULL), RONDO_SUCCESS);
        }
        text[i] = (char)('0' + (tests < 70 ? tests : 70));
    }
    text[n] = '\0';
}

static void completions_are_reported_after_random_tests(void **state)
{
    enum { N = 24 };
    char first[N + 1], second[N + 1], again[N + 1], other[N + 1];
    struct pair a, b;
    (void)state;
    pair_open(&a, net_with("late=9,seed=5"));
    pair_open(&b, a.net);
    count_tests(&a, N, first);
    count_tests(&b, N, second);
    pair_close(&a);
    pair_close(&b);
    assert_true(strspn(first, "0123456789") == N);
    assert_true(strpbrk(first, "56789") != NULL);
    assert_string_not_equal(first, second); /* each comm has delays of its own */
    pair_open(&a, net_with("late=9,seed=5"));
    count_tests(&a, N, again);
    pair_close(&a);
    assert_string_equal(first, again); /* the same seed gives the same delays */
    pair_open(&a, net_with("late=9,seed=6"));
    count_tests(&a, N, other);
    pair_close(&a);
    assert_string_not_equal(first, other);
}

static void completions_are_reported_after_a_delay(void **state)
{
    enum { N = 20 };
    struct pair pair;
    uint8_t from[2000], to[2001];
    int64_t start;
    (void)state;
    pair_open(&pair, net_with("delay=4ms"));
    start = rondo_now_ns();
    for (int i = 0; i < N; i++) {
        pair_message(&pair, 100 * (size_t)i, NULL, NULL, from, to);
    }
    /* The later of two delays counts: 2.7 ms each on average. */
    assert_true(rondo_now_ns() - start > N * 1000000ll);
    pair_close(&pair);
}

static void a_comm_dies_at_its_message(void **state)
{
    struct pair pair;
    uint8_t from[64], to[65];
    void *sending, *receiving;
    int done;
    (void)state;
    pair_open(&pair, net_with("die=3,again=1"));
    pair_message(&pair, 10, NULL, NULL, from, to);
    assert_int_equal(pair_receive(&pair, to, 20, 5, NULL, &receiving), RONDO_SUCCESS);
    assert_int_equal(pair_receive(&pair, to, 20, 5, NULL, &sending), RONDO_REMOTE_ERROR);
    assert_says("the connection of channel 1 from rank 3 on hostb dies at its message 3 by RONDO_NET_FAULT "
                "on ");
    /* Requests in flight fail with the comm. */
    assert_int_equal(pair.net->test(receiving, &done, NULL), RONDO_REMOTE_ERROR);
    assert_says("dies at its message 3");
    assert_int_equal(pair_receive(&pair, to, 20, 5, NULL, &sending), RONDO_REMOTE_ERROR);
    /* The other end does not know about it. */
    assert_int_equal(pair_send(&pair, from, 20, 5, NULL, &sending), RONDO_SUCCESS);
    assert_int_equal(pair_send(&pair, from, 20, 5, NULL, &sending), RONDO_REMOTE_ERROR);
    assert_says("to rank 3");
    pair_close(&pair);
}

static void the_nth_call_fails(void **state)
{
    struct rondo_net_properties properties;
    struct pair pair;
    uint8_t from[64], to[65];
    void *request;
    int n;
    (void)state;
    assert_int_equal(mask_with("fail=init:1"), RONDO_SYSTEM_ERROR);
    assert_says("call 1 of init fails by RONDO_NET_FAULT");
    const struct rondo_net_device *net = net_with("fail=init:2:internal");
    assert_int_equal(net->init(&n, NULL, 0), RONDO_INTERNAL_ERROR);
    assert_int_equal(net->init(&n, NULL, 0), RONDO_SUCCESS);
    net = net_with("fail=properties:2");
    assert_int_equal(net->properties(0, &properties), RONDO_SUCCESS);
    assert_string_equal(properties.name, "lo");
    assert_int_equal(net->properties(0, &properties), RONDO_SYSTEM_ERROR);
    net = net_with("fail=prepare:1:remote");
    assert_int_equal(net->prepare(0, &far_peer, 1, &request, pair.to_receiver), RONDO_REMOTE_ERROR);
    assert_null(request);
    net = net_with("fail=reg:1");
    pair_open(&pair, net);
    assert_int_equal(net->reg(pair.sender, from, 64, RONDO_NET_HOST, -1, &request), RONDO_SYSTEM_ERROR);
    assert_int_equal(net->reg(pair.sender, from, 64, RONDO_NET_HOST, -1, &request), RONDO_SUCCESS);
    assert_int_equal(net->unreg(pair.sender, request), RONDO_SUCCESS);
    pair_close(&pair);
    pair_open(&pair, net_with("fail=isend:3:remote"));
    pair_message(&pair, 10, NULL, NULL, from, to);
    pair_message(&pair, 11, NULL, NULL, from, to);
    assert_int_equal(pair_send(&pair, from, 12, 5, NULL, &request), RONDO_REMOTE_ERROR);
    assert_says("call 3 of isend fails by RONDO_NET_FAULT");
    /* The error has ended the comm. */
    assert_int_equal(pair_send(&pair, from, 12, 5, NULL, &request), RONDO_REMOTE_ERROR);
    assert_says("call 3 of isend");
    pair_close(&pair);
    pair_prepare(&pair, net_with("fail=connect:1"), 0, &far_peer);
    assert_int_equal(pair.net->connect(pair.sender, pair.to_sender), RONDO_SYSTEM_ERROR);
    pair_close(&pair);
}

static void faults_can_be_limited_to_a_rank(void **state)
{
    struct pair pair;
    uint8_t from[64], to[65];
    void *request;
    (void)state;
    rondo_log_set_rank(1);
    pair_open(&pair, net_with("die=1,rank=2,connect=1000,again=1000"));
    pair_message(&pair, 10, NULL, NULL, from, to);
    pair_close(&pair);
    rondo_log_set_rank(2);
    pair_open(&pair, net_with("die=1,rank=2"));
    assert_int_equal(pair_send(&pair, from, 20, 5, NULL, &request), RONDO_REMOTE_ERROR);
    pair_close(&pair);
    rondo_log_set_rank(-1);
}

/* With all faults at once, the data is still right. */
static void messages_arrive_despite_all_faults(void **state)
{
    struct pair pair;
    uint8_t *from = malloc(1 << 20), *to = malloc((1 << 20) + 1);
    (void)state;
    pair_open(&pair, net_with("delay=50us,late=5,again=2,connect=7,seed=3"));
    for (size_t bytes = 0; bytes < 1 << 20; bytes = bytes * 3 + 1) {
        pair_message(&pair, bytes, NULL, NULL, from, to);
    }
    pair_close(&pair);
    free(from);
    free(to);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_faults_the_device_is_used_directly),
        cmocka_unit_test(a_build_without_faults_refuses_the_parameter),
        cmocka_unit_test(the_parameter_is_parsed_strictly),
        cmocka_unit_test(connecting_stays_in_progress),
        cmocka_unit_test(each_request_is_refused_a_few_times_first),
        cmocka_unit_test(completions_are_reported_after_random_tests),
        cmocka_unit_test(completions_are_reported_after_a_delay),
        cmocka_unit_test(a_comm_dies_at_its_message),
        cmocka_unit_test(the_nth_call_fails),
        cmocka_unit_test(faults_can_be_limited_to_a_rank),
        cmocka_unit_test(messages_arrive_despite_all_faults),
    };
    setenv("RONDO_NET_PLUGIN", "none", 1);
    setenv("RONDO_NET", "socket", 1);
    setenv("RONDO_SOCKET_IFNAME", "=lo", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
