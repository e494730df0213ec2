/*
 * Two ranks hand over the places of their mailbox (base/mailbox.h), and publish longer messages in pieces:
 * random sequences of calls with sizes around that of a place, alone, in groups and on streams, with random
 * delays. A rank that reads a place too late or writes one too early gives a wrong result sooner or later.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "fake_ranks.h"

enum { NCALLS = 250, MOST_IN_GROUP = 6 };

static size_t place; /* bytes of one place */
static uint64_t sequence;

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static size_t some_count(uint64_t *state, size_t elem)
{
    size_t near = place / elem;
    switch (draw(state) % 6) {
    case 0: return draw(state) % 20;
    case 1: return near + draw(state) % 5 - 2;
    case 2: return near / 2 + draw(state) % 5;
    case 3: return near * (1 + draw(state) % 5) + draw(state) % 130;
    case 4: return near * 17 + draw(state) % 1000;
    default: return draw(state) % (2 * near + 1);
    }
}

static struct fake_call some_call(const struct fake_rank *r, uint64_t *state)
{
    static const rondo_dtype types[] = { RONDO_UINT8, RONDO_FLOAT64, RONDO_INT32, RONDO_FLOAT32,
                                         RONDO_INT64 };
    static const rondo_op ops[] = { RONDO_SUM, RONDO_MAX, RONDO_MIN, RONDO_AVG };
    struct fake_call c = { .rank = r->rank, .nranks = r->nranks };
    c.type = types[draw(state) % RONDO_COUNTOF(types)];
    c.op = ops[draw(state) % RONDO_COUNTOF(ops)];
    c.root = (int)(draw(state) % 2);
    c.count = some_count(state, rondo_dtype_size(c.type));
    c.coll = (enum fake_coll)(draw(state) % FAKE_NUM_COLLS);
    c.in_place = (int)(draw(state) % 3);
    c.seed = (unsigned)draw(state);
    return c;
}

/* All ranks draw the same calls; each draws by itself how and when it makes them. */
static void calls_at_random(struct fake_rank *r)
{
    uint64_t state = sequence * 0x9e3779b97f4a7c15ull | 1, own = state ^ (uint64_t)(r->rank + 1) * 77777;
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    for (int i = 0, n; i < NCALLS; i += n) {
        struct fake_call c[MOST_IN_GROUP];
        struct fake_buffers b[MOST_IN_GROUP];
        uint64_t way = draw(&own) % 8;
        int grouped;
        n = draw(&state) % 6 == 0 ? 1 + (int)(draw(&state) % MOST_IN_GROUP) : 1;
        grouped = n > 1 || way == 6;
        for (int k = 0; k < n; k++) {
            c[k] = some_call(r, &state);
            fake_call_prepare(&c[k], &b[k]);
        }
        if (way == 0 && i % 16 == 0) {
            fake_sleep_ms(1);
        }
        for (uint64_t yields = way < 4 ? draw(&own) % 4 : 0; yields > 0; yields--) {
            sched_yield();
        }
        FAKE_OK(r, grouped ? rondo_group_start() : RONDO_SUCCESS);
        for (int k = 0; k < n; k++) {
            FAKE_OK(r, fake_call_issue(&c[k], &b[k], r->comm, way == 5 ? stream : NULL));
        }
        FAKE_OK(r, grouped ? rondo_group_end() : RONDO_SUCCESS);
        FAKE_OK(r, way == 5 ? rondo_stream_synchronize(stream) : RONDO_SUCCESS);
        for (int k = 0; k < n; k++) {
            const char *wrong = fake_call_check(&c[k], &b[k]);
            FAKE_CHECK(r, wrong[0] == '\0', "sequence %u, call %d: %s", (unsigned)sequence, i + k, wrong);
        }
    }
    FAKE_OK(r, rondo_stream_destroy(stream));
}

static void random_calls_are_right(const char *algo)
{
    static const char *const sizes[] = { "64", "65", "127", "1000", "4K" };
    static const size_t bytes[] = { 64, 65, 127, 1000, 4096 };
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        place = bytes[s];
        sequence++;
        fake_params("PAIR_SIZE", sizes[s], "STREAM_SIZE", s % 2 == 0 ? "8K" : "", "ALGO", algo, NULL);
        fake_ranks(2, calls_at_random, NULL);
    }
}

static void random_calls_are_right_with_the_tuners_choice(void **state)
{
    (void)state;
    random_calls_are_right("");
}

static void random_calls_are_right_through_the_mailbox(void **state)
{
    (void)state;
    random_calls_are_right("^twoshot");
    random_calls_are_right(
        "ring,oneshot;all_reduce:oneshot;all_gather:oneshot;reduce_scatter:oneshot;all_to_all:oneshot");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_are_right_with_the_tuners_choice),
        cmocka_unit_test(random_calls_are_right_through_the_mailbox),
    };
    fake_watchdog(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
