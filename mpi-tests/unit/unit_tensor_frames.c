/* Frames: small contents that share writes of NICs that write into memory of the other end. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

#include "tensor/answer.h"
#include "tensor/frame.h"
#include "tensor/store.h"
#include "tensor/wire_write.h"
#include "tensor_world.h"

/* ---- bytes ---- */

static void a_frame_has_these_bytes(void **state)
{
    static const uint8_t wanted[] = {
        0, 0, 0, 63, 0, 0,  0, 5, 0,   0,   0,   2,  0, 0, 0, 8, /* bytes, number, epoch; it acknowledges */
        0, 0, 0, 7,  0, 17, 0, 3, 0,   0,   0,   0,  0, 0, 0, 9, 'a', 'b', 'c', /* TELL and step 9; 3 bytes */
        0, 0, 0, 8,  0, 2,  0, 0, 1,   2,   3,   4,  5, 6, 7, 8, /* of the same step; a checksum */
        0, 0, 0, 9,  0, 0,  0, 4, 'd', 'e', 'f', 'g'
    };
    struct rondo_tensor_content content[] = {
        { .index = 7, .epoch = 2, .flags = RONDO_TENSOR_CONTENT_TELL, .bytes = 3, .step = 9 },
        { .index = 8,
          .epoch = 2,
          .flags = RONDO_TENSOR_CONTENT_CHECKED,
          .step = 9,
          .checksum = 0x0102030405060708 },
        { .index = 9, .epoch = 2, .bytes = 4, .step = 9 },
        { .index = 10, .epoch = 3, .bytes = 1, .step = 9 }
    };
    static const char *const text[] = { "abc", "", "defg", "h" };
    uint8_t bytes[sizeof(wanted) + 12];
    const uint8_t *data;
    struct rondo_tensor_frame frame;
    struct rondo_tensor_frame_in in;
    (void)state;
    rondo_tensor_frame_begin(&frame, bytes, sizeof(bytes), 2, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(rondo_tensor_frame_add(&frame, &content[i], text[i]));
    }
    assert_false(rondo_tensor_frame_add(&frame, &content[3], text[3])); /* another epoch */
    content[3].epoch = 2;
    content[3].bytes = 5;
    assert_false(rondo_tensor_frame_add(&frame, &content[3], "12345")); /* 1 byte too many */
    frame.flags = RONDO_TENSOR_CONTENT_ACK;
    rondo_tensor_frame_end(&frame, 5);
    assert_int_equal(frame.bytes, sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));

    assert_int_equal(rondo_tensor_frame_open(&in, bytes, sizeof(bytes), 5, 0), RONDO_SUCCESS);
    assert_int_equal(in.flags, RONDO_TENSOR_CONTENT_ACK);
    for (int i = 0; i < 3; i++) {
        struct rondo_tensor_content got;
        assert_int_equal(rondo_tensor_frame_next(&in, &got, &data), RONDO_SUCCESS);
        assert_true(got.index == content[i].index && got.epoch == content[i].epoch &&
                    got.flags == content[i].flags && got.bytes == content[i].bytes &&
                    got.step == content[i].step && got.checksum == content[i].checksum);
        assert_memory_equal(data, text[i], content[i].bytes);
    }
    assert_int_equal(in.left, 0);
}

/* Contents that are alike and follow one another share a head, if the other end knows that. */
static void contents_that_are_alike_share_a_head(void **state)
{
    static const uint8_t wanted[] = {
        0,   0,   0,   57,  0,   0,   0,   5,   0,   0, 0, 2, 0,  0, 0, 0, 0,
        0,   0,   7,   0,   81,  0,   3,   0,   0,   0, 0, 0, 0,  0, 9,       /* and 2 more */
        'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 0, 0, 0, 10, 0, 0, 0, 0, /* no TELL, no bytes */
        0,   0,   0,   11,  0,   0,   0,   0
    }; /* shares no head with it */
    uint8_t bytes[2][sizeof(wanted) + 64];
    (void)state;
    for (int runs = 0; runs < 2; runs++) {
        struct rondo_tensor_frame frame;
        struct rondo_tensor_frame_in in;
        struct rondo_tensor_content got;
        const uint8_t *data;
        rondo_tensor_frame_begin(&frame, bytes[runs], sizeof(bytes[runs]), 2, runs);
        for (uint32_t i = 0; i < 5; i++) {
            const struct rondo_tensor_content content = { .index = 7 + i,
                                                          .epoch = 2,
                                                          .flags = i < 3 ? RONDO_TENSOR_CONTENT_TELL : 0,
                                                          .bytes = i < 3 ? 3 : 0,
                                                          .step = 9 };
            assert_true(rondo_tensor_frame_add(&frame, &content, "abcdefghi" + 3 * i % 9));
        }
        rondo_tensor_frame_end(&frame, 5);
        assert_int_equal(frame.bytes, sizeof(wanted) + (runs ? 0 : 16));
        assert_int_equal(rondo_tensor_frame_open(&in, bytes[runs], frame.bytes, 5, runs), RONDO_SUCCESS);
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(rondo_tensor_frame_next(&in, &got, &data), RONDO_SUCCESS);
            assert_true(got.index == 7 + i && got.bytes == (i < 3 ? 3 : 0) && got.step == 9 &&
                        got.flags == (i < 3 ? RONDO_TENSOR_CONTENT_TELL : 0) && got.epoch == 2);
            assert_memory_equal(data, "abcdefghi" + 3 * i % 9, got.bytes);
        }
        assert_int_equal(in.left, 0);
    }
    assert_memory_equal(bytes[1], wanted, sizeof(wanted));
}

