/* The net transport over the socket device on this host: slices of rings and trees, devices that misbehave,
 * peers that leave, and wrong records and messages. */
#include "transport_world.h"

#include "base/param.h"
#include "faults.h"
#include "net/transport/transport_net.h"
#include "says.h"

static void set(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_netdev_finalize(); /* so that devices are asked again */
}

static int over_loopback(void **state)
{
    (void)state;
    set("RONDO_NET", "socket");
    set("RONDO_SOCKET_IFNAME", "=lo");
    return 0;
}

static void stream_apart(int nranks, uint32_t slot_bytes)
{
    struct world *w = world_new(nranks, RONDO_SHM_MODE_MEMFD, slot_bytes);
    world_spread(w);
    w->body = body_stream;
    run_threads(w);
    world_free(w);
}

static void rings_and_trees_carry_their_own_slices(void **state)
{
    (void)state;
    stream_apart(2, 128);
    stream_apart(3, 8192 + 128);
    stream_apart(5, 1024);
}

static void late_and_full_devices_lose_nothing(void **state)
{
    (void)state;
    needs_faults();
    set("RONDO_NET_FAULT", "seed=7,late=3,again=2,connect=5");
    stream_apart(3, 512);
    set("RONDO_NET_FAULT", NULL);
}

/* Make progress until it fails. */
static rondo_status progress_until_error(struct rank *r, struct rondo_conn *conn)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    rondo_status status = RONDO_SUCCESS;
    for (int moved = 0; status == RONDO_SUCCESS && rondo_now_ns() < late;) {
        conn->wanted = 1;
        status = rondo_net_progress(&r->net, &moved);
    }
    return status;
}

/* Send a slice from one misaligned address to another. It must arrive there, and only its header may touch
 * the slots of the two ends. */
static void pass_outside(struct world *w, struct end *from, struct end *to, unsigned number)
{
    static uint8_t sent[300], came[300];
    struct rondo_conn *send = &from->link.conn, *recv = &to->link.conn;
    uint32_t slot = (uint32_t)(send->step % RONDO_SLOTS);
    size_t stride = send->slot_bytes[RONDO_PROTO_SIMPLE] + send->slot_gap[RONDO_PROTO_SIMPLE];
    uint8_t *slots[] = { send->slots[RONDO_PROTO_SIMPLE] + slot * stride,
                         recv->slots[RONDO_PROTO_SIMPLE] + slot * stride };
    int64_t late = rondo_now_ns() + deadline_ns;
    for (size_t i = 0; i < sizeof(sent); i++) {
        sent[i] = (uint8_t)(number * 31 + i * 7);
    }
    memset(came, 0, sizeof(came));
    memset(slots[0], 0xee, 256);
    memset(slots[1], 0xee, 256);
    send->outside[slot] = sent + 1;
    send->tail->call[slot] = number + 1;
    send->tail->size[slot] = rondo_conn_size(send->step, RONDO_PROTO_SIMPLE, 255);
    __atomic_store_n(&send->tail->tail, ++send->step, __ATOMIC_RELEASE);
    recv->into = came + 3;
    recv->into_bytes = 255;
    while (__atomic_load_n(&recv->tail->tail, __ATOMIC_ACQUIRE) <= recv->step ||
           send->head->head < send->step) {
        recv->wanted = recv->tail->tail <= recv->step;
        rank_progress(&w->rank[0]);
        rank_progress(&w->rank[1]);
        assert_true(rondo_now_ns() < late);
    }
    assert_ptr_equal(recv->outside[slot], came + 3);
    assert_int_equal(recv->tail->call[slot], number + 1);
    assert_memory_equal(came + 3, sent + 1, 255);
    assert_int_equal(came[2] | came[258], 0);
    for (size_t i = 0; i < 256; i++) {
        assert_int_equal(slots[0][i] & slots[1][i], 0xee);
    }
    __atomic_store_n(&recv->head->head, ++recv->step, __ATOMIC_RELEASE);
    recv->into = NULL;
}

static void slices_go_from_and_to_any_memory(void **state)
{
    enum { PASSED = 3 * RONDO_SLOTS };
    (void)state;
    for (int fault = 0; fault < 1 + has_faults; fault++) {
        set("RONDO_NET_FAULT", fault ? "seed=5,late=3,again=2" : NULL);
        struct world *w = two_apart(256);
        struct end *from = first_end(&w->rank[0], 1), *to = first_end(&w->rank[1], 0);
        for (unsigned i = 0; i < PASSED; i++) {
            pass_outside(w, from, to, i);
        }
        assert_int_equal(net_end(from)->passed_by, PASSED);
        assert_int_equal(net_end(to)->passed_by, PASSED);
        for (int i = 0; i < 2; i++) {
            rank_close(&w->rank[i]);
        }
        world_free(w);
    }
    set("RONDO_NET_FAULT", NULL);
}

