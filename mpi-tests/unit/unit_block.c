/* A block's launches (kern/cuda/block.h) on the simulated machine: collectives of 1 to 5 ranks over rings,
 * trees and by recursive doubling, successive works of a launch, sends and receives side by side, calls that
 * differ, and launches aborted in the middle of a wait. */
#define RONDO_MACHINE_SIM 1
#include "prim_world.h"

enum { SLOT_BYTES = 512, MOST_WORKS = 3, ROOT = 1 };

struct call {
    enum rondo_coll coll;
    enum rondo_algo algo;
    enum rondo_proto proto;
    rondo_dtype dtype;
    size_t count; /* of the whole buffer, or of a block */
    int in_place, avg;
};

struct job {
    int n, fan, ncalls;
    struct call call[MOST_WORKS];
    size_t mis;
    uint32_t threads;
    uint64_t seed, step;
};

struct job_data {
    struct world_buffer in[MOST_WORKS][WORLD_RANKS], out[MOST_WORKS][WORLD_RANKS];
};

/* ---- a rank's buffers and results ---- */

static void make_buffers(const struct job *j, struct job_data *d)
{
    for (int k = 0; k < j->ncalls; k++) {
        const struct world_spec spec = WORLD_SPEC(j, k, ROOT);
        for (int r = 0; r < j->n; r++) {
            world_buffers_new(&spec, r, &d->in[k][r], &d->out[k][r]);
        }
    }
}

static void check_buffers(const struct job *j, struct job_data *d)
{
    for (int k = 0; k < j->ncalls; k++) {
        const struct world_spec spec = WORLD_SPEC(j, k, ROOT);
        for (int r = 0; r < j->n; r++) {
            world_buffers_check(&spec, r, &d->in[k][r], &d->out[k][r]);
        }
    }
}

static void free_buffers(const struct job *j, struct job_data *d)
{
    for (int k = 0; k < j->ncalls; k++) {
        for (int r = 0; r < j->n; r++) {
            world_buffer_free(&d->in[k][r]);
            world_buffer_free(&d->out[k][r]);
        }
    }
}

/* ---- wiring ---- */

static int parent_of(const struct job *j, int rank) { return rank == 0 ? -1 : (rank - 1) / j->fan; }

static struct rondo_seat seat_of(const struct job *j, const struct call *c, int rank)
{
    struct rondo_seat seat = {
        .index = rank, .nranks = j->n, .root = ROOT % j->n, .parent = -1, .child = { -1, -1, -1 }
    };
    if (c->algo != RONDO_ALGO_TREE) {
        return seat;
    }
    seat.parent = parent_of(j, rank);
    for (int i = 1; i < j->n; i++) {
        if (parent_of(j, i) == rank) {
            seat.child[seat.nchildren++] = i;
        }
    }
    seat.toward = rank == seat.root ? -1 : 0;
    for (int at = seat.root; at > 0; at = parent_of(j, at)) { /* is the root below one of the children? */
        for (int i = 0; i < seat.nchildren; i++) {
            seat.toward = seat.child[i] == at ? 1 + i : seat.toward;
        }
    }
    return seat;
}

static void connect_ranks(struct world *w, const struct job *j)
{
    int children[WORLD_RANKS] = { 0 };
    for (int r = 0; r < j->n && j->n > 1; r++) {
        world_link_ports(w, r, RONDO_PORT_RING, (r + 1) % j->n, RONDO_PORT_RING);
    }
    for (int r = 1; r < j->n; r++) {
        const int parent = parent_of(j, r), port = RONDO_PORT_CHILD + children[parent]++;
        world_link_ports(w, r, RONDO_PORT_PARENT, parent, port);
        world_link_ports(w, parent, port, r, RONDO_PORT_PARENT);
    }
    for (int r = 0; r < j->n; r++) { /* port i leads to port i of the peer */
        for (uint32_t i = 0; i < rondo_doubling_ports(j->n); i++) {
            const int peer = rondo_doubling_peer(r, j->n, i), port = RONDO_PORT_DIM + (int)i;
            if (peer >= 0) world_link_ports(w, r, port, peer, port);
        }
    }
}

