/* The net transport over the fake NICs of fake_verbs.h: slices that leave from and arrive in registered
 * memory, those that fall back to slots, memory that is freed, and calls that end before slices arrive. */
#include "transport_world.h"

#include "base/heap.h"
#include "base/param.h"
#include "fake_verbs.h"
#include "faults.h"

enum {
    SLICE = 8192,
    MOST = 4 * RONDO_SLOTS,
    POSTED = RONDO_SLOTS, /* receives that are posted before anybody waits for a slice */
    HEADER = 16
};

static void set(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_netdev_finalize(); /* so that devices are asked again */
}

/* Rank 0 sends from `source`, and rank 1 receives in `target`. */
struct pair {
    struct world *w;
    struct end *from, *to;
    uint8_t *source, *target;
    int registered[2]; /* whether source and target are */
};

static uint8_t *memory_new(int registered)
{
    void *memory = NULL;
    if (registered) {
        assert_int_equal(rondo_heap_alloc(&memory, MOST * SLICE), RONDO_SUCCESS);
    } else {
        memory = malloc(MOST * SLICE);
    }
    return memory;
}

static void pair_open(struct pair *p, int send_registered, int receive_registered)
{
    p->w = two_apart(SLICE);
    p->registered[0] = send_registered;
    p->registered[1] = receive_registered;
    p->from = first_end(&p->w->rank[0], 1);
    p->to = first_end(&p->w->rank[1], 0);
    p->source = memory_new(send_registered);
    p->target = memory_new(receive_registered);
    for (size_t i = 0; i < MOST * SLICE; i++) {
        p->source[i] = (uint8_t)(i * 7 + i / 251);
    }
    memset(p->target, 0, MOST * SLICE);
}

static void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        rank_close(&p->w->rank[i]);
    }
    world_free(p->w);
    for (int i = 0; i < 2; i++) {
        uint8_t *memory = i ? p->target : p->source;
        if (p->registered[i]) {
            assert_int_equal(rondo_heap_free(memory), RONDO_SUCCESS);
        } else {
            free(memory);
        }
    }
    assert_int_equal(fake_verbs_objects(), 0);
    assert_int_equal(fake.bad_uses, 0);
}

static const struct rondo_verbs_counts *counts(const struct end *end)
{
    return rondo_verbs_counts(net_end(end)->comm);
}

/* Post slice i of the source with this call word, as an executor does. */
static void post(struct pair *p, size_t i, size_t bytes, uint32_t call)
{
    struct rondo_conn *conn = &p->from->link.conn;
    uint32_t slot = (uint32_t)(conn->step % RONDO_SLOTS);
    conn->outside[slot] = p->source + i * SLICE;
    conn->tail->call[slot] = call;
    conn->tail->size[slot] = rondo_conn_size(conn->step, RONDO_PROTO_SIMPLE, bytes);
    __atomic_store_n(&conn->tail->tail, ++conn->step, __ATOMIC_RELEASE);
}

/* Let the receiver ask for slice i at its place in the target, and for `ahead` bytes behind it. */
static void offer(struct pair *p, size_t i, uint32_t ahead)
{
    struct rondo_conn *conn = &p->to->link.conn;
    conn->into = p->target + i * SLICE;
    conn->into_bytes = SLICE;
    conn->into_ahead = ahead;
}

static void progress_both(struct pair *p)
{
    rank_progress(&p->w->rank[0]);
    rank_progress(&p->w->rank[1]);
}

