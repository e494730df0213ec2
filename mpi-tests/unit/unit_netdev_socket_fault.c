/* The socket net device with faults: strangers at the port, wrong messages, peers that end, dead links. */
#include "netdev_socket_world.h"

enum { MIB = 1 << 20 };

/* ---- strangers ---- */

static void a_wrong_secret_is_refused(void **state)
{
    struct rondo_net_peer other = some_peer;
    struct pair pair;
    void *liar;
    char handle[RONDO_NET_HANDLE];
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    other.secret[1] ^= 1ull << 63;
    assert_int_equal(net->prepare(0, &other, 1, &liar, handle), RONDO_SUCCESS);
    assert_int_equal(connect_one(liar, pair.to_sender), RONDO_REMOTE_ERROR);
    assert_says("the other end does not prove that it belongs to this communicator");
    assert_says("rank 3 on hostb at 127.0.0.1:");
    net->close(liar);
    assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_IN_PROGRESS);
    assert_int_equal(dropped(pair.receiver), 1);
    pair_connect(&pair); /* the stranger has not taken the sender's place */
    pair_close(&pair);
}

/* ---- proofs ---- */

struct transcript {
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
};

static struct rondo_auth_hello hello_of(const struct pair *pair)
{
    const struct rondo_socket_comm *sender = pair->sender, *receiver = pair->receiver;
    struct rondo_auth_hello hello = { .magic = RONDO_SOCKET_MAGIC,
                                      .version = RONDO_SOCKET_VERSION,
                                      .client = sender->cookie,
                                      .server = receiver->cookie,
                                      .client_rank = 3,
                                      .server_rank = 3 };
    assert_int_equal(rondo_auth_nonce(hello.nonce), RONDO_SUCCESS);
    return hello;
}

/* Say hello as the sender, and receive the welcome. */
static int greet(const struct pair *pair, struct transcript *said)
{
    int64_t start = rondo_now_ns();
    int fd = stranger(pair->receiver);
    ssize_t n;
    assert_int_equal(send(fd, &said->hello, sizeof said->hello, MSG_NOSIGNAL), sizeof said->hello);
    do {
        assert_int_equal(net->connect(pair->receiver, pair->to_receiver), RONDO_IN_PROGRESS);
        n = recv(fd, &said->welcome, sizeof said->welcome, MSG_DONTWAIT);
        end_of_patience(start);
    } while (n < 0 && errno == EAGAIN);
    assert_int_equal(n, sizeof said->welcome);
    assert_true(rondo_auth_prove(some_peer.secret, &said->hello, &said->welcome, said->proof));
    return fd;
}

static void expect_drop(const struct pair *pair, uint64_t drops)
{
    int64_t start = rondo_now_ns();
    while (dropped(pair->receiver) < drops) {
        assert_int_equal(net->connect(pair->receiver, pair->to_receiver), RONDO_IN_PROGRESS);
        end_of_patience(start);
    }
    assert_int_equal(dropped(pair->receiver), drops);
}

