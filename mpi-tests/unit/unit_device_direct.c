/* GPU memory for users (rondo_mem_alloc_device), and direct access to it (RONDO_DIRECT_GPU), on the fake CUDA
 * driver: shareable memory, IPC, no peer access, driver calls failing in turn. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cuda_mem.h"
#include "base/param.h"
#include "comm/comm.h"
#include "device_world.h"
#include "gpu/device.h"
#include "in_child.h"
#include "kern/cuda/exec_cuda_impl.h"
#include "init/node.h"

enum { POOL = 1 << 20, BYTES = 100000 };

/* ---- memory ---- */

static CUdeviceptr address(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

/* Without a communicator; every kind of memory behaves alike. */
static void memory_is_zeroed_and_freed_once(const char *no_vmm)
{
    struct device d;
    enum rondo_pointer_kind kind;
    uint8_t *x = NULL, *y = NULL, host[BYTES];
    int ordinal = -1;
    setenv("FAKE_CUDA_NO_VMM", no_vmm, 1);
    device_open(&d, 2);
    for (int again = 0; again < 2; again++) { /* the second time it has been written to */
        assert_int_equal(rondo_mem_alloc_device((void **)&x, BYTES, RONDO_DEVICE_CURRENT), RONDO_SUCCESS);
        assert_int_equal(rondo_mem_alloc_device((void **)&y, 1, 1), RONDO_SUCCESS);
        assert_true(address(x) % (2 << 20) == 0 && address(y) % (2 << 20) == 0);
        assert_int_equal(rondo_gpu_allocated(), 2 * (2 << 20));
        assert_int_equal(rondo_cuda_pointer(x + BYTES - 1, &kind, &ordinal), RONDO_SUCCESS);
        assert_true(kind == RONDO_POINTER_DEVICE && ordinal == 2);
        assert_int_equal(rondo_cuda_pointer(y, &kind, &ordinal), RONDO_SUCCESS);
        assert_int_equal(ordinal, 1);
        device_get(&d, host, address(x), BYTES);
        for (size_t i = 0; i < BYTES; i++) {
            assert_int_equal(host[i], 0);
        }
        memset(host, 0xff, BYTES);
        device_put(&d, address(x), host, BYTES);
        assert_int_equal(rondo_mem_free(x), RONDO_SUCCESS);
        assert_int_equal(rondo_mem_free(x), RONDO_INVALID_ARGUMENT);
        assert_int_equal(rondo_mem_free(y + 64), RONDO_INVALID_ARGUMENT);
        assert_int_equal(rondo_mem_free(y), RONDO_SUCCESS);
        assert_int_equal(rondo_gpu_allocated(), 0);
    }
    device_close(&d);
    unsetenv("FAKE_CUDA_NO_VMM");
}

static void device_memory_is_zeroed_and_freed_once(void **state)
{
    (void)state;
    memory_is_zeroed_and_freed_once("0");
    memory_is_zeroed_and_freed_once("1");
}

static int asked; /* calls of cuMemAlloc */

static CUresult count_alloc(CUdeviceptr *memory, size_t bytes)
{
    (void)memory, (void)bytes;
    asked++;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* cuMemAlloc may wait for the device, perhaps for ever. */
static void lack_of_memory_is_an_error_without_a_wait_for_the_device(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    const struct rondo_cuda real = *table;
    struct device d;
    struct rondo_gpu_mem mem;
    int failed = 0;
    (void)state;
    device_open(&d, 0);
    table->MemAlloc = count_alloc;
    setenv("FAKE_CUDA_MEMORY", "8", 1);
    for (int share = 0; share < 2; share++) {
        failed += rondo_gpu_mem_create(&mem, &d.gpu, 16 << 20, share) != RONDO_SUCCESS;
    }
    unsetenv("FAKE_CUDA_MEMORY"); /* before a check may end this test: the others need memory */
    *table = real;
    assert_int_equal(failed, 2);
    assert_int_equal(asked, 0);
    assert_non_null(strstr(rondo_last_error(NULL), "16.0 MiB on GPU 0"));
    device_close(&d);
}

static void wrong_arguments_and_lack_of_memory_are_errors(void **state)
{
    char here;
    void *x = &here;
    rondo_status status;
    (void)state;
    assert_int_equal(rondo_mem_alloc_device(NULL, 1, 0), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_mem_alloc_device(&x, 1, 77), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "there is no GPU 77"));
    setenv("FAKE_CUDA_MEMORY", "8", 1);
    status = rondo_mem_alloc_device(&x, 16 << 20, 0);
    unsetenv("FAKE_CUDA_MEMORY"); /* before a check may end this test: the others need memory */
    assert_int_equal(status, RONDO_UNHANDLED_CUDA_ERROR);
    assert_non_null(strstr(rondo_last_error(NULL), "16.0 MiB on GPU 0"));
    assert_ptr_equal(x, &here);
    assert_int_equal(rondo_mem_alloc_device(&x, 0, 0), RONDO_SUCCESS);
    assert_null(x);
    assert_int_equal(rondo_mem_alloc_device(&x, 5, RONDO_CONFIG_DEFAULT), RONDO_SUCCESS); /* in host memory */
    ((char *)x)[4] = 1;
    assert_int_equal(rondo_mem_free(x), RONDO_SUCCESS);
}

static CUresult always_fails(void) { return CUDA_ERROR_UNKNOWN; }

/* Whatever fails, either there is memory or there is none, and nothing is left over. */
static void each_driver_call_may_fail(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    const struct rondo_cuda real = *table;
    void *const fails = (void *)always_fails;
    size_t const offset[] = { offsetof(struct rondo_cuda, DevicePrimaryCtxRetain),
                              offsetof(struct rondo_cuda, CtxPushCurrent),
                              offsetof(struct rondo_cuda, MemGetAllocationGranularity),
                              offsetof(struct rondo_cuda, MemCreate),
                              offsetof(struct rondo_cuda, MemAddressReserve),
                              offsetof(struct rondo_cuda, MemMap),
                              offsetof(struct rondo_cuda, MemSetAccess),
                              offsetof(struct rondo_cuda, MemAlloc),
                              offsetof(struct rondo_cuda, StreamCreateWithPriority),
                              offsetof(struct rondo_cuda, MemsetD8Async),
                              offsetof(struct rondo_cuda, StreamSynchronize) };
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(offset); i++) {
        void *x = NULL;
        rondo_status status;
        memcpy((char *)table + offset[i], &fails, sizeof(fails));
        status = rondo_mem_alloc_device(&x, BYTES, 0);
        *table = real;
        assert_int_equal(status != RONDO_SUCCESS, x == NULL);
        failed += status != RONDO_SUCCESS;
        assert_int_equal(rondo_mem_free(x), RONDO_SUCCESS);
        assert_int_equal(rondo_gpu_allocated(), 0);
    }
    assert_int_equal(failed,
                     4); /* shareable memory and waiting have alternatives; contexts and zeroing have none */
}