static void add_work(struct world *w, const struct job *j, int k, int rank, const struct job_data *d)
{
    const struct call *c = &j->call[k];
    struct rondo_launch *launch = &w->rank[rank].launch;
    const size_t size = rondo_dtype_size(c->dtype),
                 capacity = rondo_proto_capacity(c->proto, SLOT_BYTES) / size;
    launch->inline_works[k] = (struct rondo_work){
        .coll = (uint8_t)c->coll,
        .algo = (uint8_t)c->algo,
        .proto = (uint8_t)c->proto,
        .dtype = (uint8_t)c->dtype,
        .reduce = RONDO_REDUCE_SUM,
        .divide = (uint8_t)c->avg,
        .elem_bytes = (uint8_t)size,
        .call_word = rondo_call_word((uint64_t)k, c->count * 31 + (uint64_t)c->coll),
        .in = d->in[k][rank].data,
        .out = c->in_place ? d->in[k][rank].data : d->out[k][rank].data,
        .block = c->count,
        .len = c->count,
        .chunk = capacity * (c->algo == RONDO_ALGO_TREE ? 1 : 3) - (j->seed % 2 == 1 && capacity > 5 ? 5 : 0),
        .seat = seat_of(j, c, rank)
    };
    world_wire(w, &w->rank[rank].ports, &launch->inline_works[k]);
    launch->first[1] = (uint16_t)(k + 1);
}

static struct world *make_world(const struct job *j, const struct job_data *d)
{
    struct world *w = world_new(j->n, j->step, SLOT_BYTES);
    connect_ranks(w, j);
    for (int k = 0; k < j->ncalls; k++) {
        for (int r = 0; r < j->n; r++) {
            add_work(w, j, k, r, d);
        }
    }
    return w;
}

static void try_job(const struct job *j)
{
    struct job_data d;
    struct world *w;
    if (getenv("RONDO_TEST_VERBOSE") != NULL) {
        print_message("%d ranks, fan %d, coll %d algo %d proto %d dtype %d count %zu in place %d, %d calls, "
                      "mis %zu, %u threads, seed "
                      "%llu, step %llx\n",
                      j->n, j->fan, (int)j->call[0].coll, (int)j->call[0].algo, (int)j->call[0].proto,
                      (int)j->call[0].dtype, j->call[0].count, j->call[0].in_place, j->ncalls, j->mis,
                      j->threads, (unsigned long long)j->seed, (unsigned long long)j->step);
    }
    make_buffers(j, &d);
    w = make_world(j, &d);
    world_run_well(w, j->seed, j->threads);
    world_assert_even(w);
    check_buffers(j, &d);
    free_buffers(j, &d);
    world_free(w);
}

static struct job one_call(int n, enum rondo_coll coll, enum rondo_algo algo, enum rondo_proto proto,
                           size_t count, uint64_t seed)
{
    static const uint32_t threads[] = { 64, 160, 96 };
    const int whole = coll == RONDO_COLL_ALL_REDUCE || coll == RONDO_COLL_BROADCAST;
    return (struct job){ .n = n,
                         .fan = 1 + (int)(seed / 4 % RONDO_TREE_FAN),
                         .ncalls = 1,
                         .call[0] = { .coll = coll,
                                      .algo = algo,
                                      .proto = proto,
                                      .dtype = RONDO_INT32,
                                      .count = count,
                                      .in_place = whole && seed % 3 == 2 },
                         .mis = seed % 5,
                         .threads = threads[seed / 2 % 3],
                         .seed = seed };
}

/* ---- tests ---- */

static const struct {
    enum rondo_coll coll;
    enum rondo_algo algo;
} kinds[] = {
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING },     { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE },
    { RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_RING }, { RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING },
    { RONDO_COLL_BROADCAST, RONDO_ALGO_RING },      { RONDO_COLL_BROADCAST, RONDO_ALGO_TREE },
    { RONDO_COLL_REDUCE, RONDO_ALGO_RING },         { RONDO_COLL_REDUCE, RONDO_ALGO_TREE },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ORDERED },  { RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_ORDERED },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING },
};

