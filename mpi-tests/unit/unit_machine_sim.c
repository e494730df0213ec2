/* The simulated machine itself: what its functions promise holds under every seed, and what they do not
 * promise is broken under some. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim/machine_sim.h"
#include "kern/proto.h"

enum { WORDS = 16, SLOT_BYTES = 1152 };
/* ThreadSanitizer creates fibers slowly. */
#ifdef __SANITIZE_THREAD__
enum { SEEDS = 24 };
#else
enum { SEEDS = 120 };
#endif

static struct rondo_gpu_words host;

static void sync_block(void)
{
    struct rondo_team all = { rondo_block_tid(), rondo_block_threads(), 0 };
    rondo_team_sync(&all);
}

static struct rondo_sim_result run(const struct rondo_sim_rules *rules, void (*body)(void *, void *),
                                   void *arg, uint32_t blocks, uint32_t threads)
{
    struct rondo_sim_grid grid = { body, arg, blocks, threads, 64 };
    struct rondo_sim_result result;
    rondo_sim_run(rules, &grid, 1, &result);
    return result;
}
/* The same, and the run must end. */
static void run_well(const struct rondo_sim_rules *rules, void (*body)(void *, void *), void *arg,
                     uint32_t blocks, uint32_t threads)
{
    struct rondo_sim_result result = run(rules, body, arg, blocks, threads);
    assert_string_equal(result.why, "");
    assert_int_equal(result.end, RONDO_SIM_ENDED);
}

/* ---- fibers, barriers, warps ---- */

struct ids {
    uint32_t seen[3][96];
    int wrong;
};

static void note_ids(void *arg, void *shared)
{
    struct ids *ids = arg;
    uint32_t *once = shared;
    ids->seen[rondo_block_index()][rondo_block_tid()]++;
    ids->wrong |= rondo_block_threads() != 96 || rondo_lane() != rondo_block_tid() % 32;
    if (rondo_block_tid() == 5) {
        ids->wrong |= *once != 0xa5a5a5a5; /* memory must not start as zeroes */
        *once = rondo_block_index();
    }
    sync_block();
    ids->wrong |= *once != rondo_block_index();
}

static void threads_run_once_and_know_their_ids(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct rondo_sim_rules rules = { .seed = seed };
        struct ids ids = { .wrong = 0 };
        run_well(&rules, note_ids, &ids, 3, 96);
        assert_int_equal(ids.wrong, 0);
        for (int i = 0; i < 3 * 96; i++) {
            assert_int_equal(ids.seen[i / 96][i % 96], 1);
        }
    }
}

struct phases {
    uint64_t count[2][8]; /* per team and phase */
    int wrong;
};

/* Two teams of different sizes pass their barriers at their own pace. */
static void pass_phases(void *arg, void *shared)
{
    struct phases *p = arg;
    uint32_t tid = rondo_block_tid(), second = tid >= 32;
    struct rondo_team team = { second ? tid - 32 : tid, second ? 64 : 32, 1 + second };
    (void)shared;
    for (int i = 0; i < 8; i++) {
        p->count[second][i]++;
        rondo_team_sync(&team);
        p->wrong |= p->count[second][i] != team.nthreads;
    }
    sync_block();
    p->wrong |= p->count[!second][7] != (second ? 32 : 64);
}

static void barriers_hold_teams_together_and_apart(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct rondo_sim_rules rules = { .seed = seed };
        struct phases p = { .wrong = 0 };
        run_well(&rules, pass_phases, &p, 1, 96);
        assert_int_equal(p.wrong, 0);
    }
}

static void vote(void *arg, void *shared)
{
    int *wrong = arg;
    uint32_t lane = rondo_lane();
    (void)shared;
    for (uint32_t i = 0; i < 40; i++) {
        *wrong |= rondo_warp_all(1) != 1 || rondo_warp_all(lane != i) != (i >= 32);
        *wrong |= rondo_warp_any(0) != 0 || rondo_warp_any(lane == i) != (i < 32);
        *wrong |= rondo_warp_shuffle((uint64_t)rondo_block_tid() << 40 | i, (lane + i) % 32) !=
                  ((uint64_t)(rondo_block_tid() / 32 * 32 + (lane + i) % 32) << 40 | i);
        rondo_warp_sync();
    }
}

static void warps_vote_and_shuffle(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rondo_sim_rules rules = { .seed = seed };
        int wrong = 0;
        run_well(&rules, vote, &wrong, 2, 64);
        assert_int_equal(wrong, 0);
    }
}

