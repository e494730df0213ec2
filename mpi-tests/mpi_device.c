#include "mpi_device.h"

#include "mpi_common.h"

#ifdef RONDO_CUDA

#include "base/cuda.h"

static struct rondo_cuda_device device;
static CUstream copies;

void test_device_must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        (void)rondo_cuda_fail(result, "%s", what);
        test_die("%s", rondo_last_error(NULL));
    }
}

int test_device_begin(int rank, const char **why)
{
    const struct rondo_cuda *cuda = rondo_cuda(why);
    int count = 0;
    if (cuda == NULL) {
        return -1;
    }
    test_device_must(cuda->DeviceGetCount(&count), "cuDeviceGetCount");
    TEST_MUST(rondo_cuda_open(rank % count, &device), NULL);
    TEST_MUST(rondo_cuda_enter(&device), NULL);
    test_device_must(cuda->StreamCreateWithPriority(&copies, CU_STREAM_NON_BLOCKING, 0),
                     "cuStreamCreateWithPriority");
    return device.ordinal;
}

void test_device_end(void)
{
    test_device_must(rondo_cuda(NULL)->StreamDestroy(copies), "cuStreamDestroy");
    rondo_cuda_leave();
    rondo_cuda_close(&device);
}

void *test_device_alloc(size_t bytes)
{
    CUdeviceptr memory = 0;
    test_device_must(rondo_cuda(NULL)->MemAlloc(&memory, bytes), "cuMemAlloc");
    return (void *)(uintptr_t)memory;
}

void test_device_free(void *memory)
{
    test_device_must(rondo_cuda(NULL)->MemFree((CUdeviceptr)(uintptr_t)memory), "cuMemFree");
}

void test_device_copy(void *to, const void *from, size_t bytes)
{
    test_device_must(rondo_cuda(NULL)->MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                                   bytes, copies),
                     "cuMemcpyAsync");
    test_device_must(rondo_cuda(NULL)->StreamSynchronize(copies), "cuStreamSynchronize");
}

rondo_stream test_device_stream_new(void)
{
    CUstream stream;
    test_device_must(rondo_cuda(NULL)->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
                     "cuStreamCreateWithPriority");
    return RONDO_CUDA_STREAM(stream);
}
void test_device_stream_free(rondo_stream stream)
{
    test_device_must(rondo_cuda(NULL)->StreamDestroy((CUstream)stream), "cuStreamDestroy");
}
void test_device_wait(rondo_stream stream)
{
    test_device_must(rondo_cuda(NULL)->StreamSynchronize((CUstream)stream), "cuStreamSynchronize");
}

#else

static const char none[] = "this build has no CUDA (configure --with-cuda)";

int test_device_begin(int rank, const char **why)
{
    (void)rank;
    *why = none;
    return -1;
}
void test_device_end(void) {}
void *test_device_alloc(size_t bytes)
{
    (void)bytes;
    test_die("%s", none);
}
void test_device_free(void *memory) { (void)memory; }
void test_device_copy(void *to, const void *from, size_t bytes) { (void)to, (void)from, (void)bytes; }
rondo_stream test_device_stream_new(void) { return NULL; }
void test_device_stream_free(rondo_stream stream) { (void)stream; }
void test_device_wait(rondo_stream stream) { (void)stream; }

#endif
