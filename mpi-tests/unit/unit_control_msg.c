/* Inboxes of the control plane: order, backpressure, senders that end half way, unclaimed messages. */
#include "control_world.h"

#include <sched.h>

static void messages_keep_their_order_over_many_laps(void **state)
{
    struct world world;
    uint64_t got;
    size_t bytes;
    (void)state;
    world_open(&world, 3);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(rondo_control_send(world.control[1], 0, i % 2, &i, sizeof(i)), RONDO_SUCCESS);
        assert_int_equal(rondo_control_send(world.control[2], 0, 0, &i, sizeof(i)), RONDO_SUCCESS);
        if (i % 5 == 4) { /* 10 messages are in the inbox: ask for them out of order */
            for (uint64_t k = i - 4; k <= i; k++) {
                assert_int_equal(rondo_control_receive(world.control[0], 2, 0, &got, sizeof(got), &bytes),
                                 RONDO_SUCCESS);
                assert_int_equal(got, k);
            }
            for (int tag = 1; tag >= 0; tag--) {
                for (uint64_t k = i - 4; k <= i; k++) {
                    if (k % 2 == (uint64_t)tag) {
                        assert_int_equal(rondo_control_receive(world.control[0], 1, (uint64_t)tag, &got,
                                                               sizeof(got), &bytes),
                                         RONDO_SUCCESS);
                        assert_int_equal(got, k);
                    }
                }
            }
        }
    }
    assert_int_equal(rondo_control_receive(world.control[0], 1, 0, &got, sizeof(got), &bytes),
                     RONDO_IN_PROGRESS);
    assert_int_equal(world.control[0]->inbox.nparked, 0);
    world_close(&world);
}

static void a_full_inbox_refuses_until_progress_makes_room(void **state)
{
    struct world world;
    uint8_t data[RONDO_MSG_BYTES], got[RONDO_MSG_BYTES];
    int sent = 0, moved = 0;
    size_t bytes;
    (void)state;
    world_open(&world, 2);
    memset(data, 'm', sizeof(data));
    while (rondo_control_send(world.control[1], 0, 9, data, sizeof(data) - (size_t)sent) == RONDO_SUCCESS) {
        sent++;
    }
    assert_int_equal(sent, RONDO_MSG_CELLS);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, data, 1), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_control_progress(world.control[0], &moved), RONDO_SUCCESS);
    assert_int_equal(moved, 1);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, NULL, 0), RONDO_SUCCESS);
    for (int i = 0; i < sent; i++) {
        assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, sizeof(got), &bytes),
                         RONDO_SUCCESS);
        assert_int_equal(bytes, RONDO_MSG_BYTES - i);
        assert_memory_equal(got, data, bytes);
    }
    assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, data, RONDO_MSG_BYTES + 1),
                     RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_send(world.control[1], 5, 9, data, 1), RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_send(world.control[1], 0, 9, data, 100), RONDO_SUCCESS);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, 99, &bytes),
                     RONDO_INTERNAL_ERROR); /* too long, and dropped */
    assert_int_equal(rondo_control_receive(world.control[0], 1, 9, got, sizeof(got), &bytes),
                     RONDO_IN_PROGRESS);
    world_close(&world);
}

enum { MANY = 400 };

static void *send_many(void *arg)
{
    struct rondo_control *control = arg;
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t data[40] = { i, (uint64_t)control->rank };
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
    uint64_t next[6] = { 0 };
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
        assert_int_equal(rondo_control_receive(world->control[0], 1, 4, &got, sizeof(got), &bytes),
                         RONDO_SUCCESS);
        assert_int_equal(got, i);
    }
}

/* Reserve a cell for rank 2, as if it had stopped between the two halves of a send. */
static void half_send_of_rank_2(struct world *world)
{
    struct rondo_control_box *box = &world->control[0]->boxes[0];
    uint64_t tail = atomic_load(&box->tail);
    atomic_store(&box->cell[tail % RONDO_MSG_CELLS].word,
                 tail / RONDO_MSG_CELLS << 16 | 2 << 2 | RONDO_CELL_RESERVED);
}

static void a_sender_that_died_half_way_does_not_block_the_inbox(void **state)
{
    struct world world;
    uint64_t data = 77, got = 0;
    size_t bytes;
    (void)state;
    world_open(&world, 3);
    send_and_receive_laps(&world, 5);
    half_send_of_rank_2(&world);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes),
                     RONDO_IN_PROGRESS); /* rank 2 lives: its message comes first */
    atomic_store(&world.control[0]->watch[2].state, 2);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(got, 77);
    send_and_receive_laps(&world, 100);
    world_close(&world);
}

