/* Calls of communicators with a GPU wait for nothing that may wait for them. The fake CUDA driver
 * (mpi-tests/fake_cuda.h) waits where hardware and driver do: for an idle device, in in-order queues, for
 * room in a queue. What waits in vain fails there after FAKE_CUDA_PATIENCE. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "device_world.h"
#include "kern/cuda/exec_cuda_impl.h"
#include "kern/cuda/kernel_list.h"
#include "tuner/tuner.h"

enum { COUNT = 600, RANKS = 2 };

/* What the test's thread has made for a rank, because nothing can be allocated while the device is busy. */
struct made {
    CUdeviceptr memory;
    rondo_comm *comm;
    int ran;
};
struct scene {
    struct made rank[RANKS];
    int shared;
    pthread_barrier_t all;
    void (*fn)(struct fake_rank *r, const struct device *d, struct made *made);
};

static struct scene *scene_of(const struct fake_rank *r) { return ((struct place *)r->arg)->arg; }

/* Rank 0 holds a stream of each device, so that none is idle until all ranks are through. */
static void while_devices_are_busy(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    const struct device *d = device_of(r);
    struct made *made = &scene->rank[r->rank];
    CUstream busy;
    made->comm = r->comm;
    CU(cu()->MemAlloc(&made->memory, 4 * RANKS * COUNT * sizeof(int32_t)));
    CU(cu()->StreamCreateWithPriority(&busy, CU_STREAM_NON_BLOCKING, 0));
    if (r->rank == 0) {
        device_hold_begin();
    }
    pthread_barrier_wait(&scene->all);
    device_hold(busy);
    pthread_barrier_wait(&scene->all);
    scene->fn(r, d, made);
    pthread_barrier_wait(&scene->all);
    FAKE_CHECK(r, r->rank != 0 || device_held());
    pthread_barrier_wait(&scene->all);
    device_let_go();
    CU(cu()->StreamSynchronize(busy));
    pthread_barrier_wait(&scene->all);
    CU(cu()->StreamDestroy(busy));
    CU(cu()->MemFree(made->memory));
    FAKE_CHECK(r, made->ran);
}

static void busy_world(void (*fn)(struct fake_rank *r, const struct device *d, struct made *made))
{
    struct scene scene = { .fn = fn };
    for (scene.shared = 0; scene.shared < 2; scene.shared++) {
        memset(scene.rank, 0, sizeof(scene.rank));
        pthread_barrier_init(&scene.all, NULL, RANKS);
        device_ranks(RANKS, scene.shared, while_devices_are_busy, &scene);
        pthread_barrier_destroy(&scene.all);
    }
}

/* ---- an idle device ---- */

/* Connections of messages, memory for a call in place, and twice a graph with more works than its arguments
 * have room for. */
static void every_way(struct fake_rank *r, const struct device *d, struct made *made)
{
    void *x = (void *)(uintptr_t)made->memory;
    int32_t *y = (int32_t *)x + 2 * RANKS * COUNT;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    struct device_graph graph;
    FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_all_to_all(x, y, COUNT, RONDO_INT32, r->comm, stream));
    FAKE_OK(r, rondo_all_to_all(x, x, COUNT, RONDO_INT32, r->comm, stream));
    for (int i = 0; i < 2; i++) {
        device_capture(d);
        FAKE_OK(r, rondo_group_start());
        for (int k = 0; k < 2 * RONDO_LAUNCH_INLINE; k++) {
            FAKE_OK(r, rondo_all_reduce(y, y, COUNT, RONDO_INT32, RONDO_MAX, r->comm, stream));
        }
        FAKE_OK(r, rondo_group_end());
        device_graph_make(d, &graph);
        device_graph_run(d, &graph, 2);
        device_graph_free(&graph);
        fake_sleep_ms(20); /* the driver tells from a thread of its own that the graph is gone */
        FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, stream));
        CU(cu()->StreamSynchronize(d->stream));
    }
    made->ran = 1;
}

