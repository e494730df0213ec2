/* The CPU executor alone: steps that wrap, slices that bypass slots, whom it waits for, the fast path, calls
 * that differ. */
#include "exec_world.h"

#include <pthread.h>
#include <unistd.h>

#include "call/plan.h"

static const uint64_t first_steps[] = {
    0, 0x7fffffffull - 40, 0xffffffffull - 60, 0xffffffffull - 9, 0x1ffffffffull - 30, 0x100000000ull
};

static void steps_may_wrap_with_every_protocol(void **state)
{
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(first_steps); s++) {
        for (int proto = -1; proto < RONDO_NUM_PROTOS; proto++) {
            for (uint64_t seed = 1; seed <= 12; seed++) {
                struct world *w = world_new(2 + (int)(seed % 3), first_steps[s], 0);
                random_calls(w, proto, seed);
                run_interleaved(w, seed);
                world_free(w);
            }
        }
    }
}

/* Slices stay in the user's memory while their proxy needs them, and arrive there. Others, and those of other
 * protocols, go through slots. */
static void slices_bypass_slots_when_they_are_sent_unchanged(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world *w = world_new(2 + (int)(seed % 3), 0, 0);
        random_calls(w, seed % 2 ? RONDO_PROTO_SIMPLE : -1, seed);
        carry(w);
        run_interleaved(w, seed);
        world_free(w);
    }
}

/* All_reduce of n blocks of one slice each: of a rank's 2n - 2 sends n - 2 are partial sums, and of the
 * blocks that it receives n - 1 are final. In place or not. */
static void only_partial_sums_need_slots(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++) {
        struct world *w = world_new(n, 0, 0);
        w->ncalls = 1;
        w->call[0] = (struct call){ RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE,
                                    (size_t)n * SLOT_BYTES / 4 };
        w->in_place = n == 3;
        carry(w);
        run_interleaved(w, (uint64_t)n);
        for (int i = 0; i < n; i++) {
            assert_int_equal(w->edge[i].carried, 2 * n - 2);
            assert_int_equal(w->edge[i].from_outside, n);
            assert_int_equal(w->edge[i].to_outside, n - 1);
        }
        world_free(w);
    }
}

/* Without cleaning, the first test would take a stale line for data. */
static void stale_lines_are_taken_for_data_without_cleaning(void **state)
{
    struct world *w = world_new(2, 0xffffffffull - 1, 0);
    struct rondo_conn *conn = &w->edge[0].receiver;
    (void)state;
    conn->step = 0x100000003ull;
    assert_int_equal(rondo_ll_wait(conn, 0, 4), 4);
    rondo_ll_clean(conn);
    assert_int_equal(rondo_ll_wait(conn, 0, 4), 0);
    world_free(w);
}

/* Two ranks write to places that they have read. Of more ranks, nobody writes to what others may still read
 * from the operation before. */
static void two_ranks_swap_their_places(void **state)
{
    static const uint32_t ops[][2] = {
        { 1, 2 }, { 2, 3 }, { UINT32_MAX - 1, UINT32_MAX }, { UINT32_MAX, 2 }
    };
    enum { CAPACITY = 100 };
    (void)state;
    for (int n = 2; n <= 9; n++) {
        uint8_t *places = zeroed(rondo_mailbox_bytes(CAPACITY, n));
        const struct rondo_mailbox b = { places, rondo_mailbox_stride(CAPACITY), CAPACITY, 0, n, 0, 0, 0 };
        for (size_t k = 0; k < RONDO_COUNTOF(ops); k++) {
            for (int r = 0; r < n; r++) {
                assert_true(rondo_mailbox_place(&b, ops[k][0], r) + b.stride <=
                            (uint8_t *)rondo_mailbox_mark(&b, 0));
                for (int q = 0; q < n; q++) {
                    assert_true(q == r || rondo_mailbox_place(&b, ops[k][0], r) !=
                                              rondo_mailbox_place(&b, ops[k][0], q));
                    assert_int_equal(rondo_mailbox_place(&b, ops[k][0], r) ==
                                         rondo_mailbox_place(&b, ops[k][1], q),
                                     n == 2 && q != r);
                }
            }
        }
        assert_true(rondo_mailbox_rooted(&b, RONDO_ROOTED_BANKS - 1, n - 1) +
                            rondo_mailbox_stride(rondo_rooted_capacity(CAPACITY)) ==
                        places + rondo_mailbox_bytes(CAPACITY, n) ||
                    n > RONDO_MAILBOX_FEW);
        free(places);
    }
}

