/* The control plane between nodes when strangers connect, and when peers send what they must not. Both are
 * plain sockets of this process. */
#include "control_nodes.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/mem.h"

static int setup(void **state)
{
    (void)state;
    use_loop("50ms", "10s");
    return 0;
}

/* ---- strangers ---- */

static uint64_t dropped(enum rondo_wire_drop why)
{
    uint64_t n;
    rondo_wire_lock();
    n = rondo_wire->dropped[why];
    rondo_wire_unlock();
    return n;
}

static int unnamed(void)
{
    int n;
    rondo_wire_lock();
    n = rondo_wire->nunnamed;
    rondo_wire_unlock();
    return n;
}

static int connections_of(const struct rondo_peer *peer)
{
    int n = 0;
    rondo_wire_lock();
    for (const struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        n += conn->process == rondo_wire_process(peer);
    }
    rondo_wire_unlock();
    return n;
}

static int raw_connect(const struct nodes *w)
{
    struct timeval limit = { .tv_sec = DEADLINE_NS / 1000000000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(
        connect(fd, (const struct sockaddr *)w->peers[0].control_addr, sizeof(struct sockaddr_in)), 0);
    return fd;
}

static void raw_send(int fd, const void *data, size_t bytes)
{
    if (send(fd, data, bytes, MSG_NOSIGNAL) < 0) {
        assert_true(errno == EPIPE || errno == ECONNRESET); /* dropped because of earlier bytes */
    }
}

/* Has the other end closed, whatever it sent before? */
static void raw_expect_end(int fd)
{
    char data[256];
    ssize_t n;
    while ((n = recv(fd, data, sizeof(data), 0)) > 0) {
    }
    assert_true(n == 0 || errno == ECONNRESET);
    close(fd);
}

static void ping(struct nodes *w, uint32_t value)
{
    uint32_t got = 0;
    send_all(w->control[0], 1, 1, &value, sizeof(value));
    receive_all(w->control[1], 0, 1, &got, sizeof(got));
    assert_int_equal(got, value);
    send_all(w->control[1], 0, 1, &value, sizeof(value));
    receive_all(w->control[0], 1, 1, &got, sizeof(got));
    assert_int_equal(got, value);
}

static void garbage_on_the_port_is_dropped(void **state)
{
    enum { CONNECTIONS = 500 };
    struct nodes w;
    unsigned seed = 1;
    (void)state;
    nodes_open(&w, 2, 1);
    ping(&w, 0);
    int files = count_fds();
    for (int i = 0; i < CONNECTIONS; i++) {
        uint8_t data[4096];
        size_t bytes = (size_t)rand_r(&seed) % sizeof(data);
        int fd = raw_connect(&w);
        for (size_t k = 0; k < bytes; k++) {
            data[k] = (uint8_t)rand_r(&seed);
        }
        if (i % 5 == 0) {
            bytes = (size_t)snprintf((char *)data, sizeof(data), "GET / HTTP/1.1\r\n\r\n");
        } else if (i % 5 == 1) {
            static const uint32_t magic = RONDO_WIRE_HELLO_MAGIC; /* it begins like a hello */
            memcpy(data, &magic, sizeof(magic));
        }
        raw_send(fd, data, bytes);
        close(fd);
        if (i % 50 == 0) {
            ping(&w, (uint32_t)i);
        }
    }
    WAIT_FOR(dropped(RONDO_WIRE_DROP_GARBAGE) + dropped(RONDO_WIRE_DROP_STRANGER) +
                 dropped(RONDO_WIRE_DROP_EXCESS) ==
             CONNECTIONS);
    assert_int_equal(dropped(RONDO_WIRE_DROP_GARBAGE) + dropped(RONDO_WIRE_DROP_STRANGER) +
                         dropped(RONDO_WIRE_DROP_EXCESS),
                     CONNECTIONS);
    assert_int_equal(unnamed(), 0);
    assert_int_equal(count_fds(), files);
    assert_int_equal(rondo_control_aborted(w.control[0]), 0);
    ping(&w, 9999);
    nodes_close(&w);
}

/* The hello that rank 2's process, which does not exist, would send to rank 0's. */
static struct rondo_auth_hello hello_of_rank_2(const struct nodes *w)
{
    struct rondo_auth_hello hello = { .magic = RONDO_WIRE_HELLO_MAGIC,
                                      .version = RONDO_WIRE_VERSION,
                                      .comm_hash = w->comm_hash,
                                      .client = rondo_wire_process(&w->peers[2]),
                                      .server = rondo_wire_process(&w->peers[0]),
                                      .client_rank = 2,
                                      .server_rank = 0 };
    assert_int_equal(rondo_auth_nonce(hello.nonce), RONDO_SUCCESS);
    return hello;
}

/* Nodes 0 and 1 of 3 are started; rank 2's process does not listen. */
static void open_two_of_three(struct nodes *w)
{
    nodes_prepare(w, 3, 1);
    memset(w->peers[2].control_addr, 0, RONDO_ADDR_BYTES);
    assert_int_equal(rondo_control_start(w->control[0]), RONDO_SUCCESS);
    assert_int_equal(rondo_control_start(w->control[1]), RONDO_SUCCESS);
}

/* Send a hello and receive the welcome. */
static int raw_greet(const struct nodes *w, const struct rondo_auth_hello *hello,
                     struct rondo_auth_welcome *welcome)
{
    int fd = raw_connect(w);
    raw_send(fd, hello, sizeof(*hello));
    assert_int_equal(recv(fd, welcome, sizeof(*welcome), MSG_WAITALL), sizeof(*welcome));
    return fd;
}

struct transcript {
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
};

/* Enter as rank 2. */
static int raw_enter_as(const struct nodes *w, struct transcript *said)
{
    int fd;
    said->hello = hello_of_rank_2(w);
    fd = raw_greet(w, &said->hello, &said->welcome);
    assert_true(rondo_auth_prove(w->peers[0].id.nonce, &said->hello, &said->welcome, said->proof));
    raw_send(fd, said->proof, sizeof(said->proof));
    WAIT_FOR(connections_of(&w->peers[2]) > 0);
    assert_int_equal(connections_of(&w->peers[2]), 1);
    return fd;
}

static int raw_enter(const struct nodes *w)
{
    struct transcript said;
    return raw_enter_as(w, &said);
}

static void wrong_greetings_are_dropped(void **state)
{
    struct nodes w;
    int fd;
    (void)state;
    open_two_of_three(&w);
    for (int wrong = 0; wrong < 7; wrong++) {
        struct rondo_auth_hello hello = hello_of_rank_2(&w);
        hello.version += wrong == 0;
        hello.client += wrong == 1;
        hello.server += wrong == 2;
        hello.client_rank = wrong == 3 ? 3 : wrong == 4 ? -1 : wrong == 5 ? 0 /* lives here */ : 2;
        if (wrong == 6) { /* swapped roles */
            hello.client = rondo_wire_process(&w.peers[0]);
            hello.server = rondo_wire_process(&w.peers[2]);
        }
        fd = raw_connect(&w);
        raw_send(fd, &hello, sizeof(hello));
        raw_expect_end(fd);
        assert_int_equal(dropped(RONDO_WIRE_DROP_STRANGER), wrong + 1);
    }
    fd = raw_enter(&w);
    {
        struct rondo_auth_hello hello = hello_of_rank_2(&w); /* a second time */
        int again = raw_connect(&w);
        raw_send(again, &hello, sizeof(hello));
        raw_expect_end(again);
        assert_int_equal(dropped(RONDO_WIRE_DROP_STRANGER), 8);
    }
    assert_int_equal(rondo_control_aborted(w.control[0]), 0);
    assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_ALIVE);
    ping(&w, 1);
    close(fd);
    nodes_close(&w);
}