static void wrong_hellos_get_no_welcome(void **state)
{
    struct pair pair;
    char byte;
    (void)state;
    use_loop("2");
    pair_prepare(&pair);
    for (int wrong = 0; wrong < 7; wrong++) {
        struct rondo_auth_hello hello = hello_of(&pair);
        int fd = stranger(pair.receiver);
        size_t bytes = wrong == 6 ? sizeof hello - 1 : sizeof hello;
        hello.version += wrong == 0;
        hello.server = wrong == 1 ? hello.client : hello.server;
        hello.client_rank += wrong == 2;
        hello.server_rank += wrong == 3;
        hello.index = wrong == 4 ? 2 : 0;
        hello.magic += wrong == 5;
        assert_int_equal(send(fd, &hello, bytes, MSG_NOSIGNAL), bytes);
        shutdown(fd, SHUT_WR);
        expect_drop(&pair, (uint64_t)wrong + 1);
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
    pair_connect(&pair);
    pair_close(&pair);
}

/* Strangers who know all but the secret, and have heard what the sender said before. */
static void wrong_proofs_are_refused(void **state)
{
    enum { REPLAYED, WHOLLY_REPLAYED, REFLECTED, OF_ANOTHER_INDEX, OF_ANOTHER_RANK, HALF, WAYS };
    struct pair pair;
    char byte;
    (void)state;
    use_loop("2");
    pair_prepare(&pair);
    struct transcript old = { .hello = hello_of(&pair) };
    close(greet(&pair, &old));
    expect_drop(&pair, 1);
    for (int way = 0; way < WAYS; way++) {
        struct transcript now = { .hello = way == WHOLLY_REPLAYED ? old.hello : hello_of(&pair) }, other;
        int fd = greet(&pair, &now);
        other = now;
        other.hello.index = way == OF_ANOTHER_INDEX;
        other.hello.client_rank += way == OF_ANOTHER_RANK;
        if (way <= WHOLLY_REPLAYED) {
            memcpy(now.proof, old.proof, sizeof now.proof);
        } else if (way == REFLECTED) {
            memcpy(now.proof, now.welcome.proof, sizeof now.proof);
        } else if (way != HALF) {
            assert_int_equal(rondo_auth_answer(some_peer.secret, &other.hello, &other.welcome),
                             RONDO_SUCCESS);
            assert_true(rondo_auth_prove(some_peer.secret, &other.hello, &other.welcome, now.proof));
        }
        size_t bytes = way == HALF ? sizeof now.proof / 2 : sizeof now.proof;
        assert_int_equal(send(fd, now.proof, bytes, MSG_NOSIGNAL), bytes);
        shutdown(fd, SHUT_WR);
        expect_drop(&pair, (uint64_t)way + 2);
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
    pair_connect(&pair);
    pair_close(&pair);
}

/* A sender that has called and is busy elsewhere keeps its place, whatever strangers do. */
static void a_welcomed_sender_may_take_its_time(void **state)
{
    struct pair pair, late;
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    pair_prepare(&late);
    struct rondo_socket_device *device = ((struct rondo_socket_comm *)pair.receiver)->device;
    struct transcript said = { .hello = hello_of(&pair) };
    int fd = greet(&pair, &said), mute = stranger(pair.receiver);
    int64_t start = rondo_now_ns();
    while (device->nunnamed < 1) {
        assert_int_equal(net->connect(late.receiver, late.to_receiver), RONDO_IN_PROGRESS);
        end_of_patience(start);
    }
    device->oldest->since_ns -= rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS) + 1;
    device->newest->since_ns -= rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS) + 1;
    assert_int_equal(net->connect(late.receiver, late.to_receiver), RONDO_IN_PROGRESS);
    assert_int_equal(device->dropped[RONDO_SOCKET_SILENT], 1);
    assert_int_equal(device->nunnamed, 0);
    assert_non_null(device->oldest);
    assert_int_equal(send(fd, said.proof, sizeof said.proof, MSG_NOSIGNAL), sizeof said.proof);
    assert_int_equal(connect_one(pair.receiver, pair.to_receiver), RONDO_SUCCESS);
    said.hello = hello_of(&late);
    int other = greet(&late, &said);
    net->close(late.receiver); /* its welcomed connections go, too */
    assert_null(device->oldest);
    net->close(late.sender);
    pair_close(&pair);
    close(fd);
    close(other);
    close(mute);
}

