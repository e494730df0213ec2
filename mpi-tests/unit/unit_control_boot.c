/* Children of split and shrink: the bootstrap over a parent's control plane, ranks as threads. */
#include "control_world.h"

#include <sched.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/bootstrap/bootstrap.h"
#include "net/bootstrap/rounds.h"

enum { RECORD = 3000, ROUNDS = 4 };

struct member {
    pthread_t thread;
    struct world *world;
    const int *members;
    int n, self;
    uint64_t tag;
    size_t bytes;
    const char *problem; /* NULL: no error */
    rondo_status status;
    char text[RONDO_ERROR_TEXT];
    int missing[WORLD_MAX], nmissing;
    int64_t deadline_ns; /* 0: none */
    int nsenders;        /* members that send their record before deadlines begin; 0: they begin at once */
};

static atomic_int nsent;

static uint8_t expected_byte(int from, int to, int round, size_t i)
{
    return (uint8_t)(from * 31 + to * 17 + round * 7 + (int)i);
}

static rondo_status finish(struct rondo_bootstrap *b, int64_t deadline_ns)
{
    int64_t end = rondo_now_ns() + (deadline_ns ? deadline_ns : DEADLINE_NS);
    rondo_status status;
    while ((status = b->ops->test(b)) == RONDO_IN_PROGRESS && rondo_now_ns() < end) {
        sched_yield();
    }
    return status;
}

static const char *gather_once(struct rondo_bootstrap *b, int round, size_t bytes)
{
    uint8_t *mine = malloc(bytes + 1), *all = calloc(1, bytes * (size_t)b->nranks + 1);
    const char *problem = NULL;
    rondo_status status;
    for (size_t i = 0; i < bytes; i++) {
        mine[i] = expected_byte(b->rank, 0, round, i);
    }
    status = b->ops->allgather_start(b, mine, all, bytes);
    status = status == RONDO_SUCCESS ? finish(b, 0) : status;
    if (status != RONDO_SUCCESS) {
        problem = status == RONDO_IN_PROGRESS ? "allgather does not end" : "allgather failed";
    }
    for (int r = 0; r < b->nranks && !problem; r++) {
        for (size_t i = 0; i < bytes; i++) {
            problem = all[(size_t)r * bytes + i] == expected_byte(r, 0, round, i)
                          ? problem
                          : "allgather gave wrong bytes";
        }
    }
    problem = all[bytes * (size_t)b->nranks] == 0 ? problem : "allgather wrote past the table";
    free(mine);
    free(all);
    return problem;
}

/* Exchange with the neighbours on the ring (one, two, or none). */
static const char *exchange_once(struct rondo_bootstrap *b, int round, size_t bytes)
{
    int peer[2] = { (b->rank + 1) % b->nranks, (b->rank + b->nranks - 1) % b->nranks };
    int n = b->nranks == 1 ? 0 : b->nranks == 2 ? 1 : 2;
    uint8_t *send = malloc(2 * bytes), *recv = calloc(2, bytes);
    const char *problem = NULL;
    for (int p = 0; p < n; p++) {
        for (size_t i = 0; i < bytes; i++) {
            send[(size_t)p * bytes + i] = expected_byte(b->rank, peer[p], round, i);
        }
    }
    if (b->ops->exchange_start(b, n, peer, send, recv, bytes) != RONDO_SUCCESS ||
        finish(b, 0) != RONDO_SUCCESS) {
        problem = "exchange failed";
    }
    for (int p = 0; p < n && !problem; p++) {
        for (size_t i = 0; i < bytes; i++) {
            problem = recv[(size_t)p * bytes + i] == expected_byte(peer[p], b->rank, round, i)
                          ? problem
                          : "exchange gave wrong bytes";
        }
    }
    free(send);
    free(recv);
    return problem;
}

static struct rondo_bootstrap *member_open(struct member *m)
{
    struct rondo_bootstrap *b = NULL;
    if (rondo_bootstrap_control(m->world->control[m->members[m->self]], m->members, m->n, m->self, m->tag, 1,
                                &b) != RONDO_SUCCESS) {
        m->problem = "no bootstrap";
        return NULL;
    }
    if (b->ops->open_start(b) != RONDO_SUCCESS || finish(b, 0) != RONDO_SUCCESS) {
        m->problem = "not opened";
    }
    return b;
}

static void *rounds_of_a_member(void *arg)
{
    struct member *m = arg;
    struct rondo_bootstrap *b = member_open(m);
    for (int round = 0; round < ROUNDS && !m->problem; round++) {
        m->problem = gather_once(b, round, m->bytes + (size_t)round);
        m->problem = m->problem ? m->problem : exchange_once(b, round, m->bytes);
        m->problem = m->problem ? m->problem : gather_once(b, round, 0); /* a barrier */
    }
    if (b) {
        b->ops->close(b, m->problem == NULL);
    }
    return NULL;
}

