/* net/verbs/verbs.h: comms of several queue pairs, which carry whole messages in turn or stripes of each, and
 * completions in any order. */
#include "verbs_pair.h"

/* Set the number of queue pairs of both ends, and whether data is split. The values stay until the next
 * begin(). */
static void use(const char *lanes, const char *split)
{
    setenv("RONDO_IB_SPLIT_DATA_ON_QPS", split, 1);
    set("RONDO_IB_QPS_PER_CONNECTION", lanes);
    unsetenv("RONDO_IB_SPLIT_DATA_ON_QPS");
}

static uint32_t qpn_of(void *comm, int lane) { return end_of(comm)->lane[lane].qp->qp_num; }

/* ---- making and connecting them ---- */

static void check_lane(void *comm, void *other, int lane)
{
    const struct ibv_qp_attr *rtr = &modified(qpn_of(comm, lane), IBV_QPS_RTR)->attr;
    const struct ibv_qp_attr *rts = &modified(qpn_of(comm, lane), IBV_QPS_RTS)->attr;
    assert_int_equal(modified(qpn_of(comm, lane), IBV_QPS_INIT)->attr.qp_access_flags,
                     IBV_ACCESS_REMOTE_WRITE);
    assert_int_equal(rtr->dest_qp_num, qpn_of(other, lane));
    assert_int_equal(rtr->rq_psn, modified(qpn_of(other, lane), IBV_QPS_RTS)->attr.sq_psn);
    assert_true(rts->sq_psn <= 0xffffff);
    for (int i = 0; i < lane; i++) {
        assert_int_not_equal(rts->sq_psn, modified(qpn_of(comm, i), IBV_QPS_RTS)->attr.sq_psn);
    }
}

static void each_queue_pair_is_connected_with_its_other_end(void **state)
{
    static const struct {
        const char *count;
        int lanes;
    } rows[] = { { "1", 1 }, { "2", 2 }, { "8", 8 }, { "9", 8 }, { "128", 8 } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct pair pair;
        fake.nmodifies = 0;
        use(rows[i].count, "1");
        pair_open(&pair, IB);
        assert_int_equal(fake.live[FAKE_QP], 2 * rows[i].lanes);
        assert_int_equal(fake.live[FAKE_CQ], 2);
        assert_int_equal(fake.last_cqe, rows[i].lanes * (64 + 32) + 32);
        for (int lane = 0; lane < rows[i].lanes; lane++) {
            check_lane(pair.send, pair.recv, lane);
            check_lane(pair.recv, pair.send, lane);
        }
        pair_close(&pair);
    }
}

static void the_lower_count_of_the_ends_is_used(void **state)
{
    (void)state;
    for (int fewer = 0; fewer < 2; fewer++) { /* 0: the receiver has fewer, 1: the sender */
        uint8_t sender[RONDO_NET_HANDLE], receiver[RONDO_NET_HANDLE];
        struct pair pair = { 0 };
        use(fewer == 0 ? "2" : "5", "0");
        assert_int_equal(dev->prepare(ROCE, &peer_a, 0, &pair.recv, receiver), RONDO_SUCCESS);
        /* Without begin(), the NIC stays open. Only the sender decides whether data is split. */
        setenv("RONDO_IB_SPLIT_DATA_ON_QPS", "1", 1);
        setenv("NCCL_IB_QPS_PER_CONNECTION", fewer == 0 ? "5" : "2", 1);
        assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
        unsetenv("RONDO_IB_SPLIT_DATA_ON_QPS");
        unsetenv("NCCL_IB_QPS_PER_CONNECTION");
        assert_int_equal(dev->prepare(ROCE, &peer_b, 1, &pair.send, sender), RONDO_SUCCESS);
        assert_int_equal(fake.live[FAKE_QP], 7);
        assert_int_equal(dev->connect(pair.recv, sender), RONDO_SUCCESS);
        assert_int_equal(dev->connect(pair.send, receiver), RONDO_SUCCESS);
        assert_int_equal(fake.live[FAKE_QP], 4); /* the others have been destroyed */
        assert_int_equal(dev->reg(pair.send, source, BUFFER, RONDO_NET_HOST, -1, &pair.from), RONDO_SUCCESS);
        assert_int_equal(dev->reg(pair.recv, target, BUFFER, RONDO_NET_HOST, -1, &pair.to), RONDO_SUCCESS);
        fake.writes = 0;
        assert_int_equal(move(&pair, 1000), RONDO_SUCCESS);
        assert_int_equal(fake.writes, 3); /* the clear-to-send and two stripes */
        pair_close(&pair);
    }
}

