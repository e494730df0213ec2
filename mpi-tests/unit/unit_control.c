/* The control plane with ranks that are threads of this process: reason, calls, board, mail, resources. */
#include "control_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

static int count_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int c, n = 0;
    assert_non_null(file);
    while ((c = getc(file)) != EOF) {
        n += c == '\n';
    }
    fclose(file);
    return n;
}

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
            ender[i] = (struct ender){.barrier = &barrier, .control = world.control[i], .rank = i};
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

/* A writer that dies between its two stores: status and rank are known, the text is not waited for. */
static void reason_without_its_text_is_read_in_bounded_time(void **state)
{
    struct world world;
    char text[RONDO_ERROR_TEXT];
    int rank;
    int64_t start = rondo_now_ns();
    (void)state;
    world_open(&world, 3);
    atomic_store(&world.control[0]->reason->word, RONDO_REASON_WRITING | (uint64_t)RONDO_REMOTE_ERROR << 8 | 2u << 16 | (uint64_t)(1 + 1) << 32);
    assert_true(rondo_control_aborted(world.control[1]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rondo_control_reason(world.control[i], text, &rank), RONDO_REMOTE_ERROR);
        assert_int_equal(rank, 1);
        assert_non_null(strstr(text, "rank 2 ended communicator test"));
    }
    assert_true(rondo_now_ns() - start < INT64_C(1000000000));
    rondo_control_abort(world.control[1], RONDO_TIMEOUT, 0, "too late");
    assert_int_equal(rondo_control_reason(world.control[0], text, &rank), RONDO_REMOTE_ERROR);
    world_close(&world);
}

static void long_reason_is_cut_and_ended(void **state)
{
    struct world world;
    char text[RONDO_ERROR_TEXT], word[2000];
    int rank;
    (void)state;
    memset(word, 'x', sizeof(word));
    word[sizeof(word) - 1] = '\0';
    world_open(&world, 2);
    rondo_control_abort(world.control[1], RONDO_SUCCESS, -1, word); /* success is no reason to end anything */
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
    assert_int_equal(rondo_control_attach(&other, &config, &world.control[0]->shm.name), RONDO_INTERNAL_ERROR);
    config = world_config(&world, 1);
    config.board_capacity = 1 << 20;
    assert_int_equal(rondo_control_attach(&other, &config, &world.control[0]->shm.name), RONDO_INTERNAL_ERROR);
    config = world_config(&world, 1);
    config.local_rank = 2;
    assert_int_equal(rondo_control_attach(&other, &config, &world.control[0]->shm.name), RONDO_INTERNAL_ERROR);
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
    config.shm_mode = RONDO_SHM_FILE;
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

static void board_is_shared_and_absent_when_not_wanted(void **state)
{
    struct world world;
    struct rondo_control_config config;
    struct rondo_shm_name name;
    (void)state;
    world_open(&world, 3);
    for (int i = 0; i < 3; i++) {
        struct rondo_board *board = rondo_control_board(world.control[i]);
        assert_non_null(board);
        assert_int_equal(board->nranks, 3);
        assert_int_equal(board->index, i);
        assert_int_equal(board->capacity, 200);
        assert_int_equal((uintptr_t)board->places % RONDO_CTRL_ALIGN, 0);
        memset(rondo_board_place(board, 1, i), 'a' + i, board->stride);
    }
    for (int i = 0; i < 3; i++) {
        struct rondo_board *board = rondo_control_board(world.control[(i + 1) % 3]);
        assert_int_equal(rondo_board_place(board, 1, i)[0], 'a' + i);
        assert_int_equal(rondo_board_place(board, 1, i)[board->stride - 1], 'a' + i);
    }
    assert_int_equal(world.control[0]->head->nlocal, 3); /* the boards did not reach into the head */
    world_close(&world);

    world_init(&world, 1, 0);
    config = world_config(&world, 0);
    assert_int_equal(rondo_control_create(&world.control[0], &config, &name), RONDO_SUCCESS);
    assert_null(rondo_control_board(world.control[0]));
    rondo_control_close(world.control[0]);
}

/* ---- calls ---- */

static struct rondo_call make_call(uint64_t seq)
{
    return (struct rondo_call){.seq = seq, .count = seq * 3, .word = (uint32_t)(seq * 5), .op = 1, .root = (int32_t)seq, .coll = 2, .dtype = 7};
}

static void last_calls_can_be_read_by_others(void **state)
{
    struct world world;
    struct rondo_call call, got;
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 0, &got), 0);
    for (uint64_t seq = 1; seq <= 40; seq++) {
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
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 25, &got), 1);
    assert_int_equal(got.seq, 25);
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 24, &got), 0); /* overwritten */
    assert_int_equal(rondo_control_call_of(world.control[0], 1, 41, &got), 0); /* not called yet */
    assert_int_equal(rondo_control_call_of(world.control[0], 0, 0, &got), 0);
    assert_int_equal(rondo_control_call_of(world.control[0], 2, 0, &got), 0);
    world_close(&world);
}

