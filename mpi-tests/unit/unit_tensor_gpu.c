/* Named tensors in memory of GPUs, on the fake CUDA driver: written there by simulated NICs, packed by the
 * user, and copied through the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "device_world.h"
#include "tensor/store.h"
#include "tensor_world.h"

enum { BYTES = 2 << 20, /* whole pages, which a DMA-BUF needs */ SMALL_BYTES = 100 };

static void *on_gpu(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CU(cu()->MemAlloc(&pointer, bytes));
    return (void *)(uintptr_t)pointer;
}

static void gpu_free(void *data) { CU(cu()->MemFree((CUdeviceptr)(uintptr_t)data)); }

static void copy(const struct device *d, void *to, const void *from, size_t bytes)
{
    CU(cu()->MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, d->stream));
    CU(cu()->StreamSynchronize(d->stream));
}

static void fill(const struct device *d, void *to, size_t bytes, uint64_t salt)
{
    uint8_t *host = malloc(bytes);
    pattern(host, bytes, salt);
    copy(d, to, host, bytes);
    free(host);
}

static int holds(const struct device *d, const void *from, size_t bytes, size_t first, uint64_t salt)
{
    uint8_t *host = malloc(bytes);
    copy(d, host, from, bytes);
    int right = has_pattern(host, bytes, first, salt);
    free(host);
    return right;
}

static int is_on_gpu(const void *data)
{
    enum rondo_pointer_kind kind;
    int ordinal;
    return rondo_cuda_pointer(data, &kind, &ordinal) == RONDO_SUCCESS && kind == RONDO_POINTER_DEVICE;
}

/* ---- between all kinds of memory ---- */