/* Who has read the sender's hello on the network holds a few places, not all descriptors. */
static void few_may_call_in_a_senders_name(void **state)
{
    int fd[RONDO_SOCKET_CLAIMS];
    struct pair pair;
    char byte;
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    for (int i = 0; i < RONDO_SOCKET_CLAIMS; i++) {
        struct transcript said = { .hello = hello_of(&pair) };
        fd[i] = greet(&pair, &said);
    }
    struct rondo_auth_hello hello = hello_of(&pair);
    int more = stranger(pair.receiver);
    assert_int_equal(send(more, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    expect_drop(&pair, 1);
    assert_true(recv(more, &byte, 1, 0) <= 0);
    close(more);
    for (int i = 0; i < RONDO_SOCKET_CLAIMS; i++) {
        close(fd[i]);
    }
    expect_drop(&pair, RONDO_SOCKET_CLAIMS + 1);
    pair_connect(&pair);
    pair_close(&pair);
}

enum { SENDERS = 60 };

static int many_senders(void *arg)
{
    static struct pair pair[SENDERS];
    static struct transcript said[SENDERS];
    struct rlimit limit = { 160, 160 }; /* so that 40 strangers are too many */
    int fd[SENDERS];
    (void)arg;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1;
    }
    use_loop("1");
    for (int i = 0; i < SENDERS; i++) {
        pair_prepare(&pair[i]);
        said[i].hello = hello_of(&pair[i]);
        fd[i] = greet(&pair[i], &said[i]);
    }
    for (int i = 0; i < SENDERS; i++) {
        send(fd[i], said[i].proof, sizeof said[i].proof, MSG_NOSIGNAL);
        if (connect_one(pair[i].receiver, pair[i].to_receiver) != RONDO_SUCCESS) {
            return 2;
        }
    }
    return dropped(pair[0].receiver) != 0;
}

static void many_senders_at_a_time_are_not_strangers(void **state)
{
    (void)state;
    assert_int_equal(in_child(many_senders, NULL), 0);
}

/* This sender has the right secret, but it is not the one of the handle. */
static void another_sender_with_the_secret_is_refused(void **state)
{
    struct pair pair;
    void *other;
    char handle[RONDO_NET_HANDLE];
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    assert_int_equal(net->prepare(0, &some_peer, 1, &other, handle), RONDO_SUCCESS);
    assert_int_equal(connect_one(other, pair.to_sender), RONDO_SUCCESS);
    assert_int_equal(connect_one(pair.receiver, pair.to_receiver), RONDO_REMOTE_ERROR);
    assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_REMOTE_ERROR);
    net->close(other);
    pair_close(&pair);
}

static void wrong_handles_are_refused(void **state)
{
    struct pair pair;
    (void)state;
    use_loop("1");
    for (int k = 0; k < 11; k++) {
        struct rondo_socket_handle handle;
        pair_prepare(&pair);
        memcpy(&handle, pair.to_sender, sizeof handle);
        handle.magic ^= k == 0;
        handle.version += k == 1;
        handle.is_send ^= k == 2;
        handle.is_send += k == 3 ? 2 : 0;
        handle.family = k == 4 ? 5 : k == 8 ? 6 : handle.family;
        handle.port = k == 5 ? 0 : handle.port;
        handle.nconns = k == 6 ? 0 : k == 7 ? RONDO_SOCKET_CONNS + 1 : handle.nconns;
        handle.part = k == 9 ? RONDO_SOCKET_HELPED_PART - 1 : k == 10 ? RONDO_SOCKET_PART + 1 : handle.part;
        memset(handle.ifname, 0xff, sizeof handle.ifname);
        memcpy(pair.to_sender, &handle, sizeof handle);
        assert_int_equal(net->connect(pair.sender, pair.to_sender),
                         k == 8 ? RONDO_INVALID_USAGE : RONDO_INTERNAL_ERROR);
        assert_int_equal(strspn(rondo_error_text(), "\x80\xff"), 0);
        pair_close(&pair);
    }
}

