/* net/verbs/verbs.h: the texts of errors, failures that must leave nothing behind, and hostile peers. */
#include "verbs_pair.h"

/* ---- errors ---- */

static void an_error_text_names_both_ends_and_the_cause(void **state)
{
    static const struct {
        enum ibv_wc_status code;
        rondo_status status;
        const char *words, *cause;
    } rows[] = {
        { IBV_WC_RETRY_EXC_ERR, RONDO_REMOTE_ERROR, "transport retry count exceeded", "RONDO_IB_TIMEOUT" },
        { IBV_WC_RNR_RETRY_EXC_ERR, RONDO_REMOTE_ERROR, "receiver-not-ready", "does not receive" },
        { IBV_WC_REM_ACCESS_ERR, RONDO_REMOTE_ERROR, "access error at the other end", "deregistered there" },
        { IBV_WC_REM_OP_ERR, RONDO_REMOTE_ERROR, "operation error at the other end", "kernel's log" },
        { IBV_WC_LOC_PROT_ERR, RONDO_SYSTEM_ERROR, "local protection error", "deregistered while in use" },
        { IBV_WC_WR_FLUSH_ERR, RONDO_REMOTE_ERROR, "flushed", "earlier error" },
        { IBV_WC_FATAL_ERR, RONDO_SYSTEM_ERROR, "fatal error of the NIC", "kernel's log" },
        { IBV_WC_TM_ERR, RONDO_SYSTEM_ERROR, "unknown error", "kernel's log" },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        char ends[64];
        struct pair pair;
        void *out, *again;
        int done;
        pair_open(&pair, ROCE);
        receive(&pair, 0, 10, 0);
        fake.send_status = rows[i].code;
        fake.vendor = 0x81;
        out = give(&pair, 0, 10, 0);
        assert_int_equal(wait_for(out, NULL), rows[i].status);
        snprintf(ends, sizeof ends, "queue pair %u", end_of(pair.recv)->lane[0].qp->qp_num);
        assert_says(ends);
        assert_says("RDMA write of a message failed");
        assert_says("fake0:2 (::ffff:10.0.0.5");
        assert_says("to rank 5 hostB");
        assert_says(rows[i].words);
        assert_says("vendor code 0x81");
        assert_says(rows[i].cause);
        rondo_error_clear();
        assert_int_equal(dev->test(out, &done, NULL), rows[i].status); /* the error stays */
        assert_says(rows[i].words);
        assert_int_equal(dev->isend(pair.send, source, 1, 0, pair.from, &again), rows[i].status);
        pair_close(&pair);
    }
}

static void a_failed_clear_to_send_is_an_error_of_the_receive(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    fake.send_status = IBV_WC_RETRY_EXC_ERR;
    assert_int_equal(wait_for(receive(&pair, 0, 10, 0), NULL), RONDO_REMOTE_ERROR);
    assert_says("RDMA write of a clear-to-send failed");
    assert_says("LID 17");
    assert_says("from rank 3 hostA");
    pair_close(&pair);
}

static void a_peer_that_left_is_noticed(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    dev->close(pair.send);
    pair.send = NULL;
    assert_int_equal(wait_for(receive(&pair, 0, 10, 0), NULL), RONDO_REMOTE_ERROR);
    assert_says("the other process died");
    pair_close(&pair);
}

/* A receiver asks for more messages than it needs, so its last clear-to-send may find no peer. held:
 * completions of earlier messages are seen together with that error. */