/* One byte or number is wrong: each is refused, and says why. */
static void a_frame_that_breaks_a_rule_is_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
        int runs;
    } rows[] = {
        { 3, 15, "15 bytes", 0 },           { 3, 200, "200 bytes", 0 },
        { 7, 2, "frame 2, expected 1", 0 }, { 15, 1, "flags 1", 0 },
        { 23, 60, "60 bytes", 0 },          { 21, 32, "flags 32", 0 },
        { 20, 1, "flags 256", 0 },          { 3, 20, "0 bytes", 0 },
        { 21, 18, "of which", 0 },          { 21, 32, "of 10 bytes and flags 0, and 1 more, of which 10", 1 },
        { 20, 255, "and 2040 more", 1 }
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct rondo_tensor_content content = { .index = 1, .bytes = 10 };
        uint8_t bytes[64] = { 0 };
        const uint8_t *data;
        struct rondo_tensor_frame frame;
        struct rondo_tensor_frame_in in;
        rondo_tensor_frame_begin(&frame, bytes, 40, 0, rows[i].runs);
        assert_true(rondo_tensor_frame_add(&frame, &content, "0123456789"));
        rondo_tensor_frame_end(&frame, 1);
        bytes[rows[i].at] = rows[i].value;
        rondo_status status = rondo_tensor_frame_open(&in, bytes, 40, 1, rows[i].runs);
        status = status == RONDO_SUCCESS ? rondo_tensor_frame_next(&in, &content, &data) : status;
        assert_int_equal(status, RONDO_REMOTE_ERROR);
        if (strstr(rondo_error_text(), rows[i].says) == NULL) {
            fail_msg("row %zu: \"%s\" does not say \"%s\"", i, rondo_error_text(), rows[i].says);
        }
    }
    struct rondo_tensor_frame_in in;
    assert_int_equal(rondo_tensor_frame_open(&in, (const uint8_t *)"", 0, 1, 1), RONDO_REMOTE_ERROR);
}

#if RONDO_HAVE_VERBS
/* ---- writes ---- */

enum { SMALL = 64, MANY = 100 };

struct table {
    int alike; /* all have SMALL bytes, and end with the third pull, which is when they were delivered */
    uint8_t data[MANY][SMALL], got[MANY][SMALL];
    char key[MANY][16];
    rondo_tensor tensor[MANY];
    rondo_tensor_item item[MANY];
};

static size_t bytes_of(const struct table *table, int i)
{
    return table->alike ? SMALL : (size_t)(i % SMALL); /* some have none */
}