static void calls_do_not_wait_for_an_idle_device(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    busy_world(every_way);
}

/* A communicator is split off and destroyed; the next one gets its memory. */
static void split(struct fake_rank *r, const struct device *d, struct made *made)
{
    void *x = (void *)(uintptr_t)made->memory;
    for (int i = 0; i < 3; i++) {
        rondo_comm *child = made->comm;
        FAKE_OK(r,
                rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, child, RONDO_CUDA_STREAM(d->stream)));
        CU(cu()->StreamSynchronize(d->stream));
        if (i > 0) {
            FAKE_OK(r, rondo_comm_destroy(child));
        }
        made->comm = NULL;
        if (i < 2) {
            FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &made->comm));
        }
    }
    made->ran = 1;
}

/* Before the device is busy, so that there is memory to take over. */
static void split_once(struct fake_rank *r)
{
    rondo_comm *child = NULL;
    FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &child));
    FAKE_OK(r, rondo_comm_destroy(child));
    while_devices_are_busy(r);
}

static void communicators_pass_on_their_memory_while_the_device_is_busy(void **state)
{
    struct scene scene = { .fn = split };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    for (scene.shared = 0; scene.shared < 2; scene.shared++) {
        memset(scene.rank, 0, sizeof(scene.rank));
        pthread_barrier_init(&scene.all, NULL, RANKS);
        device_ranks(RANKS, scene.shared, split_once, &scene);
        pthread_barrier_destroy(&scene.all);
    }
}

/* ---- memory for calls in place ---- */

static void grows(struct fake_rank *r)
{
    enum { MIB = 1 << 20, MOST = 32 };
    size_t before = 0, after = 0, all;
    void *memory;
    CU(cu()->MemGetInfo(&before, &all));
    for (size_t n = 1; n <= MOST; n++) {
        FAKE_OK(r, rondo_exec_cuda_scratch(r->comm->ctx->running.exec, n * MIB, &memory));
    }
    CU(cu()->MemGetInfo(&after, &all));
    FAKE_CHECK(r, before - after <= (size_t)4 * MOST * MIB, "%zu MiB", (before - after) / MIB);
}

static void ever_larger_calls_in_place_keep_four_times_the_largest(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(1, 0, grows, NULL);
}

/* ---- kernels ---- */

/* The first launches of several kernels. */
static void first_launches(struct fake_rank *r, const struct device *d, struct made *made)
{
    void *x = (void *)(uintptr_t)made->memory;
    for (int op = RONDO_SUM; op <= RONDO_MIN; op++) {
        FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, (rondo_op)op, r->comm,
                                    RONDO_CUDA_STREAM(d->stream)));
        CU(cu()->StreamSynchronize(d->stream));
    }
    made->ran = 1;
}

static void kernels_are_loaded_before_the_first_call(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    setenv("FAKE_CUDA_LAZY", "1", 1);
    busy_world(first_launches);
    unsetenv("FAKE_CUDA_LAZY");
}

/* ---- in-order queues, room in them ---- */