static void messages_that_arrived_before_the_peer_left_count(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct pair pair;
        void *request[3], *flush, *data = target, *refused = &pair;
        size_t bytes = 10, got[2] = { 0 };
        int tag = 0, done;
        assert_int_equal(pair_try(&pair, IB, RONDO_NET_DMABUF), RONDO_SUCCESS);
        for (int i = 0; i < 2; i++) {
            request[i] = receive(&pair, (size_t)i * 10, 10, 0);
            assert_int_equal(wait_for(give(&pair, (size_t)i * 10, 10 - (size_t)i, 0), NULL), RONDO_SUCCESS);
        }
        fake.hold = held;
        dev->close(pair.send);
        pair.send = NULL;
        request[2] = receive(&pair, 20, 10, 0);
        if (!held) { /* the error is known before any message is tested */
            assert_int_equal(dev->test(request[2], &done, NULL), RONDO_REMOTE_ERROR);
        }
        fake.hold = 0;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(wait_for(request[i], &got[i]), RONDO_SUCCESS);
            assert_int_equal(dev->irecv(pair.recv, 1, &data, &bytes, &tag, &pair.to, &refused),
                             RONDO_REMOTE_ERROR);
            assert_null(refused);
        }
        assert_int_equal(got[0], 10);
        assert_int_equal(got[1], 9);
        assert_memory_equal(source, target, 19);
        fake.hold_qpn = end_of(pair.recv)->flush_qp->qp_num;
        assert_int_equal(dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &flush), RONDO_SUCCESS);
        assert_int_equal(wait_for(flush, NULL), RONDO_IN_PROGRESS);
        fake.hold_qpn = 0;
        assert_int_equal(wait_for(flush, NULL), RONDO_SUCCESS);
        assert_int_equal(dev->test(request[2], &done, NULL), RONDO_REMOTE_ERROR);
        assert_says("the other process died");
        pair_close(&pair);
    }
}

/* Receive a message into GPU memory, and see that the sender has gone. */
static void last_message(struct pair *pair)
{
    void *request, *late;
    assert_int_equal(pair_try(pair, IB, RONDO_NET_DMABUF), RONDO_SUCCESS);
    request = receive(pair, 0, 10, 0);
    assert_int_equal(wait_for(give(pair, 0, 10, 0), NULL), RONDO_SUCCESS);
    dev->close(pair->send);
    pair->send = NULL;
    late = receive(pair, 10, 10, 0);
    assert_int_equal(wait_for(late, NULL), RONDO_REMOTE_ERROR);
    assert_int_equal(wait_for(request, NULL), RONDO_SUCCESS);
}

/* After the sender has gone, flushes are still waited for, and one that fails is an error. */
static void a_flush_that_fails_after_the_peer_left_is_an_error(void **state)
{
    struct pair pair;
    void *flush, *data = target;
    size_t bytes = 10;
    (void)state;
    last_message(&pair);
    fake.send_status = IBV_WC_LOC_PROT_ERR;
    assert_int_equal(dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &flush), RONDO_SUCCESS);
    assert_int_equal(wait_for(flush, NULL), RONDO_REMOTE_ERROR);
    pair_close(&pair);
}

/* A flush is not waited for if its NIC fails. */
static void a_flush_on_a_nic_that_fails_is_an_error(void **state)
{
    struct ibv_async_event event = { .event_type = IBV_EVENT_DEVICE_FATAL };
    struct pair pair;
    void *flush, *data = target;
    size_t bytes = 10;
    (void)state;
    last_message(&pair);
    fake.hold_qpn = end_of(pair.recv)->flush_qp->qp_num;
    assert_int_equal(dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &flush), RONDO_SUCCESS);
    assert_int_equal(wait_for(flush, NULL), RONDO_IN_PROGRESS);
    fake_verbs_event(event);
    assert_int_equal(wait_for(flush, NULL), RONDO_REMOTE_ERROR);
    pair_close(&pair);
    begin(); /* a failed NIC stays failed until it is opened again */
}

/* Two operations end with the error, but it is logged once. */
static void an_error_is_logged_once(void **state)
{
    struct pair pair;
    void *out[2];
    (void)state;
    pair_open(&pair, IB);
    for (int i = 0; i < 2; i++) {
        receive(&pair, (size_t)i * 10, 10, 0);
    }
    dev->close(pair.recv);
    pair.recv = NULL;
    for (int i = 0; i < 2; i++) {
        out[i] = give(&pair, (size_t)i * 10, 10, 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for(out[i], NULL), RONDO_REMOTE_ERROR);
        assert_true(rondo_error_logged());
    }
    pair_close(&pair);
}

/* The NIC calls it an error of the queue pair. */
static void an_error_while_the_link_is_down_names_the_link(void **state)
{
    struct ibv_async_event down = { .event_type = IBV_EVENT_PORT_ERR, .element = { .port_num = 1 } };
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    receive(&pair, 0, 10, 0);
    fake_verbs_event(down);
    fake.send_status = IBV_WC_LOC_QP_OP_ERR;
    assert_int_equal(wait_for(give(&pair, 0, 10, 0), NULL), RONDO_REMOTE_ERROR);
    assert_says("link of fake0:1 is down");
    pair_close(&pair);
    begin();
}