/* ---- forked children ---- */

static sem_t exporting, go_on;

static CUresult export_late(void *handle, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
    (void)handle, (void)memory, (void)type, (void)flags;
    sem_post(&exporting);
    while (sem_wait(&go_on) != 0) {
    }
    return CUDA_ERROR_UNKNOWN;
}

static void *find(void *pointer)
{
    struct rondo_gpu_name name;
    (void)rondo_gpu_find(pointer, &name);
    return NULL;
}

static int use_host_memory(void *device_memory)
{
    void *x = NULL;
    alarm(20);
    return rondo_mem_alloc(&x, 100) != RONDO_SUCCESS || rondo_mem_free(x) != RONDO_SUCCESS ||
           rondo_mem_free(device_memory) == RONDO_SUCCESS;
}

/* While another thread of the parent lets peers open device memory. */
static void a_child_frees_host_memory(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    const struct rondo_cuda real = *table;
    pthread_t thread;
    void *x = NULL;
    int failed;
    (void)state;
    assert_int_equal(rondo_mem_alloc_device(&x, BYTES, 0), RONDO_SUCCESS);
    assert_int_equal(sem_init(&exporting, 0, 0) | sem_init(&go_on, 0, 0), 0);
    table->MemExportToShareableHandle = export_late;
    assert_int_equal(pthread_create(&thread, NULL, find, x), 0);
    while (sem_wait(&exporting) != 0) {
    }
    failed = in_child(use_host_memory, x);
    sem_post(&go_on);
    pthread_join(thread, NULL);
    *table = real;
    assert_int_equal(failed, 0);
    assert_int_equal(rondo_mem_free(x), RONDO_SUCCESS);
}

