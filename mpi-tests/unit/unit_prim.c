/* The primitive (kern/cuda/prim.h) on the simulated machine. Trees with up to three leaves, with or without a
 * rank between root and leaves, make steps that receive from and send to up to three connections and the
 * user's buffer, in every protocol, type and operation. The bits are those of kern/reduce.h. */
#define RONDO_MACHINE_SIM 1
#include "kern/cuda/prim.h"
#include "prim_world.h"

/* Seeds per case; fibers are slow if each has a shadow stack. */
#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 1 };
#else
enum { SEEDS = 4 };
#endif

enum { SLOT_BYTES = 1024 };

struct tree_case {
    enum rondo_coll coll; /* ALL_REDUCE, REDUCE or BROADCAST: root 0 */
    enum rondo_proto proto;
    rondo_dtype dtype;
    enum rondo_reduce reduce;
    int leaves, deep; /* deep: rank 1 is between the root and the leaves */
    int premul, divide, in_place;
    size_t count, mis_in, mis_out;
    uint32_t threads;
    uint64_t seed, step;
};

struct tree_data {
    struct world_buffer in[WORLD_RANKS], out[WORLD_RANKS], want;
};

static uint64_t scalar_of(rondo_dtype dtype, int v)
{
    uint64_t bits = 0;
    world_put(dtype, &bits, 0, v);
    return bits;
}

static int ranks_of(const struct tree_case *c) { return 1 + c->deep + c->leaves; }
static int parent_of(const struct tree_case *c, int rank)
{
    return rank == 0 ? -1 : rank == 1 || !c->deep ? 0 : 1;
}

static struct rondo_seat seat_of(const struct tree_case *c, int rank)
{
    struct rondo_seat seat = { .index = rank,
                               .nranks = ranks_of(c),
                               .parent = parent_of(c, rank),
                               .child = { -1, -1, -1 },
                               .toward = rank == 0 ? -1 : 0 };
    for (int i = 1; i < ranks_of(c); i++) {
        if (parent_of(c, i) == rank) {
            seat.child[seat.nchildren++] = i;
        }
    }
    return seat;
}

static void add_work(struct world *w, const struct tree_case *c, int rank, const struct tree_data *d)
{
    struct rondo_launch *launch = &w->rank[rank].launch;
    struct rondo_work *work = &launch->inline_works[0];
    const size_t size = rondo_dtype_size(c->dtype);
    launch->first[1] = 1;
    *work = (struct rondo_work){ .coll = (uint8_t)c->coll,
                                 .algo = RONDO_ALGO_TREE,
                                 .proto = (uint8_t)c->proto,
                                 .dtype = (uint8_t)c->dtype,
                                 .reduce = (uint8_t)c->reduce,
                                 .premul = (uint8_t)c->premul,
                                 .divide = (uint8_t)c->divide,
                                 .elem_bytes = (uint8_t)size,
                                 .call_word = 77,
                                 .in = d->in[rank].data,
                                 .out = c->in_place ? d->in[rank].data : d->out[rank].data,
                                 .block = c->count,
                                 .len = c->count,
                                 .chunk = rondo_max_size(1, 2500 / size),
                                 .scalar = scalar_of(c->dtype, 3),
                                 .seat = seat_of(c, rank) };
    world_wire(w, &w->rank[rank].ports, work);
}

static void connect_tree(struct world *w, const struct tree_case *c)
{
    int children[WORLD_RANKS] = { 0 };
    for (int rank = 1; rank < ranks_of(c); rank++) {
        const int parent = parent_of(c, rank), port = RONDO_PORT_CHILD + children[parent]++;
        world_link_ports(w, rank, RONDO_PORT_PARENT, parent, port);
        world_link_ports(w, parent, port, rank, RONDO_PORT_PARENT);
    }
}