/* The port's state changes before the event arrives. */
static void an_operation_error_on_a_port_that_is_down_names_the_link(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    receive(&pair, 0, 10, 0);
    fake.nic[0].port[0].attr.state = IBV_PORT_DOWN;
    fake.send_status = IBV_WC_LOC_QP_OP_ERR;
    assert_int_equal(wait_for(give(&pair, 0, 10, 0), NULL), RONDO_REMOTE_ERROR);
    assert_says("link of fake0:1 is down");
    pair_close(&pair);
}

static void events_of_the_nic_end_the_connection(void **state)
{
    static const struct {
        enum ibv_event_type type;
        const char *says;
    } rows[] = { { IBV_EVENT_QP_FATAL, "fatal error of the queue pair" },
                 { IBV_EVENT_QP_ACCESS_ERR, "memory that it was not given" },
                 { IBV_EVENT_CQ_ERR, "overrun" },
                 { IBV_EVENT_DEVICE_FATAL, "fatal error: see the kernel" } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct pair pair;
        struct ibv_async_event event = { .event_type = rows[i].type };
        pair_open(&pair, IB);
        event.element.qp = end_of(pair.recv)->lane[0].qp;
        if (rows[i].type == IBV_EVENT_CQ_ERR) {
            event.element.cq = end_of(pair.recv)->cq;
        }
        fake_verbs_event(event);
        assert_int_equal(wait_for(receive(&pair, 0, 10, 0), NULL), RONDO_SYSTEM_ERROR);
        assert_says(rows[i].says);
        assert_says("rank 3 hostA");
        pair_close(&pair);
        begin(); /* a failed NIC stays failed until it is opened again */
    }
}

