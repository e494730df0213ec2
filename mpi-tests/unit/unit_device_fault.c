/* Communicators with a GPU on the fake CUDA driver: arguments that are refused, calls that differ or whose
 * peers do not come, abort, each driver call failing in turn. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "base/param.h"
#include "comm/comm.h"
#include "device_world.h"
#include "gpu/device.h"
#include "kern/cuda/exec_cuda_impl.h"

/* Calls with direct access to the peers' memory. */
#define DIRECT "DIRECT_GPU", "4K", "ALGO", "all_reduce:oneshot,twoshot"

/* ---- refusals ---- */

static void wrong_pointers(struct fake_rank *r)
{
    struct device_call c = { .call = { .coll = FAKE_ALL_REDUCE,
                                       .type = RONDO_INT32,
                                       .count = 10,
                                       .rank = r->rank,
                                       .nranks = r->nranks } };
    struct device other;
    int32_t *there;
    rondo_stream stream = RONDO_CUDA_STREAM(device_of(r)->stream);
    device_call_prepare(device_of(r), &c);
    FAKE_ERROR(r, rondo_all_reduce(c.host.send, c.device.recv, 10, RONDO_INT32, RONDO_SUM, r->comm, stream),
               RONDO_INVALID_ARGUMENT, "pageable host memory");
    device_open(&other, 1 - r->rank);
    there = (int32_t *)(uintptr_t)device_new(4096);
    FAKE_ERROR(r, rondo_all_reduce(c.device.send, there, 10, RONDO_INT32, RONDO_SUM, r->comm, stream),
               RONDO_INVALID_ARGUMENT, "receive buffer");
    CU(cu()->MemFree((CUdeviceptr)(uintptr_t)there));
    device_close(&other);
    FAKE_OK(r, device_call_issue(&c, r->comm, device_of(r)->stream)); /* the communicator still works */
    CU(cu()->StreamSynchronize(device_of(r)->stream));
    FAKE_CHECK(r, device_call_check(device_of(r), &c)[0] == '\0');
}

static void device_pointer_to_host(struct fake_rank *r)
{
    struct device device;
    int32_t *x, y[4];
    device_open(&device, 0);
    x = (int32_t *)(uintptr_t)device_new(4096);
    FAKE_ERROR(r, rondo_all_reduce(x, y, 4, RONDO_INT32, RONDO_SUM, r->comm, NULL), RONDO_INVALID_ARGUMENT,
               "memory of GPU 0");
    CU(cu()->MemFree((CUdeviceptr)(uintptr_t)x));
    device_close(&device);
}

static void buffers_elsewhere_are_refused(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, wrong_pointers, NULL);
    fake_ranks(2, device_pointer_to_host, NULL);
}

static void duplicate(struct fake_rank *r)
{
    rondo_config config = device_config(0);
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, &config, &r->comm), RONDO_INVALID_USAGE,
               "duplicate GPU: rank 0 and rank 1");
    FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "RONDO_ALLOW_SHARED_GPU=1"));
}

static void half_on_gpus(struct fake_rank *r)
{
    rondo_config config = device_config(r->rank == 0 ? 0 : RONDO_CONFIG_DEFAULT);
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, &config, &r->comm), RONDO_INVALID_ARGUMENT,
               "rank 0 on");
}

static void no_such_gpu(struct fake_rank *r)
{
    rondo_config config = device_config(r->rank == 0 ? 1000 : 0);
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, &config, &r->comm), RONDO_INVALID_ARGUMENT,
               "there is no GPU 1000");
}

static void a_wrong_choice_of_gpus_is_the_same_error_on_all_ranks(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks_bare(2, duplicate, NULL);
    fake_ranks_bare(2, half_on_gpus, NULL);
    fake_ranks_bare(2, no_such_gpu, NULL);
}

/* ---- blocks of a GPU ---- */

/* The GPU's kernels, with a reference; sets how many blocks run together from here on. */
static struct rondo_cuda_kernels *kernels_of(const struct device *d, int blocks)
{
    struct rondo_cuda_kernels *kernels;
    assert_int_equal(rondo_cuda_kernels_get(&kernels, &d->gpu), RONDO_SUCCESS);
    kernels->blocks = blocks;
    return kernels;
}

