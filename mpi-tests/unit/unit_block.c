/* A block's launches (kern/cuda/block.h) on the simulated machine: collectives of 1 to 5 ranks over rings and
 * trees, successive works of a launch, sends and receives side by side, calls that differ, and launches
 * aborted in the middle of a wait. */
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
        .seat = seat_of(j, c, rank),
        .ports = &w->rank[rank].ports
    };
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
                         world_result(j.seed, 0, j.call[0].coll, j.n, ROOT % j.n, j.call[0].count, r, i);
            }
        }
        free_buffers(&j, &d);
        world_free(w);
    }
    assert_int_equal(wrong, 1);
}

/* A message's work at its sender; `ports` has its connection. */
static struct rondo_work send_work(enum rondo_proto proto, int nranks, size_t count, const void *in,
                                   struct rondo_ports *ports)
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
                                .ports = ports,
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
        struct rondo_ports *ports = world_zeroed(2 * RANKS * RANKS * sizeof(*ports));
        memset(out, 0, sizeof out);
        for (int r = 0; r < RANKS; r++) {
            for (int delta = 0; delta < RANKS; delta++) {
                const int to = (r + delta) % RANKS,
                          proto = (delta + (int)seed) % 2 == 0 ? RONDO_PROTO_LL : RONDO_PROTO_SIMPLE;
                struct world_link *l = world_connect(w, r, to);
                struct rondo_ports *p = &ports[2 * (r * RANKS + delta)];
                struct rondo_work work = send_work((enum rondo_proto)proto, RANKS, counts[delta], in[r][to],
                                                   &p[0]);
                for (size_t i = 0; i < COUNT; i++) in[r][to][i] = (uint8_t)(i * 7 + (size_t)(r * 31 + to));
                p[0].send[RONDO_PORT_PEER] = &l->sender;
                p[1].recv[RONDO_PORT_PEER] = &l->receiver;
                w->rank[r].launch.inline_works[2 * delta] = work;
                work.coll = RONDO_COLL_RECV;
                work.ports = &p[1];
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
        free(ports);
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
        struct rondo_work work = send_work(sends, 2, much ? MANY : FEW, in, &w->rank[0].ports);
        struct rondo_sim_result result;
        world_link_ports(w, 0, RONDO_PORT_PEER, 1, RONDO_PORT_PEER);
        w->rank[0].launch.inline_works[0] = work;
        work = send_work(receives, 2, much ? FEW : MANY, NULL, &w->rank[1].ports);
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
        cmocka_unit_test(sends_and_receives_run_side_by_side),
        cmocka_unit_test(mismatched_calls_are_detected),
        cmocka_unit_test(messages_with_other_counts_are_detected),
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