static void *call_on_and_on(void *arg)
{
    struct rondo_control *control = arg;
    for (uint64_t seq = 1; seq <= 20000; seq++) {
        struct rondo_call call = make_call(seq);
        rondo_control_call_begin(control, &call);
        rondo_control_call_end(control, seq);
    }
    return NULL;
}

static void call_read_while_it_is_written_is_whole(void **state)
{
    struct world world;
    struct rondo_call got;
    pthread_t thread;
    uint64_t last = 0;
    (void)state;
    world_open(&world, 2);
    assert_int_equal(pthread_create(&thread, NULL, call_on_and_on, world.control[1]), 0);
    while (last < 20000) {
        if (rondo_control_call_of(world.control[0], 1, 0, &got)) {
            assert_true(got.seq >= last);
            last = got.seq;
            assert_int_equal(got.count, last * 3);
            assert_int_equal(got.word, (uint32_t)(last * 5));
            assert_int_equal(got.root, last);
        }
    }
    pthread_join(thread, NULL);
    world_close(&world);
}

/* ---- mail ---- */

static void mail_keeps_its_order_over_many_laps(void **state)
{
    struct world world;
    uint64_t got;
    size_t bytes;
    (void)state;
    world_open(&world, 3);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(rondo_control_send(world.control[1], 0, i % 2, &i, sizeof(i)), RONDO_SUCCESS);
        assert_int_equal(rondo_control_send(world.control[2], 0, 0, &i, sizeof(i)), RONDO_SUCCESS);
        if (i % 5 == 4) { /* 10 mails are in the box: ask for them out of order */
            for (uint64_t k = i - 4; k <= i; k++) {
                assert_int_equal(rondo_control_receive(world.control[0], 2, 0, &got, sizeof(got), &bytes), RONDO_SUCCESS);
                assert_int_equal(got, k);
            }
            for (int tag = 1; tag >= 0; tag--) {
                for (uint64_t k = i - 4; k <= i; k++) {
                    if (k % 2 == (uint64_t)tag) {
                        assert_int_equal(rondo_control_receive(world.control[0], 1, (uint64_t)tag, &got, sizeof(got), &bytes), RONDO_SUCCESS);
                        assert_int_equal(got, k);
                    }
                }
            }
        }
    }
    assert_int_equal(rondo_control_receive(world.control[0], 1, 0, &got, sizeof(got), &bytes), RONDO_IN_PROGRESS);
    assert_int_equal(world.control[0]->mail.nparked, 0);
    world_close(&world);
}

static void full_box_refuses_until_a_turn_makes_room(void **state)
{
    struct world world;
    uint8_t data[RONDO_MAIL_BYTES], got[RONDO_MAIL_BYTES];
    int sent = 0, moved = 0;
    size_t bytes;
    (void)state;
    world_open(&world, 2);
    memset(data, 'm', sizeof(data));
    while (rondo_control_send(world.control[1], 0, 9, data, sizeof(data) - (size_t)sent) == RONDO_SUCCESS) {
        sent++;
    }
    assert_int_equal(sent, RONDO_MAIL_CELLS);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, data, 1), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_control_turn(world.control[0], &moved), RONDO_SUCCESS);
    assert_int_equal(moved, 1);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, NULL, 0), RONDO_SUCCESS);
    for (int i = 0; i < sent; i++) {
        assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, sizeof(got), &bytes), RONDO_SUCCESS);
        assert_int_equal(bytes, RONDO_MAIL_BYTES - i);
        assert_memory_equal(got, data, bytes);
    }
    assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, data, RONDO_MAIL_BYTES + 1), RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_send(world.control[1], 5, 9, data, 1), RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, data, 100), RONDO_SUCCESS);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, 99, &bytes), RONDO_INTERNAL_ERROR); /* too long, and gone */
    assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, sizeof(got), &bytes), RONDO_IN_PROGRESS);
    world_close(&world);
}

enum { MANY = 400 };

static void *send_many(void *arg)
{
    struct rondo_control *control = arg;
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t data[40] = {i, (uint64_t)control->rank};
        while (rondo_control_send(control, 0, 3, data, sizeof(data)) == RONDO_IN_PROGRESS) {
            sched_yield();
        }
    }
    return NULL;
}

