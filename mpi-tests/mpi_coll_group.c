/* Groups, streams and several communicators. */
#include "mpi_coll.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PEERS 6 /* messages of one kind in one group */

/* @return a guarded buffer filled from the pattern. */
static void *pattern(const struct test_values *v, rondo_dtype type, int rank, size_t first, size_t count)
{
    void *mem = test_guard_alloc(count * test_types[type].size);
    test_values_input(v, rank, first, count, mem);
    return mem;
}

static void expect_pattern(const struct test_values *v, rondo_dtype type, int rank, size_t first,
                           size_t count, const void *got)
{
    size_t index = 0, bytes = count * test_types[type].size;
    void *want = pattern(v, type, rank, first, count);
    size_t wrong = test_values_wrong(v, got, want, count, &index);
    test_check(wrong == 0 && test_guard_intact(got, bytes),
               "%zu of %zu elements from rank %d wrong, first at %zu; guards %s", wrong, count, rank, index,
               test_guard_intact(got, bytes) ? "intact" : "overwritten");
    test_guard_free(want);
}

static size_t random_count(const struct coll_run *run, uint64_t hash)
{
    static const size_t kinds[] = { 0, 1, 7, 1000, 20000, 300000 };
    size_t most = kinds[hash % TEST_ARRAY_LEN(kinds)];
    return most == 0 ? 0 : coll_fit(run, most / 2 + (hash >> 8) % (most / 2 + 1), sizeof(uint64_t));
}

/* Fisher-Yates shuffle. All ranks compute the same permutation. */
static void permutation(int *to, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        to[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(test_hash(seed, 3, (uint64_t)i) % (uint64_t)(i + 1)), swap = to[i];
        to[i] = to[j];
        to[j] = swap;
    }
}

/* One group with several messages to random peers, including the rank itself. Sends and receives are posted
 * in different orders. */
static void permuted_sends_arrive_in_order(struct coll_run *run, rondo_comm *comm, int rank, int n,
                                           uint64_t seed, rondo_stream stream)
{
    const struct test_values *v = test_values_get(RONDO_INT32, TEST_OP_NONE, n, run->seed);
    void *out[MOST_PEERS], *in[MOST_PEERS];
    size_t counts_in[MOST_PEERS];
    int to[TEST_MAX_RANKS], from[MOST_PEERS];
    TEST_MUST(rondo_group_start(), comm);
    for (int m = 0; m < MOST_PEERS; m++) {
        uint64_t salt = test_hash(seed, 9, (uint64_t)(m / 2)); /* pairs of messages use the same peers */
        permutation(to, n, salt);
        for (from[m] = 0; to[from[m]] != rank;) {
            from[m]++;
        }
        size_t count = random_count(run, test_hash(seed, (uint64_t)m, (uint64_t)rank));
        counts_in[m] = random_count(run, test_hash(seed, (uint64_t)m, (uint64_t)from[m]));
        out[m] = pattern(v, RONDO_INT32, rank, (size_t)m * 17, count);
        in[m] = test_guard_alloc(counts_in[m] * 4);
        TEST_MUST(rondo_send(out[m], count, RONDO_INT32, to[rank], comm, stream), comm);
        TEST_MUST(rondo_recv(in[m], counts_in[m], RONDO_INT32, from[m], comm, stream), comm);
    }
    TEST_MUST(rondo_group_end(), comm);
    if (stream != NULL) {
        TEST_MUST(rondo_stream_synchronize(stream), comm);
    }
    for (int m = 0; m < MOST_PEERS; m++) {
        expect_pattern(v, RONDO_INT32, from[m], (size_t)m * 17, counts_in[m], in[m]);
        test_guard_free(in[m]);
        test_guard_free(out[m]);
    }
}

/* Every rank sends a message larger than all buffers to the next rank, in a group; without the group this
 * would deadlock. */
static void rings_do_not_deadlock(struct coll_run *run, uint64_t seed)
{
    const struct test_values *v = test_values_get(RONDO_FLOAT64, TEST_OP_NONE, test.nranks, run->seed);
    size_t count = coll_fit(run, (5u << 17) + 3, sizeof(double));
    int shift = 1 + (int)(seed % (uint64_t)test.nranks), to = (test.rank + shift) % test.nranks,
        from = (test.rank + 2 * test.nranks - shift) % test.nranks;
    void *out = pattern(v, RONDO_FLOAT64, test.rank, 5, count), *in = test_guard_alloc(count * 8);
    TEST_MUST(rondo_group_start(), run->comm);
    TEST_MUST(rondo_send(out, count, RONDO_FLOAT64, to, run->comm, NULL), run->comm);
    TEST_MUST(rondo_recv(in, count, RONDO_FLOAT64, from, run->comm, NULL), run->comm);
    TEST_MUST(rondo_group_end(), run->comm);
    expect_pattern(v, RONDO_FLOAT64, from, 5, count, in);
    test_guard_free(in);
    test_guard_free(out);
}