/* ---- forbidden operations ---- */

static void leave_a_barrier(void *arg, void *shared)
{
    (void)arg, (void)shared;
    if (rondo_block_tid() != 33) {
        sync_block();
    }
}
static void disagree(void *arg, void *shared)
{
    struct rondo_team team = { rondo_block_tid(), rondo_block_tid() == 40 ? 32 : 64, 3 };
    (void)arg, (void)shared;
    rondo_team_sync(&team);
}
static void leave_a_vote(void *arg, void *shared)
{
    (void)arg, (void)shared;
    if (rondo_lane() != 9) {
        (void)rondo_warp_any(1);
    }
}
static void different_votes(void *arg, void *shared)
{
    (void)arg, (void)shared;
    (void)(rondo_lane() == 9 ? rondo_warp_any(1) : rondo_warp_all(1));
}
static void part_of_a_warp(void *arg, void *shared)
{
    struct rondo_team team = { 0, 48, 1 };
    (void)arg, (void)shared;
    rondo_team_sync(&team);
}
static void misaligned(void *arg, void *shared)
{
    uint64_t lo, hi;
    (void)arg;
    rondo_load_pair((rondo_word *)shared + 1, &lo, &hi);
}

static void forbidden_operations_are_reported(void **state)
{
    static const struct {
        void (*body)(void *, void *);
        const char *says;
    } row[] = {
        { leave_a_barrier, "wait at a barrier" },
        { disagree, "barrier 3 of block 0" },
        { leave_a_vote, "ended while lanes of its warp wait" },
        { different_votes, "different operations" },
        { part_of_a_warp, "barrier 1 of 48 threads" },
        { misaligned, "no multiple of 16" },
    };
    struct rondo_sim_rules rules = { .seed = 0 };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(row); i++) {
        struct rondo_sim_result result = run(&rules, row[i].body, NULL, 1, 64);
        assert_int_equal(result.end, RONDO_SIM_BROKEN);
        assert_non_null(strstr(result.why, row[i].says));
    }
    assert_int_equal(run(&rules, leave_a_vote, NULL, 1, 33).end, RONDO_SIM_BROKEN);
}

static void wait_for_ever(void *arg, void *shared)
{
    uint32_t spins = 0;
    int *left = arg;
    (void)shared;
    while (rondo_breath(&host, &spins)) {
    }
    ++*left;
}

static void a_wait_that_nothing_ends_is_abandoned(void **state)
{
    struct rondo_sim_rules rules = { .patience = 100 };
    struct rondo_sim_result result;
    int left = 0;
    (void)state;
    result = run(&rules, wait_for_ever, &left, 2, 32);
    assert_int_equal(result.end, RONDO_SIM_STUCK);
    assert_non_null(strstr(result.why, "nothing moves"));
    assert_int_equal(left, 64);
    host.abort = 1;
    rules.patience = left = 0;
    run_well(&rules, wait_for_ever, &left, 2, 32);
    assert_int_equal(left, 64);
    host.abort = 0;
}

struct ping {
    rondo_word there RONDO_ALIGNED(128), back RONDO_ALIGNED(128);
};

static void ping(void *arg, void *shared)
{
    struct ping *p = arg;
    const int first = rondo_block_index() == 0;
    const rondo_word *from = first ? &p->back : &p->there;
    uint32_t spins = 0;
    (void)shared;
    if (rondo_block_tid() != 0 || rondo_block_index() > 1) return;
    if (first) rondo_store_relaxed(&p->there, 1);
    while (rondo_load_relaxed(from) == 0 && rondo_breath(&host, &spins)) {
    }
    if (!first) rondo_store_relaxed(&p->back, 1);
}

/* The more threads, the longer chance may keep back the store of one: that is no reason to give up. */
static void a_delayed_store_ends_a_wait_at_last(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        const struct rondo_sim_rules rules = { .seed = seed, .delayed = 1, .patience = 20 };
        struct ping p = { .there = 0 };
        run_well(&rules, ping, &p, 4, 512);
    }
}

static void move_for_ever(void *arg, void *shared)
{
    (void)arg, (void)shared;
    for (;;) sync_block();
}