/* Start the members of a child whose bit is in `who`, each with the given body. */
static void start_members(struct world *world, struct member *member, const int *members, int n, uint64_t tag,
                          unsigned who, void *(*body)(void *))
{
    for (int i = 0; i < n; i++) {
        size_t bytes = member[i].bytes;
        int64_t deadline_ns = member[i].deadline_ns;
        int nsenders = member[i].nsenders;
        member[i] = (struct member){ .world = world,
                                     .members = members,
                                     .n = n,
                                     .self = i,
                                     .tag = tag,
                                     .bytes = bytes,
                                     .deadline_ns = deadline_ns,
                                     .nsenders = nsenders };
        if (who >> i & 1) {
            assert_int_equal(pthread_create(&member[i].thread, NULL, body, &member[i]), 0);
        }
    }
}

static void join_members(struct member *member, int n, unsigned who)
{
    for (int i = 0; i < n; i++) {
        if (who >> i & 1) {
            pthread_join(member[i].thread, NULL);
        }
    }
}

static void run_child(struct world *world, const int *members, int n, uint64_t tag, size_t bytes)
{
    struct member member[WORLD_MAX];
    memset(member, 0, sizeof(member));
    for (int i = 0; i < n; i++) {
        member[i].bytes = bytes;
    }
    start_members(world, member, members, n, tag, 0xff, rounds_of_a_member);
    join_members(member, n, 0xff);
    for (int i = 0; i < n; i++) {
        if (member[i].problem) {
            fail_msg("%d ranks, %zu bytes, member %d: %s", n, bytes, i, member[i].problem);
        }
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(world->control[members[i]]->inbox.nparked, 0);
    }
}

static void children_of_all_ranks_gather_and_exchange(void **state)
{
    (void)state;
    for (int n = 1; n <= WORLD_MAX; n++) {
        struct world world;
        int members[WORLD_MAX];
        world_open(&world, n);
        for (int i = 0; i < n; i++) {
            members[i] = (i * 3 + 1) % n; /* another order, if that is a permutation */
        }
        run_child(&world, n % 3 ? members : world.local_ranks, n, 1, RECORD);
        run_child(&world, world.local_ranks, n, 2, 1);
        world_close(&world);
    }
}

static void children_of_some_ranks_do_not_mix(void **state)
{
    struct world world;
    struct member one[3], two[4];
    const int first[3] = { 6, 0, 3 }, second[4] = { 5, 3, 0, 1 };
    (void)state;
    memset(one, 0, sizeof(one));
    memset(two, 0, sizeof(two));
    one[0].bytes = one[1].bytes = one[2].bytes = RECORD;
    two[0].bytes = two[1].bytes = two[2].bytes = two[3].bytes = 500;
    world_open(&world, 7);
    /* Ranks 0 and 3 create both at once, from two threads. */
    start_members(&world, one, first, 3, 1, 0xff, rounds_of_a_member);
    start_members(&world, two, second, 4, 2, 0xff, rounds_of_a_member);
    join_members(one, 3, 0xff);
    join_members(two, 4, 0xff);
    for (int i = 0; i < 4; i++) {
        assert_null(two[i].problem);
        assert_null(i < 3 ? one[i].problem : NULL);
    }
    world_close(&world);
}

/* Shrink does this. */
static void an_aborted_parent_can_still_have_children(void **state)
{
    struct world world;
    const int members[3] = { 0, 1, 3 };
    (void)state;
    world_open(&world, 4);
    rondo_control_abort(world.control[1], RONDO_REMOTE_ERROR, 2, "rank 2 is gone");
    atomic_store(&world.control[0]->watch[2].state, 2);
    atomic_store(&world.control[1]->watch[2].state, 2);
    atomic_store(&world.control[3]->watch[2].state, 2);
    run_child(&world, members, 3, 5, RECORD);
    world_close(&world);
}

static void wrong_members_are_refused(void **state)
{
    struct world world;
    struct rondo_bootstrap *b = NULL;
    const int members[2] = { 0, 1 }, unknown[2] = { 0, 9 };
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_bootstrap_control(world.control[0], members, 2, 1, 1, 0, &b),
                     RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_bootstrap_control(world.control[0], members, 2, 2, 1, 0, &b),
                     RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_bootstrap_control(world.control[0], unknown, 2, 0, 1, 0, &b),
                     RONDO_INTERNAL_ERROR);
    assert_null(b);
    world_close(&world);
}