static void every_collective_is_right_on_one_to_five_ranks(void **state)
{
    static const size_t counts[] = { 1, 3, 29, 31, 64, 125, 331, 700 };
    uint64_t seed = 0;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(kinds); i++) {
        for (int n = 1; n <= 5; n++) {
            for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
                for (int again = 0; again < 3; again++, seed++) {
                    const struct job j = one_call(n, kinds[i].coll, kinds[i].algo, (enum rondo_proto)proto,
                                                  counts[seed * 5 % RONDO_COUNTOF(counts)], seed);
                    try_job(&j);
                }
            }
        }
    }
}

/* Works of one launch share connections; the steps pass those where LL's flags recur. */
static void successive_works_pass_the_wrap(void **state)
{
    static const uint64_t steps[] = { 5, 0x7ffffff0ull, 0xfffffff1ull, 0xfffffff6ull };
    (void)state;
    for (uint64_t seed = 0; seed < 48; seed++) {
        struct job j = one_call(2 + (int)(seed % 3), RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING,
                                (enum rondo_proto)(seed / 4 % 3), 200, seed);
        j.step = steps[seed / 12];
        j.ncalls = 3;
        j.call[1] =
            (struct call){ RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, j.call[0].proto, RONDO_INT32, 1, 0, 0 };
        j.call[2] =
            (struct call){ RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, j.call[0].proto, RONDO_INT32, 300, 1, 0 };
        try_job(&j);
    }
}

static void every_type_is_averaged(void **state)
{
    uint64_t seed = 0;
    (void)state;
    for (int dtype = 0; dtype < RONDO_DEVICE_DTYPES; dtype++) {
        for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
            for (int algo = 0; algo < 2; algo++, seed++) {
                struct job j = one_call(3, RONDO_COLL_ALL_REDUCE,
                                        algo == 0 ? RONDO_ALGO_RING : RONDO_ALGO_TREE,
                                        (enum rondo_proto)proto, 77, seed);
                j.call[0].dtype = (rondo_dtype)dtype;
                j.call[0].avg = seed % 2 == 0;
                try_job(&j);
            }
        }
    }
}

/* LL128 needs whole lines: on memory without them it must fail, or these tests would not notice. */
static void ll128_needs_whole_lines(void **state)
{
    int wrong = 0;
    (void)state;
    for (uint64_t seed = 1; seed < 40 && !wrong; seed++) {
        const struct job j = one_call(2, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_LL128, 700,
                                      seed);
        const struct rondo_sim_rules rules = { .seed = seed, .delayed = 1, .patience = 20000 };
        struct job_data d;
        struct world *w;
        make_buffers(&j, &d);
        w = make_world(&j, &d);
        (void)world_run(w, &rules, j.threads);
        for (int r = 0; r < j.n; r++) {
            const struct world_buffer *got = j.call[0].in_place ? &d.in[0][r] : &d.out[0][r];
            for (size_t i = 0; i < j.call[0].count; i++) {
                wrong |= ((const int32_t *)(const void *)got->data)[i] !=
                         world_result(j.call[0].dtype, j.seed, 0, j.call[0].coll, j.n, ROOT % j.n,
                                      j.call[0].count, r, i);
            }
        }
        free_buffers(&j, &d);
        world_free(w);
    }
    assert_int_equal(wrong, 1);
}

/* A launch that waits for the last words of the one before, as if the host had launched it in another
 * stream. */
struct next {
    const struct rondo_launch *before;
    struct rondo_sim_grid grid;
};
static void run_next(void *arg, void *shared)
{
    const struct next *next = arg;
    uint32_t spins = 0;
    while (rondo_load_acquire((const rondo_word *)&next->before->words->block[rondo_block_index()].ended) <
           next->before->serial) {
        if (!rondo_breath(next->before->words, &spins)) return;
    }
    next->grid.body(next->grid.arg, shared);
}

