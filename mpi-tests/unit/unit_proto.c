/* The protocols: slices arrive exact, whole and never early, whatever was in the slots before and at whatever
 * step. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "kern/proto.h"

enum { GUARD = 64 };

static uint64_t seed;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state) { return mix((*state)++); }

/* Byte i of the stream that a test sends. */
static uint8_t stream_byte(uint64_t key, size_t i) { return (uint8_t)(mix(key ^ i / 8) >> i % 8 * 8); }

/* Both ends of a connection over private memory. */
struct link {
    uint8_t *memory[RONDO_NUM_PROTOS];
    struct rondo_conn_tail *tail;
    struct rondo_conn_head *head;
    struct rondo_conn tx, rx;
};

static void *aligned_zeros(size_t bytes)
{
    void *p = aligned_alloc(RONDO_CTRL_ALIGN, rondo_round_up(bytes, RONDO_CTRL_ALIGN));
    assert_non_null(p);
    return memset(p, 0, bytes);
}

static void link_open(struct link *link, uint32_t slot_bytes, uint64_t step)
{
    memset(link, 0, sizeof(*link));
    link->tail = aligned_zeros(sizeof(*link->tail));
    link->head = aligned_zeros(sizeof(*link->head));
    link->tail->tail = link->head->head = step;
    link->tx.tail = link->tail;
    link->tx.head = link->head;
    link->tx.step = link->tx.seen = step;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        link->memory[p] = aligned_zeros((size_t)RONDO_SLOTS * slot_bytes + GUARD);
        memset(link->memory[p] + (size_t)RONDO_SLOTS * slot_bytes, 0xa5, GUARD);
        link->tx.slots[p] = link->memory[p];
        link->tx.slot_bytes[p] = slot_bytes;
    }
    link->rx = link->tx;
}

/* Fill the slots as after a long life: LL's flags are those of the steps after the next cleaning, LL128's
 * those of the lap before. */
static void link_age(struct link *link)
{
    struct rondo_conn old = link->tx;
    const uint64_t lap_end = (old.step | 0x7fffffffu) + 1, now = old.step;
    for (int i = 0; i < RONDO_SLOTS; i++) {
        old.step = lap_end + (uint64_t)i;
        for (size_t u = 0; u < rondo_ll_capacity(old.slot_bytes[RONDO_PROTO_LL]) / 8; u++) {
            rondo_ll_put(&old, u, mix(u));
        }
        old.step = now + (uint64_t)i - RONDO_SLOTS;
        for (size_t u = 0; u < rondo_ll128_capacity(old.slot_bytes[RONDO_PROTO_LL128]) / 8; u++) {
            rondo_ll128_put(&old, u, mix(u));
            rondo_ll128_post(&old, u + 1);
        }
    }
}

static void link_close(struct link *link)
{
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        for (int i = 0; i < GUARD; i++) {
            assert_int_equal(link->memory[p][(size_t)RONDO_SLOTS * link->tx.slot_bytes[p] + (size_t)i], 0xa5);
        }
        free(link->memory[p]);
    }
    free(link->tail);
    free(link->head);
}

/* ---- two threads ---- */

/* What both ends know of a transfer; its slices' protocols and lengths follow from the key. */
struct transfer {
    struct link *link;
    uint64_t key;
    int proto; /* -1: drawn for each slice */
    int nslices;
    int full; /* slices of full capacity, else of any length */
};

struct slice_plan {
    enum rondo_proto proto;
    size_t bytes, off;
};

static void slice_next(const struct transfer *t, int i, struct slice_plan *slice)
{
    const uint64_t r = mix(t->key + (uint64_t)i * 7919);
    size_t capacity;
    slice->off += slice->bytes;
    slice->proto = (enum rondo_proto)(t->proto >= 0 ? t->proto : (int)(r % RONDO_NUM_PROTOS));
    capacity = rondo_proto_capacity(slice->proto, t->link->tx.slot_bytes[slice->proto]);
    slice->bytes = t->full ? capacity : 1 + (r >> 8) % capacity;
}

struct deadline {
    uint64_t rounds;
    time_t end;
};

/* @return 0: the wait has lasted too long. */
static int breathe(struct deadline *d, uint64_t r)
{
    if (++d->rounds % 64 == 0 || r % 8 == 0) {
        sched_yield();
    }
    if (d->rounds % 4096 == 0) {
        if (d->end == 0) {
            d->end = time(NULL) + 20;
        }
        return time(NULL) < d->end;
    }
    return 1;
}

static void put_words(struct rondo_conn *conn, enum rondo_proto proto, size_t unit, const uint8_t *src,
                      size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8, unit++) {
        uint64_t word = 0;
        memcpy(&word, src + i, rondo_min_size(8, bytes - i));
        rondo_proto_put(proto, conn, unit, word);
        if (proto == RONDO_PROTO_LL128 &&
            (unit % RONDO_LL128_DATA == RONDO_LL128_DATA - 1 || i + 8 >= bytes)) {
            rondo_ll128_post(conn, unit + 1);
        }
    }
}

