/* Named tensors between ranks that are threads, over shared memory, sockets and simulated NICs: what arrives,
 * and with how many messages. unit_tensor_fault tests what goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

#include "base/fault.h"
#include "faults.h"
#include "tensor/share.h"
#include "tensor/store.h"
#include "tensor_world.h"

/* ---- messages ---- */

/* Rank 0 publishes, rank 1 pulls four times: at first use, again, changed, and again. */
static void count_messages(struct fake_rank *r)
{
    static const size_t sizes[] = { 100000, 100000, 50000, 50000 };
    static uint8_t data[4][100000];
    rondo_tensor_store *store;
    rondo_tensor_stats s;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int i = 0; i < 4; i++) {
        if (r->rank == 0) {
            rondo_tensor t = tensor_of(data[i], sizes[i]);
            rondo_tensor_request *sent;
            pattern(data[i], sizes[i], (uint64_t)i);
            FAKE_OK(r, rondo_tensor_send(store, "weights", (uint64_t)i, &t, &sent));
            FAKE_OK(r, rondo_tensor_wait(sent, PATIENCE_MS));
        } else {
            rondo_tensor t = RONDO_TENSOR_INIT;
            FAKE_OK(r, rondo_tensor_recv(store, "weights", 0, (uint64_t)i, &t, NULL));
            FAKE_CHECK(r, t.bytes == sizes[i] && t.ndims == 1 && t.shape[0] == (int64_t)sizes[i] &&
                              t.type == RONDO_UINT8 && t.step == (uint64_t)i && t.peer == 0 && !t.dead &&
                              !t.packed);
            FAKE_CHECK(r, has_pattern(t.data, t.bytes, 0, (uint64_t)i));
            FAKE_OK(r, rondo_tensor_free(store, t.data));
        }
    }
    s = stats_of(store);
    if (r->rank == 0) { /* two round trips at first use and after a change, one otherwise */
        FAKE_CHECK(r, s.requests == 0 && s.re_requests == 0 && s.meta_data == 2 && s.errors == 0);
        FAKE_CHECK(r, s.contents == 4 && s.content_bytes == 300000 && s.message_writes == 2, "%d writes",
                   (int)s.message_writes);
        FAKE_CHECK(r, s.staged_bytes == 0 && s.cloned_bytes == 0 && s.direct == (over_writes() ? 4u : 0u));
    } else {
        int net = over_net();
        FAKE_CHECK(r, s.requests == 4 && s.re_requests == 2 && s.meta_data == 0 && s.contents == 0);
        FAKE_CHECK(r, s.pulled == 4 && s.pulled_bytes == 300000 && s.dropped == 0 && s.staged_bytes == 0);
        FAKE_CHECK(r, s.other_messages == (net ? 4u : 0u), "deliveries: %d", (int)s.other_messages);
        FAKE_CHECK(r, s.arenas == 1 && s.connections == 1);
        FAKE_CHECK(r, s.registrations == (net ? 3u : 0u), "%d registrations", (int)s.registrations);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_pull_is_two_round_trips_at_first_and_after_a_change_else_one, 2, count_messages)

enum { IN_A_ROW = 50 };