/* A waiter must see every piece that arrives as movement, or a long call looks stalled. */
static void every_arrived_piece_counts_as_movement(void **state)
{
    struct world *w = world_new(2, 0, 0);
    int moved = 0;
    (void)state;
    w->ncalls = 1;
    w->piece = 16;
    w->call[0] = (struct call){ RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 100 };
    for (int i = 0; i < 2; i++) {
        submit(&w->rank[i], &w->call[0], 0);
        w->rank[i].next_call = 1;
    }
    assert_int_equal(rondo_exec_cpu.progress(w->rank[0].exec, &moved), RONDO_SUCCESS);
    assert_int_equal(moved, 0); /* nothing of rank 1's has arrived */
    for (int k = 1; w->rank[0].open || w->rank[1].open; k++) {
        assert_in_range(k, 1, 20);
        moved = 0;
        assert_int_equal(rondo_exec_cpu.progress(w->rank[k % 2].exec, &moved), RONDO_SUCCESS);
        assert_int_equal(moved, 1);
    }
    for (int i = 0; i < 2; i++) {
        check(&w->rank[i], &w->call[0], 0);
        assert_string_equal(w->rank[i].wrong, "");
    }
    world_free(w);
}

static void mailbox_operations_may_wrap(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_BROADCAST,
                                             RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE };
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct world *w = world_new(2 + (int)(seed / 2 % 2), 0,
                                    seed % 2 == 0 ? 0
                                                  /* two ranks swap places */
                                                  : UINT32_MAX - (uint32_t)(seed % 9));
        uint64_t draw = seed | 1;
        w->ncalls = NCALLS;
        w->piece = seed % 4 < 2 ? 0 : 16;
        w->fast_path = seed % 3 == 0 ? 0 : random_next(&draw);
        for (int k = 0; k < NCALLS; k++) {
            enum rondo_coll coll = colls[random_next(&draw) % RONDO_COUNTOF(colls)];
            w->call[k] = (struct call){ RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, coll,
                                        1 + random_next(&draw) % 40 };
        }
        run_interleaved(w, seed);
        world_free(w);
    }
}

/* Each rank has a thread. */
static void run_threads(struct world *w)
{
    pthread_t id[MOST_RANKS];
    for (int i = 0; i < w->n; i++) {
        assert_int_equal(pthread_create(&id[i], NULL, thread_main, &w->rank[i]), 0);
    }
    for (int i = 0; i < w->n; i++) {
        pthread_join(id[i], NULL);
    }
    assert_all_right(w);
}

/* Sums of few ranks by two-shot, in pieces and at once, among one-shot calls. */
static void two_shot_calls(struct world *w, uint64_t seed)
{
    uint64_t draw = seed * 0x9e3779b97f4a7c15ull | 1;
    w->ncalls = NCALLS;
    w->piece = seed % 3 * 16;
    w->in_place = random_next(&draw);
    for (int k = 0; k < NCALLS; k++) {
        enum rondo_algo algo = random_next(&draw) % 4 == 0 ? RONDO_ALGO_ONESHOT : RONDO_ALGO_MAIL_TWOSHOT;
        w->call[k] = (struct call){ algo, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE,
                                    1 + random_next(&draw) % (random_next(&draw) % 2 == 0 ? 40 : 1300) };
    }
}

static void two_shot_over_the_mailbox_is_right_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct world *w = world_new(3 + (int)(seed / 3 % 6), 0,
                                    seed % 2 == 0 ? 0 : UINT32_MAX - (uint32_t)(seed % 9));
        two_shot_calls(w, seed);
        run_interleaved(w, seed);
        world_free(w);
    }
}

static void two_shot_over_the_mailbox_is_right_by_threads(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct world *w = world_new(3 + (int)(seed / 3 % 3), 0, UINT32_MAX - 20);
        two_shot_calls(w, seed);
        run_threads(w);
        world_free(w);
    }
}