/* ---- direct access ---- */

static pthread_barrier_t together;

static const struct rondo_exec *exec_of(const struct fake_rank *r) { return r->comm->ctx->running.exec; }

/* Staging buffers filled so far, on channel 0. */
static uint64_t staged(const struct fake_rank *r)
{
    uint64_t n = 0;
    device_get(device_of(r), &n, address(&rondo_cuda_direct_there(exec_of(r))->channel[0].staged), sizeof(n));
    return n;
}

/* A small sum over x; all ranks' hosts wait for it. */
static void sum_of_one(struct fake_rank *r, int32_t *x)
{
    int32_t value = r->rank + 1;
    device_put(device_of(r), address(x), &value, sizeof(value));
    FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, r->comm,
                                RONDO_CUDA_STREAM(device_of(r)->stream)));
    device_get(device_of(r), &value, address(x), sizeof(value));
    pthread_barrier_wait(&together);
    FAKE_CHECK(r, value == r->nranks * (r->nranks + 1) / 2, "%d", value);
}

/* Call until a call is not staged. @return the number of calls; 9: all were staged. */
static int calls_until_open(struct fake_rank *r, int32_t *x)
{
    int n = 0;
    uint64_t before;
    do {
        before = staged(r);
        sum_of_one(r, x);
        n++;
    } while (n < 9 && staged(r) != before);
    return n;
}

static struct rondo_cuda driver;
static int exports, strict_exports; /* strict: a capture forbids them; atomic */

static CUresult look_at_mode(void *handle, CUmemGenericAllocationHandle memory,
                             CUmemAllocationHandleType type, unsigned long long flags)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CU(driver.ThreadExchangeStreamCaptureMode(&mode));
    __atomic_fetch_add(&exports, 1, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&strict_exports, mode != CU_STREAM_CAPTURE_MODE_RELAXED, __ATOMIC_ACQ_REL);
    CU(driver.ThreadExchangeStreamCaptureMode(&mode));
    return driver.MemExportToShareableHandle(handle, memory, type, flags);
}

static void first_call(struct fake_rank *r)
{
    void *x = NULL;
    FAKE_OK(r, rondo_mem_alloc_device(&x, 4096, RONDO_DEVICE_CURRENT));
    sum_of_one(r, x);
    FAKE_OK(r, rondo_mem_free(x));
}

static void a_first_call_lets_peers_open_memory_though_it_is_captured(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "ALGO", "all_reduce:twoshot", NULL);
    pthread_barrier_init(&together, NULL, 2);
    driver = *table;
    table->MemExportToShareableHandle = look_at_mode;
    device_ranks(2, 0, first_call, NULL);
    *table = driver;
    pthread_barrier_destroy(&together);
    assert_true(exports >= 2);
    assert_int_equal(strict_exports, 0);
}