/* 1,000 connections send garbage while messages flow and others connect. */
static void garbage_at_the_port_disturbs_nobody(void **state)
{
    enum { N = 1000 };
    struct pair pair, late;
    uint8_t from[5000], to[5000], noise[64];
    uint64_t random = 88172645463325252;
    (void)state;
    use_loop("1");
    pair_open(&pair);
    pair_prepare(&late);
    for (int i = 0; i < N; i++) {
        int fd = stranger(pair.receiver);
        for (size_t b = 0; b < sizeof noise; b++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            noise[b] = (uint8_t)random;
        }
        if (i % 4 == 0) { /* garbage that begins like a hello */
            struct rondo_auth_hello hello = { .magic = RONDO_SOCKET_MAGIC,
                                              .version = i % 8 == 0 ? RONDO_SOCKET_VERSION : 0,
                                              .server = random,
                                              .index = noise[0] };
            memcpy(noise, &hello, sizeof hello);
        }
        (void)!send(fd, noise, i % 5 == 0 ? 0 : (size_t)i % sizeof noise + 1, MSG_NOSIGNAL);
        pattern(from, sizeof from, (unsigned)i);
        finish(send_some(pair.sender, from, sizeof from, i), receive_one(pair.receiver, to, sizeof to, i),
               NULL);
        assert_memory_equal(from, to, sizeof to);
        assert_int_equal(net->connect(late.receiver, late.to_receiver), RONDO_IN_PROGRESS);
        close(fd);
    }
    pair_connect(&late);
    int64_t start = rondo_now_ns();
    while (dropped(pair.receiver) < N) {
        rondo_socket_accept(((struct rondo_socket_comm *)pair.receiver)->device);
        end_of_patience(start);
    }
    assert_int_equal(dropped(pair.receiver), N);
    pair_close(&pair);
    pair_close(&late);
}

static void silent_strangers_are_dropped_after_a_while(void **state)
{
    struct pair pair;
    char byte;
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    struct rondo_socket_device *device = ((struct rondo_socket_comm *)pair.receiver)->device;
    int fd = stranger(pair.receiver), second = stranger(pair.receiver);
    int64_t start = rondo_now_ns();
    while (device->nunnamed < 2) {
        assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_IN_PROGRESS);
        end_of_patience(start);
    }
    /* Let the first stranger be too old. */
    device->oldest->since_ns -= rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS) + 1;
    assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_IN_PROGRESS);
    assert_int_equal(device->dropped[RONDO_SOCKET_SILENT], 1);
    assert_int_equal(device->nunnamed, 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    pair_connect(&pair);
    close(fd);
    close(second);
    pair_close(&pair);
}

/* A sender that is busy elsewhere after its connection was made says its hello when the receiver has dropped
 * it: it calls again. */
static void a_sender_that_was_busy_before_its_hello_calls_again(void **state)
{
    struct pair pair;
    (void)state;
    use_loop("1");
    pair_prepare(&pair);
    struct rondo_socket_device *device = ((struct rondo_socket_comm *)pair.receiver)->device;
    int64_t start = rondo_now_ns();
    ((struct rondo_socket_comm *)pair.sender)->conn[0] =
        (struct rondo_socket_conn){ .fd = stranger(pair.receiver),
                                    .state = RONDO_SOCKET_CONNECTING,
                                    .begun_ns = start - rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS) - 1 };
    while (device->nunnamed < 1) {
        assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_IN_PROGRESS);
        end_of_patience(start);
    }
    device->oldest->since_ns -= rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS) + 1;
    assert_int_equal(net->connect(pair.receiver, pair.to_receiver), RONDO_IN_PROGRESS);
    assert_int_equal(device->dropped[RONDO_SOCKET_SILENT], 1);
    pair_connect(&pair);
    pair_close(&pair);
}