static struct rondo_wire_head head_of_rank_2(const struct nodes *w, int kind, uint64_t tag, int bytes);

/* Enter as rank 2, and leave in order. */
static void raw_visit(struct nodes *w, struct transcript *said)
{
    int fd = raw_enter_as(w, said);
    struct rondo_wire_head leave = head_of_rank_2(w, RONDO_WIRE_LEAVE, 0, 0);
    raw_send(fd, &leave, sizeof(leave));
    WAIT_FOR(rondo_control_state_of(w->control[0], 2) == RONDO_RANK_LEFT);
    close(fd);
    WAIT_FOR(connections_of(&w->peers[2]) == 0);
}

enum { WRONG_SECRET, NO_PROOF, REPLAYED, WHOLLY_REPLAYED, REFLECTED, OF_ANOTHER_RANK, HALF, NUM_WAYS };

/* @return the bytes to send. */
static size_t wrong_proof(const struct nodes *w, int way, const struct transcript *old,
                          const struct transcript *now, uint8_t proof[RONDO_AUTH_PROOF])
{
    uint64_t secret[2] = { w->peers[0].id.nonce[0], w->peers[0].id.nonce[1] ^ UINT64_C(1) << 63 };
    uint8_t message[sizeof(now->hello) + RONDO_AUTH_NONCE];
    struct transcript other = *now;
    memset(proof, 0, RONDO_AUTH_PROOF);
    switch (way) {
    case WRONG_SECRET:
        assert_false(rondo_auth_prove(secret, &now->hello, &now->welcome, proof)); /* the welcome tells */
        memcpy(message, &now->hello, sizeof(now->hello));
        memcpy(message + sizeof(now->hello), now->welcome.nonce, RONDO_AUTH_NONCE);
        rondo_auth_derive(secret, "rondo client", message, sizeof(message), proof, RONDO_AUTH_PROOF);
        break;
    case REPLAYED:
    case WHOLLY_REPLAYED: memcpy(proof, old->proof, RONDO_AUTH_PROOF); break;
    case REFLECTED: memcpy(proof, now->welcome.proof, RONDO_AUTH_PROOF); break;
    case OF_ANOTHER_RANK:
        other.hello.client_rank = 1;
        other.hello.client = rondo_wire_process(&w->peers[1]);
        rondo_auth_answer(w->peers[0].id.nonce, &other.hello, &other.welcome);
        assert_true(rondo_auth_prove(w->peers[0].id.nonce, &other.hello, &other.welcome, proof));
        break;
    case HALF:
        assert_true(rondo_auth_prove(w->peers[0].id.nonce, &now->hello, &now->welcome, proof));
        return RONDO_AUTH_PROOF / 2;
    }
    return RONDO_AUTH_PROOF;
}