/* All calls on memory that was announced by registration (on rank 0: by its first call). */
static void on_open_memory(struct fake_rank *r)
{
    void *pool = NULL, *handle = NULL;
    uint64_t before;
    int n;
    FAKE_OK(r, rondo_mem_alloc_device(&pool, POOL, RONDO_DEVICE_CURRENT));
    if (r->rank > 0) {
        FAKE_OK(r, rondo_comm_register(r->comm, pool, POOL, &handle));
    }
    n = calls_until_open(r, pool);
    FAKE_CHECK(r, n <= 4, "%d calls were staged", n);
    device_pool.base = address(pool);
    device_pool.bytes = POOL;
    for (int coll = 0; coll < FAKE_NUM_COLLS; coll++) {
        before = staged(r);
        device_collective(r, (enum fake_coll)coll);
        FAKE_CHECK(r, r->failure[0] == '\0');
        /* in reduce_scatterv a rank does not know the displacements of others */
        FAKE_CHECK(r, (staged(r) == before) == (coll != FAKE_REDUCE_SCATTERV), "%s: %llu windows were staged",
                   fake_coll_names[coll], (unsigned long long)(staged(r) - before));
    }
    device_pool.base = 0;
    if (r->rank > 0) {
        FAKE_OK(r, rondo_comm_deregister(r->comm, handle));
    }
    FAKE_OK(r, rondo_mem_free(pool));
}

static size_t available(void)
{
    size_t now = 0, total;
    CU(cu()->MemGetInfo(&now, &total));
    return now;
}

/* Freed memory returns to the device in later calls, and new memory at its address is not mistaken for it. */
static void open_memory_that_is_freed(struct fake_rank *r)
{
    void *open = NULL, *closed = (void *)(uintptr_t)device_new(8192);
    size_t before;
    FAKE_CHECK(r, calls_until_open(r, closed) == 9);
    pthread_barrier_wait(&together);
    before = available();
    pthread_barrier_wait(&together);
    for (int again = 0; again < 3; again++) {
        FAKE_OK(r, rondo_mem_alloc_device(&open, POOL, RONDO_DEVICE_CURRENT));
        FAKE_CHECK(r, calls_until_open(r, open) <= 4);
        FAKE_OK(r, rondo_mem_free(open));
        FAKE_CHECK(r, again < 2 || calls_until_open(r, closed) == 9);
    }
    pthread_barrier_wait(&together);
    FAKE_CHECK(r, available() == before, "%zu bytes of the device were kept", before - available());
    pthread_barrier_wait(&together);
    CU(cu()->MemFree(address(closed)));
}

#define TWOSHOT                                                                                          \
    "all_reduce:twoshot;reduce:twoshot;broadcast:twoshot;all_gather:twoshot;reduce_scatter:twoshot;all_" \
    "gatherv:twoshot;reduce_scatterv:"                                                                   \
    "twoshot;barrier:ring"

static void try_open_memory(int n, int shared)
{
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", "4K", "ALGO", TWOSHOT, NULL);
    pthread_barrier_init(&together, NULL, (unsigned)n);
    device_ranks(n, shared, on_open_memory, NULL);
    device_ranks(n, shared, open_memory_that_is_freed, NULL);
    pthread_barrier_destroy(&together);
}

static void calls_access_announced_memory_directly(void **state)
{
    (void)state;
    try_open_memory(2, 0);
    try_open_memory(4, 0);
    try_open_memory(2, 1);
}

static void calls_access_memory_without_descriptors_directly(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_NO_VMM", "1", 1);
    try_open_memory(3, 0);
    unsetenv("FAKE_CUDA_NO_VMM");
}

static void other_memory_is_staged_with_the_same_results(void **state)
{
    static const char *const algos[] = { TWOSHOT, "all_reduce:oneshot;all_gather:oneshot" };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(algos); i++) {
        fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", i == 0 ? "640" : "64K", "ALGO", algos[i],
                    NULL);
        device_ranks(3, 0, device_every_collective, NULL);
    }
}

/* Without peer access there is nothing to agree on: other algorithms carry the calls. */
static void no_direct(struct fake_rank *r)
{
    FAKE_CHECK(r, rondo_cuda_direct_there(exec_of(r)) == NULL);
    device_every_collective(r);
}

static void gpus_without_peer_access_use_other_algorithms(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_NO_PEER", "0-2", 1);
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", "4K", NULL);
    device_ranks(3, 0, no_direct, NULL);
    unsetenv("FAKE_CUDA_NO_PEER");
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", "4K", "P2P_DISABLE", "1", NULL);
    device_ranks(2, 0, no_direct, NULL);
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", "0", NULL);
    device_ranks(2, 0, no_direct, NULL);
}