/* A rank's own part, as it enters the reduction. */
static void own_part(const struct tree_case *c, const struct tree_data *d, int rank, uint8_t *to)
{
    memcpy(to, d->in[rank].data, d->want.bytes);
    if (c->premul) {
        rondo_premul(to, to, c->count, c->dtype, scalar_of(c->dtype, 3));
    }
}

/* Children in their order, then the rank's own part. */
static void reduce_at(const struct tree_case *c, const struct tree_data *d, int rank, uint8_t *to)
{
    uint8_t *part[4];
    const void *srcs[4];
    int n = 0;
    for (int i = 1; i <= ranks_of(c); i++) {
        const int last = i == ranks_of(c);
        if (!last && parent_of(c, i) != rank) continue;
        part[n] = world_zeroed(d->want.bytes + 1);
        if (last) {
            own_part(c, d, rank, part[n]);
        } else {
            reduce_at(c, d, i, part[n]);
        }
        srcs[n] = part[n];
        n++;
    }
    rondo_reduce_get(c->dtype, c->reduce)(to, srcs, n, c->count);
    while (n > 0) {
        free(part[--n]);
    }
}

static void make_data(const struct tree_case *c, struct tree_data *d)
{
    const size_t bytes = c->count * rondo_dtype_size(c->dtype);
    uint64_t state = (c->seed + 1) * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < ranks_of(c); i++) {
        d->in[i] = world_buffer_new(bytes, c->mis_in);
        d->out[i] = world_buffer_new(bytes, c->mis_out);
        world_fill_bits(c->dtype, d->in[i].data, c->count, &state);
    }
    d->want = world_buffer_new(bytes, 0);
    if (c->coll == RONDO_COLL_BROADCAST) {
        memcpy(d->want.data, d->in[0].data, bytes);
        return;
    }
    reduce_at(c, d, 0, d->want.data);
    if (c->divide) {
        rondo_divide(d->want.data, c->count, c->dtype, ranks_of(c));
    }
}

static void check_and_free(const struct tree_case *c, struct tree_data *d)
{
    for (int i = 0; i < ranks_of(c); i++) {
        const struct world_buffer *got = c->in_place ? &d->in[i] : &d->out[i];
        if (i == 0 || c->coll != RONDO_COLL_REDUCE) {
            assert_memory_equal(got->data, d->want.data, d->want.bytes);
        }
    }
    for (int i = 0; i < ranks_of(c); i++) {
        world_buffer_free(&d->in[i]);
        world_buffer_free(&d->out[i]);
    }
    world_buffer_free(&d->want);
}

static void try_tree(struct tree_case c)
{
    static const uint32_t threads[] = { 64, 96, 160, 320 };
    struct world *w = world_new(ranks_of(&c), c.step, SLOT_BYTES);
    struct tree_data d;
    c.threads = c.threads != 0 ? c.threads : threads[c.seed / 4 % RONDO_COUNTOF(threads)];
    if (getenv("RONDO_TEST_VERBOSE") != NULL) {
        print_message("%d proto %d dtype %d op %d leaves %d deep %d premul %d divide %d in place %d count "
                      "%zu mis %zu %zu threads %u seed "
                      "%llu step %llx\n",
                      (int)c.coll, (int)c.proto, (int)c.dtype, (int)c.reduce, c.leaves, c.deep, c.premul,
                      c.divide, c.in_place, c.count, c.mis_in, c.mis_out, c.threads,
                      (unsigned long long)c.seed, (unsigned long long)c.step);
    }
    make_data(&c, &d);
    connect_tree(w, &c);
    for (int i = 0; i < w->n; i++) {
        add_work(w, &c, i, &d);
    }
    world_run_well(w, c.seed, c.threads);
    world_assert_even(w);
    check_and_free(&c, &d);
    world_free(w);
}