/* Strangers who know all but the secret, and have heard what rank 2 said when it came before. */
static void wrong_proofs_are_dropped(void **state)
{
    struct nodes w;
    struct transcript old, now;
    uint8_t proof[RONDO_AUTH_PROOF];
    (void)state;
    open_two_of_three(&w);
    ping(&w, 1);
    raw_visit(&w, &old);
    for (int way = 0; way < NUM_WAYS; way++) {
        now.hello = way == WHOLLY_REPLAYED ? old.hello : hello_of_rank_2(&w);
        int fd = raw_greet(&w, &now.hello, &now.welcome);
        assert_memory_not_equal(now.welcome.nonce, old.welcome.nonce, sizeof(now.welcome.nonce));
        size_t bytes = wrong_proof(&w, way, &old, &now, proof);
        raw_send(fd, proof, bytes);
        if (way == HALF) {
            shutdown(fd, SHUT_WR);
        }
        raw_expect_end(fd);
        assert_int_equal(dropped(RONDO_WIRE_DROP_STRANGER), way + 1);
        ping(&w, (uint32_t)way);
    }
    assert_int_equal(unnamed(), 0);
    assert_int_equal(rondo_control_aborted(w.control[0]), 0);
    close(raw_enter(&w)); /* the right one still gets in */
    ping(&w, 9);
    nodes_close(&w);
}

static int welcomed(void)
{
    int n = 0;
    rondo_wire_lock();
    for (const struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        n += conn->state == RONDO_WIRE_WELCOMED;
    }
    rondo_wire_unlock();
    return n;
}

static void expire(int64_t after_ns)
{
    rondo_wire_lock();
    rondo_wire_expire(rondo_now_ns() + after_ns);
    rondo_wire_unlock();
}

/* Nor do many of them who call in the same name. */
static void welcomed_strangers_do_not_stay_for_ever(void **state)
{
    struct nodes w;
    int fd[RONDO_WIRE_CLAIMS], more;
    (void)state;
    open_two_of_three(&w);
    ping(&w, 1);
    for (int i = 0; i < RONDO_WIRE_CLAIMS; i++) {
        struct transcript said = { .hello = hello_of_rank_2(&w) };
        fd[i] = raw_greet(&w, &said.hello, &said.welcome);
    }
    assert_int_equal(welcomed(), RONDO_WIRE_CLAIMS);
    assert_int_equal(unnamed(), 0); /* they take no place from others */
    struct rondo_auth_hello hello = hello_of_rank_2(&w);
    more = raw_connect(&w);
    raw_send(more, &hello, sizeof(hello));
    raw_expect_end(more);
    assert_int_equal(dropped(RONDO_WIRE_DROP_STRANGER), 1);
    expire(RONDO_WIRE_UNNAMED_NS + 1);
    assert_int_equal(welcomed(), RONDO_WIRE_CLAIMS); /* a process may be stopped */
    expire(RONDO_WIRE_PARKED_NS + 1);
    assert_int_equal(welcomed(), 0);
    assert_int_equal(dropped(RONDO_WIRE_DROP_SILENT), RONDO_WIRE_CLAIMS);
    for (int i = 0; i < RONDO_WIRE_CLAIMS; i++) {
        raw_expect_end(fd[i]);
    }
    close(raw_enter(&w));
    ping(&w, 2);
    nodes_close(&w);
}

