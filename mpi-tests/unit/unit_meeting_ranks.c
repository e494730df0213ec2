/* The connections of a rank with others of its meeting, and with strangers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <poll.h>
#include <sys/socket.h>
#include "base/mem.h"
#include "net/bootstrap/meeting_ranks.h"
#include "net/bootstrap/rounds.h"
#include "in_child.h"
#include "meeting_world.h"

/* Two ranks whose connection, which rank 0 has made, is open. */
static struct rondo_meet_conn *pair_open(struct rondo_meet_ranks ranks[2])
{
    struct rondo_meet_conn *conn = NULL;
    uint8_t addr[2][RONDO_ADDR_BYTES];
    for (int r = 0; r < 2; r++) {
        assert_int_equal(rondo_meet_ranks_init(&ranks[r], r, 2), RONDO_SUCCESS);
        assert_int_equal(rondo_meet_listen(&ranks[r].listener, addr[r]), RONDO_SUCCESS);
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(rondo_calloc(&ranks[r].table, 1, sizeof(addr), "a table"), RONDO_SUCCESS);
        memcpy(ranks[r].table, addr, sizeof(addr));
    }
    assert_int_equal(rondo_meet_conn_to(&ranks[0], 1, &conn), RONDO_SUCCESS);
    for (int i = 0; i < 1000 && (ranks[1].conns == NULL || ranks[1].conns->state != RONDO_MEET_OPEN); i++) {
        assert_int_equal(rondo_meet_ranks_move(&ranks[0]), RONDO_SUCCESS);
        assert_int_equal(rondo_meet_ranks_move(&ranks[1]), RONDO_SUCCESS);
        usleep(1000);
    }
    assert_int_equal(conn->state, RONDO_MEET_OPEN);
    return conn;
}

/* A send is the first to find that a rank has gone: what that rank said before is heard, and its end seen. */
static void an_end_that_a_send_finds_is_seen(void **state)
{
    struct rondo_meet_ranks ranks[2];
    struct rondo_meet_conn *conn = pair_open(ranks);
    struct rondo_rounds_note note = { .kind = RONDO_ROUNDS_FAILED, .from = 1 };
    struct rondo_meet_item *item;
    (void)state;
    assert_int_equal(rondo_meet_send(conn, RONDO_MEET_PART, &note, sizeof(note), NULL, 0), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_send(ranks[1].conns, RONDO_MEET_NOTE, &note, sizeof(note), NULL, 0),
                     RONDO_SUCCESS);
    rondo_meet_ranks_release(&ranks[1]); /* with something unread: a reset */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rondo_meet_send(conn, RONDO_MEET_PART, &note, sizeof(note), NULL, 0), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_meet_ranks_move(&ranks[0]), RONDO_SUCCESS);
    item = rondo_meet_item_take(&ranks[0].notes, 1);
    assert_non_null(item);
    rondo_free(item);
    assert_int_equal(ranks[0].state[1], RONDO_ROUNDS_LOST);
    rondo_meet_ranks_release(&ranks[0]);
}

/* A rank whose welcome comes in two pieces. @return 0 if a goodbye follows the proof. */
static int welcome_by_pieces(int listener, const uint64_t secret[2])
{
    enum { FIRST = 7 };
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    struct rondo_meet_head head = { 0 };
    uint8_t proof[RONDO_AUTH_PROOF];
    struct pollfd poller = { .fd = listener, .events = POLLIN };
    int fd = poll(&poller, 1, 10000) == 1 ? accept(listener, NULL, NULL) : -1;
    if (fd < 0 || recv(fd, &hello, sizeof(hello), MSG_WAITALL) != (ssize_t)sizeof(hello) ||
        rondo_auth_answer(secret, &hello, &welcome) != RONDO_SUCCESS ||
        send(fd, &welcome, FIRST, 0) != FIRST) {
        return 1;
    }
    usleep(100000);
    if (send(fd, (uint8_t *)&welcome + FIRST, sizeof(welcome) - FIRST, 0) !=
            (ssize_t)sizeof(welcome) - FIRST ||
        recv(fd, proof, sizeof(proof), MSG_WAITALL) != (ssize_t)sizeof(proof)) {
        return 2;
    }
    return recv(fd, &head, sizeof(head), MSG_WAITALL) == (ssize_t)sizeof(head) && head.kind == RONDO_MEET_BYE
               ? 0
               : 3;
}