/* A machine that shows the one GPU which the ranks share. */
static const char one_gpu_text[] = "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" "
                                   "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"207\">"
                                   "<pci busid=\"0000:17:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s "
                                   "PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"90\"/></pci>"
                                   "</cpu></system>\n";

/* The smallest staging buffers that ranks can have: every rank's block has a window. */
static void in_least_stages(struct fake_rank *r)
{
    static const rondo_dtype types[] = { RONDO_UINT8, RONDO_FLOAT64 };
    for (unsigned i = 0; i < RONDO_COUNTOF(types); i++) {
        DEVICE_CALL(r, device_of(r), .coll = FAKE_REDUCE_SCATTER, .type = types[i], .count = 5, .seed = i);
    }
}

static void every_rank_has_a_window_of_the_smallest_staging_buffer(void **state)
{
    const char *machine = device_machine(one_gpu_text);
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "1", "ALGO", TWOSHOT, "TOPO_FILE", machine, NULL);
    device_ranks(9, 1, in_least_stages, NULL);
    device_machine_end(machine);
}

/* ---- graphs ---- */

/* Sums and moves use what the previous replay left, first staged, then by direct access: a replay finds out
 * by itself. */
static void replayed(struct fake_rank *r)
{
    enum { REPLAYS = 50 };
    const struct device *d = device_of(r);
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    struct device_graph graph;
    uint32_t n = (uint32_t)r->nranks, host = (uint32_t)r->rank + 1, want = n * (n + 1) / 2, *x = NULL;
    uint64_t before;
    FAKE_OK(r, rondo_mem_alloc_device((void **)&x, POOL, RONDO_DEVICE_CURRENT));
    device_put(d, address(x), &host, sizeof(host));
    device_capture(d);
    FAKE_OK(r, rondo_all_reduce(x, x + 1, 1, RONDO_UINT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_broadcast(x + 1, x + 2, 1, RONDO_UINT32, r->nranks - 1, r->comm, stream));
    FAKE_OK(r, rondo_all_gather(x + 2, x + 3, 1, RONDO_UINT32, r->comm, stream));
    FAKE_OK(r, rondo_reduce(x + 3, x, 1, RONDO_UINT32, RONDO_MAX, 0, r->comm, stream));
    FAKE_OK(r, rondo_broadcast(x, x, 1, RONDO_UINT32, 0, r->comm, stream));
    device_graph_make(d, &graph);
    before = staged(r);
    pthread_mutex_lock(
        &r->comm->ctx->device
             ->lock); /* while another rank is late, this one's watching thread would look and open memory */
    device_graph_run(d, &graph, 1);
    pthread_mutex_unlock(&r->comm->ctx->device->lock);
    FAKE_CHECK(r, staged(r) > before, "memory was used before it was announced");
    pthread_barrier_wait(&together);
    FAKE_CHECK(r, calls_until_open(r, (int32_t *)x + 8) <= 4);
    before = staged(r);
    device_graph_run(d, &graph, REPLAYS);
    FAKE_CHECK(r, staged(r) == before, "%llu windows were staged", (unsigned long long)(staged(r) - before));
    device_get(d, &host, address(x), sizeof(host));
    for (int i = 0; i < REPLAYS; i++) {
        want *= n;
    }
    FAKE_CHECK(r, host == want, "%u, not %u", host, want);
    device_graph_free(&graph);
    sum_of_one(r, (int32_t *)x); /* the communicator still works */
    FAKE_OK(r, rondo_mem_free(x));
}

static void graphs_of_direct_access_replay(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "DIRECT_GPU", "4K", "ALGO", TWOSHOT, NULL);
    pthread_barrier_init(&together, NULL, 3);
    device_ranks(3, 0, replayed, NULL);
    pthread_barrier_destroy(&together);
}

/* ---- large calls choose by themselves ---- */

