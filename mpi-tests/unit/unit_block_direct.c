/* One-shot and two-shot of a block per rank and channel (kern/cuda/block_direct.h) on the simulated machine:
 * buffers that all, some or no ranks can access, successive works in one launch and in several, the order of
 * sums, calls that differ, and launches aborted in the middle of a wait. */
#define RONDO_MACHINE_SIM 1
#include "prim_world.h"
#include "coll/oneshot.h"
#include "kern/cuda/prim.h"

enum { STAGE_BYTES = 256, CHANNELS = 2, MOST_WORKS = 3, ROOT = 1, THREADS = 64 };

/* Which buffers lie in regions that all ranks can access. */
enum open { NOBODYS, EVERYBODYS, SOMEBODYS, NUM_OPEN };

struct call {
    enum rondo_coll coll;
    enum rondo_algo algo;
    rondo_dtype dtype;
    size_t count; /* of the whole buffer, or of a block */
    enum open open;
    int in_place, avg;
};

struct job {
    int n, ncalls;
    struct call call[MOST_WORKS];
    size_t mis;
    uint64_t seed;
};

struct job_data {
    struct world *w;
    struct rondo_gpu_direct *direct[WORLD_RANKS];
    struct rondo_gpu_cell *cell[WORLD_RANKS];
    uint8_t *stage[WORLD_RANKS], *slots[WORLD_RANKS];
    struct world_buffer in[MOST_WORKS][WORLD_RANKS], out[MOST_WORKS][WORLD_RANKS];
};

/* ---- the ranks' memory ---- */

static size_t slots_bytes(int n)
{
    return 2 * CHANNELS * (size_t)n * rondo_oneshot_slot_bytes(STAGE_BYTES, (size_t)n);
}

static void make_memory(const struct job *j, struct job_data *d)
{
    for (int r = 0; r < j->n; r++) {
        d->cell[r] = world_zeroed(sizeof(struct rondo_gpu_cell) * CHANNELS * (size_t)j->n);
        d->stage[r] = world_zeroed(2 * STAGE_BYTES * CHANNELS);
        d->slots[r] = world_zeroed(slots_bytes(j->n));
        d->direct[r] = world_zeroed(sizeof(*d->direct[r]));
    }
    for (int r = 0; r < j->n; r++) {
        struct rondo_gpu_reach *reach = &d->direct[r]->reach;
        *reach = (struct rondo_gpu_reach){ .nranks = (uint32_t)j->n,
                                           .index = (uint32_t)r,
                                           .stage_bytes = STAGE_BYTES,
                                           .slot_bytes = rondo_oneshot_slot_bytes(STAGE_BYTES,
                                                                                  (size_t)j->n) };
        memcpy(reach->cell, d->cell, sizeof(d->cell));
        memcpy(reach->stage, d->stage, sizeof(d->stage));
        memcpy(reach->slots, d->slots, sizeof(d->slots));
    }
}

/* Region k of a rank is a buffer, which all ranks have mapped at its address. */
static uint8_t put_region(struct rondo_gpu_direct *direct, int k, const struct world_buffer *b, int open)
{
    struct rondo_gpu_region *region = &direct->region[k];
    *region = (struct rondo_gpu_region){ .open = (uint64_t)open,
                                         .base = (uint64_t)(uintptr_t)b->data,
                                         .bytes = b->bytes };
    for (int r = 0; r < RONDO_DIRECT_RANKS; r++) {
        region->at[r] = region->base;
    }
    return (uint8_t)k;
}