static void a_run_without_an_end_is_broken(void **state)
{
    const struct rondo_sim_rules rules = { .most = 5000 };
    struct rondo_sim_result result = run(&rules, move_for_ever, NULL, 1, 64);
    (void)state;
    assert_int_equal(result.end, RONDO_SIM_BROKEN);
    assert_non_null(strstr(result.why, "no end after 5000 switches"));
}

/* ---- memory ---- */

/* Block 0 writes for block 1. */
struct post {
    rondo_word data[WORDS] RONDO_ALIGNED(128);
    rondo_word flag RONDO_ALIGNED(128);
    rondo_word line[WORDS] RONDO_ALIGNED(128);
    int no_write_fence, no_read_fence, acquire, release, by_barrier;
    int wrong;
};

static void write_post(struct post *p)
{
    uint32_t tid = rondo_block_tid();
    if (p->by_barrier) {
        if (tid < WORDS) {
            rondo_store_word(&p->data[tid], tid + 1);
        }
        sync_block();
        if (tid != 17) return;
    } else {
        if (tid != 0) return;
        for (uint32_t i = 0; i < WORDS; i++) {
            rondo_store_word(&p->data[i], i + 1);
        }
    }
    if (p->release) {
        rondo_store_release(&p->flag, 1);
        return;
    }
    if (!p->no_write_fence) {
        rondo_fence();
    }
    rondo_store_relaxed(&p->flag, 1);
}

static void read_post(struct post *p)
{
    uint32_t spins = 0, tid = rondo_block_tid();
    if (!p->by_barrier && tid != 0) return;
    if (tid == 0) {
        while ((p->acquire ? rondo_load_acquire(&p->flag) : rondo_load_relaxed(&p->flag)) == 0) {
            (void)rondo_breath(&host, &spins);
        }
        if (!p->acquire && !p->no_read_fence) {
            rondo_fence();
        }
    }
    if (p->by_barrier) {
        sync_block();
        p->wrong |= tid < WORDS && rondo_load_word(&p->data[tid]) != tid + 1;
        return;
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        p->wrong |= rondo_load_word(&p->data[i]) != i + 1;
    }
}

static void pass_post(void *arg, void *shared)
{
    (void)shared;
    if (rondo_block_index() == 0) {
        write_post(arg);
    } else {
        read_post(arg);
    }
}

/* @return 1: under some of these seeds the reader saw what it should not see. */
static int goes_wrong(const struct post *want, int delayed, uint64_t seeds)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct rondo_sim_rules rules = { .seed = seed, .delayed = delayed, .whole_lines = 1 };
        struct post p = *want;
        run_well(&rules, pass_post, &p, 2, 32);
        if (p.wrong) return 1;
    }
    return 0;
}

static void fences_and_releases_order_and_nothing_else_does(void **state)
{
    static const struct {
        int right, delayed;
        struct post post;
    } row[] = {
        { 1, 1, { .acquire = 0 } },
        { 1, 1, { .acquire = 1 } },
        { 1, 1, { .release = 1 } },
        { 1, 1, { .release = 1, .acquire = 1 } },
        { 0, 1, { .no_write_fence = 1 } },
        { 0, 1, { .no_read_fence = 1 } },
        { 0, 1, { .no_write_fence = 1, .acquire = 1 } },
        { 1, 0, { .no_write_fence = 1, .no_read_fence = 1 } },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(row); i++) {
        for (int by_barrier = 0; by_barrier < 2; by_barrier++) {
            struct post p = row[i].post;
            p.by_barrier = by_barrier;
            assert_int_equal(goes_wrong(&p, row[i].delayed, row[i].right ? SEEDS : 2000), !row[i].right);
        }
    }
}

/* A warp writes a line with the same number everywhere, 8 lanes at once, again and again; another warp reads.
 */
static void pass_lines(void *arg, void *shared)
{
    struct post *p = arg;
    uint32_t lane = rondo_lane();
    (void)shared;
    for (uint64_t round = 1; round < 30; round++) {
        uint64_t lo = 0, hi = 0, first;
        rondo_warp_sync();
        if (rondo_block_index() == 0) {
            if (lane < 8) {
                rondo_store_pair(&p->line[lane * 2], round, round);
            }
            continue;
        }
        if (lane < 8) {
            rondo_load_pair(&p->line[lane * 2], &lo, &hi);
        }
        p->wrong |= lane < 8 && lo != hi ? 1 : 0;
        first = rondo_warp_shuffle(lo, 0);
        p->wrong |= lane < 8 && lo != first ? 2 : 0;
    }
}

