/* The tensor protocol as bytes: every message survives, and nothing else is taken for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/log.h"
#include "tensor/arena.h"
#include "tensor/codec.h"
#include "tensor/numbers.h"

static uint64_t seed;

static uint64_t rnd(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

#define LIST_ROW(ctx, NAME, number, fields) { number, fields },
static const struct {
    int type;
    unsigned fields;
} types[] = { RONDO_TENSOR_MESSAGE_TABLE(LIST_ROW, ) };
#undef LIST_ROW

static void random_meta(struct rondo_tensor_meta *meta)
{
    memset(meta, 0, sizeof(*meta));
    meta->type = (rondo_dtype)(rnd() % RONDO_NUM_DTYPES);
    meta->ndims = (int)(rnd() % (RONDO_TENSOR_MAX_DIMS + 1));
    meta->bytes = rondo_dtype_size(meta->type);
    for (int i = 0; i < meta->ndims; i++) {
        meta->shape[i] = (int64_t)(rnd() % 9);
        meta->bytes *= (uint64_t)meta->shape[i];
    }
    meta->packed = rnd() % 4 == 0;
    meta->bytes = meta->packed ? rnd() % 100000 : meta->bytes;
    meta->dead = rnd() % 8 == 0;
    meta->bytes = meta->dead ? 0 : meta->bytes;
}

/* name and text: at least RONDO_TENSOR_MAX_KEY bytes each. */
static void random_message(struct rondo_tensor_message *m, char *name, char *text)
{
    size_t kind = rnd() % RONDO_COUNTOF(types);
    unsigned fields = types[kind].fields;
    memset(m, 0, sizeof(*m));
    m->type = (enum rondo_tensor_type)types[kind].type;
    m->flags = (uint32_t)(rnd() & RONDO_TENSOR_ALL_FLAGS);
    m->index = (uint32_t)(rnd() % ((uint64_t)RONDO_TENSOR_LAST_INDEX + 1));
    m->epoch = (uint32_t)rnd();
    if (fields & RONDO_TENSOR_F_STEP) m->step = rnd() >> 1;
    if (fields & RONDO_TENSOR_F_SLICE)
        m->slice = (rondo_tensor_slice){ (enum rondo_tensor_part)(rnd() % 3), rnd(), rnd() };
    if (fields & RONDO_TENSOR_F_PLACE) {
        m->address = rnd();
        for (int i = 0; i < RONDO_TENSOR_PORTS; i++) m->rkey[i] = (uint32_t)rnd();
    }
    if (fields & RONDO_TENSOR_F_META) random_meta(&m->meta);
    if (fields & RONDO_TENSOR_F_CHECKSUM) m->checksum = rnd();
    if (fields & RONDO_TENSOR_F_RANK) m->rank = (int32_t)rnd();
    if (fields & RONDO_TENSOR_F_NUMBER) m->number = (uint32_t)(rnd() % RONDO_TENSOR_NUMBERS);
    if (fields & RONDO_TENSOR_F_COUNT) {
        m->index %= RONDO_TENSOR_IMM_FRAME - RONDO_TENSOR_NUMBERS;
        m->count = 1 + (uint32_t)rnd() % (RONDO_TENSOR_NUMBERS - m->number);
    }
    if (fields & RONDO_TENSOR_F_STATUS) {
        m->status = RONDO_SYSTEM_ERROR;
        m->text_bytes = rnd() % (RONDO_TENSOR_MAX_TEXT + 1);
        m->text = text;
    }
    if (fields & RONDO_TENSOR_F_NAME) {
        m->name_bytes = 1 + rnd() % RONDO_TENSOR_MAX_KEY;
        m->name = name;
    }
}

static void assert_same(const struct rondo_tensor_message *a, const struct rondo_tensor_message *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->epoch, b->epoch);
    assert_true(a->step == b->step && a->address == b->address &&
                memcmp(a->rkey, b->rkey, sizeof(a->rkey)) == 0);
    assert_true(a->slice.part == b->slice.part && a->slice.first == b->slice.first &&
                a->slice.count == b->slice.count);
    assert_true(rondo_tensor_meta_same(&a->meta, &b->meta));
    assert_true(a->checksum == b->checksum && a->status == b->status && a->rank == b->rank &&
                a->number == b->number && a->count == b->count);
    assert_int_equal(a->name_bytes, b->name_bytes);
    assert_int_equal(a->text_bytes, b->text_bytes);
    assert_true(a->name_bytes == 0 || memcmp(a->name, b->name, a->name_bytes) == 0);
    assert_true(a->text_bytes == 0 || memcmp(a->text, b->text, a->text_bytes) == 0);
}