static void put_call(const struct job *j, struct job_data *d, int k, int r)
{
    const struct call *c = &j->call[k];
    const size_t size = rondo_dtype_size(c->dtype), line = RONDO_CACHE_LINE / size;
    const int open = c->open == EVERYBODYS || (c->open == SOMEBODYS && r != (int)(j->seed % (uint64_t)j->n));
    struct rondo_launch *launch = &d->w->rank[r].launch;
    const uint8_t in_region = put_region(d->direct[r], 1 + 2 * k, &d->in[k][r], open);
    const uint8_t out_region = put_region(d->direct[r], 2 + 2 * k, c->in_place ? &d->in[k][r] : &d->out[k][r],
                                          open);
    const size_t part = rondo_round_up((c->count + CHANNELS - 1) / CHANNELS, line);
    for (int channel = 0; channel < CHANNELS; channel++) {
        struct rondo_work *w = &launch->inline_works[channel * j->ncalls + k];
        *w = (struct rondo_work){ .coll = (uint8_t)c->coll,
                                  .algo = (uint8_t)c->algo,
                                  .proto = RONDO_PROTO_SIMPLE,
                                  .dtype = (uint8_t)c->dtype,
                                  .reduce = RONDO_REDUCE_SUM,
                                  .divide = (uint8_t)c->avg,
                                  .elem_bytes = (uint8_t)size,
                                  .in_region = in_region,
                                  .out_region = out_region,
                                  .call_word = rondo_call_word((uint64_t)k,
                                                               c->count * 31 + (uint64_t)c->coll),
                                  .channel = (uint32_t)channel,
                                  .in = d->in[k][r].data,
                                  .out = c->in_place ? d->in[k][r].data : d->out[k][r].data,
                                  .block = c->count,
                                  .seat = { .index = r, .nranks = j->n, .root = ROOT % j->n, .parent = -1 } };
        w->off = rondo_min_size(part * (size_t)channel, c->count);
        w->len = rondo_min_size(part, c->count - w->off);
        w->chunk = rondo_round_up((w->len + (size_t)j->n - 1) / (size_t)j->n, line);
        if (c->coll == RONDO_COLL_ALL_GATHER || c->coll == RONDO_COLL_REDUCE_SCATTER) {
            w->chunk = rondo_round_up(w->len, line);
        }
        w->chunk = rondo_max_size(w->chunk, line);
        launch->first[channel + 1] = (uint16_t)((channel + 1) * j->ncalls);
    }
}

static void make_job(const struct job *j, struct job_data *d)
{
    memset(d, 0, sizeof(*d));
    make_memory(j, d);
    d->w = world_new(j->n, 0, 128);
    for (int r = 0; r < j->n; r++) {
        d->w->rank[r].launch.direct = d->direct[r];
        d->w->rank[r].launch.nblocks = CHANNELS;
        for (int k = 0; k < j->ncalls; k++) {
            const struct world_spec spec = WORLD_SPEC(j, k, ROOT);
            world_buffers_new(&spec, r, &d->in[k][r], &d->out[k][r]);
            put_call(j, d, k, r);
        }
    }
}

static void check_job(const struct job *j, const struct job_data *d)
{
    for (int k = 0; k < j->ncalls; k++) {
        const struct world_spec spec = WORLD_SPEC(j, k, ROOT);
        for (int r = 0; r < j->n; r++) {
            world_buffers_check(&spec, r, &d->in[k][r], &d->out[k][r]);
        }
    }
}

static void free_job(const struct job *j, struct job_data *d)
{
    for (int r = 0; r < j->n; r++) {
        for (int k = 0; k < j->ncalls; k++) {
            world_buffer_free(&d->in[k][r]);
            world_buffer_free(&d->out[k][r]);
        }
        free(d->cell[r]);
        free(d->stage[r]);
        free(d->slots[r]);
        free(d->direct[r]);
    }
    world_free(d->w);
}

