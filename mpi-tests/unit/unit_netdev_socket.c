/* The socket net device: messages, matching, interfaces. unit_netdev_socket_fault tests its errors. */
#include "netdev_socket_world.h"
#include "net_events.h"
#include "topo/detect/detect.h"

enum { MIB = 1 << 20, GUARD = 16 };

static void interfaces_are_chosen_by_rule(void **state)
{
    (void)state;
    static const struct {
        /* expected has a letter for each: l lo, e eth0, f eth10, d docker0, i ib0, x eth1 (which is down) */
        const char *rule, *expected;
    } rows[] = {
        { NULL, "efi" },         { "", "efi" },     { "eth", "ef" },      { "=eth", "" },
        { "=eth0", "e" },        { "eth1", "f" },   { "lo", "l" },        { "docker,ib", "di" },
        { "^docker,lo", "efi" }, { "^eth", "ldi" }, { "^=eth0", "lfdi" }, { "=ib0,eth0", "ei" },
        { "nothing", "" },       { ",", "" },
    };
    for (size_t r = 0; r < RONDO_COUNTOF(rows); r++) {
        struct rondo_iface iface[] = { { .name = "lo", .up = 1, .loopback = 1 },
                                       { .name = "eth0", .up = 1 },
                                       { .name = "eth10", .up = 1 },
                                       { .name = "docker0", .up = 1 },
                                       { .name = "ib0", .up = 1 },
                                       { .name = "eth1" } };
        char chosen[8] = "";
        int n = rondo_ifaces_choose(iface, 6, rows[r].rule), at = 0;
        for (int i = 0; i < 6; i++) {
            if (iface[i].chosen) {
                chosen[at++] = "lefdix"[i];
            }
        }
        assert_string_equal(chosen, rows[r].expected);
        assert_int_equal(n, at);
    }
    struct rondo_iface few[] = { { .name = "lo", .up = 1, .loopback = 1 },
                                 { .name = "veth1234", .up = 1 },
                                 { .name = "eth0" } };
    assert_int_equal(rondo_ifaces_choose(few, 3, NULL), 1);
    assert_int_equal(few[1].chosen, 1);
    assert_int_equal(rondo_ifaces_choose(few, 1, NULL), 1); /* there is only the loopback */
    assert_int_equal(rondo_ifaces_choose(few, 0, NULL), 0);
}

static void devices_are_the_interfaces_that_are_chosen(void **state)
{
    struct rondo_net_properties properties;
    char why[160] = "x";
    int again;
    (void)state;
    assert_int_equal(use("=lo", "AF_INET", "1", why, sizeof why), 1);
    assert_string_equal(why, "");
    assert_int_equal(net->properties(0, &properties), RONDO_SUCCESS);
    assert_string_equal(properties.name, "lo");
    assert_string_equal(properties.pci_path, "");
    assert_int_equal(properties.memory, RONDO_NET_HOST | RONDO_NET_APART);
    assert_int_equal(properties.max_recvs, RONDO_NET_MAX_RECVS);
    assert_true(properties.speed_mbps > 0);
    assert_int_equal(net->properties(1, &properties), RONDO_INVALID_ARGUMENT);
    set_param("RONDO_SOCKET_IFNAME", "=nothing");
    assert_int_equal(net->init(&again, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(again, 1); /* interfaces are looked up only once */
    assert_int_equal(use("=nothing", "4", "1", why, sizeof why), 0);
    assert_string_equal(
        why,
        "no network interface that is up and has an IPv4 address is chosen by RONDO_SOCKET_IFNAME==nothing");
    assert_true(use("", "auto", "1", why, sizeof why) > 0);
    net->finalize();
}

static void the_guid_is_the_hardware_address(void **state)
{
    (void)state;
    assert_true(rondo_socket_guid("52:54:00:12:34:fE\n") == 0x5254001234fe);
    assert_true(rondo_socket_guid("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:1b:2a:7f\n") ==
                0x0002c903001b2a7f);
    assert_true(rondo_socket_guid("00:00:00:00:00:00\n") == 0);
    assert_true(rondo_socket_guid("") == 0);
}

/* The topology's name of a net is the device's name. */
static void devices_have_the_names_of_the_topology(void **state)
{
    struct rondo_machine machine = { 0 };
    struct rondo_net_properties properties;
    int n = use("", "auto", "1", NULL, 0);
    int32_t cpu;
    (void)state;
    assert_int_equal(rondo_machine_add(&machine, RONDO_ITEM_CPU, -1, &cpu), RONDO_SUCCESS);
    assert_int_equal(rondo_detect_nets(&machine, NULL), RONDO_SUCCESS);
    for (int32_t i = 0; i < machine.nitems; i++) {
        const struct rondo_item *item = &machine.item[i];
        /* A net with a port belongs to the verbs device. */
        int found = item->kind != RONDO_ITEM_NET || item->net.port > 0;
        for (int d = 0; d < n && !found; d++) {
            assert_int_equal(net->properties(d, &properties), RONDO_SUCCESS);
            found = strcmp(properties.name, item->net.name) == 0;
        }
        assert_true(found);
    }
    rondo_machine_release(&machine);
}

static void only_host_memory_is_registered(void **state)
{
    struct pair pair;
    void *region;
    char byte;
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    assert_int_equal(net->reg(pair.sender, &byte, 1, RONDO_NET_HOST, -1, &region), RONDO_SUCCESS);
    assert_non_null(region);
    assert_int_equal(net->unreg(pair.sender, region), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair.sender, &byte, 1, RONDO_NET_CUDA, -1, &region), RONDO_INVALID_ARGUMENT);
    pair_close(&pair);
}

/* ---- messages ---- */

static void message_of(const struct pair *pair, uint8_t *from, uint8_t *to, size_t bytes)
{
    size_t arrived = 99;
    memset(to, 0xee, bytes + GUARD);
    pattern(from, bytes, (unsigned)bytes);
    /* Even sizes get exactly the room that they need. */
    void *receiving = receive_one(pair->receiver, to, bytes + (bytes & 1), 5);
    finish(send_some(pair->sender, from, bytes, 5), receiving, &arrived);
    assert_int_equal(arrived, bytes);
    assert_memory_equal(from, to, bytes);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(to[bytes + (size_t)i], 0xee);
    }
}