/* Wait for a slice, and copy it to its place if it came to a slot. @return 1: it came to its place. */
static int take(struct pair *p, size_t i, size_t bytes, uint32_t call)
{
    struct rondo_conn *conn = &p->to->link.conn;
    uint32_t slot = (uint32_t)(conn->step % RONDO_SLOTS);
    size_t stride = conn->slot_bytes[RONDO_PROTO_SIMPLE] + conn->slot_gap[RONDO_PROTO_SIMPLE];
    int64_t late = rondo_now_ns() + deadline_ns;
    while (__atomic_load_n(&conn->tail->tail, __ATOMIC_ACQUIRE) <= conn->step) {
        conn->wanted = 1;
        progress_both(p);
        assert_true(rondo_now_ns() < late);
    }
    int placed = conn->outside[slot] != NULL;
    if (placed) {
        assert_ptr_equal(conn->outside[slot], p->target + i * SLICE);
    } else {
        memcpy(p->target + i * SLICE, conn->slots[RONDO_PROTO_SIMPLE] + slot * stride, bytes);
    }
    assert_int_equal(conn->tail->call[slot], call);
    assert_memory_equal(p->target + i * SLICE, p->source + i * SLICE, bytes);
    __atomic_store_n(&conn->head->head, ++conn->step, __ATOMIC_RELEASE);
    conn->into = NULL;
    rank_flush(&p->w->rank[0]);
    return placed;
}

/* Send slices one by one. @return how many came to their places. */
static int pass(struct pair *p, size_t first, size_t n)
{
    int placed = 0;
    for (size_t i = first; i < first + n; i++) {
        post(p, i, SLICE, 0);
        offer(p, i, 0);
        placed += take(p, i, SLICE, 0);
    }
    return placed;
}

static void registered_slices_use_no_slot(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, 1, 1);
    struct rondo_verbs_counts sent = *counts(p.from), received = *counts(p.to);
    assert_int_equal(pass(&p, 0, MOST), MOST - POSTED);
    assert_int_equal(net_end(p.from)->passed_by, MOST);
    assert_int_equal(net_end(p.to)->passed_by, MOST - POSTED);
    /* As with slots, a slice takes a write, a receive and a clear-to-send, except for receives that were
     * posted beforehand. No other bytes than the data are sent. */
    assert_int_equal(counts(p.from)->sends - sent.sends, MOST);
    assert_int_equal(counts(p.from)->doorbells - sent.doorbells, MOST);
    assert_int_equal(counts(p.from)->bytes - sent.bytes, MOST * SLICE + POSTED * HEADER);
    assert_int_equal(counts(p.to)->sends - received.sends, MOST - POSTED);
    assert_int_equal(counts(p.to)->receives - received.receives, MOST - POSTED);
    pair_close(&p);
}

static void either_side_may_be_registered(void **state)
{
    (void)state;
    for (int side = 0; side < 3; side++) { /* 0: the sender, 1: the receiver, 2: neither */
        struct pair p;
        pair_open(&p, side == 0, side == 1);
        int mrs = fake.live[FAKE_MR];
        assert_int_equal(pass(&p, 0, MOST), side == 1 ? MOST - POSTED : 0);
        assert_int_equal(net_end(p.from)->passed_by, side == 0 ? MOST : 0);
        assert_int_equal(fake.live[FAKE_MR] - mrs, side < 2);
        pair_close(&p);
    }
}

/* The receiver posts a whole block at once, so that the sender need not wait for each slice. The last slice
 * may be shorter. */
static void a_block_is_posted_ahead(void **state)
{
    enum { BLOCK = 4, LAST = 5000 };
    struct pair p;
    (void)state;
    pair_open(&p, 1, 1);
    pass(&p, 0, 2 * RONDO_SLOTS);
    uint64_t sends = counts(p.to)->sends;
    offer(&p, 0, (BLOCK - 2) * SLICE + LAST);
    p.to->link.conn.wanted = 1;
    progress_both(&p);
    assert_int_equal(counts(p.to)->sends - sends, BLOCK);
    memset(p.target, 0, MOST * SLICE);
    for (size_t i = 0; i < BLOCK; i++) {
        post(&p, i, i == BLOCK - 1 ? LAST : SLICE, 0);
    }
    rank_flush(&p.w->rank[0]); /* all slices leave although the receiver does nothing */
    assert_memory_equal(p.target, p.source, (BLOCK - 1) * SLICE + LAST);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t bytes = i == BLOCK - 1 ? LAST : SLICE;
        offer(&p, i, 0);
        assert_int_equal(take(&p, i, bytes, 0), 1);
    }
    pair_close(&p);
}