static void steps_have_up_to_three_connections_each_way(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_REDUCE, RONDO_COLL_BROADCAST };
    uint64_t seed = 0;
    (void)state;
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        for (int i = 0; i < 6 * 3; i++) {
            for (int again = 0; again < 5; again++) {
                try_tree((struct tree_case){ .coll = colls[i / 6],
                                             .proto = (enum rondo_proto)proto,
                                             .dtype = RONDO_INT32,
                                             .leaves = 1 + i % 3,
                                             .deep = i / 3 % 2,
                                             .count = 1300,
                                             .seed = seed++,
                                             .in_place = again == 4 });
            }
        }
    }
}

/* Lengths around each boundary: words, 16 bytes, lines, rows of lines, what threads hold at once, slots. */
static void slices_of_every_length_and_alignment_are_exact(void **state)
{
    static const size_t lengths[] = { 0,    1,    2,    7,    8,    9,    15,   16,   17,   31,
                                      33,   119,  120,  121,  127,  128,  129,  240,  479,  480,
                                      481,  511,  512,  513,  959,  960,  961,  1023, 1024, 1025,
                                      1919, 1920, 1921, 2048, 2499, 2500, 2501, 9000 };
    (void)state;
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        for (size_t i = 0; i < RONDO_COUNTOF(lengths); i++) {
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                struct tree_case c = { .coll = RONDO_COLL_ALL_REDUCE,
                                       .proto = (enum rondo_proto)proto,
                                       .dtype = RONDO_UINT8,
                                       .leaves = 1 + (int)(i % 2),
                                       .count = lengths[i],
                                       .seed = seed + 4 * (i % 3),
                                       .in_place = seed == 2 };
                c.mis_in = (i * 7 + seed * 5) % 17;
                c.mis_out = seed % 2 == 0 ? c.mis_in : (i * 3 + seed) % 16;
                try_tree(c);
            }
        }
    }
}

static void every_type_and_operation_is_exact(void **state)
{
    uint64_t seed = 0;
    (void)state;
    for (int dtype = 0; dtype < RONDO_DEVICE_DTYPES; dtype++) {
        for (int op = 0; op < RONDO_DEVICE_REDUCES; op++) {
            for (int i = 0; i < 2 * RONDO_NUM_PROTOS; i++) {
                struct tree_case c = { .coll = RONDO_COLL_ALL_REDUCE,
                                       .proto = (enum rondo_proto)(i / 2),
                                       .dtype = (rondo_dtype)dtype,
                                       .reduce = (enum rondo_reduce)op,
                                       .leaves = 2,
                                       .count = i % 2 == 0 ? 5 : 333,
                                       .seed = seed++,
                                       .threads = 64 };
                c.premul = op == RONDO_REDUCE_SUM && i % 3 == 0;
                c.divide = op == RONDO_REDUCE_SUM && i % 3 == 1;
                c.mis_in = seed % 3 * rondo_dtype_size(c.dtype);
                try_tree(c);
            }
        }
    }
}

static void steps_may_wrap(void **state)
{
    static const uint64_t steps[] = { 0x7ffffff4ull, 0x7ffffff8ull, 0xfffffff2ull, 0xfffffff7ull,
                                      0x1fffffff5ull };
    (void)state;
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        for (size_t i = 0; i < RONDO_COUNTOF(steps); i++) {
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                try_tree((struct tree_case){ .coll = RONDO_COLL_ALL_REDUCE,
                                             .proto = (enum rondo_proto)proto,
                                             .dtype = RONDO_INT64,
                                             .leaves = 2,
                                             .count = 2200,
                                             .seed = seed,
                                             .step = steps[i] });
            }
        }
    }
}

/* ---- misaligned places ---- */

/* Two warps add two sources into two destinations, each misaligned as the case says. They touch no byte
 * around them. */
struct apart_case {
    uint32_t off[4];
    size_t bytes;
    uint8_t *place[4];
};

enum { APART_THREADS = 2 * RONDO_WARP };

