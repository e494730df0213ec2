/* Every kernel of kern/cuda/kernel_list.h, or with FAKE_CUDA_PTX every kernel of that file, runs on the
 * simulated machine and gives the bits of a reference; the program counts which have run.
 *
 *   unit_sweep                each kernel once, and a few random cases
 *   unit_sweep --every        each kernel with 1 to 4 blocks, in place and not; sums also averaged and
 *                             premultiplied
 *   unit_sweep --cases 10000 [--seed S]   that many random cases: kernel, collective, algorithm, ranks,
 *                             blocks, works of a launch, sizes, misalignment, threads, delays, ..
 *   unit_sweep --case S, unit_sweep --every --kernel NAME   one case or kernel: what a failure prints
 *
 * Two kinds of elements, in turn. Exact ones: integers are random bits, sums of floats have few bits,
 * products are powers of two, so that every order gives the bits of kern/reduce.h, the reductions of host
 * memory. Any bits, NaN and infinity included, for floats: then PTX gives what the same kernel in C gives. */
#define RONDO_MACHINE_SIM 1
#include "sweep_case.h"

#include <getopt.h>

#include "coll/oneshot.h"
#include "kern/cuda/kernel_list.h"

enum { MOST_KERNELS = 400, SHORT_CASES = 30 };

/* ---- the kernels ---- */

#define NAME_(name, proto, body) #name,
#define NAMES_OF_TYPE_(ctx, type, ...) RONDO_KERNELS_OF_TYPE(NAME_, type)
static const char *const listed[] = { RONDO_DEVICE_DTYPE_TABLE(NAMES_OF_TYPE_, )
                                          RONDO_KERNELS_THAT_MOVE(NAME_) };

static struct {
    const char *name[MOST_KERNELS];
    uint64_t launches[MOST_KERNELS]; /* by this program */
    int n;
} kernels;

static void find_kernels(void)
{
    const struct ptx_module *ptx = sim_kernel_ptx();
    const int n = ptx != NULL ? ptx_count(ptx) : (int)RONDO_COUNTOF(listed);
    assert_in_range(n, 1, MOST_KERNELS);
    for (int i = 0; i < n; i++) {
        kernels.name[i] = ptx != NULL ? ptx_name(ptx, i) : listed[i];
        if (sim_kernel_find(kernels.name[i]).kind == SIM_KERNEL_NONE)
            fail_msg("unknown: %s", kernels.name[i]);
    }
    kernels.n = n;
}

static void assert_all_have_run(void)
{
    const struct ptx_module *ptx = sim_kernel_ptx();
    uint64_t launches = 0;
    for (int i = 0; i < kernels.n; i++) {
        const uint64_t ran = ptx != NULL ? ptx_runs(ptx, i) : kernels.launches[i];
        if (ran == 0 || kernels.launches[i] == 0) fail_msg("%s has not run", kernels.name[i]);
        launches += ran;
    }
    print_message("%d kernels have run%s, in %llu launches\n", kernels.n, ptx != NULL ? " as PTX" : "",
                  (unsigned long long)launches);
}

/* ---- works ---- */

static struct rondo_ports *ports_of(const struct job *j, int rank, int block)
{
    return &j->ports[rank * j->s->nblocks + block];
}

static void link_ports(struct job *j, int block, int from, int from_port, int to, int to_port)
{
    struct world_link *l = world_connect(j->w, from, to);
    ports_of(j, from, block)->send[from_port] = &l->sender;
    ports_of(j, to, block)->recv[to_port] = &l->receiver;
}

static int parent_of(const struct sweep *s, int rank) { return rank == 0 ? -1 : (rank - 1) / s->fan; }

static int has_rings(const struct sweep *s)
{
    return s->algo != RONDO_ALGO_TREE && s->algo != RONDO_ALGO_DOUBLING;
}

