/* External net plugins that misbehave, and wrong requests that the device does not pass on to them. */
#include "netdev_plugin_world.h"

/* ---- plugins that misbehave ---- */

static void plugins_that_cannot_be_used_are_reported(void **state)
{
    static const struct {
        const char *behaviour, *says;
        rondo_status status;
        int since; /* the first version with this function */
    } rows[] = {
        { "missing=accept", "has no function accept;", RONDO_INVALID_USAGE, 8 },
        { "missing=getProperties", "has no function getProperties;", RONDO_INVALID_USAGE, 8 },
        { "missing=closeListen", "has no function closeListen;", RONDO_INVALID_USAGE, 8 },
        { "missing=finalize", "has no function finalize;", RONDO_INVALID_USAGE, 11 },
        { "noname", "has no name, or one of more than 63 bytes;", RONDO_INVALID_USAGE, 8 },
        { "longname", "has no name, or one of more than 63 bytes;", RONDO_INVALID_USAGE, 8 },
        { "init=2", "init gave 2 (unhandled system error", RONDO_SYSTEM_ERROR, 8 },
        { "init=3", "init gave 3 (", RONDO_INTERNAL_ERROR, 8 },
        { "init=-77", "init gave -77 (unknown code)", RONDO_INTERNAL_ERROR, 8 },
        { "devices=0", "reports 0 devices", RONDO_INVALID_USAGE, 8 },
        { "devices=-5", "reports -5 devices", RONDO_INVALID_USAGE, 8 },
        { "devices=2000000000", "reports 2000000000 devices", RONDO_INVALID_USAGE, 8 },
        { "devicescode=6", "devices gave 6 (", RONDO_REMOTE_ERROR, 8 },
        { "properties=5", "getProperties gave 5 (", RONDO_INVALID_USAGE, 8 },
        { "offload", "needs NCCL kernels (device offload of type 1)", RONDO_INVALID_USAGE, 8 },
    };
    int n;
    (void)state;
    need_compiler();
    for (int version = OLDEST; version <= NEWEST; version++) {
        for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
            if (version < rows[i].since) {
                continue;
            }
            if (use(path_of(version), rows[i].behaviour, &n, NULL, 0) != rows[i].status) {
                fail_msg("v%d %s: %s", version, rows[i].behaviour, rondo_error_text());
            }
            assert_int_equal(n, 0);
            assert_says(rows[i].says);
            assert_says(path_of(version));
            assert_says("RONDO_NET_PLUGIN=none uses verbs and sockets");
            assert_null(dlopen(path_of(version), RTLD_NOW | RTLD_NOLOAD)); /* it has been unloaded */
        }
    }
}

static void odd_properties_are_corrected(void **state)
{
    struct rondo_net_properties p;
    struct mock_net *seen;
    (void)state;
    need_compiler();
    for (int version = OLDEST; version <= NEWEST; version++) {
        use_version(version, "wild,nonames");
        void *library = look(version, &seen);
        assert_int_equal(net->properties(1, &p), RONDO_SUCCESS);
        assert_string_equal(p.name, "Mock Net:1");
        assert_string_equal(p.pci_path, "");
        assert_true(p.speed_mbps > 0 && p.max_comms >= 1 && p.max_recvs == 1 && p.latency_us >= 0);
        assert_int_equal(p.memory, 7);
        leave(library, seen);
        use_version(version, "badname");
        library = look(version, &seen);
        assert_int_equal(net->properties(0, &p), RONDO_SUCCESS);
        assert_string_equal(p.name, "mo?ck");
        assert_ptr_equal(rondo_netdev_by_name("Mock?Net"), net);
        leave(library, seen);
    }
}

/* Not all of GPUDirect needs them. */
static void the_functions_that_gpu_memory_needs_may_be_missing(void **state)
{
    static const struct {
        const char *behaviour;
        uint32_t memory;
    } rows[] = { { "missing=iflush",
                   RONDO_NET_HOST | RONDO_NET_CUDA | RONDO_NET_DMABUF | RONDO_NET_NO_FLUSH },
                 { "missing=regMrDmaBuf", RONDO_NET_HOST | RONDO_NET_CUDA } };
    struct rondo_net_properties p;
    struct mock_net *seen;
    (void)state;
    need_compiler();
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        use_version(NEWEST - (int)i, rows[i].behaviour);
        void *library = look(NEWEST - (int)i, &seen);
        assert_int_equal(net->properties(1, &p), RONDO_SUCCESS);
        assert_int_equal(p.memory, rows[i].memory);
        leave(library, seen);
    }
}

