/* net/verbs/verbs.h: messages and registrations, over fake NICs that check what a real one would
 * (fake_verbs.h). */
#include "verbs_pair.h"
#include "net_events.h"

/* ---- messages ---- */

static void messages_of_all_sizes_arrive_whole(void **state)
{
    static const size_t sizes[] = { 0, 1, 3, 64, 4095, 4096, 4097, 8192, 8193, 65536, 1000003, BUFFER };
    (void)state;
    for (int device = IB; device <= ROCE; device++) {
        struct pair pair;
        pair_open(&pair, device);
        for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
            memset(target, 0, sizeof target);
            assert_int_equal(move(&pair, sizes[i]), RONDO_SUCCESS);
        }
        for (int i = 0; i < 5 * RONDO_VERBS_SLOTS; i++) {
            assert_int_equal(move(&pair, (size_t)i), RONDO_SUCCESS);
        }
        pair_close(&pair);
    }
}

static void a_long_message_over_infiniband_has_a_separate_last_write(void **state)
{
    struct pair pair;
    (void)state;
    for (int device = IB; device <= ROCE; device++) {
        pair_open(&pair, device);
        fake.writes = 0;
        assert_int_equal(move(&pair, 8192), RONDO_SUCCESS);
        assert_int_equal(fake.writes, 2); /* the clear-to-send and the data */
        fake.writes = 0;
        assert_int_equal(move(&pair, 8193), RONDO_SUCCESS);
        assert_int_equal(fake.writes, device == IB ? 3 : 2);
        assert_int_equal(fake.last_write.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
        assert_int_equal(ntohl(fake.last_write.imm_data), 8193);
        assert_int_equal(fake.last_write.num_sge, device == IB ? 0 : 1);
        pair_close(&pair);
    }
}

static void a_sender_never_writes_before_it_is_clear_to_send(void **state)
{
    struct pair pair;
    void *request;
    (void)state;
    pair_open(&pair, IB);
    fake.writes = 0;
    for (int i = 0; i < POLLS; i++) {
        assert_null(give(&pair, 0, 10, 1));
    }
    assert_int_equal(fake.writes, 0);
    request = receive(&pair, 0, 10, 1);
    assert_null(give(&pair, 0, 10, 2)); /* the tag differs */
    assert_int_equal(fake.writes, 1);
    assert_int_equal(wait_for(give(&pair, 0, 10, 1), NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(request, NULL), RONDO_SUCCESS);
    assert_null(give(&pair, 0, 10, 1)); /* a clear-to-send is for one message */
    pair_close(&pair);
}

static void thirty_two_messages_are_in_flight_and_no_more(void **state)
{
    struct pair pair;
    void *in[RONDO_NET_MAX_REQUESTS], *out[RONDO_NET_MAX_REQUESTS];
    size_t got;
    (void)state;
    pair_open(&pair, IB);
    for (int round = 0; round < 3; round++) {
        memset(target, 0, sizeof target);
        fake.hold = 1;
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
            assert_non_null(in[i] = receive(&pair, (size_t)i * 16384, 16384, 0));
        }
        assert_null(receive(&pair, 0, 1, 0));
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
            assert_non_null(out[i] = give(&pair, (size_t)i * 16384, 16384 - (size_t)i, 0));
        }
        assert_null(give(&pair, 0, 1, 0));
        assert_int_equal(wait_for(out[0], NULL), RONDO_IN_PROGRESS);
        fake.hold = 0;
        /* Requests may be tested in any order. */
        for (int i = RONDO_NET_MAX_REQUESTS - 1; i >= 0; i--) {
            assert_int_equal(wait_for(in[i], &got), RONDO_SUCCESS);
            assert_int_equal(wait_for(out[i], NULL), RONDO_SUCCESS);
            assert_int_equal(got, 16384 - i);
            assert_memory_equal(source + i * 16384, target + i * 16384, got);
        }
    }
    pair_close(&pair);
}

/* The answer to a clear-to-send can arrive later than the message. Until then, its slot and its place in the
 * queue are in use. */
static void no_more_clear_to_sends_are_in_flight_than_fit_the_queue(void **state)
{
    struct pair pair;
    void *in, *out[RONDO_NET_MAX_REQUESTS];
    (void)state;
    pair_open(&pair, IB);
    fake.hold_sends = 1;
    for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
        in = receive(&pair, 0, 8, 0);
        assert_non_null(out[i] = give(&pair, 0, 8, 0));
        assert_int_equal(wait_for(in, NULL), RONDO_SUCCESS);
    }
    assert_null(receive(&pair, 0, 8, 0));
    fake.hold_sends = 0;
    for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
        assert_int_equal(wait_for(out[i], NULL), RONDO_SUCCESS);
    }
    for (int i = 0; i < POLLS && (in = receive(&pair, 0, 8, 0)) == NULL; i++) {
    }
    assert_non_null(in);
    pair_close(&pair);
}