static void connect_ranks(struct job *j)
{
    const struct sweep *s = j->s;
    for (int block = 0; block < s->nblocks; block++) {
        int children[MOST_RANKS] = { 0 };
        for (int i = 0; i < s->n && s->n > 1 && has_rings(s); i++) {
            link_ports(j, block, j->rank_at[i], RONDO_PORT_RING, j->rank_at[(i + 1) % s->n], RONDO_PORT_RING);
        }
        for (int r = 1; r < s->n && s->algo == RONDO_ALGO_TREE; r++) {
            const int parent = parent_of(s, r), port = RONDO_PORT_CHILD + children[parent]++;
            link_ports(j, block, r, RONDO_PORT_PARENT, parent, port);
            link_ports(j, block, parent, port, r, RONDO_PORT_PARENT);
        }
        for (int r = 0; r < s->n && s->algo == RONDO_ALGO_DOUBLING;
             r++) { /* port i leads to port i of the peer */
            for (uint32_t i = 0; i < rondo_doubling_ports(s->n); i++) {
                const int peer = rondo_doubling_peer(r, s->n, i), port = RONDO_PORT_DIM + (int)i;
                if (peer >= 0) link_ports(j, block, r, port, peer, port);
            }
        }
    }
}

static struct rondo_seat seat_of(const struct job *j, const struct call *c, int rank)
{
    const struct sweep *s = j->s;
    struct rondo_seat seat = { .index = j->place_of[rank],
                               .nranks = s->n,
                               .root = j->place_of[c->root],
                               .parent = -1,
                               .child = { -1, -1, -1 } };
    if (s->algo != RONDO_ALGO_TREE) return seat;
    seat.parent = parent_of(s, rank);
    for (int i = 1; i < s->n; i++) {
        if (parent_of(s, i) == rank) seat.child[seat.nchildren++] = i;
    }
    seat.toward = rank == seat.root ? -1 : 0;
    for (int at = seat.root; at > 0; at = parent_of(s, at)) { /* is the root below one of the children? */
        for (int i = 0; i < seat.nchildren; i++) seat.toward = seat.child[i] == at ? 1 + i : seat.toward;
    }
    return seat;
}

/* A rank's buffer as a region, which all ranks have mapped at its address. */
static uint8_t put_region(struct job *j, int rank, int number, const struct world_buffer *b, int open)
{
    struct rondo_gpu_region *region = &j->direct[rank]->region[number];
    *region = (struct rondo_gpu_region){ .open = (uint64_t)open,
                                         .base = (uint64_t)(uintptr_t)b->data,
                                         .bytes = b->bytes };
    for (int r = 0; r < RONDO_DIRECT_RANKS; r++) region->at[r] = region->base;
    return (uint8_t)number;
}

static void put_regions(struct job *j, int k, int rank, struct rondo_work *w)
{
    const struct call *c = &j->s->call[k];
    const struct buffers *b = &j->b[k][rank];
    const int open = c->open == 1 || (c->open == 2 && rank != (int)(j->s->seed % (uint64_t)j->s->n));
    const struct world_buffer *larger = b->out.bytes > b->in.bytes ? &b->out : &b->in;
    w->in_region = put_region(j, rank, 1 + 2 * k, c->in_place ? larger : &b->in, open);
    w->out_region = put_region(j, rank, 2 + 2 * k, c->in_place ? larger : &b->out, open);
}

/* The elements of a block of the grid, and how they go in pieces. */
static void share_out(const struct job *j, const struct call *c, int block, struct rondo_work *w)
{
    const struct sweep *s = j->s;
    const size_t size = rondo_dtype_size(s->dtype), line = RONDO_CACHE_LINE / size,
                 part = rondo_round_up((c->count + (size_t)s->nblocks - 1) / (size_t)s->nblocks, line);
    const size_t capacity = rondo_proto_capacity(s->kernel.proto, SLOT_BYTES) / size;
    w->off = rondo_min_size(part * (size_t)block, c->count);
    w->len = rondo_min_size(part, c->count - w->off);
    w->chunk = capacity * (s->algo == RONDO_ALGO_TREE ? 1 : 3) - (s->seed % 2 == 1 && capacity > 5 ? 5 : 0);
    if (s->kernel.direct) {
        const int blocks = c->coll == RONDO_COLL_ALL_GATHER || c->coll == RONDO_COLL_REDUCE_SCATTER;
        w->chunk = rondo_round_up(blocks ? w->len : (w->len + (size_t)s->n - 1) / (size_t)s->n, line);
        w->chunk = rondo_max_size(w->chunk, line);
    }
}

