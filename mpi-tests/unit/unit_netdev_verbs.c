/* net/verbs/verbs.h: attributes of queue pairs in each state, parameters, and which ports are devices. */
#include <sys/stat.h>
#include <sys/wait.h>
#include "own_mounts.h"
#include "verbs_pair.h"

#include "in_child.h"

/* ---- attributes ---- */

enum {
    INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    RTS_MASK = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC
};

/* All other fields of the three structs must be zero. */
static void check_states(const struct rondo_verbs_comm *comm, const struct rondo_verbs_comm *other,
                         struct ibv_ah_attr path, int port, int mtu)
{
    const struct fake_modify *init = modified(comm->lane[0].qp->qp_num, IBV_QPS_INIT),
                             *rtr = modified(comm->lane[0].qp->qp_num, IBV_QPS_RTR);
    const struct fake_modify *rts = modified(comm->lane[0].qp->qp_num, IBV_QPS_RTS);
    struct ibv_qp_attr want_init = { .qp_state = IBV_QPS_INIT,
                                     .port_num = (uint8_t)port,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
    struct ibv_qp_attr want_rtr = { .qp_state = IBV_QPS_RTR,
                                    .path_mtu = (enum ibv_mtu)mtu,
                                    .dest_qp_num = other->lane[0].qp->qp_num,
                                    .rq_psn = other->mine.psn,
                                    .ah_attr = path,
                                    .max_dest_rd_atomic = 1,
                                    .min_rnr_timer = 12 };
    struct ibv_qp_attr want_rts = { .qp_state = IBV_QPS_RTS,
                                    .sq_psn = comm->mine.psn,
                                    .max_rd_atomic = 1,
                                    .timeout = 18,
                                    .retry_cnt = 6,
                                    .rnr_retry = 6 };
    assert_int_equal(init->mask, INIT_MASK);
    assert_int_equal(rtr->mask, RTR_MASK);
    assert_int_equal(rts->mask, RTS_MASK);
    assert_memory_equal(&init->attr, &want_init, sizeof want_init);
    assert_memory_equal(&rtr->attr, &want_rtr, sizeof want_rtr);
    assert_memory_equal(&rts->attr, &want_rts, sizeof want_rts);
    assert_true(comm->mine.psn <= 0xffffff && comm->mine.psn != other->mine.psn);
}

static void infiniband_has_these_attributes_in_each_state(void **state)
{
    struct pair pair;
    struct ibv_ah_attr path = { .dlid = 17, .port_num = 1 };
    (void)state;
    pair_open(&pair, IB);
    check_states(pair.send, pair.recv, path, 1, IBV_MTU_4096);
    check_states(pair.recv, pair.send, path, 1, IBV_MTU_4096);
    pair_close(&pair);
}

static void roce_has_these_attributes_in_each_state(void **state)
{
    struct pair pair;
    struct ibv_ah_attr path = { .is_global = 1, .port_num = 2 };
    (void)state;
    path.grh.dgid = fake.nic[0].port[1].gid[3];
    path.grh.sgid_index = 3;
    path.grh.hop_limit = 255;
    pair_open(&pair, ROCE);
    check_states(pair.send, pair.recv, path, 2, IBV_MTU_1024);
    check_states(pair.recv, pair.send, path, 2, IBV_MTU_1024);
    pair_close(&pair);
}

static void an_infiniband_port_without_a_lid_is_reached_by_its_gid(void **state)
{
    struct pair pair;
    struct ibv_ah_attr path = { .is_global = 1, .port_num = 1 };
    (void)state;
    fake.nic[0].port[0].attr.lid = 0;
    path.grh.dgid = fake.nic[0].port[0].gid[0];
    path.grh.hop_limit = 255;
    pair_open(&pair, IB);
    check_states(pair.send, pair.recv, path, 1, IBV_MTU_4096);
    pair_close(&pair);
}

static void another_subnet_is_reached_by_lid_and_gid(void **state)
{
    struct pair pair = { 0 };
    struct rondo_verbs_end sender;
    uint8_t handle[RONDO_NET_HANDLE];
    (void)state;
    assert_int_equal(dev->prepare(IB, &peer_a, 0, &pair.recv, handle), RONDO_SUCCESS);
    memcpy(&sender, handle, sizeof sender);
    sender.is_send = 1;
    sender.proof = rondo_netdev_proof(&peer_b, "verbs", 1, 1, sender.nonce);
    sender.gid[7] ^= 1;
    memcpy(handle, &sender, sizeof sender);
    assert_int_equal(dev->connect(pair.recv, handle), RONDO_SUCCESS);
    const struct ibv_ah_attr *path =
        &modified(end_of(pair.recv)->lane[0].qp->qp_num, IBV_QPS_RTR)->attr.ah_attr;
    assert_int_equal(path->is_global, 1);
    assert_int_equal(path->dlid, 17);
    assert_memory_equal(path->grh.dgid.raw, sender.gid, 16);
    pair_close(&pair);
}

static void the_lower_mtu_of_the_ends_is_used(void **state)
{
    uint8_t handle[2][RONDO_NET_HANDLE];
    struct pair pair = { 0 };
    (void)state;
    assert_int_equal(dev->prepare(IB, &peer_a, 0, &pair.recv, handle[0]), RONDO_SUCCESS);
    fake.nic[0].port[0].attr.active_mtu = IBV_MTU_1024;
    assert_int_equal(dev->prepare(IB, &peer_b, 1, &pair.send, handle[1]), RONDO_SUCCESS);
    assert_int_equal(dev->connect(pair.recv, handle[1]), RONDO_SUCCESS);
    assert_int_equal(dev->connect(pair.send, handle[0]), RONDO_SUCCESS);
    assert_int_equal(modified(end_of(pair.recv)->lane[0].qp->qp_num, IBV_QPS_RTR)->attr.path_mtu,
                     IBV_MTU_1024);
    assert_int_equal(modified(end_of(pair.send)->lane[0].qp->qp_num, IBV_QPS_RTR)->attr.path_mtu,
                     IBV_MTU_1024);
    pair_close(&pair);
}

/* Each parameter by its names in Rondo, NCCL and TensorFlow, and the field that it changes. */
#define ATTR(member) offsetof(struct ibv_qp_attr, member), sizeof(((struct ibv_qp_attr *)0)->member)
static const struct {
    const char *names[3];
    const char *value;
    enum ibv_qp_state state;
    size_t offset, bytes;
    uint32_t expected;
} knobs[] = {
    { { "RONDO_IB_PKEY", "NCCL_IB_PKEY", "RDMA_QP_PKEY_INDEX" }, "9", IBV_QPS_INIT, ATTR(pkey_index), 9 },
    { { "RONDO_IB_SL", "NCCL_IB_SL", "RDMA_QP_SL" }, "5", IBV_QPS_RTR, ATTR(ah_attr.sl), 5 },
    { { "RONDO_IB_TC", "NCCL_IB_TC", "RDMA_TRAFFIC_CLASS" },
      "106",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.traffic_class),
      106 },
    { { "RONDO_IB_GID_INDEX", "NCCL_IB_GID_INDEX", "RDMA_GID_INDEX" },
      "1",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.sgid_index),
      1 },
    { { "RONDO_IB_FIFO_TC", "NCCL_IB_FIFO_TC" },
      "77",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.traffic_class),
      0 }, /* it does not change the sender */
    { { "RONDO_IB_ADDR_RANGE", "NCCL_IB_ADDR_RANGE" },
      "fe80::/16",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.sgid_index),
      1 },
    { { "RONDO_IB_ADDR_RANGE", "NCCL_IB_ADDR_RANGE" },
      "10.0.0.0/29",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.sgid_index),
      3 },
    { { "RONDO_IB_MTU", "RDMA_QP_MTU" }, "512", IBV_QPS_RTR, ATTR(path_mtu), IBV_MTU_512 },
    { { "RONDO_IB_ROCE_VERSION_NUM", "NCCL_IB_ROCE_VERSION_NUM" },
      "1",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.sgid_index),
      2 },
    { { "RONDO_IB_ADDR_FAMILY", "NCCL_IB_ADDR_FAMILY" },
      "AF_INET6",
      IBV_QPS_RTR,
      ATTR(ah_attr.grh.sgid_index),
      1 },
    { { "RONDO_IB_TIMEOUT", "NCCL_IB_TIMEOUT", "RDMA_QP_TIMEOUT" }, "21", IBV_QPS_RTS, ATTR(timeout), 21 },
    { { "RONDO_IB_RETRY_CNT", "NCCL_IB_RETRY_CNT", "RDMA_QP_RETRY_COUNT" },
      "3",
      IBV_QPS_RTS,
      ATTR(retry_cnt),
      3 },
};