/* Rank 0 goes ahead, as far as it is let. All kernels of the device are in one queue, which is short. */
static void one_ahead(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(COUNT * sizeof(int32_t));
    void *x = (void *)(uintptr_t)memory;
    if (r->rank != 0) {
        fake_sleep_ms(50);
    }
    for (int i = 0; i < 20; i++) {
        FAKE_OK(r,
                rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    CU(cu()->StreamSynchronize(d->stream));
    CU(cu()->MemFree(memory));
}

static void no_rank_fills_the_queue_that_others_need(void **state)
{
    (void)state;
    unsetenv("FAKE_CUDA_IDLE");
    fake_params(SMALL, "MAX_NCHANNELS", "2", "TIMEOUT", "20s", NULL);
    setenv("FAKE_CUDA_QUEUES", "1", 1);
    setenv("FAKE_CUDA_DEPTH", "4", 1);
    device_ranks(RANKS, 1, one_ahead, NULL);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* several launches of a rank */
    setenv("FAKE_CUDA_QUEUES", "32", 1);
    device_ranks(RANKS, 1, one_ahead, NULL);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    unsetenv("FAKE_CUDA_QUEUES");
    unsetenv("FAKE_CUDA_DEPTH");
    setenv("FAKE_CUDA_IDLE", "1", 1);
}

enum { QUEUE = 4 };
static int peer_leaves; /* else it never calls */

static void nothing(void *arg) { (void)arg; }

/* The driver blocks the second call: the stream is full of work behind the first one, whose kernel waits. */
static void block(struct fake_rank *r, void *x, CUstream stream, pthread_barrier_t *all)
{
    FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(stream)));
    for (int i = 1; i < QUEUE; i++) {
        CU(cu()->LaunchHostFunc(stream, nothing, NULL));
    }
    __atomic_store_n(&r->comm->ctx->running.exec->words[0]->block[0].waits, 1,
                     __ATOMIC_RELEASE); /* as the kernel says when it has waited for long */
    pthread_barrier_wait(all);
    FAKE_CHECK(r,
               rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(stream)) !=
                   RONDO_UNHANDLED_CUDA_ERROR,
               "%s", rondo_last_error(NULL));
}

static void blocked(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(COUNT * sizeof(int32_t));
    rondo_status status = RONDO_SUCCESS, wanted = peer_leaves ? RONDO_REMOTE_ERROR : RONDO_TIMEOUT;
    const double end = fake_now() + 20;
    if (r->rank == 0) {
        block(r, (void *)(uintptr_t)memory, d->stream, &scene->all);
    } else {
        pthread_barrier_wait(&scene->all);
        fake_sleep_ms(50); /* until the call blocks; without it the test could only miss a hang */
    }
    while (!(peer_leaves && r->rank == 1) && status == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, status == wanted || (peer_leaves && r->rank == 1), "%s: %s", rondo_status_string(status),
               rondo_last_error(r->comm));
    rondo_comm_abort(r->comm);
    r->comm = NULL;
    CU(cu()->StreamSynchronize(d->stream));
    CU(cu()->MemFree(memory));
}

static void a_launch_that_the_driver_blocks_ends_without_its_peer(void **state)
{
    struct scene scene = { .fn = NULL };
    (void)state;
    unsetenv("FAKE_CUDA_IDLE");
    setenv("FAKE_CUDA_DEPTH", "4", 1); /* QUEUE */
    for (peer_leaves = 0; peer_leaves < 2; peer_leaves++) {
        fake_params(SMALL, "MAX_NCHANNELS", "1", "TIMEOUT", peer_leaves ? "0" : "200ms", NULL);
        pthread_barrier_init(&scene.all, NULL, RANKS);
        device_ranks(RANKS, 0, blocked, &scene);
        pthread_barrier_destroy(&scene.all);
    }
    unsetenv("FAKE_CUDA_DEPTH");
    setenv("FAKE_CUDA_IDLE", "1", 1);
}

/* Rank 0 makes calls that rank 1 joins later: how many return at once? */
enum { AHEAD = 6 };
static struct {
    int returned; /* atomic */
    int expected;
} ahead;