/* A call with its buffers, which live until the group or the stream has run. */
struct pending {
    struct test_call call;
    char *send, *recv, *want;
};

static void pending_start(struct pending *p, struct coll_run *run, rondo_comm *comm, const char *coll,
                          size_t count, uint64_t seed, rondo_stream stream)
{
    struct test_extent e;
    size_t size;
    p->call = (struct test_call){ .coll = test_coll_by_name(coll),
                                  .type = (rondo_dtype)(seed % RONDO_NUM_DTYPES),
                                  .op = RONDO_SUM,
                                  .handle = RONDO_SUM,
                                  .count = count,
                                  .first = seed % TEST_PERIOD };
    while (!test_has_op(p->call.type, p->call.op)) {
        p->call.type = (rondo_dtype)((p->call.type + 1) % RONDO_NUM_DTYPES);
    }
    TEST_MUST(rondo_comm_rank(comm, &p->call.rank), comm);
    TEST_MUST(rondo_comm_count(comm, &p->call.nranks), comm);
    p->call.op = p->call.coll->reduces ? RONDO_SUM : TEST_OP_NONE;
    p->call.root = (int)((seed >> 8) % (uint64_t)p->call.nranks);
    p->call.values = test_values_get(p->call.type, p->call.op, p->call.nranks, run->seed);
    e = p->call.coll->extent(&p->call);
    size = test_types[p->call.type].size;
    p->send = test_guard_alloc(e.send * size);
    p->recv = test_guard_alloc(e.recv * size);
    p->want = test_guard_alloc(e.recv * size);
    test_call_fill(&p->call, p->send);
    p->call.coll->expect(&p->call, p->want);
    TEST_MUST(p->call.coll->run(&p->call, p->send, p->recv, comm, stream), comm);
}

static void pending_check(struct pending *p)
{
    size_t recv = p->call.coll->extent(&p->call).recv, index = 0, size = test_types[p->call.type].size;
    size_t wrong = test_values_wrong(p->call.values, p->recv, p->want, recv, &index);
    test_check(wrong == 0, "%s of %zu %s: %zu elements wrong, first at %zu", p->call.coll->name,
               p->call.count, test_types[p->call.type].name, wrong, index);
    test_check(test_guard_intact(p->recv, recv * size), "%s of %zu wrote beyond its buffer",
               p->call.coll->name, p->call.count);
    test_guard_free(p->send);
    test_guard_free(p->recv);
    test_guard_free(p->want);
}

static const char *const mixed[] = { "all_reduce", "broadcast", "sendrecv", "reduce_scatter", "all_gather",
                                     "all_to_all", "reduce",    "gather",   "scatter" };

/* Run every collective in one group with an inner group, and again as single calls. */
static void nested_groups_mix_operations(struct coll_run *run, uint64_t seed)
{
    struct pending p[TEST_ARRAY_LEN(mixed)];
    TEST_MUST(rondo_group_start(), run->comm);
    for (size_t i = 0; i < TEST_ARRAY_LEN(mixed); i++) {
        uint64_t hash = test_hash(seed, 21, i);
        if (i % 3 == 1) {
            TEST_MUST(rondo_group_start(), run->comm);
        }
        pending_start(&p[i], run, run->comm, mixed[hash % 2 ? i : TEST_ARRAY_LEN(mixed) - 1 - i],
                      random_count(run, hash), hash >> 3, NULL);
        if (i % 3 == 2) {
            TEST_MUST(rondo_group_end(), run->comm);
        }
    }
    TEST_MUST(rondo_group_end(), run->comm);
    for (size_t i = 0; i < TEST_ARRAY_LEN(mixed); i++) {
        pending_check(&p[i]);
    }
}

static void empty_group_succeeds(struct coll_run *run)
{
    TEST_MUST(rondo_group_start(), run->comm);
    TEST_MUST(rondo_group_start(), run->comm);
    TEST_MUST(rondo_group_end(), run->comm);
    TEST_MUST(rondo_group_end(), run->comm);
    test_check(1, "an empty group failed");
}