static void parameters_change_the_attributes(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(knobs); i++) {
        for (int name = 0; name < 3 && knobs[i].names[name] != NULL; name++) {
            struct pair pair;
            uint32_t value = 0;
            fake.nmodifies = 0;
            set(knobs[i].names[name], knobs[i].value);
            pair_open(&pair, ROCE);
            const struct ibv_qp_attr *attr =
                &modified(end_of(pair.send)->lane[0].qp->qp_num, knobs[i].state)->attr;
            memcpy(&value, (const char *)attr + knobs[i].offset, knobs[i].bytes);
            if (value != knobs[i].expected) {
                fail_msg("%s=%s gives %u", knobs[i].names[name], knobs[i].value, value);
            }
            pair_close(&pair);
        }
    }
}

static void clear_to_sends_have_a_traffic_class_of_their_own(void **state)
{
    struct pair pair;
    (void)state;
    setenv("RONDO_IB_TC", "32", 1);
    set("RONDO_IB_FIFO_TC", "96");
    unsetenv("RONDO_IB_TC");
    pair_open(&pair, ROCE);
    assert_int_equal(
        modified(end_of(pair.send)->lane[0].qp->qp_num, IBV_QPS_RTR)->attr.ah_attr.grh.traffic_class, 32);
    assert_int_equal(
        modified(end_of(pair.recv)->lane[0].qp->qp_num, IBV_QPS_RTR)->attr.ah_attr.grh.traffic_class, 96);
    pair_close(&pair);
}