/* ---- how data is spread over lanes ---- */

static void whole_messages_go_in_turn(void **state)
{
    struct pair pair;
    (void)state;
    use("3", "0");
    pair_open(&pair, ROCE);
    for (int i = 0; i < 7; i++) {
        struct rondo_verbs_counts before = *rondo_verbs_counts(pair.recv);
        fake.writes = 0;
        assert_int_equal(move(&pair, 100000), RONDO_SUCCESS);
        assert_int_equal(fake.writes, 2);
        assert_int_equal(fake.write[0].qpn, qpn_of(pair.recv, i % 3));
        assert_int_equal(fake.write[1].qpn, qpn_of(pair.send, i % 3));
        assert_int_equal(fake.write[1].bytes, 100000);
        assert_int_equal(rondo_verbs_counts(pair.recv)->receives - before.receives, 1);
    }
    pair_close(&pair);
}

/* Send a header, and data that lie elsewhere, to a receive with a place for place_bytes of data. placed:
 * whether the data must come to that place. */
static void move_apart(struct pair *pair, size_t bytes, size_t place_bytes, int plain, int placed)
{
    enum { HEAD = 16, FROM = 400000, AT = 1000, PLACE = 500000 };
    const struct rondo_net_span head = { .data = source, .bytes = HEAD, .region = pair->from };
    const struct rondo_net_span data = { .data = source + FROM, .bytes = bytes, .region = pair->from };
    const struct rondo_net_span whole = { .data = target + AT, .bytes = HEAD + 300000, .region = pair->to };
    const struct rondo_net_span place = { .data = target + PLACE, .bytes = place_bytes, .region = pair->to };
    size_t got[2] = { 99, 99 };
    void *request[2];
    memset(target, 0, sizeof target);
    assert_int_equal(dev->irecv_into(pair->recv, &whole, &place, 4, &request[0]), RONDO_SUCCESS);
    assert_int_equal(dev->isend_from(pair->send, &head, &data, plain, 4, &request[1]), RONDO_SUCCESS);
    assert_int_equal(wait_for(request[1], NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(request[0], got), RONDO_SUCCESS);
    assert_int_equal(got[0], placed ? 0 : HEAD + bytes);
    assert_int_equal(got[1], placed ? bytes : 0);
    if (placed) {
        assert_memory_equal(target + PLACE, source + FROM, bytes);
    } else {
        assert_memory_equal(target + AT, source, HEAD);
        assert_memory_equal(target + AT + HEAD, source + FROM, bytes);
    }
    size_t written = 0;
    for (size_t i = 0; i < BUFFER; i++) {
        written += target[i] != 0;
    }
    assert_in_range(written, bytes / 2, placed ? bytes : HEAD + bytes);
}

static void data_goes_to_its_place_without_its_head(void **state)
{
    static const char *const split[] = { "0", "1" };
    (void)state;
    for (int s = 0; s < 2; s++) {
        struct pair pair;
        use("4", split[s]);
        pair_open(&pair, ROCE);
        for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + 1) {
            move_apart(&pair, bytes, bytes, 1, 1);
            move_apart(&pair, bytes, bytes, 0, 0); /* the receiver needs the head */
            move_apart(&pair, bytes, bytes + 1, 1, 0);
            move_apart(&pair, bytes, bytes > 1 ? bytes - 1 : 5, 1, 0);
        }
        fake.writes = 0;
        move_apart(&pair, 300000, 300000, 1, 1);
        /* The clear-to-send, and as many writes as without a place. */
        assert_int_equal(fake.writes, s ? 5 : 2);
        pair_close(&pair);
    }
}

static void a_place_is_checked_like_other_memory(void **state)
{
    struct pair pair;
    void *request;
    (void)state;
    pair_open(&pair, ROCE);
    const struct rondo_net_span whole = { .data = target, .bytes = 100, .region = pair.to };
    struct rondo_net_span place = { .data = target + 200, .bytes = 0, .region = pair.to };
    assert_int_equal(dev->irecv_into(pair.recv, &whole, &place, 4, &request), RONDO_INVALID_ARGUMENT);
    place = (struct rondo_net_span){ .data = target + BUFFER - 10, .bytes = 11, .region = pair.to };
    assert_int_equal(dev->irecv_into(pair.recv, &whole, &place, 4, &request), RONDO_INVALID_ARGUMENT);
    assert_null(request);
    pair_close(&pair);
}