enum {
    MANY = 160 << 10
}; /* elements of a call for which the model prefers two-shot to a ring if nothing is staged */

/* Has the last call that asked gone by direct access? */
static uint64_t opened(const struct fake_rank *r)
{
    uint64_t open;
    device_get(device_of(r), &open, address(&rondo_cuda_direct_there(exec_of(r))->channel[0].open),
               sizeof(open));
    return open;
}

static int32_t value_of(int rank, int call, size_t i) { return (rank + 1) * ((int32_t)(i % 1000) + call); }

static rondo_status issue(struct fake_rank *r, int coll, int32_t *x, rondo_stream stream)
{
    size_t block = MANY / (size_t)r->nranks;
    return coll == 0   ? rondo_all_reduce(x, x + MANY, MANY, RONDO_INT32, RONDO_SUM, r->comm, stream)
           : coll == 1 ? rondo_all_gather(x, x + MANY, block, RONDO_INT32, r->comm, stream)
                       : rondo_reduce_scatter(x, x + MANY, block, RONDO_INT32, RONDO_SUM, r->comm, stream);
}

/* A call of 2 * MANY elements at x. NULL: a graph has made it. */
static void many(struct fake_rank *r, int coll, int32_t *x, const struct device_graph *graph)
{
    static __thread int call;
    int32_t *host = calloc(2 * MANY, sizeof(*host));
    const struct device *d = device_of(r);
    size_t n = MANY, block = MANY / (size_t)r->nranks;
    call++;
    for (size_t i = 0; i < n; i++) {
        host[i] = value_of(r->rank, call, i);
    }
    device_put(d, address(x), host, 2 * MANY * sizeof(*host));
    if (graph != NULL) {
        device_graph_run(d, graph, 1);
    } else {
        FAKE_OK(r, issue(r, coll, x, RONDO_CUDA_STREAM(d->stream)));
    }
    device_get(d, host, address(x), 2 * MANY * sizeof(*host));
    n = coll == 2 ? block : n;
    for (size_t i = 0; i < n; i++) {
        int32_t want = 0;
        for (int from = 0; from < r->nranks; from++) {
            want += coll == 1 ? ((size_t)from == i / block ? value_of(from, call, i % block) : 0)
                              : value_of(from, call, i + (coll == 2 ? (size_t)r->rank * block : 0));
        }
        if (host[MANY + i] != want) {
            FAKE_CHECK(r, 0, "call %d, element %zu: %d, not %d", call, i, host[MANY + i], want);
            break;
        }
    }
    free(host);
}

/* Nobody knows the others' memory, and nobody sets a parameter. */
static void large_calls(struct fake_rank *r)
{
    const size_t bytes = 2 * MANY * sizeof(int32_t);
    int32_t *pool = NULL, *plain = (int32_t *)(uintptr_t)device_new(bytes);
    uint64_t before = staged(r);
    struct device_graph graph;
    FAKE_OK(r, rondo_mem_alloc_device((void **)&pool, bytes, RONDO_DEVICE_CURRENT));
    many(r, 0, plain, NULL);
    FAKE_CHECK(r, opened(r) == 0);
    for (int coll = 0; coll < 3; coll++) {
        int n = 0;
        do {
            many(r, coll, pool, NULL);
            pthread_barrier_wait(&together);
        } while (opened(r) == 0 && ++n < 9);
        FAKE_CHECK(r, opened(r) == 1, "collective %d never went by direct access", coll);
        many(r, coll, r->rank == 0 ? pool : plain, NULL);
        FAKE_CHECK(r, r->rank != 0 || opened(r) == 0, "collective %d: one rank's memory is not registered",
                   coll);
        many(r, coll, plain, NULL);
        many(r, coll, pool, NULL);
        FAKE_CHECK(r, opened(r) == 1);
    }
    many(r, 0, r->rank == 0 ? pool : plain, NULL); /* the graph finds out by itself */
    device_capture(device_of(r));
    FAKE_OK(r, issue(r, 0, pool, RONDO_CUDA_STREAM(device_of(r)->stream)));
    device_graph_make(device_of(r), &graph);
    many(r, 0, pool, &graph);
    FAKE_CHECK(r, opened(r) == 1);
    many(r, 0, pool, &graph);
    device_graph_free(&graph);
    FAKE_CHECK(r, staged(r) == before, "%llu windows were staged", (unsigned long long)(staged(r) - before));
    FAKE_OK(r, rondo_mem_free(pool));
    device_delete(address(plain));
}

