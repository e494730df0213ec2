/* The simulated machine's race check: what orders two accesses, and what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim/machine_sim.h"

enum { THREADS = 2 * RONDO_WARP, OTHER = RONDO_WARP + 8 /* a thread of the second warp */ };

/* In the grid's memory: what block 0 leaves for block 1. */
static struct {
    rondo_word data RONDO_ALIGNED(128);
    rondo_word flag RONDO_ALIGNED(128);
    rondo_word line[16] RONDO_ALIGNED(128);
    uint64_t seen;
} place;

static struct rondo_gpu_words host;

static void sync_block(void)
{
    struct rondo_team all = { rondo_block_tid(), rondo_block_threads(), 0 };
    rondo_team_sync(&all);
}

static void wait_for_flag(int acquires)
{
    uint32_t spins = 0;
    while ((acquires ? rondo_load_acquire(&place.flag) : rondo_load_relaxed(&place.flag)) == 0) {
        (void)rondo_breath(&host, &spins);
    }
}

static struct rondo_data16 sixteen(uint64_t v) { return (struct rondo_data16){ v, v }; }

/* ---- within a block ---- */

static void store_and_load(uint32_t *shared, uint32_t reader, int barrier, int syncs, int votes)
{
    const uint32_t tid = rondo_block_tid();
    if (tid == 0) shared[0] = 7;
    if (barrier) sync_block();
    if (syncs) rondo_warp_sync();
    if (votes) (void)rondo_warp_shuffle(1, (uint32_t)rondo_warp_any(1));
    if (tid == reader) shared[1] = shared[0];
}
static void barrier_orders(void *arg, void *shared) { (void)arg, store_and_load(shared, OTHER, 1, 0, 0); }
static void nothing_orders(void *arg, void *shared) { (void)arg, store_and_load(shared, OTHER, 0, 0, 0); }
static void sync_orders(void *arg, void *shared) { (void)arg, store_and_load(shared, 9, 0, 1, 0); }
static void other_warps_sync(void *arg, void *shared) { (void)arg, store_and_load(shared, OTHER, 0, 1, 0); }
static void votes_order_nothing(void *arg, void *shared) { (void)arg, store_and_load(shared, 9, 0, 0, 1); }

static void load_then_store(void *arg, void *shared)
{
    volatile uint32_t *word = shared;
    (void)arg;
    if (rondo_block_tid() == 3) word[1] = *word;
    if (rondo_block_tid() == OTHER) *word = 1;
}
/* All read; the one that then writes has waited for some of them alone. */
static void many_loads_then_store(void *arg, void *shared)
{
    volatile uint32_t *word = shared;
    (void)arg;
    if (*word != 0) {
        rondo_warp_sync();
    }
    if (rondo_block_tid() == 0) *word = 1;
}
static void each_its_byte(void *arg, void *shared)
{
    (void)arg;
    ((uint8_t *)shared)[rondo_block_tid()] = 1;
}
static void two_one_byte(void *arg, void *shared)
{
    (void)arg;
    if (rondo_block_tid() == 1) ((uint8_t *)shared)[5] = 1;
    if (rondo_block_tid() == 2) ((uint32_t *)shared)[1] = 1;
}
static void strong_together(void *arg, void *shared)
{
    (void)arg;
    rondo_store_shared32(shared, rondo_load_shared32(shared) + 1);
}
static void strong_and_plain(void *arg, void *shared)
{
    (void)arg;
    if (rondo_block_tid() == 0) *(uint32_t *)shared = 1;
    rondo_store_shared32(shared, 1);
}
static void teams_alone(void *arg, void *shared)
{
    const uint32_t tid = rondo_block_tid(), second = tid >= RONDO_WARP;
    struct rondo_team team = { tid % RONDO_WARP, RONDO_WARP, 1 + second };
    (void)arg;
    if (tid == 0) *(uint32_t *)shared = 1;
    rondo_team_sync(&team);
    if (tid == OTHER) *(uint32_t *)shared = 2;
}

/* ---- between blocks ---- */