static void add_work(struct job *j, int k, int rank, int block)
{
    const struct sweep *s = j->s;
    const struct call *c = &s->call[k];
    struct rondo_work *w = &j->works[rank][block * s->ncalls + k];
    *w = (struct rondo_work){ .coll = (uint8_t)c->coll,
                              .algo = (uint8_t)s->algo,
                              .proto = (uint8_t)s->kernel.proto,
                              .dtype = (uint8_t)s->dtype,
                              .reduce = (uint8_t)s->kernel.reduce,
                              .divide = (uint8_t)c->avg,
                              .premul = (uint8_t)c->premul,
                              .scalar = c->premul ? scalar_of(s, rank) : 0,
                              .elem_bytes = (uint8_t)rondo_dtype_size(s->dtype),
                              .call_word = rondo_call_word((uint64_t)k, c->count * 31 + (uint64_t)c->coll),
                              .channel = (uint32_t)block,
                              .in = input_of(j, k, rank),
                              .out = output_of(j, k, rank),
                              .block_rank = s->shuffled ? j->rank_at : NULL,
                              .block = c->count,
                              .seat = seat_of(j, c, rank) };
    share_out(j, c, block, w);
    if (s->kernel.direct) {
        put_regions(j, k, rank, w);
    } else {
        world_wire(j->w, ports_of(j, rank, block), w);
    }
}

/* Works of a block: the most that any has. */
static int most_messages(const struct sweep *s) { return 2 * ((s->n + s->nblocks - 1) / s->nblocks); }

/* Everyone sends to and receives from everyone, itself included; LL and Simple side by side. The messages to
 * ranks `delta` further on have one block and one count. */
static void add_messages(struct job *j)
{
    const struct sweep *s = j->s;
    for (int r = 0; r < s->n; r++) {
        for (int delta = 0; delta < s->n; delta++) {
            const int to = (r + delta) % s->n, block = delta % s->nblocks,
                      at = most_messages(s) * block + 2 * (delta / s->nblocks);
            struct world_link *l = world_connect(j->w, r, to);
            struct rondo_work w = { .coll = RONDO_COLL_SEND,
                                    .algo = RONDO_ALGO_P2P,
                                    .proto = (delta + (int)(s->seed % 2)) % 2 ? RONDO_PROTO_LL
                                                                              : RONDO_PROTO_SIMPLE,
                                    .dtype = RONDO_UINT8,
                                    .elem_bytes = 1,
                                    .call_word = rondo_call_word((uint64_t)delta, 9),
                                    .channel = (uint32_t)block,
                                    .in = j->b[0][r].in.data,
                                    .block = s->call[delta % MOST_CALLS].count,
                                    .len = s->call[delta % MOST_CALLS].count,
                                    .chunk = 300,
                                    .conns = &l->sender,
                                    .seat = { .nranks = s->n, .parent = -1 } };
            j->works[r][at] = w;
            w.coll = RONDO_COLL_RECV;
            w.in = NULL;
            w.out = j->b[0][to].out.data + (size_t)r * MOST_COUNT;
            w.conns = &l->receiver;
            j->works[to][at + 1] = w;
        }
    }
}

static void check_messages(const struct job *j)
{
    const struct sweep *s = j->s;
    for (int r = 0; r < s->n; r++) {
        for (int delta = 0; delta < s->n; delta++) {
            const size_t n = s->call[delta % MOST_CALLS].count;
            const uint8_t *got = j->b[0][(r + delta) % s->n].out.data + (size_t)r * MOST_COUNT;
            assert_equal(s, "sent was", r, got, j->b[0][r].own.data, n);
            for (size_t i = n; i < MOST_COUNT; i++) assert_int_equal(got[i], 0x5a);
        }
    }
}

/* ---- a run ---- */

static int is_p2p(const struct sweep *s) { return s->kernel.kind == SIM_KERNEL_P2P; }

static void make_order(struct job *j)
{
    uint64_t random = started(j->s->seed, 7);
    for (int i = 0; i < j->s->n; i++) j->rank_at[i] = i;
    for (int i = j->s->n - 1; i > 0 && j->s->shuffled; i--) {
        const int other = (int)below(&random, (uint64_t)i + 1), mine = j->rank_at[i];
        j->rank_at[i] = j->rank_at[other];
        j->rank_at[other] = mine;
    }
    for (int i = 0; i < j->s->n; i++) j->place_of[j->rank_at[i]] = i;
}