/* Of a communicator that has ended here nobody knows who may call. */
static void many_may_not_call_for_a_closed_communicator(void **state)
{
    struct nodes w;
    int fd[RONDO_WIRE_LATE + 1];
    (void)state;
    open_two_of_three(&w);
    rondo_control_close(w.control[0]);
    w.control[0] = NULL;
    for (int i = 0; i <= RONDO_WIRE_LATE; i++) {
        struct transcript said = { .hello = hello_of_rank_2(&w) };
        said.hello.client += (uint64_t)i;
        fd[i] = raw_connect(&w);
        raw_send(fd[i], &said.hello, sizeof(said.hello));
        ssize_t n = recv(fd[i], &said.welcome, sizeof(said.welcome), MSG_WAITALL);
        assert_int_equal(n, i < RONDO_WIRE_LATE ? sizeof(said.welcome) : 0);
    }
    assert_int_equal(welcomed(), RONDO_WIRE_LATE);
    nodes_close(&w);
    for (int i = 0; i <= RONDO_WIRE_LATE; i++) {
        raw_expect_end(fd[i]);
    }
}

/* So that its end is no death for a process that is about to send its proof. */
static void who_leaves_says_bye_to_whom_it_has_welcomed(void **state)
{
    struct nodes w;
    struct rondo_wire_head head;
    (void)state;
    open_two_of_three(&w);
    struct transcript said = { .hello = hello_of_rank_2(&w) };
    int fd = raw_greet(&w, &said.hello, &said.welcome);
    nodes_close(&w);
    assert_int_equal(recv(fd, &head, sizeof(head), MSG_WAITALL), sizeof(head));
    assert_int_equal(head.magic, RONDO_WIRE_MAGIC);
    assert_int_equal(head.kind, RONDO_WIRE_BYE);
    raw_expect_end(fd);
}

/* Listen in the name of a rank's process. */
static int raw_listen(struct rondo_peer *peer)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval limit = { .tv_sec = DEADLINE_NS / 1000000000 };
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, bytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    memset(peer->control_addr, 0, RONDO_ADDR_BYTES);
    memcpy(peer->control_addr, &addr, bytes);
    return fd;
}

/* Accept the call of rank 0; that of rank 1 ends. */
static int raw_accept(int listener, struct rondo_auth_hello *hello)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        assert_int_equal(recv(fd, hello, sizeof(*hello), MSG_WAITALL), sizeof(*hello));
        if (hello->client_rank == 0) {
            return fd;
        }
        close(fd);
    }
    fail_msg("rank 0 does not call");
    return -1;
}