static void large_calls_use_registered_memory_by_themselves(void **state)
{
    enum { N = 2 };
    const char *machine = device_machine(one_gpu_text);
    (void)state;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* with fewer, ranks of a process decline */
    fake_params(SMALL, "MAX_NCHANNELS", "1", "PROTO", "simple", "TOPO_FILE", machine, NULL);
    pthread_barrier_init(&together, NULL, N);
    device_ranks(N, 1, large_calls, NULL);
    pthread_barrier_destroy(&together);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    device_machine_end(machine);
}

/* ---- streams of another device ---- */

/* A call after memory was freed uploads that fact. It must not wait for earlier work in the other device's
 * stream, nor for the communicator's own call there. */
static void uploads_behind_a_foreign_stream(struct fake_rank *r)
{
    struct device other;
    void *kept = NULL, *freed = NULL;
    int32_t value = r->rank + 1;
    rondo_stream stream;
    int waited;
    FAKE_OK(r, rondo_mem_alloc_device(&kept, POOL, RONDO_DEVICE_CURRENT));
    FAKE_OK(r, rondo_mem_alloc_device(&freed, POOL, RONDO_DEVICE_CURRENT));
    FAKE_CHECK(r, calls_until_open(r, kept) <= 4 && calls_until_open(r, freed) <= 4);
    device_put(device_of(r), address(kept), &value, sizeof(value));
    device_open(&other, 1 - r->rank);
    stream = RONDO_CUDA_STREAM(other.stream);
    device_hold(other.stream);
    FAKE_OK(r, rondo_all_reduce(kept, kept, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_mem_free(freed));
    FAKE_OK(r, rondo_all_reduce(kept, kept, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    waited = !device_held();
    pthread_barrier_wait(&together);
    device_let_go();
    CU(cu()->StreamSynchronize(other.stream));
    device_close(&other);
    FAKE_CHECK(r, waited == 0, "a call waited for the one before");
    device_get(device_of(r), &value, address(kept), sizeof(value));
    FAKE_CHECK(r, value == 6, "%d", value);
    FAKE_OK(r, rondo_mem_free(kept));
}

static void calls_on_another_devices_stream_wait_for_no_upload(void **state)
{
    (void)state;
    device_hold_begin();
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "ALGO", TWOSHOT, NULL);
    pthread_barrier_init(&together, NULL, 2);
    device_ranks(2, 0, uploads_behind_a_foreign_stream, NULL);
    pthread_barrier_destroy(&together);
}

/* ---- the end ---- */

/* One thread has both ranks, whose memory has no descriptors: the first one to close must not wait for the
 * second. */
static void ranks_of_one_thread_are_destroyed_one_by_one(void **state)
{
    enum { N = 2 };
    rondo_comm *comm[N];
    rondo_local *local;
    double begin;
    (void)state;
    setenv("FAKE_CUDA_NO_VMM", "1", 1);
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "P2P_CHECK", "20s", NULL);
    local = device_one_thread(N, comm);
    assert_true(rondo_exec_cuda_direct_stage(comm[0]->ctx->running.exec) > 0);
    begin = fake_now();
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_destroy(comm[r]), RONDO_SUCCESS);
    }
    assert_true(fake_now() - begin < 10);
    rondo_local_destroy(local);
    unsetenv("FAKE_CUDA_NO_VMM");
}

