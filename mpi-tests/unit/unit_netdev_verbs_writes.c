/* net/verbs/verbs.h: one-sided writes that bring a word of immediate data, and perhaps a note (iwrite). */
#include "verbs_pair.h"

static void use(const char *lanes, const char *split)
{
    setenv("RONDO_IB_SPLIT_DATA_ON_QPS", split, 1);
    set("RONDO_IB_QPS_PER_CONNECTION", lanes);
    unsetenv("RONDO_IB_SPLIT_DATA_ON_QPS");
}

static uint8_t note_byte(uint32_t word, int i) { return (uint8_t)(word * 5 + (uint32_t)i); }

static void *begin_write(struct pair *pair, uint32_t word, size_t at, size_t bytes, int has_note)
{
    const struct rondo_net_span data = { .data = source + at, .bytes = bytes, .region = pair->from };
    const struct rondo_net_target to = { (uintptr_t)target + at, dev->key(pair->to) };
    uint8_t note[RONDO_NET_NOTE];
    void *request;
    for (int i = 0; i < RONDO_NET_NOTE; i++) {
        note[i] = note_byte(word, i);
    }
    assert_int_equal(dev->iwrite(pair->send, &data, &to, word, has_note ? note : NULL, &request),
                     RONDO_SUCCESS);
    return request;
}

static void check_came(const struct rondo_net_came *came, uint32_t word, size_t at, size_t bytes,
                       int has_note)
{
    assert_int_equal(came->word, word);
    assert_int_equal(came->has_note, has_note);
    assert_int_equal(came->bytes, has_note ? bytes : 0);
    for (int i = 0; i < RONDO_NET_NOTE && has_note; i++) {
        assert_int_equal(came->note[i], note_byte(word, i));
    }
    assert_memory_equal(source + at, target + at, bytes);
}

static void write_one(struct pair *pair, uint32_t word, size_t at, size_t bytes, int has_note)
{
    struct rondo_net_came came;
    void *in, *out;
    assert_int_equal(dev->irecv_word(pair->recv, &came, 0, &in), RONDO_SUCCESS);
    out = begin_write(pair, word, at, bytes, has_note);
    assert_non_null(out);
    assert_int_equal(wait_for(out, NULL), RONDO_SUCCESS);
    assert_int_equal(wait_for(in, NULL), RONDO_SUCCESS);
    check_came(&came, word, at, bytes, has_note);
    memset(target + at, 0, bytes);
}

/* ---- tests ---- */

static void a_write_brings_its_word_in_network_byte_order(void **state)
{
    static const uint32_t words[] = { 0xffffffff, 0xfffffffe, 0xfffffffd, 0x80000001, 1, 0 };
    struct pair pair;
    (void)state;
    pair_open(&pair, ROCE);
    for (size_t i = 0; i < RONDO_COUNTOF(words); i++) {
        fake.writes = 0;
        write_one(&pair, words[i], 1000 * i, 100 * i, 0);
        assert_int_equal(fake.writes, 2); /* the clear-to-send, and the write */
        assert_int_equal(fake.last_write.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
        assert_int_equal(fake.last_write.imm_data, htonl(words[i]));
        assert_int_equal(fake.write[1].bytes, 100 * i);
        fake.writes = 0;
        write_one(&pair, words[i], 1000 * i, 100 * i, 1);
        assert_int_equal(fake.writes, i > 0 ? 3 : 2); /* and the note, which has the word */
        assert_int_equal(fake.last_write.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
        assert_int_equal(fake.last_write.imm_data, htonl(words[i]));
        assert_int_equal(fake.write[fake.writes - 1].bytes, sizeof(uint64_t) + RONDO_NET_NOTE);
        assert_int_equal(fake.write[1].opcode, i > 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM);
    }
    pair_close(&pair);
}

static void a_write_with_a_note_is_spread_over_queue_pairs(void **state)
{
    struct pair pair;
    (void)state;
    use("4", "1");
    pair_open(&pair, ROCE);
    for (size_t bytes = 0; bytes < 300000; bytes = bytes * 3 + 1) {
        write_one(&pair, (uint32_t)bytes, 77, bytes, 1);
        write_one(&pair, (uint32_t)bytes, 77, bytes, 0);
    }
    fake.writes = 0;
    write_one(&pair, 9, 0, 400000, 1);
    assert_int_equal(fake.writes, 1 + 1 + 4); /* the clear-to-send, the note, four stripes */
    fake.writes = 0;
    write_one(&pair, 9, 0, 400000, 0);
    assert_int_equal(fake.writes, 2); /* nobody could tell how many stripes there are */
    pair_close(&pair);
}

/* All that a connection may have under way. notes: how many of two have one. more: they are allowed together.
 */
static void write_thirty_two(int notes, int more)
{
    struct rondo_net_came came[RONDO_NET_MAX_REQUESTS];
    void *in[RONDO_NET_MAX_REQUESTS], *out[RONDO_NET_MAX_REQUESTS], *none;
    struct pair pair;
    pair_open(&pair, ROCE);
    for (int round = 0; round < 5; round++) {
        assert_null(begin_write(&pair, 0, 0, 10, 0)); /* nothing was allowed */
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
            assert_int_equal(
                dev->irecv_word(pair.recv, &came[i], more && i < RONDO_NET_MAX_REQUESTS - 1, &in[i]),
                RONDO_SUCCESS);
            assert_non_null(in[i]);
        }
        assert_int_equal(dev->irecv_word(pair.recv, &came[0], 0, &none), RONDO_SUCCESS);
        assert_null(none);
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
            out[i] = begin_write(&pair, (uint32_t)(round * 100 + i), (size_t)i * 1000, 900, i % 2 < notes);
            assert_non_null(out[i]);
        }
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
            assert_int_equal(wait_for(out[i], NULL), RONDO_SUCCESS);
            assert_int_equal(wait_for(in[i], NULL), RONDO_SUCCESS);
            check_came(&came[i], (uint32_t)(round * 100 + i), (size_t)i * 1000, 900, i % 2 < notes);
        }
        memset(target, 0, BUFFER);
    }
    pair_close(&pair);
}