static void split_messages_fill_lanes_in_stripes_of_128_bytes(void **state)
{
    static const struct {
        size_t bytes, stripe[4]; /* on each of four lanes */
    } rows[] = {
        { 0, { 0 } },
        { 1, { 1 } },
        { 128, { 128 } },
        { 129, { 128, 1 } },
        { 512, { 128, 128, 128, 128 } },
        { 513, { 256, 256, 1 } },
        { 1000, { 256, 256, 256, 232 } },
        { BUFFER, { BUFFER / 4, BUFFER / 4, BUFFER / 4, BUFFER / 4 } },
    };
    struct pair pair;
    (void)state;
    use("4", "1");
    pair_open(&pair, ROCE);
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        uint64_t at = (uintptr_t)target;
        int stripes = 1;
        fake.writes = 0;
        assert_int_equal(move(&pair, rows[i].bytes), RONDO_SUCCESS);
        while (stripes < 4 && rows[i].stripe[stripes] > 0) {
            stripes++;
        }
        assert_int_equal(fake.writes, 1 + stripes);
        for (int k = 0; k < stripes; k++) {
            const struct fake_write *write = &fake.write[1 + k];
            assert_int_equal(write->qpn, qpn_of(pair.send, (int)(i + (size_t)k) % 4));
            assert_int_equal(write->opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
            assert_int_equal(write->bytes, rows[i].stripe[k]);
            assert_true(write->bytes == 0 || write->to == at);
            at += write->bytes;
        }
    }
    pair_close(&pair);
}

/* Where packets may arrive in any order, each lane with a long stripe reports its own end. */
static void stripes_over_infiniband_have_separate_last_writes(void **state)
{
    struct pair pair;
    (void)state;
    use("2", "1");
    pair_open(&pair, IB);
    fake.writes = 0;
    assert_int_equal(move(&pair, 16384), RONDO_SUCCESS);
    assert_int_equal(fake.writes, 1 + 2); /* two stripes of 8192 bytes */
    fake.writes = 0;
    assert_int_equal(move(&pair, 2 * 8320 - 1), RONDO_SUCCESS);
    assert_int_equal(fake.writes, 1 + 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fake.write[1 + i].opcode,
                         i % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM);
        assert_int_equal(fake.write[1 + i].bytes, i == 0 ? 8320 : i == 2 ? 8319 : 0);
        assert_int_equal(fake.write[1 + i].qpn, qpn_of(pair.send, (1 + i / 2) % 2));
    }
    pair_close(&pair);
}

/* ---- completions in any order ---- */

static void a_message_is_not_complete_before_all_its_stripes_are(void **state)
{
    (void)state;
    for (int end = 0; end < 2; end++) {
        for (int lane = 0; lane < 3; lane++) {
            struct pair pair;
            void *in, *out;
            use("3", "1");
            pair_open(&pair, ROCE);
            in = receive(&pair, 0, 1000, 0);
            out = give(&pair, 0, 1000, 0);
            fake.hold_qpn = qpn_of(end == 0 ? pair.recv : pair.send, lane);
            assert_int_equal(wait_for(end == 0 ? in : out, NULL), RONDO_IN_PROGRESS);
            assert_int_equal(wait_for(end == 0 ? out : in, NULL), RONDO_SUCCESS);
            fake.hold_qpn = 0;
            assert_int_equal(wait_for(end == 0 ? in : out, NULL), RONDO_SUCCESS);
            assert_memory_equal(source, target, 1000);
            pair_close(&pair);
        }
    }
}

/* The lane of the second message is faster. */
static void messages_in_turn_complete_in_their_order(void **state)
{
    struct pair pair;
    void *in[2], *out[2];
    size_t got;
    (void)state;
    use("2", "0");
    pair_open(&pair, ROCE);
    for (int i = 0; i < 2; i++) {
        in[i] = receive(&pair, (size_t)i * 5000, 5000, 7);
        out[i] = give(&pair, (size_t)i * 5000, 4000 + (size_t)i, 7);
    }
    fake.hold_qpn = qpn_of(pair.recv, 0);
    assert_int_equal(wait_for(in[1], NULL), RONDO_IN_PROGRESS);
    fake.hold_qpn = 0;
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(wait_for(in[i], &got), RONDO_SUCCESS);
        assert_int_equal(wait_for(out[i], NULL), RONDO_SUCCESS);
        assert_int_equal(got, 4000 + i);
        assert_memory_equal(source + i * 5000, target + i * 5000, got);
    }
    pair_close(&pair);
}

