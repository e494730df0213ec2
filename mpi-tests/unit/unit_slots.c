/* RONDO_MEM_LIMIT (net/transport/slots.h): which slots go, which stay, and that calls whose slots come and go
 * give right results. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/param.h"
#include "base/types.h"
#include "net/transport/slots.h"
#include "fake_ranks.h"

enum { SLOTS = 256 << 10, NLINKS = 4, RANKS = 3, COMMS = 5, NCALLS = FAKE_ROUNDS(70) };

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static struct rondo_slots_held held_now(void)
{
    struct rondo_slots_held held;
    rondo_slots_look(&held);
    return held;
}

static void nothing_is_held(void)
{
    struct rondo_slots_held held = held_now();
    assert_int_equal(held.bytes, 0);
    assert_int_equal(held.links, 0);
    assert_int_equal(held.resting, 0);
}

/* Memory that the file of a part has. */
static size_t pages_of(const struct rondo_slots *slots)
{
    struct stat st;
    assert_int_equal(fstat(slots->part.fd, &st), 0);
    return (size_t)st.st_blocks * 512;
}

/* Links with a sender each, under a limit of two. */
struct links {
    struct rondo_slots slots[NLINKS];
    uint64_t use[NLINKS];
};

static void take(struct links *l, int i)
{
    assert_int_equal(rondo_slots_take(&l->slots[i], SLOTS, RONDO_SHM_MODE_MEMFD, &l->use[i], 1),
                     RONDO_SUCCESS);
    memset(l->slots[i].part.base, 'a' + i, SLOTS);
}

static struct links *two_that_rest(void)
{
    struct links *l = calloc(1, sizeof(*l));
    assert_non_null(l);
    fake_params("MEM_LIMIT", "512K", NULL);
    for (int i = 0; i < 2; i++) {
        take(l, i);
        rondo_slots_rest(&l->slots[i], 1);
    }
    return l;
}

static void close_all(struct links *l)
{
    for (int i = 0; i < NLINKS; i++) {
        rondo_slots_close(&l->slots[i]);
    }
    nothing_is_held();
    free(l);
}

static int is_gone(const struct links *l, int i) { return l->slots[i].state == RONDO_USE_GONE; }

static void what_rests_longest_goes_first(void **state)
{
    struct links *l = two_that_rest();
    size_t before = pages_of(&l->slots[0]);
    (void)state;
    assert_int_equal(rondo_slots_begin(&l->slots[0]), RONDO_SUCCESS); /* now 1 rests longest */
    rondo_slots_rest(&l->slots[0], 1);
    take(l, 2);
    assert_false(is_gone(l, 0));
    assert_true(is_gone(l, 1));
    assert_true(pages_of(&l->slots[0]) <= before); /* one gone, one new, in one segment */
    assert_int_equal(held_now().bytes, 2 * SLOTS);
    assert_int_equal(l->slots[0].part.base[SLOTS - 1], 'a');
    take(l, 3);
    assert_true(is_gone(l, 0));
    assert_int_equal(held_now().bytes, 2 * SLOTS);
    close_all(l);
}

static void slots_in_use_stay(void **state)
{
    struct links *l = two_that_rest();
    (void)state;
    assert_true(rondo_use_begin(&l->use[0], 1));                      /* by its sender */
    assert_int_equal(rondo_slots_begin(&l->slots[1]), RONDO_SUCCESS); /* by its receiver */
    take(l, 2);
    take(l, 3);
    assert_false(is_gone(l, 0) || is_gone(l, 1));
    assert_int_equal(held_now().bytes, 4 * SLOTS);
    /* The sender of 0 ends with two slices that the receiver has not consumed. */
    rondo_use_rest(&l->use[0], 3);
    rondo_slots_rest(&l->slots[1], 1);
    assert_true(is_gone(l, 1));
    assert_false(is_gone(l, 0));
    assert_int_equal(rondo_slots_begin(&l->slots[0]), RONDO_SUCCESS);
    rondo_slots_rest(&l->slots[0], 3);
    assert_true(is_gone(l, 0));
    assert_int_equal(held_now().bytes, 2 * SLOTS); /* in use */
    close_all(l);
}

