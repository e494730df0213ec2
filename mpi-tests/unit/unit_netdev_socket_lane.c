/* The socket net device: a sender and a receiver between the same two ranks share a connection, over which
 * one of them has a lane. */
#include "netdev_socket_world.h"

enum { N_FLIGHT = 4, LARGEST = 300000, ROUNDS = 200 };

/* One of two ends in this process, with its comms in both directions. */
struct side {
    int rank, owner;
    struct rondo_socket_comm *send, *recv;
    char to_receiver[RONDO_NET_HANDLE], to_sender[RONDO_NET_HANDLE]; /* the handles of send and recv */
};

static void side_prepare(struct side *side, int owned)
{
    struct rondo_net_peer peer = some_peer;
    peer.rank = !side->rank;
    peer.self = side->rank;
    peer.owner = owned ? &side->owner : NULL;
    assert_int_equal(net->prepare(0, &peer, 0, (void **)&side->recv, side->to_sender), RONDO_SUCCESS);
    assert_int_equal(net->prepare(0, &peer, 1, (void **)&side->send, side->to_receiver), RONDO_SUCCESS);
}

static void sides_connect(struct side side[2])
{
    int64_t start = rondo_now_ns();
    int open = 1;
    while (open) {
        open = 0;
        for (int i = 0; i < 2; i++) {
            rondo_status recv = net->connect(side[i].recv, side[!i].to_receiver),
                         send = net->connect(side[i].send, side[!i].to_sender);
            assert_true((recv == RONDO_SUCCESS || recv == RONDO_IN_PROGRESS) &&
                        (send == RONDO_SUCCESS || send == RONDO_IN_PROGRESS));
            open |= recv != RONDO_SUCCESS || send != RONDO_SUCCESS;
        }
        end_of_patience(start);
    }
}

static void sides_open(struct side side[2], const char *nconns, int owned_a, int owned_b)
{
    memset(side, 0, 2 * sizeof side[0]);
    use_loop(nconns);
    side[1].rank = 1;
    side_prepare(&side[0], owned_a);
    side_prepare(&side[1], owned_b);
    sides_connect(side);
}

static void sides_close(struct side side[2])
{
    for (int i = 0; i < 2; i++) {
        net->close(side[i].send);
        net->close(side[i].recv);
    }
}

/* @return the end whose sender has the lane; the receiver at the other end has it too. */
static struct side *lane_from(struct side side[2])
{
    struct side *from = side[0].send->lane ? &side[0] : &side[1], *to = from == side ? &side[1] : &side[0];
    assert_int_not_equal(from->send->lane, 0);
    assert_int_not_equal(to->recv->lane, 0);
    assert_int_equal(from->recv->lane, 0);
    assert_int_equal(to->send->lane, 0);
    return from;
}

/* Send one message of this size, and check all of its bytes. */
static void pass(struct side *from, struct side *to, size_t bytes, unsigned seed)
{
    static uint8_t sent[LARGEST], came[LARGEST];
    size_t arrived = 0;
    pattern(sent, bytes, seed);
    memset(came, 0, bytes);
    void *receiving = receive_one(to->recv, came, sizeof came, 5);
    finish(send_some(from->send, sent, bytes, 5), receiving, &arrived);
    assert_int_equal(arrived, bytes);
    assert_memory_equal(sent, came, bytes);
}