static void write_data(int fences, int releases)
{
    if (rondo_block_tid() == 3) rondo_store_data16(&place.line, sixteen(5));
    sync_block();
    if (rondo_block_tid() != 0) return;
    if (fences) rondo_fence();
    if (releases) {
        rondo_store_release(&place.flag, 1);
    } else {
        rondo_store_relaxed(&place.flag, 1);
    }
}
static void read_data(int fences, int acquires)
{
    if (rondo_block_tid() == 0) {
        wait_for_flag(acquires);
        if (fences) rondo_fence();
    }
    sync_block();
    if (rondo_block_tid() == OTHER) place.seen = rondo_load_data16(&place.line).lo;
}
#define PASS(name, write_fences, releases, read_fences, acquires) \
    static void name(void *arg, void *shared)                     \
    {                                                             \
        (void)arg, (void)shared;                                  \
        if (rondo_block_index() == 0) {                           \
            write_data(write_fences, releases);                   \
        } else {                                                  \
            read_data(read_fences, acquires);                     \
        }                                                         \
    }
PASS(fences_order, 1, 0, 1, 0)
PASS(release_and_acquire_order, 0, 1, 0, 1)
PASS(fence_and_acquire_order, 1, 0, 0, 1)
PASS(no_release, 0, 0, 0, 1)
PASS(no_acquire, 1, 0, 0, 0)

/* Block 0 waits, and only then fences: what it stores later is not released. */
static void fence_too_early(void *arg, void *shared)
{
    (void)arg, (void)shared;
    if (rondo_block_index() != 0) {
        read_data(1, 1);
        return;
    }
    if (rondo_block_tid() != 0) return;
    rondo_fence();
    rondo_store_data16(&place.line, sixteen(5));
    rondo_store_relaxed(&place.flag, 1);
}

/* ---- bytes that are not used, values that have come back ---- */

static void part_of_a_vector(int first)
{
    if (rondo_block_index() != 0) return;
    if (rondo_block_tid() == 0) place.seen = rondo_load_part16(&place.line, (uint32_t)first, 16).hi;
    if (rondo_block_tid() == OTHER) ((uint8_t *)place.line)[7] = 1;
}
static void unused_bytes(void *arg, void *shared) { (void)arg, (void)shared, part_of_a_vector(8); }
static void used_bytes(void *arg, void *shared) { (void)arg, (void)shared, part_of_a_vector(7); }

/* Thread 0 passes on what it has loaded; the other overwrites the place when that has come. */
static void pass_on(int passes)
{
    uint32_t spins = 0;
    uint64_t lo = 0, hi;
    if (rondo_block_index() != 0) return;
    if (rondo_block_tid() == 0) {
        lo = rondo_load_data16(&place.data).lo;
        if (passes) rondo_store_pair(&place.line[0], lo, 1);
        rondo_store_relaxed(&place.flag, 1);
    }
    if (rondo_block_tid() != OTHER) return;
    wait_for_flag(0);
    do {
        rondo_load_pair(&place.line[0], &lo, &hi);
    } while (passes && hi == 0 && rondo_breath(&host, &spins));
    rondo_store_data16(&place.data, sixteen(lo));
}
static void passed_on(void *arg, void *shared) { (void)arg, (void)shared, pass_on(1); }
static void not_passed_on(void *arg, void *shared) { (void)arg, (void)shared, pass_on(0); }

/* Block 1 loads and gives the place back without a fence; block 0 overwrites it when it has the credit. */
static void give_back(int barrier)
{
    const int is_first = rondo_block_tid() == 0;
    if (rondo_block_index() == 1) {
        if (rondo_block_tid() == OTHER) place.seen = rondo_load_data16(&place.line).lo;
        if (barrier) sync_block();
        if (is_first) rondo_store_relaxed(&place.flag, 1);
        return;
    }
    if (is_first) wait_for_flag(0);
    sync_block();
    if (rondo_block_tid() == OTHER) rondo_store_data16(&place.line, sixteen(6));
}
static void credit(void *arg, void *shared) { (void)arg, (void)shared, give_back(1); }
static void credit_too_early(void *arg, void *shared) { (void)arg, (void)shared, give_back(0); }
/* A credit says nothing about stores: the data may still be under way. */
static void credit_for_data(void *arg, void *shared)
{
    (void)arg, (void)shared;
    if (rondo_block_index() == 0) {
        write_data(0, 0);
        return;
    }
    if (rondo_block_tid() == 0) wait_for_flag(0);
    sync_block();
    if (rondo_block_tid() == OTHER) rondo_store_data16(&place.line, sixteen(6));
}