static void events_can_be_only_logged(void **state)
{
    struct ibv_async_event event = { .event_type = IBV_EVENT_QP_FATAL };
    struct pair pair;
    (void)state;
    set("NCCL_IB_RETURN_ASYNC_EVENTS", "0");
    pair_open(&pair, IB);
    event.element.qp = end_of(pair.recv)->lane[0].qp;
    fake_verbs_event(event);
    void *in = receive(&pair, 0, 10, 0);
    assert_int_equal(wait_for(in, NULL), RONDO_IN_PROGRESS);
    assert_int_equal(fake.events, 0); /* the event was taken */
    assert_int_equal(wait_for(give(&pair, 0, 10, 0), NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(in, NULL), RONDO_SUCCESS);
    pair_close(&pair);
}

/* The kernel may not know the other end's address yet. So connect is tried again, but not forever. */
static void a_queue_pair_that_does_not_connect_in_time_is_tried_again(void **state)
{
    uint8_t sender[RONDO_NET_HANDLE], receiver[RONDO_NET_HANDLE];
    struct pair pair = { 0 };
    (void)state;
    setenv("NCCL_IB_MQP_RETRY_SLEEP_MSEC", "0", 1);
    set("NCCL_IB_MQP_RETRY_CNT", "2");
    unsetenv("NCCL_IB_MQP_RETRY_SLEEP_MSEC");
    assert_int_equal(dev->prepare(IB, &peer_a, 0, &pair.recv, receiver), RONDO_SUCCESS);
    assert_int_equal(dev->prepare(IB, &peer_b, 1, &pair.send, sender), RONDO_SUCCESS);
    fake.fail_errno = ETIMEDOUT;
    for (int i = 0; i < 2; i++) {
        fake.fail_in[FAKE_MODIFY] = 1;
        assert_int_equal(dev->connect(pair.recv, sender), RONDO_IN_PROGRESS);
    }
    assert_int_equal(dev->connect(pair.recv, sender), RONDO_SUCCESS);
    for (int i = 0; i < 3; i++) {
        fake.fail_in[FAKE_MODIFY] = 1;
        assert_int_equal(dev->connect(pair.send, receiver), i < 2 ? RONDO_IN_PROGRESS : RONDO_SYSTEM_ERROR);
    }
    assert_says("address was not found");
    pair_close(&pair);
    set("RONDO_IB_MQP_RETRY_ALL", "1");
    assert_int_equal(dev->prepare(IB, &peer_a, 0, &pair.recv, receiver), RONDO_SUCCESS);
    assert_int_equal(dev->prepare(IB, &peer_b, 1, &pair.send, sender), RONDO_SUCCESS);
    fake.fail_errno = EIO;
    fake.fail_in[FAKE_MODIFY] = 1;
    assert_int_equal(dev->connect(pair.recv, sender), RONDO_IN_PROGRESS);
    int calls = fake.calls[FAKE_MODIFY];
    /* The next attempt is due in 100 ms. */
    assert_int_equal(dev->connect(pair.recv, sender), RONDO_IN_PROGRESS);
    assert_int_equal(fake.calls[FAKE_MODIFY], calls);
    ((struct rondo_verbs_comm *)pair.recv)->attempt_ns -= 100000000;
    assert_int_equal(dev->connect(pair.recv, sender), RONDO_SUCCESS);
    pair_close(&pair);
}

static rondo_status poll_until_error(struct pair *pair, int polls)
{
    void *request;
    for (int i = 0; i < polls; i++) {
        RONDO_TRY(dev->isend(pair->send, source, 1, 0, pair->from, &request));
    }
    return RONDO_SUCCESS;
}

static void a_link_that_stays_down_ends_the_connection_and_one_that_comes_back_does_not(void **state)
{
    struct ibv_async_event down = { .event_type = IBV_EVENT_PORT_ERR, .element = { .port_num = 1 } };
    struct ibv_async_event up = { .event_type = IBV_EVENT_PORT_ACTIVE, .element = { .port_num = 1 } };
    struct pair pair, other;
    struct rondo_verbs_port *port;
    (void)state;
    pair_open(&pair, IB);
    pair_open(&other, ROCE);
    port = rondo_verbs_port_get(IB);
    fake_verbs_event(down);
    assert_int_equal(poll_until_error(&pair, POLLS), RONDO_SUCCESS); /* the NIC still retries */
    assert_true(port->down_ns != 0);
    port->down_ns -= rondo_verbs_retry_window_ns() - 1000000; /* almost too long */
    fake_verbs_event(up);
    assert_int_equal(poll_until_error(&pair, POLLS), RONDO_SUCCESS);
    assert_true(port->down_ns == 0);
    assert_int_equal(move(&pair, 10), RONDO_SUCCESS);
    fake_verbs_event(down);
    assert_int_equal(poll_until_error(&pair, POLLS), RONDO_SUCCESS);
    port->down_ns -= rondo_verbs_retry_window_ns();
    assert_int_equal(poll_until_error(&pair, POLLS), RONDO_REMOTE_ERROR);
    assert_says("link of fake0:1 has been down");
    assert_int_equal(poll_until_error(&other, POLLS), RONDO_SUCCESS); /* the other port is up */
    dev->close(other.send);
    dev->close(other.recv);
    pair_close(&pair);
}

/* Do all that a program does, until the first error, and close everything. */
static rondo_status whole_life(void)
{
    struct pair pair;
    void *data = target, *request = NULL;
    size_t bytes = 100;
    rondo_status status = pair_try(&pair, IB, RONDO_NET_DMABUF);
    for (int i = 0; i < 3 && status == RONDO_SUCCESS; i++) {
        status = move(&pair, 9000);
    }
    if (status == RONDO_SUCCESS) {
        status = dev->iflush(pair.recv, 1, &data, &bytes, &pair.to, &request);
    }
    if (status == RONDO_SUCCESS) {
        status = wait_for(request, NULL);
    }
    pair_close(&pair);
    return status;
}

static void each_call_that_fails_is_reported_and_leaves_nothing(void **state)
{
    (void)state;
    for (int call = FAKE_PD; call < FAKE_NUM_CALLS; call++) {
        int nth = 1, failed;
        do {
            fake.fail_in[call] = nth++;
            fake.fail_errno = EIO;
            rondo_error_clear();
            rondo_status status = whole_life();
            failed = fake.fail_in[call] == 0;
            fake.fail_in[call] = 0;
            assert_int_equal(status == RONDO_SUCCESS, !failed);
            assert_true(!failed || call == FAKE_POLL || strstr(rondo_error_text(), "kernel's log") != NULL);
            assert_true(!failed || strstr(rondo_error_text(), "fake0") != NULL);
        } while (failed);
        assert_true(nth > 2);
    }
}

/* ---- hostile peers ---- */

static void records_of_another_end_are_refused(void **state)
{
    static const struct {
        size_t offset;
        uint8_t flip;
        const char *says;
    } rows[] = {
        { offsetof(struct rondo_verbs_end, magic), 1, "not a verbs record" },
        { offsetof(struct rondo_verbs_end, version), 1, "not a verbs record" },
        { offsetof(struct rondo_verbs_end, proof), 1, "another communicator" },
        { offsetof(struct rondo_verbs_end, is_send), 1, "its values are invalid" },
        { offsetof(struct rondo_verbs_end, mtu), 0x80, "its values are invalid" },
        { offsetof(struct rondo_verbs_end, lanes), 1, "its values are invalid" }, /* no lanes */
        { offsetof(struct rondo_verbs_end, lanes), 8, "its values are invalid" }, /* nine lanes */
        { offsetof(struct rondo_verbs_end, split), 2, "its values are invalid" },
        { offsetof(struct rondo_verbs_end, link_layer), 3, "Ethernet" },
    };
    uint8_t sender[RONDO_NET_HANDLE], receiver[RONDO_NET_HANDLE];
    struct pair pair = { 0 };
    (void)state;
    assert_int_equal(dev->prepare(IB, &peer_a, 0, &pair.recv, receiver), RONDO_SUCCESS);
    assert_int_equal(dev->prepare(IB, &peer_b, 1, &pair.send, sender), RONDO_SUCCESS);
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        sender[rows[i].offset] ^= rows[i].flip;
        assert_int_equal(dev->connect(pair.recv, sender), RONDO_REMOTE_ERROR);
        assert_says(rows[i].says);
        assert_says("rank 3 on hostA");
        sender[rows[i].offset] ^= rows[i].flip;
    }
    memset(sender + offsetof(struct rondo_verbs_end, device), 'x',
           sizeof((struct rondo_verbs_end *)0)->device); /* the text has no end */
    assert_int_equal(dev->connect(pair.recv, sender), RONDO_SUCCESS);
    assert_int_equal(dev->connect(pair.recv, sender), RONDO_REMOTE_ERROR);
    pair_close(&pair);
}