static void every_message_survives_and_every_cut_is_noticed(void **state)
{
    char name[RONDO_TENSOR_MAX_KEY], text[RONDO_TENSOR_MAX_KEY];
    uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE];
    (void)state;
    memset(name, 'k', sizeof(name));
    memset(text, 't', sizeof(text));
    for (int i = 0; i < 2000; i++) {
        struct rondo_tensor_message in, out;
        size_t n, used = 0;
        random_message(&in, name, text);
        n = rondo_tensor_encode(&in, bytes, sizeof(bytes));
        assert_true(n > 0);
        assert_int_equal(rondo_tensor_decode(bytes, n, &out, &used), RONDO_SUCCESS);
        assert_int_equal(used, n);
        assert_same(&in, &out);
        assert_int_equal(rondo_tensor_encode(&in, bytes, n - 1), 0);
        size_t cut = rnd() % n;
        assert_int_equal(rondo_tensor_decode(bytes, cut, &out, &used), RONDO_REMOTE_ERROR);
        /* A message that says it is shorter, or longer, than its fields. */
        n = rondo_tensor_encode(&in, bytes, sizeof(bytes));
        bytes[3]++;
        bytes[2] = (uint8_t)(bytes[2] + (bytes[3] == 0));
        assert_int_equal(rondo_tensor_decode(bytes, sizeof(bytes), &out, &used), RONDO_REMOTE_ERROR);
    }
}

/* The wire format, byte for byte: a change of it is a change of RONDO_TENSOR_WIRE_VERSION. */
static void a_request_has_these_bytes(void **state)
{
    static const uint8_t wanted[] = { 1,    1,    0,    81,                        /* type, flags, bytes */
                                      0,    0,    0,    7,    0,    0,    0,    2, /* index, epoch */
                                      0,    0,    0,    0,    0,    0,    0,    9, /* step */
                                      2,    0,    0,    0,    0,    0,    0,    0,    1, 0, 0, 0, 0,
                                      0,    0,    0,    3, /* rows 1 to 3 */
                                      0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 5, /* place */
                                      0,    0,    0,    6,    0,    0,    7,    1,    0, 0, 0, 0, 0,
                                      0,    0,    12,   0,    0,    0,    0,    0,    0, 0, 3, /* meta-data */
                                      0,    6,    'w',  'e',  'i',  'g',  'h',  't' };
    struct rondo_tensor_message m = {
        .type = RONDO_TENSOR_TENSOR_REQUEST,
        .flags = RONDO_TENSOR_KNOWN,
        .index = 7,
        .epoch = 2,
        .step = 9,
        .slice = { RONDO_TENSOR_ROWS, 1, 3 },
        .address = 0x1122334455667788,
        .rkey = { 5, 6 },
        .meta = { .type = RONDO_FLOAT32, .ndims = 1, .shape = { 3 }, .bytes = 12 },
        .name = "weight",
        .name_bytes = 6
    };
    uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE], batch[RONDO_TENSOR_BATCH_HEAD];
    static const uint8_t head[] = { 'R', 'T', 'N', 'S', 0, 3, 0, 0, 0, 0, 0, 97, 0, 0, 0, 3 };
    (void)state;
    assert_int_equal(rondo_tensor_encode(&m, bytes, sizeof(bytes)), sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    rondo_tensor_batch_encode(batch, 3, sizeof(batch) + sizeof(wanted), 3);
    assert_memory_equal(batch, head, sizeof(head));
}

static void a_repeated_request_has_24_bytes(void **state)
{
    static const uint8_t wanted[] = { 12, 8, 0, 24, 0, 0, 0, 7, 0, 0, 0,   2, /* flags, bytes, index, epoch */
                                      0,  0, 0, 0,  0, 0, 0, 9, 0, 0, 255, 255 }; /* step, number */
    struct rondo_tensor_message m = { .type = RONDO_TENSOR_REPEAT_REQUEST,
                                      .flags = RONDO_TENSOR_FRAMED,
                                      .index = 7,
                                      .epoch = 2,
                                      .step = 9,
                                      .number = RONDO_TENSOR_NUMBERS - 1 };
    uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE];
    size_t used;
    (void)state;
    assert_int_equal(rondo_tensor_encode(&m, bytes, sizeof(bytes)), sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    bytes[21] = 1; /* number 65536 + 65535 */
    assert_int_equal(rondo_tensor_decode(bytes, sizeof(wanted), &m, &used), RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "(REPEAT_REQUEST) has the number 131071"));
}