static void *sender(void *arg)
{
    const struct transfer *t = arg;
    struct rondo_conn *conn = &t->link->tx;
    struct slice_plan slice = { 0 };
    uint64_t dice = t->key ^ 1;
    uint8_t *bytes = malloc(conn->slot_bytes[RONDO_PROTO_SIMPLE] + 8);
    for (int i = 0; bytes != NULL && i < t->nslices; i++) {
        struct deadline d = { 0 };
        uint8_t *src = bytes + draw(&dice) % 8;
        slice_next(t, i, &slice);
        for (size_t b = 0; b < slice.bytes; b++) {
            src[b] = stream_byte(t->key, slice.off + b);
        }
        while (!rondo_conn_credit(conn)) {
            if (!breathe(&d, draw(&dice))) {
                free(bytes);
                return "no credit";
            }
        }
        if (rondo_ll_clean_due(conn->step)) {
            rondo_ll_clean(conn);
        }
        rondo_store_relaxed32(&conn->tail->call[conn->step % RONDO_SLOTS],
                              rondo_call_word(conn->step, t->key));
        for (size_t at = 0; at < slice.bytes;) {
            size_t n = rondo_min_size(slice.bytes - at, 120 * (1 + draw(&dice) % 8));
            if (draw(&dice) % 2 == 0) {
                rondo_proto_put_span(slice.proto, conn, at / 8, src + at, n);
            } else {
                put_words(conn, slice.proto, at / 8, src + at, n);
            }
            at += n;
            breathe(&d, draw(&dice));
        }
        rondo_proto_post(slice.proto, conn, (slice.bytes + 7) / 8);
        rondo_conn_sent(conn);
    }
    free(bytes);
    return bytes == NULL ? "no memory" : NULL;
}

static void get_words(struct rondo_conn *conn, enum rondo_proto proto, size_t unit, uint8_t *dst,
                      size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8, unit++) {
        const uint64_t word = rondo_proto_get(proto, conn, unit);
        memcpy(dst + i, &word, rondo_min_size(8, bytes - i));
    }
}

/* @return NULL, or what is wrong with the slice. */
static const char *receive_slice(const struct transfer *t, struct rondo_conn *conn,
                                 const struct slice_plan *slice, uint8_t *dst, uint64_t *dice)
{
    struct deadline d = { 0 };
    const size_t units = (slice->bytes + 7) / 8;
    for (size_t unit = 0; unit < units;) {
        const size_t most = draw(dice) % 2 == 0 ? units - unit : 1 + draw(dice) % (units - unit);
        const size_t n = rondo_proto_wait(slice->proto, conn, unit, most);
        const size_t end = rondo_min_size(slice->bytes, 8 * (unit + n));
        if (n > most) {
            return "wait counted more than it was asked for";
        }
        if (n == 0) {
            if (!breathe(&d, draw(dice))) {
                return "no data";
            }
            continue;
        }
        if (rondo_load_relaxed32(&conn->tail->call[conn->step % RONDO_SLOTS]) !=
            rondo_call_word(conn->step, t->key)) {
            return "the call word came after the data";
        }
        if (draw(dice) % 2 == 0) {
            rondo_proto_get_span(slice->proto, conn, unit, dst + 8 * unit, end - 8 * unit);
        } else {
            get_words(conn, slice->proto, unit, dst + 8 * unit, end - 8 * unit);
        }
        unit += n;
    }
    for (size_t b = 0; b < slice->bytes; b++) {
        if (dst[b] != stream_byte(t->key, slice->off + b)) {
            return "wrong data";
        }
    }
    return NULL;
}

static void *receiver(void *arg)
{
    const struct transfer *t = arg;
    struct rondo_conn *conn = &t->link->rx;
    struct slice_plan slice = { 0 };
    uint64_t dice = t->key ^ 2;
    const char *wrong = NULL;
    uint8_t *bytes = malloc(conn->slot_bytes[RONDO_PROTO_SIMPLE] + 8);
    for (int i = 0; wrong == NULL && bytes != NULL && i < t->nslices; i++) {
        slice_next(t, i, &slice);
        wrong = receive_slice(t, conn, &slice, bytes + draw(&dice) % 8, &dice);
        rondo_conn_consumed(conn);
    }
    free(bytes);
    return bytes == NULL ? "no memory" : (void *)(uintptr_t)wrong;
}

