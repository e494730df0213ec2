/* The socket net device: how many system calls a message takes. The functions below count the calls. */
#include "netdev_socket_world.h"
#include <sys/syscall.h>

enum { BYTES = 64 << 10 };
static int calls;

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    calls++;
    return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    calls++;
    return syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
}

ssize_t sendmsg(int fd, const struct msghdr *header, int flags)
{
    calls++;
    return syscall(SYS_sendmsg, fd, header, flags);
}

ssize_t recvmsg(int fd, struct msghdr *header, int flags)
{
    calls++;
    return syscall(SYS_recvmsg, fd, header, flags);
}

/* Wait until this many bytes are at the receiver's socket. */
static void await_bytes(void *comm, size_t bytes)
{
    int64_t start = rondo_now_ns();
    int waiting = 0;
    while ((size_t)waiting < bytes) {
        assert_int_equal(ioctl(((struct rondo_socket_comm *)comm)->conn[0].fd, FIONREAD, &waiting), 0);
        end_of_patience(start);
    }
}

/* @return the receiver's calls once all data has arrived; *sender: the sender's. */
static int cost_of(struct pair *pair, size_t bytes, int *sender)
{
    static uint8_t from[BYTES], to[BYTES];
    size_t arrived;
    int done;
    pattern(from, bytes, (unsigned)bytes);
    memset(to, 0, bytes);
    calls = 0;
    void *sending = send_some(pair->sender, from, bytes, 1);
    assert_int_equal(net->test(sending, &done, NULL), RONDO_SUCCESS);
    assert_int_equal(done, 1);
    *sender = calls;
    await_bytes(pair->receiver, bytes + sizeof(struct rondo_socket_frame));
    void *receiving = receive_one(pair->receiver, to, sizeof to, 1);
    calls = 0;
    assert_int_equal(net->test(receiving, &done, &arrived), RONDO_SUCCESS);
    assert_int_equal(done, 1);
    assert_int_equal(arrived, bytes);
    assert_memory_equal(from, to, bytes);
    return calls;
}

static void a_message_is_one_call_at_each_end(void **state)
{
    static const size_t sizes[] = { 0, 8, 1008, 4096, 4097, 8192, 16384, 32768 };
    struct pair pair;
    int sender;
    (void)state;
    use_loop("1");
    pair_open(&pair);
    for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
        for (int again = 0; again < 3; again++) { /* from the second one on, the receiver knows the length */
            int receiver = cost_of(&pair, sizes[i], &sender);
            assert_int_equal(sender, 1);
            assert_in_range(receiver, 1, again > 0 || sizes[i] <= 4096 ? 1 : 2);
        }
    }
    pair_close(&pair);
}

static void waiting_messages_share_calls(void **state)
{
    enum { N = 8 };
    struct pair pair;
    void *sending[N], *receiving[N];
    uint8_t to[N];
    int done;
    (void)state;
    use_loop("1");
    pair_open(&pair);
    for (int i = 0; i < N; i++) {
        sending[i] = send_some(pair.sender, "abcdefgh" + i, 1, i);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(net->test(sending[i], &done, NULL), RONDO_SUCCESS);
        receiving[i] = receive_one(pair.receiver, &to[i], 1, i);
    }
    await_bytes(pair.receiver, N * (1 + sizeof(struct rondo_socket_frame)));
    calls = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(net->test(receiving[i], &done, NULL), RONDO_SUCCESS);
        assert_int_equal(done, 1);
    }
    assert_int_equal(calls, 1);
    assert_memory_equal(to, "abcdefgh", N);
    pair_close(&pair);
}

static void a_test_without_data_is_one_call(void **state)
{
    struct pair pair;
    void *receiving;
    uint8_t to[8];
    int done;
    (void)state;
    use_loop("4");
    pair_open(&pair);
    receiving = receive_one(pair.receiver, to, sizeof to, 0);
    calls = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(net->test(receiving, &done, NULL), RONDO_SUCCESS);
        assert_int_equal(done, 0);
    }
    assert_int_equal(calls, 100); /* one each, although there are 4 connections */
    pair_close(&pair);
}

/* accept() looks for a descriptor before it looks for a connection. */
static int last_descriptor(void *arg)
{
    struct pair pair;
    struct rlimit limit;
    (void)arg;
    use_loop("1");
    pair_prepare(&pair);
    struct rondo_socket_device *device = ((struct rondo_socket_comm *)pair.receiver)->device;
    int fd = stranger(pair.receiver), next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)next + 1;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (device->nunnamed == 0) {
        if (net->connect(pair.receiver, pair.to_receiver) != RONDO_IN_PROGRESS ||
            dropped(pair.receiver) != 0) {
            return 1;
        }
    }
    close(fd);
    return device->accept_errno != 0;
}

static void the_last_descriptor_is_enough_for_the_last_connection(void **state)
{
    (void)state;
    assert_int_equal(in_child(last_descriptor, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_message_is_one_call_at_each_end),
        ROW(waiting_messages_share_calls),
        ROW(a_test_without_data_is_one_call),
        ROW(the_last_descriptor_is_enough_for_the_last_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