static void a_launch_finds_what_the_one_before_has_left(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct job j = one_call(2 + (int)(seed % 2), RONDO_COLL_ALL_REDUCE,
                                seed / 3 % 2 == 0 ? RONDO_ALGO_RING : RONDO_ALGO_TREE,
                                (enum rondo_proto)(seed % 3), 300, seed);
        struct rondo_launch then[WORLD_RANKS];
        struct sim_kernel_run run[2 * WORLD_RANKS];
        struct rondo_sim_grid grid[2 * WORLD_RANKS];
        struct next next[WORLD_RANKS];
        struct rondo_sim_rules rules = world_rules(seed, j.call[0].proto);
        struct rondo_sim_result result;
        struct job_data d;
        struct world *w;
        j.ncalls = 2;
        j.call[1] = j.call[0];
        make_buffers(&j, &d);
        w = make_world(&j, &d);
        for (int r = 0; r < j.n; r++) { /* the second call is a launch of its own */
            struct rondo_launch *first = &w->rank[r].launch;
            then[r] = *first;
            first->first[1] = 1;
            then[r].serial++;
            then[r].inline_works[0] = first->inline_works[1];
            then[r].first[1] = 1;
            run[r] = (struct sim_kernel_run){ .kernel = sim_kernel_of(&first->inline_works[0]),
                                              .launch = first };
            run[j.n + r] = (struct sim_kernel_run){ .kernel = run[r].kernel, .launch = &then[r] };
            grid[r] = sim_kernel_grid(&run[r], j.threads);
            next[r] = (struct next){ first, sim_kernel_grid(&run[j.n + r], j.threads) };
            grid[j.n + r] = next[r].grid;
            grid[j.n + r].body = run_next;
            grid[j.n + r].arg = &next[r];
        }
        rondo_sim_run(&rules, grid, 2 * j.n, &result);
        assert_string_equal(result.why, "");
        world_assert_even(w);
        check_buffers(&j, &d);
        free_buffers(&j, &d);
        world_free(w);
    }
}

/* A message's work at its sender. */
static struct rondo_work send_work(enum rondo_proto proto, int nranks, size_t count, const void *in,
                                   struct rondo_conn *conn)
{
    return (struct rondo_work){ .coll = RONDO_COLL_SEND,
                                .algo = RONDO_ALGO_P2P,
                                .proto = (uint8_t)proto,
                                .dtype = RONDO_UINT8,
                                .elem_bytes = 1,
                                .call_word = 9,
                                .in = in,
                                .block = count,
                                .len = count,
                                .chunk = 300,
                                .conns = conn,
                                .seat = { .nranks = (uint32_t)nranks, .parent = -1 } };
}

/* Everyone sends to and receives from everyone, itself included: more messages than run at once, LL and
 * Simple side by side. */
static void sends_and_receives_run_side_by_side(void **state)
{
    enum { RANKS = 4, COUNT = 900 };
    static uint8_t in[RANKS][RANKS][COUNT], out[RANKS][RANKS][COUNT];
    (void)state;
    for (uint64_t seed = 0; seed < 16; seed++) {
        const size_t counts[] = { 1, COUNT, 513, 64 };
        const uint32_t threads = seed % 3 == 0 ? 64 : seed % 3 == 1 ? 160 : 512;
        struct world *w = world_new(RANKS, seed * 3, SLOT_BYTES);
        memset(out, 0, sizeof out);
        for (int r = 0; r < RANKS; r++) {
            for (int delta = 0; delta < RANKS; delta++) {
                const int to = (r + delta) % RANKS,
                          proto = (delta + (int)seed) % 2 == 0 ? RONDO_PROTO_LL : RONDO_PROTO_SIMPLE;
                struct world_link *l = world_connect(w, r, to);
                struct rondo_work work = send_work((enum rondo_proto)proto, RANKS, counts[delta], in[r][to],
                                                   &l->sender);
                for (size_t i = 0; i < COUNT; i++) in[r][to][i] = (uint8_t)(i * 7 + (size_t)(r * 31 + to));
                w->rank[r].launch.inline_works[2 * delta] = work;
                work.coll = RONDO_COLL_RECV;
                work.conns = &l->receiver;
                work.in = NULL;
                work.out = out[to][r];
                w->rank[to].launch.inline_works[2 * delta + 1] = work;
                w->rank[r].launch.first[1] = 2 * RANKS;
            }
        }
        world_run_well(w, seed, threads);
        world_assert_even(w);
        for (int r = 0; r < RANKS; r++) {
            for (int delta = 0; delta < RANKS; delta++) {
                const int to = (r + delta) % RANKS;
                assert_memory_equal(out[to][r], in[r][to], counts[delta]);
                assert_int_equal(counts[delta] < COUNT && out[to][r][counts[delta]] != 0, 0);
            }
        }
        world_free(w);
    }
}