/* A plugin of version 9 or later may want received data to be flushed. */
static void a_plugin_may_want_flushes(void **state)
{
    struct rondo_net_properties p;
    struct mock_net *seen;
    (void)state;
    need_compiler();
    for (int version = OLDEST; version <= NEWEST; version++) {
        use_version(version, "forceflush");
        void *library = look(version, &seen);
        assert_int_equal(net->properties(1, &p), RONDO_SUCCESS);
        assert_int_equal(p.memory, RONDO_NET_HOST | RONDO_NET_CUDA | RONDO_NET_DMABUF |
                                       (version >= 9 ? RONDO_NET_FLUSH : 0));
        leave(library, seen);
    }
}

static void failures_name_function_code_and_both_ends(void **state)
{
    static const struct {
        const char *behaviour, *function;
        rondo_status status;
    } rows[] = { { "fail=isend:2,warn", "isend gave 2 (", RONDO_REMOTE_ERROR },
                 { "fail=isend:6,warn", "isend gave 6 (", RONDO_REMOTE_ERROR },
                 { "fail=isend:1,warn", "isend gave 1 (", RONDO_UNHANDLED_CUDA_ERROR },
                 { "fail=isend:99,warn", "isend gave 99 (unknown code)", RONDO_INTERNAL_ERROR },
                 { "fail=isend:99", "isend gave 99 (unknown code)", RONDO_INTERNAL_ERROR },
                 { "fail=test:3,warn", "test gave 3 (", RONDO_INTERNAL_ERROR } };
    uint8_t byte[8] = { 0 };
    struct mock_net *seen;
    (void)state;
    need_compiler();
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct pair pair;
        void *region, *request = NULL;
        int done, version = OLDEST + (int)(i % (NEWEST - OLDEST + 1));
        rondo_status status;
        use_version(version, rows[i].behaviour);
        void *library = look(version, &seen);
        pair_open(&pair, net);
        assert_int_equal(net->reg(pair.sender, byte, sizeof byte, RONDO_NET_HOST, -1, &region),
                         RONDO_SUCCESS);
        status = net->isend(pair.sender, byte, 1, 0, region, &request);
        status = status == RONDO_SUCCESS ? net->test(request, &done, NULL) : status;
        assert_int_equal(status, rows[i].status);
        assert_says("net plugin Mock Net (v");
        assert_says(rows[i].function);
        assert_says(
            strstr(rows[i].behaviour, "warn") != NULL
                ? "its last warning: the NIC is on fire (the other end is rank 3 on hostb; this one is "
                  "mock0 of "
                : "code) (the other end is rank 3 on hostb; this one is mock0 of ");
        assert_says("channel 1)");
        /* The error has ended the comm. */
        assert_int_equal(net->isend(pair.sender, byte, 1, 0, region, &request), rows[i].status);
        assert_says(rows[i].function);
        assert_int_equal(net->reg(pair.sender, byte, 1, RONDO_NET_HOST, -1, &request), rows[i].status);
        pair_close(&pair);
        leave(library, seen);
    }
}

static void connecting_can_fail(void **state)
{
    static const struct {
        const char *behaviour, *says;
        rondo_status prepare, sender, receiver;
    } rows[] = {
        { "fail=listen:2", "listen gave 2 (", RONDO_REMOTE_ERROR, RONDO_SUCCESS, RONDO_SUCCESS },
        { "nolisten", "gave success, but no listener", RONDO_INTERNAL_ERROR, RONDO_SUCCESS, RONDO_SUCCESS },
        { "fail=connect:2", "connect gave 2 (", RONDO_SUCCESS, RONDO_REMOTE_ERROR, RONDO_IN_PROGRESS },
        { "fail=accept:3", "accept gave 3 (", RONDO_SUCCESS, RONDO_IN_PROGRESS, RONDO_INTERNAL_ERROR },
        { "silent", "", RONDO_SUCCESS, RONDO_IN_PROGRESS, RONDO_IN_PROGRESS }
    };
    struct mock_net *seen;
    (void)state;
    need_compiler();
    for (int version = OLDEST; version <= NEWEST; version++) {
        for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
            struct pair pair = { .net = net };
            use_version(version, rows[i].behaviour);
            void *library = look(version, &seen);
            rondo_error_clear();
            assert_int_equal(net->prepare(0, &far_peer, 0, &pair.receiver, pair.to_sender), rows[i].prepare);
            assert_int_equal(net->prepare(0, &far_peer, 1, &pair.sender, pair.to_receiver), RONDO_SUCCESS);
            /* Only twice: the third time the sender would be connected. */
            for (int k = 0; k < 2 && rows[i].prepare == RONDO_SUCCESS; k++) {
                assert_int_equal(net->connect(pair.sender, pair.to_sender), rows[i].sender);
                assert_int_equal(net->connect(pair.receiver, pair.to_receiver), rows[i].receiver);
            }
            assert_says(rows[i].says);
            pair_close(&pair); /* the receiver may be NULL */
            leave(library, seen);
        }
    }
}