static void run_transfer(const struct transfer *t)
{
    pthread_t tx, rx;
    void *tx_wrong, *rx_wrong;
    const uint64_t step = t->link->tx.step;
    assert_int_equal(pthread_create(&tx, NULL, sender, (void *)(uintptr_t)t), 0);
    assert_int_equal(pthread_create(&rx, NULL, receiver, (void *)(uintptr_t)t), 0);
    pthread_join(tx, &tx_wrong);
    pthread_join(rx, &rx_wrong);
    if (tx_wrong != NULL || rx_wrong != NULL) {
        fail_msg("proto %d, slots of %u bytes, first step %#llx, seed %llu: sender: %s, receiver: %s",
                 t->proto, t->link->tx.slot_bytes[0], (unsigned long long)step, (unsigned long long)seed,
                 tx_wrong ? (char *)tx_wrong : "fine", rx_wrong ? (char *)rx_wrong : "fine");
    }
    assert_true(t->link->tx.step == step + (uint64_t)t->nslices && t->link->rx.step == t->link->tx.step);
}

static const uint64_t first_steps[] = { 0, 0x7fffffffull - 12, 0xffffffffull - 12, 0x17fffffffull - 12,
                                        0x1ffffffffull - 12 };
static const uint32_t slot_sizes[] = { 128, 256, 1152, 8192 };

static void slices_arrive_exact_at_any_step_over_old_flags(void **state)
{
    (void)state;
    for (int proto = -1; proto < RONDO_NUM_PROTOS; proto++) {
        for (size_t s = 0; s < RONDO_COUNTOF(slot_sizes); s++) {
            for (size_t f = 0; f < RONDO_COUNTOF(first_steps); f++) {
                struct link link;
                struct transfer t = { .link = &link,
                                      .key = mix(seed ^ s << 8 ^ f << 16 ^ (uint64_t)(proto + 1) << 24),
                                      .proto = proto,
                                      .nslices = 48 };
                link_open(&link, slot_sizes[s], first_steps[f]);
                link_age(&link);
                run_transfer(&t);
                link_close(&link);
            }
        }
    }
}

static void one_to_three_full_slots_arrive_in_fresh_memory(void **state)
{
    (void)state;
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        for (int nslices = 1; nslices <= 3; nslices++) {
            for (size_t s = 0; s < RONDO_COUNTOF(slot_sizes); s++) {
                struct link link;
                struct transfer t = { .link = &link,
                                      .key = mix(seed + (uint64_t)nslices),
                                      .proto = proto,
                                      .nslices = nslices,
                                      .full = 1 };
                link_open(&link, slot_sizes[s], 0);
                run_transfer(&t);
                link_close(&link);
            }
        }
    }
}

/* ---- one thread ---- */

static void nothing_arrives_before_it_is_put(void **state)
{
    (void)state;
    for (size_t f = 0; f < RONDO_COUNTOF(first_steps); f++) {
        struct link link;
        link_open(&link, 512, first_steps[f]);
        link_age(&link);
        for (int i = 0; i < 40; i++) { /* one short slice in each: the lines after it keep their flags */
            const enum rondo_proto proto = (enum rondo_proto)(i % RONDO_NUM_PROTOS);
            uint64_t word = mix((uint64_t)i), got;
            if (rondo_ll_clean_due(link.tx.step)) {
                rondo_ll_clean(&link.tx);
            }
            for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
                for (size_t u = 0; u < rondo_proto_capacity((enum rondo_proto)p, 512) / 8; u++) {
                    assert_int_equal(rondo_proto_wait((enum rondo_proto)p, &link.rx, u, 1), 0);
                }
            }
            rondo_proto_put_span(proto, &link.tx, 0, &word, 5);
            rondo_proto_post(proto, &link.tx, 1);
            assert_int_equal(rondo_proto_wait(proto, &link.rx, 0, 1), 1);
            got = 0;
            rondo_proto_get_span(proto, &link.rx, 0, &got, 5);
            assert_true(got == (word & 0xffffffffffull));
            rondo_conn_sent(&link.tx);
            rondo_conn_consumed(&link.rx);
        }
        link_close(&link);
    }
}

static void a_slot_is_returned_before_it_is_rewritten(void **state)
{
    struct link link;
    (void)state;
    link_open(&link, 128, 0xfffffffcull);
    for (int i = 0; i < RONDO_SLOTS; i++) {
        assert_true(rondo_conn_credit(&link.tx));
        rondo_simple_post(&link.tx, 0);
        rondo_conn_sent(&link.tx);
    }
    assert_false(rondo_conn_credit(&link.tx));
    rondo_conn_consumed(&link.rx);
    assert_true(rondo_conn_credit(&link.tx));
    rondo_conn_sent(&link.tx);
    assert_false(rondo_conn_credit(&link.tx));
    link_close(&link);
}