/* One rank makes another call: whoever receives from it reports that, and copies nothing. */
static void mismatched_calls_are_detected(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        const struct job j = one_call(3, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, (enum rondo_proto)(seed % 3),
                                      50, seed);
        struct rondo_sim_rules rules = world_rules(seed, j.call[0].proto);
        struct job_data d;
        struct world *w;
        struct rondo_sim_result result;
        make_buffers(&j, &d);
        w = make_world(&j, &d);
        w->rank[1].launch.inline_works[0].call_word = 12345;
        result = world_run(w, &rules, j.threads);
        assert_int_equal(result.end, RONDO_SIM_STUCK); /* the others wait until the host ends them */
        assert_int_equal(w->rank[2].words.fault, RONDO_GPU_MISMATCH);
        assert_int_equal(w->rank[2].words.fault_got, 12345);
        assert_int_equal(w->rank[2].words.fault_peer, 1);
        assert_true(w->rank[2].words.fault_serial == w->rank[2].launch.serial);
        assert_int_equal(w->rank[2].words.fault_work, 0);
        assert_int_equal(w->rank[0].words.fault, RONDO_GPU_FINE);
        free_buffers(&j, &d);
        world_free(w);
    }
}

/* The ends of a message choose the protocol by their own counts. If these are on either side of the
 * threshold, the receiver reports that and copies nothing. */
static void messages_with_other_counts_are_detected(void **state)
{
    enum { FEW = 200, MANY = 2 * RONDO_SLOTS * SLOT_BYTES }; /* a slice; more than there is credit for */
    static uint8_t in[MANY], out[MANY];
    (void)state;
    memset(in, 1, sizeof(in));
    for (uint64_t seed = 0; seed < 32; seed++) {
        const enum rondo_proto sends = seed / 4 % 2 == 0 ? RONDO_PROTO_LL : RONDO_PROTO_SIMPLE;
        const enum rondo_proto receives = sends == RONDO_PROTO_LL ? RONDO_PROTO_SIMPLE : RONDO_PROTO_LL;
        const int much = seed / 8 % 2;
        const struct rondo_sim_rules rules = world_rules(seed, sends);
        struct world *w = world_new(2, seed * 3, SLOT_BYTES);
        struct world_link *l = world_connect(w, 0, 1);
        struct rondo_work work = send_work(sends, 2, much ? MANY : FEW, in, &l->sender);
        struct rondo_sim_result result;
        w->rank[0].launch.inline_works[0] = work;
        work = send_work(receives, 2, much ? FEW : MANY, NULL, &l->receiver);
        work.coll = RONDO_COLL_RECV;
        work.out = out;
        work.call_word = 11;
        w->rank[1].launch.inline_works[0] = work;
        w->rank[0].launch.first[1] = w->rank[1].launch.first[1] = 1;
        result = world_run(w, &rules, seed % 3 == 0 ? 64 : 160);
        assert_int_equal(
            result.end, much ? RONDO_SIM_STUCK
                             : RONDO_SIM_ENDED); /* stuck: a sender waits for credit until the host ends it */
        assert_int_equal(w->rank[1].words.fault, RONDO_GPU_MISMATCH);
        assert_int_equal(w->rank[1].words.fault_got, 9);
        assert_int_equal(w->rank[1].words.fault_peer, 0);
        assert_true(w->rank[1].words.block[0].ended == w->rank[1].launch.serial);
        assert_int_equal(w->rank[0].words.fault, RONDO_GPU_FINE);
        for (size_t i = 0; i < sizeof(out); i++) assert_int_equal(out[i], 0);
        world_free(w);
    }
}