static void run_well(const struct job *j, const struct job_data *d, uint64_t seed)
{
    const struct rondo_sim_rules rules = world_rules(seed, RONDO_PROTO_SIMPLE);
    struct rondo_sim_result result = world_run(d->w, &rules, THREADS);
    assert_string_equal(result.why, "");
    assert_int_equal(result.end, RONDO_SIM_ENDED);
    for (int r = 0; r < j->n; r++) {
        assert_int_equal(d->w->rank[r].words.fault, RONDO_GPU_FINE);
        for (int b = 0; b < CHANNELS; b++) {
            assert_true(d->w->rank[r].words.block[b].ended == d->w->rank[r].launch.serial);
            assert_true(d->direct[r]->channel[b].met == d->direct[0]->channel[b].met);
            assert_true(d->direct[r]->channel[b].shots == d->direct[0]->channel[b].shots);
        }
    }
}

static void try_job(const struct job *j)
{
    struct job_data d;
    if (getenv("RONDO_TEST_VERBOSE") != NULL) {
        print_message("%d ranks, coll %d algo %d dtype %d count %zu open %d in place %d, %d calls, mis %zu, "
                      "seed %llu\n",
                      j->n, (int)j->call[0].coll, (int)j->call[0].algo, (int)j->call[0].dtype,
                      j->call[0].count, (int)j->call[0].open, j->call[0].in_place, j->ncalls, j->mis,
                      (unsigned long long)j->seed);
    }
    make_job(j, &d);
    run_well(j, &d, j->seed);
    check_job(j, &d);
    free_job(j, &d);
}

/* ---- tests ---- */

static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_REDUCE, RONDO_COLL_BROADCAST,
                                         RONDO_COLL_ALL_GATHER, RONDO_COLL_REDUCE_SCATTER };
static const enum rondo_algo algos[] = { RONDO_ALGO_TWOSHOT, RONDO_ALGO_ONESHOT };

static struct job one_call(int n, enum rondo_coll coll, enum rondo_algo algo, enum open open, size_t count,
                           uint64_t seed)
{
    const int whole = coll == RONDO_COLL_ALL_REDUCE || coll == RONDO_COLL_BROADCAST;
    return (struct job){ .n = n,
                         .ncalls = 1,
                         .call[0] = { .coll = coll,
                                      .algo = algo,
                                      .dtype = RONDO_INT32,
                                      .count = count,
                                      .open = open,
                                      .in_place = whole && seed % 3 == 2 },
                         .mis = seed % 5,
                         .seed = seed };
}

static void every_collective_is_right_on_two_to_five_ranks(void **state)
{
    static const size_t counts[] = { 1, 3, 31, 64, 125, 331, 700 };
    uint64_t seed = 0;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(colls); i++) {
        for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
            for (int open = 0; open < NUM_OPEN; open++) {
                for (int n = 2; n <= 5; n++, seed++) {
                    const struct job j = one_call(n, colls[i], algos[a], (enum open)open,
                                                  counts[seed * 5 % RONDO_COUNTOF(counts)], seed);
                    try_job(&j);
                }
            }
        }
    }
}

/* Up to eight ranks, in place and not: one byte, just below, at and above a slot's room, and several. */
static void one_shot_sums_are_right_around_a_slots_room(void **state)
{
    uint64_t seed = 0;
    (void)state;
    for (int n = 2; n <= WORLD_RANKS; n++) {
        const size_t room = rondo_oneshot_slot_room(rondo_oneshot_slot_bytes(STAGE_BYTES, (size_t)n)),
                     counts[] = { 1, 7, room - 1, room, room + 1, 3 * room + 5 };
        for (size_t i = 0; i < RONDO_COUNTOF(counts); i++, seed++) {
            struct job j = one_call(n, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, NOBODYS,
                                    counts[i] * (seed % 2 == 0 ? 1 : 2), seed);
            j.call[0].dtype = RONDO_UINT8;
            j.call[0].in_place = (int)(seed / 2 % 2);
            try_job(&j);
        }
    }
}