/* A rank leaves while it shakes hands: it says goodbye once that is done. */
static void a_goodbye_waits_for_all_of_a_welcome(void **state)
{
    struct rondo_meet_ranks ranks;
    struct rondo_meet_conn *conn = NULL;
    int listener, status = -1;
    pid_t child;
    (void)state;
    assert_int_equal(rondo_meet_ranks_init(&ranks, 0, 2), RONDO_SUCCESS);
    assert_int_equal(rondo_calloc(&ranks.table, 2, RONDO_ADDR_BYTES, "a table"), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_listen(&listener, ranks.table + RONDO_ADDR_BYTES), RONDO_SUCCESS);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(welcome_by_pieces(listener, ranks.id.secret));
    }
    assert_true(child > 0);
    assert_int_equal(rondo_meet_conn_to(&ranks, 1, &conn), RONDO_SUCCESS);
    rondo_meet_say_goodbye(&ranks, 3 * INT64_C(1000000000));
    assert_int_equal(conn->state, RONDO_MEET_OPEN);
    rondo_meet_ranks_release(&ranks);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(listener);
}

static int stranger(const uint8_t at[RONDO_ADDR_BYTES])
{
    struct sockaddr_storage addr = { 0 };
    int fd;
    memcpy(&addr, at, RONDO_ADDR_BYTES);
    fd = socket(addr.ss_family, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_return_code(connect(fd, (struct sockaddr *)&addr, RONDO_ADDR_BYTES), errno);
    return fd;
}

/* Those who call a rank and say nothing are dropped from a number on, the first ones first. */
static void the_oldest_strangers_make_room(void **state)
{
    enum { MORE = 3, ALL = 1 + RONDO_MEET_STRANGERS + MORE };
    struct rondo_meet_ranks ranks;
    uint8_t addr[RONDO_ADDR_BYTES];
    int fd[ALL];
    char byte;
    (void)state;
    assert_int_equal(rondo_meet_ranks_init(&ranks, 0, 1), RONDO_SUCCESS);
    assert_int_equal(rondo_meet_listen(&ranks.listener, addr), RONDO_SUCCESS);
    for (int i = 0; i < ALL; i++) {
        fd[i] = stranger(addr);
        assert_int_equal(rondo_meet_ranks_move(&ranks), RONDO_SUCCESS);
    }
    for (int i = 0; i < ALL; i++) {
        assert_int_equal(recv(fd[i], &byte, 1, MSG_DONTWAIT), i < MORE ? 0 : -1);
        close(fd[i]);
    }
    assert_int_equal(rondo_meet_ranks_move(&ranks), RONDO_SUCCESS);
    assert_null(ranks.conns);
    rondo_meet_ranks_release(&ranks);
}

/* A rank without descriptors goes on: nobody calls; then somebody does, who has to wait. */
static int run_short(void *arg)
{
    struct rondo_meet_ranks ranks;
    uint8_t addr[RONDO_ADDR_BYTES];
    int good, spare;
    (void)arg;
    rondo_meet_silent_ns = 100 * INT64_C(1000000);
    if (rondo_meet_ranks_init(&ranks, 0, 2) != RONDO_SUCCESS ||
        rondo_meet_listen(&ranks.listener, addr) != RONDO_SUCCESS) {
        return 1;
    }
    spare = dup(0);
    use_descriptors(0);
    good = rondo_meet_ranks_move(&ranks) == RONDO_SUCCESS;
    usleep(150000);
    good = good && rondo_meet_ranks_move(&ranks) == RONDO_SUCCESS;
    close(spare);
    (void)stranger(addr);
    good = good && rondo_meet_ranks_move(&ranks) == RONDO_SUCCESS && ranks.conns == NULL;
    usleep(150000);
    return good && rondo_meet_ranks_move(&ranks) == RONDO_SYSTEM_ERROR ? 0 : 2;
}

static void a_short_rank_goes_on_for_a_time(void **state)
{
    (void)state;
    assert_int_equal(in_child(run_short, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_that_a_send_finds_is_seen),
        cmocka_unit_test(a_goodbye_waits_for_all_of_a_welcome),
        cmocka_unit_test(the_oldest_strangers_make_room),
        cmocka_unit_test(a_short_rank_goes_on_for_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
