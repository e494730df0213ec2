/* Calls by copy engines (RONDO_COPY_GPU) on the fake CUDA driver: which calls use them, results in and out of
 * place, groups, graphs, missing peers, each driver call failing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "device_world.h"
#include "kern/cuda/exec_cuda.h"

enum { POOL = 1 << 20, SMALLEST = 1000, MOST = 5 };

static pthread_barrier_t together;
static struct rondo_cuda real; /* before a test replaces some of its calls */

static CUdeviceptr address(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }
static uint32_t copied(const struct fake_rank *r)
{
    return rondo_exec_cuda_copied(r->comm->ctx->running.exec);
}

/* Memory that all ranks can access after a few calls. */
static void *open_pool(struct fake_rank *r)
{
    uint32_t before = copied(r);
    void *pool = NULL;
    int n = 0;
    if (rondo_mem_alloc_device(&pool, POOL, RONDO_DEVICE_CURRENT) != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, "alloc", ": %s", rondo_last_error(NULL));
        return NULL;
    }
    while (n++ < MOST && copied(r) == before) {
        if (rondo_all_gather((char *)pool + POOL / 2, pool, SMALLEST, RONDO_UINT8, r->comm,
                             RONDO_CUDA_STREAM(device_of(r)->stream)) != RONDO_SUCCESS) {
            break;
        }
    }
    CU(cu()->StreamSynchronize(device_of(r)->stream));
    if (copied(r) == before) {
        fake_fail(r, __FILE__, __LINE__, "open_pool", ": no call of %d went to the engines: %s", n,
                  rondo_last_error(NULL));
    }
    device_pool.base = address(pool);
    device_pool.bytes = POOL;
    device_pool.used = 0;
    return pool;
}

static void close_pool(struct fake_rank *r, void *pool)
{
    device_pool.base = 0;
    FAKE_OK(r, rondo_mem_free(pool));
}

static void with_engines(int n, fake_rank_fn *fn)
{
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", "4K", "COPY_GPU", "1000", NULL);
    pthread_barrier_init(&together, NULL, (unsigned)n);
    device_ranks(n, 0, fn, NULL);
    pthread_barrier_destroy(&together);
}

/* ---- which calls ---- */

static const struct {
    enum fake_coll coll;
    int blocks; /* times a rank's count in the whole buffer: 1, or one for each rank */
} engines[] = {
    { FAKE_ALL_GATHER, 1 }, { FAKE_ALL_GATHERV, 1 }, { FAKE_BROADCAST, 0 }, { FAKE_ALL_TO_ALL, 1 }
};

/* Both sides of the least size, in and out of place, every root. */
static void large_calls(struct fake_rank *r)
{
    void *pool = open_pool(r);
    FAKE_CHECK(r, r->failure[0] == '\0');
    for (size_t k = 0; k < RONDO_COUNTOF(engines); k++) {
        for (unsigned seed = 0; seed < 2 * (unsigned)r->nranks; seed++) {
            uint32_t before = copied(r);
            size_t least = SMALLEST / (engines[k].blocks ? (size_t)r->nranks : 1) + 1,
                   count = seed % 3 == 0 ? 17 : least + 300 * (seed % 3);
            DEVICE_CALL(r, device_of(r), .coll = engines[k].coll,
                        .type = seed & 1 ? RONDO_UINT8 : RONDO_INT32, .root = (int)(seed / 2), .count = count,
                        .in_place = (int)(seed & 1), .seed = seed);
            FAKE_CHECK(r, copied(r) - before == (seed % 3 != 0), "%s of %zu, seed %u: %u calls by engines",
                       fake_coll_names[engines[k].coll], count, seed, copied(r) - before);
        }
    }
    device_every_collective(r); /* other calls in between */
    FAKE_CHECK(r, r->failure[0] == '\0');
    close_pool(r, pool);
}

static void large_calls_use_copy_engines(void **state)
{
    (void)state;
    with_engines(2, large_calls);
    with_engines(3, large_calls);
    with_engines(4, large_calls);
}