static void ll_flags_repeat_only_after_a_cleaning_and_are_never_zero(void **state)
{
    uint64_t dice = seed;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        const uint64_t step = i < 5000 ? first_steps[i % 5] + (uint64_t)i / 5 : draw(&dice) >> 20;
        const uint64_t later = step + RONDO_SLOTS * (1 + (draw(&dice) % ((1ull << 31) / RONDO_SLOTS)));
        assert_true(rondo_ll_flag(step) != 0);
        assert_true(rondo_ll_flag(step) != rondo_ll_flag(later)); /* same slot, at most 2^31 steps apart */
        assert_int_equal(rondo_ll_clean_due(step),
                         (step & 0x7fffffff) >=
                             0x80000000u - RONDO_SLOTS); /* every slot once in 2^31 steps */
    }
}

static void ll128_releases_whole_lines_and_the_end_of_the_slice(void **state)
{
    struct link link;
    const uint8_t data[360] = { 1 };
    (void)state;
    link_open(&link, 512, 7);
    for (size_t u = 0; u < 15; u++) {
        assert_int_equal(rondo_ll128_wait(&link.rx, 0, 60), 0);
        rondo_ll128_put(&link.tx, u, u);
    }
    assert_int_equal(rondo_ll128_wait(&link.rx, 0, 60), 0);
    rondo_ll128_post(&link.tx, 15);
    assert_int_equal(rondo_ll128_wait(&link.rx, 0, 60), 15);
    assert_int_equal(rondo_ll128_wait(&link.rx, 14, 46), 1);
    assert_int_equal(rondo_ll128_wait(&link.rx, 0, 7), 7);
    assert_int_equal(rondo_ll128_wait(&link.rx, 15, 45), 0);
    rondo_ll128_put_span(&link.tx, 15, data, 121); /* two units of payload in the third line */
    assert_int_equal(rondo_ll128_wait(&link.rx, 3, 29), 29);
    assert_int_equal(rondo_ll128_wait(&link.rx, 30, 2), 2);
    link_close(&link);
}

static void capacities_fit_the_slot(void **state)
{
    (void)state;
    assert_int_equal(rondo_proto_capacity(RONDO_PROTO_SIMPLE, 128), 128);
    assert_int_equal(rondo_proto_capacity(RONDO_PROTO_LL, 128), 64);
    assert_int_equal(rondo_proto_capacity(RONDO_PROTO_LL128, 128), 120);
    assert_int_equal(rondo_proto_capacity(RONDO_PROTO_LL128, 16384), 15360);
    for (size_t slot = 0; slot < 600; slot++) {
        assert_int_equal(rondo_ll_capacity(slot), slot / 16 * 8);
        assert_int_equal(rondo_ll128_capacity(slot), slot / 128 * 120);
    }
}

static void spans_of_any_length_and_alignment_stay_in_bounds(void **state)
{
    uint8_t from[1100], to[1100];
    (void)state;
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = stream_byte(seed, i);
    }
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        const enum rondo_proto proto = (enum rondo_proto)p;
        const size_t capacity = rondo_proto_capacity(proto, 1152);
        struct link link;
        link_open(&link, 1152, 3);
        for (size_t bytes = 1; bytes <= capacity && bytes <= 1080; bytes += bytes < 260 ? 1 : 41) {
            const size_t mis = bytes % 9, unit0 = bytes % 4 == 0 && bytes + 104 <= capacity ? 13 : 0,
                         units = (bytes + 7) / 8;
            if (unit0 > 0) {
                put_words(&link.tx, proto, 0, from, 104);
            }
            rondo_proto_put_span(proto, &link.tx, unit0, from + mis, bytes);
            rondo_proto_post(proto, &link.tx, unit0 + units);
            assert_int_equal(rondo_proto_wait(proto, &link.rx, unit0, units), units);
            memset(to, 0x5a, sizeof(to));
            rondo_proto_get_span(proto, &link.rx, unit0, to + 9 - mis, bytes);
            assert_memory_equal(to + 9 - mis, from + mis, bytes);
            assert_int_equal(to[8 - mis], 0x5a);
            assert_int_equal(to[9 - mis + bytes], 0x5a);
            rondo_conn_sent(&link.tx);
            rondo_conn_consumed(&link.rx);
        }
        link_close(&link);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_arrive_exact_at_any_step_over_old_flags),
        cmocka_unit_test(one_to_three_full_slots_arrive_in_fresh_memory),
        cmocka_unit_test(nothing_arrives_before_it_is_put),
        cmocka_unit_test(a_slot_is_returned_before_it_is_rewritten),
        cmocka_unit_test(ll_flags_repeat_only_after_a_cleaning_and_are_never_zero),
        cmocka_unit_test(ll128_releases_whole_lines_and_the_end_of_the_slice),
        cmocka_unit_test(capacities_fit_the_slot),
        cmocka_unit_test(spans_of_any_length_and_alignment_stay_in_bounds),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu (RONDO_TEST_SEED sets it)\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