static void networks_are_read_and_compared_by_bits(void **state)
{
    static const struct {
        const char *text, *gid;
        int expected; /* -1: no network */
    } rows[] = {
        { "", "::1", 1 },
        { "10.1.0.0/16", "::ffff:10.1.255.3", 1 },
        { "10.1.0.0/16", "::ffff:10.2.0.3", 0 },
        { "10.1.0.0/17", "::ffff:10.1.128.3", 0 },
        { "10.1.0.0/17", "::ffff:10.1.127.3", 1 },
        { "10.1.0.7", "::ffff:10.1.0.7", 1 },
        { "10.1.0.7", "::ffff:10.1.0.6", 0 },
        { "0.0.0.0/0", "::ffff:1.2.3.4", 1 },
        { "0.0.0.0/0", "fe80::1", 0 },
        { "::/0", "::ffff:1.2.3.4", 1 },
        { "fd00::/8", "fdaa::1", 1 },
        { "fd00::/8", "fc00::1", 0 },
        { "fd00::1", "fd00::1", 1 },
        { "fd00::1/128", "fd00::2", 0 },
        { "10.1.0.0/33", "::", -1 },
        { "fd00::/129", "::", -1 },
        { "10.1.0.0/", "::", -1 },
        { "10.1.0.0/-1", "::", -1 },
        { "10.1.0.0/8x", "::", -1 },
        { "eth0", "::", -1 },
        { "/8", "::", -1 },
        { "1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111/8", "::", -1 },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct rondo_verbs_range range;
        uint8_t gid[16];
        assert_int_equal(inet_pton(AF_INET6, rows[i].gid, gid), 1);
        int got = rondo_verbs_range_parse(rows[i].text, &range) != 0 ? -1
                                                                     : rondo_verbs_range_has(&range, gid);
        if (got != rows[i].expected) {
            fail_msg("\"%s\" and %s give %d", rows[i].text, rows[i].gid, got);
        }
    }
}