/* The process that rank 0 calls does not know the secret, or says half a welcome. It gets no proof. */
static void a_caller_is_not_fooled_either(void **state)
{
    enum { WRONG, REPLAY, SAME, PART, RIGHT, RIGHT_AND_DIES, WAYS };
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        struct nodes w;
        struct rondo_auth_hello hello, before;
        struct rondo_auth_welcome welcome;
        struct rondo_wire_head head;
        uint8_t proof[RONDO_AUTH_PROOF];
        nodes_prepare(&w, 3, 1);
        uint64_t secret[2] = { w.peers[0].id.nonce[0], w.peers[0].id.nonce[1] + (way == WRONG) };
        int listener = raw_listen(&w.peers[2]);
        assert_int_equal(rondo_control_start(w.control[0]), RONDO_SUCCESS);
        assert_int_equal(rondo_control_start(w.control[1]), RONDO_SUCCESS);
        int fd = raw_accept(listener, &hello);
        before = hello;
        before.nonce[0] ^= way == REPLAY;
        assert_int_equal(rondo_auth_answer(secret, &before, &welcome), RONDO_SUCCESS);
        raw_send(fd, way == SAME ? (void *)&hello : (void *)&welcome,
                 way == PART ? sizeof(welcome) / 2 : sizeof(welcome));
        if (way >= RIGHT) {
            assert_int_equal(recv(fd, proof, sizeof(proof), MSG_WAITALL), sizeof(proof));
            assert_true(rondo_auth_proved(secret, &hello, &welcome, proof));
            assert_int_equal(recv(fd, &head, sizeof(head), MSG_WAITALL), sizeof(head));
            assert_int_equal(head.kind, RONDO_WIRE_WATCH); /* at once */
            assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_ALIVE);
        } else {
            if (way == PART) {
                shutdown(fd, SHUT_WR);
            }
            ssize_t n = recv(fd, proof, sizeof(proof), 0);
            assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
            assert_int_equal(dropped(RONDO_WIRE_DROP_STRANGER), way != PART);
        }
        head = (struct rondo_wire_head){ .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_BYE };
        if (way == RIGHT) {
            raw_send(fd, &head, sizeof(head));
        }
        close(fd);
        int state_of_2 = way == RIGHT ? RONDO_RANK_LEFT : way < RIGHT ? RONDO_RANK_GONE : RONDO_RANK_DEAD;
        WAIT_FOR((int)rondo_wire_state_of(w.control[0], 2) == state_of_2);
        assert_int_equal(rondo_wire_state_of(w.control[0], 2), state_of_2);
        ping(&w, 1);
        assert_int_equal(rondo_control_aborted(w.control[0]), way == RIGHT_AND_DIES);
        close(listener);
        nodes_close(&w);
    }
}

/* The only connection of rank 2's process has ended, and rank 0 calls it again before it judges that. The
 * second call is in vain: the process has died, it has not left before it was known. */
static void a_process_that_is_called_again_after_its_death_is_dead(void **state)
{
    struct nodes w;
    struct rondo_wire_conn *conn;
    char text[RONDO_ERROR_TEXT];
    int rank;
    (void)state;
    open_two_of_three(&w);
    int fd = raw_enter(&w);
    rondo_wire_lock();
    close(fd);
    WAIT_FOR((rondo_wire_progress(),
              rondo_wire_conn_of(rondo_wire_process(&w.peers[0]), rondo_wire_process(&w.peers[2]))) == NULL);
    int listener = raw_listen(&w.peers[2]);
    assert_int_equal(rondo_wire_conn_to(w.control[0], 2, &conn), RONDO_SUCCESS);
    rondo_wire_unlock(); /* judges */
    assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_ALIVE);
    close(listener);
    WAIT_FOR(rondo_control_state_of(w.control[0], 2) != RONDO_RANK_ALIVE);
    assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_DEAD);
    WAIT_FOR(rondo_control_aborted(w.control[0]));
    assert_int_equal(rondo_control_reason(w.control[0], text, &rank), RONDO_REMOTE_ERROR);
    assert_int_equal(rank, 2);
    nodes_close(&w);
}

static void silent_and_too_many_strangers_are_dropped(void **state)
{
    enum { MORE = 30 };
    struct nodes w;
    int fd[MORE + RONDO_WIRE_UNNAMED], limit;
    (void)state;
    open_two_of_three(&w);
    ping(&w, 1);
    limit = rondo_wire_unnamed_limit();
    for (int i = 0; i < limit + MORE; i++) {
        fd[i] = raw_connect(&w);
        raw_send(fd[i], "rwch", (size_t)i % 5); /* the beginning of a greeting */
    }
    WAIT_FOR(dropped(RONDO_WIRE_DROP_EXCESS) == MORE);
    assert_int_equal(dropped(RONDO_WIRE_DROP_EXCESS), MORE);
    assert_int_equal(unnamed(), limit);
    close(raw_enter(&w)); /* a peer with the secret still gets in */
    WAIT_FOR(rondo_control_state_of(w.control[0], 2) == RONDO_RANK_DEAD);
    ping(&w, 2);
    rondo_wire_lock();
    rondo_wire_expire(rondo_now_ns() + RONDO_WIRE_UNNAMED_NS + 1);
    rondo_wire_unlock();
    assert_int_equal(unnamed(), 0);
    assert_int_equal(dropped(RONDO_WIRE_DROP_SILENT), limit - 1); /* one of them was dropped for it */
    for (int i = 0; i < limit + MORE; i++) {
        raw_expect_end(fd[i]);
    }
    nodes_close(&w);
}