static void grouped_receives_take_parts_in_any_order_by_tag(void **state)
{
    enum { PARTS = RONDO_NET_MAX_RECVS, PART = 10000 };
    static const int order[PARTS] = { 5, 0, 7, 2, 1, 6, 3, 4 };
    struct pair pair;
    void *data[PARTS], *regions[PARTS], *out[PARTS], *in;
    size_t room[PARTS], got[PARTS];
    int tags[PARTS];
    (void)state;
    pair_open(&pair, ROCE);
    for (int round = 0; round < 2 * RONDO_VERBS_SLOTS; round++) {
        for (int i = 0; i < PARTS; i++) {
            data[i] = target + i * PART;
            room[i] = i == 3 ? 0 : PART;
            regions[i] = i == 3 ? NULL : pair.to;
            tags[i] = 100 + i;
        }
        memset(target, 0, PARTS * PART);
        assert_int_equal(dev->irecv(pair.recv, PARTS, data, room, tags, regions, &in), RONDO_SUCCESS);
        fake.writes = 0;
        for (int i = 0; i < PARTS; i++) {
            int part = order[i];
            assert_int_equal(fake.writes, 0);
            assert_non_null(
                out[i] = give(&pair, (size_t)part * PART, part == 3 ? 0 : (size_t)(PART - part), 100 + part));
            /* The part of this tag is taken. */
            assert_true(i == PARTS - 1 || give(&pair, 0, 1, 100 + part) == NULL);
        }
        assert_int_equal(fake.writes, PARTS); /* seven parts with data, and the sizes */
        for (int i = 0; i < PARTS; i++) {
            assert_int_equal(wait_for(out[i], NULL), RONDO_SUCCESS);
        }
        assert_int_equal(wait_for(in, got), RONDO_SUCCESS);
        for (int i = 0; i < PARTS; i++) {
            assert_int_equal(got[i], i == 3 ? 0 : PART - i);
            assert_memory_equal(source + i * PART, target + i * PART, got[i]);
        }
    }
    pair_close(&pair);
}

static void a_message_that_is_too_long_is_the_receivers_error_and_is_not_written(void **state)
{
    struct pair pair;
    void *in, *out;
    (void)state;
    pair_open(&pair, IB);
    in = receive(&pair, 0, 100, 9);
    out = give(&pair, 0, 101, 9);
    assert_int_equal(wait_for(out, NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(in, NULL), RONDO_INVALID_USAGE);
    assert_says("101 bytes (tag 9)");
    assert_says("receive of 100");
    assert_says("rank 3 hostA");
    assert_int_equal(target[0], 0);
    pair_close(&pair);
}

static void invalid_requests_are_refused_before_anything_is_posted(void **state)
{
    struct pair pair;
    void *data = target, *outside = target + BUFFER, *none = NULL, *request;
    size_t bytes = 2, much = (size_t)2 << 30;
    int tag = 0;
    (void)state;
    pair_open(&pair, IB);
    fake.writes = 0;
    assert_int_equal(dev->irecv(pair.recv, 0, &data, &bytes, &tag, &pair.to, &request),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->irecv(pair.recv, 9, &data, &bytes, &tag, &pair.to, &request),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->irecv(pair.recv, 1, &outside, &bytes, &tag, &pair.to, &request),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->irecv(pair.recv, 1, &data, &bytes, &tag, &none, &request), RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->irecv(pair.recv, 1, &data, &much, &tag, &pair.to, &request),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->irecv(pair.send, 1, &data, &bytes, &tag, &pair.from, &request),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->isend(pair.recv, data, 1, 0, pair.to, &request), RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->isend(pair.send, data, BUFFER + 1, 0, pair.from, &request), RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->reg(pair.send, NULL, 1, RONDO_NET_HOST, -1, &none), RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->reg(pair.send, source, SIZE_MAX - 5, RONDO_NET_HOST, -1, &none),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->reg(pair.send, source, 1, RONDO_NET_DMABUF, -1, &none), RONDO_INVALID_ARGUMENT);
    assert_int_equal(dev->reg(pair.send, source, 1, 3, -1, &none), RONDO_INVALID_ARGUMENT);
    assert_int_equal(fake.writes, 0);
    assert_int_equal(move(&pair, 5), RONDO_SUCCESS);
    pair_close(&pair);
}

static void data_in_gpu_memory_is_flushed_by_a_read_of_its_own_queue_pair(void **state)
{
    struct pair pair;
    void *data = target, *request;
    size_t bytes = 300, nothing = 0;
    (void)state;
    assert_int_equal(pair_try(&pair, IB, RONDO_NET_DMABUF), RONDO_SUCCESS);
    assert_int_equal(fake.last_mr_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(fake.last_mr_begin, (uintptr_t)target);
    const struct ibv_qp *self = end_of(pair.recv)->flush_qp;
    assert_int_equal(modified(self->qp_num, IBV_QPS_INIT)->attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
    assert_int_equal(modified(self->qp_num, IBV_QPS_RTR)->attr.dest_qp_num, self->qp_num);
    assert_int_equal(move(&pair, 300), RONDO_SUCCESS);
    fake.hold = 1;
    assert_int_equal(dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &request), RONDO_SUCCESS);
    assert_non_null(request);
    assert_int_equal(wait_for(request, NULL), RONDO_IN_PROGRESS);
    fake.hold = 0;
    assert_int_equal(wait_for(request, NULL), RONDO_SUCCESS);
    assert_int_equal(fake.reads, 1);
    assert_int_equal(end_of(pair.recv)->memory->landing & 0xff, source[0]);
    assert_int_equal(dev->iflush(pair.recv, 1, &data, &nothing, &pair.to, &request), RONDO_SUCCESS);
    assert_null(request);
    pair_close(&pair);
    pair_open(&pair, IB);
    assert_int_equal(dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &request), RONDO_SUCCESS);
    assert_null(request); /* host memory needs no flush */
    assert_null(end_of(pair.recv)->flush_qp);
    pair_close(&pair);
    set("NCCL_GDR_FLUSH_DISABLE", "1");
    assert_int_equal(pair_try(&pair, IB, RONDO_NET_DMABUF), RONDO_SUCCESS);
    assert_int_equal(dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &request), RONDO_SUCCESS);
    assert_null(request);
    assert_null(end_of(pair.recv)->flush_qp);
    pair_close(&pair);
}