static void every_type_is_averaged(void **state)
{
    uint64_t seed = 0;
    (void)state;
    for (int dtype = 0; dtype < RONDO_DEVICE_DTYPES; dtype++) {
        for (int open = 0; open < 2; open++, seed++) {
            struct job j = one_call(3, RONDO_COLL_ALL_REDUCE, algos[seed / 2 % 2], (enum open)open, 77, seed);
            j.call[0].dtype = (rondo_dtype)dtype;
            j.call[0].avg = seed % 2 == 0;
            try_job(&j);
        }
    }
}

/* Staging buffers are used in turn by all kinds of works, and no rank overtakes another. */
static void successive_works_do_not_mix(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 48; seed++) {
        struct job j = one_call(2 + (int)(seed % 3), RONDO_COLL_ALL_REDUCE, algos[seed % 2],
                                (enum open)(seed / 2 % NUM_OPEN), 150, seed);
        struct job_data d;
        j.ncalls = 3;
        j.call[1] = (struct call){ RONDO_COLL_REDUCE_SCATTER,
                                   algos[seed / 6 % 2],
                                   RONDO_INT32,
                                   33,
                                   (enum open)(seed / 4 % NUM_OPEN),
                                   0,
                                   0 };
        j.call[2] =
            (struct call){ RONDO_COLL_ALL_REDUCE, algos[seed / 12 % 2], RONDO_INT32, 5, NOBODYS, 0, 0 };
        make_job(&j, &d);
        run_well(&j, &d, seed);
        check_job(&j, &d);
        for (int r = 0; r < j.n; r++) { /* once more, with the counts that the first launch left */
            memset(d.out[2][r].data, 0, d.out[2][r].bytes);
            d.w->rank[r].launch.serial++;
            for (int channel = 0; channel < CHANNELS; channel++) {
                d.w->rank[r].launch.inline_works[channel] = d.w->rank[r].launch.inline_works[3 * channel + 2];
                d.w->rank[r].launch.first[channel + 1] = (uint16_t)(channel + 1);
            }
        }
        run_well(&j, &d, seed + 1);
        check_job(&j, &d);
        free_job(&j, &d);
    }
}

/* Words like those that a slot's lines had 2^32 windows ago: they were zeroed before the flags come again. */
static void old_flags_are_gone_when_they_come_again(void **state)
{
    static const uint64_t begins[] = { 0x100000000ull, 0x80000000ull };
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct job j = one_call(2 + (int)(seed % 3), RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, NOBODYS,
                                120 + 40 * (seed % 2), seed);
        const uint64_t begin = begins[seed / 2 % 2];
        struct job_data d;
        j.ncalls = 3;
        j.call[1] = j.call[2] = j.call[0];
        j.call[1].count = 3; /* most lines of its slots stay as they are */
        make_job(&j, &d);
        for (int r = 0; r < j.n; r++) {
            uint64_t *word = (uint64_t *)(void *)d.slots[r];
            const size_t slot = rondo_oneshot_slot_bytes(STAGE_BYTES, (size_t)j.n) / 8;
            for (size_t i = 0; i < slots_bytes(j.n) / 8; i++) { /* every window writes a slot's first line */
                const uint64_t which = i / slot / (size_t)j.n % 2;
                word[i] = i % slot < 2 ? 0 : rondo_ll_flag(begin + which + i / 2 % 3 * 2) | 0xbadbad;
            }
            for (int channel = 0; channel < CHANNELS; channel++) {
                d.direct[r]->channel[channel].shots = begin - 2 - seed / 4 % 2 * 2;
            }
        }
        run_well(&j, &d, seed);
        check_job(&j, &d);
        free_job(&j, &d);
    }
}