/* More allocations than there is room for, in one call each; those that do not fit are staged. */
static void many_pieces(struct fake_rank *r)
{
    enum { PIECES = RONDO_DIRECT_REGIONS + 3 };
    void *piece[PIECES];
    for (int i = 0; i < PIECES; i++) {
        FAKE_OK(r, rondo_mem_alloc_device(&piece[i], 1, RONDO_DEVICE_CURRENT));
        sum_of_one(r, piece[i]);
        FAKE_CHECK(r, r->failure[0] == '\0');
    }
    FAKE_CHECK(r, calls_until_open(r, piece[0]) <= 4);
    FAKE_CHECK(r, calls_until_open(r, piece[PIECES - 1]) == 9);
    pthread_barrier_wait(&together);
    for (int i = 0; i < PIECES - 1; i++) {
        FAKE_OK(r, rondo_mem_free(piece[i]));
    }
    pthread_barrier_wait(&together);
    FAKE_CHECK(r, calls_until_open(r, piece[PIECES - 1]) <=
                      8); /* their places are free when all have unmapped them */
    FAKE_OK(r, rondo_mem_free(piece[PIECES - 1]));
}

static void allocations_beyond_the_table_are_staged(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", "ALGO", TWOSHOT, NULL);
    pthread_barrier_init(&together, NULL, 2);
    device_ranks(2, 0, many_pieces, NULL);
    pthread_barrier_destroy(&together);
}

static void wrong_registrations(struct fake_rank *r)
{
    int32_t host[16];
    void *handle = NULL, *other = NULL;
    FAKE_ERROR(r, rondo_comm_register(r->comm, host, sizeof(host), &handle), RONDO_INVALID_ARGUMENT,
               "pageable host memory");
    FAKE_OK(r, rondo_mem_alloc_device(&other, 4096, 1 - r->rank));
    FAKE_ERROR(r, rondo_comm_register(r->comm, other, 4096, &handle), RONDO_INVALID_ARGUMENT,
               "is memory of GPU");
    FAKE_OK(r, rondo_mem_free(other));
}

static void device_memory_to_a_host(struct fake_rank *r)
{
    void *handle = NULL, *memory = NULL;
    FAKE_OK(r, rondo_mem_alloc_device(&memory, 4096, 0));
    FAKE_ERROR(r, rondo_comm_register(r->comm, memory, 4096, &handle), RONDO_INVALID_ARGUMENT,
               "is for host memory");
    FAKE_OK(r, rondo_mem_free(memory));
}

static void memory_of_the_wrong_kind_is_not_registered(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "DIRECT_GPU", "4K", NULL);
    device_ranks(2, 0, wrong_registrations, NULL);
    fake_ranks(2, device_memory_to_a_host, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_memory_is_zeroed_and_freed_once),
        cmocka_unit_test(lack_of_memory_is_an_error_without_a_wait_for_the_device),
        cmocka_unit_test(wrong_arguments_and_lack_of_memory_are_errors),
        cmocka_unit_test(each_driver_call_may_fail),
        cmocka_unit_test(a_child_frees_host_memory),
        cmocka_unit_test(a_first_call_lets_peers_open_memory_though_it_is_captured),
        cmocka_unit_test(calls_access_announced_memory_directly),
        cmocka_unit_test(calls_access_memory_without_descriptors_directly),
        cmocka_unit_test(other_memory_is_staged_with_the_same_results),
        cmocka_unit_test(gpus_without_peer_access_use_other_algorithms),
        cmocka_unit_test(every_rank_has_a_window_of_the_smallest_staging_buffer),
        cmocka_unit_test(graphs_of_direct_access_replay),
        cmocka_unit_test(large_calls_use_registered_memory_by_themselves),
        cmocka_unit_test(calls_on_another_devices_stream_wait_for_no_upload),
        cmocka_unit_test(ranks_of_one_thread_are_destroyed_one_by_one),
        cmocka_unit_test(allocations_beyond_the_table_are_staged),
        cmocka_unit_test(memory_of_the_wrong_kind_is_not_registered),
    };
    setenv("FAKE_CUDA_LEAKS", "1", 1); /* at exit everything must have been released, or the program fails */
    device_driver();
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
