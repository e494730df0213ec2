/* Questions of rondo-doctor to processes of other nodes: who gets an answer, and what answers are refused. */
#include "control_nodes.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "kern/exec.h"
#include "net/control/look.h"
#include "observe/observe.h"

static struct {
    const void *data; /* what is written; NULL: write without end */
    size_t bytes;
    _Atomic int running, begun, asked, go;
    struct rondo_look look; /* of the first question */
} says;

static void say(int fd, const struct rondo_look *look)
{
    static const char more[1 << 16];
    if (says.begun++ == 0) { /* several are answered at a time */
        says.look = *look;
    }
    says.asked++;
    says.running++;
    while (!says.go && !*look->ended) {
        pause_1ms();
    }
    if (says.data != NULL) {
        (void)!send(fd, says.data, says.bytes, MSG_NOSIGNAL); /* the other end tells whether it has come */
    } else {
        while (send(fd, more, sizeof(more), MSG_NOSIGNAL) > 0) {
        }
    }
    says.running--;
}

/* Say this from now on. Threads that answer have come to their end, or read it after go. */
static void say_this(const void *data, size_t bytes, int go)
{
    WAIT_FOR(says.running == 0);
    says.data = data;
    says.bytes = bytes;
    says.go = go;
}

static int setup(void **state)
{
    (void)state;
    use_loop("50ms", "10s");
    memset(&says, 0, sizeof(says));
    say_this("that", 4, 1);
    rondo_control_on_look(say);
    return 0;
}

static struct rondo_auth_hello hello_of(const struct nodes *w, int rank)
{
    struct rondo_look look = { .sample_ms = 7, .all = 1, .stacks = 1, .stack_of = 99 };
    struct rondo_auth_hello hello = { .comm_hash = w->comm_hash,
                                      .server = rondo_wire_process(&w->peers[rank]),
                                      .server_rank = rank };
    rondo_look_ask(&look, &hello);
    assert_int_equal(rondo_auth_nonce(hello.nonce), RONDO_SUCCESS);
    return hello;
}

/* Read some bytes. @return how many came before the stream ended */
static size_t get(int fd, void *data, size_t bytes)
{
    size_t n = 0;
    ssize_t got = 1;
    while (n < bytes && got > 0) {
        got = recv(fd, (uint8_t *)data + n, bytes - n, 0);
        n += got > 0 ? (size_t)got : 0;
    }
    return n;
}

/* @return a connection that has said this. */
static int call(const struct nodes *w, int rank, const void *data, size_t bytes)
{
    const struct sockaddr_in *addr = (const void *)w->peers[rank].control_addr;
    struct timeval limit = { .tv_sec = 60 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)addr, sizeof(*addr)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
    return fd;
}