/* ---- what a peer must not send ---- */

static struct rondo_wire_head head_of_rank_2(const struct nodes *w, int kind, uint64_t tag, int bytes)
{
    struct rondo_wire_head head = rondo_wire_head_of(w->control[2], 0, (enum rondo_wire_kind)kind, tag, 0);
    head.bytes = (uint16_t)bytes;
    return head;
}

/* Send n messages with this head as rank 2. The communicator ends and names rank 2; rank 1 learns it. */
static void check_fatal(void (*spoil)(struct rondo_wire_head *head, struct rondo_wire_abort *data), int n)
{
    struct nodes w;
    char text[RONDO_ERROR_TEXT];
    int rank, fd;
    open_two_of_three(&w);
    fd = raw_enter(&w);
    send_all(w.control[0], 2, 1, "x", 1);
    struct rondo_wire_head head = head_of_rank_2(&w, RONDO_WIRE_MSG, 1, 0);
    struct rondo_wire_abort data = { .status = RONDO_TIMEOUT, .rank = -1 };
    spoil(&head, &data);
    for (int i = 0; i < n; i++) {
        raw_send(fd, &head, sizeof(head));
        raw_send(fd, &data, rondo_min_size(head.bytes, sizeof(data)));
    }
    raw_expect_end(fd);
    WAIT_FOR(rondo_control_aborted(w.control[0]) && rondo_control_aborted(w.control[1]));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rondo_control_reason(w.control[i], text, &rank), RONDO_REMOTE_ERROR);
        assert_int_equal(rank, 2);
        assert_non_null(strstr(text, "rank 2 (pid "));
        assert_non_null(strstr(text, "on host host2) of communicator test was lost: Protocol error"));
    }
    nodes_close(&w);
}

#define SPOIL(name, ...)                                                          \
    static void name(struct rondo_wire_head *head, struct rondo_wire_abort *data) \
    {                                                                             \
        (void)head;                                                               \
        (void)data;                                                               \
        __VA_ARGS__;                                                              \
    }
SPOIL(no_magic, head->magic++)
SPOIL(no_kind, head->kind = 0)
SPOIL(unknown_kind, head->kind = RONDO_WIRE_NUM_KINDS)
SPOIL(oversize, head->bytes = RONDO_MSG_BYTES + 1)
SPOIL(of_another_process, head->from = 1)
SPOIL(of_no_rank, head->from = 3)
SPOIL(of_a_negative_rank, head->from = -1)
SPOIL(of_a_rank_here, head->from = 0)
SPOIL(msg_beyond_the_window, (void)0)
SPOIL(credit_of_no_number, head->kind = RONDO_WIRE_CREDIT)
SPOIL(credit_for_nothing, head->kind = RONDO_WIRE_CREDIT; head->bytes = 4; data->status = 0)
SPOIL(credit_beyond_what_was_sent, head->kind = RONDO_WIRE_CREDIT; head->bytes = 4; data->status = 2)
SPOIL(credit_beyond_the_window, head->kind = RONDO_WIRE_CREDIT; head->tag = 7; head->bytes = 4;
      data->status = RONDO_WIRE_WINDOW + 1)
SPOIL(half_a_call, head->kind = RONDO_WIRE_TELL; head->bytes = sizeof(struct rondo_call) / 2)
SPOIL(short_reason, head->kind = RONDO_WIRE_ABORT; head->bytes = 8)
SPOIL(no_reason, head->kind = RONDO_WIRE_ABORT; head->bytes = sizeof(*data); data->status = RONDO_SUCCESS)
SPOIL(unknown_status, head->kind = RONDO_WIRE_ABORT; head->bytes = sizeof(*data); data->status = 99)
SPOIL(unknown_culprit, head->kind = RONDO_WIRE_ABORT; head->bytes = sizeof(*data); data->rank = 3)

static void what_no_peer_may_send_ends_the_communicator(void **state)
{
    (void)state;
    check_fatal(no_magic, 1);
    check_fatal(no_kind, 1);
    check_fatal(unknown_kind, 1);
    check_fatal(oversize, 1);
    check_fatal(of_another_process, 1);
    check_fatal(of_no_rank, 1);
    check_fatal(of_a_negative_rank, 1);
    check_fatal(of_a_rank_here, 1);
    check_fatal(msg_beyond_the_window, RONDO_WIRE_WINDOW + 1);
    check_fatal(credit_of_no_number, 1);
    check_fatal(credit_for_nothing, 1);
    check_fatal(credit_beyond_what_was_sent, 1);
    check_fatal(credit_beyond_the_window, 1);
    check_fatal(half_a_call, 1);
    check_fatal(short_reason, 1);
    check_fatal(no_reason, 1);
    check_fatal(unknown_status, 1);
    check_fatal(unknown_culprit, 1);
}