/* Nobody waits for single deliveries: they go with the next request. */
static void pulls_in_a_row(struct fake_rank *r)
{
    static uint8_t data[20000], got[20000];
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(data, sizeof(data));
        rondo_tensor_request *sent;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, IN_A_ROW, &sent));
        FAKE_OK(r, rondo_tensor_wait(sent, PATIENCE_MS)); /* all have been delivered */
    } else {
        int64_t begin = rondo_now_ns();
        for (int i = 0; i < IN_A_ROW; i++) {
            rondo_tensor t = tensor_of(got, sizeof(got));
            FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        }
        int64_t waited = (rondo_now_ns() - begin) / RONDO_TENSOR_LATER_NS;
        rondo_tensor_stats s = stats_of(store);
        FAKE_CHECK(r, s.other_messages == (over_net() ? IN_A_ROW : 0u), "%d deliveries",
                   (int)s.other_messages);
        /* One each, a re-request, and deliveries that have waited for as long as they may. */
        FAKE_CHECK(r, (int64_t)s.message_writes <= IN_A_ROW + 2 + waited, "%d writes, %d long waits",
                   (int)s.message_writes, (int)waited);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(deliveries_go_with_the_next_request, 2, pulls_in_a_row)

#if RONDO_HAVE_VERBS
enum { STEADY = 100000 };

/* In the steady state, what the NIC writes with immediate data is one message, its acknowledgement, and the
 * note of the content, with the request's index. Before the note it writes all of the content, from where it
 * lies to where the caller gets it. */
static void letters(struct fake_rank *r)
{
    rondo_tensor_store *store;
    uint8_t *data;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_alloc(store, STEADY, (void **)&data));
    rondo_tensor t = tensor_of(data, STEADY);
    if (r->rank == 0) {
        pattern(data, STEADY, 1);
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    } else {
        uint32_t wanted[] = { RONDO_TENSOR_IMM_MESSAGE, RONDO_TENSOR_IMM_ACK, 0 };
        struct fake_write writes[FAKE_WRITES];
        int n = 0, plain = 0;
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        UNTIL(r, store, has_been_read(store));
        wanted[2] = store->core->last_index + 1;
        memset(data, 0, STEADY);
        rondo_tensor_stats before = stats_of(store);
        (void)fake_verbs_take_writes(writes);
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        UNTIL(r, store, has_been_read(store));
        FAKE_CHECK(r, t.data == data && has_pattern(data, STEADY, 0, 1));
        for (int i = fake_verbs_take_writes(writes) - 1; i >= 0; i--) {
            const struct fake_write *write = &writes[i];
            if (write->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) {
                plain += write->bytes == STEADY && write->to == (uintptr_t)data;
                continue;
            }
            int which = 0;
            while (which < 3 && wanted[which] != write->imm) which++;
            FAKE_CHECK(r, which < 3, "immediate data %08x", write->imm);
            if (which < 3) wanted[which] = RONDO_TENSOR_LAST_INDEX; /* once each */
            FAKE_CHECK(r, which != 1 || write->bytes == 0);
            FAKE_CHECK(r, which != 2 || write->bytes == sizeof(uint64_t) + RONDO_NET_NOTE);
            n++;
        }
        FAKE_CHECK(r, n == 3 && plain == 1, "%d writes with immediate data, %d contents", n, plain);
        rondo_tensor_stats after = stats_of(store);
        FAKE_CHECK(r, after.requests == before.requests + 1 && after.re_requests == before.re_requests &&
                          after.staged_bytes == 0 && after.registrations == before.registrations);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_content_is_one_write_with_the_requests_index_into_its_place(void **state)
{
    (void)state;
    use_wire(VERBS);
    fake_ranks(2, letters, NULL);
    end_wire(VERBS);
}

/* Large contents go in pieces over both ports; small ones take them in turn. */
static void both_ports(struct fake_rank *r)
{
    enum { BIG = (9 << 20) + 77, SMALL = 20000, SMALLS = 30 };
    rondo_tensor_store *store;
    uint8_t *data[2];
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_alloc(store, BIG, (void **)&data[0]));
    FAKE_OK(r, rondo_tensor_alloc(store, SMALL, (void **)&data[1]));
    rondo_tensor big = tensor_of(data[0], BIG), small = tensor_of(data[1], SMALL);
    if (r->rank == 0) {
        pattern(data[0], BIG, 1);
        pattern(data[1], SMALL, 2);
        FAKE_OK(r, rondo_tensor_publish(store, "big", 0, &big, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_tensor_publish(store, "small", 0, &small, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        rondo_tensor_request *pulls[SMALLS];
        rondo_tensor got[SMALLS];
        FAKE_OK(r, rondo_tensor_recv(store, "big", 0, 0, &big, NULL));
        FAKE_CHECK(r, big.bytes == BIG && has_pattern(data[0], BIG, 0, 1));
        for (int i = 0; i < SMALLS; i++) {
            got[i] = (rondo_tensor)RONDO_TENSOR_INIT;
            FAKE_OK(r, rondo_tensor_pull(store, "small", 0, 0, NULL, &got[i], &pulls[i]));
        }
        FAKE_OK(r, rondo_tensor_recv(store, "big", 0, 0, &big, NULL));
        for (int i = 0; i < SMALLS; i++) {
            FAKE_OK(r, rondo_tensor_wait(pulls[i], PATIENCE_MS));
            FAKE_CHECK(r, has_pattern(got[i].data, SMALL, 0, 2));
            FAKE_OK(r, rondo_tensor_free(store, got[i].data));
        }
        FAKE_CHECK(r, has_pattern(data[0], BIG, 0, 1) && fake_verbs_live(FAKE_QP) == 8);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    rondo_tensor_stats s = stats_of(store);
    FAKE_CHECK(r, s.staged_bytes == 0 && s.direct == (r->rank == 0 ? 2u + SMALLS : 0u));
    FAKE_CHECK(r, s.registrations <= 2 + 1 + 2 * 2 * s.arenas_made, "%d", (int)s.registrations);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void large_tensors_are_striped_over_ports_and_queue_pairs(void **state)
{
    (void)state;
    setenv("RONDO_TENSOR_PORTS", "2", 1);
    use_wire(VERBS);
    fake_ranks(2, both_ports, NULL);
    end_wire(VERBS);
    unsetenv("RONDO_TENSOR_PORTS");
    rondo_param_reload();
}
#endif

/* ---- many tensors ---- */

enum { TENSORS = 120, RANKS = 4, LARGE = 3 << 20 };

static uint64_t mix(uint64_t seed, int from, int n)
{
    uint64_t words[] = { seed, (uint64_t)from, (uint64_t)n };
    return rondo_hash(words, sizeof(words), 0);
}

static size_t size_of(uint64_t seed, int from, int n)
{
    uint64_t h = mix(seed, from, n);
    return (size_t)(h % 50 == 0 ? h % LARGE : h % (1u << (h >> 32) % 18)) + 1;
}

static uint64_t test_seed;

/* The tensors of rank `from`, alternately published before and after they are asked for. */
static void publish_some(struct fake_rank *r, rondo_tensor_store *store, uint8_t **data, int odd)
{
    for (int i = odd; i < TENSORS; i += 2) {
        size_t bytes = size_of(test_seed, r->rank, i);
        rondo_tensor t;
        char key[32];
        FAKE_OK(r, rondo_tensor_alloc(store, bytes, (void **)&data[i]));
        pattern(data[i], bytes, mix(test_seed, r->rank, i));
        t = tensor_of(data[i], bytes);
        snprintf(key, sizeof(key), "t%d", i % 7);
        FAKE_OK(r, rondo_tensor_publish(store, key, (uint64_t)i, &t, (uint64_t)r->nranks, NULL));
    }
}

static void all_to_all(struct fake_rank *r)
{
    enum { PULLS = TENSORS * RANKS };
    uint8_t *data[TENSORS];
    rondo_tensor_store *store;
    rondo_tensor *got = calloc(PULLS, sizeof(*got));
    rondo_tensor_request **pull = calloc(PULLS, sizeof(*pull));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    publish_some(r, store, data, 0);
    for (int i = 0; i < PULLS; i++) {
        int from = (r->rank + i / TENSORS) % r->nranks, n = i % TENSORS;
        char key[32];
        snprintf(key, sizeof(key), "t%d", n % 7);
        got[i] = (rondo_tensor)RONDO_TENSOR_INIT;
        FAKE_OK(r, rondo_tensor_pull(store, key, from, (uint64_t)n, NULL, &got[i], &pull[i]));
    }
    publish_some(r, store, data, 1);
    for (int i = 0; i < PULLS; i++) {
        int from = (r->rank + i / TENSORS) % r->nranks, n = i % TENSORS;
        FAKE_OK(r, rondo_tensor_wait(pull[i], PATIENCE_MS));
        FAKE_CHECK(r, got[i].bytes == size_of(test_seed, from, n) && got[i].peer == from);
        FAKE_CHECK(r, has_pattern(got[i].data, got[i].bytes, 0, mix(test_seed, from, n)), "tensor %d of %d",
                   n, from);
        FAKE_OK(r, rondo_tensor_free(store, got[i].data));
    }
    rondo_tensor_stats s = stats_of(store);
    FAKE_CHECK(r, s.pulled == PULLS && s.requests == PULLS && s.dropped == 0);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    free(got);
    free(pull);
}

ALL_WIRES(random_tensors_arrive_in_both_orders_between_all_ranks, RANKS, all_to_all)

/* ---- pull_many ---- */

static void pull_many(struct fake_rank *r)
{
    enum { MANY = 1500 };
    static float values[MANY][5];
    static char keys[MANY][24];
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        for (int i = 0; i < MANY; i++) {
            rondo_tensor t = tensor_of(values[i], sizeof(values[i]));
            t.type = RONDO_FLOAT32;
            for (int k = 0; k < 5; k++) values[i][k] = (float)(i + k);
            snprintf(keys[i], sizeof(keys[i]), "embedding/%d", i);
            FAKE_OK(r, rondo_tensor_publish(store, keys[i], 1, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        }
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    } else {
        rondo_tensor_item *items = calloc(MANY, sizeof(*items));
        rondo_tensor *got = calloc(MANY, sizeof(*got));
        float(*place)[5] = calloc(MANY, sizeof(*place));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        for (int round = 0; round < 2; round++) {
            uint64_t writes = stats_of(store).message_writes;
            for (int i = 0; i < MANY; i++) {
                got[i] = tensor_of(place[i], sizeof(place[i]));
                items[i] = (rondo_tensor_item){ .key = keys[i], .peer = 0, .step = 1, .tensor = &got[i] };
            }
            memset(place, 0, MANY * sizeof(*place));
            FAKE_OK(r, rondo_tensor_pull_many(store, items, MANY, NULL));
            for (int i = 0; i < MANY; i++) {
                FAKE_CHECK(r, items[i].status == RONDO_SUCCESS && got[i].type == RONDO_FLOAT32 &&
                                  got[i].shape[0] == 5 && place[i][4] == (float)(i + 4));
            }
            /* Requests travel together: some hundred in one write. Re-requests at first use, deliveries
             * none. */
            writes = stats_of(store).message_writes - writes;
            FAKE_CHECK(r, writes <= MANY / 50, "round %d: %d writes", round, (int)writes);
        }
        FAKE_CHECK(r, stats_of(store).requests == 2 * MANY && stats_of(store).re_requests == MANY);
        free(items);
        free(got);
        free(place);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(thousands_of_keys_travel_in_a_few_writes, 2, pull_many)

/* ---- slices, kinds of tensors, memory ---- */

static void slices(struct fake_rank *r)
{
    static int32_t rows[100][25];
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(rows, sizeof(rows));
        t.type = RONDO_INT32;
        t.ndims = 2;
        t.shape[0] = 100;
        t.shape[1] = 25;
        for (int i = 0; i < 2500; i++) rows[i / 25][i % 25] = i;
        FAKE_OK(r, rondo_tensor_publish(store, "table", 3, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        for (int first = 0; first < 100; first += 33) {
            int count = first == 99 ? 1 : 33;
            rondo_tensor_slice slice = { RONDO_TENSOR_ROWS, (uint64_t)first, (uint64_t)count };
            rondo_tensor t = RONDO_TENSOR_INIT;
            FAKE_OK(r, rondo_tensor_pull(store, "table", 0, RONDO_TENSOR_LATEST, &slice, &t, NULL));
            const int32_t *at = t.data;
            FAKE_CHECK(r, t.ndims == 2 && t.shape[0] == count && t.shape[1] == 25 && t.type == RONDO_INT32 &&
                              t.step == 3 && at[0] == first * 25 &&
                              at[count * 25 - 1] == (first + count) * 25 - 1);
            FAKE_OK(r, rondo_tensor_free(store, t.data));
        }
        int32_t one = 0;
        rondo_tensor t = tensor_of(&one, sizeof(one));
        rondo_tensor_slice bytes = { RONDO_TENSOR_BYTES, 4 * 1234, 4 };
        FAKE_OK(r, rondo_tensor_pull(store, "table", 0, 3, &bytes, &t, NULL));
        FAKE_CHECK(r, one == 1234 && t.type == RONDO_UINT8 && t.shape[0] == 4);
        bytes.first = 9998;
        FAKE_ERROR(r, rondo_tensor_pull(store, "table", 0, 3, &bytes, &t, NULL), RONDO_INVALID_ARGUMENT,
                   "4 bytes from 9998 on were asked for, but it has 10000");
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(slices_are_cut_at_the_publisher, 2, slices)

struct box {
    int released, packed;
};

static rondo_status box_pack(void *arg, void *out, size_t bytes)
{
    ((struct box *)arg)->packed++;
    pattern(out, bytes, 77);
    return RONDO_SUCCESS;
}
static void box_release(void *arg, void *data)
{
    (void)data;
    ((struct box *)arg)->released++;
}
static rondo_status box_unpack(void *arg, const void *in, size_t bytes)
{
    *(int *)arg = has_pattern(in, bytes, 0, 77) ? (int)bytes : -1;
    return RONDO_SUCCESS;
}

static void kinds(struct fake_rank *r)
{
    static const rondo_tensor_ops packs = { sizeof(packs), box_pack, NULL, box_release },
                                  unpacks = { sizeof(unpacks), NULL, box_unpack, NULL },
                                  releases = { sizeof(releases), NULL, NULL, box_release };
    rondo_tensor_store *store;
    struct box box = { 0 };
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor packed = tensor_of(NULL, 50001), dead = RONDO_TENSOR_INIT, empty = RONDO_TENSOR_INIT;
        rondo_tensor_request *sent[3];
        packed.ops = &packs;
        packed.arg = &box;
        dead.dead = 1;
        empty.ops = &releases;
        empty.arg = &box;
        FAKE_OK(r, rondo_tensor_send(store, "packed", 0, &packed, &sent[0]));
        FAKE_OK(r, rondo_tensor_send(store, "dead", 0, &dead, &sent[1]));
        FAKE_OK(r, rondo_tensor_send(store, "empty", 0, &empty, &sent[2]));
        for (int i = 0; i < 3; i++) FAKE_OK(r, rondo_tensor_wait(sent[i], PATIENCE_MS));
        FAKE_CHECK(r, box.packed == 1 && box.released == 2, "%d packed, %d released", box.packed,
                   box.released);
    } else {
        int bytes = 0;
        rondo_tensor t = RONDO_TENSOR_INIT;
        t.ops = &unpacks;
        t.arg = &bytes;
        FAKE_OK(r, rondo_tensor_recv(store, "packed", 0, 0, &t, NULL));
        FAKE_CHECK(r, bytes == 50001 && t.packed && t.data == NULL);
        t = (rondo_tensor)RONDO_TENSOR_INIT;
        FAKE_OK(r, rondo_tensor_recv(store, "dead", 0, 0, &t, NULL));
        FAKE_CHECK(r, t.dead && t.bytes == 0);
        FAKE_OK(r, rondo_tensor_recv(store, "empty", 0, 0, &t, NULL));
        FAKE_CHECK(r, !t.dead && t.bytes == 0 && t.ndims == 1 && t.shape[0] == 0);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(packed_dead_and_empty_tensors_arrive_as_such, 2, kinds)

/* ---- lifetimes ---- */

/* Rank 0 publishes for two pulls; three ranks pull: the third waits for the next publication. */
static void lifetimes(struct fake_rank *r)
{
    static int value[2] = { 11, 22 };
    rondo_tensor_store *store;
    int got = 0;
    rondo_tensor t = tensor_of(&got, sizeof(got));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor_request *two, *one;
        t = tensor_of(&value[0], sizeof(int));
        FAKE_OK(r, rondo_tensor_publish(store, "x", 5, &t, 2, &two));
        FAKE_OK(r, rondo_tensor_wait(two, PATIENCE_MS));
        t = tensor_of(&value[1], sizeof(int));
        FAKE_OK(r, rondo_tensor_publish(store, "x", 5, &t, 1, &one));
        FAKE_OK(r, rondo_tensor_wait(one, PATIENCE_MS));
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "x", 0, 5, &t, NULL));
        FAKE_CHECK(r, got == 11 || got == 22);
    }
    int sum = 0;
    FAKE_OK(r, rondo_all_reduce(&got, &sum, 1, RONDO_INT32, RONDO_SUM, r->comm, NULL));
    FAKE_CHECK(r, sum == 11 + 11 + 22, "sum %d", sum);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_publication_serves_as_many_pulls_as_it_says, 4, lifetimes)

static void latest(struct fake_rank *r)
{
    static int value[4] = { 0, 10, 20, 30 };
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int step = 1; step < 4; step++) {
        int got = 0;
        rondo_tensor t = tensor_of(r->rank == 0 ? &value[step] : &got, sizeof(int));
        if (r->rank == 0) FAKE_OK(r, rondo_tensor_publish(store, "w", (uint64_t)step, &t, 0, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        if (r->rank == 1) {
            FAKE_OK(r, rondo_tensor_recv(store, "w", 0, RONDO_TENSOR_LATEST, &t, NULL));
            FAKE_CHECK(r, got == step * 10 && t.step == (uint64_t)step);
        }
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    if (r->rank == 1)
        FAKE_CHECK(r, stats_of(store).re_requests == 1); /* a new step is no change of meta-data */
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(latest_is_the_highest_step_that_is_published, 2, latest)

static void find_any(struct fake_rank *r)
{
    rondo_tensor_store *store;
    int mine = 100 + r->rank;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < r->nranks; k++) {
            char key[16];
            int got = 0;
            rondo_tensor t = tensor_of(&got, sizeof(got));
            snprintf(key, sizeof(key), "key%d", k);
            if (k == r->rank) {
                rondo_tensor own = tensor_of(&mine, sizeof(mine));
                FAKE_OK(r, rondo_tensor_announce(store, key, (uint64_t)round, &own,
                                                 RONDO_TENSOR_UNTIL_RETIRED, NULL));
            }
            FAKE_OK(r, rondo_tensor_recv(store, key, RONDO_TENSOR_ANY, (uint64_t)round, &t, NULL));
            FAKE_CHECK(r, got == 100 + k && t.peer == k);
        }
    }
    /* Where a key is, is asked for once. */
    FAKE_CHECK(r, stats_of(store).requests == 2u * (unsigned)r->nranks);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_key_of_any_rank_is_found, 4, find_any)

/* A rank that only computes serves others. */
static void passive(struct fake_rank *r)
{
    static int flag;
    rondo_tensor_store *store;
    int value = 5, got = 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(&value, sizeof(value));
        __atomic_store_n(&flag, 0, __ATOMIC_RELEASE);
        FAKE_OK(r, rondo_tensor_publish(store, "v", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        while (!__atomic_load_n(&flag, __ATOMIC_ACQUIRE)) sched_yield(); /* no call of Rondo */
    } else {
        for (int i = 0; i < 20; i++) {
            rondo_tensor t = tensor_of(&got, sizeof(got));
            FAKE_OK(r, rondo_tensor_recv(store, "v", 0, 0, &t, NULL));
            FAKE_CHECK(r, got == 5);
        }
        __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_publisher_is_passive, 2, passive)

/* ---- copies by both ends ---- */

enum { SHARED_BYTES = (1 << 20) + 5, SHARED_PULLS = 20 };
static int has_helped, pulls_ended; /* atomic */

/* Wait, with a core of its own as far as the store knows. *(int *)r->arg: parts cannot be written. */
static void wait_and_help(struct fake_rank *r, rondo_tensor_store *store)
{
    struct rondo_tensor_core *core = store->core;
    __atomic_add_fetch(&core->drivers, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&pulls_ended, __ATOMIC_ACQUIRE)) {
        int moved = 0;
        pthread_mutex_lock(&core->lock);
        core->spins = 1;
        rondo_tensor_progress(core, &moved);
        __atomic_store_n(&has_helped, core->stats.helped_bytes > 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&core->lock);
        sched_yield();
    }
    __atomic_sub_fetch(&core->drivers, 1, __ATOMIC_SEQ_CST);
    FAKE_CHECK(r, has_helped == !*(int *)r->arg, "it wrote %llu bytes",
               (unsigned long long)stats_of(store).helped_bytes);
}

static void shared_copies(struct fake_rank *r)
{
    static uint8_t data[SHARED_BYTES], got[SHARED_BYTES + 1];
    rondo_tensor_store *store;
    int64_t begun_ns = rondo_now_ns();
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(data, sizeof(data));
        pattern(data, sizeof(data), 1);
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        wait_and_help(r, store);
    } else {
        for (int i = 0;
             i < SHARED_PULLS || (!*(int *)r->arg && !__atomic_load_n(&has_helped, __ATOMIC_RELAXED) &&
                                  rondo_now_ns() - begun_ns < rondo_ms_to_ns(PATIENCE_MS));
             i++) {
            rondo_tensor t = tensor_of(got + 1, SHARED_BYTES); /* not at a page's begin */
            memset(got, 99, sizeof(got));
            FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
            FAKE_CHECK(r,
                       t.bytes == SHARED_BYTES && has_pattern(got + 1, SHARED_BYTES, 0, 1) && got[0] == 99);
        }
        __atomic_store_n(&pulls_ended, 1, __ATOMIC_RELEASE);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_publisher_that_waits_copies_parts_if_it_can(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    for (int fails = has_faults; fails >= 0; fails--) {
        set_param("RONDO_FAULT", fails ? "rank=0,phase=tensor_help,act=fail" : NULL);
        assert_int_equal(rondo_fault_init(), RONDO_SUCCESS);
        __atomic_store_n(&pulls_ended, 0, __ATOMIC_RELEASE);
        fake_ranks(2, shared_copies, &fails);
    }
}

/* Copy contents of 1 MiB that take these times alone and by both. @return how many were copied by both. */
static int copied_by_both(struct rondo_tensor_pace *pace, int contents, int64_t alone_ns, int64_t both_ns)
{
    int n = 0;
    for (int i = 0; i < contents; i++) {
        int both = rondo_tensor_pace_both(pace);
        rondo_tensor_pace_note(pace, both, 1 << 20, both ? both_ns : alone_ns);
        n += both;
    }
    return n;
}

static void the_faster_way_is_found(void **state)
{
    struct rondo_tensor_pace pace = { 0 };
    (void)state;
    assert_int_equal(rondo_tensor_pace_both(&pace), 1);
    rondo_tensor_pace_note(&pace, 1, 1 << 20, 900000); /* the first one takes long for other reasons */
    assert_int_equal(copied_by_both(&pace, 5, 100000, 60000), 2);
    assert_int_equal(copied_by_both(&pace, 32, 100000, 60000), 31);
    assert_true(copied_by_both(&pace, 4096, 100000, 400000) < 32); /* the publisher has got other work */
    assert_true(copied_by_both(&pace, 400, 100000, 60000) > 100);  /* it has time again */
    assert_true(copied_by_both(&pace, 256, 100000, 60000) >= 253);
}

/* Contents of 1 to 256 pages, which both ends mark. */
struct sharing {
    struct rondo_tensor_share share;
    int ended; /* atomic */
    uint8_t memory[256][4096];
};

static size_t bytes_of(uint16_t number)
{
    return 1 + (size_t)number * 7919 % sizeof(((struct sharing *)0)->memory);
}

static size_t mark_pieces(struct sharing *s, uint16_t number, int from_back)
{
    size_t all = 0, from, bytes;
    uint64_t place;
    while ((bytes = rondo_tensor_share_take(&s->share, number, bytes_of(number), from_back, &from, &place)) >
           0) {
        for (size_t at = 0; at < bytes; at += 4096) ((uint8_t *)(uintptr_t)place)[at]++;
        all += bytes;
        if (from_back) rondo_tensor_share_finish(&s->share, bytes, 0);
    }
    return all;
}

static void *help_ever(void *arg)
{
    struct sharing *s = arg;
    while (!__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE))
        (void)mark_pieces(s, rondo_tensor_share_number(&s->share), 1);
    return NULL;
}

static void every_page_of_a_shared_copy_is_taken_once(void **state)
{
    static struct sharing s;
    pthread_t other;
    (void)state;
    rondo_tensor_share_close(&s.share);
    assert_int_equal(pthread_create(&other, NULL, help_ever, &s), 0);
    for (uint16_t number = 20000; number > 0; number--) {
        size_t bytes = bytes_of(number), pages = bytes / 4096 + (bytes % 4096 > 0);
        for (size_t i = 0; i < 256; i++) s.memory[i][0] = 0;
        rondo_tensor_share_open(&s.share, number, s.memory);
        size_t mine = mark_pieces(&s, number, 0);
        while (__atomic_load_n(&s.share.finished, __ATOMIC_ACQUIRE) < bytes - mine) sched_yield();
        rondo_tensor_share_close(&s.share);
        assert_int_equal(s.share.finished, bytes - mine);
        for (size_t i = 0; i < 256; i++) assert_int_equal(s.memory[i][0], i < pages);
    }
    __atomic_store_n(&s.ended, 1, __ATOMIC_RELEASE);
    pthread_join(other, NULL);
}

/* ---- threads ---- */

struct worker {
    struct fake_rank *r;
    rondo_tensor_store *store;
    int number;
    char failure[512];
};

enum { WORKERS = 4, WORKER_STEPS = 40 };

static void worker_note(struct worker *w, const char *what)
{
    if (w->failure[0] == '\0')
        snprintf(w->failure, sizeof(w->failure), "%s: %s", what, rondo_last_error(NULL));
}

static void *work(void *arg)
{
    struct worker *w = arg;
    char mine[16], theirs[16];
    uint8_t data[3000], got[3000];
    snprintf(mine, sizeof(mine), "w%d", w->number);
    snprintf(theirs, sizeof(theirs), "w%d", (w->number + 1) % WORKERS);
    for (int step = 0; step < WORKER_STEPS; step++) {
        rondo_tensor out = tensor_of(data, sizeof(data) - (size_t)step), in = tensor_of(got, sizeof(got));
        rondo_tensor_request *sent;
        pattern(data, out.bytes, (uint64_t)(step * WORKERS + w->number));
        if (rondo_tensor_send(w->store, mine, (uint64_t)step, &out, &sent) != RONDO_SUCCESS) {
            worker_note(w, "send");
            break;
        }
        if (rondo_tensor_recv(w->store, theirs, 1 - w->r->rank, (uint64_t)step, &in, NULL) != RONDO_SUCCESS) {
            worker_note(w, "recv");
        } else if (in.bytes != out.bytes ||
                   !has_pattern(got, in.bytes, 0, (uint64_t)(step * WORKERS + (w->number + 1) % WORKERS))) {
            worker_note(w, "content");
        }
        if (rondo_tensor_wait(sent, PATIENCE_MS) != RONDO_SUCCESS) worker_note(w, "wait");
    }
    return NULL;
}

static void threads(struct fake_rank *r)
{
    struct worker w[WORKERS];
    pthread_t id[WORKERS];
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int i = 0; i < WORKERS; i++) {
        w[i] = (struct worker){ .r = r, .store = store, .number = i };
        FAKE_CHECK(r, pthread_create(&id[i], NULL, work, &w[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < WORKERS; i++)
        FAKE_CHECK(r, w[i].failure[0] == '\0', "thread %d: %s", i, w[i].failure);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

/* 4 on each of 2 ranks. */
ALL_WIRES(eight_threads_publish_and_pull, 2, threads)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pull_is_two_round_trips_at_first_and_after_a_change_else_one),
        cmocka_unit_test(deliveries_go_with_the_next_request),
#if RONDO_HAVE_VERBS
        cmocka_unit_test(a_content_is_one_write_with_the_requests_index_into_its_place),
        cmocka_unit_test(large_tensors_are_striped_over_ports_and_queue_pairs),
#endif
        cmocka_unit_test(random_tensors_arrive_in_both_orders_between_all_ranks),
        cmocka_unit_test(thousands_of_keys_travel_in_a_few_writes),
        cmocka_unit_test(slices_are_cut_at_the_publisher),
        cmocka_unit_test(packed_dead_and_empty_tensors_arrive_as_such),
        cmocka_unit_test(a_publication_serves_as_many_pulls_as_it_says),
        cmocka_unit_test(latest_is_the_highest_step_that_is_published),
        cmocka_unit_test(a_key_of_any_rank_is_found),
        cmocka_unit_test(a_publisher_is_passive),
        cmocka_unit_test(a_publisher_that_waits_copies_parts_if_it_can),
        cmocka_unit_test(every_page_of_a_shared_copy_is_taken_once),
        cmocka_unit_test(the_faster_way_is_found),
        cmocka_unit_test(eight_threads_publish_and_pull),
    };
    const char *given = getenv("SEED");
    test_seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
