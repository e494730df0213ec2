/* Children (split, shrink) with members on several nodes: the bootstrap over the parent's control plane. */
#include "control_nodes.h"

#include <errno.h>
#include <sched.h>

#include "net/bootstrap/bootstrap.h"

static int setup(void **state)
{
    (void)state;
    use_loop("50ms", "10s");
    return 0;
}

struct member {
    pthread_t thread;
    struct nodes *w;
    const int *members;
    int n, self, over_ended;
    rondo_status status;
    char text[RONDO_ERROR_TEXT];
    const char *problem;
};

/* An allgather of several fragments, an exchange on the ring, a barrier. */
static void *make_child(void *arg)
{
    enum { RECORD = 3000 };
    struct member *m = arg;
    struct rondo_bootstrap *b = NULL;
    uint8_t mine[RECORD], *all = calloc((size_t)m->n, RECORD), recv[2 * RECORD], send[2 * RECORD];
    int peer[2] = { (m->self + 1) % m->n, (m->self + m->n - 1) % m->n };
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    memset(mine, m->self + 1, sizeof(mine));
    memset(send, m->self + 1, sizeof(send));
    m->status = rondo_bootstrap_control(m->w->control[m->members[m->self]], m->members, m->n, m->self, 4,
                                        m->over_ended, &b);
    for (int round = 0; round < 3 && m->status == RONDO_SUCCESS; round++) {
        if (round == 1) {
            b->ops->exchange_start(b, m->n == 2 ? 1 : 2, peer, send, recv, RECORD);
        } else {
            b->ops->allgather_start(b, mine, all, round ? 0 : RECORD);
        }
        while ((m->status = b->ops->test(b)) == RONDO_IN_PROGRESS && rondo_now_ns() < end) {
            sched_yield();
        }
    }
    snprintf(m->text, sizeof(m->text), "%s", rondo_error_text());
    for (int i = 0; i < m->n && m->status == RONDO_SUCCESS; i++) {
        m->problem = all[RECORD * i] == i + 1 && all[RECORD * i + RECORD - 1] == i + 1 ? m->problem
                                                                                       : "wrong table";
    }
    if (m->status == RONDO_SUCCESS &&
        (recv[RECORD - 1] != peer[0] + 1 || (m->n > 2 && recv[2 * RECORD - 1] != peer[1] + 1))) {
        m->problem = "wrong records";
    }
    if (b) {
        b->ended = m->status;
        b->ops->close(b, m->status == RONDO_SUCCESS);
    }
    if (m->status != RONDO_SUCCESS && strcmp(m->text, rondo_error_text()) != 0) {
        m->problem = "another sentence after the end";
    }
    free(all);
    return NULL;
}

static void run_over(struct nodes *w, struct member *member, const int *members, int n, unsigned who,
                     int over_ended)
{
    for (int i = 0; i < n; i++) {
        member[i] =
            (struct member){ .w = w, .members = members, .n = n, .self = i, .over_ended = over_ended };
        if (who >> i & 1) {
            assert_int_equal(pthread_create(&member[i].thread, NULL, make_child, &member[i]), 0);
        }
    }
    for (int i = 0; i < n; i++) {
        if (who >> i & 1) {
            pthread_join(member[i].thread, NULL);
        }
    }
}

static void run_members(struct nodes *w, struct member *member, const int *members, int n, unsigned who)
{
    run_over(w, member, members, n, who, 1);
}

static void children_are_created_across_nodes(void **state)
{
    static const int all[6] = { 5, 0, 3, 1, 4, 2 }, pair[2] = { 4, 1 };
    struct nodes w;
    struct member member[6];
    (void)state;
    nodes_open(&w, 3, 2);
    for (int abort = 0; abort < 2; abort++) { /* shrink creates children of aborted parents */
        run_members(&w, member, all, 6, 0x3f);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(member[i].status, RONDO_SUCCESS);
            assert_null(member[i].problem);
        }
        nodes_close(&w);
        nodes_open(&w, 3, 2);
        rondo_control_abort(w.control[2], RONDO_REMOTE_ERROR, 3, "rank 3 is gone");
        run_members(&w, member, pair, 2, 3);
        assert_int_equal(member[0].status + member[1].status, RONDO_SUCCESS);
        nodes_close(&w);
        nodes_open(&w, 3, 2);
    }
    nodes_close(&w);
}