/* Floats that show the order; the bits must not depend on how buffers are accessed. */
static void sums_are_in_rank_order(void **state)
{
    enum { N = 5, COUNT = 300 };
    (void)state;
    for (uint64_t seed = 1; seed < 7; seed++) {
        struct job j = one_call(N, RONDO_COLL_ALL_REDUCE, algos[seed % 2],
                                seed % 3 == 0 ? EVERYBODYS : NOBODYS, COUNT, seed);
        struct job_data d;
        float want[COUNT];
        uint64_t random = 99;
        j.call[0].dtype = RONDO_FLOAT32;
        j.call[0].in_place = 0;
        make_job(&j, &d);
        for (int r = 0; r < N; r++) {
            float *in = (float *)(void *)d.in[0][r].data;
            for (int i = 0; i < COUNT; i++) {
                const float x = (float)(world_random(&random) % 1000) * (i % 2 == 0 ? 1e-3f : 1e5f);
                in[i] = x;
                want[i] = r == 0 ? x : want[i] + x;
            }
        }
        run_well(&j, &d, seed);
        for (int r = 0; r < N; r++) {
            assert_memory_equal(d.out[0][r].data, want, sizeof(want));
        }
        free_job(&j, &d);
    }
}

static void inputs_are_premultiplied_before_they_are_sent(void **state)
{
    struct job j = one_call(3, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, NOBODYS, 200, 4);
    struct job_data d;
    (void)state;
    make_job(&j, &d);
    for (int r = 0; r < j.n; r++) {
        for (int channel = 0; channel < CHANNELS; channel++) {
            struct rondo_work *w = &d.w->rank[r].launch.inline_works[channel];
            w->premul = 1;
            w->scalar = (uint64_t)r + 2;
        }
    }
    run_well(&j, &d, j.seed);
    for (int r = 0; r < j.n; r++) {
        for (size_t i = 0; i < j.call[0].count; i++) {
            int32_t got, want = 2 * world_value(RONDO_INT32, j.seed, 0, 0, i) +
                                3 * world_value(RONDO_INT32, j.seed, 0, 1, i) +
                                4 * world_value(RONDO_INT32, j.seed, 0, 2, i);
            memcpy(&got, d.out[0][r].data + 4 * i, 4);
            assert_int_equal(got, want);
        }
    }
    free_job(&j, &d);
}

/* One rank makes another call: whoever meets it reports that, and nothing is read from it or written to it.
 */
static void mismatched_calls_are_detected(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        const struct job j = one_call(3, RONDO_COLL_ALL_REDUCE, algos[seed % 2], EVERYBODYS, 50, 3 * seed);
        const struct rondo_sim_rules rules = world_rules(seed, RONDO_PROTO_SIMPLE);
        struct job_data d;
        make_job(&j, &d);
        d.w->rank[1].launch.inline_works[0].call_word = 12345;
        (void)world_run(d.w, &rules, THREADS);
        assert_int_equal(d.w->rank[2].words.fault, RONDO_GPU_MISMATCH);
        assert_int_equal(d.w->rank[2].words.fault_got, 12345);
        assert_int_equal(d.w->rank[2].words.fault_peer, 1);
        assert_true(d.w->rank[2].words.fault_serial == d.w->rank[2].launch.serial);
        assert_int_equal(d.w->rank[2].words.fault_work, 0);
        for (size_t i = 0; i < 16; i++) {
            assert_int_equal(d.out[0][1].data[i], 0x5a);
        }
        free_job(&j, &d);
    }
}

static void abort_ends_every_wait(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 80; seed++) {
        const struct job j = one_call(4, colls[seed % RONDO_COUNTOF(colls)], algos[seed / 2 % 2],
                                      (enum open)(seed % NUM_OPEN), 300, seed);
        const struct rondo_sim_rules rules = { .seed = seed, .delayed = seed % 3 == 1, .whole_lines = 1 };
        const int missing = (int)(seed / 4 % 5); /* 4: no rank */
        struct sim_kernel_run run[WORLD_RANKS];
        struct rondo_sim_grid grid[WORLD_RANKS + 1];
        struct rondo_sim_result result;
        struct job_data d;
        struct world_killer killer;
        int n = 0;
        make_job(&j, &d);
        killer.w = d.w;
        killer.breaths = seed * seed % 997;
        for (int r = 0; r < j.n; r++) {
            if (r == missing) continue;
            run[n] = (struct sim_kernel_run){ .kernel = sim_kernel_of(&d.w->rank[r].launch.inline_works[0]),
                                              .launch = &d.w->rank[r].launch };
            grid[n] = sim_kernel_grid(&run[n], THREADS);
            n++;
        }
        grid[n++] = (struct rondo_sim_grid){ world_kill_all, &killer, 1, 32, 0 };
        rondo_sim_run(&rules, grid, n, &result);
        assert_string_equal(result.why, "");
        assert_int_equal(result.end, RONDO_SIM_ENDED);
        free_job(&j, &d); /* checks that nothing was written beyond the end */
    }
}