/* Do one allgather; after a deadline, this rank's or another's, ask who is missing. */
static void *gather_with_deadline(void *arg)
{
    struct member *m = arg;
    struct rondo_bootstrap *b = member_open(m);
    uint8_t mine[64] = { 0 }, all[64 * WORLD_MAX];
    int64_t end;
    b->ops->allgather_start(b, mine, all, sizeof(mine));
    if (m->nsenders > 0) {
        b->ops->test(b); /* sends it */
        atomic_fetch_add(&nsent, 1);
        WAIT_FOR(atomic_load(&nsent) == m->nsenders);
    }
    m->status = finish(b, m->deadline_ns);
    if (m->status == RONDO_IN_PROGRESS || m->status == RONDO_TIMEOUT) {
        end = rondo_now_ns() + DEADLINE_NS;
        while ((m->status = b->ops->missing(b, m->missing, WORLD_MAX, &m->nmissing)) == RONDO_IN_PROGRESS &&
               rondo_now_ns() < end) {
            sched_yield();
        }
        if (m->status == RONDO_SUCCESS) {
            m->status = rondo_fail_quiet(RONDO_TIMEOUT, "gave up");
        } else if (m->status != RONDO_TIMEOUT) { /* told by another */
            m->problem = "missing failed";
        }
    }
    snprintf(m->text, sizeof(m->text), "%s", rondo_error_text());
    b->ended = m->status;
    b->ops->close(b, m->status == RONDO_SUCCESS);
    return NULL;
}

/* Rank `absent` of 4 never comes, and only `impatient` has a deadline that passes. All others learn that,
 * and who is missing. */
static void check_missing(int absent, int impatient)
{
    struct world world;
    struct member member[4];
    unsigned who = 0xf & ~(1u << absent);
    memset(member, 0, sizeof(member));
    atomic_store(&nsent, 0);
    for (int i = 0; i < 4; i++) {
        member[i].nsenders = 3;
    }
    member[impatient].deadline_ns = 50000000;
    world_open(&world, 4);
    start_members(&world, member, world.local_ranks, 4, 3, who, gather_with_deadline);
    join_members(member, 4, who);
    for (int i = 0; i < 4; i++) {
        if (who >> i & 1) {
            assert_null(member[i].problem);
            assert_int_equal(member[i].status, RONDO_TIMEOUT);
            assert_int_equal(member[i].nmissing, 1);
            assert_int_equal(member[i].missing[0], absent);
        }
    }
    world_close(&world);
}

static void a_missing_member_is_named_on_all_when_one_gives_up(void **state)
{
    (void)state;
    check_missing(2, 0);
    check_missing(3, 1);
}

static void a_missing_member_0_is_named(void **state)
{
    struct world world;
    struct member member[4];
    (void)state;
    memset(member, 0, sizeof(member));
    member[1].deadline_ns = member[2].deadline_ns = member[3].deadline_ns = 50000000;
    world_open(&world, 4);
    start_members(&world, member, world.local_ranks, 4, 3, 0xe, gather_with_deadline);
    join_members(member, 4, 0xe);
    for (int i = 1; i < 4; i++) {
        /* Each finds out by itself, or the first that did tells it. */
        assert_null(member[i].problem);
        assert_int_equal(member[i].status, RONDO_TIMEOUT);
        if (member[i].nmissing > 0) {
            assert_int_equal(member[i].missing[0], 0);
        }
    }
    assert_true(member[1].nmissing + member[2].nmissing + member[3].nmissing >= 1);
    world_close(&world);
}

/* Member 0 lists missing ranks that do not exist. */
static void missing_ranks_out_of_range_are_ignored(void **state)
{
    static const int members[2] = { 0, 1 };
    struct rondo_bootstrap *b;
    struct world world;
    struct rondo_rounds_note note = {
        .kind = RONDO_ROUNDS_LIST, .round = 1, .value = 5, .u.ranks = { -1, 2, 1, INT32_MAX, INT32_MIN }
    };
    uint64_t tag = 6, data_tag;
    char mine = 0, all[2];
    int missing[2], n = 0;
    rondo_status status;
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_bootstrap_control(world.control[1], members, 2, 1, tag, 0, &b), RONDO_SUCCESS);
    assert_int_equal(b->ops->allgather_start(b, &mine, all, 1), RONDO_SUCCESS);
    data_tag = rondo_hash("child data", 10, rondo_hash(&tag, sizeof(tag), 0x1234));
    assert_int_equal(
        rondo_control_send(world.control[0], 1, rondo_hash("child note", 10, data_tag), &note, sizeof(note)),
        RONDO_SUCCESS);
    assert_int_equal(finish(b, 0), RONDO_TIMEOUT);
    WAIT_FOR((status = b->ops->missing(b, missing, 2, &n)) != RONDO_IN_PROGRESS);
    assert_int_equal(status, RONDO_SUCCESS);
    assert_int_equal(n, 1);
    assert_int_equal(missing[0], 1);
    b->ops->close(b, 0);
    world_close(&world);
}

