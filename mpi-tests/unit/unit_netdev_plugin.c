/* External net plugins: adapting every version, and choosing one. unit_netdev_plugin_fault tests plugins that
 * misbehave. */
#include "netdev_plugin_world.h"

/* ---- every version ---- */

static void properties_arrive(int version)
{
    struct rondo_net_properties p;
    for (int device = 0; device < 2; device++) {
        memset(&p, 0xee, sizeof p);
        assert_int_equal(net->properties(device, &p), RONDO_SUCCESS);
        assert_string_equal(p.name, device == 0 ? "mock0" : "mock1");
        assert_string_equal(p.pci_path, device == 0 ? "/sys/devices/pci0000:00/0000:00:1f.0" : "");
        assert_int_equal(p.guid, 0x1122334455667700ull + (unsigned)device);
        assert_int_equal(p.memory, RONDO_NET_HOST | RONDO_NET_CUDA | RONDO_NET_DMABUF);
        assert_int_equal(p.speed_mbps, 400000);
        assert_int_equal(p.port, 1 + device);
        assert_int_equal(p.max_comms, 1234);
        assert_int_equal(p.max_recvs, 8);
        assert_true(p.latency_us > 1.49 && p.latency_us < 1.51);
    }
    assert_int_equal(net->properties(2, &p), RONDO_INVALID_ARGUMENT);
    assert_int_equal(net->properties(-1, &p), RONDO_INVALID_ARGUMENT);
    (void)version;
}

static void sizes_pass(struct pair *pair)
{
    static const size_t sizes[] = { 0, 1, 7, 4096, 65537, MIB, 4 * MIB };
    uint8_t *from = malloc(4 * MIB + 1), *to = malloc(4 * MIB + 1);
    void *from_region, *to_region;
    assert_int_equal(net->reg(pair->sender, from, 4 * MIB + 1, RONDO_NET_HOST, -1, &from_region),
                     RONDO_SUCCESS);
    assert_int_equal(net->reg(pair->receiver, to, 4 * MIB + 1, RONDO_NET_HOST, -1, &to_region),
                     RONDO_SUCCESS);
    for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
        pair_message(pair, sizes[i], from_region, to_region, from, to);
    }
    assert_int_equal(net->unreg(pair->sender, from_region), RONDO_SUCCESS);
    assert_int_equal(net->unreg(pair->receiver, to_region), RONDO_SUCCESS);
    free(from);
    free(to);
}

/* Three parts arrive by their tags and are flushed together. The plugin believes that they are GPU memory. */
static void groups_pass(struct pair *pair)
{
    uint8_t from[3][64], to[3][64];
    void *data[3] = { to[0], to[1], to[2] }, *region[3], *sending[3], *receiving, *flush, *from_region;
    static const size_t rooms[3] = { 64, 64, 64 };
    static const int tags[3] = { 10, 20, 30 };
    size_t arrived[3];
    int done = 0;
    assert_int_equal(net->reg(pair->sender, from, sizeof from, RONDO_NET_HOST, -1, &from_region),
                     RONDO_SUCCESS);
    assert_int_equal(net->reg(pair->receiver, to[0], 64, RONDO_NET_HOST, -1, &region[0]), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair->receiver, to[1], 64, RONDO_NET_CUDA, -1, &region[1]), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair->receiver, to[2], 64, RONDO_NET_DMABUF, 77, &region[2]), RONDO_SUCCESS);
    for (int i = 0; i < 3; i++) {
        pair_pattern(from[i], 64, (unsigned)i);
    }
    assert_int_equal(net->irecv(pair->receiver, 3, data, rooms, tags, region, &receiving), RONDO_SUCCESS);
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(pair_send(pair, from[i], 20 + (size_t)i, tags[i], from_region, &sending[i]),
                         RONDO_SUCCESS);
    }
    pair_finish(pair, sending[0], receiving, arrived);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(arrived[i], 20 + i);
        assert_memory_equal(from[i], to[i], arrived[i]);
    }
    for (int i = 1; i < 3; i++) {
        assert_int_equal(net->test(sending[i], &done, NULL), RONDO_SUCCESS);
        assert_int_equal(done, 1);
    }
    assert_int_equal(net->iflush(pair->receiver, 1, data, rooms, region, &flush), RONDO_SUCCESS);
    assert_null(flush);
    assert_int_equal(net->iflush(pair->receiver, 3, data, arrived, region, &flush), RONDO_SUCCESS);
    assert_int_equal(net->test(flush, &done, NULL), RONDO_SUCCESS);
    assert_int_equal(done, 1);
    /* Closing the comm unregisters the others. */
    assert_int_equal(net->unreg(pair->receiver, region[1]), RONDO_SUCCESS);
}