/* The calls of a stream run in order: each reads the result of the previous one. */
static void stream_keeps_order(struct coll_run *run, uint64_t seed)
{
    size_t count = coll_fit(run, 1 + seed % 5000, sizeof(int32_t));
    int32_t *a = test_guard_alloc(count * 4), *b = test_guard_alloc(count * 4);
    int32_t want = 1;
    int ok = 1;
    for (size_t i = 0; i < count; i++) {
        a[i] = 1;
    }
    for (int i = 0; i < 6; i++) {
        TEST_MUST(rondo_all_reduce(i % 2 ? b : a, i % 2 ? a : b, count, RONDO_INT32, RONDO_SUM, run->comm,
                                   run->stream),
                  run->comm);
        want = (int32_t)((uint32_t)want * (uint32_t)test.nranks);
    }
    for (rondo_status status = RONDO_IN_PROGRESS; status != RONDO_SUCCESS;) {
        status = rondo_stream_query(run->stream);
        if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
            test_die("stream: %s: %s", rondo_status_string(status), rondo_last_error(run->comm));
        }
    }
    for (size_t i = 0; i < count; i++) {
        ok &= a[i] == want;
    }
    test_check(ok && test_guard_intact(a, count * 4) && test_guard_intact(b, count * 4),
               "six all_reduce calls on one stream are not in order");
    test_guard_free(a);
    test_guard_free(b);
}

/* Two communicators of all ranks and one of half of them; ranks wait for two streams in different orders. */
static void communicators_work_side_by_side(struct coll_run *run, uint64_t seed, rondo_comm *second,
                                            rondo_comm *half)
{
    struct pending p[4];
    rondo_stream other;
    TEST_MUST(rondo_stream_create(&other), NULL);
    pending_start(&p[0], run, run->comm, mixed[seed % TEST_ARRAY_LEN(mixed)], random_count(run, seed >> 5),
                  seed, run->stream);
    pending_start(&p[1], run, second, "all_reduce", random_count(run, seed >> 9), seed >> 2, other);
    TEST_MUST(rondo_stream_synchronize(test.rank % 2 ? run->stream : other), NULL);
    TEST_MUST(rondo_stream_synchronize(test.rank % 2 ? other : run->stream), NULL);
    TEST_MUST(rondo_group_start(), NULL);
    pending_start(&p[2], run, half, "all_gather", random_count(run, seed >> 13), seed >> 4, NULL);
    pending_start(&p[3], run, second, "broadcast", random_count(run, seed >> 17), seed >> 6, NULL);
    TEST_MUST(rondo_group_end(), NULL);
    for (int i = 0; i < 4; i++) {
        pending_check(&p[i]);
    }
    TEST_MUST(rondo_stream_destroy(other), NULL);
}

/* No rank leaves a barrier before the last one has entered it. */
static void barrier_holds_everyone(struct coll_run *run)
{
    MPI_Comm node;
    MPI_Win window;
    MPI_Aint size;
    int unit, ranks, *arrived;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &ranks);
    MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, node, &arrived, &window);
    MPI_Win_shared_query(window, 0, &size, &unit, &arrived);
    MPI_Barrier(node);
    __atomic_store_n(arrived, 0, __ATOMIC_SEQ_CST);
    MPI_Barrier(node);
    for (int round = 1; round <= 20; round++) {
        __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
        TEST_MUST(rondo_barrier(run->comm, NULL), run->comm);
        int seen = __atomic_load_n(arrived, __ATOMIC_SEQ_CST);
        test_check(seen >= round * ranks, "left barrier %d when %d of %d arrivals had been counted", round,
                   seen, round * ranks);
    }
    MPI_Barrier(node);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
}

void coll_group_tests(struct coll_run *run, int rounds)
{
    rondo_comm *second, *half;
    MPI_Comm half_mpi;
    MPI_Comm_split(MPI_COMM_WORLD, test.rank % 2, -test.rank, &half_mpi);
    test.what = "creating communicators for groups";
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &second), NULL);
    TEST_MUST(rondo_comm_create(half_mpi, NULL, &half), NULL);
    MPI_Comm_free(&half_mpi);
    test.what = "groups: barrier";
    barrier_holds_everyone(run);
    empty_group_succeeds(run);
    for (int round = 0; round < rounds; round++) {
        uint64_t seed = test_hash(run->seed, 1000, (uint64_t)round);
        test.what = "groups: sends to random peers";
        permuted_sends_arrive_in_order(run, run->comm, test.rank, test.nranks, seed, NULL);
        test.what = "groups: sends to random peers on a stream";
        permuted_sends_arrive_in_order(run, second, test.rank, test.nranks, seed + 1, run->stream);
        test.what = "groups: rings";
        rings_do_not_deadlock(run, seed);
        test.what = "groups: nested, mixed";
        nested_groups_mix_operations(run, seed);
        test.what = "groups: order on a stream";
        stream_keeps_order(run, seed);
        test.what = "groups: several communicators";
        communicators_work_side_by_side(run, seed, second, half);
    }
    test.what = "destroying communicators for groups";
    TEST_MUST(rondo_comm_destroy(half), NULL);
    TEST_MUST(rondo_comm_destroy(second), NULL);
}
