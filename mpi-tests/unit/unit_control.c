/* The control plane with ranks that are threads of this process: reason, calls, mailbox, resources. */
#include "control_world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- reason ---- */

struct ender {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct rondo_control *control;
    int rank;
};

static void *end_it(void *arg)
{
    struct ender *ender = arg;
    char text[64];
    snprintf(text, sizeof(text), "reason of rank %d", ender->rank);
    pthread_barrier_wait(ender->barrier);
    rondo_control_abort(ender->control, RONDO_SYSTEM_ERROR + ender->rank % 3, ender->rank, text);
    return NULL;
}

static void first_reason_wins_and_all_ranks_read_it(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct world world;
        struct ender ender[8];
        pthread_barrier_t barrier;
        char text[RONDO_ERROR_TEXT], expected[64];
        int first = -1;
        world_open(&world, 8);
        pthread_barrier_init(&barrier, NULL, 8);
        assert_int_equal(rondo_control_reason(world.control[3], text, &first), RONDO_SUCCESS);
        assert_int_equal(first, -1);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(rondo_control_aborted(world.control[i]), 0);
            ender[i] = (struct ender){ .barrier = &barrier, .control = world.control[i], .rank = i };
            assert_int_equal(pthread_create(&ender[i].thread, NULL, end_it, &ender[i]), 0);
        }
        for (int i = 0; i < 8; i++) {
            pthread_join(ender[i].thread, NULL);
        }
        for (int i = 0; i < 8; i++) {
            int rank;
            assert_true(rondo_control_aborted(world.control[i]));
            rondo_status status = rondo_control_reason(world.control[i], text, &rank);
            first = i == 0 ? rank : first;
            assert_int_equal(rank, first);
            assert_int_equal(status, RONDO_SYSTEM_ERROR + first % 3);
            snprintf(expected, sizeof(expected), "reason of rank %d", first);
            assert_string_equal(text, expected);
        }
        pthread_barrier_destroy(&barrier);
        world_close(&world);
    }
}

static struct world late_writer;

/* When a writer dies between its two stores, readers know status and rank, and give up on the text. */
static void reason_without_its_text_is_read_in_bounded_time(void **state)
{
    struct world world;
    char text[RONDO_ERROR_TEXT];
    int rank;
    (void)state;
    world_open(&world, 3);
    atomic_store(&world.control[0]->reason->word, RONDO_REASON_WRITING | (uint64_t)RONDO_REMOTE_ERROR << 8 |
                                                      2u << 16 | (uint64_t)(1 + 1) << 32);
    assert_true(rondo_control_aborted(world.control[1]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rondo_control_reason(world.control[i], text, &rank), RONDO_REMOTE_ERROR);
        assert_int_equal(rank, 1);
        assert_non_null(strstr(text, "rank 2 ended communicator test"));
    }
    rondo_control_abort(world.control[1], RONDO_TIMEOUT, 0, "too late");
    assert_int_equal(rondo_control_reason(world.control[0], text, &rank), RONDO_REMOTE_ERROR);
    world_close(&world);
}

static atomic_int is_reading; /* the reader is about to */

static void *read_reason(void *arg)
{
    char *text = arg;
    int rank;
    atomic_store(&is_reading, 1);
    (void)rondo_control_reason(late_writer.control[1], text, &rank);
    return NULL;
}

/* A writer that others keep from its core for a while is neither dead nor stopped. */
static void the_text_of_a_slow_writer_is_waited_for(void **state)
{
    const uint64_t fields = (uint64_t)RONDO_REMOTE_ERROR << 8 | UINT64_C(1) << 32;
    const int64_t pause_ns = 60000000;
    struct rondo_control_reason *reason;
    char text[RONDO_ERROR_TEXT];
    pthread_t reader;
    int64_t took_ns, end_ns = rondo_now_ns() + DEADLINE_NS;
    (void)state;
    do {
        world_open(&late_writer, 2);
        reason = late_writer.control[0]->reason;
        atomic_store(&reason->word, fields | RONDO_REASON_WRITING);
        atomic_store(&is_reading, 0);
        took_ns = -rondo_now_ns();
        assert_int_equal(pthread_create(&reader, NULL, read_reason, text), 0);
        WAIT_FOR(atomic_load(&is_reading));
        usleep(pause_ns / 1000);
        snprintf(reason->text, sizeof(reason->text), "the reason");
        atomic_store(&reason->word, fields | RONDO_REASON_SET);
        took_ns += rondo_now_ns();
        pthread_join(reader, NULL);
        world_close(&late_writer);
    } while (took_ns > 3 * pause_ns &&
             rondo_now_ns() < end_ns); /* this thread was kept from its core: again */
    assert_string_equal(text, "the reason");
}