static void sizes_over(const char *family, const char *nconns)
{
    static const size_t around[] = { 4064, 4080, 4096, 65536, 131072, 262144, 393216, 524288, 1000003, MIB };
    uint8_t *from = malloc(MIB + 64), *to = malloc(MIB + 64 + GUARD);
    struct pair pair;
    assert_int_equal(use("=lo", family, nconns, NULL, 0), 1);
    pair_open(&pair);
    for (size_t bytes = 0; bytes < 300; bytes++) {
        message_of(&pair, from, to, bytes);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(around); i++) {
        for (size_t bytes = around[i] - 17; bytes <= around[i] + 17;
             bytes += bytes < around[i] - 1 || bytes > around[i] ? 16 : 1) {
            message_of(&pair, from, to, bytes);
        }
    }
    pair_close(&pair);
    free(from);
    free(to);
}

static void all_sizes_arrive_over_ipv4(void **state)
{
    (void)state;
    sizes_over("4", "1");
    sizes_over("4", "2");
    sizes_over("4", "5");
}

static void all_sizes_arrive_over_ipv6(void **state)
{
    (void)state;
    if (use("=lo", "6", "1", NULL, 0) == 0) {
        print_message("skipped: the loop has no IPv6 address\n");
        skip();
    }
    sizes_over("6", "1");
    sizes_over("AF_INET6", "3");
}

/* A receiver reads to where it expects data. It must correct a wrong guess for any order of lengths. */
static void lengths_change_from_message_to_message(void **state)
{
    enum { N = RONDO_NET_MAX_REQUESTS, ROOM = 400000 };
    static const size_t sizes[] = {
        0, 1, 16, 4079, 4095, 4096, 4097, 4112, 9000, 65535, 70000, 300000, 390001
    };
    static const char *const nconns[] = { "1", "3" };
    uint8_t *from = malloc(MIB), *to = malloc((size_t)N * ROOM);
    uint32_t random = 2463534242u;
    (void)state;
    pattern(from, MIB, 1);
    for (size_t c = 0; c < RONDO_COUNTOF(nconns); c++) {
        struct pair pair;
        use_loop(nconns[c]);
        pair_open(&pair);
        for (int round = 0; round < 20; round++) {
            void *sending[N], *receiving[N];
            size_t bytes[N], arrived;
            for (int i = 0; i < N; i++) { /* so in some rounds, all are there before the first is read */
                random ^= random << 13, random ^= random >> 17, random ^= random << 5;
                bytes[i] = sizes[random % RONDO_COUNTOF(sizes)];
                sending[i] = send_some(pair.sender, from + i, bytes[i], i);
            }
            for (int i = 0; i < N; i++) {
                receiving[i] = receive_one(pair.receiver, to + (size_t)i * ROOM, round & 1 ? ROOM : bytes[i],
                                           i);
            }
            for (int i = 0; i < N; i++) {
                finish(sending[i], receiving[i], &arrived);
                assert_int_equal(arrived, bytes[i]);
                assert_memory_equal(to + (size_t)i * ROOM, from + i, arrived);
            }
        }
        pair_close(&pair);
    }
    free(from);
    free(to);
}