static void a_truncated_message_is_a_death(void **state)
{
    struct nodes w;
    char text[RONDO_ERROR_TEXT];
    int rank, fd;
    (void)state;
    open_two_of_three(&w);
    fd = raw_enter(&w);
    struct rondo_wire_head head = head_of_rank_2(&w, RONDO_WIRE_MSG, 1, 100);
    raw_send(fd, &head, sizeof(head));
    raw_send(fd, text, 50);
    close(fd);
    WAIT_FOR(rondo_control_aborted(w.control[0]));
    rondo_control_reason(w.control[0], text, &rank);
    assert_int_equal(rank, 2);
    assert_non_null(strstr(text, "exited without destroying its communicator"));
    nodes_close(&w);
}

/* Late messages of another communicator with the same hash, and messages for nobody. */
static void messages_for_nobody_are_dropped(void **state)
{
    struct nodes w;
    int fd;
    (void)state;
    open_two_of_three(&w);
    fd = raw_enter(&w);
    struct rondo_wire_head head = head_of_rank_2(&w, RONDO_WIRE_LEAVE, 1, 0);
    head.epoch++;
    raw_send(fd, &head, sizeof(head));
    WAIT_FOR(dropped(RONDO_WIRE_DROP_MESSAGE) == 1);
    assert_int_equal(dropped(RONDO_WIRE_DROP_MESSAGE), 1);
    assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_ALIVE);
    head.epoch--;
    head.to = 17;
    raw_send(fd, &head, sizeof(head)); /* kept a while */
    head.to = 0;
    raw_send(fd, &head, sizeof(head));
    WAIT_FOR(rondo_control_state_of(w.control[0], 2) == RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_LEFT);
    close(fd); /* it has left: no fault */
    ping(&w, 1);
    assert_int_equal(rondo_control_aborted(w.control[0]), 0);
    nodes_close(&w);
}

static void a_peer_that_never_reads_costs_its_buffer_only(void **state)
{
    struct nodes w;
    uint32_t i;
    int fd;
    (void)state;
    open_two_of_three(&w);
    fd = raw_enter(&w);
    for (i = 0; rondo_control_send(w.control[0], 2, 1, &i, sizeof(i)) == RONDO_SUCCESS; i++) {
    }
    assert_int_equal(i, RONDO_WIRE_WINDOW);
    for (i = 0; i < 300000; i++) { /* more than the kernel's buffers and Rondo's hold */
        rondo_wire_ask(w.control[0], 2);
        if (i % 30000 == 0) {
            ping(&w, i);
        }
    }
    rondo_wire_lock();
    assert_true(rondo_wire_conn_of(rondo_wire_process(&w.peers[0]), rondo_wire_process(&w.peers[2]))->out_to >
                RONDO_WIRE_OUT / 2);
    rondo_wire_unlock();
    ping(&w, 1);
    rondo_control_leave(w.control[0]); /* it waits for nobody */
    close(fd);
    nodes_close(&w);
}

static void messages_of_too_many_tags_end_the_communicator(void **state)
{
    struct nodes w;
    char text[RONDO_ERROR_TEXT];
    int rank;
    (void)state;
    nodes_open(&w, 2, 1);
    for (uint32_t i = 0; i < RONDO_MSG_PARKED; i++) {
        send_all(w.control[0], 1, i / RONDO_WIRE_WINDOW, &i, sizeof(i));
    }
    WAIT_FOR(atomic_load(&w.control[1]->wire->waiting[0]) == RONDO_MSG_PARKED);
    assert_int_equal(rondo_control_aborted(w.control[1]), 0);
    send_all(w.control[0], 1, RONDO_MSG_PARKED, "x", 1);
    for (int r = 0; r < 2; r++) {
        WAIT_FOR(rondo_control_aborted(w.control[r]));
        assert_int_equal(rondo_control_reason(w.control[r], text, &rank), RONDO_INTERNAL_ERROR);
        assert_int_equal(rank, 1);
        assert_non_null(strstr(text, "4096 messages from rank 0 wait for rank 1"));
    }
    nodes_close(&w);
}