static void a_network_that_is_invalid_or_has_no_gid_is_an_error(void **state)
{
    struct pair pair;
    int n;
    (void)state;
    set("RONDO_IB_ADDR_RANGE", "192.168.0.0/16");
    assert_int_equal(pair_try(&pair, ROCE, RONDO_NET_HOST), RONDO_SYSTEM_ERROR);
    assert_says("has no GID in RONDO_IB_ADDR_RANGE=192.168.0.0/16");
    pair_close(&pair);
    pair_open(&pair, IB); /* this port has a LID */
    pair_close(&pair);
    setenv("RONDO_IB_ADDR_RANGE", "ten", 1);
    dev->finalize();
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(dev->init(&n, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("RONDO_IB_ADDR_RANGE=\"ten\"");
    unsetenv("RONDO_IB_ADDR_RANGE");
    begin();
}

static void queues_have_room_for_all_that_can_be_in_flight(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    assert_int_equal(fake.last_qp.qp_type, IBV_QPT_RC);
    assert_int_equal(fake.last_qp.cap.max_send_wr, 64);
    assert_int_equal(fake.last_qp.cap.max_recv_wr, 32);
    assert_int_equal(fake.last_cqe, 64 + 32 + 32);
    pair_close(&pair);
    set("RDMA_QP_QUEUE_DEPTH", "1024");
    pair_open(&pair, IB);
    assert_int_equal(fake.last_qp.cap.max_send_wr, 1024);
    assert_int_equal(fake.last_qp.cap.max_recv_wr, 1024);
    pair_close(&pair);
    set("RONDO_IB_QUEUE_DEPTH", "33"); /* no less than what can be in flight */
    pair_open(&pair, IB);
    assert_int_equal(fake.last_qp.cap.max_send_wr, 64);
    assert_int_equal(fake.last_qp.cap.max_recv_wr, 33);
    pair_close(&pair);
}

static uint32_t memory_of(int device)
{
    struct rondo_net_properties properties;
    assert_int_equal(dev->properties(device, &properties), RONDO_SUCCESS);
    return properties.memory;
}

static void nics_take_gpu_memory_by_dmabuf_if_they_support_it(void **state)
{
    static const int refusals[] = { EOPNOTSUPP, EPROTONOSUPPORT };
    (void)state;
    assert_true(memory_of(IB) & RONDO_NET_DMABUF);
    set("NCCL_DMABUF_ENABLE", "0");
    assert_false(memory_of(IB) & RONDO_NET_DMABUF);
    for (size_t i = 0; i < RONDO_COUNTOF(refusals); i++) {
        fake.dmabuf_errno = refusals[i];
        begin();
        assert_false(memory_of(IB) & RONDO_NET_DMABUF);
    }
    assert_int_equal(fake_verbs_objects(), 0); /* asking leaves no objects behind */
}

/* Run with a /sys/module of its own. @return the exit code: 77 not permitted, 1 wrong. */
static int peer_memory_child(void)
{
    if (own_mounts_enter("/sys/module") != 0) {
        return 77;
    }
    begin();
    if (memory_of(IB) & RONDO_NET_CUDA) {
        return 1;
    }
    if (mkdir("/sys/module/nvidia_peermem", 0755) != 0 ||
        own_mounts_write("/sys/module/nvidia_peermem/version", "1\n") != 0) {
        return 77;
    }
    begin();
    return (memory_of(IB) & RONDO_NET_CUDA) == 0;
}

static void nics_take_gpu_memory_if_the_module_is_loaded(void **state)
{
    int status;
    pid_t child;
    (void)state;
    if (access("/sys/kernel/mm/memory_peers", F_OK) == 0) {
        print_message("skipped: this host has the module\n");
        skip();
    }
    child = fork();
    if (child == 0) {
        _exit(peer_memory_child());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: no permission for a mount namespace with its own /sys/module\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- devices ---- */

static int open_in_child(void *arg)
{
    void *comm;
    char handle[RONDO_NET_HANDLE];
    int n = 0, nics = fake.live[FAKE_OPEN], domains = fake.live[FAKE_PD];
    return dev->init(&n, NULL, 0) != RONDO_SUCCESS || n != 2 || fake.live[FAKE_OPEN] != nics + 1 ||
           dev->prepare(IB, arg, 1, &comm, handle) != RONDO_SUCCESS || fake.live[FAKE_PD] != domains + 1;
}

static void a_forked_child_opens_nics_of_its_own(void **state)
{
    struct rondo_net_peer peer = { .rank = 1, .host = "other" };
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    assert_int_equal(in_child(open_in_child, &peer), 0);
    pair_close(&pair);
}

static void ports_have_names_speeds_and_kinds_of_memory(void **state)
{
    struct rondo_net_properties ib, roce;
    (void)state;
    assert_int_equal(dev->properties(IB, &ib), RONDO_SUCCESS);
    assert_int_equal(dev->properties(ROCE, &roce), RONDO_SUCCESS);
    assert_string_equal(ib.name, "fake0:1");
    assert_string_equal(roce.name, "fake0:2");
    assert_int_equal(ib.speed_mbps, 400000);
    assert_int_equal(roce.speed_mbps, 100000);
    assert_int_equal(roce.port, 2);
    assert_true(ib.guid == 0xfeed0000u + '0');
    assert_int_equal(ib.memory & (RONDO_NET_HOST | RONDO_NET_DMABUF), RONDO_NET_HOST | RONDO_NET_DMABUF);
    assert_int_equal(dev->properties(2, &ib), RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->properties(-1, &ib), RONDO_INVALID_ARGUMENT);
}

static void the_filter_of_nics_has_the_syntax_of_nccl(void **state)
{
    static const struct {
        const char *filter, *device;
        int port, expected;
    } rows[] = {
        { "", "mlx5_0", 1, 1 },           { "mlx5", "mlx5_0", 1, 1 },
        { "mlx5", "rxe0", 1, 0 },         { "mlx5_1", "mlx5_10", 1, 1 },
        { "=mlx5_1", "mlx5_10", 1, 0 },   { "=mlx5_1", "mlx5_1", 2, 1 },
        { "=mlx5_1:1", "mlx5_1", 2, 0 },  { "=mlx5_1:2", "mlx5_1", 2, 1 },
        { "^mlx5_1", "mlx5_1", 1, 0 },    { "^mlx5_1", "mlx5_0", 1, 1 },
        { "^=mlx5_1", "mlx5_10", 1, 1 },  { "^=mlx5_1:2", "mlx5_1", 1, 1 },
        { "^=mlx5_1:2", "mlx5_1", 2, 0 }, { "a,mlx5_1:1", "mlx5_1", 1, 1 },
        { ",,=", "mlx5_1", 1, 0 },        { "^", "mlx5_1", 1, 1 },
        { "=", "mlx5_1", 1, 1 },          { ",", "mlx5_1", 1, 1 },
        { "=mlx5_1:", "mlx5_1", 7, 1 },   { "mlx5_1:99999999999", "mlx5_1", 1, 0 },
        { "=rxe0,mlx5_1", "rxe0", 1, 1 }, { "^rxe0,mlx5", "rxe0", 1, 0 },
        { "^rxe0,mlx5", "mlx5_3", 1, 0 },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        if (rondo_verbs_filter(rows[i].filter, rows[i].device, rows[i].port) != rows[i].expected) {
            fail_msg("\"%s\" and %s:%d", rows[i].filter, rows[i].device, rows[i].port);
        }
    }
}

static int count_devices(char why[256])
{
    int n = -1;
    assert_int_equal(dev->init(&n, why, 256), RONDO_SUCCESS);
    return n;
}

static void ports_that_are_down_or_filtered_out_are_no_devices_and_the_text_says_why(void **state)
{
    char why[256];
    (void)state;
    assert_int_equal(count_devices(why), 2);
    set("NCCL_IB_HCA", "=fake0:2");
    assert_int_equal(count_devices(why), 1);
    set("RDMA_DEVICE_PORT", "1");
    assert_int_equal(count_devices(why), 1);
    set("RONDO_IB_HCA", "^fake");
    assert_int_equal(count_devices(why), 0);
    assert_non_null(strstr(why, "\"^fake\""));
    assert_int_equal(fake.live[FAKE_OPEN], 0);
    set("NCCL_IB_DISABLE", "1");
    assert_int_equal(count_devices(why), 0);
    assert_non_null(strstr(why, "RONDO_IB_DISABLE"));
    fake.nic[0].port[0].attr.state = IBV_PORT_DOWN;
    begin();
    assert_int_equal(count_devices(why), 1);
    fake.nnics = 0;
    begin();
    assert_int_equal(count_devices(why), 0);
    assert_non_null(strstr(why, "no RDMA NIC"));
}

static void a_nic_that_cannot_be_opened_is_left_out(void **state)
{
    char why[256];
    (void)state;
    fake.fail_in[FAKE_OPEN] = 1;
    fake.fail_errno = EACCES;
    begin();
    assert_int_equal(count_devices(why), 0);
    fake.nnics = 2;
    fake.nic[1] = fake.nic[0];
    snprintf(fake.nic[1].device.name, sizeof fake.nic[1].device.name, "fake1");
    fake.fail_in[FAKE_OPEN] = 1;
    begin();
    assert_int_equal(count_devices(why), 2);
}

/* This host may or may not have the real library. */
static void the_real_library_is_opened_or_the_text_says_why_not(void **state)
{
    char why[256];
    (void)state;
    dev->finalize();
    rondo_verbs_lib_replace(NULL);
    assert_true(count_devices(why) > 0 || why[0] != '\0');
    set("NCCL_IBVERBS_LIB", "libno-such-verbs.so");
    assert_int_equal(count_devices(why), 0);
    assert_non_null(strstr(why, "libno-such-verbs.so"));
    dev->finalize();
}

static void a_port_without_a_gid_is_an_error_with_a_remedy(void **state)
{
    struct pair pair;
    (void)state;
    memset(fake.nic[0].port[1].gid, 0, sizeof fake.nic[0].port[1].gid);
    assert_int_equal(pair_try(&pair, ROCE, RONDO_NET_HOST), RONDO_SYSTEM_ERROR);
    assert_says("fake0:2");
    assert_says("has no GID");
    assert_says("ip addr");
    pair_close(&pair);
    set("RONDO_IB_GID_INDEX", "77");
    assert_int_equal(pair_try(&pair, ROCE, RONDO_NET_HOST), RONDO_SYSTEM_ERROR);
    assert_says("index 77");
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(infiniband_has_these_attributes_in_each_state),
        TEST(roce_has_these_attributes_in_each_state),
        TEST(an_infiniband_port_without_a_lid_is_reached_by_its_gid),
        TEST(another_subnet_is_reached_by_lid_and_gid),
        TEST(the_lower_mtu_of_the_ends_is_used),
        TEST(parameters_change_the_attributes),
        TEST(clear_to_sends_have_a_traffic_class_of_their_own),
        TEST(networks_are_read_and_compared_by_bits),
        TEST(a_network_that_is_invalid_or_has_no_gid_is_an_error),
        TEST(queues_have_room_for_all_that_can_be_in_flight),
        TEST(nics_take_gpu_memory_by_dmabuf_if_they_support_it),
        TEST(nics_take_gpu_memory_if_the_module_is_loaded),
        TEST(a_forked_child_opens_nics_of_its_own),
        TEST(ports_have_names_speeds_and_kinds_of_memory),
        TEST(the_filter_of_nics_has_the_syntax_of_nccl),
        TEST(ports_that_are_down_or_filtered_out_are_no_devices_and_the_text_says_why),
        TEST(a_nic_that_cannot_be_opened_is_left_out),
        TEST(the_real_library_is_opened_or_the_text_says_why_not),
        TEST(a_port_without_a_gid_is_an_error_with_a_remedy),
    };
    setenv("RONDO_DEBUG", "NONE", 1); /* these tests provoke errors */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