/* One rank's input is elsewhere, which all must notice. */
static void one_is_elsewhere(struct fake_rank *r)
{
    void *pool = open_pool(r);
    FAKE_CHECK(r, r->failure[0] == '\0');
    for (int root = 0; root < r->nranks; root++) {
        uint32_t before = copied(r);
        device_pool.base = r->rank == 1 ? 0 : address(pool);
        for (size_t k = 0; k < RONDO_COUNTOF(engines); k++) {
            DEVICE_CALL(r, device_of(r), .coll = engines[k].coll, .type = RONDO_INT32, .root = root,
                        .count = 3001);
        }
        FAKE_CHECK(r, copied(r) == before, "%u calls went to the engines", copied(r) - before);
    }
    close_pool(r, pool);
}

static void memory_that_one_rank_has_not_announced_is_not_used(void **state)
{
    (void)state;
    with_engines(3, one_is_elsewhere);
}

static void no_engines(struct fake_rank *r)
{
    FAKE_CHECK(r, !rondo_exec_cuda_copies(r->comm->ctx->running.exec));
    device_every_collective(r);
}

static int refuses, tried; /* tried: atomic */
enum { SAYS_NO = 1, DOES_NOTHING, STAYS_BEHIND };

/* Fails for the first rank that tries; STAYS_BEHIND: its words do not arrive. */
static CUresult refused_words(CUstream stream, unsigned n, CUstreamBatchMemOpParams *words, unsigned flags)
{
    if (__atomic_fetch_add(&tried, 1, __ATOMIC_SEQ_CST) > 0) {
        return real.StreamBatchMemOp(stream, n, words, flags);
    }
    if (refuses == STAYS_BEHIND) {
        return real.StreamBatchMemOp(stream, n - 1, words + 1, flags);
    }
    return refuses == SAYS_NO ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* The driver has the call, but it does not work. */
static void words_that_streams_do_not_set_are_detected(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    real = *table;
    table->StreamBatchMemOp = refused_words;
    for (refuses = SAYS_NO; refuses <= STAYS_BEHIND; refuses++) {
        tried = 0;
        fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "COPY_GPU", "1000", "P2P_CHECK", "50ms",
                    NULL);
        device_ranks(2, 0, no_engines, NULL);
        assert_true(tried > 0);
    }
    *table = real;
}

/* One rank that cannot is enough. */
static void one_rank_without_copy_engines_stops_all_ranks(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    __typeof__(table->StreamBatchMemOp) words = table->StreamBatchMemOp;
    (void)state;
    table->StreamBatchMemOp = NULL;
    with_engines(2, no_engines);
    table->StreamBatchMemOp = words;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "COPY_GPU", "1", NULL);
    device_ranks(2, 1, no_engines, NULL); /* ranks that share a GPU */
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", NULL);
    device_ranks(2, 0, no_engines, NULL);
}

/* ---- groups ---- */

/* More calls than one meeting has places for, in place and not, mixed with messages and a sum; three ranks
 * use two streams. */