static void go_ahead(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    const struct device *d = device_of(r);
    const double end = fake_now() + 20;
    CUdeviceptr memory = device_new(COUNT * sizeof(int32_t));
    void *x = (void *)(uintptr_t)memory;
    pthread_barrier_wait(&scene->all);
    while (r->rank == 1 && __atomic_load_n(&ahead.returned, __ATOMIC_ACQUIRE) < ahead.expected &&
           fake_now() < end) {
        fake_sleep_ms(1);
    }
    if (r->rank == 1) {
        fake_sleep_ms(50); /* for one that returns too early; without it the test could only miss it */
        FAKE_CHECK(r, __atomic_load_n(&ahead.returned, __ATOMIC_ACQUIRE) == ahead.expected, "%d calls",
                   ahead.returned);
    }
    for (int i = 0; i < AHEAD; i++) {
        FAKE_OK(r,
                rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
        if (r->rank == 0) __atomic_fetch_add(&ahead.returned, 1, __ATOMIC_ACQ_REL);
    }
    CU(cu()->StreamSynchronize(d->stream));
    pthread_barrier_wait(&scene->all);
    CU(cu()->MemFree(memory));
}

/* @return lines of the log that tell to set more connections. */
static int warnings_of(int shared, fake_rank_fn *fn, struct scene *scene)
{
    char path[] = "/tmp/rondo-unit-XXXXXX", line[1024];
    int fd = mkstemp(path), found = 0;
    FILE *file;
    assert_true(fd >= 0);
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DEBUG", "WARN", "DEBUG_FILE", path, NULL);
    pthread_barrier_init(&scene->all, NULL, RANKS);
    device_ranks(RANKS, shared, fn, scene);
    pthread_barrier_destroy(&scene->all);
    fake_params(SMALL, NULL); /* closes the file */
    file = fdopen(fd, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        found += fake_has(line, "set CUDA_DEVICE_MAX_CONNECTIONS=32");
    }
    fclose(file);
    unlink(path);
    return found;
}

static void create_only(struct fake_rank *r) { (void)r; }

static void few_connections_allow_one_call_ahead_and_are_warned_of(void **state)
{
    static const struct {
        const char *connections;
        int expected, warnings;
    } cases[] = { { NULL, 1, 1 }, { "31", 1, 1 }, { "32", 4, 0 } };
    struct scene scene = { .fn = NULL };
    (void)state;
    unsetenv("FAKE_CUDA_IDLE");
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        if (cases[i].connections != NULL) setenv("CUDA_DEVICE_MAX_CONNECTIONS", cases[i].connections, 1);
        ahead.returned = 0;
        ahead.expected = cases[i].expected;
        assert_int_equal(warnings_of(1, go_ahead, &scene), cases[i].warnings);
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    }
    assert_int_equal(warnings_of(0, create_only, &scene), 0); /* each has its own GPU */
    setenv("FAKE_CUDA_IDLE", "1", 1);
}

/* ---- other communicators ---- */

struct two {
    rondo_comm *comm[2];
    CUstream stream[2];
    CUdeviceptr memory[2];
};

static rondo_status two_make(struct fake_rank *r, struct two *t)
{
    t->comm[0] = r->comm;
    t->stream[0] = device_of(r)->stream;
    CU(cu()->StreamCreateWithPriority(&t->stream[1], CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < 2; i++) {
        t->memory[i] = device_new(COUNT * sizeof(int32_t));
    }
    return rondo_comm_split(r->comm, 0, r->rank, NULL, &t->comm[1]);
}

static rondo_status two_call(const struct two *t, int i)
{
    void *x = (void *)(uintptr_t)t->memory[i];
    return rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, t->comm[i], RONDO_CUDA_STREAM(t->stream[i]));
}

/* Calls that have waited for one another have ended by RONDO_TIMEOUT, which is an error. */
static void two_free(struct fake_rank *r, const struct two *t)
{
    for (int i = 0; i < 2; i++) {
        rondo_status status = RONDO_SUCCESS;
        CU(cu()->StreamSynchronize(t->stream[i]));
        FAKE_OK(r, rondo_comm_async_error(t->comm[i], &status));
        FAKE_CHECK(r, status == RONDO_SUCCESS, "%s", rondo_last_error(t->comm[i]));
    }
    FAKE_OK(r, rondo_comm_destroy(t->comm[1]));
    CU(cu()->StreamDestroy(t->stream[1]));
    CU(cu()->MemFree(t->memory[0]));
    CU(cu()->MemFree(t->memory[1]));
}

static void crosswise(struct fake_rank *r)
{
    struct two t;
    FAKE_OK(r, two_make(r, &t));
    for (int i = 0; i < 10; i++) {
        FAKE_OK(r, two_call(&t, r->rank % 2));
        FAKE_OK(r, two_call(&t, 1 - r->rank % 2));
    }
    two_free(r, &t);
}