static void a_run_of_requests_has_28_bytes(void **state)
{
    static const uint8_t wanted[] = { 14, 8, 0, 28, 0, 0, 0,   7,
                                      0,  0, 0, 2,                    /* flags, bytes, index, epoch */
                                      0,  0, 0, 0,  0, 0, 0,   9,     /* step */
                                      0,  0, 0, 40, 0, 0, 255, 216 }; /* number, count */
    static const struct {
        uint32_t index, number, count;
        int is_right;
    } rows[] = { { 0, 0, 1, 1 },
                 { 0, 0, RONDO_TENSOR_NUMBERS, 1 },
                 { RONDO_TENSOR_IMM_FRAME - 3, 5, 3, 1 },
                 { 0, 0, 0, 0 },
                 { 0, 0, RONDO_TENSOR_NUMBERS + 1, 0 },
                 { 0, 1, RONDO_TENSOR_NUMBERS, 0 },
                 { 0, 1, UINT32_MAX, 0 },
                 { RONDO_TENSOR_IMM_FRAME - 3, 5, 4, 0 },
                 { RONDO_TENSOR_IMM_FRAME, 5, 1, 0 } };
    struct rondo_tensor_message m = { .type = RONDO_TENSOR_REPEAT_RUN,
                                      .flags = RONDO_TENSOR_FRAMED,
                                      .index = 7,
                                      .epoch = 2,
                                      .step = 9,
                                      .number = 40,
                                      .count = 2 },
                                got;
    uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE];
    size_t used;
    (void)state;
    assert_int_equal(rondo_tensor_encode(&m, bytes, sizeof(bytes)), sizeof(wanted));
    rondo_tensor_encode_count(bytes, sizeof(wanted), 65496);
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    for (size_t i = 0; i < 2 * RONDO_COUNTOF(rows); i++) {
        int delivered = i % 2, right = rows[i / 2].is_right;
        m.type = delivered ? RONDO_TENSOR_DELIVERED_RUN : RONDO_TENSOR_REPEAT_RUN;
        m.index = rows[i / 2].index;
        m.number = rows[i / 2].number;
        m.count = rows[i / 2].count;
        right |= delivered && m.count == RONDO_TENSOR_NUMBERS; /* it has no number */
        size_t n = rondo_tensor_encode(&m, bytes, sizeof(bytes));
        assert_int_equal(rondo_tensor_decode(bytes, n, &got, &used),
                         right ? RONDO_SUCCESS : RONDO_REMOTE_ERROR);
        assert_true(!right || (got.index == m.index && got.count == m.count));
        assert_true(right || strstr(rondo_error_text(), "has the count") != NULL);
    }
}

static void a_number_stands_for_the_request_that_it_was_given_to_last(void **state)
{
    struct rondo_tensor_numbers numbers = { NULL, 0 };
    struct rondo_tensor_message m = { .type = RONDO_TENSOR_NUMBERED_REQUEST,
                                      .slice = { RONDO_TENSOR_BYTES, 1, 2 },
                                      .meta = { .type = RONDO_UINT8, .ndims = 1, .shape = { 2 }, .bytes = 2 },
                                      .number = 40,
                                      .name = "first",
                                      .name_bytes = 5 },
                                got;
    struct rondo_tensor_message repeat = {
        .type = RONDO_TENSOR_REPEAT_TO_PLACE, .index = 3, .step = 8, .address = 77, .number = 40
    };
    (void)state;
    assert_int_equal(rondo_tensor_numbers_get(&numbers, &repeat, &got), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_tensor_numbers_set(&numbers, &m), RONDO_SUCCESS);
    assert_int_equal(rondo_tensor_numbers_get(&numbers, &repeat, &got), RONDO_SUCCESS);
    assert_int_equal(got.type, RONDO_TENSOR_TENSOR_REQUEST);
    assert_true(got.index == 3 && got.step == 8 && got.address == 77 && got.flags == RONDO_TENSOR_KNOWN);
    assert_true(got.slice.part == RONDO_TENSOR_BYTES && got.slice.first == 1 && got.slice.count == 2);
    assert_true(rondo_tensor_meta_same(&got.meta, &m.meta));
    assert_true(got.name_bytes == 5 && memcmp(got.name, "first", 5) == 0);
    m.name = "2nd";
    m.name_bytes = 3;
    assert_int_equal(rondo_tensor_numbers_set(&numbers, &m), RONDO_SUCCESS);
    assert_int_equal(rondo_tensor_numbers_get(&numbers, &repeat, &got), RONDO_SUCCESS);
    assert_true(got.name_bytes == 3 && memcmp(got.name, "2nd", 3) == 0);
    for (repeat.number = 0; repeat.number < 64; repeat.number++) {
        if (repeat.number != 40) {
            assert_int_equal(rondo_tensor_numbers_get(&numbers, &repeat, &got), RONDO_REMOTE_ERROR);
        }
    }
    assert_non_null(strstr(rondo_error_text(), "number 63, which was not given"));
    rondo_tensor_numbers_release(&numbers);
}

