/* The control plane between nodes when a call is not answered at once. Rank 2's process is plain sockets of
 * this one. */
#include "control_nodes.h"

#include <errno.h>
#include <sys/socket.h>

static const char *const often = "50ms", *const rarely = "300s"; /* later than all deadlines here */

struct scene {
    struct nodes w;
    int listener;
};

/* Rank 2's process listens there. */
static void listens_at(struct nodes *w, int listener)
{
    struct sockaddr_in addr;
    socklen_t bytes = sizeof(addr);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &bytes), 0);
    memset(w->peers[2].control_addr, 0, RONDO_ADDR_BYTES);
    memcpy(w->peers[2].control_addr, &addr, bytes);
}

/* Rank 0 starts, and rank 1 if heartbeats are often; rank 0 calls rank 2, which listens. */
static void scene_open_at(struct scene *s, const char *heartbeat)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval limit = { .tv_sec = DEADLINE_NS / 1000000000 };
    socklen_t bytes = sizeof(addr);
    use_loop(heartbeat, heartbeat == often ? "10s" : "1000s");
    nodes_prepare(&s->w, 3, 1);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s->listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(bind(s->listener, (struct sockaddr *)&addr, bytes), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    listens_at(&s->w, s->listener);
    assert_int_equal(rondo_control_start(s->w.control[0]), RONDO_SUCCESS);
    if (heartbeat == often) { /* its calls keep the control thread awake */
        assert_int_equal(rondo_control_start(s->w.control[1]), RONDO_SUCCESS);
    }
}

static void scene_open(struct scene *s) { scene_open_at(s, often); }

static void scene_close(struct scene *s)
{
    close(s->listener);
    nodes_close(&s->w);
}