/* Messages of all sizes are in flight at a time, so some connections run ahead of others. */
static void fill_with_requests(const char *nconns)
{
    enum { N = RONDO_NET_MAX_REQUESTS };
    static const size_t sizes[] = { 0, 13, 400000, 1, 131073, 65536, 0, 999999 };
    uint8_t *from = malloc(MIB), *to = malloc((size_t)N * MIB);
    void *sending[N], *receiving[N];
    struct pair pair;
    use_loop(nconns);
    pair_open(&pair);
    pattern(from, MIB, 1);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            receiving[i] = receive_one(pair.receiver, to + (size_t)i * MIB, MIB, i);
            sending[i] = send_some(pair.sender, from + i, sizes[i % 8], i);
            assert_non_null(receiving[i]);
            assert_non_null(sending[i]);
        }
        assert_null(receive_one(pair.receiver, to, 1, 0));
        assert_null(send_some(pair.sender, from, 1, 0));
        finish(sending[N - 1], receiving[N - 1], NULL);
        for (int i = N - 2; i >= 0; i--) {
            size_t arrived;
            finish(sending[i], receiving[i], &arrived);
            assert_int_equal(arrived, sizes[i % 8]);
            assert_memory_equal(to + (size_t)i * MIB, from + i, arrived);
        }
    }
    pair_close(&pair);
    free(from);
    free(to);
}

static void thirty_two_requests_are_in_flight(void **state)
{
    (void)state;
    fill_with_requests("1");
    fill_with_requests("4");
}

/* ---- several parts ---- */

static void group_in_order(const struct pair *pair, const int order[4])
{
    static const int tags[4] = { 40, 41, 42, 43 };
    static const size_t sizes[4] = { 0, 200000, 3, 5000 };
    static uint8_t from[4][200000], to[4][200000];
    void *data[4] = { to[0], to[1], to[2], to[3] }, *regions[4] = { NULL }, *sending[4], *receiving;
    size_t room[4] = { 1, 200000, 3, 200000 }, arrived[4] = { 9, 9, 9, 9 };
    for (int i = 0; i < 4; i++) {
        pattern(from[order[i]], sizes[order[i]], (unsigned)(i + order[i]));
        sending[i] = send_some(pair->sender, from[order[i]], sizes[order[i]], tags[order[i]]);
    }
    assert_int_equal(net->irecv(pair->receiver, 4, data, room, tags, regions, &receiving), RONDO_SUCCESS);
    finish(NULL, receiving, arrived);
    for (int i = 0; i < 4; i++) {
        finish(sending[i], NULL, NULL);
        assert_int_equal(arrived[i], sizes[i]);
        assert_memory_equal(from[i], to[i], sizes[i]);
    }
}

static void parts_arrive_in_every_order(void **state)
{
    struct pair pair;
    (void)state;
    use_loop("2");
    pair_open(&pair);
    for (int code = 0; code < 256; code++) {
        int order[4] = { code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3 };
        if ((1 << order[0] | 1 << order[1] | 1 << order[2] | 1 << order[3]) == 15) {
            group_in_order(&pair, order);
        }
    }
    pair_close(&pair);
}