static void apart_body(void *arg, void *shared)
{
    const struct apart_case *c = arg;
    const uint8_t *const src[] = { c->place[0], c->place[1] };
    uint8_t *const dst[] = { c->place[2], c->place[3] };
    const struct rondo_mix mix = { .nsrc = 2, .ndst = 2, .own = 2 };
    (void)shared;
    rondo_move_simple(src, dst, &mix, 0, c->bytes, rondo_block_tid(), APART_THREADS, RONDO_UINT8,
                      RONDO_REDUCE_SUM);
}

/* @return accesses of 16 bytes. */
static uint64_t try_apart(struct apart_case *c, uint64_t seed)
{
    const struct rondo_sim_rules rules = { .seed = seed, .delayed = seed % 2 == 1, .patience = 20000 };
    struct rondo_sim_grid grid = { apart_body, c, 1, APART_THREADS, 0 };
    struct rondo_sim_result result;
    uint8_t *memory[4];
    for (int k = 0; k < 4; k++) {
        memory[k] = malloc(c->off[k] + c->bytes + 1); /* exactly as long, for AddressSanitizer */
        assert_non_null(memory[k]);
        assert_int_equal((uintptr_t)memory[k] % 16, 0);
        c->place[k] = memory[k] + c->off[k];
        for (size_t i = 0; i < c->off[k] + c->bytes + 1; i++)
            memory[k][i] = (uint8_t)(k < 2 ? i * (size_t)(3 + k) + (i >> 7) : 0xa5);
    }
    rondo_sim_run(&rules, &grid, 1, &result);
    assert_string_equal(result.why, "");
    for (int k = 2; k < 4; k++) {
        for (size_t i = 0; i < c->off[k]; i++) assert_int_equal(memory[k][i], 0xa5);
        for (size_t i = 0; i < c->bytes; i++)
            assert_int_equal(c->place[k][i], (uint8_t)(c->place[0][i] + c->place[1][i]));
        assert_int_equal(c->place[k][c->bytes], 0xa5);
    }
    for (int k = 0; k < 4; k++) free(memory[k]);
    return result.plain16;
}

/* All of a slice but its ends moves 16 bytes at a time, whatever the alignment: rows shorter than, equal to
 * and longer than what two warps do at once. */
static void misaligned_slices_move_in_vectors(void **state)
{
    static const size_t lengths[] = {
        40, 47, 48, 49, 500, RONDO_ROW_VECTORS * 2 * 31 * 16 - 8, RONDO_ROW_VECTORS * 2 * 31 * 16 + 60, 9000
    };
    (void)state;
    for (uint32_t i = 0; i < 16 * SEEDS; i++) {
        for (size_t l = 0; l < RONDO_COUNTOF(lengths); l++) {
            struct apart_case c = { .off = { i % 16, (i * 7 + (uint32_t)l) % 16, (i * 3 + 1) % 16,
                                             (i * 5 + 2 * (uint32_t)l) % 16 },
                                    .bytes = lengths[l] };
            const uint64_t vectors = c.bytes / 16 - 2, rows = vectors / (RONDO_WARP - 1) + 1;
            assert_true(try_apart(&c, i % 3 == 0 ? 0 : i) + 2 * rows >=
                        4 * vectors); /* per row, each destination has one vector in two parts */
        }
    }
}

/* ---- what a waiting block shows ---- */

static int says(const struct rondo_gpu_words *words, int32_t peer, uint32_t port, enum rondo_prim_waits waits,
                uint64_t step)
{
    return words->block[0].peer == peer && words->block[0].port == port && words->block[0].waits == waits &&
           words->block[0].step == step;
}