static int crowd(void *arg)
{
    struct rlimit limit = { 400, 400 };
    struct pair pair;
    int fd[150];
    (void)arg;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1;
    }
    use_loop("1");
    pair_prepare(&pair);
    struct rondo_socket_device *device = ((struct rondo_socket_comm *)pair.receiver)->device;
    for (size_t i = 0; i < RONDO_COUNTOF(fd); i++) {
        fd[i] = stranger(pair.receiver);
        net->connect(pair.receiver, pair.to_receiver);
    }
    while (device->dropped[RONDO_SOCKET_EXCESS] < 50) {
        net->connect(pair.receiver, pair.to_receiver);
    }
    if (device->nunnamed != 100) {
        return 2;
    }
    pair_connect(&pair);
    return 0;
}

static void the_oldest_of_too_many_strangers_are_dropped(void **state)
{
    (void)state;
    assert_int_equal(in_child(crowd, NULL), 0);
}

static int no_descriptors(void *arg)
{
    struct pair pair;
    struct rlimit limit;
    rondo_status status;
    (void)arg;
    use_loop("1");
    pair_prepare(&pair);
    int fd = stranger(pair.receiver), next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &limit);
    do {
        status = net->connect(pair.receiver, pair.to_receiver);
    } while (status == RONDO_IN_PROGRESS);
    close(fd);
    return status != RONDO_SYSTEM_ERROR || !strstr(rondo_error_text(), "ulimit -n");
}

static void running_out_of_descriptors_is_named(void **state)
{
    (void)state;
    assert_int_equal(in_child(no_descriptors, NULL), 0);
}

/* ---- wrong messages ---- */

static void a_message_that_does_not_fit_is_wrong_usage(void **state)
{
    struct pair pair;
    char to[4];
    (void)state;
    for (int k = 0; k < 2; k++) {
        use_loop("1");
        pair_open(&pair);
        send_some(pair.sender, "abcdef", k == 0 ? 5 : 4, k == 0 ? 1 : 2);
        void *first = receive_one(pair.receiver, to, 4, 1), *second = receive_one(pair.receiver, to, 4, 1);
        assert_int_equal(failure_of(first), RONDO_INVALID_USAGE);
        assert_says(k == 0 ? "message 0 of tag 1 has 5 bytes, but the receive has room for 4"
                           : "message 0 has tag 2");
        assert_says("rank 3 on hostb");
        rondo_error_clear();
        assert_int_equal(failure_of(second), RONDO_INVALID_USAGE); /* and the same text */
        assert_says("message 0");
        assert_int_equal(net->irecv(pair.receiver, 1, (void *[]){ to }, (size_t[]){ 1 }, (int[]){ 0 },
                                    (void *[]){ NULL }, &first),
                         RONDO_INVALID_USAGE);
        pair_close(&pair);
    }
}

/* The peer knows the secret, but then sends a wrong frame. */
static void wrong_frames_are_refused(void **state)
{
    const struct rondo_socket_frame frames[] = { { .bytes = 1 },
                                                 { .bytes = UINT64_MAX, .check = RONDO_SOCKET_MAGIC },
                                                 { .bytes = 5, .check = RONDO_SOCKET_MAGIC },
                                                 { .tag = -1, .check = RONDO_SOCKET_MAGIC },
                                                 { .check = RONDO_SOCKET_MAGIC + 1 } };
    static const rondo_status expected[] = { RONDO_REMOTE_ERROR, RONDO_INVALID_USAGE, RONDO_INVALID_USAGE,
                                             RONDO_INVALID_USAGE, RONDO_REMOTE_ERROR };
    (void)state;
    use_loop("1");
    for (size_t i = 0; i < RONDO_COUNTOF(frames); i++) {
        struct pair pair;
        char to[4];
        pair_open(&pair);
        int fd = ((struct rondo_socket_comm *)pair.sender)->conn[0].fd;
        assert_int_equal(send(fd, &frames[i], sizeof frames[i], 0), sizeof frames[i]);
        assert_int_equal(failure_of(receive_one(pair.receiver, to, sizeof to, 0)), expected[i]);
        pair_close(&pair);
    }
}

/* ---- ends ---- */

