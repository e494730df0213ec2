/* The control plane between nodes when nothing fails, and when ranks end communicators: messages, reasons,
 * leaves, questions. */
#include "control_nodes.h"

#include <sched.h>
#include <sys/resource.h>

static int setup(void **state)
{
    (void)state;
    use_loop("50ms", "10s");
    return 0;
}

static int count_connections(void)
{
    int n = 0;
    rondo_wire_lock();
    for (struct rondo_wire_conn *conn = rondo_wire ? rondo_wire->conns : NULL; conn; conn = conn->next) {
        n++;
    }
    rondo_wire_unlock();
    return n;
}

static uint64_t dropped(enum rondo_wire_drop why)
{
    uint64_t n;
    rondo_wire_lock();
    n = rondo_wire->dropped[why];
    rondo_wire_unlock();
    return n;
}

/* @return the rank that a rank watches at its first finger. */
static int watched_by(struct rondo_control *control)
{
    int rank;
    rondo_wire_lock();
    rank = control->wire->spread.finger[0].watched;
    rondo_wire_unlock();
    return rank;
}

/* ---- messages ---- */

static void messages_go_between_nodes_in_order(void **state)
{
    struct nodes w;
    (void)state;
    nodes_open(&w, 3, 2);
    for (uint32_t i = 0; i < 100; i++) { /* more than a window: taken with some delay */
        uint32_t got;
        send_all(w.control[0], 3, i % 2, &i, sizeof(i));
        send_all(w.control[5], 3, 0, &i, sizeof(i));
        send_all(w.control[2], 3, 0, &i, sizeof(i)); /* within the node */
        if (i % 2) {
            receive_all(w.control[3], 0, 1, &got, sizeof(got));
            assert_int_equal(got, i);
            receive_all(w.control[3], 0, 0, &got, sizeof(got));
            assert_int_equal(got, i - 1);
            for (uint32_t k = i - 1; k <= i; k++) {
                receive_all(w.control[3], 5, 0, &got, sizeof(got));
                assert_int_equal(got, k);
                receive_all(w.control[3], 2, 0, &got, sizeof(got));
                assert_int_equal(got, k);
            }
        }
    }
    nodes_close(&w);
}

static void messages_of_all_sizes_arrive_whole(void **state)
{
    uint8_t data[RONDO_MSG_BYTES], got[RONDO_MSG_BYTES];
    struct nodes w;
    size_t n = 99;
    (void)state;
    nodes_open(&w, 2, 1);
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7);
    }
    for (size_t bytes = 0; bytes <= sizeof(data); bytes += bytes < 3 ? 1 : 73) {
        send_all(w.control[1], 0, 9, data, bytes);
        memset(got, 0, sizeof(got));
        receive_all(w.control[0], 1, 9, got, bytes);
        assert_memory_equal(got, data, bytes);
    }
    assert_int_equal(rondo_control_send(w.control[1], 0, 9, data, sizeof(data) + 1), RONDO_INTERNAL_ERROR);
    send_all(w.control[1], 0, 9, data, 20);
    WAIT_FOR(rondo_control_receive(w.control[0], 1, 9, got, 19, &n) !=
             RONDO_IN_PROGRESS); /* taken, and reported as too long */
    assert_int_equal(rondo_control_receive(w.control[0], 1, 9, got, 20, &n), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_control_send(w.control[1], 2, 9, data, 1), RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_send(w.control[1], -1, 9, data, 1), RONDO_INTERNAL_ERROR);
    nodes_close(&w);
}