static void publish_table(struct fake_rank *r, rondo_tensor_store *store, struct table *table)
{
    for (int i = 0; i < MANY; i++) {
        rondo_tensor t = tensor_of(table->data[i], bytes_of(table, i));
        pattern(table->data[i], SMALL, (uint64_t)i);
        snprintf(table->key[i], sizeof(table->key[i]), "row/%d", i);
        FAKE_OK(r, rondo_tensor_publish(store, table->key[i], 3, &t,
                                        table->alike ? 3 : RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
}

static void pull_table(struct fake_rank *r, rondo_tensor_store *store, struct table *table)
{
    memset(table->got, 0, sizeof(table->got));
    for (int i = 0; i < MANY; i++) {
        snprintf(table->key[i], sizeof(table->key[i]), "row/%d", i);
        table->tensor[i] = tensor_of(table->got[i], SMALL);
        table->item[i] = (rondo_tensor_item){ .key = table->key[i], .step = 3, .tensor = &table->tensor[i] };
    }
    FAKE_OK(r, rondo_tensor_pull_many(store, table->item, MANY, NULL));
    for (int i = 0; i < MANY; i++) {
        const rondo_tensor *t = &table->tensor[i];
        FAKE_CHECK(r,
                   t->bytes == bytes_of(table, i) && t->step == 3 &&
                       has_pattern(table->got[i], t->bytes, 0, (uint64_t)i),
                   "row %d", i);
    }
}

/* Nothing waits to be written, and what was written was read. */
static int is_quiet(rondo_tensor_store *store)
{
    pthread_mutex_lock(&store->core->lock);
    const struct rondo_tensor_conn *conn = store->core->conn_of[0];
    int quiet = !conn->remote_busy && conn->queue_first == conn->queue_end;
    pthread_mutex_unlock(&store->core->lock);
    return quiet;
}

/* In the steady state a hundred small tensors are two writes: the requests, which are a run, and the
 * contents, which say that the requests were read. A third one, also a run, says that they were delivered, if
 * the publisher wants to know. */
static void two_writes(struct fake_rank *r)
{
    struct table *table = calloc(1, sizeof(*table));
    rondo_tensor_store *store;
    table->alike = r->arg != NULL;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        publish_table(r, store, table);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 1) {
        struct fake_write writes[FAKE_WRITES];
        int messages = 0, frames = 0, others = 0, alike = table->alike;
        size_t message_bytes = 0, frame_bytes = 0;
        pull_table(r, store, table);
        pull_table(r, store, table); /* with numbers, which the next requests are */
        UNTIL(r, store, is_quiet(store));
        (void)fake_verbs_take_writes(writes);
        pull_table(r, store, table);
        UNTIL(r, store, is_quiet(store));
        for (int i = fake_verbs_take_writes(writes) - 1; i >= 0; i--) {
            int tells = writes[i].opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
            int message = tells && writes[i].imm == RONDO_TENSOR_IMM_MESSAGE;
            int frame = tells && writes[i].imm == RONDO_TENSOR_IMM_FRAME;
            messages += message;
            message_bytes += message ? writes[i].bytes - RONDO_TENSOR_BATCH_HEAD : 0;
            frames += frame;
            frame_bytes += frame ? writes[i].bytes : 0;
            others += tells && writes[i].imm < RONDO_TENSOR_IMM_FRAME;
            others += tells && writes[i].imm == RONDO_TENSOR_IMM_ACK;
        }
        FAKE_CHECK(r, messages == 1 + alike && frames == 1 && others == alike,
                   "%d messages, %d frames, %d others", messages, frames, others);
        FAKE_CHECK(r, message_bytes == (alike ? 28 + 16 : 28), "%zu bytes", message_bytes);
        FAKE_CHECK(r, !alike || frame_bytes == RONDO_TENSOR_FRAME_START + 16 + MANY * SMALL, "%zu bytes",
                   frame_bytes);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    rondo_tensor_stats s = stats_of(store);
    FAKE_CHECK(r, s.direct == 0 && s.framed == (r->rank == 0 ? 3u * MANY : 0u), "%d framed", (int)s.framed);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    free(table);
}

static void small_contents_share_a_write(void **state)
{
    (void)state;
    for (int alike = 0; alike < 2; alike++) {
        use_wire(VERBS);
        fake_ranks(2, two_writes, alike ? &alike : NULL);
        end_wire(VERBS);
    }
}

/* Contents of all sizes, of memory that is registered and of memory that is not: some in frames, some not, in
 * any order, with more frames than the other end has room for. */
static void mixed(struct fake_rank *r)
{
    enum { N = 300, MOST = 20000 };
    int registered = *(int *)r->arg;
    uint8_t *data, *got;
    static char keys[N][16];
    rondo_tensor_store *store;
    rondo_tensor_item *items = calloc(N, sizeof(*items));
    rondo_tensor *tensors = calloc(N, sizeof(*tensors));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_alloc(store, MOST, (void **)&data));
    got = malloc((size_t)N * MOST);
    pattern(data, MOST, 1);
    for (int i = 0; r->rank == 0 && i < N; i++) {
        rondo_tensor t = tensor_of(data, (size_t)i * i % MOST);
        snprintf(keys[i], sizeof(keys[i]), "t%d", i);
        FAKE_OK(r, rondo_tensor_publish(store, keys[i], 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    for (int round = 0; r->rank == 1 && round < 3; round++) {
        for (int i = 0; i < N; i++) {
            tensors[i] = (rondo_tensor)RONDO_TENSOR_INIT;
            tensors[i].data = registered ? NULL : got + (size_t)i * MOST;
            tensors[i].bytes = registered ? 0 : MOST;
            items[i] = (rondo_tensor_item){ .key = keys[i], .step = 0, .tensor = &tensors[i] };
        }
        FAKE_OK(r, rondo_tensor_pull_many(store, items, N, NULL));
        for (int i = 0; i < N; i++) {
            FAKE_CHECK(r, tensors[i].bytes == (size_t)i * i % MOST &&
                              has_pattern(tensors[i].data, tensors[i].bytes, 0, 1));
            if (registered) FAKE_OK(r, rondo_tensor_free(store, tensors[i].data));
        }
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    unsigned framed = 0;
    for (size_t i = 0; i < N; i++) {
        framed += i * i % MOST <= (registered ? 1024 : 8192);
    }
    rondo_tensor_stats s = stats_of(store);
    FAKE_CHECK(r, s.framed == (r->rank == 0 ? 3 * framed : 0), "%d framed", (int)s.framed);
    FAKE_CHECK(r, s.direct == (r->rank == 0 ? 3 * (N - framed) : 0), "%d direct", (int)s.direct);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    free(got);
    free(items);
    free(tensors);
}

static void contents_of_all_sizes_arrive_in_frames_and_beside_them(void **state)
{
    (void)state;
    for (int registered = 0; registered < 2; registered++) {
        use_wire(VERBS);
        fake_ranks(2, mixed, &registered);
        end_wire(VERBS);
    }
    setenv("RONDO_TENSOR_CHECKSUM", "1", 1);
    use_wire(VERBS);
    fake_ranks(2, two_writes, NULL);
    end_wire(VERBS);
    set_param("RONDO_TENSOR_CHECKSUM", NULL);
}

/* The immediate data of frames is the index of no request. */
static void around(struct fake_rank *r)
{
    uint8_t data[100], got[100];
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    pattern(data, sizeof(data), 1);
    rondo_tensor t = tensor_of(data, sizeof(data));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    pthread_mutex_lock(&store->core->lock);
    store->core->last_index = RONDO_TENSOR_IMM_FRAME - 2;
    pthread_mutex_unlock(&store->core->lock);
    for (int i = 0; r->rank == 1 && i < 3; i++) {
        t = tensor_of(got, sizeof(got));
        memset(got, 0, sizeof(got));
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        FAKE_CHECK(r, has_pattern(got, sizeof(got), 0, 1));
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    pthread_mutex_lock(&store->core->lock);
    FAKE_CHECK(r, r->rank == 0 || store->core->last_index == 1, "last index %08x", store->core->last_index);
    pthread_mutex_unlock(&store->core->lock);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void indices_go_around_before_the_word_of_frames(void **state)
{
    (void)state;
    use_wire(VERBS);
    fake_ranks(2, around, NULL);
    end_wire(VERBS);
}

/* ---- ends of another version, hostile ends ---- */

struct old {
    int rank;
    uint32_t newest; /* 0: version 3, which does not know that there are others */
};

/* One end speaks a version before: 3 has no frames, 4 no numbers, 5 no runs and numbers over verbs only. */
static void old_peer(struct fake_rank *r)
{
    const struct old *old = r->arg;
    struct table *table = calloc(1, sizeof(*table));
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    pthread_mutex_lock(&store->core->lock);
    store->core->newest = r->rank == old->rank ? old->newest : RONDO_TENSOR_WIRE_VERSION;
    pthread_mutex_unlock(&store->core->lock);
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) {
        publish_table(r, store, table);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    for (int round = 0; r->rank == 1 && round < 3; round++) {
        pull_table(r, store, table);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    pthread_mutex_lock(&store->core->lock);
    unsigned version = store->core->conn_of[1 - r->rank]->version;
    size_t numbers = store->core->conn_of[1 - r->rank]->numbers.n;
    pthread_mutex_unlock(&store->core->lock);
    unsigned wanted = old->newest == 0 ? 3 : old->newest;
    FAKE_CHECK(r, version == wanted, "version %u", version);
    unsigned least = over_writes() ? RONDO_TENSOR_NUMBERS_VERSION : RONDO_TENSOR_RUNS_VERSION;
    FAKE_CHECK(r, (numbers > 0) == (r->rank == 0 && wanted >= least), "%zu", numbers);
    FAKE_CHECK(r, (stats_of(store).framed > 0) ==
                      (r->rank == 0 && wanted >= RONDO_TENSOR_FRAMES_VERSION && over_writes()));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    free(table);
}

static void an_end_of_a_version_before_gets_what_it_knows(void **state)
{
    static const uint32_t versions[] = { 0, 4, 5, 6 };
    (void)state;
    for (int wire = 0; wire < WIRES; wire++) {
        for (int i = 0; i < 2 * (int)RONDO_COUNTOF(versions); i++) {
            struct old old = { i % 2, versions[i / 2] };
            use_wire(wire);
            fake_ranks(2, old_peer, &old);
            end_wire(wire);
        }
    }
}

/* Rank 1 breaks a rule about numbers. lacks: the version of both ends has none, or no runs. */
static void bad_numbers(struct fake_rank *r)
{
    int lacks = *(int *)r->arg % 2, run = *(int *)r->arg / 2;
    rondo_tensor_store *store;
    uint8_t data[8] = { 0 };
    rondo_tensor t = tensor_of(data, sizeof(data));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    pthread_mutex_lock(&store->core->lock);
    store->core->newest = !lacks ? RONDO_TENSOR_WIRE_VERSION
                          : run  ? RONDO_TENSOR_NUMBERS_VERSION
                                 : RONDO_TENSOR_FRAMES_VERSION;
    pthread_mutex_unlock(&store->core->lock);
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    if (r->rank == 1) {
        struct rondo_tensor_message m = { .type = run ? RONDO_TENSOR_REPEAT_RUN : RONDO_TENSOR_REPEAT_REQUEST,
                                          .index = 99,
                                          .number = 999 + !run,
                                          .count = 2 };
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        pthread_mutex_lock(&store->core->lock);
        FAKE_OK(r, rondo_tensor_say(store->core->conn_of[0], &m));
        rondo_tensor_flush_all(store->core);
        pthread_mutex_unlock(&store->core->lock);
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 1, &t, NULL), RONDO_REMOTE_ERROR, "");
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) { /* the other end may have seen no more than the end of the connection */
        pthread_mutex_lock(&store->core->lock);
        const char *text = store->core->conn_of[1]->failure_text;
        FAKE_CHECK(r,
                   fake_has(text, lacks && run ? "a REPEAT_RUN, which version 5 of the protocol lacks"
                                  : lacks      ? "a REPEAT_REQUEST, which version 4 of the protocol lacks"
                                  : run        ? "number 999, which was not given"
                                               : "number 1000, which was not given"),
                   "%s", text);
        pthread_mutex_unlock(&store->core->lock);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void numbers_that_were_not_given_are_refused(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRES; wire++) {
        for (int how = 0; how < 4; how++) {
            use_wire(wire);
            fake_ranks(2, bad_numbers, &how);
            end_wire(wire);
        }
    }
}

static int all_has_been_read(rondo_tensor_store *store)
{
    pthread_mutex_lock(&store->core->lock);
    const struct rondo_tensor_conn *conn = store->core->conn_of[0];
    int all = conn->queue_first == conn->queue_end;
    pthread_mutex_unlock(&store->core->lock);
    return all && has_been_read(store);
}

/* Rank 1 asks for a tensor that nobody publishes, by runs, and takes it back in an order of its own. */
static void runs_that_wait(struct fake_rank *r)
{
    enum { RUNS = 4, COUNT = 500, N = RUNS * COUNT };
    rondo_tensor_store *store;
    uint8_t byte = 0;
    rondo_tensor t = tensor_of(&byte, 1);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    struct rondo_tensor_core *core = store->core;
    for (int part = 0; part < 2; part++) {
        if (r->rank == 1 && part == 0) {
            FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        }
        pthread_mutex_lock(&core->lock);
        for (uint32_t i = 0; r->rank == 1 && part == 0 && i < COUNT; i++) {
            struct rondo_tensor_message m = { .type = RONDO_TENSOR_NUMBERED_REQUEST,
                                              .index = 1000000 + i,
                                              .step = 1,
                                              .meta = { .type = RONDO_UINT8, .dead = 1 },
                                              .number = i,
                                              .name = "never",
                                              .name_bytes = 5 };
            FAKE_OK(r, rondo_tensor_say(core->conn_of[0], &m));
        }
        for (uint32_t i = 1; r->rank == 1 && part == 0 && i < RUNS; i++) {
            struct rondo_tensor_message m = {
                .type = RONDO_TENSOR_REPEAT_RUN, .index = 1000000 + i * COUNT, .step = 1, .count = COUNT
            };
            FAKE_OK(r, rondo_tensor_say(core->conn_of[0], &m));
        }
        for (uint32_t i = part == 1 ? 0 : N; r->rank == 1 && i < N; i++) { /* all but one, here and there */
            struct rondo_tensor_message m = { .type = RONDO_TENSOR_CANCEL,
                                              .index = 1000000 + (i * 1009 + 7) % N };
            if (m.index != 1000000 + N / 2) FAKE_OK(r, rondo_tensor_say(core->conn_of[0], &m));
        }
        rondo_tensor_flush_all(core);
        pthread_mutex_unlock(&core->lock);
        if (r->rank == 1) UNTIL(r, store, all_has_been_read(store));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        pthread_mutex_lock(&core->lock);
        uint32_t n = 0, first = part == 0 ? 0 : N / 2;
        struct rondo_tensor_key *key = NULL;
        if (r->rank == 0) FAKE_OK(r, rondo_tensor_key_get(core, "never", 5, &key));
        struct rondo_tensor_response *last = NULL, *at = key != NULL ? key->waiting->queue.first : NULL;
        for (; at != NULL; last = at, at = at->next, n++) {
            FAKE_CHECK(r, at->index == 1000000 + first + n && at->before == last);
        }
        FAKE_CHECK(r, key == NULL || (key->waiting->queue.last == last && n == (part == 0 ? N : 1)), "%u", n);
        pthread_mutex_unlock(&core->lock);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(runs_for_what_is_not_published_wait_in_order, 2, runs_that_wait)

/* A peer decides how many requests wait, and which ones end: nobody may walk along them. The one in the
 * middle leads nowhere. */
static void a_queue_is_not_walked_along(void **state)
{
    enum { N = 7 };
    struct rondo_tensor_response response[N + 1] = { 0 };
    struct rondo_tensor_queue queue = { NULL, NULL };
    (void)state;
    for (int i = 0; i < N; i++) rondo_tensor_queue_insert(&queue, &response[i], queue.last);
    response[3].next = response[3].before = (struct rondo_tensor_response *)(uintptr_t)8;
    rondo_tensor_queue_insert(&queue, &response[N], queue.last);
    rondo_tensor_queue_remove(&queue, &response[5]); /* not beside the one in the middle, */
    rondo_tensor_queue_remove(&queue, &response[N]); /* the last, */
    rondo_tensor_queue_remove(&queue, &response[0]); /* and the first */
    assert_true(queue.first == &response[1] && queue.last == &response[6]);
    assert_true(response[4].next == &response[6] && response[6].before == &response[4]);
    rondo_tensor_queue_insert(&queue, &response[0], NULL);
    assert_true(queue.first == &response[0] && response[1].before == &response[0]);
    queue = (struct rondo_tensor_queue){ NULL, NULL };
    rondo_tensor_queue_insert(&queue, &response[2], NULL);
    rondo_tensor_queue_remove(&queue, &response[2]);
    assert_true(queue.first == NULL && queue.last == NULL);
}

/* Few keys are remembered, shapes change, the same key is pulled as a whole and in parts: a number never
 * brings another tensor. */
static void numbers_change(struct fake_rank *r)
{
    enum { KEYS = 6, STEPS = 20, MOST = 5000 };
    static uint8_t data[KEYS][STEPS][MOST];
    static char keys[KEYS][8];
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int k = 0; r->rank == 0 && k < KEYS * STEPS; k++) {
        rondo_tensor t = tensor_of(data[k % KEYS][k / KEYS], (size_t)(MOST - (k / KEYS / 4) * 8 - k % KEYS));
        snprintf(keys[k % KEYS], sizeof(keys[0]), "k%d", k % KEYS);
        pattern(t.data, t.bytes, (uint64_t)k);
        FAKE_OK(r, rondo_tensor_publish(store, keys[k % KEYS], (uint64_t)(k / KEYS), &t,
                                        RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    for (int step = 0; r->rank == 1 && step < STEPS; step++) {
        for (int i = 0; i < 3 * KEYS; i++) {
            int k = i % KEYS < 4 ? i % 2 : i % KEYS, part = i % 3 == 2;
            static uint8_t got[MOST];
            char key[8];
            rondo_tensor t = tensor_of(got, sizeof(got));
            const rondo_tensor_slice slice = { RONDO_TENSOR_BYTES, 100, 50 };
            rondo_tensor_request *request;
            snprintf(key, sizeof(key), "k%d", k);
            FAKE_OK(r, rondo_tensor_pull(store, key, 0, (uint64_t)step, part ? &slice : NULL, &t, &request));
            FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
            FAKE_CHECK(r, t.bytes == (part ? 50 : (size_t)(MOST - step / 4 * 8 - k)), "%zu bytes", t.bytes);
            FAKE_CHECK(r, has_pattern(got, t.bytes, part ? 100 : 0, (uint64_t)(step * KEYS + k)));
        }
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_number_never_brings_another_tensor(void **state)
{
    (void)state;
    for (int cache = 0; cache < 2; cache++) {
        setenv("RONDO_TENSOR_CACHE", cache ? "1000" : "3", 1);
        for (int wire = 0; wire < WIRES; wire++) {
            use_wire(wire);
            fake_ranks(2, numbers_change, NULL);
            end_wire(wire);
        }
    }
    set_param("RONDO_TENSOR_CACHE", NULL);
}

/* Rank 1 asks for a large content in a frame. */
static void too_large(struct fake_rank *r)
{
    static uint8_t data[100000];
    rondo_tensor_store *store;
    rondo_tensor t = tensor_of(data, sizeof(data));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    if (r->rank == 1) {
        t = tensor_of(data, sizeof(data));
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL)); /* it is known now */
        pthread_mutex_lock(&store->core->lock);
        store->core->conn_of[0]->framed_most = sizeof(data);
        pthread_mutex_unlock(&store->core->lock);
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL), RONDO_REMOTE_ERROR,
                   "of 100000 bytes in a frame");
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_content_that_fits_in_no_frame_is_refused(void **state)
{
    (void)state;
    use_wire(VERBS);
    fake_ranks(2, too_large, NULL);
    end_wire(VERBS);
}

/* What rank 0 writes to rank 1, which waits for one small tensor (in a frame) and one large one (to a
 * place). */
struct hostile {
    const char *says; /* NULL: it is dropped, and the connection stays */
    struct rondo_tensor_content content;
    int in_frame, to_large; /* to_large: for the request of the large tensor, else of the small one */
    uint8_t at, value;      /* of a frame: one byte more is changed, if at > 0 */
    size_t bytes;           /* of a write: what is written */
    int no_note, twice;
};

enum { NO_REQUEST = 1000, LARGE = 4000 };

static const struct hostile hostile[] = {
    { NULL, { .index = NO_REQUEST, .bytes = 8 }, .in_frame = 1 },
    { NULL, { .epoch = 7, .bytes = SMALL }, .in_frame = 1 },
    { NULL, { .epoch = 7, .bytes = SMALL }, .in_frame = 1, .to_large = 1 },
    { NULL, { .epoch = 7, .bytes = LARGE }, .to_large = 1, .bytes = 8, .twice = 1 },
    { NULL, { .index = NO_REQUEST, .bytes = 8 }, .bytes = 8 },
    { "a content of 8 bytes for request", { .bytes = 8 }, .in_frame = 1 },
    { "which has 64", { .step = 3, .bytes = SMALL }, .in_frame = 1 },
    { "which was to come to a place", { .bytes = LARGE }, .in_frame = 1, .to_large = 1 },
    { "a frame that says it has", { .bytes = SMALL }, .in_frame = 1, .at = 1, .value = 0xff },
    { ", expected ", { .bytes = SMALL }, .in_frame = 1, .at = 6, .value = 2 },
    { "of 65344 bytes and flags 16, and 0 more, of which 64",
      { .bytes = SMALL },
      .in_frame = 1,
      .at = 22,
      .value = 0xff },
    { "and 1 more, of which 72", { .bytes = SMALL }, .in_frame = 1, .at = 21, .value = 32 },
    { "got an acknowledgement", { .bytes = SMALL }, .in_frame = 1, .at = 15, .value = 8 },
    { "and not the right note", { .bytes = 8 }, .bytes = 8, .no_note = 1 },
    { "and not the right note", { .bytes = 4 }, .bytes = 8 },
    { "and not the right note", { .bytes = UINT64_MAX }, .bytes = 8 },
    { "and not the right note", { .bytes = 8 }, .bytes = 0 },
    { "that was to come in a frame", { .bytes = SMALL }, .bytes = SMALL },
    { "a content of 8 bytes for request", { .bytes = 8 }, .to_large = 1, .bytes = 8 },
    { "that is no piece of the content before it",
      { .bytes = LARGE },
      .to_large = 1,
      .bytes = LARGE - 4,
      .twice = 1 },
};

static void write_hostile(struct fake_rank *r, struct rondo_tensor_conn *conn, const struct hostile *h,
                          uint32_t index)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_write_port *port = &link->port[0];
    struct rondo_tensor_content content = h->content;
    struct rondo_net_span data = { link->out + conn->core->message_bytes, port->out_region, h->bytes };
    struct rondo_net_target target = link->inbox;
    content.index = content.index == 0 ? index : content.index;
    content.step = content.step == 0 ? 1 : content.step;
    const struct rondo_tensor_note note = { .epoch = htobe32(content.epoch),
                                            .bytes = htobe64(content.bytes),
                                            .step = htobe64(content.step) };
    if (h->in_frame) {
        static const uint8_t zeros[LARGE];
        struct rondo_tensor_frame frame;
        rondo_tensor_frame_begin(&frame, data.data, link->frame_bytes, content.epoch, 1);
        FAKE_CHECK(r, rondo_tensor_frame_add(&frame, &content, zeros));
        rondo_tensor_frame_end(&frame, ++link->frames_out);
        if (h->at > 0) frame.data[h->at] = h->value;
        data.bytes = frame.bytes;
        target.address += conn->core->message_bytes +
                          port->written % RONDO_TENSOR_WRITES_IN * link->frame_bytes;
    }
    for (int i = 0; i <= h->twice; i++) {
        void *request = NULL;
        FAKE_OK(r, link->device->iwrite(port->out, &data, &target,
                                        h->in_frame ? RONDO_TENSOR_IMM_FRAME : content.index,
                                        h->in_frame || h->no_note ? NULL : &note, &request));
        FAKE_CHECK(r, request != NULL);
        port->written++;
        for (int done = 0; !done;) FAKE_OK(r, link->device->test(request, &done, NULL));
    }
}

struct hostile_job {
    const struct hostile *row;
    uint32_t index[2]; /* of the small request, and of the large one */
};

static void one_hostile(struct fake_rank *r)
{
    static uint8_t data[2][LARGE];
    uint8_t *got[2];
    static const char *const keys[] = { "small", "large" };
    static const size_t sizes[] = { SMALL, LARGE };
    struct hostile_job *job = r->arg;
    const struct hostile *h = job->row;
    rondo_tensor_store *store;
    rondo_tensor t[2];
    rondo_tensor_request *request[2];
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int i = 0; i < 2; i++) { /* registered, so that only contents of at most 1 KiB come in frames */
        FAKE_OK(r, rondo_tensor_alloc(store, LARGE, (void **)&got[i]));
        t[i] = tensor_of(r->rank == 0 ? data[i] : got[i], sizes[i]);
        if (r->rank == 0) {
            pattern(data[i], sizes[i], 1);
            FAKE_OK(r, rondo_tensor_publish(store, keys[i], 0, &t[i], RONDO_TENSOR_UNTIL_RETIRED, NULL));
        } else { /* so that sizes are known, and the next request names places */
            FAKE_OK(r, rondo_tensor_recv(store, keys[i], 0, 0, &t[i], NULL));
            FAKE_OK(r, rondo_tensor_pull(store, keys[i], 0, 1, NULL, &t[i], &request[i]));
        }
    }
    if (r->rank == 1) {
        UNTIL(r, store, has_been_read(store));
        pthread_mutex_lock(&store->core->lock);
        for (int i = 0; i < 2; i++) job->index[i] = request[i]->pull[0].index;
        pthread_mutex_unlock(&store->core->lock);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) {
        pthread_mutex_lock(&store->core->lock);
        write_hostile(r, store->core->conn_of[1], h, job->index[h->to_large]);
        pthread_mutex_unlock(&store->core->lock);
        for (int i = 0; i < 2 && h->says == NULL; i++) {
            FAKE_OK(r, rondo_tensor_publish(store, keys[i], 1, &t[i], RONDO_TENSOR_UNTIL_RETIRED, NULL));
        }
    }
    for (int i = 0; i < 2 && r->rank == 1; i++) {
        if (h->says != NULL) {
            FAKE_ERROR(r, rondo_tensor_wait(request[i], PATIENCE_MS), RONDO_REMOTE_ERROR, h->says);
        } else {
            FAKE_OK(r, rondo_tensor_wait(request[i], PATIENCE_MS));
            FAKE_CHECK(r, has_pattern(got[i], sizes[i], 0, 1) && stats_of(store).dropped == 1);
        }
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    for (int i = 0; i < 2; i++) FAKE_OK(r, rondo_tensor_free(store, got[i]));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void hostile_writes_are_refused_or_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(hostile); i++) {
        struct hostile_job job = { &hostile[i], { 0, 0 } };
        use_wire(VERBS);
        fake_ranks(2, one_hostile, &job);
        end_wire(VERBS);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_has_these_bytes),
        cmocka_unit_test(contents_that_are_alike_share_a_head),
        cmocka_unit_test(a_frame_that_breaks_a_rule_is_refused),
#if RONDO_HAVE_VERBS
        cmocka_unit_test(small_contents_share_a_write),
        cmocka_unit_test(contents_of_all_sizes_arrive_in_frames_and_beside_them),
        cmocka_unit_test(indices_go_around_before_the_word_of_frames),
        cmocka_unit_test(an_end_of_a_version_before_gets_what_it_knows),
        cmocka_unit_test(numbers_that_were_not_given_are_refused),
        cmocka_unit_test(runs_for_what_is_not_published_wait_in_order),
        cmocka_unit_test(a_queue_is_not_walked_along),
        cmocka_unit_test(a_number_never_brings_another_tensor),
        cmocka_unit_test(a_content_that_fits_in_no_frame_is_refused),
        cmocka_unit_test(hostile_writes_are_refused_or_dropped),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