/* A slot stays in use until its own clear-to-send is complete, even if later ones are. */
static void a_slow_clear_to_send_keeps_its_slot(void **state)
{
    struct pair pair;
    void *in[RONDO_VERBS_SLOTS], *out;
    (void)state;
    use("2", "0");
    pair_open(&pair, ROCE);
    for (int i = 0; i < RONDO_VERBS_SLOTS; i++) {
        in[i] = receive(&pair, 0, 8, 0);
        out = give(&pair, 0, 8, 0);
        assert_int_equal(wait_for(out, NULL), RONDO_SUCCESS);
    }
    fake.hold_sends = 1; /* messages arrive, but no answers to clear-to-sends */
    for (int i = 0; i < RONDO_VERBS_SLOTS; i++) {
        assert_int_equal(wait_for(in[i], NULL), RONDO_SUCCESS);
    }
    fake.hold_sends = 0;
    fake.hold_qpn = qpn_of(pair.recv, 0);
    assert_null(receive(&pair, 0, 8, 0)); /* it sees only the answers of lane 1 */
    assert_int_equal(end_of(pair.recv)->cts_open, 0x55555555);
    assert_null(receive(&pair, 0, 8, 0));
    fake.hold_qpn = 0;
    assert_null(receive(&pair, 0, 8, 0));
    assert_int_equal(end_of(pair.recv)->cts_open, 0);
    assert_non_null(receive(&pair, 0, 8, 0));
    pair_close(&pair);
}

static uint32_t random_next(uint32_t *random)
{
    *random ^= *random << 13, *random ^= *random >> 17, *random ^= *random << 5;
    return *random;
}

/* Send as many messages as fit, of any size, alone and in groups, while lanes stop and overtake others. */
static void storm_round(struct pair *pair, uint32_t *random)
{
    enum { N = 12, PARTS = 3, ROOM = BUFFER / (N * PARTS) };
    void *in[N], *out[N][PARTS];
    size_t sent[N][PARTS], got[PARTS];
    int parts[N], lanes = end_of(pair->recv)->nlanes;
    memset(target, 0, sizeof target);
    for (int i = 0; i < N; i++) {
        void *data[PARTS], *regions[PARTS] = { pair->to, pair->to, pair->to };
        size_t room[PARTS];
        int tags[PARTS] = { 0, 1, 2 };
        parts[i] = random_next(random) % 3 == 0 && i < 9 ? PARTS : 1;
        for (int k = 0; k < PARTS; k++) {
            data[k] = target + (i * PARTS + k) * ROOM;
            room[k] = ROOM;
        }
        fake.hold_qpn = 0;
        assert_int_equal(dev->irecv(pair->recv, parts[i], data, room, tags, regions, &in[i]), RONDO_SUCCESS);
        assert_non_null(in[i]);
        fake.hold_qpn = qpn_of(random_next(random) % 2 ? pair->recv : pair->send,
                               (int)(random_next(random) % (unsigned)lanes));
        for (int k = 0; k < parts[i]; k++) {
            uint32_t kind = random_next(random) % 4;
            sent[i][k] = kind == 0 ? 0 : kind == 1 ? random_next(random) % 300 : random_next(random) % ROOM;
            out[i][k] = give(pair, (size_t)(i * PARTS + k) * ROOM, sent[i][k], k);
            assert_non_null(out[i][k]);
        }
        rondo_verbs_progress(pair->recv);
        rondo_verbs_progress(pair->send);
    }
    fake.hold_qpn = 0;
    for (int i = N - 1; i >= 0; i--) {
        assert_int_equal(wait_for(in[i], got), RONDO_SUCCESS);
        for (int k = 0; k < parts[i]; k++) {
            assert_int_equal(wait_for(out[i][k], NULL), RONDO_SUCCESS);
            assert_int_equal(got[k], sent[i][k]);
            assert_memory_equal(source + (i * PARTS + k) * ROOM, target + (i * PARTS + k) * ROOM, got[k]);
        }
    }
}

static void messages_are_right_in_any_order_among_queue_pairs(void **state)
{
    static const char *const counts[] = { "1", "2", "3", "5", "8" };
    uint32_t random = 2463534242u;
    (void)state;
    for (size_t c = 0; c < RONDO_COUNTOF(counts); c++) {
        for (int kind = 0; kind < 4; kind++) {
            struct pair pair;
            use(counts[c], kind & 1 ? "1" : "0");
            pair_open(&pair, kind & 2 ? IB : ROCE);
            for (int round = 0; round < 12; round++) {
                fake.newest_first = round & 1;
                storm_round(&pair, &random);
            }
            fake.newest_first = 0;
            pair_close(&pair);
        }
    }
}