static void comms_close_while_requests_never_complete(void **state)
{
    struct pair pair;
    struct mock_net *seen;
    uint8_t byte[8] = { 0 };
    void *region, *region2, *sending, *receiving;
    int done;
    (void)state;
    need_compiler();
    use_version(11, "never");
    void *library = look(11, &seen);
    pair_open(&pair, net);
    assert_int_equal(net->reg(pair.sender, byte, 8, RONDO_NET_HOST, -1, &region), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair.receiver, byte, 8, RONDO_NET_HOST, -1, &region2), RONDO_SUCCESS);
    assert_int_equal(pair_receive(&pair, byte, 4, 0, region2, &receiving), RONDO_SUCCESS);
    assert_int_equal(pair_send(&pair, byte + 4, 4, 0, region, &sending), RONDO_SUCCESS);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(net->test(sending, &done, NULL), RONDO_SUCCESS);
        assert_int_equal(done, 0);
        assert_int_equal(net->test(receiving, &done, NULL), RONDO_SUCCESS);
        assert_int_equal(done, 0);
    }
    pair_close(&pair);
    leave(library, seen);
}

static void impossible_sizes_are_refused(void **state)
{
    struct pair pair;
    struct mock_net *seen;
    uint8_t byte[8] = { 0 };
    void *region, *region2, *sending, *receiving;
    size_t arrived;
    int done;
    (void)state;
    need_compiler();
    use_version(12, "oversize");
    void *library = look(12, &seen);
    pair_open(&pair, net);
    assert_int_equal(net->reg(pair.sender, byte, 8, RONDO_NET_HOST, -1, &region), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair.receiver, byte, 8, RONDO_NET_HOST, -1, &region2), RONDO_SUCCESS);
    assert_int_equal(pair_receive(&pair, byte, 4, 0, region2, &receiving), RONDO_SUCCESS);
    assert_int_equal(pair_send(&pair, byte + 4, 4, 0, region, &sending), RONDO_SUCCESS);
    assert_int_equal(net->test(receiving, &done, &arrived), RONDO_INVALID_USAGE);
    assert_int_equal(done, 0);
    assert_says("reports a message of 5 bytes in a buffer of 4");
    pair_close(&pair);
    leave(library, seen);
}

/* ---- limits ---- */

static void there_are_as_many_requests_as_promised(void **state)
{
    enum { N = RONDO_NET_MAX_REQUESTS };
    struct pair pair;
    struct mock_net *seen;
    uint8_t from[N + 1], to[N + 1];
    void *region, *region2, *sending[N + 1], *receiving[N + 1];
    (void)state;
    need_compiler();
    use_version(9, "");
    void *library = look(9, &seen);
    pair_open(&pair, net);
    assert_int_equal(net->reg(pair.sender, from, sizeof from, RONDO_NET_HOST, -1, &region), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair.receiver, to, sizeof to, RONDO_NET_HOST, -1, &region2), RONDO_SUCCESS);
    for (int i = 0; i <= N; i++) {
        void *data = &to[i];
        size_t one = 1;
        int tag = 0;
        from[i] = (uint8_t)i;
        assert_int_equal(net->isend(pair.sender, &from[i], 1, 0, region, &sending[i]), RONDO_SUCCESS);
        assert_int_equal(net->irecv(pair.receiver, 1, &data, &one, &tag, &region2, &receiving[i]),
                         RONDO_SUCCESS);
        assert_true((sending[i] != NULL) == (i < N) && (receiving[i] != NULL) == (i < N));
    }
    for (int i = 0; i < N; i++) {
        pair_finish(&pair, sending[i], receiving[i], NULL);
    }
    assert_memory_equal(from, to, N);
    pair_close(&pair);
    leave(library, seen);
}