static void poke_cts(const struct rondo_verbs_comm *sender, int slot, struct rondo_verbs_cts cts)
{
    assert_int_equal(fake_verbs_poke(sender->mine.address + (size_t)slot * RONDO_NET_MAX_RECVS * sizeof cts,
                                     sender->mine.rkey, &cts, sizeof cts),
                     0);
}

static void an_invalid_clear_to_send_ends_the_connection(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct pair pair;
        void *request;
        pair_open(&pair, IB);
        const struct rondo_verbs_comm *sender = pair.send;
        struct rondo_verbs_cts cts = { .parts = 1, .nonce = sender->mine.nonce, .sequence = 1, .bytes = 1 };
        if (i < 3) {
            cts.parts = i == 0 ? 0 : i == 1 ? 9 : UINT32_MAX;
        }
        cts.nonce ^= i == 3;
        cts.sequence += i == 4; /* of another round, so it is not seen */
        poke_cts(sender, 0, cts);
        assert_int_equal(dev->isend(pair.send, source, 1, 0, pair.from, &request),
                         i == 4 ? RONDO_SUCCESS : RONDO_REMOTE_ERROR);
        assert_null(request);
        if (i < 4) {
            assert_says("an invalid clear-to-send");
        }
        pair_close(&pair);
    }
}

static void deregistering_a_buffer_in_use_is_an_error_at_both_ends(void **state)
{
    struct pair pair;
    void *in;
    (void)state;
    pair_open(&pair, IB);
    in = receive(&pair, 0, 8, 0);
    dev->unreg(pair.recv, pair.to);
    assert_int_equal(wait_for(give(&pair, 0, 8, 0), NULL), RONDO_REMOTE_ERROR);
    assert_says("deregistered there");
    assert_int_equal(wait_for(in, NULL), RONDO_SYSTEM_ERROR);
    assert_says("receive of a message failed");
    assert_says("deregistered here");
    assert_int_equal(target[0], 0);
    pair_close(&pair);
}