static void communicators_are_independent(void **state)
{
    (void)state;
    unsetenv("FAKE_CUDA_IDLE");
    fake_params(SMALL, "MAX_NCHANNELS", "2", "TIMEOUT", "20s", NULL);
    device_ranks(RANKS, 0, crosswise, NULL);
    device_ranks(RANKS, 1, crosswise, NULL);
}

static void behind(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    struct two t;
    FAKE_OK(r, two_make(r, &t));
    if (r->rank == 0) {
        device_hold_begin();
    }
    pthread_barrier_wait(&scene->all);
    device_hold(t.stream[0]);
    FAKE_OK(r, two_call(&t, 0));
    FAKE_OK(r, two_call(&t, 1));
    fake_sleep_ms(50);
    FAKE_CHECK(r, cu()->StreamQuery(t.stream[1]) == CUDA_ERROR_NOT_READY);
    pthread_barrier_wait(&scene->all);
    device_let_go();
    two_free(r, &t);
}

static void in_implicit_order_communicators_take_turns(void **state)
{
    struct scene scene = { .fn = NULL };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "LAUNCH_ORDER_IMPLICIT", "1", NULL);
    pthread_barrier_init(&scene.all, NULL, RANKS);
    device_ranks(RANKS, 0, behind, &scene);
    pthread_barrier_destroy(&scene.all);
    setenv("FAKE_CUDA_IDLE", "1", 1);
}

/* ---- streams that are gone ---- */

/* The second call comes after the first one, in whose stream work is pending. */
static void behind_a_destroyed_stream(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(sizeof(int64_t));
    void *x = (void *)(uintptr_t)memory;
    int64_t one = 1, sum = 0;
    CUstream brief;
    device_put(d, memory, &one, sizeof(one));
    CU(cu()->StreamCreateWithPriority(&brief, CU_STREAM_NON_BLOCKING, 0));
    if (r->rank == 0) {
        device_hold_begin();
    }
    pthread_barrier_wait(&scene->all);
    device_hold(brief);
    FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT64, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(brief)));
    CU(cu()->StreamDestroy(brief));
    FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT64, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    pthread_barrier_wait(&scene->all);
    device_let_go();
    device_get(d, &sum, memory, sizeof(sum));
    FAKE_CHECK(r, sum == r->nranks * r->nranks, "%lld", (long long)sum);
    CU(cu()->MemFree(memory));
}

static void a_stream_may_be_destroyed_behind_a_call(void **state)
{
    struct scene scene = { .fn = NULL };
    (void)state;
    unsetenv("FAKE_CUDA_IDLE");
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    pthread_barrier_init(&scene.all, NULL, RANKS);
    device_ranks(RANKS, 0, behind_a_destroyed_stream, &scene);
    pthread_barrier_destroy(&scene.all);
}

/* A call in the calling thread's CU_STREAM_PER_THREAD. */
static void call_in_thread(struct fake_rank *r, CUdeviceptr memory)
{
    void *x = (void *)(uintptr_t)memory;
    FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm,
                                RONDO_CUDA_STREAM(CU_STREAM_PER_THREAD)));
}

struct after {
    struct fake_rank *rank;
    CUdeviceptr memory;
};