static void too_many(struct fake_rank *r)
{
    rondo_config config = device_config(0);
    config.allow_shared_gpu = 1;
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, &config, &r->comm), RONDO_INVALID_USAGE,
               "3 ranks share GPU 0");
    FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "fewer ranks per GPU"));
}

static void more_ranks_than_blocks_of_a_gpu_are_refused_on_all_ranks(void **state)
{
    struct device d;
    struct rondo_cuda_kernels *kernels;
    (void)state;
    fake_params(SMALL, NULL);
    device_open(&d, 0);
    kernels = kernels_of(&d, 2);
    fake_ranks_bare(3, too_many, NULL);
    rondo_cuda_kernels_put(kernels); /* they go with the last reference, and that number, too */
    device_close(&d);
}

/* Besides ranks that share the GPU, all other communicators that still exist must fit, or in implicit order
 * the largest. */
static void blocks_of_destroyed_communicators_are_free(void **state)
{
    struct device d;
    struct rondo_cuda_kernels *kernels;
    struct rondo_exec_cuda_config large = { .nchannels = 8, .sharers = 1, .name = "large" }, small = large,
                                  shares = large;
    struct rondo_exec left = { .config = large };
    (void)state;
    fake_params(SMALL, NULL);
    device_open(&d, 0);
    kernels = kernels_of(&d, 10);
    small.nchannels = 2;
    shares.nchannels = 4;
    shares.sharers = 2;
    assert_int_equal(rondo_cuda_kernels_join(kernels, &small), RONDO_SUCCESS);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &shares), RONDO_SUCCESS); /* 4 + 2 */
    assert_int_equal(rondo_cuda_kernels_join(kernels, &small), RONDO_SUCCESS);  /* 4 + 4 */
    assert_int_equal(rondo_cuda_kernels_join(kernels, &small), RONDO_SUCCESS);  /* 4 + 6 */
    assert_int_equal(rondo_cuda_kernels_join(kernels, &small), RONDO_INVALID_USAGE);
    left.config = shares;
    rondo_cuda_kernels_quit(kernels, &left);
    left.config = small;
    for (int i = 0; i < 3; i++) {
        rondo_cuda_kernels_quit(kernels, &left);
    }
    left.config = large;
    fake_params(SMALL, "LAUNCH_ORDER_IMPLICIT", "1", NULL);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &small), RONDO_SUCCESS);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &large), RONDO_SUCCESS);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &large), RONDO_SUCCESS);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &shares), RONDO_INVALID_USAGE); /* 4 + 8 */
    rondo_cuda_kernels_quit(kernels, &left);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &shares), RONDO_INVALID_USAGE);
    rondo_cuda_kernels_quit(kernels, &left);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &shares), RONDO_SUCCESS); /* 4 + 2 */
    assert_int_equal(rondo_cuda_kernels_join(kernels, &shares), RONDO_SUCCESS); /* 8 + 2 */
    assert_int_equal(rondo_cuda_kernels_join(kernels, &large), RONDO_INVALID_USAGE);
    assert_int_equal(rondo_cuda_kernels_join(kernels, &shares), RONDO_INVALID_USAGE);
    rondo_cuda_kernels_put(kernels);
    device_close(&d);
}

/* ---- errors ---- */

/* A call whose counts differ from the other rank's, on 8192 bytes at x. */
struct differing {
    rondo_status (*issue)(struct fake_rank *r, char *x, rondo_stream stream);
};