/* Rank 4 has left and was never connected to member 0, so member 0 asks it. */
static void a_member_of_another_node_that_left_is_named(void **state)
{
    static const int members[3] = { 1, 4, 3 };
    struct nodes w;
    struct member member[3];
    (void)state;
    for (int close = 0; close < 2; close++) {
        nodes_open(&w, 3, 2);
        rondo_control_leave(w.control[4]);
        if (close) {
            rondo_control_close(w.control[4]);
            w.control[4] = NULL;
        }
        run_members(&w, member, members, 3, 0x5);
        for (int i = 0; i < 3; i += 2) {
            assert_int_equal(member[i].status, RONDO_REMOTE_ERROR);
            assert_non_null(strstr(member[i].text, "member rank 4 "));
            assert_non_null(strstr(member[i].text, "on host host2"));
            assert_non_null(strstr(member[i].text, "destroyed the parent"));
        }
        nodes_close(&w);
    }
}

/* ---- a parent that ends meanwhile ---- */

static const int all_six[6] = { 0, 1, 2, 3, 4, 5 };

/* No beats: nobody hears of a loss but by what a test does. */
static void six_open(struct nodes *w)
{
    use_loop("1000s", "1000000s");
    nodes_open(w, 3, 2);
}

static void six_close(struct nodes *w)
{
    nodes_close(w);
    use_loop("50ms", "10s");
}

/* Node 0 knows that rank 5 is lost. */
static void lose(struct nodes *w, enum rondo_loss loss)
{
    char text[RONDO_ERROR_TEXT];
    rondo_loss_text(w->control[0], 5, loss, text, sizeof(text));
    assert_int_equal(rondo_control_end(w->control[0], RONDO_REMOTE_ERROR, 5, loss, text), 1);
}

static void check_named(const struct member *member, unsigned who, const char *rank)
{
    for (int i = 0; i < member->n; i++) {
        if (who >> i & 1 &&
            (member[i].status != RONDO_REMOTE_ERROR || strstr(member[i].text, rank) == NULL)) {
            fail_msg("member %d: %s: %s", i, rondo_status_string(member[i].status), member[i].text);
        }
        assert_null(member[i].problem);
    }
}

/* Rank 0 was told of a death, and leaves the parent, or is gone altogether. The others make a child, to which
 * neither of the two comes; with the dead rank, or without it. */
static void who_leaves_because_of_a_death_is_not_blamed(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        int n = way < 2 ? 6 : 5;
        struct nodes w;
        struct member member[6];
        six_open(&w);
        lose(&w, RONDO_LOSS_DEAD);
        rondo_control_leave(w.control[0]);
        if (way % 2 == 1) {
            rondo_control_close(w.control[0]);
            w.control[0] = NULL;
        }
        run_over(&w, member, all_six, n, 0x1e, 0);
        check_named(member, 0x1e, "rank 5 (pid ");
        six_close(&w);
    }
}

/* Rank 0 is asked when it has left, by a node that it never told. */
static void who_is_asked_after_it_has_left_says_why(void **state)
{
    char text[RONDO_ERROR_TEXT];
    (void)state;
    for (int close = 0; close < 2; close++) {
        struct nodes w;
        int rank;
        six_open(&w);
        rondo_control_leave(w.control[0]);
        WAIT_FOR(rondo_control_state_of(w.control[3], 0) == RONDO_RANK_LEFT);
        assert_int_equal(rondo_control_aborted(w.control[3]), 0);
        lose(&w, RONDO_LOSS_DEAD);
        if (close) {
            rondo_control_close(w.control[0]);
            w.control[0] = NULL;
        }
        rondo_wire_ask(w.control[3], 0);
        WAIT_FOR(rondo_control_aborted(w.control[3]));
        assert_int_equal(rondo_control_reason(w.control[3], text, &rank), RONDO_REMOTE_ERROR);
        assert_int_equal(rank, 5);
        assert_non_null(strstr(text, "rank 5 (pid "));
        assert_int_equal(rondo_control_state_of(w.control[2], 5), RONDO_RANK_DEAD); /* by its node */
        six_close(&w);
    }
}