/* ---- errors ---- */

static void an_error_names_its_queue_pair(void **state)
{
    char text[40];
    struct pair pair;
    void *out;
    (void)state;
    use("3", "0");
    pair_open(&pair, ROCE);
    assert_int_equal(move(&pair, 10), RONDO_SUCCESS);
    receive(&pair, 0, 10, 0);
    fake.send_status = IBV_WC_RETRY_EXC_ERR;
    out = give(&pair, 0, 10, 0);
    assert_int_equal(wait_for(out, NULL), RONDO_REMOTE_ERROR);
    for (int end = 0; end < 2; end++) {
        snprintf(text, sizeof text, "queue pair %u)", qpn_of(end ? pair.recv : pair.send, 1));
        assert_says(text);
    }
    pair_close(&pair);
}

static rondo_status life_of_three(void)
{
    struct pair pair;
    rondo_status status = pair_try(&pair, ROCE, RONDO_NET_HOST);
    for (int i = 0; i < 3 && status == RONDO_SUCCESS; i++) {
        status = move(&pair, 9000);
    }
    pair_close(&pair);
    return status;
}

static void calls_that_fail_with_several_lanes_leave_nothing(void **state)
{
    static const enum fake_verb calls[] = { FAKE_QP, FAKE_MODIFY, FAKE_POST_SEND, FAKE_POST_RECV };
    (void)state;
    setenv("RONDO_IB_USE_INLINE", "1", 1);
    use("3", "1");
    unsetenv("RONDO_IB_USE_INLINE");
    for (size_t i = 0; i < RONDO_COUNTOF(calls); i++) {
        int nth = 1, failed;
        do {
            fake.fail_in[calls[i]] = nth++;
            fake.fail_errno = EIO;
            rondo_status status = life_of_three();
            failed = fake.fail_in[calls[i]] == 0;
            fake.fail_in[calls[i]] = 0;
            assert_int_equal(status == RONDO_SUCCESS, !failed);
            assert_true(!failed || strstr(rondo_error_text(), "kernel's log") != NULL);
        } while (failed);
        assert_true(nth > 6);
    }
}

static void word_of_anything(void *comm, int lane, uint32_t imm)
{
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                              .imm_data = htonl(imm),
                              .send_flags = IBV_SEND_SIGNALED },
                       *bad;
    assert_int_equal(ibv_post_send(end_of(comm)->lane[lane].qp, &wr, &bad), 0);
}

/* A broken or hostile sender sends words with different sizes, and more words than messages. */
static void words_that_contradict_one_another_end_the_connection(void **state)
{
    struct pair pair;
    void *in;
    (void)state;
    use("2", "1");
    pair_open(&pair, ROCE);
    in = receive(&pair, 0, 1000, 0);
    word_of_anything(pair.send, 0, 1000);
    word_of_anything(pair.send, 1, 999);
    assert_int_equal(wait_for(in, NULL), RONDO_REMOTE_ERROR);
    assert_says("do not belong together");
    pair_close(&pair);
    pair_open(&pair, ROCE);
    assert_int_equal(move(&pair, 10), RONDO_SUCCESS); /* a receive stays posted on lane 1 */
    word_of_anything(pair.send, 1, 10);
    assert_int_equal(rondo_verbs_progress(pair.recv), RONDO_REMOTE_ERROR);
    assert_says("that no receive expects");
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_queue_pair_is_connected_with_its_other_end),
        TEST(the_lower_count_of_the_ends_is_used),
        TEST(whole_messages_go_in_turn),
        TEST(data_goes_to_its_place_without_its_head),
        TEST(a_place_is_checked_like_other_memory),
        TEST(split_messages_fill_lanes_in_stripes_of_128_bytes),
        TEST(stripes_over_infiniband_have_separate_last_writes),
        TEST(a_message_is_not_complete_before_all_its_stripes_are),
        TEST(messages_in_turn_complete_in_their_order),
        TEST(a_slow_clear_to_send_keeps_its_slot),
        TEST(messages_are_right_in_any_order_among_queue_pairs),
        TEST(an_error_names_its_queue_pair),
        TEST(calls_that_fail_with_several_lanes_leave_nothing),
        TEST(words_that_contradict_one_another_end_the_connection),
    };
    setenv("RONDO_DEBUG", "NONE", 1); /* these tests provoke errors */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