static void waiting_for_a_peer_that_left_is_an_error(void **state)
{
    struct world *w = two_apart(256);
    struct rank *r = &w->rank[0];
    int moved = 0;
    (void)state;
    rank_close(&w->rank[1]);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(rondo_net_progress(&r->net, &moved), RONDO_SUCCESS);
    }
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(progress_until_error(r, &first_end(r, 0)->link.conn), RONDO_REMOTE_ERROR);
    assert_says("rank 1");
    assert_int_equal(progress_until_error(r, &first_end(r, 0)->link.conn),
                     RONDO_REMOTE_ERROR); /* the error stays */
    rank_close(r);
    world_free(w);
}

static void a_message_that_is_no_slice_is_refused(void **state)
{
    struct world *w = two_apart(256);
    struct rondo_conn *send = &first_end(&w->rank[0], 1)->link.conn,
                      *recv = &first_end(&w->rank[1], 0)->link.conn;
    (void)state;
    /* There is no protocol 3. */
    send->tail->size[send->step % RONDO_SLOTS] = rondo_conn_size(send->step, 3, 16);
    __atomic_store_n(&send->tail->tail, ++send->step, __ATOMIC_RELEASE);
    rank_flush(&w->rank[0]);
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(progress_until_error(&w->rank[1], recv), RONDO_REMOTE_ERROR);
    assert_says("is invalid");
    for (int i = 0; i < 2; i++) {
        rank_close(&w->rank[i]);
    }
    world_free(w);
}

/* The sender gets the device's error as soon as it has something to send. */
static void a_device_that_dies_fails_its_sender(void **state)
{
    struct world *w;
    struct end *end;
    int moved = 0;
    (void)state;
    needs_faults();
    /* Two channels of a ring and a tree are 8 conns, and each says hello first. */
    set("RONDO_NET_FAULT", "fail=isend:9:remote");
    w = two_apart(256);
    end = first_end(&w->rank[0], 1);
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(stream_slice(&w->rank[0], end), 1);
    assert_int_equal(rondo_net_progress(&w->rank[0].net, &moved), RONDO_REMOTE_ERROR);
    for (int i = 0; i < 2; i++) {
        rank_close(&w->rank[i]);
    }
    world_free(w);
    set("RONDO_NET_FAULT", NULL);
}

static void a_transport_that_does_not_reach_a_peer_says_why(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_MEMFD, 256);
    const struct rondo_transport *transport;
    (void)state;
    world_spread(w);
    assert_int_equal(rank_open(w, 0, MAX_LINKS), RONDO_SUCCESS);
    assert_int_equal(rondo_transport_select(&w->rank[0].net, 1, &transport), RONDO_SUCCESS);
    assert_string_equal(transport->name, "net");
    rondo_log_mask = RONDO_LOG_NONE;
    w->peers[1].netdevs = 0;
    assert_int_equal(rondo_transport_select(&w->rank[0].net, 1, &transport), RONDO_INTERNAL_ERROR);
    assert_says("no network device on the other host");
    w->peers[1].netdevs = 1u << 31;
    assert_int_equal(rondo_transport_select(&w->rank[0].net, 1, &transport), RONDO_INTERNAL_ERROR);
    assert_says("no device of one kind on both hosts");
    setenv("RONDO_NET_DISABLE", "1", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(rondo_transport_select(&w->rank[0].net, 1, &transport), RONDO_INTERNAL_ERROR);
    assert_says("RONDO_NET_DISABLE");
    unsetenv("RONDO_NET_DISABLE");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rank_close(&w->rank[0]);
    world_free(w);
}

static void records_of_another_kind_are_refused(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_MEMFD, 256);
    struct rondo_connect *record;
    (void)state;
    world_spread(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rank_open(w, i, MAX_LINKS), RONDO_SUCCESS);
        assert_int_equal(rank_offer(w, i), RONDO_SUCCESS);
    }
    rondo_log_mask = RONDO_LOG_NONE;
    record = record_of(w, &w->rank[0], &w->rank[0].ends[0]);
    record->data[0] ^= 1; /* another device */
    assert_int_equal(rank_connect(w, 0), RONDO_INTERNAL_ERROR);
    record->data[0] ^= 1;
    record->data[1] ^= 1; /* other protocols */
    assert_int_equal(rank_connect(w, 0), RONDO_INTERNAL_ERROR);
    for (int i = 0; i < 2; i++) {
        rank_close(&w->rank[i]);
    }
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_and_trees_carry_their_own_slices),
        cmocka_unit_test(late_and_full_devices_lose_nothing),
        cmocka_unit_test(slices_go_from_and_to_any_memory),
        cmocka_unit_test(waiting_for_a_peer_that_left_is_an_error),
        cmocka_unit_test(a_message_that_is_no_slice_is_refused),
        cmocka_unit_test(a_device_that_dies_fails_its_sender),
        cmocka_unit_test(a_transport_that_does_not_reach_a_peer_says_why),
        cmocka_unit_test(records_of_another_kind_are_refused),
    };
    return cmocka_run_group_tests(tests, over_loopback, NULL);
}