/* Rank 0 knows of the loss, and comes to no more children: the others must not wait for it. */
static void who_does_not_come_because_of_a_loss_is_not_waited_for(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct nodes w;
        struct member member[6];
        six_open(&w);
        lose(&w, way % 2 == 0 ? RONDO_LOSS_DEAD : RONDO_LOSS_SILENT);
        rondo_wire_spread(w.control[0]);
        run_over(&w, member, all_six, way < 2 ? 6 : 5, 0x1e, 0);
        check_named(member, 0x1e, "rank 5 (pid ");
        six_close(&w);
    }
}

/* Another communicator has told rank 0. It ends this one before this one has found out by itself. The process
 * of rank 5 is that of rank 4, too. */
static void a_loss_that_another_communicator_told_of_is_the_reason(void **state)
{
    char text[RONDO_ERROR_TEXT];
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct nodes w, other;
        struct member member[6];
        int rank;
        six_open(&other);
        nodes_open(&w, 3, 2);
        lose(&other, way == 2 ? RONDO_LOSS_SILENT : RONDO_LOSS_DEAD);
        assert_int_equal(rondo_control_reason(other.control[0], text, &rank), RONDO_REMOTE_ERROR);
        rondo_control_told_loss(text, sizeof(text));
        assert_ptr_equal(strstr(text, "rank 5 (pid "), text);
        if (way > 0) {
            rondo_control_abort(w.control[0], RONDO_REMOTE_ERROR, 0, "rank 0 aborted the communicator");
        }
        rondo_control_leave(w.control[0]);
        run_over(&w, member, all_six, 6, 0xe, 0);
        check_named(member, 0xe, "rank 4 (pid ");
        nodes_close(&w);
        six_close(&other);
    }
}

/* Rank 5 did its part of the creation, and died. Who starts the new control plane later must be told. */
static void a_communicator_that_starts_after_a_loss_ends(void **state)
{
    char text[RONDO_ERROR_TEXT];
    struct nodes w, late;
    int rank;
    (void)state;
    six_open(&w);
    nodes_prepare(&late, 3, 2);
    lose(&w, RONDO_LOSS_DEAD);
    assert_int_equal(rondo_control_start(late.control[0]), RONDO_SUCCESS);
    assert_int_equal(rondo_control_reason(late.control[0], text, &rank), RONDO_REMOTE_ERROR);
    assert_int_equal(rank, 4); /* of the same process */
    for (int r = 1; r < 6; r++) {
        assert_int_equal(rondo_control_start(late.control[r]), RONDO_SUCCESS);
    }
    nodes_close(&late);
    six_close(&w);
}

/* The parent has ended, and all go on: they have what they need. */
static void a_parent_that_ends_stops_no_child_that_all_make(void **state)
{
    struct nodes w;
    struct member member[6];
    (void)state;
    six_open(&w);
    lose(&w, RONDO_LOSS_DEAD);
    rondo_wire_spread(w.control[0]);
    run_over(&w, member, all_six, 4, 0xf, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(member[i].status, RONDO_SUCCESS);
    }
    six_close(&w);
}

/* Several children of all ranks; this thread moves every member of each. */
struct child {
    struct rondo_bootstrap *b[NODES_MAX];
    uint8_t *all[NODES_MAX], mine[3000];
    rondo_status status[NODES_MAX];
};