static void slots_come_again_empty(void **state)
{
    struct links *l = two_that_rest();
    uint64_t got = held_now().got;
    (void)state;
    take(l, 2);
    assert_true(is_gone(l, 0));
    for (int i = 0; i < 3; i++) {
        assert_false(rondo_use_begin(&l->use[0], 1)); /* its sender has to wait */
    }
    assert_int_equal(rondo_slots_begin(&l->slots[0]), RONDO_SUCCESS);
    assert_int_equal(held_now().got, got + 1);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(l->slots[0].part.base[i], 0);
    }
    assert_true(rondo_use_begin(&l->use[0], 1));
    assert_true(is_gone(l, 1));
    close_all(l);
}

static void without_a_limit_all_stay(void **state)
{
    struct rondo_slots slots;
    (void)state;
    fake_params("MEM_LIMIT", "1", NULL);
    assert_int_equal(rondo_slots_take(&slots, SLOTS, RONDO_SHM_MODE_MEMFD, NULL, 0), RONDO_SUCCESS);
    rondo_slots_rest(&slots, 0);
    nothing_is_held();
    assert_int_equal(rondo_slots_begin(&slots), RONDO_SUCCESS);
    rondo_slots_close(&slots);
}

/* ---- calls ---- */

static uint64_t seed;

/* Random calls and messages, on communicators in turn, each rank at its own pace. */
static void calls_in_turn(struct fake_rank *r)
{
    uint64_t state = seed, own = seed ^ (uint64_t)(r->rank + 1) * 77777;
    rondo_comm *comm[COMMS] = { r->comm };
    for (int c = 1; c < COMMS; c++) {
        FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &comm[c]));
    }
    for (int i = 0; i < NCALLS; i++) {
        struct fake_rank view = { .rank = r->rank, .nranks = r->nranks, .comm = comm[draw(&state) % COMMS] };
        struct fake_call c = { .coll = (enum fake_coll)(draw(&state) % FAKE_NUM_COLLS),
                               .type = RONDO_INT32,
                               .op = RONDO_SUM,
                               .root = (int)(draw(&state) % RANKS),
                               .count = draw(&state) % (draw(&state) % 4 == 0 ? 100000 : 600),
                               .seed = (unsigned)draw(&state) };
        if (draw(&own) % 16 == 0) {
            fake_sleep_ms(1);
        }
        fake_call(&view, c, NULL);
        FAKE_CHECK(r, view.failure[0] == '\0', "call %d: %s", i, view.failure);
    }
    for (int c = 1; c < COMMS; c++) {
        FAKE_OK(r, rondo_comm_destroy(comm[c]));
    }
}

static void run_calls(const char *algo, const char *proto, const char *limit)
{
    uint64_t gone = held_now().gone;
    seed = seed * 0x9e3779b97f4a7c15ull + 12345;
    fake_params("ALGO", algo, "PROTO", proto, "MEM_LIMIT", limit, "DIRECT", "0", NULL);
    fake_ranks(RANKS, calls_in_turn, NULL);
    nothing_is_held();
    assert_true(limit[0] == '0' ? held_now().gone == gone : held_now().gone > gone);
}

static void calls_whose_slots_go_are_right(void **state)
{
    static const char *const algos[] = { "ring", "^oneshot,twoshot,hierarchical", "^oneshot" };
    static const char *const protos[] = { "simple", "ll", "ll128" };
    static const char *const limits[] = { "1", "1M", "3M" };
    (void)state;
    for (int i = 0; i < 9; i++) {
        run_calls(algos[i / 3], protos[i % 3], limits[(i + i / 3) % 3]);
    }
    run_calls("ring", "simple", "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_rests_longest_goes_first),  cmocka_unit_test(slots_in_use_stay),
        cmocka_unit_test(slots_come_again_empty),         cmocka_unit_test(without_a_limit_all_stay),
        cmocka_unit_test(calls_whose_slots_go_are_right),
    };
    const char *given = getenv("RONDO_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : 17;
    print_message("seed %llu (RONDO_TEST_SEED)\n", (unsigned long long)seed);
    fake_watchdog(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