static void random_bytes_are_refused_or_survive_again(void **state)
{
    char name[RONDO_TENSOR_MAX_KEY], text[RONDO_TENSOR_MAX_KEY];
    int accepted = 0;
    (void)state;
    memset(name, 'k', sizeof(name));
    memset(text, 't', sizeof(text));
    for (int i = 0; i < 20000; i++) {
        struct rondo_tensor_message m, again;
        uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE], copy[RONDO_TENSOR_MAX_MESSAGE];
        size_t n, used = 0;
        random_message(&m, name, text);
        n = rondo_tensor_encode(&m, bytes, sizeof(bytes));
        for (uint64_t flips = 1 + rnd() % 4; flips > 0; flips--) {
            bytes[rnd() % n] = (uint8_t)rnd();
        }
        if (rondo_tensor_decode(bytes, n, &m, &used) == RONDO_SUCCESS) {
            accepted++;
            assert_true(used <= n);
            assert_int_equal(rondo_tensor_encode(&m, copy, sizeof(copy)), used);
            assert_memory_equal(copy, bytes, used);
            assert_int_equal(rondo_tensor_decode(copy, used, &again, &used), RONDO_SUCCESS);
        }
    }
    assert_true(accepted > 100);
}

static void an_error_says_which_field_is_wrong(void **state)
{
    static const struct {
        struct rondo_tensor_meta meta;
        const char *says;
    } rows[] = {
        { { .type = RONDO_FLOAT64, .ndims = 3, .shape = { 1ll << 30, 1ll << 30, 1ll << 30 } },
          "overflow at dimension 1" },
        { { .type = RONDO_FLOAT64, .ndims = 1, .shape = { INT64_MAX } }, "overflow at dimension 0" },
        { { .type = RONDO_FLOAT32, .ndims = 2, .shape = { 2, -1 } }, "dimension 1 is negative" },
        { { .type = RONDO_FLOAT32, .ndims = 1, .shape = { 2 }, .bytes = 9 }, "9 bytes, but the shape has 8" },
        { { .type = RONDO_FLOAT32, .ndims = 9 }, "9 dimensions" },
        { { .type = (rondo_dtype)99 }, "99 is not a data type" },
        { { .type = RONDO_UINT8, .ndims = 1, .shape = { 4 }, .dead = 1, .bytes = 4 }, "of a dead tensor" },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        assert_int_equal(rondo_tensor_meta_check(&rows[i].meta), RONDO_REMOTE_ERROR);
        if (strstr(rondo_error_text(), rows[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", rondo_error_text(), rows[i].says);
        }
    }
}

static void message_buffers_are_checked(void **state)
{
    uint8_t head[RONDO_TENSOR_BATCH_HEAD];
    size_t end = 0;
    (void)state;
    rondo_tensor_batch_encode(head, 3, 100, 5);
    assert_int_equal(rondo_tensor_batch_decode(head, 100, 3, 5, &end), RONDO_SUCCESS);
    assert_int_equal(end, 100);
    assert_int_equal(rondo_tensor_batch_decode(head, 99, 3, 5, &end), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_tensor_batch_decode(head, 100, 3, 6, &end), RONDO_REMOTE_ERROR); /* a replay */
    head[5]++;
    assert_int_equal(rondo_tensor_batch_decode(head, 100, 3, 5, &end), RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "version 4"));
    head[5]--;
    head[0] ^= 1;
    assert_int_equal(rondo_tensor_batch_decode(head, 100, 3, 5, &end), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_tensor_batch_decode(head, 3, 3, 5, &end), RONDO_REMOTE_ERROR);
}

static void slices_have_their_own_meta_data(void **state)
{
    struct rondo_tensor_meta whole = { .type = RONDO_FLOAT32, .ndims = 2, .shape = { 10, 3 }, .bytes = 120 },
                             part;
    uint64_t offset = 99;
    (void)state;
    assert_int_equal(
        rondo_tensor_meta_slice(&whole, &(rondo_tensor_slice){ RONDO_TENSOR_ROWS, 2, 5 }, &part, &offset),
        RONDO_SUCCESS);
    assert_true(offset == 24 && part.bytes == 60 && part.shape[0] == 5 && part.shape[1] == 3 &&
                part.type == RONDO_FLOAT32);
    assert_int_equal(
        rondo_tensor_meta_slice(&whole, &(rondo_tensor_slice){ RONDO_TENSOR_BYTES, 7, 113 }, &part, &offset),
        RONDO_SUCCESS);
    assert_true(offset == 7 && part.bytes == 113 && part.ndims == 1 && part.type == RONDO_UINT8);
    static const rondo_tensor_slice outside[] = { { RONDO_TENSOR_ROWS, 6, 5 },
                                                  { RONDO_TENSOR_ROWS, UINT64_MAX, 2 },
                                                  { RONDO_TENSOR_BYTES, 121, 0 },
                                                  { RONDO_TENSOR_BYTES, 1, UINT64_MAX } };
    for (size_t i = 0; i < RONDO_COUNTOF(outside); i++) {
        assert_int_equal(rondo_tensor_meta_slice(&whole, &outside[i], &part, &offset),
                         RONDO_INVALID_ARGUMENT);
    }
}

/* Random blocks never overlap, keep their content, and one arena is left of those that were needed. */
static void arenas_give_memory_that_nobody_else_has(void **state)
{
    enum { BLOCKS = 200 };
    struct rondo_tensor_arenas arenas = { .least = 1 << 16 };
    static struct {
        uint8_t *data;
        size_t bytes;
        uint8_t value;
    } block[BLOCKS];
    (void)state;
    for (int i = 0; i < 6000; i++) {
        size_t at = rnd() % BLOCKS;
        if (block[at].data != NULL) {
            for (size_t k = 0; k < block[at].bytes; k++) {
                assert_int_equal(block[at].data[k], block[at].value);
            }
            assert_int_equal(rondo_tensor_arenas_free(&arenas, block[at].data), 1);
            assert_int_equal(rondo_tensor_arenas_free(&arenas, block[at].data), 0);
            block[at].data = NULL;
        } else {
            void *data, *base;
            size_t size;
            block[at].bytes = rnd() % (rnd() % 16 == 0 ? 100000 : 3000);
            assert_int_equal(rondo_tensor_arenas_alloc(&arenas, block[at].bytes, &data), RONDO_SUCCESS);
            assert_int_equal((uintptr_t)data % 64, 0);
            assert_int_equal(rondo_tensor_arenas_find(&arenas, data, block[at].bytes, &base, &size), 1);
            assert_true(size >= arenas.least);
            block[at].data = data;
            block[at].value = (uint8_t)rnd();
            memset(data, block[at].value, block[at].bytes);
        }
    }
    assert_true(arenas.n > 1);
    for (int i = 0; i < BLOCKS; i++) {
        if (block[i].data != NULL) {
            assert_int_equal(rondo_tensor_arenas_free(&arenas, block[i].data), 1);
        }
    }
    assert_int_equal(arenas.n, 1);
    rondo_tensor_arenas_release(&arenas);
    assert_int_equal(arenas.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_message_survives_and_every_cut_is_noticed),
                                        cmocka_unit_test(a_request_has_these_bytes),
                                        cmocka_unit_test(a_repeated_request_has_24_bytes),
                                        cmocka_unit_test(a_run_of_requests_has_28_bytes),
                                        cmocka_unit_test(
                                            a_number_stands_for_the_request_that_it_was_given_to_last),
                                        cmocka_unit_test(random_bytes_are_refused_or_survive_again),
                                        cmocka_unit_test(an_error_says_which_field_is_wrong),
                                        cmocka_unit_test(message_buffers_are_checked),
                                        cmocka_unit_test(slices_have_their_own_meta_data),
                                        cmocka_unit_test(arenas_give_memory_that_nobody_else_has) };
    const char *given = getenv("SEED");
    seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) | 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