/* A fence waits for all that a thread's block has stored: only who sends needs one. */
static void slots_are_given_back_without_a_fence(void **state)
{
    const struct job j = one_call(2, RONDO_COLL_BROADCAST, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 700, 0);
    const struct rondo_sim_rules rules = world_rules(j.seed, j.call[0].proto);
    struct rondo_sim_result result;
    struct job_data d;
    struct world *w;
    uint64_t slices = 0;
    (void)state;
    make_buffers(&j, &d);
    w = make_world(&j, &d);
    result = world_run(w, &rules, j.threads);
    assert_string_equal(result.why, "");
    world_assert_even(w);
    for (int i = 0; i < w->nlinks; i++) slices += w->link[i].receiver.step;
    assert_true(slices > 3);
    assert_true(result.fences == slices + 2); /* 2: the last word of each rank's block */
    check_buffers(&j, &d);
    free_buffers(&j, &d);
    world_free(w);
}

/* ---- abort ---- */

static void abort_ends_every_wait(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        const struct job j = one_call(4, kinds[seed % 2].coll, kinds[seed % 2].algo,
                                      (enum rondo_proto)(seed / 2 % 3), 700, seed);
        const struct rondo_sim_rules rules = { .seed = seed, .delayed = seed % 3 == 1, .whole_lines = 1 };
        const int missing = (int)(seed / 4 % 5); /* 4: no rank */
        struct sim_kernel_run run[WORLD_RANKS];
        struct rondo_sim_grid grid[WORLD_RANKS + 1];
        struct rondo_sim_result result;
        struct job_data d;
        struct world_killer killer;
        int n = 0;
        make_buffers(&j, &d);
        killer.w = make_world(&j, &d);
        killer.breaths = seed * seed % 997;
        for (int r = 0; r < j.n; r++) {
            if (r == missing) continue;
            run[n] =
                (struct sim_kernel_run){ .kernel = sim_kernel_of(&killer.w->rank[r].launch.inline_works[0]),
                                         .launch = &killer.w->rank[r].launch };
            grid[n] = sim_kernel_grid(&run[n], j.threads);
            n++;
        }
        grid[n++] = (struct rondo_sim_grid){ world_kill_all, &killer, 1, 32, 0 };
        rondo_sim_run(&rules, grid, n, &result);
        assert_string_equal(result.why, "");
        assert_int_equal(result.end, RONDO_SIM_ENDED);
        free_buffers(&j, &d); /* checks that nothing was written beyond the end */
        world_free(killer.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_right_on_one_to_five_ranks),
        cmocka_unit_test(successive_works_pass_the_wrap),
        cmocka_unit_test(every_type_is_averaged),
        cmocka_unit_test(ll128_needs_whole_lines),
        cmocka_unit_test(a_launch_finds_what_the_one_before_has_left),
        cmocka_unit_test(sends_and_receives_run_side_by_side),
        cmocka_unit_test(mismatched_calls_are_detected),
        cmocka_unit_test(messages_with_other_counts_are_detected),
        cmocka_unit_test(slots_are_given_back_without_a_fence),
        cmocka_unit_test(abort_ends_every_wait),
    };
#ifdef __SANITIZE_THREAD__
    (void)tests;
    puts("skipped: all of it runs in one OS thread, and ThreadSanitizer makes fibers slowly");
    return 77;
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