/* A rank stops after its first message, and is given up. */
static void a_rank_may_leave_two_shot_in_the_middle(void **state)
{
    struct call c = { RONDO_ALGO_MAIL_TWOSHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 200 };
    struct world *w = world_new(3, 0, 0);
    (void)state;
    w->piece = 16;
    for (int i = 2; i >= 0; i--) {
        submit(&w->rank[i], &c, 0);
        progress_until_stuck(w->rank[i].exec);
    }
    for (int i = 1; i >= 0; i--) {
        progress_until_stuck(w->rank[i].exec);
        assert_waits_for(w->rank[i].exec, -1 - 2, "the message of local rank 2");
    }
    assert_int_equal(w->rank[0].mailbox.op, 2);
    assert_int_equal(w->rank[2].mailbox.op, 1);
    for (int i = 0; i < 3; i++) {
        rondo_exec_cpu.drop(w->rank[i].exec);
        assert_int_equal(w->rank[i].open, 0);
    }
    world_free(w);
}

static void ranks_may_be_threads(void **state)
{
    (void)state;
    for (size_t s = 0; s < 2 * RONDO_COUNTOF(first_steps); s++) {
        struct world *w = world_new(3 - (int)(s % 2), first_steps[s / 2], UINT32_MAX - 2);
        random_calls(w, -1, s + 100);
        w->fast_path = s / 2 % 2 == 0 ? UINT64_MAX : 0;
        for (int k = 0; k < NCALLS; k += 5) {
            w->call[k] = (struct call){ RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 20 };
        }
        run_threads(w);
        world_free(w);
    }
}

static void describe_names_the_awaited_rank(void **state)
{
    static const char *const protos[] = { "ll", "ll128", "simple" };
    struct call all_reduce = { RONDO_ALGO_RING, RONDO_PROTO_LL, RONDO_COLL_ALL_REDUCE, 900 },
                broadcast = all_reduce;
    char text[200] = "", want[64];
    struct rondo_blocked blocked = { .peer = 77 };
    (void)state;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        struct world *w = world_new(3, 5, 0);
        struct rank *r = &w->rank[0];
        rondo_exec_cpu.describe(r->exec, 0, text, sizeof(text), &blocked);
        assert_int_equal(blocked.peer, RONDO_NO_PEER);
        all_reduce.proto = broadcast.proto = (enum rondo_proto)p;
        submit(r, &all_reduce, 0);
        progress_until_stuck(r->exec);
        snprintf(want, sizeof(want), "data from rank 2 (channel 0, %s, step 5)", protos[p]);
        assert_waits_for(r->exec, 2, want);
        rondo_exec_cpu.drop(r->exec);
        assert_int_equal(r->open, 0);
        assert_int_equal(rondo_exec_cpu.describe(r->exec, 0, text, sizeof(text), &blocked), 0);
        assert_int_equal(blocked.peer, RONDO_NO_PEER);
        world_free(w);

        w = world_new(3, 5, 0);
        broadcast.coll = RONDO_COLL_BROADCAST;
        submit(&w->rank[0], &broadcast, 0);
        progress_until_stuck(w->rank[0].exec);
        snprintf(want, sizeof(want), "credit of rank 1 (channel 0, %s, step %d)", protos[p], 5 + RONDO_SLOTS);
        assert_waits_for(w->rank[0].exec, 1, want);
        world_free(w);
    }
}

static void describe_names_the_missing_message_of_a_mailbox(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 3 };
    struct world *w = world_new(4, 0, 0);
    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            submit(&w->rank[i], &c, 0);
            progress_until_stuck(w->rank[i].exec);
        }
    }
    progress_until_stuck(w->rank[0].exec);
    assert_waits_for(w->rank[0].exec, -1 - 2, "the message of local rank 2");
    world_free(w);
}

/* The core of the calling thread: replaces libc's in the whole program. */
static int here;
int sched_getcpu(void) { return here; }

/* Does rank i, on that core, find that all ranks that it waits for run elsewhere? */
static int waits_for_others_elsewhere(struct world *w, int i, int core)
{
    here = core;
    progress_until_stuck(w->rank[i].exec);
    return rondo_exec_cpu.elsewhere(w->rank[i].exec);
}