static void make_direct(struct job *j)
{
    const struct sweep *s = j->s;
    const size_t slot_bytes = rondo_oneshot_slot_bytes(STAGE_BYTES, (size_t)s->n);
    for (int r = 0; r < s->n; r++) {
        j->cell[r] = world_zeroed(sizeof(struct rondo_gpu_cell) * (size_t)(s->nblocks * s->n));
        j->stage[r] = world_zeroed(2 * STAGE_BYTES * (size_t)s->nblocks);
        j->slots[r] = world_zeroed(2 * slot_bytes * (size_t)(s->n * s->nblocks));
        j->direct[r] = world_zeroed(sizeof(*j->direct[r]));
        j->w->rank[r].launch.direct = j->direct[r];
    }
    for (int r = 0; r < s->n; r++) {
        struct rondo_gpu_reach *reach = &j->direct[r]->reach;
        *reach = (struct rondo_gpu_reach){ .nranks = (uint32_t)s->n,
                                           .index = (uint32_t)r,
                                           .stage_bytes = STAGE_BYTES,
                                           .slot_bytes = slot_bytes };
        memcpy(reach->cell, j->cell, sizeof(j->cell));
        memcpy(reach->stage, j->stage, sizeof(j->stage));
        memcpy(reach->slots, j->slots, sizeof(j->slots));
    }
}

static void set_works(struct job *j, int rank)
{
    const struct sweep *s = j->s;
    struct rondo_launch *launch = &j->w->rank[rank].launch;
    int each[MOST_BLOCKS], at = 0;
    for (int b = 0; b < s->nblocks; b++) {
        each[b] = is_p2p(s) ? 2 * ((s->n - b + s->nblocks - 1) / s->nblocks) : s->ncalls;
    }
    launch->nblocks = (uint32_t)s->nblocks;
    for (int b = 0; b < s->nblocks; b++) {
        const int from = b * (is_p2p(s) ? most_messages(s) : s->ncalls);
        memcpy(&launch->inline_works[at], &j->works[rank][from], (size_t)each[b] * sizeof(struct rondo_work));
        at += each[b];
        launch->first[b + 1] = (uint16_t)at;
    }
    if (s->apart) {
        memcpy(j->works[rank], launch->inline_works, (size_t)at * sizeof(struct rondo_work));
        memset(launch->inline_works, 0xee, sizeof launch->inline_works);
        launch->works = j->works[rank];
    }
}

static void make_job(struct job *j, const struct sweep *s)
{
    memset(j, 0, sizeof *j);
    j->s = s;
    j->w = world_new(s->n, s->step, SLOT_BYTES);
    j->ports = world_zeroed(sizeof(*j->ports) * MOST_RANKS * MOST_BLOCKS);
    make_order(j);
    if (s->kernel.direct) make_direct(j);
    for (int r = 0; r < s->n; r++) {
        j->works[r] = world_zeroed(sizeof(struct rondo_work) * RONDO_LAUNCH_INLINE);
        for (int k = 0; k < s->ncalls; k++) make_buffers(j, k, r);
    }
    if (is_p2p(s)) {
        add_messages(j);
    } else {
        if (!s->kernel.direct) connect_ranks(j);
        for (int i = 0; i < s->n * s->nblocks * s->ncalls; i++) {
            add_work(j, i % s->ncalls, i / s->ncalls % s->n, i / s->ncalls / s->n);
        }
    }
    for (int r = 0; r < s->n; r++) set_works(j, r);
}

static void free_job(struct job *j)
{
    for (int r = 0; r < j->s->n; r++) {
        for (int k = 0; k < j->s->ncalls; k++) {
            world_buffer_free(&j->b[k][r].in);
            world_buffer_free(&j->b[k][r].out);
            world_buffer_free(&j->b[k][r].own);
        }
        free(j->works[r]);
        free(j->cell[r]);
        free(j->stage[r]);
        free(j->slots[r]);
        free(j->direct[r]);
    }
    free(j->ports);
    world_free(j->w);
}