static rondo_status all_reduces(struct fake_rank *r, char *x, rondo_stream stream)
{
    return rondo_all_reduce(x, x, r->rank == 0 ? 100 : 200, RONDO_INT32, RONDO_SUM, r->comm, stream);
}
static rondo_status message(struct fake_rank *r, char *x, size_t sent, size_t received, rondo_stream stream)
{
    return r->rank == 0 ? rondo_send(x, sent, RONDO_UINT8, 1, r->comm, stream)
                        : rondo_recv(x, received, RONDO_UINT8, 0, r->comm, stream);
}
static rondo_status less_is_sent(struct fake_rank *r, char *x, rondo_stream stream)
{
    return message(r, x, 100, 400, stream);
}
static rondo_status more_is_sent(struct fake_rank *r, char *x, rondo_stream stream)
{
    return message(r, x, 400, 100, stream);
}
/* Rank 0 sends and expects 100, rank 1 sends and expects 400. */
static rondo_status all_to_allvs(struct fake_rank *r, char *x, rondo_stream stream)
{
    static const size_t at[2];
    const size_t few[] = { 0, 100 }, many[] = { 400, 0 }, *counts = r->rank == 0 ? few : many;
    return rondo_all_to_allv(x, counts, at, x + 4096, counts, at, RONDO_UINT8, r->comm, stream);
}

static void different_counts(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    const struct differing *call = ((const struct place *)r->arg)->arg;
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    rondo_status status = RONDO_SUCCESS;
    double end = fake_now() + 30;
    FAKE_OK(r, call->issue(r, x, RONDO_CUDA_STREAM(d->stream)));
    while (status == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, status != RONDO_SUCCESS && fake_has(rondo_last_error(r->comm), "calls differ"), "%s: %s",
               rondo_status_string(status), rondo_last_error(r->comm));
    FAKE_CHECK(r, rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)) ==
                      status);              /* and by the next call */
    CU(cu()->StreamSynchronize(d->stream)); /* the kernel has left */
    CU(cu()->MemFree(memory));
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void mismatched_calls_end_both_ranks_kernels(void **state)
{
    struct differing reduces = { all_reduces },
                     messages[] = { { less_is_sent }, { more_is_sent }, { all_to_allvs } };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    device_ranks(2, 0, different_counts, &reduces);
    fake_params(SMALL, "MAX_NCHANNELS", "1", DIRECT, NULL);
    device_ranks(2, 0, different_counts, &reduces);
    fake_params(SMALL, "P2P_LL_THRESHOLD", "200", NULL); /* 100 bytes use LL, 400 use Simple */
    for (size_t i = 0; i < RONDO_COUNTOF(messages); i++) {
        device_ranks(2, 0, different_counts, &messages[i]);
    }
}