static void a_rank_knows_whether_it_waits_for_one_on_its_core(void **state)
{
    static const int core[] = { 0, 0, 1, 1 };
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 3 }, from_root = c;
    struct world *w = world_new(4, 0, 0);
    (void)state;
    submit(&w->rank[0], &c, 0);
    submit(&w->rank[2], &c, 0);
    assert_int_equal(waits_for_others_elsewhere(w, 0, 0), 0); /* where rank 3 runs is not known */
    assert_int_equal(waits_for_others_elsewhere(w, 2, 1), 0);
    submit(&w->rank[1], &c, 0);
    assert_int_equal(waits_for_others_elsewhere(w, 1, 0), 0);
    submit(&w->rank[3], &c, 0);
    assert_int_equal(waits_for_others_elsewhere(w, 3, 1), 0); /* it has ended */
    for (int i = 0; i < 4; i++) {
        progress_until_stuck(w->rank[i].exec);
        *rondo_mailbox_core(&w->rank[i].mailbox, i) = (uint32_t)core[i] + 1;
    }

    for (int i = 0; i < 3; i++) {
        submit(&w->rank[i], &c, 1);
        progress_until_stuck(w->rank[i].exec);
    }
    assert_int_equal(waits_for_others_elsewhere(w, 0, 0), 1);
    assert_int_equal(waits_for_others_elsewhere(w, 2, 1), 0);
    assert_int_equal(waits_for_others_elsewhere(w, 0, 1), 0); /* it has moved to rank 3's core, */
    assert_int_equal(*rondo_mailbox_core(&w->rank[3].mailbox, 0), 2);
    assert_int_equal(waits_for_others_elsewhere(w, 0, 0), 1); /* and back */
    assert_int_equal(waits_for_others_elsewhere(w, 0, -1), 0);
    *rondo_mailbox_core(&w->rank[2].mailbox, 2) = 1; /* rank 3 is elsewhere, but this core has more ranks */
    assert_int_equal(waits_for_others_elsewhere(w, 0, 0), 0);
    *rondo_mailbox_core(&w->rank[2].mailbox, 2) = 2;
    assert_int_equal(waits_for_others_elsewhere(w, 0, 0), 1);
    submit(&w->rank[3], &c, 1);
    for (int i = 3; i >= 0; i--) {
        progress_until_stuck(w->rank[i].exec);
        assert_int_equal(w->rank[i].open, 0);
    }

    *rondo_mailbox_core(&w->rank[0].mailbox, 0) = 1;
    from_root.coll = RONDO_COLL_BROADCAST;
    for (int i = 1; i < 4; i++) {
        submit(&w->rank[i], &from_root, 2);
        assert_int_equal(waits_for_others_elsewhere(w, i, core[i]), core[i] != core[0]);
    }
    world_free(w);
}

/* Two cores: these replace libc's, too. */
static int core_moves;
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    CPU_ZERO_S(size, set);
    CPU_SET_S(0, size, set);
    CPU_SET_S(1, size, set);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    (void)pid;
    if (CPU_COUNT_S(size, set) == 1) {
        here = CPU_ISSET_S(0, size, set) ? 0 : 1;
        core_moves++;
    }
    return 0;
}

static void show_cores(struct world *w, const int core[4])
{
    for (int i = 0; i < 4; i++) {
        *rondo_mailbox_core(&w->rank[i].mailbox, i) = (uint32_t)core[i] + 1;
    }
}

/* Look for so long that the executor looks twice where the ranks run. */
static void look_twice(struct world *w, int i, int core)
{
    (void)waits_for_others_elsewhere(w, i, core);
    usleep(2000);
    (void)waits_for_others_elsewhere(w, i, core);
}

