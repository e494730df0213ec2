/* Children of split and shrink whose members live on several nodes: the bootstrap over the parent's control plane. */
#include "control_nodes.h"

#include <sched.h>

#include "net/bootstrap.h"

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
    int n, self;
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
    m->status = rondo_bootstrap_control(m->w->control[m->members[m->self]], m->members, m->n, m->self, 4, &b);
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
        m->problem = all[RECORD * i] == i + 1 && all[RECORD * i + RECORD - 1] == i + 1 ? m->problem : "wrong table";
    }
    if (m->status == RONDO_SUCCESS && (recv[RECORD - 1] != peer[0] + 1 || (m->n > 2 && recv[2 * RECORD - 1] != peer[1] + 1))) {
        m->problem = "wrong records";
    }
    if (b) {
        b->ops->close(b, m->status == RONDO_SUCCESS);
    }
    free(all);
    return NULL;
}

static void run_members(struct nodes *w, struct member *member, const int *members, int n, unsigned who)
{
    for (int i = 0; i < n; i++) {
        member[i] = (struct member){ .w = w, .members = members, .n = n, .self = i };
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

static void children_across_nodes_are_made(void **state)
{
    static const int all[6] = { 5, 0, 3, 1, 4, 2 }, pair[2] = { 4, 1 };
    struct nodes w;
    struct member member[6];
    (void)state;
    nodes_open(&w, 3, 2);
    for (int abort = 0; abort < 2; abort++) { /* that is what shrink is for */
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

/* Rank 4 has never spoken to member 0, and has left: it is asked. */
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
            assert_non_null(strstr(member[i].text, "has destroyed the parent"));
        }
        nodes_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_across_nodes_are_made),
        cmocka_unit_test(a_member_of_another_node_that_left_is_named),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