static void thirty_two_writes_are_under_way_and_complete_in_order(void **state)
{
    (void)state;
    use("3", "0");
    write_thirty_two(1, 0);
    write_thirty_two(1, 1);
}

/* Several are allowed by one write: up to the end of the block, and when there is no room for more. */
static void writes_are_allowed_together(void **state)
{
    struct rondo_net_came came[RONDO_NET_MAX_REQUESTS];
    void *in[RONDO_NET_MAX_REQUESTS], *none;
    struct pair pair;
    (void)state;
    for (int lanes = 1; lanes <= 3; lanes += 2) {
        int allowed = 0, written = 0, received = 0;
        use(lanes == 1 ? "1" : "3", "0");
        pair_open(&pair, ROCE);
        for (int n = 1; n <= 24; n += n % 7 + 1) {
            int around = allowed % RONDO_NET_MAX_REQUESTS + n > RONDO_NET_MAX_REQUESTS;
            fake.writes = 0;
            for (int i = 0; i < n; i++, allowed++) {
                int at = allowed % RONDO_NET_MAX_REQUESTS;
                assert_int_equal(dev->irecv_word(pair.recv, &came[at], i < n - 1, &in[at]), RONDO_SUCCESS);
                assert_non_null(in[at]);
            }
            assert_int_equal(fake.writes, 1 + around);
            for (; written < allowed; written++) {
                void *out = begin_write(&pair, (uint32_t)written, 0, 10, written % 2);
                assert_non_null(out);
                assert_int_equal(wait_for(out, NULL), RONDO_SUCCESS);
            }
            assert_null(begin_write(&pair, 0, 0, 10, 0)); /* no more was allowed */
            for (; received < allowed; received++) {
                int at = received % RONDO_NET_MAX_REQUESTS;
                assert_int_equal(wait_for(in[at], NULL), RONDO_SUCCESS);
                check_came(&came[at], (uint32_t)received, 0, 10, received % 2);
            }
        }
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++, allowed++) {
            int at = allowed % RONDO_NET_MAX_REQUESTS;
            assert_int_equal(dev->irecv_word(pair.recv, &came[at], 1, &in[at]), RONDO_SUCCESS);
        }
        assert_int_equal(dev->irecv_word(pair.recv, &came[0], 1, &none), RONDO_SUCCESS);
        assert_null(none);
        for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) assert_non_null(begin_write(&pair, 0, 0, 10, 0));
        pair_close(&pair);
    }
}