static void in_a_group(struct fake_rank *r)
{
    enum { CALLS = 6 };
    static const struct fake_call calls[CALLS] = {
        { .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 900, .in_place = 1 },
        { .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 500 },
        { .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 700, .in_place = 1, .seed = 1 },
        { .coll = FAKE_GATHER, .type = RONDO_INT32, .count = 900 },
        { .coll = FAKE_ALL_TO_ALL, .type = RONDO_UINT8, .count = 20, .in_place = 1 },
        { .coll = FAKE_BROADCAST, .type = RONDO_INT32, .count = 5000, .root = 1 }
    };
    struct device_call c[CALLS] = { 0 };
    CUstream stream[2] = { device_of(r)->stream };
    void *pool = open_pool(r);
    uint32_t before = copied(r);
    FAKE_CHECK(r, r->failure[0] == '\0');
    CU(cu()->StreamCreateWithPriority(&stream[1], CU_STREAM_NON_BLOCKING, 0));
    FAKE_OK(r, rondo_group_start());
    for (int i = 0; i < CALLS; i++) {
        c[i].call = calls[i];
        c[i].call.rank = r->rank;
        c[i].call.nranks = r->nranks;
        device_call_prepare(device_of(r), &c[i]);
        FAKE_OK(r, device_call_issue(&c[i], r->comm, stream[r->nranks == 3 ? i % 2 : 0]));
    }
    FAKE_OK(r, rondo_group_end());
    CU(cu()->StreamSynchronize(stream[r->nranks == 3]));
    CU(cu()->StreamDestroy(stream[1]));
    for (int i = 0; i < CALLS; i++) {
        const char *wrong = device_call_check(device_of(r), &c[i]);
        FAKE_CHECK(r, *wrong == '\0', "call %d: %s", i, wrong);
    }
    FAKE_CHECK(r, copied(r) - before == 3, "%u", copied(r) - before);
    close_pool(r, pool);
}

static void calls_of_a_group_are_carried_each_in_its_way(void **state)
{
    (void)state;
    with_engines(2, in_a_group);
    with_engines(3, in_a_group);
}

/* While the thread waits for one rank's peers it must launch the others. */
static void one_thread_may_run_all_ranks(void **state)
{
    enum { N = 2, CALLS = 4 };
    struct device device[N];
    rondo_comm *comm[N];
    rondo_local *local;
    uint8_t *pool[N], host[SMALLEST], got[SMALLEST];
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "COPY_GPU", "1000", NULL);
    local = device_one_thread(N, comm);
    memset(host, 0x5a, sizeof(host));
    for (int r = 0; r < N; r++) {
        device_open(&device[r], r);
        assert_int_equal(rondo_mem_alloc_device((void **)&pool[r], POOL, r), RONDO_SUCCESS);
        device_put(&device[r], address(pool[r]), host, r == 1 ? sizeof(host) : 0);
    }
    for (int i = 0; i < CALLS + 1; i++) {
        rondo_group_start();
        for (int r = 0; r < N; r++) {
            assert_int_equal(rondo_broadcast(pool[r], pool[r], SMALLEST, RONDO_UINT8, 1, comm[r],
                                             RONDO_CUDA_STREAM(device[r].stream)),
                             RONDO_SUCCESS);
        }
        assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    }
    for (int r = N - 1; r >= 0; r--) { /* contexts nest */
        CU(cu()->StreamSynchronize(device[r].stream));
        assert_true(rondo_exec_cuda_copied(comm[r]->ctx->running.exec) > 0);
        device_get(&device[r], got, address(pool[r]), sizeof(got));
        assert_memory_equal(got, host, sizeof(host));
        assert_int_equal(rondo_mem_free(pool[r]), RONDO_SUCCESS);
        device_close(&device[r]);
    }
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_destroy(comm[r]), RONDO_SUCCESS);
    }
    rondo_local_destroy(local);
}

/* ---- graphs ---- */

static __thread int batches; /* this thread's */

static CUresult count_batches(CUstream stream, unsigned n, CUstreamBatchMemOpParams *words, unsigned flags)
{
    batches++;
    return real.StreamBatchMemOp(stream, n, words, flags);
}