static void run_job(struct job *j, int in_c)
{
    const struct sweep *s = j->s;
    const struct rondo_sim_rules rules = world_rules(s->seed, s->kernel.proto);
    struct sim_kernel_run run[WORLD_RANKS];
    struct rondo_sim_grid grid[WORLD_RANKS];
    struct rondo_sim_result result;
    for (int r = 0; r < s->n; r++) {
        run[r] =
            (struct sim_kernel_run){ .kernel = s->kernel, .launch = &j->w->rank[r].launch, .in_c = in_c };
        grid[r] = sim_kernel_grid(&run[r], s->threads);
    }
    rondo_sim_run(&rules, grid, s->n, &result);
    if (result.end != RONDO_SIM_ENDED) {
        fail_msg("%s: %s: unit_sweep %s", s->name, result.why, s->repeat);
    }
    for (int r = 0; r < s->n; r++) {
        assert_int_equal(j->w->rank[r].words.fault, RONDO_GPU_FINE);
        for (int b = 0; b < s->nblocks; b++) {
            assert_true(j->w->rank[r].words.block[b].ended == j->w->rank[r].launch.serial);
            assert_int_equal(j->w->rank[r].words.block[b].waited, 0); /* only a long wait tells the host */
        }
    }
    world_assert_even(j->w);
}

static void try_case(const struct sweep *s)
{
    struct job j, in_c;
    if (getenv("RONDO_TEST_VERBOSE") != NULL) {
        print_message(
            "case %llu: %s, coll %d algo %d, %d ranks, %d blocks of %u threads, %d calls, count %zu, "
            "in place %d, avg %d, premul %d, mis %zu %zu, step %llx, open %d, apart %d, shuffled %d, any "
            "%d\n",
            (unsigned long long)s->seed, s->name, (int)s->call[0].coll, (int)s->algo, s->n, s->nblocks,
            s->threads, s->ncalls, s->call[0].count, s->call[0].in_place, s->call[0].avg, s->call[0].premul,
            s->mis[0], s->mis[1], (unsigned long long)s->step, s->call[0].open, s->apart, s->shuffled,
            s->any);
    }
    make_job(&j, s);
    run_job(&j, 0);
    if (is_p2p(s)) {
        check_messages(&j);
    } else if (s->any) {
        make_job(&in_c, s);
        run_job(&in_c, 1);
        compare_jobs(&j, &in_c);
        free_job(&in_c);
    } else {
        check_buffers(&j);
    }
    free_job(&j);
}

/* ---- which cases ---- */

static const struct {
    enum rondo_coll coll;
    enum rondo_algo algo;
} ways[] = {
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ORDERED },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_DOUBLING },
    { RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_RING },
    { RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_ORDERED },
    { RONDO_COLL_REDUCE, RONDO_ALGO_RING },
    { RONDO_COLL_REDUCE, RONDO_ALGO_TREE },
    { RONDO_COLL_REDUCE, RONDO_ALGO_ORDERED },
    { RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING },
    { RONDO_COLL_BROADCAST, RONDO_ALGO_RING },
    { RONDO_COLL_BROADCAST, RONDO_ALGO_TREE },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TWOSHOT },
    { RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT },
    { RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_TWOSHOT },
    { RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_ONESHOT },
    { RONDO_COLL_REDUCE, RONDO_ALGO_TWOSHOT },
    { RONDO_COLL_REDUCE, RONDO_ALGO_ONESHOT },
    { RONDO_COLL_ALL_GATHER, RONDO_ALGO_TWOSHOT },
    { RONDO_COLL_ALL_GATHER, RONDO_ALGO_ONESHOT },
    { RONDO_COLL_BROADCAST, RONDO_ALGO_TWOSHOT },
    { RONDO_COLL_BROADCAST, RONDO_ALGO_ONESHOT },
};

/* Does the kernel carry the collective by the algorithm? algo -1: by any. */
static int carries(const struct sim_kernel *k, size_t way, int algo)
{
    const struct rondo_work w = { .coll = (uint8_t)ways[way].coll, .algo = (uint8_t)ways[way].algo };
    const struct sim_kernel of = sim_kernel_of(&w);
    return of.kind == k->kind && of.direct == k->direct &&
           (algo < 0 || ways[way].algo == (enum rondo_algo)algo);
}