static void a_clean_close_is_an_error_for_pending_receives(void **state)
{
    struct pair pair;
    char to[4] = "";
    size_t arrived;
    int done = 0;
    (void)state;
    use_loop("1");
    pair_open(&pair);
    finish(send_some(pair.sender, "abc", 3, 0), NULL, NULL);
    void *first = receive_one(pair.receiver, to, 3, 0), *second = receive_one(pair.receiver, to, 3, 0);
    net->close(pair.sender);
    assert_int_equal(failure_of(second), RONDO_REMOTE_ERROR);
    assert_says("receiving failed: the other end closed the connection; usual causes: its process has ended");
    assert_says("this one is ");
    assert_int_equal(net->test(first, &done, &arrived), RONDO_SUCCESS); /* it had arrived before the close */
    assert_int_equal(done, 1);
    assert_int_equal(arrived, 3);
    assert_string_equal(to, "abc");
    net->close(pair.receiver);
}

static rondo_status send_until_failure(void *sender, const void *data, size_t bytes)
{
    int64_t start = rondo_now_ns();
    for (;;) {
        void *request = NULL;
        rondo_status status = net->isend(sender, data, bytes, 0, NULL, &request);
        for (int done = 0; status == RONDO_SUCCESS && request && !done;) {
            status = net->test(request, &done, NULL);
            end_of_patience(start);
        }
        if (status != RONDO_SUCCESS) {
            return status;
        }
        end_of_patience(start);
    }
}

static void a_receiver_that_closes_is_noticed(void **state)
{
    struct pair pair;
    (void)state;
    use_loop("1");
    pair_open(&pair);
    net->close(pair.receiver);
    assert_int_equal(send_until_failure(pair.sender, "abc", 3), RONDO_REMOTE_ERROR);
    assert_says("sending failed: the connection was");
    net->close(pair.sender);
}

static void a_comm_can_be_closed_at_any_time(void **state)
{
    static char data[4 * MIB];
    struct pair pair;
    (void)state;
    use_loop("2");
    for (int k = 0; k < 4; k++) {
        pair_prepare(&pair);
        if (k >= 1) {
            assert_int_equal(net->connect(pair.sender, pair.to_sender), RONDO_IN_PROGRESS);
        }
        if (k >= 2) {
            pair_connect(&pair);
            receive_one(pair.receiver, data, sizeof data, 0);
        }
        if (k >= 3) {
            send_some(pair.sender, data, sizeof data, 0);
        }
        pair_close(&pair);
    }
    net->close(NULL);
}

/* A peer process, with pipes for the handles. It sends a message and a half, or receives one, and then waits
 * to be killed. */
struct victim {
    int is_send, in[2], out[2];
    pid_t pid;
};

static void victim_runs(const struct victim *victim)
{
    static char data[8 * MIB];
    char own[RONDO_NET_HANDLE], other[RONDO_NET_HANDLE];
    void *comm, *request;
    int done = 0;
    use_loop("1");
    if (net->prepare(0, &some_peer, victim->is_send, &comm, own) != RONDO_SUCCESS ||
        write(victim->out[1], own, sizeof own) != sizeof own ||
        read(victim->in[0], other, sizeof other) != sizeof other ||
        connect_one(comm, other) != RONDO_SUCCESS) {
        _exit(1);
    }
    request = victim->is_send ? send_some(comm, data, MIB, 0) : receive_one(comm, data, sizeof data, 0);
    while (!done && net->test(request, &done, NULL) == RONDO_SUCCESS) {
    }
    if (victim->is_send) { /* a process that dies may leave half of a message */
        struct rondo_socket_frame frame = { .bytes = MIB, .check = RONDO_SOCKET_MAGIC + 1 };
        (void)!send(((struct rondo_socket_comm *)comm)->conn[0].fd, &frame, sizeof frame, 0);
        (void)!send(((struct rondo_socket_comm *)comm)->conn[0].fd, data, 1000, 0);
    }
    (void)!write(victim->out[1], "", 1);
    pause();
}