/* Neither a slice with a call word nor one of another length fits the place, so both come to a slot. */
static void slices_that_do_not_fit_their_place_come_to_a_slot(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, 1, 1);
    assert_int_equal(pass(&p, 0, 2 * RONDO_SLOTS), RONDO_SLOTS);
    post(&p, 0, SLICE, 99);
    offer(&p, 0, 0);
    assert_int_equal(take(&p, 0, SLICE, 99), 0);
    post(&p, 1, SLICE - 1, 0);
    offer(&p, 1, 0);
    assert_int_equal(take(&p, 1, SLICE - 1, 0), 0);
    assert_int_equal(pass(&p, 2, 1), 1);
    pair_close(&p);
}

/* After two slices in a row without a place, receives are posted beforehand again. */
static void receives_are_posted_beforehand_again(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, 1, 1);
    pass(&p, 0, 2 * RONDO_SLOTS);
    assert_int_equal(net_end(p.to)->posted, net_end(p.to)->done);
    for (size_t i = 0; i < 3; i++) {
        post(&p, i, SLICE, 5);
        assert_int_equal(take(&p, i, SLICE, 5), 0);
    }
    rank_flush(&p.w->rank[1]);
    assert_int_equal(net_end(p.to)->posted - net_end(p.to)->done, RONDO_SLOTS);
    pair_close(&p);
}

static void freed_memory_is_registered_no_longer(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, 1, 1);
    int mrs = fake.live[FAKE_MR];
    for (int round = 0; round < 3; round++) {
        int asked = fake.calls[FAKE_MR];
        pass(&p, 0, 2 * RONDO_SLOTS);
        assert_int_equal(fake.live[FAKE_MR], mrs + 2);
        /* Each is registered once. Memory that later gets the same address is another region. */
        assert_int_equal(fake.calls[FAKE_MR], asked + 2);
        assert_int_equal(rondo_heap_free(p.source), RONDO_SUCCESS);
        assert_int_equal(rondo_heap_free(p.target), RONDO_SUCCESS);
        progress_both(&p);
        assert_int_equal(fake.live[FAKE_MR], mrs);
        p.source = memory_new(1);
        p.target = memory_new(1);
        memset(p.source, 3 + round, MOST * SLICE);
    }
    pair_close(&p);
}

/* If there are more regions than an end keeps, the least recently used one goes. */
static void an_end_keeps_a_few_regions(void **state)
{
    enum { REGIONS = 3 * RONDO_NET_RANGES };
    struct pair p;
    uint8_t *first, *region[REGIONS];
    (void)state;
    pair_open(&p, 1, 0);
    first = p.source;
    int mrs = fake.live[FAKE_MR];
    for (int i = 0; i < REGIONS; i++) {
        p.source = region[i] = memory_new(1);
        memset(p.source, i, MOST * SLICE);
        pass(&p, 0, 2);
        assert_int_equal(fake.live[FAKE_MR] - mrs, i < RONDO_NET_RANGES ? i + 1 : RONDO_NET_RANGES);
    }
    for (int i = 0; i < REGIONS; i++) {
        assert_int_equal(rondo_heap_free(region[i]), RONDO_SUCCESS);
    }
    p.source = first;
    pair_close(&p);
}

/* Memory that a NIC refuses is copied, and the NIC is not asked again. */
static void memory_that_the_nic_refuses_is_sent_from_slots(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, 1, 0);
    rondo_log_mask = RONDO_LOG_NONE;
    fake.fail_in[FAKE_MR] = 1;
    fake.fail_errno = ENOMEM;
    int asked = fake.calls[FAKE_MR];
    pass(&p, 0, MOST);
    assert_int_equal(fake.calls[FAKE_MR], asked + 1);
    assert_int_equal(net_end(p.from)->passed_by, 0);
    pair_close(&p);
}