/* ---- events ---- */

static struct {
    int starts, stops, parts;
    void *parent;
} told;

static int take_event(void **event, int what, void *parent, int64_t kind, void *more)
{
    if (what == RONDO_NET_EVENT_START) {
        assert_int_equal(kind, MOCK_KIND);
        told.parts += *(int *)more;
        told.parent = parent;
        told.starts++;
        *event = &told;
    } else {
        assert_int_equal(what, RONDO_NET_EVENT_STOP);
        assert_ptr_equal(*event, &told);
        told.stops++;
    }
    return 0;
}

/* A message that somebody watches, and one that nobody does. */
static void events_pass(struct pair *pair, int version)
{
    static char data[16], into[16];
    int wanted = version >= 10 ? 2 : 0; /* older ones have no such callback */
    void *region, *place;
    memset(&told, 0, sizeof told);
    rondo_net_event = take_event;
    assert_int_equal(net->reg(pair->sender, data, sizeof data, RONDO_NET_HOST, -1, &region), RONDO_SUCCESS);
    assert_int_equal(net->reg(pair->receiver, into, sizeof into, RONDO_NET_HOST, -1, &place), RONDO_SUCCESS);
    for (int watched = 1; watched >= 0; watched--) {
        void *to = into, *sent, *received;
        size_t room = sizeof into;
        int tag = 5, done = 0;
        rondo_net_parent = watched ? &told.parent : NULL;
        assert_int_equal(net->irecv(pair->receiver, 1, &to, &room, &tag, &place, &received), RONDO_SUCCESS);
        assert_int_equal(pair_send(pair, data, sizeof data, tag, region, &sent), RONDO_SUCCESS);
        rondo_net_parent = NULL;
        assert_int_equal(told.starts, wanted);
        assert_int_equal(told.stops, watched ? 0 : wanted);
        for (int64_t start = rondo_now_ns(); !done; end_of_patience(start)) {
            assert_int_equal(net->test(received, &done, NULL), RONDO_SUCCESS);
        }
        for (done = 0; !done;) {
            assert_int_equal(net->test(sent, &done, NULL), RONDO_SUCCESS);
        }
        assert_int_equal(told.stops, wanted);
    }
    assert_ptr_equal(told.parent, wanted > 0 ? &told.parent : NULL);
    assert_int_equal(told.parts, wanted / 2);
    assert_int_equal(net->unreg(pair->sender, region), RONDO_SUCCESS);
    assert_int_equal(net->unreg(pair->receiver, place), RONDO_SUCCESS);
    rondo_net_event = NULL;
}