/* Take rank 0's call; end those of rank 1. */
static int take_call(struct scene *s, struct rondo_auth_hello *hello)
{
    int fd;
    while ((fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        assert_int_equal(recv(fd, hello, sizeof(*hello), MSG_WAITALL), sizeof(*hello));
        if (hello->client_rank == 0) {
            return fd;
        }
        close(fd);
    }
    fail_msg("rank 0 does not call");
    return -1;
}

static int next_kind(int fd)
{
    struct rondo_wire_head head;
    struct timeval limit = { .tv_sec = DEADLINE_NS / 1000000000 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    do {
        assert_int_equal(recv(fd, &head, sizeof(head), MSG_WAITALL), sizeof(head));
    } while (head.kind == RONDO_WIRE_BEAT);
    return head.kind;
}

static void answer_of(const struct nodes *w, int fd, const struct rondo_auth_hello *hello)
{
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
    assert_int_equal(rondo_auth_answer(w->peers[0].id.nonce, hello, &welcome), RONDO_SUCCESS);
    assert_int_equal(send(fd, &welcome, sizeof(welcome), MSG_NOSIGNAL), sizeof(welcome));
    assert_int_equal(recv(fd, proof, sizeof(proof), MSG_WAITALL), sizeof(proof));
    assert_true(rondo_auth_proved(w->peers[0].id.nonce, hello, &welcome, proof));
}

static void answer(const struct scene *s, int fd, const struct rondo_auth_hello *hello)
{
    answer_of(&s->w, fd, hello);
}

/* Call rank 0 as rank 2, whose process lives. */
static int call(const struct scene *s)
{
    struct rondo_auth_hello hello = { .magic = RONDO_WIRE_HELLO_MAGIC,
                                      .version = RONDO_WIRE_VERSION,
                                      .comm_hash = s->w.comm_hash,
                                      .client = rondo_wire_process(&s->w.peers[2]),
                                      .server = rondo_wire_process(&s->w.peers[0]),
                                      .client_rank = 2,
                                      .server_rank = 0 };
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = { .tv_sec = 30 };
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(rondo_auth_nonce(hello.nonce), RONDO_SUCCESS);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)s->w.peers[0].control_addr, sizeof(struct sockaddr_in)), 0);
    assert_int_equal(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    assert_int_equal(recv(fd, &welcome, sizeof(welcome), MSG_WAITALL), sizeof(welcome));
    assert_true(rondo_auth_prove(s->w.peers[0].id.nonce, &hello, &welcome, proof));
    assert_int_equal(send(fd, proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    return fd;
}

/* End a call of rank 0, which calls again after this time. */
static void end_call(const struct scene *s, int fd, int64_t pause_ns)
{
    const uint64_t own = rondo_wire_process(&s->w.peers[0]);
    const int64_t end_ns = rondo_now_ns() + DEADLINE_NS;
    struct rondo_wire_conn *conn = NULL;
    rondo_wire_lock();
    close(fd);
    while (conn == NULL && rondo_now_ns() < end_ns) {
        rondo_wire_progress();
        rondo_wire_settle();
        for (conn = rondo_wire->conns; conn && (conn->own != own || conn->again_ns == 0);) {
            conn = conn->next;
        }
    }
    if (conn) {
        conn->again_ns = rondo_now_ns() + pause_ns;
    }
    rondo_wire_unlock();
    assert_non_null(conn);
}

static int state_of_2(struct scene *s) { return (int)rondo_wire_state_of(s->w.control[0], 2); }

/* A listener ends calls of living processes too: of those that were stopped, or that are one too many. */
static void a_call_that_is_ended_unanswered_is_made_again(void **state)
{
    struct scene s;
    struct rondo_auth_hello first, second;
    (void)state;
    scene_open(&s);
    close(take_call(&s, &first));
    int fd = take_call(&s, &second);
    assert_memory_not_equal(first.nonce, second.nonce, sizeof(first.nonce));
    answer(&s, fd, &second);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH); /* what was queued before */
    assert_int_equal(state_of_2(&s), RONDO_RANK_ALIVE);
    close(fd);
    scene_close(&s);
}

/* Any thread may read that a call has ended; the next one is the control thread's. */
static void a_call_that_another_thread_puts_off_waits_for_no_heartbeat(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open_at(&s, rarely);
    close(take_call(&s, &hello));
    end_call(&s, take_call(&s, &hello), 10000000);
    close(take_call(&s, &hello));
    scene_close(&s);
}

static void who_ends_every_call_is_gone(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    int64_t begin_ns = 0;
    int calls = 0;
    (void)state;
    scene_open_at(&s, rarely); /* calls do not wait for a heartbeat */
    do {
        close(take_call(&s, &hello));
        begin_ns = begin_ns == 0 ? rondo_now_ns() : begin_ns;
        calls++;
    } while (calls < 17);
    assert_true(rondo_now_ns() - begin_ns > INT64_C(1000000000)); /* there was time to recover */
    WAIT_FOR(state_of_2(&s) == RONDO_RANK_GONE);
    assert_int_equal(rondo_control_aborted(s.w.control[0]), 0);
    int fd = call(&s); /* it lives after all */
    WAIT_FOR(state_of_2(&s) == RONDO_RANK_ALIVE);
    close(fd);
    scene_close(&s);
}

/* Other communicators of the two processes may have messages on the connection. */
static void a_call_is_made_again_though_its_communicator_has_ended(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    close(take_call(&s, &hello)); /* the next one is made at once */
    end_call(&s, take_call(&s, &hello), 100000000);
    rondo_control_close(s.w.control[0]);
    s.w.control[0] = NULL;
    int fd = take_call(&s, &hello);
    answer(&s, fd, &hello);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
    assert_int_equal(next_kind(fd), RONDO_WIRE_LEAVE);
    close(fd);
    scene_close(&s);
}

/* The listener ends also the call after that: what follows are calls of a communicator that goes on. */
static void a_call_is_made_again_for_a_communicator_that_goes_on(void **state)
{
    struct scene s;
    struct nodes other;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    int fd = take_call(&s, &hello);
    nodes_prepare(&other, 3, 1);
    listens_at(&other, s.listener);
    assert_int_equal(rondo_control_start(other.control[0]), RONDO_SUCCESS);
    assert_int_equal(rondo_control_start(other.control[1]), RONDO_SUCCESS);
    close(fd);
    end_call(&s, take_call(&s, &hello), 100000000);
    rondo_control_close(s.w.control[0]);
    s.w.control[0] = NULL;
    close(take_call(&s, &hello));
    fd = take_call(&s, &hello);
    assert_true(hello.comm_hash == other.comm_hash);
    answer_of(&other, fd, &hello);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
    assert_int_equal(rondo_wire_state_of(other.control[0], 2), RONDO_RANK_ALIVE);
    close(fd);
    nodes_close(&other);
    scene_close(&s);
}

/* Both have called; the connection on which one is watched ends first. */
static void the_other_connection_of_two_is_watched_when_one_ends(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    int fd = take_call(&s, &hello), other = call(&s);
    answer(&s, fd, &hello);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
    close(fd);
    assert_int_equal(next_kind(other), RONDO_WIRE_WATCH);
    assert_int_equal(state_of_2(&s), RONDO_RANK_ALIVE);
    close(other);
    scene_close(&s);
}

/* ---- who comes back, and what gets lost meanwhile ---- */

static struct rondo_wire_conn *conn_to_2(const struct scene *s)
{
    return rondo_wire_conn_of(rondo_wire_process(&s->w.peers[0]), rondo_wire_process(&s->w.peers[2]));
}

static void who_was_gone_and_calls_is_watched(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    for (int i = 0; i < 17; i++) {
        close(take_call(&s, &hello));
    }
    WAIT_FOR(state_of_2(&s) == RONDO_RANK_GONE);
    int fd = call(&s);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
    close(fd);
    WAIT_FOR(state_of_2(&s) == RONDO_RANK_DEAD);
    scene_close(&s);
}

static void who_was_cut_off_and_calls_is_alive(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    int fd = take_call(&s, &hello);
    answer(&s, fd, &hello);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
    rondo_wire_lock();
    rondo_wire_end(conn_to_2(&s), ETIMEDOUT);
    rondo_wire_unlock();
    assert_int_equal(state_of_2(&s), RONDO_RANK_SILENT);
    int again = call(&s);
    assert_int_equal(next_kind(again), RONDO_WIRE_ABORT);
    assert_int_equal(state_of_2(&s), RONDO_RANK_ALIVE);
    close(fd);
    close(again);
    scene_close(&s);
}

/* The first send says why, those after it only that the connection has ended. */
static void a_cut_stays_one_when_more_is_sent(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    int fd = take_call(&s, &hello);
    answer(&s, fd, &hello);
    assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
    rondo_wire_lock();
    conn_to_2(&s)->cut = ETIMEDOUT;
    shutdown(conn_to_2(&s)->fd, SHUT_WR);
    rondo_wire_unlock();
    rondo_wire_ask(s.w.control[0], 2);
    close(fd);
    WAIT_FOR(state_of_2(&s) != RONDO_RANK_ALIVE);
    assert_int_equal(state_of_2(&s), RONDO_RANK_SILENT);
    scene_close(&s);
}

/* Both have called; the connection on which one sends ends with bytes that the other has not got. */
static void what_is_lost_with_one_connection_of_two_is_no_secret(void **state)
{
    static const char zeros[4096];
    (void)state;
    for (int in_kernel = 0; in_kernel < 2; in_kernel++) {
        struct scene s;
        struct rondo_auth_hello hello;
        struct rondo_wire_head beat = { .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_BEAT };
        char text[RONDO_ERROR_TEXT];
        int rank;
        scene_open(&s);
        int fd = take_call(&s, &hello), other = call(&s);
        answer(&s, fd, &hello);
        assert_int_equal(next_kind(fd), RONDO_WIRE_WATCH);
        rondo_wire_lock();
        if (in_kernel) {
            while (send(conn_to_2(&s)->fd, zeros, sizeof(zeros), MSG_DONTWAIT) > 0) {
            }
        } else {
            assert_true(rondo_wire_put_bytes(conn_to_2(&s), zeros, 1));
        }
        rondo_wire_unlock();
        close(fd);
        WAIT_FOR(rondo_control_aborted(s.w.control[0]));
        assert_int_equal(rondo_control_reason(s.w.control[0], text, &rank), RONDO_REMOTE_ERROR);
        assert_int_equal(rank, 2);
        assert_non_null(strstr(text, "was lost: Connection reset"));
        assert_int_equal(send(other, &beat, sizeof(beat), MSG_NOSIGNAL), sizeof(beat));
        WAIT_FOR(state_of_2(&s) == RONDO_RANK_ALIVE);
        close(other);
        scene_close(&s);
    }
}

/* Both have called; the call on which one sends is never answered. */
static void what_waits_for_an_answer_takes_the_other_connection(void **state)
{
    struct scene s;
    struct rondo_auth_hello hello;
    (void)state;
    scene_open(&s);
    int fd = take_call(&s, &hello), other = call(&s);
    rondo_wire_ask(s.w.control[0], 2);
    close(fd);
    assert_int_equal(next_kind(other), RONDO_WIRE_WATCH);
    assert_int_equal(next_kind(other), RONDO_WIRE_ASK);
    assert_int_equal(state_of_2(&s), RONDO_RANK_ALIVE);
    close(other);
    scene_close(&s);
}

/* A process answers no calls before it has joined the communicator. */
static void without_a_limit_of_creation_an_answer_may_take_for_ever(void **state)
{
    static const char *const limits[] = { "0", "60s" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct scene s;
        struct rondo_auth_hello hello;
        setenv("RONDO_INIT_TIMEOUT", limits[i], 1);
        scene_open(&s);
        int fd = take_call(&s, &hello);
        rondo_wire_tick(rondo_now_ns() + 3600 * INT64_C(1000000000), 0, 50000000, 10 * INT64_C(1000000000));
        assert_int_equal(state_of_2(&s), i == 0 ? RONDO_RANK_ALIVE : RONDO_RANK_SILENT);
        close(fd);
        scene_close(&s);
    }
    unsetenv("RONDO_INIT_TIMEOUT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_is_ended_unanswered_is_made_again),
        cmocka_unit_test(a_call_that_another_thread_puts_off_waits_for_no_heartbeat),
        cmocka_unit_test(who_ends_every_call_is_gone),
        cmocka_unit_test(a_call_is_made_again_though_its_communicator_has_ended),
        cmocka_unit_test(a_call_is_made_again_for_a_communicator_that_goes_on),
        cmocka_unit_test(the_other_connection_of_two_is_watched_when_one_ends),
        cmocka_unit_test(who_was_gone_and_calls_is_watched),
        cmocka_unit_test(who_was_cut_off_and_calls_is_alive),
        cmocka_unit_test(a_cut_stays_one_when_more_is_sent),
        cmocka_unit_test(what_is_lost_with_one_connection_of_two_is_no_secret),
        cmocka_unit_test(what_waits_for_an_answer_takes_the_other_connection),
        cmocka_unit_test(without_a_limit_of_creation_an_answer_may_take_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