static void long_reason_is_cut_and_terminated(void **state)
{
    struct world world;
    char text[RONDO_ERROR_TEXT], word[2000];
    int rank;
    (void)state;
    memset(word, 'x', sizeof(word));
    word[sizeof(word) - 1] = '\0';
    world_open(&world, 2);
    rondo_control_abort(world.control[1], RONDO_SUCCESS, -1, word); /* success becomes an internal error */
    assert_int_equal(rondo_control_reason(world.control[0], text, &rank), RONDO_INTERNAL_ERROR);
    assert_int_equal(rank, -1);
    assert_int_equal(strlen(text), RONDO_ERROR_TEXT - 1);
    world_close(&world);
}

/* ---- attach ---- */

static void segment_of_another_communicator_is_refused(void **state)
{
    struct world world;
    struct rondo_control *other = NULL;
    struct rondo_control_config config;
    (void)state;
    world_open(&world, 2);
    config = world_config(&world, 1);
    config.comm_hash++;
    assert_int_equal(rondo_control_attach(&other, &config, &world.control[0]->shm.name),
                     RONDO_INTERNAL_ERROR);
    config = world_config(&world, 1);
    config.mailbox_capacity = 1 << 20;
    assert_int_equal(rondo_control_attach(&other, &config, &world.control[0]->shm.name),
                     RONDO_INTERNAL_ERROR);
    config = world_config(&world, 1);
    config.local_rank = 2;
    assert_int_equal(rondo_control_attach(&other, &config, &world.control[0]->shm.name),
                     RONDO_INTERNAL_ERROR);
    assert_null(other);
    world_close(&world);
}