static void every_version_is_adapted(void **state)
{
    (void)state;
    need_compiler();
    for (int version = OLDEST; version <= NEWEST; version++) {
        struct pair there, back;
        struct mock_net *seen;
        char why[300], expected[100];
        int n;
        assert_int_equal(use(path_of(version), "", &n, why, sizeof why), RONDO_SUCCESS);
        assert_int_equal(n, 2);
        snprintf(expected, sizeof expected, "Mock Net (v%d, %s)", version, path_of(version));
        assert_string_equal(why, expected);
        void *library = look(version, &seen);
        assert_int_equal(seen->version, version);
        assert_int_equal(seen->logs, 1);
        properties_arrive(version);
        pair_prepare(&there, net, 0, &far_peer);
        pair_prepare(&back, net, 1, &far_peer);
        assert_true(pair_connect(&there) >= 3);
        pair_connect(&back);
        assert_int_equal(seen->listeners, 0); /* they are closed as soon as nobody needs them */
        sizes_pass(&there);
        sizes_pass(&back);
        groups_pass(&there);
        events_pass(&there, version);
        pair_close(&there);
        pair_close(&back);
        assert_int_equal(seen->traffic_class, version >= 10 ? -1 : -99);
        leave(library, seen);
    }
}

static void communicators_have_contexts_from_version_11_on(void **state)
{
    (void)state;
    need_compiler();
    for (int version = 10; version <= NEWEST; version++) {
        struct rondo_net_peer other = far_peer;
        struct pair a, b, c;
        struct mock_net *seen;
        other.secret[0]++;
        use_version(version, "");
        void *library = look(version, &seen);
        pair_open(&a, net);
        pair_open(&b, net);
        pair_prepare(&c, net, 0, &other);
        pair_connect(&c);
        assert_int_equal(seen->inits, version >= 11 ? 3 : 1); /* one is for finding devices */
        if (version >= 11) {
            assert_int_equal(seen->ids[0], 0);
            assert_true(seen->ids[1] != 0 && seen->ids[2] != 0 && seen->ids[1] != seen->ids[2]);
            /* The plugin does not see the secrets. */
            assert_true(seen->ids[1] != other.secret[0] && seen->ids[1] != far_peer.secret[0]);
        }
        pair_close(&c);
        assert_int_equal(seen->finals, version >= 11 ? 1 : 0);
        pair_close(&a);
        assert_int_equal(seen->finals, version >= 11 ? 1 : 0);
        pair_close(&b);
        assert_int_equal(seen->finals, version >= 11 ? 2 : 0);
        leave(library, seen);
    }
}

/* ---- which plugin is used ---- */