/* @return the comm of this end. */
static void *victim_start(struct victim *victim, int is_send)
{
    char own[RONDO_NET_HANDLE], other[RONDO_NET_HANDLE];
    void *comm;
    victim->is_send = is_send;
    assert_int_equal(pipe(victim->in) | pipe(victim->out), 0);
    fflush(NULL);
    victim->pid = fork();
    if (victim->pid == 0) {
        victim_runs(victim);
        _exit(0);
    }
    use_loop("1");
    assert_int_equal(net->prepare(0, &some_peer, !is_send, &comm, own), RONDO_SUCCESS);
    assert_int_equal(write(victim->in[1], own, sizeof own), sizeof own);
    assert_int_equal(read(victim->out[0], other, sizeof other), sizeof other);
    assert_int_equal(connect_one(comm, other), RONDO_SUCCESS);
    return comm;
}

static void victim_kill(struct victim *victim)
{
    char byte;
    int status;
    assert_int_equal(read(victim->out[0], &byte, 1), 1);
    kill(victim->pid, SIGKILL);
    assert_int_equal(waitpid(victim->pid, &status, 0), victim->pid);
    for (int i = 0; i < 2; i++) {
        close(victim->in[i]);
        close(victim->out[i]);
    }
}

static void a_killed_sender_is_named(void **state)
{
    static char data[MIB];
    struct victim victim;
    (void)state;
    void *comm = victim_start(&victim, 1);
    finish(NULL, receive_one(comm, data, MIB, 0), NULL);
    void *half = receive_one(comm, data, MIB, 0);
    victim_kill(&victim);
    assert_int_equal(failure_of(half), RONDO_REMOTE_ERROR);
    assert_says("its process");
    assert_says("rank 3 on hostb at 127.0.0.1 of lo; this one is ");
    assert_says("at 127.0.0.1 of lo, channel 1");
    net->close(comm);
}

static void a_killed_receiver_is_named(void **state)
{
    static char data[8 * MIB];
    struct victim victim;
    (void)state;
    void *comm = victim_start(&victim, 0);
    finish(send_some(comm, data, sizeof data, 0), NULL, NULL);
    void *under_way[4];
    for (int i = 0; i < 4; i++) {
        under_way[i] = send_some(comm, data, sizeof data, 0);
    }
    victim_kill(&victim);
    for (int i = 3; i >= 0; i--) {
        int done = 0;
        rondo_status status = i < 2 ? net->test(under_way[i], &done, NULL) : failure_of(under_way[i]);
        assert_true(done || status == RONDO_REMOTE_ERROR); /* the kernel may have buffered the first two */
        assert_says("rank 3 on hostb at 127.0.0.1:");
    }
    net->close(comm);
}

/* ---- links ---- */

/* The window stays closed for twice the timeout. This is no error, because the other end's kernel answers. */
static void a_receiver_that_computes_is_not_dead(void **state)
{
    static char from[8 * MIB], to[8 * MIB];
    struct pair pair;
    int done = 0;
    (void)state;
    set_param("RONDO_SOCKET_TIMEOUT", "1s");
    set_param("RONDO_SOCKET_RCVBUF", "64K");
    use_loop("1");
    pair_open(&pair);
    void *sending = send_some(pair.sender, from, sizeof from, 0);
    for (int64_t start = rondo_now_ns(); rondo_now_ns() - start < 2500000000;) {
        assert_int_equal(net->test(sending, &done, NULL), RONDO_SUCCESS);
        assert_int_equal(done, 0);
        sched_yield();
    }
    set_param("RONDO_SOCKET_RCVBUF", "0");
    finish(sending, receive_one(pair.receiver, to, sizeof to, 0), NULL);
    pair_close(&pair);
    set_param("RONDO_SOCKET_TIMEOUT", "20s");
}