static void file_segment_leaves_no_name(void **state)
{
    struct world world;
    struct rondo_control_config config;
    struct rondo_shm_name name;
    char path[96];
    (void)state;
    if (access("/dev/shm", W_OK) != 0) {
        print_message("skipped: /dev/shm cannot be written\n");
        skip();
    }
    world_init(&world, 1, 0);
    config = world_config(&world, 0);
    config.shm_mode = RONDO_SHM_MODE_FILE;
    for (int start = 0; start < 2; start++) {
        assert_int_equal(rondo_control_create(&world.control[0], &config, &name), RONDO_SUCCESS);
        snprintf(path, sizeof(path), "/dev/shm%s", name.path);
        assert_int_equal(access(path, F_OK), 0);
        if (start) {
            assert_int_equal(rondo_control_start(world.control[0]), RONDO_SUCCESS);
            assert_int_not_equal(access(path, F_OK), 0);
        }
        rondo_control_close(world.control[0]);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void mailbox_is_shared_and_absent_for_one_rank(void **state)
{
    struct world world;
    struct rondo_control_config config;
    struct rondo_shm_name name;
    (void)state;
    world_open(&world, 3);
    for (int i = 0; i < 3; i++) {
        struct rondo_mailbox *mailbox = rondo_control_mailbox(world.control[i]);
        assert_non_null(mailbox);
        assert_int_equal(mailbox->nranks, 3);
        assert_int_equal(mailbox->index, i);
        assert_int_equal(mailbox->capacity, 200);
        assert_int_equal((uintptr_t)mailbox->places % RONDO_CTRL_ALIGN, 0);
        memset(rondo_mailbox_place(mailbox, 1, i), 'a' + i, mailbox->stride);
    }
    for (int i = 0; i < 3; i++) {
        struct rondo_mailbox *mailbox = rondo_control_mailbox(world.control[(i + 1) % 3]);
        assert_int_equal(rondo_mailbox_place(mailbox, 1, i)[0], 'a' + i);
        assert_int_equal(rondo_mailbox_place(mailbox, 1, i)[mailbox->stride - 1], 'a' + i);
    }
    assert_int_equal(world.control[0]->head->nlocal, 3); /* writing to the mailboxes left the head alone */
    world_close(&world);

    world_init(&world, 1, 0);
    config = world_config(&world, 0);
    assert_int_equal(rondo_control_create(&world.control[0], &config, &name), RONDO_SUCCESS);
    assert_null(rondo_control_mailbox(world.control[0]));
    rondo_control_close(world.control[0]);
}

/* ---- calls ---- */

static struct rondo_call make_call(uint64_t seq)
{
    return (struct rondo_call){ .seq = seq,
                                .count = seq * 3,
                                .word = (uint32_t)(seq * 5),
                                .op = 1,
                                .root = (int32_t)seq,
                                .coll = 2,
                                .dtype = 7 };
}

static void other_ranks_read_the_last_calls(void **state)
{
    struct world world;
    struct rondo_call call, got;
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 0, &got), 0);
    for (uint64_t seq = 1; seq <= 300; seq++) {
        call = make_call(seq);
        rondo_control_call_begin(world.control[1], &call);
        assert_int_equal(rondo_control_call_of(world.control[0], 1, 0, &got), 1);
        assert_int_equal(got.state, 1);
        rondo_control_call_end(world.control[1], seq);
        assert_int_equal(rondo_control_call_of(world.control[0], 1, 0, &got), 1);
        assert_int_equal(got.seq, seq);
        assert_int_equal(got.count, seq * 3);
        assert_int_equal(got.word, seq * 5);
        assert_int_equal(got.root, seq);
        assert_int_equal(got.dtype, 7);
        assert_int_equal(got.state, 2);
    }
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 45, &got), 1);
    assert_int_equal(got.seq, 45);
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 44, &got), 0);  /* overwritten */
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 301, &got), 0); /* not called yet */
    assert_int_equal(rondo_control_call_of(world.control[0], 0, 0, &got), 0);
    assert_int_equal(rondo_control_call_of(world.control[0], 2, 0, &got), 0);
    world_close(&world);
}

static void other_ranks_read_the_counts_of_the_last_calls(void **state)
{
    struct world world;
    size_t counts[2];
    uint64_t got[2];
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_control_counts_of(world.control[0], 1, 1, 0, got, 2), RONDO_COUNTS_UNKNOWN);
    for (uint64_t seq = 3; seq <= 30; seq += 3) {
        counts[0] = seq;
        counts[1] = SIZE_MAX - seq;
        rondo_control_counts_put(world.control[1], seq, counts);
        assert_int_equal(rondo_control_counts_of(world.control[0], 1, seq, 0, got, 2), 2);
        assert_true(got[0] == seq && got[1] == UINT64_MAX - seq);
    }
    assert_int_equal(rondo_control_counts_of(world.control[0], 1, 21, 1, got, 2), 1);
    assert_true(got[0] == UINT64_MAX - 21);
    assert_int_equal(rondo_control_counts_of(world.control[0], 1, 30, 2, got, 2), 0);
    assert_int_equal(rondo_control_counts_of(world.control[0], 1, 18, 0, got, 2), RONDO_COUNTS_UNKNOWN);
    assert_int_equal(rondo_control_counts_of(world.control[0], 0, 30, 0, got, 2), RONDO_COUNTS_UNKNOWN);
    world_close(&world);
}

enum { READS = 300000 };

struct rewriter {
    struct rondo_control *control;
    _Atomic int stop;
};