static void a_sender_that_stopped_half_way_loses_its_cell(void **state)
{
    struct world world;
    uint64_t data = 77, got = 0, word;
    size_t bytes;
    struct rondo_control_cell *cell;
    (void)state;
    world_open(&world, 3);
    send_and_receive_laps(&world, 5);
    cell = &world.control[0]->boxes[0].cell[5];
    half_send_of_rank_2(&world);
    word = atomic_load(&cell->word);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes),
                     RONDO_IN_PROGRESS);
    assert_true(world.control[0]->inbox.stuck_ns > 0);
    world.control[0]->inbox.stuck_ns -= INT64_C(6000000000);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, &got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(got, 77);
    assert_int_not_equal(atomic_load(&cell->word), word); /* rank 2 can no longer publish it */
    cell->tag = 4; /* but it may still write into the cell, which nobody uses */
    cell->bytes = 1 << 30;
    send_and_receive_laps(&world, 100);
    for (int i = 0; i < RONDO_MSG_CELLS - 1; i++) {
        assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, &data, sizeof(data)), RONDO_IN_PROGRESS);
    world_close(&world);
}

/* A peer wrote the cell, so its contents must not bound a copy or an index. */
static void a_hostile_cell_is_cut_to_size(void **state)
{
    struct world world;
    uint8_t got[RONDO_MSG_BYTES];
    size_t bytes = 0;
    (void)state;
    world_open(&world, 2);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, "x", 1), RONDO_SUCCESS);
    world.control[0]->boxes[0].cell[0].bytes = UINT64_MAX;
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(bytes, RONDO_MSG_BYTES);
    assert_int_equal(rondo_control_send(world.control[1], 0, 4, "x", 1), RONDO_SUCCESS);
    atomic_store(&world.control[0]->boxes[0].cell[1].word, 999 << 2 | RONDO_CELL_FULL); /* no such rank */
    assert_int_equal(rondo_control_receive(world.control[0], 1, 4, got, sizeof(got), &bytes),
                     RONDO_IN_PROGRESS);
    send_and_receive_laps(&world, 40);
    world_close(&world);
}

static void too_many_unclaimed_messages_end_the_communicator(void **state)
{
    struct world world;
    uint64_t got;
    size_t bytes;
    char text[RONDO_ERROR_TEXT];
    int rank, sent = 0, moved;
    rondo_status status = RONDO_SUCCESS;
    (void)state;
    world_open(&world, 2);
    for (int i = 0; i < 2 * RONDO_MSG_PARKED; i++) { /* progress alone leaves room, and senders wait */
        rondo_control_send(world.control[1], 0, 1, &i, sizeof(i));
        assert_int_equal(rondo_control_progress(world.control[0], &moved), RONDO_SUCCESS);
    }
    while (rondo_control_send(world.control[1], 0, 1, &sent, sizeof(sent)) == RONDO_SUCCESS) {
    }
    for (sent = 0; sent < 2 * RONDO_MSG_PARKED && status != RONDO_INTERNAL_ERROR; sent++) {
        rondo_control_send(world.control[1], 0, 1, &sent, sizeof(sent));
        status = rondo_control_receive(world.control[0], 1, 2, &got, sizeof(got), &bytes);
    }
    assert_int_equal(status, RONDO_INTERNAL_ERROR);
    assert_int_equal(rondo_control_reason(world.control[1], text, &rank), RONDO_INTERNAL_ERROR);
    assert_int_equal(rank, 0);
    assert_non_null(strstr(text, "4096 messages wait for rank 0"));
    world_close(&world);
}

static void messages_of_a_forgotten_tag_are_dropped_early_and_late(void **state)
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
    assert_int_equal(rondo_control_progress(world.control[0], &moved), RONDO_SUCCESS);
    rondo_control_forget(world.control[0], 2); /* also the last one in the list */
    assert_int_equal(world.control[0]->inbox.nparked, 4);
    assert_int_equal(rondo_control_send(world.control[1], 0, 2, &got, sizeof(got)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_send(world.control[1], 0, 1, &got, sizeof(got)), RONDO_SUCCESS);
    assert_int_equal(rondo_control_progress(world.control[0], &moved), RONDO_SUCCESS);
    assert_int_equal(world.control[0]->inbox.nparked, 5);
    assert_int_equal(rondo_control_receive(world.control[0], 1, 0, &got, sizeof(got), &bytes), RONDO_SUCCESS);
    assert_int_equal(got, 0);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_keep_their_order_over_many_laps),
        cmocka_unit_test(a_full_inbox_refuses_until_progress_makes_room),
        cmocka_unit_test(many_senders_lose_and_mix_nothing),
        cmocka_unit_test(a_sender_that_died_half_way_does_not_block_the_inbox),
        cmocka_unit_test(a_sender_that_stopped_half_way_loses_its_cell),
        cmocka_unit_test(a_hostile_cell_is_cut_to_size),
        cmocka_unit_test(too_many_unclaimed_messages_end_the_communicator),
        cmocka_unit_test(messages_of_a_forgotten_tag_are_dropped_early_and_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