/* ---- tests ---- */

#ifdef RONDO_SIM_PLAIN
enum { SEES_PLAIN = 1 };
#else
enum { SEES_PLAIN = 0 };
#endif

static struct rondo_sim_result run(void (*body)(void *, void *), uint64_t seed)
{
    const struct rondo_sim_rules rules = { .seed = seed, .delayed = seed % 2 == 1, .patience = 20000 };
    const struct rondo_sim_grid grid = { body, NULL, 2, THREADS, 64 };
    struct rondo_sim_result result;
    memset(&place, 0, sizeof place);
    rondo_sim_run(&rules, &grid, 1, &result);
    return result;
}

static const struct {
    void (*body)(void *, void *);
    int races, plain; /* plain: only where the compiler announces plain accesses */
} row[] = {
    { barrier_orders, 0, 1 },
    { nothing_orders, 1, 1 },
    { sync_orders, 0, 1 },
    { other_warps_sync, 1, 1 },
    { votes_order_nothing, 1, 1 },
    { load_then_store, 1, 1 },
    { many_loads_then_store, 1, 1 },
    { each_its_byte, 0, 1 },
    { two_one_byte, 1, 1 },
    { strong_together, 0, 0 },
    { strong_and_plain, 1, 1 },
    { teams_alone, 1, 1 },
    { fences_order, 0, 0 },
    { release_and_acquire_order, 0, 0 },
    { fence_and_acquire_order, 0, 0 },
    { no_release, 1, 0 },
    { no_acquire, 1, 0 },
    { fence_too_early, 1, 0 },
    { unused_bytes, 0, 1 },
    { used_bytes, 1, 1 },
    { passed_on, 0, 0 },
    { not_passed_on, 1, 0 },
    { credit, 0, 0 },
    { credit_too_early, 1, 0 },
    { credit_for_data, 1, 0 },
};

/* Under every seed: what is ordered never counts as a race, and a race does not depend on luck. */
static void races_are_what_nothing_orders(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(row); i++) {
        if (row[i].plain && !SEES_PLAIN) continue;
        for (uint64_t seed = 0; seed < 6; seed++) {
            const struct rondo_sim_result result = run(row[i].body, seed);
            const int raced = strstr(result.why, "a race: ") != NULL;
            if (raced != row[i].races || result.end != (raced ? RONDO_SIM_BROKEN : RONDO_SIM_ENDED)) {
                fail_msg("row %zu, seed %u: %s", i, (unsigned)seed, result.why);
            }
        }
    }
}

static void a_race_is_reported_with_its_threads_and_places(void **state)
{
    const struct rondo_sim_result result = run(no_acquire, 0);
    (void)state;
    assert_non_null(strstr(result.why, "thread 40 of block 1 of grid 0 reads 16 bytes of memory at 0x"));
    assert_non_null(strstr(result.why, "thread 3 of block 0 of grid 0 has written them ("));
    if (SEES_PLAIN) {
        const struct rondo_sim_result inner = run(nothing_orders, 0);
        assert_non_null(strstr(inner.why, "of shared memory + 0x0 ("));
    }
}

static void the_check_can_be_off(void **state)
{
    (void)state;
    rondo_sim_check_races(0);
    assert_int_equal(run(no_acquire, 0).end, RONDO_SIM_ENDED);
    rondo_sim_check_races(1);
    assert_int_equal(run(no_acquire, 0).end, RONDO_SIM_BROKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(races_are_what_nothing_orders),
        cmocka_unit_test(a_race_is_reported_with_its_threads_and_places),
        cmocka_unit_test(the_check_can_be_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