static void many_senders_lose_and_mix_nothing(void **state)
{
    struct world world;
    pthread_t thread[5];
    uint64_t next[6] = {0};
    int left = 5 * MANY;
    (void)state;
    world_open(&world, 6);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(pthread_create(&thread[i - 1], NULL, send_many, world.control[i]), 0);
    }
    while (left > 0) {
        for (int i = 1; i < 6; i++) {
            uint64_t data[40];
            size_t bytes;
            if (rondo_control_receive(world.control[0], i, 3, data, sizeof(data), &bytes) == RONDO_SUCCESS) {
                assert_int_equal(bytes, sizeof(data));
                assert_int_equal(data[0], next[i]);
                assert_int_equal(data[1], i);
                next[i]++;
                left--;
            }
        }
    }
    for (int i = 0; i < 5; i++) {
        pthread_join(thread[i], NULL);
    }
    world_close(&world);
}

static void send_and_receive_laps(struct world *world, int n)
{
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        uint64_t got = 0;
        size_t bytes;
        assert_int_equal(rondo_control_send(world->control[1], 0, 4, &i, sizeof(i)), RONDO_SUCCESS);
        assert_int_equal(rondo_control_receive(world->control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_SUCCESS);
        assert_int_equal(got, i);
    }
}

/* Reserve a cell for rank 2, as if it had stopped between the two halves of a send. */
static void half_send_of_rank_2(struct world *world)
{
    struct rondo_control_box *box = &world->control[0]->own->box;
    uint64_t tail = atomic_load(&box->tail);
    atomic_store(&box->cell[tail % RONDO_MAIL_CELLS].word, tail << 16 | 2 << 2 | RONDO_CELL_RESERVED);
}

static void sender_that_died_half_way_does_not_block_the_box(void **state)
{
    struct world world;
    uint64_t data = 77, got = 0;
    size_t bytes;
    (void)state;
    world_open(&world, 3);
    send_and_receive_laps(&world, 5);
    half_send_of_rank_2(&world);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_IN_PROGRESS); /* rank 2 lives: its mail comes first */
    atomic_store(&world.control[0]->watch[2].state, 2);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(got, 77);
    send_and_receive_laps(&world, 100);
    world_close(&world);
}

static void sender_that_was_stopped_half_way_loses_its_cell(void **state)
{
    struct world world;
    uint64_t data = 77, got = 0, word;
    size_t bytes;
    struct rondo_control_cell *cell;
    (void)state;
    world_open(&world, 3);
    send_and_receive_laps(&world, 5);
    cell = &world.control[0]->own->box.cell[5];
    half_send_of_rank_2(&world);
    word = atomic_load(&cell->word);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_IN_PROGRESS);
    assert_true(world.control[0]->mail.stuck_ns > 0);
    world.control[0]->mail.stuck_ns -= INT64_C(6000000000);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(got, 77);
    assert_int_not_equal(atomic_load(&cell->word), word); /* rank 2 could not publish any more */
    cell->tag = 4; /* but it may still write: into a cell that nobody uses */
    cell->bytes = 1 << 30;
    send_and_receive_laps(&world, 100);
    for (int i = 0; i < RONDO_MAIL_CELLS - 1; i++) {
        assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_IN_PROGRESS);
    world_close(&world);
}

/* Contents of a cell are a peer's word: they bound nothing. */
static void hostile_cell_is_cut_to_size(void **state)
{
    struct world world;
    uint8_t got[RONDO_MAIL_BYTES];
    size_t bytes = 0;
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, "x", 1), RONDO_SUCCESS);
    world.control[0]->own->box.cell[0].bytes = UINT64_MAX;
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(bytes, RONDO_MAIL_BYTES);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, "x", 1), RONDO_SUCCESS);
    atomic_store(&world.control[0]->own->box.cell[1].word, 1 << 16 | 999 << 2 | RONDO_CELL_FULL); /* no such rank */
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, got, sizeof(got), &bytes), RONDO_IN_PROGRESS);
    send_and_receive_laps(&world, 40);
    world_close(&world);
}

static void mail_that_nobody_asks_for_ends_the_communicator(void **state)
{
    struct world world;
    uint64_t got;
    size_t bytes;
    char text[RONDO_ERROR_TEXT];
    int rank, sent = 0, moved;
    rondo_status status = RONDO_SUCCESS;
    (void)state;
    world_open(&world, 2);
    for (int i = 0; i < RONDO_MAIL_PARKED; i++) { /* turns alone leave room, and senders wait */
        rondo_control_send(world.control[1], 0, 1, &i, sizeof(i));
        assert_int_equal(rondo_control_turn(world.control[0], &moved), RONDO_SUCCESS);
    }
    while (rondo_control_send(world.control[1], 0, 1, &sent, sizeof(sent)) == RONDO_SUCCESS) {
    }
    for (sent = 0; sent < 2 * RONDO_MAIL_PARKED && status != RONDO_INTERNAL_ERROR; sent++) {
        rondo_control_send(world.control[1], 0, 1, &sent, sizeof(sent));
        status = rondo_control_receive(world.control[0], 1, 2, &got, sizeof(got), &bytes);
    }
    assert_int_equal(status, RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_reason(world.control[1], text, &rank), RONDO_INTERNAL_ERROR);
    assert_int_equal(rank, 0);
    assert_non_null(strstr(text, "4096 mails wait for rank 0"));
    world_close(&world);
}