/* ---- what a message costs ---- */

static struct rondo_verbs_counts spent(void *comm, const struct rondo_verbs_counts *before)
{
    struct rondo_verbs_counts now = *rondo_verbs_counts(comm);
    uint64_t *words = (uint64_t *)&now;
    const uint64_t *was = (const uint64_t *)before;
    for (size_t i = 0; i < sizeof now / sizeof *words; i++) {
        words[i] -= was[i];
    }
    return now;
}

static void check_cost(int device, size_t bytes, struct rondo_verbs_counts sender,
                       struct rondo_verbs_counts receiver)
{
    struct pair pair;
    pair_open(&pair, device);
    for (int i = 0; i < 3; i++) { /* each message costs the same */
        struct rondo_verbs_counts send = *rondo_verbs_counts(pair.send),
                                  recv = *rondo_verbs_counts(pair.recv);
        int writes = fake.writes;
        assert_int_equal(move(&pair, bytes), RONDO_SUCCESS);
        send = spent(pair.send, &send);
        recv = spent(pair.recv, &recv);
        assert_memory_equal(&send, &sender, sizeof send);
        assert_memory_equal(&recv, &receiver, sizeof recv);
        assert_int_equal(fake.writes - writes, send.sends + recv.sends);
    }
    pair_close(&pair);
}

/* A protocol with clear-to-sends needs at least a receive and a write of 64 bytes at the receiver, and one
 * write at the sender. */
static void a_message_costs_no_more_work_requests_than_it_needs(void **state)
{
    const struct rondo_verbs_counts receiver = {
        .sends = 1, .receives = 1, .doorbells = 1, .bytes = 64, .completions = 2
    };
    struct rondo_verbs_counts sender = { .sends = 1, .doorbells = 1, .completions = 1 }, inlined = receiver;
    static const size_t sizes[] = { 0, 8, 4096, 8192, 65536, BUFFER };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
        sender.bytes = sizes[i];
        check_cost(ROCE, sizes[i], sender, receiver);
        /* Where packets may arrive in any order, large messages need one more, posted by the same call. */
        sender.sends = sizes[i] > 8192 ? 2 : 1;
        check_cost(IB, sizes[i], sender, receiver);
        sender.sends = 1;
    }
    set("NCCL_IB_ADAPTIVE_ROUTING", "0");
    check_cost(IB, BUFFER, sender, receiver);
    setenv("NCCL_IB_AR_THRESHOLD", "100", 1);
    set("NCCL_IB_ADAPTIVE_ROUTING", "1");
    unsetenv("NCCL_IB_AR_THRESHOLD");
    sender.sends = 2;
    sender.bytes = 101;
    check_cost(ROCE, 101, sender, receiver);
    set("NCCL_IB_USE_INLINE", "1");
    inlined.inlined = 1;
    sender = (struct rondo_verbs_counts){
        .sends = 1, .doorbells = 1, .bytes = 96, .inlined = 1, .completions = 1
    };
    check_cost(ROCE, 96, sender, inlined);
    sender.inlined = 0;
    sender.bytes = 97; /* one byte more than fits inline */
    check_cost(ROCE, 97, sender, inlined);
    fake.most_inline = 0; /* a NIC without inline data */
    begin();
    set("NCCL_IB_USE_INLINE", "1");
    sender.bytes = 8;
    check_cost(ROCE, 8, sender, receiver);
}