/* Messages to a rank that takes none fill its window and hold up nobody else. */
static void a_rank_that_takes_no_messages_holds_up_no_other(void **state)
{
    struct nodes w;
    uint32_t got;
    int sent = 0;
    (void)state;
    nodes_open(&w, 2, 2);
    for (int i = 0; i < 1000; i++) {
        sent += rondo_control_send(w.control[0], 2, 1, &i, sizeof(i)) == RONDO_SUCCESS;
    }
    assert_int_equal(sent, RONDO_WIRE_WINDOW);
    for (uint32_t i = 0; i < 3 * RONDO_WIRE_WINDOW; i++) {
        send_all(w.control[0], 3, 1, &i, sizeof(i));
        receive_all(w.control[3], 0, 1, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        receive_all(w.control[2], 0, 1, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    send_all(w.control[0], 2, 1, &sent, sizeof(sent)); /* the window is given back */
    nodes_close(&w);
}

static int count_windows(struct rondo_control *control)
{
    int n = 0;
    rondo_wire_lock();
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        for (const struct rondo_wire_window *window = control->wire->window_out[i]; window;
             window = window->next) {
            n++;
        }
        for (const struct rondo_wire_window *window = control->wire->window_in[i]; window;
             window = window->next) {
            n++;
        }
    }
    rondo_wire_unlock();
    return n;
}

/* The messages of a child under creation wait, while those of another child, or of a connection, pass. */
static void a_tag_that_nobody_asks_for_holds_up_no_other(void **state)
{
    struct nodes w;
    uint32_t got;
    int sent = 0;
    (void)state;
    nodes_open(&w, 2, 1);
    for (int i = 0; i < 1000; i++) {
        sent += rondo_control_send(w.control[0], 1, 1, &sent, sizeof(sent)) == RONDO_SUCCESS;
    }
    assert_int_equal(sent, RONDO_WIRE_WINDOW);
    for (uint32_t i = 0; i < 3 * RONDO_WIRE_WINDOW; i++) {
        send_all(w.control[0], 1, 1 + RONDO_WIRE_BUCKETS, &i, sizeof(i)); /* in the same list */
        receive_all(w.control[1], 0, 1 + RONDO_WIRE_BUCKETS, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        receive_all(w.control[1], 0, 1, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    WAIT_FOR(count_windows(w.control[0]) + count_windows(w.control[1]) == 0);
    assert_int_equal(count_windows(w.control[0]) + count_windows(w.control[1]), 0);
    nodes_close(&w);
}

static void a_forgotten_tag_gives_its_window_back(void **state)
{
    struct nodes w;
    uint32_t i = 0;
    (void)state;
    nodes_open(&w, 2, 1);
    for (; i < RONDO_WIRE_WINDOW; i++) {
        send_all(w.control[0], 1, 5, &i, sizeof(i));
    }
    WAIT_FOR(atomic_load(&w.control[1]->wire->waiting[0]) == RONDO_WIRE_WINDOW);
    rondo_control_forget(w.control[1], 5);
    assert_int_equal(atomic_load(&w.control[1]->wire->waiting[0]), 0);
    for (i = 0; i < 3 * RONDO_WIRE_WINDOW; i++) {
        send_all(w.control[0], 1, 5, &i, sizeof(i)); /* dropped where it arrives */
    }
    send_all(w.control[0], 1, 6, &i, sizeof(i));
    receive_all(w.control[1], 0, 6, &i, sizeof(i));
    rondo_control_forget(w.control[1], 6); /* credit for what was taken is still to be given back */
    WAIT_FOR(count_windows(w.control[0]) + count_windows(w.control[1]) == 0);
    assert_int_equal(count_windows(w.control[0]) + count_windows(w.control[1]), 0);
    nodes_close(&w);
}

static void a_sender_may_forget_before_its_messages_are_taken(void **state)
{
    struct nodes w;
    uint32_t got;
    (void)state;
    nodes_open(&w, 2, 1);
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        send_all(w.control[0], 1, 5, &i, sizeof(i));
    }
    rondo_control_forget(w.control[0], 5);
    assert_int_equal(count_windows(w.control[0]), 0);
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        receive_all(w.control[1], 0, 5, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    send_all(w.control[1], 0, 6, "x", 1); /* after the credit, which nobody owns any more */
    receive_all(w.control[0], 1, 6, &got, 1);
    assert_int_equal(rondo_control_aborted(w.control[0]), 0);
    nodes_close(&w);
}

struct talker {
    pthread_t thread;
    struct nodes *w;
    int rank;
    const char *problem;
};

/* Send to everyone and receive from everyone, at once. */
static void *talk(void *arg)
{
    enum { MSGS = 60 };
    struct talker *t = arg;
    struct rondo_control *control = t->w->control[t->rank];
    uint32_t sent[NODES_MAX] = { 0 }, received[NODES_MAX] = { 0 };
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    for (int open = 1; open && !t->problem; sched_yield()) {
        open = 0;
        for (int r = 0; r < t->w->nranks; r++) {
            uint32_t got;
            size_t bytes;
            if (r == t->rank) {
                continue;
            }
            sent[r] += sent[r] < MSGS &&
                       rondo_control_send(control, r, 3, &sent[r], sizeof(sent[r])) == RONDO_SUCCESS;
            if (received[r] < MSGS &&
                rondo_control_receive(control, r, 3, &got, sizeof(got), &bytes) == RONDO_SUCCESS) {
                t->problem = got == received[r] ? t->problem : "out of order";
                received[r]++;
            }
            open |= sent[r] < MSGS || received[r] < MSGS;
        }
        t->problem = rondo_now_ns() < end ? t->problem : "too slow";
    }
    return NULL;
}

static void both_sides_may_connect_at_once(void **state)
{
    struct nodes w;
    struct talker talker[NODES_MAX];
    (void)state;
    for (int round = 0; round < 5; round++) {
        nodes_open(&w, 3, 2);
        for (int r = 0; r < w.nranks; r++) {
            talker[r] = (struct talker){ .w = &w, .rank = r };
            assert_int_equal(pthread_create(&talker[r].thread, NULL, talk, &talker[r]), 0);
        }
        for (int r = 0; r < w.nranks; r++) {
            pthread_join(talker[r].thread, NULL);
            assert_null(talker[r].problem);
            assert_int_equal(rondo_control_aborted(w.control[r]), 0);
        }
        nodes_close(&w);
    }
}

/* ---- before and after ---- */

/* Say something on the connection from rank 0 to rank 1, about a communicator that is not known there. */
static void say_of_unknown(const struct nodes *w, int kind, uint64_t comm_hash)
{
    const struct rondo_wire_head head = {
        .magic = RONDO_WIRE_MAGIC, .kind = (uint16_t)kind, .comm_hash = comm_hash, .from = 0, .to = 1
    };
    struct rondo_wire_conn *conn;
    rondo_wire_lock();
    assert_int_equal(rondo_wire_conn_to(w->control[0], 1, &conn), RONDO_SUCCESS);
    assert_int_equal(rondo_wire_put(conn, &head, NULL, 0), 1);
    rondo_wire_unlock();
}

/* Rank 0 destroys communicators that rank 1 has left long ago, and forgotten. */
static void late_leaves_take_no_place_from_early_reasons(void **state)
{
    static const int kinds[] = { RONDO_WIRE_LEAVE, RONDO_WIRE_CREDIT, RONDO_WIRE_TELL };
    struct nodes w, child;
    uint32_t got = 0;
    (void)state;
    nodes_open(&w, 2, 1);
    for (unsigned i = 0; i < 3 * RONDO_WIRE_PARKED; i++) {
        say_of_unknown(&w, kinds[i % 3], 17 + i);
    }
    nodes_prepare(&child, 2, 1);
    assert_int_equal(rondo_control_start(child.control[0]), RONDO_SUCCESS);
    rondo_control_abort(child.control[0], RONDO_TIMEOUT, 0, "rank 0 has waited for long");
    say_of_unknown(&w, RONDO_WIRE_LEAVE, 1);
    send_all(w.control[0], 1, 2, &got, sizeof(got));
    receive_all(w.control[1], 0, 2, &got, sizeof(got)); /* it comes after them, so they have arrived */
    assert_int_equal(rondo_control_start(child.control[1]), RONDO_SUCCESS);
    WAIT_FOR(rondo_control_aborted(child.control[1]));
    nodes_close(&child);
    nodes_close(&w);
}

static void early_messages_wait_for_the_communicator(void **state)
{
    struct nodes w, child;
    uint32_t got;
    (void)state;
    nodes_prepare(&w, 2, 1);
    assert_int_equal(rondo_control_start(w.control[0]),
                     RONDO_SUCCESS); /* no connection yet: it waits behind its hello */
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        send_all(w.control[0], 1, 1, &i, sizeof(i));
    }
    assert_int_equal(rondo_control_start(w.control[1]), RONDO_SUCCESS);
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        receive_all(w.control[1], 0, 1, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    nodes_prepare(&child, 2, 1);
    assert_int_equal(rondo_control_start(child.control[0]),
                     RONDO_SUCCESS); /* on the existing connection: messages are kept */
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        send_all(child.control[0], 1, 1, &i, sizeof(i));
    }
    send_all(w.control[0], 1, 2, &got, sizeof(got));
    receive_all(w.control[1], 0, 2, &got, sizeof(got)); /* it comes after them, so they have arrived */
    assert_int_equal(rondo_control_start(child.control[1]), RONDO_SUCCESS);
    for (uint32_t i = 0; i < RONDO_WIRE_WINDOW; i++) {
        receive_all(child.control[1], 0, 1, &got, sizeof(got));
        assert_int_equal(got, i);
    }
    nodes_close(&child);
    nodes_close(&w);
}

/* Messages kept for unknown communicators are bounded in number and time. */
static void kept_messages_are_bounded(void **state)
{
    struct nodes w;
    struct rondo_wire_head head;
    struct rondo_wire_conn *conn;
    (void)state;
    nodes_open(&w, 2, 1);
    rondo_wire_lock();
    assert_int_equal(rondo_wire_conn_to(w.control[0], 1, &conn), RONDO_SUCCESS);
    head = rondo_wire_head_of(w.control[0], 1, RONDO_WIRE_LEAVE, 0, 0);
    head.comm_hash = 0xdead;
    for (int i = 0; i < RONDO_WIRE_PARKED + 10; i++) {
        assert_int_equal(rondo_wire_put(conn, &head, NULL, 0), 1);
    }
    rondo_wire_unlock();
    WAIT_FOR(dropped(RONDO_WIRE_DROP_OLD) == 10);
    assert_int_equal(dropped(RONDO_WIRE_DROP_OLD), 10);
    rondo_wire_tick(rondo_now_ns() + 2 * RONDO_WIRE_PARKED_NS, 1, 0, 0);
    assert_int_equal(dropped(RONDO_WIRE_DROP_OLD), 10 + RONDO_WIRE_PARKED);
    assert_int_equal(rondo_control_aborted(w.control[0]) + rondo_control_aborted(w.control[1]), 0);
    nodes_close(&w);
}

static void communicators_share_connections_and_leave_nothing_behind(void **state)
{
    struct nodes w[4];
    int files = count_fds(), tasks = count_threads(), connections;
    uint32_t got = 0;
    (void)state;
    for (int i = 0; i < 4; i++) {
        nodes_open(&w[i], 2, 1);
        send_all(w[i].control[0], 1, 1, &i, sizeof(i));
        receive_all(w[i].control[1], 0, 1, &got, sizeof(got));
        send_all(w[i].control[1], 0, 1, &i, sizeof(i));
        receive_all(w[i].control[0], 1, 1, &got, sizeof(got));
        connections = count_connections();
        assert_in_range(connections, 2, 4); /* both ends are here */
    }
    assert_int_equal(count_threads(), tasks + 1);
    for (int i = 0; i < 4; i++) {
        nodes_close(&w[i]);
    }
    assert_null(rondo_wire);
    assert_int_equal(count_fds(), files);
    assert_int_equal(count_threads(), tasks);
}

static int accepting(void)
{
    int accepts;
    rondo_wire_lock();
    accepts = rondo_wire->accepts;
    rondo_wire_unlock();
    return accepts;
}

/* Both sides connect once there are descriptors again. */
static void running_out_of_descriptors_is_reported_and_passes(void **state)
{
    struct nodes w, late;
    struct rlimit limit, few;
    int filler[256], n = 0, stopped = 0;
    uint32_t got = 0;
    (void)state;
    nodes_open(&w, 2, 1); /* the control thread has its own */
    send_all(w.control[0], 1, 1, &got, sizeof(got));
    receive_all(w.control[1], 0, 1, &got, sizeof(got));
    (void)accepting(); /* the pass that accepted has ended: it holds no descriptor, as accept4 does for a
                          moment even where it finds nobody */
    nodes_init(&late, 2, 1, 0);
    for (int r = 0; r < 2; r++) {
        late.peers[r].process_hash += 50; /* like other processes, which need connections of their own */
        memcpy(late.peers[r].control_addr, w.peers[0].control_addr, RONDO_ADDR_BYTES);
    }
    assert_int_equal(nodes_make(&late, 0), RONDO_SUCCESS);
    assert_int_equal(nodes_make(&late, 1), RONDO_SUCCESS);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = RONDO_COUNTOF(filler);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n < (int)RONDO_COUNTOF(filler) && (filler[n] = dup(0)) >= 0) {
        n++;
    }
    assert_int_equal(rondo_control_start(late.control[0]), RONDO_SUCCESS);
    assert_int_equal(rondo_control_send(late.control[0], 1, 1, "x", 1), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rondo_error_text(), "ulimit -n"));
    close(filler[--n]); /* enough for this end, not for the other */
    send_all(late.control[0], 1, 1, &got, sizeof(got));
    WAIT_FOR((stopped = !accepting())); /* for a while: it keeps trying */
    assert_true(stopped);
    while (n > 0) {
        close(filler[--n]);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(rondo_control_start(late.control[1]), RONDO_SUCCESS);
    receive_all(late.control[1], 0, 1, &got, sizeof(got));
    assert_int_equal(rondo_control_aborted(late.control[0]) + rondo_control_aborted(w.control[0]), 0);
    rondo_control_close(late.control[0]);
    rondo_control_close(late.control[1]);
    nodes_close(&w);
}

static void both_address_families_work(void **state)
{
    struct nodes w;
    uint32_t got = 5, number;
    uint8_t addr[RONDO_ADDR_BYTES];
    (void)state;
    setenv("RONDO_SOCKET_FAMILY", "6", 1);
    use_loop("50ms", "10s");
    if (rondo_control_listen(addr, &number) == RONDO_SUCCESS) { /* this host may have no IPv6 */
        assert_int_equal(((const struct sockaddr *)addr)->sa_family, AF_INET6);
        nodes_open(&w, 2, 1);
        send_all(w.control[0], 1, 1, &got, sizeof(got));
        receive_all(w.control[1], 0, 1, &got, sizeof(got));
        nodes_close(&w);
        rondo_control_unlisten();
    }
    setenv("RONDO_SOCKET_IFNAME", "=nothing", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_control_listen(addr, &number), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rondo_error_text(), "RONDO_SOCKET_IFNAME"));
    assert_null(rondo_wire);
    unsetenv("RONDO_SOCKET_FAMILY");
    use_loop("50ms", "10s");
}

static void one_node_has_no_wire(void **state)
{
    struct nodes w;
    size_t bytes;
    char data[4];
    (void)state;
    nodes_init(&w, 1, 2, 0);
    w.nnodes = 0;
    assert_int_equal(nodes_make(&w, 0), RONDO_SUCCESS);
    assert_int_equal(nodes_make(&w, 1), RONDO_SUCCESS);
    assert_int_equal(rondo_control_start(w.control[0]), RONDO_SUCCESS);
    assert_int_equal(rondo_control_start(w.control[1]), RONDO_SUCCESS);
    assert_null(rondo_wire);
    assert_int_equal(rondo_control_receive(w.control[0], 2, 1, data, sizeof(data), &bytes),
                     RONDO_INTERNAL_ERROR);
    rondo_control_close(w.control[0]);
    rondo_control_close(w.control[1]);
}

/* ---- reasons, leaves, questions ---- */

static void reasons_reach_all_nodes(void **state)
{
    struct nodes w;
    char text[RONDO_ERROR_TEXT];
    int rank;
    (void)state;
    for (int origin = 0; origin < 10; origin += 3) {
        nodes_open(&w, 5, 2);
        rondo_control_abort(w.control[origin], RONDO_SYSTEM_ERROR, 7, "rank 7 has no memory");
        for (int r = 0; r < w.nranks; r++) {
            WAIT_FOR(rondo_control_aborted(w.control[r]));
            assert_int_equal(rondo_control_reason(w.control[r], text, &rank), RONDO_SYSTEM_ERROR);
            assert_string_equal(text, "rank 7 has no memory");
            assert_int_equal(rank, 7);
        }
        nodes_close(&w);
    }
}

/* The first reason in a node stays. */
static void of_two_reasons_at_once_everyone_gets_one(void **state)
{
    struct nodes w;
    char text[RONDO_ERROR_TEXT];
    int rank;
    (void)state;
    nodes_open(&w, 5, 1);
    rondo_control_abort(w.control[0], RONDO_SYSTEM_ERROR, 0, "zero");
    rondo_control_abort(w.control[3], RONDO_TIMEOUT, 3, "three");
    for (int r = 0; r < w.nranks; r++) {
        WAIT_FOR(rondo_control_aborted(w.control[r]));
        assert_int_not_equal(rondo_control_reason(w.control[r], text, &rank), RONDO_SUCCESS);
        assert_string_equal(text, rank == 0 ? "zero" : "three");
    }
    rondo_control_reason(w.control[0], text,
                         &rank); /* rank 0's reason may have reached rank 3 before it gave its own */
    assert_int_equal(rank, 0);
    nodes_close(&w);
}

static void the_reason_of_a_process_that_exits_at_once_arrives(void **state)
{
    struct nodes w;
    (void)state;
    nodes_open(&w, 3, 2);
    rondo_control_abort(w.control[1], RONDO_REMOTE_ERROR, 1, "aborted");
    rondo_control_close(w.control[1]);
    w.control[1] = NULL;
    for (int r = 2; r < w.nranks; r++) {
        WAIT_FOR(rondo_control_aborted(w.control[r]));
        assert_true(rondo_control_aborted(w.control[r]));
    }
    nodes_close(&w);
}

static void leaving_is_announced_and_is_no_fault(void **state)
{
    struct nodes w;
    (void)state;
    nodes_open(&w, 3, 2);
    WAIT_FOR(count_connections() >= 4); /* leaders watch each other */
    rondo_control_leave(w.control[2]);
    WAIT_FOR(rondo_control_state_of(w.control[0], 2) == RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_state_of(w.control[0], 2), RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_send(w.control[0], 2, 1, "x", 1), RONDO_REMOTE_ERROR);
    rondo_control_close(w.control[2]);
    w.control[2] = NULL;
    WAIT_FOR(watched_by(w.control[0]) == 3); /* the next rank leads that node */
    assert_int_equal(watched_by(w.control[0]), 3);
    for (int r = 0; r < w.nranks; r++) {
        assert_int_equal(r != 2 && rondo_control_aborted(w.control[r]), 0);
    }
    rondo_control_abort(w.control[0], RONDO_TIMEOUT, 0, "enough");
    WAIT_FOR(rondo_control_aborted(w.control[3]));
    assert_true(rondo_control_aborted(w.control[3]));
    nodes_close(&w);
}

static void calls_of_ranks_on_other_nodes_are_asked_for(void **state)
{
    struct nodes w;
    struct rondo_call call = { .seq = 0 }, got;
    (void)state;
    nodes_open(&w, 2, 1);
    for (uint64_t seq = 1; seq <= 20; seq++) {
        call = (struct rondo_call){ .seq = seq,
                                    .count = 1000 + seq,
                                    .word = (uint32_t)(7 * seq),
                                    .op = 2,
                                    .root = 1,
                                    .coll = 3,
                                    .dtype = 4 };
        rondo_control_call_begin(w.control[1], &call);
        if (seq < 20) {
            rondo_control_call_end(w.control[1], seq);
        }
    }
    WAIT_FOR(rondo_control_call_of(w.control[0], 1, 0, &got));
    assert_int_equal(got.seq, 20);
    assert_int_equal(got.count, 1020);
    assert_int_equal(got.word, 140);
    assert_int_equal(got.state, 1);
    assert_int_equal(rondo_control_call_of(w.control[0], 1, 7, &got), 1);
    assert_int_equal(got.count, 1007);
    assert_int_equal(got.state, 2);
    assert_int_equal(rondo_control_call_of(w.control[0], 1, 4, &got), 0); /* no longer in the ring */
    rondo_control_call_end(w.control[1], 20);
    call.seq = 21;
    rondo_control_call_begin(w.control[1], &call);
    WAIT_FOR(rondo_control_call_of(w.control[0], 1, 0, &got) && got.seq == 21); /* asked anew */
    assert_int_equal(got.seq, 21);
    nodes_close(&w);
}

static void counts_of_ranks_on_other_nodes_are_asked_for(void **state)
{
    struct nodes w;
    size_t counts[3];
    uint64_t got[3];
    (void)state;
    nodes_open(&w, 3, 1);
    for (uint64_t seq = 1; seq <= 6; seq++) {
        for (size_t i = 0; i < 3; i++) {
            counts[i] = 10 * seq + i;
        }
        rondo_control_counts_put(w.control[1], seq, counts);
    }
    WAIT_FOR(rondo_control_counts_of(w.control[0], 1, 5, 0, got, 3) != RONDO_COUNTS_LATER);
    assert_int_equal(rondo_control_counts_of(w.control[0], 1, 5, 0, got, 3), 3);
    assert_int_equal(got[2], 52);
    WAIT_FOR(rondo_control_counts_of(w.control[2], 1, 6, 2, got, 3) != RONDO_COUNTS_LATER);
    assert_int_equal(rondo_control_counts_of(w.control[2], 1, 6, 2, got, 3), 1);
    assert_int_equal(got[0], 62);
    WAIT_FOR(rondo_control_counts_of(w.control[0], 1, 2, 0, got, 3) != RONDO_COUNTS_LATER);
    assert_int_equal(rondo_control_counts_of(w.control[0], 1, 2, 0, got, 3), RONDO_COUNTS_UNKNOWN);
    assert_int_equal(rondo_control_counts_of(w.control[0], 3, 2, 0, got, 3), RONDO_COUNTS_UNKNOWN);
    nodes_close(&w);
}

/* All nodes of this test have one clock. */
static void pings_tell_how_clocks_differ(void **state)
{
    struct nodes w;
    int64_t offset = 1, error = -1;
    int rank = -1;
    (void)state;
    nodes_open(&w, 3, 1);
    assert_int_equal(rondo_control_clock(w.control[0], &rank, &offset, &error), 0); /* the tree's root */
    for (int r = 1; r < 3; r++) {
        assert_int_equal(rondo_control_clock(w.control[r], &rank, &offset, &error), 1);
        assert_int_equal(rank, 0);
        assert_true(error > 0 && error < 100000000);
        assert_true(offset >= -error && offset <= error);
    }
    nodes_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_between_nodes_in_order),
        cmocka_unit_test(messages_of_all_sizes_arrive_whole),
        cmocka_unit_test(a_rank_that_takes_no_messages_holds_up_no_other),
        cmocka_unit_test(a_tag_that_nobody_asks_for_holds_up_no_other),
        cmocka_unit_test(a_forgotten_tag_gives_its_window_back),
        cmocka_unit_test(a_sender_may_forget_before_its_messages_are_taken),
        cmocka_unit_test(both_sides_may_connect_at_once),
        cmocka_unit_test(early_messages_wait_for_the_communicator),
        cmocka_unit_test(late_leaves_take_no_place_from_early_reasons),
        cmocka_unit_test(kept_messages_are_bounded),
        cmocka_unit_test(communicators_share_connections_and_leave_nothing_behind),
        cmocka_unit_test(running_out_of_descriptors_is_reported_and_passes),
        cmocka_unit_test(both_address_families_work),
        cmocka_unit_test(one_node_has_no_wire),
        cmocka_unit_test(reasons_reach_all_nodes),
        cmocka_unit_test(of_two_reasons_at_once_everyone_gets_one),
        cmocka_unit_test(the_reason_of_a_process_that_exits_at_once_arrives),
        cmocka_unit_test(leaving_is_announced_and_is_no_fault),
        cmocka_unit_test(calls_of_ranks_on_other_nodes_are_asked_for),
        cmocka_unit_test(counts_of_ranks_on_other_nodes_are_asked_for),
        cmocka_unit_test(pings_tell_how_clocks_differ),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