/* One thread of each of two teams, in turn. */
static void show_waits(void *arg, void *shared)
{
    struct rondo_gpu_words *words = arg;
    (void)shared;
    if (rondo_block_tid() != 0) return;
    for (int i = 0; i < 3; i++) { /* both are stuck: the host sees the same wait whenever it looks */
        rondo_words_wait_begin(words, 3, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA, 5);
        assert_true(says(words, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA, 5));
        rondo_words_wait_begin(words, 3, 2, RONDO_PORT_PEER, RONDO_WAITS_DATA, 9);
        rondo_words_wait_begin(words, 3, 1, RONDO_PORT_PEER, RONDO_WAITS_CREDIT, 7);
        assert_true(says(words, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA, 5));
    }
    rondo_words_wait_end(words, 2, RONDO_PORT_PEER, RONDO_WAITS_DATA); /* somebody else's wait ends */
    assert_true(says(words, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA, 5));
    rondo_words_wait_begin(words, 3, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA,
                           6); /* the next step of the same connection */
    assert_true(says(words, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA, 6));
    rondo_words_wait_end(words, 1, RONDO_PORT_PEER, RONDO_WAITS_DATA);
    assert_true(says(words, -1, 0, RONDO_WAITS_NOT, 0));
    rondo_words_wait_begin(words, 3, 1, RONDO_PORT_PEER, RONDO_WAITS_CREDIT, 7); /* the next wait is shown */
    assert_true(says(words, 1, RONDO_PORT_PEER, RONDO_WAITS_CREDIT, 7));
    assert_true(words->block[0].waited == 3);
}

static void the_first_wait_of_a_block_is_shown_until_it_ends(void **state)
{
    static struct rondo_gpu_words words;
    const struct rondo_sim_rules rules = { .whole_lines = 1 };
    const struct rondo_sim_grid grid = { show_waits, &words, 1, RONDO_WARP, 0 };
    struct rondo_sim_result result;
    (void)state;
    rondo_sim_run(&rules, &grid, 1, &result);
    assert_int_equal(result.end, RONDO_SIM_ENDED);
}

/* ---- the call word ---- */

enum { CALL_WORD = 9, FIRST_BYTES = 8, CALL_SEEDS = 300 };
struct first_slice {
    struct world *w;
    struct rondo_work work;
    enum rondo_proto proto;
    int accepted;
};

/* Block 0 writes the call word and a first line's flag, block 1 checks the word. */
static void begin_and_check(void *arg, void *shared)
{
    struct first_slice *f = arg;
    const int is_to = rondo_block_index() == 0;
    struct world_link *l = &f->w->link[0];
    struct rondo_prim_conn c = { .conn = is_to ? l->sender : l->receiver };
    struct rondo_prim p = { .shared = shared, .work = &f->work, .words = &f->w->rank[!is_to].words };
    uint64_t flag;
    if (rondo_block_tid() != 0) return;
    if (!is_to) {
        f->accepted = rondo_prim_check_call(&p, &c, RONDO_PORT_PEER, f->proto);
        return;
    }
    rondo_prim_begin_slice(&p, &c, FIRST_BYTES, f->proto);
    flag = rondo_prim_flag(f->proto, c.conn.step);
    rondo_store_pair((rondo_word *)rondo_conn_slot(&c.conn, f->proto) + (f->proto == RONDO_PROTO_LL ? 0 : 14),
                     flag, flag);
}

/* A receiver may see the first line of the data before the call word, which was written earlier: it must look
 * at the word again, and never take the old one for another call. */
static void a_call_word_is_never_older_than_the_data(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CALL_SEEDS; seed++) {
        const enum rondo_proto proto = seed % 2 == 0 ? RONDO_PROTO_LL : RONDO_PROTO_LL128;
        const struct rondo_sim_rules rules = world_rules(4 * seed + 2, proto);
        struct first_slice f = { .w = world_new(2, 0, SLOT_BYTES),
                                 .work.call_word = CALL_WORD,
                                 .proto = proto };
        const struct rondo_sim_grid grid = { begin_and_check, &f, 2, RONDO_WARP,
                                             sizeof(struct rondo_prim_shared) };
        struct rondo_sim_result result;
        (void)world_connect(f.w, 0, 1);
        rondo_sim_run(&rules, &grid, 1, &result);
        assert_string_equal(result.why, "");
        assert_int_equal(f.accepted, 1);
        world_free(f.w);
    }
}