static void requests_that_the_plugin_cannot_take_are_refused(void **state)
{
    static uint8_t byte;
    struct pair pair;
    struct mock_net *seen;
    void *request, *region, *data[9] = { NULL }, *regions[9] = { NULL };
    size_t rooms[9] = { 0 };
    int tags[9] = { 0 };
    (void)state;
    need_compiler();
    use_version(10, "missing=regMrDmaBuf");
    void *library = look(10, &seen);
    pair_prepare(&pair, net, 0, &far_peer);
    assert_int_equal(net->reg(pair.sender, &byte, 1, RONDO_NET_HOST, -1, &region), RONDO_INVALID_ARGUMENT);
    assert_int_equal(net->isend(pair.sender, &byte, 1, 0, NULL, &request), RONDO_INVALID_ARGUMENT);
    assert_says("it is not connected");
    pair_connect(&pair);
    assert_int_equal(net->reg(pair.sender, &byte, 1, RONDO_NET_DMABUF, 77, &region), RONDO_INVALID_ARGUMENT);
    assert_says("it takes no memory of this kind");
    assert_int_equal(net->reg(pair.sender, &byte, 1, 8, -1, &region), RONDO_INVALID_ARGUMENT);
    assert_int_equal(net->isend(pair.sender, &byte, 9 * MIB, 0, NULL, &request), RONDO_INVALID_ARGUMENT);
    assert_says("a message is longer than it takes");
    assert_int_equal(net->irecv(pair.receiver, 9, data, rooms, tags, regions, &request),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(net->irecv(pair.receiver, 0, data, rooms, tags, regions, &request),
                     RONDO_INVALID_ARGUMENT);
    pair_close(&pair);
    leave(library, seen);
    use_version(8, "fail=regMr:2");
    library = look(8, &seen);
    pair_open(&pair, net);
    assert_int_equal(net->reg(pair.sender, &byte, 1, RONDO_NET_HOST, -1, &region), RONDO_SYSTEM_ERROR);
    assert_says("regMr gave 2 (");
    assert_says("1 bytes at ");
    assert_says("ulimit -l");
    pair_close(&pair);
    leave(library, seen);
}

static void both_ends_must_use_the_same_plugin_and_communicator(void **state)
{
    struct rondo_net_peer other = far_peer;
    struct pair pair, stranger;
    struct mock_net *seen;
    (void)state;
    need_compiler();
    use_version(8, "");
    void *library = look(8, &seen);
    other.secret[1]++;
    pair_prepare(&pair, net, 0, &far_peer);
    pair_prepare(&stranger, net, 0, &other);
    assert_int_equal(net->connect(pair.receiver, stranger.to_receiver), RONDO_REMOTE_ERROR);
    assert_says(
        "not a sender's handle of a net plugin of this communicator (the other end is rank 3 on hostb");
    assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_REMOTE_ERROR); /* the error stays */
    stranger.to_receiver[16] ^= 1; /* another hash of the plugin's name */
    assert_int_equal(net->connect(stranger.receiver, stranger.to_receiver), RONDO_INVALID_USAGE);
    assert_says("different net plugins; set RONDO_NET_PLUGIN the same on all hosts");
    pair_close(&pair);
    pair_close(&stranger);
    leave(library, seen);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugins_that_cannot_be_used_are_reported),
        cmocka_unit_test(odd_properties_are_corrected),
        cmocka_unit_test(the_functions_that_gpu_memory_needs_may_be_missing),
        cmocka_unit_test(a_plugin_may_want_flushes),
        cmocka_unit_test(failures_name_function_code_and_both_ends),
        cmocka_unit_test(connecting_can_fail),
        cmocka_unit_test(comms_close_while_requests_never_complete),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(there_are_as_many_requests_as_promised),
        cmocka_unit_test(requests_that_the_plugin_cannot_take_are_refused),
        cmocka_unit_test(both_ends_must_use_the_same_plugin_and_communicator),
    };
    setenv("RONDO_SOCKET_IFNAME", "=lo", 1);
    return cmocka_run_group_tests(tests, make_plugins, remove_plugins);
}