static void *ask_for_other_msg(void *control)
{
    uint32_t got;
    size_t bytes;
    rondo_control_receive(control, 1, 2, &got, sizeof(got), &bytes);
    return NULL;
}

/* The control thread takes the inbox's lock while it holds the wire's, so a thread that reports a full
 * inbox must have given the inbox's lock back. */
static void an_overflowing_inbox_is_reported_without_its_lock(void **state)
{
    struct nodes w;
    pthread_t thread;
    int locked;
    (void)state;
    nodes_open(&w, 2, 2);
    for (int i = 0; i < RONDO_MSG_PARKED; i++) {
        send_all(w.control[1], 0, 1, &i, sizeof(i));
        ask_for_other_msg(w.control[0]);
    }
    assert_int_equal(rondo_control_aborted(w.control[0]), 0);
    send_all(w.control[1], 0, 1, "x", 1);
    rondo_wire_lock();
    assert_int_equal(pthread_create(&thread, NULL, ask_for_other_msg, w.control[0]), 0);
    WAIT_FOR(rondo_control_aborted(w.control[0]));
    locked = pthread_mutex_trylock(&w.control[0]->inbox.lock) == 0;
    if (locked) {
        pthread_mutex_unlock(&w.control[0]->inbox.lock);
    }
    rondo_wire_unlock();
    pthread_join(thread, NULL);
    assert_true(locked);
    WAIT_FOR(rondo_control_aborted(w.control[3]));
    assert_true(rondo_control_aborted(w.control[3]));
    nodes_close(&w);
}

/* A process leaves its only communicator and creates another one, on a connection of its own; only then is
 * the BYE of the first read. */
static void a_late_bye_does_not_touch_later_communicators(void **state)
{
    struct nodes before, after;
    struct rondo_wire_head bye;
    int first, second;
    (void)state;
    open_two_of_three(&before);
    first = raw_enter(&before);
    nodes_prepare(&after, 3, 1);
    memset(after.peers[2].control_addr, 0, RONDO_ADDR_BYTES);
    after.peers[2].control_number++;
    assert_int_equal(rondo_control_start(after.control[0]), RONDO_SUCCESS);
    assert_int_equal(rondo_control_start(after.control[1]), RONDO_SUCCESS);
    second = raw_enter(&after);
    bye = (struct rondo_wire_head){ .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_BYE, .from = -1, .to = -1 };
    raw_send(first, &bye, sizeof(bye));
    close(first);
    WAIT_FOR(rondo_control_state_of(before.control[0], 2) == RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_state_of(before.control[0], 2), RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_state_of(after.control[0], 2), RONDO_RANK_ALIVE);
    send_all(after.control[0], 2, 1, "x", 1);
    close(second); /* without BYE */
    WAIT_FOR(rondo_control_aborted(after.control[0]));
    assert_int_equal(rondo_control_state_of(after.control[0], 2), RONDO_RANK_DEAD);
    assert_int_equal(rondo_control_aborted(before.control[0]), 0);
    nodes_close(&after);
    nodes_close(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_on_the_port_is_dropped),
        cmocka_unit_test(wrong_greetings_are_dropped),
        cmocka_unit_test(wrong_proofs_are_dropped),
        cmocka_unit_test(a_caller_is_not_fooled_either),
        cmocka_unit_test(welcomed_strangers_do_not_stay_for_ever),
        cmocka_unit_test(many_may_not_call_for_a_closed_communicator),
        cmocka_unit_test(who_leaves_says_bye_to_whom_it_has_welcomed),
        cmocka_unit_test(a_process_that_is_called_again_after_its_death_is_dead),
        cmocka_unit_test(silent_and_too_many_strangers_are_dropped),
        cmocka_unit_test(what_no_peer_may_send_ends_the_communicator),
        cmocka_unit_test(a_truncated_message_is_a_death),
        cmocka_unit_test(messages_for_nobody_are_dropped),
        cmocka_unit_test(a_late_bye_does_not_touch_later_communicators),
        cmocka_unit_test(a_peer_that_never_reads_costs_its_buffer_only),
        cmocka_unit_test(messages_of_too_many_tags_end_the_communicator),
        cmocka_unit_test(an_overflowing_inbox_is_reported_without_its_lock),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