static void plugins_are_found_by_name_or_path(void **state)
{
    char why[300], words[300], name[400];
    struct mock_net *seen;
    int n;
    (void)state;
    need_compiler();
    assert_int_equal(use("no-such-net", "", &n, NULL, 0), RONDO_SYSTEM_ERROR);
    assert_says("libnccl-net-no-such-net.so cannot be opened");
    assert_int_equal(use("libno-such.so.1", "", &n, NULL, 0), RONDO_SYSTEM_ERROR);
    assert_says("the net plugin libno-such.so.1 cannot be opened");
    assert_int_equal(use("/nowhere/libnccl-net.so", "", &n, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("/nowhere/libnccl-net.so of RONDO_NET_PLUGIN cannot be read");
    assert_int_equal(use("libm.so.6", "", &n, NULL, 0), RONDO_INVALID_USAGE);
    assert_says("is not a net plugin of a supported version: it has none of ncclNetPlugin_v12 to "
                "ncclNetPlugin_v8");
    assert_int_equal(use(path_of(7), "", &n, NULL, 0), RONDO_INVALID_USAGE);
    assert_says("has only version 7, which is too old; Rondo supports versions 8 to 12");
    assert_int_equal(use(",", "", &n, NULL, 0), RONDO_INVALID_ARGUMENT);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(use(name, "", &n, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("is longer than 255 bytes");
    assert_int_equal(use("None", "", &n, why, sizeof why), RONDO_SUCCESS);
    assert_int_equal(n, 0);
    assert_string_equal(why, "RONDO_NET_PLUGIN is none");
    snprintf(words, sizeof words, "no-such-net,%s", path_of(9));
    assert_int_equal(use(words, "", &n, why, sizeof why), RONDO_SUCCESS);
    assert_int_equal(n, 2);
    void *library = look(9, &seen);
    leave(library, seen);
    snprintf(words, sizeof words, "%s,none", path_of(7));
    assert_int_equal(use(words, "", &n, why, sizeof why), RONDO_SUCCESS);
    assert_int_equal(n, 0);
}

static void a_missing_default_plugin_is_no_error(void **state)
{
    char why[300];
    int n;
    void *usual = dlopen("libnccl-net.so", RTLD_NOW);
    (void)state;
    if (usual != NULL) {
        dlclose(usual);
        print_message("skipped: there is a libnccl-net.so here\n");
        skip();
    }
    assert_int_equal(use("", "", &n, why, sizeof why), RONDO_SUCCESS);
    assert_int_equal(n, 0);
    assert_string_equal(why, "there is no libnccl-net.so");
}

static void code_that_others_could_change_is_not_loaded(void **state)
{
    char path[64];
    int n;
    (void)state;
    need_compiler();
    snprintf(path, sizeof path, "%s", path_of(8));
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(use(path, "", &n, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("must be a file of yours or root's that others cannot write");
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(use(path, "", &n, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_int_equal(chmod(folder, 01777), 0); /* sticky, as /tmp is */
    assert_int_equal(use(path, "", &n, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(use(folder, "", &n, NULL, 0), RONDO_INVALID_ARGUMENT);
    net->finalize();
}

static void a_plugin_comes_first_and_is_chosen_by_its_name(void **state)
{
    uint32_t mask;
    char why[600];
    (void)state;
    need_compiler();
    setenv("MOCK_NET", "", 1);
    set_param("RONDO_NET_PLUGIN", path_of(11));
    assert_int_equal(rondo_netdev_mask(&mask, why, sizeof why), RONDO_SUCCESS);
    assert_ptr_equal(rondo_netdev_common(mask, mask), net);
    assert_non_null(strstr(why, "plugin: 2 devices, Mock Net (v11, "));
    assert_ptr_equal(rondo_netdev_by_name("mock net"), net);
    rondo_netdev_finalize();
    set_param("RONDO_NET", "Mock Net");
    assert_int_equal(rondo_netdev_mask(&mask, why, sizeof why), RONDO_SUCCESS);
    assert_int_equal(mask, 1);
    rondo_netdev_finalize();
    set_param("RONDO_NET", "Other Net");
    assert_int_equal(rondo_netdev_mask(&mask, why, sizeof why), RONDO_INVALID_ARGUMENT);
    assert_says("and the name of a plugin (here Mock Net)");
    rondo_netdev_finalize();
    set_param("RONDO_NET", "socket"); /* so the plugin is not even loaded */
    assert_int_equal(rondo_netdev_mask(&mask, why, sizeof why), RONDO_SUCCESS);
    assert_null(dlopen(path_of(11), RTLD_NOW | RTLD_NOLOAD));
    rondo_netdev_finalize();
    set_param("RONDO_NET", NULL);
    setenv("MOCK_NET", "init=2", 1);
    /* The user has asked for the plugin, so its failure is an error. */
    assert_int_equal(rondo_netdev_mask(&mask, why, sizeof why), RONDO_SYSTEM_ERROR);
    assert_says("init gave 2");
    rondo_netdev_finalize();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_version_is_adapted),
        cmocka_unit_test(communicators_have_contexts_from_version_11_on),
        cmocka_unit_test(plugins_are_found_by_name_or_path),
        cmocka_unit_test(a_missing_default_plugin_is_no_error),
        cmocka_unit_test(code_that_others_could_change_is_not_loaded),
        cmocka_unit_test(a_plugin_comes_first_and_is_chosen_by_its_name),
    };
    setenv("RONDO_SOCKET_IFNAME", "=lo", 1);
    return cmocka_run_group_tests(tests, make_plugins, remove_plugins);
}