/* Messages of equal tags keep their order, and a later receive gets later messages. */
static void equal_tags_and_the_next_receive_keep_the_order(void **state)
{
    uint8_t to[3] = { 0 };
    void *data[2] = { &to[0], &to[1] }, *regions[2] = { NULL }, *first, *second, *sending[3];
    size_t room[2] = { 1, 1 };
    int tags[2] = { 7, 7 };
    struct pair pair;
    (void)state;
    use_loop("1");
    pair_open(&pair);
    for (int i = 0; i < 3; i++) {
        sending[i] = send_some(pair.sender, "abc" + i, 1, 7);
    }
    assert_int_equal(net->irecv(pair.receiver, 2, data, room, tags, regions, &first), RONDO_SUCCESS);
    second = receive_one(pair.receiver, &to[2], 1, 7);
    finish(sending[2], second, NULL);
    finish(sending[1], first, NULL);
    finish(sending[0], NULL, NULL);
    assert_memory_equal(to, "abc", 3);
    assert_int_equal(net->irecv(pair.receiver, 0, data, room, tags, regions, &first), RONDO_INVALID_ARGUMENT);
    assert_int_equal(net->irecv(pair.receiver, RONDO_NET_MAX_RECVS + 1, data, room, tags, regions, &first),
                     RONDO_INVALID_ARGUMENT);
    pair_close(&pair);
}

/* ---- connecting ---- */

/* All senders connect first, and any comm of the device accepts their connections. */
static void connections_come_in_any_order(void **state)
{
    enum { N = 9 };
    struct pair pair[N];
    (void)state;
    use_loop("3");
    for (int i = 0; i < N; i++) {
        pair_prepare(&pair[i]);
    }
    set_param("RONDO_SOCKET_NCONNS", "1"); /* the two ends of the ninth differ */
    net->close(pair[8].sender);
    assert_int_equal(net->prepare(0, &some_peer, 1, &pair[8].sender, pair[8].to_receiver), RONDO_SUCCESS);
    for (int i = N - 1; i >= 0; i--) {
        assert_int_equal(connect_one(pair[i].sender, pair[i].to_sender), RONDO_SUCCESS);
    }
    for (int i = 0; i < N; i++) {
        uint8_t from[2] = { 1, (uint8_t)i }, to[2] = { 0 };
        assert_int_equal(connect_one(pair[i].receiver, pair[i].to_receiver), RONDO_SUCCESS);
        finish(send_some(pair[i].sender, from, 2, 0), receive_one(pair[i].receiver, to, 2, 0), NULL);
        assert_memory_equal(from, to, 2);
    }
    for (int i = 0; i < N; i++) {
        pair_close(&pair[i]);
    }
}

static void use_before_connect_or_the_wrong_way_is_refused(void **state)
{
    struct pair pair;
    void *request;
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    assert_int_equal(net->isend(pair.sender, "", 1, 0, NULL, &request), RONDO_INVALID_USAGE);
    assert_null(request);
    assert_says("not connected yet");
    pair_connect(&pair);
    assert_int_equal(net->isend(pair.receiver, "", 1, 0, NULL, &request), RONDO_INVALID_USAGE);
    assert_says("goes the other way");
    pair_close(&pair);
}

/* ---- events for profilers ---- */

static void a_watched_message_has_an_event_for_each_part(void **state)
{
    enum { MOST = 300000 };
    static const struct {
        size_t bytes;
        int parts;
    } cases[] = { { 1, 1 }, { 100000, 1 }, { MOST, 3 } };
    static uint8_t from[MOST], to[MOST];
    struct pair pair;
    (void)state;
    use_loop("3");
    pair_open(&pair);
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        size_t bytes = cases[i].bytes, arrived, all = 0;
        somebody_watches();
        void *receiving = receive_one(pair.receiver, to, bytes, 0);
        assert_int_equal(told.n, 0); /* nothing has come */
        void *sending = send_some(pair.sender, from, bytes, 0);
        nobody_watches();
        assert_int_equal(told.n, cases[i].parts);
        finish(sending, receiving, &arrived);
        assert_int_equal(told.kind, RONDO_NET_KIND_SOCKET);
        assert_int_equal(told.n, 2 * cases[i].parts);
        assert_int_equal(told.open, 0);
        for (int k = 0; k < told.n; k++) {
            assert_int_equal(told.what[k].tcp.type, 1);
            assert_int_equal(told.what[k].tcp.socket.op, k >= cases[i].parts);
            assert_true(told.what[k].tcp.socket.fd >= 0);
            assert_true(k == 0 || told.what[k].tcp.socket.fd != told.what[k - 1].tcp.socket.fd);
            all += told.what[k].tcp.socket.bytes;
        }
        assert_int_equal(all, 2 * bytes);
        finish(send_some(pair.sender, from, bytes, 0), receive_one(pair.receiver, to, bytes, 0), NULL);
        assert_int_equal(told.n, 2 * cases[i].parts); /* nobody watched that one */
    }
    pair_close(&pair);
}