/* ---- calls of two works ---- */

/* The kernels that a rank launches for its calls, one after the other. */
struct launches {
    struct rondo_sim_grid grid[2 * MOST_WORKS];
    struct sim_kernel_run run[2 * MOST_WORKS];
    struct rondo_launch launch[2 * MOST_WORKS];
    int n;
};
static void run_launches(void *arg, void *shared)
{
    const struct launches *l = arg;
    const struct rondo_team all = { rondo_block_tid(), rondo_block_threads(), 0 };
    for (int i = 0; i < l->n; i++) {
        l->grid[i].body(l->grid[i].arg, shared);
        rondo_team_sync(&all);
    }
}

static void add_launch(const struct job_data *d, int r, struct launches *l, const struct rondo_work *w)
{
    struct rondo_launch *launch = &l->launch[l->n];
    *launch = d->w->rank[r].launch;
    launch->serial += (uint64_t)l->n;
    launch->nblocks = 1;
    launch->first[1] = 1;
    launch->inline_works[0] = *w;
    l->run[l->n] = (struct sim_kernel_run){ .kernel = sim_kernel_of(w), .launch = launch };
    l->grid[l->n] = sim_kernel_grid(&l->run[l->n], THREADS);
    l->n++;
}

/* The seed says which ranks' buffers are open in which calls: bit r of asks[k]. */
static void put_pairs(const struct job *j, const struct job_data *d, const unsigned *asks, int r,
                      struct launches *l)
{
    for (int k = 0; k < j->ncalls; k++) {
        struct rondo_work w = d->w->rank[r].launch.inline_works[k];    /* channel 0's */
        const int knows = (asks[k] >> r & 1) == 0 && j->seed % 3 != 0; /* else its kernel finds out */
        w.len = w.block;
        w.off = 0;
        w.chunk = rondo_round_up(w.coll == RONDO_COLL_ALL_REDUCE ? (w.len + (size_t)j->n - 1) / (size_t)j->n
                                                                 : w.len,
                                 RONDO_CACHE_LINE / w.elem_bytes);
        w.pair = RONDO_PAIR_ASKS;
        d->direct[r]->region[w.in_region].open = d->direct[r]->region[w.out_region].open = asks[k] >> r & 1;
        if (!knows) {
            add_launch(d, r, l, &w);
        }
        w.pair = knows ? RONDO_PAIR_DECLINES : RONDO_PAIR_FOLLOWS;
        w.algo = RONDO_ALGO_RING;
        w.proto = (uint8_t)(j->seed % RONDO_NUM_PROTOS);
        w.chunk = RONDO_CACHE_LINE / w.elem_bytes;
        world_wire(d->w, &d->w->rank[r].ports, &w);
        add_launch(d, r, l, &w);
    }
}