static void a_rank_leaves_a_core_that_has_more_ranks(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 3 };
    struct world *w = world_new(4, 0, 0);
    (void)state;
    core_moves = 0;
    submit(&w->rank[0], &c, 0);
    submit(&w->rank[1], &c, 0);
    look_twice(w, 0, 0);
    assert_int_equal(core_moves, 0); /* where the others run is not known */
    show_cores(w, (int[]){ 0, 0, 0, 1 });
    usleep(2000);
    look_twice(w, 0, 0);
    assert_int_equal(core_moves, 1);
    assert_int_equal(here, 1);
    assert_int_equal(*rondo_mailbox_core(&w->rank[1].mailbox, 0), 2);
    usleep(2000);
    look_twice(w, 0, 1); /* two ranks a core now */
    look_twice(w, 1, 0);
    assert_int_equal(core_moves, 1);
    show_cores(w, (int[]){ 1, 0, 1, 1 });
    look_twice(w, 1, 0); /* alone on its core */
    assert_int_equal(core_moves, 1);
    submit(&w->rank[2], &c, 0);
    submit(&w->rank[3], &c, 0);
    for (int i = 0; i < 8; i++) {
        progress_until_stuck(w->rank[i % 4].exec);
    }
    assert_int_equal(w->rank[0].open + w->rank[1].open + w->rank[2].open + w->rank[3].open, 0);
    world_free(w);
}

/* The last rank waits for nothing. A rank that comes earlier has published, and goes on in a lane. */
static void mailbox_calls_can_end_on_the_fast_path(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 20 },
                other = { RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_ALL_REDUCE, 20 };
    struct world *w = world_new(3, 0, 0);
    (void)state;
    w->fast_path = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        submit(&w->rank[i], &c, 0);
        assert_int_equal(w->rank[i].open, i < 2);
    }
    for (int i = 0; i < 3; i++) {
        progress_until_stuck(w->rank[i].exec);
        assert_int_equal(w->rank[i].open, 0);
        check(&w->rank[i], &c, 0);
        assert_string_equal(w->rank[i].wrong, "");
    }
    submit(&w->rank[0], &other, 1);
    assert_int_equal(w->rank[0].open, 1);
    world_free(w);
}

/* A rank that only publishes goes on until its banks are used up, and again once the others have caught up.
 */
static void a_root_waits_for_nobody_until_its_banks_are_used_up(void **state)
{
    struct call c = { RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, RONDO_COLL_BROADCAST, 5 };
    struct world *w = world_new(3, 0, UINT32_MAX - 2);
    char text[200] = "";
    struct rondo_blocked blocked = { 0 };
    (void)state;
    for (int k = 0; k < RONDO_ROOTED_BANKS; k++) {
        submit(&w->rank[0], &c, k);
        progress_until_stuck(w->rank[0].exec);
        assert_int_equal(w->rank[0].open, k == RONDO_ROOTED_BANKS - 1);
    }
    assert_true(rondo_exec_cpu.describe(w->rank[0].exec, 0, text, sizeof(text), &blocked) > 0);
    assert_int_equal(blocked.peer, -1 - 1);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(w->rank[0].open, 1);
        submit(&w->rank[i], &c, 0);
        progress_until_stuck(w->rank[i].exec);
        assert_int_equal(w->rank[i].open, 0);
        check(&w->rank[i], &c, 0);
        assert_string_equal(w->rank[i].wrong, "");
        progress_until_stuck(w->rank[0].exec);
    }
    assert_int_equal(w->rank[0].open, 0);
    world_free(w);
}

/* After drop nothing touches the runs, and the executor can be reused. */
static void drop_forgets_runs(void **state)
{
    struct call c = { RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_BROADCAST, 1200 },
                alone = { RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, RONDO_COLL_BROADCAST, 10 };
    struct world *w = world_new(2, 0, 0);
    struct rank *r = &w->rank[0];
    struct rondo_run *lost = zeroed(3 * sizeof(*lost));
    int open = 3, moved = 0;
    (void)state;
    submit(r, &c, 0);
    progress_until_stuck(r->exec);
    for (int i = 0; i < 3; i++) {
        lost[i] = r->run;
        lost[i].open = &open;
        lost[i].lane = (uint32_t)i % 2;
        rondo_run_again(&lost[i]);
    }
    rondo_exec_cpu.submit(r->exec, lost, 3);
    assert_int_equal(rondo_exec_cpu.progress(r->exec, &moved), RONDO_SUCCESS);
    rondo_exec_cpu.drop(r->exec);
    assert_int_equal(open, 0);
    assert_int_equal(r->open, 0);
    free(lost);
    assert_int_equal(rondo_exec_cpu.progress(r->exec, &moved), RONDO_SUCCESS);
    w->edge[0].head.head = w->edge[0].sender.step; /* as if the peer had received everything */
    submit(r, &alone, 1);
    progress_until_stuck(r->exec);
    assert_int_equal(r->open, 0);
    world_free(w);
}