/* If a call ends before its slices arrive, its memory belongs to the caller, whatever the sender does. */
static void a_revoked_place_is_not_written(void **state)
{
    struct pair p;
    int moved;
    (void)state;
    pair_open(&p, 1, 1);
    pass(&p, 0, 2 * RONDO_SLOTS);
    offer(&p, 0, 0);
    p.to->link.conn.wanted = 1;
    progress_both(&p);
    memset(p.target, 0xee, MOST * SLICE);
    rondo_net_revoke(&p.w->rank[1].net);
    rondo_log_mask = RONDO_LOG_NONE;
    post(&p, 0, SLICE, 0);
    for (int i = 0; i < 10; i++) {
        (void)rondo_net_progress(&p.w->rank[0].net, &moved);
    }
    for (size_t i = 0; i < SLICE; i++) {
        assert_int_equal(p.target[i], 0xee);
    }
    p.to->link.conn.wanted = 1;
    assert_int_equal(rondo_net_progress(&p.w->rank[1].net, &moved), RONDO_REMOTE_ERROR);
    pair_close(&p);
}

static void late_and_full_nics_lose_nothing(void **state)
{
    struct pair p;
    (void)state;
    needs_faults();
    set("RONDO_NET_FAULT", "seed=5,late=3,again=2");
    pair_open(&p, 1, 1);
    assert_in_range(pass(&p, 0, MOST), 1, MOST - 1);
    assert_int_equal(net_end(p.from)->passed_by, MOST);
    pair_close(&p);
    set("RONDO_NET_FAULT", NULL);
}

/* Slices for later calls, from a peer that has left, are kept for these calls and delay no finished call. */
static void slices_for_later_calls_are_kept_and_delay_nobody(void **state)
{
    struct world *w = two_apart(SLICE);
    struct end *from = first_end(&w->rank[0], 1), *to = first_end(&w->rank[1], 0);
    uint32_t mask = rondo_log_mask;
    int moved;
    (void)state;
    for (int i = 0; i < 3; i++) { /* the first is taken before the peer leaves */
        assert_int_equal(stream_slice(&w->rank[0], from), 1);
        rank_flush(&w->rank[0]);
        for (int round = 0; i == 0 && round < 2; round++) {
            rank_progress(&w->rank[1]);
            assert_int_equal(stream_slice(&w->rank[1], to), round);
        }
    }
    rank_close(&w->rank[0]); /* before rank 1 asks for a slice into the free slot */
    for (int i = 1; i < 3; i++) {
        assert_int_equal(stream_slice(&w->rank[1], to), 0);
        rank_flush(&w->rank[1]);
        assert_int_equal(stream_slice(&w->rank[1], to), 1);
        rank_flush(&w->rank[1]);
    }
    assert_int_equal(stream_slice(&w->rank[1], to), 0); /* it wants one more */
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(rondo_net_progress(&w->rank[1].net, &moved), RONDO_REMOTE_ERROR);
    rondo_log_mask = mask;
    rank_close(&w->rank[1]);
    world_free(w);
    assert_int_equal(fake_verbs_objects(), 0);
}

static int over_nics(void **state)
{
    (void)state;
    fake_verbs_reset();
    rondo_verbs_lib_replace(&fake_verbs_lib);
    set("RONDO_NET", "verbs");
    set("RONDO_IB_HCA", "=fake0:2");
    return 0;
}

#define ROW(name) cmocka_unit_test_setup(name, over_nics)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(registered_slices_use_no_slot),
        ROW(either_side_may_be_registered),
        ROW(a_block_is_posted_ahead),
        ROW(slices_that_do_not_fit_their_place_come_to_a_slot),
        ROW(receives_are_posted_beforehand_again),
        ROW(freed_memory_is_registered_no_longer),
        ROW(an_end_keeps_a_few_regions),
        ROW(memory_that_the_nic_refuses_is_sent_from_slots),
        ROW(a_revoked_place_is_not_written),
        ROW(late_and_full_nics_lose_nothing),
        ROW(slices_for_later_calls_are_kept_and_delay_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