/* Write the same line of the ring again and again. */
static void *call_repeatedly(void *arg)
{
    struct rewriter *rewriter = arg;
    for (uint64_t i = 1; !atomic_load(&rewriter->stop); i++) {
        struct rondo_call call = make_call(i * RONDO_RECORD_CALLS);
        rondo_control_call_begin(rewriter->control, &call);
        rondo_control_call_end(rewriter->control, call.seq);
    }
    return NULL;
}

static void call_read_while_it_is_written_is_whole(void **state)
{
    struct world world;
    struct rewriter rewriter;
    struct rondo_call got;
    pthread_t thread;
    uint64_t last = 0;
    int reads = 0;
    (void)state;
    world_open(&world, 2);
    rewriter = (struct rewriter){ .control = world.control[1] };
    assert_int_equal(pthread_create(&thread, NULL, call_repeatedly, &rewriter), 0);
    while (reads < READS) {
        if (rondo_control_call_of(world.control[0], 1, 0, &got)) {
            reads++;
            assert_true(got.seq >= last);
            last = got.seq;
            assert_int_equal(got.count, last * 3);
            assert_int_equal(got.word, (uint32_t)(last * 5));
            assert_int_equal(got.root, (int32_t)last);
        }
    }
    atomic_store(&rewriter.stop, 1);
    pthread_join(thread, NULL);
    world_close(&world);
}

/* ---- life ---- */

static void rank_that_left_is_no_fault(void **state)
{
    struct world world;
    (void)state;
    world_open(&world, 3);
    assert_int_equal(rondo_control_state_of(world.control[0], 2), RONDO_RANK_ALIVE);
    rondo_control_leave(world.control[2]);
    assert_int_equal(rondo_control_state_of(world.control[0], 2), RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_send(world.control[0], 2, 1, "x", 1), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_control_aborted(world.control[0]), 0);
    world_close(&world);
}

static void closed_communicators_leave_nothing_behind(void **state)
{
    struct holdings before = { 0 }, after;
    (void)state;
    for (int i = 0; i < 110; i++) {
        struct world world;
        if (i == 10) {
            before = holdings_now();
        }
        world_open(&world, 3);
        assert_true(count_threads() >= 2); /* this one and the control thread */
        assert_int_equal(rondo_control_send(world.control[1], 0, 1, "x", 1), RONDO_SUCCESS);
        assert_int_equal(rondo_control_progress(world.control[0], NULL),
                         RONDO_SUCCESS); /* parked, never asked for */
        world_close(&world);
    }
    after = holdings_now();
    assert_int_equal(after.fds, before.fds);
    assert_int_equal(after.threads, before.threads);
    assert_in_range(after.maps, 0, before.maps + 20); /* one a communicator would be 100 */
}

static void *open_and_close(void *arg)
{
    (void)arg;
    for (int i = 0; i < 25; i++) {
        struct world world;
        world_open(&world, 2);
        rondo_control_progress(world.control[0], NULL);
        if (i % 3 == 0) {
            rondo_control_abort(world.control[1], RONDO_TIMEOUT, 1, "enough");
        }
        rondo_control_look(world.control[1]);
        world_close(&world);
    }
    return NULL;
}

static void communicators_come_and_go_in_several_threads(void **state)
{
    pthread_t thread[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, open_and_close, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_reason_wins_and_all_ranks_read_it),
        cmocka_unit_test(reason_without_its_text_is_read_in_bounded_time),
        cmocka_unit_test(the_text_of_a_slow_writer_is_waited_for),
        cmocka_unit_test(long_reason_is_cut_and_terminated),
        cmocka_unit_test(segment_of_another_communicator_is_refused),
        cmocka_unit_test(file_segment_leaves_no_name),
        cmocka_unit_test(mailbox_is_shared_and_absent_for_one_rank),
        cmocka_unit_test(other_ranks_read_the_last_calls),
        cmocka_unit_test(other_ranks_read_the_counts_of_the_last_calls),
        cmocka_unit_test(call_read_while_it_is_written_is_whole),
        cmocka_unit_test(rank_that_left_is_no_fault),
        cmocka_unit_test(closed_communicators_leave_nothing_behind),
        cmocka_unit_test(communicators_come_and_go_in_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