/* ---- threads ---- */

static void *exchange(void *arg)
{
    enum { ROUNDS = 40, BYTES = 150000 };
    uint8_t *from = malloc(BYTES), *to = malloc(BYTES);
    (void)arg;
    for (int round = 0; round < 3; round++) {
        struct pair pair;
        pair_open(&pair);
        for (int i = 0; i < ROUNDS; i++) {
            size_t bytes = (size_t)(i * 3701) % BYTES, arrived;
            pattern(from, bytes, (unsigned)i);
            finish(send_some(pair.sender, from, bytes, i), receive_one(pair.receiver, to, bytes, i),
                   &arrived);
            assert_int_equal(arrived, bytes);
            assert_memory_equal(from, to, bytes);
        }
        pair_close(&pair);
    }
    free(from);
    free(to);
    return NULL;
}

static void threads_have_comms_of_their_own(void **state)
{
    pthread_t thread[4];
    (void)state;
    use_loop("2");
    for (size_t i = 0; i < RONDO_COUNTOF(thread); i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, exchange, NULL), 0);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(thread); i++) {
        pthread_join(thread[i], NULL);
    }
}

static void congestion_of(int fd, char name[32])
{
    socklen_t bytes = 31;
    memset(name, 0, 32);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
}

/* Both ends of a new connection have it. */
static int pair_has(const char *said, const char *name)
{
    char at_sender[32], at_receiver[32];
    struct pair pair;
    set_param("RONDO_SOCKET_CONGESTION", said);
    use_loop("1");
    pair_open(&pair);
    congestion_of(((struct rondo_socket_comm *)pair.sender)->conn[0].fd, at_sender);
    congestion_of(((struct rondo_socket_comm *)pair.receiver)->conn[0].fd, at_receiver);
    pair_close(&pair);
    return strcmp(at_sender, name) == 0 && strcmp(at_receiver, name) == 0;
}

static void congestion_control_is_chosen(void **state)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), n, may = 0;
    char system[32];
    (void)state;
    congestion_of(fd, system);
    close(fd);
    assert_true(pair_has("system", system));
    assert_true(pair_has("reno", "reno"));             /* which is always allowed */
    for (int tries = 0; tries < 20 && !may; tries++) { /* a handshake may take longer once */
        may = strncmp(system, "bbr", 3) != 0 ? pair_has("auto", system)
                                             : pair_has("auto", "cubic") || pair_has("auto", "reno");
    }
    assert_true(may);
    assert_true(rondo_socket_paces_in_vain("bbr", 100));
    assert_false(rondo_socket_paces_in_vain("bbr", 20000)); /* far: pacing is worth it */
    assert_false(rondo_socket_paces_in_vain("bbr", 0));
    assert_false(rondo_socket_paces_in_vain("cubic", 100));
    set_param("RONDO_SOCKET_CONGESTION", "never_heard");
    net->finalize();
    assert_int_equal(net->init(&n, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("RONDO_SOCKET_CONGESTION=never_heard");
    set_param("RONDO_SOCKET_CONGESTION", "auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_watched_message_has_an_event_for_each_part),
        cmocka_unit_test(interfaces_are_chosen_by_rule),
        ROW(devices_are_the_interfaces_that_are_chosen),
        cmocka_unit_test(the_guid_is_the_hardware_address),
        ROW(congestion_control_is_chosen),
        ROW(devices_have_the_names_of_the_topology),
        ROW(only_host_memory_is_registered),
        ROW(all_sizes_arrive_over_ipv6),
        ROW(use_before_connect_or_the_wrong_way_is_refused),
    };
    const struct CMUnitTest moving[] = {
        ROW(all_sizes_arrive_over_ipv4),
        ROW(lengths_change_from_message_to_message),
        ROW(thirty_two_requests_are_in_flight),
        ROW(parts_arrive_in_every_order),
        ROW(equal_tags_and_the_next_receive_keep_the_order),
        ROW(connections_come_in_any_order),
        ROW(threads_have_comms_of_their_own),
    };
    static const char *const helpers[] = { "0", "1", "2", "4" };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < RONDO_COUNTOF(helpers); i++) {
        set_param("RONDO_SOCKET_NTHREADS", helpers[i]);
        failed += cmocka_run_group_tests_name(helpers[i], moving, NULL, NULL);
    }
    return failed;
}