/* Go through the handshake. @return the connection; -1: there was no welcome */
static int greet(const struct nodes *w, int rank, const struct rondo_auth_hello *hello, int spoil)
{
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
    int fd = call(w, rank, hello, sizeof(*hello));
    if (get(fd, &welcome, sizeof(welcome)) < sizeof(welcome)) {
        close(fd);
        return -1;
    }
    assert_int_equal(rondo_auth_prove(w->peers[0].id.nonce, hello, &welcome, proof), 1);
    proof[3] ^= (uint8_t)spoil;
    assert_int_equal(send(fd, proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    return fd;
}

/* @return the bytes of an answer. */
static size_t ask(const struct nodes *w, int rank, const struct rondo_auth_hello *hello, int spoil)
{
    char text[16];
    int fd = greet(w, rank, hello, spoil);
    size_t n = fd >= 0 ? get(fd, text, sizeof(text)) : 0;
    if (fd >= 0) {
        close(fd);
    }
    return n;
}

static void who_proves_the_secret_gets_an_answer(void **state)
{
    struct nodes w;
    struct rondo_auth_hello hello;
    (void)state;
    nodes_open(&w, 2, 2);
    for (int i = 0; i < 2 * RONDO_LOOKS; i++) { /* more than are answered at a time */
        hello = hello_of(&w, 2);
        assert_int_equal(ask(&w, 2, &hello, 0), 4);
    }
    assert_int_equal(says.asked, 2 * RONDO_LOOKS);
    assert_int_equal(says.look.sample_ms, 7);
    assert_int_equal(says.look.all, 1);
    assert_int_equal(says.look.stacks, 1);
    assert_int_equal(says.look.stack_of, 99);
    nodes_close(&w);
}

static void strangers_get_none(void **state)
{
    struct nodes w;
    (void)state;
    nodes_open(&w, 2, 1);
    for (int i = 0; i < 10; i++) {
        struct rondo_auth_hello hello = hello_of(&w, 1);
        switch (i) {
        case 0: hello.magic++; break;
        case 1: hello.version++; break;
        case 2: hello.comm_hash++; break;
        case 3: hello.server++; break;
        case 4: hello.server_rank = 2; break;
        case 5: hello.client_rank = 0; break;
        case 6: hello.index |= 1U << 31; break;
        case 7: hello.index |= 0xffff; break; /* a minute is the most */
        case 8: hello.zero = 1; break;
        default: hello.client = UINT64_MAX; break;
        }
        assert_int_equal(greet(&w, 1, &hello, 0), -1);
    }
    for (int i = 0; i < 3; i++) {
        struct rondo_auth_hello hello = hello_of(&w, 1);
        assert_int_equal(ask(&w, 1, &hello, 1 << i), 0);
    }
    rondo_control_on_look(NULL);
    {
        struct rondo_auth_hello hello = hello_of(&w, 1);
        assert_int_equal(greet(&w, 1, &hello, 0), -1);
    }
    assert_int_equal(says.asked, 0);
    nodes_close(&w);
}

static void few_are_answered_at_a_time(void **state)
{
    struct nodes w;
    int fd[RONDO_LOOKS], late[RONDO_LOOK_WELCOMED + 1], refused = 0;
    char text[8];
    (void)state;
    nodes_open(&w, 2, 1);
    says.go = 0;
    for (int i = 0; i < RONDO_LOOKS; i++) {
        struct rondo_auth_hello hello = hello_of(&w, 1);
        fd[i] = greet(&w, 1, &hello, 0);
    }
    WAIT_FOR(says.running == RONDO_LOOKS);
    assert_int_equal(says.running, RONDO_LOOKS);
    {
        struct rondo_auth_hello hello = hello_of(&w, 1);
        assert_int_equal(ask(&w, 1, &hello, 0), 0);
    }
    says.go = 1;
    for (int i = 0; i < RONDO_LOOKS; i++) {
        assert_int_equal(get(fd[i], text, sizeof(text)), 4);
        close(fd[i]);
    }
    for (int i = 0; i <= RONDO_LOOK_WELCOMED; i++) { /* those that prove nothing */
        struct rondo_auth_hello hello = hello_of(&w, 1);
        struct rondo_auth_welcome welcome;
        late[i] = call(&w, 1, &hello, sizeof(hello));
        refused += get(late[i], &welcome, sizeof(welcome)) < sizeof(welcome);
    }
    assert_int_equal(refused, 1);
    for (int i = 0; i <= RONDO_LOOK_WELCOMED; i++) {
        close(late[i]);
    }
    nodes_close(&w);
}

/* Close the communicator while an answer is under way. @return how long that takes */
static int64_t close_while_answering(struct nodes *w)
{
    struct rondo_auth_hello hello = hello_of(w, 1);
    int fd = greet(w, 1, &hello, 0);
    int64_t begin;
    WAIT_FOR(says.running == 1);
    pause_1ms();
    begin = rondo_now_ns();
    nodes_close(w);
    assert_int_equal(says.running, 0);
    close(fd);
    return rondo_now_ns() - begin;
}

/* The doctor does not read; the end of the communicator does not wait for it. */
static void an_answer_ends_with_the_last_communicator(void **state)
{
    struct nodes w;
    (void)state;
    nodes_open(&w, 2, 1);
    say_this(NULL, 0, 1);
    assert_true(close_while_answering(&w) < RONDO_LOOK_NS);
}

static void watch_for_a_minute(int fd, const struct rondo_look *look)
{
    int pid = getpid();
    struct rondo_observe_request request = {
        .pids = &pid, .npids = 1, .any_host = 1, .sample_ms = RONDO_LOOK_SAMPLE_MS, .ended = look->ended
    };
    struct rondo_seen seen = { 0 };
    (void)fd;
    says.running++;
    assert_int_equal(rondo_observe(&seen, &request), RONDO_SUCCESS);
    rondo_seen_release(&seen);
    says.running--;
}

/* The doctor wants to know what ranks use of a core within a minute; the end does not take so long. */
static void watching_ends_with_the_last_communicator(void **state)
{
    struct nodes w;
    (void)state;
    nodes_open(&w, 2, 1);
    rondo_control_on_look(watch_for_a_minute);
    assert_true(close_while_answering(&w) < RONDO_LOOK_SAMPLE_MS / 2 * INT64_C(1000000));
}

/* ---- what the doctor takes ---- */

static int silent_hosts;

static void silent(const char *host, void *arg)
{
    (void)arg;
    assert_string_equal(host, "host1");
    silent_hosts++;
}

/* What would be seen on host0, if host1 were another machine. */
static void see_one_node(const struct nodes *w, struct rondo_seen *seen)
{
    int pid = getpid();
    struct rondo_observe_request request = { .pids = &pid, .npids = 1, .any_host = 1, .wires = 1 };
    struct rondo_seen_comm *comm;
    memset(seen, 0, sizeof(*seen));
    assert_int_equal(rondo_observe(seen, &request), RONDO_SUCCESS);
    assert_int_equal(seen->nwires, 1);
    assert_int_equal(seen->wires[0].nranks, w->nranks);
    assert_int_equal(seen->ncomms, 1);
    comm = &seen->comms[0];
    assert_int_equal(comm->n, w->nranks);
    for (comm->n = 0; comm->ranks[comm->n].node == 0; comm->n++) {
    }
}

static char *answer_of(const struct rondo_seen *seen, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    assert_int_equal(rondo_seen_write(out, seen), RONDO_SUCCESS);
    fclose(out);
    return text;
}

/* Ask, and wait until the threads that answer have let go of the answer. */
static void ask_nodes(struct rondo_seen *seen, struct rondo_look *look)
{
    rondo_observe_nodes(seen, look, silent, NULL);
    WAIT_FOR(says.running == 0);
}

static int asks(struct nodes *w, const void *answer, size_t bytes)
{
    struct rondo_look look = { 0 };
    struct rondo_seen seen;
    int n;
    see_one_node(w, &seen);
    say_this(answer, bytes, 1);
    silent_hosts = 0;
    ask_nodes(&seen, &look);
    n = seen.comms[0].n;
    assert_int_equal(silent_hosts, n == w->nranks ? 0 : 1);
    rondo_seen_release(&seen);
    return n;
}

static void only_whole_answers_are_taken(void **state)
{
    struct nodes w;
    struct rondo_seen seen;
    size_t bytes;
    char *answer, *spoilt;
    int pid = getpid();
    struct rondo_observe_request request = { .pids = &pid, .npids = 1, .any_host = 1 };
    (void)state;
    nodes_open(&w, 2, 2);
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(rondo_observe(&seen, &request), RONDO_SUCCESS);
    answer = answer_of(&seen, &bytes);
    assert_int_equal(asks(&w, answer, bytes), 4); /* ranks 0 and 1 are in it too, and not taken twice */
    assert_int_equal(asks(&w, answer, 0), 2);
    assert_int_equal(asks(&w, answer, 5), 2);
    assert_int_equal(asks(&w, answer, bytes - 1), 2);
    assert_int_equal(asks(&w, "that", 4), 2);
    spoilt = malloc(bytes);
    for (size_t i = 0; i < 200; i++) { /* whatever comes: no more ranks than there are, no fault */
        memcpy(spoilt, answer, bytes);
        spoilt[i * 7919 % bytes] ^= (char)(1 << i % 8);
        assert_in_range(asks(&w, spoilt, bytes), 2, 4);
    }
    free(spoilt);
    free(answer);
    rondo_seen_release(&seen);
    nodes_close(&w);
}

/* The first process of the node says nothing, so the second one is asked. */
static void another_process_of_the_node_answers(void **state)
{
    struct nodes w;
    struct rondo_look look = { 0 };
    struct rondo_seen seen;
    size_t bytes;
    char *answer;
    int mute = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(addr);
    (void)state;
    assert_int_equal(bind(mute, (struct sockaddr *)&addr, size), 0);
    assert_int_equal(listen(mute, 4), 0);
    assert_int_equal(getsockname(mute, (struct sockaddr *)&addr, &size), 0);
    nodes_open(&w, 2, 2);
    see_one_node(&w, &seen);
    seen.comms[0].n = 4;
    answer = answer_of(&seen, &bytes);
    seen.comms[0].n = 2;
    say_this(answer, bytes, 1);
    silent_hosts = 0;
    memcpy(seen.wires[0].places[2].addr, &addr,
           sizeof(addr)); /* it accepts, and says nothing: it is stopped */
    seen.wires[0].places[2].process++;
    ask_nodes(&seen, &look);
    assert_int_equal(seen.comms[0].n, 4);
    assert_int_equal(silent_hosts, 0);
    close(mute);
    for (int r = 2; r < 4; r++) { /* nobody listens at any */
        memcpy(seen.wires[0].places[r].addr, &addr, sizeof(addr));
    }
    seen.comms[0].n = 2;
    ask_nodes(&seen, &look);
    assert_int_equal(seen.comms[0].n, 2);
    assert_int_equal(silent_hosts, 1);
    seen.comms[0].n = 4;
    free(answer);
    rondo_seen_release(&seen);
    nodes_close(&w);
}

/* Of two processes that were asked, rank 3's is the one that a finding names. */
static void the_stack_of_a_named_rank_is_asked_for(void **state)
{
    struct nodes w;
    struct rondo_call call = { .seq = 1, .count = 8, .coll = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_INT8 };
    struct rondo_seen seen;
    struct rondo_seen_process process[2];
    int pid = getpid();
    struct rondo_observe_request request = { .pids = &pid, .npids = 1, .any_host = 1, .wires = 1 };
    (void)state;
    nodes_open(&w, 2, 2);
    for (int r = 0; r < 3; r++) {
        rondo_control_call_begin(w.control[r], &call);
    }
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(rondo_observe(&seen, &request), RONDO_SUCCESS);
    assert_int_equal(seen.nprocesses, 1);
    process[0] = process[1] = seen.processes[0];
    process[1].pid = 4321;
    rondo_free(seen.processes);
    seen.processes = process;
    seen.nprocesses = 2;
    seen.comms[0].ranks[3].process = 1;
    say_this("main\nstep\x1b\n", 11, 1);
    rondo_seen_stacks_wanted(&seen, 1, 1, 0); /* nobody has asked for it */
    assert_int_equal(says.asked, 0);
    rondo_seen_stacks_wanted(&seen, 1, 2, 0);
    WAIT_FOR(says.running == 0);
    assert_int_equal(says.look.stack_of, 4321);
    assert_string_equal(process[1].stack, "main\nstep?\n");
    seen.processes = NULL;
    rondo_seen_release(&seen);
    nodes_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(who_proves_the_secret_gets_an_answer, setup),
        cmocka_unit_test_setup(strangers_get_none, setup),
        cmocka_unit_test_setup(few_are_answered_at_a_time, setup),
        cmocka_unit_test_setup(an_answer_ends_with_the_last_communicator, setup),
        cmocka_unit_test_setup(watching_ends_with_the_last_communicator, setup),
        cmocka_unit_test_setup(only_whole_answers_are_taken, setup),
        cmocka_unit_test_setup(another_process_of_the_node_answers, setup),
        cmocka_unit_test_setup(the_stack_of_a_named_rank_is_asked_for, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