/* The CPU copies inline data, but it cannot read GPU memory. */
static void data_in_gpu_memory_is_never_inline(void **state)
{
    struct pair pair;
    void *region, *in, *out;
    (void)state;
    set("RONDO_IB_USE_INLINE", "1");
    pair_open(&pair, IB);
    assert_int_equal(dev->reg(pair.send, source, 4096, RONDO_NET_DMABUF, 0, &region), RONDO_SUCCESS);
    in = receive(&pair, 0, 8, 0);
    int inlined = fake.inlined;
    assert_int_equal(dev->isend(pair.send, source, 8, 0, region, &out), RONDO_SUCCESS);
    assert_non_null(out);
    assert_int_equal(fake.inlined, inlined);
    assert_int_equal(wait_for(out, NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(in, NULL), RONDO_SUCCESS);
    pair_close(&pair);
}

/* ---- events for profilers ---- */

static void a_watched_message_has_an_event_for_each_queue_pair(void **state)
{
    enum { BYTES = 4 << 10 };
    struct pair pair;
    (void)state;
    for (int lanes = 1; lanes <= 2; lanes++) {
        setenv("RONDO_IB_SPLIT_DATA_ON_QPS", "1", 1);
        set("RONDO_IB_QPS_PER_CONNECTION", lanes == 1 ? "1" : "2");
        unsetenv("RONDO_IB_SPLIT_DATA_ON_QPS");
        pair_open(&pair, ROCE);
        const struct rondo_verbs_comm *sender = end_of(pair.send), *receiver = end_of(pair.recv);
        somebody_watches();
        void *in = receive(&pair, 0, BYTES, 1), *out = give(&pair, 0, BYTES, 1);
        nobody_watches();
        assert_int_equal(told.kind, RONDO_NET_KIND_IB);
        assert_int_equal(told.n, 1 + lanes);
        assert_int_equal(told.open, told.n);
        assert_int_equal(told.what[0].ib.qp.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        assert_int_equal(told.what[0].ib.qp.number, receiver->lane[0].qp->qp_num);
        assert_int_equal(told.what[0].ib.qp.bytes, BYTES);
        for (int i = 1; i <= lanes; i++) {
            assert_int_equal(told.what[i].ib.type, 1);
            assert_int_equal(told.what[i].ib.qp.device, ROCE);
            assert_int_equal(told.what[i].ib.qp.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
            assert_int_equal(told.what[i].ib.qp.number, sender->lane[i - 1].qp->qp_num);
            assert_int_equal(told.what[i].ib.qp.bytes, BYTES / lanes);
        }
        assert_int_equal(wait_for(out, NULL), RONDO_SUCCESS);
        assert_int_equal(told.open, 1);
        assert_int_equal(wait_for(in, NULL), RONDO_SUCCESS);
        assert_int_equal(told.open, 0);
        assert_int_equal(move(&pair, BYTES), RONDO_SUCCESS);
        assert_int_equal(told.n, 1 + lanes);
        pair_close(&pair);
    }
}

/* ---- registrations ---- */

static void registrations_are_whole_pages_shared_and_counted(void **state)
{
    struct pair pair, other;
    void *a, *b, *c;
    int live, calls;
    (void)state;
    pair_open(&pair, IB);
    pair_open(&other, IB);
    dev->unreg(pair.recv, pair.to);
    dev->unreg(other.recv, other.to);
    live = fake.live[FAKE_MR];
    assert_int_equal(dev->reg(pair.recv, target + PAGE + 100, 2 * PAGE, RONDO_NET_HOST, -1, &a),
                     RONDO_SUCCESS);
    assert_int_equal(fake.last_mr_begin, (uintptr_t)target + PAGE);
    assert_int_equal(fake.last_mr_bytes, 3 * PAGE);
    assert_int_equal(fake.last_mr_access,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    calls = fake.calls[FAKE_MR];
    /* Another comm registers a part of it. */
    assert_int_equal(dev->reg(other.recv, target + 2 * PAGE, PAGE, RONDO_NET_HOST, -1, &b), RONDO_SUCCESS);
    assert_int_equal(fake.calls[FAKE_MR], calls);
    /* A sender's registration is another one, because nobody may write to it. */
    assert_int_equal(dev->reg(pair.send, target + 2 * PAGE, PAGE, RONDO_NET_HOST, -1, &c), RONDO_SUCCESS);
    assert_int_equal(fake.last_mr_access, IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(fake.live[FAKE_MR], live + 2);
    assert_int_equal(dev->unreg(pair.recv, a), RONDO_SUCCESS);
    assert_int_equal(dev->unreg(pair.send, c), RONDO_SUCCESS);
    assert_int_equal(fake.live[FAKE_MR], live + 1);
    dev->close(other.recv); /* this unregisters b */
    other.recv = NULL;
    assert_int_equal(fake.live[FAKE_MR], live - 1);
    dev->close(other.send);
    pair_close(&pair);
}

static void data_may_be_written_in_any_order_where_the_library_can(void **state)
{
    struct rondo_verbs_lib old = fake_verbs_lib;
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    assert_int_equal(fake.last_mr_call, 2);
    assert_int_equal(((struct rondo_verbs_region *)pair.to)->shared->access & IBV_ACCESS_RELAXED_ORDERING,
                     IBV_ACCESS_RELAXED_ORDERING);
    pair_close(&pair);
    dev->prepare(IB, &peer_a, 0, &pair.recv, (uint8_t[RONDO_NET_HANDLE]){ 0 });
    /* Clear-to-sends rely on the order of writes. */
    assert_int_equal(fake.last_mr_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    dev->close(pair.recv);
    set("NCCL_IB_PCI_RELAXED_ORDERING", "0");
    pair_open(&pair, IB);
    assert_int_equal(fake.last_mr_call, 1);
    pair_close(&pair);
    old.reg_mr_iova2 = NULL;
    rondo_verbs_lib_replace(&old);
    begin();
    pair_open(&pair, IB);
    assert_int_equal(fake.last_mr_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    pair_close(&pair);
    set("NCCL_IB_PCI_RELAXED_ORDERING", "1");
    assert_int_equal(pair_try(&pair, IB, RONDO_NET_HOST), RONDO_SYSTEM_ERROR);
    assert_says("RONDO_IB_PCI_RELAXED_ORDERING=1");
    pair_close(&pair);
    dev->finalize();
    rondo_verbs_lib_replace(&fake_verbs_lib);
    begin();
}

static void too_little_lockable_memory_is_an_error_with_the_limit(void **state)
{
    struct pair pair;
    void *region;
    (void)state;
    pair_open(&pair, IB);
    fake.fail_in[FAKE_MR] = 1;
    fake.fail_errno = ENOMEM;
    assert_int_equal(dev->reg(pair.recv, target + 1, 9000, RONDO_NET_HOST, -1, &region),
                     RONDO_SUCCESS); /* it is already registered */
    assert_int_equal(dev->reg(pair.recv, source + 1, 9000, RONDO_NET_HOST, -1, &region), RONDO_SYSTEM_ERROR);
    assert_says("12288 bytes");
    assert_says("ulimit -l");
    assert_null(region);
    assert_int_equal(move(&pair, 7), RONDO_SUCCESS);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_of_all_sizes_arrive_whole),
        TEST(a_long_message_over_infiniband_has_a_separate_last_write),
        TEST(a_sender_never_writes_before_it_is_clear_to_send),
        TEST(thirty_two_messages_are_in_flight_and_no_more),
        TEST(no_more_clear_to_sends_are_in_flight_than_fit_the_queue),
        TEST(grouped_receives_take_parts_in_any_order_by_tag),
        TEST(a_message_that_is_too_long_is_the_receivers_error_and_is_not_written),
        TEST(invalid_requests_are_refused_before_anything_is_posted),
        TEST(data_in_gpu_memory_is_flushed_by_a_read_of_its_own_queue_pair),
        TEST(a_message_costs_no_more_work_requests_than_it_needs),
        TEST(data_in_gpu_memory_is_never_inline),
        TEST(a_watched_message_has_an_event_for_each_queue_pair),
        TEST(registrations_are_whole_pages_shared_and_counted),
        TEST(data_may_be_written_in_any_order_where_the_library_can),
        TEST(too_little_lockable_memory_is_an_error_with_the_limit),
    };
    setenv("RONDO_DEBUG", "NONE", 1); /* these tests provoke errors */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