static void *give_up(void *arg)
{
    struct member *m = arg;
    struct rondo_bootstrap *b = member_open(m);
    rondo_fail_quiet(RONDO_SYSTEM_ERROR, "no memory for the child on rank 1");
    b->ops->close(b, 0);
    return NULL;
}

static void a_member_that_gives_up_tells_the_others_why(void **state)
{
    struct world world;
    struct member member[3];
    (void)state;
    memset(member, 0, sizeof(member));
    world_open(&world, 3);
    start_members(&world, member, world.local_ranks, 3, 3, 0x5, gather_with_deadline);
    {
        struct member quitter = {
            .world = &world, .members = world.local_ranks, .n = 3, .self = 1, .tag = 3
        };
        give_up(&quitter);
    }
    join_members(member, 3, 0x5);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(member[i].status, RONDO_REMOTE_ERROR);
        assert_non_null(strstr(member[i].text, "no memory for the child on rank 1"));
    }
    world_close(&world);
}

static void a_member_that_leaves_the_parent_too_early_is_named(void **state)
{
    struct world world;
    struct member member[3];
    (void)state;
    memset(member, 0, sizeof(member));
    world_open(&world, 3);
    rondo_control_leave(world.control[2]);
    start_members(&world, member, world.local_ranks, 3, 3, 0x3, gather_with_deadline);
    join_members(member, 3, 0x3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(member[i].status, RONDO_REMOTE_ERROR);
        assert_non_null(strstr(member[i].text, "rank 2 "));
        assert_non_null(strstr(member[i].text, "destroyed the parent"));
    }
    world_close(&world);
}

static int are_neighbours(int a, int b, int n)
{
    return rondo_subtree_of(a, n).parent == b || rondo_subtree_of(b, n).parent == a;
}

/* The neighbours of a dead rank in the tree of a round do not come, because they know of the death already:
 * the others find it themselves, and blame nobody else. */
static void a_dead_member_is_named_although_its_neighbours_do_not_come(void **state)
{
    enum { N = WORLD_MAX, DEAD = N - 2 };
    struct world world;
    struct member member[N];
    unsigned who = 0;
    (void)state;
    memset(member, 0, sizeof(member));
    world_open(&world, N);
    for (int i = 0; i < N; i++) {
        atomic_store(&world.control[i]->watch[DEAD].state, RONDO_RANK_DEAD);
        who |= i == DEAD || are_neighbours(i, DEAD, N) ? 0 : 1u << i;
    }
    assert_int_not_equal(who, 0);
    start_members(&world, member, world.local_ranks, N, 3, who, gather_with_deadline);
    join_members(member, N, who);
    for (int i = 0; i < N; i++) {
        if (who >> i & 1) {
            assert_int_equal(member[i].status, RONDO_REMOTE_ERROR);
            assert_non_null(strstr(member[i].text, "its member rank 6 "));
        }
    }
    world_close(&world);
}

/* Ranks that see records of different sizes report an error: no wrong table, no endless wait. */
static void different_record_sizes_are_an_error(void **state)
{
    const size_t bytes[][2] = { { 100, 101 }, { 1000, 2000 }, { 3000, 1000 } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(bytes); i++) {
        struct world world;
        struct member member[2];
        memset(member, 0, sizeof(member));
        member[0].bytes = bytes[i][0];
        member[1].bytes = bytes[i][1];
        world_open(&world, 2);
        start_members(&world, member, world.local_ranks, 2, 3, 0x3, rounds_of_a_member);
        join_members(member, 2, 0x3);
        for (int k = 0; k < 2; k++) {
            assert_non_null(member[k].problem);
            assert_string_equal(member[k].problem, "allgather failed");
        }
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_of_all_ranks_gather_and_exchange),
        cmocka_unit_test(children_of_some_ranks_do_not_mix),
        cmocka_unit_test(an_aborted_parent_can_still_have_children),
        cmocka_unit_test(wrong_members_are_refused),
        cmocka_unit_test(a_missing_member_is_named_on_all_when_one_gives_up),
        cmocka_unit_test(a_missing_member_0_is_named),
        cmocka_unit_test(missing_ranks_out_of_range_are_ignored),
        cmocka_unit_test(a_member_that_gives_up_tells_the_others_why),
        cmocka_unit_test(a_member_that_leaves_the_parent_too_early_is_named),
        cmocka_unit_test(a_dead_member_is_named_although_its_neighbours_do_not_come),
        cmocka_unit_test(different_record_sizes_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