static void publish_both(struct fake_rank *r, rondo_tensor_store *store, const struct device *d, void *gpu,
                         uint8_t *host)
{
    rondo_tensor t = tensor_of(gpu, BYTES);
    fill(d, gpu, BYTES, 1);
    pattern(host, BYTES, 2);
    t.memory = RONDO_TENSOR_CUDA;
    FAKE_OK(r, rondo_tensor_publish(store, "gpu", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    t.bytes = SMALL_BYTES;
    FAKE_OK(r, rondo_tensor_publish(store, "small", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    t = tensor_of(host, BYTES);
    FAKE_OK(r, rondo_tensor_publish(store, "host", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
}

static void pull_to_gpu(struct fake_rank *r, rondo_tensor_store *store, const struct device *d, void *place,
                        const char *key, size_t bytes, uint64_t salt)
{
    rondo_tensor t = tensor_of(place, BYTES);
    fill(d, place, BYTES, 99);
    t.memory = RONDO_TENSOR_CUDA;
    FAKE_OK(r, rondo_tensor_recv(store, key, 0, 0, &t, NULL));
    FAKE_CHECK(r, t.data == place && t.bytes == bytes && holds(d, place, bytes, 0, salt), "%s", key);
    FAKE_CHECK(r, bytes == BYTES || holds(d, (uint8_t *)place + bytes, BYTES - bytes, bytes, 99), "%s", key);
}

static void pull_all(struct fake_rank *r, rondo_tensor_store *store, const struct device *d, void *gpu,
                     uint8_t *host)
{
    rondo_tensor t = tensor_of(host, BYTES);
    rondo_tensor_slice part = { RONDO_TENSOR_BYTES, 1000, 5000 };
    FAKE_OK(r, rondo_tensor_recv(store, "gpu", 0, 0, &t, NULL)); /* into host memory */
    FAKE_CHECK(r, has_pattern(host, BYTES, 0, 1));
    for (int i = 0; i < 2; i++) { /* at first use, and afterwards */
        pull_to_gpu(r, store, d, gpu, "gpu", BYTES, 1);
        pull_to_gpu(r, store, d, gpu, "host", BYTES, 2);
        pull_to_gpu(r, store, d, gpu, "small", SMALL_BYTES, 1);
    }
    t = (rondo_tensor)RONDO_TENSOR_INIT; /* into GPU memory of the store */
    t.memory = RONDO_TENSOR_CUDA;
    FAKE_OK(r, rondo_tensor_pull(store, "gpu", 0, 0, &part, &t, NULL));
    FAKE_CHECK(r, t.bytes == 5000 && is_on_gpu(t.data) && holds(d, t.data, 5000, 1000, 1));
    FAKE_OK(r, rondo_tensor_free(store, t.data));
    FAKE_ERROR(r, rondo_tensor_free(store, t.data), RONDO_INVALID_ARGUMENT, "was freed");
    t = (rondo_tensor)RONDO_TENSOR_INIT; /* the store's end frees it */
    t.memory = RONDO_TENSOR_CUDA;
    FAKE_OK(r, rondo_tensor_recv(store, "small", 0, 0, &t, NULL));
}

struct expected {
    uint64_t staged[2], direct; /* by rank; of the publisher */
};

static void gpu_tensors(struct fake_rank *r)
{
    const struct expected *e = r->arg;
    rondo_tensor_store *store;
    struct device d;
    uint8_t *host = malloc(BYTES);
    device_open(&d, r->rank);
    void *gpu = on_gpu(BYTES);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        publish_both(r, store, &d, gpu, host);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    } else {
        pull_all(r, store, &d, gpu, host);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    rondo_tensor_stats s = stats_of(store);
    FAKE_CHECK(r, s.staged_bytes == e->staged[r->rank], "rank %d copied %llu bytes, expected %llu", r->rank,
               (unsigned long long)s.staged_bytes, (unsigned long long)e->staged[r->rank]);
    FAKE_CHECK(r, s.direct == (r->rank == 0 ? e->direct : 0), "%llu direct", (unsigned long long)s.direct);
    FAKE_CHECK(r, s.registrations < 12, "%d registrations", (int)s.registrations);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    gpu_free(gpu);
    device_close(&d);
    free(host);
}

/* Of the nine pulls, six are of GPU memory (three large ones, two small and a part, and a small one again),
 * and eight go to GPU memory. */
static const uint64_t OF_GPU = 3 * (uint64_t)BYTES + 3 * SMALL_BYTES + 5000,
                      TO_GPU = 4 * (uint64_t)BYTES + 3 * SMALL_BYTES + 5000;

static void contents_go_through_the_host_where_the_wire_cannot_reach_gpus(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRES; wire++) {
        struct expected e = { { OF_GPU, TO_GPU }, 0 };
        setenv("RONDO_TENSOR_GPUDIRECT", "0", 1);
        setenv("FAKE_CUDA_DMABUF", "1", 1);
        use_wire(wire);
        if (over_net() && wire == SOCKETS) { /* small contents are copied behind their frames, too */
            e.staged[0] += 3 * SMALL_BYTES + 5000;
            e.staged[1] += 3 * SMALL_BYTES + 5000;
        }
        e.direct = wire == VERBS ? 9 : 0; /* from the host's arenas */
        fake_ranks(2, gpu_tensors, &e);
        end_wire(wire);
    }
    unsetenv("RONDO_TENSOR_GPUDIRECT");
    set_param("RONDO_TENSOR_GPUDIRECT", NULL);
}

static void nics_read_and_write_gpu_memory_themselves(void **state)
{
    struct expected e = { { 0, 0 }, 9 };
    (void)state;
    setenv("FAKE_CUDA_DMABUF", "1", 1);
    use_wire(VERBS);
    fake.reads = 0;
    fake_ranks(2, gpu_tensors, &e);
    assert_true(fake.reads >= 8); /* each content that went to a GPU was flushed */
    end_wire(VERBS);
}

/* The first registration of GPU memory fails, at either end or both: that end copies through the host. */
static void a_nic_that_refuses_gpu_memory_is_replaced_by_the_host(void **state)
{
    struct expected e = { { OF_GPU, TO_GPU }, 9 };
    (void)state;
    setenv("FAKE_CUDA_DMABUF", "0", 1); /* the GPU exports none, and there is no peer memory module */
    use_wire(VERBS);
    fake_ranks(2, gpu_tensors, &e);
    assert_int_equal(fake.reads, 0);
    end_wire(VERBS);
    setenv("FAKE_CUDA_DMABUF", "1", 1);
}

/* ---- packed by the user ---- */

/* Callbacks run in threads of the store, which have no GPU of their own. */
static rondo_status pack(void *arg, void *out, size_t bytes)
{
    const struct device *d = ((void **)arg)[0];
    RONDO_TRY(rondo_cuda_enter(&d->gpu));
    copy(d, out, ((void **)arg)[1], bytes);
    rondo_cuda_leave();
    return RONDO_SUCCESS;
}

static rondo_status unpack(void *arg, const void *in, size_t bytes)
{
    const struct device *d = ((void **)arg)[0];
    RONDO_TRY(rondo_cuda_enter(&d->gpu));
    copy(d, ((void **)arg)[1], in, bytes);
    rondo_cuda_leave();
    return RONDO_SUCCESS;
}

static void packed(struct fake_rank *r)
{
    static const rondo_tensor_ops ops = { .size = sizeof(ops), .pack = pack, .unpack = unpack };
    rondo_tensor_store *store;
    struct device d;
    device_open(&d, r->rank);
    void *gpu = on_gpu(BYTES), *args[] = { &d, gpu };
    rondo_tensor t = RONDO_TENSOR_INIT;
    t.memory = RONDO_TENSOR_CUDA;
    t.ops = &ops;
    t.arg = args;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        t.bytes = 12345;
        fill(&d, gpu, BYTES, 7);
        FAKE_OK(r, rondo_tensor_publish(store, "p", 0, &t, 1, NULL));
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "p", 0, 0, &t, NULL));
        FAKE_CHECK(r, t.packed && holds(&d, gpu, 12345, 0, 7));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    gpu_free(gpu);
    device_close(&d);
}

ALL_WIRES(a_tensor_of_a_gpu_can_be_packed_by_its_owner, 2, packed)

/* ---- checksums, clones, errors ---- */

static void checked(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    struct device d;
    device_open(&d, r->rank);
    void *gpu = on_gpu(BYTES);
    rondo_tensor t = tensor_of(gpu, BYTES);
    t.memory = RONDO_TENSOR_CUDA;
    config.checksum = 1;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        fill(&d, gpu, BYTES, 3);
        FAKE_OK(r, rondo_tensor_publish(store, "c", 0, &t, 1, NULL));
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "c", 0, 0, &t, NULL));
        FAKE_CHECK(r, holds(&d, gpu, BYTES, 0, 3) && stats_of(store).staged_bytes == BYTES);
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    gpu_free(gpu);
    device_close(&d);
}

ALL_WIRES(the_checksum_of_a_tensor_of_a_gpu_is_checked, 2, checked)

/* What was registered for the only tensor is given back, freed by cudaFree or by the store. */
static void frees(struct fake_rank *r)
{
    static int before;
    rondo_tensor_store *store;
    struct device d;
    device_open(&d, r->rank);
    void *gpu = on_gpu(BYTES);
    rondo_tensor t = tensor_of(r->rank == 0 ? gpu : NULL, r->rank == 0 ? BYTES : 0);
    t.memory = RONDO_TENSOR_CUDA;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "g", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "g", 0, 0, &t, NULL));
        before = fake_verbs_live(FAKE_MR);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    int frees = *(int *)r->arg;
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_retire(store, 0));
    }
    if (r->rank == frees && r->rank == 1) {
        FAKE_OK(r, rondo_tensor_free(store, t.data));
    } else if (r->rank == frees) {
        gpu_free(gpu);
    }
    UNTIL(r, store, fake_verbs_live(FAKE_MR) < before);
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    if (r->rank != 0 || frees != 0) gpu_free(gpu);
    device_close(&d);
}