static void a_wrong_key_in_a_clear_to_send_touches_no_memory(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair, IB);
    const struct rondo_verbs_comm *sender = pair.send;
    poke_cts(sender, 0,
             (struct rondo_verbs_cts){ .address = (uintptr_t)target,
                                       .bytes = 8,
                                       .rkey = 1,
                                       .parts = 1,
                                       .nonce = sender->mine.nonce,
                                       .sequence = 1 });
    assert_int_equal(wait_for(give(&pair, 0, 8, 0), NULL), RONDO_REMOTE_ERROR);
    assert_says("access error at the other end");
    assert_int_equal(target[0], 0);
    pair_close(&pair);
}

/* The sender writes the sizes of a group. One that is larger than its part is refused. */
static void invalid_sizes_from_the_sender_are_refused(void **state)
{
    struct pair pair;
    void *data[2] = { target, target + 100 }, *regions[2], *in, *out[2];
    size_t room[2] = { 100, 100 };
    int tags[2] = { 1, 2 };
    uint64_t huge = UINT64_MAX;
    (void)state;
    pair_open(&pair, IB);
    regions[0] = regions[1] = pair.to;
    assert_int_equal(dev->irecv(pair.recv, 2, data, room, tags, regions, &in), RONDO_SUCCESS);
    out[0] = give(&pair, 0, 10, 1);
    out[1] = give(&pair, 0, 10, 2);
    assert_int_equal(wait_for(out[0], NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(out[1], NULL), RONDO_SUCCESS);
    const struct rondo_verbs_comm *receiver = pair.recv;
    uint64_t at = receiver->mine.address + offsetof(struct rondo_verbs_memory, sizes) + sizeof huge;
    assert_int_equal(fake_verbs_poke(at, receiver->mine.rkey, &huge, sizeof huge), 0);
    assert_int_equal(wait_for(in, NULL), RONDO_INVALID_USAGE);
    assert_says("(tag 2)");
    pair_close(&pair);
}

static void an_end_can_be_closed_at_any_time(void **state)
{
    struct pair pair = { 0 };
    uint8_t handle[RONDO_NET_HANDLE];
    (void)state;
    assert_int_equal(dev->prepare(IB, &peer_b, 1, &pair.send, handle), RONDO_SUCCESS);
    void *request;
    assert_int_equal(dev->isend(pair.send, source, 0, 0, NULL, &request), RONDO_INVALID_ARGUMENT);
    assert_says("not connected");
    pair_close(&pair);
    pair_open(&pair, IB);
    fake.hold = 1;
    receive(&pair, 0, 10, 0);
    receive(&pair, 10, 10, 0);
    give(&pair, 0, 10, 0);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_error_text_names_both_ends_and_the_cause),
        TEST(a_failed_clear_to_send_is_an_error_of_the_receive),
        TEST(a_peer_that_left_is_noticed),
        TEST(messages_that_arrived_before_the_peer_left_count),
        TEST(a_flush_that_fails_after_the_peer_left_is_an_error),
        TEST(a_flush_on_a_nic_that_fails_is_an_error),
        TEST(an_error_is_logged_once),
        TEST(an_error_while_the_link_is_down_names_the_link),
        TEST(an_operation_error_on_a_port_that_is_down_names_the_link),
        TEST(events_of_the_nic_end_the_connection),
        TEST(events_can_be_only_logged),
        TEST(a_queue_pair_that_does_not_connect_in_time_is_tried_again),
        TEST(a_link_that_stays_down_ends_the_connection_and_one_that_comes_back_does_not),
        TEST(each_call_that_fails_is_reported_and_leaves_nothing),
        TEST(records_of_another_end_are_refused),
        TEST(an_invalid_clear_to_send_ends_the_connection),
        TEST(deregistering_a_buffer_in_use_is_an_error_at_both_ends),
        TEST(a_wrong_key_in_a_clear_to_send_touches_no_memory),
        TEST(invalid_sizes_from_the_sender_are_refused),
        TEST(an_end_can_be_closed_at_any_time),
    };
    setenv("RONDO_DEBUG", "NONE", 1); /* these tests provoke errors */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