static enum rondo_coll any_way(const struct sweep *s, uint64_t *random, int algo, enum rondo_algo *chosen)
{
    size_t way = below(random, RONDO_COUNTOF(ways));
    while (!carries(&s->kernel, way, algo)) way = (way + 1) % RONDO_COUNTOF(ways);
    if (chosen != NULL) *chosen = ways[way].algo;
    return ways[way].coll;
}

static void draw_call(struct sweep *s, struct call *c, uint64_t *random)
{
    static const size_t few[] = { 1, 2, 3, 29, 31, 64, 125, 128 };
    const int sums = s->kernel.kind == SIM_KERNEL_REDUCE && s->kernel.reduce == RONDO_REDUCE_SUM;
    c->count = below(random, 3) == 0 ? few[below(random, RONDO_COUNTOF(few))] : 1 + below(random, MOST_COUNT);
    c->root = (int)below(random, (uint64_t)s->n);
    c->in_place = (int)below(random, 2);
    c->open = (int)below(random, 3);
    c->avg = sums && below(random, 3) == 0;
    c->premul = sums && !c->avg && below(random, 2) == 0;
}

/* What no plan has: scalars of their own where ranks read one another's inputs (src/call/choose.c). */
static void keep_rules(struct sweep *s)
{
    for (int k = 0; k < s->ncalls; k++) {
        if (s->call[k].premul && s->kernel.direct) s->algo = RONDO_ALGO_ONESHOT;
    }
}

static struct sweep draw(int kernel, uint64_t seed)
{
    static const uint32_t threads[] = { 64, 96, 160, 64, 128, 512, 64, 256 };
    static const uint64_t steps[] = { 0, 5, 0x7ffffff0ull, 0xfffffff1ull, 0xfffffff6ull };
    uint64_t random = started(seed, 0);
    struct sweep s = { .seed = seed,
                       .name = kernels.name[kernel],
                       .kernel = sim_kernel_find(kernels.name[kernel]) };
    s.dtype = s.kernel.kind == SIM_KERNEL_REDUCE ? s.kernel.dtype
              : is_p2p(&s)                       ? RONDO_UINT8
                                                 : (rondo_dtype)below(&random, RONDO_DEVICE_DTYPES);
    s.n = (s.kernel.direct ? 2 : 1) + (int)below(&random, is_p2p(&s)        ? MESSAGE_RANKS
                                                          : s.kernel.direct ? 4
                                                                            : 5);
    s.fan = 1 + (int)below(&random, RONDO_TREE_FAN);
    s.nblocks = 1 + (int)below(&random, MOST_BLOCKS);
    s.ncalls = is_p2p(&s) ? 1 : 1 + (int)(below(&random, 4) == 0 ? below(&random, MOST_CALLS) : 0);
    s.threads = threads[below(&random, RONDO_COUNTOF(threads))];
    s.step = steps[below(&random, RONDO_COUNTOF(steps))];
    s.apart = (int)below(&random, 3) == 0;
    s.mis[0] = below(&random, 5);
    s.mis[1] = below(&random, 2) * below(&random, 5);
    s.any = is_float[s.dtype] && s.kernel.kind == SIM_KERNEL_REDUCE && below(&random, 2) == 0;
    for (int k = 0; k < MOST_CALLS; k++) {
        draw_call(&s, &s.call[k], &random);
        s.call[k].coll = RONDO_COLL_SEND;
        if (!is_p2p(&s)) {
            s.call[k].coll = any_way(&s, &random, k == 0 || s.kernel.direct ? -1 : (int)s.algo,
                                     k == 0 ? &s.algo : NULL);
        }
    }
    s.shuffled = s.algo == RONDO_ALGO_RING && !is_p2p(&s) && below(&random, 2) == 0;
    if (is_p2p(&s)) s.nblocks = s.nblocks < s.n ? s.nblocks : s.n;
    if (is_p2p(&s)) { /* the first call has the buffers; the others vary */
        s.call[0].count = MOST_COUNT;
        s.call[0].in_place = 0;
    }
    return s;
}