static void forgotten_mail_is_dropped_early_and_late(void **state)
{
    struct world world;
    uint64_t got;
    size_t bytes;
    int moved;
    (void)state;
    world_open(&world, 2);
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(rondo_control_send(world.control[1], 0, i % 3, &i, sizeof(i)), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_control_turn(world.control[0], &moved), RONDO_SUCCESS);
    rondo_mail_forget(world.control[0], 2); /* also the last one in the list */
    assert_int_equal(world.control[0]->mail.nparked, 4);
    assert_int_equal(rondo_control_send(world.control[1], 0, 2, &got, sizeof(got)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_send(world.control[1], 0, 1, &got, sizeof(got)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_turn(world.control[0], &moved), RONDO_SUCCESS);
    assert_int_equal(world.control[0]->mail.nparked, 5);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 0, &got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(got, 0);
    world_close(&world);
}

/* ---- life ---- */

static void rank_that_left_is_no_fault(void **state)
{
    struct world world;
    (void)state;
    world_open(&world, 3);
    assert_int_equal(rondo_control_state_of(world.control[0], 2), 0);
    rondo_control_leave(world.control[2]);
    assert_int_equal(rondo_control_state_of(world.control[0], 2), 1);
    assert_int_equal(rondo_control_send(world.control[0], 2, 1, "x", 1), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_control_aborted(world.control[0]), 0);
    world_close(&world);
}

/* Ask until a predicate holds: a thread that has been joined may be listed for a moment. */
static int tasks_settle_at(int expected)
{
    int64_t start = rondo_now_ns();
    int n;
    while ((n = count_entries("/proc/self/task")) != expected && rondo_now_ns() - start < INT64_C(2000000000)) {
        sched_yield();
    }
    return n;
}

static void nothing_is_left_by_100_communicators(void **state)
{
    int fds = 0, tasks = 0, maps = 0;
    (void)state;
    for (int i = 0; i < 110; i++) {
        struct world world;
        if (i == 10) {
            fds = count_entries("/proc/self/fd");
            tasks = count_entries("/proc/self/task");
            maps = count_maps();
        }
        world_open(&world, 3);
        assert_true(count_entries("/proc/self/task") >= 4); /* ".", "..", this thread, the control thread */
        assert_int_equal(rondo_control_send(world.control[1], 0, 1, "x", 1), RONDO_SUCCESS);
        assert_int_equal(rondo_control_turn(world.control[0], NULL), RONDO_SUCCESS); /* parked, never asked for */
        world_close(&world);
    }
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_int_equal(tasks_settle_at(tasks), tasks);
    assert_in_range(count_maps(), 0, maps + 20); /* one a communicator would be 100 */
}

static void *open_and_close(void *arg)
{
    (void)arg;
    for (int i = 0; i < 25; i++) {
        struct world world;
        world_open(&world, 2);
        rondo_control_turn(world.control[0], NULL);
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
        cmocka_unit_test(long_reason_is_cut_and_ended),
        cmocka_unit_test(segment_of_another_communicator_is_refused),
        cmocka_unit_test(file_segment_leaves_no_name),
        cmocka_unit_test(board_is_shared_and_absent_when_not_wanted),
        cmocka_unit_test(last_calls_can_be_read_by_others),
        cmocka_unit_test(call_read_while_it_is_written_is_whole),
        cmocka_unit_test(mail_keeps_its_order_over_many_laps),
        cmocka_unit_test(full_box_refuses_until_a_turn_makes_room),
        cmocka_unit_test(many_senders_lose_and_mix_nothing),
        cmocka_unit_test(sender_that_died_half_way_does_not_block_the_box),
        cmocka_unit_test(sender_that_was_stopped_half_way_loses_its_cell),
        cmocka_unit_test(hostile_cell_is_cut_to_size),
        cmocka_unit_test(mail_that_nobody_asks_for_ends_the_communicator),
        cmocka_unit_test(forgotten_mail_is_dropped_early_and_late),
        cmocka_unit_test(rank_that_left_is_no_fault),
        cmocka_unit_test(nothing_is_left_by_100_communicators),
        cmocka_unit_test(communicators_come_and_go_in_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