static void after_another_thread(struct fake_rank *r, CUdeviceptr memory)
{
    struct scene *scene = scene_of(r);
    CU(cu()->CtxPushCurrent(device_of(r)->gpu.context));
    call_in_thread(r, memory);
    fake_sleep_ms(50); /* for one that runs too early; without it the test could only miss it */
    FAKE_CHECK(r, cu()->StreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
    pthread_barrier_wait(&scene->all);
    device_let_go();
    CU(cu()->StreamSynchronize(CU_STREAM_PER_THREAD));
}

static void *run_after(void *arg)
{
    const struct after *after = arg;
    after_another_thread(after->rank, after->memory);
    return NULL;
}

static void in_two_threads(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    struct after after = { r, device_new(COUNT * sizeof(int32_t)) };
    pthread_t thread;
    if (r->rank == 0) {
        device_hold_begin();
    }
    pthread_barrier_wait(&scene->all);
    device_hold(CU_STREAM_PER_THREAD);
    call_in_thread(r, after.memory);
    assert_int_equal(pthread_create(&thread, NULL, run_after, &after), 0);
    pthread_join(thread, NULL);
    CU(cu()->StreamSynchronize(CU_STREAM_PER_THREAD));
    CU(cu()->MemFree(after.memory));
}

static void streams_of_two_threads_keep_their_order_behind_one_handle(void **state)
{
    struct scene scene = { .fn = NULL };
    (void)state;
    unsetenv("FAKE_CUDA_IDLE");
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    pthread_barrier_init(&scene.all, NULL, RANKS);
    device_ranks(RANKS, 0, in_two_threads, &scene);
    pthread_barrier_destroy(&scene.all);
}

static CUresult (*real_launch)(const CUlaunchConfig *, CUfunction, void **, void **);
static __thread int refusals; /* of this rank to come */

/* As if another device's stream had got the handle of the last one. */
static CUresult refuse_once(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra)
{
    return refusals-- > 0 ? CUDA_ERROR_INVALID_HANDLE : real_launch(config, f, arguments, extra);
}

static void refused_once(struct fake_rank *r)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    struct scene *scene = scene_of(r);
    DEVICE_CALL(r, device_of(r), .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = COUNT);
    pthread_barrier_wait(&scene->all);
    if (r->rank == 0) {
        real_launch = table->LaunchKernelEx;
        table->LaunchKernelEx = refuse_once;
    }
    pthread_barrier_wait(&scene->all);
    refusals = 1;
    for (int i = 0; i < 3; i++) {
        DEVICE_CALL(r, device_of(r), .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = COUNT);
    }
    pthread_barrier_wait(&scene->all);
    if (r->rank == 0) {
        table->LaunchKernelEx = real_launch;
    }
    FAKE_CHECK(r, refusals < 0);
}

static void a_known_stream_is_asked_again_if_its_launch_is_refused(void **state)
{
    struct scene scene = { .fn = NULL };
    (void)state;
    pthread_barrier_init(&scene.all, NULL, RANKS);
    device_ranks(RANKS, 0, refused_once, &scene);
    pthread_barrier_destroy(&scene.all);
}

/* ---- what a call costs ---- */

enum { STEADY = 50, MOST_CALLS = 3 };

static void steady(struct fake_rank *r)
{
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))device_symbol("fake_cuda_calls");
    struct scene *scene = scene_of(r);
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(2 * COUNT * sizeof(int32_t));
    int32_t *buffers = (int32_t *)(uintptr_t)memory; /* two, in turn */
    uint64_t before = 0;
    for (int i = 0; i <= STEADY; i++) {
        if (i == 1) {
            pthread_barrier_wait(&scene->all);
            before = r->rank == 0 ? calls(NULL) : 0;
            pthread_barrier_wait(&scene->all);
        }
        int32_t *x = buffers + i % 2 * COUNT;
        FAKE_OK(r,
                rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    pthread_barrier_wait(&scene->all);
    if (r->rank == 0) {
        FAKE_CHECK(r, calls(NULL) - before > 0);
        FAKE_CHECK(r, calls(NULL) - before <= STEADY * MOST_CALLS * RANKS, "%.1f calls of the driver",
                   (double)(calls(NULL) - before) / (STEADY * RANKS));
    }
    pthread_barrier_wait(&scene->all);
    CU(cu()->StreamSynchronize(d->stream));
    CU(cu()->MemFree(memory));
}

static void a_steady_call_makes_three_driver_calls(void **state)
{
    struct scene scene = { .fn = NULL };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    pthread_barrier_init(&scene.all, NULL, RANKS);
    device_ranks(RANKS, 0, steady, &scene);
    pthread_barrier_destroy(&scene.all);
}

/* What a rank's last launch had. */
static __thread struct {
    size_t bytes; /* of its argument */
    unsigned threads;
} launched;

static CUresult look_at(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra)
{
    launched.threads = config->blockDimX;
    launched.bytes = extra == NULL ? sizeof(struct rondo_launch) : 0;
    for (void **e = extra; e != NULL && *e != CU_LAUNCH_PARAM_END; e += 2) {
        if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) launched.bytes = *(const size_t *)e[1];
    }
    return real_launch(config, f, arguments, extra);
}