/* A plan's array of runs moves when it grows. */
static void runs_keep_their_references_when_their_plan_grows(void **state)
{
    struct rondo_plan plan = { 0 };
    struct rondo_run *run, *old = NULL;
    int moves = 0;
    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(rondo_plan_next_run(&plan, &run), RONDO_SUCCESS);
        assert_ptr_equal(run, &plan.runs[i]);
        moves += plan.runs != old;
        old = plan.runs;
        run->fallback_of = i % 3 != 0 ? &plan.runs[i - i % 3] : NULL;
        if (i > 0) {
            plan.runs[i - 1].arrives_after = &plan.runs[i]; /* forward, too */
        }
    }
    assert_true(moves > 2);
    for (int i = 0; i < 99; i++) {
        run = &plan.runs[i];
        assert_ptr_equal(run->fallback_of, i % 3 != 0 ? &plan.runs[i - i % 3] : NULL);
        assert_ptr_equal(run->arrives_after, &plan.runs[i + 1]);
    }
    rondo_plan_release(&plan);
}

static void a_mismatch_is_reported_before_data_is_touched(void **state)
{
    (void)state;
    for (int p = 0; p <= RONDO_NUM_PROTOS; p++) {
        int oneshot = p == RONDO_NUM_PROTOS, moved = 0;
        struct call ours = { oneshot ? RONDO_ALGO_ONESHOT : RONDO_ALGO_RING,
                             oneshot ? RONDO_PROTO_SIMPLE : (enum rondo_proto)p, RONDO_COLL_ALL_REDUCE, 100 },
                    theirs = ours;
        struct world *w = world_new(3, 0xfffffffeull, 0);
        struct rank *r = &w->rank[0];
        rondo_status status = RONDO_SUCCESS;
        theirs.count = 90;
        submit(&w->rank[2], &theirs, 0);
        progress_until_stuck(w->rank[2].exec);
        submit(&w->rank[1], &ours, 0);
        progress_until_stuck(w->rank[1].exec);
        submit(r, &ours, 0);
        for (int k = 0; k < 10 && status == RONDO_SUCCESS; k++) {
            status = rondo_exec_cpu.progress(r->exec, &moved);
        }
        assert_int_equal(status, RONDO_INVALID_USAGE);
        assert_int_equal(r->mismatch_peer, oneshot ? -1 - 2 : 2);
        assert_int_equal(r->mismatch_got, w->rank[2].run.work.call_word);
        for (size_t i = 0; i < MOST_COUNT; i++) {
            assert_int_equal(r->out[i], 0x5a5a5a5a);
        }
        rondo_exec_cpu.drop(r->exec);
        world_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_may_wrap_with_every_protocol),
        cmocka_unit_test(slices_bypass_slots_when_they_are_sent_unchanged),
        cmocka_unit_test(only_partial_sums_need_slots),
        cmocka_unit_test(stale_lines_are_taken_for_data_without_cleaning),
        cmocka_unit_test(two_ranks_swap_their_places),
        cmocka_unit_test(every_arrived_piece_counts_as_movement),
        cmocka_unit_test(mailbox_operations_may_wrap),
        cmocka_unit_test(two_shot_over_the_mailbox_is_right_in_any_order),
        cmocka_unit_test(two_shot_over_the_mailbox_is_right_by_threads),
        cmocka_unit_test(a_rank_may_leave_two_shot_in_the_middle),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(describe_names_the_awaited_rank),
        cmocka_unit_test(describe_names_the_missing_message_of_a_mailbox),
        cmocka_unit_test(a_rank_knows_whether_it_waits_for_one_on_its_core),
        cmocka_unit_test(a_rank_leaves_a_core_that_has_more_ranks),
        cmocka_unit_test(mailbox_calls_can_end_on_the_fast_path),
        cmocka_unit_test(a_root_waits_for_nobody_until_its_banks_are_used_up),
        cmocka_unit_test(drop_forgets_runs),
        cmocka_unit_test(runs_keep_their_references_when_their_plan_grows),
        cmocka_unit_test(a_mismatch_is_reported_before_data_is_touched),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