/* Only rank 0 calls. */
static void nobody_comes(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    rondo_status status = RONDO_SUCCESS;
    double end = fake_now() + 30;
    if (r->rank == 0) {
        FAKE_OK(r,
                rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    while (status == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r,
               status == RONDO_TIMEOUT && fake_has(rondo_last_error(r->comm), "rank 0 on") &&
                   fake_has(rondo_last_error(r->comm), "all_reduce #1"),
               "%s: %s", rondo_status_string(status), rondo_last_error(r->comm));
    CU(cu()->StreamSynchronize(d->stream));
    CU(cu()->MemFree(memory));
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void a_call_that_times_out_names_the_awaited_rank(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    setenv("RONDO_TIMEOUT", "300ms", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    device_ranks(2, 0, nobody_comes, NULL);
    fake_params(SMALL, "MAX_NCHANNELS", "1", DIRECT, "TIMEOUT", "300ms", NULL);
    device_ranks(2, 0, nobody_comes, NULL);
}

/* All but the last rank call: what they send to it waits in the same block as what they expect from it. */
static void one_stays_away(struct fake_rank *r)
{
    enum { COUNT = 3000 };
    const struct device *d = device_of(r);
    size_t bytes = (size_t)r->nranks * COUNT * sizeof(int32_t);
    CUdeviceptr memory = device_new(2 * bytes);
    char *x = (char *)(uintptr_t)memory;
    rondo_status status = RONDO_SUCCESS;
    double end = fake_now() + 30;
    FAKE_OK(r, rondo_all_to_all(x, x + bytes, COUNT, RONDO_INT32, r->comm,
                                RONDO_CUDA_STREAM(d->stream))); /* connects all */
    if (r->rank < r->nranks - 1) {
        FAKE_OK(r, rondo_all_to_all(x, x + bytes, COUNT, RONDO_INT32, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    while (status == RONDO_SUCCESS && fake_now() < end) {
        FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
        fake_sleep_ms(1);
    }
    FAKE_CHECK(r, status == RONDO_TIMEOUT, "%s: %s", rondo_status_string(status), rondo_last_error(r->comm));
    CU(cu()->StreamSynchronize(d->stream));
    CU(cu()->MemFree(memory));
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void a_missing_rank_ends_calls_of_messages(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "TIMEOUT", "300ms", NULL);
    device_ranks(4, 0, one_stays_away, NULL);
}

static void *abort_it(void *comm)
{
    rondo_comm_abort(comm);
    return NULL;
}

static pthread_barrier_t launched;

/* A kernel that no peer answers leaves when another thread aborts. */
static void aborted(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    pthread_t thread;
    if (r->rank == 0) {
        FAKE_OK(r,
                rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    pthread_barrier_wait(&launched);
    pthread_create(&thread, NULL, abort_it, r->comm);
    CU(cu()->StreamSynchronize(d->stream));
    pthread_join(thread, NULL);
    CU(cu()->MemFree(memory));
    r->comm = NULL;
}

static void abort_ends_kernels_from_any_thread(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    pthread_barrier_init(&launched, NULL, 2);
    device_ranks(2, 0, aborted, NULL);
    fake_params(SMALL, "MAX_NCHANNELS", "1", DIRECT, NULL);
    device_ranks(2, 0, aborted, NULL);
    pthread_barrier_destroy(&launched);
}

/* The rank's launches wait behind other work of its stream, until after the communicator's end. */
static void not_begun(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    DEVICE_CALL(r, d, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 100, .seed = 1);
    if (r->rank == 0) {
        device_hold(d->stream);
        for (int i = 0; i < 2; i++) {
            FAKE_OK(r, rondo_all_reduce(x, x, 1000, RONDO_INT32, RONDO_SUM, r->comm,
                                        RONDO_CUDA_STREAM(d->stream)));
        }
    }
    pthread_barrier_wait(&launched);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
    pthread_barrier_wait(&launched);
    FAKE_CHECK(r, device_held());
    pthread_barrier_wait(&launched);
    if (r->rank == 0) {
        device_let_go();
    }
    CU(cu()->StreamSynchronize(d->stream)); /* the kernels have left */
    CU(cu()->MemFree(memory));
}

/* The same of a graph that holds the launch. */
static void graph_not_begun(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    struct device_graph graph;
    if (r->rank == 0) {
        device_capture(d);
        FAKE_OK(r,
                rondo_all_reduce(x, x, 1000, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
        device_graph_make(d, &graph);
        device_hold(d->stream);
        CU(DEVICE_CALL_OF("cuGraphLaunch", CUgraphExec, CUstream)(graph.exec, d->stream));
    }
    pthread_barrier_wait(&launched);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
    pthread_barrier_wait(&launched);
    if (r->rank == 0) {
        device_let_go();
        CU(cu()->StreamSynchronize(d->stream));
        device_graph_free(&graph);
    }
    CU(cu()->MemFree(memory));
}

/* In memory of P2P, of direct access, shared by the node, of the net. */
static void memory_of_launches_that_have_not_begun_is_kept(void **state)
{
    const int64_t patience = rondo_device_patience;
    (void)state;
    rondo_device_patience = INT64_C(50000000);
    pthread_barrier_init(&launched, NULL, 2);
    for (int way = 0; way < 4; way++) {
        switch (way) {
        case 0: fake_params(SMALL, "P2P_CHECK", "50ms", NULL); break;
        case 1: fake_params(SMALL, "P2P_CHECK", "50ms", DIRECT, NULL); break;
        case 2: fake_params(SMALL, "P2P_CHECK", "50ms", "P2P_DISABLE", "1", NULL); break;
        default: fake_params(SMALL, "P2P_CHECK", "50ms", "P2P_DISABLE", "1", "SHM_DISABLE", "1", NULL);
        }
        device_hold_begin();
        device_ranks(2, 0, not_begun, NULL);
        device_hold_begin();
        device_ranks(2, 0, graph_not_begun, NULL);
    }
    pthread_barrier_destroy(&launched);
    rondo_device_patience = patience;
}

/* A graph whose end is not the communicator's: is the communicator's memory kept? */
struct graph_end {
    int aborts, destroys_first, loses, kept;
    void *there[2], *users[2];
};

static CUresult context_is_lost(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void ends_with_a_graph(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    struct graph_end *end = ((const struct place *)r->arg)->arg;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    struct device_graph graph;
    void *x;
    FAKE_OK(r, rondo_mem_alloc_device(&x, 8192, RONDO_DEVICE_CURRENT));
    for (int i = 0; i < 3; i++) { /* all have mapped it */
        FAKE_OK(r, rondo_all_reduce(x, x, 1000, RONDO_INT32, RONDO_SUM, r->comm, stream));
        CU(cu()->StreamSynchronize(d->stream));
    }
    device_capture(d);
    FAKE_OK(r, rondo_all_reduce(x, x, 1000, RONDO_INT32, RONDO_SUM, r->comm, stream));
    device_graph_make(d, &graph);
    end->there[r->rank] = rondo_cuda_direct_there(r->comm->ctx->running.exec);
    end->users[r->rank] = x;
    FAKE_CHECK(r, end->there[r->rank] != NULL);
    pthread_barrier_wait(&launched);
    if (end->destroys_first) {
        device_graph_free(&graph);
    }
    if (end->loses && r->rank == 0) {
        ((struct rondo_cuda *)(uintptr_t)cu())->StreamQuery = context_is_lost;
    }
    pthread_barrier_wait(&launched);
    if (end->aborts) {
        rondo_comm_abort(r->comm);
    } else {
        FAKE_OK(r, rondo_comm_finalize(r->comm));
        FAKE_OK(r, rondo_comm_destroy(r->comm));
    }
    r->comm = NULL;
    if (!end->destroys_first) {
        device_graph_free(&graph);
    }
    pthread_barrier_wait(&launched); /* an abort keeps what was freed before it: its kernels may use that */
    FAKE_OK(r, rondo_mem_free(x));
}

static int is_device_memory(const void *pointer)
{
    enum rondo_pointer_kind kind;
    int ordinal;
    return rondo_cuda_pointer(pointer, &kind, &ordinal) == RONDO_SUCCESS && kind == RONDO_POINTER_DEVICE;
}

static void memory_is_kept_for_graphs_only_after_an_abort(void **state)
{
    static const struct graph_end ends[] = { { .aborts = 0 },
                                             { .aborts = 1, .destroys_first = 1 },
                                             { .aborts = 1, .loses = 1 },
                                             { .aborts = 1, .kept = 1 } };
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu(), real = *table;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(ends); i++) {
        struct graph_end end = ends[i];
        fake_params(SMALL, "MAX_NCHANNELS", "1", "P2P_CHECK", "1000s", DIRECT, NULL); /* of kernels only */
        pthread_barrier_init(&launched, NULL, 2);
        device_ranks(2, 0, ends_with_a_graph, &end);
        pthread_barrier_destroy(&launched);
        table->StreamQuery = real.StreamQuery;
        for (int r = 0; r < 2; r++) {
            assert_int_equal(is_device_memory(end.there[r]), end.kept);
            assert_false(is_device_memory(end.users[r]));
        }
    }
}

/* ---- each driver call fails in turn ---- */

static CUresult always_fails(void) { return CUDA_ERROR_UNKNOWN; }

/* Work before the kernel in its stream ends once destroying the communicator has asked this often whether the
 * context is lost. */
enum { ASKED_OFTEN = 3 };
static int asked; /* atomic */
static CUstream asked_stream;
static struct rondo_cuda real;

static CUresult count_query(CUstream stream)
{
    __atomic_fetch_add(&asked, stream == asked_stream, __ATOMIC_SEQ_CST);
    return real.StreamQuery(stream);
}

static void wait_until_asked(void *arg)
{
    double end = fake_now() + 30;
    (void)arg;
    while (__atomic_load_n(&asked, __ATOMIC_SEQ_CST) < ASKED_OFTEN && fake_now() < end) {
        fake_sleep_ms(1);
    }
}

static void ended_untold(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    if (r->rank == 0) {
        asked_stream = r->comm->ctx->running.exec->own;
        CU(cu()->LaunchHostFunc(d->stream, wait_until_asked, NULL));
        FAKE_OK(r,
                rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    pthread_barrier_wait(&launched);
    if (r->rank == 0) {
        rondo_comm_abort(r->comm);
        FAKE_CHECK(r, __atomic_load_n(&asked, __ATOMIC_SEQ_CST) >= ASKED_OFTEN,
                   "its memory went before the kernel");
    }
    pthread_barrier_wait(&launched);
    if (r->rank == 1) {
        rondo_comm_abort(r->comm);
    }
    CU(cu()->StreamSynchronize(d->stream));
    CU(cu()->MemFree(memory));
    r->comm = NULL;
}

/* The driver does not say whether the kernel has ended, and the kernel does not leave at once. */
static void memory_is_freed_after_kernels_that_the_driver_never_reports(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    real = *table;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    asked = 0;
    table->EventQuery = (__typeof__(table->EventQuery))(void *)always_fails;
    table->StreamQuery = count_query;
    pthread_barrier_init(&launched, NULL, 2);
    device_ranks(2, 0, ended_untold, NULL);
    pthread_barrier_destroy(&launched);
    *table = real;
}

static uint64_t uploaded_to[2];

static void stuck(struct fake_rank *r)
{
    struct rondo_exec *exec = r->comm->ctx->running.exec;
    FAKE_CHECK(r, rondo_cuda_direct_there(exec) != NULL);
    uploaded_to[r->rank] = (uint64_t)(uintptr_t)rondo_cuda_direct_there(exec);
    exec->stuck = r->rank == 0;
}

/* An upload that may still run keeps its destination. */
static void memory_that_an_upload_may_reach_is_kept(void **state)
{
    enum rondo_pointer_kind kind;
    int ordinal;
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", DIRECT, NULL);
    device_ranks(2, 0, stuck, NULL);
    for (int r = 0; r < 2; r++) {
        rondo_status status = rondo_cuda_pointer((void *)(uintptr_t)uploaded_to[r], &kind, &ordinal);
        assert_int_equal(status == RONDO_SUCCESS && kind == RONDO_POINTER_DEVICE, r == 0);
    }
}

static CUresult (*real_launch)(const CUlaunchConfig *, CUfunction, void **, void **);
static __thread int refuses;

static CUresult refuse(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra)
{
    return refuses ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : real_launch(config, f, arguments, extra);
}

static void refused(struct fake_rank *r)
{
    struct rondo_exec *exec = r->comm->ctx->running.exec;
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    rondo_status called = RONDO_UNHANDLED_CUDA_ERROR, asked_for = RONDO_SUCCESS;
    DEVICE_CALL(r, d, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 100);
    pthread_barrier_wait(&launched);
    refuses = r->rank == 0;
    if (refuses) {
        called = rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream));
        CU(cu()->StreamSynchronize(d->stream));
        asked_for = rondo_exec_cuda_query(exec);
        refuses = 0;
    }
    pthread_barrier_wait(&launched);
    FAKE_CHECK(r, called == RONDO_UNHANDLED_CUDA_ERROR && asked_for == RONDO_SUCCESS);
    FAKE_CHECK(r, rondo_exec_cuda_ended(exec) == rondo_exec_cuda_issued(exec));
    rondo_comm_abort(r->comm);
    r->comm = NULL;
    CU(cu()->MemFree(memory));
}

/* Else the end of the communicator would wait for it. */
static void a_refused_launch_is_not_awaited(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    real_launch = table->LaunchKernelEx;
    table->LaunchKernelEx = refuse;
    pthread_barrier_init(&launched, NULL, 2);
    device_ranks(2, 0, refused, NULL);
    pthread_barrier_destroy(&launched);
    table->LaunchKernelEx = real_launch;
}

/* Calls that only release things, and those that describe errors. */
static int may_fail(const char *name)
{
    static const char *const not [] = { "Init",
                                        "DriverGetVersion",
                                        "GetErrorName",
                                        "GetErrorString",
                                        "CtxPopCurrent",
                                        "DevicePrimaryCtxRelease",
                                        "MemFree",
                                        "MemFreeHost",
                                        "MemHostUnregister",
                                        "IpcCloseMemHandle",
                                        "StreamDestroy",
                                        "EventDestroy",
                                        "ModuleUnload",
                                        "MemRelease",
                                        "MemAddressFree",
                                        "MemUnmap",
                                        "UserObjectRelease",
                                        "ThreadExchangeStreamCaptureMode" };
    for (size_t i = 0; i < RONDO_COUNTOF(not ); i++) {
        if (strcmp(not [i], name) == 0) {
            return 0;
        }
    }
    return 1;
}

/* Create, call, destroy: any of them may fail, none may hang or crash. */
static void try_all(struct fake_rank *r)
{
    struct place *place = r->arg;
    rondo_config config = device_config(r->rank);
    CUdeviceptr memory = *(CUdeviceptr *)place->arg + 8192 * (CUdeviceptr)r->rank;
    void *x = (void *)(uintptr_t)memory;
    if (rondo_comm_create_local(r->local, r->rank, &config, &r->comm) == RONDO_SUCCESS) {
        (void)rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, r->comm,
                               RONDO_CUDA_STREAM(place->device.stream));
        (void)rondo_all_to_all(x, x, 10, RONDO_INT32, r->comm, RONDO_CUDA_STREAM(place->device.stream));
        rondo_comm_abort(r->comm);
    }
    r->comm = NULL;
}

struct failing {
    struct device device[2];
    CUdeviceptr memory[2];
};

static void failing_rank(struct fake_rank *r)
{
    struct failing *f = r->arg;
    struct place place = { .device = f->device[r->rank], .arg = &f->memory[0] };
    r->arg = &place;
    try_all(r);
}

static void every_driver_call_may_fail(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    struct failing f;
    struct {
        const char *name;
        void **entry;
    } row[] = {
#define ROW_(ctx, Name) { #Name, (void **)(uintptr_t)&table->Name },
        RONDO_CUDA_TABLE(ROW_, ) RONDO_CUDA_OPTIONAL_TABLE(ROW_, )
#undef ROW_
    };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "CHECK_POINTERS", "0", "DIRECT_GPU", "4K", "COPY_GPU", "100",
                NULL);
    setenv("RONDO_TIMEOUT", "2s", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    device_open(&f.device[0], 0);
    f.memory[0] = device_new(2 * 8192);
    device_open(&f.device[1], 1);
    for (size_t i = 0; i < RONDO_COUNTOF(row); i++) {
        void *before = *row[i].entry;
        if (before != NULL && may_fail(row[i].name)) {
            *row[i].entry = (void *)(uintptr_t)always_fails;
            fake_ranks_bare(2, failing_rank, &f);
            *row[i].entry = before;
        }
    }
    CU(cu()->StreamSynchronize(f.device[1].stream));
    device_close(&f.device[1]);
    CU(cu()->StreamSynchronize(f.device[0].stream));
    CU(cu()->MemFree(f.memory[0]));
    device_close(&f.device[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_elsewhere_are_refused),
        cmocka_unit_test(a_wrong_choice_of_gpus_is_the_same_error_on_all_ranks),
        cmocka_unit_test(more_ranks_than_blocks_of_a_gpu_are_refused_on_all_ranks),
        cmocka_unit_test(blocks_of_destroyed_communicators_are_free),
        cmocka_unit_test(mismatched_calls_end_both_ranks_kernels),
        cmocka_unit_test(a_call_that_times_out_names_the_awaited_rank),
        cmocka_unit_test(a_missing_rank_ends_calls_of_messages),
        cmocka_unit_test(abort_ends_kernels_from_any_thread),
        cmocka_unit_test(memory_of_launches_that_have_not_begun_is_kept),
        cmocka_unit_test(memory_is_kept_for_graphs_only_after_an_abort),
        cmocka_unit_test(memory_is_freed_after_kernels_that_the_driver_never_reports),
        cmocka_unit_test(a_refused_launch_is_not_awaited),
        cmocka_unit_test(memory_that_an_upload_may_reach_is_kept),
        cmocka_unit_test(every_driver_call_may_fail),
    };
    device_driver();
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