/* ---- leaving ---- */

enum { LEAVE_SEEDS = 240, LEAVE_SLOT_BYTES = 16 << 10 }; /* lines for each of the warps */

/* A team that waits for a slice which never comes. */
struct leaving {
    struct world *w;
    struct rondo_work work;
    struct rondo_prim_shared shared;
    struct rondo_prim_conn conn[2 * RONDO_NUM_PORTS];
    uint64_t pause;
    int stayed;
};

/* Block 0 is the team. Block 1 is what another warp may do at any time: it leaves. */
static void wait_and_leave(void *arg, void *shared)
{
    struct leaving *l = arg;
    struct rondo_gpu_words *words = &l->w->rank[1].words;
    struct rondo_prim p = {
        .shared = &l->shared, .conns = l->conn, .work = &l->work, .words = words, .slice = 1
    };
    uint32_t spins = 0;
    (void)shared;
    if (rondo_block_index() == 0) {
        int stays;
        rondo_prim_team(&p, rondo_block_tid(), rondo_block_threads(), 1, 0);
        stays = rondo_prim_pass(&p, RONDO_UINT8, (enum rondo_reduce)RONDO_MOVES_ONLY, RONDO_PROTO_LL128);
        if (rondo_block_tid() == 0) l->stayed = stays;
    } else if (rondo_block_tid() == 0) {
        for (uint64_t i = 0; i < l->pause; i++) (void)rondo_breath(&l->w->rank[0].words, &spins);
        rondo_prim_leave(&p);
        rondo_store_relaxed32(&words->abort, 1);
    }
}

/* Some lanes of a warp may see that another warp leaves, others not yet. */
static void lanes_of_a_warp_leave_together(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= LEAVE_SEEDS; seed++) {
        const struct rondo_sim_rules rules = world_rules(4 * seed + 1, RONDO_PROTO_LL128);
        struct world_buffer out = world_buffer_new(rondo_proto_capacity(RONDO_PROTO_LL128, LEAVE_SLOT_BYTES),
                                                   0);
        struct leaving *l = world_zeroed(sizeof(*l));
        const struct rondo_sim_grid grid = { wait_and_leave, l, 2, 3 * RONDO_WARP, 0 };
        struct rondo_sim_result result;
        l->w = world_new(2, 0, LEAVE_SLOT_BYTES);
        l->work.call_word = CALL_WORD;
        l->pause = seed % 12;
        l->conn[RONDO_PORT_RING].conn = world_connect(l->w, 0, 1)->receiver;
        l->conn[RONDO_PORT_RING].called = 1;
        l->shared.slice[1] = (struct rondo_slice){ .out = out.data,
                                                   .bytes = out.bytes,
                                                   .nfrom = 1,
                                                   .from = RONDO_PORT_RING,
                                                   .mix = { .nsrc = 1, .ndst = 1, .own = 1 } };
        rondo_sim_run(&rules, &grid, 1, &result);
        assert_string_equal(result.why, "");
        assert_int_equal(l->stayed, 0);
        world_free(l->w);
        free(l);
        world_buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_up_to_three_connections_each_way),
        cmocka_unit_test(slices_of_every_length_and_alignment_are_exact),
        cmocka_unit_test(every_type_and_operation_is_exact),
        cmocka_unit_test(steps_may_wrap),
        cmocka_unit_test(misaligned_slices_move_in_vectors),
        cmocka_unit_test(the_first_wait_of_a_block_is_shown_until_it_ends),
        cmocka_unit_test(a_call_word_is_never_older_than_the_data),
        cmocka_unit_test(lanes_of_a_warp_leave_together),
    };
#ifdef __SANITIZE_THREAD__
    (void)tests;
    puts("skipped: all of it runs in one OS thread, and ThreadSanitizer makes fibers slowly");
    return 77;
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