static void make_pairs(const struct job *j, struct job_data *d, const unsigned *asks, struct launches *l,
                       struct rondo_sim_grid *grid)
{
    make_job(j, d);
    d->w->slot_bytes = 512;
    memset(l, 0, sizeof(*l) * (size_t)j->n);
    for (int r = 0; r < j->n; r++) {
        world_link_ports(d->w, r, RONDO_PORT_RING, (r + 1) % j->n, RONDO_PORT_RING);
    }
    for (int r = 0; r < j->n; r++) {
        put_pairs(j, d, asks, r, &l[r]);
        grid[r] = (struct rondo_sim_grid){ run_launches, &l[r], 1, THREADS, 0 };
        for (int i = 0; i < l[r].n; i++) {
            grid[r].shared_bytes = rondo_max_size(grid[r].shared_bytes, l[r].grid[i].shared_bytes);
        }
    }
}

static void run_pairs(const struct job *j, const unsigned *asks)
{
    const struct rondo_sim_rules rules = world_rules(j->seed, (enum rondo_proto)(j->seed % RONDO_NUM_PROTOS));
    static struct launches l[WORLD_RANKS];
    struct rondo_sim_grid grid[WORLD_RANKS];
    struct rondo_sim_result result;
    struct job_data d;
    uint64_t steps = 0;
    int all = 1;
    make_pairs(j, &d, asks, l, grid);
    rondo_sim_run(&rules, grid, j->n, &result);
    assert_string_equal(result.why, "");
    assert_int_equal(result.end, RONDO_SIM_ENDED);
    check_job(j, &d);
    world_assert_even(d.w);
    for (int k = 0; k < j->ncalls; k++) {
        all &= asks[k] == (1u << j->n) - 1;
    }
    for (int r = 0; r < j->n; r++) {
        steps += d.w->link[r].sender.step;
        assert_int_equal(d.w->rank[r].words.fault, RONDO_GPU_FINE);
        assert_true(d.direct[r]->channel[0].met == d.direct[0]->channel[0].met);
        assert_true(d.direct[r]->channel[0].staged == 0);
    }
    assert_true((steps == 0) == all);
    free_job(j, &d);
}

/* A call goes by direct access if all ranks' buffers are open, else around the ring, whoever knows that. */
static void the_second_work_carries_what_the_first_does_not(void **state)
{
    static const enum rondo_coll even[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_ALL_GATHER,
                                            RONDO_COLL_REDUCE_SCATTER };
    (void)state;
    for (uint64_t seed = 1; seed < 61; seed++) {
        struct job j = one_call(2 + (int)(seed % 4), even[seed % 3], RONDO_ALGO_TWOSHOT, EVERYBODYS,
                                1 + seed * 37 % 400, seed);
        const unsigned everybody = (1u << j.n) - 1;
        const unsigned asks[MOST_WORKS] = { seed % 5 == 0 ? everybody
                                                          : (unsigned)(seed * 7 % (everybody + 1)),
                                            everybody,
                                            seed % 5 == 0 ? everybody : (unsigned)seed % everybody };
        j.call[0].in_place = 0;
        j.ncalls = MOST_WORKS;
        j.call[1] = j.call[2] = j.call[0];
        j.call[1].count = 9;
        run_pairs(&j, asks);
    }
}

/* A rank is missing, or makes another call, whether or not its buffers are open; the host ends the others. */
static void calls_of_two_works_end_too(void **state)
{
    static struct launches l[WORLD_RANKS];
    (void)state;
    for (uint64_t seed = 1; seed < 31; seed++) {
        const struct job j = one_call(3, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT, EVERYBODYS, 100, seed);
        const struct rondo_sim_rules rules = { .seed = seed, .delayed = seed % 3 == 1, .whole_lines = 1 };
        const unsigned asks[MOST_WORKS] = { (unsigned)(seed / 2 % 4 * 2 + 1) }; /* rank 0's are open */
        const int missing = seed % 2 == 0;
        struct rondo_sim_grid grid[WORLD_RANKS + 1];
        struct rondo_sim_result result;
        struct job_data d;
        struct world_killer killer = { .breaths = seed * seed % 997 + (seed % 2 == 0 ? 0 : 4000) };
        make_pairs(&j, &d, asks, l, grid);
        killer.w = d.w;
        for (int i = 0; i < l[2].n; i++) {
            l[2].launch[i].inline_works[0].call_word = 12345;
        }
        grid[missing ? 2 : 3] = (struct rondo_sim_grid){ world_kill_all, &killer, 1, 32, 0 };
        rondo_sim_run(&rules, grid, missing ? 3 : 4, &result);
        assert_string_equal(result.why, "");
        assert_int_equal(result.end, RONDO_SIM_ENDED);
        assert_int_equal(d.w->rank[0].words.fault, missing ? RONDO_GPU_FINE : RONDO_GPU_MISMATCH);
        assert_int_equal(d.w->rank[0].words.fault_got, missing ? 0 : 12345);
        free_job(&j, &d);
    }
}