static uint32_t segments(const struct rondo_socket_comm *comm)
{
    struct tcp_info info = { 0 };
    socklen_t bytes = sizeof info;
    assert_int_equal(getsockopt(comm->conn[comm->lane].fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    return info.tcpi_segs_out;
}

/* @return the packets for ROUNDS messages of 8 bytes each way, sent one by one. */
static uint32_t packets(struct side side[2])
{
    uint32_t before = 0, after = 0;
    for (int i = 0; i < 2; i++) {
        before += segments(side[i].send) + segments(side[i].recv);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        pass(&side[0], &side[1], 8, i);
        pass(&side[1], &side[0], 8, i);
    }
    for (int i = 0; i < 2; i++) {
        after += segments(side[i].send) + segments(side[i].recv);
    }
    return after - before;
}

static void acknowledgements_ride_on_data(void **state)
{
    struct side side[2];
    (void)state;
    sides_open(side, "1", 1, 1);
    struct side *from = lane_from(side);
    assert_int_equal(from->send->conn[from->send->lane].fd, from->recv->conn[0].fd);
    pass(&side[0], &side[1], 8, 1);
    pass(&side[1], &side[0], 8, 1);
    uint32_t together = packets(side) / 2; /* both comms of an end count the same connection */
    sides_close(side);
    sides_open(side, "1", 0, 0);
    uint32_t apart = packets(side);
    sides_close(side);
    /* One packet a message, and a few more by timers. */
    assert_in_range(together, 2 * ROUNDS, 2 * ROUNDS + ROUNDS / 4);
    assert_true(apart > together + ROUNDS / 2);
}

static void ends_share_only_if_both_have_a_reverse_comm(void **state)
{
    struct side side[2];
    (void)state;
    for (int owned = 0; owned < 3; owned++) {
        sides_open(side, "1", owned == 1, owned == 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(side[i].send->lane | side[i].recv->lane, 0);
        }
        pass(&side[0], &side[1], 8, 1);
        pass(&side[1], &side[0], 2000, 1);
        sides_close(side);
    }
}

/* Several messages are in flight each way, small and large in any order. Each arrives where it belongs. */
static void small_and_large_messages_keep_their_order(void **state)
{
    static const size_t sizes[] = { 0,    8,     1024,   RONDO_SOCKET_SMALL, RONDO_SOCKET_SMALL + 1,
                                    5000, 70000, LARGEST };
    static uint8_t sent[2][N_FLIGHT][LARGEST], came[2][N_FLIGHT][LARGEST];
    const char *const nconns[] = { "1", "3" };
    uint64_t random = 1;
    (void)state;
    for (size_t c = 0; c < RONDO_COUNTOF(nconns); c++) {
        struct side side[2];
        sides_open(side, nconns[c], 1, 1);
        lane_from(side);
        for (int round = 0; round < ROUNDS; round++) {
            void *sending[2][N_FLIGHT], *receiving[2][N_FLIGHT];
            size_t bytes[2][N_FLIGHT], arrived;
            for (int k = 0; k < 2 * N_FLIGHT; k++) {
                int way = k & 1, i = k / 2;
                random = random * 6364136223846793005ull + 1442695040888963407ull;
                bytes[way][i] = sizes[(random >> 33) % (round % 3 == 0 ? RONDO_COUNTOF(sizes) : 6)];
                pattern(sent[way][i], bytes[way][i], (unsigned)(round + k));
                receiving[way][i] = receive_one(side[!way].recv, came[way][i], LARGEST, i);
                sending[way][i] = send_some(side[way].send, sent[way][i], bytes[way][i], i);
            }
            for (int k = 0; k < 2 * N_FLIGHT; k++) {
                int way = k & 1, i = k / 2;
                finish(sending[way][i], receiving[way][i], &arrived);
                assert_int_equal(arrived, bytes[way][i]);
                assert_memory_equal(sent[way][i], came[way][i], arrived);
            }
        }
        sides_close(side);
    }
}

/* Whichever comm closes first, its reverse comm goes on, and the other end of the closed one fails. */
static void reverse_comms_close_in_any_order(void **state)
{
    uint8_t byte;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    for (int first = 0; first < 4; first++) {
        struct side side[2];
        sides_open(side, "1", 1, 1);
        struct side *a = &side[first / 2], *b = &side[!(first / 2)];
        pass(a, b, 8, 1);
        pass(b, a, 8, 1);
        if (first % 2) {
            net->close(a->send);
            assert_int_equal(failure_of(receive_one(b->recv, &byte, 1, 0)), RONDO_REMOTE_ERROR);
            pass(b, a, 8, 2);
            net->close(a->recv);
        } else {
            net->close(a->recv);
            pass(a, b, 8, 2);
            net->close(a->send);
        }
        net->close(b->send);
        net->close(b->recv);
    }
}

/* Data that was sent before a comm closed arrives, although the reverse comm closes as well. */
static void data_sent_before_the_close_arrives(void **state)
{
    static uint8_t data[LARGEST], came[LARGEST];
    (void)state;
    pattern(data, LARGEST, 3);
    for (int i = 0; i < 2; i++) {
        struct side side[2];
        size_t arrived = 0;
        int done = 0;
        int64_t start = rondo_now_ns();
        sides_open(side, "1", 1, 1);
        void *sending = send_some(side[i].send, data, 1000, 0), *receiving;
        while (!done) {
            assert_int_equal(net->test(sending, &done, NULL), RONDO_SUCCESS);
            end_of_patience(start);
        }
        net->close(side[i].send);
        net->close(side[i].recv);
        receiving = receive_one(side[!i].recv, came, sizeof came, 0);
        finish(NULL, receiving, &arrived);
        assert_int_equal(arrived, 1000);
        assert_memory_equal(data, came, 1000);
        net->close(side[!i].send);
        net->close(side[!i].recv);
    }
}

static int loop_up(int up)
{
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = (short)(up ? IFF_UP | IFF_RUNNING : 0) };
    int fd = socket(AF_INET, SOCK_DGRAM, 0), result = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return result;
}

/* Nobody can acknowledge the last message, which suspends TCP keepalive. Its sender waits for the answer on
 * the same connection. */
static int cut_link(void *arg)
{
    struct side side[2];
    uint8_t byte = 0;
    int i = *(int *)arg;
    if ((unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) || loop_up(1) != 0) {
        return SKIPPED;
    }
    set_param("RONDO_SOCKET_TIMEOUT", "2s");
    sides_open(side, "1", 1, 1);
    pass(&side[0], &side[1], 8, 1);
    pass(&side[1], &side[0], 8, 1);
    if (loop_up(0) != 0) {
        return SKIPPED;
    }
    send_some(side[i].send, &byte, 1, 0);
    int64_t start = rondo_now_ns();
    rondo_status status = failure_of(receive_one(side[i].recv, &byte, 1, 0));
    return status != RONDO_REMOTE_ERROR ? 1 : (rondo_now_ns() - start) / 1000000 > 8000 ? 2 : 0;
}

static void a_dead_link_is_noticed_while_waiting_for_an_answer(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int code = in_child(cut_link, &i);
        if (code == SKIPPED) {
            print_message("skipped: no network namespace can be made\n");
            skip();
        }
        assert_int_equal(code, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(acknowledgements_ride_on_data),
        ROW(ends_share_only_if_both_have_a_reverse_comm),
        ROW(small_and_large_messages_keep_their_order),
        ROW(reverse_comms_close_in_any_order),
        ROW(data_sent_before_the_close_arrives),
        ROW(a_dead_link_is_noticed_while_waiting_for_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