/* Captured once and replayed, with calls by kernels in between; all use what the previous replay left. */
static void replayed(struct fake_rank *r)
{
    enum { REPLAYS = 200, COUNT = 600 };
    const struct device *d = device_of(r);
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    struct device_graph graph;
    uint32_t n = (uint32_t)r->nranks, host[COUNT], want, *x = open_pool(r), *all = x + COUNT,
             *other = all + n * COUNT;
    FAKE_CHECK(r, r->failure[0] == '\0');
    for (unsigned i = 0; i < COUNT; i++) {
        host[i] = (uint32_t)r->rank * COUNT + i;
    }
    device_put(d, address(x), host, sizeof(host));
    batches = 0;
    device_capture(d);
    FAKE_OK(r, rondo_all_gather(x, all, COUNT, RONDO_UINT32, r->comm, stream)); /* all[k] = x of k */
    FAKE_OK(r, rondo_all_to_all(all, other, COUNT, RONDO_UINT32, r->comm,
                                stream)); /* other[k] = x of this rank */
    FAKE_OK(r, rondo_all_to_all(other, other, COUNT, RONDO_UINT32, r->comm, stream)); /* other[k] = x of k */
    FAKE_OK(r, rondo_broadcast(other, all, n * COUNT, RONDO_UINT32, r->nranks - 1, r->comm, stream));
    FAKE_OK(r, rondo_all_reduce(all + COUNT, x, COUNT, RONDO_UINT32, RONDO_SUM, r->comm,
                                stream)); /* n times x of 1 */
    device_graph_make(d, &graph);
    FAKE_CHECK(r, batches == 2 + 2 + 3 + (n > 2 ? 3 : 2), "%d meetings were captured", batches);
    device_graph_run(d, &graph, REPLAYS);
    device_get(d, host, address(x), sizeof(host));
    for (unsigned i = 0; i < COUNT; i++) {
        want = COUNT + i;
        for (int k = 0; k < REPLAYS; k++) {
            want *= n;
        }
        FAKE_CHECK(r, host[i] == want, "word %u is %u, not %u", i, host[i], want);
    }
    device_pool.used = POOL / 2;
    DEVICE_CALL(r, d, .coll = FAKE_ALL_GATHER, .type = RONDO_INT32,
                .count = 1000); /* the communicator still works */
    device_graph_run(d, &graph, 1);
    device_graph_free(&graph);
    close_pool(r, x);
}

static void graphs_of_calls_by_copy_engines_replay(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    real = *table;
    table->StreamBatchMemOp = count_batches;
    with_engines(2, replayed);
    with_engines(3, replayed);
    *table = real;
}

/* ---- who waits for whom ---- */

static int passed, too_early; /* atomic */