static void lines_are_whole_only_where_the_rules_say_so(void **state)
{
    (void)state;
    for (int delayed = 0; delayed < 2; delayed++) {
        int torn[2] = { 0, 0 };
        for (int whole = 0; whole < 2; whole++) {
            for (uint64_t seed = 1; seed <= SEEDS / 2; seed++) {
                struct rondo_sim_rules rules = { .seed = seed, .delayed = delayed, .whole_lines = whole };
                struct post p = { .wrong = 0 };
                run_well(&rules, pass_lines, &p, 2, 32);
                torn[whole] |= p.wrong;
            }
        }
        assert_int_equal(torn[0], 3); /* halves of 16 bytes, lanes of a line */
        assert_int_equal(torn[1], 0);
    }
}

/* A word is never seen to go back. */
static void count_up(void *arg, void *shared)
{
    struct post *p = arg;
    uint64_t before = 0;
    (void)shared;
    if (rondo_block_tid() != 0) return;
    for (uint64_t i = 1; i < 200; i++) {
        uint64_t now;
        if (rondo_block_index() == 0) {
            rondo_store_relaxed(&p->data[i % 2], i);
            continue;
        }
        now = rondo_load_relaxed(&p->data[0]);
        p->wrong |= now < before;
        before = now;
    }
}

static void one_word_has_one_order(void **state)
{
    uint64_t delayed = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rondo_sim_rules rules = { .seed = seed, .delayed = 1 };
        struct post p = { .wrong = 0 };
        struct rondo_sim_result result = run(&rules, count_up, &p, 2, 32);
        assert_int_equal(p.wrong, 0);
        assert_int_equal(p.data[0], 198);
        delayed += result.delayed;
    }
    assert_true(delayed > SEEDS);
}

static void a_seed_repeats_its_run(void **state)
{
    struct rondo_sim_rules rules = { .seed = 7, .delayed = 1 };
    struct post first = { .by_barrier = 1 }, second = first;
    struct rondo_sim_result a = run(&rules, pass_post, &first, 2, 32),
                            b = run(&rules, pass_post, &second, 2, 32), c;
    (void)state;
    assert_int_equal(a.switches, b.switches);
    rules = (struct rondo_sim_rules){ .seed = 0 };
    memset(&second, 0, sizeof(second));
    c = run(&rules, pass_post, &second, 2, 32);
    assert_true(a.switches > c.switches);
}

static void write_post_alone(void *arg, void *shared)
{
    (void)shared;
    write_post(arg);
}
static void read_post_alone(void *arg, void *shared)
{
    (void)shared;
    read_post(arg);
}
static void *run_in_thread(void *arg)
{
    struct rondo_sim_rules rules = { .whole_lines = 1 };
    run_well(&rules, write_post_alone, arg, 1, 32);
    return NULL;
}

static void runs_in_two_os_threads_communicate(void **state)
{
    struct rondo_sim_rules rules = { .whole_lines = 1 };
    struct post p = { .by_barrier = 1, .release = 1, .acquire = 1 };
    pthread_t id;
    (void)state;
    assert_int_equal(pthread_create(&id, NULL, run_in_thread, &p), 0);
    run_well(&rules, read_post_alone, &p, 1, 32);
    pthread_join(id, NULL);
    assert_int_equal(p.wrong, 0);
}

/* ---- the protocols, a block at each end ---- */

struct pass {
    enum rondo_proto proto;
    struct rondo_conn sender,
        receiver; /* each is read by all threads of its block and changed by one between barriers */
    uint64_t in[200], out[200];
    uint32_t units, slices;
};

static void send_slices(struct pass *p)
{
    struct rondo_conn *c = &p->sender;
    uint32_t spins = 0;
    for (uint32_t s = 0; s < p->slices; s++) {
        if (rondo_block_tid() == 0) {
            while (!rondo_conn_credit(c) && rondo_breath(&host, &spins)) {
            }
            if (rondo_ll_clean_due(c->step)) rondo_ll_clean(c);
        }
        sync_block();
        for (uint32_t i = rondo_block_tid(); i < p->units; i += rondo_block_threads()) {
            rondo_proto_put(p->proto, c, i, p->in[i] + s);
        }
        sync_block();
        for (uint32_t n = (rondo_block_tid() + 1) * RONDO_LL128_DATA;
             p->proto == RONDO_PROTO_LL128 && n < p->units; n += rondo_block_threads() * RONDO_LL128_DATA) {
            rondo_proto_post(p->proto, c, n);
        }
        if (rondo_block_tid() == 0) rondo_proto_post(p->proto, c, p->units);
        sync_block();
        if (rondo_block_tid() == 0) rondo_conn_sent(c);
        sync_block();
    }
}