static int loop_set(int up)
{
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = (short)(up ? IFF_UP | IFF_RUNNING : 0) };
    int fd = socket(AF_INET, SOCK_DGRAM, 0), result = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return result;
}

/* Fill the receiver's buffers, so that the sender has data left and nothing is in flight. */
static void window_close(struct pair *pair, void *sending)
{
    struct tcp_info info = { .tcpi_unacked = 1 };
    socklen_t bytes = sizeof info;
    int64_t start = rondo_now_ns();
    int done;
    while (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes == 0) {
        assert_int_equal(net->test(sending, &done, NULL), RONDO_SUCCESS);
        assert_int_equal(getsockopt(((struct rondo_socket_comm *)pair->sender)->conn[0].fd, IPPROTO_TCP,
                                    TCP_INFO, &info, &bytes),
                         0);
        end_of_patience(start);
    }
}

enum cut { CUT_RECEIVER, CUT_SENDER, CUT_CLOSED_WINDOW, NUM_CUTS };

/* Run in a network namespace, and take its only link down. arg: which end waits, and when. */
static int cut_link(void *arg)
{
    static char data[8 * MIB];
    struct pair pair;
    enum cut cut = *(enum cut *)arg;
    if ((unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) || loop_set(1) != 0) {
        return SKIPPED;
    }
    set_param("RONDO_SOCKET_TIMEOUT", "2s");
    set_param("RONDO_SOCKET_RCVBUF", "64K");
    use_loop("1");
    pair_open(&pair);
    void *request = cut == CUT_CLOSED_WINDOW ? send_some(pair.sender, data, sizeof data, 0) : NULL;
    if (request) {
        window_close(&pair, request);
    }
    if (loop_set(0) != 0) {
        return SKIPPED;
    }
    request = request             ? request
              : cut == CUT_SENDER ? send_some(pair.sender, data, sizeof data, 0)
                                  : receive_one(pair.receiver, data, sizeof data, 0);
    int64_t start = rondo_now_ns();
    rondo_status status = failure_of(request);
    int64_t took_ms = (rondo_now_ns() - start) / 1000000;
    if (status != RONDO_REMOTE_ERROR || !strstr(rondo_error_text(), "usual causes")) {
        return 1;
    }
    return took_ms > 8000 ? 2 : 0;
}

static void a_link_that_dies_is_an_error_in_bounded_time(void **state)
{
    (void)state;
    for (enum cut cut = CUT_RECEIVER; cut < NUM_CUTS; cut++) {
        int code = in_child(cut_link, &cut);
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
        ROW(a_wrong_secret_is_refused),
        ROW(wrong_hellos_get_no_welcome),
        ROW(wrong_proofs_are_refused),
        ROW(a_welcomed_sender_may_take_its_time),
        ROW(few_may_call_in_a_senders_name),
        ROW(many_senders_at_a_time_are_not_strangers),
        ROW(another_sender_with_the_secret_is_refused),
        ROW(wrong_handles_are_refused),
        ROW(garbage_at_the_port_disturbs_nobody),
        ROW(silent_strangers_are_dropped_after_a_while),
        ROW(a_sender_that_was_busy_before_its_hello_calls_again),
        ROW(the_oldest_of_too_many_strangers_are_dropped),
        ROW(running_out_of_descriptors_is_named),
        ROW(a_message_that_does_not_fit_is_wrong_usage),
        ROW(wrong_frames_are_refused),
        ROW(a_clean_close_is_an_error_for_pending_receives),
        ROW(a_receiver_that_closes_is_noticed),
        ROW(a_comm_can_be_closed_at_any_time),
        ROW(a_killed_sender_is_named),
        ROW(a_killed_receiver_is_named),
        ROW(a_receiver_that_computes_is_not_dead),
        ROW(a_link_that_dies_is_an_error_in_bounded_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