/* A kernel that waits shows the host for whom, and the host ends it. */
static void wait_alone(const struct job *j, struct job_data *d, int peer)
{
    const struct rondo_sim_rules rules = { .whole_lines = 1 };
    struct sim_kernel_run run;
    struct rondo_sim_grid grid[2];
    struct rondo_sim_result result;
    struct world_killer killer = { .w = d->w, .breaths = RONDO_LONG_WAIT + RONDO_LONG_WAIT / 8 };
    run = (struct sim_kernel_run){ .kernel = sim_kernel_of(&d->w->rank[0].launch.inline_works[0]),
                                   .launch = &d->w->rank[0].launch };
    grid[0] = sim_kernel_grid(&run, THREADS);
    grid[1] = (struct rondo_sim_grid){ world_kill_all, &killer, 1, 32, 0 };
    rondo_sim_run(&rules, grid, 2, &result);
    assert_int_equal(result.end, RONDO_SIM_ENDED);
    assert_int_equal(d->w->rank[0].words.block[0].peer, peer);
    assert_int_equal(d->w->rank[0].words.block[0].port, RONDO_NUM_PORTS);
    assert_int_equal(d->w->rank[0].words.block[0].waits, RONDO_WAITS_DATA);
    assert_true(d->w->rank[0].words.block[0].waited == d->w->rank[0].launch.serial);
    free_job(j, d);
}

/* For a meeting, for a call word, and for data of the third of three ranks. */
static void a_long_wait_is_shown_to_the_host(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct job j = one_call(i < 2 ? 2 : 3, RONDO_COLL_ALL_REDUCE, algos[i > 0], EVERYBODYS, 1, 0);
        struct job_data d;
        make_job(&j, &d);
        for (int from = 1; from < j.n && i == 2; from++) {
            uint64_t *line = (uint64_t *)(void *)d.slots[0] +
                             (size_t)from * rondo_oneshot_slot_bytes(STAGE_BYTES, (size_t)j.n) / 8;
            line[0] = rondo_ll_flag(0) | d.w->rank[0].launch.inline_works[0].call_word;
            line[2] = line[3] = from == 1 ? rondo_ll_flag(0) : 0;
        }
        wait_alone(&j, &d, i < 2 ? 1 : 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_right_on_two_to_five_ranks),
        cmocka_unit_test(one_shot_sums_are_right_around_a_slots_room),
        cmocka_unit_test(every_type_is_averaged),
        cmocka_unit_test(old_flags_are_gone_when_they_come_again),
        cmocka_unit_test(successive_works_do_not_mix),
        cmocka_unit_test(sums_are_in_rank_order),
        cmocka_unit_test(inputs_are_premultiplied_before_they_are_sent),
        cmocka_unit_test(mismatched_calls_are_detected),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(the_second_work_carries_what_the_first_does_not),
        cmocka_unit_test(calls_of_two_works_end_too),
        cmocka_unit_test(a_long_wait_is_shown_to_the_host),
    };
#ifdef __SANITIZE_THREAD__
    (void)tests;
    puts("skipped: all of it runs in one OS thread, and ThreadSanitizer makes fibers slowly");
    return 77;
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