static void hold_a_while(void *arg)
{
    double end = fake_now() + 0.05;
    (void)arg;
    while (!__atomic_load_n(&passed, __ATOMIC_ACQUIRE) && fake_now() < end) {
        fake_sleep_ms(1);
    }
    __atomic_store_n(&too_early, __atomic_load_n(&passed, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static void note_passed(void *arg)
{
    (void)arg;
    __atomic_store_n(&passed, 1, __ATOMIC_RELEASE);
}

static __thread int holds; /* this thread's next copy */

static CUresult held_copy(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    if (holds) {
        holds = 0;
        CU(real.LaunchHostFunc(s, hold_a_while, NULL));
    }
    return real.MemcpyAsync(to, from, n, s);
}

/* Rank 1 reads the data late: until then rank 0 must not overwrite what it has sent. */
static void slow_to_take(struct fake_rank *r)
{
    CUstream stream = device_of(r)->stream;
    void *pool = open_pool(r);
    FAKE_CHECK(r, r->failure[0] == '\0');
    pthread_barrier_wait(&together);
    holds = r->rank == 1;
    FAKE_OK(r, rondo_broadcast(pool, pool, SMALLEST, RONDO_UINT8, 0, r->comm, RONDO_CUDA_STREAM(stream)));
    if (r->rank == 0) {
        CU(cu()->LaunchHostFunc(stream, note_passed, NULL));
    }
    CU(cu()->StreamSynchronize(stream));
    FAKE_CHECK(r, r->rank == 0 || !too_early, "rank 0 went on before its data was taken");
    close_pool(r, pool);
}

static void no_rank_goes_on_before_its_data_was_read(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    real = *table;
    passed = 0;
    table->MemcpyAsync = held_copy;
    with_engines(2, slow_to_take);
    *table = real;
}

/* ---- what goes wrong ---- */

static void different_counts(struct fake_rank *r)
{
    void *pool = open_pool(r);
    FAKE_CHECK(r, r->failure[0] == '\0');
    FAKE_ERROR(r,
               rondo_all_gather((char *)pool + POOL / 2, pool, r->rank == 0 ? 2000 : 3000, RONDO_UINT8,
                                r->comm, RONDO_CUDA_STREAM(device_of(r)->stream)),
               RONDO_INVALID_USAGE, "calls differ");
    close_pool(r, pool);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void only_one_calls(struct fake_rank *r)
{
    void *pool = open_pool(r);
    rondo_status status = RONDO_SUCCESS;
    double end = fake_now() + 30;
    FAKE_CHECK(r, r->failure[0] == '\0');
    if (r->rank == 0) {
        FAKE_ERROR(r,
                   rondo_broadcast(pool, pool, 2000, RONDO_UINT8, 0, r->comm,
                                   RONDO_CUDA_STREAM(device_of(r)->stream)),
                   RONDO_TIMEOUT, "rank 1 to make a call by copy engines");
    }
    while (status == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, status == RONDO_TIMEOUT, "%s", rondo_status_string(status));
    close_pool(r, pool);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void hosts_that_do_not_meet_are_an_error(void **state)
{
    (void)state;
    with_engines(2, different_counts);
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "COPY_GPU", "1000", "TIMEOUT", "2s", NULL);
    device_ranks(2, 0, only_one_calls, NULL);
}

/* Rank 1's stream is on hold before the calls, so rank 0's stream waits in the first one. */
static void *hold_rank_1(struct fake_rank *r)
{
    enum { CALLS = 3 };
    CUstream stream = device_of(r)->stream;
    void *pool = open_pool(r);
    pthread_barrier_wait(&together);
    device_hold_begin();
    pthread_barrier_wait(&together);
    if (r->rank == 1) {
        device_hold(stream);
    }
    for (int i = 0; i < CALLS && r->failure[0] == '\0'; i++) {
        if (rondo_all_to_all(pool, pool, 1000, RONDO_UINT8, r->comm, RONDO_CUDA_STREAM(stream)) !=
            RONDO_SUCCESS) {
            fake_fail(r, __FILE__, __LINE__, "all_to_all", ": %s", rondo_last_error(NULL));
        }
    }
    return pool;
}

static void end_of_held(struct fake_rank *r, void *pool)
{
    if (r->rank == 0) {
        CU(cu()->StreamSynchronize(device_of(r)->stream)); /* although rank 1 has not come */
        FAKE_CHECK(r, device_held());
    }
    pthread_barrier_wait(&together);
    device_let_go();
    CU(cu()->StreamSynchronize(device_of(r)->stream));
    close_pool(r, pool);
}

static void waits_too_long(struct fake_rank *r)
{
    void *pool = hold_rank_1(r);
    rondo_status status = RONDO_SUCCESS;
    double end = fake_now() + 30;
    FAKE_CHECK(r, r->failure[0] == '\0');
    while (status == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r,
               status == RONDO_TIMEOUT &&
                   fake_has(rondo_last_error(r->comm), "rank 1 to make a call by copy engines"),
               "%s: %s", rondo_status_string(status), rondo_last_error(r->comm));
    end_of_held(r, pool);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void *abort_it(void *comm)
{
    rondo_comm_abort(comm);
    return NULL;
}

static void aborted(struct fake_rank *r)
{
    void *pool = hold_rank_1(r);
    pthread_t thread;
    FAKE_CHECK(r, r->failure[0] == '\0');
    pthread_create(&thread, NULL, abort_it, r->comm);
    end_of_held(r, pool);
    pthread_join(thread, NULL);
    r->comm = NULL;
}

static void abort_ends_streams_that_wait_for_a_peer(void **state)
{
    (void)state;
    with_engines(2, aborted);
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "COPY_GPU", "1000", "TIMEOUT", "2s", NULL);
    pthread_barrier_init(&together, NULL, 2);
    device_ranks(2, 0, waits_too_long, NULL);
    pthread_barrier_destroy(&together);
}

/* ---- each driver call fails in turn ---- */

static __thread int calls_left; /* this thread's calls before the one that fails; 0: none fails */

static int is_due(void) { return calls_left > 0 && --calls_left == 0; }

static CUresult batch_fails(CUstream s, unsigned n, CUstreamBatchMemOpParams *words, unsigned flags)
{
    return is_due() ? CUDA_ERROR_UNKNOWN : real.StreamBatchMemOp(s, n, words, flags);
}
static CUresult copy_fails(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    return is_due() ? CUDA_ERROR_UNKNOWN : real.MemcpyAsync(to, from, n, s);
}
static CUresult record_fails(CUevent e, CUstream s)
{
    return is_due() ? CUDA_ERROR_UNKNOWN : real.EventRecord(e, s);
}
static CUresult wait_fails(CUstream s, CUevent e, unsigned flags)
{
    return is_due() ? CUDA_ERROR_UNKNOWN : real.StreamWaitEvent(s, e, flags);
}

enum { MIDWAY = 12 }; /* driver calls until the whole call is in the stream */
static int nth;       /* which call is to fail */
static int survived;  /* no call failed: all are covered */

static void fails_midway(struct fake_rank *r)
{
    CUstream stream = device_of(r)->stream;
    void *pool = open_pool(r);
    rondo_status status, later = RONDO_SUCCESS;
    double end = fake_now() + 30;
    FAKE_CHECK(r, r->failure[0] == '\0');
    device_hold_begin();
    pthread_barrier_wait(&together);
    if (r->rank != 1) {
        device_hold(stream);
    }
    calls_left = r->rank == 1 ? nth : 0;
    status = rondo_all_gather((char *)pool + POOL / 2, pool, 1000, RONDO_UINT8, r->comm,
                              RONDO_CUDA_STREAM(stream));
    calls_left = 0;
    if (r->rank == 1) {
        survived = status == RONDO_SUCCESS;
        FAKE_CHECK(r, survived || nth > MIDWAY || cu()->StreamQuery(stream) == CUDA_SUCCESS,
                   "a part of the call is still running");
        device_let_go();
    }
    pthread_barrier_wait(&together);
    FAKE_CHECK(r, r->rank != 1 || survived || status == RONDO_UNHANDLED_CUDA_ERROR, "%s",
               rondo_status_string(status));
    while (!survived && later == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &later));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, (later == RONDO_SUCCESS) == survived);
    CU(cu()->StreamSynchronize(stream)); /* must end all the same */
    close_pool(r, pool);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void any_driver_call_may_fail(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    real = *table;
    table->StreamBatchMemOp = batch_fails;
    table->MemcpyAsync = copy_fails;
    table->EventRecord = record_fails;
    table->StreamWaitEvent = wait_fails;
    survived = 0;
    for (nth = 1; !survived && nth < 50; nth++) {
        with_engines(3, fails_midway);
    }
    assert_int_equal(nth, MIDWAY + 3); /* the one after it notes the end */
    *table = real;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_calls_use_copy_engines),
        cmocka_unit_test(memory_that_one_rank_has_not_announced_is_not_used),
        cmocka_unit_test(words_that_streams_do_not_set_are_detected),
        cmocka_unit_test(one_rank_without_copy_engines_stops_all_ranks),
        cmocka_unit_test(calls_of_a_group_are_carried_each_in_its_way),
        cmocka_unit_test(one_thread_may_run_all_ranks),
        cmocka_unit_test(graphs_of_calls_by_copy_engines_replay),
        cmocka_unit_test(no_rank_goes_on_before_its_data_was_read),
        cmocka_unit_test(hosts_that_do_not_meet_are_an_error),
        cmocka_unit_test(abort_ends_streams_that_wait_for_a_peer),
        cmocka_unit_test(any_driver_call_may_fail),
    };
    setenv("FAKE_CUDA_LEAKS", "1", 1); /* at exit everything must have been released, or the program fails */
    device_driver();
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