static void child_open(struct child *child, struct nodes *w, uint64_t tag, int over_ended)
{
    static const int members[NODES_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    for (int r = 0; r < w->nranks; r++) {
        assert_int_equal(
            rondo_bootstrap_control(w->control[r], members, w->nranks, r, tag, over_ended, &child->b[r]),
            RONDO_SUCCESS);
        memset(child->mine, r + 1, sizeof(child->mine));
        child->all[r] = calloc((size_t)w->nranks, sizeof(child->mine));
        child->status[r] = child->b[r]->ops->allgather_start(child->b[r], child->mine, child->all[r],
                                                             sizeof(child->mine));
        assert_int_equal(child->status[r], RONDO_SUCCESS);
        child->status[r] = RONDO_IN_PROGRESS;
    }
}

/* @return 1: these members have the table. */
static int child_move(struct child *child, int from, int to)
{
    int open = 0;
    for (int r = from; r < to; r++) {
        if (child->status[r] == RONDO_IN_PROGRESS) {
            child->status[r] = child->b[r]->ops->test(child->b[r]);
        }
        open += child->status[r] == RONDO_IN_PROGRESS;
    }
    return !open;
}

static void child_close(struct child *child, const struct nodes *w)
{
    for (int r = 0; r < w->nranks; r++) {
        assert_int_equal(child->status[r], RONDO_SUCCESS);
        for (int i = 0; i < w->nranks; i++) {
            assert_int_equal(child->all[r][sizeof(child->mine) * (size_t)i + sizeof(child->mine) - 1], i + 1);
        }
        child->b[r]->ops->close(child->b[r], 1);
        free(child->all[r]);
    }
}

static void child_drop(struct child *child, const struct nodes *w)
{
    for (int r = 0; r < w->nranks; r++) {
        child->b[r]->ops->close(child->b[r], 0);
        free(child->all[r]);
    }
}

/* The other node's ranks have sent their records to the first child, but most do not ask for its table of 36
 * messages, which is on its way. */
static void a_child_that_waits_holds_up_neither_messages_nor_another_child(void **state)
{
    struct nodes w;
    struct child first, second;
    char got = 0;
    (void)state;
    nodes_open(&w, 2, NODES_MAX / 2);
    child_open(&first, &w, 4, 0);
    child_open(&second, &w, 5, 0);
    child_move(&first, NODES_MAX / 2, w.nranks);
    /* Ranks 6 and 9 wait for the records of those below them in the tree, then ask for the table as well. */
    WAIT_FOR((child_move(&first, 0, 1), child_move(&first, 6, 7), child_move(&first, 9, 10),
              child_move(&first, 1, NODES_MAX / 2)));
    assert_true(child_move(&first, 1, NODES_MAX / 2));
    assert_int_equal(first.status[NODES_MAX - 1], RONDO_IN_PROGRESS);
    for (int r = NODES_MAX / 2; r < w.nranks; r++) {
        send_all(w.control[0], r, 9, "x", 1);
        receive_all(w.control[r], 0, 9, &got, 1);
        assert_int_equal(got, 'x');
    }
    WAIT_FOR((child_move(&first, 0, 1), child_move(&second, 0, w.nranks)));
    WAIT_FOR(child_move(&first, 0, w.nranks));
    child_close(&second, &w);
    child_close(&first, &w);
    nodes_close(&w);
}

/* The network between two nodes fails and works again: each takes the other for silent until one asks. On a busy
 * machine the first child may find that too late. */
static void who_was_cut_off_makes_a_child(void **state)
{
    struct nodes w;
    struct child child;
    (void)state;
    nodes_open(&w, 2, 1);
    send_all(w.control[0], 1, 9, "x", 1);
    rondo_wire_lock();
    while (rondo_wire->conns != NULL) {
        rondo_wire_end(rondo_wire->conns, ETIMEDOUT);
    }
    rondo_wire_unlock();
    for (int r = 0; r < 2; r++) {
        assert_int_equal(rondo_control_state_of(w.control[r], !r), RONDO_RANK_SILENT);
    }
    for (uint64_t tag = 6; tag < 12; tag++) {
        child_open(&child, &w, tag, 1);
        WAIT_FOR(child_move(&child, 0, 2));
        if (child.status[0] == RONDO_SUCCESS && child.status[1] == RONDO_SUCCESS) {
            break;
        }
        child_drop(&child, &w);
    }
    child_close(&child, &w);
    nodes_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_are_created_across_nodes),
        cmocka_unit_test(a_member_of_another_node_that_left_is_named),
        cmocka_unit_test(who_leaves_because_of_a_death_is_not_blamed),
        cmocka_unit_test(who_is_asked_after_it_has_left_says_why),
        cmocka_unit_test(who_does_not_come_because_of_a_loss_is_not_waited_for),
        cmocka_unit_test(a_loss_that_another_communicator_told_of_is_the_reason),
        cmocka_unit_test(a_communicator_that_starts_after_a_loss_ends),
        cmocka_unit_test(a_parent_that_ends_stops_no_child_that_all_make),
        cmocka_unit_test(who_was_cut_off_makes_a_child),
        cmocka_unit_test(a_child_that_waits_holds_up_neither_messages_nor_another_child),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