/* Few threads for few bytes, as the model says that chose the channels (tuner.h). */
static void sized(struct fake_rank *r)
{
    static const size_t counts[] = { 1, 2000, 30000 };
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    struct scene *scene = scene_of(r);
    int channels, threads = 0, before = 0;
    pthread_barrier_wait(&scene->all);
    if (r->rank == 0) {
        real_launch = table->LaunchKernelEx;
        table->LaunchKernelEx = look_at;
    }
    pthread_barrier_wait(&scene->all);
    for (size_t i = 0; i < RONDO_COUNTOF(counts); i++, before = threads) {
        DEVICE_CALL(r, device_of(r), .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = counts[i]);
        rondo_gpu_blocks(&r->comm->ctx->wiring.layout, RONDO_ALGO_RING, RONDO_PROTO_LL, 4 * counts[i],
                         &channels, &threads);
        threads = threads > RONDO_THREADS_ll ? RONDO_THREADS_ll : threads / RONDO_WARP * RONDO_WARP;
        FAKE_CHECK(r, launched.threads == (unsigned)threads, "%u threads, not %d", launched.threads, threads);
        FAKE_CHECK(r, threads > before, "%d threads for %zu elements, too", threads, counts[i]);
        FAKE_CHECK(r, launched.bytes < sizeof(struct rondo_launch) / 4, "%zu bytes", launched.bytes);
    }
    pthread_barrier_wait(&scene->all);
    if (r->rank == 0) {
        table->LaunchKernelEx = real_launch;
    }
    pthread_barrier_wait(&scene->all);
}

static void a_launch_has_the_arguments_and_the_threads_that_it_needs(void **state)
{
    struct scene scene = { .fn = NULL };
    const char *machine = device_machine(device_machine_text);
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "ALGO", "ring", "PROTO", "ll", "TOPO_FILE", machine, NULL);
    pthread_barrier_init(&scene.all, NULL, RANKS);
    device_ranks(RANKS, 0, sized, &scene);
    pthread_barrier_destroy(&scene.all);
    device_machine_end(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_do_not_wait_for_an_idle_device),
        cmocka_unit_test(communicators_pass_on_their_memory_while_the_device_is_busy),
        cmocka_unit_test(ever_larger_calls_in_place_keep_four_times_the_largest),
        cmocka_unit_test(kernels_are_loaded_before_the_first_call),
        cmocka_unit_test(no_rank_fills_the_queue_that_others_need),
        cmocka_unit_test(a_launch_that_the_driver_blocks_ends_without_its_peer),
        cmocka_unit_test(few_connections_allow_one_call_ahead_and_are_warned_of),
        cmocka_unit_test(communicators_are_independent),
        cmocka_unit_test(in_implicit_order_communicators_take_turns),
        cmocka_unit_test(a_stream_may_be_destroyed_behind_a_call),
        cmocka_unit_test(streams_of_two_threads_keep_their_order_behind_one_handle),
        cmocka_unit_test(a_known_stream_is_asked_again_if_its_launch_is_refused),
        cmocka_unit_test(a_steady_call_makes_three_driver_calls),
        cmocka_unit_test(a_launch_has_the_arguments_and_the_threads_that_it_needs),
    };
    setenv("FAKE_CUDA_IDLE", "1", 1);
    setenv("FAKE_CUDA_PATIENCE", "3", 1);
    setenv("FAKE_CUDA_COUNT", "1", 1);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    fake_watchdog(120);
    device_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