static void receive_slices(struct pass *p)
{
    struct rondo_conn *c = &p->receiver;
    uint32_t spins = 0;
    for (uint32_t s = 0; s < p->slices; s++) {
        if (p->proto == RONDO_PROTO_SIMPLE) {
            if (rondo_block_tid() == 0) {
                while (rondo_proto_wait(p->proto, c, 0, 1) == 0 && rondo_breath(&host, &spins)) {
                }
            }
            sync_block();
        }
        for (uint32_t i = rondo_block_tid(); i < p->units; i += rondo_block_threads()) {
            while (p->proto != RONDO_PROTO_SIMPLE && rondo_proto_wait(p->proto, c, i, 1) == 0 &&
                   rondo_breath(&host, &spins)) {
            }
            p->out[i] += rondo_proto_get(p->proto, c, i);
        }
        sync_block();
        if (rondo_block_tid() == 0) rondo_conn_consumed(c);
        sync_block();
    }
}

static void pass_slices(void *arg, void *shared)
{
    (void)shared;
    if (rondo_block_index() == 0) {
        send_slices(arg);
    } else {
        receive_slices(arg);
    }
}

static void pass_once(enum rondo_proto proto, uint64_t step, uint32_t units,
                      const struct rondo_sim_rules *rules)
{
    struct rondo_conn_tail tail = { .tail = step };
    struct rondo_conn_head head = { .head = step };
    struct pass *p = calloc(1, sizeof(*p));
    uint8_t *slots = aligned_alloc(128, RONDO_SLOTS * SLOT_BYTES * RONDO_NUM_PROTOS);
    assert_non_null(p);
    assert_non_null(slots);
    memset(slots, 0, RONDO_SLOTS * SLOT_BYTES * RONDO_NUM_PROTOS);
    p->proto = proto;
    p->units = units;
    p->slices = 11;
    for (int i = 0; i < RONDO_NUM_PROTOS; i++) {
        p->sender.slots[i] = slots + RONDO_SLOTS * SLOT_BYTES * i;
        p->sender.slot_bytes[i] = SLOT_BYTES;
    }
    p->sender.tail = &tail;
    p->sender.head = &head;
    p->sender.step = p->sender.seen = step;
    p->receiver = p->sender;
    for (uint32_t i = 0; i < units; i++) {
        p->in[i] = 0x100000001ull * (i * 77 + 1);
    }
    run_well(rules, pass_slices, p, 2, 64);
    for (uint32_t i = 0; i < units; i++) {
        assert_true(p->out[i] == p->in[i] * 11 + 55);
    }
    free(slots);
    free(p);
}

static void protocols_pass_slices_under_every_memory_order(void **state)
{
    static const uint64_t steps[] = { 0, 0x7ffffffcull, 0xfffffffaull };
    (void)state;
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        for (uint64_t seed = 0; seed < 24; seed++) {
            struct rondo_sim_rules rules = {
                .seed = seed, .delayed = seed % 2 == 1, .whole_lines = seed % 4 > 1, .patience = 2000
            };
            pass_once((enum rondo_proto)proto, steps[seed % 3], 1 + (uint32_t)(seed * 37 % 72), &rules);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_run_once_and_know_their_ids),
        cmocka_unit_test(barriers_hold_teams_together_and_apart),
        cmocka_unit_test(warps_vote_and_shuffle),
        cmocka_unit_test(forbidden_operations_are_reported),
        cmocka_unit_test(a_wait_that_nothing_ends_is_abandoned),
        cmocka_unit_test(a_delayed_store_ends_a_wait_at_last),
        cmocka_unit_test(a_run_without_an_end_is_broken),
        cmocka_unit_test(fences_and_releases_order_and_nothing_else_does),
        cmocka_unit_test(lines_are_whole_only_where_the_rules_say_so),
        cmocka_unit_test(one_word_has_one_order),
        cmocka_unit_test(a_seed_repeats_its_run),
        cmocka_unit_test(runs_in_two_os_threads_communicate),
        cmocka_unit_test(protocols_pass_slices_under_every_memory_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
