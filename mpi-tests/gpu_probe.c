/*
 * gpu_probe: what the driver says of the GPU, and how long it takes to open it and to load the kernels. With
 * --hold, the device then stays open until standard input ends, so that programs find it initialised.
 */
#include "gpu_world.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kern/cuda/exec_cuda.h"

/* X(NAME, "text") of CU_DEVICE_ATTRIBUTE_NAME: what Rondo's ways and its goals depend on. */
#define PROBE_ATTRIBUTES(X)                                                      \
    X(MULTIPROCESSOR_COUNT, "multiprocessors")                                   \
    X(CLOCK_RATE, "most clock, kHz")                                             \
    X(MEMORY_CLOCK_RATE, "memory clock, kHz")                                    \
    X(GLOBAL_MEMORY_BUS_WIDTH, "memory bus, bits")                               \
    X(L2_CACHE_SIZE, "L2 cache, bytes")                                          \
    X(MAX_THREADS_PER_MULTIPROCESSOR, "threads of a multiprocessor")             \
    X(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, "shared memory of a multiprocessor") \
    X(ASYNC_ENGINE_COUNT, "copy engines")                                        \
    X(ECC_ENABLED, "ECC")                                                        \
    X(COMPUTE_MODE, "compute mode (0: shared)")                                  \
    X(MPS_ENABLED, "under MPS")                                                  \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management")          \
    X(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory by descriptor")       \
    X(HANDLE_TYPE_FABRIC_SUPPORTED, "memory by fabric handle")                   \
    X(DMA_BUF_SUPPORTED, "DMA-BUF")                                              \
    X(GPU_DIRECT_RDMA_SUPPORTED, "GPUDirect RDMA")                               \
    X(GPU_DIRECT_RDMA_WRITES_ORDERING, "order of a NIC's writes")                \
    X(CAN_USE_64_BIT_STREAM_MEM_OPS, "64-bit words in streams")                  \
    X(MEM_SYNC_DOMAIN_COUNT, "memory synchronisation domains")                   \
    X(MULTICAST_SUPPORTED, "multicast (NVLS)")                                   \
    X(NUMA_ID, "NUMA node")

static void row(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void row(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("| %s | ", name);
    vprintf(format, args);
    printf(" |\n");
    va_end(args);
}

static void attributes(const struct rondo_cuda_device *d)
{
    static const struct {
        CUdevice_attribute attribute;
        const char *text;
    } rows[] = {
#define PROBE_ROW(NAME, text) { CU_DEVICE_ATTRIBUTE_##NAME, text },
        PROBE_ATTRIBUTES(PROBE_ROW)
#undef PROBE_ROW
    };
    row("name", "%s", d->name);
    row("compute capability", "%d.%d", d->capability / 10, d->capability % 10);
    row("PCI bus", "%s", d->bus_id);
    row("memory, MiB", "%zu", d->memory >> 20);
    for (size_t i = 0; i < TEST_ARRAY_LEN(rows); i++) {
        int value = 0;
        if (gpu_cuda()->DeviceGetAttribute(&value, rows[i].attribute, d->handle) == CUDA_SUCCESS) {
            row(rows[i].text, "%d", value);
        } else {
            row(rows[i].text, "unknown to this driver");
        }
    }
}

/* The kernels of a build without loading, then with every kernel. */
static void load_times(const struct rondo_cuda_device *d)
{
    struct rondo_cuda_kernels *kernels = NULL;
    double start = test_now(), module;
    CUmodule one = gpu_module_load();
    module = test_now() - start;
    test_device_must(gpu_cuda()->ModuleUnload(one), "cuModuleUnload");
    row("loading the image, ms", "%.1f", module * 1e3);
    start = test_now();
    TEST_MUST(rondo_cuda_kernels_get(&kernels, d), NULL);
    row("loading all kernels, ms", "%.1f", (test_now() - start) * 1e3);
    row("blocks that run together", "%d", rondo_cuda_kernels_blocks(kernels));
    rondo_cuda_kernels_put(kernels);
}

static int nccl(const char *file)
{
    void *library = dlopen(file, RTLD_NOW);
    int (*version)(int *) = library != NULL ? dlsym(library, "ncclGetVersion") : NULL, number = 0;
    if (version == NULL || version(&number) != 0) {
        printf("%s: %s\n", file, library == NULL ? dlerror() : "it tells no version");
        return 1;
    }
    if (dlsym(library, "rondo_get_version") != NULL) {
        printf("Rondo with the interface of NCCL\n");
        return 0;
    }
    printf("%d.%d.%d\n", number / 10000, number / 100 % 100, number % 100);
    return 0;
}

static void hold(void)
{
    char byte;
    printf("held\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

static int probe(int holds)
{
    const char *why = "";
    struct rondo_cuda_device d;
    double start = test_now(), initialised;
    int version = 0, count = 0;
    if (rondo_cuda(&why) == NULL) {
        printf("skipped: %s\n", why);
        return GPU_SKIPPED;
    }
    initialised = test_now() - start;
    test_device_must(gpu_cuda()->DriverGetVersion(&version), "cuDriverGetVersion");
    test_device_must(gpu_cuda()->DeviceGetCount(&count), "cuDeviceGetCount");
    if (count == 0) {
        printf("skipped: the driver shows no GPU\n");
        return GPU_SKIPPED;
    }
    start = test_now();
    TEST_MUST(rondo_cuda_open(0, &d), NULL);
    TEST_MUST(rondo_cuda_enter(&d), NULL);
    if (holds) {
        hold();
    } else {
        double opened = test_now() - start;
        printf("| GPU 0 of %d | |\n|---|---|\n", count);
        attributes(&d);
        row("CUDA of the driver", "%d.%d", version / 1000, version % 1000 / 10);
        row("starting the driver, ms", "%.1f", initialised * 1e3);
        row("a context, ms", "%.1f", opened * 1e3);
        load_times(&d);
    }
    rondo_cuda_leave();
    rondo_cuda_close(&d);
    return 0;
}

int main(int argc, char **argv)
{
    int holds = argc == 2 && strcmp(argv[1], "--hold") == 0;
    if (argc == 3 && strcmp(argv[1], "--nccl") == 0) {
        return nccl(argv[2]);
    }
    if (argc != 1 && !holds) {
        printf("usage: gpu_probe [--hold | --nccl FILE]\n"
               "\n"
               "Print what the driver says of GPU 0, and how long opening it and loading the kernels takes.\n"
               "  --hold       instead: print \"held\", and keep the device open until standard input ends\n"
               "  --nccl FILE  instead: print the version of this NCCL\n"
               "\n"
               "Exit status: 0 success, 1 failure, 77 no GPU\n");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    test_init_plain("gpu_probe");
    test.rank = 0;
    test_watchdog(holds ? 0 : 60);
    return probe(holds);
}