static void try_random(uint64_t seed)
{
    uint64_t random = started(seed, 1);
    const int kernel = (int)below(&random, (uint64_t)kernels.n);
    struct sweep s = draw(kernel, seed);
    snprintf(s.repeat, sizeof s.repeat, "--case %llu", (unsigned long long)seed);
    keep_rules(&s);
    try_case(&s);
    kernels.launches[kernel] += (uint64_t)s.n;
}

static struct {
    int every;
    long cases;
    uint64_t seed, one; /* one: of --case, plus 1; 0: none */
    const char *kernel; /* NULL: all */
} options = { .cases = SHORT_CASES };

/* What is demanded of a kernel; the rest is drawn. */
static void try_kernel(int kernel, int nblocks, int in_place, int avg, int premul)
{
    struct sweep s = draw(kernel, (uint64_t)(kernel * 64 + nblocks * 8 + in_place * 4 + 2 * avg + premul));
    snprintf(s.repeat, sizeof s.repeat, "--every --kernel %s", s.name);
    if (!is_p2p(&s) || nblocks <= s.n) s.nblocks = nblocks;
    for (int k = 0; k < MOST_CALLS; k++) {
        s.call[k].in_place = in_place && !is_p2p(&s);
        s.call[k].avg = avg;
        s.call[k].premul = premul;
    }
    keep_rules(&s);
    try_case(&s);
    kernels.launches[kernel] += (uint64_t)s.n;
}

static void every_kernel_gives_the_reference(void **state)
{
    (void)state;
    if (options.one != 0) return;
    for (int i = 0; i < kernels.n; i++) {
        const struct sim_kernel k = sim_kernel_find(kernels.name[i]);
        const int sums = k.kind == SIM_KERNEL_REDUCE && k.reduce == RONDO_REDUCE_SUM;
        if (options.kernel != NULL && strcmp(options.kernel, kernels.name[i]) != 0) continue;
        if (!options.every) {
            try_kernel(i, 1 + i % MOST_BLOCKS, i / 4 % 2, 0, 0);
            continue;
        }
        for (int way = 0; way < 8; way++) {
            for (int extra = 0; extra <= 2 * sums; extra++) {
                try_kernel(i, 1 + way / 2, way % 2, extra == 1, extra == 2);
            }
        }
    }
    if (options.kernel == NULL) assert_all_have_run();
}

static void random_cases_give_the_reference(void **state)
{
    (void)state;
    if (options.one != 0) try_random(options.one - 1);
    if (options.one != 0 || options.kernel != NULL) return;
    print_message("%ld random cases, seed %llu\n", options.cases, (unsigned long long)options.seed);
    for (long i = 0; i < options.cases; i++) try_random(options.seed + (uint64_t)i);
}

static int parse(int argc, char **argv)
{
    static const struct option rows[] = { { "every", 0, NULL, 'e' },  { "cases", 1, NULL, 'n' },
                                          { "seed", 1, NULL, 's' },   { "case", 1, NULL, 'c' },
                                          { "kernel", 1, NULL, 'k' }, { NULL, 0, NULL, 0 } };
    const char *seed = getenv("RONDO_TEST_SEED");
    int opt;
    if (seed != NULL) options.seed = strtoull(seed, NULL, 0);
    while ((opt = getopt_long(argc, argv, "", rows, NULL)) != -1) {
        char *end = NULL;
        const unsigned long long number = optarg != NULL ? strtoull(optarg, &end, 0) : 0;
        if (opt == '?' || (optarg != NULL && opt != 'k' && (*optarg == 0 || *end != 0))) return 0;
        if (opt == 'k') options.kernel = optarg;
        if (opt == 'e') options.every = 1;
        if (opt == 'n') options.cases = (long)number;
        if (opt == 's') options.seed = number;
        if (opt == 'c') options.one = number + 1;
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_gives_the_reference),
        cmocka_unit_test(random_cases_give_the_reference),
    };
    if (!parse(argc, argv)) {
        fputs("usage: unit_sweep [--every] [--cases N] [--seed S] [--case S] [--kernel NAME]\n", stderr);
        return 2;
    }
    rondo_sim_check_races(0); /* unit_prim and unit_block look for races; here it would take too long */
#ifdef __SANITIZE_THREAD__
    (void)tests;
    puts("skipped: all of it runs in one OS thread, and ThreadSanitizer makes fibers slowly");
    return 77;
#else
    find_kernels();
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