/* Where the network reorders packets, data of a write does not announce itself. */
static void thirty_two_writes_have_room_in_a_network_that_reorders(void **state)
{
    (void)state;
    setenv("RONDO_IB_ADAPTIVE_ROUTING", "1", 1);
    setenv("RONDO_IB_AR_THRESHOLD", "0", 1);
    use("1", "0");
    unsetenv("RONDO_IB_ADAPTIVE_ROUTING");
    unsetenv("RONDO_IB_AR_THRESHOLD");
    write_thirty_two(0, 0);
    write_thirty_two(2, 1);
}

/* The receiver's NIC refuses what no key covers, and both ends are told. */
static void a_write_outside_what_was_allowed_changes_nothing_and_ends_the_connection(void **state)
{
    (void)state;
    for (int outside = 0; outside < 2; outside++) {
        const struct rondo_net_span data = { .data = source, .bytes = 100 };
        struct rondo_net_span span = data;
        struct rondo_net_target to;
        struct rondo_net_came came;
        struct pair pair;
        void *in, *out;
        pair_open(&pair, ROCE);
        span.region = pair.from;
        to = (struct rondo_net_target){ (uintptr_t)target + (outside ? BUFFER - 50 : 0),
                                        dev->key(pair.to) + (outside ? 0 : 1000) };
        assert_int_equal(dev->irecv_word(pair.recv, &came, 0, &in), RONDO_SUCCESS);
        assert_int_equal(dev->iwrite(pair.send, &span, &to, 1, NULL, &out), RONDO_SUCCESS);
        assert_int_equal(wait_for(out, NULL), RONDO_REMOTE_ERROR);
        assert_int_equal(wait_for(in, NULL), RONDO_SYSTEM_ERROR);
        assert_says("the other end wrote outside of what it was given");
        assert_int_equal(target[0], 0);
        assert_int_equal(target[BUFFER - 1], 0);
        pair_close(&pair);
    }
}

/* After unreg, the key is worth nothing. */
static void a_key_ends_with_its_region(void **state)
{
    struct rondo_net_target to;
    struct rondo_net_came came;
    struct pair pair;
    void *in, *out;
    (void)state;
    pair_open(&pair, ROCE);
    const struct rondo_net_span data = { .data = source, .bytes = 100, .region = pair.from };
    to = (struct rondo_net_target){ (uintptr_t)target, dev->key(pair.to) };
    assert_int_equal(dev->irecv_word(pair.recv, &came, 0, &in), RONDO_SUCCESS);
    assert_int_equal(dev->unreg(pair.recv, pair.to), RONDO_SUCCESS);
    assert_int_equal(dev->iwrite(pair.send, &data, &to, 1, NULL, &out), RONDO_SUCCESS);
    assert_int_equal(wait_for(out, NULL), RONDO_REMOTE_ERROR);
    assert_int_equal(target[0], 0);
    pair_close(&pair);
}

static void a_note_that_no_write_can_have_ends_the_connection(void **state)
{
    struct rondo_net_came came;
    struct pair pair;
    uint64_t size = (uint64_t)1 << 40;
    void *in;
    (void)state;
    use("2", "1");
    pair_open(&pair, ROCE);
    assert_int_equal(dev->irecv_word(pair.recv, &came, 0, &in), RONDO_SUCCESS);
    const struct rondo_verbs_comm *to = end_of(pair.recv);
    assert_int_equal(
        fake_verbs_poke((uintptr_t)to->memory->sizes[0], to->memory_mr->rkey, &size, sizeof size), 0);
    struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 0 };
    assert_int_equal(ibv_post_send(end_of(pair.send)->lane[0].qp, &wr, &bad), 0);
    assert_int_equal(wait_for(in, NULL), RONDO_REMOTE_ERROR);
    assert_says("longer than any");
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_write_brings_its_word_in_network_byte_order),
        TEST(a_write_with_a_note_is_spread_over_queue_pairs),
        TEST(thirty_two_writes_are_under_way_and_complete_in_order),
        TEST(writes_are_allowed_together),
        TEST(thirty_two_writes_have_room_in_a_network_that_reorders),
        TEST(a_write_outside_what_was_allowed_changes_nothing_and_ends_the_connection),
        TEST(a_key_ends_with_its_region),
        TEST(a_note_that_no_write_can_have_ends_the_connection),
    };
    setenv("RONDO_DEBUG", "NONE", 1); /* these tests provoke errors */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