static void memory_that_was_freed_is_not_registered_any_more(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        use_wire(VERBS);
        fake_ranks(2, frees, &rank);
        end_wire(VERBS);
    }
}

static void misuse(struct fake_rank *r)
{
    static uint8_t host[BYTES];
    rondo_tensor_store *store;
    struct device d;
    device_open(&d, r->rank);
    void *gpu = on_gpu(BYTES);
    rondo_tensor t = tensor_of(host, BYTES);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    t.memory = RONDO_TENSOR_CUDA;
    FAKE_ERROR(r, rondo_tensor_publish(store, "h", 0, &t, 1, NULL), RONDO_INVALID_ARGUMENT,
               "no memory of one GPU");
    t.data = gpu;
    t.bytes = 64 * (size_t)BYTES;
    FAKE_ERROR(r, rondo_tensor_publish(store, "h", 0, &t, 1, NULL), RONDO_INVALID_ARGUMENT,
               "no memory of one GPU");
    t.memory = 7;
    FAKE_ERROR(r, rondo_tensor_publish(store, "h", 0, &t, 1, NULL), RONDO_INVALID_ARGUMENT,
               "no known kind (7)");
    FAKE_ERROR(r, rondo_tensor_recv(store, "h", 0, 0, &t, NULL), RONDO_INVALID_ARGUMENT, "no known kind (7)");
    t = tensor_of(gpu, BYTES);
    t.memory = RONDO_TENSOR_CUDA;
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "g", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        t.data = host; /* a place that is no GPU's */
        FAKE_ERROR(r, rondo_tensor_recv(store, "g", 0, 0, &t, NULL), RONDO_INVALID_ARGUMENT,
                   "no memory of one GPU");
        t.data = gpu;
        t.bytes = BYTES - 1;
        FAKE_ERROR(r, rondo_tensor_recv(store, "g", 0, 0, &t, NULL), RONDO_INVALID_ARGUMENT,
                   "the place for it");
        t.bytes = BYTES;
        FAKE_OK(r, rondo_tensor_recv(store, "g", 0, 0, &t, NULL)); /* nothing is broken */
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    gpu_free(gpu);
    device_close(&d);
}

ALL_WIRES(memory_that_is_no_gpus_is_an_error, 2, misuse)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_go_through_the_host_where_the_wire_cannot_reach_gpus),
        cmocka_unit_test(nics_read_and_write_gpu_memory_themselves),
        cmocka_unit_test(a_nic_that_refuses_gpu_memory_is_replaced_by_the_host),
        cmocka_unit_test(a_tensor_of_a_gpu_can_be_packed_by_its_owner),
        cmocka_unit_test(the_checksum_of_a_tensor_of_a_gpu_is_checked),
        cmocka_unit_test(memory_that_was_freed_is_not_registered_any_more),
        cmocka_unit_test(memory_that_is_no_gpus_is_an_error),
    };
    fake_watchdog(300);
    device_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
